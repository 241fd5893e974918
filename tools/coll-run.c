/* coll-run - start the ranks of a coll.h program, on one machine or several, and leave no process behind.
 *
 *     cc -O2 tools/coll-run.c -o coll-run
 *     ./coll-run -n 4 ./train --epochs 3           four ranks, output marked [0] to [3]
 *     ./coll-run -n 4 -t 60 ./train                ended after a minute, with exit status 124
 *     ./coll-run -n 1 --no-prefix ./train          output as it is
 *     ./coll-run -H a:4,b:4 ./train                eight ranks on two hosts, by ssh
 *     ./coll-run --join a:29500 -n 4 --size 8 ./train    the same command on each of two machines
 *     ./coll-run -n 4 --elastic 2:4 ./train        processes that die are started again, and join
 *     ./coll-run -H a:1,b:1 --check                measure the network between them
 *
 * Environment.  Every rank gets COLL_RANK, COLL_SIZE, COLL_LOCAL_RANK, COLL_LOCAL_SIZE, COLL_ADDR
 * (address of rank 0), COLL_WORLD (a random name of the job), COLL_THREADS (ranks per process: the
 * library rejects any other number) and OMP_NUM_THREADS (cores per rank, unless already set).
 * Variables in which other launchers number their processes are removed.
 *
 * The port.  The launcher of rank 0 binds a free port with SO_REUSEADDR and keeps it bound for the
 * whole job, but never listens.  On Linux the port is then never chosen automatically, neither by
 * bind to port 0 nor by connect.  Rank 0, whose listener has SO_REUSEADDR too, may bind it and
 * listen.  So there is no moment at which the port is free.
 *
 * No orphans.  The ranks of a machine are children of a keeper, which is a child of coll-run.  They
 * are in one process group, led by the keeper: while it lives, the group's number is not reused.
 * The keeper adopts orphans of ranks (PR_SET_CHILD_SUBREAPER).  If coll-run ends, in any way, the
 * keeper kills the ranks and all their descendants, even after setsid.  If the keeper is killed,
 * the kernel kills the ranks (PR_SET_PDEATHSIG), and coll-run adopts and kills the rest.  If both
 * are killed at once, the ranks die, but processes started by them may stay.  On other machines
 * another coll-run does the same; it ends when its connection to this one closes.
 *
 * Output.  Ranks write to pipes; one loop reads them and never blocks.  If the reader of our output
 * is slow, ranks block as without coll-run.  No byte is dropped.
 *
 * Linux only.  This file holds the event loop, the end of a job, and main.
 *     run_output.h    outputs                run_frames.h    frames between launchers
 *     run_streams.h   lines of ranks         run_key.h       proofs of the key
 *     run_options.h   options, environment   run_cores.h     --bind
 *     run_job.h       the job, reports       run_start.h     starting local ranks
 *     run_hosts.h     -H, by ssh             run_join.h      --join, without ssh
 *     run_elastic.h   --elastic              run_show.h      --dry-run
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <arpa/inet.h>
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <ifaddrs.h>
#include <limits.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "../coll.h"
#include "run_output.h"
#include "run_frames.h"
#include "run_streams.h"
#include "run_key.h"
#include "run_options.h"
#include "run_cores.h"
#include "run_job.h"
#include "run_start.h"
#include "run_elastic.h"
#include "run_hosts.h"
#include "run_join.h"
#include "run_show.h"

/* Entries of the poll set; behind the streams of ranks there are three for each host, and one for each rank. */
enum {
    AT_SIGNALS, AT_KEEPER, AT_SINKS, AT_TERMINAL = AT_SINKS + 2, AT_INPUT, AT_UP, AT_LISTENERS = AT_UP + 2,
    AT_STREAMS = AT_LISTENERS + LISTENERS
};

/* ---- >>events: other launchers ---- */

