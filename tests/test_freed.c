/* test_freed.c - one rank frees a communicator that others still use: whoever waits for it there is told, in every world alike,
 * also while that rank is not inside the library; and nobody else is hurt.
 *
 *     test_freed [WORLD,...] [CASE,...] */
#define _DEFAULT_SOURCE 1
#include "../coll.h"

#include "check.h"
#include "support.h"
#include "cases.h"

#include <sched.h>

enum { SIZE = 4, FREER = 1, SECONDS = 40, LIVENESS_MS = 600 };

/* What the others do in it afterwards. */
typedef enum deed {
    BARRIER, BROADCAST, USED_BEFORE, PREPARED, RECEIVE, BY_TEST, BY_ANY, SEND_LONG,      /* these wait for the one that is gone */
    ANY_SOURCE, AMONG_OTHERS, DEEDS               /* and these do not                                         */
} deed;

static const char *const deed_names[DEEDS] = {
    "barrier", "broadcast", "used", "prepared", "recv", "test", "any", "send", "source", "others"
};

typedef enum kind { WORLD, DUP, SPLIT, CREATE, KINDS } kind;
static const char *const kind_names[KINDS] = { "that of coll_init", "a dup", "a split", "a create" };

typedef struct play { deed deed; kind kind; } play;

static event is_ready = EVENT_INIT, has_freed = EVENT_INIT, is_over = EVENT_INIT;
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
    for (int i = 0; i < SIZE; i++) if (coll_parent_rank(comm, i) == in_world) return i;
    return -1;
}

static coll_status use(coll_comm *comm, deed d, int me, coll_request *prepared)
{
    const int freer = called(comm, FREER);
    int64_t x = me, y = 0, z = 0;
    coll_request *r[2] = { NULL, NULL };
    coll_status status = COLL_OK;
    int index = -1;

    switch (d) {
    case BARRIER: case USED_BEFORE: return coll_barrier(comm);
    case BROADCAST: return coll_broadcast(comm, &x, 1, COLL_I64, freer);
    case PREPARED: return coll_restart(prepared) ? COLL_ERR_ARGUMENT : coll_wait(prepared);
    case RECEIVE: return coll_recv(comm, &x, 1, COLL_I64, freer, 1);
    case SEND_LONG: return coll_send(comm, long_message, 1 << 16, COLL_I64, freer, 1);
    case BY_TEST: case BY_ANY:
        if ((status = coll_iallreduce(comm, &x, &y, 1, COLL_I64, COLL_SUM, &r[0])) == COLL_OK)
            status = coll_irecv(comm, &z, 1, COLL_I64, freer, 1, &r[1]);
        while (status == COLL_OK && d == BY_TEST && (status = coll_test(r[0])) == COLL_PENDING) status = COLL_OK, sched_yield();
        if (status == COLL_OK && d == BY_ANY) status = coll_wait_any(2, r, &index);
        coll_request_free(r[0]);
        coll_request_free(r[1]);
        return status;
    case ANY_SOURCE:                              /* rank 0 takes what the others send                        */
        if (me != 0) return coll_send(comm, &x, 1, COLL_I64, called(comm, 0), 1);
        for (int i = 0; i < 2 && status == COLL_OK; i++) {
            status = coll_recv(comm, &y, 1, COLL_I64, COLL_ANY_SOURCE, 1);
            z += y;
        }
        return status == COLL_OK && z != 5 ? COLL_ERR_MISMATCH : status;
    default:                                      /* ranks 2 and 3                                            */
        if (me == 0) return COLL_OK;
        status = coll_sendrecv(comm, &x, 1, called(comm, 5 - me), &y, 1, called(comm, 5 - me), COLL_I64, 2);
        return status == COLL_OK && y != 5 - me ? COLL_ERR_MISMATCH : status;
    }
}

static void check(coll_comm *comm, const play *p, coll_status status)
{
    char name[24];

    snprintf(name, sizeof name, "rank %d has left", FREER);
    if (p->deed < ANY_SOURCE)
        CHECK(status == COLL_ERR_PEER && strstr(coll_error(comm), name), "%s: rank %d has %d: \"%s\"", case_name, coll_rank(comm),
              (int)status, coll_error(comm));
    else CHECK(status == COLL_OK, "%s: rank %d has %d: \"%s\"", case_name, coll_rank(comm), (int)status, coll_error(comm));
}

/* In a simulated world nobody may wait for an event. */
static void await(event *e, int count, coll_comm *comm)
{
    int raised = 0;

    if (!strcmp(world, "sim")) return;
    while (comm && raised < count) {              /* what others want from us still has to go                 */
        (void)coll_progress(comm);
        sched_yield();
        pthread_mutex_lock(&e->lock);
        raised = e->count;
        pthread_mutex_unlock(&e->lock);
    }
    event_await(e, count);
}

