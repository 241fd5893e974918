/* coll_tcp_network.h - which of this host's addresses and ports are used, if configured.
 *
 * `network` is a list of words, separated by commas: an interface ("eth1"), a prefix of interface names ("ib*"), an address
 * ("10.1.0.7"), a subnet ("10.1.0.0/16").  Words after a "^" are exceptions.  A list of exceptions only selects all other
 * addresses but loopback.  The addresses have the order of the words. */
#ifndef COLL_TCP_NETWORK_H
#define COLL_TCP_NETWORK_H

#include <ifaddrs.h>
#include <net/if.h>

/* The local addresses and ports of a rank, if configured. */
typedef struct coll__network {
    unsigned char addresses[COLL__ENDPOINT_ADDRESSES][16];
    int count;                                    /* 0: by the route to rank 0                                */
    int port_first, port_last;                    /* 0: any free port                                         */
    uint32_t scope;                               /* the interface of link-local addresses                    */
} coll__network;

/* The address of an entry; false: unusable. */
static bool coll__interface_address(const struct ifaddrs *one, unsigned char *bytes)
{
    if (!one->ifa_addr || !(one->ifa_flags & IFF_UP)) return false;
    if (one->ifa_addr->sa_family != AF_INET && one->ifa_addr->sa_family != AF_INET6) return false;
    const coll__address a = coll__address_from(one->ifa_addr);
    memcpy(bytes, a.bytes, sizeof a.bytes);
    return !coll__is_link_local(bytes);
}

/* Addresses to publish if none is configured: those of the default route, then all others but loopback; loopback if there is
 * no other. */
static int coll__network_usual(unsigned char (*out)[16])
{
    static const unsigned char far_away[][16] = { /* 192.0.2.1 and 2001:db8::1: for documentation, never reached */
        { 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 192, 0, 2, 1 }, { 0x20, 0x01, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1 }
    };
    static const unsigned char loopback[16] = { 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 127, 0, 0, 1 };
    unsigned char bytes[16];
    struct ifaddrs *all;
    int count = 0;

    for (int i = 0; i < 2; i++) {
        const coll__address a = coll__address_with(far_away[i], 9);
        const int fd = coll__socket(coll__family_of(&a), SOCK_DGRAM, true);     /* sends nothing; queries the route */
        coll__address here = { .port = 0 };
        if (fd >= 0 && coll__connect(fd, &a)) here = coll__name_of(fd, false);
        if (here.port > 0 && !coll__is_link_local(here.bytes) && !coll__is_loopback(here.bytes))
            coll__addresses_add(out, &count, here.bytes);
        if (fd >= 0) close(fd);
    }
    if (!getifaddrs(&all)) {
        for (const struct ifaddrs *one = all; one; one = one->ifa_next)
            if (strcmp(one->ifa_name, "lo") && coll__interface_address(one, bytes) && !coll__is_loopback(bytes))
                coll__addresses_add(out, &count, bytes);
        freeifaddrs(all);
    }
    if (count == 0) coll__addresses_add(out, &count, loopback);
    return count;
}

/* ---- >>configured network and ports ---- */

/* Does a word match this interface or its address? */
static bool coll__network_word(const char *word, size_t length, const char *name, const unsigned char *bytes)
{
    char text[INET6_ADDRSTRLEN + 8];
    unsigned char want[16];
    int bits = 128;

    if (length > 0 && word[length - 1] == '*') return !strncmp(name, word, length - 1);
    if (strlen(name) == length && !memcmp(name, word, length)) return true;
    if (length >= sizeof text) return false;
    memcpy(text, word, length);
    text[length] = '\0';
    char *slash = strchr(text, '/');
    if (slash) *slash++ = '\0';
    if (inet_pton(AF_INET, text, want + 12) == 1) {
        memcpy(want, coll__v4_prefix, 12);
        if (slash && !coll__parse_int(slash, 0, 32, &bits)) return false;
        if (slash) bits += 96;
    } else if (inet_pton(AF_INET6, text, want) != 1 || (slash && !coll__parse_int(slash, 0, 128, &bits))) {
        return false;
    }
    if (memcmp(want, bytes, (size_t)bits / 8)) return false;
    return bits % 8 == 0 || ((want[bits / 8] ^ bytes[bits / 8]) & (0xff00 >> bits % 8) & 0xff) == 0;
}

