/* run_hosts.h - part of coll-run.c: -H, one launcher on each host.
 *
 * The launcher that the user starts, the head, starts no rank.  For each host it runs
 *
 *     ssh host "/bin/sh -c '...' /path/of/coll-run"
 *
 * which finds coll-run there and runs it with --agent.  Everything else is sent over this connection in frames: directory,
 * environment, program and key to the host; output and exit statuses back.  So only that path is quoted, and no process has
 * the key in its arguments.  If an agent's connection closes, because the head or ssh has ended, it ends its ranks: SIGTERM, and
 * 2 s later SIGKILL.  If the agent is killed, its keeper kills them.
 *
 * The address of rank 0.  Each agent reports by which address its host was reached (SSH_CONNECTION), from where, and its
 * address on the default route.  The head uses the address by which it reached the first host.  If that is its own host, it
 * uses the address that other hosts saw, or else the one on the default route.  If all agents are on one machine, it uses
 * loopback.
 *
 * The frames that --join shares with -H are handled here, too, at both ends. */
#ifndef RUN_HOSTS_H
#define RUN_HOSTS_H

/* ---- >>rsh: the connection to a host ---- */

static const char agent_command[] =
    "if [ -x \"$0\" ]; then exec \"$0\" --agent; fi; exec coll-run --agent";

/* Quote for a shell: 'it'\''s'.  The caller owns it. */
static char *quote(const char *text)
{
    struct bytes quoted = { 0 };

    append(&quoted, "'", 1);
    for (; *text; text++) {
        if (*text == '\'') append(&quoted, "'\\''", 4);
        else append(&quoted, text, 1);
    }
    append(&quoted, "'", 2);
    return quoted.data;
}

/* The command for the remote shell. */
static char *remote_command(const struct job *job)
{
    char *text, *path = quote(job->options.launcher ? job->options.launcher : job->own_path), *command = quote(agent_command);

    must(asprintf(&text, "/bin/sh -c %s %s", command, path) < 0 ? NULL : text);
    free(path);
    free(command);
    return text;
}

/* The sh command that connects; $1 is the host, $2 the remote command.  ssh must not prompt, and must detect a lost machine. */
static char *rsh_command(const char *rsh)
{
    static const char options[] = " -x -T -o BatchMode=yes -o ServerAliveInterval=10 -o ServerAliveCountMax=3";
    const char *command = rsh && *rsh ? rsh : "ssh", *word_end = command + strcspn(command, " \t");
    const bool is_ssh = word_end - command >= 3 && strncmp(word_end - 3, "ssh", 3) == 0
                     && (word_end - command == 3 || word_end[-4] == '/');
    char *text;

    must(asprintf(&text, "exec %s%s \"$@\"", command, is_ssh ? options : "") < 0 ? NULL : text);
    return text;
}

/* The target without the user name. */
static const char *host_part(const char *target)
{
    const char *at = strrchr(target, '@');

    return at ? at + 1 : target;
}

/* Is this host meant?  Then ssh is not needed. */
static bool is_here(const struct job *job, const char *target)
{
    return !job->options.rsh && (strcmp(target, "localhost") == 0 || strcmp(target, job->own_name) == 0);
}

/* In the child: execute the connecting command.  Returns only on failure. */
static void become_rsh(struct job *job, struct host *host, const int ends[3])
{
    char *rsh = rsh_command(job->options.rsh), *command = remote_command(job);

    prepare_child(job, job->launcher);
    for (int i = 0; i < 3; i++) {
        if (dup2(ends[i], i) < 0) return;
    }
    release_child(job);
    if (is_here(job, host->target)) {
        unsetenv("SSH_CONNECTION");
        execl(job->own_path, "coll-run", "--agent", (char *)NULL);
    } else {
        execl("/bin/sh", "sh", "-c", rsh, "sh", host->target, command, (char *)NULL);
    }
}