static int one_frees(coll_comm *comm, void *arg)
{
    const play *p = arg;
    const int me = coll_rank(comm);
    const bool is_sim = !strcmp(world, "sim");
    coll_comm *derived = NULL, *freed, *kept;
    coll_request *prepared = NULL;
    int64_t x = 1, y = 0;

    CHECK(derive(comm, p->kind, &derived) == COLL_OK, "%s: %s", case_name, coll_error(comm));
    freed = p->kind == WORLD ? comm : derived;
    kept = p->kind == WORLD ? derived : comm;
    const coll_call call = { .kind = COLL_ALLREDUCE, .send = &x, .recv = &y, .count = 1, .type = COLL_I64 };
    if (p->deed == PREPARED) CHECK(coll_prepare(freed, &call, &prepared) == COLL_OK, "%s: %s", case_name, coll_error(freed));
    if (p->deed == USED_BEFORE) CHECK(coll_barrier(freed) == COLL_OK, "%s: %s", case_name, coll_error(freed));
    CHECK(coll_barrier(kept) == COLL_OK, "%s: %s", case_name, coll_error(kept));
    event_raise(&is_ready);
    if (me == FREER) {
        await(&is_ready, SIZE, kept);
        coll_free(freed);
        event_raise(&has_freed);
        await(&is_over, SIZE - 1, NULL);
        const coll_status status = coll_barrier(kept);
        check(kept, p, status);
    } else {
        await(&has_freed, 1, kept);
        check(freed, p, use(freed, p->deed, me, prepared));
        event_raise(&is_over);
        check(kept, p, coll_barrier(kept));
        if (p->deed >= ANY_SOURCE && !is_sim) CHECK(coll_barrier(kept) == COLL_OK, "%s: %s", case_name, coll_error(kept));
    }
    if (me == FREER && p->deed >= ANY_SOURCE && !is_sim)
        CHECK(coll_barrier(kept) == COLL_OK, "%s: %s", case_name, coll_error(kept));
    coll_request_free(prepared);
    if (me != FREER || p->kind == WORLD) coll_free(derived);
    if (me == FREER && p->kind == WORLD) pthread_exit(NULL);      /* or it would be freed again                 */
    return 0;
}

/* All free all of theirs, each in an order of its own. */
static int all_free(coll_comm *comm, void *arg)
{
    enum { MANY = 12 };
    coll_comm *comms[MANY] = { NULL };
    const int me = coll_rank(comm);

    (void)arg;
    for (int round = 0; round < 5; round++) {
        for (int i = 0; i < MANY; i++) {
            int64_t x = 1, y = 0;
            CHECK(derive(i < 4 ? comm : comms[i - 4], i % 2 ? DUP : SPLIT, &comms[i]) == COLL_OK, "%s: %s", case_name,
                  coll_error(comm));
            if (i % 3) CHECK(coll_allreduce(comms[i], &x, &y, 1, COLL_I64, COLL_SUM) == COLL_OK && y == SIZE, "%s: %s", case_name,
                             coll_error(comms[i]));
        }
        for (int i = 0; i < MANY; i++) coll_free(comms[(i * 5 + me * 3 + round) % MANY]);
        CHECK(coll_barrier(comm) == COLL_OK, "%s: %s", case_name, coll_error(comm));
    }
    CHECK(coll_barrier(comm) == COLL_OK, "%s: %s", case_name, coll_error(comm));
    return 0;
}

/* ---- >>which ---- */

/* One that frees what it was given ends its thread, which counts as having failed. */
static void in_world(int (*worker)(coll_comm *comm, void *arg), const play *p)
{
    const int ended = p && p->kind == WORLD;
    const coll_config config = { .liveness_timeout_ms = LIVENESS_MS };

    CHECK(support_run_config(world, SIZE, &config, worker, (void *)(uintptr_t)p) == ended, "%s", case_name);
}

static void one_case(const void *arg) { in_world(one_frees, arg); }
static void all_case(const void *arg) { (void)arg; in_world(all_free, NULL); }

int main(int argc, char **argv)
{
    const char *wanted = argc > 1 && strcmp(argv[1], "all") ? argv[1] : NULL, *cases = argc > 2 ? argv[2] : NULL;
    char name[80];

    cases_begin();
    for (int at = 0; (world = support_world_next(wanted, &at)) != NULL;) {
        for (deed d = 0; d < DEEDS; d++)
            for (kind k = 0; k < KINDS && support_listed(cases, deed_names[d]); k++) {
                const play p = { d, k };
                if (k == WORLD && !strcmp(world, "sim")) continue;        /* coll_spawn frees it                  */
                snprintf(name, sizeof name, "%s on %s", deed_names[d], kind_names[k]);
                run_case_within(SECONDS, one_case, &p, name);
            }
        if (support_listed(cases, "all")) run_case_within(SECONDS, all_case, NULL, "all free, in orders of their own");
    }
    return CHECK_DONE();
}