/* Handle a frame from the main launcher.  false: invalid. */
static bool take_from_leader(struct job *job, const struct frame *frame)
{
    const bool is_agent = job->options.role == ROLE_AGENT;

    switch (frame->kind) {
    case FRAME_SETTINGS:
        return is_agent && take_settings(job, frame);
    case FRAME_GO:
        if (job->may_go) return false;
        if (is_agent && !take_numbers(&job->options, frame)) return false;
        if (is_agent) job->options.root = must(strdup(find_word(frame, "root")));
        else if (!take_place(job, frame)) return false;
        job->may_go = true;
        job->wait_until_ms = 0;
        return true;
    case FRAME_SIGNAL:
        if (frame->number >= 1 && frame->number < 65) signal_own_ranks(job, (int)frame->number);
        return true;
    case FRAME_INPUT:
        return is_agent && take_input(job, frame);
    case FRAME_START:
        return take_start(job, frame);
    case FRAME_RESULT:
        take_result(job, frame);
        return true;
    case FRAME_CHALLENGE:
        return !is_agent && take_challenge(job, frame);
    case FRAME_REFUSED: {
        char *text = printable(find_word(frame, "text"), 1000);
        decide(job, EXIT_FAILURE, false, "%s: %s", job->options.join, text);
        free(text);
        return true;
    }
    default:
        return false;
    }
}

/* The main launcher has ended: end this one. */
static void lose_leader(struct job *job)
{
    link_close(&job->up);
    if (job->is_known) return;
    if (job->options.role == ROLE_JOIN) {
        decide(job, EXIT_FAILURE, false, "the launcher at %s has ended or cannot be reached any more", job->options.join);
    }
    if (job->result < 0) job->result = EXIT_FAILURE;
    job->is_known = true;
    job->hurried = true;
    begin_stop(job, 0);
}

static void hear_leader(struct job *job)
{
    struct frame frame;
    int got = 0;
    const bool is_open = link_receive(&job->up);

    while (job->up.in >= 0 && (got = link_next(&job->up, &frame)) > 0) {
        if (!take_from_leader(job, &frame)) got = -1;
        if (got < 0) break;
    }
    if (got < 0) decide(job, EXIT_FAILURE, false, "what the other launcher says makes no sense");
    if (got < 0 || !is_open) lose_leader(job);
}

static void hear_host(struct job *job, struct host *host)
{
    struct frame frame;
    int got = 0;
    const bool is_open = link_receive(&host->link);

    job->heard_ms = now_ms();
    while (host->link.in >= 0 && (got = link_next(&host->link, &frame)) > 0) {
        const bool is_joiner = job->options.role == ROLE_JOIN;
        if (!(is_joiner ? take_from_joiner(job, host, &frame) : take_from_host(job, host, &frame))) got = -1;
        if (got < 0) break;
    }
    if (got < 0) complain(job, host, "what comes from there is not of coll-run");
    if ((got < 0 || !is_open) && host->link.in >= 0) lose_host(job, host);
}

/* ---- >>events: processes ---- */

/* A child could not execute the program.  No other one can, so the job ends. */
static void read_trouble(struct job *job)
{
    const char *program = job->options.program[0];
    char text[700];
    int error;

    if (read(job->trouble[0], &error, sizeof error) != (ssize_t)sizeof error) return;
    if (job->result >= 0) return;
    const char *hint = "";
    if (error == ENOENT && access(program, F_OK) == 0) {
        hint = strchr(program, '/') ? " (the file is there, the interpreter it names is not)"
                                    : " in PATH (say ./ for the file in this directory)";
    }
    snprintf(text, sizeof text, "cannot execute '%.400s': %s%s", program, strerror(error), hint);
    give_up(job, error == ENOENT || error == ENOTDIR ? EXIT_NOT_FOUND : EXIT_CANNOT_EXECUTE, text);
}

static int find_rank(const struct job *job, pid_t pid)
{
    for (int i = 0; i < job->started; i++) {
        if (job->ranks[i].running && !job->ranks[i].host && job->ranks[i].pid == pid) return i;
    }
    return -1;
}

/* The ssh process of a host has ended.  Usually the link is closed, too; after a signal, other processes may hold it open. */
static void note_rsh_end(struct job *job, struct host *host, int status)
{
    host->status = status;
    if (!WIFSIGNALED(status)) return;
    if (host->link.in >= 0) hear_host(job, host);
    if (host->link.in >= 0) lose_host(job, host);
}

