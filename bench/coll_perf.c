/* coll_perf.c - how fast the collectives of coll.h are here: nccl-tests' flags and columns, without a GPU and without MPI.
 *
 *     cc -O2 -pthread bench/coll_perf.c -o coll_perf
 *     ./coll_perf -t 4                                             four threads, allreduce, 8 B to 32 MiB
 *     ./coll_perf -t 2 -C all -d bf16 -b 1K -e 64M -f 2 --pin
 *     coll-run -n 4 --no-prefix ./coll_perf -C reduce,broadcast    four processes over TCP
 *
 * Every line is checked before it is timed: the inputs are whole numbers so small that the result is exact in the type, and
 * it must have the exact bits.  What `size`, `time`, `p99` and `busbw` mean is in README.md beside this file.
 *
 * In reading order: options, what a test is, exact data, checking, timing, printing, the run.  All ranks walk through the
 * same loops and take their decisions from numbers that they have agreed on; rank 0 prints.
 */
#define COLL_IMPLEMENTATION
#include "../coll.h"

#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define PERF_PRINTF(text, first) __attribute__((format(printf, text, first)))

enum { PROCESSORS_MOST = 1024, EXIT_WRONG = 1, EXIT_USAGE = 2 };
enum { ROOT_ROTATES = -1, ROOT_EACH = -2 };       /* operation i has root i % size; every root has lines of its own */

/* ---- >>names: what -C, -d and -o choose from ---- */

/* busbw = algbw x (bus_whole + bus_shared x (n - 1) / n): what each rank's link has to carry at least. */
typedef struct collective {
    const char *name, *alias;
    coll_kind   kind;
    bool        is_reducing, is_rooted;
    bool        is_by_block;                      /* the call's count is of one rank's block; size is of all  */
    bool        has_out, has_in;                  /* is there a form out of place, one in place?              */
    double      bus_whole, bus_shared;
} collective;

static const collective collectives[] = {
    /* name            alias             kind                reducing rooted by block  out    in     bus */
    { "allreduce",      "all_reduce",    COLL_ALLREDUCE,      true,  false, false,    true,  true,  0, 2 },
    { "broadcast",      "bcast",         COLL_BROADCAST,      false, true,  false,    false, true,  1, 0 },
    { "reduce",         "reduce",        COLL_REDUCE,         true,  true,  false,    true,  true,  1, 0 },
    { "allgather",      "all_gather",    COLL_ALLGATHER,      false, false, true,     true,  true,  0, 1 },
    { "reduce_scatter", "reducescatter", COLL_REDUCE_SCATTER, true,  false, true,     true,  true,  0, 1 },
    { "barrier",        "barrier",       COLL_BARRIER,        false, false, false,    true,  false, 0, 0 },
    { "sendrecv",       "send_recv",     COLL_SENDRECV,       false, false, false,    true,  false, 1, 0 },
};

/* Not a collective but the roof above them: every rank copies `size` bytes at the same time. */
static const collective plain_copy = { "memcpy", "memcpy", (coll_kind)0, false, false, false, true, false, 1, 0 };

/* All whole numbers from 0 to `most`, and with the sign from -most, are exact in the type.  `most` is no larger than lets
 * the sum of n x most be exact in f32 for every n up to most. */
static const struct type_row {
    coll_type   type;
    const char *alias;                            /* as nccl-tests has it                                     */
    int         most;
    bool        is_signed;
} types[] = {
    { COLL_I8,  "int8",  127, true  }, { COLL_I16,  "int16",  4096, true  }, { COLL_I32,  "int32",    4096, true  },
    { COLL_I64, "int64", 4096, true }, { COLL_U8,   "uint8",  255,  false }, { COLL_U16,  "uint16",   4096, false },
    { COLL_U32, "uint32", 4096, false }, { COLL_U64, "uint64", 4096, false }, { COLL_F16, "half",     2048, true  },
    { COLL_BF16, "bfloat16", 256, true }, { COLL_F32, "float", 4096, true }, { COLL_F64,  "double",   4096, true  },
};

enum { COLLECTIVES = sizeof collectives / sizeof *collectives, TYPES = sizeof types / sizeof *types, OPS = COLL_AVG + 1 };

static const char *name_of_collective(int i, bool alias) { return alias ? collectives[i].alias : collectives[i].name; }
static const char *name_of_type(int i, bool alias) { return alias ? types[i].alias : coll_type_name(types[i].type); }
static const char *name_of_op(int i, bool alias) { return (void)alias, coll_op_name((coll_op)i); }

static const struct type_row *row_of_type(coll_type type)
{
    for (int i = 0; i < TYPES; i++) if (types[i].type == type) return &types[i];
    return NULL;
}

/* ---- >>options ---- */

/* Sets are bits: bit i is row i of the table above. */
typedef struct options {
    int         threads;                          /* 0: this process is one rank of a job                     */
    size_t      least, most, factor, step;        /* sizes; step 0: by the factor                             */
    long        iterations, warmup;               /* iterations 0: as many as fit into budget_s               */
    bool        checks, pins, allocates, is_fresh, has_json;
    unsigned    collectives, types, ops;
    int         root;
    coll_type   wire;                             /* 0: the type                                              */
    const char *algorithm, *json;                 /* json NULL, with has_json: stdout                         */
    int         processors, processor[PROCESSORS_MOST];
} options;

