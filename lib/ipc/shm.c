/* Sealed memfds: creation, checked mapping of received ones. */
#include "ipc/shm.h"

#include "base/checked.h"
#include "base/machine_memory.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#ifndef F_SEAL_FUTURE_WRITE /* Linux 5.1; older C library headers lack it */
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

#define HUGE_PAGE (2ull << 20) /* on most machines; on others this only costs address space */

/* The alignment of a mapping's address for huge pages. Reserved ones, whose size is their file's
 * block size, require it. */
static size_t alignment_of(int fd)
{
    struct stat st;
    return fstat(fd, &st) == 0 && (size_t)st.st_blksize > HUGE_PAGE ? (size_t)st.st_blksize
                                                                    : HUGE_PAGE;
}

/* Map large memory at a multiple of the huge page size, so that huge pages can back it. */
static void *map_shared(int fd, size_t bytes, int protection)
{
    if (bytes < HUGE_PAGE)
        return mmap(NULL, bytes, protection, MAP_SHARED, fd, 0);
    size_t whole = round_up(bytes, (uint64_t)sysconf(_SC_PAGESIZE)), step = alignment_of(fd);
    uint8_t *reserved =
        mmap(NULL, whole + step, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (reserved == MAP_FAILED)
        return MAP_FAILED;
    size_t before = (step - (uintptr_t)reserved % step) % step;
    uint8_t *at = mmap(reserved + before, bytes, protection, MAP_SHARED | MAP_FIXED, fd, 0);
    if (at == MAP_FAILED) {
        int reason = errno;
        munmap(reserved, whole + step);
        errno = reason;
        return MAP_FAILED;
    }
    if (before)
        munmap(reserved, before);
    munmap(at + whole, step - before);
    return at;
}

static enum error_code create(const char *label, size_t bytes, unsigned flags, struct shm *out,
                              struct error *e)
{
    int fd = memfd_create(label, MFD_CLOEXEC | MFD_ALLOW_SEALING | flags);
    if (fd < 0)
        return error_set(e, ERROR_MEMORY, "shared memory '%s': memfd_create: %m", label);
    if (ftruncate(fd, (off_t)bytes) != 0) {
        error_set(e, ERROR_MEMORY, "shared memory '%s' of %zu bytes: %m", label, bytes);
        goto close_fd;
    }
    if (fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) != 0) {
        error_set(e, ERROR_MEMORY, "shared memory '%s': cannot seal its size: %m", label);
        goto close_fd;
    }
    void *base = map_shared(fd, bytes, PROT_READ | PROT_WRITE);
    if (base == MAP_FAILED) {
        error_set(e, ERROR_MEMORY, "shared memory '%s': cannot map %zu bytes: %m", label, bytes);
        goto close_fd;
    }
    *out = (struct shm){.fd = fd, .base = base, .bytes = bytes};
    return ERROR_OK;

close_fd:
    close(fd);
    return ERROR_MEMORY;
}

enum error_code shm_create(const char *label, size_t bytes, struct shm *out, struct error *e)
{
    if (bytes == 0)
        return error_set(e, ERROR_USAGE, "shared memory '%s' of 0 bytes", label);
    /* The kernel allocates a memfd page by page when it is touched, and kills the process if there
     * is no memory then. So check now. */
    uint64_t available = memory_available_bytes();
    if (bytes > available)
        return error_set(e, ERROR_MEMORY,
                         "shared memory '%s' needs %zu bytes and %llu are free: "
                         "stop something or use a smaller model",
                         label, bytes, (unsigned long long)available);
    return create(label, bytes, 0, out, e);
}

enum error_code shm_create_sparse(const char *label, size_t bytes, struct shm *out, struct error *e)
{
    return create(label, bytes, 0, out, e);
}

/* Reserved huge pages: the mapping takes all of them off the reserve or none, so touching them
 * cannot run out of memory. A cgroup may still forbid them: creating the first page shows that. */
