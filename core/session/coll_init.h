/* coll_init.h - creates communicators: selects the transport, and runs the ranks of coll_spawn. */
#ifndef COLL_INIT_H
#define COLL_INIT_H

/* ---- >>selection ---- */

static coll_status coll__check_count(const char *who, int count)
{
    if (count >= 1 && count <= COLL__SIZE_MOST) return COLL_OK;
    return coll__start_failed(COLL_ERR_ARGUMENT, "%s: count %d is out of range: 1 to %d", who, count, COLL__SIZE_MOST);
}

/* The transport that the caller or else the environment names; NULL: none. */
static const char *coll__transport_named(const coll_config *config)
{
    const char *name = config && config->transport ? config->transport : coll__variable("COLL_TRANSPORT");
    return name && *name ? name : NULL;
}

/* The row of that name in *out; NULL: no name. */
static coll_status coll__row_find(const coll__program *program, const char *name, const coll__transport_row **out)
{
    char names[120] = "";

    *out = NULL;
    for (int i = 0; name && program->transports[i] && !*out; i++) {
        if (!program->transports[i]->name) continue;
        if (!strcmp(program->transports[i]->name, name)) *out = program->transports[i];
        coll__append(names, sizeof names, "%s%s", *names ? ", " : "", program->transports[i]->name);
    }
    if (name && !*out)
        return coll__start_failed(COLL_ERR_ARGUMENT, "transport \"%.32s\" is none of %s", name, names);
    return COLL_OK;
}

/* Selects the transport: `named`, if it can open these ranks or is missing in this program; otherwise the first that can.  NULL:
 * an error, with its sentence.  A named transport that needs all ranks in one process is not replaced. */
static const coll__transport_row *coll__row_for(const coll__program *program, const coll__transport_row *named,
                                                const coll__settings *s)
{
    const bool may_join = s->config.elastic > 0 && !(named && named->traits & COLL__OPENS_ALL);
    const unsigned extent = s->config.size <= s->count && !may_join ? COLL__OPENS_ALL
                          : s->count == 1 ? COLL__OPENS_ONE : COLL__OPENS_SOME;
    const unsigned can = COLL__OPENS_ALL | COLL__OPENS_ONE | COLL__OPENS_SOME;

    if (named && named->traits & (named->missing ? can : extent)) return named;
    if (named && (named->traits & can) == COLL__OPENS_ALL) {
        coll__start_failed(COLL_ERR_ARGUMENT, "there are %d ranks (from %s), but transport \"%s\" has only the %d of this "
                           "process: make all ranks here (coll_spawn, coll_init_threads), or leave the transport out",
                           s->config.size, s->source, named->name, s->count);
        return NULL;
    }
    const coll__transport_row *const *row = program->transports;
    while ((*row)->traits & COLL__WHEN_NAMED || !((*row)->traits & extent)) row++;
    return *row;
}

/* ---- >>open ---- */

/* Warns if a process creates all ranks: it may be one of several that do so. */
static void coll__say_alone(const coll__settings *s)
{
    const int count = s->count;
    const coll__log log = coll__log_of(&s->config);

    if (count == 1 || s->launch.size != count || !coll__counts_ranks(s->launch.by) || coll__environment("COLL_THREADS")) return;
    coll__say(&log, COLL_LOG_WARN, "this process makes all %d ranks of COLL_SIZE=%d and waits for no other process; where others "
              "are started too, COLL_SIZE is the sum over all of them (COLL_THREADS=%d: this line is not needed)", count, count,
              count);
}

/* Creates a communicator for each open rank.  If one cannot be created, none is kept. */
static coll_status coll__comms_new(const coll__opened *opened, int count, const coll__settings *s, coll_comm **out)
{
    int made = 0;

    while (made < count && (out[made] = coll__comm_new(&opened[made], s))) made++;
    if (made == count) return COLL_OK;
    for (int i = made + 1; i < count; i++) opened[i].transport->close(opened[i].context);
    while (--made >= 0) {
        coll__comm_close(out[made]);
        out[made] = NULL;
    }
    return COLL_ERR_MEMORY;
}

typedef enum coll__start_kind { COLL__START_SPAWN, COLL__START_SEVERAL, COLL__START_ONE, COLL__START_JOIN } coll__start_kind;

