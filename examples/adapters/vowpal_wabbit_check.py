"""Vowpal Wabbit over coll and over its own sockets: models, and time.  vowpal_wabbit.sh makes both programs.

    python3 vowpal_wabbit_check.py FOLDER equal
    python3 vowpal_wabbit_check.py FOLDER time --nodes 4 --neighbors 8 [--rounds 7]"""
import argparse
import hashlib
import json
import os
import random
import signal
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import time

SEED = int(os.environ.get('COLL_TEST_SEED') or time.time_ns() % 100000)


def write_data(folder, nodes, count):
    """`count` examples of 20 out of 5000 features, dealt out to the nodes."""
    chance = random.Random(SEED)
    weights = [chance.gauss(0, 1) for _ in range(5000)]
    files = [open(f'{folder}/{node}.data', 'w') for node in range(nodes)]
    for example in range(count):
        picked = {chance.randrange(5000): chance.gauss(0, 1) for _ in range(20)}
        label = 1 if sum(weights[i] * x for i, x in picked.items()) > 0 else -1
        files[example % nodes].write(f'{label} | ' + ' '.join(f'{i}:{x:.4f}' for i, x in picked.items()) + '\n')
    for file in files:
        file.close()


class Server:
    """Vowpal Wabbit's spanning-tree server, at a free port.

    It ends if a connection closes before it has sent three numbers.  So the check for an answer is a whole job of one node."""

    def __init__(self, folder):
        with socket.socket() as free:
            free.bind(('127.0.0.1', 0))
            self.port = free.getsockname()[1]
        self.process = subprocess.Popen([f'{folder}/spanning_tree', '--nondaemon', '--port', str(self.port)],
                                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while not self.has_answered():
            if self.process.poll() is not None:
                raise SystemExit('the spanning-tree server has ended')
            time.sleep(0.01)

    def has_answered(self):
        with socket.socket() as one:
            if one.connect_ex(('127.0.0.1', self.port)):
                return False
            one.sendall(struct.pack('@NNN', 1 << 30, 1, 0))         # job, nodes, node
            self.receive(one, 4 + 2)                                # accepted; children
            one.sendall(struct.pack('=H', 0))                       # port
            self.receive(one, 4 + 4)                                # address and port of the parent
        return True

    @staticmethod
    def receive(one, length):
        while length:
            got = len(one.recv(length))
            if not got:
                raise SystemExit('the spanning-tree server has closed the connection')
            length -= got

    def stop(self):
        self.process.kill()
        self.process.wait()


class Job:
    number = random.randrange(1 << 20)

    def __init__(self, options, side, data, server, nodes, more=(), **environment):
        """Starts the nodes."""
        Job.number += 1
        self.folder = tempfile.TemporaryDirectory(dir=data)
        self.models = [f'{self.folder.name}/{node}.model' for node in range(nodes)]
        if side == 'sockets':
            where = ['--span_server', '127.0.0.1', '--span_server_port', str(server.port)]
        else:
            where = ['--span_server', f'file:{self.folder.name}/address']
            environment.setdefault('COLL_SHARE', 'off' if side == 'coll, TCP' else 'on')
        program = f'{options.folder}/vw.{"sockets" if side == "sockets" else "coll"}'
        self.began = time.perf_counter()
        self.nodes = [subprocess.Popen(
            [program, *where, '--unique_id', str(Job.number), '--total', str(nodes), '--node', str(node),
             '-d', f'{data}/{node}.data', '--cache_file', f'{self.folder.name}/{node}.cache', '-f', self.models[node],
             '--passes', str(options.passes), '--holdout_off', '--predict_only_model', '--loss_function', 'logistic', *more],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env={**os.environ, **environment})
            for node in range(nodes)]

    def finish(self, limit=60):
        """The seconds, and a hash of the model of each node."""
        try:
            said = [node.communicate(timeout=limit)[0] for node in self.nodes]
        except subprocess.TimeoutExpired:
            self.kill()
            raise SystemExit(f'a job has not ended after {limit} s:\n' + '\n'.join(node.communicate()[0] for node in self.nodes))
        seconds = time.perf_counter() - self.began
        for node, text in zip(self.nodes, said):
            if node.returncode:
                raise SystemExit(f'node failed:\n{text}')
        hashes = []
        for model in self.models:
            with open(model, 'rb') as file:
                hashes.append(hashlib.sha256(file.read()).hexdigest()[:12])
        return seconds, hashes

    def kill(self):
        for node in self.nodes:
            node.kill()


METHODS = {'sgd': ['--adaptive'], 'bfgs': ['--bfgs', '--mem', '5', '--l2', '1']}


def equal(options, data):
    wrong = 0

    def check(right, what):
        nonlocal wrong
        wrong += not right
        print(f'{"ok" if right else "FAILED"} - {what}', flush=True)
    server = Server(options.folder)
    try:
        for method, more in METHODS.items():
            for nodes in 2, 3, 4:
                write_data(data, nodes, 3000)
                models = {side: [Job(options, side, data, server, nodes, more).finish()[1] for _ in range(5)]
                          for side in ('sockets', 'coll', 'coll, TCP')}
                models_of = {side: len({tuple(run) for run in models[side]}) for side in models}
                check(all(len(set(run)) == 1 for run in models['coll'] + models['coll, TCP']),
                      f'{method}, {nodes} nodes: every node has the same model')
                check(len({run[0] for run in models['coll'] + models['coll, TCP']}) == 1,
                      f'{method}, {nodes} nodes: one model in 10 runs, memory and TCP (own sockets: {models_of["sockets"]} in 5)')
                if nodes == 2:
                    check(models['coll'] == models['sockets'], f'{method}, 2 nodes: the model of its own sockets')
    finally:
        server.stop()
    return wrong


def timed(options, data):
    write_data(data, options.nodes, options.examples)
    server = Server(options.folder)
    neighbors = [subprocess.Popen([sys.executable, '-c', 'while True: pass']) for _ in range(options.neighbors)]
    try:
        for method in options.methods.split(','):
            took = {'sockets': [], 'coll': [], 'coll, TCP': []}
            for round in range(options.rounds + 1):
                for side in took:
                    seconds, _ = Job(options, side, data, server, options.nodes, METHODS[method]).finish()
                    if round:
                        took[side].append(seconds)
            for side, seconds in took.items():
                ratios = [a / b for a, b in zip(seconds, took['sockets'])]
                figures = {'median': statistics.median(seconds), 'mean': statistics.mean(seconds),
                           'ratio': statistics.median(ratios),
                           'means': statistics.mean(seconds) / statistics.mean(took['sockets'])}
                print(json.dumps({'method': method, 'nodes': options.nodes, 'neighbors': options.neighbors, 'side': side,
                                  **{name: float(f'{value:.3g}') for name, value in figures.items()}}), flush=True)
    finally:
        server.stop()
        for neighbor in neighbors:
            neighbor.kill()
            neighbor.wait()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('folder')
    parser.add_argument('what', choices=['equal', 'time'])
    for name, value in ('nodes', 4), ('neighbors', 0), ('rounds', 7), ('examples', 8000), ('passes', 10):
        parser.add_argument(f'--{name}', type=int, default=value)
    parser.add_argument('--methods', default='sgd,bfgs')
    options = parser.parse_args()
    print(f'seed {SEED}', flush=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))           # and end the neighbors
    with tempfile.TemporaryDirectory() as data:
        sys.exit((timed(options, data) or 0) if options.what == 'time' else
                 equal(options, data) != 0)


if __name__ == '__main__':
    main()
