/* test_mx.c - microscaled wire types and error feedback: the kernels against the definition of the formats, on every tier;
 * calls of every kind, algorithm and world against a model that rounds each input, adds in the canonical order and rounds the
 * result; residuals to the last bit, and their effect.
 *
 *     test_mx [kernels,packs,threads,sim,tcp,lists,options,means]
 */
#include "../support/inside.h"

#include "../support/check.h"
#include "../support/model.h"
#include "mx.h"

static uint64_t seed;

/* ---- >>kernels ---- */

enum { KERNEL_MOST = 1200 };

/* A number whose exponent is near `center`, with all its bits drawn. */
static float drawn(uint64_t random, int center, int width)
{
    const int exponent = center + (int)(random >> 40) % (2 * width + 1) - width;
    const uint32_t field = (uint32_t)(exponent < 0 ? 0 : exponent > 254 ? 254 : exponent);
    const uint32_t bits = (uint32_t)(random & 0x807fffffu) | field << 23;
    float x;

    memcpy(&x, &bits, sizeof x);
    return x;
}

/* Vectors of every sort: groups of one magnitude or of many, zeros, ties, subnormal and the largest numbers, infinities. */
static void draw_vector(float *x, size_t n, uint64_t *state)
{
    for (size_t i = 0; i < n; i++) {
        static int center, width, theme;
        const uint64_t random = support_random(state);
        if (i % MX_GROUP == 0) {
            const uint64_t choice = support_random(state);
            theme = (int)(choice % 10);
            center = theme == 0 ? 254 : theme == 1 ? 3 : (int)(choice >> 8) % 255;
            width = (int)(choice >> 24) % 3 * 5;
        }
        x[i] = drawn(random, center, width);
        if (theme == 2 && random >> 60 < 4) x[i] = random & 1 ? -0.0f : 0.0f;
        if (theme == 3) x[i] = ldexpf((float)((int)(random >> 16) % 1024 - 512), center - 127 - 9);     /* ties           */
        if (theme == 4 && (random >> 50) % 64 == 0) x[i] = random & 1 ? INFINITY : NAN;
        if (theme == 5) x[i] = 0;
    }
}

static bool same_bits(const void *a, const void *b, size_t length) { return !memcmp(a, b, length); }

/* One vector through all kernels of one tier. */
static void check_kernels(coll_type wire, int tier, const float *values, size_t n, size_t shift)
{
    const size_t length = n + (n + MX_GROUP - 1) / MX_GROUP;
    support_buffer from = support_buffer_make(n * sizeof(float), shift), bytes = support_buffer_make(length, shift);
    support_buffer seen = support_buffer_make(n * sizeof(float), shift), through = support_buffer_make(n * sizeof(float), shift);
    support_buffer again = support_buffer_make(length, shift);
    support_buffer *const all[] = { &from, &bytes, &seen, &through, &again };
    double wide[KERNEL_MOST], expected[KERNEL_MOST];
    unsigned char wire_bytes[KERNEL_MOST + KERNEL_MOST / 32 + 1];
    ptrdiff_t at = 0;
    int wrong = 0;

    if (n) memcpy(from.data, values, n * sizeof(float));
    for (size_t i = 0; i < n; i++) wide[i] = (double)values[i];
    for (int i = 0; i < 5; i++) support_seal(all[i]);
    mx_pack(wire, wide, n, wire_bytes);
    mx_seen(wire, wide, n, expected);
    for (size_t i = 0; i < n; i++) {
        const float x = (float)expected[i];
        uint32_t bits = 0x7fc00000u;
        if (!isnan(x)) memcpy(&bits, &x, sizeof bits);
        support_expect(&seen, i * 4, &bits, 4);
        support_expect(&through, i * 4, &bits, 4);
    }
    support_expect(&bytes, 0, wire_bytes, length);
    support_expect(&again, 0, wire_bytes, length);
    coll__mx_map(wire, COLL_F32, tier)(bytes.data, from.data, n);
    coll__mx_map(COLL_F32, wire, tier)(seen.data, bytes.data, n);
    coll__mx_map(wire, wire, tier)(through.data, from.data, n);
    coll__mx_map(wire, COLL_F32, tier)(again.data, seen.data, n);
    for (int i = 0; i < 5; i++) {
        if (support_as_expected(all[i], &at)) continue;
        wrong++;
        fprintf(stderr, "%s of %zu, tier %d: %s differs at byte %td\n", coll_type_name(wire), n, tier,
                (const char *const[]){ "the input", "pack", "unpack", "through", "the second pack" }[i], at);
    }
    CHECK(wrong == 0, "%s, %zu elements, tier %d, seed %llu", coll_type_name(wire), n, tier, (unsigned long long)seed);
    for (int i = 0; i < 5; i++) support_buffer_free(all[i]);
}

