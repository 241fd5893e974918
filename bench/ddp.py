#!/usr/bin/env python3
"""A step of training under DistributedDataParallel: this library's back end of torch.distributed and Gloo's, in the same
processes.

usage: ddp.py [--torch build/torch] [--ranks 2,4] [--millions 10,100] [--places host,1gbit] [--blocks 7]
              [--seconds 1]

A model of so many million parameters, layers of nn.Linear with little to compute in them, is trained by as many processes, one
thread each.  Each has a model for every way, with the same weights: Gloo, coll, coll over a wire of bf16; `alone` is a step of
Gloo's model without its messages.  First the gradients of one step are compared.  Then come rounds: in each all ways have a block
of steps (forward, backward with the sums of gradients, SGD), beginning with another one each time.  Printed are the median of a
step over the blocks and its quartiles, of the ratios to Gloo of the same round the median, lowest and highest, and the median of
the processors' time that a step takes of a process, with all its threads: it says more than the other on a machine with others.

    host     the processes of this host
    1gbit    two network namespaces with half of the processes each, joined by links of 1 Gbit/s (root; iproute2)

Takes PyTorch with Gloo, `make torch`, and memory: 100 million parameters are 2.6 GB a process."""
import argparse, copy, json, os, statistics, subprocess, sys, tempfile, time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, 'tcp'))
sys.dont_write_bytecode = True
import net

GIGABIT = 1e9
WIDTHS = {1: 512, 10: 1024, 100: 2048}            # of a layer, by millions of parameters
WAYS = ['gloo', 'coll', 'bf16', 'alone']
BATCH = 4
ROW = '%-6s %5s %8s  %-6s %-24s %-18s %-10s %s'


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
        import coll_torch, torch
        self.name, self.model = name, model
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-4)
        if name == 'bf16':
            model.register_comm_hook(coll_torch.Wire('bf16', group=model.process_group), coll_torch.wire_hook)

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


def furthest(way, other):
    """The largest difference of two gradients, and the largest gradient."""
    pairs = [(p.grad, q.grad) for p, q in zip(way.model.parameters(), other.model.parameters())]
    return max(float((g - h).abs().max()) for g, h in pairs), max(float(h.abs().max()) for _, h in pairs)


def most(*values):
    """The largest of all ranks."""
    import torch, torch.distributed as dist
    x = torch.tensor(values, dtype=torch.float64)
    dist.all_reduce(x, dist.ReduceOp.MAX)
    return x.tolist()


def block(way, x, steps):
    """Seconds a step, and of processors: those of the slowest ranks."""
    import torch.distributed as dist
    dist.barrier()
    began, worked = time.perf_counter(), time.process_time()
    for _ in range(steps):
        way.step(x)
    return [v / steps for v in most(time.perf_counter() - began, time.process_time() - worked)]


def process(o):
    import torch, torch.distributed as dist
    torch.set_num_threads(1)
    rank, size = int(os.environ['RANK']), int(os.environ['WORLD_SIZE'])
    import coll_torch  # noqa: F401
    from torch.nn.parallel import DistributedDataParallel
    dist.init_process_group('gloo', init_method='file://' + o.store, rank=rank, world_size=size)
    coll, (model, width) = dist.new_group(backend='coll'), layers(o.million)
    ways = {name: Way(name, DistributedDataParallel(copy.deepcopy(model), process_group=group, gradient_as_bucket_view=True))
            for name, group in (('gloo', None), ('coll', coll), ('bf16', coll))}
    ways['alone'] = Way('alone', ways['gloo'].model)
    x = torch.randn(BATCH, width, generator=torch.Generator().manual_seed(rank))
    for name in ('gloo', 'coll', 'bf16'):
        ways[name].backward(x)
    apart = {name: most(*furthest(ways[name], ways['gloo'])) for name in ('coll', 'bf16')}
    took, steps = {name: [] for name in WAYS}, {}
    for name, way in ways.items():                # DDP makes its buckets again after the first step
        way.step(x)
        steps[name] = max(int(o.seconds / block(way, x, 1)[0]), 1)
    for n in range(o.blocks):
        turn = n % len(WAYS)
        for name in WAYS[turn:] + WAYS[:turn]:
            took[name].append(block(ways[name], x, steps[name]))
    if rank == 0:
        print(json.dumps({'took': took, 'apart': apart, 'parameters': sum(p.numel() for p in model.parameters())}), flush=True)
    dist.barrier()


