/* The CPUs that this process may use: which of them share a core, the memory node of each, and the
 * limit of the process's cgroup. */
#ifndef MOED_EXEC_TOPOLOGY_H
#define MOED_EXEC_TOPOLOGY_H

#include <sched.h>
#include <stdbool.h>
#include <stdint.h>

#define TOPOLOGY_MAX_CPUS  1024 /* of a cpu_set_t */
#define TOPOLOGY_MAX_NODES 16   /* CPUs of further nodes count as the first node's */

struct topology_cpu {
    uint16_t cpu;
    uint16_t core; /* the lowest CPU of its core */
    uint16_t node; /* index into node_ids */
};

/* cpus: in the order in which threads use them. First one CPU of each core, in turn over the nodes;
 * then the cores' other CPUs. */
struct topology {
    bool is_guessed; /* only the number of CPUs is known, not which they are */
    unsigned n_cpus, n_cores, n_nodes, quota; /* whole cores of the cgroup; 0: no limit */
    uint16_t node_ids[TOPOLOGY_MAX_NODES];    /* the kernel's numbers, ascending */
    struct topology_cpu cpus[TOPOLOGY_MAX_CPUS];
    /* by the core's number: its kind, capacity or highest frequency; 0: unknown */
    uint32_t speeds[TOPOLOGY_MAX_CPUS];
};

/* Reads the topology for this process. Defaults for what the system does not report: each CPU is a
 * core, one node, no limit. If it does not report the CPUs of this process: as many as the machine
 * has, with a warning. CPUs from TOPOLOGY_MAX_CPUS on are left out. */
void topology_read(struct topology *out);
/* The same from a directory in place of "/", with sys/devices/system, sys/fs/cgroup and
 * proc/self/cgroup. */
void topology_read_from(const char *root, const cpu_set_t *allowed, struct topology *out);

/* The rank-th of n equal shares of the cores (rank < n), with all CPUs of these; node by node, so
 * that a share lies on one node where there are as many shares as nodes. Where cores of a node
 * differ in speed, its shares have as equally many of each kind as the numbers allow, of the
 * fastest: cores that no share gets are slow ones. Each share has a core of its own, unless there
 * are fewer cores. out: another one than t. */
void topology_share(const struct topology *t, unsigned rank, unsigned n, struct topology *out);

/* The best number of threads, at least 1. One per core, because two threads of a core share its
 * units and its memory bandwidth. At most the quota, because above it the cgroup stops all threads
 * for a part of each period. */
unsigned topology_threads(const struct topology *t);

#endif
