"""bindings/python/coll/_calls.py: a method for each collective and each of its forms, with types and docstrings.

What a method takes follows from its row of shapes: `op` where it reduces, `root` where it has one, counts where blocks have
lengths of their own.  SAYS has a sentence for each, and the shapes for x of shape s on `size` ranks."""
import textwrap

# name: (what it does, shape of x, shape of the result, what in place means)
SAYS = {
    'barrier': ('Return when every rank has called it.', None, None, None),
    'broadcast': ("Every rank gets the root's elements.", 's, equal on all ranks', 's', 'x is filled with them'),
    'reduce': ('The root gets x of all ranks, combined by op.', 's', 's on the root, None elsewhere',
               'x of the root becomes the result'),
    'allreduce': ('Every rank gets x of all ranks, combined by op, with the same bits.', 's', 's', 'x becomes the result'),
    'reduce_scatter': ('Combine x of all ranks by op; rank r gets block r.', '(size, *s)', 's', 'x[rank] becomes the result'),
    'reduce_scatterv': ('Combine x of all ranks by op; rank r gets counts[r] rows, those behind the rows of lower ranks.',
                        '(sum(counts), *s)', '(counts[rank], *s)', "this rank's rows of x become the result"),
    'scan': ('Rank r gets x of ranks 0 to r, combined by op.  There is no "avg".', 's', 's', 'x becomes the result'),
    'exscan': ('Rank r gets x of ranks 0 to r - 1, combined by op.  There is no "avg".', 's', 's; zeros on rank 0',
               'x becomes the result; on rank 0 it stays'),
    'gather': ('The root gets x of all ranks, one behind the other.', 's', '(size, *s) on the root, None elsewhere',
               'on the root x is the whole, whose x[root] is its own block; elsewhere x is the block'),
    'gatherv': ('The root gets the rows of all ranks, one behind the other.', '(any, *s)',
                '(sum(counts), *s) on the root, None elsewhere', 'on the root x is the whole, with its own rows in their place'),
    'scatter': ("Rank r gets block r of the root's x.", '(size, *s) on the root, None elsewhere, where out is needed', 's',
                'on the root x is the whole, and x[root] stays where it is; elsewhere x is filled'),
    'scatterv': ("Rank r gets counts[r] rows of the root's x, those behind the rows of lower ranks.  Counts matter on the root.",
                 '(sum(counts), *s) on the root, None elsewhere, where out is needed', '(counts[rank], *s)',
                 'on the root x is the whole, and its rows stay where they are; elsewhere x is filled'),
    'allgather': ('Every rank gets x of all ranks, one behind the other.', 's', '(size, *s)',
                  'x is the whole, whose x[rank] is the block of this rank'),
    'allgatherv': ('Every rank gets the rows of all ranks, one behind the other.', '(counts[rank], *s)', '(sum(counts), *s)',
                   'x is the whole, with the rows of this rank in their place'),
    'alltoall': ('x[r] goes to rank r; row r of the result comes from rank r.', '(size, *s)', '(size, *s)',
                 'every block of x is replaced by the one that comes'),
    'alltoallv': ('send_counts[r] rows of x go to rank r; recv_counts[r] rows of the result come from rank r.',
                  '(sum(send_counts), *s)', '(sum(recv_counts), *s)',
                  'x has the rows that come, where those lay that go; send_counts are not looked at'),
    'alltoallw': ('x[r] goes to rank r, out[r] comes from rank r: lists of arrays of any types and shapes, or None.',
                  'list of size arrays', 'out', None),
    'neighbor_allgather': ('x goes to every destination; row i of the result comes from source i (see neighbors).', 's',
                           '(sources, *s)', None),
    'neighbor_allgatherv': ('x goes to every destination; counts[i] rows of the result come from source i.', '(any, *s)',
                            '(sum(counts), *s)', None),
    'neighbor_alltoall': ('x[i] goes to destination i; row i of the result comes from source i.', '(destinations, *s)',
                          '(sources, *s)', None),
    'neighbor_alltoallv': ('send_counts[i] rows of x go to destination i; recv_counts[i] rows come from source i.',
                           '(sum(send_counts), *s)', '(sum(recv_counts), *s)', None),
    'neighbor_alltoallw': ('x[i] goes to destination i, out[i] comes from source i: lists of arrays, or None.',
                           'list of arrays', 'out', None),
    'allreduce_list': ('allreduce of every one of a list of arrays, of any types; small ones travel together.',
                       'list of arrays', 'list of arrays', 'all of x become the results'),
}

