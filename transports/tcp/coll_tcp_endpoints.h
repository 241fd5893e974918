/* coll_tcp_endpoints.h - endpoints: how rank 0 collects and distributes them, and which addresses are used.
 *
 * After rank 0's welcome a rank listens at the local address of its control connection, or at its configured address.  It
 * sends this endpoint to rank 0, which adds the address that it sees.  Once all endpoints are known, every rank gets the
 * table.  An endpoint has up to three addresses and one port.  Loopback addresses are valid on one host only, and are removed
 * for other hosts.
 *
 * Ranks on rank 0's host may be connected by loopback, or by an ambiguous address such as that of a container bridge.  If
 * other hosts have ranks, too, rank 0 asks these ranks to listen at the addresses that other hosts used.  They send their
 * endpoints again.  Ranks with a configured network or an entry in a list of hosts do not change. */
#ifndef COLL_TCP_ENDPOINTS_H
#define COLL_TCP_ENDPOINTS_H

#include <ifaddrs.h>
#include <net/if.h>

static bool coll__is_same_host(const coll__endpoint *a, const coll__endpoint *b)
{
    return !memcmp(a->host, b->host, COLL__HOST_LENGTH);
}

/* The first rank of a rank's host identifies the host.  That of the rank before it is tried first.  The caller holds the
 * session. */
static int coll__tcp_host(void *context, int rank)
{
    const coll__tcp *tcp = (const coll__tcp *)context;
    int *const home = &tcp->known[rank].home, before = rank > 0 ? tcp->known[rank - 1].home : 0;

    if (*home == 0 && before > 0 && coll__is_same_host(&tcp->endpoints[before - 1], &tcp->endpoints[rank])) *home = before;
    for (int first = 0; *home == 0; first++)
        if (coll__is_same_host(&tcp->endpoints[first], &tcp->endpoints[rank])) *home = first + 1;
    return *home - 1;
}

static bool coll__endpoint_shares(const coll__endpoint *a, const coll__endpoint *b)
{
    for (int i = 0; i < a->count; i++)
        for (int k = 0; k < b->count; k++) if (!memcmp(a->addresses[i], b->addresses[k], 16)) return true;
    return false;
}

/* ---- >>rank 0: receiving endpoints ---- */

/* Warn once if ranks of other hosts join, and are not protected. */
static void coll__warn_unprotected(coll__tcp *tcp, const unsigned char *host)
{
    const bool is_unsafe = tcp->lacks_tls || (tcp->us.auth == COLL__AUTH_NONE && !tcp->is_open);

    if (!is_unsafe || tcp->has_warned || !memcmp(host, tcp->us.host, sizeof tcp->us.host)) return;
    tcp->has_warned = true;
    coll__say(&tcp->log, COLL_LOG_WARN, "%s", tcp->lacks_tls
              ? "security is \"key\": ranks of other hosts are authenticated, and nothing is encrypted; compile with "
                "-DCOLL_WITH_OPENSSL to encrypt, or set COLL_SECURITY=key to accept this"
              : "security is \"open\": any process that reaches this port may join, read and change what is sent; set "
                "COLL_KEY, or COLL_SECURITY=open to accept this");
}

/* Store the endpoint of rank `index`.  false: invalid. */
static bool coll__endpoint_heard(coll__tcp *tcp, int index, const unsigned char *bytes)
{
    coll__endpoint *endpoint = &tcp->endpoints[index], told;
    const coll__address from = coll__name_of(tcp->controls[index].pipe.fd, true);

    if (!tcp->is_bootstrapping || endpoint->port != 0 || !coll__endpoint_read(bytes, &told) || told.port == 0) return false;
    memcpy(told.host, endpoint->host, sizeof told.host);              /* from its hello                       */
    if (!coll__is_loopback(from.bytes) || told.count == 0) coll__addresses_add(told.addresses, &told.count, from.bytes);
    *endpoint = told;
    COLL__ASSERT(tcp->present_count < tcp->size - 1, "rank %d comes, and %d of %d others are there", index, tcp->present_count,
                 tcp->size - 1);
    tcp->present_count++;
    tcp->short_since = coll__now();               /* accepting works                                          */
    return true;
}

