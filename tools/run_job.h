/* run_job.h - part of coll-run.c: the job, how it is stopped, and reports.
 *
 * A job has local ranks, ranks on other hosts, or both.  A launcher has a struct host for each other launcher that it directs,
 * with a link to it.  A directed launcher has a link `up` to the main launcher.  It starts ranks, forwards signals
 * and reports how ranks end; the main launcher decides how the job ends. */
#ifndef RUN_JOB_H
#define RUN_JOB_H

enum {
    NOTICE_MS   = 3000,         /* after a failure: the other ranks may detect it            */
    FORWARD_MS  = 1000,         /* after a forwarded signal: until SIGTERM                   */
    TERM_MS     = 2000,         /* after SIGTERM: until SIGKILL                              */
    KILL_MS     = 5000,         /* after SIGKILL: until coll-run stops waiting               */
    LEFTOVER_MS = 1000,         /* after the last rank: other processes may hold pipes       */
    STALL_MS    = 1000,         /* after the job: limit for a reader that takes nothing      */
    QUIET_MS    = 100,          /* raw output: until an unfinished line is written           */
    FIRST_MS    = 300,          /* several hosts: a report of a crash may arrive later       */
    SILENT_MS   = 10000,        /* after all ranks: until other launchers end                */
    REPORT_MS   = 5000,         /* interval of lines about missing launchers                 */
    JOINER_MS    = 10000,       /* limit for the handshake of a launcher                     */
    AGAIN_MS    = 1000,         /* --elastic: until a lost host is called again, at first    */
    AGAIN_MOST_MS = 60000       /* and at most                                               */
};

enum { WHERE_ROOM = 300, WHO_ROOM = 300, LISTENERS = 4, INPUT_WINDOW = 64 << 10, COMPLAINTS = 20, UNKNOWN_MOST = 16 };

enum host_state {
    HOST_CALLED,                /* connected                                                 */
    HOST_CHALLENGED,            /* --join: must prove the key                                */
    HOST_READY,                 /* waits for the other hosts                                 */
    HOST_RUNS,                  /* its ranks were started                                    */
    HOST_GONE,                  /* disconnected                                              */
    HOST_REFUSED                /* --join: disconnected, and never had ranks                 */
};

/* Another launcher, and the ranks that it starts. */
struct host {
    enum host_state state;
    char *name;                 /* for messages                                              */
    char *target;               /* passed to ssh                                             */
    pid_t pid;                  /* of ssh; 0: none                                           */
    int status;                 /* of ssh, as from waitpid; -1: it runs                      */
    int first, count;           /* processes                                                 */
    struct link link;
    struct stream errors;       /* errors of ssh and of the launcher there                   */
    int64_t until_ms;           /* limit for the handshake; 0: none                          */
    char *root, *seen, *machine, *port, *ports;     /* reported by it (run_hosts.h)          */
    struct bytes hello, nonce;  /* of the handshake (run_join.h)                             */
    bool is_late;               /* --elastic: it has come after the start                    */
    int64_t again_at_ms, again_ms;      /* --elastic: when it is called again (0: never), and how long after the loss */
};

struct rank {
    struct host *host;              /* NULL: local                                           */
    pid_t pid;
    bool running, reported;
    int status;                     /* of waitpid                                            */
    int64_t started_ms, ran_ms;
    struct stream out[2];

    bool is_member;                 /* --elastic: it has been in the job, and                */
    bool has_left;                  /* has left it in order: not to be started again         */
    bool is_wanted;                 /* to be started here, once its last output has been read */
    char where[WHERE_ROOM];         /* COLL_ADDR of a process that joins; "": of a first one */
    int joined;                     /* it writes there once it has joined; -1: nothing       */
    int port;                       /* where it listens                                      */
    int age;                        /* the number of its start                               */
    int64_t ended_ms;
};

/* The next step against ranks that still run when the job must end. */
enum stage { STAGE_RUN, STAGE_TERM, STAGE_KILL, STAGE_ABANDON };