/* Start the connection.  Returns false, with errno, without descriptors or processes. */
static bool start_rsh(struct job *job, struct host *host)
{
    int to[2], from[2], errors[2];

    if (pipe2(to, O_CLOEXEC) || pipe2(from, O_CLOEXEC) || pipe2(errors, O_CLOEXEC)) return false;
    host->pid = fork();
    if (host->pid < 0) return false;
    if (host->pid == 0) {
        const int ends[3] = { to[0], from[1], errors[1] };
        become_rsh(job, host, ends);
        _exit(EXIT_NOT_FOUND);
    }
    if (job->keeper) setpgid(host->pid, job->keeper);
    close(to[0]);
    close(from[1]);
    close(errors[1]);
    link_open(&host->link, from[0], to[1], FRAME_LIMIT);
    host->link.awaits_mark = true;
    host->errors = (struct stream){ .fd = errors[0], .sink = job->err };
    must(asprintf(&host->errors.prefix, "[%s] ", host->name) < 0 ? NULL : host);
    fcntl(errors[0], F_SETFL, O_NONBLOCK);
    return true;
}

/* ---- >>settings: what a host starts ---- */

/* Add COLL_ variables, except those of launchers. */
static void put_environment(const struct options *asked, struct bytes *body)
{
    static const char *const kept_here[] = { "COLL_RSH", "COLL_KEY", "COLL_KEY_FILE", NULL };

    for (char **e = environ; *e; e++) {
        if (strncmp(*e, "COLL_", 5) || is_among(own_variables, *e) || is_among(kept_here, *e)) continue;
        put_word(body, "env=%s", *e);
    }
    for (size_t i = 0; i < asked->settings.count; i++) put_word(body, "env=%s", asked->settings.list[i]);
}

static void send_settings(struct job *job, struct host *host)
{
    const struct options *asked = &job->options;
    struct bytes body = { 0 };
    char *cwd = must(getcwd(NULL, 0));

    put_word(&body, "protocol=%d", PROTOCOL);
    put_word(&body, "cwd=%s", cwd);
    put_word(&body, "first=%d", host->first);
    put_word(&body, "count=%d", host->count);
    put_word(&body, "size=%d", asked->size);
    put_word(&body, "threads=%d", asked->threads);
    put_word(&body, "world=%s", asked->world);
    put_word(&body, "bind=%d", asked->bind);
    put_word(&body, "check=%d", asked->check);
    if (asked->most) put_word(&body, "most=%d", asked->most);
    if (asked->key) put_word(&body, "key=%s", asked->key);
    put_environment(asked, &body);
    for (char **word = asked->program; *word; word++) put_word(&body, "arg=%s", *word);
    send_words(&host->link, FRAME_SETTINGS, 0, &body);
    free(body.data);
    free(cwd);
}

static void call_hosts(struct job *job)
{
    const struct options *asked = &job->options;

    job->hosts = must(calloc((size_t)asked->slot_count, sizeof *job->hosts));
    job->wait_until_ms = now_ms() + asked->wait_ms;
    for (int i = 0, first = 0; i < asked->slot_count && job->result < 0; i++) {
        struct host *host = must(calloc(1, sizeof *host));
        *host = (struct host){ .target = asked->slots[i].target, .first = first, .count = asked->slots[i].count, .status = -1 };
        host->name = must(strdup(host_part(host->target)));
        host->link.in = host->link.out.fd = -1;
        job->hosts[job->host_count++] = host;
        first += host->count;
        if (start_rsh(job, host)) send_settings(job, host);
        else decide(job, EXIT_FAILURE, false, "cannot start what connects to %s: %s", host->name, strerror(errno));
    }
}

/* ---- >>start: all hosts are ready ---- */

static bool all_ready(const struct job *job)
{
    for (int i = 0; i < job->host_count; i++) {
        if (job->hosts[i]->state != HOST_READY) return false;
    }
    return true;
}

/* How many processes of the host begin. */
static int count_first(const struct job *job, const struct host *host)
{
    const int left = job->options.begin - host->first;

    return left < 0 ? 0 : left < host->count ? left : host->count;
}

/* Record the host's ranks, before they start. */
static void add_remote_ranks(struct job *job, struct host *host)
{
    number_host(job, host, host->first);
    for (int at = host->first; at < host->first + count_first(job, host); at++) {
        job->ranks[at].is_member = true;
        job->ranks[at].age = at;
        begin_remote(job, host, at);
    }
    host->state = HOST_RUNS;
}