static bool create_reserved(const char *label, size_t bytes, struct shm *out)
{
    uint64_t page, reserved = memory_reserved_bytes(&page);
    if (!page || bytes < page || bytes > reserved)
        return false;
    struct shm s;
    if (create(label, round_up(bytes, page), MFD_HUGETLB, &s, NULL))
        return false;
    if (memory_populate(s.base, page, NULL)) {
        shm_close(&s);
        return false;
    }
    *out = s;
    return true;
}

enum error_code shm_create_large(const char *label, size_t bytes, struct shm *out,
                                 enum shm_pages *pages, struct error *e)
{
    if (create_reserved(label, bytes, out)) {
        *pages = SHM_PAGES_RESERVED;
        return ERROR_OK;
    }
    enum error_code code = shm_create(label, bytes, out, e);
    if (code)
        return code;
    bool allowed =
        memory_huge_shared() != MEMORY_HUGE_NEVER && madvise(out->base, bytes, MADV_HUGEPAGE) == 0;
    *pages = allowed ? SHM_PAGES_TRANSPARENT : SHM_PAGES_ORDINARY;
    return ERROR_OK;
}

/* Check a descriptor that a peer sent, which may be of any file, and get the region's size. */
static enum error_code check_received(int fd, size_t min_bytes, size_t *bytes, struct error *e)
{
    int seals = fcntl(fd, F_GET_SEALS);
    if (seals < 0)
        return error_set(e, ERROR_PROTOCOL, "received descriptor is not sealable memory: %m");
    if (!(seals & F_SEAL_SHRINK))
        return error_set(e, ERROR_PROTOCOL,
                         "received memory is not sealed against shrinking: a truncation by its "
                         "sender would kill this process");
    struct stat st;
    if (fstat(fd, &st) != 0)
        return error_set(e, ERROR_IO, "received memory: fstat: %m");
    if (st.st_size <= 0 || (uint64_t)st.st_size < min_bytes || (uint64_t)st.st_size > SIZE_MAX)
        return error_set(e, ERROR_PROTOCOL,
                         "received memory has %lld bytes, at least %zu were expected",
                         (long long)st.st_size, min_bytes);
    *bytes = (size_t)st.st_size;
    return ERROR_OK;
}

enum error_code shm_map(int fd, bool writable, size_t min_bytes, struct shm *out, struct error *e)
{
    size_t bytes = 0;
    enum error_code code = check_received(fd, min_bytes, &bytes, e);
    if (code == ERROR_OK) {
        int protection = PROT_READ | (writable ? PROT_WRITE : 0);
        void *base = map_shared(fd, bytes, protection);
        if (base != MAP_FAILED) {
            *out = (struct shm){.fd = fd, .base = base, .bytes = bytes};
            return ERROR_OK;
        }
        if (errno == EPERM || errno == EACCES)
            code = error_set(e, ERROR_PROTOCOL,
                             "received memory is sealed against the writing it was received for");
        else
            code = error_set(e, ERROR_MEMORY, "cannot map %zu bytes of received memory: %m", bytes);
    }
    if (fd >= 0)
        close(fd);
    return code;
}

enum error_code shm_seal_writes(struct shm *s, struct error *e)
{
    if (fcntl(s->fd, F_ADD_SEALS, F_SEAL_FUTURE_WRITE) == 0)
        return ERROR_OK;
    if (errno == EINVAL)
        return error_set(e, ERROR_UNSUPPORTED,
                         "shared memory: this kernel cannot seal it against new writers "
                         "(F_SEAL_FUTURE_WRITE, Linux 5.1 or later)");
    return error_set(e, ERROR_IO, "shared memory: cannot seal it against new writers: %m");
}

void shm_close(struct shm *s)
{
    if (s->base == NULL)
        return;
    munmap(s->base, s->bytes);
    if (s->fd >= 0)
        close(s->fd);
    *s = (struct shm){.fd = -1};
}
