/* steps.h - the work of a program, counted: basic blocks that this thread has entered, whatever else the machine does.  For
 * programs that are compiled with -fsanitize-coverage=trace-pc and linked with steps.c. */
#ifndef TESTS_STEPS_H
#define TESTS_STEPS_H

#include <stdint.h>

uint64_t steps_taken(void);

#endif
