"""Process groups of torch.distributed over coll.h."""
import atexit
import datetime
import os
import socket

import torch
import torch.distributed as dist

try:
    from . import _c
except ImportError as error:
    if "undefined symbol" not in str(error):
        raise
    raise ImportError(f"coll_torch was compiled for another PyTorch than {torch.__version__}: install the coll-torch that fits, "
                      f"or compile it again ({error})") from None

__version__ = _c.VERSION
ProcessGroupColl = _c.ProcessGroupColl


def host():
    """The address of this host for other ranks: that from which it reaches MASTER_ADDR, or that of its own name."""
    if any(os.environ.get(name) for name in ("COLL_NETWORK", "NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME")):
        return "*"                                # the library chooses among its addresses
    try:
        for family, kind, _, _, address in socket.getaddrinfo(os.environ.get("MASTER_ADDR") or socket.gethostname(), 9,
                                                              type=socket.SOCK_DGRAM):
            with socket.socket(family, kind) as probe:
                try:
                    probe.connect(address)
                    own = probe.getsockname()[0]
                    return f"[{own}]" if ":" in own else own
                except OSError:
                    continue
    except OSError:
        pass
    return "127.0.0.1"


def create(options):
    """The group that torch.distributed wants (_DistributedBackendOptions)."""
    is_world = not options.global_ranks_in_group
    is_alone = getattr(options, "enable_reconfigure", False)                # from 2.14 on
    by_library = is_world and not is_alone and (os.environ.get("COLL_ADDR") or os.environ.get("COLL_HOSTS"))
    group = ProcessGroupColl(options.store, options.group_rank, options.group_size, options.timeout, str(options.group_id),
                             "" if by_library else host(), is_alone)
    group.options.global_ranks_in_group = options.global_ranks_in_group
    return group


def abort(group=None, why="the program has given up"):
    """End every operation of the group, on all ranks, with this sentence."""
    _of(group)._end(why)


def monitored_barrier(group=None, timeout=None, wait_all_ranks=False):
    """torch.distributed.monitored_barrier, which torch itself allows only for Gloo: names the missing ranks."""
    if group == dist.GroupMember.NON_GROUP_MEMBER:
        return None
    timeout = dist.distributed_c10d.default_pg_timeout if timeout is None else timeout
    return _of(group).monitored_barrier(timeout, wait_all_ranks)


def _of(group):
    """The back end of a group of torch.distributed; TORCH_DISTRIBUTED_DEBUG=DETAIL wraps it."""
    group = dist.distributed_c10d._get_default_group() if group is None else group
    group = group._get_backend(torch.device("cpu")) if hasattr(group, "_get_backend") else group
    return getattr(group, "wrapped_pg", group)


@atexit.register
def _close():
    """Before the interpreter ends: no thread of a group may call Python later."""
    _c.close_all(datetime.timedelta(seconds=10))
