/* coll_config_defaults.h - the configuration of a communicator: from the caller, the environment, the launcher. */
#ifndef COLL_CONFIG_DEFAULTS_H
#define COLL_CONFIG_DEFAULTS_H

/* ---- >>rank and size ---- */

/* coll-run counts ranks, and sets how many of them each process creates.  A process that creates another number would take ranks
 * of other processes, or act as if it had all ranks. */
static coll_status coll__settle_threads(const coll__settings *s)
{
    int said = s->count;

    if (s->launch.size == 1 || !coll__counts_ranks(s->launch.by)) return COLL_OK;
    if (!coll__environment_int("COLL_THREADS", 1, COLL__SIZE_MOST, &said)) return COLL_ERR_ARGUMENT;
    if (said == s->count) return COLL_OK;
    return coll__start_failed(COLL_ERR_ARGUMENT, "this process makes %d rank%s, but was started to make %d (COLL_THREADS=%d): "
                              "start it with coll-run --threads %d, or let it make %d", s->count, s->count == 1 ? "" : "s", said,
                              said, s->count, said);
}

static coll_status coll__settle_rank(coll__settings *s)
{
    coll_config *c = &s->config;

    s->source = "the configuration";
    if (c->size == 0 && c->rank != 0)
        return coll__start_failed(COLL_ERR_ARGUMENT, "rank %d is set but size is 0: set both", c->rank);
    if (c->size == 0) {
        const coll_status status = coll__launch_read(&s->launch, s->count);
        if (status < 0) return status;
        if (coll__settle_threads(s) < 0) return COLL_ERR_ARGUMENT;
        const int64_t size = coll__ranks_said(s->launch.by, s->launch.size, s->count);
        if (size > COLL__SIZE_MOST)
            return coll__start_failed(COLL_ERR_ARGUMENT, "%s=%d processes of %d ranks make more than %d ranks",
                                      s->launch.by->size, s->launch.size, s->count, COLL__SIZE_MOST);
        c->rank = coll__counts_ranks(s->launch.by) ? s->launch.rank : s->launch.rank * s->count;
        c->size = (int)size;
        s->source = s->launch.source;
    }
    if (c->size == 1 && c->rank == 0) c->size = s->count;
    if (c->size < 0 || c->size > COLL__SIZE_MOST)
        return coll__start_failed(COLL_ERR_ARGUMENT, "size %d is out of range: 1 to %d", c->size, COLL__SIZE_MOST);
    if (c->rank < 0 || c->rank >= c->size)
        return coll__start_failed(COLL_ERR_ARGUMENT, "rank %d is out of range for %d ranks", c->rank, c->size);
    if (s->count <= c->size - c->rank) return COLL_OK;
    return coll__start_failed(COLL_ERR_ARGUMENT, "this process has rank %d of %d (from %s), but brings %d ranks: the rank of a "
                              "process is that of its first, and the size is the sum over all processes", c->rank, c->size,
                              s->source, s->count);
}

/* ---- >>settings ---- */

static const char coll__log_words[] = "none, error, warn, info";

/* The configured level, or that of COLL_DEBUG, or the default; 0: COLL_DEBUG is invalid. */
static coll_log_level coll__log_level(const coll_config *config)
{
    const char *const text = coll__environment("COLL_DEBUG");
    const int number = text ? coll__word_number(coll__log_words, text) : COLL_LOG_WARN;

    if (config && config->log_level != 0) return config->log_level;
    return number < 0 ? (coll_log_level)0 : number == 0 ? COLL_LOG_NONE : (coll_log_level)number;
}

#if COLL__HAS_ENV && COLL__HAS_CHOICE

