/* A multi-token prediction block that predicts experts (ours). DeepSeek-V3's block drafts the token
 * after the next one from the last layer's output for the token before and the embedding of this
 * token. A block with the same inputs says here which experts the next token will activate, in all
 * layers: before this token's first layer is computed, and before the next token is sampled. It
 * has no attention, because its input from the last layer has seen the context.
 *
 *     x(t) = (embedding of token t, gate input of the last layer for token t - 1)
 *     log-odds of [layer][expert] for token t + 1 = network(x(t))
 *
 * tools/train/mtp.py trains it. Background half only. When the embeddings are shown, it computes
 * the batch once; when layer l is shown, it predicts layer l of the next step, as if the next batch
 * were this one. It does not predict a layer before that: the layer's slots are needed for this
 * step.
 *
 * A token whose predecessor was not in the last step that was shown (the first one of an answer, a
 * draft) is not predicted. */
#include "base/arrays.h"
#include "sched/predict/trained_net.h"
#include "sched/predict/predict_internal.h"

#include <string.h>

struct mtp {
    bool trained;
    struct trained_net net;
    /* the last layer of the last step that was shown */
    uint32_t n_before;
    struct predict_token *before; /* [max_tokens] */
    float *before_hidden;         /* [max_tokens][d_model] */
    /* the step under way */
    uint64_t step;
    uint32_t n_tokens; /* that have a predecessor */
    float *x;          /* [max_tokens][2 d_model] */
    float *scratch;
    float *log_odds; /* [max_tokens][layers with experts][n_experts] */
};

static uint32_t expert_layers(const struct predict_shape *s)
{
    return s->n_layers - s->first_layer;
}

static bool mtp_init(struct predictor *p)
{
    const struct predict_shape *s = &p->shape;
    struct mtp *m, new = {0};
    size_t n = s->max_tokens, d = s->d_model;
    new.trained = predictor_trained(p) && trained_mtp(s->trained, &new.net);
    size_t scratch = new.trained ? trained_net_scratch(&new.net) : 0;
    p->state =
        ARRAYS_NEW(ARRAY(m, 1), ARRAY(new.before, n), ARRAY(new.before_hidden, n * d),
                   ARRAY(new.x, 2 * n * d), ARRAY(new.scratch, n * scratch),
                   ARRAY(new.log_odds, new.trained ? n *expert_layers(s) * s->n_experts : 0));
    if (!p->state)
        return false;
    *m = new;
    return true;
}

/* The last layer's input for the token before this one; NULL: it was not shown. */
static const float *predecessor(const struct mtp *m, uint32_t d_model,
                                const struct predict_token *token)
{
    for (uint32_t i = 0; i < m->n_before; i++)
        if (m->before[i].request == token->request && m->before[i].position + 1 == token->position)
            return m->before_hidden + (size_t)i * d_model;
    return NULL;
}

static void compute(struct predictor *p, const struct predict_seen *seen)
{
    struct mtp *m = p->state;
    size_t d = p->shape.d_model;
    m->step = seen->step;
    m->n_tokens = 0;
    for (uint32_t i = 0; i < seen->n_tokens; i++) {
        const float *hidden = predecessor(m, p->shape.d_model, &seen->tokens[i]);
        if (!hidden)
            continue;
        float *x = m->x + m->n_tokens++ * 2 * d;
        memcpy(x, seen->hidden + i * d, d * sizeof *x);
        memcpy(x + d, hidden, d * sizeof *x);
    }
    if (m->n_tokens)
        trained_net_run(&m->net, m->x, m->n_tokens, m->scratch, m->log_odds);
}

static void mtp_observe(struct predictor *p, const struct predict_seen *seen)
{
    struct mtp *m = p->state;
    if (!m->trained || seen->n_tokens > p->shape.max_tokens)
        return;
    if (seen->layer == PREDICT_EMBEDDING)
        compute(p, seen);
    if (seen->layer != p->shape.n_layers - 1)
        return;
    m->n_before = seen->n_tokens;
    memcpy(m->before, seen->tokens, seen->n_tokens * sizeof *m->before);
    memcpy(m->before_hidden, seen->hidden,
           (size_t)seen->n_tokens * p->shape.d_model * sizeof *m->before_hidden);
}

static void mtp_predict(struct predictor *p, const struct predict_seen *seen,
                        const struct predict_target *target, const uint32_t *predicted_routing,
                        double *probability)
{
    const struct mtp *m = p->state;
    uint32_t n = p->shape.n_experts, layer = target->layer - p->shape.first_layer;
    predict_nothing(&p->shape, probability);
    if (!m->trained || m->step != seen->step || target->step != seen->step + 1)
        return;
    for (uint32_t t = 0; t < m->n_tokens; t++) {
        const float *z = m->log_odds + ((size_t)t * expert_layers(&p->shape) + layer) * n;
        for (uint32_t i = 0; i < n; i++)
            if (z[i] == z[i]) /* NaN: not probable */
                probability[i] += (1 - probability[i]) / (1 + exp(-(double)z[i]));
    }
}

/* The same layer of the next step. */
static void mtp_adapt(const struct predict_shape *shape, struct predict_traits *traits)
{
    traits->distance_first = traits->distance_last = expert_layers(shape);
}

static const struct predictor_rule background = {
    .init = mtp_init,
    .observe = mtp_observe,
    .predict = mtp_predict,
};

const struct predictor_kind predictor_mtp = {
    .traits = {.answers = true,
               .reads = PREDICT_READS_HIDDEN | PREDICT_READS_EMBEDDING,
               .distance_first = 1,
               .distance_last = 1,
               .wraps = true,
               .spread = 2},
    .background = &background,
    .adapt = mtp_adapt,
};
