/* coll_p2p_match.h - messages, the lists that hold them, and the matching of messages and receives.
 *
 * A key is a space, a communicator, a tag and a peer.  A receive may leave open the peer, the tag, or both.  Each key in use
 * has a bin in one hash table, with the receives and the messages of that key, in order.  A receive is in the bin of its key.
 * A message without a receive is in four bins, one for each kind of receive that may match it; a message of a collective, whose
 * receives leave nothing open, is in one.  So matching takes a few steps, however many messages there are.
 *
 * Receives have increasing numbers: of the receives in a message's four bins, the first posted one matches. */
#ifndef COLL_P2P_MATCH_H
#define COLL_P2P_MATCH_H

enum { COLL__ANY = -2 };

/* What a receive leaves open. */
enum { COLL__OPEN_PEER = 1, COLL__OPEN_TAG = 2, COLL__WAYS = 4 };

/* Spaces of this table only: long messages by number, outgoing and incoming. */
enum { COLL__SPACE_OUT = 64, COLL__SPACE_IN };

typedef struct coll__match_key { uint64_t comm; int64_t tag; uint32_t space; int peer; } coll__match_key;

/* Messages of one key. */
typedef struct coll__bin {
    struct coll__bin *chain;                     /* in its bucket, or in the spare list                      */
    coll__match_key key;
    int       way;                                /* index of the links by which its messages are in it       */
    struct { coll__message *first, *last; } lists[2];  /* messages; receives                           */
} coll__bin;

typedef struct coll__bin_link { coll__bin *bin; coll__message *next, *prev; } coll__bin_link;

/* An outgoing or incoming message, or a receive. */
struct coll__message {
    struct coll__message_list *list;              /* the list that it is in; or NULL                          */
    coll__message *next, *prev;                  /* in that list                                             */
    coll__message *behind;                        /* the next one in a queue of its peer                      */
    coll__bin_link links[COLL__WAYS];                 /* in bins                                                 */
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
    bool      is_want;
    coll_xfer note, finger, go_ahead, body;       /* finger: the fingerprint of a long one; go_ahead: the note before its body */
    unsigned char *kept;                          /* memory of a short body, or NULL                          */
    size_t    room;                               /* bytes of `kept`                                          */
};

typedef struct coll__message_list { coll__message *first, *last; } coll__message_list;
typedef struct coll__message_queue { coll__message *first, *last; } coll__message_queue;

typedef struct coll__bins {
    coll__bin **buckets, *spare;
    size_t       length, used;                    /* buckets, a power of two; bins in them                   */
    const coll_allocator *memory;                 /* for all of them                                          */
} coll__bins;

/* ---- >>bins ---- */

static inline bool coll__is_same_key(const coll__match_key *a, const coll__match_key *b)
{
    return a->space == b->space && a->comm == b->comm && a->tag == b->tag && a->peer == b->peer;
}

static inline coll__bin **coll__bin_bucket(const coll__bins *t, const coll__match_key *key)
{
    uint64_t x = ((uint64_t)(uint32_t)key->peer << 32 ^ (uint64_t)key->tag) * UINT64_C(0x9e3779b97f4a7c15);

    x = (x ^ (x >> 29) ^ (key->comm << 8 ^ key->comm >> 32 ^ key->space)) * UINT64_C(0xbf58476d1ce4e5b9);
    return &t->buckets[(x ^ (x >> 32)) & (t->length - 1)];
}

static coll__bin *coll__bin_find(const coll__bins *t, const coll__match_key *key)
{
    coll__bin *bin = t->length ? *coll__bin_bucket(t, key) : NULL;

    while (bin && !coll__is_same_key(&bin->key, key)) bin = bin->chain;
    return bin;
}

/* Make the table, or double it. false: there is no table. */
static bool coll__bins_grow(coll__bins *t)
{
    const coll__bins old = *t;
    const size_t length = old.length ? 2 * old.length : COLL__BINS_FIRST;
    coll__bin **buckets = (coll__bin **)coll__allocate(t->memory, length * sizeof *buckets);

    if (!buckets) return old.length > 0;          /* more entries than buckets work, too                      */
    t->buckets = buckets;
    t->length = length;
    for (size_t i = 0; i < old.length; i++)
        for (coll__bin *bin = old.buckets[i], *next; bin; bin = next) {
            coll__bin **at = coll__bin_bucket(t, &bin->key);
            next = bin->chain;
            bin->chain = *at;
            *at = bin;
        }
    coll__give(old.buckets);
    return true;
}

/* The bin of a key; made if missing.  NULL: no memory. */
static coll__bin *coll__bin_open(coll__bins *t, const coll__match_key *key, int way)
{
    coll__bin *bin = coll__bin_find(t, key);

    if (bin) return bin;
    if (t->used >= t->length && !coll__bins_grow(t)) return NULL;
    bin = t->spare ? t->spare : (coll__bin *)coll__take(t->memory, sizeof *bin);
    if (!bin) return NULL;
    if (bin == t->spare) t->spare = bin->chain;
    coll__bin **at = coll__bin_bucket(t, key);
    *bin = (coll__bin){ .chain = *at, .key = *key, .way = way };
    *at = bin;
    t->used++;
    return bin;
}

