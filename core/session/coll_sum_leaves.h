/* coll_sum_leaves.h - the public functions of leaf sums (core/contract/coll_leaf_nodes.h): their memory and their errors. */
#ifndef COLL_SUM_LEAVES_H
#define COLL_SUM_LEAVES_H

/* Is there memory for a vector behind the nodes?  If not, twice as much is taken, and the nodes move. */
static bool coll__run_grow(coll_sum *s)
{
    const int room = s->room ? 2 * s->room : 1;

    if (s->depth < s->room) return true;
    if (s->stride > SIZE_MAX / 4 / (size_t)room) return false;
    unsigned char *const nodes = (unsigned char *)coll__take_lines(coll__like(s), (size_t)room * s->stride);
    if (!nodes) return false;
    if (s->depth) memcpy(nodes, s->nodes, (size_t)s->depth * s->stride);
    coll__give(s->nodes);
    s->nodes = nodes;
    s->room = room;
    return true;
}

#define COLL__REFUSE(...) coll__start_failed(COLL_ERR_ARGUMENT, __VA_ARGS__)

COLL_API coll_status coll_sum_begin(coll_sum **out, int64_t first_leaf, size_t count, coll_type type,
                                    const coll_allocator *memory)
{
    coll__codec codec;
    char why[160] = "";

    if (!out) return COLL__REFUSE("coll_sum_begin: out is NULL");
    *out = NULL;
    if (!COLL__HAS_LEAVES)
        return coll__start_failed(COLL_ERR_UNSUPPORTED, "coll_sum_begin: this program was compiled with " COLL__PROFILE);
    if (!coll__run_codec_in(&codec, type, coll__tier(), why, sizeof why))
        return coll__start_failed(COLL_ERR_UNSUPPORTED, "coll_sum_begin: %s", why);
    if (count > SIZE_MAX / 4 / codec.acc_size) return COLL__REFUSE("coll_sum_begin: count %zu exceeds the memory", count);
    coll_sum *const s = (coll_sum *)coll__allocate(memory, sizeof *s);
    if (!s) return coll__start_failed(COLL_ERR_MEMORY, "coll_sum_begin: no memory");
    *s = (coll_sum){ .codec = codec, .count = count, .stride = count * codec.acc_size,
                     .three = coll__run_three(type, coll__tier()) };
    s->streams = s->stride >= COLL__RUN_STREAMED;
    const coll_status status = coll_sum_restart(s, first_leaf);
    if (status) coll__give(s);
    else *out = s;
    return status;
}

COLL_API coll_status coll_sum_restart(coll_sum *sum, int64_t first_leaf)
{
    if (!sum) return COLL__REFUSE("coll_sum_restart: sum is NULL");
    if (first_leaf < 0) return COLL__REFUSE("first leaf %lld is out of range: 0 or more", (long long)first_leaf);
    sum->first = sum->next = (uint64_t)first_leaf;
    sum->depth = 0;
    return COLL_OK;
}

COLL_API void *coll_sum_place(coll_sum *sum)
{
    return sum && sum->codec.direct && coll__run_grow(sum) ? coll__run_node(sum, sum->depth) : NULL;
}

COLL_API coll_status coll_sum_add(coll_sum *sum, const void *leaf)
{
    if (!sum || (!leaf && sum->count)) return COLL__REFUSE("coll_sum_add: %s is NULL", sum ? "leaf" : "sum");
    if (sum->next == INT64_MAX) return COLL__REFUSE("coll_sum_add: there are 2^63 - 1 leaves already");
    const uintptr_t from = (uintptr_t)sum->nodes, to = from + (size_t)sum->room * sum->stride, at = (uintptr_t)leaf;
    const bool is_placed = sum->codec.direct && sum->depth < sum->room && leaf == coll__run_node(sum, sum->depth);
    if (!is_placed && at < to && at + sum->count * sum->codec.type_size > from)
        return COLL__REFUSE("coll_sum_add: leaf overlaps the memory of the sum: use coll_sum_place, or other memory");
    const int carries = coll__run_carries(sum->first, sum->next);
    if (!carries && !coll__run_grow(sum)) return coll__start_failed(COLL_ERR_MEMORY, "coll_sum_add: no memory for %zu bytes",
                                                                     sum->stride);
    if (sum->count) coll__run_fold(sum, leaf, carries);
    sum->depth += 1 - carries;
    sum->next++;
    return COLL_OK;
}

COLL_API coll_status coll_sum_end(coll_sum *sum, coll_call *call)
{
    if (!sum || !call) return COLL__REFUSE("coll_sum_end: %s is NULL", sum ? "call" : "sum");
    if (call->flags & COLL_REPRODUCIBLE)
        return COLL__REFUSE("coll_sum_end: COLL_REPRODUCIBLE needs the leaves themselves: pass them in send");
    if (call->accumulate == COLL_F64 && sum->codec.type != COLL_F64)
        return COLL__REFUSE("coll_sum_end: accumulate is f64, and the leaves are %s: add leaves of f64",
                            coll_type_name(sum->codec.type));
    call->send = sum->nodes;
    call->count = sum->count;
    call->type = sum->codec.type;
    call->first_leaf = (int64_t)sum->first;
    call->leaves = sum->depth ? (int64_t)(sum->next - sum->first) : -1;
    return COLL_OK;
}

COLL_API void coll_sum_free(coll_sum *sum)
{
    if (!sum) return;
    coll__give(sum->nodes);
    coll__give(sum);
}

#undef COLL__REFUSE

#endif /* COLL_SUM_LEAVES_H */
