/* coll_tcp_config.h - the network settings, from the program, the environment and the launcher. */
#ifndef COLL_TCP_CONFIG_H
#define COLL_TCP_CONFIG_H

#include <fcntl.h>

/* Security of a connection; the same at both ends. */
enum { COLL__AUTH_NONE, COLL__AUTH_KEY, COLL__AUTH_TLS, COLL__AUTH_KIND = 3, COLL__AUTH_CHECK = 4 };
enum { COLL__KEY_LEAST = 16, COLL__KEY_MOST = 1024 };

enum { COLL__LANES_MOST = 16, COLL__NETWORK_ROOM = 256 };

static bool coll__tcp_defaults(coll_config *c)
{
    coll_tcp *const t = &c->tcp;

    coll__settle_text(&t->io, "COLL_IO", "auto", false);
    if (coll__word_number("auto, uring, poll", t->io) < 0)
        coll__start_failed(COLL_ERR_ARGUMENT, "io \"%.40s\" is none of auto, uring, poll", t->io);
    else if (t->lanes < 0 || t->lanes > COLL__LANES_MOST)
        coll__start_failed(COLL_ERR_ARGUMENT, "tcp.lanes %d is out of range: 1 to %d", t->lanes, COLL__LANES_MOST);
    else
        return coll__settle_text(&c->world, "COLL_WORLD", "", false)
            && coll__settle_text(&t->network, "COLL_NETWORK", NULL, true)
            && coll__settle_text(&t->ports, "COLL_PORTS", NULL, true)
            && coll__settle_text(&t->security, "COLL_SECURITY", NULL, false)
            && coll__settle_number(&t->lanes, "COLL_LANES", COLL__LANES_MOST, 0, NULL)
            && coll__settle_switch(&t->share_memory, "COLL_SHARE")
            && coll__settle_switch(&t->shm_collectives, "COLL_SHM_COLLECTIVES");
    return false;
}

/* The resolved network configuration of a rank.  It contains the key, which coll__tcp_settings_free wipes. */
typedef struct coll__tcp_settings {
    coll_config config;
    coll__bootstrap place;                        /* from the launcher's variables                            */
    char        world[COLL__WORLD_ROOM];
    char        network[COLL__NETWORK_ROOM];      /* converted from another library's variable                */
    const char *network_source;                   /* that variable; NULL: not used                            */
    uint32_t    arithmetic;                       /* coll__arithmetic of this program                         */
    int         auth;                             /* COLL__AUTH_...                                           */
    bool        is_open;                          /* public addresses may be used without a key               */
    bool        lacks_tls;                        /* with a key, but `security` unset and no TLS compiled in  */
    bool        is_newcomer;                      /* of coll_join                                             */
    char        key[COLL__KEY_MOST + 2];
} coll__tcp_settings;

static void coll__tcp_settings_free(coll__tcp_settings *s)
{
    if (s) coll__wipe(s->key, sizeof s->key);
    coll__give(s);
}

/* ---- >>address of rank 0, list of hosts, network ---- */

/* The list of hosts gives the address of rank 0, and must have one entry per rank. */
static coll_status coll__settle_hosts(coll__tcp_settings *s, const coll__settings *of, const char *address)
{
    coll_config *c = &s->config;
    char *const first = s->place.address;

    if (coll__hosts_count(c->tcp.hosts) != c->size)
        return coll__start_failed(COLL_ERR_ARGUMENT, "the list of hosts has %d entries for %d ranks (from %s): name one "
                                  "host:port for each rank", coll__hosts_count(c->tcp.hosts), c->size, of->source);
    for (int i = c->size - 1; i >= 0; i--)        /* the last one is that of rank 0                           */
        if (!coll__hosts_entry(c->tcp.hosts, i, first, sizeof s->place.address))
            return coll__start_failed(COLL_ERR_ARGUMENT, "entry %d of the list of hosts is empty or too long: %.120s", i,
                                      c->tcp.hosts);
    if (address && strcmp(address, first))
        return coll__start_failed(COLL_ERR_ARGUMENT,
                                  "the list of hosts begins with %.80s, but COLL_ADDR=%.80s is set too: unset one of them",
                                  first, address);
    c->address = first;
    return COLL_OK;
}