/* Fills in what `config` leaves open, and selects the transport. */
static coll_status coll__open_settle(const coll__program *program, coll__settings *s, coll__start_kind kind, int count,
                                     const coll_config *config, const coll__transport_row **row)
{
    const bool is_init = kind == COLL__START_ONE;
    coll_config wanted = config ? *config : (coll_config){ 0 };
    const coll__transport_row *named;
    coll_status status;

    wanted.transport = coll__transport_named(config);
    if ((status = coll__row_find(program, wanted.transport, &named)) < 0) return status;
    const bool counts_itself = is_init && named && named->traits & COLL__COUNTS_ITSELF;
    const bool leaves_job = kind <= COLL__START_SEVERAL && named && named->traits & COLL__LEAVES_JOB;
    if (counts_itself || leaves_job) wanted.rank = 0, wanted.size = 1;
    if (kind == COLL__START_JOIN) wanted.rank = 1, wanted.size = 2, wanted.tcp.hosts = NULL;      /* until it is taken */
    status = coll__settle(program, s, &wanted, count);
    if (kind == COLL__START_SPAWN && !(named && named->spawn)) s->config.elastic = 0;
    s->is_newcomer = kind == COLL__START_JOIN;
    if (counts_itself) {
        s->config.rank = config ? config->rank : 0;
        s->config.size = config ? config->size : 0;
        s->status = status;
        *row = named;
        return COLL_OK;
    }
    /* rank 0 sends what it has read */
    if (status == COLL_OK && s->config.rank == 0) status = coll__tuning_read(&s->numbers, s->config.tuning_file,
                                                                                s->config.size);
    if (status < 0) return status;
    *row = s->is_newcomer && named ? named : coll__row_for(program, named, s);
    if (s->is_newcomer && !((*row)->traits & COLL__ADMITS))
        return coll__start_failed(COLL_ERR_UNSUPPORTED, "join: no process can join over the transport \"%s\"", (*row)->name);
    if (*row && kind <= COLL__START_SEVERAL && s->config.size == count && !leaves_job) coll__say_alone(s);
    return *row ? COLL_OK : COLL_ERR_ARGUMENT;
}

/* Creates the communicators of `count` ranks. */
static coll_status coll__open(const coll__program *program, int count, coll__start_kind kind, coll_comm **out,
                              const coll_config *config)
{
    const coll_allocator *const memory = config ? config->allocator : NULL;
    coll__settings *const s = (coll__settings *)coll__allocate(memory, sizeof *s);
    coll__opened *const opened = (coll__opened *)coll__allocate(memory, (size_t)count * sizeof *opened);
    const coll__transport_row *row;
    coll_status status = s && opened ? COLL_OK : coll__start_failed(COLL_ERR_MEMORY, "no memory for %d ranks", count);

    out[0] = NULL;
    if (status == COLL_OK) status = coll__open_settle(program, s, kind, count, config, &row);
    if (status == COLL_OK) {
        for (int i = 0; i < count; i++) out[i] = NULL;
        status = row->missing ? coll__start_failed(COLL_ERR_UNSUPPORTED, "transport \"%s\", but %s", row->name, row->missing)
                              : row->open(s, count, opened);
    }
    if (status == COLL_OK) status = coll__comms_new(opened, count, s, out);
    coll__give(opened);
    coll__give(s);
    return status;
}

/* A process joins a job. */
static coll_status coll__join(const coll__program *program, coll_comm **out, const coll_config *config)
{
    if (!out) return coll__start_failed(COLL_ERR_ARGUMENT, "join: out is NULL");
    *out = NULL;
    if (!COLL__HAS_SHRINK)
        return coll__start_failed(COLL_ERR_UNSUPPORTED, "join: this program was compiled with COLL_NO_SHRINK");
    const coll_status status = coll__open(program, 1, COLL__START_JOIN, out, config);
    return status < 0 ? status : coll__join_inside(out);
}

/* This process is one rank, or joins. */
static coll_status coll__open_one(const coll__program *program, coll_comm **out, const coll_config *config)
{
    int joins = config && config->size ? COLL_OFF : COLL_DEFAULT;

    if (!coll__settle_switch(&joins, "COLL_JOIN")) return COLL_ERR_ARGUMENT;
    return joins == COLL_ON ? coll__join(program, out, config) : coll__open(program, 1, COLL__START_ONE, out, config);
}

