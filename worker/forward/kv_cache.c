/* The KV cache of the dense part on this process's threads; see kv_cache.h. */
#include "kv_cache.h"

#include "base/arrays.h"
#include "model/kv_type.h"

#include <stdlib.h>

static void lay_out(const struct model_params *p, const struct kv_layout *layout,
                    struct kv_cache *c)
{
    for (uint32_t i = 0; i < p->n_layers; i++) {
        struct kv_cache_layer *l = &c->layers[i];
        l->group = layout->layers[i].group;
        l->offset = layout->layers[i].offset;
        l->key_bytes = kv_key_bytes(p, i, c->type);
        l->value_bytes = kv_value_bytes(p, i, c->type);
        l->values_offset = l->value_bytes ? KV_PAGE * l->key_bytes : 0;
        l->head_bytes = KV_PAGE * (l->key_bytes + l->value_bytes);
    }
}

enum error_code kv_cache_new(const struct model_params *p, enum tensor_type type,
                             const struct kv_layout *layout, uint32_t n_slots, uint32_t context,
                             struct kv_cache *out, struct error *e)
{
    enum error_code code = kv_type_check(p, type, e);
    if (code)
        return code;
    struct kv_cache c = {.type = type,
                         .n_slots = n_slots,
                         .pages_a_slot = (context + KV_PAGE - 1) / KV_PAGE,
                         .n_groups = layout->n_groups};
    c.memory = ARRAYS_NEW(ARRAY(c.pages, (size_t)c.n_groups * n_slots * c.pages_a_slot),
                          ARRAY(c.layers, p->n_layers));
    if (!c.memory)
        return error_set(e, ERROR_MEMORY, "no memory for the page tables of the KV cache");
    lay_out(p, layout, &c);
    *out = c;
    return ERROR_OK;
}

void kv_cache_free(struct kv_cache *c)
{
    free(c->memory);
    c->memory = NULL;
}

size_t kv_cache_value_stride(const struct kv_cache_layer *l)
{
    return l->value_bytes ? l->value_bytes : l->key_bytes;
}
