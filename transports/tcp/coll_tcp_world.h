/* coll_tcp_world.h - the state of a rank: endpoints of all ranks, a stream for each peer and channel, control connections,
 * handshakes. */
#ifndef COLL_TCP_WORLD_H
#define COLL_TCP_WORLD_H

enum {
    COLL__HANDSHAKE_MS = 5000,                    /* time limit of a handshake                                */
    COLL__DIAL_MS = 20000,
    COLL__REDIAL_LEAST_MS = 5, COLL__REDIAL_MOST_MS = 320, COLL__REDIAL_WAIT_MS = 200,
    COLL__ACCEPTS_AT_ONCE = 256,
    COLL__SHORT_AGAIN_MS = 100, COLL__SHORT_RUN_MS = 1000, COLL__SHORT_TELL_MS = 10000,   /* while accepting fails */
    COLL__DIAL_ONCE_MS = 1500, COLL__DIAL_REST_MS = 100,          /* one attempt; pause after the last address */
    COLL__YOUNG_MS = 20,                          /* no handshake is evicted earlier                          */
    COLL__TABLE_MS = 5000,
    COLL__REFUSED_TELL_MS = 5000,                 /* interval to log the same refusal again                   */
    COLL__ANSWERS_A_SECOND = 200,                 /* to hellos without a proof of the key, plus one per rank  */
    COLL__LOOKS_AN_EVENT = 64
};

/* What is known of a rank: the first rank of its host, plus 1; 0: not known yet.  Its state at the last look: turns of the
 * communicator lists, bytes received, and the heartbeat number and time since when it is unchanged. */
typedef struct coll__known { int home; uint32_t turn, own_version, beat; uint64_t received; int64_t since; } coll__known;

/* A process that waits to join (coll_tcp_join.h). */
typedef struct coll__waiter {
    coll__pipe     pipe;                          /* fd -1: none                                              */
    int            number;                        /* in the table of a coll_grow, from 1; 0: not in it        */
    coll__endpoint endpoint;                      /* port 0: not received yet                                 */
    bool           is_redirected;                 /* it was sent other addresses to listen at                */
    size_t         length;                        /* received of `bytes`                                      */
    unsigned char  bytes[COLL__CONTROL_LENGTH];
} coll__waiter;

typedef struct coll__newcomers { int count; unsigned char bytes[]; } coll__newcomers; /* of a coll_grow: endpoints */

typedef enum coll__presence { COLL__PRESENT, COLL__SAID_BYE, COLL__LEFT } coll__presence;

/* The line to a member of an agreement (coll_tcp_consensus.h). */
typedef struct coll__member_line {
    coll__pipe     pipe;
    bool           is_lasting;
    unsigned char *in, *out;                      /* control messages of a note                               */
    size_t         received, sent, length;        /* of `in`; of `out`, which has `length`                    */
    coll__dialler  dialler;
} coll__member_line;

/* What this rank keeps of one agreement.  It lives as long as the job: the program may repeat a failed coll_shrink on any
 * communicator with the same ranks, and after coll_agree the lines serve the next agreement. */
typedef struct coll__kept {
    struct coll__kept *next;
    unsigned char  world[COLL__WORLD_LENGTH];     /* world id of the agreement                                */
    coll__member_line *lines;                     /* by place; NULL: none                                     */
    coll__consensus consensus;
} coll__kept;

