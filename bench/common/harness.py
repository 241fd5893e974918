"""Common code of the comparisons of bench/: running programs and collecting their lines, medians, tables, results.

A program prints lines of nine columns, as timing.h tells.  A ratio is formed in the program, between neighbors; one to a peer,
which is a program of its own, is formed here, between runs of the same round."""
import collections, os, re, resource, shutil, signal, statistics, subprocess, sys, tempfile, time

ALLREDUCE = 'allreduce,allreduce_in_place'
OTHERS = 'broadcast,reduce,allgather,reduce_scatter,alltoall,gather,scatter,scan,barrier'
PROCESSORS = len(os.sched_getaffinity(0))
PACKAGES = {'openmpi': 'openmpi-bin libopenmpi-dev', 'mpich': 'mpich libmpich-dev', 'gloo': 'libgloo-dev'}      # of Debian
COMPANY = 0.08                                    # processors that others may use before a figure is marked

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


def named_on_the_machine():
    """as in 2 processors: AMD EPYC; Linux 6.1.0"""
    return '%d processors: %s; Linux %s' % (PROCESSORS, processor(), os.uname().release)


def note(text):
    print('  ' + text, file=sys.stderr, flush=True)


# ---- what runs

def line_of(rnd, f):
    return Line(rnd, f[0], f[1], int(f[2]), int(f[3]), f[4], *(float(x) for x in f[5:8]), int(f[8]))


def raw_lines(path):
    """what --raw has written"""
    with open(path) as file:
        return [line_of(int(line.split('\t')[0]), line.rstrip('\n').split('\t')[1:]) for line in file]


class Runner:
    """Runs the programs one at a time, and collects their lines."""

    def __init__(self, build, deadline):
        self.build, self.deadline = build, deadline
        self.lines, self.failed, self.given_up, self.left_out, self.budget = [], [], set(), 0, 0
        self.shared = '/dev/shm/coll_bench_%d' % os.getpid()
        self.env = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT='1', OMPI_ALLOW_RUN_AS_ROOT_CONFIRM='1')
        for name in [x for x in self.env if x.startswith('COLL_')]:    # the library as it is, not as this shell has tuned it
            del self.env[name]
        self.env['COLL_LIVENESS_TIMEOUT_MS'] = '120000'                # bound to a processor that others have: late, not dead
        if len(os.environ.get('TMPDIR', '')) > 40:                     # Open MPI's sockets lie there, and need short names
            self.env['TMPDIR'] = '/tmp'

    def path(self, program):
        return os.path.join(self.build, program)

    def has(self, program, launcher=None):
        return os.path.exists(self.path(program)) and (not launcher or shutil.which(launcher) is not None)

    def command(self, commands, limit, env=None):
        """(exit status, stdout, stderr) of commands that run at the same time, the status of the first that fails; when one does,
        or after `limit` seconds, the others are ended, with all their processes"""
        if os.path.exists(self.shared):
            os.unlink(self.shared)
        running, files, status = [], [], 0
        try:
            for arguments in commands:
                files.append((tempfile.TemporaryFile('w+'), tempfile.TemporaryFile('w+')))
                running.append(subprocess.Popen(arguments, stdin=subprocess.DEVNULL, stdout=files[-1][0], stderr=files[-1][1],
                                                env=dict(self.env, **(env or {})), start_new_session=True))
            end = time.monotonic() + limit
            left = list(running)
            while left and not status:
                try:
                    left[0].wait(max(0, min(0.2 if len(left) > 1 else limit, end - time.monotonic())))
                except subprocess.TimeoutExpired:
                    pass
                done = [p for p in left if p.poll() is not None]
                status = next((p.returncode for p in done if p.returncode), 0)
                left = [p for p in left if p.poll() is None]
                if left and time.monotonic() >= end:
                    return 124, '', 'no end within %d s' % limit
            return (status, *(''.join(self.read(f[i]) for f in files) for i in (0, 1)))
        finally:
            for p in running:
                self.end(p)
            for pair in files:
                for f in pair:
                    f.close()
            if os.path.exists(self.shared):
                os.unlink(self.shared)

    @staticmethod
    def parse(text, rnd):
        """the lines of a program, as timing.h has them; it may say other things, too"""
        return [line_of(rnd, line.split('\t')) for line in text.splitlines() if line.count('\t') == 8]

    @staticmethod
    def read(file):
        file.seek(0)
        return file.read()

    @staticmethod
    def end(p):
        """nothing of it is left, also when this program is interrupted: its processes are a group of their own, which is ended"""
        for sig in (signal.SIGTERM, signal.SIGKILL):                   # mpiexec ends its ranks when it may
            if p.poll() is None:
                try:
                    os.killpg(p.pid, sig)
                    p.wait(5)
                except (ProcessLookupError, subprocess.TimeoutExpired):
                    pass

    def run(self, name, arguments, rnd=0, limit=300, is_peer=False, env=None):
        """The lines of one program, or of several at the same time (a list of lists).  A peer that fails or hangs is left out
        from then on, and is no failure of ours."""
        if is_peer and (name in self.given_up or time.time() > self.deadline):
            self.left_out += name not in self.given_up
            return
        commands = arguments if isinstance(arguments[0], list) else [arguments]
        best = None
        for _ in range(2):                                             # once more where others used the processors
            began = time.monotonic()
            status, out, err = self.command(commands, limit, env)
            lines = self.parse(out, rnd)
            company = [x.median for x in lines if x.kind == 'others']
            if best is None or statistics.mean(company) < best[0]:
                best = statistics.mean(company) if company else 0, lines
            if status or best[0] <= COMPANY or self.budget <= 0:
                break
            self.budget -= time.monotonic() - began
        self.lines += best[1] if status == 0 else lines
        if status:
            note('%s: exit status %d: %s' % (name, status, ' / '.join(err.strip().splitlines()[-3:])))
            if is_peer:
                self.given_up.add(name)
            else:
                self.failed.append(name)


