/* coll_shm_copy.h - what a rank does in an operation of kinds that move elements, once the required peers have published;
 * and what all kinds share.
 *
 * There are two families of kinds.  If elements move, each move has two ends: a place in the sender's memory and one in the
 * receiver's, described in the same way (coll__end).  If elements are combined, each rank combines a share of them for all
 * ranks.  Then every input line is read once and every output line written once, which is the minimum (coll_shm_reduce.h). */
#ifndef COLL_SHM_COPY_H
#define COLL_SHM_COPY_H

enum { COLL__SHARE_UNIT = 64 };

/* The eager inputs of an operation: that of the first rank, and bytes from each to the next. */
typedef struct coll__eagers {
    const unsigned char *first;
    size_t               step;
} coll__eagers;

/* An operation, for the functions of its kind. */
typedef struct coll__shm_op {
    coll__member    *m;
    coll_task       *task;
    const coll_call *call;
    const struct coll__form *form;
    coll_failure    *failure;
    uint64_t         number;
    coll__eagers     eager;                       /* eager: the inputs of all ranks                           */
    bool             streams;                     /* results use streaming stores                             */
    size_t           unit;                        /* bytes of an element                                      */
} coll__shm_op;

/* Peers that a rank waits for: all; the root, except on the root; all on the root and none elsewhere; ranks up to its own. */
typedef enum coll__peer_set { COLL__ALL_PEERS, COLL__THE_ROOT, COLL__ON_ROOT, COLL__LOWER } coll__peer_set;

/* Length of an eager input: 0; `count` elements; `count` for each rank; the own one of recv_counts; all of them. */
typedef enum coll__eager { COLL__EAGER_EMPTY, COLL__EAGER_ONE, COLL__EAGER_EACH, COLL__EAGER_OWN, COLL__EAGER_LIST } coll__eager;

/* Between processes: what a rank exposes if its buffers cannot be read in place: nothing; its input; its input and its share of
 * the result; its input and its share of the results of all ranks.  Others pull shares. */
typedef enum coll__staged_part {
    COLL__STAGED_NOTHING, COLL__STAGED_INPUT, COLL__STAGED_SHARE, COLL__STAGED_ALL
} coll__staged_part;

/* How a kind is carried out; its row in coll_shape.h says what it does. */
typedef struct coll__form {
    coll__eager   eager;
    coll__peer_set   eager_from;                  /* eager: whose input this rank needs                       */
    bool          with_root;                      /* direct: only the root's memory is accessed; else that of all */
    void        (*read) (const coll__shm_op *t);  /* eager: reads what this rank needs from the slots; NULL: never eager */
    coll_status (*share)(const coll__shm_op *t);  /* direct: this rank's share of the work                    */
    coll__staged_part staged;
    coll_status (*probe)(const coll__shm_op *t);  /* several processes, may be NULL: checks that all inputs can be read */
    coll_status (*begin)(const coll__shm_op *t, coll__view *view);    /* direct, may be NULL: before publishing */
    void        (*end)  (const coll__shm_op *t);  /* direct, may be NULL: when all are done                   */
} coll__form;

/* Between processes: returns whether a rank copies what others have computed for it. */
static inline bool coll__pulls(const coll__form *form) { return form->staged >= COLL__STAGED_SHARE; }

static inline bool coll__waits_for(const coll__shm_op *t, coll__peer_set peer_set, int rank)
{
    const int root = t->call->root, me = t->m->rank;

    switch (peer_set) {
    case COLL__ALL_PEERS: return true;
    case COLL__THE_ROOT:  return rank == root && me != root;
    case COLL__ON_ROOT:   return me == root;
    default:              return rank <= me;
    }
}

static inline unsigned coll__slot_number(const coll__member *m, uint64_t op_number)
{
    return (unsigned)(op_number & m->slot_mask);
}

