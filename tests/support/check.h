/* check.h - the smallest test harness: count, print failures, continue. */
#ifndef CHECK_H
#define CHECK_H

#include <stdio.h>

static int check__passed, check__failed;

/* CHECK(condition, "format", ...): one check; the sentence is printed only when it fails. */
#define CHECK(condition, ...)                                                                     \
    do {                                                                                          \
        if (condition) {                                                                          \
            __atomic_add_fetch(&check__passed, 1, __ATOMIC_RELAXED);                              \
        } else {                                                                                  \
            __atomic_add_fetch(&check__failed, 1, __ATOMIC_RELAXED);                              \
            fprintf(stderr, "%s:%d: failed: %s: ", __FILE__, __LINE__, #condition);               \
            fprintf(stderr, __VA_ARGS__);                                                         \
            fputc('\n', stderr);                                                                  \
        }                                                                                         \
    } while (0)

/* The last line of main: return CHECK_DONE(); */
#define CHECK_DONE()                                                                              \
    (printf("%d passed, %d failed\n", check__passed, check__failed), check__failed != 0)

#endif /* CHECK_H */
