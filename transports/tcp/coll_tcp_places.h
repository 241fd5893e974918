/* coll_tcp_places.h - where ranks listen: what rank 0 is told, what it hands out, and which address a rank dials.
 *
 * A rank that has been welcomed listens where its way to rank 0 begins, or where it was configured to, and tells rank 0 that
 * place; rank 0 adds the address that it sees.  When all have told, everybody gets the table of all places.  A place has up
 * to three addresses and one port.  Loopback addresses hold among ranks of one host only, and nobody is given another host's.
 *
 * Ranks on rank 0's own host may have come by loopback, or by an address that means something else elsewhere, such as that of a
 * bridge for containers, which is the same on every host.  Where other hosts have ranks, too, rank 0 asks those to listen where
 * the others have found this host, and to tell their places again; one that was told its network, or its place in a list of
 * hosts, stays there. */
#ifndef COLL_TCP_PLACES_H
#define COLL_TCP_PLACES_H

static bool coll__is_same_host(const coll__place_of *a, const coll__place_of *b)
{
    return !memcmp(a->host, b->host, COLL__HOST_LENGTH);
}

/* One of the addresses of a rank; those of one wire are on the wire of our way to rank 0. */
static coll__address coll__place_address(const coll__tcp *tcp, int rank, int which)
{
    const coll__place_of *place = &tcp->places[rank];
    coll__address a = coll__address_unpack(place->addresses[which], place->port);

    if (coll__is_link_local(place->addresses[which])) ((struct sockaddr_in6 *)(void *)&a.at)->sin6_scope_id = tcp->network.scope;
    return a;
}

/* Let address `which` of a rank be its first from now on: it is the one that works. */
static void coll__place_prefer(coll__place_of *place, int which)
{
    unsigned char first[16];

    memcpy(first, place->addresses[0], 16);
    memcpy(place->addresses[0], place->addresses[which], 16);
    memcpy(place->addresses[which], first, 16);
}

/* Leave out loopback addresses. */
static void coll__place_without_loopback(coll__place_of *place)
{
    int kept = 0;

    for (int i = 0; i < place->count; i++)
        if (!coll__is_loopback(place->addresses[i])) memmove(place->addresses[kept++], place->addresses[i], 16);
    place->count = kept;
}

/* Have two places an address in common? */
static bool coll__place_shares(const coll__place_of *a, const coll__place_of *b)
{
    for (int i = 0; i < a->count; i++)
        for (int k = 0; k < b->count; k++) if (!memcmp(a->addresses[i], b->addresses[k], 16)) return true;
    return false;
}

/* ---- >>rank 0 hears ---- */

/* Rank `index` says where it listens.  false: it makes no sense. */
static bool coll__place_heard(coll__tcp *tcp, int index, const unsigned char *bytes)
{
    coll__place_of *place = &tcp->places[index], told;
    const coll__address from = coll__name_of(tcp->controls[index].pipe.fd, true);
    unsigned char seen[16];
    int ignored;

    if (!tcp->is_meeting || place->port != 0 || !coll__place_read(bytes, &told) || told.port == 0) return false;
    memcpy(told.host, place->host, sizeof told.host);                 /* as its hello said                    */
    coll__address_pack(&from, seen, &ignored);
    if (!coll__is_loopback(seen) || told.count == 0)
        coll__addresses_add(told.addresses, &told.count, COLL__PLACE_ADDRESSES, seen);
    *place = told;
    tcp->present_count++;
    tcp->short_since = coll__now();               /* somebody has been let in since                           */
    return true;
}

/* Rank `index` has gone before all were there: it may come again. */
static void coll__place_lost(coll__tcp *tcp, int index)
{
    if (tcp->places[index].port != 0) tcp->present_count--;
    tcp->places[index].port = 0;
}

/* The ranks that have not come, or not told their places, as ranges. */
static void coll__missing_ranks(const coll__tcp *tcp, char *text, size_t room)
{
    unsigned char *is_missing = (unsigned char *)calloc((size_t)tcp->size, 1);

    *text = '\0';
    for (int i = 1; is_missing && i < tcp->size; i++) is_missing[i] = tcp->places[i].port == 0;
    if (is_missing) coll__append_ranks(text, room, is_missing, tcp->size);
    free(is_missing);
}

