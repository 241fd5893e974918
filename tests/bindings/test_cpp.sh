#!/bin/sh
# test_cpp.sh - coll.hpp: the contract on threads, processes and a simulated machine, with all sanitizers; without exceptions;
# without a warning; its shapes are those of the library; docs/cpp.md, docs/sockets.md and examples/cpp do what they say.
#   usage: [CC=cc] [CXX=c++] sh tests/bindings/test_cpp.sh
#
# Ends with "N passed, N failed".
cd "$(dirname "$0")/../.." || exit 1
. tests/support/folder.sh
: "${CC:=cc}" "${CXX:=c++}"
. tests/support/checks.sh
W="-Wall -Wextra -Wpedantic -Wconversion -Wshadow -Wundef -Werror"

# ---- the rows of shapes, as both have them
rows() { # file
    tr -d '\n' < "$1" | grep -oE "$2\([A-Z_]+,[^)]*\)" | sed -E 's/^[^(]*\(//; s/\)$//; s/"[a-z_]*",//; s/ +//g'
}
rows coll.hpp COLL__CPP_SHAPE | grep -v '^kind,' | sort > "$dir/here"
rows core/contract/coll_shape.h '  X' | cut -d , -f 1-8 | sort > "$dir/there"
check "there are rows" test "$(grep -c . "$dir/there")" -eq 26
check "the shapes of coll.hpp are those of coll_shape.h" diff "$dir/there" "$dir/here"

# ---- no warnings
for compiler in g++ clang++; do
    command -v $compiler > /dev/null 2>&1 || { echo "left out: there is no $compiler"; continue; }
    for standard in c++17 c++20; do
        # shellcheck disable=SC2086
        check "$compiler -std=$standard" $compiler -std=$standard $W -fsyntax-only tests/bindings/test_cpp.cpp
    done
done

# ---- an older language gets one sentence
printf '#include "coll.hpp"\n' > "$dir/old.cpp"
for compiler in g++ clang++; do
    command -v $compiler > /dev/null 2>&1 || continue
    for standard in c++11 c++14; do
        $compiler -std=$standard -I. -fsyntax-only "$dir/old.cpp" 2> "$dir/why"
        check "$compiler -std=$standard says what to do, in one error" \
            sh -c "[ \$(grep -c 'error:' '$dir/why') -eq 1 ] && grep -q 'std=c++17' '$dir/why'"
    done
done

# ---- what does not compile says why
compiles() { # call
    printf '#include "coll.hpp"\nvoid f(coll::communicator &comm, std::vector<float> &x) { %s; }\n' "$1" > "$dir/call.cpp"
    $CXX -std=c++17 -I. -fsyntax-only "$dir/call.cpp" 2> "$dir/why"
}
says() { ! compiles "$2" && grep -q "coll: $1" "$dir/why"; }
check "a matrix is gathered" compiles 'comm.allgather(coll::matrix_view(x, 2, 3))'
check "and not reduced" says 'a matrix_view is for' 'comm.allreduce(coll::matrix_view(x, 2, 3))'
check "nor has it counts" says 'a matrix_view is for' 'comm.gatherv(coll::matrix_view(x, 2, 3), {})'
check "what is only written may be said to be in place" compiles 'comm.broadcast(coll::in_place(x), 0)'
check "or an output" compiles 'comm.broadcast(coll::into(x), 0); comm.recv(coll::into(x)); comm.recv(x)'
check "a broadcast has no input of its own" says 'this call has one buffer' 'comm.broadcast(coll::from_to(x, x), 0)'
check "nor has a receive" says 'this call has no form in place' 'comm.recv(coll::in_place(x), 0)'
check "nor is it const as an output" \
    says 'an output is not const' 'const auto &y = x; comm.broadcast(coll::matrix_view(y, 2, 3))'

