"""Where the bytes of an array are, without a copy: NumPy arrays, what has the buffer protocol, CPU tensors by DLPack, numbers.

Every array must be contiguous in C order and of the machine's byte order; what is written must be writable."""
import ctypes
import sys
from typing import Any, Dict, Optional, Tuple

from . import _abi
from ._load import lib

try:
    import numpy
except ImportError:                                             # memoryviews take the place of new arrays
    numpy = None  # type: ignore[assignment]

Shape = Tuple[int, ...]
TYPE_SIZES: Dict[int, int] = {code: lib.coll_type_size(code) for code in _abi.TYPES.values()}
_LETTERS = {'b': 'i', 'h': 'i', 'i': 'i', 'l': 'i', 'q': 'i', 'n': 'i', 'B': 'u', 'H': 'u', 'I': 'u', 'L': 'u', 'Q': 'u',
            'N': 'u', 'c': 'u', 'e': 'f', 'f': 'f', 'd': 'f'}             # of struct and memoryview; '?' is bool
_NATIVE = '<' if sys.byteorder == 'little' else '>!'
_FORMATS = {'i': ' bh i   q', 'u': ' BH I   Q', 'f': '  e f   d'}
_NAMES = {'bool': 'bool', 'bfloat16': 'bf16', 'float8_e4m3fn': 'f8e4m3', 'float8_e5m2': 'f8e5m2'}   # of NumPy and ml_dtypes
_known: Dict[Any, int] = {}                                     # NumPy's dtypes that have been met


def blob(length: int) -> int:
    """The type of opaque elements of so many bytes."""
    return 0x40000000 | length


def type_of(name: Any) -> int:
    """The number of a type by its name: "bf16", or NumPy's, or a number already."""
    if isinstance(name, int):
        return name
    if isinstance(name, str) and name in _abi.TYPES:
        return _abi.TYPES[name]
    if numpy is not None and not isinstance(name, str):
        return _type_of_dtype(numpy.dtype(name))
    raise TypeError(f'there is no type {name!r}; there are {", ".join(_abi.TYPES)}')


def size_of(code: int) -> int:
    return code & 0x3fffffff if code & 0x40000000 else TYPE_SIZES[code]


def _type_of_dtype(dtype: Any) -> int:
    if dtype not in _known:
        _known[dtype] = _find(dtype)
    return _known[dtype]


def _find(dtype: Any) -> int:
    if not dtype.isnative:
        raise TypeError(f'{dtype} is not in the byte order of this machine; convert it: x.astype(x.dtype.newbyteorder("="))')
    if dtype.hasobject:
        raise TypeError('an array of Python objects cannot be sent; comm.mpi has forms that pickle')
    if dtype.names and len(dtype.names) == 2:                   # (value, index)
        pair = '_'.join(f'{dtype[at].kind}{8 * dtype[at].itemsize}' for at in (0, 1))
        aligned = numpy.dtype([('a', dtype[0]), ('b', dtype[1])], align=True)
        places: Any = dtype.fields
        expected: Any = aligned.fields
        if pair in _abi.TYPES and dtype.itemsize == aligned.itemsize and \
                [places[name][1] for name in dtype.names] == [expected[name][1] for name in 'ab']:
            return _abi.TYPES[pair]
    name = _NAMES.get(dtype.name, f'{dtype.kind}{8 * dtype.itemsize}')
    return _abi.TYPES[name] if name in _abi.TYPES else blob(dtype.itemsize)


