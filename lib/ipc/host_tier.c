/* The host tier's region; see host_tier.h. */
#include "ipc/host_tier.h"

#include <inttypes.h>

void host_tier_init(void *memory, uint32_t n_layers, uint32_t n_experts, uint64_t slot_bytes,
                    uint32_t n_slots, uint64_t generation)
{
    struct host_tier_header *h = memory;
    h->magic = HOST_TIER_MAGIC;
    h->layout_version = HOST_TIER_LAYOUT_VERSION;
    h->n_layers = n_layers;
    h->n_experts = n_experts;
    h->n_slots = n_slots;
    h->generation = generation;
    h->slot_bytes = slot_bytes;
    h->slots_offset = host_tier_slots_offset(n_layers, n_experts);
}

enum error_code host_tier_attach(struct host_tier *t, void *memory, size_t bytes, struct error *e)
{
    struct host_tier_header *h = memory;
    if (bytes < sizeof *h || h->magic != HOST_TIER_MAGIC)
        return error_set(e, ERROR_PROTOCOL, "host tier: no header found");
    if (h->layout_version != HOST_TIER_LAYOUT_VERSION)
        return error_set(e, ERROR_VERSION, "host tier: layout version %" PRIu32 ", expected %u",
                         h->layout_version, HOST_TIER_LAYOUT_VERSION);
    struct host_tier tier = {.header = h,
                             .n_layers = h->n_layers,
                             .n_experts = h->n_experts,
                             .n_slots = h->n_slots,
                             .slot_bytes = h->slot_bytes};
    if (tier.n_layers > 1u << 16 || tier.n_experts > 1u << 16 || tier.n_slots == 0 ||
        tier.slot_bytes == 0 || tier.slot_bytes % HOST_TIER_PAGE ||
        h->slots_offset != host_tier_slots_offset(tier.n_layers, tier.n_experts) ||
        h->slots_offset > bytes || tier.n_slots > (bytes - h->slots_offset) / tier.slot_bytes)
        return error_set(e, ERROR_PROTOCOL,
                         "host tier: %" PRIu32 " slots of %" PRIu64 " bytes do not fit the %zu "
                         "bytes there are",
                         tier.n_slots, tier.slot_bytes, bytes);
    tier.words = (_Atomic uint64_t *)(h + 1);
    tier.slots = (const uint8_t *)memory + h->slots_offset;
    *t = tier;
    return ERROR_OK;
}