/* The addresses by which ranks of other hosts have reached this one; gives their number. */
static int coll__outer_addresses(const coll__tcp *tcp, unsigned char (*out)[16])
{
    int count = 0;

    for (int i = 1; i < tcp->size; i++) {
        if (tcp->controls[i].pipe.fd < 0 || coll__is_same_host(&tcp->places[i], &tcp->places[0])) continue;
        const coll__address here = coll__name_of(tcp->controls[i].pipe.fd, false);
        unsigned char bytes[16];
        int ignored;
        coll__address_pack(&here, bytes, &ignored);
        if (!coll__is_loopback(bytes)) coll__addresses_add(out, &count, COLL__PLACE_ADDRESSES, bytes);
    }
    return count;
}

/* A place, over a control connection. */
static int coll__place_send(coll__pipe *pipe, coll__control_note note, const coll__place_of *place, int64_t deadline)
{
    unsigned char bytes[COLL__CONTROL_LENGTH];

    coll__control_write(bytes, note, COLL_OK, -1, "");
    coll__place_write(bytes + COLL__CONTROL_TEXT, place);
    return coll__pipe_transfer(pipe, bytes, sizeof bytes, true, deadline);
}

/* Ask the ranks of our host that others may not be able to reach to listen where they are.  Gives how many were asked; they are
 * missing until they have told their places again. */
static int coll__ask_to_listen(coll__tcp *tcp, int64_t deadline)
{
    coll__place_of outer = { .count = 0 };
    int asked = 0;

    outer.count = coll__outer_addresses(tcp, outer.addresses);
    for (int i = 0; i < outer.count; i++) coll__addresses_add(tcp->places[0].addresses, &tcp->places[0].count,
                                                              COLL__PLACE_ADDRESSES, outer.addresses[i]);
    for (int i = 1; outer.count > 0 && i < tcp->size; i++) {
        if (!coll__is_same_host(&tcp->places[i], &tcp->places[0]) || coll__place_shares(&tcp->places[i], &outer)) continue;
        coll__place_lost(tcp, i);
        (void)coll__place_send(&tcp->controls[i].pipe, COLL__CONTROL_LISTEN, &outer, deadline);
        asked++;
    }
    return asked;
}

/* ---- >>the table ---- */

/* The table, to every rank.  One that has died meanwhile shows later, as a dead rank. */
static void coll__send_table(coll__tcp *tcp)
{
    const size_t length = COLL__CONTROL_LENGTH + (size_t)tcp->size * COLL__PLACE_LENGTH;
    unsigned char *bytes = tcp->size > 1 ? (unsigned char *)coll__allocate(length) : NULL;

    if (!bytes) return;
    coll__control_write(bytes, COLL__CONTROL_TABLE, COLL_OK, -1, tcp->tuning);
    for (int r = 0; r < tcp->size; r++)
        coll__place_write(bytes + COLL__CONTROL_LENGTH + (size_t)r * COLL__PLACE_LENGTH, &tcp->places[r]);
    for (int i = 1; i < tcp->size; i++)
        (void)coll__pipe_transfer(&tcp->controls[i].pipe, bytes, length, true, coll__deadline(COLL__TABLE_MS));
    free(bytes);
}

/* Take it in.  Rank 0 is where we found it.  false: some place in it makes no sense. */
static bool coll__table_read(coll__tcp *tcp, const unsigned char *bytes)
{
    const coll__place_of found = tcp->places[0];

    for (int i = 0; i < tcp->size; i++) {
        coll__place_of *place = &tcp->places[i];
        if (!coll__place_read(bytes + (size_t)i * COLL__PLACE_LENGTH, place)) return false;
        if (memcmp(place->host, tcp->us.host, sizeof tcp->us.host)) coll__place_without_loopback(place);
    }
    tcp->places[0].port = found.port;
    tcp->places[0].count = found.count;
    memcpy(tcp->places[0].addresses, found.addresses, sizeof found.addresses);
    return true;
}

#endif /* COLL_TCP_PLACES_H */
