/* oracle.h - the cases of the collectives: their parameters, the input of each rank, and the result of a case,
    by the tests' own
 * arithmetic; and one rank's buffers in a case.  Used after coll.h and support.h. */
#ifndef ORACLE_H
#define ORACLE_H

/* ---- >>cases: their parameters ---- */

typedef enum form { FORM_OUT, FORM_SAME, FORM_IN_PLACE, FORM_BLOCK, FORM_NULL, FORM_VARIED } form;
typedef enum style { STYLE_PLAIN, STYLE_REQUEST, STYLE_RUN, STYLE_START, STYLE_PAIR } style;
typedef enum data { DATA_SMALL, DATA_RANDOM, DATA_SPECIAL } data;

static const char *const form_names[] = {
    "out of place", "send == recv", "COLL_IN_PLACE", "send in its block of recv, or recv in its block of send",
    "recv NULL where unused", "each rank its own"
};
static const char *const style_names[] = { "blocking", "request", "coll_run", "coll_start", "isend and irecv" };
static const char *const data_names[] = { "small integers", "random", "special" };

/* The forms of a kind, FORM_VARIED last: then every rank draws one of those before it. */
typedef struct kind_row {
    coll_kind kind;
    bool      is_reducing;
    bool      is_rooted;                          /* root, or what else there is `size` of: barrier: the late rank;
                                                     sendrecv: the distance                                   */
    int       form_count;
    form      forms[5];
} kind_row;

static const kind_row kind_rows[] = {
    { COLL_BARRIER,        false, true,  1, { FORM_OUT } },
    { COLL_BROADCAST,      false, true,  1, { FORM_OUT } },
    { COLL_REDUCE,         true,  true,  5, { FORM_OUT, FORM_SAME, FORM_IN_PLACE, FORM_NULL, FORM_VARIED } },
    { COLL_ALLREDUCE,      true,  false, 4, { FORM_OUT, FORM_SAME, FORM_IN_PLACE, FORM_VARIED } },
    { COLL_REDUCE_SCATTER, true,  false, 5, { FORM_OUT, FORM_SAME, FORM_IN_PLACE, FORM_BLOCK, FORM_VARIED } },
    { COLL_ALLGATHER,      false, false, 4, { FORM_OUT, FORM_IN_PLACE, FORM_BLOCK, FORM_VARIED } },
    { COLL_SENDRECV,       false, true,  1, { FORM_OUT } }
};
enum { KIND_COUNT = sizeof kind_rows / sizeof *kind_rows, OP_COUNT = COLL_AVG + 1 };

typedef enum algorithm { NO_ALGORITHM = -1, DIRECT, GATHER, TREE, SCATTER, CIRCULANT, ALGORITHM_COUNT } algorithm;

static const char *const algorithm_names[] = { "direct", "gather", "tree", "scatter", "circulant" };

/* These must apply; others may be refused. */
static const struct { coll_kind kind; algorithm algorithm; } required[] = {
    { COLL_ALLREDUCE, GATHER }, { COLL_ALLREDUCE, DIRECT }, { COLL_REDUCE, GATHER }, { COLL_REDUCE, DIRECT },
    { COLL_BROADCAST, TREE }, { COLL_BROADCAST, SCATTER }, { COLL_ALLGATHER, CIRCULANT },
    { COLL_REDUCE_SCATTER, DIRECT }, { COLL_BARRIER, CIRCULANT }
};
enum { REQUIRED_COUNT = sizeof required / sizeof *required };

typedef struct test_case {
    uint64_t        number;                       /* replays it                                               */
    uint64_t        seed;                         /* of its data                                              */
    const kind_row *row;
    coll_kind       kind;
    const support_type *type;
    const support_type *wire;                         /* NULL: none                                               */
    coll_op         op;
    size_t          count;
    int             root;
    form            form;
    style           style;
    data            data;
    algorithm       algorithm;                    /* NO_ALGORITHM: the library's choice                       */
} test_case;

/* A world under test, shared by its ranks. */
typedef struct test_world {
    const char *name;
    int         size;
    uint64_t    seed;
    double      scale;
    int64_t     only;                             /* the one case to run; -1: all                             */
    unsigned    entered;                          /* at barriers, by all ranks                                */
    long        ran;                              /* cases                                                    */
    long        slow;                             /* calls that took longer than SLOW_SECONDS                 */
    bool        applied[KIND_COUNT][ALGORITHM_COUNT];
    struct oracle *oracles;
    pthread_mutex_t oracle_lock;
} test_world;

/* One rank of it. */
typedef struct test_rank {
    test_world *world;
    coll_comm  *comm;
    int         rank, size;
    uint64_t    number;                           /* of the case                                              */
    unsigned    barriers;                         /* started so far                                           */
    int         failures;
    bool        is_over;                          /* no further cases: the communicator has ended, or enough failed */
} test_rank;

static const kind_row *kind_row_of(coll_kind kind)
{
    for (int i = 0; i < KIND_COUNT; i++)
        if (kind_rows[i].kind == kind) return &kind_rows[i];
    return NULL;
}

