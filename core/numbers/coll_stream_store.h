/* coll_stream_store.h - streaming stores, which bypass the caches.
 *
 * An ordinary store to a line that is not in the cache reads the line first.  For data that exceeds the caches and is not read
 * again soon, that is a third of the traffic, and it evicts useful data.  A streaming store writes whole lines without reading
 * them.  One store of a whole line is written at once; four of 16 bytes, or two, are combined first, and a sum of two long
 * vectors takes a fifth to a third longer. */
#ifndef COLL_STREAM_STORE_H
#define COLL_STREAM_STORE_H

#include "coll_types.h"

#if COLL__HAS_TIERS
#include <immintrin.h>
#endif

#if defined(__x86_64__)

typedef long long coll__streamed_word __attribute__((vector_size(16)));

COLL__INLINE void coll__streamed_store(void *to, coll__streamed_word word)
{
#if defined(__clang__)
    __builtin_nontemporal_store(word, (coll__streamed_word *)to);
#else
    __builtin_ia32_movntdq((coll__streamed_word *)to, word);
#endif
}

/* Whole lines, to an aligned address. */
COLL__INLINE void coll__lines_streamed_base(unsigned char *out, const unsigned char *in, size_t lines)
{
    for (; lines > 0; out += 64, in += 64, lines--) {
        coll__streamed_word words[4];
        memcpy(words, in, sizeof words);
        for (int i = 0; i < 4; i++) coll__streamed_store(out + 16 * i, words[i]);
    }
}

#if COLL__HAS_TIERS
COLL__UNUSED COLL__IN_avx512 static void coll__lines_streamed_avx512(unsigned char *out, const unsigned char *in, size_t lines)
{
    for (; lines > 0; out += 64, in += 64, lines--) _mm512_stream_si512((__m512i *)(void *)out, _mm512_loadu_si512(in));
    COLL__REST_OF_avx512;
}
#endif

/* memcpy with streaming stores, which are unordered until coll__streamed_end. */
COLL__UNUSED static void coll__copy_streamed(void *to, const void *from, size_t length)
{
    unsigned char *out = (unsigned char *)to;
    const unsigned char *in = (const unsigned char *)from;
    const size_t ahead = coll__least((size_t)(-(uintptr_t)out & 63), length);     /* up to the start of a line */

    memcpy(out, in, ahead);
    out += ahead, in += ahead, length -= ahead;
#if COLL__HAS_TIERS
    if (coll__tier() >= COLL__TIER_AVX512) coll__lines_streamed_avx512(out, in, length / 64);
    else
#endif
        coll__lines_streamed_base(out, in, length / 64);
    memcpy(out + length / 64 * 64, in + length / 64 * 64, length % 64);
}

/* Order streaming stores before all later stores of this thread. */
COLL__INLINE void coll__streamed_end(void) { __builtin_ia32_sfence(); }

#else

COLL__UNUSED static void coll__copy_streamed(void *to, const void *from, size_t length) { memcpy(to, from, length); }
COLL__INLINE void coll__streamed_end(void) { }

#endif

#endif /* COLL_STREAM_STORE_H */
