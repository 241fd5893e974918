/* run_options.h - part of coll-run.c: options, and the environment of ranks.
 *
 * The environment is ours, without the variables in which launchers number their processes, then --env, then what coll-run
 * sets.  Uses the basics of run_output.h and the version of coll.h, both included before. */
#ifndef RUN_OPTIONS_H
#define RUN_OPTIONS_H

enum { MAX_RANKS = 4096, MAX_SIZE = 65536, WAITING_MOST = 256 };

enum { EXIT_USAGE = 2, EXIT_TIMEOUT = 124, EXIT_CANNOT_EXECUTE = 126, EXIT_NOT_FOUND = 127 };

struct words {
    char **list;                    /* ends with NULL; owns its strings                      */
    size_t count, capacity;
};

/* The role of this launcher. */
enum role {
    ROLE_LOCAL,                     /* starts all ranks                                      */
    ROLE_HEAD,                      /* -H: starts a launcher on every host, and no rank      */
    ROLE_AGENT,                     /* started by a head                                     */
    ROLE_JOIN                       /* --join: one of several equal launchers                */
};

/* A host of -H or --hostfile. */
struct slot {
    char *target;                   /* as given; passed to ssh                               */
    int count;                      /* processes                                             */
};

struct options {
    enum role role;
    int size;                       /* processes of the job: `threads` ranks each            */
    int count;                      /* of these, here; with --elastic some may be spare      */
    int first;                      /* first of those                                        */
    int threads;                    /* ranks per process; 0: 1, and --threads was not given  */
    int64_t timeout_ms;             /* 0: none                                               */
    int64_t wait_ms;                /* time limit for launchers to connect                   */
    bool raw, quiet, dry_run, bind, check, survive;
    int least, most;                /* --elastic: processes; most 0: not elastic             */
    int begin;                      /* processes with which the job begins                   */
    int start;                      /* of these, started here                                */
    int restarts;                   /* --restart                                             */
    char **program;                 /* and its arguments                                     */
    struct words settings;          /* --env                                                 */
    struct slot *slots;             /* -H, --hostfile                                        */
    int slot_count;
    const char *join, *rsh, *launcher, *log_dir, *address;
    char *key;                      /* NULL: none                                            */
    char *world;                    /* name of the job                                       */
    char *root;                     /* address of rank 0                                     */
};

/* ---- >>variables ---- */

/* Variables that coll-run sets.  In both lists a trailing * matches any rest. */
static const char *const own_variables[] = {
    "COLL_RANK", "COLL_SIZE", "COLL_LOCAL_RANK", "COLL_LOCAL_SIZE", "COLL_ADDR", "COLL_WORLD",
    "COLL_THREADS", "COLL_JOIN", "COLL_JOINED", NULL
};

/* Variables in which other launchers number processes.  Under such a launcher they describe coll-run, not its ranks. */
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
    "PALS_LOCAL_SIZE", "JSM_NAMESPACE_*", "MLX_RANK",
    "JOB_COMPLETION_INDEX", "LWS_GROUP_SIZE", "LWS_WORKER_INDEX", "PET_*", "SKYPILOT_NODE_RANK",
    "SKYPILOT_NUM_NODES", "AWS_BATCH_JOB_NODE_INDEX", "AWS_BATCH_JOB_NUM_NODES",
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

/* The entry of the variable that `setting` sets, or NULL. */
static char **find_variable(const struct words *words, const char *setting)
{
    const size_t length = strcspn(setting, "=") + 1;

    for (size_t i = 0; i < words->count; i++) {
        if (strncmp(words->list[i], setting, length) == 0) return &words->list[i];
    }
    return NULL;
}

static void remove_variable(struct words *words, const char *setting)
{
    char **place = find_variable(words, setting);

    if (!place) return;
    free(*place);
    *place = words->list[--words->count];
    words->list[words->count] = NULL;
}

static void add_word(struct words *words, char *word)
{
    if (words->count + 1 >= words->capacity) {
        words->capacity = words->capacity ? words->capacity * 2 : 64;
        words->list = must(realloc(words->list, words->capacity * sizeof *words->list));
    }
    words->list[words->count++] = word;
    words->list[words->count] = NULL;
}

