/* test_matrix.c - every fault of a rank or of a connection, in every phase, in small and larger worlds: no call hangs, all
 * ranks report the right rank in time, coll_free is quick, and the survivors go on.
 *
 *     test_matrix [all [SECURITY|any] | FAULT,...|any [PHASE,...|any [SIZE,...|any [SECURITY|any]]]]
 *                                       COLL_TEST_SEED=... replays the choices of a run
 *
 *     fault   kill stop        the victim dies, or is stopped
 *             link drop        its cable is pulled; all packets are dropped silently
 *             reset half-close garbage     happens to one connection of the victim
 *             slow             the victim is alive, but outside the library for several times the liveness timeout: no error
 *             reader           the victim works, but its sockets take 1 KiB at a time for as long: no error
 *             intruders        a scanner, a browser, noise and many silent connections at every open port: no error
 *     phase   meet             some ranks have not connected yet
 *             table            rank 0 has every hello, and no rank has the table
 *             connect          a first data connection is open, before its handshake
 *             header           the receiver has half of a header, and the rest is missing
 *             round            the victim has sent its part of the first round
 *             payload          in the middle of a large message
 *             idle             between calls
 *             leave            one rank has left, and the others follow
 *
 * A rank is a process on a host of its own (net.h).  A referee, one process for each cell of the table, brings the victim to the
 * phase, injects the fault, and checks what the ranks have recorded (matrix.h).  It inspects the sockets of the ranks
 * (process_sockets.h), and so detects that they have reached the phase; the library is not involved.  Two or three cells run at a
 * time.  Without an argument a part of the cells runs, drawn by the seed, every fault in every phase at least once; "all": all of
 * them.  Each cell draws its mode of security (open, open+check, key, key+check, tls), unless one is given for all. */
#define _DEFAULT_SOURCE 1
#include "../../coll.h"

#include "../support/check.h"
#include "../support/support.h"
#include "../support/cases.h"
#include "../support/net.h"
#include "process_sockets.h"
#include "matrix.h"

enum { SIZE_COUNT = 3, SLOTS_MOST = 3, FIRST_PORT = 20000, CROWD = 40 };
static const int sizes[SIZE_COUNT] = { 2, 4, 8 };

/* ---- >>waiting for ranks ---- */

static cell *current;                             /* of this referee, for the report of a hang                */

static void report_cell(void)
{
    fprintf(stderr, "failed: %s: the referee hangs, at: %s\n", current->name, case_step);
    for (int i = 0; i < current->size; i++) if (current->pids[i] > 0) kill(current->pids[i], SIGKILL);
}

/* The rank is at its gate. */
static bool await_rank(cell *c, int rank)
{
    struct pollfd p = { .fd = c->up[rank][0], .events = POLLIN };
    const report *r = &c->board->ranks[rank];
    char byte;

    const bool is_here = poll(&p, 1, (int)support_scaled(GATE_MS)) == 1 && read(p.fd, &byte, 1) == 1 && r->reached != OVER;
    CHECK(is_here, "%s: rank %d is missing, at: %s, status %d, %d: %s", c->name, rank, step_names[r->reached], (int)r->hybrid,
          (int)r->status, r->sentence);
    c->is_waiting[rank] = is_here;
    return is_here;
}

static void release(cell *c, int rank)
{
    if (!c->is_waiting[rank]) return;
    c->is_waiting[rank] = false;
    (void)!write(c->down[rank][1], "x", 1);
}

static bool await_all_but(cell *c, int rank)
{
    for (int i = 0; i < c->size; i++) if (i != rank && !await_rank(c, i)) return false;
    return true;
}

static void release_all_but(cell *c, int rank)
{
    for (int i = 0; i < c->size; i++) if (i != rank) release(c, i);
}

/* ---- >>seeing the sockets of ranks ---- */

typedef bool sight(const cell *c, int rank, const reached *r);

static bool is_control(const cell *c, int rank, const reached *r)
{
    return ntohs(rank == 0 ? r->here.sin_port : r->there.sin_port) == c->port && (rank == 0 || net_host_of(&r->there) == 0);
}

static bool has_called_root(const cell *c, int rank, const reached *r)
{
    return r->state == REACH_ESTABLISHED && is_control(c, rank, r) && r->acknowledged > 1;     /* the hello, behind the SYN */
}

static bool listens(const cell *c, int rank, const reached *r)
{
    (void)c, (void)rank;
    return r->state == REACH_LISTEN;
}

