/* run_join.h - part of coll-run.c: --join, launchers that connect to each other without ssh.
 *
 * All launchers get the same address.  The launcher that can listen there, because the address is local, is the main one.  It has
 * rank 0, numbers the others in the order of their connections, and sends "go" once all ranks are present.  It distributes
 * numbers and the job's name only.  Each launcher takes the program and the environment from its own command line.
 *
 * Another launcher sends hello.  The main launcher answers with a challenge and its own proof.  The other checks that, and sends
 * its proof.  A proof is HMAC-SHA256 with the job's key over a role, the hello and the challenge.  Hello and challenge contain
 * random bytes, so recorded or reflected proofs are invalid.  Without a key proofs are empty.  Launchers with and without a
 * key refuse each other.
 *
 * Rank 0 listens at the address by which the others reached the main launcher, on a port that the main launcher holds.  So a host
 * name that means 127.0.1.1 on its own machine works.  If the main launcher begins alone, and others may come later (--elastic),
 * it is the address of --join, or that of the default route. */
#ifndef RUN_JOIN_H
#define RUN_JOIN_H

static void serve(struct job *job, int64_t until_ms);
static void read_signals(struct job *job);

/* ---- >>addresses ---- */

/* Numeric, without a port; a mapped IPv4 address as IPv4. */
static void address_text(const struct sockaddr_storage *address, socklen_t length, char *text, socklen_t room)
{
    if (getnameinfo((const struct sockaddr *)address, length, text, room, NULL, 0, NI_NUMERICHOST)) snprintf(text, room, "?");
    if (strncmp(text, "::ffff:", 7) == 0 && strchr(text, '.')) memmove(text, text + 7, strlen(text + 7) + 1);
}

/* The local address of a connection, or the peer's. */
static void end_text(int fd, bool is_theirs, char *text, socklen_t room)
{
    struct sockaddr_storage address = { 0 };
    socklen_t length = sizeof address;

    const int failed = is_theirs ? getpeername(fd, (struct sockaddr *)&address, &length)
                                 : getsockname(fd, (struct sockaddr *)&address, &length);
    if (failed) snprintf(text, room, "?");
    else address_text(&address, length, text, room);
}

static bool is_loopback(const struct sockaddr *address)
{
    if (address->sa_family == AF_INET) return ntohl(((const struct sockaddr_in *)address)->sin_addr.s_addr) >> 24 == 127;
    return IN6_IS_ADDR_LOOPBACK(&((const struct sockaddr_in6 *)address)->sin6_addr);
}

/* All addresses of --join.  Exits if the text is invalid; NULL if the name cannot be resolved yet. */
static struct addrinfo *resolve_join(const char *text, const char **why)
{
    const struct addrinfo wanted = { .ai_socktype = SOCK_STREAM };
    const char *colon = strrchr(text, ':');
    struct addrinfo *list = NULL;
    char host[256];

    if (!colon || colon == text || !isdigit((unsigned char)colon[1]) || atoi(colon + 1) < 1 || atoi(colon + 1) > 65535
        || (size_t)(colon - text) >= sizeof host) usage_error("--join needs address:port, not '%s'", text);
    memcpy(host, text, (size_t)(colon - text));
    host[colon - text] = '\0';
    if (*host == '[' && colon[-1] == ']') {
        memmove(host, host + 1, strlen(host));
        host[strlen(host) - 1] = '\0';
    }
    const int error = getaddrinfo(host, colon + 1, &wanted, &list);
    *why = error ? gai_strerror(error) : NULL;
    return error ? NULL : list;
}

/* Detect a lost peer machine within 30 s. */
static void watch_connection(int fd)
{
    const int yes = 1, idle = 10, gap = 5, tries = 3;

    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &yes, sizeof yes);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &gap, sizeof gap);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &tries, sizeof tries);
}

/* ---- >>main launcher: other launchers ---- */

/* Processes of this host and of all admitted ones. */
static int count_present(const struct job *job)
{
    int present = job->options.count;

    for (int i = 0; i < job->host_count; i++) {
        const struct host *host = job->hosts[i];
        if (host->state == HOST_READY || host->state == HOST_RUNS) present += host->count;
    }
    return present;
}

/* Does --join name the loopback address explicitly? */
static bool says_loopback(const char *text)
{
    return strncmp(text, "localhost:", 10) == 0 || strncmp(text, "127.", 4) == 0 || strncmp(text, "[::1]", 5) == 0;
}

/* Listen at the addresses of the name.  A machine's own name is often loopback there, and another address elsewhere: then
 * listen on all addresses. */
