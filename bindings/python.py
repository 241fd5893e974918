"""bindings/python/coll/_abi.py: the declarations for ctypes."""
import textwrap

SIMPLE = {'int': 'c_int', 'unsigned': 'c_uint', 'size_t': 'c_size_t', 'double': 'c_double', 'float': 'c_float',
          'bool': 'c_bool', 'int32_t': 'c_int32', 'int64_t': 'c_int64',
          'uint64_t': 'c_uint64', 'uint16_t': 'c_uint16', 'uint8_t': 'c_uint8', 'coll_type': 'c_int32',
          'const char *': 'c_char_p', 'char *': 'c_char_p', 'void *': 'c_void_p', 'const void *': 'c_void_p'}

HEAD = '''"""coll.h for ctypes.  Written by bindings/generate.py from its declarations; `make bindings` writes it anew."""
from ctypes import (CFUNCTYPE, POINTER, Structure, c_bool, c_char_p, c_double, c_float, c_int, c_int32, c_int64, c_size_t, c_uint,
                    c_uint8, c_uint16, c_uint64, c_void_p)
from typing import Any, Dict, NamedTuple, Tuple


class Side(NamedTuple):
    """The blocks of a call on one side: which rank has them, what they run over, and where their counts are."""
    who: str
    over: str
    counts: str


class Kind(NamedTuple):
    """A row of core/contract/coll_shape.h."""
    number: int
    send: Side
    recv: Side
    in_place: str
    traits: Tuple[str, ...]

'''

TAIL = '''

def bind(library: Any) -> None:
    """Give every function its types.  AttributeError: the library lacks one."""
    for name, (result, arguments) in PROTOTYPES.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
'''


def ctype(kind, table):
    if isinstance(kind, dict):
        function = kind['function']
        parts = [ctype(function['returns'], table)] + [ctype(argument['type'], table) for argument in function['arguments']]
        return f'CFUNCTYPE({", ".join(parts)})'
    if kind == 'void':
        return 'None'
    if kind in SIMPLE:
        return SIMPLE[kind]
    if kind.endswith(']'):
        base, length = kind[:-1].split(' [')
        return f'{ctype(base, table)} * {length}'
    bare = kind.replace('const ', '').strip()
    if bare.endswith('*'):
        to = bare[:-1].strip()
        if to in table['opaque']:
            return 'c_void_p'
        return f'POINTER({ctype(to, table)})' if to not in names(table, 'callbacks') else to
    if bare in names(table, 'enums'):
        return 'c_int32'
    return bare


def names(table, part):
    return [row['name'] for row in table[part]]


def wrapped(text, indent):
    return textwrap.fill(text, 126, initial_indent=indent, subsequent_indent=indent + '    ', break_long_words=False,
                         break_on_hyphens=False)


def record(row, table):
    lines = [f'class {row["name"]}(Structure):']
    if row['doc']:
        lines.append(wrapped(f'"""{row["doc"]}."""', '    '))
    lines.append('    _fields_ = [')
    for field in row['fields']:
        lines.append(f"        ('{field['name']}', {ctype(field['type'], table)}),")
    return '\n'.join(lines + ['    ]'])


def short(name):
    return name[len('COLL_'):].lower()


def side(row):
    return f"Side('{row['who']}', '{row['over']}', '{row['from']}')"


def abi(table):
    numbers = {value['name']: value['value'] for enum in table['enums'] for value in enum['values']}
    out = [HEAD, 'VERSION = (' + ', '.join(str(row['value']) for row in table['constants']) + ')']
    for enum in table['enums']:
        out.append('')
        if enum['name']:
            out.append(f'# {enum["name"]}')
        out += [f"{value['name']} = {value['value']}" for value in enum['values']]
    out += ['', 'STATUS_TEXTS: Dict[int, str] = {']
    out += [f"    {value['name']}: '{value['doc']}'," for enum in table['enums'] if enum['name'] == 'coll_status'
            for value in enum['values']]
    out += ['}', '']
    for title, first, last in (('TYPES', 'COLL_I8', 'COLL_MXF8E5M2'), ('OPS', 'COLL_SUM', 'COLL_MAXLOC'),
                               ('FLAGS', 'COLL_DETERMINISTIC', 'COLL_ROUND_TWICE')):
        listed = list(numbers)[list(numbers).index(first):list(numbers).index(last) + 1]
        entries = ', '.join(f"'{short(name)}': {name}" for name in listed)
        out.append(wrapped(f'{title}: Dict[str, int] = {{{entries}}}', ''))
    out.append('')
    for row in table['callbacks']:
        out.append(f"{row['name']} = " + ctype({'function': row}, table))
    for row in ordered(table):
        out += ['', '', record(row, table)]
    out += ['', '', 'PROTOTYPES: Dict[str, Tuple[Any, list]] = {']
    for row in table['functions']:
        arguments = ', '.join(ctype(argument['type'], table) for argument in row['arguments'])
        out.append(wrapped(f"'{row['name']}': ({ctype(row['returns'], table)}, [{arguments}]),", '    '))
    out += ['}', '', 'KINDS: Dict[str, Kind] = {']
    for row in table['shapes']:
        traits = ', '.join(f"'{trait}'" for trait in row['traits'])
        out.append(wrapped(f"'{row['name']}': Kind({numbers[row['kind']]}, {side(row['send'])}, {side(row['recv'])}, "
                           f"'{row['in_place']}', ({traits}{',' if len(row['traits']) == 1 else ''})),", '    '))
    return '\n'.join(out + ['}']) + TAIL


def ordered(table):
    """Structs, each after those that it contains or points to."""
    done, out = set(), []

    def visit(row):
        if row['name'] in done:
            return
        done.add(row['name'])
        for other in table['structs']:
            if any(isinstance(field['type'], str) and other['name'] in field['type'].split() for field in row['fields']):
                visit(other)
        out.append(row)

    for row in table['structs']:
        visit(row)
    return out
