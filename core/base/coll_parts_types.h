/* coll_parts_types.h - element types that a program may leave out, each by a switch for the compiler.
 *
 *   COLL_NO_MIXED        floats of 8 and 16 bits, and microscaled wires: f16, bf16, f8e4m3, f8e5m2, mxi8, mxf8e4m3, mxf8e5m2
 *   COLL_NO_FP8          f8e4m3 and f8e5m2, and the microscaled wires of them
 *   COLL_NO_MX           microscaled wires
 *   COLL_NO_COMPLEX      c64 and c128
 *   COLL_NO_PAIRS        values with an index, and so COLL_MINLOC and COLL_MAXLOC
 *   COLL_NO_INT8_16      integers of 8 and 16 bits
 *   COLL_NO_STOCHASTIC   rounding at random: COLL_STOCHASTIC, coll_convert_stochastic
 *   COLL_NO_SCALE        coll_call.scale
 *   COLL_NO_REPRODUCIBLE sums in which the order does not show: COLL_REPRODUCIBLE
 *
 *   COLL_ONLY_TYPES      a list instead, of the names that coll_type_name gives: -DCOLL_ONLY_TYPES=i32,f32,bf16
 *
 * What goes is arithmetic: reductions of the type, and conversions to and from it, wires among them.  Elements of any type are
 * still moved, and reduced by an operation of the user's own (COLL_USER).  f32 is there with any float of fewer bits, which is
 * summed in it, and with the cost model, which measures with it; the maximum of u64 is in every program. */
#ifndef COLL_PARTS_TYPES_H
#define COLL_PARTS_TYPES_H

/* ---- >>names: a type is the bit of its number in coll_type; a word that is none is 0 ---- */

#define COLL__TYPED_ 0x80000000u
#define COLL__TYPED_i8 0x2u
#define COLL__TYPED_i16 0x4u
#define COLL__TYPED_i32 0x8u
#define COLL__TYPED_i64 0x10u
#define COLL__TYPED_u8 0x20u
#define COLL__TYPED_u16 0x40u
#define COLL__TYPED_u32 0x80u
#define COLL__TYPED_u64 0x100u
#define COLL__TYPED_bool 0x200u
#define COLL__TYPED__Bool 0x200u                  /* as <stdbool.h> spells it */
#define COLL__TYPED_f16 0x400u
#define COLL__TYPED_bf16 0x800u
#define COLL__TYPED_f8e4m3 0x1000u
#define COLL__TYPED_f8e5m2 0x2000u
#define COLL__TYPED_f32 0x4000u
#define COLL__TYPED_f64 0x8000u
#define COLL__TYPED_c64 0x10000u
#define COLL__TYPED_c128 0x20000u
#define COLL__TYPED_f32_i32 0x40000u
#define COLL__TYPED_f64_i32 0x80000u
#define COLL__TYPED_f64_i64 0x100000u
#define COLL__TYPED_i32_i32 0x200000u
#define COLL__TYPED_i64_i32 0x400000u
#define COLL__TYPED_i64_i64 0x800000u
#define COLL__TYPED_mxi8 0x1000000u
#define COLL__TYPED_mxf8e4m3 0x2000000u
#define COLL__TYPED_mxf8e5m2 0x4000000u

#define COLL__TYPES_ALL 0x7fffffeu
#define COLL__TYPES_MX (COLL__TYPED_mxi8 | COLL__TYPED_mxf8e4m3 | COLL__TYPED_mxf8e5m2)
#define COLL__TYPES_FP8 (COLL__TYPED_f8e4m3 | COLL__TYPED_f8e5m2)
#define COLL__TYPES_16 (COLL__TYPED_f16 | COLL__TYPED_bf16)
#define COLL__TYPES_MIXED (COLL__TYPES_16 | COLL__TYPES_FP8 | COLL__TYPES_MX)
#define COLL__TYPES_COMPLEX (COLL__TYPED_c64 | COLL__TYPED_c128)
#define COLL__TYPES_PAIRS 0xfc0000u
#define COLL__TYPES_INT8_16 (COLL__TYPED_i8 | COLL__TYPED_i16 | COLL__TYPED_u8 | COLL__TYPED_u16)

/* ---- >>the list ---- */

