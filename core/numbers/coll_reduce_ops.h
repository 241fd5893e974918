/* coll_reduce_ops.h - folds of two accumulators into one, for every type and operation.  The table at the end is used for
 * dispatch and for coll__cell_is_defined.
 *
 * Integers wrap in SUM and PROD.  With floats, a MIN or MAX with a NaN is NaN, and -0 is less than +0.  Logical operations
 * treat nonzero, also NaN, as true and give 1 or 0, in floats 1.0 or 0.0.  A bool is one byte, true unless zero; MIN and BAND
 * are LAND then, MAX and BOR are LOR.  The product of complex numbers is the textbook formula, with NaNs by component.  Pairs
 * are ordered by value and then by index, the lower first; a NaN comes before every number. */
#ifndef COLL_REDUCE_OPS_H
#define COLL_REDUCE_OPS_H

#include "coll_types.h"

/* Sums with several results, and streaming stores: for threads, which share memory. */
#define COLL__MAKES_MANY COLL__HAS_THREADS

/* ---- >>fold ---- */

/* to[i] = a[i] op b[i]; `to` may be equal to a or b, but may not overlap them otherwise. */
typedef void coll__fold_fn(void *to, const void *a, const void *b, size_t count);

#define COLL__FOLD_AT(LEVEL, tier, vectors, name, TO, FROM, VALUE)                                \
    LEVEL static void name##_##tier(void *to, const void *from_a, const void *from_b, size_t count) \
    {                                                                                             \
        TO *out = to;                                                                             \
        const FROM *left = from_a, *right = from_b;                                               \
        COLL__EACH_IN_##tier(i, count, sizeof(TO), vectors,                                       \
                             name##_base(out + whole, left + whole, right + whole, count - whole), \
                             const FROM a = left[i]; const FROM b = right[i]; out[i] = VALUE;);   \
    }
#define COLL__FOLD_IN(tier, ...) COLL__FOLD_AT(COLL__IN_##tier, tier, 1, __VA_ARGS__)
#define COLL__SUM_IN(tier, ...) COLL__FOLD_AT(COLL__SHORT_##tier, tier, 2, __VA_ARGS__)
#define COLL__FOLD(...) COLL__EACH_TIER(COLL__FOLD_IN, __VA_ARGS__)

/* The same to two destinations, which avoids reading back.  Only for sums. */
typedef void coll__twin_fn(void *to, void *also, const void *a, const void *b, size_t count);

#define COLL__TWIN_IN(tier, name, T, VALUE)                                                       \
    COLL__IN_##tier static void name##_twin_##tier(void *to, void *other, const void *from_a,     \
                                                   const void *from_b, size_t count)              \
    {                                                                                             \
        T *out = to, *also = other;                                                               \
        const T *left = from_a, *right = from_b;                                                  \
        COLL__EACH_IN_##tier(i, count, sizeof(T), 2,                                              \
                             name##_twin_base(out + whole, also + whole, left + whole, right + whole, count - whole), \
                             const T a = left[i]; const T b = right[i]; const T sum = VALUE;      \
                             out[i] = sum; also[i] = sum;);                                       \
    }
#define COLL__TWIN(name, T, VALUE) COLL__EACH_TIER(COLL__TWIN_IN, name, T, VALUE)

/* Unsigned arithmetic wraps.  Short types are widened first: the product of two uint16_t would be a signed int, which must not
 * overflow. */
