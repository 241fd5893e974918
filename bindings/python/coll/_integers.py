"""Integers for C.  ctypes silently takes the low bits of one that is too long; here it is a ValueError."""
import ctypes
import operator
from typing import Any, Sequence


def fits(value: Any, what: str, kind: Any = ctypes.c_int) -> int:
    """The value, if it is an integer that the type of C holds."""
    number = operator.index(value)
    if kind(number).value != number:
        raise ValueError(f'{what}={number} does not fit into {8 * ctypes.sizeof(kind)} bits')
    return number


def integers(values: Sequence[Any], what: str, kind: Any = ctypes.c_int) -> Any:
    """An array of C, with room for at least one."""
    return (kind * max(len(values), 1))(*(fits(value, what, kind) for value in values))


def store(struct: Any, key: str, value: Any, what: str = '') -> None:
    """Set a member of a struct; `what` is its name in an error."""
    setattr(struct, key, value)
    stored = getattr(struct, key)
    if isinstance(stored, int) and hasattr(value, '__index__') and stored != value:
        fits(value, what or key, dict(struct._fields_)[key])
