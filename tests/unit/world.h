/* world.h - an interpreter of algorithms: all ranks of a world in one thread, round by round, on symbols instead of numbers,
 * with the hazards of memory and a clock.
 *
 * A value is what a fold made of the contributions "block b of rank v": how many, which, in which order, with which brackets.
 * Where a set or a tree is to be compared it is compared as a 64-bit fingerprint.
 */
#ifndef WORLD_H
#define WORLD_H

#include <limits.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "../../coll.h"
#include "../../core/base/coll_features.h"
#if defined(COLL__LEAVES_OUT)                     /* as in coll_impl.h: then some algorithms are not used */
#pragma GCC diagnostic ignored "-Wunused-function"
#endif
#include "../../core/algorithms/coll_round.h"
#include "../../core/algorithms/coll_ring_bruck.h"
#include "../../core/algorithms/coll_tree.h"
#include "../../core/algorithms/coll_scan.h"
#include "../../core/algorithms/coll_blocks.h"
#include "../../core/algorithms/coll_cost.h"
#include "../../core/algorithms/coll_algorithms.h"
#include "../../core/algorithms/coll_tuner.h"

/* How the caller's buffers lie: apart; send == recv; or recv == the beginning of send (reduce_scatter only). */
typedef enum layout { APART, IN_PLACE, AT_BEGINNING, LAYOUTS } layout;

typedef enum state { NOTHING, RAW, PARTIAL, FINISHED } state;

/* What was made of which contributions. */
typedef struct value {
    uint64_t set, tree;                           /* fingerprints: the ranks, and the expression              */
    int  count, block;
    int  low, high;                               /* the ranks low .. high - 1 in order; low -1: not in order */
    bool is_flat, is_chain;                       /* of raw terms in one fold; ((a + b) + c) + ...            */
} value;

typedef struct cell {
    int   number;                                 /* of the value                                             */
    state state;
    int   read_at, got_at, put_at;                /* rounds: sent or copied from; received into; copied into  */
} cell;

typedef struct message { int from, to, step, first; double joiners; } message;

/* The world that is interpreted. */
typedef struct world {
    const coll__algorithm *a;
    int size, root, radix, blocks;
    layout layout;
    const int *order;
    const coll__graph *graphs;                    /* of all ranks, for neighbor operations                    */
    int slots;                                    /* room in WORK and in PART                                 */
    int rounds;                                   /* the number of the round; in the end how many there were  */
    char wrong[240];                              /* the first thing found wrong, "": none                    */
    const coll__link *link;                       /* of the clock                                             */
    double block_bytes, block_sum_bytes;
    long sent_total, sent_most, sent_least, messages_most;
    double seconds;
} world;

typedef struct rank_state {
    int   first, count;                           /* its steps of this round                                  */
    int   slots[COLL__PLACES];
    long  blocks_sent, messages_sent;
    double ready, next_send, send_free, next_recv, recv_free;      /* s: the rank, its starts of messages, its link */
} rank_state;

static value *values;
static int value_count, value_room;
static cell *cells;
static size_t cell_room;
static coll__step *steps;
static int step_count, step_room;
static message *messages;
static int message_count, message_room;
static cell *parcels;                             /* contents of the messages                                 */
static int parcel_count, parcel_room;
static int *heads, *tails, *nexts;
static int head_room, tail_room, next_room;
static rank_state *ranks;
static int rank_room;

static void *grown(void *at, size_t count, size_t each)
{
    void *const got = realloc(at, (count ? count : 1) * each);
    if (!got) exit(fprintf(stderr, "no memory\n"));
    return got;
}

#define ROOM(array, count, room)                                                                  \
    do {                                                                                          \
        if ((count) > (room)) {                                                                   \
            (room) = (count) * 2 + 64;                                                            \
            (array) = grown((array), (size_t)(room), sizeof *(array));                            \
        }                                                                                         \
    } while (0)

__attribute__((format(printf, 2, 3))) static void fault(world *w, const char *format, ...)
{
    va_list list;

    if (*w->wrong) return;
    va_start(list, format);
    vsnprintf(w->wrong, sizeof w->wrong, format, list);
    va_end(list);
}

static uint64_t mixed(uint64_t x)
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

/* ---- >>kinds ---- */

