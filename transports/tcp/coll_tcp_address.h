/* coll_tcp_address.h - addresses: as 16 bytes on the wire, as text, of sockets, of names. */
#ifndef COLL_TCP_ADDRESS_H
#define COLL_TCP_ADDRESS_H

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

/* An address as on the wire: IPv6, or IPv4 mapped into it. */
typedef struct coll__address {
    unsigned char bytes[16];                      /* zeros: the wildcard address of both families             */
    int port;                                     /* 0: any, or unknown                                       */
    uint32_t scope;                               /* the interface of a link-local address; 0: any            */
} coll__address;

enum { COLL__ADDRESS_TEXT = 80, COLL__ADDRESSES_MOST = 8 };

static const unsigned char coll__v4_prefix[12] = { 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff };

static bool coll__is_v4(const unsigned char *bytes) { return !memcmp(bytes, coll__v4_prefix, sizeof coll__v4_prefix); }

static int coll__family_of(const coll__address *a) { return coll__is_v4(a->bytes) ? AF_INET : AF_INET6; }

/* "127.0.0.1:5000" or "[::1]:5000" */
static const char *coll__address_text(const coll__address *a, char *text, size_t room)
{
    const bool is_v4 = coll__is_v4(a->bytes);
    char host[INET6_ADDRSTRLEN] = "?";

    inet_ntop(coll__family_of(a), a->bytes + (is_v4 ? 12 : 0), host, sizeof host);
    coll__print(text, room, is_v4 ? "%s:%d" : "[%s]:%d", host, a->port);
    return text;
}

static coll__address coll__address_with(const unsigned char *bytes, int port)
{
    coll__address a = { .port = port };

    memcpy(a.bytes, bytes, sizeof a.bytes);
    return a;
}

/* From the system's form: an IPv4 or IPv6 address. */
static coll__address coll__address_from(const struct sockaddr *at)
{
    coll__address a = { .port = 0 };
    struct sockaddr_in6 v6;
    struct sockaddr_in v4;

    if (at->sa_family == AF_INET6) {
        memcpy(&v6, at, sizeof v6);
        memcpy(a.bytes, &v6.sin6_addr, 16);
        a.port = ntohs(v6.sin6_port);
        a.scope = v6.sin6_scope_id;
    } else {
        memcpy(&v4, at, sizeof v4);
        memcpy(a.bytes, coll__v4_prefix, 12);
        memcpy(a.bytes + 12, &v4.sin_addr, 4);
        a.port = ntohs(v4.sin_port);
    }
    return a;
}

/* To the system's form; returns its length. */
static socklen_t coll__address_to(const coll__address *a, struct sockaddr_storage *at)
{
    struct sockaddr_in v4 = { .sin_family = AF_INET, .sin_port = htons((uint16_t)a->port) };
    struct sockaddr_in6 v6 = { .sin6_family = AF_INET6, .sin6_port = v4.sin_port, .sin6_scope_id = a->scope };
    const bool is_v4 = coll__is_v4(a->bytes);

    memcpy(&v4.sin_addr, a->bytes + 12, 4);
    memcpy(&v6.sin6_addr, a->bytes, 16);
    memcpy(at, is_v4 ? (void *)&v4 : (void *)&v6, is_v4 ? sizeof v4 : sizeof v6);
    return is_v4 ? sizeof v4 : sizeof v6;
}

static bool coll__is_same_address(const coll__address *a, const coll__address *b)
{
    return !memcmp(a->bytes, b->bytes, sizeof a->bytes) && a->port == b->port && a->scope == b->scope;
}

static bool coll__is_loopback(const unsigned char *bytes)
{
    static const unsigned char v6[16] = { 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1 };
    return !memcmp(bytes, v6, 16) || (coll__is_v4(bytes) && bytes[12] == 127);
}

/* fe80::/10: valid on one link only, so it needs an interface. */
static bool coll__is_link_local(const unsigned char *bytes) { return bytes[0] == 0xfe && (bytes[1] & 0xc0) == 0x80; }

static bool coll__is_wide(const unsigned char *bytes)
{
    static const unsigned char any[16] = { 0 };
    return !memcmp(bytes + (coll__is_v4(bytes) ? 12 : 0), any, coll__is_v4(bytes) ? 4 : 16);
}

/* Append an address, unless it is in the list or the list is full. */
static void coll__addresses_add(unsigned char (*list)[16], int *count, const unsigned char *bytes)
{
    for (int i = 0; i < *count; i++) if (!memcmp(list[i], bytes, 16)) return;
    if (*count < COLL__ENDPOINT_ADDRESSES) memcpy(list[(*count)++], bytes, 16);
}

/* Is this a numeric address, not a name? */
static bool coll__is_literal(const char *host)
{
    unsigned char bytes[16];
    return strchr(host, ':') || inet_pton(AF_INET, host, bytes) == 1;
}

/* ---- >>sockets ---- */

static bool coll__bind(int fd, const coll__address *a)
{
    struct sockaddr_storage at;
    return !bind(fd, (const struct sockaddr *)&at, coll__address_to(a, &at));
}

static bool coll__connect(int fd, const coll__address *a)
{
    struct sockaddr_storage at;
    return !connect(fd, (const struct sockaddr *)&at, coll__address_to(a, &at));
}

/* The address of one end of a connection; port 0: there is none. */
static coll__address coll__name_of(int fd, bool of_peer)
{
    struct sockaddr_storage at;
    socklen_t length = sizeof at;

    if (of_peer ? getpeername(fd, (struct sockaddr *)&at, &length) : getsockname(fd, (struct sockaddr *)&at, &length))
        return (coll__address){ .port = 0 };
    return coll__address_from((const struct sockaddr *)&at);
}

/* ---- >>resolving ---- */

/* The usable results of getaddrinfo. */
static int coll__resolved(const struct addrinfo *found, coll__address *list)
{
    int count = 0;

    for (; found && count < COLL__ADDRESSES_MOST; found = found->ai_next) {
        bool is_usable = found->ai_family == AF_INET || found->ai_family == AF_INET6;
        if (!is_usable) continue;
        const coll__address a = coll__address_from(found->ai_addr);
        is_usable = !coll__is_link_local(a.bytes) || a.scope;
        for (int i = 0; i < count; i++) is_usable = is_usable && !coll__is_same_address(&list[i], &a);
        if (is_usable) list[count++] = a;
    }
    return count;
}

/* All addresses of "host:port", at most COLL__ADDRESSES_MOST.  Returns NULL, or the error.  *may_come: a retry may succeed,
 * for names may be published late. */
static const char *coll__resolve(const char *text, bool is_to_listen, coll__address *list, int *count, bool *may_come)
{
    char host[256], service[16];
    int port = 0;
    struct addrinfo want = { .ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV | (is_to_listen ? AI_PASSIVE : 0) }, *found;

    *may_come = false;
    *count = 0;
    if (!coll__address_split(text, host, sizeof host, &port)) return coll__address_fault(text);
    if (port == 0 && !is_to_listen) return "port 0 stands for any port, of the form host:port that rank 0 tells when it listens";
    coll__print(service, sizeof service, "%d", port);
    const int error = getaddrinfo(*host ? host : NULL, service, &want, &found);
    *may_come = error == EAI_AGAIN || error == EAI_NONAME;
    if (error) return error == EAI_SYSTEM ? strerror(errno) : gai_strerror(error);
    *count = coll__resolved(found, list);
    freeaddrinfo(found);
    return *count > 0 ? NULL : "it has only link-local addresses, which need their interface ([fe80::1%eth0]:port)";
}

#endif /* COLL_TCP_ADDRESS_H */
