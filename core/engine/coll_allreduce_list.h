/* coll_allreduce_list.h - many tensors in one operation: small ones of a type are packed together, large ones are not.
 *
 * A list becomes parts; each part is an allreduce on the communicator's order.  Small buffers of one type are copied into one
 * part, up to COLL__PART_MOST bytes, in the order of the list.  So all ranks make the same parts.  The whole ends with its last
 * part.  With COLL_STOCHASTIC every buffer is a part with its own seed, and random bits depend on the element's index in its
 * buffer. */
#ifndef COLL_ALLREDUCE_LIST_H
#define COLL_ALLREDUCE_LIST_H

#if COLL__IS_WHOLE

enum { COLL__SMALL_MOST = 64 << 10, COLL__PART_MOST = 1 << 20 };

typedef struct coll__list {
    int           count, left;                    /* parts; unfinished parts                                  */
    uint32_t      hash;                           /* of the types and counts of all buffers                   */
    coll_status   status;                         /* the first error of a part                                */
    bool          has_overflow;                   /* of a part                                                */
    coll_request *parts;
    int          *part_of;                        /* by buffer: its part                                      */
    size_t       *offset;                         /* by buffer: offset in the part in bytes; SIZE_MAX: it is the part */
    unsigned char *memory;                        /* of packed parts                                          */
} coll__list;

static inline coll__list *coll__list_of(const coll_request *r) { return (coll__list *)r->carried; }

static void coll__list_free(coll__list *list)
{
    if (!list) return;
    coll__give(list->parts);
    coll__give(list->part_of);
    coll__give(list->offset);
    coll__give(list->memory);
    coll__give(list);
}

/* Elements that a packed buffer takes: rounded up so that the next one starts a group on the wire. */
static size_t coll__list_room(const coll_call *call, const coll_list_item *b)
{
    return coll__is_mx(call->wire) ? coll__round_up(b->count, COLL__MX_GROUP) : b->count;
}

/* Copy the packed buffers in or out.  Gaps between them are set to 0 at every start. */
static void coll__list_copy(const coll_call *call, const coll__list *list, bool is_in)
{
    for (int i = 0; i < call->list_count; i++) {
        const coll_list_item *b = &call->list[i];
        const size_t length = b->count * coll_type_size(b->type);
        if (length == 0 || list->offset[i] == SIZE_MAX) continue;
        unsigned char *const at = (unsigned char *)list->parts[list->part_of[i]].call.recv + list->offset[i];
        if (!is_in) {
            memcpy(b->recv, at, length);
            continue;
        }
        memcpy(at, b->send == COLL_IN_PLACE ? b->recv : b->send, length);
        memset(at + length, 0, coll__list_room(call, b) * coll_type_size(b->type) - length);
    }
}

/* Assign buffers to parts.  Returns the number of parts; *memory: bytes of the packed ones. */
static int coll__list_plan(const coll_call *call, coll__list *list, size_t *memory)
{
    enum { TYPES = COLL_I64_I64 + 1 };
    int open[TYPES], count = 0;                   /* by type: the part with free room                         */
    size_t used[TYPES] = { 0 };

    for (int t = 0; t < TYPES; t++) open[t] = -1;
    for (int i = 0; i < call->list_count; i++) {
        const coll_list_item *b = &call->list[i];
        const size_t length = coll__list_room(call, b) * coll_type_size(b->type);
        const int t = b->type < TYPES ? b->type : 0;
        list->offset[i] = SIZE_MAX;
        if (length > COLL__SMALL_MOST || t == 0 || call->flags & COLL_STOCHASTIC) {
            list->part_of[i] = count++;
            continue;
        }
        if (open[t] < 0 || used[t] + length > COLL__PART_MOST) {
            open[t] = count++;
            used[t] = 0;
        }
        list->part_of[i] = open[t];
        list->offset[i] = used[t];
        used[t] += length;
        *memory += length;
    }
    return count;
}