/* Children: the keeper, ssh processes, and the ranks of a keeper that was killed. */
static void reap(struct job *job)
{
    int status;

    if (job->options.program) read_trouble(job);
    hear_keeper(job, MSG_DONTWAIT);             /* may hold ends of ranks from before a kill      */
    for (pid_t pid; (pid = waitpid(-1, &status, WNOHANG)) > 0;) {
        const int at = find_rank(job, pid);
        if (pid == job->keeper) job->keeper = 0;
        for (int i = 0; i < job->host_count; i++) {
            if (job->hosts[i]->pid == pid) note_rsh_end(job, job->hosts[i], status);
        }
        if (at >= 0) note_end(job, at, status, now_ms() - job->ranks[at].started_ms);
    }
}

/* The first signal is forwarded to the ranks; a second one kills them. */
static void interrupt(struct job *job, int signal)
{
    char text[300];

    if (job->death) {
        kill_now(job);
        return;
    }
    job->death = signal;
    job->result = 128 + signal;
    job->hurried = true;
    job->summary = false;
    snprintf(text, sizeof text, "coll-run on %s got %s", job->own_name, signal_name(signal));
    tell_result(job, text);
    signal_ranks(job, signal);
    signal_ranks(job, SIGCONT);
    begin_stop(job, FORWARD_MS);
}

static void read_signals(struct job *job)
{
    struct signalfd_siginfo info;
    bool children = false;

    while (read(job->signals, &info, sizeof info) == (ssize_t)sizeof info) {
        const int signal = (int)info.ssi_signo;
        switch (signal) {
        case SIGCHLD:
            children = true;
            break;
        case SIGCONT:                   /* wakes the loop: this process may be in the foreground now */
            break;
        case SIGTSTP:                   /* Ctrl-Z reaches only this process group: forward it     */
            signal_ranks(job, SIGTSTP);
            raise(SIGSTOP);
            signal_ranks(job, SIGCONT);
            break;
        case SIGUSR1:
        case SIGUSR2:
            signal_ranks(job, signal);
            break;
        default:
            interrupt(job, signal);
        }
    }
    if (children) reap(job);
}

/* ---- >>events: the clock ---- */

/* The time limit for launchers has passed. */
static void end_waiting(struct job *job)
{
    const double seconds = (double)job->options.wait_ms / 1000.0;
    struct bytes names = { 0 };

    job->wait_until_ms = 0;
    if (is_elastic(job) && job->options.role == ROLE_HEAD && count_slots(job, HOST_READY) >= job->options.least) {
        for (int i = 0; i < job->host_count; i++) {
            if (job->hosts[i]->state == HOST_CALLED) lose_host(job, job->hosts[i]);
        }
        return;
    }
    job->hurried = true;
    if (job->options.role == ROLE_HEAD) {
        for (int i = 0; i < job->host_count; i++) {
            const struct host *host = job->hosts[i];
            if (host->state != HOST_CALLED) continue;
            if (names.length > 0) append(&names, ", ", 2);
            append(&names, host->name, strlen(host->name));
        }
        append(&names, "", 1);
        decide(job, EXIT_FAILURE, false, "no launcher answered on %s in %g s", names.data, seconds);
        free(names.data);
    } else if (job->up.in >= 0) {
        decide(job, EXIT_FAILURE, false, "%s: something answers there, but not as coll-run does", job->options.join);
    } else {
        char *present = list_present(job);
        decide(job, EXIT_FAILURE, false, "waited %g s at %s: %s", seconds, job->options.join, present);
        free(present);
    }
}

static void check_joiners(struct job *job, int64_t now)
{
    for (int i = 0; i < job->host_count; i++) {
        struct host *host = job->hosts[i];
        if (host->until_ms && now >= host->until_ms && host->link.in >= 0) lose_host(job, host);
    }
    if (job->progress_at_ms && now >= job->progress_at_ms) {
        char *present = list_present(job);
        say(job->err, "waiting at %s: %s", job->options.join, present);
        free(present);
        job->progress_at_ms = now + REPORT_MS;
    }
}

