/* run_output.h - part of coll-run.c: outputs, and basics used by all of coll-run.
 *
 * A sink is one of our outputs, or the connection to another launcher; bytes wait in it until its reader takes them.  Nothing
 * here blocks, and no byte is dropped while there is a reader.  If a sink is full, the streams that lead to it are not read
 * (run_streams.h), so the ranks block instead.
 *
 * coll-run.c includes the system headers. */
#ifndef RUN_OUTPUT_H
#define RUN_OUTPUT_H

#define RUN_PRINTF(text, first) __attribute__((format(printf, text, first)))

enum { SINK_LIMIT = 256 << 10 };    /* waiting bytes before ranks block                      */

/* Waiting bytes: data[head .. head + length). */
struct bytes {
    char *data;
    size_t head, length, capacity;
};

/* One of our own outputs. */
struct sink {
    int fd;
    int error;                      /* errno of a failed write: bytes are now dropped        */
    bool is_terminal;
    size_t piece;                   /* bytes a write takes without blocking; SIZE_MAX: any   */
    struct bytes waiting;
    const struct stream *middle;    /* the stream whose line is unfinished at the end; NULL: none */
    int64_t moved_at_ms;            /* time of the last write                                */
    uint64_t pieces;                /* lines, and pieces of long ones, put by streams        */
};

/* ---- >>basics: time, memory, text ---- */

static int64_t now_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* For fatal errors.  The keeper kills all running processes. */
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

/* All of `length` bytes, to a file. */
static void write_all(int fd, const char *data, size_t length)
{
    while (length > 0) {
        const ssize_t done = write(fd, data, length);
        if (done < 0 && errno == EINTR) continue;
        if (done <= 0) return;
        data += done;
        length -= (size_t)done;
    }
}

/* ---- >>sinks: bytes waiting for our outputs ---- */

static void sink_put(struct sink *sink, const char *data, size_t length)
{
    if (!sink->error) append(&sink->waiting, data, length);
}

/* End an unfinished line. */
static void sink_break_line(struct sink *sink)
{
    if (sink->middle) sink_put(sink, "\n", 1);
    sink->middle = NULL;
}

static bool sink_is_full(const struct sink *sink)
{
    return sink->waiting.length >= SINK_LIMIT;
}

/* Write what is possible after poll.  If a write may block, write one piece per poll. */
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

/* A write to a pipe or terminal may block, and so stop the whole job.  O_NONBLOCK on our descriptor would affect all processes
 * that share it, such as the user's shell.  So the file is opened again.  If that is denied, poll guarantees PIPE_BUF bytes. */
static void sink_open(struct sink *sink, int fd)
{
    struct stat info;

    sink->fd = fd;
    sink->piece = SIZE_MAX;
    sink->moved_at_ms = now_ms();
    sink->is_terminal = isatty(fd);
    if (fstat(fd, &info) == 0 && (S_ISFIFO(info.st_mode) || S_ISSOCK(info.st_mode) || isatty(fd))) {
        char path[32];
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
        const int own = open(path, O_WRONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);
        if (own >= 0) sink->fd = own;
        else sink->piece = PIPE_BUF;
    }
}

/* Open sinks[0] for standard output, and return the sink for standard error.  If both are the same file, that is sinks[0], so
 * that lines do not mix; otherwise sinks[1]. */
static struct sink *open_sinks(struct sink sinks[2])
{
    struct stat out, err;
    const bool same = fstat(STDOUT_FILENO, &out) == 0 && fstat(STDERR_FILENO, &err) == 0 &&
                      out.st_dev == err.st_dev && out.st_ino == err.st_ino;

    sink_open(&sinks[0], STDOUT_FILENO);
    if (!same) sink_open(&sinks[1], STDERR_FILENO);
    return &sinks[same ? 0 : 1];
}

/* Write a line of coll-run itself. */
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

#endif /* RUN_OUTPUT_H */
