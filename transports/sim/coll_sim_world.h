/* coll_sim_world.h - the state of a simulated world: ranks with clocks, lanes of messages, events in order of time. */
#ifndef COLL_SIM_WORLD_H
#define COLL_SIM_WORLD_H

#if defined(__GLIBC__)
#include <ucontext.h>
#define COLL__SIM_FIBERS 1                        /* other C libraries have no makecontext: polling only      */
#endif

#if defined(__SANITIZE_ADDRESS__)
#define COLL__SIM_ASAN 1
#elif defined(__SANITIZE_THREAD__)
#define COLL__SIM_TSAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define COLL__SIM_ASAN 1
#elif __has_feature(thread_sanitizer)
#define COLL__SIM_TSAN 1
#endif
#endif

enum { COLL__PARCEL_SMALL = 64, COLL__POOL_CHUNK = 256 };

static const double coll__sim_never = 1e300;      /* s; later than any event                                  */

/* A message between its send and its receive. */
typedef struct coll__parcel {
    struct coll__parcel *next;
    struct coll__lane   *lane;
    coll_xfer     *xfer;                          /* the sender's, while it waits for capacity of the lane    */
    unsigned char *kept;                          /* the bytes; NULL: at xfer, or placed already              */
    size_t         length;
    double         delay;                         /* added by a fault                                         */
    double         last;                          /* when its last byte arrives at the earliest; 0: its sender is not slower */
    bool           is_placed;                     /* the bytes are already in the receiver's buffer           */
    bool           is_arrived, is_lost;
    bool           is_cancelled;                  /* its pending event frees it                               */
    unsigned char  head[COLL_HEAD_LENGTH], small[COLL__PARCEL_SMALL];
} coll__parcel;

/* From one rank to another on one channel: the n-th message matches the n-th receive.  A lane exists while it is not empty. */
typedef struct coll__lane {
    struct coll__lane *chain;                     /* in the table                                             */
    struct coll__lane *from_next, **from_at, *to_next, **to_at;       /* among the lanes of each end          */
    int           from, to, channel;
    int           recv_count, parcel_count;
    coll_xfer    *recvs, *last_recv;
    coll__parcel *parcels, *last_parcel;
} coll__lane;

typedef enum coll__sim_state {
    COLL__SIM_READY,                              /* runs, or has no fiber                                    */
    COLL__SIM_SUSPENDED, COLL__SIM_FINISHED, COLL__SIM_KILLED, COLL__SIM_STOPPED
} coll__sim_state;

/* One rank's side. */
typedef struct coll__sim_rank {
    struct coll__sim *world;
    int         rank, place;                      /* place: its rank in the first world; never changes        */
    const coll_failure *over;                     /* why its world ended and was replaced; NULL: it is the current one */
    struct coll__sim_rank *before;                /* in the previous world                                    */
    coll__session *session;                       /* of this transport                                        */
    coll__sim_state state;
    double      clock;                            /* never behind an event of this rank                       */
    double      next_send, next_recv;             /* earliest time of its next send, of its next receive      */
    uint64_t    calls, messages, sent, received;
    coll__lane *sends, *recvs;                    /* lanes that begin here, that end here                     */
    unsigned char *newcomers;                     /* the table of a coll_grow (coll_sim_shrink.h); NULL: none */
    int         newcomer_count;
    uint32_t    order;                            /* its place in the world behind that of newcomers, plus 1; 0: in order */
    bool        has_news;                         /* an event since its last progress                         */
    bool        has_closed, has_left;             /* left: peers have seen it                                 */
    uint32_t    generation;                       /* number of its suspensions                                */
    int         polls;                            /* without another call in between                          */
    double      wake_at, deadline, timer_at;      /* of this suspension; of its one timer event               */
    unsigned char head[COLL_HEAD_LENGTH];         /* the call in which it last waited; 0: none                */
} coll__sim_rank;

typedef enum coll__sim_kind {
    COLL__SIM_INJECT, COLL__SIM_ARRIVE, COLL__SIM_DELIVER,        /* of a parcel                              */
    COLL__SIM_RUN, COLL__SIM_POLL, COLL__SIM_TIMER, COLL__SIM_LEFT, COLL__SIM_NOTICE,     /* of a rank        */
    COLL__SIM_STRIKE,                             /* of a fault                                               */
    COLL__SIM_NOTE, COLL__SIM_TICK, COLL__SIM_DETECT      /* of a decision (coll_sim_shrink.h)                */
} coll__sim_kind;

