"""The collectives of a communicator, each in four forms: allreduce, allreduce_ in place, and iallreduce and
iallreduce_, which do not wait.  Written by bindings/generate.py; `make bindings` writes it anew.

Every method may raise what errors.py lists.  ArgumentError and UnsupportedError mean that nothing was sent; TypeError and
ValueError come before the library is called.  Comm documents **options."""
from typing import Any, Optional, Sequence, TypeVar

from .requests import Request

Array = Any              # whatever buffers.py takes: NumPy, memoryview, array, bytes, DLPack
Op = Any                 # "sum", "prod", "min", "max", "avg", ..., or a function (low, high) that changes `high`
X = TypeVar('X')


class Calls:
    def _run(self, name: str, x: Any, out: Any, op: Any, root: int, send_counts: Any, recv_counts: Any, place: bool,
             options: dict) -> Any:
        raise NotImplementedError

    def _start(self, name: str, x: Any, out: Any, op: Any, root: int, send_counts: Any, recv_counts: Any, place: bool,
               options: dict) -> Request:
        raise NotImplementedError

    def barrier(self, **options: Any) -> None:
        """Return when every rank has called it."""
        return self._run('barrier', None, None, None, 0, None, None, False, options)

    def ibarrier(self, **options: Any) -> Request:
        """Return when every rank has called it.  Returns a request; leave the arrays alone until it is finished."""
        return self._start('barrier', None, None, None, 0, None, None, False, options)

    def broadcast(self, x: Array, root: int = 0, *, out: Optional[Array] = None, **options: Any) -> Array:
        """Every rank gets the root's elements.  x: s, equal on all ranks.  Result: s."""
        return self._run('broadcast', x, out, None, root, None, None, False, options)

    def broadcast_(self, x: X, root: int = 0, **options: Any) -> X:
        """Every rank gets the root's elements.  x: s, equal on all ranks.  In place: x is filled with them."""
        return self._run('broadcast', x, None, None, root, None, None, True, options)

    def ibroadcast(self, x: Array, root: int = 0, *, out: Optional[Array] = None, **options: Any) -> Request:
        """Every rank gets the root's elements.  x: s, equal on all ranks.  Result: s.  Returns a request; leave the arrays
        alone until it is finished."""
        return self._start('broadcast', x, out, None, root, None, None, False, options)

    def ibroadcast_(self, x: X, root: int = 0, **options: Any) -> Request:
        """Every rank gets the root's elements.  x: s, equal on all ranks.  In place: x is filled with them.  Returns a
        request; leave the arrays alone until it is finished."""
        return self._start('broadcast', x, None, None, root, None, None, True, options)

    def reduce(self, x: Array, op: Op = 'sum', root: int = 0, *, out: Optional[Array] = None, **options: Any) -> Array:
        """The root gets x of all ranks, combined by op.  x: s.  Result: s on the root, None elsewhere."""
        return self._run('reduce', x, out, op, root, None, None, False, options)

    def reduce_(self, x: X, op: Op = 'sum', root: int = 0, **options: Any) -> X:
        """The root gets x of all ranks, combined by op.  x: s.  In place: x of the root becomes the result."""
        return self._run('reduce', x, None, op, root, None, None, True, options)

    def ireduce(self, x: Array, op: Op = 'sum', root: int = 0, *, out: Optional[Array] = None, **options: Any) -> Request:
        """The root gets x of all ranks, combined by op.  x: s.  Result: s on the root, None elsewhere.  Returns a request;
        leave the arrays alone until it is finished."""
        return self._start('reduce', x, out, op, root, None, None, False, options)

    def ireduce_(self, x: X, op: Op = 'sum', root: int = 0, **options: Any) -> Request:
        """The root gets x of all ranks, combined by op.  x: s.  In place: x of the root becomes the result.  Returns a
        request; leave the arrays alone until it is finished."""
        return self._start('reduce', x, None, op, root, None, None, True, options)

    def allreduce(self, x: Array, op: Op = 'sum', *, out: Optional[Array] = None, **options: Any) -> Array:
        """Every rank gets x of all ranks, combined by op, with the same bits.  x: s.  Result: s."""
        return self._run('allreduce', x, out, op, 0, None, None, False, options)

    def allreduce_(self, x: X, op: Op = 'sum', **options: Any) -> X:
        """Every rank gets x of all ranks, combined by op, with the same bits.  x: s.  In place: x becomes the result."""
        return self._run('allreduce', x, None, op, 0, None, None, True, options)

    def iallreduce(self, x: Array, op: Op = 'sum', *, out: Optional[Array] = None, **options: Any) -> Request:
        """Every rank gets x of all ranks, combined by op, with the same bits.  x: s.  Result: s.  Returns a request; leave
        the arrays alone until it is finished."""
        return self._start('allreduce', x, out, op, 0, None, None, False, options)

    def iallreduce_(self, x: X, op: Op = 'sum', **options: Any) -> Request:
        """Every rank gets x of all ranks, combined by op, with the same bits.  x: s.  In place: x becomes the result.
        Returns a request; leave the arrays alone until it is finished."""
        return self._start('allreduce', x, None, op, 0, None, None, True, options)

    def reduce_scatter(self, x: Array, op: Op = 'sum', *, out: Optional[Array] = None, **options: Any) -> Array:
        """Combine x of all ranks by op; rank r gets block r.  x: (size, *s).  Result: s."""
        return self._run('reduce_scatter', x, out, op, 0, None, None, False, options)

    def reduce_scatter_(self, x: X, op: Op = 'sum', **options: Any) -> X:
        """Combine x of all ranks by op; rank r gets block r.  x: (size, *s).  In place: x[rank] becomes the result."""
        return self._run('reduce_scatter', x, None, op, 0, None, None, True, options)

    def ireduce_scatter(self, x: Array, op: Op = 'sum', *, out: Optional[Array] = None, **options: Any) -> Request:
        """Combine x of all ranks by op; rank r gets block r.  x: (size, *s).  Result: s.  Returns a request; leave the
        arrays alone until it is finished."""
        return self._start('reduce_scatter', x, out, op, 0, None, None, False, options)

    def ireduce_scatter_(self, x: X, op: Op = 'sum', **options: Any) -> Request:
        """Combine x of all ranks by op; rank r gets block r.  x: (size, *s).  In place: x[rank] becomes the result.
        Returns a request; leave the arrays alone until it is finished."""
        return self._start('reduce_scatter', x, None, op, 0, None, None, True, options)

    def reduce_scatterv(self, x: Array, counts: Sequence[int], op: Op = 'sum', *, out: Optional[Array] = None,
                        **options: Any) -> Array:
        """Combine x of all ranks by op; rank r gets counts[r] rows, those behind the rows of lower ranks.  x:
        (sum(counts), *s).  Result: (counts[rank], *s)."""
        return self._run('reduce_scatterv', x, out, op, 0, None, counts, False, options)

    def reduce_scatterv_(self, x: X, counts: Sequence[int], op: Op = 'sum', **options: Any) -> X:
        """Combine x of all ranks by op; rank r gets counts[r] rows, those behind the rows of lower ranks.  x:
        (sum(counts), *s).  In place: this rank's rows of x become the result."""
        return self._run('reduce_scatterv', x, None, op, 0, None, counts, True, options)

    def ireduce_scatterv(self, x: Array, counts: Sequence[int], op: Op = 'sum', *, out: Optional[Array] = None,
                         **options: Any) -> Request:
        """Combine x of all ranks by op; rank r gets counts[r] rows, those behind the rows of lower ranks.  x:
        (sum(counts), *s).  Result: (counts[rank], *s).  Returns a request; leave the arrays alone until it is finished."""
        return self._start('reduce_scatterv', x, out, op, 0, None, counts, False, options)

    def ireduce_scatterv_(self, x: X, counts: Sequence[int], op: Op = 'sum', **options: Any) -> Request:
        """Combine x of all ranks by op; rank r gets counts[r] rows, those behind the rows of lower ranks.  x:
        (sum(counts), *s).  In place: this rank's rows of x become the result.  Returns a request; leave the arrays
        alone until it is finished."""
        return self._start('reduce_scatterv', x, None, op, 0, None, counts, True, options)

    def scan(self, x: Array, op: Op = 'sum', *, out: Optional[Array] = None, **options: Any) -> Array:
        """Rank r gets x of ranks 0 to r, combined by op.  There is no "avg".  x: s.  Result: s."""
        return self._run('scan', x, out, op, 0, None, None, False, options)

    def scan_(self, x: X, op: Op = 'sum', **options: Any) -> X:
        """Rank r gets x of ranks 0 to r, combined by op.  There is no "avg".  x: s.  In place: x becomes the result."""
        return self._run('scan', x, None, op, 0, None, None, True, options)

    def iscan(self, x: Array, op: Op = 'sum', *, out: Optional[Array] = None, **options: Any) -> Request:
        """Rank r gets x of ranks 0 to r, combined by op.  There is no "avg".  x: s.  Result: s.  Returns a request; leave
        the arrays alone until it is finished."""
        return self._start('scan', x, out, op, 0, None, None, False, options)

    def iscan_(self, x: X, op: Op = 'sum', **options: Any) -> Request:
        """Rank r gets x of ranks 0 to r, combined by op.  There is no "avg".  x: s.  In place: x becomes the result.
        Returns a request; leave the arrays alone until it is finished."""
        return self._start('scan', x, None, op, 0, None, None, True, options)

    def exscan(self, x: Array, op: Op = 'sum', *, out: Optional[Array] = None, **options: Any) -> Array:
        """Rank r gets x of ranks 0 to r - 1, combined by op.  There is no "avg".  x: s.  Result: s; zeros on rank 0."""
        return self._run('exscan', x, out, op, 0, None, None, False, options)

    def exscan_(self, x: X, op: Op = 'sum', **options: Any) -> X:
        """Rank r gets x of ranks 0 to r - 1, combined by op.  There is no "avg".  x: s.  In place: x becomes the result;
        on rank 0 it stays."""
        return self._run('exscan', x, None, op, 0, None, None, True, options)

    def iexscan(self, x: Array, op: Op = 'sum', *, out: Optional[Array] = None, **options: Any) -> Request:
        """Rank r gets x of ranks 0 to r - 1, combined by op.  There is no "avg".  x: s.  Result: s; zeros on rank 0.
        Returns a request; leave the arrays alone until it is finished."""
        return self._start('exscan', x, out, op, 0, None, None, False, options)

    def iexscan_(self, x: X, op: Op = 'sum', **options: Any) -> Request:
        """Rank r gets x of ranks 0 to r - 1, combined by op.  There is no "avg".  x: s.  In place: x becomes the result;
        on rank 0 it stays.  Returns a request; leave the arrays alone until it is finished."""
        return self._start('exscan', x, None, op, 0, None, None, True, options)

    def gather(self, x: Array, root: int = 0, *, out: Optional[Array] = None, **options: Any) -> Array:
        """The root gets x of all ranks, one behind the other.  x: s.  Result: (size, *s) on the root, None elsewhere."""
        return self._run('gather', x, out, None, root, None, None, False, options)

    def gather_(self, x: X, root: int = 0, **options: Any) -> X:
        """The root gets x of all ranks, one behind the other.  x: s.  In place: on the root x is the whole, whose x[root]
        is its own block; elsewhere x is the block."""
        return self._run('gather', x, None, None, root, None, None, True, options)

    def igather(self, x: Array, root: int = 0, *, out: Optional[Array] = None, **options: Any) -> Request:
        """The root gets x of all ranks, one behind the other.  x: s.  Result: (size, *s) on the root, None elsewhere.
        Returns a request; leave the arrays alone until it is finished."""
        return self._start('gather', x, out, None, root, None, None, False, options)

    def igather_(self, x: X, root: int = 0, **options: Any) -> Request:
        """The root gets x of all ranks, one behind the other.  x: s.  In place: on the root x is the whole, whose x[root]
        is its own block; elsewhere x is the block.  Returns a request; leave the arrays alone until it is finished."""
        return self._start('gather', x, None, None, root, None, None, True, options)

    def gatherv(self, x: Array, counts: Optional[Sequence[int]] = None, root: int = 0, *, out: Optional[Array] = None,
                **options: Any) -> Array:
        """The root gets the rows of all ranks, one behind the other.  x: (any, *s).  Result: (sum(counts), *s) on the
        root, None elsewhere.  Without the counts of what comes the ranks exchange them first."""
        return self._run('gatherv', x, out, None, root, None, counts, False, options)

    def gatherv_(self, x: X, counts: Optional[Sequence[int]] = None, root: int = 0, **options: Any) -> X:
        """The root gets the rows of all ranks, one behind the other.  x: (any, *s).  In place: on the root x is the whole,
        with its own rows in their place."""
        return self._run('gatherv', x, None, None, root, None, counts, True, options)

    def igatherv(self, x: Array, counts: Optional[Sequence[int]] = None, root: int = 0, *, out: Optional[Array] = None,
                 **options: Any) -> Request:
        """The root gets the rows of all ranks, one behind the other.  x: (any, *s).  Result: (sum(counts), *s) on the
        root, None elsewhere.  Returns a request; leave the arrays alone until it is finished."""
        return self._start('gatherv', x, out, None, root, None, counts, False, options)

    def igatherv_(self, x: X, counts: Optional[Sequence[int]] = None, root: int = 0, **options: Any) -> Request:
        """The root gets the rows of all ranks, one behind the other.  x: (any, *s).  In place: on the root x is the whole,
        with its own rows in their place.  Returns a request; leave the arrays alone until it is finished."""
        return self._start('gatherv', x, None, None, root, None, counts, True, options)

    def scatter(self, x: Array, root: int = 0, *, out: Optional[Array] = None, **options: Any) -> Array:
        """Rank r gets block r of the root's x.  x: (size, *s) on the root, None elsewhere, where out is needed.  Result:
        s."""
        return self._run('scatter', x, out, None, root, None, None, False, options)

    def scatter_(self, x: X, root: int = 0, **options: Any) -> X:
        """Rank r gets block r of the root's x.  x: (size, *s) on the root, None elsewhere, where out is needed.  In place:
        on the root x is the whole, and x[root] stays where it is; elsewhere x is filled."""
        return self._run('scatter', x, None, None, root, None, None, True, options)

    def iscatter(self, x: Array, root: int = 0, *, out: Optional[Array] = None, **options: Any) -> Request:
        """Rank r gets block r of the root's x.  x: (size, *s) on the root, None elsewhere, where out is needed.  Result:
        s.  Returns a request; leave the arrays alone until it is finished."""
        return self._start('scatter', x, out, None, root, None, None, False, options)

    def iscatter_(self, x: X, root: int = 0, **options: Any) -> Request:
        """Rank r gets block r of the root's x.  x: (size, *s) on the root, None elsewhere, where out is needed.  In place:
        on the root x is the whole, and x[root] stays where it is; elsewhere x is filled.  Returns a request; leave the
        arrays alone until it is finished."""
        return self._start('scatter', x, None, None, root, None, None, True, options)

    def scatterv(self, x: Array, counts: Optional[Sequence[int]] = None, root: int = 0, *, out: Optional[Array] = None,
                 **options: Any) -> Array:
        """Rank r gets counts[r] rows of the root's x, those behind the rows of lower ranks.  Counts matter on the root.
        x: (sum(counts), *s) on the root, None elsewhere, where out is needed.  Result: (counts[rank], *s)."""
        return self._run('scatterv', x, out, None, root, counts, counts, False, options)

    def scatterv_(self, x: X, counts: Optional[Sequence[int]] = None, root: int = 0, **options: Any) -> X:
        """Rank r gets counts[r] rows of the root's x, those behind the rows of lower ranks.  Counts matter on the root.
        x: (sum(counts), *s) on the root, None elsewhere, where out is needed.  In place: on the root x is the whole,
        and its rows stay where they are; elsewhere x is filled."""
        return self._run('scatterv', x, None, None, root, counts, counts, True, options)

    def iscatterv(self, x: Array, counts: Optional[Sequence[int]] = None, root: int = 0, *, out: Optional[Array] = None,
                  **options: Any) -> Request:
        """Rank r gets counts[r] rows of the root's x, those behind the rows of lower ranks.  Counts matter on the root.
        x: (sum(counts), *s) on the root, None elsewhere, where out is needed.  Result: (counts[rank], *s).  Returns a
        request; leave the arrays alone until it is finished."""
        return self._start('scatterv', x, out, None, root, counts, counts, False, options)

    def iscatterv_(self, x: X, counts: Optional[Sequence[int]] = None, root: int = 0, **options: Any) -> Request:
        """Rank r gets counts[r] rows of the root's x, those behind the rows of lower ranks.  Counts matter on the root.
        x: (sum(counts), *s) on the root, None elsewhere, where out is needed.  In place: on the root x is the whole,
        and its rows stay where they are; elsewhere x is filled.  Returns a request; leave the arrays alone until it is
        finished."""
        return self._start('scatterv', x, None, None, root, counts, counts, True, options)

    def allgather(self, x: Array, *, out: Optional[Array] = None, **options: Any) -> Array:
        """Every rank gets x of all ranks, one behind the other.  x: s.  Result: (size, *s)."""
        return self._run('allgather', x, out, None, 0, None, None, False, options)

    def allgather_(self, x: X, **options: Any) -> X:
        """Every rank gets x of all ranks, one behind the other.  x: s.  In place: x is the whole, whose x[rank] is the
        block of this rank."""
        return self._run('allgather', x, None, None, 0, None, None, True, options)

    def iallgather(self, x: Array, *, out: Optional[Array] = None, **options: Any) -> Request:
        """Every rank gets x of all ranks, one behind the other.  x: s.  Result: (size, *s).  Returns a request; leave the
        arrays alone until it is finished."""
        return self._start('allgather', x, out, None, 0, None, None, False, options)

    def iallgather_(self, x: X, **options: Any) -> Request:
        """Every rank gets x of all ranks, one behind the other.  x: s.  In place: x is the whole, whose x[rank] is the
        block of this rank.  Returns a request; leave the arrays alone until it is finished."""
        return self._start('allgather', x, None, None, 0, None, None, True, options)

    def allgatherv(self, x: Array, counts: Optional[Sequence[int]] = None, *, out: Optional[Array] = None,
                   **options: Any) -> Array:
        """Every rank gets the rows of all ranks, one behind the other.  x: (counts[rank], *s).  Result: (sum(counts), *s).
        Without the counts of what comes the ranks exchange them first."""
        return self._run('allgatherv', x, out, None, 0, None, counts, False, options)

    def allgatherv_(self, x: X, counts: Sequence[int], **options: Any) -> X:
        """Every rank gets the rows of all ranks, one behind the other.  x: (counts[rank], *s).  In place: x is the whole,
        with the rows of this rank in their place."""
        return self._run('allgatherv', x, None, None, 0, None, counts, True, options)

    def iallgatherv(self, x: Array, counts: Optional[Sequence[int]] = None, *, out: Optional[Array] = None,
                    **options: Any) -> Request:
        """Every rank gets the rows of all ranks, one behind the other.  x: (counts[rank], *s).  Result: (sum(counts), *s).
        Returns a request; leave the arrays alone until it is finished."""
        return self._start('allgatherv', x, out, None, 0, None, counts, False, options)

    def iallgatherv_(self, x: X, counts: Sequence[int], **options: Any) -> Request:
        """Every rank gets the rows of all ranks, one behind the other.  x: (counts[rank], *s).  In place: x is the whole,
        with the rows of this rank in their place.  Returns a request; leave the arrays alone until it is finished."""
        return self._start('allgatherv', x, None, None, 0, None, counts, True, options)

    def alltoall(self, x: Array, *, out: Optional[Array] = None, **options: Any) -> Array:
        """x[r] goes to rank r; row r of the result comes from rank r.  x: (size, *s).  Result: (size, *s)."""
        return self._run('alltoall', x, out, None, 0, None, None, False, options)

    def alltoall_(self, x: X, **options: Any) -> X:
        """x[r] goes to rank r; row r of the result comes from rank r.  x: (size, *s).  In place: every block of x is
        replaced by the one that comes."""
        return self._run('alltoall', x, None, None, 0, None, None, True, options)

    def ialltoall(self, x: Array, *, out: Optional[Array] = None, **options: Any) -> Request:
        """x[r] goes to rank r; row r of the result comes from rank r.  x: (size, *s).  Result: (size, *s).  Returns a
        request; leave the arrays alone until it is finished."""
        return self._start('alltoall', x, out, None, 0, None, None, False, options)

    def ialltoall_(self, x: X, **options: Any) -> Request:
        """x[r] goes to rank r; row r of the result comes from rank r.  x: (size, *s).  In place: every block of x is
        replaced by the one that comes.  Returns a request; leave the arrays alone until it is finished."""
        return self._start('alltoall', x, None, None, 0, None, None, True, options)

    def alltoallv(self, x: Array, send_counts: Sequence[int], recv_counts: Optional[Sequence[int]] = None, *,
                  out: Optional[Array] = None, **options: Any) -> Array:
        """send_counts[r] rows of x go to rank r; recv_counts[r] rows of the result come from rank r.  x:
        (sum(send_counts), *s).  Result: (sum(recv_counts), *s).  Without the counts of what comes the ranks exchange
        them first."""
        return self._run('alltoallv', x, out, None, 0, send_counts, recv_counts, False, options)

    def alltoallv_(self, x: X, recv_counts: Sequence[int], **options: Any) -> X:
        """send_counts[r] rows of x go to rank r; recv_counts[r] rows of the result come from rank r.  x:
        (sum(send_counts), *s).  In place: x has the rows that come, where those lay that go; send_counts are not looked
        at."""
        return self._run('alltoallv', x, None, None, 0, None, recv_counts, True, options)

    def ialltoallv(self, x: Array, send_counts: Sequence[int], recv_counts: Optional[Sequence[int]] = None, *,
                   out: Optional[Array] = None, **options: Any) -> Request:
        """send_counts[r] rows of x go to rank r; recv_counts[r] rows of the result come from rank r.  x:
        (sum(send_counts), *s).  Result: (sum(recv_counts), *s).  Returns a request; leave the arrays alone until it is
        finished."""
        return self._start('alltoallv', x, out, None, 0, send_counts, recv_counts, False, options)

    def ialltoallv_(self, x: X, recv_counts: Sequence[int], **options: Any) -> Request:
        """send_counts[r] rows of x go to rank r; recv_counts[r] rows of the result come from rank r.  x:
        (sum(send_counts), *s).  In place: x has the rows that come, where those lay that go; send_counts are not looked
        at.  Returns a request; leave the arrays alone until it is finished."""
        return self._start('alltoallv', x, None, None, 0, None, recv_counts, True, options)

    def alltoallw(self, x: Array, out: Sequence[Array], **options: Any) -> Array:
        """x[r] goes to rank r, out[r] comes from rank r: lists of arrays of any types and shapes, or None.  x: list of
        size arrays.  Result: out."""
        return self._run('alltoallw', x, out, None, 0, None, None, False, options)

    def ialltoallw(self, x: Array, out: Sequence[Array], **options: Any) -> Request:
        """x[r] goes to rank r, out[r] comes from rank r: lists of arrays of any types and shapes, or None.  x: list of
        size arrays.  Result: out.  Returns a request; leave the arrays alone until it is finished."""
        return self._start('alltoallw', x, out, None, 0, None, None, False, options)

    def neighbor_allgather(self, x: Array, *, out: Optional[Array] = None, **options: Any) -> Array:
        """x goes to every destination; row i of the result comes from source i (see neighbors).  x: s.  Result: (sources,
        *s)."""
        return self._run('neighbor_allgather', x, out, None, 0, None, None, False, options)

    def ineighbor_allgather(self, x: Array, *, out: Optional[Array] = None, **options: Any) -> Request:
        """x goes to every destination; row i of the result comes from source i (see neighbors).  x: s.  Result: (sources,
        *s).  Returns a request; leave the arrays alone until it is finished."""
        return self._start('neighbor_allgather', x, out, None, 0, None, None, False, options)

    def neighbor_allgatherv(self, x: Array, counts: Optional[Sequence[int]] = None, *, out: Optional[Array] = None,
                            **options: Any) -> Array:
        """x goes to every destination; counts[i] rows of the result come from source i.  x: (any, *s).  Result:
        (sum(counts), *s).  Without the counts of what comes the ranks exchange them first."""
        return self._run('neighbor_allgatherv', x, out, None, 0, None, counts, False, options)

    def ineighbor_allgatherv(self, x: Array, counts: Optional[Sequence[int]] = None, *, out: Optional[Array] = None,
                             **options: Any) -> Request:
        """x goes to every destination; counts[i] rows of the result come from source i.  x: (any, *s).  Result:
        (sum(counts), *s).  Returns a request; leave the arrays alone until it is finished."""
        return self._start('neighbor_allgatherv', x, out, None, 0, None, counts, False, options)

    def neighbor_alltoall(self, x: Array, *, out: Optional[Array] = None, **options: Any) -> Array:
        """x[i] goes to destination i; row i of the result comes from source i.  x: (destinations, *s).  Result: (sources,
        *s)."""
        return self._run('neighbor_alltoall', x, out, None, 0, None, None, False, options)

    def ineighbor_alltoall(self, x: Array, *, out: Optional[Array] = None, **options: Any) -> Request:
        """x[i] goes to destination i; row i of the result comes from source i.  x: (destinations, *s).  Result: (sources,
        *s).  Returns a request; leave the arrays alone until it is finished."""
        return self._start('neighbor_alltoall', x, out, None, 0, None, None, False, options)

    def neighbor_alltoallv(self, x: Array, send_counts: Sequence[int], recv_counts: Optional[Sequence[int]] = None, *,
                           out: Optional[Array] = None, **options: Any) -> Array:
        """send_counts[i] rows of x go to destination i; recv_counts[i] rows come from source i.  x: (sum(send_counts),
        *s).  Result: (sum(recv_counts), *s).  Without the counts of what comes the ranks exchange them first."""
        return self._run('neighbor_alltoallv', x, out, None, 0, send_counts, recv_counts, False, options)

    def ineighbor_alltoallv(self, x: Array, send_counts: Sequence[int], recv_counts: Optional[Sequence[int]] = None, *,
                            out: Optional[Array] = None, **options: Any) -> Request:
        """send_counts[i] rows of x go to destination i; recv_counts[i] rows come from source i.  x: (sum(send_counts),
        *s).  Result: (sum(recv_counts), *s).  Returns a request; leave the arrays alone until it is finished."""
        return self._start('neighbor_alltoallv', x, out, None, 0, send_counts, recv_counts, False, options)

    def neighbor_alltoallw(self, x: Array, out: Sequence[Array], **options: Any) -> Array:
        """x[i] goes to destination i, out[i] comes from source i: lists of arrays, or None.  x: list of arrays.  Result:
        out."""
        return self._run('neighbor_alltoallw', x, out, None, 0, None, None, False, options)

    def ineighbor_alltoallw(self, x: Array, out: Sequence[Array], **options: Any) -> Request:
        """x[i] goes to destination i, out[i] comes from source i: lists of arrays, or None.  x: list of arrays.  Result:
        out.  Returns a request; leave the arrays alone until it is finished."""
        return self._start('neighbor_alltoallw', x, out, None, 0, None, None, False, options)

    def allreduce_list(self, x: Array, op: Op = 'sum', *, out: Optional[Array] = None, **options: Any) -> Array:
        """allreduce of every one of a list of arrays, of any types; small ones travel together.  x: list of arrays.
        Result: list of arrays."""
        return self._run('allreduce_list', x, out, op, 0, None, None, False, options)

    def allreduce_list_(self, x: X, op: Op = 'sum', **options: Any) -> X:
        """allreduce of every one of a list of arrays, of any types; small ones travel together.  x: list of arrays.  In
        place: all of x become the results."""
        return self._run('allreduce_list', x, None, op, 0, None, None, True, options)

    def iallreduce_list(self, x: Array, op: Op = 'sum', *, out: Optional[Array] = None, **options: Any) -> Request:
        """allreduce of every one of a list of arrays, of any types; small ones travel together.  x: list of arrays.
        Result: list of arrays.  Returns a request; leave the arrays alone until it is finished."""
        return self._start('allreduce_list', x, out, op, 0, None, None, False, options)

    def iallreduce_list_(self, x: X, op: Op = 'sum', **options: Any) -> Request:
        """allreduce of every one of a list of arrays, of any types; small ones travel together.  x: list of arrays.  In
        place: all of x become the results.  Returns a request; leave the arrays alone until it is finished."""
        return self._start('allreduce_list', x, None, op, 0, None, None, True, options)
