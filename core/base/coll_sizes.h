/* coll_sizes.h - sizes of buffers, caches and limits: for COLL_TINY, and for all other programs.
 *
 * A program may set each of these, as in -DCOLL_RECORDS=16; docs/size.md has the savings.  Those marked * decide which messages
 * are sent.  They must be powers of two and equal on all ranks; TCP and MPI refuse ranks with other values.  The same holds for
 * slices of vectors (coll_link_model.h).
 *
 *   COLL_BLOCK_BYTES     accumulators processed at a time; a power of two: 256 to 16384
 *   COLL_PACK_BYTES *    longest message that packs several blocks: 64 to 1 MiB
 *   COLL_CACHED_BYTES    longest tables of a cached execution; 0: no caching
 *   COLL_CACHED_CALLS    calls that an order caches: 1 to 1024
 *   COLL_OVERLAP         collectives of an order that run at the same time: 1 to 64; 1: one after the other
 *   COLL_REQUESTS        freed requests whose memory is kept: 0 to 65536
 *   COLL_BINS            bins of messages, by key; a power of two: 4 to 65536
 *   COLL_SHORT_BYTES *   longest short message (coll_p2p.h): 64 to 1 MiB
 *   COLL_COPY_BYTES      longest short message that is copied: 64 to COLL_SHORT_BYTES
 *   COLL_CREDIT_BYTES *  for unexpected messages of each peer: more than 4 x (COLL_SHORT_BYTES + 512), to 1 GiB
 *   COLL_RECORDS         operations that the flight recorder keeps for a communicator: 1 to 65536 */
#ifndef COLL_SIZES_H
#define COLL_SIZES_H

#include "../../coll.h"

#define COLL__SIZE(tiny, usual) (COLL__IS_TINY ? (tiny) : (usual))

#if !defined(COLL_BLOCK_BYTES)
#define COLL_BLOCK_BYTES COLL__SIZE(256, 4096)
#endif
#if !defined(COLL_PACK_BYTES)
#define COLL_PACK_BYTES COLL__SIZE(256, 64 << 10)
#endif
#if !defined(COLL_CACHED_BYTES)
#define COLL_CACHED_BYTES COLL__SIZE(0, 32 << 10)
#endif
#if !defined(COLL_CACHED_CALLS)
#define COLL_CACHED_CALLS COLL__SIZE(1, 16)
#endif
#if !defined(COLL_OVERLAP)
#define COLL_OVERLAP COLL__SIZE(1, 32)
#endif
#if !defined(COLL_REQUESTS)
#define COLL_REQUESTS COLL__SIZE(0, 64)
#endif
#if !defined(COLL_BINS)
#define COLL_BINS COLL__SIZE(8, 128)
#endif
#if !defined(COLL_SHORT_BYTES)
#define COLL_SHORT_BYTES COLL__SIZE(512, 64 << 10)
#endif
#if !defined(COLL_COPY_BYTES)
#define COLL_COPY_BYTES COLL__SIZE(128, COLL_SHORT_BYTES < 8 << 10 ? COLL_SHORT_BYTES : 8 << 10)
#endif
#if !defined(COLL_CREDIT_BYTES)
#define COLL_CREDIT_BYTES COLL__SIZE(4 << 10, 1 << 20)
#endif
#if !defined(COLL_RECORDS)
#define COLL_RECORDS 256
#endif

enum {
    COLL__BLOCK         = COLL_BLOCK_BYTES,
    COLL__PACK_MOST     = COLL_PACK_BYTES,
    COLL__CACHED_MOST   = COLL_CACHED_BYTES,
    COLL__CACHED        = COLL_CACHED_CALLS,
    COLL__OVERLAP       = COLL_OVERLAP,
    COLL__PLANS         = COLL__SIZE(0, 1),       /* calls leave plans for later calls of their kind          */
    COLL__ON_DEMAND     = COLL__SIZE(1, 0),       /* a program links messages by key only if it uses them     */
    COLL__TAKES_WHOLE   = COLL__SIZE(0, 1),       /* a transport may execute whole collectives (coll_transport.offload) */
    COLL__SHORT_MOST    = COLL_SHORT_BYTES,
    COLL__COPY_MOST     = COLL_COPY_BYTES,
    COLL__CREDIT        = COLL_CREDIT_BYTES,
    COLL__COST          = COLL__SIZE(256, 512),   /* * credit for a message in addition to its length         */
    COLL__RECORDS       = COLL_RECORDS
};