static const char *algorithm_of(const test_case *c)
{
    return c->algorithm == NO_ALGORITHM ? NULL : algorithm_names[c->algorithm];
}

/* ---- >>data: the input of each rank ---- */

/* Element `at` of the input of a rank. */
static uint64_t element(const test_case *c, int rank, size_t at)
{
    const support_type *type = c->type;
    const uint64_t common = support_mix(c->seed + at * UINT64_C(0xd1342543de82ef95));
    const uint64_t random = support_mix(common ^ ((uint64_t)rank + 1) * UINT64_C(0xaf251af3b0f025b5));
    const uint64_t mask = ~UINT64_C(0) >> (64 - type->size * 8);

    if (type->fraction_bits) {
        if (c->data == DATA_SMALL) return support_bits(type, (double)(random % 17) - 8);
        if (c->data == DATA_RANDOM) return support_ordinary_float(type, random);
        return support_special_float(type, common % 8, random);
    }
    if (c->data == DATA_SMALL) return (random % 17 - (type->is_signed ? 8 : 0)) & mask;
    return (c->data == DATA_RANDOM ? random : support_special_integer(type, random)) & mask;
}

static void fill(const test_case *c, int rank, unsigned char *to, size_t count)
{
    for (size_t i = 0; i < count; i++) support_store(c->type, to + i * c->type->size, element(c, rank, i));
}

/* ---- >>oracle: what a case leaves, computed once for all ranks ---- */

/* What element `at` of all ranks' inputs reduces to. */
static uint64_t reduce_element(const test_case *c, int size, size_t at)
{
    const support_type *wire = c->wire ? c->wire : c->type;
    uint64_t bits[SIZE_MAX_TESTED] = { 0 };
    float singles[SIZE_MAX_TESTED];
    double doubles[SIZE_MAX_TESTED];

    for (int i = 0; i < size; i++) bits[i] = element(c, i, at);
    if (!c->type->fraction_bits) return support_reduce_integers(c->type, c->op, bits, size);
    for (int i = 0; i < size; i++) {
        doubles[i] = support_value(c->type, bits[i]);
        if (c->wire) doubles[i] = support_value(wire, support_bits(wire, doubles[i]));
        singles[i] = (float)doubles[i];
    }
    if (wire->type == COLL_F64) {
        const double result = support_tree_double(c->op, doubles, size);
        return support_bits(wire, c->op == COLL_AVG ? result / (double)size : result);
    }
    float result = support_tree_float(c->op, singles, size);
    if (c->op == COLL_AVG) result /= (float)size;
    const uint64_t rounded = support_bits(wire, (double)result);
    return c->wire ? support_bits(c->type, support_value(wire, rounded)) : rounded;
}

/* The whole result: the reduced vector, the root's input, or the inputs of all ranks one after the other. */
typedef struct oracle {
    struct oracle *next;
    uint64_t       seed;                          /* of the case                                              */
    int            users;                         /* ranks that are still to look at it                       */
    unsigned char *bytes;
} oracle;

static unsigned char *oracle_compute(const test_case *c, int size)
{
    const bool per_rank = c->kind == COLL_REDUCE_SCATTER || c->kind == COLL_ALLGATHER || c->kind == COLL_SENDRECV;
    const size_t total = c->count * (per_rank ? (size_t)size : 1), length = c->type->size;
    unsigned char *bytes = support_need(malloc(total * length + 1));

    if (c->row->is_reducing) {
        for (size_t i = 0; i < total; i++) support_store(c->type, bytes + i * length, reduce_element(c, size, i));
    } else if (c->kind == COLL_BROADCAST) {
        fill(c, c->root, bytes, total);
    } else {
        for (int i = 0; i < size; i++) fill(c, i, bytes + (size_t)i * c->count * length, c->count);
    }
    return bytes;
}

/* The first rank that has finished a case computes; each rank releases it with oracle_release. */
static const unsigned char *oracle_take(test_world *world, const test_case *c)
{
    oracle *o;

    pthread_mutex_lock(&world->oracle_lock);
    for (o = world->oracles; o && o->seed != c->seed;) o = o->next;
    if (!o) {
        o = support_need(malloc(sizeof *o));
        *o = (oracle){ .next = world->oracles, .seed = c->seed, .bytes = oracle_compute(c, world->size) };
        o->users = c->kind == COLL_REDUCE ? 1 : world->size;
        world->oracles = o;
    }
    pthread_mutex_unlock(&world->oracle_lock);
    return o->bytes;
}

static void oracle_release(test_world *world, const test_case *c)
{
    pthread_mutex_lock(&world->oracle_lock);
    for (oracle **at = &world->oracles; *at; at = &(*at)->next) {
        oracle *o = *at;
        if (o->seed != c->seed) continue;
        if (--o->users == 0) {
            *at = o->next;
            free(o->bytes);
            free(o);
        }
        break;
    }
    pthread_mutex_unlock(&world->oracle_lock);
}

/* What ranks that gave up early have left. */
static void oracle_clear(test_world *world)
{
    while (world->oracles) {
        oracle *o = world->oracles;
        world->oracles = o->next;
        free(o->bytes);
        free(o);
    }
}

/* ---- >>trial: one rank's part in one case ---- */

