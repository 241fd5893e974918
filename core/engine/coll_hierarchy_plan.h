/* coll_hierarchy_plan.h - decides which collectives are hierarchical (coll_hierarchical.h), with how many slices and parts; makes
 * the communicators and the memory of their stages.
 *
 * These calls run as if every rank were a host: floats with COLL_DETERMINISTIC or COLL_REPRODUCIBLE; scans and operations that
 * do not commute, unless the ranks of hosts are consecutive; COLL_STOCHASTIC; MX wire types; averages of integers; gather,
 * scatter, alltoall and neighbor collectives; calls that name an algorithm or use other flags. */
#ifndef COLL_HIERARCHY_PLAN_H
#define COLL_HIERARCHY_PLAN_H

#if COLL__HAS_HIERARCHY

enum {
    COLL__RAIL_LEAST = 16 << 10,                  /* bytes of a slice, if there are several                   */
    COLL__PART_LEAST = 1 << 20, COLL__PARTS_MOST = 8          /* bytes of a part, if there are several        */
};

/* ---- >>communicators of stages ---- */

#define COLL__NUMBER_OF_STAGES 0x40000000u        /* first number of orders of stages; twice that for stages
                                                     of stages (hosts within sites)                           */

/* The number of the order of a stage. */
static uint64_t coll__number_of_stage(uint64_t number, bool is_inter)
{
    const bool is_stage = number >= COLL__NUMBER_OF_STAGES;
    const uint64_t base = is_stage ? 2 * COLL__NUMBER_OF_STAGES : COLL__NUMBER_OF_STAGES;

    COLL__ASSERT(number < 2 * COLL__NUMBER_OF_STAGES, "a stage of a stage of a stage, of order %u", (unsigned)number);
    return base + 2 * (is_stage ? number - COLL__NUMBER_OF_STAGES : number) + is_inter;
}

/* Set the link numbers of a stage's communicator from its order's. */
static void coll__phase_estimate(coll_comm *stage, const coll__order *order, bool is_inter)
{
    const coll__topology *t = order->comm->topology;
    coll__numbers *const n = &stage->numbers;

    coll__numbers_inherit(stage, &order->comm->numbers, stage->members + stage->size);
    if (!is_inter || !t->is_by_site) return;
    n->link = coll__far_link(&n->link, &n->far, t->least);
}

/* The communicator of our host's ranks, or of our rail's, for stages of an order's calls.  It is in no list.  Only its parent
 * runs calls on it, one at a time, in an order that all its ranks share.  So its messages use channels or keys as the parent's
 * do.  `members` also has the parent's ranks, after the session's. */
static coll_comm *coll__phase_comm(const coll__order *order, bool is_inter)
{
    const coll_comm *parent = order->comm;
    const coll__topology *t = parent->topology;
    coll_comm *comm = (coll_comm *)coll__allocate(coll__like(order->comm), sizeof *comm);

    if (!comm) return NULL;
    comm->session = parent->session;
    comm->guard = parent->guard;
    comm->rank = is_inter ? t->host : t->place;
    comm->size = is_inter ? t->count : coll__host_size(t, t->host);
    COLL__ASSERT(comm->rank >= 0 && comm->rank < comm->size && comm->size <= parent->size,
                 "rank %d of %d, for a stage of %d ranks", comm->rank, comm->size, parent->size);
    comm->id = parent->id;
    comm->mark = parent->mark;
    coll__order_init(&comm->main, comm, order->space, coll__number_of_stage(order->number, is_inter), order->is_keyed);
    comm->members = (int *)coll__take(coll__like(order->comm), 2 * (size_t)comm->size * sizeof *comm->members);
    for (int i = 0; comm->members && i < comm->size; i++) {
        const int called = is_inter ? coll__rank_at(t, i, t->place) : coll__rank_at(t, t->host, i);
        comm->members[comm->size + i] = called;
        comm->members[i] = coll__world_rank(parent, called);
    }
    if (comm->members) coll__phase_estimate(comm, order, is_inter);
    if (comm->members && coll__order_join(&comm->main) == COLL_OK) return comm;
    coll__comm_free(comm);
    return NULL;
}

