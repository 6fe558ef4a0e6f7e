/* PreScope's LLaPor (its section 4.2): for each layer a small network. Its inputs are an earlier
 * layer's hidden state, compressed by PCA, that layer's activated experts and their gate weights.
 * Layers of the middle group have a residual block that the hidden state gates. Trained on traces
 * (docs/design/training.md).
 *
 * Departure: in the paper "the previous-layer features ... predict expert activations in the
 * current layer", and the scheduler at layer l uses the prediction of l + 1. To be there when
 * layer l is planned, without any thread waiting for it, that prediction is made from the features
 * of layer l - 1: a network predicts for the second layer after its input.
 *
 * "Online gradient updates": with shape.fine_tune the activations of a layer correct the last
 * layer of its network, by the plain cross-entropy (the trained network is calibrated, and that
 * loss keeps it so), in steps that are divided by the length of the features and by the tokens of
 * the batch, so that none can overshoot: the errors of a batch are all of one D, and its tokens may
 * be alike.
 *
 *     D += RATE / (n (1 + |u|^2)) * (activated - p) u'      logits = trained + D (u, 1)
 *
 * The paper gives no rule. Only the last layer moves, because that is a product the size of a
 * router. */
#include "base/arrays.h"
#include "sched/predict/trained_net.h"
#include "sched/predict/predict_internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define FINE_TUNE_RATE 0.2f /* bench/results/training.md */

/* The last prediction of a layer, until that is seen. */
struct pending {
    uint64_t step;
    uint32_t n_tokens; /* 0: nothing */
    float *features;   /* [max_tokens][width] */
    float *error;      /* [max_tokens][n_experts]: minus the probabilities */
    float *change;     /* [width][n_experts], then the bias' [n_experts] */
};

struct llapor {
    float *components, *inputs, *scratch, *logits; /* of a batch */
    struct pending *layers;                        /* [n_layers]; NULL: no fine-tuning */
};

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

/* Allocates the tables for predictions and corrections of a layer. */
static bool make_pending(const struct predict_shape *s, const struct trained_net *net,
                         struct pending *out)
{
    size_t width = net->out.n_in, n = s->n_experts;
    return ARRAYS_NEW(ARRAY(out->features, width * s->max_tokens),
                      ARRAY(out->error, n * s->max_tokens),
                      ARRAY(out->change, (width + 1) * n)) != NULL;
}

static bool llapor_init(struct predictor *p)
{
    const struct predict_shape *s = &p->shape;
    struct llapor *r = p->state = calloc(1, sizeof *r);
    if (!r)
        return false;
    if (!predictor_trained(p))
        return true;
    size_t components = 1, scratch = 1;
    struct trained_net net;
    struct trained_affine pca;
    if (s->fine_tune && !(r->layers = calloc(s->n_layers, sizeof *r->layers)))
        return false;
    for (uint32_t i = 0; i < s->n_layers; i++) {
        if (!trained_llapor(s->trained, i, &net, &pca))
            continue;
        components = larger(components, pca.n_out);
        scratch = larger(scratch, trained_net_scratch(&net));
        if (r->layers && !make_pending(s, &net, &r->layers[i]))
            return false;
    }
    size_t n = s->max_tokens;
    return ARRAYS_NEW(ARRAY(r->components, n * components),
                      ARRAY(r->inputs, n * (components + 2 * (size_t)s->n_experts)),
                      ARRAY(r->scratch, n * scratch), ARRAY(r->logits, n * s->n_experts)) != NULL;
}

static void llapor_fini(struct predictor *p)
{
    struct llapor *r = p->state;
    for (uint32_t i = 0; r->layers && i < p->shape.n_layers; i++)
        free(r->layers[i].features); /* the first array: all of the layer's */
    free(r->layers);
    free(r->components); /* the first array: all of a batch */
}

static void fill_inputs(const struct predictor *p, const struct predict_seen *seen,
                        const struct trained_affine *pca)
{
    const struct llapor *r = p->state;
    const struct predict_shape *s = &p->shape;
    size_t n = pca->n_out, width = n + 2 * (size_t)s->n_experts;
    trained_affine_run(pca, seen->hidden, s->d_model, seen->n_tokens, r->components);
    for (uint32_t t = 0; t < seen->n_tokens; t++) {
        memcpy(r->inputs + t * width, r->components + t * n, n * sizeof *r->inputs);
        trained_llapor_rest(s->n_experts, s->n_used, seen->selected + (size_t)t * s->n_used,
                            seen->gate + (size_t)t * s->n_experts, r->inputs + t * width + n);
    }
}

