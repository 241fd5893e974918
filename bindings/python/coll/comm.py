"""Communicators.  One text for all collectives: their rows of shapes (_abi.KINDS) describe their buffers."""
import ctypes
import sys
import threading
import warnings
from array import array
from typing import Any, Dict, List, Optional, Sequence, Tuple

from . import _abi, _interrupt, errors
from ._calls import Calls
from ._integers import fits, integers, store
from ._load import lib
from .buffers import _dtype, Buffer, Shape, look, numpy, size_of, type_of, writable
from .requests import Received, Request

IN_PLACE = ctypes.c_void_p(-1).value
RANK_NONE, COLOR_NONE, ANY_SOURCE, ANY_TAG = (_abi.COLL_RANK_NONE, _abi.COLL_COLOR_NONE, _abi.COLL_ANY_SOURCE, _abi.COLL_ANY_TAG)
KEPT = 256                                                      # calls that a communicator remembers

_ndarray = numpy.ndarray if numpy is not None else ()
_first = ctypes.c_char.from_buffer                              # of an array that is writable, contiguous and not empty
_address = ctypes.addressof


class Call:
    """A coll_call, what it points to, and what the caller gets."""
    __slots__ = ('struct', 'keep', 'returns', 'is_receive', 'errors', 'in_place', 'made')

    def __init__(self, number: int, root: int = 0):
        self.struct = _abi.coll_call(kind=number, root=fits(root, 'root'))
        self.keep: List[Any] = []
        self.returns: Any = None
        self.is_receive = False
        self.errors: List[BaseException] = []                   # of an operation of the program's own
        # For a call like it with another x: where in x it sends from and receives to, None for a pointer that stays; or, if it
        # is not in place, the shape of the new array, None for no result.
        self.in_place: Optional[Tuple[Optional[int], Optional[int]]] = None
        self.made: Any = False

    def list_of(self, kind: Any, numbers: Sequence[Any]) -> Any:
        made = (kind * max(len(numbers), 1))(*numbers) if issubclass(kind, ctypes.Structure) else \
            integers(numbers, 'number', kind)
        self.keep.append(made)
        return made

    def operation(self, op: Any) -> None:
        if isinstance(op, str) and op in _abi.OPS:
            self.struct.op = _abi.OPS[op]
        elif callable(op):
            self.struct.op = _abi.COLL_USER
            self.struct.fn = _user(op, self)
            self.keep.append(self.struct.fn)
        else:
            raise TypeError(f'there is no operation {op!r}; there are {", ".join(_abi.OPS)}, and functions (low, high)')

    def option(self, key: str, value: Any) -> None:
        struct = self.struct
        if key in _abi.FLAGS:
            struct.flags |= _abi.FLAGS[key] if value else 0
        elif key in ('wire', 'accumulate'):
            store(struct, key, type_of(value) if value is not None else 0)
        elif key in ('algorithm', 'name'):
            setattr(struct, key, value.encode() if value is not None else None)
        elif key in ('scale', 'seed', 'timeout_ms', 'not_commutative', 'first_leaf', 'leaves'):
            store(struct, key, value)
        elif key == 'residual':
            buffer = writable(value, None, 'residual')
            if buffer.type != _abi.COLL_F32:
                raise TypeError('residual must be an array of f32')
            struct.residual = ctypes.cast(buffer.address, ctypes.POINTER(ctypes.c_float))
            self.keep.append(buffer)
        else:
            raise TypeError(f'there is no option {key!r}; there are dtype, wire, accumulate, scale, seed, residual, algorithm, '
                            f'name, timeout_ms, not_commutative, first_leaf, leaves, {", ".join(_abi.FLAGS)}')

    def result(self) -> Any:
        if self.errors:
            raise self.errors[0]
        return self.returns.result() if isinstance(self.returns, (Buffer, _Results)) else self.returns


