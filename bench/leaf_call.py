#!/usr/bin/env python3
"""An allreduce over leaves beside the plain one, in time and bytes: threads, and hosts with links of 1 Gbit/s.

usage: leaf_call.py [--build build/release] [--threads 2,5] [--hosts 2,5] [--leaves 24] [--sizes 64K,1M,16M] [--turns 9]

The rows are those of leaf_call.c.  Hosts are network namespaces (root, iproute2), each with a rank and a token bucket on what it
sends.  They have one machine's processors."""
import argparse, os, subprocess, sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), 'tcp'))
sys.dont_write_bytecode = True                    # nothing beside the sources
import net

GIGABIT = 1e9


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, usual in (('build', 'build/release'), ('threads', '2,5'), ('hosts', '2,5'), ('leaves', '24'), ('turns', '9'),
                        ('sizes', '64K,1M,16M')):
        p.add_argument('--' + name, default=usual)
    o = p.parse_args()
    program = [os.path.join(o.build, 'leaf_call'), '-l', o.leaves, '-r', o.turns, '-b', o.sizes]
    counts = lambda text: [int(n) for n in text.split(',') if n]
    for n in counts(o.threads):
        print('threads: ', end='', flush=True)
        subprocess.run(program + ['-n', str(n)], check=True)
    why_not = net.why_not()
    for n in counts(o.hosts):
        if why_not:
            print('%d hosts: left out: %s' % (n, why_not))
            continue
        with net.Namespaces('leaves') as space:
            found = space.hosts(n, GIGABIT)
            print('hosts, 1 Gbit/s: ', end='', flush=True)
            env = dict(os.environ, COLL_SIZE=str(n), COLL_SHARE='0', COLL_ADDR=found[0][1] + ':7000')     # a network of its own
            ranks = [subprocess.Popen(net.inside(where) + program, env=dict(env, COLL_RANK=str(r)))
                     for r, (where, _) in enumerate(found)]
            failed = [r for r, one in enumerate(ranks) if one.wait()]
            if failed:
                raise SystemExit('leaf_call.py: ranks %s of %d have failed' % (failed, n))


if __name__ == '__main__':
    main()
