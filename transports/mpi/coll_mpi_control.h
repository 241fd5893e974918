/* coll_mpi_control.h - what ranks send besides messages: failures, that they leave, in which call they wait.
 *
 * Notes have their own tag, and one receive that is always posted, from any rank.  They are few, and short enough to be sent at
 * once.  They are sent as raw memory: all ranks are builds of one program for one kind of processor, which MPI assumes, too. */
#ifndef COLL_MPI_CONTROL_H
#define COLL_MPI_CONTROL_H

/* A new note for any number of ranks; NULL: no memory, and none is sent. */
static coll__mpi_parcel *coll__mpi_note_new(const coll__mpi *mpi, coll__mpi_word word)
{
    coll__mpi_parcel *parcel = (coll__mpi_parcel *)coll__allocate(coll__like(mpi), sizeof *parcel);

    if (!parcel) return NULL;
    parcel->left = 1;                             /* until all are addressed                                  */
    parcel->note.word = (int32_t)word;
    parcel->note.from = mpi->rank;
    return parcel;
}

static void coll__mpi_parcel_done(coll__mpi_parcel *parcel)
{
    if (--parcel->left == 0) coll__give(parcel);
}

static void coll__mpi_note_send(coll__mpi *mpi, coll__mpi_parcel *parcel, int rank)
{
    const coll__mpi_flight flight = { .kind = COLL__MPI_SENDS_NOTE, .parcel = parcel };

    if (coll__mpi_fly(mpi, &flight, &parcel->note, sizeof parcel->note, rank, COLL__MPI_TAG_NOTE)) parcel->left++;
}

/* Sends a cause to one rank, or, -1, to all others. */
static void coll__mpi_tell(coll__mpi *mpi, coll__mpi_word word, const coll_failure *cause, int rank)
{
    coll__mpi_parcel *parcel = coll__mpi_note_new(mpi, word);

    if (!parcel) return;
    parcel->note.failure = *cause;
    for (int i = 0; i < mpi->size; i++)
        if (i != mpi->rank && (rank < 0 || i == rank) && !mpi->has_left[i]) coll__mpi_note_send(mpi, parcel, i);
    coll__mpi_parcel_done(parcel);
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
    for (int i = 0; i < mpi->size; i++) {
        coll__mpi_parcel *parcel = i == mpi->rank || mpi->has_left[i] ? NULL : coll__mpi_note_new(mpi, COLL__MPI_BYE);
        if (!parcel) continue;
        for (int channel = 0; channel < COLL_CHANNEL_COUNT; channel++)
            parcel->note.counts[channel] = coll__mpi_stream_of(mpi, i, channel)->sent;
        parcel->note.group = mpi->all.turn;
        coll__mpi_note_send(mpi, parcel, i);
        coll__mpi_parcel_done(parcel);
    }
}

#endif /* COLL_MPI_CONTROL_H */
