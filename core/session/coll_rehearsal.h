/* coll_rehearsal.h - how much memory calls will take: they are made, in an arena, by ranks that are all in this process.
 *
 * A world of ranks that are threads, or simulated, is rehearsed as it is, with one arena for all.  Of ranks elsewhere one has an
 * arena, the rank in question: the others are threads here, and all of them exchange messages as over a transport that takes no
 * collectives, once as if they shared a host and once as if each had its own.  What the transport itself takes its row tells
 * (coll__transport_row.rehearse). */
#ifndef COLL_REHEARSAL_H
#define COLL_REHEARSAL_H

#if !defined(COLL_NO_ARENA)

enum { COLL__REHEARSED_FIRST = 256 << 10, COLL__TIMES_REHEARSED = 2 };

typedef struct coll__rehearsal {
    const coll__program *program;
    const coll__transport_row *row;               /* NULL: a transport of the program's own                   */
    const coll_config   *config;
    const coll_call     *calls;
    int                  count;
    const coll_allocator *arena;
    coll_transport       messages;                /* of threads, without what takes collectives               */
} coll__rehearsal;

/* ---- >>calls ---- */

/* Zeros in the place of a buffer of the program's. */
static bool coll__stand_in(void **at, size_t length)
{
    return !length || (*at = coll__take_zeros(NULL, length, 1));
}

/* A list of tensors, with buffers of their own. */
static coll_buffer *coll__buffers_stand_in(const coll_call *call)
{
    coll_buffer *const list = (coll_buffer *)coll__take_zeros(NULL, (size_t)call->list_count + 1, sizeof *list);
    bool has_all = list != NULL;

    for (int i = 0; has_all && i < call->list_count; i++) {
        void *at = NULL;
        list[i] = call->list[i];
        has_all = coll__stand_in(&at, list[i].count * coll_type_size(list[i].type));
        list[i].send = list[i].recv = at;
    }
    if (has_all) return list;
    for (int i = 0; list && i < call->list_count; i++) coll__give(list[i].recv);
    coll__give(list);
    return NULL;
}

static void coll__buffers_give(coll_buffer *list, int count)
{
    for (int i = 0; list && i < count; i++) coll__give(list[i].recv);
    coll__give(list);
}

/* One call, with buffers of this function. */
static coll_status coll__rehearse_call(coll_comm *comm, const coll_call *asked)
{
    coll_request r;
    coll_call *const call = &r.call;
    coll__side send, recv;
    void *in = NULL, *out = NULL, *residual = NULL;
    coll_buffer *list = NULL;
    bool has_all = true;

    *call = *asked;
    if (call->kind == COLL_ALLGATHERV && call->recv_counts) call->count = call->recv_counts[comm->rank];
    coll__sides_of(comm, call, &send, &recv);
    const bool is_marked = call->send == COLL_IN_PLACE;
    const bool is_in_place = recv.is_used && (is_marked || (call->send && call->send == call->recv));
    const size_t sent = coll__strided_length(call, &send, call->send_stride);
    const size_t received = coll__strided_length(call, &recv, call->recv_stride);
    if (recv.is_used) has_all = coll__stand_in(&out, is_in_place ? coll__most(sent, received) : received);
    if (!is_in_place) has_all = has_all && coll__stand_in(&in, sent);
    if (call->residual) has_all = has_all && coll__stand_in(&residual, call->count * (size_t)comm->size * sizeof(float));
    if (call->list) has_all = has_all && (list = coll__buffers_stand_in(call));
    if (!is_marked) call->send = is_in_place ? out : in;
    call->recv = out;
    call->residual = (float *)residual;
    call->list = list;
    coll_status status = has_all ? coll__enter_alive(comm)
                                 : coll__start_failed(COLL_ERR_MEMORY, "no memory for the buffers of a rehearsal");
    if (has_all && status == COLL_OK) status = coll__leave(comm, coll__run_inside(comm, &r));
    coll__buffers_give(list, asked->list_count);
    coll__give(residual);
    coll__give(in);
    coll__give(out);
    return status;
}

/* Every call twice, while as many requests as there are calls take memory. */
static int coll__rehearse(coll_comm *comm, void *arg)
{
    const coll__rehearsal *const all = (const coll__rehearsal *)arg;
    coll_request *requests = NULL;
    void *strides = NULL;
    coll_status status = COLL_OK;

    for (int i = 0; i < all->count; i++) {
        coll_request *const one = coll__request_take(comm);
        if (one) one->next = requests, requests = one;
        void **const rows = (void **)coll__take_lines(coll__like(comm), coll__strides_room(comm, &all->calls[i]));
        if (rows) *rows = strides, strides = rows;
    }
    for (int time = 0; time < COLL__TIMES_REHEARSED; time++)
        for (int i = 0; i < all->count && status == COLL_OK; i++) status = coll__rehearse_call(comm, &all->calls[i]);
    if (status < 0 && *coll__sentence_of(comm)) (void)coll__start_failed(status, "%s", coll__sentence_of(comm));
    while (requests) {
        coll_request *const one = requests;
        requests = one->next;
        coll__request_give(one);
    }
    while (strides) {
        void *const one = strides;
        strides = *(void **)one;
        coll__give(one);
    }
    return status;
}