static bool listen_there(struct job *job, const struct addrinfo *list)
{
    int open = 0;

    for (const struct addrinfo *a = list; a && open < LISTENERS; a = a->ai_next) {
        const int port = ntohs(a->ai_family == AF_INET ? ((struct sockaddr_in *)a->ai_addr)->sin_port
                                                       : ((struct sockaddr_in6 *)a->ai_addr)->sin6_port);
        struct sockaddr_storage at = { 0 };
        memcpy(&at, a->ai_addr, a->ai_addrlen);
        if (!says_loopback(job->options.join) && is_loopback(a->ai_addr)) {
            if (at.ss_family == AF_INET) ((struct sockaddr_in *)&at)->sin_addr.s_addr = htonl(INADDR_ANY);
            else ((struct sockaddr_in6 *)&at)->sin6_addr = in6addr_any;
        }
        const int fd = bind_port((struct sockaddr *)&at, a->ai_addrlen, port);
        if (fd < 0 || listen(fd, 64)) {
            if (fd >= 0) close(fd);
            continue;
        }
        fcntl(fd, F_SETFL, O_NONBLOCK);
        job->listeners[open++] = fd;
    }
    return open > 0;
}

static void refuse(struct job *job, struct host *host, const char *text)
{
    struct bytes body = { 0 };

    put_word(&body, "text=%s", text);
    send_words(&host->link, FRAME_REFUSED, 0, &body);
    free(body.data);
    complain(job, host, text);
    link_close(&host->link);
    host->state = HOST_REFUSED;
}

/* Free refused and closed connections. */
static void drop_refused(struct job *job)
{
    int kept = 0;

    for (int i = 0; i < job->host_count; i++) {
        struct host *host = job->hosts[i];
        if (host->state != HOST_REFUSED) {
            job->hosts[kept++] = host;
            continue;
        }
        free(host->name);
        free(host->hello.data);
        free(host->nonce.data);
        free(host->link.received.data);
        free(host->link.out.waiting.data);
        free(host);
    }
    job->host_count = kept;
}

/* Evict the oldest connection that has not completed the handshake: it had the most time. */
static void drop_oldest(struct job *job)
{
    for (int i = 0; i < job->host_count; i++) {
        struct host *host = job->hosts[i];
        if (host->state != HOST_CALLED && host->state != HOST_CHALLENGED) continue;
        link_close(&host->link);
        host->state = HOST_REFUSED;
        return;
    }
}

/* Accept a connection.  The number of connections without a completed handshake is limited. */
static void accept_joiner(struct job *job, int listener)
{
    const int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    char name[128];

    if (fd < 0) return;
    drop_refused(job);
    if (job->host_count >= job->options.size + UNKNOWN_MOST) drop_oldest(job);
    drop_refused(job);
    struct host *host = must(calloc(1, sizeof *host));
    job->hosts = must(realloc(job->hosts, (size_t)(job->host_count + 1) * sizeof *job->hosts));
    end_text(fd, true, name, sizeof name);
    watch_connection(fd);
    *host = (struct host){ .name = must(strdup(name)), .status = -1, .errors = { .fd = -1 }, .until_ms = now_ms() + JOINER_MS };
    link_open(&host->link, fd, fd, GREETING_LIMIT);
    job->hosts[job->host_count++] = host;
}

/* Check a hello, and answer it. */
static bool take_hello(struct job *job, struct host *host, const struct frame *frame)
{
    const struct options *asked = &job->options;
    const long count = find_number(frame, "count", 1, MAX_RANKS);
    char nonce[2 * NONCE + 1], proof[2 * DIGEST + 1] = "", text[200];
    unsigned char digest[DIGEST];
    struct bytes body = { 0 };

    if (host->state != HOST_CALLED || find_number(frame, "protocol", 0, 1 << 20) < 0) return false;
    text[0] = '\0';
    if (find_number(frame, "protocol", 0, 1 << 20) != PROTOCOL) snprintf(text, sizeof text, "coll-run is of another version");
    else if (find_number(frame, "key", 0, 1) != (asked->key ? 1 : 0))
        snprintf(text, sizeof text, "%s", asked->key ? "a key is needed here, and it has none (COLL_KEY, --key-file)"
                                                     : "it has a key, and the launcher that listens has none");
    else if (find_number(frame, "least", 0, MAX_RANKS) != asked->least)
        snprintf(text, sizeof text, "its --elastic is another one than here");
    else if (find_number(frame, "size", 1, MAX_RANKS) != asked->size || find_number(frame, "threads", 0, 1024) != asked->threads)
        snprintf(text, sizeof text, "its --size or --threads is another one than here: %d ranks, %d threads",
                 asked->size * threads_of(job), asked->threads);
    if (*text) {
        refuse(job, host, text);
        return true;
    }
    if (count < 1) return false;
    host->count = (int)count;
    append(&host->hello, frame->body, frame->length);
    random_hex(nonce, NONCE);
    append(&host->nonce, nonce, sizeof nonce);
    if (asked->key) {
        prove(asked->key, "coll-run 1 leader", &host->hello, &host->nonce, digest);
        to_hex(digest, DIGEST, proof);
    }
    put_word(&body, "nonce=%s", nonce);
    put_word(&body, "proof=%s", proof);
    send_words(&host->link, FRAME_CHALLENGE, 0, &body);
    free(body.data);
    host->state = HOST_CHALLENGED;
    return true;
}

