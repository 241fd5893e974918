/* test_wire.c - random bytes from the network, given to the parsers: no output is out of range, every text is terminated and
 * printable, and no access is outside the bytes.
 *
 *     test_wire                                                             the test
 *     COLL_TEST_SEED=7 COLL_TEST_INPUTS=100000000 test_wire                 a long one
 *     clang -g -O1 -DCOLL_FUZZ -fsanitize=fuzzer,address,undefined test_wire.c -pthread && ./a.out -max_total_time=60
 */
#if defined(COLL_FUZZ)                            /* which looks into all that it calls                       */
#define COLL_STATIC
#define COLL_IMPLEMENTATION
#define COLL__ONE_TIER 1
#define COLL_NO_URING
#include "../../coll.h"
#else
#include "../support/inside.h"
#endif
#include "../support/check.h"
#include "../support/available.h"

enum { CANARY = 0x5a, SENTENCE = 160, TEXT_MOST = 63 };

/* The parser under test: the first byte of an input. */
typedef enum parser { HELLO, CONTROL, PLACE, ADDRESS, HEAD, NOTES, PARSER_COUNT } parser;

static const unsigned char world_of_ours[COLL__WORLD_LENGTH] = { 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 255 };

/* ---- >>helpers ---- */

static bool is_text(const char *text, size_t room)
{
    for (size_t i = 0; i < room; i++) {
        if (!text[i]) return true;
        if (text[i] < 32 || text[i] > 126) return false;
    }
    return false;
}

static bool is_filled(const void *at, size_t length, int byte)
{
    for (size_t i = 0; i < length; i++) if (((const unsigned char *)at)[i] != byte) return false;
    return true;
}

/* An input, read from its front; zeros after its end. */
typedef struct input { const unsigned char *at; size_t left; } input;

static void take(input *in, void *out, size_t length)
{
    const size_t there = coll__least(length, in->left);

    memset(out, 0, length);
    if (there) memcpy(out, in->at, there);
    in->at += there;
    in->left -= there;
}

static uint32_t take32(input *in)
{
    unsigned char bytes[4];
    take(in, bytes, sizeof bytes);
    return coll__get32(bytes);
}

/* Worlds of 1 to 65536 ranks, many of them small. */
static int take_size(input *in)
{
    const uint32_t n = take32(in);
    return 1 + (int)(n & 0x10000 ? n & 7 : n & 0xffff);
}

/* ---- >>any bytes: NULL, or what is wrong with the parser's output ---- */

static const char *any_hello(input *in)
{
    unsigned char bytes[COLL__HELLO_LENGTH], again[COLL__HELLO_LENGTH];
    coll__hello hello, second;
    const int size = take_size(in);

    take(in, bytes, sizeof bytes);
    memset(&hello, CANARY, sizeof hello);
    const char *wrong = coll__hello_read(bytes, world_of_ours, size, &hello);
    if (wrong) {
        if (!is_text(wrong, SENTENCE)) return "a hello is refused without a readable reason";
        return is_filled(&hello, offsetof(coll__hello, why), 0) ? NULL : "something is left of a refused hello";
    }
    if (hello.rank < 0 || hello.rank >= size || hello.size != size) return "a hello with a rank out of range";
    if (hello.purpose < COLL__PURPOSE_JOIN || hello.purpose > COLL__PURPOSE_NEWCOMER) return "a hello without a purpose";
    if (hello.channel < 0 || hello.channel >= COLL_CHANNEL_COUNT) return "a hello with a channel out of range";
    if (hello.more_lanes < 0 || hello.more_lanes >= COLL__LANES_MOST || hello.lane < 0 || hello.lane > hello.more_lanes)
        return "a hello with a lane out of range";
    if (hello.to < 0 || hello.to >= size) return "a hello to a rank out of range";
    if ((hello.auth & COLL__AUTH_KIND) > COLL__AUTH_TLS || hello.auth > 7) return "a hello with a security that is none";
    if (memcmp(hello.world, world_of_ours, sizeof world_of_ours)) return "a hello of another world";
    coll__hello_write(again, &hello);
    if (coll__hello_read(again, world_of_ours, size, &second)) return "a hello that cannot be repeated";
    return memcmp(&hello, &second, sizeof hello) ? "a hello that reads differently the second time" : NULL;
}

static const char *any_control(input *in)
{
    unsigned char bytes[COLL__CONTROL_LENGTH], again[COLL__CONTROL_LENGTH];
    coll__control control, second;
    const int size = take_size(in);

    take(in, bytes, sizeof bytes);
    memset(&control, CANARY, sizeof control);
    const bool is_good = coll__control_read(bytes, size, &control);
    const coll_failure *what = &control.what;
    if (!is_text(what->text, sizeof what->text)) return "a control note with an unreadable text";
    if (!is_good) return is_filled(&control, sizeof control, 0) ? NULL : "something is left of a refused control note";
    if (control.note < COLL__CONTROL_WELCOME || control.note >= COLL__CONTROL_LIMIT) return "a control note of no kind";
    if (what->rank < -1 || what->rank >= size) return "a control note about a rank out of range";
    if (what->status > 0 || what->status < COLL_ERR_FORKED) return "a control note with a status that is none";
    if (!strcmp(coll_status_text(what->status), "unknown status")) return "a control note with an unknown status";
    if ((control.note == COLL__CONTROL_REFUSE || control.note == COLL__CONTROL_FAIL || control.note == COLL__CONTROL_REPORT)
        && what->status == COLL_OK)
        return "a control note of a failure that is none";
    coll__control_write(again, control.note, what->status, what->rank, what->text);
    if (!coll__control_read(again, size, &second)) return "a control note that cannot be repeated";
    return memcmp(&control, &second, sizeof control) ? "a control note that reads differently the second time" : NULL;
}

