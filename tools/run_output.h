/* run_output.h - part of coll-run.c: what ranks write, on its way to our own outputs.
 *
 * A stream is one output of one rank: it is read when poll says so, and holds back a line that is
 * not finished yet.  A sink is one of our outputs: lines wait in it until its reader takes them.
 * Nothing here blocks, and no byte is dropped while there is a reader: a full sink is a reason not
 * to read the streams that lead to it, so that ranks come to wait instead.
 *
 * Knows nothing of jobs and processes.  Begins with the few basics that all of coll-run uses; the
 * system headers are included by coll-run.c.
 */
#ifndef RUN_OUTPUT_H
#define RUN_OUTPUT_H

#define RUN_PRINTF(text, first) __attribute__((format(printf, text, first)))

enum {
    LINE_LIMIT = 64 << 10,      /* bytes of an unfinished line that are held back            */
    SINK_LIMIT = 256 << 10,     /* bytes that wait for a slow reader before ranks have to    */
    PIPE_LIMIT = 4 << 20        /* no pipe holds more                                        */
};

/* Bytes that wait: data[head .. head + length). */
struct bytes {
    char *data;
    size_t head, length, capacity;
};

/* One of our own outputs. */
struct sink {
    int fd;
    int error;                      /* errno of the write that failed: bytes are dropped now */
    size_t piece;                   /* bytes a write takes without blocking; SIZE_MAX: any   */
    struct bytes waiting;
    const struct stream *middle;    /* whose line is unfinished at the end of the bytes, if any */
    int64_t moved_at_ms;            /* when the reader last took something                   */
};

/* One output of one rank. */
struct stream {
    int fd;                         /* -1: at its end                                        */
    struct sink *sink;
    char prefix[24];                /* "[3] ", before every line; "": bytes pass as they are */
    struct bytes held;              /* the line that is not finished yet                     */
};

/* ---- >>basics: time, memory, text ---- */

static int64_t now_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* For what leaves nothing to be done.  The keeper kills whatever already runs. */
static _Noreturn void die(const char *what)
{
    fprintf(stderr, "coll-run: %s: %s\n", what, strerror(errno));
    exit(EXIT_FAILURE);
}

static void *must(void *memory)
{
    if (!memory) {
        errno = ENOMEM;
        die("out of memory");
    }
    return memory;
}

/* The caller frees it. */
static RUN_PRINTF(1, 0) char *format_text(const char *format, va_list arguments)
{
    char *text;

    return must(vasprintf(&text, format, arguments) < 0 ? NULL : text);
}

static void append(struct bytes *bytes, const char *data, size_t length)
{
    if (length == 0) return;
    if (bytes->head > 0 && bytes->head + bytes->length + length > bytes->capacity) {
        memmove(bytes->data, bytes->data + bytes->head, bytes->length);
        bytes->head = 0;
    }
    if (bytes->head + bytes->length + length > bytes->capacity) {
        bytes->capacity = (bytes->length + length) * 2;
        bytes->data = must(realloc(bytes->data, bytes->capacity));
    }
    memcpy(bytes->data + bytes->head + bytes->length, data, length);
    bytes->length += length;
}

/* ---- >>sinks: what waits to be written to our own outputs ---- */

static void sink_put(struct sink *sink, const char *data, size_t length)
{
    if (!sink->error) append(&sink->waiting, data, length);
}

/* If a line is unfinished, end it here. */
static void sink_break_line(struct sink *sink)
{
    if (sink->middle) sink_put(sink, "\n", 1);
    sink->middle = NULL;
}

static bool sink_is_full(const struct sink *sink)
{
    return sink->waiting.length >= SINK_LIMIT;
}

