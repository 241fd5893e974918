"""From the C declarations to a table: what coll.h declares, and the shapes of coll_shape.h.

The table is plain data (see bindings/README.md).  Types are C text in one spelling: 'const void *', 'coll_comm **'.  A pointer
to a function is {'function': {'returns': ..., 'arguments': [...]}}.  What this reader does not understand is an error, so that
nothing gets lost."""
import re

COMMENT = re.compile(r'/\*(.*?)\*/', re.S)

# Declared there, and not for these languages.
LEFT_OUT = {
    'coll_spawn': 'calls back on threads of the library, or on fibers; coll_init_threads gives the same ranks to the threads '
                  'of each language',
    'coll_transport.h': 'transports of a program are written in C',
    'coll_wrap.h': 'coll_wrap_mpi and coll_init_nccl take types of mpi.h and CUDA, and are compiled in by a switch only',
}


class Unknown(Exception):
    pass


# ---- text

def flat(comment):
    """A comment on one line."""
    return re.sub(r'\s+', ' ', ' '.join(line.strip().lstrip('*') for line in comment.strip().splitlines())).strip()


def sentence(comment):
    """Its first sentence."""
    text = flat(comment)
    end = re.search(r'(?<![.]|g)[.](?=\s|$)', text)
    return text[:end.start()] if end else text


def for_c(text):
    """Without the parts for C++ only, and without preprocessor lines except #define."""
    kept, stack = [], []
    for line in re.sub(r'\\\n', ' ', text).splitlines():
        word = re.match(r'\s*#\s*(\w+)\s*(.*)', line)
        if word and word[1] in ('if', 'ifdef', 'ifndef'):
            stack.append('__cplusplus' not in word[2])
        elif word and word[1] == 'else':
            stack[-1] = not stack[-1] if stack[-1] is False else True
        elif word and word[1] == 'endif':
            stack.pop()
        elif all(stack) and (not word or word[1] == 'define'):
            kept.append(line)
    return '\n'.join(kept)


def split(text, at):
    """At commas or semicolons outside of brackets and comments; each with the comment that follows it on its line."""
    parts, depth, begin, i = [], 0, 0, 0
    while i < len(text):
        if text.startswith('/*', i):
            i = text.index('*/', i) + 2
            continue
        depth += (text[i] in '({[') - (text[i] in ')}]')
        if text[i] == at and depth == 0:
            behind = re.compile(r'[ \t]*/\*.*?\*/', re.S).match(text, i + 1)
            note = behind[0] if behind else ''
            parts.append((text[begin:i], note))
            i = begin = i + 1 + len(note)
            continue
        i += 1
    if COMMENT.sub('', text[begin:]).strip():
        parts.append((text[begin:], ''))
    elif parts and COMMENT.search(text[begin:]):
        parts[-1] = (parts[-1][0], text[begin:])
    return [(COMMENT.sub('', part).strip(), ''.join(COMMENT.findall(part) + COMMENT.findall(note))) for part, note in parts]


# ---- declarators

def spelled(kind):
    kind = re.sub(r'\s+', ' ', re.sub(r'\bstruct\s+(?=coll_)', '', kind)).strip()
    return re.sub(r'\s*(\*+)$', r' \1', kind)


def declared(text):
    """[(name, type)] of 'const size_t *a, *b' or 'void (*log)(void *context, int level)'."""
    function = re.match(r'(.+?)\(\*(\w+)\)\s*\((.*)\)$', text, re.S)
    if function:
        return [(function[2], {'function': {'returns': spelled(function[1]), 'arguments': arguments(function[3])}})]
    array = re.match(r'(\w+)\s+(\w+)\[(\d+)\]$', text)
    if array:
        return [(array[2], f'{array[1]} [{array[3]}]')]
    first, *others = [part for part, _ in split(text, ',')]
    match = re.match(r'(.*?)(\**)(\w+)$', first.strip(), re.S)
    if not match or not match[1].strip():
        raise Unknown(f'declaration: {text}')
    names = [(match[2], match[3])] + [re.match(r'(\**)(\w+)$', other.strip()).groups() for other in others]
    return [(name, spelled(match[1] + stars)) for stars, name in names]


def arguments(text):
    if text.strip() in ('void', ''):
        return []
    return [{'name': name, 'type': kind} for part, _ in split(text, ',') for name, kind in declared(part)]


def unit(name, doc):
    """The unit of a number, if its name or its comment has one."""
    for end, word in (('_ms', 'ms'), ('_us', 'us'), ('seconds_per_byte', 's'), ('seconds_per_byte_reduced', 's')):
        if name.endswith(end):
            return word
    return 's' if re.match(r's\b', doc) else None


# ---- the parts of the table

def values(body):
    number, found = 0, []
    for part, note in split(body, ','):
        name, _, value = (word.strip() for word in part.partition('='))
        if name.startswith('COLL__'):
            raise Unknown(f'a private name in a public enum: {name}')
        number = int(value, 0) if value else number
        found.append({'name': name, 'value': number, 'doc': flat(note)})
        number += 1
    return found


def fields(body):
    found = []
    for part, note in split(body, ';'):
        for name, kind in declared(part):
            row = {'name': name, 'type': kind, 'doc': flat(note)}
            if unit(name, row['doc']):
                row['unit'] = unit(name, row['doc'])
            found.append(row)
    return found


