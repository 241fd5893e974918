/* coll_arithmetic.h - detects where this program's arithmetic differs from IEEE 754, by computing.
 *
 * There are two causes.  Compiler flags, not all of which the preprocessor sees: such a program is refused.  And modes of the
 * processor, which belong to the thread; other code may have set them: programs or libraries linked with -ffast-math flush
 * subnormals.  Then results are equal only if all ranks do the same.  So the word is sent in the hello, and ranks with other
 * words are refused.  0: as in IEEE 754. */
#ifndef COLL_ARITHMETIC_H
#define COLL_ARITHMETIC_H

#include "coll_types.h"

enum {
    COLL__FUSES = 1, COLL__REORDERS = 2, COLL__INVERTS = 4, COLL__DROPS_SIGNS = 8, COLL__HAS_NO_NAN = 16, COLL__SHORTENS = 32,
    COLL__COMPILED = 0xff,                        /* bits of the compiler; the others are the processor's     */
    COLL__FLUSHES = 0x100, COLL__IGNORES_SUBNORMALS = 0x200,
    COLL__ROUNDS_UP = 0x400, COLL__ROUNDS_DOWN = 0x800, COLL__ROUNDS_TO_ZERO = 0x1000
};

#if COLL__HAS_CHOICE || COLL__HAS_ANY(COLL__TYPES_FLOAT)

/* Modes of the processor, at run time.  Flags and modes apply to all types, and a processor may have f32 only: f32 is tested. */
static uint32_t coll__processor_modes(void)
{
#if defined(__SOFTFP__) || (defined(__riscv) && !defined(__riscv_flen))      /* no floating-point unit, so no modes */
    return 0;
#endif
    volatile float one = 1, tiny = 0x1p-60f, least = coll__float32(0x00800000u), lower = coll__float32(1u);
    const float above = one + tiny, below = one - tiny, beneath = -one - tiny;
    uint32_t modes = 0;

    if (coll__bits32(least * 0.5f) == 0) modes |= COLL__FLUSHES;
    if (coll__bits32(lower * 0x1p60f) == 0) modes |= COLL__IGNORES_SUBNORMALS;
    if (above > 1) return modes | COLL__ROUNDS_UP;
    if (beneath < -1) return modes | COLL__ROUNDS_DOWN;
    return below < 1 ? modes | COLL__ROUNDS_TO_ZERO : modes;
}

/* Modes of the processor and flags of the compiler.  Compiled like the kernels. */
static COLL__UNUSED COLL__KERNEL uint32_t coll__arithmetic(void)
{
    volatile double tenth = 0.1;
    volatile float near_one = 1 + 0x1p-12f, square = 1 + 0x1p-11f, large = 0x1p30f, one = 1, five = 5;
    volatile float minus_zero = coll__float32(0x80000000u), nan = coll__float32(COLL__NAN_F32);
    const float a = near_one, b = large, c = one, product = a * a - square;
    uint32_t word = coll__processor_modes();
    const bool is_to_nearest = !(word & (COLL__ROUNDS_UP | COLL__ROUNDS_DOWN | COLL__ROUNDS_TO_ZERO));

    if (coll__bits32(product) == coll__bits32(0x1p-24f)) word |= COLL__FUSES;
    if (coll__bits32((c + b) - b) == coll__bits32(1)) word |= COLL__REORDERS;
    if (is_to_nearest && coll__bits32(five / 3.0f) != 0x3fd55555u) word |= COLL__INVERTS;
    if (is_to_nearest && coll__bits32(minus_zero + 0.0f) != 0) word |= COLL__DROPS_SIGNS;
    if (coll__bits32(coll__canon32(-nan)) != COLL__NAN_F32) word |= COLL__HAS_NO_NAN;
    if (coll__bits64(tenth) != UINT64_C(0x3fb999999999999a)) word |= COLL__SHORTENS;
    return word;
}

#else

static COLL__UNUSED uint32_t coll__arithmetic(void) { return 0; }

#endif

/* Describe the word, after "it": "flushes subnormals". */
static COLL__UNUSED void coll__arithmetic_text(uint32_t word, char *text, size_t room)
{
    static const struct { uint32_t bit; const char *says; } all[] = {
        { COLL__FUSES, "fuses products with sums" }, { COLL__REORDERS, "regroups sums" },
        { COLL__INVERTS, "multiplies by inverses" }, { COLL__DROPS_SIGNS, "drops the sign of zero" },
        { COLL__HAS_NO_NAN, "knows no NaN" }, { COLL__SHORTENS, "has constants of 32 bits" },
        { COLL__FLUSHES, "flushes subnormals" }, { COLL__IGNORES_SUBNORMALS, "ignores subnormals" },
        { COLL__ROUNDS_UP, "rounds up" }, { COLL__ROUNDS_DOWN, "rounds down" }, { COLL__ROUNDS_TO_ZERO, "rounds toward zero" },
    };
    uint32_t known = 0;

    *text = '\0';
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        known |= all[i].bit;
        if (word & all[i].bit) coll__append(text, room, "%s%s", *text ? ", " : "", all[i].says);
    }
    if (word & ~known) coll__append(text, room, "%s%s", *text ? ", " : "", "does what this version does not know");
    if (!word) coll__append(text, room, "%s", "keeps to IEEE 754");
}

#endif /* COLL_ARITHMETIC_H */