static const char *any_place(input *in)
{
    unsigned char bytes[COLL__ENDPOINT_LENGTH], again[COLL__ENDPOINT_LENGTH];
    coll__endpoint place, second;

    take(in, bytes, sizeof bytes);
    memset(&place, CANARY, sizeof place);
    const bool is_good = coll__endpoint_read(bytes, &place);
    if (!is_good) return is_filled(&place, sizeof place, 0) ? NULL : "something is left of a refused place";
    if (place.port < 0 || place.port > 65535) return "a place with a port out of range";
    if (place.count < 0 || place.count > COLL__ENDPOINT_ADDRESSES) return "a place with more addresses than there are";
    coll__endpoint_write(again, &place);
    if (!coll__endpoint_read(again, &second)) return "a place that cannot be repeated";
    if (memcmp(&place, &second, sizeof place)) return "a place that reads differently the second time";
    if (!is_text(place.name, sizeof place.name)) return "a place with an unreadable name";
    return memcmp(bytes, again, offsetof(coll__endpoint, name)) ? "a place that is not what was read" : NULL;
}

static const char *any_address(input *in)
{
    char text[TEXT_MOST + 1], host[2 * TEXT_MOST];
    const size_t room = 1 + take32(in) % (TEXT_MOST + 1);
    int port = -1;

    take(in, text, sizeof text - 1);
    text[TEXT_MOST] = '\0';
    memset(host, CANARY, sizeof host);
    const bool is_good = coll__address_split(text, host, room, &port);
    if (!is_filled(host + room, sizeof host - room, CANARY)) return "a host longer than its room";
    if (!is_good) return NULL;
    const char *end = (const char *)memchr(host, '\0', room);
    if (!end) return "a host without an end";
    if (port < 0 || port > 65535) return "a port out of range";
    const size_t length = (size_t)(end - host), skip = *text == '[';
    if (memcmp(text + skip, host, length)) return "a host that is not the one in the text";
    if (skip ? strncmp(text + 1 + length, "]:", 2) : text[length] != ':') return "a host that does not end where the port begins";
    return !skip && memchr(host, ':', length) ? "a bare IPv6 address was split" : NULL;
}

static const char *any_head(input *in)
{
    unsigned char ours[COLL_HEAD_LENGTH], theirs[COLL_HEAD_LENGTH];
    char text[256];
    coll_failure failure = { COLL_OK, -1, "" };
    const size_t room = 1 + take32(in) % 128;

    take(in, ours, sizeof ours);
    take(in, theirs, sizeof theirs);
    memset(text, CANARY, sizeof text);
    coll__head_describe(theirs, text, room);
    if (!is_text(text, room)) return "the description of a head is not readable";
    if (!is_filled(text + room, sizeof text - room, CANARY)) return "the description of a head is longer than its room";
    memset(failure.text, CANARY, sizeof failure.text);
    const coll_status status = coll__failed_mismatch(&failure, ours, 0, theirs, 3);
    if (status != COLL_ERR_MISMATCH && status != COLL_ERR_PROTOCOL) return "a mismatch that is none";
    if (failure.status != status || failure.rank != 3) return "a mismatch without a failed rank";
    return is_text(failure.text, sizeof failure.text) ? NULL : "the sentence of a mismatch is not readable";
}

/* ---- >>message notes: a communicator over a transport that the test drives ---- */

enum { NOTE_SIZE = 4, NOTE_RANK = 1, NOTE_REQUESTS = 8, NOTES_MOST = 64, LONG_BYTES = COLL__SHORT_MOST + 1 };

static coll_xfer *awaited[NOTE_SIZE];             /* the receive that a peer's stream stands at              */
static unsigned char sent_head[COLL_HEAD_LENGTH]; /* of the last message sent                                 */
static int sent_to;
static bool is_leaving;                           /* report that all ranks have left, so that leaving is quick */
static uint32_t bytes_seen;                       /* stores the bytes that are sent                           */

static coll_status hand_send(void *context, coll_xfer *x)
{
    (void)context;
    for (size_t i = 0; i < x->length; i++) bytes_seen += ((const unsigned char *)x->buffer)[i];
    memcpy(sent_head, x->head, sizeof sent_head);
    sent_to = x->peer;
    x->status = COLL_OK;
    return COLL_OK;
}

static coll_status hand_recv(void *context, coll_xfer *x)
{
    (void)context;
    awaited[x->peer] = x;
    return COLL_OK;
}

static coll_status hand_progress(void *context, int wait_ms)
{
    (void)context, (void)wait_ms;
    return COLL_OK;
}

static void hand_close(void *context) { (void)context; }
static bool hand_has_left(const void *context, int peer) { return (void)context, is_leaving && peer >= 0; }

static const coll_transport by_hand = { .name = "by hand", .send = hand_send, .recv = hand_recv, .progress = hand_progress,
                                        .close = hand_close, .has_left = hand_has_left };

typedef struct rank_slot {
    coll_comm *comm;
    coll_request *requests[NOTE_REQUESTS];
    void *buffers[NOTE_REQUESTS];                 /* exactly as long as they may be                           */
    int count;
} rank_slot;

static void slot_start(rank_slot *d, coll_kind kind, size_t count, coll_type type, int peer, int tag)
{
    void *buffer = calloc(count, coll_type_size(type));
    const coll_call call = { .kind = kind, .send = buffer, .recv = buffer, .count = count, .type = type, .peer = peer,
                             .tag = tag };

    d->buffers[d->count] = buffer;
    (void)coll_start(d->comm, &call, &d->requests[d->count++]);
}

/* Rank 1 of 4: receives from 0 and 2, sends a long message to 0, and only listens to 3. */
static void slot_open(rank_slot *d, bool is_busy)
{
    *d = (rank_slot){ .count = 0 };
    memset(awaited, 0, sizeof awaited);
    is_leaving = false;
    (void)coll_init_custom(&by_hand, NULL, NOTE_RANK, NOTE_SIZE, &d->comm, NULL);
    if (!d->comm || !is_busy) return;
    slot_start(d, COLL_RECV, 64, COLL_U8, 0, 1);
    slot_start(d, COLL_RECV, 4, COLL_F32, 0, 2);
    slot_start(d, COLL_RECV, LONG_BYTES, COLL_U8, 2, 1);
    slot_start(d, COLL_SEND, LONG_BYTES, COLL_U8, 0, 0);
    slot_start(d, COLL_SEND, 3, COLL_I16, 3, 0);
}

