/* coll_reduce_kernels.h - reductions.
 *
 * All reductions work the same way.  n sources are read into a wide accumulator that stays in the first-level cache, combined
 * there as a fixed tree, finished, rounded once, and written to m destinations.  The tree is the left-complete pairwise one
 * over the index of the source, ((0+1)+(2+3))+((4+5)+6).  So the bits of a result depend only on the inputs and their number,
 * never on count, alignment or blocks.  Sources may also be nodes of a larger tree, in its order: then each has a number. */
#ifndef COLL_REDUCE_KERNELS_H
#define COLL_REDUCE_KERNELS_H

#include "coll_codec.h"
#include "coll_stream_store.h"

/* The format of elements: as in memory, on the wire, or accumulators, which make a partial result.  A partial of `count`
 * elements is count * acc_size bytes and must be read with the same count: a codec may order the elements of a block
 * differently.  Blocks are whole groups if COLL__BLOCK is a multiple of one. */
typedef enum coll__format { COLL__AS_USER, COLL__AS_WIRE, COLL__AS_SUM } coll__format;

typedef struct coll__source {
    const void *at;
    coll__format format;
    int rank;                                     /* user format: the rank of the input                       */
} coll__source;

/* One reduction: n sources, m results, `count` elements of each.  `index`: the first element's index in its vector.  `scratch`:
 * coll__combine_scratch bytes, aligned to 64.  `streams`: the results exceed the caches and use streaming stores; the caller
 * ends with coll__streamed_end. */
typedef struct coll__sum {
    const coll__source *sources;
    void *const        *results;
    int          n, m;
    coll__format format;                          /* of the results                                           */
    size_t       count, index;
    void        *scratch;
    bool         streams;
#if COLL__HAS_LEAVES
    const int   *numbers;                         /* NULL: 0, 1, ...; else source i is the sum of the inputs k 2^j ... (k + 1)
                                                     2^j - 1 of a larger tree, for some j, and k is numbers[i] */
#endif
} coll__sum;

#if COLL__HAS_LEAVES
#define COLL__NUMBERS(of) , .numbers = of
static inline const int *coll__numbers_of(const coll__sum *sum) { return sum->numbers; }
#else
#define COLL__NUMBERS(of)
static inline const int *coll__numbers_of(const coll__sum *sum) { return (void)sum, NULL; }
#endif

/* Most accumulators in use in a tree of n: one for each level, and the newest leaf.  Of nodes: the same for INT_MAX. */
static int coll__combine_slots(int n)
{
    int slots = 1;

    for (int rest = n - 1; rest > 0; rest >>= 1) slots++;
    return slots;
}

/* Elements of a block: what COLL__BLOCK holds, at least one. */
static size_t coll__block_count(const coll__codec *codec)
{
    return codec->acc_size < COLL__BLOCK ? COLL__BLOCK / codec->acc_size : 1;
}

/* Bytes from one accumulator block to the next. */
static size_t coll__slot_size(const coll__codec *codec)
{
    return codec->acc_size <= COLL__BLOCK ? COLL__BLOCK : (codec->acc_size + 63) / 64 * 64;
}

/* Bytes of scratch, aligned to 64, that coll__combine needs for n sources: the slots, a block for streaming, and the rows of a
 * grid. */
COLL__UNUSED static size_t coll__combine_scratch(const coll__codec *codec, int n)
{
    const size_t rows = COLL__HAS_REPRODUCIBLE && codec->reproducible ? COLL__GRID_BYTES : 0;

    return (size_t)coll__combine_slots(n) * coll__slot_size(codec) + COLL__BLOCK + rows;
}

/* Bytes of `count` elements, for the wire format from the start of a group. */
static size_t coll__format_bytes(const coll__codec *codec, coll__format format, size_t count)
{
    if (!COLL__HAS_LOADS) return count * codec->type_size;
    if (format == COLL__AS_WIRE) return coll__wire_bytes(codec, count);
    return count * (format == COLL__AS_USER ? codec->type_size : codec->acc_size);
}

static const void *coll__source_at(const coll__codec *codec, const coll__source *source, size_t from)
{
    return (const unsigned char *)source->at + coll__format_bytes(codec, source->format, from);
}

