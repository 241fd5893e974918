/* coll_flight_recorder.h - the flight recorder: the last operations of each communicator, and how they are written when it fails.
 *
 * An operation takes the next entry of a ring when it is launched, and completes it when it ends.  Blocking calls that complete
 * at once are not recorded: reading the clock takes longer than some of them.  They count in the sequence, and one that waits, or
 * fails, is recorded like any other. */
#ifndef COLL_FLIGHT_RECORDER_H
#define COLL_FLIGHT_RECORDER_H

typedef void coll__dump_fn(void *context, const char *line);

#if COLL__HAS_RECORDER

enum { COLL__RECORD_NAME = 24, COLL__RECORDED_MOST = 1024 };

typedef struct coll__record {
    uint64_t      number;                         /* counted from 1; 0: none yet                              */
    int64_t       began, ended;                   /* ended 0: not yet                                         */
    coll_status   status;
    unsigned char head[COLL_HEAD_LENGTH];
    char          name[COLL__RECORD_NAME];
} coll__record;

typedef struct coll__recorder {
    uint64_t     count;
    coll__record ring[COLL__RECORDS];
} coll__recorder;

/* For a communicator.  NULL: nothing is recorded, because large simulated worlds would need too much memory. */
static coll__recorder *coll__recorder_new(const coll__session *session)
{
    const bool is_recorded = !session->transport->now || session->size <= COLL__RECORDED_MOST;
    return is_recorded ? (coll__recorder *)coll__take_zeros(coll__like(session), 1, sizeof(coll__recorder)) : NULL;
}

/* A request is launched; its head is set. */
static void coll__record_begin(coll_request *r)
{
    coll__recorder *recorder = (coll__recorder *)r->comm->recorder;

    if (!recorder) return;
    r->record = ++recorder->count;
    coll__record *at = &recorder->ring[r->record % COLL__RECORDS];
    at->number = r->record;
    at->began = coll__clock(r->comm->session);
    at->ended = 0;
    at->status = COLL_PENDING;
    at->name[0] = '\0';
    if (r->call.name) coll__print(at->name, sizeof at->name, "%s", r->call.name);
    memcpy(at->head, r->head, COLL_HEAD_LENGTH);
}

static void coll__record_end(const coll_request *r, coll_status status)
{
    coll__recorder *recorder = (coll__recorder *)r->comm->recorder;
    coll__record *at = recorder ? &recorder->ring[r->record % COLL__RECORDS] : NULL;

    if (!at || r->record == 0 || at->number != r->record) return;         /* its entry was reused             */
    at->ended = coll__clock(r->comm->session);
    at->status = status;
}

/* The oldest entry; there are recorder->count - first + 1. */
static uint64_t coll__record_first(const coll__recorder *recorder)
{
    return recorder->count >= COLL__RECORDS ? recorder->count - COLL__RECORDS + 1 : 1;
}

/* Has this rank made another call of the number of `theirs`, in which a rank waits?  The thread is inside. */
static bool coll__recorded_disagrees(coll_failure *failure, const coll__session *session, const unsigned char *theirs, int rank)
{
    for (const coll_comm *comm = session ? session->comms : NULL; comm; comm = comm->next) {
        const coll__recorder *recorder = (const coll__recorder *)comm->recorder;
        const bool is_theirs = recorder && !comm->extension && coll__rank_here(comm, rank) != COLL_RANK_NONE;
        for (int i = 0; is_theirs && i < COLL__RECORDS; i++)
            if (coll__heads_disagree(recorder->ring[i].head, theirs))
                return coll__failed_mismatch(failure, theirs, rank, recorder->ring[i].head, session->rank) < 0;
    }
    return false;
}

/* ---- >>text ---- */

