/* coll_error_text.h - descriptions of calls, and error sentences.  With COLL_NO_TEXT a sentence is the name of the status. */
#ifndef COLL_ERROR_TEXT_H
#define COLL_ERROR_TEXT_H

#if COLL__HAS_TEXT

/* This thread was kept out: the sentence of its call is its own, for the communicator's is that of the thread inside. */
static inline void coll__sentence_is_ours(const coll_comm *comm) { coll__start_comm = comm; }
static inline bool coll__has_own_sentence(const coll_comm *comm)
{
    return coll__start_comm == comm && comm->session->failure.status == COLL_OK;
}

/* The program may read one sentence while another thread writes the other one. */
static inline const char *coll__sentence_of(const coll_comm *comm)
{
    const char *const sentence = __atomic_load_n(&comm->sentence, __ATOMIC_ACQUIRE);
    return sentence ? sentence : "";
}

static inline void coll__sentence_set(coll_comm *comm, const char *text)
{
    __atomic_store_n(&comm->sentence, text, __ATOMIC_RELEASE);
}

/* ---- >>calls: described by their fingerprints ---- */

/* "f32", "blob of 24 bytes". */
static const char *coll__type_text(coll_type type, char *text, size_t room)
{
    if (type > COLL_BLOB(0)) coll__print(text, room, "blob of %d bytes", type - COLL_BLOB(0));
    else coll__print(text, room, "%s", coll_type_name(type));
    return text;
}

static inline const char *coll__plural(long count) { return count == 1 ? "" : "s"; }

/* "COLL_DETERMINISTIC|scale". */
static void coll__append_options(char *text, size_t room, unsigned options, const char *between)
{
    for (int i = 0; i < COLL__OPTION_COUNT; i++)
        if (options >> i & 1) coll__append(text, room, "%s%s", coll__options[i], options >> i > 1 ? between : "");
}

/* "allreduce #17 of 1024 x f32 (sum)"; prepared: "allreduce #3 (prepared call 2) of ...".  The head is untrusted. */
static void coll__head_describe(const unsigned char *head, char *text, size_t room)
{
    const coll_kind kind = (coll_kind)head[12];
    const unsigned options = coll__head_options(head);
    const int root = coll__head_root(head);
    char type[40];

    coll__print(text, room, "%s", coll_kind_name(kind));
    const unsigned prepared = coll__get32(head + 4) & COLL__PREPARED_MOST;
    if (coll__get32(head + 8) && !coll__kind_is_message(kind)) coll__append(text, room, " #%u", (unsigned)coll__get32(head + 8));
    if (prepared)
        coll__append(text, room, " (prepared call %u%s)", prepared, prepared < COLL__PREPARED_MOST ? "" : " or a later one");
    const bool is_any = coll__kind_is(kind, COLL__PAIRWISE) && coll__head_count(head) == 0;       /* no single pair is meant */
    if (is_any && coll__get32(head + 16))
        coll__append(text, room, " of %s", coll__type_text((coll_type)coll__get32(head + 16), type, sizeof type));
    else if (kind != COLL_BARRIER && coll__get32(head + 16))
        coll__append(text, room, " of %llu x %s", (unsigned long long)coll__head_count(head),
                     coll__type_text((coll_type)coll__get32(head + 16), type, sizeof type));
    if (coll__kind_reduces(kind) && head[14]) coll__append(text, room, " over %s", coll_type_name(head[14]));
    if (coll__kind_reduces(kind)) coll__append(text, room, " (%s)", coll_op_name((coll_op)(head[13] & 15)));
    if (options) coll__append(text, room, " with ");
    coll__append_options(text, room, options, "|");
    if (coll__kind_has_root(kind)) coll__append(text, room, " root %d", root);
    if (coll__kind_is(kind, COLL__SUMMED)) coll__append(text, room, " by counts %08x", (unsigned)root);
    if (kind == COLL_ALLREDUCE_LIST) coll__append(text, room, " of list %08x", (unsigned)root);
    if (coll__kind_is_message(kind) && root >= 0) coll__append(text, room, " with rank %d", root);
    if (coll__kind_is_message(kind) && root == COLL_ANY_SOURCE) coll__append(text, room, " with any rank");
}

/* ---- >>mismatch ---- */

