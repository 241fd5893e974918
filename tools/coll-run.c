/* coll-run - start the ranks of a coll.h program on this machine, and leave none behind.
 *
 *     cc -O2 tools/coll-run.c -o coll-run
 *     ./coll-run -n 4 ./train --epochs 3           four ranks, output marked [0] to [3]
 *     ./coll-run -n 4 -t 60 ./train                ended after a minute, with exit status 124
 *     ./coll-run -n 1 --no-prefix ./train          output as it is
 *
 * Every rank finds in its environment COLL_RANK, COLL_SIZE, COLL_LOCAL_RANK, COLL_LOCAL_SIZE,
 * COLL_ADDR (where rank 0 serves the start), COLL_WORLD (a random name of the job) and
 * OMP_NUM_THREADS (cores per rank, unless already set).  Variables by which other launchers number
 * their processes are removed, for coll-run defines the world.
 *
 * The port.  coll-run binds a free port with SO_REUSEADDR and keeps it bound for as long as the job
 * lives, but never listens.  On Linux this hides the port from every automatic choice, whether by
 * bind to port 0 or by connect, while rank 0, whose listener has SO_REUSEADDR too, may bind and
 * listen on it: there is no moment at which it is free.
 *
 * No orphans.  All ranks are in one process group, led by a keeper: a child of coll-run that waits
 * for coll-run to end and then kills the group.  As the leader lives, the number of the group
 * cannot pass to strangers.  Besides, ranks ask the kernel to die with coll-run, and coll-run
 * adopts what ranks leave behind and ends it before it exits itself.
 *
 * Output.  Ranks write to pipes, one loop reads them and never blocks.  When the reader of our
 * output is slow, ranks come to wait as they would without coll-run; no byte is dropped.
 *
 * Linux only.  This file holds the job, from starting its ranks to the end of the last; main, at
 * its end, is the overview.  run_output.h brings lines from ranks to our outputs, run_options.h
 * has the options and what follows from them for the environment of ranks.
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
#include <limits.h>
#include <netinet/in.h>
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
#include "run_options.h"

enum {
    NOTICE_MS   = 3000,         /* after a failure: for the others to notice by themselves   */
    FORWARD_MS  = 1000,         /* after a forwarded signal: before SIGTERM follows          */
    TERM_MS     = 2000,         /* after SIGTERM: before SIGKILL                             */
    KILL_MS     = 5000,         /* after SIGKILL: before coll-run stops waiting for the kernel */
    LEFTOVER_MS = 1000,         /* after the last rank: for others who hold the pipes open   */
    STALL_MS    = 1000,         /* an ended job gives up on a reader that takes nothing for this */
    QUIET_MS    = 100           /* raw output: unfinished lines are passed on after it       */
};

struct rank {
    pid_t pid;
    bool running, reported;
    int status;                     /* as waitpid gives it                                   */
    int64_t started_ms, ended_ms;
    struct stream out[2];
};

/* What to do next to ranks that still run once the job is to end. */
enum stage { STAGE_RUN, STAGE_TERM, STAGE_KILL, STAGE_ABANDON };

/* Places of what poll looks at. */
enum { AT_SIGNALS, AT_SINKS, AT_TERMINAL = AT_SINKS + 2, AT_INPUT, AT_STREAMS };

/* There is one, and what it owns it owns to the end: nothing is freed. */
struct job {
    struct options options;
    struct words environment;
    pid_t launcher, keeper;         /* keeper 0: gone                                        */
    int signals;                    /* signalfd                                              */
    int trouble[2];                 /* a pipe: errno of a child that cannot execute the program */
    sigset_t mask_before;
    struct sigaction pipe_before, child_before;
    struct rlimit files_before;

    struct rank *ranks;
    int started;                    /* ranks[0 .. started) exist,                            */
    int alive;                      /* and so many of them run                               */
    struct sink sinks[2];           /* standard output, standard error                       */
    struct sink *err;               /* sinks[0] if both lead to the same place               */
    struct pollfd *polled;

    int input;                      /* to rank 0 if we read a terminal for it, else -1       */
    char typed[4096];
    size_t typed_length;

