"""await for requests: an event loop watches the descriptor of coll_fd, and one call returns the requests that have ended.

Where nothing moves by itself (between threads, and with COLL_BACKGROUND=off) there is no descriptor, and the loop looks again
after a millisecond."""
import asyncio
import ctypes
import weakref
from typing import Any, List, Optional, Tuple

from . import _abi
from ._load import lib
from .requests import Request

EVERY_S = 0.001


class _Watcher:
    """The requests of one coll_init that an event loop waits for.  The loop owns it, while it listens."""

    def __init__(self, loop: asyncio.AbstractEventLoop, fd: int):
        self.loop, self.fd = loop, fd
        self.waiting: List[Optional[Tuple[Request, 'asyncio.Future[None]']]] = []
        self.handles = (ctypes.c_void_p * 16)()
        self.free: List[int] = []                               # places in both
        self.index = ctypes.c_int()
        self.timer: Optional[asyncio.TimerHandle] = None

    def add(self, request: Request) -> 'asyncio.Future[None]':
        future: 'asyncio.Future[None]' = self.loop.create_future()
        if len(self.waiting) == len(self.free):                 # the first
            self.listen()
        if self.free:
            at = self.free.pop()
            self.waiting[at] = (request, future)
        else:
            at = len(self.waiting)
            self.waiting.append((request, future))
        if at == len(self.handles):
            self.handles = (ctypes.c_void_p * (2 * at))(*self.handles)
        assert request._handle is not None
        self.handles[at] = request._handle.value
        return future

    def listen(self) -> None:
        if self.fd >= 0:
            self.loop.add_reader(self.fd, self.look)
            self.loop.call_soon(self.look)                      # for what has ended meanwhile
        else:
            self.timer = self.loop.call_later(EVERY_S, self.look)

    def look(self) -> None:
        """Hand out all that have ended."""
        first = next((row for row in self.waiting if row), None)
        if first and first[0]._comm._handle is not None:
            lib.coll_progress(first[0]._comm._handle)           # which makes the descriptor unreadable again
        while True:
            status = lib.coll_test_any(len(self.waiting), self.handles, self.index)
            at = self.index.value
            if at < 0:
                break
            self.end(at, status)
        if status != _abi.COLL_PENDING:                         # the rest was returned elsewhere, or cannot be queried
            for at, row in enumerate(self.waiting):
                if row and (row[0]._handle is None or lib.coll_test(row[0]._handle) != _abi.COLL_PENDING):
                    self.end(at, None)
        if len(self.waiting) == len(self.free):
            self.stop()
        elif self.fd < 0:
            self.timer = self.loop.call_later(EVERY_S, self.look)

    def end(self, at: int, status: Optional[int]) -> None:
        row, self.waiting[at], self.handles[at] = self.waiting[at], None, None
        self.free.append(at)
        assert row is not None
        request, future = row
        if status is not None and request._handle is not None:
            try:
                request._end(status)
            except Exception:                                   # Request.wait raises it, in the task that awaits
                pass
        if not future.done():
            future.set_result(None)

    def stop(self) -> None:
        if self.fd >= 0:
            self.loop.remove_reader(self.fd)
        if self.timer:
            self.timer.cancel()
        self.waiting.clear()
        self.free.clear()


# A watcher refers to its loop, so that both are only known by weak references.
_watchers: 'weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, weakref.WeakValueDictionary[Any, _Watcher]]' = (
    weakref.WeakKeyDictionary())


def finished(request: Request) -> 'asyncio.Future[None]':
    """A future that is done when the request is; called inside an event loop."""
    loop = asyncio.get_running_loop()
    mine = _watchers.setdefault(loop, weakref.WeakValueDictionary())
    fd = request._comm.fileno()
    key = fd if fd >= 0 else request._comm
    watcher = mine.get(key)
    if watcher is None:
        watcher = mine[key] = _Watcher(loop, fd)
    return watcher.add(request)


def freed(comm: Any) -> None:
    """What ran on this communicator has ended with AbortedError."""
    for mine in list(_watchers.values()):
        for watcher in list(mine.values()):
            ended = [at for at, row in enumerate(watcher.waiting) if row and row[0]._comm is comm]
            for at in ended:
                watcher.end(at, _abi.COLL_ERR_ABORTED)
            if ended and len(watcher.waiting) == len(watcher.free):
                watcher.stop()
