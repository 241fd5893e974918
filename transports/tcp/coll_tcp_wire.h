/* coll_tcp_wire.h - the bytes of hellos, control messages and endpoints, and their parsers.  Pure functions.
 *
 * Everything has a fixed length, and numbers are little-endian.  No value sizes an allocation or indexes memory before it has
 * been checked against known limits. */
#ifndef COLL_TCP_WIRE_H
#define COLL_TCP_WIRE_H

enum {
    COLL__WIRE_MAJOR = 4, COLL__WIRE_MINOR = 0,     /* 1: version 0.1.0; 2: 0.2.0; 4: 0.3.0                     */
    COLL__HELLO_LENGTH = 128, COLL__CONTROL_LENGTH = 256,
    COLL__ENDPOINT_ADDRESSES = 3, COLL__ENDPOINT_LENGTH = 132, COLL__PROCESSORS_MOST = 1 << 16,
    COLL__WORLD_LENGTH = 16, COLL__HOST_LENGTH = 16, COLL__NAME_LENGTH = 40
};

/* ---- >>hello: the first bytes on every connection, from the caller; with a key, the answer too ----
 *
 *    0 magic[8]    8 u16 major   10 u16 minor   12 u32 native order   16 world[16]   32 u32 rank   36 u32 size
 *   40 u16 purpose   42 u16 channel   44 u16 port   46 u16 to   48 host[16]   64 u32 epoch   68 u16 auth   70 zero[2]
 *   72 nonce[16]   88 u16 more lanes   90 u16 lane   92 u32 arithmetic   96 proof[32] */

typedef enum coll__purpose { COLL__PURPOSE_JOIN = 1, COLL__PURPOSE_DATA, COLL__PURPOSE_PROBE } coll__purpose;

typedef struct coll__hello {
    unsigned char world[COLL__WORLD_LENGTH], host[COLL__HOST_LENGTH], nonce[COLL__NONCE_LENGTH];
    int rank, size;
    int to;                                       /* the called rank                                          */
    coll__purpose purpose;
    int channel;                                  /* for COLL__PURPOSE_DATA                                   */
    int port;                                     /* unused; see endpoint below                               */
    int auth;                                     /* COLL__AUTH_...                                           */
    int more_lanes, lane;                         /* connections to a peer minus one; index for DATA          */
    uint32_t epoch;                               /* number of shrinks                                        */
    uint32_t arithmetic;                          /* coll__arithmetic; 0: IEEE 754                            */
    char     why[96];                             /* error text with numbers                                  */
} coll__hello;

enum { COLL__HELLO_PROOF = 96 };                  /* its offset                                               */

static const unsigned char coll__hello_magic[8] = { 0x89, 'C', 'O', 'L', 'L', 0x0d, 0x0a, 0x1a };

static uint32_t coll__native_order(void)
{
    const uint32_t one = 0x01020304;
    unsigned char bytes[4];

    memcpy(bytes, &one, 4);
    return coll__get32(bytes);
}

static void coll__hello_write(unsigned char *at, const coll__hello *hello)
{
    memset(at, 0, COLL__HELLO_LENGTH);
    memcpy(at, coll__hello_magic, sizeof coll__hello_magic);
    coll__put16(at + 8, COLL__WIRE_MAJOR);
    coll__put16(at + 10, COLL__WIRE_MINOR);
    coll__put32(at + 12, coll__native_order());
    memcpy(at + 16, hello->world, COLL__WORLD_LENGTH);
    coll__put32(at + 32, (uint32_t)hello->rank);
    coll__put32(at + 36, (uint32_t)hello->size);
    coll__put16(at + 40, (uint32_t)hello->purpose);
    coll__put16(at + 42, (uint32_t)hello->channel);
    coll__put16(at + 44, (uint32_t)hello->port);
    coll__put16(at + 46, (uint32_t)hello->to);
    memcpy(at + 48, hello->host, COLL__HOST_LENGTH);
    coll__put32(at + 64, hello->epoch);
    coll__put16(at + 68, (uint32_t)hello->auth);
    memcpy(at + 72, hello->nonce, COLL__NONCE_LENGTH);
    coll__put16(at + 88, (uint32_t)hello->more_lanes);
    coll__put16(at + 90, (uint32_t)hello->lane);
    coll__put32(at + 92, hello->arithmetic);
}

