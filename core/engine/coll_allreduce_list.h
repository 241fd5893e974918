/* coll_allreduce_list.h - many tensors in one operation: small ones of a type are packed together, large ones are not.
 *
 * A list becomes parts; each part is an allreduce on the communicator's order.  Small buffers of one type are copied into one
 * part, up to COLL__PART_MOST bytes, in the order of the list.  So all ranks make the same parts.  The whole ends with its last
 * part.  With COLL_STOCHASTIC every buffer is a part with its own seed, and random bits depend on the element's index in its
 * buffer.  With leaves, too, every buffer is a part. */
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

/* The part of the next buffer; *at: its offset there in bytes; SIZE_MAX: it is the part. */
static int coll__list_part(coll__list_walk *w, const coll_call *call, const coll_list_item *b, size_t *at)
{
    const size_t length = coll__list_room(call, b);
    const int t = b->type < COLL__LIST_TYPES ? (int)b->type : 0;

    *at = SIZE_MAX;
    if (length > COLL__SMALL_MOST || t == 0 || call->flags & COLL_STOCHASTIC || call->leaves) return w->count++;
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
    coll__list_walk walk = { .count = 0 };

    for (const coll_list_item *b = call->list; b < call->list + call->list_count; b++) {
        const size_t length = b->count * coll_type_size(b->type);
        size_t offset;
        const int part = coll__list_part(&walk, call, b, &offset);
        if (length == 0 || offset == SIZE_MAX) continue;
        unsigned char *const at = (unsigned char *)list->parts[part].call.recv + offset;
        if (!is_in) {
            memcpy(b->recv, at, length);
            continue;
        }
        memcpy(at, b->send == COLL_IN_PLACE ? b->recv : b->send, length);
        memset(at + length, 0, coll__list_room(call, b) - length);
    }
}

/* Fill in the calls of the parts; packed ones are reduced in place, in `memory`. */
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
        part->call.send = part->call.recv = memory;
        memory += coll__round_up(part->call.count * coll_type_size(part->call.type), 64);
    }
}

static uint32_t coll__list_hash(const coll_call *call)
{
    uint64_t hash = coll__hash_of_none ^ (uint64_t)(unsigned)call->list_count;

    for (int i = 0; i < call->list_count; i++) {
        hash = coll__hash_with(hash, (uint64_t)(unsigned)call->list[i].type);
        hash = coll__hash_with(hash, call->list[i].count);
    }
    return coll__hash_end(hash);
}

/* ---- >>the carrier ---- */

static bool coll__list_takes(const coll_request *r) { return r->call.kind == COLL_ALLREDUCE_LIST; }

static coll_status coll__list_bind_part(const coll_request *whole, coll_request *part)
{
    part->comm = whole->comm;
    part->order = whole->order;
    part->carrier = coll__carrier_of(part);
    return part->carrier->bind ? part->carrier->bind(part) : COLL_OK;
}

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
        if (offset != SIZE_MAX) memory += coll__list_room(call, &call->list[i]);
    }
    const size_t count = (size_t)walk.count, head = coll__round_up(sizeof(coll__list), 64);
    const size_t front = head + coll__round_up(count * sizeof(coll_request), 64);
    unsigned char *const at = (unsigned char *)coll__allocate(coll__like(r->comm), front + memory + 64 * count);
    if (!at) return coll__explain_error(r->comm, call, COLL_ERR_MEMORY, "no memory for the parts of the list");
    coll__list *const list = (coll__list *)(void *)at;
    *list = (coll__list){ .count = walk.count, .parts = (coll_request *)(void *)(at + head) };
    coll__list_calls(call, list, at + front);
    for (int k = 0; k < list->count && status == COLL_OK; k++) {
        status = coll__check(r->comm, &list->parts[k].call, &list->parts[k].codec, &ignored);
        if (status == COLL_OK) status = coll__refused(r->comm, &list->parts[k].call);
        if (status == COLL_OK) status = coll__list_bind_part(r, &list->parts[k]);
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

    coll__name_request(r, 0);                     /* parts have numbers; this head is for error sentences     */
    coll__put32(r->head + 20, coll__list_hash(&r->call));
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

#define COLL__CARRIER_OF_LISTS                                                                                                \
    { .name = "list", .traits = COLL__AT_CALL, .takes = coll__list_takes, .bind = coll__list_bind, .start = coll__list_start,  \
      .unbind = coll__list_unbind, .explain = coll__list_explain },

#else

#define COLL__CARRIER_OF_LISTS                    /* refused by coll_check_arguments.h                                  */

#endif
#endif /* COLL_ALLREDUCE_LIST_H */
