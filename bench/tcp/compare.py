#!/usr/bin/env python3
"""coll.h over TCP compared with hand-written sockets, Gloo and MPI, in one run.

usage: compare.py --build FOLDER [--full|--tiny] [--only PART,...] [--raw FILE] [--minutes M] [--rounds N]

FOLDER holds the programs that `make bench-tcp` builds: pair, link, overlap, start.ours, coll-run, coll-check, and for each
library that is installed gloo, mpi.openmpi, mpi.mpich, mpi.intel and oneccl, with start.* beside them.  PART is one of
allreduce, collectives, link, slow, sites, incast, overlap, start, counts.  README.md in bench/ tells how a figure is made.
Ratios are time / time, so below 1 is faster.  link, slow, sites, incast and overlap need root.  The exit status is 0, or 1 when
a program failed or a result was wrong; a target that is missed is a figure, not a failure."""
import argparse, itertools, os, random, re, shutil, statistics, sys, tempfile, time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'common'))
sys.dont_write_bytecode = True                    # nothing beside the sources
import net
from harness import (ALLREDUCE, OTHERS, PROCESSORS, Figures, Run, fitting, human, in_bytes, microseconds, note, options,
                     print_collectives, spread, table, conclusion)

PARTS = ['allreduce', 'collectives', 'link', 'slow', 'sites', 'incast', 'overlap', 'start', 'counts']
PROGRAMS = {'gloo': ('gloo', None), 'oneccl': ('oneccl', 'mpiexec.intel'),
            **{mpi: ('mpi.' + mpi, 'mpiexec.' + mpi) for mpi in ('openmpi', 'mpich', 'intel')}}
COLLECTIVES = 'allreduce,' + OTHERS

# A group of sizes is measured in one go, its programs one after the other: (part, ranks, input and output of ours, seconds a
# case, sizes, collectives, with peers).
QUICK = [
    ('allreduce', 2, 'poll,uring', 0.05, '8,128,2K,32K', ALLREDUCE, True),
    ('allreduce', 2, 'poll,uring', 0.15, '256K,1M,4M,32M', ALLREDUCE, True),
    ('allreduce', 2, 'poll,uring', 0.15, '256M', ALLREDUCE, False),
    ('collectives', 2, 'auto', 0.02, '8,1K,64K,1M,16M', OTHERS, True),
    ('collectives', 4, 'auto', 0.02, '8,1K,64K,1M', COLLECTIVES, True),
    ('collectives', 8, 'auto', 0.02, '8,64K', COLLECTIVES, True),
]
FULL = [
    ('allreduce', 2, 'poll,uring', 0.2, '8,32,128,512,2K,8K,32K', ALLREDUCE, True),
    ('allreduce', 2, 'poll,uring', 0.5, '128K,512K,2M,8M', ALLREDUCE, True),
    ('allreduce', 2, 'poll,uring', 1, '32M,128M,256M', ALLREDUCE, True),
    ('collectives', 2, 'auto', 0.1, '8,1K,64K,1M,16M', OTHERS, True),
    ('collectives', 4, 'auto', 0.1, '8,1K,64K,1M,16M', COLLECTIVES, True),
    ('collectives', 8, 'auto', 0.1, '8,1K,64K,1M,16M', COLLECTIVES, True),
]
TINY = [
    ('allreduce', 2, 'poll,uring', 0.005, '8,512K', ALLREDUCE, True),
    ('collectives', 3, 'auto', 0.005, '8,64K', 'broadcast,scan,barrier', True),
]

# Links: (hosts, threads a host, seconds, sizes, bits a second, mtu, congestion control, bytes that a port of the switch keeps)
GIGABIT = 1e9
QUICK_LINKS = [(2, 1, 0.1, '16M,64M', GIGABIT, 1500, None, None), (4, 1, 0.1, '16M', GIGABIT, 1500, None, None),
               (2, 2, 0.1, '16M', GIGABIT, 1500, None, None)]
