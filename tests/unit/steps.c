/* steps.c - what steps.h declares.  Compiled without the flag of which it is the other half. */
#include "steps.h"

void __sanitizer_cov_trace_pc(void);

static _Thread_local uint64_t taken;

/* Also called by what ThreadSanitizer calls before it is ready (support.h). */
__attribute__((no_sanitize("thread"))) void __sanitizer_cov_trace_pc(void) { taken++; }

uint64_t steps_taken(void) { return taken; }
