/* coll_codec.h - formats of elements in memory, on the wire and in sums, and the steps from a sum to a result.
 *
 * A sum is divided for COLL_AVG, then multiplied by the call's scale, both in the accumulator type, then rounded once.  8- and
 * 16-bit floats are summed in f32.  If the call says so, they and f32 are summed in f64.  Integer averages are summed exactly
 * and truncated toward zero.
 *
 * With a narrower wire type, each input is rounded to it once; the result is rounded to it once and widened.  A microscaled
 * wire has groups of elements with a leading byte.  So only coll__wire_bytes counts bytes, and spans are cut between groups
 * only.
 *
 * COLL_SATURATE applies to numbers that are rounded to f8e4m3, f8e5m2 or f16, in a result or for the wire.  If one is infinite
 * or beyond the largest finite number, it becomes that number, with its sign.  NaN stays NaN.  Other types ignore it: sums of
 * bf16, f32, f64 or complex numbers overflow to infinity, and integers wrap. */
#ifndef COLL_CODEC_H
#define COLL_CODEC_H

#include "../base/coll_sizes.h"
#include "coll_stochastic.h"
#include "coll_reproducible.h"
#include "coll_sums16.h"
#include "coll_mx.h"

/* ---- >>widths: integers to wider accumulators and back ---- */

/* Integer averages need wider sums.  Division is slow in every tier, so there is one version. */
#define COLL__WIDEN(name, wide) COLL__MAP_IN(base, coll__load_##name, coll__raw_##wide, coll__raw_##name, x)
COLL__WIDEN(i8, i64)
COLL__WIDEN(i16, i64)
COLL__WIDEN(i32, i64)
COLL__WIDEN(u8, i64)
COLL__WIDEN(u16, i64)
COLL__WIDEN(u32, i64)
COLL__MAP_IN(base, coll__store_8, coll__raw_u8, coll__raw_i64, (uint8_t)x)
COLL__MAP_IN(base, coll__store_16, coll__raw_u16, coll__raw_i64, (uint16_t)x)
COLL__MAP_IN(base, coll__store_32, coll__raw_u32, coll__raw_i64, (uint32_t)x)

/* For a result of one source, which no fold has normalized. */
COLL__MAP_IN(base, coll__truth_u8, coll__raw_u8, coll__raw_u8, x != 0)
COLL__MAP_IN(base, coll__truth_u16, coll__raw_u16, coll__raw_u16, x != 0)
COLL__MAP_IN(base, coll__truth_u32, coll__raw_u32, coll__raw_u32, x != 0)
COLL__MAP_IN(base, coll__truth_u64, coll__raw_u64, coll__raw_u64, x != 0)

/* ---- >>finish: from a sum to a result ---- */

/* Divide by the number of ranks and multiply by a factor; or give the truth value; or clamp to the factor.  `to` may be
 * `from`. */
typedef void coll__finish(void *to, const void *from, size_t count, int divisor, double factor);

#define COLL__FINISH_IN(tier, name, T, NUMBER, VALUE)                                               \
    COLL__IN_##tier static void name##_##tier(void *to, const void *from, size_t count,             \
                                              int divisor, double factor)                           \
    {                                                                                               \
        T *out = to;                                                                                \
        const T *in = from;                                                                         \
        const NUMBER ranks = (NUMBER)divisor, limit = (NUMBER)factor;                               \
        const NUMBER scale = COLL__HAS_SCALE ? limit : (NUMBER)1;                                   \
        (void)ranks, (void)scale;                                                                   \
        COLL__EACH_IN_##tier(i, count, sizeof(T), 1,                                                 \
                             name##_base(out + whole, in + whole, count - whole, divisor, factor),  \
                             const T x = in[i]; out[i] = VALUE;);                                   \
    }
#define COLL__FINISH(name, T, NUMBER, VALUE) COLL__EACH_TIER(COLL__FINISH_IN, name, T, NUMBER, VALUE)

COLL__FINISH(coll__divide_f32, coll__raw_f32, float, coll__canon32(x / ranks * scale))
COLL__FINISH(coll__divide_f64, coll__raw_f64, double, coll__canon64(x / ranks * scale))
COLL__FINISH(coll__scale_f32, coll__raw_f32, float, coll__canon32(x * scale))
COLL__FINISH(coll__scale_f64, coll__raw_f64, double, coll__canon64(x * scale))
COLL__FINISH(coll__truth_f32, coll__raw_f32, float, (float)(x != 0) * scale)
COLL__FINISH(coll__truth_f64, coll__raw_f64, double, (double)(x != 0) * scale)
COLL__FINISH(coll__clamp_f32, coll__raw_f32, float, x > limit ? limit : x < -limit ? -limit : x)
COLL__FINISH(coll__clamp_f64, coll__raw_f64, double, x > limit ? limit : x < -limit ? -limit : x)

