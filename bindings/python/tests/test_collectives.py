"""Every collective, for every type and operation, in place and not, on threads and processes of 1 to 5 ranks: bits."""
import sys
import unittest

import numpy as np

import coll
from support import COMPLEX, FLOATS, INTEGERS, OPS, folded, has, inputs, launched, storage

TYPES = INTEGERS + ('bool',) + FLOATS + COMPLEX


class Check:
    """The program of one rank, and its results."""

    def __init__(self, comm):
        self.comm, self.rank, self.size, self.count = comm, comm.rank, comm.size, 0

    def same(self, got, expected, what):
        expected = np.asarray(expected)
        assert isinstance(got, np.ndarray), (what, type(got))
        assert got.shape == expected.shape and got.dtype == expected.dtype, (what, got.shape, got.dtype, expected.shape)
        if got.dtype.kind == 'c':                               # the sign of a zero depends on the order of the factors
            got, expected = got + 0, expected + 0
        assert got.tobytes() == expected.tobytes(), f'{what} on rank {self.rank} of {self.size}: {got}, not {expected}'
        self.count += 1

    def every_form(self, name, x, expected, *args, in_place=None, result=None, has_result=True, **options):
        """allreduce, out=, iallreduce, twice as one that is remembered; allreduce_, iallreduce_ of a copy of in_place()."""
        comm, what = self.comm, (name, args, options)
        forms = [lambda: getattr(comm, name)(x, *args, **options), lambda: getattr(comm, 'i' + name)(x, *args, **options).wait()]
        kept = None if x is None else x.copy()
        for form in forms + forms[:1]:
            got = form()
            if has_result:
                self.same(got, expected, what)
            else:
                assert got is None, what
        out = np.empty_like(expected) if has_result else None
        got = getattr(comm, name)(x, *args, out=out, **options)
        assert got is out, what
        if has_result:
            self.same(out, expected, what)
        assert kept is None or kept.tobytes() == x.tobytes(), what
        if in_place is None:
            return
        for start in ('', 'i', ''):
            y = in_place()
            got = getattr(comm, start + name + '_')(y, *args, **options)
            got = got.wait() if start else got
            assert got is y, what
            self.same(result(y) if result else y, expected if has_result else in_place(), (what, 'in place'))

    # ---- one for each family

    def reductions(self, name, op):
        rank, size, root = self.rank, self.size, self.size - 1
        options = {'dtype': name} if name in ('bf16', 'f8e4m3', 'f8e5m2') else {}
        parts = [inputs(r, (2, 3), name, op) for r in range(size)]
        x = parts[rank].copy()
        total = folded(parts, name, op)
        self.every_form('allreduce', x, total, op, in_place=x.copy, **options)
        self.every_form('reduce', x, total, op, root, in_place=x.copy, has_result=rank == root, **options)
        if op != 'avg':
            self.every_form('scan', x, folded(parts[:rank + 1], name, op), op, in_place=x.copy, **options)
            before = folded(parts[:rank], name, op) if rank else np.zeros((2, 3), storage(name))
            got = self.comm.exscan(x, op, **options)
            self.same(got, before, ('exscan', op))
            self.same(self.comm.exscan_(x.copy(), op, **options), before if rank else x, ('exscan_', op))
        blocks = [inputs(r, (size, 2), name, op, 1) for r in range(size)]
        total = folded(blocks, name, op)
        self.every_form('reduce_scatter', blocks[rank], total[rank], op, in_place=blocks[rank].copy, result=lambda y: y[rank],
                        **options)
        counts = [r + 1 for r in range(size)]
        rows = [inputs(r, (sum(counts), 2), name, op, 2) for r in range(size)]
        mine = slice(sum(counts[:rank]), sum(counts[:rank + 1]))
        self.every_form('reduce_scatterv', rows[rank], folded(rows, name, op)[mine], counts, op, in_place=rows[rank].copy,
                        result=lambda y: y[mine], **options)
        lists = self.comm.allreduce_list([x, blocks[rank]], op, **options)
        self.same(lists[0], folded(parts, name, op), 'list')
        self.same(lists[1], folded(blocks, name, op), 'list')
        y = [x.copy(), blocks[rank].copy()]
        assert self.comm.allreduce_list_(y, op, **options) is y
        self.same(y[1], folded(blocks, name, op), 'list in place')

    def moves(self, name):
        rank, size, root = self.rank, self.size, self.size // 2
        options = {'dtype': name} if name in ('bf16', 'f8e4m3', 'f8e5m2') else {}
        parts = np.stack([inputs(r, (2, 3), name, 'sum', 3) for r in range(size)])
        x = parts[rank].copy()

        def whole():
            made = np.zeros_like(parts)
            made[rank] = x
            return made

        self.every_form('broadcast', x, parts[root], root, in_place=x.copy, **options)
        self.every_form('allgather', x, parts, in_place=whole, **options)
        self.every_form('gather', x, parts, root, in_place=whole if rank == root else x.copy, has_result=rank == root,
                        **options)
        got = self.comm.scatter(parts if rank == root else None, root, out=np.empty_like(x), **options)
        self.same(got, x, 'scatter')
        y = parts.copy() if rank == root else np.empty_like(x)
        self.same(self.comm.scatter_(y, root, **options), parts if rank == root else x, 'scatter_')
        out = np.stack([inputs(rank, (2,), name, 'sum', 10 + r) for r in range(size)])
        came = np.stack([inputs(r, (2,), name, 'sum', 10 + rank) for r in range(size)])
        self.every_form('alltoall', out, came, in_place=out.copy, **options)
        self.rows(name, options)
        self.neighbors(name, options)

    def rows(self, name, options):
        rank, size, root, comm = self.rank, self.size, 0, self.comm
        counts = [(r * 2) % 3 for r in range(size)]
        parts = [inputs(r, (counts[r], 2), name, 'sum', 4) for r in range(size)]
        x, all_rows = parts[rank], np.concatenate(parts)
        mine = slice(sum(counts[:rank]), sum(counts[:rank + 1]))

        def whole():
            made = np.zeros_like(all_rows)
            made[mine] = x
            return made

        self.every_form('allgatherv', x, all_rows, counts, in_place=whole, **options)
        self.same(comm.allgatherv(x, **options), all_rows, 'allgatherv that asks')
        self.every_form('gatherv', x, all_rows, counts, root, in_place=whole if rank == root else x.copy, has_result=rank == root,
                        **options)
        got = comm.gatherv(x, root=root, **options)
        assert (got is None) == (rank != root)
        got = comm.scatterv(all_rows if rank == root else None, counts if rank == root else None, root, out=np.empty_like(x),
                            **options)
        self.same(got, x, 'scatterv')
        y = all_rows.copy() if rank == root else np.empty_like(x)
        got = comm.scatterv_(y, counts if rank == root else None, root, **options)
        self.same(got, all_rows if rank == root else x, 'scatterv_')
        sent = [(rank + r) % 3 for r in range(size)]
        blocks = [[inputs(a, ((a + b) % 3, 2), name, 'sum', 20 + b) for b in range(size)] for a in range(size)]
        out, came = np.concatenate(blocks[rank]), np.concatenate([blocks[r][rank] for r in range(size)])
        self.every_form('alltoallv', out, came, sent, sent, **options)
        self.same(comm.alltoallv(out, sent, **options), came, 'alltoallv that asks')
        self.same(comm.alltoallv_(out.copy(), sent, **options), came, 'alltoallv_')      # as much comes as goes here
        lists = [np.empty_like(blocks[r][rank]) for r in range(size)]
        assert comm.alltoallw(blocks[rank], lists, **options) is lists
        for r in range(size):
            self.same(lists[r], blocks[r][rank], 'alltoallw')

    def neighbors(self, name, options):
        rank, size, comm = self.rank, self.size, self.comm
        sources, destinations = [(rank - 1) % size, (rank + 1) % size], [(rank + 1) % size, (rank - 1) % size]
        comm.neighbors(sources, destinations)
        parts = [inputs(r, (3,), name, 'sum', 5) for r in range(size)]
        self.every_form('neighbor_allgather', parts[rank], np.stack([parts[s] for s in sources]), **options)
        blocks = [np.stack([inputs(r, (2,), name, 'sum', 30 + i) for i in range(2)]) for r in range(size)]
        came = np.stack([blocks[sources[0]][0], blocks[sources[1]][1]])
        self.every_form('neighbor_alltoall', blocks[rank], came, **options)
        self.every_form('neighbor_allgatherv', parts[rank], np.concatenate([parts[s] for s in sources]), [3, 3], **options)
        self.same(comm.neighbor_allgatherv(parts[rank], **options), np.concatenate([parts[s] for s in sources]), 'asks')
        flat = np.concatenate([blocks[rank][0], blocks[rank][1][:1]])
        came = np.concatenate([blocks[sources[0]][0], blocks[sources[1]][1][:1]])
        self.every_form('neighbor_alltoallv', flat, came, [2, 1], [2, 1], **options)
        self.same(comm.neighbor_alltoallv(flat, [2, 1], **options), came, 'neighbor_alltoallv that asks')
        lists = [np.empty(2, storage(name)), np.empty(1, storage(name))]
        comm.neighbor_alltoallw([blocks[rank][0], blocks[rank][1][:1]], lists, **options)
        self.same(np.concatenate(lists), came, 'neighbor_alltoallw')

    def pairs(self):
        dtype = np.dtype([('value', 'f4'), ('index', 'i4')])
        x = np.array([(self.rank % 2, self.rank), (1, self.rank)], dtype)
        expected = np.array([(0, 0), (1, 0)], dtype)
        self.same(self.comm.allreduce(x, 'minloc'), expected, 'minloc')
        most = min(self.size - 1, 1)
        self.same(self.comm.allreduce(x, 'maxloc'), np.array([(most, most), (1, 0)], dtype), 'maxloc')

    def messages(self):
        comm, rank, size = self.comm, self.rank, self.size
        out = np.empty(4, 'i4')
        got = comm.sendrecv(np.full(3, rank, 'i4'), (rank + 1) % size, out, (rank - 1) % size, 7)
        assert got == ((rank - 1) % size, 7, 3) and (out[:3] == (rank - 1) % size).all(), got
        request = comm.isend(np.full(2, rank), (rank + 1) % size, 1)
        out = np.empty(2, int)
        assert comm.recv(out) == ((rank - 1) % size, 1, 2) and (out == (rank - 1) % size).all()
        request.wait()
        self.count += 2

    def everything(self, types):
        self.comm.barrier()
        self.comm.ibarrier().wait()
        for name in types:
            self.moves(name)
            for op in (*OPS, 'avg'):
                if has(name, op):
                    self.reductions(name, op)
                else:
                    try:
                        self.comm.allreduce(np.zeros(2, storage(name)), op, dtype=name)
                    except coll.UnsupportedError:
                        self.count += 1
                    else:
                        raise AssertionError(f'{op} of {name} must not be')
        self.pairs()
        self.messages()
        self.comm.barrier()
        return self.count


