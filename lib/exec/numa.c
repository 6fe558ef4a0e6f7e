/* Placement on memory nodes; see numa.h. Calls the kernel directly: nothing else of libnuma is
 * needed.
 *
 * Pages that are spread get a policy of their own (mbind). Experts' pages do not: a range with a
 * policy is a mapping of its own, of which a process may have some 65,000, and the slices of a
 * large model are more. So the thread that makes an expert's pages prefers their node meanwhile
 * (set_mempolicy). MPOL_PREFERRED, not MPOL_BIND: if a node is full, another node's memory is
 * better than none. */
#include "exec/numa.h"

#include "base/checked.h"
#include "base/log.h"
#include "base/machine_memory.h"

#include <inttypes.h>
#include <linux/mempolicy.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { MASK_BITS = 1024, WORD_BITS = 8 * sizeof(unsigned long) };

struct policy {
    int mode;
    unsigned long nodes[MASK_BITS / WORD_BITS];
};

static void add_node(struct policy *p, unsigned id)
{
    p->nodes[id / WORD_BITS] |= 1ul << id % WORD_BITS;
}

/* ---- Spreading ---- */

static bool spread(const uint16_t *ids, unsigned n, void *memory, uint64_t bytes)
{
    struct policy all = {.mode = MPOL_INTERLEAVE};
    for (unsigned i = 0; i < n; i++)
        add_node(&all, ids[i]);
    return syscall(SYS_mbind, memory, bytes, all.mode, all.nodes, MASK_BITS + 1, 0) == 0;
}

void numa_spread(const struct topology *t, const char *what, void *memory, uint64_t bytes)
{
    if (t->n_nodes < 2)
        return;
    if (spread(t->memory_ids, t->n_nodes, memory, bytes))
        log_info("%s spread over %u memory nodes", what, t->n_nodes);
    else
        log_warn("%s cannot be spread over %u memory nodes (%m)", what, t->n_nodes);
}

/* Spreads the whole pages of [start, end). */
static bool spread_pages(const struct numa_places *p, uint8_t *pool, uint64_t start, uint64_t end)
{
    start = round_up(start, p->page_bytes);
    end = end / p->page_bytes * p->page_bytes;
    return end <= start || spread(p->memory_ids, p->n_nodes, pool + start, end - start);
}

void numa_spread_dense(const struct numa_places *p, void *pool, uint64_t bytes)
{
    const struct pool_header *h = &p->plan->header;
    uint64_t at = 0;
    bool done = true;
    if (p->n_nodes < 2)
        return;
    for (uint32_t layer = 0; layer < h->n_layers && !h->tiered; layer++) {
        const struct pool_slabs *s = &p->plan->slabs[layer];
        if (!s->n_experts)
            continue;
        done &= spread_pages(p, pool, at, s->offset);
        at = s->offset + s->n_experts * s->slab_bytes;
    }
    done &= spread_pages(p, pool, at, bytes);
    if (!done)
        log_warn("the dense weights cannot be spread over %u memory nodes (%m)", p->n_nodes);
}

/* ---- Experts ---- */

/* More than the page of most machines: a huge page. */
#define HUGE_PAGE (1u << 20)

void numa_places_init(struct numa_places *p, const struct topology *t, const struct pool_plan *plan,
                      uint64_t page_bytes)
{
    *p = (struct numa_places){.plan = plan, .page_bytes = page_bytes, .n_nodes = t->n_nodes};
    p->by_rows = t->n_nodes > 1 && page_bytes < HUGE_PAGE && !plan->header.tiered;
    p->touches = !memory_can_populate();
    memcpy(p->memory_ids, t->memory_ids, sizeof p->memory_ids);
}

const char *numa_how(const struct numa_places *p)
{
    if (p->n_nodes < 2 || p->plan->header.tiered)
        return NULL;
    return p->by_rows ? "rows" : "segments, because of huge pages";
}

static bool has_byte(const struct pool_slabs *s, uint64_t offset)
{
    return s->n_experts && offset >= s->offset && offset - s->offset < s->n_experts * s->slab_bytes;
}

/* The slice of a matrix that the byte at `at` of it belongs to. */
static uint32_t slice_at(uint64_t at, enum tensor_type type, uint32_t rows, uint32_t cols,
                         uint32_t slices)
{
    uint32_t n_tiles = tile_row_count(rows), slice = 0;
    uint64_t tile = at / tile_row_bytes(type, cols);
    while (slice + 1 < slices && tile >= numa_first_tile(n_tiles, slices, slice + 1))
        slice++;
    return slice;
}

