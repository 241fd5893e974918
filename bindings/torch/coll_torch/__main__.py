"""python -m coll_torch (or -m coll.torch) [RANKS]: what is installed, for which PyTorch, and a test of it on some processes."""
import importlib.metadata
import platform
import subprocess
import sys
import tempfile

import torch
import torch.distributed as dist


def describe():
    from . import _c, groups  # noqa: F401

    print(f"coll-torch {_c.VERSION} for PyTorch {_c.TORCH}; this is PyTorch {torch.__version__}, Python {platform.python_version()}")
    found = [group for group in ("torch.backends", "torch.distributed.backends")
             if any(one.name == "coll" for one in importlib.metadata.entry_points(group=group))]
    print("entry points: " + ", ".join(found) if found else
          'there is no entry point: programs must import coll_torch before init_process_group("coll")')


def check(name, got, wanted):
    if not torch.equal(got, wanted):
        raise SystemExit(f"{name}: {got} and not {wanted}")


def rank_of(rank, size, path):
    """One rank.  Inputs are small whole numbers, so the results are exact."""
    dist.init_process_group("coll", init_method="file://" + path, rank=rank, world_size=size)
    total, everyone = size * (size + 1) // 2, torch.arange(1, size + 1)
    for dtype in (torch.float32, torch.bfloat16, torch.int64):
        x = torch.full((1000,), rank + 1, dtype=dtype)
        dist.all_reduce(x)
        check("all_reduce", x, torch.full((1000,), total, dtype=dtype))
        x = torch.empty(size, dtype=dtype)
        dist.all_gather_single(x, torch.full((1,), rank + 1, dtype=dtype))
        check("all_gather_single", x, everyone.to(dtype))
        x = torch.empty(1, dtype=dtype)
        dist.reduce_scatter_single(x, everyone.to(dtype))
        check("reduce_scatter_single", x, torch.full((1,), size * (rank + 1), dtype=dtype))
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1, bias=False))
    model(torch.full((1, 4), float(rank))).sum().backward()
    check("DistributedDataParallel", model.module.weight.grad, torch.full((1, 4), (size - 1) / 2))
    dist.destroy_process_group()


def main():
    if len(sys.argv) == 4:
        return rank_of(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
    describe()
    size = int(sys.argv[1]) if len(sys.argv) > 1 else 2
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "coll_torch", "{}", str(size), folder + "/store"]
        ranks = [subprocess.Popen([part.format(rank) for part in command]) for rank in range(size)]
        failed = [rank for rank, process in enumerate(ranks) if process.wait()]
    if failed:
        sys.exit(f"ranks {', '.join(map(str, failed))} of {size} have failed")
    print(f"all_reduce, all_gather, reduce_scatter and a step of DistributedDataParallel on {size} processes: as expected")


if __name__ == "__main__":
    main()
