/* coll-run - start the ranks of a coll.h program on this machine, and leave none behind.
 *
 *     cc -O2 tools/coll-run.c -o coll-run
 *     ./coll-run -n 4 ./train --epochs 3           four ranks, output marked [0] to [3]
 *     ./coll-run -n 4 -t 60 ./train                ended after a minute, with exit status 124
 *     ./coll-run -n 1 --no-prefix ./train          output as it is
 *
 * Every rank finds in its environment COLL_RANK, COLL_SIZE, COLL_LOCAL_RANK, COLL_LOCAL_SIZE,
 * COLL_ADDR (where rank 0 serves the start), COLL_WORLD (a random name of the job) and
 * OMP_NUM_THREADS (cores per rank, unless already set).  Variables by which other launchers number
 * their processes are removed, for coll-run defines the world.
 *
 * The port.  coll-run binds a free port with SO_REUSEADDR and keeps it bound for as long as the job
 * lives, but never listens.  On Linux this hides the port from every automatic choice, whether by
 * bind to port 0 or by connect, while rank 0, whose listener has SO_REUSEADDR too, may bind and
 * listen on it: there is no moment at which it is free.
 *
 * No orphans.  All ranks are in one process group, led by a keeper: a child of coll-run that waits
 * for coll-run to end and then kills the group.  As the leader lives, the number of the group
 * cannot pass to strangers.  Besides, ranks ask the kernel to die with coll-run, and coll-run
 * adopts what ranks leave behind and ends it before it exits itself.
 *
 * Output.  Ranks write to pipes, one loop reads them and never blocks.  When the reader of our
 * output is slow, ranks come to wait as they would without coll-run; no byte is dropped.  Linux
 * only.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <arpa/inet.h>
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <limits.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define RUN_VERSION "0.1.0"
#define RUN_PRINTF(text, first) __attribute__((format(printf, text, first)))

enum {
    MAX_RANKS    = 4096,
    LINE_LIMIT   = 64 << 10,    /* bytes of an unfinished line that are held back            */
    SINK_LIMIT   = 256 << 10,   /* bytes that wait for a slow reader before ranks have to    */
    NOTICE_MS    = 3000,        /* after a failure: for the others to notice by themselves   */
    FORWARD_MS   = 1000,        /* after a forwarded signal: before SIGTERM follows          */
    TERM_MS      = 2000,        /* after SIGTERM: before SIGKILL                             */
    KILL_MS      = 5000,        /* after SIGKILL: before coll-run stops waiting for the kernel */
    LEFTOVER_MS  = 1000,        /* after the last rank: for others who hold the pipes open   */
    STALL_MS     = 1000,        /* an ended job gives up on a reader that takes nothing for this */
    QUIET_MS     = 100          /* raw output: unfinished lines are passed on after it       */
};

enum { EXIT_USAGE = 2, EXIT_TIMEOUT = 124, EXIT_CANNOT_EXECUTE = 126, EXIT_NOT_FOUND = 127 };

struct stream;

/* One of our own outputs.  Bytes wait in data[head .. head + length). */
struct sink {
    int fd;
    int error;                      /* errno of the write that failed: bytes are dropped now */
    const char *name;
    size_t piece;                   /* bytes a write takes without blocking; SIZE_MAX: any   */
    char *data;
    size_t head, length, capacity;
    const struct stream *middle;    /* whose line is unfinished at the end of the bytes, if any */
    int64_t moved_at_ms;            /* when the reader last took something                   */
};

/* One output of one rank. */
struct stream {
    int fd;                         /* -1: at its end                                        */
    int rank;
    struct sink *sink;
    char *held;                     /* the line that is not finished yet                     */
    size_t length, capacity;
};

struct rank {
    pid_t pid;                      /* 0: never started                                      */
    bool running, reported;
    int status;                     /* as waitpid gives it                                   */
    int64_t started_ms, ended_ms;
    struct stream out[2];
};

/* What to do next to ranks that still run once the job is to end. */
enum stage { STAGE_RUN, STAGE_TERM, STAGE_KILL, STAGE_ABANDON };

struct words {
    char **list;                    /* ends with NULL; owns its strings                      */
    size_t count, capacity;
};

struct job {
    int size;                       /* ranks                                                 */
    int64_t timeout_ms;             /* 0: none                                               */
    bool raw, quiet;
    char **program;
    struct words settings;          /* --env                                                 */
    struct words environment;

    pid_t launcher, keeper;         /* keeper 0: gone                                        */
    int lifeline;                   /* the keeper reads the other end: its end is ours       */
    int port_holder, port;
    int signals;                    /* signalfd                                              */
    int trouble, trouble_in;        /* errno of a child that cannot execute the program      */
    int null_fd;
    sigset_t handled, mask_before;
    struct sigaction pipe_before, child_before;
    struct rlimit files_before;

    struct rank *ranks;
    int alive;                      /* ranks that run                                        */
    struct sink sinks[2];
    struct sink *out, *err;         /* the same one if both lead to the same place           */
    struct pollfd *polled;
    struct stream **polled_stream;  /* of polled[i]; NULL: not a stream's                    */

    bool relay;                     /* our input is a terminal: see relay_input              */
    int input;                      /* to rank 0, -1: none                                   */
    char typed[4096];
    size_t typed_length;

    enum stage stage;
    int64_t timeout_at_ms, stage_at_ms; /* 0: not set                                        */
    int verdict;                    /* our exit status; -1: nothing has gone wrong so far    */
    int death;                      /* the signal that ended us, 0: none                     */
    bool hurried;                   /* do not wait for a reader that has stopped reading     */
    bool summary;                   /* the end of the other ranks is worth a line            */
};

/* ---- >>basics: time, memory, words ---- */

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

static _Noreturn RUN_PRINTF(1, 2) void usage_error(const char *format, ...)
{
    va_list arguments;

    fputs("coll-run: ", stderr);
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fputs(" (coll-run --help says more)\n", stderr);
    exit(EXIT_USAGE);
}

static void words_add(struct words *words, char *word)
{
    if (words->count + 1 >= words->capacity) {
        words->capacity = words->capacity ? words->capacity * 2 : 64;
        words->list = must(realloc(words->list, words->capacity * sizeof *words->list));
    }
    words->list[words->count++] = word;
    words->list[words->count] = NULL;
}

