/* test_handshakes.c - the handshake of a connection, and the layers behind it, between two ends in one thread: published vectors
 * of the checksums, wrong proofs, handshakes that are recorded, reflected and replayed, single bits that are changed.
 *
 *     test_handshakes [PART,...]         PART: sums, greetings, pipes
 *
 * Built with COLL_WITH_OPENSSL where there is OpenSSL; otherwise TLS is left out, and the first line says so.
 */
#include "../support/inside.h"

#include "../support/check.h"
#include "../support/support.h"

#define KEY "a key of all ranks, 0123456789"
#define OTHER_KEY "another key, 0123456789abcdef"

#if defined(COLL_WITH_OPENSSL)
#define HAS_TLS true
#else
#define HAS_TLS false
#endif

enum { TLS = COLL__AUTH_TLS, CHECKED = COLL__AUTH_CHECK, BY_KEY = COLL__AUTH_KEY };

static uint64_t seed;

/* ---- >>sums: published vectors ---- */

static void hex_of(const unsigned char *bytes, size_t length, char *text)
{
    for (size_t i = 0; i < length; i++) snprintf(text + 2 * i, 3, "%02x", bytes[i]);
}

static void expect_sha(const char *text, size_t times, const char *expected)
{
    coll__sha sha;
    unsigned char out[COLL__SHA_LENGTH];
    char hex[65];

    coll__sha_begin(&sha);
    for (size_t i = 0; i < times; i++) coll__sha_add(&sha, text, strlen(text));
    coll__sha_end(&sha, out);
    hex_of(out, sizeof out, hex);
    CHECK(!strcmp(hex, expected), "sha256 of %zu x \"%.20s\" is %s", times, text, hex);
}

/* RFC 4231; the bytes of a key or of data are a text or one repeated byte. */
static void test_hmac(void)
{
    static const struct { const char *key; int key_byte; size_t key_length; const char *data; int data_byte; size_t data_length;
                          const char *out; } all[] = {
        { NULL, 0x0b, 20, "Hi There", 0, 8, "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7" },
        { "Jefe", 0, 4, "what do ya want for nothing?", 0, 28,
          "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843" },
        { NULL, 0xaa, 20, NULL, 0xdd, 50, "773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe" },
        { "\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a\x0b\x0c\x0d\x0e\x0f\x10\x11\x12\x13\x14\x15\x16\x17\x18\x19", 0, 25, NULL,
          0xcd, 50,
          "82558a389a443c0ea4cc819899f2083a85f0faa3e578f8077a2e3ff46729665b" },
        { NULL, 0x0c, 20, "Test With Truncation", 0, 20, "a3b6167473100ee06e0c796c2955552b" },
        { NULL, 0xaa, 131, "Test Using Larger Than Block-Size Key - Hash Key First", 0, 54,
          "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54" },
        { NULL, 0xaa, 131, "This is a test using a larger than block-size key and a larger than block-size data. The key needs "
          "to be hashed before being used by the HMAC algorithm.", 0, 152,
          "9b09ffa71b942fcb27635fbcd5b0e944bfdc63644f0713938a7f51535c3a35e2" },
    };

    for (size_t n = 0; n < sizeof all / sizeof *all; n++) {
        unsigned char key[200], data[200], out[COLL__SHA_LENGTH], pieces_out[COLL__SHA_LENGTH];
        char hex[65];
        memset(key, all[n].key_byte, sizeof key);
        memset(data, all[n].data_byte, sizeof data);
        if (all[n].key) memcpy(key, all[n].key, all[n].key_length);
        if (all[n].data) memcpy(data, all[n].data, all[n].data_length);
        const struct iovec one = { data, all[n].data_length };
        const struct iovec three[] = { { data, 3 }, { data + 3, 0 }, { data + 3, all[n].data_length - 3 } };
        coll__hmac(out, key, all[n].key_length, &one, 1);
        coll__hmac(pieces_out, key, all[n].key_length, three, 3);
        hex_of(out, sizeof out, hex);
        CHECK(!strncmp(hex, all[n].out, strlen(all[n].out)), "RFC 4231 case %zu: %s", n + 1, hex);
        CHECK(!memcmp(out, pieces_out, sizeof out), "RFC 4231 case %zu, in pieces, differs", n + 1);
    }
}