static coll_status coll__settle_address(coll__tcp_settings *s, const coll__settings *of)
{
    coll_config *c = &s->config;
    const char *const address = coll__environment("COLL_ADDR");

    if (c->address && !*c->address) c->address = NULL;
    if (c->tcp.hosts && !*c->tcp.hosts) c->tcp.hosts = NULL;
    const bool is_unset = !c->address && !c->tcp.hosts;
    if (is_unset) c->tcp.hosts = coll__environment("COLL_HOSTS");
    if (c->tcp.hosts) return coll__settle_hosts(s, of, is_unset ? address : NULL);
    if (is_unset) c->address = address;
    if (!c->address) {
        const coll_status status = coll__launch_where(&s->place, &of->launch);
        if (status < 0) return status;
        if (*s->place.address) c->address = s->place.address;
    }
    if (c->address && strlen(c->address) >= COLL__ADDRESS_ROOM)
        return coll__start_failed(COLL_ERR_ARGUMENT, "the address is longer than %d: %.120s", COLL__ADDRESS_ROOM - 1, c->address);
    if (c->address) return COLL_OK;
    const coll__launcher *by = of->launch.by;
    const bool is_spread = by && of->launch.local_size > 0 && of->launch.local_size < c->size;
    return coll__start_failed(COLL_ERR_ARGUMENT, "this is rank %d of %d (from %s)%s, but nothing says where rank 0 is: set "
                              "COLL_ADDR=host:port%s%s%s", c->rank, c->size, of->source, is_spread ? " on several hosts" : "",
                              by && by->where ? " (" : "", by && by->where ? by->where : "", by && by->where ? ")" : "");
}

/* ---- >>security: the key and its use ---- */

/* The values of `security`, by COLL__AUTH_... bits; the last one leaves the kind to the key. */
static const char *const coll__security_words[] = { "open", "key", "tls", "open+check", "key+check", "tls+check", "check" };

static const char *coll__security_name(int auth)
{
    return coll__security_words[(auth & COLL__AUTH_KIND) + (auth & COLL__AUTH_CHECK ? 3 : 0)];
}

/* The first line of a file that only the user may access. */
static coll_status coll__read_key_file(coll__tcp_settings *s, const char *path)
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

static coll_status coll__settle_security(coll__tcp_settings *s)
{
    const char *key = s->config.tcp.key ? s->config.tcp.key : coll__variable("COLL_KEY"), *path = coll__variable("COLL_KEY_FILE");
    const char *text = s->config.tcp.security && *s->config.tcp.security ? s->config.tcp.security : NULL;
    const char *name = s->config.tcp.key ? "key" : key ? "COLL_KEY" : "the key in COLL_KEY_FILE";
    coll_status status = COLL_OK;
    int word = 0;

    if (!COLL__HAS_SECURITY) {                    /* a key must not be ignored                                */
        s->is_open = text && !strcmp(text, "open");
        if (!key && !(path && *path) && (!text || s->is_open)) return COLL_OK;
        return coll__start_failed(COLL_ERR_UNSUPPORTED, "there is a key, or security other than \"open\", but this program was "
                                  "compiled with COLL_NO_SECURITY");
    }
    if (key) coll__print(s->key, sizeof s->key, "%s", key);
    else if (path && *path) status = coll__read_key_file(s, path);
    const bool has_key = key || (path && *path);
    const size_t length = strlen(s->key);
    if (status < 0) return status;
    if (has_key && (length < COLL__KEY_LEAST || length > COLL__KEY_MOST))
        return coll__start_failed(COLL_ERR_ARGUMENT, "%s is %s than %d bytes; a key has %d to %d, best 32 at random", name,
                                  length < COLL__KEY_LEAST ? "shorter" : "longer",
                                  length < COLL__KEY_LEAST ? COLL__KEY_LEAST : COLL__KEY_MOST, COLL__KEY_LEAST, COLL__KEY_MOST);
    while (text && word < 7 && strcmp(text, coll__security_words[word])) word++;
    if (word == 7)
        return coll__start_failed(COLL_ERR_ARGUMENT, "security \"%.40s\" is none of open, key, tls, open+check, key+check, check",
                                  text);
    s->is_open = text && word % 3 == 0 && word < 6;
    s->auth = (word < 6 ? word % 3 : COLL__AUTH_NONE) | (word < 3 ? 0 : COLL__AUTH_CHECK);
    if (has_key && s->is_open)
        return coll__start_failed(COLL_ERR_ARGUMENT, "security is \"%.40s\", but there is a key, too: which one is meant?", text);
    if (!has_key && (s->auth & COLL__AUTH_KIND))
        return coll__start_failed(COLL_ERR_ARGUMENT, "security is \"%.40s\", but there is no key: set COLL_KEY or COLL_KEY_FILE",
                                  text);
#if defined(COLL_WITH_OPENSSL)
    if (has_key && s->auth == 0) s->auth = COLL__AUTH_TLS;
#else
    s->lacks_tls = has_key && s->auth == 0;
    if (s->auth & COLL__AUTH_TLS)
        return coll__start_failed(COLL_ERR_UNSUPPORTED, "security is \"%.40s\", but this program was compiled without "
                                  "COLL_WITH_OPENSSL", text);
#endif
    if (has_key && !(s->auth & COLL__AUTH_KIND)) s->auth |= COLL__AUTH_KEY;
    if (s->auth & COLL__AUTH_TLS) s->auth &= ~COLL__AUTH_CHECK;           /* TLS detects every change         */
    s->config.tcp.key = NULL;
    return COLL_OK;
}