static void words_free(struct words *words)
{
    for (size_t i = 0; i < words->count; i++) free(words->list[i]);
    free(words->list);
}

/* The place of the variable that `setting` (NAME=VALUE) sets, or NULL. */
static char **find_variable(const struct words *words, const char *setting)
{
    const size_t length = strcspn(setting, "=") + 1;

    for (size_t i = 0; i < words->count; i++) {
        if (strncmp(words->list[i], setting, length) == 0) return &words->list[i];
    }
    return NULL;
}

static void set_variable(struct words *words, const char *setting)
{
    char **place = find_variable(words, setting);

    if (!place) {
        words_add(words, must(strdup(setting)));
    } else {
        free(*place);
        *place = must(strdup(setting));
    }
}

static RUN_PRINTF(2, 3) void set_variable_to(struct words *words, const char *format, ...)
{
    char setting[96];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(setting, sizeof setting, format, arguments);
    va_end(arguments);
    set_variable(words, setting);
}

/* ---- >>options ---- */

static const char help[] =
    "usage: coll-run -n RANKS [options] PROGRAM [argument ...]\n"
    "\n"
    "Start RANKS processes of PROGRAM on this machine as the ranks of one coll.h job.\n"
    "\n"
    "  -n RANKS             how many ranks, 1 to 4096\n"
    "  -t, --timeout SECS   end the job after so many seconds, with exit status 124\n"
    "      --env NAME=VALUE set a variable for all ranks; may be repeated\n"
    "      --no-prefix      pass output on as it is, without \"[rank] \" before each line\n"
    "  -q, --quiet          do not report which ranks failed, and how\n"
    "  -h, --help           print this text\n"
    "      --version        print the version\n"
    "\n"
    "Options end where PROGRAM begins.\n"
    "\n"
    "Output: every line of a rank comes out whole, after \"[rank] \".\n"
    "A line over 64 KiB comes in pieces.\n"
    "With --no-prefix, an unfinished line is passed on once all ranks have been silent for 0.1 s.\n"
    "The C library buffers stdout in blocks when it is a pipe, as it is here:\n"
    "what a program prints shows late, and is lost in a crash, unless it calls fflush(stdout)\n"
    "or setvbuf, or writes to stderr.\n"
    "Input: rank 0 reads coll-run's; the other ranks have none.\n"
    "\n"
    "Environment of a rank: COLL_RANK, COLL_SIZE, COLL_LOCAL_RANK, COLL_LOCAL_SIZE, COLL_ADDR,\n"
    "COLL_WORLD; OMP_NUM_THREADS = cores per rank unless it is set.  Variables by which torchrun,\n"
    "mpirun, Slurm and others number their processes are removed.\n"
    "\n"
    "Exit status: 0 if all ranks succeeded, else that of the rank that failed first (128 + the\n"
    "signal if one killed it).  The others then have 3 s to notice, get SIGTERM, and 2 s later\n"
    "SIGKILL.  124: timeout; 126: PROGRAM cannot be executed; 127: PROGRAM not found; 141: the\n"
    "reader of our output has closed it; 2: bad usage; 1: coll-run itself failed.\n";

static int parse_size(const char *text)
{
    char *end;
    errno = 0;
    const long value = strtol(text, &end, 10);

    if (!isdigit((unsigned char)text[0]) || *end || errno || value < 1 || value > MAX_RANKS) {
        usage_error("-n needs a whole number from 1 to %d, not '%s'", MAX_RANKS, text);
    }
    return (int)value;
}

static int64_t parse_seconds(const char *text)
{
    char *end;
    const double seconds = strtod(text, &end);

    if (end == text || *end || !(seconds >= 0.001 && seconds <= 1e9)) {
        usage_error("--timeout needs seconds, from 0.001 to 1e9, not '%s'", text);
    }
    return (int64_t)(seconds * 1000.0);
}

/* What coll-run itself sets may not be set by --env: a rank that lies about its number only hangs
 * the others. */
static const char *check_setting(const char *text)
{
    static const char *const own[] = {
        "COLL_RANK=", "COLL_SIZE=", "COLL_LOCAL_RANK=", "COLL_LOCAL_SIZE=", "COLL_ADDR=",
        "COLL_WORLD="
    };

    if (!strchr(text, '=') || text[0] == '=') usage_error("--env needs NAME=VALUE, not '%s'", text);
    for (size_t i = 0; i < sizeof own / sizeof *own; i++) {
        const int length = (int)strlen(own[i]);
        if (strncmp(text, own[i], (size_t)length) == 0) {
            usage_error("--env cannot set %.*s, which coll-run sets itself", length - 1, own[i]);
        }
    }
    return text;
}

static void parse_options(struct job *job, int argc, char **argv)
{
    enum { NO_PREFIX = 256, ENV, VERSION };
    static const struct option options[] = {
        { "timeout",   required_argument, NULL, 't' },
        { "env",       required_argument, NULL, ENV },
        { "no-prefix", no_argument,       NULL, NO_PREFIX },
        { "quiet",     no_argument,       NULL, 'q' },
        { "help",      no_argument,       NULL, 'h' },
        { "version",   no_argument,       NULL, VERSION },
        { NULL, 0, NULL, 0 }
    };

    opterr = 0;
    for (int option; (option = getopt_long(argc, argv, "+:n:t:qh", options, NULL)) != -1;) {
        switch (option) {
        case 'n': job->size = parse_size(optarg); break;
        case 't': job->timeout_ms = parse_seconds(optarg); break;
        case 'q': job->quiet = true; break;
        case NO_PREFIX: job->raw = true; break;
        case ENV: set_variable(&job->settings, check_setting(optarg)); break;
        case 'h': fputs(help, stdout); exit(EXIT_SUCCESS);
        case VERSION: puts("coll-run " RUN_VERSION); exit(EXIT_SUCCESS);
        case ':': usage_error("option '%s' needs a value", argv[optind - 1]);
        default:
            if (optopt > 0 && optopt < 256 && !strchr("ntqh", optopt)) {
                usage_error("there is no option '-%c'", optopt);
            }
            usage_error("there is no option '%s', or it takes no value", argv[optind - 1]);
        }
    }
    if (!job->size) usage_error("say with -n how many ranks to start");
    if (optind == argc) usage_error("say which program to start");
    job->program = argv + optind;
}