/* Sums of up to 2^16 integers of 32 bits or less. */
COLL__INLINE int64_t coll__quotient32(int64_t x, int32_t ranks)
{
    if (SIZE_MAX > UINT32_MAX) return x / ranks;
    const uint64_t quotient = coll__quotient48(x < 0 ? 0 - (uint64_t)x : (uint64_t)x, (uint32_t)ranks);
    return x < 0 ? -(int64_t)quotient : (int64_t)quotient;
}

COLL__FINISH_IN(base, coll__divide_i64, coll__raw_i64, int32_t, coll__quotient32(x, ranks))

COLL__INLINE coll__raw_i128 coll__sum_of_wide(coll__raw_i128 a, coll__raw_i128 b)
{
    const uint64_t low = a.low + b.low;
    return (coll__raw_i128){ low, a.high + b.high + (low < a.low) };
}

/* Only the lower word of the quotient counts.  `ranks` has 31 bits. */
COLL__INLINE coll__raw_i128 coll__quotient(coll__raw_i128 x, int64_t ranks)
{
    const uint64_t n = (uint64_t)ranks;
    const bool is_negative = x.high >> 63;
    const uint64_t low = is_negative ? 0 - x.low : x.low, high = is_negative ? 0 - x.high - (x.low != 0) : x.high;
    const uint64_t upper = high % n << 32 | low >> 32, lower = upper % n << 32 | (low & UINT32_MAX);
    const uint64_t quotient = high == 0 ? low / n : (upper / n) << 32 | lower / n;
    return (coll__raw_i128){ is_negative ? 0 - quotient : quotient, 0 };
}

COLL__MAP_IN(base, coll__load_i64, coll__raw_i128, coll__raw_i64, ((coll__raw_i128){ (uint64_t)x, x < 0 ? UINT64_MAX : 0 }))
COLL__MAP_IN(base, coll__load_u64, coll__raw_i128, coll__raw_u64, ((coll__raw_i128){ x, 0 }))
COLL__MAP_IN(base, coll__store_64, coll__raw_u64, coll__raw_i128, x.low)
COLL__FOLD_IN(base, coll__sum_i128, coll__raw_i128, coll__raw_i128, coll__sum_of_wide(a, b))
COLL__FINISH_IN(base, coll__divide_i128, coll__raw_i128, int32_t, coll__quotient(x, ranks))

/* A bf16 that was rounded from an f16: 2^16 means the largest f16, or one next to it. */
COLL__MAP_IN(base, coll__repack_bf16_to_f16, coll__raw_u16, coll__raw_u16,
             (uint16_t)((x & 0x7fffu) == 0x4780u ? 0x7bffu | (x & 0x8000u) : coll__narrow_f16(coll__wide_bf16(x))))

/* A complex number is two real numbers. */
#define COLL__COMPLEX_IN(tier, name, bits)                                                          \
    static void coll__divide_##name##_##tier(void *to, const void *from, size_t count, int divisor, double factor) \
    {                                                                                               \
        coll__divide_f##bits##_##tier(to, from, 2 * count, divisor, factor);                        \
    }                                                                                               \
    static void coll__canon_##name##_##tier(void *to, const void *from, size_t count)               \
    {                                                                                               \
        coll__f##bits##_to_f##bits##_##tier(to, from, 2 * count);                                   \
    }
COLL__EACH_TIER(COLL__COMPLEX_IN, c64, 32)
COLL__EACH_TIER(COLL__COMPLEX_IN, c128, 64)

#define COLL__NARROW_COMPLEX_IN(tier, ...)                                                          \
    static void coll__narrow_c64_##tier(void *to, const void *from, size_t count)                   \
    {                                                                                               \
        coll__f64_to_f32_##tier(to, from, 2 * count);                                               \
    }
COLL__EACH_TIER(COLL__NARROW_COMPLEX_IN, 0)

/* ---- >>codec: the functions for a call ---- */

#define COLL__TYPES_INTEGER                                                                         \
    (COLL__TYPES_INT8_16 | COLL__TYPED_i32 | COLL__TYPED_i64 | COLL__TYPED_u32 | COLL__TYPED_u64)

/* Do accumulators of another type exist?  Integer averages use them, and floats with conversions. */
#define COLL__HAS_LOADS (COLL__HAS_CONVERSIONS || COLL__HAS_ANY(COLL__TYPES_INTEGER))

/* A block is loaded, combined, finished and stored with the same count, because a codec may order the accumulators of a block
 * differently. */
