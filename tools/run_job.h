/* run_job.h - part of coll-run.c: the job, how it is stopped, and what is said of it.
 *
 * A job has ranks here, ranks on other hosts, or both.  Each host that this launcher answers for has a struct host, and a link
 * to the launcher there.  A launcher that answers to another one has a link `up`: it starts ranks, hands on signals and says
 * how ranks end; that other one, the hub, decides what follows from it.
 */
#ifndef RUN_JOB_H
#define RUN_JOB_H

enum {
    NOTICE_MS   = 3000,         /* after a failure: for the others to notice by themselves   */
    FORWARD_MS  = 1000,         /* after a forwarded signal: before SIGTERM follows          */
    TERM_MS     = 2000,         /* after SIGTERM: before SIGKILL                             */
    KILL_MS     = 5000,         /* after SIGKILL: before coll-run stops waiting for the kernel */
    LEFTOVER_MS = 1000,         /* after the last rank: for others who hold the pipes open   */
    STALL_MS    = 1000,         /* an ended job gives up on a reader that takes nothing for this */
    QUIET_MS    = 100,          /* raw output: unfinished lines are passed on after it       */
    FIRST_MS    = 300,          /* several hosts: for the news of a crash to come            */
    SILENT_MS   = 10000,        /* all ranks have ended: for the other launchers to end, too */
    REPORT_MS   = 5000,         /* between two lines on who has not come yet                 */
    GUEST_MS    = 10000         /* for who has come to say who it is                         */
};

enum { WHO_ROOM = 300, LISTENERS = 4, INPUT_WINDOW = 64 << 10, COMPLAINTS = 20, UNKNOWN_MOST = 16 };

enum host_state {
    HOST_CALLED,                /* there is a connection                                     */
    HOST_CHALLENGED,            /* --join: it is to prove that it knows the key              */
    HOST_READY,                 /* it waits for the others to be                             */
    HOST_RUNS,                  /* its ranks are started                                     */
    HOST_GONE,                  /* there is no connection any more                           */
    HOST_REFUSED                /* --join: and it never had ranks                            */
};

/* Another launcher, and the ranks that it starts. */
struct host {
    enum host_state state;
    char *name;                 /* for people                                                */
    char *target;               /* what ssh is given                                         */
    pid_t pid;                  /* of ssh; 0: none                                           */
    int status;                 /* how that ended; -1: it runs                               */
    int first, count;           /* processes                                                 */
    struct link link;
    struct stream errors;       /* what ssh says, and the launcher there of itself           */
    int64_t until_ms;           /* it is to have said who it is; 0: no bound                 */
    char *root, *seen, *machine, *port;     /* what it says of itself (run_hosts.h)          */
    struct bytes hello, nonce;  /* of the handshake (run_join.h)                             */
};

struct rank {
    struct host *host;              /* NULL: it is here                                      */
    pid_t pid;
    bool running, reported;
    int status;                     /* as waitpid gives it                                   */
    int64_t started_ms, ran_ms;
    struct stream out[2];
};

/* What to do next to ranks that still run once the job is to end. */
enum stage { STAGE_RUN, STAGE_TERM, STAGE_KILL, STAGE_ABANDON };

/* There is one, and what it owns it owns to the end: nothing is freed. */
struct job {
    struct options options;
    struct words environment;
    const char *own_path;           /* of this program                                       */
    char own_name[256];             /* of this host                                          */
    pid_t launcher, keeper;         /* keeper 0: gone                                        */
    int orders;                     /* to the keeper; -1: none                               */
    int signals;                    /* signalfd                                              */
    int trouble[2];                 /* a pipe: errno of a child that cannot execute the program */
    sigset_t mask_before;
    struct sigaction pipe_before, child_before;
    struct rlimit files_before;

    struct rank *ranks;             /* process options.first + i of the job                  */
    int started;                    /* ranks[0 .. started) exist,                            */
    int alive;                      /* and so many of them run                               */
    struct sink sinks[2];           /* standard output, standard error                       */
    struct sink *err;               /* sinks[0] if both lead to the same place               */
    struct pollfd *polled;
    size_t polled_room;

    struct host **hosts;
    int host_count;
    struct link up;                 /* to the launcher that decides; .in -1: we do           */
    bool may_go, is_told;           /* it has said: start; how the job ends                  */
    struct bytes hello;             /* what we said to it (run_join.h)                       */
    bool is_proved;                 /* and it knows our key                                  */
    int complaints;                 /* about others, so far                                  */
    int64_t heard_ms;               /* when something last came from a host                  */
    int listeners[LISTENERS];       /* --join, where others come; -1: none                   */

    int input;                      /* to rank 0 if it does not read our input itself, else -1 */
    struct bytes typed;             /* what it has not taken yet                             */
    bool input_ended;               /* there is no more than that                            */
    size_t in_flight;               /* bytes of input on their way to another host           */

