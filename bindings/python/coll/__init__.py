"""coll: collectives between threads, and between processes and hosts over TCP.  docs/python.md describes it.

    import coll, numpy
    comm = coll.init()                          # started by coll-run -n 4 python3 program.py, torchrun, mpiexec, or alone
    x = numpy.ones(1000, 'f4')
    comm.allreduce_(x, op='avg')                # in place; comm.allreduce(x) gives a new array"""
from ._abi import VERSION
from ._load import lib as _lib  # noqa: F401
from .comm import ANY_SOURCE, ANY_TAG, COLOR_NONE, RANK_NONE, Comm
from .errors import (AbortedError, ArgumentError, DeniedError, Error, ForkedError, MismatchError, OutOfMemoryError, PeerError,
                     ProtocolError, SystemCallError, TimeoutError, UnsupportedError)
from .leaves import LeafSum
from .requests import Received, Request, wait_all, wait_any
from .world import init, init_threads, spawn

__version__ = '.'.join(map(str, VERSION))
SUM, PROD, MIN, MAX, AVG, BAND, BOR, BXOR, LAND, LOR, LXOR, MINLOC, MAXLOC = (
    'sum', 'prod', 'min', 'max', 'avg', 'band', 'bor', 'bxor', 'land', 'lor', 'lxor', 'minloc', 'maxloc')

__all__ = ['ANY_SOURCE', 'ANY_TAG', 'AVG', 'AbortedError', 'ArgumentError', 'BAND', 'BOR', 'BXOR', 'Comm', 'DeniedError', 'Error',
           'ForkedError', 'LAND', 'LOR', 'LXOR', 'LeafSum', 'MAX', 'MAXLOC', 'MIN', 'MINLOC', 'MismatchError', 'COLOR_NONE',
           'RANK_NONE', 'OutOfMemoryError', 'PROD', 'PeerError', 'ProtocolError', 'Received', 'Request', 'SUM', 'SystemCallError',
           'TimeoutError', 'UnsupportedError', 'VERSION', 'init', 'init_threads', 'spawn', 'wait_all', 'wait_any']
