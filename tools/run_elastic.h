/* run_elastic.h - part of coll-run.c: --elastic, processes that are started again, and hosts that come and go.
 *
 * A process has a slot, whose number is in its prefix, and a port that this launcher or the one of its host holds for the slot.
 * The first processes are started as in other jobs.  Any later one gets COLL_JOIN=on and, as COLL_ADDR, the addresses of the
 * members that have been in the job for the longest time: one of these is rank 0.  It writes a byte to a pipe (COLL_JOINED) once
 * it has joined.  So the main launcher knows the members.  It decides:
 *
 *     a process dies              it is started again in its slot, or in another one if its host is lost, while restarts are left
 *     it leaves (SIGTERM)         it is not started again
 *     it exits with status 0      the job is about to end: none is started any more
 *     fewer than MIN processes    the job ends with a sentence
 *     no member is left           the job is over: processes that wait to join are ended
 *
 * Other launchers start what the main one tells them, and stay until it tells them the result. */
#ifndef RUN_ELASTIC_H
#define RUN_ELASTIC_H

enum { MEMBERS_TOLD = 8 };          /* addresses that coll_join tries                        */

/* Hold a port for each local slot.  Returns false if none is free. */
static bool hold_ports(struct job *job, bool everywhere)
{
    if (!job->ranks) make_ranks(job, job->options.count);
    for (int at = 0; at < job->options.count; at++) {
        job->ranks[at].port = hold_port(&job->options, everywhere);
        if (!job->ranks[at].port) return false;
    }
    return true;
}

/* "ports=5000,5001": those of the local slots. */
static void put_ports(const struct job *job, struct bytes *body)
{
    struct bytes text = { 0 };
    char number[16];

    for (int at = 0; at < job->options.count; at++) {
        append(&text, number, (size_t)snprintf(number, sizeof number, "%s%d", at ? "," : "", job->ranks[at].port));
    }
    append(&text, "", 1);
    put_word(body, "ports=%s", text.data);
    free(text.data);
}

/* The ports of the slots of a host, whose numbers are known.  Others count as unknown. */
static void take_ports(struct job *job, const struct host *host, const char *text)
{
    for (int at = host->first; at < host->first + host->count; at++) {
        const long port = strtol(text, NULL, 10);
        job->ranks[at].port = port > 0 && port < 65536 ? (int)port : 0;
        text += strcspn(text, ",");
        text += *text == ',';
    }
}

/* ---- >>members ---- */

static int count_members(const struct job *job)
{
    int count = 0;

    for (int i = 0; i < job->started; i++) count += job->ranks[i].running && job->ranks[i].is_member;
    return count;
}

/* Processes that run or are about to. */
static int count_living(const struct job *job)
{
    int count = job->alive;

    for (int i = 0; i < job->started; i++) count += job->ranks[i].is_wanted;
    return count;
}

/* Where a process listens, for others on `to` (NULL: here). */
static const char *address_of(const struct job *job, const struct rank *rank, const struct host *to)
{
    if (rank->host) return rank->host->root;
    if (to && to->seen) return to->seen;
    return *job->own_address ? job->own_address : "127.0.0.1";
}

/* The addresses of the oldest members, for a process on `to`. */
static void list_members(const struct job *job, const struct host *to, char text[WHERE_ROOM])
{
    size_t length = 0;

    text[0] = '\0';
    for (int told = 0, age = -1; told < MEMBERS_TOLD; told++) {
        const struct rank *next = NULL;
        for (int i = 0; i < job->started; i++) {
            const struct rank *rank = &job->ranks[i];
            if (!rank->running || !rank->is_member || !rank->port || rank->age <= age) continue;
            if (!next || rank->age < next->age) next = rank;
        }
        if (!next) return;
        age = next->age;
        char *address = join_address(address_of(job, next, to), next->port);
        if (length + strlen(address) + 2 < WHERE_ROOM) {
            length += (size_t)snprintf(text + length, WHERE_ROOM - length, "%s%s", length ? "," : "", address);
        }
        free(address);
    }
}