/* The rank is outside the library, and its heartbeat thread has accepted: the lower rank has dialled, from another host. */
static bool is_taken(const cell *c, int rank, const reached *r)
{
    return r->state == REACH_ESTABLISHED && !is_control(c, rank, r) && net_host_of(&r->there) < rank;
}

static bool is_called(const cell *c, int rank, const reached *r)
{
    return (listens(c, rank, r) && r->queued > 0) || is_taken(c, rank, r);
}

static bool has_called(const cell *c, int rank, const reached *r)
{
    return r->state == REACH_ESTABLISHED && !is_control(c, rank, r) && r->acknowledged > 1;
}

static bool has_half_of_call(const cell *c, int rank, const reached *r)
{
    return r->state == REACH_ESTABLISHED && !is_control(c, rank, r) && net_host_of(&r->there) == c->victim
        && r->unread >= (int)(HEAD + WIDE * sizeof(float));
}

/* A socket of the rank that matches, or none.  The caller closes the copy. */
static bool find_socket(const cell *c, int rank, sight *looks_right, reached *out)
{
    reach all;
    bool is_found = false;

    (void)reach_into(c->pids[rank], &all);
    for (int i = 0; i < all.count && !is_found; i++) {
        if (!looks_right(c, rank, &all.at[i])) continue;
        *out = all.at[i];
        is_found = (out->fd = fcntl(all.at[i].fd, F_DUPFD_CLOEXEC, 0)) >= 0;
    }
    reach_end(&all);
    return is_found;
}

/* The same for the first rank from `low` to `high` that has one.  Only the kernel is waited for, so poll often. */
static bool await_socket(const cell *c, int low, int high, sight *looks_right, reached *out, const char *what)
{
    const int64_t limit = now_ms() + support_scaled(GATE_MS);

    do {
        for (int rank = low; rank <= high; rank++)
            if (rank != c->victim || low == high) if (find_socket(c, rank, looks_right, out)) return true;
        (void)poll(NULL, 0, 1);
    } while (now_ms() < limit);
    CHECK(false, "%s: no socket of ranks %d to %d that %s", c->name, low, high, what);
    return false;
}

static bool await_state(const cell *c, int rank, sight *looks_right, const char *what)
{
    reached r;

    if (!await_socket(c, rank, rank, looks_right, &r, what)) return false;
    close(r.fd);
    return true;
}

/* ---- >>bringing the victim to the phase ---- */

/* The part of a message that was held back, so that the rest can be delivered later. */
typedef struct caught {
    reached by, to;                               /* the sockets of the victim and of the receiver            */
    int     receiver;
    unsigned char bytes[4096];
    size_t  length;
} caught;

/* All ranks but the last have dialled rank 0, if there are any. */
static bool come_to_meet(cell *c)
{
    if (!await_rank(c, c->size - 1)) return false;
    case_step = "ranks call rank 0";
    if (!await_state(c, 0, listens, "listens")) return false;
    for (int i = 1; i < c->size - 1; i++) if (!await_state(c, i, has_called_root, "has called rank 0")) return false;
    return true;
}

/* The last one dials too, while rank 0 is stopped. */
static bool come_to_table(cell *c)
{
    if (!come_to_meet(c)) return false;
    (void)kill(c->pids[0], SIGSTOP);
    release(c, c->size - 1);
    return await_state(c, c->size - 1, has_called_root, "has called rank 0");
}

static bool come_to_connect(cell *c)
{
    if (!await_all_but(c, -1)) return false;
    case_step = "a first connection";
    if (!c->dials) {
        release_all_but(c, c->victim);
        return await_state(c, c->victim, is_called, "is called");
    }
    release(c, c->victim);
    const bool is_there = await_state(c, c->victim, has_called, "has called another rank");
    __atomic_store_n(&c->board->hold, 1, __ATOMIC_RELEASE);
    return is_there && await_rank(c, c->victim);
}

static bool is_other_end(const reached *a, const reached *b)
{
    return a->here.sin_port == b->there.sin_port && a->there.sin_port == b->here.sin_port
        && a->here.sin_addr.s_addr == b->there.sin_addr.s_addr && a->there.sin_addr.s_addr == b->here.sin_addr.s_addr;
}