static const struct option_row { char letter; const char *name, *value, *help; } option_rows[] = {
    { 't', "nthreads",     "N",       "N ranks that are threads; default: this process is one rank of a job (coll-run)" },
    { 'C', "collective",   "NAME,..", "allreduce broadcast reduce allgather reduce_scatter barrier sendrecv, or all" },
    { 'b', "minbytes",     "SIZE",    "smallest size; suffixes K, M, G (8)" },
    { 'e', "maxbytes",     "SIZE",    "largest size (32M)" },
    { 'f', "stepfactor",   "N",       "each size is N times the one before (4)" },
    { 'i', "stepbytes",    "SIZE",    "each size is SIZE more than the one before" },
    { 'd', "datatype",     "TYPE,..", "i8 i16 i32 i64 u8 u16 u32 u64 f16 bf16 f32 f64, nccl-tests' names, or all (f32)" },
    { 'o', "op",           "OP,..",   "sum prod min max avg, or all (sum)" },
    { 'r', "root",         "RANK",    "the root; all: each in turn, one line each; rotate: a new one each time (rotate)" },
    { 'n', "iters",        "N",       "operations timed; 0: as many as take about 40 ms (0)" },
    { 'w', "warmup_iters", "N",       "operations before the timed ones (2)" },
    { 'c', "check",        "0|1",     "check every result before timing (1)" },
    { 'W', "wire",         "TYPE",    "type of the messages of reductions, as in coll_allreduce_mixed (the datatype)" },
    { 'A', "algorithm",    "NAME",    "use an algorithm of the library by its name" },
    { 'J', "json",         "[FILE]",  "one JSON object a line: into FILE, or to stdout instead of the table" },
    { 'L', "alloc",        NULL,      "buffers of coll_alloc, which ranks of one host read in place" },
    { 'F', "fresh",        NULL,      "write the input before each operation, and read the result after it" },
    { 'P', "pin",          NULL,      "bind ranks to processors, round robin" },
    { 'h', "help",         NULL,      "print this text" },
};

static _Noreturn PERF_PRINTF(1, 2) void refuse(const char *format, ...)
{
    va_list list;

    fputs("coll_perf: ", stderr);
    va_start(list, format);
    vfprintf(stderr, format, list);
    va_end(list);
    fputs(" (coll_perf -h lists the options)\n", stderr);
    exit(EXIT_USAGE);
}

static _Noreturn void help(void)
{
    puts("coll_perf - measure the collectives of coll.h on threads (-t N) or on the ranks of a job\n");
    for (size_t i = 0; i < sizeof option_rows / sizeof *option_rows; i++) {
        const struct option_row *row = &option_rows[i];
        printf("  -%c, --%-12s %-8s %s\n", row->letter, row->name, row->value ? row->value : "", row->help);
    }
    exit(0);
}

/* The whole of `text` as a number from `least` to `most`, with a suffix where `unit` allows one. */
static unsigned long long number(const char *option, const char *text, unsigned long long least, unsigned long long most,
                                 bool takes_suffix)
{
    char *end;

    errno = 0;
    const unsigned long long value = strtoull(text, &end, 10);
    const char *const suffixes = "kmg", *suffix = takes_suffix && *end ? strchr(suffixes, tolower((unsigned char)*end)) : NULL;
    const int shift = suffix ? 10 * (int)(suffix - suffixes + 1) : 0;
    if (!isdigit((unsigned char)*text) || errno || end[suffix != NULL] || value > most >> shift || value << shift < least)
        refuse("--%s %s is not a number from %llu to %llu", option, text, least, most);
    return value << shift;
}

/* The bits of the names in a comma list. */
static unsigned names(const char *option, const char *list, const char *(*name)(int i, bool alias), int count)
{
    unsigned chosen = 0;

    if (!strcmp(list, "all")) return (1u << count) - 1;
    for (const char *at = list;; at++) {
        const size_t length = strcspn(at, ",");
        int i = 0;
        while (i < count && (strncmp(at, name(i, false), length) || name(i, false)[length])
                         && (strncmp(at, name(i, true), length) || name(i, true)[length])) i++;
        if (i == count) refuse("--%s does not know \"%.*s\"", option, (int)length, at);
        chosen |= 1u << i;
        at += length;
        if (!*at) return chosen;
    }
}

static coll_type one_type(const char *option, const char *name)
{
    const unsigned chosen = names(option, name, name_of_type, TYPES);

    for (int i = 0; i < TYPES; i++) if (chosen == 1u << i) return types[i].type;
    refuse("--%s takes one type, not \"%s\"", option, name);
}

static void set_option(options *o, const struct option_row *row, const char *value)
{
    switch (row->letter) {
    case 't': o->threads = (int)number(row->name, value, 1, 65536, false); break;
    case 'C': o->collectives = names(row->name, value, name_of_collective, COLLECTIVES); break;
    case 'b': o->least = (size_t)number(row->name, value, 0, SIZE_MAX / 4, true); break;
    case 'e': o->most = (size_t)number(row->name, value, 0, SIZE_MAX / 4, true); break;
    case 'f': o->factor = (size_t)number(row->name, value, 2, 1 << 20, false); break;
    case 'i': o->step = (size_t)number(row->name, value, 1, SIZE_MAX / 4, true); break;
    case 'd': o->types = names(row->name, value, name_of_type, TYPES); break;
    case 'o': o->ops = names(row->name, value, name_of_op, OPS); break;
    case 'r': o->root = !strcmp(value, "all") ? ROOT_EACH : !strcmp(value, "rotate") ? ROOT_ROTATES
                      : (int)number(row->name, value, 0, 65535, false); break;
    case 'n': o->iterations = (long)number(row->name, value, 0, 1000000000, false); break;
    case 'w': o->warmup = (long)number(row->name, value, 0, 1000000000, false); break;
    case 'c': o->checks = number(row->name, value, 0, 1, false) != 0; break;
    case 'W': o->wire = one_type(row->name, value); break;
    case 'A': o->algorithm = value; break;
    case 'J': o->has_json = true, o->json = value; break;
    case 'L': o->allocates = true; break;
    case 'F': o->is_fresh = true; break;
    case 'P': o->pins = true; break;
    default:  help();
    }
}