/* Free everything; the first thing that is wrong. */
static const char *slot_close(rank_slot *d)
{
    const char *problem = NULL;
    const coll_status ended = d->comm->session->failure.status;

    if (!is_text(coll_error(d->comm), sizeof d->comm->error)) problem = "the error after a note is not readable";
    for (int i = 0; i < d->count && ended != COLL_OK; i++)
        if (d->requests[i]->status == COLL_PENDING) problem = "a request is still pending although the communicator has ended";
    is_leaving = true;
    coll_free(d->comm);
    for (int i = 0; i < d->count; i++) {
        if (d->requests[i]->status == COLL_PENDING && !problem)
            problem = "a request is still pending although the communicator was freed";
        d->requests[i]->status = COLL_OK;         /* so that it is freed in any case                          */
        coll_request_free(d->requests[i]);
        free(d->buffers[i]);
    }
    return problem;
}

static bool is_listening(const coll_comm *comm, int peer)
{
    return awaited[peer] == &comm->session->messages->peers[peer].listen;
}

/* A header from `peer` arrives, followed by the body if one is expected. */
static void slot_arrive(rank_slot *d, int peer, const unsigned char *head, int fill)
{
    coll_xfer *x = awaited[peer];

    if (!x || !is_listening(d->comm, peer) || d->comm->session->failure.status != COLL_OK) return;
    memcpy(x->head, head, COLL_HEAD_LENGTH);
    x->status = COLL_OK;
    awaited[peer] = NULL;
    (void)coll_progress(d->comm);
    x = awaited[peer];
    if (!x || is_listening(d->comm, peer) || d->comm->session->failure.status != COLL_OK) return;
    if (x->any_head) memcpy(x->head, head, COLL_HEAD_LENGTH);
    if (x->length) memset(x->buffer, fill, x->length);
    x->status = COLL_OK;
    awaited[peer] = NULL;
    (void)coll_progress(d->comm);
}

/* The stored messages must obey the rules. */
static const char *slot_check(const rank_slot *d)
{
    const coll_comm *comm = d->comm;

    if (comm->session->failure.status != COLL_OK) {
        if (comm->session->failure.status != COLL_ERR_PROTOCOL && comm->session->failure.status != COLL_ERR_MISMATCH
            && comm->session->failure.status != COLL_ERR_PEER) return "a note ended all with a wrong status";
        return comm->session->failure.rank >= 0 && comm->session->failure.rank < NOTE_SIZE ? NULL
            : "a note ended all, without a failed rank";
    }
    for (const coll__message *m = comm->session->messages->arrived.first; m; m = m->next) {
        const size_t unit = m->space == COLL__SPACE_USER ? coll_type_size(m->type) : 1;
        if (m->peer < 0 || m->peer >= NOTE_SIZE || (m->space == COLL__SPACE_USER && m->tag < 0))
            return "a message is stored that is from no rank";
        if (!unit || m->length / unit != m->count) return "a message is stored whose length is wrong";
        if (!m->is_long && m->length > COLL__SHORT_MOST) return "a short message is stored that is long";
    }
    for (int peer = 0; peer < NOTE_SIZE; peer++)
        if (comm->session->messages->peers[peer].is_open && !awaited[peer]) return "no receive is posted for a peer any more";
    return NULL;
}

/* A sequence of notes.  Bits of the byte before each select fields that are made valid, so that deep states are reached. */
static const char *any_notes(input *in)
{
    rank_slot d;
    const char *problem = NULL;

    slot_open(&d, true);
    if (!d.comm) return "no communicator over a transport of our own";
    for (int n = 0; n < NOTES_MOST && in->left > 0 && !problem && d.comm->session->failure.status == COLL_OK; n++) {
        unsigned char how, head[COLL_HEAD_LENGTH];
        take(in, &how, 1);
        take(in, head, sizeof head);
        if (how & 0x80) coll__put16(head, COLL__NOTE_MAGIC);
        if (how & 0x40) head[2] = (unsigned char)(head[2] % 7), head[3] = (unsigned char)(head[3] % 4);
        if (how & 0x20) coll__put32(head + 16, head[16] % 16u), coll__put32(head + 20, head[20] % 4u);
        if (how & 0x10) coll__put64(head + 24, coll__get16(head + 24) % 80), coll__put32(head + 12, head[12] % 4u);
        if (how & 0x08) coll__put64(head + 4, 0);
        const int peer = how & 3;
        slot_arrive(&d, peer == NOTE_RANK ? 0 : peer, head, how);
        problem = slot_check(&d);
    }
    const char *at_end = slot_close(&d);
    return problem ? problem : at_end;
}

/* One input: its first byte selects the parser. */
static const char *examine(const unsigned char *data, size_t length)
{
    static const char *(*const all[PARSER_COUNT])(input *) = { any_hello, any_control, any_place, any_address, any_head,
                                                               any_notes };
    input in = { data, length };
    unsigned char which;

    take(&in, &which, 1);
    return all[which % PARSER_COUNT](&in);
}

#ifdef COLL_FUZZ

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *problem = examine(data, size);

    if (problem) {
        fprintf(stderr, "%s\n", problem);
        __builtin_trap();
    }
    return 0;
}

#else

/* ---- >>hello ---- */

static coll__hello hello_of(int rank, int size)
{
    coll__hello hello = { .rank = rank, .size = size, .purpose = COLL__PURPOSE_DATA, .channel = 1, .to = size - 1 };

    memcpy(hello.world, world_of_ours, sizeof hello.world);
    memset(hello.host, 0x77, sizeof hello.host);
    return hello;
}

static void test_hello_round_trip(void)
{
    for (int size = 1; size <= 65536; size = size * 3 + 1)
        for (int rank = 0; rank < size; rank += 1 + size / 5)
            for (int n = 0; n < 5; n++) {
                unsigned char bytes[COLL__HELLO_LENGTH];
                coll__hello hello = hello_of(rank, size), got;
                hello.purpose = (unsigned char)(COLL__PURPOSE_JOIN + n % 4);
                hello.channel = n % COLL_CHANNEL_COUNT;
                coll__hello_write(bytes, &hello);
                const char *wrong = coll__hello_read(bytes, world_of_ours, size, &got);
                CHECK(!wrong, "rank %d of %d: %s", rank, size, wrong ? wrong : "");
                CHECK(got.rank == rank && got.size == size && got.purpose == hello.purpose && got.channel == hello.channel
                      && !memcmp(got.host, hello.host, sizeof got.host)
                      && !memcmp(got.world, hello.world, sizeof got.world), "rank %d of %d is read differently", rank, size);
            }
}

