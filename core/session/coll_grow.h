/* coll_grow.h - processes that join: coll_grow and coll_replace, by the ranks of a job, and coll_join, by the newcomer.
 *
 * 1. Rank 0 broadcasts the table of the processes that wait.
 * 2. The ranks shrink to those that are alive, and agree on the table (core/membership/coll_decision.h).  In the new world the
 *    newcomers are behind them, and have no vote.
 * 3. All ranks of that world, newcomers too, shrink it to those that are there, as after a failure (coll_shrink.h).
 *
 * A newcomer that dies before 3 is left out there.  The world of 2 is never given to the program.
 *
 * coll_replace shrinks first, and the survivors agree on how many ranks there shall be (coll_shrink.h).  The world of 3 then has
 * the newcomers at the places of the lost, as rank 0 knows them.  If one is rank 0 there, no rank has a connection to it: that
 * world is shrunk again, without a loss, and all ranks connect to rank 0. */
#ifndef COLL_GROW_H
#define COLL_GROW_H

/* How many processes wait, the same on all ranks.  Waits for `wanted`, which is no stall.  -1: a rank has a transport that admits
 * none. */
static coll_status coll__grow_count(coll_comm *comm, int wanted, int32_t *count)
{
    const coll__session *session = comm->session;
    const coll__elastic *const elastic = session->internals->elastic;
    const int64_t most = (int64_t)session->stall_timeout_ms + session->start_timeout_ms;
    coll_request r;

    *count = elastic && comm->rank == 0 ? elastic->waiting(session->context, wanted, session->start_timeout_ms) : INT32_MAX;
    if (*count < 0) return coll__comm_fail(comm, NULL);
    if (!elastic || comm->extension) *count = -1;
    r.call = (coll_call){ .kind = COLL_ALLREDUCE, .send = COLL_IN_PLACE, .recv = count, .count = 1, .type = COLL_I32,
                          .op = COLL_MIN, .name = "grow" };
    if (wanted && session->stall_timeout_ms > 0)
        r.call.timeout_ms = session->start_timeout_ms > 0 && most < INT_MAX ? (int)most : INT_MAX;
    return coll__run_inside(comm, &r);
}

/* Give the table of `count` newcomers to all ranks. */
static coll_status coll__grow_propose(coll_comm *comm, int count, const int *places)
{
    coll__session *session = comm->session;
    const coll__elastic *const elastic = session->internals->elastic;
    size_t length;
    coll_request r;

    unsigned char *const table = elastic->table(session->context, count, places, &length);
    if (!table) return coll__explain_error(comm, NULL, COLL_ERR_MEMORY, "grow: no memory for %d processes", count);
    r.call = (coll_call){ .kind = COLL_BROADCAST, .recv = table, .count = length, .type = COLL_U8, .name = "grow" };
    const coll_status status = coll__run_inside(comm, &r);
    if (status < 0) (void)elastic->table(session->context, 0, NULL, &length);
    return status;
}

static coll_status coll__replenish(coll_comm *first, coll_comm *comm, int wanted, coll_comm **world);

/* Shrink; if there shall be more ranks than are left, add those that wait. */
static coll_status coll__shrink_whole(coll_comm *first, coll_comm *comm, int wanted, coll_comm **out)
{
    int32_t agreed = wanted;
    const coll_status status = coll__shrink_all(first, comm, &agreed, out);
    return status == COLL_OK && agreed > (*out)->size ? coll__replenish(first, comm, agreed, out) : status;
}

/* To `wanted` ranks, or more. */
static coll_status coll__shrink_to(coll_comm *comm, int wanted, coll_comm **out)
{
    const coll_status status = coll__may_survive(comm, "shrink");
    return status < 0 ? status : coll__shrink_whole(comm, comm, wanted, out);
}

static coll_status coll__shrink_inside(coll_comm *comm, coll_comm **out) { return coll__shrink_to(comm, 0, out); }

