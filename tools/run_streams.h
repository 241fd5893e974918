/* run_streams.h - part of coll-run.c: output of ranks, line by line, to a sink.
 *
 * A stream is one output of one rank.  It is read after poll, and holds back an unfinished line.  If the rank is on another
 * host, the stream has no descriptor: its bytes arrive in frames.  A stream to another launcher is sent in frames unchanged,
 * and split into lines there.  Uses the sinks of run_output.h and the frames of run_frames.h. */
#ifndef RUN_STREAMS_H
#define RUN_STREAMS_H

enum {
    LINE_LIMIT = 64 << 10,      /* held-back bytes of an unfinished line                     */
    PIPE_LIMIT = 4 << 20,       /* largest capacity of a pipe                                */
    TAIL_LIMIT = 1000,          /* last bytes of a stream, for repetition                    */
    TAIL_LINES = 8              /* repeat them after so many later lines                     */
};

/* One output of one rank. */
struct stream {
    int fd;                         /* -1: closed, or remote                                 */
    struct sink *sink;
    char *prefix;                   /* "[3] ", before each line; "": bytes are unchanged     */
    int log;                        /* a file with a copy; 0: none                           */
    uint32_t framed;                /* not 0: number in frames to another launcher           */
    struct bytes held;              /* the unfinished line                                   */
    struct bytes tail;              /* the last TAIL_LIMIT bytes written,                    */
    uint64_t put_at;                /* and the sink's count of pieces then                   */
};

/* Keep the last bytes written. */
static void remember(struct stream *stream, const char *data, size_t length)
{
    struct bytes *tail = &stream->tail;

    if (length > TAIL_LIMIT) data += length - TAIL_LIMIT, length = TAIL_LIMIT;
    if (tail->length + length > TAIL_LIMIT) {
        const size_t drop = tail->length + length - TAIL_LIMIT;
        tail->head += drop;
        tail->length -= drop;
    }
    append(tail, data, length);
    if (stream->log > 0) write_all(stream->log, data, length);
}

/* ---- >>terminals: escape control characters ---- */

/* Length of the printable UTF-8 character, tab or newline at `at`; 0: none. */
static size_t plain_length(const unsigned char *at, size_t left)
{
    const unsigned char c = *at;
    const size_t length = c < 0x80 ? 1 : c >= 0xc2 && c < 0xe0 ? 2 : c >= 0xe0 && c < 0xf0 ? 3 : c >= 0xf0 && c < 0xf5 ? 4 : 0;

    if (length == 1) return c >= ' ' && c != 0x7f ? 1 : c == '\t' || c == '\n' ? 1 : 0;
    if (length == 0 || length > left) return 0;
    for (size_t i = 1; i < length; i++) {
        if ((at[i] & 0xc0) != 0x80) return 0;
    }
    return c == 0xc2 && at[1] < 0xa0 ? 0 : length;              /* U+0080 to U+009F are controls, too */
}

/* Length of the color sequence ESC [ numbers m at `at`; 0: none. */
static size_t colour_length(const char *at, size_t left)
{
    size_t i = 2;

    if (left < 3 || at[0] != '\033' || at[1] != '[') return 0;
    while (i < left && (isdigit((unsigned char)at[i]) || at[i] == ';' || at[i] == ':')) i++;
    return i < left && at[i] == 'm' ? i + 1 : 0;
}

/* Write text, tabs and colors to a terminal; a color ends with its line.  After a carriage return the prefix is repeated, for
 * the next text overwrites it.  Other control characters are made visible: ^[ is ESC. */
static void put_visible(struct sink *sink, const char *prefix, const char *data, size_t length)
{
    bool is_coloured = false;
    char text[8];

    while (length > 0) {
        const size_t colour = colour_length(data, length), plain = plain_length((const unsigned char *)data, length);
        const size_t span = colour ? colour : plain ? plain : 1;
        const unsigned char c = (unsigned char)*data;

        if (is_coloured && (c == '\n' || c == '\r')) {
            sink_put(sink, "\033[m", 3);
            is_coloured = false;
        }
        is_coloured = is_coloured || colour;
        if (colour || plain) {
            sink_put(sink, data, span);
        } else if (c == '\r') {
            sink_put(sink, data, 1);
            if (length > 1 && data[1] != '\n') sink_put(sink, prefix, strlen(prefix));
        } else {
            const int shown = snprintf(text, sizeof text, c < 0x80 ? "^%c" : "\\x%02x", c < 0x80 ? c ^ 0x40 : c);
            sink_put(sink, text, (size_t)shown);
        }
        data += span;
        length -= span;
    }
    if (is_coloured) sink_put(sink, "\033[m", 3);
}