/* The node of a byte of an expert's segment. */
static unsigned node_in_segment(const struct numa_split *split, const struct pool_slabs *s,
                                uint32_t expert, uint32_t segment, uint64_t at)
{
    uint32_t width = s->segment_width, slices = numa_slices(split, tile_row_count(width));
    unsigned first = numa_gate_node(split, expert, segment, slices);
    if (!split->by_rows)
        return first;
    if (at < s->up_offset)
        return first + slice_at(at, (enum tensor_type)s->gate_type, width, s->d_model, slices);
    if (at < s->down_offset)
        return first +
               slice_at(at - s->up_offset, (enum tensor_type)s->up_type, width, s->d_model, slices);
    slices = numa_slices(split, tile_row_count(s->d_model));
    return numa_down_node(split, expert, slices) +
           slice_at(at - s->down_offset, (enum tensor_type)s->down_type, s->d_model, width, slices);
}

uint32_t numa_node_at(const struct numa_places *p, uint64_t offset, uint32_t *layer)
{
    const struct pool_header *h = &p->plan->header;
    if (h->tiered)
        return NUMA_ALL_NODES;
    if (*layer >= h->n_layers || !has_byte(&p->plan->slabs[*layer], offset))
        for (*layer = 0; *layer < h->n_layers && !has_byte(&p->plan->slabs[*layer], offset);)
            (*layer)++;
    if (*layer == h->n_layers)
        return NUMA_ALL_NODES;
    const struct pool_slabs *s = &p->plan->slabs[*layer];
    const struct numa_split split = {p->n_nodes, s->n_segments, p->by_rows};
    uint64_t at = offset - s->offset, in_slab = at % s->slab_bytes;
    return node_in_segment(&split, s, (uint32_t)(at / s->slab_bytes),
                           (uint32_t)(in_slab / s->segment_bytes), in_slab % s->segment_bytes) %
           p->n_nodes;
}

static void refuse(struct numa_places *p)
{
    if (!atomic_exchange(&p->refused, true))
        log_warn("the experts cannot be placed on %u memory nodes (%m): they lie where the kernel "
                 "puts them",
                 p->n_nodes);
}

/* Makes the pages of shared memory by reading a byte of each. Another thread may be writing it: the
 * value does not matter. */
__attribute__((no_sanitize("thread"))) static void touch(const volatile uint8_t *at, uint64_t bytes)
{
    enum { LEAST_PAGE = 4096 };
    for (uint64_t i = 0; i < bytes; i += LEAST_PAGE)
        (void)at[i];
}

/* Makes pages on a node. */
static enum error_code populate_on(struct numa_places *p, uint32_t node, uint8_t *at,
                                   uint64_t bytes, struct error *e)
{
    struct policy one = {.mode = MPOL_PREFERRED};
    if (node == NUMA_ALL_NODES)
        return memory_populate(at, bytes, e);
    add_node(&one, p->memory_ids[node]);
    if (syscall(SYS_set_mempolicy, one.mode, one.nodes, MASK_BITS + 1) != 0)
        refuse(p);
    if (p->touches)
        touch(at, bytes);
    return memory_populate(at, bytes, e);
}

/* The node of the page at offset: that of its middle. */
static uint32_t node_of_page(const struct numa_places *p, uint64_t offset, uint32_t *layer)
{
    return numa_node_at(p, offset / p->page_bytes * p->page_bytes + p->page_bytes / 2, layer);
}

enum error_code numa_populate(struct numa_places *p, uint8_t *pool, uint64_t at, uint64_t bytes,
                              struct error *e)
{
    struct policy before = {0};
    uint64_t end = at + bytes;
    uint32_t layer = 0;
    enum error_code code = ERROR_OK;
    if (!p || p->n_nodes < 2 || atomic_load_explicit(&p->refused, memory_order_relaxed))
        return memory_populate(pool + at, bytes, e);
    if (syscall(SYS_get_mempolicy, &before.mode, before.nodes, MASK_BITS, NULL, 0) != 0) {
        refuse(p);
        return memory_populate(pool + at, bytes, e);
    }
    for (uint64_t next; at < end && !code; at = next) {
        uint32_t node = node_of_page(p, at, &layer);
        for (next = at; next < end && (next == at || node_of_page(p, next, &layer) == node);)
            next = (next / p->page_bytes + 1) * p->page_bytes;
        next = next < end ? next : end;
        code = populate_on(p, node, pool + at, next - at, e);
    }
    syscall(SYS_set_mempolicy, before.mode, before.nodes, MASK_BITS + 1);
    return code;
}