/* COLL_ALGORITHM=allreduce=ring,alltoall=circulant:4 */
static coll_status coll__settle_algorithms(coll__settings *s)
{
    const char *text = coll__variable("COLL_ALGORITHM");

    if (!text) return COLL_OK;
    coll__print(s->forced_text, sizeof s->forced_text, "%s", text);
    if (strlen(text) >= sizeof s->forced_text)
        return coll__start_failed(COLL_ERR_ARGUMENT, "COLL_ALGORITHM is longer than %zu", sizeof s->forced_text - 1);
    for (char *at = s->forced_text, *next; at && *at; at = next) {
        int kind = COLL_BARRIER;
        next = strchr(at, ',');
        if (next) *next++ = '\0';
        char *name = strchr(at, '=');
        if (name) *name++ = '\0';
        while (name && kind < COLL__KIND_COUNT && strcmp(at, coll_kind_name((coll_kind)kind))) kind++;
        if (!name || kind == COLL__KIND_COUNT)
            return coll__start_failed(COLL_ERR_ARGUMENT, "COLL_ALGORITHM: \"%.40s\" is not an operation and its algorithm, as in "
                                      "allreduce=ring", at);
        const char *number = strchr(name, ':');
        const size_t length = number ? (size_t)(number - name) : strlen(name);
        char known[120] = "";
        bool is_known = false;
        for (int i = 0; i < COLL__ALGORITHM_COUNT; i++) {
            const coll__algorithm *a = &coll__algorithms[i];
            if (a->kind != (coll_kind)kind) continue;
            is_known = is_known || (strlen(a->name) == length && !strncmp(a->name, name, length));
            coll__append(known, sizeof known, "%s%s", *known ? ", " : "", a->name);
        }
        if (!is_known)
            return coll__start_failed(COLL_ERR_ARGUMENT, "COLL_ALGORITHM: %s has no algorithm \"%.40s\", there is: %s",
                                      coll_kind_name((coll_kind)kind), name, known);
        s->forced_at[kind] = 1 + (int)(name - s->forced_text);
    }
    return COLL_OK;
}

#else

static coll_status coll__settle_algorithms(const coll__settings *s)
{
    (void)s;
    if (!coll__variable("COLL_ALGORITHM")) return COLL_OK;
    return coll__start_failed(COLL_ERR_UNSUPPORTED, "COLL_ALGORITHM, but this program was compiled with COLL_NO_CHOICE");
}

#endif

#if COLL__HAS_ENV && COLL__HAS_TEXT && COLL__IS_WHOLE && !defined(COLL_PORTABLE)

#if !defined(_GNU_SOURCE)
extern char **environ;
#endif

/* What is read here and by coll-run, without COLL_. */
static const char coll__variables[] = "RANK SIZE ADDR HOSTS NETWORK PORTS LOCAL_RANK LOCAL_SIZE THREADS WORLD WORLD_SIZE "
    "TRANSPORT SIM MPI KEY KEY_FILE SECURITY IO SITE SHARE SHM_COLLECTIVES LANES BACKGROUND ALGORITHM TUNING SPIN_US "
    "START_TIMEOUT_MS STALL_TIMEOUT_MS LIVENESS_TIMEOUT_MS DUMP DEBUG RSH ELASTIC JOIN JOINED";

/* How the names differ: 0, not at all; 1: by one letter, or by two that are exchanged; 2: by more. */
static int coll__misspells(const char *a, size_t n, const char *b, size_t m)
{
    while (n && m && *a == *b) a++, b++, n--, m--;
    while (n && m && a[n - 1] == b[m - 1]) n--, m--;
    if (n + m == 0) return 0;
    return (n < 2 && m < 2) || (n == 2 && m == 2 && a[0] == b[1] && a[1] == b[0]) ? 1 : 2;
}

/* A variable that is nearly one of ours is a typing error, and would be ignored in silence. */
static void coll__warn_of_variables(const coll__log *log)
{
    for (char **at = environ; at && *at; at++) {
        const char *const name = *at + 5, *meant = NULL;
        const size_t length = strncmp(*at, "COLL_", 5) ? 0 : strcspn(name, "=");
        int least = length > 2 ? 2 : 0;
        for (const char *one = coll__variables; *one && least; one += strspn(one, " ")) {
            const size_t room = strcspn(one, " ");
            const int differs = coll__misspells(name, length, one, room);
            if (differs < least) least = differs, meant = one;
            one += room;
        }
        if (least == 1)
            coll__say(log, COLL_LOG_WARN, "COLL_%.*s is not read: did you mean COLL_%.*s?", (int)length, name,
                      (int)strcspn(meant, " "), meant);
    }
}

#else

static inline void coll__warn_of_variables(const coll__log *log) { (void)log; }

#endif

/* Logs a failed start, for a program that ignores the status.  Returns the status. */
static coll_status coll__started(coll_status status, const coll_config *config)
{
    coll_log_level level = coll__log_level(config);

    if (level == 0) level = COLL_LOG_ERROR;
    const coll__log log = { level, config ? config->log : NULL, config ? config->log_context : NULL };
    coll__warn_of_variables(&log);
    if (status < 0) coll__say(&log, COLL_LOG_ERROR, "%s", coll__start_error);
    return status;
}

