/* coll_sizes.h - how much memory is set aside, where less would do: for bare metal (COLL_TINY), and for all others.
 *
 * Those marked * decide which messages are sent: they are the same on all ranks that meet.  So is how vectors are cut
 * (coll_link.h). */
#ifndef COLL_SIZES_H
#define COLL_SIZES_H

#include "../../coll.h"

#if defined(COLL_TINY)
enum {
    COLL__BLOCK         = 256,                    /* bytes of accumulators in work at a time: whole groups of any wire */
    COLL__PACK_MOST     = 256,                    /* * bytes up to which several blocks share a message       */
    COLL__CACHED_MOST   = 0,                      /* bytes of the tables of an execution that is cached; 0: no call is */
    COLL__CACHED        = 1,                      /* calls that an order caches                               */
    COLL__PLANS         = 0,                      /* are plans kept of calls, for the next ones of their kind? */
    COLL__BINS_FIRST    = 8,                      /* buckets of a table of messages, in the beginning         */
    COLL__SHORT_MOST    = 512,                    /* * bytes of a short message (coll_notes.h)                */
    COLL__COPY_MOST     = 128,                    /* of one that its sender copies                            */
    COLL__CREDIT        = 4 << 10,                /* * with each peer                                         */
    COLL__COST          = 256                     /* * of it for a message, beside its length                 */
};
#else
enum {
    COLL__BLOCK         = 4096,
    COLL__PACK_MOST     = 64 << 10,
    COLL__CACHED_MOST   = 32 << 10,
    COLL__CACHED        = 16,
    COLL__PLANS         = 1,
    COLL__BINS_FIRST    = 64,
    COLL__SHORT_MOST    = 64 << 10,
    COLL__COPY_MOST     = 8 << 10,
    COLL__CREDIT        = 1 << 20,
    COLL__COST          = 512
};
#endif

/* ---- >>texts: bytes ---- */

#if defined(COLL_NO_TEXT)
enum { COLL__SENTENCE_ROOM = 1, COLL__CALL_ROOM = 1, COLL__ABORT_ROOM = 1 };
#else
enum { COLL__SENTENCE_ROOM = 448, COLL__CALL_ROOM = 256, COLL__ABORT_ROOM = 200 };
#endif

#if defined(COLL_NO_RECORDER)
enum { COLL__DUMP_ROOM = 1 };
#else
enum { COLL__DUMP_ROOM = 256 };
#endif

/* ---- >>threads ---- */

#if defined(COLL_NO_OS)
enum { COLL__HANDS_MOST = 1 };                    /* changes of hands after which a door belongs to nobody    */
#else
enum { COLL__HANDS_MOST = 64 };
#endif

#endif /* COLL_SIZES_H */
