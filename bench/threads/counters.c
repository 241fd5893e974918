/* counters.c - the main kernels of the library on one processor: time against a copy, and what the processor counts.
 *
 *     counters BUDGET ELEMENTS[,ELEMENTS...]         each kernel and two ways to copy, in turns
 *     counters run KERNEL ELEMENTS TIMES             only that, for a simulator of processors that counts from outside
 *
 * The limit of a kernel is the speed of memory: its bytes read and written, over the bytes a second of the better copy.  Copies
 * move 4 bytes an element, so 8 are read and written; "bytes" lines say how many a kernel moves.  "count" lines are per element,
 * from perf_event_open, if the machine has such counters and the program may use them. */
#include "../common/timing.h"

#define COLL_IMPLEMENTATION
#include "../../coll.h"

#include <errno.h>
#include <linux/perf_event.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#if defined(__SSE2__)
#include <emmintrin.h>
#endif

typedef struct work {
    size_t count;
    void  *in[2], *out[2];
    void  *scratch;
    coll__codec f32, bf16;
} work;

/* ---- >>kernels ---- */

static void sum_two_into_two(work *w, const coll__codec *codec)
{
    const coll__source sources[2] = { { w->in[0], COLL__AS_USER, 0 }, { w->in[1], COLL__AS_USER, 1 } };

    coll__combine(codec, &(coll__sum){ .sources = sources, .n = 2, .results = w->out, .m = 2, .format = COLL__AS_USER,
                                       .count = w->count, .scratch = w->scratch });
}

static void sum_f32(void *context, long i) { work *const w = context; (void)i; sum_two_into_two(w, &w->f32); }
static void sum_bf16(void *context, long i) { work *const w = context; (void)i; sum_two_into_two(w, &w->bf16); }

static void convert(work *w, coll_type to, coll_type from)
{
    if (coll_convert(w->out[0], to, w->in[0], from, w->count)) abort();
}

static void f16_to_f32(void *context, long i) { (void)i; convert(context, COLL_F32, COLL_F16); }
static void f32_to_f16(void *context, long i) { (void)i; convert(context, COLL_F16, COLL_F32); }
static void bf16_to_f32(void *context, long i) { (void)i; convert(context, COLL_F32, COLL_BF16); }
static void f32_to_bf16(void *context, long i) { (void)i; convert(context, COLL_BF16, COLL_F32); }

static void copy_by_library(void *context, long i)
{
    work *const w = context;

    (void)i;
    memcpy(w->out[0], w->in[0], w->count * sizeof(float));
}

/* Past the caches, without fetching the lines that it overwrites. */
static void copy_nt(void *context, long i)
{
#if defined(__SSE2__)
    work *const w = context;
    const __m128i *const from = w->in[0];
    __m128i *const to = w->out[0];

    (void)i;
    for (size_t k = 0; k < w->count * sizeof(float) / sizeof *to; k++) _mm_stream_si128(to + k, _mm_loadu_si128(from + k));
    _mm_sfence();
#else
    copy_by_library(context, i);
#endif
}

enum { COPIES = 2, COPY_BYTES = 8 };

static const struct kernel {
    const char *name;
    bench_op   *op;
    unsigned    bytes;                            /* read and written for an element                          */
} kernels[] = {
    { "copy", copy_by_library, COPY_BYTES }, { "copy nt", copy_nt, COPY_BYTES },
    { "f32 sum 2 into 2", sum_f32, 16 },     { "bf16 sum 2 into 2", sum_bf16, 8 },
    { "f16 to f32", f16_to_f32, 6 },         { "f32 to f16", f32_to_f16, 6 },
    { "bf16 to f32", bf16_to_f32, 6 },       { "f32 to bf16", f32_to_bf16, 6 },
};

enum { KERNELS = sizeof kernels / sizeof *kernels };

/* ---- >>counters ---- */

static const struct event {
    const char *name;
    unsigned    type;
    unsigned long long config;
} events[] = {
    { "instructions", PERF_TYPE_HARDWARE, PERF_COUNT_HW_INSTRUCTIONS },
    { "cycles", PERF_TYPE_HARDWARE, PERF_COUNT_HW_CPU_CYCLES },
    { "L1 misses", PERF_TYPE_HW_CACHE,
      PERF_COUNT_HW_CACHE_L1D | PERF_COUNT_HW_CACHE_OP_READ << 8 | PERF_COUNT_HW_CACHE_RESULT_MISS << 16 },
    { "LLC misses", PERF_TYPE_HARDWARE, PERF_COUNT_HW_CACHE_MISSES },
};

