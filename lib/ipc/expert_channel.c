/* The region between worker and CPU executor; see expert_channel.h. */
#include "ipc/expert_channel.h"

#include "base/checked.h"
#include "ipc/lease_offer.h"

#include <inttypes.h>

_Static_assert(EXPERT_ACCEPT == EXPERT_OFFER + LEASE_OFFER_ACCEPTED &&
                   EXPERT_REFUSE == EXPERT_OFFER + LEASE_OFFER_REFUSED,
               "answers of lease_offer.h");

static uint64_t align(uint64_t x)
{
    return round_up(x, 64);
}

static struct expert_channel_header layout(uint32_t max_tokens, uint32_t n_used, uint32_t n_experts,
                                           uint32_t d_model)
{
    struct expert_channel_header h = {
        .magic = EXPERT_CHANNEL_MAGIC,
        .version = EXPERT_CHANNEL_VERSION,
        .max_tokens = max_tokens,
        .max_tasks = n_experts,
        .max_rows = max_tokens * n_used,
        .d_model = d_model,
    };
    h.jobs_offset = align(sizeof h);
    h.completions_offset = align(h.jobs_offset + ring_bytes(EXPERT_RING_RECORDS));
    h.tasks_offset = align(h.completions_offset + ring_bytes(EXPERT_RING_RECORDS));
    h.indices_offset =
        align(h.tasks_offset + (uint64_t)h.max_tasks * sizeof(struct expert_task_record));
    h.groups_offset = align(h.indices_offset + (uint64_t)h.max_rows * sizeof(uint32_t));
    h.x_offset =
        align(h.groups_offset + (uint64_t)h.max_tokens * sizeof(struct expert_group_record));
    h.out_offset = align(h.x_offset + (uint64_t)h.max_tokens * d_model * sizeof(float));
    h.bytes = align(h.out_offset + (uint64_t)h.max_rows * d_model * sizeof(float));
    return h;
}

size_t expert_channel_bytes(uint32_t max_tokens, uint32_t n_used, uint32_t n_experts,
                            uint32_t d_model)
{
    return layout(max_tokens, n_used, n_experts, d_model).bytes;
}

void expert_channel_init(void *memory, uint32_t max_tokens, uint32_t n_used, uint32_t n_experts,
                         uint32_t d_model, uint64_t pool_generation)
{
    struct expert_channel_header h = layout(max_tokens, n_used, n_experts, d_model);
    uint8_t *base = memory;
    h.pool_generation = pool_generation;
    *(struct expert_channel_header *)memory = h;
    ring_init(base + h.jobs_offset, EXPERT_RING_RECORDS);
    ring_init(base + h.completions_offset, EXPERT_RING_RECORDS);
}

/* The offsets follow from the sizes, so they are recomputed here and the header's are not used. */
enum error_code expert_channel_attach(struct expert_channel *c, void *memory, size_t bytes,
                                      struct error *e)
{
    uint8_t *base = memory;
    struct expert_channel_header *h = memory;
    if (bytes < sizeof *h || h->magic != EXPERT_CHANNEL_MAGIC)
        return error_set(e, ERROR_PROTOCOL, "expert channel: no header found");
    if (h->version != EXPERT_CHANNEL_VERSION)
        return error_set(e, ERROR_VERSION, "expert channel: version %" PRIu32 ", expected %u",
                         h->version, EXPERT_CHANNEL_VERSION);
    uint32_t max_tokens = h->max_tokens, max_rows = h->max_rows, max_tasks = h->max_tasks;
    uint32_t d_model = h->d_model;
    if (max_tokens == 0 || max_tokens > 1u << 20 || d_model == 0 || d_model > 1u << 20 ||
        max_tasks == 0 || max_tasks > 1u << 20 || max_rows / max_tokens > 1u << 12 ||
        max_rows % max_tokens)
        return error_set(e, ERROR_PROTOCOL, "expert channel: invalid sizes");
    struct expert_channel_header own =
        layout(max_tokens, max_rows / max_tokens, max_tasks, d_model);
    if (own.bytes > bytes)
        return error_set(e, ERROR_PROTOCOL,
                         "expert channel: %" PRIu64 " bytes needed, the region has %zu", own.bytes,
                         bytes);
    struct expert_channel channel = {.header = h,
                                     .max_tokens = max_tokens,
                                     .max_tasks = max_tasks,
                                     .max_rows = max_rows,
                                     .d_model = d_model};
    enum error_code code =
        ring_attach(&channel.jobs, base + own.jobs_offset, ring_bytes(EXPERT_RING_RECORDS), e);
    if (!code)
        code = ring_attach(&channel.completions, base + own.completions_offset,
                           ring_bytes(EXPERT_RING_RECORDS), e);
    if (code)
        return code;
    channel.tasks = (struct expert_task_record *)(base + own.tasks_offset);
    channel.indices = (uint32_t *)(base + own.indices_offset);
    channel.groups = (struct expert_group_record *)(base + own.groups_offset);
    channel.x = (float *)(base + own.x_offset);
    channel.out = (float *)(base + own.out_offset);
    *c = channel;
    return ERROR_OK;
}
