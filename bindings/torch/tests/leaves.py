"""leaves.py - coll_torch.sum_leaves and coll_torch.Leaves: the same bits on every number of ranks.

    python3 leaves.py --ranks N [NAME...]         N ranks, which are processes that it forks; LEAVES_SEED=n repeats a run

The oracle is a tree by recursion over all leaves, of additions of torch; every rank calculates it from all micro-batches, so the
weights of all numbers of ranks are compared with the same ones, bit for bit.
"""
import os
import random
import sys
import time

import coll_torch
import ranks
import torch
import torch.distributed as dist
from ranks import rank, size, told
from torch.nn.parallel import DistributedDataParallel

INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64, 16: torch.int64}
SEED = int(os.environ.get("LEAVES_SEED") or time.time())


def same_bits(got, wanted, what=""):
    assert got.dtype == wanted.dtype and got.shape == wanted.shape, (what, got, wanted)
    bits = [x.detach().reshape(-1, 1).view(INTEGERS[x.element_size()]) for x in (got, wanted)]
    assert torch.equal(*bits), (what, SEED, got, wanted)


def tree(leaves):
    """Node [0, 2^j) over the leaves; a half beyond the end is absent."""
    if len(leaves) == 1:
        return leaves[0]
    half = 1 << (len(leaves) - 1).bit_length() - 1
    return tree(leaves[:half]) + tree(leaves[half:])


def summed(leaves, average):
    """Rounded once: 16-bit floats are added in 32 bits."""
    narrow = leaves[0].dtype in (torch.bfloat16, torch.float16)
    total = tree([leaf.float() if narrow else leaf for leaf in leaves])
    if average:
        total = torch.view_as_complex(torch.view_as_real(total) / len(leaves)) if total.is_complex() else total / len(leaves)
    return total.to(leaves[0].dtype)


def cuts(draw, total, least):
    """A random split into runs of `least` leaves or more, the same on all ranks."""
    inner = sorted(draw.randint(0, total - least * size()) for _ in range(size() - 1))
    return [0] + [at + least * (i + 1) for i, at in enumerate(inner)] + [total]


def test_sums():
    draw = random.Random(SEED)
    for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.complex64, torch.complex128):
        for shape in ((), (7,), (5, 3), (3000,), (0,)):
            total, average = draw.randint(1, 40), draw.random() < 0.5
            source = torch.Generator().manual_seed(draw.getrandbits(30))
            leaves = [torch.randn(shape, generator=source, dtype=torch.complex128 if dtype.is_complex else torch.float64)
                      .mul(2.0 ** draw.randint(-8, 3)).to(dtype) for _ in range(total)]
            at = cuts(draw, total, 0)
            run = leaves[at[rank()]:at[rank() + 1]]
            got = coll_torch.sum_leaves(iter(run), at[rank()], like=leaves[0], average=average)
            same_bits(got, summed(leaves, average), (dtype, shape, total, at))
    spread = [torch.randn(6, 4, generator=torch.Generator().manual_seed(i)).t() for i in range(size())]
    same_bits(coll_torch.sum_leaves([spread[rank()]], rank()), summed(spread, False))


class Net(torch.nn.Module):
    """With a convolution in channels_last, whose gradients have other strides."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.convolution = torch.nn.Conv2d(3, 4, 3).to(memory_format=torch.channels_last)
        self.first, self.last = torch.nn.Linear(16, 32), torch.nn.Linear(32, 1)

    def forward(self, x):
        return self.last(torch.tanh(self.first(self.convolution(x).flatten(1))))


def loss_of(net, step, leaf, dtype):
    x = torch.randn(2, 3, 4, 4, generator=torch.Generator().manual_seed(1000 * step + leaf)).to(dtype)
    return (net(x).float() - x.float().sum((1, 2, 3)).sin().unsqueeze(1)).square().mean()


def expected(net, steps, total, dtype):
    """The weights after every step, from all micro-batches."""
    weights, optimizer = [], torch.optim.Adam(net.parameters(), lr=0.01)
    for step in range(steps):
        gradients = {p: [] for p in net.parameters()}
        for leaf in range(total):
            optimizer.zero_grad()
            loss_of(net, step, leaf, dtype).backward()
            for p, of in gradients.items():
                of.append(p.grad)
        for p, of in gradients.items():
            p.grad = summed(of, True)
        optimizer.step()
        weights.append([p.detach().clone() for p in net.parameters()])
    return weights


def test_ddp():
    draw, total, steps = random.Random(SEED), 24, 4
    for dtype, settings in ((torch.float32, {}), (torch.float32, dict(gradient_as_bucket_view=True)), (torch.bfloat16, {})):
        wanted = expected(Net().to(dtype), steps, total, dtype)
        for capacity in (25, 0.001):              # in MB: one bucket, several
            model = DistributedDataParallel(Net().to(dtype), bucket_cap_mb=capacity, **settings)
            leaves = coll_torch.Leaves(model)
            optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
            for step in range(steps):
                at = [total * r // size() for r in range(size() + 1)] if step == 0 else cuts(draw, total, 1)
                for leaf in leaves.run(at[rank()], at[rank() + 1]):
                    loss_of(model, step, leaf, dtype).backward()
                optimizer.step()
                for got, one in zip(model.parameters(), wanted[step]):
                    same_bits(got, one, (dtype, settings, step, at))


def test_refused():
    one = torch.ones(3)
    for call, words in ((lambda: coll_torch.sum_leaves([], 0), "pass like"),
                        (lambda: coll_torch.sum_leaves([one, torch.ones(4)], 0), "a leaf of shape (4,)"),
                        (lambda: coll_torch.sum_leaves([one, one.double()], 0), "a leaf of 3 elements of Double"),
                        (lambda: coll_torch.sum_leaves([one.to_sparse()], 0), "a leaf is a dense tensor"),
                        (lambda: coll_torch.sum_leaves([one], -1), "first leaf -1 is out of range")):
        told(call, words)
    told(lambda: coll_torch.Leaves(DistributedDataParallel(torch.nn.Linear(3, 1), find_unused_parameters=True)), "all parameters")
    model = DistributedDataParallel(torch.nn.Linear(3, 1))
    leaves = coll_torch.Leaves(model, average=False)
    told(lambda: list(leaves.run(3, 3)), "each rank has one or more")
    told(lambda: model(one).backward(), "outside of Leaves.run")


def last_gap():
    """Runs that do not adjoin: every rank gets the sentence, and the group ends."""
    told(lambda: coll_torch.sum_leaves([torch.ones(3)], 2 * rank()), "runs must adjoin")


if __name__ == "__main__":
    ranks.TESTS = {name: function for name, function in globals().items() if name.startswith(("test_", "last_"))}
    print(f"LEAVES_SEED={SEED}", flush=True)
    sys.exit(ranks.fork(int(sys.argv[2]), sys.argv[3:]))