/* ---- >>environment ---- */

/* Variables by which launchers, this one included, tell a process who it is.  A trailing * stands
 * for any rest.  Under another launcher they describe the one process that is coll-run. */
static bool names_another_world(const char *variable)
{
    static const char *const names[] = {
        "COLL_RANK", "COLL_SIZE", "COLL_WORLD_SIZE", "COLL_LOCAL_RANK", "COLL_LOCAL_SIZE",
        "COLL_ADDR", "COLL_WORLD",
        "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK",
        "GROUP_WORLD_SIZE", "NODE_RANK", "ROLE_RANK", "ROLE_WORLD_SIZE", "MASTER_ADDR",
        "MASTER_PORT", "TORCHELASTIC_*",
        "OMPI_COMM_WORLD_*", "OMPI_UNIVERSE_SIZE", "MV2_COMM_WORLD_*", "MPI_LOCALRANKID",
        "MPI_LOCALNRANKS",
        "PMI_RANK", "PMI_SIZE", "PMI_FD", "PMI_PORT", "PMI_ID", "PMI_SPAWNED", "PMIX_RANK",
        "PMIX_NAMESPACE", "PMIX_ID", "PMIX_SERVER_*",
        "SLURM_PROCID", "SLURM_LOCALID", "SLURM_NTASKS", "SLURM_NPROCS",
        "SLURM_NTASKS_PER_NODE", "SLURM_TASKS_PER_NODE", "SLURM_STEP_*",
        "FLUX_TASK_RANK", "FLUX_TASK_LOCAL_ID", "FLUX_JOB_SIZE", "PALS_RANKID",
        "PALS_LOCAL_RANKID", "PALS_LOCAL_SIZE", "JSM_NAMESPACE_*", "MLX_RANK",
        "MLX_HOSTFILE"
    };

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const size_t length = strcspn(names[i], "*");
        if (strncmp(variable, names[i], length) != 0) continue;
        if (names[i][length] == '*' || variable[length] == '=') return true;
    }
    return false;
}

static int count_cores(void)
{
    cpu_set_t set;

    if (sched_getaffinity(0, sizeof set, &set) == 0) return CPU_COUNT(&set);
    const long online = sysconf(_SC_NPROCESSORS_ONLN);
    return online > 0 && online < INT_MAX ? (int)online : 1;
}

/* All that ranks share; start_rank adds the rank. */
static void build_environment(struct job *job)
{
    struct words *words = &job->environment;
    unsigned random[2];

    for (char **e = environ; *e; e++) {
        if (!names_another_world(*e)) words_add(words, must(strdup(*e)));
    }
    for (size_t i = 0; i < job->settings.count; i++) set_variable(words, job->settings.list[i]);

    if (getrandom(random, sizeof random, 0) != (ssize_t)sizeof random) die("no random numbers");
    set_variable_to(words, "COLL_WORLD=%08x%08x", random[0], random[1]);
    set_variable_to(words, "COLL_SIZE=%d", job->size);
    set_variable_to(words, "COLL_LOCAL_SIZE=%d", job->size);
    set_variable_to(words, "COLL_ADDR=127.0.0.1:%d", job->port);
    if (!find_variable(words, "OMP_NUM_THREADS=")) {
        const int threads = count_cores() / job->size;
        set_variable_to(words, "OMP_NUM_THREADS=%d", threads > 1 ? threads : 1);
    }
}

/* ---- >>sinks: what waits to be written to our own outputs ---- */

static void sink_put(struct sink *sink, const char *data, size_t length)
{
    if (length == 0 || sink->error) return;
    if (sink->head + sink->length + length > sink->capacity && sink->head > 0) {
        memmove(sink->data, sink->data + sink->head, sink->length);
        sink->head = 0;
    }
    if (sink->length + length > sink->capacity) {
        sink->capacity = (sink->length + length) * 2;
        sink->data = must(realloc(sink->data, sink->capacity));
    }
    memcpy(sink->data + sink->head + sink->length, data, length);
    sink->length += length;
}

static bool sink_is_full(const struct sink *sink)
{
    return sink->length >= SINK_LIMIT;
}

/* Write what poll says can be written.  Where a write might block, one piece per poll. */
static void sink_flush(struct sink *sink)
{
    while (sink->length > 0) {
        const size_t length = sink->length < sink->piece ? sink->length : sink->piece;
        const ssize_t done = write(sink->fd, sink->data + sink->head, length);

        if (done < 0 && errno == EINTR) continue;
        if (done < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) break;
        if (done < 0) {
            sink->error = errno;
            sink->length = 0;
            break;
        }
        sink->head += (size_t)done;
        sink->length -= (size_t)done;
        sink->moved_at_ms = now_ms();
        if (sink->piece != SIZE_MAX) break;
    }
    if (sink->length == 0) sink->head = 0;
}

/* A write to a pipe or terminal may block, and with it the whole job.  O_NONBLOCK on our descriptor
 * would show in every process that shares it, the user's shell included, so a second way to the
 * same place is opened.  Where that is denied, poll promises room for PIPE_BUF bytes. */