/* Set a variable; the format gives NAME=VALUE. */
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
    add_word(words, setting);
}

/* ---- >>messages ---- */

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

/* ---- >>hosts ---- */

/* Parse all of `text` as a number. */
static int parse_number(const char *option, const char *text, int least, int most)
{
    char *end;
    errno = 0;
    const long value = strtol(text, &end, 10);

    if (!isdigit((unsigned char)text[0]) || *end || errno || value < least || value > most) {
        usage_error("%s needs a whole number from %d to %d, not '%s'", option, least, most, text);
    }
    return (int)value;
}

static int parse_size(const char *option, const char *text, int most) { return parse_number(option, text, 1, most); }

/* "2:8" */
static void parse_elastic(struct options *asked, const char *text)
{
    char least[32];
    const char *colon = strchr(text, ':');

    if (!colon || (size_t)(colon - text) >= sizeof least) {
        usage_error("--elastic needs MIN:MAX, the least and the most processes, not '%s'", text);
    }
    snprintf(least, sizeof least, "%.*s", (int)(colon - text), text);
    asked->least = parse_size("MIN of --elastic", least, MAX_RANKS);
    asked->most = parse_size("MAX of --elastic", colon + 1, MAX_RANKS);
    if (asked->least > asked->most) usage_error("--elastic %s: MIN %d is more than MAX %d", text, asked->least, asked->most);
}

/* Add slots to a host, which may be in the list already. */
static void add_slot(struct options *asked, const char *target, size_t length, int count)
{
    for (int i = 0; i < asked->slot_count; i++) {
        struct slot *slot = &asked->slots[i];
        if (strlen(slot->target) == length && strncmp(slot->target, target, length) == 0) {
            slot->count += count;
            return;
        }
    }
    asked->slots = must(realloc(asked->slots, (size_t)(asked->slot_count + 1) * sizeof *asked->slots));
    asked->slots[asked->slot_count++] = (struct slot){ must(strndup(target, length)), count };
}

/* "host", "user@host:4", "[v6]:4", "v6" with two colons or more; ssh gets no brackets. */
static void add_host(struct options *asked, const char *text, size_t length, const char *source)
{
    char host[256];
    int count = 1;

    if (length == 0 || length >= sizeof host) usage_error("%s: '%.*s' is no host", source, (int)length, text);
    memcpy(host, text, length);
    host[length] = '\0';
    char *open = strchr(host, '['), *close = open ? strchr(open, ']') : NULL;
    char *colon = close ? (close[1] == ':' ? close + 1 : NULL) : strchr(host, ':');
    if (!close && colon && strchr(colon + 1, ':')) colon = NULL;
    if (colon) {
        count = parse_size(source, colon + 1, MAX_RANKS);
        *colon = '\0';
    }
    if (close) {
        memmove(close, close + 1, strlen(close));
        memmove(open, open + 1, strlen(open));
    }
    /* a leading dash would be an option of ssh */
    if (!*host || *host == '-') usage_error("%s: '%.*s' is no host", source, (int)length, text);
    add_slot(asked, host, strlen(host), count);
}

static void add_slots(struct options *asked, const char *list, const char *source)
{
    for (const char *at = list; at; at = *at ? at + 1 : NULL) {
        const size_t length = strcspn(at, ",");
        add_host(asked, at, length, source);
        at += length;
        if (*at == ',' && !at[1]) usage_error("%s: '%s' ends with a comma", source, list);
    }
}

/* A line is "host", "host:4" or "host slots=4"; other words, which other launchers use, are ignored. */
static void read_host_file(struct options *asked, const char *path)
{
    static const char space[] = " \t\r\n";
    FILE *file = fopen(path, "re");
    char *line = NULL;
    size_t room = 0;

    if (!file) usage_error("host file %s: %s", path, strerror(errno));
    for (int number = 1; getline(&line, &room, file) >= 0; number++) {
        char source[300], *rest = NULL;
        int count = 0;
        snprintf(source, sizeof source, "host file %s, line %d", path, number);
        line[strcspn(line, "#")] = '\0';
        char *host = strtok_r(line, space, &rest);
        if (!host) continue;
        for (char *word; (word = strtok_r(NULL, space, &rest)) != NULL;) {
            if (strncmp(word, "slots=", 6) == 0) count = parse_size(source, word + 6, MAX_RANKS);
        }
        if (count) add_slot(asked, host, strlen(host), count);
        else add_host(asked, host, strlen(host), source);
        if (*host == '-') usage_error("%s: '%s' is no host", source, host);
    }
    free(line);
    fclose(file);
    if (!asked->slot_count) usage_error("host file %s names no host", path);
}

