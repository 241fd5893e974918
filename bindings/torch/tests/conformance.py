"""conformance.py - PyTorch's own tests of back ends (torch.testing._internal.distributed.distributed_test), one by one.

    BACKEND=coll WORLD_SIZE=2 python3 conformance.py [NAME...]         one line a test: ok, skipped or FAILED, and its name
    python3 conformance.py --table [RANKS...]                          the table conformance.txt, of Gloo and coll (15 minutes)

With BACKEND=gloo the same tests run over Gloo.  Errors are printed on stderr.
"""
import contextlib
import os
import subprocess
import sys
import tempfile
import unittest

import torch

os.environ.setdefault("TEMP_DIR", tempfile.gettempdir())
os.environ.setdefault("OMP_NUM_THREADS", "1")
names = sys.argv[1:]                              # torch reads the rest as it is imported
sys.argv = sys.argv[:1]


def prepare():
    """The module of the tests.  As it is imported it reads BACKEND, and leaves out the tests that it allows only for Gloo; so it
    sees Gloo then, and coll is tested with all that Gloo is tested with."""
    backend, os.environ["BACKEND"] = os.environ["BACKEND"], "gloo"
    if backend == "coll":
        import coll_torch
        torch.distributed.monitored_barrier = coll_torch.monitored_barrier
    import torch.testing._internal.common_distributed as common
    from torch.testing._internal.distributed import distributed_test
    common.DistTestCases.backend_feature["plugin"].add("coll")
    common.TIMEOUT_DEFAULT = 100                  # seconds
    common.TIMEOUT_OVERRIDE.clear()
    os.environ["BACKEND"] = distributed_test.BACKEND = backend
    return distributed_test


def table(numbers):
    """One row a test, one column for each back end on each number of ranks."""
    columns = [(ranks, backend) for ranks in numbers for backend in ("gloo", "coll")]
    rows = {}
    for ranks, backend in columns:
        said = subprocess.run([sys.executable, os.path.abspath(__file__)], stdout=subprocess.PIPE, text=True,
                              env={**os.environ, "BACKEND": backend, "WORLD_SIZE": ranks}).stdout
        for line in said.splitlines():
            conclusion, _, name = line.partition(" ")
            if name.startswith("test_"):
                rows.setdefault(name, {})[ranks, backend] = conclusion
    width = max(map(len, rows)) + 1
    print(f"# PyTorch {torch.__version__}: torch/testing/_internal/distributed/distributed_test.py by conformance.py --table")
    print("# test, and on how many ranks".ljust(width), *(f"{backend} {ranks}".ljust(8) for ranks, backend in columns))
    for name in sorted(rows):
        print(name.ljust(width), *(rows[name].get(column, "-").ljust(8) for column in columns))


if names[:1] == ["--table"]:
    sys.exit(table(names[1:] or ["2", "3", "4"]))
tests = prepare()


class Conformance(tests.TestDistBackend, tests.DistributedTest._DistTestBase):
    """Every rank is a process that is forked: sooner there than one that is spawned."""

    def setUp(self):
        super().setUp()
        self._start_processes(torch.multiprocessing.get_context("fork").Process)

    def tearDown(self):
        """torch makes the file of the store, and leaves it."""
        super().tearDown()
        with contextlib.suppress(FileNotFoundError):
            os.remove(self.file_name)

    def _test_accumulate_gradients_no_sync(self, *words, **settings):
        """It derives the memory of the model from BACKEND, and knows only the names of torch's own back ends."""
        backend, tests.BACKEND = tests.BACKEND, "gloo"
        super()._test_accumulate_gradients_no_sync(*words, **settings)
        tests.BACKEND = backend

    def test_ddp_logging_data_cpu(self):
        """DistributedDataParallel logs the name "custom" for every plugin, and the test expects dist.get_backend()."""
        known = tests.dist.get_backend
        if tests.BACKEND == "coll":
            tests.dist.get_backend = lambda group=None: {"coll": "custom"}.get(known(group), known(group))
        super().test_ddp_logging_data_cpu()
        tests.dist.get_backend = known


def ask_for_what_gloo_lacks():
    """all_to_all in the memory of the CPU, which the file tests only for MPI."""
    for name in dir(Conformance):
        test = getattr(Conformance, name)
        if getattr(test, "__unittest_skip_why__", "").startswith("Only MPI supports"):
            test.__unittest_skip__ = False


class Told(unittest.TextTestResult):
    """A line for each test."""
    sums = {"ok": 0, "FAILED": 0, "skipped": 0}

    def tell(self, conclusion, test):
        self.sums[conclusion] += 1
        print(conclusion, test._testMethodName, flush=True)

    def addSuccess(self, test):
        super().addSuccess(test)
        self.tell("ok", test)

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        self.tell("skipped", test)

    def addFailure(self, test, error):
        super().addFailure(test, error)
        self.tell("FAILED", test)

    def addError(self, test, error):
        super().addError(test, error)
        self.tell("FAILED", test)


def main():
    if tests.BACKEND == "coll":
        ask_for_what_gloo_lacks()
    wanted = names or sorted(name for name in dir(Conformance) if name.startswith("test_"))
    suite = unittest.TestSuite(Conformance(name) for name in wanted)
    unittest.TextTestRunner(stream=sys.stderr, resultclass=Told).run(suite)
    print("{ok} passed, {FAILED} failed, {skipped} skipped".format(**Told.sums))
    sys.exit(Told.sums["FAILED"] > 0)


if __name__ == "__main__":
    main()
