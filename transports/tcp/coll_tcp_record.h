/* coll_tcp_record.h - pipes whose bytes travel in records: the shared buffers, and a kind with checksums.
 *
 * send copies the bytes into records; they count as sent once the socket has taken all of these.  After EAGAIN it must be
 * called again with the same bytes first.  Received bytes are kept until a record is complete.
 *
 * The checksums are CRC32C.  They detect errors of cables, cards and switches that TCP's 16-bit checksum misses.  They do not
 * detect deliberate changes; TLS does.  A record:
 *
 *    0 u32 length, 1 to 65536   4 u32 sum of the bytes   8 u32 sum of the record's number (u64) and bytes 0 .. 7   12 bytes
 *
 * The head has its own checksum: with a wrong length the reader would wait for bytes that are never sent. */
#ifndef COLL_TCP_RECORD_H
#define COLL_TCP_RECORD_H

enum {
    COLL__RECORD_HEAD = 12, COLL__RECORD_MOST = 65536,
    COLL__RECORDS_OUT = COLL__RECORD_MOST + 4096, COLL__RECORDS_IN = 2 * COLL__RECORDS_OUT
};

/* ---- >>records: buffers between pipe and socket ---- */

typedef struct coll__records {
    size_t out_at, out_length;                    /* to send: from out_at to out_length                       */
    size_t accepted;                              /* the caller's bytes contained in these                    */
    size_t in_at, in_length;                      /* received: from in_at to in_length                        */
    unsigned char out[COLL__RECORDS_OUT], in[COLL__RECORDS_IN];
} coll__records;

/* 0: all is sent; otherwise an errno. */
static int coll__records_flush(coll__records *r, int fd)
{
    while (r->out_at < r->out_length) {
        const ssize_t n = send(fd, r->out + r->out_at, r->out_length - r->out_at, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n < 0) return errno == EINTR ? EAGAIN : errno;
        r->out_at += (size_t)n;
    }
    r->out_at = r->out_length = 0;
    return 0;
}

/* A pipe's send: returns the caller's bytes sent, or -1 with errno. */
static ssize_t coll__records_send(coll__records *r, int fd)
{
    const int error = coll__records_flush(r, fd);
    const size_t accepted = r->accepted;

    if (error) {
        errno = error;
        return -1;
    }
    r->accepted = 0;
    return (ssize_t)accepted;
}

/* Read from the socket as much as fits; returns as recv. */
static ssize_t coll__records_fill(coll__records *r, int fd)
{
    if (r->in_at > 0) memmove(r->in, r->in + r->in_at, r->in_length - r->in_at);
    r->in_length -= r->in_at;
    r->in_at = 0;
    const ssize_t n = recv(fd, r->in + r->in_length, sizeof r->in - r->in_length, MSG_DONTWAIT);
    if (n > 0) r->in_length += (size_t)n;
    return n;
}

/* ---- >>crc: CRC32C, by an instruction or a table ---- */

typedef struct coll__crc {
    bool     has_instruction;
    uint32_t table[8][256];                       /* without it: [k][b] is the sum of byte b and k zeros      */
} coll__crc;

static void coll__crc_open(coll__crc *crc)
{
    crc->has_instruction = (coll__cpu() & COLL__CPU_SSE42) != 0;
    if (crc->has_instruction) return;
    for (uint32_t b = 0; b < 256; b++) {
        uint32_t sum = b;
        for (int i = 0; i < 8; i++) sum = sum >> 1 ^ (sum & 1 ? 0x82f63b78u : 0);
        crc->table[0][b] = sum;
    }
    for (int k = 1; k < 8; k++)
        for (int b = 0; b < 256; b++) crc->table[k][b] = crc->table[k - 1][b] >> 8 ^ crc->table[0][crc->table[k - 1][b] & 255];
}

static uint32_t coll__crc_by_table(const coll__crc *crc, uint32_t sum, const unsigned char *at, size_t length)
{
    for (; length >= 8; length -= 8, at += 8) {
        const uint32_t low = coll__get32(at) ^ sum, high = coll__get32(at + 4);
        sum = 0;
        for (int i = 0; i < 4; i++) sum ^= crc->table[7 - i][low >> 8 * i & 255] ^ crc->table[3 - i][high >> 8 * i & 255];
    }
    for (; length > 0; length--) sum = sum >> 8 ^ crc->table[0][(sum ^ *at++) & 255];
    return sum;
}

#if defined(__x86_64__)
#if defined(__clang__) && __clang_major__ < 14    /* does not know crc32, which sse4.2 includes               */
#define COLL__TARGET_CRC __attribute__((target("sse4.2")))
#else                                             /* includes it unless -mno-crc32 turns it off for the file  */
#define COLL__TARGET_CRC __attribute__((target("sse4.2,crc32")))
#endif
static COLL__TARGET_CRC uint32_t coll__crc_by_instruction(uint32_t sum, const unsigned char *at, size_t length)
{
    uint64_t wide = sum;

    for (; length >= 8; length -= 8, at += 8) wide = __builtin_ia32_crc32di(wide, coll__get64(at));
    for (; length > 0; length--) wide = __builtin_ia32_crc32qi((uint32_t)wide, *at++);
    return (uint32_t)wide;
}
#endif