typedef struct coll__codec {
    size_t type_size, wire_size, acc_size;        /* bytes of an element: in memory, on the wire, in the sum */
    size_t group_head;                            /* bytes before each group of elements on the wire */
    int group_bits;                               /* a group has 2^group_bits elements, the last one may have less */
    bool same;                                    /* memory and wire have the same bytes      */
    bool direct;                                  /* memory and accumulators have the same bytes */
    bool is_exact;                                /* any grouping of the sources gives the same bits */
    bool is_commutative;                          /* so does any order, except for rounding      */
    coll_type type;
    coll__map *pack, *unpack;                     /* memory to wire and back; NULL if same */
    coll__map *load_wire, *load_user;             /* to accumulators; NULL: already accumulators  */
    coll__fold_fn *combine;                       /* accumulator op accumulator; NULL: fn         */
    coll__fold_fn *pair;                          /* NULL, or both loads and combine in one step */
    coll__fold_fn *onto;                          /* NULL, or load_wire and combine in one step: a sum and an element */
    coll__fold_fn *whole;                         /* NULL, or two sources to the result in one pass */
    coll__twin_fn *twin;                          /* NULL, or the same to two results         */
    coll__finish *finish;                         /* NULL: the sum is the result */
    coll__finish *clamp;                          /* NULL unless COLL_SATURATE applies              */
    coll__map *store, *store_wire;                /* the one rounding; NULL: copy */
    bool is_through;                              /* no load_user and store: through the wire format  */
    coll__map *repack;                            /* NULL: pack; packs a result that the wire type represents exactly */
    coll__stochastic stochastic;                  /* COLL_STOCHASTIC: replaces store and store_wire        */
    uint64_t seed;                                /* for `stochastic` */
    struct {                                      /* pack in blocks of f32 or f64: to clamp, to round
                                                     stochastically, to make groups                           */
        size_t size;                              /* 0: not used */
        coll__map *widen, *narrow;                /* widen NULL: memory has this type  */
        coll__finish *clamp;                      /* or NULL */
        coll__stochastic stochastic;              /* none: narrow */
    } by;
    const coll__grid *reproducible;               /* COLL_REPRODUCIBLE: replaces combine        */
    coll__map *narrow;                            /* NULL; or unpack to f32, then this     */
    int divisor;                                  /* for finish, like the factor */
    double factor, limit;                         /* limit: for clamp */
    coll_reduce_fn *fn;                           /* COLL_USER */
    void *fn_context;
#if COLL__HAS_LEAVES
    const void *leaves;                           /* the tree whose nodes are added (coll_leaves.h); or NULL */
#endif
} coll__codec;

/* Bytes of `count` elements on the wire, from the start of a group. */
COLL__UNUSED static inline size_t coll__wire_bytes(const coll__codec *codec, size_t count)
{
    const size_t groups = (count + ((size_t)1 << codec->group_bits) - 1) >> codec->group_bits;
    return count * codec->wire_size + groups * codec->group_head;
}

/* Do wire and memory have the same bytes? */
COLL__UNUSED static inline bool coll__is_same(const coll__codec *codec) { return !COLL__HAS_CONVERSIONS || codec->same; }

/* For calls that only move elements. */
COLL__UNUSED static bool coll__codec_move(coll__codec *codec, coll_type type)
{
    const size_t size = coll_type_size(type);

    *codec = (coll__codec){ .type_size = size, .wire_size = size, .acc_size = size, .same = true, .direct = true,
                            .is_exact = true, .is_commutative = true, .type = type, .divisor = 1, .factor = 1 };
    return size != 0;
}

COLL__FOR_SIZE

/* Integer averages: load, sum and divide in a wider type. */
static void coll__codec_integer_average(coll__codec *codec, coll_type type, int tier)
{
    static coll__map *const loads[COLL_U64 + 1] = {
        [COLL_I8] = COLL__IF(COLL_I8, coll__load_i8_base),    [COLL_I16] = COLL__IF(COLL_I16, coll__load_i16_base),
        [COLL_I32] = COLL__IF(COLL_I32, coll__load_i32_base), [COLL_I64] = COLL__IF(COLL_I64, coll__load_i64_base),
        [COLL_U8] = COLL__IF(COLL_U8, coll__load_u8_base),    [COLL_U16] = COLL__IF(COLL_U16, coll__load_u16_base),
        [COLL_U32] = COLL__IF(COLL_U32, coll__load_u32_base), [COLL_U64] = COLL__IF(COLL_U64, coll__load_u64_base),
    };

    codec->direct = false;
    codec->load_wire = codec->load_user = loads[type];
    codec->acc_size = sizeof(int64_t);
    codec->combine = COLL__PICK(coll__sum_u64, tier);
    codec->finish = coll__divide_i64_base;
    if (codec->type_size == 4) codec->store = coll__store_32_base;
    else if (COLL__HAS_ANY(COLL__TYPES_INT8_16)) codec->store = codec->type_size == 1 ? coll__store_8_base : coll__store_16_base;
    if (COLL__HAS_ANY(COLL__TYPED_i64 | COLL__TYPED_u64) && codec->type_size == 8) {
        codec->acc_size = sizeof(coll__raw_i128);
        codec->combine = coll__sum_i128_base;
        codec->finish = coll__divide_i128_base;
        codec->store = coll__store_64_base;
    }
    codec->store_wire = codec->store;
}