static bool is_reduction(coll_kind kind) { return kind >= COLL_REDUCE && kind <= COLL_EXSCAN; }
static bool is_scan(coll_kind kind) { return kind == COLL_SCAN || kind == COLL_EXSCAN; }
static bool is_reduce_scatter(coll_kind kind) { return kind == COLL_REDUCE_SCATTER || kind == COLL_REDUCE_SCATTERV; }
static bool is_gather(coll_kind kind) { return kind == COLL_GATHER || kind == COLL_GATHERV; }
static bool is_scatter(coll_kind kind) { return kind == COLL_SCATTER || kind == COLL_SCATTERV; }
static bool is_allgather(coll_kind kind) { return kind == COLL_ALLGATHER || kind == COLL_ALLGATHERV; }
static bool is_alltoall(coll_kind kind) { return kind >= COLL_ALLTOALL && kind <= COLL_ALLTOALLW; }
static bool is_neighbor(coll_kind kind) { return kind >= COLL_NEIGHBOR_ALLGATHER && kind <= COLL_NEIGHBOR_ALLTOALLW; }
static bool is_rooted(coll_kind kind)
{
    return kind == COLL_BROADCAST || kind == COLL_REDUCE || is_gather(kind) || is_scatter(kind);
}

/* Only the two ranks of a transfer have the length of a block. */
static bool is_private(coll_kind kind)
{
    return kind == COLL_GATHERV || kind == COLL_SCATTERV || kind == COLL_ALLTOALLV || kind == COLL_ALLTOALLW || is_neighbor(kind);
}

static bool has_result(const world *w, int rank)
{
    return (w->a->kind != COLL_REDUCE && !is_gather(w->a->kind)) || rank == w->root;
}

static bool has_input(const world *w, int rank)
{
    if (w->a->kind == COLL_BARRIER || w->a->kind == COLL_BROADCAST) return false;
    return !is_scatter(w->a->kind) || rank == w->root;
}

/* How many blocks a rank has in INPUT or RESULT. */
static int circle(const world *w, int rank, coll__place place)
{
    if (!is_neighbor(w->a->kind)) return w->blocks;
    if (place == COLL__RESULT) return w->graphs[rank].sources;
    const bool is_one = w->a->kind == COLL_NEIGHBOR_ALLGATHER || w->a->kind == COLL_NEIGHBOR_ALLGATHERV;
    return is_one ? 1 : w->graphs[rank].destinations;
}

/* Is it only the block with the rank's own number that this place has? */
static bool is_own_only(const world *w, coll__place place)
{
    const coll_kind kind = w->a->kind;
    return place == COLL__INPUT ? is_gather(kind) || is_allgather(kind) : is_reduce_scatter(kind) || is_scatter(kind);
}

/* ---- >>memory ---- */

static int wide(const world *w) { return (w->blocks > w->size ? w->blocks : w->size) + 8; }

/* The cell of a place, in the caller's layout; NULL and a fault if the rank has no such block. */
static cell *cell_of(world *w, int rank, coll__place place, int index)
{
    static const char *const names[] = { "INPUT", "RESULT", "WORK", "PART" };
    const int width = wide(w), stride = 2 * width + 2 * w->slots;
    cell *const mine = cells + (size_t)rank * (size_t)stride;

    if ((unsigned)place >= COLL__PLACES) return fault(w, "rank %d: there is no place %d", rank, (int)place), NULL;
    if (place == COLL__WORK || place == COLL__PART) {
        if (index < 0 || index >= w->slots || index >= ranks[rank].slots[place])
            return fault(w, "rank %d: %s slot %d of %d", rank, names[place], index, ranks[rank].slots[place]), NULL;
        return mine + 2 * width + (place == COLL__PART ? w->slots : 0) + index;
    }
    const bool is_there = place == COLL__INPUT ? has_input(w, rank) : has_result(w, rank);
    if (!is_there || index < 0 || index >= circle(w, rank, place) || (is_own_only(w, place) && index != rank))
        return fault(w, "rank %d: %s has no block %d", rank, names[place], index), NULL;
    if (place == COLL__RESULT && w->layout != APART && has_input(w, rank)) {
        const bool is_beginning = w->layout == AT_BEGINNING;
        if (is_reduce_scatter(w->a->kind)) place = COLL__INPUT, index = is_beginning ? 0 : index;
        else if (is_gather(w->a->kind) || is_allgather(w->a->kind)) place = index == rank ? COLL__INPUT : place;
        else place = COLL__INPUT;
    }
    return mine + (place == COLL__RESULT ? width : 0) + index;
}

