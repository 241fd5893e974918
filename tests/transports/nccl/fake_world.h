/* fake_world.h - the memory that the ranks of a fake NCCL share between threads and processes.  It is found by the unique id,
 * which names the process and the file.
 *
 * Each rank has a slot.  When a launch (a group, or a single call) reaches the head of its stream, its operations are posted in
 * the slot.  The last rank to post a collective carries it out for all ranks; the second to post carries out a send and its
 * receive.  All of that happens under one lock, on the memory of all devices, which the processes map from one another.
 *
 * If an operation can never complete - ranks in different calls, exchanges outside of a group - the second of the two posts
 * detects it, and ends the process with a sentence. */
#ifndef FAKE_WORLD_H
#define FAKE_WORLD_H

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "fake.h"
#include "fake_numbers.h"

enum { SLOTS_MOST = 64, POSTS_MOST = 512 };

typedef enum call { ALL_REDUCE, REDUCE, REDUCE_SCATTER, BROADCAST, ALL_GATHER, SEND, RECV } call;

static const char *const call_names[] = { "AllReduce", "Reduce", "ReduceScatter", "Broadcast", "AllGather", "Send", "Recv" };

/* An operation of a launch that has begun.  Memory is an offset into the arena of the rank's process. */
typedef struct post {
    call     call;
    unsigned type, op;
    int      root;                                /* or the peer                                              */
    size_t   count, send, recv;
    uint64_t number;                              /* among the collectives, or among those to or from the peer */
    bool     is_done;
} post;

typedef struct group_slot {
    bool     is_taken, is_done, has_left;         /* done: has finalised; gone: has aborted                   */
    int      pid, device, arena_fd;
    uint64_t collectives, sent[SLOTS_MOST], received[SLOTS_MOST];
    int      posts;
    bool     is_grouped;
    post     post[POSTS_MOST];
} group_slot;

typedef struct world {
    _Atomic unsigned lock, turn;                  /* lock: 0, or the process that has it                      */
    int      size, taken;
    group_slot     group_slots[SLOTS_MOST];
} world;

/* Another process's device memory, mapped. */
typedef struct arena { int pid; unsigned char *at; struct arena *next; } arena;

typedef struct place { int pid, fd, holders; world *world; struct place *next; } place;

static pthread_mutex_t places_lock = PTHREAD_MUTEX_INITIALIZER;
static place *places;
static arena *arenas;

/* ---- >>memory that processes share ---- */

static void *map_of(int pid, int fd, size_t size)
{
    char path[64];

    snprintf(path, sizeof path, "/proc/%d/fd/%d", pid, fd);
    const int opened = open(path, O_RDWR | O_CLOEXEC);
    void *at = opened < 0 ? MAP_FAILED : mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, opened, 0);
    if (opened >= 0) close(opened);
    return at == MAP_FAILED ? NULL : at;
}

/* The world of an id, mapped once in a process; NULL: its process has ended. */
static world *world_open(int pid, int fd)
{
    place *p;

    pthread_mutex_lock(&places_lock);
    for (p = places; p && (p->pid != pid || p->fd != fd); p = p->next) { }
    if (!p) {
        world *w = map_of(pid, fd, sizeof *w);
        p = w ? calloc(1, sizeof *p) : NULL;
        if (p) *p = (place){ pid, fd, 0, w, places };
        if (p) places = p;
    }
    pthread_mutex_unlock(&places_lock);
    return p ? p->world : NULL;
}

/* Byte `offset` of a process's device memory; under the world's lock. */
static unsigned char *arena_at(const group_slot *s, size_t offset)
{
    arena *a;

    pthread_mutex_lock(&places_lock);
    for (a = arenas; a && a->pid != s->pid; a = a->next) { }
    if (!a) {
        a = calloc(1, sizeof *a);
        if (a) *a = (arena){ s->pid, map_of(s->pid, s->arena_fd, fake_arena_size()), arenas };
        if (!a || !a->at) fake_fail("the device memory of process %d cannot be mapped: %s", s->pid, strerror(errno));
        arenas = a;
    }
    pthread_mutex_unlock(&places_lock);
    return a->at + offset;
}

/* ---- >>lock, and waiting ---- */

static void world_wait(world *w, unsigned turn, long ms)
{
    const struct timespec limit = { ms / 1000, ms % 1000 * 1000000 };
    syscall(SYS_futex, &w->turn, FUTEX_WAIT, turn, &limit, NULL, 0);
}

static void world_changed(world *w)
{
    w->turn++;
    syscall(SYS_futex, &w->turn, FUTEX_WAKE, SLOTS_MOST * 2, NULL, NULL, 0);
}

