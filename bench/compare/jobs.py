"""What bench/compare/compare.py runs: the cells of bench-instructions, bench-threads, bench-tcp and bench-mpi, ours alone."""
import collections, importlib.util, os, re, shutil, sys

from harness import PROCESSORS, Runner, fitting, in_bytes

BENCHES = ['instructions', 'threads', 'tcp', 'mpi']
PROGRAMS = {'instructions': ['instructions'], 'threads': ['threads/pair', 'threads/numbers', 'threads/counters'],
            'tcp': ['tcp/pair'], 'mpi': ['mpi/both.openmpi', 'mpi/both.mpich']}
BENCH = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
MOST = 128 << 20                                  # a longer vector takes minutes, and shows the same

TYPES = ['types, out of place', 'types, in place']
LEVELS = ['levels of ' + x for x in ('f32', 'bf16', 'f16', 'f64')]

# row: the type, the flag or the kernel, '' for a collective; column: bytes or elements, as unit says
Cell = collections.namedtuple('Cell', 'bench where table row column unit')


class Job:
    """Runs of one program; each run has the figures of all its cells."""

    def __init__(self, bench, where, program, arguments, sizes, tables, budget=0, ranks=2, row='ours', unit='B', before=(),
                 env=None, each=1):
        self.bench, self.where, self.program, self.arguments, self.sizes = bench, where, program, arguments, sizes
        self.tables, self.budget, self.ranks, self.row, self.unit = tables, budget, ranks, row, unit
        self.before, self.env, self.each = list(before), env or {}, each            # each: contenders, which share a budget

    def command(self, path):
        return self.before + [path] + self.arguments(self)

    def read(self, out):
        """({cell: figure}, processors that others used)"""
        lines = Runner.parse(out, 0)
        cells = {Cell(self.bench, self.where, x.table, '' if self.row else x.row, x.column, self.unit): x.median for x in lines
                 if x.kind == 'time' and (x.row == self.row if self.row else not x.row.startswith('copy'))}
        return cells, max([x.median for x in lines if x.kind == 'others'], default=0)

    def cells(self):
        """how many there are, about: a type or a flag that the library does not have is none"""
        return sum(1 if t == 'barrier' else len(self.sizes.split(',')) for t in self.tables) * self.each

    def seconds(self):
        """the approximate time of a run: the launch, the budget and the beginning of each test, and a part by the bytes"""
        launch, byte = {'threads': (0.02, 2.5e-9), 'tcp': (0.02 + 0.02 * self.ranks, 5e-9), 'mpi': (0.7, 5e-9)}[self.bench]
        tests = [s for t in self.tables for s in self.sizes.split(',')[:1 if t == 'barrier' else None]]
        crowded = 3 if self.ranks > PROCESSORS else 1
        return launch + sum(self.budget + crowded * self.each * (0.01 + byte * self.ranks * in_bytes(s)) for s in tests)

    def only(self, cells):
        """a job for these cells, with as few others as possible; None if none of them is of this one"""
        lengths = {in_bytes(s) for s in self.sizes.split(',')} | {0}
        mine = [c for c in cells if (c.bench, c.where, c.unit) == (self.bench, self.where, self.unit) and c.table in self.tables
                and c.column in lengths]
        if not mine:
            return None
        sizes = [s for s in self.sizes.split(',') if in_bytes(s) in {c.column for c in mine}]
        return self.like(','.join(sizes) or self.sizes.split(',')[0], {c.table for c in mine})

    def of_calls(self, calls):
        """a job of these calls; None where it has none of them"""
        return self.like(self.sizes, calls) if set(calls) & set(self.tables) else None

    def like(self, sizes, tables):
        job = object.__new__(type(self))
        job.__dict__.update(self.__dict__, sizes=sizes, tables=[t for t in self.tables if t in tables])
        return job


class Count(Job):
    """The instructions of the shortest of some calls; the same in every run, so that one is enough."""

    def read(self, out):
        cell = Cell(self.bench, self.where, self.tables[0], '', int(self.sizes), self.unit)
        return ({cell: float(out)} if out.strip().isdigit() and int(out) else {}), 0

    def cells(self):
        return 1

    def seconds(self):
        return 1 if self.where.endswith('threads') else 4.5


def can_be_built(program):
    """not without the MPI that it needs; instructions are counted on x86 only"""
    if program == 'instructions':
        return os.uname().machine == 'x86_64'
    return not program.startswith('mpi/') or shutil.which(program.replace('mpi/both.', 'mpicc.')) is not None


# ---- the cells of each bench, from where these are listed

