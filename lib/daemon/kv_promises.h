/* Memory that the running deployments of this user have promised to their KV caches and that has no
 * pages yet. The system counts it as free. */
#ifndef MOED_DAEMON_KV_PROMISES_H
#define MOED_DAEMON_KV_PROMISES_H

#include "daemon/run_dir.h"

#include <stdint.h>

enum { KV_PROMISES_MOST = 64 }; /* deployments; of more the others are not counted */

struct kv_promises {
    char runs[KV_PROMISES_MOST][RUN_DIR_BYTES];
    unsigned n;
};

/* Lists the deployments, also those that do not run, without the one whose RUN, or place in it, is
 * own (NULL: none). Call it before the process is confined: it reads the folder of their
 * directories. */
void kv_promises_list(struct kv_promises *p, const char *own);
/* Asks each memd of the list: bytes. One that does not answer counts as 0. */
uint64_t kv_promises_bytes(const struct kv_promises *p);

#endif
