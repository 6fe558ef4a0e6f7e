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

/* The same for a region of which only a part will have pages: bytes may be more than there are. */
enum error_code shm_create_sparse(const char *label, size_t bytes, struct shm *out,
                                  struct error *e);

/* The same for a large region, in huge pages where the system has them: reserved ones where enough
 * are free (out->bytes is then a multiple of their size), else transparent ones where the system
 * allows them for shared memory, else ordinary pages. */
enum shm_pages { SHM_PAGES_ORDINARY, SHM_PAGES_TRANSPARENT, SHM_PAGES_RESERVED };
enum error_code shm_create_large(const char *label, size_t bytes, struct shm *out,
                                 enum shm_pages *pages, struct error *e);

/* Map a received fd, which it takes and closes on failure. ERROR_PROTOCOL where it is not sealed
 * against shrinking, or smaller than min_bytes. */
enum error_code shm_map(int fd, bool writable, size_t min_bytes, struct shm *out, struct error *e);

/* From now on no process can map it writable; existing writable mappings stay. */
enum error_code shm_seal_writes(struct shm *s, struct error *e);

void shm_close(struct shm *s); /* unmap and close; a zeroed or closed one: no effect */

#endif