typedef struct trial {
    test_case      c;
    form           form;                          /* this rank's                                              */
    support_buffer send, recv;                    /* send.block NULL: in place, all is in recv                */
    const void    *send_at;                       /* what the call gets                                       */
    void          *recv_at;
    size_t         room;                          /* sendrecv: elements                                       */
    size_t         result_at, result_count;       /* elements of recv.data                                    */
    size_t         result_from;                   /* where they are in the oracle's vector                    */
    unsigned       barrier;                       /* a barrier: how many this rank had started before         */
    coll_request  *requests[2];
    coll_status    status;
    bool           lacks, is_known;               /* something left out of the library; and the refusal says so */
} trial;

static int dest_of(const test_rank *r, const test_case *c) { return (r->rank + c->root) % r->size; }
static int source_of(const test_rank *r, const test_case *c) { return (r->rank - c->root + r->size) % r->size; }
static int tag_of(const test_case *c) { return (int)(c->seed & 1); }

/* The form this rank uses: FORM_VARIED draws. */
static form form_of(const test_rank *r, const test_case *c)
{
    if (c->form != FORM_VARIED) return c->form;
    return c->row->forms[support_mix(c->seed ^ (uint64_t)r->rank) % (uint64_t)(c->row->form_count - 1)];
}

/* The place of the result in `recv`, and its length. */
static void trial_place_result(const test_rank *r, trial *t)
{
    const size_t count = t->c.count, rank = (size_t)r->rank;

    t->result_count = count;
    switch (t->c.kind) {
    case COLL_REDUCE:
        if (r->rank != t->c.root) t->result_count = 0;
        break;
    case COLL_REDUCE_SCATTER:
        t->result_from = rank * count;
        if (t->form == FORM_BLOCK) t->result_at = rank * count;
        break;
    case COLL_ALLGATHER:
        t->result_count = count * (size_t)r->size;
        break;
    case COLL_SENDRECV:
        t->result_from = (size_t)source_of(r, &t->c) * count;
        break;
    default:
        break;
    }
}

/* One buffer for both sides: `whole` elements, the input at element input_at. */
static void trial_prepare_in_place(const test_rank *r, trial *t, size_t shift)
{
    const test_case *c = &t->c;
    const size_t length = c->type->size, rank = (size_t)r->rank;
    const bool per_rank = c->kind == COLL_REDUCE_SCATTER || c->kind == COLL_ALLGATHER;
    const size_t whole = c->count * (per_rank ? (size_t)r->size : 1);
    const bool is_block = t->form == FORM_BLOCK || t->form == FORM_IN_PLACE;
    const size_t input_at = c->kind == COLL_ALLGATHER && is_block ? rank * c->count : 0;
    const size_t input_count = c->kind == COLL_REDUCE_SCATTER ? whole : c->count;
    const bool has_input = c->kind != COLL_BROADCAST || r->rank == c->root;

    t->recv = support_buffer_make(whole * length, shift * length);
    if (has_input) fill(c, r->rank, t->recv.data + input_at * length, input_count);
    t->send_at = t->form == FORM_IN_PLACE ? COLL_IN_PLACE : t->recv.data + input_at * length;
    t->recv_at = t->recv.data + t->result_at * length;
}

static void trial_prepare_apart(const test_rank *r, trial *t, size_t shift)
{
    const test_case *c = &t->c;
    const size_t length = c->type->size, size = (size_t)r->size;
    const size_t input_count = c->count * (c->kind == COLL_REDUCE_SCATTER ? size : 1);
    const size_t recv_count = c->kind == COLL_ALLGATHER ? c->count * size : t->room ? t->room : c->count;

    t->send = support_buffer_make(input_count * length, (7 - shift) * length);
    fill(c, r->rank, t->send.data, input_count);
    support_seal(&t->send);
    t->send_at = t->send.data;
    t->recv = support_buffer_make(recv_count * length, shift * length);
    t->recv_at = t->recv.data;
    if (t->form == FORM_NULL && r->rank != c->root) t->recv_at = NULL;
}

/* Allocate and fill the buffers; nothing is called yet. */
static void trial_prepare(const test_rank *r, trial *t, const test_case *c)
{
    const uint64_t random = support_mix(c->seed ^ (uint64_t)(r->rank + 100));
    const bool no_pointers = c->count == 0 && random >> 8 & 1;

    *t = (trial){ .c = *c, .form = form_of(r, c) };
    if (c->kind == COLL_BARRIER) return;
    if (c->kind == COLL_SENDRECV) t->room = c->count + (random >> 16) % 3;
    trial_place_result(r, t);
    if (t->form == FORM_OUT || t->form == FORM_NULL) {
        if (c->kind == COLL_BROADCAST) trial_prepare_in_place(r, t, random % 8);
        else trial_prepare_apart(r, t, random % 8);
    } else {
        trial_prepare_in_place(r, t, random % 8);
    }
    support_seal(&t->recv);
    if (no_pointers && t->send_at != COLL_IN_PLACE) t->send_at = NULL;
    if (no_pointers && !t->room) t->recv_at = NULL;
}

#endif /* ORACLE_H */