/* ---- >>options ---- */

/* In two parts, for compilers may limit the length of a literal. */
static const char help_options[] =
    "usage: coll-run -n RANKS [options] PROGRAM [argument ...]\n"
    "       coll-run -H HOST:RANKS,HOST:RANKS [options] PROGRAM [argument ...]\n"
    "       coll-run --join ADDRESS:PORT -n RANKS --size ALL [options] PROGRAM [argument ...]\n"
    "       coll-run ... --check\n"
    "\n"
    "Start processes of PROGRAM as the ranks of one coll.h job: on this machine; on several machines by\n"
    "ssh (-H); or on several machines without ssh, by the same command on each (--join).\n"
    "\n"
    "  -n RANKS             number of processes, 1 to 4096; with --join: on this machine; with -H: on\n"
    "                       the first RANKS slots of the hosts (default: all slots)\n"
    "  -H HOSTS             \"a:4,user@b:4,[fe80::1%eth0]:2\": hosts, and the processes on each (default 1)\n"
    "      --hostfile FILE  the same, one host a line: \"a slots=4\" or \"a:4\"; # begins a comment\n"
    "      --join ADDRESS:PORT   the address where the launchers connect; the one whose machine has it\n"
    "                       listens, has rank 0, and numbers the others in the order of arrival\n"
    "      --size ALL       with --join: the number of all ranks\n"
    "      --threads T      each process has T ranks: COLL_RANK is the first, COLL_THREADS is T\n"
    "  -t, --timeout SECS   end the job after SECS seconds, with exit status 124\n"
    "      --wait SECS      wait so long for other machines (default: COLL_START_TIMEOUT_MS, or 60)\n"
    "      --env NAME[=VALUE]    set a variable for all ranks, or pass it on; may be repeated\n"
    "      --bind           keep each process to its share of the cores of its machine\n"
    "      --key-file FILE  a file whose first line is the key of the job, 16 bytes or more; no other\n"
    "                       user may read it (default: COLL_KEY, or COLL_KEY_FILE)\n"
    "      --address HOST[:PORT] the address of rank 0, if coll-run finds a wrong one\n"
    "      --rsh COMMAND    instead of ssh (default: COLL_RSH); it gets a host and a command for sh\n"
    "      --launcher PATH  coll-run on the other hosts (default: the path of this one, else PATH)\n"
    "      --log-dir DIR    also write the output of rank N to DIR/rank-N.log\n"
    "      --check          instead of PROGRAM, measure latency and bandwidth of every pair of ranks\n"
    "                       (coll-check; start it as PROGRAM with --tuning FILE to write a tuning file)\n"
    "      --dry-run        print what would be started, and start nothing\n"
    "      --survive        a rank that fails does not end the others: for programs that continue without\n"
    "                       it (coll_shrink); the exit status is 0 if any rank succeeds\n"
    "      --elastic MIN:MAX     a process that dies is replaced by one that joins (coll_grow); the job goes\n"
    "                       on while there are MIN processes or more, and begins with MAX if there are slots\n"
    "                       for them; see below\n"
    "      --restart N      with --elastic: start at most N processes again (default: MAX)\n"
    "      --no-prefix      pass output on unchanged, without \"[rank] \" before each line\n"
    "  -q, --quiet          do not report which ranks failed and why\n"
    "  -h, --help           print this text\n"
    "      --version        print the version\n"
    "\n";