static void check_clock(struct job *job)
{
    const int64_t now = now_ms();

    if (job->timeout_at_ms && now >= job->timeout_at_ms) {
        job->timeout_at_ms = 0;
        job->hurried = true;
        if (job->alive > 0 && job->result < 0) {
            char *ranks = list_ranks(job, NULL);
            const double seconds = (double)job->options.timeout_ms / 1000.0;
            decide(job, EXIT_TIMEOUT, true, "timeout: %s still ran after %g s", ranks, seconds);
            begin_stop(job, 0);
            free(ranks);
        }
    }
    if (job->report_at_ms && now >= job->report_at_ms) report_suspect(job);
    if (job->wait_until_ms && now >= job->wait_until_ms && job->result < 0) {
        /* a launcher that still connects reports its own error */
        if (job->options.role != ROLE_JOIN || job->up.in >= 0 || job->listeners[0] >= 0) end_waiting(job);
    }
    if (job->options.role == ROLE_JOIN) check_joiners(job, now);
    if (is_elastic(job)) call_again(job, now);
    if (job->stage_at_ms && now >= job->stage_at_ms) next_stage(job);
}

/* ---- >>events: input and output ---- */

/* Our output is closed, or the disk is full: end the job, for its results are lost. */
static void check_sinks(struct job *job)
{
    for (int i = 0; i < 2; i++) {
        const int error = job->sinks[i].error;
        if (!error || job->result >= 0) continue;

        decide(job, error == EPIPE ? 128 + SIGPIPE : EXIT_FAILURE, true, "cannot write to standard %s: %s: the job is ended",
               &job->sinks[i] == job->err ? "error" : "output", error == EPIPE ? "its reader has closed it" : strerror(error));
        begin_stop(job, 0);
    }
}

/* Ranks are not in the terminal's foreground process group: if rank 0 read from the terminal, it would be stopped.  So this
 * process reads for it, and only in the foreground.  If rank 0 is on another host, any input is read, as fast as rank 0 takes
 * it. */
static bool may_read_input(const struct job *job)
{
    const bool is_head = job->options.role == ROLE_HEAD;

    if (is_head && (job->hosts[0]->state != HOST_RUNS || job->in_flight >= INPUT_WINDOW)) return false;
    if (!is_head && (job->options.role == ROLE_AGENT || job->input < 0 || job->typed.length > 0)) return false;
    const pid_t foreground = job->input_ended ? 0 : tcgetpgrp(STDIN_FILENO);
    return !job->input_ended && (foreground == getpgrp() || (is_head && foreground < 0));
}

/* Rank 0 has closed its input: further input is dropped. */
static void close_input(struct job *job)
{
    if (job->input >= 0) close(job->input);
    job->input = -1;
}

static void read_input(struct job *job)
{
    char data[4096];
    const ssize_t length = read(STDIN_FILENO, data, sizeof data);

    if (length < 0 && (errno == EINTR || errno == EAGAIN)) return;
    job->input_ended = length <= 0;
    if (job->options.role == ROLE_HEAD) {
        struct link *link = &job->hosts[0]->link;
        put_frame(&link->out, FRAME_INPUT, 0, data, length > 0 ? (size_t)length : 0);
        job->in_flight += length > 0 ? (size_t)length : 0;
        sink_flush(&link->out);
    } else if (length > 0) {
        append(&job->typed, data, (size_t)length);
    }
}

static void write_input(struct job *job)
{
    struct bytes *typed = &job->typed;
    ssize_t done = 0;

    if (typed->length > 0 && job->input >= 0) {
        done = write(job->input, typed->data + typed->head, typed->length);
        if (done < 0 && errno != EINTR && errno != EAGAIN) close_input(job);
    }
    if (job->input < 0) done = (ssize_t)typed->length;
    if (done > 0) {
        typed->head += (size_t)done;
        typed->length -= (size_t)done;
        if (job->up.in >= 0) {
            put_frame(&job->up.out, FRAME_TAKEN, (uint32_t)done, "", 0);
            sink_flush(&job->up.out);
        }
    }
    if (typed->length == 0 && job->input_ended) close_input(job);
}

