/* coll_types.h: element types, kernel tiers, and conversions of single numbers.
 *
 * Rules of all conversions: one rounding, to nearest even.  Subnormals are exact.  Too large numbers become infinity, or NaN in
 * f8e4m3, which has no infinity (its largest number is 448; numbers that round to 480 or more are too large).  Every NaN
 * becomes the canonical quiet NaN of the destination, with the sign cleared, so that bits never depend on the compiler's
 * operand order.  Loops have no branches, and the same code is compiled for each tier. */
#ifndef COLL_TYPES_H
#define COLL_TYPES_H

#include "../base/coll_cpu.h"
#include "../base/coll_text.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* ---- >>types: names, lengths, classes ---- */

/* Classes of elements, as bits, so that several can be tested at once. */
enum {
    COLL__CLASS_NONE = 0, COLL__CLASS_SIGNED = 1, COLL__CLASS_UNSIGNED = 2, COLL__CLASS_BOOL = 4, COLL__CLASS_FLOAT = 8,
    COLL__CLASS_COMPLEX = 16, COLL__CLASS_PAIR = 32, COLL__CLASS_MX = 64,
    COLL__CLASS_INTEGER = COLL__CLASS_SIGNED | COLL__CLASS_UNSIGNED, COLL__CLASS_WORD = COLL__CLASS_INTEGER | COLL__CLASS_BOOL,
    COLL__CLASS_REAL = COLL__CLASS_WORD | COLL__CLASS_FLOAT
};

/* The table: type, name, bytes, class. */
#define COLL__TYPES(X)                                                                                                       \
    X(COLL_I8,      "i8",      1,  SIGNED)      X(COLL_I16,     "i16",     2,  SIGNED)      X(COLL_I32, "i32", 4, SIGNED)    \
    X(COLL_I64,     "i64",     8,  SIGNED)      X(COLL_U8,      "u8",      1,  UNSIGNED)    X(COLL_U16, "u16", 2, UNSIGNED)  \
    X(COLL_U32,     "u32",     4,  UNSIGNED)    X(COLL_U64,     "u64",     8,  UNSIGNED)    X(COLL_BOOL, "bool", 1, BOOL)    \
    X(COLL_F16,     "f16",     2,  FLOAT)       X(COLL_BF16,    "bf16",    2,  FLOAT)       X(COLL_F32, "f32", 4, FLOAT)     \
    X(COLL_F8E4M3,  "f8e4m3",  1,  FLOAT)       X(COLL_F8E5M2,  "f8e5m2",  1,  FLOAT)       X(COLL_F64, "f64", 8, FLOAT)     \
    X(COLL_C64,     "c64",     8,  COMPLEX)     X(COLL_C128,    "c128",    16, COMPLEX)                                      \
    X(COLL_F32_I32, "f32_i32", 8,  PAIR)        X(COLL_F64_I32, "f64_i32", 16, PAIR)                                         \
    X(COLL_F64_I64, "f64_i64", 16, PAIR)        X(COLL_I32_I32, "i32_i32", 8,  PAIR)                                         \
    X(COLL_I64_I32, "i64_i32", 16, PAIR)        X(COLL_I64_I64, "i64_i64", 16, PAIR)

/* Types on the wire only; coll_type_size is 0. */
#define COLL__WIRE_TYPES(X)                                                                                                  \
    X(COLL_MXI8, "mxi8", 0, MX) X(COLL_MXF8E4M3, "mxf8e4m3", 0, MX) X(COLL_MXF8E5M2, "mxf8e5m2", 0, MX)

/* The table: operation, name, commutative, and the classes for which it is exact: every grouping and every order of the inputs
 * gives the same bits.  test_numbers tests each of these cells. */
#define COLL__OPS(X)                                                                                                          \
    X(COLL_SUM,    "sum",    true,  INTEGER)  X(COLL_PROD,   "prod",   true,  INTEGER)  X(COLL_AVG,  "avg",  true, INTEGER)   \
    X(COLL_MIN,    "min",    true,  REAL)     X(COLL_MAX,    "max",    true,  REAL)                                           \
    X(COLL_BAND,   "band",   true,  WORD)     X(COLL_BOR,    "bor",    true,  WORD)     X(COLL_BXOR, "bxor", true, WORD)      \
    X(COLL_LAND,   "land",   true,  REAL)     X(COLL_LOR,    "lor",    true,  REAL)     X(COLL_LXOR, "lxor", true, REAL)      \
    X(COLL_MINLOC, "minloc", true,  PAIR)     X(COLL_MAXLOC, "maxloc", true,  PAIR)     X(COLL_USER, "user", false, NONE)

