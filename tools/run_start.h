/* run_start.h - part of coll-run.c: starting ranks on this machine.
 *
 * The keeper, the held port, pipes, and what a child does before it turns into the rank: coll-run.c
 * says why.
 */
#ifndef RUN_START_H
#define RUN_START_H

/* ---- >>ground: descriptors, ports, signals, the keeper ---- */

/* A missing 0, 1 or 2 would be given to the next thing we open, and ranks would write into that. */
static void fill_standard_files(void)
{
    int fd;

    do fd = open("/dev/null", O_RDWR); while (fd >= 0 && fd <= STDERR_FILENO);
    if (fd < 0) die("cannot open /dev/null");
    close(fd);
}

/* The value that a rank finds in a variable, or NULL. */
static const char *rank_variable(const struct options *asked, const char *name)
{
    const size_t length = strlen(name);

    for (size_t i = asked->settings.count; i > 0; i--) {
        const char *setting = asked->settings.list[i - 1];
        if (strncmp(setting, name, length) == 0 && setting[length] == '=') return setting + length + 1;
    }
    return getenv(name);
}

/* A socket bound to a port that nobody uses, or to the given one; -1 if there is none. */
static int bind_port(const struct sockaddr *address, socklen_t length, int port)
{
    struct sockaddr_storage at = { 0 };
    const int holder = socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0), yes = 1, no = 0;

    memcpy(&at, address, length);
    if (at.ss_family == AF_INET) ((struct sockaddr_in *)&at)->sin_port = htons((in_port_t)port);
    else ((struct sockaddr_in6 *)&at)->sin6_port = htons((in_port_t)port);
    if (holder < 0) return -1;
    if (at.ss_family == AF_INET6) setsockopt(holder, IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof no);
    if (setsockopt(holder, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) || bind(holder, (struct sockaddr *)&at, length)) {
        close(holder);
        return -1;
    }
    return holder;
}

/* A port that is ours until we end, for nobody closes the socket: on all addresses, or on the loopback one; within COLL_PORTS
 * if that is set.  Returns 0 if there is none. */
static int hold_port(const struct options *asked, bool everywhere)
{
    const struct sockaddr_in here = { .sin_family = AF_INET, .sin_addr = { htonl(everywhere ? INADDR_ANY : INADDR_LOOPBACK) } };
    const struct sockaddr_in6 wide = { .sin6_family = AF_INET6 };
    const char *range = rank_variable(asked, "COLL_PORTS");
    int low = 0, high = 0, holder = -1;
    struct sockaddr_storage got;
    socklen_t length = sizeof got;

    if (range && *range && (sscanf(range, "%d-%d", &low, &high) != 2 || low < 1 || high < low || high > 65535)) low = high = 0;
    for (int port = low; holder < 0 && port <= high; port++) {
        if (everywhere) holder = bind_port((const struct sockaddr *)&wide, sizeof wide, port);
        if (holder < 0) holder = bind_port((const struct sockaddr *)&here, sizeof here, port);
    }
    if (holder < 0 || getsockname(holder, (struct sockaddr *)&got, &length)) return 0;
    return ntohs(got.ss_family == AF_INET ? ((struct sockaddr_in *)&got)->sin_port : ((struct sockaddr_in6 *)&got)->sin6_port);
}

/* "host:port", "[v6]:port".  The caller owns it. */
static char *join_address(const char *host, int port)
{
    char *text = must(malloc(strlen(host) + 16));

    sprintf(text, strchr(host, ':') ? "[%s]:%d" : "%s:%d", host, port);
    return text;
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

/* ---- >>ranks ---- */

/* What every child does first: it dies with us, and is in the keeper's group. */
static void prepare_child(const struct job *job)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != job->launcher) _exit(EXIT_FAILURE);    /* it died before we asked */
    setpgid(0, job->keeper);
}

/* And last: it gets back what we have changed for ourselves. */
static void release_child(const struct job *job)
{
    setrlimit(RLIMIT_NOFILE, &job->files_before);
    sigaction(SIGPIPE, &job->pipe_before, NULL);
    sigaction(SIGCHLD, &job->child_before, NULL);
    sigprocmask(SIG_SETMASK, &job->mask_before, NULL);
}

/* The child: turn into the rank.  `input` is -1 if rank 0 is to have ours.  Returns only if it
 * fails, with errno. */
