/* run_start.h - part of coll-run.c: starting local ranks, and killing all their leftovers.
 *
 * Held port, pipes, child set-up, and keeper; see coll-run.c.
 *
 * A socket connects coll-run and the keeper.  coll-run sends orders: start a rank, with its pipes, or send a signal.  The
 * keeper reports pids and exit statuses.  The kernel closes the socket when either ends. */
#ifndef RUN_START_H
#define RUN_START_H

/* ---- >>basics: descriptors, ports, signals ---- */

/* Open descriptors 0, 1 and 2 if missing: otherwise a later open would get one, and ranks would write to that file. */
static void fill_standard_files(void)
{
    int fd;

    do fd = open("/dev/null", O_RDWR); while (fd >= 0 && fd <= STDERR_FILENO);
    if (fd < 0) die("cannot open /dev/null");
    close(fd);
}

/* A rank's value of a variable, or NULL. */
static const char *rank_variable(const struct options *asked, const char *name)
{
    const size_t length = strlen(name);

    for (size_t i = asked->settings.count; i > 0; i--) {
        const char *setting = asked->settings.list[i - 1];
        if (strncmp(setting, name, length) == 0 && setting[length] == '=') return setting + length + 1;
    }
    return getenv(name);
}

/* A socket bound to a free port, or to the given one; -1: none. */
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

/* Hold a port until this process ends, for the socket is never closed: on all addresses, or on loopback; within COLL_PORTS, if
 * set.  Returns 0 if none is free. */
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

/* Signals ignored at the start (nohup, background jobs) stay ignored, also in ranks. */
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

/* ---- >>ranks ---- */

/* First in every child: die with the parent, and join the keeper's group. */
static void prepare_child(const struct job *job, pid_t parent)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(EXIT_FAILURE);           /* the parent died before the call above */
    setpgid(0, job->keeper);
}

/* Last in every child: restore what coll-run has changed. */
static void release_child(const struct job *job)
{
    setrlimit(RLIMIT_NOFILE, &job->files_before);
    sigaction(SIGPIPE, &job->pipe_before, NULL);
    sigaction(SIGCHLD, &job->child_before, NULL);
    sigprocmask(SIG_SETMASK, &job->mask_before, NULL);
}

/* In the child, with --elastic: a process listens at its own port.  If it joins (`where`), it reports that at `joined`. */
static void set_elastic(struct job *job, int at, const char *where, int joined)
{
    struct words *words = &job->environment;

    set_variable(words, "COLL_PORTS=%d", job->ranks[at].port);
    if (!*where) return;
    remove_variable(words, "COLL_RANK=");
    remove_variable(words, "COLL_SIZE=");
    set_variable(words, "COLL_ADDR=%s", where);
    set_variable(words, "COLL_JOIN=on");
    set_variable(words, "COLL_JOINED=%d", joined);
    fcntl(joined, F_SETFD, 0);
}

/* In the child: execute the rank.  `ends`: its output, its error output, and its input, or -1 to inherit ours (rank 0); or where
 * it reports that it has joined.  Returns only on failure, with errno. */
static void become_rank(struct job *job, int at, const char *where, const int ends[3])
{
    cpu_set_t cores;

    prepare_child(job, job->keeper);
    if (job->options.first + at > 0 || *where) {
        close(STDIN_FILENO);                    /* open uses the lowest free number          */
        if (open("/dev/null", O_RDONLY) < 0) return;
    }
    if (ends[2] >= 0 && !*where && dup2(ends[2], STDIN_FILENO) < 0) return;
    if (dup2(ends[0], STDOUT_FILENO) < 0 || dup2(ends[1], STDERR_FILENO) < 0) return;

    set_variable(&job->environment, "COLL_RANK=%d", (job->options.first + at) * threads_of(job));
    set_variable(&job->environment, "COLL_LOCAL_RANK=%d", at * threads_of(job));
    if (is_elastic(job)) set_elastic(job, at, where, ends[2]);
    release_child(job);
    if (job->options.bind && share_of_cores(at, job->options.count, &cores)) sched_setaffinity(0, sizeof cores, &cores);
    environ = job->environment.list;
    execvp(job->options.program[0], job->options.program);
}

/* ---- >>keeper: the parent of the local ranks ---- */

