#!/usr/bin/env python3
"""Write the table of declarations, and what is made from it for other languages.

    generate.py             write everything
    generate.py --check     write nothing; status 1, and the names of those that are stale"""
import json, os, re, sys

import declarations, fortran, python, python_calls, rust

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), '..')


def text_of(path):
    with open(os.path.join(ROOT, path), encoding='utf-8') as file:
        return file.read()


def header():
    """coll.h, with those it includes that declare for every language where it includes them."""
    return re.sub(r'(?m)^#include "(core/contract/coll_(?:config|memory|leaf_nodes)\.h)".*$', lambda line: text_of(line[1]),
                  text_of('coll.h'))


def readable(value, indent='', room=126):
    """JSON with a line for each entry that fits into one."""
    flat = json.dumps(value, ensure_ascii=False)
    if len(indent) + len(flat) <= room or not isinstance(value, (dict, list)) or not value:
        return flat
    more = indent + ' '
    if isinstance(value, dict):
        rows = [f'{more}{json.dumps(key)}: {readable(entry, more, room)}' for key, entry in value.items()]
        return '{\n' + ',\n'.join(rows) + '\n' + indent + '}'
    return '[\n' + ',\n'.join(more + readable(entry, more, room) for entry in value) + '\n' + indent + ']'


def main():
    table = declarations.table_of(header(), text_of('core/contract/coll_shape.h'))
    outputs = {
        'bindings/coll.json': readable(table) + '\n',
        'bindings/python/coll/_abi.py': python.abi(table),
        'bindings/python/coll/_calls.py': python_calls.module(table),
        'bindings/fortran/coll_raw.f90': fortran.module(table),
        'bindings/rust/coll-sys/src/lib.rs': rust.crate(table),
    }
    version = '.'.join(str(row['value']) for row in table['constants'])
    for path in ('bindings/rust/coll-sys/Cargo.toml', 'bindings/rust/coll/Cargo.toml'):
        outputs[path] = re.sub(r'(?m)(^|coll-sys = .*)version = "[^"]*"', rf'\g<1>version = "{version}"', text_of(path))
    if sys.argv[1:] == ['--check']:
        stale = [path for path, text in outputs.items()
                 if not os.path.exists(os.path.join(ROOT, path)) or text_of(path) != text]
        for path in stale:
            print(f'{path} is stale: run `make bindings`')
        return bool(stale)
    for path, text in outputs.items():
        os.makedirs(os.path.dirname(os.path.join(ROOT, path)), exist_ok=True)
        with open(os.path.join(ROOT, path), 'w', encoding='utf-8') as file:
            file.write(text)
    return 0


if __name__ == '__main__':
    sys.exit(main())