static void take_proof(struct job *job, struct host *host, const struct frame *frame)
{
    const struct frame hello = { .body = host->hello.data, .length = host->hello.length };
    const int threads = threads_of(job);
    unsigned char digest[DIGEST];
    char text[120];

    if (job->options.key) {
        prove(job->options.key, "coll-run 1 joiner", &host->hello, &host->nonce, digest);
        if (!is_same_proof(find_word(frame, "proof"), digest)) {
            refuse(job, host, "its key is another one");
            return;
        }
    }
    const bool is_late = is_elastic(job) && job->may_go;
    const int present = is_late ? count_living(job) : count_present(job);
    if (is_late ? present >= job->options.size || job->next_number + host->count > MAX_RANKS
                : present + host->count > job->options.size) {
        if (present >= job->options.size || is_late)
            snprintf(text, sizeof text, "all %d ranks are there already", present * threads);
        else snprintf(text, sizeof text, "it brings %d ranks, and only %d are missing", host->count * threads,
                      (job->options.size - present) * threads);
        refuse(job, host, text);
        return;
    }
    char there[128], here[128];
    end_text(host->link.in, true, there, sizeof there);
    end_text(host->link.in, false, here, sizeof here);
    host->root = must(strdup(there));
    host->seen = must(strdup(here));
    free(host->name);
    host->name = printable(find_word(&hello, "host"), 100);
    host->link.most = FRAME_LIMIT;
    host->until_ms = 0;
    host->state = HOST_READY;
}

/* "2 of 4 ranks have come (a: 0-1)" */
static char *list_present(const struct job *job)
{
    const int threads = threads_of(job);
    char *text = NULL;
    size_t length = 0;
    FILE *out = must(open_memstream(&text, &length));

    fprintf(out, "%d of %d ranks have come (%s: %d", count_present(job) * threads,
            (is_elastic(job) ? job->options.begin : job->options.size) * threads, job->own_name,
            job->options.count * threads);
    for (int i = 0; i < job->host_count; i++) {
        const struct host *host = job->hosts[i];
        if (host->state == HOST_READY) fprintf(out, ", %s: %d", host->name, host->count * threads);
    }
    fputc(')', out);
    if (fclose(out)) must(NULL);
    return text;
}

/* All are present: send numbers and the address of rank 0.  Rank 0 listens at the address by which the others reached this
 * host, or on all, if these differ.  Each launcher derives the address from its own connection. */
static void send_place(struct job *job, struct host *host, int start)
{
    const int port = job->ranks[0].port;
    struct bytes body = { 0 };

    put_word(&body, "first=%d", host->first);
    put_word(&body, "count=%d", host->count);
    put_word(&body, "size=%d", job->options.size);
    put_word(&body, "begin=%d", job->options.begin);
    put_word(&body, "start=%d", start);
    put_word(&body, "world=%s", job->options.world);
    put_word(&body, "port=%d", port);
    if (job->options.address) put_word(&body, "root=%s", job->options.root);
    send_words(&host->link, FRAME_GO, 0, &body);
    free(body.data);
}

