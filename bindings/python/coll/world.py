"""Joining: init for a process, spawn and init_threads for threads."""
import atexit
import ctypes
import threading
from typing import Any, Callable, Dict, List, Optional

from . import _abi, _interrupt, errors
from ._integers import fits, store
from ._load import lib
from .comm import Comm

_FIELDS: Dict[str, Any] = {field[0]: field[1] for field in _abi.coll_config._fields_}
_TCP_FIELDS: Dict[str, Any] = {field[0]: field[1] for field in _abi.coll_tcp._fields_}
_LEFT_OUT = ('tcp', 'reserved', 'allocator', 'log_context', 'listening_context')


def _hook(kind: Any, function: Callable[..., None]) -> Any:
    """A function of Python for a hook, whose first argument is a context that Python does not need."""
    def called(context: int, *arguments: Any) -> None:
        function(*(a.decode(errors='replace') if isinstance(a, bytes) else a for a in arguments))
    return kind(called)


def _config(settings: Dict[str, Any]) -> Any:
    config = _abi.coll_config()
    for key, value in settings.items():
        fields, of = (_FIELDS, config) if key in _FIELDS else (_TCP_FIELDS, config.tcp)
        if key not in fields or key in _LEFT_OUT:
            known = [name for name in {**_FIELDS, **_TCP_FIELDS} if name not in _LEFT_OUT]
            raise TypeError(f'there is no setting {key!r}; there are {", ".join(known)}')
        if value is None:
            continue
        if callable(value):
            value = _hook(fields[key], value)
        elif isinstance(value, str):
            value = value.encode()
        elif isinstance(value, bool):
            value = _abi.COLL_ON if value else _abi.COLL_OFF
        elif key == 'sim':
            machine = _abi.coll_sim()
            for member, number in value.items():
                store(machine, member, number)
            value = ctypes.pointer(machine)
        store(of, key, value)
    return config


class _Attempt(threading.Thread):
    """coll_init waits for the other ranks.  It runs on a thread, because the main thread must receive Ctrl-C."""

    def __init__(self, count: int, config: Any):
        super().__init__(name='coll-init', daemon=True)
        self.config, self.out = config, (ctypes.c_void_p * count)()
        self.status, self.sentence, self.is_unwanted = 0, b'', False
        self.lock = threading.Lock()

    def run(self) -> None:
        count = len(self.out)
        start = lib.coll_init if count == 1 and not self.config.transport == b'threads' else None
        first = ctypes.c_void_p()
        if start:
            self.status = start(first, self.config)
            self.out[0] = first.value
        else:
            self.status = lib.coll_init_threads(count, ctypes.cast(self.out, ctypes.POINTER(ctypes.c_void_p)), self.config)
        self.sentence = lib.coll_error(None) or b''
        with self.lock:
            if self.is_unwanted and self.status == 0:
                for handle in self.out:
                    lib.coll_free(handle)

    def comms(self) -> List[Comm]:
        self.start()
        try:
            self.join()
        except BaseException:
            with self.lock:
                if self.is_alive():
                    self.is_unwanted = True
                elif self.status == 0:
                    for handle in self.out:
                        lib.coll_free(handle)
            raise
        if self.status < 0:
            raise errors.error_of(self.status, self.sentence)
        return [Comm(handle, self.config) for handle in self.out]


def init(**settings: Any) -> Comm:
    """Join the ranks of this job, one per process, and give this one's communicator.  Without settings all comes from the
    environment: coll-run, torchrun, Slurm, mpiexec, or COLL_RANK, COLL_SIZE and COLL_ADDR; where there is nothing, rank 0 of 1.

    Settings are those of coll_config and coll_tcp: rank, size, address, world, transport, key, security, start_timeout_ms,
    liveness_timeout_ms, stall_timeout_ms, log, ...  Raises PeerError, TimeoutError, DeniedError and others, with a sentence.  The
    communicator is freed by `with`, free(), or when the program ends."""
    _interrupt.watch()
    return _Attempt(1, _config(settings)).comms()[0]


def init_threads(count: int, **settings: Any) -> List[Comm]:
    """`count` ranks, each for one thread at a time of this process."""
    if fits(count, 'ranks') < 1:
        raise ValueError(f'{count} ranks: there must be 1 or more')
    if count == 1 and 'transport' not in settings:
        settings['transport'] = 'threads'
    return _Attempt(count, _config(settings)).comms()


def spawn(count: int, function: Callable[..., Any], *arguments: Any, **settings: Any) -> List[Any]:
    """Run function(comm, *arguments) on `count` threads, each a rank, and give what they return, by rank.

    When one raises an exception the others are ended with AbortedError, and spawn raises the one that came first.  So does
    Ctrl-C.  Threads of Python run one at a time, but for what waits or computes outside of the interpreter."""
    comms = init_threads(count, **settings)
    results: List[Any] = [None] * count
    raised: List[BaseException] = []

    def rank(comm: Comm) -> None:
        try:
            with comm:
                try:
                    results[comm.rank] = function(comm, *arguments)
                except BaseException as error:
                    raised.append(error)
                    comm._end(f'rank {comm.rank} raised {error!r}'.encode())
        except BaseException as error:
            raised.append(error)

    threads = [threading.Thread(target=rank, args=(comm,), name=f'coll-rank-{comm.rank}') for comm in comms]
    begun = 0
    try:
        for thread in threads:
            begun += 1
            thread.start()
        for thread in threads:
            thread.join()
    except BaseException:                                       # Ctrl-C, in the main thread
        for comm in comms:
            comm._end(b'interrupted from the keyboard')
        for comm in comms[begun:]:
            comm.free()
        for thread in threads[:begun]:
            try:
                thread.join()
            except RuntimeError:                                # it is only about to begin: it will find that all is over
                pass
        raise
    if raised:
        raise raised[0]
    return results


@atexit.register
def _leave() -> None:
    """In good order, so that the end of this program is no failure of the others."""
    for comm in list(_interrupt.live):
        if not comm._inside:
            comm.free()
