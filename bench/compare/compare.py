#!/usr/bin/env python3
"""Has a change made a call slower?  The libraries of two commits, or of one and of this tree, cell by cell, in turns.

usage: compare.py --old COMMIT [--new COMMIT] [--rounds N] [--only BENCH,...] [--calls CALL,...] [--quick] [--jobs N]
       --compile COMMAND --libs LIBRARIES [--make NAME=VALUE]...

`make bench-compare A=COMMIT B=COMMIT` runs it.  BENCH is one of instructions, threads, tcp, mpi.  bench/README.md tells how a
figure is made.  The exit status is 0; 1 when a cell is slower; 2 when something could not be measured.  With --quick the figures
are worth nothing, and nothing is slower."""
import argparse, collections, os, signal, statistics, sys, time

HERE = os.path.dirname(os.path.abspath(__file__))
TOP = os.path.dirname(os.path.dirname(HERE))
sys.path[:0] = [os.path.join(os.path.dirname(HERE), 'common'), HERE]
sys.dont_write_bytecode = True                    # no files beside the sources
from harness import COMPANY, PROCESSORS, Runner, human, microseconds, named_on_the_machine, note
import jobs, sides

LEAST, MIDDLE = 1.03, 1.05                        # bounds of all ratios but a fifth, and of their median
RULE = """\
# slower: of the rounds' ratios, new / old, all but the lowest fifth (of 5: one) are above %g and the median is above %g, and so
#     they are again in a second measurement of twice as many rounds, whose figures are shown
# faster: all but the highest fifth are below 1 / %g and the median is below 1 / %g; not measured again
# old, new: medians over the rounds, microseconds of a call, or instructions; ratio: of these two; [..]: lowest, median and
#     highest of the rounds' ratios; instructions: new / old of such a call; ~: others used the processors""" % (
    LEAST, MIDDLE, LEAST, MIDDLE)

LINE = '%-12s %-19s %-30s %8s %10s %10s %7s  %-22s %s'


class Figures:
    """Of one cell: what was found on either side, an entry a round."""

    def __init__(self):
        self.old, self.new, self.company = [], [], []

    def ratios(self):
        return sorted(new / old for old, new in zip(self.old, self.new))

    def conclusion(self):
        ratios = self.ratios()
        fifth, middle = len(ratios) // 5, statistics.median(ratios)
        if ratios[fifth] > LEAST and middle > MIDDLE:
            return 'slower'
        return 'faster' if ratios[-1 - fifth] < 1 / LEAST and middle < 1 / MIDDLE else ''


class Paired:
    """The measurement: jobs, in turns on both sides."""

    def __init__(self, runner, old, new):
        self.runner, self.sides, self.left_out = runner, (old, new), []

    def once(self, job, side, rnd):
        """({cell: figure}, company), or None after printing why it failed"""
        status, out, err = self.runner.command([job.command(side.path(job.program, rnd % sides.PADS))], 300,
                                               dict(job.env, BENCH_OURS_ALONE='1'))
        found = job.read(out) if status == 0 else None
        if found and (found[0] or '\nnone\tio\t' in '\n' + out):               # no io_uring here: no cells
            return found
        what = '%s, %s, %s' % (job.bench, job.where, ','.join(job.tables))
        note('%s: %s: exit status %d: %s: left out' % (side.name, what, status, ' / '.join(err.strip().splitlines()[-3:])))
        self.left_out.append(what)
        return None

    def measure(self, todo, rounds):
        """{cell: Figures}; old first and new first in turns, from job to job and from round to round"""
        figures, began, failed = collections.defaultdict(Figures), time.monotonic(), set()
        for rnd in range(rounds):
            for k, job in enumerate(todo):
                if job in failed or isinstance(job, jobs.Count) and rnd > 0:
                    continue
                turn = (0, 1) if (rnd + k) % 2 == 0 else (1, 0)
                found = {}
                for side in turn:
                    found[side] = self.once(job, self.sides[side], rnd)
                    if found[side] is None:
                        failed.add(job)
                        break
                if job not in failed:
                    self.add(figures, found)
            spent = time.monotonic() - began
            note('round %d of %d: %.0f s; %.0f more' % (rnd + 1, rounds, spent, spent / (rnd + 1) * (rounds - rnd - 1)))
        return {cell: f for cell, f in figures.items() if f.old}

    @staticmethod
    def add(figures, found):
        (old, beside_old), (new, beside_new) = found[0], found[1]
        for cell in old:
            if cell in new and old[cell] > 0:
                f = figures[cell]
                f.old.append(old[cell])
                f.new.append(new[cell])
                f.company.append(max(beside_old, beside_new))