/* Doubles are rounded once, whatever lies between: numbers near the middle of two elements, too large and too small ones. */
static void check_doubles(coll_type wire, int tier, size_t n, uint64_t *state)
{
    double x[KERNEL_MOST], seen[KERNEL_MOST], expected[KERNEL_MOST];
    unsigned char bytes[2 * KERNEL_MOST], right[2 * KERNEL_MOST];
    float near[KERNEL_MOST];

    draw_vector(near, n, state);
    for (size_t i = 0; i < n; i++) {
        const uint64_t random = support_random(state);
        const double tie = ldexp((double)(int)((random >> 8) % 512), (int)(random >> 20) % 8 - 4);
        const double middle = random & 1 ? (double)near[i] : tie;
        x[i] = middle * (1 + ldexp((double)((int)(random >> 30) % 3 - 1), -(int)(30 + (random >> 34) % 22)));
        if (random >> 56 == 7) x[i] *= random >> 40 & 1 ? 1e30 : 1e-40;
    }
    const size_t length = mx_pack(wire, x, n, right);
    mx_seen(wire, x, n, expected);
    coll__mx_map(wire, COLL_F64, tier)(bytes, x, n);
    coll__mx_map(COLL_F64, wire, tier)(seen, bytes, n);
    CHECK(same_bits(bytes, right, length), "%s of doubles, tier %d, seed %llu", coll_type_name(wire), tier,
          (unsigned long long)seed);
    bool same = true;
    for (size_t i = 0; i < n; i++) same = same && (isnan(expected[i]) ? isnan(seen[i]) : same_bits(&seen[i], &expected[i], 8));
    CHECK(same, "doubles of %s, tier %d, seed %llu", coll_type_name(wire), tier, (unsigned long long)seed);
}

static void test_kernels(void)
{
    const int best = coll__tier();
    float x[KERNEL_MOST];

    for (coll_type wire = COLL_MXI8; wire <= COLL_MXF8E5M2; wire++) {
        for (int tier = 0; tier <= best; tier++) {
            uint64_t state = seed;
            for (size_t n = 0; n <= 100; n++) {
                draw_vector(x, n, &state);
                check_kernels(wire, tier, x, n, n % 7);
            }
            for (int i = 0; i < (int)(300 * support_scale()); i++) {
                draw_vector(x, KERNEL_MOST, &state);
                check_kernels(wire, tier, x, KERNEL_MOST, (size_t)i % 5);
                check_doubles(wire, tier, (size_t)(1 + i * 7 % KERNEL_MOST), &state);
            }
            for (int i = 0; i < (int)(300 * support_scale()); i++) {            /* any bits at all             */
                for (int k = 0; k < KERNEL_MOST; k++) x[k] = drawn(support_random(&state), 127, 127);
                check_kernels(wire, tier, x, KERNEL_MOST, 0);
            }
        }
    }
}

/* The value of a byte, also of one that no packing returns. */
static double element_of(coll_type wire, int byte)
{
    const model_type f8 = model_type_of(wire == COLL_MXF8E4M3 ? COLL_F8E4M3 : COLL_F8E5M2);
    return wire == COLL_MXI8 ? (double)(byte < 128 ? byte : byte - 256) / 64 : model_value(&f8.part, (uint64_t)byte);
}

/* Every scale with every element, also unused ones, unpacks to its value; packing it again does not change it. */
static void test_groups(void)
{
    for (coll_type wire = COLL_MXI8; wire <= COLL_MXF8E5M2; wire++) {
        int wrong = 0, moved = 0;
        for (int tier = 0; tier <= coll__tier(); tier++) {
            for (int scale = 0; scale < 256; scale++) {
                unsigned char bytes[8 * 33], packed[8 * 33], again[8 * 33];
                float seen[256];
                for (int i = 0; i < 8 * 33; i++) bytes[i] = (unsigned char)(i % 33 ? i / 33 * 32 + i % 33 - 1 : scale);
                coll__mx_map(COLL_F32, wire, tier)(seen, bytes, 256);
                for (int i = 0; i < 256; i++) {
                    const double element = scale == 255 ? (double)NAN : ldexp(element_of(wire, i), scale - 127);
                    const float right = (float)element;
                    wrong += isnan(element) ? !isnan(seen[i]) : !same_bits(&seen[i], &right, sizeof right);
                }
                coll__mx_map(wire, COLL_F32, tier)(packed, seen, 256);
                coll__mx_map(COLL_F32, wire, tier)(seen, packed, 256);
                coll__mx_map(wire, COLL_F32, tier)(again, seen, 256);
                moved += !same_bits(packed, again, sizeof packed);
            }
        }
        CHECK(wrong == 0, "%s: %d elements unpack to something else", coll_type_name(wire), wrong);
        CHECK(moved == 0, "%s: %d groups change when they are packed again", coll_type_name(wire), moved);
    }
}

/* No element is off by more than the manual says. */
static void test_bounds(void)
{
    static const double of_largest[] = { 0x1p-7, 0, 0 }, of_itself[] = { 0, 0x1p-4, 0x1p-3 }, cut[] = { 0, 0x1p-3, 0x1p-3 };
    uint64_t state = seed;
    int wrong = 0;

    for (int round = 0; round < 20000; round++) {
        float x[MX_GROUP], seen[MX_GROUP], largest = 0;
        const int k = round % 3;
        for (int i = 0; i < MX_GROUP; i++) x[i] = drawn(support_random(&state), 120, 2);
        for (int i = 0; i < MX_GROUP; i++) largest = fmaxf(largest, fabsf(x[i]));
        coll__mx_map(COLL_MXI8 + k, COLL_MXI8 + k, coll__tier())(seen, x, MX_GROUP);
        for (int i = 0; i < MX_GROUP; i++) {
            const double magnitude = (double)fabsf(x[i]), part = magnitude * 8 > (double)largest * 7 ? cut[k] : of_itself[k];
            wrong += fabs((double)seen[i] - (double)x[i]) > fmax(of_largest[k] * (double)largest, part * magnitude);
        }
    }
    CHECK(wrong == 0, "%d elements are off by more than their format allows", wrong);
}

/* ---- >>packs: the codec, for every type over every such wire ---- */

static const coll_type users[] = { COLL_F32, COLL_F64, COLL_F16, COLL_BF16 };

