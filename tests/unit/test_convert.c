/* test_convert.c - conversions, in every tier that this machine has, against a slow reference that shares no code with them, and
 * against the text of one element, which shares no loop.
 *   usage: test_convert [all | STEP]   every one of the 2^32 floats, in a few minutes, or every so many; without: every 251st */
#if defined(__x86_64__) && defined(__OPTIMIZE__) && !defined(__OPTIMIZE_SIZE__) && !defined(COLL_NO_TIERS)
enum { TIERS_WANTED = 4 };
#else
enum { TIERS_WANTED = 1 };
#endif
#define COLL_STATIC                               /* so that unused functions are not compiled    */
#define COLL_IMPLEMENTATION
#include "../../coll.h"

#include "../support/check.h"
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-function"   /* of its oracle of reductions */
#include "numbers.h"
#pragma GCC diagnostic pop

/* ---- >>conversions ---- */

static double value_at(coll_type type, const void *memory, size_t at)
{
    return reference_value(format_of(type), bits_at(memory, coll_type_size(type), at));
}

/* How many of the `count` elements differ from the reference after conversion, on the given tier. */
static size_t wrong_conversions(coll_type to, coll_type from, const void *input, size_t count,
                                int tier)
{
    const size_t size = coll_type_size(to);
    char *const memory = malloc(count * size + 1), *const output = memory + 1;
    size_t wrong = 0;

    if (coll__convert(output, to, input, from, count, tier) != COLL_OK) wrong = count;
    for (size_t i = 0; i < count && !wrong; i++) {
        const uint64_t expected = reference_round(format_of(to), value_at(from, input, i));
        const uint64_t got = bits_at(output, size, i);
        if (got == expected) continue;
        fprintf(stderr, "%s %#llx to %s: %#llx, expected %#llx\n", coll_type_name(from),
                (unsigned long long)bits_at(input, coll_type_size(from), i), coll_type_name(to),
                (unsigned long long)got, (unsigned long long)expected);
        wrong++;
    }
    free(memory);
    return wrong;
}

static void check_conversions_of(coll_type from, const void *input, size_t count, const char *what)
{
    for (size_t k = 0; k < FORMATS; k++) {
        if (formats[k].type == from) continue;
        for (int tier = 0; tier <= coll__tier(); tier++) {
            CHECK(!wrong_conversions(formats[k].type, from, input, count, tier),
                  "%s: %s to %s, tier %d", what, coll_type_name(from),
                  coll_type_name(formats[k].type), tier);
        }
    }
}

/* Every half there is: to each other type, there and back, and through the functions for one. */
static void test_halves(void)
{
    enum { ALL = 65536 };
    uint16_t *const halves = malloc(ALL * sizeof *halves);
    uint64_t *const wide = malloc(ALL * sizeof *wide);
    uint16_t *const back = malloc(ALL * sizeof *back);

    for (int i = 0; i < ALL; i++) halves[i] = (uint16_t)i;
    for (int k = 0; k < 2; k++) {
        const float_format *const f = &formats[k];
        const coll_type wider[2] = { COLL_F32, COLL_F64 };
        size_t wrong = 0;

        check_conversions_of(f->type, halves, ALL, "all halves");
        for (int w = 0; w < 2; w++) {
            coll_convert(wide, wider[w], halves, f->type, ALL);
            coll_convert(back, f->type, wide, wider[w], ALL);
            for (int i = 0; i < ALL; i++) {
                const bool is_nan = isnan(reference_value(f, (uint64_t)i));
                wrong += back[i] != (is_nan ? reference_nan(f) : (uint64_t)i);
            }
        }
        CHECK(wrong == 0, "%zu of %s do not come back", wrong, coll_type_name(f->type));

        for (int i = 0; i < ALL; i++) {
            const float one = k ? coll_bf16_to_f32(halves[i]) : coll_f16_to_f32(halves[i]);
            const uint16_t again = k ? coll_f32_to_bf16(one) : coll_f32_to_f16(one);
            const double value = reference_value(f, (uint64_t)i);
            wrong += bits_at(&one, 4, 0) != reference_round(&formats[2], value);
            wrong += again != reference_round(f, value);
        }
        CHECK(wrong == 0, "%zu of %s differ one by one", wrong, coll_type_name(f->type));
    }
    free(halves);
    free(wide);
    free(back);
}

