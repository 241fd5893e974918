/* coll_explain.h - what is chosen for a call, at what price, by which numbers, and what came next, in a sentence. */
#ifndef COLL_EXPLAIN_H
#define COLL_EXPLAIN_H

static const char *coll__plural(long count) { return count == 1 ? "" : "s"; }

/* "circulant:4, 33.2 us" for the others that were considered, best first. */
static void coll__explain_others(const coll_request *r, char *text, size_t room)
{
    coll__choice others[8];
    coll__wish wish = coll__wish_of(r->comm, r->track->numbers, &r->call, &r->codec);
    const char *before = "; then";

    wish.algorithm = NULL;
    const int count = coll__candidates(others, 8, &wish);
    for (int i = 0, told = 0; i < count && i < 8 && told < 3; i++) {
        const coll__choice *c = &others[i], *chosen = &r->flow->choice;
        if (c->algorithm == chosen->algorithm && c->radix == chosen->radix) continue;
        coll__append(text, room, "%s %s", before, c->algorithm->name);
        if (c->algorithm->has_radix) coll__append(text, room, ":%d", c->radix);
        coll__append(text, room, " %.3g us", c->seconds * 1e6);
        before = ",";
        told++;
    }
}

/* " (measured: latency=12us overhead=1.2us gbit=10 reduce=4GB/s)": by which numbers it was chosen. */
static void coll__explain_numbers(const coll__numbers *numbers, char *text, size_t room)
{
    static const char *const origins[] = { "default", "from ", "simulated", "measured" };
    char all[COLL__TUNING_ROOM];

    coll__numbers_print(numbers, all, sizeof all);
    coll__append(text, room, " (%s%s: %s)", origins[numbers->origin], numbers->origin == COLL__BY_FILE ? numbers->file : "", all);
}

/* "by hosts: 3 hosts of 2 to 4 ranks, 2 rails, of which it uses 1, in 3 parts". */
static void coll__explain_hosts(const coll_request *r, char *text, size_t room)
{
    const coll__hosts *h = r->track->hosts;
    const int slices = coll__slices_for(h, &r->call, r->codec.type_size), parts = coll__parts_for(&r->call, r->codec.type_size);

    coll__append(text, room, "by hosts: %d hosts of ", h->count);
    if (h->rails != h->most) coll__append(text, room, "%d to ", h->rails);
    coll__append(text, room, "%d rank%s, %d rail%s", h->most, coll__plural(h->most), h->rails, coll__plural(h->rails));
    if (slices < h->rails) coll__append(text, room, ", of which it uses %d", slices);
    if (parts > 1) coll__append(text, room, ", in %d parts", parts);
}

static void coll__explain_inside(coll_comm *comm, coll_request *r, char *text, size_t room)
{
    const coll_transport *t = comm->trunk->transport;
    const char *how = t->describe ? t->describe(comm->trunk->context) : "";
    const bool is_message = coll__kind_is_message(r->call.kind);
    char what[COLL__CALL_ROOM], why[120] = "";

    coll__head_of_call(r->head, &r->call, comm->size, 0, 0);
    r->head[15] = coll__kind_reduces(r->call.kind) ? (unsigned char)(r->call.flags & COLL__FLAGS) : 0;    /* and no hash     */
    coll__head_describe(r->head, what, sizeof what);
    if (r->is_on_device) {
        coll__print(text, room, "%s on %d rank%s over %s: ", what, comm->size, coll__plural(comm->size), comm->device->name);
        comm->device->explain(comm, r, text, room);
        return;
    }
    coll__print(text, room, "%s on %d rank%s over %s (%s): %s", what, comm->size, coll__plural(comm->size), t->name, how,
                coll__kind_reduces(r->call.kind) && !coll__kind_scans(r->call.kind) && r->call.flags & COLL_REPRODUCIBLE
                    ? "reproducible, " : "");
    const bool is_offered = !is_message && !r->call.algorithm && coll__track_is_offered(r->track);
    const bool is_asked = !is_message && !r->call.algorithm && !r->list && t->can_offload;
    const int answer = is_asked ? t->can_offload(comm->trunk->context, &r->call, comm->size, why, sizeof why) : 1;
    if (*why) coll__append(text, room, "%s, ", why);
    if (is_message || r->call.kind == COLL_ALLREDUCE_LIST || (is_offered && answer > 0)) {
        const int parts = r->list ? r->list->count : 0;
        if (r->list) coll__append(text, room, "%d part%s, each an allreduce", parts, coll__plural(parts));
        else coll__append(text, room, is_message ? "one message" : "the transport's own way");
        if (!is_message) coll__explain_numbers(r->track->numbers, text, room);
        return;
    }
    if (coll__goes_by_hosts(r) == COLL_OK) {
        coll__explain_hosts(r, text, room);
        coll__explain_numbers(r->track->numbers, text, room);
        return;
    }
    if (coll__flow_plan(r) < 0) return;           /* no memory: what is written so far is true                */
    const coll__flow *f = r->flow;
    const coll__algorithm *a = f->choice.algorithm;
    coll__append(text, room, "%s", a->name);
    if (a->has_radix) coll__append(text, room, ", radix %d", f->choice.radix);
    if (a->cut == COLL__CUT_MANY) coll__append(text, room, ", %d block%s", f->choice.blocks, coll__plural(f->choice.blocks));
    coll__append(text, room, ", %d round%s, %ld slice%s, about %.3g us", f->rounds, coll__plural(f->rounds), f->slices,
                 coll__plural(f->slices), f->choice.seconds * 1e6);
    coll__explain_numbers(r->track->numbers, text, room);
    coll__explain_others(r, text, room);
}

#endif /* COLL_EXPLAIN_H */
