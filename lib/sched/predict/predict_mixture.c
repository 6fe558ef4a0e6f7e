/* Several predictors mixed, each weighed by its record (ours; blend.h). docs/design/prediction.md
 * has the reasons.
 *
 * A part is a predictor of its own, with its own halves and targets; parts[] is all that defines
 * one. Background halves of parts run in the mixture's background half. What they predict of a
 * layer goes to the in-line half as model updates: an update is one part's log-odds of one layer,
 * with the step and the number of tokens that it is meant for, so the in-line half knows which
 * updates are of the step under way and which are late. A part's update for its own in-line half
 * travels in the same way. The in-line half mixes them with the one part of its own, the coming
 * layer's gate, which always speaks.
 *
 * Each layer is predicted twice. First the background half predicts the layer after the next one,
 * from its parts, with weights of their own: early, so that copies have twice the time, and the
 * only time where the gate is not asked. Then the in-line half predicts it with the gate.
 *
 * The in-line prediction of the first layer comes at the end of the step before, from its gate on
 * the input of the last layer's (as in MoEpic): not very good. The background half predicts the
 * first layer when the embedding is shown, from the parts that know something then: better, if it
 * is in time. */
#include "base/arrays.h"
#include "sched/predict/blend.h"
#include "sched/predict/trained.h"
#include "sched/predict/predict_internal.h"

#include <stdlib.h>
#include <string.h>

struct part {
    const struct predictor_kind *kind;
    uint32_t keeps; /* as in struct blend_shape */
};

/* The first one is in line. Counts over many tokens change little in a few steps. */
static const struct part parts[] = {
    {&predictor_residual, 0},    {&predictor_frequency, 8},
    {&predictor_recency, 8},     {&predictor_map_shares, 0},
    {&predictor_mlp, 0},         {&predictor_mtp, 0}, /* where they were trained */
    {&predictor_token_table, 0},
};
enum { PARTS = sizeof parts / sizeof *parts, GATE = 0 };
_Static_assert((int)PARTS <= (int)BLEND_MOST, "too many parts");

/* What an update begins with. The step is modulo 2^24, which a float holds. */
enum { UPDATE_PART, UPDATE_STEP, UPDATE_TOKENS /* 0: the part's own update */, UPDATE_HEAD };
enum { STEP_MASK = 0xffffff };

static uint32_t expert_layers(const struct predict_shape *s)
{
    return s->n_layers - s->first_layer;
}

static struct blend *make_blend(const struct predict_shape *s, uint32_t n_layers)
{
    struct blend_shape shape = {.n_layers = n_layers, .n_experts = s->n_experts, .n_parts = PARTS};
    for (uint32_t i = 0; i < PARTS; i++)
        shape.keeps[i] = parts[i].keeps;
    return blend_new(&shape);
}

static void log_odds(const double *probability, uint32_t n, float *out)
{
    float nothing = blend_logit(0);
    for (uint32_t i = 0; i < n; i++)
        out[i] = probability[i] > 0 ? blend_logit(probability[i]) : nothing;
}

/* ---- in line ---- */

struct line {
    struct predictor *gate;
    struct blend *blend;
    uint64_t step; /* the last seen */
};

static bool line_init(struct predictor *p)
{
    struct line *l = p->state = calloc(1, sizeof *l);
    if (!l || !expert_layers(&p->shape))
        return false;
    l->gate = predictor_new_of(parts[GATE].kind->in_line, &p->shape);
    l->blend = make_blend(&p->shape, expert_layers(&p->shape));
    return l->gate && l->blend;
}

static void line_fini(struct predictor *p)
{
    struct line *l = p->state;
    predictor_free(l->gate);
    blend_free(l->blend);
}

static void line_observe(struct predictor *p, const struct predict_seen *seen)
{
    struct line *l = p->state;
    l->step = seen->step;
    predictor_observe(l->gate, seen);
    blend_check(l->blend, seen->layer - p->shape.first_layer, seen->step, seen->selected,
                seen->n_tokens, p->shape.n_used);
}

static const float *line_gate_input(struct predictor *p, const struct predict_seen *seen,
                                    float *out)
{
    struct line *l = p->state;
    return predictor_gate_input(l->gate, seen, out);
}