static void sink_open(struct sink *sink, int fd, const char *name)
{
    struct stat info;

    sink->fd = fd;
    sink->name = name;
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

/* When both outputs lead to one place they share one sink, so that their lines do not mix there
 * either. */
static void open_sinks(struct job *job)
{
    struct stat out, err;
    const bool same = fstat(STDOUT_FILENO, &out) == 0 && fstat(STDERR_FILENO, &err) == 0 &&
                      out.st_dev == err.st_dev && out.st_ino == err.st_ino;

    sink_open(&job->sinks[0], STDOUT_FILENO, "standard output");
    if (!same) sink_open(&job->sinks[1], STDERR_FILENO, "standard error");
    job->out = &job->sinks[0];
    job->err = &job->sinks[same ? 0 : 1];
}

/* One line of our own on standard error. */
static RUN_PRINTF(2, 3) void say(struct job *job, const char *format, ...)
{
    struct sink *sink = job->err;
    char *text = NULL;
    va_list arguments;

    va_start(arguments, format);
    const int length = vasprintf(&text, format, arguments);
    va_end(arguments);
    if (length < 0) must(NULL);

    if (sink->middle) sink_put(sink, "\n", 1);
    sink->middle = NULL;
    sink_put(sink, "coll-run: ", 10);
    sink_put(sink, text, (size_t)length);
    sink_put(sink, "\n", 1);
    free(text);
}

/* ---- >>streams: what ranks write, line by line ---- */

/* Streams in one row, for loops over all 2 * size of them. */
static struct stream *stream_of(const struct job *job, int at)
{
    return &job->ranks[at / 2].out[at % 2];
}

/* Pass on the held bytes and `data` as one.  A piece that does not end its line may be followed by
 * others: then the line is broken there, and its rest starts with the prefix again. */
static void pass_on(const struct job *job, struct stream *stream, const char *data, size_t length,
                    bool ends_line)
{
    struct sink *sink = stream->sink;

    if (!job->raw && sink->middle != stream) {
        char prefix[24];
        const int width = snprintf(NULL, 0, "%d", job->size - 1);
        const int bytes = snprintf(prefix, sizeof prefix, "[%*d] ", width, stream->rank);
        if (sink->middle) sink_put(sink, "\n", 1);
        sink_put(sink, prefix, (size_t)bytes);
    }
    sink_put(sink, stream->held, stream->length);
    sink_put(sink, data, length);
    stream->length = 0;
    sink->middle = ends_line ? NULL : stream;
}

static void hold(struct stream *stream, const char *data, size_t length)
{
    if (stream->length + length > stream->capacity) {
        stream->capacity = (stream->length + length) * 2;
        stream->held = must(realloc(stream->held, stream->capacity));
    }
    memcpy(stream->held + stream->length, data, length);
    stream->length += length;
}

static void take(const struct job *job, struct stream *stream, const char *data, size_t length)
{
    while (length > 0) {
        const size_t room = LINE_LIMIT - stream->length;
        const size_t span = length < room ? length : room;
        const char *newline = memchr(data, '\n', span);
        const size_t piece = newline ? (size_t)(newline - data) + 1 : span;

        if (newline || piece == room) pass_on(job, stream, data, piece, newline != NULL);
        else hold(stream, data, piece);
        data += piece;
        length -= piece;
    }
}

static void end_stream(const struct job *job, struct stream *stream)
{
    struct sink *sink = stream->sink;

    close(stream->fd);
    stream->fd = -1;
    if (stream->length > 0) pass_on(job, stream, NULL, 0, false);
    if (!job->raw && sink->middle == stream) {
        sink_put(sink, "\n", 1);
        sink->middle = NULL;
    }
    free(stream->held);
    stream->held = NULL;
    stream->capacity = 0;
}

/* Read once.  Returns false when there is nothing to be had now, or ever again. */
static bool read_stream(const struct job *job, struct stream *stream)
{
    char data[LINE_LIMIT];
    const ssize_t length = read(stream->fd, data, sizeof data);

    if (length > 0) {
        take(job, stream, data, (size_t)length);
        return true;
    }
    if (length < 0 && errno == EINTR) return true;
    if (length == 0 || (errno != EAGAIN && errno != EWOULDBLOCK)) end_stream(job, stream);
    return false;
}

/* Take what is in the pipe, as long as there is room for it.  No pipe holds more than 4 MiB: what
 * comes after that is new, from someone who might never stop. */
static void drain_stream(const struct job *job, struct stream *stream)
{
    for (int reads = 0; reads < (4 << 20) / LINE_LIMIT; reads++) {
        if (stream->fd < 0 || sink_is_full(stream->sink) || !read_stream(job, stream)) return;
    }
}

static void pass_on_unfinished(const struct job *job)
{
    for (int i = 0; i < 2 * job->size; i++) {
        struct stream *stream = stream_of(job, i);
        if (stream->length > 0) pass_on(job, stream, NULL, 0, false);
    }
}

/* ---- >>stopping ---- */

/* Signal the group, and ranks that have left it. */
static void signal_ranks(const struct job *job, int signal)
{
    for (int i = 0; i < job->size; i++) {
        const struct rank *rank = &job->ranks[i];
        if (!rank->running) continue;
        if (!job->keeper || getpgid(rank->pid) != job->keeper) kill(rank->pid, signal);
    }
    if (job->keeper) kill(-job->keeper, signal);
}

/* The job is to end: after `delay_ms` by SIGTERM, then by SIGKILL.  What is already under way is
 * never put off. */
static void begin_stop(struct job *job, int64_t delay_ms)
{
    const int64_t at = now_ms() + delay_ms;

    if (job->stage == STAGE_RUN) {
        job->stage = STAGE_TERM;
        job->stage_at_ms = at;
    } else if (job->stage == STAGE_TERM && at < job->stage_at_ms) {
        job->stage_at_ms = at;
    }
}

static void kill_now(struct job *job)
{
    job->stage = STAGE_KILL;
    job->stage_at_ms = now_ms();
}

static void next_stage(struct job *job)
{
    const int64_t now = now_ms();

    switch (job->stage) {
    case STAGE_TERM:
        signal_ranks(job, SIGTERM);
        signal_ranks(job, SIGCONT);                 /* a stopped process does not see the signal */
        job->stage = STAGE_KILL;
        job->stage_at_ms = now + TERM_MS;
        break;
    case STAGE_KILL:
        signal_ranks(job, SIGKILL);
        job->stage = STAGE_ABANDON;
        job->stage_at_ms = now + KILL_MS;
        break;
    case STAGE_ABANDON:
        for (int i = 0; i < job->size; i++) {
            struct rank *rank = &job->ranks[i];
            if (!rank->running) continue;
            say(job, "rank %d (pid %d) does not die of SIGKILL: left alone", i, (int)rank->pid);
            rank->running = false;
            rank->reported = true;
        }
        job->alive = 0;
        job->stage_at_ms = 0;
        break;
    case STAGE_RUN:
        break;
    }
}

/* ---- >>reports ---- */

static const char *signal_name(int signal)
{
    static const struct { int signal; const char *name; } names[] = {
        { SIGHUP, "SIGHUP" },     { SIGINT, "SIGINT" },     { SIGQUIT, "SIGQUIT" },
        { SIGILL, "SIGILL" },     { SIGTRAP, "SIGTRAP" },   { SIGABRT, "SIGABRT" },
        { SIGBUS, "SIGBUS" },     { SIGFPE, "SIGFPE" },     { SIGKILL, "SIGKILL" },
        { SIGSEGV, "SIGSEGV" },   { SIGPIPE, "SIGPIPE" },   { SIGALRM, "SIGALRM" },
        { SIGTERM, "SIGTERM" },   { SIGUSR1, "SIGUSR1" },   { SIGUSR2, "SIGUSR2" },
        { SIGXCPU, "SIGXCPU" },   { SIGXFSZ, "SIGXFSZ" },   { SIGSYS, "SIGSYS" }
    };

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (names[i].signal == signal) return names[i].name;
    }
    return "a signal";
}