#define COLL__IN_RANGE(value, least, most) ((value) >= (least) && (value) <= (most))
#define COLL__IS_POWER(value) (((value) & ((value) - 1)) == 0)

_Static_assert(COLL__IN_RANGE(COLL_BLOCK_BYTES, 256, 16384) && COLL__IS_POWER(COLL_BLOCK_BYTES),
               "COLL_BLOCK_BYTES is a power of two from 256 to 16384");
_Static_assert(COLL__IN_RANGE(COLL_PACK_BYTES, 64, 1 << 20) && COLL__IS_POWER(COLL_PACK_BYTES),
               "COLL_PACK_BYTES is a power of two from 64 to 1 MiB");
_Static_assert(COLL__IN_RANGE(COLL_CACHED_BYTES, 0, 1 << 24), "COLL_CACHED_BYTES is from 0 to 16 MiB");
_Static_assert(COLL__IN_RANGE(COLL_CACHED_CALLS, 1, 1024), "COLL_CACHED_CALLS is from 1 to 1024");
_Static_assert(COLL__IN_RANGE(COLL_OVERLAP, 1, 64), "COLL_OVERLAP is from 1 to 64");
_Static_assert(COLL__IN_RANGE(COLL_REQUESTS, 0, 65536), "COLL_REQUESTS is from 0 to 65536");
_Static_assert(COLL__IN_RANGE(COLL_BINS, 4, 65536) && COLL__IS_POWER(COLL_BINS), "COLL_BINS is a power of two from 4 to 65536");
_Static_assert(COLL__IN_RANGE(COLL_SHORT_BYTES, 64, 1 << 20) && COLL__IS_POWER(COLL_SHORT_BYTES),
               "COLL_SHORT_BYTES is a power of two from 64 to 1 MiB");
_Static_assert(COLL__IN_RANGE(COLL_COPY_BYTES, 64, COLL_SHORT_BYTES), "COLL_COPY_BYTES is from 64 to COLL_SHORT_BYTES");
_Static_assert(COLL__IN_RANGE(COLL_CREDIT_BYTES, 1024, 1 << 30) && COLL__IS_POWER(COLL_CREDIT_BYTES),
               "COLL_CREDIT_BYTES is a power of two from 1 KiB to 1 GiB");
_Static_assert(COLL__IN_RANGE(COLL_RECORDS, 1, 65536), "COLL_RECORDS is from 1 to 65536");

/* In the hello, beside COLL__LACKS: the sizes marked *, as exponents.  0: the defaults. */
#define COLL__OTHER(size, usual, least, shift) \
    ((uint32_t)((__builtin_ctz(size) - (least)) ^ (__builtin_ctz(usual) - (least))) << (shift))
#define COLL__OTHER_SIZES \
    (COLL__OTHER(COLL_PACK_BYTES, 64 << 10, 6, 18) | COLL__OTHER(COLL_SHORT_BYTES, 64 << 10, 6, 22) \
     | COLL__OTHER(COLL_CREDIT_BYTES, 1 << 20, 10, 26))
#define COLL__OTHER_MASK 0x7ffc0000u

/* ---- >>texts: bytes ---- */

enum {
    COLL__SENTENCE_ROOM = COLL__HAS_TEXT ? 448 : 1,
    COLL__CALL_ROOM     = COLL__HAS_TEXT ? 256 : 1,
    COLL__ABORT_ROOM    = COLL__HAS_TEXT ? 200 : 1,
    COLL__DUMP_ROOM     = COLL__HAS_RECORDER ? 256 : 1
};

#endif /* COLL_SIZES_H */