/* What one event counts while the kernel runs, for an element; < 0: the machine has no such counter for us. */
static double counted(const struct event *event, const struct kernel *kernel, work *w)
{
    struct perf_event_attr attr = { .type = event->type, .size = sizeof attr, .config = event->config, .disabled = 1,
                                    .exclude_kernel = 1, .exclude_hv = 1 };
    const long times = 1 + (1 << 22) / (long)w->count;
    const int counter = (int)syscall(SYS_perf_event_open, &attr, 0, -1, -1, 0);
    unsigned long long value = 0;

    if (counter < 0) return -1;
    kernel->op(w, 0);
    ioctl(counter, PERF_EVENT_IOC_ENABLE, 0);
    for (long i = 0; i < times; i++) kernel->op(w, i);
    ioctl(counter, PERF_EVENT_IOC_DISABLE, 0);
    const bool is_read = read(counter, &value, sizeof value) == sizeof value && value > 0;
    close(counter);
    return is_read ? (double)value / (double)times / (double)w->count : -1;
}

static void count_all(work *w)
{
    char row[128];

    for (int k = COPIES; k < KERNELS; k++)
        for (size_t e = 0; e < sizeof events / sizeof *events; e++) {
            const double value = counted(&events[e], &kernels[k], w);
            snprintf(row, sizeof row, "%s/%s", kernels[k].name, events[e].name);
            bench_line(value < 0 ? "none" : "count", "kernels", 1, w->count, row, (bench_figure){ value, value, value }, 1);
        }
}

/* ---- >>the program ---- */

static bool is_exact(const work *w)
{
    const float *const x = w->out[0];

    for (size_t i = 0; i < w->count; i++) if (x[i] != 3) return false;
    return true;
}

static void work_open(work *w, size_t count)
{
    const coll_call f32 = { .type = COLL_F32, .op = COLL_SUM }, bf16 = { .type = COLL_BF16, .op = COLL_SUM };

    *w = (work){ .count = count };
    if (!coll__codec_reduce(&w->f32, &f32, 2, NULL, 0) || !coll__codec_reduce(&w->bf16, &bf16, 2, NULL, 0)) abort();
    const size_t a = coll__combine_scratch(&w->f32, 2), b = coll__combine_scratch(&w->bf16, 2);
    w->scratch = bench_alloc(a > b ? a : b);
    for (int k = 0; k < 2; k++) {
        w->in[k] = bench_alloc(count * sizeof(float));
        w->out[k] = bench_alloc(count * sizeof(float));
        for (size_t i = 0; i < count; i++) ((float *)w->in[k])[i] = (float)(k + 1);
    }
    sum_f32(w, 0);
    if (is_exact(w)) return;
    fprintf(stderr, "counters: a wrong sum\n");
    exit(BENCH_WRONG);
}

static void work_free(work *w)
{
    for (int k = 0; k < 2; k++) {
        free(w->in[k]);
        free(w->out[k]);
    }
    free(w->scratch);
}

static void measure(const bench_team *team, double budget_s, size_t count)
{
    const bench_plan plan = { .budget_s = budget_s, .step = 1 };
    bench_contender contenders[KERNELS];
    work w;

    work_open(&w, count);
    for (int k = 0; k < KERNELS; k++)
        contenders[k] = (bench_contender){ .name = kernels[k].name, .op = kernels[k].op, .context = &w, .is_base = k == 0 };
    const long sweeps = bench_measure(team, contenders, KERNELS, &plan);
    bench_report(team, contenders, KERNELS, sweeps, "kernels", count);
    for (int k = 0; k < KERNELS; k++) {
        const double bytes = kernels[k].bytes;
        bench_line("bytes", "kernels", 1, count, kernels[k].name, (bench_figure){ bytes, bytes, bytes }, 1);
        for (int c = 0; c < COPIES && k >= COPIES; c++) {       /* time over the time that this copy's pace would give */
            char row[128];
            double values[BENCH_BATCHES];
            for (long s = 0; s < sweeps; s++)
                values[s] = bench_slowest(team, k, s) / bench_slowest(team, c, s) * COPY_BYTES / bytes;
            snprintf(row, sizeof row, "%s/%s", kernels[k].name, kernels[c].name);
            bench_line("bound", "kernels", 1, count, row, bench_figures(values, sweeps), sweeps);
        }
    }
    count_all(&w);
    work_free(&w);
}

static int run(const char *name, size_t count, long times)
{
    work w;

    for (int k = 0; k < KERNELS; k++) {
        if (strcmp(name, kernels[k].name)) continue;
        work_open(&w, count);
        for (long i = 0; i < times; i++) kernels[k].op(&w, i);
        work_free(&w);
        return 0;
    }
    fprintf(stderr, "counters: no kernel \"%s\"\n", name);
    return 2;
}

int main(int argc, char **argv)
{
    size_t size[BENCH_SIZES];

    if (argc == 5 && !strcmp(argv[1], "run")) {
        bench_sizes(argv[3], size);
        return run(argv[2], size[0], atol(argv[4]));
    }
    if (argc != 3) {
        fprintf(stderr, "usage: counters BUDGET ELEMENTS,...   or   counters run KERNEL ELEMENTS TIMES\n");
        return 2;
    }
    const bench_team team = { .shared = bench_share(NULL), .ranks = 1 };
    bench_pin(0);
    const int sizes = bench_sizes(argv[2], size);
    for (int s = 0; s < sizes; s++) measure(&team, atof(argv[1]), size[s]);
    return 0;
}