/* Every upper half of an f32, with lower halves on, just beside, and far from every tie. */
static void test_from_f32(void)
{
    static const uint32_t lower[] = { 0, 1, 0x0fff, 0x1000, 0x1001, 0x2fff, 0x3000, 0x3001,
                                      0x7fff, 0x8000, 0x8001, 0xffff };
    enum { EACH = sizeof lower / sizeof *lower + 1 };
    const size_t count = (size_t)65536 * EACH;
    uint32_t *const input = malloc(count * sizeof *input);

    for (uint32_t i = 0; i < 65536; i++) {
        for (uint32_t k = 0; k < EACH; k++) {
            const uint32_t any = (uint32_t)random_bits() & 0xffff;
            input[i * EACH + k] = i << 16 | (k < EACH - 1 ? lower[k] : any);
        }
    }
    check_conversions_of(COLL_F32, input, count, "f32 on and beside ties");

    /* Ties of the subnormal f16: (k + 1/2) * 2^-24, and their neighbors. */
    for (size_t k = 0; k < 3 * 1025; k++) {
        const float tie = (float)ldexp((double)(k / 3) + 0.5, -24);
        uint32_t bits;
        memcpy(&bits, &tie, sizeof bits);
        input[k] = (bits + (uint32_t)(k % 3) - 1) | (uint32_t)(random_bits() & 1) << 31;
    }
    check_conversions_of(COLL_F32, input, 3 * 1025, "f32 about the ties of subnormal f16");
    free(input);
}

/* The middle between any two neighbouring halves, and the doubles beside it: a conversion by way of
 * f32 would take those for the middle. */
static void test_from_f64(void)
{
    uint64_t *const input = malloc(6 * 65536 * sizeof *input);

    for (size_t k = 0; k < FORMATS; k++) {
        const float_format *const f = &formats[k];
        const uint64_t infinity = reference_round(f, (double)INFINITY);
        const int width = 1 + f->exponent_bits + f->mantissa_bits;
        if (width > 16) continue;
        for (uint64_t i = 0; i >> width == 0; i++) {
            uint64_t *const at = &input[6 * i];
            const uint64_t magnitude = i & ((UINT64_C(1) << (width - 1)) - 1);
            const double low = reference_value(f, magnitude);
            double middle = low;
            if (magnitude < infinity - 1) {
                middle += (reference_value(f, magnitude + 1) - low) / 2;
            } else if (magnitude == infinity - 1) {         /* Halfway to what would come next. */
                middle += (low - reference_value(f, magnitude - 1)) / 2;
            }
            memcpy(at, &middle, sizeof middle);
            at[1] = at[0] + 1;
            at[2] = at[0] - 1;
            at[3] = at[0] + (random_bits() & 0xfffff);
            at[4] = random_bits();
            at[5] = (random_bits() >> 12) | (UINT64_C(1023) - 160 + random_bits() % 320) << 52;
            for (int n = 0; n < 6; n++) at[n] ^= (i >> (width - 1)) << 63;
        }
        check_conversions_of(COLL_F64, input, (size_t)6 << width, "f64 about every middle");
    }
    free(input);
}

/* Every f8 there is: to each other type, there and back, and through the functions for one. */
static void test_bytes(void)
{
    uint8_t bytes[256], back[256];
    uint64_t wide[256];

    for (int i = 0; i < 256; i++) bytes[i] = (uint8_t)i;
    for (size_t k = 4; k < FORMATS; k++) {
        const float_format *const f = &formats[k];
        int wrong = 0;

        check_conversions_of(f->type, bytes, 256, "all bytes");
        for (size_t w = 0; w < 4; w++) {
            coll_convert(wide, formats[w].type, bytes, f->type, 256);
            coll_convert(back, f->type, wide, formats[w].type, 256);
            for (uint64_t i = 0; i < 256; i++) {
                wrong += back[i] != (isnan(reference_value(f, i)) ? reference_nan(f) : i);
            }
        }
        CHECK(wrong == 0, "%d of %s do not come back", wrong, coll_type_name(f->type));
        for (int i = 0; i < 256; i++) {
            const float one = f->type == COLL_F8E4M3 ? coll_f8e4m3_to_f32(bytes[i]) : coll_f8e5m2_to_f32(bytes[i]);
            const uint8_t again = f->type == COLL_F8E4M3 ? coll_f32_to_f8e4m3(one) : coll_f32_to_f8e5m2(one);
            const double value = reference_value(f, (uint64_t)i);
            wrong += bits_at(&one, 4, 0) != reference_round(&formats[2], value) || again != reference_round(f, value);
        }
        CHECK(wrong == 0, "%d of %s differ one by one", wrong, coll_type_name(f->type));
    }
    CHECK(coll_f32_to_f8e4m3(448) == 0x7e && coll_f32_to_f8e4m3(464) == 0x7e && coll_f32_to_f8e4m3(464.1f) == 0x7f
          && coll_f32_to_f8e4m3(-INFINITY) == 0x7f && coll_f32_to_f8e4m3(-0.0f) == 0x80, "%s", "f8e4m3 at its ends");
    CHECK(coll_f32_to_f8e5m2(57344) == 0x7b && coll_f32_to_f8e5m2(61440) == 0x7c && coll_f32_to_f8e5m2(-INFINITY) == 0xfc
          && coll_f32_to_f8e5m2(-NAN) == 0x7e, "%s", "f8e5m2 at its ends");
}