/* -b 8, -b8, --minbytes 8, --minbytes=8. */
static void parse(options *o, int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        const char *const word = argv[i], *value = NULL;
        const bool is_long = word[0] == '-' && word[1] == '-';
        const struct option_row *row = option_rows, *const end = option_rows + sizeof option_rows / sizeof *option_rows;
        const size_t length = is_long ? strcspn(word + 2, "=") : 0;

        if (word[0] != '-' || !word[1]) refuse("\"%s\" is no option", word);
        while (row < end && (is_long ? strlen(row->name) != length || strncmp(word + 2, row->name, length)
                                     : row->letter != word[1])) row++;
        if (row == end) refuse("there is no option %s", word);
        if (is_long && word[2 + length]) value = word + 3 + length;
        if (!is_long && word[2]) value = word + 2;
        if (value && !row->value) refuse("--%s takes no value", row->name);
        const bool is_optional = row->value && row->value[0] == '[';
        if (!value && row->value && i + 1 < argc && !(is_optional && argv[i + 1][0] == '-')) value = argv[++i];
        if (!value && row->value && !is_optional) refuse("--%s needs a value: %s", row->name, row->value);
        set_option(o, row, value);
    }
    if (o->most == SIZE_MAX) o->most = o->least == SIZE_MAX || o->least < 32u << 20 ? 32u << 20 : o->least;
    if (o->least == SIZE_MAX) o->least = o->most < 8 ? o->most : 8;
    if (o->least > o->most) refuse("the smallest size, %zu, is larger than the largest, %zu", o->least, o->most);
}

/* ---- >>tests: one line of the table each ---- */

enum { PERIOD = 1021, SAMPLES_MOST = 4096, SAMPLES_LEAST = 5, BATCH_MOST = 1 << 20, ROOTS_CHECKED = 8, UNIT_MOST = 8 };
static const double batch_s = 20e-6, pace_s = 2e-3, budget_s = 40e-3;

typedef struct test {
    const collective *c;
    int            root;                          /* a rank, or ROOT_ROTATES                                  */
    size_t         unit, bytes;                   /* of an element; of the size column                        */
    unsigned char *input, *output;                /* where this rank's elements are, and where results go     */
    coll_call      call;                          /* everything else; kind 0 is memcpy                        */
} test;

/* Seconds for one operation. */
typedef struct figures {
    bool    is_there;
    double  time, p99;
    long    batch, samples;
    int64_t wrong;                                /* -1: not checked                                          */
} figures;

/* One rank. */
typedef struct bench {
    const options *o;
    coll_comm     *comm;
    int            rank, size, next_root;
    bool           has_failed;                    /* a call did, or the options make no sense on so few ranks */
    size_t         room;                          /* bytes of send and of recv                                */
    unsigned char *send, *recv, *pattern;
    double        *samples;
    FILE          *table, *json;                  /* NULL where nothing is printed                            */
    int64_t        wrong;                         /* elements, on all ranks                                   */
    double         bus_sum;                       /* GB/s, of bus_count figures                               */
    long           bus_count, lines;
} bench;

/* Is it done?  If not, say why: once between threads, from every process otherwise. */
static bool done(bench *b, coll_status status)
{
    if (status == COLL_OK) return true;
    if (!b->has_failed && (b->rank == 0 || !b->o->threads))
        fprintf(stderr, "coll_perf: %s\n", *coll_error(b->comm) ? coll_error(b->comm) : coll_status_text(status));
    b->has_failed = true;
    return false;
}

/* The largest of every rank's values, on every rank. */
static bool agree(bench *b, double *values, size_t count)
{
    return done(b, coll_allreduce(b->comm, values, values, count, COLL_F64, COLL_MAX));
}

/* A test of about `bytes` bytes, at least one element where bytes > 0.  In place everything is in recv, as NCCL has it. */
static test test_make(const bench *b, const collective *c, coll_type type, coll_op op, int root, size_t bytes, bool in_place)
{
    const size_t size = (size_t)b->size, unit = coll_type_size(type), blocks = c->is_by_block ? size : 1;
    const size_t count = unit == 0 ? 0 : bytes && bytes / unit < blocks ? 1 : bytes / unit / blocks;
    const size_t mine = (size_t)b->rank * count * unit;
    test t = { .c = c, .root = root, .unit = unit, .bytes = c->kind ? count * unit * blocks : bytes };

    t.output = b->recv;
    t.input = in_place ? b->recv : b->send;
    if (in_place && c->kind == COLL_ALLGATHER) t.input = b->recv + mine;
    if (in_place && c->kind == COLL_REDUCE_SCATTER) t.output = b->recv + mine;
    t.call = (coll_call){ .kind = c->kind, .send = t.input, .recv = t.output, .count = count, .type = type, .op = op,
                          .wire = c->is_reducing ? b->o->wire : 0, .root = root < 0 ? 0 : root, .algorithm = b->o->algorithm };
    if (c->kind == COLL_SENDRECV) {
        t.call.root = 0;
        t.call.peer = (b->rank + 1) % b->size;
        t.call.source = (b->rank + b->size - 1) % b->size;
        t.call.recv_count = count;
        t.call.algorithm = NULL;
    }
    return t;
}