/* A local process has written that it has joined, or never will. */
static void hear_joined(struct job *job, int at)
{
    struct rank *rank = &job->ranks[at];
    struct bytes body = { 0 };
    char byte;

    const ssize_t length = read(rank->joined, &byte, 1);
    if (length < 0 && (errno == EAGAIN || errno == EINTR)) return;
    close(rank->joined);
    rank->joined = -1;
    rank->is_member = length == 1;
    if (length == 1 && job->up.in >= 0) send_words(&job->up, FRAME_JOINED, (uint32_t)(job->options.first + at), &body);
}

/* ---- >>starting again ---- */

/* Start what is wanted here: after the last output of the process before, for which other processes may hold the pipe. */
static void start_wanted(struct job *job)
{
    const int64_t now = now_ms();

    job->wanted_at_ms = 0;
    if (!job->has_begun) return;
    for (int at = 0; at < job->started; at++) {
        struct rank *rank = &job->ranks[at];
        if (!rank->is_wanted) continue;
        if (job->result >= 0 || job->is_known || job->stage != STAGE_RUN) {
            rank->is_wanted = false;
            continue;
        }
        const int64_t limit = rank->ended_ms + LEFTOVER_MS;
        for (int i = 0; i < 2 && now >= limit; i++) {
            drain_stream(&rank->out[i]);
            if (rank->out[i].fd >= 0 && !sink_is_full(rank->out[i].sink)) end_stream(&rank->out[i]);
        }
        if (rank->out[0].fd < 0 && rank->out[1].fd < 0) {
            rank->is_wanted = false;
            start_rank(job, at);
        } else if (now < limit && (!job->wanted_at_ms || limit < job->wanted_at_ms)) {
            job->wanted_at_ms = limit;
        }
    }
}

/* A local slot is to be filled by a process that joins. */
static void want_rank(struct job *job, int at, const char *where)
{
    struct rank *rank = &job->ranks[at];

    snprintf(rank->where, sizeof rank->where, "%s", where);
    rank->is_wanted = true;
    if (job->started <= at) job->started = at + 1;
}

/* The main launcher: a remote process is being started. */
static void begin_remote(struct job *job, struct host *host, int at)
{
    struct rank *rank = &job->ranks[at];

    open_streams(job, at, job->host_count > 1 ? host->name : NULL);
    rank->running = true;
    rank->reported = false;
    rank->started_ms = now_ms();
    if (job->started <= at) job->started = at + 1;
    job->alive++;
}

/* The main launcher: start a process that joins. */
static void start_newcomer(struct job *job, int at)
{
    struct rank *rank = &job->ranks[at];
    struct bytes body = { 0 };
    char where[WHERE_ROOM];

    list_members(job, rank->host, where);
    rank->age = ++job->starts;
    rank->is_member = false;
    if (!rank->host) {
        want_rank(job, at, where);
        return;
    }
    put_word(&body, "where=%s", where);
    send_words(&rank->host->link, FRAME_START, (uint32_t)at, &body);
    free(body.data);
    begin_remote(job, rank->host, at);
}

static bool is_free(const struct job *job, int at)
{
    const struct rank *rank = &job->ranks[at];
    const bool is_there = rank->host ? rank->host->state == HOST_RUNS : job->options.role != ROLE_HEAD && at < job->options.count;

    return is_there && !rank->running && !rank->is_wanted && !rank->has_left;
}

/* A slot for another process, `first` if that is free; -1: none. */
static int find_slot(const struct job *job, int first)
{
    if (first >= 0 && is_free(job, first)) return first;
    for (int at = 0; at < job->capacity; at++) {
        if (is_free(job, at)) return at;
    }
    return -1;
}

/* May another process be started?  Slots that were missing at the start are filled without a restart. */
static bool may_start(const struct job *job) { return job->unfilled > 0 || job->restarted < job->options.restarts; }

