/* fuzz_tcp.c - the parts of the TCP transport that bytes of unknown peers reach, with the bytes in whatever pieces: greetings
 * from either end, records with sums, streams of messages, and the text of a tuning file.  The parsers of single notes are in
 * test_wire.c (-DCOLL_FUZZ).
 *
 *     clang -g -O0 -fsanitize=fuzzer,address fuzz_tcp.c -o fuzz_tcp -pthread && ./fuzz_tcp corpus/tcp
 *     cc -DFUZZ_REPLAY fuzz_tcp.c -o replay -pthread && ./replay corpus/tcp/...          one input, without clang
 */
#define COLL_IMPLEMENTATION
#define COLL__ONE_TIER 1
#ifndef COLL_NO_URING
#define COLL_NO_URING
#endif
#include "../../coll.h"

enum { FUZZ_SIZE = 5, FUZZ_ROOM = 4096, FUZZ_RECEIVES = 6 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

typedef struct input { const unsigned char *at; size_t left; } input;

static void expect(bool condition, const char *what)
{
    if (condition) return;
    fprintf(stderr, "%s\n", what);
    __builtin_trap();
}

static void take(input *in, void *out, size_t length)
{
    const size_t there = coll__least(length, in->left);

    memset(out, 0, length);
    if (there) memcpy(out, in->at, there);
    in->at += there;
    in->left -= there;
}

static unsigned take8(input *in)
{
    unsigned char byte;
    take(in, &byte, 1);
    return byte;
}

static void identify(coll__identity *us, int rank, int auth)
{
    coll__tcp_settings s = { .config = { .rank = rank, .size = FUZZ_SIZE, .world = "fuzz" }, .auth = auth,
                             .key = "a key for the fuzzer" };

    memset(us, 0, sizeof *us);
    expect(coll__identify(us, &s), "no identity");
}

/* Some of the input to the other side of a socket; false: it has ended. */
static bool feed(input *in, int fd)
{
    const size_t query = 1 + take8(in), length = coll__least(query, in->left);

    if (length == 0) return false;
    const ssize_t n = send(fd, in->at, length, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n <= 0) return false;
    in->at += n;
    in->left -= (size_t)n;
    return true;
}

static void drain(int fd)
{
    unsigned char bytes[FUZZ_ROOM];
    while (recv(fd, bytes, sizeof bytes, MSG_DONTWAIT) > 0) { }
}

static bool is_text(const char *text, size_t room)
{
    for (size_t i = 0; i < room; i++) {
        if (!text[i]) return true;
        if (text[i] < 32 || text[i] > 126) return false;
    }
    return false;
}

/* The messages of a right peer, except the bits of the hello that the input changes. */
static void help(coll__handshake *g, const coll__identity *us, input *in, int fd, bool has_proof)
{
    unsigned char bytes[COLL__HELLO_LENGTH + COLL__SHA_LENGTH];
    coll__identity them;
    coll__handshake other;
    size_t length = COLL__HELLO_LENGTH;

    identify(&them, g->is_caller ? 2 : 1, us->auth);
    coll__hello hello = { .purpose = COLL__PURPOSE_DATA, .channel = 1, .to = us->rank };
    coll__hello_as(&hello, &them);
    take(in, hello.nonce, sizeof hello.nonce);
    coll__hello_write(bytes, &hello);
    other = *g;
    if (g->is_caller) {
        memcpy(other.answer, bytes, COLL__HELLO_LENGTH);
        if (has_proof) coll__handshake_sum(&other, us, 'S', bytes + COLL__HELLO_PROOF);
    }
    (void)!send(fd, bytes, length, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (g->is_caller || !has_proof || !(us->auth & COLL__AUTH_KIND)) return;
    expect(coll__handshake_advance(g, us) == COLL_PENDING, "a right hello is not answered");
    coll__handshake_sum(g, us, 'C', bytes);
    (void)!send(fd, bytes, COLL__SHA_LENGTH, MSG_DONTWAIT | MSG_NOSIGNAL);
}

/* Bytes behind a handshake go into a buffer, in pieces. */
static void read_on(coll__pipe *p, input *in, int fd)
{
    unsigned char bytes[2 * FUZZ_ROOM];
    bool is_over = false;

    do {
        struct iovec pieces[2] = { { bytes, 1 + take8(in) * 16 }, { bytes + FUZZ_ROOM + 1, 1 + take8(in) } };
        struct msghdr m = { .msg_iov = pieces, .msg_iovlen = 2 };
        const short wait = coll__pipe_await(p, POLLIN);
        const ssize_t n = coll__pipe_recv(p, &m);
        expect(n <= (ssize_t)(pieces[0].iov_len + pieces[1].iov_len), "more came out than there was room for");
        expect(wait || n >= 0 || errno != EAGAIN, "bytes were promised and are not there");
        is_over = n == 0 || (n < 0 && errno != EAGAIN);
    } while (!is_over && feed(in, fd));
}

static void any_greeting(input *in, bool is_caller)
{
    static const int auths[] = { 0, COLL__AUTH_CHECK, COLL__AUTH_KEY, COLL__AUTH_KEY | COLL__AUTH_CHECK };
    const unsigned how = take8(in);
    const int auth = auths[how & 3];
    const bool is_helped = how & 4, has_proof = is_helped && (how & 8);
    coll__identity us;
    coll__handshake g;
    coll_status status;
    int fds[2];

    identify(&us, is_caller ? 1 : 2, auth);
    expect(!socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), "no sockets");
    if (is_caller) coll__handshake_call(&g, &us, fds[0], (coll__hello){ .purpose = COLL__PURPOSE_DATA, .channel = 1, .to = 2 },
                                        coll__never);
    else coll__handshake_answer(&g, fds[0], coll__never);
    if (is_caller) (void)coll__handshake_advance(&g, &us);
    if (is_helped && g.step != COLL__HANDSHAKE_OVER) help(&g, &us, in, fds[1], has_proof);
    while ((status = coll__handshake_advance(&g, &us)) == COLL_PENDING && feed(in, fds[1])) drain(fds[1]);
    expect(g.length <= sizeof g.bytes, "a greeting has read more than it may");
    expect(status >= 0 || (is_text(g.why, sizeof g.why) && *g.why), "a greeting fails without a reason");
    if (status == COLL_OK) {
        expect(!(auth & COLL__AUTH_KIND) || has_proof, "a peer was accepted without a proof");
        expect(g.hello.rank >= 0 && g.hello.rank < FUZZ_SIZE && g.hello.channel >= 0 && g.hello.channel < COLL_CHANNEL_COUNT,
               "a hello out of range was taken");
        read_on(&g.pipe, in, fds[1]);
    }
    coll__pipe_close(&g.pipe);
    close(fds[1]);
}

/* A stream with some receives queued, of which a few take any head. */
static void any_stream(input *in)
{
    coll__stream s = { .pipe = { .fd = -1 }, .peer = 1, .state = COLL__STREAM_OPEN };
    coll_xfer all[FUZZ_RECEIVES];
    unsigned char *buffers[FUZZ_RECEIVES];
    int fds[2], error = -1;
    bool is_fed = true;

    expect(!socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), "no sockets");
    s.pipe.fd = fds[0];
    s.in.end = &s.in.first;
    s.out.end = &s.out.first;
    const bool is_checked = take8(in) & 1;
    expect(!is_checked || coll__pipe_check(NULL, &s.pipe), "no memory");
    for (int i = 0; i < FUZZ_RECEIVES; i++) {
        const unsigned how = take8(in);
        const size_t length = how & 63;
        buffers[i] = (unsigned char *)malloc(length ? length : 1);        /* exactly as long as it may be       */
        expect(buffers[i] != NULL, "no memory");
        all[i] = (coll_xfer){ .buffer = buffers[i], .length = length, .peer = 1, .any_head = how & 64, .status = COLL_PENDING };
        memset(all[i].head, how & 128 ? 0 : (int)(how & 63), sizeof all[i].head);
        coll__chain_put(&s.in, &all[i]);
    }
    while (is_fed && error == -1 && s.in.first && s.state == COLL__STREAM_OPEN) {
        is_fed = feed(in, fds[1]);
        (void)coll__stream_pull(&s, &error);
    }
    for (int i = 0; i < FUZZ_RECEIVES; i++) {
        expect(all[i].moved <= COLL_HEAD_LENGTH + all[i].length, "a receive has moved more than it has room for");
        expect(all[i].status != COLL_OK || all[i].moved == COLL_HEAD_LENGTH + all[i].length, "a receive is done too early");
        free(buffers[i]);
    }
    coll__pipe_close(&s.pipe);
    close(fds[1]);
}