/* Rank `index` was lost during the start; it may connect again. */
static void coll__endpoint_lost(coll__tcp *tcp, int index)
{
    if (tcp->endpoints[index].port != 0) tcp->present_count--;
    tcp->endpoints[index].port = 0;
}

/* The ranks without an endpoint, as ranges. */
static void coll__missing_ranks(const coll__tcp *tcp, char *text, size_t room)
{
    unsigned char *is_missing = (unsigned char *)coll__take_zeros(coll__like(tcp), (size_t)tcp->size, 1);

    *text = '\0';
    for (int i = 1; is_missing && i < tcp->size; i++) is_missing[i] = tcp->endpoints[i].port == 0;
    if (is_missing) coll__append_ranks(text, room, is_missing, tcp->size);
    coll__give(is_missing);
}

/* The addresses by which other hosts' ranks reached this host; returns their number. */
static int coll__outer_addresses(const coll__tcp *tcp, unsigned char (*out)[16])
{
    int count = 0;

    for (int i = 1; i < tcp->size; i++) {
        if (tcp->controls[i].pipe.fd < 0 || coll__is_same_host(&tcp->endpoints[i], &tcp->endpoints[0])) continue;
        const coll__address here = coll__name_of(tcp->controls[i].pipe.fd, false);
        if (!coll__is_loopback(here.bytes)) coll__addresses_add(out, &count, here.bytes);
    }
    return count;
}

static int coll__endpoint_send(coll__pipe *pipe, coll__control_note note, const coll__endpoint *endpoint, int64_t deadline)
{
    unsigned char bytes[COLL__CONTROL_LENGTH];

    coll__control_write(bytes, note, COLL_OK, -1, "");
    coll__endpoint_write(bytes + COLL__CONTROL_TEXT, endpoint);
    return coll__pipe_transfer(pipe, bytes, sizeof bytes, true, deadline);
}

/* Ask ranks of this host that other hosts may not reach to listen at those addresses.  Returns their number; they count as
 * missing until they have sent their endpoints again. */
static int coll__ask_to_listen(coll__tcp *tcp, int64_t deadline)
{
    coll__endpoint outer = { .count = 0 };
    int asked = 0;

    outer.count = coll__outer_addresses(tcp, outer.addresses);
    for (int i = 0; i < outer.count; i++)
        coll__addresses_add(tcp->endpoints[0].addresses, &tcp->endpoints[0].count, outer.addresses[i]);
    for (int i = 1; outer.count > 0 && i < tcp->size; i++) {
        const coll__endpoint *endpoint = &tcp->endpoints[i];
        if (!coll__is_same_host(endpoint, &tcp->endpoints[0]) || coll__endpoint_shares(endpoint, &outer)) continue;
        coll__endpoint_lost(tcp, i);
        (void)coll__endpoint_send(&tcp->controls[i].pipe, COLL__CONTROL_LISTEN, &outer, deadline);
        asked++;
    }
    return asked;
}

/* ---- >>the table ---- */

/* In the place of the table's head: what a newcomer must know of its world. */
static void coll__taken_write(unsigned char *bytes, const coll__tcp *tcp, int rank)
{
    unsigned char *const text = bytes + COLL__CONTROL_TEXT;

    coll__control_write(bytes, COLL__CONTROL_TAKEN, COLL_OK, 0, "");
    memcpy(text, tcp->us.world, COLL__WORLD_LENGTH);
    coll__put32(text + 16, tcp->us.epoch);
    coll__put32(text + 20, (uint32_t)rank);
    coll__put32(text + 24, (uint32_t)tcp->size);
    coll__put32(text + 28, (uint32_t)tcp->voters);
}

/* Bytes of the table: all endpoints, and rank 0's tuning text, ended by a zero. */
static inline size_t coll__table_length(const coll__tcp *tcp)
{
    return (size_t)tcp->size * COLL__ENDPOINT_LENGTH + COLL__TUNING_ROOM;
}

