#!/bin/sh
# coll.h over MPI, over each library that is here: the contract, random programs, failures, the forms of calls and the digits
# example, on ranks that mpiexec starts, more of them than there are processors.  In CI (as root) a library that is missing is a
# failure.
#   usage: test_mpi.sh [openmpi|mpich...]      COLL_TEST_SEED=... replays the random programs
cd "$(dirname "$0")/../.." || exit 1
passed=0 failed=0
seed=${COLL_TEST_SEED:-$(date +%s)}
log=$(mktemp) || exit 1
trap 'rm -f "$log" "$log.out" "$log.sums"' EXIT

# Settings that Open MPI requires for root, for more ranks than processors, and for a host without ssh.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_plm=isolated
export OMPI_MCA_mpi_yield_when_idle=1 OMPI_MCA_btl_vader_single_copy_mechanism=none OMPI_MCA_btl_base_warn_component_unused=0
export PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe HWLOC_HIDE_ERRORS=1

fail() {
    failed=$((failed + 1))
    echo "FAILED - $*"
    cat "$log.out" "$log" 2> /dev/null | grep -v ' UCX  WARN ' | grep -v '^-----' | tail -n 24
}

job() { # sums mode ranks program arguments...: `sums` lines are printed, by rank 0 or by every rank, and nothing has failed
    sums=$1 mode=$2 n=$3; shift 3
    # apart, because mpiexec mixes lines of both streams, or of several ranks
    : > "$log.sums"
    COLL_TEST_SUMS=$log.sums COLL_MPI=$mode timeout -k 5 150 "mpiexec.$mpi" -n "$n" "$@" > "$log.out" 2> "$log" < /dev/null
    status=$?
    set -- "$mpi, COLL_MPI=$mode, $n ranks: $*" \
        $(awk -v want="$sums" '/^[0-9]+ passed, [0-9]+ failed$/ { n++; p += $1; f += $3 }
                               END { print p + 0, f + (n != want) }' "$log.out" "$log.sums")
    [ "$status" -eq 0 ] || [ "$3" -gt 0 ] || set -- "$1 (status $status)" "$2" 1
    passed=$((passed + $2)) failed=$((failed + $3))
    if [ "$3" -eq 0 ]; then echo "ok - $1"; else failed=$((failed - $3)); fail "$1"; fi
}

weights() { sed -n 's/.*"weights":"\{0,1\}\([^,"}]*\).*/\1/p'; }

digits() { # ranks: the bits of the example, whose sums are deterministic, are those of threads
    want=$("$build/train_digits" -t "$1" --epochs 2 --json 2> /dev/null | weights)
    got=$(COLL_TRANSPORT=mpi timeout -k 5 100 "mpiexec.$mpi" -n "$1" "$build/train_digits" --epochs 2 --json 2> "$log" \
        < /dev/null | weights)
    if [ -n "$want" ] && [ "$got" = "$want" ]; then passed=$((passed + 1)); echo "ok - $mpi: digits on $1 ranks"
    else fail "$mpi: digits on $1 ranks: weights $got, but $want between threads"; fi
}

unknown_way() { # an unknown mode is refused; the sentence lists the modes
    if COLL_MPI=fast timeout -k 5 60 "mpiexec.$mpi" -n 2 "$build/mpi_contract" > "$log" 2>&1 < /dev/null; then status=0
    else status=1; fi
    if [ $status = 1 ] && grep -q "COLL_MPI=fast is none of auto, native, messages, blocking" "$log"; then
        passed=$((passed + 1)); echo "ok - $mpi: COLL_MPI=fast is refused"
    else fail "$mpi: COLL_MPI=fast: status $status"; fi
}

unlike_ways() { # ranks with different modes: a sentence on each of them
    timeout -k 5 60 "mpiexec.$mpi" -n 3 sh -c \
        '[ "${OMPI_COMM_WORLD_RANK:-$PMI_RANK}" = 2 ] || export COLL_MPI=blocking; exec "$0" messages' "$build/mpi_contract" \
        > "$log" 2>&1 < /dev/null
    said=$(grep -c "^coll_wrap_mpi: COLL_MPI differs among the ranks: give all of them the same" "$log")
    if [ "$said" = 3 ]; then passed=$((passed + 1)); echo "ok - $mpi: COLL_MPI=blocking on some ranks is refused"
    else fail "$mpi: COLL_MPI=blocking on some ranks: $said sentences"; fi
}

protocol() { # that of coll_mpi_forms.h, in every order; and with defects, which are found
    command -v python3 > /dev/null || return
    forms() { python3 tests/transports/mpi_forms.py "$@"; }
    if forms 2 3 && forms 3 2 && ! forms 3 1 once && ! forms 3 1 free; then
        passed=$((passed + 1)); echo "ok - the protocol of forms"
    else fail "the protocol of forms"; fi > "$log"
    grep '^ok\|^FAILED' "$log"
}

protocol
for mpi in ${*:-openmpi mpich}; do
    if ! command -v "mpicc.$mpi" > /dev/null || ! command -v "mpiexec.$mpi" > /dev/null; then
        if [ "$(id -u)" = 0 ]; then : > "$log"; fail "$mpi is not installed"; else echo "$mpi: skipped: it is not installed"; fi
        continue
    fi
    build=build/mpi.$mpi crowds=build/crowds.$mpi
    if ! make --no-print-directory CPPFLAGS="$CPPFLAGS -DCOLL_ASSERT" "$build/mpi_contract" "$build/mpi_random" \
        "$build/mpi_failure" "$build/mpi_waiting" "$build/mpi_strides" "$build/mpi_freed" "$build/train_digits" \
        "$crowds/mpi_contract" "$crowds/mpi_random" "$crowds/mpi_failure" "$crowds/mpi_forms" > "$log" 2>&1; then
        fail "$mpi: it does not compile"
        continue
    fi
    job 1 auto 1 "$build/mpi_contract" messages,communicators
    job 1 auto 2 "$build/mpi_contract" messages,cells,communicators
    job 1 messages 2 "$build/mpi_contract" messages,numbers
    job 1 auto 3 "$build/mpi_contract" kinds,numbers,algorithms
    job 1 auto 5 "$build/mpi_contract" kinds,reproducible
    job 1 blocking 3 "$build/mpi_contract" kinds,cells,numbers
    if [ "$mpi" = mpich ]; then                   # which can treat odd and even ranks as two hosts
        export MPIR_CVAR_ODD_EVEN_CLIQUES=1
        job 1 auto 5 "$build/mpi_contract" kinds,numbers
        unset MPIR_CVAR_ODD_EVEN_CLIQUES
    fi
    for n in 2 5 8; do job 1 auto $n "$build/mpi_random" "$seed" 2 60; done
    for n in 3 4; do job 1 messages $n "$build/mpi_random" "$seed" 1 60; done
    for case in mismatch counts aborted left-native left-engine left-derived pending late arguments configured finalized; do
        job 3 auto 3 "$build/mpi_failure" $case
    done
    for case in mismatch counts aborted left-native left-derived pending late; do job 3 auto 3 "$crowds/mpi_failure" $case; done
    job 1 auto 3 "$crowds/mpi_contract" kinds,cells
    for n in 2 3; do for part in mixed races; do job 1 auto $n "$crowds/mpi_forms" "$seed" $part; done; done
    job 1 auto 5 "$crowds/mpi_forms" "$seed" mixed
    job 1 auto 4 "$crowds/mpi_random" "$seed" 1 60
    for case in mismatch counts left-engine pending; do job 3 messages 3 "$build/mpi_failure" $case; done
    job 3 native 3 "$build/mpi_failure" refused
    for mode in auto messages; do job 1 $mode 3 "$build/mpi_waiting"; done
    for mode in auto messages blocking; do job 1 $mode 3 "$build/mpi_strides"; done
    for case in barrier broadcast used prepared recv test any send source others; do
        job 1 auto 4 "$build/mpi_freed" $case "a dup"
        job 1 messages 4 "$build/mpi_freed" $case "a split"
    done
    job 1 messages 4 "$build/mpi_freed" barrier "one of many"
    for case in barrier send others; do job 1 auto 4 "$build/mpi_freed" $case "that of coll_init"; done
    digits 3
    unknown_way
    unlike_ways
done
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