# ---- what is printed

def span(seconds):
    return '%.0f s' % seconds if seconds < 100 else '%.0f minutes' % (seconds / 60)


def counted(figures, cell):
    """new / old instructions of a short call like this one, or None"""
    over = {'threads': '2 ranks, threads', 'tcp': '2 ranks, tcp'}.get(cell.bench)
    if cell.row or not over or cell.where not in ('2 ranks', '2 ranks, poll') or cell.column > 1024:
        return None
    like = [(abs(c.column - cell.column), c) for c in figures if c.bench == 'instructions' and c.where == over
            and c.table == cell.table.replace('_in_place', '') and (c.column > 64) == (cell.column > 64)]
    return figures[min(like)[1]].ratios()[0] if like else None


def print_cell(cell, f, all_figures, words):
    is_count = cell.bench == 'instructions'
    form = (lambda x: '%.0f' % x) if is_count else microseconds
    old, new, ratios = statistics.median(f.old), statistics.median(f.new), f.ratios()
    instructions = counted(all_figures, cell)
    if instructions:
        words = ['instructions %.2f' % instructions] + words
    if statistics.median(f.company) > COMPANY:
        words = ['~'] + words
    size = human(cell.column) + {'elements': ' el'}.get(cell.unit, '') if cell.column else '-'
    name = cell.table + (': ' + cell.row if cell.row else '')
    print((LINE % (cell.bench, cell.where, name, size, form(old), form(new), '%.3f' % (new / old), '[%.2f %.2f %.2f]' % (
        ratios[0], statistics.median(ratios), ratios[-1]), ', '.join(words))).rstrip())


def report(first, second):
    """Prints all cells; returns (how many are slower, how many are faster).  second: of those that were slower at first."""
    slower = faster = 0
    print('\n' + LINE % ('bench', 'where', 'cell', 'size', 'old', 'new', 'ratio', '[lowest median highest]', 'result'))
    for cell, f in first.items():
        conclusion, words = f.conclusion(), []
        if conclusion == 'slower':
            words.append('first %.2f' % statistics.median(f.ratios()))
            f = second.get(cell, f)
            conclusion = 'slower' if f.conclusion() == 'slower' else ''
            words.append('SLOWER' if conclusion else 'not again')
        elif conclusion:
            words.append(conclusion)
        slower += conclusion == 'slower'
        faster += conclusion == 'faster'
        print_cell(cell, f, first, words)
    return slower, faster


def evaluated(paired, todo, rounds):
    """({cell: Figures} of the first measurement, how many are slower, how many are faster): measured, once more what was slower,
    and printed"""
    first, second = paired.measure(todo, rounds), {}
    suspects = [c for c, f in first.items() if f.conclusion() == 'slower']
    again = [j for j in (job.only(suspects) for job in todo) if j]
    if again:
        note('%d cells are measured again, in %s' % (len(suspects), span(sum(4 * rounds * j.seconds() for j in again))))
        second = paired.measure(again, 2 * rounds)
    return first, *report(first, second)


# ---- the run

