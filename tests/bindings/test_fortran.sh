#!/bin/sh
# test_fortran.sh - the module coll_raw: the contract on threads, a simulated machine and processes; that it has every function
# of a kind of call; the program in bindings/README.md.
#   usage: [CC=cc] [FC=gfortran] sh tests/bindings/test_fortran.sh
#
# Ends with "N passed, N failed".
cd "$(dirname "$0")/../.." || exit 1
. tests/support/folder.sh
: "${FC:=gfortran}"
if ! command -v "$FC" > /dev/null 2>&1; then
    echo "skipped: there is no $FC (Debian: gfortran)"
    echo "0 passed, 0 failed"
    exit 0
fi
. tests/support/checks.sh

make --no-print-directory config=plain "$(folder plain)/coll-run" "$(folder plain)/coll.o" || exit 1
run=$PWD/$(folder plain)/coll-run object=$PWD/$(folder plain)/coll.o source=$PWD/bindings/fortran

# What gfortran takes for uninitialised are arrays that an assignment allocates.
compile() { # program flags...
    program=$1; shift
    (mkdir -p "$dir/$program" && cd "$dir/$program" && "$FC" -std=f2008 -Wall -Wextra -Wimplicit-interface -Wno-compare-reals \
        -Wno-uninitialized -Wno-maybe-uninitialized -Werror -frecursive "$@" -I"$source" "$source/coll_raw.f90" \
        "$source/contract_base.f90" "$source/contract.F90" "$object" -o ../"$program.out" -pthread)
}
check "the contract is compiled, with bounds checked and without a warning" compile checked -O0 -g -fbounds-check
check "and optimised" compile fast -O2
counted "1 to 5 threads" 1 timeout 300 "$dir/checked.out"
counted "1 to 5 threads, optimised" 1 timeout 300 "$dir/fast.out"
counted "1 to 5 simulated ranks" 1 timeout 300 env COLL_TRANSPORT=sim "$dir/fast.out"
for ranks in 1 2 3 5; do
    counted "$ranks processes" $ranks timeout 300 "$run" -n $ranks --no-prefix "$dir/checked.out"
    counted "$ranks processes, TCP" $ranks timeout 300 env COLL_SHARE=off "$run" -n $ranks --no-prefix "$dir/fast.out"
done

# ---- no function of a kind is left out
kinds=$(sed -n 's/.*parameter :: COLL_KIND_\([A-Z_]*\) = .*/\1/p' "$source/coll_raw.f90" | tr '[:upper:]' '[:lower:]')
check "there are kinds" test "$(echo "$kinds" | wc -l)" -eq 26
for kind in $kinds; do
    check "coll_$kind" grep -q "coll_$kind(" "$source/contract.F90" "$source/contract_type.inc"
    check "coll_i$kind" grep -q "coll_i$kind(" "$source/contract.F90" "$source/contract_type.inc"
done

# ---- the page
awk '/^```fortran/ { inside = 1; next } /^```/ { inside = 0 } inside' bindings/README.md > "$dir/hello.f90"
hello() { (cd "$dir" && "$FC" -Wall -Werror "$source/coll_raw.f90" "$1" "$object" -o "$2" -pthread); }
says() { # text command...
    text=$1; shift
    [ "$("$@" | sort | tr '\n' ';')" = "$text" ]
}
sums='rank 0 of 3: 3.0 3.0;rank 1 of 3: 3.0 3.0;rank 2 of 3: 3.0 3.0;'
check "bindings/README.md: compiles" hello "$dir/hello.f90" page
check "bindings/README.md: runs" says "$sums" "$run" -n 3 --no-prefix "$dir/page"
sed 's/COLL_SUM/COLL_BAND/' "$dir/hello.f90" > "$dir/wrong.f90"
check "a mistake: compiles" hello "$dir/wrong.f90" wrong
tells() { "$dir/wrong" 2>&1 | grep -q "allreduce: there is no band of f32"; }
check "a mistake: its sentence" tells
check "fortran/hello.f90: compiles" hello "$source/hello.f90" hello
check "fortran/hello.f90: runs" says "$sums" "$run" -n 3 --no-prefix "$dir/hello"

echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
