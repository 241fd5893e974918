/* coll_tcp_wire.h - the bytes of hellos, control messages and endpoints, and their parsers.  Pure functions.
 *
 * Everything has a fixed length.  Numbers have the byte order that all ranks of a job have; the head of a control message is
 * little-endian, so that a refused rank of another byte order can read why.  No structure has padding, so it has the same bytes
 * on every machine.  No value sizes an allocation or indexes memory before it has been checked against known limits. */
#ifndef COLL_TCP_WIRE_H
#define COLL_TCP_WIRE_H

enum {
    COLL__WIRE_VERSION = 5,                       /* 1: version 0.1.0; 2: 0.2.0; 4: 0.3.0                     */
    COLL__CONTROL_LENGTH = 256,
    COLL__ENDPOINT_ADDRESSES = 3, COLL__PROCESSORS_MOST = 1 << 16,
    COLL__WORLD_LENGTH = 16, COLL__HOST_LENGTH = 16, COLL__NAME_LENGTH = 40
};

/* ---- >>hello: the first bytes on every connection, from the caller; with a key, the answer too ---- */

typedef enum coll__purpose {
    COLL__PURPOSE_JOIN = 1, COLL__PURPOSE_DATA, COLL__PURPOSE_PROBE,
    COLL__PURPOSE_NEWCOMER                        /* a process that asks to join the job                      */
} coll__purpose;

/* All but the last member is sent.  The first ones have these places in every version. */
typedef struct coll__hello {
    unsigned char magic[8];
    uint16_t version;
    unsigned char purpose, auth;                  /* coll__purpose; COLL__AUTH_...                            */
    uint32_t order;                               /* COLL__BYTE_ORDER                                         */
    unsigned char world[COLL__WORLD_LENGTH];
    int      rank, size, to, channel;             /* to: the called rank; channel: for COLL__PURPOSE_DATA     */
    unsigned char host[COLL__HOST_LENGTH];
    uint32_t epoch;                               /* number of shrinks                                        */
    uint32_t arithmetic;                          /* coll__arithmetic; 0: IEEE 754                            */
    int      more_lanes, lane;                    /* connections to a peer minus one; index for DATA          */
    unsigned char nonce[COLL__NONCE_LENGTH];
    unsigned char proof[32];
    char     why[96];                             /* error text with numbers                                  */
} coll__hello;

enum { COLL__HELLO_LENGTH = offsetof(coll__hello, why), COLL__HELLO_PROOF = offsetof(coll__hello, proof) };

static const unsigned char coll__hello_magic[8] = { 0x89, 'C', 'O', 'L', 'L', 0x0d, 0x0a, 0x1a };
static const uint32_t coll__byte_order = 0x01020304;

static void coll__hello_write(unsigned char *at, const coll__hello *hello)
{
    coll__hello out = *hello;

    _Static_assert(COLL__HELLO_LENGTH == 128, "a hello has the same bytes on every machine");
    memcpy(out.magic, coll__hello_magic, sizeof out.magic);
    out.version = COLL__WIRE_VERSION;
    out.order = coll__byte_order;
    memcpy(at, &out, COLL__HELLO_LENGTH);
}

/* Can these first bytes be the start of a hello of any version? */
static bool coll__hello_may_begin(const unsigned char *at, size_t length)
{
    return !memcmp(at, coll__hello_magic, coll__least(length, sizeof coll__hello_magic));
}

