/* coll_tcp_table.h - the table of all endpoints, which rank 0 sends to everybody, packed; and what it says of the wire with it.
 *
 * Of each rank, in order, what follows; then a text of less than COLL__TUNING_ROOM bytes.
 *
 *    0 u32 the rank that it is like, a lower one; itself: none   4 u64 which words differ   12 these words, 4 bytes each
 *
 * Ranks of a host differ in their ports, and little else: 28 bytes are left of 132.  For p ranks rank 0 sends p tables of p, and
 * that is what a large job waits for when it starts. */
#ifndef COLL_TCP_TABLE_H
#define COLL_TCP_TABLE_H

enum {
    COLL__TABLE_WORDS = COLL__ENDPOINT_LENGTH / 4, COLL__TABLE_ENTRY = 12, COLL__TABLE_ENTRY_MOST = 12 + COLL__ENDPOINT_LENGTH
};

/* Bytes of a table of so many ranks at most. */
static inline size_t coll__table_most(int size) { return COLL__TUNING_ROOM + (size_t)size * COLL__TABLE_ENTRY_MOST; }

/* What an endpoint is compared with, as bytes; `like` NULL: nothing. */
static void coll__table_reference(unsigned char *at, const coll__endpoint *like)
{
    if (like) coll__endpoint_write(at, like);
    else memset(at, 0, COLL__ENDPOINT_LENGTH);
}

/* Write a table; `homes`: of each rank the first one on its host, NULL: not known.  Gives its length. */
static size_t coll__table_write(unsigned char *out, const coll__endpoint *endpoints, const int *homes, int size,
                                const char *tuning)
{
    unsigned char here[COLL__ENDPOINT_LENGTH], there[COLL__ENDPOINT_LENGTH];
    unsigned char *at = out;

    for (int r = 0; r < size; r++) {
        const int like = homes ? homes[r] : r;
        unsigned char *word = at + COLL__TABLE_ENTRY;
        uint64_t differ = 0;
        coll__endpoint_write(here, &endpoints[r]);
        coll__table_reference(there, like < r ? &endpoints[like] : NULL);
        for (int i = 0; i < COLL__TABLE_WORDS; i++) {
            if (!memcmp(here + 4 * i, there + 4 * i, 4)) continue;
            differ |= (uint64_t)1 << i;
            memcpy(word, here + 4 * i, 4);
            word += 4;
        }
        coll__put32(at, (uint32_t)(like < r ? like : r));
        coll__put64(at + 4, differ);
        at = word;
    }
    const size_t text = strlen(tuning), length = (size_t)(at - out) + text;
    COLL__ASSERT(text < COLL__TUNING_ROOM && length <= coll__table_most(size), "a table of %d ranks takes %zu bytes, %zu of them "
                 "text", size, length, text);
    memcpy(at, tuning, text);
    return length;
}

/* Read one, and its text into COLL__TUNING_ROOM bytes.  false: it makes no sense. */
static bool coll__table_read(coll__endpoint *endpoints, int size, char *tuning, const unsigned char *bytes, size_t length)
{
    const unsigned char *at = bytes, *const end = bytes + length;
    unsigned char here[COLL__ENDPOINT_LENGTH];

    for (int r = 0; r < size; r++) {
        if (end - at < COLL__TABLE_ENTRY) return false;
        const uint32_t like = coll__get32(at);
        const uint64_t differ = coll__get64(at + 4);
        at += COLL__TABLE_ENTRY;
        if (like > (uint32_t)r || differ >> COLL__TABLE_WORDS || end - at < 4 * __builtin_popcountll(differ)) return false;
        coll__table_reference(here, like < (uint32_t)r ? &endpoints[like] : NULL);
        for (int i = 0; i < COLL__TABLE_WORDS; i++) {
            if (!(differ >> i & 1)) continue;
            memcpy(here + 4 * i, at, 4);
            at += 4;
        }
        if (!coll__endpoint_read(here, &endpoints[r])) return false;
    }
    coll__printable(tuning, COLL__TUNING_ROOM, at, (size_t)(end - at));
    return end - at < COLL__TUNING_ROOM;
}

#endif /* COLL_TCP_TABLE_H */