/* The IP address of rank 0's host, as described above. */
static const char *find_root(const struct job *job)
{
    const struct host *first = job->hosts[0];
    bool is_one = true;

    for (int i = 1; i < job->host_count; i++) {
        is_one = is_one && job->hosts[i]->machine && strcmp(job->hosts[i]->machine, first->machine) == 0;
    }
    if (is_one) return "127.0.0.1";
    if (!is_here(job, first->target)) return first->root;
    for (int i = 1; i < job->host_count; i++) {
        if (job->hosts[i]->seen && *job->hosts[i]->seen) return job->hosts[i]->seen;
    }
    return first->root;
}

/* The address of rank 0 from --address, where the port may be missing. */
static char *given_root(const char *address, int port)
{
    const char *colon = strrchr(address, ':');
    const bool has_port = colon > address && (colon[-1] == ']' || strchr(address, ':') == colon);
    char *host;

    if (has_port) return must(strdup(address));
    if (*address != '[') return join_address(address, port);
    must(asprintf(&host, "%s:%d", address, port) < 0 ? NULL : host);
    return host;
}

static void send_go(struct job *job, struct host *host, int start)
{
    struct bytes body = { 0 };

    put_word(&body, "root=%s", job->options.root);
    put_word(&body, "first=%d", host->first);
    put_word(&body, "count=%d", host->count);
    put_word(&body, "size=%d", job->options.size);
    put_word(&body, "begin=%d", job->options.begin);
    put_word(&body, "start=%d", start);
    send_words(&host->link, FRAME_GO, 0, &body);
    free(body.data);
}

/* With --elastic some hosts may be missing: they come behind the others, and have the last numbers. */
static void sort_hosts(struct job *job)
{
    int ready = 0, first = 0;

    for (int i = 0; i < job->host_count; i++) {
        struct host *const host = job->hosts[i];
        if (host->state != HOST_READY) continue;
        memmove(job->hosts + ready + 1, job->hosts + ready, (size_t)(i - ready) * sizeof *job->hosts);
        job->hosts[ready++] = host;
    }
    for (int i = 0; i < job->host_count; first += job->hosts[i++]->count) number_host(job, job->hosts[i], first);
    const int slots = count_slots(job, HOST_READY);
    if (job->options.begin > slots) job->options.begin = slots;
}

static void start_hosts(struct job *job)
{
    sort_hosts(job);
    struct host *const leader = job->hosts[0];
    const int port = atoi(leader->port);

    leader->root = must(strdup(find_root(job)));
    for (int i = 1; i < job->host_count; i++) {
        if (strcmp(leader->root, "127.0.0.1") == 0) job->hosts[i]->root = leader->root;
    }
    job->options.root = job->options.address ? given_root(job->options.address, port) : join_address(leader->root, port);
    job->wait_until_ms = 0;
    job->has_begun = true;
    job->starts = job->options.begin;
    job->target = is_elastic(job) ? job->options.most : job->options.begin;
    job->unfilled = job->target - job->options.begin;
    for (int i = 0; i < job->host_count; i++) {
        struct host *host = job->hosts[i];
        if (host->state != HOST_READY) continue;
        if (is_elastic(job)) take_ports(job, host, host->ports);
        add_remote_ranks(job, host);
    }
    for (int i = 0; i < job->host_count; i++) {
        struct host *host = job->hosts[i];
        if (host->state == HOST_RUNS) send_go(job, host, count_first(job, host));
    }
}

/* A host has answered, or never will.  With --elastic the others begin if they are enough. */
static void start_if_ready(struct job *job)
{
    if (job->result >= 0 || job->has_begun) return;
    if (all_ready(job)) {
        start_hosts(job);
    } else if (is_elastic(job)) {
        const int ready = count_slots(job, HOST_READY), called = count_slots(job, HOST_CALLED);
        if (ready + called < job->options.least) {
            decide(job, EXIT_FAILURE, false, "the hosts that answer have %d slots, and --elastic %d:%d needs %d", ready,
                   job->options.least, job->options.most, job->options.least);
        } else if (!called) {
            start_hosts(job);
        }
    }
}

