/* coll_tcp_io.h - waiting for sockets: poll, and io_uring through liburing.
 *
 * Bytes are moved by plain calls first, which is fastest while sockets are ready.  A back end is used when nothing moves any
 * more.  poll waits until a socket is ready.  io_uring takes the transfers themselves, and continues them while the thread
 * sleeps or computes.  Both also wait for all other events, such as new connections (coll_tcp_watch.h).
 *
 * The ring does not use DEFER_TASKRUN, so transfers continue while the program computes.  If a ring cannot be opened, poll is
 * used, with a log line; if io_uring is configured by name, that is an error.
 *
 * Most of liburing is inline in its header.  The other functions are loaded with dlopen when a ring is opened; only
 * COLL_WITH_URING links the library.  So the link command does not depend on what is installed. */
#ifndef COLL_TCP_IO_H
#define COLL_TCP_IO_H

#if COLL__HAS_URING
#pragma GCC diagnostic push                       /* for liburing's inline functions                          */
#pragma GCC diagnostic ignored "-Wpedantic"
#pragma GCC diagnostic ignored "-Wconversion"
#pragma GCC diagnostic ignored "-Wsign-conversion"
#pragma GCC diagnostic ignored "-Wshadow"
#pragma GCC diagnostic ignored "-Wcast-qual"
#pragma GCC diagnostic ignored "-Wunused-parameter"
#pragma GCC diagnostic ignored "-Wsign-compare"
#include <dlfcn.h>
#include <sys/auxv.h>
#include <liburing.h>
#if !defined(IORING_SETUP_COOP_TASKRUN)
#undef COLL__HAS_URING
#define COLL__HAS_URING 0
#define COLL__URING_LACK "compiled without liburing, whose header is older than 2.2"
#endif
#pragma GCC diagnostic pop
#endif

#if COLL__HAS_URING
/* Functions of liburing 2.2 and later that are not inline. */
#define COLL__URING_CALLS(X) \
    X(io_uring_queue_init_params) X(io_uring_queue_exit) X(io_uring_submit) X(io_uring_submit_and_wait_timeout) \
    X(__io_uring_get_cqe)
#define COLL__URING_POINTER(name) __typeof__(name) *name;
typedef struct coll__uring_calls { COLL__URING_CALLS(COLL__URING_POINTER) } coll__uring_calls;
#endif

typedef struct coll__io {
    bool is_uring;
    int  refusal;                                 /* negative errno of a failed open; 0: none                 */
    coll__watched events;                           /* all but the transfers                                  */
    coll__doorbell doorbell;                      /* rung by other threads; one of the events                 */
    struct pollfd *fds;                           /* poll: for all streams and the events                     */
    int  posted;                                  /* io_uring: requests in flight                             */
    bool is_events_posted;
#if COLL__HAS_URING
    coll__uring_calls uring;
    struct io_uring ring;
#endif
} coll__io;

enum { COLL__CANCEL_MS = 1000 };

/* The streams that have transfers. */
typedef struct coll__active { coll__stream **streams; int count; } coll__active;

/* ---- >>poll ---- */

/* What to poll a connection for; 0: nothing.  false: it is ready now. */
static bool coll__link_await(const coll__connection *e, short *want)
{
    coll__stripe *const l = coll__stripe_of(e);
    const short query = l ? coll__stripe_query(l) : coll__stream_query(e->stream);

    *want = query ? coll__pipe_await(e->pipe, query) : 0;
    return *want || !query;
}

static void coll__poll_wait(coll__io *io, const coll__active *active, int wait_ms)
{
    int n = 1;                                    /* the first entry is for the events                        */

    for (int i = 0; i < active->count; i++) {
        coll__stream *s = active->streams[i];
        if (s->state != COLL__STREAM_OPEN) continue;
        for (int k = 0; k < coll__lane_count(s); k++) {
            const coll__connection *e = coll__stream_link(s, k);
            short want;
            if (!coll__link_await(e, &want)) wait_ms = 0;
            if (want) io->fds[n++] = (struct pollfd){ .fd = e->pipe->fd, .events = want };
        }
    }
    coll__watched_wait(&io->events, io->fds, n, wait_ms);
}