static void coll__dump_text(const coll_comm *comm, coll__dump_fn *write, void *context)
{
    const coll__session *session = comm->session;
    const coll__recorder *recorder = (const coll__recorder *)comm->recorder;
    const int64_t now = coll__clock(session);
    char line[640], what[COLL__CALL_ROOM];

    coll__print(line, sizeof line, "rank %d of %d (rank %d of the job, pid %ld, over %s): %u collectives, %s", comm->rank,
                comm->size, session->rank, (long)getpid(), session->transport->name, (unsigned)comm->sequence,
                session->failure.status == COLL_OK ? "no failure" : session->failure.text);
    write(context, line);
    for (uint64_t n = recorder ? coll__record_first(recorder) : 1; recorder && n <= recorder->count; n++) {
        const coll__record *at = &recorder->ring[n % COLL__RECORDS];
        const double ago = (double)(now - at->began) * 1e-6, took = (double)(at->ended - at->began) * 1e-6;
        const char *const mark = *at->name ? "\"" : "";
        coll__head_describe(at->head, what, sizeof what);
        coll__print(line, sizeof line, "  %10.3f ms ago  %s%s%s%s%s: ", ago, what, *mark ? " " : "", mark, at->name, mark);
        if (at->ended) coll__append(line, sizeof line, "%s after %.3f ms", coll_status_text(at->status), took);
        else coll__append(line, sizeof line, "still running");
        write(context, line);
    }
}

/* ---- >>JSON ---- */

static void coll__json_text(FILE *file, const char *text)
{
    fputc('"', file);
    for (const unsigned char *c = (const unsigned char *)text; *c; c++) {
        if (*c == '"' || *c == '\\') fprintf(file, "\\%c", *c);
        else if (*c < 32 || *c > 126) fprintf(file, "\\u%04x", *c);
        else fputc(*c, file);
    }
    fputc('"', file);
}

/* Times of operations are in ms before `now`. */
static void coll__json_record(FILE *file, const coll__record *at, int64_t now)
{
    const coll_kind kind = (coll_kind)at->head[12];
    const coll_type type = (coll_type)coll__get32(at->head + 16);
    char text[40], flags[COLL__CALL_ROOM] = "";

    fprintf(file, "{\"kind\": \"%s\", \"sequence\": %u, \"count\": %llu, \"type\": ", coll_kind_name(kind),
            (unsigned)coll__get32(at->head + 8), (unsigned long long)coll__head_count(at->head));
    coll__json_text(file, type ? coll__type_text(type, text, sizeof text) : "");
    fprintf(file, ", \"op\": \"%s\", \"root\": %d, \"peer\": %d, \"name\": ",
            coll__kind_reduces(kind) ? coll_op_name((coll_op)(at->head[13] & 15)) : "",
            coll__kind_has_root(kind) ? coll__head_root(at->head) : -1,
            coll__kind_is_message(kind) ? (int)coll__get32(at->head + 20) : -1);
    coll__json_text(file, at->name);
    coll__append_options(flags, sizeof flags, coll__head_options(at->head), "|");
    fprintf(file, ", \"prepared\": %u, \"flags\": \"%s\"", (unsigned)coll__get32(at->head + 4) & COLL__PREPARED_MOST, flags);
    fprintf(file, ", \"began_ms_ago\": %lld.%03d", (long long)((now - at->began) / COLL__MS),
            (int)((now - at->began) / 1000 % 1000));
    if (at->ended) fprintf(file, ", \"took_us\": %lld", (long long)((at->ended - at->began) / 1000));
    fprintf(file, ", \"status\": %d}", (int)at->status);
}

static void coll__json_comm(FILE *file, const coll_comm *comm, int64_t now)
{
    const coll__recorder *recorder = (const coll__recorder *)comm->recorder;

    fprintf(file, "    {\"id\": %llu, \"rank\": %d, \"size\": %d, \"sequence\": %u, \"error\": ",
            (unsigned long long)comm->id, comm->rank, comm->size, (unsigned)comm->sequence);
    coll__json_text(file, coll__sentence_of(comm));
    fprintf(file, ",\n     \"operations\": [");
    for (uint64_t n = recorder ? coll__record_first(recorder) : 1, first = n; recorder && n <= recorder->count; n++) {
        fprintf(file, n == first ? "\n      " : ",\n      ");
        coll__json_record(file, &recorder->ring[n % COLL__RECORDS], now);
    }
    fprintf(file, "]}");
}

