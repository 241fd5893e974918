/* coll_kernels.h: the reductions.
 *
 * There is one way to reduce, whatever the type and whoever asks: n sources are read into a wide
 * accumulator that stays in the first-level cache, combined there as a fixed tree, finished, rounded
 * once, and written to m destinations.  The tree is the left-complete pairwise one over the index of
 * the source, ((0+1)+(2+3))+((4+5)+6), so the bits of a result depend on the inputs and their number
 * only, never on count, alignment or blocks. */
#ifndef COLL_KERNELS_H
#define COLL_KERNELS_H

/* How elements are written: the user's type, the wire's, or accumulators, which make a partial
 * result.  A partial of `count` elements is count * acc_size bytes, and is read with the count it was
 * written with: the blocks, in which a codec may have an order of its own, begin where they began. */
typedef enum coll__format { COLL__AS_USER, COLL__AS_WIRE, COLL__AS_SUM } coll__format;

typedef struct coll__source {
    const void *at;
    coll__format format;
} coll__source;

/* One reduction: n sources, m results, `count` elements of each.  `index` is the number of the first element in its vector.
 * `scratch`: coll__combine_scratch bytes, aligned to 64. */
typedef struct coll__sum {
    const coll__source *sources;
    void *const        *results;
    int          n, m;
    coll__format format;                          /* of the results                                           */
    size_t       count, index;
    void        *scratch;
} coll__sum;

/* Accumulators alive at once, at most, in a tree of n: one for each level, and the newest leaf. */
static int coll__combine_slots(int n)
{
    int slots = 1;

    for (int rest = n - 1; rest > 0; rest >>= 1) slots++;
    return slots;
}

/* Elements of a block: what COLL__BLOCK holds, but at least one, however large. */
static size_t coll__block_count(const coll__codec *codec)
{
    return codec->acc_size < COLL__BLOCK ? COLL__BLOCK / codec->acc_size : 1;
}

/* Bytes from one accumulator block to the next. */
static size_t coll__slot_size(const coll__codec *codec)
{
    return codec->acc_size <= COLL__BLOCK ? COLL__BLOCK : (codec->acc_size + 63) / 64 * 64;
}

/* Bytes of scratch, aligned to 64, that coll__combine needs for n sources. */
COLL__UNUSED static size_t coll__combine_scratch(const coll__codec *codec, int n)
{
    return (size_t)coll__combine_slots(n) * coll__slot_size(codec);
}

static size_t coll__format_size(const coll__codec *codec, coll__format format)
{
    return format == COLL__AS_USER ? codec->type_size : format == COLL__AS_WIRE ? codec->wire_size : codec->acc_size;
}

static const void *coll__source_at(const coll__codec *codec, const coll__source *source, size_t from)
{
    return (const unsigned char *)source->at + from * coll__format_size(codec, source->format);
}

/* Accumulators of a block of a source: in `slot`, or where the source has them. */
static const void *coll__load(const coll__codec *codec, coll__format format, void *slot, const void *leaf, size_t count)
{
    coll__map *const load = format == COLL__AS_USER ? codec->load_user : codec->load_wire;

    if (format == COLL__AS_SUM) return leaf;
    if (format == COLL__AS_USER && codec->is_through) {
        _Alignas(64) unsigned char wire[COLL__BLOCK];
        coll__pack(codec, wire, leaf, count, 0);
        codec->load_wire(slot, wire, count);
        return slot;
    }
    if (!load) return leaf;
    load(slot, leaf, count);
    return slot;
}