static void test_convert_refusals(void)
{
    uint64_t from[8] = { UINT64_C(0xfff7dead7fa1beef), 2, 3, 4, 5, 6, 7, 8 }, to[8];

    for (coll_type a = 1; a <= TYPES; a++) {
        for (coll_type b = 1; b <= TYPES; b++) {
            const bool floats = format_of(a) && format_of(b);
            const coll_status expected = a == b || floats ? COLL_OK : COLL_ERR_UNSUPPORTED;
            const coll_status status = coll_convert(to, b, from, a, 3);
            CHECK(status == expected, "%s to %s: %d", coll_type_name(a), coll_type_name(b), status);
        }
        CHECK(coll_convert(to, a, from, a, 4) == COLL_OK && !memcmp(to, from, 4 * coll_type_size(a)), "%s copies",
              coll_type_name(a));
    }
    CHECK(coll_convert(to, COLL_BLOB(9), from, COLL_BLOB(9), 2) == COLL_OK && !memcmp(to, from, 18), "%s copies", "a blob");
    CHECK(coll_convert(to, COLL_BLOB(4), from, COLL_F32, 1) == COLL_ERR_UNSUPPORTED, "f32 to %s", "a blob");
    CHECK(coll_convert(NULL, COLL_F32, from, COLL_F16, 1) == COLL_ERR_ARGUMENT, "no %s", "target");
    CHECK(coll_convert(to, COLL_F32, NULL, COLL_F16, 1) == COLL_ERR_ARGUMENT, "no %s", "source");
    CHECK(coll_convert(NULL, COLL_F32, NULL, COLL_F16, 0) == COLL_OK, "no %s", "elements");
    CHECK(coll_convert(NULL, COLL_F32, NULL, COLL_F32, 0) == COLL_OK, "no %s", "f32 to copy");
    CHECK(coll_convert(to, COLL_F32, from, 0, 1) == COLL_ERR_ARGUMENT, "type %d", 0);
    CHECK(coll_convert(to, 99, from, 99, 1) == COLL_ERR_ARGUMENT, "type %d", 99);
    CHECK(coll_convert(to, COLL_F64, from, COLL_F64, SIZE_MAX / 4) == COLL_ERR_ARGUMENT, "count %zu", SIZE_MAX / 4);
}

/* ---- >>tiers: every kernel against the text of one element ---- */

static const coll_type floats[] = { COLL_F16, COLL_BF16, COLL_F8E4M3, COLL_F8E5M2, COLL_F32, COLL_F64 };

/* One element by the text: narrowed from a float. */
static uint64_t narrow_one(coll_type to, float x)
{
    const float canon = coll__canon32(x);
    const double wide = coll__canon64((double)x);

    switch (to) {
    case COLL_F16:    return coll_f32_to_f16(x);
    case COLL_BF16:   return coll_f32_to_bf16(x);
    case COLL_F8E4M3: return coll_f32_to_f8e4m3(x);
    case COLL_F8E5M2: return coll_f32_to_f8e5m2(x);
    case COLL_F32:    return coll__bits32(canon);
    default:          return coll__bits64(wide);
    }
}

static size_t wrong_block(coll_type to, const float *input, size_t count, int tier, void *output)
{
    static uint16_t expected[65536];
    size_t wrong = 0;

    coll__convert(output, to, input, COLL_F32, count, tier);
    if (coll_type_size(to) == 2) {
        for (size_t i = 0; i < count; i++) expected[i] = (uint16_t)narrow_one(to, input[i]);
    } else {
        for (size_t i = 0; i < count; i++) ((uint8_t *)expected)[i] = (uint8_t)narrow_one(to, input[i]);
    }
    if (!memcmp(output, expected, count * coll_type_size(to))) return 0;
    for (size_t i = 0; i < count; i++) {
        if (bits_at(output, coll_type_size(to), i) == bits_at(expected, coll_type_size(to), i)) continue;
        if (!wrong++) {
            fprintf(stderr, "f32 %#x to %s in tier %d: %#llx\n", coll__bits32(input[i]), coll_type_name(to), tier,
                    (unsigned long long)bits_at(output, coll_type_size(to), i));
        }
    }
    return wrong;
}