def fitting(sizes, ranks, buffers=2):
    """the sizes whose buffers take less than half of the free memory"""
    free = int(re.search(r'MemAvailable:\s*(\d+)', open('/proc/meminfo').read()).group(1)) * 1024
    keep = [s for s in sizes.split(',') if in_bytes(s) * buffers * ranks < free / 2]
    return ','.join(keep)


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

    def tables(self, names, kind='time'):
        return [t for t in dict.fromkeys((k[1], k[2]) for k in self.by if k[0] == kind) if names(t[0])]

    def get(self, kind, table, ranks, column, row):
        """(p10, median, p90), each the median over the runs; None where there is nothing"""
        found = self.by.get((kind, table, ranks, column, row))
        return found and tuple(statistics.median(x) for x in zip(*((f.p10, f.median, f.p90) for f in found)))

    def over_references(self, table, ranks, column, row='ours'):
        """{reference: (p10, median, p90) of ours / reference}"""
        names = [r.split('/')[1] for r in self.rows('ratio', table, ranks) if r.startswith(row + '/')]
        found = {n: self.get('ratio', table, ranks, column, row + '/' + n) for n in names}
        return {n: f for n, f in found.items() if f}

    def runs(self, table, ranks, column, row, reference):
        """ours / reference in each run"""
        return [x.median for x in self.by.get(('ratio', table, ranks, column, row + '/' + reference), [])]

    def rounds(self, table, ranks, column, row, peer):
        """ours / peer in each round"""
        ratios = []
        theirs = self.by.get(('time', table, ranks, column, peer), [])
        for rnd in {x.round for x in theirs}:
            mine = [x.median for x in self.by.get(('time', table, ranks, column, row), []) if x.round == rnd]
            if mine:
                ratios.append(statistics.median(mine) / statistics.median(x.median for x in theirs if x.round == rnd))
        return ratios

    def over_peers(self, table, ranks, column, row='ours'):
        """{peer: the median over the rounds of ours / peer}"""
        peers = [r for r in self.rows('time', table, ranks) if not r.startswith(('ours', 'ref'))]
        found = {p: self.rounds(table, ranks, column, row, p) for p in peers}
        return {p: statistics.median(ratios) for p, ratios in found.items() if ratios}

    def mark(self, table, ranks, column):
        """~ where others used the processors while this was measured"""
        found = self.by.get(('others', table, ranks, column, '-'), [])
        return '~' if found and statistics.median(x.median for x in found) > COMPANY else ''


