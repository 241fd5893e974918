"""suites.py - test files of PyTorch's repository (its folder test/distributed), over Gloo and over coll.

    python3 suites.py [--ranks 2,3,4] FOLDER FILE...          a table: one row a test, one column a back end and number of ranks

The files are not in PyTorch's package: FOLDER is from a checkout or a source package.  A file is run with the number of ranks
that its classes want, or with each of --ranks.  Gloo, which the tests choose for CPUs, is replaced by coll in the second run of
each.  Tests that make no processes (such as those on threads) do not use a back end and are left out.  A row whose test does not
pass says why.  The command fails if a test passes over Gloo and not over coll.

    BACKEND=coll python3 suites.py --one FOLDER FILE [TEST...]    one line a test, and the errors on stderr
"""
import argparse
import contextlib
import functools
import importlib.util
import os
import re
import subprocess
import sys
import tempfile
import unittest

os.environ.setdefault("OMP_NUM_THREADS", "1")
MINUTES = 15                                      # for a file
EXCEPTIONS = {"test_sequence_numbers": "ProcessGroup of 2.13 returns numbers of torch's own back ends only",
              "test_reconfigure_after_abort": "get_error is COMM_ERROR, as over NCCL; Gloo's abort does nothing",
              **{f"{name}_thread_count_{count}": "a ShardedTensor without shards is on the CPU if the back end is named gloo"
                 for count in (1, 2) for name in ("test_load_rowwise_to_colwise", "test_load_with_different_shard_plan",
                                                  "test_switch_between_sharded_tensor_to_tensor")}}


# ---- the tests of a file

def other_name(backend):
    """The back end that a test names, with coll instead of Gloo."""
    return "cpu:coll" if backend is None else backend.replace("gloo", "coll") if isinstance(backend, str) else backend


def replace_gloo(torch):
    """Everywhere: the functions are imported by name in some modules."""
    from torch.distributed import device_mesh, distributed_c10d
    init, new = distributed_c10d.init_process_group, distributed_c10d.new_group

    @functools.wraps(init)
    def init_process_group(backend=None, *words, **options):
        return init(other_name(backend), *words, **options)

    @functools.wraps(new)
    def new_group(ranks=None, timeout=None, backend=None, *words, **options):
        return new(ranks, timeout, backend and other_name(backend), *words, **options)

    for module in (torch.distributed, distributed_c10d, device_mesh):
        for name, function in (("init_process_group", init_process_group), ("new_group", new_group)):
            if hasattr(module, name):
                setattr(module, name, function)


def prepare(folder, backend, ranks):
    """Processes are forked, so that what is replaced here is replaced there; the classes with processes are returned."""
    import torch
    import torch.testing._internal.common_distributed as common
    torch.multiprocessing.set_start_method("fork")
    common.MultiProcessTestCase._spawn_processes = lambda self: self._start_processes(
        torch.multiprocessing.get_context("fork").Process)
    common.TIMEOUT_DEFAULT = 100                  # seconds
    common.TIMEOUT_OVERRIDE.clear()
    sys.path[:0] = [folder]
    if backend == "coll":
        import coll_torch
        torch.distributed.monitored_barrier = coll_torch.monitored_barrier
        replace_gloo(torch)
    with contextlib.suppress(ImportError):
        import c10d_backend_common as suites
        suites.C10D_BACKENDS = tuple(one for one in suites.C10D_BACKENDS if one.name == "gloo")
        if backend == "coll":
            known = {"supports_coalescing", "supports_bitwise_reductions", "supports_dropped_p2p_work",
                     "supports_collectives_timing", "supports_sequence_numbers", "supports_work_sequence_number",
                     "supports_work_result", "supports_gather_single"} & set(suites.BackendConfig.__dataclass_fields__)
            suites.C10D_BACKENDS = (suites.BackendConfig("coll", "cpu", **dict.fromkeys(known, True)),)
    return common.MultiProcessTestCase, common.MultiProcContinuousTest


class Told(unittest.TextTestResult):
    """A line for each test: how it ended, its name and the reason."""

    def tell(self, conclusion, test, why=""):
        name = re.sub("^(Gloo|Coll)", "", type(test).__name__) + "." + test._testMethodName
        print(conclusion, name, " ".join(why.split())[:90], flush=True)

    def addSuccess(self, test):
        super().addSuccess(test)
        self.tell("ok", test)

    def addExpectedFailure(self, test, error):
        super().addExpectedFailure(test, error)
        self.tell("ok", test)

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        if isinstance(test, unittest.TestCase):   # and not a whole class
            self.tell("skipped", test, reason)

    def addFailure(self, test, error):
        super().addFailure(test, error)
        said = re.findall(r"^[\w.]*(?:Error|Exception|Timeout)\b.*", str(error[1]), re.M)
        said = [one for one in said if not one.startswith("RuntimeError: Process ")]
        self.tell("FAILED", test, said[-1] if said else str(error[1]))

    addError = addFailure


