/* A table from token ids to the experts that the token activated before, by layer. Each row counts,
 * of the token's last visits to a layer, those that activated an expert: at most
 * TOKEN_TABLE_VISITS - 1 visits, then visits and counts are halved. A row lists TOKEN_TABLE_LIST
 * times as many experts as a token activates, the latest first; older ones are forgotten.
 *
 * The table has a fixed number of rows, in sets of TOKEN_TABLE_WAYS. A token's id chooses the set;
 * a new token replaces the row of the set that was visited the longest ago. All calls take constant
 * time.
 *
 * Layers count from 0, only those with experts. */
#ifndef MOED_SCHED_PREDICT_TOKEN_TABLE_H
#define MOED_SCHED_PREDICT_TOKEN_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { TOKEN_TABLE_VISITS = 16, TOKEN_TABLE_LIST = 2, TOKEN_TABLE_WAYS = 4 };

struct token_table_shape {
    uint32_t n_layers, n_used;
    uint32_t n_tokens; /* rows; rounded up to whole sets */
};

struct token_table;
struct token_table *token_table_new(const struct token_table_shape *shape); /* NULL: no memory */
void token_table_free(struct token_table *t);                               /* takes NULL */
size_t token_table_bytes_per_token(const struct token_table_shape *shape);

/* What the last visits of a token to a layer activated. */
struct token_visits {
    uint32_t visits; /* 1 to TOKEN_TABLE_VISITS - 1 */
    uint32_t n;      /* experts; the first n_used are those of the last visit */
    const uint16_t *experts;
    const uint8_t *counts; /* visits that activated the expert, 1 to `visits` */
};
/* False: the token has no row, or has not visited the layer since it has one. Valid until the next
 * call of token_table_visit. */
bool token_table_find(const struct token_table *t, uint32_t id, uint32_t layer,
                      struct token_visits *out);
/* The token visited the layer, which activated `selected`, [n_used], all different. */
void token_table_visit(struct token_table *t, uint32_t id, uint32_t layer,
                       const uint32_t *selected);

#endif
