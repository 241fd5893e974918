/* coll_mpi_control.h - what ranks send besides messages: failures, that they leave, in which call they wait.
 *
 * Notes have their own tag, and one receive that is always posted, from any rank.  They are few, and short enough to be sent at
 * once.  They are sent as raw memory: all ranks are builds of one program for one kind of processor, which MPI assumes, too. */
#ifndef COLL_MPI_CONTROL_H
#define COLL_MPI_CONTROL_H

/* Sends a copy of a note.  Without memory none is sent. */
static void coll__mpi_note_send(coll__mpi *mpi, const coll__mpi_note *note, int rank)
{
    coll__mpi_note *const copy = (coll__mpi_note *)coll__take(coll__like(mpi), sizeof *copy);
    const coll__mpi_flight flight = { .kind = COLL__MPI_SENDS_NOTE, .note = copy };

    if (!copy) return;
    *copy = *note;
    if (!coll__mpi_fly(mpi, &flight, copy, sizeof *copy, rank, COLL__MPI_TAG_NOTE)) coll__give(copy);
}

/* Sends a cause to one rank, or, -1, to all others. */
static void coll__mpi_tell(coll__mpi *mpi, coll__mpi_word word, const coll_failure *cause, int rank)
{
    const coll__mpi_note note = { .word = (int32_t)word, .from = mpi->rank, .failure = *cause };

    for (int i = 0; i < mpi->size; i++)
        if (i != mpi->rank && (rank < 0 || i == rank) && !mpi->has_left[i]) coll__mpi_note_send(mpi, &note, i);
}

/* Posts the receive of the next note. */
static void coll__mpi_hear(coll__mpi *mpi)
{
    const coll__mpi_flight flight = { .kind = COLL__MPI_HEARS };

    (void)coll__mpi_fly(mpi, &flight, &mpi->heard, sizeof mpi->heard, MPI_ANY_SOURCE, COLL__MPI_TAG_NOTE);
}

/* This rank leaves: sends each other one the number of eager messages for it. */
static void coll__mpi_say_bye(coll__mpi *mpi)
{
    coll__mpi_note note = { .word = COLL__MPI_BYE, .from = mpi->rank, .group = mpi->all.turn };

    for (int i = 0; i < mpi->size; i++) {
        if (i == mpi->rank || mpi->has_left[i]) continue;
        for (int channel = 0; channel < COLL_CHANNEL_COUNT; channel++)
            note.counts[channel] = coll__mpi_stream_of(mpi, i, channel)->sent;
        coll__mpi_note_send(mpi, &note, i);
    }
}

#endif /* COLL_MPI_CONTROL_H */