/* One field of a good hello of rank 2 of 5 is replaced: it must be refused with these words. */
static void test_hello_fields(void)
{
    static const struct { int at, bytes; uint32_t value; const char *words; } wrongs[] = {
        { 0, 1, 0x88, "protocol" },    { 7, 1, 0, "protocol" },        { 0, 4, 0x20544547, "protocol" },
        { 8, 2, 0, "version" },        { 8, 2, 1, "version" },         { 8, 2, 2, "version" },       { 8, 2, 3, "version" },
        { 8, 2, 0xffff, "version" },
        { 12, 4, 0, "byte order" },    { 12, 4, 0x04030201, "byte order" },
        { 16, 1, 0, "COLL_WORLD" },    { 31, 1, 254, "COLL_WORLD" },
        { 32, 4, 5, "out of range" },  { 32, 4, 6, "out of range" },   { 32, 4, 0xffffffff, "out of range" },
        { 32, 4, 0x80000000, "out of range" },                         { 32, 4, 0x7fffffff, "out of range" },
        { 36, 4, 4, "job size" }, { 36, 4, 6, "job size" }, { 36, 4, 0, "job size" },
        { 36, 4, 0xfffffffb, "job size" },
        { 10, 1, 0, "purpose" },       { 10, 1, 5, "purpose" },        { 10, 1, 0xff, "purpose" },
        { 44, 4, COLL_CHANNEL_COUNT, "channel" }, { 44, 4, 0x100, "channel" }, { 44, 4, 0xffffffff, "channel" },
        { 40, 4, 5, "calls is out of range" }, { 40, 4, 0xffffffff, "calls is out of range" },
        { 11, 1, 3, "security" },      { 11, 1, 8, "security" },       { 11, 1, 0x81, "security" },
        { 72, 4, 16, "lane" },         { 76, 4, 1, "lane" },           { 72, 4, 0xffffffff, "lane" },
        { 76, 4, 0xffffffff, "lane" },
    };

    for (size_t n = 0; n < sizeof wrongs / sizeof *wrongs; n++) {
        unsigned char bytes[COLL__HELLO_LENGTH];
        coll__hello hello = hello_of(2, 5), got;
        coll__hello_write(bytes, &hello);
        const uint16_t half = (uint16_t)wrongs[n].value;
        if (wrongs[n].bytes == 4) memcpy(bytes + wrongs[n].at, &wrongs[n].value, 4);
        else if (wrongs[n].bytes == 2) memcpy(bytes + wrongs[n].at, &half, 2);
        else bytes[wrongs[n].at] = (unsigned char)wrongs[n].value;
        const char *wrong = coll__hello_read(bytes, world_of_ours, 5, &got);
        CHECK(wrong && strstr(wrong, wrongs[n].words), "%x at %d: \"%s\" does not say \"%s\"", (unsigned)wrongs[n].value,
              wrongs[n].at, wrong ? wrong : "(accepted)", wrongs[n].words);
    }
}

/* Each single bit: refused, or one of the fields that may differ between good hellos. */
static void test_hello_bits(void)
{
    for (int bit = 0; bit < 8 * COLL__HELLO_LENGTH; bit++) {
        unsigned char bytes[COLL__HELLO_LENGTH];
        const coll__hello hello = hello_of(2, 5);
        coll__hello got;
        const int at = bit / 8;
        coll__hello_write(bytes, &hello);
        bytes[at] ^= (unsigned char)(1 << bit % 8);
        /* purpose, auth; rank; to, channel, and all after them, which are looked at elsewhere */
        const bool is_free = at == 10 || at == 11 || (at >= 32 && at < 36) || at >= 40;
        const char *wrong = coll__hello_read(bytes, world_of_ours, 5, &got);
        CHECK(wrong || is_free, "bit %d of byte %d is not looked at", bit % 8, at);
        CHECK(wrong || (got.rank >= 0 && got.rank < 5 && got.to >= 0 && got.to < 5 && got.channel >= 0
                        && got.channel < COLL_CHANNEL_COUNT),
              "bit %d of byte %d: rank %d, channel %d", bit % 8, at, got.rank, got.channel);
    }
}

/* ---- >>control ---- */

static void test_control_round_trip(void)
{
    char text[400];

    for (int note = COLL__CONTROL_WELCOME; note < COLL__CONTROL_LIMIT; note++)
        for (int status = COLL_ERR_FORKED; status <= 0; status++)
            for (int length = 0; length < 400; length = length * 2 + 1) {
                unsigned char bytes[COLL__CONTROL_LENGTH];
                coll__control got;
                memset(text, 0, sizeof text);
                memset(text, '%', (size_t)length);
                coll__control_write(bytes, (coll__control_note)note, (coll_status)status, length % 8 - 1, text);
                const bool is_failure = note == COLL__CONTROL_REFUSE || note == COLL__CONTROL_FAIL
                                     || note == COLL__CONTROL_REPORT;
                const bool needs_rank = note >= COLL__CONTROL_HEARTBEAT && note != COLL__CONTROL_REPORT;
                const bool has_none = (is_failure && status == 0) || (needs_rank && length % 8 == 0);
                const bool is_good = coll__control_read(bytes, 7, &got);
                CHECK(is_good == !has_none, "note %d, status %d", note, status);
                if (!is_good) continue;
                const size_t most = sizeof got.what.text - 1;
                CHECK((int)got.note == note && (int)got.what.status == status && got.what.rank == length % 8 - 1
                      && strlen(got.what.text) == coll__least((size_t)length, most) && !strncmp(got.what.text, text, most),
                      "note %d, status %d, %d characters: \"%s\"", note, status, length, got.what.text);
            }
}

