/* coll_segment.h - memory that processes of one host share, and access to the memory of another process.
 *
 * One process makes a segment: a memfd, sealed against changes of its size.  Others open it as /proc/PID/fd/N.  Only processes
 * of the same user can do that, which could read each other's memory anyway.  The kernel frees it when the last process has
 * unmapped it or ended. */
#ifndef COLL_SEGMENT_H
#define COLL_SEGMENT_H

#include "coll_base.h"
#include "coll_text.h"

#if COLL__HAS_SHM && COLL__HAS_OS

#include <linux/memfd.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/uio.h>

#if !defined(F_ADD_SEALS)
#define F_ADD_SEALS 1033
#define F_GET_SEALS 1034
#define F_SEAL_SEAL 1
#define F_SEAL_SHRINK 2
#define F_SEAL_GROW 4
#endif

enum {
    COLL__SEGMENT_SEALS = F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW,
    COLL__SEGMENT_EXEC = 0x20                     /* F_SEAL_EXEC, which vm.memfd_noexec=1 adds; ignored       */
};

static const char coll__segment_link[] = "/memfd:coll (deleted)";

/* Make a segment of `length` zero bytes; untouched pages take no memory.  Returns a descriptor, or -1.  If RLIMIT_FSIZE is
 * lower it is not tried, because that raises a signal. */
static int coll__segment_make(size_t length)
{
    struct rlimit most;
    const bool is_too_long = !getrlimit(RLIMIT_FSIZE, &most) && most.rlim_cur < length;
    int fd = is_too_long ? -1 : coll__fd_above((int)syscall(SYS_memfd_create, "coll", MFD_CLOEXEC | MFD_ALLOW_SEALING));

    if (fd < 0 || (!ftruncate(fd, (off_t)length) && !fcntl(fd, F_ADD_SEALS, COLL__SEGMENT_SEALS))) return fd;
    coll__close_fd(&fd);
    return -1;
}

/* The inode of a segment or pipe; tells whether a descriptor number was reused.  0: none. */
static uint64_t coll__fd_id(int fd)
{
    struct stat s;

    return fstat(fd, &s) ? 0 : (uint64_t)s.st_ino;
}

/* Open a segment of another process, writable or read-only.  Returns its descriptor, id and length.  Checks the name first,
 * because opening some files has side effects. -1: none that is valid. */
static int coll__segment_open(uint32_t pid, uint32_t number, bool can_write, uint64_t *id, size_t *length)
{
    char path[64], link[sizeof coll__segment_link + 1];
    struct stat s;

    coll__print(path, sizeof path, "/proc/%u/fd/%u", (unsigned)pid, (unsigned)number);
    const ssize_t n = readlink(path, link, sizeof link);
    if (n != (ssize_t)sizeof coll__segment_link - 1 || memcmp(link, coll__segment_link, (size_t)n)) return -1;
    int fd = coll__fd_above(open(path, (can_write ? O_RDWR : O_RDONLY) | O_CLOEXEC | O_NOCTTY | O_NONBLOCK));
    if (fd >= 0 && !fstat(fd, &s) && s.st_uid == geteuid()
        && (fcntl(fd, F_GET_SEALS) | COLL__SEGMENT_EXEC) == (COLL__SEGMENT_SEALS | COLL__SEGMENT_EXEC)) {
        *id = (uint64_t)s.st_ino;
        *length = (size_t)s.st_size;
        return fd;
    }
    coll__close_fd(&fd);
    return -1;
}

/* Map a part of a segment, with access PROT_... */
static void *coll__segment_map_part(int fd, uint64_t offset, size_t length, int access)
{
    void *const at = mmap(NULL, length, access, MAP_SHARED | MAP_NORESERVE, fd, (off_t)offset);
    return at == MAP_FAILED ? NULL : at;
}

static void *coll__segment_map(int fd, size_t length) { return coll__segment_map_part(fd, 0, length, PROT_READ | PROT_WRITE); }

static void coll__segment_unmap(void *at, size_t length)
{
    if (at) munmap(at, length);
}

/* ---- >>memory that is not shared: the kernel copies between processes ---- */

/* Read the memory of a process.  Returns 0 or an errno.  No function writes it (coll_shm_access.h). */
static int coll__process_read(uint32_t pid, void *to, const void *from, size_t length)
{
    while (length > 0) {
        const struct iovec here = { to, length }, there = { (void *)(uintptr_t)from, length };
        const long n = syscall(SYS_process_vm_readv, (long)pid, &here, 1L, &there, 1L, 0L);
        if (n <= 0) return n < 0 ? errno : EFAULT;
        to = (unsigned char *)to + n;
        from = (const unsigned char *)from + n;
        length -= (size_t)n;
    }
    return 0;
}

/* ---- >>pipes: a doorbell that another process writes to ---- */

/* Open the write end `number` of another process's pipe.  It is opened for reading, too, so that a write after that process's
 * end raises no signal. -1: not available, or another pipe by now. */
static int coll__pipe_reopen(uint32_t pid, int number, uint64_t id)
{
    char path[64];
    struct stat s;

    coll__print(path, sizeof path, "/proc/%u/fd/%d", (unsigned)pid, number);
    int fd = stat(path, &s) || !S_ISFIFO(s.st_mode) ? -1 : coll__fd_above(open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK));
    if (fd >= 0 && coll__fd_id(fd) != id) coll__close_fd(&fd);
    return fd;
}

#else

static inline int coll__pipe_reopen(uint32_t pid, int number, uint64_t id) { return (void)pid, (void)number, (void)id, -1; }
static inline int coll__process_read(uint32_t pid, void *to, const void *from, size_t length)
{
    return (void)pid, (void)to, (void)from, (void)length, ENOSYS;
}

#endif
#endif /* COLL_SEGMENT_H */
