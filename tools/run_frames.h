/* run_frames.h - part of coll-run.c: what launchers of one job say to each other.
 *
 * A frame is a header of 12 bytes (length of the body, kind, number; most significant byte first)
 * and a body: raw bytes of an input or an output, else words "name=value", each ended by a zero
 * byte, which no argument and no variable can hold.  So nothing needs quoting.  Unknown words are
 * passed over.
 *
 *     hub -> other    settings, go       what to start, and, once all are known, where rank 0 is
 *                     signal             for all ranks there
 *                     input              of rank 0; an empty one is its end
 *                     verdict            how the job ends
 *     other -> hub    ready              what the hub needs to know of that host
 *                     output             of a rank: number = 2 * rank + (0: stdout, 1: stderr)
 *                     begun, ended       a rank
 *                     trouble            the program cannot be executed, or another sentence that ends the job
 *                     taken              so many bytes of input
 *     both ways       hello, challenge, proof, refused      see run_join.h
 *
 * The length is bounded before it is believed, and memory grows only with what has come.
 */
#ifndef RUN_FRAMES_H
#define RUN_FRAMES_H

enum { PROTOCOL = 1, HEADER_LENGTH = 12, FRAME_LIMIT = 8 << 20, GREETING_LIMIT = 1024, NOISE_LIMIT = 64 << 10 };

enum frame_kind {
    FRAME_SETTINGS = 1, FRAME_GO, FRAME_SIGNAL, FRAME_INPUT, FRAME_VERDICT,
    FRAME_READY, FRAME_OUTPUT, FRAME_BEGUN, FRAME_ENDED, FRAME_TROUBLE, FRAME_TAKEN,
    FRAME_HELLO, FRAME_CHALLENGE, FRAME_PROOF, FRAME_REFUSED
};

struct frame {
    int kind;
    uint32_t number;
    const char *body;
    size_t length;
};

/* The way to another launcher. */
struct link {
    int in;                         /* -1: there is none, or it has ended                    */
    struct sink out;
    struct bytes received;
    size_t most;                    /* bytes of a body that are accepted                     */
    bool awaits_mark;               /* what comes before the mark is noise of a remote shell */
};

/* What an agent says first, so that greetings of a login shell are told from frames. */
static const char frame_mark[] = "\001coll-run frames 1\n";

/* ---- >>sending ---- */

static void put_be32(char *at, uint32_t value)
{
    for (int i = 0; i < 4; i++) at[i] = (char)(unsigned char)(value >> (24 - 8 * i));
}

static uint32_t get_be32(const char *at)
{
    uint32_t value = 0;

    for (int i = 0; i < 4; i++) value = value << 8 | (unsigned char)at[i];
    return value;
}

static void put_frame(struct sink *sink, int kind, uint32_t number, const char *body, size_t length)
{
    char header[HEADER_LENGTH];

    put_be32(header, (uint32_t)length);
    put_be32(header + 4, (uint32_t)kind);
    put_be32(header + 8, number);
    sink_put(sink, header, sizeof header);
    sink_put(sink, body, length);
}

/* Append a word; the format makes "name=value". */
static RUN_PRINTF(2, 3) void put_word(struct bytes *body, const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    char *text = format_text(format, arguments);
    va_end(arguments);
    append(body, text, strlen(text) + 1);
    free(text);
}

/* Send the words as one frame, and as much of it at once as can be written. */
static void send_words(struct link *link, int kind, uint32_t number, struct bytes *body)
{
    put_frame(&link->out, kind, number, body->data ? body->data + body->head : "", body->length);
    body->length = body->head = 0;
    sink_flush(&link->out);
}

/* ---- >>receiving ---- */

/* The next word of a body, from *at on; NULL at the end.  One that is not ended by a zero byte is none. */
static const char *next_word(const struct frame *frame, size_t *at)
{
    const char *word = frame->body + *at;
    const char *end = *at < frame->length ? memchr(word, '\0', frame->length - *at) : NULL;

    if (!end) return NULL;
    *at += (size_t)(end - word) + 1;
    return word;
}

