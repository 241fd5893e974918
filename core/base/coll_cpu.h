/* coll_cpu.h - detects instruction sets for which some functions are compiled.
 *
 * The compilers' runtimes could do this, but they add several kilobytes to every program. cpuid may take microseconds on a
 * virtual machine.  So each thread runs it once and keeps the result: threads share no memory of the library. */
#ifndef COLL_CPU_H
#define COLL_CPU_H

#include "coll_base.h"

enum {
    COLL__CPU_SSE42 = 1, COLL__CPU_AVX2 = 2,      /* with f16c */
    COLL__CPU_AVX512 = 4,                         /* f, bw, dq, vl and vbmi: without the last, 512 bits lower the clock */
    COLL__CPU_AVX512BF16 = 8, COLL__CPU_ASKED = 16
};

#if defined(__x86_64__)
#include <cpuid.h>

static __attribute__((cold, noinline, unused)) unsigned coll__cpu_ask(void)
{
    const unsigned avx2 = 1u << 5, wide = 1u << 16 | 1u << 17 | 1u << 30 | 1u << 31, vbmi = 1u << 1, bf16 = 1u << 5;
    unsigned most, last, a, b, c, d, has = COLL__CPU_ASKED, kept = 0, above;

    __cpuid(0, most, b, c, d);
    __cpuid(1, a, b, c, d);
    if (c & 1u << 20) has |= COLL__CPU_SSE42;
    if (!(c & 1u << 27) || !(c & 1u << 29) || most < 7) return has;       /* osxsave, f16c */
    __asm__("xgetbv" : "=a"(kept), "=d"(above) : "c"(0));                 /* register state that the system saves */
    __cpuid_count(7, 0, last, b, c, d);
    if ((kept & 0x06) != 0x06 || !(b & avx2)) return has;
    has |= COLL__CPU_AVX2;
    if ((kept & 0xe6) != 0xe6 || (b & wide) != wide || !(c & vbmi)) return has;
    has |= COLL__CPU_AVX512;
    if (last < 1) return has;
    __cpuid_count(7, 1, a, b, c, d);
    return a & bf16 ? has | COLL__CPU_AVX512BF16 : has;
}

static COLL__UNUSED unsigned coll__cpu(void)
{
    static _Thread_local unsigned known;

    if (!known) known = coll__cpu_ask();
    return known;
}
#else
static COLL__UNUSED unsigned coll__cpu(void) { return COLL__CPU_ASKED; }
#endif

#endif /* COLL_CPU_H */
