/* uart.h - a transport of one's own for boards without an operating system: each two ranks are joined by a serial line.
 *
 * A serial line loses bytes and changes them.  So a message goes in pieces, each in a frame with a number and a sum (CRC-32); the
 * receiver acknowledges it, and the sender repeats it until then.  Frames end with a byte that occurs nowhere inside of them
 * (0x7e; it and 0x7d are sent as two bytes there), so that a receiver that has lost its way finds it again.
 *
 *     frame    7e, control, 0 to UART_PIECE bytes, CRC-32 of both, 7e
 *     control  bit 7: the channel; bits 5 and 6: the kind; bits 0 to 4: the number of a piece
 *     data     this piece                             ack   all pieces below this number have come
 *     ask      send this number now, again if need be bye   I leave, and have these of each channel; empty: you leave, I know
 *
 * Each channel of a line has one piece in flight.  A piece without a receive is not acknowledged, and is requested again when the
 * receive starts.  So channels never block each other, and nothing is buffered.
 *
 * The board defines the functions below under "the board"; this file uses no registers.  The contract of a transport is in
 * core/contract/coll_transport.h. */
#ifndef UART_H
#define UART_H

#if !defined(UART_PIECE)
#define UART_PIECE 64                             /* COLL_HEAD_LENGTH or more: the first piece has the whole head */
#endif
enum { UART_RANKS = 4, UART_LINES = UART_RANKS - 1, UART_RESEND_MS = 30, UART_LEAVE_MS = 1000 };
enum { UART_END = 0x7e, UART_ESCAPE = 0x7d, UART_FLIP = 0x20, UART_SUM = 4, UART_FRAME = 1 + UART_PIECE + UART_SUM };
enum { UART_DATA, UART_ACK, UART_ASK, UART_BYE };

/* ---- >>the board: line 0 is the one to the lowest of the other ranks ---- */

static int      uart_get(int line);               /* the next received byte, -1: there is none                */
static bool     uart_put(int line, int byte);     /* false: not yet                                           */
static uint32_t uart_ms(void);                    /* the time, from any beginning                             */
static void     uart_idle(void);                  /* sleep until a byte arrives, or for a moment              */

/* One direction of each kind, of one channel of a line. */
typedef struct uart_way {
    coll_xfer *out, *in;                          /* queues                                                   */
    uint32_t   sent_at;
    uint8_t    number, expected;                  /* of the piece that is next to go, and to come             */
    bool       is_sent, is_due;                   /* it was sent; it is to be sent now                        */
    bool       owes_ack, owes_ask, has_refused;
} uart_way;

typedef struct uart_line {
    uart_way way[COLL_CHANNEL_COUNT];
    uint8_t  in[UART_FRAME + 1], out[UART_FRAME]; /* one more: a frame that is too long shows                 */
    uint8_t  in_count, out_count, out_at;
    bool     in_escaped, out_escaped;
    bool     has_left, owes_bye, was_heard;       /* the peer leaves; we owe it an answer; it knows that we leave */
    uint32_t bye_at;
} uart_line;

typedef struct uart_world {
    int         rank, size;
    coll_status status;
    bool        is_closing, has_moved;
    uint32_t    last_ms, pieces, repeated, bad;   /* pieces sent, those sent again, frames with a wrong sum   */
    int64_t     now;                              /* ms                                                       */
    uart_line   line[UART_LINES];
} uart_world;

static uart_line *uart_to(uart_world *w, int peer) { return &w->line[peer < w->rank ? peer : peer - 1]; }

static int64_t uart_now(void *context)
{
    uart_world *w = (uart_world *)context;
    const uint32_t ms = uart_ms();

    w->now += ms - w->last_ms;
    w->last_ms = ms;
    return w->now * 1000000;
}