/* ---- >>loop ---- */

static bool has_open_streams(const struct job *job)
{
    for (int i = 0; i < 2 * job->started; i++) {
        if (stream_of(job, i)->fd >= 0) return true;
    }
    return false;
}

static void watch(struct job *job, size_t at, int fd, short events)
{
    job->polled[at] = (struct pollfd){ .fd = fd, .events = events };
}

/* The timeout for poll in ms: until the next deadline. */
static int time_to_sleep(const struct job *job, int64_t until_ms, bool unfinished)
{
    const int64_t now = now_ms();
    const int64_t times[] = { until_ms, job->timeout_at_ms, job->stage_at_ms, job->wait_until_ms, job->report_at_ms,
                              job->progress_at_ms, job->wanted_at_ms, unfinished ? now + QUIET_MS : 0 };
    int64_t at = now + 60000;

    for (size_t i = 0; i < sizeof times / sizeof *times; i++) {
        if (times[i] && times[i] < at) at = times[i];
    }
    for (int i = 0; i < job->host_count; i++) {
        const struct host *host = job->hosts[i];
        if (host->until_ms && host->link.in >= 0 && host->until_ms < at) at = host->until_ms;
        if (host->again_at_ms && host->again_at_ms < at) at = host->again_at_ms;
    }
    return at > now ? (int)(at - now) : 0;
}

static void watch_link(struct job *job, size_t at, const struct link *link, bool may_read)
{
    watch(job, at, may_read ? link->in : -1, POLLIN);
    watch(job, at + 1, link->out.waiting.length > 0 ? link->out.fd : -1, POLLOUT);
}

/* Fill the poll set; poll ignores descriptors of -1.  Returns the number of entries. */
static size_t watch_all(struct job *job, bool *unfinished)
{
    const size_t streams = 2 * (size_t)job->started, hosts = (size_t)job->host_count;
    const size_t joined = AT_STREAMS + streams + 3 * hosts, all = joined + (size_t)job->started;
    const bool has_room = !sink_is_full(&job->sinks[0]) && !sink_is_full(job->err);

    if (all > job->polled_room) {
        job->polled_room = 2 * all;
        job->polled = must(realloc(job->polled, job->polled_room * sizeof *job->polled));
    }
    watch(job, AT_SIGNALS, job->signals, POLLIN);
    watch(job, AT_KEEPER, job->orders, POLLIN);
    for (size_t i = 0; i < 2; i++) {
        const struct sink *sink = &job->sinks[i];
        watch(job, AT_SINKS + i, sink->waiting.length > 0 ? sink->fd : -1, POLLOUT);
    }
    watch(job, AT_TERMINAL, may_read_input(job) ? STDIN_FILENO : -1, POLLIN);
    watch(job, AT_INPUT, job->typed.length > 0 ? job->input : -1, POLLOUT);
    watch_link(job, AT_UP, &job->up, true);
    for (size_t i = 0; i < LISTENERS; i++) watch(job, AT_LISTENERS + i, job->listeners[i], POLLIN);
    for (size_t i = 0; i < streams; i++) {
        const struct stream *stream = stream_of(job, (int)i);
        watch(job, AT_STREAMS + i, sink_is_full(stream->sink) ? -1 : stream->fd, POLLIN);
        *unfinished = *unfinished || (job->options.raw && stream->held.length > 0);
    }
    for (size_t i = 0; i < hosts; i++) {
        const struct host *host = job->hosts[i];
        watch_link(job, AT_STREAMS + streams + 3 * i, &host->link, has_room);
        watch(job, AT_STREAMS + streams + 3 * i + 2, has_room ? host->errors.fd : -1, POLLIN);
    }
    for (size_t i = 0; i < streams / 2; i++) watch(job, joined + i, job->ranks[i].joined, POLLIN);
    return all;
}