/* ---- >>worlds ---- */

/* The communicators of threads that exchange messages, one of them in the arena. */
static coll_status coll__rehearsal_comms(coll__rehearsal *all, coll__settings *s, coll__opened *opened, bool is_one_host,
                                         coll_comm **comms)
{
    const int size = s->config.size;
    int made = 0;

    all->messages = *opened[0].transport;
    all->messages.offload = NULL;
    all->messages.bind = NULL;
    all->messages.can_offload = NULL;
    all->messages.group = NULL;
    all->messages.ungroup = NULL;
    all->messages.mark_stragglers = NULL;
    if (!is_one_host) all->messages.host = NULL;
    for (; made < size; made++) {
        opened[made].transport = &all->messages;
        opened[made].offloads_all = false;
        if (!is_one_host) opened[made].local_rank = 0, opened[made].local_size = 1;
        s->config.allocator = made == all->config->rank ? all->arena : NULL;
        if (!(comms[made] = coll__comm_new(&opened[made], s))) break;
    }
    if (made == size) return COLL_OK;
    for (int i = made + 1; i < size; i++) opened[i].transport->close(opened[i].context);
    while (--made >= 0) coll__comm_close(comms[made]);
    return COLL_ERR_MEMORY;
}

static coll_status coll__rehearse_messages(coll__rehearsal *all, bool is_one_host)
{
    const int size = all->config->size;
    const size_t n = (size_t)size;
    coll_config config = *all->config;
    coll__settings *const s = (coll__settings *)coll__take_zeros(NULL, 1, sizeof *s);
    coll__opened *const opened = (coll__opened *)coll__take_zeros(NULL, n, sizeof *opened);
    coll_comm **const comms = (coll_comm **)coll__take_zeros(NULL, n, sizeof *comms);
    coll__worker *const workers = (coll__worker *)coll__take_zeros(NULL, n, sizeof *workers);
    coll_status status = s && opened && comms && workers ? COLL_OK
                       : coll__start_failed(COLL_ERR_MEMORY, "no memory for the rehearsal of %d ranks", size);

    config.transport = NULL;
    config.rank = 0;
    config.allocator = NULL;
    if (status == COLL_OK) status = coll__settle(all->program, s, &config, size);
    const coll__transport_row *const row = status == COLL_OK ? coll__row_for(all->program, NULL, s) : NULL;
    if (status == COLL_OK)
        status = row->missing || !(row->traits & COLL__OPENS_ALL)
               ? coll__start_failed(COLL_ERR_UNSUPPORTED, "coll_memory_needed: %s", row->missing ? row->missing : "no ranks here")
               : row->open(s, size, opened);
    if (status == COLL_OK) status = coll__rehearsal_comms(all, s, opened, is_one_host, comms);
    for (int i = 0; status == COLL_OK && i < size; i++)
        workers[i] = (coll__worker){ .comm = comms[i], .fn = coll__rehearse, .arg = all };
    if (status == COLL_OK) {
        status = coll__workers_run(size, workers);
        for (int i = 0; i < size && status == COLL_OK; i++) status = (coll_status)workers[i].result;
    }
    coll__give(workers);
    coll__give(comms);
    coll__give(opened);
    coll__give(s);
    return status;
}

/* ---- >>parts: each in an arena of its own ---- */

typedef coll_status coll__rehearsal_part(coll__rehearsal *all);

static coll_status coll__rehearse_apart(coll__rehearsal *all) { return coll__rehearse_messages(all, false); }
static coll_status coll__rehearse_together(coll__rehearsal *all) { return coll__rehearse_messages(all, true); }

/* All ranks of a world that is in one process. */
static coll_status coll__rehearse_world(coll__rehearsal *all)
{
    coll_config config = *all->config;

    config.rank = 0;
    config.allocator = all->arena;
    return (coll_status)coll__spawn(all->program, config.size, coll__rehearse, all, &config);
}

