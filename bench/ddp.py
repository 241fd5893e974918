#!/usr/bin/env python3
"""A step of training under DistributedDataParallel or FSDP2: this library's back end of torch.distributed and Gloo's, in the same
processes.

usage: ddp.py [--torch build/torch] [--ranks 2,4] [--places host,1gbit,10gbit] [--models ddp,fsdp] [--millions 10,100]
              [--types f32,bf16] [--ways gloo,coll,bf16,alone] [--blocks 7] [--seconds 1]

A model of so many million parameters, layers of nn.Linear with little to compute in them, is trained by as many processes, one
thread each.  Each has a model for every way, with the same weights: Gloo, coll, coll over a wire of bf16 (of ddp in f32); `alone`
is a step of Gloo's model without its messages (of ddp).  The type is that of parameters and gradients; with fsdp it is that in
which both travel, and the shards are f32.  First both back ends add whole numbers, whose sums are exact, and the gradients of one
step are compared; a wrong sum ends the run.  Then come rounds: in each all ways have a block of steps (forward, backward with the
sums of gradients, SGD), beginning with another one each time.  Printed are the median of a step over the blocks and its
quartiles, of the ratios to Gloo of the same round the median, lowest and highest, and the median of the processors' time that a
step takes of a process, with all its threads: it says more than the other on a machine with others.

    host            the processes of this host
    1gbit, 10gbit   two network namespaces with half of the processes each, joined by links of that rate (root; iproute2)

Takes PyTorch with Gloo, `make torch`, and memory: 100 million parameters in f32 are 2.6 GB a process."""
import argparse, copy, gc, json, os, statistics, subprocess, sys, tempfile, time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, 'tcp'))
sys.dont_write_bytecode = True
import net

RATES = {'1gbit': 1e9, '10gbit': 1e10}
WIDTHS = {1: 512, 10: 1024, 100: 2048}            # of a layer, by millions of parameters
WAYS = ['gloo', 'coll', 'bf16', 'alone']
UNIT = {'f32': 2 ** -24, 'bf16': 2 ** -9}         # of rounding
BATCH = 4
ROW = '%-6s %5s %5s %8s %5s  %-6s %-24s %-18s %-10s %s'


# ---- a process

def layers(millions):
    import torch
    width = max(w for least, w in WIDTHS.items() if least <= max(millions, 1))
    count = max(round(millions * 1e6 / (width * width)), 1)
    torch.manual_seed(1)
    return torch.nn.Sequential(*(torch.nn.Linear(width, width) for _ in range(count))), width


class Way:
    """A model, and how its gradients are summed."""

    def __init__(self, name, model):
        import torch
        self.name, self.model = name, model
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-4)

    def backward(self, x):
        self.optimizer.zero_grad()
        self.model(x).square().mean().backward()

    def step(self, x):
        if self.name == 'alone':
            with self.model.no_sync():
                self.backward(x)
        else:
            self.backward(x)
        self.optimizer.step()


def with_ddp(name, model, group):
    import coll_torch
    from torch.nn.parallel import DistributedDataParallel
    model = DistributedDataParallel(model, process_group=group, gradient_as_bucket_view=True)
    if name == 'bf16':
        model.register_comm_hook(coll_torch.Wire('bf16', group=group), coll_torch.wire_hook)
    return Way(name, model)


def with_fsdp(name, model, group, dtype):
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
    settings = {'mesh': DeviceMesh.from_group(group, 'cpu'), 'mp_policy': MixedPrecisionPolicy(param_dtype=dtype)}
    for layer in model:
        fully_shard(layer, **settings)
    return Way(name, fully_shard(model, **settings))


def whole(parameter):
    """Its gradient, or this rank's shard of it."""
    gradient = parameter.grad
    return gradient.to_local() if hasattr(gradient, 'to_local') else gradient


def furthest(way, other):
    """The largest difference of two gradients, and the largest gradient."""
    pairs = [(whole(p), whole(q)) for p, q in zip(way.model.parameters(), other.model.parameters())]
    return max(float((g - h).abs().max()) for g, h in pairs), max(float(h.abs().max()) for _, h in pairs)