/* A rank over a transport of the program. */
static coll_status coll__open_custom(const coll__program *program, const coll_transport *transport, void *context, int rank,
                                     int size, coll_comm **out, const coll_config *config)
{
    coll_config only = config ? *config : (coll_config){ 0 };
    coll__settings s;

    if (!out || !transport || !transport->send || !transport->recv || !transport->progress || !transport->close)
        return coll__start_failed(COLL_ERR_ARGUMENT,
                                  "coll_init_custom: out is NULL, or the transport lacks send, recv, progress or close");
    *out = NULL;
    if (!COLL__HAS_MESSAGES)
        return coll__start_failed(COLL_ERR_UNSUPPORTED, "coll_init_custom: this program was compiled with " COLL__PROFILE);
    if (COLL__RESERVED_SET(transport) >= 0)
        return coll__start_failed(COLL_ERR_ARGUMENT, "coll_init_custom: reserved[%d] of the coll_transport is not 0: set all "
                                  "members that you do not use to 0", COLL__RESERVED_SET(transport));
    only.rank = 0, only.size = 1, only.transport = NULL;
    if (size < 1 || size > COLL__SIZE_MOST)
        return coll__start_failed(COLL_ERR_ARGUMENT, "coll_init_custom: size %d is out of range: 1 to %d", size, COLL__SIZE_MOST);
    if (rank < 0 || rank >= size)
        return coll__start_failed(COLL_ERR_ARGUMENT, "coll_init_custom: rank %d is out of range for %d ranks", rank, size);
    const coll_status status = coll__settle(program, &s, &only, 1);
    const coll__opened opened = coll__opened_as(transport, context, rank, size, &s);
    return status < 0 ? status : coll__comms_new(&opened, 1, &s, out);
}

/* ---- >>spawn ---- */

static void *coll__worker_main(void *at)
{
    coll__worker *w = (coll__worker *)at;

    w->comm->owner = &w->comm;
    w->result = w->fn(w->comm, w->arg);
    if (w->comm) coll__comm_close(w->comm);
    return NULL;
}

/* Runs each rank in a thread, rank 0 in that of the caller. */
static coll_status coll__workers_run(int count, coll__worker *workers)
{
    coll_status status = COLL_OK;

    for (int i = count - 1; i >= 0 && status == COLL_OK; i--) {
        const int error = i == 0 ? 0 : coll__worker_begin(&workers[i].thread, coll__worker_main, &workers[i]);
        workers[i].is_running = i > 0 && error == 0;
        if (i == 0) coll__worker_main(&workers[0]);
        if (error) {                              /* running ranks fail: the others will not start            */
            for (int k = i; k >= 0; k--) coll__comm_close(workers[k].comm);
            status = coll__start_failed(COLL_ERR_SYSTEM, "cannot make a thread for rank %d of %d: %s", i, count, strerror(error));
        }
    }
    for (int i = 0; i < count; i++) if (workers[i].is_running) coll__thread_end(workers[i].thread);
    return status;
}

static int coll__spawn(const coll__program *program, int count, int (*fn)(coll_comm *comm, void *arg), void *arg,
                       const coll_config *config)
{
    if (!fn) return coll__started(coll__start_failed(COLL_ERR_ARGUMENT, "coll_spawn: fn is NULL"), config);
    if (coll__check_count("coll_spawn", count) < 0) return coll__started(COLL_ERR_ARGUMENT, config);
    const coll_allocator *const memory = config ? config->allocator : NULL;
    coll_comm **comms = (coll_comm **)coll__take_zeros(memory, (size_t)count, sizeof *comms);
    coll__worker *workers = (coll__worker *)coll__take_zeros(memory, (size_t)count, sizeof *workers);
    const coll__transport_row *row = NULL;
    coll_status status = comms && workers ? coll__open(program, count, COLL__START_SPAWN, comms, config)
                                          : coll__start_failed(COLL_ERR_MEMORY, "no memory for %d ranks", count);

    if (status == COLL_OK) {
        for (int i = 0; i < count; i++) workers[i] = (coll__worker){ .comm = comms[i], .fn = fn, .arg = arg };
        status = coll__row_find(program, coll__transport_named(config), &row);
    }
    if (status == COLL_OK) status = row && row->spawn ? row->spawn(count, workers) : coll__workers_run(count, workers);
    int result = coll__started(status, config);
    for (int i = 0; i < count && result == 0; i++) result = workers[i].result;
    coll__give(workers);
    coll__give(comms);
    return result;
}

#endif /* COLL_INIT_H */
