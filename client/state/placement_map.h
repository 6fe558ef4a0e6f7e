/* The placement map of a deployment, for `moed map --json` and moed-http: where each routed expert
 * is (memd), how often it was activated lately and whether by the latest step (the worker). memd
 * sends what has changed since the last fetch. One thread at a time. */
#ifndef MOED_CLIENT_STATE_PLACEMENT_MAP_H
#define MOED_CLIENT_STATE_PLACEMENT_MAP_H

#include "base/error.h"
#include "base/strbuf.h"

#include <stdbool.h>
#include <stdint.h>

/* Of each expert; an expert's index is row * experts + its number. */
struct expert_cells {
    uint8_t *place;  /* ExpertPlace of memory.proto */
    uint8_t *use;    /* 0 to 255: the square root of the share of steps that activated it */
    uint8_t *chosen; /* 1: the latest step activated it */
};

struct placement_map {
    uint64_t generation, version; /* memd's */
    uint64_t step;                /* of all workers, that were counted; 0: none */
    uint64_t step_before;
    char model[96]; /* the model file's name without .gguf */
    char policy[64];
    uint32_t n_layers, experts, experts_used, n_cells;
    uint32_t *layers;
    struct expert_cells now, before; /* [n_cells] */
    bool is_new; /* another model or policy than at the fetch before: the map must be shown whole */
};

void placement_map_init(struct placement_map *m);
void placement_map_fini(struct placement_map *m);

/* Asks memd and the worker of the deployment in RUN. `now` becomes `before`. A worker that does not
 * answer counts as one that has activated nothing. */
enum error_code placement_map_fetch(struct placement_map *m, const char *run, struct error *e);

/* Appends the object of GET /moed/map. deployment: its name, "default" where nobody chose one. */
void placement_map_json(const struct placement_map *m, const char *deployment, struct strbuf *out);
/* Appends {"step", "cells": [[index, place, use, chosen], ...]}: what the last fetch changed.
 * Returns false, and appends nothing, where that is nothing. */
bool placement_map_change_json(const struct placement_map *m, struct strbuf *out);

#endif
