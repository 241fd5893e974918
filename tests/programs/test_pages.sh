#!/bin/sh
# test_pages.sh - the programs and commands of docs/sockets.md, docs/boards.md, docs/debugging.md and docs/versions.md do what the
# pages say.  Those of the other pages are in test_readme.sh.
#
#   usage: [CC=cc] sh tests/programs/test_pages.sh COLL-RUN
#
# Prints "ok - name" or "FAILED - name: detail" for each check and ends with "N passed, N failed".
top=$(cd "$(dirname "$0")/../.." && pwd)
run=$(cd "$(dirname "$1")" && pwd)/$(basename "$1")
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
cd "$dir" || exit 1
passed=0 failed=0
for name in $(env | sed -n 's/^\(COLL_[A-Z_]*\)=.*/\1/p'); do unset "$name"; done

check() { # name command...: ends well
    name=$1; shift
    if timeout 120 "$@" > out 2>&1; then passed=$((passed + 1)); echo "ok - $name"
    else failed=$((failed + 1)); printf 'FAILED - %s: ' "$name"; tail -n 12 out; fi
}
pieces() { # page: all of its C
    awk '/^```c$/ { inside = 1; next } /^```/ { inside = 0 } inside' "$top/docs/$1"
}
built() { # source program flags...
    source=$1 program=$2; shift 2
    check "$source compiles $*" "${CC:-cc}" -std=gnu11 -O0 -g -DCOLL__ONE_TIER -Wall -Wextra -Werror -I"$top" "$@" "$source" \
        -o "$program" -pthread
}

# ---- sockets.md: the adapter does what an engine requires
{
    printf '#define COLL_IMPLEMENTATION\n#include "coll.h"\n#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n'
    pieces sockets.md
    cat << 'END'
static void add(const char *in, char *inout, int type_size, int32_t length)
{
    for (int32_t at = 0; at < length; at += type_size) {
        double a, b;
        memcpy(&a, in + at, 8), memcpy(&b, inout + at, 8);
        b += a;
        memcpy(inout + at, &b, 8);
    }
}
static int worker(coll_comm *comm, void *arg)
{
    const int32_t start[3] = { 0, 32, 32 }, length[3] = { 32, 0, 48 };
    const int me = coll_rank(comm);
    double in[10], sums[10];
    float gradient[3] = { 1, 2, (float)me };
    merge_bytes *function = add;

    (void)arg;
    job = comm;
    for (int i = 0; i < 10; i++) in[i] = i + me;
    adapter_reduce_scatter((char *)in, 80, 8, start, length, 3, (char *)sums, 80, &function);
    adapter_allgather((char *)sums, length[me], start, length, 3, (char *)sums, 80);
    for (int i = 0; i < 10; i++) if (sums[i] != 3 * i + 3) return fprintf(stderr, "sum %d: %g\n", i, sums[i]), 1;
    return sum_gradient(comm, gradient, 3) || gradient[1] != 6 || gradient[2] != 3;
}
int main(int argc, char **argv)
{
    if (argc > 2) {
        coll_comm *comm = join_job(atoi(argv[1]), 2, argv[2]);
        if (!comm) return fprintf(stderr, "%s\n", coll_error(NULL)), 1;
        return coll_barrier(comm) || coll_free(comm);
    }
    return coll_spawn(3, worker, NULL, NULL) || coll_free(join_list(0, 1, "127.0.0.1:4000"));
}
END
} > sockets.c
built sockets.c sockets
check "sockets.md: three ranks" ./sockets
check "sockets.md: two processes with a rank and an address" \
    sh -c './sockets 1 "file:$PWD/address" & ./sockets 0 "file:$PWD/address" && wait $!'

