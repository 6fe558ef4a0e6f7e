/* Ours: several predictors mixed, each by what it turned out to be worth (blend.h).
 *
 * A part is a predictor of its own, with its own halves and targets; parts[] is all there is to say about one. Aside halves run in
 * the mixture's aside half. What they say of a layer is taught to the in-line half: a lesson is one part's log-odds of one
 * layer, with the step and the number of tokens that it is meant for, so the in-line half knows what is of the step
 * under way and what came too late. A lesson that a part has for its own in-line half travels in the same way.
 * The in-line half mixes them with the one part that is its own, the coming layer's gate, which is always there.
 *
 * Each layer is predicted twice. The aside half predicts the layer after the next one, from what its parts say of it, with weights of
 * their own: early, so that copies have twice the time, and the only time where the gate is not asked. Then in line, with the gate.
 *
 * The first layer in line comes at the end of the step before, its gate on the input of the last layer's (as MoEpic does): not very
 * well. The aside half predicts it when the embedding is shown, from the parts that know something then: better, if it is in time. */
#include "sched/blend.h"
#include "sched/learned.h"
#include "sched/predict_internal.h"

#include <stdlib.h>
#include <string.h>

struct part {
    const struct predictor_kind *kind;
    uint32_t keeps; /* as in struct blend_shape */
};

/* The first one is in line. What is learnt of many tokens changes little in a few steps. */
static const struct part parts[] = {
    {&predictor_residual, 0},
    {&predictor_frequency, 8},
    {&predictor_recency, 8},
    {&predictor_map_shares, 0},
    {&predictor_mlp, 0}, /* where something was trained */
};
enum { PARTS = sizeof parts / sizeof *parts, GATE = 0 };
_Static_assert((int)PARTS <= (int)BLEND_MOST, "too many parts");

/* What a lesson begins with. A step is told modulo 2^24, which a float holds. */
enum { LESSON_PART, LESSON_STEP, LESSON_TOKENS /* 0: the part's own lesson */, LESSON_HEAD };
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
                         const struct predict_target *target, const uint32_t *guessed,
                         double *probability)
{
    struct line *l = p->state;
    uint32_t layer = target->layer - p->shape.first_layer;
    predictor_predict(l->gate, seen, target, guessed, probability);
    log_odds(probability, p->shape.n_experts,
             blend_row(l->blend, layer, GATE, target->step, seen->n_tokens));
    blend_predict(l->blend, layer, target->step, seen->n_tokens, probability);
}

static void line_learn(struct predictor *p, uint32_t layer, const float *lesson)
{
    struct line *l = p->state;
    uint32_t part = (uint32_t)lesson[LESSON_PART], n_tokens = (uint32_t)lesson[LESSON_TOKENS];
    if (part == GATE) {
        predictor_learn(l->gate, layer, lesson + LESSON_HEAD);
        return;
    }
    /* the step nearest to the one under way that it can be */
    uint32_t ahead = ((uint32_t)lesson[LESSON_STEP] - (uint32_t)l->step) & STEP_MASK;
    uint64_t step = l->step + ahead - (ahead > STEP_MASK / 2 ? STEP_MASK + 1u : 0);
    float *row = blend_row(l->blend, layer - p->shape.first_layer, part, step, n_tokens);
    memcpy(row, lesson + LESSON_HEAD, p->shape.n_experts * sizeof *row);
}

/* ---- aside ---- */

/* Of one layer shown at most so many answers are kept: as many as the worker takes between two layers. */
enum { ANSWERS = 16 };

struct answer {
    uint32_t part, n_tokens;
    struct predict_target target;
};

struct beside {
    struct predictor *parts[PARTS]; /* NULL: it has no aside half */
    struct predict_traits traits[PARTS];
    struct blend *first; /* of the first layer */
    /* Of all of them, each of every other one, for two are waiting to be checked; of an odd number the last one has the third, as the
     * first one comes next. */
    struct blend *early[3];
    struct answer answers[ANSWERS];
    uint32_t n_answers, n_taught;
    float *log_odds;     /* [ANSWERS][n_experts] */
    double *probability; /* [n_experts] */
};

static bool aside_init(struct predictor *p)
{
    struct beside *a = p->state = calloc(1, sizeof *a);
    if (!a || !expert_layers(&p->shape))
        return false;
    for (uint32_t i = 0; i < PARTS; i++) {
        a->traits[i] = predictor_traits_of(parts[i].kind, &p->shape);
        if (parts[i].kind->aside &&
            !(a->parts[i] = predictor_new_of(parts[i].kind->aside, &p->shape)))
            return false;
    }
    a->first = make_blend(&p->shape, 1);
    for (int i = 0; i < 3; i++)
        a->early[i] = make_blend(&p->shape, expert_layers(&p->shape));
    a->log_odds = calloc((size_t)ANSWERS * p->shape.n_experts, sizeof *a->log_odds);
    a->probability = calloc(p->shape.n_experts, sizeof *a->probability);
    return a->first && a->early[0] && a->early[1] && a->early[2] && a->log_odds && a->probability;
}

