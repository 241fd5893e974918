/* available.h - the features of this build, for tests that run with any set of switches (core/base/coll_features.h).  For a
 * feature that is left out, the tests expect the status and a sentence with the switch's name.  No function here calls the
 * library.  Used after coll.h. */
#ifndef THERE_H
#define THERE_H

#include <stdbool.h>
#include <string.h>

#include "../../core/base/coll_features.h"

#define THERE static __attribute__((unused))

/* Is a switch set?  Then its name expands to something else. */
#define THERE_TEXT(...) #__VA_ARGS__
#define THERE_SET(name) (*THERE_TEXT(name) != 'C')

/* Does a sentence hold these words?  Where sentences are left out, any text that is not empty does. */
THERE bool there_says(const char *sentence, const char *words)
{
    return !COLL__HAS_TEXT ? *sentence != 0 : strstr(sentence, words) != NULL;
}

/* ---- >>worlds ---- */

/* The switch or the list that has left a world out; NULL: it is there. */
THERE const char *there_missing_world(const char *name)
{
    const bool is_domain = !strcmp(name, "tcp-domain"), is_hybrid = !strcmp(name, "hybrid"), is_tcp = !strncmp(name, "tcp", 3);
    const bool has_both = COLL__HAS_TCP && COLL__HAS_THREADS;

    if ((!strcmp(name, "threads") && !COLL__HAS_THREADS) || (!strncmp(name, "sim", 3) && !COLL__HAS_SIM)
        || (is_tcp && !COLL__HAS_TCP)) return "COLL_ONLY_TRANSPORTS";
    if ((is_domain && !COLL__HAS_DOMAIN) || (is_hybrid && !COLL__HAS_HYBRID))
        return has_both ? "COLL_NO_SHM" : "COLL_ONLY_TRANSPORTS";
    return !COLL__HAS_URING && !strcmp(name, "tcp-uring") ? "COLL_NO_URING" : NULL;
}

/* ---- >>calls ---- */

/* Does each block have its own count? */
THERE bool there_counts(coll_kind kind)
{
    return kind == COLL_REDUCE_SCATTERV || kind == COLL_GATHERV || kind == COLL_SCATTERV || kind == COLL_ALLGATHERV
        || kind == COLL_ALLTOALLV || kind == COLL_ALLTOALLW;
}

THERE bool there_kind(coll_kind kind)
{
    if (!COLL__HAS_COUNTS && there_counts(kind)) return false;
    if (!COLL__IS_WHOLE && kind == COLL_ALLREDUCE_LIST) return false;
    switch (kind) {
    case COLL_BROADCAST:                              return COLL__HAS_BROADCAST;
    case COLL_REDUCE:                                 return COLL__HAS_REDUCE;
    case COLL_REDUCE_SCATTER: case COLL_REDUCE_SCATTERV: return COLL__HAS_REDUCE_SCATTER;
    case COLL_SCAN: case COLL_EXSCAN:                 return COLL__HAS_SCAN;
    case COLL_GATHER: case COLL_GATHERV:              return COLL__HAS_GATHER;
    case COLL_SCATTER: case COLL_SCATTERV:            return COLL__HAS_SCATTER;
    case COLL_ALLTOALL: case COLL_ALLTOALLV: case COLL_ALLTOALLW: return COLL__HAS_ALLTOALL;
    default:                                          break;
    }
    return COLL__HAS_NEIGHBOR || kind < COLL_NEIGHBOR_ALLGATHER || kind > COLL_NEIGHBOR_ALLTOALLW;
}

/* What says that there are no collectives of neighbors. */
#define THERE_NO_NEIGHBORS (COLL__HAS_COUNTS ? "COLL_ONLY_KINDS" : "COLL_NO_COUNTS")

/* Is there arithmetic of the type?  For invalid types, and for elements that are only bytes, nothing can be left out. */
THERE bool there_type(coll_type type) { return type <= 0 || type > COLL_MXF8E5M2 || COLL__HAS(type); }

/* The switches that have left out something which a call needs. */
typedef struct there_lack { const char *names[8]; int count; } there_lack;

THERE void there_note(there_lack *lack, const char *name)
{
    if (lack->count < (int)(sizeof lack->names / sizeof *lack->names)) lack->names[lack->count++] = name;
}

THERE void there_need_type(there_lack *lack, coll_type type)
{
    if (!there_type(type)) there_note(lack, "COLL_ONLY_TYPES");
}

/* Of a reduction of this type; a list's buffers have one each. */
THERE void there_need_numbers(there_lack *lack, const coll_call *call, coll_type type)
{
    const bool is_scan = call->kind == COLL_SCAN || call->kind == COLL_EXSCAN;
    const bool is_sum = call->op == COLL_SUM || call->op == COLL_AVG, is_complex = type == COLL_C64 || type == COLL_C128;
    const bool is_float = type >= COLL_F16 && type <= COLL_F64;

    if (call->flags & COLL_REPRODUCIBLE && !is_scan) {
        if (!COLL__IS_WHOLE) there_note(lack, COLL__PROFILE);
        else if (is_sum && (is_float || is_complex)) there_need_type(lack, is_complex ? COLL_C128 : COLL_F64);
    }
    if (!COLL__HAS_SCALE && (call->scale < 0 || call->scale > 0)) there_note(lack, COLL__PROFILE);
    if (call->flags & COLL_STOCHASTIC && !COLL__IS_WHOLE) there_note(lack, COLL__PROFILE);
    if (call->op == COLL_USER || (type == COLL_U64 && call->op == COLL_MAX)) return;      /* the maximum is always there */
    there_need_type(lack, type);
    there_need_type(lack, call->wire);
    there_need_type(lack, call->accumulate);
}

/* A kind may have been left out twice: then either name will do. */
THERE void there_need_kind(there_lack *lack, coll_kind kind)
{
    const bool is_neighbor = kind >= COLL_NEIGHBOR_ALLGATHER && kind <= COLL_NEIGHBOR_ALLTOALLW;

    if (there_kind(kind)) return;
    if (kind == COLL_ALLREDUCE_LIST) there_note(lack, COLL__PROFILE);
    if ((is_neighbor || there_counts(kind)) && !COLL__HAS_COUNTS) there_note(lack, "COLL_NO_COUNTS");
    if (THERE_SET(COLL_ONLY_KINDS)) there_note(lack, "COLL_ONLY_KINDS");
}

THERE there_lack there_call(const coll_call *call)
{
    const bool is_list = call->kind == COLL_ALLREDUCE_LIST;
    there_lack lack = { .count = 0 };

    there_need_kind(&lack, call->kind);
    if (call->kind >= COLL_REDUCE && call->kind <= COLL_EXSCAN) there_need_numbers(&lack, call, call->type);
    for (int i = 0; is_list && i < call->list_count; i++) there_need_numbers(&lack, call, call->list[i].type);
    return lack;
}

/* A call that lacks something is refused: with this status, and this sentence? */
THERE bool there_refuses(const there_lack *lack, coll_status status, const char *sentence)
{
    for (int i = 0; i < lack->count && status == COLL_ERR_UNSUPPORTED; i++)
        if (there_says(sentence, lack->names[i])) return true;
    return false;
}

#endif /* THERE_H */
