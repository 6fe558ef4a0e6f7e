/* DALI's predictor (its section 4.2): the next layer's gate on h~(l) = h(l) + res(l), h(l) the
 * input of layer l's gate, res(l) the mean of h(l+1) - h(l).
 *
 * "Once the predicted activated experts of the next layer obtained, we count the number of tokens
 * routed to each expert, and the top-k high-workload experts are selected for prefetching" (4.2):
 * predictions stand in that order, and the prefetcher `loaded` (transfer_scheduler.h) takes the
 * first k.
 *
 * Departure: the paper takes the mean over a calibration set. Here the background half computes it
 * while serving, from the pairs of layers of a step that it gets: a plain mean over tokens, and
 * after MEAN_TOKENS an average in which older ones count less. The mean of a few tokens is noisier
 * than none, so the in-line half gets it after FIRST_UPDATE tokens, then whenever they have
 * doubled, in the end every UPDATE_TOKENS. Until then it predicts like next-gate. Trained
 * predictors (`moed train`) have the paper's mean: then both halves start from it, with the weight
 * of the tokens it was trained on, and go on in the same way. */
#include "base/arrays.h"
#include "sched/predict/trained.h"
#include "sched/predict/predict_internal.h"

#include <string.h>

enum { FIRST_UPDATE = 64, UPDATE_TOKENS = 1024, MEAN_TOKENS = 65536 };

/* The mean of the calibration set; false: there is none. */
static bool trained_mean(const struct predictor *p, uint32_t layer, float *mean)
{
    const float *residual = predictor_trained(p) ? trained_residual(p->shape.trained, layer) : NULL;
    if (residual)
        memcpy(mean, residual, p->shape.d_model * sizeof *mean);
    return residual != NULL;
}

/* ---- in line ---- */

struct corrected {
    struct predict_ranks *ranks;
    float *residual; /* [n_layers][d_model] */
    bool *known;     /* [n_layers] */
};

static bool line_init(struct predictor *p)
{
    struct corrected *c, new = {0};
    p->state =
        ARRAYS_NEW(ARRAY(c, 1), ARRAY(new.residual, (size_t)p->shape.n_layers * p->shape.d_model),
                   ARRAY(new.known, p->shape.n_layers));
    if (!p->state)
        return false;
    *c = new;
    c->ranks = predict_ranks_new(&p->shape);
    if (!c->ranks)
        return false;
    for (uint32_t i = 0; i < p->shape.n_layers; i++)
        c->known[i] = trained_mean(p, i, c->residual + (size_t)i * p->shape.d_model);
    return true;
}

static void line_fini(struct predictor *p)
{
    struct corrected *c = p->state;
    predict_ranks_free(c->ranks);
}

static void line_observe(struct predictor *p, const struct predict_seen *seen)
{
    struct corrected *c = p->state;
    predict_ranks_check(c->ranks, seen);
}

static const float *line_gate_input(struct predictor *p, const struct predict_seen *seen,
                                    float *out)
{
    const struct corrected *c = p->state;
    if (!c->known[seen->layer])
        return seen->hidden;
    size_t d = p->shape.d_model;
    const float *residual = c->residual + seen->layer * d;
    for (uint32_t t = 0; t < seen->n_tokens; t++)
        for (size_t i = 0; i < d; i++)
            out[t * d + i] = seen->hidden[t * d + i] + residual[i];
    return out;
}

static void line_predict(struct predictor *p, const struct predict_seen *seen,
                         const struct predict_target *target, const uint32_t *predicted_routing,
                         double *probability)
{
    struct corrected *c = p->state;
    predict_ranks_routing(c->ranks, target, predicted_routing, seen->n_tokens, probability);
}

static void line_apply_update(struct predictor *p, uint32_t layer, const float *update)
{
    struct corrected *c = p->state;
    size_t d = p->shape.d_model;
    memcpy(c->residual + layer * d, update, d * sizeof *update);
    c->known[layer] = true;
}

