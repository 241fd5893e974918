/* fake.h - what the two fakes share: failures, delays, and the functions that the fake libnccl calls in the fake libcuda.
 *
 * The fakes stand in for a GPU in tests.  They run the library's real path - loading by name, streams, events, groups - on any
 * machine, and are stricter than what they stand for: where NCCL would hang, crash, or give whatever was in memory, they end the
 * process with one sentence.  fake_cuda.c and fake_nccl.c say at their tops what is stricter and why.
 *
 * Read from the environment, when a device or a communicator is made:
 *   FAKE_SEED          of everything that is random here (1)
 *   FAKE_LATE_US       operations of a stream begin up to so much later (40); calls of NCCL yield
 *   FAKE_CUDA_DEVICES  how many devices there are (24); 0: cuInit says that there is none
 *   FAKE_HANG_MS       how long an operation may wait for its peers before the process ends (20000); 0: for ever
 *   FAKE_NCCL_FAULT    RANK:WHAT[:N],... faults of one rank, or of all ("*"): see fake_nccl.c
 */
#ifndef FAKE_H
#define FAKE_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FAKE_API __attribute__((visibility("default")))

#ifdef __cplusplus
extern "C" {
#endif

/* The status of a process that a fake has ended. */
enum { FAKE_EXIT = 86 };

/* End the process: on a GPU this would hang, crash or be undefined. */
FAKE_API __attribute__((noreturn, format(printf, 1, 2))) void fake_fail(const char *format, ...);

FAKE_API long fake_setting(const char *name, long otherwise);

/* A well mixed number (splitmix64's output function). */
static inline uint64_t fake_mix(uint64_t x)
{
    x += UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

/* Work for a stream.  `issue` is called when the work gets its place in the stream, and returns a number that `run` gets;
 * captured work is issued at every launch of its graph.  `drop` is called once, when the work can no longer run. */
typedef struct fake_work {
    uint64_t (*issue)(void *arg);                 /* may be NULL                                              */
    void     (*run)(void *arg, uint64_t number);
    void     (*drop)(void *arg);
    void      *arg;
} fake_work;

struct CUstream_st;
typedef enum fake_place { FAKE_NOWHERE, FAKE_PAGEABLE, FAKE_PINNED, FAKE_DEVICE } fake_place;

FAKE_API int        fake_enqueue(struct CUstream_st *stream, fake_work work);            /* a CUresult                 */
FAKE_API int        fake_stream_device(struct CUstream_st *stream);                      /* -1: no such stream         */
FAKE_API int        fake_current_device(void);                                           /* of this thread; -1: none   */
FAKE_API fake_place fake_place_of(const void *pointer, int *device);

/* Where the work of a stream finds memory that a program has a pointer to.  Ends the process when that is not all alive. */
FAKE_API void      *fake_view(const void *pointer, size_t length, const char *who);

/* The memory of this process's devices, for other processes to map: /proc/PID/fd/FD, and where a view lies in it. */
FAKE_API int        fake_arena_fd(void);
FAKE_API size_t     fake_arena_size(void);
FAKE_API size_t     fake_arena_offset(const void *view);

#ifdef __cplusplus
}
#endif

#endif /* FAKE_H */
