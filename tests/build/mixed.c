/* mixed.c - one rank of a job whose processes are compiled for different machines: it prints what it got, which must be the same
 * for all of them. */
#define COLL_IMPLEMENTATION
#include "../../coll.h"
#include <stdio.h>

enum { MOST = 100000 };

static uint64_t sum_of(uint64_t sum, const void *at, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        uint64_t bits;
        memcpy(&bits, (const unsigned char *)at + 8 * i, 8);
        sum = sum * 31 + bits;
    }
    return sum;
}

int main(void)
{
    static const struct { coll_type type; coll_op op; unsigned flags; size_t count; } calls[] = {
        { COLL_F64, COLL_SUM, 0, MOST }, { COLL_F64, COLL_PROD, 0, 777 }, { COLL_F64, COLL_AVG, COLL_REPRODUCIBLE, 777 },
        { COLL_C128, COLL_PROD, 0, 300 }, { COLL_F32, COLL_AVG, COLL_DETERMINISTIC, 1000 }, { COLL_I64, COLL_AVG, 0, 777 },
        { COLL_U64, COLL_AVG, 0, 777 }, { COLL_BF16, COLL_SUM, COLL_STOCHASTIC, 1000 }, { COLL_F64_I32, COLL_MAXLOC, 0, 300 },
    };
    static double x[MOST], got[MOST];
    uint64_t sum = 0;
    coll_comm *comm;

    if (coll_init(&comm, NULL)) return fprintf(stderr, "%s\n", coll_error(NULL)), 1;
    for (size_t n = 0; n < sizeof calls / sizeof *calls; n++) {
        const coll_call call = { .kind = COLL_ALLREDUCE, .send = x, .recv = got, .count = calls[n].count, .type = calls[n].type,
                                 .op = calls[n].op, .flags = calls[n].flags };
        for (int i = 0; i < MOST; i++) x[i] = 1 + 1.0 / (3 + i + 17 * coll_rank(comm));       /* in all types, some bits */
        if (coll_run(comm, &call)) return fprintf(stderr, "%s\n", coll_error(comm)), 1;
        sum = sum_of(sum, got, call.count * coll_type_size(call.type) / 8);
    }
    printf("bits %016llx\n", (unsigned long long)sum);
    return coll_free(comm) != COLL_OK;
}
