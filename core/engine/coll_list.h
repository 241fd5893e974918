/* coll_list.h - many tensors in one operation: small ones of a type travel together, large ones by themselves.
 *
 * A list becomes parts, each an allreduce of its own that runs on the communicator's track.  Small buffers of one type are
 * copied side by side into one part, until it is COLL__PART_MOST long; the order of the list decides, so all ranks make the
 * same parts.  The last part to end ends the whole.  With COLL_STOCHASTIC every buffer is a part: elements draw by their number
 * in their own buffer, and each buffer by a seed of its own. */
#ifndef COLL_LIST_H
#define COLL_LIST_H

enum { COLL__SMALL_MOST = 64 << 10, COLL__PART_MOST = 1 << 20 };

typedef struct coll__list {
    int           count, left;                    /* parts; those that have not ended                         */
    uint32_t      hash;                           /* of the types and counts of all buffers                   */
    coll_status   status;                         /* the first error of a part                                */
    bool          has_overflow;                   /* of a part                                                */
    coll_request *parts;
    int          *part_of;                        /* by buffer: the part in which it travels                  */
    size_t       *offset;                         /* by buffer: bytes within the part; SIZE_MAX: it is the part */
    unsigned char *memory;                        /* of the packed parts                                      */
} coll__list;

static void coll__list_free(coll__list *list)
{
    if (!list) return;
    free(list->parts);
    free(list->part_of);
    free(list->offset);
    free(list->memory);
    free(list);
}

/* Elements that a packed buffer takes: up to where the next one begins a group of its own on the wire. */
static size_t coll__list_room(const coll_call *call, const coll_buffer *b)
{
    return coll__is_mx(call->wire) ? coll__round_up(b->count, COLL__MX_GROUP) : b->count;
}

/* Copy the packed buffers in or out.  What is between them counts as zeros at every start. */
static void coll__list_copy(const coll_call *call, const coll__list *list, bool is_in)
{
    for (int i = 0; i < call->list_count; i++) {
        const coll_buffer *b = &call->list[i];
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

/* Decide which buffer travels in which part.  Gives the number of parts; *memory: bytes of those that are packed. */
static int coll__list_plan(const coll_call *call, coll__list *list, size_t *memory)
{
    enum { TYPES = COLL_I64_I64 + 1 };
    int open[TYPES], count = 0;                   /* the part of each type that still has room                */
    size_t used[TYPES] = { 0 };

    for (int t = 0; t < TYPES; t++) open[t] = -1;
    for (int i = 0; i < call->list_count; i++) {
        const coll_buffer *b = &call->list[i];
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

/* Fill in the calls of the parts, but for the memory of packed ones. */
static void coll__list_calls(coll_request *r, coll__list *list)
{
    const coll_call *call = &r->call;

    for (int i = 0; i < call->list_count; i++) {
        const coll_buffer *b = &call->list[i];
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

/* A number that differs where lists differ, most likely. */
static uint32_t coll__list_hash(const coll_call *call)
{
    uint64_t hash = 1469598103934665603u ^ (uint64_t)(unsigned)call->list_count;

    for (int i = 0; i < call->list_count; i++) {
        hash = (hash ^ (uint64_t)(unsigned)call->list[i].type) * 1099511628211u;
        hash = (hash ^ call->list[i].count) * 1099511628211u;
    }
    return (uint32_t)(hash ^ hash >> 32);
}

/* Cut a checked list into parts and take the memory for them. */
static coll_status coll__list_make(coll_request *r)
{
    const size_t n = (size_t)r->call.list_count + 1;
    coll__list *list = (coll__list *)coll__allocate(sizeof *list);
    size_t memory = 0, *ignored = NULL;
    coll_status status = COLL_OK;

    r->list = list;
    if (!list) return COLL_ERR_MEMORY;
    list->part_of = (int *)malloc(n * sizeof *list->part_of);
    list->offset = (size_t *)malloc(n * sizeof *list->offset);
    if (!list->part_of || !list->offset) return COLL_ERR_MEMORY;
    list->count = coll__list_plan(&r->call, list, &memory);
    list->hash = coll__list_hash(&r->call);
    list->parts = (coll_request *)coll__allocate((size_t)(list->count + 1) * sizeof *list->parts);
    list->memory = (unsigned char *)coll__allocate(memory + 64 * (size_t)list->count);
    if (!list->parts || !list->memory) return COLL_ERR_MEMORY;
    coll__list_calls(r, list);
    for (int k = 0; k < list->count && status == COLL_OK; k++)
        status = coll__check(r->comm, &list->parts[k].call, &list->parts[k].codec, &ignored);
    return status;
}

/* The fingerprint of a part says that it is one, and of which list. */
static void coll__list_head(unsigned char *head, const coll_request *whole)
{
    head[12] = COLL_ALLREDUCE_LIST;
    coll__put32(head + 20, whole->list->hash);
}

/* A part has ended; with the last one, the whole. */
static void coll__list_part_done(coll_request *whole, coll_request *part, coll_status status)
{
    coll__list *list = whole->list;

    if (list->status == COLL_OK) list->status = status;
    if (part && part->has_overflow) list->has_overflow = true;
    if (--list->left > 0) return;
    whole->has_overflow = list->has_overflow;
    if (list->status == COLL_OK) coll__list_copy(&whole->call, list, false);
    coll__request_finish(whole, list->status);
}

#endif /* COLL_LIST_H */
