/* run_options.h - part of coll-run.c: what the user asks for, and the environment that ranks find.
 *
 * The environment is ours without the variables by which launchers number their processes, then
 * what --env sets, then what coll-run defines itself.  Uses the basics of run_output.h and the
 * version of coll.h, both included before.
 */
#ifndef RUN_OPTIONS_H
#define RUN_OPTIONS_H

enum { MAX_RANKS = 4096 };

enum { EXIT_USAGE = 2, EXIT_TIMEOUT = 124, EXIT_CANNOT_EXECUTE = 126, EXIT_NOT_FOUND = 127 };

struct words {
    char **list;                    /* ends with NULL; owns its strings                      */
    size_t count, capacity;
};

struct options {
    int size;                       /* ranks                                                 */
    int64_t timeout_ms;             /* 0: none                                               */
    bool raw, quiet;                /* --no-prefix, --quiet                                  */
    char **program;                 /* and its arguments                                     */
    struct words settings;          /* --env                                                 */
};

/* ---- >>variables ---- */

/* Variables that coll-run sets.  In these two lists a trailing * stands for any rest. */
static const char *const own_variables[] = {
    "COLL_RANK", "COLL_SIZE", "COLL_LOCAL_RANK", "COLL_LOCAL_SIZE", "COLL_ADDR", "COLL_WORLD",
    NULL
};

/* Variables by which other launchers tell a process who it is.  Under one of them they describe
 * the one process that is coll-run. */
static const char *const other_variables[] = {
    "COLL_WORLD_SIZE",
    "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE",
    "NODE_RANK", "ROLE_RANK", "ROLE_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_*",
    "OMPI_COMM_WORLD_*", "OMPI_UNIVERSE_SIZE", "MV2_COMM_WORLD_*", "MPI_LOCALRANKID",
    "MPI_LOCALNRANKS",
    "PMI_RANK", "PMI_SIZE", "PMI_FD", "PMI_PORT", "PMI_ID", "PMI_SPAWNED", "PMIX_RANK",
    "PMIX_NAMESPACE", "PMIX_ID", "PMIX_SERVER_*",
    "SLURM_PROCID", "SLURM_LOCALID", "SLURM_NTASKS", "SLURM_NPROCS", "SLURM_NTASKS_PER_NODE",
    "SLURM_TASKS_PER_NODE", "SLURM_STEP_*",
    "FLUX_TASK_RANK", "FLUX_TASK_LOCAL_ID", "FLUX_JOB_SIZE", "PALS_RANKID", "PALS_LOCAL_RANKID",
    "PALS_LOCAL_SIZE", "JSM_NAMESPACE_*", "MLX_RANK", "MLX_HOSTFILE",
    NULL
};

/* Whether the variable that `setting` (NAME=VALUE) sets is in the list. */
static bool is_among(const char *const *names, const char *setting)
{
    for (; *names; names++) {
        const size_t length = strcspn(*names, "*");
        if (strncmp(setting, *names, length) != 0) continue;
        if ((*names)[length] == '*' || setting[length] == '=') return true;
    }
    return false;
}

/* The place of the variable that `setting` sets, or NULL. */
static char **find_variable(const struct words *words, const char *setting)
{
    const size_t length = strcspn(setting, "=") + 1;

    for (size_t i = 0; i < words->count; i++) {
        if (strncmp(words->list[i], setting, length) == 0) return &words->list[i];
    }
    return NULL;
}

/* Set a variable; the format makes NAME=VALUE. */
static RUN_PRINTF(2, 3) void set_variable(struct words *words, const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    char *setting = format_text(format, arguments);
    va_end(arguments);
    char **place = find_variable(words, setting);
    if (place) {
        free(*place);
        *place = setting;
        return;
    }
    if (words->count + 1 >= words->capacity) {
        words->capacity = words->capacity ? words->capacity * 2 : 64;
        words->list = must(realloc(words->list, words->capacity * sizeof *words->list));
    }
    words->list[words->count++] = setting;
    words->list[words->count] = NULL;
}

/* ---- >>options ---- */

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
    const int length = (int)strcspn(text, "=");

    if (!text[length] || length == 0) usage_error("--env needs NAME=VALUE, not '%s'", text);
    if (is_among(own_variables, text)) {
        usage_error("--env cannot set %.*s, which coll-run sets itself", length, text);
    }
    return text;
}

static void parse_options(struct options *asked, int argc, char **argv)
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
        case 'n': asked->size = parse_size(optarg); break;
        case 't': asked->timeout_ms = parse_seconds(optarg); break;
        case 'q': asked->quiet = true; break;
        case NO_PREFIX: asked->raw = true; break;
        case ENV: set_variable(&asked->settings, "%s", check_setting(optarg)); break;
        case 'h': fputs(help, stdout); exit(EXIT_SUCCESS);
        case VERSION:
            printf("coll-run %d.%d.%d\n",
                   COLL_VERSION_MAJOR, COLL_VERSION_MINOR, COLL_VERSION_PATCH);
            exit(EXIT_SUCCESS);
        case ':': usage_error("option '%s' needs a value", argv[optind - 1]);
        default:
            if (optopt > 0 && optopt < 256 && !strchr("ntqh", optopt)) {
                usage_error("there is no option '-%c'", optopt);
            }
            usage_error("there is no option '%s', or it takes no value", argv[optind - 1]);
        }
    }
    if (!asked->size) usage_error("say with -n how many ranks to start");
    if (optind == argc) usage_error("say which program to start");
    asked->program = argv + optind;
}

/* ---- >>environment ---- */

/* Above 0; from sysconf where there are more cores than a cpu_set_t has room for. */
static int count_cores(void)
{
    cpu_set_t set;

    if (sched_getaffinity(0, sizeof set, &set) == 0) return CPU_COUNT(&set);
    const long online = sysconf(_SC_NPROCESSORS_ONLN);
    return online > 0 ? (int)online : 1;
}

/* All that the ranks share; start_rank adds what differs. */
static void build_environment(struct words *words, const struct options *asked, int port)
{
    unsigned random[2];

    for (char **e = environ; *e; e++) {
        if (is_among(own_variables, *e) || is_among(other_variables, *e)) continue;
        set_variable(words, "%s", *e);
    }
    for (size_t i = 0; i < asked->settings.count; i++) {
        set_variable(words, "%s", asked->settings.list[i]);
    }

    if (getrandom(random, sizeof random, 0) != (ssize_t)sizeof random) die("no random numbers");
    set_variable(words, "COLL_WORLD=%08x%08x", random[0], random[1]);
    set_variable(words, "COLL_SIZE=%d", asked->size);
    set_variable(words, "COLL_LOCAL_SIZE=%d", asked->size);
    set_variable(words, "COLL_ADDR=127.0.0.1:%d", port);
    if (!find_variable(words, "OMP_NUM_THREADS=")) {
        const int threads = count_cores() / asked->size;
        set_variable(words, "OMP_NUM_THREADS=%d", threads > 1 ? threads : 1);
    }
}

#endif /* RUN_OPTIONS_H */
