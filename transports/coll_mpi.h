/* coll_mpi.h - ranks started by MPI: the engine over messages of MPI, and MPI's own collectives where they are correct.
 *
 * The program's communicator is used only to create three others: one for messages, one for collectives, and one from which
 * others are created.  So neither tags nor orders conflict with the program's.  All have MPI_ERRORS_RETURN.
 *
 * There is no thread: ranks receive notes only inside calls of the library, or of MPI if it progresses by itself.  Below
 * MPI_THREAD_SERIALIZED only the thread that opened it may call.  With SERIALIZED the program must ensure that no two threads are
 * inside MPI or this library at once; with MULTIPLE the library's own rules are enough.
 *
 * WAITING.  MPI cannot sleep.  If each rank has a processor, a rank polls, and yields now and then.  If ranks share processors,
 * it polls a few times and yields between the polls; then it sleeps for short times, so that its peers run.
 *
 * FINALIZING.  MPI_Finalize first deletes the attributes of MPI_COMM_SELF, and one is the library's: all that was not freed is
 * released then, and later calls fail. */
#ifndef COLL_MPI_H
#define COLL_MPI_H

enum { COLL__MPI_TRAITS = COLL__WHEN_NAMED | COLL__COUNTS_ITSELF };

#if defined(COLL_WITH_MPI)

#include "mpi/coll_mpi_world.h"                   /* the state of a rank: communicators, streams, pending operations of MPI */
#include "mpi/coll_mpi_p2p.h"                     /* messages                                               */
#include "mpi/coll_mpi_control.h"                 /* what ranks send besides them                           */
#include "mpi/coll_mpi_forms.h"                   /* which of MPI's two forms a collective uses             */
#include "mpi/coll_mpi_group.h"                   /* communicators of MPI for derived communicators         */
#include "mpi/coll_mpi_selection.h"               /* which calls MPI carries out, and which the engine: the table */
#include "mpi/coll_mpi_native.h"                  /* whole collectives                                      */
#include "mpi/coll_mpi_fail.h"                    /* agreement on the first failure                         */

/* ---- >>progress ---- */

enum {
    COLL__MPI_TURNS = 200,                        /* polls before a sleep, if ranks share processors          */
    COLL__MPI_LOOKS = 1 << 20,                    /* and if they do not: some tenths of a second              */
    COLL__MPI_DELAY_US = 20, COLL__MPI_DELAY_MOST_US = 200, /* length of a sleep                                */
    COLL__MPI_WAIT_MS = 5,                        /* the longest wait of a call                               */
    COLL__MPI_VAIN_MS = 500                       /* after a rank has left, until messages that it has not received fail */
};

/* Tests everything once.  Returns whether anything has moved. */
static bool coll__mpi_look_around(coll__mpi *mpi)
{
    if (mpi->quiet < INT_MAX) mpi->quiet++;
    (void)coll__mpi_look(mpi);
    (void)coll__mpi_is_done(&mpi->all);
    for (coll__mpi_group *g = mpi->groups; g; g = g->next) (void)coll__mpi_is_done(g);
    if (mpi->committed && coll__mpi_form_of(mpi->committed) != COLL__MPI_IS_OPEN) mpi->quiet = 0;
    if (mpi->gone_count > 0) coll__mpi_check_left(mpi);
    if (mpi->gone_count > 0 && coll__now() - mpi->gone_at > (int64_t)COLL__MPI_VAIN_MS * COLL__MS) coll__mpi_check_vain(mpi);
    return mpi->quiet == 0;
}

/* Nothing has moved: yields or sleeps. */
static void coll__mpi_rest(const coll__mpi *mpi)
{
    const int beyond = mpi->quiet - (mpi->is_crowded ? COLL__MPI_TURNS : COLL__MPI_LOOKS);

    if (beyond <= 0) {
        if (mpi->is_crowded || mpi->quiet % 32 == 0) sched_yield();
        else coll__relax();
        return;
    }
    const int us = beyond < COLL__MPI_DELAY_MOST_US / COLL__MPI_DELAY_US ? COLL__MPI_DELAY_US * beyond : COLL__MPI_DELAY_MOST_US;
    const struct timespec delay = { 0, 1000L * us };
    nanosleep(&delay, NULL);
}

