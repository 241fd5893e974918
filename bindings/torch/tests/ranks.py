"""ranks.py - tests of the back end on every rank.

    python3 ranks.py [TEST...]                    a rank, under torchrun
    python3 ranks.py --ranks N [TEST...]          N ranks, which are processes that it forks: they import torch once

Inputs are small whole numbers that every rank can calculate for all others, so results are compared for equality in all types.
"""
import datetime
import faulthandler
import os
import sys
import tempfile
import threading
import time
import traceback

import coll_torch
import torch
import torch.distributed as dist
from torch._C import _distributed_c10d as c10d
from torch.nn.parallel import DistributedDataParallel

WHOLE = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64]
REAL = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
COMPLEX = [torch.complex64, torch.complex128]
ALL = WHOLE + REAL + COMPLEX + [torch.bool]
SHAPES = [(0,), (), (1,), (7,), (5, 3), (3000,)]


def rank():
    return dist.get_rank()


def size():
    return dist.get_world_size()


def of(r, shape, dtype, salt=0):
    """The tensor of rank r."""
    count = int(torch.Size(shape).numel())
    return ((torch.arange(count) * 3 + r + salt) % 4).reshape(shape).to(dtype)


def laid(tensor, spread):
    """The same, with gaps between its elements."""
    if not spread:
        return tensor.clone()
    wide = torch.zeros(tuple(tensor.shape) + (2,), dtype=tensor.dtype)[..., 0]
    return wide.copy_(tensor)


def same(got, wanted, what=""):
    assert got.dtype == wanted.dtype and got.shape == wanted.shape and torch.equal(got, wanted), (what, got, wanted)


def cases(dtypes=ALL):
    for dtype in dtypes:
        for shape in SHAPES:
            for spread in (False, True):
                yield dtype, shape, spread


def fold(op, tensors):
    out = tensors[0].clone()
    for one in tensors[1:]:
        out = op(out, one)
    return out


def test_broadcast():
    for dtype, shape, spread in cases():
        for root in range(size()):
            x = laid(of(rank(), shape, dtype), spread)
            dist.broadcast(x, root)
            same(x, of(root, shape, dtype))


def reductions(dtype):
    ops = {}
    if dtype == torch.bool:
        return {dist.ReduceOp.SUM: torch.logical_or, dist.ReduceOp.MAX: torch.logical_or, dist.ReduceOp.MIN: torch.logical_and,
                dist.ReduceOp.PRODUCT: torch.logical_and, dist.ReduceOp.BXOR: torch.logical_xor}
    ops[dist.ReduceOp.SUM] = torch.add
    if dtype in COMPLEX:
        return ops
    ops.update({dist.ReduceOp.PRODUCT: torch.mul, dist.ReduceOp.MIN: torch.minimum, dist.ReduceOp.MAX: torch.maximum})
    if dtype in WHOLE:
        ops.update({dist.ReduceOp.BAND: torch.bitwise_and, dist.ReduceOp.BOR: torch.bitwise_or,
                    dist.ReduceOp.BXOR: torch.bitwise_xor})
    return ops


def test_allreduce_and_reduce():
    for dtype, shape, spread in cases():
        all_of_them = [of(r, shape, dtype) for r in range(size())]
        for op, what in reductions(dtype).items():
            wanted = fold(what, all_of_them).to(dtype)
            x = laid(all_of_them[rank()], spread)
            dist.all_reduce(x, op)
            same(x, wanted, ("allreduce", op))
            for root in range(size()):
                x = laid(all_of_them[rank()], spread)
                dist.reduce(x, root, op)
                same(x, wanted if rank() == root else all_of_them[rank()], ("reduce", op))


def test_average():
    for dtype in REAL:
        x = torch.full((5,), float(rank()), dtype=dtype)
        dist.all_reduce(x, dist.ReduceOp.AVG)
        same(x, torch.full((5,), (size() - 1) / 2, dtype=dtype))


def test_premultiplied_sum():
    """The sum of all inputs times a factor, rounded once."""
    for dtype in REAL:
        for factor in (0.25, torch.tensor(0.25)):
            op = dist._make_nccl_premul_sum(factor)
            x = torch.arange(6, dtype=dtype) + 4 * rank()
            dist.all_reduce(x, op)
            same(x, sum(torch.arange(6, dtype=torch.float64) + 4 * r for r in range(size())).mul(0.25).to(dtype))
            whole, part = (torch.arange(3 * size(), dtype=torch.float64) + r for r in range(size())), torch.empty(3, dtype=dtype)
            dist.reduce_scatter_single(part, torch.arange(3 * size(), dtype=dtype) + rank(), op)
            same(part, sum(whole).mul(0.25).to(dtype).chunk(size())[rank()])
    told(lambda: dist.all_reduce(torch.ones(1, dtype=torch.int32), dist._make_nccl_premul_sum(0.5)), "scale")
    told(lambda: dist.all_reduce(torch.ones(1), dist._make_nccl_premul_sum(0.0)), "factor 0")