/* Call lost hosts again, while processes may be started there. */
static void call_again(struct job *job, int64_t now)
{
    for (int i = 0; i < job->host_count; i++) {
        struct host *host = job->hosts[i];
        if (!host->again_at_ms || now < host->again_at_ms || !job->has_begun) continue;
        host->again_at_ms = 0;
        if (job->result >= 0 || job->has_finished || job->stage != STAGE_RUN) continue;
        if (!may_start(job)) continue;
        if (host->errors.fd >= 0) end_stream(&host->errors);
        host->status = -1;
        host->is_late = true;
        host->state = HOST_CALLED;
        if (start_rsh(job, host)) send_settings(job, host);
        else call_later(job, host);
    }
}

/* ---- >>main launcher: frames from other launchers ---- */

/* How the connecting command ended, or NULL.  Waits a moment for that. */
static const char *rsh_ending(struct host *host, char *text, size_t room)
{
    const int64_t until = now_ms() + 500;

    while (host->pid > 0 && host->status < 0 && now_ms() < until) {
        int status;
        if (waitpid(host->pid, &status, WNOHANG) == host->pid) host->status = status;
        else poll(NULL, 0, 5);
    }
    if (host->pid <= 0 || host->status < 0) return NULL;
    describe(host->status, false, text, room);
    return text;
}

/* Log a refused launcher, up to a maximum number of lines. */
static void complain(struct job *job, const struct host *host, const char *text)
{
    if (job->complaints++ < COMPLAINTS) say(job->err, "refused the launcher of %s: %s", host->name, text);
}

/* --elastic: the others go on, or begin, without this host. */
static void lose_elastic(struct job *job, struct host *host, enum host_state state, const char *ending)
{
    char who[WHO_ROOM];

    if (job->result >= 0 || job->has_finished || job->stage != STAGE_RUN) return;
    if (state == HOST_RUNS) {
        job->lost_status = EXIT_FAILURE;
        say(job->err, "lost %s (%s): %s%s; the others go on", host->name, name_ranks_of(job, host, who),
            ending ? "what connects to it " : "the connection to its launcher has ended", ending ? ending : "");
    } else if (job->options.role == ROLE_HEAD && !host->again_ms) {
        say(job->err, "%s: no launcher answers there: what connects to it %s; it is tried again later", host->name,
            ending ? ending : "is silent");
    }
    if (job->options.role == ROLE_HEAD || state == HOST_RUNS) call_later(job, host);
    if (job->options.role == ROLE_HEAD) start_if_ready(job);
    balance(job, -1);
}

/* The connection is closed. */
static void lose_host(struct job *job, struct host *host)
{
    const enum host_state state = host->state;
    char how[128], who[WHO_ROOM];
    int lost = 0;

    link_close(&host->link);
    host->state = job->options.role == ROLE_JOIN && state != HOST_RUNS ? HOST_REFUSED : HOST_GONE;
    if (state == HOST_READY && job->options.role == ROLE_JOIN) say(job->err, "%s has left again", host->name);
    if (state == HOST_CHALLENGED) complain(job, host, "it left without a proof: its key may be another one");
    for (int at = host->first; state == HOST_RUNS && at < host->first + host->count; at++) {
        struct rank *rank = &job->ranks[at];
        for (int i = 0; i < 2; i++) end_stream(&rank->out[i]);
        lost += rank->running;
        job->alive -= rank->running;
        rank->reported = rank->reported || rank->running;
        rank->running = false;
    }
    if (job->result >= 0 || (state == HOST_RUNS && !lost)) return;

    const char *ending = rsh_ending(host, how, sizeof how);
    if (host->errors.fd >= 0) drain_stream(&host->errors);
    if (is_elastic(job)) {
        lose_elastic(job, host, state, ending);
    } else if (state == HOST_RUNS) {
        decide(job, EXIT_FAILURE, false, "lost %s (%s): %s%s", host->name, name_ranks_of(job, host, who),
               ending ? "what connects to it " : "the connection to its launcher has ended", ending ? ending : "");
        begin_stop(job, NOTICE_MS);
    } else if (job->options.role == ROLE_HEAD) {
        const bool is_missing = ending && WIFEXITED(host->status) && WEXITSTATUS(host->status) == EXIT_NOT_FOUND;
        decide(job, EXIT_FAILURE, false, "%s: no launcher answers there: what connects to it %s%s", host->name,
               ending ? ending : "is silent",
               is_missing ? " (is coll-run there, at the same path or in PATH?  --launcher says where)" : "");
    }
}

