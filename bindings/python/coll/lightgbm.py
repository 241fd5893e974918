"""LightGBM over the ranks of a communicator, in the place of its own sockets.

    import coll, coll.lightgbm, lightgbm

    with coll.init() as comm, coll.lightgbm.network(comm) as parameters:
        data = lightgbm.Dataset(rows_of_this_rank, labels)
        model = lightgbm.train({'objective': 'regression', **parameters}, data)      # the same model on every rank

It needs the package lightgbm, and a library of some lines, libcoll_lightgbm.so: beside this file, or compiled from
examples/adapters/lightgbm.cpp by $CXX or c++ into $XDG_CACHE_HOME/coll, once for each text of it."""
import contextlib
import ctypes
import hashlib
import os
import platform
import shlex
import subprocess
import tempfile
import threading
from typing import Any, Dict, Iterator, Optional

from . import _abi
from ._load import lib
from .comm import Comm

NAME = 'libcoll_lightgbm.so'
HERE = os.path.dirname(os.path.abspath(__file__))
CHECKOUT = os.path.join(HERE, '..', '..', '..')
_state = threading.local()
_loading = threading.Lock()
_functions: Optional[ctypes.CDLL] = None


def _place(*places: str) -> str:
    found = next((place for place in places if os.path.exists(place)), None)
    if not found:
        raise ImportError(f'coll.lightgbm: found neither {NAME} in {HERE} nor {" nor ".join(map(os.path.normpath, places))}')
    return found


def _compiled() -> str:
    """The path of the library made of lightgbm.cpp, which is compiled if it has not been."""
    source = _place(os.path.join(HERE, 'lightgbm.cpp'), os.path.join(CHECKOUT, 'examples', 'adapters', 'lightgbm.cpp'))
    header = _place(os.path.join(HERE, 'coll.h'), os.path.join(CHECKOUT, 'single', 'coll.h'), '/usr/local/include/coll.h',
                    '/usr/include/coll.h')
    compiler = shlex.split(os.environ.get('CXX') or 'c++')
    flags = ['-std=c++11', '-O2', '-fPIC', '-shared', '-I', os.path.dirname(header)]
    key = hashlib.sha256(' '.join([platform.machine(), str(_abi.VERSION)] + compiler + flags).encode())
    for path in (source, header):
        with open(path, 'rb') as file:
            key.update(file.read())
    home = os.environ.get('XDG_CACHE_HOME') or os.path.join(os.path.expanduser('~'), '.cache')
    folder = os.path.join(home, 'coll', key.hexdigest()[:16])
    made = os.path.join(folder, NAME)
    if os.path.exists(made):
        return made
    os.makedirs(folder, mode=0o700, exist_ok=True)
    handle, part = tempfile.mkstemp(dir=folder, suffix='.so')   # many ranks may do so at once: the last one's is the one
    os.close(handle)
    try:
        done = subprocess.run(compiler + flags + [source, '-o', part], capture_output=True, text=True)
        if done.returncode:
            raise ImportError(f'coll.lightgbm: {" ".join(compiler)} cannot compile {source}: {done.stderr.strip()[-2000:]}')
        os.rename(part, made)
    except OSError as error:
        raise ImportError(f'coll.lightgbm: {compiler[0]} cannot compile {source}: {error}; install a C++ compiler, or set CXX') \
            from error
    finally:
        if os.path.exists(part):
            os.unlink(part)
    return made


def _load() -> ctypes.CDLL:
    global _functions
    with _loading:
        if not _functions:
            beside = os.path.join(HERE, NAME)
            path = beside if os.path.exists(beside) else _compiled()
            ctypes.CDLL(lib._name, mode=ctypes.RTLD_GLOBAL)     # the functions of coll.h that it calls are those of this library
            _functions = ctypes.CDLL(path)
            _functions.coll_lightgbm_use.argtypes, _functions.coll_lightgbm_use.restype = [ctypes.c_void_p], None
            _functions.coll_lightgbm_status.argtypes, _functions.coll_lightgbm_status.restype = [], ctypes.c_int32
        return _functions


@contextlib.contextmanager
def network(comm: Comm, tree_learner: str = 'data') -> Iterator[Dict[str, Any]]:
    """LightGBM communicates over `comm` on this thread until the end of the block.  Gives the parameters that it needs.

    tree_learner is LightGBM's: "data" or "voting".  In both every rank has some of the rows.  (LightGBM's library has no
    "feature"; only its program has.)  All ranks enter the block, make their Datasets inside of it, and train with the same
    parameters, on the thread that entered.  Only LightGBM uses the communicator meanwhile.  If a rank fails, the block raises
    coll.PeerError, or another coll.Error, on all other ranks.  Models can be used after the block."""
    from lightgbm import basic  # type: ignore

    if tree_learner not in ('data', 'voting'):
        raise ValueError(f'invalid tree_learner {tree_learner!r}: use "data" or "voting"')
    if getattr(_state, 'is_used', False):
        raise RuntimeError('this thread is inside another coll.lightgbm.network: leave that one first')
    if comm.size == 1:
        yield {'num_machines': 1, 'tree_learner': 'serial'}
        return
    functions, thread = _load(), threading.get_ident()
    functions.coll_lightgbm_use(comm._handle)
    basic._safe_call(basic._LIB.LGBM_NetworkInitWithFunctions(
        comm.size, comm.rank, ctypes.cast(functions.coll_lightgbm_reduce_scatter, ctypes.c_void_p),
        ctypes.cast(functions.coll_lightgbm_allgather, ctypes.c_void_p)))
    _state.is_used = True
    try:
        yield {'num_machines': comm.size, 'tree_learner': tree_learner, 'pre_partition': True}
    except basic.LightGBMError as error:
        status = functions.coll_lightgbm_status()
        if status == _abi.COLL_OK:
            raise
        raise comm._error(status) from error                    # LightGBM's text is the same, cut after 511 bytes
    finally:
        if threading.get_ident() != thread:
            raise RuntimeError('coll.lightgbm.network ends on another thread than it began on')
        _state.is_used = False
        basic._safe_call(basic._LIB.LGBM_NetworkFree())
        functions.coll_lightgbm_use(None)
