#!/usr/bin/env python3
"""coll.h between threads compared with hand-written references and MPI, in one run.

usage: compare.py --build FOLDER [--full|--tiny] [--only PART,...] [--raw FILE] [--minutes M] [--rounds N]

FOLDER holds the programs that `make bench-threads` builds: pair, numbers, counters, processes, coll-run, and mpi.openmpi,
mpi.mpich, mpi.intel and oneccl where these are installed.  PART is one of allreduce, collectives, crowded, numbers, counters.
README.md in bench/ tells how a figure is made.  All ratios are time / time, so below 1 is faster, but those of types, which
tell how much faster than f32 a type is.  The exit status is 0, or 1 when a program failed or a result was wrong; a target that
is missed is a figure, not a failure."""
import argparse, os, random, re, shutil, sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'common'))
sys.dont_write_bytecode = True                    # nothing beside the sources
from harness import (ALLREDUCE, OTHERS, PROCESSORS, Figures, Line, Run, fitting, human, microseconds, note, options,
                     print_collectives, spread, table, conclusion)

PARTS = ['allreduce', 'collectives', 'crowded', 'numbers', 'counters']

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

INTEL = ['-genv', 'I_MPI_FABRICS', 'shm']         # it binds ranks to processors, and yields if there are more ranks


def peers(runner, ranks):
    """[(name, command without the program's own arguments)] of what is installed and built; ours between processes, too"""
    found = []
    if runner.has('mpi.openmpi', 'mpiexec.openmpi'):
        bound = ['--bind-to', 'core'] if ranks <= PROCESSORS else ['--bind-to', 'none', '--oversubscribe',
                                                                   '--mca', 'mpi_yield_when_idle', '1']
        base = ['mpiexec.openmpi', '-np', str(ranks)] + bound + ['--mca', 'pml', 'ob1', '--mca', 'btl', 'vader,self']
        found.append(('ompi', base + [runner.path('mpi.openmpi')]))
        if ranks <= PROCESSORS:                                        # with more it never yields: 0.2 ms a call and more
            found.append(('ompi-sm', base + ['--mca', 'coll_sm_priority', '100', runner.path('mpi.openmpi')]))
    if runner.has('mpi.mpich', 'mpiexec.mpich'):
        bound = ['-bind-to', 'core'] if ranks <= PROCESSORS else []
        found.append(('mpich', ['mpiexec.mpich', '-np', str(ranks)] + bound + [runner.path('mpi.mpich')]))
    for name, program in ('intel', 'mpi.intel'), ('oneccl', 'oneccl'):
        if runner.has(program, 'mpiexec.intel'):
            found.append((name, ['mpiexec.intel', '-n', str(ranks)] + INTEL + [runner.path(program)]))
    if runner.has('processes', runner.path('coll-run')):
        bound = ['env', 'BENCH_PIN=1'] if ranks <= PROCESSORS else []
        found.append(('ours-processes', bound + [runner.path('coll-run'), '-n', str(ranks), '--no-prefix', '-q',
                                                 runner.path('processes')]))
    return found


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
                status, _, err = runner.command([command], 300)
                got = [re.search(what + r':\s+([\d,]+)', err) for what in (r'I\s+refs', r'D1\s+misses', r'LLd misses')]
                if status or not all(got):
                    return note('counters: cachegrind: exit status %d' % status)
                counts.append([int(x.group(1).replace(',', '')) for x in got])
            for name, a, b in zip(('instructions', 'L1 misses', 'LLC misses'), *counts):
                value = (b - a) / (many - few) / elements
                runner.lines.append(Line(0, 'count', 'kernels', 1, elements, '%s/%s' % (kernel, name), value, value, value, 1))


# ---- what is printed

def print_numbers(figures, conclusions):
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
                conclusion(conclusions, 'types, ' + name[7:], row[4:] + ' / f32', {columns[-1]: last[1]}, 1.8, is_below=False)
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
                conclusion(conclusions, name, row + ' / default', {columns[-1]: last[1]}, target)


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


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    o = options(parser, PARTS, 'all sizes, two rounds: some ten minutes instead of two')
    run = Run(o, o.rounds * (10 if o.full else 4))
    runner = run.runner
    run.missing({**{mpi: ('mpi.' + mpi, 'mpiexec.' + mpi) for mpi in ('openmpi', 'mpich', 'intel')},
                 'oneccl': ('oneccl', 'mpiexec.intel')})
    for rnd in range(o.rounds):
        for group in FULL if o.full else TINY if o.tiny else QUICK:
            if group[0] in o.only:
                measure(runner, group, rnd, o.full)
                run.note('%s on %d ranks, %s' % (group[0], group[1], group[3]))
    if 'numbers' in o.only:
        budget, sizes = ('0.01', '256,16K') if o.tiny else ('1' if o.full else '0.3', '256,16K,16M')
        runner.run('numbers', [runner.path('numbers'), '2', budget, sizes])
        run.note('numbers')
    source = 'the processor'
    if 'counters' in o.only:
        budget, sizes = ('0.01', '16K') if o.tiny else ('1' if o.full else '0.3', '16K,16M')
        runner.run('counters', [runner.path('counters'), budget, sizes])
        if not any(x.kind == 'count' for x in runner.lines):
            simulated(runner, o.full)
            source = 'cachegrind'
        run.note('counters')
    figures, conclusions = Figures(runner.lines), []
    print_collectives(figures, conclusions, lambda ranks: 1.15 if ranks <= 2 else 1.5)
    print_numbers(figures, conclusions)
    print_counters(figures, source)
    return run.end(conclusions)


if __name__ == '__main__':
    sys.exit(main())
