/* What this process's control groups still allow it to allocate, and what that has cost. */
#ifndef MOED_BASE_CGROUP_MEMORY_H
#define MOED_BASE_CGROUP_MEMORY_H

#include <stdbool.h>
#include <stdint.h>

/* The least that the process's group and the groups above it allow, of version 2, or version 1's
 * controller `memory`; UINT64_MAX: no limit. Page cache counts as free: the kernel reclaims it.
 * root: "" for this machine; a test has a tree of files there, with proc/self/cgroup and
 * sys/fs/cgroup. */
uint64_t cgroup_memory_available(const char *root);

/* Memory that a process may still allocate, and others are to leave to it. */
struct cgroup_promise {
    long pid;
    uint64_t bytes;
};
/* As cgroup_memory_available, without the promises: each counts in the groups that the process lies
 * in. If these are not known, it counts in all. */
uint64_t cgroup_memory_unpromised(const char *root, const struct cgroup_promise *promises,
                                  unsigned n);

/* How many processes the kernel has killed for lack of memory, in the process's own group where its
 * version counts them, else on the machine (proc/vmstat). It counts before it kills. */
uint64_t cgroup_memory_oom_kills(const char *root);

/* The kernel's kills, as a process that looks at least once a second sees them. All zeros before
 * the first look, for which there are none. now_ns: clock_ns. */
struct cgroup_oom_kills {
    bool looked;
    uint64_t count, unclaimed;
    uint64_t rise_ns; /* when count rose last */
};
void cgroup_oom_kills_look(struct cgroup_oom_kills *k, const char *root, uint64_t now_ns);
/* Looks. True: the kernel has killed one in the last seconds, which was not claimed yet. */
bool cgroup_oom_kills_claim(struct cgroup_oom_kills *k, const char *root, uint64_t now_ns);

#endif
