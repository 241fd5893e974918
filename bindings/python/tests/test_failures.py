"""A killed rank, Ctrl-C, programs that end early, launchers, and what is left afterwards."""
import gc
import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
import time
import unittest

import numpy as np

import coll
from support import RUN, launched

ALONE = dict(os.environ)


def part(rank, size, folder, queue):
    with coll.init(rank=rank, size=size, address=f'file:{folder}/address') as comm:
        queue.put((comm.rank, comm.allreduce(rank + 1)))


def hears():
    """A process that a shell starts in the background ignores SIGINT."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def started(text, **settings):
    return subprocess.Popen([sys.executable, '-c', text], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                            text=True, env={**ALONE, **settings}, preexec_fn=hears)


def of_job(rank, size, folder, **more):
    return {'COLL_RANK': str(rank), 'COLL_SIZE': str(size), 'COLL_ADDR': f'file:{folder}/address', **more}


def descriptors():
    return len(os.listdir('/proc/self/fd'))


def resident():
    with open('/proc/self/statm', encoding='ascii') as file:
        return int(file.read().split()[1]) * os.sysconf('SC_PAGE_SIZE')


class Failures(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def started(self, text, **settings):
        job = started(text, **settings)
        self.addCleanup(lambda: (job.poll() is None and job.kill(), job.communicate()))
        return job

    def job(self, text, ranks, **settings):
        return [self.started(text, **of_job(rank, ranks, self.folder, **settings)) for rank in range(ranks)]

    def test_killed_rank(self):
        """All others get PeerError, which names it, within the bound; the survivors continue.  The same if it is stopped."""
        text = '''
import coll, numpy, time
comm = coll.init()
comm.barrier()
print('there', flush=True)
try:
    while True:
        began = time.monotonic()
        comm.allreduce_(numpy.ones(10))
except coll.PeerError as error:
    after = time.monotonic() - began
    assert error.failed[0] == 1 and error.rank == comm.rank and error.status == -5, error.failed
    assert isinstance(error, ConnectionError) and 'rank 1' in str(error), error
    assert comm.agree(7 & ~(1 << comm.rank)) == 2 and comm.failed_ranks() == (1,)
    left = comm.shrink()
    assert left.agree(2 ** 64 - 1 - left.rank) == 2 ** 64 - 2
    assert (left.size, left.allreduce(1)) == (2, 2)
    print('named', after, flush=True)
'''
        for what, settings, most_s in ((signal.SIGKILL, {}, 5), (signal.SIGSTOP, {'COLL_LIVENESS_TIMEOUT_MS': '800'}, 10)):
            with self.subTest(what.name):
                jobs = self.job(text, 3, **settings)
                for job in jobs:
                    self.assertEqual(job.stdout.readline(), 'there\n')
                jobs[1].send_signal(what)
                began = time.monotonic()
                for rank in (0, 2):
                    out, err = jobs[rank].communicate(timeout=60)
                    self.assertEqual((out.split()[0], jobs[rank].returncode), ('named', 0), err)
                    after = float(out.split()[1])
                    print(f'{what.name}: rank {rank} has PeerError {after:.2f} s after its last call began')
                    self.assertLess(after, settings and 0.8 * 9 / 8 + 1 or 1)      # the liveness limit, an eighth, and a margin
                self.assertLess(time.monotonic() - began, most_s)
                jobs[1].kill()

    def interrupted(self, text, **settings):
        """Rank 0 of two waits forever, until Ctrl-C."""
        jobs = self.job(text, 2, **settings)
        for job in jobs:
            self.assertEqual(job.stdout.readline(), 'there\n')
        state = ''
        while state != 'S':                                     # the main thread sleeps: it is inside the call
            with open(f'/proc/{jobs[0].pid}/task/{jobs[0].pid}/stat', encoding='ascii') as file:
                state = file.read().rsplit(')', 1)[1].split()[0]
        jobs[0].send_signal(signal.SIGINT)
        return jobs

    WAITS = '''
import coll, numpy, os, sys, time
comm = coll.init()
comm.barrier()
try:
    if comm.rank == 0:
        print('there', flush=True)
        {call}
    else:
        print('there', flush=True)
        comm.recv(numpy.zeros(1), 0, 77)
except KeyboardInterrupt:
    print('interrupted', flush=True)
except coll.AbortedError as error:
    print('aborted' if 'keyboard' in str(error) else error, flush=True)
comm.free()
'''

    def test_interrupt(self):
        for call in ('comm.allreduce_(numpy.ones(3))', 'comm.barrier()', 'comm.recv(numpy.ones(1), 1)',
                     'comm.iallreduce(numpy.ones(3)).wait()', 'comm.split(0)', 'comm.allgatherv(numpy.ones(3))'):
            for settings in ({}, {'COLL_SHARE': '0'}):
                with self.subTest(call, **settings):
                    jobs = self.interrupted(self.WAITS.replace('{call}', call), **settings)
                    said = [job.communicate(timeout=60) for job in jobs]
                    self.assertEqual([out for out, _ in said], ['interrupted\n', 'aborted\n'], said)

    def test_interrupt_of_a_busy_program(self):
        """Calls that return leave the communicator as it is, and the program may end in good order."""
        text = '''
import coll
comm = coll.init()
stop, told = 0, False
while True:
    try:
        if comm.allreduce(stop, 'max'): break
        if not told: told = True; print('there', flush=True)
    except KeyboardInterrupt:
        stop = 1
comm.barrier()
print('end')
'''
        jobs = self.job(text, 2)
        for job in jobs:
            self.assertEqual(job.stdout.readline(), 'there\n')
        jobs[0].send_signal(signal.SIGINT)
        for job in jobs:
            out, err = job.communicate(timeout=60)
            self.assertEqual((out, job.returncode), ('end\n', 0), err)

    def test_interrupt_while_joining(self):
        text = "import coll\nprint('alone', flush=True)\ncoll.init()"
        job = self.started(text, **of_job(0, 2, self.folder))
        self.assertEqual(job.stdout.readline(), 'alone\n')
        deadline = time.monotonic() + 20
        while not os.path.exists(self.folder + '/address') and time.monotonic() < deadline:
            pass
        job.send_signal(signal.SIGINT)
        _, err = job.communicate(timeout=60)
        self.assertIn('KeyboardInterrupt', err)
        self.assertEqual(job.returncode, -signal.SIGINT)

    def test_interrupt_of_threads(self):
        text = '''
import coll, numpy
def rank(comm):
    if comm.rank == 0:
        print('there', flush=True)
        comm.barrier()
    else:
        comm.recv(numpy.ones(1), 0)
try:
    coll.spawn(3, rank)
except KeyboardInterrupt:
    print('interrupted')
'''
        job = self.started(text)
        self.assertEqual(job.stdout.readline(), 'there\n')
        job.send_signal(signal.SIGINT)
        out, err = job.communicate(timeout=60)
        self.assertEqual((out, job.returncode), ('interrupted\n', 0), err)

    def test_interrupt_of_a_launcher(self):
        """Nothing of the job is left."""
        text = "import coll, numpy, os\ncomm = coll.init()\ncomm.barrier()\nprint(os.getpid(), flush=True)\n" \
               "comm.barrier() if comm.rank else comm.recv(numpy.zeros(1), 1)"
        job = subprocess.Popen([RUN, '-n', '3', '--no-prefix', sys.executable, '-c', text], stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True, preexec_fn=hears)
        pids = [int(job.stdout.readline()) for _ in range(3)]
        job.send_signal(signal.SIGINT)
        job.communicate(timeout=60)
        for pid in pids:
            self.assertFalse(os.path.exists(f'/proc/{pid}'), pid)

    def test_own_handler_is_left_alone(self):
        text = '''
import coll, numpy, signal
comm = coll.init()
seen = []
signal.signal(signal.SIGINT, lambda *_: seen.append(1))
comm.barrier()
print('there', flush=True)
if comm.rank == 0:
    comm.recv(numpy.zeros(1), 1)
    assert seen
else:
    input()
    comm.send(numpy.zeros(1), 0)
'''
        jobs = self.job(text, 2)
        for job in jobs:
            self.assertEqual(job.stdout.readline(), 'there\n')
        jobs[0].send_signal(signal.SIGINT)
        for job in reversed(jobs):
            job.communicate('\n', timeout=30)
            self.assertEqual(job.returncode, 0)

    def test_exception_in_spawn(self):
        def rank(comm):
            if comm.rank == 1:
                raise KeyError('mine')
            comm.barrier()
        with self.assertRaisesRegex(KeyError, 'mine'):
            coll.spawn(3, rank)

    def test_mismatch(self):
        def rank(comm):
            comm.allreduce(np.ones(3 + comm.rank))
        with self.assertRaises(coll.MismatchError):
            coll.spawn(2, rank)

    def test_timeout(self):
        def rank(comm):
            if comm.rank:
                try:
                    comm.recv(np.ones(1), 0)
                except coll.TimeoutError as error:
                    return error
            else:
                try:
                    comm.allreduce(1, timeout_ms=50)
                except TimeoutError as error:
                    return error
        for error in coll.spawn(2, rank):
            self.assertIsInstance(error, coll.TimeoutError)

    def test_ends_without_free(self):
        """A program that ends does so in good order."""
        done = launched(3, '-c', 'import coll; c = coll.init(); c.send(1, 0, 1) if c.rank else [c.recv(b, r, 1) for r in (1, 2) '
                                 'for b in [__import__("array").array("q", [0])]]')
        self.assertEqual((done.returncode, done.stderr), (0, ''))

    def test_no_rank_comes(self):
        with self.assertRaisesRegex(coll.TimeoutError, 'rank 1|ranks? .*1'):
            coll.init(rank=0, size=2, address=f'file:{self.folder}/address', start_timeout_ms=300, log=lambda *_: None)

    def test_multiprocessing(self):
        for method in ('spawn', 'fork'):
            with self.subTest(method), tempfile.TemporaryDirectory() as folder:
                context = multiprocessing.get_context(method)
                queue = context.Queue()
                parts = [context.Process(target=part, args=(rank, 3, folder, queue)) for rank in range(3)]
                for process in parts:
                    process.start()
                got = sorted(queue.get(timeout=60) for _ in parts)
                for process in parts:
                    process.join()
                self.assertEqual(got, [(0, 6), (1, 6), (2, 6)])

    def test_forked_child(self):
        comm = coll.init_threads(1)[0]
        child = os.fork()
        if child == 0:
            try:
                comm.allreduce(1)
            except coll.ForkedError:
                comm.free()
                os._exit(7)
            os._exit(1)
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), 7)
        comm.free()

    def test_launchers(self):
        """torchrun's variables."""
        import socket
        with socket.socket() as probe:
            probe.bind(('127.0.0.1', 0))
            port = probe.getsockname()[1]
        text = 'import coll; c = coll.init(); print(c.rank, c.allreduce(1))'
        jobs = [self.started(text, RANK=str(rank), WORLD_SIZE='2', LOCAL_RANK=str(rank), LOCAL_WORLD_SIZE='2',
                             MASTER_ADDR='127.0.0.1', MASTER_PORT=str(port)) for rank in range(2)]
        for rank, job in enumerate(jobs):
            out, err = job.communicate(timeout=60)
            self.assertEqual(out, f'{rank} 2\n', err)

    def test_leaks(self):
        """10,000 communicators, derived ones and of their own, and as many requests."""
        comm = coll.init_threads(1)[0]
        x = np.ones(8)

        def some(count):
            for _ in range(count):
                with comm.dup() as other:
                    other.allreduce_(x)
                    other.iallreduce(x).wait()
                with coll.init_threads(1)[0] as alone:
                    alone.allreduce(x)
            gc.collect()
        some(500)
        first = before = resident(), descriptors(), len(gc.get_objects())
        grown = []                                # Python takes memory by the MiB: a leak shows in every part, that in some
        for _ in range(4):
            some(1250)
            after = resident(), descriptors(), len(gc.get_objects())
            grown.append((after[0] - before[0]) // 1024)
            before = after
        before = first
        comm.free()
        print(f'10,000 communicators: {grown} KiB more resident, {after[1] - before[1]} descriptors, '
              f'{after[2] - before[2]} objects')
        self.assertLess(min(grown), 64)
        self.assertEqual(after[1], before[1])
        self.assertLess(after[2] - before[2], 100)

    def test_not_freed_is_reported(self):
        with self.assertWarns(ResourceWarning):
            coll.init_threads(1)
            gc.collect()


if __name__ == '__main__':
    unittest.main()
