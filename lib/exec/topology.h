/* The CPUs that this process may use: which of them share a core, the memory node of each, and the
 * limit of the process's cgroup. */
#ifndef MOED_EXEC_TOPOLOGY_H
#define MOED_EXEC_TOPOLOGY_H

#include <sched.h>
#include <stdbool.h>
#include <stdint.h>

#define TOPOLOGY_MAX_CPUS  1024 /* of a cpu_set_t */
#define TOPOLOGY_MAX_NODES 64   /* CPUs of further nodes count as the nearest of these nodes' */

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
    /* by node: where its threads' memory lies. The node itself, or if it has no memory or the
     * process's cpuset forbids it, the nearest node that has. The kernel's numbers */
    uint16_t memory_ids[TOPOLOGY_MAX_NODES];
    struct topology_cpu cpus[TOPOLOGY_MAX_CPUS];
    /* by the core's number: its capacity or highest frequency, or TOPOLOGY_FAST for the fast kind
     * of a hybrid CPU; 0: unknown */
    uint32_t speeds[TOPOLOGY_MAX_CPUS];
};

#define TOPOLOGY_FAST (1u << 30)

/* Reads the topology for this process. Defaults for what the system does not report: each CPU is a
 * core, one node, no limit. If it does not report the CPUs of this process: as many as the machine
 * has, with a warning. CPUs from TOPOLOGY_MAX_CPUS on are left out, with a
 * warning. Of a hybrid CPU the low-power cores are left out too: each step would wait for them. */
void topology_read(struct topology *out);
/* The same from a directory in place of "/", with sys/devices, sys/fs/cgroup, proc/self/cgroup and
 * proc/self/status. */
void topology_read_from(const char *root, const cpu_set_t *allowed, struct topology *out);

/* The rank-th of n equal shares of the cores (rank < n), with all CPUs of these; node by node. If n
 * is a multiple of the number of nodes, a share lies on one node; if it is a divisor, on whole
 * nodes. Both only if each node has cores enough for its shares. Where cores of a node
 * differ in speed, its shares have as equally many of each kind as the numbers allow, of the
 * fastest: cores that no share gets are slow ones. Each share has a core of its own, unless there
 * are fewer cores. out: another one than t. */
void topology_share(const struct topology *t, unsigned rank, unsigned n, struct topology *out);

/* The best number of threads, at least 1. One per core, because two threads of a core share its
 * units and its memory bandwidth. At most the quota, because above it the cgroup stops all threads
 * for a part of each period. */
unsigned topology_threads(const struct topology *t);

#endif