/* "exited with status 5", "was killed by SIGSEGV (Segmentation fault)". */
static void describe(int status, bool plural, char *text, size_t length)
{
    if (WIFSIGNALED(status)) {
        const int signal = WTERMSIG(status);
        snprintf(text, length, "%s killed by %s (%s%s)", plural ? "were" : "was",
                 signal_name(signal), strsignal(signal), WCOREDUMP(status) ? ", core dumped" : "");
    } else {
        snprintf(text, length, "exited with status %d", WEXITSTATUS(status));
    }
}

static int exit_status(int status)
{
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

/* "rank 3" or "ranks 0-2,7": the ranks for which `chosen` holds.  The caller frees it. */
static char *list_ranks(const struct job *job, bool (*chosen)(const struct rank *, int), int status)
{
    char *text = NULL;
    size_t length = 0;
    int count = 0;
    const char *separator = "";
    FILE *out = must(open_memstream(&text, &length));

    for (int i = 0; i < job->size; i++) count += chosen(&job->ranks[i], status);
    fputs(count == 1 ? "rank " : "ranks ", out);
    for (int i = 0; i < job->size; i++) {
        if (!chosen(&job->ranks[i], status)) continue;
        int last = i;
        while (last + 1 < job->size && chosen(&job->ranks[last + 1], status)) last++;
        fprintf(out, "%s%d", separator, i);
        if (last > i) fprintf(out, "-%d", last);
        separator = ",";
        i = last;
    }
    if (fclose(out)) must(NULL);
    return text;
}

static bool is_running(const struct rank *rank, int status)
{
    (void)status;
    return rank->running;
}

static bool ended_so(const struct rank *rank, int status)
{
    return rank->pid && !rank->running && !rank->reported && rank->status == status;
}

static void report_first(struct job *job, int at)
{
    struct rank *rank = &job->ranks[at];
    const bool killed = WIFSIGNALED(rank->status) && WTERMSIG(rank->status) == SIGKILL;
    char how[128];

    job->verdict = exit_status(rank->status);
    job->summary = true;
    begin_stop(job, NOTICE_MS);
    if (job->quiet) return;

    /* Its last words belong before ours. */
    for (int i = 0; i < 2; i++) drain_stream(job, &rank->out[i]);
    describe(rank->status, false, how, sizeof how);
    rank->reported = true;
    say(job, "rank %d (pid %d) %s after %.1f s%s", at, (int)rank->pid, how,
        (double)(rank->ended_ms - rank->started_ms) / 1000.0,
        killed ? ", perhaps for lack of memory" : "");
}

/* One line for each way in which the other ranks failed. */
static void report_others(struct job *job)
{
    if (!job->summary || job->quiet) return;
    for (int i = 0; i < job->size; i++) {
        const int status = job->ranks[i].status;
        char how[128];
        if (status == 0 || !ended_so(&job->ranks[i], status)) continue;

        char *ranks = list_ranks(job, ended_so, status);
        const bool ours = WIFSIGNALED(status) &&
                          ((WTERMSIG(status) == SIGTERM && job->stage >= STAGE_KILL) ||
                           (WTERMSIG(status) == SIGKILL && job->stage >= STAGE_ABANDON));
        describe(status, strncmp(ranks, "ranks", 5) == 0, how, sizeof how);
        say(job, "%s %s%s", ranks, ours ? "went on and " : "", how);
        free(ranks);
        for (int k = job->size - 1; k >= i; k--) {
            if (ended_so(&job->ranks[k], status)) job->ranks[k].reported = true;
        }
    }
}

/* ---- >>events ---- */

/* A child could not execute the program: none can, so there is nothing to wait for. */
static void read_trouble(struct job *job)
{
    const char *program = job->program[0];
    int error;

    if (read(job->trouble, &error, sizeof error) != (ssize_t)sizeof error) return;
    if (job->verdict >= 0) return;
    const char *hint = "";
    if (error == ENOENT && access(program, F_OK) == 0) {
        hint = strchr(program, '/') ? " (the file is there, the interpreter it names is not)"
                                    : " in PATH (say ./ for the file in this directory)";
    }
    say(job, "cannot execute '%s': %s%s", program, strerror(error), hint);
    job->verdict = error == ENOENT || error == ENOTDIR ? EXIT_NOT_FOUND : EXIT_CANNOT_EXECUTE;
    job->summary = false;
    kill_now(job);
}

static int find_rank(const struct job *job, pid_t pid)
{
    for (int i = 0; i < job->size; i++) {
        if (job->ranks[i].running && job->ranks[i].pid == pid) return i;
    }
    return -1;
}

/* Several ranks may end between two looks, and the kernel does not say which was first.  A rank
 * that a signal killed is then taken for the cause: survivors notice a failure and exit, they do
 * not crash. */
static void reap(struct job *job)
{
    int first = -1, status;

    read_trouble(job);
    for (pid_t pid; (pid = waitpid(-1, &status, WNOHANG)) > 0;) {
        const int at = find_rank(job, pid);
        if (pid == job->keeper) job->keeper = 0;
        if (at < 0) continue;

        struct rank *rank = &job->ranks[at];
        rank->running = false;
        rank->status = status;
        rank->ended_ms = now_ms();
        job->alive--;
        if (status == 0) continue;
        const bool crashed = WIFSIGNALED(status);
        if (first < 0 || (crashed && !WIFSIGNALED(job->ranks[first].status))) first = at;
    }
    if (first >= 0 && job->verdict < 0) report_first(job, first);
}

/* Ranks get the signal first, to end as they would in a terminal; a second one means that it takes
 * too long. */
static void interrupt(struct job *job, int signal)
{
    if (job->death) {
        kill_now(job);
        return;
    }
    job->death = signal;
    job->verdict = 128 + signal;
    job->hurried = true;
    job->summary = false;
    signal_ranks(job, signal);
    signal_ranks(job, SIGCONT);
    begin_stop(job, FORWARD_MS);
}

static void read_signals(struct job *job)
{
    struct signalfd_siginfo info;
    bool children = false;

    while (read(job->signals, &info, sizeof info) == (ssize_t)sizeof info) {
        const int signal = (int)info.ssi_signo;
        switch (signal) {
        case SIGCHLD:
            children = true;
            break;
        case SIGCONT:                   /* wakes the loop: we may be in the foreground now */
            break;
        case SIGTSTP:                   /* Ctrl-Z reaches our group only, so hand it on */
            signal_ranks(job, SIGTSTP);
            raise(SIGSTOP);
            signal_ranks(job, SIGCONT);
            break;
        case SIGUSR1:
        case SIGUSR2:
            signal_ranks(job, signal);
            break;
        default:
            interrupt(job, signal);
        }
    }
    if (children) reap(job);
}

static void check_clock(struct job *job)
{
    const int64_t now = now_ms();

    if (job->timeout_at_ms && now >= job->timeout_at_ms) {
        job->timeout_at_ms = 0;
        job->hurried = true;
        if (job->alive > 0 && job->verdict < 0) {
            char *ranks = list_ranks(job, is_running, 0);
            if (!job->quiet) {
                const double seconds = (double)job->timeout_ms / 1000.0;
                say(job, "timeout: %s still ran after %g s", ranks, seconds);
            }
            free(ranks);
            job->verdict = EXIT_TIMEOUT;
            begin_stop(job, 0);
        }
    }
    if (job->stage_at_ms && now >= job->stage_at_ms) next_stage(job);
}

/* Nobody reads our output any more, or the disk is full: a job whose results are lost need not go
 * on. */
static void check_sinks(struct job *job)
{
    for (int i = 0; i < 2; i++) {
        struct sink *sink = &job->sinks[i];
        if (sink->error == 0 || job->verdict >= 0) continue;

        const bool closed = sink->error == EPIPE;
        job->verdict = closed ? 128 + SIGPIPE : EXIT_FAILURE;
        if (!job->quiet && sink != job->err) {
            say(job, "cannot write to %s: %s: the job is ended", sink->name,
                closed ? "its reader has closed it" : strerror(sink->error));
        }
        begin_stop(job, 0);
    }
}

/* Ranks are not in the terminal's foreground group, so a read by rank 0 itself would stop it.  When
 * our input is a terminal we read in its place, and only while we are in the foreground. */
static bool may_read_terminal(const struct job *job)
{
    return job->relay && job->input >= 0 && job->typed_length == 0 &&
           tcgetpgrp(STDIN_FILENO) == getpgrp();
}

static void close_input(struct job *job)
{
    if (job->input >= 0) close(job->input);
    job->input = -1;
    job->typed_length = 0;
}

static void relay_input(struct job *job, bool readable, bool writable)
{
    if (readable) {
        const ssize_t length = read(STDIN_FILENO, job->typed, sizeof job->typed);
        if (length > 0) job->typed_length = (size_t)length;
        else if (length == 0 || (errno != EINTR && errno != EAGAIN)) close_input(job);
    }
    if (writable && job->typed_length > 0) {
        const ssize_t done = write(job->input, job->typed, job->typed_length);
        if (done > 0) {
            job->typed_length -= (size_t)done;
            memmove(job->typed, job->typed + done, job->typed_length);
        } else if (errno != EINTR && errno != EAGAIN) {
            close_input(job);
        }
    }
}

/* ---- >>loop ---- */

static int open_streams(const struct job *job)
{
    int count = 0;

    for (int i = 0; i < 2 * job->size; i++) count += stream_of(job, i)->fd >= 0;
    return count;
}

static size_t watch(struct job *job, size_t at, int fd, short events, struct stream *stream)
{
    job->polled[at] = (struct pollfd){ .fd = fd, .events = events };
    job->polled_stream[at] = stream;
    return at + 1;
}

/* Milliseconds that poll may sleep: until the next thing that the clock decides. */
static int time_to_sleep(const struct job *job, int64_t until_ms, bool unfinished)
{
    const int64_t now = now_ms();
    int64_t at = now + 60000;

    if (until_ms && until_ms < at) at = until_ms;
    if (job->timeout_at_ms && job->timeout_at_ms < at) at = job->timeout_at_ms;
    if (job->stage_at_ms && job->stage_at_ms < at) at = job->stage_at_ms;
    if (unfinished && now + QUIET_MS < at) at = now + QUIET_MS;
    return at > now ? (int)(at - now) : 0;
}

/* Sleep until something happens, or `until_ms` (0: no such bound), and deal with it.  The first
 * five places polled are the signals, the two sinks, the terminal and the input of rank 0; poll
 * passes over a descriptor of -1. */
static void serve(struct job *job, int64_t until_ms)
{
    bool unfinished = false;
    size_t count = watch(job, 0, job->signals, POLLIN, NULL);

    for (int i = 0; i < 2; i++) {
        const struct sink *sink = &job->sinks[i];
        count = watch(job, count, sink->length > 0 ? sink->fd : -1, POLLOUT, NULL);
    }
    count = watch(job, count, may_read_terminal(job) ? STDIN_FILENO : -1, POLLIN, NULL);
    count = watch(job, count, job->typed_length > 0 ? job->input : -1, POLLOUT, NULL);
    const size_t first_stream = count;
    for (int i = 0; i < 2 * job->size; i++) {
        struct stream *stream = stream_of(job, i);
        unfinished = unfinished || (job->raw && stream->length > 0);
        if (stream->fd < 0 || sink_is_full(stream->sink)) continue;
        count = watch(job, count, stream->fd, POLLIN, stream);
    }

    const int ready = poll(job->polled, (nfds_t)count, time_to_sleep(job, until_ms, unfinished));
    if (ready < 0 && errno != EINTR) die("poll");
    if (ready == 0 && unfinished) pass_on_unfinished(job);
    if (ready > 0) {
        for (size_t i = 0; i < 2; i++) {
            if (job->polled[1 + i].revents) sink_flush(&job->sinks[i]);
        }
        relay_input(job, job->polled[3].revents != 0, job->polled[4].revents != 0);
        for (size_t i = first_stream; i < count; i++) {
            struct stream *stream = job->polled_stream[i];
            if (job->polled[i].revents && !sink_is_full(stream->sink)) read_stream(job, stream);
        }
        if (job->polled[0].revents) read_signals(job);
    }
    check_sinks(job);
    check_clock(job);
}

/* Write out all that is still in pipes and sinks.  All who could write are gone, so what a pipe
 * holds now is all there is: an empty one is at its end even if a stranger keeps it open.  A
 * hurried job waits for its reader until STALL_MS after `start_ms` or after the last byte taken. */
static void drain(struct job *job, int64_t start_ms)
{
    for (;;) {
        int64_t moved = start_ms;
        for (int i = 0; i < 2 * job->size; i++) {
            struct stream *stream = stream_of(job, i);
            drain_stream(job, stream);
            if (stream->fd >= 0 && !sink_is_full(stream->sink)) end_stream(job, stream);
        }
        if (open_streams(job) == 0 && job->out->length == 0 && job->err->length == 0) return;
        for (int i = 0; i < 2; i++) {
            if (job->sinks[i].moved_at_ms > moved) moved = job->sinks[i].moved_at_ms;
        }
        if (job->hurried && now_ms() >= moved + STALL_MS) return;
        serve(job, job->hurried ? moved + STALL_MS : 0);
    }
}

/* ---- >>leftovers: processes that ranks have started and not ended ---- */

/* Kill our children.  Whoever loses its parent among our descendants becomes one of them. */
static void kill_children(void)
{
    DIR *processes = opendir("/proc");

    if (!processes) return;
    for (struct dirent *entry; (entry = readdir(processes)) != NULL;) {
        char path[300], stat[512];
        int parent;
        if (!isdigit((unsigned char)entry->d_name[0])) continue;
        snprintf(path, sizeof path, "/proc/%s/stat", entry->d_name);
        const int fd = open(path, O_RDONLY | O_CLOEXEC);
        if (fd < 0) continue;
        const ssize_t length = read(fd, stat, sizeof stat - 1);
        close(fd);
        if (length <= 0) continue;
        stat[length] = '\0';
        const char *name_end = strrchr(stat, ')');      /* the name may hold anything, even ") " */
        if (name_end && sscanf(name_end + 1, " %*c %d", &parent) == 1 && parent == (int)getpid()) {
            kill((pid_t)strtol(entry->d_name, NULL, 10), SIGKILL);
        }
    }
    closedir(processes);
}

/* All ranks have ended: end whatever they have left, the keeper included. */
static void kill_leftovers(struct job *job)
{
    const int64_t give_up = now_ms() + KILL_MS;

    signal_ranks(job, SIGKILL);
    if (job->keeper) waitpid(job->keeper, NULL, 0);
    job->keeper = 0;
    for (;;) {
        pid_t pid;
        while ((pid = waitpid(-1, NULL, WNOHANG)) > 0) continue;
        if (pid < 0 || now_ms() > give_up) return;
        kill_children();
        poll(NULL, 0, 2);
    }
}

/* ---- >>starting ---- */

/* A missing 0, 1 or 2 would be given to the next thing we open, and ranks would write into that. */
static void fill_standard_files(void)
{
    int fd;

    do fd = open("/dev/null", O_RDWR); while (fd >= 0 && fd <= STDERR_FILENO);
    if (fd < 0) die("cannot open /dev/null");
    close(fd);
}

static void hold_port(struct job *job)
{
    struct sockaddr_in address = { .sin_family = AF_INET, .sin_addr = { htonl(INADDR_LOOPBACK) } };
    socklen_t length = sizeof address;
    const int yes = 1;

    job->port_holder = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (job->port_holder < 0 ||
        setsockopt(job->port_holder, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) ||
        bind(job->port_holder, (struct sockaddr *)&address, sizeof address) ||
        getsockname(job->port_holder, (struct sockaddr *)&address, &length)) {
        die("no free port on 127.0.0.1");
    }
    job->port = ntohs(address.sin_port);
}

/* Signals that we were told to ignore (nohup, a shell's background job) stay ignored, for us and
 * for the ranks. */
static void catch_signals(struct job *job)
{
    static const int caught[] = { SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGTSTP };
    const struct sigaction ignore = { .sa_handler = SIG_IGN }, usual = { .sa_handler = SIG_DFL };

    sigemptyset(&job->handled);
    sigaddset(&job->handled, SIGCHLD);
    sigaddset(&job->handled, SIGCONT);
    for (size_t i = 0; i < sizeof caught / sizeof *caught; i++) {
        struct sigaction now;
        sigaction(caught[i], NULL, &now);
        if (now.sa_handler != SIG_IGN) sigaddset(&job->handled, caught[i]);
    }
    sigprocmask(SIG_BLOCK, &job->handled, &job->mask_before);
    sigaction(SIGPIPE, &ignore, &job->pipe_before);
    sigaction(SIGCHLD, &usual, &job->child_before);
    job->signals = signalfd(-1, &job->handled, SFD_NONBLOCK | SFD_CLOEXEC);
    if (job->signals < 0) die("signalfd");
}

/* The keeper does nothing until all other ends of the lifeline are closed, that is, until coll-run
 * is no more. */
static void start_keeper(struct job *job)
{
    int lifeline[2];

    if (pipe2(lifeline, O_CLOEXEC)) die("pipe");
    job->keeper = fork();
    if (job->keeper < 0) die("fork");
    if (job->keeper == 0) {
        sigset_t all;
        char byte;
        sigfillset(&all);
        sigprocmask(SIG_SETMASK, &all, NULL);
        if (setpgid(0, 0)) _exit(EXIT_FAILURE);
        prctl(PR_SET_NAME, "coll-run keeper");
        close(lifeline[1]);
        while (read(lifeline[0], &byte, 1) < 0 && errno == EINTR) continue;
        kill(-getpid(), SIGKILL);
        _exit(EXIT_SUCCESS);
    }
    setpgid(job->keeper, job->keeper);
    close(lifeline[0]);
    job->lifeline = lifeline[1];
}

/* The child: turn into the rank.  Returns only if that fails, with errno. */
static void become_rank(struct job *job, int at, const int out[2], int input)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != job->launcher) _exit(EXIT_FAILURE);    /* it died before we asked */
    setpgid(0, job->keeper);

    if (at > 0) input = job->null_fd;
    if (input >= 0 && dup2(input, STDIN_FILENO) < 0) return;
    if (dup2(out[0], STDOUT_FILENO) < 0 || dup2(out[1], STDERR_FILENO) < 0) return;

    setrlimit(RLIMIT_NOFILE, &job->files_before);
    sigaction(SIGPIPE, &job->pipe_before, NULL);
    sigaction(SIGCHLD, &job->child_before, NULL);
    sigprocmask(SIG_SETMASK, &job->mask_before, NULL);
    environ = job->environment.list;
    execvp(job->program[0], job->program);
}