def one_file(folder, file, wanted):
    backend, ranks = os.environ["BACKEND"], os.environ.get("RANKS")
    kinds = prepare(folder, backend, ranks)
    path = os.path.join(folder, file)
    sys.path[:0] = [os.path.dirname(path)]
    name = os.path.splitext(os.path.basename(file))[0]
    spec = importlib.util.spec_from_file_location(name, path)
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    suite = unittest.TestSuite()
    for key, one in sorted(vars(module).items()):
        if isinstance(one, type) and issubclass(one, kinds) and one.__module__ == name:
            if ranks:
                one.world_size = property(lambda self: int(ranks))
            suite.addTests(test for test in unittest.defaultTestLoader.loadTestsFromTestCase(one)
                           if not wanted or test._testMethodName in wanted)
    unittest.TextTestRunner(stream=sys.stderr, resultclass=Told).run(suite)


# ---- the table

def conclusions(folder, file, backend, ranks):
    """{test: (how it ended, why)}; of a file that cannot be loaded one line"""
    env = {**os.environ, "BACKEND": backend, "RANKS": ranks}
    with tempfile.TemporaryDirectory() as scratch, tempfile.TemporaryFile("w+") as errors:
        env["TMPDIR"] = scratch
        process = subprocess.Popen([sys.executable, os.path.abspath(__file__), "--one", folder, file], env=env, text=True,
                                   stdout=subprocess.PIPE, stderr=errors, start_new_session=True)
        try:
            said = process.communicate(timeout=60 * MINUTES)[0]
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, 9)
            said = process.communicate()[0]
        errors.seek(0)
        last = [line for line in errors.read().splitlines() if line][-1:]
    found = {}
    for line in said.splitlines():
        words = line.split(" ", 2)
        if words[0] in ("ok", "skipped", "FAILED") and len(words) > 1:
            found[words[1]] = words[0], words[2] if len(words) > 2 else ""
    if not found and process.returncode:
        found["(the file)"] = "FAILED", last[0][:90] if last else ""
    return found


def table(folder, files, numbers):
    import torch
    columns = [(backend, ranks) for ranks in numbers for backend in ("gloo", "coll")]
    print(f"# PyTorch {torch.__version__}: files of test/distributed by suites.py"
          + (f" --ranks {','.join(numbers)}" if numbers != [""] else ""))
    print("# " + " ".join(f"{backend} {ranks}".strip().ljust(8) for backend, ranks in columns) + " test")
    worse, sums = [], {column: 0 for column in columns}
    for file in files:
        found = {(backend, ranks): conclusions(folder, file, backend, ranks) for backend, ranks in columns}
        if not any(found.values()):
            print(f"# {file}: no tests with processes", flush=True)
            continue
        worse += [f"{file}: no test ran over {backend}" for backend, ranks in columns if not found[backend, ranks]]
        for name in sorted({name for column in columns for name in found[column]}):
            ends = [found[column].get(name, ("-", "")) for column in columns]
            for column, (conclusion, _) in zip(columns, ends):
                sums[column] += conclusion == "ok"
            worse += [f"{file} {name} {ranks}".strip() for backend, ranks in columns
                      if found["gloo", ranks].get(name, "-")[0] == "ok" != found["coll", ranks].get(name, "-")[0]
                      and name.split(".")[-1] not in EXCEPTIONS]
            reason = next((why for conclusion, why in reversed(ends) if conclusion != "ok"), "")
            reason = reason and EXCEPTIONS.get(name.split(".")[-1], reason)
            print("  " + " ".join(conclusion.ljust(8) for conclusion, _ in ends), f"{file} {name}", reason and "# " + reason,
                  flush=True)
    print("# pass: " + ", ".join(f"{backend} {ranks}".strip() + f" {sums[backend, ranks]}" for backend, ranks in columns))
    for one in sorted(set(worse)):
        print("# wrong:", one if "no test" in one else one + " passes over Gloo only")
    return bool(worse)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--one", action="store_true")
    p.add_argument("--ranks", default="")
    p.add_argument("folder")
    p.add_argument("files", nargs="+")
    o = p.parse_args()
    sys.argv[1:] = []                             # torch reads it as it is imported
    if o.one:
        return one_file(os.path.abspath(o.folder), o.files[0], o.files[1:])
    return table(os.path.abspath(o.folder), o.files, o.ranks.split(","))


if __name__ == "__main__":
    sys.exit(main())