def table(title, head, lines):
    print('\n### %s\n' % title)
    width = [max(len(x[i]) for x in [head] + lines) for i in range(len(head))]
    for k, cells in enumerate([head] + lines):
        print('| ' + ' | '.join(x.rjust(w) if i else x.ljust(w) for i, (x, w) in enumerate(zip(cells, width))) + ' |')
        if k == 0:
            print('|' + '|'.join('-' * (w + 1) + (':' if i else '-') for i, w in enumerate(width)) + '|')


def spread(f):
    return '%.2f [%.2f %.2f]' % (f[1], f[0], f[2]) if f else ''


def conclusion(conclusions, what, label, values, target, is_below=True, name=human):
    """Note the worst of {column: ratio} against the target."""
    if values:
        worst = (max if is_below else min)(values, key=values.get)
        met = values[worst] <= target if is_below else values[worst] >= target
        conclusions.append((what, label, values[worst], name(worst) if worst else '',
                         '%s %g' % ('<=' if is_below else '>=', target), met))


def print_collectives(figures, conclusions, target, unlike=lambda name, ranks: ''):
    """A table for each collective and number of ranks: times, and the ratios of each row of ours.  target(ranks): times the best
    reference.  unlike: words that tell apart tables of one name."""
    names = ALLREDUCE.split(',') + OTHERS.split(',')
    for name, ranks in sorted(figures.tables(lambda t: t in names), key=lambda t: (t[1], names.index(t[0]))):
        columns = figures.columns(name, ranks)
        place = lambda r: 0 if r.startswith('ours') else 1 if r.startswith('ref') else 2
        rows = sorted(figures.rows('time', name, ranks), key=lambda r: (place(r), r))
        lines = []
        for row in rows:
            cells = [figures.get('time', name, ranks, c, row) for c in columns]
            lines.append([row] + [microseconds(f[1]) if f else '' for f in cells])
        what = '%s, %d ranks%s' % (name.replace('_in_place', ' in place'), ranks, unlike(name, ranks))
        evaluated = []
        for mine in [r for r in rows if place(r) == 0]:
            references, rivals = {}, {}
            for c in columns:
                found = figures.over_references(name, ranks, c, mine)
                if found:
                    references[c] = max(found.values(), key=lambda f: f[1])
                found = figures.over_peers(name, ranks, c, mine)
                if found:
                    rivals[c] = max(found.values())
            if references:
                lines.append([mine + ' / best reference'] + [spread(references.get(c)) for c in columns])
            if rivals:
                lines.append([mine + ' / best peer'] + ['%.2f' % rivals[c] if c in rivals else '' for c in columns])
            evaluated.append((mine + ' / best reference', {c: f[1] for c, f in references.items()}, target(ranks)))
            evaluated.append((mine + ' / best peer', rivals, 1))
        table(what + ' (us)', ['bytes'] + [(human(c) if c else '-') + figures.mark(name, ranks, c) for c in columns], lines)
        for label, values, bound in evaluated:
            conclusion(conclusions, what, label, values, bound)


def print_conclusions(conclusions):
    if conclusions:
        table('The worst of each table', ['table', 'ratio', 'worst', 'at', 'target', ''],
              [[w, label, '%.2f' % x, at, target, 'met' if met else 'missed'] for w, label, x, at, target, met in conclusions])
        missed = [v for v in conclusions if not v[5]]
        print('\n%d of %d targets met%s' % (len(conclusions) - len(missed), len(conclusions), ''.join(
            '%s %s: %s %.2f%s (%s)' % ('; missed:' if i == 0 else ',', v[0], v[1], v[2], ' at ' + v[3] if v[3] else '', v[4])
            for i, v in enumerate(missed))))