/* Open the pipes of a rank: our ends do not block, its ends do.  Returns false, with errno, if
 * there are none left. */
static bool open_pipes(struct job *job, int at, int theirs[2], int *input)
{
    struct rank *rank = &job->ranks[at];
    int ends[2];

    for (int i = 0; i < 2; i++) {
        if (pipe2(ends, O_CLOEXEC)) return false;
        theirs[i] = ends[1];
        fcntl(ends[0], F_SETFL, O_NONBLOCK);
        rank->out[i].fd = ends[0];
    }
    if (at == 0 && job->relay) {
        if (pipe2(ends, O_CLOEXEC)) return false;
        *input = ends[0];
        job->input = ends[1];
        fcntl(job->input, F_SETFL, O_NONBLOCK);
    }
    return true;
}

static bool start_rank(struct job *job, int at)
{
    struct rank *rank = &job->ranks[at];
    int theirs[2] = { -1, -1 }, input = -1;
    pid_t pid = -1;

    set_variable_to(&job->environment, "COLL_RANK=%d", at);
    set_variable_to(&job->environment, "COLL_LOCAL_RANK=%d", at);
    if (open_pipes(job, at, theirs, &input)) pid = fork();
    if (pid == 0) {
        become_rank(job, at, theirs, input);
        const int error = errno;
        const ssize_t written = write(job->trouble_in, &error, sizeof error);
        _exit(written > 0 ? EXIT_NOT_FOUND : EXIT_FAILURE);
    }

    const int error = errno;
    for (int i = 0; i < 2; i++) {
        if (theirs[i] >= 0) close(theirs[i]);
    }
    if (input >= 0) close(input);
    if (pid < 0) {
        say(job, "cannot start rank %d: %s%s", at, strerror(error),
            error == EMFILE ? " (ulimit -n says how many)" : "");
        job->verdict = EXIT_FAILURE;
        kill_now(job);
        return false;
    }
    if (job->keeper) setpgid(pid, job->keeper);     /* as the child does: whoever comes first */
    rank->pid = pid;
    rank->running = true;
    rank->started_ms = now_ms();
    job->alive++;
    return true;
}