/* Messages between coll-run and the keeper. */
enum order { ORDER_START, ORDER_SIGNAL, NEWS_STARTED, NEWS_ENDED };
struct message {
    enum order what;
    int number;                     /* of the rank; or a signal                              */
    int value;                      /* pid or -errno; or the status                          */
    char where[WHERE_ROOM];         /* as in struct rank                                     */
};

/* Kill our children.  Orphaned descendants become our children. */
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
        const char *name_end = strrchr(stat, ')');      /* the name may contain anything, even ") " */
        if (name_end && sscanf(name_end + 1, " %*c %d", &parent) == 1 && parent == (int)getpid()) {
            kill((pid_t)strtol(entry->d_name, NULL, 10), SIGKILL);
        }
    }
    closedir(processes);
}

/* Kill children until there are none, or KILL_MS have passed. */
static void kill_all_children(void)
{
    const int64_t give_up = now_ms() + KILL_MS;

    for (;;) {
        pid_t pid;
        while ((pid = waitpid(-1, NULL, WNOHANG)) > 0) continue;
        if (pid < 0 || now_ms() > give_up) return;
        kill_children();
        poll(NULL, 0, 2);
    }
}

/* Send a message with `count` descriptors.  Returns false if the other end is closed. */
static bool send_message(int fd, struct message m, const int *ends, size_t count)
{
    union { struct cmsghdr head; char room[CMSG_SPACE(3 * sizeof(int))]; } control = { .room = { 0 } };
    struct iovec data = { &m, sizeof m };
    struct msghdr all = { .msg_iov = &data, .msg_iovlen = 1 };

    if (count > 0) {
        all.msg_control = &control;
        all.msg_controllen = CMSG_SPACE(count * sizeof *ends);
        control.head = (struct cmsghdr){ .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS };
        control.head.cmsg_len = CMSG_LEN(count * sizeof *ends);
        memcpy(CMSG_DATA(&control.head), ends, count * sizeof *ends);
    }
    for (;;) {
        if (sendmsg(fd, &all, MSG_NOSIGNAL) >= 0) return true;
        if (errno != EINTR) return false;
    }
}

/* Returns as recvmsg; 0 or less: no message. */
static ssize_t receive_message(int fd, struct message *m, int ends[3], int flags)
{
    union { struct cmsghdr head; char room[CMSG_SPACE(3 * sizeof(int))]; } control;
    struct iovec data = { m, sizeof *m };
    struct msghdr all = { .msg_iov = &data, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control };
    ssize_t length;

    do length = recvmsg(fd, &all, flags | MSG_CMSG_CLOEXEC); while (length < 0 && errno == EINTR);
    for (int i = 0; i < 3; i++) ends[i] = -1;
    const struct cmsghdr *head = length > 0 ? CMSG_FIRSTHDR(&all) : NULL;
    if (head && head->cmsg_type == SCM_RIGHTS) memcpy(ends, CMSG_DATA(head), head->cmsg_len - CMSG_LEN(0));
    return length;
}

static void order_signal(const struct job *job, int signal)
{
    send_message(job->orders, (struct message){ ORDER_SIGNAL, signal, 0, "" }, NULL, 0);
}

/* In the keeper: start rank `at`, and report its pid. */
static void keeper_start(struct job *job, int fd, int at, const char *where, const int ends[3])
{
    const pid_t pid = fork();

    if (pid == 0) {
        become_rank(job, at, where, ends);
        const int error = errno;
        const ssize_t written = write(job->trouble[1], &error, sizeof error);
        _exit(written > 0 ? EXIT_NOT_FOUND : EXIT_FAILURE);
    }
    const int error = errno;
    for (int i = 0; i < 3; i++) {
        if (ends[i] >= 0) close(ends[i]);
    }
    if (pid > 0) {
        setpgid(pid, job->keeper);              /* the child does the same; either may be first */
        job->ranks[at].pid = pid;
        if (job->started <= at) job->started = at + 1;
    }
    send_message(fd, (struct message){ NEWS_STARTED, at, pid > 0 ? (int)pid : -error, "" }, NULL, 0);
}

