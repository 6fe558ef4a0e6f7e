/* Versions of shared layouts; see layouts.h. */
#include "memory/layouts.h"

#include "ipc/cache_channel.h"
#include "ipc/expert_channel.h"
#include "ipc/host_tier.h"
#include "ipc/kv_store.h"
#include "ipc/residency.h"
#include "ipc/ring.h"
#include "ipc/rpc.h"
#include "model/pool_map.h"

#include <stdio.h>

enum { BITS = 7 }; /* of a version */

/* A layout that is new comes last, so that older numbers keep their meaning. */
static const struct {
    const char *name;
    unsigned version;
} layouts[] = {
    {"messages", CONTROL_ABI},
    {"host pool", POOL_LAYOUT_VERSION},
    {"residency table", RESIDENCY_LAYOUT_VERSION},
    {"host tier", HOST_TIER_LAYOUT_VERSION},
    {"KV pool", KV_POOL_LAYOUT_VERSION},
    {"index of conversations", KV_STORE_LAYOUT_VERSION},
    {"cache channel", CACHE_CHANNEL_VERSION},
    {"expert channel", EXPERT_CHANNEL_VERSION},
    {"ring", RING_LAYOUT_VERSION},
};
#define N_LAYOUTS (sizeof layouts / sizeof *layouts)
_Static_assert(N_LAYOUTS *BITS <= 64, "all versions in one number");
_Static_assert(CONTROL_ABI < 1 << BITS && POOL_LAYOUT_VERSION < 1 << BITS &&
                   RESIDENCY_LAYOUT_VERSION < 1 << BITS && KV_POOL_LAYOUT_VERSION < 1 << BITS &&
                   CACHE_CHANNEL_VERSION < 1 << BITS && EXPERT_CHANNEL_VERSION < 1 << BITS,
               "a version has its bits");

uint64_t layouts_number(void)
{
    uint64_t number = 0;
    for (size_t i = 0; i < N_LAYOUTS; i++)
        number |= (uint64_t)layouts[i].version << i * BITS;
    return number;
}

const char *layouts_difference(uint64_t other, char *text, size_t bytes)
{
    size_t len = 0;
    text[0] = '\0';
    for (size_t i = 0; i < N_LAYOUTS; i++) {
        unsigned version = other >> i * BITS & ((1u << BITS) - 1);
        if (version == layouts[i].version || len >= bytes)
            continue;
        int n = snprintf(text + len, bytes - len, "%s%s %u (here %u)", len ? ", " : "",
                         layouts[i].name, version, layouts[i].version);
        len += n > 0 ? (size_t)n : 0;
    }
    return text;
}
