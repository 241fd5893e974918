/* coll_config.h - what a communicator is to be: from the caller, from the environment, from the launcher. */
#ifndef COLL_CONFIG_H
#define COLL_CONFIG_H

#include <fcntl.h>
#include <sys/stat.h>

/* What both ends of a connection must agree upon. */
enum { COLL__AUTH_NONE, COLL__AUTH_KEY, COLL__AUTH_TLS, COLL__AUTH_KIND = 3, COLL__AUTH_CHECK = 4 };
enum { COLL__KEY_LEAST = 16, COLL__KEY_MOST = 1024 };

enum { COLL__LANES_MOST = 16, COLL__TUNING_ROOM = 160, COLL__TUNING_FILE_MOST = 4096, COLL__NETWORK_ROOM = 256 };

/* A configuration without defaults left in it. */
typedef struct coll__settings {
    coll_config config;
    int         count;                            /* ranks of this process, config.rank being the first       */
    int         local_rank, local_size;
    int         processors;                       /* that the ranks of this host may use                      */
    double      share;                            /* of a processor for each rank of the fullest host; 0: one */
    const char *source;                           /* who said the rank: "the configuration", "torchrun", ...  */
    coll__launched launch;                          /* what the environment says, where it was asked            */
    char        world[COLL__WORLD_ROOM];
    char        network[COLL__NETWORK_ROOM];      /* of another library's variable, in our words              */
    const char *network_source;                   /* that variable; NULL: ours, or the configuration          */
    uint32_t    arithmetic;                       /* of this program: coll__arithmetic                        */
    coll__numbers numbers;                        /* what the tuner is to believe of the wire                 */
    char        forced_text[256];                 /* names of COLL_ALGORITHM, each ended by '\0'              */
    int         forced_at[COLL_SENDRECV + 1];     /* 1 + where that of each kind begins; 0: none              */
    int         auth;                             /* what a connection begins with: COLL__AUTH_...            */
    bool        is_open;                          /* public addresses may be used without a key               */
    char        key[COLL__KEY_MOST + 2];          /* wiped by coll_init                                       */
} coll__settings;

/* On the heap, for it is long and stacks may be small. */
static coll__settings *coll__settings_new(void)
{
    coll__settings *s = (coll__settings *)coll__allocate(sizeof *s);
    if (!s) (void)coll__start_failed(COLL_ERR_MEMORY, "no memory for the settings of a communicator");
    return s;
}

static void coll__settings_free(coll__settings *s)
{
    coll__wipe(s->key, sizeof s->key);
    free(s);
}

/* ---- >>texts of numbers with units: "12us", "4GB/s", whatever the locale ---- */

/* A number without a sign: "12", "1.5", "2e-6".  Moves *at behind it.  Digits that no double holds do not count. */
static bool coll__read_number(const char **at, double *out)
{
    const char *s = *at;
    double value = 0, place = 1;
    int exponent = 0;

    if (!(*s >= '0' && *s <= '9')) return false;
    for (; *s >= '0' && *s <= '9'; s++) value = value * 10 + (*s - '0');
    if (*s == '.')
        for (s++; *s >= '0' && *s <= '9'; s++)
            if (place < 1e30) value = value * 10 + (*s - '0'), place *= 10;
    if (*s == 'e' && (s[1] == '-' || s[1] == '+') && s[2] >= '0' && s[2] <= '9') {
        const bool is_negative = s[1] == '-';
        for (s += 2; *s >= '0' && *s <= '9' && exponent < 300; s++) exponent = exponent * 10 + (*s - '0');
        for (; exponent > 0; exponent--) {
            if (is_negative) place *= 10;
            else value *= 10;
        }
    }
    *out = value / place;
    *at = s;
    return *out == *out;                          /* digits without end, and an exponent that takes them back  */
}

/* A unit, which multiplies the number before it; none: as it is. */
typedef struct coll__unit { const char *name; double by, divide; } coll__unit;

