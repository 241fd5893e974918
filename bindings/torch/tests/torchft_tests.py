"""torchft_tests.py - torchft's own tests of process groups, with coll_torch.torchft.ProcessGroupColl.

    pip install torchft-nightly && python3 -m unittest torchft_tests          in this folder
"""
import datetime
import unittest

from coll_torch.torchft import ProcessGroupColl
from torchft import process_group_test as theirs


class CollMultiPgTest(theirs.MultiPgBaseTest):
    """All ranks are threads of one process."""
    BACKEND = "coll"
    WORLD_SIZE = 3

    @classmethod
    def _create_pg(cls, backend):
        return ProcessGroupColl(timeout=datetime.timedelta(seconds=10))

    def assertRaisesRegex(self, kind, words, *rest, **more):
        """They expect the words of Gloo and NCCL."""
        return super().assertRaisesRegex(kind, words + "|rank 2 has left", *rest, **more)


def collective(name):
    return lambda self: self._run_parallel(name, device="cpu")


def resilient(name):
    return lambda self: self._run_with_resiliency(name, device="cpu")


for name in theirs._ALL_COLLECTIVES:
    setattr(CollMultiPgTest, "test_collective_" + name, collective(name))
    setattr(CollMultiPgTest, "test_resilient_" + name, resilient(name))
del theirs.ProcessGroupTest, theirs.CreateStoreClientTest

if __name__ == "__main__":
    unittest.main()
