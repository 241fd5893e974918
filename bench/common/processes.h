/* processes.h: ranks that are processes of this machine, made by forking, and ended together. */
#ifndef BENCH_PROCESSES_H
#define BENCH_PROCESSES_H

#include "timing.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>

enum { BENCH_ADDRESS_ROOM = 64 };

/* Hold a free port of the loopback, bound but not listening, as long as this process runs: no automatic choice takes it, and a
 * listener that sets SO_REUSEADDR, as the library's does, may.  Writes "127.0.0.1:PORT". */
BENCH_UNUSED static void bench_hold_port(char *address)
{
    struct sockaddr_in at = { .sin_family = AF_INET, .sin_addr = { htonl(INADDR_LOOPBACK) } };
    socklen_t length = sizeof at;
    const int holder = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), yes = 1;

    if (holder < 0 || setsockopt(holder, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes)
        || bind(holder, (struct sockaddr *)&at, sizeof at) || getsockname(holder, (struct sockaddr *)&at, &length)) {
        perror("a free port");
        exit(1);
    }
    snprintf(address, BENCH_ADDRESS_ROOM, "127.0.0.1:%d", ntohs(at.sin_port));
}

/* What a rank does; its result is the exit status of its process. */
typedef int bench_body(void *context, int rank);

static void bench_end_all(const pid_t *children, int ranks)
{
    for (int r = 0; r < ranks; r++) if (children[r] > 0) kill(children[r], SIGKILL);
}

/* Run `body` in a process for each rank and wait for them.  Returns the exit status of the first that fails, or that of a
 * wrong result, and then ends the others, which would wait for it; 0 when none did.  They end with this process, too. */
BENCH_UNUSED static int bench_fork(int ranks, bench_body *body, void *context)
{
    pid_t children[BENCH_RANKS] = { 0 }, parent = getpid();
    int decision = 0, status;

    fflush(NULL);
    for (int r = 0; r < ranks; r++) {
        children[r] = fork();
        if (children[r] == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            if (getppid() != parent) _exit(1);
            const int result = body(context, r);
            fflush(NULL);
            _exit(result);
        }
        if (children[r] > 0) continue;
        perror("fork");
        bench_end_all(children, r);
        decision = 1;
        break;
    }
    for (pid_t ended; (ended = wait(&status)) > 0 || errno == EINTR; ) {
        for (int r = 0; r < ranks; r++) if (children[r] == ended) children[r] = 0;
        if (ended <= 0 || status == 0) continue;
        const int result = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
        if (!decision) bench_end_all(children, ranks);
        if (!decision || result == BENCH_WRONG) decision = result;
    }
    return decision;
}

#endif /* BENCH_PROCESSES_H */