/* In the keeper: signal the group, and ranks outside it.  SIGKILL goes to all descendants, but not to the keeper. */
static void keeper_signal(const struct job *job, int signal)
{
    if (signal == SIGKILL) {
        kill_children();
        return;
    }
    for (int i = 0; i < job->started; i++) {
        const pid_t pid = job->ranks[i].pid;
        if (pid && getpgid(pid) != job->keeper) kill(pid, signal);
    }
    kill(-job->keeper, signal);                 /* the keeper has blocked it */
}

static void keeper_reap(struct job *job, int fd)
{
    int status;

    for (pid_t pid; (pid = waitpid(-1, &status, WNOHANG)) > 0;) {
        for (int i = 0; i < job->started; i++) {
            if (job->ranks[i].pid != pid) continue;
            job->ranks[i].pid = 0;
            send_message(fd, (struct message){ NEWS_ENDED, i, status, "" }, NULL, 0);
        }
    }
}

/* The keeper: execute orders until coll-run ends or closes its end, then kill all that is left. */
static _Noreturn void keep(struct job *job, int fd)
{
    struct signalfd_siginfo info;
    struct message m;
    sigset_t all, child;
    bool kills = false;
    int ends[3];

    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, NULL);
    job->keeper = getpid();
    if (setpgid(0, 0) || prctl(PR_SET_CHILD_SUBREAPER, 1)) _exit(EXIT_FAILURE);
    prctl(PR_SET_NAME, "coll-run keeper");
    sigemptyset(&child);
    sigaddset(&child, SIGCHLD);
    close(job->signals);
    const int children = signalfd(-1, &child, SFD_NONBLOCK | SFD_CLOEXEC);
    for (;;) {
        struct pollfd p[2] = { { .fd = fd, .events = POLLIN }, { .fd = children, .events = POLLIN } };
        if (poll(p, 2, kills ? 20 : -1) == 0) kill_children();
        while (read(children, &info, sizeof info) > 0) continue;
        keeper_reap(job, fd);
        if (!p[0].revents) continue;
        if (receive_message(fd, &m, ends, 0) <= 0) break;
        if (m.what == ORDER_START) keeper_start(job, fd, m.number, m.where, ends);
        else keeper_signal(job, m.number);
        kills = kills || (m.what == ORDER_SIGNAL && m.number == SIGKILL);
    }
    kill_all_children();
    kill(-job->keeper, SIGKILL);                /* the keeper, too                           */
    _exit(EXIT_SUCCESS);
}

/* Fork the keeper.  All that ranks are started with must be known. */
static void start_keeper(struct job *job)
{
    int ends[2];

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends)) die("socketpair");
    job->keeper = fork();
    if (job->keeper < 0) die("fork");
    if (job->keeper == 0) {
        close(ends[0]);
        keep(job, ends[1]);
    }
    setpgid(job->keeper, job->keeper);
    close(ends[1]);
    job->orders = ends[0];
}

/* ---- >>streams and starts ---- */

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

/* Set the destinations of a process's output; `host` is part of the prefix unless NULL. */
static void open_streams(struct job *job, int at, const char *host)
{
    struct rank *rank = &job->ranks[at];
    const bool is_agent = job->options.role == ROLE_AGENT;
    const int number = job->options.first + at;
    int log = 0;

    if (job->options.log_dir) {
        char *path;
        must(asprintf(&path, "%s/rank-%d.log", job->options.log_dir, number * threads_of(job)) < 0 ? NULL : path);
        if (rank->out[0].log > 0) close(rank->out[0].log);                  /* of the process before it */
        log = open(path, O_WRONLY | O_CREAT | (rank->started_ms ? 0 : O_TRUNC) | O_APPEND | O_CLOEXEC, 0666);
        if (log < 0) decide(job, EXIT_FAILURE, false, "cannot write to %s: %s", path, strerror(errno));
        free(path);
    }
    for (int i = 0; i < 2; i++) {
        struct stream *stream = &rank->out[i];
        stream->fd = -1;
        stream->log = log;
        stream->sink = is_agent ? &job->up.out : i ? job->err : &job->sinks[0];
        stream->framed = is_agent ? 1 + 2 * (uint32_t)number + (uint32_t)i : 0;
        free(stream->prefix);
        stream->prefix = make_prefix(job, at, host);
    }
}

