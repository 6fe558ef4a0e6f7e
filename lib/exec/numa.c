/* Placement on memory nodes; see numa.h. Calls mbind directly: nothing else of libnuma is needed.
 */
#include "exec/numa.h"

#include "base/checked.h"
#include "base/log.h"

#include <inttypes.h>
#include <linux/mempolicy.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

uint32_t numa_range_count(const struct pool_plan *plan, unsigned n_nodes)
{
    return plan->header.n_layers * (n_nodes + 1) + 1;
}

static void add_range(struct numa_range *ranges, uint32_t *n, uint64_t *at, uint64_t end,
                      uint32_t node)
{
    if (end <= *at)
        return;
    if (*n && ranges[*n - 1].node == node)
        ranges[*n - 1].end = end;
    else
        ranges[(*n)++] = (struct numa_range){*at, end, node};
    *at = end;
}

/* The first expert of a node's run. */
static uint32_t first_expert(uint32_t n_experts, unsigned node, unsigned n_nodes)
{
    return (uint32_t)(((uint64_t)node * n_experts + n_nodes - 1) / n_nodes);
}

uint32_t numa_ranges(const struct pool_plan *plan, unsigned n_nodes, uint64_t page_bytes,
                     struct numa_range *ranges)
{
    uint64_t at = 0;
    uint32_t n = 0;
    for (uint32_t layer = 0; layer < plan->header.n_layers && !plan->header.tiered; layer++) {
        const struct pool_slabs *s = &plan->slabs[layer];
        if (!s->n_experts)
            continue;
        add_range(ranges, &n, &at, round_up(s->offset, page_bytes), NUMA_ALL_NODES);
        for (unsigned node = 0; node < n_nodes; node++) {
            uint32_t next = first_expert(s->n_experts, node + 1, n_nodes);
            uint64_t end = round_up(s->offset + next * s->slab_bytes, page_bytes);
            add_range(ranges, &n, &at, end, node);
        }
    }
    add_range(ranges, &n, &at, round_up(plan->header.bytes, page_bytes), NUMA_ALL_NODES);
    return n;
}

/* MPOL_PREFERRED, not MPOL_BIND: if a node is full, another node's memory is better than none. */
static bool place(const struct topology *t, uint8_t *memory, const struct numa_range *r)
{
    unsigned long nodes[1024 / (8 * sizeof(unsigned long))] = {0};
    const size_t bits = 8 * sizeof *nodes;
    bool all = r->node == NUMA_ALL_NODES;
    for (unsigned i = 0; i < t->n_nodes; i++)
        if (all || i == r->node)
            nodes[t->memory_ids[i] / bits] |= 1ul << t->memory_ids[i] % bits;
    return syscall(SYS_mbind, memory + r->start, r->end - r->start,
                   all ? MPOL_INTERLEAVE : MPOL_PREFERRED, nodes, 8 * sizeof nodes + 1, 0) == 0;
}

/* bytes: of memory; a range's last page may reach beyond it. */
static void place_all(const struct topology *t, uint8_t *memory, uint64_t bytes,
                      const struct numa_range *ranges, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        struct numa_range r = ranges[i];
        if (r.end > bytes)
            r.end = bytes;
        if (r.end > r.start && !place(t, memory, &r)) {
            log_warn("the weights cannot be placed on %u memory nodes (%m): they lie where they "
                     "are written from",
                     t->n_nodes);
            return;
        }
    }
    log_info("weights placed on %u memory nodes", t->n_nodes);
}

void numa_place_pool(const struct topology *t, const struct pool_plan *plan, uint64_t page_bytes,
                     void *memory, uint64_t bytes)
{
    if (t->n_nodes < 2)
        return;
    struct numa_range *ranges = calloc(numa_range_count(plan, t->n_nodes), sizeof *ranges);
    if (ranges)
        place_all(t, memory, bytes, ranges, numa_ranges(plan, t->n_nodes, page_bytes, ranges));
    free(ranges);
}

void numa_spread(const struct topology *t, void *memory, uint64_t bytes)
{
    if (t->n_nodes > 1)
        place_all(t, memory, bytes, &(struct numa_range){0, bytes, NUMA_ALL_NODES}, 1);
}