class Buffer:
    """An array's address, type, shape and owner."""
    __slots__ = ('address', 'type', 'shape', 'readonly', 'owner', 'array', 'is_number')

    def __init__(self, address: int, code: int, shape: Shape, readonly: bool, owner: Any, array: Any, is_number: bool = False):
        self.address, self.type, self.shape, self.readonly = address, code, shape, readonly
        self.owner, self.array, self.is_number = owner, array, is_number

    @property
    def count(self) -> int:
        count = 1
        for length in self.shape:
            count *= length
        return count

    def empty(self, shape: Shape, zero: bool = False) -> 'Buffer':
        """A new array of the same sort."""
        if hasattr(self.array, 'new_empty'):                                                    # of torch
            return look((self.array.new_zeros if zero else self.array.new_empty)(shape), self.type)
        if numpy is not None:
            dtype = self.array.dtype if isinstance(self.array, (numpy.ndarray, numpy.generic)) else _dtype(self.type)
            return look((numpy.zeros if zero else numpy.empty)(shape, dtype), self.type)
        return _memory(self.type, shape)

    def copy(self) -> 'Buffer':
        made = self.empty(self.shape)
        ctypes.memmove(made.address, self.address, self.count * size_of(self.type))
        return made

    def result(self) -> Any:
        """What the caller gets: the array, or a number where one was given."""
        if not self.is_number:
            return self.array
        return self.array[()].item() if hasattr(self.array[()], 'item') else self.array[()]


def _dtype(code: int) -> Any:
    """NumPy's, for a new array; 16- and 8-bit floats that it lacks are unsigned integers."""
    if code & 0x40000000:
        return numpy.dtype(f'V{size_of(code)}')
    name = next(name for name, number in _abi.TYPES.items() if number == code)
    if '_' in name:
        first, second = name.split('_')
        return numpy.dtype([('value', _dtype(_abi.TYPES[first])), ('index', _dtype(_abi.TYPES[second]))], align=True)
    if name in ('bf16', 'f8e4m3', 'f8e5m2'):
        return numpy.dtype(f'u{TYPE_SIZES[code]}')
    return numpy.dtype('?' if name == 'bool' else f'{name[0]}{TYPE_SIZES[code]}')


def _memory(code: int, shape: Shape) -> Buffer:
    name = next((name for name, number in _abi.TYPES.items() if number == code), 'u8')
    letter = '?' if name == 'bool' else _FORMATS.get('u' if name.startswith(('bf', 'f8')) else name[0], '')[
        size_of(code):size_of(code) + 1].strip()
    if not letter:
        raise TypeError(f'without NumPy there are no new arrays of {name}: give out=')
    count = 1
    for length in shape:
        count *= length
    flat: Any = memoryview(bytearray(count * size_of(code)))          # newer mypy knows only literal formats of cast
    return look(flat.cast(letter, list(shape)) if count else flat.cast(letter), code)


def look(x: Any, dtype: Any = None) -> Buffer:
    """The buffer of any array.  dtype: what its elements are, where the array cannot say it ("bf16" in unsigned integers)."""
    if isinstance(x, Buffer):
        return x
    if numpy is not None and isinstance(x, (numpy.ndarray, numpy.generic)):
        found = _look_numpy(x)
    elif isinstance(x, (bool, int, float, complex)):
        found = _look_number(x)
    elif hasattr(x, '__dlpack__') and not isinstance(x, memoryview):
        found = _look_dlpack(x)
    else:
        found = _look_memory(x)
    if dtype is not None:
        code = type_of(dtype)
        if size_of(code) != size_of(found.type):
            raise TypeError(f'dtype={dtype!r} has {size_of(code)} bytes, and the elements of the array have '
                            f'{size_of(found.type)}')
        found.type = code
    return found


def writable(x: Any, dtype: Any, what: str) -> Buffer:
    found = look(x, dtype)
    if found.readonly:
        raise ValueError(f'{what} is read-only')
    return found


def _look_numpy(x: Any) -> Buffer:
    if not x.flags.c_contiguous:
        raise ValueError(f'an array of shape {x.shape} and strides {x.strides} is not contiguous; '
                         'give numpy.ascontiguousarray of it')
    array = x if isinstance(x, numpy.ndarray) else numpy.asarray(x)
    return Buffer(array.__array_interface__['data'][0], _type_of_dtype(x.dtype), x.shape, not array.flags.writeable, array, x)


def _look_number(x: Any) -> Buffer:
    if isinstance(x, bool):
        held: Any = ctypes.c_bool(x)
        code = _abi.COLL_BOOL
    elif isinstance(x, int):
        if not -2 ** 63 <= x < 2 ** 63:
            raise ValueError(f'{x} does not fit into 64 bits')
        held, code = ctypes.c_int64(x), _abi.COLL_I64
    elif isinstance(x, float):
        held, code = ctypes.c_double(x), _abi.COLL_F64
    else:
        held, code = (ctypes.c_double * 2)(x.real, x.imag), _abi.COLL_C128
    return Buffer(ctypes.addressof(held), code, (), True, held, x, True)


