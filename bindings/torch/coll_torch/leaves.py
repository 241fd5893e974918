"""Sums with the same bits on every number of ranks (coll.h, Leaves): of tensors, and of the gradients of
DistributedDataParallel.

    mean = sum_leaves((gradient(i) for i in range(first, end)), first, average=True)

    leaves = Leaves(model)                            a DistributedDataParallel
    for step in range(steps):
        for i in leaves.run(first, end):              the micro-batches of this rank, of those of all ranks
            loss(model, step, i).backward()
        optimizer.step()
"""
import torch

from .groups import _c, _of


def sum_leaves(leaves, first_leaf, like=None, average=False, group=None):
    """The sum, or the mean, of the leaves of all ranks, which are tensors of one shape and type.

    leaves      an iterable of those of this rank: they are added up one after the other, and are not kept
    first_leaf  the number of the first one.  Rank 0 has the first leaves of all, rank 1 the next ones, and so on
    like        a tensor of their shape and type: for a rank that may have none
    """
    total = None if like is None else _c.LeafSum(like, first_leaf)
    for leaf in leaves:
        if total is None:
            total, like = _c.LeafSum(leaf, first_leaf), leaf
        if leaf.shape != like.shape:
            raise ValueError(f"a leaf of shape {tuple(leaf.shape)}, and others of {tuple(like.shape)}")
        total.add(leaf.detach())
    if total is None:
        raise ValueError("this rank has no leaves: pass like, a tensor of their shape and type")
    result = torch.empty(like.shape, dtype=like.dtype)
    _of(group).allreduce_leaves([total], [result], average).wait()
    return result


class Leaves:
    """A communication hook that takes the gradient of each micro-batch as a leaf.  It registers itself.

    The gradients, and so the weights, then depend on the micro-batches, not on the number of ranks or on who has which.  Only
    the last one of a rank starts messages, as with no_sync.  Buffers of the model, such as those of BatchNorm, are those of the
    forward passes of a rank, and depend on it."""

    def __init__(self, model, average=True):
        if model.find_unused_parameters:
            raise ValueError("Leaves does not go with find_unused_parameters: each micro-batch must use all parameters")
        self.model, self.average = model, average
        self.parameters = [p for name, p in model.module.named_parameters()
                           if p.requires_grad and name not in model.parameters_to_ignore]
        self.sums = {}
        self.first, self.is_last = 0, False
        model.register_comm_hook(self, leaves_hook)

    def run(self, first, end):
        """Yield the numbers of this rank's micro-batches.  The caller calls forward and backward once for each.

        Gradients of before are dropped.  The numbers of rank 0 begin with 0, those of another rank where those of the rank
        before it end; each rank has one or more."""
        if not 0 <= first < end:
            raise ValueError(f"micro-batches {first} to {end - 1}: each rank has one or more, with numbers from 0 on")
        self.first = first
        for one in self.sums.values():
            one.restart(first)
        for leaf in range(first, end - 1):
            self._drop()
            with self.model.no_sync():
                yield leaf
            for p in self.parameters:
                if p.grad is None:
                    raise ValueError(f"micro-batch {leaf} uses not all parameters: one of shape {tuple(p.shape)} has no gradient")
                self._add(p, p.grad)
        self._drop()
        self.is_last = True
        try:
            yield end - 1
        finally:
            self.is_last = False

    def _drop(self):
        """So that a gradient is that of one micro-batch, and has no zeros of before added, which change -0."""
        for p in self.parameters:
            p.grad = None

    def _add(self, parameter, gradient):
        if gradient.is_sparse:
            raise ValueError("Leaves takes dense gradients: this one is sparse")
        total = self.sums.get(parameter)
        if total is None:
            total = self.sums[parameter] = _c.LeafSum(gradient, self.first)
        total.add(gradient.detach())
        return total


def _laid(parameter, gradient):
    """The gradient as it lies in the bucket: like the parameter, such as in channels_last, if that has no gaps."""
    is_dense = torch.empty_like(parameter, device="meta").stride() == parameter.stride()
    return gradient.as_strided(parameter.shape, parameter.stride(), gradient.storage_offset()) if is_dense else gradient


def leaves_hook(state, bucket):
    """The sum of all leaves of the parameters in the bucket."""
    if not state.is_last:
        raise RuntimeError("a backward outside of Leaves.run: its gradients have no number")
    buffer = bucket.buffer()
    if buffer.is_sparse:
        raise ValueError("Leaves takes dense gradients: this one is sparse")
    gradients = [_laid(p, gradient) for p, gradient in zip(bucket.parameters(), bucket.gradients())]
    sums = [state._add(p, gradient) for p, gradient in zip(bucket.parameters(), gradients)]
    work = _of(state.model.process_group).allreduce_leaves(sums, gradients, state.average)
    return work.get_future().then(lambda future: (future.value(), buffer)[1])