/* Handle poll results of other launchers.  New ones are handled next time. */
static void serve_links(struct job *job, size_t streams, size_t hosts)
{
    const struct pollfd *polled = job->polled, *first = job->polled + AT_STREAMS + streams;

    for (size_t i = 0; i < hosts; i++) {
        struct host *host = job->hosts[i];
        if (first[3 * i + 2].revents && host->errors.fd >= 0) read_stream(&host->errors);
        if (first[3 * i + 1].revents && host->link.out.fd >= 0) sink_flush(&host->link.out);
        if (first[3 * i].revents && host->link.in >= 0) hear_host(job, host);
    }
    if (polled[AT_UP + 1].revents) sink_flush(&job->up.out);
    if (polled[AT_UP].revents && job->up.in >= 0) hear_leader(job);
    for (size_t i = 0; i < LISTENERS; i++) {
        if (polled[AT_LISTENERS + i].revents) accept_joiner(job, job->listeners[i]);
    }
}

/* Wait for events, or until `until_ms` (0: unbounded), and handle them. */
static void serve(struct job *job, int64_t until_ms)
{
    if (is_elastic(job)) start_wanted(job);
    const size_t streams = 2 * (size_t)job->started, hosts = (size_t)job->host_count;
    bool unfinished = false;
    const size_t all = watch_all(job, &unfinished);
    const struct pollfd *polled = job->polled;
    const int ready = poll(job->polled, (nfds_t)all, time_to_sleep(job, until_ms, unfinished));

    if (ready < 0 && errno != EINTR) die("poll");
    if (ready == 0 && unfinished) {
        for (size_t i = 0; i < streams; i++) pass_on_held(stream_of(job, (int)i));
    }
    if (ready > 0) {
        for (size_t i = 0; i < 2; i++) {
            if (polled[AT_SINKS + i].revents) sink_flush(&job->sinks[i]);
        }
        if (polled[AT_TERMINAL].revents) read_input(job);
        for (size_t i = 0; i < streams; i++) {
            struct stream *stream = stream_of(job, (int)i);
            if (polled[AT_STREAMS + i].revents && stream->fd >= 0 && !sink_is_full(stream->sink)) read_stream(stream);
        }
        for (size_t i = 0; i < streams / 2; i++) {
            const bool has_news = polled[AT_STREAMS + streams + 3 * hosts + i].revents != 0;
            if (has_news && job->ranks[i].joined >= 0) hear_joined(job, (int)i);
        }
        serve_links(job, streams, hosts);
        if (polled[AT_KEEPER].revents) {
            if (job->options.program) read_trouble(job);
            hear_keeper(job, MSG_DONTWAIT);
        }
        if (polled[AT_SIGNALS].revents) read_signals(job);
    }
    if (job->started > 0 && (job->typed.length > 0 || job->input_ended)) write_input(job);
    check_sinks(job);
    check_clock(job);
}

/* Write all data left in pipes and sinks.  All writers have ended, so an empty pipe is at its end, even if another process
 * holds it open.  A hurried job waits for a slow reader until STALL_MS after `start_ms` or after the last byte written. */
static void drain(struct job *job, int64_t start_ms)
{
    for (;;) {
        int64_t moved = start_ms;
        bool done = true;
        for (int i = 0; i < 2 * job->started; i++) {
            struct stream *stream = stream_of(job, i);
            drain_stream(stream);
            if (stream->fd >= 0 && !sink_is_full(stream->sink)) end_stream(stream);
            done = done && stream->fd < 0;
        }
        const struct sink *const sinks[] = { &job->sinks[0], &job->sinks[1], &job->up.out };
        for (int i = 0; i < 3; i++) {
            done = done && sinks[i]->waiting.length == 0;
            if (sinks[i]->moved_at_ms > moved) moved = sinks[i]->moved_at_ms;
        }
        if (done) return;
        if (job->hurried && now_ms() >= moved + STALL_MS) return;
        serve(job, job->hurried ? moved + STALL_MS : 0);
    }
}

/* ---- >>leftovers: processes started by ranks and still running ---- */

