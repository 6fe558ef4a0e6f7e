/* The time since an expert's last activation (ours): of experts idle that long, the share that the
 * next token activated.
 *
 * Time is counted in the layer's tokens, in classes: idle for 0, 1, 2 to 3, 4 to 7, ... of them;
 * the last class is everything longer, and experts never activated. A class's share is over the
 * layer's tokens so far, half as much after HALF_LIFE of them, and begins as if of one expert and
 * one token that activates all experts equally. The tokens of a batch have one age and count as
 * independent: at least one activates the expert with probability 1 - (1 - share)^n.
 *
 * A part of the mixture; it cannot be chosen as a predictor. */
#include "base/arrays.h"
#include "sched/predict/predict_history.h"

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
    struct recency *r, new = {0};
    p->state = ARRAYS_NEW(ARRAY(r, 1), ARRAY(new.idle, n), ARRAY(new.count, s->n_experts),
                          ARRAY(new.classes, (size_t)s->n_layers * CLASSES));
    if (!p->state)
        return false;
    *r = new;
    for (size_t i = 0; i < n; i++)
        r->idle[i] = UINT32_MAX; /* never */
    return true;
}

static void recency_observe(struct predictor *p, const struct predict_seen *seen)
{
    struct recency *r = p->state;
    uint32_t n = p->shape.n_experts, n_tokens = seen->n_tokens;
    uint32_t *idle = r->idle + (size_t)seen->layer * n;
    struct idle_class *classes = r->classes + (size_t)seen->layer * CLASSES;
    double decay = predict_history_decay(n_tokens, HALF_LIFE);
    for (uint32_t c = 0; c < CLASSES; c++)
        classes[c] = (struct idle_class){predict_history_decayed(classes[c].tokens, decay),
                                         predict_history_decayed(classes[c].activated, decay)};
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
                            const struct predict_target *target, const uint32_t *predicted_routing,
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
        of_class[c] = predict_history_any(fmin(share, 1), seen->n_tokens);
    }
    for (uint32_t i = 0; i < n; i++)
        probability[i] = of_class[class_of(idle[i])];
}

static const struct predictor_rule background = {
    .init = recency_init,
    .observe = recency_observe,
    .predict = recency_predict,
};

const struct predictor_kind predictor_recency = PREDICT_HISTORY_KIND(&background);