/* x, as the elements of a type that are nearest, and as what these are. */
static void *elements_of(coll_type type, double *x, size_t n)
{
    const model_type t = model_type_of(type);
    unsigned char *const at = support_need(malloc(n * t.size + 1));

    for (size_t i = 0; i < n; i++) {
        const uint64_t bits = model_bits(&t.part, x[i], false);
        support_store(&t.part, at + i * t.size, bits);
        x[i] = model_value(&t.part, bits);
    }
    return at;
}

/* A sum of any size, as the result of a rank, and as others get it when that is packed again. */
static void check_sums(const coll__codec *codec, coll_type type, coll_type wire, const double *x, size_t n)
{
    double wide[KERNEL_MOST], seen[KERNEL_MOST];
    unsigned char bytes[2 * KERNEL_MOST], back[8 * KERNEL_MOST];

    memcpy(wide, x, n * sizeof *wide);
    void *const sum = elements_of(codec->acc_size == 8 ? COLL_F64 : COLL_F32, wide, n);
    mx_result(wire, type, wide, n, seen);
    void *const expected = elements_of(type, seen, n);
    codec->store_wire(bytes, sum, n);
    coll__unpack(codec, back, bytes, n);
    CHECK(same_bits(back, expected, n * codec->type_size), "a sum to %s by %s", coll_type_name(type), coll_type_name(wire));
    coll__pack(codec, bytes, back, n, 0, 0);
    coll__unpack(codec, back, bytes, n);
    CHECK(same_bits(back, expected, n * codec->type_size), "a sum to %s by %s twice", coll_type_name(type), coll_type_name(wire));
    free(sum);
    free(expected);
}

static void check_packs(coll_type type, coll_type wire, coll_type sum, size_t n, uint64_t *state)
{
    const coll_call call = { .type = type, .wire = wire, .accumulate = sum, .op = COLL_SUM };
    double x[KERNEL_MOST], seen[KERNEL_MOST];
    unsigned char bytes[2 * KERNEL_MOST], right[2 * KERNEL_MOST], back[8 * KERNEL_MOST], again[2 * KERNEL_MOST];
    float near[KERNEL_MOST];
    coll__codec codec;
    char why[120] = "";

    draw_vector(near, n, state);
    for (size_t i = 0; i < n; i++) x[i] = (double)near[i];
    const bool is_there = coll__codec_reduce(&codec, &call, 3, why, sizeof why);
    CHECK(is_there, "%s", why);
    if (is_there) check_sums(&codec, type, wire, x, n);
    void *const in = elements_of(type, x, n);
    if (is_there) {
        const size_t length = mx_pack(wire, x, n, right);
        CHECK(coll__wire_bytes(&codec, n) == length, "%zu bytes, not %zu", coll__wire_bytes(&codec, n), length);
        coll__pack(&codec, bytes, in, n, 0, 0);
        CHECK(same_bits(bytes, right, length), "%s over %s of %zu", coll_type_name(type), coll_type_name(wire), n);
        coll__unpack(&codec, back, bytes, n);
        mx_result(wire, type, x, n, seen);
        void *const expected = elements_of(type, seen, n);
        CHECK(same_bits(back, expected, n * codec.type_size), "%s from %s of %zu", coll_type_name(type), coll_type_name(wire), n);
        coll__pack(&codec, again, back, n, 0, 0);
        coll__unpack(&codec, back, again, n);
        CHECK(same_bits(back, expected, n * codec.type_size), "%s over %s twice", coll_type_name(type), coll_type_name(wire));
        free(expected);
    }
    free(in);
}

static void test_packs(void)
{
    uint64_t state = seed;

    for (int t = 0; t < 4; t++)
        for (coll_type wire = COLL_MXI8; wire <= COLL_MXF8E5M2; wire++)
            for (int i = 0; i < (int)(200 * support_scale()); i++)
                check_packs(users[t], wire, i % 2 ? COLL_F64 : 0, (size_t)(i * 31 % KERNEL_MOST), &state);
}

/* ---- >>calls ---- */

enum { TIMES = 3, RANKS_MOST = 64, FORMS = 3 };

typedef enum style { RUN, START, PREPARE, STYLES } style;

/* A call, the inputs of all ranks, and the expected results after each repetition. */
typedef struct example {
    int         size, number;
    coll_kind   kind;
    coll_type   type, wire, sum;
    coll_op     op;
    double      scale;
    bool        is_canonical, feeds;
    style       style;
    int         form, root;                       /* apart, send == recv, COLL_IN_PLACE                       */
    char        algorithm[24];                    /* "": the library's choice                                 */
    size_t      count, total;                     /* of a block, of an input                                  */
    size_t      counts[RANKS_MOST];               /* of the blocks in which groups begin                      */
    int         blocks;
    void       *inputs[RANKS_MOST];
    float      *residuals[TIMES + 1][RANKS_MOST];
    void       *results[TIMES][RANKS_MOST];       /* NULL: none; of a scan for every rank, of others the whole vector */
    uint64_t    digests[RANKS_MOST];
} example;

static bool is_scan(coll_kind kind) { return kind == COLL_SCAN || kind == COLL_EXSCAN; }
static bool is_scattered(coll_kind kind) { return kind == COLL_REDUCE_SCATTER || kind == COLL_REDUCE_SCATTERV; }

static const model_kind *drawn_kind(uint64_t random)
{
    static const coll_kind kinds[] = { COLL_ALLREDUCE, COLL_ALLREDUCE, COLL_REDUCE, COLL_REDUCE_SCATTER, COLL_REDUCE_SCATTERV,
                                       COLL_SCAN, COLL_EXSCAN, COLL_ALLREDUCE_LIST };
    return model_kind_of(kinds[random % 8]);
}