/* Can these first bytes be the start of a hello of any version? */
static bool coll__hello_may_begin(const unsigned char *at, size_t length)
{
    return !memcmp(at, coll__hello_magic, coll__least(length, sizeof coll__hello_magic));
}

/* Parse a hello for a known world id; the proof is checked elsewhere.  Returns NULL, or the error. */
static const char *coll__hello_read(const unsigned char *at, const unsigned char *world, int size, coll__hello *hello)
{
    const uint32_t version = coll__get16(at + 8), count = coll__get32(at + 36);

    memset(hello, 0, sizeof *hello);
    if (!coll__hello_may_begin(at, COLL__HELLO_LENGTH)) return "it does not speak this protocol";
    if (version != COLL__WIRE_MAJOR) {
        coll__print(hello->why, sizeof hello->why, "it speaks version %u of this protocol, and this rank version %d",
                    (unsigned)version, COLL__WIRE_MAJOR);
        return hello->why;
    }
    if (coll__get32(at + 12) != coll__native_order())
        return coll__native_order() == 0x01020304 ? "its byte order is not little-endian, and here it is"
                                                  : "its byte order is not big-endian, and here it is";
    const uint32_t rank = coll__get32(at + 32), to = coll__get16(at + 46);
    if (count != (uint32_t)size) {
        coll__print(hello->why, sizeof hello->why, "job size %u at rank %u, and %d at rank %d: start all ranks with one size",
                    (unsigned)count, (unsigned)rank, size, (int)to);
        return hello->why;
    }
    if (memcmp(at + 16, world, COLL__WORLD_LENGTH)) return "it belongs to another job (COLL_WORLD differs)";
    if (rank >= (uint32_t)size) return "its rank is out of range";
    if (to >= (uint32_t)size) return "the rank that it calls is out of range";
    const uint32_t purpose = coll__get16(at + 40), channel = coll__get16(at + 42), auth = coll__get16(at + 68);
    if (purpose < COLL__PURPOSE_JOIN || purpose > COLL__PURPOSE_PROBE) return "its purpose is unknown";
    if (channel >= COLL_CHANNEL_COUNT) return "its channel is unknown";
    if ((auth & ~(uint32_t)COLL__AUTH_CHECK) > COLL__AUTH_TLS) return "its security is unknown";
    const uint32_t more_lanes = coll__get16(at + 88), lane = coll__get16(at + 90);
    if (more_lanes >= COLL__LANES_MOST || lane > more_lanes) return "its lane is out of range";
    if (at[70] || at[71]) return "its hello is not well formed";
    hello->rank = (int)rank;
    hello->size = size;
    hello->to = (int)to;
    hello->purpose = (coll__purpose)purpose;
    hello->channel = (int)channel;
    hello->port = (int)coll__get16(at + 44);
    hello->auth = (int)auth;
    hello->more_lanes = (int)more_lanes;
    hello->lane = (int)lane;
    hello->epoch = coll__get32(at + 64);
    hello->arithmetic = coll__get32(at + 92);
    memcpy(hello->world, at + 16, COLL__WORLD_LENGTH);
    memcpy(hello->host, at + 48, COLL__HOST_LENGTH);
    memcpy(hello->nonce, at + 72, COLL__NONCE_LENGTH);
    return NULL;
}

/* ---- >>control: messages between rank 0 and other ranks; if rank 0 has left, between ranks that wait for each other ----
 *
 *    0 u16 magic   2 u16 note   4 i32 status   8 i32 rank   12 .. zero   32 text[224], ended by a zero, or head[32], or a
 *                                                                        heartbeat, or u64 ballot, u64 promise
 *
 * With a key, a refusal of a hello has a shorter text, and proof[32] at 224 (coll_tcp_handshake.h). */

