/* The layout of pages of keys and values; see kv_layout.h. */
#include "model/kv_layout.h"

#include "base/checked.h"
#include "ipc/kv_pool.h"

#include <string.h>

static uint64_t layer_bytes(const struct model_params *p, uint32_t layer, enum tensor_type type)
{
    return (uint64_t)KV_POOL_TOKENS * p->layers[layer].n_kv_heads *
           (kv_key_bytes(p, layer, type) + kv_value_bytes(p, layer, type));
}

static bool is_windowed(const struct model_params *p, uint32_t layer)
{
    return params_attends(&p->layers[layer]) && p->layers[layer].window > 0;
}

/* Places the layers, those with a window into groups from 1 on of at most page_bytes each. Returns
 * the number of groups. */
static uint32_t place_layers(const struct model_params *p, enum tensor_type type, bool windowed,
                             uint64_t page_bytes, struct kv_layer_place *places)
{
    uint32_t group = 1;
    uint64_t full = 0, used = 0;
    bool any = false;
    for (uint32_t i = 0; i < p->n_layers; i++) {
        uint64_t bytes = layer_bytes(p, i, type);
        if (!windowed || !is_windowed(p, i)) {
            places[i] = (struct kv_layer_place){0, full};
            full += bytes;
            continue;
        }
        if (used + bytes > page_bytes && used > 0) {
            group++;
            used = 0;
        }
        places[i] = (struct kv_layer_place){group, used};
        used += bytes;
        any = true;
    }
    return any ? group + 1 : 1;
}

/* The bytes of all layers with attention to all positions, and the most of one layer with a window.
 */
static void measure(const struct model_params *p, enum tensor_type type, uint64_t *full,
                    uint64_t *largest)
{
    *full = *largest = 0;
    for (uint32_t i = 0; i < p->n_layers; i++) {
        uint64_t bytes = layer_bytes(p, i, type);
        if (!is_windowed(p, i))
            *full += bytes;
        else if (bytes > *largest)
            *largest = bytes;
    }
}

void kv_layout_make(const struct model_params *p, enum tensor_type type, struct kv_layout *out)
{
    uint64_t full, largest, bytes;
    memset(out, 0, sizeof *out);
    measure(p, type, &full, &largest);
    /* Without layers that attend to all positions nothing would be in group 0. */
    bool windowed = full > 0 && largest > 0;
    bytes = full > largest ? full : largest;
    out->n_groups = place_layers(p, type, windowed, bytes, out->layers);
    while (out->n_groups > KV_GROUPS_MOST) {
        bytes += largest;
        out->n_groups = place_layers(p, type, windowed, bytes, out->layers);
    }
    if (!windowed) {
        uint32_t last = p->n_layers - 1;
        bytes = out->layers[last].offset + layer_bytes(p, last, type);
    }
    out->window = windowed ? params_windows(p).largest : 0;
    out->page_bytes = round_up(bytes, KV_POOL_ALIGN);
}

static uint32_t pages_of(uint64_t positions)
{
    return (uint32_t)((positions + KV_POOL_TOKENS - 1) / KV_POOL_TOKENS);
}

uint32_t kv_layout_window_pages(const struct kv_layout *l, uint32_t batch)
{
    /* The first row of a batch sees window - 1 positions before it; both ends may lie inside a
     * page. */
    return l->window ? pages_of((uint64_t)l->window - 1 + batch) + 1 : 0;
}

uint64_t kv_layout_pages(const struct kv_layout *l, uint32_t positions, uint32_t batch)
{
    uint32_t all = pages_of(positions), windowed = kv_layout_window_pages(l, batch);
    return all + (uint64_t)kv_layout_windowed(l) * (all < windowed ? all : windowed);
}

uint64_t kv_layout_positions(const struct kv_layout *l, uint32_t n_pages, uint32_t batch)
{
    uint32_t windowed = kv_layout_window_pages(l, batch);
    uint64_t pages = n_pages / l->n_groups; /* of each group, while none is left behind */
    if (windowed > 0 && pages >= windowed)
        pages = n_pages - (uint64_t)kv_layout_windowed(l) * windowed;
    return pages * KV_POOL_TOKENS;
}
