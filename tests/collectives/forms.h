/* forms.h - what each algorithm sends, as formulas: messages and bytes of every rank.
 *
 * A message carries blocks of the vector; one span of several blocks is one message up to 64 KiB, and one for each block
 * beyond; each has a head of 32 bytes; a vector in several slices is sent slice by slice.  In what follows p is the number of
 * ranks, r the radix, v the rank.  Used after coll.h. */
#ifndef FORMS_H
#define FORMS_H

typedef struct sums { uint64_t messages, bytes; } sums;

/* A call, as far as its messages are concerned. */
typedef struct form {
    coll_kind kind;
    const char *name;
    int    size, radix, root;
    int    circle;                                /* blocks of the vector                                     */
    long   slices;
    size_t unit, count;                           /* bytes of an element; elements of the whole vector, or of each block */
    bool   is_cut;                                /* the blocks are parts of one vector                       */
    const size_t *counts;                         /* of the blocks; NULL: as above                            */
    const size_t *pairs;                          /* elements for every rank, from this one                   */
    size_t room;                                  /* of a packet (core/algorithms/coll_tuner.h); 0: there are none */
    bool   is_whole;                              /* no span is sent block by block                           */
} form;

static int form_mod(int value, int size) { return ((value % size) + size) % size; }

static size_t form_part(size_t total, size_t parts, size_t i) { return total / parts + (i < total % parts); }

static size_t form_block(const form *f, int block)
{
    if (f->counts) return f->counts[block];
    return f->is_cut ? form_part(f->count, (size_t)f->circle, (size_t)block) : f->count;
}

/* A span of blocks `first`, first + step, ... round the circle. */
static void form_add(const form *f, sums *s, int first, int blocks, int step)
{
    for (long slice = 0; slice < f->slices && blocks > 0; slice++) {
        const bool are_equal = !f->counts && (!f->is_cut || f->count == 0);
        size_t elements = are_equal ? (size_t)blocks * form_part(form_block(f, 0), (size_t)f->slices, (size_t)slice) : 0;
        for (int i = 0; !are_equal && i < blocks; i++)
            elements += form_part(form_block(f, form_mod(first + i * step, f->circle)), (size_t)f->slices, (size_t)slice);
        const bool is_one = f->is_whole || (blocks > 1 && elements * f->unit <= 64 << 10);
        const uint64_t messages = is_one ? 1 : (uint64_t)blocks;
        s->messages += messages;
        s->bytes += messages * 32 + elements * f->unit;
    }
}

static bool form_is(const form *f, const char *name) { return !strcmp(f->name, name); }

typedef enum form_load { FORM_SUMS, FORM_BLOCKS, FORM_VECTORS } form_load;

/* Over the distances p, ceil(p / r), ..., 1: for each multiple of the nearer one below the farther, sums of the blocks that are
 * at home there, or the blocks of the ranks that begin here, p - 1 in all, or the vectors of as many. */
static void form_circulant(const form *f, sums *s, int v, form_load load)
{
    for (int far = f->size, near; far > 1; far = near) {
        near = (far + f->radix - 1) / f->radix;
        for (int low = near; low < far; low += near) {
            const int ranks = far - low < near ? far - low : near;
            if (load == FORM_VECTORS) form_add(f, s, 0, ranks * f->circle, 1);
            else form_add(f, s, load == FORM_SUMS ? v + low : v, ranks, 1);
        }
    }
}

/* For each digit of the distance that is not 0, all blocks that have it there. */
static void form_digits(const form *f, sums *s)
{
    for (long unit = 1; unit < f->size; unit *= f->radix)
        for (long j = 1; j < f->radix && j * unit < f->size; j++) {
            int blocks = 0;
            for (long d = 1; d < f->size; d++) blocks += d / unit % f->radix == j;
            form_add(f, s, 0, blocks, 1);
        }
}

/* One message for every other block. */
static void form_others(const form *f, sums *s, int v)
{
    for (int i = 1; i < f->size; i++) form_add(f, s, v + i, 1, 1);
}

/* The unit of a rank's subtree: the largest power of r that divides its distance from the root. */
static long form_unit(const form *f, int v)
{
    const int below = form_mod(v - f->root, f->size);
    long unit = 1;

    while (unit < f->size && below % (unit * f->radix) == 0) unit *= f->radix;
    return unit;
}

