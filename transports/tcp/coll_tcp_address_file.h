/* coll_tcp_address_file.h - a file with the address of rank 0, for ranks that share a directory.
 *
 *     coll rendezvous 1
 *     9f86d081884c7d659a2feaa0c55ad015            random, by rank 0; part of the world id
 *     10.0.0.7:40001                              one to three addresses
 *     end
 *
 * Rank 0 writes a temporary file, syncs it, and renames it, so a reader never sees a part of it.  It removes the file when all
 * ranks are connected.  A stale file leads to no listener, or to a rank with another world id; the reader then reads the file
 * again. */
#ifndef COLL_TCP_ADDRESS_FILE_H
#define COLL_TCP_ADDRESS_FILE_H

enum { COLL__NONCE_TEXT = 33, COLL__RENDEZVOUS_MOST = 512 };

typedef struct coll__rendezvous {
    char nonce[COLL__NONCE_TEXT];
    coll__address addresses[COLL__ENDPOINT_ADDRESSES];
    int count;
} coll__rendezvous;

static const char coll__rendezvous_title[] = "coll rendezvous 1";

/* The path behind "file:", or NULL. */
static inline const char *coll__rendezvous_path(const char *where)
{
    return COLL__HAS_NETWORKS && !strncmp(where, "file:", 5) ? where + 5 : NULL;
}

/* Parse the text.  false: invalid, or incomplete. */
static bool coll__rendezvous_parse(char *text, coll__rendezvous *rendezvous)
{
    char *next = NULL, *line = strtok_r(text, "\n", &next);
    bool may_come;

    memset(rendezvous, 0, sizeof *rendezvous);
    if (!line || strcmp(line, coll__rendezvous_title)) return false;
    line = strtok_r(NULL, "\n", &next);
    if (!line || strlen(line) != COLL__NONCE_TEXT - 1 || strspn(line, "0123456789abcdef") != COLL__NONCE_TEXT - 1) return false;
    memcpy(rendezvous->nonce, line, COLL__NONCE_TEXT);
    while ((line = strtok_r(NULL, "\n", &next)) && strcmp(line, "end")) {
        coll__address found[COLL__ADDRESSES_MOST];
        char host[64];
        int count, port;
        if (rendezvous->count == COLL__ENDPOINT_ADDRESSES || !coll__address_split(line, host, sizeof host, &port)) return false;
        if (!coll__is_literal(host) || coll__resolve(line, false, found, &count, &may_come)) return false;
        rendezvous->addresses[rendezvous->count++] = found[0];
    }
    return line && rendezvous->count > 0;
}

/* Returns 0 or an errno; ENOENT: not written yet; EPROTO: invalid. */
static int coll__rendezvous_read(const char *path, coll__rendezvous *rendezvous)
{
    char text[COLL__RENDEZVOUS_MOST];
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    const ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    const int error = n < 0 ? errno : 0;

    if (fd >= 0) close(fd);
    if (error) return error;
    text[n] = '\0';
    return coll__rendezvous_parse(text, rendezvous) ? 0 : EPROTO;
}

/* Write the file, and derive the world id from its nonce, which is stored. */
static coll_status coll__rendezvous_publish(coll__tcp *tcp, const char *path, const char *world, char *nonce)
{
    char text[COLL__RENDEZVOUS_MOST], draft[COLL__ADDRESS_ROOM + COLL__NONCE_TEXT + 8], where[COLL__ADDRESS_TEXT];
    unsigned char random[(COLL__NONCE_TEXT - 1) / 2];

    if (!coll__random(random, sizeof random))
        return coll__start_failed(COLL_ERR_SYSTEM, "no random bytes for file:%.160s: %s", path, strerror(errno));
    for (size_t i = 0; i < sizeof random; i++) coll__print(nonce + 2 * i, 3, "%02x", random[i]);
    coll__world_id(tcp->us.world, tcp->size, world, nonce);
    coll__shm_segment_sign(&tcp->segment, tcp->rank, tcp->us.world);
    coll__print(text, sizeof text, "%s\n%s\n", coll__rendezvous_title, nonce);
    for (int i = 0; i < tcp->endpoints[0].count; i++) {
        const coll__address a = coll__endpoint_address(&tcp->endpoints[0], i, tcp->network.scope);
        coll__append(text, sizeof text, "%s\n", coll__address_text(&a, where, sizeof where));
    }
    coll__append(text, sizeof text, "end\n");
    coll__print(draft, sizeof draft, "%s.%s", path, nonce);
    const size_t length = strlen(text);
    const int fd = coll__fd_above(open(draft, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
    int error = fd < 0 ? errno : write(fd, text, length) != (ssize_t)length || fsync(fd) ? (errno ? errno : EIO) : 0;
    if (fd >= 0) close(fd);
    if (!error && rename(draft, path)) error = errno;
    if (error && fd >= 0) unlink(draft);
    return error ? coll__start_failed(COLL_ERR_SYSTEM, "rank 0 cannot write file:%.160s: %s", path, strerror(error)) : COLL_OK;
}

/* Take the addresses of rank 0 from the file.  false: none; `why` says why. */
static bool coll__rendezvous_follow(coll__tcp *tcp, const char *path, const char *world, coll__ways *ways, char *why, size_t room)
{
    coll__rendezvous rendezvous;
    const int error = coll__rendezvous_read(path, &rendezvous);

    if (error) {
        coll__print(why, room, "%s", error == ENOENT ? "rank 0 has not written it yet"
                    : error == EPROTO ? "it is not what rank 0 writes" : strerror(error));
        return false;
    }
    coll__world_id(tcp->us.world, tcp->size, world, rendezvous.nonce);
    coll__shm_segment_sign(&tcp->segment, tcp->rank, tcp->us.world);
    coll__ways_make(ways, rendezvous.addresses, rendezvous.count, &tcp->network);
    return true;
}

#endif /* COLL_TCP_ADDRESS_FILE_H */