def _user(op: Any, call: Call) -> Any:
    """op(low, high) changes `high`, both arrays of some of the elements."""
    def fold(low: int, high: int, count: int, code: int, context: Any) -> None:
        try:
            length = count * size_of(code)
            sides = [memoryview((ctypes.c_char * length).from_address(at)).cast('B') for at in (low, high)]
            if numpy is not None:
                dtype = call.keep[0].array.dtype if isinstance(call.keep[0].array, numpy.ndarray) else _dtype(code)
                op(*(numpy.frombuffer(side, dtype) for side in sides))
            else:
                op(*sides)
        except BaseException as error:                          # it must not pass through C: the caller gets it
            call.errors.append(error)
    return _abi.coll_reduce_fn(fold)


def _product(shape: Shape) -> int:
    count = 1
    for length in shape:
        count *= length
    return count


class Comm(Calls):
    """Ranks that make collectives together; made by init, spawn, init_threads, and the methods below.

    Collectives are methods in four forms: allreduce gives a new array, allreduce_ works in place, iallreduce and iallreduce_
    give a Request.  Options of all of them:
        dtype               what the elements are, where the array cannot say it: "bf16", "f8e4m3", ... in unsigned integers
        name, algorithm, timeout_ms
    and of those that reduce:
        wire, accumulate    types in messages, and of sums
        scale, seed, residual, not_commutative
        deterministic, reproducible, saturate, stochastic, detect_overflow, round_twice     True or False
    One thread at a time uses a communicator.  `with comm:` frees it at the end."""

    def __init__(self, handle: Optional[int], keep: Any = None):
        self._handle: Optional[ctypes.c_void_p] = ctypes.c_void_p(handle)
        self.rank: int = lib.coll_rank(self._handle)
        self.size: int = lib.coll_size(self._handle)
        self._inside = 0                                        # calls in which the library may wait
        self._detached: List[Tuple[ctypes.c_void_p, Call]] = []
        self._plans: Dict[Any, Call] = {}
        self._graph = (0, 0)                                    # sources and destinations
        self._keep = keep
        self._ending = threading.Lock()                         # an abort must not meet the free of another thread
        _interrupt.live.add(self)

    def __repr__(self) -> str:
        return f'<coll.Comm rank {self.rank} of {self.size}{"" if self._handle else ", freed"}>'

    def __enter__(self) -> 'Comm':
        return self

    def __exit__(self, *_: Any) -> None:
        self.free()

    def __del__(self) -> None:
        if getattr(self, '_handle', None) is not None:
            warnings.warn(f'{self!r} was not freed', ResourceWarning, source=self)
            self.free()

    # ---- errors

    def _error(self, status: int) -> errors.Error:
        sentence = lib.coll_error(self._handle) or (lib.coll_error(None) if status == _abi.COLL_ERR_ARGUMENT else b'')
        return errors.error_of(status, sentence, self.rank, self.failed_ranks() if status < _abi.COLL_ERR_SYSTEM else ())

    def _check(self, status: int) -> int:
        if status < 0:
            raise self._error(status) if self._handle is not None else ValueError('this communicator was freed')
        return status

    def failed_ranks(self) -> Tuple[int, ...]:
        """The ranks known to have failed, the one that ended the communicator first."""
        ranks = (ctypes.c_int * self.size)()
        return tuple(ranks[:min(lib.coll_failed_ranks(self._handle, ranks, self.size), self.size)])

    # ---- the calls

    def _run(self, name: str, x: Any, out: Any, op: Any, root: int, send_counts: Any, recv_counts: Any, place: bool,
             options: dict) -> Any:
        key: Any = None
        if type(x) is _ndarray and out is None and send_counts is None and recv_counts is None and 'residual' not in options:
            key = (name, place, op, root, x.dtype, x.shape, *options.items()) if options else \
                (name, place, op, root, x.dtype, x.shape)
            try:
                call = self._plans.get(key)
                if call is not None:
                    return self._again(call, x)
            except (TypeError, ValueError, BufferError) as error:
                if isinstance(error, errors.Error):             # else x cannot be used in this way; the error says why
                    raise
        call = self._call(name, x, out, op, root, send_counts, recv_counts, place, options)
        self._do(call)
        result = call.result()
        if key is not None and (call.in_place or call.made is not False) and (op is None or type(op) is str):
            if len(self._plans) >= KEPT:
                self._plans.clear()
            call.keep.clear()
            call.returns = None
            self._plans[key] = call
        return result

    def _again(self, call: Call, x: Any) -> Any:
        """The same with another array.  Raises an exception if it is not writable, not contiguous, or empty."""
        at, struct, result = _address(_first(x)), call.struct, x
        if call.in_place:
            send, recv = call.in_place
            if send is not None:
                struct.send = at + send
            if recv is not None:
                struct.recv = at + recv
        else:
            struct.send = at
            result = None
            if call.made is not None:
                result = numpy.empty(call.made, x.dtype)
                struct.recv = _address(_first(result))
        self._inside += 1
        try:
            status = lib.coll_run(self._handle, struct)
        finally:
            self._inside -= 1
        if status < 0:
            self._check(status)
        return result

    def _do(self, call: Call) -> None:
        self._inside += 1
        try:
            status = lib.coll_run(self._handle, call.struct)
        finally:
            self._inside -= 1
        self._check(status)

    def _start(self, name: str, x: Any, out: Any, op: Any, root: int, send_counts: Any, recv_counts: Any, place: bool,
               options: dict) -> Request:
        is_prepared = options.pop('_prepare', False)
        return Request(self, self._call(name, x, out, op, root, send_counts, recv_counts, place, options, False), is_prepared)

    def prepare(self, name: str, /, *args: Any, **options: Any) -> Request:
        """Check and plan a call once, to start it many times: step = comm.prepare("allreduce_", x, op="avg"), and then
        step.restart().wait() in every step.  All ranks prepare in the same order."""
        return getattr(self, 'i' + name)(*args, _prepare=True, **options)

    def _call(self, name: str, x: Any, out: Any, op: Any, root: int, send_counts: Any, recv_counts: Any, place: bool,
              options: dict, may_wait: bool = True) -> Call:
        """The coll_call of any collective, by its row of shapes."""
        if self._handle is None:
            raise ValueError('this communicator was freed')
        kind = _abi.KINDS[name]
        call = Call(kind.number, root)
        dtype = options.pop('dtype', None)
        if name == 'barrier':
            pass
        elif name == 'allreduce_list':
            self._listed(call, x, out, place, dtype)
        elif kind.send.counts == 'typed':
            self._typed(call, kind, x, out, dtype)
        else:
            is_copied = name == 'broadcast' and not place
            if is_copied:                                       # in place in a copy
                x, place = self._copied(look(x, dtype), out, root), True
            lists = (send_counts, recv_counts) if kind.send.counts != 'recv_list' else (recv_counts, recv_counts)
            if 'list' in (kind.send.counts, kind.recv.counts) or kind.send.counts == 'recv_list':
                self._rows(call, name, kind, x, out, dtype, lists, place, may_wait)
            elif place:
                self._in_place(call, kind, writable(x, dtype, 'x') if self._writes(kind, root) else look(x, dtype))
                call.in_place = None if is_copied else call.in_place
            else:
                self._apart(call, name, kind, x, out, dtype)
        if op is not None:
            call.operation(op)
        for key, value in options.items():
            call.option(key, value)
        return call

    def _blocks(self, side: _abi.Side) -> int:
        return {'one': 1, 'ranks': self.size, 'sources': self._graph[0], 'destinations': self._graph[1]}[side.over]

    def _has(self, side: _abi.Side, root: int) -> bool:
        return side.who in ('all', 'later') or (side.who == 'root' and self.rank == root)

    def _writes(self, kind: _abi.Kind, root: int) -> bool:
        """Does this rank's buffer of a call in place become anything else?"""
        return self._has(kind.recv, root)

    def _copied(self, x: Buffer, out: Any, root: int) -> Buffer:
        made = x.empty(x.shape) if out is None else self._matching(writable(out, None, 'out'), x, x.shape)
        if self.rank == root:
            ctypes.memmove(made.address, x.address, x.count * size_of(x.type))
        made.is_number = x.is_number
        return made

    def _block_of(self, x: Buffer, side: _abi.Side, what: str) -> Shape:
        """The shape of one of the blocks of which x is made."""
        if side.over == 'one':
            return x.shape
        blocks = self._blocks(side)
        if not x.shape or x.shape[0] != blocks:
            raise ValueError(f'{what} has the shape {x.shape}, and needs ({blocks}, ...): a block for each of the {side.over}')
        return x.shape[1:]

    @staticmethod
    def _matching(out: Buffer, like: Buffer, shape: Shape) -> Buffer:
        if out.type != like.type:
            if size_of(out.type) != size_of(like.type) or like.type not in (_abi.COLL_BF16, _abi.COLL_F8E4M3, _abi.COLL_F8E5M2):
                raise TypeError(f'out has elements of type {lib.coll_type_name(out.type).decode()}, and the input of '
                                f'{lib.coll_type_name(like.type).decode()}')
            out.type = like.type
        if out.shape != shape:
            raise ValueError(f'out has the shape {out.shape}, and the result has {shape}')
        return out

    def _apart(self, call: Call, name: str, kind: _abi.Kind, x: Any, out: Any, dtype: Any) -> None:
        """A call that does not change its input, with blocks of equal length."""
        struct, root = call.struct, call.struct.root
        sends, receives = self._has(kind.send, root), self._has(kind.recv, root)
        if sends:
            given = look(x, dtype)
            block = self._block_of(given, kind.send, 'x')
        elif out is None:
            raise ValueError(f'rank {self.rank} has no input in this {name}: it needs out= to receive into')
        else:
            given = writable(out, dtype, 'out')
            block = self._block_of(given, kind.recv, 'out')
        struct.type, struct.count = given.type, _product(block)
        call.keep.append(given)
        if sends:
            struct.send = given.address
        shape = block if kind.recv.over == 'one' else (self._blocks(kind.recv), *block)
        if receives:
            if out is not None:
                result = self._matching(writable(out, None, 'out'), given, shape)
            else:
                result = given.empty(shape, zero=kind.recv.who == 'later')
                result.is_number = given.is_number and not shape
            struct.recv = result.address
            call.returns = result
            call.keep.append(result)
        if kind.recv.who != 'later' and sends:
            call.made = shape if receives else None

    def _in_place(self, call: Call, kind: _abi.Kind, x: Buffer) -> None:
        struct, root = call.struct, call.struct.root
        sends, receives = self._has(kind.send, root), self._has(kind.recv, root)
        many = kind.send if kind.send.over != 'one' else kind.recv
        whole = kind.in_place in ('start', 'aside') or (kind.in_place == 'block' and self._has(many, root))
        block = self._block_of(x, many, 'x') if whole else x.shape
        struct.type, struct.count = x.type, _product(block)
        if kind.in_place == 'start':                            # the result takes the place of this rank's block
            offset = self.rank * struct.count * size_of(x.type)
            call.in_place = (0, offset)
        elif kind.in_place == 'block' and many is kind.send and whole:
            call.in_place = (0, None)
            struct.recv = IN_PLACE
        elif receives:
            call.in_place = (None, 0)
            struct.send = IN_PLACE if sends else None
        else:
            call.in_place = (0, None)
        send, recv = call.in_place
        if send is not None:
            struct.send = x.address + send
        if recv is not None:
            struct.recv = x.address + recv
        call.keep.append(x)
        call.returns = x

    # ---- blocks of any lengths, in rows: x[i] for the first axis

    def _exchanged(self, name: str, counts: Any, rows: int, root: int, may_wait: bool) -> Any:
        """The counts of what this rank receives, from the ranks that send it."""
        if not may_wait:
            raise ValueError(f'i{name} needs the counts of what comes: it does not wait to ask for them')
        kind = _abi.KINDS[name]
        mine = rows if kind.send.over == 'one' else array('q', counts)
        came = array('q', bytes(8 * self._blocks(kind.recv))) if self._has(kind.recv, root) else None
        getattr(self, name[:-1])(mine, out=came, **({'root': root} if 'rooted' in kind.traits else {}))
        return came

    def _counted(self, call: Call, counts: Any, side: _abi.Side, row: Shape, total: Optional[int]) -> Any:
        """Counts of rows as counts of elements."""
        blocks = self._blocks(side)
        if counts is None or len(counts) != blocks:
            raise ValueError(f'counts must be {blocks} numbers, one for each of the {side.over}, not {counts}')
        if min(counts, default=0) < 0 or (total is not None and sum(counts) != total):
            raise ValueError(f'counts {list(counts)} must be 0 or more' + ('' if total is None else
                             f', and add up to the {total} rows of x'))
        return call.list_of(ctypes.c_size_t, [int(count) * _product(row) for count in counts])

    def _rows(self, call: Call, name: str, kind: _abi.Kind, x: Any, out: Any, dtype: Any, lists: Any, place: bool,
              may_wait: bool) -> None:
        struct, root, (sent, received) = call.struct, call.struct.root, lists
        sends, receives = self._has(kind.send, root), self._has(kind.recv, root)
        if not sends and not place and out is None:
            raise ValueError(f'rank {self.rank} has no input in this {name}: it needs out= to receive into')
        given = look(x, dtype) if sends or place else writable(out, dtype, 'out')
        if not given.shape:
            raise ValueError(f'{name} takes rows: an array of one axis or more')
        rows, row = given.shape[0], given.shape[1:]
        call.keep.append(given)
        struct.type = given.type
        if place:
            self._rows_in_place(call, kind, given, sent, received)
            call.returns = given
            return
        if kind.recv.counts == 'list' and received is None and (receives or may_wait):
            received = self._exchanged(name, sent, rows, root, may_wait)
        struct.send = given.address if sends else None
        if kind.send.counts == 'list' and sends:
            struct.send_counts = self._counted(call, sent, kind.send, row, rows)
        elif sends:
            struct.count = given.count
        if kind.recv.counts in ('list', 'own_recv') and receives:
            total = rows if kind.recv.counts == 'own_recv' else None
            struct.recv_counts = self._counted(call, received, kind.recv if total is None else kind.send, row, total)
        if not receives:
            return
        came = {'list': lambda: sum(received), 'own_recv': lambda: received[self.rank],
                'recv_count': lambda: sent[self.rank] if sends else rows}[kind.recv.counts]()
        result = given.empty((came, *row)) if out is None else self._matching(writable(out, dtype, 'out'), given, (came, *row))
        struct.recv, struct.recv_count = result.address, came * _product(row)
        call.keep.append(result)
        call.returns = result

    def _rows_in_place(self, call: Call, kind: _abi.Kind, x: Buffer, sent: Any, received: Any) -> None:
        struct, root, rows, row = call.struct, call.struct.root, x.shape[0], x.shape[1:]
        many = kind.send if kind.send.over != 'one' and kind.recv.over == 'one' else kind.recv
        if self._writes(kind, root):
            writable(x, None, 'x')
        if not self._has(many, root):                           # the block of a rank that is not the root
            struct.count = struct.recv_count = x.count
            setattr(struct, 'send' if many is kind.recv else 'recv', x.address)
            return
        counts = sent if kind.send.counts == 'list' and many is kind.send else received
        listed = self._counted(call, counts, many, row, rows)
        mine = int(counts[self.rank]) * _product(row) if many.over == 'ranks' else 0
        struct.count = struct.recv_count = mine
        if kind.in_place == 'start':
            struct.recv_counts = listed
            struct.send = x.address
            struct.recv = x.address + sum(listed[:self.rank]) * size_of(x.type)
        elif many is kind.send:
            struct.send_counts, struct.send, struct.recv = listed, x.address, IN_PLACE
        else:
            struct.recv_counts, struct.send, struct.recv = listed, IN_PLACE, x.address

    # ---- lists of arrays

    def _typed(self, call: Call, kind: _abi.Kind, x: Any, out: Any, dtype: Any) -> None:
        """Blocks that lie anywhere are one buffer that begins at the first of them, with offsets in bytes."""
        struct = call.struct
        for what, side, arrays in (('send', kind.send, x), ('recv', kind.recv, out)):
            blocks = self._blocks(side)
            if len(arrays) != blocks:
                raise ValueError(f'{"x" if what == "send" else "out"} has {len(arrays)} arrays, and needs {blocks}: one for '
                                 f'each of the {side.over}')
            given = [None if one is None else look(one, dtype) if what == 'send' else writable(one, dtype, 'out')
                     for one in arrays]
            base = min((one.address for one in given if one is not None and one.count), default=0)
            setattr(struct, what, base or None)
            setattr(struct, what + '_counts', call.list_of(ctypes.c_size_t, [one.count if one else 0 for one in given]))
            setattr(struct, what + '_offsets', call.list_of(ctypes.c_size_t, [one.address - base if one and one.count else 0
                                                                              for one in given]))
            setattr(struct, what + '_types', call.list_of(ctypes.c_int, [one.type if one else _abi.COLL_U8 for one in given]))
            call.keep.append(given)
        call.returns = out

    def _listed(self, call: Call, x: Any, out: Any, place: bool, dtype: Any) -> None:
        given = [writable(one, dtype, 'x') if place else look(one, dtype) for one in x]
        if place:
            results = given
        elif out is None:
            results = [one.empty(one.shape) for one in given]
            for one, made in zip(given, results):
                made.is_number = one.is_number
        else:
            results = [self._matching(writable(one, None, 'out'), like, like.shape) for one, like in zip(out, given)]
        call.struct.list = call.list_of(_abi.coll_list_item, [(one.address, made.address, one.count, one.type)
                                                           for one, made in zip(given, results)])
        call.struct.list_count = len(given)
        call.keep += [given, results]
        call.returns = x if place else out if out is not None else _Results(results)

    # ---- messages

    def _message(self, number: int, send: Any, recv: Any, peer: int, source: int, tag: int, options: dict) -> Call:
        call = Call(number)
        struct, dtype = call.struct, options.pop('dtype', None)
        if self._handle is None:
            raise ValueError('this communicator was freed')
        for what, array in (('send', send), ('recv', recv)):
            if array is not None:
                buffer = look(array, dtype) if what == 'send' else writable(array, dtype, 'x')
                if struct.type not in (0, buffer.type):
                    raise TypeError('what is sent and what is received must have one type')
                setattr(struct, what, buffer.address)
                struct.type = buffer.type
                setattr(struct, 'recv_count' if send is not None and what == 'recv' else 'count', buffer.count)
                call.keep.append(buffer)
        store(struct, 'peer', peer, 'rank')
        store(struct, 'source', source)
        store(struct, 'tag', tag)
        call.is_receive = recv is not None
        for key, value in options.items():
            call.option(key, value)
        return call

    def send(self, x: Any, dest: int, tag: int = 0, **options: Any) -> None:
        """Send x to a rank; returns when x may be used again.  Long messages wait for the receiver."""
        self._do(self._message(_abi.COLL_SEND, x, None, dest, 0, tag, options))

    def isend(self, x: Any, dest: int, tag: int = 0, **options: Any) -> Request:
        """send that does not wait."""
        return Request(self, self._message(_abi.COLL_SEND, x, None, dest, 0, tag, options))

    def recv(self, x: Any, source: int = ANY_SOURCE, tag: int = ANY_TAG, **options: Any) -> Received:
        """Fill x, or the beginning of it, with a message.  Returns its source, its tag, and the number of elements."""
        return self.irecv(x, source, tag, **options).wait()

    def irecv(self, x: Any, source: int = ANY_SOURCE, tag: int = ANY_TAG, **options: Any) -> Request:
        """recv that does not wait."""
        return Request(self, self._message(_abi.COLL_RECV, None, x, source, 0, tag, options))

    def sendrecv(self, x: Any, dest: int, out: Any, source: int, tag: int = 0, **options: Any) -> Received:
        """Send x and fill out at once, without deadlock in any pattern."""
        return self.isendrecv(x, dest, out, source, tag, **options).wait()

    def isendrecv(self, x: Any, dest: int, out: Any, source: int, tag: int = 0, **options: Any) -> Request:
        """sendrecv that does not wait."""
        return Request(self, self._message(_abi.COLL_SENDRECV, x, out, dest, source, tag, options))

    # ---- communicators

    def _waiting(self, function: Any, *arguments: Any) -> int:
        if self._handle is None:
            raise ValueError('this communicator was freed')
        self._inside += 1
        try:
            status = function(self._handle, *arguments)
        finally:
            self._inside -= 1
        return self._check(status)

    def _made(self, function: Any, *arguments: Any) -> 'Optional[Comm]':
        out = ctypes.c_void_p()
        self._waiting(function, *arguments, out)
        return type(self)(out.value, self._keep) if out.value else None

    def split(self, color: int, key: int = 0) -> 'Optional[Comm]':
        """The ranks that give the same color, ordered by key and then by rank.  COLOR_NONE: None for this rank."""
        return self._made(lib.coll_split, fits(color, 'color'), fits(key, 'key'))

    def split_host(self) -> 'Comm':
        """The ranks that share memory, or at least the host, with this one."""
        return self._made(lib.coll_split_host)  # type: ignore[return-value]

    def dup(self) -> 'Comm':
        """The same ranks again."""
        return self._made(lib.coll_dup)  # type: ignore[return-value]

    def create(self, ranks: Sequence[int], tag: int = 0) -> 'Comm':
        """The given ranks, in that order; called by these only."""
        return self._made(lib.coll_create, integers(ranks, 'rank'), len(ranks), fits(tag, 'tag'))  # type: ignore[return-value]

    def shrink(self) -> 'Comm':
        """After a failure: a communicator of the surviving ranks, in the same order.  PeerError: too few are left."""
        return self._made(lib.coll_shrink)  # type: ignore[return-value]

    def agree(self, flags: int) -> int:
        """The bitwise AND of the flags (0 to 2**64 - 1) of all ranks that have not failed, before or after a failure.  Then
        failed_ranks is the same on all of them.  PeerError: too few are left."""
        if not 0 <= flags < 1 << 64:
            raise ValueError(f'flags: {flags} is not in 0 to 2**64 - 1')
        all_flags = ctypes.c_uint64(flags)
        self._waiting(lib.coll_agree, ctypes.byref(all_flags))
        return all_flags.value

    def neighbors(self, sources: Sequence[int], destinations: Sequence[int]) -> None:
        """The graph of the neighbor calls: the ranks that this rank receives from and sends to.  Called by all ranks."""
        self._waiting(lib.coll_neighbors, integers(sources, 'source'), len(sources), integers(destinations, 'destination'),
                      len(destinations))
        self._graph = (len(sources), len(destinations))
        self._plans.clear()

    def abort(self, why: str = 'aborted by the program') -> None:
        """End the communicator, and all of the same init, on every rank, with AbortedError and this sentence."""
        self._end(why.encode())

    def _end(self, why: bytes) -> None:
        """abort, from any thread."""
        if self._ending.acquire(blocking=False):                # otherwise it is being freed, which ends it as well
            try:
                if self._handle is not None:
                    lib.coll_abort(self._handle, why)
            finally:
                self._ending.release()

    def free(self) -> None:
        """Leave.  Requests that are pending end with AbortedError."""
        handle, self._handle = self._handle, None
        if handle is None:
            return
        _interrupt.live.discard(self)
        with self._ending:
            lib.coll_free(handle)
        for request, _ in self._detached:
            lib.coll_request_free(request)
        self._detached.clear()
        self._plans.clear()
        if 'coll.aio' in sys.modules:
            sys.modules['coll.aio'].freed(self)

    def _sweep(self) -> None:
        """Free the requests that have finished and for which no call waits."""
        left = []
        for request, call in self._detached:
            if lib.coll_test(request) == _abi.COLL_PENDING:
                left.append((request, call))
            else:
                lib.coll_request_free(request)
        self._detached = left

    # ---- seeing

    def fileno(self) -> int:
        """A descriptor that becomes readable when something has ended; -1: nothing moves while the program computes."""
        return lib.coll_fd(self._handle)

    def progress(self) -> None:
        """Move all operations on without waiting."""
        self._check(lib.coll_progress(self._handle))

    def world_rank(self, rank: int) -> int:
        """What this rank is called in the communicator of init; RANK_NONE: there is no such rank."""
        return lib.coll_world_rank(self._handle, fits(rank, 'rank'))

    @property
    def local_rank(self) -> int:
        return lib.coll_local_rank(self._handle)

    @property
    def local_size(self) -> int:
        return lib.coll_local_size(self._handle)

    def explain(self, name: str, /, *args: Any, **options: Any) -> str:
        """Which way a call would go, and why: comm.explain("allreduce", x).  Sends nothing."""
        taken: List[Call] = []
        probe = Probe(self, taken)
        getattr(probe, name)(*args, **options)
        text = ctypes.create_string_buffer(1024)
        self._check(lib.coll_explain(self._handle, taken[0].struct, text, len(text)))
        return text.value.decode()

    def link_text(self) -> str:
        """The numbers by which algorithms are chosen, as a tuning file has them."""
        text = ctypes.create_string_buffer(1024)
        self._check(lib.coll_link_text(self._handle, text, len(text)))
        return text.value.decode()

    @property
    def overflows(self) -> int:
        """How many calls with detect_overflow=True had an infinity or a NaN in their result."""
        return lib.coll_overflows(self._handle)

    @property
    def traffic(self) -> Tuple[int, int]:
        """Bytes handed to and taken from the wire; 0 between threads."""
        sent, received = ctypes.c_uint64(), ctypes.c_uint64()
        lib.coll_traffic(self._handle, sent, received)
        return sent.value, received.value

    @property
    def sim_time(self) -> float:
        """Virtual seconds of a simulated world."""
        return lib.coll_sim_time(self._handle)

    def alloc(self, shape: Any, dtype: Any = 'f64') -> Any:
        """An array in memory that ranks of one host read and write in place.  It must not be used after free of the
        communicator of init, or its own free_array."""
        code = type_of(dtype)
        shape = (shape,) if isinstance(shape, int) else tuple(shape)
        length = max(_product(shape) * size_of(code), 1)
        at = lib.coll_alloc(self._handle, fits(length, 'bytes', ctypes.c_size_t))
        if not at:
            raise errors.error_of(_abi.COLL_ERR_MEMORY, lib.coll_error(self._handle), self.rank)
        if numpy is None:
            return memoryview((ctypes.c_char * length).from_address(at))
        held: Any = (ctypes.c_char * length).from_address(at)
        return numpy.frombuffer(held, _dtype(code), _product(shape)).reshape(shape)

    def free_array(self, x: Any) -> None:
        """Free memory of alloc.  No call may use it any more, and x must not be used again."""
        lib.coll_dealloc(self._handle, look(x).address)

    @property
    def mpi(self) -> Any:
        """The same communicator with the names of mpi4py (see coll.MPI)."""
        from . import MPI
        return MPI.Comm(self)


class _Results:
    def __init__(self, buffers: List[Buffer]):
        self.buffers = buffers

    def result(self) -> List[Any]:
        return [buffer.result() for buffer in self.buffers]


class Probe(Comm):
    """Takes calls and makes none."""
    def __init__(self, comm: Comm, taken: List[Call]):
        self._handle, self.rank, self.size, self._graph, self._inside = comm._handle, comm.rank, comm.size, comm._graph, 0
        self._taken = taken

    def _run(self, *arguments: Any) -> None:
        self._taken.append(self._call(*arguments, may_wait=False))  # type: ignore[misc]

    def __del__(self) -> None:
        pass
