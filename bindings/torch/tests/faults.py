"""faults.py - what the user of PyTorch sees if something fails, and that every order of ending a program is clean.

    python3 faults.py [NAME...]         1..N, and one line a test: ok - NAME

Each rank is a process that is forked here, which ends as a program does: with atexit, destructors and the end of the interpreter.
"""
import atexit
import datetime
import os
import pickle
import shutil
import signal
import sys
import tempfile
import threading
import time
import traceback

import torch
import torch._dynamo  # noqa: F401          DistributedDataParallel imports it: once is enough
import torch.distributed as dist
from torch.distributed import distributed_c10d
from torch._C._distributed_c10d import ErrorType

LIMIT = 20                                        # seconds in which every survivor has an error
SIZE = 3                                          # ranks; two in ending_...


def join(name="", rank=None, size=None, timeout=60):
    """Makes the group of all ranks, or of those that survive."""
    dist.init_process_group("coll", init_method=os.environ["FAULTS_INIT"] + name, world_size=size or SIZE,
                            rank=int(os.environ["RANK"]) if rank is None else rank, timeout=datetime.timedelta(seconds=timeout))


def start(timeout=60):
    join(timeout=timeout)
    x = torch.ones(1)
    dist.all_reduce(x)
    assert x.item() == SIZE
    store = distributed_c10d._get_default_store()               # no rank is still inside that call when another one fails
    store.set(f"started/{dist.get_rank()}", "")
    store.wait([f"started/{other}" for other in range(SIZE)])
    return dist.get_rank()


def told(call, *words):
    """The call fails within the limit, as DistBackendError, with these words."""
    began = time.monotonic()
    try:
        call()
    except dist.DistBackendError as error:
        assert isinstance(error, RuntimeError)
        for word in words:
            assert word in str(error), (word, str(error))
        assert "Exception raised from" not in str(error), str(error)         # one sentence, and no stack
        assert time.monotonic() - began < LIMIT, time.monotonic() - began
        return
    raise AssertionError(f"no error with {words}")


def back_end():
    return dist.group.WORLD._get_backend(torch.device("cpu"))


def fault_killed():
    if start() == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    told(lambda: dist.all_reduce(torch.ones(1000)), "rank 1")
    told(lambda: dist.broadcast(torch.ones(1), 0), "rank 1")
    assert back_end().get_error() != ErrorType.SUCCESS


def fault_killed_in_any_call():
    """Every operation that waits for the rank, and every kind of wait."""
    rank = start()
    if rank == 1:
        dist.recv(torch.ones(1), 0)               # the others have begun all of it
        dist.recv(torch.ones(1), 2)
        os.kill(os.getpid(), signal.SIGKILL)
    x, parts, functional = torch.ones(3), torch.ones(3 * SIZE), torch.distributed._functional_collectives
    works = [dist.irecv(torch.ones(1), 1)] + [call(*tensors, async_op=True) for call, *tensors in (
        (dist.all_reduce, x.clone()), (dist.broadcast, x.clone(), 1), (dist.all_gather, list(parts.clone().chunk(SIZE)), x),
        (dist.all_gather_single, parts.clone(), x), (dist.reduce_scatter_single, x.clone(), parts),
        (dist.all_to_all_single, parts.clone(), parts), (dist.barrier,))]
    whole = functional.all_reduce(x, "sum", dist.group.WORLD)
    dist.send(torch.ones(1), 1)
    for work in works:
        told(work.wait, "rank 1")
        assert work.is_completed() and not work.is_success() and "rank 1" in str(work.exception())
    told(lambda: functional.wait_tensor(whole).sum(), "rank 1")
    told(lambda: dist.all_gather_object([None] * SIZE, rank), "rank 1")
    told(dist.barrier, "rank 1")


def fault_then_another_group():
    """The survivors destroy the group, and make another one."""
    rank = start()
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    told(lambda: dist.all_reduce(torch.ones(1)), "rank 1")
    dist.destroy_process_group()
    join(".again", rank // 2, SIZE - 1)
    x = torch.ones(1)
    dist.all_reduce(x)
    assert x.item() == SIZE - 1
    dist.destroy_process_group()


def fault_in_one_group():
    """A group without the dead rank continues."""
    rank = start()
    both = dist.new_group([0, 2])
    dist.barrier()
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    told(lambda: dist.all_reduce(torch.ones(1)), "rank 1")
    x = torch.ones(1)
    dist.all_reduce(x, group=both)
    assert x.item() == 2
    dist.barrier(group=both)


def fault_left():
    """A program that ends as usual while the others wait for it."""
    if start() != 1:
        told(lambda: dist.all_reduce(torch.ones(1)), "rank 1")


class Planned(Exception):
    """Ends the program of a rank, as an exception that nothing catches."""


def fault_raised():
    """The frames of the exception keep an operation that has not ended."""
    if start() == 1:
        work = dist.irecv(torch.ones(1), 0)
        raise Planned(work)
    told(lambda: dist.all_reduce(torch.ones(1)), "rank 1")


def fault_killed_in_ddp():
    rank = start()
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(100, 100))
    model(torch.ones(1, 100)).sum().backward()
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    told(lambda: [model(torch.ones(1, 100)).sum().backward() for _ in range(2)], "rank 1")