/* Fill *failure: the received head differs from the expected one. */
static coll_status coll__failed_mismatch(coll_failure *failure, const unsigned char *ours, int me,
                                         const unsigned char *theirs, int peer)
{
    const unsigned options[] = { coll__head_options(ours), coll__head_options(theirs) }, both = options[0] & options[1];
    unsigned char heads[2][COLL_HEAD_LENGTH];
    char mine[COLL__CALL_ROOM], other[COLL__CALL_ROOM];

    memcpy(heads[0], ours, COLL_HEAD_LENGTH);
    memcpy(heads[1], theirs, COLL_HEAD_LENGTH);
    for (int i = 0; i < 2; i++) {                 /* omit options that both have                              */
        if (options[i] & COLL__HASHED) memset(heads[i] + 22, 0, 2);
        heads[i][13] = (unsigned char)(heads[i][13] & ~(both >> 8 << 4));
        heads[i][15] = (unsigned char)(heads[i][15] & ~both);
    }
    coll__head_describe(heads[0], mine, sizeof mine);
    coll__head_describe(heads[1], other, sizeof other);
    if (!strcmp(mine, other) && both & COLL__HASHED && memcmp(ours + 22, theirs + 22, 2) != 0) {
        coll__append(mine, sizeof mine, " with ");
        coll__append_options(mine, sizeof mine, both & COLL__HASHED, "|");
        coll__append(other, sizeof other, " with another ");
        coll__append_options(other, sizeof other, both & COLL__HASHED, " or ");
    }
    if (coll__get16(ours) == COLL__PARTED_MAGIC)
        return coll__set_failure(failure, COLL_ERR_MISMATCH, peer,
                                 "rank %d and rank %d have made %u collectives each, but not the "
                                 "same: compare roots and counts of broadcasts, reduces, gathers, scatters, scans", me, peer,
                                 (unsigned)coll__get32(ours + 8));
    if (coll__get16(theirs) != COLL__MAGIC)
        return coll__set_failure(failure, COLL_ERR_PROTOCOL, peer, "rank %d got bytes from rank %d that are no message of ours",
                                 me, peer);
    if (!strcmp(mine, other) && memcmp(ours + 30, theirs + 30, 2) != 0)
        return coll__set_failure(failure, COLL_ERR_MISMATCH, peer, "rank %d and rank %d called %s, but before it different ones: "
                                 "compare roots and counts of earlier broadcasts, reduces, gathers, scatters, scans", me,
                                 peer, mine);
    if (!strcmp(mine, other))
        return coll__set_failure(failure, COLL_ERR_PROTOCOL, peer, "rank %d is in step %u of %s, rank %d in step %u", me,
                                 (unsigned)coll__get16(ours + 2), mine, peer, (unsigned)coll__get16(theirs + 2));
    return coll__set_failure(failure, COLL_ERR_MISMATCH, peer, "rank %d called %s, but rank %d called %s", me, mine, peer, other);
}

/* ---- >>errors: the sentence ---- */

/* "rank 2 of 4"; in a derived communicator also the rank of the job. */
static void coll__print_self(const coll_comm *comm, char *text)
{
    coll__print(text, COLL__SENTENCE_ROOM, "rank %d of %d", comm->rank, comm->size);
    if (comm->members) coll__append(text, COLL__SENTENCE_ROOM, " (rank %d of the job)", comm->session->rank);
    coll__append(text, COLL__SENTENCE_ROOM, ": ");
}

/* Copy the sentence of another communicator. */
static void coll__sentence_copy(coll_comm *comm, const coll_comm *from)
{
    coll__print(comm->error, sizeof comm->error, "%s", coll__sentence_of(from));
    coll__sentence_set(comm, comm->error);
}

/* Write the sentence that coll_error returns; `call` may be NULL. */
static COLL__PRINTF(4, 5) coll_status coll__explain_error(coll_comm *comm, const coll_call *call, coll_status status,
                                                          const char *format, ...)
{
    va_list list;

    coll__start_comm = NULL;
    coll__print_self(comm, comm->error);
    if (call) coll__append(comm->error, sizeof comm->error, "%s", coll_kind_name(call->kind));
    if (call && call->name) coll__append(comm->error, sizeof comm->error, " \"%.64s\"", call->name);
    if (call) coll__append(comm->error, sizeof comm->error, ": ");
    const size_t used = strlen(comm->error);
    va_start(list, format);
    vsnprintf(comm->error + used, sizeof comm->error - used, format, list);
    va_end(list);
    coll__sentence_set(comm, comm->error);
    return status;
}

