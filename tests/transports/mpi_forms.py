"""The protocol of transports/mpi/coll_mpi_forms.h, in every order of its single reads and writes.

usage: mpi_forms.py RANKS COLLECTIVES [once|free]

Each rank starts each collective (FREE) or waits for it (COMMITTED), and may fail before it, also while it waits.  Two ranks never
use two forms of one collective, and no rank is left alone in the blocking form.  once, free: with a defect that must be found:
a rank reads the words only once; a rank that wavers sets its word to FREE although all ranks have come.  The exit status is 1
if an error is found."""
import sys

FREE, COMMITTED, WAVERS = range(3)
RANKS, TURNS = int(sys.argv[1]), int(sys.argv[2])
FLAW = sys.argv[3] if len(sys.argv) > 3 else ''


def put(sequence, i, value):
    return sequence[:i] + (value,) + sequence[i + 1:]


class State:
    """words: (turn, stand) of each rank; last: the collective of its last blocking call; begun: by turn and rank, '-', 'b' or
    'n'; ranks: (where, turn, next rank to look at, looks so far, is it open)."""

    def __init__(self, words, last, begun, ranks):
        self.key = words, last, begun, ranks

    def next(self, r):
        """the possible next states of rank r"""
        words, last, begun, ranks = self.key
        where, turn, i, looks, is_open = ranks[r]

        def to(where, i=0, looks=0, is_open=False, turn=turn, **changes):
            return State(put(words, r, changes['word']) if 'word' in changes else words,
                         put(last, r, turn) if 'takes' in changes else last,
                         put(begun, turn - 1, put(begun[turn - 1], r, changes['begins'])) if 'begins' in changes else begun,
                         put(ranks, r, (where, turn, i, looks, is_open)))

        def passed(state):
            """this collective is complete"""
            after = ('come', turn + 1, 0, 0, False) if turn < TURNS else ('end', turn, 0, 0, False)
            return State(*state.key[:3], put(state.key[3], r, after))

        along = where.startswith('along')         # it has failed, and only follows
        if where == 'come':
            return [to('free', word=(turn, FREE)), to('look', word=(turn, COMMITTED))]
        if where == 'free':
            return [passed(to('free', begins='n')), to('dead')]
        if where in ('look', 'along'):
            found = [to('waver', word=(turn, WAVERS), looks=1)] if (where, i, looks) == ('look', 0, 0) else []
            if i < RANKS:
                return found + [self.look(to, r, where, along)]
            if is_open:
                return found + [to(where)]
            if looks == 0 and FLAW != 'once':
                return found + [to(where, looks=1)]
            return found + [to('along blocking' if along else 'blocking', takes=True)]
        if where == 'waver':                      # looks: have all ranks come?
            if i < RANKS:
                return [to('waver', i + 1, looks and (i == r or words[i][0] >= turn))]
            stays = looks and FLAW != 'free'
            return [to('along', word=(turn, COMMITTED)) if stays else to('dead', word=(turn, FREE))]
        if where in ('blocking', 'along blocking'):
            return [to('along inside' if along else 'inside', begins='b')]
        if where in ('last', 'along last'):
            if last[i] == turn:
                return [to('along blocking' if along else 'blocking', takes=True)]
            return [to('dead' if along else 'free')]
        if where in ('inside', 'along inside') and all(x == 'b' for x in begun[turn - 1]):
            return [to('dead') if along else passed(to('inside'))]
        return []

    def look(self, to, r, where, along):
        """read one word"""
        words, _, _, ranks = self.key
        _, turn, i, looks, is_open = ranks[r]
        its_turn, stand = words[i]
        if i == r:
            return to(where, i + 1, looks, is_open)
        if its_turn > turn:
            return to('along last' if along else 'last', i)
        if its_turn < turn or stand == WAVERS:
            return to(where, i + 1, looks, True)
        if stand == FREE:
            return to('dead' if along else 'free')
        return to(where, i + 1, looks, is_open)

    def wrong(self, is_end):
        _, _, begun, ranks = self.key
        if any('b' in row and 'n' in row for row in begun):
            return 'two forms of one collective'
        if is_end and any(rank[0].endswith('inside') for rank in ranks):
            return 'a rank is left alone in the blocking form'
        return None


def main():
    first = State(((0, FREE),) * RANKS, (0,) * RANKS, (('-',) * RANKS,) * TURNS, (('come', 1, 0, 0, False),) * RANKS)
    seen, todo = {first.key}, [first]
    while todo:
        state = todo.pop()
        following = [s for r in range(RANKS) for s in state.next(r)]
        wrong = state.wrong(not following)
        if wrong:
            print('%s: %s' % (wrong, state.key))
            return 1
        for s in following:
            if s.key not in seen:
                seen.add(s.key)
                todo.append(s)
    print('%d states of %d ranks and %d collectives, none of them wrong' % (len(seen), RANKS, TURNS))
    return 0


if __name__ == '__main__':
    sys.exit(main())