enum { COLL__TYPE_LIMIT = COLL_I64_I64 + 1 };

/* The number of a blob type: a mark plus the bytes.  The mark alone is no type. */
enum { COLL__BLOB_MARK = 0x40000000 };

COLL__UNUSED static bool coll__is_blob(coll_type type) { return type > COLL__BLOB_MARK; }

#define COLL__ROW(type, text, bytes, sort) [type] = { bytes, COLL__CLASS_##sort },
static const struct coll__type_row { unsigned char size, sort; } coll__type_rows[] = {
    COLL__TYPES(COLL__ROW)
    COLL__WIRE_TYPES(COLL__ROW)
};
#undef COLL__ROW

/* 0 for blobs and invalid types, which have the first row. */
COLL__UNUSED static inline unsigned coll__type_place(coll_type type)
{
    return (unsigned)type < sizeof coll__type_rows / sizeof *coll__type_rows ? (unsigned)type : 0;
}

COLL__UNUSED static inline const struct coll__type_row *coll__type_row(coll_type type)
{
    return &coll__type_rows[coll__type_place(type)];
}

/* 0 for a type that does not exist, so it also tests existence. */
COLL_API size_t coll_type_size(coll_type type)
{
    return coll__is_blob(type) ? (size_t)(type - COLL__BLOB_MARK) : coll__type_row(type)->size;
}

COLL_API const char *coll_type_name(coll_type type)
{
#define COLL__NAME(type, text, bytes, sort) [type] = text,
    static const char names[][10] = { "?", COLL__TYPES(COLL__NAME) COLL__WIRE_TYPES(COLL__NAME) };
#undef COLL__NAME
    return coll__is_blob(type) ? "blob" : names[coll__type_place(type)];
}

/* The class of a type; COLL__CLASS_NONE for blobs and invalid types. */
COLL__UNUSED static inline unsigned coll__class_of(coll_type type) { return coll__type_row(type)->sort; }

/* Is the type in one of these classes? */
#define COLL__IS(name, classes)                                                                                              \
    COLL__UNUSED static inline bool coll__is_##name(coll_type type) { return (coll__class_of(type) & (classes)) != 0; }
COLL__IS(integer, COLL__CLASS_INTEGER)
COLL__IS(unsigned, COLL__CLASS_UNSIGNED)
COLL__IS(float, COLL__CLASS_FLOAT)
COLL__IS(complex, COLL__CLASS_COMPLEX)
COLL__IS(floating, COLL__CLASS_FLOAT | COLL__CLASS_COMPLEX)
COLL__IS(mx, COLL__CLASS_MX)
#undef COLL__IS

/* Does this program lack arithmetic of the type?  (core/base/coll_feature_types.h) */
COLL__UNUSED static inline bool coll__lacks_type(coll_type type) { return type > 0 && type < 32 && !COLL__HAS(type); }

#define COLL__BIT_IS(name, TYPE) && COLL__TYPED_##name == 1u << (TYPE)
_Static_assert(1 COLL__BIT_IS(i8, COLL_I8) COLL__BIT_IS(i16, COLL_I16) COLL__BIT_IS(i32, COLL_I32) COLL__BIT_IS(i64, COLL_I64)
               COLL__BIT_IS(u8, COLL_U8) COLL__BIT_IS(u16, COLL_U16) COLL__BIT_IS(u32, COLL_U32) COLL__BIT_IS(u64, COLL_U64)
               COLL__BIT_IS(_Bool, COLL_BOOL) COLL__BIT_IS(f16, COLL_F16) COLL__BIT_IS(bf16, COLL_BF16)
               COLL__BIT_IS(f8e4m3, COLL_F8E4M3) COLL__BIT_IS(f8e5m2, COLL_F8E5M2) COLL__BIT_IS(f32, COLL_F32)
               COLL__BIT_IS(f64, COLL_F64) COLL__BIT_IS(c64, COLL_C64) COLL__BIT_IS(c128, COLL_C128)
               COLL__BIT_IS(f32_i32, COLL_F32_I32) COLL__BIT_IS(i64_i64, COLL_I64_I64) COLL__BIT_IS(mxi8, COLL_MXI8)
               COLL__BIT_IS(mxf8e4m3, COLL_MXF8E4M3) COLL__BIT_IS(mxf8e5m2, COLL_MXF8E5M2), "a type's bit is its number's");