    enum stage stage;
    int64_t timeout_at_ms, stage_at_ms; /* 0: not set                                        */
    int verdict;                    /* our exit status; -1: nothing has gone wrong so far    */
    int death;                      /* the signal that ended us, 0: none                     */
    bool hurried;                   /* do not wait for a reader that has stopped reading     */
    bool summary;                   /* the end of the other ranks is worth a line            */
};

/* Streams in one row, for loops over all 2 * started of them. */
static struct stream *stream_of(const struct job *job, int at)
{
    return &job->ranks[at / 2].out[at % 2];
}

/* ---- >>stopping ---- */

/* Signal the group, and ranks that have left it. */
static void signal_ranks(const struct job *job, int signal)
{
    for (int i = 0; i < job->started; i++) {
        const struct rank *rank = &job->ranks[i];
        if (!rank->running) continue;
        if (!job->keeper || getpgid(rank->pid) != job->keeper) kill(rank->pid, signal);
    }
    if (job->keeper) kill(-job->keeper, signal);
}

/* The job is to end: after `delay_ms` by SIGTERM, then by SIGKILL.  What is already under way is
 * never put off. */
static void begin_stop(struct job *job, int64_t delay_ms)
{
    const int64_t at = now_ms() + delay_ms;

    if (job->stage == STAGE_RUN) {
        job->stage = STAGE_TERM;
        job->stage_at_ms = at;
    } else if (job->stage == STAGE_TERM && at < job->stage_at_ms) {
        job->stage_at_ms = at;
    }
}

static void kill_now(struct job *job)
{
    job->stage = STAGE_KILL;
    job->stage_at_ms = now_ms();
}

static void next_stage(struct job *job)
{
    const int64_t now = now_ms();

    switch (job->stage) {
    case STAGE_TERM:
        signal_ranks(job, SIGTERM);
        signal_ranks(job, SIGCONT);                 /* a stopped process does not see the signal */
        job->stage = STAGE_KILL;
        job->stage_at_ms = now + TERM_MS;
        break;
    case STAGE_KILL:
        signal_ranks(job, SIGKILL);
        job->stage = STAGE_ABANDON;
        job->stage_at_ms = now + KILL_MS;
        break;
    case STAGE_ABANDON:
        for (int i = 0; i < job->started; i++) {
            struct rank *rank = &job->ranks[i];
            const int pid = (int)rank->pid;
            if (!rank->running) continue;
            say(job->err, "rank %d (pid %d) does not die of SIGKILL: left alone", i, pid);
            rank->running = false;
            rank->reported = true;
        }
        job->alive = 0;
        job->stage_at_ms = 0;
        break;
    case STAGE_RUN:
        break;
    }
}

/* ---- >>reports ---- */

static const char *signal_name(int signal)
{
    static const char *const names[] = {
        [SIGHUP] = "SIGHUP",     [SIGINT] = "SIGINT",     [SIGQUIT] = "SIGQUIT",
        [SIGILL] = "SIGILL",     [SIGTRAP] = "SIGTRAP",   [SIGABRT] = "SIGABRT",
        [SIGBUS] = "SIGBUS",     [SIGFPE] = "SIGFPE",     [SIGKILL] = "SIGKILL",
        [SIGSEGV] = "SIGSEGV",   [SIGPIPE] = "SIGPIPE",   [SIGALRM] = "SIGALRM",
        [SIGTERM] = "SIGTERM",   [SIGUSR1] = "SIGUSR1",   [SIGUSR2] = "SIGUSR2",
        [SIGXCPU] = "SIGXCPU",   [SIGXFSZ] = "SIGXFSZ",   [SIGSYS] = "SIGSYS"
    };
    const bool known = signal < (int)(sizeof names / sizeof *names) && names[signal];

    return known ? names[signal] : "a signal";
}

/* "exited with status 5", "was killed by SIGSEGV (Segmentation fault)". */
static void describe(int status, bool plural, char *text, size_t length)
{
    if (WIFSIGNALED(status)) {
        const int signal = WTERMSIG(status);
        snprintf(text, length, "%s killed by %s (%s%s)", plural ? "were" : "was",
                 signal_name(signal), strsignal(signal), WCOREDUMP(status) ? ", core dumped" : "");
    } else {
        snprintf(text, length, "exited with status %d", WEXITSTATUS(status));
    }
}