/* The next word that is, or is not, an exception.  NULL: no more. */
static const char *coll__network_next(const char **at, bool want_exception, bool *is_exception, size_t *length)
{
    while (**at) {
        *at += strspn(*at, ", \t");
        if (**at == '^') {
            *is_exception = true;
            ++*at;
            continue;
        }
        const char *word = *at;
        *length = strcspn(word, ", \t");
        *at += *length;
        if (*length > 0 && *is_exception == want_exception) return word;
    }
    return NULL;
}

static bool coll__network_excepts(const char *rules, const char *name, const unsigned char *bytes)
{
    bool is_exception = false;
    size_t length;

    for (const char *word; (word = coll__network_next(&rules, true, &is_exception, &length));)
        if (coll__network_word(word, length, name, bytes)) return true;
    return false;
}

/* The addresses that the rules select; returns their number. */
static int coll__network_choose(const struct ifaddrs *all, const char *rules, unsigned char (*out)[16])
{
    bool is_exception = false, has_words = false;
    const char *at = rules;
    unsigned char bytes[16];
    size_t length;
    int count = 0;

    for (;;) {
        const char *word = coll__network_next(&at, false, &is_exception, &length);
        if (!word && has_words) return count;
        for (const struct ifaddrs *one = all; one; one = one->ifa_next) {
            if (!coll__interface_address(one, bytes) || coll__network_excepts(rules, one->ifa_name, bytes)) continue;
            if (word ? coll__network_word(word, length, one->ifa_name, bytes) : !coll__is_loopback(bytes))
                coll__addresses_add(out, &count, bytes);
        }
        if (!word) return count;
        has_words = true;
    }
}

/* "lo 127.0.0.1, eth0 10.0.0.7, eth0 fd00::7" */
static void coll__network_text(const struct ifaddrs *all, char *text, size_t room)
{
    unsigned char bytes[16];

    *text = '\0';
    for (; all; all = all->ifa_next) {
        char host[INET6_ADDRSTRLEN] = "?";
        if (!coll__interface_address(all, bytes)) continue;
        const bool is_v4 = coll__is_v4(bytes);
        inet_ntop(is_v4 ? AF_INET : AF_INET6, is_v4 ? bytes + 12 : bytes, host, sizeof host);
        coll__append(text, room, "%s%s %s", *text ? ", " : "", all->ifa_name, host);
    }
}

/* "5000-5099" or "5000" */
static bool coll__ports_read(const char *text, int *first, int *last)
{
    char low[8] = "";
    const size_t length = strcspn(text, "-");

    if (length == 0 || length >= sizeof low) return false;
    memcpy(low, text, length);
    return coll__parse_int(low, 1, 65535, first) && coll__parse_int(text[length] ? text + length + 1 : low, *first, 65535, last);
}

/* Read the configured network and ports. */
static coll_status coll__network_read(coll__network *out, const coll__tcp_settings *settings, const coll__log *log)
{
    const coll_config *c = &settings->config;
    struct ifaddrs *all = NULL;
    char there[200];

    memset(out, 0, sizeof *out);
    if (!COLL__HAS_NETWORKS) return COLL_OK;      /* settings of it are refused elsewhere                     */
    if (c->tcp.ports && !coll__ports_read(c->tcp.ports, &out->port_first, &out->port_last))
        return coll__start_failed(COLL_ERR_ARGUMENT, "ports \"%.40s\" is no range like 5000-5099", c->tcp.ports);
    if (!c->tcp.network) return COLL_OK;
    if (getifaddrs(&all)) return coll__start_failed(COLL_ERR_SYSTEM, "the addresses of this host cannot be read: %s",
                                                    strerror(errno));
    out->count = coll__network_choose(all, c->tcp.network, out->addresses);
    coll__network_text(all, there, sizeof there);
    freeifaddrs(all);
    const char *name = settings->network_source ? settings->network_source : "network";
    if (out->count > 0) {
        if (settings->network_source) coll__say(log, COLL_LOG_INFO, "rank %d: the network is that of %s=%s", c->rank, name,
                                                coll__variable(name));
        return COLL_OK;
    }
    if (settings->network_source) {               /* another library's setting: only a hint                   */
        coll__say(log, COLL_LOG_WARN, "rank %d: %s names no address of this host and is not followed; there is: %s", c->rank,
                  name, there);
        return COLL_OK;
    }
    return coll__start_failed(COLL_ERR_ARGUMENT, "rank %d: network \"%.80s\" names no address of this host; there is: %s",
                              c->rank,
                              c->tcp.network, there);
}

#endif /* COLL_TCP_NETWORK_H */