/* Accumulators of a block of a source: in `slot`, or where the source has them.  `index`: of its first element. */
static const void *coll__load(const coll__codec *codec, const coll__source *source, void *slot, const void *leaf, size_t count,
                              size_t index)
{
    const coll__format format = source->format;
    coll__map *const load = format == COLL__AS_USER ? codec->load_user : codec->load_wire;

    if (!COLL__HAS_LOADS || format == COLL__AS_SUM) return leaf;
    if (COLL__HAS_CONVERSIONS && format == COLL__AS_USER && codec->is_through) {
        _Alignas(64) unsigned char wire[COLL__BLOCK];
        coll__pack(codec, codec->load_wire ? wire : slot, leaf, count, index, source->rank);
        if (codec->load_wire) codec->load_wire(slot, wire, count);
        return slot;
    }
    if (!load) return leaf;
    load(slot, leaf, count);
    return slot;
}

/* Combine two adjacent sources in one step, if the codec can: two elements, or one and a sum. */
static bool coll__pair_up(const coll__codec *codec, const coll__source *two, size_t from, size_t count, void *to)
{
    const bool is_sum[2] = { two[0].format == COLL__AS_SUM, two[1].format == COLL__AS_SUM };
    const void *const at[2] = { coll__source_at(codec, &two[0], from), coll__source_at(codec, &two[1], from) };

    if (!COLL__HAS_ANY(COLL__TYPES_16)) return false;
    if (!is_sum[0] && !is_sum[1] && codec->pair) {
        codec->pair(to, at[0], at[1], count);
        return true;
    }
    const int sum = is_sum[1], element = !sum;
    if (is_sum[0] == is_sum[1] || !codec->onto) return false;
    if (two[element].format == COLL__AS_USER && codec->load_user != codec->load_wire) return false;
    codec->onto(to, at[sum], at[element], count);
    return true;
}

/* One block of the tree.  As in a binary counter, source k completes as many subtrees as k has trailing ones, and the last
 * source completes all.  The root is written to root[0], and root[1] if given, else to the scratch; with one source it is the
 * source.  Returns its address. */
static const void *coll__combine_tree(const coll__codec *codec, const coll__sum *sum, size_t from, size_t count,
                                      void *const root[2])
{
    const coll__source *const sources = sum->sources;
    unsigned char *const scratch = (unsigned char *)sum->scratch;
    const int n = sum->n;
    const size_t slot_size = coll__slot_size(codec);
    const int *const numbers = coll__numbers_of(sum);
    const void *stack[8 * sizeof(int) + 1];
    int depth = 0;

    for (int i = 0; i < n; i++) {
        unsigned char *const slot = scratch + (size_t)depth * slot_size;
        void *const first = root[0] && n == 2 ? root[0] : slot;
        const void *leaf = first;
        int carry = numbers ? numbers[i] : i;

        if (!numbers && !(i & 1) && i + 1 < n && coll__pair_up(codec, &sources[i], from, count, first)) {
            carry = i++ >> 1;
        } else {
            leaf = coll__load(codec, &sources[i], slot, coll__source_at(codec, &sources[i], from), count, sum->index + from);
        }
        stack[depth++] = leaf;
        for (; depth > 1 && ((carry & 1) || i == n - 1); carry >>= 1) {
            depth--;
            const bool is_root = root[0] && i == n - 1 && depth == 1;
            void *const to = is_root ? root[0] : scratch + (size_t)(depth - 1) * slot_size;
            if (COLL__MAKES_MANY && is_root && root[1]) codec->twin(to, root[1], stack[0], stack[1], count);
            else codec->combine(to, stack[depth - 1], stack[depth], count);
            stack[depth - 1] = to;
        }
    }
    return stack[0];
}

/* The same tree with the user's operation.  It gets only copies, at distinct addresses that are multiples of 64.  Slots are
 * exchanged, because the result replaces `inout`.  (`in` has the lower ranks and is no longer needed.) */
