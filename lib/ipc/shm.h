/* Shared memory: sealed memfds. They have no name in the file system, so nothing is left behind
 * when a process is killed: the kernel frees the memory with the last process that holds it. */
#ifndef MOED_IPC_SHM_H
#define MOED_IPC_SHM_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct shm {
    int fd; /* owned; -1 when closed */
    void *base;
    size_t bytes;
};

/* A new region: zeroed, mapped writable, and sealed against resizing (a peer's ftruncate would kill
 * every reader). /proc/PID/maps shows label. ERROR_MEMORY names the bytes requested and those
 * free. */
enum error_code shm_create(const char *label, size_t bytes, struct shm *out, struct error *e);

/* The same for a large region, in huge pages where the system has them: reserved ones where enough
 * are free (out->bytes is then a multiple of their size), else transparent ones where the system
 * allows them for shared memory, else ordinary pages. */
enum shm_pages { SHM_PAGES_ORDINARY, SHM_PAGES_TRANSPARENT, SHM_PAGES_RESERVED };
enum error_code shm_create_large(const char *label, size_t bytes, struct shm *out,
                                 enum shm_pages *pages, struct error *e);

/* Map a received fd, which it takes and closes on failure. ERROR_PROTOCOL where it is not sealed
 * against shrinking, or smaller than min_bytes. */
enum error_code shm_map(int fd, bool writable, size_t min_bytes, struct shm *out, struct error *e);

/* The name of a region for other processes of this user, valid while this process has it open. */
struct shm_name {
    int32_t pid, fd;
    uint64_t inode;
};
enum error_code shm_name(const struct shm *s, struct shm_name *out, struct error *e);
/* Map a named region of another process read-only, with shm_map's checks. ERROR_UNAVAILABLE: the
 * process no longer has it. */
enum error_code shm_map_named(const struct shm_name *name, size_t min_bytes, struct shm *out,
                              struct error *e);

/* From now on no process can map it writable; existing writable mappings stay. */
enum error_code shm_seal_writes(struct shm *s, struct error *e);

void shm_close(struct shm *s); /* unmap and close; a zeroed or closed one: no effect */

#endif