/* Make the communicators of an order's stages, once.  COLL_OK with order->intra NULL: one host, or one rank on each. */
static coll_status coll__find_phases(coll__order *order)
{
    if (order->intra) return COLL_OK;
    if (coll__comm_topology(order->comm) < 0) return COLL_ERR_MEMORY;
    const coll__topology *t = order->comm->topology;
    if (!t) return COLL_OK;
    const bool is_on_rail = t->place < t->least;
    coll_comm *intra = coll__phase_comm(order, false), *inter = intra && is_on_rail ? coll__phase_comm(order, true) : NULL;
    if (intra && (inter || !is_on_rail)) {
        order->intra = intra;
        order->inter = inter;
        return COLL_OK;
    }
    if (intra) coll__comm_free(intra);
    return COLL_ERR_MEMORY;
}

/* ---- >>which calls are hierarchical ---- */

/* The accumulator type of a call. */
static coll_type coll__sum_type_of(const coll_call *c)
{
    if (c->accumulate) return c->accumulate;
    return c->op == COLL_USER ? c->type : coll__usual_accumulator(c->type);
}

/* Do stages carry sums in another type than the elements? */
static bool coll__has_wide_sums(const coll_call *c)
{
    const bool is_other = coll__sum_type_of(c) != c->type || c->wire != c->type;
    return coll__kind_reduces(c->kind) && is_other && !(c->flags & COLL_ROUND_TWICE);
}

/* May hosts be summed separately?  Depends only on what all ranks know. */
static bool coll__sums_by_hosts(const coll_request *r)
{
    const coll_call *c = &r->call;
    const bool is_ordered = r->comm->topology->is_ordered;
    const bool scales = c->scale != 0 && c->scale != 1, is_wide = coll__has_wide_sums(c);
    const bool keeps_order = (c->flags & (COLL_DETERMINISTIC | COLL_REPRODUCIBLE)) && !r->codec.is_exact;
    const unsigned known = COLL_DETERMINISTIC | COLL_SATURATE | COLL_REPRODUCIBLE | COLL_DETECT_OVERFLOW | COLL_ROUND_TWICE;

    if (keeps_order || c->flags & ~known || coll__is_mx(c->wire)) return false;
    if (c->op == COLL_AVG && coll__is_integer(c->type)) return false;
    if (!r->codec.is_commutative && !is_ordered) return false;
    if (coll__kind_scans(c->kind)) return is_ordered && !scales && coll__sum_type_of(c) == c->type && c->wire == c->type;
    return coll__kind_is_one_vector(c->kind) || (is_ordered && (is_wide || coll__sum_type_of(c) == c->type));
}

/* Is a request hierarchical?  COLL_OK: yes; COLL_ERR_UNSUPPORTED: no. */
static coll_status coll__is_hierarchical(const coll_request *r)
{
    coll__order *order = r->order;
    const coll_call *c = &r->call;

    if (!coll__script_of(c->kind) || c->algorithm || order->space != COLL__SPACE_CALLS) return COLL_ERR_UNSUPPORTED;
    if (coll__find_phases(order) < 0) return COLL_ERR_MEMORY;
    return order->intra && (!coll__kind_reduces(c->kind) || coll__sums_by_hosts(r)) ? COLL_OK : COLL_ERR_UNSUPPORTED;
}

/* Number of slices of a vector.  Blocks of ranks are not cut. */
static int coll__slices_for(const coll__topology *t, const coll_call *c, size_t unit)
{
    if (!coll__kind_is_one_vector(c->kind)) return t->least;
    return (int)coll__least((size_t)t->least, coll__most(1, c->count * unit / COLL__RAIL_LEAST));
}

/* Number of parts. */
static int coll__parts_for(const coll_call *c, size_t unit)
{
    if (!coll__script_of(c->kind)->step) return 1;
    return (int)coll__least(COLL__PARTS_MOST, coll__most(1, c->count * unit / COLL__PART_LEAST));
}

/* ---- >>starting ---- */