# ---- boards.md: processes in place of boards; their lines lose bytes that are sent before a board has started
{
    printf '#define COLL_IMPLEMENTATION\n#include "coll.h"\n#include <poll.h>\n#include <stdio.h>\n#include <stdlib.h>\n'
    printf '#include <string.h>\n#include <sys/socket.h>\n#include <sys/wait.h>\n#include <time.h>\n#include <unistd.h>\n'
    pieces boards.md
    cat << 'END'
static int ends[BOARDS][BOARDS], me, count;
static int line_get(int peer)
{
    unsigned char byte;
    return recv(ends[me][peer], &byte, 1, MSG_DONTWAIT) == 1 ? byte : -1;
}
static bool line_put(int peer, int byte)
{
    const unsigned char one = (unsigned char)byte;
    return send(ends[me][peer], &one, 1, MSG_DONTWAIT | MSG_NOSIGNAL) == 1;
}
static bool line_is_idle(int peer) { (void)peer; return true; }
static uint32_t line_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint32_t)(now.tv_sec * 1000 + now.tv_nsec / 1000000) + 0xfffffff0u;
}
static void line_sleep(int ms)
{
    struct pollfd fds[BOARDS];
    for (int i = 0; i < count; i++) fds[i] = (struct pollfd){ .fd = i == me ? -1 : ends[me][i], .events = POLLIN };
    poll(fds, (nfds_t)count, ms);
}
static int exercise(void)
{
    static board b;
    static float x[3000];
    static unsigned char room[256 << 10];
    const coll_config config = { .allocator = coll_arena_begin(room, sizeof room) };
    coll_comm *comm;
    coll_request *request;
    int32_t got = -1, mine;
    const int next = (me + 1) % count, before = (me + count - 1) % count;

    b = (board){ .rank = me, .size = count, .last_ms = line_ms() };
    board_meet(&b);
    if (coll_init_custom(&board_transport, &b, me, count, &comm, &config)) return 1;
    for (int turn = 0; turn < 5; turn++) {
        mine = me * 10 + turn;
        for (int i = 0; i < 3000; i++) x[i] = (float)(me + i + turn);
        /* a message for which there is no receive yet must not hold up the collective behind it */
        if (coll_isend(comm, &mine, 1, COLL_I32, next, turn, &request)
            || coll_allreduce(comm, x, x, 3000, COLL_F32, COLL_SUM)
            || coll_recv(comm, &got, 1, COLL_I32, before, turn) || coll_wait(request)
            || coll_broadcast(comm, x, 100, COLL_F32, turn % count)) return fprintf(stderr, "%s\n", coll_error(comm)), 1;
        coll_request_free(request);
        if (got != before * 10 + turn || x[2999] != (float)(count * (2999 + turn) + count * (count - 1) / 2)) return 2;
    }
    return coll_free(comm) != COLL_OK;
}
int main(int argc, char **argv)
{
    int status, bad = 0;

    count = argc > 1 ? atoi(argv[1]) : 2;
    for (int a = 0; a < count; a++)
        for (int other = a + 1, pair[2]; other < count; other++) {
            if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair)) return 1;
            ends[a][other] = pair[0], ends[other][a] = pair[1];
        }
    for (me = 0; me < count; me++)
        if (fork() == 0) {
            float x[40] = { (float)me };
            usleep((useconds_t)(me * 120000));    /* the later boards start later, and have lost what came before */
            for (int peer = 0; peer < count; peer++) if (peer != me) while (line_get(peer) >= 0) { }
            if (argc > 2) _exit(run_board(me, count, x, me == 1 ? 39 : 40) == 0);
            _exit(run_board(me, count, x, 40) || x[0] != (float)(count * (count - 1) / 2) || exercise());
        }
    while (wait(&status) > 0) bad |= status;
    return bad != 0;
}
END
} > boards.c
built boards.c tiny -DCOLL_TINY
sed 's/32 << 10/256 << 10/' boards.c > full.c            # which takes more memory
built full.c full
for program in tiny full; do
    for boards in 2 4; do check "boards.md: $boards boards, $program" "./$program" $boards; done
    check "boards.md: boards that disagree, $program" "./$program" 2 disagree
done

# ---- versions.md: a program for 0.3, converted
check "versions.md: sed converts a program for 0.3" \
    sh -c 'sed -E -f "$0/tools/from_0_3.sed" "$0/tests/programs/from_0_3.c" > converted.c' "$top"
built converted.c converted
check "versions.md: the converted program runs" ./converted

# ---- debugging.md: its commands, as they stand there
cp "$top/coll.c" "$top/single/coll.h" . && ln -s "$run" coll-run
awk '/^```c$/ { inside = 1; next } /^```/ { if (inside) exit } inside' "$top/README.md" > hello.c
"${CC:-cc}" -g -O0 -DCOLL__ONE_TIER -c coll.c && "${CC:-cc}" -g hello.c coll.o -pthread -o hello || failed=$((failed + 1))
{
    printf '#include "coll.h"\n#include <stdio.h>\n'
    pieces debugging.md
    cat << 'END'
static int worker(coll_comm *comm, void *arg)
{
    float x = 1;
    const coll_call call = { .kind = COLL_ALLREDUCE, .send = &x, .recv = &x, .count = 1, .type = COLL_F32, .op = COLL_BAND };
    (void)arg;
    if (coll_barrier(comm) || coll_run(comm, &call) != COLL_ERR_UNSUPPORTED) return 1;
    explain_failure(comm, &call);
    return 0;
}
int main(void) { return coll_spawn(1, worker, NULL, NULL); }
END
} > explain.c
check "debugging.md: explain_failure compiles" "${CC:-cc}" explain.c coll.o -pthread -o explain
check "debugging.md: what it prints" sh -c "./explain 2>&1 | grep 'band of f32'"
grep -e '^    [^ ].*hello' -e '^    cc -g .* -c coll.c' "$top/docs/debugging.md" | sed 's/^    //; s/-O1/-O0 -DCOLL__ONE_TIER/' \
    > commands
check "debugging.md: there are commands" test "$(grep -c . commands)" -eq 12
while IFS= read -r command; do
    case $command in
    *gdb*) gdb -batch -ex run /bin/true 2> /dev/null | grep -q 'exited normally' || { echo "left out: $command"; continue; } ;;
    *valgrind*) command -v valgrind > /dev/null || { echo "left out: $command"; continue; } ;;
    esac
    case $command in
    "cc "*) check "$command" sh -c "$command" ;;
    *) check "$command" sh -c "{ $command; } > said 2>&1 && grep -q 'rank 0 of [24]: ' said || { cat said; exit 1; }" ;;
    esac
done < commands

echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