static void test_control_fields(void)
{
    static const struct { int at, bytes; uint32_t value; } wrongs[] = {
        { 0, 2, 0xc012 }, { 0, 2, 0 }, { 0, 2, 0x13c0 },
        { 2, 2, 0 }, { 2, 2, COLL__CONTROL_LIMIT }, { 2, 2, 0x0104 }, { 2, 2, 0xffff },
        { 4, 4, 0 }, { 4, 4, 1 }, { 4, 4, 2 }, { 4, 4, 0x7fffffff }, { 4, 4, 0x80000000 },
        { 4, 4, (uint32_t)(COLL_ERR_FORKED - 1) },
        { 8, 4, 7 }, { 8, 4, 8 }, { 8, 4, 0x7fffffff }, { 8, 4, 0x80000000 }, { 8, 4, 0xfffffffe },
    };
    unsigned char bytes[COLL__CONTROL_LENGTH];
    coll__control got;

    for (size_t n = 0; n < sizeof wrongs / sizeof *wrongs; n++) {
        coll__control_write(bytes, COLL__CONTROL_FAIL, COLL_ERR_PEER, 6, "rank 6 is lost");
        CHECK(coll__control_read(bytes, 7, &got), "a good note is refused");
        for (int i = 0; i < wrongs[n].bytes; i++) bytes[wrongs[n].at + i] = (unsigned char)(wrongs[n].value >> 8 * i);
        CHECK(!coll__control_read(bytes, 7, &got), "%x at %d is accepted", (unsigned)wrongs[n].value, wrongs[n].at);
    }
    /* every byte of the text, and no end to it */
    for (int c = 1; c < 256; c++) {
        coll__control_write(bytes, COLL__CONTROL_FAIL, COLL_ERR_PEER, 6, "");
        memset(bytes + COLL__CONTROL_TEXT, c, COLL__CONTROL_LENGTH - COLL__CONTROL_TEXT);
        const bool is_good = coll__control_read(bytes, 7, &got);
        CHECK(is_good && is_text(got.what.text, sizeof got.what.text) && strlen(got.what.text) == sizeof got.what.text - 1,
              "a text of nothing but %02x", (unsigned)c);
        CHECK(got.what.text[0] == (c >= 32 && c < 127 ? (char)c : '?'), "%02x is read as %02x", (unsigned)c,
              (unsigned)got.what.text[0]);
    }
}

/* ---- >>place, digest, address ---- */

static void test_place(void)
{
    unsigned char bytes[COLL__ENDPOINT_LENGTH];
    coll__endpoint place, got;

    for (int port = 0; port <= 65535; port += 13107) {
        for (int count = 0; count <= COLL__ENDPOINT_ADDRESSES; count++) {
            memset(&place, 0, sizeof place);
            for (int i = 0; i < 16 * count; i++) place.addresses[i / 16][i % 16] = (unsigned char)(i + port);
            for (int i = 0; i < 16; i++) place.host[i] = (unsigned char)(200 - i);
            place.port = port;
            place.count = count;
            place.processors = port;
            place.processor_set = 0x8000000000000001u + (unsigned)port;
            place.pid = 0xfffffff0u + (unsigned)count;
            place.site = 0xfedcba98u - (unsigned)port;
            coll__print(place.name, sizeof place.name, "host-%d", port);
            coll__endpoint_write(bytes, &place);
            CHECK(coll__endpoint_read(bytes, &got) && !memcmp(&got, &place, sizeof got), "port %d, %d addresses", port, count);
        }
    }
    static const struct { size_t at; int value; const char *what; } wrongs[] = {
        { offsetof(coll__endpoint, count), COLL__ENDPOINT_ADDRESSES + 1, "too many addresses" },
        { offsetof(coll__endpoint, count), -1, "less than no address" },
        { offsetof(coll__endpoint, processors), COLL__PROCESSORS_MOST + 1, "too many processors" },
        { offsetof(coll__endpoint, port), 65536, "no port" },
    };
    for (size_t n = 0; n < sizeof wrongs / sizeof *wrongs; n++) {
        coll__endpoint_write(bytes, &place);
        memcpy(bytes + wrongs[n].at, &wrongs[n].value, sizeof wrongs[n].value);
        CHECK(!coll__endpoint_read(bytes, &got), "a place with %s is accepted", wrongs[n].what);
    }
}

/* What ranks of one host report about its processors. */
static void test_processors(void)
{
    static const struct { uint64_t set; int most, sum, together; } cases[] = {
        { 1, 1, 2, 1 }, { 3, 1, 2, 2 }, { 3, 2, 4, 2 }, { ~(uint64_t)0, 64, 128, 64 }, { ~(uint64_t)0, 1, 100, 100 },
        { 0, 0, 0, 1 }, { ~(uint64_t)0, 0, 0, 1 }, { 0, 2, 4, 2 } };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const int together = coll__processors_together(cases[i].set, cases[i].most, cases[i].sum);
        CHECK(together == cases[i].together, "case %zu: %d processors, and not %d", i, together, cases[i].together);
    }
}

static void test_digest(void)
{
    static const char *const texts[] = { "", "a", "b", "ab", "ba", "a b", "job 1", "job 2", "\xc3\xa9",
                                         "a very long name of a job" };
    unsigned char sums[10][16], again[16];

    for (int i = 0; i < 10; i++) {
        coll__digest(sums[i], texts[i]);
        coll__digest(again, texts[i]);
        CHECK(!memcmp(sums[i], again, 16), "\"%s\" has two digests", texts[i]);
        for (int j = 0; j < i; j++) CHECK(memcmp(sums[i], sums[j], 16), "\"%s\" and \"%s\" have one digest", texts[i], texts[j]);
    }
}