static inline coll__slot *coll__slot_in(const coll__member *m, int rank, uint64_t op_number)
{
    return &m->group_slots[rank].slots[coll__slot_number(m, op_number)];
}

/* Returns whether only the root has an eager input.  Then it may fill the bounce buffers of all. */
static inline bool coll__is_eager_of_root(const coll__form *form) { return form->eager_from == COLL__THE_ROOT; }

/* Bytes of the longest eager input in a bounce buffer. */
static inline size_t coll__bounce_most(const coll__member *m, const coll__form *form)
{
    return coll__is_eager_of_root(form) ? m->row_length : m->bounce_length;
}

static inline coll__eagers coll__eagers_of(const coll__member *m, const coll__form *form, uint64_t op_number, size_t length)
{
    const unsigned slot = coll__slot_number(m, op_number);
    const coll__group_slot *const group_slot = m->group_slots;

    if (length > COLL__EAGER_SHORT)
        return (coll__eagers){ m->bounces + op_number % COLL__BOUNCE_SLOTS * m->row_length,
                               coll__is_eager_of_root(form) ? 0 : m->bounce_length };
    return (coll__eagers){ length > COLL__EAGER_INSIDE ? group_slot->shorts[slot] : group_slot->slots[slot].is.data,
                           sizeof *group_slot };
}

static inline const unsigned char *coll__eager_at(const coll__eagers *eager, int rank)
{
    return eager->first + eager->step * (size_t)rank;
}

static inline const coll__view *coll__view_of(const coll__shm_op *t, int rank)
{
    return &coll__slot_in(t->m, rank, t->number)->is.view;
}

/* Direct: the input of a rank. */
static inline const unsigned char *coll__input_of(const coll__shm_op *t, int rank)
{
    return rank == t->m->rank ? t->m->staging.send : coll__view_of(t, rank)->send.at;
}

/* ---- >>inputs that are combined: one of each rank, or the nodes of a tree over leaves, of which a rank may have several ---- */

/* How many. */
static inline int coll__input_count(const coll__shm_op *t)
{
    const coll__leaves *const tree = COLL__LEAVES_OF(t->task->codec);
    return tree ? tree->nodes : t->m->count;
}

/* Bytes of an element. */
static inline size_t coll__input_unit(const coll__shm_op *t)
{
    const coll__leaves *const tree = COLL__LEAVES_OF(t->task->codec);
    return tree && tree->are_sums ? t->task->codec->acc_size : t->unit;
}

/* Element `from` of input i, and which rank has it. */
static inline const unsigned char *coll__input_at(const coll__shm_op *t, int i, size_t from, int *rank)
{
    const coll__leaves *const tree = COLL__LEAVES_OF(t->task->codec);

    *rank = tree ? tree->node[i].rank : i;
    if (tree) from += (size_t)tree->node[i].vector * t->call->count;
    return coll__input_of(t, *rank) + from * coll__input_unit(t);
}

/* ---- >>memory: what an operation needs beyond the user's ---- */

/* A scan keeps two accumulators, each of one block. */
static size_t coll__scan_room(const coll__codec *codec)
{
    return coll__round_up(coll__block_count(codec) * codec->acc_size, 64);
}

/* Extends private memory to at least this length; its contents are lost. */
static coll_status coll__lengthen(const coll__shm_op *t, void **room, size_t *has, size_t length)
{
    const int me = t->m->thread->rank;

    if (length <= *has) return COLL_OK;
    coll__give(*room);
    *room = coll__take_lines(coll__like(t->m->thread), length);
    *has = *room ? length : 0;
    if (*room) return COLL_OK;
    return coll__set_failure(t->failure, COLL_ERR_MEMORY, me, "rank %d has no memory for the operation: %zu bytes", me, length);
}

/* Memory that peers use in this operation. */
static coll_status coll__hold(const coll__shm_op *t, size_t length)
{
    return coll__lengthen(t, &t->m->held, &t->m->held_length, length);
}