typedef enum coll__control_note {
    COLL__CONTROL_WELCOME = 1,                    /* hello accepted; the table follows once it is complete    */
    COLL__CONTROL_TABLE,                          /* the endpoints of all ranks follow; text: rank 0's tuning */
    COLL__CONTROL_REFUSE,                         /* refused, or the start failed: status, text               */
    COLL__CONTROL_FAIL,                           /* the job has failed: status, blamed rank, text            */
    COLL__CONTROL_BYE,                            /* `rank` has left in order                                 */
    COLL__CONTROL_WAITING,                        /* the rank waits: heads of this call and of the previous one */
    COLL__CONTROL_ENDPOINT,                       /* to rank 0: this rank's endpoint                          */
    COLL__CONTROL_LISTEN,                         /* from rank 0: listen at these addresses                   */
    COLL__CONTROL_MISSING,                        /* from rank 0, during the start: missing ranks             */
    COLL__CONTROL_SUSPECT,                        /* to rank 0: `rank` failed; text: how                      */
    COLL__CONTROL_HEARTBEAT,                      /* `rank` is alive; its activity                            */
    COLL__CONTROL_WHERE,                          /* to rank 0: send the heartbeat of `rank`                  */
    COLL__CONTROL_HOLD,                           /* coll_shrink: promise, and proposal accepted by `rank`    */
    COLL__CONTROL_AGREED,                         /* coll_shrink: decided; the table follows                  */
    COLL__CONTROL_LIMIT
} coll__control_note;

typedef struct coll__control {
    coll__control_note note;
    coll_failure       what;
} coll__control;

enum { COLL__CONTROL_MAGIC = 0xc013, COLL__CONTROL_TEXT = 32, COLL__CONTROL_PROOF = 224 };

/* Copy a received text, ended by a zero or by `length`; unprintable characters become "?". */
static void coll__printable(char *text, size_t room, const unsigned char *at, size_t length)
{
    size_t n = 0;

    for (; n + 1 < room && n < length && at[n]; n++) text[n] = at[n] >= 32 && at[n] < 127 ? (char)at[n] : '?';
    text[n] = '\0';
}

static void coll__control_write(unsigned char *at, coll__control_note note, coll_status status, int rank, const char *text)
{
    memset(at, 0, COLL__CONTROL_LENGTH);
    coll__put16(at, COLL__CONTROL_MAGIC);
    coll__put16(at + 2, (uint32_t)note);
    coll__put32(at + 4, (uint32_t)status);
    coll__put32(at + 8, (uint32_t)rank);
    coll__print((char *)at + COLL__CONTROL_TEXT, COLL__CONTROL_LENGTH - COLL__CONTROL_TEXT, "%s", text);
}

/* Do these four bytes begin a refusal?  Only a refusal may come in clear in place of another answer. */
static inline bool coll__begins_refusal(const unsigned char *at)
{
    return coll__get16(at) == COLL__CONTROL_MAGIC && coll__get16(at + 2) == COLL__CONTROL_REFUSE;
}

/* Parse a control message; false: invalid. */
static bool coll__control_read(const unsigned char *at, int size, coll__control *control)
{
    const uint32_t note = coll__get16(at + 2);
    const int status = (int)coll__get32(at + 4), rank = (int)coll__get32(at + 8);
    char *text = control->what.text;

    memset(control, 0, sizeof *control);
    if (coll__get16(at) != COLL__CONTROL_MAGIC || note < COLL__CONTROL_WELCOME || note >= COLL__CONTROL_LIMIT) return false;
    if (status > 0 || status < COLL_ERR_FORKED || rank < -1 || rank >= size) return false;
    if ((note == COLL__CONTROL_FAIL || note == COLL__CONTROL_REFUSE || note == COLL__CONTROL_SUSPECT) && status == COLL_OK)
        return false;
    if (note >= COLL__CONTROL_SUSPECT && rank < 0) return false;
    control->note = (coll__control_note)note;
    control->what.status = (coll_status)status;
    control->what.rank = rank;
    coll__printable(text, sizeof control->what.text, at + COLL__CONTROL_TEXT, COLL__CONTROL_LENGTH - COLL__CONTROL_TEXT);
    return true;
}

/* ---- >>beat: the content of a heartbeat, also forwarded by rank 0 for others ----
 *
 *    0 u32 is inside   4 u32 ms since that changed   8 u32 ms since it was heard   12 u32 pid   16 now[32]   48 last[32]
 *   80 name[40] of its host, ended by a zero
 *  120 u32 number of the heartbeat   124 u32 turn of its list of communicators; 0: unknown
 *  128 u64 comms[8]: set of communicators, one bit each (coll__comm_bit) */

enum { COLL__COMMS_WORDS = 8 };

