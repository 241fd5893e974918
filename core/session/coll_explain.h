/* coll_explain.h - a sentence on a call: the algorithm, its cost, the numbers of the model, the next best algorithms. */
#ifndef COLL_EXPLAIN_H
#define COLL_EXPLAIN_H

/* Why a candidate was not chosen though it takes less time. */
static const char *coll__why_not_chosen(const coll__choice *c, const coll__choice *chosen)
{
    if (c->seconds >= chosen->seconds) return "";
    if (coll__weighed_seconds(c) >= coll__weighed_seconds(chosen)) return " (gains too little for its messages)";
    if (chosen->algorithm->is_canonical && !c->algorithm->is_canonical) return " (without the bits of COLL_DETERMINISTIC)";
    return " (the number of processors must not change the bits)";
}

/* "circulant:4, 33.2 us" for other candidates, best first. */
static void coll__explain_others(const coll_request *r, char *text, size_t room)
{
    coll__choice others[8];
    coll__query query = coll__query_of(r->comm, &r->call, &r->codec);
    const char *before = r->call.algorithm ? "; it is named, and not chosen beside" : "; then";

    if (!COLL__HAS_CHOICE) return;
    query.algorithm = NULL;
    const int count = coll__candidates(others, 8, &query);
    for (int i = 0, told = 0; i < count && i < 8 && told < 3; i++) {
        const coll__choice *c = &others[i], *chosen = &r->execution->choice;
        if (c->algorithm == chosen->algorithm && c->radix == chosen->radix) continue;
        coll__append(text, room, "%s %s", before, c->algorithm->name);
        if (c->algorithm->has_radix) coll__append(text, room, ":%d", c->radix);
        coll__append(text, room, " %.3g us%s", c->seconds * 1e6, r->call.algorithm ? "" : coll__why_not_chosen(c, chosen));
        before = ",";
        told++;
    }
}

static void coll__explain_inside(coll_comm *comm, coll_request *r, char *text, size_t room)
{
    const coll_transport *t = comm->session->transport;
    const char *how = t->describe ? t->describe(comm->session->context) : "";
    const bool is_message = coll__kind_is_message(r->call.kind);
    static const char *const origins[] = { "default", "from ", "simulated" };
    const coll__numbers *const numbers = &comm->numbers;
    char what[COLL__CALL_ROOM], why[120] = "", all[COLL__TUNING_ROOM];
    coll__execution execution = { .rounds = 0 };

    coll__head_of_call(r->head, &r->call, comm->size, 0, 0);
    coll__head_describe(r->head, what, sizeof what);
    if (coll__is_extended(comm)) {
        coll__print(text, room, "%s on %d rank%s over %s: ", what, comm->size, coll__plural(comm->size), comm->extension->name);
        (void)r->carrier->explain(r, text, room);
        return;
    }
    coll__print(text, room, "%s on %d rank%s over %s (%s): %s", what, comm->size, coll__plural(comm->size), t->name, how,
                coll__kind_reduces(r->call.kind) && !coll__kind_scans(r->call.kind) && r->call.flags & COLL_REPRODUCIBLE
                    ? "reproducible, " : "");
    if (!is_message && !r->call.algorithm && r->call.kind != COLL_ALLREDUCE_LIST && t->can_offload)
        (void)t->can_offload(comm->session->context, &r->call, comm->size, why, sizeof why);
    if (*why) coll__append(text, room, "%s, ", why);
    r->execution = &execution;
    while (!r->carrier->says && !r->carrier->explain(r, text, room)) r->carrier++;
    if (r->carrier->says) coll__append(text, room, "%s", r->carrier->says);
    coll__numbers_print(numbers, all, sizeof all);        /* "default: latency=12us overhead=1.2us gbit=10 reduce=4GB/s" */
    if (!is_message) coll__append(text, room, " (%s%s: %s)", origins[numbers->origin],
                                  numbers->origin == COLL__BY_FILE ? numbers->file : "", all);
    if (execution.choice.algorithm) coll__explain_others(r, text, room);
    r->execution = NULL;
}

/* ---- >>traffic ---- */

COLL_API void coll_traffic(const coll_comm *comm, uint64_t *sent, uint64_t *received)
{
    uint64_t out = 0, in = 0;
    const coll__session *session = comm && *comm->guard ? comm->session : NULL;

    if (session && session->transport->traffic) session->transport->traffic(session->context, &out, &in);
    if (sent) *sent = out;
    if (received) *received = in;
}

#endif /* COLL_EXPLAIN_H */