/* The numbers of a call, from nothing but its number. */
static void example_draw(example *e, int size, int number)
{
    static const coll_op ops[] = { COLL_SUM, COLL_SUM, COLL_AVG, COLL_PROD, COLL_MIN, COLL_MAX };
    static const coll_type narrow[] = { COLL_BF16, COLL_F16, COLL_F8E4M3, COLL_F8E5M2 };
    uint64_t state = support_mix(seed ^ (uint64_t)number << 20 ^ (uint64_t)size << 50);
    const uint64_t random = support_random(&state), more = support_random(&state);
    const model_kind *kind = drawn_kind(more);
    const size_t most = size > 8 ? 200 : random >> 60 == 0 ? 6000 : 700;

    *e = (example){ .size = size, .number = number, .kind = kind->kind };
    e->style = (style)((more >> 16) % STYLES);
    e->op = ops[(more >> 8) % 6];
    e->wire = COLL_MXI8 + (coll_type)((random >> 8) % 3);
    e->type = users[(random >> 16) % 4 * (random >> 20 & 1)];
    e->sum = e->type != COLL_F64 && (random >> 24) % 4 == 0 ? COLL_F64 : 0;
    e->scale = (e->op == COLL_SUM || e->op == COLL_AVG) && (random >> 28 & 3) == 0 ? -0.375 : 0;
    e->feeds = e->type != COLL_F64 && e->kind != COLL_ALLREDUCE_LIST && (random >> 32) % 3 == 0;
    if (e->feeds && e->type == COLL_F32 && (random >> 36 & 1)) e->wire = narrow[(random >> 40) % 4];
    if (e->feeds && e->type != COLL_F32 && (random >> 36 & 1)) e->wire = narrow[2 + (random >> 40) % 2];
    if (is_scan(e->kind) && e->op == COLL_AVG) e->op = COLL_SUM;
    e->form = (int)((more >> 24) % FORMS);
    e->root = (int)((more >> 28) % (uint64_t)size);
    e->count = (size_t)(more >> 36) % most;
    if ((more >> 32 & 3) == 0) e->count = e->count / MX_GROUP * MX_GROUP + (more >> 34 & 1);
    const char *name = kind->algorithms[(random >> 44) % 8];
    const bool is_exact = e->op == COLL_MIN || e->op == COLL_MAX;
    if (name && (strcmp(name, "census") || is_exact || is_scan(e->kind))) {
        static const char *const numbers[] = { "", ":2", ":3", ":7" };
        snprintf(e->algorithm, sizeof e->algorithm, "%s%s", name, numbers[(random >> 50) % 4]);
    }
    const bool keeps = !name || !strcmp(name, "gather") || !strcmp(name, "direct") || !strcmp(name, "transposed")
                    || !strcmp(name, "chain") || (!strcmp(name, "tree") && e->kind != COLL_REDUCE);
    e->is_canonical = is_exact || (keeps && (random >> 54 & 7) != 0);
}

/* Blocks, in each of which groups begin again. */
static void example_cut(example *e)
{
    uint64_t state = support_mix(seed + (uint64_t)e->number);

    e->blocks = is_scattered(e->kind) ? e->size : e->kind == COLL_ALLREDUCE_LIST ? 5 : 1;
    for (int i = 0; i < e->blocks; i++) {
        const uint64_t random = support_random(&state);
        e->counts[i] = e->kind == COLL_REDUCE_SCATTERV || e->kind == COLL_ALLREDUCE_LIST
                           ? (size_t)(random % (2 * e->count + 1)) * (random >> 60 != 0) : e->count;
        e->total += e->counts[i];
    }
}

/* Element i of the input of a rank: within a group of very different sizes, sometimes with a NaN, sometimes tiny. */
static double example_value(const example *e, int rank, size_t i)
{
    const uint64_t group = support_mix(seed ^ support_mix((uint64_t)e->number << 32 ^ i / 24));
    const uint64_t random = support_mix(group ^ (uint64_t)rank << 40 ^ i * 977);
    const int range = e->type == COLL_F16 ? 9 : 30, center = (int)(group % 3) * range / 2 - range / 2;
    const double value = ldexp((double)((int64_t)(random << 8) >> 40), center - 22 + (int)(random & 7) - 3);

    if ((group >> 40) % 32 == 0 && random >> 58 == 0) return (double)INFINITY;
    if ((group >> 50) % 16 == 0) return ldexp(value, e->type == COLL_F16 ? -18 : -130);
    return group >> 60 == 3 ? 0 : value;
}

/* What the elements of the first ranks make of element i, before it is rounded. */
static double example_reduce(const example *e, double *const *seen, int n, size_t i)
{
    const bool is_wide = e->type == COLL_F64 || e->sum == COLL_F64;
    const double scale = e->scale != 0 ? e->scale : 1;
    double wide[RANKS_MOST], result;
    float narrow[RANKS_MOST];

    for (int r = 0; r < n; r++) wide[r] = seen[r][i], narrow[r] = (float)seen[r][i];
    if (is_wide) {
        result = wide[0];
        for (int r = 1; r < n && is_scan(e->kind); r++) result = support_combine_double(e->op, result, wide[r]);
        if (!is_scan(e->kind)) result = support_tree_double(e->op, wide, n);
        if (e->op == COLL_AVG) result /= (double)n;
        return result * scale;
    }
    float single = narrow[0];
    for (int r = 1; r < n && is_scan(e->kind); r++) single = support_combine_float(e->op, single, narrow[r]);
    if (!is_scan(e->kind)) single = support_tree_float(e->op, narrow, n);
    if (e->op == COLL_AVG) single /= (float)n;
    return (double)(single * (float)scale);
}

