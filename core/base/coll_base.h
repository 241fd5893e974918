/* coll_base.h - basics for all files: arithmetic, time, memory, threads. */
#ifndef COLL_BASE_H
#define COLL_BASE_H

#include "../../coll.h"

#if !COLL__HAS_OS
#include "coll_system_none.h"
#else
#include "coll_system.h"
#endif

#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

/* The program asked for small code or no optimization.  Tested before any COLL__FOR_SIZE: gcc keeps __OPTIMIZE_SIZE__ defined
 * after pop_options. */
#if !defined(__OPTIMIZE__) || defined(__OPTIMIZE_SIZE__)
#define COLL__AS_ASKED 1
#endif

/* ---- >>arithmetic ---- */

static inline size_t coll__least(size_t a, size_t b) { return a < b ? a : b; }
static inline size_t coll__most(size_t a, size_t b) { return a > b ? a : b; }
static inline size_t coll__round_up(size_t value, size_t unit) { return (value + unit - 1) / unit * unit; }

/* `rank` modulo `size`; it may be off by at most `size`. */
static inline int coll__wrap(int rank, int size)
{
    return rank >= size ? rank - size : rank < 0 ? rank + size : rank;
}

/* x / n for x < 2^48 and n <= 2^16: by two 32-bit divisions, on machines without longer ones. */
static inline uint64_t coll__quotient48(uint64_t x, uint32_t n)
{
    const uint32_t high = (uint32_t)(x >> 16), rest = high % n << 16 | (uint32_t)(x & 0xffff);

    if (SIZE_MAX > UINT32_MAX) return x / n;
    return (uint64_t)(high / n) << 16 | rest / n;
}

/* A hash of numbers (FNV-1a, by words): begin with coll__hash_of_none. */
static const uint64_t coll__hash_of_none = UINT64_C(1469598103934665603);

static inline uint64_t coll__hash_with(uint64_t hash, uint64_t value) { return (hash ^ value) * UINT64_C(1099511628211); }
static inline uint32_t coll__hash_end(uint64_t hash) { return (uint32_t)(hash ^ hash >> 32); }