static void line_predict(struct predictor *p, const struct predict_seen *seen,
                         const struct predict_target *target, const uint32_t *predicted_routing,
                         double *probability)
{
    struct line *l = p->state;
    uint32_t layer = target->layer - p->shape.first_layer;
    predictor_predict(l->gate, seen, target, predicted_routing, probability);
    log_odds(probability, p->shape.n_experts,
             blend_row(l->blend, layer, GATE, target->step, seen->n_tokens));
    blend_predict(l->blend, layer, target->step, seen->n_tokens, probability);
}

static void line_apply_update(struct predictor *p, uint32_t layer, const float *update)
{
    struct line *l = p->state;
    uint32_t part = (uint32_t)update[UPDATE_PART], n_tokens = (uint32_t)update[UPDATE_TOKENS];
    if (part == GATE) {
        predictor_apply_update(l->gate, layer, update + UPDATE_HEAD);
        return;
    }
    /* the step nearest to the one under way with these bits */
    uint32_t upcoming = ((uint32_t)update[UPDATE_STEP] - (uint32_t)l->step) & STEP_MASK;
    uint64_t step = l->step + upcoming - (upcoming > STEP_MASK / 2 ? STEP_MASK + 1u : 0);
    float *row = blend_row(l->blend, layer - p->shape.first_layer, part, step, n_tokens);
    memcpy(row, update + UPDATE_HEAD, p->shape.n_experts * sizeof *row);
}

/* ---- background ---- */

/* Predictions kept of one shown layer: as many as the worker takes between two layers. */
enum { ANSWERS = 16 };

struct answer {
    uint32_t part, n_tokens;
    struct predict_target target;
};

struct background_mixture {
    struct predictor *parts[PARTS]; /* NULL: no background half */
    struct predict_traits traits[PARTS];
    struct blend *first; /* of the first layer */
    /* Of all layers: two for alternate layers, because two predictions wait to be checked. With an
     * odd number of layers the last one has the third, because the first one comes next. */
    struct blend *early[3];
    struct answer answers[ANSWERS];
    uint32_t n_answers, n_updates;
    float *log_odds;     /* [ANSWERS][n_experts] */
    double *probability; /* [n_experts] */
};

static bool background_init(struct predictor *p)
{
    struct background_mixture *a, new = {0};
    size_t n_experts = p->shape.n_experts;
    if (!expert_layers(&p->shape))
        return false;
    p->state = ARRAYS_NEW(ARRAY(a, 1), ARRAY(new.log_odds, ANSWERS * n_experts),
                          ARRAY(new.probability, n_experts));
    if (!p->state)
        return false;
    *a = new;
    for (uint32_t i = 0; i < PARTS; i++) {
        a->traits[i] = predictor_traits_of(parts[i].kind, &p->shape);
        if (parts[i].kind->background &&
            !(a->parts[i] = predictor_new_of(parts[i].kind->background, &p->shape)))
            return false;
    }
    a->first = make_blend(&p->shape, 1);
    for (int i = 0; i < 3; i++)
        a->early[i] = make_blend(&p->shape, expert_layers(&p->shape));
    return a->first && a->early[0] && a->early[1] && a->early[2];
}

static void background_fini(struct predictor *p)
{
    struct background_mixture *a = p->state;
    for (uint32_t i = 0; i < PARTS; i++)
        predictor_free(a->parts[i]);
    blend_free(a->first);
    for (int i = 0; i < 3; i++)
        blend_free(a->early[i]);
}

/* The blend that predicts a layer early, and the layer's number there. */
static struct blend *early_of(const struct predictor *p, uint32_t layer, uint32_t *place)
{
    const struct background_mixture *a = p->state;
    *place = layer - p->shape.first_layer;
    bool is_odd_one = *place % 2 == 0 && *place + 1 == expert_layers(&p->shape);
    return a->early[is_odd_one ? 2 : *place % 2];
}

/* Asks a part for one of its targets, for the in-line half, for the early prediction, and for that
 * of the first layer. */
static void ask(struct predictor *p, uint32_t part, const struct predict_seen *seen,
                const struct predict_target *target)
{
    struct background_mixture *a = p->state;
    uint32_t n = p->shape.n_experts;
    double any = 0;
    predictor_predict(a->parts[part], seen, target, NULL, a->probability);
    for (uint32_t i = 0; i < n; i++)
        any += a->probability[i];
    if (!(any > 0)) /* no prediction */
        return;
    if (target->layer == p->shape.first_layer)
        log_odds(a->probability, n, blend_row(a->first, 0, part, target->step, seen->n_tokens));
    uint32_t place;
    struct blend *early = early_of(p, target->layer, &place);
    log_odds(a->probability, n, blend_row(early, place, part, target->step, seen->n_tokens));
    if (a->n_answers == ANSWERS || /* the first layer is already predicted in line */
        (seen->layer == PREDICT_EMBEDDING && target->layer == p->shape.first_layer))
        return;
    log_odds(a->probability, n, a->log_odds + (size_t)a->n_answers * n);
    a->answers[a->n_answers++] = (struct answer){part, seen->n_tokens, *target};
}