/* ---- background ---- */

struct steps {
    float *mean;     /* [n_layers][d_model]: from this layer's to the next */
    uint64_t *count; /* [n_layers]: tokens */
    uint64_t *due;   /* [n_layers]: value of count at the next update */
    float *last;     /* [n_tokens][d_model]: gate input of the layer shown last */
    uint64_t last_step;
    uint32_t last_layer, last_tokens;
};

static bool background_init(struct predictor *p)
{
    const struct predict_shape *s = &p->shape;
    struct steps *r, new = {0};
    p->state = ARRAYS_NEW(ARRAY(r, 1), ARRAY(new.mean, (size_t)s->n_layers * s->d_model),
                          ARRAY(new.count, s->n_layers), ARRAY(new.due, s->n_layers),
                          ARRAY(new.last, (size_t)s->max_tokens * s->d_model));
    if (!p->state)
        return false;
    *r = new;
    for (uint32_t i = 0; i < s->n_layers; i++) {
        bool trained = trained_mean(p, i, r->mean + (size_t)i * s->d_model);
        uint64_t n = trained ? s->trained->header.n_tokens : 0;
        r->count[i] = n < MEAN_TOKENS ? n : MEAN_TOKENS;
        r->due[i] = r->count[i] + (n < FIRST_UPDATE    ? FIRST_UPDATE
                                   : n < UPDATE_TOKENS ? n
                                                       : UPDATE_TOKENS);
    }
    return true;
}

/* Adds one token's step to the mean of a layer. */
static void add_step(struct steps *r, uint32_t layer, size_t d, const float *from, const float *to)
{
    float *mean = r->mean + layer * d;
    uint64_t n = ++r->count[layer];
    float weight = 1.0f / (float)(n < MEAN_TOKENS ? n : MEAN_TOKENS);
    for (size_t i = 0; i < d; i++)
        mean[i] += (to[i] - from[i] - mean[i]) * weight;
}

static void background_observe(struct predictor *p, const struct predict_seen *seen)
{
    struct steps *r = p->state;
    size_t d = p->shape.d_model;
    bool follows = r->last_tokens == seen->n_tokens && r->last_step == seen->step &&
                   r->last_layer + 1 == seen->layer;
    for (uint32_t t = 0; follows && t < seen->n_tokens; t++)
        add_step(r, r->last_layer, d, r->last + t * d, seen->hidden + t * d);
    memcpy(r->last, seen->hidden, seen->n_tokens * d * sizeof *r->last);
    r->last_step = seen->step;
    r->last_layer = seen->layer;
    r->last_tokens = seen->n_tokens;
}

static bool background_next_update(struct predictor *p, uint32_t *layer, float *update)
{
    struct steps *r = p->state;
    size_t d = p->shape.d_model;
    for (uint32_t i = 0; i < p->shape.n_layers; i++) {
        uint64_t n = r->count[i];
        if (n < r->due[i])
            continue;
        r->due[i] = n + (n < UPDATE_TOKENS ? n : UPDATE_TOKENS);
        memcpy(update, r->mean + i * d, d * sizeof *update);
        *layer = i;
        return true;
    }
    return false;
}

static uint32_t update_floats(const struct predict_shape *shape)
{
    return shape->d_model;
}

static const struct predictor_rule in_line = {
    .init = line_init,
    .fini = line_fini,
    .observe = line_observe,
    .gate_input = line_gate_input,
    .predict = line_predict,
    .apply_update = line_apply_update,
};

static const struct predictor_rule background = {
    .init = background_init,
    .observe = background_observe,
    .next_update = background_next_update,
};

const struct predictor_kind predictor_residual = {
    .traits = {.in_line = true,
               .by_tokens = true,
               .reads = PREDICT_READS_HIDDEN,
               .distance_first = 1,
               .distance_last = 1},
    .in_line = &in_line,
    .background = &background,
    .update_floats = update_floats,
};