/* Block by block: what the wire makes of x, as numbers and as elements. */
static void example_round(const example *e, const double *x, double *result, bool is_user)
{
    for (size_t at = 0, b = 0; b < (size_t)e->blocks; at += e->counts[b++]) {
        if (is_user) mx_result(e->wire, e->type, x + at, e->counts[b], result + at);
        else mx_seen(e->wire, x + at, e->counts[b], result + at);
    }
}

/* The input of a rank with its residual, as the wire has it, and the residual of the next time. */
static void example_feed(example *e, int time, int rank, double *x, double *t)
{
    float *const next = support_need(malloc(e->total * sizeof(float) + 1));

    for (size_t i = 0; i < e->total; i++) t[i] = (double)((float)x[i] + e->residuals[time][rank][i]);
    example_round(e, t, x, true);
    for (size_t i = 0; i < e->total; i++) {
        const float left = (float)t[i] - (float)x[i];
        next[i] = isfinite(left) ? left : 0;
    }
    e->residuals[time + 1][rank] = next;
}

static void example_foresee(example *e, int time, const double *const *inputs)
{
    double *seen[RANKS_MOST], *t = support_need(malloc(e->total * 8 + 1)), *x = support_need(malloc(e->total * 8 + 1));

    for (int r = 0; r < e->size; r++) {
        seen[r] = support_need(malloc(e->total * 8 + 1));
        if (e->total) memcpy(x, inputs[r], e->total * 8);
        if (e->feeds) example_feed(e, time, r, x, t);
        example_round(e, x, seen[r], false);
    }
    for (int r = 0; r < (is_scan(e->kind) ? e->size : 1); r++) {
        const int n = !is_scan(e->kind) ? e->size : e->kind == COLL_SCAN ? r + 1 : r;
        if (n == 0) continue;
        for (size_t i = 0; i < e->total; i++) t[i] = example_reduce(e, seen, n, i);
        example_round(e, t, x, true);
        e->results[time][r] = elements_of(e->type, x, e->total);
    }
    for (int r = 0; r < e->size; r++) free(seen[r]);
    free(t);
    free(x);
}

static void example_make(example *e, int size, int number)
{
    double *inputs[RANKS_MOST];

    example_draw(e, size, number);
    example_cut(e);
    for (int r = 0; r < size; r++) {
        inputs[r] = support_need(malloc(e->total * 8 + 1));
        e->residuals[0][r] = support_need(malloc(e->total * sizeof(float) + 1));
        for (size_t i = 0; i < e->total; i++) {
            inputs[r][i] = example_value(e, r, i);
            e->residuals[0][r][i] = ldexpf((float)(int)(support_mix(i ^ (uint64_t)r << 20) % 4096) - 2048, -22);
        }
        e->inputs[r] = elements_of(e->type, inputs[r], e->total);
    }
    for (int time = 0; time < (e->feeds ? TIMES : 1); time++) example_foresee(e, time, (const double *const *)inputs);
    for (int r = 0; r < size; r++) free(inputs[r]);
}

static void example_free(example *e)
{
    for (int r = 0; r < e->size; r++) {
        free(e->inputs[r]);
        for (int time = 0; time < TIMES; time++) free(e->results[time][r]);
        for (int time = 0; time <= TIMES; time++) free(e->residuals[time][r]);
    }
}

static void example_name(const example *e, char *text, size_t room)
{
    snprintf(text, room, "number %d of seed %llu on %d ranks: %s of %zu %s over %s (%s, sum in %s), %s%s%s, style %d, form %d, "
             "root %d", e->number, (unsigned long long)seed, e->size, coll_kind_name(e->kind), e->count, coll_type_name(e->type),
             coll_type_name(e->wire), coll_op_name(e->op), e->sum ? "f64" : "the usual", *e->algorithm ? e->algorithm : "any",
             e->is_canonical ? ", canonical" : "", e->feeds ? ", with residual" : "", (int)e->style, e->form, e->root);
}

/* One rank's buffers in a call. */
typedef struct place {
    unsigned char *send, *recv;                   /* recv: where the result is to be found                    */
    size_t         result_at, result_count;       /* which of the expected elements                           */
    float         *residual;
    coll_call      call;
    coll_list_item    list[8];
} place;

static void place_make(place *p, const example *e, int rank)
{
    const size_t unit = coll_type_size(e->type), length = e->total * unit;
    const bool is_apart = e->form == 0 || (e->kind == COLL_REDUCE && rank != e->root);

    p->send = support_need(malloc(length + 1));
    p->recv = is_apart ? support_need(malloc(length + 1)) : p->send;
    p->residual = support_need(malloc(e->total * sizeof(float) + 1));
    p->result_count = is_scattered(e->kind) ? e->counts[rank] : e->total;
    p->result_at = 0;
    for (int i = 0; is_scattered(e->kind) && i < rank; i++) p->result_at += e->counts[i];
    p->call = (coll_call){ .kind = e->kind, .send = p->send, .recv = p->recv, .count = e->count, .type = e->type, .wire = e->wire,
                           .accumulate = e->sum, .op = e->op, .scale = e->scale, .root = e->root, .recv_counts = e->counts,
                           .flags = e->is_canonical ? COLL_DETERMINISTIC : 0,
                           .algorithm = *e->algorithm ? e->algorithm : NULL, .residual = e->feeds ? p->residual : NULL };
    if (e->form == 2 && !is_apart) p->call.send = COLL_IN_PLACE;
    if (is_scattered(e->kind) && e->form == 1) p->call.recv = p->recv = p->send + p->result_at * unit;      /* in its block */
    if (e->kind != COLL_ALLREDUCE_LIST) return;
    p->call.list = p->list;
    p->call.list_count = e->blocks;
    p->call.algorithm = NULL;
    for (size_t at = 0, b = 0; b < (size_t)e->blocks; at += e->counts[b++])
        p->list[b] = (coll_list_item){ e->form == 2 ? COLL_IN_PLACE : p->send + at * unit, p->recv + at * unit, e->counts[b],
                                    e->type };
}

