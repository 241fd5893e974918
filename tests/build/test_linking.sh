#!/bin/sh
# test_linking.sh - a program is linked with -pthread alone, whatever is installed: liburing is loaded when TCP needs it, and
# where it cannot be, TCP runs on poll and coll_explain says why.  Two processes of a small program meet for each case.
#   CC: the compiler.  Needs readelf; without <liburing.h> the cases with it are left out.
cd "$(dirname "$0")/../.." || exit 1
top=$(pwd)
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
cd "$dir" || exit 1
passed=0 failed=0
for name in $(env | sed -n 's/^\(COLL_[A-Z_]*\)=.*/\1/p'); do unset "$name"; done

cat > which.c << 'C'
#define COLL_IMPLEMENTATION
#include "coll.h"
#include <stdio.h>
#ifdef LOCAL
static __thread volatile char local[LOCAL];       /* it lies on the stack of every thread                     */
#endif
int main(void)
{
    static char text[2000];
    coll_comm *comm;
    float x = 1;
    const coll_call call = { .kind = COLL_ALLREDUCE, .send = &x, .recv = &x, .count = 1, .type = COLL_F32, .op = COLL_SUM };
    if (coll_init(&comm, NULL)) return puts(coll_error(NULL)), 1;
    if (coll_run(comm, &call) || coll_explain(comm, &call, text, sizeof text) < 0) return puts(coll_error(comm)), 1;
    puts(text);
#ifdef LOCAL
    coll_request *request;
    local[0] = 1, x = 1;
    if (coll_rank(comm)) usleep(100000);          /* so that the thread that progresses operations is there   */
    if (coll_start(comm, &call, &request)) return puts(coll_error(comm)), 1;
    usleep(100000);
    if (coll_wait(request)) return puts(coll_error(comm)), 1;
    coll_request_free(request);
#endif
    coll_free(comm);
    return x != 2;
}
C
small="-std=gnu11 -O0 -DCOLL_ONLY_TRANSPORTS=tcp -DCOLL_ONLY_TYPES=f32,i32 -DCOLL_ONLY_KINDS=allreduce"

check() { # name, what it gives 0 for
    what=$1; shift
    if "$@" > log 2>&1; then passed=$((passed + 1)); echo "ok - $what"
    else failed=$((failed + 1)); echo "FAILED - $what: $(tail -n 5 log)"; fi
}
made() { # flags...: into ./which
    rm -f which
    # shellcheck disable=SC2086
    ${CC:-cc} $small -I "$top" which.c -o which -pthread "$@"
}
met() { # words [COLL_IO]: two processes, of which both say these words
    rm -rf meet && mkdir meet
    for rank in 0 1; do
        COLL_IO=${2:-auto} COLL_SHM_COLLECTIVES=0 COLL_RANK=$rank COLL_SIZE=2 COLL_ADDR=file:$dir/meet/at \
            sh -c './which; printf %s $? > left.'$rank > said.$rank 2> log.$rank &
    done
    wait
    cat said.0 said.1
    [ "$(cat said.0 said.1 | grep -cF "$1")" -eq 2 ]
}
says() { # name words flags...: why it is poll, and why it is not io_uring if that is requested
    name=$1 words=$2; shift 2
    check "$name: links" made "$@"
    check "$name: poll, and why" met "over tcp (poll: $words;"
    check "$name: io_uring requested" met "io_uring was requested but is not available: $words" uring
}
needs() { readelf -d which | grep -q 'NEEDED.*liburing'; }
needs_not() { ! needs; }

# The stacks of the library's threads are short, and thread-local variables of the program lie there, too.
met_well() { met "over tcp (" && [ ! -s log.0 ] && [ ! -s log.1 ] && [ "$(cat left.0 left.1)" = "00" ]; }
for local in 200 248 504 1500; do
    check "$local KiB of thread-local variables: links" made -DLOCAL=$local*1024
    check "$local KiB of thread-local variables" met_well
done

says "COLL_NO_URING" "compiled without liburing (COLL_NO_URING)" -DCOLL_NO_URING

# A machine without the header: one that has all the others.
mkdir none old
for f in /usr/include/*; do case $f in */liburing*) ;; *) ln -s "$f" none/ ;; esac; done
: > old/liburing.h
inside=$(${CC:-cc} -print-file-name=include)
multi=$(${CC:-cc} -print-multiarch 2> /dev/null)
says "no header" "compiled without liburing, whose <liburing.h> was not found" \
    -nostdinc -isystem "$inside" -isystem none ${multi:+-isystem "/usr/include/$multi"}
says "an old header" "compiled without liburing, whose header is older than 2.2" -I old

if printf '#include <liburing.h>\n' | ${CC:-cc} -E -x c - > /dev/null 2>&1; then
    says "a library that is not there" "liburing-elsewhere.so was not found" '-DCOLL__URING_LIBRARY="liburing-elsewhere.so"'
    says "a library that lacks functions" "libm.so.6 is older than 2.2" '-DCOLL__URING_LIBRARY="libm.so.6"'
    says "a static program" "this program loads no libraries (it is static, or needs -ldl)" -static

    check "loaded: links" made
    check "loaded: nothing but what is always there is needed" needs_not
    check "linked: links" made -DCOLL_WITH_URING -luring
    check "linked: it is needed" needs
    met "over tcp (io_uring;" uring > log 2>&1
    case $(cat said.0) in
    *"cannot be had"*) echo "left out: io_uring itself: $(head -n 1 said.0)" ;;
    *)  check "linked: io_uring" met "over tcp (io_uring;" uring
        made
        check "loaded: io_uring" met "over tcp (io_uring;" uring ;;
    esac
else
    echo "left out: liburing loaded and linked: no <liburing.h> here"
fi
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