def most(*values):
    """The largest of all ranks."""
    import torch, torch.distributed as dist
    x = torch.tensor(values, dtype=torch.float64)
    dist.all_reduce(x, dist.ReduceOp.MAX)
    return x.tolist()


def adds(group, dtype, rank, size):
    """Whole numbers, whose sums have few bits: every result is exact."""
    import torch, torch.distributed as dist
    numbers = torch.arange(100003) % 13
    x = (numbers + rank).to(dtype)
    dist.all_reduce(x, group=group)
    if not torch.equal(x, (size * numbers + size * (size - 1) // 2).to(dtype)):
        raise SystemExit('ddp.py: the sum of whole numbers is wrong on rank %d' % rank)


def block(way, x, steps):
    """Seconds a step, and of processors: those of the slowest ranks."""
    import torch.distributed as dist
    dist.barrier()
    began, worked = time.perf_counter(), time.process_time()
    for _ in range(steps):
        way.step(x)
    return [v / steps for v in most(time.perf_counter() - began, time.process_time() - worked)]


def measured(o, cell, groups, rank, size):
    """What rank 0 prints of a model, a number of parameters and a type."""
    import torch
    dtype = {'f32': torch.float32, 'bf16': torch.bfloat16}[cell['type']]
    plain, width = layers(cell['million'])
    x = torch.randn(BATCH, width, generator=torch.Generator().manual_seed(rank))
    if cell['model'] == 'ddp':
        plain, x = plain.to(dtype), x.to(dtype)
    parameters, ways = sum(p.numel() for p in plain.parameters()), {}
    for name in cell['ways']:
        if name == 'alone':
            ways[name] = Way(name, ways['gloo'].model)
        elif cell['model'] == 'ddp':
            ways[name] = with_ddp(name, copy.deepcopy(plain), groups[name])
        else:
            ways[name] = with_fsdp(name, copy.deepcopy(plain), groups[name], dtype)
    for name, way in ways.items():
        if name != 'alone':
            adds(groups[name], dtype, rank, size)
            way.backward(x)
    apart = {name: most(*furthest(ways[name], ways['gloo'])) for name in ways if name in ('coll', 'bf16')}
    for name, (difference, largest) in apart.items():
        if not difference <= 4 * size * UNIT['bf16' if name == 'bf16' else cell['type']] * largest:
            raise SystemExit('ddp.py: gradients of %s differ from those of gloo by %g of %g' % (name, difference, largest))
    took, steps = {name: [] for name in ways}, {}
    for name, way in ways.items():                # DDP makes its buckets again after the first step
        way.step(x)
        steps[name] = max(int(o.seconds / block(way, x, 1)[0]), 1)
    for n in range(o.blocks):
        turn = n % len(ways)
        for name in cell['ways'][turn:] + cell['ways'][:turn]:
            took[name].append(block(ways[name], x, steps[name]))
    return {'cell': cell, 'took': took, 'apart': apart, 'parameters': parameters}


def process(o):
    import torch, torch.distributed as dist
    torch.set_num_threads(1)
    rank, size = int(os.environ['RANK']), int(os.environ['WORLD_SIZE'])
    dist.init_process_group('gloo', init_method='file://' + o.store, rank=rank, world_size=size)
    coll = dist.new_group(backend='coll')
    for cell in json.loads(o.cells):
        said = measured(o, cell, {'gloo': dist.group.WORLD, 'coll': coll, 'bf16': coll}, rank, size)
        gc.collect()
        if rank == 0:
            print(json.dumps(said), flush=True)
    dist.barrier()


# ---- all of them

def run(o, place, ranks, cells, hosts):
    """Print the rows of the cells.  hosts: [(namespace, interface)], of which each has as many processes; None is this one."""
    with tempfile.TemporaryDirectory() as folder:
        running = []
        for rank in range(ranks):
            space, interface = hosts[rank * len(hosts) // ranks]
            command = [sys.executable, os.path.abspath(__file__), '--process', os.path.join(folder, 'store'),
                       '--cells', json.dumps(cells), '--blocks', str(o.blocks), '--seconds', str(o.seconds)]
            env = {k: v for k, v in os.environ.items() if not k.startswith('COLL_') or o.keep}
            env.update(RANK=str(rank), WORLD_SIZE=str(ranks), GLOO_SOCKET_IFNAME=interface, OMP_NUM_THREADS='1',
                       PYTHONPATH=os.path.abspath(o.torch), PYTHONWARNINGS='ignore')
            running.append(subprocess.Popen((net.inside(space) if space else []) + command, env=env, text=True,
                                            stdout=subprocess.PIPE if rank == 0 else subprocess.DEVNULL))
        for line in running[0].stdout:
            report(place, ranks, json.loads(line))
        failed = [rank for rank, p in enumerate(running) if p.wait()]
    if failed:
        raise SystemExit('ddp.py: the processes of ranks %s have failed' % failed)


def milliseconds(took):
    low, middle, high = statistics.quantiles(took, n=4) if len(took) > 1 else took * 3
    return '%.4g (%.4g-%.4g)' % (1e3 * statistics.median(took), 1e3 * low, 1e3 * high)


def ratios(took, beside):
    found = [a / b for a, b in zip(took, beside)]
    return '%.2f [%.2f %.2f]' % (statistics.median(found), min(found), max(found))


def report(place, ranks, said):
    cell, apart = said['cell'], said['apart']
    took = {name: [seconds for seconds, _ in of] for name, of in said['took'].items()}
    for name in took:
        worked = 1e3 * statistics.median(processors for _, processors in said['took'][name])
        far = '%.1e of %.1e' % tuple(apart[name]) if name in apart else ''
        print(ROW % (place, ranks, cell['model'], '%.1f' % (said['parameters'] / 1e6), cell['type'], name,
                     milliseconds(took[name]), ratios(took[name], took['gloo']), '%.4g' % worked, far), flush=True)


def enough_memory(ranks, million):
    with open('/proc/meminfo') as file:
        free = next(int(line.split()[1]) * 1024 for line in file if line.startswith('MemAvailable'))
    return ranks * (7 * 4 * million * 1e6 + 3e8) < 0.9 * free     # weights and gradients of three models, and the first weights


def ways_of(o, model, kind):
    """All that there are of this model and type."""
    left_out = ([] if model == 'ddp' else ['alone']) + ([] if model == 'ddp' and kind == 'f32' else ['bf16'])
    return [name for name in WAYS if name == 'gloo' or name in o.ways.split(',') and name not in left_out]


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument('--torch', default=os.path.join(HERE, '..', 'build', 'torch'))
    p.add_argument('--ranks', default='2,4')
    p.add_argument('--places', default='host,1gbit,10gbit')
    p.add_argument('--models', default='ddp,fsdp')
    p.add_argument('--millions', default='10,100')
    p.add_argument('--types', default='f32,bf16')
    p.add_argument('--ways', default=','.join(WAYS))
    p.add_argument('--blocks', type=int, default=7)
    p.add_argument('--seconds', type=float, default=1, help='of a block, if a step is not longer')
    p.add_argument('--keep', action='store_true', help='keep the variables COLL_... of the environment')
    p.add_argument('--process', dest='store', help=argparse.SUPPRESS)
    p.add_argument('--cells', help=argparse.SUPPRESS)
    o = p.parse_args()
    if o.store:
        return process(o)
    cells = [{'model': model, 'million': float(million), 'type': kind, 'ways': ways_of(o, model, kind)}
             for model in o.models.split(',') for million in o.millions.split(',') for kind in o.types.split(',')]
    print(ROW % ('place', 'ranks', 'model', 'million', 'type', 'way', 'ms a step (quartiles)', 'of gloo [lo hi]', 'processor',
                 'gradients differ by'))
    for place in o.places.split(','):
        no_space = net.why_not() if place in RATES else None
        for ranks in map(int, o.ranks.split(',')):
            why_not = no_space or ('' if enough_memory(ranks, max(c['million'] for c in cells)) else 'not enough memory')
            if why_not:
                print('%-6s %5s  left out: %s' % (place, ranks, why_not))
            elif place == 'host':
                run(o, place, ranks, cells, [(None, 'lo')])
            else:
                with net.Namespaces('ddp') as space:
                    run(o, place, ranks, cells, [(name, net.INTERFACE) for name, _ in space.hosts(2, RATES[place])])


if __name__ == '__main__':
    main()