static uint32_t uart_sum(const uint8_t *bytes, size_t count)
{
    uint32_t sum = ~(uint32_t)0;

    for (size_t i = 0; i < count; i++) {
        sum ^= bytes[i];
        for (int bit = 0; bit < 8; bit++) sum = sum >> 1 ^ (sum & 1 ? 0xedb88320u : 0);
    }
    return ~sum;
}

/* ---- >>pieces ---- */

static size_t uart_piece(const coll_xfer *x)
{
    const size_t left = COLL_HEAD_LENGTH + x->length - x->moved;
    return left < UART_PIECE ? left : UART_PIECE;
}

/* Only what is needed: a receive or a send that takes any head gets no answer. */
static bool uart_is_needed(const coll_xfer *x)
{
    while (x && x->any_head) x = x->next;
    return x != NULL;
}

static void uart_check_left(uart_world *w, const uart_line *line)
{
    if (!line->has_left) return;
    for (int c = 0; c < COLL_CHANNEL_COUNT; c++)
        if (uart_is_needed(line->way[c].out) || uart_is_needed(line->way[c].in)) w->status = COLL_ERR_PEER;
}

static void uart_finish(uart_world *w, coll_xfer **list, coll_status status)
{
    coll_xfer *x = *list;

    *list = x->next;                              /* first: once the status is set it is not ours             */
    x->status = status;
    w->has_moved = true;
}

/* All pieces below this number have come. */
static void uart_acked(uart_world *w, uart_way *way, int number)
{
    if (!way->is_sent || number != (way->number + 1) % 32) return;
    way->number = (uint8_t)number;
    way->is_sent = way->is_due = false;
    if (!way->out) return;                        /* dropped, because this rank leaves                        */
    way->out->moved += uart_piece(way->out);
    if (way->out->moved == COLL_HEAD_LENGTH + way->out->length) uart_finish(w, &way->out, COLL_OK);
}

static void uart_take(uart_world *w, uart_way *way, int number, const uint8_t *bytes, size_t count)
{
    coll_xfer *x = way->in;

    if (number == (way->expected + 31) % 32) way->owes_ack = true;     /* again: what we said of it was lost   */
    if (number != way->expected) return;
    way->has_refused = !x;
    if (!x) return;
    way->expected = (uint8_t)((number + 1) % 32);
    way->owes_ack = true;
    if (x->moved == 0 && count >= COLL_HEAD_LENGTH) {
        const bool is_wrong = !x->any_head && memcmp(x->head, bytes, COLL_HEAD_LENGTH) != 0;
        memcpy(x->head, bytes, COLL_HEAD_LENGTH);
        if (is_wrong) {
            uart_finish(w, &way->in, COLL_ERR_MISMATCH);
            return;
        }
        bytes += COLL_HEAD_LENGTH, count -= COLL_HEAD_LENGTH, x->moved = COLL_HEAD_LENGTH;
    }
    if (x->moved < COLL_HEAD_LENGTH || count > COLL_HEAD_LENGTH + x->length - x->moved) {
        w->status = COLL_ERR_PROTOCOL;
        return;
    }
    if (count > 0) memcpy((uint8_t *)x->buffer + (x->moved - COLL_HEAD_LENGTH), bytes, count);
    x->moved += count;
    if (x->moved == COLL_HEAD_LENGTH + x->length) uart_finish(w, &way->in, COLL_OK);
}

/* ---- >>frames ---- */

