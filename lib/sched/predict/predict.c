/* What all predictors have in common; predict_kinds.c has them by name. */
#include "sched/assign/assign.h"
#include "sched/predict/trained.h"
#include "sched/predict/predict_internal.h"

#include <stdlib.h>
#include <string.h>

struct predict_traits predictor_traits_of(const struct predictor_kind *kind,
                                          const struct predict_shape *shape)
{
    struct predict_traits traits = kind->traits;
    if (kind->adapt)
        kind->adapt(shape, &traits);
    return traits;
}

bool predictor_is_trained(enum sched_predictor kind, const struct predict_shape *shape)
{
    bool needs = kind == PREDICT_MLP || kind == PREDICT_LLAPOR || kind == PREDICT_MTP;
    return !needs || (shape->trained && trained_fits_shape(shape->trained, shape) &&
                      trained_has(shape->trained, kind));
}

bool predictor_trained(const struct predictor *p)
{
    return p->shape.trained && trained_fits_shape(p->shape.trained, &p->shape);
}

void predict_nothing(const struct predict_shape *shape, double *probability)
{
    for (uint32_t i = 0; i < shape->n_experts; i++)
        probability[i] = 0;
}

bool predict_target(const struct predict_traits *traits, const struct predict_shape *shape,
                    uint64_t step, uint32_t layer, uint32_t i, struct predict_target *out)
{
    uint32_t expert_layers = shape->n_layers - shape->first_layer;
    uint32_t first = traits->distance_first;
    if (layer == PREDICT_EMBEDDING && traits->embedding_all && first)
        first = 1;
    if (!first || i > traits->distance_last - first || !expert_layers)
        return false;
    /* place among the layers with experts; the embedding stands before the first */
    uint64_t place = (uint64_t)first + i;
    place += layer == PREDICT_EMBEDDING ? 0 : layer - shape->first_layer + 1;
    if (place > expert_layers && !traits->wraps)
        return false;
    *out = (struct predict_target){step + (place - 1) / expert_layers,
                                   shape->first_layer + (uint32_t)((place - 1) % expert_layers)};
    return true;
}

struct predictor *predictor_new_of(const struct predictor_rule *rule,
                                   const struct predict_shape *shape)
{
    struct predictor *p = calloc(1, sizeof *p);
    if (!p)
        return NULL;
    p->rule = rule;
    p->shape = *shape;
    if (rule->init && !rule->init(p)) {
        predictor_free(p);
        return NULL;
    }
    return p;
}

void predictor_free(struct predictor *p)
{
    if (!p)
        return;
    if (p->rule->fini && p->state)
        p->rule->fini(p);
    free(p->state);
    free(p);
}

void predictor_observe(struct predictor *p, const struct predict_seen *seen)
{
    if (p->rule->observe)
        p->rule->observe(p, seen);
}

const float *predictor_gate_input(struct predictor *p, const struct predict_seen *seen, float *out)
{
    return p->rule->gate_input ? p->rule->gate_input(p, seen, out) : seen->hidden;
}

void predictor_predict(struct predictor *p, const struct predict_seen *seen,
                       const struct predict_target *target, const uint32_t *predicted_routing,
                       double *probability)
{
    p->rule->predict(p, seen, target, predicted_routing, probability);
}

bool predictor_next_update(struct predictor *p, uint32_t *layer, float *update)
{
    return p->rule->next_update && p->rule->next_update(p, layer, update);
}

void predictor_apply_update(struct predictor *p, uint32_t layer, const float *update)
{
    p->rule->apply_update(p, layer, update);
}

/* Moves the chosen experts before the others; each part keeps its order. */
static uint32_t chosen_first(const struct predictor *p, struct predicted *experts, uint32_t n)
{
    uint32_t chosen = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (!p->rule->chose(p, experts[i].expert))
            continue;
        struct predicted this = experts[i];
        memmove(&experts[chosen + 1], &experts[chosen], (i - chosen) * sizeof *experts);
        experts[chosen++] = this;
    }
    return chosen;
}

static uint32_t count_rows(const uint32_t *predicted_routing, uint32_t n_rows, uint32_t expert)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < n_rows; i++)
        n += predicted_routing[i] == expert;
    return n;
}

/* Experts with equally many tokens keep their order. */
static void most_loaded_first(struct predicted *experts, uint32_t n,
                              const uint32_t *predicted_routing, uint32_t n_rows)
{
    uint32_t tokens[SCHED_MAX_EXPERTS];
    for (uint32_t i = 0; i < n; i++) {
        struct predicted this = experts[i];
        uint32_t mine = count_rows(predicted_routing, n_rows, this.expert), place = i;
        for (; place > 0 && tokens[place - 1] < mine; place--) {
            tokens[place] = tokens[place - 1];
            experts[place] = experts[place - 1];
        }
        tokens[place] = mine;
        experts[place] = this;
    }
}

uint32_t predictor_list(const struct predictor *p, const struct predict_traits *traits,
                        uint32_t n_tokens, const uint32_t *predicted_routing,
                        const double *probability, struct predicted *out, uint32_t *n_known)
{
    *n_known = predict_best(probability, p->shape.n_experts,
                            predict_most(traits, &p->shape, n_tokens), out);
    if (traits->by_tokens && predicted_routing && n_tokens > 1)
        most_loaded_first(out, *n_known, predicted_routing, n_tokens * p->shape.n_used);
    return p->rule->chose ? chosen_first(p, out, *n_known) : *n_known;
}

uint32_t predict_mark(bool *activated, const uint32_t *selected, uint32_t n_rows)
{
    uint32_t m = 0;
    for (uint32_t i = 0; i < n_rows; i++) {
        m += !activated[selected[i]];
        activated[selected[i]] = true;
    }
    return m;
}

void predict_unmark(bool *activated, const uint32_t *selected, uint32_t n_rows)
{
    for (uint32_t i = 0; i < n_rows; i++)
        activated[selected[i]] = false;
}

struct predict_hits predict_count_hits(const struct predicted *experts, uint32_t n,
                                       const bool *activated, uint32_t m)
{
    struct predict_hits hits = {.predictions = n < m ? n : m};
    for (uint64_t i = 0; i < hits.predictions; i++)
        hits.right += activated[experts[i].expert];
    return hits;
}
