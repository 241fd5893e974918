#!/usr/bin/env python3
"""Do the compilers agree with the table, and each other language with C?

Each language prints the size of every struct, the offset of every field and the value of every constant, and the lines must be
those of C.  C itself is given the table's types of all fields and prototypes of all functions beside the header's, and must find
them the same.  Languages without a compiler here are left out, and named.  Ends with "N passed, N failed"."""
import json, os, shutil, subprocess, sys, tempfile

import fortran, rust

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def constants(table):
    return [(enum['name'], value['name']) for enum in table['enums'] for value in enum['values']] \
        + [(None, row['name']) for row in table['constants']]


def c_type(kind, name=''):
    if isinstance(kind, dict):
        function = kind['function']
        return f'{function["returns"]} (*{name})({", ".join(c_type(a["type"]) for a in function["arguments"]) or "void"})'
    base, _, length = kind.partition(' [')
    return f'{base} {name}[{length}' if length else f'{kind} {name}'


def c_program(table):
    lines = ['#include "coll.h"', '#include <stddef.h>', '#include <stdio.h>']
    for row in table['functions']:
        arguments = ', '.join(c_type(a['type']) for a in row['arguments']) or 'void'
        lines.append(f'extern {row["returns"]} {row["name"]}({arguments});')
    for row in table['structs']:
        for field in row['fields']:
            lines.append(f'_Static_assert(__builtin_types_compatible_p(__typeof__((({row["name"]} *)0)->{field["name"]}), '
                         f'{c_type(field["type"])}), "{row["name"]}.{field["name"]}");')
    lines.append('int main(void) {')
    for row in table['structs']:
        lines.append(f'printf("{row["name"]} %zu\\n", sizeof({row["name"]}));')
        lines += [f'printf("{row["name"]}.{f["name"]} %zu\\n", offsetof({row["name"]}, {f["name"]}));' for f in row['fields']]
    lines += [f'printf("{name} %d\\n", (int){name});' for _, name in constants(table)]
    return '\n'.join(lines + ['return 0; }', ''])


def python_lines(table):
    sys.path.insert(0, os.path.join(ROOT, 'bindings', 'python', 'coll'))
    import _abi
    from ctypes import sizeof
    lines = []
    for row in table['structs']:
        struct = getattr(_abi, row['name'])
        lines.append(f'{row["name"]} {sizeof(struct)}')
        lines += [f'{row["name"]}.{field["name"]} {getattr(struct, field["name"]).offset}' for field in row['fields']]
    version = dict(zip((row['name'] for row in table['constants']), _abi.VERSION))
    return lines + [f'{name} {version.get(name, getattr(_abi, name, None))}' for _, name in constants(table)]


def fortran_program(table):
    lines = ['program probe', 'use coll_raw', 'implicit none']
    lines += [f'type({row["name"]}), target :: a_{row["name"]}' for row in table['structs']]
    for row in table['structs']:
        name = row['name']
        lines.append(f"print '(a,i0)', '{name} ', c_sizeof(a_{name})")
        lines += [f"print '(a,i0)', '{name}.{field['name']} ', at(c_loc(a_{name}%{field['name']})) - at(c_loc(a_{name}))"
                  for field in row['fields']]
    lines += [f"print '(a,i0)', '{name} ', {fortran.constant(name, enum)}" for enum, name in constants(table)]
    return '\n'.join(lines + ['contains', 'function at(p)', 'type(c_ptr), intent(in) :: p', 'integer(c_intptr_t) :: at',
                              'at = transfer(p, at)', 'end function', 'end program', ''])


def rust_program(table):
    lines = ['use coll_sys::*;', 'fn main() {']
    for row in table['structs']:
        lines.append(f'println!("{row["name"]} {{}}", std::mem::size_of::<{row["name"]}>());')
        for field in row['fields']:
            lines.append(f'{{ let a = std::mem::MaybeUninit::<{row["name"]}>::uninit(); let p = a.as_ptr(); println!('
                         f'"{row["name"]}.{field["name"]} {{}}", '
                         f'unsafe {{ std::ptr::addr_of!((*p).{rust.named(field["name"])}) }} as usize - p as usize); }}')
    lines += [f'println!("{name} {{}}", {name});' for _, name in constants(table)]
    return '\n'.join(lines + ['}', ''])


def built(folder, name, text, commands):
    """What the program prints; None after a message: it does not compile."""
    with open(os.path.join(folder, name), 'w', encoding='utf-8') as file:
        file.write(text)
    for command in commands:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
        if done.returncode:
            print(f'FAILED - {" ".join(command)}: {done.stderr}')
            return None
    return subprocess.run([os.path.join(folder, 'probe')], capture_output=True, text=True, check=True).stdout.splitlines()


def main():
    with open(os.path.join(ROOT, 'bindings', 'coll.json'), encoding='utf-8') as file:
        table = json.load(file)
    passed = failed = 0
    expected = None
    ways = [
        ('C', 'probe.c', c_program, os.environ.get('CC', 'cc'),
         [['-std=c11', '-Wall', '-Werror', '-I', ROOT, 'probe.c', '-o', 'probe']]),
        ('Fortran', 'probe.f90', fortran_program, 'gfortran',
         [['-std=f2008', '-Wall', '-Werror', f'{ROOT}/bindings/fortran/coll_raw.f90', '-c'], ['probe.f90', '-o', 'probe']]),
        ('Rust', 'probe.rs', rust_program, 'rustc',
         [['--edition=2021', '-Dwarnings', '--crate-type=rlib', '--crate-name=coll_sys',
           f'{ROOT}/bindings/rust/coll-sys/src/lib.rs'],
          ['--edition=2021', '--extern', 'coll_sys=libcoll_sys.rlib', 'probe.rs', '-o', 'probe']]),
    ]
    with tempfile.TemporaryDirectory() as folder:
        for language, file, program, compiler, commands in ways:
            if not shutil.which(compiler):
                print(f'left out - {language}: there is no {compiler} here')
                continue
            lines = built(folder, file, program(table), [[compiler, *command] for command in commands])
            expected = expected or lines
            same = lines is not None and lines == expected
            passed, failed = passed + same, failed + (not same)
            print(f'{"ok" if same else "FAILED"} - {language}: {len(lines or [])} sizes, offsets and values')
            if lines and not same:
                print('\n'.join(f'    C: {a}    {language}: {b}' for a, b in zip(expected, lines) if a != b))
    lines = python_lines(table)
    same = lines == expected
    passed, failed = passed + same, failed + (not same)
    print(f'{"ok" if same else "FAILED"} - Python: {len(lines)} sizes, offsets and values')
    print(f'{passed} passed, {failed} failed')
    return failed != 0


if __name__ == '__main__':
    sys.exit(main())