/* Write the held bytes and `data` as one piece.  If the piece does not end its line, and other output follows, the line is
 * broken there.  Its rest starts with the prefix again. */
static void pass_on(struct stream *stream, const char *data, size_t length, bool ends_line)
{
    struct sink *sink = stream->sink;

    if (*stream->prefix && sink->middle != stream) {
        sink_break_line(sink);
        sink_put(sink, stream->prefix, strlen(stream->prefix));
    }
    append(&stream->held, data, length);
    if (*stream->prefix && sink->is_terminal) put_visible(sink, stream->prefix, stream->held.data, stream->held.length);
    else sink_put(sink, stream->held.data, stream->held.length);
    remember(stream, stream->held.data, stream->held.length);
    stream->put_at = ++sink->pieces;
    stream->held.length = 0;
    sink->middle = ends_line ? NULL : stream;
}

static void pass_on_held(struct stream *stream)
{
    if (stream->held.length > 0) pass_on(stream, NULL, 0, false);
}

static void take(struct stream *stream, const char *data, size_t length)
{
    if (stream->framed) {
        put_frame(stream->sink, FRAME_OUTPUT, stream->framed, data, length);
        return;
    }
    while (length > 0) {
        const size_t room = LINE_LIMIT - stream->held.length;
        const size_t span = length < room ? length : room;
        const char *newline = memchr(data, '\n', span);
        const size_t piece = newline ? (size_t)(newline - data) + 1 : span;

        if (newline || piece == room) pass_on(stream, data, piece, newline != NULL);
        else append(&stream->held, data, piece);
        data += piece;
        length -= piece;
    }
}

static void end_stream(struct stream *stream)
{
    if (stream->fd >= 0) close(stream->fd);
    stream->fd = -1;
    if (stream->framed) return;
    pass_on_held(stream);
    if (*stream->prefix && stream->sink->middle == stream) sink_break_line(stream->sink);
}

/* Read once.  Returns false if there is nothing now, or the stream has ended. */
static bool read_stream(struct stream *stream)
{
    char data[LINE_LIMIT];
    const ssize_t length = read(stream->fd, data, sizeof data);

    if (length > 0) {
        take(stream, data, (size_t)length);
        return true;
    }
    if (length < 0 && errno == EINTR) return true;
    if (length == 0 || (errno != EAGAIN && errno != EWOULDBLOCK)) end_stream(stream);
    return false;
}

/* Repeat the last lines of a stream if other output came after them. */
static void repeat_tail(const struct stream *stream, struct sink *to, const char *whose)
{
    const char *at = stream->tail.data + stream->tail.head, *end = at + stream->tail.length;

    if (stream->tail.length == 0 || stream->sink->pieces < stream->put_at + TAIL_LINES) return;
    const char *line = stream->tail.length < TAIL_LIMIT ? NULL : memchr(at, '\n', stream->tail.length);
    say(to, "the last that %s wrote:", whose);
    for (at = line && line + 1 < end ? line + 1 : at; at < end; at = line ? line + 1 : end) {
        line = memchr(at, '\n', (size_t)(end - at));
        sink_put(to, "    ", 4);
        if (to->is_terminal) put_visible(to, "    ", at, (size_t)((line ? line : end) - at));
        else sink_put(to, at, (size_t)((line ? line : end) - at));
        sink_put(to, "\n", 1);
    }
}

/* Read what is in the pipe, as long as the sink has space.  Bytes beyond PIPE_LIMIT are new, and might never end. */
static void drain_stream(struct stream *stream)
{
    for (int reads = 0; reads < PIPE_LIMIT / LINE_LIMIT; reads++) {
        if (stream->fd < 0 || sink_is_full(stream->sink) || !read_stream(stream)) return;
    }
}

#endif /* RUN_STREAMS_H */
