/* The residency table; see residency.h. */
#include "ipc/residency.h"

#include <inttypes.h>

size_t residency_bytes(uint32_t n_layers, uint32_t n_experts, uint32_t n_segments)
{
    size_t n = (size_t)n_layers * n_experts;
    return sizeof(struct residency_header) +
           n * (sizeof(uint64_t) + n_segments * (sizeof(uint64_t) + sizeof(uint32_t)));
}

void residency_init(void *memory, uint32_t n_layers, uint32_t n_experts, uint32_t n_segments,
                    uint64_t slot_bytes, uint64_t n_slots, uint64_t generation)
{
    struct residency_header *h = memory;
    *h = (struct residency_header){
        .magic = RESIDENCY_MAGIC,
        .layout_version = RESIDENCY_LAYOUT_VERSION,
        .n_layers = n_layers,
        .n_experts = n_experts,
        .n_segments = n_segments,
        .generation = generation,
        .slot_bytes = slot_bytes,
        .n_slots = n_slots,
        .slots = {1, 1},
        .kv_bytes = UINT64_MAX,
    };
}

enum error_code residency_attach(struct residency_table *t, void *memory, size_t bytes,
                                 struct error *e)
{
    const struct residency_header *h = memory;
    if (bytes < sizeof *h || h->magic != RESIDENCY_MAGIC)
        return error_set(e, ERROR_PROTOCOL, "residency table: no header found");
    if (h->layout_version != RESIDENCY_LAYOUT_VERSION)
        return error_set(e, ERROR_VERSION,
                         "residency table: layout version %" PRIu32 ", expected %u",
                         h->layout_version, RESIDENCY_LAYOUT_VERSION);
    struct residency_table table = {.header = h,
                                    .n_layers = h->n_layers,
                                    .n_experts = h->n_experts,
                                    .n_segments = h->n_segments};
    if (table.n_layers > 1u << 16 || table.n_experts > 1u << 16 || table.n_segments > 255 ||
        residency_bytes(table.n_layers, table.n_experts, table.n_segments) > bytes ||
        h->slots.first == 0 || h->slots.each == 0)
        return error_set(e, ERROR_PROTOCOL,
                         "residency table: %" PRIu32 " layers of %" PRIu32
                         " experts do not fit the %zu bytes there are",
                         table.n_layers, table.n_experts, bytes);
    table.words = (_Atomic uint64_t *)((uint8_t *)memory + sizeof *h);
    table.arriving = table.words + (size_t)table.n_layers * table.n_experts;
    table.slots = (_Atomic uint32_t *)(table.arriving +
                                       (size_t)table.n_layers * table.n_experts * table.n_segments);
    *t = table;
    return ERROR_OK;
}
