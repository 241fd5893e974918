/* switch_meet.c - one of two ranks over TCP, compiled with other parts left out than the other: compatible ones get the right
 * bits, others get an error that says why.  tests/build/test_switches.sh starts them.
 *
 *   usage: COLL_RANK=R COLL_SIZE=2 COLL_ADDR=127.0.0.1:... switch_meet
 *
 * Prints "met", or the sentence of coll_init. */
#define COLL_IMPLEMENTATION
#include "../../coll.h"

#include <stdio.h>
#include <stdlib.h>

enum { LONG = 300000 };

int main(void)
{
    static float sums[LONG];
    static uint16_t halves[LONG];
    const coll_config config = { .start_timeout_ms = 10000, .log_level = COLL_LOG_NONE };
    coll_comm *comm;

    if (coll_init(&comm, &config) != COLL_OK) return printf("%s\n", coll_error(NULL)), 0;
    for (size_t count = 1; count <= LONG; count *= 300) {
        for (size_t i = 0; i < count; i++) {
            sums[i] = (float)((int)(i % 100) + coll_rank(comm));
            halves[i] = coll_f32_to_bf16(sums[i]);
        }
        if (coll_allreduce(comm, sums, sums, count, COLL_F32, COLL_SUM)
            || coll_allreduce(comm, halves, halves, count, COLL_BF16, COLL_MAX)
            || coll_broadcast(comm, halves, count, COLL_BF16, 1)) return printf("%s\n", coll_error(comm)), 1;
        for (size_t i = 0; i < count; i++)
            if (sums[i] != (float)(2 * (int)(i % 100) + 1) || coll_bf16_to_f32(halves[i]) != (float)((int)(i % 100) + 1))
                return printf("element %zu of %zu\n", i, count), 1;
    }
    const coll_status status = coll_barrier(comm);
    coll_free(comm);
    return status ? (printf("barrier: %d\n", (int)status), 1) : (puts("met"), 0);
}