/* The finalizer of splitmix64 (Steele, Lea, Flood 2014): a bijection in which each bit depends on all bits. */
static inline uint64_t coll__mix64(uint64_t x)
{
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

/* `length` bytes behind a pointer, which may be NULL.  Drops const; the library never writes to inputs. */
static inline unsigned char *coll__behind(const void *at, size_t length) { return (unsigned char *)((uintptr_t)at + length); }

/* ---- >>time: moments of coll__now ---- */

enum { COLL__MS = 1000000 };
static const int64_t coll__never = INT64_MAX;

/* The time in `ms` from now; 0 or less: never. */
static inline int64_t coll__deadline(int ms) { return ms > 0 ? coll__now() + (int64_t)ms * COLL__MS : coll__never; }

/* Milliseconds from `now` to `deadline`, rounded up, at most `most`. */
static inline int coll__ms_between(int64_t now, int64_t deadline, int most)
{
    if (deadline <= now) return 0;
    const int64_t left = deadline - now;
    if (left >= (int64_t)most * COLL__MS) return most;
    return (int)coll__quotient48((uint64_t)(left + COLL__MS - 1) >> 6, COLL__MS >> 6);
}

/* For texts, to the millisecond: many machines convert 32 bits to double with one instruction, 64 bits with a long function. */
static inline double coll__seconds(int64_t ns) { return (double)(uint32_t)(ns / COLL__MS) * 1e-3; }
static inline double coll__waited_seconds(int64_t began) { return coll__seconds(coll__now() - began); }

static inline int coll__ms_until(int64_t deadline, int most)
{
    return deadline == coll__never ? most : coll__ms_between(coll__now(), deadline, most);
}

/* A short pause in a spin loop. */
static inline void coll__relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* Prefetch a cache line for writing. */
static inline void coll__fetch_to_write(const void *at)
{
#if defined(__x86_64__)
    __asm__ volatile("prefetchw %0" : : "m"(*(const char *)at));
#else
    __builtin_prefetch(at, 1);
#endif
}

/* ---- >>processors ---- */

/* The processors usable by this process: a bit for each, and their number.  Those beyond 64 share the bits of the first ones. */
static COLL__UNUSED uint64_t coll__processor_set(int *count)
{
    uint64_t mask[1024 / 64] = { 0 }, set = 0;
    const size_t words = coll__processor_mask(mask, sizeof mask / sizeof *mask);

    *count = 0;
    for (size_t i = 0; i < words; i++) {
        *count += __builtin_popcountll(mask[i]);
        set |= mask[i];
    }
    if (*count > 0) return set;
    *count = 1;
    return 1;
}

static COLL__UNUSED int coll__processors(void)
{
    int count = 1;

    if (COLL__MANY_THREADS) (void)coll__processor_set(&count);
    return count;
}

/* The number of processors in the sets of several processes of one host; `most` and `sum` of their numbers.  Beyond 64
 * processors the sets are ambiguous: all processes have the same, or each is bound to its own.  At least 1, even for invalid
 * input. */
static COLL__UNUSED int coll__processors_together(uint64_t set, int most, int sum)
{
    const int several = __builtin_popcountll(set), beyond = most < 64 ? sum : most;
    const int together = several == 64 ? beyond : several > most ? several : most;

    return together > 1 ? together : 1;
}

/* ---- >>reserved members ---- */

/* The first that is not 0; -1: all are 0. */
static inline int coll__reserved_set(const uint64_t *reserved, size_t bytes)
{
    for (int i = 0; i < (int)(bytes / sizeof *reserved); i++) if (reserved[i]) return i;
    return -1;
}

#define COLL__RESERVED_SET(of) coll__reserved_set((of)->reserved, sizeof (of)->reserved)

COLL_API int coll_version(void) { return COLL_VERSION; }

/* ---- >>statuses ---- */

COLL_API const char *coll_status_text(coll_status status)
{
    switch (status) {
#define COLL__STATUS_CASE(name, value, text) case name: return text;
    COLL__STATUS_TABLE(COLL__STATUS_CASE)
#undef COLL__STATUS_CASE
    }
    return "unknown status";
}

/* ---- >>bytes: numbers in messages, least significant byte first ---- */

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
#define COLL__AS_TRAVELS(bits, v) __builtin_bswap##bits(v)
#else
#define COLL__AS_TRAVELS(bits, v) (v)
#endif
#define COLL__PUT_AND_GET(bits, wide)                                                                        \
    static inline void coll__put##bits(unsigned char *at, wide value)                                        \
    {                                                                                                        \
        const uint##bits##_t v = COLL__AS_TRAVELS(bits, (uint##bits##_t)value);                              \
        memcpy(at, &v, sizeof v);                                                                            \
    }                                                                                                        \
    static inline wide coll__get##bits(const unsigned char *at)                                              \
    {                                                                                                        \
        uint##bits##_t v;                                                                                    \
        memcpy(&v, at, sizeof v);                                                                            \
        return COLL__AS_TRAVELS(bits, v);                                                                    \
    }
COLL__PUT_AND_GET(16, uint32_t)
COLL__PUT_AND_GET(32, uint32_t)
COLL__PUT_AND_GET(64, uint64_t)
#undef COLL__PUT_AND_GET
#undef COLL__AS_TRAVELS

/* ---- >>structs ---- */

/* Copy a struct of a hundred bytes or more.  Compilers use one string instruction, whose start-up is slow for short calls. */
#if defined(__OPTIMIZE_SIZE__)
static inline void coll__copy_struct(void *to, const void *from, size_t length) { memcpy(to, from, length); }
#else
static inline __attribute__((always_inline)) void coll__copy_struct(void *to, const void *from, size_t length)
{
    enum { STEP = 16 };
    unsigned char *const out = (unsigned char *)to;
    const unsigned char *const in = (const unsigned char *)from;
    size_t at = 0;

    for (; at + 4 * STEP <= length; at += 4 * STEP) {
        memcpy(out + at, in + at, STEP);
        memcpy(out + at + STEP, in + at + STEP, STEP);
        memcpy(out + at + 2 * STEP, in + at + 2 * STEP, STEP);
        memcpy(out + at + 3 * STEP, in + at + 3 * STEP, STEP);
    }
    for (; at + STEP <= length; at += STEP) memcpy(out + at, in + at, STEP);
    memcpy(out + at, in + at, length - at);
}
#endif

/* ---- >>memory: each block records its allocator ---- */

static inline void *coll__malloc(size_t length) { return COLL__HAS_MALLOC ? malloc(length) : NULL; }
static inline void *coll__malloc_zeros(size_t length) { return COLL__HAS_MALLOC ? calloc(1, length) : NULL; }
static inline void *coll__malloc_at(size_t length, size_t unit)
{
    void *at = NULL;
    return !COLL__HAS_MALLOC || posix_memalign(&at, unit, length) ? NULL : at;
}
static inline void coll__malloc_give(void *at) { if (COLL__HAS_MALLOC) free(at); }

typedef struct coll__prefix {
    const coll_allocator *memory;                 /* NULL: malloc's                                           */
    size_t length, lead;                          /* of the block; from the allocator's pointer to the block  */
} coll__prefix;

enum {
    COLL__UNIT = _Alignof(max_align_t),           /* the largest alignment of any type                        */
    COLL__LEAD = (sizeof(coll__prefix) + COLL__UNIT - 1) / COLL__UNIT * COLL__UNIT
};

static inline coll__prefix *coll__prefix_of(const void *at) { return (coll__prefix *)((uintptr_t)at - sizeof(coll__prefix)); }

/* The allocator of a block. */
static inline const coll_allocator *coll__like(const void *at) { return coll__prefix_of(at)->memory; }

/* `length` uninitialized bytes; NULL: no memory. */
static COLL__UNUSED void *coll__take_at(const coll_allocator *memory, size_t length, size_t unit)
{
    const size_t lead = unit > COLL__LEAD ? unit : COLL__LEAD;

    if (length > SIZE_MAX / 2 - lead) return NULL;
    void *const from = memory ? memory->allocate(memory->context, lead + length, unit)
                     : unit <= COLL__UNIT ? coll__malloc(lead + length) : coll__malloc_at(lead + length, unit);
    if (!from) return NULL;
    unsigned char *const at = (unsigned char *)from + lead;
    *coll__prefix_of(at) = (coll__prefix){ memory, length, lead };
    return at;
}

static COLL__UNUSED void coll__give(void *at)
{
    if (!at) return;
    const coll__prefix b = *coll__prefix_of(at);
    void *const from = (unsigned char *)at - b.lead;
    if (b.memory) b.memory->free(b.memory->context, from, b.lead + b.length);
    else coll__malloc_give(from);
}

static COLL__UNUSED void *coll__take(const coll_allocator *memory, size_t length)
{
    return coll__take_at(memory, length, COLL__UNIT);
}

static COLL__UNUSED void *coll__take_zeros(const coll_allocator *memory, size_t count, size_t unit)
{
    void *at = NULL;

    if (count > (SIZE_MAX / 2 - COLL__LEAD) / unit) return NULL;
    if (memory) {
        if ((at = coll__take(memory, count * unit))) memset(at, 0, count * unit);
        return at;
    }
    at = coll__malloc_zeros(COLL__LEAD + count * unit);     /* does not touch the pages of a long block       */
    if (!at) return NULL;
    at = (unsigned char *)at + COLL__LEAD;
    *coll__prefix_of(at) = (coll__prefix){ NULL, count * unit, COLL__LEAD };
    return at;
}

/* Move what is at `old` (may be NULL) to a block of this length, and free the old one.  NULL: no memory; the old one stays. */
static COLL__UNUSED void *coll__take_more(const coll_allocator *memory, void *old, size_t length)
{
    void *at = coll__take(memory, length);

    if (!at || !old) return at;
    memcpy(at, old, coll__least(coll__prefix_of(old)->length, length));
    coll__give(old);
    return at;
}

/* Whole cache lines, shared with nothing else. */
static COLL__UNUSED void *coll__take_lines(const coll_allocator *memory, size_t length)
{
    const size_t unit = coll__most(COLL__LINE, COLL__UNIT);

    if (length > SIZE_MAX / 2) return NULL;
    return coll__take_at(memory, coll__round_up(length ? length : 1, unit), unit);
}

/* The same, zeroed. */
static COLL__UNUSED void *coll__allocate(const coll_allocator *memory, size_t length)
{
    void *at = coll__take_lines(memory, length);

    if (at) memset(at, 0, coll__prefix_of(at)->length);
    return at;
}

/* ---- >>size ---- */

/* Around files with seldom called functions: these are compiled for size.  More fast code would slow down compilers and
 * processors. */
#if defined(COLL__AS_ASKED)
#define COLL__FOR_SIZE
#define COLL__FOR_SPEED
#elif defined(__clang__)
#define COLL__FOR_SIZE                                                                             \
    _Pragma("clang diagnostic push") _Pragma("clang diagnostic ignored \"-Wpragma-clang-attribute\"") \
    _Pragma("clang attribute push(__attribute__((minsize)), apply_to = function)")
#define COLL__FOR_SPEED _Pragma("clang attribute pop") _Pragma("clang diagnostic pop")
#else
#define COLL__FOR_SIZE _Pragma("GCC push_options") _Pragma("GCC optimize(\"Os\")")
#define COLL__FOR_SPEED _Pragma("GCC pop_options")
#endif

#endif /* COLL_BASE_H */