static int exit_status(int status)
{
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

/* Whether the rank still runs (status NULL), or has ended in that way and is not yet reported. */
static bool is_chosen(const struct rank *rank, const int *status)
{
    if (!status) return rank->running;
    return !rank->running && !rank->reported && rank->status == *status;
}

/* "rank 3" or "ranks 0-2,7": those chosen.  The caller frees it. */
static char *list_ranks(const struct job *job, const int *status)
{
    char *text = NULL;
    size_t length = 0;
    int count = 0;
    const char *separator = "";
    FILE *out = must(open_memstream(&text, &length));

    for (int i = 0; i < job->started; i++) count += is_chosen(&job->ranks[i], status);
    fputs(count == 1 ? "rank " : "ranks ", out);
    for (int i = 0; i < job->started; i++) {
        const int first = i;
        while (i < job->started && is_chosen(&job->ranks[i], status)) i++;
        if (i == first) continue;
        fprintf(out, "%s%d", separator, first);
        if (i - 1 > first) fprintf(out, "-%d", i - 1);
        separator = ",";
    }
    if (fclose(out)) must(NULL);
    return text;
}

static void report_first(struct job *job, int at)
{
    struct rank *rank = &job->ranks[at];
    const bool killed = WIFSIGNALED(rank->status) && WTERMSIG(rank->status) == SIGKILL;
    char how[128];

    job->verdict = exit_status(rank->status);
    job->summary = true;
    rank->reported = true;
    begin_stop(job, NOTICE_MS);
    if (job->options.quiet) return;

    /* Its last words belong before ours. */
    for (int i = 0; i < 2; i++) drain_stream(&rank->out[i]);
    describe(rank->status, false, how, sizeof how);
    say(job->err, "rank %d (pid %d) %s after %.1f s%s", at, (int)rank->pid, how,
        (double)(rank->ended_ms - rank->started_ms) / 1000.0,
        killed ? ", perhaps for lack of memory" : "");
}

/* One line for each way in which the other ranks failed. */
static void report_others(struct job *job)
{
    if (!job->summary || job->options.quiet) return;
    for (int i = 0; i < job->started; i++) {
        const int status = job->ranks[i].status;
        char how[128];
        if (status == 0 || !is_chosen(&job->ranks[i], &status)) continue;

        char *ranks = list_ranks(job, &status);
        const bool ours = WIFSIGNALED(status) &&
                          ((WTERMSIG(status) == SIGTERM && job->stage >= STAGE_KILL) ||
                           (WTERMSIG(status) == SIGKILL && job->stage >= STAGE_ABANDON));
        describe(status, strncmp(ranks, "ranks", 5) == 0, how, sizeof how);
        say(job->err, "%s %s%s", ranks, ours ? "went on and " : "", how);
        free(ranks);
        for (int k = i; k < job->started; k++) {
            if (is_chosen(&job->ranks[k], &status)) job->ranks[k].reported = true;
        }
    }
}

/* ---- >>events ---- */

/* A child could not execute the program: none can, so there is nothing to wait for. */
static void read_trouble(struct job *job)
{
    const char *program = job->options.program[0];
    int error;

    if (read(job->trouble[0], &error, sizeof error) != (ssize_t)sizeof error) return;
    if (job->verdict >= 0) return;
    const char *hint = "";
    if (error == ENOENT && access(program, F_OK) == 0) {
        hint = strchr(program, '/') ? " (the file is there, the interpreter it names is not)"
                                    : " in PATH (say ./ for the file in this directory)";
    }
    say(job->err, "cannot execute '%s': %s%s", program, strerror(error), hint);
    job->verdict = error == ENOENT || error == ENOTDIR ? EXIT_NOT_FOUND : EXIT_CANNOT_EXECUTE;
    kill_now(job);
}

static int find_rank(const struct job *job, pid_t pid)
{
    for (int i = 0; i < job->started; i++) {
        if (job->ranks[i].running && job->ranks[i].pid == pid) return i;
    }
    return -1;
}

/* Several ranks may end between two looks, and the kernel does not say which was first.  A rank
 * that a signal killed is then taken for the cause: survivors notice a failure and exit, they do
 * not crash. */
static void reap(struct job *job)
{
    int first = -1, status;

    read_trouble(job);
    for (pid_t pid; (pid = waitpid(-1, &status, WNOHANG)) > 0;) {
        const int at = find_rank(job, pid);
        if (pid == job->keeper) job->keeper = 0;
        if (at < 0) continue;

        struct rank *rank = &job->ranks[at];
        rank->running = false;
        rank->status = status;
        rank->ended_ms = now_ms();
        job->alive--;
        if (status == 0) continue;
        const bool crashed = WIFSIGNALED(status);
        if (first < 0 || (crashed && !WIFSIGNALED(job->ranks[first].status))) first = at;
    }
    if (first >= 0 && job->verdict < 0) report_first(job, first);
}

/* Ranks get the signal first, to end as they would in a terminal; a second one means that it takes
 * too long. */
static void interrupt(struct job *job, int signal)
{
    if (job->death) {
        kill_now(job);
        return;
    }
    job->death = signal;
    job->verdict = 128 + signal;
    job->hurried = true;
    job->summary = false;
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
        case SIGCONT:                   /* wakes the loop: we may be in the foreground now */
            break;
        case SIGTSTP:                   /* Ctrl-Z reaches our group only, so hand it on */
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

static void check_clock(struct job *job)
{
    const int64_t now = now_ms();

    if (job->timeout_at_ms && now >= job->timeout_at_ms) {
        job->timeout_at_ms = 0;
        job->hurried = true;
        if (job->alive > 0 && job->verdict < 0) {
            job->verdict = EXIT_TIMEOUT;
            begin_stop(job, 0);
            if (!job->options.quiet) {
                char *ranks = list_ranks(job, NULL);
                const double seconds = (double)job->options.timeout_ms / 1000.0;
                say(job->err, "timeout: %s still ran after %g s", ranks, seconds);
                free(ranks);
            }
        }
    }
    if (job->stage_at_ms && now >= job->stage_at_ms) next_stage(job);
}

/* Nobody reads our output any more, or the disk is full: a job whose results are lost need not go
 * on. */
static void check_sinks(struct job *job)
{
    for (int i = 0; i < 2; i++) {
        const int error = job->sinks[i].error;
        if (!error || job->verdict >= 0) continue;

        job->verdict = error == EPIPE ? 128 + SIGPIPE : EXIT_FAILURE;
        if (!job->options.quiet && &job->sinks[i] != job->err) {
            say(job->err, "cannot write to standard output: %s: the job is ended",
                error == EPIPE ? "its reader has closed it" : strerror(error));
        }
        begin_stop(job, 0);
    }
}

/* Ranks are not in the terminal's foreground group, so a read by rank 0 itself would stop it.  When
 * our input is a terminal we read in its place, and only while we are in the foreground. */
static bool may_read_terminal(const struct job *job)
{
    return job->input >= 0 && job->typed_length == 0 && tcgetpgrp(STDIN_FILENO) == getpgrp();
}

static void close_input(struct job *job)
{
    if (job->input >= 0) close(job->input);
    job->input = -1;
    job->typed_length = 0;
}

static void relay_input(struct job *job, bool readable, bool writable)
{
    if (readable) {
        const ssize_t length = read(STDIN_FILENO, job->typed, sizeof job->typed);
        if (length > 0) job->typed_length = (size_t)length;
        else if (length == 0 || (errno != EINTR && errno != EAGAIN)) close_input(job);
    }
    if (writable && job->typed_length > 0) {
        const ssize_t done = write(job->input, job->typed, job->typed_length);
        if (done > 0) {
            job->typed_length -= (size_t)done;
            memmove(job->typed, job->typed + done, job->typed_length);
        } else if (errno != EINTR && errno != EAGAIN) {
            close_input(job);
        }
    }
}

/* ---- >>loop ---- */

static bool has_open_streams(const struct job *job)
{
    for (int i = 0; i < 2 * job->started; i++) {
        if (stream_of(job, i)->fd >= 0) return true;
    }
    return false;
}

static void watch(struct job *job, int at, int fd, short events)
{
    job->polled[at] = (struct pollfd){ .fd = fd, .events = events };
}

/* Milliseconds that poll may sleep: until the next thing that the clock decides. */
static int time_to_sleep(const struct job *job, int64_t until_ms, bool unfinished)
{
    const int64_t now = now_ms();
    int64_t at = now + 60000;

    if (until_ms && until_ms < at) at = until_ms;
    if (job->timeout_at_ms && job->timeout_at_ms < at) at = job->timeout_at_ms;
    if (job->stage_at_ms && job->stage_at_ms < at) at = job->stage_at_ms;
    if (unfinished && now + QUIET_MS < at) at = now + QUIET_MS;
    return at > now ? (int)(at - now) : 0;
}

/* Sleep until something happens, or `until_ms` (0: no such bound), and deal with it.  poll passes
 * over a descriptor of -1. */
static void serve(struct job *job, int64_t until_ms)
{
    const int streams = 2 * job->started;
    bool unfinished = false;

    watch(job, AT_SIGNALS, job->signals, POLLIN);
    for (int i = 0; i < 2; i++) {
        const struct sink *sink = &job->sinks[i];
        watch(job, AT_SINKS + i, sink->waiting.length > 0 ? sink->fd : -1, POLLOUT);
    }
    watch(job, AT_TERMINAL, may_read_terminal(job) ? STDIN_FILENO : -1, POLLIN);
    watch(job, AT_INPUT, job->typed_length > 0 ? job->input : -1, POLLOUT);
    for (int i = 0; i < streams; i++) {
        const struct stream *stream = stream_of(job, i);
        watch(job, AT_STREAMS + i, sink_is_full(stream->sink) ? -1 : stream->fd, POLLIN);
        unfinished = unfinished || (job->options.raw && stream->held.length > 0);
    }

    const struct pollfd *polled = job->polled;
    const int ready = poll(job->polled, (nfds_t)(AT_STREAMS + streams),
                           time_to_sleep(job, until_ms, unfinished));
    if (ready < 0 && errno != EINTR) die("poll");
    if (ready == 0 && unfinished) {
        for (int i = 0; i < streams; i++) pass_on_held(stream_of(job, i));
    }
    if (ready > 0) {
        for (int i = 0; i < 2; i++) {
            if (polled[AT_SINKS + i].revents) sink_flush(&job->sinks[i]);
        }
        relay_input(job, polled[AT_TERMINAL].revents != 0, polled[AT_INPUT].revents != 0);
        for (int i = 0; i < streams; i++) {
            struct stream *stream = stream_of(job, i);
            if (polled[AT_STREAMS + i].revents && !sink_is_full(stream->sink)) read_stream(stream);
        }
        if (polled[AT_SIGNALS].revents) read_signals(job);
    }
    check_sinks(job);
    check_clock(job);
}

/* Write out all that is still in pipes and sinks.  All who could write are gone, so what a pipe
 * holds now is all there is: an empty one is at its end even if a stranger keeps it open.  A
 * hurried job waits for its reader until STALL_MS after `start_ms` or after the last byte taken. */
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
        for (int i = 0; i < 2; i++) {
            done = done && job->sinks[i].waiting.length == 0;
            if (job->sinks[i].moved_at_ms > moved) moved = job->sinks[i].moved_at_ms;
        }
        if (done) return;
        if (job->hurried && now_ms() >= moved + STALL_MS) return;
        serve(job, job->hurried ? moved + STALL_MS : 0);
    }
}

