"""distributed-llama over coll and over its own sockets: tokens, and tokens/s.  distributed_llama.sh makes both programs.

    python3 distributed_llama_check.py FOLDER equal
    python3 distributed_llama_check.py FOLDER time --nodes 4 --neighbors 8 [--rounds 7] [--rate 1e9]

The model has random weights.  `time` takes root: --rate BITS puts half of the nodes into each of two network namespaces, joined
by a link of so many bits a second."""
import argparse
import array
import json
import os
import random
import re
import signal
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, '..', '..', 'bench', 'tcp'))
sys.dont_write_bytecode = True
import net

SEED = int(os.environ.get('COLL_TEST_SEED') or time.time_ns() % 100000)
WORDS, CONTEXT, HEADS = 512, 512, 8
SIDES = {'sockets': [], 'sockets, blocking': ['--net-turbo', '0'], 'coll': [], 'coll, TCP': []}
F32, Q40, LLAMA, SILU = 0, 2, 0xABCD00, 1


# ---- a model

def write_model(path, width, forward, layers):
    """Weights of 4 bits in blocks of 32, each block with a scale of f16; norms and word vectors of f32."""
    chance = random.Random(SEED)
    header = {0: 0, 1: LLAMA, 2: width, 3: forward, 4: layers, 5: HEADS, 6: HEADS, 9: WORDS, 10: CONTEXT, 11: SILU, 13: Q40}
    scale = struct.pack('e', 0.4 / width ** 0.5)

    def matrix(file, rows, columns):
        file.write(b''.join(scale + chance.randbytes(16) for _ in range(rows * columns // 32)))

    with open(path, 'wb') as file:
        file.write(struct.pack('ii', 0xA00ABCD, 8 + 8 * len(header)))
        file.write(b''.join(struct.pack('iI', *pair) for pair in header.items()))
        array.array('f', (chance.gauss(0, 1) for _ in range(WORDS * width))).tofile(file)
        ones = array.array('f', [1] * width)
        for _ in range(layers):
            for rows, columns in [(width, width)] * 4 + [(forward, width), (width, forward), (forward, width)]:
                matrix(file, rows, columns)
            ones.tofile(file)
            ones.tofile(file)
        ones.tofile(file)
        matrix(file, WORDS, width)


def write_words(path):
    """a to z, and pairs of these; the last two mean begin and end."""
    letters = 'abcdefghijklmnopqrstuvwxyz'
    words = (list(letters) + [a + b for a in letters for b in letters])[:WORDS - 2] + ['<b>', '<e>']
    header = {0: 1, 1: WORDS, 2: 3, 3: WORDS - 2, 9: 1, 10: 1}
    with open(path, 'wb') as file:
        file.write(struct.pack('ii', 0x567124, 8 + 8 * len(header)))
        file.write(b''.join(struct.pack('ii', *pair) for pair in header.items()))
        file.write(struct.pack('i', WORDS - 1))
        for number, word in enumerate(words):
            file.write(struct.pack('fI', -float(number), len(word)) + word.encode())


# ---- a job

def free_ports(count):
    """They are free now.  No connection takes them, because they are below those that systems give to connections."""
    found = []
    while len(found) < count:
        with socket.socket() as one:
            port = random.randrange(10000, 30000)
            if port not in found and one.connect_ex(('127.0.0.1', port)):
                found.append(port)
    return found


def inside(space, command):
    return (net.inside(space) if space else []) + command


def run(options, side, data, nodes, hosts):
    """(what the root node says, tokens/s of the prompt, of the answer)"""
    program = f'{options.folder}/dllama.{side.split(",")[0]}'
    common = ['--nthreads', '1', *SIDES[side]]
    places = [hosts[node * len(hosts) // nodes] for node in range(nodes)]
    environment = {**os.environ, 'COLL_ADDR': f'file:{data}/address', 'COLL_SHARE': 'off' if side == 'coll, TCP' else 'on'}
    ports, workers = free_ports(nodes - 1), []
    try:
        for port, (space, _) in zip(ports, places[1:]):
            workers.append(subprocess.Popen(
                inside(space, ['stdbuf', '-oL', program, 'worker', '--port', str(port), *common]),
                stdout=subprocess.PIPE, text=True, env=environment))
        for worker in workers:
            while 'Listening' not in worker.stdout.readline():
                if worker.poll() is not None:
                    raise SystemExit('a worker has ended')
        command = [program, 'inference', '--model', f'{data}/model', '--tokenizer', f'{data}/words', '--buffer-float-type', 'q80',
                   '--prompt', 'thequickbrownfoxjumpsoverthelazydog' * 4, '--steps', str(options.steps), '--temperature', '0',
               *common]
        if workers:
            command += ['--workers', *(f'{address}:{port}' for port, (_, address) in zip(ports, places[1:]))]
        space = places[0][0]
        said = subprocess.run(inside(space, command), stdout=subprocess.PIPE, text=True, env=environment,
                              timeout=300)
        if said.returncode:
            raise SystemExit(f'the root node has failed:\n{said.stdout[-1000:]}')
    finally:
        for worker in workers:
            worker.kill()
            worker.communicate()
    speeds = [float(x) for x in re.findall(r'tokens/s: ([\d.]+)', said.stdout)]
    return re.findall(r'kB \| (.*)', said.stdout), *speeds


# ---- what is compared

def equal(options, data, hosts):
    wrong = 0
    for nodes in 2, 4:
        tokens = {side: run(options, side, data, nodes, hosts)[0] for side in SIDES}
        for side in list(SIDES)[2:]:
            same = tokens[side] == tokens['sockets'] and len(set(tokens[side])) > 3
            wrong += not same
            print(f'{"ok" if same else "FAILED"} - {nodes} nodes, {side}: the {len(tokens[side])} tokens of its own sockets',
                  flush=True)
    return wrong


def timed(options, data, hosts):
    neighbors = [subprocess.Popen([sys.executable, '-c', 'while True: pass']) for _ in range(options.neighbors)]
    sides = list(SIDES)[options.blocking:]        # spinning, its sockets take minutes beside many that compute
    took = {side: [] for side in sides}
    try:
        for number in range(options.rounds + 1):
            turn = number % len(sides)
            for side in (sides * 2)[turn:turn + len(sides)]:
                _, prompt, answer = run(options, side, data, options.nodes, hosts)
                if number:
                    took[side].append((prompt, answer))
    finally:
        for neighbor in neighbors:
            neighbor.kill()
            neighbor.wait()
    for side, speeds in took.items():
        figures = {}
        for index, what in enumerate(('prompt', 'answer')):
            figures[what] = statistics.median(pair[index] for pair in speeds)
            figures[f'{what}, time / {sides[0]}'] = statistics.median(
                beside[index] / pair[index] for pair, beside in zip(speeds, took[sides[0]]))
        print(json.dumps({'nodes': options.nodes, 'neighbors': options.neighbors, 'side': side,
                          **{name: float(f'{value:.3g}') for name, value in figures.items()}}), flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('folder')
    parser.add_argument('what', choices=['equal', 'time'])
    for name, value in ('nodes', 4), ('neighbors', 0), ('rounds', 7), ('steps', CONTEXT), ('width', 256), ('forward', 768), \
            ('layers', 4):
        parser.add_argument(f'--{name}', type=int, default=value)
    parser.add_argument('--rate', type=float)
    parser.add_argument('--blocking', action='store_true', help='compare with its blocking sockets only')
    options = parser.parse_args()
    print(f'seed {SEED}', flush=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))           # and end the neighbors
    with tempfile.TemporaryDirectory() as data:
        write_model(f'{data}/model', options.width, options.forward, options.layers)
        write_words(f'{data}/words')
        todo = equal if options.what == 'equal' else timed
        if not options.rate:
            return sys.exit(todo(options, data, [(None, '127.0.0.1')]) or 0)
        with net.Namespaces('dllama') as space:
            sys.exit(todo(options, data, space.hosts(2, options.rate)) or 0)


if __name__ == '__main__':
    main()
