"""coll_torch - torch.distributed over coll.h.

    import coll_torch, torch.distributed as dist
    dist.init_process_group("coll")

docs/torch.md of the repository tells what it has.
"""
import atexit
import os
import socket
import weakref

import torch
import torch.distributed as dist

from . import _c

__version__ = _c.VERSION
_groups = weakref.WeakSet()
_inside = weakref.WeakKeyDictionary()             # of a wrapper, see _watched


def _host():
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


def _create(options, _pg_options=None):
    is_world = not options.global_ranks_in_group
    by_library = is_world and (os.environ.get("COLL_ADDR") or os.environ.get("COLL_HOSTS"))
    timeout = options.timeout
    group = _c.create(options.store, options.group_rank, options.group_size,
                      timeout.total_seconds() if hasattr(timeout, "total_seconds") else timeout,
                      str(options.group_id), "" if by_library else _host())
    _groups.add(group)
    return _watched(group, options) if dist.get_debug_level() == dist.DebugLevel.DETAIL else group


def _watched(group, options):
    """TORCH_DISTRIBUTED_DEBUG=DETAIL: inside the wrapper that compares all calls of all ranks before they begin, by Gloo.  torch
    itself puts only its own back ends there."""
    if not dist.is_gloo_available():
        return group
    wrapper = dist.distributed_c10d._create_process_group_wrapper(
        wrapped_pg=group, store_prefix="coll", store=options.store, rank=options.group_rank, world_size=options.group_size,
        timeout=options.timeout)
    _inside[wrapper] = group
    return wrapper


def abort(group=None, why="the program has given up"):
    """End every operation of the group, on all ranks, with this sentence."""
    _c.abort(_of(group), why)


def monitored_barrier(group=None, timeout=None, wait_all_ranks=False):
    """torch.distributed.monitored_barrier, which torch itself allows only for Gloo: names the missing ranks."""
    if group == dist.GroupMember.NON_GROUP_MEMBER:
        return None
    timeout = dist.distributed_c10d.default_pg_timeout if timeout is None else timeout
    return _of(group).monitored_barrier(timeout, wait_all_ranks)


def _of(group):
    """The back end of a group of torch.distributed."""
    group = dist.distributed_c10d._get_default_group() if group is None else group
    group = group._get_backend(torch.device("cpu")) if hasattr(group, "_get_backend") else group
    return _inside.get(group, group)


@atexit.register
def _close():
    for group in list(_groups):
        _c.close(group)


_c.register(_create)

from .hooks import Wire, wire_hook  # noqa: E402,F401