/* What is wrong with a hello for a known world id; NULL: nothing. */
static const char *coll__hello_fault(coll__hello *hello, const unsigned char *world, int size)
{
    if (!coll__hello_may_begin(hello->magic, sizeof hello->magic)) return "it does not speak this protocol";
    if (hello->order != coll__byte_order)
        return *(const unsigned char *)&coll__byte_order == 4 ? "its byte order is not little-endian, and here it is"
                                                              : "its byte order is not big-endian, and here it is";
    if (hello->version != COLL__WIRE_VERSION) {
        coll__print(hello->why, sizeof hello->why, "it speaks version %u of this protocol, and this rank version %d",
                    (unsigned)hello->version, COLL__WIRE_VERSION);
        return hello->why;
    }
    if (hello->purpose == COLL__PURPOSE_NEWCOMER && memcmp(hello->world, world, COLL__WORLD_LENGTH))
        return "no process can join this job: its name is another one (COLL_WORLD), or it is not elastic (COLL_ELASTIC)";
    if (hello->size != size) {
        coll__print(hello->why, sizeof hello->why, "job size %u at rank %u, and %d at rank %d: start all ranks with one size",
                    (unsigned)hello->size, (unsigned)hello->rank, size, hello->to);
        return hello->why;
    }
    if (memcmp(hello->world, world, COLL__WORLD_LENGTH)) return "it belongs to another job (COLL_WORLD differs)";
    if (hello->rank < 0 || hello->rank >= size) return "its rank is out of range";
    if (hello->to < 0 || hello->to >= size) return "the rank that it calls is out of range";
    if (hello->purpose < COLL__PURPOSE_JOIN || hello->purpose > COLL__PURPOSE_NEWCOMER) return "its purpose is unknown";
    if (hello->channel < 0 || hello->channel >= COLL_CHANNEL_COUNT) return "its channel is unknown";
    if ((hello->auth & ~COLL__AUTH_CHECK) > COLL__AUTH_TLS) return "its security is unknown";
    if (hello->more_lanes >= COLL__LANES_MOST || hello->lane < 0 || hello->lane > hello->more_lanes)
        return "its lane is out of range";
    return NULL;
}

/* Parse a hello for a known world id; the proof is checked elsewhere.  Returns NULL, or the error. */
static const char *coll__hello_read(const unsigned char *at, const unsigned char *world, int size, coll__hello *hello)
{
    memset(hello, 0, sizeof *hello);
    memcpy(hello, at, COLL__HELLO_LENGTH);
    const char *const wrong = coll__hello_fault(hello, world, size);
    if (wrong) memset(hello, 0, COLL__HELLO_LENGTH);
    return wrong;
}

/* ---- >>control: messages between rank 0 and other ranks; if rank 0 has left, between ranks that wait for each other ----
 *
 *    0 u16 magic   2 u16 note   4 i32 status   8 i32 rank   12 .. zero   32 text[224], ended by a zero, or head[32], or a
 *                                                                        heartbeat, or a part of a note
 *
 * With a key, a refusal of a hello has a shorter text, and proof[32] at 224 (coll_tcp_handshake.h). */

typedef enum coll__control_note {
    COLL__CONTROL_WELCOME = 1,                    /* hello accepted; the table follows once it is complete    */
    COLL__CONTROL_TABLE,                          /* the endpoints of all ranks follow; text: rank 0's tuning */
    COLL__CONTROL_REFUSE,                         /* refused, or the start failed: status, text               */
    COLL__CONTROL_FAIL,                           /* the job has failed: status, suspect rank, text            */
    COLL__CONTROL_BYE,                            /* `rank` has left in order                                 */
    COLL__CONTROL_WAITING,                        /* the rank waits: heads of this call and of the previous one */
    COLL__CONTROL_ENDPOINT,                       /* to rank 0: this rank's; to a newcomer at another one: rank 0's */
    COLL__CONTROL_LISTEN,                         /* from rank 0: listen at these addresses                   */
    COLL__CONTROL_MISSING,                        /* from rank 0, during the start: missing ranks             */
    COLL__CONTROL_HEARTBEAT,                      /* `rank` is alive; its activity                            */
    COLL__CONTROL_WHERE,                          /* to rank 0: send the heartbeat of `rank`                  */
    COLL__CONTROL_MEMBERS,                        /* coll_shrink: up to 224 bytes of a note of the consensus  */
    COLL__CONTROL_TAKEN,                          /* to a newcomer: its rank and its world; the table follows */
    COLL__CONTROL_REPORT,                         /* COLL__CONTROL_FAIL of a rank that waits for the decision  */
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
    const bool is_failure = note == COLL__CONTROL_REFUSE || note == COLL__CONTROL_FAIL || note == COLL__CONTROL_REPORT;
    if (is_failure && status == COLL_OK) return false;
    if (!is_failure && note >= COLL__CONTROL_HEARTBEAT && rank < 0) return false;
    control->note = (coll__control_note)note;
    control->what.status = (coll_status)status;
    control->what.rank = rank;
    coll__printable(text, sizeof control->what.text, at + COLL__CONTROL_TEXT, COLL__CONTROL_LENGTH - COLL__CONTROL_TEXT);
    return true;
}

