#!/usr/bin/env python3
"""A record of speed: ours over the best of what runs beside it, cell by cell, in a file that is kept for each release.

usage: record.py [--to FILE] [--only BENCH,...] [--rounds N] [--tiny]     measure, and write FILE
       record.py --raw BENCH=FILE [--raw BENCH=FILE]... [--to FILE]       from lines that compare.py --raw has written
       record.py --read FILE [LATER]                                      what a record says, or what has changed since

`make bench-record` runs it.  BENCH is one of threads, tcp, mpi; FILE is bench/history/VERSION.txt where it is not named.
bench/README.md tells what the columns are.  The exit status is 0; 1 when a cell is slower in LATER; 2 when something failed: then
nothing is written."""
import argparse, collections, os, re, statistics, subprocess, sys, time

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(TOP, 'bench', 'common'))
sys.dont_write_bytecode = True                    # nothing beside the sources
from harness import Figures, here, human, in_bytes, microseconds, named_on_the_machine, note, raw_lines, version_in

# What is run, and with what words for COMPARE; those of MPI are in the environment.
BENCHES = {'threads': '--only allreduce,collectives,crowded', 'tcp': '--only allreduce,collectives', 'mpi': ''}
ROUNDS = 5
MOVED = 1.05                                      # what is worth telling of two records

# beside: whether what is named is a hand-written reference, a peer, or MPI itself; row: the form of ours
Key = collections.namedtuple('Key', 'bench ranks call bytes row beside')
Cell = collections.namedtuple('Cell', 'us low median high runs name mark')
LINE = '%-8s %5s %-18s %5s %-12s %-9s %9s %6s %6s %6s %4s  %s'
HEAD = LINE % ('bench', 'ranks', 'call', 'bytes', 'ours', 'beside', 'us', 'low', 'ratio', 'high', 'runs', 'the best beside it')
MEANING = """\
# us: ours, the median.  ratio: ours / the best beside it, time / time, so that below 1 is faster: the median over the runs;
# low, high: their quartiles.  ~: others used the processors."""


# ---- cells

def quartiles(ratios):
    if len(ratios) == 1:
        return ratios * 3
    return statistics.quantiles(ratios, n=4, method='inclusive')


def cells_of(bench, lines):
    """{Key: Cell}: of each kind of other contender, the one to which the ratio is largest"""
    figures, cells = Figures(lines), {}

    def add(table, ranks, column, row, beside, ratios):
        if ratios:
            name = max(ratios, key=lambda r: statistics.median(ratios[r]))
            cells[Key(bench, ranks, table, column, row, beside)] = Cell(
                figures.get('time', table, ranks, column, row)[1], *quartiles(ratios[name]), len(ratios[name]), name,
                figures.mark(table, ranks, column))

    for table, ranks in figures.tables(lambda t: True):
        for row in figures.rows('time', table, ranks):
            for column in figures.columns(table, ranks) if row.startswith('ours') or row.endswith('-coll') else []:
                references = figures.over_references(table, ranks, column, row)
                add(table, ranks, column, row, 'direct' if bench == 'mpi' else 'reference',
                    {r: figures.runs(table, ranks, column, row, r) for r in references})
                peers = {} if bench == 'mpi' else figures.over_peers(table, ranks, column, row)
                add(table, ranks, column, row, 'peer', {p: figures.rounds(table, ranks, column, row, p) for p in peers})
    return dict(sorted(cells.items()))


# ---- the file

def line_of(key, cell):
    return (LINE % (key.bench, key.ranks, key.call, human(key.bytes) if key.bytes else '-', key.row, key.beside,
                    microseconds(cell.us), *('%.3f' % x for x in (cell.low, cell.median, cell.high)), cell.runs,
                    cell.name + cell.mark)).rstrip()


def in_microseconds(text):
    return float(text[:-2]) * 1e3 if text.endswith('ms') else float(text)


def write(path, about, cells):
    text = ['# %-9s %s' % x for x in about] + [MEANING, HEAD] + [line_of(*x) for x in cells.items()]
    os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
    with open(path, 'w') as f:
        f.write('\n'.join(text) + '\n')


def read(path):
    """({word: value} of the head, {Key: Cell}); ValueError with the invalid line"""
    about, cells = {}, {}
    with open(path) as f:
        for number, line in enumerate(f.read().splitlines(), 1):
            words = line.split()
            if line.startswith('# '):
                about[words[1]] = ' '.join(words[2:])
            elif line != HEAD:
                try:
                    bench, ranks, call, size, row, beside, us, low, median, high, runs, name = words
                    cells[Key(bench, int(ranks), call, 0 if size == '-' else in_bytes(size), row, beside)] = Cell(
                        in_microseconds(us), float(low), float(median), float(high), int(runs), name.rstrip('~'),
                        '~' if name.endswith('~') else '')
                except ValueError:
                    raise ValueError('%s:%d is no line of a record: %s' % (path, number, line)) from None
    return about, cells