static const coll__unit coll__times[] = {
    { "ns", 1, 1e9 }, { "us", 1, 1e6 }, { "ms", 1, 1e3 }, { "s", 1, 1 }, { NULL, 0, 0 }
};
static const coll__unit coll__rates[] = {
    { "GB/s", 1e9, 1 }, { "MB/s", 1e6, 1 }, { "Gbit/s", 1e9, 8 }, { "Mbit/s", 1e6, 8 }, { "B/s", 1, 1 }, { NULL, 0, 0 }
};
static const coll__unit coll__sizes[] = { { "KiB", 1024, 1 }, { "MiB", 1048576, 1 }, { "K", 1024, 1 }, { "M", 1048576, 1 },
                                          { NULL, 0, 0 } };

static bool coll__read_measure(const char **at, const coll__unit *units, double *out, bool *has_unit)
{
    bool any = false;

    if (!coll__read_number(at, out)) return false;
    for (; !any && units->name; units++) {
        const size_t length = strlen(units->name);
        if (strncmp(*at, units->name, length)) continue;
        *out = *out * units->by / units->divide;
        *at += length;
        any = true;
    }
    if (has_unit) *has_unit = any;
    return true;
}

/* ---- >>tuning: "latency=12us overhead=1.2us gbit=10 reduce=4GB/s", what the tuner is to believe ---- */

/* One "key=value"; *at is behind the "=".  A rate of 0 stands for no time at all, as it does in what coll__numbers_print
 * writes; a message always takes some time. */
static bool coll__numbers_read_value(coll__numbers *n, const char *key, size_t length, const char **at)
{
    const struct { const char *name; double *out; const coll__unit *units; } all[] = {
        { "latency", &n->link.latency, coll__times },      { "overhead", &n->link.overhead, coll__times },
        { "wire", &n->link.per_byte, coll__rates },        { "gbit", &n->link.per_byte, NULL },
        { "reduce", &n->link.per_byte_reduced, coll__rates }, { "barrier", &n->barrier, coll__times }
    };
    static const coll__unit none = { NULL, 0, 0 };
    double value;

    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        if (strlen(all[i].name) != length || strncmp(key, all[i].name, length)) continue;
        if (!coll__read_measure(at, all[i].units ? all[i].units : &none, &value, NULL) || value > 1e18) return false;
        if (all[i].units == coll__times && value > 100) return false;
        if (!all[i].units) value = value * 1e9 / 8;
        if (all[i].units != coll__times) value = value > 0 ? 1 / value : 0;
        *all[i].out = value;
        return all[i].units == coll__times || value <= 1e-3;
    }
    return false;
}

/* What a text says; what it does not mention stays.  Gives NULL, or the first word that makes no sense, of *length bytes. */
static const char *coll__numbers_read(coll__numbers *n, const char *text, size_t *length)
{
    static const char space[] = " ,\t\r\n";

    for (const char *at = text + strspn(text, space); *at; at += strspn(at, space)) {
        const char *const begin = at, *const is = strchr(at, '=');
        *length = strcspn(at, " ,\t\r\n");
        if (*at == '#') {                         /* a comment, up to the end of its line                     */
            at += strcspn(at, "\n");
            continue;
        }
        if (is) at = is + 1;
        if (!is || is >= begin + *length || !coll__numbers_read_value(n, begin, (size_t)(is - begin), &at)
            || at != begin + *length) return begin;
    }
    n->nominal = n->link;
    return NULL;
}

/* Append a number that is not negative: five digits that count, or six behind the point. */
static void coll__append_number(char *text, size_t room, double value)
{
    int digits = value < 1 ? 6 : 4;
    uint64_t unit = 1;

    for (double bound = 10; digits > 0 && value >= bound; digits--) bound *= 10;
    for (int i = 0; i < digits; i++) unit *= 10;
    const uint64_t all = (uint64_t)((value < 1e12 ? value : 1e12) * (double)unit + 0.5);
    uint64_t part = all % unit;
    coll__append(text, room, "%llu", (unsigned long long)(all / unit));
    for (; digits > 0 && part % 10 == 0; digits--) part /= 10;
    if (digits > 0) coll__append(text, room, ".%0*llu", digits, (unsigned long long)part);
}

