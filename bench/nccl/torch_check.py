"""torch_check.py - torch.distributed with "cpu:coll,cuda:nccl": a process group of one rank on one GPU.

Tensors on the processor go through coll, those on the GPU through NCCL, in one group; both give the same sums.
gpu_check.sh runs it with build/torch in PYTHONPATH."""

import tempfile

import coll_torch  # noqa: F401  (registers the back end)
import torch
import torch.distributed as dist


def main():
    with tempfile.NamedTemporaryFile() as file:
        dist.init_process_group("cpu:coll,cuda:nccl", init_method="file://" + file.name, rank=0, world_size=1)
        torch.cuda.set_device(0)
        for kind in (torch.float32, torch.float16, torch.bfloat16):
            host = torch.arange(1000).to(kind)
            device = host.cuda()
            expected = host.clone()
            dist.all_reduce(host)
            dist.all_reduce(device)
            torch.cuda.synchronize()
            assert torch.equal(host, expected), "coll, " + str(kind)
            assert torch.equal(device.cpu(), expected), "NCCL, " + str(kind)
        group = dist.group.WORLD
        names = [group._get_backend(torch.device(place)).name() for place in ("cpu", "cuda")]
        assert [name.lower() for name in names] == ["coll", "nccl"], names
        dist.destroy_process_group()
    print("ok - cpu:coll,cuda:nccl of torch", torch.__version__)


if __name__ == "__main__":
    main()