static const char help_text[] =
    "Options end where PROGRAM begins.\n"
    "\n"
    "Several machines: PROGRAM must exist under the same name on each; with -H also coll-run and the\n"
    "directory.  COLL_ variables and those of --env are passed on, others are not.  With -H, ssh must\n"
    "need no password.  If there is no key, coll-run makes a random one for the job, and sends it by ssh.\n"
    "Output arrives here, after \"[rank host] \".  If this coll-run ends, or the connection fails, the\n"
    "ranks there end too.  With --join, each machine prints the output of its own ranks, and all end with\n"
    "the first failure.  Launchers prove to each other that they know the key; nothing is encrypted.\n"
    "\n"
    "Elastic jobs: PROGRAM calls coll_init in any case, coll_shrink after a failure, and coll_grow from time\n"
    "to time.  A process that is started again has COLL_JOIN=on instead of COLL_RANK and COLL_SIZE: coll_init\n"
    "then waits, at most COLL_START_TIMEOUT_MS, until the others call coll_grow.  -n or the hosts give slots,\n"
    "MAX or more; those that are not needed at first replace lost ones.  A host that is lost, or cannot be\n"
    "reached at first, is tried again after 1 s, and then at doubling intervals up to 60 s, while restarts are\n"
    "left.  With --join, the job begins when --size processes are there (default: MIN); launchers that come\n"
    "later add theirs, up to MAX, and any of them but the first may end.  A process that SIGTERM ends, or that\n"
    "exits with status 143, has left in order: it is not started again.  Once a process has exited with status\n"
    "0, the job is about to end: none is started again, and processes that still wait to join are ended with\n"
    "the last one.  The exit status is then 0.\n"
    "\n"
    "Output: each line of a rank is written whole, after \"[rank] \".\n"
    "A line of more than 64 KiB is written in pieces.\n"
    "With --no-prefix, an unfinished line is written when all ranks have been silent for 0.1 s.\n"
    "The C library buffers stdout in blocks if it is a pipe, as it is here.  So output appears late, and\n"
    "is lost in a crash, unless the program calls fflush(stdout) or setvbuf, or writes to stderr.\n"
    "On a terminal, text, tabs and colors of ranks are passed on; a carriage return repeats the prefix;\n"
    "other control characters are shown, as ^[ for ESC.  Files, pipes, --log-dir and --no-prefix get\n"
    "every byte unchanged.\n"
    "Input: rank 0 reads that of coll-run; the other ranks have none.\n"
    "\n"
    "Processes: a child of coll-run, \"coll-run keeper\", starts the ranks.  When coll-run ends, also by\n"
    "SIGKILL, the keeper kills every process that descends from the ranks, in any session.\n"
    "These may remain: processes of another user; and, if coll-run and its keeper are killed at the same\n"
    "time, processes that ranks have started.  The ranks themselves end in every case.\n"
    "\n"
    "Environment of a rank: COLL_RANK, COLL_SIZE, COLL_LOCAL_RANK, COLL_LOCAL_SIZE, COLL_ADDR,\n"
    "COLL_WORLD, COLL_THREADS; COLL_KEY if there is a key; OMP_NUM_THREADS = cores per\n"
    "rank unless it is set; with --elastic COLL_ELASTIC, COLL_PORTS, COLL_JOIN and COLL_JOINED.\n"
    "The port of COLL_ADDR is free, and in COLL_PORTS if that is set.\n"
    "Variables by which torchrun, mpirun, Slurm and others number their processes are removed.\n"
    "\n"
    "Exit status: 0 if all ranks succeeded, else that of the rank that failed first (128 + the\n"
    "signal if one killed it).  The others then have 3 s to end, get SIGTERM, and 2 s later\n"
    "SIGKILL.  124: timeout; 126: PROGRAM cannot be executed; 127: PROGRAM not found; 141: the\n"
    "reader of the output has closed it; 2: bad usage; 1: coll-run itself failed, or lost a machine.\n";

static int64_t parse_seconds(const char *option, const char *text)
{
    char *end;
    const double seconds = strtod(text, &end);

    if (end == text || *end || !(seconds >= 0.001 && seconds <= 1e9)) {
        usage_error("%s needs seconds, from 0.001 to 1e9, not '%s'", option, text);
    }
    return (int64_t)(seconds * 1000.0);
}