/* Place the runner, the state, its tables and scratch in the memory of the order. */
static coll_status coll__hierarchy_lay_out(coll_request *r, coll__hierarchy *h)
{
    const size_t table = (size_t)coll__most((size_t)h->hosts->most, (size_t)h->hosts->count);
    const size_t head = coll__round_up(sizeof(coll__runner), 64);
    const size_t front = head + coll__round_up(sizeof *h + 4 * table * sizeof(size_t), 64);

    if (h->script->needs) h->script->needs(h);
    const size_t sums = coll__round_up(h->sums_length, 64), results = coll__round_up(h->results_length, 64);
    unsigned char *const at = coll__workspace_memory(r, front + sums + results + h->extra_length);
    if (!at) return COLL_ERR_MEMORY;
    coll__hierarchy *const state = (coll__hierarchy *)(void *)(at + head);
    h->counts = (size_t *)(void *)(state + 1);
    h->offsets = h->counts + table;
    h->rail_counts = h->offsets + table;
    h->rail_offsets = h->rail_counts + table;
    h->sums = h->sums_length ? at + front : NULL;
    h->results = h->results_length ? at + front + sums : NULL;
    h->extra = h->extra_length ? at + front + sums + results : NULL;
    *coll__runner_of(r) = (coll__runner){ .script = h->script, .state = state };
    *state = *h;
    return COLL_OK;
}

static bool coll__hierarchy_passes(const coll_request *r) { return coll__is_hierarchical(r) == COLL_ERR_UNSUPPORTED; }

/* Start, if it is hierarchical. */
static coll_status coll__hierarchy_start(coll_request *r)
{
    const coll_call *c = &r->call;
    const coll_status status = coll__is_hierarchical(r);

    if (status == COLL_ERR_UNSUPPORTED) return status;
    if (status < 0) return coll__has_no_memory(r->comm);
    coll__hierarchy h = { .hosts = r->comm->topology, .intra = r->order->intra, .inter = r->order->inter, .whole = r,
                          .script = coll__script_of(c->kind), .is_wide = coll__has_wide_sums(c), .sum_type = coll__sum_type_of(c),
                          .unit = r->codec.type_size, .wire_unit = coll_type_size(c->wire) };
    h.sum_unit = h.is_wide ? coll_type_size(h.sum_type) : h.unit;
    h.parts = coll__parts_for(c, h.unit);
    h.slices = coll__slices_for(h.hosts, c, h.unit);
    return coll__hierarchy_lay_out(r, &h) < 0 ? coll__has_no_memory(r->comm) : COLL_PENDING;
}

/* "by hosts: 3 hosts of 2 to 4 ranks, 2 rails". */
static void coll__explain_division(const coll__topology *t, char *text, size_t room)
{
    const char *const what = t->is_by_site ? "sites" : "hosts";

    coll__append(text, room, "by %s: %d %s of ", what, t->count, what);
    if (t->least != t->most) coll__append(text, room, "%d to ", t->least);
    coll__append(text, room, "%d rank%s, %d rail%s", t->most, coll__plural(t->most), t->least, coll__plural(t->least));
}

/* "by sites: 2 sites of 6 ranks, 6 rails, of which it uses 1, in 3 parts; within this one by hosts: 2 hosts of 3 ranks, 3
 * rails". */
static bool coll__hierarchy_explain(coll_request *r, char *text, size_t room)
{
    if (coll__is_hierarchical(r) < 0) return false;
    const coll__topology *t = r->comm->topology;
    const int slices = coll__slices_for(t, &r->call, r->codec.type_size), parts = coll__parts_for(&r->call, r->codec.type_size);

    coll__explain_division(t, text, room);
    if (slices < t->least) coll__append(text, room, ", of which it uses %d", slices);
    if (parts > 1) coll__append(text, room, ", in %d parts", parts);
    if (coll__find_phases(&r->order->intra->main) < 0 || !r->order->intra->topology) return true;
    coll__append(text, room, "; within this one ");
    coll__explain_division(r->order->intra->topology, text, room);
    return true;
}

#endif
#endif /* COLL_HIERARCHY_PLAN_H */