typedef struct coll__sim_event {
    double         time;
    uint64_t       tie;                           /* random: orders events of the same time                   */
    void          *what;
    uint32_t       generation;
    coll__sim_kind kind;
} coll__sim_event;

typedef struct coll__sim_host { double out_free, in_free; } coll__sim_host;       /* when its NIC is idle, each way; or a
                                                                                     site's link to the others */

typedef struct coll__sim_strike { coll_sim_fault fault; uint64_t seen; bool is_over; } coll__sim_strike;

/* The stack of a rank, in any world. */
typedef struct coll__fiber {
    coll__sim_rank *role, *newest;                /* the rank that waits; its latest rank.  NULL: it waits to join */
    struct coll__sim_migration *migration;        /* it waits to continue (coll_sim_shrink.h)                 */
    bool       is_over;                           /* finished, killed or stopped                              */
#if defined(COLL__SIM_FIBERS)
    ucontext_t context;
#endif
    void      *fake_stack, *tsan;
} coll__fiber;

typedef struct coll__sim {
    coll_sim        config;                       /* with defaults filled in                                  */
    int             size, holders, places;        /* places: ranks of the first world, and those that may join */
    int             voters;                       /* the ranks behind them are newcomers without a vote       */
    coll__settings *settings;                     /* of ranks that join; NULL: none can                       */
    double          now;
    uint64_t        draws, order;                 /* random numbers so far; a digest of all events so far     */
    coll__sim_rank *ranks;
    coll__sim_host *hosts, *sites;
    coll__sim_strike *strikes;
    coll_failure    failure, death;               /* of the world; of a killed rank                           */
    char            hint[96];                     /* its last fault, for the sentence of a deadlock           */
    char            text[64];
    int             left_count, unseen;           /* unseen: ranks with news                                  */
    bool            has_parted;                   /* a rank has freed its last communicator: which, and its calls */
    int             parted;
    unsigned char   made[COLL_HEAD_LENGTH];
    uint64_t        turns, idle;
    bool            is_asking;                    /* no event is left: waiting ranks check for freed communicators */
    coll__sim_event *events;                      /* a heap                                                   */
    size_t          event_count, event_room;
    coll__lane    **table;
    size_t          table_length;                 /* some lanes for each rank, and a power of 2               */
    void           *chunks;                       /* all memory but that of events and long messages, freed at the end */
    void           *spare_lanes, *spare_parcels;  /* lists, each element begins with the next                 */
    coll__sim_rank *running;                      /* whose fiber runs                                         */
    int             live, waiting;                /* fibers that may still run; that wait to continue         */
    coll__fiber    *fibers, scheduler;
    unsigned char  *stacks;
    size_t          stacks_length, stack_each;
    const void     *main_bottom;                  /* the scheduler's stack, for the address sanitizer         */
    size_t          main_length;
    void          (*body)(void *arg, coll__sim_rank *rank);
    void           *arg;
} coll__sim;

/* ---- >>random numbers ---- */

/* The next number of a generator that starts at the seed (splitmix64). */
static uint64_t coll__sim_draw(coll__sim *w)
{
    return coll__mix64(w->config.seed * UINT64_C(0xd1342543de82ef95) + ++w->draws * UINT64_C(0x9e3779b97f4a7c15));
}

static double coll__sim_fraction(coll__sim *w) { return (double)(coll__sim_draw(w) >> 11) * 0x1p-53; }

static inline double coll__later(double a, double b) { return a > b ? a : b; }

/* How the world of this rank ended; COLL_OK: it has not. */
static inline const coll_failure *coll__sim_end_of(const coll__sim_rank *r) { return r->over ? r->over : &r->world->failure; }

/* ---- >>memory: lanes and parcels come from chunks and are reused ---- */

static void *coll__sim_chunk(coll__sim *w, size_t length)
{
    void **chunk = (void **)coll__allocate(coll__like(w), COLL__LINE + length);

    if (!chunk) return NULL;
    *chunk = w->chunks;
    w->chunks = chunk;
    return (unsigned char *)chunk + COLL__LINE;
}