def test_several_at_once():
    """What DTensor and coalescing call."""
    shapes, dtypes = [(3,), (2, 2), (0,), (5,)], [torch.float32, torch.bfloat16, torch.int64, torch.float64]
    for n in (1, 4):
        ins = [of(rank(), shape, dtype) for shape, dtype in zip(shapes[:n], dtypes)]
        outs = [x.new_empty((size(),) + x.shape) for x in ins]
        dist.group.WORLD.all_gather_single_coalesced(outs, ins).wait()
        for out, shape, dtype in zip(outs, shapes, dtypes):
            same(out, torch.stack([of(r, shape, dtype) for r in range(size())]))
        wholes = [torch.stack([of(rank(), shape, dtype, to) for to in range(size())]) for shape, dtype in zip(shapes[:n], dtypes)]
        work = dist.group.WORLD.reduce_scatter_single_coalesced(ins, wholes)
        work.wait()
        assert work.is_completed() and work.is_success()
        for got, shape, dtype in zip(ins, shapes, dtypes):
            same(got, fold(torch.add, [of(r, shape, dtype, rank()) for r in range(size())]))
    xs = [torch.full((n + 1,), float(rank())) for n in range(4)]
    with dist._coalescing_manager(async_ops=True) as several:
        for x in xs:
            dist.all_reduce(x)
    several.wait()
    with dist._coalescing_manager(device=torch.device("cpu"), async_ops=True) as several:
        for x in xs:
            dist.broadcast(x, 0)
            dist.all_reduce(x)
    assert several.works[0].get_future().wait()
    for n, x in enumerate(xs):
        same(x, torch.full((n + 1,), float(sum(range(size())) * size())))
    told(lambda: dist.group.WORLD._end_coalescing(torch.device("cpu")), "startCoalescing")


def test_coalesced():
    for spread in (False, True):
        xs = [laid(of(rank(), shape, torch.float32), spread) for shape in SHAPES]
        dist.all_reduce_coalesced(xs)
        for x, shape in zip(xs, SHAPES):
            same(x, sum(of(r, shape, torch.float32) for r in range(size())))
        mixed = [of(rank(), (3, 2), torch.float64), of(rank(), (), torch.int8), of(rank(), (5,), torch.bool)]
        out = [[laid(torch.zeros_like(x), spread) for x in mixed] for _ in range(size())]
        coll_torch._of(None).allgather_coalesced(out, mixed).wait()   # dist. requires one type
        for r in range(size()):
            same(out[r][0], of(r, (3, 2), torch.float64))
            same(out[r][1], of(r, (), torch.int8))
            same(out[r][2], of(r, (5,), torch.bool))


def test_gathering():
    for dtype, shape, spread in cases():
        mine = laid(of(rank(), shape, dtype), spread)
        out = [laid(torch.zeros(shape, dtype=dtype), spread) for _ in range(size())]
        dist.all_gather(out, mine)
        for r in range(size()):
            same(out[r], of(r, shape, dtype), "allgather")
        root = size() - 1
        out = [laid(torch.zeros(shape, dtype=dtype), spread) for _ in range(size())] if rank() == root else None
        dist.gather(mine, out, root)
        if rank() == root:
            for r in range(size()):
                same(out[r], of(r, shape, dtype), "gather")
        parts = [laid(of(r, shape, dtype, 1), spread) for r in range(size())] if rank() == root else None
        got = laid(torch.zeros(shape, dtype=dtype), spread)
        dist.scatter(got, parts, root)
        same(got, of(rank(), shape, dtype, 1), "scatter")


def test_parts_of_one_tensor():
    """Parts that lie one behind the other are used where they are, in every place."""
    whole = torch.zeros(size() * 4)
    parts = list(whole.chunk(size()))
    dist.all_gather(parts, torch.full((4,), float(rank())))
    same(whole, torch.arange(size()).repeat_interleave(4).float())
    whole = torch.full((size(), 4), float(rank()))
    dist.all_gather(list(whole), whole[rank()])
    same(whole, torch.arange(size()).repeat_interleave(4).reshape(size(), 4).float())


