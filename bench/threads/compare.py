#!/usr/bin/env python3
"""coll.h between threads beside hand-written references and MPI, in one run.

usage: compare.py --build FOLDER [--full|--tiny] [--only PART,...] [--raw FILE] [--minutes M]

FOLDER holds the programs that `make bench-threads` builds: pair, numbers, counters, and mpi.openmpi and mpi.mpich where these
are installed.  PART is one of allreduce, collectives, crowded, numbers, counters.  README.md in bench/ tells how a figure is
made.  All ratios are time / time, so below 1 is faster, but those of types, which tell how much faster than f32 a type is.
The exit status is 0, or 1 when a program failed or a result was wrong; a target that is missed is a figure, not a failure."""
import argparse, collections, os, random, re, resource, shutil, signal, statistics, subprocess, sys, time

PARTS = ['allreduce', 'collectives', 'crowded', 'numbers', 'counters']
ALLREDUCE = 'allreduce,allreduce_in_place'
OTHERS = 'broadcast,reduce,allgather,reduce_scatter,alltoall,gather,scatter,scan,barrier'
PROCESSORS = len(os.sched_getaffinity(0))
PACKAGES = {'openmpi': 'openmpi-bin libopenmpi-dev', 'mpich': 'mpich libmpich-dev'}

# A group of sizes is measured in one go, its programs one after the other: (part, ranks, seconds a case, sizes, collectives,
# with peers).
QUICK = [
    ('allreduce', 2, 0.06, '8,128,2K,32K', ALLREDUCE, True),
    ('allreduce', 2, 0.25, '512K,8M,128M', ALLREDUCE, True),
    ('collectives', 2, 0.03, '8,1K,64K,1M', OTHERS, True),
    ('collectives', 2, 0.05, '64M', OTHERS, True),
    ('crowded', 4, 0.05, '8,1K,64K,1M,16M', ALLREDUCE + ',barrier', True),
    ('crowded', 8, 0.05, '8,1K,64K', 'allreduce,barrier', False),
    ('crowded', 16, 0.05, '8,1K,64K', 'allreduce,barrier', False),
    ('crowded', 64, 0.1, '8,1K,64K', 'allreduce,barrier', False),
]
FULL = [
    ('allreduce', 2, 0.2, '8,32,128,512,2K,8K,32K', ALLREDUCE, True),
    ('allreduce', 2, 0.2, '128K,512K,2M,8M', ALLREDUCE, True),
    ('allreduce', 2, 0.3, '32M,128M,256M', ALLREDUCE, True),
    ('collectives', 2, 0.1, '8,1K,64K,1M', OTHERS, True),
    ('collectives', 2, 0.2, '64M', OTHERS, True),
    ('crowded', 4, 0.1, '8,128,1K,8K,64K,512K,4M,32M', ALLREDUCE + ',barrier', True),
    ('crowded', 4, 0.1, '256M', ALLREDUCE, False),
    ('crowded', 4, 0.1, '8,64K,1M', OTHERS, True),
    ('crowded', 4, 0.1, '64M', OTHERS, False),
    ('crowded', 8, 0.2, '8,1K,64K', 'allreduce,barrier', False),
    ('crowded', 16, 0.2, '8,1K,64K', 'allreduce,barrier', False),
    ('crowded', 64, 0.3, '8,1K,64K', 'allreduce,barrier', False),
]

TINY = [
    ('allreduce', 2, 0.005, '8,512K', ALLREDUCE, True),
    ('collectives', 2, 0.005, '8', OTHERS, True),
    ('crowded', 5, 0.005, '8,64K', 'allreduce,barrier', False),
]

Line = collections.namedtuple('Line', 'round kind table ranks column row p10 median p90 sweeps')


def human(size):
    for shift, unit in ((20, 'M'), (10, 'K')):
        if size >= 1 << shift and size % (1 << shift) == 0:
            return '%d%s' % (size >> shift, unit)
    return str(size)