/* RFC 3720 B.4, by table and by instruction; then both against each other. */
static void test_crc(void)
{
    static coll__crc table, instruction;
    unsigned char bytes[1000];
    uint64_t random = seed;

    coll__crc_open(&instruction);
    table.has_instruction = false;
    for (uint32_t b = 0; b < 256; b++) {          /* the result of coll__crc_open without the instruction, by the definition */
        uint32_t sum = b;
        for (int i = 0; i < 8; i++) sum = sum >> 1 ^ (sum & 1 ? 0x82f63b78u : 0);
        table.table[0][b] = sum;
    }
    for (int k = 1; k < 8; k++)
        for (int b = 0; b < 256; b++)
            table.table[k][b] = table.table[k - 1][b] >> 8 ^ table.table[0][table.table[k - 1][b] & 255];
    const coll__crc *const both[] = { &table, &instruction };
    for (int w = 0; w < 2; w++) {
        unsigned char at[32];
        CHECK(coll__crc_add(both[w], 0, (const unsigned char *)"123456789", 9) == 0xe3069283, "crc32c of 123456789");
        memset(at, 0, 32);
        CHECK(coll__crc_add(both[w], 0, at, 32) == 0x8a9136aa, "crc32c of zeros");
        memset(at, 0xff, 32);
        CHECK(coll__crc_add(both[w], 0, at, 32) == 0x62a8ab43, "crc32c of ones");
        for (int i = 0; i < 32; i++) at[i] = (unsigned char)i;
        CHECK(coll__crc_add(both[w], 0, at, 32) == 0x46dd794e, "crc32c, upwards");
        for (int i = 0; i < 32; i++) at[i] = (unsigned char)(31 - i);
        CHECK(coll__crc_add(both[w], 0, at, 32) == 0x113fdb5c, "crc32c, downwards");
        CHECK(coll__crc_add(both[w], coll__crc_add(both[w], 0, at, 13), at + 13, 19) == 0x113fdb5c, "crc32c, in pieces");
    }
    for (size_t i = 0; i < sizeof bytes; i++) bytes[i] = (unsigned char)support_random(&random);
    for (size_t n = 0; n < sizeof bytes; n += 7)
        CHECK(coll__crc_add(&table, 5, bytes + n % 8, n - n % 8) == coll__crc_add(&instruction, 5, bytes + n % 8, n - n % 8),
              "crc32c of %zu bytes: table and instruction differ", n);
}