/* The victim has sent a message; take it out of the receiver's socket, and deliver the first half of its header. */
static bool come_to_header(cell *c, caught *k)
{
    reach all;
    bool is_said = false;

    if (!await_all_but(c, -1)) return false;
    release(c, c->victim);
    if (!await_rank(c, c->victim)) return false;
    case_step = "a message of the victim";
    if (!await_socket(c, 0, c->size - 1, has_half_of_call, &k->to, "has a message of the victim")) return false;
    const ssize_t n = recv(k->to.fd, k->bytes, sizeof k->bytes, MSG_DONTWAIT);
    k->length = n > 0 ? (size_t)n : 0;
    for (int i = 0; i < c->size; i++) {
        char text[20];
        snprintf(text, sizeof text, "10.77.0.%d", i + 1);
        if (k->to.here.sin_addr.s_addr == inet_addr(text)) k->receiver = i;
    }
    (void)reach_into(c->pids[c->victim], &all);
    for (int i = 0; i < all.count && !is_said; i++) {
        if (!is_other_end(&all.at[i], &k->to)) continue;
        k->by = all.at[i];
        k->by.fd = fcntl(all.at[i].fd, F_DUPFD_CLOEXEC, 0);
        is_said = k->length > HEAD_PART && reach_say(&k->by, k->bytes, HEAD_PART);
    }
    reach_end(&all);
    CHECK(is_said, "%s: half a head cannot be sent", c->name);
    return is_said;
}

static bool come_to_leave(cell *c)
{
    const int first = c->size > 2 ? 1 + (c->victim == 1) : 1 - c->victim;
    char byte;

    if (!await_all_but(c, -1)) return false;
    case_step = "the first one leaves";
    release(c, first);
    struct pollfd p = { .fd = c->up[first][0], .events = POLLIN };
    const bool has_left = poll(&p, 1, (int)support_scaled(GATE_MS)) == 1 && read(p.fd, &byte, 1) == 1;
    CHECK(has_left, "%s: rank %d does not get away", c->name, first);
    return has_left;
}

static bool come_to_phase(cell *c, caught *k)
{
    case_step = phase_names[c->phase];
    switch (c->phase) {
    case MEET: return come_to_meet(c);
    case TABLE: return come_to_table(c);
    case CONNECT: return come_to_connect(c);
    case HEADER: return come_to_header(c, k);
    case LEAVE: return come_to_leave(c);
    case ROUND: case PAYLOAD:
        if (!await_all_but(c, -1)) return false;
        if (c->phase == PAYLOAD) release_all_but(c, -1);
        release(c, c->victim);
        return await_rank(c, c->victim);
    default: return await_all_but(c, -1);
    }
}

/* ---- >>striking: inject the fault ---- */

static bool is_live_data(const cell *c, int rank, const reached *r)
{
    return r->state == REACH_ESTABLISHED && !is_control(c, rank, r) && net_host_of(&r->there) >= 0;
}

static bool is_live_control(const cell *c, int rank, const reached *r)
{
    return r->state == REACH_ESTABLISHED && is_control(c, rank, r);
}

static bool is_live_data_to_victim(const cell *c, int rank, const reached *r)
{
    return is_live_data(c, rank, r) && net_host_of(&r->there) == c->victim;
}

/* The connection that gets the fault, at one of its ends, the victim's if possible. */
static bool choose_connection(cell *c, const caught *k, reached *out)
{
    const bool is_start = is_of_start(c->phase);

    if (c->phase == HEADER) {
        *out = k->by;
        out->fd = fcntl(k->by.fd, F_DUPFD_CLOEXEC, 0);
        c->partner = k->receiver;
        return out->fd >= 0;
    }
    if (find_socket(c, c->victim, is_start ? is_live_control : is_live_data, out)) {
        c->partner = is_start && c->victim != 0 ? 0 : net_host_of(&out->there);
        return true;
    }
    for (int i = 0; i < c->size && !is_start; i++) {
        if (i == c->victim || !find_socket(c, i, is_live_data_to_victim, out)) continue;
        c->partner = i;
        return true;
    }
    return false;
}

static bool strike_connection(cell *c, const caught *k)
{
    unsigned char noise[256];
    uint64_t random = c->seed;
    const int64_t limit = now_ms() + support_scaled(GATE_MS);
    reached r;
    bool is_done = false;

    if (!choose_connection(c, k, &r)) return false;
    for (size_t i = 0; i < sizeof noise; i++) noise[i] = (unsigned char)support_random(&random);
    if (c->fault == RESET) is_done = reach_reset(&r);
    else if (c->fault == HALF_CLOSE) is_done = reach_half_close(&r);
    else while (!(is_done = reach_say(&r, noise, sizeof noise)) && now_ms() < limit) (void)poll(NULL, 0, 1);
    close(r.fd);
    return is_done;
}

/* ---- >>intruders: unauthenticated connections ---- */

typedef enum manner { HANGS_UP, RESETS, BROWSES, MAKES_NOISE, BEGINS_A_HELLO, SAYS_NOTHING, MANNER_COUNT } manner;