def test_whole_tensors():
    for dtype, shape, spread in cases(WHOLE + REAL):
        mine = laid(of(rank(), shape, dtype), spread)
        out = laid(torch.zeros((size(),) + shape, dtype=dtype), spread)
        dist.all_gather_single(out, mine)
        same(out, torch.stack([of(r, shape, dtype) for r in range(size())]))
        rows = [[of(r, shape, dtype, to) for to in range(size())] for r in range(size())]
        wanted = fold(torch.add, [rows[r][rank()] for r in range(size())])
        got = laid(torch.zeros(shape, dtype=dtype), spread)
        dist.reduce_scatter_single(got, laid(torch.stack(rows[rank()]), spread))
        same(got, wanted)
        got = laid(torch.zeros(shape, dtype=dtype), spread)
        dist.reduce_scatter(got, [laid(x, spread) for x in rows[rank()]])
        same(got, wanted)


def test_all_to_all():
    for dtype, shape, spread in cases():
        out = [laid(torch.zeros(shape, dtype=dtype), spread) for _ in range(size())]
        dist.all_to_all(out, [laid(of(rank(), shape, dtype, 5 * to), spread) for to in range(size())])
        for r in range(size()):
            same(out[r], of(r, shape, dtype, 5 * rank()))
    for dtype in ALL:
        into, row = [r + rank() for r in range(size())], (3,)
        x = torch.cat([of(rank(), (n,) + row, dtype, to) for to, n in enumerate(into)])
        out = torch.zeros_like(x)
        dist.all_to_all_single(out, x, into, into)
        same(out, torch.cat([of(r, (n,) + row, dtype, rank()) for r, n in enumerate(into)]))
        x = torch.cat([of(rank(), (2, 3), dtype, to) for to in range(size())])
        out = torch.zeros_like(x)
        dist.all_to_all_single(out, x)
        same(out, torch.cat([of(r, (2, 3), dtype, rank()) for r in range(size())]))
    told(lambda: dist.all_to_all_single(out, laid(x, True)), "contiguous")


def test_messages():
    after, before = (rank() + 1) % size(), (rank() - 1) % size()
    for dtype, shape, spread in cases():
        got = [laid(torch.zeros(shape, dtype=dtype), spread) for _ in range(3)]
        begun = [dist.irecv(got[tag], before, tag=tag) for tag in (2, 0, 1)]
        begun += [dist.isend(laid(of(rank(), shape, dtype, tag), spread), after, tag=tag) for tag in (0, 1, 2)]
        dist.all_reduce(torch.zeros(1))           # passes the receives that wait
        for work in begun:
            work.wait()
        for tag in range(3):
            same(got[tag], of(before, shape, dtype, tag))
    if rank() == 0:
        seen = set()
        for _ in range(size() - 1):
            x = torch.zeros(4)
            source = dist.recv(x, tag=9)
            same(x, torch.full((4,), float(source)))
            seen.add(source)
        assert seen == set(range(1, size()))
    else:
        dist.send(torch.full((4,), float(rank())), 0, tag=9)
    requests = dist.batch_isend_irecv([dist.P2POp(dist.irecv, got[0], before), dist.P2POp(dist.isend, got[1], after)])
    for one in requests:
        one.wait()


def test_many_at_once():
    xs = [torch.full((n % 70,), float(rank() + n)) for n in range(200)]
    begun = [dist.all_reduce(x, async_op=True) for x in xs]
    for work in reversed(begun):
        work.wait()
        assert work.is_completed() and work.is_success()
    for n, x in enumerate(xs):
        same(x, torch.full_like(x, sum(r + n for r in range(size()))))


def test_futures():
    """What is chained to a future may itself wait for a collective."""
    def then(future):
        y = future.value()[0] + 1
        return dist.all_reduce(y, async_op=True).get_future().wait()[0]

    x = torch.ones(3)
    chained = dist.all_reduce(x, async_op=True).get_future().then(then)
    same(chained.wait(), torch.full((3,), float(size() * (size() + 1))))
    work = dist.all_reduce(x, async_op=True)
    work.wait()
    assert work.get_future().done()               # also when requested afterwards
    same(work.result()[0], x)
    assert dist.barrier(async_op=True).get_future().wait() == []