/* Sums of f16 or bf16 in f32, with special instructions; in memory they have this type, or f32. */
static void coll__codec_half(coll__codec *codec, coll_type type, coll_type wire, coll_op op, int tier)
{
    const bool f16 = wire == COLL_F16, sum = op == COLL_SUM || op == COLL_AVG;

    codec->load_wire = f16 ? COLL__PICK_WIDE(coll__load_f16, tier) : COLL__PICK_WIDE(coll__load_bf16, tier);
    if (sum) codec->onto = f16 ? COLL__PICK_WIDE(coll__onto_f16, tier) : COLL__PICK_WIDE(coll__onto_bf16, tier);
    if (type == COLL_F32) {
        codec->load_user = codec->store = f16 ? COLL__PICK_WIDE(coll__through_f16, tier)
                                              : COLL__PICK_WIDE(coll__through_bf16, tier);
    } else if (type == COLL_F16) {
        codec->load_user = codec->load_wire;
        if (sum) codec->pair = COLL__PICK_WIDE(coll__pair_f16, tier);
        if (op == COLL_SUM) codec->whole = COLL__PICK_WIDE(coll__whole_f16, tier);
    } else {
        codec->load_user = codec->load_wire = COLL__PICK_WIDE(coll__bf16_load, tier);
        codec->store = codec->store_wire = COLL__PICK_WIDE(coll__bf16_store, tier);
        if (sum) codec->pair = COLL__PICK_WIDE(coll__bf16_pair, tier);
        if (sum) codec->onto = COLL__PICK_WIDE(coll__bf16_onto, tier);
        if (op == COLL_SUM) codec->whole = COLL__PICK_WIDE(coll__bf16_whole, tier);
    }
}

/* Does COLL_SATURATE apply to any type?  And the functions that clamp sums of f32 and f64. */
#define COLL__SATURATES COLL__HAS_ANY(COLL__TYPED_f16 | COLL__TYPES_FP8)
#define COLL__CLAMP_OF(sum, tier)                                                                   \
    (COLL__HAS(COLL_F64) && (sum) == COLL_F64 ? COLL__PICK(coll__clamp_f64, tier) : COLL__PICK(coll__clamp_f32, tier))

/* The largest finite number of a type that COLL_SATURATE applies to; else 0. */
static double coll__saturation(coll_type type)
{
    return type == COLL_F16 ? 65504 : type == COLL_F8E5M2 ? 57344 : type == COLL_F8E4M3 ? 448 : 0;
}

/* The limit of a sum on its way to the wire and to the type: both can represent it. */
static double coll__clamp_limit(coll_type type, coll_type wire)
{
    const double most = coll__saturation(wire), own = coll__saturation(type);

    if ((type == COLL_F16 && wire == COLL_BF16) || (type == COLL_BF16 && wire == COLL_F16)) return 65280;
    return most == 0 || (own > 0 && own < most) ? own : most;
}

/* Inputs that are clamped, or rounded stochastically, on their way to a wire of another type. */
static void coll__codec_pack_by(coll__codec *codec, const coll_call *call, coll_type wire, bool clamps, bool draws, int tier)
{
    const coll_type type = call->type, by = type == COLL_F64 ? COLL_F64 : COLL_F32;

    codec->load_user = codec->store = NULL;
    codec->by.size = coll_type_size(by);
    codec->by.widen = type == by ? NULL : coll__conversion(by, type, tier);
    codec->by.narrow = coll__conversion(wire, by, tier);
    if (clamps) codec->by.clamp = COLL__CLAMP_OF(by, tier);
    if (draws) codec->by.stochastic = coll__stochastic_row(wire, by, tier);
}

/* Floats in groups on the wire.  f64 and f32 are converted directly, 16-bit floats through f32. */
static void coll__codec_mx(coll__codec *codec, const coll_call *call, coll_type wire, coll_type sum, int tier)
{
    const coll_type type = call->type;

    codec->direct = codec->same = false;
    codec->acc_size = coll_type_size(sum);
    codec->wire_size = 1;
    codec->group_bits = COLL__MX_BITS;
    codec->group_head = 1;
    codec->load_wire = coll__mx_map(sum, wire, tier);
    codec->store_wire = coll__mx_map(wire, sum, tier);
    codec->pack = coll__mx_map(wire, type, tier);
    codec->unpack = coll__mx_map(type, wire, tier);
    if (!codec->pack) {
        codec->by.size = sizeof(float);
        codec->by.widen = coll__conversion(COLL_F32, type, tier);
        codec->by.narrow = coll__mx_map(wire, COLL_F32, tier);
        codec->unpack = coll__mx_map(COLL_F32, wire, tier);
        codec->narrow = type == COLL_F16 ? coll__mx_to_f16 : coll__conversion(type, COLL_F32, tier);
    }
    if (type == COLL_F32 && sum == COLL_F32) codec->load_user = codec->store = coll__mx_map(wire, wire, tier);
    codec->is_through = !codec->load_user;
    if ((call->flags & COLL_SATURATE) && coll__saturation(type) > 0) {
        codec->limit = coll__saturation(type);
        codec->by.clamp = COLL__PICK(coll__clamp_f32, tier);
        codec->clamp = COLL__CLAMP_OF(sum, tier);
    }
}

