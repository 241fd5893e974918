"""Calls that have been started: wait, test, or await them."""
import ctypes
from typing import Any, Generator, List, NamedTuple, Optional, Sequence, Tuple

from . import _abi
from ._load import lib


class Received(NamedTuple):
    """The result of a receive: its source, its tag, and the number of elements."""
    source: int
    tag: int
    count: int  # type: ignore[assignment]


class Request:
    """A started call.  It holds references to the arrays that the call uses; do not use them until it is finished."""
    __slots__ = ('_comm', '_handle', '_call', '_error', '_is_prepared', '__weakref__')

    def __init__(self, comm: Any, call: Any, is_prepared: bool = False):
        self._comm, self._call, self._error, self._is_prepared = comm, call, None, is_prepared
        self._handle: Optional[ctypes.c_void_p] = ctypes.c_void_p()
        start = lib.coll_prepare if is_prepared else lib.coll_start
        if comm._detached:
            comm._sweep()
        status = start(comm._handle, call.struct, self._handle)
        if status < 0:
            self._handle = None
            comm._check(status)

    def restart(self) -> 'Request':
        """Start a prepared call again.  Returns itself, to be waited for."""
        self._comm._check(lib.coll_restart(self._handle))
        return self

    def test(self) -> bool:
        """Move everything on, and say whether it is finished.  Raises what went wrong."""
        if self._handle is None:
            return self._is_over()
        status = lib.coll_test(self._handle)
        return status != _abi.COLL_PENDING and self._end(status)

    def wait(self) -> Any:
        """Wait until it is finished.  Returns what the blocking form returns; of a receive, a Received.  Raises what went
        wrong.  Ctrl-C works meanwhile."""
        if self._handle is not None:
            comm = self._comm
            comm._inside += 1
            try:
                status = lib.coll_wait(self._handle)
            finally:
                comm._inside -= 1
            self._end(status)
        self._is_over()
        return self._call.result()

    def __await__(self) -> Generator[Any, None, Any]:
        from .aio import finished
        if not self.test():
            yield from finished(self).__await__()
        return self.wait()

    def _is_over(self) -> bool:
        if self._error is not None:
            raise self._error
        return True

    def _end(self, status: int) -> bool:
        """It is finished: free it, and release the arrays, unless it can be started again."""
        if status < 0:
            self._error = self._comm._error(status)
        elif self._call.is_receive:
            got = [ctypes.c_int(), ctypes.c_int(), ctypes.c_size_t()]
            lib.coll_received(self._handle, *got)
            self._call.returns = Received(*(number.value for number in got))
        if not self._is_prepared or status < 0:
            self.free()
        return self._is_over()

    def free(self) -> None:
        """Free it.  An operation that still runs continues: the communicator keeps its arrays until it ends."""
        handle, self._handle = self._handle, None
        if handle is None:
            return
        comm = self._comm
        if comm._handle is not None and not self._is_prepared and lib.coll_test(handle) == _abi.COLL_PENDING:
            comm._detached.append((handle, self._call))
        else:
            lib.coll_request_free(handle)

    def __del__(self) -> None:
        if getattr(self, '_handle', None):
            self.free()


def _array_of(requests: Sequence[Request]) -> Any:
    return (ctypes.c_void_p * len(requests))(*(r._handle.value if r._handle else None for r in requests))


def wait_all(requests: Sequence[Request]) -> List[Any]:
    """Wait for all.  Returns their results; raises the first error."""
    return [request.wait() for request in requests]


def wait_any(requests: Sequence[Request]) -> Tuple[int, Any]:
    """Wait for a request that is not returned yet: its index in the list, and its result.  (-1, None): none is left."""
    index = ctypes.c_int(-1)
    comms = {request._comm for request in requests}
    for comm in comms:
        comm._inside += 1
    try:
        status = lib.coll_wait_any(len(requests), _array_of(requests), index)
    finally:
        for comm in comms:
            comm._inside -= 1
    if index.value < 0:
        if status < 0:
            raise next(iter(comms))._error(status)
        return -1, None
    request = requests[index.value]
    request._end(status)
    return index.value, request._call.result()