static int form_subtree(const form *f, int v)
{
    const long unit = form_unit(f, v), left = f->size - form_mod(v - f->root, f->size);
    return (int)(unit < left ? unit : left);
}

/* One message to each child: all blocks of the vector, or those of its subtree. */
static void form_children(const form *f, sums *s, int v, bool is_whole)
{
    const int below = form_mod(v - f->root, f->size);

    for (long unit = form_unit(f, v) / f->radix; unit > 0; unit /= f->radix)
        for (long j = 1; j < f->radix && below + j * unit < f->size; j++) {
            const int child = form_mod(v + (int)(j * unit), f->size);
            form_add(f, s, is_whole ? 0 : child, is_whole ? f->circle : form_subtree(f, child), 1);
        }
}

/* How many children `number` has in the tree of first .. last, whose top has a power of 2 of them, the largest, up to itself. */
static int form_count(int first, int last, int number)
{
    int full = 1;

    while (2 * full <= last - first + 1) full *= 2;
    const int top = first + full - 1;
    if (number != top) return number < top ? form_count(first, top - 1, number) : form_count(top + 1, last, number);
    return (top > first) + (top < last);
}

/* Of two trees, over the numbers 1 .. p - 1 and 1 .. p less number 1: a half to each child, or one up to the parent. */
static void form_two_trees(const form *f, sums *s, int v, bool is_up)
{
    const int below = form_mod(v - f->root, f->size);

    for (int tree = 0; tree < 2; tree++) {
        const int number = below + tree, all = below ? form_count(1, f->size - 1 + tree, number) : 1;
        const int children = all - (tree == 1 && number == 2 && below);
        for (int i = 0; i < (is_up ? below > 0 : children); i++) form_add(f, s, tree, 1, 1);
    }
}

/* In round k the sum of the p - 1 >> (q - k) ranks before goes on over the distance that makes it the p - 1 >> (q - k - 1):
 * all ranks send each time round a circle; in a scan those that have data to send, and a rank to send it to. */
static void form_census(const form *f, sums *s, int v)
{
    int q = 0;

    while (1L << q < f->size) q++;
    for (int k = 0; k < q; k++) {
        const int known = (f->size - 1) >> (q - k), hop = ((f->size - 1) >> (q - k - 1)) - known;
        const bool has_some = (known < v ? known : v) + hop - known > 0;
        if (f->kind == COLL_ALLREDUCE || (v + hop < f->size && has_some)) form_add(f, s, 0, 1, 1);
    }
}

/* Blocks that are too long for a packet. */
static void form_pairs(const form *f, sums *s, int v)
{
    for (int i = 0; i < f->size; i++) {
        if (i == v || (f->room && f->pairs[i] * f->unit <= f->room)) continue;
        s->messages++;
        s->bytes += 32 + f->pairs[i] * f->unit;
    }
}

static sums form_sent(const form *f, int v);

/* A packet for each block, as by the same algorithm for blocks of that length; and long blocks, straight. */
static sums form_packets(const form *f, int v)
{
    form packets = { .kind = f->kind == COLL_GATHERV ? COLL_GATHER : f->kind == COLL_SCATTERV ? COLL_SCATTER : COLL_ALLTOALL,
                     .name = f->name, .size = f->size, .radix = f->radix, .root = f->root, .circle = f->size, .slices = 1,
                     .unit = 1, .count = 16 + f->room, .is_whole = true };
    sums s = form_sent(&packets, v);

    if (f->pairs) form_pairs(f, &s, v);
    for (int i = 0; !f->pairs && i < f->size; i++) {
        const int block = f->kind == COLL_GATHERV ? v : i;
        const bool is_sent = f->kind == COLL_GATHERV ? i == f->root && v != i : v == f->root && i != v;
        if (!is_sent || f->counts[block] * f->unit <= f->room) continue;
        s.messages++;
        s.bytes += 32 + f->counts[block] * f->unit;
    }
    return s;
}

/* Round the ring: all blocks but the next one, and in an allreduce again all but another. */
static void form_ring(const form *f, sums *s, int v, bool is_reduction)
{
    for (int k = 0; k < f->size - 1; k++) form_add(f, s, is_reduction ? v - k - 1 : v - k, 1, 1);
}

