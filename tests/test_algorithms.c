/* test_algorithms.c - the algorithms as what they are, pure functions: an interpreter runs all ranks of a world in one
 * thread, round by round, on symbols instead of numbers, and checks results, memory hazards and the promised costs.  Then
 * the tuner, and the arithmetic that cuts vectors.
 *
 * A value is an ordered list of terms "block b of rank v".  A fold makes the list of what stands in the slots, in order of
 * rank; the sum of block b is right when it is the terms (0, b), (1, b), ..., (size - 1, b) and nothing else.
 *
 *     cc -std=c11 -O1 -fsanitize=address,undefined tests/test_algorithms.c -pthread && ./a.out
 */
#define COLL_IMPLEMENTATION
#ifndef COLL_NO_URING
#define COLL_NO_URING
#endif
#include "../coll.h"
#include "check.h"

enum {
    SIZE_LARGEST = 100, STEPS_MOST = 2 * SIZE_LARGEST + 2, ROUNDS_MOST = 2 * SIZE_LARGEST + 4,
    CELLS = SIZE_LARGEST * SIZE_LARGEST * 4, VALUES_MOST = 2 * CELLS, TERMS_MOST = 8 * CELLS,
    NOTHING = 0                                   /* the value of a cell that was never written               */
};

/* How the caller's buffers lie: apart; send == recv; or recv == send + rank blocks (reduce_scatter only). */
typedef enum layout { APART, IN_PLACE, IN_PLACE_AT_RANK } layout;

typedef struct term { short rank, block; } term;

typedef struct value {
    int first, count;                             /* terms                                                    */
    int sum_of;                                   /* the block that this is the perfect sum of, or -1         */
} value;

/* A rank's account over all rounds. */
typedef struct account { int messages_out, messages_in, blocks_out, blocks_in; } account;

/* The world that is interpreted.  Cells hold numbers of values. */
typedef struct world {
    const coll__algorithm *a;
    int size, root, radix, blocks, rounds;
    layout layout;
    int now;                                      /* the number of the round, for the stamps: from 1          */
    int value_count, term_count;
    char wrong[240];                              /* the first thing found wrong, "": none                    */
    account account[SIZE_LARGEST];
    bool is_result_written[SIZE_LARGEST];
    int count[SIZE_LARGEST];                      /* steps of this round                                      */
} world;

static int cells[SIZE_LARGEST][4 * SIZE_LARGEST];
static int read_at[SIZE_LARGEST][4 * SIZE_LARGEST];       /* round in which a send has read the cell          */
static int written_at[SIZE_LARGEST][4 * SIZE_LARGEST];    /* round in which a receive has written the cell    */
static value values[VALUES_MOST];
static term terms[TERMS_MOST];
static coll__step steps[SIZE_LARGEST][STEPS_MOST];
static int first_recv[SIZE_LARGEST][SIZE_LARGEST], last_recv[SIZE_LARGEST][SIZE_LARGEST];     /* [from][to]   */
static int next_recv[SIZE_LARGEST][STEPS_MOST];

static COLL__PRINTF(2, 3) void fault(world *w, const char *format, ...)
{
    va_list list;

    if (*w->wrong) return;
    va_start(list, format);
    vsnprintf(w->wrong, sizeof w->wrong, format, list);
    va_end(list);
}

/* ---- >>values ---- */

/* Is this list the sum of one block over all ranks, each once and in order? */
static int sum_of(const world *w, const value *v)
{
    const term *t = &terms[v->first];

    if (v->count != w->size) return -1;
    for (int i = 0; i < v->count; i++)
        if (t[i].rank != i || t[i].block != t[0].block) return -1;
    return t[0].block;
}

static int new_value(world *w)
{
    if (w->value_count >= VALUES_MOST) return fault(w, "the test has too little room for values"), NOTHING;
    values[w->value_count] = (value){ w->term_count, 0, -1 };
    return w->value_count++;
}

static void add_term(world *w, int number, term t)
{
    if (w->term_count >= TERMS_MOST) {
        fault(w, "the test has too little room for terms");
        return;
    }
    terms[w->term_count++] = t;
    values[number].count++;
}

/* Block `block` of what `rank` brings. */
static int raw(const world *w, int rank, int block) { return 1 + rank * w->blocks + block; }

/* ---- >>memory ---- */