/* Send the table to the ranks from `first` on; to newcomers, with their rank and world.  A rank that died meanwhile is detected
 * later. */
static void coll__send_table(coll__tcp *tcp, int first)
{
    const size_t length = COLL__CONTROL_LENGTH + coll__table_length(tcp);
    unsigned char *bytes = tcp->size > 1 ? (unsigned char *)coll__allocate(coll__like(tcp), length) : NULL;

    if (!bytes) return;
    coll__control_write(bytes, COLL__CONTROL_TABLE, COLL_OK, -1, "");
    for (int r = 0; r < tcp->size; r++)
        coll__endpoint_write(bytes + COLL__CONTROL_LENGTH + (size_t)r * COLL__ENDPOINT_LENGTH, &tcp->endpoints[r]);
    memcpy(bytes + length - COLL__TUNING_ROOM, tcp->tuning, COLL__TUNING_ROOM);
    for (int i = first; i < tcp->size; i++) {
        if (i >= tcp->voters) coll__taken_write(bytes, tcp, i);
        (void)coll__pipe_transfer(&tcp->controls[i].pipe, bytes, length, true, coll__deadline(COLL__TABLE_MS));
    }
    coll__give(bytes);
}

/* Store an endpoint, without the loopback addresses of another host.  false: it is invalid. */
static bool coll__endpoint_take(coll__tcp *tcp, int rank, const unsigned char *bytes)
{
    coll__endpoint *const endpoint = &tcp->endpoints[rank];
    int kept = 0;

    if (!coll__endpoint_read(bytes, endpoint)) return false;
    if (coll__is_of_this_host(tcp, rank)) return true;
    for (int k = 0; k < endpoint->count; k++)
        if (!coll__is_loopback(endpoint->addresses[k])) memmove(endpoint->addresses[kept++], endpoint->addresses[k], 16);
    endpoint->count = kept;
    return true;
}

/* Store the table, but keep the address at which rank 0 was reached.  false: an endpoint is invalid. */
static bool coll__table_read(coll__tcp *tcp, const unsigned char *bytes)
{
    const coll__endpoint found = tcp->endpoints[0];

    for (int i = 0; i < tcp->size; i++)
        if (!coll__endpoint_take(tcp, i, bytes + (size_t)i * COLL__ENDPOINT_LENGTH)) return false;
    tcp->endpoints[0].port = found.port;
    tcp->endpoints[0].count = found.count;
    memcpy(tcp->endpoints[0].addresses, found.addresses, sizeof found.addresses);
    coll__printable(tcp->tuning, sizeof tcp->tuning, bytes + (size_t)tcp->size * COLL__ENDPOINT_LENGTH, COLL__TUNING_ROOM);
    return true;
}

/* ---- >>where to listen: without a key, only at private addresses ---- */

/* Loopback, RFC 1918, link-local, CGNAT; IPv6 unique local and link-local; documentation and benchmarking ranges, for tests.  The
 * list is a value of `network`, whose exceptions are these ranges. */
static bool coll__is_private(const unsigned char *bytes)
{
    return coll__network_excepts("^127.0.0.0/8,::1,10.0.0.0/8,172.16.0.0/12,192.168.0.0/16,169.254.0.0/16,100.64.0.0/10,fc00::/7,"
                                 "fe80::/10,192.0.2.0/24,198.51.100.0/24,203.0.113.0/24,198.18.0.0/15", "", bytes);
}

/* The first public address of this host, for wildcard listeners.  false: none. */
static bool coll__public_address(unsigned char *bytes)
{
    struct ifaddrs *all = NULL;
    bool any = false;

    if (getifaddrs(&all)) return false;
    for (const struct ifaddrs *i = all; i && !any; i = i->ifa_next)
        any = coll__interface_address(i, bytes) && !coll__is_private(bytes);
    freeifaddrs(all);
    return any;
}

#endif /* COLL_TCP_ENDPOINTS_H */