typedef struct coll__beat {
    bool          is_inside;                      /* in the call `now`; else outside the library              */
    uint32_t      since_ms, age_ms, pid;          /* pid 0: nothing was received                              */
    unsigned char now[COLL_HEAD_LENGTH], last[COLL_HEAD_LENGTH];          /* last: last completed collective  */
    char          name[COLL__NAME_LENGTH];
    uint32_t      number, turn;                   /* of heartbeats; of its list of communicators, 0: unknown  */
    uint64_t      comms[COLL__COMMS_WORDS];       /* Bloom filter of communicators                            */
} coll__beat;

/* The bit of a communicator in the set.  It differs in each heartbeat, so a freed communicator is soon seen to be missing. */
static inline unsigned coll__comm_bit(uint64_t id, uint32_t beat)
{
    return (unsigned)(coll__mix64(id + beat * UINT64_C(0x9e3779b97f4a7c15)) % (COLL__COMMS_WORDS * 64));
}

static COLL__UNUSED bool coll__beat_has(const coll__beat *beat, uint64_t id)
{
    const unsigned bit = coll__comm_bit(id, beat->number);
    return beat->comms[bit / 64] >> bit % 64 & 1;
}

/* Update the heartbeat: number, and this rank's communicators. */
static void coll__beat_fill(coll__beat *beat, coll__session *session)
{
    beat->number++;
    memset(beat->comms, 0, sizeof beat->comms);
    coll__lock_take(&session->comms_lock);
    for (const coll_comm *comm = session->comms; comm; comm = comm->next) {
        const unsigned bit = coll__comm_bit(comm->id, beat->number);
        beat->comms[bit / 64] |= (uint64_t)1 << bit % 64;
    }
    beat->turn = coll__comms_are_known(session) ? session->comms_version : 0;
    coll__lock_drop(&session->comms_lock);
}

static void coll__beat_write(unsigned char *note, int rank, const coll__beat *beat)
{
    unsigned char *at = note + COLL__CONTROL_TEXT;

    coll__control_write(note, COLL__CONTROL_HEARTBEAT, COLL_OK, rank, "");
    coll__put32(at, beat->is_inside);
    coll__put32(at + 4, beat->since_ms);
    coll__put32(at + 8, beat->age_ms);
    coll__put32(at + 12, beat->pid);
    memcpy(at + 16, beat->now, COLL_HEAD_LENGTH);
    memcpy(at + 48, beat->last, COLL_HEAD_LENGTH);
    coll__print((char *)at + 80, COLL__NAME_LENGTH, "%s", beat->name);
    coll__put32(at + 120, beat->number);
    coll__put32(at + 124, beat->turn);
    for (int i = 0; i < COLL__COMMS_WORDS; i++) coll__put64(at + 128 + 8 * i, beat->comms[i]);
}

static void coll__beat_read(const unsigned char *note, coll__beat *beat)
{
    const unsigned char *at = note + COLL__CONTROL_TEXT;

    beat->is_inside = coll__get32(at) != 0;
    beat->since_ms = coll__get32(at + 4);
    beat->age_ms = coll__get32(at + 8);
    beat->pid = coll__get32(at + 12);
    memcpy(beat->now, at + 16, COLL_HEAD_LENGTH);
    memcpy(beat->last, at + 48, COLL_HEAD_LENGTH);
    coll__printable(beat->name, sizeof beat->name, at + 80, COLL__NAME_LENGTH);
    beat->number = coll__get32(at + 120);
    beat->turn = coll__get32(at + 124);
    for (int i = 0; i < COLL__COMMS_WORDS; i++) beat->comms[i] = coll__get64(at + 128 + 8 * i);
}

/* ---- >>endpoint: where a rank listens, and its host ----
 *
 *    0 addresses[3][16] (IPv6, or IPv4 mapped into it)   48 u16 port   50 u16 count   52 u32 number of processors
 *   56 host[16]   72 u64 usable processors (coll__processor_set)   80 u32 pid
 *   84 name[40] of its host, ended by a zero   124 u32 number of its segment (coll_tcp_shm_segment.h), 0: none
 *  128 u32 site: digest of coll_config.site */

