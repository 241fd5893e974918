/* test_keyfile.c - which user may own a key file, and which may use it: the library and coll-run have the same rule and report
 * why not.
 *
 *     test_keyfile                      as root it also tries files of others, and other users
 */
#define COLL__ONE_TIER 1
#include "../support/inside.h"

#include <sys/stat.h>
#include <sys/wait.h>

#include "../support/check.h"
#include "../support/support.h"

#define KEY "a key of all ranks, 0123456789"

enum { USER = 65534, OTHER = 4711 };

typedef struct row { uid_t user, owner; mode_t mode; const char *fault; } row;

static const row rows[] = {
    { 0, 0, 0600, NULL }, { 0, 0, 0400, NULL }, { 0, 0, 0700, NULL },
    { 0, 0, 0640, NULL }, { 0, 0, 0440, NULL },
    { 0, 0, 0604, "chmod 640" }, { 0, 0, 0620, "chmod 640" }, { 0, 0, 0666, "chmod 640" },
    { 0, OTHER, 0600, NULL }, { 0, OTHER, 0640, "chmod 600" }, { 0, OTHER, 0644, "chmod 600" },
    { USER, USER, 0600, NULL }, { USER, USER, 0400, NULL },
    { USER, USER, 0640, "chmod 600" }, { USER, USER, 0604, "chmod 600" }, { USER, USER, 0610, "chmod 600" },
    { USER, OTHER, 0600, "another user" }, { USER, OTHER, 0640, "another user" }, { USER, OTHER, 0644, "another user" },
    { USER, 0, 0640, NULL }, { USER, 0, 0440, NULL },
    { USER, 0, 0660, "chmod 640" }, { USER, 0, 0644, "chmod 640" }, { USER, 0, 0650, "chmod 640" },
};

static void expect_text(const row *r, const char *who, const char *said)
{
    CHECK(r->fault ? said && strstr(said, r->fault) : !said, "%s: user %d, owner %d, mode %o: \"%s\", not \"%s\"", who,
          (int)r->user, (int)r->owner, (unsigned)r->mode, said ? said : "good", r->fault ? r->fault : "good");
}

/* The library's error about COLL_KEY_FILE.  NULL: none, and the key is the right one. */
static const char *library_says(void)
{
    const coll_config config = { .rank = 1, .size = 2, .address = "127.0.0.1:9", .tcp = { .security = "key" } };
    coll__settings general;
    coll__tcp_settings s;
    coll_status status = inside_settle(&general, &config, 1);
    if (status == COLL_OK) status = coll__tcp_configure(&s, &general);

    CHECK(!status || status == COLL_ERR_ARGUMENT, "status %d", (int)status);
    CHECK(status || !strcmp(s.key, KEY), "the key is \"%s\"", s.key);
    return status ? coll__start_error : NULL;
}

/* The error of coll-run; NULL: none. */
static const char *launcher_says(const char *launcher, const char *path)
{
    static char text[600];
    int ends[2], status;
    size_t length = 0;
    ssize_t n;

    CHECK(!pipe(ends), "no pipe");
    const pid_t child = fork();
    if (child == 0) {
        (void)dup2(ends[1], 2);
        close(ends[0]);
        execl(launcher, launcher, "--key-file", path, "-n", "1", "true", (char *)NULL);
        _exit(127);
    }
    close(ends[1]);
    while (length < sizeof text - 1 && (n = read(ends[0], text + length, sizeof text - 1 - length)) > 0) length += (size_t)n;
    text[length] = '\0';
    close(ends[0]);
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) != 127, "%s does not run", launcher);
    return WEXITSTATUS(status) ? text : NULL;
}

static void row_as_user(const row *r, const char *launcher, const char *path)
{
    expect_text(r, "the library", library_says());
    expect_text(r, "coll-run", launcher_says(launcher, path));
}

int main(int argc, char **argv)
{
    char directory[] = "/tmp/test_keyfile_XXXXXX", path[64], launcher[4096];
    const bool is_root = geteuid() == 0;
    char *const slash = strrchr(argv[0], '/');
    char longest[COLL__KEY_MOST + 2];

    (void)argc;
    support_limit(60, NULL);
    setvbuf(stdout, NULL, _IOLBF, 0);
    clearenv();
    snprintf(launcher, sizeof launcher, "%.*s/coll-run", slash ? (int)(slash - argv[0]) : 1, slash ? argv[0] : ".");
    CHECK(mkdtemp(directory) && !chmod(directory, 0755), "no directory");
    snprintf(path, sizeof path, "%s/key", directory);
    setenv("COLL_KEY_FILE", path, 1);
    setenv("PATH", "/usr/bin:/bin", 1);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const row *r = &rows[i];
        const struct stat about = { .st_uid = r->owner, .st_mode = S_IFREG | r->mode };
        expect_text(r, "the rule", coll__key_file_fault(&about, r->user));
        if (!is_root && (r->user != USER || r->owner != USER)) continue;
        FILE *file = fopen(path, "w");            /* and the same with a file, if this process may make it        */
        CHECK(file && fprintf(file, "%s\r\nand no more\n", KEY) > 0 && !fclose(file), "no file");
        CHECK(!is_root || !chown(path, r->owner, r->owner == 0 ? USER : r->owner), "no owner");
        CHECK(!chmod(path, r->mode), "no mode");
        const pid_t child = fork();
        int status = 1;
        if (child == 0) {
            check__passed = check__failed = 0;
            if (is_root && r->user && (setgid(USER) || setuid(r->user))) _exit(2);
            if (r->owner == r->user || access(path, R_OK) == 0) row_as_user(r, launcher, path);
            fflush(NULL);
            _exit(check__failed > 0);
        }
        CHECK(waitpid(child, &status, 0) == child && status == 0, "row %zu", i);
        (void)unlink(path);
    }
    memset(longest, 'k', sizeof longest);         /* the longest key, and one byte longer                         */
    for (int more = 0; more < 2; more++) {
        FILE *file = fopen(path, "w");
        CHECK(file && fprintf(file, "%.*s\n", COLL__KEY_MOST + more, longest) > 0 && !fclose(file) && !chmod(path, 0600),
              "no file");
        const char *said = launcher_says(launcher, path);
        CHECK(more ? said && strstr(said, "at most") : !said, "a key of %d bytes: \"%s\"", COLL__KEY_MOST + more, said);
        (void)unlink(path);
    }
    (void)rmdir(directory);
    return CHECK_DONE();
}