/* ---- >>leftovers: processes that ranks have started and not ended ---- */

/* Kill our children.  Whoever loses its parent among our descendants becomes one of them. */
static void kill_children(void)
{
    DIR *processes = opendir("/proc");

    if (!processes) return;
    for (struct dirent *entry; (entry = readdir(processes)) != NULL;) {
        char path[300], stat[512];
        int parent;
        if (!isdigit((unsigned char)entry->d_name[0])) continue;
        snprintf(path, sizeof path, "/proc/%s/stat", entry->d_name);
        const int fd = open(path, O_RDONLY | O_CLOEXEC);
        if (fd < 0) continue;
        const ssize_t length = read(fd, stat, sizeof stat - 1);
        close(fd);
        if (length <= 0) continue;
        stat[length] = '\0';
        const char *name_end = strrchr(stat, ')');      /* the name may hold anything, even ") " */
        if (name_end && sscanf(name_end + 1, " %*c %d", &parent) == 1 && parent == (int)getpid()) {
            kill((pid_t)strtol(entry->d_name, NULL, 10), SIGKILL);
        }
    }
    closedir(processes);
}

/* All ranks have ended: end whatever they have left, the keeper included. */
static void kill_leftovers(struct job *job)
{
    const int64_t give_up = now_ms() + KILL_MS;

    signal_ranks(job, SIGKILL);
    if (job->keeper) waitpid(job->keeper, NULL, 0);
    job->keeper = 0;
    for (;;) {
        pid_t pid;
        while ((pid = waitpid(-1, NULL, WNOHANG)) > 0) continue;
        if (pid < 0 || now_ms() > give_up) return;
        kill_children();
        poll(NULL, 0, 2);
    }
}