typedef struct coll__tcp {
    int  rank, size, listener;
    int  voters;                                  /* the ranks behind them are newcomers without a vote       */
    int  elastic;                                 /* most processes that may wait to join                     */
    bool is_newcomer;                             /* this process waits to join                               */
    bool has_new_root;                            /* rank 0 was a newcomer in the world before: it lacks connections */
    coll__newcomers *newcomers;                   /* that a coll_grow proposes; NULL: none                    */
    coll__network network;                        /* local addresses and ports to use                         */
    bool is_bootstrapping;                        /* rank 0: until all endpoints are known                    */
    coll_tcp options;                             /* only those that coll_shrink needs                        */
    coll__shm_segment segment;                         /* this rank's segment                                 */
    bool is_elsewhere;                            /* rank 0: its configured address is not local              */
    coll__log log;
    coll__identity us;
    bool            is_open;                      /* public addresses may be used without a key               */
    bool            lacks_tls;                    /* see coll__tcp_settings                                   */
    bool            has_warned;                   /* that remote ranks are unprotected                        */
    int             dropped;                      /* handshakes evicted since the last log line               */
    int64_t         dropped_at;                   /* time of that line                                        */
    uint32_t        refused_like;                 /* hash of the last refusal logged                          */
    int64_t         refused_at;
    int             redials;                      /* streams that wait to connect again                       */
    coll__endpoint *endpoints;                    /* by rank                                                  */
    coll__stream   *streams;                      /* by peer and channel                                      */
    coll__active    active;
    coll__io        io;
    coll__control_line *controls;                 /* rank 0: one for each rank; others: [0], to rank 0        */
    coll__heartbeat heartbeat;                    /* owns `controls` after the start                          */
    unsigned char  *presence;
    coll__known    *known;                        /* by rank                                                  */
    int             bye_count, ended_count, present_count;
    pthread_mutex_t accept_lock;                  /* guards the members below; taken before the heartbeat's   */
    coll__handshake    *handshakes;               /* handshakes under way, as the called side                 */
    int             handshake_count, handshake_room;
    coll__budget    budget;                       /* bounds the answers to unauthenticated hellos             */
    bool            is_heartbeat_there;           /* the heartbeat thread holds accept_lock                   */
    bool            has_deferred;                 /* it has left work to the calling thread                   */
    struct coll__agreement *agreement;            /* the agreement under way; NULL: none                      */
    void          (*admit)(struct coll__agreement *h, coll__handshake *g);        /* the connection of a member */
    coll__kept     *kept;                         /* one for each agreement joined                            */
    coll__waiter   *waiters;                      /* rank 0: `elastic` of them; NULL: none has come           */
    int64_t         waiters_beat_at;              /* their next heartbeat                                     */
    const coll__identity *greets_as;              /* identity for incoming connections                        */
    bool            is_deaf;                      /* accepting is paused: the listener is not watched         */
    int64_t         deaf_until;                   /* until then                                               */
    int             short_of;                     /* errno of the last failed accept; 0: none                 */
    int64_t         short_since, short_at, short_told_at;             /* first and last of a series; last logged */
    unsigned        looks;
    coll_failure    suspicion;                    /* failure as seen by this rank                             */
    bool            is_sentence;                  /* it is a sentence; otherwise the rank's name precedes it  */
    coll_failure    failure;                      /* failure as decided                                       */
    char            description[200];
    char            tuning[COLL__TUNING_ROOM];    /* values of rank 0's tuning file; "": none                 */
    void           *hybrid;                       /* domains of this rank (coll_hybrid.h); NULL: none         */
} coll__tcp;

/* Kind of an event: the upper half of its tag; the lower half is an index. */
typedef enum coll__event {
    COLL__EVENT_LISTENER, COLL__EVENT_HANDSHAKE, COLL__EVENT_CONTROL, COLL__EVENT_DIALLED, COLL__EVENT_DOORBELL
} coll__event;

static inline uint64_t coll__tag(coll__event event, int index) { return (uint64_t)event << 32 | (uint32_t)index; }

static inline coll__stream *coll__stream_to(const coll__tcp *tcp, int peer, int channel)
{
    COLL__ASSERT(peer >= 0 && peer < tcp->size && channel >= 0 && channel < COLL_CHANNEL_COUNT,
                 "rank %d requests channel %d to rank %d of %d", tcp->rank, channel, peer, tcp->size);
    return &tcp->streams[peer * COLL_CHANNEL_COUNT + channel];
}

static inline bool coll__is_of_this_host(const coll__tcp *tcp, int rank)
{
    return !memcmp(tcp->endpoints[rank].host, tcp->us.host, sizeof tcp->us.host);
}

/* Do this rank and another one share memory? */
static inline bool coll__shares_with(const coll__tcp *tcp, int rank)
{
    return coll__is_of_this_host(tcp, rank) && tcp->endpoints[tcp->rank].shares && tcp->endpoints[rank].shares;
}