/* The cell of a place, with the caller's layout taken into account; NULL and a fault where the rank has no such block. */
static int *cell(world *w, int rank, coll__place place, int index)
{
    const coll_kind kind = w->a->kind;
    const bool is_slot = place == COLL__WORK || place == COLL__MINE;
    const char *const names[] = { "INPUT", "RESULT", "WORK", "MINE" };

    if ((unsigned)place > COLL__MINE || index < 0 || index >= (is_slot ? w->size : w->blocks))
        return fault(w, "rank %d: there is no place %d block %d", rank, (int)place, index), NULL;
    if (is_slot && !w->a->folds) return fault(w, "rank %d: %s in an algorithm that does not fold", rank, names[place]), NULL;
    if (place == COLL__MINE && index != rank) return fault(w, "rank %d: MINE has one block, not block %d", rank, index), NULL;
    if (place == COLL__INPUT && kind == COLL_ALLGATHER && index != rank)
        return fault(w, "rank %d: its input is block %d, not %d", rank, rank, index), NULL;
    if (place == COLL__INPUT && (kind == COLL_BROADCAST || kind == COLL_BARRIER))
        return fault(w, "rank %d: this operation has no input", rank), NULL;
    if (place == COLL__RESULT && kind == COLL_REDUCE_SCATTER && index != rank)
        return fault(w, "rank %d: its result is block %d, not %d", rank, rank, index), NULL;
    if (place == COLL__RESULT && kind == COLL_REDUCE && rank != w->root)
        return fault(w, "rank %d: only the root has a result", rank), NULL;
    if (w->layout == IN_PLACE && place == COLL__RESULT && kind == COLL_REDUCE_SCATTER) place = COLL__INPUT, index = 0;
    else if (w->layout != APART && place == COLL__RESULT) place = COLL__INPUT;
    return &cells[rank][(int)place * SIZE_LARGEST + index];
}

/* Which block of the vector gives a cell its length; blocks differ in length where the vector does not divide. */
static int length_of(const world *w, int rank, coll__place place, int index)
{
    if (!w->a->by_block) return 0;
    return place == COLL__WORK || place == COLL__MINE ? rank : index;
}

static int read_cell(world *w, int rank, coll__place place, int index)
{
    const int *at = cell(w, rank, place, index);

    if (at && *at == NOTHING) fault(w, "rank %d reads place %d block %d before it is written", rank, (int)place, index);
    return at ? *at : NOTHING;
}

static void write_cell(world *w, int rank, coll__place place, int index, int number)
{
    int *at = cell(w, rank, place, index);

    if (place == COLL__INPUT) fault(w, "rank %d writes to its input, block %d", rank, index);
    if (place == COLL__RESULT) w->is_result_written[rank] = true;
    if (at) *at = number;
}

/* What every rank has before the first round. */
static void prepare(world *w)
{
    const coll_kind kind = w->a->kind;

    w->value_count = 1;                           /* 0 is NOTHING                                             */
    for (int v = 0; v < w->size; v++) {
        memset(cells[v], 0, sizeof cells[v]);
        memset(read_at[v], 0, sizeof read_at[v]);
        memset(written_at[v], 0, sizeof written_at[v]);
        for (int b = 0; b < w->blocks; b++) {
            const int number = new_value(w);
            add_term(w, number, (term){ (short)v, (short)b });
            const bool is_input = kind == COLL_ALLGATHER ? b == v : coll__kind_reduces(kind);
            const bool is_result = kind == COLL_BARRIER ? b == v : kind == COLL_BROADCAST && v == w->root;
            if (is_input) *cell(w, v, COLL__INPUT, b) = number;
            if (is_result) *cell(w, v, COLL__RESULT, b) = number;
        }
    }
}

/* ---- >>steps ---- */

/* One message from a send to its receive, checked from both sides: hazards, lengths, and how the engine would cut it. */
static void carry(world *w, int from, const coll__step *send, int to, const coll__step *recv)
{
    const coll__span *s = &send->span, *r = &recv->span;

    if (s->blocks != r->blocks) {
        fault(w, "rank %d sends %d blocks, rank %d receives %d", from, s->blocks, to, r->blocks);
        return;
    }
    if (s->blocks > 1 && (s->place == COLL__WORK) != (r->place == COLL__WORK))
        fault(w, "ranks %d and %d cut a message of %d blocks differently", from, to, s->blocks);
    for (int i = 0; i < s->blocks && !*w->wrong; i++) {
        const int out = coll__wrap(s->first + i, w->size), in = coll__wrap(r->first + i, w->size);
        const int number = read_cell(w, from, s->place, out);
        const int *source = cell(w, from, s->place, out), *target = cell(w, to, r->place, in);
        if (!source || !target) return;
        int *const read = &read_at[from][source - cells[from]], *const written = &written_at[to][target - cells[to]];
        if (written_at[from][source - cells[from]] == w->now) fault(w, "rank %d sends block %d while it is received", from, out);
        if (read_at[to][target - cells[to]] == w->now) fault(w, "rank %d receives into block %d while it is sent", to, in);
        if (*written == w->now) fault(w, "rank %d receives block %d twice in a round", to, in);
        if (length_of(w, from, s->place, out) != length_of(w, to, r->place, in))
            fault(w, "rank %d sends a block as long as %d to rank %d, for one as long as %d", from,
                  length_of(w, from, s->place, out), to, length_of(w, to, r->place, in));
        *read = *written = w->now;
        write_cell(w, to, r->place, in, number);
    }
    w->account[from].messages_out++, w->account[to].messages_in++;
    w->account[from].blocks_out += s->blocks, w->account[to].blocks_in += s->blocks;
}