/* ---- >>starting ---- */

/* A missing 0, 1 or 2 would be given to the next thing we open, and ranks would write into that. */
static void fill_standard_files(void)
{
    int fd;

    do fd = open("/dev/null", O_RDWR); while (fd >= 0 && fd <= STDERR_FILENO);
    if (fd < 0) die("cannot open /dev/null");
    close(fd);
}

/* Returns a port that is ours until we end: nobody closes the socket. */
static int hold_port(void)
{
    struct sockaddr_in address = { .sin_family = AF_INET, .sin_addr = { htonl(INADDR_LOOPBACK) } };
    socklen_t length = sizeof address;
    const int holder = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), yes = 1;

    if (holder < 0 || setsockopt(holder, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) ||
        bind(holder, (struct sockaddr *)&address, sizeof address) ||
        getsockname(holder, (struct sockaddr *)&address, &length)) {
        die("no free port on 127.0.0.1");
    }
    return ntohs(address.sin_port);
}

/* Signals that we were told to ignore (nohup, a shell's background job) stay ignored, for us and
 * for the ranks. */
static void catch_signals(struct job *job)
{
    static const int caught[] = { SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGTSTP };
    const struct sigaction ignore = { .sa_handler = SIG_IGN }, usual = { .sa_handler = SIG_DFL };
    sigset_t handled;

    sigemptyset(&handled);
    sigaddset(&handled, SIGCHLD);
    sigaddset(&handled, SIGCONT);
    for (size_t i = 0; i < sizeof caught / sizeof *caught; i++) {
        struct sigaction now;
        sigaction(caught[i], NULL, &now);
        if (now.sa_handler != SIG_IGN) sigaddset(&handled, caught[i]);
    }
    sigprocmask(SIG_BLOCK, &handled, &job->mask_before);
    sigaction(SIGPIPE, &ignore, &job->pipe_before);
    sigaction(SIGCHLD, &usual, &job->child_before);
    job->signals = signalfd(-1, &handled, SFD_NONBLOCK | SFD_CLOEXEC);
    if (job->signals < 0) die("signalfd");
}

