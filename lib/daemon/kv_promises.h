/* Memory that the running deployments of this user have promised to their KV caches and that has no
 * pages yet. The system counts it as free.
 *
 *     kv_promises_open(&p, run);      before the process is confined
 *     kv_promises_lock(&p, ms);       until this process answers the same request
 *     ... kv_promises_bytes(&p) ...
 *     kv_promises_close(&p);
 *
 * The deployments are those in the folder of the user's runtime directories (run_dir.h) and those
 * beside the own one, as in /run/moed; their memds are called. One that does not answer, or is not
 * found so, counts as 0. */
#ifndef MOED_DAEMON_KV_PROMISES_H
#define MOED_DAEMON_KV_PROMISES_H

#include "daemon/run_dir.h"

#include <stdbool.h>
#include <stdint.h>

enum { KV_PROMISES_FOLDERS = 3, KV_PROMISES_MOST = 64 /* memds called */ };

struct kv_promises_folder {
    char path[RUN_DIR_BYTES];
    int fd; /* its flock is the lock */
};

struct kv_promises {
    char own[RUN_DIR_BYTES];
    struct kv_promises_folder folders[KV_PROMISES_FOLDERS];
    unsigned n;
};

/* Opens the folders. own: RUN or a place in it, which counts as 0; NULL: none. */
void kv_promises_open(struct kv_promises *p, const char *own);
/* Only one process at a time holds it, so the second counts what the first has promised. False: the
 * time was over. The lock ends with kv_promises_close, and with the process. Folders in which
 * others may write are not locked. In a folder that others may read, such as /run/moed, another
 * user can hold it: then the time passes. */
bool kv_promises_lock(const struct kv_promises *p, int timeout_ms);
/* By how much they lessen memory_available_bytes(). What a deployment outside of the cgroup that
 * limits this process has promised does not take from that limit. */
uint64_t kv_promises_bytes(const struct kv_promises *p);
void kv_promises_close(struct kv_promises *p); /* a zeroed one: no effect */

#endif
