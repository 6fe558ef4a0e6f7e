/* The plan of the host tier; see tier_plan.h. */
#include "model/tier_plan.h"

#include "base/checked.h"
#include "base/quantity.h"
#include "ipc/host_tier.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

enum { LEAST_SLOTS = 8 };

static enum error_code parse_ram(const char *ram, uint64_t whole, uint64_t *bytes, struct error *e)
{
    return quantity_parse_size_of(ram, strlen(ram), whole, bytes) && *bytes > 0
               ? ERROR_OK
               : error_set(e, ERROR_USAGE,
                           "--ram '%.40s': expected " QUANTITY_SIZE
                           " or a share of the model's weights, as 50%%",
                           ram);
}

static enum error_code too_little(const struct pool_plan *plan, uint64_t least, uint64_t slots,
                                  const char *ram, struct error *e)
{
    const struct pool_header *h = &plan->header;
    if (least >= h->bytes)
        return error_set(
            e, ERROR_USAGE,
            "--ram %.40s is too little for %s: the model has too few experts to read them from the "
            "file, so it needs %.1fM",
            ram, h->path, ceil((double)h->bytes * 1e-5) / 10);
    return error_set(
        e, ERROR_USAGE,
        "--ram %.40s is too little for %s: expected at least %.1fM, for %.1f MB of dense weights "
        "and %" PRIu64 " experts of %" PRIu64,
        ram, h->path, ceil((double)least * 1e-5) / 10, (double)h->dense_bytes * 1e-6, slots,
        (uint64_t)(h->n_layers - h->params.n_dense) * h->params.router.n_experts);
}

enum error_code tier_plan_new(const struct pool_plan *plan, const char *ram, struct tier_plan *out,
                              struct error *e)
{
    const struct pool_header *h = &plan->header;
    struct tier_plan tier = {0};
    uint64_t bytes, total = 0;
    if (!ram) {
        *out = tier;
        return ERROR_OK;
    }
    enum error_code code = parse_ram(ram, h->bytes, &bytes, e);
    if (code)
        return code;
    for (uint32_t i = 0; i < h->n_layers; i++) {
        const struct pool_slabs *s = &plan->slabs[i];
        total += s->n_experts;
        if (s->n_experts && s->slab_bytes > tier.slot_bytes)
            tier.slot_bytes = s->slab_bytes;
    }
    tier.slot_bytes = round_up(tier.slot_bytes, HOST_TIER_PAGE);
    if (bytes >= h->bytes) {
        *out = (struct tier_plan){0};
        return ERROR_OK;
    }
    uint64_t least = 2ull * h->params.router.n_used;
    least = least > LEAST_SLOTS ? least : LEAST_SLOTS;
    /* slabs come last in the pool: their removal moves nothing else */
    uint64_t dense = h->n_layers ? plan->slabs[0].offset : h->bytes;
    uint64_t fixed = dense + host_tier_slots_offset(h->n_layers, h->params.router.n_experts);
    uint64_t n = bytes > fixed && total ? (bytes - fixed) / tier.slot_bytes : 0;
    if (n < least || n > UINT32_MAX - 1 || total <= least)
        return too_little(plan, total <= least ? h->bytes : fixed + least * tier.slot_bytes, least,
                          ram, e);
    tier.n_slots = (uint32_t)(n < total ? n : total);
    tier.bytes =
        host_tier_bytes(h->n_layers, h->params.router.n_experts, tier.slot_bytes, tier.n_slots);
    tier.read_bytes = TIER_READERS * tier.slot_bytes;
    *out = tier;
    return ERROR_OK;
}