def listed_in(bench):
    """the tables of bench/BENCH/compare.py"""
    path = os.path.join(BENCH, bench, 'compare.py')
    if os.path.dirname(path) not in sys.path:
        sys.path.append(os.path.dirname(path))    # for what it imports
    spec = importlib.util.spec_from_file_location('bench_' + bench, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def text_of(*path):
    with open(os.path.join(BENCH, *path)) as f:
        return f.read()


def chosen(sizes, ranks, buffers, is_quick):
    """those that fit, the longest left out; quick: the first and one more"""
    sizes = [s for s in fitting(sizes, ranks, buffers).split(',') if s and in_bytes(s) <= MOST]
    if is_quick:
        short = [s for s in sizes if in_bytes(s) <= 1 << 19]
        sizes = list(dict.fromkeys(short[:1] + short[-1:]))
    return ','.join(sizes)


def of_instructions(programs, is_quick):
    arguments = lambda job: [job.where.split()[-1], *job.tables, job.sizes, 'shortest']
    found = re.findall(r'^(threads|tcp|memory) (\w+) (\d+) \d+$', text_of('instructions.sh'), re.M)
    return [Count('instructions', '2 ranks, ' + over, 'instructions', arguments, size, [call], unit='B, instructions')
            for over, call, size in found if not is_quick or over != 'memory' and size != '1024']


def of_threads(programs, is_quick):
    jobs, budget = [], 0.002 if is_quick else 0.1
    arguments = lambda job: [str(job.ranks), str(job.budget), job.sizes, ','.join(job.tables)]
    for _, ranks, _, sizes, collectives, _ in listed_in('threads').QUICK:
        sizes = chosen(sizes, ranks, 2, is_quick)
        for name in collectives.split(',') if sizes else []:
            jobs.append(Job('threads', '%d ranks' % ranks, 'threads/pair', arguments, sizes, [name], budget, ranks))
    arguments = lambda job: ['2', str(job.budget), job.sizes, *job.tables]
    for table in TYPES + LEVELS:
        jobs.append(Job('threads', '2 ranks', 'threads/numbers', arguments, '256,16K' if is_quick else '256,16K,4M', [table],
                        budget * 2, row=None, unit='elements', each=6 if table in TYPES else 10))
    jobs.append(Job('threads', '1 processor', 'threads/counters', lambda job: [str(job.budget), job.sizes],
                    '16K' if is_quick else '16K,4M', ['kernels'], budget * 2, 1, row=None, unit='elements', each=6))
    return [j for j in jobs if j.program in programs]


def of_tcp(programs, is_quick):
    jobs, budget = [], 0.002 if is_quick else 0.1
    for _, ranks, _, _, sizes, collectives, _ in listed_in('tcp').QUICK if 'tcp/pair' in programs else []:
        sizes = chosen(sizes, ranks, 3, is_quick)
        for name in collectives.split(',') if sizes else []:
            for io in ('poll', 'uring'):
                arguments = lambda job, io=io: [str(job.ranks), io, str(job.budget), job.sizes, ','.join(job.tables)]
                jobs.append(Job('tcp', '%d ranks, %s' % (ranks, io), 'tcp/pair', arguments, sizes, [name], budget, ranks))
    return jobs


def of_mpi(programs, is_quick, shared):
    """As bench/mpi/compare.sh does, but for its longest vector, in which the library has no part."""
    jobs, budget = [], 0.002 if is_quick else 0.12
    script = text_of('mpi', 'compare.sh')
    names = re.search(r'COLLECTIVES:=([\w,]+)', script).group(1).split(',')
    env = dict(re.findall(r'\b((?:OMPI|PRTE)_\w+)=(\S+)', script))
    for mpi in ('openmpi', 'mpich'):
        if 'mpi/both.' + mpi not in programs or not shutil.which('mpiexec.' + mpi):
            continue
        for ranks in (2, 4):
            sizes = '8,4096,1048576'
            if ranks <= PROCESSORS:
                sizes = re.search(r'SIZES:=([\d,]+)', script).group(1)
            sizes = ','.join(s for s in chosen(sizes, ranks, 2, is_quick).split(',') if int(s) <= 16 << 20)
            arguments = lambda job, mpi=mpi: [mpi, shared, str(job.budget), job.sizes, ','.join(job.tables)]
            for some in (names[:4], names[4:]):
                jobs.append(Job('mpi', '%d ranks, %s' % (ranks, mpi), 'mpi/both.' + mpi, arguments, sizes, some, budget, ranks,
                                mpi + '-coll', before=['mpiexec.' + mpi, '-n', str(ranks)], env=env))
    return jobs


def all_of(benches, programs, is_quick, shared):
    """every job of these benches for which the programs are there"""
    found = []
    for bench in benches:
        there = [p for p in PROGRAMS[bench] if p in programs]
        if bench == 'mpi':
            found += of_mpi(there, is_quick, shared)
        elif there:
            found += {'instructions': of_instructions, 'threads': of_threads, 'tcp': of_tcp}[bench](there, is_quick)
    return found
