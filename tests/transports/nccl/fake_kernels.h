/* fake_kernels.h - the library's kernels, as functions of the host: fake_kernels.cc. */
#ifndef FAKE_KERNELS_H
#define FAKE_KERNELS_H

#include "fake.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { FAKE_PARAMETERS_MOST = 12 };

/* A kernel: the sizes of its parameters in bytes, one digit each, and what runs it for a whole grid.  Each parameter is in the
 * lower bytes of its value. */
typedef struct fake_kernel {
    const char *name;
    char        sizes[FAKE_PARAMETERS_MOST + 1];
    void      (*run)(const uint64_t *values, uint64_t blocks, uint64_t threads);
} fake_kernel;

/* Number i of them; NULL: there are no more. */
const fake_kernel *fake_kernel_at(int i);

#ifdef __cplusplus
}
#endif

#endif /* FAKE_KERNELS_H */