def fault_without_the_dead_rank():
    """The others continue in a smaller group."""
    if start() == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    told(lambda: dist.all_reduce(torch.ones(1000)), "rank 0")
    dist.shrink_group([0], shrink_flags=distributed_c10d.SHRINK_ABORT)
    x = torch.full((3,), dist.get_rank() + 1.0)
    dist.all_reduce(x)
    assert dist.get_world_size() == SIZE - 1 and x.tolist() == [3.0] * 3, x
    dist.all_reduce(torch.ones(1), group=dist.new_group())


def fault_stopped():
    """The parent lets it continue at the end."""
    rank = start()
    dist.barrier()
    if rank == 2:
        os.kill(os.getpid(), signal.SIGSTOP)
        told(lambda: dist.all_reduce(torch.ones(1)), "rank")
        return
    told(lambda: dist.all_reduce(torch.ones(1)), "rank 2")


def fault_another_collective():
    rank = start()
    told(lambda: dist.broadcast(torch.ones(3), 0) if rank == 2 else dist.all_reduce(torch.ones(3)),
         "broadcast", "allreduce", "rank 2")


def fault_another_count():
    rank = start()
    told(lambda: dist.all_reduce(torch.ones(3 + rank // 2)), "of 3 x f32", "of 4 x f32")


def fault_timeout():
    rank = start()
    store = distributed_c10d._get_default_store()
    back_end().set_timeout(datetime.timedelta(seconds=1))
    if rank != 1:
        told(lambda: dist.all_reduce(torch.ones(1)), "timeout", "rank")
        assert rank or back_end().get_error() == ErrorType.TIMEOUT
        store.set(f"over/{rank}", "")
    else:
        store.wait(["over/0", "over/2"])
        told(lambda: dist.all_reduce(torch.ones(1)), "rank")


def fault_new_timeout():
    rank = start()
    group = dist.new_group()
    group._get_backend(torch.device("cpu")).set_timeout(datetime.timedelta(milliseconds=300))
    if rank == 0:
        told(lambda: dist.all_reduce(torch.ones(1), group=group), "timeout", "0.3")
    dist.barrier()


def fault_abort_from_a_thread():
    """Without any other rank: it ends calls that wait, at once."""
    rank = start()
    began = time.monotonic()
    if rank == 0:
        threading.Timer(0.2, dist.group.WORLD.abort).start()
    told(lambda: dist.recv(torch.ones(1), (rank + 1) % SIZE), "rank 0 has aborted the process group")
    assert time.monotonic() - began < 5


def fault_as_it_starts():
    """An operation of an aborted group that is destroyed at once ends once, with the first reason."""
    rank = start()
    for _ in range(30):
        group = dist.new_group()
        group.abort()
        work = dist.irecv(torch.ones(1), (rank + 1) % SIZE, group=group)
        future = work.get_future()
        dist.destroy_process_group(group)
        told(work.wait, "has aborted the process group")
        try:
            future.wait()
        except RuntimeError as error:
            assert "has aborted the process group" in str(error), error


def fault_in_a_future():
    if start() == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    future = dist.all_reduce(torch.ones(1), async_op=True).get_future().then(lambda done: done.value()[0] + 1)
    try:
        future.wait()
    except RuntimeError as error:
        assert "rank 1" in str(error), error
        return
    raise AssertionError("no error")


def fault_at_the_start():
    """A rank that never comes."""
    os.environ["TORCH_DIST_INIT_BARRIER"] = "0"
    if os.environ["RANK"] == "1":
        return
    try:
        start(timeout=2)
    except (RuntimeError, dist.DistError) as error:
        assert "rank" in str(error) or "timeout" in str(error).lower() or "Timeout" in str(error), error
        return
    raise AssertionError("no error")


# ---- groups whose members change: PyTorch 2.14 and later

def start_alone():
    """Ranks that know each other's handles, and are not connected."""
    dist.init_process_group("coll", init_method=os.environ["FAULTS_INIT"], world_size=SIZE, rank=int(os.environ["RANK"]),
                            timeout=datetime.timedelta(seconds=60), enable_reconfigure=True)
    return dist.get_rank(), share("handle", dist._get_reconfigure_handle())


def share(what, text):
    """What each of all ranks says, through the store."""
    store = distributed_c10d._get_default_store()
    store.set(f"{what}/{os.environ['RANK']}", text)
    return [store.get(f"{what}/{rank}").decode() for rank in range(SIZE)]


def change(uuid, handles, seconds=LIMIT):
    dist._reconfigure(uuid, handles, timeout=datetime.timedelta(seconds=seconds)).wait()


def refused(uuid, handles, *words):
    try:
        change(uuid, handles)
    except (RuntimeError, ValueError) as error:
        assert all(word in str(error) for word in words), error
        return
    raise AssertionError(f"no error with {words}")


def sums_right(size, rounds=200):
    assert dist.get_world_size() == size
    for n in range(rounds):
        x = torch.full((n + 1,), dist.get_rank() + n + 1.0)
        dist.all_reduce(x)
        assert x.tolist() == [size * (size + 1) / 2 + size * n] * (n + 1), (n, x)
    last = torch.full((1,), float(dist.get_rank()))
    dist.broadcast(last, group_src=size - 1)
    assert last.item() == size - 1
    back_end().monitored_barrier(datetime.timedelta(seconds=LIMIT), False)


def members_of_every_order():
    rank, handles = start_alone()
    told(lambda: dist.all_reduce(torch.ones(1)), "connected to no one")
    for uuid, order in ((1, handles), (2, set(handles)), (3, handles[::-1]), (-4, handles[1:] + handles[:1])):
        change(uuid, order)
        assert dist.get_rank() == (order.index(handles[rank]) if isinstance(order, list) else rank)
        sums_right(SIZE)
    refused(5, handles[:rank] + handles[rank + 1:], "without the handle of this rank")
    refused(6, [], "without the handle of this rank")
    refused(7, handles + handles[:1], "twice")
    refused(3, handles, "already used")
    sums_right(SIZE)                              # they have changed nothing
    change(8 + rank // 2, handles[2:] if rank == 2 else handles[:2])
    sums_right(1 if rank == 2 else 2)
    change(10, handles)
    sums_right(SIZE)


def members_after_a_kill():
    """Rank 2 was not a member before."""
    rank, handles = start_alone()
    if rank < 2:
        change(1, handles[:2])
        sums_right(2, 10)
        if rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        told(lambda: dist.all_reduce(torch.ones(1000)), "rank 1")
        assert back_end().get_error() != ErrorType.SUCCESS
    change(2, [handles[2], handles[0]])
    assert back_end().get_error() == ErrorType.SUCCESS and dist.get_rank() == (rank == 0)
    sums_right(2)


def members_beside_a_stopped_rank():
    """It continues while the others work, gets an error, and becomes a member again."""
    rank, handles = start_alone()
    pids = share("pid", str(os.getpid()))
    change(1, handles)
    sums_right(SIZE, 10)
    if rank == 2:
        os.kill(os.getpid(), signal.SIGSTOP)
        told(lambda: dist.all_reduce(torch.ones(1)), "rank")
    else:
        told(lambda: dist.all_reduce(torch.ones(1)), "rank 2")
        change(2, handles[:2])
        sums_right(2)
        if rank == 0:
            os.kill(int(pids[2]), signal.SIGCONT)
        sums_right(2)
    change(3, handles)
    sums_right(SIZE)


def members_with_calls_that_run():
    """They end: at once after abort, and if they only receive."""
    rank, handles = start_alone()
    change(1, handles)
    for uuid, gives_up in ((2, True), (3, False)):
        work = dist.irecv(torch.ones(1), (rank + 1) % SIZE)
        if gives_up:
            back_end().abort()
            told(work.wait, "has aborted the process group")
        share(f"begun {uuid}", "")
        began = time.monotonic()
        change(uuid, handles)
        assert time.monotonic() - began < 5
        told(work.wait, "aborted" if gives_up else "")          # that it was reconfigured, or that the other rank has left
        sums_right(SIZE)


def members_that_never_come():
    rank, handles = start_alone()
    change(1, handles)
    for uuid, missing in ((2, 2), (4, 0)):
        if rank != missing:
            told(lambda: change(uuid, handles, 2), "")
            told(lambda: dist.all_reduce(torch.ones(1)), "connected to no one")
            change(uuid + 1, handles[:missing] + handles[missing + 1:])
            sums_right(SIZE - 1)
        share(f"over {uuid}", "")
    change(6, handles)
    sums_right(SIZE)


def members_of_two_groups_at_once():
    """Two threads, which use one store, wait for each other's ranks."""
    rank, handles = start_alone()
    other = back_end_of(distributed_c10d._get_default_store(), rank)
    others = share("other", other.get_reconfigure_handle())
    options = distributed_c10d.ReconfigureOptions()
    options.uuid, options.handles = 1, others[::-1]
    thread = threading.Thread(target=lambda: other.reconfigure(options).wait())
    thread.start()
    change(1, handles, 5)
    thread.join()
    x = torch.ones(1)
    other.allreduce([x]).wait()
    assert x.item() == SIZE and other.rank() == SIZE - 1 - rank
    sums_right(SIZE)


def back_end_of(store, rank):
    import coll_torch
    return coll_torch.ProcessGroupColl(dist.PrefixStore("other", store), rank, SIZE, datetime.timedelta(seconds=5), is_alone=True)


def members_in_no_time():
    """A limit that is too short is one, and not that of the group."""
    rank, handles = start_alone()
    if rank != 2:
        told(lambda: change(1, handles, 0.0004), "rank 0")
    share("over", "")
    change(2, handles)
    sums_right(SIZE)


def members_at_the_end_of_a_program():
    """While a daemon thread waits for a member, or for the address of rank 0."""
    rank, handles = start_alone()
    absent = ["coll/absent"]
    threading.Thread(target=lambda: change(1, absent + handles if rank else handles + absent, 1), daemon=True).start()
    kept.append(Slow())
    time.sleep(0.3)


class Slow:
    """The end of the interpreter takes longer than the limit of that call."""

    def __del__(self):
        time.sleep(2)


# ---- torch's flight recorder: PyTorch 2.15 and later

def recorded():
    from torch._C._distributed_c10d import _dump_fr_trace
    return pickle.loads(_dump_fr_trace(backend="coll"))["entries"]


def recorded_failure():
    """It tells what has ended from what has not; a failure calls hooks and writes the record to a file."""
    rank, called = start(), threading.Event()
    dist.group.WORLD._enable_collectives_timing()
    dist.all_reduce(torch.ones(3))
    dist.broadcast(torch.ones(3), 0)
    dist.send(torch.ones(3), 1) if rank == 0 else dist.recv(torch.ones(3), 0) if rank == 1 else None
    coalesced = dist.group.WORLD.allgather_into_tensor_coalesced([torch.ones(SIZE)] * 2, [torch.ones(1)] * 2)
    coalesced.wait()
    seen = [(one["profiling_name"], one["state"], one["duration_ms"] is not None) for one in recorded()]
    assert all(state == "completed" for _, state, _ in seen), seen
    assert all(has_time for _, _, has_time in seen[1:]), seen
    wanted = ["all_reduce", "all_reduce", "broadcast"] + [["send 0->1"], ["recv 1<-0"], []][rank]
    assert [name for name, _, _ in seen[:len(wanted)]] == ["coll:" + one for one in wanted], seen
    back_end().register_abort_hook(1, called.set)
    back_end().register_abort_hook(2, sys.exit)
    back_end().unregister_abort_hook(2)
    share("recorded", "")
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    told(lambda: dist.all_reduce(torch.ones(1)), "rank 1")
    assert recorded()[-1]["state"] == "scheduled", recorded()[-1]
    assert called.wait(LIMIT)


def ending_plain():
    start()
    dist.destroy_process_group()


def ending_100_times():
    for n in range(100):
        join(f".{n}")
        x = torch.ones(1)
        dist.all_reduce(x)
        assert x.item() == SIZE
        dist.destroy_process_group()


def ending_without_destroy():
    start()


def ending_with_work():
    """An operation that no other rank calls is running."""
    if start() == 0:
        kept.append(dist.all_reduce(torch.ones(1), async_op=True))
    back_end().set_timeout(datetime.timedelta(seconds=1))


def ending_with_a_chain():
    start()
    future = dist.all_reduce(torch.ones(1), async_op=True).get_future()
    kept.append(future.then(lambda done: [time.sleep(0.2), done.value()[0] + 1][1]))


def ending_with_a_chain_of_a_destroyed_group():
    start()
    future = dist.all_reduce(torch.ones(1), async_op=True).get_future()
    kept.append(future.then(lambda done: [time.sleep(0.5), done.value()[0] + 1][1]))
    dist.destroy_process_group()


def ending_with_a_hook():
    start()
    dist.group.WORLD._register_on_completion_hook(lambda info: [time.sleep(0.05), kept.append(info)])
    for _ in range(5):
        dist.all_reduce(torch.ones(1))


def ending_with_a_thread():
    """A daemon thread waits for an operation that does not end."""
    def wait():
        try:
            dist.recv(torch.ones(1), 1)
        except dist.DistBackendError:             # rank 1 has left
            pass

    if start() == 0:
        threading.Thread(target=wait, daemon=True).start()


def ending_in_atexit():
    start()
    atexit.register(dist.destroy_process_group)


def ending_with_ddp():
    start()
    kept.append(torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(3, 1)))
    kept[0](torch.ones(1, 3)).sum().backward()


def ending_in_a_destructor():
    class Keeper:
        def __init__(self):
            self.group = dist.new_group()

        def __del__(self):
            dist.destroy_process_group(self.group)

    start()
    kept.append(Keeper())


kept = []                                         # until the interpreter ends
KILLED = {"fault_killed": {1}, "fault_killed_in_any_call": {1}, "fault_then_another_group": {1}, "fault_in_one_group": {1},
          "fault_without_the_dead_rank": {0}, "fault_killed_in_ddp": {1}, "fault_in_a_future": {1},
          "members_after_a_kill": {1}, "recorded_failure": {1}}
BAD = ("terminate called", "Fatal Python error", "Segmentation fault", "core dumped", "Traceback")


def run(name, folder):
    """True in a child, which returns to the end of the program."""
    global SIZE
    SIZE = 2 if name.startswith("ending_") else 3
    children = []
    for rank in range(SIZE):
        child = os.fork()
        if child == 0:
            log = os.open(f"{folder}/{name}.{rank}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(log, 1), os.dup2(log, 2)
            os.environ.update(RANK=str(rank), FAULTS_INIT=f"file://{folder}/{name}.store")
            try:
                globals()[name]()
            except Planned:
                raise
            except BaseException:
                traceback.print_exc()
                sys.stderr.flush()
                os._exit(1)
            return True
        children.append(child)
    status = {}
    signal.alarm(90)
    try:
        while len(status) < SIZE:
            pid, how = os.waitpid(-1, 0)
            status[children.index(pid)] = os.waitstatus_to_exitcode(how)
            if name == "fault_stopped" and len(status) == SIZE - 1:
                os.kill(children[2], signal.SIGCONT)
    except TimeoutError:
        for rank in set(range(SIZE)) - set(status):
            os.kill(children[rank], signal.SIGKILL)
            os.waitpid(children[rank], 0)
    signal.alarm(0)
    report(name, folder, status)
    return False


def report(name, folder, status):
    wanted = {rank: -signal.SIGKILL if rank in KILLED.get(name, ()) else 0 for rank in range(SIZE)}
    said = {rank: open(f"{folder}/{name}.{rank}").read() for rank in range(SIZE)}
    if name == "fault_raised":
        wanted[1] = 1
        said[1] = said[1].replace("Traceback", "")
    if name == "recorded_failure" and status == wanted:
        for rank in 0, 2:
            with open(f"{os.environ['TORCH_FR_DUMP_TEMP_FILE']}{rank}", "rb") as file:
                assert pickle.load(file)["entries"][-1]["state"] == "scheduled"
    if status == wanted and not any(word in text for word in BAD for text in said.values()):
        print(f"ok - {name}", flush=True)
        return
    print(f"FAILED - {name}: the ranks ended with {status}, and not {wanted}", flush=True)
    for rank, text in said.items():
        print(f"  rank {rank}: " + text.replace("\n", "\n          "), flush=True)


def too_late(*_):
    raise TimeoutError


def main():
    version = tuple(int(part) for part in torch.__version__.split(".")[:2])
    kinds = ("fault_", "ending_") + ("members_",) * (version >= (2, 14)) + ("recorded_",) * (version >= (2, 15))
    names = sys.argv[1:] or [name for name in globals() if name.startswith(kinds)]
    print(f"1..{len(names)}", flush=True)
    folder = tempfile.mkdtemp()
    os.environ.update(COLL_LIVENESS_TIMEOUT_MS="3000", TORCH_FR_DUMP_TEMP_FILE=f"{folder}/record")
    signal.signal(signal.SIGALRM, too_late)
    for name in names:
        if run(name, folder):
            return                                # a child
    shutil.rmtree(folder)


if __name__ == "__main__":
    main()
