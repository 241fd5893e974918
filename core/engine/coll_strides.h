/* coll_strides.h - blocks that are columns of a matrix (coll_call.row, send_stride, recv_stride).
 *
 *     block 0  block 1  block 2        a buffer of three blocks of 2 rows of 3 elements, rows 11 elements apart; what is
 *     0 1 2    0 1 2    0 1 2   . .    between rows is somebody else's
 *     3 4 5    3 4 5    3 4 5   . .
 *
 * To the others a block is its elements, row after row: so it is collected before the call starts, and spread when it has ended,
 * and between the two the call is an ordinary one, on memory of its request.  One text for whatever carries it out; a side whose
 * blocks lie in one piece as it is (one row, or rows without a gap) is used where it lies. */
#ifndef COLL_STRIDES_H
#define COLL_STRIDES_H

/* Does a call speak of rows? */
static inline bool coll__has_strides(const coll_call *c) { return (c->row | c->send_stride | c->recv_stride) != 0; }

/* The blocks of a side: where the program has them, and one after the other. */
typedef struct coll__columns {
    unsigned char *at, *packed;                   /* packed NULL: they are used where they lie                */
    size_t row, stride, rows;                     /* bytes; of each block                                     */
    int    blocks;
} coll__columns;

struct coll__strided {
    coll__columns send, recv;
    int  first, blocks;                           /* of recv: those that are input too, in place              */
    bool is_spread;                               /* at the end                                               */
    size_t length;                                /* bytes here, with what is packed behind it                */
};

/* ---- >>moving ---- */

/* Blocks from the matrix to where they lie one after the other, or back. */
static void coll__columns_move(const coll__columns *c, int first, int blocks, bool packs)
{
    unsigned char *packed = coll__behind(c->packed, (size_t)first * c->rows * c->row);

    for (int i = first; i < first + blocks; i++) {
        unsigned char *at = coll__behind(c->at, (size_t)i * c->row);
        for (size_t k = 0; k < c->rows; k++, at += c->stride, packed += c->row)
            memcpy(packs ? packed : at, packs ? at : packed, c->row);
    }
}

/* It starts: whatever was in front of it has ended. */
static void coll__strides_start(const coll_request *r)
{
    const coll__strided *s = r->strided;

    if (!COLL__IS_WHOLE) return;
    if (s->send.packed) coll__columns_move(&s->send, 0, s->send.blocks, true);
    if (s->blocks) coll__columns_move(&s->recv, s->first, s->blocks, true);
}

/* It has ended well. */
static void coll__strides_end(const coll_request *r)
{
    if (COLL__IS_WHOLE && r->strided->is_spread) coll__columns_move(&r->strided->recv, 0, r->strided->recv.blocks, false);
}

#endif /* COLL_STRIDES_H */