def test_numbers_and_times():
    group = dist.new_group()
    back_end = coll_torch._of(group)
    assert back_end._get_sequence_number_for_group() == 0
    for n in range(1, 4):
        work = dist.all_reduce(torch.ones(1000), group=group, async_op=True)
        work.wait()
        assert back_end._get_sequence_number_for_group() == n
        if n == 1:                                # a later call does not time it
            group._enable_collectives_timing()
            told(work._get_duration, "no duration")
        else:
            assert 0 < work._get_duration() < 60e3
        assert work._get_op_type() == int(c10d.OpType.ALLREDUCE)
    assert work.get_future_result().wait() == 0
    assert group._get_backend(torch.device("cpu")).options.group_name == group.group_name


def test_hooks():
    """Each operation that has ended is reported once, in the order of their ends, by a thread that may call Python."""
    group, seen, threads = dist.new_group(), [], set()

    def hook(info):
        seen.append((info.op_type, info.seq))
        threads.add(threading.get_ident())
        assert info.time_started <= info.time_finished

    group._register_on_completion_hook(hook)
    assert group._has_hooks()
    for _ in range(20):
        dist.all_reduce(torch.ones(3), group=group)
    dist.barrier(group=group)
    group._wait_for_pending_works()
    assert seen == [(c10d.OpType.ALLREDUCE, n + 1) for n in range(20)] + [(c10d.OpType.BARRIER, 21)], seen
    assert threading.get_ident() not in threads
    told(lambda: group._register_on_completion_hook(hook), "already")
    dist.destroy_process_group(group)


def test_groups_of_groups():
    """split and merge, which connect through the store that torch gives them."""
    half = [r for r in range(size()) if r % 2 == rank() % 2]
    name = f"half {rank() % 2}"
    part = dist.group.WORLD.split_group(half, group_name=name, group_desc="ranks with this parity")
    x = torch.ones(2)
    part.allreduce([x]).wait()
    same(x, torch.full((2,), float(len(half))))
    assert part.rank() == half.index(rank()) and part.size() == len(half)
    part.shutdown()


def test_without_a_rank():
    """shrink_group: the last rank does not call."""
    group, left = dist.new_group(), size() - 1
    if rank() == left:                            # 2.15 counts the names of groups, and names the next group by the count
        dist.distributed_c10d._process_group_name(range(left), use_hashed_name=True)
        return dist.destroy_process_group(group)
    part = dist.shrink_group([left], group)
    x = torch.ones(3)
    dist.all_reduce(x, group=part)
    same(x, torch.full((3,), float(left)))
    assert dist.get_process_group_ranks(part) == list(range(left))
    dist.destroy_process_group(part)


def test_threads():
    """Two groups, each used by its own thread at the same time."""
    groups, wrong = [dist.new_group(), dist.new_group()], []

    def work(group, n):
        try:
            for step in range(50):
                x = torch.full((n * 1000 + 1,), float(rank() + step))
                dist.all_reduce(x, group=group)
                same(x, torch.full_like(x, sum(r + step for r in range(size()))))
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=work, args=(group, n)) for n, group in enumerate(groups)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert not wrong, wrong


class Numbers(torch.utils.data.Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, n):
        return torch.full((2,), float(n))


def test_data_loader():
    """Its workers are forked children, which end while the group is used."""
    for batch in torch.utils.data.DataLoader(Numbers(), batch_size=2, num_workers=2, multiprocessing_context="fork"):
        x = batch * (rank() + 1)
        dist.all_reduce(x)
        same(x, batch * sum(r + 1 for r in range(size())))


def sparse_of(r, sizes, sparse_dims, dtype, stored):
    """The tensor of rank r: some indices are those of other ranks, and some occur twice."""
    draw = torch.Generator().manual_seed(r)
    indices = torch.stack([torch.randint(n or 1, (stored,), generator=draw) for n in sizes[:sparse_dims]])
    values = torch.randint(2 if dtype == torch.bool else 4, (stored,) + tuple(sizes[sparse_dims:]), generator=draw).to(dtype)
    return torch.sparse_coo_tensor(indices, values, sizes)


def dense(x):
    """torch makes no dense tensors of bool and half if indices occur twice."""
    out = torch.zeros(x.shape, dtype=torch.cdouble if x.dtype in COMPLEX else torch.double)
    out.index_put_(tuple(x._indices()), x._values().to(out.dtype), accumulate=True)
    return out if x.dtype != torch.bool else (out > 0).double()


