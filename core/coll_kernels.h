/* coll_kernels.h: the arithmetic of the reductions.
 *
 * There is one way to reduce, whatever the type and whoever asks: n sources are read into a wide
 * accumulator that stays in the first-level cache, combined there as a fixed tree, divided for an
 * average, rounded once, and written to m destinations.  The tree is the left-complete pairwise
 * one over the index of the source, ((0+1)+(2+3))+((4+5)+6), so the bits of a result depend on the
 * inputs and their number only, never on count, alignment or blocks.
 *
 * Integers wrap in SUM and PROD.  A float MIN or MAX of a NaN is NaN, and -0 is below +0. */
#ifndef COLL_KERNELS_H
#define COLL_KERNELS_H

#if defined(__clang__)
#pragma clang diagnostic push
#pragma clang diagnostic ignored "-Wpass-failed"
#endif

/* ---- >>fold: two accumulators into one ---- */

/* to[i] = a[i] op b[i]; `to` may be exactly a or b, and may not otherwise overlap them. */
typedef void coll__fold_fn(void *to, const void *a, const void *b, size_t count);

#define COLL__FOLD_IN(tier, name, TO, FROM, VALUE)                                                \
    COLL__IN_##tier static void name##_##tier(void *to, const void *from_a, const void *from_b,   \
                                              size_t count)                                       \
    {                                                                                             \
        TO *out = to;                                                                             \
        const FROM *left = from_a, *right = from_b;                                               \
        COLL__FREE for (size_t i = 0; i < count; i++) {                                           \
            const FROM a = left[i], b = right[i];                                                 \
            out[i] = VALUE;                                                                       \
        }                                                                                         \
    }
#define COLL__FOLD(name, TO, FROM, VALUE) COLL__EACH_TIER(COLL__FOLD_IN, name, TO, FROM, VALUE)

/* Unsigned arithmetic wraps; the short types are widened first, because the product of two
 * uint16_t would be a signed int, which may not overflow. */
