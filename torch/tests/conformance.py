"""conformance.py - PyTorch's own tests of back ends (torch.testing._internal.distributed.distributed_test), one by one.

    BACKEND=coll WORLD_SIZE=2 python3 conformance.py [NAME...]         one line a test: ok, skipped or FAILED, and its name

With BACKEND=gloo the same tests run over Gloo.  Logs of what failed are in $CONFORMANCE_LOGS.
"""
import os
import subprocess
import sys
import tempfile

BEHIND = "--behind"


def prepare():
    """The module of the tests, which looks at BACKEND as it is imported."""
    if os.environ["BACKEND"] == "coll":
        import coll_torch  # noqa: F401
        from torch.testing._internal.common_distributed import DistTestCases
        import torch.testing._internal.common_distributed as common
        DistTestCases.backend_feature["plugin"].add("coll")
        for feature in ("ddp", "subgroup"):
            DistTestCases.backend_feature[feature].add("coll")
        for refused in DistTestCases.skip_collective.values():
            refused.discard("coll")
        del common
    from torch.testing._internal.distributed import distributed_test
    return distributed_test


tests = prepare()


class Conformance(tests.TestDistBackend, tests.DistributedTest._DistTestBase):
    """As upstream's test_distributed_spawn.py: every rank is a process that is spawned."""

    def setUp(self):
        super().setUp()
        self._spawn_processes()
        import torch
        torch.backends.cudnn.flags(enabled=True, allow_tf32=False).__enter__()


def main():
    from torch.testing._internal.common_utils import run_tests
    if BEHIND in sys.argv:
        sys.argv.remove(BEHIND)
        run_tests()
    wanted = sys.argv[1:] or sorted(name for name in dir(Conformance) if name.startswith("test_"))
    logs = os.environ.get("CONFORMANCE_LOGS") or tempfile.mkdtemp(prefix="conformance-")
    os.makedirs(logs, exist_ok=True)
    limit = int(os.environ.get("CONFORMANCE_LIMIT", "120"))
    sums = {"ok": 0, "skipped": 0, "FAILED": 0}
    for name in wanted:
        with tempfile.TemporaryDirectory() as folder:
            os.mkdir(os.path.join(folder, "barrier")), os.mkdir(os.path.join(folder, "test_dir"))
            environment = dict(os.environ, TEMP_DIR=folder)
            path = os.path.join(logs, name + ".log")
            with open(path, "w+") as log:
                try:
                    status = subprocess.run([sys.executable, __file__, BEHIND, "Conformance." + name], stdout=log,
                                            stderr=subprocess.STDOUT, env=environment, timeout=limit).returncode
                except subprocess.TimeoutExpired:
                    status = -1
                log.seek(0)
                text = log.read()
        verdict = "FAILED" if status else "skipped" if "skipped=1" in text else "ok"
        if verdict != "FAILED":
            os.remove(path)
        sums[verdict] += 1
        print(verdict, name, flush=True)
    print(f"{sums['ok']} passed, {sums['FAILED']} failed, {sums['skipped']} skipped", file=sys.stderr)
    sys.exit(sums["FAILED"] > 0)


if __name__ == "__main__":
    main()
