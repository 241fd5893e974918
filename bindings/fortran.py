"""bindings/fortran/coll_raw.f90: the declarations by iso_c_binding.

Pointers are type(c_ptr) by value, whatever they point to; a coll_comm ** or coll_request ** is a type(c_ptr) by reference.
Fortran has no unsigned integers: these have the bits of the signed ones.  And it does not tell COLL_SEND from coll_send, so that
kinds are COLL_KIND_SEND."""
from python import ordered

SIMPLE = {'int': 'integer(c_int)', 'unsigned': 'integer(c_int)', 'size_t': 'integer(c_size_t)', 'double': 'real(c_double)',
          'float': 'real(c_float)', 'bool': 'logical(c_bool)', 'uint64_t': 'integer(c_int64_t)',
          'uint16_t': 'integer(c_int16_t)', 'uint8_t': 'integer(c_int8_t)', 'int32_t': 'integer(c_int32_t)',
          'int64_t': 'integer(c_int64_t)',
          'coll_type': 'integer(c_int32_t)'}


def ftype(kind, table):
    if isinstance(kind, dict):
        return 'type(c_funptr)'
    if kind.endswith('*'):
        callbacks = [row['name'] for row in table['callbacks']]
        return 'type(c_funptr)' if kind[:-1].strip() in callbacks else 'type(c_ptr)'
    if kind in [row['name'] for row in table['structs']]:
        return f'type({kind})'
    return SIMPLE.get(kind, 'integer(c_int)')


def constant(name, enum):
    return name.replace('COLL_', 'COLL_KIND_', 1) if enum == 'coll_kind' else name


def continued(line, width=126):
    indent = len(line) - len(line.lstrip())
    lines = []
    while len(line) > width:
        at = line.rindex(', ', 0, width - 2) + 1
        lines.append(line[:at] + ' &')
        line = ' ' * (indent + 4) + line[at:].strip()
    return lines + [line]


def procedure(row, table):
    result = row['returns']
    word = 'subroutine' if result == 'void' else 'function'
    names = ', '.join(argument['name'] for argument in row['arguments'])
    lines = continued(f'        {word} {row["name"]}({names}) bind(c, name="{row["name"]}")'
                      + ('' if result == 'void' else ' result(result_)'))
    lines.append('            import')
    for argument in row['arguments']:
        kind = argument['type']
        how = 'intent(inout)' if isinstance(kind, str) and kind.endswith('**') and not kind.startswith('const') \
            and row['name'] not in ('coll_init_threads', 'coll_wait_all', 'coll_wait_any', 'coll_wait_some', 'coll_test_any',
                                    'coll_test_all') \
            else 'value'
        lines.append(f'            {ftype(kind, table)}, {how} :: {argument["name"]}')
    if result != 'void':
        lines.append(f'            {ftype(result, table)} :: result_')
    return lines + [f'        end {word}', '']


def module(table):
    out = ['! coll.h for Fortran: its declarations, and nothing else.  Written by bindings/generate.py; `make bindings`',
           '! writes it anew.  Pointers are type(c_ptr); coll_init_threads and coll_wait_... take the address of an array.',
           'module coll_raw', '    use, intrinsic :: iso_c_binding', '    implicit none', '    public', '']
    for row in table['constants']:
        out.append(f'    integer(c_int), parameter :: {row["name"]} = {row["value"]}')
    for enum in table['enums']:
        out.append('')
        out += [f'    integer(c_int), parameter :: {constant(value["name"], enum["name"])} = {value["value"]}'
                for value in enum['values']]
    for row in ordered(table):
        out += ['', f'    type, bind(c) :: {row["name"]}']
        for field in row['fields']:
            base, _, length = field['type'].partition(' [') if isinstance(field['type'], str) else (field['type'], '', '')
            bounds = f'({length[:-1]}) = 0' if length else ''         # nothing else has a value of its own
            out.append(f'        {ftype(base, table)} :: {field["name"]}{bounds}')
        out.append('    end type')
    out += ['', '    interface']
    for row in table['functions']:
        out += procedure(row, table)
    return '\n'.join(out[:-1] + ['    end interface', 'end module']) + '\n'
