/* Whether a plan keeps its promises to the loader: whatever it reads lies in the files, and
 * whatever it writes lies in the pool. For plans out of hostile descriptions. */
#ifndef MOED_TESTS_PLAN_BOUNDS_H
#define MOED_TESTS_PLAN_BOUNDS_H

#include "memd/load/pack.h"

#include <stdbool.h>
#include <stdlib.h>

static inline bool item_in_bounds(const struct gguf *g, const struct pack_item *item, uint64_t most)
{
    uint64_t start, end, source_end = item->source + item->rows * item->row_bytes;
    if (!item->rows || item->source < item->tensor->offset ||
        source_end > item->tensor->offset + item->tensor->bytes ||
        source_end > gguf_file_bytes(g, item->tensor->file))
        return false;
    for (uint32_t part = 0; part < item->column_parts; part++) {
        pack_item_target(item, 0, item->rows, part, &start, &end);
        if (start > end || end > most)
            return false;
    }
    return true;
}

/* Of a plan that is not tiered. */
static inline bool plan_in_bounds(const struct gguf *g, const struct pool_plan *plan)
{
    const struct pool_header *h = &plan->header;
    bool good = h->metadata_offset + h->metadata_bytes <= h->bytes;
    for (uint32_t i = 0; i < h->n_tensors && good; i++) {
        struct pack_item *items = calloc(plan->tensors[i].planes, sizeof *items);
        pack_dense_items(plan, i, items);
        for (uint32_t k = 0; k < plan->tensors[i].planes && good; k++)
            good = item_in_bounds(g, &items[k], h->bytes);
        free(items);
    }
    for (uint32_t layer = 0; layer < h->n_layers && good; layer++) {
        const struct pool_slabs *s = &plan->slabs[layer];
        for (uint32_t expert = 0; expert < s->n_experts && good; expert++) {
            struct pack_item items[PACK_EXPERT_ITEMS];
            uint32_t n =
                pack_expert_items(plan, layer, expert, s->offset + expert * s->slab_bytes, items);
            for (uint32_t k = 0; k < n && good; k++)
                good = item_in_bounds(g, &items[k], s->offset + (expert + 1) * s->slab_bytes) &&
                       s->offset + (expert + 1) * s->slab_bytes <= h->bytes;
        }
    }
    return good;
}

#endif