/* ---- >>io_uring ---- */

#if !COLL__HAS_URING

static int coll__uring_open(coll__io *io) { (void)io; return -ENOSYS; }
static const char *coll__uring_hint(int error) { (void)error; return COLL__URING_LACK; }
static void coll__uring_close(coll__io *io) { (void)io; }
static int coll__uring_reap(coll__io *io) { (void)io; return 0; }
static void coll__uring_wait(coll__io *io, const coll__active *active, int wait_ms) { (void)io, (void)active, (void)wait_ms; }
static void coll__uring_cancel(coll__io *io, coll__stream *s) { (void)io, (void)s; }

#else

#if defined(COLL_WITH_URING)

#define COLL__URING_LIBRARY "liburing"
#define COLL__URING_LINKED(name) name,
static int coll__uring_load(coll__uring_calls *calls)
{
    *calls = (coll__uring_calls){ COLL__URING_CALLS(COLL__URING_LINKED) };
    return 0;
}

#else

#if !defined(COLL__URING_LIBRARY)
#define COLL__URING_LIBRARY "liburing.so.2"
#endif

/* Weak, so they are null where they need a library (-ldl, before glibc 2.34), and the link still succeeds.  A static program
 * has no loader (AT_BASE), and loads nothing: that would load a second libc. */
static __typeof__(dlopen) coll__weak_dlopen __attribute__((weakref("dlopen")));
static __typeof__(dlsym) coll__weak_dlsym __attribute__((weakref("dlsym")));

/* Store a function pointer, which ISO C does not convert from void *. */
static bool coll__uring_find(void *library, const char *name, void *function)
{
    void *const at = coll__weak_dlsym(library, name);

    memcpy(function, &at, sizeof at);
    return at != NULL;
}