/* A connection to this port from the switch.  It stays open as long as this process. */
static bool intruder_comes(const struct sockaddr_in *comm_lock, manner m, uint64_t seed)
{
    static const char http[] = "GET /metrics HTTP/1.1\r\nHost: rank\r\nUser-Agent: a-scanner/1.0\r\nAccept: */*\r\n"
                               "Accept-Encoding: gzip, deflate, br\r\nAccept-Language: en\r\nConnection: keep-alive\r\n\r\n";
    static const char hello[] = "\x89" "COLL\r\n\x1a\2\0\0\0";
    const struct linger at_once = { 1, 0 };
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    unsigned char noise[300];
    ssize_t said = 0;

    if (fd < 0 || connect(fd, (const struct sockaddr *)comm_lock, sizeof *comm_lock)) return false;
    for (size_t i = 0; i < sizeof noise; i++) noise[i] = (unsigned char)support_random(&seed);
    if (m == BROWSES) said = send(fd, http, sizeof http - 1, MSG_NOSIGNAL);
    if (m == MAKES_NOISE) said = send(fd, noise, sizeof noise, MSG_NOSIGNAL);
    if (m == BEGINS_A_HELLO) said = send(fd, hello, sizeof hello - 1, MSG_NOSIGNAL);
    if (m == RESETS) (void)setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    if (m <= RESETS) close(fd);
    return said >= 0;
}

/* A few of each kind, and then more silent ones than a rank keeps, at every open port. */
static bool intruders_come(const cell *c)
{
    reached comm_lock;

    for (int rank = 0; rank < c->size; rank++) {
        if (c->pids[rank] <= 0 || !find_socket(c, rank, listens, &comm_lock)) continue;
        struct sockaddr_in at = comm_lock.here;
        char text[20];
        at.sin_addr.s_addr = inet_addr(net_address(rank, text, sizeof text));
        close(comm_lock.fd);
        for (int i = 0; i < 3 * MANNER_COUNT + CROWD; i++) {
            const manner m = i < 3 * MANNER_COUNT ? (manner)(i % MANNER_COUNT) : SAYS_NOTHING;
            if (!intruder_comes(&at, m, c->seed + (uint64_t)i)) return false;
        }
    }
    return true;
}

/* ---- >>a slow reader ---- */

enum { SIP = 1024, GULP = 4 << 20 };

/* The number of bytes that the victim's sockets accept at a time: the open ones, and those accepted by its listener.
 * Meanwhile the senders are blocked, except for the probes of a closed window. */
static bool take_at_a_time(const cell *c, int length)
{
    reach all;
    bool is_done = true;
    int count = 0;

    (void)reach_into(c->pids[c->victim], &all);
    for (int i = 0; i < all.count; i++, count++)
        is_done = !setsockopt(all.at[i].fd, SOL_SOCKET, SO_RCVBUF, &length, sizeof length) && is_done;
    reach_end(&all);
    return is_done && count > 0;
}

static void strike(cell *c, const caught *k)
{
    bool is_done = true;

    case_step = "the fault";
    c->board->fault_ms = now_ms();
    switch (c->fault) {
    case KILL: is_done = !kill(c->pids[c->victim], SIGKILL); break;
    case STOP: is_done = !kill(c->pids[c->victim], SIGSTOP); break;
    case LINK: is_done = net_plug(c->victim, false); break;
    case DROP: is_done = net_drop(c->net, c->victim); break;
    case INTRUDERS: is_done = intruders_come(c); break;
    case READER: is_done = take_at_a_time(c, SIP); break;
    case SLOW: if (is_of_start(c->phase)) is_done = !kill(c->pids[c->victim], SIGSTOP); break;
    default: is_done = strike_connection(c, k);
    }
    CHECK(is_done, "%s: the fault cannot be had", c->name);
}

/* All ranks go on, except a dead victim and a slow one. */
static void go_on(cell *c, const caught *k)
{
    const bool is_still = c->fault <= STOP || is_harmless(c->fault);

    case_step = "after the fault";
    if (c->phase == TABLE && !(c->victim == 0 && is_still)) (void)kill(c->pids[0], SIGCONT);
    release_all_but(c, is_still ? c->victim : -1);
    if (c->fault == STOP) release(c, c->victim);  /* it reads that when it is continued                       */
    if (!is_harmless(c->fault)) return;
    if (c->fault == SLOW)                         /* the time that the victim takes                           */
        (void)poll(NULL, 0, is_of_start(c->phase) ? LIVENESS_MS / 2 : 3 * LIVENESS_MS);
    if (c->phase == HEADER)
        CHECK(reach_say(&k->by, k->bytes + HEAD_PART, k->length - HEAD_PART), "%s: the rest of a message", c->name);
    if (is_of_start(c->phase)) (void)kill(c->pids[c->victim], SIGCONT);
    release(c, c->victim);
    if (c->fault != READER || is_of_start(c->phase)) return;
    (void)poll(NULL, 0, 3 * LIVENESS_MS);         /* the time in which it reads slowly                        */
    CHECK(take_at_a_time(c, GULP) || c->board->ranks[c->victim].reached >= LEAVING, "%s: it cannot read faster again", c->name);
}