/* The keeper does nothing until the other end of the lifeline is closed, that is, until coll-run is
 * no more. */
static void start_keeper(struct job *job)
{
    int lifeline[2];

    if (pipe2(lifeline, O_CLOEXEC)) die("pipe");
    job->keeper = fork();
    if (job->keeper < 0) die("fork");
    if (job->keeper == 0) {
        sigset_t all;
        char byte;
        sigfillset(&all);
        sigprocmask(SIG_SETMASK, &all, NULL);
        if (setpgid(0, 0)) _exit(EXIT_FAILURE);
        prctl(PR_SET_NAME, "coll-run keeper");
        close(lifeline[1]);
        while (read(lifeline[0], &byte, 1) < 0 && errno == EINTR) continue;
        kill(-getpid(), SIGKILL);
        _exit(EXIT_SUCCESS);
    }
    setpgid(job->keeper, job->keeper);
    close(lifeline[0]);
}

/* The child: turn into the rank.  `input` is -1 if rank 0 is to have ours.  Returns only if it
 * fails, with errno. */
static void become_rank(struct job *job, int at, const int out[2], int input)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != job->launcher) _exit(EXIT_FAILURE);    /* it died before we asked */
    setpgid(0, job->keeper);

    if (at > 0) {
        close(STDIN_FILENO);                    /* and open takes the lowest number that is free */
        if (open("/dev/null", O_RDONLY) < 0) return;
    }
    if (input >= 0 && dup2(input, STDIN_FILENO) < 0) return;
    if (dup2(out[0], STDOUT_FILENO) < 0 || dup2(out[1], STDERR_FILENO) < 0) return;

    setrlimit(RLIMIT_NOFILE, &job->files_before);
    sigaction(SIGPIPE, &job->pipe_before, NULL);
    sigaction(SIGCHLD, &job->child_before, NULL);
    sigprocmask(SIG_SETMASK, &job->mask_before, NULL);
    environ = job->environment.list;
    execvp(job->options.program[0], job->options.program);
}