/* Memory for the arithmetic of this call and for fetched inputs, if the user's elements are longer than any before.  The initial
 * memory suffices for elements that fit in a block. */
static coll_status coll__need_scratch(const coll__shm_op *t)
{
    coll__thread *thread = t->m->thread;
    const coll__codec *codec = t->task->codec;
    const size_t n = (size_t)coll__input_count(t), block = coll__most(coll__input_unit(t), COLL__BLOCK);
    const size_t length = coll__kind_scans(t->call->kind) ? coll__combine_scratch(codec, 2) + 2 * coll__scan_room(codec)
                        : COLL__LEAVES_OF(codec) ? coll__combine_scratch(codec, INT_MAX) + n * sizeof(coll__source)
                        : coll__combine_scratch(codec, t->m->count);
    const size_t windows = coll__is_apart(t->m) ? n * (block + COLL__LINE) : 0;
    const coll_status status = coll__lengthen(t, &thread->scratch, &thread->scratch_length, length);

    return status == COLL_OK ? coll__lengthen(t, &thread->fetched, &thread->fetched_length, windows) : status;
}

/* ---- >>moving: from one rank's memory into another's ---- */

typedef struct coll__end {
    unsigned char *at;
    size_t         count;
    coll_type      type;
} coll__end;

static inline const coll__kind_shape *coll__shape_in(const coll__shm_op *t) { return &coll__kinds[t->call->kind]; }

COLL__FOR_SIZE

/* Block `i` of a rank's buffer of this shape.  Reads only lists that the shape has, from that rank's memory. */
static inline coll_status coll__end_at(const coll__shm_op *t, const coll__side_shape *shape, int rank, const coll__buffer *buffer,
                                       int i, coll__end *end)
{
    size_t offset = 0;

    *end = (coll__end){ buffer->at, buffer->count, t->call->type };
    if (shape->over == COLL__OVER_ONE) return COLL_OK;
    if (shape->from == COLL__FROM_COUNT) {
        if (end->count) end->at += (size_t)i * end->count * t->unit;      /* an empty block may have no memory */
        return COLL_OK;
    }
    coll_status status = coll__shm_access_read(t->m, rank, &end->count, buffer->counts + i, sizeof end->count);
    if (status == COLL_OK) status = coll__shm_access_read(t->m, rank, &offset, buffer->offsets + i, sizeof offset);
    if (status == COLL_OK && shape->from == COLL__FROM_TYPED)
        status = coll__shm_access_read(t->m, rank, &end->type, buffer->types + i, sizeof end->type);
    if (status == COLL_OK && end->count) end->at += shape->from == COLL__FROM_TYPED ? offset : offset * t->unit;
    return status;
}

/* Both ends of a move. */
static inline coll_status coll__ends_of(const coll__shm_op *t, int from, int to, coll__end *source, coll__end *target)
{
    const coll__kind_shape *const shape = coll__shape_in(t);
    const coll_status status = coll__end_at(t, &shape->send, from, &coll__view_of(t, from)->send, to, source);

    return status == COLL_OK ? coll__end_at(t, &shape->recv, to, &coll__view_of(t, to)->recv, from, target) : status;
}

/* memcpy that allows NULL if there is nothing to copy, and equal addresses. */
static inline void coll__move_bytes(const coll__shm_op *t, void *to, const void *from, size_t length)
{
    if (!length || to == from) return;
    if (t->streams) coll__copy_streamed(to, from, length);
    else memcpy(to, from, length);
}

/* Between processes: the same, from a member's memory. */
static coll_status coll__pull_bytes(const coll__shm_op *t, int rank, void *to, const void *from, size_t length)
{
    const void *const there = coll__shm_access(t->m, rank, from, length);

    if (!there) return coll__shm_access_read(t->m, rank, to, from, length);
    coll__move_bytes(t, to, there, length);
    return COLL_OK;
}