/* ---- >>checks ---- */

/* Does the sentence name this rank: as "rank 2", or in a list of ranks at its end? */
static bool speaks_of(const char *sentence, int rank)
{
    const char *list = strrchr(sentence, ':');
    char name[24];

    snprintf(name, sizeof name, "rank %d", rank);
    for (const char *at = sentence; (at = strstr(at, name)) != NULL;) {
        at += strlen(name);
        if (*at < '0' || *at > '9') return true;
    }
    while (list && *list) {
        list += strcspn(list, "0123456789");
        if (*list && (int)strtol(list, (char **)(uintptr_t)&list, 10) == rank) return true;
    }
    return false;
}

/* One condition for a rank; if it fails, print all that is known of the rank. */
static void expect(const cell *c, int rank, bool holds, const char *what)
{
    const report *r = &c->board->ranks[rank];

    check__passed += holds;
    check__failed += !holds;
    if (holds) return;
    fprintf(stderr, "failed: %s: rank %d: %s.  It is in %s; coll_init %d, call %d: %d, ", c->name, rank, what,
            step_names[r->reached], (int)r->hybrid, r->calls, (int)r->status);
    fprintf(stderr, "%d ms after the fault; failed ranks %d (%d); the next call %d; coll_shrink %d in %d ms, coll_free in %d: ",
            (int)(r->ended_ms - c->board->fault_ms), r->failed_count, r->failed, (int)r->later, (int)r->shrunk, (int)r->shrink_ms,
            (int)r->free_ms);
    fprintf(stderr, "%s%s%s\n", r->sentence, *r->why_not ? "; then: " : "", r->why_not);
}

static void evaluate_time(const cell *c, int rank)
{
    const report *r = &c->board->ranks[rank];
    const int64_t from = is_of_start(c->phase) || r->began_ms < c->board->fault_ms ? c->board->fault_ms : r->began_ms;
    const int64_t start = c->fault == STOP && rank == c->victim ? c->board->go_on_ms : from, took = r->ended_ms - start;
    const int bound = (is_of_start(c->phase) ? START_MS : LIVENESS_MS) + SLACK_MS;

    expect(c, rank, took <= support_scaled(bound), "it detects it too late");
    if (rank != c->victim && took > c->board->worst_ms) c->board->worst_ms = took;
}

/* Are bytes that were changed on the wire detected? */
static bool sees_changes(const cell *c) { return !strcmp(c->security, "tls") || strstr(c->security, "+check") != NULL; }

/* Is the connection with the fault still in its handshake, where both ends prove the key?  Noise there counts as the proof of
 * another key. */
static bool is_greeted(const cell *c) { return is_keyed(c) && c->phase <= CONNECT; }

/* What every rank with an error must have kept to. */
static void evaluate_manners(const cell *c, int rank)
{
    const report *r = &c->board->ranks[rank];
    const coll_status status = r->hybrid < 0 ? r->hybrid : r->status;
    const bool fits = status == COLL_ERR_PEER || status == COLL_ERR_TIMEOUT || status == COLL_ERR_PROTOCOL
        || (c->fault == GARBAGE && (status == COLL_ERR_MISMATCH || (status == COLL_ERR_DENIED && is_greeted(c))));

    expect(c, rank, fits, "the status does not fit");
    evaluate_time(c, rank);
    expect(c, rank, r->free_ms <= support_scaled(FREE_MS), "coll_free takes too long");
    if (r->hybrid < 0) return;
    expect(c, rank, r->is_input_kept, "its input has changed");
    expect(c, rank, r->is_right || (c->fault == GARBAGE && !sees_changes(c)), "calls succeeded with wrong results");
    expect(c, rank, r->later == r->status && r->is_later_same, "the next call does not end with the same error, and at once");
}