/* Accumulators of two neighbours at once, if the codec has a short way for them: of two elements, or of one and a sum. */
static bool coll__pair_up(const coll__codec *codec, const coll__source *two, size_t from, size_t count, void *to)
{
    const bool is_sum[2] = { two[0].format == COLL__AS_SUM, two[1].format == COLL__AS_SUM };
    const void *const at[2] = { coll__source_at(codec, &two[0], from), coll__source_at(codec, &two[1], from) };

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

/* One block of the tree.  Like a binary counter: source i completes as many sub-trees as i ends in
 * ones, and the last source completes all.  The root goes to `root` if given, else to the scratch;
 * it is a source itself if that is all there is.  Returns where it is. */
static const void *coll__combine_tree(const coll__codec *codec, const coll__source *sources, int n, size_t from, size_t count,
                                      unsigned char *scratch, void *root)
{
    const size_t slot_size = coll__slot_size(codec);
    const void *stack[8 * sizeof(int) + 1];
    int depth = 0;

    for (int i = 0; i < n; i++) {
        unsigned char *const slot = scratch + (size_t)depth * slot_size;
        void *const sum = root && n == 2 ? root : slot;
        const void *leaf = sum;
        int carry = i;

        if (!(i & 1) && i + 1 < n && coll__pair_up(codec, &sources[i], from, count, sum)) {
            carry = i++ >> 1;
        } else {
            leaf = coll__load(codec, sources[i].format, slot, coll__source_at(codec, &sources[i], from), count);
        }
        stack[depth++] = leaf;
        for (; depth > 1 && ((carry & 1) || i == n - 1); carry >>= 1) {
            depth--;
            void *const to = root && i == n - 1 && depth == 1 ? root : scratch + (size_t)(depth - 1) * slot_size;
            codec->combine(to, stack[depth - 1], stack[depth], count);
            stack[depth - 1] = to;
        }
    }
    return stack[0];
}

/* The same tree with the user's own operation.  It is given copies only, each at an address that is a
 * multiple of 64 and none twice: in place of `in` op `inout`, the slots change places.  (What `in`
 * holds is of the lower ranks, and is done with.) */
static const void *coll__combine_user(const coll__codec *codec, const coll__source *sources, int n, size_t from, size_t count,
                                      unsigned char *scratch)
{
    unsigned char *stack[8 * sizeof(int) + 1];
    const int slots = coll__combine_slots(n);
    int depth = 0;

    for (int k = 0; k < slots; k++) stack[k] = scratch + (size_t)k * coll__slot_size(codec);
    for (int i = 0; i < n; i++) {
        memcpy(stack[depth++], coll__source_at(codec, &sources[i], from), count * codec->type_size);
        for (int carry = i; depth > 1 && ((carry & 1) || i == n - 1); carry >>= 1) {
            unsigned char *const lower = stack[depth - 2], *const upper = stack[depth - 1];
            codec->fn(lower, upper, count, codec->type, codec->fn_context);
            stack[depth - 2] = upper;
            stack[depth - 1] = lower;
            depth--;
        }
    }
    return stack[0];
}

/* Make a result of a sum, which may be in the first slot of the scratch, or a source. */
static void coll__finish_block(const coll__codec *codec, const void *sum, coll__format format, size_t count,
                               unsigned char *scratch, void *result)
{
    coll__map *const store = format == COLL__AS_WIRE ? codec->store_wire : format == COLL__AS_USER ? codec->store : NULL;

    if (format != COLL__AS_SUM && codec->finish) {
        void *const to = codec->direct ? result : scratch;
        codec->finish(to, sum, count, codec->divisor, codec->factor);
        if (codec->direct) return;
        sum = to;
    }
    if (format != COLL__AS_SUM && codec->clamp) {
        codec->clamp(scratch, sum, count, 1, codec->limit);
        sum = scratch;
    }
    if (format == COLL__AS_USER && codec->is_through) {
        _Alignas(64) unsigned char wire[COLL__BLOCK];
        codec->store_wire(wire, sum, count);
        codec->unpack(result, wire, count);
    } else if (store) {
        store(result, sum, count);
    } else if (result != sum) {
        memcpy(result, sum, count * coll__format_size(codec, format));
    }
}

/* Can the last fold of the tree write the result itself? */
static bool coll__folds_to_result(const coll__codec *codec, coll__format format)
{
    return codec->combine && (format == COLL__AS_SUM || (codec->direct && !codec->finish));
}

/* Can two sources become the result in one pass over both? */
static bool coll__is_whole(const coll__codec *codec, const coll__source *sources, int n, coll__format format)
{
    return codec->whole && n == 2 && format != COLL__AS_SUM && sources[0].format != COLL__AS_SUM
        && sources[1].format != COLL__AS_SUM;
}

/* One block of the first result. */
static void coll__combine_block(const coll__codec *codec, const coll__source *sources, int n, coll__format format, size_t from,
                                size_t count, unsigned char *scratch, void *result)
{
    const bool at_once = n > 1 && coll__folds_to_result(codec, format);

    if (coll__is_whole(codec, sources, n, format)) {
        codec->whole(result, coll__source_at(codec, &sources[0], from), coll__source_at(codec, &sources[1], from), count);
        return;
    }
    const void *const sum = codec->fn ? coll__combine_user(codec, sources, n, from, count, scratch)
                          : coll__combine_tree(codec, sources, n, from, count, scratch, at_once ? result : NULL);
    if (sum != result || !at_once) coll__finish_block(codec, sum, format, count, scratch, result);
}

/* results[j][i] = round(finish(source 0 [i] op source 1 [i] op ...)) for each j < m and i < count, in
 * the given format: the user's or the wire's, finished; or accumulators as they are, to be a source
 * again.  A result may be exactly the memory of a source of the same format: a block is stored only
 * when that block of all sources has been read.  n >= 1; m may be 0.  One source that is a sum, and
 * a result that is not, finish it. */
COLL__UNUSED static void coll__combine(const coll__codec *codec, const coll__sum *sum)
{
    const coll__source *const sources = sum->sources;
    void *const *const results = sum->results, *const scratch = sum->scratch;
    const int n = sum->n, m = sum->m;
    const coll__format format = sum->format;
    const size_t unit = coll__format_size(codec, format), count = sum->count;
    const bool is_one_pass = n <= 2 && codec->direct && !codec->finish && !codec->fn;
    const bool scratchless = m <= 1 && (is_one_pass || coll__is_whole(codec, sources, n, format));
    const size_t block = scratchless ? count : coll__block_count(codec);

    for (size_t from = 0, length; m > 0 && from < count; from += length) {
        const size_t offset = from * unit;
        unsigned char *const first = (unsigned char *)results[0] + offset;

        length = count - from < block ? count - from : block;
        coll__combine_block(codec, sources, n, format, from, length, (unsigned char *)scratch, first);
        for (int j = 1; j < m; j++) {
            unsigned char *const other = (unsigned char *)results[j] + offset;
            if (other != first) memcpy(other, first, length * unit);
        }
    }
}

COLL_API coll_status coll_reduce_local(const void *in, void *inout, size_t count, coll_type type, coll_op op)
{
    _Alignas(64) unsigned char scratch[2 * COLL__BLOCK];
    const coll__source sources[2] = { { in, COLL__AS_USER }, { inout, COLL__AS_USER } };
    const coll_call call = { .type = type, .op = op };
    void *const results[1] = { inout };
    coll__codec codec;

    if (!coll_type_size(type) || (int)op < COLL_SUM || op > COLL_USER) return COLL_ERR_ARGUMENT;
    if (op == COLL_AVG || op == COLL_USER || !coll__codec_reduce(&codec, &call, 1, NULL, 0)) return COLL_ERR_UNSUPPORTED;
    if (count && (!in || !inout)) return COLL_ERR_ARGUMENT;
    coll__combine(&codec, &(coll__sum){ .sources = sources, .n = 2, .results = results, .m = 1, .format = COLL__AS_USER,
                                        .count = count, .scratch = scratch });
    return COLL_OK;
}

#endif /* COLL_KERNELS_H */