static void place_fill(place *p, const example *e, int rank)
{
    const size_t length = e->total * coll_type_size(e->type);

    if (p->recv != p->send && !(is_scattered(e->kind) && e->form == 1) && length) memset(p->recv, 0xa5, length);
    if (length) memcpy(p->send, e->inputs[rank], length);
}

static coll_status place_call(place *p, coll_comm *comm, const example *e, coll_request **request)
{
    const bool is_plain = !e->sum && e->scale == 0 && !p->call.flags && !p->call.algorithm && !e->feeds;
    coll_status status = COLL_OK;

    if (e->style == RUN && e->kind == COLL_ALLREDUCE && is_plain)
        return coll_allreduce_mixed(comm, p->call.send, p->recv, e->count, e->type, e->wire, e->op);
    if (e->style == RUN) return coll_run(comm, &p->call);
    if (e->style == START || !*request) {
        status = e->style == START ? coll_start(comm, &p->call, request) : coll_prepare(comm, &p->call, request);
        if (status != COLL_OK) return status;
    }
    if (e->style == PREPARE) status = coll_restart(*request);
    if (status == COLL_OK) status = coll_wait(*request);
    if (e->style == START) coll_request_free(*request), *request = NULL;
    return status;
}

/* Compare the result of this rank with the expected one. */
static void place_evaluate(place *p, example *e, int rank, int time, const char *name)
{
    const size_t unit = coll_type_size(e->type), length = p->result_count * unit;
    const bool has_result = (e->kind != COLL_REDUCE || rank == e->root) && (e->kind != COLL_EXSCAN || rank > 0);
    const unsigned char *expected = e->results[e->feeds ? time : 0][is_scan(e->kind) ? rank : 0];
    const bool was_kept = p->recv < p->send || p->recv > p->send + e->total * unit || p->recv == p->send + e->total * unit;
    size_t at = 0;

    if (e->is_canonical && has_result && length) {
        expected += p->result_at * unit;
        while (at < length && p->recv[at] == expected[at]) at++;
        CHECK(at == length, "%s, rank %d, time %d: element %zu of %zu", name, rank, time, at / unit, p->result_count);
    }
    if (was_kept || !has_result)
        CHECK(same_bits(p->send, e->inputs[rank], e->total * unit), "%s, rank %d: the input was written", name, rank);
    if (e->feeds)
        CHECK(same_bits(p->residual, e->residuals[time + 1][rank], e->total * sizeof(float)),
              "%s, rank %d, time %d: the residual", name, rank, time);
    if (e->kind != COLL_ALLREDUCE) return;
    for (size_t i = 0; i < length; i++) e->digests[rank] = support_mix(e->digests[rank] ^ p->recv[i]);
}

typedef struct show { example *examples; int count; } show;

/* Calls that were played, by kind and algorithm; the last column: any. */
static unsigned played[MODEL_KIND_COUNT][9];

static void note(const example *e)
{
    const model_kind *kind = model_kind_of(e->kind);
    int i = 0;

    while (i < 8 && kind->algorithms[i] && strncmp(kind->algorithms[i], e->algorithm, strcspn(e->algorithm, ":"))) i++;
    __atomic_fetch_add(&played[kind - model_kinds][*e->algorithm ? i : 8], 1, __ATOMIC_RELAXED);
}

static void check_played(void)
{
    for (int k = 0; k < MODEL_KIND_COUNT; k++) {
        const bool is_there = model_kinds[k].is_reducing;
        for (int i = 0; is_there && i < 8 && model_kinds[k].algorithms[i]; i++)
            CHECK(played[k][i] > 50, "%s by %s: %u calls", coll_kind_name(model_kinds[k].kind), model_kinds[k].algorithms[i],
                  played[k][i]);
        if (is_there) CHECK(played[k][8] > 50, "%s by any: %u calls", coll_kind_name(model_kinds[k].kind), played[k][8]);
    }
}

static int play(coll_comm *comm, void *arg)
{
    const show *s = arg;
    const int rank = coll_rank(comm);

    for (int k = 0; k < s->count; k++) {
        example *e = &s->examples[k];
        coll_request *request = NULL;
        place p;
        char name[320];

        example_name(e, name, sizeof name);
        place_make(&p, e, rank);
        if (e->total) memcpy(p.residual, e->residuals[0][rank], e->total * sizeof(float));
        for (int time = 0; time < TIMES; time++) {
            place_fill(&p, e, rank);
            const coll_status status = place_call(&p, comm, e, &request);
            if (status == COLL_ERR_UNSUPPORTED) break;        /* an algorithm that is not for this call, on all ranks */
            CHECK(status == COLL_OK, "%s, rank %d: %s", name, rank, coll_error(comm));
            if (status != COLL_OK) return 1;
            note(e);
            place_evaluate(&p, e, rank, time, name);
        }
        coll_request_free(request);
        if (p.recv < p.send || p.recv > p.send + e->total * coll_type_size(e->type)) free(p.recv);
        free(p.send);
        free(p.residual);
    }
    return 0;
}