/* Returns when something has moved, when woken, or after COLL__MPI_WAIT_MS. */
static coll_status coll__mpi_progress(void *context, int wait_ms)
{
    coll__mpi *mpi = (coll__mpi *)context;
    const int64_t deadline = wait_ms > 0 ? coll__deadline(wait_ms < COLL__MPI_WAIT_MS ? wait_ms : COLL__MPI_WAIT_MS) : 0;
    bool waits = wait_ms > 0;

    if (mpi->failure.status == COLL_OK && coll__mpi_may_call(mpi) && coll__mpi_look_around(mpi)) waits = false;
    while (waits && mpi->failure.status == COLL_OK && mpi->suspicion.status == COLL_OK) {
        coll__mpi_rest(mpi);
        waits = !coll__mpi_look_around(mpi) && coll__now() < deadline
             && !__atomic_exchange_n(&mpi->is_woken, 0, __ATOMIC_ACQ_REL);
    }
    if (mpi->failure.status == COLL_OK && mpi->suspicion.status != COLL_OK) (void)coll__mpi_fail(mpi, &mpi->suspicion);
    return mpi->failure.status;
}

/* Called from any thread. */
static void coll__mpi_wake(void *context) { __atomic_store_n(&((coll__mpi *)context)->is_woken, 1, __ATOMIC_RELEASE); }

/* ---- >>description ---- */

static int coll__mpi_host(void *context, int rank) { return ((coll__mpi *)context)->homes[rank]; }
static int coll__mpi_site(void *context, int rank)
{
    const coll__mpi *mpi = (const coll__mpi *)context;
    return mpi->homes[mpi->size + rank];
}

static void coll__mpi_traffic(const void *context, uint64_t *sent, uint64_t *received)
{
    const coll__mpi *mpi = (const coll__mpi *)context;

    *sent = mpi->bytes_sent;
    *received = mpi->bytes_received;
}

static const char *coll__mpi_describe(const void *context) { return ((const coll__mpi *)context)->description; }

/* "Open MPI v4.1.4, 2 processors shared by 4 ranks". */
static void coll__mpi_set_description(coll__mpi *mpi)
{
    char text[MPI_MAX_LIBRARY_VERSION_STRING] = "";
    int length = 0;

    MPI_Get_library_version(text, &length);
    text[strcspn(text, ",\n")] = '\0';
    for (char *at = text; *at; at++) if (*at == '\t') *at = ' ';
    coll__print(mpi->description, sizeof mpi->description, "%.60s%s", text,
                mpi->is_crowded ? ", more ranks than processors" : "");
}

/* ---- >>closing ---- */

/* Releases all that MPI has. */
static void coll__mpi_let_go(coll__mpi *mpi)
{
    int ended = 0, is_pending = 0;

    if (mpi->is_finalized) return;
    for (int i = 0; i < mpi->count; i++)
        if (mpi->flights[i].kind >= COLL__MPI_LANDS) MPI_Cancel(&mpi->requests[i]);
    if (mpi->count > 0
        && MPI_Testsome(mpi->count, mpi->requests, &ended, mpi->indices, mpi->statuses) == MPI_SUCCESS && ended > 0)
        coll__mpi_remove(mpi, ended);
    for (int i = 0; i < mpi->count; i++) MPI_Request_free(&mpi->requests[i]);
    coll__mpi_sweep(mpi);
    mpi->is_finalized = true;
    if (mpi->comm != MPI_COMM_NULL) MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, mpi->comm, &is_pending, MPI_STATUS_IGNORE);
    if (mpi->failure.status != COLL_OK || is_pending) return;     /* MPI_Finalize frees ours: the messages must not arrive in a
                                                     later communicator, which may have the same context      */
    for (coll__mpi_group *g = mpi->groups; g; g = g->next) if (coll__mpi_is_at_rest(g)) MPI_Comm_free(&g->comm);
    if (mpi->all.comm != MPI_COMM_NULL && coll__mpi_is_at_rest(&mpi->all)) MPI_Comm_free(&mpi->all.comm);
    if (mpi->origin != MPI_COMM_NULL) MPI_Comm_free(&mpi->origin);
    if (mpi->comm != MPI_COMM_NULL) MPI_Comm_free(&mpi->comm);
}

/* Frees memory, unless MPI still reads eager messages or notes. */
static void coll__mpi_free(coll__mpi *mpi)
{
    bool is_busy = false;

    for (int i = 0; i < mpi->count; i++) is_busy = is_busy || mpi->flights[i].kind != COLL__MPI_SENDS_PART;
    if (is_busy) return;
    for (int i = 0; mpi->streams && i < mpi->size * COLL_CHANNEL_COUNT; i++) coll__give(mpi->streams[i].landing);
    if (!mpi->all.is_running) coll__mpi_group_free(&mpi->all);
    coll__give(mpi->all.left);
    coll__give(mpi->homes);
    coll__give(mpi->streams);
    coll__give(mpi->has_left);
    coll__give(mpi->requests);
    coll__give(mpi->flights);
    coll__give(mpi->statuses);
    coll__give(mpi->indices);
    coll__give(mpi->slots);
    coll__give(mpi->reports);
    coll__give(mpi);
}