/* Floats with accumulators or a wire of another type. */
static void coll__codec_float(coll__codec *codec, const coll_call *call, coll_type wire, coll_type sum, int tier)
{
    const coll_type type = call->type;
    const bool clamps = COLL__SATURATES && (call->flags & COLL_SATURATE) && coll__clamp_limit(type, wire) > 0;
    const bool is_drawn = COLL__HAS_STOCHASTIC && (call->flags & COLL_STOCHASTIC);
    const bool draws = is_drawn && coll__is_float(wire) && coll_type_size(wire) <= 2;

    if (COLL__HAS_ANY(COLL__TYPES_MX) && coll__is_mx(wire)) {
        coll__codec_mx(codec, call, wire, sum, tier);
        return;
    }
    codec->direct = false;
    codec->acc_size = coll_type_size(sum);
    codec->load_wire = codec->load_user = coll__conversion(sum, wire, tier);
    codec->store = codec->store_wire = coll__conversion(wire, sum, tier);
    if (wire != type) {
        codec->same = false;
        codec->pack = coll__conversion(wire, type, tier);
        codec->unpack = coll__conversion(type, wire, tier);
        codec->load_user = codec->store = NULL;
        if (COLL__HAS(COLL_F16) && type == COLL_BF16 && wire == COLL_F16) codec->repack = coll__repack_bf16_to_f16_base;
    }
    if (COLL__HAS_ANY(COLL__TYPES_16) && !draws && sum == COLL_F32 && !(COLL__HAS_LEAVES && call->leaves)
        && (wire == COLL_F16 || wire == COLL_BF16) && (type == wire || type == COLL_F32))
        coll__codec_half(codec, type, wire, call->op, tier);
    if (draws) {
        codec->stochastic = coll__stochastic_row(wire, sum, tier);
        codec->seed = call->seed;
    }
    if (clamps) {
        codec->limit = coll__clamp_limit(type, wire);
        codec->clamp = COLL__CLAMP_OF(sum, tier);
        codec->whole = NULL;
    }
    if (wire != type && (clamps || draws)) coll__codec_pack_by(codec, call, wire, clamps, draws, tier);
    codec->is_through = wire != type && !codec->load_user;
}

/* For bool and integers of `bytes` bytes; NULL if the program has none of that length. */
static coll__map *coll__truth_of(size_t bytes)
{
    switch (bytes) {
    case 1:  return COLL__HAS_ANY(COLL__TYPED_i8 | COLL__TYPED_u8 | COLL__TYPED_bool) ? coll__truth_u8_base : NULL;
    case 2:  return COLL__HAS_ANY(COLL__TYPED_i16 | COLL__TYPED_u16) ? coll__truth_u16_base : NULL;
    case 4:  return COLL__HAS_ANY(COLL__TYPED_i32 | COLL__TYPED_u32) ? coll__truth_u32_base : NULL;
    default: return COLL__HAS_ANY(COLL__TYPED_i64 | COLL__TYPED_u64) ? coll__truth_u64_base : NULL;
    }
}

/* Elements that are their own accumulators; `store` is for a single source, because folds give results. */
static void coll__codec_direct(coll__codec *codec, coll_type type, coll_op op, int tier)
{
    switch (type) {
    case COLL_F32: case COLL_F64: codec->store = coll__conversion(type, type, tier);                          break;
    case COLL_C64:     codec->store = COLL__IF(COLL_C64, COLL__PICK(coll__canon_c64, tier));                  break;
    case COLL_C128:    codec->store = COLL__IF(COLL_C128, COLL__PICK(coll__canon_c128, tier));                break;
    case COLL_F32_I32: codec->store = COLL__IF(COLL_F32_I32, coll__store_f32_i32);                            break;
    case COLL_F64_I32: codec->store = COLL__IF(COLL_F64_I32, coll__store_f64_i32);                            break;
    case COLL_F64_I64: codec->store = COLL__IF(COLL_F64_I64, coll__store_f64_i64);                            break;
    case COLL_I32_I32: codec->store = COLL__IF(COLL_I32_I32, coll__store_i32_i32);                            break;
    case COLL_I64_I32: codec->store = COLL__IF(COLL_I64_I32, coll__store_i64_i32);                            break;
    case COLL_I64_I64: codec->store = COLL__IF(COLL_I64_I64, coll__store_i64_i64);                            break;
    default:
        if (type == COLL_BOOL || coll__is_logical(op)) codec->store = coll__truth_of(codec->type_size);
    }
    codec->store_wire = codec->store;
}

