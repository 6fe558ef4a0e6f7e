/* The place map; see place_map.h. */
#include "place_map.h"

#include "base/arrays.h"

#include "memory.pb-c.h"

#include <stdlib.h>

static uint32_t count_rows(const struct place_map_sources *s)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < s->n_layers; i++)
        n += s->slabs[i].n_experts > 0;
    return n;
}

enum error_code place_map_new(const struct place_map_sources *sources, struct place_map **out,
                              struct error *e)
{
    uint32_t n_rows = count_rows(sources), row = 0;
    size_t n = (size_t)n_rows * sources->n_experts;
    struct place_map *m = calloc(1, sizeof *m);
    if (!m || n > UINT32_MAX / 8 ||
        !ARRAYS_NEW(ARRAY(m->versions, n), ARRAY(m->layers, n_rows), ARRAY(m->changes, n),
                    ARRAY(m->places, n))) {
        free(m);
        return error_set(e, ERROR_MEMORY, "no memory for the map of experts");
    }
    m->sources = *sources;
    m->n_rows = n_rows;
    m->n_cells = (uint32_t)n;
    for (uint32_t i = 0; i < sources->n_layers; i++)
        if (sources->slabs[i].n_experts)
            m->layers[row++] = i;
    *out = m;
    return ERROR_OK;
}

void place_map_free(struct place_map *m)
{
    if (m)
        free(m->versions); /* the first array: its memory holds all */
    free(m);
}

static uint8_t place_of(const struct place_map_sources *s, uint32_t layer, uint32_t expert)
{
    unsigned whole = 0, part = 0, arriving = 0;
    for (unsigned i = 0; i < s->n_devices; i++) {
        struct residency r = residency_read(&s->residency[i], layer, expert);
        whole += r.resident && r.resident >= s->slabs[layer].n_segments;
        part += r.resident > 0;
        arriving += r.in_flight > 0;
    }
    if (whole && whole == s->n_devices)
        return MOED__V1__EXPERT_PLACE__ON_DEVICE;
    if (arriving)
        return MOED__V1__EXPERT_PLACE__ARRIVING;
    if (part)
        return MOED__V1__EXPERT_PLACE__PARTLY_ON_DEVICE;
    if (!s->tier || host_tier_read(s->tier, layer, expert).slot_and_one)
        return MOED__V1__EXPERT_PLACE__IN_HOST_MEMORY;
    return MOED__V1__EXPERT_PLACE__IN_FILE;
}

void place_map_update(struct place_map *m)
{
    const struct place_map_sources *s = &m->sources;
    bool first = m->version == 0, changed = first;
    uint64_t next = m->version + 1;
    for (uint32_t i = 0; i < m->n_cells; i++) {
        uint8_t place = place_of(s, m->layers[i / s->n_experts], i % s->n_experts);
        if (place == m->places[i] && !first)
            continue;
        m->places[i] = place;
        m->versions[i] = next;
        changed = true;
    }
    m->version += changed;
}

uint32_t place_map_changes_since(struct place_map *m, uint64_t version)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < m->n_cells; i++)
        if (m->versions[i] > version)
            m->changes[n++] = 8 * i + m->places[i];
    return n;
}
