/* coll_tcp_shm_segment.h - a rank's segment (coll_segment.h), which the other ranks of its host may map.
 *
 *     head                identity, and the handshake for the shared-memory domain (coll_hybrid_domain.h)
 *     domain              in the segment of the host's first rank: shared by all ranks of the host
 *     staging             copies of what other ranks read (coll_shm_staging.h)
 *
 * Pages are allocated on first use.  The endpoint of a rank contains the descriptor by which others open the segment.  With
 * TLS or checksums, or if sharing memory is off, there is no segment.  A segment belongs to one job: after a shrink a rank has
 * a new one under the same descriptor, so a rank that opens it compares the head. */
#ifndef COLL_TCP_SHM_SEGMENT_H
#define COLL_TCP_SHM_SEGMENT_H

#if COLL__HAS_DOMAIN

enum { COLL__SEGMENT_MAGIC = 0x524c4f43, COLL__SEGMENT_HEAD = 4096 };

#define COLL__SEGMENT_LENGTH ((size_t)(sizeof(void *) > 4 ? 64 : 16) << 20)

/* States of the domain handshake: between each rank and the first rank of its host. */
typedef enum coll__shm_segment_word {
    COLL__SEGMENT_SILENT,
    COLL__SEGMENT_OPEN,                           /* first rank: the domain can be mapped                     */
    COLL__SEGMENT_COPIES, COLL__SEGMENT_READS,    /* other rank: mapped; can or cannot read your process's memory */
    COLL__SEGMENT_CANNOT,                         /* other rank: cannot map; first rank: no domain            */
    COLL__SEGMENT_AGREED                          /* first rank: the domain is in use                         */
} coll__shm_segment_word;

typedef struct coll__shm_segment_head {
    uint32_t magic, rank;
    unsigned char world[COLL__WORLD_LENGTH];
    uint64_t base;                                /* its address in the owner's process                       */
    uint32_t word;                                /* coll__shm_segment_word                                          */
} coll__shm_segment_head;

typedef struct coll__shm_segment {
    int            fd;                            /* -1: none                                                 */
    uint64_t       id;                            /* coll__fd_id                                              */
    unsigned char *at;
} coll__shm_segment;

static const coll__shm_segment coll__no_segment = { -1, 0, NULL };

static void coll__shm_segment_close(coll__shm_segment *segment)
{
    coll__segment_unmap(segment->at, COLL__SEGMENT_LENGTH);
    coll__close_fd(&segment->fd);
    *segment = coll__no_segment;
}

/* A segment of this process, mapped with access PROT_...; coll__no_segment: not available. */
static coll__shm_segment coll__shm_segment_new(size_t length, int access)
{
    coll__shm_segment segment = { coll__segment_make(length), 0, NULL };

    if (segment.fd >= 0) segment.at = (unsigned char *)coll__segment_map_part(segment.fd, 0, length, access);
    if (!segment.at) {
        coll__close_fd(&segment.fd);
        return coll__no_segment;
    }
#if defined(MADV_DONTDUMP)
    (void)madvise(segment.at, length, MADV_DONTDUMP);
#endif
    segment.id = coll__fd_id(segment.fd);
    return segment;
}

static coll__shm_segment coll__shm_segment_open(void)
{
    return coll__shm_segment_new(COLL__SEGMENT_LENGTH, PROT_READ | PROT_WRITE);
}

/* Write the owner and the world id, by which others recognize the segment. */
static void coll__shm_segment_sign(const coll__shm_segment *segment, int rank, const unsigned char *world)
{
    coll__shm_segment_head *head = (coll__shm_segment_head *)(void *)segment->at;

    if (!head) return;
    head->magic = COLL__SEGMENT_MAGIC;
    head->rank = (uint32_t)rank;
    head->base = (uint64_t)(uintptr_t)segment->at;
    memcpy(head->world, world, sizeof head->world);
}

/* A new job: move the segment to the old descriptor, which the others know.  Without a new segment close that descriptor:
 * otherwise the others would wait for the new head. */
static void coll__shm_segment_follow(coll__shm_segment *segment, coll__shm_segment *before)
{
    if (segment->fd < 0 || before->fd < 0 || dup2(segment->fd, before->fd) < 0) {
        coll__shm_segment_close(segment);
        coll__close_fd(&before->fd);
        return;
    }
    (void)fcntl(before->fd, F_SETFD, FD_CLOEXEC);
    coll__close_fd(&segment->fd);
    segment->fd = before->fd;
    before->fd = -1;
}

#else

typedef struct coll__shm_segment { int fd; } coll__shm_segment;

static const coll__shm_segment coll__no_segment = { -1 };

static inline void coll__shm_segment_close(const coll__shm_segment *segment) { (void)segment; }
static inline coll__shm_segment coll__shm_segment_open(void) { return coll__no_segment; }
static inline void coll__shm_segment_sign(const coll__shm_segment *segment, int rank, const unsigned char *world)
{
    (void)segment, (void)rank, (void)world;
}

static inline void coll__shm_segment_follow(const coll__shm_segment *segment, const coll__shm_segment *before)
{
    (void)segment, (void)before;
}

#endif
#endif /* COLL_TCP_SHM_SEGMENT_H */
