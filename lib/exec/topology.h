/* The CPUs that this process may compute on: which of them are threads of one core, on which memory node each lies, and how
 * many of them its cgroup lets it use. */
#ifndef MOED_EXEC_TOPOLOGY_H
#define MOED_EXEC_TOPOLOGY_H

#include <sched.h>
#include <stdint.h>

#define TOPOLOGY_MAX_CPUS  1024 /* as many as a cpu_set_t has */
#define TOPOLOGY_MAX_NODES 16   /* CPUs of further ones count as the first's */

struct topology_cpu {
    uint16_t cpu;
    uint16_t core; /* the lowest of the CPUs that are threads of its core */
    uint16_t node; /* index of node_ids */
};

/* cpus stand in the order in which threads are put on them: one of each core first, the nodes in turn; then the cores' other
 * threads. */
struct topology {
    unsigned n_cpus, n_cores, n_nodes, quota; /* whole cores of the cgroup; 0: no limit */
    uint16_t node_ids[TOPOLOGY_MAX_NODES];    /* the system's numbers, ascending */
    struct topology_cpu cpus[TOPOLOGY_MAX_CPUS];
};

/* Of this process, as the system says; what it does not say is taken to be simple: a core a CPU, one node, no limit. */
void topology_read(struct topology *out);
/* The same from a tree of files that looks like "/" (sys/devices/system, sys/fs/cgroup, proc/self/cgroup). */
void topology_read_from(const char *root, const cpu_set_t *allowed, struct topology *out);

/* How many threads compute best: one a core, for the second thread of a core finds its units and its memory taken; no more
 * than the quota, or the cgroup stops all of them for a part of each period. At least 1. */
unsigned topology_threads(const struct topology *t);

#endif