static void coll__activate(coll__tcp *tcp, coll__stream *s)
{
    if (s->is_active) return;
    COLL__ASSERT(tcp->active.count < tcp->size * COLL_CHANNEL_COUNT, "rank %d has %d active streams with %d ranks", tcp->rank,
                 tcp->active.count, tcp->size);
    s->is_active = true;
    tcp->active.streams[tcp->active.count++] = s;
}

/* Send a control message. */
static void coll__control_send(coll__pipe *pipe, coll__control_note note, coll_status status, int rank, const char *text)
{
    unsigned char bytes[COLL__CONTROL_LENGTH];

    coll__control_write(bytes, note, status, rank, text);
    (void)coll__pipe_move(pipe, bytes, sizeof bytes, true);
}

/* ---- >>agreements (coll_tcp_consensus.h) ---- */

static void coll__member_lines_close(coll__kept *k)
{
    for (int i = 0; k->lines && i < k->consensus.count; i++) {
        coll__dial_end(&k->lines[i].dialler.handshake);
        coll__pipe_close(&k->lines[i].pipe);
        coll__give(k->lines[i].in);
    }
    coll__give(k->lines);
    k->lines = NULL;
}

/* What is kept of this agreement, created on first use.  NULL: out of memory. */
static coll__kept *coll__kept_of(coll__tcp *tcp, const coll__identity *us)
{
    coll__kept *k = tcp->kept;

    while (k && (k->consensus.count != us->size || memcmp(k->world, us->world, sizeof k->world))) k = k->next;
    if (k) return k;
    k = (coll__kept *)coll__allocate(coll__like(tcp), sizeof *k + coll__consensus_memory(us->size));
    if (!k) return NULL;
    memcpy(k->world, us->world, sizeof k->world);
    coll__consensus_open(&k->consensus, coll__behind(k, sizeof *k), us->size, us->rank);
    if (us->size == tcp->size) k->consensus.voters = tcp->voters;
    k->next = tcp->kept;
    tcp->kept = k;
    return k;
}

enum { COLL__NOTE_PART = COLL__CONTROL_LENGTH - COLL__CONTROL_TEXT };

/* Bytes of the control messages of a note. */
static inline size_t coll__note_messages(size_t length)
{
    return (length + COLL__NOTE_PART - 1) / COLL__NOTE_PART * COLL__CONTROL_LENGTH;
}

static inline size_t coll__note_room(int count) { return coll__note_messages(coll__member_note_most(count)); }

static size_t coll__note_pack(unsigned char *to, const unsigned char *note, size_t length)
{
    for (size_t at = 0; at < length; at += COLL__NOTE_PART, to += COLL__CONTROL_LENGTH) {
        coll__control_write(to, COLL__CONTROL_MEMBERS, COLL_OK, 0, "");
        memcpy(to + COLL__CONTROL_TEXT, note + at, coll__least(length - at, COLL__NOTE_PART));
    }
    return coll__note_messages(length);
}

static void coll__note_unpack(unsigned char *note, const unsigned char *from, size_t length)
{
    for (size_t at = 0; at < length; at += COLL__NOTE_PART, from += COLL__CONTROL_LENGTH)
        memcpy(note + at, from + COLL__CONTROL_TEXT, coll__least(length - at, COLL__NOTE_PART));
}

/* A rank connects for the agreement that made this job: send the decision.  The proposer died before it sent that, or did not
 * wait. */
static void coll__past_told(const coll__past *past, coll__pipe *pipe)
{
    enum { SEND_MS = 200 };

    (void)coll__pipe_transfer(pipe, past->bytes, past->length, true, coll__deadline(SEND_MS));
    coll__pipe_close(pipe);
}

/* ---- >>errors: recorded here, settled in coll_tcp_fail.h ---- */

/* Suspect a peer; its name precedes the text. */
static void coll__suspect(coll__tcp *tcp, int peer, const char *what)
{
    const char *left = "has left the communicator, and another rank still waits for it";

    coll__set_failure(&tcp->suspicion, COLL_ERR_PEER, peer, "%s", tcp->presence[peer] == COLL__PRESENT ? what : left);
}

static bool coll__has_active_transfer(const coll__stream *s)
{
    for (const coll_xfer *x = s->out.first; x; x = x->next) if (!x->any_head) return true;
    for (const coll_xfer *x = s->in.first; x; x = x->next) if (!x->any_head) return true;
    return false;
}