/* Reject settings of features that are not compiled in. */
static coll_status coll__settle_left_out(const coll_config *of)
{
    const coll_tcp *c = &of->tcp;

    if (!COLL__HAS_NETWORKS && (c->network || c->ports || !strncmp(of->address, "file:", 5)))
        return coll__start_failed(COLL_ERR_UNSUPPORTED, "network, ports, or rank 0 in a file is set, but this program was "
                                  "compiled with COLL_NO_NETWORKS");
    if (c->share_memory > 0 && !COLL__HAS_SHM)
        return coll__start_failed(COLL_ERR_UNSUPPORTED, "share_memory is on, but this program was compiled with COLL_NO_SHM");
    if (c->shm_collectives > 0 && !COLL__HAS_DOMAIN)
        return coll__start_failed(COLL_ERR_UNSUPPORTED, "shm_collectives is on, but this program was compiled with %s",
                                  COLL__HYBRID_WITHOUT);
    if (c->lanes > 1 && !COLL__IS_WHOLE)
        return coll__start_failed(COLL_ERR_UNSUPPORTED, "lanes is %d, but this program was compiled with " COLL__PROFILE,
                                  c->lanes);
    return COLL_OK;
}

static coll_status coll__tcp_configure(coll__tcp_settings *s, const coll__settings *of)
{
    coll_tcp *const c = &s->config.tcp;
    coll_status status;

    memset(s, 0, sizeof *s);
    s->config = of->config;
    s->arithmetic = of->arithmetic;
    s->is_newcomer = of->is_newcomer;
    coll__launch_job(&s->place, &of->launch);
    if ((status = coll__settle_address(s, of)) < 0 || (status = coll__settle_left_out(&s->config)) < 0) return status;
    if (s->is_newcomer && !strncmp(s->config.address, "file:", 5))
        return coll__start_failed(COLL_ERR_ARGUMENT, "join: a rendezvous file is only for the start of a job: give host:port");
    if ((status = coll__settle_security(s)) < 0) return status;
    if (*s->place.job) {                          /* its name becomes part of the world name                  */
        coll__print(s->world, sizeof s->world, "%s %s", s->place.job, s->config.world);
        s->config.world = s->world;
    }
    if (!c->network && s->place.is_on_one_host) c->network = "127.0.0.1";
    if (!c->network && (s->network_source = coll__launch_network(s->network, sizeof s->network))) c->network = s->network;
    return COLL_OK;
}

/* On the heap, for it is large and stacks may be small.  NULL: error in *status. */
static coll__tcp_settings *coll__tcp_settings_new(const coll__settings *of, coll_status *status)
{
    coll__tcp_settings *s = (coll__tcp_settings *)coll__allocate(of->config.allocator, sizeof *s);

    *status = s ? coll__tcp_configure(s, of) : coll__start_failed(COLL_ERR_MEMORY, "no memory for the settings of a rank");
    if (*status == COLL_OK) return s;
    coll__tcp_settings_free(s);
    return NULL;
}

#endif /* COLL_TCP_CONFIG_H */
