#!/usr/bin/env python3
"""Processes of one host beside threads: the same collective on as many ranks, in turns.

    hub.py --build build/release [--ranks 2,4] [--rounds 5] [--collectives allreduce,broadcast] [--most 16M]

Each round runs coll_perf three times: on threads; on processes with plain memory; on processes with buffers of coll_alloc.
What is printed is the median of each over the rounds, in us, out of place where there is such, and of the ratios to the threads
of the same round.
Every result is checked before it is timed."""
import argparse, json, os, statistics, subprocess, sys

WAYS = ('threads', 'processes', 'coll_alloc')


def command(args, way, ranks):
    perf = [args.build + '/coll_perf', '-C', args.collectives, '-b', '8', '-e', args.most, '-f', '8', '-J']
    if ranks <= len(os.sched_getaffinity(0)):     # otherwise they would all be on the first ones
        perf.append('-P')
    if way == 'threads':
        return perf + ['-t', str(ranks)]
    launch = [args.build + '/coll-run', '-n', str(ranks), '--no-prefix', '-q']
    return launch + perf + (['-L'] if way == 'coll_alloc' else [])


def times(args, way, ranks):
    """{(collective, bytes): us}"""
    run = subprocess.run(command(args, way, ranks), capture_output=True, text=True)
    if run.returncode:
        sys.exit(f'{way}, {ranks} ranks: {run.stderr or run.stdout}')
    lines = (json.loads(line) for line in run.stdout.splitlines() if line.startswith('{'))
    return {(l['collective'], l['size']): (l.get('out_of_place') or l['in_place'])['time_us'] for l in lines
            if l.get('collective') not in (None, 'memcpy')}


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument('--build', required=True)
    p.add_argument('--ranks', default='2,4')
    p.add_argument('--rounds', type=int, default=5)
    p.add_argument('--collectives', default='allreduce,broadcast,reduce,allgather,reduce_scatter')
    p.add_argument('--most', default='16M')
    args = p.parse_args()
    for ranks in map(int, args.ranks.split(',')):
        rounds = [{way: times(args, way, ranks) for way in WAYS} for _ in range(args.rounds)]
        print(f'{ranks} ranks, us, medians of {args.rounds} rounds\n'
              f'{"":16}{"bytes":>10}' + ''.join(f'{way:>12}' for way in WAYS) + f'{"plain":>8}{"alloc":>8}')
        for cell in rounds[0]['threads']:
            us = [statistics.median(r[way][cell] for r in rounds) for way in WAYS]
            ratios = [statistics.median(r[way][cell] / r['threads'][cell] for r in rounds) for way in WAYS[1:]]
            print(f'{cell[0]:16}{cell[1]:>10}' + ''.join(f'{t:12.2f}' for t in us) + ''.join(f'{r:8.2f}' for r in ratios))


if __name__ == '__main__':
    main()
