/* The KV cache of the dense part on this process's threads; see kv_cache.h. */
#include "kv_cache.h"

#include "model/kv_type.h"

#include <stdlib.h>

enum error_code kv_cache_new(const struct model_params *p, enum tensor_type type, uint32_t n_slots,
                             uint32_t context, struct kv_cache *out, struct error *e)
{
    enum error_code code = kv_type_check(p, type, e);
    if (code)
        return code;
    struct kv_cache c = {.type = type,
                         .n_slots = n_slots,
                         .pages_a_slot = (context + KV_PAGE - 1) / KV_PAGE,
                         .key_bytes = kv_key_bytes(p, type),
                         .value_bytes = kv_value_bytes(p, type)};
    c.values_offset = c.value_bytes ? KV_PAGE * c.key_bytes : 0;
    c.head_bytes = KV_PAGE * (c.key_bytes + c.value_bytes);
    c.layer_bytes = p->n_kv_heads * c.head_bytes;
    c.pages = calloc((size_t)n_slots * c.pages_a_slot, sizeof *c.pages);
    if (!c.pages)
        return error_set(e, ERROR_MEMORY, "no memory for the page tables of the KV cache");
    *out = c;
    return ERROR_OK;
}

void kv_cache_free(struct kv_cache *c)
{
    free(c->pages);
    c->pages = NULL;
}

size_t kv_cache_value_stride(const struct kv_cache *c)
{
    return c->value_bytes ? c->value_bytes : c->key_bytes;
}