#define COLL__FOLD_WRAP(bits, wide)                                                               \
    COLL__EACH_TIER(COLL__SUM_IN, coll__sum_u##bits, coll__raw_u##bits, coll__raw_u##bits,        \
                    (uint##bits##_t)((wide)a + (wide)b))                                          \
    COLL__TWIN(coll__sum_u##bits, coll__raw_u##bits, (uint##bits##_t)((wide)a + (wide)b))         \
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

/* Equal floats have equal bits, except zeros: OR of their sign bits gives the smaller, AND the larger. */
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
    COLL__EACH_WIDE(COLL__SUM_IN, coll__sum_f##bits, coll__raw_f##bits, coll__raw_f##bits,        \
                    coll__canon##bits(a + b))                                                     \
    COLL__EACH_WIDE(COLL__TWIN_IN, coll__sum_f##bits, coll__raw_f##bits, coll__canon##bits(a + b)) \
    COLL__FOLD(coll__prod_f##bits, coll__raw_f##bits, coll__raw_f##bits,                          \
               coll__canon##bits(a * b))                                                          \
    COLL__FOLD(coll__min_f##bits, coll__raw_f##bits, coll__raw_f##bits,                           \
               COLL__PICK_FLOAT(bits, <, |))                                                      \
    COLL__FOLD(coll__max_f##bits, coll__raw_f##bits, coll__raw_f##bits,                           \
               COLL__PICK_FLOAT(bits, >, &))
COLL__FOLD_FLOAT(32)
COLL__FOLD_FLOAT(64)

/* ---- >>bits and truth values ---- */

#define COLL__FOLD_BITS(name)                                                                       \
    COLL__FOLD(coll__band_##name, coll__raw_##name, coll__raw_##name, a & b)                        \
    COLL__FOLD(coll__bor_##name, coll__raw_##name, coll__raw_##name, a | b)                         \
    COLL__FOLD(coll__bxor_##name, coll__raw_##name, coll__raw_##name, a ^ b)
#define COLL__FOLD_TRUTH(name)                                                                      \
    COLL__FOLD(coll__land_##name, coll__raw_##name, coll__raw_##name, (a != 0) & (b != 0))          \
    COLL__FOLD(coll__lor_##name, coll__raw_##name, coll__raw_##name, (a != 0) | (b != 0))           \
    COLL__FOLD(coll__lxor_##name, coll__raw_##name, coll__raw_##name, (a != 0) ^ (b != 0))
COLL__FOLD_BITS(u8)
COLL__FOLD_BITS(u16)
COLL__FOLD_BITS(u32)
COLL__FOLD_BITS(u64)
COLL__FOLD_TRUTH(u8)
COLL__FOLD_TRUTH(u16)
COLL__FOLD_TRUTH(u32)
COLL__FOLD_TRUTH(u64)
COLL__FOLD_TRUTH(f32)
COLL__FOLD_TRUTH(f64)

/* ---- >>complex: sums as twice as many reals ---- */

/* Each product passes through the choice of the canonical NaN, so that no compiler can fuse it with the addition.  The result
 * is the same, because a sum with a NaN is NaN. */

#define COLL__FOLD_COMPLEX_IN(tier, name, bits)                                                     \
    static void coll__sum_##name##_##tier(void *to, const void *a, const void *b, size_t count)     \
    {                                                                                               \
        coll__sum_f##bits##_##tier(to, a, b, 2 * count);                                            \
    }                                                                                               \
    COLL__IN_##tier static void coll__prod_##name##_##tier(void *to, const void *from_a,            \
                                                           const void *from_b, size_t count)        \
    {                                                                                               \
        coll__raw_f##bits *out = to;                                                                \
        const coll__raw_f##bits *left = from_a, *right = from_b;                                    \
        COLL__FREE_##tier for (size_t i = 0; i < count; i++) {                                      \
            const coll__raw_f##bits a = left[2 * i], a_im = left[2 * i + 1];                        \
            const coll__raw_f##bits b = right[2 * i], b_im = right[2 * i + 1];                      \
            out[2 * i] = coll__canon##bits(coll__canon##bits(a * b) - coll__canon##bits(a_im * b_im)); \
            out[2 * i + 1] = coll__canon##bits(coll__canon##bits(a * b_im) + coll__canon##bits(a_im * b)); \
        }                                                                                           \
    }
COLL__EACH_TIER(COLL__FOLD_COMPLEX_IN, c64, 32)
COLL__EACH_TIER(COLL__FOLD_COMPLEX_IN, c128, 64)

/* ---- >>pairs of a value's bits and an index ---- */

/* Float values are stored as bits.  The padding of the third kind is a field, so that it is written: as zero, equal
 * everywhere. */
typedef struct coll__pair_32_32 { int32_t value, index; } coll__pair_32_32;
typedef struct coll__pair_64_64 { int64_t value, index; } coll__pair_64_64;
typedef struct coll__pair_64_32 { int64_t value; int32_t index, zero; } coll__pair_64_32;

/* A number with the same order as the value.  The bits of floats order as sign and magnitude; a NaN becomes `extreme`, which no
 * other float is. */
COLL__INLINE int32_t coll__key_f32(int32_t bits, int32_t extreme)
{
    const bool is_nan = (bits & INT32_MAX) > 0x7f800000;
    return is_nan ? extreme : bits < 0 ? bits ^ INT32_MAX : bits;
}

COLL__INLINE int64_t coll__key_f64(int64_t bits, int64_t extreme)
{
    const bool is_nan = (bits & INT64_MAX) > INT64_C(0x7ff0000000000000);
    return is_nan ? extreme : bits < 0 ? bits ^ INT64_MAX : bits;
}

COLL__INLINE int32_t coll__key_i32(int32_t value, int32_t extreme) { return (void)extreme, value; }
COLL__INLINE int64_t coll__key_i64(int64_t value, int64_t extreme) { return (void)extreme, value; }

/* The value in results: NaNs are canonical. */
COLL__INLINE int32_t coll__settle_f32(int32_t bits)
{
    return (bits & INT32_MAX) > 0x7f800000 ? (int32_t)COLL__NAN_F32 : bits;
}

COLL__INLINE int64_t coll__settle_f64(int64_t bits)
{
    return (bits & INT64_MAX) > INT64_C(0x7ff0000000000000) ? (int64_t)COLL__NAN_F64 : bits;
}

COLL__INLINE int32_t coll__settle_i32(int32_t value) { return value; }
COLL__INLINE int64_t coll__settle_i64(int64_t value) { return value; }

#define COLL__FOLD_PAIR(name, value_name, bits, index_bits, before, extreme)                        \
    COLL__KERNEL static void name(void *to, const void *left, const void *right, size_t count)      \
    {                                                                                               \
        for (size_t i = 0; i < count; i++) {                                                        \
            coll__pair_##bits##_##index_bits a, b;                                                  \
            memcpy(&a, (const char *)left + i * sizeof a, sizeof a);                                \
            memcpy(&b, (const char *)right + i * sizeof b, sizeof b);                               \
            const int##bits##_t key_a = coll__key_##value_name(a.value, extreme);                   \
            const int##bits##_t key_b = coll__key_##value_name(b.value, extreme);                   \
            const bool is_b = (key_b before key_a) | ((key_b == key_a) & (b.index < a.index));      \
            const coll__pair_##bits##_##index_bits result = {                                       \
                .value = coll__settle_##value_name(is_b ? b.value : a.value),                       \
                .index = is_b ? b.index : a.index };                                                \
            memcpy((char *)to + i * sizeof result, &result, sizeof result);                         \
        }                                                                                           \
    }
#define COLL__PAIR(name, value_name, bits, index_bits)                                              \
    COLL__FOLD_PAIR(coll__minloc_##name, value_name, bits, index_bits, <, INT##bits##_MIN)          \
    COLL__FOLD_PAIR(coll__maxloc_##name, value_name, bits, index_bits, >, INT##bits##_MAX)          \
    COLL__KERNEL static void coll__store_##name(void *to, const void *from, size_t count)           \
    {                                                                                               \
        for (size_t i = 0; i < count; i++) {                                                        \
            coll__pair_##bits##_##index_bits a;                                                     \
            memcpy(&a, (const char *)from + i * sizeof a, sizeof a);                                \
            const coll__pair_##bits##_##index_bits result = {                                       \
                .value = coll__settle_##value_name(a.value), .index = a.index };                    \
            memcpy((char *)to + i * sizeof result, &result, sizeof result);                         \
        }                                                                                           \
    }
COLL__PAIR(f32_i32, f32, 32, 32)
COLL__PAIR(f64_i32, f64, 64, 32)
COLL__PAIR(f64_i64, f64, 64, 64)
COLL__PAIR(i32_i32, i32, 32, 32)
COLL__PAIR(i64_i32, i64, 64, 32)
COLL__PAIR(i64_i64, i64, 64, 64)

/* ---- >>cells: (type, operation) pairs ---- */

/* COLL_AVG uses the fold of SUM; integers use a wider type.  Types that were left out have none.  Switches instead of tables,
 * because in position-independent code a pointer in a table takes four times its length. */
#define COLL__FOLD_IS(op, name) case op: return COLL__PICK(name, tier);
#define COLL__FOLDS_INTEGER(TYPE, name, wrap)                                                       \
    case TYPE:                                                                                      \
        if (COLL__HAS(TYPE)) switch (op) {                                                          \
            case COLL_AVG: COLL__FOLD_IS(COLL_SUM, coll__sum_##wrap)                                \
            COLL__FOLD_IS(COLL_PROD, coll__prod_##wrap)                                             \
            COLL__FOLD_IS(COLL_MIN, coll__min_##name)  COLL__FOLD_IS(COLL_MAX, coll__max_##name)    \
            COLL__FOLD_IS(COLL_BAND, coll__band_##wrap) COLL__FOLD_IS(COLL_BOR, coll__bor_##wrap)   \
            COLL__FOLD_IS(COLL_BXOR, coll__bxor_##wrap) COLL__FOLD_IS(COLL_LAND, coll__land_##wrap) \
            COLL__FOLD_IS(COLL_LOR, coll__lor_##wrap)  COLL__FOLD_IS(COLL_LXOR, coll__lxor_##wrap)  \
        default: break;                                                                             \
        }                                                                                           \
        break;
#define COLL__FOLDS_FLOAT(TYPE, name)                                                               \
    case TYPE:                                                                                      \
        if (COLL__HAS(TYPE)) switch (op) {                                                          \
        case COLL_SUM: case COLL_AVG: return COLL__PICK_WIDE(coll__sum_##name, tier);               \
            COLL__FOLD_IS(COLL_PROD, coll__prod_##name)                                             \
            COLL__FOLD_IS(COLL_MIN, coll__min_##name)  COLL__FOLD_IS(COLL_MAX, coll__max_##name)    \
            COLL__FOLD_IS(COLL_LAND, coll__land_##name) COLL__FOLD_IS(COLL_LOR, coll__lor_##name)   \
            COLL__FOLD_IS(COLL_LXOR, coll__lxor_##name)                                             \
        default: break;                                                                             \
        }                                                                                           \
        break;
#define COLL__FOLDS_COMPLEX(TYPE, name)                                                             \
    case TYPE:                                                                                      \
        if (!COLL__HAS(TYPE)) break;                                                                \
        if (op == COLL_SUM || op == COLL_AVG) return COLL__PICK(coll__sum_##name, tier);            \
        if (op == COLL_PROD) return COLL__PICK(coll__prod_##name, tier);                            \
        break;
#define COLL__FOLDS_PAIR(TYPE, name)                                                                \
    case TYPE:                                                                                      \
        if (!COLL__HAS(TYPE)) break;                                                                \
        if (op == COLL_MINLOC) return coll__minloc_##name;                                          \
        if (op == COLL_MAXLOC) return coll__maxloc_##name;                                          \
        break;

COLL__FOR_SIZE

/* NULL if there is no such cell. */
COLL__UNUSED static coll__fold_fn *coll__fold_of(coll_type type, coll_op op, int tier)
{
    (void)tier;
    switch (type) {
    COLL__FOLDS_INTEGER(COLL_I8, i8, u8)      COLL__FOLDS_INTEGER(COLL_I16, i16, u16)
    COLL__FOLDS_INTEGER(COLL_I32, i32, u32)   COLL__FOLDS_INTEGER(COLL_I64, i64, u64)
    COLL__FOLDS_INTEGER(COLL_U8, u8, u8)      COLL__FOLDS_INTEGER(COLL_U16, u16, u16)
    COLL__FOLDS_INTEGER(COLL_U32, u32, u32)   COLL__FOLDS_INTEGER(COLL_U64, u64, u64)
    COLL__FOLDS_FLOAT(COLL_F32, f32)          COLL__FOLDS_FLOAT(COLL_F64, f64)
    COLL__FOLDS_COMPLEX(COLL_C64, c64)        COLL__FOLDS_COMPLEX(COLL_C128, c128)
    COLL__FOLDS_PAIR(COLL_F32_I32, f32_i32)   COLL__FOLDS_PAIR(COLL_F64_I32, f64_i32)
    COLL__FOLDS_PAIR(COLL_F64_I64, f64_i64)   COLL__FOLDS_PAIR(COLL_I32_I32, i32_i32)
    COLL__FOLDS_PAIR(COLL_I64_I32, i64_i32)   COLL__FOLDS_PAIR(COLL_I64_I64, i64_i64)
    case COLL_BOOL:
        if (COLL__HAS(COLL_BOOL)) switch (op) {
            case COLL_MIN: case COLL_BAND: COLL__FOLD_IS(COLL_LAND, coll__land_u8)
            case COLL_MAX: case COLL_BOR: COLL__FOLD_IS(COLL_LOR, coll__lor_u8)
            case COLL_BXOR: COLL__FOLD_IS(COLL_LXOR, coll__lxor_u8)
        default: break;
        }
        break;
    default: break;
    }
    /* Always present: communicators are numbered with it. */
    return !COLL__HAS(COLL_U64) && type == COLL_U64 && op == COLL_MAX ? coll__max_u64_base : NULL;
}

/* NULL: results are computed one after the other. */
static coll__twin_fn *coll__twin_of(coll_type type, coll_op op, int tier)
{
    if (!COLL__MAKES_MANY || (op != COLL_SUM && (op != COLL_AVG || !coll__is_float(type)))) return NULL;
    switch (type) {
    case COLL_I8: case COLL_U8:
        return COLL__HAS(COLL_I8) || COLL__HAS(COLL_U8) ? COLL__PICK(coll__sum_u8_twin, tier) : NULL;
    case COLL_I16: case COLL_U16:
        return COLL__HAS(COLL_I16) || COLL__HAS(COLL_U16) ? COLL__PICK(coll__sum_u16_twin, tier) : NULL;
    case COLL_I32: case COLL_U32:
        return COLL__HAS(COLL_I32) || COLL__HAS(COLL_U32) ? COLL__PICK(coll__sum_u32_twin, tier) : NULL;
    case COLL_I64: case COLL_U64:
        return COLL__HAS(COLL_I64) || COLL__HAS(COLL_U64) ? COLL__PICK(coll__sum_u64_twin, tier) : NULL;
    case COLL_F32: return COLL__IF(COLL_F32, COLL__PICK_WIDE(coll__sum_f32_twin, tier));
    case COLL_F64: return COLL__IF(COLL_F64, COLL__PICK_WIDE(coll__sum_f64_twin, tier));
    default:       return NULL;
    }
}

/* The default accumulator type of a type. */
static coll_type coll__usual_accumulator(coll_type type)
{
    return coll__is_float(type) && coll_type_size(type) < sizeof(float) ? COLL_F32 : type;
}

/* Does this operation exist for this type?  COLL_USER exists for all types, also for blobs. */
COLL__UNUSED static bool coll__cell_is_defined(coll_type type, coll_op op)
{
    if (!coll_type_size(type) || !coll__is_op(op)) return false;
    if (op == COLL_USER) return true;
    if (coll__is_blob(type) || (coll__lacks_type(type) && type != COLL_U64)) return false;
    return coll__fold_of(coll__usual_accumulator(type), op, COLL__TIER_BASE);
}

COLL__FOR_SPEED

#endif /* COLL_REDUCE_OPS_H */