/* --env may not set what coll-run sets: a wrong rank number would only make the job hang. */
static void add_setting(struct options *asked, const char *text)
{
    const int length = (int)strcspn(text, "=");
    const char *ours = text[length] ? NULL : getenv(text);

    if (length == 0) usage_error("--env needs NAME or NAME=VALUE, not '%s'", text);
    if (!text[length] && !ours) usage_error("--env %s: no such variable is set here", text);
    char *setting = must(malloc((size_t)length + 2 + strlen(ours ? ours : text + length)));
    sprintf(setting, ours ? "%.*s=%s" : "%.*s%s", length, text, ours ? ours : text + length);
    if (is_among(own_variables, setting)) {
        usage_error("--env cannot set %.*s, which coll-run sets itself", length, text);
    }
    set_variable(&asked->settings, "%s", setting);
    free(setting);
}

/* The first line of a file that only the user may access. */
static char *read_key(const char *path)
{
    FILE *file = fopen(path, "re");
    struct stat info;
    char line[KEY_MOST + 3] = "";

    if (!file || fstat(fileno(file), &info)) usage_error("key file %s: %s", path, strerror(errno));
    const char *fault = coll__key_file_fault(&info, geteuid());
    if (fault) usage_error("key file %s: %s", path, fault);
    if (!fgets(line, sizeof line, file)) line[0] = '\0';
    fclose(file);
    line[strcspn(line, "\r\n")] = '\0';
    return must(strdup(line));
}

/* The user's key, if there is one. */
static void settle_key(struct options *asked, const char *key_file)
{
    const char *key = getenv("COLL_KEY"), *path = key_file ? key_file : getenv("COLL_KEY_FILE");

    if (!key_file && key && *key) asked->key = must(strdup(key));
    else if (path && *path) asked->key = read_key(path);
    if (asked->key && strlen(asked->key) < KEY_LEAST) {
        usage_error("a key has %d bytes or more, this one has %zu", KEY_LEAST, strlen(asked->key));
    }
    if (asked->key && strlen(asked->key) > KEY_MOST) usage_error("a key has %d bytes at most, this one has more", KEY_MOST);
}

enum { NO_PREFIX = 256, ENV, VERSION, HOSTFILE, JOIN, SIZE, THREADS, WAIT, BIND, KEY_FILE, ADDRESS, RSH, LAUNCHER, LOG_DIR,
       CHECK, DRY_RUN, SURVIVE, AGENT, ELASTIC, RESTART };

static const struct option option_names[] = {
    { "timeout",   required_argument, NULL, 't' },       { "env",       required_argument, NULL, ENV },
    { "no-prefix", no_argument,       NULL, NO_PREFIX }, { "quiet",     no_argument,       NULL, 'q' },
    { "help",      no_argument,       NULL, 'h' },       { "version",   no_argument,       NULL, VERSION },
    { "hostfile",  required_argument, NULL, HOSTFILE },  { "join",      required_argument, NULL, JOIN },
    { "size",      required_argument, NULL, SIZE },      { "threads",   required_argument, NULL, THREADS },
    { "wait",      required_argument, NULL, WAIT },      { "bind",      no_argument,       NULL, BIND },
    { "key-file",  required_argument, NULL, KEY_FILE },  { "address",   required_argument, NULL, ADDRESS },
    { "rsh",       required_argument, NULL, RSH },       { "launcher",  required_argument, NULL, LAUNCHER },
    { "log-dir",   required_argument, NULL, LOG_DIR },   { "check",     no_argument,       NULL, CHECK },
    { "dry-run",   no_argument,       NULL, DRY_RUN },   { "agent",     no_argument,       NULL, AGENT },
    { "survive",   no_argument,       NULL, SURVIVE },   { "elastic",   required_argument, NULL, ELASTIC },
    { "restart",   required_argument, NULL, RESTART },   { NULL, 0, NULL, 0 }
};