static void evaluate_survivor(const cell *c, int rank)
{
    const report *r = &c->board->ranks[rank];

    evaluate_manners(c, rank);
    expect(c, rank, speaks_of(r->sentence, c->victim), "the victim is not named");
    if (r->hybrid < 0) return;
    expect(c, rank, r->status == COLL_ERR_PEER, "the status is not that of a lost rank");
    expect(c, rank, r->failed_count == 1 && r->failed == c->victim, "coll_failed_ranks does not give the victim alone");
    expect(c, rank, r->is_small_right || (c->size == 2 && r->shrunk < 0), "it cannot go on without the victim");
}

/* One connection has failed: all report the same one of its ends; but a victim that has lost rank 0 can only report rank 0.
 * If foreign bytes arrived, no rank has left, and the sentence says so. */
static void evaluate_end_of_connection(const cell *c, int rank, int named)
{
    const report *r = &c->board->ranks[rank];

    evaluate_manners(c, rank);
    expect(c, rank, speaks_of(r->sentence, c->victim) || speaks_of(r->sentence, c->partner), "neither end is named");
    if (r->hybrid < 0 || (c->fault == GARBAGE && r->failed_count == 0)) return;
    expect(c, rank, r->failed_count == 1 && (r->failed == c->victim || r->failed == c->partner),
           "coll_failed_ranks does not give one end");
    expect(c, rank, r->failed == named || (is_of_start(c->phase) && rank == c->victim), "others name another rank");
}

/* All went well, as it should. */
static void evaluate_success(const cell *c, int rank)
{
    const report *r = &c->board->ranks[rank];

    expect(c, rank, r->hybrid == COLL_OK && r->status == COLL_OK, "nothing was lost, and yet there is an error");
    expect(c, rank, r->is_right && r->is_input_kept, "wrong results, or a changed input");
    expect(c, rank, r->free_ms <= support_scaled(FREE_MS), "coll_free takes too long");
    if (c->fault == INTRUDERS) evaluate_time(c, rank);
}

static void evaluate_rank(const cell *c, int rank, int named, bool has_recovered)
{
    const report *r = &c->board->ranks[rank];

    expect(c, rank, r->reached == OVER, "it hangs");
    if (r->reached != OVER) return;
    if (c->phase == LEAVE) {
        expect(c, rank, r->hybrid == COLL_OK && r->free_ms <= support_scaled(FREE_MS), "coll_free takes too long");
        if (rank != c->victim && r->free_ms > c->board->worst_ms) c->board->worst_ms = r->free_ms;
    } else if (is_harmless(c->fault) || has_recovered) {
        evaluate_success(c, rank);
    } else if (is_of_connection(c->fault)) {
        evaluate_end_of_connection(c, rank, named);
    } else if (rank != c->victim) {
        evaluate_survivor(c, rank);
    } else {
        evaluate_manners(c, rank);
    }
}

static void evaluate(const cell *c)
{
    const char *talk = getenv("COLL_TEST_TALK");
    int named = -1, in_order = 0;

    for (int i = 0; i < c->size; i++) {
        const report *r = &c->board->ranks[i];
        if (i != c->victim && named < 0 && r->failed_count > 0) named = r->failed;
        in_order += r->hybrid == COLL_OK && r->status == COLL_OK;
    }
    for (int i = 0; i < c->size; i++) {
        const report *r = &c->board->ranks[i];
        if (c->fault == KILL && i == c->victim) continue;
        evaluate_rank(c, i, named, may_recover(c) && in_order == c->size);
        if (talk) printf("%s: rank %d: %d %d after %d ms, %d failed (%d): %s\n", c->name, i, (int)r->hybrid, (int)r->status,
                         (int)(r->ended_ms - c->board->fault_ms), r->failed_count, r->failed, r->sentence);
    }
}

/* ---- >>a cell ---- */

static bool start_ranks(cell *c)
{
    for (int i = 0; i < c->size; i++) if (pipe(c->up[i]) || pipe(c->down[i])) return false;
    for (int i = 0; i < c->size; i++) {
        if ((c->pids[i] = fork()) < 0) return false;
        if (c->pids[i] == 0) rank_main(c, i);
    }
    return true;
}

/* All have ended, or their time is over; a stopped victim is continued when the others have ended, and must detect its own
 * end. */
static void await_ends(cell *c)
{
    case_step = "the ends of the ranks";
    for (int i = 0; i < c->size; i++) if (i != c->victim) (void)waitpid(c->pids[i], NULL, 0);
    if (c->fault == STOP) {
        c->board->go_on_ms = now_ms();
        (void)kill(c->pids[c->victim], SIGCONT);
    }
    (void)waitpid(c->pids[c->victim], NULL, 0);
}

