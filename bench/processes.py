#!/usr/bin/env python3
"""Processes of one host compared with threads: the same collective on as many ranks, in turns.

    processes.py --build build/release [--ranks 2,4] [--rounds 5] [--collectives LIST] [--most 16M] [--busy N] [--fresh]

Each round runs coll_perf four times: on threads; on processes with plain memory; on processes with buffers of coll_alloc; and on
processes that share nothing, over TCP.  What is printed is the median of each over the rounds, in us, out of place where there
is such, and of the ratios to the threads of the same round.  With --busy N processes that only compute run beside everything, and
no rank is bound to a processor.  With --fresh inputs are written before each call and results read after it, as programs do;
without it they are not touched, so that the buffers of threads stay in the caches.  Every result is checked before it
is timed."""
import argparse, json, os, statistics, subprocess, sys

WAYS = ('threads', 'processes', 'coll_alloc', 'tcp')


def command(args, way, ranks):
    perf = [args.build + '/coll_perf', '-C', args.collectives, '-b', '8', '-e', args.most, '-f', '8', '-J']
    if args.fresh:
        perf.append('-F')
    if ranks <= len(os.sched_getaffinity(0)) and not args.busy:       # otherwise they would all be on the first ones
        perf.append('-P')
    if way == 'threads':
        return perf + ['-t', str(ranks)]
    launch = [args.build + '/coll-run', '-n', str(ranks), '--no-prefix', '-q']
    return launch + perf + (['-L'] if way == 'coll_alloc' else [])


def times(args, way, ranks):
    """{(collective, bytes): us}"""
    apart = {'COLL_SHM_COLLECTIVES': '0', 'COLL_SHARE': '0'} if way == 'tcp' else {}
    run = subprocess.run(command(args, way, ranks), capture_output=True, text=True, env={**os.environ, **apart})
    if run.returncode:
        sys.exit(f'{way}, {ranks} ranks: {run.stderr or run.stdout}')
    lines = (json.loads(line) for line in run.stdout.splitlines() if line.startswith('{'))
    return {(l['collective'], l['size']): (l.get('out_of_place') or l['in_place'])['time_us'] for l in lines
            if l.get('collective') not in (None, 'memcpy')}


def table(args, ranks):
    rounds = [{way: times(args, way, ranks) for way in WAYS} for _ in range(args.rounds)]
    print(f'{ranks} ranks{f" beside {args.busy} that compute" if args.busy else ""}, us, medians of {args.rounds} rounds\n'
          f'{"":16}{"bytes":>10}' + ''.join(f'{way:>12}' for way in WAYS) + f'{"plain":>8}{"alloc":>8}{"tcp":>8}', flush=True)
    for cell in rounds[0]['threads']:
        us = [statistics.median(r[way][cell] for r in rounds) for way in WAYS]
        ratios = [statistics.median(r[way][cell] / r['threads'][cell] for r in rounds) for way in WAYS[1:]]
        print(f'{cell[0]:16}{cell[1]:>10}' + ''.join(f'{t:12.2f}' for t in us) + ''.join(f'{r:8.2f}' for r in ratios))


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument('--build', required=True)
    p.add_argument('--ranks', default='2,4')
    p.add_argument('--rounds', type=int, default=5)
    p.add_argument('--collectives', default='allreduce,broadcast,reduce,allgather,reduce_scatter')
    p.add_argument('--most', default='16M')
    p.add_argument('--busy', type=int, default=0)
    p.add_argument('--fresh', action='store_true')
    args = p.parse_args()
    hogs = [subprocess.Popen([sys.executable, '-c', 'while True: pass']) for _ in range(args.busy)]
    try:
        for ranks in map(int, args.ranks.split(',')):
            table(args, ranks)
    finally:
        for hog in hogs:
            hog.kill()


if __name__ == '__main__':
    main()
