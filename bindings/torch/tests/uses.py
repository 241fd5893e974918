"""uses.py - what programs do with PyTorch, each as a small example.

    python3 uses.py --ranks N [NAME...]           N ranks, which are processes that it forks

Weights, inputs and learning rates are small multiples of powers of two.  Sums of them are exact in every order, so every way to
train must give the bits that one process gets from the whole batch.
"""
import os
import shutil
import sys
import tempfile

import ranks
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
import torch.distributed.checkpoint as checkpoint
from ranks import equal_everywhere, rank, same, size
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel

RATE = 0.25


def model():
    net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 8))
    draw = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for p in net.parameters():
            p.copy_(torch.randint(-2, 3, p.shape, generator=draw))
    return net


def batch_of(r, step=0):
    return torch.randint(-2, 3, (4, 8), generator=torch.Generator().manual_seed(100 * step + r)).float()


def train(net, steps, batch, scale=1):
    optimizer = torch.optim.SGD(net.parameters(), lr=RATE)
    for step in range(steps):
        optimizer.zero_grad()
        net(batch(step)).sum().mul(scale).backward()
        optimizer.step()
    return net


def reference(steps, members=None):
    """One process with the batches of all ranks."""
    members = range(size()) if members is None else members
    return train(model(), steps, lambda step: torch.cat([batch_of(r, step) for r in members]), 1 / len(members))


def mine(step):
    return batch_of(rank(), step)


def whole(net):
    return [p.full_tensor() if isinstance(p, DTensor) else p.detach() for p in net.parameters()]


def same_weights(net, other):
    for got, wanted in zip(whole(net), whole(other), strict=True):
        same(got, wanted)


def use_ddp():
    same_weights(train(DistributedDataParallel(model()), 2, mine), reference(2))


def use_ddp_no_sync():
    """Gradients of two batches, summed before they are sent."""
    net, alone = DistributedDataParallel(model()), model()
    with net.no_sync():
        net(mine(0)).sum().backward()
    net(mine(1)).sum().backward()
    for step in range(2):
        alone(torch.cat([batch_of(r, step) for r in range(size())])).sum().div(size()).backward()
    for p, q in zip(net.parameters(), alone.parameters()):
        same(p.grad, q.grad)


def use_ddp_unused():
    class Branches(nn.Module):
        def __init__(self):
            super().__init__()
            self.always, self.even, self.odd = model(), model(), model()

        def forward(self, x):
            return self.always(x) + (self.even if rank() % 2 == 0 else self.odd)(x)

    net = DistributedDataParallel(Branches(), find_unused_parameters=True)
    net(mine(0)).sum().backward()
    alone = model()
    alone(torch.cat([batch_of(r) for r in range(0, size(), 2)])).sum().div(size()).backward()
    for p, q in zip(net.module.even.parameters(), alone.parameters()):
        same(p.grad, q.grad)


def use_ddp_join():
    """Ranks have different numbers of batches."""
    net = DistributedDataParallel(model())
    steps = 1 + rank()
    with net.join(divide_by_initial_world_size=True):
        train(net, steps, mine)
    for p in net.parameters():
        equal_everywhere(p.detach())


def use_fsdp():
    net = model()
    for layer in net:
        if isinstance(layer, nn.Linear):
            fully_shard(layer)
    same_weights(train(fully_shard(net), 2, mine), reference(2))


def use_fsdp_in_bf16():
    """Parameters travel as bf16, and gradients are summed as bf16 or float32."""
    for reduce in (torch.float32, torch.bfloat16):
        net = fully_shard(model(), mp_policy=MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=reduce))
        same_weights(train(net, 1, mine), reference(1))


def use_fsdp_divided():
    """A factor of the program's own: PREMUL_SUM."""
    net = fully_shard(model())
    net.set_gradient_divide_factor(2.0 * size())
    same_weights(train(net, 1, lambda step: mine(step), 2), reference(1))