static void referee(cell *c)
{
    caught k = { .by = { .fd = -1 }, .to = { .fd = -1 } };

    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    current = c;
    support_limit(CELL_SECONDS, report_cell);
    check__passed = check__failed = 0;
    const bool is_started = net_enter(c->net, NET_SWITCH) && start_ranks(c);
    CHECK(is_started, "%s: no processes", c->name);
    const bool is_there = is_started && come_to_phase(c, &k);
    if (is_there) {
        strike(c, &k);
        go_on(c, &k);
        await_ends(c);
        evaluate(c);
    } else {
        for (int i = 0; i < c->size; i++) if (c->pids[i] > 0) (void)kill(c->pids[i], SIGKILL);
    }
    if (c->fault == LINK || c->fault == DROP) CHECK(net_mend(c->net, c->victim), "%s: the network cannot be mended", c->name);
    c->board->passed = check__passed;
    c->board->failed = check__failed;
    fflush(NULL);
    _exit(0);
}

/* ---- >>the table ---- */

typedef enum outcome { NOT_RUN, NO_SUCH, GOOD, BAD } outcome;

typedef struct result { outcome outcome; int worst_ms; } result;

#if defined(COLL_WITH_OPENSSL)
enum { MODE_COUNT = 5 };
#else
enum { MODE_COUNT = 4 };                          /* all but the last, tls                                    */
#endif

static const char *only_security;                 /* of all cells; NULL: each draws                           */
static result results[FAULT_COUNT][PHASE_COUNT][SIZE_COUNT];

/* Two ranks that never connected have no connection, nor do they if one has left. */
static bool there_is(fault f, phase p, int size) { return !((p == MEET || p == LEAVE) && size == 2 && is_of_connection(f)); }

/* Draw what the arguments leave open. */
static void cell_draw(cell *c, const net *n, board *b, fault f, phase p, int size, int number, uint64_t seed)
{
    static const char *const modes[] = { "open", "open+check", "key", "key+check", "tls" };
    const bool has_uring = !support_refusal("tcp-uring");

    memset(c, 0, sizeof *c);
    memset(b, 0, sizeof *b);
    c->fault = f;
    c->phase = p;
    c->size = size;
    c->seed = support_mix(seed + (uint64_t)(((int)f * PHASE_COUNT + (int)p) * 16 + size));
    c->io = has_uring && c->seed & 1 ? "uring" : "poll";
    c->security = only_security ? only_security : modes[(c->seed >> 24) % MODE_COUNT];
    const int choices = p == MEET ? size - 1 : size;              /* the last one has not connected           */
    c->victim = c->seed >> 8 & 1 ? 0 : (int)((c->seed >> 16) % (uint64_t)choices);
    if (is_of_start(p) && is_of_connection(f) && c->victim == 0) c->victim = 1;
    c->dials = c->victim == 0 || (c->victim < size - 1 && c->seed >> 9 & 1);
    c->partner = -1;
    c->net = n;
    c->board = b;
    c->number = number;
    c->port = FIRST_PORT + number;
    snprintf(c->name, sizeof c->name, "%s, %s, rank %d of %d, %s, %s", fault_names[f], phase_names[p], c->victim, size, c->io,
             c->security);
}

static void print_table(uint64_t seed)
{
    printf("%-24s", "ms until the last knew");
    for (int s = 0; s < SIZE_COUNT; s++) printf("%8d ranks", sizes[s]);
    printf("      seed %llu\n", (unsigned long long)seed);
    for (int f = 0; f < FAULT_COUNT; f++)
        for (int p = 0; p < PHASE_COUNT; p++) {
            bool is_any = false;
            for (int s = 0; s < SIZE_COUNT; s++) is_any = is_any || results[f][p][s].outcome >= GOOD;
            if (!is_any) continue;
            printf("%-12s%-12s", fault_names[f], phase_names[p]);
            for (int s = 0; s < SIZE_COUNT; s++) {
                const result *r = &results[f][p][s];
                if (r->outcome < GOOD) printf("%14s", r->outcome == NO_SUCH ? "-" : "");
                else printf("%9s %4d", r->outcome == GOOD ? "ok" : "FAIL", r->worst_ms);
            }
            printf("\n");
        }
}

/* ---- >>running them ---- */

typedef struct slot { net net; board *board; cell cell; pid_t referee; } slot;

/* A referee has ended. */
static void take_result(slot *s, int status)
{
    const cell *c = &s->cell;
    int size_at = 0;

    while (sizes[size_at] != c->size) size_at++;
    CHECK(status == 0, "%s: the referee ended with %#x", c->name, (unsigned)status);
    check__passed += s->board->passed;
    check__failed += s->board->failed;
    results[c->fault][c->phase][size_at] = (result){ status == 0 && s->board->failed == 0 ? GOOD : BAD, (int)s->board->worst_ms };
    s->referee = 0;
}

