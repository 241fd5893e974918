#!/bin/sh
# What coll.h adds to MPI: each collective called directly and through coll_wrap_mpi, in turns, in one job, for each MPI that
# has been built.  Prints the two medians in microseconds, their difference and their ratio; the ratio is the median over pairs.
#   usage: compare.sh FOLDER [COLL_MPI=messages] [RANKS...]      FOLDER/both.openmpi, FOLDER/both.mpich; default: 2 and 4 ranks
# In the environment: SIZES, COLLECTIVES, BUDGET (seconds for a pair); ROUNDS: so many times over; RAW: a file that takes all
# lines, as those of bench/threads/compare.py --raw.
build=${1:?"usage: compare.sh FOLDER [COLL_MPI=...] [RANKS...]"}; shift
case ${1:-} in COLL_MPI=*) export "${1?}"; shift ;; esac
: "${SIZES:=8,256,4096,65536,1048576,16777216,67108864}" "${BUDGET:=0.6}" "${ROUNDS:=1}"
: "${COLLECTIVES:=allreduce,allreduce_in_place,broadcast,reduce,allgather,reduce_scatter,alltoall,barrier}"
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_plm=isolated
export PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe
shared=/dev/shm/coll-bench-mpi.$$
trap 'rm -f "$shared"' EXIT
trap 'exit 1' HUP INT TERM
status=0
[ -z "${RAW:-}" ] || : > "$RAW"

beside() { # MPI ranks round
    sizes=$SIZES; [ "$2" -le "$(nproc)" ] || sizes=8,4096,1048576
    echo "$1, $2 ranks on $(nproc) processors"
    printf '  %-20s %10s %12s %12s %10s %8s\n' collective bytes 'MPI us' 'coll us' '+ us' ratio
    rm -f "$shared"
    timeout 600 "mpiexec.$1" -n "$2" "$build/both.$1" "$1" "$shared" "$BUDGET" "$sizes" "$COLLECTIVES" > "$build/out" \
        2> "$build/err" < /dev/null || { status=1; tail -n 5 "$build/err"; }
    awk -F '\t' '
        $1 == "time" && $5 ~ /-direct$/ { direct = $7 }
        $1 == "time" && $5 ~ /-coll$/   { ours = $7; table = $2; bytes = $4; due = 1 }
        $1 == "ratio" { ratio = $7 }
        $1 == "others" && due {
            printf "  %-20s %10d %12.2f %12.2f %10.2f %8.3f\n", table, bytes, direct, ours, ours - direct, ratio
            due = 0 }' "$build/out"
    [ -z "${RAW:-}" ] || awk -v round="$3" -F '\t' 'NF == 9 { print round "\t" $0 }' "$build/out" >> "$RAW"
}

for round in $(seq "$ROUNDS"); do
    for mpi in openmpi mpich; do
        [ -x "$build/both.$mpi" ] || { echo "$mpi: it has not been built"; continue; }
        for ranks in ${*:-2 4}; do beside "$mpi" "$ranks" "$round"; done
    done
done
exit $status
