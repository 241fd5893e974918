"""coll_torch - torch.distributed over coll.h.

    import torch.distributed as dist
    dist.init_process_group("coll")

PyTorch finds the back end by an entry point of this package; `import coll_torch` is needed only if there is none.  docs/torch.md
of the repository describes it.
"""


def register():
    """Make the back end known to torch.distributed.  This loads nothing else: PyTorch 2.13 calls it in each `import torch`."""
    import torch.distributed as dist

    if dist.is_available() and "coll" not in dist.Backend.backend_list:
        dist.Backend.register_backend("coll", _create, extended_api=True, devices=["cpu"])


def _create(options, _backend_options=None):
    from . import groups
    return groups.create(options)


_NAMES = {"ProcessGroupColl": "groups", "abort": "groups", "monitored_barrier": "groups", "_of": "groups",
          "__version__": "groups", "Wire": "hooks", "wire_hook": "hooks", "Leaves": "leaves", "sum_leaves": "leaves"}


def __getattr__(name):
    import importlib

    if name == "_c":
        return importlib.import_module("._c", __name__)
    if name not in _NAMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module("." + _NAMES[name], __name__), name)


import torch  # noqa: E402,F401          calls register() itself, in a module that is not complete

register()
