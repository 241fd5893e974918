/* test_intruders.c - floods of connections that send nothing, at the port of a rank that computes outside the library.  The ranks
 * that dial it meanwhile must connect: it is alive, and its heartbeat proves it.
 *
 *     test_intruders [PART,...]         PART: idle, endless, handshake
 *
 *     idle        the flood fills the queue of the listener, stays, and sends nothing
 *     endless     connections are opened and closed all the time
 *     handshake     such a flood at rank 0, before the others connect
 */
#define COLL__ONE_TIER 1
#include "../support/inside.h"

#include <dirent.h>
#include <sys/resource.h>

#include "../support/check.h"
#include "../support/support.h"
#include "../support/cases.h"
#include "../support/joining_ranks.h"

#define KEY "a key of all ranks, 0123456789"

/* The time to compute is longer than the connect timeout in all modes (3.5 s, or the liveness timeout). */
enum { CASE_SECONDS = 60, RANKS = 4, CALLED = 3, LIVENESS_MS = 1000, COMPUTES_MS = 5000, BOUND_MS = 3000, FLOOD = 4300,
       HELD = 600, FILES_MOST = COLL__HANDSHAKES_SPARE + 2 * RANKS + 100 };

typedef struct manner { const char *key, *security, *io; } manner;

static const manner manners[] = {
    { NULL, NULL, "poll" }, { KEY, "key", "uring" }, { KEY, "key+check", "poll" }, { NULL, "open+check", "uring" },
#if defined(COLL_WITH_OPENSSL)
    { KEY, "tls", "poll" }, { KEY, "tls", "uring" },
#endif
};
enum { MANNERS = sizeof manners / sizeof *manners };

/* ---- >>floods: processes, with descriptors of their own ---- */

typedef struct flood { pid_t pid; int ready[2]; } flood;

static int flood_dial(const struct sockaddr_in *to)
{
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    if (fd >= 0) (void)connect(fd, (const struct sockaddr *)to, sizeof *to);
    return fd;
}

/* Report that the flood is complete when the queue of a listener that accepts nothing is full. */
static void flood_idles(const struct sockaddr_in *to, int ready)
{
    static struct pollfd fds[FLOOD];
    int left = FLOOD;

    for (int i = 0; i < FLOOD; i++) fds[i] = (struct pollfd){ .fd = flood_dial(to), .events = POLLOUT };
    const int64_t until = now_ms() + 1000;        /* the last ones fail: the queue holds 4,097                */
    while (left > 0 && now_ms() < until) {
        (void)poll(fds, FLOOD, 50);
        left = 0;
        for (int i = 0; i < FLOOD; i++) left += fds[i].events && !fds[i].revents;
    }
    (void)!write(ready, "x", 1);
    for (;;) (void)pause();
}

static void flood_goes_on(const struct sockaddr_in *to, int ready)
{
    static int fds[HELD];

    for (int i = 0; i < HELD; i++) fds[i] = -1;
    for (int n = 0;; n++) {
        if (fds[n % HELD] >= 0) close(fds[n % HELD]);
        fds[n % HELD] = flood_dial(to);
        if (n == HELD) (void)!write(ready, "x", 1);
    }
}

static void flood_begin(flood *f, int port, void (*body)(const struct sockaddr_in *to, int ready))
{
    const struct sockaddr_in to = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
                                    .sin_port = htons((uint16_t)port) };
    struct rlimit most;
    char byte;

    CHECK(!pipe(f->ready), "%s: no pipe", case_name);
    f->pid = fork();
    if (f->pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        for (int i = 3; i < 256; i++) if (i != f->ready[1]) close(i);         /* what the ranks had open */
        getrlimit(RLIMIT_NOFILE, &most);
        most.rlim_cur = most.rlim_max;
        setrlimit(RLIMIT_NOFILE, &most);
        body(&to, f->ready[1]);
        _exit(0);
    }
    close(f->ready[1]);
    CHECK(read(f->ready[0], &byte, 1) == 1, "%s: no flood", case_name);
}

static void flood_end(flood *f)
{
    kill(f->pid, SIGKILL);
    (void)waitpid(f->pid, NULL, 0);
    close(f->ready[0]);
}

/* ---- >>a rank that computes ---- */

typedef struct scene {
    manner  manner;
    void  (*flood)(const struct sockaddr_in *to, int ready);
    event   met, go;
    int     port, files_most;
    double  share;                                /* processor time, while all wait                           */
} scene;

static int count_files(void)
{
    DIR *list = opendir("/proc/self/fd");
    int count = 0;

    while (list && readdir(list)) count++;
    if (list) closedir(list);
    return count;
}

static double used_seconds(void)
{
    struct rusage u;

    getrusage(RUSAGE_SELF, &u);
    return (double)u.ru_utime.tv_sec + (double)u.ru_stime.tv_sec + 1e-6 * (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec);
}

/* The program's own work, outside the library; it sleeps, so that the processor time of the library shows. */
static void compute(scene *s)
{
    const int64_t until = now_ms() + COMPUTES_MS;
    const double before = used_seconds();

    while (now_ms() < until) {
        const int files = count_files();
        if (files > s->files_most) s->files_most = files;
        (void)poll(NULL, 0, 20);
    }
    s->share = (used_seconds() - before) * 1000 / COMPUTES_MS;
}

