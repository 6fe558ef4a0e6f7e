/* MoE-Infinity's predictor: the finished request whose expert activation matrix is most like that of this one so far says what the
 * layers after this one activate. All of it beside inference.
 *
 * A request's matrix counts, for each layer and expert, its tokens that activated it. Two are compared layer by layer, each row
 * brought to length 1 first, so that layers count alike and long requests as much as short ones:
 *
 *     score(a, b) = mean over the layers that a has tokens of, of cosine(a[l], b[l])
 *
 * What comes out for a token is the share of the found request's tokens that activated the expert in that layer; of a batch at least
 * one does with 1 - product (1 - share).
 *
 * The original clusters the matrices of a data set before serving and keeps those in the middle of clusters. Here they are
 * collected while serving, at most CAPACITY, and once there are so many a new one takes the place of the one most like
 * it, so that what stays differs. Nothing is predicted before a request has finished.
 *
 * A request is finished when its positions go back, when it has not been shown for ABSENT_STEPS steps that were, or when its
 * place is needed, the one not shown for longest first. One that comes back later begins anew. */
#include "sched/predict_internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { CAPACITY = 256, ABSENT_STEPS = 64 };
/* What the stored matrices may take; fewer of models so large that they would take more. 256 of DeepSeek-V3 (58 layers of 256 experts)
 * take 14.5 MiB. */
#define STORE_BYTES ((size_t)64 << 20)

/* A request under way. */
struct running {
    uint64_t request;
    uint64_t last;     /* of the steps shown, the last that it was in; 0: nobody's place */
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
    uint64_t step, n_steps;  /* the one under way; that were shown */
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
    return (r->tokens = calloc(m->n_layers, sizeof *r->tokens)) &&
           (r->counts = calloc(row(p, m->n_layers), sizeof *r->counts)) &&
           (r->square = calloc(m->n_layers, sizeof *r->square)) &&
           (r->product = calloc((size_t)m->n_layers * m->capacity, sizeof *r->product));
}

static bool eam_init(struct predictor *p)
{
    const struct predict_shape *s = &p->shape;
    struct eam *m = p->state = calloc(1, sizeof *m);
    if (!m || s->n_layers <= s->first_layer)
        return false;
    m->n_layers = s->n_layers - s->first_layer;
    size_t bytes = row(p, m->n_layers) * sizeof *m->shares;
    m->capacity = STORE_BYTES / bytes < CAPACITY ? (uint32_t)(STORE_BYTES / bytes) : CAPACITY;
    m->capacity += !m->capacity;
    m->n_running = s->max_tokens;
    m->running = calloc(m->n_running, sizeof *m->running);
    m->shares = calloc(row(p, m->n_layers) * m->capacity, sizeof *m->shares);
    m->inverse = calloc((size_t)m->n_layers * m->capacity, sizeof *m->inverse);
    m->score = calloc(m->capacity, sizeof *m->score);
    bool done = m->running && m->shares && m->inverse && m->score;
    for (uint32_t i = 0; done && i < m->n_running; i++)
        done = allocate_running(p, &m->running[i]);
    return done;
}

static void eam_fini(struct predictor *p)
{
    struct eam *m = p->state;
    for (uint32_t i = 0; m->running && i < m->n_running; i++) {
        free(m->running[i].tokens);
        free(m->running[i].counts);
        free(m->running[i].square);
        free(m->running[i].product);
    }
    free(m->running);
    free(m->shares);
    free(m->inverse);
    free(m->score);
}

/* ---- the stored matrices ---- */

/* Of the stored matrices the one most like this request's so far, of equal ones the first. */
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

/* The products of a request's rows with a matrix that was not there before. */
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

/* A free place, or that of the request not shown for longest: there are as many as a batch has tokens, so it is none of this
 * step's. */
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

/* The request of a token that is shown now. */
static struct running *enter(struct predictor *p, const struct predict_token *token)
{
    struct eam *m = p->state;
    struct running *r = find_running(m, token->request);
    if (r && r->last < m->n_steps && token->position <= r->position)
        finish(p, r); /* from the start again */
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
                        const struct predict_target *target, const uint32_t *guessed,
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

static const struct predictor_rule aside = {
    .init = eam_init,
    .fini = eam_fini,
    .observe = eam_observe,
    .predict = eam_predict,
};

/* The original says something of all layers after this one; those further away are said again, and better, before they come. */
const struct predictor_kind predictor_activation_matrix = {
    .traits = {.answers = true,
               .reads = PREDICT_READS_SELECTED,
               .ahead_first = 1,
               .ahead_last = 4,
               .wraps = true},
    .aside = &aside,
};
