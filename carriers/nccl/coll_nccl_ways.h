/* coll_nccl_ways.h - which method a call uses, and why.
 *
 *   NCCL      its own calls, for moves of data, and for reductions with the results of the library
 *   kernels   NCCL moves the inputs, and a kernel of the library combines them: by shards, if each rank gets a part of all
 *             inputs, or at once, if each gets all
 *   host      in pinned memory, by the engine
 *
 *   | type                    | SUM, PROD     | MIN, MAX      | AVG     | BAND BOR BXOR | LAND LOR LXOR |
 *   | i8 i32 i64 u8 u32 u64   | NCCL          | NCCL          | kernels (64 bits: host) | kernels | kernels |
 *   | i16 u16 bool            | kernels       | kernels       | kernels | kernels       | kernels       |
 *   | f32 f64                 | NCCL          | kernels (NaN) | NCCL, and a kernel divides | -    | kernels       |
 *   | f16 bf16, f32 over them | kernels (one rounding)        | kernels | -             | kernels       |
 *   | c64 c128                | SUM as f32, f64; PROD host    | as SUM  | -             | -             |
 *   | f8, pairs, blobs        | host          | host          | host    | -             | -             |
 *
 * With COLL_DETERMINISTIC, floats and complex numbers use kernels instead of NCCL.  Scans use kernels, if there are any.  The
 * host carries out what changes single numbers (mx, COLL_REPRODUCIBLE, COLL_STOCHASTIC, COLL_SATURATE, accumulate), a residual, a
 * named algorithm and COLL_USER.  The decision is the same on all ranks: it depends only on what must be equal. */
#ifndef COLL_NCCL_WAYS_H
#define COLL_NCCL_WAYS_H

typedef enum coll__nccl_way { COLL__BY_NCCL, COLL__BY_KERNELS, COLL__BY_HOST } coll__nccl_way;

enum {
    COLL__GATHER_MOST = 64 << 10,                 /* bytes of an input up to which all ranks get all inputs   */
    COLL__SCAN_MOST = 64 << 20                    /* bytes of all inputs up to which a scan is done so        */
};

/* A reduction as numbers: a complex one is two. */
typedef struct coll__sums {
    coll_type type, wire;                         /* of the buffers, and in the messages                      */
    size_t    unit;                               /* bytes of one on the wire                                 */
    size_t    times;                              /* numbers in an element                                    */
    coll_op   op;
    double    divisor, scale;
    int       order;                              /* 1: from left to right                                    */
} coll__sums;

static bool coll__is_half(coll_type type) { return type == COLL_F16 || type == COLL_BF16; }

static coll__sums coll__sums_of(const coll_comm *comm, const coll_call *call)
{
    const bool is_complex = coll__is_complex(call->type);
    coll__sums s = { .type = call->type, .wire = call->wire ? call->wire : call->type, .op = call->op };

    s.times = is_complex ? 2 : 1;
    if (is_complex) s.type = s.wire = call->type == COLL_C64 ? COLL_F32 : COLL_F64;
    s.unit = coll_type_size(s.wire);
    s.divisor = call->op == COLL_AVG ? comm->size : 1;
    s.scale = call->scale < 0 || call->scale > 0 ? call->scale : 1;
    s.order = coll__kind_scans(call->kind);
    return s;
}

/* The number of a type in NCCL; COLL__NCCL_NONE: it has no such type. */
enum { COLL__NCCL_NONE = 255 };

static unsigned coll__nccl_type(coll_type type)
{
    switch (type) {
    case COLL_I8:   return COLL__NCCL_I8;
    case COLL_U8:   return COLL__NCCL_U8;
    case COLL_I32:  return COLL__NCCL_I32;
    case COLL_U32:  return COLL__NCCL_U32;
    case COLL_I64:  return COLL__NCCL_I64;
    case COLL_U64:  return COLL__NCCL_U64;
    case COLL_F32:  return COLL__NCCL_F32;
    case COLL_F64:  return COLL__NCCL_F64;
    default:        return COLL__NCCL_NONE;
    }
}