INCAST = [(8, 1, 4, '2M', 50e6, 1500, None, room) for room in (48 << 10, 1 << 20)]         # all send to one at a time
FULL_LINKS = [(hosts, threads, 2, '16M,64M', GIGABIT, mtu, control, None) for hosts, threads in ((2, 1), (4, 1), (2, 2))
              for mtu, control in ((1500, 'cubic'), (1500, 'bbr'), (9000, None))]
# One host of four has a link of half the rate, both ways.
SLOW = [GIGABIT, GIGABIT, GIGABIT, GIGABIT / 2]
SLOW_NAME = 'allreduce, 3 hosts of 1 Gbit/s and one of 0.5'
# Two sites of three hosts each, with a link of this rate between them, both ways.
SITES, SITE_HOSTS, SITE_RATE = 2, 6, GIGABIT / 4
SITES_NAME = 'allreduce, 2 sites of 3 hosts of 1 Gbit/s, 0.25 between them'
TINY_LINKS = [(2, 1, 0.01, '1M', GIGABIT, 1500, None, None)]


# ---- the libraries that are measured

INTEL = [word for name, value in (('I_MPI_FABRICS', 'ofi'), ('I_MPI_OFI_PROVIDER', 'tcp'), ('FI_TCP_IFACE', 'lo'))
         for word in ('-genv', name, value)]
NO_MEMORY = {'intel': ['-genv', 'I_MPI_COLL_INTRANODE', 'pt2pt'], 'oneccl': ['-genv', 'CCL_ATL_SHM', '0']}


def peers(runner, ranks, folder):
    """[(name, command without the program's own arguments, environment)] of what is installed and built, all of it over TCP"""
    found = []
    for name in ('openmpi', 'mpich', 'intel', 'oneccl'):
        if runner.has(*PROGRAMS[name]):
            found.append(('ompi' if name == 'openmpi' else name, *launch(runner, name, ranks, PROGRAMS[name][0])))
    if runner.has('gloo'):
        command, env = launch(runner, 'gloo', ranks, 'gloo')
        found.append(('gloo', command, dict(env, BENCH_STORE=folder)))
    return [x for x in found if x[0] not in runner.not_tcp]


def launch(runner, library, ranks, program):
    """(command, environment) to run a program of a library on so many ranks over the loopback's TCP"""
    crowded = ranks > PROCESSORS
    program = runner.path(program)
    if library == 'openmpi':
        bound = ['--bind-to', 'core']
        if crowded:
            bound = ['--bind-to', 'none', '--oversubscribe', '--mca', 'mpi_yield_when_idle', '1']
        return ['mpiexec.openmpi', '-np', str(ranks), *bound, '--mca', 'pml', 'ob1', '--mca', 'btl', 'tcp,self',
                '--mca', 'btl_tcp_if_include', 'lo', program], {}
    if library == 'mpich':                        # ch4:ucx or ch4:ofi, and no memory shared by the ranks
        return ['mpiexec.mpich', '-np', str(ranks), *([] if crowded else ['-bind-to', 'core']), program], {
            'UCX_TLS': 'tcp,self', 'FI_PROVIDER': 'tcp', 'MPIR_CVAR_NOLOCAL': '1'}
    if library in ('intel', 'oneccl'):
        return ['mpiexec.intel', '-n', str(ranks), *INTEL, *NO_MEMORY[library], program], {}
    batch = ['chrt', '-b', '0'] if library == 'gloo' and shutil.which('chrt') else []        # it stalls for a tick otherwise
    return [runner.path('coll-run'), '-n', str(ranks), '--no-prefix', '-q', *batch, program], {'COLL_SHARE': '0'}


def loopback_bytes():
    """the bytes that the loopback of this machine has carried"""
    return int(re.search(r'^\s*lo:\s*(\d+)', open('/proc/net/dev').read(), re.M).group(1))