/* Continue a sum that started at 0. */
static uint32_t coll__crc_add(const coll__crc *crc, uint32_t sum, const unsigned char *at, size_t length)
{
#if defined(__x86_64__)
    if (crc->has_instruction) return ~coll__crc_by_instruction(~sum, at, length);
#endif
    return ~coll__crc_by_table(crc, ~sum, at, length);
}

/* ---- >>checked: a pipe of records with checksums ---- */

typedef struct coll__checked {
    coll__records io;
    size_t   plain;                               /* verified bytes at in_at                                  */
    uint64_t sent, received;                      /* numbers of records                                       */
    bool     is_refused;                          /* a refusal in clear arrived, from a peer without checksums */
    coll__crc crc;
} coll__checked;

static uint32_t coll__record_sum(const coll__checked *c, uint64_t number, const unsigned char *head)
{
    unsigned char bytes[8];

    coll__put64(bytes, number);
    return coll__crc_add(&c->crc, coll__crc_add(&c->crc, 0, bytes, sizeof bytes), head, 8);
}

static ssize_t coll__checked_send(coll__pipe *p, const struct iovec *pieces, int count)
{
    coll__checked *c = (coll__checked *)p->state;
    unsigned char *const head = c->io.out, *const body = head + COLL__RECORD_HEAD;
    size_t length = 0;

    for (int i = 0; c->io.accepted == 0 && i < count; i++) {
        const size_t part = coll__least(pieces[i].iov_len, COLL__RECORD_MOST - length);
        if (part > 0) memcpy(body + length, pieces[i].iov_base, part);
        length += part;
    }
    if (length > 0) {
        coll__put32(head, (uint32_t)length);
        coll__put32(head + 4, coll__crc_add(&c->crc, 0, body, length));
        coll__put32(head + 8, coll__record_sum(c, c->sent++, head));
        c->io.out_length = COLL__RECORD_HEAD + length;
        c->io.accepted = length;
    }
    return coll__records_send(&c->io, p->fd);
}

/* Check received data.  1: bytes are available; 0: incomplete; -1: modified. */
static int coll__checked_look(coll__checked *c)
{
    const unsigned char *head = c->io.in + c->io.in_at;
    const size_t there = c->io.in_length - c->io.in_at;

    if (c->received == 0 && there >= 4 && coll__begins_refusal(head)) c->is_refused = true;
    if (c->is_refused) c->plain = there;
    if (c->plain > 0 || there < COLL__RECORD_HEAD) return c->plain > 0;
    const size_t length = coll__get32(head);
    if (coll__get32(head + 8) != coll__record_sum(c, c->received, head) || length == 0 || length > COLL__RECORD_MOST) return -1;
    if (there - COLL__RECORD_HEAD < length) return 0;
    if (coll__get32(head + 4) != coll__crc_add(&c->crc, 0, head + COLL__RECORD_HEAD, length)) return -1;
    c->io.in_at += COLL__RECORD_HEAD;
    c->plain = length;
    c->received++;
    return 1;
}

static ssize_t coll__checked_recv(coll__pipe *p, const struct iovec *pieces, int count)
{
    coll__checked *c = (coll__checked *)p->state;
    size_t total = 0;
    int look;

    while ((look = coll__checked_look(c)) == 0) {
        const ssize_t n = coll__records_fill(&c->io, p->fd);
        if (n <= 0) return n;
    }
    if (look < 0) {
        errno = EBADMSG;
        return -1;
    }
    for (int i = 0; i < count && c->plain > 0; i++) {
        const size_t part = coll__least(pieces[i].iov_len, c->plain);
        if (part > 0) memcpy(pieces[i].iov_base, c->io.in + c->io.in_at, part);
        c->io.in_at += part;
        c->plain -= part;
        total += part;
    }
    return (ssize_t)total;
}

static short coll__checked_await(coll__pipe *p, short want)
{
    return (want & POLLIN) && coll__checked_look((coll__checked *)p->state) != 0 ? 0 : want;
}

static void coll__checked_close(coll__pipe *p) { coll__give(p->state); }

static const coll__pipe_kind coll__checked_pipe = {
    "checked", coll__checked_send, coll__checked_recv, coll__checked_await, coll__checked_close, NULL, NULL
};

/* Use checksums on this pipe from now on.  false: out of memory. */
static bool coll__pipe_check(const coll_allocator *memory, coll__pipe *p)
{
    coll__checked *c = (coll__checked *)coll__allocate(memory, sizeof *c);

    if (!c) return false;
    coll__crc_open(&c->crc);
    p->kind = &coll__checked_pipe;
    p->state = c;
    return true;
}

#endif /* COLL_TCP_RECORD_H */