static const void *coll__combine_user(const coll__codec *codec, const coll__sum *sum, size_t from, size_t count)
{
    const coll__source *const sources = sum->sources;
    unsigned char *const scratch = (unsigned char *)sum->scratch;
    const int n = sum->n;
    unsigned char *stack[8 * sizeof(int) + 1];
    const int slots = coll__combine_slots(n);
    int depth = 0;

    for (int k = 0; k < slots; k++) stack[k] = scratch + (size_t)k * coll__slot_size(codec);
    for (int i = 0; i < n; i++) {
        memcpy(stack[depth++], coll__source_at(codec, &sources[i], from), count * codec->type_size);
        for (int carry = i; depth > 1 && ((carry & 1) || i == n - 1); carry >>= 1) {
            unsigned char *const lower = stack[depth - 2], *const upper = stack[depth - 1];
            coll__callback_begin();
            codec->fn(lower, upper, count, codec->type, codec->fn_context);
            coll__callback_end();
            stack[depth - 2] = upper;
            stack[depth - 1] = lower;
            depth--;
        }
    }
    return stack[0];
}

/* The only rounding; `index` is the index of the first element. */
static void coll__round_block(const coll__codec *codec, coll__map *store, void *to, const void *sum, size_t count, size_t index)
{
    if (COLL__HAS_STOCHASTIC && codec->stochastic.round)
        codec->stochastic.round(to, sum, count, codec->seed, index, codec->stochastic.draw);
    else store(to, sum, count);
}

/* Compute a result from a sum, which may be in the first slot of the scratch, or a source. */
static void coll__finish_block(const coll__codec *codec, const void *sum, coll__format format, size_t count, size_t index,
                               unsigned char *scratch, void *result)
{
    coll__map *const store = format == COLL__AS_WIRE ? codec->store_wire : format == COLL__AS_USER ? codec->store : NULL;

    if (format != COLL__AS_SUM && codec->finish) {
        void *const to = codec->direct ? result : scratch;
        codec->finish(to, sum, count, codec->divisor, codec->factor);
        if (codec->direct) return;
        sum = to;
    }
    if (COLL__HAS_CONVERSIONS && format != COLL__AS_SUM && codec->clamp) {
        codec->clamp(scratch, sum, count, 1, codec->limit);
        sum = scratch;
    }
    if (COLL__HAS_CONVERSIONS && format == COLL__AS_USER && codec->is_through) {
        _Alignas(64) unsigned char wire[COLL__BLOCK];
        coll__round_block(codec, codec->store_wire, wire, sum, count, index);
        coll__unpack(codec, result, wire, count);
    } else if (store) {
        coll__round_block(codec, store, result, sum, count, index);
    } else if (result != sum) {
        memcpy(result, sum, coll__format_bytes(codec, format, count));
    }
}

/* Sources i and i + 1 of a block as terms of a grid: in place, or in rows 1 and 2; zeros if there is no second one. */
static void coll__grid_two(const coll__codec *codec, const coll__sum *sum, int i, size_t from, size_t count,
                           double rows[COLL__GRID_ROWS][COLL__GRID_REALS], const void *two[2])
{
    for (int k = 0; k < 2; k++) {
        const coll__source *const source = &sum->sources[i + k];
        two[k] = i + k < sum->n ? coll__load(codec, source, rows[1 + k], coll__source_at(codec, source, from), count,
                                             sum->index + from) : memset(rows[1 + k], 0, sizeof rows[1 + k]);
    }
}

/* One block of a reproducible sum (coll_reproducible.h).  Sources are read twice: first for the grid. */
static void coll__combine_reproducible(const coll__codec *codec, const coll__sum *sum, size_t from, size_t count, void *result)
{
    const size_t before = coll__combine_scratch(codec, sum->n) - COLL__GRID_BYTES;
    double (*const rows)[COLL__GRID_REALS] = (double (*)[COLL__GRID_REALS])(void *)((unsigned char *)sum->scratch + before);
    const coll__grid *const grid = codec->reproducible;
    const size_t reals = count * (coll__is_complex(codec->type) ? 2 : 1);
    const int headroom = sum->n > 1 ? coll__combine_slots(sum->n) - 1 : 1;        /* n <= 2^h; one term also stays below M / 2 */
    const double factor = 3.0 * (double)(1 << headroom);
    double *const peak = rows[0], *const high = rows[3], *const low = rows[4];       /* low: of doubles, else of high */
    const void *two[2], *measure = peak;

    memset(peak, 0, sizeof rows[0]);
    memset(high, 0, 2 * sizeof rows[3]);
    for (int i = 0; grid->peak && i < sum->n; i += 2) {
        coll__grid_two(codec, sum, i, from, count, rows, two);
        grid->peak(peak, two[0], two[1], reals);
    }
    const bool is_huge = grid->is_double && grid->is_beyond(peak, reals, COLL__GRID_HUGE_BITS);
    if (is_huge) grid->lower(rows[5], peak, peak, reals), measure = rows[5];
    for (int i = 0; i < sum->n; i += 2) {
        if (sum->n > 2 || !grid->peak) coll__grid_two(codec, sum, i, from, count, rows, two);
        for (int k = 0; k < 2 && is_huge; k++) grid->lower(rows[1 + k], two[k], peak, reals), two[k] = rows[1 + k];
        grid->add(high, low, two[0], two[1], measure, factor, reals);
    }
    if (grid->is_double) grid->join(high, low, reals);
    coll__finish_block(codec, high, sum->format, count, sum->index + from, (unsigned char *)sum->scratch, result);
    if (is_huge) grid->raise(result, peak, reals);
}

