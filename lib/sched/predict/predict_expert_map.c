/* FineMoE's predictor (section 4.2): the expert map of the most similar earlier iteration predicts
 * coming layers. Background half only; map_store.h has the store.
 *
 *     layers 1 to d    by the embedding (semantic), when that is shown
 *     layer l > d      by what the gates of layers 1 to l - d chose (trajectory), when layer l - d is
 *                      shown
 *
 * d, the prefetch distance, is 3 as in the paper's evaluation; 6 for the shape of Qwen1.5-MoE (24
 * layers, 60 experts) and 4 for that of Phi-3.5-MoE (32 layers, 16 experts), as in its code.
 * Departure: that code predicts layer d by neither search; here the semantic search does.
 *
 * Of the map's row the experts are predicted by falling probability until their sum reaches delta
 * = clip(1 - score, 0, 1) and they are at least K (equations 6 to 8): "a higher delta to low-score
 * expert maps so that more experts are prefetched", so there is no other bound. The eviction
 * priority 1 / (p freq) (4.5) covers every cached expert, so experts that are not chosen keep
 * their probability, for the cache only. A layer's gate probabilities sum to 1, not to K, so they
 * rank experts and are lower than probabilities of being activated. As a part of the mixture the
 * map gives every expert the share that its place in the row is worth (map_shares.h).
 *
 * A batch: each token searches and chooses separately, and gets a map of its own when the last
 * layer has been shown. The paper's probability of one token becomes 1 - product (1 - p) over the
 * batch. Layers that were not shown are left out of the similarity; an iteration that missed one,
 * or the embedding, is not stored. */
#include "base/arrays.h"
#include "sched/predict/map_shares.h"
#include "sched/predict/map_store.h"
#include "sched/predict/predict_internal.h"

#include <math.h>
#include <string.h>

/* The paper's capacity; fewer maps where they would take more than the limit. */
enum { CAPACITY = 1000, DISTANCE = 3 };
#define STORE_BYTES ((size_t)64 << 20)

struct expert_map {
    struct map_store *store;
    struct map_shares *shares; /* NULL: the paper's selection and probabilities */
    uint64_t step;             /* of the iteration under way */
    uint32_t n_tokens;
    uint64_t *requests; /* [max_tokens] of it */
    uint16_t *order;    /* [n_experts] */
    bool *chosen;       /* [n_experts]: by any token, in the last prediction */
};

static uint32_t expert_layers(const struct predict_shape *shape)
{
    return shape->n_layers - shape->first_layer;
}

static uint32_t distance(const struct predict_shape *shape)
{
    uint32_t n_layers = expert_layers(shape), d = DISTANCE;
    if (n_layers == 24 && shape->n_experts == 60)
        d = 6;
    if (n_layers == 32 && shape->n_experts == 16)
        d = 4;
    return d < n_layers ? d : n_layers;
}

static bool map_init(struct predictor *p)
{
    const struct predict_shape *s = &p->shape;
    struct expert_map *m, new = {0};
    if (!expert_layers(s))
        return false;
    p->state = ARRAYS_NEW(ARRAY(m, 1), ARRAY(new.requests, s->max_tokens),
                          ARRAY(new.order, s->n_experts), ARRAY(new.chosen, s->n_experts));
    if (!p->state)
        return false;
    *m = new;
    struct map_store_shape shape = {.n_layers = expert_layers(s),
                                    .n_experts = s->n_experts,
                                    .d_model = s->d_model,
                                    .max_tokens = s->max_tokens,
                                    .capacity = CAPACITY,
                                    .distance = distance(s)};
    size_t most = STORE_BYTES / map_store_bytes_per_map(&shape);
    if (most < shape.capacity)
        shape.capacity = most > 1 ? (uint32_t)most : 1;
    m->store = map_store_new(&shape);
    return m->store != NULL;
}

static bool shares_init(struct predictor *p)
{
    const struct predict_shape *s = &p->shape;
    if (!map_init(p))
        return false;
    struct expert_map *m = p->state;
    m->shares = map_shares_new(expert_layers(s), s->n_experts, s->n_used, s->max_tokens);
    return m->shares != NULL;
}

static void map_fini(struct predictor *p)
{
    struct expert_map *m = p->state;
    map_store_free(m->store);
    map_shares_free(m->shares);
}

/* True if this record belongs to the iteration under way. */
static bool goes_on(const struct expert_map *m, const struct predict_seen *seen)
{
    bool same = m->step == seen->step && m->n_tokens == seen->n_tokens;
    for (uint32_t t = 0; same && t < seen->n_tokens; t++)
        same = m->requests[t] == seen->tokens[t].request;
    return same;
}

