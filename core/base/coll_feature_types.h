/* coll_feature_types.h - the element types of this program: all, or those of a list of names that coll_type_name gives, as in
 * -DCOLL_ONLY_TYPES=i32,f32,bf16.
 *
 * The list selects arithmetic: reductions of the type, and conversions to and from it, those for the wire among them.  Elements
 * of any type can be sent, and reduced by COLL_USER.  Narrow floats add f32, in which they are summed.  The maximum of u64 is
 * always included. */
#ifndef COLL_FEATURE_TYPES_H
#define COLL_FEATURE_TYPES_H

/* Each type is the bit of its number in coll_type. */
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
#define COLL__TYPES_FLOAT (COLL__TYPES_MIXED | COLL__TYPED_f32 | COLL__TYPED_f64 | COLL__TYPES_COMPLEX | COLL__TYPES_PAIRS)
#define COLL__TYPES_INT8_16 (COLL__TYPED_i8 | COLL__TYPED_i16 | COLL__TYPED_u8 | COLL__TYPED_u16)

#if defined(COLL_ONLY_TYPES)
#define COLL__TYPES_ASKED (COLL__WORDS(|, COLL__TYPED, COLL_ONLY_TYPES) & COLL__TYPES_ALL)
#if !COLL__WORDS(&&, COLL__TYPED, COLL_ONLY_TYPES)
#error "COLL_ONLY_TYPES has a word that coll_type_name does not give: the next error says which"
enum { coll__unknown_type = COLL__WORDS(|, COLL__TYPED, COLL_ONLY_TYPES) != 0 };
#endif
#else
#define COLL__TYPES_ASKED COLL__TYPES_ALL
#endif
#if COLL__TYPES_ASKED & COLL__TYPES_MIXED
#define COLL__TYPES_THERE (COLL__TYPES_ASKED | COLL__TYPED_f32)
#else
#define COLL__TYPES_THERE COLL__TYPES_ASKED
#endif

/* ---- >>tests: constants, so that the compiler removes dead code ---- */

#define COLL__HAS(type) (COLL__TYPES_THERE >> (type) & 1u)
#define COLL__IF(type, what) (COLL__HAS(type) ? (what) : NULL)
#define COLL__HAS_ANY(types) ((COLL__TYPES_THERE & (types)) != 0)

/* Floats with an accumulator or wire of another type; f32 or f64 alone has neither. */
#define COLL__HAS_CONVERSIONS                                                                                                 \
    (COLL__HAS_ANY(COLL__TYPES_MIXED) || (COLL__HAS_ANY(COLL__TYPED_f32) && COLL__HAS_ANY(COLL__TYPED_f64)))

#define COLL__HAS_STOCHASTIC (COLL__IS_WHOLE && COLL__HAS_ANY(COLL__TYPES_16 | COLL__TYPES_FP8))
#define COLL__HAS_REPRODUCIBLE (COLL__IS_WHOLE && COLL__HAS_ANY(COLL__TYPED_f64 | COLL__TYPED_c128))

#endif /* COLL_FEATURE_TYPES_H */
