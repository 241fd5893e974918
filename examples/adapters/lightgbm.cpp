/* lightgbm.cpp - LightGBM over a communicator of coll.h, in the place of its own sockets.
 *
 * LightGBM calls two functions of the program: a reduce_scatter with a merge function, and an allgather, both with lengths in
 * bytes.  These are here.  All other communication of LightGBM is made of these two.  From C++, on the thread that makes the
 * Dataset and trains:
 *
 *     coll_lightgbm_use(comm);
 *     LGBM_NetworkInitWithFunctions(coll_size(comm), coll_rank(comm), reinterpret_cast<void *>(coll_lightgbm_reduce_scatter),
 *                                   reinterpret_cast<void *>(coll_lightgbm_allgather));
 *     ...                                           parameters: num_machines, tree_learner; not machines
 *     LGBM_NetworkFree();
 *
 * Compile it with the program, as C++11 or later.  Python loads it as a shared library: coll/lightgbm.py.
 *
 * LightGBM has no status for a failed call.  The functions throw, and LightGBM's function returns -1 with the sentence.  This
 * is why they are C++. */
#include "coll.h"

#include <cstring>
#include <stdexcept>
#include <vector>

namespace {

typedef void (*merge_function)(const char *in, char *inout, int type_size, int32_t bytes);

struct merge_call { merge_function merge; int type_size; };

thread_local coll_comm *job;                      /* LightGBM's own state is of the thread, too */
thread_local coll_status last = COLL_OK;

void checked(coll_status status)
{
    if (status == COLL_OK) return;
    last = status;
    throw std::runtime_error(coll_error(job));
}

void merge(const void *in, void *inout, size_t count, coll_type type, void *context)
{
    const merge_call *const call = static_cast<const merge_call *>(context);

    call->merge(static_cast<const char *>(in), static_cast<char *>(inout), call->type_size,
                static_cast<int32_t>(count * coll_type_size(type)));
}

/* The bytes that must stay together.  The merge functions of quantized histograms add two elements as one number, which carries
 * from one into the other.  Their blocks are whole pairs.  Where all blocks are, a pair is never wrong. */
size_t element_size(const int32_t *lengths, int blocks, int type_size)
{
    for (int i = 0; i < blocks; i++) if (lengths[i] % (2 * type_size) != 0) return static_cast<size_t>(type_size);
    return 2 * static_cast<size_t>(type_size);
}

} // namespace

extern "C" {

/* The communicator that LightGBM uses on this thread. */
void coll_lightgbm_use(coll_comm *comm) { job = comm, last = COLL_OK; }

/* The status of the call that failed on this thread since coll_lightgbm_use, or COLL_OK. */
coll_status coll_lightgbm_status(void) { return last; }

/* Block i of `in` has lengths[i] bytes; the blocks are adjacent.  This rank gets the merged block of its own rank. */
void coll_lightgbm_reduce_scatter(char *in, int32_t, int type_size, const int32_t *, const int32_t *lengths, int blocks,
                                  char *out, int32_t, const merge_function &function)
{
    const size_t element = element_size(lengths, blocks, type_size);
    merge_call context = { function, type_size };
    std::vector<size_t> counts(static_cast<size_t>(blocks));
    coll_call call = coll_call();

    for (size_t i = 0; i < counts.size(); i++) counts[i] = static_cast<size_t>(lengths[i]) / element;
    call.kind = COLL_REDUCE_SCATTERV, call.send = in, call.recv = out, call.recv_counts = counts.data();
    call.type = COLL_BLOB(static_cast<int>(element)), call.op = COLL_USER, call.fn = merge, call.fn_context = &context;
    call.name = "LightGBM";
    checked(coll_run(job, &call));
}

/* Block i of `out` begins at starts[i] and has lengths[i] bytes.  `in` is this rank's block.  It may be the start of `out`. */
void coll_lightgbm_allgather(char *in, int32_t length, const int32_t *starts, const int32_t *lengths, int blocks, char *out,
                             int32_t)
{
    std::vector<size_t> counts(static_cast<size_t>(blocks)), offsets(static_cast<size_t>(blocks));
    coll_call call = coll_call();

    for (size_t i = 0; i < counts.size(); i++) {
        counts[i] = static_cast<size_t>(lengths[i]);
        offsets[i] = static_cast<size_t>(starts[i]);
    }
    std::memmove(out + starts[coll_rank(job)], in, static_cast<size_t>(length));
    call.kind = COLL_ALLGATHERV, call.send = COLL_IN_PLACE, call.count = static_cast<size_t>(length), call.recv = out;
    call.recv_counts = counts.data(), call.recv_offsets = offsets.data(), call.type = COLL_U8, call.name = "LightGBM";
    checked(coll_run(job, &call));
}

} // extern "C"