/* Handle one option.  Checks that involve several options follow once all are known. */
static void take_option(struct options *asked, int option, const char *value, const char **key_file)
{
    switch (option) {
    case 'n': asked->count = parse_size("-n", value, MAX_RANKS); break;
    case 'H': add_slots(asked, value, "-H"); break;
    case 't': asked->timeout_ms = parse_seconds("--timeout", value); break;
    case 'q': asked->quiet = true; break;
    case NO_PREFIX: asked->raw = true; break;
    case SURVIVE: asked->survive = true; break;
    case ELASTIC: parse_elastic(asked, value); break;
    case RESTART: asked->restarts = parse_number("--restart", value, 0, 1000000); break;
    case ENV: add_setting(asked, value); break;
    case HOSTFILE: read_host_file(asked, value); break;
    case JOIN: asked->join = value; break;
    case SIZE: asked->size = parse_size("--size", value, MAX_SIZE); break;
    case THREADS: asked->threads = parse_size("--threads", value, 1024); break;
    case WAIT: asked->wait_ms = parse_seconds("--wait", value); break;
    case BIND: asked->bind = true; break;
    case KEY_FILE: *key_file = value; break;
    case ADDRESS: asked->address = value; break;
    case RSH: asked->rsh = value; break;
    case LAUNCHER: asked->launcher = value; break;
    case LOG_DIR: asked->log_dir = value; break;
    case CHECK: asked->check = true; break;
    case DRY_RUN: asked->dry_run = true; break;
    case AGENT: asked->role = ROLE_AGENT; break;
    case 'h': printf("%s%s", help_options, help_text); exit(EXIT_SUCCESS);
    default:
        printf("coll-run %d.%d.%d\n", COLL_VERSION_MAJOR, COLL_VERSION_MINOR, COLL_VERSION_PATCH);
        exit(EXIT_SUCCESS);
    }
}

/* Slots beyond -n are not used. */
static void settle_slots(struct options *asked)
{
    int left = asked->count, all = 0;

    for (int i = 0; i < asked->slot_count; i++) all += asked->slots[i].count;
    if (asked->count > all) usage_error("-n %d, but the hosts have %d slots", asked->count, all);
    if (!left) left = all;
    asked->size = left;
    for (int i = 0; i < asked->slot_count; i++) {
        struct slot *slot = &asked->slots[i];
        if (slot->count > left) slot->count = left;
        left -= slot->count;
        if (slot->count == 0) asked->slot_count = i;
    }
    if (asked->size > MAX_RANKS) usage_error("%d processes: the most is %d", asked->size, MAX_RANKS);
    asked->role = ROLE_HEAD;
    asked->count = 0;
}

/* --join: how many processes there are, at first or in all. */
static void settle_join(struct options *asked, int threads)
{
    if (!asked->count) usage_error("say with -n how many processes to start on this machine");
    if (asked->most) {
        if (asked->count > asked->most) usage_error("-n %d is more than MAX %d of --elastic", asked->count, asked->most);
        asked->begin = asked->size ? asked->size : asked->least;
        if (asked->begin < asked->least || asked->begin > asked->most) {
            usage_error("--size %d is not within --elastic %d:%d", asked->begin, asked->least, asked->most);
        }
        asked->size = asked->most;
    }
    if (!asked->size) usage_error("say with --size how many ranks there are in all");
    if (asked->size % threads) usage_error("--size %d is no multiple of --threads %d", asked->size, threads);
    asked->size /= threads;
    if (asked->size < asked->count) usage_error("--size is less than the ranks of this machine");
    if (asked->size > MAX_RANKS) usage_error("%d processes: the most is %d", asked->size, MAX_RANKS);
    asked->role = ROLE_JOIN;
}

/* Processes of an elastic job have one rank each, and there is a slot for each of the most. */
static void settle_elastic(struct options *asked)
{
    if (!asked->most && asked->restarts >= 0) usage_error("--restart goes with --elastic");
    if (!asked->begin) asked->begin = asked->most && asked->most < asked->size ? asked->most : asked->size;
    asked->start = asked->count < asked->begin ? asked->count : asked->begin;
    if (!asked->most) return;
    if (asked->threads > 1) usage_error("--elastic is for processes of one rank: leave --threads out");
    if (asked->check) usage_error("--check and --elastic exclude each other");
    if (asked->most > asked->size) {
        usage_error("--elastic %d:%d: MAX is more than the %d slots", asked->least, asked->most, asked->size);
    }
    if (asked->restarts < 0) asked->restarts = asked->most;
}