/* What follows "name=" in a word, or NULL if it is another one. */
static const char *value_of(const char *word, const char *name)
{
    const size_t length = strlen(name);

    return strncmp(word, name, length) == 0 && word[length] == '=' ? word + length + 1 : NULL;
}

/* The value of a word of that name, or "". */
static const char *find_word(const struct frame *frame, const char *name)
{
    size_t at = 0;

    for (const char *word; (word = next_word(frame, &at)) != NULL;) {
        const char *value = value_of(word, name);
        if (value) return value;
    }
    return "";
}

/* A word as a number from low to high, or -1. */
static long find_number(const struct frame *frame, const char *name, long low, long high)
{
    const char *text = find_word(frame, name);
    char *end;

    errno = 0;
    const long value = strtol(text, &end, 10);
    return end == text || *end || errno || value < low || value > high ? -1 : value;
}

/* Words of others on their way to a terminal, up to `most` bytes.  The caller owns it. */
static char *printable(const char *text, size_t most)
{
    char *copy = must(strndup(text, most));

    for (char *at = copy; *at; at++) {
        if ((unsigned char)*at < ' ' || *at == 127) *at = '?';
    }
    return copy;
}

/* Drop what comes before the mark.  Returns false while the mark is not there. */
static bool pass_mark(struct link *link)
{
    struct bytes *bytes = &link->received;
    const size_t length = sizeof frame_mark - 1;

    while (bytes->length > 0) {
        const char *at = bytes->data + bytes->head, *begin = memchr(at, frame_mark[0], bytes->length);
        const size_t noise = begin ? (size_t)(begin - at) : bytes->length;
        bytes->head += noise;
        bytes->length -= noise;
        if (bytes->length < length) return false;
        const bool is_mark = memcmp(begin, frame_mark, length) == 0;
        bytes->head += is_mark ? length : 1;
        bytes->length -= is_mark ? length : 1;
        if (is_mark) {
            link->awaits_mark = false;
            return true;
        }
    }
    return false;
}

/* Take what has come.  Returns false at the end, or after an error. */
static bool link_receive(struct link *link)
{
    char data[64 << 10];
    const ssize_t length = read(link->in, data, sizeof data);

    if (length > 0) append(&link->received, data, (size_t)length);
    return length > 0 || (length < 0 && (errno == EINTR || errno == EAGAIN || errno == EWOULDBLOCK));
}

/* The next frame that is there as a whole; its body is valid until link_receive.  Returns 0 if there is none yet, and -1 if
 * what comes is no frame. */
static int link_next(struct link *link, struct frame *frame)
{
    struct bytes *bytes = &link->received;

    if (link->awaits_mark && !pass_mark(link)) return 0;
    if (bytes->length < HEADER_LENGTH) return 0;
    const char *header = bytes->data + bytes->head;
    const size_t length = get_be32(header);
    if (length > link->most) return -1;
    if (bytes->length - HEADER_LENGTH < length) return 0;
    frame->kind = (int)(get_be32(header + 4) & 0xff);
    frame->number = get_be32(header + 8);
    frame->body = header + HEADER_LENGTH;
    frame->length = length;
    bytes->head += HEADER_LENGTH + length;
    bytes->length -= HEADER_LENGTH + length;
    return 1;
}

static void link_close(struct link *link)
{
    if (link->in >= 0) close(link->in);
    if (link->out.fd >= 0 && link->out.fd != link->in) close(link->out.fd);
    link->in = link->out.fd = -1;
    link->out.error = link->out.error ? link->out.error : EPIPE;
    link->out.waiting.length = 0;
}

/* A link over two descriptors, or one: they are set not to block. */
static void link_open(struct link *link, int in, int out, size_t most)
{
    *link = (struct link){ .in = in, .most = most, .out = { .fd = out, .piece = SIZE_MAX, .moved_at_ms = now_ms() } };
    fcntl(in, F_SETFL, fcntl(in, F_GETFL) | O_NONBLOCK);
    fcntl(out, F_SETFL, fcntl(out, F_GETFL) | O_NONBLOCK);
}

#endif /* RUN_FRAMES_H */