static void start_ranks(struct job *job)
{
    job->timeout_at_ms = job->timeout_ms ? now_ms() + job->timeout_ms : 0;
    for (int i = 0; i < job->size && job->verdict < 0; i++) {
        if (start_rank(job, i)) read_trouble(job);
    }
}

static void prepare(struct job *job)
{
    const size_t places = 2 * (size_t)job->size + 8;
    int trouble[2];
    struct rlimit files;

    job->launcher = getpid();
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    getrlimit(RLIMIT_NOFILE, &job->files_before);
    files = job->files_before;
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);

    catch_signals(job);
    start_keeper(job);
    hold_port(job);
    build_environment(job);
    open_sinks(job);
    if (pipe2(trouble, O_CLOEXEC | O_NONBLOCK)) die("pipe");
    job->trouble = trouble[0];
    job->trouble_in = trouble[1];
    job->null_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (job->null_fd < 0) die("cannot open /dev/null");
    job->relay = isatty(STDIN_FILENO);

    job->polled = must(calloc(places, sizeof *job->polled));
    job->polled_stream = must(calloc(places, sizeof *job->polled_stream));
    job->ranks = must(calloc((size_t)job->size, sizeof *job->ranks));
    for (int i = 0; i < 2 * job->size; i++) {
        struct sink *sink = i % 2 ? job->err : job->out;
        *stream_of(job, i) = (struct stream){ .fd = -1, .rank = i / 2, .sink = sink };
    }
}