/* If a process died with the lock, take the lock over. */
static void world_lock(world *w)
{
    const unsigned me = (unsigned)getpid();

    for (int tries = 0;; tries++) {
        unsigned holder = 0;
        if (atomic_compare_exchange_strong(&w->lock, &holder, me)) return;
        if (tries > 1000 && holder != me && kill((pid_t)holder, 0) && errno == ESRCH)
            (void)atomic_compare_exchange_strong(&w->lock, &holder, 0);
        nanosleep(&(struct timespec){ .tv_nsec = tries < 100 ? 1000 : 1000000 }, NULL);
    }
}

static void world_unlock(world *w) { atomic_store(&w->lock, 0); }

/* ---- >>what a collective does ---- */

static bool is_message(call c) { return c == SEND || c == RECV; }
static bool reduces(call c) { return c <= REDUCE_SCATTER; }
static bool has_root(call c) { return c == REDUCE || c == BROADCAST; }

/* How many times `count` elements a rank brings, and gets. */
static size_t parts_sent(call c, int rank, int root, int size)
{
    if (c == BROADCAST) return rank == root;
    return c == REDUCE_SCATTER ? (size_t)size : 1;
}

static size_t parts_received(call c, int rank, int root, int size)
{
    if (c == REDUCE) return rank == root;
    return c == ALL_GATHER ? (size_t)size : 1;
}

/* The one form in which a call may work in place: where its recv lies then, in bytes behind its send; false: it has none. */
static bool in_place_at(call c, int rank, ptrdiff_t block, ptrdiff_t *at)
{
    *at = c == ALL_GATHER ? -rank * block : c == REDUCE_SCATTER ? rank * block : 0;
    return !is_message(c);
}

static post *post_of(group_slot *s, uint64_t number)
{
    for (int i = 0; i < s->posts; i++)
        if (!is_message(s->post[i].call) && s->post[i].number == number && !s->post[i].is_done) return &s->post[i];
    return NULL;
}

/* What rank `r` gets is made aside of all that the ranks bring, before anything is written. */
static unsigned char *result_of(world *w, post *const *posts, int r, size_t each, size_t parts)
{
    const post *mine = posts[r];
    const size_t length = mine->count * each;
    unsigned char *out = malloc(parts * length + 1);
    const unsigned char *in[SLOTS_MOST];

    if (!out) fake_fail("no memory for the fake itself");
    for (int q = 0; q < w->size; q++) in[q] = arena_at(&w->group_slots[q], posts[q]->send);
    switch (mine->call) {
    case ALL_REDUCE: case REDUCE: fake_reduce(mine->type, mine->op, in, w->size, mine->count, out); break;
    case REDUCE_SCATTER:
        for (int q = 0; q < w->size; q++) in[q] += (size_t)r * length;
        fake_reduce(mine->type, mine->op, in, w->size, mine->count, out);
        break;
    case BROADCAST: memcpy(out, in[mine->root], length); break;
    default:
        for (int q = 0; q < w->size; q++) memcpy(out + (size_t)q * length, in[q], length);
        break;
    }
    return out;
}

static void carry_out(world *w, post *const *posts)
{
    const size_t each = fake_type_size(posts[0]->type);
    unsigned char *out[SLOTS_MOST] = { NULL };
    size_t parts;

    for (int r = 0; r < w->size; r++) {
        parts = parts_received(posts[r]->call, r, posts[r]->root, w->size);
        if (parts) out[r] = result_of(w, posts, r, each, parts);
    }
    for (int r = 0; r < w->size; r++) {
        parts = parts_received(posts[r]->call, r, posts[r]->root, w->size);
        if (parts) memcpy(arena_at(&w->group_slots[r], posts[r]->recv), out[r], parts * posts[r]->count * each);
        free(out[r]);
        posts[r]->is_done = true;
    }
}

static void must_agree(const post *a, int rank_a, const post *b, int rank_b)
{
    if (a->call == b->call && a->count == b->count && a->type == b->type && a->root == b->root && a->op == b->op) return;
    fake_fail("collective %llu: rank %d calls %s (count %zu, type %u, op %u, root %d), rank %d calls %s (count %zu, type %u, "
              "op %u, root %d)", (unsigned long long)a->number, rank_a, call_names[a->call], a->count, a->type, a->op, a->root,
              rank_b, call_names[b->call], b->count, b->type, b->op, b->root);
}

/* ---- >>a step: carry out what is complete ---- */