static void become_rank(struct job *job, int at, const int out[2], int input)
{
    cpu_set_t cores;

    prepare_child(job);
    if (job->options.first + at > 0) {
        close(STDIN_FILENO);                    /* and open takes the lowest number that is free */
        if (open("/dev/null", O_RDONLY) < 0) return;
    }
    if (input >= 0 && dup2(input, STDIN_FILENO) < 0) return;
    if (dup2(out[0], STDOUT_FILENO) < 0 || dup2(out[1], STDERR_FILENO) < 0) return;

    release_child(job);
    if (job->options.bind && share_of_cores(at, job->options.count, &cores)) sched_setaffinity(0, sizeof cores, &cores);
    environ = job->environment.list;
    execvp(job->options.program[0], job->options.program);
}

/* "[ 3] ", "[ 3 host-b] ". */
static char *make_prefix(const struct job *job, int at, const char *host)
{
    const int width = snprintf(NULL, 0, "%d", job->options.size * threads_of(job) - 1);
    char *text;

    if (job->options.raw) return must(strdup(""));
    must(asprintf(&text, "[%*d%s%s] ", width, (job->options.first + at) * threads_of(job), host ? " " : "", host ? host : "") < 0
         ? NULL : text);
    return text;
}

/* Where what process `at` writes goes to; `host` is in the prefix unless it is NULL. */
static void open_streams(struct job *job, int at, const char *host)
{
    struct rank *rank = &job->ranks[at];
    const bool is_agent = job->options.role == ROLE_AGENT;
    const int number = job->options.first + at;
    int log = 0;

    if (job->options.log_dir) {
        char *path;
        must(asprintf(&path, "%s/rank-%d.log", job->options.log_dir, number * threads_of(job)) < 0 ? NULL : path);
        log = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0666);
        if (log < 0) decide(job, EXIT_FAILURE, false, "cannot write to %s: %s", path, strerror(errno));
        free(path);
    }
    for (int i = 0; i < 2; i++) {
        struct stream *stream = &rank->out[i];
        stream->fd = -1;
        stream->log = log;
        stream->sink = is_agent ? &job->up.out : i ? job->err : &job->sinks[0];
        stream->framed = is_agent ? 1 + 2 * (uint32_t)number + (uint32_t)i : 0;
        stream->prefix = make_prefix(job, at, host);
    }
}

/* Open the pipes of a rank: our ends do not block, its ends do.  Returns false, with errno, if
 * there are none left. */
static bool open_pipes(struct job *job, int at, int theirs[2], int *input)
{
    const bool is_agent = job->options.role == ROLE_AGENT;
    int ends[2];

    open_streams(job, at, NULL);
    for (int i = 0; i < 2; i++) {
        if (pipe2(ends, O_CLOEXEC)) return false;
        theirs[i] = ends[1];
        fcntl(ends[0], F_SETFL, O_NONBLOCK);
        job->ranks[at].out[i].fd = ends[0];
    }
    if (job->options.first + at == 0 && (is_agent || isatty(STDIN_FILENO))) {
        if (pipe2(ends, O_CLOEXEC)) return false;
        *input = ends[0];
        job->input = ends[1];
        fcntl(job->input, F_SETFL, O_NONBLOCK);
    }
    return true;
}

/* The job cannot go on, for a reason that shows here: its launcher is told, if that is another one. */
static void give_up(struct job *job, int verdict, const char *text)
{
    struct bytes body = { 0 };

    if (job->up.in >= 0) {
        put_word(&body, "verdict=%d", verdict);
        put_word(&body, "text=%s", text);
        send_words(&job->up, FRAME_TROUBLE, 0, &body);
        free(body.data);
        if (job->verdict < 0) job->verdict = verdict;
    } else {
        decide(job, verdict, false, "%s", text);
    }
    kill_now(job);
}

/* Start the next rank.  If that fails the job is to end. */
static void start_rank(struct job *job)
{
    const int at = job->started;
    struct rank *rank = &job->ranks[at];
    int theirs[2] = { -1, -1 }, input = -1;
    pid_t pid = -1;

    set_variable(&job->environment, "COLL_RANK=%d", (job->options.first + at) * threads_of(job));
    set_variable(&job->environment, "COLL_LOCAL_RANK=%d", at * threads_of(job));
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
        char text[200];
        snprintf(text, sizeof text, "cannot start rank %d: %s%s", (job->options.first + at) * threads_of(job), strerror(error),
                 error == EMFILE ? " (ulimit -n says how many)" : "");
        give_up(job, EXIT_FAILURE, text);
        return;
    }
    if (job->keeper) setpgid(pid, job->keeper);     /* as the child does: whoever comes first */
    rank->pid = pid;
    rank->running = true;
    rank->started_ms = now_ms();
    job->started++;
    job->alive++;
    if (job->up.in >= 0) {
        struct bytes body = { 0 };
        put_word(&body, "pid=%d", (int)pid);
        send_words(&job->up, FRAME_BEGUN, (uint32_t)(job->options.first + at), &body);
        free(body.data);
    }
}

#endif /* RUN_START_H */