enum { COLL__MPI_FLUSH_MS = 300 };

/* Waits until MPI has sent all, and all others have left.  Returns whether both are true. */
static bool coll__mpi_see_off(coll__mpi *mpi)
{
    const int64_t deadline = coll__deadline(COLL__MPI_FLUSH_MS);
    int sending;

    for (;;) {
        sending = 0;
        for (int i = 0; i < mpi->count; i++) sending += mpi->flights[i].kind < COLL__MPI_LANDS;
        const bool is_over = sending == 0 && (mpi->failure.status != COLL_OK || mpi->gone_count == mpi->size - 1)
                          && coll__mpi_drain(mpi) == 0;
        if (is_over || coll__now() >= deadline) return is_over;
        if (mpi->quiet < INT_MAX) mpi->quiet++;
        if (coll__mpi_look(mpi) == 0) coll__mpi_rest(mpi);
    }
}

/* MPI_Finalize on all ranks: completes what is pending, then releases everything. */
static int coll__mpi_attribute_deleted(MPI_Comm self, int keyval, void *value, void *extra)
{
    coll__mpi *mpi = (coll__mpi *)value;

    (void)self, (void)keyval, (void)extra;
    if (!mpi->is_left && mpi->failure.status == COLL_OK) coll__mpi_say_bye(mpi);
    if (!mpi->has_seen_off) (void)coll__mpi_see_off(mpi);
    coll__mpi_let_go(mpi);
    if (mpi->is_left) coll__mpi_free(mpi);
    return MPI_SUCCESS;
}

/* If the others do not leave at the same time, MPI_Finalize does the rest: their notes need a receiver. */
static void coll__mpi_leave(coll__mpi *mpi)
{
    int keyval = mpi->keyval;

    if (mpi->failure.status != COLL_OK && !mpi->is_settled) (void)coll__mpi_fail(mpi, NULL);
    while (mpi->groups) coll__mpi_ungroup(mpi, mpi->groups);
    if (mpi->failure.status == COLL_OK) coll__mpi_say_bye(mpi);
    mpi->is_left = true;
    mpi->has_seen_off = coll__mpi_see_off(mpi);
    if (mpi->has_seen_off || mpi->failure.status != COLL_OK) MPI_Comm_delete_attr(MPI_COMM_SELF, mpi->keyval);
    MPI_Comm_free_keyval(&keyval);
}

static void coll__mpi_close(void *context)
{
    coll__mpi *mpi = (coll__mpi *)context;
    const bool owns = mpi->owns_mpi, is_finalized = mpi->is_finalized;

    if (!is_finalized && coll__mpi_may_call(mpi)) {
        coll__mpi_leave(mpi);
        if (owns) MPI_Finalize();
        return;
    }
    mpi->is_left = true;                          /* this thread may not call MPI: MPI_Finalize does it       */
    while (is_finalized && mpi->groups) coll__mpi_ungroup(mpi, mpi->groups);
    while (is_finalized && mpi->orphans) {
        coll__mpi_group *g = mpi->orphans;
        mpi->orphans = g->next;
        coll__mpi_group_free(g);
    }
    if (is_finalized) coll__mpi_free(mpi);
}

static const coll_transport coll__mpi_transport = {
    .name = "mpi",
    .send = coll__mpi_send,
    .recv = coll__mpi_recv,
    .progress = coll__mpi_progress,
    .close = coll__mpi_close,
    .fail = coll__mpi_fail,
    .offload = coll__mpi_offload,
    .can_offload = coll__mpi_can_offload,
    .group = coll__mpi_group_make,
    .ungroup = coll__mpi_ungroup,
    .host = coll__mpi_host,
    .site = coll__mpi_site,
    .report_stall = coll__mpi_report_stall,
    .has_left = coll__mpi_has_left,
    .wake = coll__mpi_wake,
    .traffic = coll__mpi_traffic,
    .describe = coll__mpi_describe,
};

/* ---- >>opening ---- */