/* The receives of a round as one queue for each pair of ranks. */
static void queue_receives(world *w)
{
    for (int v = 0; v < w->size; v++)
        for (int u = 0; u < w->size; u++) first_recv[v][u] = last_recv[v][u] = -1;
    for (int to = 0; to < w->size; to++)
        for (int i = 0; i < w->count[to]; i++) {
            const coll__step *s = &steps[to][i];
            if (s->verb != COLL__RECV) continue;
            next_recv[to][i] = -1;
            if (first_recv[s->peer][to] < 0) first_recv[s->peer][to] = i;
            else next_recv[to][last_recv[s->peer][to]] = i;
            last_recv[s->peer][to] = i;
        }
}

/* All messages of a round, at once and with nothing to hold them in between. */
static void exchange(world *w)
{
    queue_receives(w);
    for (int from = 0; from < w->size && !*w->wrong; from++)
        for (int i = 0; i < w->count[from] && !*w->wrong; i++) {
            const coll__step *s = &steps[from][i];
            if (s->verb != COLL__SEND) continue;
            const int at = first_recv[from][s->peer];
            if (at < 0) {
                fault(w, "rank %d sends to rank %d, which receives nothing", from, s->peer);
                return;
            }
            first_recv[from][s->peer] = next_recv[s->peer][at];
            carry(w, from, s, s->peer, &steps[s->peer][at]);
        }
    for (int from = 0; from < w->size && !*w->wrong; from++)
        for (int to = 0; to < w->size; to++)
            if (first_recv[from][to] >= 0) fault(w, "rank %d waits for rank %d, which sends nothing", to, from);
}

static void copy(world *w, int rank, const coll__step *s)
{
    const int *to = cell(w, rank, s->span.place, s->span.first), *from = cell(w, rank, s->from.place, s->from.first);

    if (!to || !from) return;
    if (to != from && *to == *from && *to != NOTHING) fault(w, "rank %d copies what is there already", rank);
    if (s->span.blocks != 1 || s->from.blocks != 1) fault(w, "rank %d copies more than one block: the engine copies one", rank);
    else if (length_of(w, rank, s->span.place, s->span.first) != length_of(w, rank, s->from.place, s->from.first))
        fault(w, "rank %d copies between blocks of different lengths", rank);
    else write_cell(w, rank, s->span.place, s->span.first, read_cell(w, rank, s->from.place, s->from.first));
}

/* As the engine does it: ours from the input, the others' from their slots. */
static void fold(world *w, int rank, const coll__step *s)
{
    const int number = new_value(w), block = w->a->by_block ? rank : 0;

    if (s->span.blocks != 1) fault(w, "rank %d folds into %d blocks", rank, s->span.blocks);
    if (length_of(w, rank, s->span.place, s->span.first) != block) fault(w, "rank %d folds block %d into another one", rank, block);
    for (int v = 0; v < w->size && !*w->wrong; v++) {
        const int part = v == rank ? read_cell(w, rank, COLL__INPUT, block) : read_cell(w, rank, COLL__WORK, v);
        for (int i = 0; i < values[part].count; i++) add_term(w, number, terms[values[part].first + i]);
    }
    values[number].sum_of = sum_of(w, &values[number]);
    write_cell(w, rank, s->span.place, s->span.first, number);
}

/* What the engine's memory is laid out for; see coll__flow_lay_out. */
static void check_fits(world *w, int rank)
{
    int blocks = 0, packed = 0;

    if (w->count[rank] > 2 * w->size + 2) {
        fault(w, "rank %d has %d steps in a round", rank, w->count[rank]);
        w->count[rank] = 2 * w->size + 2;
    }
    for (int i = 0; i < w->count[rank]; i++) {
        const coll__step *s = &steps[rank][i];
        if (s->verb != COLL__SEND && s->verb != COLL__RECV) continue;
        if (s->peer < 0 || s->peer >= w->size || s->peer == rank) {
            fault(w, "rank %d has rank %d for a peer", rank, s->peer);
            w->count[rank] = 0;
            return;
        }
        if (s->span.blocks < 1 || s->span.blocks > w->size) fault(w, "rank %d has a message of %d blocks", rank, s->span.blocks);
        blocks += s->span.blocks;
        packed += s->span.blocks > 1;
    }
    if (blocks > 2 * (w->size - 1)) fault(w, "rank %d moves %d blocks in a round", rank, blocks);
    if (packed > 2 * w->radix) fault(w, "rank %d packs %d messages in a round of radix %d", rank, packed, w->radix);
}