static cell *span_cell(world *w, int rank, const coll__span *span, int i)
{
    return cell_of(w, rank, span->place, coll__span_at(span, i, circle(w, rank, span->place)));
}

static int new_value(value v)
{
    ROOM(values, value_count + 1, value_room);
    values[value_count] = v;
    return value_count++;
}

/* Block `block` of the input of `rank`. */
static value leaf(int rank, int block)
{
    const uint64_t tree = mixed((uint64_t)rank << 32 | (uint64_t)(unsigned)block);
    return (value){ mixed((uint64_t)rank), tree, 1, block, rank, rank + 1, true, true };
}

static void prepare(world *w)
{
    const coll_kind kind = w->a->kind;
    const size_t need = (size_t)w->size * (size_t)(2 * wide(w) + 2 * w->slots);

    if (need > cell_room) cells = grown(cells, cell_room = need, sizeof *cells);
    memset(cells, 0, need * sizeof *cells);
    ROOM(ranks, w->size, rank_room);
    memset(ranks, 0, (size_t)w->size * sizeof *ranks);
    value_count = 1;
    for (int v = 0; v < w->size; v++) {
        const coll__place place = kind == COLL_BARRIER || kind == COLL_BROADCAST ? COLL__RESULT : COLL__INPUT;
        if (place == COLL__INPUT ? !has_input(w, v) : kind == COLL_BROADCAST && v != w->root) continue;
        for (int b = 0; b < circle(w, v, place); b++) {
            if ((is_own_only(w, place) || kind == COLL_BARRIER) && b != v) continue;
            cell *const c = cell_of(w, v, place, b);
            if (c) *c = (cell){ .number = new_value(leaf(v, b)), .state = RAW, .read_at = 0 };
        }
    }
    ROOM(tails, w->size * w->size, tail_room);
    ROOM(heads, w->size * w->size, head_room);
    for (int i = 0; i < w->size * w->size; i++) heads[i] = -1;
}

/* ---- >>steps ---- */

static bool same_length(const world *w, const coll__span *a, const coll__span *b, int i)
{
    if (is_alltoall(w->a->kind) || is_neighbor(w->a->kind)) return true;
    return coll__span_about(a, i, w->blocks) == coll__span_about(b, i, w->blocks);
}

static void copy(world *w, int rank, const coll__step *s)
{
    if (s->span.place == COLL__INPUT || s->span.place == COLL__PART || s->from.place == COLL__PART
        || s->span.blocks != s->from.blocks)
        fault(w, "rank %d copies %d blocks from place %d to %d of place %d", rank, s->from.blocks, (int)s->from.place,
              s->span.blocks,
              (int)s->span.place);
    for (int i = 0; i < s->span.blocks && !*w->wrong; i++) {
        cell *const to = span_cell(w, rank, &s->span, i), *const from = span_cell(w, rank, &s->from, i);
        if (!to || !from) return;
        if (!same_length(w, &s->span, &s->from, i)) fault(w, "rank %d copies between blocks of different lengths", rank);
        if (from->state == NOTHING) fault(w, "rank %d copies nothing", rank);
        from->read_at = w->rounds + 1;
        if (to == from) continue;
        to->number = from->number, to->state = from->state;
        to->put_at = w->rounds + 1;
    }
}

static double bytes_of(const world *w, const coll__span *span)
{
    return span->blocks * (span->place == COLL__PART ? w->block_sum_bytes : w->block_bytes);
}

static double later(double a, double b) { return a > b ? a : b; }