/* Write what poll says can be written.  Where a write might block, one piece per poll. */
static void sink_flush(struct sink *sink)
{
    struct bytes *bytes = &sink->waiting;

    while (bytes->length > 0) {
        const size_t length = bytes->length < sink->piece ? bytes->length : sink->piece;
        const ssize_t done = write(sink->fd, bytes->data + bytes->head, length);

        if (done < 0 && errno == EINTR) continue;
        if (done < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) break;
        if (done < 0) {
            sink->error = errno;
            bytes->length = 0;
            break;
        }
        bytes->head += (size_t)done;
        bytes->length -= (size_t)done;
        sink->moved_at_ms = now_ms();
        if (sink->piece != SIZE_MAX) break;
    }
    if (bytes->length == 0) bytes->head = 0;
}

/* A write to a pipe or terminal may block, and with it the whole job.  O_NONBLOCK on our descriptor
 * would show in every process that shares it, the user's shell included, so a second way to the
 * same place is opened.  Where that is denied, poll promises room for PIPE_BUF bytes. */
static void sink_open(struct sink *sink, int fd)
{
    struct stat info;

    sink->fd = fd;
    sink->piece = SIZE_MAX;
    sink->moved_at_ms = now_ms();
    if (fstat(fd, &info) == 0 && (S_ISFIFO(info.st_mode) || S_ISSOCK(info.st_mode) || isatty(fd))) {
        char path[32];
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
        const int own = open(path, O_WRONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);
        if (own >= 0) sink->fd = own;
        else sink->piece = PIPE_BUF;
    }
}

/* Open sinks[0] for standard output, and return the one for standard error: the same one when both
 * lead to one place, so that their lines do not mix there either, else sinks[1]. */
static struct sink *open_sinks(struct sink sinks[2])
{
    struct stat out, err;
    const bool same = fstat(STDOUT_FILENO, &out) == 0 && fstat(STDERR_FILENO, &err) == 0 &&
                      out.st_dev == err.st_dev && out.st_ino == err.st_ino;

    sink_open(&sinks[0], STDOUT_FILENO);
    if (!same) sink_open(&sinks[1], STDERR_FILENO);
    return &sinks[same ? 0 : 1];
}

/* One line of our own. */
static RUN_PRINTF(2, 3) void say(struct sink *sink, const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    char *text = format_text(format, arguments);
    va_end(arguments);
    sink_break_line(sink);
    sink_put(sink, "coll-run: ", 10);
    sink_put(sink, text, strlen(text));
    sink_put(sink, "\n", 1);
    free(text);
}

/* ---- >>streams: what ranks write, line by line ---- */

/* Pass on the held bytes and `data` as one.  A piece that does not end its line may be followed by
 * others: then the line is broken there, and its rest starts with the prefix again. */
static void pass_on(struct stream *stream, const char *data, size_t length, bool ends_line)
{
    struct sink *sink = stream->sink;

    if (*stream->prefix && sink->middle != stream) {
        sink_break_line(sink);
        sink_put(sink, stream->prefix, strlen(stream->prefix));
    }
    sink_put(sink, stream->held.data, stream->held.length);
    sink_put(sink, data, length);
    stream->held.length = 0;
    sink->middle = ends_line ? NULL : stream;
}

static void pass_on_held(struct stream *stream)
{
    if (stream->held.length > 0) pass_on(stream, NULL, 0, false);
}

static void take(struct stream *stream, const char *data, size_t length)
{
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
    close(stream->fd);
    stream->fd = -1;
    pass_on_held(stream);
    if (*stream->prefix && stream->sink->middle == stream) sink_break_line(stream->sink);
}

/* Read once.  Returns false when there is nothing to be had now, or ever again. */
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

/* Take what is in the pipe, as long as there is room for it.  What comes after PIPE_LIMIT is new,
 * from someone who might never stop. */
static void drain_stream(struct stream *stream)
{
    for (int reads = 0; reads < PIPE_LIMIT / LINE_LIMIT; reads++) {
        if (stream->fd < 0 || sink_is_full(stream->sink) || !read_stream(stream)) return;
    }
}

#endif /* RUN_OUTPUT_H */