#undef COLL__BIT_IS

static const struct coll__op_row { unsigned char exact; bool commutes; char name[7]; } coll__op_rows[] = {
#define COLL__ROW(op, text, commutes, classes) [op] = { COLL__CLASS_##classes, commutes, text },
    COLL__OPS(COLL__ROW)
#undef COLL__ROW
    { COLL__CLASS_NONE, false, "?" }
};

/* The last row for invalid operations. */
COLL__UNUSED static inline const struct coll__op_row *coll__op_row(coll_op op)
{
    return &coll__op_rows[(unsigned)op <= COLL_USER ? (int)op : COLL_USER + 1];
}

COLL_API const char *coll_op_name(coll_op op) { return coll__op_row(op)->name; }

COLL__UNUSED static bool coll__is_op(coll_op op) { return (unsigned)op <= COLL_USER; }

/* Is the result independent of order and grouping of the inputs, to the bit?  False for cells outside the table. */
COLL__UNUSED static bool coll__is_exact(coll_type type, coll_op op)
{
    return (coll__class_of(type) & coll__op_row(op)->exact) != 0;
}

/* May two inputs be exchanged?  Their grouping may matter. */
COLL__UNUSED static bool coll__is_commutative(coll_op op) { return coll__op_row(op)->commutes; }

/* Operations whose result is 1 or 0. */
COLL__UNUSED static inline bool coll__is_logical(coll_op op) { return op == COLL_LAND || op == COLL_LOR || op == COLL_LXOR; }

/* ---- >>memory: elements in buffers, with any alignment and any declared type ---- */

#define COLL__RAW __attribute__((aligned(1), may_alias))

typedef int8_t   COLL__RAW coll__raw_i8;
typedef int16_t  COLL__RAW coll__raw_i16;
typedef int32_t  COLL__RAW coll__raw_i32;
typedef int64_t  COLL__RAW coll__raw_i64;
typedef uint8_t  COLL__RAW coll__raw_u8;
typedef uint16_t COLL__RAW coll__raw_u16;
typedef uint32_t COLL__RAW coll__raw_u32;
typedef uint64_t COLL__RAW coll__raw_u64;
typedef float    COLL__RAW coll__raw_f32;
typedef double   COLL__RAW coll__raw_f64;

/* Sums of 64-bit integers, in two's complement: not all compilers have such a type. */
typedef struct __attribute__((packed, may_alias)) coll__raw_i128 { uint64_t low, high; } coll__raw_i128;

/* ---- >>tiers: one version of a loop, compiled for several instruction sets ---- */

/* For size, or without optimization: one tier, as the flags say. */
#if defined(COLL__AS_ASKED) && !defined(COLL__ONE_TIER)
#define COLL__ONE_TIER 1
#endif

/* COLL__ONE_TIER uses the program's flags and basic instructions only: the same bits, slower code, but compiled several times
 * faster.  For tests of other things.
 *
 * gcc at -O2 hardly vectorizes, so kernels use -O3; clang vectorizes by default.  A destination may be equal to a source, which
 * the compilers' overlap tests would send to the slow loop: COLL__FREE says that iterations are independent.  The targets
 * exclude fma: a fused multiply-add would round differently on other machines.  The user's flags may include it, so no kernel
 * adds a plain product. */
#if defined(COLL__AS_ASKED)
#define COLL__KERNEL
#define COLL__FREE
#define COLL__UNROLLED
#define COLL__ROLLED
#elif defined(__clang__)
#define COLL__KERNEL
#define COLL__FREE _Pragma("clang loop vectorize(assume_safety)")
#define COLL__UNROLLED
#define COLL__ROLLED
#elif !defined(COLL__ONE_TIER)
#define COLL__KERNEL __attribute__((optimize("O3", "no-trapping-math")))
#define COLL__FREE _Pragma("GCC ivdep")
#define COLL__UNROLLED _Pragma("GCC unroll 2")      /* halves the time of a sum in the first-level cache;
                                                       clang unrolls by default                               */