/* Write the sentence of a communicator that has failed. */
static void coll__print_failure(coll_comm *comm)
{
    const coll__session *session = comm->session;
    const bool is_message = comm->waiting && coll__kind_is_message(comm->waiting->call.kind);
    const coll_request *running = is_message || !comm->main.queue ? comm->waiting : comm->main.queue;
    char what[COLL__CALL_ROOM], *const text = comm->ending;

    if (running) coll__head_describe(running->head, what, sizeof what);
    coll__print_self(comm, text);
    if (running) coll__append(text, COLL__SENTENCE_ROOM, "%s", what);
    if (running && running->call.name) coll__append(text, COLL__SENTENCE_ROOM, " \"%.64s\"", running->call.name);
    coll__append(text, COLL__SENTENCE_ROOM, "%s%s", running ? ": " : "", session->failure.text);
    coll__sentence_set(comm, text);
}

#else

static inline const char *coll__plural(long count) { return count == 1 ? "" : "s"; }

static const char *coll__type_text(coll_type type, char *text, size_t room)
{
    (void)text, (void)room;
    return coll_type_name(type);
}

static void coll__append_options(char *text, size_t room, unsigned options, const char *between)
{
    (void)text, (void)room, (void)options, (void)between;
}

static void coll__head_describe(const unsigned char *head, char *text, size_t room)
{
    (void)head;
    if (room > 0) *text = '\0';
}

static coll_status coll__failed_mismatch(coll_failure *failure, const unsigned char *ours, int me, const unsigned char *theirs,
                                         int peer)
{
    const bool is_ours = coll__get16(theirs) == coll__get16(ours) && memcmp(ours + 8, theirs + 8, COLL_HEAD_LENGTH - 8) != 0;

    (void)me;
    return coll__set_failure(failure, is_ours ? COLL_ERR_MISMATCH : COLL_ERR_PROTOCOL, peer, " ");
}

static inline void coll__sentence_is_ours(const coll_comm *comm) { (void)comm; }
static inline bool coll__has_own_sentence(const coll_comm *comm) { return (void)comm, false; }
static inline const char *coll__sentence_of(const coll_comm *comm) { return comm->told ? coll_status_text(comm->told) : ""; }
static void coll__sentence_copy(coll_comm *comm, const coll_comm *from) { comm->told = from->told; }
static coll_status coll__explain_status(coll_comm *comm, coll_status status) { return comm->told = status; }

#define coll__explain_error(comm, call, status, ...) \
    (COLL__UNSAID(__VA_ARGS__), (void)(call), coll__explain_status(comm, status))

static void coll__print_failure(coll_comm *comm) { (void)coll__explain_status(comm, comm->session->failure.status); }

#endif

/* Do two ranks report different calls under one number?  A report has the call in which a rank waits, and the one that it ended
 * last: a rank that only sends ends a call in which others wait. */
static bool coll__reports_disagree(coll_failure *failure, const unsigned char *ours, int me,
                                   const unsigned char *theirs, int peer)
{
    for (int pair = 0; pair < 4; pair++) {
        const unsigned char *const mine = ours + (pair & 1 ? COLL_HEAD_LENGTH : 0);
        const unsigned char *const other = theirs + (pair & 2 ? COLL_HEAD_LENGTH : 0);
        if (!coll__heads_disagree(mine, other)) continue;
        coll__failed_mismatch(failure, other, peer, mine, me);
        return true;
    }
    return false;
}

/* A time limit names a rank that is late.  It is not the cause if it waits in the same call itself: then no rank is named. */
static void coll__excuse(coll_failure *failure, const unsigned char *its_report, const unsigned char *report)
{
    if (failure->status != COLL_ERR_TIMEOUT || coll__get32(report + 8) == 0 || memcmp(its_report + 4, report + 4, 8) != 0) return;
    coll__append(failure->text, sizeof failure->text, "; rank %d waits in the same call", failure->rank);
    failure->rank = -1;
}

/* ---- >>abort ---- */

/* "rank 2 gave up: why", with loops only: may run in a signal handler. */
static void coll__abort_sentence(char *text, size_t room, int rank, const char *why)
{
    const char *const parts[] = { "rank ", NULL, " gave up: ", why ? why : "no reason given" };
    char number[12], *digit = number + sizeof number - 1;
    size_t n = 0;

    *digit = '\0';
    do *--digit = (char)('0' + rank % 10); while ((rank /= 10) > 0);
    for (int i = 0; i < 4; i++)
        for (const char *c = parts[i] ? parts[i] : digit; *c && n + 1 < room; c++) text[n++] = *c;
    text[n] = '\0';
}

#endif /* COLL_ERROR_TEXT_H */
