"""Objects that can be arrays, without a copy, and those that are refused with a sentence before anything is sent."""
import array
import ctypes
import subprocess
import sys
import unittest

import numpy as np

import coll
from coll import buffers

try:
    import torch
except ImportError:
    torch = None


class Tensor:
    """A CPU tensor that supports only DLPack."""

    def __init__(self, x):
        self.x = x

    def __dlpack_device__(self):
        return (1, 0)

    def __dlpack__(self):
        return self.x.__dlpack__()


class Buffers(unittest.TestCase):
    def setUp(self):
        self.comms = coll.init_threads(1)
        self.comm = self.comms[0]
        self.addCleanup(self.comm.free)

    def refused(self, error, sentence, call, *args, **options):
        with self.assertRaisesRegex(error, sentence):
            call(*args, **options)
        self.assertEqual(self.comm.allreduce(1.0), 1.0)         # nothing was sent, all is as before

    def test_no_copy(self):
        for x in (np.arange(6.0).reshape(2, 3), array.array('d', [1, 2]), memoryview(bytearray(16)).cast('d'),
                  (ctypes.c_uint8 * 5)(), np.zeros((0, 3)), np.zeros(())):
            with self.subTest(type(x)):
                self.assertIs(self.comm.allreduce_(x), x)
        x = np.arange(4.0)
        tensor = Tensor(x)
        found = buffers.look(tensor)
        self.assertEqual((found.address, found.shape), (x.ctypes.data, (4,)))
        self.assertIs(self.comm.allreduce_(tensor), tensor)
        self.assertEqual(self.comm.allgather(tensor).shape, (1, 4))

    def test_numbers(self):
        self.assertEqual(self.comm.allreduce(7), 7)
        self.assertEqual(self.comm.allreduce(2.5), 2.5)
        self.assertEqual(self.comm.allreduce(1 + 2j), 1 + 2j)
        self.assertIs(self.comm.allreduce(True, 'land'), True)
        self.assertEqual(self.comm.broadcast(3), 3)
        self.assertEqual(self.comm.allgather(np.float32(2)).tolist(), [2.0])
        self.refused(ValueError, 'read-only', self.comm.allreduce_, 7)
        self.refused(ValueError, 'does not fit', self.comm.allreduce, 2 ** 63)

    def test_blobs(self):
        x = np.array([(1, 2, b'abc')], np.dtype('i4,f8,S3'))
        self.assertEqual(self.comm.allgather(x).tobytes(), x.tobytes())
        self.refused(coll.UnsupportedError, 'sum', self.comm.allreduce, x)
        self.assertEqual(bytes(self.comm.broadcast(b'text')), b'text')

    def test_refused(self):
        comm, x = self.comm, np.zeros((4, 4))
        frozen = np.zeros(3)
        frozen.flags.writeable = False
        self.refused(ValueError, 'not contiguous', comm.allreduce, x[:, 1])
        self.refused(ValueError, 'not contiguous', comm.allreduce_, x.T[1:])
        self.refused(ValueError, 'not contiguous', comm.allreduce, memoryview(bytearray(8))[::2])
        self.refused(ValueError, 'read-only', comm.allreduce_, frozen)
        self.refused(ValueError, 'read-only', comm.broadcast_, b'bytes')
        self.refused(ValueError, 'out is read-only', comm.allreduce, np.ones(3), out=frozen)
        self.assertEqual(comm.allreduce(frozen).tolist(), [0, 0, 0])
        self.refused(ValueError, r'out has the shape \(2,\), and the result has \(3,\)', comm.allreduce, np.ones(3),
                     out=np.ones(2))
        self.refused(TypeError, 'out has elements of type f32', comm.allreduce, np.ones(3), out=np.ones(3, 'f4'))
        self.refused(ValueError, r'needs \(1, ...\)', comm.reduce_scatter, np.ones(3))
        self.refused(ValueError, r'needs \(1, ...\)', comm.allgather_, np.ones(3))
        self.refused(ValueError, r'needs \(1, ...\)', comm.alltoall, np.ones((2, 2)))
        self.refused(ValueError, 'add up to the 3 rows', comm.alltoallv, np.ones(3), [2], [2])
        self.refused(ValueError, 'counts must be 1 numbers', comm.reduce_scatterv, np.ones(3), [1, 2])
        self.refused(ValueError, 'one axis or more', comm.allgatherv, np.ones(()))
        self.refused(ValueError, 'does not wait', comm.iallgatherv, np.ones(3))
        self.refused(TypeError, 'Python objects', comm.allreduce, np.array([object()]))
        self.refused(TypeError, 'byte order', comm.allreduce, np.ones(3, '>f4'))
        self.refused(TypeError, 'is no array', comm.allreduce, [1, 2])
        self.refused(TypeError, 'have no type here', comm.allreduce, memoryview(bytearray(8)).cast('P'))
        self.refused(TypeError, "there is no type 'bf17'", comm.allreduce, np.ones(3, 'u2'), dtype='bf17')
        self.refused(TypeError, 'has 2 bytes, and the elements of the array have 8', comm.allreduce, np.ones(3), dtype='bf16')
        self.refused(TypeError, "there is no operation 'add'", comm.allreduce, np.ones(3), 'add')
        self.refused(TypeError, "there is no option 'wires'", comm.allreduce, np.ones(3), wires='bf16')
        self.refused(coll.ArgumentError, 'root 4', comm.reduce, np.ones(3), root=4)
        self.refused(coll.UnsupportedError, 'band', comm.allreduce, np.ones(3), 'band')
        self.refused(TypeError, "there is no setting 'ranks'", coll.init, ranks=3)
        settings = coll.world._config({'background': True, 'shm_collectives': False})
        self.assertEqual((settings.background, settings.tcp.shm_collectives), (coll._abi.COLL_ON, coll._abi.COLL_OFF))
        self.refused(ValueError, '0 ranks', coll.init_threads, 0)

    def test_integers_that_are_too_long(self):
        """ctypes takes their low bits: 2^32 would be 0."""
        comm, x, far = self.comm, np.ones(1), 2 ** 32
        for what, call in (
                ('root', lambda: comm.broadcast_(x, far)), ('root', lambda: comm.gatherv(x, root=far)),
                ('tag', lambda: comm.isend(x, 0, far + 1)), ('tag', lambda: comm.irecv(x, 0, far + 1)),
                ('rank', lambda: comm.isend(x, far)), ('rank', lambda: comm.irecv(x, far)),
                ('source', lambda: comm.isendrecv(x, 0, x.copy(), far)),
                ('timeout_ms', lambda: comm.allreduce(x, timeout_ms=far + 50)), ('seed', lambda: comm.allreduce(x, seed=-1)),
                ('size', lambda: coll.init(size=far + 1)), ('liveness_timeout_ms', lambda: coll.init(liveness_timeout_ms=far)),
                ('lanes', lambda: coll.init(lanes=far + 1)), ('capacity', lambda: coll.init(sim={'capacity': far})),
                ('color', lambda: comm.split(far)), ('key', lambda: comm.split(0, far)),
                ('rank', lambda: comm.world_rank(far)), ('rank', lambda: comm.create([far])),
                ('tag', lambda: comm.create([0], far)), ('source', lambda: comm.neighbors([far], [])),
                ('destination', lambda: comm.neighbors([], [far]))):
            with self.subTest(what):
                self.refused(ValueError, f'{what}.*does not fit', call)
        self.assertEqual(comm.allreduce(1, timeout_ms=np.int64(1000)), 1)

    def test_freed(self):
        comm = coll.init_threads(1)[0]
        comm.free()
        comm.free()
        for call in (lambda: comm.allreduce(1), comm.dup, lambda: comm.send(1, 0), lambda: comm.iallreduce_(np.ones(3))):
            with self.assertRaisesRegex(ValueError, 'was freed'):
                call()

    def test_options(self):
        def rank(comm):
            x = np.full(64, 1 + comm.rank / 1000, 'f4')
            mixed = comm.allreduce(x, 'avg', wire='bf16')
            assert (mixed.view('u4') & 0xffff == 0).all(), mixed
            left = np.zeros(64, 'f4')
            comm.allreduce(x, wire='bf16', residual=left)
            assert left.any() == (comm.rank > 0)
            assert comm.allreduce(x, scale=2.0, name='x', algorithm='ring')[0] > 4
            assert comm.allreduce(x, deterministic=True, reproducible=True)[0] > 3
            big = np.full(4, 60000, 'f2')
            assert np.isinf(comm.allreduce(big, detect_overflow=True)).all() and comm.overflows == 1
            assert (comm.allreduce(big, saturate=True) == 65504).all()
            got = comm.allreduce(x, op=lambda low, high: np.minimum(low, high, out=high))
            assert (got == 1).all()
            assert 'ring' in comm.explain('allreduce', x, algorithm='ring') and 'latency=' in comm.link_text()
            held = comm.alloc((2, 3), 'f32')
            held[:] = comm.rank
            assert comm.allreduce_(held)[1, 2] == 3
            comm.free_array(held)
        coll.spawn(3, rank)

    def test_operation_that_raises(self):
        def wrong(low, high):
            raise KeyError('mine')

        def rank(comm):
            try:
                comm.allreduce(np.ones(3), op=wrong)
            except KeyError:
                return 1
            return 0
        self.assertGreater(sum(coll.spawn(2, rank)), 0)

    def test_without_numpy(self):
        text = '''
import sys
sys.modules['numpy'] = None
import array, coll
def rank(comm):
    x = array.array('i', [comm.rank, 1])
    assert comm.allreduce(x).tolist() == [1, 2]
    assert comm.allgather(x).tolist() == [[0, 1], [1, 1]]
    assert comm.allreduce(2.5) == 5.0
    comm.allreduce_(x, op=lambda low, high: None)
coll.spawn(2, rank)
'''
        done = subprocess.run([sys.executable, '-c', text], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)

    @unittest.skipIf(torch is None, 'torch is not installed')
    def test_torch(self):
        x = torch.ones(2, 3, dtype=torch.bfloat16)
        self.assertIs(self.comm.allreduce_(x), x)
        self.assertIsInstance(self.comm.allgather(x), torch.Tensor)
        with self.assertRaisesRegex(ValueError, 'not contiguous'):
            self.comm.allreduce(x.T)


if __name__ == '__main__':
    unittest.main()