/* Take those that wait: all, or until there are `wanted` ranks, at the places of those that `first` has lost. */
static coll_status coll__grow_by(coll_comm *first, coll_comm *comm, int wanted, coll_comm **out)
{
    coll__session *session = comm->session;
    const int lost = wanted ? wanted - comm->size : 0;
    int32_t count;

    coll_status status = coll__grow_count(comm, lost, &count);
    if (status < 0 || count == 0) return status;
    if (count < 0)
        return coll__explain_error(comm, NULL, COLL_ERR_UNSUPPORTED, "grow: no process can join over the transport \"%s\"%s: "
                                   "it takes TCP", session->transport->name,
                                   session->internals->elastic ? " of another rank" : "");
    if (lost && lost < count) count = lost;
    status = coll__grow_propose(comm, count, lost ? session->former : NULL);
    if (status < 0) return status;
    session->is_succeeded = true;
    return coll__shrink_whole(first, comm, lost ? comm->size + count : 0, out);
}

static coll_status coll__grow_inside(coll_comm *comm, coll_comm **out)
{
    coll__session *session = comm->session;

    if (session->failure.status != COLL_OK) return session->failure.status;
    const char *const wrong = comm->members ? "this communicator has not all ranks of the job"
                            : session->orders ? "an operation is under way: wait for it first"
                            : session->is_succeeded ? "a call before has failed: only coll_shrink continues" : NULL;
    return wrong ? coll__explain_error(comm, NULL, COLL_ERR_ARGUMENT, "grow: %s", wrong) : coll__grow_by(comm, comm, 0, out);
}

/* *world has been shrunk from `comm`, and has too few ranks: add those that wait.  After an error the next coll_shrink or
 * coll_replace of `comm` goes on in the last world. */
static coll_status coll__replenish(coll_comm *first, coll_comm *comm, int wanted, coll_comm **world)
{
    coll_comm *const left = *world, **const last = &left->session->successor;
    coll_comm *whole = NULL;
    coll_status status = coll__enter(left);

    if (status == COLL_OK) status = coll__leave(left, coll__grow_by(first, left, wanted, &whole));
    if (status < 0) coll__explain_error(comm, NULL, status, "replace: %.300s", coll__sentence_of(left));
    if (status < 0 && *last) whole = *last, *last = NULL;
    if (whole) coll__comm_close(left);
    *world = status < 0 ? NULL : whole ? whole : left;
    if (status < 0) comm->session->successor = whole ? whole : left;
    return status;
}

static coll_status coll__replace_inside(coll_comm *comm, coll_comm **out)
{
    if (!comm->session->internals->elastic || comm->extension)
        return coll__explain_error(comm, NULL, COLL_ERR_UNSUPPORTED, "replace: no process can join over the transport \"%s\": "
                                   "it takes TCP", comm->session->transport->name);
    return coll__shrink_to(comm, comm->size, out);
}

/* A newcomer has been taken: `comm` is its first world. */
static coll_status coll__join_inside(coll_comm **comm)
{
    coll_comm *const first = *comm;
    coll_status status = coll__enter(first);

    *comm = NULL;
    first->session->has_newcomers = true;
    if (status == COLL_OK) status = coll__leave(first, coll__shrink_whole(first, first, 0, comm));
    if (status < 0) coll__start_failed(status, "join: %.300s", coll__sentence_of(first));
    else coll__give((*comm)->session->former), (*comm)->session->former = NULL;   /* it was in none           */
    (void)coll__comm_close(first);
    return status;
}

COLL_API coll_status coll_grow(coll_comm *comm, coll_comm **out)
{
    return coll__next_world(comm, out, "grow", COLL__SHRINKS(coll__grow_inside));
}

COLL_API coll_status coll_replace(coll_comm *comm, coll_comm **out)
{
    return coll__next_world(comm, out, "replace", COLL__SHRINKS(coll__replace_inside));
}

COLL_API int coll_waiting(const coll_comm *comm)
{
    const coll__elastic *const elastic = comm && *comm->guard ? comm->session->internals->elastic : NULL;
    return elastic && comm->session->rank == 0 ? elastic->waiting(comm->session->context, 0, 0) : 0;
}

COLL_API int coll_former_rank(const coll_comm *comm, int rank)
{
    const bool is_known = comm && comm->session->former && rank >= 0 && rank < comm->size;
    return is_known ? comm->session->former[coll__world_rank(comm, rank)] : COLL_RANK_NONE;
}

#endif /* COLL_GROW_H */