static void finish(struct job *job)
{
    for (int i = 0; i < 2; i++) free(job->sinks[i].data);
    for (int i = 0; i < 2 * job->size; i++) free(stream_of(job, i)->held);
    free(job->ranks);
    free(job->polled);
    free(job->polled_stream);
    words_free(&job->settings);
    words_free(&job->environment);
}

/* End by the signal that ended the job, so that a shell sees it and a script stops at Ctrl-C. */
static void die_of(int signal)
{
    const struct sigaction usual = { .sa_handler = SIG_DFL };
    const struct rlimit none = { 0, 0 };
    sigset_t set;

    setrlimit(RLIMIT_CORE, &none);
    sigaction(signal, &usual, NULL);
    sigemptyset(&set);
    sigaddset(&set, signal);
    raise(signal);
    sigprocmask(SIG_UNBLOCK, &set, NULL);
}

int main(int argc, char **argv)
{
    static struct job job = { .verdict = -1, .input = -1 };

    fill_standard_files();
    parse_options(&job, argc, argv);
    prepare(&job);
    start_ranks(&job);

    while (job.alive > 0) serve(&job, 0);
    const int64_t ended_ms = now_ms(), until_ms = ended_ms + LEFTOVER_MS;
    while (open_streams(&job) > 0 && !job.hurried && now_ms() < until_ms) serve(&job, until_ms);
    kill_leftovers(&job);
    drain(&job, ended_ms);
    report_others(&job);
    drain(&job, ended_ms);

    finish(&job);
    if (job.death) die_of(job.death);
    return job.verdict < 0 ? EXIT_SUCCESS : job.verdict;
}