def test_sparse():
    for dtype in ALL:
        for sizes, sparse_dims in (((9,), 1), ((5, 3), 1), ((4, 3, 2), 2), ((3, 2, 2), 3), ((6, 0), 1), ((0, 3), 1)):
            for stored in (lambda r: r + 1, lambda r: 7 * (r % 2), lambda r: 0) if sizes[0] else (lambda r: 0,):
                all_of_them = [sparse_of(r, sizes, sparse_dims, dtype, stored(r)) for r in range(size())]
                x = all_of_them[rank()].clone()
                coll_torch._of(None).allreduce([x]).wait()            # dist. itself has no sparse complex numbers
                wanted = sum(dense(one) for one in all_of_them)
                same(dense(x), wanted if dtype != torch.bool else (wanted > 0).double(), (dtype, sizes))
                assert x.dtype == dtype and x.is_coalesced() and x.sparse_dim() == sparse_dims
                assert torch.equal(x._indices(), x.clone()._coalesced_(False).coalesce()._indices()), "in order"


def test_sparse_in_the_order_of_ranks():
    values = [(1e8, 1, -1e8, 3)[r] for r in range(size())]
    x = torch.sparse_coo_tensor([[4]], [values[rank()]], (5,), dtype=torch.float32)
    dist.all_reduce(x)
    same(x._values(), fold(torch.add, [torch.tensor([v], dtype=torch.float32) for v in values]))
    x = torch.sparse_coo_tensor([[4]], torch.tensor([1 + 2.0 ** -7 * (rank() > 0)], dtype=torch.bfloat16), (5,))
    dist.all_reduce(x)                            # rounded once
    same(x._values(), torch.tensor([size() + 2.0 ** -7 * (size() - 1)]).to(torch.bfloat16))


def test_sparse_among_others():
    """Collectives behind it keep their places, and messages do not wait for it."""
    after, before = (rank() + 1) % size(), (rank() - 1) % size()
    xs = [sparse_of(rank(), (50, 4), 1, torch.float64, 20) for _ in range(8)]
    ys = [torch.full((n + 1,), float(rank())) for n in range(8)]
    begun = []
    for x, y in zip(xs, ys):
        begun += [dist.all_reduce(x, async_op=True), dist.all_reduce(y, async_op=True)]
    for work in begun:
        work.wait()
    for x, y in zip(xs, ys):
        same(x.to_dense(), sum(dense(sparse_of(r, (50, 4), 1, torch.float64, 20)) for r in range(size())))
        same(y, torch.full_like(y, sum(range(size()))))
    early, got = rank() % 2 == 0, torch.zeros(1)  # half of the ranks begin it before the message without which the others do not
    work = dist.all_reduce(xs[0], async_op=True) if early else None
    dense_work = dist.all_reduce(ys[0], async_op=True) if early else None
    sent = dist.isend(torch.full((1,), float(rank())), after)
    dist.recv(got, before)
    same(got, torch.full((1,), float(before)))
    for one in (sent, work or dist.all_reduce(xs[0], async_op=True), dense_work or dist.all_reduce(ys[0], async_op=True)):
        one.wait()


def test_sparse_that_do_not_match():
    """All ranks report the same error, and the group continues."""
    odd = rank() == size() - 1
    for other, word in ((torch.sparse_coo_tensor([[0]], [1.0], (4,)), "[4] of Float"),
                        (torch.sparse_coo_tensor([[0]], [1], (3,)), "[3] of Long"),
                        (torch.sparse_coo_tensor([[0], [0]], [1.0], (3, 2)), "[3, 2] of Float")):
        told(lambda: dist.all_reduce(other if odd else torch.sparse_coo_tensor([[0]], [1.0], (3,))),
             "rank 0 is [3] of Float with 1 sparse and 0 dense", f"rank {size() - 1} is {word}")
    dist.barrier()
    group = dist.new_group()
    mixed = torch.ones(3) if odd else torch.ones(3).to_sparse()
    told(lambda: dist.all_reduce(mixed, group=group), "rank", "allgather", "allreduce")


def test_objects():
    root, mine = size() - 1, {"rank": rank(), "long": "x" * (1000 * rank())}
    everything = [{"rank": r, "long": "x" * (1000 * r)} for r in range(size())]
    got = [None] * size()
    dist.all_gather_object(got, mine)
    assert got == everything
    got = [None] * size() if rank() == root else None
    dist.gather_object(mine, got, root)
    assert got == (everything if rank() == root else None)
    got = [mine, rank()] if rank() == root else [None, None]
    dist.broadcast_object_list(got, root)
    assert got == [everything[root], root]
    got = [None]
    dist.scatter_object_list(got, everything if rank() == root else [None] * size(), root)
    assert got == [mine]


