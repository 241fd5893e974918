#!/usr/bin/env python3
"""Fit a line by steps of 24 micro-batches: the same bits on any number of ranks.

    PYTHONPATH=bindings/python python3 examples/python/leaves.py 3                three threads
    coll-run -n 5 python3 examples/python/leaves.py                               five processes

Each micro-batch is a leaf of the sum.  How many ranks share them does not matter: the last line has the same digest."""
import hashlib, sys
import coll, numpy as np

LEAVES, STEPS, WIDTH = 24, 50, 1000


def gradient(weights, step, leaf):
    """Of the mean squared error of one micro-batch, whose data follow from the step and the leaf."""
    chance = np.random.default_rng([step, leaf])
    x = chance.standard_normal((8, WIDTH), 'f4')
    error = x @ weights - x.sum(1) * np.float32(0.5)
    return (error[:, None] * x).mean(0, dtype='f4')


def train(comm):
    weights = np.zeros(WIDTH, 'f4')
    first, end = LEAVES * comm.rank // comm.size, LEAVES * (comm.rank + 1) // comm.size
    with coll.LeafSum(weights) as leaves:
        for step in range(STEPS):
            leaves.restart(first)
            for leaf in range(first, end):
                leaves.add(gradient(weights, step, leaf))
            weights -= np.float32(0.01) * leaves.allreduce(comm, 'avg')
    if comm.rank == 0:
        print('weights', hashlib.sha256(weights.tobytes()).hexdigest()[:16], flush=True)
    return True


if __name__ == '__main__':
    if len(sys.argv) > 1:
        sys.exit(not all(coll.spawn(int(sys.argv[1]), train)))
    with coll.init() as world:
        sys.exit(not train(world))
