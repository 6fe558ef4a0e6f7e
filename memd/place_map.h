/* The map of where each routed expert is, for people who watch (docs/http.md). memd compares the
 * residency table and the host tier with the map when a request comes, and does nothing otherwise.
 *
 * Every change of the map has a version, so any number of requesters can each ask for the changes
 * since their last request. The control thread only. */
#ifndef MOED_MEMD_PLACE_MAP_H
#define MOED_MEMD_PLACE_MAP_H

#include "base/error.h"
#include "ipc/host_tier.h"
#include "ipc/residency.h"
#include "model/pool_map.h"

#include <stdint.h>

struct place_map_sources {
    const struct pool_slabs *slabs; /* [n_layers] */
    uint32_t n_layers, n_experts;
    const struct residency_table *residency; /* [n_devices] */
    unsigned n_devices;
    const struct host_tier *tier; /* NULL: all experts are in host memory */
};

/* Rows are the layers with routed experts. An expert's index is row * n_experts + expert. */
struct place_map {
    struct place_map_sources sources;
    uint32_t n_rows, n_cells;
    uint32_t *layers;   /* [n_rows] */
    uint8_t *places;    /* [n_cells]: Moed__V1__ExpertPlace */
    uint64_t *versions; /* [n_cells]: of its last change */
    uint32_t *changes;  /* [n_cells] */
    uint64_t version;   /* 0: never updated */
};

/* Copies *sources, borrows what they point to. ERROR_MEMORY. */
enum error_code place_map_new(const struct place_map_sources *sources, struct place_map **out,
                              struct error *e);
void place_map_free(struct place_map *m); /* takes NULL */

/* Looks where the experts are now. */
void place_map_update(struct place_map *m);
/* Fills m->changes with 8 * index + place of the experts whose place has changed after that
 * version, ascending. Returns their number. */
uint32_t place_map_changes_since(struct place_map *m, uint64_t version);

#endif