def use_hsdp():
    """Sharded in pairs, replicated among them."""
    mesh = init_device_mesh("cpu", (size() // 2, 2), mesh_dim_names=("replicate", "shard"))
    same_weights(train(fully_shard(model(), mesh=mesh), 2, mine), reference(2))


def use_tensor_parallel():
    mesh = init_device_mesh("cpu", (size(),))
    net = parallelize_module(model(), mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
    same_weights(train(net, 2, lambda step: batch_of(0, step)), reference(2, [0]))


def use_dtensor():
    mesh = init_device_mesh("cpu", (size(),))
    x = torch.arange(float(16 * size())).reshape(4 * size(), 4)
    rows = distribute_tensor(x, mesh, [Shard(0)])
    same(rows.to_local(), x.chunk(size())[rank()])
    same(rows.redistribute(mesh, [Shard(1)]).to_local(), x.chunk(size(), 1)[rank()] if rank() < 4 else x[:, :0])
    same(rows.redistribute(mesh, [Replicate()]).to_local(), x)
    same(rows.sum().full_tensor(), x.sum())
    same((rows.t() @ rows).full_tensor(), x.t() @ x)


def use_pipelining():
    layers = [nn.Linear(8, 8) for _ in range(size())]
    draw = torch.Generator().manual_seed(4)
    with torch.no_grad():
        for layer in layers:
            for p in layer.parameters():
                p.copy_(torch.randint(-1, 2, p.shape, generator=draw))
    stage = PipelineStage(layers[rank()], rank(), size(), torch.device("cpu"))
    schedule = ScheduleGPipe(stage, n_microbatches=2, loss_fn=lambda output, target: (output * target).sum(), scale_grads=False)
    x, target = batch_of(0), batch_of(1)
    if rank() == 0:
        schedule.step(x)
    elif rank() == size() - 1:
        out = schedule.step(target=target)
    else:
        schedule.step()
    gradients = [p.grad.clone() for p in layers[rank()].parameters()]
    for layer in layers:
        layer.zero_grad()
    alone = nn.Sequential(*layers)(x)
    (alone * target).sum().backward()
    if rank() == size() - 1:
        same(out, alone.detach())
    for got, p in zip(gradients, layers[rank()].parameters()):
        same(got, p.grad)


def use_checkpoint():
    """Every rank writes its shards; another division reads them."""
    path = [tempfile.mkdtemp() if rank() == 0 else None]
    dist.broadcast_object_list(path, 0)
    net = train(fully_shard(model()), 1, mine)
    checkpoint.save(net.state_dict(), checkpoint_id=path[0])
    other = fully_shard(model(), mesh=init_device_mesh("cpu", (1, size()), mesh_dim_names=("r", "s")))
    state = other.state_dict()
    checkpoint.load(state, checkpoint_id=path[0])
    other.load_state_dict(state)
    same_weights(other, net)
    dist.barrier()
    if rank() == 0:
        shutil.rmtree(path[0])


def use_compile():
    """Functional collectives in a compiled function, one graph."""
    group = dist.group.WORLD

    def step(x):
        total = functional.all_reduce(x, "sum", group)
        everything = functional.all_gather_single(x, 0, group)
        part = functional.reduce_scatter_single(everything, "avg", 0, group)
        turned = functional.all_to_all_single(everything, None, None, group)
        return total + part, everything, functional.broadcast(turned, 0, group)

    x = torch.full((2, 3), float(rank()))
    for got, wanted in zip(torch.compile(step, backend="aot_eager", fullgraph=True)(x), step(x)):
        same(got + 0, wanted + 0)
    all_of_them = torch.arange(float(size())).repeat_interleave(2).reshape(-1, 1).expand(-1, 3)
    total, everything, _ = step(x)
    same(everything + 0, all_of_them.contiguous())
    same(total + 0, torch.full((2, 3), float(sum(range(size())))) + x)


def use_objects():
    found = [None] * size()
    dist.all_gather_object(found, {"rank": rank(), "weights": torch.full((2,), float(rank()))})
    assert [one["rank"] for one in found] == list(range(size()))
    if rank() == 0:
        dist.send_object_list(["hello", 3], 1)
    elif rank() == 1:
        got = [None, None]
        dist.recv_object_list(got, 0)
        assert got == ["hello", 3]


def use_accelerate():
    """It takes the group that is there, whatever it prints as its back end."""
    from accelerate import Accelerator

    os.environ.update(LOCAL_RANK=str(rank()), MASTER_ADDR="localhost", MASTER_PORT="1")      # it looks whether they are set
    helper, net = Accelerator(cpu=True), model()
    net, optimizer = helper.prepare(net, torch.optim.SGD(net.parameters(), lr=RATE))
    for step in range(2):
        optimizer.zero_grad()
        helper.backward(net(mine(step)).sum())
        optimizer.step()
    assert helper.num_processes == size() and dist.get_backend() == "coll"
    same_weights(net, reference(2))
    same(helper.gather(torch.tensor([rank()])), torch.arange(size()))


if __name__ == "__main__":
    ranks.TESTS = {name: function for name, function in globals().items() if name.startswith("use_")}
    sys.exit(ranks.fork(int(sys.argv[2]), sys.argv[3:]))
