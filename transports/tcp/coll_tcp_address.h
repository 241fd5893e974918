/* coll_tcp_address.h - addresses: as text and as 16 bytes on the wire; name resolution. */
#ifndef COLL_TCP_ADDRESS_H
#define COLL_TCP_ADDRESS_H

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

typedef struct coll__address {
    struct sockaddr_storage at;
    socklen_t length;
} coll__address;

enum { COLL__ADDRESS_TEXT = 80, COLL__ADDRESSES_MOST = 8 };

/* "127.0.0.1:5000" or "[::1]:5000" */
static const char *coll__address_text(const coll__address *a, char *text, size_t room)
{
    char host[INET6_ADDRSTRLEN] = "?";

    if (a->at.ss_family == AF_INET6) {
        const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)(const void *)&a->at;
        inet_ntop(AF_INET6, &v6->sin6_addr, host, sizeof host);
        coll__print(text, room, "[%s]:%d", host, ntohs(v6->sin6_port));
    } else {
        const struct sockaddr_in *v4 = (const struct sockaddr_in *)(const void *)&a->at;
        inet_ntop(AF_INET, &v4->sin_addr, host, sizeof host);
        coll__print(text, room, "%s:%d", host, ntohs(v4->sin_port));
    }
    return text;
}

static const unsigned char coll__v4_prefix[12] = { 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff };

/* To and from 16 bytes (IPv6, or IPv4 mapped into it) and a port. */
static void coll__address_pack(const coll__address *a, unsigned char *bytes, int *port)
{
    if (a->at.ss_family == AF_INET6) {
        const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)(const void *)&a->at;
        memcpy(bytes, &v6->sin6_addr, 16);
        *port = ntohs(v6->sin6_port);
    } else {
        const struct sockaddr_in *v4 = (const struct sockaddr_in *)(const void *)&a->at;
        memcpy(bytes, coll__v4_prefix, 12);
        memcpy(bytes + 12, &v4->sin_addr, 4);
        *port = ntohs(v4->sin_port);
    }
}

static coll__address coll__address_unpack(const unsigned char *bytes, int port)
{
    coll__address a = { .length = sizeof(struct sockaddr_in6) };

    if (!memcmp(bytes, coll__v4_prefix, 12)) {
        struct sockaddr_in v4 = { .sin_family = AF_INET, .sin_port = htons((uint16_t)port) };
        memcpy(&v4.sin_addr, bytes + 12, 4);
        memcpy(&a.at, &v4, sizeof v4);
        a.length = sizeof v4;
    } else {
        struct sockaddr_in6 v6 = { .sin6_family = AF_INET6, .sin6_port = htons((uint16_t)port) };
        memcpy(&v6.sin6_addr, bytes, 16);
        memcpy(&a.at, &v6, sizeof v6);
    }
    return a;
}

/* The same address with another port. */
static coll__address coll__with_port(coll__address a, int port)
{
    if (a.at.ss_family == AF_INET6) ((struct sockaddr_in6 *)(void *)&a.at)->sin6_port = htons((uint16_t)port);
    else ((struct sockaddr_in *)(void *)&a.at)->sin_port = htons((uint16_t)port);
    return a;
}

static bool coll__is_same_address(const coll__address *a, const coll__address *b)
{
    return a->length == b->length && !memcmp(&a->at, &b->at, a->length);
}

/* The interface of a link-local address; 0: any. */
static uint32_t coll__address_scope(const coll__address *a)
{
    return a->at.ss_family == AF_INET6 ? ((const struct sockaddr_in6 *)(const void *)&a->at)->sin6_scope_id : 0;
}

/* The wildcard address: both families through one socket. */
static coll__address coll__address_wide(int port)
{
    static const unsigned char any[16] = { 0 };
    return coll__address_unpack(any, port);
}

static bool coll__is_loopback(const unsigned char *bytes)
{
    static const unsigned char v6[16] = { 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1 };
    return !memcmp(bytes, v6, 16) || (!memcmp(bytes, coll__v4_prefix, 12) && bytes[12] == 127);
}

/* fe80::/10: valid on one link only, so it needs an interface. */
static bool coll__is_link_local(const unsigned char *bytes) { return bytes[0] == 0xfe && (bytes[1] & 0xc0) == 0x80; }

static bool coll__is_wide(const unsigned char *bytes)
{
    static const unsigned char any[16] = { 0 }, v4[4] = { 0 };
    return !memcmp(bytes, any, 16) || (!memcmp(bytes, coll__v4_prefix, 12) && !memcmp(bytes + 12, v4, 4));
}

/* Append an address, unless it is in the list or the list is full. */
static void coll__addresses_add(unsigned char (*list)[16], int *count, int most, const unsigned char *bytes)
{
    for (int i = 0; i < *count; i++) if (!memcmp(list[i], bytes, 16)) return;
    if (*count < most) memcpy(list[(*count)++], bytes, 16);
}

/* Is this a numeric address, not a name? */
static bool coll__is_literal(const char *host)
{
    unsigned char bytes[16];
    return strchr(host, ':') || inet_pton(AF_INET, host, bytes) == 1;
}

/* ---- >>resolving ---- */

/* The usable results of getaddrinfo. */
static int coll__resolved(const struct addrinfo *found, coll__address *list)
{
    int count = 0;

    for (; found && count < COLL__ADDRESSES_MOST; found = found->ai_next) {
        coll__address a = { .length = found->ai_addrlen };
        unsigned char bytes[16];
        int port;
        bool is_known = false;
        if ((found->ai_family != AF_INET && found->ai_family != AF_INET6) || found->ai_addrlen > sizeof a.at) continue;
        memcpy(&a.at, found->ai_addr, found->ai_addrlen);
        coll__address_pack(&a, bytes, &port);
        if (coll__is_link_local(bytes) && !coll__address_scope(&a)) continue;
        for (int i = 0; i < count; i++) is_known = is_known || coll__is_same_address(&list[i], &a);
        if (!is_known) list[count++] = a;
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