/* A frame was received.  If it is damaged, its contents are unknown: request the piece that is in flight to us. */
static void uart_frame(uart_world *w, uart_line *line)
{
    const int count = (int)line->in_count - UART_SUM - 1, what = line->in[0] >> 5 & 3, number = line->in[0] & 31;
    uart_way *way = &line->way[line->in[0] >> 7];
    uint8_t sum[UART_SUM];

    const uint32_t right = count >= 0 ? uart_sum(line->in, (size_t)count + 1) : 0;
    for (int i = 0; i < UART_SUM; i++) sum[i] = (uint8_t)(right >> 8 * i);
    if (count < 0 || count > UART_PIECE || memcmp(sum, line->in + 1 + count, UART_SUM) != 0) {
        w->bad++;
        for (int c = 0; c < COLL_CHANNEL_COUNT; c++) line->way[c].owes_ask = true;
    } else if (what == UART_DATA) {
        uart_take(w, way, number, line->in + 1, (size_t)count);
    } else if (what == UART_ACK) {
        uart_acked(w, way, number);
    } else if (what == UART_ASK) {
        if (way->is_sent && number == way->number) way->is_due = true;
    } else if (count == COLL_CHANNEL_COUNT) {
        for (int c = 0; c < COLL_CHANNEL_COUNT; c++) uart_acked(w, &line->way[c], line->in[1 + c]);
        line->has_left = line->owes_bye = true;
        uart_check_left(w, line);
    } else {
        line->was_heard = true;
    }
}

static void uart_hear(uart_world *w, int at)
{
    uart_line *line = &w->line[at];

    for (int byte; (byte = uart_get(at)) >= 0;) {
        if (byte == UART_END) {
            if (line->in_count > 0) uart_frame(w, line);
            line->in_count = 0;
            line->in_escaped = false;
        } else if (byte == UART_ESCAPE) {
            line->in_escaped = true;
        } else if (line->in_count < sizeof line->in) {
            line->in[line->in_count++] = (uint8_t)(line->in_escaped ? byte ^ UART_FLIP : byte);
            line->in_escaped = false;
        }
    }
}

/* ---- >>sending ---- */

static void uart_make(uart_line *line, int channel, int what, int number, const uint8_t *bytes, size_t count)
{
    line->out[0] = (uint8_t)(channel << 7 | what << 5 | number);
    if (count > 0) memcpy(line->out + 1, bytes, count);
    line->out_count = (uint8_t)(1 + count);
}

static void uart_make_piece(uart_world *w, uart_line *line, int channel, uint32_t ms)
{
    uart_way *way = &line->way[channel];
    const coll_xfer *x = way->out;
    const size_t count = uart_piece(x), head = x->moved == 0 ? COLL_HEAD_LENGTH : 0;

    uart_make(line, channel, UART_DATA, way->number, x->head, head);
    const size_t from = x->moved + head - COLL_HEAD_LENGTH;
    if (count > head) memcpy(line->out + 1 + head, (const uint8_t *)x->buffer + from, count - head);
    line->out_count = (uint8_t)(1 + count);
    w->pieces++;
    w->repeated += way->is_sent;
    way->is_sent = true;
    way->is_due = false;
    way->sent_at = ms;
}

/* The next frame to go, if there is one: answers first. */
static void uart_choose(uart_world *w, uart_line *line)
{
    const uint32_t ms = uart_ms();

    for (int c = 0; c < COLL_CHANNEL_COUNT && line->out_count == 0; c++) {
        uart_way *way = &line->way[c];
        if (way->owes_ack || way->owes_ask) uart_make(line, c, way->owes_ack ? UART_ACK : UART_ASK, way->expected, NULL, 0);
        if (way->owes_ack) way->owes_ack = false;
        else way->owes_ask = false;
    }
    for (int c = 0; c < COLL_CHANNEL_COUNT && line->out_count == 0; c++) {
        const uart_way *way = &line->way[c];
        if (way->out && !line->has_left && (!way->is_sent || way->is_due || ms - way->sent_at >= UART_RESEND_MS))
            uart_make_piece(w, line, c, ms);
    }
    if (line->out_count == 0 && line->owes_bye) {
        uart_make(line, 0, UART_BYE, 0, NULL, 0);
        line->owes_bye = false;
    }
    if (line->out_count == 0 && w->is_closing && !line->was_heard && ms - line->bye_at >= UART_RESEND_MS) {
        const uint8_t have[COLL_CHANNEL_COUNT] = { line->way[0].expected, line->way[1].expected };
        uart_make(line, 0, UART_BYE, 0, have, sizeof have);
        line->bye_at = ms;
    }
    if (line->out_count == 0) return;
    const uint32_t sum = uart_sum(line->out, line->out_count);
    for (int i = 0; i < UART_SUM; i++) line->out[line->out_count++] = (uint8_t)(sum >> 8 * i);
}