/* Open the pipes of a rank: our ends do not block, its ends do.  Returns false, with errno, if
 * there are none left. */
static bool open_pipes(struct job *job, int at, int theirs[2], int *input)
{
    const int width = snprintf(NULL, 0, "%d", job->options.size - 1);
    int ends[2];

    for (int i = 0; i < 2; i++) {
        struct stream *stream = &job->ranks[at].out[i];
        if (pipe2(ends, O_CLOEXEC)) return false;
        theirs[i] = ends[1];
        fcntl(ends[0], F_SETFL, O_NONBLOCK);
        stream->fd = ends[0];
        stream->sink = i ? job->err : &job->sinks[0];
        if (!job->options.raw) snprintf(stream->prefix, sizeof stream->prefix, "[%*d] ", width, at);
    }
    if (at == 0 && isatty(STDIN_FILENO)) {
        if (pipe2(ends, O_CLOEXEC)) return false;
        *input = ends[0];
        job->input = ends[1];
        fcntl(job->input, F_SETFL, O_NONBLOCK);
    }
    return true;
}

/* Start the next rank.  If that fails the job is to end. */
static void start_rank(struct job *job)
{
    const int at = job->started;
    struct rank *rank = &job->ranks[at];
    int theirs[2] = { -1, -1 }, input = -1;
    pid_t pid = -1;

    set_variable(&job->environment, "COLL_RANK=%d", at);
    set_variable(&job->environment, "COLL_LOCAL_RANK=%d", at);
    if (open_pipes(job, at, theirs, &input)) pid = fork();
    if (pid == 0) {
        become_rank(job, at, theirs, input);
        const int error = errno;
        const ssize_t written = write(job->trouble[1], &error, sizeof error);
        _exit(written > 0 ? EXIT_NOT_FOUND : EXIT_FAILURE);
    }

    const int error = errno;
    for (int i = 0; i < 2; i++) {
        if (theirs[i] >= 0) close(theirs[i]);
    }
    if (input >= 0) close(input);
    if (pid < 0) {
        say(job->err, "cannot start rank %d: %s%s", at, strerror(error),
            error == EMFILE ? " (ulimit -n says how many)" : "");
        job->verdict = EXIT_FAILURE;
        kill_now(job);
        return;
    }
    if (job->keeper) setpgid(pid, job->keeper);     /* as the child does: whoever comes first */
    rank->pid = pid;
    rank->running = true;
    rank->started_ms = now_ms();
    job->started++;
    job->alive++;
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
    start_keeper(job);
    build_environment(&job->environment, &job->options, hold_port());
    job->err = open_sinks(job->sinks);
    if (pipe2(job->trouble, O_CLOEXEC | O_NONBLOCK)) die("pipe");
    job->ranks = must(calloc((size_t)job->options.size, sizeof *job->ranks));
    job->polled = must(calloc(AT_STREAMS + 2 * (size_t)job->options.size, sizeof *job->polled));
    if (job->options.timeout_ms) job->timeout_at_ms = now_ms() + job->options.timeout_ms;
}

/* End by the signal that ended the job, so that a shell sees it and a script stops at Ctrl-C.  We
 * have blocked it, but neither caught nor ignored it. */
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
    static struct job job = { .verdict = -1, .input = -1 };

    fill_standard_files();
    parse_options(&job.options, argc, argv);
    prepare(&job);
    while (job.started < job.options.size && job.verdict < 0) {
        start_rank(&job);
        read_trouble(&job);
    }

    while (job.alive > 0) serve(&job, 0);
    const int64_t ended_ms = now_ms(), until_ms = ended_ms + LEFTOVER_MS;
    while (has_open_streams(&job) && !job.hurried && now_ms() < until_ms) serve(&job, until_ms);
    kill_leftovers(&job);
    drain(&job, ended_ms);
    report_others(&job);
    drain(&job, ended_ms);

    if (job.death) die_of(job.death);
    return job.verdict < 0 ? EXIT_SUCCESS : job.verdict;
}