/* All ranks have ended: the keeper kills their leftovers, and ends.  If the keeper was killed, this process adopted them. */
static void kill_leftovers(struct job *job)
{
    const int64_t give_up = now_ms() + KILL_MS + 500;
    struct pollfd p = { .fd = job->orders, .events = POLLIN };

    if (job->orders >= 0) shutdown(job->orders, SHUT_WR);
    while (job->orders >= 0 && (p.fd = job->orders) >= 0 && now_ms() < give_up) {
        if (poll(&p, 1, (int)(give_up - now_ms())) > 0) hear_keeper(job, MSG_DONTWAIT);
    }
    if (job->keeper) {
        kill(-job->keeper, SIGKILL);
        waitpid(job->keeper, NULL, 0);
    }
    job->keeper = 0;
    kill_all_children();
}

/* ---- >>begin and end ---- */

/* coll-check from this program's directory, or from PATH. */
static void choose_check(struct options *asked, const char *own_path)
{
    static char *words[2];
    const char *slash = strrchr(own_path, '/');

    must(asprintf(&words[0], "%.*scoll-check", slash ? (int)(slash - own_path) + 1 : 0, own_path) < 0 ? NULL : words);
    if (access(words[0], X_OK)) words[0] = must(strdup("coll-check"));
    asked->program = words;
}

static void learn_own_names(struct job *job)
{
    char path[PATH_MAX];
    const ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1);

    path[length > 0 ? length : 0] = '\0';
    job->own_path = must(strdup(length > 0 ? path : "coll-run"));
    if (gethostname(job->own_name, sizeof job->own_name - 1)) snprintf(job->own_name, sizeof job->own_name, "here");
}

static void prepare(struct job *job)
{
    struct rlimit files;

    job->launcher = getpid();
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    getrlimit(RLIMIT_NOFILE, &job->files_before);
    files = job->files_before;
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);

    catch_signals(job);
    job->err = open_sinks(job->sinks);
    if (pipe2(job->trouble, O_CLOEXEC | O_NONBLOCK)) die("pipe");
    if (job->options.log_dir && mkdir(job->options.log_dir, 0777) && errno != EEXIST) die(job->options.log_dir);
}

/* Draw the job's name, and a key for a job on several hosts. */
static void name_job(struct options *asked)
{
    char text[2 * 32 + 1];

    random_hex(text, 8);
    asked->world = must(strdup(text));
    if (asked->role != ROLE_HEAD || asked->key) return;
    random_hex(text, 32);
    asked->key = must(strdup(text));
}

/* Move the agent's connection to the head away from stdin and stdout, which ranks must not get. */
static void open_agent(struct job *job)
{
    const int in = fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3), out = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3);
    const int null = open("/dev/null", O_RDWR | O_CLOEXEC);

    if (in < 0 || out < 0 || null < 0 || dup2(null, STDIN_FILENO) < 0 || dup2(null, STDOUT_FILENO) < 0) die("no descriptors");
    close(null);
    link_open(&job->up, in, out, FRAME_LIMIT);
    sink_put(&job->up.out, frame_mark, sizeof frame_mark - 1);
    sink_flush(&job->up.out);
}

/* Wait until the ranks to start and the address of rank 0 are known, or the job has failed. */
static void meet(struct job *job)
{
    struct options *asked = &job->options;

    switch (asked->role) {
    case ROLE_LOCAL: {
        const int port = is_elastic(job) && hold_ports(job, false) ? job->ranks[0].port : hold_port(asked, false);
        if (port) asked->root = join_address("127.0.0.1", port);
        else decide(job, EXIT_FAILURE, false, "no free port on 127.0.0.1 (COLL_PORTS may leave none)");
        return;
    }
    case ROLE_HEAD:
        start_keeper(job);
        call_hosts(job);
        while (job->result < 0 && job->started == 0) serve(job, 0);
        return;
    case ROLE_JOIN:
        join_others(job);
        break;
    case ROLE_AGENT:
        break;
    }
    while (job->result < 0 && !job->may_go) serve(job, 0);
}