/* The connection is closed.  That is an error only if a transfer needs it, or if bytes were modified. */
static void coll__stream_broken(coll__tcp *tcp, coll__stream *s, int error)
{
    const bool is_changed = coll__ending_status(error) == COLL_ERR_PROTOCOL;
    char what[160];

    s->state = COLL__STREAM_ENDED;
    tcp->ended_count++;
    if (is_changed)
        coll__set_failure(&tcp->suspicion, COLL_ERR_PROTOCOL, s->peer, "cannot be understood: %s", coll__ending_text(error));
    if (!coll__has_active_transfer(s) && !(s->in.first && s->in.first->moved > 0)) return;
    coll__suspect(tcp, s->peer, coll__lost_text(error, tcp->rank, s->peer, what, sizeof what));
}

/* An unexpected head arrived.  The receive reports that; but if this rank also has to send, report it here. */
static void coll__stream_astray(coll__tcp *tcp, const coll__stream *s)
{
    if (!s->out.first || tcp->suspicion.status != COLL_OK) return;
    coll__failed_mismatch(&tcp->suspicion, s->expected, tcp->rank, s->came, s->peer);
    tcp->is_sentence = true;
}

/* Can the stream no longer carry its transfers?  It is closed, or the peer left before it was opened. */
static bool coll__cannot_succeed(const coll__tcp *tcp, const coll__stream *s)
{
    const bool never_came = s->state == COLL__STREAM_NONE && tcp->presence[s->peer] == COLL__LEFT;
    return (never_came || s->state == COLL__STREAM_ENDED) && coll__has_active_transfer(s);
}

/* ---- >>open, free ---- */

COLL__FOR_SIZE

static void coll__tcp_free(coll__tcp *tcp)
{
    if (!tcp) return;
    coll__heartbeat_close(&tcp->heartbeat);
    coll__io_close(&tcp->io);
    coll__shm_segment_close(&tcp->segment);
    coll__close_fd(&tcp->listener);
    for (int i = 0; tcp->streams && i < tcp->size * COLL_CHANNEL_COUNT; i++) {
        coll__dial_end(&tcp->streams[i].handshake);
        coll__pipe_close(&tcp->streams[i].pipe);
        coll__stripe_set_free(tcp->streams[i].stripe_set);
    }
    for (int i = 0; i < tcp->handshake_count; i++) coll__pipe_close(&tcp->handshakes[i].pipe);
    coll__give(tcp->endpoints);
    coll__give(tcp->streams);
    coll__give(tcp->active.streams);
    coll__give(tcp->controls);
    coll__give(tcp->presence);
    coll__give(tcp->known);
    coll__give(tcp->handshakes);
    pthread_mutex_destroy(&tcp->accept_lock);
    coll__tls_free(tcp->us.tls);
    coll__past_free(&tcp->us);
    for (coll__kept *a; (a = tcp->kept);) {
        tcp->kept = a->next;
        coll__member_lines_close(a);
        coll__give(a);
    }
    for (int i = 0; tcp->waiters && i < tcp->elastic; i++) coll__pipe_close(&tcp->waiters[i].pipe);
    coll__give(tcp->waiters);
    coll__give(tcp->newcomers);
    coll__wipe(&tcp->us, sizeof tcp->us);
    coll__give(tcp);
}

/* Set rank, world id, host and key.  Ranks of the same host and network may use loopback addresses.  false: TLS cannot be set
 * up. */
