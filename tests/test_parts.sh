#!/bin/sh
# test_parts.sh - some tests with sets of switches (core/base/coll_parts.h): what is there gives the same bits as in a program
# with everything, in every call, and what is not is refused with the name of its switch.  The tests ask what there is (there.h).
#
#   usage: [COLL_TEST_SEED=...] [ONLY="test_contract test_numbers"] sh tests/test_parts.sh
#
# All of `make check` with COLL_SMALL is the suite `small`; each switch alone, and many sets, with little to do: test_switches.sh.
# Ends with "N passed, N failed".
cd "$(dirname "$0")/.." || exit 1
. tests/rows.sh
config=plain given=$CPPFLAGS

set_of() { # switches...: for the rows below it
    CPPFLAGS=$given
    for switch in "$@"; do CPPFLAGS="$CPPFLAGS -D$switch"; done
    CPPFLAGS=${CPPFLAGS# }
}

set_of COLL_ONLY_TYPES=i8,i16,i32,i64,u8,u16,u32,u64,bool,f32,f64,f32_i32,f64_i32,f64_i64,i32_i32,i64_i32,i64_i64
row 1    test_contract threads,tcp-poll 2
row 0.02 test_collectives
row 0.2  test_random
row 1    test_numbers

set_of COLL_NO_CHOICE
row 1    test_contract threads,tcp-poll,sim 3
row 0.02 test_collectives
row 0.3  test_random

# Sentences are what test_numbers, among others, is about: it is not for a program without them.
set_of COLL_NO_TEXT COLL_NO_ENV
row 1    test_contract threads,tcp-poll,sim 2
row 0.02 test_collectives
row 0.2  test_random

set_of COLL_ONLY_TRANSPORTS=threads
row 1    test_contract threads,tcp-poll,sim 3
row 0.1  test_collectives
row 0.1  test_random

set_of COLL_ONLY_KINDS=broadcast,scatter COLL_NO_COUNTS
row 1    test_contract threads,tcp-poll,sim 2
row 0.02 test_collectives threads,tcp-poll
row 0.1  test_random
row 1    test_numbers

echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
