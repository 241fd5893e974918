"""LightGBM over coll and over its own sockets, in the same processes: equal models, failures, and time.

    python3 lightgbm_check.py equal                       2, 3 and 4 ranks, processes and threads, every learner
    python3 lightgbm_check.py failures                    a rank that is killed, one that is stopped, one that raises an exception
    python3 lightgbm_check.py time --ranks 4 --openmp 1 --neighbors 8 [--threads] [--rounds 9]

It needs the packages lightgbm and coll.  Every check prints a line "ok - ..." or "FAILED - ...".  `time` trains once over each
side in every round, on the same ranks, and prints the medians and the means of the slowest rank."""
import argparse
import json
import os
import random
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np
import lightgbm
from lightgbm import basic

import coll
import coll.lightgbm

SEED = int(os.environ.get('COLL_TEST_SEED') or time.time_ns() % 100000)
PLAIN = {'objective': 'regression', 'verbosity': -1, 'deterministic': True, 'force_col_wise': True, 'seed': 1}
LEARNERS = {'data': {}, 'voting': {}, 'data, quantized': {'use_quantized_grad': True, 'num_grad_quant_bins': 4}}


class Silent:
    def info(self, text):
        pass

    warning = info


lightgbm.register_logger(Silent())


def rows(count, seed):
    """A regression on 20 columns.  Labels are multiples of 1/64."""
    chance = np.random.default_rng(seed)
    x = chance.standard_normal((count, 20))
    y = np.round((x[:, 0] * x[:, 1] + np.sin(3 * x[:, 2]) + 0.1 * chance.standard_normal(count)) * 64) / 64
    return x, y


def train(parameters, x, y, rank, size, trees, callbacks=None):
    data = lightgbm.Dataset(x[rank::size], y[rank::size], params=parameters)
    data.construct()
    began = time.perf_counter()
    model = lightgbm.train(parameters, data, trees, callbacks=callbacks)
    return model.model_to_string(), time.perf_counter() - began


def over_sockets(machines, port, parameters, *arguments):
    """LightGBM's own."""
    size = len(machines.split(','))
    basic._safe_call(basic._LIB.LGBM_NetworkInit(machines.encode(), port, 2, size))
    try:
        return train({**PLAIN, 'num_machines': size, 'pre_partition': True, **parameters}, *arguments)
    finally:
        basic._safe_call(basic._LIB.LGBM_NetworkFree())


def over_coll(comm, parameters, *arguments):
    with coll.lightgbm.network(comm, parameters['tree_learner']) as network:
        return train({**PLAIN, **parameters, **network}, *arguments)


def free_port():
    """A socket with a port below those that systems give to connections: no connection takes it until LightGBM does."""
    held = socket.socket()
    while True:
        try:
            held.bind(('127.0.0.1', random.randrange(10000, 30000)))
            return held
        except OSError:
            pass


class Lists:
    """Lists of free ports, one for each use of LightGBM's sockets."""

    def __init__(self, comm):
        self.comm = comm

    def next(self):
        held = free_port()
        ports = self.comm.allgather(np.array([held.getsockname()[1]]))
        held.close()
        self.comm.barrier()
        return ','.join(f'127.0.0.1:{port}' for port in ports.ravel()), int(ports.ravel()[self.comm.rank])


# ---- equal models

def equal(comm, kind):
    lists, wrong = Lists(comm), 0
    x, y = rows(3000, SEED)
    for name, more in LEARNERS.items():
        parameters = {'tree_learner': name.split(',')[0], 'num_threads': 1, 'num_leaves': 15, **more}
        sockets, _ = over_sockets(*lists.next(), parameters, x, y, comm.rank, comm.size, 12)
        library, _ = over_coll(comm, parameters, x, y, comm.rank, comm.size, 12)
        same = sockets == library and 'Tree=11' in library
        wrong += not same
        if comm.rank == 0 or not same:
            print(f'{"ok" if same else "FAILED"} - {comm.size} {kind}, {name}: the model of its own sockets, rank {comm.rank}',
                  flush=True)
    return wrong


# ---- failures

def fails(comm, how):
    """Rank 1 ends in the third tree.  Prints what the others get, and after how long."""
    x, y = rows(3000, SEED)

    def end(environment):
        if environment.iteration != 3:
            return
        if comm.rank == 1 and how == 'raise':
            raise ValueError('a mistake of the program')
        if comm.rank == 1:
            print(f'ending {time.time()}', flush=True)
            os.kill(os.getpid(), signal.SIGKILL if how == 'kill' else signal.SIGSTOP)
    try:
        over_coll(comm, {'tree_learner': 'data', 'num_threads': 1}, x, y, comm.rank, comm.size, 1000, [end])
    except coll.Error as error:
        print(f'rank {comm.rank}: {type(error).__name__} {time.time()} {error}', flush=True)
        if how == 'kill':
            left = comm.shrink()
            model, _ = over_coll(left, {'tree_learner': 'data', 'num_threads': 1}, x, y, left.rank, left.size, 3)
            print(f'rank {comm.rank}: goes on with {left.size}, {len(model) > 100}', flush=True)
            left.free()
        return
    print(f'rank {comm.rank}: no error', flush=True)


def started(size, *arguments, **environment):
    """The processes of one job, with their output."""
    folder = tempfile.TemporaryDirectory()
    made = [subprocess.Popen([sys.executable, __file__, 'rank', *map(str, arguments)], stdout=subprocess.PIPE, text=True,
                             env={**os.environ, 'COLL_RANK': str(rank), 'COLL_SIZE': str(size), 'COLL_TEST_SEED': str(SEED),
                                  'COLL_ADDR': f'file:{folder.name}/address', **environment}) for rank in range(size)]
    made[0].folder = folder
    return made


