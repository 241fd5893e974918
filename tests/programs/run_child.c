/* run_child - what test_run.sh needs of a rank and a shell cannot do.
 *
 *     run_child listen             bind COLL_ADDR as the library does, listen, connect, accept
 *     run_child reserved           check that no other process can bind COLL_ADDR
 *     run_child fill COUNT BYTE    write COUNT times the byte, and no newline
 *     run_child lines COUNT        write COUNT numbered lines in odd pieces
 *     run_child daemon FILE        leave a process in its own session that keeps our output open
 *     run_child words WORD ...     write each word on a line
 *     run_child port               find a free port of 127.0.0.1
 *     run_child dial PORT         check whether a process listens there
 *     run_child silent PORT        connect, and send nothing
 *     run_child talk PORT          connect, send our input, write the answer
 *     run_child terminal PROGRAM ...   run the program with a terminal for its output, and write that output
 *     run_child evaluate PROGRAM ...  run the program with no signal ignored, and print how it ended
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

static int fail(const char *what)
{
    fprintf(stderr, "run_child: %s: %s\n", what, strerror(errno));
    return 1;
}

static struct sockaddr_in given_address(void)
{
    const char *text = getenv("COLL_ADDR"), *colon = text ? strchr(text, ':') : NULL;
    struct sockaddr_in address = { .sin_family = AF_INET, .sin_addr = { htonl(INADDR_LOOPBACK) } };

    if (colon) address.sin_port = htons((in_port_t)strtoul(colon + 1, NULL, 10));
    return address;
}

static int bind_given(bool reuse)
{
    const struct sockaddr_in address = given_address();
    const int fd = socket(AF_INET, SOCK_STREAM, 0), yes = 1;

    if (fd < 0) return -1;
    if (reuse && setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes)) return -1;
    return bind(fd, (const struct sockaddr *)&address, sizeof address) ? -1 : fd;
}

static int do_listen(void)
{
    const struct sockaddr_in address = given_address();
    const int listener = bind_given(true), caller = socket(AF_INET, SOCK_STREAM, 0);

    if (listener < 0) return fail("bind");
    if (listen(listener, 8)) return fail("listen");
    if (connect(caller, (const struct sockaddr *)&address, sizeof address)) return fail("connect");
    if (accept(listener, NULL, NULL) < 0) return fail("accept");
    puts("accepted");
    return 0;
}

static int do_reserved(void)
{
    if (bind_given(false) >= 0) return fail("another process could bind the port");
    puts(errno == EADDRINUSE ? "reserved" : strerror(errno));
    return 0;
}

static int do_fill(size_t count, int byte)
{
    char *data = malloc(count);

    if (!data) return fail("malloc");
    memset(data, byte, count);
    for (size_t at = 0; at < count;) {
        const ssize_t done = write(STDOUT_FILENO, data + at, count - at);
        if (done < 0) return fail("write");
        at += (size_t)done;
    }
    free(data);
    return 0;
}

/* The buffer has an odd size, so that most writes end within a line. */
static int do_lines(int count)
{
    const char *rank = getenv("COLL_RANK");
    static char buffer[997];

    setvbuf(stdout, buffer, _IOFBF, sizeof buffer);
    for (int i = 0; i < count; i++) printf("line %d of %s end\n", i, rank ? rank : "?");
    return fflush(stdout) ? fail("write") : 0;
}

static int do_daemon(const char *path)
{
    const pid_t pid = fork();

    if (pid != 0) return pid < 0;
    if (setsid() < 0 || fork() != 0) _exit(0);
    FILE *file = fopen(path, "we");
    if (file) {
        fprintf(file, "%d\n", (int)getpid());
        fclose(file);
    }
    for (;;) pause();
}

static int do_words(int count, char **words)
{
    for (int i = 0; i < count; i++) printf("%s\n", words[i]);
    return fflush(stdout) ? fail("write") : 0;
}

static int do_port(void)
{
    struct sockaddr_in address = { .sin_family = AF_INET, .sin_addr = { htonl(INADDR_LOOPBACK) } };
    socklen_t length = sizeof address;
    const int fd = socket(AF_INET, SOCK_STREAM, 0);

    if (fd < 0 || bind(fd, (struct sockaddr *)&address, length)) return fail("bind");
    if (getsockname(fd, (struct sockaddr *)&address, &length)) return fail("getsockname");
    printf("%d\n", ntohs(address.sin_port));
    return 0;
}