# ---- the contract
make --no-print-directory config=plain "$(folder plain)/coll-run" "$(folder plain)/coll.o" || exit 1
for config in asan tsan; do make --no-print-directory config=$config "$(folder $config)/coll.o" || exit 1; done
run=$(folder plain)/coll-run object=$(folder plain)/coll.o
asan="-fsanitize=address,undefined -fno-sanitize=null,object-size,vptr,alignment -fno-sanitize-recover=undefined"
# shellcheck disable=SC2086
{
check "the test with sanitizers" \
    $CXX -std=c++17 -O0 -g1 $asan tests/bindings/test_cpp.cpp "$(folder asan)/coll.o" -o "$dir/test_cpp" -pthread
check "the test with the thread sanitizer" \
    $CXX -std=c++17 -O0 -g1 -fsanitize=thread tests/bindings/test_cpp.cpp "$(folder tsan)/coll.o" -o "$dir/test_tsan" -pthread
check "the test without exceptions" \
    $CXX -std=c++17 $W -O0 -fno-exceptions tests/bindings/cpp_quiet.cpp "$object" -o "$dir/quiet" -pthread
}
counted "threads and the simulator" 1 "$dir/test_cpp"
counted "threads, with the thread sanitizer" 1 "$dir/test_tsan" threads
counted "three processes" 3 "$run" -n 3 --no-prefix "$dir/test_cpp" hybrid
killed() { # all but the one that is killed find it out
    for rank in 0 1 2; do
        COLL_RANK=$rank COLL_SIZE=3 COLL_ADDR="file:$dir/address" "$dir/test_cpp" killed &
    done
    wait
}
counted "a process is killed" 2 killed
counted "without exceptions" 1 "$dir/quiet"

# ---- the page: programs, and pieces that have a communicator
awk -v dir="$dir" '/^```cpp/ { n++; inside = 1; piece = ""; next }
    /^```/ { if (inside) { file = dir "/piece" n (piece ~ /int main/ ? ".program.cpp" : ".part"); printf "%s", piece > file }
        inside = 0 }
    inside { piece = piece $0 "\n" }' docs/cpp.md docs/sockets.md
{
    printf '#include "coll.hpp"\n#include <algorithm>\n#include <cstdio>\n#undef NDEBUG\n#include <cassert>\n'
    for part in "$dir"/piece*.part; do
        name=$(basename "$part" .part)
        echo "static void $name(coll::communicator &comm) {"; cat "$part"; echo "}"
        names="$names $name"
    done
    echo "int main() { coll::spawn(3, [](coll::communicator &comm) {"
    for name in $names; do echo "$name(comm);"; done
    echo "}); }"
} > "$dir/pieces.cpp"
# shellcheck disable=SC2086
check "docs/cpp.md: pieces" test "$(echo $names | wc -w)" -ge 5
check "docs/cpp.md: the pieces compile" "$CXX" -std=c++17 -O0 -I. "$dir/pieces.cpp" "$object" -o "$dir/pieces" -pthread
check "docs/cpp.md: the pieces run" "$dir/pieces"
check "docs/cpp.md: the program compiles" "$CXX" -std=c++17 -O0 -I. "$dir"/piece*.program.cpp "$object" -o "$dir/hello" -pthread
said() { [ "$("$dir/hello" | sort | tr '\n' ';')" = "$1" ]; }
check "docs/cpp.md: the program" said 'rank 0 of 4: 6 4;rank 1 of 4: 6 4;rank 2 of 4: 6 4;rank 3 of 4: 6 4;'
for name in $(sed -n 's/^    \(template.*\)\{0,1\}auto \([a-z_]*\)(.*options &with = {}).*/\2/p' coll.hpp); do
    check "docs/cpp.md: $name" grep -q "\`$name\`" docs/cpp.md
done

check "examples/cpp/fit.cpp" "$CXX" -std=c++17 -O0 -I. examples/cpp/fit.cpp "$object" -o "$dir/fit" -pthread
fits() { "$@" | grep -qx "[34] ranks: 1.000 -2.000 x +0.500 x^2"; }
check "fit: threads" fits "$dir/fit"
check "fit: processes" fits "$run" -n 3 --no-prefix "$dir/fit"

echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
