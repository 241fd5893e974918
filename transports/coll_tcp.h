/* coll_tcp.h - ranks that are processes, connected by TCP.
 *
 * Every rank keeps one control connection to rank 0, for heartbeats, the first failure and orderly leaves; a thread serves it.
 * Data connections are made on first use by the lower of the two ranks: one per peer, channel and lane. */
#ifndef COLL_TCP_H
#define COLL_TCP_H

enum { COLL__TCP_TRAITS = COLL__OPENS_ONE | COLL__ADMITS };

#if COLL__HAS_TCP

#include "tcp/coll_tcp_system.h"                  /* system calls beyond POSIX, on Linux and elsewhere      */
#include "tcp/coll_tcp_watch.h"                   /* descriptors watched beside the transfers: epoll, or a list */
COLL__FOR_SIZE
#include "tcp/coll_tcp_launch.h"                  /* the address of rank 0, from launchers                  */
#include "tcp/coll_tcp_config.h"                  /* network settings of program and environment            */
#include "tcp/coll_tcp_wire.h"                    /* hellos, control messages, endpoints: formats and parsers */
#include "tcp/coll_tcp_address.h"                 /* addresses as text and as bytes; name resolution        */
#include "tcp/coll_tcp_network.h"                 /* which addresses and ports of this host to use          */
#include "tcp/coll_tcp_socket.h"                  /* listening, and connecting to one or several addresses  */
COLL__FOR_SPEED
#include "tcp/coll_tcp_pipe.h"                    /* a connection, independent of how its bytes are carried */
#include "tcp/coll_tcp_record.h"                  /* pipes with records and checksums                       */
#include "tcp/coll_tcp_tls.h"                     /* TLS                                                    */
#include "tcp/coll_tcp_shm_pipe.h"                /* a pipe through shared memory, between processes of one host */
COLL__FOR_SIZE
#include "tcp/coll_tcp_shm_segment.h"             /* a segment that other ranks of this host may map        */
#include "tcp/coll_tcp_handshake.h"               /* the handshake of every connection                      */
#include "tcp/coll_tcp_dial.h"                    /* connecting to a rank: the connect and the handshake    */
COLL__FOR_SPEED
#include "tcp/coll_tcp_stream.h"                  /* queues of messages over a pipe                         */
#include "tcp/coll_tcp_lanes.h"                   /* a stream over several connections                      */
#include "tcp/coll_tcp_io.h"                      /* poll and io_uring                                      */
COLL__FOR_SIZE
#include "tcp/coll_tcp_heartbeat.h"               /* heartbeats and failure detection                       */
COLL__FOR_SPEED
#include "tcp/coll_tcp_world.h"                   /* the state of a rank: endpoints, streams, control connections */
COLL__FOR_SIZE
#include "tcp/coll_tcp_endpoints.h"               /* collecting and distributing endpoints                  */
#include "tcp/coll_tcp_join.h"                    /* processes that ask to join                             */
#include "tcp/coll_tcp_accept.h"                  /* opening data connections                               */
#include "tcp/coll_tcp_control.h"                 /* the heartbeat thread; its decisions; events            */
#include "tcp/coll_tcp_address_file.h"            /* a file with the address of rank 0                      */
#include "tcp/coll_tcp_bootstrap.h"               /* the start: all ranks connect to rank 0                 */
#include "tcp/coll_tcp_fail.h"                    /* all ranks end with the first failure                   */
#include "tcp/coll_tcp_consensus.h"               /* after a failure: consensus on the members              */
#include "tcp/coll_tcp_shrink.h"                  /* the surviving ranks form a new job                     */
COLL__FOR_SPEED

/* ---- >>transfers ---- */

static coll_status coll__tcp_queue(coll__tcp *tcp, coll_xfer *x, bool is_send)
{
    coll__stream *s = coll__stream_to(tcp, x->peer, x->channel);

    x->moved = 0;
    coll__chain_put(is_send ? &s->out : &s->in, x);
    coll__activate(tcp, s);
    return COLL_OK;
}

static coll_status coll__tcp_send(void *context, coll_xfer *x) { return coll__tcp_queue((coll__tcp *)context, x, true); }
static coll_status coll__tcp_recv(void *context, coll_xfer *x) { return coll__tcp_queue((coll__tcp *)context, x, false); }

/* Move what the sockets of one stream take and have. */
static size_t coll__stream_move(coll__tcp *tcp, coll__stream *s)
{
    int error = -1;

    if (coll__cannot_succeed(tcp, s)) coll__suspect(tcp, s->peer, "is gone: connection closed");
    else if (s->state == COLL__STREAM_NONE && tcp->rank < s->peer) coll__stream_dial(tcp, s);
    if (s->state == COLL__STREAM_REFUSED) coll__stream_refused(tcp, s);
    if (s->state == COLL__STREAM_ASTRAY) coll__stream_astray(tcp, s);
    if (s->state != COLL__STREAM_OPEN) return 0;
    const size_t out = coll__stripe_set_of(s) ? coll__stripe_set_push(s, &error) : coll__stream_push(s, &error);
    const int push_error = error;
    if (error > 0 && !s->in.first) coll__stream_broken(tcp, s, error);
    error = -1;                                       /* after a failed push, received data counts            */
    const size_t in = coll__stripe_set_of(s) ? coll__stripe_set_pull(s, &error) : coll__stream_pull(s, &error);
    if (error < 0 && coll__stripe_set_of(s) && in == 0 && s->state == COLL__STREAM_OPEN) error = push_error;   /* no data */
    if (error >= 0) coll__stream_broken(tcp, s, error);
    return out + in;
}