/* The same text again. */
static void coll__numbers_print(const coll__numbers *n, char *text, size_t room)
{
    const coll__link *link = &n->link;
    const struct { const char *name; double value; const char *unit; } all[] = {
        { "latency=", link->latency * 1e6, "us" }, { " overhead=", link->overhead * 1e6, "us" },
        { " gbit=", link->per_byte > 0 ? 8e-9 / link->per_byte : 0, "" },
        { " reduce=", link->per_byte_reduced > 0 ? 1e-9 / link->per_byte_reduced : 0, "GB/s" },
        { " barrier=", n->barrier * 1e6, "us" }
    };

    coll__print(text, room, "%s", "");
    for (int i = 0; i < (n->barrier > 0 ? 5 : 4); i++) {
        coll__append(text, room, "%s", all[i].name);
        coll__append_number(text, room, all[i].value);
        coll__append(text, room, "%s", all[i].unit);
    }
}

/* Make the numbers those that their text says: whoever reads that text has the same bits. */
static void coll__numbers_round(coll__numbers *n)
{
    char text[COLL__TUNING_ROOM];
    size_t length;

    coll__numbers_print(n, text, sizeof text);
    (void)coll__numbers_read(n, text, &length);
}

/* The file that rank 0 is given: tuning_file, or COLL_TUNING. */
static coll_status coll__settle_tuning(coll__settings *s)
{
    const char *path = s->config.tuning_file ? s->config.tuning_file : getenv("COLL_TUNING"), *wrong;
    char text[COLL__TUNING_FILE_MOST + 1];
    size_t length = 0, name;

    if (!path || !*path) return COLL_OK;
    FILE *file = fopen(path, "re");
    const size_t got = file ? fread(text, 1, sizeof text, file) : 0;
    const int error = !file || ferror(file) ? errno : 0;
    if (file) fclose(file);
    if (error) return coll__start_failed(COLL_ERR_ARGUMENT, "tuning file %.160s: %s", path, strerror(error));
    if (got == sizeof text)
        return coll__start_failed(COLL_ERR_ARGUMENT, "tuning file %.160s is longer than %d bytes", path, COLL__TUNING_FILE_MOST);
    text[got] = '\0';
    wrong = coll__numbers_read(&s->numbers, text, &length);
    if (wrong)
        return coll__start_failed(COLL_ERR_ARGUMENT, "tuning file %.120s: \"%.*s\" makes no sense; it should read like "
                                  "\"latency=12us overhead=1.2us gbit=10 reduce=4GB/s\"", path, (int)coll__least(length, 40),
                                  wrong);
    coll__numbers_round(&s->numbers);
    name = strlen(path);
    s->numbers.origin = COLL__BY_FILE;
    coll__print(s->numbers.file, sizeof s->numbers.file, "%s", path + (name < sizeof s->numbers.file ? 0
                                                                        : name + 1 - sizeof s->numbers.file));
    return COLL_OK;
}

/* ---- >>who: rank and size ---- */

/* Several ranks of this process: either there are no others, or there is room for these. */
static coll_status coll__settle_share(const coll__settings *s)
{
    const coll_config *c = &s->config;

    if (s->count <= c->size - c->rank) return COLL_OK;
    return coll__start_failed(COLL_ERR_ARGUMENT, "this process has rank %d of %d (from %s), but brings %d ranks: the rank of a "
                              "process is that of its first, and the size is the sum over all processes", c->rank, c->size,
                              s->source, s->count);
}

/* coll-run counts ranks, and says how many of them each of its processes is to bring.  One that brings others would take the
 * places of its neighbours, or think that it has all ranks itself. */
static coll_status coll__settle_threads(const coll__settings *s)
{
    int said = s->count;

    if (s->launch.size == 1 || !coll__counts_ranks(s->launch.by)) return COLL_OK;
    if (!coll__environment_int("COLL_THREADS", 1, COLL__SIZE_MOST, &said)) return COLL_ERR_ARGUMENT;
    if (said == s->count) return COLL_OK;
    return coll__start_failed(COLL_ERR_ARGUMENT, "this process makes %d rank%s, but was started to make %d (COLL_THREADS=%d): "
                              "start it with coll-run --threads %d, or let it make %d", s->count, s->count == 1 ? "" : "s", said,
                              said, s->count, said);
}

