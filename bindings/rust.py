"""bindings/rust/coll-sys/src/lib.rs: the declarations for Rust, checked in, so that libclang is not needed."""
from python import names, ordered

SIMPLE = {'int': 'c_int', 'unsigned': 'c_uint', 'size_t': 'usize', 'double': 'f64', 'float': 'f32', 'bool': 'bool',
          'uint64_t': 'u64', 'int32_t': 'i32', 'int64_t': 'i64', 'uint16_t': 'u16', 'uint8_t': 'u8', 'void': 'c_void',
          'char': 'c_char'}
KEYWORDS = ('in', 'type', 'fn', 'where', 'ref', 'move', 'self')


def rtype(kind, table):
    if isinstance(kind, dict):
        function = kind['function']
        arguments = ', '.join(f'{named(a["name"])}: {rtype(a["type"], table)}' for a in function['arguments'])
        result = '' if function['returns'] == 'void' else ' -> ' + rtype(function['returns'], table)
        return f'Option<unsafe extern "C" fn({arguments}){result}>'
    if kind.endswith('*'):
        to = kind[:-1].strip()
        if to in names(table, 'callbacks'):
            return to
        if to.startswith('const '):
            return '*const ' + rtype(to[len('const '):], table)
        return '*mut ' + rtype(to, table)
    if kind.endswith(']'):
        base, length = kind[:-1].split(' [')
        return f'[{rtype(base, table)}; {length}]'
    return SIMPLE.get(kind, kind)


def named(name):
    return 'r#' + name if name in KEYWORDS else name


def doc(text, indent=''):
    return [f'{indent}/// {text}'] if text else []


def crate(table):
    out = ['//! coll.h for Rust: its declarations, and nothing else.  Written by bindings/generate.py; `make bindings`',
           '//! writes it anew.',
           '//!',
           '//! What a thread may do: one at a time uses a communicator and its requests, and it need not always be the same',
           '//! one; coll_abort may come from any.  So a wrapper is Send and not Sync.',
           '#![allow(non_camel_case_types)]', '',
           'use std::os::raw::{c_char, c_int, c_uint, c_void};', '']
    for row in table['constants']:
        out.append(f'pub const {row["name"]}: c_int = {row["value"]};')
    for row in table['aliases']:
        out += doc(row['doc']) + [f'pub type {row["name"]} = {SIMPLE[row["type"]]};']
    for enum in table['enums']:
        kind = enum['name'] or 'c_int'
        out.append('')
        if enum['name']:
            out += doc(enum['doc']) + [f'pub type {kind} = i32;']
        for value in enum['values']:
            out += doc(value['doc']) + [f'pub const {value["name"]}: {kind} = {value["value"]};']
    for name in table['opaque']:
        out += ['', '#[repr(C)]', f'pub struct {name} {{', '    private: [u8; 0],', '}']
    for row in table['callbacks']:
        out += [''] + doc(row['doc']) + [f'pub type {row["name"]} = {rtype({"function": row}, table)};']
    for row in ordered(table):
        out += [''] + doc(row['doc']) + ['#[repr(C)]', '#[derive(Clone, Copy)]', f'pub struct {row["name"]} {{']
        for field in row['fields']:
            out += doc(field['doc'], '    ') + [f'    pub {named(field["name"])}: {rtype(field["type"], table)},']
        out.append('}')
    out += ['', 'extern "C" {']
    for row in table['functions']:
        arguments = ', '.join(f'{named(a["name"])}: {rtype(a["type"], table)}' for a in row['arguments'])
        result = '' if row['returns'] == 'void' else ' -> ' + rtype(row['returns'], table)
        out += doc(row['doc'], '    ') + signature(row['name'], arguments, result)
    return '\n'.join(out + ['}']) + '\n'


def signature(name, arguments, result):
    line = f'    pub fn {name}({arguments}){result};'
    if len(line) <= 126:
        return [line]
    lines = [f'    pub fn {name}(']
    for argument in arguments.split(', '):
        if len(lines) > 1 and len(lines[-1]) + len(argument) < 120:
            lines[-1] += f' {argument},'
        else:
            lines.append(f'        {argument},')
    return lines + [f'    ){result};']