static slot *await_slot(slot *slots, int count)
{
    int status;

    for (int i = 0; i < count; i++) if (!slots[i].referee) return &slots[i];
    const pid_t ended = wait(&status);
    for (int i = 0; i < count; i++) {
        if (slots[i].referee != ended) continue;
        take_result(&slots[i], status);
        return &slots[i];
    }
    return NULL;
}

static void run_cell(slot *slots, int count, const int *at, int number, uint64_t seed)
{
    slot *s = await_slot(slots, count);

    if (!s) return;
    cell_draw(&s->cell, &s->net, s->board, (fault)at[0], (phase)at[1], sizes[at[2]], number, seed);
    fflush(NULL);
    s->referee = fork();
    if (s->referee == 0) referee(&s->cell);
}

static bool is_listed(int argc, char **argv, int at, const char *name)
{
    return at >= argc || !strcmp(argv[at], "any") || support_listed(argv[at], name);
}

/* Which cells are to run?  Without arguments one size for each fault in each phase, and a second one for some. */
static bool is_chosen(int argc, char **argv, int f, int p, int s, uint64_t seed)
{
    const uint64_t draw = support_mix(seed * 1000003 + (uint64_t)(f * PHASE_COUNT + p));
    const uint64_t first = there_is((fault)f, (phase)p, sizes[draw % SIZE_COUNT]) ? draw % SIZE_COUNT : 1;
    char size[8];

    if (argc > 1 && !strcmp(argv[1], "all")) return true;
    snprintf(size, sizeof size, "%d", sizes[s]);
    if (argc > 1)
        return is_listed(argc, argv, 1, fault_names[f]) && is_listed(argc, argv, 2, phase_names[p])
            && is_listed(argc, argv, 3, size);
    return (uint64_t)s == first || ((draw >> 8) % 3 == 0 && s == 1);
}

static void run_cells(slot *slots, int count, int argc, char **argv, uint64_t seed)
{
    int order[FAULT_COUNT * PHASE_COUNT * SIZE_COUNT][3], cells = 0;
    uint64_t random = seed;

    for (int f = 0; f < FAULT_COUNT; f++)
        for (int p = 0; p < PHASE_COUNT; p++)
            for (int s = 0; s < SIZE_COUNT; s++) {
                if (!is_chosen(argc, argv, f, p, s, seed)) continue;
                results[f][p][s].outcome = there_is((fault)f, (phase)p, sizes[s]) ? NOT_RUN : NO_SUCH;
                if (results[f][p][s].outcome == NO_SUCH) continue;
                const int other = (int)(support_random(&random) % (uint64_t)(cells + 1));
                memcpy(order[cells], order[other], sizeof order[0]);
                order[other][0] = f, order[other][1] = p, order[other][2] = s;
                cells++;
            }
    for (int i = 0; i < cells; i++) run_cell(slots, count, order[i], i, seed);
    for (int i = 0; i < count; i++) {
        int status;
        if (slots[i].referee && waitpid(slots[i].referee, &status, 0) > 0) take_result(&slots[i], status);
    }
    printf("%d cells\n", cells);
}

int main(int argc, char **argv)
{
    static slot slots[SLOTS_MOST];
    const long processors = sysconf(_SC_NPROCESSORS_ONLN);
    const int count = processors > 2 ? 3 : 2;
    const uint64_t seed = support_seed();

    const int mode_at = argc > 1 && !strcmp(argv[1], "all") ? 2 : 4;
    if (argc > mode_at && strcmp(argv[mode_at], "any")) only_security = argv[mode_at];
    setvbuf(stdout, NULL, _IOLBF, 0);
    (void)signal(SIGPIPE, SIG_IGN);
    if (!net_become_root()) return printf("skipped: no root, and no user namespaces\n0 passed, 0 failed\n"), 0;
    for (int i = 0; i < count; i++) {
        slots[i].board = mmap(NULL, sizeof *slots[i].board, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        if (slots[i].board == MAP_FAILED) return perror("mmap"), 1;
        if (net_make(&slots[i].net)) continue;
        printf("%s: %s\n%d passed, %d failed\n", slots[i].net.is_refused ? "skipped" : "no network", slots[i].net.why, 0,
               !slots[i].net.is_refused);
        return !slots[i].net.is_refused;
    }
    run_cells(slots, count, argc, argv, seed);
    print_table(seed);
    for (int i = 0; i < count; i++) net_end(&slots[i].net);
    return CHECK_DONE();
}