# ---- what is measured, and where

def git(*arguments):
    """the output of git, or '' if it fails"""
    return subprocess.run(['git', *arguments], capture_output=True, text=True).stdout


def here():
    """what to call this tree"""
    return git('rev-parse', '--short', 'HEAD').strip() + (
        ' with changes' if git('status', '--porcelain', '--untracked-files=no') else '')


def version_in(text):
    """the version of coll.h, as in 0.3.0"""
    return '.'.join(re.findall(r'^#define COLL_VERSION_(?:MAJOR|MINOR|PATCH) (\d+)$', text, re.M))


# ---- the run as a whole

def processor():
    found = re.search(r'model name\s*: (.*)', open('/proc/cpuinfo').read())
    return found.group(1) if found else os.uname().machine


def cpu_seconds():
    """(of all programs, of the programs that ran here)"""
    fields = [int(x) for x in open('/proc/stat').readline().split()[1:4]]
    own = [resource.getrusage(x) for x in (resource.RUSAGE_CHILDREN, resource.RUSAGE_SELF)]
    return sum(fields) / os.sysconf('SC_CLK_TCK'), sum(x.ru_utime + x.ru_stime for x in own)


def options(parser, parts, text):
    """The common options of all comparisons, parsed; parts: the words of --only."""
    parser.add_argument('--build', required=True, help='the folder of the programs')
    parser.add_argument('--full', action='store_true', help=text)
    parser.add_argument('--tiny', action='store_true', help='to see that it works; the figures are worth nothing')
    parser.add_argument('--only', default=','.join(parts), help='some of ' + ','.join(parts))
    parser.add_argument('--raw', help='write every line of every program there, too')
    parser.add_argument('--minutes', type=float, help='start no peer after so long')
    parser.add_argument('--rounds', type=int, help='so many times over, ours and the peers in turns: 1, with --full 2')
    o = parser.parse_args()
    o.rounds = o.rounds or (2 if o.full else 1)
    o.only = o.only.split(',')
    if set(o.only) - set(parts):
        parser.error('--only: ' + ', '.join(sorted(set(o.only) - set(parts))))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    return o


class Run:
    """From the first line, which names the machine, to the last ones: the time, which peers were left out, the results."""

    def __init__(self, o, minutes):
        self.o, self.began, self.before = o, time.time(), cpu_seconds()
        self.runner = Runner(o.build, self.began + 60 * (o.minutes or minutes))
        self.runner.budget = 0 if o.tiny else 15 * minutes           # seconds for runs that are repeated
        print('# %s; %s; load %.2f' % (time.strftime('%Y-%m-%d %H:%M'), named_on_the_machine(), os.getloadavg()[0]))

    def missing(self, programs):
        """Name the peers that are not there; programs: {package: (program, launcher)}."""
        for name, (program, launcher) in programs.items():
            if not self.runner.has(program, launcher):
                where = 'Debian: ' + PACKAGES[name] if name in PACKAGES else 'tools/deps.sh peers'
                print('# not installed: %s (%s)' % (name, where))

    def note(self, text):
        note('%s: %.0f s' % (text, time.time() - self.began))

    def end(self, conclusions):
        runner = self.runner
        if self.o.raw:
            with open(self.o.raw, 'w') as f:
                f.writelines('\t'.join(str(v) for v in x) + '\n' for x in runner.lines)
        seconds = time.time() - self.began
        everything, own = (b - a for a, b in zip(self.before, cpu_seconds()))
        print('\n%.0f s; others used %.2f processors%s%s%s' % (seconds, max(0, everything - own) / seconds,
              '; given up: ' + ', '.join(sorted(runner.given_up)) if runner.given_up else '',
              '; left out for time: %d runs of peers' % runner.left_out if runner.left_out else '',
              '; FAILED: ' + ', '.join(runner.failed) if runner.failed else ''))
        print_conclusions(conclusions)
        return 1 if runner.failed else 0