static void test_address(void)
{
    static const struct { const char *text, *host; int port; } good[] = {
        { "localhost:80", "localhost", 80 }, { "10.0.0.7:4242", "10.0.0.7", 4242 }, { ":1", "", 1 }, { "h:0", "h", 0 },
        { "h:65535", "h", 65535 }, { "[::1]:80", "::1", 80 }, { "[fe80::1%eth0]:9", "fe80::1%eth0", 9 }, { "[]:7", "", 7 },
        { "a-b.c:007", "a-b.c", 7 },
    };
    static const char *const bad[] = { "", ":", "host", "host:", "host:x", "host:8x", "host:65536", "host:-1",
                                       "host:99999999999999999999",
                                       "::1", "::1:80", "fe80::1:80", "[::1]", "[::1]80", "[::1:80", "[::1]:", "[", "[:1", "]:",
                                       "a:b:1", "host:80:", "host:0x50", "[::1]x:80", "host:8 0", "host:80 " };
    char host[16];
    int port;

    for (size_t n = 0; n < sizeof good / sizeof *good; n++) {
        port = -1;
        CHECK(coll__address_split(good[n].text, host, sizeof host, &port), "\"%s\" is refused", good[n].text);
        CHECK(!strcmp(host, good[n].host) && port == good[n].port, "\"%s\" gives \"%s\" and %d", good[n].text, host, port);
    }
    for (size_t n = 0; n < sizeof bad / sizeof *bad; n++)
        CHECK(!coll__address_split(bad[n], host, sizeof host, &port), "\"%s\" is accepted: \"%s\" and %d", bad[n], host, port);
    CHECK(coll__address_split("123456789012345:1", host, sizeof host, &port), "a host that just fits");
    CHECK(!coll__address_split("1234567890123456:1", host, sizeof host, &port), "a host that does not fit");
    CHECK(!coll__address_split("[1234567890123456]:1", host, sizeof host, &port), "a host in brackets that does not fit");
}

/* ---- >>heads ---- */

static void test_heads(void)
{
    static const struct { coll_call call; const char *text; } calls[] = {
        { { .kind = COLL_BARRIER }, "barrier #7" },
        { { .kind = COLL_ALLREDUCE, .count = 1024, .type = COLL_F32, .wire = COLL_F32 }, "allreduce #7 of 1024 x f32 (sum)" },
        { { .kind = COLL_ALLREDUCE, .count = 3, .type = COLL_F32, .wire = COLL_BF16, .op = COLL_AVG },
          "allreduce #7 of 3 x f32 over bf16 (avg)" },
        { { .kind = COLL_BROADCAST, .count = 5, .type = COLL_I8, .wire = COLL_I8, .root = 3 }, "broadcast #7 of 5 x i8 root 3" },
        { { .kind = COLL_REDUCE, .count = 0xffffffff, .type = COLL_U64, .wire = COLL_U64, .op = COLL_MAX, .root = 1 },
          "reduce #7 of 4294967295 x u64 (max) root 1" },
#if COLL__IS_WHOLE
        { { .kind = COLL_REDUCE, .count = 2, .type = COLL_F32, .wire = COLL_F32, .root = 6, .scale = 3, .seed = 5,
            .flags = COLL_STOCHASTIC | COLL_ROUND_TWICE, .accumulate = COLL_F64, .not_commutative = true, .leaves = 4 },
          "reduce #7 of 2 x f32 (sum) with COLL_STOCHASTIC|COLL_ROUND_TWICE|scale|seed|accumulate|not_commutative|leaves "
          "root 6" },
#endif
        { { .kind = COLL_BROADCAST, .count = 5, .type = COLL_I8, .wire = COLL_I8, .root = 7, .algorithm = "tree" },
          "broadcast #7 of 5 x i8 with algorithm root 7" },
        { { .kind = COLL_RECV, .count = 9, .type = COLL_F64, .wire = COLL_F64, .peer = 2 }, "recv of 9 x f64 with rank 2" },
    };

    for (size_t n = 0; n < sizeof calls / sizeof *calls; n++) {
        unsigned char head[COLL_HEAD_LENGTH];
        char text[COLL__CALL_ROOM];
        coll__head_of_call(head, &calls[n].call, 8, 0, 7);
        coll__head_describe(head, text, sizeof text);
        CHECK(!strcmp(text, calls[n].text), "\"%s\" is not \"%s\"", text, calls[n].text);
        for (int at = 0; at < COLL_HEAD_LENGTH; at++)         /* for each difference there is a sentence */
            for (int bit = 0; bit < 8; bit++) {
                unsigned char other[COLL_HEAD_LENGTH];
                coll_failure failure = { COLL_OK, -1, "" };
                memcpy(other, head, sizeof other);
                other[at] ^= (unsigned char)(1 << bit);
                const coll_status status = coll__failed_mismatch(&failure, head, 0, other, 1);
                CHECK(status == (at < 2 ? COLL_ERR_PROTOCOL : failure.status), "byte %d: status %d", at, (int)status);
                CHECK(is_text(failure.text, sizeof failure.text) && *failure.text, "byte %d: no sentence", at);
            }
    }
}

/* ---- >>notes ---- */

static void note(unsigned char *head, int kind, coll_type type, int tag, uint64_t count, uint32_t id)
{
    const coll__message m = { .id = id, .type = type, .tag = tag, .count = count };
    coll__note_write(head, (coll__note)kind, &m);
}

static void test_notes_good(void)
{
    unsigned char head[COLL_HEAD_LENGTH];
    rank_slot d;

    slot_open(&d, true);
    note(head, COLL__NOTE_SHORT, COLL_U8, 1, 64, 9);
    slot_arrive(&d, 0, head, 0x31);
    CHECK(coll_test(d.requests[0]) == COLL_OK && is_filled(d.buffers[0], 64, 0x31), "a short message is not received");
    note(head, COLL__NOTE_LONG, COLL_U8, 1, LONG_BYTES, 77);
    slot_arrive(&d, 2, head, 0);
    CHECK(sent_to == 2 && sent_head[2] == COLL__NOTE_GO && coll__get32(sent_head + 12) == 77, "a long message is not answered");
    note(head, COLL__NOTE_BODY, COLL_U8, 1, LONG_BYTES, 77);
    slot_arrive(&d, 2, head, 0x32);
    CHECK(coll_test(d.requests[2]) == COLL_OK && is_filled(d.buffers[2], LONG_BYTES, 0x32), "a long message is not received");
    note(head, COLL__NOTE_GO, COLL_U8, 0, LONG_BYTES, 1);
    slot_arrive(&d, 0, head, 0);
    CHECK(coll_test(d.requests[3]) == COLL_OK && sent_to == 0 && sent_head[3] == COLL__NOTE_IS_BODY,
          "a long message is not sent");
    note(head, COLL__NOTE_CREDIT, 0, 0, 0, 0);
    coll__put64(head + 24, 4 * COLL__COST);
    d.comm->session->messages->peers[3].credit = COLL__CREDIT - 4 * COLL__COST;  /* as after so many short messages   */
    slot_arrive(&d, 3, head, 0);
    CHECK(d.comm->session->failure.status == COLL_OK && d.comm->session->messages->peers[3].credit == COLL__CREDIT,
          "credit is not counted: %s", coll_error(d.comm));
    const char *problem = slot_check(&d), *at_end = slot_close(&d);
    CHECK(!problem && !at_end, "%s", problem ? problem : at_end ? at_end : "");
}