/* `count` calls on `size` ranks of a world. */
static void test_calls(const char *world, int size, int count)
{
    static int number;
    show s = { support_need(calloc((size_t)count, sizeof(example))), count };
    int failed;

    for (int k = 0; k < count; k++) example_make(&s.examples[k], size, ++number);
    if (!strcmp(world, "sim")) {
        const coll_config config = { .transport = "sim" };
        failed = coll_spawn(size, play, &s, &config);
        if (failed) fprintf(stderr, "%s\n", coll_error(NULL));
    } else failed = support_run(world, size, play, &s);
    CHECK(failed == 0, "%s, %d ranks: %d failed", world, size, failed);
    for (int k = 0; k < count; k++) {
        example *e = &s.examples[k];
        bool same = true;
        for (int r = 1; r < size; r++) same = same && e->digests[r] == e->digests[0];
        CHECK(same, "number %d of seed %llu, %s, %d ranks: results differ between ranks", e->number, (unsigned long long)seed,
              world, size);
        example_free(e);
    }
    free(s.examples);
}

/* ---- >>lists: one after the other, what was between the buffers of the last one is forgotten ---- */

enum { LIST_COUNT = 5 };

static int restart(coll_comm *comm, void *arg)
{
    float x[2][LIST_COUNT], y[2][LIST_COUNT];
    const coll_list_item list[2] = { { x[0], y[0], LIST_COUNT, COLL_F32 }, { x[1], y[1], LIST_COUNT, COLL_F32 } };
    const coll_call call = { .kind = COLL_ALLREDUCE_LIST, .list = list, .list_count = 2, .wire = COLL_MXF8E4M3 };
    coll_request *request;
    int wrong = 0;

    (void)arg;
    if (coll_prepare(comm, &call, &request)) return 1;
    for (int time = 0; time < 3; time++) {
        for (int i = 0; i < LIST_COUNT; i++) x[0][i] = x[1][i] = ldexpf(1, i);
        if (time == 0) x[0][2] = NAN;
        if (time == 1) x[0][3] = x[1][0] = 0x1p100f;
        wrong += coll_restart(request) != COLL_OK || coll_wait(request) != COLL_OK;
        for (int i = 0; i < LIST_COUNT; i++) {
            const float large = i == 3 ? 0x1p101f : 0;
            if (time == 0) wrong += !isnan(y[0][i]) || y[1][i] != ldexpf(2, i);
            if (time == 1) wrong += y[0][i] != large || y[1][i] != (i == 0 ? 0x1p101f : 0);
            if (time == 2) wrong += y[0][i] != ldexpf(2, i) || y[1][i] != ldexpf(2, i);
        }
    }
    coll_request_free(request);
    return wrong;
}

static void test_lists(void)
{
    CHECK(support_run("threads", 2, restart, NULL) == 0, "a list that is started again");
    CHECK(support_run("tcp-poll", 2, restart, NULL) == 0, "a list that is started again over TCP");
}

/* ---- >>options: what only some calls say ---- */

/* COLL_SATURATE keeps a sum of f16 finite over these wires too; without it all of its group is NaN, on every rank. */
static int overflow(coll_comm *comm, void *arg)
{
    static const char *const algorithms[] = { NULL, "gather", "direct", "circulant", "tree" };
    const model_type f16 = model_type_of(COLL_F16);
    int wrong = 0;

    (void)arg;
    for (int k = 0; k < 30; k++) {
        const coll_type wire = COLL_MXI8 + k % 3;
        const bool saturates = k / 3 % 2;
        uint16_t x[40], y[40];
        double sums[40], expected[40];
        coll_call call = { .kind = COLL_ALLREDUCE, .send = x, .recv = y, .count = 40, .type = COLL_F16, .wire = wire,
                           .flags = saturates ? COLL_SATURATE : 0, .algorithm = algorithms[k / 6] };
        for (int i = 0; i < 40; i++) {
            const double value = i == 3 ? 40960 : i == 5 ? -40960 : i;
            double seen[40], all[40];
            for (int j = 0; j < 40; j++) all[j] = j == 3 ? 40960 : j == 5 ? -40960 : j;
            mx_seen(wire, all, 40, seen);
            x[i] = (uint16_t)model_bits(&f16.part, value, false);
            sums[i] = seen[i] * coll_size(comm);
            if (saturates) sums[i] = fmin(fmax(sums[i], -65504), 65504);
        }
        mx_result(wire, COLL_F16, sums, 40, expected);
        wrong += coll_run(comm, &call) != COLL_OK;
        for (int i = 0; i < 40; i++) wrong += y[i] != model_bits(&f16.part, expected[i], false);
        wrong += saturates == (y[0] == 0x7e00) || y[35] == 0x7e00;
    }
    return wrong;
}

/* To explain a call is not to make it. */
static int explained(coll_comm *comm, void *arg)
{
    float x[64] = { 0.3f }, y[64] = { 7 }, residual[64] = { 0.5f };
    const coll_call call = { .kind = COLL_REDUCE, .send = x, .recv = y, .count = 64, .type = COLL_F32, .wire = COLL_MXI8,
                             .residual = residual };
    char text[400] = "";

    (void)arg;
    return coll_explain(comm, &call, text, sizeof text) <= 0 || !strstr(text, "mxi8") || y[0] != 7 || residual[0] != 0.5f;
}

static void test_options(void)
{
    CHECK(support_run("threads", 3, overflow, NULL) == 0, "sums beyond f16");
    CHECK(support_run("tcp-poll", 3, overflow, NULL) == 0, "sums beyond f16 over TCP");
    CHECK(support_run("threads", 2, explained, NULL) == 0, "coll_explain");
    CHECK(support_run("tcp-poll", 2, explained, NULL) == 0, "coll_explain over TCP");
}

