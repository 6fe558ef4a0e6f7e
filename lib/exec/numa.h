/* Decides which memory node holds which weights.
 *
 * An expert's slab lies whole on one node. A layer's experts form as many equal runs as there are
 * nodes, so that each node's threads read their own memory. All other weights, which all threads
 * read, are spread over the nodes page by page. memd places weights by this rule and cpuexec
 * assigns work by it. If they see different machines, work is slower but not wrong.
 *
 * The functions that decide are pure. */
#ifndef MOED_EXEC_NUMA_H
#define MOED_EXEC_NUMA_H

#include "exec/topology.h"
#include "model/pool_plan.h"

/* The index of an expert's node, below n_nodes. */
static inline unsigned numa_node_of_expert(uint32_t expert, uint32_t n_experts, unsigned n_nodes)
{
    return (unsigned)((uint64_t)expert * n_nodes / n_experts);
}

/* Memory on one node, or spread over all nodes. */
#define NUMA_ALL_NODES UINT32_MAX
struct numa_range {
    uint64_t start, end;
    uint32_t node; /* index, or NUMA_ALL_NODES */
};

/* The most ranges that numa_ranges returns for the plan. */
uint32_t numa_range_count(const struct pool_plan *plan, unsigned n_nodes);
/* The placement of the plan's pool: ascending ranges of whole pages that cover it. A page that two
 * nodes' experts share goes to the first one's node. Returns the number of ranges. */
uint32_t numa_ranges(const struct pool_plan *plan, unsigned n_nodes, uint64_t page_bytes,
                     struct numa_range *ranges);

/* Asks the kernel for the placement; call it before the memory is written. Logs a refusal and goes
 * on without. Does nothing on a machine with one node. */
void numa_place_pool(const struct topology *t, const struct pool_plan *plan, uint64_t page_bytes,
                     void *memory, uint64_t bytes);
void numa_spread(const struct topology *t, void *memory, uint64_t bytes);

#endif