/* ---- >>running ---- */

/* Ask every rank for round k.  How many ranks have one. */
static int ask(world *w, int k)
{
    int running = 0;

    for (int v = 0; v < w->size; v++) {
        coll__round now = { v, w->size, w->root, w->radix, steps[v], 0, 2 * w->size + 2 }, dry = now;
        dry.steps = NULL;
        const bool is_running = w->a->round(&now, k), is_dry = w->a->round(&dry, k);
        if (is_running != is_dry || now.count != dry.count) fault(w, "rank %d answers differently when it only counts", v);
        if (!is_running && now.count) fault(w, "rank %d has steps in round %d, which there is not", v, k);
        if (now.rank != v || now.size != w->size || now.root != w->root || now.radix != w->radix)
            fault(w, "rank %d has changed its question", v);
        w->count[v] = now.count;
        check_fits(w, v);
        running += is_running;
    }
    return running;
}

static void interpret(world *w)
{
    prepare(w);
    for (w->rounds = 0; !*w->wrong; w->rounds++) {
        const int running = ask(w, w->rounds);
        if (running == 0 || *w->wrong) break;
        if (running < w->size) fault(w, "%d of %d ranks have a round %d", running, w->size, w->rounds);
        if (w->rounds >= ROUNDS_MOST) fault(w, "there is no end of rounds");
        w->now = w->rounds + 1;
        for (int v = 0; v < w->size; v++)
            for (int i = 0; i < w->count[v] && !*w->wrong; i++)
                if (steps[v][i].verb == COLL__COPY) copy(w, v, &steps[v][i]);
        if (!*w->wrong) exchange(w);
        for (int v = 0; v < w->size; v++)
            for (int i = 0; i < w->count[v] && !*w->wrong; i++)
                if (steps[v][i].verb == COLL__FOLD) fold(w, v, &steps[v][i]);
    }
}

/* ---- >>results: what the contract in coll.h says ---- */

static void expect_results(world *w)
{
    const coll_kind kind = w->a->kind;
    const bool is_summed = coll__kind_reduces(kind);

    for (int v = 0; v < w->size; v++) {
        const bool has_result = kind != COLL_REDUCE || v == w->root;
        if (!has_result && w->is_result_written[v]) fault(w, "rank %d has no result, but something was written to it", v);
        for (int b = 0; has_result && b < w->blocks && !*w->wrong; b++) {
            if (kind == COLL_REDUCE_SCATTER && b != v) continue;
            const int number = read_cell(w, v, COLL__RESULT, b);
            const bool is_right = is_summed ? values[number].sum_of == b
                                            : number == raw(w, kind == COLL_BROADCAST ? w->root : b, b);
            if (!is_right) fault(w, "rank %d ends with a wrong block %d", v, b);
        }
        for (int b = 0; w->layout == APART && is_summed && b < w->blocks && !*w->wrong; b++)
            if (read_cell(w, v, COLL__INPUT, b) != raw(w, v, b)) fault(w, "rank %d: input block %d has changed", v, b);
    }
}

/* ---- >>costs: what the comment above each algorithm says ---- */

/* ceil(log_radix size), by multiplication. */
static int ceil_log(int size, int radix)
{
    int rounds = 0;
    for (int64_t reach = 1; reach < size; reach *= radix) rounds++;
    return rounds;
}

static void expect_rounds(world *w, int rounds)
{
    if (w->rounds != rounds) fault(w, "%d rounds, not %d", w->rounds, rounds);
}

/* least..most messages sent, and exactly `blocks`. */
static void expect_sent(world *w, int rank, int least, int most, int blocks)
{
    const account *a = &w->account[rank];

    if (a->messages_out < least || a->messages_out > most)
        fault(w, "rank %d sends %d messages, not %d to %d", rank, a->messages_out, least, most);
    if (a->blocks_out != blocks) fault(w, "rank %d sends %d blocks, not %d", rank, a->blocks_out, blocks);
}

/* Every other rank is below one edge of the tree; the root has at most radix - 1 on each level. */
static void expect_tree(world *w, bool is_down)
{
    const int most = ceil_log(w->size, w->radix) * (w->radix - 1);

    for (int v = 0; v < w->size; v++) {
        const account *a = &w->account[v];
        const int up = is_down ? a->messages_in : a->messages_out, down = is_down ? a->messages_out : a->messages_in;
        if (up != (v != w->root)) fault(w, "rank %d has %d edges towards the root", v, up);
        if (down > most) fault(w, "rank %d has %d children, more than %d", v, down, most);
    }
}