#define COLL__FOLD_WRAP(bits, wide)                                                               \
    COLL__FOLD(coll__sum_u##bits, coll__raw_u##bits, coll__raw_u##bits,                           \
               (uint##bits##_t)((wide)a + (wide)b))                                               \
    COLL__FOLD(coll__prod_u##bits, coll__raw_u##bits, coll__raw_u##bits,                          \
               (uint##bits##_t)((wide)a * (wide)b))
COLL__FOLD_WRAP(8, uint32_t)
COLL__FOLD_WRAP(16, uint32_t)
COLL__FOLD_WRAP(32, uint32_t)
COLL__FOLD_WRAP(64, uint64_t)

#define COLL__FOLD_ORDER(name)                                                                    \
    COLL__FOLD(coll__min_##name, coll__raw_##name, coll__raw_##name, a < b ? a : b)               \
    COLL__FOLD(coll__max_##name, coll__raw_##name, coll__raw_##name, a > b ? a : b)
COLL__FOLD_ORDER(i8)
COLL__FOLD_ORDER(i16)
COLL__FOLD_ORDER(i32)
COLL__FOLD_ORDER(i64)
COLL__FOLD_ORDER(u8)
COLL__FOLD_ORDER(u16)
COLL__FOLD_ORDER(u32)
COLL__FOLD_ORDER(u64)

/* Equal floats have equal bits, except the zeros, whose sign bits OR (for the smaller) and AND
 * (for the larger) make right. */
#define COLL__PICK_FLOAT(bits, less, tie)                                                         \
    coll__canon_or##bits(__builtin_isunordered(a, b),                                             \
                         (a less b) ? coll__bits##bits(a) : (b less a) ? coll__bits##bits(b)      \
                         : (coll__bits##bits(a) tie coll__bits##bits(b)))

COLL__INLINE float coll__canon_or32(int is_nan, uint32_t bits)
{
    return coll__float32(is_nan ? COLL__NAN_F32 : bits);
}

COLL__INLINE double coll__canon_or64(int is_nan, uint64_t bits)
{
    return coll__float64(is_nan ? COLL__NAN_F64 : bits);
}

#define COLL__FOLD_FLOAT(bits)                                                                    \
    COLL__FOLD(coll__sum_f##bits, coll__raw_f##bits, coll__raw_f##bits, coll__canon##bits(a + b)) \
    COLL__FOLD(coll__prod_f##bits, coll__raw_f##bits, coll__raw_f##bits,                          \
               coll__canon##bits(a * b))                                                          \
    COLL__FOLD(coll__min_f##bits, coll__raw_f##bits, coll__raw_f##bits,                           \
               COLL__PICK_FLOAT(bits, <, |))                                                      \
    COLL__FOLD(coll__max_f##bits, coll__raw_f##bits, coll__raw_f##bits,                           \
               COLL__PICK_FLOAT(bits, >, &))
COLL__FOLD_FLOAT(32)
COLL__FOLD_FLOAT(64)

/* Every fold that acts on the user's own type, by type and op. */
#define COLL__FOLD_ROW(tier, type, wrap, name)                                                    \
    [type] = { [COLL_SUM] = coll__sum_##wrap##_##tier, [COLL_PROD] = coll__prod_##wrap##_##tier,  \
               [COLL_MIN] = coll__min_##name##_##tier, [COLL_MAX] = coll__max_##name##_##tier },
#define COLL__FOLD_ROWS(tier)                                                                     \
    COLL__FOLD_ROW(tier, COLL_I8, u8, i8)     COLL__FOLD_ROW(tier, COLL_U8, u8, u8)               \
    COLL__FOLD_ROW(tier, COLL_I16, u16, i16)  COLL__FOLD_ROW(tier, COLL_U16, u16, u16)            \
    COLL__FOLD_ROW(tier, COLL_I32, u32, i32)  COLL__FOLD_ROW(tier, COLL_U32, u32, u32)            \
    COLL__FOLD_ROW(tier, COLL_I64, u64, i64)  COLL__FOLD_ROW(tier, COLL_U64, u64, u64)            \
    COLL__FOLD_ROW(tier, COLL_F32, f32, f32)  COLL__FOLD_ROW(tier, COLL_F64, f64, f64)

static coll__fold_fn *const coll__folds[COLL__TIERS][COLL_F64 + 1][COLL_MAX + 1] = {
    COLL__PER_TIER(COLL__FOLD_ROWS)
};

/* ---- >>sums: elements to accumulators and back, where these are not the same ---- */

COLL__MAP_IN(base, coll__load_f16, coll__raw_f32, coll__raw_u16, coll__wide_f16(x))
COLL__MAP(coll__load_bf16, coll__raw_f32, coll__raw_u16, coll__wide_bf16(x))

/* What another rank sees of an f32 that crosses the wire in 16 bits. */
COLL__MAP_IN(base, coll__through_f16, coll__raw_f32, coll__raw_f32,
             coll__wide_f16(coll__narrow_f16(x)))
COLL__MAP(coll__through_bf16, coll__raw_f32, coll__raw_f32, coll__wide_bf16(coll__narrow_bf16(x)))

/* The first level of a sum of 16-bit floats, and the whole of a sum of two: without the passes
 * through the scratch in between, and with the same bits. */
#define COLL__SUM_F16 coll__wide_f16(a) + coll__wide_f16(b)
COLL__FOLD_IN(base, coll__pair_f16, coll__raw_f32, coll__raw_u16, COLL__SUM_F16)
COLL__FOLD_IN(base, coll__whole_f16, coll__raw_u16, coll__raw_u16,
              (uint16_t)coll__narrow_f16(COLL__SUM_F16))

/* Two bf16 that lie together are worked on where they lie, within their 32 bits: the lower moves
 * up, the upper needs only a mask, and no lane of a vector changes place.  Which of the two comes
 * first in memory does not matter. */
#define COLL__LOWER_BF16(w) coll__float32((w) << 16)
#define COLL__UPPER_BF16(w) coll__float32((w) & 0xffff0000u)

COLL__INLINE uint32_t coll__join_bf16(float lower, float upper)
{
    return coll__narrow_bf16(upper) << 16 | coll__narrow_bf16(lower);
}

/* The accumulators of a block of bf16 are in an order of their own, first those of all lower
 * halves and then those of all upper ones.  An odd last element counts as a lower half. */
#define COLL__BF16_IN(tier, name)                                                                 \
    COLL__IN_##tier static void name##_load_##tier(void *to, const void *from, size_t count)      \
    {                                                                                             \
        const coll__raw_u32 *in = from;                                                           \
        coll__raw_f32 *lower = to, *upper = lower + (count - count / 2);                          \
        COLL__FREE for (size_t i = 0; i < count / 2; i++) {                                       \
            lower[i] = COLL__LOWER_BF16(in[i]);                                                   \
            upper[i] = COLL__UPPER_BF16(in[i]);                                                   \
        }                                                                                         \
        if (count % 2) {                                                                          \
            lower[count / 2] = coll__wide_bf16(((const coll__raw_u16 *)from)[count - 1]);         \
        }                                                                                         \
    }                                                                                             \
    COLL__IN_##tier static void name##_pair_##tier(void *to, const void *a, const void *b,        \
                                                   size_t count)                                  \
    {                                                                                             \
        const coll__raw_u32 *left = a, *right = b;                                                \
        coll__raw_f32 *lower = to, *upper = lower + (count - count / 2);                          \
        COLL__FREE for (size_t i = 0; i < count / 2; i++) {                                       \
            lower[i] = COLL__LOWER_BF16(left[i]) + COLL__LOWER_BF16(right[i]);                    \
            upper[i] = COLL__UPPER_BF16(left[i]) + COLL__UPPER_BF16(right[i]);                    \
        }                                                                                         \
        if (count % 2) {                                                                          \
            lower[count / 2] = coll__wide_bf16(((const coll__raw_u16 *)a)[count - 1]) +           \
                               coll__wide_bf16(((const coll__raw_u16 *)b)[count - 1]);            \
        }                                                                                         \
    }                                                                                             \
    COLL__IN_##tier static void name##_whole_##tier(void *to, const void *a, const void *b,       \
                                                    size_t count)                                 \
    {                                                                                             \
        const coll__raw_u32 *left = a, *right = b;                                                \
        coll__raw_u32 *out = to;                                                                  \
        COLL__FREE for (size_t i = 0; i < count / 2; i++) {                                       \
            out[i] = coll__join_bf16(COLL__LOWER_BF16(left[i]) + COLL__LOWER_BF16(right[i]),      \
                                     COLL__UPPER_BF16(left[i]) + COLL__UPPER_BF16(right[i]));     \
        }                                                                                         \
        if (count % 2) {                                                                          \
            ((coll__raw_u16 *)to)[count - 1] = (uint16_t)coll__narrow_bf16(                       \
                coll__wide_bf16(((const coll__raw_u16 *)a)[count - 1]) +                          \
                coll__wide_bf16(((const coll__raw_u16 *)b)[count - 1]));                          \
        }                                                                                         \
    }                                                                                             \
    COLL__IN_##tier static void name##_store_##tier(void *to, const void *from, size_t count)     \
    {                                                                                             \
        const coll__raw_f32 *lower = from, *upper = lower + (count - count / 2);                  \
        coll__raw_u32 *out = to;                                                                  \
        COLL__FREE for (size_t i = 0; i < count / 2; i++) {                                       \
            out[i] = coll__join_bf16(lower[i], upper[i]);                                         \
        }                                                                                         \
        if (count % 2) {                                                                          \
            ((coll__raw_u16 *)to)[count - 1] = (uint16_t)coll__narrow_bf16(lower[count / 2]);     \
        }                                                                                         \
    }
COLL__EACH_TIER(COLL__BF16_IN, coll__bf16)

#if defined(__x86_64__)
COLL__MAP_F16C(coll__load_f16, coll__raw_f32, coll__raw_u16, coll__eight,
               coll__eight_wide(in + i), coll__wide_f16(x))

COLL__INLINE_F16C coll__eight coll__eight_through(coll__eight x)
{
    return __builtin_ia32_vcvtph2ps256(coll__eight_narrow(x));
}

COLL__MAP_F16C(coll__through_f16, coll__raw_f32, coll__raw_f32, coll__eight,
               coll__eight_through(coll__eight_load(in + i)),
               coll__wide_f16(coll__narrow_f16(x)))

#define COLL__FOLD_F16C(name, TO, EIGHT_TYPE, EIGHT, VALUE)                                       \
    COLL__IN_avx2 static void name##_avx2(void *to, const void *from_a, const void *from_b,       \
                                          size_t count)                                           \
    {                                                                                             \
        TO *out = to;                                                                             \
        const coll__raw_u16 *left = from_a, *right = from_b;                                      \
        size_t i = 0;                                                                             \
        for (; i + 8 <= count; i += 8) {                                                          \
            const coll__eight sum = coll__eight_wide(left + i) + coll__eight_wide(right + i);     \
            const EIGHT_TYPE eight = EIGHT;                                                       \
            memcpy(out + i, &eight, sizeof eight);                                                \
        }                                                                                         \
        for (; i < count; i++) {                                                                  \
            const coll__raw_u16 a = left[i], b = right[i];                                        \
            out[i] = VALUE;                                                                       \
        }                                                                                         \
    }
COLL__FOLD_F16C(coll__pair_f16, coll__raw_f32, coll__eight, sum, COLL__SUM_F16)
COLL__FOLD_F16C(coll__whole_f16, coll__raw_u16, coll__eight_half, coll__eight_narrow(sum),
                (uint16_t)coll__narrow_f16(COLL__SUM_F16))
#endif

/* Integer averages, whose sums need more bits.  Division is slow on every tier, so there is one. */
#define COLL__WIDEN(name, wide)                                                               \
    COLL__MAP_IN(base, coll__load_##name, coll__raw_##wide, coll__raw_##name, x)
COLL__WIDEN(i8, i64)
COLL__WIDEN(i16, i64)
COLL__WIDEN(i32, i64)
COLL__WIDEN(u8, i64)
COLL__WIDEN(u16, i64)
COLL__WIDEN(u32, i64)
COLL__MAP_IN(base, coll__store_8, coll__raw_u8, coll__raw_i64, (uint8_t)x)
COLL__MAP_IN(base, coll__store_16, coll__raw_u16, coll__raw_i64, (uint16_t)x)
COLL__MAP_IN(base, coll__store_32, coll__raw_u32, coll__raw_i64, (uint32_t)x)

/* Divide accumulators by the number of ranks; `to` may be `from`. */
typedef void coll__finish(void *to, const void *from, size_t count, double divisor);

#define COLL__FINISH_IN(tier, name, T, DIVISOR, VALUE)                                            \
    COLL__IN_##tier static void name##_##tier(void *to, const void *from, size_t count,           \
                                              double divisor)                                     \
    {                                                                                             \
        T *out = to;                                                                              \
        const T *in = from;                                                                       \
        const DIVISOR ranks = (DIVISOR)divisor;                                                   \
        COLL__FREE for (size_t i = 0; i < count; i++) {                                           \
            const T x = in[i];                                                                    \
            out[i] = VALUE;                                                                       \
        }                                                                                         \
    }
COLL__EACH_TIER(COLL__FINISH_IN, coll__divide_f32, coll__raw_f32, float, coll__canon32(x / ranks))
COLL__EACH_TIER(COLL__FINISH_IN, coll__divide_f64, coll__raw_f64, double, coll__canon64(x / ranks))
COLL__FINISH_IN(base, coll__divide_i64, coll__raw_i64, int64_t, x / ranks)

#ifdef __SIZEOF_INT128__
COLL__WIDEN(i64, i128)
COLL__WIDEN(u64, i128)
COLL__MAP_IN(base, coll__store_64, coll__raw_u64, coll__raw_i128, (uint64_t)x)
COLL__FOLD_IN(base, coll__sum_i128, coll__raw_i128, coll__raw_i128, a + b)
COLL__FINISH_IN(base, coll__divide_i128, coll__raw_i128, int64_t, x / ranks)
#endif

/* ---- >>codec: how the elements of a call are written in memory, on the wire, in the sum ---- */

/* A block is loaded, combined, finished and stored with one and the same count, because a codec may
 * keep the accumulators of a block in an order of its own. */
typedef struct coll__codec {
    size_t type_size, wire_size, acc_size;        /* bytes of an element: user's, wire's, sum's */
    bool same;                                    /* wire and user memory have the same bytes */
    bool direct;                                  /* so have user memory and the accumulators */
    coll__map *pack, *unpack;                     /* user to wire and back; NULL if same */
    coll__map *load_wire, *load_user;             /* to accumulators; NULL: they are accumulators */
    coll__fold_fn *combine;                          /* accumulator op accumulator */
    coll__fold_fn *pair;                             /* NULL, or both loads and the combine in one */
    coll__fold_fn *whole;                            /* NULL, or pair and store in one */
    coll__finish *finish;                         /* NULL unless COLL_AVG */
    coll__map *store;                             /* the one rounding; NULL: copy */
    double divisor;                               /* the number of ranks, for finish */
} coll__codec;

/* For calls that move elements and do not compute. */
COLL__UNUSED static bool coll__codec_move(coll__codec *codec, coll_type type)
{
    const size_t size = coll_type_size(type);

    *codec = (coll__codec){ .type_size = size, .wire_size = size, .acc_size = size, .same = true,
                            .direct = true, .divisor = 1 };
    return size != 0;
}

/* Integer averages: load, sum and divide in a wider type. */
static bool coll__codec_integer_average(coll__codec *codec, coll_type type, int tier)
{
    static coll__map *const loads[COLL_U64 + 1] = {
        [COLL_I8] = coll__load_i8_base, [COLL_I16] = coll__load_i16_base,
        [COLL_I32] = coll__load_i32_base, [COLL_U8] = coll__load_u8_base,
        [COLL_U16] = coll__load_u16_base, [COLL_U32] = coll__load_u32_base,
#ifdef __SIZEOF_INT128__
        [COLL_I64] = coll__load_i64_base, [COLL_U64] = coll__load_u64_base,
#endif
    };

    codec->direct = false;
    codec->load_wire = codec->load_user = loads[type];
    if (codec->type_size < 8) {
        codec->acc_size = sizeof(int64_t);
        codec->combine = coll__folds[tier][COLL_U64][COLL_SUM];
        codec->finish = coll__divide_i64_base;
        codec->store = codec->type_size == 1 ? coll__store_8_base
                     : codec->type_size == 2 ? coll__store_16_base : coll__store_32_base;
        return true;
    }
#ifdef __SIZEOF_INT128__
    codec->acc_size = sizeof(coll__int128);
    codec->combine = coll__sum_i128_base;
    codec->finish = coll__divide_i128_base;
    codec->store = coll__store_64_base;
    return true;
#else
    return false;
#endif
}

/* Sums of f16 or bf16 in f32; the user's elements are of that type, or f32 with that wire. */
static void coll__codec_half(coll__codec *codec, coll_type type, coll_type wire, coll_op op,
                             int tier)
{
    const bool f16 = wire == COLL_F16, sum = op == COLL_SUM || op == COLL_AVG;

    codec->direct = false;
    codec->acc_size = sizeof(float);
    codec->combine = coll__folds[tier][COLL_F32][op == COLL_AVG ? COLL_SUM : op];
    codec->load_wire = f16 ? COLL__PICK(coll__load_f16, tier) : COLL__PICK(coll__load_bf16, tier);
    if (type == COLL_F16) {
        codec->load_user = codec->load_wire;
        codec->store = coll__conversion(COLL_F16, COLL_F32, tier);
        if (sum) codec->pair = COLL__PICK(coll__pair_f16, tier);
        if (op == COLL_SUM) codec->whole = COLL__PICK(coll__whole_f16, tier);
        return;
    }
    if (type == COLL_BF16) {
        codec->load_user = codec->load_wire = COLL__PICK(coll__bf16_load, tier);
        codec->store = COLL__PICK(coll__bf16_store, tier);
        if (sum) codec->pair = COLL__PICK(coll__bf16_pair, tier);
        if (op == COLL_SUM) codec->whole = COLL__PICK(coll__bf16_whole, tier);
        return;
    }
    codec->same = false;
    codec->pack = coll__conversion(wire, type, tier);
    codec->unpack = coll__conversion(type, wire, tier);
    codec->load_user = f16 ? COLL__PICK(coll__through_f16, tier)
                           : COLL__PICK(coll__through_bf16, tier);
    codec->store = codec->load_user;
}

/* coll__codec_reduce with the kernels of one tier, so that tests can compare the tiers. */
static bool coll__codec_reduce_in(coll__codec *codec, coll_type type, coll_type wire, coll_op op,
                                  int ranks, int tier)
{
    const bool mixed = type == COLL_F32 && (wire == COLL_F16 || wire == COLL_BF16);

    if (!coll__codec_move(codec, type) || (wire != type && !mixed)) return false;
    if ((int)op < COLL_SUM || op > COLL_AVG || ranks < 1) return false;
    codec->wire_size = coll_type_size(wire);
    codec->divisor = ranks;
    if (op == COLL_AVG && type <= COLL_U64) return coll__codec_integer_average(codec, type, tier);

    if (wire == COLL_F16 || wire == COLL_BF16) {
        coll__codec_half(codec, type, wire, op, tier);
    } else {
        codec->combine = coll__folds[tier][type][op == COLL_AVG ? COLL_SUM : op];
        codec->store = coll__conversion(type, type, tier);          /* NULL for integers */
    }
    if (op == COLL_AVG) {
        codec->finish = type == COLL_F64 ? COLL__PICK(coll__divide_f64, tier)
                                         : COLL__PICK(coll__divide_f32, tier);
    }
    return true;
}

/* The codec of a reduction over `ranks` ranks; false if the library has no such cell.  The wire is
 * the type itself, or a 16-bit float under f32. */
COLL__UNUSED static bool coll__codec_reduce(coll__codec *codec, coll_type type, coll_type wire,
                                            coll_op op, int ranks)
{
    return coll__codec_reduce_in(codec, type, wire, op, ranks, coll__tier());
}

/* Write `count` elements as the wire has them.  The buffers do not overlap, or they are the same
 * one and the codec has the same bytes on both sides. */
COLL__UNUSED static void coll__pack(const coll__codec *codec, void *wire, const void *user,
                                    size_t count)
{
    if (codec->pack) codec->pack(wire, user, count);
    else if (count && wire != user) memcpy(wire, user, count * codec->type_size);
}

COLL__UNUSED static void coll__unpack(const coll__codec *codec, void *user, const void *wire,
                                      size_t count)
{
    if (codec->unpack) codec->unpack(user, wire, count);
    else if (count && wire != user) memcpy(user, wire, count * codec->type_size);
}

/* ---- >>combine: n sources, one tree, one rounding, m results ---- */

/* A contribution: arrived in the format of the wire, or in the user's own. */
typedef struct coll__source {
    const void *at;
    bool is_wire;
} coll__source;

enum { COLL__BLOCK = 4096 };                      /* bytes of accumulators in work at a time */

/* Accumulators alive at once, at most, in a tree of n: one for each level, and the newest leaf. */
static int coll__combine_slots(int n)
{
    int slots = 1;

    for (int rest = n - 1; rest > 0; rest >>= 1) slots++;
    return slots;
}

/* Bytes of scratch, aligned to 64, that coll__combine needs for n sources. */
COLL__UNUSED static size_t coll__combine_scratch(int n)
{
    return (size_t)coll__combine_slots(n) * COLL__BLOCK;
}

static const void *coll__source_at(const coll__codec *codec, const coll__source *source,
                                   size_t from)
{
    const size_t size = source->is_wire ? codec->wire_size : codec->type_size;
    return (const unsigned char *)source->at + from * size;
}

/* One block of the tree.  Like a binary counter: source i completes as many sub-trees as i ends in
 * ones, and the last source completes all.  The root goes to `root` if given, else to the scratch;
 * it is a source itself if that is all there is.  Returns where it is. */
static const void *coll__combine_tree(const coll__codec *codec, const coll__source *sources, int n,
                                      size_t from, size_t count, unsigned char *scratch, void *root)
{
    const void *stack[8 * sizeof(int) + 1];
    int depth = 0;

    for (int i = 0; i < n; i++) {
        unsigned char *const slot = scratch + (size_t)depth * COLL__BLOCK;
        const void *leaf = coll__source_at(codec, &sources[i], from);
        coll__map *const load = sources[i].is_wire ? codec->load_wire : codec->load_user;
        int carry = i;

        if (codec->pair && i + 1 < n) {
            codec->pair(slot, leaf, coll__source_at(codec, &sources[++i], from), count);
            carry = i >> 1;
            leaf = slot;
        } else if (load) {
            load(slot, leaf, count);
            leaf = slot;
        }
        stack[depth++] = leaf;
        for (; depth > 1 && ((carry & 1) || i == n - 1); carry >>= 1) {
            depth--;
            void *const to = root && i == n - 1 && depth == 1
                                 ? root : scratch + (size_t)(depth - 1) * COLL__BLOCK;
            codec->combine(to, stack[depth - 1], stack[depth], count);
            stack[depth - 1] = to;
        }
    }
    return stack[0];
}

/* One block of the first result. */
static void coll__combine_block(const coll__codec *codec, const coll__source *sources, int n,
                                size_t from, size_t count, unsigned char *scratch, void *result)
{
    const bool at_once = codec->direct && !codec->finish && n > 1;

    if (codec->whole && n == 2) {
        codec->whole(result, coll__source_at(codec, &sources[0], from),
                     coll__source_at(codec, &sources[1], from), count);
        return;
    }
    const void *sum = coll__combine_tree(codec, sources, n, from, count, scratch,
                                         at_once ? result : NULL);
    if (at_once) return;
    if (codec->finish) {
        void *const to = codec->direct ? result : scratch;
        codec->finish(to, sum, count, codec->divisor);
        if (codec->direct) return;
        sum = to;
    }
    if (codec->store) codec->store(result, sum, count);
    else if (result != sum) memcpy(result, sum, count * codec->type_size);
}

/* results[j][i] = round(finish(source 0 [i] op source 1 [i] op ...)) for each j < m and i < count,
 * in the user's type.  A result may be exactly the memory of a source: a block is stored only when
 * that block of all sources has been read.  n >= 1; m may be 0. */
COLL__UNUSED static void coll__combine(const coll__codec *codec, const coll__source *sources, int n,
                                       void *const *results, int m, size_t count, void *scratch)
{
    const bool copies = m > 1;
    const bool scratchless = n <= 2 && (codec->whole ? n == 2 : codec->direct && !codec->finish);
    const size_t block = !copies && scratchless ? count : COLL__BLOCK / codec->acc_size;

    for (size_t from = 0, length; m > 0 && from < count; from += length) {
        const size_t offset = from * codec->type_size;
        unsigned char *const first = (unsigned char *)results[0] + offset;

        length = count - from < block ? count - from : block;
        coll__combine_block(codec, sources, n, from, length, scratch, first);
        for (int j = 1; j < m; j++) {
            unsigned char *const other = (unsigned char *)results[j] + offset;
            if (other != first) memcpy(other, first, length * codec->type_size);
        }
    }
}

COLL_API coll_status coll_reduce_local(const void *in, void *inout, size_t count, coll_type type,
                                       coll_op op)
{
    _Alignas(64) unsigned char scratch[2 * COLL__BLOCK];
    const coll__source sources[2] = { { in, false }, { inout, false } };
    void *const results[1] = { inout };
    coll__codec codec;

    if (!coll__codec_reduce(&codec, type, type, op, 1)) return COLL_ERR_ARGUMENT;
    if (op == COLL_AVG) return COLL_ERR_UNSUPPORTED;
    if (count && (!in || !inout)) return COLL_ERR_ARGUMENT;
    coll__combine(&codec, sources, 2, results, 1, count, scratch);
    return COLL_OK;
}

#if defined(__clang__)
#pragma clang diagnostic pop
#endif

#endif /* COLL_KERNELS_H */