/* Can the last fold of the tree write the result directly? */
static inline bool coll__folds_to_result(const coll__codec *codec, coll__format format)
{
    return codec->combine && (format == COLL__AS_SUM || (codec->direct && !codec->finish));
}

/* Can two sources become the result in one pass over both? */
static inline bool coll__is_whole(const coll__codec *codec, const coll__sum *sum)
{
    if (sum->n != 2 || !codec->whole) return false;
    return codec->direct || (sum->format != COLL__AS_SUM && sum->sources[0].format != COLL__AS_SUM
                             && sum->sources[1].format != COLL__AS_SUM);
}

/* One block of the first result, and of the second one if `also` is given. */
static void coll__combine_block(const coll__codec *codec, const coll__sum *sum, size_t from, size_t count, void *result,
                                void *also)
{
    const coll__source *const sources = sum->sources;

    if (COLL__HAS_REPRODUCIBLE && codec->reproducible) {
        coll__combine_reproducible(codec, sum, from, count, result);
        return;
    }
    if (coll__is_whole(codec, sum)) {
        const void *const a = coll__source_at(codec, &sources[0], from), *const b = coll__source_at(codec, &sources[1], from);
        if (COLL__MAKES_MANY && also) codec->twin(result, also, a, b, count);
        else codec->whole(result, a, b, count);
        return;
    }
    const bool at_once = sum->n > 1 && coll__folds_to_result(codec, sum->format);
    void *const root[2] = { at_once ? result : NULL, at_once ? also : NULL };
    const void *const total = codec->fn ? coll__combine_user(codec, sum, from, count)
                            : coll__combine_tree(codec, sum, from, count, root);
    if (total != result || !at_once)
        coll__finish_block(codec, total, sum->format, count, sum->index + from, (unsigned char *)sum->scratch, result);
}

/* Can one pass write the first two results? */
static inline bool coll__makes_two(const coll__codec *codec, const coll__sum *sum)
{
    return COLL__MAKES_MANY && sum->m > 1 && codec->twin
        && (coll__is_whole(codec, sum) || (sum->n > 1 && codec->direct && coll__folds_to_result(codec, sum->format)));
}

/* Results that exceed the caches: each block is computed in the scratch and written to all of them with streaming stores.  Does
 * not wait for the stores: a scan has many short results. */
static void coll__combine_streaming(const coll__codec *codec, const coll__sum *sum)
{
    const size_t whole = COLL__BLOCK / coll__format_bytes(codec, sum->format, 1);
    const size_t block = coll__is_whole(codec, sum) ? whole : coll__block_count(codec);
    const int slots = coll__combine_slots(coll__numbers_of(sum) ? INT_MAX : sum->n);
    unsigned char *const made = (unsigned char *)sum->scratch + (size_t)slots * coll__slot_size(codec);

    for (size_t from = 0, length; from < sum->count; from += length) {
        length = coll__least(sum->count - from, block);
        coll__combine_block(codec, sum, from, length, made, NULL);
        for (int i = 0; i < sum->n && from + length < sum->count; i++) {      /* prefetch the next block      */
            const char *next = (const char *)coll__source_at(codec, &sum->sources[i], from + length);
            for (int line = 0; line < 8; line++) __builtin_prefetch(next + 64 * line);
        }
        const size_t offset = coll__format_bytes(codec, sum->format, from);
        const size_t bytes = coll__format_bytes(codec, sum->format, length);
        for (int j = 0; j < sum->m; j++)
            coll__copy_streamed((unsigned char *)sum->results[j] + offset, made, bytes);
    }
}