def in_bytes(text):
    return int(text[:-1]) << {'K': 10, 'M': 20}[text[-1]] if text[-1] in 'KM' else int(text)


def microseconds(x):
    for below, form in ((1, '%.3f'), (10, '%.2f'), (100, '%.1f'), (1e4, '%.0f')):
        if x < below:
            return form % x
    return '%.1fms' % (x / 1e3)


def note(text):
    print('  ' + text, file=sys.stderr, flush=True)


# ---- what runs

class Runner:
    """Runs the programs one at a time, and collects their lines."""

    def __init__(self, build, deadline):
        self.build, self.deadline = build, deadline
        self.lines, self.failed, self.given_up, self.left_out = [], [], set(), 0
        self.shared = '/dev/shm/coll_bench_%d' % os.getpid()
        self.env = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT='1', OMPI_ALLOW_RUN_AS_ROOT_CONFIRM='1')
        for name in [x for x in self.env if x.startswith('COLL_')]:    # the library as it is, not as this shell has tuned it
            del self.env[name]
        if len(os.environ.get('TMPDIR', '')) > 40:                     # Open MPI's sockets lie there, and need short names
            self.env['TMPDIR'] = '/tmp'

    def path(self, program):
        return os.path.join(self.build, program)

    def command(self, arguments, limit):
        """(exit status, stdout, stderr); one that takes longer than `limit` seconds is ended, with all its processes"""
        if os.path.exists(self.shared):
            os.unlink(self.shared)
        p = subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=self.env,
                             start_new_session=True)
        try:
            out, err = p.communicate(timeout=limit)
            return p.returncode, out, err
        except subprocess.TimeoutExpired:
            return 124, '', 'no end within %d s' % limit
        finally:
            self.end(p)
            if os.path.exists(self.shared):
                os.unlink(self.shared)

    @staticmethod
    def end(p):
        """nothing of it is left, also when this program is interrupted: its processes form a group of their own, which is ended"""
        for sig in (signal.SIGTERM, signal.SIGKILL):                   # mpiexec ends its ranks when it may
            if p.poll() is None:
                try:
                    os.killpg(p.pid, sig)
                    p.wait(5)
                except (ProcessLookupError, subprocess.TimeoutExpired):
                    pass
        p.stdout.close()
        p.stderr.close()

    def run(self, name, arguments, rnd=0, limit=300, is_peer=False):
        """The lines of one program; a peer that fails or hangs is left out from then on, and is no failure of ours."""
        if is_peer and (name in self.given_up or time.time() > self.deadline):
            self.left_out += name not in self.given_up
            return
        status, out, err = self.command(arguments, limit)
        for text in out.splitlines():
            f = text.split('\t')
            if len(f) == 9:
                self.lines.append(Line(rnd, f[0], f[1], int(f[2]), int(f[3]), f[4], *(float(x) for x in f[5:8]), int(f[8])))
        if status:
            note('%s: exit status %d: %s' % (name, status, ' / '.join(err.strip().splitlines()[-3:])))
            if is_peer:
                self.given_up.add(name)
            else:
                self.failed.append(name)


def peers(runner, ranks):
    """[(name, command without the program's own arguments)] of what is installed and built"""
    found = []
    if os.path.exists(runner.path('mpi.openmpi')) and shutil.which('mpiexec.openmpi'):
        bound = ['--bind-to', 'core'] if ranks <= PROCESSORS else ['--bind-to', 'none', '--oversubscribe',
                                                                   '--mca', 'mpi_yield_when_idle', '1']
        base = ['mpiexec.openmpi', '-np', str(ranks)] + bound + ['--mca', 'pml', 'ob1', '--mca', 'btl', 'vader,self']
        found.append(('ompi', base + [runner.path('mpi.openmpi')]))
        if ranks <= PROCESSORS:                                        # beyond, it never gives way: 0.2 ms a call and more
            found.append(('ompi-sm', base + ['--mca', 'coll_sm_priority', '100', runner.path('mpi.openmpi')]))
    if os.path.exists(runner.path('mpi.mpich')) and shutil.which('mpiexec.mpich'):
        bound = ['-bind-to', 'core'] if ranks <= PROCESSORS else []
        found.append(('mpich', ['mpiexec.mpich', '-np', str(ranks)] + bound + [runner.path('mpi.mpich')]))
    return found


