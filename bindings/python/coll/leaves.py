"""Sums over leaves, with the same bits on every number of ranks."""
import ctypes
from typing import Any, Optional

from . import _abi, errors
from ._load import lib
from .buffers import Buffer, Shape, look, writable
from .comm import Call, Comm


class LeafSum:
    """The leaves of this rank, such as the gradients of its micro-batches, added up one after the other.

    sum = coll.LeafSum(gradient)                `gradient` gives shape and type; leaves are numbered over all ranks
    sum.restart(first)                          in each step: the number of the first leaf of this rank
    for i in range(first, end): sum.add(compute(i))
    mean = sum.allreduce(comm, 'avg')           depends on the leaves, not on the number of ranks or on who has which

    The leaves of rank 0 come first, then those of rank 1, and so on; a rank may have none.  `with sum:` frees it at the end."""

    def __init__(self, like: Any, first_leaf: int = 0, *, dtype: Any = None):
        self._handle: Optional[ctypes.c_void_p] = None
        self._stored = look(like).type                          # "bf16" is stored in integers
        self._like: Buffer = look(like, dtype)
        handle = ctypes.c_void_p()
        self._check(lib.coll_sum_begin(handle, first_leaf, self._like.count, self._like.type, None))
        self._handle = handle

    def __enter__(self) -> 'LeafSum':
        return self

    def __exit__(self, *_: Any) -> None:
        self.free()

    def __del__(self) -> None:
        self.free()

    def free(self) -> None:
        if self._handle is not None:
            lib.coll_sum_free(self._handle)
        self._handle = None

    @staticmethod
    def _check(status: int) -> None:
        if status < 0:
            raise errors.error_of(status, lib.coll_error(None))

    def _open(self) -> ctypes.c_void_p:
        if self._handle is None:
            raise ValueError('this sum was freed')
        return self._handle

    @property
    def shape(self) -> Shape:
        return self._like.shape

    def restart(self, first_leaf: int) -> 'LeafSum':
        """Begin again, in the same memory."""
        self._check(lib.coll_sum_restart(self._open(), first_leaf))
        return self

    def add(self, leaf: Any) -> 'LeafSum':
        """Add the next leaf, which may be changed afterwards."""
        given = look(leaf)
        if given.shape != self.shape or given.count and given.type != self._like.type and given.type != self._stored:
            raise ValueError(f'the leaf is {lib.coll_type_name(given.type).decode()} of shape {given.shape}, and the sum is of '
                             f'{lib.coll_type_name(self._like.type).decode()} of shape {self.shape}')
        self._check(lib.coll_sum_add(self._open(), given.address))
        return self

    def allreduce(self, comm: Comm, op: str = 'sum', *, out: Any = None, **options: Any) -> Any:
        """Every rank gets the sum of all leaves, or their mean (op='avg').  All ranks call it; options as in Comm."""
        call = Call(_abi.KINDS['allreduce'].number)
        call.operation(op)
        for key, value in options.items():
            call.option(key, value)
        made = self._like.empty(self.shape) if out is None else \
            Comm._matching(writable(out, None, 'out'), self._like, self.shape)
        call.struct.recv = made.address
        call.keep.append(made)
        self._check(lib.coll_sum_end(self._open(), call.struct))
        comm._do(call)
        return made.result()