/* coll__combine, block by block. */
static __attribute__((noinline)) void coll__combine_blocks(const coll__codec *codec, const coll__sum *sum)
{
    const int m = sum->m, two = coll__makes_two(codec, sum) ? 2 : 1;
    const bool is_lone = sum->n == 1 && codec->direct && !codec->finish && !codec->fn && !codec->reproducible;
    const size_t count = sum->count;
    const size_t block = m <= two && (is_lone || coll__is_whole(codec, sum)) ? count : coll__block_count(codec);

    for (size_t from = 0, length; m > 0 && from < count; from += length) {
        const size_t offset = coll__format_bytes(codec, sum->format, from);
        unsigned char *const first = (unsigned char *)sum->results[0] + offset;

        length = coll__least(count - from, block);
        coll__combine_block(codec, sum, from, length, first, two > 1 ? (unsigned char *)sum->results[1] + offset : NULL);
        for (int j = two; j < m; j++) {
            unsigned char *const other = (unsigned char *)sum->results[j] + offset;
            if (other != first) memcpy(other, first, coll__format_bytes(codec, sum->format, length));
        }
    }
}

/* results[j][i] = round(finish(source 0 [i] op source 1 [i] op ...)) for each j < m and i < count, in the given format:
 * finished, for memory or wire; or plain accumulators, as a source for later.  A result may be equal to a source of the same
 * format: a block is stored after that block of all sources has been read.  n >= 1; m may be 0.  With one source that is a sum
 * and another format for the result, the sum is finished. */
COLL__UNUSED static inline void coll__combine(const coll__codec *codec, const coll__sum *sum)
{
    COLL__ASSERT(sum->n >= 1 && sum->m >= 0, "%d sources for %d results", (int)sum->n, (int)sum->m);
    if (!sum->streams && sum->m == 1 && coll__is_whole(codec, sum)) {
        codec->whole(sum->results[0], sum->sources[0].at, sum->sources[1].at, sum->count);
        return;
    }
    /* A copy, so that the caller's struct need not be in memory if this is inlined.  Field by field: copies in pieces of 16
     * bytes would wait for recent stores of 8 bytes. */
    const coll__sum in_memory = { .sources = sum->sources, .n = sum->n, .results = sum->results, .m = sum->m,
                                  .format = sum->format, .count = sum->count, .index = sum->index, .scratch = sum->scratch,
                                  .streams = sum->streams COLL__NUMBERS(sum->numbers) };
    const bool streams = COLL__MAKES_MANY && sum->streams && sum->m > 0 && codec->acc_size <= COLL__BLOCK;
    if (streams) coll__combine_streaming(codec, &in_memory);
    else coll__combine_blocks(codec, &in_memory);
}

COLL__FOR_SIZE

COLL_API coll_status coll_reduce_local(void *inout, const void *in, size_t count, coll_type type, coll_op op)
{
    const coll__source sources[2] = { { in, COLL__AS_USER, 0 }, { inout, COLL__AS_USER, 1 } };
    const coll_call call = { .type = type, .op = op };
    void *const results[1] = { inout };
    _Alignas(64) unsigned char scratch[3 * COLL__BLOCK];
    coll__codec codec;

    if (!coll_type_size(type) || !coll__is_op(op)) return COLL_ERR_ARGUMENT;
    if (op == COLL_AVG || op == COLL_USER || !coll__codec_reduce(&codec, &call, 1, NULL, 0)) return COLL_ERR_UNSUPPORTED;
    const size_t size = coll_type_size(type);
    if (count && (!in || !inout)) return COLL_ERR_ARGUMENT;
    if (count > SIZE_MAX / size || (in != inout && coll__arrays_overlap(in, size, inout, size, count))) return COLL_ERR_ARGUMENT;
    COLL__ASSERT(coll__combine_scratch(&codec, 2) <= sizeof scratch, "%zu bytes of scratch", coll__combine_scratch(&codec, 2));
    coll__combine(&codec, &(coll__sum){ .sources = sources, .n = 2, .results = results, .m = 1, .format = COLL__AS_USER,
                                        .count = count, .scratch = scratch });
    return COLL_OK;
}

COLL__FOR_SPEED

#endif /* COLL_REDUCE_KERNELS_H */
