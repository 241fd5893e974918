/* coll_platform_check.h - refuses compilers and options with which the implementation would be wrong: one error, and nothing else
 * is compiled. */
#ifndef COLL_PLATFORM_CHECK_H
#define COLL_PLATFORM_CHECK_H

#include <float.h>
#include <stdlib.h>

#if defined(__cplusplus)
#define COLL__REFUSED 1
#error "the implementation of coll.h is C11: put #define COLL_IMPLEMENTATION and #include \"coll.h\" into one .c file"
#elif !defined(__STDC_VERSION__) || __STDC_VERSION__ < 201112L
#define COLL__REFUSED 1
#error "the implementation of coll.h is C11: compile this file with -std=c11 or later"
#elif !defined(__linux__) && !defined(__unix__) && !defined(__APPLE__) && COLL__HAS_OS
#define COLL__REFUSED 1
#error "the implementation of coll.h is for Linux, for other systems that have POSIX, and for none (COLL_TINY)"
#elif !defined(__GNUC__)
#define COLL__REFUSED 1
#error "the implementation of coll.h is for gcc and clang"
#elif defined(__GLIBC__) && !defined(__USE_MISC)
#define COLL__REFUSED 1
#error "with -std=c11 include coll.h before any system header in the file that defines COLL_IMPLEMENTATION"
#elif defined(__FAST_MATH__) || (defined(__FINITE_MATH_ONLY__) && __FINITE_MATH_ONLY__ > 0) || defined(__ASSOCIATIVE_MATH__) \
    || defined(__RECIPROCAL_MATH__) || defined(__NO_SIGNED_ZEROS__)
#define COLL__REFUSED 1
#error "coll.h promises equal bits on every rank: compile its implementation without -ffast-math, and without parts of it"
#elif (defined(__i386__) || defined(__x86_64__)) && (!defined(__SSE2_MATH__) || FLT_EVAL_METHOD != 0)
#define COLL__REFUSED 1
#error "coll.h promises equal bits on every rank, and the x87 rounds twice: compile its implementation with -msse2 -mfpmath=sse"
#elif FLT_EVAL_METHOD != 0 && FLT_EVAL_METHOD != 16       /* 16 only concerns _Float16 */
#define COLL__REFUSED 1
#error "coll.h promises equal bits on every rank, and here FLT_EVAL_METHOD is not 0: compile it with -fexcess-precision=fast"
#endif

/* Products and sums are not fused: machines without such instructions would get other bits and choose other algorithms.  By
 * default gcc fuses them, except with -std=c11.  clang warns where it does not vectorize a loop, as at -O1. */
#if defined(COLL__REFUSED)
#elif defined(__clang__)
#pragma STDC FP_CONTRACT OFF
#pragma clang diagnostic push
#pragma clang diagnostic ignored "-Wpass-failed"
#else
#pragma GCC push_options
#pragma GCC optimize("fp-contract=off")
#endif

/* If parts are left out, unused functions are expected. */
#if defined(COLL__LEAVES_OUT)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-function"
#pragma GCC diagnostic ignored "-Wunused-const-variable"
#endif

#endif /* COLL_PLATFORM_CHECK_H */
