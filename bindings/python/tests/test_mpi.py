"""mpi4py's spelling."""
import sys
import unittest

import numpy as np

import coll
from coll import MPI
from support import launched


def objects(comm):
    mpi, rank, size = comm.mpi, comm.rank, comm.size
    root = size - 1
    assert mpi.allreduce(rank) == size * (size - 1) // 2 and mpi.allreduce([rank]) == list(range(size))
    assert mpi.allreduce(rank, MPI.MAX) == size - 1
    assert mpi.allreduce((-rank % size, rank), MPI.MAXLOC) == ((size - 1, 1) if size > 1 else (0, 0))
    assert mpi.allreduce((rank // 2, rank), MPI.MINLOC) == (0, 0)
    assert mpi.allreduce((1, rank + 1), MPI.MAXLOC) == mpi.allreduce((1, rank + 1), MPI.MINLOC) == (1, 1)
    assert mpi.reduce(float(rank), MPI.AVG, root) == ((size - 1) / 2 if rank == root else None)
    assert mpi.bcast({'from': rank}, root) == {'from': root}
    assert mpi.gather((rank,), root) == ([(r,) for r in range(size)] if rank == root else None)
    assert mpi.reduce(str(rank), root=root) == (''.join(map(str, range(size))) if rank == root else None)
    assert mpi.scatter([str(r) * r for r in range(size)] if rank == root else None, root) == str(rank) * rank
    assert mpi.allgather(None if rank else 'x') == ['x'] + [None] * (size - 1)
    assert mpi.alltoall([(rank, r) for r in range(size)]) == [(r, rank) for r in range(size)]
    if size > 1 and rank < 2:
        status = MPI.Status()
        if rank == 0:
            mpi.send([1, 2], 1, 5)
        else:
            assert mpi.recv(source=MPI.ANY_SOURCE, tag=5, status=status) == [1, 2] and status.Get_source() == 0


def buffers(comm):
    mpi, rank, size = comm.mpi, comm.rank, comm.size
    root, x, y = size - 1, np.full((2, 2), float(rank)), np.empty(4)
    mpi.Allreduce(x, y, op=MPI.SUM)                             # shapes do not matter
    assert (y == size * (size - 1) / 2).all()
    mpi.Allreduce(MPI.IN_PLACE, x)
    assert (x.ravel() == y).all()
    mpi.Reduce([np.full(3, rank, 'i4'), MPI.INT], y.view('i4')[:3] if rank == root else None, MPI.MAX, root)
    if rank == root:
        assert (y.view('i4')[:3] == size - 1).all()
    mpi.Bcast([y, 2, MPI.DOUBLE], root)
    every = np.empty(2 * size)
    mpi.Allgather(np.full(2, float(rank)), every)
    assert (every == np.repeat(np.arange(size), 2)).all()
    every[:] = -1
    every[2 * rank:2 * rank + 2] = rank
    mpi.Allgather(MPI.IN_PLACE, every)
    assert (every == np.repeat(np.arange(size), 2)).all()
    mpi.Gather(np.full(2, float(rank)), every if rank == root else None, root)
    one = np.empty(2)
    mpi.Scatter(np.arange(2.0 * size) if rank == root else None, one, root)
    assert (one == [2 * rank, 2 * rank + 1]).all()
    holes, counts, places = np.full(3 * size, -1.0), [2] * size, [3 * r for r in range(size)]
    mpi.Allgatherv(np.full(2, float(rank)), [holes, counts, places, MPI.DOUBLE])
    assert (holes.reshape(size, 3) == [[r, r, -1] for r in range(size)]).all()
    mpi.Gatherv(np.full(2, float(rank)), [holes, (counts, places)] if rank == root else None, root)
    mpi.Scatterv([holes, counts, places, MPI.DOUBLE] if rank == root else None, one, root)
    assert (one == rank).all()
    back = np.full(3 * size, -1.0)
    mpi.Alltoallv([holes, counts, places, MPI.DOUBLE], [back, counts, places, MPI.DOUBLE])
    assert (back.reshape(size, 3)[:, :2] == rank).all()
    mpi.Alltoall(np.arange(float(size)), np.empty(size))
    mpi.Reduce_scatter_block(np.arange(2.0 * size), one)
    assert (one == size * np.arange(2 * rank, 2 * rank + 2)).all()
    some = np.empty(rank + 1)
    mpi.Reduce_scatter(np.ones(size * (size + 1) // 2), some, [r + 1 for r in range(size)])
    assert (some == size).all()
    mpi.Scan(np.ones(1), one[:1])
    assert one[0] == rank + 1
    mpi.Exscan(np.ones(1), one[:1])
    assert one[0] == (rank if rank else 1)
    request = mpi.Iallreduce(MPI.IN_PLACE, one)
    MPI.Request.Waitall([request, mpi.Ibarrier()])
    status = MPI.Status()
    mpi.Sendrecv(np.array([rank]), (rank + 1) % size, 3, got := np.empty(2, int), (rank - 1) % size, 3, status)
    assert (got[0], status.Get_count(), status.Get_tag()) == ((rank - 1) % size, 1, 3)
    no_rank(mpi)
    half = mpi.Split(rank % 2, -rank)
    assert half.Get_rank() == len(range(rank % 2, size, 2)) - 1 - rank // 2
    half.Free()


def no_rank(mpi):
    """MPI.PROC_NULL: nothing is sent, nothing is received, and the buffer stays."""
    box, status = np.array([7]), MPI.Status()
    mpi.Send(box, MPI.PROC_NULL, 3)
    mpi.send('x', MPI.PROC_NULL)
    mpi.Recv(box, MPI.PROC_NULL, 3, status)
    expected = (MPI.PROC_NULL, MPI.ANY_TAG, 0)
    assert (status.Get_source(), status.Get_tag(), status.Get_count(), box[0]) == (*expected, 7)
    status = MPI.Status()
    assert mpi.recv(source=MPI.PROC_NULL, status=status) is None and status.Get_source() == MPI.PROC_NULL
    requests = [mpi.Isend(box, MPI.PROC_NULL), mpi.Irecv(box, MPI.PROC_NULL)]
    assert requests[0].Test() and MPI.Request.Waitall(requests)
    before = mpi.rank - 1 if mpi.rank else MPI.PROC_NULL        # a chain that does not close
    after = mpi.rank + 1 if mpi.rank + 1 < mpi.size else MPI.PROC_NULL
    mpi.Sendrecv(np.array([mpi.rank]), after, 4, box, before, 4, status)
    assert (box[0], status.Get_source()) == ((before, before) if mpi.rank else (7, MPI.PROC_NULL))


class Mpi(unittest.TestCase):
    def test_threads(self):
        for ranks in range(1, 5):
            with self.subTest(ranks=ranks):
                coll.spawn(ranks, objects)
                coll.spawn(ranks, buffers)

    def test_world(self):
        done = launched(3, __file__, '--rank')
        self.assertEqual((done.returncode, done.stdout.count('good')), (0, 3), done.stderr)

    def test_refused(self):
        with coll.init_threads(1)[0] as comm:
            with self.assertRaisesRegex(ValueError, 'not 1 equal blocks|needs|result has'):
                comm.mpi.Allgather(np.ones(3), np.ones(2))
            with self.assertRaisesRegex(ValueError, 'do not fit'):
                comm.mpi.Allgatherv(np.ones(3), [np.ones(3), [3], [1], MPI.DOUBLE])
            with self.assertRaisesRegex(ValueError, 'a count of 4'):
                comm.mpi.Bcast([np.ones(3), 4, MPI.DOUBLE])
            with self.assertRaisesRegex(ValueError, 'a count of -1'):
                comm.mpi.Bcast([np.ones(3), -1, MPI.DOUBLE])
            with self.assertRaisesRegex(TypeError, "no operation 'most'"):
                comm.mpi.allreduce(1, 'most')
            with self.assertRaisesRegex(TypeError, 'too many arguments'):
                comm.mpi.Barrier(1)


if __name__ == '__main__':
    if sys.argv[1:2] == ['--rank']:
        world = MPI.COMM_WORLD
        assert world is MPI.COMM_WORLD
        objects(world.coll)
        buffers(world.coll)
        print('good')
    else:
        unittest.main()