static size_t coll__streams_move(coll__tcp *tcp)
{
    size_t moved = 0;

    for (int i = 0; i < tcp->active.count;) {
        coll__stream *s = tcp->active.streams[i];
        moved += coll__stream_move(tcp, s);
        if (coll__stream_is_busy(s)) {
            i++;
        } else {                                  /* idle: replace it by the last one                         */
            s->is_active = false;
            tcp->active.streams[i] = tcp->active.streams[--tcp->active.count];
        }
    }
    return moved;
}

static coll_status coll__tcp_progress(void *context, int wait_ms)
{
    coll__tcp *tcp = (coll__tcp *)context;

    if (coll__has_news(tcp)) coll__control_listen(tcp);
    if (tcp->failure.status != COLL_OK) return tcp->failure.status;
    const size_t came_back = (size_t)coll__io_reap(&tcp->io), moved = came_back + coll__streams_move(tcp);
    if (tcp->redials > 0 || __atomic_load_n(&tcp->budget.is_awaited, __ATOMIC_RELAXED))
        wait_ms = (int)coll__least((size_t)wait_ms, COLL__REDIAL_LEAST_MS);
    if (moved == 0 && wait_ms > 0) {
        coll__watch_active(tcp);
        coll__io_wait(&tcp->io, &tcp->active, wait_ms);
        coll__events(tcp);
        coll__streams_move(tcp);
    } else if (moved == 0 && (tcp->looks++ % COLL__LOOKS_AN_EVENT == 0)) {
        coll__watch_active(tcp);
        coll__events(tcp);
    }
    if (tcp->suspicion.status != COLL_OK && tcp->failure.status == COLL_OK)
        coll__tcp_settle(tcp, &tcp->suspicion, tcp->is_sentence);
    return tcp->failure.status;
}

COLL__FOR_SIZE

/* ---- >>leaving ---- */

static void coll__stream_leave(coll__stream *s, bool is_in_order, int64_t deadline)
{
    const int lanes = coll__lane_count(s);

    if (is_in_order && s->state == COLL__STREAM_OPEN) {
        if (coll__stripe_set_of(s)) coll__stripe_set_leave(s, deadline);
        for (int k = 0; k < lanes; k++) coll__pipe_flush(coll__stream_lane(s, k), deadline);
    }
    for (int k = 0; k < lanes; k++) if (coll__stream_lane(s, k)->fd >= 0) shutdown(coll__stream_lane(s, k)->fd, SHUT_RDWR);
}

static void coll__tcp_close(void *context)
{
    coll__tcp *tcp = (coll__tcp *)context;
    const int64_t deadline = coll__deadline(COLL__FLUSH_MS);
    const int count = tcp->size * COLL_CHANNEL_COUNT;

    if (tcp->failure.status == COLL_OK && !tcp->heartbeat.is_leaving) coll__streams_arrive(tcp, deadline);
    if (!tcp->heartbeat.is_leaving) coll__say_bye(tcp, deadline);
    for (int i = 0; tcp->streams && i < count; i++)
        coll__stream_leave(&tcp->streams[i], tcp->failure.status == COLL_OK, deadline);
    coll__io_cancel(&tcp->io, tcp->streams, count);
    coll__tcp_free(tcp);
}

static int coll__tcp_site(void *context, int rank) { return (int)((coll__tcp *)context)->endpoints[rank].site; }

static void coll__tcp_wake(void *context)
{
    coll__doorbell_ring(&((coll__tcp *)context)->io.doorbell);
}

static void coll__tcp_traffic(const void *context, uint64_t *sent, uint64_t *received)
{
    const coll__tcp *tcp = (const coll__tcp *)context;
    for (int i = 0; i < tcp->size * COLL_CHANNEL_COUNT; i++) {
        *sent += __atomic_load_n(&tcp->streams[i].sent, __ATOMIC_RELAXED);
        *received += __atomic_load_n(&tcp->streams[i].received, __ATOMIC_RELAXED);
    }
}

/* "io_uring; memory to 3 ranks, loopback to 1, network to 4", for all but `count` ranks from `first` on: as connected, or as
 * it will be. */
