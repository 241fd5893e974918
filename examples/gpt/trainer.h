/* trainer.h - common code of all programs: options, the text, the clock, counted memory, the progress line, and the end.
 *
 * A page is a program whose main calls gpt_main with its name, its own options and its function `train`, which every rank runs:
 *
 *     static int train(gpt_trainer *t)
 *     {
 *         gpt_replica r;
 *         if (!gpt_replica_make(t, &r, t->with->batch)) return gpt_failed(t);    memory that gpt_main frees; first weights
 *         if (gpt_begin(t)) return gpt_failed(t);                         all ranks are here; the clock starts
 *         for (int step = 0; step < t->with->steps; step++) {
 *             const gpt_part part = gpt_part_of(gpt_batch(t, step), t->rank, t->size);
 *             const double share = gpt_replica_learn(t, &r, step, part, NULL, NULL);
 *             gpt_clock(t, GPT_COMMUNICATE);                              what was before was computing; this is not
 *             if (coll_allreduce(t->comm, ... r.gradient ...)) return gpt_failed(t);
 *             gpt_clock(t, GPT_COMPUTE);
 *             gpt_replica_update(t, &r, step);
 *             if (gpt_step(t, step, share)) return gpt_failed(t);         my share of the mean loss of this step
 *         }
 *         return gpt_end(t, r.weights);                                   hash of the weights, report, files, a sample
 *     }
 *
 * That is all of data parallel training.  A page that does not have the whole model on a rank builds on gpt.h itself.
 *
 * It gives the exit code: 0; 1 after a failure, printed by gpt_failed; 2 from gpt_refuse, if the options are not possible.  The
 * same program is one rank, threads (-t N), processes (coll-run -n N) or both (coll-run --threads T).
 *
 * No single rank has the mean loss of a step, or the share of communication.  gpt_step gathers the numbers of
 * --every steps and adds them up by one non-blocking call on its own communicator, which is tested, and not waited for,
 * until the next one is due: they come a little later, and no step waits for them. */
#ifndef GPT_TRAINER_H
#define GPT_TRAINER_H

#ifndef _DEFAULT_SOURCE
#define _DEFAULT_SOURCE 1            /* readlink and getopt_long, under -std=c11; so this header comes first */
#endif

#include "../../coll.h"
#include "../data_file.h"
#include "gpt.h"

#include <ctype.h>
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

/* ---- >>options ---- */

typedef struct gpt_options {
    int threads, layers, width, heads, context, batch, steps, seed, every, check, sample, is_json;
    int letters;                     /* of the text that are used; 0: all               */
    double rate;
    const char *data, *log, *timeline, *label;
} gpt_options;

/* One option: where its value is stored, and its range.  names: words of which one is to be chosen, by its place. */
typedef struct gpt_row {
    const char *name, *help;
    int *whole;
    double least, most;
    const char *names;
    double *real;
    const char **text;
} gpt_row;

struct gpt_trainer;

/* A program: its own options come behind those of all, and what they point to may be in `own`. */
typedef struct gpt_page {
    const char *name, *about;
    int (*train)(struct gpt_trainer *t);
    const gpt_row *rows;
    int row_count;
    const void *own;
} gpt_page;

/* ---- >>trainer: one rank's view ---- */

/* States of the time: computing with nothing in flight; computing with messages in flight; inside the library, where
 * computing could continue; waiting. */
enum { GPT_COMPUTE, GPT_OVERLAP, GPT_COMMUNICATE, GPT_WAIT, GPT_TIMES };

enum { GPT_WEIGHTS, GPT_GRADIENTS, GPT_OPTIMIZER, GPT_ACTIVATIONS, GPT_OTHER, GPT_MEMORIES };

typedef struct gpt_room { struct gpt_room *next; size_t bytes; int kind; } gpt_room;

/* The text in numbers from 0 to vocabulary - 1; `glyph` turns them back. */
typedef struct gpt_text { uint8_t *letters; uint64_t length; int sequences, vocabulary; char glyph[256]; } gpt_text;

/* Begin and end of an activity; the lane separates computing from operations in flight at the same time. */
typedef struct gpt_event { char name[32]; int rank, step, lane; double begin_s, end_s; } gpt_event;

enum { GPT_MOST_EVENTS = 4096 };

typedef struct gpt_trainer {
    coll_comm *home;                 /* of all ranks that there were at the start       */
    coll_comm *comm, *news;          /* news: what gpt_step says, apart from the page's own calls */
    int rank, size;
    const gpt_page *page;
    const gpt_options *with;
    const void *own;                 /* the page's options                              */
    gpt_shape shape;
    gpt_text text;
    size_t count;                    /* parameters                                      */

    double began_s, ended_s, clock_s, seconds[GPT_TIMES];
    int clock;                       /* the current activity                            */
    size_t bytes[GPT_MEMORIES], peak[GPT_MEMORIES];
    gpt_room *rooms;
    uint64_t sent;                   /* bytes, before training                          */
    gpt_event *events;
    int event_count;

    double *losses;                  /* of all steps, as far as they are known          */
    double *said[2], *heard;         /* shares of --every steps, and seconds; those in flight; their sum */
    double inside_s, all_s;          /* of all ranks together: in communication, and in total */
    coll_request *request;           /* the sum of said[1]                              */
    int first_said, said_count, first_asked, asked_count;
    int first, known;                /* losses are known from step `first` on, `known` not included */
    bool is_terminal;
} gpt_trainer;