/* Room for so many ranks, none of which has streams. */
static void make_ranks(struct job *job, int capacity)
{
    job->ranks = must(calloc((size_t)capacity, sizeof *job->ranks));
    job->capacity = capacity;
    for (int i = 0; i < capacity; i++) {
        job->ranks[i].joined = job->ranks[i].out[0].fd = job->ranks[i].out[1].fd = -1;
        job->ranks[i].out[0].sink = job->ranks[i].out[1].sink = &job->sinks[0];
        for (int k = 0; k < 2; k++) job->ranks[i].out[k].prefix = must(strdup(""));
    }
}

/* Open the pipes of a rank: our ends do not block, its ends do.  `third` is rank 0's input, or where a process that joins
 * reports that.  Returns false, with errno, without descriptors. */
static bool open_pipes(struct job *job, int at, int theirs[2], int *third)
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
    if (*job->ranks[at].where) {
        if (pipe2(ends, O_CLOEXEC)) return false;
        *third = ends[1];
        job->ranks[at].joined = ends[0];
        fcntl(ends[0], F_SETFL, O_NONBLOCK);
    } else if (job->options.first + at == 0 && (is_agent || isatty(STDIN_FILENO))) {
        if (pipe2(ends, O_CLOEXEC)) return false;
        *third = ends[0];
        job->input = ends[1];
        fcntl(job->input, F_SETFL, O_NONBLOCK);
    }
    return true;
}

/* End the job because of a local error; report it to the main launcher, if that is another one. */
static void give_up(struct job *job, int result, const char *text)
{
    struct bytes body = { 0 };

    if (job->up.in >= 0) {
        put_word(&body, "result=%d", result);
        put_word(&body, "text=%s", text);
        send_words(&job->up, FRAME_TROUBLE, 0, &body);
        free(body.data);
        if (job->result < 0) job->result = result;
        if (is_elastic(job) && job->options.role == ROLE_JOIN) say(job->err, "%s", text);   /* the others may go on */
    } else {
        decide(job, result, false, "%s", text);
    }
    kill_now(job);
}

/* The keeper has started a rank. */
static void note_start(struct job *job, int at, pid_t pid)
{
    struct rank *rank = &job->ranks[at];

    rank->pid = pid;
    rank->running = true;
    rank->started_ms = now_ms();
    rank->is_member = !*rank->where;
    if (job->started <= at) job->started = at + 1;
    job->alive++;
    if (job->up.in >= 0) {
        struct bytes body = { 0 };
        put_word(&body, "pid=%d", (int)pid);
        send_words(&job->up, FRAME_BEGUN, (uint32_t)(job->options.first + at), &body);
        free(body.data);
    }
}

/* Handle reports of the keeper.  Returns the answer to ORDER_START; 0: none. */
static int hear_keeper(struct job *job, int flags)
{
    struct message m;
    int none[3];

    while (job->orders >= 0) {
        const ssize_t length = receive_message(job->orders, &m, none, flags);
        if (length < 0 && errno == EAGAIN) return 0;
        if (length <= 0) {
            close(job->orders);
            job->orders = -1;
            return 0;
        }
        if (m.what == NEWS_STARTED) return m.value;
        note_end(job, m.number, m.value, now_ms() - job->ranks[m.number].started_ms);
    }
    return 0;
}

/* Start a rank.  On failure the job ends. */
static void start_rank(struct job *job, int at)
{
    struct message order = { ORDER_START, at, 0, "" };
    int ends[3] = { -1, -1, -1 };
    int pid = 0;

    memcpy(order.where, job->ranks[at].where, sizeof order.where);
    if (open_pipes(job, at, ends, &ends[2])) {
        send_message(job->orders, order, ends, ends[2] >= 0 ? 3 : 2);
        pid = hear_keeper(job, 0);
        if (pid == 0) pid = -ESRCH;
    } else {
        pid = -errno;
    }
    for (int i = 0; i < 3; i++) {
        if (ends[i] >= 0) close(ends[i]);
    }
    if (pid > 0) {
        note_start(job, at, (pid_t)pid);
        return;
    }
    char text[200];
    snprintf(text, sizeof text, "cannot start rank %d: %s%s", (job->options.first + at) * threads_of(job), strerror(-pid),
             pid == -EMFILE ? " (ulimit -n says how many)" : "");
    give_up(job, EXIT_FAILURE, text);
}

#endif /* RUN_START_H */