/* Count this start, of the slot, and report it. */
static void count_start(struct job *job, int slot)
{
    const bool is_first = job->unfilled > 0 && (!job->ranks[slot].started_ms || job->restarted == job->options.restarts);

    if (is_first) job->unfilled--;
    else job->restarted++;
    if (job->options.quiet) return;
    if (is_first) say(job->err, "rank %d is started", slot);
    else say(job->err, "rank %d is started again (restart %d of %d)", slot, job->restarted, job->options.restarts);
}

/* Start processes again, or end the job if too few are left; `at` is the slot of the last one that has ended, or -1. */
static void balance(struct job *job, int at)
{
    const struct options *asked = &job->options;
    const int least = asked->least;

    if (job->result >= 0 || job->stage != STAGE_RUN || !job->has_begun) return;
    if (count_members(job) == 0) {
        if (!job->has_finished) decide(job, job->lost_status, false, "no process of the job is left");
        for (int i = 0; i < job->started; i++) job->ranks[i].is_wanted = false;
        begin_stop(job, 0);
        return;
    }
    if (job->has_finished) return;
    for (int living = count_living(job); living < job->target && may_start(job); living++) {
        const int slot = find_slot(job, at);
        if (slot < 0) break;
        count_start(job, slot);
        start_newcomer(job, slot);
    }
    const int living = count_living(job);
    if (living >= least) return;
    decide(job, job->lost_status, false, "%d %s left, and --elastic %d:%d needs %d (%d of %d restarts were used)", living,
           living == 1 ? "process is" : "processes are", least, asked->most, least, job->restarted, asked->restarts);
    begin_stop(job, NOTICE_MS);
}

/* SIGTERM has ended it: it was to leave. */
static bool has_drained(int status)
{
    return WIFSIGNALED(status) ? WTERMSIG(status) == SIGTERM : WEXITSTATUS(status) == 128 + SIGTERM;
}

/* A process has ended. */
static void take_end(struct job *job, int at)
{
    struct rank *rank = &job->ranks[at];

    if (job->up.in >= 0 || job->result >= 0 || job->stage != STAGE_RUN) return;
    if (rank->status == 0) {
        job->has_finished = job->has_finished || rank->is_member;
        rank->has_left = true;
    } else if (has_drained(rank->status)) {
        if (!job->has_finished) report_lost(job, at, "it has left the job");
        rank->has_left = true;
        job->target--;
        job->lost_status = exit_status(rank->status);
    } else {
        if (!job->has_finished) report_lost(job, at, "the others go on");
        job->lost_status = exit_status(rank->status);
    }
    balance(job, at);
}

/* ---- >>hosts ---- */

/* Give the slots of a host their numbers. */
static void number_host(struct job *job, struct host *host, int first)
{
    host->first = first;
    for (int at = first; at < first + host->count; at++) job->ranks[at].host = host;
}

/* Call a lost host again, later and later. */
static void call_later(struct job *job, struct host *host)
{
    if (job->options.role != ROLE_HEAD) return;
    host->again_ms = !host->again_ms ? AGAIN_MS : 2 * host->again_ms < AGAIN_MOST_MS ? 2 * host->again_ms : AGAIN_MOST_MS;
    host->again_at_ms = now_ms() + host->again_ms;
}

/* Slots of the hosts in this state. */
static int count_slots(const struct job *job, enum host_state state)
{
    int count = 0;

    for (int i = 0; i < job->host_count; i++) count += job->hosts[i]->state == state ? job->hosts[i]->count : 0;
    return count;
}

/* A launcher that comes after the start: some of its slots are filled. */
static void add_late(struct job *job, const struct host *host)
{
    int room = job->options.most - count_living(job);

    for (int at = host->first; at < host->first + host->count && room > 0; at++, room--) {
        job->target++;
        start_newcomer(job, at);
    }
}

#endif /* RUN_ELASTIC_H */