#define COLL__ROLLED _Pragma("GCC unroll 1")
#else
#define COLL__KERNEL
#define COLL__FREE
#define COLL__UNROLLED
#define COLL__ROLLED
#endif

#define COLL__INLINE static inline __attribute__((always_inline, unused))

/* A kernel with a parameter instead of a version for each value; the compiler must not specialize it. */
#if defined(__clang__)
#define COLL__ONE_TEXT __attribute__((noinline, unused))
#else
#define COLL__ONE_TEXT __attribute__((noinline, noclone, unused))
#endif

/* A machine with a tier has all lower ones.  A kernel exists in the tiers that make it faster; other tiers use the next lower
 * one.  Most have the two of COLL__EACH_TIER; kernels with 16-bit types, and sums of f32 and f64, have those of
 * COLL__EACH_WIDE.
 *
 * All tiers give the same bits.  So AVX512-FP16 arithmetic is not used: its registers hold 16-bit sums, which would round every
 * addition instead of the result. */
enum { COLL__TIER_BASE, COLL__TIER_AVX2, COLL__TIER_AVX512, COLL__TIER_AVX512BF16 };

#if defined(__x86_64__) && !defined(COLL__ONE_TIER)
#define COLL__HAS_TIERS 1
enum { COLL__TIERS = COLL__TIER_AVX512BF16 + 1 };
#else
#define COLL__HAS_TIERS 0
enum { COLL__TIERS = 1 };
#endif

#define COLL__REST_OF_base (void)0
#define COLL__FREE_avx2 COLL__FREE
#define COLL__FREE_avx512 COLL__FREE
#if COLL__HAS_TIERS                                /* the base tier is for machines before 2013           */
#define COLL__FREE_base
#if defined(__clang__)
#define COLL__IN_base __attribute__((minsize))
#else
#define COLL__IN_base __attribute__((optimize("Os")))
#endif
#define COLL__SHORT_base                          /* often called for a few elements: as the flags say        */
#define COLL__SHORT_avx2 COLL__IN_avx2
#define COLL__SHORT_avx512 COLL__IN_avx512
#define COLL__TARGET_avx2 __attribute__((target("avx2,f16c")))
#define COLL__TARGET_avx512 __attribute__((target("avx2,f16c,avx512f,avx512bw,avx512dq,avx512vl")))
#define COLL__REST_OF_avx2 __builtin_ia32_vzeroupper()
#define COLL__REST_OF_avx512 __builtin_ia32_vzeroupper()
#define COLL__IN_avx2 COLL__KERNEL COLL__TARGET_avx2
#define COLL__IN_avx512 COLL__KERNEL COLL__TARGET_avx512
#define COLL__EACH_TIER(X, ...) X(base, __VA_ARGS__) X(avx2, __VA_ARGS__)
#define COLL__EACH_WIDE(X, ...) X(base, __VA_ARGS__) X(avx2, __VA_ARGS__) X(avx512, __VA_ARGS__)
#define COLL__PICK(name, tier) ((tier) >= COLL__TIER_AVX2 ? name##_avx2 : name##_base)
#define COLL__PICK_WIDE(name, tier) ((tier) >= COLL__TIER_AVX512 ? name##_avx512 : COLL__PICK(name, tier))
#else
#define COLL__FREE_base COLL__FREE
#define COLL__IN_base COLL__KERNEL
#define COLL__SHORT_base COLL__KERNEL
#define COLL__EACH_TIER(X, ...) X(base, __VA_ARGS__)
#define COLL__EACH_WIDE(X, ...) X(base, __VA_ARGS__)
#define COLL__PICK(name, tier) ((void)(tier), name##_base)
#define COLL__PICK_WIDE(name, tier) COLL__PICK(name, tier)
#endif

/* The tiers with groups (coll_simd.h). */
#if COLL__HAS_TIERS
#define COLL__EACH_VECTOR(X, ...) X(avx2, __VA_ARGS__) X(avx512, __VA_ARGS__)
#elif defined(__aarch64__)
#define COLL__EACH_VECTOR(X, ...) X(base, __VA_ARGS__)
#else
#define COLL__EACH_VECTOR(X, ...)
#endif

