"""What bench/compare/compare.py says of two sides whose figures are known: for tests/programs/test_bench_history.sh.

usage: canned.py same|planted|once|faster

Two benches of 12 cells run, 5 rounds.  Every figure has noise of some percent, and in each round one cell of one side takes
twice as long.  planted: one call of the new side takes 1.1 times as long; once: only in the first measurement; faster: 0.9."""
import os, random, sys

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path[:0] = [os.path.join(TOP, 'bench', 'common'), os.path.join(TOP, 'bench', 'compare')]
sys.dont_write_bytecode = True
import compare, jobs

SIZES, CALLS, ROUNDS = '8,1K,64K,1M', ['allreduce', 'broadcast', 'scan'], 5
WHERE = ('threads', 'allreduce', 1 << 10)         # what is planted


class Side:
    def __init__(self, name):
        self.name = name

    def path(self, program, variant=0):
        return '%s/%s.%d' % (self.name, program, variant)


class Runner:
    """Runs nothing: prints the output of a program, in the format of timing.h."""

    def __init__(self, scenario):
        self.scenario, self.random, self.runs = scenario, random.Random(1), 0

    def command(self, commands, limit, env=None):
        side, bench = commands[0][0].split('/')[:2]
        self.runs += 1
        spoilt = self.random.randrange(24)        # the cell of one of two runs that other load slows
        lines = []
        for k, (call, size) in enumerate((c, s) for c in CALLS for s in SIZES.split(',')):
            column = jobs.in_bytes(size)
            us = (1 + column / 4096) * self.random.gauss(1, 0.01) * (2 if k == spoilt else 1)
            if side == 'new' and (bench, call, column) == WHERE:
                us *= {'planted': 1.1, 'once': 1.1 if self.runs <= 4 * ROUNDS else 1, 'faster': 0.9}.get(self.scenario, 1)
            lines.append('\t'.join(str(x) for x in ('time', call, 2, column, 'ours', us * 0.9, us, us * 1.2, 20)))
        return 0, '\n'.join(lines) + '\n', ''


def main():
    arguments = lambda job: []
    todo = [jobs.Job(bench, '2 ranks', bench + '/pair', arguments, SIZES, CALLS, 0.1) for bench in ('threads', 'tcp')]
    first, slower, faster = compare.evaluated(compare.Paired(Runner(sys.argv[1]), Side('old'), Side('new')), todo, ROUNDS)
    print('%d cells, %d slower, %d faster' % (len(first), slower, faster))


if __name__ == '__main__':
    main()