/* An element of `length` bytes from a list of spare ones, each of which begins with the next; NULL: no memory. */
static void *coll__sim_spare(coll__sim *w, void **spares, size_t length)
{
    unsigned char *const all = *spares ? NULL : (unsigned char *)coll__sim_chunk(w, COLL__POOL_CHUNK * length);

    for (size_t i = 0; all && i < COLL__POOL_CHUNK; i++) {
        *(void **)(all + i * length) = *spares;
        *spares = all + i * length;
    }
    void *const one = *spares;
    if (one) *spares = *(void **)one;
    return one;
}

static void coll__sim_spare_give(void **spares, void *one)
{
    *(void **)one = *spares;
    *spares = one;
}

static void coll__parcel_give(coll__sim *w, coll__parcel *p)
{
    if (p->kept != p->small) coll__give(p->kept);
    coll__sim_spare_give(&w->spare_parcels, p);
}

/* ---- >>lanes: a table of those in use ---- */

static size_t coll__lane_slot(const coll__sim *w, int from, int to, int channel)
{
    uint64_t key = ((uint64_t)(uint32_t)from << 32 | (uint32_t)to) * 2 + (uint64_t)channel;

    key = (key ^ (key >> 29)) * UINT64_C(0xbf58476d1ce4e5b9);
    return (size_t)(key ^ (key >> 32)) & (w->table_length - 1);
}

static coll__lane *coll__lane_find(const coll__sim *w, int from, int to, int channel)
{
    coll__lane *lane = w->table[coll__lane_slot(w, from, to, channel)];

    while (lane && (lane->from != from || lane->to != to || lane->channel != channel)) lane = lane->chain;
    return lane;
}

static coll__lane *coll__lane_open(coll__sim *w, int from, int to, int channel)
{
    coll__lane *lane = coll__lane_find(w, from, to, channel);

    if (lane) return lane;
    if (!(lane = (coll__lane *)coll__sim_spare(w, &w->spare_lanes, sizeof *lane))) return NULL;
    const size_t slot = coll__lane_slot(w, from, to, channel);
    *lane = (coll__lane){ .chain = w->table[slot], .from = from, .to = to, .channel = channel };
    w->table[slot] = lane;
    coll__lane **const sends = &w->ranks[from].sends, **const recvs = &w->ranks[to].recvs;
    lane->from_next = *sends;
    lane->from_at = sends;
    if (*sends) (*sends)->from_at = &lane->from_next;
    *sends = lane;
    lane->to_next = *recvs;
    lane->to_at = recvs;
    if (*recvs) (*recvs)->to_at = &lane->to_next;
    *recvs = lane;
    return lane;
}

/* Frees a lane if it is empty. */
static void coll__lane_close(coll__sim *w, coll__lane *lane)
{
    COLL__ASSERT(!lane->recvs == (lane->recv_count == 0) && !lane->parcels == (lane->parcel_count == 0),
                 "channel %d from rank %d to rank %d counts %d receives and %d messages", lane->channel, lane->from, lane->to,
                 lane->recv_count, lane->parcel_count);
    if (lane->recvs || lane->parcels) return;
    coll__lane **at = &w->table[coll__lane_slot(w, lane->from, lane->to, lane->channel)];
    while (*at != lane) at = &(*at)->chain;
    *at = lane->chain;
    *lane->from_at = lane->from_next;
    if (lane->from_next) lane->from_next->from_at = lane->from_at;
    *lane->to_at = lane->to_next;
    if (lane->to_next) lane->to_next->to_at = lane->to_at;
    coll__sim_spare_give(&w->spare_lanes, lane);
}

/* ---- >>events: a heap by (time, tie) ---- */

static inline bool coll__event_before(const coll__sim_event *a, const coll__sim_event *b)
{
    return a->time < b->time || (!(b->time < a->time) && a->tie < b->tie);
}

static void coll__sim_end(coll__sim *w, const coll_failure *cause);

static void coll__sim_no_memory(coll__sim *w)
{
    const coll_failure failure = { COLL_ERR_MEMORY, -1, "no memory for the simulation" };
    coll__sim_end(w, &failure);
}