def find_impostors(runner):
    """Peers that do not use TCP are left out: their messages must show on the loopback.  On two ranks an alltoall and an
    allreduce of 4 MiB send 4 MiB or more."""
    runner.not_tcp = set()
    with tempfile.TemporaryDirectory() as folder:
        for (name, command, env), call in itertools.product(peers(runner, 2, folder), ('alltoall', 'allreduce')):
            before = loopback_bytes()
            status, _, err = runner.command([command + [name, runner.shared, '0.001', '4M', call]], 60, env)
            carried = loopback_bytes() - before
            if status == 0 and carried < 5 * (4 << 20):
                runner.not_tcp.add(name)
                note('%s: of %s only %d bytes went over the loopback: not TCP, left out' % (name, call, carried))


def measure(runner, group, rnd, is_full):
    """Ours and the references before and after the peers, which run in random order."""
    part, ranks, io, budget, sizes, collectives, has_peers = group
    sizes = fitting(sizes, ranks, 3)
    if not sizes:
        return
    pair = [runner.path('pair'), str(ranks), io, str(budget), sizes, collectives]
    with tempfile.TemporaryDirectory() as folder:
        rivals = peers(runner, ranks, folder) if has_peers else []
        random.shuffle(rivals)
        runner.run('pair', pair, rnd)
        for name, command, env in rivals:
            for old in os.listdir(folder):
                os.unlink(os.path.join(folder, old))
            runner.run('%s on %d ranks' % (name, ranks), command + [name, runner.shared, str(budget), sizes, collectives], rnd,
                       240 if is_full else 25, is_peer=True, env=env)
        if rivals:
            runner.run('pair', pair, rnd)


# ---- links of a given rate

def links(runner, conditions):
    """[(condition, table)] of what was measured between namespaces"""
    done = []
    for condition in conditions:
        hosts, threads, budget, sizes, rate, mtu, control, room = condition
        name = 'allreduce, %g Gbit/s, %d hosts x %d' % (rate / 1e9, hosts, threads) + (
            '' if mtu == 1500 else ', frames of %d' % mtu) + (', ' + control if control else '') + (
            ', ports of %d KiB' % (room >> 10) if room else '')
        try:
            with net.Namespaces('link') as space:
                found = space.hosts(hosts, rate, mtu, control, room)
                runner.run('link', link_commands(runner, found, budget, sizes, name, threads), env={'COLL_SHARE': '0'})
                done.append((condition, name))
        except net.Failed as e:
            note('%s: %s' % (name, e))
    return done


