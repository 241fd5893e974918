"""mpi4py's spelling: `from coll import MPI` in the place of `from mpi4py import MPI`, or comm.mpi of a communicator.

Upper-case methods take buffers, lower-case ones any objects, which are pickled: unpickling runs what the sender says, so ranks
must trust each other.  It is a view of its own because coll's lower-case names take arrays: comm.allreduce(x) and
comm.mpi.allreduce(object) differ.  As in MPI, shapes do not matter here, only counts; a buffer is an array, or
[array, type], [array, count, type], [array, counts, displacements, type], the latter for v forms.

Not here: windows, files, derived datatypes, intercommunicators, groups, Probe, Cancel, persistent and synchronous sends."""
import functools
import operator
import pickle
import time
from array import array as _array
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

from . import _abi, world
from .buffers import Buffer, look
from .comm import ANY_SOURCE, ANY_TAG, COLOR_NONE
from .comm import Comm as _Comm
from .requests import Received
from .requests import Request as _Request

SUM, PROD, MIN, MAX, BAND, BOR, BXOR, LAND, LOR, LXOR, MINLOC, MAXLOC, AVG = (
    'sum', 'prod', 'min', 'max', 'band', 'bor', 'bxor', 'land', 'lor', 'lxor', 'minloc', 'maxloc', 'avg')
BYTE = UNSIGNED_CHAR = UINT8_T = 'u8'
SIGNED_CHAR = INT8_T = CHAR = 'i8'
SHORT = INT16_T = 'i16'
UNSIGNED_SHORT = UINT16_T = 'u16'
INT = INT32_T = 'i32'
UNSIGNED = UINT32_T = 'u32'
LONG = LONG_LONG = INT64_T = 'i64'
UNSIGNED_LONG = UINT64_T = 'u64'
FLOAT, DOUBLE, C_BOOL = 'f32', 'f64', 'bool'
COMPLEX, DOUBLE_COMPLEX = 'c64', 'c128'
FLOAT_INT, DOUBLE_INT, TWOINT = 'f32_i32', 'f64_i32', 'i32_i32'
UNDEFINED = COLOR_NONE
PROC_NULL = -3
Wtime = time.perf_counter


class _InPlace:
    def __repr__(self) -> str:
        return 'MPI.IN_PLACE'


IN_PLACE = _InPlace()


def _minloc(a: Any, b: Any) -> Any:
    """Of (value, index): the smaller value; of equal values the smaller index."""
    return min(a, b) if a[0] == b[0] else a if a[0] < b[0] else b


def _maxloc(a: Any, b: Any) -> Any:
    return min(a, b) if a[0] == b[0] else a if a[0] > b[0] else b


_OBJECTS: Dict[str, Callable[[Any, Any], Any]] = {
    'sum': operator.add, 'prod': operator.mul, 'min': min, 'max': max, 'band': operator.and_, 'bor': operator.or_,
    'bxor': operator.xor, 'land': lambda a, b: bool(a) and bool(b), 'lor': lambda a, b: bool(a) or bool(b),
    'lxor': lambda a, b: bool(a) != bool(b), 'minloc': _minloc, 'maxloc': _maxloc, 'avg': operator.add}


def _folded(found: Sequence[Any], op: Any) -> Any:
    fold = _OBJECTS.get(op) if isinstance(op, str) else op
    if not callable(fold):
        raise TypeError(f'there is no operation {op!r}; there are {", ".join(_OBJECTS)}, and functions (low, high)')
    result = functools.reduce(fold, found)
    return result / len(found) if op == AVG else result


class Status:
    def __init__(self) -> None:
        self.received = Received(-1, -1, 0)

    def Get_source(self) -> int:
        return self.received.source

    def Get_tag(self) -> int:
        return self.received.tag

    def Get_count(self, datatype: Any = None) -> int:
        """In elements of the buffer."""
        return self.received.count

    source = property(Get_source)
    tag = property(Get_tag)
    count = property(Get_count)