class _PyBuffer(ctypes.Structure):
    """Py_buffer."""
    _fields_ = [('buf', ctypes.c_void_p), ('obj', ctypes.c_void_p), ('len', ctypes.c_ssize_t), ('itemsize', ctypes.c_ssize_t),
                ('readonly', ctypes.c_int), ('ndim', ctypes.c_int), ('format', ctypes.c_char_p), ('shape', ctypes.c_void_p),
                ('strides', ctypes.c_void_p), ('suboffsets', ctypes.c_void_p), ('internal', ctypes.c_void_p)]


_get_buffer = ctypes.pythonapi.PyObject_GetBuffer
_get_buffer.argtypes = [ctypes.py_object, ctypes.POINTER(_PyBuffer), ctypes.c_int]
_release_buffer = ctypes.pythonapi.PyBuffer_Release
_release_buffer.argtypes = [ctypes.POINTER(_PyBuffer)]


def _look_memory(x: Any) -> Buffer:
    try:
        view = memoryview(x)
    except TypeError:
        raise TypeError(f'{type(x).__name__} is no array: it has neither the buffer protocol nor __dlpack__') from None
    if not view.c_contiguous:
        raise ValueError(f'a memoryview of shape {view.shape} and strides {view.strides} is not contiguous')
    letter = view.format.lstrip('@=' + _NATIVE)
    if letter == '?':
        code = _abi.COLL_BOOL
    elif letter in _LETTERS:
        code = _abi.TYPES[f'{_LETTERS[letter]}{8 * view.itemsize}']
    else:
        raise TypeError(f'elements of the format {view.format!r} have no type here')
    got = _PyBuffer()                                           # released at once: `view` holds on to the memory
    _get_buffer(view, got, 0)
    address = got.buf or 0
    _release_buffer(got)
    return Buffer(address, code, tuple(view.shape or ()), view.readonly, view, x)


class _Tensor(ctypes.Structure):
    """DLTensor."""
    _fields_ = [('data', ctypes.c_void_p), ('device_type', ctypes.c_int), ('device_id', ctypes.c_int), ('ndim', ctypes.c_int),
                ('code', ctypes.c_uint8), ('bits', ctypes.c_uint8), ('lanes', ctypes.c_uint16),
                ('shape', ctypes.POINTER(ctypes.c_int64)), ('strides', ctypes.POINTER(ctypes.c_int64)),
                ('byte_offset', ctypes.c_uint64)]


_capsule_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_capsule_pointer.argtypes, _capsule_pointer.restype = [ctypes.py_object, ctypes.c_char_p], ctypes.c_void_p
_DLPACK_TYPES = {0: 'i', 1: 'u', 2: 'f', 4: 'bf', 5: 'c', 6: 'bool'}


def _look_dlpack(x: Any) -> Buffer:
    """The capsule is kept as long as the buffer; its maker frees it then."""
    if hasattr(x, '__dlpack_device__') and x.__dlpack_device__()[0] != 1:
        raise TypeError('a tensor must be in the memory of the CPU')
    capsule = x.__dlpack__()
    tensor = _Tensor.from_address(_capsule_pointer(capsule, b'dltensor'))
    shape = tuple(tensor.shape[at] for at in range(tensor.ndim))
    expected = 1
    for length, at in zip(reversed(shape), reversed(range(tensor.ndim))):
        if tensor.strides and length > 1 and tensor.strides[at] != expected:
            raise ValueError(f'a tensor of shape {shape} is not contiguous; give x.contiguous()')
        expected *= length
    letter = _DLPACK_TYPES.get(tensor.code)
    name = letter if letter == 'bool' else f'{letter}{tensor.bits}'
    if tensor.lanes != 1 or name not in _abi.TYPES:
        raise TypeError(f'elements of the DLPack type {tensor.code}, {tensor.bits} bits, have no type here')
    return Buffer((tensor.data or 0) + tensor.byte_offset, _abi.TYPES[str(name)], shape, False, capsule, x)