#if defined(COLL_ONLY_TYPES)
#define COLL__NONE_OF_26 , , , , , , , , , , , , , , , , , , , , , , , , , ,
#define COLL__TYPED(...) COLL__TYPED_MANY(__VA_ARGS__, COLL__NONE_OF_26)
#define COLL__TYPED_MANY(...) COLL__TYPED_EACH(__VA_ARGS__)
#define COLL__TYPED_EACH(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, x, y, z, ...) \
    (COLL__TYPED_##a | COLL__TYPED_##b | COLL__TYPED_##c | COLL__TYPED_##d | COLL__TYPED_##e | COLL__TYPED_##f \
     | COLL__TYPED_##g | COLL__TYPED_##h | COLL__TYPED_##i | COLL__TYPED_##j | COLL__TYPED_##k | COLL__TYPED_##l \
     | COLL__TYPED_##m | COLL__TYPED_##n | COLL__TYPED_##o | COLL__TYPED_##p | COLL__TYPED_##q | COLL__TYPED_##r \
     | COLL__TYPED_##s | COLL__TYPED_##t | COLL__TYPED_##u | COLL__TYPED_##v | COLL__TYPED_##w | COLL__TYPED_##x \
     | COLL__TYPED_##y | COLL__TYPED_##z)
#define COLL__TYPES_KNOWN(...) COLL__TYPES_KNOWN_MANY(__VA_ARGS__, COLL__NONE_OF_26)
#define COLL__TYPES_KNOWN_MANY(...) COLL__TYPES_KNOWN_EACH(__VA_ARGS__)
#define COLL__TYPES_KNOWN_EACH(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, x, y, z, ...) \
    (COLL__TYPED_##a && COLL__TYPED_##b && COLL__TYPED_##c && COLL__TYPED_##d && COLL__TYPED_##e && COLL__TYPED_##f \
     && COLL__TYPED_##g && COLL__TYPED_##h && COLL__TYPED_##i && COLL__TYPED_##j && COLL__TYPED_##k && COLL__TYPED_##l \
     && COLL__TYPED_##m && COLL__TYPED_##n && COLL__TYPED_##o && COLL__TYPED_##p && COLL__TYPED_##q && COLL__TYPED_##r \
     && COLL__TYPED_##s && COLL__TYPED_##t && COLL__TYPED_##u && COLL__TYPED_##v && COLL__TYPED_##w && COLL__TYPED_##x \
     && COLL__TYPED_##y && COLL__TYPED_##z)
#if !COLL__TYPES_KNOWN(COLL_ONLY_TYPES)
#error "COLL_ONLY_TYPES is a list of names of types (coll_type_name), as in -DCOLL_ONLY_TYPES=i32,f32,bf16"
#endif
#define COLL__TYPES_LISTED (COLL__TYPED(COLL_ONLY_TYPES) & COLL__TYPES_ALL)
#else
#define COLL__TYPES_LISTED COLL__TYPES_ALL
#endif

/* ---- >>switches: the types that each takes away ---- */

#if defined(COLL_NO_MIXED)
#define COLL__OUT_MIXED COLL__TYPES_MIXED
#else
#define COLL__OUT_MIXED 0u
#endif
#if defined(COLL_NO_FP8)
#define COLL__OUT_FP8 (COLL__TYPES_FP8 | COLL__TYPED_mxf8e4m3 | COLL__TYPED_mxf8e5m2)
#else
#define COLL__OUT_FP8 0u
#endif
#if defined(COLL_NO_MX)
#define COLL__OUT_MX COLL__TYPES_MX
#else
#define COLL__OUT_MX 0u
#endif
#if defined(COLL_NO_COMPLEX)
#define COLL__OUT_COMPLEX COLL__TYPES_COMPLEX
#else
#define COLL__OUT_COMPLEX 0u
#endif
#if defined(COLL_NO_PAIRS)
#define COLL__OUT_PAIRS COLL__TYPES_PAIRS
#else
#define COLL__OUT_PAIRS 0u
#endif
#if defined(COLL_NO_INT8_16)
#define COLL__OUT_INT8_16 COLL__TYPES_INT8_16
#else
#define COLL__OUT_INT8_16 0u
#endif

/* In the order in which a sentence looks for who took a type away; the list comes last. */
#define COLL__TYPE_SWITCHES(X)                                                                                                \
    X(COLL__OUT_MIXED, "COLL_NO_MIXED")     X(COLL__OUT_FP8, "COLL_NO_FP8")     X(COLL__OUT_MX, "COLL_NO_MX")                 \
    X(COLL__OUT_COMPLEX, "COLL_NO_COMPLEX") X(COLL__OUT_PAIRS, "COLL_NO_PAIRS") X(COLL__OUT_INT8_16, "COLL_NO_INT8_16")

#define COLL__TYPES_ASKED (COLL__TYPES_LISTED & ~(COLL__OUT_MIXED | COLL__OUT_FP8 | COLL__OUT_MX | COLL__OUT_COMPLEX          \
                                                  | COLL__OUT_PAIRS | COLL__OUT_INT8_16))
#if COLL__TYPES_ASKED & COLL__TYPES_MIXED || !defined(COLL_NO_TUNER)
#define COLL__TYPES_THERE (COLL__TYPES_ASKED | COLL__TYPED_f32)
#else
#define COLL__TYPES_THERE COLL__TYPES_ASKED
#endif

/* ---- >>questions: constants, so that the compiler drops what stands behind a 0 ---- */

#define COLL__HAS(type) (COLL__TYPES_THERE >> (type) & 1u)
#define COLL__IF(type, what) (COLL__HAS(type) ? (what) : NULL)
#define COLL__HAS_ANY(types) ((COLL__TYPES_THERE & (types)) != 0)

/* Floats with an accumulator or a wire of another type; a lone one of f32 and f64 has neither. */
#define COLL__HAS_CONVERSIONS                                                                                                 \
    (COLL__HAS_ANY(COLL__TYPES_MIXED) || (COLL__HAS_ANY(COLL__TYPED_f32) && COLL__HAS_ANY(COLL__TYPED_f64)))

#if defined(COLL_NO_STOCHASTIC)
#define COLL__ALLOWS_STOCHASTIC 0
#else
#define COLL__ALLOWS_STOCHASTIC 1
#endif
#if defined(COLL_NO_REPRODUCIBLE)
#define COLL__ALLOWS_REPRODUCIBLE 0
#else
#define COLL__ALLOWS_REPRODUCIBLE 1
#endif
#if defined(COLL_NO_SCALE)
#define COLL__HAS_SCALE 0
#else
#define COLL__HAS_SCALE 1
#endif
#define COLL__HAS_STOCHASTIC (COLL__ALLOWS_STOCHASTIC && COLL__HAS_ANY(COLL__TYPES_16 | COLL__TYPES_FP8))
#define COLL__HAS_REPRODUCIBLE (COLL__ALLOWS_REPRODUCIBLE && COLL__HAS_ANY(COLL__TYPED_f64 | COLL__TYPED_c128))

#endif /* COLL_PARTS_TYPES_H */