def fitting(sizes, ranks):
    """the sizes whose buffers take less than half of the free memory"""
    free = int(re.search(r'MemAvailable:\s*(\d+)', open('/proc/meminfo').read()).group(1)) * 1024
    keep = [s for s in sizes.split(',') if in_bytes(s) * 2 * ranks < free / 2]
    return ','.join(keep)


def measure(runner, group, rnd, is_full):
    """Ours and the references before and after the peers, in random order."""
    part, ranks, budget, sizes, collectives, has_peers = group
    sizes = fitting(sizes, ranks)
    if not sizes:
        return
    pair = [runner.path('pair'), str(ranks), str(budget), sizes, collectives]
    rivals = peers(runner, ranks) if has_peers else []
    random.shuffle(rivals)
    runner.run('pair', pair, rnd)
    for name, command in rivals:
        runner.run('%s on %d ranks' % (name, ranks), command + [name, runner.shared, str(budget), sizes, collectives], rnd,
                   120 if is_full else 30, is_peer=True)
    if rivals:
        runner.run('pair', pair, rnd)


def simulated(runner, is_full):
    """instructions and misses per element where the processor's own counters are out of reach: what cachegrind counts in so
    many rounds more"""
    if not shutil.which('valgrind'):
        return note('counters: neither perf_event_open nor valgrind here (Debian: valgrind)')
    kernels = ['f32 sum 2 into 2', 'bf16 sum 2 into 2', 'f16 to f32', 'f32 to f16', 'bf16 to f32', 'f32 to bf16']
    for elements, few, many in [(16 << 10, 4, 20)] + [(4 << 20, 1, 3)] * is_full:
        for kernel in kernels:
            counts = []
            for times in (few, many):
                command = ['valgrind', '--tool=cachegrind', '--cache-sim=yes', '--cachegrind-out-file=/dev/null',
                           runner.path('counters'), 'run', kernel, str(elements), str(times)]
                status, _, err = runner.command(command, 300)
                got = [re.search(what + r':\s+([\d,]+)', err) for what in (r'I\s+refs', r'D1\s+misses', r'LLd misses')]
                if status or not all(got):
                    return note('counters: cachegrind: exit status %d' % status)
                counts.append([int(x.group(1).replace(',', '')) for x in got])
            for name, a, b in zip(('instructions', 'L1 misses', 'LLC misses'), *counts):
                value = (b - a) / (many - few) / elements
                runner.lines.append(Line(0, 'count', 'kernels', 1, elements, '%s/%s' % (kernel, name), value, value, value, 1))


# ---- what is printed

class Figures:
    def __init__(self, lines):
        self.by = collections.defaultdict(list)
        for x in lines:
            self.by[(x.kind, x.table, x.ranks, x.column, x.row)].append(x)

    def rows(self, kind, table, ranks):
        return list(dict.fromkeys(k[4] for k in self.by if k[:3] == (kind, table, ranks)))

    def columns(self, table, ranks, kind='time'):
        return sorted({k[3] for k in self.by if k[:3] == (kind, table, ranks)})

    def tables(self, names):
        return [t for t in dict.fromkeys((k[1], k[2]) for k in self.by if k[0] == 'time') if names(t[0])]

    def get(self, kind, table, ranks, column, row):
        """(p10, median, p90), each the median over the runs; None where there is nothing"""
        found = self.by.get((kind, table, ranks, column, row))
        return found and tuple(statistics.median(x) for x in zip(*((f.p10, f.median, f.p90) for f in found)))

    def over_peer(self, table, ranks, column, peer):
        """the median over the rounds of ours / peer"""
        ratios = []
        theirs = self.by.get(('time', table, ranks, column, peer), [])
        for rnd in {x.round for x in theirs}:
            mine = [x.median for x in self.by.get(('time', table, ranks, column, 'ours'), []) if x.round == rnd]
            if mine:
                ratios.append(statistics.median(mine) / statistics.median(x.median for x in theirs if x.round == rnd))
        return statistics.median(ratios) if ratios else None