HEAD = '''"""The collectives of a communicator, each in four forms: allreduce, allreduce_ in place, and iallreduce and
iallreduce_, which do not wait.  Written by bindings/generate.py; `make bindings` writes it anew.

Every method may raise what errors.py lists.  ArgumentError and UnsupportedError mean that nothing was sent; TypeError and
ValueError come before the library is called.  Comm documents **options."""
from typing import Any, Optional, Sequence, TypeVar

from .requests import Request

Array = Any              # whatever buffers.py takes: NumPy, memoryview, array, bytes, DLPack
Op = Any                 # "sum", "prod", "min", "max", "avg", ..., or a function (low, high) that changes `high`
X = TypeVar('X')


class Calls:
    def _run(self, name: str, x: Any, out: Any, op: Any, root: int, send_counts: Any, recv_counts: Any, place: bool,
             options: dict) -> Any:
        raise NotImplementedError

    def _start(self, name: str, x: Any, out: Any, op: Any, root: int, send_counts: Any, recv_counts: Any, place: bool,
               options: dict) -> Request:
        raise NotImplementedError
'''


def count_names(row):
    """The names of the counts: of sent and of received blocks."""
    send, recv = row['send']['from'], row['recv']['from']
    if send == 'typed':
        return None, None
    if send == 'list' and recv == 'list':
        return 'send_counts', 'recv_counts'
    return ('counts' if send == 'list' else None, 'counts' if 'list' in (recv, send) or send == 'recv_list' else None)


def lengths(row, place):
    """Parameters for counts."""
    sent, received = count_names(row)
    if sent == 'send_counts':
        return ['recv_counts: Sequence[int]'] if place else ['send_counts: Sequence[int]',
                                                             'recv_counts: Optional[Sequence[int]] = None']
    if not (sent or received):
        return []
    is_known = row['name'] == 'reduce_scatterv' or (place and row['name'] == 'allgatherv')
    return ['counts: Sequence[int]'] if is_known else ['counts: Optional[Sequence[int]] = None']


def documentation(row, place, waits):
    what, given, result, in_place = SAYS[row['name']]
    text = [what]
    if given:
        text.append(f'x: {given}.  ' + (f'In place: {in_place}.' if place else f'Result: {result}.'))
    if count_names(row)[1] and not place and row['recv']['from'] == 'list' and waits:
        text.append('Without the counts of what comes the ranks exchange them first.')
    if not waits:
        text.append('Returns a request; leave the arrays alone until it is finished.')
    lines = textwrap.wrap('  '.join(text), 112, break_long_words=False)
    return '        """' + '\n        '.join(lines) + '"""'


def method(row, place, waits):
    name, traits = row['name'], row['traits']
    typed = row['send']['from'] == 'typed'
    has_x = name != 'barrier'
    parameters = ['self'] + (['x: X' if place else 'x: Array'] if has_x else [])
    if typed:
        parameters.append('out: Sequence[Array]')
    parameters += lengths(row, place)
    if 'reduces' in traits:
        parameters.append("op: Op = 'sum'")
    if 'rooted' in traits:
        parameters.append('root: int = 0')
    if has_x and not place and not typed:
        parameters += ['*', 'out: Optional[Array] = None']
    parameters.append('**options: Any')
    result = 'Request' if not waits else 'None' if not has_x else 'X' if place else 'Array'
    full = ('' if waits else 'i') + name + ('_' if place else '')
    given = ', '.join(parameters)
    line = f'    def {full}({given}) -> {result}:'
    if len(line) > 126:
        at = line.rindex(', ', 0, 124) + 1
        line = line[:at] + '\n' + ' ' * (len(f'    def {full}(')) + line[at + 1:]
    sent, received = count_names(row)
    if place and sent == 'send_counts':
        sent = 'None'
    values = [f"'{name}'", 'x' if has_x else 'None', 'out' if has_x and not place else 'None',
              'op' if 'reduces' in traits else 'None', 'root' if 'rooted' in traits else '0',
              sent or 'None', received or 'None', str(place), 'options']
    return [line, documentation(row, place, waits),
            f"        return self.{'_run' if waits else '_start'}({', '.join(values)})", '']


def module(table):
    out = [HEAD]
    for row in table['shapes']:
        if 'message' in row['traits']:
            continue
        for waits in (True, False):
            for place in (False, True):
                if not place or SAYS[row['name']][3]:
                    out += method(row, place, waits)
    return '\n'.join(out).rstrip('\n') + '\n'