/* Floats at a distance of `step` bits, from the first to the last there is. */
static void test_dense(uint32_t step)
{
    float *const input = malloc(65536 * sizeof *input);
    uint16_t *const output = malloc(65536 * sizeof *output);
    const int tiers = coll__tier() + 1;
    size_t wrong[4][COLL__TIERS] = { { 0 } };
    uint64_t next = 0;

    while (next >> 32 == 0) {
        size_t count = 0;
        for (; count < 65536 && next >> 32 == 0; next += step) input[count++] = coll__float32((uint32_t)next);
        for (int k = 0; k < 4; k++) {
            for (int tier = 0; tier < tiers; tier++) wrong[k][tier] += wrong_block(floats[k], input, count, tier, output);
        }
    }
    for (int k = 0; k < 4; k++) {
        for (int tier = 0; tier < tiers; tier++) {
            CHECK(!wrong[k][tier], "%zu of f32 to %s, tier %d, step %u", wrong[k][tier], coll_type_name(floats[k]), tier, step);
        }
    }
    free(input);
    free(output);
}

/* Counts about the lengths of vectors, at addresses that are no multiple of anything, and in place where that is allowed;
 * nothing beside the result is written. */
static void test_counts(void)
{
    unsigned char source[8 * 71 + 8], target[8 * 71 + 24], expected[8 * 71 + 24];

    for (int a = 0; a < 6; a++) {
        for (int b = 0; b < 6; b++) {
            const coll_type from = floats[a], to = floats[b];
            const size_t in = coll_type_size(from), out = coll_type_size(to);
            size_t wrong = 0;
            for (size_t count = 0; count <= 70 && from != to; count++) {
                fill(from, source + 1, count);
                memset(expected, 0xa5, sizeof expected);
                for (size_t i = 0; i < count; i++) {
                    const uint64_t bits = reference_round(format_of(to), value_at(from, source + 1, i));
                    memcpy(expected + 7 + i * out, &bits, out);
                }
                for (int tier = 0; tier <= coll__tier(); tier++) {
                    memset(target, 0xa5, sizeof target);
                    coll__convert(target + 7, to, source + 1, from, count, tier);
                    wrong += memcmp(target, expected, sizeof target) != 0;
                    if (in != out) continue;
                    memcpy(target + 7, source + 1, count * in);
                    coll__convert(target + 7, to, target + 7, from, count, tier);
                    wrong += memcmp(target, expected, sizeof target) != 0;
                }
            }
            CHECK(!wrong, "%s to %s: %zu counts", coll_type_name(from), coll_type_name(to), wrong);
        }
    }
}