static coll_status coll__settle_rank(coll__settings *s)
{
    coll_config *c = &s->config;

    s->source = "the configuration";
    if (c->size == 0 && c->rank != 0)
        return coll__start_failed(COLL_ERR_ARGUMENT, "rank %d is set but size is 0: set both", c->rank);
    if (c->size == 0) {
        const coll_status status = coll__launch_read(&s->launch, s->count);
        if (status < 0 || coll__settle_threads(s) < 0) return COLL_ERR_ARGUMENT;
        const int64_t size = coll__ranks_said(s->launch.by, s->launch.size, s->count);
        if (size > COLL__SIZE_MOST)
            return coll__start_failed(COLL_ERR_ARGUMENT, "%s=%d processes of %d ranks make more than %d ranks",
                                      s->launch.by->size, s->launch.size, s->count, COLL__SIZE_MOST);
        c->rank = coll__counts_ranks(s->launch.by) ? s->launch.rank : s->launch.rank * s->count;
        c->size = (int)size;
        s->local_rank = s->launch.local_rank;
        if (s->launch.local_size > 0) s->local_size = s->launch.local_size;
        s->source = s->launch.source;
    }
    if (c->size == 1 && c->rank == 0) c->size = s->count;
    if (c->size < 0 || c->size > COLL__SIZE_MOST)
        return coll__start_failed(COLL_ERR_ARGUMENT, "size %d is out of range: 1 to %d", c->size, COLL__SIZE_MOST);
    if (c->rank < 0 || c->rank >= c->size)
        return coll__start_failed(COLL_ERR_ARGUMENT, "rank %d is out of range for %d ranks", c->rank, c->size);
    return coll__settle_share(s);
}

/* ---- >>where: the address of rank 0, the addresses of all, the network ---- */

/* A list of hosts says where rank 0 is, and how many ranks there are. */
static coll_status coll__settle_hosts(coll__settings *s, const char *address)
{
    coll_config *c = &s->config;
    char first[COLL__ADDRESS_ROOM];

    if (coll__hosts_count(c->tcp.hosts) != c->size)
        return coll__start_failed(COLL_ERR_ARGUMENT, "the list of hosts has %d entries for %d ranks (from %s): name one "
                                  "host:port for each rank", coll__hosts_count(c->tcp.hosts), c->size, s->source);
    for (int i = 0; i < c->size; i++)
        if (!coll__hosts_entry(c->tcp.hosts, i, first, sizeof first))
            return coll__start_failed(COLL_ERR_ARGUMENT, "entry %d of the list of hosts is empty or too long: %.120s", i,
                                      c->tcp.hosts);
    (void)coll__hosts_entry(c->tcp.hosts, 0, first, sizeof first);
    if (address && strcmp(address, first))
        return coll__start_failed(COLL_ERR_ARGUMENT,
                                  "the list of hosts begins with %.80s, but COLL_ADDR=%.80s is set too: unset one of them",
                                  first, address);
    coll__print(s->launch.address, sizeof s->launch.address, "%s", first);
    c->address = s->launch.address;
    return COLL_OK;
}

static coll_status coll__settle_address(coll__settings *s)
{
    coll_config *c = &s->config;
    const char *const address = coll__environment("COLL_ADDR");

    if (c->address && !*c->address) c->address = NULL;
    if (c->tcp.hosts && !*c->tcp.hosts) c->tcp.hosts = NULL;
    if (!c->address && !c->tcp.hosts) {
        c->tcp.hosts = *s->launch.hosts ? s->launch.hosts : coll__environment("COLL_HOSTS");
        if (c->tcp.hosts) return coll__settle_hosts(s, address);
        c->address = address;
    } else if (c->tcp.hosts) {
        c->address = NULL;
        return coll__settle_hosts(s, NULL);
    }
    if (!c->address) {
        const coll_status status = coll__launch_where(&s->launch);
        if (status < 0) return status;
        if (*s->launch.address) c->address = s->launch.address;
    }
    if (c->address && strlen(c->address) >= COLL__ADDRESS_ROOM)
        return coll__start_failed(COLL_ERR_ARGUMENT, "the address is longer than %d: %.120s", COLL__ADDRESS_ROOM - 1, c->address);
    if (c->address) return COLL_OK;
    const struct coll__launcher *by = s->launch.by;
    const bool is_spread = by && s->launch.local_size > 0 && s->launch.local_size < c->size;
    return coll__start_failed(COLL_ERR_ARGUMENT, "this is rank %d of %d (from %s)%s, but nothing says where rank 0 is: set "
                              "COLL_ADDR=host:port%s%s%s", c->rank, c->size, s->source, is_spread ? " on several hosts" : "",
                              by && by->where ? " (" : "", by && by->where ? by->where : "", by && by->where ? ")" : "");
}