static void aside_fini(struct predictor *p)
{
    struct beside *a = p->state;
    for (uint32_t i = 0; i < PARTS; i++)
        predictor_free(a->parts[i]);
    blend_free(a->first);
    for (int i = 0; i < 3; i++)
        blend_free(a->early[i]);
    free(a->log_odds);
    free(a->probability);
}

/* Where a layer's early prediction is made, and as which layer. */
static struct blend *early_of(const struct predictor *p, uint32_t layer, uint32_t *place)
{
    const struct beside *a = p->state;
    *place = layer - p->shape.first_layer;
    bool is_odd_one = *place % 2 == 0 && *place + 1 == expert_layers(&p->shape);
    return a->early[is_odd_one ? 2 : *place % 2];
}

/* What a part says of one of its targets, for the in-line half, for the early prediction, and of the first layer for that. */
static void ask(struct predictor *p, uint32_t part, const struct predict_seen *seen,
                const struct predict_target *target)
{
    struct beside *a = p->state;
    uint32_t n = p->shape.n_experts;
    double any = 0;
    predictor_predict(a->parts[part], seen, target, NULL, a->probability);
    for (uint32_t i = 0; i < n; i++)
        any += a->probability[i];
    if (!(any > 0)) /* it knows nothing */
        return;
    if (target->layer == p->shape.first_layer)
        log_odds(a->probability, n, blend_row(a->first, 0, part, target->step, seen->n_tokens));
    uint32_t place;
    struct blend *early = early_of(p, target->layer, &place);
    log_odds(a->probability, n, blend_row(early, place, part, target->step, seen->n_tokens));
    if (a->n_answers == ANSWERS || /* the first layer was predicted in line already */
        (seen->layer == PREDICT_EMBEDDING && target->layer == p->shape.first_layer))
        return;
    log_odds(a->probability, n, a->log_odds + (size_t)a->n_answers * n);
    a->answers[a->n_answers++] = (struct answer){part, seen->n_tokens, *target};
}

static void aside_observe(struct predictor *p, const struct predict_seen *seen)
{
    struct beside *a = p->state;
    bool embedding = seen->layer == PREDICT_EMBEDDING;
    a->n_answers = a->n_taught = 0; /* those that found no room are late */
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

/* The first layer when the embedding is shown, else the layer after the next one: the next one is the in-line half's. */
static void aside_predict(struct predictor *p, const struct predict_seen *seen,
                          const struct predict_target *target, const uint32_t *guessed,
                          double *probability)
{
    struct beside *a = p->state;
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

static bool aside_teach(struct predictor *p, uint32_t *layer, float *lesson)
{
    struct beside *a = p->state;
    uint32_t n = p->shape.n_experts;
    if (a->n_taught < a->n_answers) {
        const struct answer *answer = &a->answers[a->n_taught];
        lesson[LESSON_PART] = (float)answer->part;
        lesson[LESSON_STEP] = (float)(answer->target.step & STEP_MASK);
        lesson[LESSON_TOKENS] = (float)answer->n_tokens;
        memcpy(lesson + LESSON_HEAD, a->log_odds + (size_t)a->n_taught++ * n, n * sizeof *lesson);
        *layer = answer->target.layer;
        return true;
    }
    lesson[LESSON_PART] = GATE;
    lesson[LESSON_TOKENS] = 0;
    return predictor_teach(a->parts[GATE], layer, lesson + LESSON_HEAD);
}

static uint32_t lesson_floats(const struct predict_shape *shape)
{
    uint32_t own = parts[GATE].kind->lesson_floats(shape);
    return LESSON_HEAD + (own > shape->n_experts ? own : shape->n_experts);
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
    .predict = aside_predict,
    .teach = aside_teach,
};

/* What mlp says of the next layer alone is not early. */
static void adapt(const struct predict_shape *shape, struct predict_traits *traits)
{
    traits->early = predictor_is_trained(PREDICT_MLP, shape) && shape->learned->header.stride > 1;
}

/* Reads what any part may read. */
const struct predictor_kind predictor_mixture = {
    .traits = {.in_line = true,
               .answers = true,
               .reads = PREDICT_READS_HIDDEN | PREDICT_READS_GATE | PREDICT_READS_SELECTED |
                        PREDICT_READS_EMBEDDING,
               .ahead_first = 1,
               .ahead_last = 2,
               .gates = 1,
               .wraps = true,
               .spread = 2},
    .in_line = &in_line,
    .aside = &aside,
    .lesson_floats = lesson_floats,
    .adapt = adapt,
};