/* Why no communicator can be created from this one; NULL: one can. */
static const char *coll__mpi_refuses(MPI_Comm comm)
{
    int is_initialized = 0, is_finalized = 0, is_inter = 0, level = MPI_THREAD_SINGLE, is_main = 0;

    MPI_Initialized(&is_initialized);
    if (!is_initialized) return "MPI is not initialised: call MPI_Init_thread first";
    MPI_Finalized(&is_finalized);
    if (is_finalized) return "MPI has been finalised";
    if (comm == MPI_COMM_NULL) return "the communicator is MPI_COMM_NULL";
    MPI_Comm_test_inter(comm, &is_inter);
    if (is_inter) return "an intercommunicator has no collectives among all its ranks";
    MPI_Query_thread(&level);
    MPI_Is_thread_main(&is_main);
    if (level >= MPI_THREAD_SERIALIZED || is_main) return NULL;
    return "MPI was initialised for calls from the main thread only (MPI_THREAD_FUNNELED), and this is another one";
}

/* Determines the ranks of this host, and its processors. */
static int coll__mpi_find_host(coll__mpi *mpi)
{
    MPI_Comm host = MPI_COMM_NULL;
    uint64_t mask[1024 / 64] = { 0 }, all[1024 / 64];
    int processors = 0, home = mpi->rank;
    int code = MPI_Comm_split_type(mpi->comm, MPI_COMM_TYPE_SHARED, mpi->rank, MPI_INFO_NULL, &host);

    (void)coll__processor_mask(mask, sizeof mask / sizeof *mask);
    if (code == MPI_SUCCESS) code = MPI_Allreduce(mask, all, (int)sizeof mask, MPI_BYTE, MPI_BOR, host);
    if (code == MPI_SUCCESS) code = MPI_Bcast(&home, 1, MPI_INT, 0, host);
    if (code != MPI_SUCCESS) return code;
    MPI_Comm_rank(host, &mpi->local_rank);
    MPI_Comm_size(host, &mpi->local_size);
    MPI_Comm_free(&host);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) processors += __builtin_popcountll(all[i]);
    mpi->share = processors < mpi->local_size ? (double)processors / mpi->local_size : 1;
    code = MPI_Allgather(&home, 1, MPI_INT, mpi->homes, 1, MPI_INT, mpi->comm);
    if (code == MPI_SUCCESS) code = MPI_Allgather(&mpi->site, 1, MPI_INT, mpi->homes + mpi->size, 1, MPI_INT, mpi->comm);
    if (code == MPI_SUCCESS) code = MPI_Allreduce(MPI_IN_PLACE, &mpi->share, 1, MPI_DOUBLE, MPI_MIN, mpi->comm);
    mpi->is_crowded = mpi->share < 1;
    return code;
}

static bool coll__mpi_has_memory(coll__mpi *mpi)
{
    const size_t n = (size_t)mpi->size, streams = n * COLL_CHANNEL_COUNT;

    mpi->homes = (int *)coll__allocate(coll__like(mpi), 2 * n * sizeof *mpi->homes);
    mpi->has_left = (unsigned char *)coll__allocate(coll__like(mpi), n);
    mpi->reports = mpi->rank == 0 ? (unsigned char *)coll__allocate(coll__like(mpi), n * COLL_HEAD_LENGTH) : NULL;
    mpi->slots = (unsigned char *)coll__take(coll__like(mpi), (size_t)COLL__MPI_SLOTS * COLL__MPI_EAGER);
    mpi->all.left = (uint64_t *)coll__allocate(coll__like(mpi), n * sizeof *mpi->all.left);
    mpi->streams = (coll__mpi_stream *)coll__allocate(coll__like(mpi), streams * sizeof *mpi->streams);
    for (size_t i = 0; mpi->streams && i < streams; i++) mpi->streams[i].end = &mpi->streams[i].first;
    for (int i = 0; i < COLL__MPI_SLOTS; i++) mpi->free_slots[i] = i;
    mpi->free_count = COLL__MPI_SLOTS;
    return mpi->homes && mpi->has_left && (mpi->reports || mpi->rank) && mpi->slots && mpi->all.left && mpi->streams
        && coll__mpi_grow(mpi, 64 + 2 * mpi->size);
}

/* Creates the library's communicators; called by all ranks of `comm`. */
static int coll__mpi_join(coll__mpi *mpi, MPI_Comm comm)
{
    int code = MPI_Comm_dup(comm, &mpi->comm);

    if (code == MPI_SUCCESS) code = MPI_Comm_set_errhandler(mpi->comm, MPI_ERRORS_RETURN);
    if (code == MPI_SUCCESS) code = MPI_Comm_dup(mpi->comm, &mpi->all.comm);
    if (code == MPI_SUCCESS) code = MPI_Comm_dup(mpi->comm, &mpi->origin);
    if (code == MPI_SUCCESS)
        code = MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, coll__mpi_attribute_deleted, &mpi->keyval, NULL);
    return code;
}