static inline double gpt_now_s(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Say why on rank 0, and give the exit code of a query that cannot be met.  All ranks come here, for the same reason. */
__attribute__((format(printf, 2, 3))) static inline int gpt_refuse(const gpt_trainer *t, const char *format, ...)
{
    va_list arguments;

    if (t->rank) return 2;
    fprintf(stderr, "%s: ", t->page->name);
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fputc('\n', stderr);
    return 2;
}

/* Say what the library says, and give the exit code of a failure. */
static inline int gpt_failed(const gpt_trainer *t)
{
    const char *const of_news = t->news ? coll_error(t->news) : "", *const of_all = coll_error(t->comm);

    fprintf(stderr, "%s: %s\n", t->page->name, *of_all ? of_all : *of_news ? of_news : "out of memory");
    return 1;
}

/* What is spent from here on is spent on this. */
static inline void gpt_clock(gpt_trainer *t, int kind)
{
    const double now_s = gpt_now_s();

    t->seconds[t->clock] += now_s - t->clock_s;
    t->clock_s = now_s;
    t->clock = kind;
}

/* Record that this lasted from `begin_s` until now, if a timeline is requested. */
static inline void gpt_note(gpt_trainer *t, const char *name, int step, int lane, double begin_s)
{
    if (!t->events || t->event_count == GPT_MOST_EVENTS) return;
    gpt_event *const e = &t->events[t->event_count++];

    *e = (gpt_event){ .rank = t->rank, .step = step, .lane = lane, .begin_s = begin_s - t->began_s,
                      .end_s = gpt_now_s() - t->began_s };
    snprintf(e->name, sizeof e->name, "%s", name);
}

/* ---- >>memory: zeroed, counted by kind, and freed at the end ---- */

static inline void *gpt_bytes(gpt_trainer *t, int kind, size_t bytes)
{
    const size_t head = (sizeof(gpt_room) + 63) / 64 * 64, all = (head + bytes + 63) / 64 * 64;
    gpt_room *const room = aligned_alloc(64, all);

    if (!room) return NULL;
    memset(room, 0, all);
    *room = (gpt_room){ t->rooms, bytes, kind };
    t->rooms = room;
    t->bytes[kind] += bytes;
    if (t->bytes[kind] > t->peak[kind]) t->peak[kind] = t->bytes[kind];
    return (char *)room + head;
}

static inline float *gpt_floats(gpt_trainer *t, int kind, size_t count) { return gpt_bytes(t, kind, count * sizeof(float)); }

/* Free what gpt_bytes has given; NULL is nothing. */
static inline void gpt_release(gpt_trainer *t, void *memory)
{
    gpt_room **at = &t->rooms;
    const size_t head = (sizeof(gpt_room) + 63) / 64 * 64;

    while (*at && (char *)*at + head != (char *)memory) at = &(*at)->next;
    gpt_room *const room = *at;
    if (!room) return;
    *at = room->next;
    t->bytes[room->kind] -= room->bytes;
    free(room);
}

/* ---- >>text: rank 0 reads it, and broadcasts it ---- */

static const char *const GPT_DATA = "examples/data/pride-and-prejudice.txt";

/* Read the text, or its first letters.  Returns how many, or 0 after a sentence on stderr. */
static inline uint64_t gpt_read(const gpt_trainer *t, uint8_t **out)
{
    const char *const name = t->with->data ? t->with->data : GPT_DATA;
    FILE *const file = t->with->data ? fopen(name, "rb") : data_open(GPT_DATA);
    const size_t most = t->with->letters ? (size_t)t->with->letters : (size_t)1 << 30, least = (size_t)t->with->context + 1;
    size_t length = 0, room = 0, got = 1;

    if (!file) return fprintf(stderr, "%s: %s: %s\n", t->page->name, name, strerror(errno)), 0;
    while (got && length < most) {
        if (length == room) {
            uint8_t *const more = realloc(*out, room = 2 * room + 65536);

            if (!more) break;
            *out = more;
        }
        got = fread(*out + length, 1, (room < most ? room : most) - length, file);
        length += got;
    }
    const bool is_read = !ferror(file) && length >= least;
    if (ferror(file)) fprintf(stderr, "%s: %s cannot be read: %s\n", t->page->name, name, strerror(errno));
    else if (!is_read) fprintf(stderr, "%s: %s: %zu letters are used, and one sequence takes %zu\n", t->page->name, name, length,
                               least);
    fclose(file);
    return is_read ? length : 0;
}

/* Number the letters that occur, in the order of their bytes. */
static inline void gpt_number(gpt_text *text)
{
    uint8_t number[256] = { 0 };
    bool occurs[256] = { false };

    for (uint64_t i = 0; i < text->length; i++) occurs[text->letters[i]] = true;
    for (int c = 0; c < 256; c++) if (occurs[c]) {
        number[c] = (uint8_t)text->vocabulary;
        text->glyph[text->vocabulary++] = (char)c;
    }
    for (uint64_t i = 0; i < text->length; i++) text->letters[i] = number[text->letters[i]];
}

/* Give every rank the text.  2: there is none, and rank 0 has said why. */
static inline int gpt_load(gpt_trainer *t)
{
    gpt_text *const text = &t->text;
    uint8_t *letters = NULL;

    if (!t->rank) text->length = gpt_read(t, &letters);
    if (coll_broadcast(t->comm, &text->length, 1, COLL_U64, 0)) return free(letters), gpt_failed(t);
    if (text->length && (text->letters = gpt_bytes(t, GPT_OTHER, text->length)) && !t->rank)
        memcpy(text->letters, letters, text->length);
    free(letters);
    if (!text->length) return 2;
    if (!text->letters || coll_broadcast(t->comm, text->letters, text->length, COLL_U8, 0)) return gpt_failed(t);
    gpt_number(text);
    text->sequences = (int)((text->length - 1) / (uint64_t)t->with->context);
    t->shape = (gpt_shape){ text->vocabulary, t->with->layers, t->with->width, t->with->heads, t->with->context };
    t->count = gpt_parameters(&t->shape);
    return 0;
}

/* ---- >>batches: which sequences a step learns from, known to every rank without a message ---- */

/* Where number `at` of 0 .. count - 1 comes in the order of this round: four rounds of a Feistel network on as many bits as it
 * takes, repeated while the number is too large.  A shuffle of which any part can be computed. */
static inline int gpt_shuffled(int count, uint64_t seed, uint64_t round, int at)
{
    int half = 1;
    uint32_t x = (uint32_t)at;

    while (1 << 2 * half < count) half++;
    const uint32_t mask = (1u << half) - 1;
    do {
        uint32_t left = x >> half, right = x & mask;

        for (uint64_t k = 0; k < 4; k++) {
            const uint32_t next = (left ^ (uint32_t)gpt_chance(seed, 1 + 4 * round + k, right)) & mask;
            left = right, right = next;
        }
        x = left << half | right;
    } while (x >= (uint32_t)count);
    return (int)x;
}

/* Steps until all sequences have been seen once. */
static inline int gpt_round(const gpt_trainer *t) { return (t->text.sequences + t->with->batch - 1) / t->with->batch; }

/* Sequences in the batch of this step, on all ranks together: the last batch of a round may be smaller. */
static inline int gpt_batch(const gpt_trainer *t, int step)
{
    const int left = t->text.sequences - step % gpt_round(t) * t->with->batch;

    return left < t->with->batch ? left : t->with->batch;
}

/* Sequence number `at` of this step's batch: `context` letters, and for each the one that follows it. */
static inline void gpt_sequence(const gpt_trainer *t, int step, int at, uint8_t *letters, uint8_t *targets)
{
    const int round = step / gpt_round(t), place = step % gpt_round(t) * t->with->batch + at;
    const int chosen = gpt_shuffled(t->text.sequences, (uint64_t)t->with->seed, (uint64_t)round, place);
    const uint8_t *const from = t->text.letters + (size_t)chosen * (size_t)t->shape.context;

    memcpy(letters, from, (size_t)t->shape.context);
    memcpy(targets, from + 1, (size_t)t->shape.context);
}

/* The part of 0 .. count - 1 that the rank has: parts differ by one at most, and some are empty where there are few. */
typedef struct gpt_part { int begin, end; } gpt_part;

static inline gpt_part gpt_part_of(int count, int rank, int size)
{
    return (gpt_part){ (int)((long long)count * rank / size), (int)((long long)count * (rank + 1) / size) };
}

/* 1 / the letters of this step's batch: what makes sums over them to means. */
static inline float gpt_scale(const gpt_trainer *t, int step)
{
    return 1 / ((float)gpt_batch(t, step) * (float)t->shape.context);
}

/* ---- >>replica: the whole model and its optimizer on one rank, for pages that have that ---- */

typedef struct gpt_replica {
    float *weights, *gradient, *first, *second;      /* first and second: Adam's moments        */
    float *saved;
    uint8_t *letters, *targets;
    int most;                                        /* sequences that there is room for        */
} gpt_replica;

/* All of it, with the first weights, for up to so many sequences at once.  false: out of memory. */
static inline bool gpt_replica_make(gpt_trainer *t, gpt_replica *r, int sequences)
{
    const size_t letters = (size_t)sequences * (size_t)t->shape.context;

    *r = (gpt_replica){ .weights = gpt_floats(t, GPT_WEIGHTS, t->count), .gradient = gpt_floats(t, GPT_GRADIENTS, t->count),
                        .first = gpt_floats(t, GPT_OPTIMIZER, t->count), .second = gpt_floats(t, GPT_OPTIMIZER, t->count),
                        .saved = gpt_floats(t, GPT_ACTIVATIONS, gpt_saved_count(&t->shape, sequences)),
                        .letters = gpt_bytes(t, GPT_OTHER, letters), .targets = gpt_bytes(t, GPT_OTHER, letters),
                        .most = sequences };
    if (!r->weights || !r->gradient || !r->first || !r->second || !r->saved || !r->letters || !r->targets) return false;
    gpt_draw(&t->shape, (uint64_t)t->with->seed, r->weights);
    return true;
}

/* The gradient of this part of a step's batch, of the mean over the whole batch.  Returns its share of the mean loss.  `done`
 * as for gpt_learn; it is called where the part is empty, too. */
static inline double gpt_replica_learn(const gpt_trainer *t, gpt_replica *r, int step, gpt_part part, gpt_unit_fn *done,
                                       void *context)
{
    const int count = part.end - part.begin, length = t->shape.context;
    const float scale = gpt_scale(t, step);

    memset(r->gradient, 0, t->count * sizeof *r->gradient);
    for (int i = 0; i < count; i++)
        gpt_sequence(t, step, part.begin + i, r->letters + i * length, r->targets + i * length);
    if (count) return (double)scale * gpt_learn(&t->shape, r->weights, r->gradient, r->letters, r->targets, count, scale,
                                                r->saved, done, context);
    for (int u = gpt_units(&t->shape) - 1; u >= 0 && done; u--) done(context, u);
    return 0;
}

/* One step of the optimizer along r->gradient. */
static inline void gpt_replica_update(const gpt_trainer *t, gpt_replica *r, int step)
{
    gpt_adam(r->weights, r->gradient, r->first, r->second, t->count, gpt_rate((float)t->with->rate, step, t->with->steps), step);
}

/* ---- >>progress: the line, and the losses behind it ---- */

/* Seconds of this rank: in communication, and in total. */
static inline void gpt_sum_times(const gpt_trainer *t, double *inside_s, double *all_s)
{
    *inside_s = t->seconds[GPT_COMMUNICATE] + t->seconds[GPT_WAIT];
    *all_s = *inside_s + t->seconds[GPT_COMPUTE] + t->seconds[GPT_OVERLAP];
}

/* One line that is written over on a terminal; elsewhere a line now and then. */
static inline void gpt_progress(gpt_trainer *t, int step, double loss)
{
    const double past_s = gpt_now_s() - t->began_s;
    if (!t->request && !t->asked_count) gpt_sum_times(t, &t->inside_s, &t->all_s);       /* a page without requests */
    const double share = t->all_s > 0 ? 100 * t->inside_s / t->all_s : 0;
    const double letters = (double)(step + 1) * t->with->batch * t->shape.context;
    const bool is_last = step + 1 == t->with->steps;

    if (t->rank || t->with->is_json) return;
    if (!t->is_terminal && !is_last && (step + 1) / t->with->every % ((t->with->steps / t->with->every + 9) / 10)) return;
    printf("%sstep %d of %d   loss %.4f   %.0f letters/s   %.0f s left   %.0f %% communication%s", t->is_terminal ? "\r" : "",
           step + 1, t->with->steps, loss, letters / past_s, past_s / (step + 1) * (t->with->steps - step - 1), share,
           !t->is_terminal ? "\n" : is_last ? "   \n" : "   ");
    fflush(stdout);
}

/* The mean loss of a step is known on this rank.  The line shows the mean of the last ones. */
static inline void gpt_know(gpt_trainer *t, int step, double loss)
{
    double sum = 0;
    int count = 0;

    t->losses[step] = loss;
    if (t->known < step + 1) t->known = step + 1;
    if ((step + 1) % t->with->every && step + 1 != t->with->steps) return;
    for (int i = step; i >= t->first && i > step - t->with->every; i--) sum += t->losses[i], count++;
    gpt_progress(t, step, sum / count);
}

/* Take the requested sums, if they are complete, or wait for them. */
static inline coll_status gpt_hear(gpt_trainer *t, bool must)
{
    const coll_status status = !t->request ? COLL_OK : must ? coll_wait(t->request) : coll_test(t->request);

    if (status == COLL_PENDING) return COLL_OK;
    if (!t->request || status) return status;
    coll_request_free(t->request);
    t->request = NULL;
    t->inside_s = t->heard[t->asked_count];
    t->all_s = t->heard[t->asked_count + 1];
    for (int i = 0; i < t->asked_count; i++) gpt_know(t, t->first_asked + i, t->heard[i]);
    return COLL_OK;
}

/* Start the sums of what has been said, after those of before. */
static inline coll_status gpt_ask(gpt_trainer *t)
{
    double *const said = t->said[0];
    const coll_status status = gpt_hear(t, true);

    if (status || !t->said_count) return status;
    t->said[0] = t->said[1], t->said[1] = said;
    gpt_sum_times(t, &said[t->said_count], &said[t->said_count + 1]);
    t->first_asked = t->first_said, t->asked_count = t->said_count, t->said_count = 0;
    return coll_start(t->news, &(coll_call){ .kind = COLL_ALLREDUCE, .send = said, .recv = t->heard, .type = COLL_F64,
                                             .count = (size_t)t->asked_count + 2, .op = COLL_SUM, .flags = COLL_DETERMINISTIC,
                                             .name = "losses" }, &t->request);
}

/* This rank's share of the mean loss of a step; the shares of all ranks add up to it. */
static inline coll_status gpt_step(gpt_trainer *t, int step, double share)
{
    if (!t->said_count) t->first_said = step;
    t->said[0][t->said_count++] = share;
    return (step + 1) % t->with->every == 0 || step + 1 == t->with->steps ? gpt_ask(t) : gpt_hear(t, false);
}

/* Wait until the losses of all steps so far are known: at the end, and where a training may be taken up again. */
static inline coll_status gpt_flush(gpt_trainer *t)
{
    const coll_status status = gpt_ask(t);

    return status ? status : gpt_hear(t, true);
}

/* ---- >>sameness ---- */

/* FNV-1a over the bits of all weights, four bytes at a time. */
static inline uint64_t gpt_hash(const float *weights, size_t count)
{
    uint64_t hash = 0xcbf29ce484222325u;

    for (size_t i = 0; i < count; i++) {
        uint32_t bits;

        memcpy(&bits, &weights[i], sizeof bits);
        hash = (hash ^ bits) * 0x100000001b3u;
    }
    return gpt_mix(hash);
}

/* Whether all ranks hold the same hash: the least of it and the least of its complement meet only then. */
static inline coll_status gpt_is_same(gpt_trainer *t, uint64_t hash, bool *is_same)
{
    uint64_t least[2] = { hash, ~hash };
    const coll_status status = coll_allreduce(t->comm, least, least, 2, COLL_U64, COLL_MIN);

    *is_same = least[0] == ~least[1];
    return status;
}

/* Every --check steps: that all ranks hold the same weights.  1 after a sentence where they do not. */
static inline int gpt_check(gpt_trainer *t, int step, const float *weights)
{
    bool is_same = true;

    if (!t->with->check || (step + 1) % t->with->check) return 0;
    if (gpt_is_same(t, gpt_hash(weights, t->count), &is_same)) return gpt_failed(t);
    if (is_same) return 0;
    if (!t->rank) fprintf(stderr, "%s: after step %d the ranks hold different weights\n", t->page->name, step + 1);
    return 1;
}

/* ---- >>beginning and end ---- */

/* Wait for all ranks, and start the clock. */
static inline coll_status gpt_begin(gpt_trainer *t)
{
    const coll_status status = coll_barrier(t->comm);

    coll_traffic(t->comm, &t->sent, NULL);
    t->began_s = t->clock_s = gpt_now_s();
    t->clock = GPT_COMPUTE;
    return status;
}

/* How messages travel, in the library's own words: "tcp (io_uring)". */
static inline void gpt_transport(gpt_trainer *t, char *name, size_t length)
{
    const coll_call call = { .kind = COLL_ALLREDUCE, .send = COLL_IN_PLACE, .recv = name, .count = 1, .type = COLL_F32 };
    const char *const before = "ranks over ";
    char text[512] = "";

    (void)coll_explain(t->comm, &call, text, sizeof text);
    const char *const at = strstr(text, before), *const from = at ? at + strlen(before) : "one rank:";

    snprintf(name, length, "%.*s", (int)strcspn(from, ":"), from);
}

/* The mean loss of the last tenth of the steps: single batches differ more than ways of training do. */
static inline double gpt_final_loss(const gpt_trainer *t)
{
    const int wanted = (t->with->steps + 9) / 10, there = t->known - t->first, count = wanted < there ? wanted : there;
    double sum = 0;

    for (int i = t->known - count; i < t->known; i++) sum += t->losses[i];
    return count > 0 ? sum / count : 0;
}

/* Open LOG/LABEL.ENDING, or say why not. */
static inline FILE *gpt_create(const gpt_trainer *t, const char *ending)
{
    char path[4096];

    snprintf(path, sizeof path, "%s/%s.%s", t->with->log, t->with->label ? t->with->label : t->page->name, ending);
    FILE *const file = fopen(path, "w");
    if (!file) fprintf(stderr, "%s: %s: %s\n", t->page->name, path, strerror(errno));
    return file;
}

/* For plots: the loss of each step; seconds and bytes of each rank. */
static inline bool gpt_write(const gpt_trainer *t, double (*all)[GPT_TIMES + GPT_MEMORIES])
{
    FILE *const loss = gpt_create(t, "loss.csv"), *const ranks = gpt_create(t, "ranks.csv");

    if (loss) fprintf(loss, "step,loss\n");
    for (int i = t->first; loss && i < t->known; i++) fprintf(loss, "%d,%.9g\n", i + 1, t->losses[i]);
    if (ranks) fprintf(ranks, "rank,compute_s,overlap_s,communicate_s,wait_s,weights,gradients,optimizer,activations,other\n");
    for (int r = 0; ranks && r < t->size; r++) {
        fprintf(ranks, "%d", r);
        for (int i = 0; i < GPT_TIMES + GPT_MEMORIES; i++) fprintf(ranks, ",%.9g", all[r][i]);
        fputc('\n', ranks);
    }
    const bool is_loss_there = loss && !fclose(loss), are_ranks_there = ranks && !fclose(ranks);
    return is_loss_there && are_ranks_there;
}

/* The events of all ranks as a file that chrome://tracing and Perfetto show: a process for each rank, a line for each lane. */
static inline int gpt_write_timeline(gpt_trainer *t)
{
    size_t *const counts = gpt_bytes(t, GPT_OTHER, (size_t)t->size * sizeof *counts), mine = (size_t)t->event_count, sum = 0;

    if (!t->with->timeline) return 0;
    if (!counts || coll_allgather(t->comm, &mine, counts, 1, COLL_U64)) return gpt_failed(t);
    for (int r = 0; r < t->size; r++) sum += counts[r];
    gpt_event *const all = gpt_bytes(t, GPT_OTHER, (sum + 1) * sizeof *all);
    if (!all || coll_gatherv(t->comm, t->events, mine, all, counts, NULL, COLL_BLOB(sizeof *all), 0)) return gpt_failed(t);
    if (t->rank) return 0;
    FILE *const file = fopen(t->with->timeline, "w");
    if (!file) return fprintf(stderr, "%s: %s: %s\n", t->page->name, t->with->timeline, strerror(errno)), 1;
    for (size_t i = 0; i < sum; i++)
        fprintf(file, "%s{\"name\":\"%s\",\"ph\":\"X\",\"pid\":%d,\"tid\":%d,\"ts\":%.3f,\"dur\":%.3f,\"args\":{\"step\":%d}}",
                i ? ",\n" : "[", all[i].name, all[i].rank, all[i].lane, 1e6 * all[i].begin_s,
                1e6 * (all[i].end_s - all[i].begin_s), all[i].step);
    fprintf(file, "%s]\n", sum ? "" : "[");
    return fclose(file) != 0;
}

/* Generate text: each letter drawn at random from the model's probabilities, sharpened, given the letters before it. */
static inline int gpt_write_sample(gpt_trainer *t, const float *weights)
{
    const int context = t->shape.context, kinds = t->shape.vocabulary;
    float *const saved = gpt_floats(t, GPT_OTHER, gpt_saved_count(&t->shape, 1));
    uint8_t *const letters = gpt_bytes(t, GPT_OTHER, (size_t)context);
    int length = 1;

    if (!saved || !letters) return gpt_failed(t);
    for (int k = 0; k < t->with->sample; k++) {
        float *const scores = gpt_forward(&t->shape, weights, letters, 1, saved) + (length - 1) * kinds, sum = 0, top = 0;
        float left = gpt_uniform((uint64_t)t->with->seed, 0x5a, (uint64_t)k);
        int next = 0;

        for (int i = 0; i < kinds; i++) top = scores[i] > top ? scores[i] : top;
        for (int i = 0; i < kinds; i++) sum += scores[i] = expf((scores[i] - top) / 0.7f);
        for (left *= sum; next + 1 < kinds && left >= scores[next]; next++) left -= scores[next];
        putchar(t->text.glyph[next]);
        if (length == context) memmove(letters, letters + 1, (size_t)context - 1), length--;
        letters[length++] = (uint8_t)next;
    }
    putchar('\n');
    return 0;
}

/* What rank 0 says at the end, to people or to programs. */
static inline void gpt_report(gpt_trainer *t, uint64_t hash, bool is_same, uint64_t sent, double inside_s)
{
    const double first = t->known > t->first ? t->losses[t->first] : 0;
    char how[64];

    gpt_transport(t, how, sizeof how);
    if (t->with->is_json) {
        printf("{\"page\":\"%s\",\"ranks\":%d,\"transport\":\"%s\",\"steps\":%d,\"first\":%.6f,\"loss\":%.6f,\"seconds\":%.4f,"
               "\"communication_seconds\":%.4f,\"bytes_sent\":%" PRIu64 ",\"weights\":\"%016" PRIx64 "\",\"identical\":%s}\n",
               t->page->name, t->size, how, t->known, first, gpt_final_loss(t), t->ended_s - t->began_s, inside_s, sent, hash,
               is_same ? "true" : "false");
        return;
    }
    printf("ranks          %d, over %s\n", t->size, how);
    printf("model          %zu parameters, %d kinds of letters\n", t->count, t->shape.vocabulary);
    printf("loss           %.6f, from %.6f\n", gpt_final_loss(t), first);
    printf("time           %.3f s, of it in communication %.3f s\n", t->ended_s - t->began_s, inside_s);
    printf("bytes sent     %" PRIu64 " a rank\n", sent);
    printf("weights        %016" PRIx64 ", %s\n", hash, is_same ? "identical bits on every rank" : "and OTHERS on other ranks");
}

/* The end of training: `weights` are all of them.  Called by every rank; gives its exit code. */
static inline int gpt_end(gpt_trainer *t, const float *weights)
{
    double mine[GPT_TIMES + GPT_MEMORIES];
    double (*const all)[GPT_TIMES + GPT_MEMORIES] = gpt_bytes(t, GPT_OTHER, (size_t)t->size * sizeof mine);
    const uint64_t hash = gpt_hash(weights, t->count);
    uint64_t sent = 0;
    bool is_same = false;

    gpt_clock(t, GPT_WAIT);
    if (!all || gpt_flush(t)) return gpt_failed(t);
    gpt_clock(t, GPT_COMPUTE);
    t->ended_s = t->clock_s;
    coll_traffic(t->comm, &sent, NULL);
    sent -= t->sent;
    for (int i = 0; i < GPT_TIMES; i++) mine[i] = t->seconds[i];
    for (int i = 0; i < GPT_MEMORIES; i++) mine[GPT_TIMES + i] = (double)t->peak[i];
    if (gpt_is_same(t, hash, &is_same) || coll_allreduce(t->comm, &sent, &sent, 1, COLL_U64, COLL_AVG)
        || coll_gather(t->comm, mine, all, GPT_TIMES + GPT_MEMORIES, COLL_F64, 0)) return gpt_failed(t);
    if (gpt_write_timeline(t)) return 1;
    if (t->rank) return !is_same;
    gpt_report(t, hash, is_same, sent, t->seconds[GPT_COMMUNICATE] + t->seconds[GPT_WAIT]);
    if (t->with->log && !gpt_write(t, all)) return 1;
    return (t->with->sample && gpt_write_sample(t, weights)) || fflush(stdout) || !is_same;
}

/* ---- >>running: parse, join, load, train ---- */

/* Use `comm` for the training: at the start, and after some ranks are lost.  Operations in flight are dropped. */
static inline coll_status gpt_join(gpt_trainer *t, coll_comm *comm)
{
    coll_request_free(t->request);
    t->request = NULL;
    coll_free(t->news);
    t->news = NULL;
    if (t->comm != t->home) coll_free(t->comm);
    t->said_count = 0;
    t->comm = comm;
    t->rank = coll_rank(comm);
    t->size = coll_size(comm);
    return coll_dup(comm, &t->news);
}

/* Whether the largest array of a batch, and of its attention, has fewer floats than an int can count. */
static inline bool gpt_is_countable(const gpt_trainer *t)
{
    const gpt_shape *const s = &t->shape;
    const double rows = (double)t->with->batch * s->context, wide = 4.0 * s->width;

    return rows * (wide > s->vocabulary ? wide : s->vocabulary) < INT32_MAX && rows * s->context * (s->heads + 1) < INT32_MAX
        && 4.0 * s->width * s->width < INT32_MAX;
}

typedef struct gpt_job { const gpt_page *page; const gpt_options *with; } gpt_job;

/* The life of a rank.  Gives its exit code. */
static inline int gpt_rank(coll_comm *comm, void *arg)
{
    const gpt_job *const job = arg;
    gpt_trainer t = { .page = job->page, .with = job->with, .own = job->page->own, .home = comm, .comm = comm,
                      .is_terminal = isatty(STDOUT_FILENO) };
    int code = gpt_join(&t, comm) ? gpt_failed(&t) : 0;

    if (!code && job->with->width % job->with->heads)
        code = gpt_refuse(&t, "a width of %d cannot be divided by %d heads", job->with->width, job->with->heads);
    if (!code) code = gpt_load(&t);
    if (!code && !gpt_is_countable(&t))
        code = gpt_refuse(&t, "batches of %d sequences of %d letters are more than this model can count", t.with->batch,
                          t.with->context);
    if (!code) {
        const size_t every = ((size_t)job->with->every + 2) * sizeof(double);

        t.losses = gpt_bytes(&t, GPT_OTHER, (size_t)job->with->steps * sizeof(double));
        t.said[0] = gpt_bytes(&t, GPT_OTHER, every);
        t.said[1] = gpt_bytes(&t, GPT_OTHER, every);
        t.heard = gpt_bytes(&t, GPT_OTHER, every);
        if (job->with->timeline) t.events = gpt_bytes(&t, GPT_OTHER, GPT_MOST_EVENTS * sizeof *t.events);
        code = t.losses && t.said[0] && t.said[1] && t.heard ? job->page->train(&t) : gpt_failed(&t);
    }
    coll_request_free(t.request);
    coll_free(t.news);
    if (t.comm != t.home) coll_free(t.comm);
    while (t.rooms) {
        gpt_room *const room = t.rooms;

        t.rooms = room->next;
        free(room);
    }
    return code;
}

/* The value of one option, or a sentence and the end: here there are no ranks yet. */
static inline void gpt_set(const gpt_page *page, const gpt_row *row, const char *text)
{
    char *end;
    const double value = strtod(text, &end);
    const bool is_number = end != text && !*end && value >= row->least && value <= row->most;

    if (row->text) { *row->text = text; return; }
    if (row->names) {
        const size_t length = strlen(text);
        const char *word = row->names;

        for (int i = 0; *word; i++) {
            const size_t longer = strcspn(word, " ");

            if (longer == length && !strncmp(word, text, length)) { *row->whole = i; return; }
            word += longer + (word[longer] == ' ');
        }
        fprintf(stderr, "%s: --%s is one of: %s; not '%s'\n", page->name, row->name, row->names, text);
        exit(2);
    }
    if (!is_number || (row->whole && value != floor(value))) {
        fprintf(stderr, "%s: --%s needs a %s from %g to %.10g, not '%s'\n", page->name, row->name,
                row->whole ? "whole number" : "number", row->least, row->most, text);
        exit(2);
    }
    if (row->whole) *row->whole = (int)value;
    else *row->real = value;
}

static inline void gpt_help(const gpt_page *page, const gpt_row *const *rows, int count)
{
    printf("%s - %s\nusage: %s [options]        as one rank, or as many as coll-run starts\n", page->name, page->about,
           page->name);
    for (int i = 0; i < count; i++) {
        printf("  --%-12s %s", rows[i]->name, rows[i]->help);
        if (rows[i]->names) printf(": %s", rows[i]->names);
        if (rows[i]->whole && !rows[i]->names && rows[i]->most > 1) printf(" (%d)", *rows[i]->whole);
        if (rows[i]->real) printf(" (%g)", *rows[i]->real);
        putchar('\n');
    }
}

/* All rows take a value, but for those that are 0 or 1. */
static inline void gpt_parse(int argc, char **argv, const gpt_page *page, const gpt_row *common, int common_count)
{
    enum { MOST = 64 };
    const gpt_row *rows[MOST];
    struct option names[MOST + 2];
    int count = 0, at;

    for (int i = 0; i < common_count; i++) rows[count++] = &common[i];
    for (int i = 0; i < page->row_count && count < MOST; i++) rows[count++] = &page->rows[i];
    for (int i = 0; i < count; i++) {
        const bool is_switch = rows[i]->whole && !rows[i]->names && rows[i]->most <= 1;
        names[i] = (struct option){ rows[i]->name, is_switch ? no_argument : required_argument, NULL, 256 + i };
    }
    names[count] = (struct option){ "help", no_argument, NULL, 'h' };
    names[count + 1] = (struct option){ 0 };
    while ((at = getopt_long(argc, argv, "t:h", names, NULL)) != -1) {
        if (at == 'h') gpt_help(page, rows, count), exit(0);
        if (at == '?') exit(2);                      /* getopt_long has said why */
        gpt_set(page, at == 't' ? rows[0] : rows[at - 256], optarg ? optarg : "1");
    }
    if (optind == argc) return;
    fprintf(stderr, "%s: no argument like '%s' is expected\n", page->name, argv[optind]);
    exit(2);
}

static inline int gpt_main(int argc, char **argv, const gpt_page *page)
{
    const char *const threads = getenv("COLL_THREADS");
    gpt_options o = { .threads = threads && atoi(threads) > 1 ? atoi(threads) : 0, .layers = 2, .width = 96, .heads = 4,
                      .context = 64, .batch = 16, .steps = 600, .seed = 1, .every = 10, .check = 100, .rate = 3e-3 };
    const gpt_row common[] = {
        { "threads", "ranks in this process; 0: it is one", &o.threads, 0, 1024, NULL, NULL, NULL },
        { "steps", "batches to learn from", &o.steps, 1, 1e7, NULL, NULL, NULL },
        { "batch", "sequences a step, over all ranks", &o.batch, 1, 1e6, NULL, NULL, NULL },
        { "layers", "blocks", &o.layers, 1, GPT_MOST_LAYERS, NULL, NULL, NULL },
        { "width", "numbers a letter is turned into", &o.width, 1, 4096, NULL, NULL, NULL },
        { "heads", "of attention", &o.heads, 1, 256, NULL, NULL, NULL },
        { "context", "letters of a sequence", &o.context, 1, 4096, NULL, NULL, NULL },
        { "rate", "learning rate", NULL, 0, 1, NULL, &o.rate, NULL },
        { "seed", "of the first weights and of every shuffle", &o.seed, 0, 1e9, NULL, NULL, NULL },
        { "data", "the text (examples/data/pride-and-prejudice.txt)", NULL, 0, 0, NULL, NULL, &o.data },
        { "letters", "use so many of its letters; 0: all", &o.letters, 0, 1e9, NULL, NULL, NULL },
        { "every", "steps between two looks at the loss", &o.every, 1, 1e6, NULL, NULL, NULL },
        { "check", "steps between two looks at all ranks' weights; 0: at the end", &o.check, 0, 1e7, NULL, NULL, NULL },
        { "sample", "letters to write at the end", &o.sample, 0, 1e6, NULL, NULL, NULL },
        { "log", "folder for LABEL.loss.csv and LABEL.ranks.csv", NULL, 0, 0, NULL, NULL, &o.log },
        { "label", "their name (that of the page)", NULL, 0, 0, NULL, NULL, &o.label },
        { "timeline", "file for what went on when, for chrome://tracing", NULL, 0, 0, NULL, NULL, &o.timeline },
        { "json", "the result as one line of JSON", &o.is_json, 0, 1, NULL, NULL, NULL },
    };
    gpt_job job = { page, &o };
    coll_comm *comm;

    gpt_parse(argc, argv, page, common, (int)(sizeof common / sizeof *common));
    if (o.threads) {
        const int code = coll_spawn(o.threads, gpt_rank, &job, NULL);
        return code < 0 ? 1 : code;
    }
    if (coll_init(&comm, NULL)) return 1;
    const int code = gpt_rank(comm, &job);
    coll_free(comm);
    return code;
}

#endif /* GPT_TRAINER_H */