static int connect_to(const char *port)
{
    const struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_addr = { htonl(INADDR_LOOPBACK) }, .sin_port = htons((in_port_t)strtoul(port, NULL, 10))
    };
    const int fd = socket(AF_INET, SOCK_STREAM, 0);

    return fd >= 0 && connect(fd, (const struct sockaddr *)&address, sizeof address) == 0 ? fd : -1;
}

static int do_silent(const char *port)
{
    if (connect_to(port) < 0) return fail("connect");
    for (;;) pause();
}

/* The other side may hang up at any time. */
static int do_talk(const char *port)
{
    const int fd = connect_to(port);
    char data[65536];
    ssize_t length;

    if (fd < 0) return fail("connect");
    signal(SIGPIPE, SIG_IGN);
    while ((length = read(STDIN_FILENO, data, sizeof data)) > 0 && write(fd, data, (size_t)length) > 0) continue;
    shutdown(fd, SHUT_WR);
    while ((length = read(fd, data, sizeof data)) > 0) {
        if (write(STDOUT_FILENO, data, (size_t)length) != length) return fail("write");
    }
    return 0;
}

/* A shell gives the same number for exit status 130 and for death by SIGINT, and starts its
 * background jobs with SIGINT ignored. */
static int do_evaluate(char **program)
{
    static const int signals[] = { SIGINT, SIGQUIT, SIGHUP, SIGTERM };
    const pid_t pid = fork();
    int status;

    if (pid == 0) {
        for (size_t i = 0; i < sizeof signals / sizeof *signals; i++) signal(signals[i], SIG_DFL);
        execvp(program[0], program);
        _exit(fail(program[0]));
    }
    if (pid < 0 || waitpid(pid, &status, 0) != pid) return fail("fork");
    if (WIFSIGNALED(status)) printf("signal %d\n", WTERMSIG(status));
    else printf("status %d\n", WEXITSTATUS(status));
    return 0;
}

/* The terminal is raw, so that every byte comes as it was written. */
static int do_terminal(char **program)
{
    const int master = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
    const char *const name = master >= 0 && grantpt(master) == 0 && unlockpt(master) == 0 ? ptsname(master) : NULL;
    const int slave = name ? open(name, O_RDWR | O_NOCTTY | O_CLOEXEC) : -1;
    struct termios mode;
    char data[4096];
    ssize_t length;
    int status;

    if (slave < 0 || tcgetattr(slave, &mode)) return fail("terminal");
    cfmakeraw(&mode);
    if (tcsetattr(slave, TCSANOW, &mode)) return fail("terminal");
    const pid_t pid = fork();
    if (pid == 0) {
        dup2(slave, STDOUT_FILENO);
        dup2(slave, STDERR_FILENO);
        execvp(program[0], program);
        _exit(fail(program[0]));
    }
    close(slave);
    while ((length = read(master, data, sizeof data)) > 0) {            /* EIO when no process has it open any more */
        if (write(STDOUT_FILENO, data, (size_t)length) != length) return fail("write");
    }
    if (pid < 0 || waitpid(pid, &status, 0) != pid) return fail("fork");
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";

    if (strcmp(what, "listen") == 0) return do_listen();
    if (strcmp(what, "reserved") == 0) return do_reserved();
    if (strcmp(what, "fill") == 0 && argc == 4) {
        return do_fill((size_t)strtoul(argv[2], NULL, 10), argv[3][0]);
    }
    if (strcmp(what, "lines") == 0 && argc == 3) return do_lines(atoi(argv[2]));
    if (strcmp(what, "daemon") == 0 && argc == 3) return do_daemon(argv[2]);
    if (strcmp(what, "words") == 0) return do_words(argc - 2, argv + 2);
    if (strcmp(what, "port") == 0) return do_port();
    if (strcmp(what, "dial") == 0 && argc == 3) return connect_to(argv[2]) < 0;
    if (strcmp(what, "silent") == 0 && argc == 3) return do_silent(argv[2]);
    if (strcmp(what, "talk") == 0 && argc == 3) return do_talk(argv[2]);
    if (strcmp(what, "terminal") == 0 && argc > 2) return do_terminal(argv + 2);
    if (strcmp(what, "evaluate") == 0 && argc > 2) return do_evaluate(argv + 2);
    fprintf(stderr, "run_child: see the top of its source\n");
    return 2;
}
