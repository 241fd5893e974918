/* coll_tcp_room.h - a rank's room: a segment (coll_segment.h) that the other ranks of its host may map.
 *
 *     head                what it is, and how the ranks of the host come to terms about their hub (coll_joined_hub.h)
 *     hub                 of the first rank of a host: the hub of all that live there
 *     staging             copies of what the others read (coll_threads_staging.h)
 *
 * It takes no memory before it is used.  Its endpoint says the descriptor by which others find it.  Whoever asks for more than
 * "who is who" (TLS, checks) has no room, nor has one that does not want to share memory.  It is of one world: after a failure a
 * rank has a new one, under the same descriptor, and who opens that compares the head. */
#ifndef COLL_TCP_ROOM_H
#define COLL_TCP_ROOM_H

#if COLL__HAS_HUB

enum { COLL__ROOM_MAGIC = 0x524c4f43, COLL__ROOM_HEAD = 4096 };

#define COLL__ROOM_LENGTH ((size_t)(sizeof(void *) > 4 ? 64 : 16) << 20)

/* What a rank says of the hub to the first one of its host, and that one to all. */
typedef enum coll__host_room_word {
    COLL__ROOM_SILENT,
    COLL__ROOM_OPEN,                              /* the first: come and see                                  */
    COLL__ROOM_COPIES, COLL__ROOM_READS,          /* another one: I am there, and can or cannot copy from your process */
    COLL__ROOM_CANNOT,                            /* another one: I cannot; the first: so there is no hub     */
    COLL__ROOM_AGREED                             /* the first: there is one                                  */
} coll__host_room_word;

typedef struct coll__host_room_head {
    uint32_t magic, rank;
    unsigned char world[COLL__WORLD_LENGTH];
    uint64_t base;                                /* where it lies in the memory of its process               */
    uint32_t word;                                /* coll__host_room_word                                          */
} coll__host_room_head;

typedef struct coll__host_room {
    int            fd;                            /* -1: there is none                                        */
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

/* coll__no_room: there is no memory of that sort. */
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

/* Whose room it is, and in which world: by this others know that they have found it. */
static void coll__host_room_sign(const coll__host_room *room, int rank, const unsigned char *world)
{
    coll__host_room_head *head = (coll__host_room_head *)(void *)room->at;

    if (!head) return;
    head->rank = (uint32_t)rank;
    head->base = (uint64_t)(uintptr_t)room->at;
    memcpy(head->world, world, sizeof head->world);
}

/* A new world: the room takes the descriptor of the one before, by which the others know it.  Where there is none the descriptor
 * is closed, for they would wait until they find a room of the new world there. */
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

/* As an endpoint says it; 0: there is none. */
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