static void coll__sim_push(coll__sim *w, coll__sim_kind kind, double time, void *what, uint32_t generation)
{
    const coll__sim_event event = { coll__later(time, w->now), coll__sim_draw(w), what, generation, kind };

    COLL__ASSERT(what && event.time >= w->now, "an event of kind %d at %g s, and it is %g s, about %s", kind, time, w->now,
                 what ? "something" : "nothing");
    if (w->event_count == w->event_room) {
        const size_t room = w->event_room ? 2 * w->event_room : 256;
        void *events = coll__take_more(coll__like(w), w->events, room * sizeof *w->events);
        if (!events) {
            coll__sim_no_memory(w);
            return;
        }
        w->events = (coll__sim_event *)events;
        w->event_room = room;
    }
    size_t at = w->event_count++;
    for (size_t up; at > 0 && coll__event_before(&event, &w->events[up = (at - 1) / 4]); at = up) w->events[at] = w->events[up];
    w->events[at] = event;
}

static bool coll__sim_pop(coll__sim *w, coll__sim_event *event)
{
    if (w->event_count == 0) return false;
    *event = w->events[0];
    const coll__sim_event last = w->events[--w->event_count];
    size_t at = 0;
    for (size_t child; (child = 4 * at + 1) < w->event_count; at = child) {
        const size_t end = coll__least(child + 4, w->event_count);
        for (size_t i = child + 1; i < end; i++)
            if (coll__event_before(&w->events[i], &w->events[child])) child = i;
        if (!coll__event_before(&w->events[child], &last)) break;
        w->events[at] = w->events[child];
    }
    w->events[at] = last;
    return true;
}

/* ---- >>text ---- */

/* "1.25 ms" */
static void coll__append_time(char *text, size_t room, double seconds)
{
    const double magnitude = seconds < 0 ? -seconds : seconds;

    if (magnitude >= 1) coll__append(text, room, "%.6g s", seconds);
    else if (magnitude >= 1e-3) coll__append(text, room, "%.6g ms", seconds * 1e3);
    else coll__append(text, room, "%.6g us", seconds * 1e6);
}

/* ---- >>waking ---- */

/* An event of this rank at `time`: wakes it. */
static void coll__sim_tell(coll__sim_rank *r, double time)
{
    coll__sim *w = r->world;

    if (r->state >= COLL__SIM_FINISHED) return;
    r->clock = coll__later(r->clock, time);
    if (!r->has_news) w->unseen++;
    r->has_news = true;
    r->polls = 0;
    if (r->state != COLL__SIM_SUSPENDED || !(r->clock < r->wake_at)) return;
    r->wake_at = r->clock;
    coll__sim_push(w, COLL__SIM_RUN, r->wake_at, r, r->generation);
}

static void coll__sim_seen(coll__sim_rank *r)
{
    COLL__ASSERT(!r->has_news || r->world->unseen > 0, "rank %d has news, and %d ranks have", r->rank, r->world->unseen);
    if (r->has_news) r->world->unseen--;
    r->has_news = false;
}

/* ---- >>the end of a world ---- */

static void coll__lane_clear(coll__sim *w, coll__lane *lane, coll_status status)
{
    for (coll_xfer *x = lane->recvs, *next; x; x = next) {
        next = x->next;
        x->status = status;
    }
    for (coll__parcel *p = lane->parcels, *next; p; p = next) {
        next = p->next;
        if (p->xfer) p->xfer->status = status;
        coll__parcel_give(w, p);
    }
    lane->recvs = NULL;
    lane->parcels = NULL;
    lane->recv_count = lane->parcel_count = 0;
    coll__lane_close(w, lane);
}

/* The first cause is kept.  It ends all that is pending, and no other event follows. */
static void coll__sim_end(coll__sim *w, const coll_failure *cause)
{
    if (w->failure.status != COLL_OK) return;
    w->failure = *cause;
    for (int i = 0; i < w->size; i++) {
        while (w->ranks[i].sends) coll__lane_clear(w, w->ranks[i].sends, cause->status);
        w->ranks[i].wake_at = 0;
        if (!w->ranks[i].has_news) w->unseen++;
        w->ranks[i].has_news = true;
    }
    for (size_t i = 0; i < w->event_count; i++) { /* of withdrawn messages                                    */
        coll__parcel *p = (coll__parcel *)w->events[i].what;
        if (w->events[i].kind <= COLL__SIM_DELIVER && p->is_cancelled) coll__parcel_give(w, p);
    }
    w->event_count = 0;
}

#endif /* COLL_SIM_WORLD_H */