static void post(world *w, int from, int index)
{
    const coll__step *s = &steps[index];
    rank_state *const r = &ranks[from];
    const int bucket = s->peer * w->size + from;

    if (s->peer == from || s->peer < 0 || s->peer >= w->size || s->span.blocks < 1) {
        fault(w, "rank %d sends %d blocks to rank %d", from, s->span.blocks, s->peer);
        return;
    }
    if (is_private(w->a->kind) && !coll__in_packets(w->a) && (s->span.blocks != 1 || s->span.place != COLL__INPUT))
        fault(w, "rank %d sends what others cannot know the length of", from);
    ROOM(messages, message_count + 1, message_room);
    ROOM(nexts, message_count + 1, next_room);
    const double start = later(r->ready, r->next_send), begin = later(start, r->send_free);
    r->next_send = start + w->link->overhead;
    r->send_free = begin + bytes_of(w, &s->span) * w->link->per_byte;
    messages[message_count] = (message){ from, s->peer, index, parcel_count, begin + w->link->latency };
    nexts[message_count] = -1;
    if (heads[bucket] < 0) heads[bucket] = message_count;
    else nexts[tails[bucket]] = message_count;
    tails[bucket] = message_count++;
    for (int i = 0; i < s->span.blocks && !*w->wrong; i++) {
        cell *const c = span_cell(w, from, &s->span, i);
        if (!c) return;
        if (c->state == NOTHING) fault(w, "rank %d sends place %d block %d before it is written", from, (int)s->span.place,
                                       coll__span_at(&s->span, i, w->blocks));
        c->read_at = w->rounds + 1;
        ROOM(parcels, parcel_count + 1, parcel_room);
        parcels[parcel_count++] = *c;
    }
    r->blocks_sent += s->span.blocks, r->messages_sent++;
}

static void take(world *w, int to, const coll__step *s)
{
    const int bucket = to * w->size + s->peer, at = s->peer >= 0 && s->peer < w->size ? heads[bucket] : -1;

    if (at < 0) {
        fault(w, "rank %d waits for rank %d, which sends nothing", to, s->peer);
        return;
    }
    const message *m = &messages[at];
    const coll__span *sent = &steps[m->step].span;
    heads[bucket] = nexts[at];
    if (sent->blocks != s->span.blocks || (sent->place == COLL__PART) != (s->span.place == COLL__PART)
        || s->span.place == COLL__INPUT)
        fault(w, "rank %d sends %d blocks of place %d, rank %d receives %d into place %d", m->from, sent->blocks,
              (int)sent->place, to,
              s->span.blocks, (int)s->span.place);
    for (int i = 0; i < s->span.blocks && !*w->wrong; i++) {
        cell *const c = span_cell(w, to, &s->span, i);
        if (!c) return;
        if (!same_length(w, sent, &s->span, i)) fault(w, "ranks %d and %d: lengths differ", m->from, to);
        if (c->read_at == w->rounds + 1 || c->put_at == w->rounds + 1 || c->got_at == w->rounds + 1)
            fault(w, "rank %d receives into place %d block %d, which this round also uses otherwise", to, (int)s->span.place,
                  coll__span_at(&s->span, i, w->blocks));
        c->number = parcels[m->first + i].number, c->state = parcels[m->first + i].state;
        c->got_at = w->rounds + 1;
    }
}

/* One block of a fold: the value of `count` sources. */
static int combined(world *w, int rank, const int *numbers, int count)
{
    value v = values[numbers[0]];

    if (count == 1) return numbers[0];
    v.is_chain = v.is_chain && count == 2 && v.low >= 0;
    v.tree = mixed(v.tree + 1);
    for (int i = 1; i < count; i++) {
        const value *s = &values[numbers[i]];
        if (s->block != v.block) fault(w, "rank %d folds block %d into block %d", rank, s->block, v.block);
        v.set += s->set, v.count += s->count, v.tree = mixed(v.tree ^ mixed(s->tree + (uint64_t)i));
        if (v.low >= 0 && s->low == v.high) v.high = s->high;
        else v.low = -1;
        v.is_flat = v.is_flat && s->count == 1 && values[numbers[0]].count == 1;
        v.is_chain = v.is_chain && s->count == 1;
    }
    if (v.low < 0) v.is_chain = false;
    return new_value(v);
}

/* The fold at `at` and the sources behind it.  Returns how many bytes are added to something. */
static double fold(world *w, int rank, int at, int end)
{
    const coll__span *to = &steps[at].span;
    static int numbers[4096];
    double bytes = 0;
    int last = at + 1;

    while (last < end && steps[last].verb == COLL__FROM) last++;
    if (last == at + 1 || last - at > 4000 || to->place == COLL__INPUT || to->blocks < 1) {
        fault(w, "rank %d folds %d sources into place %d", rank, last - at - 1, (int)to->place);
        return 0;
    }
    for (int j = at + 2; j < last; j++) bytes += bytes_of(w, &steps[j].span);
    for (int i = 0; i < to->blocks && !*w->wrong; i++) {
        int count = 0;
        for (int j = at + 1; j < last && !*w->wrong; j++) {
            if (i >= steps[j].span.blocks) continue;
            const cell *c = span_cell(w, rank, &steps[j].span, i);
            if (!c) return 0;
            if (!same_length(w, to, &steps[j].span, i)) fault(w, "rank %d folds blocks of different lengths", rank);
            if (c->state != RAW && c->state != PARTIAL)
                fault(w, "rank %d folds place %d block %d, which holds %s", rank, (int)steps[j].span.place,
                      coll__span_at(&steps[j].span, i, w->blocks), c->state == NOTHING ? "nothing" : "a finished value");
            if ((c->state == PARTIAL) != (steps[j].span.place == COLL__PART)) fault(w, "rank %d: a partial result out of place",
                                                                                    rank);
            numbers[count++] = c->number;
        }
        cell *const c = *w->wrong ? NULL : span_cell(w, rank, to, i);
        if (!c) return 0;
        c->number = combined(w, rank, numbers, count);
        c->state = to->place == COLL__PART ? PARTIAL : FINISHED;
    }
    return bytes;
}

