/* fake_numbers.h - the arithmetic of NCCL where it differs from the library's, so that a test notices if they are mixed up:
 *
 *   - sums of 16-bit floats are rounded to 16 bits at every hop of a ring, and the ring begins at another rank for each stretch
 *     of elements: neither the order of the terms nor the bits are those of the library's sums, in any type of float;
 *   - Avg of floats multiplies by 1/n, rounded to the type of the elements, before it sums; of integers it divides the sum;
 *   - Min and Max lose NaN (fminf, fmaxf).
 */
#ifndef FAKE_NUMBERS_H
#define FAKE_NUMBERS_H

#include "../../support/support_numbers.h"

#include "fake.h"

/* ncclDataType_t 0 to 11; the last two are the 8-bit floats, which are moved and not reduced. */
enum { TYPES = 12, TYPE_REDUCED_MOST = 9, OP_SUM = 0, OP_PROD, OP_MAX, OP_MIN, OP_AVG, OPS };

static const coll_type fake_types[] = { COLL_I8, COLL_U8, COLL_I32, COLL_U32, COLL_I64, COLL_U64, COLL_F16, COLL_F32, COLL_F64,
                                        COLL_BF16 };

static size_t fake_type_size(unsigned type) { return type > TYPE_REDUCED_MOST ? 1 : support_type_of(fake_types[type])->size; }

/* One hop: the term is added to the received value, and rounded. */
static uint64_t fake_hop(const support_type *t, unsigned op, uint64_t came, uint64_t term)
{
    const double a = support_value(t, came), b = support_value(t, term);

    if (op == OP_MAX || op == OP_MIN) {
        if (isnan(a)) return term;
        if (isnan(b)) return came;
        return (op == OP_MAX) == (a > b) ? came : term;
    }
    if (t->type == COLL_F32) {                    /* in float: a double would round twice                     */
        const float x = (float)a, y = (float)b;
        return support_bits(t, (double)(op == OP_PROD ? x * y : x + y));
    }
    return support_bits(t, op == OP_PROD ? a * b : a + b);
}

static uint64_t fake_reduce_floats(const support_type *t, unsigned op, uint64_t *bits, int n, size_t element)
{
    const int first = (int)(element / 5 % (size_t)n);
    const double share = support_value(t, support_bits(t, 1.0 / n));

    for (int i = 0; i < n && op == OP_AVG; i++) bits[i] = support_bits(t, support_value(t, bits[i]) * share);
    uint64_t result = bits[first];
    for (int i = 1; i < n; i++) result = fake_hop(t, op, result, bits[(first + i) % n]);
    return result;
}

static void fake_reduce(unsigned type, unsigned op, const unsigned char *const *in, int n, size_t count, unsigned char *out)
{
    static const coll_op ops[] = { COLL_SUM, COLL_PROD, COLL_MAX, COLL_MIN, COLL_AVG };
    const support_type *t = support_type_of(fake_types[type]);
    uint64_t bits[256];

    for (size_t at = 0; at < count; at++) {
        for (int i = 0; i < n; i++) bits[i] = support_load(t, in[i] + at * t->size);
        const uint64_t result = t->exponent_bits ? fake_reduce_floats(t, op, bits, n, at)
                                                 : support_reduce_integers(t, ops[op], bits, n);
        support_store(t, out + at * t->size, result);
    }
}

#endif /* FAKE_NUMBERS_H */