def table(title, head, lines):
    print('\n### %s\n' % title)
    width = [max(len(x[i]) for x in [head] + lines) for i in range(len(head))]
    for k, cells in enumerate([head] + lines):
        print('| ' + ' | '.join(x.rjust(w) if i else x.ljust(w) for i, (x, w) in enumerate(zip(cells, width))) + ' |')
        if k == 0:
            print('|' + '|'.join('-' * (w + 1) + (':' if i else '-') for i, w in enumerate(width)) + '|')


def spread(f):
    return '%.2f [%.2f %.2f]' % (f[1], f[0], f[2]) if f else ''


def verdict(verdicts, what, label, values, target, is_below=True):
    """Note the worst of {column: ratio} against the target."""
    if values:
        worst = (max if is_below else min)(values, key=values.get)
        met = values[worst] <= target if is_below else values[worst] >= target
        verdicts.append((what, label, values[worst], human(worst) if worst else '',
                         '%s %g' % ('<=' if is_below else '>=', target), met))


def print_collectives(figures, verdicts):
    names = ['allreduce', 'allreduce_in_place'] + OTHERS.split(',')
    for name, ranks in sorted(figures.tables(lambda t: t in names), key=lambda t: (t[1], names.index(t[0]))):
        columns = figures.columns(name, ranks)
        rows = sorted(figures.rows('time', name, ranks), key=lambda r: (0 if r == 'ours' else 1 if r.startswith('ref') else 2, r))
        lines = []
        for row in rows:
            cells = [figures.get('time', name, ranks, c, row) for c in columns]
            lines.append([row] + [microseconds(f[1]) if f else '' for f in cells])
        references, rivals = {}, {}
        for c in columns:
            found = [figures.get('ratio', name, ranks, c, r) for r in figures.rows('ratio', name, ranks)]
            found = [f for f in found if f]
            if found:
                references[c] = max(found, key=lambda f: f[1])
            ratios = [figures.over_peer(name, ranks, c, r) for r in rows if r != 'ours' and not r.startswith('ref')]
            ratios = [x for x in ratios if x]
            if ratios:
                rivals[c] = max(ratios)
        lines.append(['ours / best reference'] + [spread(references.get(c)) for c in columns])
        if rivals:
            lines.append(['ours / best peer'] + ['%.2f' % rivals[c] if c in rivals else '' for c in columns])
        what = '%s, %d ranks' % (name.replace('_in_place', ' in place'), ranks)
        table(what + ' (us)', ['bytes'] + [human(c) if c else '-' for c in columns], lines)
        verdict(verdicts, what, 'ours / best reference', {c: f[1] for c, f in references.items()}, 1.15 if ranks <= 2 else 1.5)
        verdict(verdicts, what, 'ours / best peer', rivals, 1)