def options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--old', default='', help='the commit, or version, whose library is held against the other one')
    parser.add_argument('--new', default='', help='the other one; this tree as it lies, if it is not named')
    parser.add_argument('--rounds', default='', help='5; with --quick 2')
    parser.add_argument('--only', default='', help='some of ' + ','.join(jobs.BENCHES))
    parser.add_argument('--calls', default='', help='these alone, as in allreduce,barrier: tables of the output')
    parser.add_argument('--quick', action='store_true', help='to see that it works')
    parser.add_argument('--compile', required=True, help='the compiler and its options')
    parser.add_argument('--libs', required=True, help='what programs are linked with')
    parser.add_argument('--make', action='append', default=[], help='NAME=VALUE, for the Makefile')
    parser.add_argument('--jobs', default='', help='compilers at the same time: as many as processors')
    o = parser.parse_args()
    if not o.old:
        parser.error('A is missing, as in: make bench-compare A=HEAD~10 B=HEAD')
    try:
        o.rounds, o.jobs = int(o.rounds or (2 if o.quick else 5)), int(o.jobs or PROCESSORS)
    except ValueError:
        parser.error('ROUNDS and JOBS are numbers')
    o.only = o.only.replace(' ', ',').split(',') if o.only else jobs.BENCHES
    if set(o.only) - set(jobs.BENCHES):
        parser.error('ONLY takes some of ' + ','.join(jobs.BENCHES))
    o.calls = o.calls.replace(' ', ',').split(',') if o.calls else []
    if o.rounds < 1 or o.jobs < 1:
        parser.error('ROUNDS and JOBS are at least 1')
    return o


def stop_on_signals():
    """If interrupted, it ends the processes that it has started, and cannot be interrupted while it does."""
    def stop(number, _):
        for s in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(s, signal.SIG_IGN)
        note('interrupted')
        sys.exit(128 + number)
    for s in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(s, stop)


def built(o, runner):
    """(both sides, the programs that both have, those that are missed)"""
    wanted = [p for bench in jobs.BENCHES if bench in o.only for p in jobs.PROGRAMS[bench] if jobs.can_be_built(p)]
    old, new = sides.both(o, runner, TOP, wanted)
    missed = [p for p in wanted if p in old.why or p in new.why]
    for program in missed:
        for side in (old, new):
            if program in side.why:
                print('# %s does not build with the library of %s, and is left out: %s' % (
                    program, side.name, side.why[program]))
    for program in jobs.PROGRAMS['mpi'] if 'mpi' in o.only else []:
        if program not in wanted:
            print('# not installed: ' + program.split('.')[1])
    for side in (old, new):
        for program in side.own:
            print('# %s: that of %s itself, for this one does not build with its library' % (program, side.name))
    return old, new, [p for p in wanted if p not in missed], missed


def main():
    o = options()
    stop_on_signals()
    os.chdir(TOP)
    runner, began = Runner('', 0), time.monotonic()
    for name in ('MAKEFLAGS', 'MFLAGS', 'MAKELEVEL', 'MAKEOVERRIDES'):           # of the make that runs this
        runner.env.pop(name, None)
    note('building both sides')
    try:
        old, new, programs, missed = built(o, runner)
    except sides.Missing as e:
        print('bench-compare: %s' % e, file=sys.stderr)
        return 2
    print('# old: %s; new: %s; %d rounds%s' % (old.name, new.name, o.rounds, '; QUICK: worth nothing' if o.quick else ''))
    print('# %s; %s; load %.2f' % (time.strftime('%Y-%m-%d %H:%M'), named_on_the_machine(), os.getloadavg()[0]))
    print(RULE)
    todo = jobs.all_of([b for b in jobs.BENCHES if b in o.only], programs, o.quick, runner.shared)
    if o.calls:
        todo = [j for j in (job.of_calls(o.calls) for job in todo) if j]
    if not todo:
        print('# nothing is left to be measured')
        return 2
    expected = sum(2 * j.seconds() * (1 if isinstance(j, jobs.Count) else o.rounds) for j in todo)
    print('# built in %s; about %d cells, expected to take %s, and what is measured again' % (
        span(time.monotonic() - began), sum(j.cells() for j in todo), span(expected)), flush=True)
    paired = Paired(runner, old, new)
    first, slower, faster = evaluated(paired, todo, o.rounds)
    print()
    for what in dict.fromkeys(missed + paired.left_out):
        print('LEFT OUT: ' + what)
    print('%d cells, %d slower, %d faster; %s' % (len(first), slower, faster, span(time.monotonic() - began)))
    if missed or paired.left_out or not first:
        return 1 if slower and not o.quick else 2
    return 1 if slower and not o.quick else 0


if __name__ == '__main__':
    sys.exit(main())