    enum stage stage;
    int64_t timeout_at_ms, stage_at_ms, wait_until_ms, report_at_ms, progress_at_ms;   /* 0: not set */
    int suspect;                    /* the rank that may have failed first; -1: none         */
    int lost;                       /* the rank that failed first, and the others went on; -1: none */
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

/* To the launchers that print a sentence of their own: those of --join. */
static void tell_verdict(struct job *job, const char *text)
{
    struct bytes body = { 0 };

    for (int i = 0; i < job->host_count; i++) {
        struct host *host = job->hosts[i];
        if (job->options.role != ROLE_JOIN || host->link.in < 0 || host->state < HOST_READY) continue;
        put_word(&body, "verdict=%d", job->verdict < 0 ? 0 : job->verdict);
        put_word(&body, "text=%s", text);
        send_words(&host->link, FRAME_VERDICT, 0, &body);
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

/* Signal the ranks here.  A head has none: it has only the programs that connect it to others, which carry its signals. */
static void signal_own_ranks(const struct job *job, int signal)
{
    if (job->orders >= 0 && job->options.role != ROLE_HEAD) order_signal(job, signal);
}

/* Signal all ranks of the job that this launcher answers for. */
static void signal_ranks(struct job *job, int signal)
{
    struct bytes body = { 0 };

    signal_own_ranks(job, signal);
    for (int i = 0; i < job->host_count; i++) {
        struct host *host = job->hosts[i];
        if (host->state == HOST_RUNS) send_words(&host->link, FRAME_SIGNAL, (uint32_t)signal, &body);
    }
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

/* The job has failed, or ends for another reason: this is the exit status of all launchers, and the sentence that they print.
 * Later reasons do not count.  --quiet suppresses those that are no trouble of coll-run itself. */
static RUN_PRINTF(4, 5) void decide(struct job *job, int verdict, bool is_report, const char *format, ...)
{
    va_list arguments;

    if (job->verdict >= 0) return;
    va_start(arguments, format);
    char *text = format_text(format, arguments);
    va_end(arguments);
    job->verdict = verdict;
    if (!is_report || !job->options.quiet) say(job->err, "%s", text);
    tell_verdict(job, text);
    free(text);
}

static void report_first(struct job *job, int at)
{
    struct rank *rank = &job->ranks[at];
    const bool killed = WIFSIGNALED(rank->status) && WTERMSIG(rank->status) == SIGKILL;
    char how[128], who[WHO_ROOM];

    job->summary = true;
    rank->reported = true;
    /* Its last words belong before ours. */
    for (int i = 0; i < 2; i++) drain_stream(&rank->out[i]);
    describe(rank->status, threads_of(job) > 1, how, sizeof how);
    decide(job, exit_status(rank->status), true, "%s %s after %.1f s%s", name_rank(job, at, who), how,
           (double)rank->ran_ms / 1000.0, killed ? ", perhaps for lack of memory" : "");
    *strstr(who, " (") = '\0';
    if (!job->options.quiet && !job->options.raw) repeat_tail(&rank->out[rank->out[1].tail.length > 0], job->err, who);
    begin_stop(job, NOTICE_MS);
}

/* A rank has failed, and the others go on (--survive). */
static void report_lost(struct job *job, int at)
{
    struct rank *rank = &job->ranks[at];
    char how[128], who[WHO_ROOM];

    for (int i = 0; i < 2; i++) drain_stream(&rank->out[i]);
    describe(rank->status, threads_of(job) > 1, how, sizeof how);
    if (!job->options.quiet) {
        say(job->err, "%s %s after %.1f s; the others go on", name_rank(job, at, who), how, (double)rank->ran_ms / 1000.0);
    }
    if (job->lost < 0) job->lost = at;
}

/* All ranks have ended, of which some were lost: the job has gone well if any of them has. */
static void judge_survivors(struct job *job)
{
    for (int i = 0; i < job->started; i++) if (job->ranks[i].status == 0) return;
    decide(job, exit_status(job->ranks[job->lost].status), true, "no rank has ended well");
}

/* A rank that failed and may be the first.  Several may end between two looks, and nobody says which was first.  A rank that a
 * signal killed is then taken for the cause: survivors notice a failure and exit, they do not crash.  On several hosts the news
 * of the cause may come after those of its effects, so a little is waited for it. */
static void suspect(struct job *job, int at)
{
    const int known = job->suspect;
    const bool crashed = WIFSIGNALED(job->ranks[at].status);

    if (job->verdict >= 0 || job->up.in >= 0) return;
    if (job->options.survive) {
        report_lost(job, at);
        return;
    }
    if (known < 0) job->report_at_ms = now_ms() + (job->host_count > 0 ? FIRST_MS : 0);
    if (known < 0 || (crashed && !WIFSIGNALED(job->ranks[known].status))) job->suspect = at;
    if (crashed) job->report_at_ms = now_ms();
}

static void report_suspect(struct job *job)
{
    if (job->suspect < 0 || job->verdict >= 0) return;
    report_first(job, job->suspect);
    job->report_at_ms = 0;
}

/* A rank has ended: what follows is the hub's to decide. */
static void note_end(struct job *job, int at, int status, int64_t ran_ms)
{
    struct rank *rank = &job->ranks[at];
    struct bytes body = { 0 };

    if (!rank->running) return;
    rank->running = false;
    rank->status = status;
    rank->ran_ms = ran_ms;
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
    if (status != 0) suspect(job, at);
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

#endif /* RUN_JOB_H */