static void expect_costs(world *w)
{
    const int p = w->size, r = w->radix, log = ceil_log(p, r), spread = coll__messages_of(p, r);
    const char *name = w->a->name;

    if (spread > (r - 1) * log) fault(w, "the circulant has %d messages, more than (r - 1) R", spread);
    switch (w->a->kind) {
    case COLL_BARRIER: case COLL_ALLGATHER:
        expect_rounds(w, w->a->kind == COLL_ALLGATHER && log == 0 ? 1 : log);
        for (int v = 0; v < p; v++) expect_sent(w, v, spread, spread, p - 1);
        break;
    case COLL_BROADCAST:
        expect_rounds(w, w->a->by_block ? 2 * log : log);
        if (!w->a->by_block) expect_tree(w, true);
        for (int v = 0; v < p && w->a->by_block; v++)
            if (w->account[v].blocks_out > 2 * (p - 1)) fault(w, "rank %d sends %d blocks", v, w->account[v].blocks_out);
        if (w->account[w->root].blocks_out > (w->a->by_block ? 2 * (p - 1) : log * (r - 1))) fault(w, "the root sends too much");
        break;
    case COLL_REDUCE:
        expect_rounds(w, w->a->by_block ? 2 : log ? log : 1);
        if (!w->a->by_block) expect_tree(w, false);
        if (!w->a->by_block && w->account[w->root].blocks_in != p - 1) fault(w, "the root receives too much");
        for (int v = 0; v < p && w->a->by_block; v++)
            expect_sent(w, v, p - 1 + (v != w->root), p - 1 + (v != w->root), p - 1 + (v != w->root));
        break;
    case COLL_ALLREDUCE:
        expect_rounds(w, w->a->by_block ? 1 + log : log ? log : 1);
        for (int v = 0; v < p; v++)
            if (w->a->by_block) expect_sent(w, v, p - 1 + spread, p - 1 + spread, 2 * (p - 1));
            else expect_sent(w, v, spread, spread, p - 1);
        break;
    case COLL_REDUCE_SCATTER:
        expect_rounds(w, 1);
        for (int v = 0; v < p; v++) expect_sent(w, v, p - 1, p - 1, p - 1);
        break;
    default:
        fault(w, "no costs are known of \"%s\": add them to the test", name);
    }
}

/* ---- >>all of them ---- */

static void run_one(const coll__algorithm *a, int size, int radix, int root, layout how)
{
    static world w;
    static const char *const layouts[] = { "", ", in place", ", in place at the rank's block" };

    memset(&w, 0, sizeof w);
    w.a = a, w.size = size, w.radix = radix, w.root = root, w.layout = how;
    w.blocks = a->by_block ? size : 1;
    interpret(&w);
    if (!*w.wrong) expect_results(&w);
    if (!*w.wrong) expect_costs(&w);
    CHECK(!*w.wrong, "%s %s on %d ranks, radix %d, root %d%s: round %d: %s", coll_kind_name(a->kind), a->name, size, radix, root,
          layouts[how], w.rounds, w.wrong);
}

/* One algorithm and size, with each layout of buffers that there is. */
static void run_layouts(const coll__algorithm *a, int size, int radix, int root)
{
    run_one(a, size, radix, root, APART);
    if (coll__kind_reduces(a->kind) || a->kind == COLL_ALLGATHER) run_one(a, size, radix, root, IN_PLACE);
    if (a->kind == COLL_REDUCE_SCATTER) run_one(a, size, radix, root, IN_PLACE_AT_RANK);
}

/* Every root where there is one; an operation without a root must not look at it. */
static void run_roots(const coll__algorithm *a, int size, int radix, bool is_all)
{
    const int few[] = { 0, 1, size / 2, size - 1 };

    if (!coll__kind_has_root(a->kind)) {
        run_layouts(a, size, radix, 0);
        return;
    }
    for (int root = 0; is_all && root < size; root++) run_layouts(a, size, radix, root);
    for (int i = 0; !is_all && i < 4; i++) run_layouts(a, size, radix, few[i]);
}

static void test_algorithms(void)
{
    static const int large[] = { 24, 31, 33, 64, 100 };

    for (int i = 0; i < COLL__ALGORITHM_COUNT; i++) {
        const coll__algorithm *a = &coll__algorithms[i];
        run_roots(a, 1, 2, true);
        for (int size = 2; size <= 17; size++)
            for (int radix = 2; radix <= size; radix++) run_roots(a, size, radix, true);
        for (size_t n = 0; n < sizeof large / sizeof *large; n++) {
            const int size = large[n], few[] = { 2, 3, 4, 7, 8, size / 2, size - 1, size };
            for (size_t j = 0; j < sizeof few / sizeof *few; j++) run_roots(a, size, few[j], false);
        }
    }
}

