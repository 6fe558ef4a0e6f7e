/* MoE-Infinity's predictor: the finished request whose expert activation matrix is most similar to
 * that of this request so far predicts the layers after this one. Background half only.
 *
 * A request's matrix counts, for each layer and expert, its tokens that activated it. Two are
 * compared layer by layer, each row brought to length 1 first, so that layers count equally and
 * long requests as much as short ones:
 *
 *     score(a, b) = mean over the layers that a has tokens of, of cosine(a[l], b[l])
 *
 * A token activates an expert with the share of the found request's tokens that did in that layer;
 * of a batch at least one does with 1 - product (1 - share).
 *
 * Departures: the original gives a nearer layer's experts priority: their probability decays with
 * the distance. Here it does not. Steps of more than 32 tokens are not shown to predictors, so
 * longer prompts are not in a request's matrix. The original clusters the matrices of a data set
 * before serving and keeps those in the middle of clusters. Here they are collected while serving,
 * at most CAPACITY; then a new one replaces the one most similar to it, so that the stored ones
 * differ. Nothing is predicted before a request has finished. A request is finished when its
 * positions go far back, when it has not been shown for ABSENT_STEPS shown steps, or when its place
 * is needed, the one not shown for longest first. A request that comes back later begins anew. */
#include "base/arrays.h"
#include "sched/predict/predict_internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { CAPACITY = 256, ABSENT_STEPS = 64 };
/* Limit of the stored matrices; a larger model has fewer of them. 256 of DeepSeek-V3 (58 layers of
 * 256 experts) take 14.5 MiB. */
#define STORE_BYTES ((size_t)64 << 20)

/* A request under way. */
struct running {
    uint64_t request;
    uint64_t last;     /* shown step that it was in last; 0: a free place */
    uint32_t position; /* of its last token then */
    uint32_t *tokens;  /* [n_layers] */
    uint32_t *counts;  /* [n_layers][n_experts] */
    double *square;    /* [n_layers]: of the row of counts */
    float *product;    /* [n_layers][capacity]: of that row with the stored ones */
    uint32_t nearest;
    bool has_nearest;
};

struct eam {
    uint32_t n_layers, capacity, n_stored, n_running;
    uint64_t step, n_steps;  /* the step under way; the number of shown steps */
    struct running *running; /* [n_running] */
    float *shares;           /* [n_layers][n_experts][capacity]: of tokens that activated it */
    float *inverse;          /* [n_layers][capacity]: 1 / the row's length, 0 if it has none */
    float *score;            /* [capacity] */
};

static size_t row(const struct predictor *p, uint32_t layer)
{
    return (size_t)layer * p->shape.n_experts;
}

static bool allocate_running(struct predictor *p, struct running *r)
{
    const struct eam *m = p->state;
    return ARRAYS_NEW(ARRAY(r->tokens, m->n_layers), ARRAY(r->counts, row(p, m->n_layers)),
                      ARRAY(r->square, m->n_layers),
                      ARRAY(r->product, (size_t)m->n_layers * m->capacity)) != NULL;
}

static bool eam_init(struct predictor *p)
{
    const struct predict_shape *s = &p->shape;
    if (s->n_layers <= s->first_layer)
        return false;
    struct eam *m, new = {.n_layers = s->n_layers - s->first_layer, .n_running = s->max_tokens};
    size_t n_slabs = row(p, new.n_layers), most = STORE_BYTES / (n_slabs * sizeof *new.shares);
    new.capacity = most == 0 ? 1 : most < CAPACITY ? (uint32_t)most : CAPACITY;
    p->state = ARRAYS_NEW(
        ARRAY(m, 1), ARRAY(new.running, new.n_running), ARRAY(new.shares, n_slabs * new.capacity),
        ARRAY(new.inverse, (size_t) new.n_layers *new.capacity), ARRAY(new.score, new.capacity));
    if (!p->state)
        return false;
    *m = new;
    for (uint32_t i = 0; i < m->n_running; i++)
        if (!allocate_running(p, &m->running[i]))
            return false;
    return true;
}

static void eam_fini(struct predictor *p)
{
    struct eam *m = p->state;
    for (uint32_t i = 0; i < m->n_running; i++)
        free(m->running[i].tokens); /* the first array: all of the request's */
}

/* ---- the stored matrices ---- */

/* Finds the stored matrix most similar to this request's so far, of equal ones the first. */
static void find_nearest(struct eam *m, struct running *r)
{
    memset(m->score, 0, m->n_stored * sizeof *m->score);
    for (uint32_t l = 0; l < m->n_layers; l++) {
        if (!r->tokens[l])
            continue;
        const float *product = r->product + (size_t)l * m->capacity;
        const float *inverse = m->inverse + (size_t)l * m->capacity;
        float own = (float)(1 / sqrt(r->square[l]));
        for (uint32_t i = 0; i < m->n_stored; i++)
            m->score[i] += product[i] * inverse[i] * own;
    }
    r->has_nearest = m->n_stored > 0;
    r->nearest = 0;
    for (uint32_t i = 1; i < m->n_stored; i++)
        if (m->score[i] > m->score[r->nearest])
            r->nearest = i;
}

/* Computes the products of a request's rows with a new matrix. */
static void multiply_stored(const struct predictor *p, struct running *r, uint32_t stored)
{
    const struct eam *m = p->state;
    for (uint32_t l = 0; l < m->n_layers; l++) {
        double sum = 0;
        for (size_t i = row(p, l); i < row(p, l + 1); i++)
            sum += (double)r->counts[i] * (double)m->shares[i * m->capacity + stored];
        r->product[(size_t)l * m->capacity + stored] = (float)sum;
    }
}

