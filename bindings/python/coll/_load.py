"""Find libcoll and load it.

In this order: the file that COLL_LIBRARY names; libcoll.so.MAJOR.MINOR beside this file, as in a wheel; the one that the system's
loader finds; the one in /usr/local/lib."""
import ctypes
import os

from . import _abi

NAME = f'libcoll.so.{_abi.VERSION[0]}.{_abi.VERSION[1]}'
HERE = os.path.dirname(os.path.abspath(__file__))


def _open() -> ctypes.CDLL:
    beside = os.path.join(HERE, NAME)
    chosen = os.environ.get('COLL_LIBRARY') or (beside if os.path.exists(beside) else None)
    if chosen:                                                  # and no other one if it cannot be loaded
        return ctypes.CDLL(chosen)
    for path in (NAME, os.path.join('/usr/local/lib', NAME)):
        try:
            return ctypes.CDLL(path)
        except OSError as error:
            why = error
    raise ImportError(f'coll: cannot load {NAME} ({why}); install the package (pip install CHECKOUT), or the library (make '
                      f'install), or set COLL_LIBRARY to the path of the library')


def load() -> ctypes.CDLL:
    library = _open()
    try:
        _abi.bind(library)
    except AttributeError as error:
        version = '.'.join(map(str, _abi.VERSION))
        raise ImportError(f'coll: this library is not that of coll.h {version}: {error}') from error
    return library


lib = load()