def link_commands(runner, found, budget, sizes, name, threads, sites=1, tuning=None):
    """The program of each host that was made"""
    address, second = ['%s:%d' % (found[0][1], port) for port in (7000, 7001)]     # a network of its own, so the ports are free
    told = lambda h: (['sites', 'site %d' % (h * sites // len(found)), second] if sites > 1 else
                      ['tuned', tuning, second] if tuning else [])
    return [net.inside(where, runner.path('link'), runner.shared, str(budget), sizes, name, str(h), str(len(found)), str(threads),
                       address, own, found[(h + 1) % len(found)][1], net.INTERFACE, *told(h))
            for h, (where, own) in enumerate(found)]


def tune(runner, found, path):
    """Let coll-check write a tuning file for these hosts.  Does it name faster links?"""
    join = lambda h: ['env', 'COLL_RANK=%d' % h, 'COLL_SIZE=%d' % len(found), 'COLL_ADDR=%s:%d' % (found[0][1], 7002)]
    status, _, err = runner.command([net.inside(where, *join(h), runner.path('coll-check'), '--tuning', path)
                                     for h, (where, _) in enumerate(found)], 60, {'COLL_SHARE': '0'})
    if status or 'faster=' not in open(path).read():
        raise net.Failed('coll-check has found no faster links: ' + (err or open(path).read()))


def shaped(runner, budget, sizes, name, count, rate, sites=(1, 0)):
    """Are there measurements of links with different rates?"""
    try:
        with net.Namespaces('shaped') as space, tempfile.TemporaryDirectory() as folder:
            found, tuning = space.hosts(count, rate, sites=sites), None
            if sites[0] == 1:
                tuning = os.path.join(folder, 'tuning')
                tune(runner, found, tuning)
            runner.run('link', link_commands(runner, found, budget, sizes, name, 1, sites[0], tuning), env={'COLL_SHARE': '0'})
            return True
    except net.Failed as e:
        note('%s: %s' % (name, e))
    return False


def print_shaped(figures, conclusions, name, ranks, rate, better, what, target):
    """Whatever is done, one vector crosses the slowest link, each way: of one host, or of all hosts of a site."""
    columns, lines, found = figures.columns(name, ranks), [], {}
    for row in figures.rows('time', name, ranks):
        cells = [figures.get('time', name, ranks, c, row) for c in columns]
        lines.append([row + ' (us)'] + [microseconds(f[1]) if f else '' for f in cells])
    for row in ('ours', better):
        cells = [figures.get('time', name, ranks, c, row) for c in columns]
        times = [f[1] / (c * 8 / rate * 1e6 / net.payload_share(1500)) if f else None for c, f in zip(columns, cells)]
        lines.append([row + ' / bound, with headers'] + ['%.3f' % t if t else '' for t in times])
        if row == better:
            found = {c: t for c, t in zip(columns, times) if t}
    table(name, ['bytes'] + [human(c) + figures.mark(name, ranks, c) for c in columns], lines)
    conclusion(conclusions, name, what + ' / bound', found, target)


def print_links(figures, conclusions, done):
    for (hosts, threads, _, _, rate, mtu, _, room), name in done:
        ranks = hosts * threads
        if figures.rows('none', name, ranks):
            print('\n### %s\n\nnot here: threads of several processes in one communicator' % name)
            continue
        columns, lines = figures.columns(name, ranks), []
        line = lambda label, form, cells: lines.append([label] + [form % cells[c] if c in cells else '' for c in columns])
        bound = {c: 2 * (hosts - 1) / hosts * c * 8 / rate * 1e6 for c in columns}         # us, for the bytes of the vector alone
        share = net.payload_share(mtu)
        reached, faster = {}, {}
        get = lambda row, c, kind='time': figures.get(kind, name, ranks, c, row)
        for row in figures.rows('time', name, ranks):
            cells = [get(row, c) for c in columns]
            lines.append([row + ' (us)'] + [microseconds(f[1]) if f else '' for f in cells])
        for row, wire in (('ours', 1), ('ours-bf16', 0.5), ('raw', 1)):
            cells = {c: bound[c] * wire / get(row, c)[1] for c in columns if get(row, c)}
            if cells:
                line(row + ', % of the bound', '%.1f', {c: 100 * x for c, x in cells.items()})
                line(row + ', with headers', '%.1f', {c: 100 * x / share for c, x in cells.items()})
            if row == 'ours':
                reached = cells
        for c in columns:
            f = get('ours-bf16/ours', c, 'ratio')
            if f:
                faster[c] = 1 / f[1]
        beside = {c: get('ours', c)[1] / get('raw', c)[1] for c in columns if get('raw', c)}
        line('ours / raw', '%.2f', beside)
        line('f32 / f32 over bf16', '%.2f', faster)
        for row in ('ours', 'ours-bf16', 'raw'):
            cells = {c: get(row, c, 'egress')[1] / c for c in columns if get(row, c, 'egress')}
            if cells:
                line(row + ', sent by a host / vector', '%.3f', cells)
        lines.append(['2 (H - 1) / H of it'] + ['%.3f' % (2 * (hosts - 1) / hosts)] * len(columns))
        table(name, ['bytes'] + [human(c) + figures.mark(name, ranks, c) for c in columns], lines)
        if room:
            conclusion(conclusions, name, 'ours / raw', beside, 1.1)
            continue
        conclusion(conclusions, name, 'bound / ours', reached, 0.95, is_below=False)
        sums = 1.5 if threads > 1 else 1          # of several ranks, sums cross as f32 before they are rounded, once
        conclusion(conclusions, name, 'f32 / f32 over bf16', faster, round(1.9 / sums, 2), is_below=False)
        extra = {c: get('ours', c, 'egress')[1] / (2 * (hosts - 1) / hosts * c) for c in columns if get('ours', c, 'egress')}
        conclusion(conclusions, name, 'bytes sent / least', extra, 1.02)


# ---- overlap

def overlap(runner, budget, size, compute_ms, rate):
    """Two ranks on a loopback that both directions share."""
    try:
        with net.Namespaces('overlap') as space:
            where = space.loopback(rate)
            runner.run('overlap', net.inside(where, runner.path('overlap'), str(budget), size, str(compute_ms), 'uring,poll'))
    except net.Failed as e:
        note('overlap: %s' % e)


def print_overlap(figures, conclusions, rate):
    for column in figures.columns('overlap', 2):
        lines = []
        for row in figures.rows('time', 'overlap', 2):
            f = figures.get('time', 'overlap', 2, column, row)
            lines.append([row, microseconds(f[1]), spread(figures.get('ratio', 'overlap', 2, column, row + '/longer'))])
        what = 'allreduce of %s under computation, %g Gbit/s' % (human(column), rate / 1e9)
        table(what, ['', 'us' + figures.mark('overlap', 2, column), 'over the longer of the two'], lines)
        for row in ('uring-apart', 'poll-apart', 'poll-calls'):
            f = figures.get('ratio', 'overlap', 2, column, row + '/longer')
            conclusion(conclusions, what, row, {column: f[1]} if f else {}, 1.15)


# ---- start

def start(runner, ranks, rounds):
    """Every library in turn, several times; few ranks, then many, to find the cost of one more peer."""
    few = 2
    programs = [('ours', 'ours', {}), ('ours, memory shared', 'ours', {'COLL_SHARE': '1'}), ('ompi', 'openmpi', {}),
                ('mpich', 'mpich', {}), ('intel', 'intel', {}), ('oneccl', 'oneccl', {}), ('gloo', 'gloo', {})]
    for rnd in range(rounds):
        for n in (few, ranks):
            for name, library, more in programs if rnd % 3 == 0 else programs[:2]:
                program = 'start.' + library
                if not runner.has(program, PROGRAMS.get(library, (0, None))[1]):
                    continue
                with tempfile.TemporaryDirectory() as folder:
                    command, env = launch(runner, library, n, program)
                    env = dict(env, BENCH_STORE=folder, BENCH_T0=repr(time.clock_gettime(time.CLOCK_MONOTONIC)), **more)
                    runner.run('start of %s on %d ranks' % (name, n), command + [name, runner.shared], rnd, 20,
                               is_peer=library != 'ours', env=env)


def print_start(figures, conclusions):
    counts = sorted({ranks for _, ranks in figures.tables(lambda t: t == 'start', 'start')})
    if not counts:
        return
    few, many = counts[0], counts[-1]
    lines = []
    for row in figures.rows('start', 'start', many):
        cells = [figures.get('start', 'start', n, 0, row) for n in counts]
        held = [figures.get('memory', 'start', n, 0, row) for n in counts]
        each = (held[-1][1] - held[0][1]) / (many - few) / 1024 if all(held) and many > few else None
        lines.append([row] + ['%.0f' % f[1] if f else '' for f in cells] + ['%.1f' % (f[1] / 1e6) if f else '' for f in held]
                     + ['%.1f' % each if each is not None else ''])
        if row == 'ours' and many == 64:
            conclusion(conclusions, 'start of %d processes' % many, 'ms / 250', {0: cells[-1][1] / 250}, 1)
    table('From the launch to the first allreduce, and resident memory of a rank that is connected to all others', ['']
          + ['%d ranks, ms' % n for n in counts] + ['%d ranks, MB' % n for n in counts] + ['KiB for one more peer'], lines)


# ---- counts

def counts(runner, sizes):
    """System calls for an operation of a rank: what strace counts in so many operations more."""
    if not shutil.which('strace'):
        return note('counts: no strace here (Debian: strace)')
    found = []
    few, many = 20, 120
    for size in sizes:
        for io in ('poll', 'uring', 'reference'):
            calls = []
            for times in (few, many):
                with tempfile.NamedTemporaryFile('r') as log:
                    status, _, err = runner.command([['strace', '-f', '-c', '-o', log.name, runner.path('pair'), '2', io,
                                                      '=%d' % times, size, 'allreduce']], 120)
                    if status:
                        note('counts: %s: exit status %d: %s' % (io, status, err.strip()[-200:]))
                        break
                    calls.append({f[-1]: int(f[3]) for f in (line.split() for line in log.read().splitlines())
                                  if len(f) >= 5 and f[3].isdigit() and f[-1] not in ('total', 'sched_yield')})
            if len(calls) == 2:
                each = {k: (calls[1][k] - calls[0].get(k, 0)) / (many - few) / 2 for k in calls[1]}
                found.append((size, io, sorted(((v, k) for k, v in each.items() if v >= 0.05), reverse=True)))
    return found


def print_counts(found):
    if found:
        table('System calls for one allreduce of a rank, 2 ranks (under strace, which makes waits longer and looks more)',
              ['bytes', '', 'all', 'of them'],
              [[size, io, '%.1f' % sum(v for v, _ in each), ', '.join('%s %.1f' % (k, v) for v, k in each[:6])]
               for size, io, each in found])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    o = options(parser, PARTS, 'more sizes, frames and congestion controls, two rounds: half an hour instead of three minutes')
    run = Run(o, o.rounds * (15 if o.full else 4))
    runner = run.runner
    run.missing(PROGRAMS)
    find_impostors(runner)
    for rnd in range(o.rounds):
        for group in FULL if o.full else TINY if o.tiny else QUICK:
            if group[0] in o.only:
                measure(runner, group, rnd, o.full)
                run.note('%s on %d ranks, %s' % (group[0], group[1], group[4]))
    done, is_slow, is_sited, system_calls, rate = [], False, False, None, 4e9
    why_not = net.why_not() if {'link', 'slow', 'sites', 'incast', 'overlap'} & set(o.only) else None
    if why_not:
        print('# no network namespaces, so no links, slow, sites, incast, overlap: ' + why_not)
    if 'link' in o.only and not why_not:
        done = links(runner, FULL_LINKS if o.full else TINY_LINKS if o.tiny else QUICK_LINKS)
        run.note('link')
    if 'slow' in o.only and not why_not and not o.tiny:
        is_slow = shaped(runner, 0.5 if o.full else 0.1, '16M,64M', SLOW_NAME, len(SLOW), SLOW)
        run.note('slow')
    if 'sites' in o.only and not why_not and not o.tiny:
        is_sited = shaped(runner, 0.5 if o.full else 0.1, '1M,8M', SITES_NAME, SITE_HOSTS, GIGABIT,
                          (SITES, SITE_RATE))
        run.note('sites')
    if 'incast' in o.only and not why_not and not o.tiny:
        done += links(runner, INCAST)
        run.note('incast')
    if 'overlap' in o.only and not why_not:
        overlap(runner, *((0.01, '1M', 10) if o.tiny else (20, '16M', 100) if o.full else (3, '16M', 100)), rate)
        run.note('overlap')
    if 'start' in o.only:
        start(runner, 8 if o.tiny else 64, 1 if o.tiny else 7 if o.full else 3)
        run.note('start')
    if 'counts' in o.only:
        system_calls = counts(runner, ['8'] if o.tiny else ['8', '64K', '4M'])
        run.note('counts')
    figures, conclusions = Figures(runner.lines), []
    for row in sorted({x.row for x in runner.lines if x.kind == 'none' and x.table == 'io'}):
        print('# not available: %s' % row)
    print_collectives(figures, conclusions, lambda ranks: 1.15)
    print_links(figures, conclusions, done)
    if is_slow:
        print_shaped(figures, conclusions, SLOW_NAME, len(SLOW), min(SLOW), 'ours-tuned', 'tuned', 1.1)
    if is_sited:
        print_shaped(figures, conclusions, SITES_NAME, SITE_HOSTS, SITE_RATE, 'ours-sites', 'by sites', 1.2)
    print_overlap(figures, conclusions, rate)
    print_start(figures, conclusions)
    print_counts(system_calls)
    return run.end(conclusions)


if __name__ == '__main__':
    sys.exit(main())
