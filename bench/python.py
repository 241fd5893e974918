#!/usr/bin/env python3
"""What Python adds to a call of 8 B: this package compared with C (coll_perf), and with mpi4py if it is installed.

    python.py --build build/release [--rounds 5] [--bytes 8]

An allreduce of f32, in place and into a new array, back to back, on one process, two processes of one host (shared memory), the
same over TCP, and two threads.  Each result is checked before anything is timed.  Rounds run all ways in turns; printed is the
median of each way over the rounds, in us, and of the difference to C of the same round.  Ranks are pinned to processors.  A round
takes the median of 30 batches of 20 ms in Python, and the time of coll_perf in C."""
import argparse, json, os, shutil, statistics, subprocess, sys, time

import numpy as np

BATCH_S, BATCHES = 0.02, 30


def paced(call, barrier):
    """us for one call, the median of batches."""
    barrier()
    began, number = time.perf_counter(), 200
    for _ in range(number):
        call()
    number = max(int(number * BATCH_S / (time.perf_counter() - began)), 10)
    return number


def timed(call, barrier, number):
    batches = []
    for _ in range(BATCHES):
        barrier()
        began = time.perf_counter()
        for _ in range(number):
            call()
        batches.append((time.perf_counter() - began) / number * 1e6)
    return statistics.median(batches)


def checked(x, size, rank, call):
    x[:] = rank + 1
    assert (call() == size * (size + 1) / 2).all()
    x[:] = 0                                                    # sums of it do not change


PROCESSORS = sorted(os.sched_getaffinity(0))


def pin(rank):
    os.sched_setaffinity(0, {PROCESSORS[rank % len(PROCESSORS)]})


def ours(comm, length):
    pin(comm.rank)
    x = np.zeros(max(length // 4, 1), 'f4')
    ways = {'in place': lambda: comm.allreduce_(x), 'new array': lambda: comm.allreduce(x)}
    result = {}
    for name, call in ways.items():
        checked(x, comm.size, comm.rank, call)
        number = int(comm.broadcast(paced(call, comm.barrier)))
        result[name] = timed(call, comm.barrier, number)
    return result


def mpi4py(length):
    from mpi4py import MPI
    comm = MPI.COMM_WORLD
    pin(comm.rank)
    x = np.zeros(max(length // 4, 1), 'f4')
    y = np.empty_like(x)

    def place():
        comm.Allreduce(MPI.IN_PLACE, x)
        return x

    def new():
        comm.Allreduce(x, y)
        return y
    result = {}
    for name, call in {'in place': place, 'new array': new}.items():
        checked(x, comm.size, comm.rank, call)
        number = comm.bcast(paced(call, comm.Barrier))
        result[name] = timed(call, comm.Barrier, number)
    if comm.rank == 0:
        print(json.dumps({**result, 'library': MPI.Get_library_version().split(',')[0].split('\n')[0].strip()}))


def lines(command, **settings):
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **settings})
    found = [json.loads(line) for line in done.stdout.splitlines() if line.startswith('{')]
    if done.returncode or not found:
        sys.exit(f'{" ".join(command)}: {done.stderr or done.stdout}')
    return found


def of_perf(command, args, **settings):
    cells = lines(command + ['-b', str(args.bytes), '-e', str(args.bytes), '-J', '-P'], **settings)
    cell = next(cell for cell in cells if cell.get('collective') == 'allreduce')
    assert not cell['in_place'].get('wrong') and not cell['out_of_place'].get('wrong')
    return {'in place': cell['in_place']['time_us'], 'new array': cell['out_of_place']['time_us']}


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument('--build', default='build/release')
    p.add_argument('--rounds', type=int, default=5)
    p.add_argument('--bytes', type=int, default=8)
    p.add_argument('--rank', choices=('coll', 'threads', 'mpi4py'))
    args = p.parse_args()
    if args.rank == 'mpi4py':
        return mpi4py(args.bytes)
    if args.rank:
        import coll
        if args.rank == 'threads':
            print(json.dumps(coll.spawn(2, lambda comm: ours(comm, args.bytes))[0]))
            return None
        with coll.init() as comm:
            result = ours(comm, args.bytes)
            if comm.rank == 0:
                print(json.dumps(result))
        return None
    perf, run = args.build + '/coll_perf', [args.build + '/coll-run', '-n', '2', '--no-prefix', '-q']
    me = [sys.executable, os.path.abspath(__file__), '--bytes', str(args.bytes), '--rank']
    worlds = {'1 process': ([], {}), '2 processes': (run, {}), '2 over TCP': (run, {'COLL_SHARE': '0'})}
    ways = {}
    for world, (launch, settings) in worlds.items():
        ways[world, 'C'] = lambda launch=launch, settings=settings: of_perf(launch + [perf], args, **settings)
        ways[world, 'Python'] = lambda launch=launch, settings=settings: lines(launch + me + ['coll'], **settings)[0]
    ways['2 threads', 'C'] = lambda: of_perf([perf, '-t', '2'], args)
    ways['2 threads', 'Python'] = lambda: lines(me + ['threads'])[0]
    for mpi in ('openmpi', 'mpich'):
        start = [f'mpiexec.{mpi}', '-n', '2'] + (['--allow-run-as-root', '--oversubscribe'] if mpi == 'openmpi' else [])
        try:
            found = lines(start + me + ['mpi4py'])[0] if shutil.which(start[0]) else None
        except SystemExit:
            found = None
        if found and ('Open MPI' in found['library']) == (mpi == 'openmpi'):
            ways['2 processes', f'mpi4py, {found["library"]}'] = lambda start=start: lines(start + me + ['mpi4py'])[0]
        else:
            print(f'mpi4py over {mpi}: not here')
    rounds = [{way: measure() for way, measure in ways.items()} for _ in range(args.rounds)]
    print(f'allreduce of {args.bytes} B, us, medians of {args.rounds} rounds\n{"":48}in place   over C   new array   over C')
    for way in ways:
        row = f'{way[0]:14}{way[1]:30}'
        for form in ('in place', 'new array'):
            over = [r[way][form] - r[way[0], 'C'][form] for r in rounds]
            row += f'{statistics.median(r[way][form] for r in rounds):12.2f}' \
                   + (f'{statistics.median(over):9.2f}' if way[1] != 'C' else ' ' * 9)
        print(row)
    return None


if __name__ == '__main__':
    sys.exit(main())