static coll_status call_who_computes(joiner *g)
{
    scene *s = g->arg;
    const int rank = coll_rank(g->comm);
    int32_t n = rank, got = -1;
    coll_status status = COLL_OK;

    if (rank == CALLED) {
        const coll__tcp *tcp = inside_tcp(g->comm);
        s->port = coll__name_of(tcp->listener, false).port;
    }
    event_raise(&s->met);
    event_await(&s->go, 1);
    if (rank == CALLED) compute(s);
    const int64_t began = now_ms();
    if (rank == CALLED) {                         /* data sent to it while it computed                        */
        for (int from = 1; from < CALLED && !status; from++) {
            status = coll_recv(g->comm, &got, 1, COLL_I32, from, 7);
            CHECK(status || got == from, "%s: received %d from rank %d", case_name, (int)got, from);
        }
    } else if (rank > 0) {
        status = coll_send(g->comm, &n, 1, COLL_I32, CALLED, 7);
    }
    if (!status) status = joiner_adds_up(g);
    if (rank == CALLED) g->took_ms = now_ms() - began;
    return status;
}

static void joiner_settle(joiner *g, const scene *s, int rank, int size, const char *address, journal *j)
{

    g->config.rank = rank;
    g->config.size = size;
    g->config.address = address;
    g->config.tcp.key = s->manner.key;
    g->config.tcp.security = s->manner.security;
    g->config.tcp.io = s->manner.io;
    g->config.liveness_timeout_ms = (int)support_scaled(LIVENESS_MS);
    g->config.tcp.share_memory = COLL_OFF;
    g->config.log = journal_line;
    g->config.log_context = j;
}

static void computing_case(const void *arg)
{
    scene s = *(const scene *)arg;
    journal said = JOURNAL;
    joiner joiners[RANKS];
    char address[64];
    flood f;
    const int port = support_reserve_port(address, sizeof address);
    int64_t took = 0;

    for (int i = 0; i < RANKS; i++) {
        joiners[i] = (joiner){ .body = call_who_computes, .arg = &s };
        joiner_settle(&joiners[i], &s, i, RANKS, address, &said);
        joiner_run(&joiners[i]);
    }
    event_await(&s.met, RANKS);
    case_step = "the flood";
    flood_begin(&f, s.port, s.flood);
    case_step = "the first calls, in the flood";
    event_raise(&s.go);
    for (int i = 0; i < RANKS; i++) joiner_join(&joiners[i]);
    for (int i = 0; i < RANKS; i++) expect_success(&joiners[i]);
    for (int i = 0; i < RANKS; i++) if (joiners[i].body_ms > took) took = joiners[i].body_ms;
    printf("%s: %d ms in all, %.2f of a processor, %d files\n", case_name, (int)took, s.share, s.files_most);
    CHECK(took < support_scaled(COMPUTES_MS + BOUND_MS), "%s: it took %d ms", case_name, (int)took);
    CHECK(s.files_most < FILES_MOST, "%s: up to %d files were open", case_name, s.files_most);
    if (s.flood == flood_idles) CHECK(s.share < 0.4, "%s: %.2f of a processor while all are still", case_name, s.share);
    flood_end(&f);
    close(port);
}

static void run_computing(void (*body)(const struct sockaddr_in *to, int ready), const char *what)
{
    for (size_t i = 0; i < MANNERS; i++) {
        const scene s = { .manner = manners[i], .flood = body, .met = EVENT_INIT, .go = EVENT_INIT };
        char name[100];
        snprintf(name, sizeof name, "%s flood, security %s, %s", what, manners[i].security ? manners[i].security : "none",
                 manners[i].io);
        run_case_within(CASE_SECONDS, computing_case, &s, name);
    }
}

/* ---- >>handshake: a flood at the start ---- */

static void handshake_case(const void *arg)
{
    const scene *s = arg;
    journal said = JOURNAL;
    joiner joiners[RANKS];
    char address[64];
    flood f;
    const int port = support_reserve_port(address, sizeof address);

    for (int i = 0; i < RANKS; i++) {
        joiners[i] = (joiner){ .body = NULL };
        joiner_settle(&joiners[i], s, i, RANKS, address, &said);
    }
    joiner_run(&joiners[0]);
    flood_begin(&f, atoi(strrchr(address, ':') + 1), s->flood);
    for (int i = 1; i < RANKS; i++) joiner_run(&joiners[i]);
    for (int i = 0; i < RANKS; i++) joiner_join(&joiners[i]);
    for (int i = 0; i < RANKS; i++) expect_success(&joiners[i]);
    printf("%s: %d ms\n", case_name, (int)joiners[1].took_ms);
    flood_end(&f);
    close(port);
}

static void run_handshake(void)
{
    for (size_t i = 0; i < MANNERS; i++) {
        const scene s = { .manner = manners[i], .flood = flood_goes_on };
        char name[100];
        snprintf(name, sizeof name, "a flood at rank 0, security %s, %s", manners[i].security ? manners[i].security : "none",
                 manners[i].io);
        run_case_within(CASE_SECONDS, handshake_case, &s, name);
    }
}

/* ---- >>all of it ---- */

int main(int argc, char **argv)
{
    const char *parts = argc > 1 ? argv[1] : NULL;

    cases_begin_without_key();
    world = "intruders";
    if (support_listed(parts, "idle")) run_computing(flood_idles, "an idle");
    if (support_listed(parts, "endless")) run_computing(flood_goes_on, "an endless");
    if (support_listed(parts, "handshake")) run_handshake();
    return CHECK_DONE();
}