/* No peer gets more credit than there is, and no peer makes this rank store more short messages than it has credit for. */
static void test_notes_credit(void)
{
    unsigned char head[COLL_HEAD_LENGTH];
    rank_slot d;

    static const struct { int tag; uint64_t count; } credits[] = { { 0, 0 }, { 0, COLL__CREDIT }, { 0, UINT64_MAX }, { 2, 0 } };
    for (size_t i = 0; i < sizeof credits / sizeof *credits; i++) {
        slot_open(&d, true);
        note(head, COLL__NOTE_CREDIT, 0, credits[i].tag, credits[i].count, 0);
        slot_arrive(&d, 3, head, 0);
        CHECK(d.comm->session->failure.status == COLL_ERR_PROTOCOL, "credit that was never due is taken: %zu", i);
        slot_close(&d);
    }
    slot_open(&d, true);
    for (int i = 0; i <= COLL__CREDIT / COLL__COST; i++) {
        CHECK(d.comm->session->failure.status == COLL_OK, "short message %d is refused: %s", i, coll_error(d.comm));
        note(head, COLL__NOTE_SHORT, COLL_U8, 99, 0, (uint32_t)i);
        slot_arrive(&d, 3, head, 0);
    }
    CHECK(d.comm->session->failure.status == COLL_ERR_PROTOCOL, "short messages beyond their credit are stored");
    slot_close(&d);
}

/* Invalid notes end the communicator with a sentence, and every request with it. */
static void test_notes_wrong(void)
{
    static const struct {
        int kind;
        coll_type type;
        int tag;
        uint64_t count;
        uint32_t id;
        coll_status status;
        const char *what;
    } wrongs[] = {
        { 0, COLL_U8, 1, 1, 0, COLL_ERR_PROTOCOL, "kind 0" },
        { COLL__NOTE_GONE + 1, COLL_U8, 1, 1, 0, COLL_ERR_PROTOCOL, "kind 7" },
        { COLL__NOTE_GONE, COLL_U8, 1, 1, 0, COLL_ERR_PEER, "the sender has freed what we wait in" },
        { 255, COLL_U8, 1, 1, 0, COLL_ERR_PROTOCOL, "kind 255" },
        { COLL__NOTE_SHORT, 0, 1, 1, 0, COLL_ERR_PROTOCOL, "type 0" },
        { COLL__NOTE_SHORT, 99, 1, 1, 0, COLL_ERR_PROTOCOL, "type 99" },
        { COLL__NOTE_LONG, -1, 1, 1, 0, COLL_ERR_PROTOCOL, "type -1" },
        { COLL__NOTE_SHORT, COLL_U8, -1, 1, 0, COLL_ERR_PROTOCOL, "tag -1" },
        { COLL__NOTE_SHORT, COLL_U8, 9, COLL__SHORT_MOST + 1, 0, COLL_ERR_PROTOCOL, "short and too long" },
        { COLL__NOTE_SHORT, COLL_F64, 9, UINT64_MAX / 8 + 2, 0, COLL_ERR_PROTOCOL, "short and wraps" },
        { COLL__NOTE_LONG, COLL_F64, 9, UINT64_MAX / 8 + 2, 0, COLL_ERR_PROTOCOL, "long and wraps" },
        { COLL__NOTE_GO, COLL_U8, 0, LONG_BYTES, 2, COLL_ERR_PROTOCOL, "go for what is not sent" },
        { COLL__NOTE_BODY, COLL_U8, 1, 64, 0, COLL_ERR_PROTOCOL, "a body that no rank requested" },
        { COLL__NOTE_SHORT, COLL_U8, 1, 65, 0, COLL_ERR_MISMATCH, "a short message longer than the room" },
        { COLL__NOTE_SHORT, COLL_I8, 1, 1, 0, COLL_ERR_MISMATCH, "a short message of another type" },
        { COLL__NOTE_LONG, COLL_U8, 1, LONG_BYTES, 0, COLL_ERR_MISMATCH, "a long message longer than the room" },
    };

    for (size_t n = 0; n < sizeof wrongs / sizeof *wrongs; n++) {
        unsigned char head[COLL_HEAD_LENGTH];
        rank_slot d;
        if (wrongs[n].kind == COLL__NOTE_GONE && !COLL__IS_WHOLE) continue;  /* no liveness check of the peers */
        slot_open(&d, true);
        note(head, wrongs[n].kind, wrongs[n].type, wrongs[n].tag, wrongs[n].count, wrongs[n].id);
        slot_arrive(&d, 0, head, 0);
        CHECK(d.comm->session->failure.status == wrongs[n].status && d.comm->session->failure.rank == 0, "%s: status %d, rank %d",
              wrongs[n].what, (int)d.comm->session->failure.status, d.comm->session->failure.rank);
        const char *problem = slot_close(&d);
        CHECK(!problem, "%s: %s", wrongs[n].what, problem ? problem : "");
    }
}

/* The other order: the message has arrived, and the receive that is posted then does not fit. */
static void test_notes_late_receive(void)
{
    for (int is_long = 0; is_long < 2; is_long++) {
        unsigned char head[COLL_HEAD_LENGTH];
        rank_slot d;
        slot_open(&d, false);
        slot_start(&d, COLL_RECV, 8, COLL_U8, 0, 0);
        note(head, is_long ? COLL__NOTE_LONG : COLL__NOTE_SHORT, COLL_U8, 5, 16, 1);
        slot_arrive(&d, 0, head, 0x33);
        slot_start(&d, COLL_RECV, 8, COLL_U8, 0, 5);
        CHECK(d.comm->session->failure.status == COLL_ERR_MISMATCH && d.requests[1]->status == COLL_ERR_MISMATCH,
              "status %d, request %d", (int)d.comm->session->failure.status, (int)d.requests[1]->status);
        const char *problem = slot_close(&d);
        CHECK(!problem, "%s", problem ? problem : "");
    }
}