/* The process number in a frame, if it belongs to that host; otherwise -1. */
static int rank_of_frame(const struct host *host, uint32_t number)
{
    const bool is_ours = host->state == HOST_RUNS && number >= (uint32_t)host->first
                      && number < (uint32_t)(host->first + host->count);

    return is_ours ? (int)number : -1;
}

static void take_output(struct job *job, struct host *host, const struct frame *frame)
{
    const int at = frame->number > 0 ? rank_of_frame(host, (frame->number - 1) / 2) : -1;

    if (at >= 0 && job->options.role == ROLE_HEAD) take(&job->ranks[at].out[(frame->number - 1) % 2], frame->body, frame->length);
}

static void take_ready(struct job *job, struct host *host, const struct frame *frame)
{
    if (host->state != HOST_CALLED || job->result >= 0) return;      /* the job has ended: the link will, too */
    if (find_number(frame, "protocol", 0, 1 << 20) != PROTOCOL) {
        decide(job, EXIT_FAILURE, false, "%s: coll-run there is of another version", host->name);
        return;
    }
    const bool is_near = job->has_begun && strcmp(job->hosts[0]->root, "127.0.0.1") == 0
                      && strcmp(find_word(frame, "machine"), job->hosts[0]->machine) == 0;
    host->root = must(strdup(is_near ? "127.0.0.1" : find_word(frame, "root")));
    host->seen = must(strdup(find_word(frame, "seen")));
    host->machine = must(strdup(find_word(frame, "machine")));
    host->port = must(strdup(find_word(frame, "port")));
    host->ports = must(strdup(find_word(frame, "ports")));
    host->state = HOST_READY;
    host->again_ms = 0;
    if (job->has_begun) {
        host->state = HOST_RUNS;
        take_ports(job, host, host->ports);
        send_go(job, host, 0);
        balance(job, -1);
    }
    start_if_ready(job);
}

/* Handle a frame from another launcher.  Returns false if it is invalid. */
static bool take_from_host(struct job *job, struct host *host, const struct frame *frame)
{
    const int at = rank_of_frame(host, frame->number);

    switch (frame->kind) {
    case FRAME_READY:
        if (job->options.role != ROLE_HEAD) return false;
        take_ready(job, host, frame);
        return true;
    case FRAME_OUTPUT:
        take_output(job, host, frame);
        return true;
    case FRAME_BEGUN:
        if (at >= 0) job->ranks[at].pid = (pid_t)find_number(frame, "pid", 1, INT_MAX);
        return at >= 0;
    case FRAME_ENDED:
        if (at >= 0) note_end(job, at, (int)find_number(frame, "status", 0, 0xffff), find_number(frame, "ms", 0, LONG_MAX));
        return at >= 0;
    case FRAME_JOINED:
        if (at >= 0) job->ranks[at].is_member = job->ranks[at].running;
        return at >= 0;
    case FRAME_PORTS:
        if (host->state == HOST_RUNS) take_ports(job, host, find_word(frame, "ports"));
        return true;
    case FRAME_TROUBLE: {
        const long result = find_number(frame, "result", 1, 255);
        char *text = printable(find_word(frame, "text"), 1000);
        if (host->is_late) {                    /* the others go on without it */
            say(job->err, "%s: %s", host->name, text);
            free(text);
            lose_host(job, host);
            return true;
        }
        decide(job, result > 0 ? (int)result : EXIT_FAILURE, false, "%s: %s", host->name, text);
        kill_now(job);
        free(text);
        return true;
    }
    case FRAME_TAKEN:
        job->in_flight -= frame->number < job->in_flight ? frame->number : job->in_flight;
        return true;
    default:
        return false;
    }
}