/* The table itself: names are unique within a kind, and every collective has an entry. */
static void test_table(void)
{
    for (int kind = COLL_BARRIER; kind <= COLL_ALLGATHER; kind++) {
        int found = 0;
        for (int i = 0; i < COLL__ALGORITHM_COUNT; i++) found += (int)coll__algorithms[i].kind == kind;
        CHECK(found > 0, "there is no algorithm for %s", coll_kind_name((coll_kind)kind));
    }
    for (int i = 0; i < COLL__ALGORITHM_COUNT; i++)
        for (int j = 0; j < i; j++)
            CHECK(coll__algorithms[i].kind != coll__algorithms[j].kind || strcmp(coll__algorithms[i].name, coll__algorithms[j].name),
                  "%s has \"%s\" twice", coll_kind_name(coll__algorithms[i].kind), coll__algorithms[i].name);
}

/* How often rounds have to be asked of huge worlds: no overflow on the way, and the same number everywhere. */
static void test_huge(void)
{
    static const int sizes[] = { 1000, 4096, 65535, 65536 };

    for (int n = 0; n < 4; n++) {
        const int size = sizes[n], radices[] = { 2, 3, 32, 33, size / 2, size - 1, size };
        for (int j = 0; j < 7; j++) {
            const int r = radices[j], log = ceil_log(size, r);
            CHECK(coll__circulant_rounds(size, r) == log, "circulant of %d, radix %d", size, r);
            CHECK(coll__tree_rounds(size, r) == log, "tree of %d, radix %d", size, r);
            CHECK(coll__circulant_skip(size, r, log) == 1 && coll__circulant_skip(size, r, 0) == size, "skips of %d, radix %d", size, r);
            for (int v = 0; v < size; v += size / 7) {
                coll__round now = { v, size, size - 1, r, NULL, 0, 0 };
                int rounds = 0;
                while (rounds < 200 && coll__broadcast_scatter(&now, rounds)) rounds++;
                CHECK(rounds == 2 * log, "rank %d of %d, radix %d: %d rounds of the scatter broadcast", v, size, r, rounds);
                CHECK(now.count >= 0 && now.count <= 4 * size * log, "rank %d of %d, radix %d: %d steps", v, size, r, now.count);
            }
        }
    }
}

/* ---- >>tuner ---- */

static coll_comm comm_of(int rank, int size)
{
    return (coll_comm){ .rank = rank, .size = size, .link = coll__link_default };
}

static const char *chosen(coll_kind kind, int rank, int size, size_t count, const char *name, coll__choice *choice)
{
    static const char none[] = "none";
    const coll_comm comm = comm_of(rank, size);
    const coll_call call = { .kind = kind, .count = count, .type = COLL_F32, .wire = COLL_F32, .algorithm = name };

    return coll__choose(choice, &comm, &call) ? choice->algorithm->name : none;
}

static void test_radix(void)
{
    const coll__link links[] = { coll__link_default, { 0, 0, 0, 0 }, { 1e-3, 0, 0, 0 }, { 0, 1e-3, 0, 0 }, { 1e-6, 1e-6, 1e-9, 1e-9 } };

    for (size_t n = 0; n < sizeof links / sizeof *links; n++)
        for (int size = 1; size <= 300; size++) {
            const coll__link *l = &links[n];
            const int best = coll__best_radix(l, size);
            CHECK(best >= 2 && best <= (size > 2 ? size : 2), "link %zu: radix %d for %d ranks", n, best, size);
            const double time = coll__rounds_time(l, coll__circulant_rounds(size, best), coll__messages_of(size, best));
            for (int radix = 2; radix <= size && radix <= 32; radix++)
                CHECK(time <= coll__rounds_time(l, coll__circulant_rounds(size, radix), coll__messages_of(size, radix)),
                      "link %zu, %d ranks: radix %d beats %d", n, size, radix, best);
        }
    for (int size = 3; size <= 17; size++) {
        CHECK(coll__best_radix(&links[2], size) == size, "messages cost nothing: %d ranks take one round", size);
        const int lean = coll__best_radix(&links[3], size);
        CHECK(coll__messages_of(size, lean) == ceil_log(size, lean), "rounds cost nothing: %d ranks take one message each, radix %d", size, lean);
    }
}