enum { LINE = 64 };

/* What a program does before an operation and after it, in every cache line: otherwise the lines stay where the operation has
 * left them, and those of an input that is only read are in all caches. */
static void write_input(const bench *b, const test *t)
{
    const size_t length = t->c->kind == COLL_ALLGATHER ? t->bytes / (size_t)b->size : t->bytes;
    volatile unsigned char *const input = t->input;

    for (size_t i = 0; i < length; i += LINE) input[i] = input[i];
}

static void read_output(const bench *b, const test *t)
{
    const size_t length = t->c->kind == COLL_REDUCE_SCATTER ? t->bytes / (size_t)b->size : t->bytes;
    const volatile unsigned char *const output = t->output;

    for (size_t i = 0; i < length; i += LINE) (void)output[i];
}

/* Carry out the operation `count` times. */
static bool perform(bench *b, test *t, long count)
{
    for (long i = 0; i < count; i++) {
        if (b->o->is_fresh) write_input(b, t);
        if (t->root == ROOT_ROTATES) {
            t->call.root = b->next_root;
            b->next_root = b->next_root + 1 < b->size ? b->next_root + 1 : 0;
        }
        if (t->call.kind) {
            const coll_status status = coll_run(b->comm, &t->call);
            if (status != COLL_OK) return done(b, status);
            if (b->o->is_fresh) read_output(b, t);
        } else {
            memcpy(t->output, t->input, t->bytes);
            __asm__ volatile("" ::: "memory");    /* the next copy is not to be taken for the same */
        }
    }
    return true;
}

/* ---- >>data: exact, so that there is one right answer ---- */

/* Element i of the input of `rank`.  Inputs repeat with a period that is prime, so blocks that end up in the wrong place
 * show, and each is a whole number of at most `most`, as are all results:
 *
 *     sum    each rank up to most / n; with more ranks than that, one rank has 1 and the others 0
 *     prod   1, but for two ranks, with 1 to 5 and 1 to 3
 *     avg    n times what sum has, so that the division is exact; with too many ranks, the same on each
 *     else   anything */
static int64_t input_value(const test *t, int n, int rank, int i)
{
    const struct type_row *row = row_of_type(t->call.type), *wire = row_of_type(t->call.wire);
    const int most = wire && wire->most < row->most ? wire->most : row->most, mixed = i * 7 + rank % PERIOD * 31;
    const int sign = row->is_signed && (i + rank) % 2 ? -1 : 1;

    if (t->c->is_reducing && t->call.op == COLL_PROD)
        return rank == i % n ? 1 + i % 5 : rank == i / 5 % n ? 1 + i / 5 % 3 : 1;
    if (t->c->is_reducing && t->call.op == COLL_SUM)
        return n > most ? rank == i % n : sign * (mixed % (most / n + 1));
    if (t->c->is_reducing && t->call.op == COLL_AVG)
        return n > most ? i % 7 : sign * n * (mixed % (most / n + 1));
    return sign * (mixed % (most + 1));
}

/* Element i of the reduction over all ranks. */
static int64_t result_value(const test *t, int n, int i)
{
    int64_t result = input_value(t, n, 0, i);

    for (int rank = 1; rank < n; rank++) {
        const int64_t x = input_value(t, n, rank, i);
        switch (t->call.op) {
        case COLL_PROD: result *= x; break;
        case COLL_MIN:  result = x < result ? x : result; break;
        case COLL_MAX:  result = x > result ? x : result; break;
        default:        result += x; break;
        }
    }
    return t->call.op == COLL_AVG ? result / n : result;
}

static void encode(void *at, coll_type type, int64_t value)
{
#define ENCODE(T, x) do { const T element = (x); memcpy(at, &element, sizeof element); } while (0)
    switch (type) {
    case COLL_I8:  case COLL_U8:  ENCODE(uint8_t, (uint8_t)value); break;
    case COLL_I16: case COLL_U16: ENCODE(uint16_t, (uint16_t)value); break;
    case COLL_I32: case COLL_U32: ENCODE(uint32_t, (uint32_t)value); break;
    case COLL_I64: case COLL_U64: ENCODE(uint64_t, (uint64_t)value); break;
    case COLL_F16:  ENCODE(uint16_t, coll_f32_to_f16((float)value)); break;
    case COLL_BF16: ENCODE(uint16_t, coll_f32_to_bf16((float)value)); break;
    case COLL_F32:  ENCODE(float, (float)value); break;
    default:        ENCODE(double, (double)value); break;
    }
#undef ENCODE
}

/* One period of the input of `rank`, or of the reduction for rank -1. */
static void make_pattern(bench *b, const test *t, int rank)
{
    for (int i = 0; i < PERIOD; i++)
        encode(b->pattern + (size_t)i * t->unit, t->call.type,
               rank < 0 ? result_value(t, b->size, i) : input_value(t, b->size, rank, i));
}

static void fill(const bench *b, unsigned char *at, size_t count, size_t unit)
{
    for (size_t i = 0; i < count; i += PERIOD)
        memcpy(at + i * unit, b->pattern, (count - i < PERIOD ? count - i : PERIOD) * unit);
}

/* How many of `count` elements are not what the pattern says, which starts with element `first`. */
static int64_t count_wrong(const bench *b, const unsigned char *at, size_t count, size_t first, size_t unit)
{
    int64_t wrong = 0;

    for (size_t i = 0, n; i < count; i += n) {
        const size_t phase = (first + i) % PERIOD;
        const unsigned char *const got = at + i * unit, *const right = b->pattern + phase * unit;
        n = count - i < PERIOD - phase ? count - i : PERIOD - phase;
        if (!memcmp(got, right, n * unit)) continue;
        for (size_t k = 0; k < n; k++) wrong += memcmp(got + k * unit, right + k * unit, unit) != 0;
    }
    return wrong;
}