/* COLL_WORLD, and the name of the job where it was the job that said where to meet. */
static void coll__settle_world(coll__settings *s)
{
    coll_config *c = &s->config;

    if (!c->world) c->world = getenv("COLL_WORLD");
    if (!c->world) c->world = "";
    if (!*s->launch.job) return;
    coll__print(s->world, sizeof s->world, "%s %s", s->launch.job, c->world);
    c->world = s->world;
}

/* NCCL's and Gloo's words in ours: NCCL's names are beginnings of names unless a "=" stands before the first. */
static void coll__network_words(const char *text, bool is_nccl, char *out, size_t room)
{
    const bool is_not = *text == '^', is_exact = !is_nccl || text[is_not] == '=';

    coll__print(out, room, "%s", is_not ? "^" : "");
    for (text += is_not + (text[is_not] == '='); *text;) {
        const size_t length = strcspn(text, ",");
        if (length > 0) coll__append(out, room, "%.*s%s%s", (int)length, text, is_exact ? "" : "*", text[length] ? "," : "");
        text += length + (text[length] == ',');
    }
}

static void coll__settle_network(coll__settings *s)
{
    static const char *const others[] = { "NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME" };
    coll_config *c = &s->config;

    if (c->tcp.network && !*c->tcp.network) c->tcp.network = NULL;
    if (!c->tcp.network) c->tcp.network = coll__environment("COLL_NETWORK");
    if (!c->tcp.network && s->launch.is_on_one_host) c->tcp.network = "127.0.0.1";
    for (int i = 0; !c->tcp.network && i < 2; i++) {
        if (!coll__environment(others[i])) continue;
        coll__network_words(getenv(others[i]), i == 0, s->network, sizeof s->network);
        s->network_source = others[i];
        c->tcp.network = s->network;
    }
    if (!c->tcp.ports || !*c->tcp.ports) c->tcp.ports = coll__environment("COLL_PORTS");
}

/* ---- >>how ---- */

/* The level that is configured, or COLL_DEBUG's, or the usual one; 0: COLL_DEBUG makes no sense. */
static coll_log_level coll__log_level(const coll_config *config)
{
    static const struct { const char *name; coll_log_level level; } all[] = {
        { "none", COLL_LOG_NONE }, { "error", COLL_LOG_ERROR }, { "warn", COLL_LOG_WARN }, { "info", COLL_LOG_INFO }
    };
    const char *text = coll__environment("COLL_DEBUG");

    if (config && config->log_level != 0) return config->log_level;
    for (size_t i = 0; text && i < sizeof all / sizeof *all; i++)
        if (!strcasecmp(text, all[i].name)) return all[i].level;
    return text ? (coll_log_level)0 : COLL_LOG_WARN;
}

static coll_status coll__settle_log(coll_config *c)
{
    c->log_level = coll__log_level(c);
    if (c->log_level != 0) return COLL_OK;
    return coll__start_failed(COLL_ERR_ARGUMENT, "COLL_DEBUG=%.40s is none of none, error, warn, info", getenv("COLL_DEBUG"));
}

/* A start that has failed is a line on the log, for a program that does not look at the status.  Gives the status. */
static coll_status coll__started(coll_status status, const coll_config *config)
{
    coll_log_level level = coll__log_level(config);

    if (level == 0) level = COLL_LOG_ERROR;
    if (status < 0)
        coll__say(&(coll__log){ level, config ? config->log : NULL, config ? config->log_context : NULL }, COLL_LOG_ERROR, "%s",
                  coll__start_error);
    return status;
}

