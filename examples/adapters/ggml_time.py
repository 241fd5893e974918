"""Tokens/s of a model on several processes: ggml over coll, and llama.cpp's RPC mode.  ggml_check.sh makes the programs.

    python3 ggml_time.py FOLDER [--processes 2] [--tokens 64] [--rounds 5] [--rate 1e9]

Each process computes with one thread.  Over coll every process has a part of each layer.  In RPC mode every server has some
layers, and llama-bench is one more process, which computes nothing.  The model has random weights of f32.  --rate BITS takes
root: half of the processes are in each of two network namespaces, joined by a link of so many bits a second."""
import argparse
import json
import os
import re
import random
import socket
import statistics
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, '..', '..', 'bench', 'tcp'))
sys.dont_write_bytecode = True
import net


def inside(space, command):
    return (net.inside(space) if space else []) + command


def over_coll(options, processes, hosts, *more, **environment):
    with tempfile.TemporaryDirectory() as folder:
        started = [subprocess.Popen(
            inside(hosts[rank * len(hosts) // processes][0],
                   [f'{options.folder}/ggml_tokens', 'run', f'{options.folder}/time.gguf', str(options.tokens), *more]),
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
            env={**os.environ, 'COLL_RANK': str(rank), 'COLL_SIZE': str(processes), 'COLL_ADDR': f'file:{folder}/address',
                 **environment}) for rank in range(processes)]
        said = [one.communicate(timeout=300)[1] for one in started]
    if any(one.returncode for one in started):
        raise SystemExit('\n'.join(said))
    return float(re.search(r'ranks: ([\d.]+) tokens/s', said[0]).group(1))


def free_port():
    while True:
        with socket.socket() as one:
            port = random.randrange(10000, 30000)
            if one.connect_ex(('127.0.0.1', port)):
                return port


def over_rpc(options, processes, hosts):
    made = f'{options.folder}/made/bin'
    command = [f'{made}/llama-bench', '-m', f'{options.folder}/time.gguf', '-p', '0', '-n', str(options.tokens),
               '-t', '1', '-r', '1', '-o', 'json']
    servers, addresses = [], []
    try:
        for server in range(processes if processes > 1 else 0):
            space, address = hosts[server * len(hosts) // processes]
            port = free_port()
            servers.append(subprocess.Popen(
                inside(space, ['stdbuf', '-oL', f'{made}/ggml-rpc-server', '-t', '1', '-H', address, '-p', str(port)]),
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True))
            addresses.append(f'{address}:{port}')
            while 'endpoint' not in servers[-1].stdout.readline():
                if servers[-1].poll() is not None:
                    raise SystemExit('a server has ended')
        if servers:
            command += ['--rpc', ','.join(addresses), '-ngl', '99']
        done = subprocess.run(inside(hosts[0][0], command), capture_output=True, text=True, timeout=300)
        if done.returncode:
            raise SystemExit(done.stderr[-2000:])
        return json.loads(done.stdout)[0]['avg_ts']
    finally:
        for server in servers:
            server.kill()
            server.communicate()


def compared(options, hosts):
    processes = options.processes
    ways = {'one process': lambda: over_coll(options, 1, hosts),
            'one process of llama.cpp': lambda: over_rpc(options, 1, hosts),
            'coll': lambda: over_coll(options, processes, hosts),
            'coll, bf16': lambda: over_coll(options, processes, hosts, 'bf16'),
            'coll, TCP': lambda: over_coll(options, processes, hosts, COLL_SHARE='off'),
            'llama.cpp RPC': lambda: over_rpc(options, processes, hosts)}
    if options.rate:
        del ways['coll, TCP']
    took = {name: [] for name in ways}
    for number in range(options.rounds + 1):
        turn = number % len(ways)
        for name in (list(ways) * 2)[turn:turn + len(ways)]:
            speed = ways[name]()
            if number:
                took[name].append(speed)
    for name, speeds in took.items():
        print(json.dumps({'processes': processes, 'side': name, 'tokens/s': round(statistics.median(speeds), 1),
                          'of llama.cpp RPC': round(statistics.median(
                              a / b for a, b in zip(speeds, took['llama.cpp RPC'])), 2)}), flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('folder')
    for name, value in (('processes', 2), ('tokens', 64), ('rounds', 5), ('width', 768), ('forward', 2048), ('layers', 12)):
        parser.add_argument(f'--{name}', type=int, default=value)
    parser.add_argument('--rate', type=float)
    options = parser.parse_args()
    subprocess.run([f'{options.folder}/ggml_tokens', 'make', f'{options.folder}/time.gguf', '1', str(options.width),
                    str(options.forward), str(options.layers)], check=True)
    try:
        if not options.rate:
            return compared(options, [(None, '127.0.0.1')])
        with net.Namespaces('ggml') as space:
            compared(options, space.hosts(2, options.rate))
    finally:
        os.unlink(f'{options.folder}/time.gguf')


if __name__ == '__main__':
    main()
