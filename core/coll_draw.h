/* coll_draw.h: numbers rounded up or down at random, in proportion to the distance. */
#ifndef COLL_DRAW_H
#define COLL_DRAW_H

/* `first`: the number of the first element; the same seed and number draw the same. */
typedef void coll__draw_fn(void *to, const void *from, size_t count, uint64_t seed, uint64_t first);

/* 53 bits, between 0 and 1. */
static double coll__draw_chance(uint64_t seed, uint64_t number)
{
    uint64_t z = seed + (number + 1) * UINT64_C(0x9e3779b97f4a7c15);

    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return (double)((z ^ (z >> 31)) >> 11) * 0x1p-53;
}

/* Of bits of the type. */
static double coll__draw_value(coll_type type, uint32_t bits)
{
    switch (type) {
    case COLL_F16:    return (double)coll__wide_f16(bits);
    case COLL_BF16:   return (double)coll__wide_bf16(bits);
    case COLL_F8E4M3: return (double)coll__wide_f8e4m3(bits);
    default:          return (double)coll__wide_f8e5m2(bits);
    }
}

static uint32_t coll__draw_nearest(coll_type type, double x)
{
    switch (type) {
    case COLL_F16:    return COLL__NARROW_F64_F16(x);
    case COLL_BF16:   return COLL__NARROW_F64_BF16(x);
    case COLL_F8E4M3: return COLL__NARROW_F64_F8E4M3(x);
    default:          return COLL__NARROW_F64_F8E5M2(x);
    }
}

static uint32_t coll__draw_one(coll_type type, double x, double chance)
{
    const uint32_t mark = type >= COLL_F8E4M3 ? 0x80u : 0x8000u, nearest = coll__draw_nearest(type, x);
    const uint32_t sign = nearest & mark;
    const double size = x < 0 ? -x : x, found = coll__draw_value(type, nearest & ~mark);

    if (!(found - found == 0) || found == size) return nearest;
    const uint32_t below = (nearest & ~mark) - (found > size);
    const double low = coll__draw_value(type, below), high = coll__draw_value(type, below + 1);
    if (!(high - high == 0)) return nearest;
    return sign | (below + (chance < (size - low) / (high - low)));
}

#define COLL__DRAW(name, type, TO, FROM)                                                          \
    static void coll__draw_##name(void *to, const void *from, size_t count, uint64_t seed, uint64_t first) \
    {                                                                                             \
        TO *out = to;                                                                             \
        const FROM *in = from;                                                                    \
        for (size_t i = 0; i < count; i++)                                                        \
            out[i] = (TO)coll__draw_one(type, (double)in[i], coll__draw_chance(seed, first + i)); \
    }
COLL__DRAW(f16_f32, COLL_F16, coll__raw_u16, coll__raw_f32)
COLL__DRAW(bf16_f32, COLL_BF16, coll__raw_u16, coll__raw_f32)
COLL__DRAW(f8e4m3_f32, COLL_F8E4M3, coll__raw_u8, coll__raw_f32)
COLL__DRAW(f8e5m2_f32, COLL_F8E5M2, coll__raw_u8, coll__raw_f32)
COLL__DRAW(f16_f64, COLL_F16, coll__raw_u16, coll__raw_f64)
COLL__DRAW(bf16_f64, COLL_BF16, coll__raw_u16, coll__raw_f64)
COLL__DRAW(f8e4m3_f64, COLL_F8E4M3, coll__raw_u8, coll__raw_f64)
COLL__DRAW(f8e5m2_f64, COLL_F8E5M2, coll__raw_u8, coll__raw_f64)

/* NULL: there is none. */
static coll__draw_fn *coll__drawing(coll_type to, coll_type from, int tier)
{
    const bool f32 = from == COLL_F32;

    (void)tier;
    if (!f32 && from != COLL_F64) return NULL;
    switch (to) {
    case COLL_F16:    return f32 ? coll__draw_f16_f32 : coll__draw_f16_f64;
    case COLL_BF16:   return f32 ? coll__draw_bf16_f32 : coll__draw_bf16_f64;
    case COLL_F8E4M3: return f32 ? coll__draw_f8e4m3_f32 : coll__draw_f8e4m3_f64;
    case COLL_F8E5M2: return f32 ? coll__draw_f8e5m2_f32 : coll__draw_f8e5m2_f64;
    default:          return NULL;
    }
}

#endif /* COLL_DRAW_H */