/* COLL_ALGORITHM=allreduce=ring,alltoall=circulant:4 */
static coll_status coll__settle_algorithms(coll__settings *s)
{
    const char *text = getenv("COLL_ALGORITHM");

    if (!text) return COLL_OK;
    coll__print(s->forced_text, sizeof s->forced_text, "%s", text);
    if (strlen(text) >= sizeof s->forced_text)
        return coll__start_failed(COLL_ERR_ARGUMENT, "COLL_ALGORITHM is longer than %zu", sizeof s->forced_text - 1);
    for (char *at = s->forced_text, *next; at && *at; at = next) {
        int kind = COLL_BARRIER;
        next = strchr(at, ',');
        if (next) *next++ = '\0';
        char *name = strchr(at, '=');
        if (name) *name++ = '\0';
        while (name && kind <= COLL_SENDRECV && strcmp(at, coll_kind_name((coll_kind)kind))) kind++;
        if (!name || kind > COLL_SENDRECV)
            return coll__start_failed(COLL_ERR_ARGUMENT, "COLL_ALGORITHM: \"%.40s\" is not an operation and its algorithm, as in "
                                      "allreduce=ring", at);
        const char *number = strchr(name, ':');
        const size_t length = number ? (size_t)(number - name) : strlen(name);
        char known[120] = "";
        bool is_known = false;
        for (int i = 0; i < COLL__ALGORITHM_COUNT; i++) {
            const coll__algorithm *a = &coll__algorithms[i];
            if (a->kind != (coll_kind)kind) continue;
            is_known = is_known || (strlen(a->name) == length && !strncmp(a->name, name, length));
            coll__append(known, sizeof known, "%s%s", *known ? ", " : "", a->name);
        }
        if (!is_known)
            return coll__start_failed(COLL_ERR_ARGUMENT, "COLL_ALGORITHM: %s has no algorithm \"%.40s\", there is: %s",
                                      coll_kind_name((coll_kind)kind), name, known);
        s->forced_at[kind] = 1 + (int)(name - s->forced_text);
    }
    return COLL_OK;
}

/* When a silent rank is dead, a late one fails, and where it is written what this rank was doing. */
static coll_status coll__settle_failure(coll_config *c)
{
    enum { LIVENESS_MS = 5000, LEAST_MS = 50 };

    if (c->stall_timeout_ms <= 0 && !coll__environment_int("COLL_STALL_TIMEOUT_MS", 0, INT_MAX, &c->stall_timeout_ms))
        return COLL_ERR_ARGUMENT;
    if (c->liveness_timeout_ms == 0 && !coll__environment_int("COLL_LIVENESS_TIMEOUT_MS", -1, INT_MAX, &c->liveness_timeout_ms))
        return COLL_ERR_ARGUMENT;
    if (c->liveness_timeout_ms == 0) c->liveness_timeout_ms = LIVENESS_MS;
    if (c->liveness_timeout_ms > 0 && c->liveness_timeout_ms < LEAST_MS) c->liveness_timeout_ms = LEAST_MS;
    if (!c->dump) c->dump = getenv("COLL_DUMP");
    if (c->dump && !*c->dump) c->dump = NULL;
    return COLL_OK;
}

/* Is there to be a thread that moves operations on?  Who wants no thread for the signs of life wants none for this. */
static coll_status coll__settle_background(coll_config *c)
{
    const char *text = c->background == 0 ? coll__environment("COLL_BACKGROUND") : NULL;

    if (text && strcmp(text, "on") && strcmp(text, "off"))
        return coll__start_failed(COLL_ERR_ARGUMENT, "COLL_BACKGROUND=%.40s is neither on nor off", text);
    if (text) c->background = strcmp(text, "on") ? -1 : 1;
    else if (c->background == 0) c->background = c->liveness_timeout_ms < 0 ? -1 : 1;
    return COLL_OK;
}

/* ---- >>security: the key, and what it is for ---- */

