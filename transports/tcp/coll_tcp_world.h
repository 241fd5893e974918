/* coll_tcp_world.h - what a rank holds of its world: the endpoints of all ranks, a stream for each peer and channel, the
 * control connections, the unauthenticated peers that are being greeted. */
#ifndef COLL_TCP_WORLD_H
#define COLL_TCP_WORLD_H

enum {
    COLL__GREETING_MS = 5000,                     /* a connection must have said who it is by then            */
    COLL__DIAL_MS = 20000,
    COLL__REDIAL_LEAST_MS = 5, COLL__REDIAL_MOST_MS = 320, COLL__REDIAL_WAIT_MS = 200,
    COLL__ACCEPTS_AT_ONCE = 256,
    COLL__SHORT_AGAIN_MS = 100, COLL__SHORT_RUN_MS = 1000, COLL__SHORT_TELL_MS = 10000,   /* while nobody can be let in */
    COLL__DIAL_NEXT_MS = 1000, COLL__DIAL_ONCE_MS = 1500, COLL__DIAL_REST_MS = 100,     /* one try; the last address; then */
    COLL__YOUNG_MS = 20,                          /* a connection may send nothing for so long, in any crowd */
    COLL__TABLE_MS = 5000,
    COLL__REFUSED_TELL_MS = 5000,                 /* the same refusal is told again                           */
    COLL__ANSWERS_A_SECOND = 200,                 /* to hellos of those who have not proved the key, and one a rank */
    COLL__LOOKS_AN_EVENT = 64
};

#define COLL__BALLOT_DECIDED UINT64_MAX              /* of a table that is beyond proposals                      */

/* In which turn of its communicators a rank was last seen, what it has sent us, and since which of its beats, and when, that has
 * been so. */
typedef struct coll__quiet { uint32_t turn, own_turn, beat; uint64_t received; int64_t since; } coll__quiet;

typedef enum coll__presence { COLL__PRESENT, COLL__SAID_BYE, COLL__GONE } coll__presence;

/* What this rank has promised and accepted in one agreement (coll_tcp_agree.h): the memory of an acceptor of Paxos.  It lasts as
 * long as the world, for the program may call coll_shrink again after an error, on any communicator with the same ranks. */
typedef struct coll__acceptor {
    struct coll__acceptor *next;
    unsigned char world[COLL__WORLD_LENGTH];      /* the name of the agreement                                */
    int           count;
    uint64_t      promised;                       /* it accepts no proposal below this                        */
    uint64_t      ballot;                         /* of the table; 0: none; COLL__BALLOT_DECIDED              */
    bool          is_bound;                       /* it may have been agreed on at another host: a host must propose it */
    unsigned char *table;                         /* the proposal that it has accepted last, or what is decided */
} coll__acceptor;

typedef struct coll__tcp {
    int  rank, size, listener;
    coll__network network;                        /* which addresses and ports of ours to use                 */
    bool is_bootstrapping;                        /* rank 0, until all are there                              */
    coll_tcp options;                             /* the numbers of them                                      */
    bool shares;                                  /* memory, with ranks of other processes of this host       */
    coll__host_room room;                              /* in which they may be                                     */
    bool is_elsewhere;                            /* rank 0: the address it was given is not its host's       */
    coll__log log;
    coll__identity us;
    bool            is_open;                      /* public addresses may be used without a key               */
    bool            lacks_tls;                    /* see coll__tcp_settings                                   */
    bool            has_warned;                   /* that the security in force leaves ranks of other hosts unprotected */
    int             dropped;                      /* greetings that had to make room, since it was last told  */
    int64_t         dropped_at;                   /* when it was                                              */
    unsigned char   refused_like[16];             /* the last refusal that was told: whose, and why           */
    int64_t         refused_at;
    int             redials;                      /* streams that will be dialled again in a moment           */
    coll__endpoint *endpoints;                    /* of every rank                                            */
    int            *homes;                        /* the first rank of each rank's host; NULL: nobody has asked yet */
    coll__stream   *streams;                      /* by peer and channel                                      */
    coll__active    active;
    coll__io        io;
    coll__control_line *controls;                 /* rank 0: one for every rank; the others: [0], to rank 0   */
    coll__heartbeat heartbeat;                    /* which has them once all are there                        */
    unsigned char  *presence;
    struct coll__quiet *quiet;                    /* of every rank (coll_tcp_control.h)                       */
    int             bye_count, ended_count, present_count;
    pthread_mutex_t accept_lock;                  /* guards what follows; taken before the heartbeat's        */
    coll__greet    *greetings;                    /* with unauthenticated peers                               */
    int             greeting_count, greeting_room;
    coll__budget    budget;                       /* for answers to them                                      */
    bool            is_heartbeat_there;           /* the heartbeat's thread accepts: it leaves most to ours   */
    bool            has_deferred;                 /* it has left us some                                      */
    struct coll__agreement *agreement;            /* those who are left of this world agree; NULL: they do not */
    coll__acceptor *acceptors;                    /* one for each agreement that this rank has taken part in  */
    const coll__identity *greets_as;              /* who we are to those who connect to us                    */
    bool            is_deaf;                      /* the caller's thread does not watch the listener          */
    int64_t         deaf_until;                   /* then: nobody accepts before                              */
    int             short_of;                     /* what was missing the last time, an errno; 0: nothing yet */
    int64_t         short_since, short_at, short_told_at;             /* first in a run, last, on the log     */
    unsigned        looks;
    coll_failure    suspicion;                    /* what this rank thinks has happened                       */
    bool            is_sentence;                  /* that: otherwise the name of the rank belongs before it   */
    coll_failure    failure;                      /* what is agreed to have happened                          */
    char            description[200];
    char            tuning[COLL__TUNING_ROOM];    /* what rank 0 has read of the wire; "": nothing            */
    void           *joined;                       /* the hubs of this rank (coll_joined.h); NULL: there are none */
} coll__tcp;