/* Assemblers with vcvtneps2bf16 come with these. */
#if COLL__HAS_TIERS && (defined(__clang__) || __GNUC__ >= 10)
#define COLL__HAS_AVX512BF16 1
#else
#define COLL__HAS_AVX512BF16 0
#endif

/* The best tier of this machine; called when a codec is made, never in a loop. */
COLL__UNUSED static int coll__tier(void)
{
#if COLL__HAS_TIERS
    const unsigned has = coll__cpu();

    return !(has & COLL__CPU_AVX2) ? COLL__TIER_BASE : !(has & COLL__CPU_AVX512) ? COLL__TIER_AVX2
         : COLL__HAS_AVX512BF16 && (has & COLL__CPU_AVX512BF16) ? COLL__TIER_AVX512BF16 : COLL__TIER_AVX512;
#else
    return COLL__TIER_BASE;
#endif
}

/* A loop over elements.  In vector tiers gcc gets steps of `of` bytes of the shorter elements: a vector, or two for very short
 * loops, which it must not unroll before it vectorizes; otherwise it writes three more loops for the rest.  REST handles the
 * elements from `whole` on, with the code of the base tier; sums of a few elements, which calls repeat, use only that.  The
 * base tier uses SSE: with dirty upper halves each switch costs 120 ns, and gcc does not clear them before the jump. */
#define COLL__EACH_SIMPLE(FREE, i, count, bytes, VECTORS, REST, ...)                              \
    FREE for (size_t i = 0; i < (count); i++) { __VA_ARGS__ }
#define COLL__EACH_STEPPED(of, i, count, bytes, VECTORS, REST, ...)                               \
    do {                                                                                          \
        const size_t step = (of) / (bytes), steps = 2 * step;                                     \
        if ((VECTORS) > 1 && (count) < step) {                                                    \
            const size_t whole = 0;                                                               \
            REST;                                                                                 \
            break;                                                                                \
        }                                                                                         \
        const size_t whole = (count) / step * step;                                               \
        const size_t twice = (VECTORS) > 1 ? (count) / steps * steps : 0;                         \
        for (size_t done = 0; done != twice; done += steps)                                       \
            COLL__FREE COLL__UNROLLED for (size_t k = 0; k < steps; k++) {                        \
                const size_t i = done + k;                                                        \
                __VA_ARGS__                                                                       \
            }                                                                                     \
        for (size_t done = twice; done != whole; done += step)                                    \
            COLL__FREE COLL__ROLLED for (size_t k = 0; k < step; k++) {                           \
                const size_t i = done + k;                                                        \
                __VA_ARGS__                                                                       \
            }                                                                                     \
        if (whole != (count)) {                                                                   \
            COLL__REST_OF_avx2;                                                                   \
            REST;                                                                                 \
        }                                                                                         \
    } while (0)

#define COLL__SHORTER(A, B) (sizeof(A) < sizeof(B) ? sizeof(A) : sizeof(B))

#if COLL__HAS_TIERS && !defined(__clang__)
#define COLL__EACH_IN_avx2(...) COLL__EACH_STEPPED(32, __VA_ARGS__)
#define COLL__EACH_IN_avx512(...) COLL__EACH_STEPPED(64, __VA_ARGS__)
#else
#define COLL__EACH_IN_avx2(...) COLL__EACH_SIMPLE(COLL__FREE, __VA_ARGS__)
#define COLL__EACH_IN_avx512(...) COLL__EACH_SIMPLE(COLL__FREE, __VA_ARGS__)
#endif
#define COLL__EACH_IN_base(...) COLL__EACH_SIMPLE(COLL__FREE_base, __VA_ARGS__)

/* The same for a reduction to one number: steps of many vectors, because its end is slow. */
#if COLL__HAS_TIERS && !defined(__clang__)
#define COLL__LONG_IN_avx2(...) COLL__EACH_STEPPED(256, __VA_ARGS__)
#else
#define COLL__LONG_IN_avx2(...) COLL__EACH_SIMPLE(, __VA_ARGS__)
#endif
#define COLL__LONG_IN_base(...) COLL__EACH_SIMPLE(, __VA_ARGS__)

/* A map computes one element of `to` from one element of `from`.  Both may be the same memory if the elements have the same
 * length; otherwise they must not overlap. */