# ---- all of them

def run(o, ranks, million, hosts):
    """The output of rank 0.  hosts: [(namespace, interface)], of which each has as many processes; None is this one."""
    with tempfile.TemporaryDirectory() as folder:
        running = []
        for rank in range(ranks):
            space, interface = hosts[rank * len(hosts) // ranks]
            command = [sys.executable, os.path.abspath(__file__), '--process', os.path.join(folder, 'store'),
                       '--million', str(million), '--blocks', str(o.blocks), '--seconds', str(o.seconds)]
            env = {k: v for k, v in os.environ.items() if not k.startswith('COLL_') or o.keep}
            env.update(RANK=str(rank), WORLD_SIZE=str(ranks), GLOO_SOCKET_IFNAME=interface, OMP_NUM_THREADS='1',
                       PYTHONPATH=os.path.abspath(o.torch), PYTHONWARNINGS='ignore')
            running.append(subprocess.Popen((net.inside(space) if space else []) + command, env=env, text=True,
                                            stdout=subprocess.PIPE if rank == 0 else subprocess.DEVNULL))
        said = running[0].communicate()[0]
        failed = [rank for rank, p in enumerate(running) if p.wait()]
    if failed:
        raise SystemExit('ddp.py: the processes of ranks %s have failed' % failed)
    return json.loads(said.strip().split('\n')[-1])


def milliseconds(took):
    low, middle, high = statistics.quantiles(took, n=4) if len(took) > 1 else took * 3
    return '%.4g (%.4g-%.4g)' % (1e3 * statistics.median(took), 1e3 * low, 1e3 * high)


def ratios(took, beside):
    found = [a / b for a, b in zip(took, beside)]
    return '%.2f [%.2f %.2f]' % (statistics.median(found), min(found), max(found))


def report(place, ranks, said):
    apart = said['apart']
    took = {name: [seconds for seconds, _ in of] for name, of in said['took'].items()}
    for name in WAYS:
        worked = 1e3 * statistics.median(processors for _, processors in said['took'][name])
        far = '%.1e of %.1e' % tuple(apart[name]) if name in apart else ''
        print(ROW % (place, ranks, '%.1f' % (said['parameters'] / 1e6), name, milliseconds(took[name]),
                     ratios(took[name], took['gloo']), '%.4g' % worked, far), flush=True)


def enough_memory(ranks, million):
    with open('/proc/meminfo') as file:
        free = next(int(line.split()[1]) * 1024 for line in file if line.startswith('MemAvailable'))
    return ranks * (6 * 4 * million * 1e6 + 3e8) < 0.9 * free     # weights and gradients of three models


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument('--torch', default=os.path.join(HERE, '..', 'build', 'torch'))
    p.add_argument('--ranks', default='2,4')
    p.add_argument('--millions', default='10,100')
    p.add_argument('--places', default='host,1gbit')
    p.add_argument('--blocks', type=int, default=7)
    p.add_argument('--seconds', type=float, default=1, help='of a block, if a step is not longer')
    p.add_argument('--keep', action='store_true', help='keep the variables COLL_... of the environment')
    p.add_argument('--process', dest='store', help=argparse.SUPPRESS)
    p.add_argument('--million', type=float, help=argparse.SUPPRESS)
    o = p.parse_args()
    if o.store:
        return process(o)
    print(ROW % ('place', 'ranks', 'million', 'way', 'ms a step (quartiles)', 'of gloo [lo hi]', 'processor',
                 'gradients differ by'))
    for place in o.places.split(','):
        no_space = net.why_not() if place == '1gbit' else None
        for ranks, million in ((int(r), float(m)) for m in o.millions.split(',') for r in o.ranks.split(',')):
            why_not = no_space or ('' if enough_memory(ranks, million) else 'not enough memory')
            if why_not:
                print(ROW % (place, ranks, million, 'left out: ' + why_not, '', '', '', ''))
            elif place == 'host':
                report(place, ranks, run(o, ranks, million, [(None, 'lo')]))
            else:
                with net.Namespaces('ddp') as space:
                    hosts = [(name, net.INTERFACE) for name, _ in space.hosts(2, GIGABIT)]
                    report(place, ranks, run(o, ranks, million, hosts))


if __name__ == '__main__':
    main()
