/* coll_order.h - orders: collectives that run one after the other (coll__order), and the choice of carriers. */
#ifndef COLL_ORDER_H
#define COLL_ORDER_H

static void coll__order_init(coll__order *order, coll_comm *comm, coll__space space, uint64_t number, bool is_keyed)
{
    *order = (coll__order){ .comm = comm, .space = space, .number = number, .is_keyed = is_keyed };
    order->queue_end = &order->queue;
}

/* Does the transport get the collectives of an order? */
static inline bool coll__order_is_offered(const coll__order *order)
{
    const coll_comm *comm = order->comm;
    return COLL__TAKES_WHOLE && (order->group || (!order->is_keyed && !comm->members && comm->session->offloads_all));
}

/* Make the transport's group for a keyed order, if the transport executes whole collectives. */
static coll_status coll__order_join(coll__order *order)
{
    const coll_comm *comm = order->comm;
    const coll__session *session = comm->session;
    int *everyone = NULL;

    if (!COLL__TAKES_WHOLE || !session->transport->offload || !session->transport->group) return COLL_OK;
    if (!comm->members) {
        everyone = (int *)coll__take(coll__like(comm), (size_t)comm->size * sizeof *everyone);
        if (!everyone) return COLL_ERR_MEMORY;
        for (int i = 0; i < comm->size; i++) everyone[i] = i;
    }
    order->group = session->transport->group(session->context, comm->id, (uint32_t)order->number,
                                             everyone ? everyone : comm->members, comm->size, comm->rank);
    coll__give(everyone);
    return COLL_OK;
}

/* The groups were freed, or must not be used any more. */
static void coll__order_forget(coll__order *order)
{
    order->group = NULL;
    if (order->intra) coll__order_forget(&order->intra->main);
    if (order->inter) coll__order_forget(&order->inter->main);
}

/* Settle the link numbers of a communicator for its own ranks. */
static void coll__numbers_divide(coll_comm *comm)
{
    comm->numbers.link.per_byte /= coll__shares_settle(&comm->numbers.shares, comm->size);
}

/* The numbers of `all` for `size` of its ranks; number i has rank ranks[i] there. */
static void coll__numbers_of_some(coll__numbers *n, const coll__numbers *all, const int *ranks, int size)
{
    *n = *all;
    n->shares.count = 0;
    for (int i = 0; all->shares.count > 0 && i < size; i++)
        coll__rates_add(&n->shares, i, coll__run_of(&all->shares, ranks[i])->rate);
    coll__sites_inherit(&n->sites, &all->sites, ranks, size);
}

/* Numbers for a communicator of some ranks of another one. */
static void coll__numbers_inherit(coll_comm *comm, const coll__numbers *all, const int *ranks)
{
    coll__numbers_of_some(&comm->numbers, all, ranks, comm->size);
    coll__numbers_divide(comm);
}

static void coll__comm_free(coll_comm *comm);

static void coll__order_leave(coll__order *order)
{
    const coll__session *session = order->comm->session;

    if (order->group) session->transport->ungroup(session->context, order->group);
    order->group = NULL;
    if (order->intra) coll__comm_free(order->intra);
    if (order->inter) coll__comm_free(order->inter);
    order->intra = order->inter = NULL;
    coll__workspaces_give(order, 0);
}

static void coll__comm_free(coll_comm *comm)
{
    coll__order_leave(&comm->main);
    coll__give(comm->members);
    coll__give(comm->topology);
    coll__give(comm->graph_lists);
    coll__give(comm->recorder);
    coll__give(comm->spare);
    coll__give(comm->counts);
    for (int i = 0; i < COLL__PLAN_PLACES; i++) coll__give(comm->plans[i]);
    coll__give(comm);
}

/* ---- >>carriers ---- */

/* The first carrier that accepts a checked request. */
static const coll__carrier *coll__carrier_of(const coll_request *r)
{
    const coll__carrier *c = r->comm->session->carriers;

    if (coll__is_extended(r->comm)) return r->comm->extension->carrier;
    if (COLL__ON_DEMAND && coll__kind_is_message(r->call.kind)) return r->comm->session->by_key->carrier;
    while (c->takes && !c->takes(r)) c++;
    return c;
}

/* The next carrier; the current one has declined. */
static const coll__carrier *coll__next_carrier(coll_request *r)
{
    COLL__ASSERT(r->carrier >= r->comm->session->carriers
                 && r->carrier + 1 < r->comm->session->carriers + r->comm->session->carrier_count,
                 "%s declines %s, and there is none behind it", r->carrier->name, coll_kind_name(r->call.kind));
    return ++r->carrier;
}

/* Advance a collective.  Starts it with its carrier, or with the next one that does not decline. */
static coll_status coll__carry_on(coll_request *r)
{
    if (COLL__IS_WHOLE && r->strided && !r->is_started) coll__columns_move(&r->strided->send, true);
    coll_status status = r->is_started ? COLL_PENDING : r->carrier->start(r);

    while (status == COLL_ERR_UNSUPPORTED) status = coll__next_carrier(r)->start(r);
    if (status != COLL_PENDING) return status;
    r->is_started = true;
    return r->carrier->advance(r);
}

#endif /* COLL_ORDER_H */
