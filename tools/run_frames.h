/* run_frames.h - part of coll-run.c: messages between the launchers of a job.
 *
 * A frame is a header of 12 bytes (length of the body, kind, number; most significant byte first) and a body.  The body is raw
 * input or output, or words "name=value", each ended by a zero byte.  Arguments and variables contain no zero byte.  So
 * nothing is quoted.  Unknown words are ignored.  The main launcher decides how the job ends:
 *
 *     main -> other   settings, go       what to start; the address of rank 0, once all are known
 *                     signal             for all ranks there
 *                     input              of rank 0; an empty one is its end
 *                     result            how the job ends
 *                     start              --elastic: a process that joins, and where the job is
 *     other -> main   ready              properties of that host
 *                     output             of a rank: number = 2 * rank + (0: stdout, 1: stderr)
 *                     begun, ended       a rank
 *                     trouble            the program cannot be executed, or another error that ends the job
 *                     taken              bytes of input taken
 *                     joined             --elastic: a process that was started has joined the job
 *                     ports              --elastic: of the ranks there
 *     both ways       hello, challenge, proof, refused      see run_join.h
 *
 * The length is checked before use, and memory grows only with received data. */
#ifndef RUN_FRAMES_H
#define RUN_FRAMES_H

enum { PROTOCOL = 2, HEADER_LENGTH = 12, FRAME_LIMIT = 8 << 20, GREETING_LIMIT = 1024, NOISE_LIMIT = 64 << 10 };

enum frame_kind {
    FRAME_SETTINGS = 1, FRAME_GO, FRAME_SIGNAL, FRAME_INPUT, FRAME_RESULT,
    FRAME_READY, FRAME_OUTPUT, FRAME_BEGUN, FRAME_ENDED, FRAME_TROUBLE, FRAME_TAKEN,
    FRAME_HELLO, FRAME_CHALLENGE, FRAME_PROOF, FRAME_REFUSED,
    FRAME_START, FRAME_JOINED, FRAME_PORTS
};

struct frame {
    int kind;
    uint32_t number;
    const char *body;
    size_t length;
};

/* A connection to another launcher. */
struct link {
    int in;                         /* -1: none, or closed                                   */
    struct sink out;
    struct bytes received;
    size_t most;                    /* accepted bytes of a body                              */
    bool awaits_mark;               /* ignore all before the mark: output of a remote shell  */
};

/* Sent first by an agent, to separate output of a login shell from frames. */
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

/* Append a word; the format gives "name=value". */
static RUN_PRINTF(2, 3) void put_word(struct bytes *body, const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    char *text = format_text(format, arguments);
    va_end(arguments);
    append(body, text, strlen(text) + 1);
    free(text);
}

/* Send the words as one frame; writes as much as possible now. */
static void send_words(struct link *link, int kind, uint32_t number, struct bytes *body)
{
    put_frame(&link->out, kind, number, body->data ? body->data + body->head : "", body->length);
    body->length = body->head = 0;
    sink_flush(&link->out);
}

/* ---- >>receiving ---- */

/* The next word of a body, from *at on; NULL at the end.  The last word must end with a zero byte. */
static const char *next_word(const struct frame *frame, size_t *at)
{
    const char *word = frame->body + *at;
    const char *end = *at < frame->length ? memchr(word, '\0', frame->length - *at) : NULL;

    if (!end) return NULL;
    *at += (size_t)(end - word) + 1;
    return word;
}

/* The value of a word, or NULL if its name differs. */
static const char *value_of(const char *word, const char *name)
{
    const size_t length = strlen(name);

    return strncmp(word, name, length) == 0 && word[length] == '=' ? word + length + 1 : NULL;
}

/* The value of the word with that name, or "". */
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

/* Received text made safe for a terminal, at most `most` bytes.  The caller frees it. */
static char *printable(const char *text, size_t most)
{
    char *copy = must(strndup(text, most));

    for (char *at = copy; *at; at++) {
        if ((unsigned char)*at < ' ' || *at == 127) *at = '?';
    }
    return copy;
}

/* Drop everything before the mark.  Returns false while it has not arrived. */
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

/* Receive.  Returns false at the end of the stream, or after an error. */
static bool link_receive(struct link *link)
{
    char data[64 << 10];
    const ssize_t length = read(link->in, data, sizeof data);

    if (length > 0) append(&link->received, data, (size_t)length);
    return length > 0 || (length < 0 && (errno == EINTR || errno == EAGAIN || errno == EWOULDBLOCK));
}

/* The next complete frame; its body is valid until link_receive.  Returns 0 if it is incomplete, and -1 if it is invalid. */
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

/* Open a link over two descriptors, or one, which become non-blocking. */
static void link_open(struct link *link, int in, int out, size_t most)
{
    *link = (struct link){ .in = in, .most = most, .out = { .fd = out, .piece = SIZE_MAX, .moved_at_ms = now_ms() } };
    fcntl(in, F_SETFL, fcntl(in, F_GETFL) | O_NONBLOCK);
    fcntl(out, F_SETFL, fcntl(out, F_GETFL) | O_NONBLOCK);
}

#endif /* RUN_FRAMES_H */
