/* Shared memory: sealed memfds. Nothing of it has a name in the file system, so nothing is left
 * behind whoever is killed: the kernel frees it with the last process that holds it. */
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

/* A new region, zeroed, mapped writable, sealed against resizing (a peer's ftruncate would kill
 * every reader). label shows in /proc/PID/maps. Not enough memory names the bytes asked and those
 * free. */
enum error_code shm_create(const char *label, size_t bytes, struct shm *out, struct error *e);

/* The same for much memory, in huge pages where the system has them: reserved ones where enough are free (then out->bytes are
 * whole ones), else transparent ones where shared memory may have them, else ordinary ones. It never fails for want of huge
 * ones. */
enum shm_pages { SHM_PAGES_ORDINARY, SHM_PAGES_TRANSPARENT, SHM_PAGES_RESERVED };
enum error_code shm_create_large(const char *label, size_t bytes, struct shm *out,
                                 enum shm_pages *pages, struct error *e);

/* Map a received fd (taken over, closed on failure too). Refuses one that is not sealed against
 * shrinking or smaller than min_bytes (ERROR_PROTOCOL). */
enum error_code shm_map(int fd, bool writable, size_t min_bytes, struct shm *out, struct error *e);

/* Names a region for other processes of this user on this machine, while this process has it. */
struct shm_name {
    int32_t pid, fd;
    uint64_t inode;
};
enum error_code shm_name(const struct shm *s, struct shm_name *out, struct error *e);
/* Map one that another process has named, read-only; checked as shm_map does. ERROR_UNAVAILABLE: it is not there any
 * more. */
enum error_code shm_map_named(const struct shm_name *name, size_t min_bytes, struct shm *out,
                              struct error *e);

/* From now on nobody can map it writable (existing writable mappings stay). */
enum error_code shm_seal_writes(struct shm *s, struct error *e);

void shm_close(struct shm *s); /* unmaps, closes; takes a zeroed or closed one */

#endif
