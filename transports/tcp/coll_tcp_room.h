/* coll_tcp_room.h - a rank's segment (coll_segment.h), which the other ranks of its host may map.
 *
 *     head                identity, and the handshake for the shared-memory domain (coll_joined_hub.h)
 *     hub                 in the segment of the host's first rank: the domain of all ranks of the host
 *     staging             copies of what other ranks read (coll_threads_staging.h)
 *
 * Pages are allocated on first use.  The endpoint of a rank contains the descriptor by which others open the segment.  With
 * TLS or checksums, or if sharing memory is off, there is no segment.  A segment belongs to one job: after a shrink a rank has
 * a new one under the same descriptor, so a rank that opens it compares the head. */
#ifndef COLL_TCP_ROOM_H
#define COLL_TCP_ROOM_H

#if COLL__HAS_HUB

enum { COLL__ROOM_MAGIC = 0x524c4f43, COLL__ROOM_HEAD = 4096 };

#define COLL__ROOM_LENGTH ((size_t)(sizeof(void *) > 4 ? 64 : 16) << 20)

/* States of the domain handshake: between each rank and the first rank of its host. */
typedef enum coll__host_room_word {
    COLL__ROOM_SILENT,
    COLL__ROOM_OPEN,                              /* first rank: the domain can be mapped                     */
    COLL__ROOM_COPIES, COLL__ROOM_READS,          /* other rank: mapped; can or cannot read your process's memory */
    COLL__ROOM_CANNOT,                            /* other rank: cannot map; first rank: no domain            */
    COLL__ROOM_AGREED                             /* first rank: the domain is in use                         */
} coll__host_room_word;

typedef struct coll__host_room_head {
    uint32_t magic, rank;
    unsigned char world[COLL__WORLD_LENGTH];
    uint64_t base;                                /* its address in the owner's process                       */
    uint32_t word;                                /* coll__host_room_word                                          */
} coll__host_room_head;

typedef struct coll__host_room {
    int            fd;                            /* -1: none                                                 */
    uint64_t       id;                            /* coll__fd_id                                              */
    unsigned char *at;
} coll__host_room;

static const coll__host_room coll__no_room = { -1, 0, NULL };

static void coll__host_room_close(coll__host_room *room)
{
    coll__segment_unmap(room->at, COLL__ROOM_LENGTH);
    coll__close_fd(&room->fd);
    *room = coll__no_room;
}

/* coll__no_room: not available. */
static coll__host_room coll__host_room_open(void)
{
    coll__host_room room = { coll__segment_make(COLL__ROOM_LENGTH), 0, NULL };

    if (room.fd >= 0) room.at = (unsigned char *)coll__segment_map(room.fd, COLL__ROOM_LENGTH);
    if (!room.at) {
        coll__close_fd(&room.fd);
        return coll__no_room;
    }
#if defined(MADV_DONTDUMP)
    (void)madvise(room.at, COLL__ROOM_LENGTH, MADV_DONTDUMP);
#endif
    room.id = coll__fd_id(room.fd);
    *(coll__host_room_head *)(void *)room.at = (coll__host_room_head){ .magic = COLL__ROOM_MAGIC };
    return room;
}

/* Write the owner and the world id, by which others recognize the segment. */
static void coll__host_room_sign(const coll__host_room *room, int rank, const unsigned char *world)
{
    coll__host_room_head *head = (coll__host_room_head *)(void *)room->at;

    if (!head) return;
    head->rank = (uint32_t)rank;
    head->base = (uint64_t)(uintptr_t)room->at;
    memcpy(head->world, world, sizeof head->world);
}

/* A new job: move the segment to the old descriptor, which the others know.  Without a new segment close that descriptor:
 * otherwise the others would wait for the new head. */
static void coll__host_room_follow(coll__host_room *room, coll__host_room *before)
{
    if (room->fd < 0 || before->fd < 0 || dup2(room->fd, before->fd) < 0) {
        coll__host_room_close(room);
        coll__close_fd(&before->fd);
        return;
    }
    (void)fcntl(before->fd, F_SETFD, FD_CLOEXEC);
    coll__close_fd(&room->fd);
    room->fd = before->fd;
    before->fd = -1;
}

/* The number in an endpoint; 0: none. */
static inline uint32_t coll__host_room_number(const coll__host_room *room) { return (uint32_t)(room->fd + 1); }

#else

typedef struct coll__host_room { int fd; } coll__host_room;

static const coll__host_room coll__no_room = { -1 };

static inline void coll__host_room_close(const coll__host_room *room) { (void)room; }
static inline coll__host_room coll__host_room_open(void) { return coll__no_room; }
static inline void coll__host_room_sign(const coll__host_room *room, int rank, const unsigned char *world)
{
    (void)room, (void)rank, (void)world;
}

static inline void coll__host_room_follow(const coll__host_room *room, const coll__host_room *before)
{
    (void)room, (void)before;
}

static inline uint32_t coll__host_room_number(const coll__host_room *room) { return (void)room, (uint32_t)0; }

#endif
#endif /* COLL_TCP_ROOM_H */