/* The sums of halves: all of one with some of the other, and the short ways beside the long one. */
static void test_sums_of_halves(void)
{
    enum { ALL = 65536 };
    uint16_t *const a = malloc(ALL * 2 + 2), *const b = malloc(ALL * 2 + 2), *const sum = malloc(ALL * 2);
    float *const wide = malloc(ALL * 4), *const through = malloc(ALL * 4);

    for (int tier = 0; tier <= coll__tier(); tier++) {
        size_t wrong = 0;
        for (int round = 0; round < 8; round++) {
            const size_t count = (size_t)(ALL - round * 3);
            for (size_t i = 0; i < count; i++) {
                a[i] = (uint16_t)i;
                b[i] = (uint16_t)(round < 2 ? (uint64_t)round << 15 : random_bits());
            }
            COLL__PICK_WIDE(coll__whole_f16, tier)(sum, a, b, count);
            COLL__PICK_WIDE(coll__pair_f16, tier)(wide, a, b, count);
            for (size_t i = 0; i < count; i++) {
                const float exact = coll_f16_to_f32(a[i]) + coll_f16_to_f32(b[i]);
                wrong += sum[i] != coll_f32_to_f16(exact) || !(wide[i] == exact || exact != exact);
            }
            COLL__PICK_WIDE(coll__bf16_whole, tier)(sum, a, b, count);
            for (size_t i = 0; i < count; i++) {
                wrong += sum[i] != coll_f32_to_bf16(coll_bf16_to_f32(a[i]) + coll_bf16_to_f32(b[i]));
            }
            COLL__PICK_WIDE(coll__load_f16, tier)(through, b, count);
            COLL__PICK_WIDE(coll__onto_f16, tier)(through, through, a, count);
            for (size_t i = 0; i < count; i++) wrong += coll__bits32(through[i]) != coll__bits32(coll__canon32(wide[i]));
            COLL__PICK_WIDE(coll__load_bf16, tier)(through, b, count);
            COLL__PICK_WIDE(coll__onto_bf16, tier)(through, through, a, count);
            for (size_t i = 0; i < count; i++) {
                const float exact = coll__canon32(coll_bf16_to_f32(a[i]) + coll_bf16_to_f32(b[i]));
                wrong += coll__bits32(through[i]) != coll__bits32(exact);
            }
            COLL__PICK_WIDE(coll__bf16_load, tier)(wide, b, count);
            COLL__PICK_WIDE(coll__bf16_onto, tier)(wide, wide, a, count);
            COLL__PICK_WIDE(coll__bf16_store, tier)(sum, wide, count);
            for (size_t i = 0; i < count; i++) {
                wrong += sum[i] != coll_f32_to_bf16(coll_bf16_to_f32(a[i]) + coll_bf16_to_f32(b[i]));
            }
            COLL__PICK_WIDE(coll__bf16_pair, tier)(wide, a, b, count);
            COLL__PICK_WIDE(coll__bf16_store, tier)(sum, wide, count);
            for (size_t i = 0; i < count; i++) {
                wrong += sum[i] != coll_f32_to_bf16(coll_bf16_to_f32(a[i]) + coll_bf16_to_f32(b[i]));
            }
            COLL__PICK_WIDE(coll__bf16_load, tier)(wide, a, count);
            COLL__PICK_WIDE(coll__bf16_store, tier)(sum, wide, count);
            for (size_t i = 0; i < count; i++) wrong += sum[i] != coll_f32_to_bf16(coll_bf16_to_f32(a[i]));
            for (size_t i = 0; i < count; i++) wide[i] = coll__float32((uint32_t)random_bits());
            COLL__PICK_WIDE(coll__through_f16, tier)(through, wide, count);
            for (size_t i = 0; i < count; i++) {
                const float expected = coll_f16_to_f32(coll_f32_to_f16(wide[i]));
                wrong += coll__bits32(through[i]) != coll__bits32(expected);
            }
            COLL__PICK_WIDE(coll__through_bf16, tier)(through, wide, count);
            for (size_t i = 0; i < count; i++) {
                const float expected = coll_bf16_to_f32(coll_f32_to_bf16(wide[i]));
                wrong += coll__bits32(through[i]) != coll__bits32(expected);
            }
        }
        CHECK(!wrong, "%zu sums of halves, tier %d", wrong, tier);
    }
    free(a), free(b), free(sum), free(wide), free(through);
}

/* ---- >>draws: up or down at random ---- */

static const coll_type drawn[] = { COLL_F16, COLL_BF16, COLL_F8E4M3, COLL_F8E5M2 };

/* Whatever a type has is kept, by any seed; NaNs become canonical. */
static void test_kept(void)
{
    uint32_t *const wide = malloc(65536 * 8);
    uint16_t *const back = malloc(65536 * 2), all[65536];

    for (int i = 0; i < 65536; i++) all[i] = (uint16_t)i;
    for (int k = 0; k < 4; k++) {
        const size_t size = coll_type_size(drawn[k]), count = size == 1 ? 256 : 65536;
        for (int w = 0; w < 2; w++) {
            const coll_type wider = w ? COLL_F64 : COLL_F32;
            uint8_t bytes[256];
            for (int i = 0; i < 256; i++) bytes[i] = (uint8_t)i;
            coll_convert(wide, wider, size == 1 ? (const void *)bytes : all, drawn[k], count);
            for (int tier = 0; tier <= coll__tier(); tier++) {
                size_t wrong = 0;
                coll__convert_stochastic(back, drawn[k], wide, wider, count, random_bits(), random_bits(), tier);
                for (size_t i = 0; i < count; i++) {
                    const bool is_nan = isnan(reference_value(format_of(drawn[k]), i));
                    wrong += bits_at(back, size, i) != (is_nan ? reference_nan(format_of(drawn[k])) : i);
                }
                CHECK(!wrong, "%zu of %s are not kept", wrong, coll_type_name(drawn[k]));
            }
        }
    }
    free(wide);
    free(back);
}

