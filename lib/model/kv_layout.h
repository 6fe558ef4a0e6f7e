/* How keys and values lie in pages of the KV pool (ipc/kv_pool.h), by layer.
 *
 * Layers are in groups; a page holds KV_POOL_TOKENS positions of one group's layers. Group 0 has
 * the layers that attend to all positions. Layers with a window are in the groups after it, of
 * which a request needs only the pages with the last positions. All pages have one size, so that
 * both kinds come from one pool: as many groups share the layers with a window as that takes.
 *
 * A layer's part of a page is the same on the host and on a device: all its heads' keys and values
 * of KV_POOL_TOKENS positions. How these are arranged is the dense part's. */
#ifndef MOED_MODEL_KV_LAYOUT_H
#define MOED_MODEL_KV_LAYOUT_H

#include "model/kv_type.h"

enum { KV_GROUPS_MOST = 16 };

struct kv_layout {
    uint32_t n_groups;
    uint32_t window; /* the largest of the groups after 0; 0: there are none */
    uint64_t page_bytes;
    struct kv_layer_place {
        uint32_t group;
        uint64_t offset;         /* in the page; a multiple of 64 */
    } layers[PARAMS_MAX_LAYERS]; /* those without attention: group 0, nothing of the page */
};

/* type: as kv_type_check allows. */
void kv_layout_make(const struct model_params *p, enum tensor_type type, struct kv_layout *out);

/* Groups of layers with a window. */
static inline uint32_t kv_layout_windowed(const struct kv_layout *l)
{
    return l->n_groups - 1;
}

/* Pages of one group after 0 that a request needs at once, whose batches have up to `batch` rows.
 * 0: there is no such group. */
uint32_t kv_layout_window_pages(const struct kv_layout *l, uint32_t batch);
/* Pages that a request of so many positions needs at once. */
uint64_t kv_layout_pages(const struct kv_layout *l, uint32_t positions, uint32_t batch);
/* The most positions, whole pages of them, of a request that has n_pages. */
uint64_t kv_layout_positions(const struct kv_layout *l, uint32_t n_pages, uint32_t batch);

#endif
