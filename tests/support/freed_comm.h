/* freed_comm.h - what ranks do in a communicator that one of them has freed, and what becomes of it: test_freed.c,
 * mpi_freed.c. */
#ifndef TESTS_FREED_H
#define TESTS_FREED_H

#include <sched.h>

enum { SIZE = 4, FREER = 1 };

/* What the others do in it afterwards. */
typedef enum usage {
    BARRIER, BROADCAST, USED_BEFORE, PREPARED, RECEIVE, BY_TEST, BY_ANY, SEND_LONG,      /* these wait for the rank that freed  */
    ANY_SOURCE, AMONG_OTHERS, USAGES              /* and these do not                                         */
} usage;

static const char *const usage_names[USAGES] = {
    "barrier", "broadcast", "used", "prepared", "recv", "test", "any", "send", "source", "others"
};

typedef enum kind { WORLD, DUP, SPLIT, CREATE, ONE_OF_MANY, KINDS } kind;
static const char *const kind_names[KINDS] = { "that of coll_init", "a dup", "a split", "a create", "one of many" };

/* Communicators beside the one that is freed, where there are many: more than a rank can list. */
enum { BESIDE = 20 };

typedef struct play { usage usage; kind kind; } play;

static int64_t long_message[1 << 16];

static coll_status derive(coll_comm *comm, kind k, coll_comm **out)
{
    const int ranks[SIZE] = { 3, 2, 1, 0 };

    if (k == SPLIT) return coll_split(comm, 0, -coll_rank(comm), out);
    return k == CREATE ? coll_create(comm, ranks, SIZE, 0, out) : coll_dup(comm, out);
}

/* What rank `world` of the world is called in a communicator. */
static int called(coll_comm *comm, int in_world)
{
    for (int i = 0; i < SIZE; i++) if (coll_world_rank(comm, i) == in_world) return i;
    return -1;
}

static void derive_beside(coll_comm *comm, kind k, coll_comm **out, int first, int count)
{
    for (int i = first; i < first + count; i++) {
        out[i] = NULL;
        if (k == ONE_OF_MANY) CHECK(coll_dup(comm, &out[i]) == COLL_OK, "%s: %s", case_name, coll_error(comm));
    }
}

static coll_status use(coll_comm *comm, usage d, int me, coll_request *prepared)
{
    const int freer = called(comm, FREER);
    static int64_t values[SIZE][3];               /* MPI may use them after a failure                         */
    int64_t *const x = &values[me][0], *const y = &values[me][1], *const z = &values[me][2];
    coll_request *r[2] = { NULL, NULL };
    coll_status status = COLL_OK;
    int index = -1;

    *x = me, *y = *z = 0;
    switch (d) {
    case BARRIER: case USED_BEFORE: return coll_barrier(comm);
    case BROADCAST: return coll_broadcast(comm, x, 1, COLL_I64, freer);
    case PREPARED: return coll_restart(prepared) ? COLL_ERR_ARGUMENT : coll_wait(prepared);
    case RECEIVE: return coll_recv(comm, x, 1, COLL_I64, freer, 1);
    case SEND_LONG: return coll_send(comm, long_message, 1 << 16, COLL_I64, freer, 1);
    case BY_TEST: case BY_ANY:
        if ((status = coll_iallreduce(comm, x, y, 1, COLL_I64, COLL_SUM, &r[0])) == COLL_OK)
            status = coll_irecv(comm, z, 1, COLL_I64, freer, 1, &r[1]);
        while (status == COLL_OK && d == BY_TEST && (status = coll_test(r[0])) == COLL_PENDING) status = COLL_OK, sched_yield();
        if (status == COLL_OK && d == BY_ANY) status = coll_wait_any(2, r, &index);
        coll_request_free(r[0]);
        coll_request_free(r[1]);
        return status;
    case ANY_SOURCE:                              /* rank 0 receives from any rank                            */
        if (me != 0) return coll_send(comm, x, 1, COLL_I64, called(comm, 0), 1);
        for (int i = 0; i < 2 && status == COLL_OK; i++) {
            status = coll_recv(comm, y, 1, COLL_I64, COLL_ANY_SOURCE, 1);
            *z += *y;
        }
        return status == COLL_OK && *z != 5 ? COLL_ERR_MISMATCH : status;
    default:                                      /* ranks 2 and 3                                            */
        if (me == 0) return COLL_OK;
        status = coll_sendrecv(comm, x, 1, called(comm, 5 - me), y, 1, called(comm, 5 - me), COLL_I64, 2);
        return status == COLL_OK && *y != 5 - me ? COLL_ERR_MISMATCH : status;
    }
}

static void check(coll_comm *comm, const play *p, coll_status status)
{
    char name[24];

    snprintf(name, sizeof name, "rank %d has left", FREER);
    if (p->usage < ANY_SOURCE)
        CHECK(status == COLL_ERR_PEER && strstr(coll_error(comm), name), "%s: rank %d has %d: \"%s\"", case_name, coll_rank(comm),
              (int)status, coll_error(comm));
    else CHECK(status == COLL_OK, "%s: rank %d has %d: \"%s\"", case_name, coll_rank(comm), (int)status, coll_error(comm));
}

#endif /* TESTS_FREED_H */