/* Is the result one of the two neighbors of x, or where there are not two, the nearest? */
static bool is_neighbour(coll_type to, double x, uint64_t result)
{
    const float_format *const f = format_of(to);
    const int width = 1 + f->exponent_bits + f->mantissa_bits;
    const uint64_t magnitude = result & ((UINT64_C(1) << (width - 1)) - 1), nearest = reference_round(f, x);
    const uint64_t largest = f->type == COLL_F8E4M3 ? 0x7e : (((UINT64_C(1) << f->exponent_bits) - 1) << f->mantissa_bits) - 1;
    const double size = fabs(x), got = reference_value(f, magnitude);

    if (!(size < reference_value(f, largest)) || got == size) return result == nearest;
    if (result >> (width - 1) != (signbit(x) != 0) || magnitude > largest) return false;
    return got < size ? reference_value(f, magnitude + 1) > size : reference_value(f, magnitude - 1) < size;
}

static void test_neighbours(void)
{
    enum { COUNT_OF = 100003 };
    double *const doubles = malloc(COUNT_OF * 8);
    float *const singles = malloc(COUNT_OF * 4);
    unsigned char *const whole = malloc(COUNT_OF * 2), *const pieces = malloc(COUNT_OF * 2);
    static const uint64_t starts[] = { 0, 77, UINT64_C(0xffffff00), UINT64_C(0x12345fffffff1), UINT64_MAX - 5000 };

    for (int k = 0; k < 4; k++) {
        const size_t size = coll_type_size(drawn[k]);
        for (int w = 0; w < 2; w++) {
            const coll_type from = w ? COLL_F64 : COLL_F32;
            const void *const input = w ? (const void *)doubles : singles;
            for (int s = 0; s < 5; s++) {
                const uint64_t seed = random_bits();
                size_t wrong = 0, differ = 0;
                for (size_t i = 0; i < COUNT_OF; i++) {     /* Half random bits, half near values of the type. */
                    const uint64_t any = random_bits();
                    const int exponent = (int)(random_bits() % 44) - 26;
                    singles[i] = i % 2 ? coll__float32((uint32_t)any) : (float)ldexp((double)(int64_t)any * 0x1p-63, exponent);
                    doubles[i] = i % 2 ? coll__float64(any) : ldexp((double)(int64_t)any * 0x1p-63, exponent);
                }
                coll__convert_stochastic(whole, drawn[k], input, from, COUNT_OF, seed, starts[s], 0);
                for (size_t i = 0; i < COUNT_OF; i++) {
                    wrong += !is_neighbour(drawn[k], w ? doubles[i] : (double)singles[i], bits_at(whole, size, i));
                }
                for (int tier = 0; tier <= coll__tier(); tier++) {
                    for (size_t at = 0, length; at < COUNT_OF; at += length) {
                        length = 1 + random_bits() % 5000;
                        if (length > COUNT_OF - at) length = COUNT_OF - at;
                        coll__convert_stochastic(pieces + at * size, drawn[k], (const char *)input + at * coll_type_size(from),
                                                 from, length, seed, starts[s] + at, tier);
                    }
                    differ += memcmp(whole, pieces, COUNT_OF * size) != 0;
                }
                CHECK(!wrong, "%zu of %s to %s are no neighbours", wrong, coll_type_name(from), coll_type_name(drawn[k]));
                CHECK(!differ, "%s to %s in pieces, %zu tiers", coll_type_name(from), coll_type_name(drawn[k]), differ);
            }
        }
    }
    free(doubles), free(singles), free(whole), free(pieces);
}

/* A number that is a fraction of the way from a neighbor to the next goes up that often: within 5 standard deviations of a
 * million draws, of normal and of subnormal numbers. */
