"""torchft's process group: Manager(pg=coll_torch.torchft.ProcessGroupColl(timeout=...), ...)."""
import torch
from torch.distributed import ProcessGroup
from torchft.process_group import ProcessGroupWrapper

from . import groups


class ProcessGroupColl(ProcessGroupWrapper):
    """It is made again with each quorum; abort ends all calls at once."""

    def _create_pg(self, store, rank, world_size):
        group = ProcessGroup(store, rank, world_size)
        group._set_default_backend(ProcessGroup.BackendType.CUSTOM)
        group._register_backend(torch.device("cpu"), ProcessGroup.BackendType.CUSTOM,
                                groups.ProcessGroupColl(store, rank, world_size, self._timeout, "torchft", groups.host()))
        return group

    def getBackendName(self):
        return "torchft-coll"
