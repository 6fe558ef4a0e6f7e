/* Blends predictions; see blend.h. */
#include "base/arrays.h"
#include "sched/predict/blend.h"

#include "sched/predict/logistic.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

_Static_assert((int)BLEND_MOST <= (int)LOGISTIC_MOST, "a part is a feature");

enum { GROUPS = 3, LAYER_STEPS = 64 };
#define CLIP 0x1p-10

/* A part's last prediction of a layer. */
struct spoken {
    uint64_t step;
    uint32_t n_tokens; /* 0: nothing yet */
};

/* A pattern in a layer. */
struct pattern_use {
    uint8_t steps; /* seen, at most LAYER_STEPS */
    uint8_t own;   /* 1 + the place in of_layers; 0: the group's weights */
};
_Static_assert(LAYER_STEPS <= UINT8_MAX && BLEND_OWN < UINT8_MAX, "they are bytes");

struct blend {
    struct blend_shape shape;
    uint32_t n_padded;          /* experts, rounded up to whole lanes */
    struct spoken *spoken;      /* [n_layers][n_parts] */
    float *rows;                /* [n_layers][n_parts][n_padded] */
    struct logistic *of_groups; /* [GROUPS][2^n_parts] */
    struct logistic *of_layers; /* [n_layers][BLEND_OWN] */
    struct pattern_use *uses;   /* [n_layers][2^n_parts] */
    uint32_t *n_own;            /* [n_layers]: of_layers in use */
    /* what was predicted last, for blend_check */
    struct {
        uint64_t step;
        uint32_t layer, n_tokens, pattern; /* 0: nothing */
    } last;
    float *x;                             /* [n_parts][n_padded] */
    float *p, *target, *scratch;          /* [n_padded] */
    const float *features[LOGISTIC_MOST]; /* into x, of the parts that had spoken */
};

static struct blend *allocate(const struct blend_shape *s)
{
    size_t n = (s->n_experts + LOGISTIC_LANES - 1) / LOGISTIC_LANES * LOGISTIC_LANES;
    size_t parts = (size_t)s->n_layers * s->n_parts, patterns = (size_t)1 << s->n_parts;
    struct blend *b, new = {.shape = *s, .n_padded = (uint32_t)n};
    if (!ARRAYS_NEW(ARRAY(b, 1), ARRAY(new.spoken, parts), ARRAY(new.rows, parts * n),
                    ARRAY(new.of_groups, GROUPS * patterns),
                    ARRAY(new.of_layers, (size_t)s->n_layers * BLEND_OWN),
                    ARRAY(new.uses, s->n_layers * patterns), ARRAY(new.n_own, s->n_layers),
                    ARRAY(new.x, s->n_parts * n), ARRAY(new.p, n), ARRAY(new.target, n),
                    ARRAY(new.scratch, n)))
        return NULL;
    *b = new;
    return b;
}

struct blend *blend_new(const struct blend_shape *shape)
{
    struct blend *b = allocate(shape);
    if (!b)
        return NULL;
    for (uint32_t g = 0; g < GROUPS; g++)
        for (uint32_t pattern = 1; pattern < 1u << shape->n_parts; pattern++)
            logistic_init(&b->of_groups[(g << shape->n_parts) + pattern],
                          (uint32_t)__builtin_popcount(pattern));
    return b;
}

void blend_free(struct blend *b)
{
    free(b);
}

float blend_logit(double probability)
{
    double p = fmin(fmax(probability, CLIP), 1 - CLIP); /* NaN becomes CLIP */
    return logf((float)(p / (1 - p)));
}

float *blend_row(struct blend *b, uint32_t layer, uint32_t part, uint64_t step, uint32_t n_tokens)
{
    size_t place = (size_t)layer * b->shape.n_parts + part;
    b->spoken[place] = (struct spoken){step, n_tokens};
    return b->rows + place * b->n_padded;
}

static bool is_good(const struct blend *b, uint32_t part, const struct spoken *s, uint64_t step,
                    uint32_t n_tokens)
{
    return s->n_tokens && s->n_tokens == n_tokens && s->step <= step &&
           step - s->step <= b->shape.keeps[part];
}

static struct pattern_use *use_of(struct blend *b, uint32_t layer, uint32_t pattern)
{
    return &b->uses[((size_t)layer << b->shape.n_parts) + pattern];
}

/* The weights of a layer for a pattern: its own, or its group's. */
static struct logistic *weights(struct blend *b, uint32_t layer, uint32_t pattern)
{
    uint32_t own = use_of(b, layer, pattern)->own, group = layer * GROUPS / b->shape.n_layers;
    return own ? &b->of_layers[(size_t)layer * BLEND_OWN + own - 1]
               : &b->of_groups[(group << b->shape.n_parts) + pattern];
}

/* Counts a step of the layer, which may now get weights of its own. */
static void count_step(struct blend *b, uint32_t layer, uint32_t pattern)
{
    struct pattern_use *use = use_of(b, layer, pattern);
    if (use->steps == LAYER_STEPS || ++use->steps < LAYER_STEPS || b->n_own[layer] == BLEND_OWN)
        return;
    const struct logistic *group = weights(b, layer, pattern);
    use->own = (uint8_t)++b->n_own[layer];
    logistic_inherit(weights(b, layer, pattern), group, LAYER_STEPS);
}

bool blend_predict(struct blend *b, uint32_t layer, uint64_t step, uint32_t n_tokens,
                   double *probability)
{
    uint32_t n = b->shape.n_experts, n_features = 0, pattern = 0;
    for (uint32_t part = 0; part < b->shape.n_parts; part++) {
        size_t place = (size_t)layer * b->shape.n_parts + part;
        if (!is_good(b, part, &b->spoken[place], step, n_tokens))
            continue;
        float *x = b->x + (size_t)n_features * b->n_padded;
        memcpy(x, b->rows + place * b->n_padded, b->n_padded * sizeof *x);
        b->features[n_features++] = x;
        pattern |= 1u << part;
    }
    b->last.step = step;
    b->last.layer = layer;
    b->last.n_tokens = n_tokens;
    b->last.pattern = pattern;
    if (!pattern)
        return false;
    logistic_predict(weights(b, layer, pattern), b->features, n, b->p);
    for (uint32_t e = 0; e < n; e++)
        probability[e] = (double)b->p[e];
    return true;
}

void blend_check(struct blend *b, uint32_t layer, uint64_t step, const uint32_t *selected,
                 uint32_t n_tokens, uint32_t n_used)
{
    uint32_t pattern = b->last.pattern, n = n_tokens * n_used;
    if (!pattern || b->last.layer != layer || b->last.step != step || b->last.n_tokens != n_tokens)
        return;
    for (uint32_t i = 0; i < n; i++)
        b->target[selected[i]] = 1;
    logistic_learn(weights(b, layer, pattern), b->features, b->shape.n_experts, b->p, b->target,
                   b->scratch);
    for (uint32_t i = 0; i < n; i++)
        b->target[selected[i]] = 0;
    count_step(b, layer, pattern);
    b->last.pattern = 0;
}