/* ---- >>agent: frames from the main launcher ---- */

/* Apply one word of the settings.  Only agents do: they were started for that. */
static void apply_setting(struct options *asked, const char *word, struct words *program, const char **cwd)
{
    const char *value;

    if ((value = value_of(word, "cwd")) != NULL) *cwd = value;
    else if ((value = value_of(word, "env")) != NULL) set_variable(&asked->settings, "%s", value);
    else if ((value = value_of(word, "arg")) != NULL) add_word(program, must(strdup(value)));
    else if ((value = value_of(word, "key")) != NULL) asked->key = must(strdup(value));
    else if ((value = value_of(word, "world")) != NULL) asked->world = must(strdup(value));
}

static bool read_file_line(const char *path, char *text, int room)
{
    FILE *file = fopen(path, "re");
    const bool has_line = file && fgets(text, room, file);

    if (file) fclose(file);
    if (has_line) text[strcspn(text, "\n")] = '\0';
    return has_line;
}

/* Identify the machine: boot id and network namespace. */
static void put_machine(struct bytes *body)
{
    char boot[64] = "", net[64] = "";

    if (!read_file_line("/proc/sys/kernel/random/boot_id", boot, sizeof boot)) snprintf(boot, sizeof boot, "unknown");
    if (readlink("/proc/self/ns/net", net, sizeof net - 1) < 0) net[0] = '\0';
    put_word(body, "machine=%s %s", boot, net);
}

/* The address on the default route.  Connecting a datagram socket sends nothing. */
static bool outer_address(char *text, socklen_t room)
{
    struct sockaddr_in far = { .sin_family = AF_INET, .sin_port = htons(9), .sin_addr = { htonl(0xc0000201) } };
    socklen_t length = sizeof far;
    const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    bool known = fd >= 0 && connect(fd, (struct sockaddr *)&far, sizeof far) == 0
              && getsockname(fd, (struct sockaddr *)&far, &length) == 0
              && inet_ntop(AF_INET, &far.sin_addr, text, room);

    if (fd >= 0) close(fd);
    return known && strncmp(text, "127.", 4) != 0;
}

/* The first address that is not loopback or link-local. */
static bool interface_address(char *text, socklen_t room)
{
    struct ifaddrs *all;
    bool known = false;

    if (getifaddrs(&all)) return false;
    for (const struct ifaddrs *i = all; i && !known; i = i->ifa_next) {
        if (!i->ifa_addr || (i->ifa_flags & IFF_LOOPBACK) || !(i->ifa_flags & IFF_UP)) continue;
        if (i->ifa_addr->sa_family == AF_INET) {
            known = inet_ntop(AF_INET, &((struct sockaddr_in *)i->ifa_addr)->sin_addr, text, room);
        } else if (i->ifa_addr->sa_family == AF_INET6) {
            const struct in6_addr *six = &((struct sockaddr_in6 *)i->ifa_addr)->sin6_addr;
            known = !IN6_IS_ADDR_LINKLOCAL(six) && inet_ntop(AF_INET6, six, text, room);
        }
    }
    freeifaddrs(all);
    return known;
}

static bool is_loopback_text(const char *text)
{
    return !*text || strncmp(text, "127.", 4) == 0 || strcmp(text, "::1") == 0;
}

/* Send the head the addresses of this host. */
static void send_ready(struct job *job)
{
    const char *ssh = getenv("SSH_CONNECTION");
    char client[64] = "", server[64] = "";
    struct bytes body = { 0 };
    const int port = is_elastic(job) && hold_ports(job, true) ? job->ranks[0].port : hold_port(&job->options, true);

    if (!port) {
        give_up(job, EXIT_FAILURE, "no free port (COLL_PORTS may leave none)");
        return;
    }
    if (!ssh || sscanf(ssh, "%63s %*s %63s", client, server) != 2) client[0] = server[0] = '\0';
    if (is_loopback_text(client)) client[0] = '\0';
    if (is_loopback_text(server) && !outer_address(server, sizeof server) && !interface_address(server, sizeof server)) {
        snprintf(server, sizeof server, "127.0.0.1");
    }
    put_word(&body, "protocol=%d", PROTOCOL);
    put_word(&body, "root=%s", server);
    put_word(&body, "seen=%s", client);
    put_word(&body, "port=%d", port);
    if (is_elastic(job)) put_ports(job, &body);
    put_machine(&body);
    send_words(&job->up, FRAME_READY, 0, &body);
    free(body.data);
}