/* Bytes that a rank sends to all, or receives from all; ignores lists that it does not have. */
static size_t coll__extent(const coll__shm_op *t, const coll__side_shape *shape, const size_t *counts)
{
    const coll__leaves *const tree = COLL__LEAVES_OF(t->task->codec);
    const int count = t->m->count;
    size_t total = 0;

    if (tree && shape == &coll__shape_in(t)->send) return (size_t)tree->vectors * t->call->count * coll__input_unit(t);
    if (shape->over == COLL__OVER_ONE) return t->call->count * t->unit;
    if (shape->from == COLL__FROM_COUNT) return t->call->count * t->unit * (size_t)count;
    if (!coll__is_held(shape, t->m->rank, t->call->root)) return 0;
    for (int i = 0; counts && i < count; i++) total += counts[i];
    return total * t->unit;
}

/* Checks that both ends of a move agree, before its first byte is written. */
static coll_status coll__check_ends(const coll__shm_op *t, int from, int to, const coll__end *source, const coll__end *target)
{
    const int sender = t->m->ranks[from], receiver = t->m->ranks[to];

    if (source->count == target->count && (source->type == target->type || source->count == 0)) return COLL_OK;
    return coll__set_failure(t->failure, COLL_ERR_MISMATCH, sender, "rank %d sends %zu x %s to rank %d, which expects %zu x %s",
                             sender,
                             source->count, coll_type_name(source->type), receiver, target->count, coll_type_name(target->type));
}

/* Bytes of an element of a block. */
static inline size_t coll__unit_of(const coll__shm_op *t, coll_type type)
{
    return coll__shape_in(t)->send.from == COLL__FROM_TYPED ? coll_type_size(type) : t->unit;
}

/* Moves a block with one end on this rank; between processes, its target. */
static inline coll_status coll__move(const coll__shm_op *t, int from, int to)
{
    coll__end source, target;
    coll_status status = coll__ends_of(t, from, to, &source, &target);
    const size_t length = source.count * coll__unit_of(t, source.type);

    if (status == COLL_OK) status = coll__check_ends(t, from, to, &source, &target);
    if (status != COLL_OK || !length) return status;
    return coll__pull_bytes(t, from, target.at, source.at, length);
}

/* Checks that all ranks send what this rank expects, before the first byte is written; between processes on request also that it
 * can be read. */
static coll_status coll__check_incoming(const coll__shm_op *t, bool tries)
{
    coll_status status = COLL_OK;

    for (int i = 0; i < t->m->count && status == COLL_OK; i++) {
        coll__end source, target;
        status = coll__ends_of(t, i, t->m->rank, &source, &target);
        if (status == COLL_OK) status = coll__check_ends(t, i, t->m->rank, &source, &target);
        if (status == COLL_OK && tries)
            status = coll__shm_access_try(t->m, i, source.at, source.count * coll__unit_of(t, source.type));
    }
    return status;
}

static coll_status coll__probe_blocks(const coll__shm_op *t) { return coll__check_incoming(t, true); }

/* Fetches each rank's block for this one.  Each rank begins with its own block, which only its caches have, and continues with
 * those after it.  So the ranks do not access one memory at once. */
static coll_status coll__share_fetch(const coll__shm_op *t)
{
    const int me = t->m->rank, count = t->m->count;
    coll_status status = coll__check_incoming(t, false);

    for (int i = 0; i < count && status == COLL_OK; i++) status = coll__move(t, coll__wrap(me + i, count), me);
    return status;
}

COLL__FOR_SPEED

/* memcpy; for up to COLL__EAGER_INSIDE bytes a call would take longer than the copy.  The first and the last piece may overlap:
 * so a few pieces suffice for every length. */
static inline void coll__copy_eager(unsigned char *to, const unsigned char *from, size_t length)
{
    if (length > COLL__EAGER_INSIDE) {
        memcpy(to, from, length);
    } else if (length >= 8) {
        memcpy(to, from, 8);
        if (length > 16) memcpy(to + 8, from + 8, 8);
        memcpy(to + length - 8, from + length - 8, 8);
    } else if (length >= 4) {
        memcpy(to, from, 4);
        memcpy(to + length - 4, from + length - 4, 4);
    } else for (size_t i = 0; i < length; i++) to[i] = from[i];
}