static void start_joiners(struct job *job)
{
    const int port = is_elastic(job) && hold_ports(job, true) ? job->ranks[0].port : hold_port(&job->options, true);
    char here[128] = "", other[128];
    int first = job->options.count;

    if (is_elastic(job)) job->options.begin = count_present(job);
    job->options.start = job->options.count;
    job->ranks[0].port = port;
    if (!port) {
        decide(job, EXIT_FAILURE, false, "no free port (COLL_PORTS may leave none)");
        return;
    }
    for (int i = 0; i < job->host_count; i++) {
        if (job->hosts[i]->state != HOST_READY) continue;
        end_text(job->hosts[i]->link.in, false, other, sizeof other);
        if (!*job->own_address) snprintf(job->own_address, sizeof job->own_address, "%s", other);
        if (*here && strcmp(here, other) != 0) snprintf(other, sizeof other, "%s", strchr(other, ':') ? "::" : "0.0.0.0");
        snprintf(here, sizeof here, "%s", other);
    }
    if (!*here && is_elastic(job) && !says_loopback(job->options.join)) {     /* others may come from other hosts */
        end_text(job->listeners[0], false, here, sizeof here);
        const bool is_any = strcmp(here, "0.0.0.0") == 0 || strcmp(here, "::") == 0;
        if (is_any && !outer_address(here, sizeof here) && !interface_address(here, sizeof here)) here[0] = '\0';
        snprintf(job->own_address, sizeof job->own_address, "%s", here);
    }
    if (job->options.address) job->options.root = given_root(job->options.address, port);
    else job->options.root = join_address(*here ? here : "127.0.0.1", port);
    for (int i = 0; i < job->host_count; i++) {
        struct host *host = job->hosts[i];
        if (host->state != HOST_READY) continue;
        host->first = first;
        first += host->count;
        send_place(job, host, host->count);
    }
    job->next_number = first;
    job->may_go = true;
    job->wait_until_ms = job->progress_at_ms = 0;
}

static bool has_enough(const struct job *job)
{
    return count_present(job) >= (is_elastic(job) ? job->options.begin : job->options.size);
}

/* --elastic: a launcher comes after the start. */
static void admit_late(struct job *job, struct host *host)
{
    number_host(job, host, job->next_number);
    job->next_number += host->count;
    host->is_late = true;
    host->state = HOST_RUNS;
    send_place(job, host, 0);
    if (!job->options.quiet) say(job->err, "%s has come", host->name);
    add_late(job, host);
}

/* Handle a frame from a connecting launcher.  Returns false if it is invalid. */
static bool take_from_joiner(struct job *job, struct host *host, const struct frame *frame)
{
    switch (host->state) {
    case HOST_CALLED:
        return frame->kind == FRAME_HELLO && take_hello(job, host, frame);
    case HOST_CHALLENGED:
        if (frame->kind != FRAME_PROOF) return false;
        take_proof(job, host, frame);
        if (!job->may_go && has_enough(job)) start_joiners(job);
        else if (job->may_go && host->state == HOST_READY) admit_late(job, host);
        return true;
    default:
        return take_from_host(job, host, frame);
    }
}

/* Add the ranks of the others, after those of this launcher. */
static void add_joiners(struct job *job)
{
    for (int i = 0; i < job->host_count; i++) {
        if (job->hosts[i]->state == HOST_READY) add_remote_ranks(job, job->hosts[i]);
    }
}

/* ---- >>other launchers ---- */

static void send_hello(struct job *job)
{
    const struct options *asked = &job->options;
    struct bytes body = { 0 };
    char nonce[2 * NONCE + 1];

    random_hex(nonce, NONCE);
    put_word(&body, "protocol=%d", PROTOCOL);
    put_word(&body, "key=%d", asked->key ? 1 : 0);
    put_word(&body, "count=%d", asked->count);
    put_word(&body, "size=%d", asked->size);
    put_word(&body, "threads=%d", asked->threads);
    put_word(&body, "least=%d", asked->least);
    put_word(&body, "host=%s", job->own_name);
    put_word(&body, "nonce=%s", nonce);
    append(&job->hello, body.data, body.length);
    send_words(&job->up, FRAME_HELLO, 0, &body);
    free(body.data);
}

/* Check the main launcher's proof, and send ours. */
static bool take_challenge(struct job *job, const struct frame *frame)
{
    const char *nonce = find_word(frame, "nonce");
    char proof[2 * DIGEST + 1] = "";
    unsigned char digest[DIGEST];
    struct bytes body = { 0 }, challenge = { 0 };

    if (strlen(nonce) != 2 * NONCE || job->is_proved) return false;
    append(&challenge, nonce, 2 * NONCE + 1);
    if (job->options.key) {
        prove(job->options.key, "coll-run 1 leader", &job->hello, &challenge, digest);
        if (!is_same_proof(find_word(frame, "proof"), digest)) {
            decide(job, EXIT_FAILURE, false, "%s: the launcher there has another key", job->options.join);
        }
        prove(job->options.key, "coll-run 1 joiner", &job->hello, &challenge, digest);
        to_hex(digest, DIGEST, proof);
    }
    free(challenge.data);
    if (job->result >= 0) return true;
    job->is_proved = true;
    job->wait_until_ms = 0;                     /* the main launcher has the deadline and reports it */
    put_word(&body, "proof=%s", proof);
    send_words(&job->up, FRAME_PROOF, 0, &body);
    free(body.data);
    return true;
}

