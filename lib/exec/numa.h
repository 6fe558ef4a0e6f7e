/* Decides which memory node holds which weights.
 *
 * A token uses few experts, and each should keep all nodes busy. So each expert lies on all nodes:
 *   - With ordinary pages, its matrices are cut into slices of tile rows, a node each: as many
 *     slices as there are nodes, or fewer, so that a slice has at least NUMA_SLICE_TILES tile rows.
 *     Slices of gate and up with the same rows lie on one node; so do those of all segments' down.
 *   - Huge pages are too large for slices: there each segment lies whole on a node.
 * An expert's slices, or segments, follow each other on the nodes in turn. Experts begin at
 * different nodes. All other weights, which all threads read, are spread over the nodes page by
 * page.
 *
 * memd places weights by this rule; workers and cpuexec assign work by it. If they see different
 * machines, work is slower but not wrong. The functions that decide are pure. */
#ifndef MOED_EXEC_NUMA_H
#define MOED_EXEC_NUMA_H

#include "exec/topology.h"
#include "model/pool_plan.h"

#define NUMA_SLICE_TILES 4

/* How a layer's experts lie on nodes. */
struct numa_split {
    unsigned n_nodes;
    uint32_t n_segments; /* of an expert */
    bool by_rows;        /* pool_header.split_rows */
};

/* The number of slices of a matrix, and the first tile row of one (0..slices; at `slices` the end).
 */
static inline uint32_t numa_slices(const struct numa_split *s, uint32_t n_tiles)
{
    uint32_t most = n_tiles / NUMA_SLICE_TILES;
    most = most < s->n_nodes ? most : s->n_nodes;
    return s->by_rows && most ? most : 1;
}

static inline uint32_t numa_first_tile(uint32_t n_tiles, uint32_t slices, uint32_t slice)
{
    uint64_t groups = n_tiles / NUMA_SLICE_TILES;
    return slice == slices ? n_tiles : (uint32_t)(groups * slice / slices * NUMA_SLICE_TILES);
}

/* The index of the node of the expert's first slice or segment. units: the expert's slices or
 * segments; the step from expert to expert is odd, so that all nodes are some expert's first. */
static inline unsigned numa_first_node(const struct numa_split *s, uint32_t expert, uint32_t units)
{
    return (unsigned)((uint64_t)expert * (units | 1) % s->n_nodes);
}

/* The node of the first slice of gate and up of a segment, and of down of all segments. Slice i
 * lies on the i-th node after it. */
static inline unsigned numa_gate_node(const struct numa_split *s, uint32_t expert, uint32_t segment,
                                      uint32_t slices)
{
    unsigned first = numa_first_node(s, expert, s->n_segments * slices);
    return (unsigned)((first + (uint64_t)segment * slices) % s->n_nodes);
}

static inline unsigned numa_down_node(const struct numa_split *s, uint32_t expert, uint32_t slices)
{
    return numa_first_node(s, expert, slices);
}

/* ---- Placement ---- */

#define NUMA_ALL_NODES UINT32_MAX

/* Where the pages of a pool belong. Borrows the plan. */
struct numa_places {
    const struct pool_plan *plan;
    uint64_t page_bytes;
    unsigned n_nodes; /* 1: no placement */
    bool by_rows;
    bool touches; /* numa_populate has to read each page, because the kernel is old */
    uint16_t memory_ids[TOPOLOGY_MAX_NODES];
    _Atomic bool refused; /* the kernel does not place memory for this process */
};

void numa_places_init(struct numa_places *p, const struct topology *t, const struct pool_plan *plan,
                      uint64_t page_bytes);
/* How the pool's experts lie on several nodes, for people. NULL: on none of their own, because
 * there is one node or the pool is tiered. */
const char *numa_how(const struct numa_places *p);
/* The index of the node of the pool's byte at offset, or NUMA_ALL_NODES. *layer: a layer to look at
 * first; set to the layer of the expert. */
uint32_t numa_node_at(const struct numa_places *p, uint64_t offset, uint32_t *layer);

/* Has the kernel spread what belongs to no expert over the nodes; call it before the memory is
 * written. */
void numa_spread_dense(const struct numa_places *p, void *pool, uint64_t bytes);
/* Makes the pages of [at, at + bytes) of the pool, whole pages, on their nodes. Any thread.
 * ERROR_MEMORY: there is no memory. Where the kernel refuses placement: a warning, and pages
 * wherever it puts them. NULL p: as memory_populate. */
enum error_code numa_populate(struct numa_places *p, uint8_t *pool, uint64_t at, uint64_t bytes,
                              struct error *e);

/* Has the kernel spread memory that is not written yet over the nodes, page by page. `what`: for
 * the log. Does nothing on a machine with one node. */
void numa_spread(const struct topology *t, const char *what, void *memory, uint64_t bytes);

#endif