/* What an event is about: in the upper half of its tag, with an index in the lower. */
typedef enum coll__event {
    COLL__EVENT_LISTENER, COLL__EVENT_GREETING, COLL__EVENT_CONTROL, COLL__EVENT_DIALLED, COLL__EVENT_BELL
} coll__event;

static inline uint64_t coll__tag(coll__event event, int index) { return (uint64_t)event << 32 | (uint32_t)index; }

static inline coll__stream *coll__stream_to(const coll__tcp *tcp, int peer, int channel)
{
    COLL__ASSERT(peer >= 0 && peer < tcp->size && channel >= 0 && channel < COLL_CHANNEL_COUNT,
                 "rank %d asks for channel %d to rank %d of %d", tcp->rank, channel, peer, tcp->size);
    return &tcp->streams[peer * COLL_CHANNEL_COUNT + channel];
}

static inline bool coll__is_of_this_host(const coll__tcp *tcp, int rank)
{
    return !memcmp(tcp->endpoints[rank].host, tcp->us.host, sizeof tcp->us.host);
}

static void coll__activate(coll__tcp *tcp, coll__stream *s)
{
    if (s->is_active) return;
    COLL__ASSERT(tcp->active.count < tcp->size * COLL_CHANNEL_COUNT, "rank %d has %d active streams with %d ranks", tcp->rank,
                 tcp->active.count, tcp->size);
    s->is_active = true;
    tcp->active.streams[tcp->active.count++] = s;
}

/* A note to the other end of a control connection, or to one that is turned away. */
static void coll__control_send(coll__pipe *pipe, coll__control_note note, coll_status status, int rank, const char *text)
{
    unsigned char bytes[COLL__CONTROL_LENGTH];

    coll__control_write(bytes, note, status, rank, text);
    (void)coll__pipe_move(pipe, bytes, sizeof bytes, true);
}

/* ---- >>agreements (coll_tcp_agree.h) ---- */

/* The acceptor of this agreement, which is empty when it is first asked for.  NULL: no memory. */
static coll__acceptor *coll__acceptor_of(coll__tcp *tcp, const coll__identity *us)
{
    coll__acceptor *a = tcp->acceptors;

    while (a && (a->count != us->size || memcmp(a->world, us->world, sizeof a->world))) a = a->next;
    if (a) return a;
    a = (coll__acceptor *)coll__allocate(coll__like(tcp), sizeof *a + (size_t)us->size);
    if (!a) return NULL;
    memcpy(a->world, us->world, sizeof a->world);
    a->count = us->size;
    a->table = coll__behind(a, sizeof *a);
    a->next = tcp->acceptors;
    return tcp->acceptors = a;
}

/* A note with the number of a proposal, what is promised, and the table of the proposal.  Whoever does not
 * take it in that time has an end of his connection.  false: that is so. */
static bool coll__table_send(coll__pipe *pipe, coll__control_note note, int rank, uint64_t ballot, uint64_t promise,
                             const unsigned char *table, int count)
{
    enum { SEND_MS = 200 };
    unsigned char bytes[COLL__CONTROL_LENGTH];
    const int64_t deadline = coll__deadline(SEND_MS);

    coll__control_write(bytes, note, COLL_OK, rank, "");
    coll__put64(bytes + COLL__CONTROL_TEXT, ballot);
    coll__put64(bytes + COLL__CONTROL_TEXT + 8, promise);
    if (coll__pipe_transfer(pipe, bytes, sizeof bytes, true, deadline)) return false;
    return ballot == 0 || !coll__pipe_transfer(pipe, coll__behind(table, 0), (size_t)count, true, deadline);
}

