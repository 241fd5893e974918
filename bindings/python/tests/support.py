"""What the tests share: processes started by coll-run, and arrays of every type with NumPy as the oracle."""
import functools
import os
import subprocess
import sys

import numpy as np

import coll
from coll import _abi
from coll._load import lib

RUN = os.environ.get('COLL_RUN', 'coll-run')
HERE = os.path.dirname(os.path.abspath(__file__))
INTEGERS = ('i8', 'i16', 'i32', 'i64', 'u8', 'u16', 'u32', 'u64')
FLOATS = ('f16', 'bf16', 'f8e4m3', 'f8e5m2', 'f32', 'f64')
COMPLEX = ('c64', 'c128')
OPS = {'sum': np.add, 'prod': np.multiply, 'min': np.minimum, 'max': np.maximum, 'band': np.bitwise_and, 'bor': np.bitwise_or,
       'bxor': np.bitwise_xor, 'land': np.logical_and, 'lor': np.logical_or, 'lxor': np.logical_xor}


def has(name, op):
    """The table of docs/reference.md."""
    if name in INTEGERS:
        return op not in ('minloc', 'maxloc')
    if name == 'bool':
        return op in ('min', 'max', 'band', 'bor', 'bxor', 'land', 'lor', 'lxor')
    if name in FLOATS:
        return op in ('sum', 'prod', 'min', 'max', 'avg', 'land', 'lor', 'lxor')
    return op in ('sum', 'prod', 'avg')


def storage(name):
    if name in ('bf16', 'f8e4m3', 'f8e5m2'):
        return np.dtype('u2' if name == 'bf16' else 'u1')
    return np.dtype('?' if name == 'bool' else name[0] + str(int(name[1:]) // 8))


def convert(values, to, of):
    """By the library, which rounds as its results are rounded."""
    values = np.ascontiguousarray(values, storage(of))
    made = np.empty(values.shape, storage(to))
    assert lib.coll_convert(made.ctypes.data, _abi.TYPES[to], values.ctypes.data, _abi.TYPES[of], values.size) == 0
    return made


def stored(values, name):
    return convert(values, name, 'f64') if name in FLOATS else np.asarray(values).astype(storage(name))


def valued(x, name):
    return convert(x, 'f64', name) if name in FLOATS else x


def inputs(rank, shape, name, op, seed=0):
    """Values of which every partial result is exact in the type, so that bits can be compared."""
    chance = np.random.default_rng([rank, seed, len(op), *shape])
    if op == 'prod':
        values = chance.choice([1, 2] if name in ('u8', 'u16', 'u32', 'u64') else [1, 2, -1], shape)
    elif name == 'bool':
        values = chance.integers(0, 2, shape)
    else:
        values = chance.integers(0 if name[0] == 'u' else -3, 4, shape)
    return stored(values + (1j * chance.integers(0, 2, shape) if name in COMPLEX and op != 'prod' else 0), name)


def folded(parts, name, op):
    """The oracle."""
    parts = [valued(part, name) for part in parts]
    if op in ('land', 'lor', 'lxor'):                           # 1 or 0, also of one rank alone
        parts = [part != 0 for part in parts]
    with np.errstate(all='ignore'):
        if op == 'avg':
            wide = [part.astype('i8') if name in INTEGERS else part.astype('c16' if name in COMPLEX else 'f8') for part in parts]
            total = functools.reduce(np.add, wide)
            if name in COMPLEX:                                 # NumPy's division of complex numbers rounds more than once
                return stored(total.real / len(parts) + 1j * (total.imag / len(parts)), name)
            mean = np.trunc(total / len(parts)) if name in INTEGERS else total / len(parts)
            return stored(mean, name)
        return stored(functools.reduce(OPS[op], parts), name)


def launched(ranks, *command, **options):
    """coll-run -n ranks python3 command; returns the finished process."""
    return subprocess.run([RUN, '-n', str(ranks), '--no-prefix', sys.executable, *command], capture_output=True, text=True,
                          timeout=120, **options)