def print_numbers(figures, verdicts):
    for name, ranks in figures.tables(lambda t: t.startswith('types')):
        columns, rows = figures.columns(name, ranks), figures.rows('time', name, ranks) + figures.rows('none', name, ranks)
        head = ['elements'] + [human(c) for c in columns]
        lines = []
        for row in dict.fromkeys(rows):
            cells = [figures.get('time', name, ranks, c, row) for c in columns]
            lines.append([row] + ['%.2f' % (c / f[1] / 1e3) if f else '-' for c, f in zip(columns, cells)])
        for row in figures.rows('ratio', name, ranks):
            cells = [spread(figures.get('ratio', name, ranks, c, row)) for c in columns]
            lines.append([row.replace('f32/', '') + ' / f32'] + cells)
        table('allreduce of types, %s, %d ranks (1e9 elements a second)' % (name[7:], ranks), head, lines)
        for row in ('f32/bf16', 'f32/f16'):
            last = figures.get('ratio', name, ranks, columns[-1], row)
            if last:
                verdict(verdicts, 'types, ' + name[7:], row[4:] + ' / f32', {columns[-1]: last[1]}, 1.8, is_below=False)
    for name, ranks in figures.tables(lambda t: t.startswith('levels')):
        columns = figures.columns(name, ranks)
        rows = dict.fromkeys(figures.rows('time', name, ranks) + figures.rows('none', name, ranks))
        lines = []
        for row in rows:
            cells = [figures.get('time' if row == 'default' else 'ratio', name, ranks, c,
                                 row if row == 'default' else row + '/default') for c in columns]
            lines.append([row + (' (us)' if row == 'default' else ' / default')]
                         + [(microseconds(f[1]) if row == 'default' else spread(f)) if f else '-' for f in cells])
        table('allreduce: %s, %d ranks' % (name, ranks), ['elements'] + [human(c) for c in columns], lines)
        for row, target in (('deterministic', 1.1), ('reproducible', 2)):       # for vectors longer than the caches
            last = figures.get('ratio', name, ranks, columns[-1], row + '/default')
            if last:
                verdict(verdicts, name, row + ' / default', {columns[-1]: last[1]}, target)


def print_counters(figures, source):
    columns = sorted(set(figures.columns('kernels', 1)) | set(figures.columns('kernels', 1, 'count')))
    events = list(dict.fromkeys(r.split('/')[1] for r in figures.rows('count', 'kernels', 1)))
    for column in columns:
        lines = []
        for kernel in dict.fromkeys(r.split('/')[0] for kind in ('bytes', 'count') for r in figures.rows(kind, 'kernels', 1)):
            taken, size = (figures.get(kind, 'kernels', 1, column, kernel) for kind in ('time', 'bytes'))
            bounds = [figures.get('bound', 'kernels', 1, column, kernel + '/' + c) for c in ('copy', 'copy nt')]
            bounds = [f for f in bounds if f]
            best = max(bounds, key=lambda f: f[1]) if bounds else None
            counts = [figures.get('count', 'kernels', 1, column, '%s/%s' % (kernel, e)) for e in events]
            if not taken and not any(counts):
                continue
            lines.append([kernel, '%d' % size[1] if size else '', '%.3f' % (taken[1] * 1e3 / column) if taken else '',
                          '%.1f' % (size[1] * column / taken[1] / 1e3) if taken else '',
                          '%.3f' % (taken[1] * 1e3 / column / best[1]) if best else '', spread(best)]
                         + ['%.3f' % f[1] if f else '-' for f in counts])
        head = ['kernel', 'bytes / element', 'ns / element', 'GB/s', 'bound ns', 'time / bound']
        table('kernels on one processor, %s elements%s' % (human(column), '; counted by ' + source if events else ''),
              head + [e + ' / element' for e in events], lines)


def print_verdicts(verdicts):
    if verdicts:
        table('The worst of each table', ['table', 'ratio', 'worst', 'at', 'target', ''],
              [[w, label, '%.2f' % x, at, target, 'met' if met else 'missed'] for w, label, x, at, target, met in verdicts])
        missed = [v for v in verdicts if not v[5]]
        print('\n%d of %d targets met%s' % (len(verdicts) - len(missed), len(verdicts), ''.join(
            '%s %s: %s %.2f%s (%s)' % ('; missed:' if i == 0 else ',', v[0], v[1], v[2], ' at ' + v[3] if v[3] else '', v[4])
            for i, v in enumerate(missed))))