/* Somebody calls for the agreement that this world comes of: its host has died before it could tell him, or has not waited for
 * him. */
static void coll__past_told(const coll__past *past, coll__pipe *pipe)
{
    (void)coll__table_send(pipe, COLL__CONTROL_AGREED, past->us.rank, COLL__BALLOT_DECIDED, 0, past->table, past->us.size);
    coll__pipe_close(pipe);
}

/* ---- >>trouble: noted here, settled in coll_tcp_fail.h ---- */

/* What is the matter with a peer: the text goes behind its name. */
static void coll__suspect(coll__tcp *tcp, int peer, const char *what)
{
    const char *left = "has left the communicator, and another rank still waits for it";

    coll__blame(&tcp->suspicion, COLL_ERR_PEER, peer, "%s", tcp->presence[peer] == COLL__PRESENT ? what : left);
}

static bool coll__has_active_transfer(const coll__stream *s)
{
    for (const coll_xfer *x = s->out.first; x; x = x->next) if (!x->any_head) return true;
    for (const coll_xfer *x = s->in.first; x; x = x->next) if (!x->any_head) return true;
    return false;
}

/* The connection has ended.  That is trouble only for transfers that somebody counts on, unless bytes were changed. */
static void coll__stream_broken(coll__tcp *tcp, coll__stream *s, int error)
{
    const bool is_changed = coll__ending_status(error) == COLL_ERR_PROTOCOL;
    char what[160];

    s->state = COLL__STREAM_ENDED;
    tcp->ended_count++;
    if (is_changed)
        coll__blame(&tcp->suspicion, COLL_ERR_PROTOCOL, s->peer, "cannot be understood: %s", coll__ending_text(error));
    if (!coll__has_active_transfer(s) && !(s->in.first && s->in.first->moved > 0)) return;
    coll__suspect(tcp, s->peer, coll__gone_text(error, tcp->rank, s->peer, what, sizeof what));
}

/* What came does not fit, and is still to be looked at by whoever asked for it; but what is to be sent stays here, and he may be
 * waiting for others who need that. */
static void coll__stream_astray(coll__tcp *tcp, const coll__stream *s)
{
    if (!s->out.first || tcp->suspicion.status != COLL_OK) return;
    coll__blame_mismatch(&tcp->suspicion, s->expected, tcp->rank, s->came, s->peer);
    tcp->is_sentence = true;
}

/* Can this stream never be what is wanted of it?  Its connection has ended, or the peer left without making one. */
static bool coll__is_in_vain(const coll__tcp *tcp, const coll__stream *s)
{
    const bool never_came = s->state == COLL__STREAM_NONE && tcp->presence[s->peer] == COLL__GONE;
    return (never_came || s->state == COLL__STREAM_ENDED) && coll__has_active_transfer(s);
}

/* ---- >>open, free ---- */

COLL__FOR_SIZE

static void coll__tcp_free(coll__tcp *tcp)
{
    if (!tcp) return;
    coll__heartbeat_close(&tcp->heartbeat);
    coll__io_close(&tcp->io);
    coll__host_room_close(&tcp->room);
    coll__close_fd(&tcp->listener);
    for (int i = 0; tcp->streams && i < tcp->size * COLL_CHANNEL_COUNT; i++) {
        coll__stream_close(&tcp->streams[i]);
        coll__bundle_free(tcp->streams[i].bundle);
    }
    for (int i = 0; i < tcp->greeting_count; i++) coll__pipe_close(&tcp->greetings[i].pipe);
    coll__give(tcp->endpoints);
    coll__give(tcp->homes);
    coll__give(tcp->streams);
    coll__give(tcp->active.streams);
    coll__give(tcp->controls);
    coll__give(tcp->presence);
    coll__give(tcp->quiet);
    coll__give(tcp->greetings);
    pthread_mutex_destroy(&tcp->accept_lock);
    coll__seal_free(tcp->us.seal);
    coll__past_free(&tcp->us);
    for (coll__acceptor *a; (a = tcp->acceptors);) {
        tcp->acceptors = a->next;
        coll__give(a);
    }
    coll__wipe(&tcp->us, sizeof tcp->us);
    coll__give(tcp);
}

/* This machine and its network: ranks that agree on it may use loopback addresses. */
static void coll__host_identity(unsigned char *host)
{
    char text[256];

    coll__host_text(text, sizeof text);
    coll__digest(host, text);
}