static const char *coll__tcp_describe_but(coll__tcp *tcp, int first, int count)
{
    int by_memory = 0, by_loopback = 0, by_network = 0;
    char *const text = tcp->description;
    const size_t room = sizeof tcp->description;

    for (int i = 0; i < tcp->size; i++) {
        const coll__stream *s = coll__stream_to(tcp, i, COLL_CHANNEL_CALLS);
        if (i >= first && i < first + count) continue;
        if (!coll__is_of_this_host(tcp, i)) by_network++;
        else if (s->state == COLL__STREAM_OPEN ? coll__pipe_is_memory(&s->pipe) : coll__shares_with(tcp, i)) by_memory++;
        else by_loopback++;
    }
    coll__io_describe(&tcp->io, text, room);
    if (by_memory) coll__append(text, room, " memory to %d rank%s", by_memory, by_memory == 1 ? "" : "s");
    if (by_loopback) coll__append(text, room, "%s loopback to %d", by_memory ? "," : "", by_loopback);
    if (by_network) coll__append(text, room, "%s network to %d", by_memory + by_loopback ? "," : "", by_network);
    if (tcp->size > 1)
        coll__append(text, room, ", security %s%s", coll__security_name(tcp->us.auth),
                     (tcp->us.auth & COLL__AUTH_KIND) == COLL__AUTH_KEY ? " (not encrypted)" : "");
    return text;
}

static const char *coll__tcp_describe(const void *context)
{
    coll__tcp *tcp = (coll__tcp *)(uintptr_t)context;         /* its text is changed                          */
    return coll__tcp_describe_but(tcp, tcp->rank, 1);
}

static const coll_transport coll__tcp_transport = {
    .name = "tcp",
    .send = coll__tcp_send,
    .recv = coll__tcp_recv,
    .progress = coll__tcp_progress,
    .close = coll__tcp_close,
    .fail = coll__tcp_fail,
    .host = coll__tcp_host,
    .site = coll__tcp_site,
    .report_stall = coll__tcp_report_stall,
    .peer_status = COLL__IF_WATCH(coll__tcp_peer_status),
    .failed = coll__tcp_failed,
    .shrink = COLL__SHRINKS(coll__tcp_shrink),
    .abort = coll__tcp_abort,
    .wake = coll__tcp_wake,
    .in_background = true,
    .has_left = coll__tcp_has_left,
    .traffic = coll__tcp_traffic,
    .describe = coll__tcp_describe,
};

static bool coll__tcp_enter(void *context, coll__opened *out, coll_status *status);

static const coll__elastic coll__tcp_elastic = {
    .waiting = coll__tcp_waiting, .table = coll__tcp_newcomers, .enter = coll__tcp_enter
};

static const coll__internals coll__tcp_internals = {
    .part = coll__tcp_part, .watch = coll__tcp_watch, .has_freed = COLL__IF_WATCH(coll__tcp_has_freed),
    .elastic = COLL__SHRINKS(&coll__tcp_elastic)
};

/* The first world of newcomers has sockets only, and that of a new rank 0. */
static bool coll__tcp_enter(void *context, coll__opened *out, coll_status *status)
{
    coll__tcp *const tcp = (coll__tcp *)context;

    if (tcp->voters == tcp->size && !tcp->has_new_root) return false;
    out->transport = &coll__tcp_transport;
    out->internals = &coll__tcp_internals;
    out->context = tcp;
    out->rank = tcp->rank;
    out->size = tcp->size;
    out->offloads_all = false;
    out->numbers = (coll__numbers){ .link = coll__link_default };
    *status = coll__take_tuning(tcp, &out->numbers);
    if (*status == COLL_OK) *status = coll__count_neighbours(tcp, out);
    return true;
}

/* ---- >>open ---- */

static void coll__tcp_say_joined(const coll__opened *o, const coll__tcp_settings *s, const char *source)
{
    const coll__log log = coll__log_of(&s->config);

    coll__say(&log, COLL_LOG_INFO, "rank %d of %d (from %s), rank %d of %d on its host, over %s at %s with %s", o->rank, o->size,
              source, o->local_rank, o->local_size, o->transport->name, s->config.address, o->transport->describe(o->context));
}

static coll_status coll__tcp_open(const coll__settings *s, int count, coll__opened *out)
{
    coll__tcp *tcp = NULL;
    coll_status status;
    coll__tcp_settings *const own = coll__tcp_settings_new(s, &status);

    (void)count;
    *out = coll__opened_as(&coll__tcp_transport, NULL, s->config.rank, s->config.size, s);
    if (own) status = coll__tcp_join(&tcp, own, out);
    out->internals = &coll__tcp_internals;
    out->context = tcp;
    if (status == COLL_OK) coll__tcp_say_joined(out, own, s->source);
    coll__tcp_settings_free(own);
    return status;
}

#if !COLL__HAS_HYBRID                             /* otherwise: coll_hybrid.h                                 */

static const coll__transport_row coll__tcp_row = {
    .name = "tcp", .traits = COLL__TCP_TRAITS, .settle = coll__tcp_defaults, .open = coll__tcp_open
};

#endif

COLL__FOR_SPEED

#else

static const coll__transport_row coll__tcp_row = {
    .name = "tcp", .traits = COLL__TCP_TRAITS, .missing = COLL__MISSING
};

#endif
#endif /* COLL_TCP_H */