def machine():
    """[(word, value)] of the first lines"""
    compiler = subprocess.run([os.environ.get('CC', 'cc'), '--version'], capture_output=True, text=True).stdout.splitlines()
    cores = len(set(re.findall(r'physical id\s*: (\d+)(?:.*\n)*?core id\s*: (\d+)', open('/proc/cpuinfo').read())))
    with open(os.path.join(TOP, 'coll.h')) as f:
        version = version_in(f.read())
    return version, [('coll.h', version), ('commit', here()), ('date', time.strftime('%Y-%m-%d %H:%M')),
                     ('machine', named_on_the_machine()), ('cores', str(cores or 'not told')),
                     ('compiler', compiler[0] if compiler else 'not told'), ('load', '%.2f before' % os.getloadavg()[0])]


# ---- measuring

def measured(bench, o, folder):
    """the lines of a run of make bench-BENCH, or None"""
    raw, seen = os.path.join(folder, bench + '.raw'), os.path.join(folder, bench + '.txt')
    env = dict(os.environ)
    for name in ('MAKEFLAGS', 'MFLAGS', 'MAKELEVEL'):                  # of the make that runs this; its variables stay
        env.pop(name, None)
    if bench == 'mpi':
        env.update(RAW=raw, ROUNDS=str(o.rounds), **({'BUDGET': '0.01', 'SIZES': '8,4096'} if o.tiny else {}))
        words = []
    else:
        words = ['COMPARE=%s --rounds %d --raw %s%s' % (BENCHES[bench], o.rounds, raw, ' --tiny' if o.tiny else '')]
    note('%s, %d rounds: %s' % (bench, o.rounds, seen))
    with open(seen, 'w') as f:
        status = subprocess.run(['make', '--no-print-directory', 'bench-' + bench, *o.make, *words], cwd=TOP, env=env,
                                stdout=f).returncode
    if status == 0:
        return raw_lines(raw)
    note('make bench-%s: exit status %d: no record' % (bench, status))
    return None


def recorded(o):
    version, about = machine()
    lines = {}
    for pair in o.raw:
        bench, _, path = pair.partition('=')
        lines[bench] = raw_lines(path)
    if not o.raw:
        folder = os.path.join(TOP, 'build', 'record')
        os.makedirs(folder, exist_ok=True)
        for bench in o.only:
            lines[bench] = measured(bench, o, folder)
            if not lines[bench]:
                return 2
    cells = {}
    for bench in sorted(lines):
        cells.update(cells_of(bench, lines[bench]))
    path = o.to or os.path.join(TOP, 'bench', 'history', version + '.txt')
    write(path, about, cells)
    note('%d cells in %s' % (len(cells), path))
    return 0


# ---- reading

def moved(before, after):
    """[(Key, Cell, Cell, verdict)] of what is beyond both quartiles, and by more than MOVED"""
    found = []
    for key in before.keys() & after.keys():
        old, new = before[key], after[key]
        if new.low > old.high and new.median > MOVED * old.median:
            found.append((key, old, new, 'slower'))
        elif new.high < old.low and old.median > MOVED * new.median:
            found.append((key, old, new, 'faster'))
    return sorted(found)


def told(paths):
    (about, cells), *later = [read(path) for path in paths]
    print('# %s' % '; '.join('%s %s' % x for x in about.items() if x[0] in ('coll.h', 'commit', 'date', 'machine', 'compiler')))
    if later:
        now, after = later[0]
        for word in ('machine', 'compiler', 'cores'):
            if about.get(word) != now.get(word):
                print('# another %s: %s' % (word, now.get(word)))
        found = moved(cells, after)
        for key, old, new, verdict in found:
            print('%-6s %.3f -> %.3f  %s' % (verdict, old.median, new.median, line_of(key, new)))
        slower = sum(x[3] == 'slower' for x in found)
        print('%d cells in both, %d slower, %d faster' % (len(cells.keys() & after.keys()), slower, len(found) - slower))
        return 1 if slower else 0
    worst = {}
    for key, cell in cells.items():
        group = key.bench, key.ranks, key.row, key.beside
        if group not in worst or cell.median > worst[group][1].median:
            worst[group] = key, cell
    print(HEAD)
    for key, cell in worst.values():
        print(line_of(key, cell))
    print('%d cells; above: the worst for each bench, number of ranks and kind' % len(cells))
    return 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--to', default='', help='the file; bench/history/VERSION.txt')
    parser.add_argument('--only', default='', help='some of ' + ','.join(BENCHES))
    parser.add_argument('--rounds', default='', help='so many runs: %d' % ROUNDS)
    parser.add_argument('--tiny', action='store_true', help='to see that it works; the figures are worth nothing')
    parser.add_argument('--make', action='append', default=[], help='NAME=VALUE, for the Makefile')
    parser.add_argument('--raw', action='append', default=[], metavar='BENCH=FILE', help='measure nothing: take these lines')
    parser.add_argument('--read', nargs='+', metavar='FILE', help='a record, or two')
    o = parser.parse_args()
    o.only = o.only.replace(' ', ',').split(',') if o.only else list(BENCHES)
    if set(o.only) - set(BENCHES) or {x.partition('=')[0] for x in o.raw} - set(BENCHES):
        parser.error('a bench is one of ' + ', '.join(BENCHES))
    if not re.fullmatch(r'[1-9]\d*|', o.rounds):
        parser.error('ROUNDS is a number')
    o.rounds = int(o.rounds or ROUNDS)
    try:
        return told(o.read[:2]) if o.read else recorded(o)
    except (OSError, ValueError) as e:
        print('bench-record: %s' % e, file=sys.stderr)
        return 2


if __name__ == '__main__':
    sys.exit(main())