/* Who this is, and how it will prove that.  false: TLS cannot be had. */
static bool coll__identify(coll__identity *us, const coll__tcp_settings *settings)
{
    const coll_config *c = &settings->config;

    coll__world_id(us->world, c->size, c->world, "");
    coll__host_identity(us->host);
    us->rank = c->rank;
    us->memory = c->allocator;
    us->size = c->size;
    us->auth = settings->auth;
    us->more_lanes = c->tcp.lanes > 1 ? c->tcp.lanes - 1 : 0;
    us->arithmetic = settings->arithmetic;
    return coll__identity_keyed(us, settings->key);
}

static coll__tcp *coll__tcp_new(const coll__tcp_settings *settings, const coll__log *log)
{
    const coll_config *c = &settings->config;
    const size_t size = (size_t)c->size, streams = size * COLL_CHANNEL_COUNT;
    coll__tcp *tcp = (coll__tcp *)coll__allocate(c->allocator, sizeof *tcp);
    bool has_lanes = true;

    if (!tcp) return NULL;
    tcp->rank = c->rank;
    tcp->size = c->size;
    tcp->listener = -1;
    tcp->room = coll__no_room;
    coll__io_init(&tcp->io);
    tcp->log = *log;
    tcp->suspicion.rank = tcp->failure.rank = -1;
    tcp->options = coll__tcp_kept(c->tcp);
    tcp->shares = COLL__HAS_SHM && c->tcp.share_memory >= 0;
    tcp->is_open = settings->is_open;
    tcp->lacks_tls = settings->lacks_tls;
    (void)pthread_mutex_init(&tcp->accept_lock, NULL);
    tcp->greeting_room = coll__greeting_room(c->size, c->tcp.lanes > 1 ? c->tcp.lanes : 1);
    tcp->budget.most = 2 * tcp->greeting_room;
    tcp->budget.a_second = COLL__ANSWERS_A_SECOND + c->size;
    tcp->endpoints = (coll__endpoint *)coll__allocate(c->allocator, size * sizeof *tcp->endpoints);
    tcp->streams = (coll__stream *)coll__allocate(c->allocator, streams * sizeof *tcp->streams);
    tcp->active.streams = (coll__stream **)coll__allocate(c->allocator, streams * sizeof *tcp->active.streams);
    /* of what may never be needed no page is touched */
    tcp->controls = (coll__control_line *)coll__take_zeros(c->allocator, c->rank == 0 ? size : 2 * size, sizeof *tcp->controls);
    tcp->presence = (unsigned char *)coll__allocate(c->allocator, size);
    tcp->quiet = (coll__quiet *)coll__take_zeros(c->allocator, size, sizeof *tcp->quiet);
    tcp->greetings = (coll__greet *)coll__take_zeros(c->allocator, (size_t)tcp->greeting_room, sizeof *tcp->greetings);
    for (size_t i = 0; tcp->streams && i < streams; i++) {
        coll__stream *s = &tcp->streams[i];
        s->pipe.fd = -1;
        s->peer = (int)(i / COLL_CHANNEL_COUNT);
        s->channel = (int)(i % COLL_CHANNEL_COUNT);
        s->out.end = &s->out.first;
        s->in.end = &s->in.first;
        if (c->tcp.lanes > 1 && s->peer != c->rank && !(s->bundle = coll__bundle_new(c->allocator, s, c->tcp.lanes)))
            has_lanes = false;
    }
    for (size_t i = 0; tcp->controls && i < (c->rank == 0 ? size : 1); i++) tcp->controls[i].pipe.fd = -1;
    tcp->greets_as = &tcp->us;
    tcp->heartbeat.tcp = tcp;
    const bool has_heartbeat = coll__heartbeat_init(&tcp->heartbeat, c->rank, c->size, tcp->greeting_room, tcp->controls,
                                                    tcp->endpoints);
    if (has_heartbeat && has_lanes && tcp->endpoints && tcp->streams && tcp->active.streams && tcp->controls && tcp->presence
        && tcp->quiet && tcp->greetings && coll__identify(&tcp->us, settings)) {
        coll__endpoint *own = &tcp->endpoints[c->rank];
        own->processor_set = coll__processor_set(&own->processors);
        own->pid = tcp->heartbeat.own.pid;
        if (tcp->shares && c->size > 1 && c->tcp.hub >= 0 && settings->auth <= COLL__AUTH_KEY) tcp->room = coll__host_room_open();
        coll__host_room_sign(&tcp->room, c->rank, tcp->us.world);
        own->room = coll__host_room_number(&tcp->room);
        own->site = coll__site_id(c->site);
        memcpy(own->name, tcp->heartbeat.own.name, sizeof own->name);
        return tcp;
    }
    coll__tcp_free(tcp);
    return NULL;
}

COLL__FOR_SPEED

#endif /* COLL_TCP_WORLD_H */