/* ---- >>running ---- */

/* Ask every rank for round k.  How many ranks have one. */
static int ask(world *w, int k)
{
    int running = 0;

    step_count = message_count = parcel_count = 0;
    for (int v = 0; v < w->size; v++) {
        coll__round dry = { .rank = v, .size = w->size, .root = w->root, .radix = w->radix, .blocks = w->blocks,
            .order = w->order,
                            .is_exclusive = w->a->kind == COLL_EXSCAN, .graph = w->graphs ? &w->graphs[v] : NULL };
        coll__round now = dry;
        const bool is_dry = w->a->round(&dry, k);
        ROOM(steps, step_count + dry.count + 1, step_room);
        now.steps = steps + step_count, now.capacity = dry.count;
        const bool is_running = w->a->round(&now, k);
        if (is_running != is_dry || now.count != dry.count || now.moved != dry.moved || now.sent != dry.sent)
            fault(w, "rank %d answers differently when it only counts", v);
        if (!is_running && now.count) fault(w, "rank %d has steps in round %d, which there is not", v, k);
        if (now.rank != v || now.size != w->size || now.root != w->root || now.radix != w->radix || now.blocks != w->blocks)
            fault(w, "rank %d has changed its question", v);
        ranks[v].first = step_count, ranks[v].count = now.count;
        for (int p = COLL__WORK; p <= COLL__PART; p++)
            if (now.slots[p] > ranks[v].slots[p]) ranks[v].slots[p] = now.slots[p];
        step_count += now.count;
        running += is_running;
    }
    return running;
}

static int by_time(const void *a, const void *b)
{
    const message *const x = a, *const y = b;
    return x->joiners < y->joiners ? -1 : x->joiners > y->joiners ? 1 : x->step < y->step ? -1 : x->step > y->step;
}

/* Let the messages of the round arrive, each receiver taking them one at a time. */
static void let_arrive(world *w)
{
    qsort(messages, (size_t)message_count, sizeof *messages, by_time);
    for (int i = 0; i < message_count; i++) {
        const message *m = &messages[i];
        rank_state *const r = &ranks[m->to], *const s = &ranks[m->from];
        const double bytes = bytes_of(w, &steps[m->step].span) * w->link->per_byte, start = later(m->joiners, r->next_recv);
        r->next_recv = start + w->link->overhead;
        r->recv_free = later(start, r->recv_free) + bytes;
        r->ready = later(r->ready, r->recv_free);
        s->ready = later(s->ready, m->joiners - w->link->latency + bytes);
    }
}

static void run_round(world *w)
{
    for (int pass = 0; pass < 3; pass++)
        for (int v = 0; v < w->size && !*w->wrong; v++)
            for (int i = ranks[v].first; i < ranks[v].first + ranks[v].count && !*w->wrong; i++) {
                if (pass == 0 && steps[i].verb == COLL__COPY) copy(w, v, &steps[i]);
                if (pass == 1 && steps[i].verb == COLL__SEND) post(w, v, i);
                if (pass == 2 && steps[i].verb == COLL__RECV) take(w, v, &steps[i]);
            }
    for (int i = 0; i < message_count && !*w->wrong; i++)
        if (heads[messages[i].to * w->size + messages[i].from] >= 0)
            fault(w, "rank %d sends to rank %d, which receives nothing", messages[i].from, messages[i].to);
    if (*w->wrong) return;
    let_arrive(w);
    for (int v = 0; v < w->size && !*w->wrong; v++) {
        double folded = 0;
        for (int i = ranks[v].first; i < ranks[v].first + ranks[v].count && !*w->wrong; i++)
            if (steps[i].verb == COLL__FOLD) folded += fold(w, v, i, ranks[v].first + ranks[v].count);
        ranks[v].ready += folded * w->link->per_byte_reduced;
    }
}

