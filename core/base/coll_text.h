/* coll_text.h - bounded texts, log lines, asserts, failures.
 *
 * COLL_NO_TEXT leaves out sentences: an error is its status, whose name coll_error returns.  Calls keep their formats, which
 * the compiler checks, but produce no code.  COLL_NO_OS leaves out all texts. */
#ifndef COLL_TEXT_H
#define COLL_TEXT_H

#include "coll_base.h"

#define COLL__PRINTF(text_at, first) __attribute__((format(printf, text_at, first)))

/* ---- >>asserts: internal invariants ----
 *
 * COLL_ASSERT enables them, in tests but not in releases.  They check state changes whose errors would show much later.  Their
 * sentences have the values, for bug reports.  Errors of callers and peers are not asserted: they return a status. */

#if defined(COLL_ASSERT) && !COLL__HAS_TEXT
#define COLL__ASSERT(condition, ...) ((condition) ? (void)0 : abort())
#elif defined(COLL_ASSERT)
#define COLL__ASSERT(condition, ...)                                                                         \
    ((condition) ? (void)0 : coll__assert_failed(__FILE__, __LINE__, __func__, #condition, __VA_ARGS__))

static COLL__UNUSED COLL__PRINTF(5, 6) __attribute__((noreturn, noinline, cold)) void
coll__assert_failed(const char *file, int line, const char *function, const char *condition, const char *format, ...)
{
    char what[256];
    va_list list;

    va_start(list, format);
    vsnprintf(what, sizeof what, format, list);
    va_end(list);
    fprintf(stderr, "coll: internal error at %s:%d, %s: %s does not hold: %s; please report this line\n", file, line, function,
            condition, what);
    abort();
}
#else
#define COLL__ASSERT(condition, ...) ((void)sizeof((condition) ? 1 : 0))
#endif

/* ---- >>log: to the program's hook, or to stderr ---- */

typedef struct coll__log {
    coll_log_level level;
    void (*hook)(void *context, coll_log_level level, const char *line);
    void *context;
} coll__log;

enum { COLL__START_ROOM = 512 };                  /* bytes for the error of a communicator that could not be made */

/* Checks the format; produces no code. */
static inline COLL__UNUSED COLL__PRINTF(1, 2) int coll__unsaid(const char *format, ...) { return (void)format, 0; }

#define COLL__UNSAID(...) ((void)(0 && coll__unsaid(__VA_ARGS__)))

#if COLL__HAS_OS

/* ---- >>text: bounded, always terminated ---- */

static COLL__PRINTF(3, 4) void coll__print(char *text, size_t room, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    vsnprintf(text, room, format, list);
    va_end(list);
}

/* Append to a text. */
static COLL__UNUSED COLL__PRINTF(3, 4) void coll__append(char *text, size_t room, const char *format, ...)
{
    const size_t used = strlen(text);
    va_list list;
    va_start(list, format);
    if (used < room) vsnprintf(text + used, room - used, format, list);
    va_end(list);
}

/* Write `given` to the caller's buffer; returns as snprintf does. */
static COLL__UNUSED int coll__give_text(char *text, size_t room, const char *given) { return snprintf(text, room, "%s", given); }

#else

#define coll__append(text, room, ...) (COLL__UNSAID(__VA_ARGS__), (void)(text), (void)(room))
#define coll__print(text, room, ...) (COLL__UNSAID(__VA_ARGS__), coll__say_nothing(text, room))

static inline void coll__say_nothing(char *text, size_t room) { if (room > 0) *text = '\0'; }
static inline int coll__give_text(char *text, size_t room, const char *given)
{
    coll__say_nothing(text, room);
    return (void)given, 0;
}

#endif

#if COLL__HAS_TEXT

/* ---- >>log: lines ---- */

static void coll__log_line(const char *line)
{
    sigset_t before, pending;

    coll__signals_hold(&before, &pending);
    fprintf(stderr, "coll: %s\n", line);
    coll__signals_drop(&before, &pending);
}

static COLL__UNUSED COLL__PRINTF(3, 4) void coll__say(const coll__log *log, coll_log_level level, const char *format, ...)
{
    char line[512];
    va_list list;

    if (level > log->level) return;
    va_start(list, format);
    vsnprintf(line, sizeof line, format, list);
    va_end(list);
    coll__callback_begin();
    if (log->hook) log->hook(log->context, level, line);
    else coll__log_line(line);
    coll__callback_end();
}

/* ---- >>failure: the first one is kept ---- */

/* Fill *failure, unless it has a status already.  Returns its status. */
static COLL__PRINTF(4, 5) coll_status coll__set_failure(coll_failure *failure, coll_status status, int rank, const char *format,
                                                        ...)
{
    va_list list;

    if (failure->status != COLL_OK) return failure->status;
    failure->rank = rank;
    va_start(list, format);
    vsnprintf(failure->text, sizeof failure->text, format, list);
    va_end(list);
    return failure->status = status;
}

/* ---- >>start: communicators that could not be made ---- */

/* What coll_error(NULL) returns: the last one of this thread. */
static COLL__THREAD_LOCAL char coll__start_error[COLL__START_ROOM];

/* The communicator that it is about, which this thread could not enter; NULL: about none. */
static COLL__THREAD_LOCAL const void *coll__start_comm;

/* Write it; returns the status. */
static COLL__UNUSED COLL__PRINTF(2, 3) coll_status coll__start_failed(coll_status status, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    vsnprintf(coll__start_error, sizeof coll__start_error, format, list);
    coll__start_comm = NULL;
    va_end(list);
    return status;
}

#else

#define coll__say(log, level, ...) (COLL__UNSAID(__VA_ARGS__), (void)(log), (void)(level))
#define coll__set_failure(failure, status, rank, ...) (COLL__UNSAID(__VA_ARGS__), coll__failed_rank(failure, status, rank))
#define coll__start_failed(status, ...) (COLL__UNSAID(__VA_ARGS__), coll__start_status(status))

/* ---- >>failure: the first one is kept ---- */

static COLL__UNUSED coll_status coll__failed_rank(coll_failure *failure, coll_status status, int rank)
{
    if (failure->status != COLL_OK) return failure->status;
    failure->rank = rank;
    return failure->status = status;
}

/* The status whose name coll_error(NULL) returns: only programs that call it link the names. */
static COLL__THREAD_LOCAL coll_status coll__start_last;

static COLL__UNUSED coll_status coll__start_status(coll_status status) { return coll__start_last = status; }
#define coll__start_error (coll__start_last ? coll_status_text(coll__start_last) : "")

#endif

/* ---- >>hashes ---- */

/* 32 bits of a text, by FNV-1a, the same everywhere; with different starts they differ. */
static COLL__UNUSED uint32_t coll__text_hash(const char *text, uint32_t start)
{
    uint32_t h = 2166136261u ^ start;

    for (const unsigned char *c = (const unsigned char *)text; *c; c++) h = (h ^ *c) * 16777619u;
    return h ^ h >> 15;
}

/* A hash of the name of a site; NULL counts as "". */
static COLL__UNUSED uint32_t coll__site_id(const char *name) { return coll__text_hash(name ? name : "", 0); }

/* ---- >>lists ---- */

/* Copy a text, truncated to `room`. */
static COLL__UNUSED void coll__keep_text(char *to, size_t room, const char *text)
{
    size_t n = 0;

    for (; text[n] && n + 1 < room; n++) to[n] = text[n];
    to[n] = '\0';
}

/* Append a set of ranks as ranges: "3, 5-7". */
static COLL__UNUSED void coll__append_ranks(char *text, size_t room, const unsigned char *is_member, int size)
{
    const char *comma = "";

    for (int r = 0; r < size; r++) {
        if (!is_member[r]) continue;
        int last = r;
        while (last + 1 < size && is_member[last + 1]) last++;
        if (last == r) coll__append(text, room, "%s%d", comma, r);
        else coll__append(text, room, "%s%d%s%d", comma, r, last == r + 1 ? ", " : "-", last);
        comma = ", ";
        r = last;
    }
}

#endif /* COLL_TEXT_H */
