/* fake_kernels.h - the library's kernels as C functions: what coll_nccl_abi.h says of each name, in the tests' arithmetic. */
#ifndef FAKE_KERNELS_H
#define FAKE_KERNELS_H

#include "../support_numbers.h"

#include "fake.h"

enum { FAKE_PARAMETERS_MOST = 12, FAKE_SOURCES_MOST = 1024 };

/* `sizes`: of the parameters in bytes, one digit each. */
typedef struct fake_kernel {
    const char *name, *sizes;
    void      (*run)(const uint64_t *values);
} fake_kernel;

SUPPORT float fake_f32_of(uint64_t value)
{
    const uint32_t low = (uint32_t)value;
    float number;
    memcpy(&number, &low, sizeof number);
    return number;
}

SUPPORT double fake_f64_of(uint64_t value)
{
    double number;
    memcpy(&number, &value, sizeof number);
    return number;
}

/* Elements of a kernel: where they are, and of which type.  COLL_BOOL is an integer of one byte. */
typedef struct fake_elements { unsigned char *at; const support_type *type; } fake_elements;

SUPPORT fake_elements fake_elements_of(const char *name, uint64_t address, uint64_t count, uint64_t type)
{
    const coll_type wanted = (coll_type)(int32_t)(uint32_t)type;
    const support_type *t = support_type_of(wanted == COLL_BOOL ? COLL_U8 : wanted);

    if (!t) fake_fail("kernel %s has no type %d", name, (int)wanted);
    return (fake_elements){ fake_view((const void *)(uintptr_t)address, (size_t)count * t->size, name), t };
}

SUPPORT double fake_number(const support_type *t, const unsigned char *at) { return support_value(t, support_load(t, at)); }

/* Sources 0 .. n - 1 of a combining kernel; each is checked, also where it overlaps the next one. */
SUPPORT int fake_sources(const char *name, const uint64_t *v, fake_elements *in)
{
    const int n = (int)(int32_t)(uint32_t)v[2];

    if (n < 1 || n > FAKE_SOURCES_MOST) fake_fail("kernel %s has %d sources", name, n);
    for (int k = 0; k < n; k++) in[k] = fake_elements_of(name, v[0] + (uint64_t)k * v[1], v[4], v[5]);
    return n;
}