static void interpret(world *w)
{
    prepare(w);
    for (w->rounds = 0; !*w->wrong; w->rounds++) {
        const int running = ask(w, w->rounds);
        if (running == 0 || *w->wrong) break;
        if (running < w->size) fault(w, "%d of %d ranks have a round %d", running, w->size, w->rounds);
        else if (w->rounds > 2 * w->size + w->blocks + 64) fault(w, "no end of rounds");
        else run_round(w);
    }
    w->seconds = 0, w->sent_total = w->sent_most = w->messages_most = 0, w->sent_least = LONG_MAX;
    for (int v = 0; v < w->size; v++) {
        if (ranks[v].ready > w->seconds) w->seconds = ranks[v].ready;
        w->sent_total += ranks[v].blocks_sent;
        if (ranks[v].blocks_sent > w->sent_most) w->sent_most = ranks[v].blocks_sent;
        if (ranks[v].blocks_sent < w->sent_least) w->sent_least = ranks[v].blocks_sent;
        if (ranks[v].messages_sent > w->messages_most) w->messages_most = ranks[v].messages_sent;
    }
}

/* ---- >>results ---- */

static void expect_leaf(world *w, int rank, int block, int of, int its_block)
{
    const cell *c = cell_of(w, rank, COLL__RESULT, block);

    if (!c) return;
    if (c->state != RAW || values[c->number].tree != leaf(of, its_block).tree)
        fault(w, "rank %d has something else than block %d of rank %d for its block %d", rank, its_block, of, block);
}

/* The combination of the first `terms` ranks' contributions to a block. */
static void expect_sum(world *w, int rank, int block, int terms)
{
    const cell *c = cell_of(w, rank, COLL__RESULT, block);
    uint64_t set = 0;

    if (!c) return;
    const value *v = &values[c->number];
    for (int i = 0; i < terms; i++) set += mixed((uint64_t)i);
    if (c->state != FINISHED) fault(w, "rank %d: block %d is not finished", rank, block);
    else if (v->count != terms || v->set != set || v->block != block)
        fault(w, "rank %d: block %d has %d terms of %d, block %d", rank, block, v->count, terms, v->block);
    else if (w->a->keeps_order && (v->low != 0 || v->high != terms)) fault(w, "rank %d: block %d is out of order", rank, block);
    else if (w->a->is_canonical && !(is_scan(w->a->kind) ? v->is_chain : v->is_flat))
        fault(w, "rank %d: block %d is not canonical", rank, block);
}

/* Do all ranks that hold a block hold the same expression? */
static void expect_same_trees(world *w)
{
    for (int b = 0; b < w->blocks && !*w->wrong; b++) {
        const cell *const c = cell_of(w, 0, COLL__RESULT, b);
        for (int v = 1; v < w->size && !*w->wrong; v++) {
            const cell *const d = cell_of(w, v, COLL__RESULT, b);
            if (!c || !d || values[c->number].tree != values[d->number].tree) fault(w, "ranks 0 and %d: block %d differs", v, b);
        }
    }
}

static void expect_results(world *w)
{
    const coll_kind kind = w->a->kind;

    for (int v = 0; v < w->size && !*w->wrong; v++) {
        if (kind == COLL_EXSCAN && v == 0) {
            for (int b = 0; b < w->blocks && !*w->wrong; b++)
                if (cell_of(w, 0, COLL__RESULT, b)->state != (w->layout == APART ? NOTHING : RAW)) fault(w,
                                                                                                         "rank 0 has a result");
            continue;
        }
        if (!has_result(w, v)) continue;
        for (int b = 0; b < w->blocks && !*w->wrong; b++) {
            if (is_own_only(w, COLL__RESULT) && b != v) continue;
            if (is_scan(kind)) expect_sum(w, v, b, v + (kind == COLL_SCAN));
            else if (is_reduction(kind)) expect_sum(w, v, b, w->size);
            else if (kind == COLL_BROADCAST || is_scatter(kind)) expect_leaf(w, v, b, w->root, b);
            else if (is_alltoall(kind)) expect_leaf(w, v, b, b, v);
            else expect_leaf(w, v, b, b, b);
        }
    }
    if (kind == COLL_ALLREDUCE && !w->a->needs_exact) expect_same_trees(w);
}