/* Derive the role from all options, and check them. */
static void settle_role(struct options *asked)
{
    const int threads = asked->threads ? asked->threads : 1;
    const char *start = getenv("COLL_START_TIMEOUT_MS");

    if (asked->role == ROLE_AGENT) return;
    if (!asked->wait_ms) asked->wait_ms = !start || atol(start) == 0 ? 60000 : atol(start) < 0 ? INT64_MAX / 2 : atol(start);
    if (asked->join && asked->slot_count) usage_error("--join and a list of hosts exclude each other");
    if (asked->size && !asked->join) usage_error("--size goes with --join");
    if (asked->slot_count) {
        settle_slots(asked);
    } else if (asked->join) {
        settle_join(asked, threads);
    } else {
        if (!asked->count) usage_error("say with -n how many ranks to start, or with -H where");
        asked->size = asked->count;
    }
    if ((long)asked->size * threads > MAX_SIZE) usage_error("more than %d ranks", MAX_SIZE);
    settle_elastic(asked);
}

static void parse_options(struct options *asked, int argc, char **argv)
{
    static const char letters[] = "+:n:H:t:qh";
    const char *key_file = NULL;

    opterr = 0;
    asked->restarts = -1;
    asked->rsh = getenv("COLL_RSH");
    for (int option; (option = getopt_long(argc, argv, letters, option_names, NULL)) != -1;) {
        if (option == ':') usage_error("option '%s' needs a value", argv[optind - 1]);
        if (option == '?' && optopt > 0 && optopt < 256 && !strchr(letters + 2, optopt)) {
            usage_error("there is no option '-%c'", optopt);
        }
        if (option == '?') usage_error("there is no option '%s', or it takes no value", argv[optind - 1]);
        take_option(asked, option, optarg, &key_file);
    }
    settle_role(asked);
    if (asked->role == ROLE_AGENT) return;
    if (optind == argc && !asked->check) usage_error("say which program to start");
    if (optind < argc && asked->check) usage_error("--check is instead of a program");
    if (asked->threads && asked->check) usage_error("--check measures between processes: leave --threads out");
    asked->raw = asked->raw || asked->check;
    asked->program = argv + optind;
    settle_key(asked, key_file);
}

/* ---- >>environment ---- */

/* At least 1; from sysconf if there are more cores than cpu_set_t holds. */
static int count_cores(void)
{
    cpu_set_t set;

    if (sched_getaffinity(0, sizeof set, &set) == 0) return CPU_COUNT(&set);
    const long online = sysconf(_SC_NPROCESSORS_ONLN);
    return online > 0 ? (int)online : 1;
}

/* Variables common to all ranks; start_rank adds the others. */
static void build_environment(struct words *words, const struct options *asked)
{
    const int threads = asked->threads ? asked->threads : 1;

    for (char **e = environ; *e; e++) {
        if (is_among(own_variables, *e) || is_among(other_variables, *e)) continue;
        set_variable(words, "%s", *e);
    }
    for (size_t i = 0; i < asked->settings.count; i++) {
        set_variable(words, "%s", asked->settings.list[i]);
    }
    set_variable(words, "COLL_WORLD=%s", asked->world);
    set_variable(words, "COLL_SIZE=%d", asked->begin * threads);
    set_variable(words, "COLL_LOCAL_SIZE=%d", (asked->count < asked->begin ? asked->count : asked->begin) * threads);
    if (asked->most) set_variable(words, "COLL_ELASTIC=%d", asked->most < WAITING_MOST ? asked->most : WAITING_MOST);
    set_variable(words, "COLL_ADDR=%s", asked->root);
    set_variable(words, "COLL_THREADS=%d", threads);
    if (asked->key) set_variable(words, "COLL_KEY=%s", asked->key);
    if (!find_variable(words, "OMP_NUM_THREADS=")) {
        const int cores = count_cores() / (asked->count * threads);
        set_variable(words, "OMP_NUM_THREADS=%d", cores > 1 ? cores : 1);
    }
}

#endif /* RUN_OPTIONS_H */