typedef struct coll__endpoint {
    unsigned char addresses[COLL__ENDPOINT_ADDRESSES][16], host[COLL__HOST_LENGTH];
    int port, count;                              /* port 0: unknown; count: of addresses                     */
    int processors;                               /* usable by its process                                    */
    uint64_t processor_set;
    uint32_t pid;                                 /* 0: unknown                                               */
    uint32_t segment;                             /* number of its segment; 0: none                           */
    uint32_t site;                                /* digest of coll_config.site                               */
    char     name[COLL__NAME_LENGTH];
} coll__endpoint;

static void coll__endpoint_write(unsigned char *at, const coll__endpoint *endpoint)
{
    COLL__ASSERT(endpoint->count >= 0 && endpoint->count <= COLL__ENDPOINT_ADDRESSES && endpoint->port <= 65535,
                 "an endpoint of %d addresses, port %d", endpoint->count, endpoint->port);
    memset(at, 0, COLL__ENDPOINT_LENGTH);
    memcpy(at, endpoint->addresses, (size_t)endpoint->count * 16);
    coll__put16(at + 48, (uint32_t)endpoint->port);
    coll__put16(at + 50, (uint32_t)endpoint->count);
    memcpy(at + 56, endpoint->host, COLL__HOST_LENGTH);
    coll__put32(at + 52, (uint32_t)endpoint->processors);
    coll__put64(at + 72, endpoint->processor_set);
    coll__put32(at + 80, endpoint->pid);
    coll__print((char *)at + 84, COLL__NAME_LENGTH, "%s", endpoint->name);
    coll__put32(at + 124, endpoint->segment);
    coll__put32(at + 128, endpoint->site);
}

/* false: too many addresses or processors. */
static bool coll__endpoint_read(const unsigned char *at, coll__endpoint *endpoint)
{
    const uint32_t count = coll__get16(at + 50), processors = coll__get32(at + 52);

    memset(endpoint, 0, sizeof *endpoint);
    if (count > COLL__ENDPOINT_ADDRESSES || processors > COLL__PROCESSORS_MOST) return false;
    memcpy(endpoint->addresses, at, count * 16);
    endpoint->port = (int)coll__get16(at + 48);
    endpoint->count = (int)count;
    memcpy(endpoint->host, at + 56, COLL__HOST_LENGTH);
    endpoint->processors = (int)processors;
    endpoint->processor_set = coll__get64(at + 72);
    endpoint->pid = coll__get32(at + 80);
    endpoint->segment = coll__get32(at + 124);
    endpoint->site = coll__get32(at + 128);
    coll__printable(endpoint->name, sizeof endpoint->name, at + 84, COLL__NAME_LENGTH);
    return true;
}

/* ---- >>identities ---- */

/* 128 bits of a text, to tell jobs and hosts apart; not secret. */
static void coll__digest(unsigned char *out, const char *text)
{
    for (uint32_t k = 0; k < 4; k++) coll__put32(out + 4 * k, coll__text_hash(text, k * 0x9e3779b9u));
}

/* The world id: digest of size, name and more. */
static void coll__world_id(unsigned char *out, int size, const char *name, const char *more)
{
    char text[400];

    coll__print(text, sizeof text, "%d %.300s%s%.60s", size, name, *more ? " " : "", more);
    coll__digest(out, text);
}

/* Split "host:port", "[v6]:port" or ":port".  false: malformed. */
static bool coll__address_split(const char *text, char *host, size_t room, int *port)
{
    const char *colon = strrchr(text, ':'), *start = text, *end = colon;

    if (!colon || !coll__parse_int(colon + 1, 0, 65535, port)) return false;
    if (*text == '[') {
        if (colon == text || colon[-1] != ']') return false;
        start = text + 1;
        end = colon - 1;
    } else if (memchr(text, ':', (size_t)(colon - text))) {
        return false;                             /* a bare IPv6 address: ambiguous                           */
    }
    if (end < start || (size_t)(end - start) >= room) return false;
    memcpy(host, start, (size_t)(end - start));
    host[end - start] = '\0';
    return true;
}

/* Why it could not be split. */
static const char *coll__address_fault(const char *text)
{
    const char *const colon = strrchr(text, ':');

    return colon && colon[1] && !colon[1 + strspn(colon + 1, "0123456789")] && (colon == text || colon[-1] == ']'
                                                                                || strchr(text, ':') == colon)
        ? "its port is out of range: 1 to 65535" : "it is not of the form host:port";
}

#endif /* COLL_TCP_WIRE_H */
