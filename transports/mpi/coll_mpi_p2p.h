/* coll_mpi_p2p.h - messages between ranks as messages of MPI.
 *
 *     short    one message: the head, and the body behind it, copied into a slot, so that the send completes at once
 *     long     the head alone; then the body, in pieces of 1 GiB at most, straight from buffer to buffer
 *
 * The receive of a body is posted when its head has arrived and matches: pieces of a wrong one would cause a truncation error in
 * MPI.  Eager messages arrive in a buffer of their stream.  One receive is posted at a time, and only if a message is expected.
 * Until then MPI keeps the message, which delays no other.  The sender selects one of both forms, and the length shows it. */
#ifndef COLL_MPI_P2P_H
#define COLL_MPI_P2P_H

/* A part of a transfer is complete. */
static void coll__mpi_part_done(coll_xfer *x)
{
    COLL__ASSERT(!x || (x->moved > 0 && x->status == COLL_PENDING),
                 "a part of a message with rank %d ends, of %zu, with status %d", x->peer, x->moved, x->status);
    if (x && --x->moved == 0) x->status = COLL_OK;
}

/* ---- >>send ---- */

/* Sends head and body together, if there is a slot. */
static bool coll__mpi_send_eager(coll__mpi *mpi, const coll_xfer *x)
{
    if (mpi->free_count == 0) return false;
    const int slot = mpi->free_slots[mpi->free_count - 1];
    const coll__mpi_flight flight = { .kind = COLL__MPI_SENDS_EAGER, .slot = slot };
    unsigned char *eager = mpi->slots + (size_t)slot * COLL__MPI_EAGER;
    memcpy(eager, x->head, COLL_HEAD_LENGTH);
    if (x->length) memcpy(eager + COLL_HEAD_LENGTH, x->buffer, x->length);
    const bool has_begun = coll__mpi_fly(mpi, &flight, eager, COLL_HEAD_LENGTH + x->length, x->peer,
                                         COLL__MPI_TAG_EAGER + x->channel);
    mpi->free_count -= has_begun;
    return has_begun;
}

/* A part of a long message: its body in pieces, or its head. */
static bool coll__mpi_part(coll__mpi *mpi, coll_xfer *x, coll__mpi_kind kind, void *at, size_t length, int tag)
{
    const coll__mpi_flight flight = { .kind = kind, .x = x };
    const bool has_begun = coll__mpi_fly(mpi, &flight, at, length, x->peer, tag + x->channel);

    if (has_begun) x->moved++;
    return has_begun;
}

/* Returns whether all pieces have begun. */
static bool coll__mpi_body(coll__mpi *mpi, coll_xfer *x, coll__mpi_kind kind)
{
    bool has_begun = true;

    for (size_t at = 0; has_begun && at < x->length; at += COLL__MPI_PIECE)
        has_begun = coll__mpi_part(mpi, x, kind, coll__behind(x->buffer, at), coll__least(x->length - at, COLL__MPI_PIECE),
                                   COLL__MPI_TAG_BODY);
    return has_begun;
}

static coll_status coll__mpi_send(void *context, coll_xfer *x)
{
    coll__mpi *mpi = (coll__mpi *)context;

    if (mpi->failure.status != COLL_OK || !coll__mpi_may_call(mpi)) return mpi->failure.status;
    coll__mpi_stream_of(mpi, x->peer, x->channel)->sent++;
    mpi->bytes_sent += COLL_HEAD_LENGTH + x->length;
    mpi->quiet = 0;
    if (x->length <= COLL__MPI_EAGER - COLL_HEAD_LENGTH && coll__mpi_send_eager(mpi, x)) {
        x->status = COLL_OK;
        return COLL_OK;
    }
    x->moved = 1;                                 /* until all parts are started                              */
    if (coll__mpi_part(mpi, x, COLL__MPI_SENDS_PART, x->head, COLL_HEAD_LENGTH, COLL__MPI_TAG_EAGER)
        && coll__mpi_body(mpi, x, COLL__MPI_SENDS_PART)) coll__mpi_part_done(x);
    return COLL_OK;
}

/* ---- >>receive ---- */

/* Posts the receive of the next eager message. */
static void coll__mpi_expect(coll__mpi *mpi, int peer, int channel)
{
    coll__mpi_stream *s = coll__mpi_stream_of(mpi, peer, channel);

    if (s->is_posted) return;
    if (!s->landing) s->landing = (unsigned char *)coll__take(coll__like(mpi), COLL__MPI_EAGER);
    if (!s->landing)
        coll__set_failure(&mpi->suspicion, COLL_ERR_MEMORY, mpi->rank, "rank %d has no memory for messages", mpi->rank);
    const coll__mpi_flight flight = { .kind = COLL__MPI_LANDS, .peer = peer, .channel = channel };
    s->is_posted = s->landing && coll__mpi_fly(mpi, &flight, s->landing, COLL__MPI_EAGER, peer, COLL__MPI_TAG_EAGER + channel);
}