def test_groups():
    pairs = [dist.new_group([0, r]) for r in range(1, size())]
    for r, group in enumerate(pairs, 1):
        if rank() in (0, r):
            x = torch.full((2,), float(rank() + 1))
            dist.all_reduce(x, group=group)
            same(x, torch.full((2,), float(r + 2)))
            dist.destroy_process_group(group)
    x = torch.ones(1)
    dist.all_reduce(x)                            # the group of all is as before
    same(x, torch.full((1,), float(size())))
    turned = dist.new_group(list(reversed(range(size()))))
    x = torch.full((1,), float(rank()))
    dist.broadcast(x, size() - 1, group=turned)
    same(x, torch.full((1,), float(size() - 1)))
    alone = [dist.new_group([r]) for r in range(size())][rank()]
    dist.all_reduce(x, group=alone)
    dist.barrier(group=alone)


def told(call, *words):
    try:
        call()
    except (RuntimeError, ValueError) as error:
        for word in words:
            assert word in str(error), (word, str(error))
        return str(error)
    raise AssertionError(f"no exception that tells {words}")


def test_refused():
    """Before anything moves; the group is as before."""
    told(lambda: coll_torch._of(None).broadcast(torch.ones(2).to_sparse(), 0), "dense")
    told(lambda: coll_torch._of(None).allreduce(torch.ones(2, 2).to_sparse_csr()), "COO")
    told(lambda: dist.all_reduce(torch.ones(2).to_sparse(), dist.ReduceOp.MAX), "SUM alone")
    told(lambda: dist.all_gather([torch.ones(2)] * size(), torch.ones(3)), "equally large")
    told(lambda: dist.all_gather_single(torch.ones(3), torch.ones(2)), "times the 2 of a rank")
    told(lambda: coll_torch._of(None).alltoall([torch.ones(1)] * size(), [torch.ones(1, dtype=torch.int)] * size()), "one type")
    told(lambda: dist.all_gather([torch.ones(1)] * (size() + 1), torch.ones(1)), "a tensor for each")
    told(lambda: dist.all_reduce(torch.ones(2), dist.ReduceOp.BAND), "band")
    told(lambda: coll_torch._of(None).allreduce_wire(torch.ones(2), "f7"), 'no wire type "f7"')
    x = torch.ones(1)
    dist.all_reduce(x)
    same(x, torch.full((1,), float(size())))


def test_mismatch():
    group = dist.new_group()
    told(lambda: dist.all_reduce(torch.ones(1 + rank() % 2), group=group), "allreduce", "rank")
    told(lambda: dist.all_reduce(torch.ones(1), group=group), "allreduce", "rank")


def test_timeout():
    group = dist.new_group(timeout=datetime.timedelta(seconds=3))          # the ranks meet within it, too
    if rank() == 0:
        x = torch.ones(1)
        why = told(lambda: dist.all_reduce(x, group=group), "coll:all_reduce ended by a timeout - ", "no word from rank")
        assert 3 <= float(why.split(" in ")[1].split(" s ")[0]) < 10, why
    dist.barrier()
    work = dist.irecv(torch.zeros(1), (rank() + 1) % size())
    told(lambda: work.wait(datetime.timedelta(milliseconds=10)), "10 ms")
    dist.barrier()
    dist.send(torch.zeros(1), (rank() - 1) % size())
    work.wait()


def test_abort():
    group = dist.new_group()
    work = None if rank() == 0 else dist.all_reduce(torch.ones(1), group=group, async_op=True)
    dist.barrier()
    if rank() == 0:
        coll_torch.abort(group, "the loss is not a number")
    else:
        told(work.wait, "the loss is not a number")


def test_aborts_of_torch():
    """The group's own abort, from another thread, ends calls at once, and later ones; get_error tells it."""
    group = dist.new_group()
    back_end = coll_torch._of(group)
    assert back_end.get_error() == c10d.ErrorType.SUCCESS
    dist.barrier()
    began, work = time.monotonic(), dist.barrier(group=group, async_op=True) if rank() else None
    ender = threading.Timer(0.1, lambda: rank() == 0 and group.abort())
    ender.start()
    if rank():
        told(work.wait, "rank 0 has aborted the process group")
    ender.join()
    told(lambda: dist.all_reduce(torch.ones(1), group=group), "rank 0 has aborted the process group")
    assert time.monotonic() - began < 5
    assert back_end.get_error() == c10d.ErrorType.COMM_ERROR


