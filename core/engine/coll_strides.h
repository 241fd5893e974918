/* coll_strides.h - blocks that are columns of a matrix (coll_call.row, send_stride, recv_stride).
 *
 *     block 0  block 1  block 2        3 blocks of 2 rows of 3 elements; stride 11; elements
 *     0 1 2    0 1 2    0 1 2   . .    between rows are not touched
 *     3 4 5    3 4 5    3 4 5   . .
 *
 * In messages a block is contiguous, row after row.  So blocks are packed before the call starts and unpacked after it; in
 * between it is an ordinary call on memory of its request, for every carrier.  A side with contiguous blocks (one row, or no
 * gaps) is used in place.  A call in place becomes one with two buffers. */
#ifndef COLL_STRIDES_H
#define COLL_STRIDES_H

static inline bool coll__has_strides(const coll_call *c) { return (c->row | c->send_stride | c->recv_stride) != 0; }

/* The blocks of a side: in the program's matrix, and packed. */
typedef struct coll__columns {
    unsigned char *at, *packed;                   /* packed NULL: the side is used in place                   */
    size_t row, stride, rows;                     /* bytes; rows of each block                                */
    size_t length;                                /* bytes to pack; 0: none                                   */
    int    blocks;
} coll__columns;

struct coll__strided {
    coll__columns send, recv;
};

/* ---- >>packing ---- */

/* Pack the blocks of a matrix, or unpack them: when all calls before it have ended, and after success. */
static void coll__columns_move(const coll__columns *c, bool packs)
{
    unsigned char *packed = c->packed;

    for (int i = 0; packed && i < c->blocks; i++) {
        unsigned char *at = coll__behind(c->at, (size_t)i * c->row);
        for (size_t k = 0; k < c->rows; k++, at += c->stride, packed += c->row)
            memcpy(packs ? packed : at, packs ? at : packed, c->row);
    }
}

#endif /* COLL_STRIDES_H */