static void store(struct predictor *p, struct running *r)
{
    struct eam *m = p->state;
    uint32_t to = m->n_stored;
    if (m->n_stored == m->capacity) {
        find_nearest(m, r);
        to = r->nearest;
    } else {
        m->n_stored++;
    }
    for (uint32_t l = 0; l < m->n_layers; l++) {
        double square = 0, n = r->tokens[l];
        for (size_t i = row(p, l); i < row(p, l + 1); i++) {
            double share = n > 0 ? r->counts[i] / n : 0;
            m->shares[i * m->capacity + to] = (float)share;
            square += share * share;
        }
        m->inverse[(size_t)l * m->capacity + to] = square > 0 ? (float)(1 / sqrt(square)) : 0;
    }
    for (uint32_t i = 0; i < m->n_running; i++)
        if (m->running[i].last) {
            multiply_stored(p, &m->running[i], to);
            find_nearest(m, &m->running[i]);
        }
}

/* ---- requests under way ---- */

/* Its place becomes free. */
static void finish(struct predictor *p, struct running *r)
{
    const struct eam *m = p->state;
    r->last = 0;
    store(p, r);
    memset(r->tokens, 0, m->n_layers * sizeof *r->tokens);
    memset(r->counts, 0, row(p, m->n_layers) * sizeof *r->counts);
    memset(r->square, 0, m->n_layers * sizeof *r->square);
    memset(r->product, 0, (size_t)m->n_layers * m->capacity * sizeof *r->product);
    r->has_nearest = false;
}

static struct running *find_running(const struct eam *m, uint64_t request)
{
    for (uint32_t i = 0; i < m->n_running; i++)
        if (m->running[i].last && m->running[i].request == request)
            return &m->running[i];
    return NULL;
}

/* A free place, or that of the request not shown for longest. There are as many places as a batch
 * has tokens, so that request is not in this step. */
static struct running *make_place(struct predictor *p)
{
    const struct eam *m = p->state;
    struct running *r = &m->running[0];
    for (uint32_t i = 1; i < m->n_running; i++)
        if (m->running[i].last < r->last)
            r = &m->running[i];
    if (r->last)
        finish(p, r);
    return r;
}

/* Whether a request whose next token has this position goes back, and not for wrong drafts. */
static bool begins_again(const struct running *r, uint32_t position)
{
    return position <= r->position && (position == 0 || r->position - position > PREDICT_DRAFTS);
}

/* Finds or begins the request of a shown token. */
static struct running *enter(struct predictor *p, const struct predict_token *token)
{
    struct eam *m = p->state;
    struct running *r = find_running(m, token->request);
    if (r && r->last < m->n_steps && begins_again(r, token->position))
        finish(p, r);
    if (!r)
        r = make_place(p);
    r->request = token->request;
    r->position = token->position;
    r->last = m->n_steps;
    return r;
}

static void begin_step(struct predictor *p, uint64_t step)
{
    struct eam *m = p->state;
    m->step = step;
    m->n_steps++;
    for (uint32_t i = 0; i < m->n_running; i++)
        if (m->running[i].last && m->n_steps - m->running[i].last > ABSENT_STEPS)
            finish(p, &m->running[i]);
}

static void count(const struct predictor *p, struct running *r, uint32_t layer,
                  const uint32_t *selected)
{
    const struct eam *m = p->state;
    float *product = r->product + (size_t)layer * m->capacity;
    r->tokens[layer]++;
    for (uint32_t k = 0; k < p->shape.n_used; k++) {
        size_t place = row(p, layer) + selected[k];
        const float *shares = m->shares + place * m->capacity;
        r->square[layer] += 2.0 * r->counts[place]++ + 1;
        for (uint32_t i = 0; i < m->n_stored; i++)
            product[i] += shares[i];
    }
}

static void eam_observe(struct predictor *p, const struct predict_seen *seen)
{
    struct eam *m = p->state;
    if (seen->n_tokens > m->n_running)
        return;
    if (seen->step != m->step || !m->n_steps)
        begin_step(p, seen->step);
    for (uint32_t t = 0; t < seen->n_tokens; t++)
        count(p, enter(p, &seen->tokens[t]), seen->layer - p->shape.first_layer,
              seen->selected + (size_t)t * p->shape.n_used);
    for (uint32_t i = 0; i < m->n_running; i++)
        if (m->running[i].last == m->n_steps)
            find_nearest(m, &m->running[i]);
}

static void eam_predict(struct predictor *p, const struct predict_seen *seen,
                        const struct predict_target *target, const uint32_t *predicted_routing,
                        double *probability)
{
    const struct eam *m = p->state;
    size_t first = row(p, target->layer - p->shape.first_layer);
    for (uint32_t e = 0; e < p->shape.n_experts; e++)
        probability[e] = 0;
    for (uint32_t t = 0; t < seen->n_tokens; t++) {
        const struct running *r = find_running(m, seen->tokens[t].request);
        for (uint32_t e = 0; r && r->has_nearest && e < p->shape.n_experts; e++)
            probability[e] +=
                (1 - probability[e]) * (double)m->shares[(first + e) * m->capacity + r->nearest];
    }
}

static const struct predictor_rule background = {
    .init = eam_init,
    .fini = eam_fini,
    .observe = eam_observe,
    .predict = eam_predict,
};

/* Departure: the original predicts all layers after this one. Layers further away are predicted
 * again, and better, before they come. */
const struct predictor_kind predictor_activation_matrix = {
    .traits = {.answers = true,
               .reads = PREDICT_READS_SELECTED,
               .distance_first = 1,
               .distance_last = 4,
               .wraps = true},
    .background = &background,
};
