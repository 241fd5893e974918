"""Gradients over a wire of fewer bits: a communication hook for DistributedDataParallel.

    model.register_comm_hook(Wire("mxf8e4m3", feedback=True), wire_hook)
"""
import torch

from .groups import _c, _of


class Wire:
    """How gradients travel: "bf16", "f16", "f8e5m2", "mxi8", "mxf8e4m3", ... (coll.h, Reduced precision).

    feedback    what the wire leaves out of a gradient goes along in the next step (gradients of float32)
    stochastic  roundings go up or down at random, by `seed` and the number of the call; not with mx wires
    """

    def __init__(self, wire="bf16", group=None, feedback=False, stochastic=False, seed=1):
        self.wire, self.group, self.feedback, self.stochastic, self.seed = wire, group, feedback, stochastic, seed
        self.calls = 0
        self.residuals = {}

    def residual(self, bucket):
        """DDP divides its gradients into buckets again after the first step."""
        known = self.residuals.get(bucket.index())
        if known is None or known.numel() != bucket.buffer().numel():
            known = self.residuals[bucket.index()] = torch.zeros(bucket.buffer().numel())
        return known


def wire_hook(state, bucket):
    """The average of the bucket over all ranks, rounded to the wire once at each end; sparse gradients travel as they are."""
    state.calls += 1
    group, gradients = _of(state.group), bucket.buffer()
    if gradients.is_sparse:
        work = group.allreduce([gradients.div_(group.size())])
    else:
        work = group.allreduce_wire(gradients, state.wire, average=True,
                                    residual=state.residual(bucket) if state.feedback else None,
                                    flags=_c.STOCHASTIC if state.stochastic else 0, seed=state.seed + state.calls)
    return work.get_future().then(lambda future: future.value()[0])