/* ---- >>promises: rounds and blocks, as formulas ---- */

static int ceil_log(int size, int radix)
{
    int n = 0;
    for (long power = 1; power < size; power *= radix) n++;
    return n;
}

typedef struct promise { long rounds, each, total; } promise;     /* each, total: blocks sent; -1: not promised */

static promise promised(const world *w)
{
    const char *const name = w->a->name;
    const coll_kind kind = w->a->kind;
    const long p = w->size, R = ceil_log(w->size, w->radix), q = ceil_log(w->size, 2), n = w->blocks;
    const bool is_ring = !strcmp(name, "ring"), is_direct = !strcmp(name, "direct");
    long digits = 0;

    for (int d = 1; d < p; d++)
        for (int rest = d; rest > 0; rest /= w->radix) digits += rest % w->radix != 0;
    if (!strcmp(name, "blocks")) return (promise){ n - 1 + q, -1, n * (p - 1) };
    if (!strcmp(name, "dbtree")) {                /* of halves: two to each rank but the root, once down, once up */
        const long levels = ceil_log(w->size + 1, 2), ways = kind == COLL_ALLREDUCE ? 2 : 1;
        return (promise){ ways * levels, -1, ways * n * (p - 1) };
    }
    if (!strcmp(name, "chain")) return (promise){ p - 1, -1, p - 1 };
    if (!strcmp(name, "tree") && is_rooted(kind) && !is_gather(kind) && !is_scatter(kind)) return (promise){ R, -1, p - 1 };
    if (!strcmp(name, "tree")) return (promise){ is_rooted(kind) ? R : 2 * R, -1, -1 };
    if (!strcmp(name, "scatter")) return (promise){ 2 * R, -1, -1 };
    if (!strcmp(name, "transposed")) return (promise){ 2, kind == COLL_SCAN ? 2 * (p - 1) : -1,
        (kind == COLL_SCAN ? 2 * p : 2 * p - 1) * (p - 1) };
    if (!strcmp(name, "census")) return (promise){ q, kind == COLL_ALLREDUCE ? q : -1, -1 };
    if (kind == COLL_ALLREDUCE && is_direct) return (promise){ 1 + R, 2 * (p - 1), 2 * p * (p - 1) };
    if (!strcmp(name, "shares")) return (promise){ 2, 2 * (p - 1), 2 * p * (p - 1) };
    if (kind == COLL_ALLREDUCE && is_ring) return (promise){ 2 * (p - 1), 2 * (p - 1), 2 * p * (p - 1) };
    if (kind == COLL_ALLREDUCE && !strcmp(name, "circulant")) return (promise){ 2 * R, 2 * (p - 1), 2 * p * (p - 1) };
    if (is_reduce_scatter(kind) && !strcmp(name, "gather")) return (promise){ R, p * (p - 1), p * p * (p - 1) };
    if (kind == COLL_REDUCE && is_direct) return (promise){ 2, -1, p * (p - 1) + p - 1 };
    if (kind == COLL_REDUCE) return (promise){ R, -1, -1 };
    if (is_alltoall(kind) && !is_direct) return (promise){ R, digits, p * digits };
    if (is_rooted(kind)) return (promise){ 1, -1, p - 1 };
    return (promise){ is_ring ? p - 1 : is_direct ? 1 : R, p - 1, p * (p - 1) };
}

static void expect_promises(world *w)
{
    const promise t = promised(w);

    if (w->size == 1) {
        if (w->sent_total || w->rounds > 1) fault(w, "alone: %d rounds, %ld blocks", w->rounds, w->sent_total);
        return;
    }
    if (w->rounds != t.rounds) fault(w, "%d rounds, not %ld", w->rounds, t.rounds);
    if (t.each >= 0 && (w->sent_most != t.each || w->sent_least != t.each))
        fault(w, "a rank sends %ld to %ld blocks, not %ld", w->sent_least, w->sent_most, t.each);
    if (t.total >= 0 && w->sent_total != t.total) fault(w, "%ld blocks are sent, not %ld", w->sent_total, t.total);
    if (w->sent_most > 2L * w->size * w->blocks) fault(w, "%ld blocks sent by one rank", w->sent_most);
}

#endif /* WORLD_H */