/* Fails on all ranks unless all are without error, and have the same mode and arithmetic. */
static coll_status coll__mpi_agree(coll__mpi *mpi, coll_status own)
{
    const int arithmetic = (int)(coll__arithmetic() | COLL__LACKS | COLL__OTHER_SIZES);
    int said[5] = { (int)own, mpi->mode, -mpi->mode, arithmetic, -arithmetic };

    if (MPI_Allreduce(MPI_IN_PLACE, said, 5, MPI_INT, MPI_MIN, mpi->comm) != MPI_SUCCESS)
        return coll__start_failed(COLL_ERR_SYSTEM, "MPI_Allreduce failed");
    if (own < 0) return own;
    if (said[0] < 0) return coll__start_failed((coll_status)said[0], "another rank could not come along: %s",
                                               coll_status_text((coll_status)said[0]));
    if (said[1] != -said[2])
        return coll__start_failed(COLL_ERR_ARGUMENT, "COLL_MPI differs among the ranks: give all of them the same");
    if (said[3] != -said[4])
        return coll__start_failed(COLL_ERR_PROTOCOL, "arithmetic differs among the ranks: some flush tiny numbers to zero, or "
                                  "round otherwise (a part of the program with -ffast-math, or with COLL_NO_HIERARCHY?)");
    return COLL_OK;
}

/* Rank and size in a communicator of the program; NULL: no memory, or an error, with its sentence. */
static coll__mpi *coll__mpi_new(MPI_Comm comm, const coll_allocator *memory)
{
    const char *refusal = coll__mpi_refuses(comm);
    coll__mpi *mpi = refusal ? NULL : (coll__mpi *)coll__allocate(memory, sizeof *mpi);

    if (refusal) coll__start_failed(COLL_ERR_ARGUMENT, "coll_wrap_mpi: %s", refusal);
    else if (!mpi) coll__start_failed(COLL_ERR_MEMORY, "no memory for a communicator");
    if (!mpi) return NULL;
    MPI_Comm_size(comm, &mpi->size);
    MPI_Comm_rank(comm, &mpi->rank);
    MPI_Query_thread(&mpi->thread_level);
    mpi->comm = mpi->origin = MPI_COMM_NULL;
    mpi->keyval = MPI_KEYVAL_INVALID;
    mpi->thread = pthread_self();
    mpi->failure.rank = mpi->suspicion.rank = -1;
    coll__mpi_group_init(&mpi->all, mpi, 0, mpi->size, mpi->rank);
    return mpi;
}

/* The mode of the configuration, or else of the environment. */
static bool coll__mpi_settle_mode(coll__mpi *mpi, const char *given)
{
    static const char modes[] = "auto, native, messages, blocking";       /* as coll__mpi_mode                */

    if (!given || !*given) return coll__settle_choice(&mpi->mode, "COLL_MPI", modes);
    mpi->mode = coll__word_number(modes, given);
    if (mpi->mode < 0) coll__start_failed(COLL_ERR_ARGUMENT, "mpi \"%.40s\" is none of %s", given, modes);
    return mpi->mode >= 0;
}

/* Called by all ranks of `comm`; `own`: status of this rank so far.  Returns an error with its sentence. */
static coll_status coll__mpi_open(coll__mpi *mpi, MPI_Comm comm, const char *mode, coll_status own)
{
    if (own == COLL_OK && !coll__mpi_has_memory(mpi))
        own = coll__start_failed(COLL_ERR_MEMORY, "no memory for a communicator of %d ranks", mpi->size);
    if (own == COLL_OK && !coll__mpi_settle_mode(mpi, mode)) own = COLL_ERR_ARGUMENT;
    int code = coll__mpi_join(mpi, comm);
    const coll_status status = code == MPI_SUCCESS ? coll__mpi_agree(mpi, own) : COLL_OK;
    if (status < 0) return status;
    if (code == MPI_SUCCESS) code = coll__mpi_find_host(mpi);
    if (code == MPI_SUCCESS) code = coll__mpi_intents_make(&mpi->all);
    if (code == MPI_SUCCESS) code = MPI_Comm_set_attr(MPI_COMM_SELF, mpi->keyval, mpi);
    if (code != MPI_SUCCESS) {
        coll__mpi_suspect(mpi, "coll_wrap_mpi", code);
        return coll__start_failed(mpi->suspicion.status, "%s", mpi->suspicion.text);
    }
    coll__mpi_set_description(mpi);
    coll__mpi_hear(mpi);
    return COLL_OK;
}