/* Division, scale and truth value, for sums of the given type. */
static void coll__codec_finish(coll__codec *codec, coll_type sum, coll_op op, int ranks, double scale, int tier)
{
    const bool divides = op == COLL_AVG, is_truth = coll__is_logical(op);

    codec->factor = scale;
    codec->divisor = divides ? ranks : 1;
    if (is_truth ? !coll__is_float(sum) : !divides && !(COLL__HAS_SCALE && coll__bits64(scale) != coll__bits64(1))) return;
    switch (sum) {
    case COLL_F32:
        codec->finish = !COLL__HAS(COLL_F32) ? NULL : is_truth ? COLL__PICK(coll__truth_f32, tier)
                      : divides ? COLL__PICK(coll__divide_f32, tier)
                      : COLL__HAS_SCALE ? COLL__PICK(coll__scale_f32, tier) : NULL;
        break;
    case COLL_F64:
        codec->finish = !COLL__HAS(COLL_F64) ? NULL : is_truth ? COLL__PICK(coll__truth_f64, tier)
                      : divides ? COLL__PICK(coll__divide_f64, tier)
                      : COLL__HAS_SCALE ? COLL__PICK(coll__scale_f64, tier) : NULL;
        break;
    case COLL_C64:  codec->finish = COLL__IF(COLL_C64, COLL__PICK(coll__divide_c64, tier));    break;
    case COLL_C128: codec->finish = COLL__IF(COLL_C128, COLL__PICK(coll__divide_c128, tier));  break;
    default: return;
    }
    codec->whole = NULL;
}

/* ---- >>refusals ---- */

/* Is this wire valid for this type?  Valid are the type itself; for a float, any float with as many bits or fewer; for f64,
 * f32, f16 and bf16, groups. */
static bool coll__wire_fits(coll_type type, coll_type wire)
{
    if (wire == type) return true;
    if (coll__is_mx(wire)) return coll__is_float(type) && coll_type_size(type) > 1;
    return coll__is_float(type) && coll__is_float(wire) && coll_type_size(wire) <= coll_type_size(type);
}

COLL__UNUSED static bool coll__kind_scans(coll_kind kind) { return kind == COLL_SCAN || kind == COLL_EXSCAN; }

/* Does the call ask for a reproducible sum where the order of terms matters?  A scan depends on the order of ranks. */
static bool coll__wants_reproducible(const coll_call *call)
{
    if (!(call->flags & COLL_REPRODUCIBLE) || coll__kind_scans(call->kind) || call->op == COLL_USER) return false;
    return coll__is_floating(call->type) && (call->op == COLL_SUM || call->op == COLL_AVG);
}

/* Products have no reproducible form, and user operations are unknown. */
static bool coll__reproduction_fits(const coll_call *call, coll_type sum, char *why, size_t room)
{
    const bool is_product = call->op == COLL_PROD && coll__is_floating(call->type);
    const bool is_requested = (call->flags & COLL_REPRODUCIBLE) && !coll__kind_scans(call->kind);

    if (!COLL__IS_WHOLE && is_requested) {
        coll__print(why, room, "this program was compiled with " COLL__PROFILE);
        return false;
    }
    if (sum == COLL_C64 && !COLL__HAS(COLL_C128) && coll__wants_reproducible(call)) {
        coll__print(why, room, "this program was compiled without c128 (COLL_ONLY_TYPES)");
        return false;
    }
    if (!is_requested || (!is_product && call->op != COLL_USER)) return true;
    coll__print(why, room, "there is no reproducible %s of %s: the order of the ranks %s", coll_op_name(call->op),
             coll_type_name(call->type), is_product ? "shows in it" : "may show in it");
    return false;
}

/* Does a call scale its result?  0 and 1 do not.  Compares bits, because programs without scale may have no doubles. */
COLL__UNUSED static inline bool coll__is_scaled(const coll_call *call)
{
    const uint64_t bits = coll__bits64(call->scale);
    return bits << 1 != 0 && bits != coll__bits64(1);
}

/* Is the scale valid?  It is applied in the type `sum`, where it must be finite. */
static bool coll__scale_fits(const coll_call *call, coll_type sum, double scale, char *why, size_t room)
{
    const double most = sum == COLL_F32 || sum == COLL_C64 ? 0x1.fffffep127 : 0x1.fffffffffffffp1023;

    if (!coll__is_scaled(call)) return true;
    if (!COLL__HAS_SCALE) {
        coll__print(why, room, "this program was compiled with " COLL__PROFILE);
        return false;
    }
    if (call->op == COLL_USER || !coll__is_floating(call->type)) {
        coll__print(why, room, "there is no scale for %s of %s", coll_op_name(call->op), coll_type_name(call->type));
        return false;
    }
    if (scale >= -most && scale <= most) return true;
    coll__print(why, room, "scale %g is not finite in %s", scale, coll_type_name(sum));
    return false;
}

#define COLL__REFUSE(...) (coll__print(why, room, __VA_ARGS__), false)
#define COLL__REFUSE_LEFT_OUT(type)                                                                 \
    COLL__REFUSE("this program was compiled without %s (COLL_ONLY_TYPES)", coll_type_name(type))