/* Fill in the calls of the parts, except the memory of packed ones. */
static void coll__list_calls(coll_request *r, coll__list *list)
{
    const coll_call *call = &r->call;

    for (int i = 0; i < call->list_count; i++) {
        const coll_list_item *b = &call->list[i];
        coll_call *part = &list->parts[list->part_of[i]].call;
        if (part->kind == 0) {
            *part = *call;
            part->kind = COLL_ALLREDUCE;
            part->send = NULL;
            part->recv = NULL;
            part->list = NULL;
            part->list_count = 0;
            part->type = b->type;
            part->count = 0;
            part->seed = coll__seed_of(~call->seed, (uint64_t)i);
        }
        part->count += list->offset[i] != SIZE_MAX ? coll__list_room(call, b) : b->count;
        if (list->offset[i] != SIZE_MAX) continue;
        part->send = b->send == COLL_IN_PLACE ? b->recv : b->send;
        part->recv = b->recv;
    }
    unsigned char *at = list->memory;
    for (int k = 0; k < list->count; k++) {
        coll_call *part = &list->parts[k].call;
        if (part->recv) continue;
        part->send = part->recv = at;             /* packed: reduced in place                                 */
        at += coll__round_up(part->count * coll_type_size(part->type), 64);
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

/* Cut a checked list into parts and allocate their memory. */
static coll_status coll__list_make(coll_request *r)
{
    const size_t n = (size_t)r->call.list_count + 1;
    coll__list *list = (coll__list *)coll__allocate(coll__like(r->comm), sizeof *list);
    size_t memory = 0, *ignored = NULL;
    coll_status status = COLL_OK;

    r->carried = list;
    if (!list) return COLL_ERR_MEMORY;
    list->part_of = (int *)coll__take(coll__like(r->comm), n * sizeof *list->part_of);
    list->offset = (size_t *)coll__take(coll__like(r->comm), n * sizeof *list->offset);
    if (!list->part_of || !list->offset) return COLL_ERR_MEMORY;
    list->count = coll__list_plan(&r->call, list, &memory);
    list->hash = coll__list_hash(&r->call);
    list->parts = (coll_request *)coll__allocate(coll__like(r->comm), (size_t)(list->count + 1) * sizeof *list->parts);
    list->memory = (unsigned char *)coll__allocate(coll__like(r->comm), memory + 64 * (size_t)list->count);
    if (!list->parts || !list->memory) return COLL_ERR_MEMORY;
    coll__list_calls(r, list);
    for (int k = 0; k < list->count && status == COLL_OK; k++)
        status = coll__check(r->comm, &list->parts[k].call, &list->parts[k].codec, &ignored);
    for (int k = 0; k < list->count && status == COLL_OK; k++) status = coll__refused(r->comm, &list->parts[k].call);
    return status;
}

static bool coll__list_takes(const coll_request *r) { return r->call.kind == COLL_ALLREDUCE_LIST; }

static coll_status coll__list_bind(coll_request *r)
{
    const coll_status status = coll__list_make(r);

    if (status == COLL_ERR_MEMORY) coll__explain_error(r->comm, &r->call, status, "no memory for the parts of the list");
    if (status < 0) coll__list_free(coll__list_of(r));
    return status;
}

static void coll__list_unbind(coll_request *r) { coll__list_free(coll__list_of(r)); }

/* A part has ended; the whole ends with the last one. */
static void coll__list_part_done(coll_request *whole, coll_request *part, coll_status status)
{
    coll__list *list = coll__list_of(whole);

    if (list->status == COLL_OK) list->status = status;
    if (part && part->has_overflow) list->has_overflow = true;
    if (--list->left > 0) return;
    whole->has_overflow = list->has_overflow;
    if (list->status == COLL_OK) coll__list_copy(&whole->call, list, false);
    coll__request_finish(whole, list->status);
}

/* Start all parts; the whole is pending until the last one has ended. */
static coll_status coll__list_start(coll_request *r)
{
    coll__list *list = coll__list_of(r);
    coll_status status = COLL_OK;

    coll__name_request(r, 0);                     /* parts have numbers; this head is for error sentences     */
    coll__put32(r->head + 20, list->hash);
    list->status = COLL_OK;
    list->left = list->count + 1;
    list->has_overflow = false;
    coll__list_copy(&r->call, list, true);
    for (int k = 0; k < list->count; k++) {
        coll_request *part = &list->parts[k];
        coll__request_init(part, r->comm);
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