static coll_status coll__rehearse_transport(coll__rehearsal *all)
{
    coll_config config = *all->config;
    coll__settings *const s = (coll__settings *)coll__take_zeros(NULL, 1, sizeof *s);
    coll_status status;

    if (!s) return coll__start_failed(COLL_ERR_MEMORY, "no memory for the settings of a rehearsal");
    config.allocator = all->arena;
    status = coll__settle(all->program, s, &config, 1);
    if (status == COLL_OK) status = all->row->rehearse(s);
    coll__give(s);
    return status;
}

/* Into *most: what a part takes, in an arena that grows until it has refused nothing. */
static coll_status coll__rehearse_part(coll__rehearsal *all, coll__rehearsal_part *part, size_t *most)
{
    coll_status status = COLL_ERR_MEMORY;
    bool is_enough = false;

    *most = 0;
    for (size_t length = COLL__REHEARSED_FIRST; !is_enough && length < SIZE_MAX / 8; length *= 4) {
        void *const block = coll__take(NULL, length);
        if (!block) return coll__start_failed(COLL_ERR_MEMORY, "no memory for a rehearsal in %zu bytes", length);
        all->arena = coll_arena_begin(block, length);
        status = part(all);
        is_enough = !coll__arena_of(all->arena)->has_refused;
        *most = coll_arena_most(all->arena);
        (void)coll_arena_end(all->arena);
        coll__give(block);
    }
    return status;
}

static coll_status coll__memory_check(const coll__rehearsal *all)
{
    if (!all->config || all->config->size < 1 || all->config->rank < 0 || all->config->rank >= all->config->size)
        return coll__start_failed(COLL_ERR_ARGUMENT, "coll_memory_needed: the configuration has no size, or a rank out of range");
    if (all->count < 0 || (all->count && !all->calls))
        return coll__start_failed(COLL_ERR_ARGUMENT, "coll_memory_needed: the calls are NULL, or less than none");
    for (int i = 0; i < all->count; i++) {
        const coll_kind kind = all->calls[i].kind;
        if ((int)kind < COLL_BARRIER || (int)kind >= COLL__KIND_COUNT)
            return coll__start_failed(COLL_ERR_ARGUMENT, "coll_memory_needed: invalid kind %d (see coll_kind)", (int)kind);
        if (coll__kind_is(kind, COLL__MESSAGE | COLL__PAIRWISE | COLL__NEIGHBORS))
            return coll__start_failed(COLL_ERR_UNSUPPORTED, "coll_memory_needed: a %s cannot be rehearsed by one rank: "
                                      "measure it with coll_arena_most", coll__kinds[kind].name);
    }
    if (all->row && all->row->missing)
        return coll__start_failed(COLL_ERR_UNSUPPORTED, "transport \"%s\", but %s", all->row->name, all->row->missing);
    if (!all->row || all->row->traits & COLL__OPENS_ALL || all->row->rehearse) return COLL_OK;
    return coll__start_failed(COLL_ERR_UNSUPPORTED, "coll_memory_needed: transport \"%s\" has memory of its own", all->row->name);
}

/* Other orders of the same calls may leave other holes: a quarter is for these. */
static size_t coll__with_holes(size_t most) { return coll__round_up(most + most / 4, COLL__PART_LINE); }

static size_t coll__memory_needed(const coll__program *program, const coll_config *config, const coll_call *calls, int count)
{
    coll_config quiet = config ? *config : (coll_config){ 0 };
    coll__rehearsal all = { .program = program, .config = &quiet, .calls = calls, .count = count };
    size_t apart = 0, together = 0, own = 0;

    quiet.log_level = COLL_LOG_NONE;
    quiet.dump = NULL;
    coll_status status = coll__row_find(program, quiet.transport, &all.row);
    if (status == COLL_OK) status = coll__memory_check(&all);
    if (status == COLL_OK && all.row && (all.row->traits & COLL__OPENS_ALL || quiet.size == 1)) {
        status = coll__rehearse_part(&all, coll__rehearse_world, &own);
        return status < 0 ? 0 : coll__with_holes(own);
    }
    if (status == COLL_OK && all.row) status = coll__rehearse_part(&all, coll__rehearse_transport, &own);
    if (status == COLL_OK) status = coll__rehearse_part(&all, coll__rehearse_apart, &apart);
    if (status == COLL_OK && quiet.size > 2) status = coll__rehearse_part(&all, coll__rehearse_together, &together);
    return status < 0 ? 0 : coll__with_holes(own + coll__most(apart, together));
}

#else

static size_t coll__memory_needed(const coll__program *program, const coll_config *config, const coll_call *calls, int count)
{
    (void)program, (void)config, (void)calls, (void)count;
    (void)coll__start_failed(COLL_ERR_UNSUPPORTED, "coll_memory_needed: this program was compiled with COLL_NO_ARENA");
    return 0;
}

#endif
#endif /* COLL_REHEARSAL_H */
