/* coll_tcp_watch.h - descriptors watched beside the transfers: listener, handshakes, control connections, doorbell.
 *
 * Each has a tag that identifies it.  On Linux an epoll descriptor stands for all of them.  Elsewhere (COLL_PORTABLE) a list
 * is passed to poll each time, behind the transfers.  The heartbeat thread may change the list while the calling thread waits;
 * that wait misses new entries, which the heartbeat thread polls itself. */
#ifndef COLL_TCP_WATCH_H
#define COLL_TCP_WATCH_H

enum { COLL__EVENTS_AT_ONCE = 32 };

#if !defined(COLL_PORTABLE)

#include <sys/epoll.h>

typedef struct coll__watched { int fd; } coll__watched;       /* readable if one of them is ready             */

static const coll__watched coll__none_watched = { -1 };

/* How many entries behind the transfers a wait needs. */
static inline size_t coll__watched_room(size_t streams) { return (void)streams, 0; }

/* Returns 0 or an errno. */
static int coll__watched_open(coll__watched *w, const coll_allocator *memory, size_t room)
{
    (void)memory, (void)room;
    w->fd = coll__fd_above(epoll_create1(EPOLL_CLOEXEC));
    return w->fd < 0 ? errno : 0;
}

static void coll__watched_close(coll__watched *w) { coll__close_fd(&w->fd); }

/* Watch a descriptor for poll events; epoll's have the same values. */
static void coll__watched_add(coll__watched *w, int fd, short want, uint64_t tag)
{
    struct epoll_event e = { .events = (uint32_t)want, .data = { .u64 = tag } };

    _Static_assert((int)EPOLLIN == POLLIN && (int)EPOLLOUT == POLLOUT, "epoll has the events of poll");
    (void)epoll_ctl(w->fd, EPOLL_CTL_ADD, fd, &e);
}

/* Call this before the descriptor is closed. */
static void coll__watched_remove(coll__watched *w, int fd) { (void)epoll_ctl(w->fd, EPOLL_CTL_DEL, fd, NULL); }

/* Store the tags of ready descriptors without waiting; returns their number. */
static int coll__watched_look(coll__watched *w, uint64_t tags[COLL__EVENTS_AT_ONCE])
{
    struct epoll_event events[COLL__EVENTS_AT_ONCE];
    const int count = epoll_wait(w->fd, events, COLL__EVENTS_AT_ONCE, 0);

    for (int i = 0; i < count; i++) tags[i] = events[i].data.u64;
    return count;
}

/* Wait until one of them, or one of others[1 .. count - 1], is ready; others[0] and those from `count` on are overwritten. */
static void coll__watched_wait(coll__watched *w, struct pollfd *others, int count, int wait_ms)
{
    others[0] = (struct pollfd){ .fd = w->fd, .events = POLLIN };
    (void)poll(others, (nfds_t)count, wait_ms);   /* after a signal or an error the caller looks again        */
}

#else

typedef struct coll__watched {
    pthread_mutex_t lock;                         /* guards the rest                                          */
    bool      has_lock;
    struct pollfd *fds;
    uint64_t *tags;
    int       count, room;
    unsigned  turn;                               /* rotates the start of a look, for fairness                */
} coll__watched;

static const coll__watched coll__none_watched = { .count = 0 };

/* For each stream one that connects, a handshake and a control connection; spare handshakes, the listener, and the doorbell. */
static inline size_t coll__watched_room(size_t streams) { return 3 * streams + 256; }

static int coll__watched_open(coll__watched *w, const coll_allocator *memory, size_t room)
{
    const int error = pthread_mutex_init(&w->lock, NULL);

    w->has_lock = error == 0;
    w->room = (int)room;
    w->fds = (struct pollfd *)coll__take_zeros(memory, room, sizeof *w->fds);
    w->tags = (uint64_t *)coll__take_zeros(memory, room, sizeof *w->tags);
    return error ? error : w->fds && w->tags ? 0 : ENOMEM;
}

static void coll__watched_close(coll__watched *w)
{
    if (w->has_lock) pthread_mutex_destroy(&w->lock);
    coll__give(w->fds);
    coll__give(w->tags);
    memset(w, 0, sizeof *w);
}

/* Index of a descriptor; w->count: not found. */
static int coll__watched_place(const coll__watched *w, int fd)
{
    int i = 0;

    while (i < w->count && w->fds[i].fd != fd) i++;
    return i;
}

/* Remove an entry; the last one replaces it. */
static void coll__watched_drop(coll__watched *w, int place)
{
    w->count--;
    w->fds[place] = w->fds[w->count];
    w->tags[place] = w->tags[w->count];
}

static void coll__watched_add(coll__watched *w, int fd, short want, uint64_t tag)
{
    pthread_mutex_lock(&w->lock);
    const int i = coll__watched_place(w, fd);
    COLL__ASSERT(i < w->room, "%d descriptors are watched, and one more has no room", i);
    if (i < w->room) {
        w->fds[i] = (struct pollfd){ .fd = fd, .events = want };
        w->tags[i] = tag;
        if (i == w->count) w->count++;
    }
    pthread_mutex_unlock(&w->lock);
}

static void coll__watched_remove(coll__watched *w, int fd)
{
    pthread_mutex_lock(&w->lock);
    const int i = coll__watched_place(w, fd);
    if (i < w->count) coll__watched_drop(w, i);
    pthread_mutex_unlock(&w->lock);
}

/* Closed descriptors are removed. */
static int coll__watched_look(coll__watched *w, uint64_t tags[COLL__EVENTS_AT_ONCE])
{
    int found = 0;

    pthread_mutex_lock(&w->lock);
    const int ready = poll(w->fds, (nfds_t)w->count, 0), count = ready > 0 ? w->count : 0;
    const int first = count > 0 ? (int)(w->turn++ % (unsigned)count) : 0;
    for (int n = 0; n < count && found < COLL__EVENTS_AT_ONCE; n++) {
        const int i = (first + n) % count;
        if (w->fds[i].revents && !(w->fds[i].revents & POLLNVAL)) tags[found++] = w->tags[i];
    }
    for (int i = count - 1; i >= 0; i--) if (w->fds[i].revents & POLLNVAL) coll__watched_drop(w, i);
    pthread_mutex_unlock(&w->lock);
    return found;
}

static void coll__watched_wait(coll__watched *w, struct pollfd *others, int count, int wait_ms)
{
    others[0].fd = -1;
    pthread_mutex_lock(&w->lock);
    memcpy(others + count, w->fds, (size_t)w->count * sizeof *others);
    count += w->count;
    pthread_mutex_unlock(&w->lock);
    (void)poll(others, (nfds_t)count, wait_ms);
}

#endif
#endif /* COLL_TCP_WATCH_H */
