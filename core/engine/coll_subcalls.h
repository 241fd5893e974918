/* coll_subcalls.h - runs a collective that consists of calls on other communicators.  A script lists these calls in one or two
 * lanes.
 *
 *     lane 1    wait .............  call ..........  wait ....  call ......
 *     lane 0    work  call .......  work  call ...............  call ...  wait ....  call
 *
 * A script is a pure function of the lane and the step number.  All ranks of a communicator find the same calls in the same
 * lane, in the same order.  If both lanes can advance, lane 1 does. */
#ifndef COLL_SUBCALLS_H
#define COLL_SUBCALLS_H

#if COLL__HAS_HIERARCHY

typedef enum coll__sub_kind {
    COLL__SUB_END,                                /* the lane has ended                                       */
    COLL__SUB_CALL,                               /* a call                                                   */
    COLL__SUB_WORK,                               /* work, done in `next`; or nothing to do                   */
    COLL__SUB_WAIT                                /* waits for the other lane                                 */
} coll__sub_kind;

typedef struct coll__sub {
    coll_comm    *on;
    coll_call     call;
    int           until;                          /* WAIT: steps that the other lane must have done           */
} coll__sub;

typedef struct coll__hierarchy coll__hierarchy;

typedef struct coll__script {
    int lanes;
    coll__sub_kind (*next)(coll__hierarchy *h, int lane, int k, coll__sub *out); /* *out is zeroed            */
    coll__sub_kind (*step)(coll__hierarchy *h, int stage, int k, coll__sub *out);/* step k of a stage of a part; NULL: no parts */
    void           (*needs)(coll__hierarchy *h);  /* sets the lengths of the scratch memory; NULL: none       */
} coll__script;

typedef struct coll__script_lane {
    coll_request sub;                             /* the running call                                         */
    bool         is_calling;                      /* `sub` is running                                         */
    int          done;                            /* steps done                                               */
} coll__script_lane;

typedef struct coll__runner {
    const coll__script *script;
    coll__hierarchy *state;
    coll__script_lane lanes[2];
} coll__runner;

/* The state of a request with a script is at the front of its workspace's memory. */
static inline coll__runner *coll__runner_of(const coll_request *r) { return (coll__runner *)coll__workspace_of(r)->arena; }

/* Check and prepare a call. */
static coll_status coll__sub_start(const coll_request *whole, coll__script_lane *lane, const coll__sub *sub)
{
    coll__order *const order = &sub->on->main;
    coll_request *const r = &lane->sub;

    *r = (coll_request){ .comm = sub->on, .order = order, .call = sub->call, .status = COLL_PENDING,
                         .sequence = whole->sequence, .got_source = -1, .got_tag = -1 };
    r->carrier = coll__carrier_of(r);
    const coll_status status = coll__check(sub->on, &r->call, &r->codec, &r->offsets);
    if (status < 0) return status;
    if (r->call.op == COLL_AVG) r->codec.divisor = whole->codec.divisor;      /* not the ranks of `on`        */
    memcpy(r->head, whole->head, COLL_HEAD_LENGTH);       /* mismatches report the whole call                 */
    coll__task_init(r);
    lane->is_calling = true;
    return COLL_OK;
}

/* Advance one lane by at most one step.  COLL_OK: the lane has ended. */
static coll_status coll__script_step(const coll_request *whole, coll__runner *runner, int which)
{
    coll__script_lane *const lane = &runner->lanes[which];
    coll__sub sub = { .on = NULL };
    coll_status status = COLL_OK;

    if (!lane->is_calling) {
        const coll__sub_kind kind = runner->script->next(runner->state, which, lane->done, &sub);
        if (kind == COLL__SUB_END) return COLL_OK;
        if (kind == COLL__SUB_WAIT && runner->lanes[!which].done < sub.until) return COLL_PENDING;
        if (kind == COLL__SUB_CALL) status = coll__sub_start(whole, lane, &sub);
        if (status < 0) {                         /* it could not be started: the whole call fails            */
            coll_failure failure = { COLL_OK, -1, "" };
            const int me = whole->comm->session->rank;
            coll__set_failure(&failure, status, me, "rank %d cannot go on: %s", me, coll__sentence_of(sub.on));
            return coll__comm_fail(whole->comm, &failure);
        }
    }
    if (lane->is_calling) status = coll__carry_on(&lane->sub);
    if (status != COLL_OK) return status;
    lane->is_calling = false;
    lane->done++;
    return COLL_PENDING;
}

/* Advance as far as possible without waiting.  COLL_OK: finished. */
static coll_status coll__script_advance(coll_request *whole)
{
    coll__runner *const runner = coll__runner_of(whole);
    const int first = runner->script->lanes - 1;
    int ended = 0;

    for (int which = first; which >= 0;) {
        const int before = runner->lanes[which].done;
        const coll_status status = coll__script_step(whole, runner, which);
        if (status < 0) return status;
        if (runner->lanes[which].done != before) which = first, ended = 0;
        else which--, ended += status == COLL_OK;
    }
    COLL__ASSERT(ended > first || runner->lanes[0].is_calling || runner->lanes[1].is_calling, "the lanes of %s %u wait for one "
                 "another, %d and %d steps done", coll_kind_name(whole->call.kind), whole->sequence, runner->lanes[0].done,
                 runner->lanes[1].done);
    return ended > first ? COLL_OK : COLL_PENDING;
}

/* Mark the ranks that it waits for; with two running calls those of lane 0. */
static void coll__script_late(const coll_request *whole, unsigned char *is_late)
{
    const coll__runner *runner = coll__runner_of(whole);

    for (int which = 0; whole->is_started && which < runner->script->lanes; which++) {
        const coll_request *const sub = &runner->lanes[which].sub;
        if (!runner->lanes[which].is_calling) continue;
        if (sub->carrier->late) sub->carrier->late(sub, is_late);
        return;
    }
}

#endif /* COLL__HAS_HIERARCHY */
#endif /* COLL_SUBCALLS_H */
