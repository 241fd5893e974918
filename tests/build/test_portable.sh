#!/bin/sh
# test_portable.sh - the half of the library for systems other than Linux (COLL_PORTABLE, core/base/coll_system.h), run on this
# one: sleep on a mutex and a condition, doorbells that are pipes, descriptors watched by poll, processes of one host over TCP.
#
#   usage: [COLL_TEST_SEED=...] [ONLY="test_threads test_shrink"] sh tests/build/test_portable.sh
#
# The rows below are programs that other suites run with Linux's half; each is built with config=portable, and run (rows.sh).
# Prints skipped parts with the reason, and ends with "N passed, N failed", the sum of the checks of all programs.
cd "$(dirname "$0")/../.." || exit 1
. tests/support/rows.sh
config=portable
build=$(folder $config)

left_out() { echo "left out - $1: $2"; }

# That the programs are of this half: a pipe for each doorbell, and no call that only Linux has.
mkdir -p build
make --no-print-directory config=$config CPPFLAGS="$CPPFLAGS" "$build/coll.o" > "$build.log" 2>&1
calls=$(nm -u "$build/coll.o" 2>&1 | awk '{ print $NF }' | grep -xE 'eventfd|epoll_.*|syscall|accept4|io_uring_.*|memfd_.*')
if [ -z "$calls" ] && nm -u "$build/coll.o" | grep -qw pipe; then
    passed=$((passed + 1)); echo "ok - none of Linux's own calls"
else
    failed=$((failed + 1)); echo "FAILED - none of Linux's own calls:" $calls "$(head -n 3 "$build.log")"
fi

row 1    test_contract threads,tcp-poll,sim 2
row 0.1  test_collectives
row 0.2  test_threads
row 0.1  test_random
row 1    test_sentences
row 1    test_shm_handshake
row 1    test_shortages
row 1    test_launchers
row 1    test_errors threads,tcp-poll
row 1    test_failure tcp-poll,threads ends,alive,orphans,abort,shrink,astray,dump,stall
row 1    test_faults tcp-poll
row 1    test_liveness short,long,frozen
row 0.2  test_shrink poll modes,pairs,late,chance
row 1    test_freed threads,tcp-poll
row 0.2  test_waiting threads,tcp-poll
row 1    test_orders threads,tcp-poll
row 0.2  test_background
row 1    test_hybrid
row 1    test_quiet
row 1    test_crowded
row 0.2  test_lanes settings,calls,leaving,cuts
row 1    test_locals
row 1    test_simfaults 2
left_out "test_failure paths, test_liveness links" "POSIX does not tell what the other kernel has acknowledged, so that a link \
that dies alone is found when the kernel gives up (docs/platforms.md)"
left_out "test_shrink sends, stops" "they wait for minutes until stopped ranks are given up; stopped ranks are in test_liveness"
left_out test_memory "memory that processes share is not in this half (COLL_NO_SHM)"
left_out test_refused "io_uring is not in this half (COLL_NO_URING)"
left_out "numbers, algorithms, tuner, wire, greetings" "they are the same code, which asks nothing of the system"
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