static void coll__dump_json(const coll__session *session, FILE *file)
{
    const int64_t now = coll__clock(session);
    char host[64] = "";

    (void)gethostname(host, sizeof host - 1);
    fprintf(file, "{\n  \"rank\": %d, \"size\": %d, \"pid\": %ld, \"host\": ", session->rank, session->size, (long)getpid());
    coll__json_text(file, host);
    fprintf(file, ", \"transport\": \"%s\", \"time\": %lld,\n  \"status\": %d, \"failed_rank\": %d, \"cause\": ",
            session->transport->name, (long long)time(NULL), (int)session->failure.status, session->failure.rank);
    coll__json_text(file, session->failure.text);
    fprintf(file, ",\n  \"communicators\": [\n");
    for (const coll_comm *comm = session->comms; comm; comm = comm->next) {
        coll__json_comm(file, comm, now);
        fprintf(file, comm->next ? ",\n" : "\n");
    }
    fprintf(file, "  ]\n}\n");
}

/* Writes into the configured directory; the file has its name only when it is complete.  A world that coll_shrink has created has
 * separate files. */
static void coll__dump_failure(const coll__session *session)
{
    char path[320], part[340], why[100];
    sigset_t before, pending;

    if (!*session->dump) return;
    coll__print(path, sizeof path, "%s/coll-%d", session->dump, session->rank);
    if (session->generation > 0) coll__append(path, sizeof path, ".%d", session->generation);
    coll__append(path, sizeof path, ".json");
    coll__print(part, sizeof part, "%s.part", path);
    coll__signals_hold(&before, &pending);
    FILE *file = fopen(part, "we");
    if (file) coll__dump_json(session, file);
    const bool is_written = file && !ferror(file), is_kept = file && fclose(file) == 0 && is_written && rename(part, path) == 0;
    coll__print(why, sizeof why, "%s", strerror(errno));
    if (file && !is_kept) (void)remove(part);
    coll__signals_drop(&before, &pending);
    if (is_kept) return;
    coll__say(&session->log, COLL_LOG_WARN, "rank %d cannot write what it was doing to %s: %s", session->rank, path, why);
}

#else

static void *coll__recorder_new(const coll__session *session) { (void)session; return NULL; }
static void coll__record_begin(coll_request *r) { (void)r; }
static void coll__record_end(const coll_request *r, coll_status status) { (void)r, (void)status; }
static void coll__dump_failure(const coll__session *session) { (void)session; }
#define coll__recorded_disagrees(failure, session, theirs, rank) ((void)(failure), (void)(session), false)

static void coll__dump_text(const coll_comm *comm, coll__dump_fn *write, void *context)
{
    char line[160];

    coll__print(line, sizeof line, "rank %d of %d: nothing is recorded, for this program was compiled with " COLL__PROFILE,
                comm->rank, comm->size);
    write(context, *line ? line : "nothing is recorded: " COLL__PROFILE);
}

#endif

static coll_status coll__recorder_settle(const coll_config *c)
{
    if (COLL__HAS_RECORDER || !c->dump || !*c->dump) return COLL_OK;
    return coll__start_failed(COLL_ERR_UNSUPPORTED, "dump is \"%.80s\", but this program was compiled with " COLL__PROFILE,
                              c->dump);
}

/* ---- >>where it goes ---- */

#if COLL__HAS_OS
static void coll__dump_line(void *context, const char *line)
{
    sigset_t before, pending;

    (void)context;
    coll__signals_hold(&before, &pending);
    fprintf(stderr, "%s\n", line);
    coll__signals_drop(&before, &pending);
}
#else
static void coll__dump_line(void *context, const char *line) { (void)context, (void)line; }
#endif

#endif /* COLL_FLIGHT_RECORDER_H */