class Collectives(unittest.TestCase):
    def test_threads(self):
        for ranks in range(1, 6):
            with self.subTest(ranks=ranks):
                counts = coll.spawn(ranks, lambda comm: Check(comm).everything(TYPES))
                self.assertGreater(min(counts), 2000)

    def test_processes(self):
        for ranks in range(1, 6):
            with self.subTest(ranks=ranks):
                done = launched(ranks, __file__, '--rank', *(TYPES if ranks in (1, 3) else ('i32', 'bf16', 'f64')))
                self.assertEqual((done.returncode, done.stdout.count('checked')), (0, ranks), done.stdout + done.stderr)

    def test_split_communicators(self):
        def rank(comm):
            with comm.split(comm.rank % 2) as half:
                Check(half).everything(('f32',))
            with comm.create([3, 1], 5) if comm.rank in (1, 3) else _Nothing() as pair:
                if pair is not None:
                    assert pair.allreduce(comm.rank) == 4 and pair.world_rank(0) == 3
        coll.spawn(5, rank)

    def test_simulated(self):
        """One thread drives all ranks of a simulated world."""
        comms = coll.init_threads(3, transport='sim', sim={'latency': 1e-3})
        arrays = [np.full(4, comm.rank + 1.0) for comm in comms]
        requests = [comm.iallreduce_(x) for comm, x in zip(comms, arrays)]
        while not all([request.test() for request in requests]):
            pass
        self.assertEqual([x[0] for x in arrays], [6.0] * 3)
        self.assertGreater(comms[0].sim_time, 1e-3)
        for comm in comms:
            comm.free()


class _Nothing:
    def __enter__(self):
        return None

    def __exit__(self, *_):
        pass


if __name__ == '__main__':
    if sys.argv[1:2] == ['--rank']:
        with coll.init() as world:
            print('checked', Check(world).everything(sys.argv[2:]))
    else:
        unittest.main()