/* One per program; nothing in it is freed. */
struct job {
    struct options options;
    struct words environment;
    const char *own_path;           /* of this program                                       */
    char own_name[256];             /* of this host                                          */
    pid_t launcher, keeper;         /* keeper 0: gone                                        */
    int orders;                     /* to the keeper; -1: none                               */
    int signals;                    /* signalfd                                              */
    int trouble[2];                 /* pipe: errno of a failed exec                          */
    sigset_t mask_before;
    struct sigaction pipe_before, child_before;
    struct rlimit files_before;

    struct rank *ranks;             /* process options.first + i of the job                  */
    int started;                    /* ranks[0 .. started) exist,                            */
    int alive;                      /* number of these that run                              */
    struct sink sinks[2];           /* standard output, standard error                       */
    struct sink *err;               /* sinks[0] if both lead to the same place               */
    struct pollfd *polled;
    size_t polled_room;

    struct host **hosts;
    int host_count;
    struct link up;                 /* to the main launcher; .in -1: this is it              */
    bool may_go, is_known;          /* received: start; how the job ends                     */
    struct bytes hello;             /* sent to it (run_join.h)                               */
    bool is_proved;                 /* it has proved the key                                 */
    int complaints;                 /* number of lines about refused launchers               */
    int64_t heard_ms;               /* time of the last data from a host                     */
    int listeners[LISTENERS];       /* for --join; -1: none                                  */

    int input;                      /* to rank 0, if it does not read our input itself; -1: none */
    struct bytes typed;             /* not yet taken by it                                   */
    bool input_ended;               /* no more will follow                                   */
    size_t in_flight;               /* bytes of input in flight to another host              */

    enum stage stage;
    int64_t timeout_at_ms, stage_at_ms, wait_until_ms, report_at_ms, progress_at_ms, wanted_at_ms;  /* 0: not set */
    int suspect;                    /* the rank that may have failed first; -1: none         */
    int lost;                       /* the first rank that failed with --survive; -1: none   */

    int capacity;                   /* of ranks                                              */
    int target;                     /* --elastic: processes that there should be             */
    int restarted, starts;          /* processes: started again; started                     */
    int unfilled;                   /* -H: slots that were missing at the start              */
    int next_number;                /* of the slots of a launcher that comes later           */
    int lost_status;                /* exit status of the last one that failed               */
    bool has_begun, has_finished;   /* ranks were started; one has ended well                */
    char own_address[128];          /* of this host, for others; "": 127.0.0.1               */
    int result;                   /* our exit status; -1: no failure so far                */
    int death;                      /* the signal that ends this process; 0: none            */
    bool hurried;                   /* do not wait for a reader that does not read           */
    bool summary;                   /* report how the other ranks ended                      */
};

/* All 2 * started streams by one index. */
static struct stream *stream_of(const struct job *job, int at)
{
    return &job->ranks[at / 2].out[at % 2];
}

static bool is_elastic(const struct job *job) { return job->options.most > 0; }

/* Send the result to launchers that print it themselves, those of --join, and to those that wait for it. */
static void tell_result(struct job *job, const char *text)
{
    struct bytes body = { 0 };

    for (int i = 0; i < job->host_count; i++) {
        struct host *host = job->hosts[i];
        const bool is_joiner = job->options.role == ROLE_JOIN;
        if ((!is_joiner && !is_elastic(job)) || host->link.in < 0 || host->state < HOST_READY) continue;
        put_word(&body, "result=%d", job->result < 0 ? 0 : job->result);
        put_word(&body, "text=%s", is_joiner ? text : "");
        send_words(&host->link, FRAME_RESULT, 0, &body);
    }
    free(body.data);
}

/* ---- >>names ---- */

static int threads_of(const struct job *job)
{
    return job->options.threads ? job->options.threads : 1;
}

