/* The time since an expert was activated last: of experts that long idle, the share that the next token activated.
 *
 * Time is counted in the layer's tokens, and taken in classes: idle for 0, 1, 2 to 3, 4 to 7, ... of them; the last class is
 * everything longer, and what was never activated. A class's share is over the layer's tokens so far, half as much after
 * HALF_LIFE of them, and begins as if of one expert and one token, which activates all alike. The tokens of a batch are of one age and
 * taken as independent: at least one activates the expert with probability 1 - (1 - share)^n.
 *
 * A part of the mixture; it is no predictor that can be chosen. */
#include "sched/predict_internal.h"

#include <math.h>
#include <stdlib.h>

enum { CLASSES = 14 };
#define HALF_LIFE 4096.0

struct idle_class {
    double tokens, activated; /* decayed, over the experts of this class */
};

struct recency {
    uint32_t *idle;             /* [n_layers][n_experts] */
    uint32_t *count;            /* [n_experts]; all 0 between calls */
    struct idle_class *classes; /* [n_layers][CLASSES] */
};

static uint32_t class_of(uint32_t idle)
{
    uint32_t c = 0;
    for (; idle && c < CLASSES - 1; idle >>= 1)
        c++;
    return c;
}

static bool recency_init(struct predictor *p)
{
    const struct predict_shape *s = &p->shape;
    size_t n = (size_t)s->n_layers * s->n_experts;
    struct recency *r = p->state = calloc(1, sizeof *r);
    if (!r)
        return false;
    r->idle = calloc(n, sizeof *r->idle);
    r->count = calloc(s->n_experts, sizeof *r->count);
    r->classes = calloc((size_t)s->n_layers * CLASSES, sizeof *r->classes);
    if (!r->idle || !r->count || !r->classes)
        return false;
    for (size_t i = 0; i < n; i++)
        r->idle[i] = UINT32_MAX; /* never */
    return true;
}

static void recency_fini(struct predictor *p)
{
    struct recency *r = p->state;
    free(r->idle);
    free(r->count);
    free(r->classes);
}

static void recency_observe(struct predictor *p, const struct predict_seen *seen)
{
    struct recency *r = p->state;
    uint32_t n = p->shape.n_experts, n_tokens = seen->n_tokens;
    uint32_t *idle = r->idle + (size_t)seen->layer * n;
    struct idle_class *classes = r->classes + (size_t)seen->layer * CLASSES;
    double decay = exp2(-(double)n_tokens / HALF_LIFE);
    for (uint32_t c = 0; c < CLASSES; c++)
        classes[c] = (struct idle_class){classes[c].tokens * decay, classes[c].activated * decay};
    for (uint32_t i = 0; i < n_tokens * p->shape.n_used; i++)
        r->count[seen->selected[i]]++;
    for (uint32_t i = 0; i < n; i++) {
        struct idle_class *c = &classes[class_of(idle[i])];
        c->tokens += n_tokens;
        c->activated += r->count[i];
        if (r->count[i])
            idle[i] = 0;
        else
            idle[i] = idle[i] > UINT32_MAX - n_tokens ? UINT32_MAX : idle[i] + n_tokens;
        r->count[i] = 0;
    }
}

static void recency_predict(struct predictor *p, const struct predict_seen *seen,
                            const struct predict_target *target, const uint32_t *guessed,
                            double *probability)
{
    const struct recency *r = p->state;
    uint32_t n = p->shape.n_experts;
    const uint32_t *idle = r->idle + (size_t)target->layer * n;
    const struct idle_class *classes = r->classes + (size_t)target->layer * CLASSES;
    double of_class[CLASSES];
    for (uint32_t c = 0; c < CLASSES; c++) {
        double share =
            (classes[c].activated + (double)p->shape.n_used / n) / (classes[c].tokens + 1);
        of_class[c] = 1 - pow(1 - fmin(share, 1), seen->n_tokens);
    }
    for (uint32_t i = 0; i < n; i++)
        probability[i] = of_class[class_of(idle[i])];
}

static const struct predictor_rule aside = {
    .init = recency_init,
    .fini = recency_fini,
    .observe = recency_observe,
    .predict = recency_predict,
};

const struct predictor_kind predictor_recency = {
    .traits = {.answers = true,
               .reads = PREDICT_READS_SELECTED,
               .ahead_first = 2,
               .ahead_last = 2,
               .wraps = true},
    .aside = &aside,
};