/* Opens the ranks of an MPI communicator.  MPI is initialized. */
static coll_status coll__mpi_open_on(MPI_Comm comm, const coll__settings *s, bool owns_mpi, coll__opened *out)
{
    coll__numbers numbers = s->numbers;
    coll__mpi *mpi = coll__mpi_new(comm, s->config.allocator);
    coll_status status = s->status;

    if (!mpi) return COLL_ERR_ARGUMENT;
    mpi->site = (int)coll__site_id(s->config.site);
    if (status == COLL_OK && mpi->rank == 0) status = coll__tuning_read(&numbers, s->config.tuning_file, mpi->size);
    if (status == COLL_OK && s->config.size > 1 && (s->config.size != mpi->size || s->config.rank != mpi->rank))
        status = coll__start_failed(COLL_ERR_ARGUMENT, "the configuration says rank %d of %d, but MPI's communicator has this "
                                    "process as rank %d of %d: leave rank and size out", s->config.rank, s->config.size,
                                    mpi->rank, mpi->size);
    status = coll__mpi_open(mpi, comm, s->config.mpi, status);
    if (status < 0) {
        coll__mpi_let_go(mpi);
        if (mpi->keyval != MPI_KEYVAL_INVALID) MPI_Comm_free_keyval(&mpi->keyval);
        coll__mpi_free(mpi);
        return status;
    }
    mpi->owns_mpi = owns_mpi;
    (void)MPI_Bcast(&numbers, (int)sizeof numbers, MPI_BYTE, 0, mpi->comm);         /* all use those of rank 0 */
    *out = coll__opened_as(&coll__mpi_transport, mpi, mpi->rank, mpi->size, s);
    out->numbers = numbers;
    coll__opened_at(out, mpi->local_rank, mpi->local_size);
    out->share = mpi->share;
    out->is_crowded = mpi->is_crowded;
    out->offloads_all = mpi->mode != COLL__MPI_MESSAGES;
    if (out->is_crowded && out->spin_us == 0) out->spin_us = -1;          /* spinning would keep the others from running */
    const coll__log log = coll__log_of(&s->config);
    coll__say(&log, COLL_LOG_INFO, "rank %d of %d, rank %d of %d on its host, over mpi (%s)", out->rank, out->size,
              out->local_rank, out->local_size, coll__mpi_describe(mpi));
    return COLL_OK;
}

/* All ranks of MPI_COMM_WORLD.  If MPI is initialized here, coll_free finalizes it. */
static coll_status coll__mpi_open_world(const coll__settings *s, int count, coll__opened *out)
{
    int is_initialized = 0, level = 0;

    (void)count;
    MPI_Initialized(&is_initialized);
    if (!is_initialized && MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &level) != MPI_SUCCESS)
        return coll__start_failed(COLL_ERR_SYSTEM, "MPI_Init_thread failed");
    const coll_status status = coll__mpi_open_on(MPI_COMM_WORLD, s, !is_initialized, out);
    if (status < 0 && !is_initialized) MPI_Finalize();
    return status;
}

static const coll__transport_row coll__mpi_row = { .name = "mpi", .traits = COLL__MPI_TRAITS, .open = coll__mpi_open_world };

static coll_status coll__wrap_mpi(const coll__program *program, MPI_Comm comm, coll_comm **out)
{
    const coll_config alone = { .size = 1 };      /* MPI has rank and size                                    */
    const coll__transport_row *const rows[] = { &coll__mpi_row, NULL };
    const coll__program only = { rows, program->extension };
    coll__settings s;
    coll__opened opened;

    if (!out) return coll__start_failed(COLL_ERR_ARGUMENT, "coll_wrap_mpi: out is NULL");
    *out = NULL;
    s.status = coll__settle(&only, &s, &alone, 1);
    const coll_status status = coll__mpi_open_on(comm, &s, false, &opened);
    return status < 0 ? status : coll__comms_new(&opened, 1, &s, out);
}

#else

static const coll__transport_row coll__mpi_row = {
    .name = "mpi", .traits = COLL__MPI_TRAITS, .missing = "this program was compiled without COLL_WITH_MPI"
};

#endif
#endif /* COLL_MPI_H */