/* ---- >>checking ---- */

/* How many elements of this rank's result are wrong. */
static int64_t check_result(bench *b, const test *t)
{
    const size_t count = t->call.count, unit = t->unit;
    int64_t wrong = 0;

    switch (t->c->kind) {
    case COLL_BARRIER: return 0;
    case COLL_ALLGATHER:
        for (int rank = 0; rank < b->size; rank++) {
            make_pattern(b, t, rank);
            wrong += count_wrong(b, t->output + (size_t)rank * count * unit, count, 0, unit);
        }
        return wrong;
    case COLL_REDUCE:
        if (b->rank != t->call.root) return 0;
        break;
    default: break;
    }
    make_pattern(b, t, t->c->is_reducing ? -1 : t->c->kind == COLL_SENDRECV ? t->call.source : t->call.root);
    return count_wrong(b, t->output, count, t->c->kind == COLL_REDUCE_SCATTER ? count * (size_t)b->rank : 0, unit);
}

/* Carry out the operation once, for each root where roots rotate (for eight of them at most), and count what is wrong on
 * all ranks.  recv is spoilt before, lest an earlier result pass for this one. */
static bool check(bench *b, test t, int64_t *wrong)
{
    const bool rotates = t.root == ROOT_ROTATES;
    const int roots = !rotates ? 1 : b->size < ROOTS_CHECKED ? b->size : ROOTS_CHECKED;
    const size_t count = t.call.count * (t.c->kind == COLL_REDUCE_SCATTER ? (size_t)b->size : 1);
    int64_t mine = 0;

    for (int k = 0; k < roots; k++) {
        if (rotates) t.call.root = (int)((int64_t)k * b->size / roots);
        t.root = t.call.root;                     /* perform is not to choose another */
        memset(b->recv, 0xa5, t.bytes);
        if (t.unit) make_pattern(b, &t, b->rank);
        if (t.c->kind == COLL_BROADCAST) t.input = t.output;
        if (t.c->kind != COLL_BROADCAST || b->rank == t.call.root) fill(b, t.input, count, t.unit);
        if (!perform(b, &t, 1)) return false;
        mine += check_result(b, &t);
    }
    *wrong = mine;
    if (!done(b, coll_allreduce(b->comm, wrong, wrong, 1, COLL_I64, COLL_SUM))) return false;
    if (*wrong < mine) *wrong = mine;             /* should this allreduce be the one that is wrong */
    b->wrong += *wrong;
    return true;
}

/* ---- >>timing ---- */

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Time `count` operations on this rank. */
static bool time_batch(bench *b, test *t, long count, double *seconds)
{
    const double start = now();
    if (!perform(b, t, count)) return false;
    *seconds = now() - start;
    return true;
}

/* Seconds for one operation, roughly and the same on all ranks: from a run of pace_s or more, or of `limit` operations. */
static bool pace(bench *b, test *t, long turn, long limit, double *seconds)
{
    for (long count = turn;; count *= 4) {
        if (!done(b, coll_barrier(b->comm)) || !time_batch(b, t, count, seconds) || !agree(b, seconds, 1)) return false;
        if (*seconds < pace_s && count < BATCH_MOST && (limit == 0 || count < limit)) continue;
        *seconds = *seconds / (double)count + 1e-10;         /* never 0, whatever the clock is like */
        return true;
    }
}

/* Batches of so many operations that one takes batch_s or more; each rank takes the time of each batch, the slowest rank's
 * counts, and out of these come the median and the 99th percentile.  Where roots rotate, each has the same number of turns
 * in a batch. */
static bool measure(bench *b, test t, figures *f)
{
    const long wanted = b->o->iterations, turn = t.root == ROOT_ROTATES ? b->size : 1;
    double each;

    if (!perform(b, &t, b->o->warmup) || !pace(b, &t, turn, wanted, &each)) return false;
    long batch = (long)(batch_s / each) + 1, samples;
    if (wanted) {
        const long least = (wanted + SAMPLES_MOST - 1) / SAMPLES_MOST;
        batch = batch > wanted ? wanted : batch < least ? least : batch;
        samples = (wanted + batch - 1) / batch;
    } else {
        batch = (batch + turn - 1) / turn * turn;
        const double fit = budget_s / (each * (double)batch);
        samples = fit < SAMPLES_LEAST ? SAMPLES_LEAST : fit > SAMPLES_MOST ? SAMPLES_MOST : (long)fit;
    }
    if (!done(b, coll_barrier(b->comm))) return false;
    for (long i = 0; i < samples; i++) {
        if (!time_batch(b, &t, batch, &b->samples[i])) return false;
        b->samples[i] /= (double)batch;
    }
    if (!agree(b, b->samples, (size_t)samples)) return false;
    qsort(b->samples, (size_t)samples, sizeof *b->samples, compare);
    *f = (figures){ true, b->samples[samples / 2], b->samples[(samples * 99 + 99) / 100 - 1], batch, samples, -1 };
    return true;
}

/* ---- >>printing: the table of nccl-tests, or JSON ---- */

#define COLUMNS "%12s  %12s  %9s  %6s  %6s"
#define FIGURES "  %8s %7s %7s %8s %6s"

static PERF_PRINTF(2, 3) void say(const bench *b, const char *format, ...)
{
    va_list list;

    if (!b->table) return;
    va_start(list, format);
    vfprintf(b->table, format, list);
    va_end(list);
}

