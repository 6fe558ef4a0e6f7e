/* Which memory node holds which weights. An expert's slab lies whole on one node, a layer's experts in as many equal runs as
 * there are nodes, so that each node's threads read their own memory; everything else, which all threads read, is spread
 * over the nodes page by page. memd places by it, cpuexec hands out work by it: both see the same machine, and where they
 * do not, work is slower and not wrong.
 *
 * The functions that decide are pure; with one node there is nothing to decide. */
#ifndef MOED_EXEC_NUMA_H
#define MOED_EXEC_NUMA_H

#include "exec/topology.h"
#include "model/pool_plan.h"

/* Index of a node, below n_nodes. */
static inline unsigned numa_node_of_expert(uint32_t expert, uint32_t n_experts, unsigned n_nodes)
{
    return (unsigned)((uint64_t)expert * n_nodes / n_experts);
}

/* Bytes of memory that lie on a node, or on all in turn. */
#define NUMA_ALL_NODES UINT32_MAX
struct numa_range {
    uint64_t start, end;
    uint32_t node; /* index, or NUMA_ALL_NODES */
};

/* The most ranges of a plan. */
uint32_t numa_range_count(const struct pool_plan *plan, unsigned n_nodes);
/* Where the plan's pool is to lie: ranges of whole pages, ascending, which cover it. A page that two nodes' experts share
 * goes to the first's. Returns how many. */
uint32_t numa_ranges(const struct pool_plan *plan, unsigned n_nodes, uint64_t page_bytes,
                     struct numa_range *ranges);

/* Ask the system for it, before anything is written there; what it refuses is logged and done without. Nothing on a machine of
 * one node. */
void numa_place_pool(const struct topology *t, const struct pool_plan *plan, uint64_t page_bytes,
                     void *memory, uint64_t bytes);
void numa_spread(const struct topology *t, void *memory, uint64_t bytes);

#endif