static void test_proportion(void)
{
    enum { DRAWS = 1 << 20 };
    static const double fractions[] = { 0.5, 0.25, 1 / 3.0, 0.01, 0.99, 0x1p-10 };
    double *const doubles = malloc(DRAWS * 8);
    float *const singles = malloc(DRAWS * 4);
    uint16_t *const result = malloc(DRAWS * 2);

    for (int k = 0; k < 4; k++) {
        const float_format *const f = format_of(drawn[k]);
        const uint64_t lows[3] = { (uint64_t)1 << f->mantissa_bits << 2 | 1, 1, 0 };
        for (int c = 0; c < 3 * 6 * 2; c++) {
            const bool is_double = c & 1, is_negative = c & 2;
            const double fraction = fractions[c / 2 % 6], low = reference_value(f, lows[c / 12]);
            const double high = reference_value(f, lows[c / 12] + 1), x = low + (high - low) * fraction;
            const double exact = is_double ? x : (double)(float)x, p = (exact - low) / (high - low);
            size_t ups = 0;
            for (size_t i = 0; i < DRAWS; i++) {
                doubles[i] = is_negative ? -x : x;
                singles[i] = (float)doubles[i];
            }
            const void *const input = is_double ? (const void *)doubles : singles;
            coll_convert_stochastic(result, drawn[k], input, is_double ? COLL_F64 : COLL_F32, DRAWS, 12345 + (uint64_t)c,
                                    UINT64_C(1) << 40);
            for (size_t i = 0; i < DRAWS; i++) {
                const int sign = 1 + f->exponent_bits + f->mantissa_bits - 1;
                ups += (bits_at(result, coll_type_size(drawn[k]), i) & ((UINT64_C(1) << sign) - 1)) == lows[c / 12] + 1;
            }
            const double mean = p * DRAWS, deviation = sqrt(p * (1 - p) * DRAWS);
            CHECK(fabs((double)ups - mean) < 5 * deviation + 1, "%s of %.17g: %zu up, expected %.0f", coll_type_name(drawn[k]), x,
                  ups, mean);
        }
    }
    free(doubles), free(singles), free(result);
}

static double chi_square(const uint32_t *bins, int n, double total)
{
    double sum = 0;
    for (int i = 0; i < n; i++) sum += ((double)bins[i] - total / n) * ((double)bins[i] - total / n) / (total / n);
    return sum;
}

/* The random bits themselves.  Each byte of them, a byte with that of the next element, and with that of another seed, fall
 * evenly; and a bit that changes, of the number or of the seed, changes each of them half of the time. */
static void test_random(void)
{
    enum { DRAWS = 1 << 20, FLIPS = 1 << 14 };
    static uint32_t single[4][256], pairs[2][65536];
    double worst = 0;

    for (uint32_t i = 0; i < DRAWS; i++) {
        const uint64_t keys = coll__stochastic_keys(1, 0), others = coll__stochastic_keys(2, 0);
        const uint32_t bits = coll__stochastic_bits(i, (uint32_t)keys, (uint32_t)(keys >> 32));
        const uint32_t next = coll__stochastic_bits(i + 1, (uint32_t)keys, (uint32_t)(keys >> 32));
        const uint32_t other = coll__stochastic_bits(i, (uint32_t)others, (uint32_t)(others >> 32));
        for (int b = 0; b < 4; b++) single[b][bits >> (8 * b) & 0xff]++;
        pairs[0][(bits >> 24) << 8 | next >> 24]++;
        pairs[1][(bits >> 24) << 8 | other >> 24]++;
    }
    for (int b = 0; b < 4; b++) {                 /* The mean of chi-square is the bins less one, its variance twice that. */
        const double chi = chi_square(single[b], 256, DRAWS);
        CHECK(fabs(chi - 255) < 5 * sqrt(2 * 255.0), "byte %d: chi-square %g of 255", b, chi);
    }
    for (int b = 0; b < 2; b++) {
        const double chi = chi_square(pairs[b], 65536, DRAWS);
        CHECK(fabs(chi - 65535) < 5 * sqrt(2 * 65535.0), "pairs %d: chi-square %g of 65535", b, chi);
    }
    for (int flip = 0; flip < 128; flip++) {
        uint32_t changed[32] = { 0 };
        for (uint32_t i = 0; i < FLIPS; i++) {
            const uint64_t at = random_bits(), seed = random_bits(), bit = UINT64_C(1) << (flip % 64);
            const uint64_t near = flip < 64 ? at ^ bit : at, other = flip < 64 ? seed : seed ^ bit;
            const uint64_t keys = coll__stochastic_keys(seed, at >> 32), keys_2 = coll__stochastic_keys(other, near >> 32);
            const uint32_t change = coll__stochastic_bits((uint32_t)at, (uint32_t)keys, (uint32_t)(keys >> 32))
                                  ^ coll__stochastic_bits((uint32_t)near, (uint32_t)keys_2, (uint32_t)(keys_2 >> 32));
            for (int b = 0; b < 32; b++) changed[b] += change >> b & 1;
        }
        for (int b = 0; b < 32; b++) worst = fmax(worst, fabs((double)changed[b] / FLIPS - 0.5));
    }
    CHECK(worst < 5.5 * 0.5 / sqrt((double)FLIPS), "a bit flips another with 1/2 +- %g", worst);
}