/* Posts it if there is a receive. */
static void coll__mpi_listen(coll__mpi *mpi, int peer, int channel)
{
    if (coll__mpi_stream_of(mpi, peer, channel)->first) coll__mpi_expect(mpi, peer, channel);
}

static coll_status coll__mpi_recv(void *context, coll_xfer *x)
{
    coll__mpi *mpi = (coll__mpi *)context;
    coll__mpi_stream *s = coll__mpi_stream_of(mpi, x->peer, x->channel);

    if (mpi->failure.status != COLL_OK || !coll__mpi_may_call(mpi)) return mpi->failure.status;
    x->next = NULL;
    *s->end = x;
    s->end = &x->next;
    coll__mpi_listen(mpi, x->peer, x->channel);
    return COLL_OK;
}

/* An eager message has arrived. */
static void coll__mpi_eager(coll__mpi *mpi, const coll__mpi_flight *flight, const MPI_Status *status)
{
    coll__mpi_stream *s = coll__mpi_stream_of(mpi, flight->peer, flight->channel);
    coll_xfer *x = s->first;
    int got = 0;

    s->is_posted = false;
    s->received++;
    MPI_Get_count(status, MPI_BYTE, &got);
    if (!x) return;
    if (!(s->first = x->next)) s->end = &s->first;
    if (got < COLL_HEAD_LENGTH) {
        coll__set_failure(&mpi->suspicion, COLL_ERR_PROTOCOL, flight->peer,
                          "rank %d got bytes from rank %d that are no message of "
                          "ours", mpi->rank, flight->peer);
        return;
    }
    const size_t body = (size_t)got - COLL_HEAD_LENGTH;
    const bool fits = (x->any_head || !memcmp(x->head, s->landing, COLL_HEAD_LENGTH)) && (body == 0 || body == x->length);
    memcpy(x->head, s->landing, COLL_HEAD_LENGTH);
    mpi->bytes_received += COLL_HEAD_LENGTH + (fits ? x->length : body);
    if (fits && body) memcpy(x->buffer, s->landing + COLL_HEAD_LENGTH, body);
    if (fits && body < x->length) {               /* the body of a long message follows                       */
        x->moved = 1;
        if (coll__mpi_body(mpi, x, COLL__MPI_RECEIVES_PART)) coll__mpi_part_done(x);
    } else x->status = fits ? COLL_OK : COLL_ERR_MISMATCH;
    coll__mpi_listen(mpi, flight->peer, flight->channel);
}

/* ---- >>ranks that have left ---- */

/* A leaving rank sends its number of eager messages; they may arrive after that. */
static bool coll__mpi_is_over(const coll__mpi *mpi, int peer, int channel)
{
    const coll__mpi_stream *s = coll__mpi_stream_of(mpi, peer, channel);
    return mpi->has_left[peer] && s->received >= s->said;
}

/* Receives the eager messages of ranks that have left, even without a receive here: MPI would report them as errors.  Returns the
 * number of incomplete streams. */
static int coll__mpi_drain(coll__mpi *mpi)
{
    int left = 0;

    for (int i = 0; i < mpi->size * COLL_CHANNEL_COUNT; i++) {
        const int peer = i / COLL_CHANNEL_COUNT, channel = i % COLL_CHANNEL_COUNT;
        if (!mpi->has_left[peer] || coll__mpi_is_over(mpi, peer, channel)) continue;
        coll__mpi_expect(mpi, peer, channel);
        left++;
    }
    return left;
}

static bool coll__mpi_has_left(const void *context, int peer)
{
    const coll__mpi *mpi = (const coll__mpi *)context;
    return peer < 0 ? mpi->gone_count > 0 : coll__mpi_is_over(mpi, peer, COLL_CHANNEL_MESSAGES);
}

/* If a rank has left, receives of certain messages from it never complete. */
static void coll__mpi_check_left(coll__mpi *mpi)
{
    for (int i = 0; i < mpi->size * COLL_CHANNEL_COUNT; i++) {
        const coll_xfer *x = mpi->streams[i].first;
        if (!x || !coll__mpi_is_over(mpi, i / COLL_CHANNEL_COUNT, i % COLL_CHANNEL_COUNT)) continue;
        if (i % COLL_CHANNEL_COUNT == COLL_CHANNEL_CALLS || !x->any_head)
            coll__set_failure(&mpi->suspicion, COLL_ERR_PEER, i / COLL_CHANNEL_COUNT,
                              "rank %d has left the communicator, and rank %d "
                              "still waits for it", i / COLL_CHANNEL_COUNT, mpi->rank);
    }
}

#endif /* COLL_MPI_P2P_H */