static void test_choice(void)
{
    static const int sizes[] = { 2, 3, 4, 5, 8, 16, 17, 33, 64, 256, 1000 };
    coll__choice choice, other;

    for (size_t n = 0; n < sizeof sizes / sizeof *sizes; n++) {
        const int size = sizes[n];
        CHECK(!strcmp(chosen(COLL_ALLREDUCE, 0, size, 1, NULL, &choice), "gather"), "tiny allreduce on %d: %s", size, choice.algorithm->name);
        CHECK(!strcmp(chosen(COLL_ALLREDUCE, 0, size, 0, NULL, &choice), "gather"), "empty allreduce on %d: %s", size, choice.algorithm->name);
        CHECK(!strcmp(chosen(COLL_ALLREDUCE, 0, size, 16 << 20, NULL, &choice), "direct"), "large allreduce on %d: %s", size,
              choice.algorithm->name);
        CHECK(!strcmp(chosen(COLL_BROADCAST, 0, size, 1, NULL, &choice), "tree"), "tiny broadcast on %d", size);
        CHECK(!strcmp(chosen(COLL_REDUCE, 0, size, 1, NULL, &choice), "gather"), "tiny reduce on %d", size);
        if (size > 2) CHECK(!strcmp(chosen(COLL_BROADCAST, 0, size, 64 << 20, NULL, &choice), "scatter"), "large broadcast on %d", size);
        if (size > 2) CHECK(!strcmp(chosen(COLL_REDUCE, 0, size, 64 << 20, NULL, &choice), "direct"), "large reduce on %d", size);
        for (int kind = COLL_BARRIER; kind <= COLL_ALLGATHER; kind++)
            for (size_t count = 1; count < (size_t)1 << 28; count *= 7) {
                chosen((coll_kind)kind, 0, size, count, NULL, &choice);
                CHECK(choice.seconds >= 0 && choice.seconds < 1e6, "%g s for %s of %zu on %d", choice.seconds,
                      coll_kind_name((coll_kind)kind), count, size);
                for (int rank = 1; rank < size; rank += 1 + size / 8) {
                    chosen((coll_kind)kind, rank, size, count, NULL, &other);
                    CHECK(other.algorithm == choice.algorithm && other.radix == choice.radix, "%s of %zu: ranks 0 and %d of %d differ",
                          coll_kind_name((coll_kind)kind), count, rank, size);
                }
            }
    }
}

/* Nothing that may differ between ranks has a say: buffers, time limits, names, spinning, processors. */
static void test_choice_is_common(void)
{
    static float memory[4];

    for (size_t count = 1; count < (size_t)1 << 26; count *= 3) {
        coll_comm a = comm_of(0, 6), b = comm_of(5, 6);
        const coll_call plain = { .kind = COLL_ALLREDUCE, .count = count, .type = COLL_F32, .wire = COLL_BF16 };
        coll_call dressed = plain;
        coll__choice one, two;
        b.local_rank = 3, b.local_size = 4, b.is_crowded = true, b.spin_us = 7, b.stall_timeout_ms = 1, b.sequence = 99;
        dressed.send = memory, dressed.recv = memory + 1, dressed.timeout_ms = 5, dressed.name = "x", dressed.tag = 3;
        CHECK(coll__choose(&one, &a, &plain) && coll__choose(&two, &b, &dressed), "allreduce of %zu", count);
        CHECK(one.algorithm == two.algorithm && one.radix == two.radix, "allreduce of %zu: two ranks choose differently", count);
    }
}

static void test_names(void)
{
    coll__choice choice;

    for (int i = 0; i < COLL__ALGORITHM_COUNT; i++) {
        const coll__algorithm *a = &coll__algorithms[i];
        for (size_t count = 1; count < (size_t)1 << 26; count *= 64) {
            chosen(a->kind, 1, 5, count, a->name, &choice);
            CHECK(choice.algorithm == a, "%s of %zu: \"%s\" was asked for", coll_kind_name(a->kind), count, a->name);
        }
        for (int kind = COLL_BARRIER; kind <= COLL_ALLGATHER; kind++) {
            bool is_known = false;
            for (int j = 0; j < COLL__ALGORITHM_COUNT; j++)
                is_known |= (int)coll__algorithms[j].kind == kind && !strcmp(coll__algorithms[j].name, a->name);
            CHECK(!strcmp(chosen((coll_kind)kind, 0, 4, 9, a->name, &choice), "none") == !is_known, "%s \"%s\"",
                  coll_kind_name((coll_kind)kind), a->name);
        }
    }
    static const char *const unknown[] = { "", "ring", "Gather", "gather ", "direct2", "direc" };
    for (int i = 0; i < 6; i++)
        CHECK(!strcmp(chosen(COLL_ALLREDUCE, 0, 4, 9, unknown[i], &choice), "none"), "\"%s\" is no algorithm", unknown[i]);
    for (int kind = COLL_SEND; kind <= COLL_SENDRECV; kind++)
        CHECK(!strcmp(chosen((coll_kind)kind, 0, 4, 9, NULL, &choice), "none"), "%s has no algorithm", coll_kind_name((coll_kind)kind));
}

