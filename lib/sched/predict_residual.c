/* DALI's predictor: the next layer's gate on h~(l) = h(l) + res(l), h(l) the input of layer l's gate, res(l) the mean of
 * h(l+1) - h(l).
 *
 * The paper takes that mean over a calibration set; here it is learnt while serving, by the aside half, from the pairs of
 * layers that it is shown of a step: a plain mean over tokens, and after MEAN_TOKENS an average in which older ones
 * count less. The mean of a few tokens is noisier than none, so the in-line half is taught it after FIRST_LESSON
 * tokens, then whenever they have doubled, in the end every LESSON_TOKENS. Until then it guesses like next-gate.
 *
 * "Once the predicted activated experts of the next layer obtained, we count the number of tokens routed to each expert, and
 * the top-k high-workload experts are selected for prefetching" (4.2): what is predicted stands in that order, and the
 * prefetcher `loaded` (copies.h) takes the first k.
 *
 * What was trained (`moed train`) has the paper's mean: then both halves start from it, as from so many tokens, and go on in the
 * same way. */
#include "sched/learned.h"
#include "sched/predict_internal.h"

#include <stdlib.h>
#include <string.h>

enum { FIRST_LESSON = 64, LESSON_TOKENS = 1024, MEAN_TOKENS = 65536 };

/* Of the calibration set; false: there is none. */
static bool trained_mean(const struct predictor *p, uint32_t layer, float *mean)
{
    const float *residual = predictor_learned(p) ? learned_residual(p->shape.learned, layer) : NULL;
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
    struct corrected *c = p->state = calloc(1, sizeof *c);
    if (!c)
        return false;
    c->ranks = predict_ranks_new(&p->shape);
    c->residual = calloc((size_t)p->shape.n_layers * p->shape.d_model, sizeof *c->residual);
    c->known = calloc(p->shape.n_layers, sizeof *c->known);
    if (!c->ranks || !c->residual || !c->known)
        return false;
    for (uint32_t i = 0; i < p->shape.n_layers; i++)
        c->known[i] = trained_mean(p, i, c->residual + (size_t)i * p->shape.d_model);
    return true;
}

static void line_fini(struct predictor *p)
{
    struct corrected *c = p->state;
    predict_ranks_free(c->ranks);
    free(c->residual);
    free(c->known);
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
                         const struct predict_target *target, const uint32_t *guessed,
                         double *probability)
{
    struct corrected *c = p->state;
    predict_ranks_guess(c->ranks, target, guessed, seen->n_tokens, probability);
}

static void line_learn(struct predictor *p, uint32_t layer, const float *lesson)
{
    struct corrected *c = p->state;
    size_t d = p->shape.d_model;
    memcpy(c->residual + layer * d, lesson, d * sizeof *lesson);
    c->known[layer] = true;
}

/* ---- aside ---- */

struct steps {
    float *mean;     /* [n_layers][d_model]: from this layer's to the next */
    uint64_t *count; /* [n_layers]: tokens */
    uint64_t *due;   /* [n_layers]: of count, when it is taught next */
    float *last;     /* [n_tokens][d_model]: of the layer that was shown last */
    uint64_t last_step;
    uint32_t last_layer, last_tokens;
};

static bool aside_init(struct predictor *p)
{
    const struct predict_shape *s = &p->shape;
    struct steps *r = p->state = calloc(1, sizeof *r);
    if (!r)
        return false;
    r->mean = calloc((size_t)s->n_layers * s->d_model, sizeof *r->mean);
    r->count = calloc(s->n_layers, sizeof *r->count);
    r->due = calloc(s->n_layers, sizeof *r->due);
    r->last = calloc((size_t)s->max_tokens * s->d_model, sizeof *r->last);
    if (!r->mean || !r->count || !r->due || !r->last)
        return false;
    for (uint32_t i = 0; i < s->n_layers; i++) {
        bool trained = trained_mean(p, i, r->mean + (size_t)i * s->d_model);
        uint64_t n = trained ? s->learned->header.n_tokens : 0;
        r->count[i] = n < MEAN_TOKENS ? n : MEAN_TOKENS;
        r->due[i] = r->count[i] + (n < FIRST_LESSON    ? FIRST_LESSON
                                   : n < LESSON_TOKENS ? n
                                                       : LESSON_TOKENS);
    }
    return true;
}

static void aside_fini(struct predictor *p)
{
    struct steps *r = p->state;
    free(r->mean);
    free(r->count);
    free(r->due);
    free(r->last);
}

/* One more token's step into the mean of a layer. */
static void add_step(struct steps *r, uint32_t layer, size_t d, const float *from, const float *to)
{
    float *mean = r->mean + layer * d;
    uint64_t n = ++r->count[layer];
    float weight = 1.0f / (float)(n < MEAN_TOKENS ? n : MEAN_TOKENS);
    for (size_t i = 0; i < d; i++)
        mean[i] += (to[i] - from[i] - mean[i]) * weight;
}

static void aside_observe(struct predictor *p, const struct predict_seen *seen)
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

static bool aside_teach(struct predictor *p, uint32_t *layer, float *lesson)
{
    struct steps *r = p->state;
    size_t d = p->shape.d_model;
    for (uint32_t i = 0; i < p->shape.n_layers; i++) {
        uint64_t n = r->count[i];
        if (n < r->due[i])
            continue;
        r->due[i] = n + (n < LESSON_TOKENS ? n : LESSON_TOKENS);
        memcpy(lesson, r->mean + i * d, d * sizeof *lesson);
        *layer = i;
        return true;
    }
    return false;
}

static uint32_t lesson_floats(const struct predict_shape *shape)
{
    return shape->d_model;
}

static const struct predictor_rule in_line = {
    .init = line_init,
    .fini = line_fini,
    .observe = line_observe,
    .gate_input = line_gate_input,
    .predict = line_predict,
    .learn = line_learn,
};

static const struct predictor_rule aside = {
    .init = aside_init,
    .fini = aside_fini,
    .observe = aside_observe,
    .teach = aside_teach,
};

const struct predictor_kind predictor_residual = {
    .traits = {.in_line = true,
               .by_tokens = true,
               .reads = PREDICT_READS_HIDDEN,
               .ahead_first = 1,
               .ahead_last = 1},
    .in_line = &in_line,
    .aside = &aside,
    .lesson_floats = lesson_floats,
};
