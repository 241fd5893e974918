/* coll_mpi_fail.h - agreement on the first failure; ranks that wait in different calls; ranks that have left.
 *
 * Rank 0 is the failure detector.  A rank with an error reports it and waits for the decision, which rank 0 sends to all.  If
 * none arrives in time (rank 0 has left, or does not call the library), the rank decides itself and informs all.  If a process
 * dies, MPI's launcher ends the job. */
#ifndef COLL_MPI_FAIL_H
#define COLL_MPI_FAIL_H

enum { COLL__MPI_DECISION_MS = 1000, COLL__MPI_CANCEL_MS = 50 };

static void coll__mpi_decide(coll__mpi *mpi, const coll_failure *cause, bool is_known)
{
    if (mpi->failure.status != COLL_OK) return;
    mpi->failure = *cause;
    mpi->is_known = is_known;
}

/* Rank 0 records in which call a rank waits, and compares it with those of the others. */
static void coll__mpi_compare(coll__mpi *mpi, int rank, const unsigned char *head)
{
    unsigned char *mine = mpi->reports + (size_t)rank * COLL_HEAD_LENGTH;

    memcpy(mine, head, COLL_HEAD_LENGTH);
    for (int i = 0; i < mpi->size && mpi->suspicion.status == COLL_OK; i++) {
        const unsigned char *other = mpi->reports + (size_t)i * COLL_HEAD_LENGTH;
        if (coll__heads_disagree(mine, other)) coll__failed_mismatch(&mpi->suspicion, other, i, mine, rank);
    }
}

static void coll__mpi_report_stall(void *context, const unsigned char *head)
{
    coll__mpi *mpi = (coll__mpi *)context;

    if (mpi->rank == 0) {
        coll__mpi_compare(mpi, 0, head);
        return;
    }
    coll__mpi_note note = { .word = COLL__MPI_WAITING, .from = mpi->rank };
    memcpy(note.head, head, COLL_HEAD_LENGTH);
    if (!mpi->has_left[0] && coll__mpi_may_call(mpi)) coll__mpi_note_send(mpi, &note, 0);
}

static void coll__mpi_bye_heard(coll__mpi *mpi, const coll__mpi_note *note, int from)
{
    if (mpi->has_left[from]) return;
    for (int channel = 0; channel < COLL_CHANNEL_COUNT; channel++)
        coll__mpi_stream_of(mpi, from, channel)->said = note->counts[channel];
    mpi->has_left[from] = 1;
    mpi->gone_count++;
    mpi->gone_at = coll__now();
    coll__mpi_member_left(&mpi->all, from, note->group);
}

/* A note has arrived. */
static void coll__mpi_heard(coll__mpi *mpi, const MPI_Status *status)
{
    const coll__mpi_note note = mpi->heard;
    const int from = status->MPI_SOURCE;
    int got = 0;

    MPI_Get_count(status, MPI_BYTE, &got);
    if (got != (int)sizeof note || from < 0 || from >= mpi->size || note.from != from) return;
    coll_failure cause = note.failure;
    cause.text[sizeof cause.text - 1] = '\0';
    const bool is_cause = cause.status < 0 && cause.status >= COLL_ERR_FORKED && cause.rank >= -1 && cause.rank < mpi->size;
    switch (note.word) {
    case COLL__MPI_REPORT:  if (is_cause && mpi->rank == 0) coll__mpi_decide(mpi, &cause, false); break;
    case COLL__MPI_DECISION: if (is_cause) coll__mpi_decide(mpi, &cause, mpi->rank != 0); break;
    case COLL__MPI_WAITING: if (mpi->rank == 0) coll__mpi_compare(mpi, from, note.head); break;
    case COLL__MPI_BYE:     coll__mpi_bye_heard(mpi, &note, from); break;
    case COLL__MPI_GONE:    coll__mpi_gone_from(mpi, note.group, from, note.counts[0]); break;
    default: break;
    }
}

/* ---- >>testing all flights ---- */

static void coll__mpi_land(coll__mpi *mpi, const coll__mpi_flight *f, const MPI_Status *status)
{
    switch (f->kind) {
    case COLL__MPI_SENDS_EAGER:  mpi->free_slots[mpi->free_count++] = f->slot; break;
    case COLL__MPI_SENDS_PART:
    case COLL__MPI_RECEIVES_PART: coll__mpi_part_done(f->x); break;
    case COLL__MPI_SENDS_NOTE:    coll__give(f->note); break;
    case COLL__MPI_LANDS:         coll__mpi_eager(mpi, f, status); break;
    case COLL__MPI_HEARS:
        coll__mpi_heard(mpi, status);
        coll__mpi_hear(mpi);
        break;
    }
}

/* Removes completed flights from the arrays, and moves the last ones into their places. */
static void coll__mpi_remove(coll__mpi *mpi, int ended)
{
    for (int i = 0; i < ended; i++) mpi->flights[mpi->indices[i]].is_over = true;
    for (int i = 0; i < mpi->count;) {
        if (!mpi->flights[i].is_over) {
            i++;
            continue;
        }
        mpi->count--;
        mpi->flights[i] = mpi->flights[mpi->count];
        mpi->requests[i] = mpi->requests[mpi->count];
    }
}