/* coll_combine_f32 and _f64: a tree or a chain, divided, scaled, rounded once. */
#define FAKE_COMBINE(real, suffix)                                                                                    \
    SUPPORT real fake_term_##suffix(int op, real a, real b)                                                           \
    {                                                                                                                 \
        const bool x = !(a >= 0 && a <= 0), y = !(b >= 0 && b <= 0);                                                  \
        if (op == COLL_LAND) return (real)(x && y);                                                                   \
        if (op == COLL_LOR) return (real)(x || y);                                                                    \
        if (op == COLL_LXOR) return (real)(x != y);                                                                   \
        if (op > COLL_MAX) fake_fail("kernel coll_combine_" #suffix " has no operation %d", op);                      \
        return support_combine_##real((coll_op)op, a, b);                                                             \
    }                                                                                                                 \
    SUPPORT real fake_tree_##suffix(int op, const real *v, int n)                                                     \
    {                                                                                                                 \
        int left = 1;                                                                                                 \
        if (n == 1) return v[0];                                                                                      \
        while (2 * left < n) left *= 2;                                                                               \
        return fake_term_##suffix(op, fake_tree_##suffix(op, v, left), fake_tree_##suffix(op, v + left, n - left));   \
    }                                                                                                                 \
    SUPPORT void fake_combine_##suffix(const uint64_t *v)                                                             \
    {                                                                                                                 \
        static const char name[] = "coll_combine_" #suffix;                                                           \
        const int op = (int)v[6], order = (int)v[7];                                                                  \
        const real divisor = fake_##suffix##_of(v[8]), scale = fake_##suffix##_of(v[9]);                              \
        const fake_elements out = fake_elements_of(name, v[3], v[4], v[5]);                                           \
        fake_elements in[FAKE_SOURCES_MOST];                                                                          \
        real terms[FAKE_SOURCES_MOST];                                                                                \
        const int n = fake_sources(name, v, in);                                                                      \
        if (sizeof(real) == 8 ? out.type->size != 8 : out.type->size == 8 || !out.type->exponent_bits)                \
            fake_fail("kernel %s has no type %s", name, out.type->name);                                              \
        for (uint64_t i = 0; i < v[4]; i++) {                                                                         \
            const size_t at = (size_t)i * out.type->size;                                                             \
            for (int k = 0; k < n; k++) terms[k] = (real)fake_number(out.type, in[k].at + at);                        \
            if (n == 1 && op >= COLL_LAND && op <= COLL_LXOR) terms[0] = fake_term_##suffix(COLL_LOR, terms[0], 0);   \
            for (int k = 1; k < n && order; k++) terms[0] = fake_term_##suffix(op, terms[0], terms[k]);               \
            if (!order) terms[0] = fake_tree_##suffix(op, terms, n);                                                  \
            terms[0] = terms[0] / divisor;                                                                            \
            terms[0] = terms[0] * scale;                                                                              \
            support_store(out.type, out.at + at, support_bits(out.type, (double)terms[0]));                           \
        }                                                                                                             \
    }
FAKE_COMBINE(float, f32)
FAKE_COMBINE(double, f64)

SUPPORT uint64_t fake_term_i64(const support_type *t, int op, uint64_t a, uint64_t b)
{
    const support_wide x = support_wide_of(t, a), y = support_wide_of(t, b);

    switch (op) {
    case COLL_SUM:  return a + b;
    case COLL_PROD: return a * b;
    case COLL_MIN:  return x < y ? a : b;
    case COLL_MAX:  return x > y ? a : b;
    case COLL_BAND: return a & b;
    case COLL_BOR:  return a | b;
    case COLL_BXOR: return a ^ b;
    case COLL_LAND: return a && b;
    case COLL_LOR:  return a || b;
    case COLL_LXOR: return !a != !b;
    default:        fake_fail("kernel coll_combine_i64 has no operation %d", op);
    }
}

SUPPORT void fake_combine_i64(const uint64_t *v)
{
    static const char name[] = "coll_combine_i64";
    const int op = (int)v[6];
    const long long divisor = (long long)v[8];
    const bool is_bool = (int)v[5] == COLL_BOOL;
    const fake_elements out = fake_elements_of(name, v[3], v[4], v[5]);
    const uint64_t mask = ~UINT64_C(0) >> (64 - out.type->size * 8);
    fake_elements in[FAKE_SOURCES_MOST];
    const int n = fake_sources(name, v, in);

    if (out.type->exponent_bits) fake_fail("kernel %s has no type %s", name, out.type->name);
    if (divisor > 1 && (op != COLL_SUM || out.type->size == 8)) fake_fail("kernel %s divides what it may not", name);
    for (uint64_t i = 0; i < v[4]; i++) {
        const size_t at = (size_t)i * out.type->size;
        support_wide sum = 0;
        uint64_t bits = support_load(out.type, in[0].at + at);
        if (op >= COLL_LAND && op <= COLL_LXOR) bits = bits != 0;
        for (int k = 0; k < n; k++) {
            const uint64_t next = support_load(out.type, in[k].at + at);
            sum += support_wide_of(out.type, next);
            if (k) bits = fake_term_i64(out.type, op, bits, next) & mask;
        }
        if (divisor > 1) bits = (uint64_t)(sum / divisor) & mask;
        support_store(out.type, out.at + at, is_bool ? bits != 0 : bits);
    }
}

SUPPORT void fake_convert(const uint64_t *v)
{
    const fake_elements in = fake_elements_of("coll_convert", v[0], v[4], v[1]);
    const fake_elements out = fake_elements_of("coll_convert", v[2], v[4], v[3]);

    if (!in.type->exponent_bits || !out.type->exponent_bits || in.type->size == 8 || out.type->size == 8)
        fake_fail("kernel coll_convert has not %s to %s", in.type->name, out.type->name);
    for (uint64_t i = 0; i < v[4]; i++)
        support_store(out.type, out.at + i * out.type->size,
                      support_bits(out.type, fake_number(in.type, in.at + i * in.type->size)));
}

SUPPORT void fake_overflow(const uint64_t *v)
{
    const fake_elements in = fake_elements_of("coll_overflow", v[0], v[1], v[2]);
    const unsigned one = 1;
    void *found = fake_view((const void *)(uintptr_t)v[3], sizeof one, "coll_overflow");

    if (!in.type->exponent_bits) fake_fail("kernel coll_overflow has no type %s", in.type->name);
    for (uint64_t i = 0; i < v[1]; i++)
        if (!isfinite(fake_number(in.type, in.at + i * in.type->size))) memcpy(found, &one, sizeof one);
}

static const fake_kernel fake_kernels[] = {
    { "coll_combine_f32", "8848844444", fake_combine_f32 }, { "coll_combine_f64", "8848844488", fake_combine_f64 },
    { "coll_combine_i64", "884884448", fake_combine_i64 }, { "coll_convert", "84848", fake_convert },
    { "coll_overflow", "8848", fake_overflow }
};

#endif /* FAKE_KERNELS_H */