/* The first line of a file that nobody else may use. */
static coll_status coll__read_key_file(coll__settings *s, const char *path)
{
    struct stat about;
    size_t length = 0;
    ssize_t got = 1;
    const int fd = open(path, O_RDONLY | O_CLOEXEC);

    if (fd < 0) return coll__start_failed(COLL_ERR_ARGUMENT, "COLL_KEY_FILE=%.160s: %s", path, strerror(errno));
    const char *const fault = fstat(fd, &about) ? strerror(errno) : coll__key_file_fault(&about, geteuid());
    while (!fault && got > 0 && length < sizeof s->key - 1 && !memchr(s->key, '\n', length)) {
        got = read(fd, s->key + length, sizeof s->key - 1 - length);
        if (got > 0) length += (size_t)got;
    }
    const int error = errno;
    close(fd);
    if (fault) return coll__start_failed(COLL_ERR_ARGUMENT, "COLL_KEY_FILE=%.160s: %s", path, fault);
    if (got < 0) return coll__start_failed(COLL_ERR_ARGUMENT, "COLL_KEY_FILE=%.160s: %s", path, strerror(error));
    s->key[length] = '\0';
    s->key[strcspn(s->key, "\r\n")] = '\0';
    return COLL_OK;
}

/* "open", "key" or "tls", "check" beside it or alone: as bits, 0: not said. */
static bool coll__read_security(const char *text, int *auth, bool *is_open)
{
    static const struct { const char *name; int auth; } words[] = {
        { "open", COLL__AUTH_NONE }, { "key", COLL__AUTH_KEY }, { "tls", COLL__AUTH_TLS }, { "check", COLL__AUTH_CHECK }
    };

    for (const char *at = text; *at; at += strspn(at, "+")) {
        const size_t length = strcspn(at, "+");
        size_t i = 0;
        while (i < 4 && (strlen(words[i].name) != length || strncmp(at, words[i].name, length))) i++;
        const bool has_kind = *is_open || (*auth & COLL__AUTH_KIND);
        if (i == 4 || (i < 3 && has_kind)) return false;
        *auth |= words[i].auth;
        *is_open = *is_open || i == 0;
        at += length;
    }
    return true;
}

static coll_status coll__settle_security(coll__settings *s)
{
    const char *key = s->config.tcp.key ? s->config.tcp.key : getenv("COLL_KEY"), *path = getenv("COLL_KEY_FILE");
    const char *text = s->config.tcp.security ? s->config.tcp.security : getenv("COLL_SECURITY");
    const char *name = s->config.tcp.key ? "key" : key ? "COLL_KEY" : "the key in COLL_KEY_FILE";
    coll_status status = COLL_OK;

    if (key) coll__print(s->key, sizeof s->key, "%s", key);
    else if (path && *path) status = coll__read_key_file(s, path);
    const bool has_key = key || (path && *path);
    const size_t length = strlen(s->key);
    if (status < 0) return status;
    if (has_key && (length < COLL__KEY_LEAST || length > COLL__KEY_MOST))
        return coll__start_failed(COLL_ERR_ARGUMENT, "%s is %s than %d bytes; a key has %d to %d, best 32 at random", name,
                                  length < COLL__KEY_LEAST ? "shorter" : "longer",
                                  length < COLL__KEY_LEAST ? COLL__KEY_LEAST : COLL__KEY_MOST, COLL__KEY_LEAST, COLL__KEY_MOST);
    if (text && !coll__read_security(text, &s->auth, &s->is_open))
        return coll__start_failed(COLL_ERR_ARGUMENT, "security \"%.40s\" is none of open, key, tls, open+check, key+check, check",
                                  text);
    if (has_key && s->is_open)
        return coll__start_failed(COLL_ERR_ARGUMENT, "security is \"%.40s\", but there is a key, too: which one is meant?", text);
    if (!has_key && (s->auth & COLL__AUTH_KIND))
        return coll__start_failed(COLL_ERR_ARGUMENT, "security is \"%.40s\", but there is no key: set COLL_KEY or COLL_KEY_FILE",
                                  text);
#if defined(COLL_WITH_OPENSSL)
    if (has_key && s->auth == 0) s->auth = COLL__AUTH_TLS;
#else
    if (s->auth & COLL__AUTH_TLS)
        return coll__start_failed(COLL_ERR_UNSUPPORTED, "security is \"%.40s\", but this program was compiled without "
                                  "COLL_WITH_OPENSSL", text);
#endif
    if (has_key && !(s->auth & COLL__AUTH_KIND)) s->auth |= COLL__AUTH_KEY;
    if (s->auth & COLL__AUTH_TLS) s->auth &= ~COLL__AUTH_CHECK;           /* it sees every change by itself   */
    s->config.tcp.key = NULL;
    return COLL_OK;
}

