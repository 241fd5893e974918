/* coll_mpi_selection.h - which calls MPI carries out, and which the engine does, by messages of MPI.
 *
 *                                  SUM PROD   MIN MAX   BAND BOR BXOR   LAND LOR LXOR   AVG MINLOC MAXLOC own
 *     i32 i64                        MPI        MPI         MPI            MPI (1)            engine
 *     u32 u64                        MPI      engine (2)    MPI            MPI (1)            engine
 *     i8 i16 u8 u16 bool            engine    engine       engine         engine              engine       (3)
 *     f32 f64                        MPI (4)  engine (5)     -            engine (6)          engine
 *     f16 bf16 f8 complex pairs     engine    engine         -            engine              engine       (7)
 *     moved, not reduced             MPI, of any type                                                      (8)
 *
 *     1  not in scans: MPI does not make the first rank's own number 0 or 1
 *     2  MPICH 4.0.2 (all of them) and Open MPI 4.1.4 (unsigned long) compare them as signed
 *     3  Open MPI saturates where they should wrap, in the vector part of a buffer only
 *     4  not with flags, a scale, or another type on the wire or in the sum
 *     5  NaN must propagate, and -0 is less than +0
 *     6  beyond the standard; Open MPI has no LXOR of floats
 *     7  MPI would round at every step, or does not have them
 *     8  not alltoallw (Open MPI's MPI_Ialltoallw crashes) nor neighbor kinds; nor v forms if MPI's counts are int (before
 *        MPI 4), because not all ranks know whether they fit
 *
 * Only what all ranks know of a call decides, so that all decide the same.  They do not know whether it is in place, or whether a
 * rank waits: coll_mpi_forms.h. */
#ifndef COLL_MPI_SELECTION_H
#define COLL_MPI_SELECTION_H

#if MPI_VERSION >= 4
#define COLL__MPI_LARGE 1
typedef MPI_Count coll__mpi_int;
typedef MPI_Aint coll__mpi_offset;
#define COLL__MPI_COUNT_MOST ((size_t)1 << 60)
#else
#define COLL__MPI_LARGE 0
typedef int coll__mpi_int;
typedef int coll__mpi_offset;
#define COLL__MPI_COUNT_MOST ((size_t)INT_MAX)
#endif

/* MPI's type for elements that MPI reduces correctly; MPI_DATATYPE_NULL: none. */
static MPI_Datatype coll__mpi_number(coll_type type)
{
    switch (type) {
    case COLL_I32: return MPI_INT32_T;
    case COLL_I64: return MPI_INT64_T;
    case COLL_U32: return MPI_UINT32_T;
    case COLL_U64: return MPI_UINT64_T;
    case COLL_F32: return MPI_FLOAT;
    case COLL_F64: return MPI_DOUBLE;
    default:       return MPI_DATATYPE_NULL;
    }
}

static MPI_Op coll__mpi_op(coll_op op)
{
    const MPI_Op ops[] = {
        [COLL_SUM] = MPI_SUM, [COLL_PROD] = MPI_PROD, [COLL_MIN] = MPI_MIN, [COLL_MAX] = MPI_MAX, [COLL_AVG] = MPI_OP_NULL,
        [COLL_BAND] = MPI_BAND, [COLL_BOR] = MPI_BOR, [COLL_BXOR] = MPI_BXOR, [COLL_LAND] = MPI_LAND, [COLL_LOR] = MPI_LOR,
        [COLL_LXOR] = MPI_LXOR
    };
    return op <= COLL_LXOR ? ops[op] : MPI_OP_NULL;
}

/* Flags that MPI can ignore.  A new flag uses messages until it is listed here.  Sums of integers are exact, and moves do not
 * round; overflow of floats is detected in the result. */
enum {
    COLL__MPI_IDLE_ON_FLOATS = COLL_DETECT_OVERFLOW,
    COLL__MPI_IDLE_WHERE_EXACT = COLL_DETERMINISTIC | COLL_REPRODUCIBLE | COLL_SATURATE | COLL_STOCHASTIC | COLL_DETECT_OVERFLOW
                               | COLL_ROUND_TWICE
};

/* Why MPI cannot carry out this reduction; NULL: it can. */
static const char *coll__mpi_objects_to_sum(const coll_call *c)
{
    const bool is_float = coll__is_float(c->type), is_unsigned = coll__is_unsigned(c->type);
    const bool is_scan = c->kind == COLL_SCAN || c->kind == COLL_EXSCAN;
    const unsigned idle = is_float ? COLL__MPI_IDLE_ON_FLOATS : COLL__MPI_IDLE_WHERE_EXACT;

    if (c->wire != c->type) return "MPI has no other type on the wire";
    if (coll__mpi_op(c->op) == MPI_OP_NULL) return "MPI is not asked for this operation";
    if (coll__mpi_number(c->type) == MPI_DATATYPE_NULL) return "MPI does not do right by this type";
    if (is_float && c->op != COLL_SUM && c->op != COLL_PROD) return "MPI does not do right by NaN and -0";
    if (is_unsigned && (c->op == COLL_MIN || c->op == COLL_MAX)) return "MPI compares as if there were a sign";
    if (is_scan && coll__is_logical(c->op)) return "MPI leaves the first number of such a scan as it is";
    if (c->accumulate && c->accumulate != c->type) return "MPI sums in the type itself";
    if (c->scale < 0 || c->scale > 0) return "MPI knows no scale";
    if (c->flags & ~idle) return "MPI knows no flags";
    return NULL;
}

/* Why MPI cannot carry out this call on so many ranks; NULL: it can. */
static const char *coll__mpi_objects(const coll_call *c, int size)
{
    const bool is_listed = coll__kind_is(c->kind, COLL__SUMMED | COLL__PAIRWISE);
    const size_t each = coll_type_size(c->type);

    if (size == 1) return "there is one rank";
    if (c->kind == COLL_ALLTOALLW || c->kind >= COLL_NEIGHBOR_ALLGATHER) return "MPI is not asked for this kind";
    if (is_listed && !COLL__MPI_LARGE) return "MPI's counts are int";
    if (c->kind != COLL_BARRIER && !is_listed && c->count > COLL__MPI_COUNT_MOST / (each ? each : 1) / (size_t)size)
        return "MPI's counts are int";
    if (c->flags & ~(unsigned)COLL__MPI_IDLE_WHERE_EXACT) return "MPI knows no flags";
    return coll__kind_reduces(c->kind) ? coll__mpi_objects_to_sum(c) : NULL;
}

/* What carries out a call: 1 MPI, 0 the engine, -1 neither; and why, in a phrase. */
static int coll__mpi_can_offload(const void *context, const coll_call *call, int size, char *why, size_t room)
{
    const coll__mpi *mpi = (const coll__mpi *)context;
    const char *objection = coll__mpi_objects(call, size);

    if (mpi->mode == COLL__MPI_MESSAGES) coll__print(why, room, "by messages: COLL_MPI=messages");
    else coll__print(why, room, "%s%s", objection ? "by messages: " : "by MPI", objection ? objection : "");
    if (mpi->mode == COLL__MPI_MESSAGES || !objection) return !objection && mpi->mode != COLL__MPI_MESSAGES;
    if (mpi->mode != COLL__MPI_NATIVE || size == 1) return 0;
    coll__print(why, room, "COLL_MPI=native, and %s", objection);
    return -1;
}

#endif /* COLL_MPI_SELECTION_H */