/* If compiler flags change the arithmetic of a program, its results differ from those of other ranks. */
static coll_status coll__settle_arithmetic(coll__settings *s)
{
    char says[160];

    s->arithmetic = coll__arithmetic() | COLL__LACKS | COLL__OTHER_SIZES;
    if (!(s->arithmetic & COLL__COMPILED)) return COLL_OK;
    coll__arithmetic_text(s->arithmetic & COLL__COMPILED, says, sizeof says);
    return coll__start_failed(COLL_ERR_UNSUPPORTED, "this copy of coll.h is compiled with flags that change the bits of results: "
                              "it %s; compile it without -ffast-math, parts of it, and -ffp-contract=fast", says);
}

/* Not on a board: the check would cost 100 bytes of program. */
static bool coll__settle_reserved(const coll_config *c)
{
    const struct { const char *name; int set; } parts[] = {
        { "coll_config", COLL__RESERVED_SET(c) }, { "coll_tcp", COLL__RESERVED_SET(&c->tcp) },
        { "coll_sim", c->sim ? COLL__RESERVED_SET(c->sim) : -1 }
    };

    for (size_t i = 0; COLL__HAS_OS && i < sizeof parts / sizeof *parts; i++) {
        if (parts[i].set < 0) continue;
        coll__start_failed(COLL_ERR_ARGUMENT, "reserved[%d] of the %s is not 0: set all members that you do not use to 0",
                           parts[i].set, parts[i].name);
        return false;
    }
    return true;
}

static bool coll__settle_common(coll_config *c)
{
    if ((c->log_level = coll__log_level(c)) == 0) {
        coll__start_failed(COLL_ERR_ARGUMENT, "COLL_DEBUG=%.40s is none of %s", coll__variable("COLL_DEBUG"), coll__log_words);
        return false;
    }
    return coll__settle_number(&c->start_timeout_ms, "COLL_START_TIMEOUT_MS", INT_MAX, 60000, "never")
        && coll__settle_number(&c->stall_timeout_ms, "COLL_STALL_TIMEOUT_MS", INT_MAX, 0, "never")
        && coll__settle_number(&c->liveness_timeout_ms, "COLL_LIVENESS_TIMEOUT_MS", INT_MAX, 5000, "never")
        && coll__settle_number(&c->spin_us, "COLL_SPIN_US", 1000000, 0, "none")
        && coll__settle_number(&c->elastic, "COLL_ELASTIC", COLL__ELASTIC_MOST, 0, "none")
        && coll__settle_switch(&c->background, "COLL_BACKGROUND")
        && coll__settle_text(&c->dump, "COLL_DUMP", NULL, false)
        && coll__settle_text(&c->tuning_file, "COLL_TUNING", NULL, false)
        && coll__settle_text(&c->site, "COLL_SITE", NULL, false);
}

/* For `count` ranks of this process, over any transport. */
static coll_status coll__settle(const coll__program *program, coll__settings *s, const coll_config *config, int count)
{
    enum { LIVENESS_LEAST_MS = 50 };
    coll_status status;

    memset(s, 0, sizeof *s);                      /* a compound literal would be long, and on the stack       */
    s->count = count;
    s->processors = coll__processors();
    s->extension = program->extension;
    s->numbers.link = coll__link_default;
    if (config) s->config = *config;
    coll_config *c = &s->config;
    if (!coll__settle_reserved(c)) return COLL_ERR_ARGUMENT;
    if ((status = coll__settle_arithmetic(s)) < 0) return status;
    if ((status = coll__settle_rank(s)) < 0) return status;
    if (!coll__settle_common(c)) return COLL_ERR_ARGUMENT;
    if ((status = coll__settle_algorithms(s)) < 0) return status;
    for (int i = 0; COLL__HAS_TCP && program->transports[i]; i++)
        if (program->transports[i]->settle && !program->transports[i]->settle(c)) return COLL_ERR_ARGUMENT;
    if ((status = coll__recorder_settle(c)) < 0 || (status = coll__background_settle(c)) < 0) return status;
    if (c->liveness_timeout_ms > 0 && c->liveness_timeout_ms < LIVENESS_LEAST_MS) c->liveness_timeout_ms = LIVENESS_LEAST_MS;
    return COLL_OK;
}

#endif /* COLL_CONFIG_DEFAULTS_H */