/* A program whose arithmetic the compiler has changed has other bits than the other ranks, whoever they are. */
static coll_status coll__settle_arithmetic(coll__settings *s)
{
    char says[160];

    s->arithmetic = coll__arithmetic();
    if (!(s->arithmetic & COLL__COMPILED)) return COLL_OK;
    coll__arithmetic_text(s->arithmetic & COLL__COMPILED, says, sizeof says);
    return coll__start_failed(COLL_ERR_UNSUPPORTED, "this copy of coll.h is compiled with flags that change the bits of results: "
                              "it %s; compile it without -ffast-math, parts of it, and -ffp-contract=fast", says);
}

/* For `count` ranks of this process. */
static coll_status coll__settle(coll__settings *s, const coll_config *config, int count)
{
    coll_status status;

    memset(s, 0, sizeof *s);                      /* a compound literal would be long, and on the stack       */
    s->count = count;
    s->local_size = 1;
    s->processors = coll__processors();
    s->numbers.link = s->numbers.nominal = coll__link_default;
    if (config) s->config = *config;
    coll_config *c = &s->config;
    if ((status = coll__settle_arithmetic(s)) < 0) return status;
    if ((status = coll__settle_rank(s)) < 0 || (status = coll__settle_log(c)) < 0
        || (status = coll__settle_algorithms(s)) < 0) return status;
    if (c->size > count && ((status = coll__settle_address(s)) < 0 || (status = coll__settle_security(s)) < 0)) return status;
    coll__settle_world(s);
    coll__settle_network(s);
    if (!c->transport) c->transport = getenv("COLL_TRANSPORT");
    if (c->transport && !*c->transport) c->transport = NULL;
    if (!c->tcp.io) c->tcp.io = getenv("COLL_IO");
    if (!c->tcp.io || !*c->tcp.io) c->tcp.io = "auto";
    if (strcmp(c->tcp.io, "auto") && strcmp(c->tcp.io, "uring") && strcmp(c->tcp.io, "poll"))
        return coll__start_failed(COLL_ERR_ARGUMENT, "io \"%s\" is none of auto, uring, poll", c->tcp.io);
    if (c->start_timeout_ms <= 0 && !coll__environment_int("COLL_START_TIMEOUT_MS", 1, INT_MAX, &c->start_timeout_ms))
        return COLL_ERR_ARGUMENT;
    if (c->start_timeout_ms <= 0) c->start_timeout_ms = 60000;
    if ((status = coll__settle_failure(c)) < 0) return status;
    if (c->tcp.lanes == 0 && !coll__environment_int("COLL_LANES", 1, COLL__LANES_MOST, &c->tcp.lanes)) return COLL_ERR_ARGUMENT;
    if (c->tcp.lanes < 0 || c->tcp.lanes > COLL__LANES_MOST)
        return coll__start_failed(COLL_ERR_ARGUMENT, "lanes %d is out of range: 1 to %d", c->tcp.lanes, COLL__LANES_MOST);
    if (c->spin_us == 0 && getenv("COLL_SPIN_US")) {
        if (!coll__environment_int("COLL_SPIN_US", 0, 1000000, &c->spin_us)) return COLL_ERR_ARGUMENT;
        if (c->spin_us == 0) c->spin_us = -1;
    }
    if ((status = coll__settle_background(c)) < 0) return status;
    if (c->tcp.share_memory == 0) {
        int shares = 1;
        if (!coll__environment_int("COLL_SHARE", 0, 1, &shares)) return COLL_ERR_ARGUMENT;
        c->tcp.share_memory = shares ? 0 : -1;
    }
    return COLL_OK;
}

#endif /* COLL_CONFIG_H */