/* All collectives that all ranks have posted. */
static bool do_collectives(world *w)
{
    post *posts[SLOTS_MOST];
    bool is_any = false;

    for (;; is_any = true) {
        uint64_t number = UINT64_MAX;
        for (int r = 0; r < w->size; r++) {       /* the first one that any rank has posted                   */
            for (int i = 0; i < w->group_slots[r].posts; i++) {
                const post *p = &w->group_slots[r].post[i];
                if (!is_message(p->call) && !p->is_done && p->number < number) number = p->number;
            }
        }
        int here = 0, first = -1;
        for (int r = 0; r < w->size && number != UINT64_MAX; r++) {
            posts[r] = post_of(&w->group_slots[r], number);
            if (!posts[r]) continue;
            if (first < 0) first = r;
            must_agree(posts[first], first, posts[r], r);
            here++;
        }
        if (!here || here < w->size) return is_any;
        carry_out(w, posts);
    }
}

/* The other half of a message of rank `me`, among the posts of its peer. */
static post *half_of(world *w, int me, const post *p)
{
    group_slot *s = &w->group_slots[p->root];

    for (int i = 0; i < s->posts; i++) {
        post *q = &s->post[i];
        if (is_message(q->call) && q->call != p->call && q->root == me && q->number == p->number && !q->is_done) return q;
    }
    return NULL;
}

static bool do_messages(world *w)
{
    bool is_any = false;

    for (int r = 0; r < w->size; r++) {
        for (int i = 0; i < w->group_slots[r].posts; i++) {
            post *p = &w->group_slots[r].post[i], *q = p->call == RECV && !p->is_done ? half_of(w, r, p) : NULL;
            if (!q) continue;
            const size_t length = p->count * fake_type_size(p->type);
            if (length != q->count * fake_type_size(q->type))
                fake_fail("message %llu from rank %d to rank %d: %zu bytes are sent, %zu received", (unsigned long long)p->number,
                          p->root, r, q->count * fake_type_size(q->type), length);
            memcpy(arena_at(&w->group_slots[r], p->recv), arena_at(&w->group_slots[p->root], q->send), length);
            p->is_done = q->is_done = is_any = true;
        }
    }
    return is_any;
}

/* What rank a waits for in rank b, which b's launch does not have; NULL: nothing. */
static const post *lacks(world *w, int a, int b)
{
    for (int i = 0; i < w->group_slots[a].posts; i++) {
        const post *p = &w->group_slots[a].post[i];
        if (p->is_done || (is_message(p->call) && p->root != b)) continue;
        if (is_message(p->call) ? half_of(w, a, p) == NULL : post_of(&w->group_slots[b], p->number) == NULL) return p;
    }
    return NULL;
}

static void name_post(const world *w, int rank, const post *p, char *text, size_t room)
{
    snprintf(text, room, "rank %d is in %s%s %llu%s", rank, call_names[p->call],
             is_message(p->call) ? " of message" : ", collective", (unsigned long long)p->number,
             w->group_slots[rank].is_grouped ? " (in a group)" : "");
}

/* Launches of a rank run one after another.  If two of them each wait for an operation of the other, or one waits for its own,
 * they never end. */
static void must_go_on(world *w, int me)
{
    char ours[120], theirs[120];

    for (int r = 0; r < w->size; r++) {
        const post *mine = w->group_slots[r].posts ? lacks(w, me, r) : NULL, *its = mine ? lacks(w, r, me) : NULL;
        if (!its) continue;
        name_post(w, me, mine, ours, sizeof ours);
        name_post(w, r, its, theirs, sizeof theirs);
        fake_fail("hangs: %s and %s: each waits for the other, outside of a group that has both", ours, theirs);
    }
}

static bool is_posted(const group_slot *s)
{
    for (int i = 0; i < s->posts; i++)
        if (!s->post[i].is_done) return true;
    return false;
}

/* Under the lock. */
static void world_step(world *w, int me)
{
    bool is_any = false;

    while (do_collectives(w) || do_messages(w)) is_any = true;
    if (is_posted(&w->group_slots[me])) must_go_on(w, me);
    if (is_any) world_changed(w);
}

/* The operation of each rank, for the sentence about a hang. */
static void world_tell(const world *w, char *text, size_t room)
{
    size_t at = 0;

    *text = 0;
    for (int r = 0; r < w->size && at < room; r++) {
        const group_slot *s = &w->group_slots[r];
        const post *p = NULL;
        for (int i = 0; i < s->posts && !p; i++)
            if (!s->post[i].is_done) p = &s->post[i];
        if (s->has_left || !p)
            at += (size_t)snprintf(text + at, room - at, "; rank %d has %s", r,
                                   s->has_left ? "aborted" : "nothing on its stream");
        else at += (size_t)snprintf(text + at, room - at, "; rank %d is in %s (%s %d, number %llu)", r, call_names[p->call],
                                    is_message(p->call) ? "peer" : "root", p->root, (unsigned long long)p->number);
    }
}

#endif /* FAKE_WORLD_H */
