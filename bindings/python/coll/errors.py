"""What may go wrong.  Every status of coll.h below 0 is a class; all are Error.

ArgumentError and UnsupportedError mean that nothing was sent, and the communicator is as before.  After any other the
communicator has ended on every rank: only Comm.agree, Comm.shrink and Comm.free can be called."""
import builtins
from typing import Dict, Tuple, Type

from . import _abi


class Error(Exception):
    """status: its number and name: coll_status; rank: the rank that raises it, None before there is one; failed: the ranks
    known to have failed, the one that ended the communicator first; str(): the sentence of the library."""

    def __init__(self, sentence: str, status: int = 0, rank: 'int | None' = None, failed: Tuple[int, ...] = ()):
        super().__init__(sentence)
        self.sentence, self.status, self.rank, self.failed = sentence, status, rank, failed

    def __reduce__(self):
        return type(self), (self.sentence, self.status, self.rank, self.failed)

    def __str__(self) -> str:
        return self.sentence


class ArgumentError(Error, ValueError): 'wrong argument; nothing was sent'
class OutOfMemoryError(Error, MemoryError): 'out of memory'
class SystemCallError(Error, OSError): 'a system call failed'
class TimeoutError(Error, builtins.TimeoutError): 'a rank is alive but late'
class PeerError(Error, ConnectionError): 'a rank has left, died or is unreachable'
class MismatchError(Error): 'ranks made different calls'
class ProtocolError(Error): 'received bytes that are not ours, or of a different version'
class DeniedError(Error, PermissionError): 'wrong or missing key'
class UnsupportedError(Error, NotImplementedError): 'not available here; nothing was sent'
class AbortedError(Error): 'the operation was given up'
class ForkedError(Error): 'a communicator cannot be used in a forked child'


OF_STATUS: Dict[int, Type[Error]] = {
    _abi.COLL_ERR_ARGUMENT: ArgumentError, _abi.COLL_ERR_MEMORY: OutOfMemoryError, _abi.COLL_ERR_SYSTEM: SystemCallError,
    _abi.COLL_ERR_TIMEOUT: TimeoutError, _abi.COLL_ERR_PEER: PeerError, _abi.COLL_ERR_MISMATCH: MismatchError,
    _abi.COLL_ERR_PROTOCOL: ProtocolError, _abi.COLL_ERR_DENIED: DeniedError, _abi.COLL_ERR_UNSUPPORTED: UnsupportedError,
    _abi.COLL_ERR_ABORTED: AbortedError, _abi.COLL_ERR_FORKED: ForkedError,
}


def error_of(status: int, sentence: bytes, rank: 'int | None' = None, failed: Tuple[int, ...] = ()) -> Error:
    text = sentence.decode(errors='replace') or _abi.STATUS_TEXTS.get(status, f'status {status}')
    return OF_STATUS.get(status, Error)(text, status, rank, failed)