/* Check and store the numbers of a settings or go frame. */
static bool take_numbers(struct options *asked, const struct frame *frame)
{
    const long first = find_number(frame, "first", 0, MAX_RANKS), count = find_number(frame, "count", 1, MAX_RANKS);
    const long size = find_number(frame, "size", 1, MAX_RANKS);
    const long begin = find_number(frame, "begin", 1, MAX_RANKS), start = find_number(frame, "start", 0, count);

    if (first < 0 || count < 0 || size < 0 || first + count > (asked->most ? MAX_RANKS : size)) return false;
    asked->first = (int)first;
    asked->count = (int)count;
    asked->size = (int)size;
    asked->begin = begin > 0 ? (int)begin : (int)size;
    asked->start = start >= 0 ? (int)start : (int)count;
    return true;
}

static bool take_settings(struct job *job, const struct frame *frame)
{
    struct options *asked = &job->options;
    struct words program = { 0 };
    const char *cwd = ".";
    size_t at = 0;
    char *text;

    if (find_number(frame, "protocol", 0, 1 << 20) != PROTOCOL) {
        give_up(job, EXIT_FAILURE, "coll-run here is of another version");
        return true;
    }
    const long most = find_number(frame, "most", 1, MAX_RANKS);
    asked->most = most > 0 ? (int)most : 0;
    if (!take_numbers(asked, frame) || asked->world) return false;
    asked->threads = (int)find_number(frame, "threads", 0, 1024);
    asked->bind = find_number(frame, "bind", 0, 1) == 1;
    asked->check = find_number(frame, "check", 0, 1) == 1;
    for (const char *word; (word = next_word(frame, &at)) != NULL;) apply_setting(asked, word, &program, &cwd);
    if (asked->threads < 0 || !asked->world || (!program.count && !asked->check)) return false;
    if (!program.count) add_word(&program, must(strdup("coll-check")));
    asked->program = program.list;
    if (chdir(cwd)) {
        must(asprintf(&text, "cannot go to '%s': %s", cwd, strerror(errno)) < 0 ? NULL : text);
        give_up(job, EXIT_FAILURE, text);
        free(text);
        return true;
    }
    send_ready(job);
    return true;
}

/* A process that joins is to be started here. */
static bool take_start(struct job *job, const struct frame *frame)
{
    const int at = (int)frame->number - job->options.first;
    const char *where = find_word(frame, "where");
    const bool is_right = is_elastic(job) && job->may_go && at >= 0 && at < job->options.count && !job->ranks[at].running
                       && strlen(where) < WHERE_ROOM;

    if (is_right) want_rank(job, at, where);
    return is_right;
}

/* Input for a local rank 0.  The main launcher respects the window. */
static bool take_input(struct job *job, const struct frame *frame)
{
    if (job->typed.length + frame->length > 2 * INPUT_WINDOW) return false;
    if (frame->length == 0) job->input_ended = true;
    else append(&job->typed, frame->body, frame->length);
    return true;
}

static void take_result(struct job *job, const struct frame *frame)
{
    const long result = find_number(frame, "result", 0, 255);
    char *text = printable(find_word(frame, "text"), 1000);

    if (job->is_known) {
        free(text);
        return;
    }
    job->is_known = true;
    if (*text && !job->options.quiet) say(job->err, "%s", text);
    free(text);
    if (result > 0) job->result = (int)result;
    if (!job->may_go && job->result < 0) job->result = EXIT_FAILURE;
}

#endif /* RUN_HOSTS_H */
