"""Find libcoll, or compile it from the single file.

In this order: the file that COLL_LIBRARY names; libcoll.so.MAJOR.MINOR beside this file; the same where the system looks for
libraries; single/coll.h (beside this file as coll.h, in the checkout around it, or installed), compiled by $CC or cc into
$XDG_CACHE_HOME/coll, once for each text of it."""
import ctypes
import hashlib
import os
import platform
import shlex
import subprocess
import sys
import tempfile
from typing import Iterator, Optional

from . import _abi

NAME = f'libcoll.so.{_abi.VERSION[0]}.{_abi.VERSION[1]}'
HERE = os.path.dirname(os.path.abspath(__file__))


def _installed() -> Iterator[str]:
    yield os.path.join(HERE, NAME)
    yield NAME                                                  # as the loader finds it: LD_LIBRARY_PATH, ld.so.conf, /usr/lib
    yield os.path.join('/usr/local/lib', NAME)


def _header() -> Optional[str]:
    places = [os.path.join(HERE, 'coll.h'), os.path.join(HERE, '..', '..', '..', 'single', 'coll.h'), '/usr/local/include/coll.h',
              '/usr/include/coll.h']
    return next((place for place in places if os.path.exists(place)), None)


def _compile(header: str) -> str:
    """The path of the library made of this header, which is compiled if it has not been."""
    compiler = shlex.split(os.environ.get('CC') or 'cc')
    flags = ['-std=c11', '-O2', '-fPIC', '-shared', '-x', 'c', '-DCOLL_IMPLEMENTATION', '-pthread']
    with open(header, 'rb') as file:
        key = hashlib.sha256(file.read() + ' '.join([platform.machine()] + compiler + flags).encode()).hexdigest()[:16]
    home = os.environ.get('XDG_CACHE_HOME') or os.path.join(os.path.expanduser('~'), '.cache')
    folder = os.path.join(home, 'coll', key)
    path = os.path.join(folder, NAME)
    if os.path.exists(path):
        return path
    os.makedirs(folder, mode=0o700, exist_ok=True)
    print(f'coll: compiling {header} with {compiler[0]}, once; this may take 15 s', file=sys.stderr, flush=True)
    handle, made = tempfile.mkstemp(dir=folder, suffix='.so')   # many ranks may do so at once: the last one's is the one
    os.close(handle)
    try:
        done = subprocess.run(compiler + flags + [header, '-o', made], capture_output=True, text=True)
        if done.returncode:
            raise ImportError(f'coll: {" ".join(compiler)} cannot compile {header}: {done.stderr.strip()[-2000:]}')
        os.rename(made, path)
    except OSError as error:
        raise ImportError(f'coll: {NAME} is not installed, and {compiler[0]} cannot compile {header}: {error}') from error
    finally:
        if os.path.exists(made):
            os.unlink(made)
    return path


def _open() -> ctypes.CDLL:
    named = os.environ.get('COLL_LIBRARY')
    if named:
        return ctypes.CDLL(named)
    for path in _installed():
        if os.sep not in path or os.path.exists(path):
            try:
                return ctypes.CDLL(path)
            except OSError:
                continue
    header = _header()
    if not header:
        package = f'libcoll{_abi.VERSION[0]}.{_abi.VERSION[1]}'
        raise ImportError(f'coll: found neither {NAME} nor coll.h; install the library (make install, or the package {package}), '
                          f'or copy single/coll.h into {HERE}, or set COLL_LIBRARY to the path of the library')
    return ctypes.CDLL(_compile(header))


def load() -> ctypes.CDLL:
    library = _open()
    try:
        _abi.bind(library)
    except AttributeError as error:
        version = '.'.join(map(str, _abi.VERSION))
        raise ImportError(f'coll: this library is not that of coll.h {version}: {error}') from error
    return library


lib = load()