def processor():
    found = re.search(r'model name\s*: (.*)', open('/proc/cpuinfo').read())
    return found.group(1) if found else os.uname().machine


def cpu_seconds():
    """(of everybody, of the programs that ran here)"""
    fields = [int(x) for x in open('/proc/stat').readline().split()[1:4]]
    own = [resource.getrusage(x) for x in (resource.RUSAGE_CHILDREN, resource.RUSAGE_SELF)]
    return sum(fields) / os.sysconf('SC_CLK_TCK'), sum(x.ru_utime + x.ru_stime for x in own)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--build', required=True, help='the folder of the programs')
    parser.add_argument('--full', action='store_true', help='all sizes, two rounds: some ten minutes instead of two')
    parser.add_argument('--tiny', action='store_true', help='to see that it works; the figures are worth nothing')
    parser.add_argument('--only', default=','.join(PARTS), help='some of ' + ','.join(PARTS))
    parser.add_argument('--raw', help='write every line of every program there, too')
    parser.add_argument('--minutes', type=float, help='start no peer after so long')
    o = parser.parse_args()
    wanted = o.only.split(',')
    if set(wanted) - set(PARTS):
        parser.error('--only: ' + ', '.join(sorted(set(wanted) - set(PARTS))))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    began, before = time.time(), cpu_seconds()
    runner = Runner(o.build, began + 60 * (o.minutes or (20 if o.full else 4)))
    print('# %s; %d processors: %s; Linux %s; load %.2f' % (time.strftime('%Y-%m-%d %H:%M'), PROCESSORS, processor(),
                                                            os.uname().release, os.getloadavg()[0]))
    for mpi, packages in PACKAGES.items():
        if not os.path.exists(runner.path('mpi.' + mpi)) or not shutil.which('mpiexec.' + mpi):
            print('# not installed: %s (Debian: %s)' % (mpi, packages))
    for rnd in range(2 if o.full else 1):
        for group in FULL if o.full else TINY if o.tiny else QUICK:
            if group[0] in wanted:
                measure(runner, group, rnd, o.full)
                note('%s on %d ranks, %s: %.0f s' % (group[0], group[1], group[3], time.time() - began))
    if 'numbers' in wanted:
        budget, sizes = ('0.01', '256,16K') if o.tiny else ('1' if o.full else '0.3', '256,16K,16M')
        runner.run('numbers', [runner.path('numbers'), '2', budget, sizes])
        note('numbers: %.0f s' % (time.time() - began))
    source = 'the processor'
    if 'counters' in wanted:
        budget, sizes = ('0.01', '16K') if o.tiny else ('1' if o.full else '0.3', '16K,16M')
        runner.run('counters', [runner.path('counters'), budget, sizes])
        if not any(x.kind == 'count' for x in runner.lines):
            simulated(runner, o.full)
            source = 'cachegrind'
        note('counters: %.0f s' % (time.time() - began))
    figures, verdicts = Figures(runner.lines), []
    print_collectives(figures, verdicts)
    print_numbers(figures, verdicts)
    print_counters(figures, source)
    if o.raw:
        with open(o.raw, 'w') as f:
            f.writelines('\t'.join(str(v) for v in x) + '\n' for x in runner.lines)
    everybody, own = (b - a for a, b in zip(before, cpu_seconds()))
    print('\n%.0f s; others used %.2f processors%s%s%s' % (time.time() - began, max(0, everybody - own) / (time.time() - began),
          '; given up: ' + ', '.join(sorted(runner.given_up)) if runner.given_up else '',
          '; left out for time: %d runs of peers' % runner.left_out if runner.left_out else '',
          '; FAILED: ' + ', '.join(runner.failed) if runner.failed else ''))
    print_verdicts(verdicts)
    return 1 if runner.failed else 0


if __name__ == '__main__':
    sys.exit(main())