/* "rank 3 (pid 71)", "ranks 4-7 (host-b, pid 71)". */
static const char *name_rank(const struct job *job, int at, char who[WHO_ROOM])
{
    const struct rank *rank = &job->ranks[at];
    const int threads = threads_of(job), first = (job->options.first + at) * threads;
    const char *host = rank->host ? rank->host->name : job->host_count > 0 ? job->own_name : NULL;
    int length;

    if (threads > 1) length = snprintf(who, WHO_ROOM, "ranks %d-%d (", first, first + threads - 1);
    else length = snprintf(who, WHO_ROOM, "rank %d (", first);
    snprintf(who + length, WHO_ROOM - (size_t)length, "%.200s%spid %d)", host ? host : "", host ? ", " : "", (int)rank->pid);
    return who;
}

/* "ranks 2-3", of a host. */
static const char *name_ranks_of(const struct job *job, const struct host *host, char who[WHO_ROOM])
{
    const int first = host->first * threads_of(job), last = first + host->count * threads_of(job) - 1;

    if (last > first) snprintf(who, WHO_ROOM, "ranks %d-%d", first, last);
    else snprintf(who, WHO_ROOM, "rank %d", first);
    return who;
}

/* ---- >>stopping ---- */

static void order_signal(const struct job *job, int signal);
static void take_end(struct job *job, int at);
static void hear_joined(struct job *job, int at);

/* Signal the local ranks.  A head has none; its connecting commands carry its signals. */
static void signal_own_ranks(const struct job *job, int signal)
{
    if (job->orders >= 0 && job->options.role != ROLE_HEAD) order_signal(job, signal);
}

/* Signal all ranks that this launcher directs. */
static void signal_ranks(struct job *job, int signal)
{
    struct bytes body = { 0 };

    signal_own_ranks(job, signal);
    for (int i = 0; i < job->host_count; i++) {
        struct host *host = job->hosts[i];
        if (host->state == HOST_RUNS) send_words(&host->link, FRAME_SIGNAL, (uint32_t)signal, &body);
    }
}

/* End the job: by SIGTERM after `delay_ms`, then by SIGKILL.  A stop under way is never delayed. */
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
        signal_ranks(job, SIGCONT);                 /* a stopped process does not handle signals */
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
            char who[WHO_ROOM];
            if (!rank->running) continue;
            say(job->err, "%s does not die of SIGKILL: left alone", name_rank(job, i, who));
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

/* Does the rank run (status NULL), or has it ended with that status, not yet reported? */
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
    const int threads = threads_of(job);
    int count = 0;
    const char *separator = "";
    FILE *out = must(open_memstream(&text, &length));

    for (int i = 0; i < job->started; i++) count += threads * is_chosen(&job->ranks[i], status);
    fputs(count == 1 ? "rank " : "ranks ", out);
    for (int i = 0; i < job->started; i++) {
        const int first = i;
        while (i < job->started && is_chosen(&job->ranks[i], status)) i++;
        if (i == first) continue;
        const int low = (job->options.first + first) * threads, high = (job->options.first + i) * threads - 1;
        fprintf(out, "%s%d", separator, low);
        if (high > low) fprintf(out, "-%d", high);
        separator = ",";
    }
    if (fclose(out)) must(NULL);
    return text;
}

/* End the job with this exit status for all launchers, and print the sentence.  Only the first call counts.  --quiet
 * suppresses reports (is_report), but not errors of coll-run itself. */
static RUN_PRINTF(4, 5) void decide(struct job *job, int result, bool is_report, const char *format, ...)
{
    va_list arguments;

    if (job->result >= 0) return;
    va_start(arguments, format);
    char *text = format_text(format, arguments);
    va_end(arguments);
    job->result = result;
    if (!is_report || !job->options.quiet) say(job->err, "%s", text);
    tell_result(job, text);
    free(text);
}

