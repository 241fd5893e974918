/* coll_p2p_match.h - messages, the state of each peer, the lists, and the matching of messages and receives.
 *
 * A key is a space, a communicator, a tag and a peer.  A receive may leave open the peer, the tag, or both.  Each message and
 * each receive that is not matched yet is in a bin: those of the user in one of COLL_BINS, by a hash of their key; those of
 * collectives in one of their peer; receives that leave something open in one more.  So a message is compared with the
 * receives that leave something open, and with few others.  A receive that leaves something open is compared with all messages,
 * in the order in which they arrived.  Long messages are also found by their number.
 *
 * Receives have increasing numbers: of those that match a message, the first posted one gets it. */
#ifndef COLL_P2P_MATCH_H
#define COLL_P2P_MATCH_H

enum { COLL__ANY = -2 };

typedef struct coll__message_list { coll__message *first, *last; } coll__message_list;
typedef struct coll__message_queue { coll__message *first, *last; } coll__message_queue;
typedef struct coll__bin { coll__message *first, *last; } coll__bin;

/* An outgoing or incoming message, or a receive. */
struct coll__message {
    coll__message_list *list;                     /* the list that it is in; or NULL                          */
    coll__message *next, *prev;                  /* in that list                                             */
    coll__message *behind;                        /* the next one in a queue of its peer                      */
    coll__bin *bin;                               /* the bin that it is in; or NULL                           */
    coll__message *chain;                         /* the next one in that bin                                 */
    uint64_t  order;                              /* of a receive: increasing number                          */
    coll_request *request;                        /* of the user; NULL: none waits for it (any more)          */
    coll_xfer    *xfer;                           /* of a collective; NULL as above                           */
    int       peer;                               /* rank in the session; COLL__ANY: any                      */
    coll__space space;
    uint64_t  comm;
    int64_t   tag;                                /* of a collective: the number of its order                 */
    coll_type type;
    uint64_t  count;                              /* elements; of a collective: bytes                         */
    size_t    length;                             /* bytes                                                    */
    uint32_t  id;                                 /* the sender's number of a long message                    */
    bool      is_long, is_moving;                 /* moving: the transport has its body                       */
    bool      is_copied;                          /* the sender does not wait for it                          */
    bool      is_queued;                          /* the transport has a transfer of it                       */
    coll_xfer note, finger, go_ahead, body;       /* finger: the fingerprint of a long one; go_ahead: the note before its body */
    unsigned char *kept;                          /* memory of a short body, or NULL                          */
    size_t    room;                               /* bytes of `kept`                                          */
};

typedef struct coll__peer {
    bool      is_open;
    bool      is_full;                            /* the peer reported that messages without a receive take half of our credit */
    bool      has_told;                           /* we reported the same                                     */
    size_t    credit;                             /* for short messages that we may still send                */
    size_t    taken;                              /* credit that the peer has not got back:                   */
    size_t    kept, owed;                         /* for messages without a receive; for finished ones        */
    coll_xfer listen;
    coll__message *incoming;                      /* its body is being received; NULL: listening for a note   */
    coll__message_queue sending;                  /* messages with transfers in progress, in order            */
    coll__message_queue held;                     /* messages without credit                                  */
    coll__bin bins[2];                            /* of collectives: messages, receives                       */
    struct coll__peer *open_next;                 /* in the list of open peers                                */
} coll__peer;

struct coll__messages {
    coll__peer    *peers;
    coll__message_list outgoing;                  /* not delivered yet                                        */
    coll__message_list wanted;                    /* receives without a message, in order                     */
    coll__message_list arrived;                   /* messages without a receive, in order                     */
    coll__message_list moving;                    /* receives that have a message, but not all of its body    */
    coll__message_list replies;                   /* other notes in transit                                   */
    coll__message *spare[2];                      /* free messages: without memory for a body, and with it    */
    coll__bin bins[2][COLL_BINS], open_bin;       /* messages, receives, receives that leave something open   */
    coll__peer    *open;
    uint64_t       orders;                        /* receives posted so far                                   */
    uint32_t       next_id;
};

/* ---- >>lists of all messages in one state, and queues ---- */

static void coll__message_append(coll__message_list *list, coll__message *m)
{
    COLL__ASSERT(!m->list, "a message with tag %d of peer %d is in a list already", (int)m->tag, m->peer);
    m->list = list;
    m->next = NULL;
    m->prev = list->last;
    if (list->last) list->last->next = m;
    else list->first = m;
    list->last = m;
}

