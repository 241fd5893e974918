/* engines.h - what engines.c calls of an inference engine: its sum in shared memory, compiled from the engine's own sources. */
#ifndef ENGINES_H
#define ENGINES_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

extern const char *const engine_name;

/* Make this rank's segment of the engine.  `key` is the same number on all ranks, and differs between jobs. */
void engine_create(int size, int rank, int key);

/* Map the segments of the others, after all ranks have returned from engine_create. */
void engine_join(int size, int rank, int key);

/* Remove this rank's names from /dev/shm, after all ranks have returned from engine_join. */
void engine_unlink(int rank, int key);

/* The sum of `count` bf16 numbers over all ranks, in place. */
void engine_sum(uint16_t *data, size_t count);

#ifdef __cplusplus
}
#endif

#endif /* ENGINES_H */