/* The library stays loaded, for other rings use it. */
#define COLL__URING_FOUND(name) && coll__uring_find(library, #name, &calls->name)
static int coll__uring_load(coll__uring_calls *calls)
{
    if (!coll__weak_dlopen || !coll__weak_dlsym || !getauxval(AT_BASE)) return -ELIBEXEC;
    void *const library = coll__weak_dlopen(COLL__URING_LIBRARY, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (!library) return -ELIBACC;
    return true COLL__URING_CALLS(COLL__URING_FOUND) ? 0 : -ELIBBAD;
}

#endif

/* Open a ring: with the newest flags first, with fewer entries if locked memory is short.  Returns 0 or a negative errno. */
static int coll__uring_open(coll__io *io)
{
    static const unsigned ladder[] = { IORING_SETUP_COOP_TASKRUN | IORING_SETUP_TASKRUN_FLAG, 0 };        /* Linux 5.19 */
    const unsigned needed = IORING_FEAT_FAST_POLL | IORING_FEAT_NODROP | IORING_FEAT_EXT_ARG;
    int error = coll__uring_load(&io->uring);

    if (error) return error;
    for (unsigned entries = 128; entries >= 8; entries /= 4)
        for (size_t i = 0; i < sizeof ladder / sizeof *ladder; i++) {
            struct io_uring_params p;
            memset(&p, 0, sizeof p);
            p.flags = ladder[i];
            error = io->uring.io_uring_queue_init_params(entries, &io->ring, &p);
            if (error == -EINVAL) continue;
            if (error == -ENOMEM) break;
            if (error < 0) return error;
            io->ring.ring_fd = io->ring.enter_ring_fd = coll__fd_above(io->ring.ring_fd);
            error = io->ring.ring_fd < 0 ? -errno : (p.features & needed) == needed ? 0 : -ENOSYS;
            if (error) io->uring.io_uring_queue_exit(&io->ring);
            return error;
        }
    return error;
}

static const char *coll__uring_hint(int error)
{
    return error == -EPERM ? "not permitted: a container's seccomp filter, or kernel.io_uring_disabled"
         : error == -ENOMEM ? "too little memory may be locked (ulimit -l)"
         : error == -ENOSYS ? "this kernel or container does not have what is needed"
         : error == -ELIBACC ? COLL__URING_LIBRARY " was not found"
         : error == -ELIBBAD ? COLL__URING_LIBRARY " is older than 2.2"
         : error == -ELIBEXEC ? "this program loads no libraries (it is static, or needs -ldl)" : strerror(-error);
}

static void coll__uring_close(coll__io *io) { io->uring.io_uring_queue_exit(&io->ring); }

/* In the lowest bits of the tag of a request, beside COLL__RING_PULL and others; the rest is the address of a connection. */
enum { COLL__RING_CANCEL = COLL__RING_KINDS, COLL__RING_MASK = 3 };

/* Account for a completed request.  Errors are ignored: the next plain call on the socket returns them again. */
static void coll__uring_completed(coll__io *io, const struct io_uring_cqe *cqe)
{
    const uintptr_t tag = (uintptr_t)io_uring_cqe_get_data(cqe);
    const unsigned kind = (unsigned)tag & COLL__RING_MASK;
    coll__connection *e = (coll__connection *)(tag & ~(uintptr_t)COLL__RING_MASK);
    const size_t moved = cqe->res > 0 ? (size_t)cqe->res : 0;

    COLL__ASSERT(io->posted > 0, "io_uring has done something (%d), without a request", cqe->res);
    io->posted--;
    if (kind == COLL__RING_EVENTS && !e) io->is_events_posted = false;
    if (kind == COLL__RING_CANCEL || !e) return;
    e->is_posted[kind] = false;
    if (moved == 0 || kind == COLL__RING_EVENTS) return;
    if (kind == COLL__RING_PULL && e->stripe) coll__stripe_pulled(e->stripe, moved);
    else if (kind == COLL__RING_PULL) coll__stream_pulled(e->stream, moved);
    else if (e->stripe) coll__stripe_pushed(e->stripe, moved);
    else coll__stream_pushed(e->stream, moved);
}

/* The next completion, if any: io_uring_peek_cqe. */
static bool coll__uring_peek(coll__io *io, struct io_uring_cqe **cqe)
{
    unsigned head;

    io_uring_for_each_cqe(&io->ring, head, *cqe) return true;
    return io->uring.__io_uring_get_cqe(&io->ring, cqe, 0, 0, NULL) == 0;
}

/* Handle all completions without waiting; returns their number. */
static int coll__uring_reap(coll__io *io)
{
    struct io_uring_cqe *cqe;
    int count = 0;

    while (io->posted > 0 && coll__uring_peek(io, &cqe)) {
        coll__uring_completed(io, cqe);
        io_uring_cqe_seen(&io->ring, cqe);
        count++;
    }
    return count;
}

static struct io_uring_sqe *coll__uring_request(coll__io *io)
{
    struct io_uring_sqe *sqe = io_uring_get_sqe(&io->ring);

    if (!sqe) {
        (void)io->uring.io_uring_submit(&io->ring);
        sqe = io_uring_get_sqe(&io->ring);
    }
    if (sqe) io->posted++;
    return sqe;
}

/* Cancel all requests of a stream. */
static void coll__uring_cancel(coll__io *io, coll__stream *s)
{
    struct io_uring_sqe *sqe;

    for (int i = 0; i < coll__lane_count(s) * COLL__RING_KINDS; i++) {
        const coll__connection *e = coll__stream_link(s, i / COLL__RING_KINDS);
        if (!e->is_posted[i % COLL__RING_KINDS] || !(sqe = coll__uring_request(io))) continue;
        io_uring_prep_cancel(sqe, (void *)((uintptr_t)e | (unsigned)(i % COLL__RING_KINDS)), 0);
        io_uring_sqe_set_data(sqe, (void *)(uintptr_t)COLL__RING_CANCEL);
    }
}

/* For a pipe that is not a plain socket: request a poll.  false: it is ready now. */
static bool coll__uring_watch(coll__io *io, coll__connection *e)
{
    short want;
    const bool is_idle = coll__link_await(e, &want);
    struct io_uring_sqe *sqe = want && !e->is_posted[COLL__RING_EVENTS] ? coll__uring_request(io) : NULL;

    if (!sqe) return is_idle;
    io_uring_prep_poll_add(sqe, e->pipe->fd, (unsigned)want);
    io_uring_sqe_set_data(sqe, (void *)((uintptr_t)e | COLL__RING_EVENTS));
    e->is_posted[COLL__RING_EVENTS] = true;
    return true;
}

/* Submit one transfer per direction for a connection.  false: it is ready now.  MSG_WAITALL is set after the head has been
 * checked: another message may be shorter. */
static bool coll__uring_post(coll__io *io, coll__connection *e)
{
    coll__stream *s = e->stream;
    coll__stripe *l = e->stripe;
    struct io_uring_sqe *sqe;

    if (!coll__pipe_is_plain(e->pipe)) return coll__uring_watch(io, e);
    const bool is_body = l ? l->step == COLL__LAND_BODY : s->in.first && s->in.first->moved >= COLL_HEAD_LENGTH;
    struct msghdr *m = NULL;
    if (!e->is_posted[COLL__RING_PULL] && s->in.first) m = l ? coll__stripe_pull_message(l, true) : coll__pull_message(s);
    if (m && (sqe = coll__uring_request(io))) {
        io_uring_prep_recvmsg(sqe, e->pipe->fd, m, is_body ? MSG_WAITALL : 0);
        io_uring_sqe_set_data(sqe, (void *)((uintptr_t)e | COLL__RING_PULL));
        e->is_posted[COLL__RING_PULL] = true;
    }
    const bool is_due = l ? coll__outgoing_is_due(&l->out) : s->out.first != NULL;
    if (is_due && !e->is_posted[COLL__RING_PUSH] && (sqe = coll__uring_request(io))) {
        m = l ? coll__stripe_push_message(l) : coll__push_message(s);
        io_uring_prep_sendmsg(sqe, e->pipe->fd, m, MSG_WAITALL | MSG_NOSIGNAL);
        io_uring_sqe_set_data(sqe, (void *)((uintptr_t)e | COLL__RING_PUSH));
        e->is_posted[COLL__RING_PUSH] = true;
    }
    return true;
}

/* Submit transfers for all connections, and wait for the first completion. */
static void coll__uring_wait(coll__io *io, const coll__active *active, int wait_ms)
{
    struct __kernel_timespec t = { wait_ms / 1000, (wait_ms % 1000) * (long long)COLL__MS };
    struct io_uring_cqe *cqe;
    struct io_uring_sqe *sqe;

    if (!io->is_events_posted && (sqe = coll__uring_request(io))) {
        io_uring_prep_poll_add(sqe, io->events.fd, POLLIN);
        io_uring_sqe_set_data(sqe, (void *)(uintptr_t)COLL__RING_EVENTS);
        io->is_events_posted = true;
    }
    for (int i = 0; i < active->count; i++) {
        coll__stream *s = active->streams[i];
        if (s->state != COLL__STREAM_OPEN) continue;
        for (int k = 0; k < coll__lane_count(s); k++)
            if (!coll__uring_post(io, coll__stream_link(s, k))) t = (struct __kernel_timespec){ 0, 0 };
    }
    (void)io->uring.io_uring_submit_and_wait_timeout(&io->ring, &cqe, 1, &t, NULL);
    (void)coll__uring_reap(io);
}

#endif

/* ---- >>either ---- */

/* After this, coll__io_close is allowed. */
static void coll__io_init(coll__io *io)
{
    memset(io, 0, sizeof *io);
    io->events = coll__none_watched;
    io->doorbell = coll__no_doorbell;
}

/* `mode`: auto, uring or poll.  `streams`: most connections.  `is_heard`: other processes ring the doorbell. */
static coll_status coll__io_open(coll__io *io, const coll_allocator *memory, const char *mode, size_t streams, bool is_heard,
                                 const coll__log *log)
{
    coll__io_init(io);
    const size_t room = coll__watched_room(streams);
    const int watch = coll__watched_open(&io->events, memory, room);
    const int doorbell = is_heard ? coll__doorbell_open_pipe(&io->doorbell) : coll__doorbell_open(&io->doorbell);
    io->fds = (struct pollfd *)coll__take_zeros(memory, streams + 1 + room, sizeof *io->fds);
    if (watch || doorbell || !io->fds)
        return coll__start_failed(COLL_ERR_SYSTEM, "descriptors to wait with: %s",
                                  strerror(watch ? watch : doorbell ? doorbell : ENOMEM));
    /* While a table of descriptors grows, all threads of the process may wait in the kernel, the heartbeat too: grow it now. */
    int last = fcntl(io->doorbell.fd, F_DUPFD_CLOEXEC, (int)coll__least(2 * streams, INT_MAX));
    coll__close_fd(&last);
    if (!strcmp(mode, "poll")) return COLL_OK;
    io->refusal = coll__uring_open(io);
    io->is_uring = io->refusal == 0;
    if (io->is_uring) return COLL_OK;
    const char *const hint = coll__uring_hint(io->refusal);
    if (!strcmp(mode, "uring"))
        return coll__start_failed(COLL_ERR_UNSUPPORTED, "io_uring was requested but is not available: %s", hint);
    coll__say(log, COLL_LOG_INFO, "no io_uring: %s; using poll", hint);
    return COLL_OK;
}

/* "io_uring;", "poll;" or "poll: liburing.so.2 was not found;" */
static void coll__io_describe(const coll__io *io, char *text, size_t room)
{
    coll__print(text, room, io->is_uring ? "io_uring" : "poll");
    if (io->refusal) coll__append(text, room, ": %s", coll__uring_hint(io->refusal));
    coll__append(text, room, ";");
}

static void coll__io_wait(coll__io *io, const coll__active *active, int wait_ms)
{
    if (io->is_uring) coll__uring_wait(io, active, wait_ms);
    else coll__poll_wait(io, active, wait_ms);
}

/* Account for transfers completed by the kernel; returns their number. */
static inline int coll__io_reap(coll__io *io) { return io->posted > 0 ? coll__uring_reap(io) : 0; }

/* Cancel all transfers, so that the kernel no longer uses their memory.  The sockets stay open. */
static void coll__io_cancel(coll__io *io, coll__stream *streams, int count)
{
    const coll__active none = { NULL, 0 };
    const int64_t deadline = coll__deadline(COLL__CANCEL_MS);

    (void)coll__io_reap(io);
    for (int i = 0; i < count && io->posted > 0; i++) coll__uring_cancel(io, &streams[i]);
    while (io->posted > (io->is_events_posted ? 1 : 0) && coll__now() < deadline) coll__io_wait(io, &none, 20);
}

static void coll__io_close(coll__io *io)
{
    if (io->is_uring) coll__uring_close(io);
    coll__watched_close(&io->events);
    coll__doorbell_close(&io->doorbell);
    coll__give(io->fds);
}

/* Watch a descriptor; `tag` identifies its events. */
static void coll__io_watch(coll__io *io, int fd, short want, uint64_t tag) { coll__watched_add(&io->events, fd, want, tag); }
static void coll__io_forget(coll__io *io, int fd) { coll__watched_remove(&io->events, fd); }

/* Wait for events only. */
static void coll__io_wait_events(coll__io *io, int wait_ms) { coll__watched_wait(&io->events, io->fds, 1, wait_ms); }

#endif /* COLL_TCP_IO_H */