static bool coll__identify(coll__identity *us, const coll__tcp_settings *settings)
{
    const coll_config *c = &settings->config;
    char host[256];

    coll__host_text(host, sizeof host);
    coll__digest(us->host, host);
    coll__world_id(us->world, c->size, c->world, "");
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
    const size_t lines = streams * (size_t)(c->tcp.lanes > 1 ? c->tcp.lanes : 1);
    coll__tcp *tcp = (coll__tcp *)coll__allocate(c->allocator, sizeof *tcp);
    bool has_lanes = true;

    if (!tcp) return NULL;
    tcp->rank = c->rank;
    tcp->size = tcp->voters = c->size;
    tcp->elastic = COLL__HAS_SHRINK && c->elastic > 0 ? c->elastic : 0;
    tcp->listener = -1;
    tcp->segment = coll__no_segment;
    coll__io_init(&tcp->io);
    tcp->log = *log;
    tcp->suspicion.rank = tcp->failure.rank = -1;
    tcp->options = (coll_tcp){ .lanes = c->tcp.lanes, .share_memory = c->tcp.share_memory,
                               .shm_collectives = c->tcp.shm_collectives };
    tcp->is_open = settings->is_open;
    tcp->lacks_tls = settings->lacks_tls;
    (void)pthread_mutex_init(&tcp->accept_lock, NULL);
    tcp->handshake_room = (int)coll__least(lines + COLL__HANDSHAKES_SPARE, COLL__HANDSHAKES_MOST);
    tcp->budget.most = 2 * tcp->handshake_room;
    tcp->budget.a_second = COLL__ANSWERS_A_SECOND + c->size;
    tcp->endpoints = (coll__endpoint *)coll__allocate(c->allocator, size * sizeof *tcp->endpoints);
    tcp->streams = (coll__stream *)coll__allocate(c->allocator, streams * sizeof *tcp->streams);
    tcp->active.streams = (coll__stream **)coll__allocate(c->allocator, streams * sizeof *tcp->active.streams);
    /* large and rarely used: zero pages stay unallocated */
    tcp->controls = (coll__control_line *)coll__take_zeros(c->allocator, c->rank == 0 ? size : 2 * size, sizeof *tcp->controls);
    tcp->presence = (unsigned char *)coll__allocate(c->allocator, size);
    tcp->known = (coll__known *)coll__take_zeros(c->allocator, size, sizeof *tcp->known);
    tcp->handshakes = (coll__handshake *)coll__take_zeros(c->allocator, (size_t)tcp->handshake_room, sizeof *tcp->handshakes);
    for (size_t i = 0; tcp->streams && i < streams; i++) {
        coll__stream *s = &tcp->streams[i];
        s->pipe.fd = -1;
        s->link = (coll__connection){ .stream = s, .pipe = &s->pipe };
        s->peer = (int)(i / COLL_CHANNEL_COUNT);
        s->channel = (int)(i % COLL_CHANNEL_COUNT);
        s->out.end = &s->out.first;
        s->in.end = &s->in.first;
        if (c->tcp.lanes > 1 && s->peer != c->rank && !(s->stripe_set = coll__stripe_set_new(c->allocator, s, c->tcp.lanes)))
            has_lanes = false;
    }
    for (size_t i = 0; tcp->controls && i < (c->rank == 0 ? size : 1); i++) tcp->controls[i].pipe.fd = -1;
    tcp->greets_as = &tcp->us;
    tcp->heartbeat.tcp = tcp;
    const bool has_heartbeat = coll__heartbeat_init(&tcp->heartbeat, c->rank, c->size, tcp->handshake_room, (int)lines,
                                                    tcp->controls, tcp->endpoints);
    if (has_heartbeat && has_lanes && tcp->endpoints && tcp->streams && tcp->active.streams && tcp->controls && tcp->presence
        && tcp->known && tcp->handshakes && coll__identify(&tcp->us, settings)) {
        coll__endpoint *own = &tcp->endpoints[c->rank];
        own->processor_set = coll__processor_set(&own->processors);
        coll__beat *beat = &tcp->heartbeat.beats[c->rank];
        own->pid = beat->pid = (uint32_t)getpid();
        if (gethostname(own->name, sizeof own->name - 1)) coll__print(own->name, sizeof own->name, "?");
        memcpy(beat->name, own->name, sizeof beat->name);
        own->shares = COLL__HAS_SHM && c->tcp.share_memory >= 0;
        if (own->shares && (c->size > 1 || tcp->elastic > 0) && c->tcp.shm_collectives >= 0 && settings->auth <= COLL__AUTH_KEY)
            tcp->segment = coll__shm_segment_open();
        coll__shm_segment_sign(&tcp->segment, c->rank, tcp->us.world);
        own->segment = (uint32_t)(tcp->segment.fd + 1);
        own->site = coll__site_id(c->site);
        return tcp;
    }
    coll__tcp_free(tcp);
    return NULL;
}

COLL__FOR_SPEED

#endif /* COLL_TCP_WORLD_H */