static void report_first(struct job *job, int at)
{
    struct rank *rank = &job->ranks[at];
    const bool killed = WIFSIGNALED(rank->status) && WTERMSIG(rank->status) == SIGKILL;
    char how[128], who[WHO_ROOM];

    job->summary = true;
    rank->reported = true;
    /* Its last output precedes this report. */
    for (int i = 0; i < 2; i++) drain_stream(&rank->out[i]);
    describe(rank->status, threads_of(job) > 1, how, sizeof how);
    decide(job, exit_status(rank->status), true, "%s %s after %.1f s%s", name_rank(job, at, who), how,
           (double)rank->ran_ms / 1000.0, killed ? ", perhaps for lack of memory" : "");
    *strstr(who, " (") = '\0';
    if (!job->options.quiet && !job->options.raw) repeat_tail(&rank->out[rank->out[1].tail.length > 0], job->err, who);
    begin_stop(job, NOTICE_MS);
}

/* A rank failed; the others continue (--survive, --elastic). */
static void report_lost(struct job *job, int at, const char *then)
{
    struct rank *rank = &job->ranks[at];
    char how[128], who[WHO_ROOM];

    for (int i = 0; i < 2; i++) drain_stream(&rank->out[i]);
    describe(rank->status, threads_of(job) > 1, how, sizeof how);
    if (!job->options.quiet) {
        say(job->err, "%s %s after %.1f s; %s", name_rank(job, at, who), how, (double)rank->ran_ms / 1000.0, then);
    }
    if (job->lost < 0) job->lost = at;
}

/* All ranks have ended, and some failed: the job succeeds if any rank succeeded. */
static void evaluate_survivors(struct job *job)
{
    for (int i = 0; i < job->started; i++) if (job->ranks[i].status == 0) return;
    decide(job, exit_status(job->ranks[job->lost].status), true, "no rank has ended well");
}

/* A rank failed, and may be the first.  If several end at once, their order is unknown.  A rank killed by a signal is then
 * taken for the cause, for survivors exit and do not crash.  On several hosts the cause may be reported after its effects, so
 * wait a little. */
static void suspect(struct job *job, int at)
{
    const int known = job->suspect;
    const bool crashed = WIFSIGNALED(job->ranks[at].status);

    if (job->result >= 0 || job->up.in >= 0) return;
    if (job->options.survive) {
        report_lost(job, at, "the others go on");
        return;
    }
    if (known < 0) job->report_at_ms = now_ms() + (job->host_count > 0 ? FIRST_MS : 0);
    if (known < 0 || (crashed && !WIFSIGNALED(job->ranks[known].status))) job->suspect = at;
    if (crashed) job->report_at_ms = now_ms();
}

static void report_suspect(struct job *job)
{
    if (job->suspect < 0 || job->result >= 0) return;
    report_first(job, job->suspect);
    job->report_at_ms = 0;
}

/* Record the end of a rank; the main launcher decides what follows. */
static void note_end(struct job *job, int at, int status, int64_t ran_ms)
{
    struct rank *rank = &job->ranks[at];
    struct bytes body = { 0 };

    if (!rank->running) return;
    if (rank->joined >= 0) hear_joined(job, at);
    if (rank->joined >= 0) close(rank->joined);
    rank->joined = -1;
    rank->running = false;
    rank->status = status;
    rank->ran_ms = ran_ms;
    rank->ended_ms = now_ms();
    job->alive--;
    if (job->up.in >= 0) {
        for (int i = 0; i < 2; i++) {
            if (rank->out[i].framed) drain_stream(&rank->out[i]);
        }
        put_word(&body, "status=%d", status);
        put_word(&body, "ms=%lld", (long long)ran_ms);
        send_words(&job->up, FRAME_ENDED, (uint32_t)(job->options.first + at), &body);
        free(body.data);
    }
    if (is_elastic(job)) take_end(job, at);
    else if (status != 0) suspect(job, at);
}

/* Print one line for each status of the other failed ranks. */
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

#endif /* RUN_JOB_H */