/* Remove a message from its list, if any. */
static void coll__message_unlink(coll__message *m)
{
    coll__message_list *list = m->list;

    if (!list) return;
    if (m->prev) m->prev->next = m->next;
    else list->first = m->next;
    if (m->next) m->next->prev = m->prev;
    else list->last = m->prev;
    m->list = NULL;
}

static void coll__queue_put(coll__message_queue *q, coll__message *m)
{
    m->behind = NULL;
    if (q->first) q->last->behind = m;
    else q->first = m;
    q->last = m;
}

static coll__message *coll__queue_take(coll__message_queue *q)
{
    coll__message *m = q->first;

    COLL__ASSERT(m, "a message is taken from an empty queue");
    q->first = m->behind;
    return m;
}

/* ---- >>matching ---- */

static inline bool coll__has_any_tag(const coll__message *m) { return m->space == COLL__SPACE_USER && m->tag == COLL_ANY_TAG; }

static inline bool coll__is_open(const coll__message *m) { return m->peer == COLL__ANY || coll__has_any_tag(m); }

static inline bool coll__fits(const coll__message *want, const coll__message *m)
{
    return want->space == m->space && want->comm == m->comm && (want->peer == m->peer || want->peer == COLL__ANY)
        && (want->tag == m->tag || coll__has_any_tag(want));
}

/* The bin of messages, or of receives, with the key of `m`. */
static coll__bin *coll__bin_of(coll__messages *all, const coll__message *m, bool of_receives)
{
    if (coll__is_open(m)) return &all->open_bin;
    if (m->space != COLL__SPACE_USER) return &all->peers[m->peer].bins[of_receives];
    return &all->bins[of_receives][coll__mix64(m->comm << 8 ^ (uint64_t)m->peer << 32 ^ (uint64_t)m->tag) & (COLL_BINS - 1)];
}

/* The bin of the long message with this number, until the go-ahead has arrived or its body follows. */
static coll__bin *coll__bin_by_number(coll__messages *all, int peer, uint32_t id)
{
    return &all->bins[false][coll__mix64((uint64_t)peer << 32 ^ id) & (COLL_BINS - 1)];
}

static void coll__bin_put(coll__bin *bin, coll__message *m)
{
    COLL__ASSERT(!m->bin, "a message with tag %d of peer %d is in a bin already", (int)m->tag, m->peer);
    m->bin = bin;
    m->chain = NULL;
    if (bin->first) bin->last->chain = m;
    else bin->first = m;
    bin->last = m;
}

/* Remove a message from its bin, if any. */
static void coll__bin_leave(coll__message *m)
{
    coll__message **at = m->bin ? &m->bin->first : NULL, *before = NULL;

    if (!m->bin) return;
    for (; *at != m; at = &before->chain) before = *at;
    *at = m->chain;
    if (m->bin->last == m) m->bin->last = before;
    m->bin = NULL;
}

/* The first posted receive that matches a message; or NULL. */
static coll__message *coll__find_want(coll__messages *all, const coll__message *m)
{
    coll__message *want = coll__bin_of(all, m, true)->first, *open = all->open_bin.first;

    while (want && !coll__fits(want, m)) want = want->chain;
    while (open && !coll__fits(open, m)) open = open->chain;
    return !want || (open && open->order < want->order) ? open : want;
}

/* The first of the messages that arrived which matches a receive; or NULL. */
static coll__message *coll__find_message(coll__messages *all, const coll__message *want)
{
    const bool is_open = coll__is_open(want);
    coll__message *m = is_open ? all->arrived.first : coll__bin_of(all, want, false)->first;

    while (m && !(m->list == &all->arrived && coll__fits(want, m))) m = is_open ? m->next : m->chain;
    return m;
}

/* The long message of a list with this number, which then has no bin any more; or NULL. */
static coll__message *coll__take_number(coll__messages *all, const coll__message_list *list, int peer, uint32_t id)
{
    coll__message *m = coll__bin_by_number(all, peer, id)->first;

    while (m && !(m->list == list && m->peer == peer && m->id == id)) m = m->chain;
    if (m) coll__bin_leave(m);
    return m;
}

#endif /* COLL_P2P_MATCH_H */
