/* coll_carriers.h - the carriers of communicators without an extension (coll__carrier), in order of preference. */
#ifndef COLL_CARRIERS_H
#define COLL_CARRIERS_H

#if COLL__HAS_MESSAGES

/* ---- >>one message ---- */

static COLL__UNUSED bool coll__message_takes(const coll_request *r) { return coll__kind_is_message(r->call.kind); }

/* The message is started at once, even if the caller does not wait. */
static coll_status coll__message_start(coll_request *r)
{
    coll__session *session = r->comm->session;

    coll__begin_request(r, 0);
    const coll_status status = coll__messages_start(r);
    return status < 0 ? status : coll__advance(session, 0);
}

/* ---- >>in rounds of all ranks ---- */

/* With a cached execution, if there is one. */
static coll_status coll__rounds_start(coll_request *r)
{
    coll__cached *cached = coll__cached_execution(r);

    if (cached) {                                 /* in place: a workspace runs one at a time                 */
        r->execution = &cached->execution;
        r->execution->input.base = coll__behind(r->call.send, 0);
        r->execution->result.base = coll__behind(r->call.recv, 0);
        r->execution->posted = r->execution->done = 0;
        return COLL_PENDING;
    }
    coll_status status = coll__execution_start(r);
    if (COLL__OVERLAP > 1 && status == COLL_ERR_MEMORY) {
        if (r->order->place > 0) return status;       /* retried when it is the first                         */
        coll__workspaces_give(r->order, 1);           /* all but the first, which is ours                   */
        status = coll__execution_start(r);
    }
    if (status == COLL_ERR_UNSUPPORTED) return status;
    return status < 0 ? coll__has_no_memory(r->comm) : COLL_PENDING;
}

static bool coll__rounds_explain(coll_request *r, char *text, size_t room)
{
    if (coll__execution_plan(r) < 0) return true; /* no memory: `text` is correct so far                      */
    const coll__execution *f = r->execution;
    const coll__algorithm *a = f->choice.algorithm;
    coll__append(text, room, "%s", a->name);
    if (a->has_radix) coll__append(text, room, ", radix %d", f->choice.radix);
    if (a->cut == COLL__CUT_MANY) coll__append(text, room, ", %d block%s", f->choice.blocks, coll__plural(f->choice.blocks));
    if (f->choice.room) coll__append(text, room, ", blocks of up to %d bytes in packets, longer ones straight", f->choice.room);
    coll__append(text, room, ", %d round%s, %ld slice%s, about %.3g us", f->rounds, coll__plural(f->rounds), f->slices,
                 coll__plural(f->slices), f->choice.seconds * 1e6);
    return true;
}

#define COLL__CARRIER_OF_ONE                                                                                                  \
    { .name = "message", .traits = COLL__AT_CALL, .takes = coll__message_takes, .start = coll__message_start,                  \
      .late = COLL__IF_WATCH(coll__messages_late), .end = coll__messages_end_all, .says = "one message" }

#endif

#if COLL__HAS_MESSAGES && COLL__IS_TINY             /* COLL__ON_DEMAND                                          */

static const coll__carrier coll__message_carrier = COLL__CARRIER_OF_ONE;
static const coll__by_key coll__keys = {
    &coll__message_carrier, coll__messages_post, coll__messages_advance, coll__messages_unmatched, coll__messages_undelivered,
    coll__messages_are_moving, coll__messages_close, coll__messages_free, coll__look_for_overflow
};

static void coll__messages_use(coll_comm *comm)
{
    if (comm) comm->session->by_key = &coll__keys;
}

#else
static inline void coll__messages_use(coll_comm *comm) { (void)comm; }
#endif

/* ---- >>the table ---- */

static const coll__carrier coll__carriers[] = {
#if COLL__HAS_MESSAGES && !COLL__IS_TINY
    COLL__CARRIER_OF_ONE,
#endif
#if COLL__IS_WHOLE
    { .name = "list", .traits = COLL__AT_CALL, .takes = coll__list_takes, .bind = coll__list_bind, .start = coll__list_start,
      .unbind = coll__list_unbind, .explain = coll__list_explain },
#endif
#if COLL__HAS_LEAVES
    { .name = "leaves", .takes = coll__leaves_take, .bind = coll__leaves_bind, .start = coll__leaves_start,
      .advance = coll__leaves_advance, .late = COLL__IF_WATCH(coll__leaves_late), .unbind = coll__leaves_unbind,
      .says = "over leaves: an allgather of runs; then an allreduce if each rank has one node, or the sum of all nodes in shared "
              "memory, or direct" },
#endif
#if !COLL__IS_TINY                                /* COLL__TAKES_WHOLE                                        */
    { .name = "transport", .traits = COLL__AS_A_WHOLE, .takes = coll__offload_takes, .start = coll__offload_advance,
      .advance = coll__offload_again, .late = COLL__IF_WATCH(coll__offload_late), .later = COLL__LATER(coll__offload_later),
      .explain = coll__offload_explain },
#endif
#if COLL__HAS_HIERARCHY
    { .name = "hierarchy", .start = coll__hierarchy_start, .advance = coll__script_advance, .late = coll__script_late,
      .passes = coll__hierarchy_passes, .explain = coll__hierarchy_explain },
#endif
#if COLL__HAS_MESSAGES
    { .name = "rounds", .start = coll__rounds_start, .advance = coll__execution_advance,
      .late = COLL__IF_WATCH(coll__execution_late), .later = COLL__LATER(coll__execution_later),
      .explain = coll__rounds_explain },
#endif
#if COLL__HAS_COUNTS && COLL__HAS_MESSAGES && COLL__HAS_CHOICE
    { .name = "packets", .start = coll__packets_start, .advance = coll__packets_advance, .late = coll__packets_late },
#endif
};

enum { COLL__CARRIER_COUNT = sizeof coll__carriers / sizeof *coll__carriers };

#endif /* COLL_CARRIERS_H */
