/* The probability of an expert by its place in the expert map that was found (ours): the share of
 * experts at that place that were activated. A place is the expert's rank in the map's row and the
 * map's similarity, in classes: the most probable expert of a nearly equal map is almost certain,
 * that of a dissimilar one is not. Shares are a layer's, over its tokens so far, half as much after
 * HALF_LIFE tokens of a class.
 *
 * Layers count from 0, only those with experts. */
#ifndef MOED_SCHED_PREDICT_MAP_SHARES_H
#define MOED_SCHED_PREDICT_MAP_SHARES_H

#include <stdint.h>

struct map_shares;
struct map_shares *map_shares_new(uint32_t n_layers, uint32_t n_experts, uint32_t n_used,
                                  uint32_t max_tokens); /* NULL: no memory */
void map_shares_free(struct map_shares *s);             /* takes NULL */

/* A map with this score was found for a token of the step. order: its row's experts, the most
 * probable first, [n_experts]. */
void map_shares_found(struct map_shares *s, uint64_t step, uint32_t layer, uint32_t token,
                      double score, const uint16_t *order);
/* The share of a rank of the map that was found last. */
double map_shares_of(const struct map_shares *s, uint32_t layer, uint32_t token, uint32_t rank);
/* The layer activated `selected`, [n_tokens][n_used]: updates the shares. */
void map_shares_check(struct map_shares *s, uint64_t step, uint32_t layer, uint32_t n_tokens,
                      const uint32_t *selected);

#endif