/* Adds the corrections made while serving to the logits, and keeps the prediction for the next one.
 */
static void correct(const struct predictor *p, struct pending *w, const struct trained_net *net,
                    const struct predict_target *target, uint32_t n_tokens)
{
    const struct llapor *r = p->state;
    size_t n = p->shape.n_experts, width = net->out.n_in;
    memcpy(w->features, r->scratch, n_tokens * width * sizeof *w->features);
    for (uint32_t t = 0; t < n_tokens; t++) {
        float *logits = r->logits + t * n;
        for (size_t j = 0; j <= width; j++) {
            float u = j < width ? w->features[t * width + j] : 1;
            for (size_t i = 0; i < n; i++)
                logits[i] += u * w->change[j * n + i];
        }
        for (size_t i = 0; i < n; i++)
            w->error[t * n + i] = -1 / (1 + expf(-logits[i]));
    }
    w->step = target->step;
    w->n_tokens = n_tokens;
}

static void llapor_predict(struct predictor *p, const struct predict_seen *seen,
                           const struct predict_target *target, const uint32_t *predicted_routing,
                           double *probability)
{
    struct llapor *r = p->state;
    struct trained_net net;
    struct trained_affine pca;
    if (!predictor_trained(p) || !trained_llapor(p->shape.trained, target->layer, &net, &pca)) {
        predict_nothing(&p->shape, probability);
        return;
    }
    fill_inputs(p, seen, &pca);
    trained_net_run(&net, r->inputs, seen->n_tokens, r->scratch, r->logits);
    if (r->layers)
        correct(p, &r->layers[target->layer], &net, target, seen->n_tokens);
    trained_probabilities(&p->shape, r->logits, seen->n_tokens, probability);
}

/* Adds one token of the batch to the change of a layer's last product. A token with a NaN is
 * ignored. */
static void learn_token(struct pending *w, size_t n, size_t width, uint32_t t)
{
    const float *u = w->features + t * width, *error = w->error + t * n;
    float length = 1, all = 0;
    for (size_t j = 0; j < width; j++)
        length += u[j] * u[j];
    for (size_t i = 0; i < n; i++)
        all += error[i];
    if (!isfinite(length) || !isfinite(all))
        return;
    for (size_t j = 0; j <= width; j++) {
        float step = FINE_TUNE_RATE / (length * (float)w->n_tokens) * (j < width ? u[j] : 1);
        for (size_t i = 0; step != 0 && i < n; i++)
            w->change[j * n + i] += step * error[i];
    }
}

static void llapor_observe(struct predictor *p, const struct predict_seen *seen)
{
    const struct llapor *r = p->state;
    const struct predict_shape *s = &p->shape;
    struct trained_net net;
    struct trained_affine pca;
    if (!r->layers || !trained_llapor(s->trained, seen->layer, &net, &pca))
        return;
    struct pending *w = &r->layers[seen->layer];
    if (w->n_tokens == seen->n_tokens && w->step == seen->step)
        for (uint32_t t = 0; t < seen->n_tokens; t++) {
            for (uint32_t k = 0; k < s->n_used; k++)
                w->error[(size_t)t * s->n_experts + seen->selected[(size_t)t * s->n_used + k]] += 1;
            learn_token(w, s->n_experts, net.out.n_in, t);
        }
    w->n_tokens = 0;
}

static const struct predictor_rule background = {
    .init = llapor_init,
    .fini = llapor_fini,
    .observe = llapor_observe,
    .predict = llapor_predict,
};

const struct predictor_kind predictor_llapor = {
    .traits = {.answers = true,
               .reads = PREDICT_READS_HIDDEN | PREDICT_READS_GATE | PREDICT_READS_SELECTED,
               .distance_first = LLAPOR_DISTANCE,
               .distance_last = LLAPOR_DISTANCE},
    .background = &background,
};
