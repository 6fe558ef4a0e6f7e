/* FineMoE's store of expert maps (its sections 4.2 and 4.4): what the gates gave every expert in
 * one iteration (a token's way through all layers). It keeps the iterations that differ most, and
 * is searched for similar ones while another iteration goes on.
 *
 * A map is one row of gate probabilities for each layer with experts, and the embedding layer's
 * output. Departure: numbers are kept in 8 bits, of a row as value / largest * 127, so a map of
 * Qwen3-30B-A3B (48 layers, 128 experts, d_model 2048) takes 8.4 KiB and 1,000 of them 8.2 MiB.
 * The searching iteration is rounded in the same way.
 *
 * Similarity is the cosine: semantic of the embeddings (the paper's equation 4), of the trajectory
 * over all layers shown so far, taken as one long vector (equation 5). Its sums run with the
 * iteration, so a layer costs one pass over capacity x n_experts, whatever came before it.
 *
 * Layers count from 0, only those with experts. */
#ifndef MOED_SCHED_PREDICT_MAP_STORE_H
#define MOED_SCHED_PREDICT_MAP_STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct map_store_shape {
    uint32_t n_layers, n_experts, d_model;
    uint32_t max_tokens; /* of an iteration */
    uint32_t capacity;   /* maps, at least 1 */
    uint32_t distance;   /* d of the redundancy, at most n_layers */
};

/* Bytes that each map takes. */
size_t map_store_bytes_per_map(const struct map_store_shape *shape);

struct map_store;
struct map_store *map_store_new(const struct map_store_shape *shape); /* NULL: no memory */
void map_store_free(struct map_store *s);                             /* takes NULL */
uint32_t map_store_count(const struct map_store *s);                  /* for tests */

/* Begins an iteration of n_tokens; drops one that had not ended. Each token has a search and a map
 * of its own. */
void map_store_begin(struct map_store *s, uint32_t n_tokens);
/* [n_tokens][d_model] */
void map_store_embedding(struct map_store *s, const float *embedding);
/* The next layer, or a later one; others are ignored. gate: [n_tokens][n_experts]. A row is divided
 * by its sum; a row without one counts as zeros. */
void map_store_layer(struct map_store *s, uint32_t layer, const float *gate);
/* Stores the iteration's maps if the embedding and every layer were shown, else nothing: a partial
 * map would be unlike all others. Once the store is full a map replaces the one with the highest
 * redundancy, RDY = d / L * semantic + (L - d) / L * trajectory (section 4.4), of those from
 * earlier iterations: the paper compares a batch's maps with the old ones only. */
void map_store_end(struct map_store *s);

/* The similarity of one of the iteration's tokens with one map, so far; 0 if either has no length.
 */
double map_store_semantic(const struct map_store *s, uint32_t token, uint32_t map);
double map_store_trajectory(const struct map_store *s, uint32_t token, uint32_t map);

/* The most similar map, of equal ones the newest, and its score. False: the store is empty, or
 * nothing was shown to compare with. */
struct map_found {
    uint32_t map;
    double score;
};
bool map_store_find_semantic(const struct map_store *s, uint32_t token, struct map_found *out);
bool map_store_find_trajectory(const struct map_store *s, uint32_t token, struct map_found *out);

/* A layer of a map: n_experts numbers of 0 to 127; row[e] * *scale is the probability. */
const int8_t *map_store_row(const struct map_store *s, uint32_t map, uint32_t layer, float *scale);

#endif
