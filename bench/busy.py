#!/usr/bin/env python3
"""Waiting where ranks share processors with programs that compute: ours compared with blocking sockets, in means.

    busy.py --build build/release [--ranks 2,4,8] [--neighbors 0,1,2,8] [--compute 0,50,300,1000] [--bytes 8,1K,64K]
            [--sides threads,processes,tcp] [--seconds 0.25] [--rounds 1] [--also NAME=PROGRAM]... [--tiny]

A rank computes some microseconds, then calls allgather, again and again.  The sides take turns beside the same neighbors, which
only compute; nothing is bound to a processor.  Printed are the mean time of a repetition, computing included, and its ratio to
blocking sockets that do the same.  The median says little here: most calls are short, and the others take turns of the scheduler.
With several rounds a time is the mean over them, and a ratio the geometric mean.  --also measures another build of the program.
Every result is checked before it is timed, and after it."""
import argparse, contextlib, os, statistics, subprocess, sys

SIDES = ('threads', 'processes', 'tcp')
TARGET = 1.1


def output_of(command):
    run = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if run.returncode:
        sys.exit(f'{" ".join(command)}: exit status {run.returncode}: {run.stderr or run.stdout}')
    return run.stdout


@contextlib.contextmanager
def neighbors(program, count):
    running = [subprocess.Popen([program, 'neighbor'], stdin=subprocess.DEVNULL) for _ in range(count)]
    try:
        yield
    finally:
        for one in running:
            one.kill()
            one.wait()


def measure(args, program, side, ranks):
    """{(us, bytes): mean}"""
    lines = output_of([program, side, str(ranks), args.steps, str(args.seconds), args.compute, args.bytes]).splitlines()
    return {(int(f[0]), int(f[1])): float(f[2]) for f in (line.split('\t') for line in lines)}


def table(args, ranks, count):
    """prints one; {side: [ratio]}"""
    columns = [('sockets', args.program, 'sockets')] if 'sockets' in args.sides else []
    for side in (s for s in args.sides if s != 'sockets'):
        columns += [(side, args.program, side)] + [(f'{name} {side}', path, side) for name, path in args.also]
    rounds = []
    for _ in range(args.rounds):                  # the scheduler places new neighbors again
        with neighbors(args.program, count):
            rounds.append({name: measure(args, program, side, ranks) for name, program, side in columns})
    print(f'{ranks} ranks beside {count} that compute, us\n{"computing":>9}{"bytes":>8}' + ''.join(
        f'{name:>16}' + ('' if name == 'sockets' or 'sockets' not in args.sides else '  ratio ') for name, _, _ in columns))
    ratios = {name: [] for name, _, _ in columns}
    for cell in next(iter(rounds[0].values())):
        text = f'{cell[0]:>9}{cell[1]:>8}'
        for name, _, _ in columns:
            text += f'{statistics.mean(r[name][cell] for r in rounds):16.1f}'
            if name != 'sockets' and 'sockets' in args.sides:
                ratio = statistics.geometric_mean(r[name][cell] / r['sockets'][cell] for r in rounds)
                ratios[name].append(ratio)
                text += f'{ratio:7.2f}{"!" if count and ratio > TARGET else " "}'
        print(text)
    print(flush=True)
    return ratios


def summary(all_ratios):
    """all_ratios: {(ranks, neighbors): {side: [ratio]}}"""
    print(f'ratios to sockets: the geometric mean of each table, and its worst; ! of those beside neighbors: above {TARGET}')
    names = [name for name in next(iter(all_ratios.values())) if name != 'sockets']
    print(f'{"ranks":>6}{"beside":>8}' + ''.join(f'{name:>22}' for name in names))
    for (ranks, count), ratios in all_ratios.items():
        text = f'{ranks:>6}{count:>8}'
        for name in names:
            mean, worst = statistics.geometric_mean(ratios[name]), max(ratios[name])
            text += f'{mean:14.2f}{worst:7.2f}{"!" if count and worst > TARGET else " "}'
        print(text)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument('--build', required=True)
    p.add_argument('--also', action='append', default=[], type=lambda text: text.split('=', 1))
    p.add_argument('--ranks', default='2,4,8')
    p.add_argument('--neighbors', default='0,1,2,8')
    p.add_argument('--compute', default='0,50,300,1000')
    p.add_argument('--bytes', default='8,1K,64K')
    p.add_argument('--sides', default='sockets,' + ','.join(SIDES))
    p.add_argument('--seconds', type=float, default=0.25)
    p.add_argument('--rounds', type=int, default=1)
    p.add_argument('--tiny', action='store_true', help='to see that it works')
    args = p.parse_args()
    if args.tiny:
        args.ranks, args.neighbors, args.compute, args.bytes, args.seconds = '2,3', '0,1', '0,20', '8,1K', 0.001
    args.sides = args.sides.split(',')
    args.program = os.path.join(args.build, 'busy')
    args.steps = output_of([args.program, 'calibrate']).strip()
    print(f'{len(os.sched_getaffinity(0))} processors; Linux {os.uname().release}\n', flush=True)
    ratios = {}
    for count in map(int, args.neighbors.split(',')):
        for ranks in map(int, args.ranks.split(',')):
            ratios[ranks, count] = table(args, ranks, count)
    if 'sockets' in args.sides:
        summary(ratios)


if __name__ == '__main__':
    main()