def statuses(text):
    rows = re.findall(r'row\((\w+),\s*(-?\d+),\s*"([^"]*)"\)', text)
    return {'name': 'coll_status', 'doc': '0 is done, above is not yet, below is an error',
            'values': [{'name': name, 'value': int(value), 'doc': doc} for name, value, doc in rows]}


def item(text, doc, table):
    """One declaration, which ends with a semicolon."""
    function = re.match(r'COLL_API\s+(.*?)(\w+)\s*\((.*)\)$', text, re.S)
    record = re.match(r'typedef\s+struct\s+\w+\s*\{(.*)\}\s*(\w+)$', text, re.S)
    enum = re.match(r'(?:typedef\s+)?enum\s*\w*\s*\{(.*)\}\s*(?:COLL_INT32\s+)?(\w*)$', text, re.S)
    opaque = re.match(r'typedef\s+struct\s+(\w+)\s+\1$', text)
    called = re.match(r'typedef\s+(\w+)\s+(\w+)\s*\((.*)\)$', text, re.S)
    alias = re.match(r'typedef\s+(\w+)\s+(\w+)$', text)
    if function:
        if function[2] not in LEFT_OUT:
            table['functions'].append({'name': function[2], 'returns': spelled(function[1]),
                                       'arguments': arguments(COMMENT.sub('', function[3])), 'doc': doc})
    elif record:
        table['structs'].append({'name': record[2], 'doc': doc, 'fields': fields(record[1])})
    elif enum and enum[2] == 'coll_status':
        table['enums'].append(statuses(table.pop('statuses')))
    elif enum:
        table['enums'].append({'name': enum[2] or None, 'doc': doc, 'values': values(enum[1])})
    elif opaque:
        table['opaque'].append(opaque[1])
    elif called:
        table['callbacks'].append({'name': called[2], 'returns': called[1], 'arguments': arguments(called[3]), 'doc': doc})
    elif alias:
        table['aliases'].append({'name': alias[2], 'type': alias[1], 'doc': doc})
    else:
        raise Unknown(f'declaration: {text}')


def read(text, table):
    """All declarations of a header.  A comment belongs to those that follow it without an empty line."""
    text, at, doc = for_c(text), 0, ''
    text = re.sub(r'extern "C" \{', '', text)
    while at < len(text):
        rest = text[at:]
        blank = re.match(r'\s+', rest)
        if blank:
            doc = '' if blank[0].count('\n') > 1 else doc
            at += blank.end()
            continue
        if rest.startswith('/*'):
            end = rest.index('*/') + 2
            doc = '' if '>>' in rest[:end] else sentence(rest[2:end - 2])
            at += end
            continue
        if rest.startswith('#define'):
            line = rest.split('\n', 1)[0]
            version = re.match(r'#define (COLL_VERSION_\w+) (\d+)', line)
            if version:
                table['constants'].append({'name': version[1], 'value': int(version[2])})
            if line.startswith('#define COLL__STATUS_TABLE'):
                table['statuses'] = line
            at += len(line)
            continue
        if rest[0] == '}':                                            # of extern "C"
            at += 1
            continue
        declaration, note = split_first(rest)
        item(COMMENT.sub('', declaration).strip() if declaration.startswith('COLL_API') else declaration.strip(),
             sentence(note) or doc, table)
        at += len(declaration) + 1


def split_first(text):
    depth, i = 0, 0
    while text[i] != ';' or depth:
        if text.startswith('/*', i):
            i = text.index('*/', i) + 2
            continue
        depth += (text[i] in '({') - (text[i] in ')}')
        i += 1
    note = re.match(r'[ \t]*/\*(.*?)\*/', text[i + 1:], re.S)
    return text[:i], note[1] if note else ''


def shapes(text):
    """One row for each kind of call: which blocks it has on either side."""
    rows = []
    table = text[text.index('#define COLL__EACH_KIND'):text.index('#define COLL__KIND_ROW')]
    for call in re.findall(r'\bX\(([^()]*)\)', table):
        words = [word.strip(' "') for word in re.sub(r'[\s\\]+', ' ', call).split(',')]
        kind, name, *sides, in_place, traits = words
        side = [dict(zip(('who', 'over', 'from'), (word.lower() for word in sides[at:at + 3]))) for at in (0, 3)]
        rows.append({'kind': 'COLL_' + kind, 'name': name, 'send': side[0], 'recv': side[1], 'in_place': in_place.lower(),
                     'traits': [word.lower() for word in re.findall(r'COLL__(\w+)', traits)]})
    return rows


def document_twins(table):
    """coll_i... calls have no comment of their own."""
    known = {function['name'] for function in table['functions']}
    for function in table['functions']:
        twin = 'coll_' + function['name'][len('coll_i'):]
        if function['name'].startswith('coll_i') and twin in known:
            function['doc'] = f'{twin} that does not wait'


def table_of(header, shape):
    table = {'left_out': LEFT_OUT, 'constants': [], 'aliases': [], 'opaque': [], 'enums': [], 'callbacks': [], 'structs': [],
             'functions': [], 'shapes': shapes(shape)}
    read(header[header.index('\n#ifndef COLL_H'):], table)
    document_twins(table)
    kinds = {value['name'] for enum in table['enums'] if enum['name'] == 'coll_kind' for value in enum['values']}
    if kinds != {row['kind'] for row in table['shapes']}:
        raise Unknown('coll_kind and the rows of coll_shape.h do not have the same kinds')
    return table