/* Tests all flights.  Returns how many have completed. */
static int coll__mpi_look(coll__mpi *mpi)
{
    int ended = 0;

    if (mpi->count == 0) return 0;
    const int code = MPI_Testsome(mpi->count, mpi->requests, &ended, mpi->indices, mpi->statuses);
    if (code != MPI_SUCCESS && code != MPI_ERR_IN_STATUS) return coll__mpi_suspect(mpi, "MPI_Testsome", code), 0;
    if (ended == MPI_UNDEFINED || ended <= 0) return 0;
    for (int i = 0; code == MPI_ERR_IN_STATUS && i < ended; i++)
        if (mpi->statuses[i].MPI_ERROR != MPI_SUCCESS && mpi->statuses[i].MPI_ERROR != MPI_ERR_PENDING)
            coll__mpi_suspect(mpi, "a message", mpi->statuses[i].MPI_ERROR);
    for (int i = 0; i < ended; i++) {
        const MPI_Status status = mpi->statuses[i];           /* the arrays may move when they grow               */
        const coll__mpi_flight flight = mpi->flights[mpi->indices[i]];
        coll__mpi_land(mpi, &flight, &status);
    }
    coll__mpi_remove(mpi, ended);
    mpi->quiet = 0;
    return ended;
}

/* A long message to a rank that has left without receiving it. */
static void coll__mpi_check_vain(coll__mpi *mpi)
{
    for (int i = 0; i < mpi->count; i++) {
        const coll__mpi_flight *f = &mpi->flights[i];
        if (f->kind == COLL__MPI_SENDS_PART && f->x && !f->x->any_head && mpi->has_left[f->x->peer])
            coll__set_failure(&mpi->suspicion, COLL_ERR_PEER, f->x->peer,
                              "rank %d has left the communicator without what rank %d "
                              "sends it", f->x->peer, mpi->rank);
    }
}

/* ---- >>the decision ---- */

/* Ends what is pending.  The caller gets its buffers back: receives are cancelled; MPI may read a buffer until it is sent. */
static void coll__mpi_drop(coll__mpi *mpi)
{
    const int64_t deadline = coll__deadline(COLL__MPI_CANCEL_MS);
    int ended = 0, receiving = 0;

    for (int i = 0; i < mpi->count; i++) {
        coll__mpi_flight *f = &mpi->flights[i];
        if (f->kind == COLL__MPI_RECEIVES_PART) MPI_Cancel(&mpi->requests[i]), receiving++;
        if (f->x && f->x->status == COLL_PENDING) f->x->status = mpi->failure.status;
        f->x = NULL;
    }
    for (int i = 0; i < mpi->size * COLL_CHANNEL_COUNT; i++) {
        coll__mpi_stream *s = &mpi->streams[i];
        for (coll_xfer *x = s->first, *next; x; x = next) {
            next = x->next;
            x->status = mpi->failure.status;
        }
        s->first = NULL;
        s->end = &s->first;
    }
    while (receiving > 0 && coll__now() < deadline) {
        if (MPI_Testsome(mpi->count, mpi->requests, &ended, mpi->indices, mpi->statuses) == MPI_SUCCESS && ended > 0)
            coll__mpi_remove(mpi, ended);
        receiving = 0;
        for (int i = 0; i < mpi->count; i++) receiving += mpi->flights[i].kind == COLL__MPI_RECEIVES_PART;
    }
}

/* Reports a failure, and waits for the decision. */
static void coll__mpi_ask(coll__mpi *mpi, const coll_failure *cause)
{
    const int64_t deadline = coll__deadline(COLL__MPI_DECISION_MS);

    coll__mpi_tell(mpi, COLL__MPI_REPORT, cause, 0);
    while (mpi->failure.status == COLL_OK && !mpi->has_left[0] && coll__now() < deadline)
        if (coll__mpi_look(mpi) == 0) sched_yield();
}

/* Determines the common cause, sends it, and ends what is pending.  A thread that may not call MPI only has its own view; the
 * others receive it once another thread calls. */
static const coll_failure *coll__mpi_fail(void *context, const coll_failure *cause)
{
    coll__mpi *mpi = (coll__mpi *)context;
    const coll_failure own = cause ? *cause : mpi->suspicion;

    if (mpi->failure.status == COLL_OK && own.status == COLL_OK) return NULL;
    if (mpi->is_settled || mpi->is_finalized || !coll__mpi_may_call(mpi)) {
        coll__mpi_decide(mpi, &own, false);
        return &mpi->failure;
    }
    mpi->is_settled = true;
    coll__mpi_group *const g = mpi->committed;
    mpi->committed = NULL;                        /* peers may be in the blocking form of its collective: takes part */
    if (g && coll__mpi_take_back(g)) (void)coll__mpi_begin(g, g->task->call);
    if (mpi->failure.status == COLL_OK && mpi->rank != 0 && !mpi->has_left[0]) coll__mpi_ask(mpi, &own);
    coll__mpi_decide(mpi, &own, false);
    if (!mpi->is_known) coll__mpi_tell(mpi, COLL__MPI_DECISION, &mpi->failure, -1);
    mpi->is_known = true;
    coll__mpi_drop(mpi);
    return &mpi->failure;
}

#endif /* COLL_MPI_FAIL_H */