/* ---- >>traffic: 33 bytes for 32 elements ---- */

static int send_half(coll_comm *comm, void *arg)
{
    enum { COUNT = 64 << 10 };
    float *const x = support_need(calloc(COUNT, sizeof *x));
    uint64_t *const bytes = arg, before = 0, after = 0;
    const coll_call call = { .kind = COLL_ALLREDUCE, .send = COLL_IN_PLACE, .recv = x, .count = COUNT, .type = COLL_F32,
                             .wire = COLL_MXF8E5M2, .algorithm = "direct" };
    int failed = coll_barrier(comm) != COLL_OK;

    coll_traffic(comm, &before, NULL);
    failed += coll_run(comm, &call) != COLL_OK;
    coll_traffic(comm, &after, NULL);
    if (coll_rank(comm) == 0) *bytes = after - before;
    free(x);
    return failed;
}

static void test_traffic(void)
{
    uint64_t bytes = 0;

    CHECK(support_run("tcp-poll", 2, send_half, &bytes) == 0, "allreduce fails");
    CHECK(bytes >= 33 * 2048 && bytes < 33 * 2048 + 2048, "half of the inputs and half of the result are %llu bytes",
          (unsigned long long)bytes);
}

/* ---- >>means: what feedback is for ---- */

enum { MEAN_COUNT = 100, MEAN_TIMES = 1000, MEAN_RANKS = 3 };

/* Small numbers beside large ones.  `apart`: every group comes from one rank, so that the sum is on the wire's grid and only
 * the rounding of the inputs can be wrong; else from all. */
static float mean_input(int rank, int i, bool apart)
{
    const float x = i % 32 == 0 ? 1.0f : 0.0123f * (float)(i % 7 + 1);
    return apart ? (i / 32 % MEAN_RANKS == rank ? x : 0.0f) : x / (float)(1 + rank);
}

typedef struct mean { bool apart, feeds; double worst; } mean;

static int average(coll_comm *comm, void *arg)
{
    mean *m = arg;
    const int rank = coll_rank(comm);
    float x[MEAN_COUNT], y[MEAN_COUNT], residual[MEAN_COUNT] = { 0 };
    double sums[MEAN_COUNT] = { 0 }, worst = 0;
    const coll_call call = { .kind = COLL_ALLREDUCE, .send = x, .recv = y, .count = MEAN_COUNT, .type = COLL_F32,
                             .wire = COLL_MXI8, .residual = m->feeds ? residual : NULL };

    for (int i = 0; i < MEAN_COUNT; i++) x[i] = mean_input(rank, i, m->apart);
    for (int time = 0; time < MEAN_TIMES; time++) {
        if (coll_run(comm, &call)) return 1;
        for (int i = 0; i < MEAN_COUNT; i++) sums[i] += (double)y[i];
    }
    for (int i = 0; i < MEAN_COUNT; i++) {
        double right = 0;
        for (int r = 0; r < MEAN_RANKS; r++) right += (double)mean_input(r, i, m->apart);
        worst = fmax(worst, fabs(sums[i] / MEAN_TIMES - right));
    }
    if (rank == 0) m->worst = worst;
    return 0;
}

/* The mean of many sums of the same numbers is their sum, with a residual, and is not without.  Where the result is rounded once
 * more, which a residual of the inputs does not contain, it is nearer than without. */
static void test_means(void)
{
    mean means[] = { { true, false, 0 }, { true, true, 0 }, { false, false, 0 }, { false, true, 0 } };

    for (int i = 0; i < 4; i++) CHECK(support_run("threads", MEAN_RANKS, average, &means[i]) == 0, "allreduce fails");
    CHECK(means[0].worst > 0.003, "without a residual the mean is wrong by %g only", means[0].worst);
    CHECK(means[1].worst <= ldexp(1, -7) / MEAN_TIMES, "with a residual the mean is wrong by %g", means[1].worst);
    CHECK(means[3].worst < means[2].worst, "rounded twice, the mean is wrong by %g with a residual and by %g without",
          means[3].worst, means[2].worst);
}

/* ---- >>main ---- */

int main(int argc, char **argv)
{
    const char *only = argc > 1 ? argv[1] : NULL;
    const double scale = support_scale();

    seed = support_seed();
    printf("seed %llu\n", (unsigned long long)seed);
    support_limit(900, NULL);
    if (support_listed(only, "kernels")) test_kernels(), test_groups(), test_bounds();
    if (support_listed(only, "packs")) test_packs();
    for (int size = 1; size <= 8; size += size < 4 ? 1 : 2)
        if (support_listed(only, "threads")) test_calls("threads", size, (int)(400 * scale));
    for (int size = 1; size <= 9; size++)
        if (support_listed(only, "sim")) test_calls("sim", size, (int)(300 * scale));
    if (support_listed(only, "sim")) test_calls("sim", 64, (int)(20 * scale) + 1);
    if (support_listed(only, "tcp")) {
        test_calls("tcp-poll", 3, (int)(200 * scale));
        test_calls("tcp-poll", 4, (int)(100 * scale));
        if (!support_refusal("tcp-uring")) test_calls("tcp-uring", 2, (int)(100 * scale));
    }
    if (support_listed(only, "lists")) test_lists();
    if (support_listed(only, "options")) test_options();
    if (support_listed(only, "tcp")) test_traffic();
    if (support_listed(only, "means")) test_means();
    if (!only && scale >= 1) check_played();
    return CHECK_DONE();
}
