"""Requests, prepared calls, await; 1,000 of them at once."""
import asyncio
import gc
import sys
import unittest
import weakref

import numpy as np

import coll
from support import launched

FLIGHT = 1000


async def in_flight(comm):
    """1,000 awaits at once, and as many messages."""
    arrays = [np.full(3, comm.rank + i, 'i8') for i in range(FLIGHT)]
    sums = await asyncio.gather(*(finish(comm.iallreduce_(x)) for x in arrays))
    others = sum(range(comm.size))
    assert all(got is x and (x == others + comm.size * i).all() for i, (got, x) in enumerate(zip(sums, arrays)))
    boxes = [np.zeros(2, 'i8') for _ in range(FLIGHT)]
    before, after = (comm.rank - 1) % comm.size, (comm.rank + 1) % comm.size
    receives = [comm.irecv(box, before, tag) for tag, box in enumerate(boxes)]
    sends = [comm.isend(np.full(2, tag), after, tag) for tag in reversed(range(FLIGHT))]
    got = await asyncio.gather(*map(finish, receives + sends))
    assert all(got[tag] == (before, tag, 2) and (boxes[tag] == tag).all() for tag in range(FLIGHT))


async def finish(request):
    return await request


async def computes_meanwhile(comm):
    """Others get their turn while a rank waits."""
    turns = 0

    async def turn():
        nonlocal turns
        while not request_done:
            turns += 1
            await asyncio.sleep(0)

    request_done = False
    task = asyncio.ensure_future(turn())
    await asyncio.sleep(0)
    if comm.rank:
        await comm.irecv(np.zeros(1), 0, 9)                     # which rank 0 sends when it has had its turns
    else:
        while turns < 50:
            await asyncio.sleep(0)
        for rank in range(1, comm.size):
            await comm.isend(np.zeros(1), rank, 9)
    request_done = True
    await task
    assert turns >= 1


async def error_is_raised(comm):
    """Each of many awaits raises the failure."""
    try:
        comm.barrier()
        requests = [comm.irecv(np.zeros(1), (comm.rank + 1) % comm.size, i) for i in range(5)]
    except coll.AbortedError:
        assert comm.rank                                        # which came later than that
        return
    tasks = [asyncio.ensure_future(finish(request)) for request in requests]
    await asyncio.sleep(0)
    if comm.rank == 0:
        comm.abort('enough')
    for task in tasks:
        try:
            await task
        except coll.AbortedError as error:
            assert 'enough' in str(error), error
        else:
            raise AssertionError('no error')


class Requests(unittest.TestCase):
    def test_forms(self):
        def rank(comm):
            x = np.ones(4)
            request = comm.iallreduce_(x)
            assert request.wait() is x and request.wait() is x and request.test()
            step = comm.prepare('allreduce_', x, op='avg', name='step')
            for i in range(5):
                x[:] = comm.rank + i
                assert step.restart().wait() is x and (x == (comm.size - 1) / 2 + i).all()
            step.free()
            many = [comm.iallreduce(np.full(2, float(i))) for i in range(5)]
            places = set()
            for _ in many:
                at, got = coll.wait_any(many)
                assert (got == at * comm.size).all()
                places.add(at)
            assert places == set(range(5)) and coll.wait_any(many) == (-1, None)
            assert [got[0] for got in coll.wait_all(many)] == [i * comm.size for i in range(5)]
            if comm.rank == 0:
                while not many[0].test():
                    pass
        for ranks in (1, 3):
            coll.spawn(ranks, rank)

    def test_like_an_earlier_one(self):
        """A call that is remembered has its own options, root and operation."""
        def rank(comm):
            x = np.full(4, comm.rank + 1.001, 'f4')
            plain = comm.allreduce(x)
            for _ in range(3):
                rounded = comm.allreduce(x, wire='bf16', name='w')
                assert (rounded.view('u4') & 0xffff == 0).all() and (comm.allreduce(x) == plain).all()
                assert (comm.allreduce(x, scale=2.0) == 2 * plain).all()
                assert (comm.allreduce(x, 'max') == np.float32(comm.size + .001)).all()
                for root in range(comm.size):
                    assert (comm.reduce(x, root=root) is None) == (comm.rank != root)
                    assert (comm.broadcast(np.full(2, comm.rank), root) == root).all()
                frozen = x.copy()
                frozen.flags.writeable = False
                assert (comm.allreduce(frozen) == plain).all()
                try:
                    comm.allreduce_(frozen)
                except ValueError as error:
                    assert 'read-only' in str(error)
                else:
                    raise AssertionError('it was written')
        coll.spawn(3, rank)

    def test_detached(self):
        """A request for which no call waits continues; its arrays stay."""
        def rank(comm):
            for i in range(200):
                comm.iallreduce(np.full(1000, float(i)))
                gc.collect(0)
            assert comm.allreduce(1) == comm.size
            comm.iallreduce(np.ones(3)).wait()
            assert len(comm._detached) <= 1, len(comm._detached)
        coll.spawn(3, rank)

    def test_await_between_threads(self):
        def rank(comm):
            asyncio.run(in_flight(comm))
            asyncio.run(computes_meanwhile(comm))
            asyncio.run(error_is_raised(comm))
        for ranks in (1, 2):
            if ranks > 1:
                coll.spawn(ranks, rank)
        coll.spawn(1, lambda comm: asyncio.run(in_flight(comm)))

    def test_await_between_processes(self):
        for settings in ({}, {'COLL_SHARE': '0'}, {'COLL_BACKGROUND': 'off'}):
            with self.subTest(settings):
                done = launched(3, __file__, '--rank', env={**__import__('os').environ, **settings})
                self.assertEqual((done.returncode, done.stdout.count('good')), (0, 3), done.stdout + done.stderr)

    def test_loops_are_collected(self):
        """Nothing holds an event loop that has been closed, also one that gave up an await."""
        loops = []

        async def waited(comm):
            loops.append(weakref.ref(asyncio.get_running_loop()))
            await comm.iallreduce_(np.ones(3))

        async def given_up(comm):
            loops.append(weakref.ref(asyncio.get_running_loop()))
            asyncio.ensure_future(finish(comm.irecv(np.zeros(1), 0, 77)))
            await asyncio.sleep(0.01)

        def rank(comm):
            for awaited in (waited, waited, given_up):
                asyncio.run(awaited(comm))
            for other in range(comm.size if comm.rank == 0 else 0):
                comm.isend(np.zeros(1), other, 77)              # what was given up
            comm.barrier()
            gc.collect()
            left = [loop() for loop in loops]
            comm.barrier()
            return left
        self.assertEqual(coll.spawn(2, rank)[1], [None] * 6)

    def test_free_while_awaited(self):
        async def main():
            comms = coll.init_threads(2)
            task = asyncio.ensure_future(finish(comms[0].iallreduce_(np.ones(3))))
            await asyncio.sleep(0)
            comms[0].free()
            with self.assertRaises(coll.AbortedError):
                await task
            comms[1].free()
        asyncio.run(main())


if __name__ == '__main__':
    if sys.argv[1:2] == ['--rank']:
        with coll.init() as world:
            asyncio.run(in_flight(world))
            asyncio.run(in_flight(world))
            asyncio.run(computes_meanwhile(world))
            asyncio.run(error_is_raised(world))
            print('good')
    else:
        unittest.main()
