/* coll_arena.h - an allocator in one block of the program's memory (core/contract/coll_memory.h).
 *
 * Free memory is a list of holes, sorted by address; each begins with its length and the next hole.  Used parts have no record,
 * because the caller passes the length to free.  The first hole that is long enough is used.  So addresses do not depend on the
 * length of the block, and the end of the highest part is the length that is needed. */
#ifndef COLL_ARENA_H
#define COLL_ARENA_H

#include "coll_text.h"

COLL__FOR_SIZE

/* An allocator without memory, if the block is too short. */
static void *coll__none_allocate(void *context, size_t length, size_t alignment)
{
    return (void)context, (void)length, (void)alignment, NULL;
}

static void coll__none_free(void *context, void *at, size_t length) { (void)context, (void)at, (void)length; }
static const coll_allocator coll__arena_none = { coll__none_allocate, coll__none_free, NULL };

/* Memory of any former type. */
typedef struct __attribute__((__may_alias__)) coll__hole {
    struct coll__hole *next;
    size_t             length;
} coll__hole;

/* At the start of the block, in whole cache lines, so that the layout does not depend on the address. */
typedef struct coll__arena {
    coll_allocator allocator;
    coll__lock     lock;
    coll__hole    *holes;
    uintptr_t      most;                          /* highest end of any part so far                           */
    size_t         used;
} coll__arena;

enum {
    COLL__PART_UNIT = (int)sizeof(coll__hole) > (int)COLL__UNIT ? (int)sizeof(coll__hole) : (int)COLL__UNIT,
    COLL__PART_LINE = (int)COLL__LINE > (int)COLL__PART_UNIT ? (int)COLL__LINE : (int)COLL__PART_UNIT
};

static size_t coll__part_length(size_t length) { return coll__round_up(length ? length : 1, COLL__PART_UNIT); }

/* Take `length` bytes from the hole at *link, aligned to `unit`; NULL: it does not fit. */
static void *coll__hole_cut(coll__hole **link, size_t length, size_t unit)
{
    coll__hole *const hole = *link;
    const uintptr_t begin = (uintptr_t)hole, at = (begin + unit - 1) / unit * unit;
    const size_t before = at - begin;

    if (before > hole->length || hole->length - before < length) return NULL;
    const coll__hole whole = *hole;
    coll__hole *rest = whole.next;
    if (whole.length - before > length) {
        rest = (coll__hole *)(at + length);
        *rest = (coll__hole){ whole.next, whole.length - before - length };
    }
    if (before) *hole = (coll__hole){ rest, before };
    else *link = rest;
    return (void *)at;
}

static void *coll__arena_allocate(void *context, size_t length, size_t alignment)
{
    coll__arena *const a = (coll__arena *)context;
    void *at = NULL;

    if (length > SIZE_MAX / 2 || alignment > SIZE_MAX / 4) return NULL;
    length = coll__part_length(length);
    coll__lock_take(&a->lock);
    coll__hole **link = &a->holes;
    while (*link && !(at = coll__hole_cut(link, length, coll__most(alignment, COLL__PART_UNIT)))) link = &(*link)->next;
    if (at) a->used += length;
    if (at && (uintptr_t)at + length > a->most) a->most = (uintptr_t)at + length;
    coll__lock_drop(&a->lock);
    return at;
}

static bool coll__holes_overlap(const coll__hole *hole, const coll__hole *next)
{
    return hole && (uintptr_t)hole + hole->length == (uintptr_t)next;
}

static void coll__arena_free(void *context, void *at, size_t length)
{
    coll__arena *const a = (coll__arena *)context;
    coll__hole *const hole = (coll__hole *)at, *before = NULL;

    length = coll__part_length(length);
    coll__lock_take(&a->lock);
    coll__hole *next = a->holes;
    while (next && next < hole) before = next, next = next->next;
    *hole = (coll__hole){ next, length };
    a->used -= length;
    if (coll__holes_overlap(hole, next)) *hole = (coll__hole){ next->next, length + next->length };
    if (coll__holes_overlap(before, hole)) *before = (coll__hole){ hole->next, before->length + hole->length };
    else if (before) before->next = hole;
    else a->holes = hole;
    coll__lock_drop(&a->lock);
}

/* ---- >>public ---- */

static coll__arena *coll__arena_of(const coll_allocator *allocator)
{
    return allocator && allocator->allocate == coll__arena_allocate ? (coll__arena *)allocator->context : NULL;
}

COLL_API const coll_allocator *coll_arena_begin(void *memory, size_t length)
{
    const uintptr_t from = (uintptr_t)memory, at = coll__round_up(from, COLL__PART_LINE);
    const uintptr_t begin = at + coll__round_up(sizeof(coll__arena), COLL__PART_LINE);
    const uintptr_t end = (from + length) / COLL__PART_UNIT * COLL__PART_UNIT;

    if (!memory || end > SIZE_MAX - COLL__PART_LINE || begin + COLL__PART_UNIT > end) return &coll__arena_none;
    coll__arena *const a = (coll__arena *)at;
    coll__hole *const all = (coll__hole *)begin;
    *all = (coll__hole){ NULL, end - begin };
    *a = (coll__arena){ .allocator = { coll__arena_allocate, coll__arena_free, a }, .holes = all, .most = begin };
    coll__lock_init(&a->lock);
    return &a->allocator;
}

COLL_API coll_status coll_arena_end(const coll_allocator *arena)
{
    coll__arena *const a = coll__arena_of(arena);

    if (!a) return arena == &coll__arena_none ? COLL_OK : COLL_ERR_ARGUMENT;
    if (coll_arena_used(arena)) return COLL_ERR_ARGUMENT;
    coll__lock_free(&a->lock);
    return COLL_OK;
}

COLL_API size_t coll_arena_used(const coll_allocator *arena)
{
    coll__arena *const a = coll__arena_of(arena);

    if (!a) return 0;
    coll__lock_take(&a->lock);
    const size_t used = a->used;
    coll__lock_drop(&a->lock);
    return used;
}

COLL_API size_t coll_arena_most(const coll_allocator *arena)
{
    coll__arena *const a = coll__arena_of(arena);

    if (!a) return 0;
    coll__lock_take(&a->lock);
    const size_t most = a->most - (uintptr_t)a;   /* plus alignment of the block's start and end              */
    coll__lock_drop(&a->lock);
    return most + COLL__PART_LINE - 1 + COLL__PART_UNIT - 1;
}

COLL__FOR_SPEED

#endif /* COLL_ARENA_H */