static void form_of_reduction(const form *f, sums *s, int v)
{
    const bool is_leaf = v != f->root;

    if (form_is(f, "dbtree")) {
        form_two_trees(f, s, v, true);
        if (f->kind == COLL_ALLREDUCE) form_two_trees(f, s, v, false);
    } else if (f->kind != COLL_REDUCE && form_is(f, "gather")) form_circulant(f, s, v, FORM_VECTORS);
    else if (f->kind != COLL_REDUCE && form_is(f, "tree")) {      /* as gather to the root, and back                */
        form_add(f, s, 0, is_leaf ? form_subtree(f, v) * f->circle : 0, 1);
        form_children(f, s, v, f->kind == COLL_ALLREDUCE);
    } else if (f->kind == COLL_REDUCE && form_is(f, "gather")) form_add(f, s, 0, is_leaf ? form_subtree(f, v) : 0, 0);
    else if (form_is(f, "tree")) form_add(f, s, 0, is_leaf, 1);
    else if (form_is(f, "blocks")) for (int b = 0; is_leaf && b < f->circle; b++) form_add(f, s, b, 1, 1);
    else if (form_is(f, "census")) form_census(f, s, v);
    else if (form_is(f, "chain")) form_add(f, s, 0, v < f->size - 1, 1);
    else if (form_is(f, "transposed")) {
        form_others(f, s, v);
        for (int i = f->kind == COLL_EXSCAN; i < f->size; i++) form_add(f, s, v, i != v, 1);
    } else if (form_is(f, "ring")) form_ring(f, s, v, true);
    else if (form_is(f, "circulant")) form_circulant(f, s, v, FORM_SUMS);
    else form_others(f, s, v);                    /* direct, shares                                           */
    if (f->kind == COLL_REDUCE && form_is(f, "direct")) form_add(f, s, v, is_leaf, 1);
    if (f->kind != COLL_ALLREDUCE) return;
    if (form_is(f, "ring")) form_ring(f, s, v, false);
    for (int i = 1; form_is(f, "shares") && i < f->size; i++) form_add(f, s, v, 1, 1);
    if (form_is(f, "circulant") || form_is(f, "direct")) form_circulant(f, s, v, FORM_BLOCKS);
}

/* What rank v sends.  Of a broadcast in blocks what it receives, since each rank but the root receives each block once, from
 * wherever the schedule says. */
static sums form_sent(const form *f, int v)
{
    const bool is_root = v == f->root;
    sums s = { 0, 0 };

    if (f->size == 1) return s;
    if (f->room) return form_packets(f, v);
    if (f->pairs) form_pairs(f, &s, v);
    else if (f->kind >= COLL_REDUCE && f->kind <= COLL_EXSCAN) form_of_reduction(f, &s, v);
    else if (f->kind == COLL_BROADCAST && form_is(f, "blocks"))
        for (int b = 0; !is_root && b < f->circle; b++) form_add(f, &s, b, 1, 1);
    else if (f->kind == COLL_BROADCAST && form_is(f, "dbtree")) form_two_trees(f, &s, v, false);
    else if (f->kind == COLL_BROADCAST && form_is(f, "tree")) form_children(f, &s, v, true);
    else if (f->kind == COLL_BROADCAST) form_children(f, &s, v, false), form_circulant(f, &s, v, FORM_BLOCKS);
    else if (f->kind == COLL_SCATTER && form_is(f, "tree")) form_children(f, &s, v, false);
    else if (f->kind == COLL_SCATTER || f->kind == COLL_SCATTERV) { if (is_root) form_others(f, &s, v); }
    else if (f->kind == COLL_GATHER && form_is(f, "tree")) form_add(f, &s, v, is_root ? 0 : form_subtree(f, v), 1);
    else if (f->kind == COLL_GATHER || f->kind == COLL_GATHERV) form_add(f, &s, v, !is_root, 1);
    else if (form_is(f, "tree")) {                /* barrier, allgather: up and down again                    */
        form_add(f, &s, v, is_root ? 0 : form_subtree(f, v), 1);
        form_children(f, &s, v, true);
    } else if (form_is(f, "ring")) form_ring(f, &s, v, false);
    else if (f->kind == COLL_ALLTOALL && form_is(f, "circulant")) form_digits(f, &s);
    else if (f->kind == COLL_ALLTOALL) form_others(f, &s, v);
    else form_circulant(f, &s, v, FORM_BLOCKS);   /* barrier, allgather                                       */
    return s;
}

#endif /* FORMS_H */