/* What is read and printed reads the same again. */
static void any_tuning(input *in)
{
    char text[512], printed[COLL__TUNING_ROOM], again[COLL__TUNING_ROOM];
    coll__numbers n = { .link = coll__link_default }, m = n;
    coll__wrong_word wrong;

    take(in, text, sizeof text - 1);
    text[sizeof text - 1] = '\0';
    if (!coll__numbers_read(&n, text, &wrong)) {
        expect(wrong.at >= text && wrong.at < text + sizeof text && wrong.length <= strlen(wrong.at),
               "the word that is wrong is not in the text");
        return;
    }
    coll__numbers_print(&n, printed, sizeof printed);
    expect(coll__numbers_read(&m, printed, &wrong), "what was printed cannot be read");
    coll__numbers_print(&m, again, sizeof again);
    expect(strlen(printed) < sizeof printed && is_text(printed, sizeof printed), "the text is not printable");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    input in = { data, size };

    switch (take8(&in) & 3) {
    case 0: any_greeting(&in, false); break;
    case 1: any_greeting(&in, true); break;
    case 2: any_stream(&in); break;
    default: any_tuning(&in); break;
    }
    return 0;
}

#ifdef FUZZ_REPLAY
int main(int argc, char **argv)
{
    static unsigned char bytes[1 << 20];

    for (int i = 1; i < argc; i++) {
        FILE *f = fopen(argv[i], "rb");
        if (!f) return perror(argv[i]), 1;
        const size_t length = fread(bytes, 1, sizeof bytes, f);
        fclose(f);
        (void)LLVMFuzzerTestOneInput(bytes, length);
    }
    printf("%d inputs\n", argc - 1);
    return 0;
}
#endif