/* Store the numbers and the address of rank 0: the main launcher's address, unless another one is given. */
static bool take_place(struct job *job, const struct frame *frame)
{
    const int count = job->options.count, size = job->options.size;
    const long port = find_number(frame, "port", 1, 65535);
    const char *root = find_word(frame, "root");
    char there[128];

    if (!job->is_proved || port < 0 || !take_numbers(&job->options, frame)) return false;
    if (job->options.count != count || job->options.size != size) return false;
    if (is_elastic(job)) {
        struct bytes body = { 0 };
        if (!hold_ports(job, true)) {
            give_up(job, EXIT_FAILURE, "no free port (COLL_PORTS may leave none)");
            return true;
        }
        put_ports(job, &body);
        send_words(&job->up, FRAME_PORTS, 0, &body);
        free(body.data);
    }
    end_text(job->up.in, true, there, sizeof there);
    job->options.world = printable(find_word(frame, "world"), 64);
    job->options.root = *root ? printable(root, 255) : join_address(there, (int)port);
    return true;
}

/* Connect once.  Returns a descriptor, or -1 with errno.  A signal ends the wait. */
static int dial(struct job *job, const struct addrinfo *a)
{
    const int fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    const int64_t until = now_ms() + 3000;
    struct sockaddr_storage at = { 0 };
    socklen_t length = sizeof(int);
    int error = 0;

    if (fd < 0) return -1;
    memcpy(&at, a->ai_addr, a->ai_addrlen);
    if (connect(fd, (struct sockaddr *)&at, a->ai_addrlen) && errno != EINPROGRESS) error = errno;
    for (bool known = false; !error && !known && job->result < 0;) {
        struct pollfd p[2] = { { .fd = job->signals, .events = POLLIN }, { .fd = fd, .events = POLLOUT } };
        const int left = (int)(until - now_ms());
        if (poll(p, 2, left > 0 ? left : 0) == 0) error = ETIMEDOUT;
        if (p[0].revents) read_signals(job);
        known = p[1].revents != 0;
    }
    if (!error) getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length);
    if (!error && job->result < 0) return fd;
    close(fd);
    errno = error;
    return -1;
}

/* Try all addresses until the time limit. */
static void dial_leader(struct job *job)
{
    char tried[600] = "", text[128];
    const char *why;

    while (job->result < 0) {
        struct addrinfo *list = resolve_join(job->options.join, &why);
        size_t length = (size_t)snprintf(tried, sizeof tried, "%s", why ? why : "");
        for (const struct addrinfo *a = list; a && job->result < 0; a = a->ai_next) {
            const int fd = dial(job, a);
            const int error = errno;
            struct sockaddr_storage at = { 0 };
            if (fd >= 0) {
                freeaddrinfo(list);
                watch_connection(fd);
                link_open(&job->up, fd, fd, 64 << 10);
                send_hello(job);
                return;
            }
            memcpy(&at, a->ai_addr, a->ai_addrlen);
            address_text(&at, a->ai_addrlen, text, sizeof text);
            if (length + 200 < sizeof tried) {
                length += (size_t)snprintf(tried + length, sizeof tried - length, "%s%s: %s", length ? ", " : "", text,
                                           strerror(error));
            }
        }
        if (list) freeaddrinfo(list);
        if (now_ms() >= job->wait_until_ms) {
            decide(job, EXIT_FAILURE, false, "no launcher answers at %s after %.1f s: %s", job->options.join,
                   (double)job->options.wait_ms / 1000.0, tried);
        }
        if (job->result < 0) serve(job, now_ms() + 200);
    }
}

/* Listen if the address is local, otherwise connect. */
static void join_others(struct job *job)
{
    const char *why;
    struct addrinfo *list = resolve_join(job->options.join, &why);

    job->wait_until_ms = now_ms() + job->options.wait_ms;
    if (listen_there(job, list)) {
        job->progress_at_ms = now_ms() + REPORT_MS;
        if (!job->options.key && !says_loopback(job->options.join)) {
            say(job->err, "without a key (COLL_KEY, --key-file) any process that reaches %s can join", job->options.join);
        }
        if (has_enough(job)) start_joiners(job);
    } else {
        dial_leader(job);
        if (job->up.in >= 0) job->wait_until_ms = now_ms() + JOINER_MS;
    }
    if (list) freeaddrinfo(list);
}

#endif /* RUN_JOIN_H */
