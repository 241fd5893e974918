/* inside.h - the insides of the library, for a test that links it: the implementation is read here once more, and compiled as far
 * as the test itself calls it, a few dozen functions of two thousand.  Public functions are those that are linked, which are
 * compiled once for all tests.  Both copies have the same types and work on the same communicators.  Each has its own:
 * the sentence of a start that has failed (coll__start_error, and coll_error(NULL) of what is linked), the mark of a thread, and
 * its tables, whose addresses differ.
 *
 * Needs the macros that the linked object was compiled with, except COLL__ONE_TIER, which only selects the arithmetic that the
 * test itself calls.  Also needs an optimizer, without which all would be compiled, and the top folder as one of system headers:
 * the Makefile does both. */
#ifndef TESTS_INSIDE_H
#define TESTS_INSIDE_H

#if !defined(__OPTIMIZE__)
#error "without optimisation the whole library would be compiled again"
#endif
#ifndef _GNU_SOURCE
#define _GNU_SOURCE 1
#endif
#include "../../coll.h"
#undef COLL_API
#define COLL_API extern __inline__ __attribute__((gnu_inline, noinline))
#include <coll_impl.h>

#if COLL__HAS_TCP
/* The sockets of a rank, which may also use the shared memory of its host. */
static COLL__UNUSED coll__tcp *inside_tcp(const coll_comm *comm)
{
    return (coll__tcp *)comm->session->context;
}
#endif

/* A configuration as a transport gets it, with the values of the environment, also for the options of TCP. */
static COLL__UNUSED coll_status inside_settle(coll__settings *s, const coll_config *config, int count)
{
    static const coll__transport_row tcp = { .settle = coll__tcp_defaults };
    static const coll__transport_row *const rows[] = { &tcp, NULL };
    const coll__program program = { rows, NULL };

    return coll__settle(&program, s, config, count);
}

#endif /* TESTS_INSIDE_H */