/* ---- >>cutting ---- */

static void test_part(void)
{
    static const size_t totals[] = { 0, 1, 2, 3, 5, 7, 8, 16, 63, 64, 65, 100, 1023, 4096, 1000003, (size_t)1 << 40, SIZE_MAX / 4 };

    for (size_t n = 0; n < sizeof totals / sizeof *totals; n++)
        for (size_t parts = 1; parts <= 130; parts += parts < 20 ? 1 : 11) {
            size_t at = 0, least = SIZE_MAX, most = 0;
            bool is_contiguous = true;
            for (size_t i = 0; i < parts; i++) {
                const coll__range r = coll__part(totals[n], parts, i);
                is_contiguous &= r.at == at;
                is_contiguous &= i == 0 || r.count <= coll__part(totals[n], parts, i - 1).count;
                at += r.count;
                least = coll__least(least, r.count);
                most = coll__most(most, r.count);
            }
            CHECK(is_contiguous && at == totals[n] && most - least <= 1, "%zu in %zu parts: ends at %zu, %zu to %zu each", totals[n],
                  parts, at, least, most);
        }
}

/* Blocks and slices: every element in exactly one slice of one block. */
static void test_slices(void)
{
    static unsigned char seen[4096];

    for (size_t total = 0; total <= sizeof seen; total = total < 40 ? total + 1 : total * 3 / 2 + 1)
        for (int blocks = 1; blocks <= 40; blocks += blocks < 9 ? 1 : 6)
            for (long slices = 1; slices <= 33; slices += slices < 9 ? 1 : 5) {
                const coll__flow flow = { .total = total, .blocks = blocks, .slices = slices };
                bool is_inside = true, is_once = true;
                memset(seen, 0, sizeof seen);
                for (int b = 0; b < blocks; b++)
                    for (long s = 0; s < slices; s++) {
                        const coll__range r = coll__slice_of(&flow, b, s);
                        is_inside &= r.at <= total && r.count <= total - r.at;
                        for (size_t i = r.at; is_inside && i < r.at + r.count; i++) is_once &= !seen[i]++;
                    }
                for (size_t i = 0; i < total; i++) is_once &= seen[i] == 1;
                CHECK(is_inside && is_once, "%zu elements, %d blocks, %ld slices", total, blocks, slices);
            }
}

/* How the engine cuts: slices within their bounds, memory for the longest of them, every round of every slice in a tick. */
static void test_cut(void)
{
    static const size_t totals[] = { 0, 1, 3, 17, 1000, 16384, 131072, 131073, 1000003, 50000000, (size_t)1 << 40 };

    for (size_t n = 0; n < sizeof totals / sizeof *totals; n++)
        for (int size = 1; size <= 257; size = size * 2 + 1)
            for (int rounds = 1; rounds <= 9; rounds += 4)
                for (size_t width = 0; width <= 8; width = width ? width * 2 : 1) {
                    coll_comm comm = comm_of(0, size);
                    coll_request r = { .comm = &comm, .codec = { .wire_size = width } };
                    coll__flow *f = &r.flow;
                    *f = (coll__flow){ .total = totals[n], .blocks = n % 2 ? size : 1, .rounds = rounds };
                    coll__flow_cut(f, &r);
                    const size_t block = coll__part(f->total, (size_t)f->blocks, 0).count, slice = coll__slice_of(f, 0, 0).count;
                    CHECK(f->slices >= 1 && f->lag >= 1 && f->lag <= f->slices && f->ticks == f->slices + (rounds - 1) * f->lag,
                          "%zu on %d: %ld slices, lag %ld, %ld ticks", totals[n], size, f->slices, f->lag, f->ticks);
                    CHECK(slice * width <= COLL__SLICE_MOST && slice <= block, "%zu on %d: a slice of %zu", totals[n], size, slice);
                    CHECK(block == 0 || (size_t)f->slices <= block, "%zu on %d: %ld slices of %zu", totals[n], size, f->slices, block);
                    CHECK(f->slices == 1 || slice * width * (size_t)size <= coll__most(COLL__LANDING_MOST, (size_t)COLL__SLICE_LEAST * (size_t)size),
                          "%zu on %d: %zu bytes land at once", totals[n], size, slice * width * (size_t)size);
                }
}

int main(void)
{
    test_table();
    test_algorithms();
    test_huge();
    test_radix();
    test_choice();
    test_choice_is_common();
    test_names();
    test_part();
    test_slices();
    test_cut();
    return CHECK_DONE();
}