/* The same bits on every machine, in every version: of 4096 draws, a hash. */
static void test_fixed(void)
{
    static const uint64_t hashes[4] = { UINT64_C(0x12b1a8cb4e834fa3), UINT64_C(0xd030ba4c76fad571), UINT64_C(0x1729c163250ced1f),
                                        UINT64_C(0x309d1b3740813625) };
    float input[4096];
    uint16_t output[4096];

    for (int i = 0; i < 4096; i++) input[i] = (float)(i - 2048) * 0.0123f;
    for (int k = 0; k < 4; k++) {
        uint64_t hash = UINT64_C(0xcbf29ce484222325);
        coll_convert_stochastic(output, drawn[k], input, COLL_F32, 4096, 2024, UINT64_C(0xfffff800));
        for (size_t i = 0; i < 4096 * coll_type_size(drawn[k]); i++) {
            hash = (hash ^ ((unsigned char *)output)[i]) * UINT64_C(0x100000001b3);
        }
        CHECK(hash == hashes[k], "%s: %#llx", coll_type_name(drawn[k]), (unsigned long long)hash);
    }
}

/* By way of f32, and where nothing is drawn. */
static void test_other_draws(void)
{
    unsigned char input[8 * 3000], expected[8 * 3000], got[8 * 3000];
    float wide[3000];

    for (int a = 0; a < 6; a++) {
        for (int b = 0; b < 6; b++) {
            const coll_type from = floats[a], to = floats[b];
            const bool is_drawn = from != to && coll_type_size(to) <= 2;
            fill(from, input, 3000);
            memset(expected, 0, sizeof expected);
            memset(got, 0, sizeof got);
            if (is_drawn && coll_type_size(from) <= 2) {
                coll_convert(wide, COLL_F32, input, from, 3000);
                coll_convert_stochastic(expected, to, wide, COLL_F32, 3000, 3, 4);
            } else if (is_drawn) {
                continue;
            } else {
                coll_convert(expected, to, input, from, 3000);
            }
            CHECK(!coll_convert_stochastic(got, to, input, from, 3000, 3, 4) && !memcmp(got, expected, sizeof got),
                  "%s to %s", coll_type_name(from), coll_type_name(to));
        }
    }
    CHECK(coll_convert_stochastic(got, COLL_I32, input, COLL_F32, 1, 0, 0) == COLL_ERR_UNSUPPORTED, "f32 to %s", "i32");
    CHECK(coll_convert_stochastic(got, COLL_F16, input, COLL_I32, 1, 0, 0) == COLL_ERR_UNSUPPORTED, "i32 to %s", "f16");
    CHECK(coll_convert_stochastic(got, 99, input, COLL_F32, 1, 0, 0) == COLL_ERR_ARGUMENT, "type %d", 99);
    CHECK(coll_convert_stochastic(NULL, COLL_F16, input, COLL_F32, 1, 0, 0) == COLL_ERR_ARGUMENT, "no %s", "target");
    CHECK(coll_convert_stochastic(got, COLL_F16, NULL, COLL_BF16, 1, 0, 0) == COLL_ERR_ARGUMENT, "no %s", "source");
    CHECK(coll_convert_stochastic(NULL, COLL_F16, NULL, COLL_F32, 0, 0, 0) == COLL_OK, "no %s", "elements");
}

int main(int argc, char **argv)
{
    static const char *const names[] = { "base", "avx2", "avx512", "avx512bf16" };
    const uint32_t step = argc < 2 ? 251 : !strcmp(argv[1], "all") ? 1 : (uint32_t)strtoul(argv[1], NULL, 0);
    const char *const seed = getenv("COLL_TEST_SEED");

    random_state = seed ? strtoull(seed, NULL, 0) : 1;
    printf("COLL_TEST_SEED=%llu, tiers up to %s\n", (unsigned long long)random_state, names[coll__tier()]);
    CHECK((int)COLL__TIERS == (int)TIERS_WANTED, "%d tiers are compiled in, and %d are wanted", COLL__TIERS, TIERS_WANTED);
    test_halves();
    test_bytes();
    test_from_f32();
    test_from_f64();
    test_convert_refusals();
    test_dense(step ? step : 1);
    test_counts();
    test_sums_of_halves();
    test_kept();
    test_neighbours();
    test_proportion();
    test_random();
    test_fixed();
    test_other_draws();
    return CHECK_DONE();
}
