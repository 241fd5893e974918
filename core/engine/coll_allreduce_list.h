/* coll_allreduce_list.h - many tensors in one operation: small ones of a type are packed together, large ones are not.
 *
 * A list becomes parts; each part is an allreduce on the communicator's order.  Small buffers of one type are copied into one
 * part, up to COLL__PART_MOST bytes, in the order of the list.  So all ranks make the same parts.  The whole ends with its last
 * part.  With COLL_STOCHASTIC every buffer is a part with its own seed, and random bits depend on the element's index in its
 * buffer.  A packed part is reduced in place.  With leaves its vectors are behind the result.  All buffers have the same leaves,
 * so vector v of the part consists of vector v of each buffer. */
#ifndef COLL_ALLREDUCE_LIST_H
#define COLL_ALLREDUCE_LIST_H

#if COLL__IS_WHOLE

enum { COLL__SMALL_MOST = 64 << 10, COLL__PART_MOST = 1 << 20 };

typedef struct coll__list {
    int           count, left;                    /* parts; unfinished parts                                  */
    coll_status   status;                         /* the first error of a part                                */
    coll_request *parts;
} coll__list;

static inline coll__list *coll__list_of(const coll_request *r) { return (coll__list *)r->carried; }

/* ---- >>assigning buffers to parts ---- */

enum { COLL__LIST_TYPES = COLL_I64_I64 + 1 };

/* A walk over the buffers of a list, always with the same result. */
typedef struct coll__list_walk {
    int    count;                                 /* parts so far                                             */
    int    open[COLL__LIST_TYPES];                /* by type: the number of parts up to the one with free room; 0: none */
    size_t used[COLL__LIST_TYPES];                /* its bytes                                                */
} coll__list_walk;

/* Bytes that a packed buffer takes: rounded up so that the next one starts a group on the wire. */
static size_t coll__list_room(const coll_call *call, const coll_list_item *b)
{
    return (coll__is_mx(call->wire) ? coll__round_up(b->count, COLL__MX_GROUP) : b->count) * coll_type_size(b->type);
}

/* The vectors of a packed buffer: one, or those of the leaves of this rank; and bytes of an element there. */
static size_t coll__list_vectors(const coll_call *call)
{
    if (!call->leaves) return 1;
    return (size_t)coll__leaf_vectors(call->first_leaf, call->leaves, !(call->flags & COLL_REPRODUCIBLE));
}

static size_t coll__list_unit(const coll_call *call, coll_type type)
{
    if (!call->leaves || call->flags & COLL_REPRODUCIBLE) return coll_type_size(type);
    return coll_type_size(call->accumulate ? call->accumulate : coll__usual_accumulator(type));
}

/* The input of a packed part, behind its result. */
static unsigned char *coll__list_input(const coll_call *part)
{
    return (unsigned char *)part->recv + (part->leaves ? coll__round_up(part->count * coll_type_size(part->type), 64) : 0);
}

/* The part of the next buffer; *at: its offset there in bytes; SIZE_MAX: it is the part. */
static int coll__list_part(coll__list_walk *w, const coll_call *call, const coll_list_item *b, size_t *at)
{
    const size_t length = coll__list_room(call, b);
    const int t = b->type < COLL__LIST_TYPES ? (int)b->type : 0;

    *at = SIZE_MAX;
    if (length > COLL__SMALL_MOST || t == 0 || call->flags & COLL_STOCHASTIC) return w->count++;
    if (w->open[t] == 0 || w->used[t] + length > COLL__PART_MOST) {
        w->open[t] = ++w->count;
        w->used[t] = 0;
    }
    *at = w->used[t];
    w->used[t] += length;
    return w->open[t] - 1;
}

/* Copy the packed buffers in or out.  Gaps between them are set to 0 at every start. */
static void coll__list_copy(const coll_call *call, const coll__list *list, bool is_in)
{
    const size_t vectors = coll__list_vectors(call);
    coll__list_walk walk = { .count = 0 };

    for (const coll_list_item *b = call->list; b < call->list + call->list_count; b++) {
        const size_t size = coll_type_size(b->type), unit = coll__list_unit(call, b->type), length = b->count * unit;
        const unsigned char *from = (const unsigned char *)(b->send == COLL_IN_PLACE ? b->recv : b->send);
        size_t offset;
        const coll_call *const part = &list->parts[coll__list_part(&walk, call, b, &offset)].call;
        if (length == 0 || offset == SIZE_MAX) continue;
        if (!is_in) {
            memcpy(b->recv, (const unsigned char *)part->recv + offset, b->count * size);
            continue;
        }
        unsigned char *to = coll__list_input(part) + offset / size * unit;
        memset(to + length, 0, coll__list_room(call, b) - b->count * size);
        for (size_t v = 0; v < vectors; v++, from += length, to += part->count * unit) memcpy(to, from, length);
    }
}