/* As much of it as the line takes: a byte to end what noise has begun, the frame, and the byte that ends it. */
static void uart_speak(uart_world *w, int at)
{
    uart_line *line = &w->line[at];

    for (;;) {
        if (line->out_count == 0) {
            uart_choose(w, line);
            if (line->out_count == 0 || !uart_put(at, UART_END)) return;
        }
        while (line->out_at < line->out_count) {
            const int byte = line->out[line->out_at];
            const bool is_special = byte == UART_END || byte == UART_ESCAPE;
            if (is_special && !line->out_escaped) {
                if (!uart_put(at, UART_ESCAPE)) return;
                line->out_escaped = true;
            }
            if (!uart_put(at, is_special ? byte ^ UART_FLIP : byte)) return;
            line->out_escaped = false;
            line->out_at++;
        }
        if (!uart_put(at, UART_END)) return;
        line->out_count = line->out_at = 0;
    }
}

/* Is an outgoing piece in flight? */
static bool uart_is_busy(const uart_world *w)
{
    for (int i = 0; i < w->size - 1; i++) if (w->line[i].out_count > 0) return true;
    return false;
}

/* ---- >>the transport ---- */

static coll_status uart_queue(uart_world *w, coll_xfer *x, coll_xfer **list)
{
    x->moved = 0;
    x->next = NULL;
    while (*list) list = &(*list)->next;
    *list = x;
    uart_check_left(w, uart_to(w, x->peer));
    return COLL_OK;
}

static coll_status uart_send(void *context, coll_xfer *x)
{
    uart_world *w = (uart_world *)context;
    return uart_queue(w, x, &uart_to(w, x->peer)->way[x->channel].out);
}

static coll_status uart_recv(void *context, coll_xfer *x)
{
    uart_world *w = (uart_world *)context;
    uart_way *way = &uart_to(w, x->peer)->way[x->channel];

    if (way->has_refused) way->owes_ask = true;
    way->has_refused = false;
    return uart_queue(w, x, &way->in);
}

static coll_status uart_progress(void *context, int wait_ms)
{
    uart_world *w = (uart_world *)context;

    w->has_moved = false;
    for (int i = 0; i < w->size - 1 && w->status == COLL_OK; i++) {
        uart_hear(w, i);
        uart_speak(w, i);
    }
    if (wait_ms > 0 && !w->has_moved && !uart_is_busy(w) && w->status == COLL_OK) uart_idle();
    return w->status;
}

/* Leave: tell each peer what was received from it, because the last acknowledgment may have been lost. */
static void uart_close(void *context)
{
    uart_world *w = (uart_world *)context;
    const uint32_t began = uart_ms();
    bool is_over = false;

    w->is_closing = true;
    for (int i = 0; i < w->size - 1; i++) w->line[i].bye_at = began - UART_RESEND_MS;
    while (!is_over && uart_ms() - began < UART_LEAVE_MS) {
        is_over = true;
        for (int i = 0; i < w->size - 1; i++) {
            const uart_line *line = &w->line[i];
            for (int c = 0; c < COLL_CHANNEL_COUNT; c++) w->line[i].way[c].out = w->line[i].way[c].in = NULL;
            uart_hear(w, i);
            uart_speak(w, i);
            is_over = is_over && (line->was_heard || line->has_left) && line->out_count == 0;
        }
        if (!is_over && !uart_is_busy(w)) uart_idle();
    }
}

static const coll_transport uart_transport = {
    .name = "uart", .send = uart_send, .recv = uart_recv, .progress = uart_progress, .close = uart_close, .now = uart_now
};

#endif /* UART_H */
