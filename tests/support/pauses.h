/* pauses.h - how long a process does not run.  Where other machines share the processors, one may stand still for a second.  Its
 * ranks are silent then, and the others rightly give them up: a test in which they must not plays that case again. */
#ifndef TESTS_PAUSES_H
#define TESTS_PAUSES_H

#include <pthread.h>
#include <stdint.h>
#include <time.h>

static void *pauses_main(void *at)
{
    const struct timespec turn = { 0, 10000000 };
    int64_t *longest_ms = at, last = now_ms();

    for (;;) {
        nanosleep(&turn, NULL);
        const int64_t now = now_ms(), pause = now - last;
        if (pause > __atomic_load_n(longest_ms, __ATOMIC_RELAXED)) __atomic_store_n(longest_ms, pause, __ATOMIC_RELAXED);
        last = now;
    }
    return NULL;
}

/* From now on until this process ends, *longest_ms is the longest time for which it did not run.  Its other threads may block or
 * compute meanwhile: that is no pause.  false: there is no thread for it. */
static bool pauses_record(int64_t *longest_ms)
{
    pthread_t thread;

    if (pthread_create(&thread, NULL, pauses_main, longest_ms)) return false;
    pthread_detach(thread);
    return true;
}

#endif /* TESTS_PAUSES_H */