class Request:
    """None: a message to or from PROC_NULL, which is over."""
    def __init__(self, request: Optional[_Request]):
        self.request = request

    def Wait(self, status: Optional[Status] = None) -> bool:
        got = self.request.wait() if self.request is not None else Received(PROC_NULL, ANY_TAG, 0)
        if status is not None and isinstance(got, Received):
            status.received = got
        return True

    def Test(self, status: Optional[Status] = None) -> bool:
        return (self.request is None or self.request.test()) and self.Wait(status)

    wait, test = Wait, Test

    @staticmethod
    def Waitall(requests: 'Sequence[Request]', statuses: Any = None) -> bool:
        return all([request.Wait() for request in requests])


def _spec(spec: Any) -> Tuple[Any, Any, Any, Any]:
    """array, counts or count, displacements, type"""
    if not isinstance(spec, (list, tuple)):
        return spec, None, None, None
    array, *rest = spec
    kind = rest.pop() if rest and (rest[-1] is None or isinstance(rest[-1], str)) else None
    if rest and isinstance(rest[0], tuple) and len(rest) == 1 and rest[0] and not isinstance(rest[0][0], int):
        rest = list(rest[0])
    return array, rest[0] if rest else None, rest[1] if len(rest) > 1 else None, kind


def _flat(spec: Any, blocks: Optional[int]) -> Tuple[Optional[Buffer], Any, Any]:
    """The buffer as `blocks` equal blocks, None: one vector; counts and displacements of a v form."""
    if spec is None:
        return None, None, None
    array, counts, places, kind = _spec(spec)
    seen = look(array, kind)
    length = seen.count
    if isinstance(counts, int):
        if not 0 <= counts <= length:
            raise ValueError(f'a count of {counts}, and the buffer has {length} elements')
        length, counts = counts, None
    shape: Tuple[int, ...] = (length,)
    if counts is not None:
        shape = (sum(counts),)
        most = sum(counts) if places is None else max((c + p for c, p in zip(counts, places)), default=0)
        if most > length or (places is not None and min(places, default=0) < 0):
            raise ValueError(f'counts {list(counts)} do not fit into a buffer of {length} elements')
    elif blocks is not None:
        if length % blocks:
            raise ValueError(f'{length} elements are not {blocks} equal blocks')
        shape = (blocks, length // blocks)
    return Buffer(seen.address, seen.type, shape, seen.readonly, seen, seen.array), counts, places


def _buffers(name: str, waits: bool) -> Callable[..., Any]:
    """The method for a collective of buffers."""
    kind = _abi.KINDS[name]
    reduces, rooted = 'reduces' in kind.traits, 'rooted' in kind.traits

    def call(self: 'Comm', *arguments: Any, **named: Any) -> Any:
        names = (['buf'] if kind.send.who == 'none' else ['sendbuf', 'recvbuf']) if name != 'barrier' else []
        names += ['recvcounts'] * (name == 'reduce_scatterv') + ['op'] * reduces + ['root'] * rooted
        if len(arguments) > len(names):
            raise TypeError(f'too many arguments: there are {", ".join(names)}')
        given: Dict[str, Any] = {'op': SUM, 'root': 0, 'recvcounts': None, **dict(zip(names, arguments)), **named}
        send, recv = given.get('sendbuf'), given.get('recvbuf', given.get('buf'))
        return self._collective(name, send, recv, given['op'] if reduces else None, given['root'], given['recvcounts'], waits)
    call.__doc__ = f'{name} of buffers, as in MPI' + ('.' if waits else '; gives a Request.')
    return call


class Comm:
    """A view of a coll.Comm, which is `coll`."""

    def __init__(self, comm: _Comm):
        self.coll = comm

    rank = property(lambda self: self.coll.rank)
    size = property(lambda self: self.coll.size)

    def Get_rank(self) -> int:
        return self.coll.rank

    def Get_size(self) -> int:
        return self.coll.size

    def Split(self, color: int = 0, key: int = 0) -> 'Optional[Comm]':
        made = self.coll.split(color, key)
        return Comm(made) if made else None

    def Dup(self) -> 'Comm':
        return Comm(self.coll.dup())

    def Free(self) -> None:
        self.coll.free()

    def Abort(self, errorcode: int = 0) -> None:
        self.coll.abort(f'MPI.Abort({errorcode}) on rank {self.rank}')

    # ---- buffers

    def _collective(self, name: str, send: Any, recv: Any, op: Any, root: int, counts: Any, waits: bool) -> Any:
        comm, kind = self.coll, _abi.KINDS[name]
        place = send is IN_PLACE or recv is IN_PLACE or kind.send.who == 'none'
        if not comm._has(kind.send, root):
            send = None
        if not comm._has(kind.recv, root):
            recv = None
        blocks = [comm._blocks(side) if side.over != 'one' and side.counts == 'count' else None
                  for side in (kind.send, kind.recv)]
        mine = None if send is IN_PLACE else _flat(send, blocks[0])
        other = None if recv is IN_PLACE else _flat(recv, blocks[1] if name != 'reduce_scatter' or not place else blocks[0])
        x, sent, sent_at = mine or (None, None, None)
        out, received, received_at = other or (None, None, None)
        if place and x is None:
            x, out = out, None
        elif place:
            out = None
        if counts is not None:                                  # of Reduce_scatter
            received = counts
        elif name == 'reduce_scatterv':
            raise TypeError('Reduce_scatter needs recvcounts')
        call = comm._call(name, x, out, op, root, sent, received, place, {}, False)
        for what, places in (('send_offsets', sent_at), ('recv_offsets', received_at)):
            if places is not None:
                setattr(call.struct, what, call.list_of(_abi.c_size_t, list(places)))
        if not waits:
            return Request(_Request(comm, call))
        comm._do(call)
        call.result()
        return None

    def Send(self, buf: Any, dest: int, tag: int = 0) -> None:
        self.Isend(buf, dest, tag).Wait()

    def Isend(self, buf: Any, dest: int, tag: int = 0) -> Request:
        return Request(self.coll.isend(_flat(buf, None)[0], dest, tag) if dest != PROC_NULL else None)

    def Recv(self, buf: Any, source: int = ANY_SOURCE, tag: int = ANY_TAG, status: Optional[Status] = None) -> None:
        self.Irecv(buf, source, tag).Wait(status)

    def Irecv(self, buf: Any, source: int = ANY_SOURCE, tag: int = ANY_TAG) -> Request:
        return Request(self.coll.irecv(_flat(buf, None)[0], source, tag) if source != PROC_NULL else None)

    def Sendrecv(self, sendbuf: Any, dest: int, sendtag: int = 0, recvbuf: Any = None, source: int = ANY_SOURCE,
                 recvtag: Optional[int] = None, status: Optional[Status] = None) -> None:
        received = self.Irecv(recvbuf, source, ANY_TAG if recvtag is None else recvtag)
        self.Isend(sendbuf, dest, sendtag).Wait()
        received.Wait(status)

    # ---- objects

    def barrier(self) -> None:
        self.coll.barrier()

    def bcast(self, obj: Any, root: int = 0) -> Any:
        text = pickle.dumps(obj) if self.rank == root else b''
        length = self.coll.broadcast(len(text), root)
        space = bytearray(text if self.rank == root else length)
        self.coll.broadcast_(space, root)
        return obj if self.rank == root else pickle.loads(space)

    def _joined(self, lengths: Sequence[int], text: Any) -> List[Any]:
        view, found, at = memoryview(text), [], 0
        for length in lengths:
            found.append(pickle.loads(view[at:at + length]))
            at += length
        return found

    def gather(self, sendobj: Any, root: int = 0) -> Optional[List[Any]]:
        text = pickle.dumps(sendobj)
        lengths = self.coll.gather(len(text), root)
        if self.rank != root:
            self.coll.gatherv(text, [], root)
            return None
        space = bytearray(sum(lengths))
        self.coll.gatherv(text, [int(n) for n in lengths], root, out=space)
        return self._joined(lengths, space)

    def scatter(self, sendobj: Optional[Sequence[Any]], root: int = 0) -> Any:
        texts = [pickle.dumps(one) for one in sendobj] if self.rank == root and sendobj is not None else []
        if self.rank == root and len(texts) != self.size:
            raise ValueError(f'scatter needs {self.size} objects, and got {len(texts)}')
        lengths = [len(text) for text in texts]
        mine = _array('q', [0])
        self._collective('scatter', _array('q', lengths) if texts else None, mine, None, root, None, True)
        space = bytearray(mine[0])
        self.coll.scatterv(b''.join(texts) if texts else None, lengths if texts else None, root, out=space)
        return pickle.loads(space)

    def allgather(self, sendobj: Any) -> List[Any]:
        text = pickle.dumps(sendobj)
        lengths = self.coll.allgather(len(text))
        space = bytearray(sum(lengths))
        self.coll.allgatherv(text, [int(n) for n in lengths], out=space)
        return self._joined(lengths, space)

    def alltoall(self, sendobj: Sequence[Any]) -> List[Any]:
        texts = [pickle.dumps(one) for one in sendobj]
        lengths = [len(text) for text in texts]
        came = [int(n) for n in self.coll.alltoall(_array('q', lengths))]
        space = bytearray(sum(came))
        self.coll.alltoallv(b''.join(texts), lengths, came, out=space)
        return self._joined(came, space)

    def reduce(self, sendobj: Any, op: Any = SUM, root: int = 0) -> Any:
        found = self.gather(sendobj, root)
        return _folded(found, op) if found is not None else None

    def allreduce(self, sendobj: Any, op: Any = SUM) -> Any:
        return _folded(self.allgather(sendobj), op)

    def send(self, obj: Any, dest: int, tag: int = 0) -> None:
        """As two messages: the length, and the bytes."""
        if dest == PROC_NULL:
            return
        text = pickle.dumps(obj)
        self.coll.send(len(text), dest, tag)
        self.coll.send(text, dest, tag)

    def recv(self, buf: Any = None, source: int = ANY_SOURCE, tag: int = ANY_TAG, status: Optional[Status] = None) -> Any:
        if source == PROC_NULL:
            Request(None).Wait(status)
            return None
        length = _array('q', [0])
        got = self.coll.recv(length, source, tag)
        space = bytearray(length[0])
        self.coll.recv(space, got.source, got.tag)
        if status is not None:
            status.received = Received(got.source, got.tag, length[0])
        return pickle.loads(space)


for _upper, _name in {
        'Barrier': 'barrier', 'Bcast': 'broadcast', 'Reduce': 'reduce', 'Allreduce': 'allreduce',
        'Reduce_scatter_block': 'reduce_scatter', 'Reduce_scatter': 'reduce_scatterv', 'Scan': 'scan', 'Exscan': 'exscan',
        'Gather': 'gather', 'Gatherv': 'gatherv', 'Scatter': 'scatter', 'Scatterv': 'scatterv', 'Allgather': 'allgather',
        'Allgatherv': 'allgatherv', 'Alltoall': 'alltoall', 'Alltoallv': 'alltoallv'}.items():
    setattr(Comm, _upper, _buffers(_name, True))
    setattr(Comm, 'I' + _upper.lower(), _buffers(_name, False))

_world: List[Comm] = []


def __getattr__(name: str) -> Any:
    """COMM_WORLD is made at its first use, as by coll.init()."""
    if name != 'COMM_WORLD':
        raise AttributeError(name)
    if not _world:
        _world.append(Comm(world.init()))
    return _world[0]