static double algbw(const test *t, const figures *f) { return (double)t->bytes / f->time * 1e-9; }

static double busbw(const bench *b, const test *t, const figures *f)
{
    const double n = b->size;
    return algbw(t, f) * (t->c->bus_whole + t->c->bus_shared * (n - 1) / n);
}

/* About four digits of a number. */
typedef struct word { char text[32]; } word;

static word digits(double x)
{
    word w;
    snprintf(w.text, sizeof w.text, "%.*f", x < 10 ? 3 : x < 100 ? 2 : x < 10000 ? 1 : 0, x);
    return w;
}

static void say_figures(const bench *b, const test *t, const figures *f)
{
    char wrong[24] = "N/A";

    if (f->wrong >= 0) snprintf(wrong, sizeof wrong, "%lld", (long long)f->wrong);
    if (!f->is_there) say(b, FIGURES, "N/A", "N/A", "N/A", "N/A", "N/A");
    else say(b, FIGURES, digits(f->time * 1e6).text, digits(algbw(t, f)).text, digits(busbw(b, t, f)).text,
             digits(f->p99 * 1e6).text, wrong);
}

static void json_figures(const bench *b, const char *name, const test *t, const figures *f)
{
    fprintf(b->json, ",\"%s\":", name);
    if (!f->is_there) {
        fputs("null", b->json);
        return;
    }
    fprintf(b->json, "{\"time_us\":%.6g,\"algbw\":%.6g,\"busbw\":%.6g,\"p99_us\":%.6g,\"batches\":%ld,\"batch\":%ld,\"wrong\":",
            f->time * 1e6, algbw(t, f), busbw(b, t, f), f->p99 * 1e6, f->samples, f->batch);
    if (f->wrong < 0) fputs("null}", b->json);
    else fprintf(b->json, "%lld}", (long long)f->wrong);
}

static void print_head(const bench *b)
{
    const options *o = b->o;
    char text[512] = "", *over, *end;

    if (coll_explain(b->comm, &(coll_call){ .kind = COLL_BARRIER }, text, sizeof text) < 0) snprintf(text, sizeof text, "?");
    if ((over = strstr(text, " over "))) memmove(text, over + 6, strlen(over + 6) + 1);
    if (over && (end = strstr(text, ": "))) *end = '\0';
    say(b, "# coll_perf, coll.h %d.%d.%d\n", COLL_VERSION_MAJOR, COLL_VERSION_MINOR, COLL_VERSION_PATCH);
    say(b, "# transport: %s  ranks: %d  on this host: %d  processors: %d%s\n", text, b->size,
        coll_local_size(b->comm), o->processors, o->pins ? ", pinned" : "");
    say(b, "# minBytes %zu maxBytes %zu step: %zu(%s) warmup iters: %ld iters: ", o->least, o->most,
        o->step ? o->step : o->factor, o->step ? "bytes" : "factor", o->warmup);
    say(b, o->iterations ? "%ld" : "adaptive", o->iterations);
    say(b, " validation: %d\n", o->checks);
    say(b, "# time: median over batches of %.0f us or more, of the slowest rank's time for one operation; p99: over the same\n",
        batch_s * 1e6);
    if (b->size == 1) say(b, "# one rank: nothing has to move.  -t 4 or coll-run -n 4 starts more\n");
    if (b->json)
        fprintf(b->json, "{\"program\":\"coll_perf\",\"version\":\"%d.%d.%d\",\"transport\":\"%s\",\"ranks\":%d,"
                "\"local_ranks\":%d,\"processors\":%d}\n", COLL_VERSION_MAJOR, COLL_VERSION_MINOR, COLL_VERSION_PATCH, text,
                b->size, coll_local_size(b->comm), o->processors);
}

static void print_table_head(const bench *b, const collective *c)
{
    say(b, "#\n# %s\n#" COLUMNS "  %-40s  %s\n", c->name, "", "", "", "", "", "       out-of-place", "       in-place");
    say(b, "#" COLUMNS FIGURES FIGURES "\n", "size", "count", "type", "redop", "root",
        "time", "algbw", "busbw", "p99", "#wrong", "time", "algbw", "busbw", "p99", "#wrong");
    say(b, "#" COLUMNS FIGURES FIGURES "\n", "(B)", "(elements)", "", "", "",
        "(us)", "(GB/s)", "(GB/s)", "(us)", "", "(us)", "(GB/s)", "(GB/s)", "(us)", "");
}

static void print_line(const bench *b, const test *t, const figures *out, const figures *in)
{
    const char *const op = t->c->is_reducing ? coll_op_name(t->call.op) : "none";
    const char *const type_name = t->unit ? coll_type_name(t->call.type) : "none";
    char size[24], count[24], type[24], root[16];

    if (b->rank != 0) return;
    snprintf(size, sizeof size, "%zu", t->bytes);
    snprintf(count, sizeof count, "%zu", t->call.count);
    snprintf(type, sizeof type, "%s%s%s", type_name, t->call.wire ? "/" : "", t->call.wire ? coll_type_name(t->call.wire) : "");
    snprintf(root, sizeof root, "%d", t->root);
    if (!t->c->is_rooted) snprintf(root, sizeof root, "-1");
    else if (t->root == ROOT_ROTATES) snprintf(root, sizeof root, "rotate");
    say(b, " " COLUMNS, size, count, type, op, root);
    say_figures(b, t, out);
    say_figures(b, t, in);
    say(b, "\n");
    if (!b->json) return;
    fprintf(b->json, "{\"collective\":\"%s\",\"ranks\":%d,\"size\":%s,\"count\":%s,\"type\":\"%s\",\"wire\":\"%s\","
            "\"redop\":\"%s\",\"root\":\"%s\"", t->c->name, b->size, size, count, type_name,
            t->call.wire ? coll_type_name(t->call.wire) : type_name, op, root);
    json_figures(b, "out_of_place", t, out);
    json_figures(b, "in_place", t, in);
    fputs("}\n", b->json);
}