/* Fill in the calls of the parts; packed ones are reduced in `memory`. */
static void coll__list_calls(const coll_call *call, const coll__list *list, unsigned char *memory)
{
    coll__list_walk walk = { .count = 0 };

    for (int i = 0; i < call->list_count; i++) {
        const coll_list_item *b = &call->list[i];
        size_t offset;
        coll_call *part = &list->parts[coll__list_part(&walk, call, b, &offset)].call;
        const bool is_packed = offset != SIZE_MAX;
        if (part->kind == 0) {
            *part = *call;
            part->kind = COLL_ALLREDUCE;
            part->send = is_packed ? NULL : b->send == COLL_IN_PLACE ? b->recv : b->send;
            part->recv = is_packed ? NULL : b->recv;
            part->list = NULL;
            part->list_count = 0;
            part->type = b->type;
            part->count = 0;
            part->seed = coll__seed_of(~call->seed, (uint64_t)i);
        }
        part->count += is_packed ? coll__list_room(call, b) / coll_type_size(b->type) : b->count;
    }
    for (coll_request *part = list->parts; part < list->parts + list->count; part++) {
        if (part->call.recv) continue;
        part->call.recv = memory;
        part->call.send = memory = coll__list_input(&part->call);
        memory += coll__round_up(part->call.count * coll__list_unit(call, part->call.type) * coll__list_vectors(call), 64);
    }
}

/* ---- >>the carrier ---- */

static bool coll__list_takes(const coll_request *r) { return r->call.kind == COLL_ALLREDUCE_LIST; }

static void coll__list_unbind(coll_request *r)
{
    coll__list *const list = coll__list_of(r);

    for (coll_request *part = list->parts; part < list->parts + list->count; part++)
        if (part->carrier && part->carrier->unbind) part->carrier->unbind(part);
    coll__give(list);
}

/* Cut a checked list into parts, with their memory. */
static coll_status coll__list_bind(coll_request *r)
{
    const coll_call *call = &r->call;
    coll__list_walk walk = { .count = 0 };
    size_t memory = 0, offset, *ignored = NULL;
    coll_status status = COLL_OK;

    for (int i = 0; i < call->list_count; i++) {
        (void)coll__list_part(&walk, call, &call->list[i], &offset);
        if (offset == SIZE_MAX) continue;
        memory += coll__list_room(call, &call->list[i]);
        if (call->leaves) memory += call->list[i].count * coll__list_unit(call, call->list[i].type) * coll__list_vectors(call);
    }
    const size_t count = (size_t)walk.count, head = coll__round_up(sizeof(coll__list), 64);
    const size_t front = head + coll__round_up(count * sizeof(coll_request), 64);
    unsigned char *const at = (unsigned char *)coll__allocate(coll__like(r->comm), front + memory + 128 * count);
    if (!at) return coll__explain_error(r->comm, call, COLL_ERR_MEMORY, "no memory for the parts of the list");
    coll__list *const list = (coll__list *)(void *)at;
    *list = (coll__list){ .count = walk.count, .parts = (coll_request *)(void *)(at + head) };
    coll__list_calls(call, list, at + front);
    for (coll_request *part = list->parts; part < list->parts + list->count && status == COLL_OK; part++) {
        status = coll__check(r->comm, &part->call, &part->codec, &ignored);
        if (status == COLL_OK) status = coll__refused(r->comm, &part->call);
        if (status < 0) break;
        part->comm = r->comm;
        part->order = r->order;
        part->carrier = coll__carrier_of(part);
        if (part->carrier->bind) status = part->carrier->bind(part);
    }
    r->carried = list;
    if (status < 0) coll__list_unbind(r);
    return status;
}

/* A part has ended; the whole ends with the last one. */
static void coll__list_part_done(coll_request *whole, coll_request *part, coll_status status)
{
    coll__list *list = coll__list_of(whole);

    if (list->status == COLL_OK) list->status = status;
    if (part && part->has_overflow) whole->has_overflow = true;
    if (--list->left > 0) return;
    if (list->status == COLL_OK) coll__list_copy(&whole->call, list, false);
    coll__request_finish(whole, list->status);
}

/* Start all parts; the whole is pending until the last one has ended. */
static coll_status coll__list_start(coll_request *r)
{
    coll__list *list = coll__list_of(r);
    coll_status status = COLL_OK;
    uint64_t hash = coll__hash_of_none ^ (uint64_t)(unsigned)r->call.list_count;

    for (const coll_list_item *b = r->call.list; b < r->call.list + r->call.list_count; b++)
        hash = coll__hash_with(coll__hash_with(hash, (uint64_t)(unsigned)b->type), b->count);
    coll__name_request(r, 0);                     /* parts have numbers; this head is for error sentences     */
    coll__put32(r->head + 20, coll__hash_end(hash));
    r->has_overflow = false;
    list->status = COLL_OK;
    list->left = list->count + 1;
    coll__list_copy(&r->call, list, true);
    for (int k = 0; k < list->count; k++) {
        coll_request *part = &list->parts[k];
        void *const carried = part->carried;
        coll__request_init(part, r->comm);
        part->carried = carried;
        part->whole = r;
        part->done = coll__list_part_done;
        part->order = r->order;
        part->prepared = r->prepared;
        part->carrier = coll__carrier_of(part);
        if (status >= 0) status = coll__launch(part);
        else coll__list_part_done(r, part, status);
    }
    coll__list_part_done(r, NULL, COLL_OK);       /* counted in `left`: without parts the whole ends here     */
    return status;
}

static bool coll__list_explain(coll_request *r, char *text, size_t room)
{
    const int parts = coll__list_of(r)->count;

    coll__append(text, room, "%d part%s, each an allreduce", parts, coll__plural(parts));
    return true;
}

#endif
#endif /* COLL_ALLREDUCE_LIST_H */