typedef void coll__map(void *to, const void *from, size_t count);

#define COLL__MAP_IN(tier, name, TO, FROM, VALUE)                                                 \
    COLL__UNUSED COLL__IN_##tier static void name##_##tier(void *to, const void *from,            \
                                                           size_t count)                          \
    {                                                                                             \
        TO *out = to;                                                                             \
        const FROM *in = from;                                                                    \
        COLL__EACH_IN_##tier(i, count, COLL__SHORTER(TO, FROM), 1, name##_base(out + whole, in + whole, count - whole), \
                             const FROM x = in[i]; out[i] = VALUE;);                              \
    }
#define COLL__MAP(name, TO, FROM, VALUE) COLL__EACH_TIER(COLL__MAP_IN, name, TO, FROM, VALUE)

/* Do two arrays of `count` elements share a byte? */
COLL__UNUSED static bool coll__arrays_overlap(const void *a, size_t a_size, const void *b, size_t b_size, size_t count)
{
    const uintptr_t x = (uintptr_t)a, y = (uintptr_t)b;

    return count > 0 && x < y + count * b_size && y < x + count * a_size;
}

/* ---- >>bits: one element at a time, without branches ---- */

COLL__INLINE uint32_t coll__bits32(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

COLL__INLINE float coll__float32(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

COLL__INLINE uint64_t coll__bits64(double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

COLL__INLINE double coll__float64(uint64_t bits)
{
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

#define COLL__NAN_F8E4M3 UINT32_C(0x7f)
#define COLL__NAN_F8E5M2 UINT32_C(0x7e)
#define COLL__NAN_F16    UINT32_C(0x7e00)
#define COLL__NAN_BF16   UINT32_C(0x7fc0)
#define COLL__NAN_F32    UINT32_C(0x7fc00000)
#define COLL__NAN_F64    UINT64_C(0x7ff8000000000000)

COLL__INLINE float coll__canon32(float x) { return x == x ? x : coll__float32(COLL__NAN_F32); }
COLL__INLINE double coll__canon64(double x) { return x == x ? x : coll__float64(COLL__NAN_F64); }

/* Widen; NaNs stay NaN but may not be canonical: sufficient before arithmetic, whose store makes NaNs canonical. */
COLL__INLINE float coll__wide_bf16(uint32_t half) { return coll__float32(half << 16); }

/* A subnormal half is a multiple of 2^-24 and a normal float, so neither flushing nor rounding changes it.  The exponents of
 * infinity and NaN move by twice the bias. */
COLL__INLINE float coll__wide_f16(uint32_t half)
{
    const uint32_t magnitude = half & 0x7fffu, sign = (half & 0x8000u) << 16;
    const int32_t signed_half = (int32_t)magnitude;  /* vectors compare signed numbers best  */
    const uint32_t normal = (magnitude << 13) + (signed_half < 0x7c00 ? 112u << 23 : 224u << 23);
    const uint32_t small = coll__bits32((float)signed_half * 0x1p-24f);
    return coll__float32((signed_half < 0x400 ? small : normal) | sign);
}

/* As halves, with a bias of 7: a subnormal is a multiple of 2^-9.  All ones is the NaN. */
COLL__INLINE float coll__wide_f8e4m3(uint32_t byte)
{
    const int32_t magnitude = (int32_t)(byte & 0x7fu);
    const uint32_t sign = (byte & 0x80u) << 24;
    const uint32_t normal = ((uint32_t)magnitude << 20) + (120u << 23);
    const uint32_t small = coll__bits32((float)magnitude * 0x1p-9f);
    const uint32_t finite = magnitude < 8 ? small : normal;
    return coll__float32((magnitude == 0x7f ? COLL__NAN_F32 : finite) | sign);
}

/* f8e5m2 is the upper half of an f16. */
COLL__INLINE float coll__wide_f8e5m2(uint32_t byte) { return coll__wide_f16(byte << 8); }

/* Rounding adds just under half of the last kept place, or exactly half if that place is odd; a carry into the exponent is
 * correct, up to infinity. */
COLL__INLINE uint32_t coll__narrow_bf16(float value)
{
    const uint32_t bits = coll__bits32(value);
    const uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
    return value == value ? rounded : COLL__NAN_BF16;
}

/* As above.  Below 2^-14, where halves are multiples of 2^-24, an addition rounds: a float between 1/2 and 1 has that last
 * place. */
COLL__INLINE uint32_t coll__narrow_f16(float value)
{
    const uint32_t bits = coll__bits32(value), magnitude = bits & 0x7fffffffu;
    const uint32_t shifted = (magnitude - (112u << 23) + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
    const uint32_t normal = (int32_t)shifted < 0x7c00 ? shifted : 0x7c00u;
    const uint32_t small = coll__bits32(coll__float32(magnitude) + 0.5f) - 0x3f000000u;
    const uint32_t unsign = (int32_t)magnitude < 0x38800000 ? small : normal;
    return value == value ? unsign | ((bits >> 16) & 0x8000u) : COLL__NAN_F16;
}

/* The same for 8 bits: drops `drop` places; `bias` is the difference of the exponent biases; the last place of `magic` is the
 * smallest subnormal; from `beyond` on a number is too large. */
COLL__INLINE uint32_t coll__narrow_8(float value, int drop, uint32_t bias, float magic, uint32_t beyond, uint32_t nan)
{
    const uint32_t bits = coll__bits32(value), magnitude = bits & 0x7fffffffu;
    const uint32_t half = (1u << (drop - 1)) - 1 + ((magnitude >> drop) & 1u);
    const uint32_t shifted = (magnitude - (bias << 23) + half) >> drop;
    const uint32_t normal = (int32_t)shifted < (int32_t)beyond ? shifted : beyond;
    const uint32_t small = coll__bits32(coll__float32(magnitude) + magic) - coll__bits32(magic);
    const uint32_t unsign = (int32_t)magnitude < (int32_t)((bias + 1) << 23) ? small : normal;
    const uint32_t number = unsign == nan ? nan : unsign | ((bits >> 24) & 0x80u);
    return value == value ? number : nan;
}

COLL__INLINE uint32_t coll__narrow_f8e4m3(float value)
{
    return coll__narrow_8(value, 20, 120, 0x1p14f, COLL__NAN_F8E4M3, COLL__NAN_F8E4M3);
}

COLL__INLINE uint32_t coll__narrow_f8e5m2(float value)
{
    return coll__narrow_8(value, 21, 112, 0x1p7f, 0x7cu, COLL__NAN_F8E5M2);
}

/* Narrow a double in one rounding, through a float rounded to odd: if it differs from the double, its last bit is set.  It has
 * at least two bits more than any of these types, so the second rounding sees on which side of a tie the double is (Boldo and
 * Melquiond 2008).  Below 2^-126, where floats have fewer bits, only bf16 has numbers: multiples of 2^-133, rounded by an
 * addition. */
COLL__INLINE float coll__odd_f32(double value)
{
    const uint64_t bits = coll__bits64(value), sign = bits & (UINT64_C(1) << 63), rest = (UINT64_C(1) << 29) - 1;
    const double magnitude = coll__float64(bits ^ sign), odd = coll__float64((bits | ((bits & rest) + rest)) & ~rest);
    const double small = coll__float64(coll__bits64((magnitude + 0x1p-81) - 0x1p-81) | sign);
    return (float)(magnitude < 0x1p-126 ? small : odd);
}

COLL_API uint16_t coll_f32_to_f16(float value)  { return (uint16_t)coll__narrow_f16(value); }
COLL_API uint16_t coll_f32_to_bf16(float value) { return (uint16_t)coll__narrow_bf16(value); }
COLL_API float coll_f16_to_f32(uint16_t half)   { return coll__canon32(coll__wide_f16(half)); }
COLL_API float coll_bf16_to_f32(uint16_t half)  { return coll__canon32(coll__wide_bf16(half)); }

COLL_API uint8_t coll_f32_to_f8e4m3(float value) { return (uint8_t)coll__narrow_f8e4m3(value); }
COLL_API uint8_t coll_f32_to_f8e5m2(float value) { return (uint8_t)coll__narrow_f8e5m2(value); }
COLL_API float coll_f8e4m3_to_f32(uint8_t byte)  { return coll__canon32(coll__wide_f8e4m3(byte)); }
COLL_API float coll_f8e5m2_to_f32(uint8_t byte)  { return coll__canon32(coll__wide_f8e5m2(byte)); }

#endif /* COLL_TYPES_H */