static bool coll__reduction_fits(const coll_call *call, coll_type wire, coll_type sum, double scale, int ranks, char *why,
                                 size_t room)
{
    const coll_type type = call->type;
    const bool is_user = call->op == COLL_USER;
    const coll_type usual = is_user ? type : coll__usual_accumulator(type);
    const char *const op_name = coll_op_name(call->op), *const name = coll_type_name(type);

    if (coll__is_mx(type)) return COLL__REFUSE("%s is a type for the wire only (coll_call.wire)", name);
    if (!coll_type_size(type)) return COLL__REFUSE("invalid type %d (see coll_type)", (int)type);
    if (!coll_type_size(wire) && !coll__is_mx(wire)) return COLL__REFUSE("invalid wire type %d (see coll_type)", (int)wire);
    if (!coll__is_op(call->op)) return COLL__REFUSE("invalid op %d (see coll_op)", (int)call->op);
    if (ranks < 1) return COLL__REFUSE("there is no reduction over %d ranks", ranks);
    if (!is_user && coll__lacks_type(type) && !coll__cell_is_defined(type, call->op)) return COLL__REFUSE_LEFT_OUT(type);
    if (!is_user && coll__lacks_type(wire) && wire != type) return COLL__REFUSE_LEFT_OUT(wire);
    if (!coll__cell_is_defined(type, call->op)) return COLL__REFUSE("there is no %s of %s", op_name, name);
    if ((call->flags & COLL_STOCHASTIC) && coll__is_mx(wire))
        return COLL__REFUSE("COLL_STOCHASTIC does not go with a wire of %s", coll_type_name(wire));
    if (is_user ? wire != type : !coll__wire_fits(type, wire))
        return COLL__REFUSE("there is no %s of %s over a wire of %s", op_name, name, coll_type_name(wire));
    if (sum != usual && (is_user || sum != COLL_F64 || !coll__is_float(type)))
        return COLL__REFUSE("there is no %s of %s in accumulators of %s", op_name, name, coll_type_name(sum));
    if (!is_user && coll__lacks_type(sum) && sum != type) return COLL__REFUSE_LEFT_OUT(sum);
    if (is_user && !call->fn) return COLL__REFUSE("op is COLL_USER, but fn is NULL: give the function");
    if (!COLL__IS_WHOLE && (call->flags & COLL_STOCHASTIC))
        return COLL__REFUSE("this program was compiled with " COLL__PROFILE);
    if (!coll__reproduction_fits(call, sum, why, room)) return false;
    return coll__scale_fits(call, sum, scale, why, room);
}

#undef COLL__REFUSE_LEFT_OUT
#undef COLL__REFUSE

/* Sums on a grid: terms are read as f32, which is exact for all wires except f64, and summed in f64; doubles in two grids. */
static void coll__codec_reproducible(coll__codec *codec, coll_type wire, int tier)
{
    const bool is_double = wire == COLL_F64 || wire == COLL_C128, is_through = codec->is_through;
    const bool is_exact = wire == COLL_F16 || wire == COLL_F8E4M3 || wire == COLL_F8E5M2;

    codec->reproducible = &COLL__PICK(coll__grids, tier)[is_double ? COLL__GRID_OF_DOUBLES : is_exact ? COLL__GRID_OF_NONE
                                                         : COLL__GRID_OF_FLOATS];
    codec->acc_size = wire == COLL_C128 ? 4 * sizeof(double)
                    : is_double || wire == COLL_C64 ? 2 * sizeof(double) : sizeof(double);
    codec->direct = is_double;
    codec->pair = codec->whole = NULL;
    if (is_double) return;
    codec->load_wire = coll__is_mx(wire) ? coll__mx_map(COLL_F32, wire, tier) : wire == COLL_F32 || wire == COLL_C64 ? NULL
                     : COLL__HAS(COLL_F16) && wire == COLL_F16 ? COLL__PICK_WIDE(coll__load_f16, tier)
                     : COLL__HAS(COLL_BF16) && wire == COLL_BF16 ? COLL__PICK_WIDE(coll__load_bf16, tier)
                     : coll__conversion(COLL_F32, wire, tier);
    codec->load_user = is_through ? NULL : codec->load_wire;
    if (COLL__HAS(COLL_C64) && wire == COLL_C64) codec->store = codec->store_wire = COLL__PICK(coll__narrow_c64, tier);
}