/* ---- >>beat: the content of a heartbeat, also forwarded by rank 0 for others ---- */

enum { COLL__COMMS_WORDS = 8 };

typedef struct coll__beat {
    uint32_t      is_inside;                      /* in the call `now`; else outside the library              */
    uint32_t      since_ms, age_ms, pid;          /* since that changed; since it was heard; pid 0: nothing was received */
    unsigned char now[COLL_HEAD_LENGTH], last[COLL_HEAD_LENGTH];          /* last: last completed collective  */
    char          name[COLL__NAME_LENGTH];        /* of its host                                              */
    uint32_t      number, turn;                   /* of heartbeats; of its list of communicators, 0: unknown  */
    uint64_t      comms[COLL__COMMS_WORDS];       /* Bloom filter of communicators (coll__comm_bit)           */
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
    _Static_assert(sizeof *beat == 192, "a heartbeat has the same bytes on every machine");
    coll__control_write(note, COLL__CONTROL_HEARTBEAT, COLL_OK, rank, "");
    memcpy(note + COLL__CONTROL_TEXT, beat, sizeof *beat);
}

static void coll__beat_read(const unsigned char *note, coll__beat *beat)
{
    memcpy(beat, note + COLL__CONTROL_TEXT, sizeof *beat);
    coll__printable(beat->name, sizeof beat->name, (const unsigned char *)beat->name, sizeof beat->name);
}

/* ---- >>endpoint: where a rank listens, and its host ---- */

typedef struct coll__endpoint {
    unsigned char addresses[COLL__ENDPOINT_ADDRESSES][16], host[COLL__HOST_LENGTH];           /* IPv4 is mapped into IPv6 */
    int port, count;                              /* port 0: unknown; count: of addresses                     */
    int processors;                               /* usable by its process                                    */
    int shares;                                   /* memory with other processes of its host                  */
    __attribute__((aligned(8))) uint64_t processor_set;       /* usable processors (coll__processor_set)      */
    uint32_t pid;                                 /* 0: unknown                                               */
    uint32_t segment;                             /* descriptor of its segment, plus 1; 0: none               */
    uint32_t site;                                /* digest of coll_config.site                               */
    char     name[COLL__NAME_LENGTH];             /* of its host                                              */
    uint32_t place;                               /* in the world behind that of newcomers, plus 1; 0: in order */
} coll__endpoint;

enum { COLL__ENDPOINT_LENGTH = sizeof(coll__endpoint) };

static void coll__endpoint_write(unsigned char *at, const coll__endpoint *endpoint)
{
    _Static_assert(COLL__ENDPOINT_LENGTH == 144, "an endpoint has the same bytes on every machine");
    COLL__ASSERT(endpoint->count >= 0 && endpoint->count <= COLL__ENDPOINT_ADDRESSES && endpoint->port <= 65535,
                 "an endpoint of %d addresses, port %d", endpoint->count, endpoint->port);
    memcpy(at, endpoint, COLL__ENDPOINT_LENGTH);
}

/* false: too many addresses or processors, or no port. */
static bool coll__endpoint_read(const unsigned char *at, coll__endpoint *endpoint)
{
    memcpy(endpoint, at, COLL__ENDPOINT_LENGTH);
    coll__printable(endpoint->name, sizeof endpoint->name, (const unsigned char *)endpoint->name, sizeof endpoint->name);
    const bool is_good = endpoint->count >= 0 && endpoint->count <= COLL__ENDPOINT_ADDRESSES && endpoint->processors >= 0
        && endpoint->processors <= COLL__PROCESSORS_MOST && endpoint->port >= 0 && endpoint->port <= 65535;
    if (!is_good) memset(endpoint, 0, sizeof *endpoint);
    return is_good;
}

/* ---- >>identities ---- */

/* 128 bits of a text, to tell jobs and hosts apart; not secret. */
static void coll__digest(unsigned char *out, const char *text)
{
    for (uint32_t k = 0; k < 4; k++) coll__put32(out + 4 * k, coll__text_hash(text, k * 0x9e3779b9u));
}

/* The world id: digest of size, name and more.  Newcomers know no size: 0. */
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