/* A message of a rank to itself that does not fit, in both orders. */
static void test_notes_to_self(void)
{
    for (int order = 0; order < 2; order++) {
        rank_slot d;
        slot_open(&d, false);
        slot_start(&d, order ? COLL_SEND : COLL_RECV, order ? 16 : 8, COLL_U8, NOTE_RANK, 5);
        slot_start(&d, order ? COLL_RECV : COLL_SEND, order ? 8 : 16, COLL_U8, NOTE_RANK, 5);
        CHECK(d.comm->session->failure.status == COLL_ERR_MISMATCH, "status %d", (int)d.comm->session->failure.status);
        const char *problem = slot_close(&d);
        CHECK(!problem, "%s", problem ? problem : "");
    }
}

/* ---- >>random inputs ---- */

static uint64_t random_state;

static uint32_t random32(void)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    const uint64_t x = random_state ^ random_state >> 33;
    return (uint32_t)((x * 0xff51afd7ed558ccdu) >> 32);
}

/* A valid input for a parser, to be changed a little.  Returns its length. */
static size_t good_input(unsigned char *at, parser which)
{
    static const char *const addresses[] = { "localhost:80", "[::1]:65535", ":1", "10.0.0.7:4242", "[fe80::1%eth0]:9", "::1:80" };
    const coll__hello hello = hello_of(2, 5);
    static const size_t counts[8] = { 1, 2, 3 };
    const coll_call call = { .kind = (coll_kind)(1 + random32() % COLL_SENDRECV), .count = random32(), .type = COLL_F32,
                             .wire = COLL_BF16, .recv_counts = counts };
    coll__endpoint place;

    memset(at, 0, 512);
    at[0] = (unsigned char)which;
    coll__put32(at + 1, 0x10004);                 /* a size of 5, or some room for a text                     */
    switch (which) {
    case HELLO: coll__hello_write(at + 5, &hello); return 5 + COLL__HELLO_LENGTH;
    case CONTROL: coll__control_write(at + 5, (coll__control_note)(1 + random32() % 5), COLL_ERR_PEER, 1,
                                      "rank 1 is lost: connection reset by peer");
        return 5 + COLL__CONTROL_LENGTH;
    case ADDRESS:
        coll__put32(at + 1, random32());
        coll__print((char *)at + 5, TEXT_MOST, "%s", addresses[random32() % 6]);
        return 5 + TEXT_MOST;
    case HEAD:
        coll__put32(at + 1, random32());
        coll__head_of_call(at + 5, &call, 8, 0, (uint32_t)random32());
        memcpy(at + 37, at + 5, COLL_HEAD_LENGTH);
        return 5 + 2 * COLL_HEAD_LENGTH;
    case NOTES:
        for (size_t i = 1; i < 1 + 12 * 33; i++) at[i] = (unsigned char)random32();
        for (size_t i = 0; i < 12; i++) at[1 + i * 33] |= (unsigned char)(random32() % 8 ? 0xf0 : 0);
        return 1 + 12 * 33;
    default:
        for (size_t i = 0; i < COLL__ENDPOINT_LENGTH; i++) ((unsigned char *)&place)[i] = (unsigned char)random32();
        place.port = (int)(random32() & 0xffff);
        place.count = (int)(random32() % (COLL__ENDPOINT_ADDRESSES + 1));
        place.processors = (int)(random32() % 100);
        coll__endpoint_write(at + 1, &place);
        return 1 + COLL__ENDPOINT_LENGTH;
    }
}

/* Flip bits, replace bytes by special values, or replace all of it by noise. */
static void spoil(unsigned char *at, size_t length)
{
    static const unsigned char telling[] = { 0, 1, 2, 0x7f, 0x80, 0xff, '%', ':', '[', ']', '-', ' ' };
    const uint32_t how = random32() % 16;

    if (how == 0)
        for (size_t i = 1; i < length; i++) at[i] = (unsigned char)random32();
    else if (how < 8)
        for (uint32_t n = random32() % 4; n > 0; n--) at[1 + random32() % (length - 1)] ^= (unsigned char)(1u << random32() % 8);
    else
        for (uint32_t n = 1 + random32() % 6; n > 0; n--)
            at[1 + random32() % (length - 1)] = telling[random32() % sizeof telling];
}

static void test_random(void)
{
    const char *seed = getenv("COLL_TEST_SEED"), *inputs = getenv("COLL_TEST_INPUTS");
    const unsigned long first = seed ? strtoul(seed, NULL, 10) : (unsigned long)coll__now();
    const unsigned long count = inputs ? strtoul(inputs, NULL, 10) : 2000000;
    unsigned char bytes[512];
    unsigned long done = 0;
    const char *problem = NULL;

    random_state = first;
    printf("COLL_TEST_SEED=%lu, %lu inputs\n", first, count);
    fflush(stdout);
    for (; done < count && !problem; done++) {
        const parser which = done % 64 == 0 ? NOTES : (parser)(done % NOTES);     /* notes take the longest       */
        const size_t length = good_input(bytes, which);
        spoil(bytes, length);
        problem = examine(bytes, random32() % 32 ? length : 1 + random32() % length);
    }
    CHECK(!problem, "COLL_TEST_SEED=%lu, input %lu: %s", first, done, problem ? problem : "");
}

int main(void)
{
    test_hello_round_trip();
    test_hello_fields();
    test_hello_bits();
    test_control_round_trip();
    test_control_fields();
    test_place();
    test_processors();
    test_digest();
    test_address();
    test_heads();
    test_notes_good();
    test_notes_credit();
    test_notes_wrong();
    test_notes_late_receive();
    test_notes_to_self();
    test_random();
    return CHECK_DONE();
}

#endif