/* An average is a sum that is divided afterwards. */
static unsigned coll__nccl_op(coll_op op)
{
    static const unsigned char ops[] = { [COLL_SUM] = COLL__NCCL_SUM, [COLL_PROD] = COLL__NCCL_PROD, [COLL_MIN] = COLL__NCCL_MIN,
                                         [COLL_MAX] = COLL__NCCL_MAX, [COLL_AVG] = COLL__NCCL_SUM };
    return op <= COLL_AVG ? ops[op] : COLL__NCCL_NONE;
}

/* Operations of the kernels. */
enum {
    COLL__KERNEL_OPS = 1 << COLL_SUM | 1 << COLL_PROD | 1 << COLL_MIN | 1 << COLL_MAX | 1 << COLL_AVG | 1 << COLL_BAND
                     | 1 << COLL_BOR | 1 << COLL_BXOR | 1 << COLL_LAND | 1 << COLL_LOR | 1 << COLL_LXOR
};

/* Why the options of a call need the host; NULL: they do not. */
static const char *coll__wants_host(const coll_call *call, const coll__codec *codec)
{
    if (call->op == COLL_USER) return "the operation is the caller's own";
    if (!(COLL__KERNEL_OPS >> call->op & 1)) return "the kernels have no such operation";
    if (call->algorithm) return "an algorithm is named";
    if (call->residual) return "there is a residual";
    if (codec->reproducible) return "COLL_REPRODUCIBLE";
    if (codec->stochastic.round || codec->by.stochastic.round) return "COLL_STOCHASTIC";
    if (codec->clamp || codec->by.clamp) return "COLL_SATURATE";
    if (codec->group_head) return "the wire has groups";
    return NULL;
}

/* The method of a reduction without special options. */
static coll__nccl_way coll__plain_way(const coll_call *call, const coll__sums *s, const char **why)
{
    const bool is_sum = s->op == COLL_SUM || s->op == COLL_AVG;
    const bool is_plain = is_sum || s->op == COLL_PROD;
    const bool is_scan = s->order != 0;

    if (coll__is_integer(s->type)) {
        *why = "integers";
        if (s->op == COLL_AVG) return coll_type_size(s->type) < 8 ? COLL__BY_KERNELS : COLL__BY_HOST;
        const bool has = coll__nccl_type(s->type) != COLL__NCCL_NONE && coll__nccl_op(s->op) != COLL__NCCL_NONE && !is_scan;
        return has ? COLL__BY_NCCL : COLL__BY_KERNELS;
    }
    if (s->type == COLL_BOOL) {
        *why = "logic";
        return COLL__BY_KERNELS;
    }
    if (coll__is_half(s->wire) && (s->type == s->wire || s->type == COLL_F32)) {
        *why = "one rounding";
        return COLL__BY_KERNELS;
    }
    *why = "a type that NCCL does not reduce";
    if (s->type != s->wire || (s->type != COLL_F32 && s->type != COLL_F64)) return COLL__BY_HOST;
    *why = "products of complex numbers";
    if (s->times == 2 && !is_sum) return COLL__BY_HOST;
    *why = call->flags & (COLL_DETERMINISTIC | COLL_REPRODUCIBLE) ? "COLL_DETERMINISTIC" : is_scan ? "a scan" : is_plain ? "sums"
         : "NaN and zeros as on a processor";
    return is_plain && !is_scan && !(call->flags & (COLL_DETERMINISTIC | COLL_REPRODUCIBLE)) ? COLL__BY_NCCL : COLL__BY_KERNELS;
}

static coll__nccl_way coll__nccl_way_of(const coll_comm *comm, const coll_call *call, const coll__codec *codec, const char **why)
{
    *why = "no arithmetic";
    if (!coll__kind_reduces(call->kind)) return COLL__BY_NCCL;
    if ((*why = coll__wants_host(call, codec)) != NULL) return COLL__BY_HOST;
    const coll__sums s = coll__sums_of(comm, call);
    const coll__nccl_way way = coll__plain_way(call, &s, why);
    if (call->accumulate && call->accumulate != coll__usual_accumulator(call->type)) {
        *why = "another accumulator";
        return COLL__BY_HOST;
    }
    if (way == COLL__BY_KERNELS && s.order && call->count > COLL__SCAN_MOST / (s.unit * s.times) / (size_t)comm->size) {
        *why = "a long scan";
        return COLL__BY_HOST;
    }
    return way;
}

#endif /* COLL_NCCL_WAYS_H */