static void start_all(struct job *job)
{
    const struct options *asked = &job->options;

    if (asked->role != ROLE_HEAD && job->result < 0) {
        if (asked->check) choose_check(&job->options, job->own_path);
        if (!job->ranks) make_ranks(job, asked->size);
        build_environment(&job->environment, asked);
        start_keeper(job);
        job->target = asked->begin;
        if (job->starts < asked->begin) job->starts = asked->begin;
        for (int at = 0; at < asked->start && job->result < 0; at++) {
            job->ranks[at].age = at;
            start_rank(job, at);
            read_trouble(job);
        }
    }
    if (asked->role == ROLE_JOIN && job->listeners[0] >= 0 && job->may_go) add_joiners(job);
    job->has_begun = true;
    if (is_elastic(job) && job->up.in < 0) balance(job, -1);
    if (asked->timeout_ms && job->up.in < 0) job->timeout_at_ms = now_ms() + asked->timeout_ms;
}

/* Have our ranks ended, while another launcher still decides how the job ends? */
static bool awaits_result(const struct job *job)
{
    return (job->options.role == ROLE_JOIN || is_elastic(job)) && job->up.in >= 0 && job->may_go && !job->is_known && !job->death;
}

/* All ranks have ended: wait until the launchers of other hosts have sent their data and ended.  A slow reader of our output
 * may delay them. */
static void await_agents(struct job *job)
{
    job->heard_ms = now_ms();
    for (;;) {
        const int64_t until = job->heard_ms + (job->hurried ? STALL_MS : SILENT_MS);
        bool is_open = false;
        for (int i = 0; i < job->host_count; i++) is_open = is_open || job->hosts[i]->link.in >= 0;
        if (!is_open || now_ms() >= until) return;
        serve(job, until);
        if (!job->hurried && (sink_is_full(&job->sinks[0]) || sink_is_full(job->err))) job->heard_ms = now_ms();
    }
}

/* --elastic: other launchers end when they know the result; those that have not begun are not waited for. */
static void end_hosts(struct job *job)
{
    if (job->result < 0) tell_result(job, "");
    for (int i = 0; i < job->host_count; i++) {
        if (job->hosts[i]->state != HOST_RUNS) link_close(&job->hosts[i]->link);
    }
}

static void end(struct job *job)
{
    const int64_t ended_ms = now_ms(), until_ms = ended_ms + LEFTOVER_MS;

    report_suspect(job);
    if (job->lost >= 0 && !is_elastic(job)) evaluate_survivors(job);
    if (is_elastic(job)) end_hosts(job);
    if (job->options.role == ROLE_HEAD && job->started > 0) await_agents(job);
    while (has_open_streams(job) && !job->hurried && now_ms() < until_ms) serve(job, until_ms);
    for (int i = 0; i < job->host_count; i++) {
        if (job->hosts[i]->errors.fd >= 0) drain_stream(&job->hosts[i]->errors);
    }
    kill_leftovers(job);
    drain(job, ended_ms);
    report_others(job);
    if (job->result < 0) tell_result(job, "");
    drain(job, ended_ms);
}

/* Die of the signal that ended the job: a shell sees it, and a script stops at Ctrl-C.  The signal is blocked, but neither
 * caught nor ignored. */
static void die_of(int signal)
{
    const struct rlimit none = { 0, 0 };
    sigset_t set;

    setrlimit(RLIMIT_CORE, &none);
    sigemptyset(&set);
    sigaddset(&set, signal);
    raise(signal);
    sigprocmask(SIG_UNBLOCK, &set, NULL);
}

int main(int argc, char **argv)
{
    static struct job job = {
        .result = -1, .suspect = -1, .lost = -1, .lost_status = EXIT_FAILURE, .input = -1, .orders = -1,
        .up = { .in = -1, .out = { .fd = -1 } }, .listeners = { -1, -1, -1, -1 }
    };

    fill_standard_files();
    learn_own_names(&job);
    parse_options(&job.options, argc, argv);
    if (job.options.dry_run) return show_plan(&job);
    prepare(&job);
    if (job.options.role == ROLE_AGENT) open_agent(&job);
    else name_job(&job.options);
    if (job.options.size) make_ranks(&job, is_elastic(&job) && job.options.role == ROLE_JOIN ? MAX_RANKS : job.options.size);

    meet(&job);
    start_all(&job);
    while (job.alive > 0 || awaits_result(&job)) serve(&job, 0);
    end(&job);

    if (job.death) die_of(job.death);
    return job.result < 0 ? EXIT_SUCCESS : job.result;
}
