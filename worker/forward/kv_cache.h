/* The KV cache of the dense part on this process's threads: which pages each slot has.
 *
 * A page holds KV_PAGE positions of a group of layers (model/kv_layout.h). The prefix cache hands
 * out the pages (worker/kv/prefix_cache.h); this module finds rows in them. */
#ifndef MOED_WORKER_FORWARD_KV_CACHE_H
#define MOED_WORKER_FORWARD_KV_CACHE_H

#include "base/error.h"
#include "kernels/kernels.h"
#include "model/kv_layout.h"

#include <stdint.h>

/* A layer's part of a page. A layer without attention has none. */
struct kv_cache_layer {
    uint32_t group;       /* whose pages have it */
    size_t offset;        /* from the page's first byte */
    size_t key_bytes;     /* of a position of a head */
    size_t value_bytes;   /* too; 0: latent attention, whose values are in its keys */
    size_t values_offset; /* from a head's keys in a page */
    size_t head_bytes;    /* [KV_PAGE] keys, [KV_PAGE] values; a layer has [n_kv_heads] of these */
};

struct kv_cache {
    enum tensor_type type; /* F32, F16 or Q8_0 */
    uint32_t n_slots, pages_a_slot, n_groups;
    void *memory;                  /* holds both */
    struct kv_cache_layer *layers; /* [n_layers] */
    uint8_t **pages;               /* [n_groups][n_slots][pages_a_slot]; NULL: no page */
};

/* layout: of the model and the type. ERROR_UNSUPPORTED: heads of this model's size cannot be stored
 * in the type. */
enum error_code kv_cache_new(const struct model_params *p, enum tensor_type type,
                             const struct kv_layout *layout, uint32_t n_slots, uint32_t context,
                             struct kv_cache *out, struct error *e);
void kv_cache_free(struct kv_cache *c);

/* The pages of a slot, as struct kv_head wants them. */
static inline uint8_t **kv_cache_pages(const struct kv_cache *c, uint32_t slot, uint32_t group)
{
    return c->pages + ((size_t)group * c->n_slots + slot) * c->pages_a_slot;
}

/* Bytes from one position's values of a head to the next position's. */
size_t kv_cache_value_stride(const struct kv_cache_layer *l);

#endif