static void print_copy(const bench *b, const test *t, const figures *f)
{
    char text[80];

    if (b->rank != 0) return;
    snprintf(text, sizeof text, "# memcpy of %zu bytes by all ranks at once", t->bytes);
    say(b, "%-54s" FIGURES "\n", text, digits(f->time * 1e6).text, digits(algbw(t, f)).text, "",
        digits(f->p99 * 1e6).text, "");
    if (!b->json) return;
    fprintf(b->json, "{\"collective\":\"memcpy\",\"ranks\":%d,\"size\":%zu", b->size, t->bytes);
    json_figures(b, "out_of_place", t, f);
    fputs("}\n", b->json);
}

/* ---- >>run: all that the options name ---- */

/* One form of a test: check it, then time it over zeros, which stay zeros however often they are reduced. */
static bool run_form(bench *b, const test *t, figures *f)
{
    int64_t wrong = -1;

    if (b->o->checks && t->c->kind && !check(b, *t, &wrong)) return false;
    memset(b->send, 0, t->bytes);
    memset(b->recv, 0, t->bytes);
    if (!measure(b, *t, f)) return false;
    f->wrong = wrong;
    if (t->c->kind && t->bytes) {
        b->bus_sum += busbw(b, t, f);
        b->bus_count++;
    }
    return true;
}

/* The size after this one. */
static size_t next_size(const options *o, size_t bytes)
{
    if (o->step) return bytes + o->step;
    return bytes == 0 ? 8 : bytes > o->most / o->factor ? SIZE_MAX : bytes * o->factor;
}

/* Is there such an operation?  Asked with no elements; a refusal sends nothing, and is the same on every rank. */
static bool is_available(bench *b, const collective *c, coll_type type, coll_op op)
{
    const test t = test_make(b, c, type, op, 0, 0, false);
    const coll_status status = coll_run(b->comm, &t.call);

    if (status != COLL_ERR_UNSUPPORTED) return done(b, status);
    say(b, "# left out: %s\n", coll_error(b->comm));
    if (b->rank == 0 && !b->table) fprintf(stderr, "coll_perf: left out: %s\n", coll_error(b->comm));
    return false;
}

/* All sizes of one collective, type, operation and root, with memcpy beside them on request. */
static bool run_sizes(bench *b, const collective *c, coll_type type, coll_op op, int root, bool with_copy)
{
    size_t last = SIZE_MAX;                       /* small sizes may be equal: one element at least           */

    if (!is_available(b, c, type, op)) return !b->has_failed;
    for (size_t bytes = b->o->least; bytes <= b->o->most; bytes = next_size(b->o, bytes)) {
        const test out = test_make(b, c, type, op, root, bytes, false), in = test_make(b, c, type, op, root, bytes, true);
        figures out_figures = { 0 }, in_figures = { 0 }, copy_figures = { 0 };

        if (out.bytes == last) continue;
        last = out.bytes;
        if (c->has_out && !run_form(b, &out, &out_figures)) return false;
        if (c->has_in && !run_form(b, &in, &in_figures)) return false;
        print_line(b, &out, &out_figures, &in_figures);
        b->lines++;
        if (!with_copy || !out.bytes) continue;
        const test copy = test_make(b, &plain_copy, type, op, 0, out.bytes, false);
        if (!run_form(b, &copy, &copy_figures)) return false;
        print_copy(b, &copy, &copy_figures);
    }
    return true;
}

/* How the library goes about the largest size. */
static void print_explanation(const bench *b, const collective *c, coll_type type, coll_op op)
{
    const test t = test_make(b, c, type, op, 0, b->o->most, false);
    char text[512];

    if (coll_explain(b->comm, &t.call, text, sizeof text) > 0) say(b, "# %s\n", text);
}

static bool run_collective(bench *b, const collective *c)
{
    const options *o = b->o;
    const bool has_type = c->kind != COLL_BARRIER, has_each = c->is_rooted && o->root == ROOT_EACH;
    bool with_copy = has_type;
    coll_type last_type = 0;
    coll_op last_op = COLL_SUM;

    print_table_head(b, c);
    for (int k = 0; k < (has_type ? TYPES : 1); k++) {
        if (has_type && !(o->types >> k & 1)) continue;
        for (int op = 0; op < (c->is_reducing ? OPS : 1); op++) {
            if (c->is_reducing && !(o->ops >> op & 1)) continue;
            const long lines = b->lines;
            for (int root = 0; root < (has_each ? b->size : 1); root++) {
                const int which = has_each ? root : c->is_rooted ? o->root : 0;
                if (!run_sizes(b, c, has_type ? types[k].type : 0, (coll_op)op, which, with_copy)) return false;
                with_copy = with_copy && b->lines == lines;
            }
            if (b->lines == lines) continue;      /* there is no such operation */
            last_type = has_type ? types[k].type : 0;
            last_op = (coll_op)op;
        }
    }
    print_explanation(b, c, last_type, last_op);
    return true;
}