def test_many_groups():
    """100 groups, one after the other: no descriptor and no thread is left."""
    def held():
        return len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task"))

    for n in range(100):
        group = dist.new_group()
        x = torch.ones(1)
        dist.all_reduce(x, group=group)
        same(x, torch.full((1,), float(size())))
        dist.destroy_process_group(group)
        del group
        if n == 10:
            before = held()
    dist.barrier()
    assert held() <= before, (before, held())
    store = dist.PrefixStore("dropped", dist.distributed_c10d._get_default_store())
    group = coll_torch.ProcessGroupColl(store, rank(), size(), datetime.timedelta(seconds=60))
    group.allreduce(torch.ones(1)).wait()
    assert held() > before
    del group                                     # without destroy or shutdown
    assert held() <= before, (before, held())


def test_monitored_barrier():
    coll_torch.monitored_barrier()
    late = size() - 1
    limit = datetime.timedelta(seconds=2)           # for all but the late one, which arrives when the others have ended
    if rank() == 0:
        told(lambda: coll_torch.monitored_barrier(timeout=limit, wait_all_ranks=True), f"Rank {late} failed to pass")
    elif rank() != late:
        told(lambda: coll_torch.monitored_barrier(timeout=limit), f"Rank {late} failed to pass")
    dist.barrier()


def test_pending_receive_ends_with_its_group():
    group = dist.new_group()
    work = coll_torch._of(group).recv([torch.zeros(1)], rank(), 0)      # of no rank that may leave sooner
    dist.destroy_process_group(group)
    del group
    told(work.wait, "destroyed")


def test_forked_child():
    """It cannot use the group, may drop it, and does not disturb its parent."""
    group = dist.new_group()
    child = os.fork()
    if child == 0:
        told(lambda: dist.all_reduce(torch.ones(1), group=group), "forked child")
        dist.destroy_process_group(group)         # not that of all: torch's store has a thread in the process that keeps it
        del group
        os._exit(7)
    assert os.WEXITSTATUS(os.waitpid(child, 0)[1]) == 7
    for which in (group, None):
        x = torch.ones(1)
        dist.all_reduce(x, group=which)
        same(x, torch.full((1,), float(size())))


class Small(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.net = torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.Tanh(), torch.nn.Linear(32, 1))

    def forward(self, x):
        return self.net(x)


def train(model, steps, data):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for _ in range(steps):
        optimizer.zero_grad()
        loss = ((model(data) - data.sum(1, keepdim=True).sin()) ** 2).mean()
        loss.backward()
        optimizer.step()
    return loss.item()


def data_of(r):
    return torch.randn(16, 8, generator=torch.Generator().manual_seed(r))


def weights(model):
    return torch.cat([p.detach().reshape(-1) for p in model.parameters()])


def equal_everywhere(x):
    first = x.clone()
    dist.broadcast(first, 0)
    same(x, first)


def test_ddp():
    """Training on the parts of a batch is training on the batch."""
    model = DistributedDataParallel(Small(), bucket_cap_mb=0.001)
    train(model, 20, data_of(rank()))
    alone = Small()
    train(alone, 20, torch.cat([data_of(r) for r in range(size())]))
    equal_everywhere(weights(model))
    assert torch.allclose(weights(model), weights(alone), atol=1e-5)


class Looked(torch.nn.Module):
    def __init__(self, sparse):
        super().__init__()
        torch.manual_seed(2)
        self.table, self.net = torch.nn.Embedding(40, 8, sparse=sparse), Small()

    def forward(self, rows):
        return self.net(self.table(rows))


def test_ddp_with_sparse_gradients():
    models = [DistributedDataParallel(Looked(True)), Looked(False), DistributedDataParallel(Looked(True))]
    models[2].register_comm_hook(coll_torch.Wire("bf16"), coll_torch.wire_hook)
    rows = [torch.randint(40, (16,), generator=torch.Generator().manual_seed(r)) for r in range(size())]
    for model, seen in zip(models, (rows[rank()], torch.cat(rows), rows[rank()])):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(10):
            optimizer.zero_grad()
            loss = ((model(seen) - seen.reshape(-1, 1) / 40) ** 2).mean()
            loss.backward()
            optimizer.step()
    assert models[0].module.table.weight.grad.is_sparse
    for model, close in ((models[0], 1e-5), (models[2], 1e-2)):
        equal_everywhere(weights(model))
        assert torch.allclose(weights(model), weights(models[1]), atol=close)


