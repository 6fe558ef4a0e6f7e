/* What a place in a found expert map is worth; see map_shares.h. */
#include "base/arrays.h"
#include "sched/predict/map_shares.h"
#include "sched/predict/predict_history.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { CLASSES = 8 };
#define HALF_LIFE 2048.0
/* A share starts as if of this many tokens, in which the first n_used experts of a map were
 * activated half of the time, the others evenly. */
#define FIRST_TOKENS 4.0

struct found_map {
    uint64_t step; /* 0: none */
    uint32_t class;
};

struct map_shares {
    uint32_t n_layers, n_experts, n_used, max_tokens;
    double *tokens;          /* [n_layers][CLASSES]: decayed */
    float *activated;        /* [n_layers][CLASSES][n_experts]: decayed, by rank */
    struct found_map *found; /* [n_layers][max_tokens] */
    uint16_t *order;         /* [n_layers][max_tokens][n_experts] */
    bool *is_used;           /* [n_experts]; all false between calls */
};

struct map_shares *map_shares_new(uint32_t n_layers, uint32_t n_experts, uint32_t n_used,
                                  uint32_t max_tokens)
{
    size_t classes = (size_t)n_layers * CLASSES, tokens = (size_t)n_layers * max_tokens;
    struct map_shares *s, new = {.n_layers = n_layers,
                                 .n_experts = n_experts,
                                 .n_used = n_used,
                                 .max_tokens = max_tokens};
    if (!ARRAYS_NEW(ARRAY(s, 1), ARRAY(new.tokens, classes),
                    ARRAY(new.activated, classes * n_experts), ARRAY(new.found, tokens),
                    ARRAY(new.order, tokens * n_experts), ARRAY(new.is_used, n_experts)))
        return NULL;
    *s = new;
    return s;
}

void map_shares_free(struct map_shares *s)
{
    free(s);
}

/* Cosines up to 1/2, 3/4, 7/8, ... 127/128, and above. */
static uint32_t class_of(double score)
{
    uint32_t c = 0;
    for (double most = 0.5; c < CLASSES - 1 && score > 1 - most; most /= 2)
        c++;
    return c;
}

void map_shares_found(struct map_shares *s, uint64_t step, uint32_t layer, uint32_t token,
                      double score, const uint16_t *order)
{
    size_t place = (size_t)layer * s->max_tokens + token;
    s->found[place] = (struct found_map){step, class_of(score)};
    memcpy(s->order + place * s->n_experts, order, s->n_experts * sizeof *order);
}

double map_shares_of(const struct map_shares *s, uint32_t layer, uint32_t token, uint32_t rank)
{
    const struct found_map *f = &s->found[(size_t)layer * s->max_tokens + token];
    size_t class = (size_t)layer * CLASSES + f->class;
    double n_others = s->n_experts > s->n_used ? s->n_experts - s->n_used : 1;
    double first = rank < s->n_used ? 0.5 : fmin(0.5 * s->n_used / n_others, 0.5);
    return ((double)s->activated[class * s->n_experts + rank] + first * FIRST_TOKENS) /
           (s->tokens[class] + FIRST_TOKENS);
}

static void check_token(struct map_shares *s, size_t class, const uint16_t *order,
                        const uint32_t *selected)
{
    double decay = exp2(-1 / HALF_LIFE);
    float *activated = s->activated + class * s->n_experts;
    s->tokens[class] = s->tokens[class] * decay + 1;
    for (uint32_t k = 0; k < s->n_used; k++)
        s->is_used[selected[k]] = true;
    for (uint32_t rank = 0; rank < s->n_experts; rank++)
        activated[rank] = (float)predict_history_decayed((double)activated[rank], decay) +
                          (float)s->is_used[order[rank]];
    for (uint32_t k = 0; k < s->n_used; k++)
        s->is_used[selected[k]] = false;
}

void map_shares_check(struct map_shares *s, uint64_t step, uint32_t layer, uint32_t n_tokens,
                      const uint32_t *selected)
{
    for (uint32_t t = 0; t < n_tokens && t < s->max_tokens; t++) {
        size_t place = (size_t)layer * s->max_tokens + t;
        struct found_map *f = &s->found[place];
        if (!f->step || f->step != step)
            continue;
        check_token(s, (size_t)layer * CLASSES + f->class, s->order + place * s->n_experts,
                    selected + (size_t)t * s->n_used);
        f->step = 0;
    }
}