static void test_sums(void)
{
    expect_sha("", 1, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    expect_sha("abc", 1, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    expect_sha("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq", 1,
               "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
    expect_sha("a", 1000000, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
    test_hmac();
    test_crc();
    CHECK(coll__same_secret((const unsigned char *)"abc", (const unsigned char *)"abc", 3), "equal secrets");
    CHECK(!coll__same_secret((const unsigned char *)"abc", (const unsigned char *)"abd", 3), "secrets that differ");
}

/* ---- >>wires: two ends, and faults between them ---- */

typedef struct wire {
    coll__identity us[2];
    coll__handshake    ends[2];                   /* 0 dials, 1 accepts                                       */
    coll_status    status[2];
    int            taps[2];                       /* the other ends of their sockets                          */
    unsigned char *past[2];                       /* bytes received from each                                 */
    size_t         length[2];
    int            flip_from;                     /* one bit from this end is changed: -1: none                */
    size_t         flip_at;                       /* which                                                    */
    bool           is_cut;                        /* nothing is forwarded                                     */
} wire;

enum { WIRE_ROOM = 4 << 20 };

static void identity(coll__identity *us, int rank, const char *key, int auth, const char *job)
{
    coll__tcp_settings s = { .config = { .rank = rank, .size = 4, .world = job }, .auth = auth };

    memset(us, 0, sizeof *us);
    snprintf(s.key, sizeof s.key, "%s", key);
    CHECK(coll__identify(us, &s), "no identity");
}

static void wire_call(wire *w, int to)
{
    const coll__hello hello = { .purpose = COLL__PURPOSE_DATA, .channel = 1, .to = to };

    for (int i = 0; i < 2; i++) {
        int fds[2];
        CHECK(!socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), "no sockets");
        w->taps[i] = fds[1];
        if (!w->past[i]) w->past[i] = support_need(malloc(WIRE_ROOM));
        w->length[i] = 0;
        if (i == 0) coll__handshake_call(&w->ends[0], &w->us[0], fds[0], hello, coll__never);
        else coll__handshake_answer(&w->ends[1], fds[0], coll__never);
        w->status[i] = COLL_PENDING;
    }
    w->flip_from = -1;
    w->is_cut = false;
}

static void wire_open(wire *w, int auth)
{
    memset(w, 0, sizeof *w);
    for (int i = 0; i < 2; i++) identity(&w->us[i], i + 1, KEY, auth, "job");
    wire_call(w, 2);
}

static void wire_hang_up(wire *w)
{
    for (int i = 0; i < 2; i++) {
        coll__pipe_close(&w->ends[i].pipe);
        close(w->taps[i]);
    }
}

static void wire_free(wire *w)
{
    for (int i = 0; i < 2; i++) {
        coll__tls_free(w->us[i].tls);
        free(w->past[i]);
    }
}

static void wire_close(wire *w)
{
    wire_hang_up(w);
    wire_free(w);
}

/* Forward the bytes that both ends have sent; false: there are none. */
static bool wire_pass(wire *w)
{
    bool any = false;

    for (int i = 0; i < 2; i++) {
        unsigned char *at = w->past[i] + w->length[i];
        const ssize_t n = recv(w->taps[i], at, WIRE_ROOM - w->length[i], MSG_DONTWAIT);
        if (n <= 0) continue;
        const size_t bit = w->flip_at, begin = 8 * w->length[i];
        if (w->flip_from == i && bit >= begin && bit < begin + 8 * (size_t)n)
            at[(bit - begin) / 8] ^= (unsigned char)(1 << bit % 8);
        w->length[i] += (size_t)n;
        any = true;
        if (!w->is_cut) (void)!send(w->taps[!i], at, (size_t)n, MSG_DONTWAIT | MSG_NOSIGNAL);
    }
    return any;
}

/* Until both have ended their handshake, or neither makes progress. */
static void wire_greet(wire *w)
{
    for (int rounds = 0; rounds < 100; rounds++) {
        for (int i = 0; i < 2; i++) {
            if (w->status[i] != COLL_PENDING) continue;
            w->status[i] = coll__handshake_advance(&w->ends[i], &w->us[i]);
            if (w->status[i] < 0 && i == 1) {     /* as the listener does                                     */
                unsigned char note[COLL__CONTROL_LENGTH];
                coll__control_write(note, COLL__CONTROL_REFUSE, w->status[i], -1, w->ends[i].why);
                coll__refusal_prove(&w->ends[i], &w->us[i], note);
                (void)!send(w->ends[i].pipe.fd, note, sizeof note, MSG_DONTWAIT | MSG_NOSIGNAL);
            }
        }
        if (!wire_pass(w) && rounds > 2) return;
    }
}

static bool wire_is_open(const wire *w) { return w->status[0] == COLL_OK && w->status[1] == COLL_OK; }

/* ---- >>greetings: handshakes ---- */

static void test_greetings_good(int auth)
{
    wire w;

    wire_open(&w, auth);
    wire_greet(&w);
    CHECK(wire_is_open(&w), "auth %d: %d \"%s\", %d \"%s\"", auth, (int)w.status[0], w.ends[0].why, (int)w.status[1],
          w.ends[1].why);
    CHECK(w.ends[1].hello.rank == 1 && w.ends[1].hello.channel == 1, "auth %d: the hello", auth);
    CHECK(auth || (w.length[0] == COLL__HELLO_LENGTH && w.length[1] == 0), "without a key there is one message of 128 bytes");
    const bool is_sealed = (auth & COLL__AUTH_KIND) == COLL__AUTH_TLS;
    CHECK(!is_sealed || memcmp(w.us[0].root, w.past[0], 16), "auth %d", auth);
    wire_close(&w);
}

/* Both ends get an error with its cause. */
static void expect_refusal(const char *name, wire *w, coll_status status, const char *caller, const char *called)
{
    wire_greet(w);
    const bool is_accepted = w->us[1].auth & COLL__AUTH_KIND;
    CHECK(w->status[0] == (is_accepted ? status : COLL_ERR_PEER) && w->ends[0].is_unauthenticated == !is_accepted
          && strstr(w->ends[0].why, caller), "%s: the caller has %d, \"%s\"", name, (int)w->status[0], w->ends[0].why);
    CHECK(w->status[1] == status && strstr(w->ends[1].why, called), "%s: the one called has %d, \"%s\"", name, (int)w->status[1],
          w->ends[1].why);
    wire_hang_up(w);
}

static void test_greetings_wrong(void)
{
    static const struct { const char *name; const char *key[2]; int auth[2]; const char *job[2]; int rank[2],
                          to; uint32_t epoch[2];
                          coll_status status; const char *caller, *called; } all[] = {
        { "another key", { KEY, OTHER_KEY }, { 1, 1 }, { "j", "j" }, { 1, 2 }, 2, { 0, 0 }, COLL_ERR_DENIED, "another one",
          "another one" },
        { "no key at the caller", { "", KEY }, { 4, 1 }, { "j", "j" }, { 1, 2 }, 2, { 0, 0 }, COLL_ERR_DENIED, "no key",
          "it has no key" },
        { "no key at the one called", { KEY, "" }, { 1, 0 }, { "j", "j" }, { 1, 2 }, 2, { 0, 0 }, COLL_ERR_DENIED, "none",
          "it has a key" },
        { "checks at one end", { KEY, KEY }, { 5, 1 }, { "j", "j" }, { 1, 2 }, 2, { 0, 0 }, COLL_ERR_DENIED, "key+check",
          "key+check" },
        { "another job", { KEY, KEY }, { 1, 1 }, { "i", "j" }, { 1, 2 }, 2, { 0, 0 }, COLL_ERR_PROTOCOL, "COLL_WORLD",
          "COLL_WORLD" },
        { "another rank", { KEY, KEY }, { 1, 1 }, { "j", "j" }, { 1, 2 }, 3, { 0, 0 }, COLL_ERR_PROTOCOL, "calls rank 3",
          "this is rank 2" },
        { "another epoch", { KEY, KEY }, { 1, 1 }, { "j", "j" }, { 1, 2 }, 2, { 1, 2 }, COLL_ERR_PROTOCOL, "shrunk", "shrunk" },
    };

    for (size_t n = 0; n < sizeof all / sizeof *all; n++) {
        wire w = { .flip_from = -1 };
        for (int i = 0; i < 2; i++) {
            identity(&w.us[i], all[n].rank[i], all[n].key[i], all[n].auth[i], all[n].job[i]);
            w.us[i].epoch = all[n].epoch[i];
        }
        wire_call(&w, all[n].to);
        if (all[n].auth[0] & COLL__AUTH_KIND) {
            expect_refusal(all[n].name, &w, all[n].status, all[n].caller, all[n].called);
        } else {                                  /* without a key the answer is the first bytes behind the hello */
            unsigned char note[COLL__CONTROL_LENGTH];
            coll__control control;
            wire_greet(&w);
            CHECK(w.status[0] == COLL_OK && w.status[1] == all[n].status && strstr(w.ends[1].why, all[n].called),
                  "%s: %d, %d \"%s\"",
                  all[n].name, (int)w.status[0], (int)w.status[1], w.ends[1].why);
            CHECK(coll__pipe_move(&w.ends[0].pipe, note, sizeof note, false) == sizeof note
                  && coll__control_read(note, 4, &control)
                  && control.what.status == all[n].status, "%s: no refusal behind the hello", all[n].name);
            wire_hang_up(&w);
        }
        wire_free(&w);
    }
}

/* A process that has recorded a whole handshake cannot replay it, reflect it, or redirect a dialling rank. */
static void test_greetings_again(void)
{
    unsigned char caller[COLL__HELLO_LENGTH + COLL__SHA_LENGTH], called[COLL__HELLO_LENGTH];
    wire w;

    wire_open(&w, COLL__AUTH_KEY);
    wire_greet(&w);
    CHECK(wire_is_open(&w) && w.length[0] == sizeof caller && w.length[1] == sizeof called, "%zu and %zu bytes", w.length[0],
          w.length[1]);
    memcpy(caller, w.past[0], sizeof caller);
    memcpy(called, w.past[1], sizeof called);
    wire_hang_up(&w);

    wire_call(&w, 2);                             /* the dialling rank's messages to a new handshake          */
    w.status[0] = COLL_OK;
    (void)!write(w.taps[1], caller, sizeof caller);
    wire_greet(&w);
    CHECK(w.status[1] == COLL_ERR_DENIED, "replay: the one called has %d, \"%s\"", (int)w.status[1], w.ends[1].why);
    wire_hang_up(&w);

    wire_call(&w, 2);                             /* the answer to a new handshake                            */
    w.status[1] = COLL_OK;
    w.is_cut = true;
    wire_greet(&w);
    (void)!write(w.taps[0], called, sizeof called);
    wire_greet(&w);
    CHECK(w.status[0] == COLL_ERR_DENIED, "replay: the caller has %d, \"%s\"", (int)w.status[0], w.ends[0].why);
    wire_hang_up(&w);

    wire_call(&w, 2);                             /* the answer's own proof, reflected as the dialling rank's */
    w.is_cut = true;
    w.status[0] = COLL_OK;
    (void)!write(w.taps[1], caller, COLL__HELLO_LENGTH);
    wire_greet(&w);
    CHECK(w.status[1] == COLL_PENDING && w.length[1] == COLL__HELLO_LENGTH, "reflection: no answer");
    (void)!write(w.taps[1], w.past[1] + COLL__HELLO_PROOF, COLL__SHA_LENGTH);
    wire_greet(&w);
    CHECK(w.status[1] == COLL_ERR_DENIED, "reflection: the one called has %d", (int)w.status[1]);
    wire_hang_up(&w);

    wire_call(&w, 2);                             /* a hello, reflected as the answer                         */
    w.is_cut = true;
    w.status[1] = COLL_OK;
    wire_greet(&w);
    (void)!write(w.taps[0], w.past[0], COLL__HELLO_LENGTH);
    wire_greet(&w);
    CHECK(w.status[0] < 0, "reflection: the caller has %d", (int)w.status[0]);
    wire_hang_up(&w);

    identity(&w.us[1], 3, KEY, COLL__AUTH_KEY, "job");        /* rank 3 answers the connection to rank 2 */
    for (int hides = 0; hides < 2; hides++) {
        wire_call(&w, 2);
        w.is_cut = true;
        (void)coll__handshake_advance(&w.ends[0], &w.us[0]);
        (void)wire_pass(&w);
        w.past[0][offsetof(coll__hello, to)] = 3;
        (void)!write(w.taps[1], w.past[0], COLL__HELLO_LENGTH);
        (void)coll__handshake_advance(&w.ends[1], &w.us[1]);
        (void)wire_pass(&w);
        CHECK(w.length[1] == COLL__HELLO_LENGTH, "redirection: rank 3 does not answer");
        if (hides) w.past[1][offsetof(coll__hello, rank)] = 2;
        (void)!write(w.taps[0], w.past[1], COLL__HELLO_LENGTH);
        w.status[0] = coll__handshake_advance(&w.ends[0], &w.us[0]);
        CHECK(w.status[0] == (hides ? COLL_ERR_DENIED : COLL_ERR_PEER), "redirection: %d \"%s\"", (int)w.status[0],
              w.ends[0].why);
        wire_hang_up(&w);
    }
    wire_free(&w);
}

/* Each bit of the handshake in turn is changed: never do both ends accept it. */
static void test_greetings_bits(int auth, size_t step)
{
    size_t bits[2];
    wire w;

    wire_open(&w, auth);
    wire_greet(&w);
    for (int i = 0; i < 2; i++) bits[i] = 8 * w.length[i];
    wire_hang_up(&w);
    for (int from = 0; from < 2; from++)
        for (size_t bit = 0; bit < bits[from]; bit += bit < 8 * (COLL__HELLO_LENGTH + COLL__SHA_LENGTH) ? 1 : step) {
            wire_call(&w, 2);
            w.flip_from = from;
            w.flip_at = bit;
            wire_greet(&w);
            /* TLS does not authenticate one field, so it changes nothing: the legacy version before a record */
            const size_t record = bit / 8 - (from ? COLL__HELLO_LENGTH : COLL__HELLO_LENGTH + COLL__SHA_LENGTH);
            CHECK(!wire_is_open(&w) || (auth == TLS && record == 2), "auth %d: bit %zu from %s is not looked at", auth, bit,
                  from ? "the one called" : "the caller");
            wire_hang_up(&w);
        }
    wire_free(&w);
}

/* A refusal with any bit changed, or that answers another hello, is not accepted. */
static void test_greetings_refusals(void)
{
    unsigned char note[COLL__CONTROL_LENGTH];
    wire w = { .flip_from = -1 };

    identity(&w.us[0], 1, KEY, COLL__AUTH_KEY, "i");
    identity(&w.us[1], 2, KEY, COLL__AUTH_KEY, "j");
    for (size_t bit = 0; bit <= 8 * COLL__CONTROL_LENGTH; bit++) {
        wire_call(&w, 2);
        w.flip_from = 1;
        w.flip_at = bit;
        wire_greet(&w);
        const bool is_whole = bit == 8 * COLL__CONTROL_LENGTH, is_note = bit >= 32;   /* before: no refusal at all */
        CHECK(w.length[1] == sizeof note && (is_whole ? w.status[0] == COLL_ERR_PROTOCOL : !is_note || w.status[0]
                                             == COLL_ERR_PEER) && w.status[0] != COLL_OK,
              "refusal, bit %zu: %d \"%s\"", bit, (int)w.status[0], w.ends[0].why);
        CHECK(!strcmp(w.ends[0].why, "it belongs to another job (COLL_WORLD differs)") == is_whole, "refusal, bit %zu: \"%s\"",
              bit, w.ends[0].why);
        memcpy(note, w.past[1], sizeof note);
        wire_hang_up(&w);
    }
    wire_call(&w, 2);                             /* the last one, whole, in answer to the next hello             */
    w.is_cut = true;
    w.status[1] = COLL_OK;
    wire_greet(&w);
    (void)!write(w.taps[0], note, sizeof note);
    wire_greet(&w);
    CHECK(w.status[0] == COLL_ERR_PEER && w.ends[0].is_unauthenticated, "an old refusal: %d \"%s\"", (int)w.status[0],
          w.ends[0].why);
    wire_close(&w);
}

static void test_greetings(void)
{
    static const int auths[] = { 0, CHECKED, BY_KEY, BY_KEY | CHECKED, TLS };

    for (size_t i = 0; i < sizeof auths / sizeof *auths; i++)
        if (auths[i] != TLS || HAS_TLS) test_greetings_good(auths[i]);
    test_greetings_wrong();
    test_greetings_again();
    test_greetings_refusals();
    test_greetings_bits(BY_KEY, 1);
    if (HAS_TLS) test_greetings_bits(TLS, 61);
}

/* ---- >>pipes: all bytes arrive, in pieces of any length; or the end, never other bytes ---- */

/* Send `length` bytes from end 0 to end 1.  Returns how many arrived right; *error is the reason of the end. */
static size_t pipe_carry(wire *w, const unsigned char *bytes, size_t length, uint64_t *random, int *error)
{
    unsigned char *got = support_need(malloc(length));
    size_t sent = 0, received = 0;
    int idle = 0;

    *error = 0;
    while (received < length && idle < 4 && !*error) {
        const size_t cut = (length - sent) * (support_random(random) % 100) / 100;
        struct iovec out[2] = { { (void *)(uintptr_t)(bytes + sent), cut },
                                { (void *)(uintptr_t)(bytes + sent + cut), length - sent - cut } };
        struct iovec in[2] = { { got + received, coll__least(1 + support_random(random) % 40000, length - received) } };
        in[1] = (struct iovec){ got + received + in[0].iov_len, (length - received - in[0].iov_len) / 2 };
        struct msghdr m = { .msg_iov = out, .msg_iovlen = 2 };
        const ssize_t n = sent < length ? coll__pipe_send(&w->ends[0].pipe, &m) : 0;
        if (n > 0) sent += (size_t)n;
        const bool has_passed = wire_pass(w);
        m = (struct msghdr){ .msg_iov = in, .msg_iovlen = in[1].iov_len ? 2 : 1 };
        const short await = coll__pipe_await(&w->ends[1].pipe, POLLIN);
        const ssize_t k = coll__pipe_recv(&w->ends[1].pipe, &m);
        CHECK(await != 0 || k != -1 || errno != EAGAIN, "a pipe promises bytes and has none");
        if (k < 0 && errno != EAGAIN) *error = errno;
        if (k > 0) received += (size_t)k;
        idle = n > 0 || has_passed || k > 0 ? 0 : idle + 1;
    }
    const bool is_same = !memcmp(bytes, got, received);
    free(got);
    return is_same ? received : SIZE_MAX;
}

static void test_pipes(int auth)
{
    static const size_t lengths[] = { 1, 2, 31, 32, 33, 4096, 16384, 16385, 65535, 65536, 65537, 200000, 1000000 };
    unsigned char *bytes = support_need(malloc(1000000));
    uint64_t random = seed;
    int error, found = 0;
    wire w;

    for (size_t i = 0; i < 1000000; i++) bytes[i] = (unsigned char)support_random(&random);
    wire_open(&w, auth);
    wire_greet(&w);
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        const size_t got = pipe_carry(&w, bytes, lengths[i], &random, &error);
        CHECK(got == lengths[i], "auth %d: %zu of %zu bytes come through, error %d", auth, got, lengths[i], error);
    }
    bool is_clear = false;
    for (size_t at = 0; at + 32 <= w.length[0]; at++) is_clear = is_clear || !memcmp(w.past[0] + at, bytes, 32);
    CHECK(is_clear == ((auth & COLL__AUTH_KIND) != TLS), "auth %d: the bytes are %s to be read on the wire", auth, is_clear
          ? "there" : "not there");
    shutdown(w.taps[1], SHUT_WR);
    errno = 0;
    struct iovec piece = { bytes, 10 };
    struct msghdr m = { .msg_iov = &piece, .msg_iovlen = 1 };
    CHECK(coll__pipe_recv(&w.ends[1].pipe, &m) == 0, "auth %d: the end is not seen: errno %d", auth, errno);
    wire_hang_up(&w);
    for (int n = 0; n < 200; n++) {               /* one bit after the handshake                              */
        const size_t length = 1 + support_random(&random) % 100000;
        wire_call(&w, 2);
        wire_greet(&w);
        w.flip_from = 0;
        w.flip_at = 8 * w.length[0] + support_random(&random) % (8 * length + 8 * COLL__RECORD_HEAD);
        const size_t got = pipe_carry(&w, bytes, length, &random, &error);
        CHECK(got < length, "auth %d: bit %zu of %zu bytes was changed, and %s", auth, w.flip_at, length,
              got == SIZE_MAX ? "other bytes arrived" : "all arrived");
        found += error == EBADMSG;
        /* the length of a TLS record has no checksum: it may take more bytes to detect the change */
        CHECK(error == EBADMSG || ((auth & COLL__AUTH_KIND) == TLS && error == 0), "auth %d: bit %zu: error %d", auth,
              w.flip_at, error);
        wire_hang_up(&w);
    }
    CHECK(found > 190, "auth %d: only %d of 200 changes are named", auth, found);
    wire_free(&w);
    free(bytes);
}

/* ---- >>all of it ---- */

int main(int argc, char **argv)
{
    const char *parts = argc > 1 ? argv[1] : NULL;

    setvbuf(stdout, NULL, _IOLBF, 0);
    seed = support_seed();
    printf("COLL_TEST_SEED=%llu, %s\n", (unsigned long long)seed, HAS_TLS ? "with TLS" : "without TLS: not compiled in");
    support_limit(120, NULL);
    if (support_listed(parts, "sums")) test_sums();
    if (support_listed(parts, "greetings")) test_greetings();
    if (support_listed(parts, "pipes")) {
        test_pipes(CHECKED);
        test_pipes(BY_KEY | CHECKED);
        if (HAS_TLS) test_pipes(TLS);
    }
    return CHECK_DONE();
}
