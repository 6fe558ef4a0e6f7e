/* What a place in a found expert map is worth: the share of experts there that were then activated. A place is the expert's rank in the
 * map's row, and how alike the map was, in classes: the most probable expert of a map that is nearly the same is almost
 * certain, that of one hardly like it is not. Shares are a layer's, over its tokens so far, half as much after
 * HALF_LIFE tokens of a class.
 *
 * Layers count from 0, those with experts alone. */
#ifndef MOED_SCHED_MAP_SHARES_H
#define MOED_SCHED_MAP_SHARES_H

#include <stdint.h>

struct map_shares;
struct map_shares *map_shares_new(uint32_t n_layers, uint32_t n_experts, uint32_t n_used,
                                  uint32_t max_tokens); /* NULL: no memory */
void map_shares_free(struct map_shares *s);             /* takes NULL */

/* A map with this score was found for a token of the step: its row's experts in order, the most probable first, [n_experts]. */
void map_shares_found(struct map_shares *s, uint64_t step, uint32_t layer, uint32_t token,
                      double score, const uint16_t *order);
/* The share of its place, of the map that was found last. */
double map_shares_of(const struct map_shares *s, uint32_t layer, uint32_t token, uint32_t rank);
/* What the layer activated, [n_tokens][n_used]. */
void map_shares_check(struct map_shares *s, uint64_t step, uint32_t layer, uint32_t n_tokens,
                      const uint32_t *selected);

#endif