static void map_observe(struct predictor *p, const struct predict_seen *seen)
{
    struct expert_map *m = p->state;
    bool embedding = seen->layer == PREDICT_EMBEDDING;
    if (seen->n_tokens > p->shape.max_tokens)
        return;
    if (embedding || !goes_on(m, seen)) {
        m->step = seen->step;
        m->n_tokens = seen->n_tokens;
        for (uint32_t t = 0; t < seen->n_tokens; t++)
            m->requests[t] = seen->tokens[t].request;
        map_store_begin(m->store, seen->n_tokens);
    }
    uint32_t layer = seen->layer - p->shape.first_layer;
    if (embedding)
        map_store_embedding(m->store, seen->hidden);
    else
        map_store_layer(m->store, layer, seen->gate);
    if (m->shares && !embedding)
        map_shares_check(m->shares, seen->step, layer, seen->n_tokens, seen->selected);
    if (seen->layer == p->shape.n_layers - 1)
        map_store_end(m->store);
}

/* Sorts the row's experts by falling probability, of equal ones the lower number first: a counting
 * sort. */
static void sort_row(const int8_t *row, uint32_t n, uint16_t *order)
{
    uint32_t first[129] = {0}; /* where experts with 127 - value begin */
    for (uint32_t i = 0; i < n; i++)
        first[128 - row[i]]++;
    for (uint32_t v = 1; v < 129; v++)
        first[v] += first[v - 1];
    for (uint32_t i = 0; i < n; i++)
        order[first[127 - row[i]]++] = (uint16_t)i;
}

/* How many experts are predicted of those in order. */
static uint32_t take(const struct predictor *p, const int8_t *row, float scale, double score)
{
    const struct expert_map *m = p->state;
    double delta = 1 - score, sum = 0;
    delta = delta < 0 ? 0 : delta > 1 ? 1 : delta;
    uint32_t n = 0;
    for (; n < p->shape.n_experts && (n < p->shape.n_used || sum < delta); n++)
        sum += (double)row[m->order[n]] * (double)scale;
    return n;
}

static void map_predict(struct predictor *p, const struct predict_seen *seen,
                        const struct predict_target *target, const uint32_t *predicted_routing,
                        double *probability)
{
    struct expert_map *m = p->state;
    uint32_t n = p->shape.n_experts, layer = target->layer - p->shape.first_layer;
    for (uint32_t i = 0; i < n; i++) {
        probability[i] = 0;
        m->chosen[i] = false;
    }
    for (uint32_t t = 0; t < seen->n_tokens; t++) {
        struct map_found found;
        if (!(seen->layer == PREDICT_EMBEDDING ? map_store_find_semantic(m->store, t, &found)
                                               : map_store_find_trajectory(m->store, t, &found)))
            return;
        float scale;
        const int8_t *row = map_store_row(m->store, found.map, layer, &scale);
        sort_row(row, n, m->order);
        if (m->shares)
            map_shares_found(m->shares, target->step, layer, t, found.score, m->order);
        uint32_t taken = m->shares ? 0 : take(p, row, scale, found.score);
        for (uint32_t i = 0; i < n; i++) {
            double *q = &probability[m->order[i]];
            m->chosen[m->order[i]] |= i < taken;
            double of_one = m->shares ? map_shares_of(m->shares, layer, t, i)
                                      : (double)row[m->order[i]] * (double)scale;
            *q += (1 - *q) * fmin(of_one, 1);
        }
    }
}

static bool map_chose(const struct predictor *p, uint32_t expert)
{
    const struct expert_map *m = p->state;
    return m->chosen[expert];
}

static const struct predictor_rule selected_rule = {
    .init = map_init,
    .fini = map_fini,
    .observe = map_observe,
    .predict = map_predict,
    .chose = map_chose,
};

static const struct predictor_rule shares_rule = {
    .init = shares_init,
    .fini = map_fini,
    .observe = map_observe,
    .predict = map_predict,
};

static void map_adapt(const struct predict_shape *shape, struct predict_traits *traits)
{
    traits->distance_first = traits->distance_last = distance(shape);
}

const struct predictor_kind predictor_expert_map = {
    .traits = {.answers = true,
               .unbounded = true,
               .reads = PREDICT_READS_GATE | PREDICT_READS_EMBEDDING,
               .distance_first = DISTANCE,
               .distance_last = DISTANCE,
               .embedding_all = true},
    .background = &selected_rule,
    .adapt = map_adapt,
};

const struct predictor_kind predictor_map_shares = {
    .traits = {.answers = true,
               .reads = PREDICT_READS_GATE | PREDICT_READS_EMBEDDING | PREDICT_READS_SELECTED,
               .distance_first = DISTANCE,
               .distance_last = DISTANCE,
               .embedding_all = true},
    .background = &shares_rule,
    .adapt = map_adapt,
};