/* Eager: copies a rank's block for this one from its slot to place `at` of the result, in blocks. */
static inline void coll__read_block(const coll__shm_op *t, int from, int at)
{
    const size_t length = t->call->count * t->unit;
    const size_t skip = t->form->eager == COLL__EAGER_EACH ? length * (size_t)t->m->rank : 0;

    if (length)
        coll__copy_eager((unsigned char *)t->call->recv + length * (size_t)at, coll__eager_at(&t->eager, from) + skip, length);
}

static inline void coll__read_all(const coll__shm_op *t)
{
    for (int i = 0; i < t->m->count; i++) coll__read_block(t, i, i);
}

static inline void coll__read_list(const coll__shm_op *t)
{
    for (int i = 0; i < t->m->count; i++)
        if (t->call->recv_counts[i])
            coll__copy_eager((unsigned char *)t->call->recv + t->call->recv_offsets[i] * t->unit, coll__eager_at(&t->eager, i),
                             t->call->recv_counts[i] * t->unit);
}

/* broadcast, scatter: every rank fetches the vector, or its own block, from the root, whose vector is in place. */
static inline void coll__read_root(const coll__shm_op *t)
{
    if (t->m->rank != t->call->root || t->form->eager == COLL__EAGER_EACH) coll__read_block(t, t->call->root, 0);
}

COLL__FOR_SIZE

/* gather: between processes the root fetches all.  Otherwise every rank writes its block into the root's buffer. */
static coll_status coll__share_gather(const coll__shm_op *t)
{
    if (!coll__is_apart(t->m)) return coll__move(t, t->m->rank, t->call->root);
    return t->m->rank == t->call->root ? coll__share_fetch(t) : COLL_OK;
}

static coll_status coll__share_scatter(const coll__shm_op *t) { return coll__move(t, t->call->root, t->m->rank); }

/* alltoall in place: peers read this rank's buffer while it is overwritten, so they read a copy.  Its blocks are contiguous.  If
 * the call has offsets, the copy begins with its own offsets. */
static coll_status coll__begin_alltoall(const coll__shm_op *t, coll__view *view)
{
    const coll__side_shape *shape = &coll__shape_in(t)->send;
    const int count = t->m->count;
    const bool has_offsets = shape->from != COLL__FROM_COUNT, is_typed = shape->from == COLL__FROM_TYPED;
    const size_t table = has_offsets ? coll__round_up((size_t)count * sizeof(size_t), COLL__LINE) : 0;
    size_t length = table;

    if (!view->send.at || view->send.at != view->recv.at) return COLL_OK;
    t->m->staging.is_careful = true;
    for (int pass = 0; pass < 2; pass++) {        /* first measure, then copy                                 */
        unsigned char *const to = pass ? (unsigned char *)t->m->held : NULL;
        size_t at = table;
        for (int i = 0; i < count; i++) {
            coll__end e;
            (void)coll__end_at(t, shape, t->m->rank, &view->send, i, &e);
            const size_t unit = coll__unit_of(t, e.type);
            if (pass && has_offsets) ((size_t *)(void *)to)[i] = is_typed ? at - table : (at - table) / t->unit;
            if (pass) coll__move_bytes(t, to + at, e.at, e.count * unit);
            at += e.count * unit;
        }
        length = at;
        const coll_status status = pass ? COLL_OK : coll__hold(t, length);
        if (status != COLL_OK) return status;
    }
    view->send.at = (unsigned char *)t->m->held + table;
    if (has_offsets) view->send.offsets = (const size_t *)t->m->held;
    return COLL_OK;
}

COLL__FOR_SPEED

#endif /* COLL_SHM_COPY_H */