static void background_observe(struct predictor *p, const struct predict_seen *seen)
{
    struct background_mixture *a = p->state;
    bool embedding = seen->layer == PREDICT_EMBEDDING;
    a->n_answers = a->n_updates = 0; /* those that did not fit are late */
    if (seen->layer == p->shape.first_layer)
        blend_check(a->first, 0, seen->step, seen->selected, seen->n_tokens, p->shape.n_used);
    if (!embedding) {
        uint32_t place;
        struct blend *early = early_of(p, seen->layer, &place);
        blend_check(early, place, seen->step, seen->selected, seen->n_tokens, p->shape.n_used);
    }
    for (uint32_t i = 0; i < PARTS; i++) {
        const struct predict_traits *traits = &a->traits[i];
        if (!a->parts[i] || (embedding && !(traits->reads & PREDICT_READS_EMBEDDING)))
            continue;
        predictor_observe(a->parts[i], seen);
        struct predict_target to;
        for (uint32_t k = 0;
             traits->answers && predict_target(traits, &p->shape, seen->step, seen->layer, k, &to);
             k++)
            ask(p, i, seen, &to);
    }
}

/* Predicts the first layer when the embedding is shown, else the layer after the next one: the
 * in-line half predicts the next one. */
static void background_predict(struct predictor *p, const struct predict_seen *seen,
                               const struct predict_target *target,
                               const uint32_t *predicted_routing, double *probability)
{
    struct background_mixture *a = p->state;
    struct predict_target next;
    uint32_t place;
    struct blend *b = early_of(p, target->layer, &place);
    predict_target(&predictor_mixture.traits, &p->shape, seen->step, seen->layer, 0, &next);
    bool is_next = next.layer == target->layer && next.step == target->step;
    if (is_next && seen->layer == PREDICT_EMBEDDING) {
        b = a->first;
        place = 0;
    } else if (is_next) {
        b = NULL;
    }
    if (!b || !blend_predict(b, place, target->step, seen->n_tokens, probability))
        predict_nothing(&p->shape, probability);
}

static bool background_next_update(struct predictor *p, uint32_t *layer, float *update)
{
    struct background_mixture *a = p->state;
    uint32_t n = p->shape.n_experts;
    if (a->n_updates < a->n_answers) {
        const struct answer *answer = &a->answers[a->n_updates];
        update[UPDATE_PART] = (float)answer->part;
        update[UPDATE_STEP] = (float)(answer->target.step & STEP_MASK);
        update[UPDATE_TOKENS] = (float)answer->n_tokens;
        memcpy(update + UPDATE_HEAD, a->log_odds + (size_t)a->n_updates++ * n, n * sizeof *update);
        *layer = answer->target.layer;
        return true;
    }
    update[UPDATE_PART] = GATE;
    update[UPDATE_TOKENS] = 0;
    return predictor_next_update(a->parts[GATE], layer, update + UPDATE_HEAD);
}

static uint32_t update_floats(const struct predict_shape *shape)
{
    uint32_t own = parts[GATE].kind->update_floats(shape);
    return UPDATE_HEAD + (own > shape->n_experts ? own : shape->n_experts);
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
    .fini = background_fini,
    .observe = background_observe,
    .predict = background_predict,
    .next_update = background_next_update,
};

/* An mlp that predicts only the next layer is not early. */
static void adapt(const struct predict_shape *shape, struct predict_traits *traits)
{
    traits->early = predictor_is_trained(PREDICT_MLP, shape) && shape->trained->header.stride > 1;
}

/* Reads all that any part reads. */
const struct predictor_kind predictor_mixture = {
    .traits = {.in_line = true,
               .answers = true,
               .reads = PREDICT_READS_HIDDEN | PREDICT_READS_GATE | PREDICT_READS_SELECTED |
                        PREDICT_READS_EMBEDDING,
               .distance_first = 1,
               .distance_last = 2,
               .gates = 1,
               .wraps = true,
               .spread = 2},
    .in_line = &in_line,
    .background = &background,
    .update_floats = update_floats,
    .adapt = adapt,
};
