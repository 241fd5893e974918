#!/usr/bin/env python3
"""Teach a small neural network to read handwritten digits: examples/train_digits.c in NumPy, with its first weights and
its batches.

    PYTHONPATH=python python3 examples/python/train_digits.py                     one rank
    PYTHONPATH=python python3 examples/python/train_digits.py 4                   four threads
    coll-run -n 4 python3 examples/python/train_digits.py                         four processes

The loss is that of the C program, but for rounding: NumPy's products of matrices add in their own order.  The bits of the
weights are the same on all ranks, and for threads and processes of the same number."""
import hashlib, os, sys
import coll, numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
EPOCHS, BATCH, RATE, MOMENTUM = 20, 32, np.float32(0.05), np.float32(0.9)


def train(comm):
    data = np.empty((1797, 65), 'u1')
    if comm.rank == 0:                                          # only this rank reads the file
        data[:] = np.loadtxt(f'{HERE}/../data/digits.csv', 'u1', delimiter=',')
    comm.broadcast_(data)
    order = np.arange(len(data))
    learned = len(data) - (len(data) + 4) // 5                  # the last fifth is for the test
    shuffle(order, 0)
    x, labels, test = data[:, :64].astype('f4') / 16, data[:, 64], order[learned:]
    weights = np.zeros(64 * 128 + 128 + 128 * 10 + 10, 'f4')    # one vector, for one allreduce; w1 ... b2 are parts of it
    gradient, velocity = np.zeros_like(weights), np.zeros_like(weights)
    w1, b1, w2, b2 = parts(weights)
    g1, h1, g2, h2 = parts(gradient)
    w1[:], w2[:] = uniform(w1.shape, 1), uniform(w2.shape, 2)   # the same on every rank
    for epoch in range(1, EPOCHS + 1):
        shuffle(order[:learned], 3 + epoch)
        for at in range(0, learned, BATCH):
            batch = order[at:min(at + BATCH, learned)]
            mine = batch[len(batch) * comm.rank // comm.size:len(batch) * (comm.rank + 1) // comm.size]
            hidden, output, _ = forward(x[mine], labels[mine], w1, b1, w2, b2)
            output[np.arange(len(mine)), labels[mine]] -= 1
            back = (output @ w2.T) * (hidden > 0)
            g1[:], h1[:], g2[:], h2[:] = x[mine].T @ back, back.sum(0), hidden.T @ output, output.sum(0)
            comm.allreduce_(gradient, deterministic=True, name='gradient')
            velocity *= MOMENTUM
            velocity += gradient / np.float32(len(batch))
            weights -= RATE * velocity
    loss = forward(x[order[:learned]], labels[order[:learned]], w1, b1, w2, b2)[2].mean(dtype='f8')
    accuracy = (forward(x[test], labels[test], w1, b1, w2, b2)[1].argmax(1) == labels[test]).mean()
    digest = hashlib.sha256(weights.tobytes()).digest()
    same = (comm.allgather(np.frombuffer(digest, np.uint8)) == np.frombuffer(digest, np.uint8)).all()
    if comm.rank == 0:
        print(f'{comm.size} ranks   loss {loss:.6f}   accuracy {100 * accuracy:.1f} %   weights {digest.hex()[:16]}, '
              f'{"identical bits on every rank" if same else "and OTHERS on other ranks"}', flush=True)
    return bool(same and accuracy >= 0.95)


def chance(stream, at, seed=1):
    """Numbers `at` of a stream, each the result of a function and not of a state."""
    def mix(x):
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xbf58476d1ce4e5b9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94d049bb133111eb)
        return x ^ (x >> np.uint64(31))
    step = np.array([0x9e3779b97f4a7c15], 'u8')                 # arrays wrap around without a warning
    return mix(mix(mix(np.uint64(seed) + step) + np.uint64(stream + 1) * step) + (np.asarray(at, 'u8') + np.uint64(1)) * step)


def shuffle(order, stream):
    draws = chance(stream, np.arange(len(order) + 1))
    for i in range(len(order), 1, -1):
        k = int(draws[i]) % i
        order[k], order[i - 1] = order[i - 1], order[k]


def uniform(shape, stream):
    draws = (chance(stream, np.arange(shape[0] * shape[1])) >> np.uint64(40)).astype('f4') * np.float32(2.0 ** -23)
    return ((draws - np.float32(1)) * np.sqrt(np.float32(6) / np.float32(shape[0]))).reshape(shape)


def parts(vector):
    w1, b1, w2, b2 = np.split(vector, np.cumsum([64 * 128, 128, 128 * 10]))
    return w1.reshape(64, 128), b1, w2.reshape(128, 10), b2


def forward(x, labels, w1, b1, w2, b2):
    hidden = np.maximum(x @ w1 + b1, 0)
    scores = hidden @ w2 + b2
    scores -= scores.max(1, keepdims=True) if len(x) else 0
    output = np.exp(scores)
    total = output.sum(1, keepdims=True)
    return hidden, output / total, np.log(total[:, 0]) - scores[np.arange(len(x)), labels]


if __name__ == '__main__':
    if len(sys.argv) > 1:
        sys.exit(not all(coll.spawn(int(sys.argv[1]), train)))
    with coll.init() as world:
        sys.exit(not train(world))