def test_zero_redundancy():
    """The state of the optimizer is divided among the ranks; the weights are as without."""
    from torch.distributed.optim import ZeroRedundancyOptimizer

    ends, states = [], []
    for divided in (False, True):
        model = DistributedDataParallel(Small())
        make = torch.optim.Adam if not divided else \
            lambda p, lr: ZeroRedundancyOptimizer(p, optimizer_class=torch.optim.Adam, lr=lr)
        optimizer = make(model.parameters(), lr=0.01)
        for _ in range(5):
            optimizer.zero_grad()
            model(data_of(rank())).square().mean().backward()
            optimizer.step()
        ends.append(weights(model))
        states.append(len((optimizer.optim if divided else optimizer).state))
    same(ends[0], ends[1])
    equal_everywhere(ends[1])
    assert states[1] < states[0] or size() == 1
    optimizer.consolidate_state_dict(0)
    if rank() == 0:
        assert len(optimizer.state_dict()["state"]) == states[0]


def test_ddp_over_a_wire():
    plain = DistributedDataParallel(Small())
    best = train(plain, 60, data_of(rank()))
    for settings in (dict(wire="bf16"), dict(wire="f16", stochastic=True), dict(wire="mxi8"),
                     dict(wire="mxf8e4m3", feedback=True), dict(wire="f8e5m2", feedback=True)):
        model = DistributedDataParallel(Small(), bucket_cap_mb=0.001)
        model.register_comm_hook(coll_torch.Wire(**settings), coll_torch.wire_hook)
        loss = train(model, 60, data_of(rank()))
        equal_everywhere(weights(model))
        assert abs(loss - best) < 0.1 * abs(best) + 0.02, (settings, loss, best)
        assert not torch.equal(weights(model), weights(plain)), settings
    x = torch.full((64,), 1 + 2.0 ** -9)          # what bf16 rounds to 1
    coll_torch._of(None).allreduce_wire(x, "bf16").wait()
    same(x, torch.full((64,), float(size())))


def watched_mismatch():
    """Under TORCH_DISTRIBUTED_DEBUG=DETAIL different calls are reported before they begin, and the group continues."""
    told(lambda: dist.all_reduce(torch.ones(1 + rank() % 2)), "Detected mismatch between collectives on ranks")
    x = torch.ones(1)
    told(lambda: dist.broadcast(x, 0) if rank() else dist.all_reduce(x), "OpType=BROADCAST", "OpType=ALLREDUCE")
    dist.all_reduce(x)
    same(x, torch.full((1,), float(size())))


def last_death():
    """The rank that dies is named; with it the group ends."""
    lost = size() - 1
    dist.barrier()
    if rank() == lost:
        os._exit(0)                               # not 1: the launcher would end the others
    told(lambda: dist.all_reduce(torch.ones(1)), f"rank {lost}")
    told(lambda: dist.all_reduce(torch.ones(1)), f"rank {lost}")


TESTS = {name: function for name, function in globals().items() if name.startswith(("test_", "last_", "watched_"))}


def main(tests):
    faulthandler.dump_traceback_later(200, exit=True)
    dist.init_process_group("coll", init_method=os.environ.get("RANKS_INIT"), rank=int(os.environ["RANK"]),
                            world_size=int(os.environ["WORLD_SIZE"]))
    for name in tests or [name for name in TESTS if not name.startswith(("last_", "watched_"))]:
        began = time.time()
        TESTS[name]()
        if not name.startswith("last_"):
            dist.barrier()
        if rank() == 0:
            print(f"ok - {name} on {size()} ranks, {time.time() - began:.1f} s", flush=True)
    dist.destroy_process_group()


def fork(count, tests):
    import torch._dynamo  # noqa: F401                  DistributedDataParallel imports it: once is enough
    with tempfile.TemporaryDirectory() as folder:
        children = []
        for r in range(count):
            child = os.fork()
            if child == 0:
                os.environ.update(RANK=str(r), WORLD_SIZE=str(count), RANKS_INIT=f"file://{folder}/store")
                status = 1
                try:
                    main(tests)
                    status = 0
                except BaseException:
                    traceback.print_exc()
                finally:
                    sys.stdout.flush()
                    os._exit(status)
            children.append(child)
        return max([os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) != 0 for child in children])


if __name__ == "__main__":
    if sys.argv[1:2] == ["--ranks"]:
        sys.exit(fork(int(sys.argv[2]), sys.argv[3:]))
    main(sys.argv[1:])