static void coll__bin_close(coll__bins *t, coll__bin *bin)
{
    coll__bin **at = coll__bin_bucket(t, &bin->key);

    if (bin->lists[0].first || bin->lists[1].first) return;
    while (*at != bin) at = &(*at)->chain;
    *at = bin->chain;
    bin->chain = t->spare;
    t->spare = bin;
    t->used--;
}

/* Append a message to the bin of a key. false: no memory. */
static bool coll__bin_put(coll__bins *t, coll__message *m, const coll__match_key *key, int way)
{
    coll__bin *bin = coll__bin_open(t, key, way);
    coll__bin_link *link = &m->links[way];

    if (!bin) return false;
    COLL__ASSERT(!link->bin, "a message with tag %d of peer %d is in a bin already", (int)m->tag, m->peer);
    *link = (coll__bin_link){ bin, NULL, bin->lists[m->is_want].last };
    if (link->prev) link->prev->links[way].next = m;
    else bin->lists[m->is_want].first = m;
    bin->lists[m->is_want].last = m;
    return true;
}

/* Remove a message from all of its bins. */
static void coll__bins_leave(coll__bins *t, coll__message *m)
{
    for (int way = 0; way < COLL__WAYS; way++) {
        coll__bin_link *link = &m->links[way];
        coll__bin *bin = link->bin;
        if (!bin) continue;
        if (link->prev) link->prev->links[way].next = link->next;
        else bin->lists[m->is_want].first = link->next;
        if (link->next) link->next->links[way].prev = link->prev;
        else bin->lists[m->is_want].last = link->prev;
        link->bin = NULL;
        coll__bin_close(t, bin);
    }
}

static void coll__bins_free(coll__bins *t)
{
    for (size_t i = 0; i <= t->length; i++)
        for (coll__bin *bin = i < t->length ? t->buckets[i] : t->spare, *next; bin; bin = next) {
            next = bin->chain;
            coll__give(bin);
        }
    coll__give(t->buckets);
    *t = (coll__bins){ .length = 0 };
}

/* ---- >>matching ---- */

static inline coll__match_key coll__match_key_of(const coll__message *m)
{
    return (coll__match_key){ m->comm, m->tag, m->space, m->peer };
}

static inline int coll__want_way(const coll__match_key *key)
{
    return (key->peer == COLL__ANY ? COLL__OPEN_PEER : 0)
         | (key->space == COLL__SPACE_USER && key->tag == COLL_ANY_TAG ? COLL__OPEN_TAG : 0);
}

/* The key with which a receive with this much open finds a message. */
static inline coll__match_key coll__match_key_by(const coll__match_key *key, int way)
{
    return (coll__match_key){ key->comm, way & COLL__OPEN_TAG ? COLL_ANY_TAG : key->tag, key->space,
                              way & COLL__OPEN_PEER ? COLL__ANY : key->peer };
}

/* The number of kinds of receives that may match a message. */
static inline int coll__ways_in(uint32_t space) { return space == COLL__SPACE_USER ? COLL__WAYS : 1; }

/* The first posted receive that matches a message with this key; or NULL. */
static coll__message *coll__find_want(const coll__bins *t, const coll__match_key *key)
{
    coll__message *best = NULL;

    for (int way = 0; way < coll__ways_in(key->space); way++) {
        const coll__match_key by = coll__match_key_by(key, way);
        const coll__bin *bin = coll__bin_find(t, &by);
        coll__message *want = bin ? bin->lists[true].first : NULL;
        if (want && (!best || want->order < best->order)) best = want;
    }
    return best;
}

/* The first message that matches a receive with this key; or NULL. */
static coll__message *coll__find_message(const coll__bins *t, const coll__match_key *key)
{
    const coll__bin *bin = coll__bin_find(t, key);
    return bin ? bin->lists[false].first : NULL;
}

/* Add a receive to its bin; false: no memory. */
static bool coll__match_want(coll__bins *t, coll__message *want)
{
    const coll__match_key key = coll__match_key_of(want);

    want->is_want = true;
    return coll__bin_put(t, want, &key, coll__want_way(&key));
}

/* Add a message to its bins; false: no memory. */
static bool coll__match_message(coll__bins *t, coll__message *m)
{
    const coll__match_key key = coll__match_key_of(m);
    bool is_in = true;

    m->is_want = false;
    for (int way = 0; way < coll__ways_in(key.space) && is_in; way++) {
        const coll__match_key by = coll__match_key_by(&key, way);
        is_in = coll__bin_put(t, m, &by, way);
    }
    return is_in;
}

static inline coll__match_key coll__number_key(uint32_t space, int peer, uint32_t id)
{
    return (coll__match_key){ id, 0, space, peer };
}

/* Add a long message by its number; false: no memory. */
static bool coll__match_number(coll__bins *t, coll__message *m, uint32_t space)
{
    const coll__match_key key = coll__number_key(space, m->peer, m->id);

    m->is_want = false;
    return coll__bin_put(t, m, &key, 0);
}

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

    COLL__ASSERT(m, "an empty queue is asked for a message");
    q->first = m->behind;
    return m;
}

#endif /* COLL_P2P_MATCH_H */
