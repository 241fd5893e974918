/* coll_tcp_notice.h - a file that says where rank 0 is, for ranks that share a directory and know nothing else.
 *
 *     coll meeting 1
 *     9f86d081884c7d659a2feaa0c55ad015            drawn by rank 0; part of the world's identity
 *     10.0.0.7:40001                              one to three addresses
 *     end
 *
 * Rank 0 writes it under another name, and renames it when it is complete and on the disk, so that nobody reads half of it.
 * It takes the notice down when all are there.  One that an earlier job has left leads nowhere, or to a rank of another
 * world; whoever followed it looks again. */
#ifndef COLL_TCP_NOTICE_H
#define COLL_TCP_NOTICE_H

#include <sys/random.h>

enum { COLL__NONCE_TEXT = 33, COLL__NOTICE_MOST = 512 };

static const char coll__notice_title[] = "coll meeting 1";

typedef struct coll__notice {
    char nonce[COLL__NONCE_TEXT];
    coll__address addresses[COLL__PLACE_ADDRESSES];
    int count;
} coll__notice;

/* The path behind "file:", or NULL. */
static const char *coll__notice_path(const char *where) { return strncmp(where, "file:", 5) ? NULL : where + 5; }

static void coll__notice_nonce(char *text)
{
    unsigned char bytes[16];
    char seed[80];

    if (getrandom(bytes, sizeof bytes, 0) != (ssize_t)sizeof bytes) {
        coll__print(seed, sizeof seed, "%ld %lld", (long)getpid(), (long long)coll__now());
        coll__digest(bytes, seed);
    }
    for (int i = 0; i < 16; i++) coll__print(text + 2 * i, 3, "%02x", bytes[i]);
}

/* Put it up.  0, or an errno. */
static int coll__notice_post(const char *path, const coll__notice *notice)
{
    char text[COLL__NOTICE_MOST], draft[COLL__ADDRESS_ROOM + COLL__NONCE_TEXT + 8], where[COLL__ADDRESS_TEXT];

    coll__print(text, sizeof text, "%s\n%s\n", coll__notice_title, notice->nonce);
    for (int i = 0; i < notice->count; i++)
        coll__append(text, sizeof text, "%s\n", coll__address_text(&notice->addresses[i], where, sizeof where));
    coll__append(text, sizeof text, "end\n");
    coll__print(draft, sizeof draft, "%s.%s", path, notice->nonce);
    const size_t length = strlen(text);
    const int fd = open(draft, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    int error = fd < 0 ? errno : write(fd, text, length) != (ssize_t)length || fsync(fd) ? (errno ? errno : EIO) : 0;
    if (fd >= 0) close(fd);
    if (!error && rename(draft, path)) error = errno;
    if (error && fd >= 0) unlink(draft);
    return error;
}

/* Take a notice from its text.  false: it is none, or not whole. */
static bool coll__notice_parse(char *text, coll__notice *notice)
{
    char *next = NULL, *line = strtok_r(text, "\n", &next);
    bool may_come;

    memset(notice, 0, sizeof *notice);
    if (!line || strcmp(line, coll__notice_title)) return false;
    line = strtok_r(NULL, "\n", &next);
    if (!line || strlen(line) != COLL__NONCE_TEXT - 1 || strspn(line, "0123456789abcdef") != COLL__NONCE_TEXT - 1) return false;
    memcpy(notice->nonce, line, COLL__NONCE_TEXT);
    while ((line = strtok_r(NULL, "\n", &next)) && strcmp(line, "end")) {
        coll__address found[COLL__ADDRESSES_MOST];
        char host[64];
        int count, port;
        if (notice->count == COLL__PLACE_ADDRESSES || !coll__address_split(line, host, sizeof host, &port)) return false;
        if (!coll__is_literal(host) || coll__resolve(line, false, found, &count, &may_come)) return false;
        notice->addresses[notice->count++] = found[0];
    }
    return line && notice->count > 0;
}

/* Read it.  0, or an errno: ENOENT where there is none yet, EPROTO for something else. */
static int coll__notice_read(const char *path, coll__notice *notice)
{
    char text[COLL__NOTICE_MOST];
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    const ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    const int error = n < 0 ? errno : 0;

    if (fd >= 0) close(fd);
    if (error) return error;
    text[n] = '\0';
    return coll__notice_parse(text, notice) ? 0 : EPROTO;
}

/* Take it down, unless it is somebody else's by now. */
static void coll__notice_remove(const char *path, const char *nonce)
{
    coll__notice there;
    if (!coll__notice_read(path, &there) && !strcmp(there.nonce, nonce)) unlink(path);
}

#endif /* COLL_TCP_NOTICE_H */