/* Bind the calling thread to the processor of the rank'th turn. */
static void pin(const options *o, int rank)
{
    unsigned long mask[PROCESSORS_MOST / (8 * sizeof(long))] = { 0 };
    const size_t processor = (size_t)o->processor[rank % o->processors], bits = 8 * sizeof(long);

    mask[processor / bits] = 1ul << processor % bits;
    if (syscall(SYS_sched_setaffinity, 0, sizeof mask, mask) < 0)
        fprintf(stderr, "coll_perf: rank %d cannot be bound to processor %zu: %s\n", rank, processor, strerror(errno));
}

/* The processors that this process may use. */
static void find_processors(options *o)
{
    unsigned long mask[PROCESSORS_MOST / (8 * sizeof(long))] = { 0 };
    const int bits = 8 * (int)sizeof(long);

    if (syscall(SYS_sched_getaffinity, 0, sizeof mask, mask) < 0) mask[0] = 1;
    for (int i = 0; i < PROCESSORS_MOST; i++)
        if (mask[i / bits] >> i % bits & 1) o->processor[o->processors++] = i;
}

static void *make_buffer(const bench *b) { return b->o->allocates ? coll_alloc(b->comm, b->room) : aligned_alloc(4096, b->room); }

static void free_buffer(const bench *b, void *at)
{
    if (b->o->allocates) coll_dealloc(b->comm, at);
    else free(at);
}

/* Buffers for the largest size, every page of them touched by the thread that uses it.  Ranks agree on whether all have
 * theirs: one that gave up alone would leave the others waiting. */
static bool make_buffers(bench *b)
{
    const size_t least = (size_t)b->size * UNIT_MOST;
    double is_short;

    b->room = ((b->o->most > least ? b->o->most : least) + 4095) / 4096 * 4096;
    b->send = make_buffer(b);
    b->recv = make_buffer(b);
    b->pattern = malloc(PERIOD * UNIT_MOST);
    b->samples = malloc(SAMPLES_MOST * sizeof *b->samples);
    is_short = !b->send || !b->recv || !b->pattern || !b->samples;
    if (!agree(b, &is_short, 1)) return false;
    if (is_short > 0) {
        if (b->rank == 0) fprintf(stderr, "coll_perf: no memory for two buffers of %zu bytes on each rank\n", b->room);
        b->has_failed = true;
        return false;
    }
    memset(b->send, 0, b->room);
    memset(b->recv, 0, b->room);
    return true;
}

/* Where rank 0 prints. */
static bool open_outputs(bench *b)
{
    const options *o = b->o;

    if (b->rank != 0) return true;
    if (!o->has_json || o->json) b->table = stdout;
    if (o->has_json) b->json = o->json ? fopen(o->json, "w") : stdout;
    if (!o->has_json || b->json) return true;
    fprintf(stderr, "coll_perf: %s: %s\n", o->json, strerror(errno));
    return false;
}

static void print_summary(const bench *b)
{
    const double average = b->bus_count ? b->bus_sum / (double)b->bus_count : 0;
    const char *const result = !b->o->checks ? "NOT CHECKED" : b->wrong ? "FAILED" : "OK";

    say(b, "#\n# out of bounds values: %lld %s\n", (long long)b->wrong, result);
    say(b, "# avg bus bandwidth: %.6g\n", average);
    if (b->json) fprintf(b->json, "{\"out_of_bounds_values\":%lld,\"avg_bus_bandwidth\":%.6g}\n", (long long)b->wrong, average);
}

/* What each rank does; the result is the exit status. */
static int run(coll_comm *comm, void *arg)
{
    const options *o = arg;
    bench b = { .o = o, .comm = comm, .rank = coll_rank(comm), .size = coll_size(comm) };
    int status = EXIT_WRONG;

    if (o->root >= b.size) {
        if (b.rank == 0) fprintf(stderr, "coll_perf: root %d is not within 0 to %d\n", o->root, b.size - 1);
        return EXIT_USAGE;
    }
    if (!open_outputs(&b)) return EXIT_USAGE;
    if (o->pins) pin(o, coll_local_rank(comm));
    if (make_buffers(&b)) {
        print_head(&b);
        for (int i = 0; i < COLLECTIVES && !b.has_failed; i++)
            if (o->collectives >> i & 1) run_collective(&b, &collectives[i]);
        if (!b.has_failed) {
            print_summary(&b);
            status = b.lines == 0 ? EXIT_USAGE : b.wrong ? EXIT_WRONG : 0;
        }
    }
    if (b.json && fflush(b.json)) status = EXIT_WRONG;
    if (b.json && b.json != stdout) fclose(b.json);
    free_buffer(&b, b.send);
    free_buffer(&b, b.recv);
    free(b.pattern);
    free(b.samples);
    return status;
}

int main(int argc, char **argv)
{
    options o = { .least = SIZE_MAX, .most = SIZE_MAX, .factor = 4, .warmup = 2, .checks = true, .root = ROOT_ROTATES,
                  .collectives = 1u << 0, .ops = 1u << COLL_SUM };
    coll_comm *comm;

    o.types = names("datatype", "f32", name_of_type, TYPES);
    parse(&o, argc, argv);
    find_processors(&o);
    setvbuf(stdout, NULL, _IOLBF, 0);             /* a line is seen when it is measured */
    if (o.threads) {
        const int status = coll_spawn(o.threads, run, &o, NULL);
        if (status < 0) fprintf(stderr, "coll_perf: %s\n", coll_error(NULL));
        return status < 0 ? EXIT_WRONG : status;
    }
    if (coll_init(&comm, NULL) < 0) {
        fprintf(stderr, "coll_perf: %s\n", coll_error(NULL));
        return EXIT_WRONG;
    }
    const int status = run(comm, &o);
    coll_free(comm);
    return status;
}
