/* cusim: pages that processes share for events. */
#ifndef CUSIM_IPC_H
#define CUSIM_IPC_H

#include "memory.h"
#include "runtime.h"

#include <atomic>

struct shared_event {
    std::atomic<uint64_t> n_recorded, n_done; /* any process that records the event writes them */
    pid_t pid;                                /* the owner */
};

/* A page of a new file, filled with 0, and its name for others. NULL: no memory. */
struct shared_event *ipc_new_page(struct memory_name *name);
/* Maps another process's page. */
cudaError_t ipc_open_page(const struct memory_name &name, struct shared_event **out);

#endif