/* coll__codec_reduce with the kernels of one tier, for tests that compare tiers. */
static bool coll__codec_reduce_in(coll__codec *codec, const coll_call *call, int ranks, int tier, char *why, size_t room)
{
    const coll_type type = call->type, wire = call->wire ? call->wire : type;
    const bool is_user = call->op == COLL_USER;
    const coll_type usual = is_user ? type : coll__usual_accumulator(type);
    const bool is_reproducible = coll__wants_reproducible(call), in_doubles = is_reproducible && coll__is_float(type);
    const coll_type asked = call->accumulate ? call->accumulate : usual, sum = in_doubles && asked == usual ? COLL_F64 : asked;
    const double scale = COLL__HAS_SCALE && coll__is_scaled(call) ? call->scale : 1;

    coll__codec_move(codec, type);
    if (!coll__reduction_fits(call, wire, sum, scale, ranks, why, room)) return false;
    codec->wire_size = coll_type_size(wire);
    codec->is_exact = coll__is_exact(type, call->op);
    codec->is_commutative = is_user ? !call->not_commutative : coll__is_commutative(call->op);
    if (is_user) {
        codec->fn = call->fn;
        codec->fn_context = call->fn_context;
        return true;
    }
    if (COLL__HAS_ANY(COLL__TYPES_INTEGER) && call->op == COLL_AVG && coll__is_integer(type)) {
        codec->divisor = ranks;
        coll__codec_integer_average(codec, type, tier);
        return true;
    }
    codec->combine = coll__fold_of(sum, call->op, tier);
    if (COLL__HAS_CONVERSIONS && (wire != type || sum != type)) coll__codec_float(codec, call, wire, sum, tier);
    else coll__codec_direct(codec, type, call->op, tier);
    if (COLL__HAS_REPRODUCIBLE && is_reproducible) coll__codec_reproducible(codec, wire, tier);
    coll__codec_finish(codec, is_reproducible && type == COLL_C64 ? COLL_C128 : sum, call->op, ranks, scale, tier);
    if (codec->direct && !codec->finish && !is_reproducible) codec->whole = codec->combine;
    if (codec->direct && !is_reproducible) codec->twin = coll__twin_of(type, call->op, tier);
    return true;
}

/* The codec of a reduction over `ranks` ranks.  Returns false if the library cannot do it; `why`, of `room` bytes, gets the
 * reason.  Reads kind, type, wire, accumulate, op, fn, fn_context, not_commutative, scale, flags and seed of the call. */
COLL__UNUSED static bool coll__codec_reduce(coll__codec *codec, const coll_call *call, int ranks, char *why, size_t room)
{
    return coll__codec_reduce_in(codec, call, ranks, coll__tier(), why, room);
}

COLL__FOR_SPEED

/* ---- >>pack: to the wire and back ---- */

/* The rank of packed elements: an input's rank; or a result, which the wire type represents exactly. */
enum { COLL__OF_RESULT = -1 };

/* Derive a seed: for a rank's inputs, for a buffer of a list. */
COLL__UNUSED static uint64_t coll__seed_of(uint64_t seed, uint64_t which)
{
    uint64_t z = seed ^ (which + 1) * UINT64_C(0xd1342543de82ef95);
    z = (z ^ (z >> 32)) * UINT64_C(0xaf251af3b0f025b5);
    return z ^ (z >> 29);
}

/* Pack through f64 or f32, into which every other type widens exactly: clamp there, and round stochastically. */
static void coll__pack_by(const coll__codec *codec, void *wire, const void *user, size_t count, size_t index, int rank)
{
    _Alignas(64) unsigned char block[COLL__BLOCK];
    const size_t most = COLL__BLOCK / codec->by.size;
    const uint64_t seed = coll__seed_of(codec->seed, (uint64_t)(unsigned)rank);

    for (size_t from = 0, length; from < count; from += length) {
        const void *in = (const unsigned char *)user + from * codec->type_size;
        void *const out = (unsigned char *)wire + coll__wire_bytes(codec, from);
        length = count - from < most ? count - from : most;
        if (codec->by.widen) codec->by.widen(block, in, length), in = block;
        if (codec->by.clamp) codec->by.clamp(block, in, length, 1, codec->limit), in = block;
        if (codec->by.stochastic.round && rank != COLL__OF_RESULT)
            codec->by.stochastic.round(out, in, length, seed, index + from, codec->by.stochastic.draw);
        else codec->by.narrow(out, in, length);
    }
}

/* Write `count` elements in the wire format; `index` is the first element's index in its vector, `rank` the rank of the input,
 * or COLL__OF_RESULT.  The buffers do not overlap, unless they are equal and both sides have the same bytes. */
COLL__UNUSED static void coll__pack(const coll__codec *codec, void *wire, const void *user, size_t count, size_t index, int rank)
{
    if (rank == COLL__OF_RESULT && codec->repack) codec->repack(wire, user, count);
    else if (codec->by.size) coll__pack_by(codec, wire, user, count, index, rank);
    else if (codec->pack) codec->pack(wire, user, count);
    else if (count && wire != user) memcpy(wire, user, count * codec->type_size);
}

/* Unpack through f32. */
static void coll__unpack_narrowed(const coll__codec *codec, void *user, const void *wire, size_t count)
{
    _Alignas(64) unsigned char block[COLL__BLOCK];
    const size_t most = COLL__BLOCK / sizeof(float);

    for (size_t from = 0, length; from < count; from += length) {
        length = count - from < most ? count - from : most;
        codec->unpack(block, (const unsigned char *)wire + coll__wire_bytes(codec, from), length);
        codec->narrow((unsigned char *)user + from * codec->type_size, block, length);
    }
}

COLL__UNUSED static void coll__unpack(const coll__codec *codec, void *user, const void *wire, size_t count)
{
    if (codec->narrow) coll__unpack_narrowed(codec, user, wire, count);
    else if (codec->unpack) codec->unpack(user, wire, count);
    else if (count && wire != user) memcpy(user, wire, count * codec->type_size);
}

#endif /* COLL_CODEC_H */
