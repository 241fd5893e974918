/* test_wire.c - the parsers of bytes that come from the network, on bytes of every kind.
 *
 * Whatever arrives, a parser either refuses it or gives numbers within their ranges and text that ends and can be printed.
 * With COLL_FUZZ this file is a target for libFuzzer instead:
 *
 *     clang -g -O1 -DCOLL_FUZZ -DCOLL_NO_URING -fsanitize=fuzzer,address,undefined tests/test_wire.c -o fuzz -pthread && ./fuzz
 */
#define COLL_IMPLEMENTATION
#include "../coll.h"

#include "check.h"

enum { SIZE = 5, ROUNDS = 300000 };

static unsigned char world[COLL__WORLD_LENGTH];

/* ---- >>what must hold of any input ---- */

static bool is_printable(const char *text, size_t room)
{
    for (size_t i = 0; i < room; i++) {
        if (!text[i]) return true;
        if (text[i] < 32 || text[i] == 127) return false;
    }
    return false;
}

static bool hello_is_sane(const unsigned char *bytes)
{
    coll__hello hello;
    const char *wrong = coll__hello_read(bytes, world, SIZE, &hello);

    return wrong || (hello.rank >= 0 && hello.rank < SIZE && hello.size == SIZE && hello.channel >= 0 && hello.channel < COLL_CHANNEL_COUNT
                     && hello.port >= 0 && hello.port < 65536 && (hello.purpose == COLL__PURPOSE_MEET || hello.purpose == COLL__PURPOSE_DATA));
}

static bool control_is_sane(const unsigned char *bytes)
{
    coll__control control;

    if (!coll__control_read(bytes, SIZE, &control)) return true;
    return control.what.rank >= -1 && control.what.rank < SIZE && control.what.status <= 0 && control.what.status >= COLL_ERR_FORKED
        && is_printable(control.what.text, sizeof control.what.text) && coll_status_text(control.what.status);
}

/* Heads reach people only as sentences. */
static bool head_is_sane(const unsigned char *bytes)
{
    char text[96];
    coll_failure failure = { COLL_OK, -1, "" };
    unsigned char ours[COLL_HEAD_LENGTH];
    const coll_call call = { .kind = COLL_ALLREDUCE, .type = COLL_F32, .wire = COLL_F32, .count = 7 };

    coll__head_describe(bytes, text, sizeof text);
    coll__head_of_call(ours, &call, 3);
    const coll_status status = coll__blame_mismatch(&failure, ours, 1, bytes, 2);
    return is_printable(text, sizeof text) && is_printable(failure.text, sizeof failure.text)
        && (status == COLL_ERR_MISMATCH || status == COLL_ERR_PROTOCOL);
}

static bool address_is_sane(const unsigned char *bytes, size_t length)
{
    char text[80], host[20];
    int port = -1;

    length = length < sizeof text ? length : sizeof text - 1;
    memcpy(text, bytes, length);
    text[length] = '\0';
    return !coll__address_split(text, host, sizeof host, &port) || (port >= 0 && port <= 65535 && strlen(host) < sizeof host);
}

/* `length` bytes, at least COLL__CONTROL_LENGTH. */
static bool all_is_sane(const unsigned char *bytes, size_t length)
{
    coll__place_of place;

    coll__place_read(bytes, &place);
    const coll__address a = coll__address_unpack(place.address, place.port);
    char text[COLL__ADDRESS_TEXT];
    return hello_is_sane(bytes) && control_is_sane(bytes) && head_is_sane(bytes) && address_is_sane(bytes, length)
        && is_printable(coll__address_text(&a, text, sizeof text), sizeof text) && place.port >= 0 && place.port < 65536;
}

#if defined(COLL_FUZZ)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    unsigned char bytes[2 * COLL__CONTROL_LENGTH] = { 0 };

    memcpy(bytes, data, size < sizeof bytes ? size : sizeof bytes);
    if (!all_is_sane(bytes, sizeof bytes)) __builtin_trap();
    return 0;
}

#else

/* ---- >>good bytes, and good bytes with one bit turned ---- */

static void write_hello(unsigned char *bytes, int rank)
{
    coll__hello hello = { .rank = rank, .size = SIZE, .purpose = COLL__PURPOSE_DATA, .channel = 1, .port = 4711 };

    memcpy(hello.world, world, sizeof world);
    memset(hello.host, 0xab, sizeof hello.host);
    coll__hello_write(bytes, &hello);
}