def failures():
    wrong = 0

    def check(right, what):
        nonlocal wrong
        wrong += not right
        print(f'{"ok" if right else "FAILED"} - {what}', flush=True)
    for how, limit in ('kill', 2), ('stop', 3):
        jobs = started(3, 'fails', how, COLL_LIVENESS_TIMEOUT_MS='1000', COLL_DEBUG='none')
        said = jobs[0].communicate(timeout=60)[0] + jobs[2].communicate(timeout=60)[0]
        jobs[1].kill()
        lines = jobs[1].communicate()[0]
        began = float(lines.split('ending ')[1].split()[0])
        for rank in 0, 2:
            line = next((text for text in said.splitlines() if text.startswith(f'rank {rank}: PeerError')), '')
            late = float(line.split()[3]) - began if line else 99
            check('rank 1' in line and late < limit,
                  f'{how}: rank {rank} gets an error that names rank 1, in {late:.2f} s: {line}')
        if how == 'kill':
            check(said.count('goes on with 2, True') == 2, 'kill: the others train on after coll_shrink')
    try:
        coll.spawn(3, fails, 'raise', log_level=1)
        check(False, 'raise: no exception')
    except ValueError as error:
        check(str(error) == 'a mistake of the program', f'raise: spawn raises the exception of that thread: {error}')
    return wrong


# ---- time

def timed(comm, kind, options, others):
    """Rounds over each side; prints on rank 0."""
    lists = Lists(comm)
    x, y = rows(options.rows, SEED)
    parameters = {'tree_learner': options.learner, 'num_threads': options.openmp}
    took = {}
    for round in range(options.rounds + 1):               # the first is left out
        models = {}
        for side in ['sockets', *others]:
            if side == 'sockets':
                models[side], seconds = over_sockets(*lists.next(), parameters, x, y, comm.rank, comm.size, options.trees)
            else:
                models[side], seconds = over_coll(others[side], parameters, x, y, comm.rank, comm.size, options.trees)
            seconds = comm.allreduce(seconds, 'max')
            if round:
                took.setdefault(side, []).append(seconds)
        if len(set(models.values())) != 1:
            raise SystemExit('models differ')
    if comm.rank == 0:
        for side, seconds in took.items():
            ratios = [a / b for a, b in zip(seconds, took['sockets'])]
            print(json.dumps({'kind': kind, 'ranks': comm.size, 'openmp': options.openmp, 'neighbors': options.neighbors,
                              'side': side, 'median': round_(statistics.median(seconds)),
                              'mean': round_(statistics.mean(seconds)),
                              'ratio': round_(statistics.median(ratios)),
                              'means': round_(statistics.mean(seconds) / statistics.mean(took['sockets']))}), flush=True)


def round_(value):
    return float(f'{value:.3g}')


def dedicated(comm, options):
    """Over shared memory, and over TCP alone."""
    with tempfile_of(comm) as address, coll.init(rank=comm.rank, size=comm.size, address=address,
                                            share_memory=False) as tcp:
        timed(comm, 'processes', options, {'coll': comm, 'coll, TCP': tcp})


class tempfile_of:
    def __init__(self, comm):
        self.comm = comm

    def __enter__(self):
        self.folder = tempfile.mkdtemp() if self.comm.rank == 0 else None
        self.folder = self.comm.mpi.bcast(self.folder)
        return f'file:{self.folder}/tcp'

    def __exit__(self, *_):
        self.comm.barrier()
        if self.comm.rank == 0:
            os.rmdir(self.folder)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('what', choices=['equal', 'failures', 'time', 'rank'])
    parser.add_argument('more', nargs='*')
    for name, value in ('ranks', 4), ('openmp', 1), ('neighbors', 0), ('rounds', 7), ('trees', 40), ('rows', 8000):
        parser.add_argument(f'--{name}', type=int, default=value)
    parser.add_argument('--threads', action='store_true')
    parser.add_argument('--learner', default='data')
    options = parser.parse_args()
    if options.what == 'rank':
        with coll.init() as comm:
            if options.more[0] == 'equal':
                sys.exit(equal(comm, 'processes'))
            if options.more[0] == 'fails':
                return fails(comm, options.more[1])
            return dedicated(comm, argparse.Namespace(**json.loads(options.more[1])))
    if options.what == 'equal':
        print(f'seed {SEED}; lightgbm {lightgbm.__version__}', flush=True)
        wrong = 0
        for size in 2, 3, 4:
            jobs = started(size, 'equal')
            print(''.join(job.communicate()[0] for job in jobs), end='', flush=True)
            wrong += sum(job.returncode != 0 for job in jobs)
            wrong += sum(coll.spawn(size, equal, 'threads'))
        sys.exit(wrong != 0)
    if options.what == 'failures':
        sys.exit(failures() != 0)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))           # and end the neighbors
    neighbors = [subprocess.Popen([sys.executable, '-c', 'while True: pass']) for _ in range(options.neighbors)]
    try:
        if options.threads:
            comms = coll.spawn(options.ranks, lambda comm: timed(comm, 'threads', options, {'coll': comm}))
        else:
            jobs = started(options.ranks, 'time', json.dumps(vars(options)))
            print(''.join(job.communicate()[0] for job in jobs), end='', flush=True)
            sys.exit(any(job.returncode for job in jobs))
    finally:
        for neighbor in neighbors:
            neighbor.kill()
            neighbor.wait()


if __name__ == '__main__':
    main()