static void test_round_trips(void)
{
    unsigned char bytes[COLL__CONTROL_LENGTH] = { 0 };
    coll__hello hello;
    coll__control control;
    coll__place_of place = { .port = 65535 }, again;

    for (int rank = 0; rank < SIZE; rank++) {
        write_hello(bytes, rank);
        CHECK(!coll__hello_read(bytes, world, SIZE, &hello) && hello.rank == rank && hello.port == 4711 && hello.channel == 1,
              "hello of rank %d", rank);
    }
    CHECK(coll__hello_read(bytes, world, SIZE + 1, &hello) && strstr(coll__hello_read(bytes, world, SIZE + 1, &hello), "ranks"), "size");
    for (int status = -11; status < 0; status++) {
        coll__control_write(bytes, COLL__CONTROL_FAIL, (coll_status)status, 3, "rank 3 is gone");
        CHECK(coll__control_read(bytes, SIZE, &control) && (int)control.what.status == status && control.what.rank == 3
              && !strcmp(control.what.text, "rank 3 is gone"), "status %d", status);
    }
    memset(place.address, 7, sizeof place.address);
    coll__place_write(bytes, &place);
    coll__place_read(bytes, &again);
    CHECK(again.port == 65535 && !memcmp(again.address, place.address, 16), "place");
}

static void test_single_bits(void)
{
    unsigned char good[COLL__CONTROL_LENGTH] = { 0 }, bad[COLL__CONTROL_LENGTH];
    int refused = 0, sane = 0;

    write_hello(good, 2);
    for (int bit = 0; bit < 8 * COLL__HELLO_LENGTH; bit++) {
        coll__hello hello;
        memcpy(bad, good, sizeof bad);
        bad[bit / 8] ^= (unsigned char)(1 << bit % 8);
        sane += hello_is_sane(bad);
        refused += coll__hello_read(bad, world, SIZE, &hello) != NULL;
    }
    CHECK(sane == 8 * COLL__HELLO_LENGTH, "%d of %d turned bits are harmless", sane, 8 * COLL__HELLO_LENGTH);
    /* free to differ: minor version, host, port, two bytes of padding, and the bits that make another good rank or purpose */
    CHECK(refused >= 8 * COLL__HELLO_LENGTH - 16 - 128 - 16 - 16 - 8, "only %d turned bits are refused", refused);
}

static void test_addresses(void)
{
    static const struct { const char *text, *host; int port; } rows[] = {
        { "127.0.0.1:5000", "127.0.0.1", 5000 }, { "[::1]:80", "::1", 80 }, { ":7", "", 7 }, { "a.b-c:0", "a.b-c", 0 },
        { "nonsense", NULL, 0 }, { "1:2:3", NULL, 0 }, { "host:", NULL, 0 }, { "host:65536", NULL, 0 }, { "host:-1", NULL, 0 },
        { "[::1]", NULL, 0 }, { "[::1:5", NULL, 0 }, { "", NULL, 0 }, { ":", NULL, 0 }, { "h:1x", NULL, 0 },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char host[64] = "";
        int port = -1;
        const bool good = coll__address_split(rows[i].text, host, sizeof host, &port);
        CHECK(good == (rows[i].host != NULL) && (!good || (!strcmp(host, rows[i].host) && port == rows[i].port)), "\"%s\" gives %d \"%s\" %d",
              rows[i].text, good, host, port);
    }
}

/* ---- >>random bytes, and good ones with random changes ---- */

static uint64_t state;

static uint64_t next_random(void)                 /* splitmix64 */
{
    uint64_t z = state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

static void test_random(void)
{
    unsigned char bytes[2 * COLL__CONTROL_LENGTH];
    long insane = 0;

    for (long i = 0; i < ROUNDS; i++) {
        for (size_t k = 0; k < sizeof bytes; k += 8) coll__put64(bytes + k, next_random());
        if (i % 3 == 1) write_hello(bytes, (int)(next_random() % SIZE));
        if (i % 3 == 2) coll__control_write(bytes, COLL__CONTROL_FAIL, COLL_ERR_PEER, 1, "text");
        for (uint64_t n = next_random() % 6; i % 3 && n > 0; n--) bytes[next_random() % 64] = (unsigned char)next_random();
        insane += !all_is_sane(bytes, sizeof bytes);
    }
    CHECK(insane == 0, "%ld of %d inputs, seed in the first line", insane, (int)ROUNDS);
}

int main(void)
{
    const char *seed = getenv("COLL_TEST_SEED");

    state = seed ? strtoull(seed, NULL, 10) : 1;
    printf("test_wire: COLL_TEST_SEED=%llu\n", (unsigned long long)state);
    coll__digest(world, "5 test");
    test_round_trips();
    test_single_bits();
    test_addresses();
    test_random();
    return CHECK_DONE();
}

#endif
