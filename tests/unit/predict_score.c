/* How good a predictor is; see predict_score.h. */
#include "predict_score.h"

#include "base/arrays.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- probabilities and what came true ---- */

static void add_expert(struct predict_score *s, double p, bool activated)
{
    double clipped = fmin(fmax(p, SCORE_CLIP), 1 - SCORE_CLIP);
    s->n++;
    s->log_loss -= log(activated ? clipped : 1 - clipped);
    s->activated += activated;
    uint32_t i = (uint32_t)(fmin(fmax(p, 0), 1) * SCORE_BINS);
    struct score_bin *bin = &s->bins[i < SCORE_BINS ? i : SCORE_BINS - 1];
    bin->n++;
    bin->activated += activated;
    bin->sum += p;
}

void predict_score_add(struct predict_score *s, const double *probability, const bool *activated,
                       uint32_t n_experts, struct predicted *best)
{
    uint32_t m = 0;
    for (uint32_t e = 0; e < n_experts; e++) {
        add_expert(s, probability[e], activated[e]);
        m += activated[e];
    }
    struct predict_hits hits =
        predict_count_hits(best, predict_best(probability, n_experts, m, best), activated, m);
    s->predictions += hits.predictions;
    s->right += hits.right;
    s->layers++;
}

double predict_score_log_loss(const struct predict_score *s)
{
    return s->n ? s->log_loss / (double)s->n : 0;
}

double predict_score_recall(const struct predict_score *s)
{
    return s->activated ? (double)s->right / (double)s->activated : 0;
}

double predict_score_calibration(const struct predict_score *s)
{
    double error = 0;
    for (uint32_t i = 0; i < SCORE_BINS; i++)
        error += fabs(s->bins[i].sum - (double)s->bins[i].activated);
    return s->n ? error / (double)s->n : 0;
}

/* ---- a predictor over a sequence ---- */

/* A prediction or model update on its way from the background half. */
struct parcel {
    uint64_t due; /* value of predict_trial.n_shown at delivery */
    bool is_update;
    struct predict_target target;
    double *probability; /* [n_experts] */
    uint32_t update_layer;
    float *update;
};

/* A layer's last prediction. */
struct last_prediction {
    uint64_t step; /* 0: nothing */
    double *probability;
};

/* Parcels that can be on their way, as many as the worker's ring holds; more with `late`. */
enum { MOST_PARCELS = 16, LATEST = 32 };

struct predict_trial {
    struct predict_shape shape;
    struct predict_traits traits;
    struct predictor *in_line, *background;
    predict_trial_gate *gate;
    void *gate_arg;
    uint32_t late, update_floats;
    uint64_t n_shown;
    void *memory;               /* of all arrays */
    struct parcel *parcels;     /* [n_parcels], a ring */
    double *parcel_probability; /* [n_parcels][n_experts] */
    float *parcel_update;       /* [n_parcels][update_floats] */
    uint32_t n_parcels, head, n_waiting;
    struct last_prediction *last;         /* [n_layers] */
    double *last_probability;             /* [n_layers][n_experts] */
    struct predict_score *scores;         /* [n_layers] */
    double *probability;                  /* [n_experts] */
    bool *activated;                      /* [n_experts] */
    struct predicted *best;               /* [n_experts] */
    float *gate_input;                    /* [max_tokens][d_model] */
    uint32_t *predicted_routing;          /* [max_tokens][n_used] */
    struct predict_target predicted_last; /* in line */
};

static bool allocate(struct predict_trial *t)
{
    const struct predict_shape *s = &t->shape;
    size_t n = s->n_experts, floats = t->update_floats;
    t->n_parcels = MOST_PARCELS * (1 + t->late);
    t->memory =
        ARRAYS_NEW(ARRAY(t->parcels, t->n_parcels), ARRAY(t->parcel_probability, t->n_parcels * n),
                   ARRAY(t->parcel_update, t->n_parcels * floats), ARRAY(t->last, s->n_layers),
                   ARRAY(t->last_probability, s->n_layers * n), ARRAY(t->scores, s->n_layers),
                   ARRAY(t->probability, n), ARRAY(t->activated, n), ARRAY(t->best, n),
                   ARRAY(t->gate_input, (size_t)s->max_tokens * s->d_model),
                   ARRAY(t->predicted_routing, (size_t)s->max_tokens * s->n_used));
    if (!t->memory)
        return false;
    for (uint32_t i = 0; i < t->n_parcels; i++) {
        t->parcels[i].probability = t->parcel_probability + i * n;
        t->parcels[i].update = t->parcel_update + i * floats;
    }
    for (uint32_t i = 0; i < s->n_layers; i++)
        t->last[i].probability = t->last_probability + i * n;
    return true;
}

struct predict_trial *predict_trial_new_of(const struct predictor_kind *kind,
                                           const struct predict_shape *shape,
                                           predict_trial_gate *gate, void *gate_arg, uint32_t late)
{
    struct predict_trial *t = calloc(1, sizeof *t);
    if (!t)
        return NULL;
    t->shape = *shape;
    t->traits = predictor_traits_of(kind, shape);
    t->gate = gate;
    t->gate_arg = gate_arg;
    t->late = late < LATEST ? late : LATEST;
    t->update_floats = kind->update_floats ? kind->update_floats(shape) : 0;
    if (kind->in_line)
        t->in_line = predictor_new_of(kind->in_line, shape);
    if (kind->background)
        t->background = predictor_new_of(kind->background, shape);
    if ((kind->in_line && !t->in_line) || (kind->background && !t->background) || !allocate(t)) {
        predict_trial_free(t);
        return NULL;
    }
    return t;
}

struct predict_trial *predict_trial_new(enum sched_predictor kind,
                                        const struct predict_shape *shape, predict_trial_gate *gate,
                                        void *gate_arg, uint32_t late)
{
    return predict_trial_new_of(predictor_kind_of(kind), shape, gate, gate_arg, late);
}

void predict_trial_free(struct predict_trial *t)
{
    if (!t)
        return;
    predictor_free(t->in_line);
    predictor_free(t->background);
    free(t->memory);
    free(t);
}

/* ---- as the worker does: look for answers, begin, show, gate and predict ---- */

static void check(struct predict_trial *t, const struct predict_seen *seen)
{
    struct last_prediction *s = &t->last[seen->layer];
    uint32_t n = seen->n_tokens * t->shape.n_used;
    if (!s->step || s->step != seen->step)
        return;
    predict_mark(t->activated, seen->selected, n);
    predict_score_add(&t->scores[seen->layer], s->probability, t->activated, t->shape.n_experts,
                      t->best);
    predict_unmark(t->activated, seen->selected, n);
}

static void keep(struct predict_trial *t, const struct predict_target *target,
                 const double *probability)
{
    struct last_prediction *s = &t->last[target->layer];
    double any = 0;
    for (uint32_t e = 0; e < t->shape.n_experts; e++)
        any += probability[e];
    if (!(any > 0)) /* no prediction */
        return;
    s->step = target->step;
    memcpy(s->probability, probability, t->shape.n_experts * sizeof *probability);
}

/* Before the layer's gate has spoken. */
static void deliver(struct predict_trial *t, const struct predict_seen *seen)
{
    for (; t->n_waiting; t->n_waiting--, t->head = (t->head + 1) % t->n_parcels) {
        struct parcel *p = &t->parcels[t->head];
        if (p->due > t->n_shown)
            return;
        if (p->is_update)
            predictor_apply_update(t->in_line, p->update_layer, p->update);
        else if ((p->target.step > seen->step ||
                  (p->target.step == seen->step && p->target.layer >= seen->layer)) &&
                 !predict_outdated(&p->target, &t->predicted_last, t->shape.first_layer,
                                   seen->step))
            keep(t, &p->target, p->probability);
    }
}

/* NULL: no free parcel. */
static struct parcel *next_parcel(struct predict_trial *t)
{
    if (t->n_waiting == t->n_parcels)
        return NULL;
    struct parcel *p = &t->parcels[(t->head + t->n_waiting) % t->n_parcels];
    p->due = t->n_shown + t->late + 1;
    return p;
}

static void think(struct predict_trial *t, const struct predict_seen *seen)
{
    struct predict_target target;
    struct parcel *parcel;
    predictor_observe(t->background, seen);
    for (uint32_t i = 0; t->traits.answers && (parcel = next_parcel(t)) &&
                         predict_target(&t->traits, &t->shape, seen->step, seen->layer, i, &target);
         i++) {
        predictor_predict(t->background, seen, &target, NULL, parcel->probability);
        parcel->is_update = false;
        parcel->target = target;
        t->n_waiting++;
    }
    while ((parcel = next_parcel(t)) &&
           predictor_next_update(t->background, &parcel->update_layer, parcel->update)) {
        parcel->is_update = true;
        t->n_waiting++;
    }
}

static void prediction(struct predict_trial *t, const struct predict_seen *seen)
{
    struct predict_target target;
    for (uint32_t i = 0;
         predict_gate_target(&t->traits, &t->shape, seen->step, seen->layer, i, &target); i++) {
        const float *input = predictor_gate_input(t->in_line, seen, t->gate_input);
        t->gate(t->gate_arg, &target, input, seen->n_tokens, t->predicted_routing);
        predictor_predict(t->in_line, seen, &target, t->predicted_routing, t->probability);
        keep(t, &target, t->probability);
        t->predicted_last = target;
    }
}

void predict_trial_show(struct predict_trial *t, const struct predict_seen *seen)
{
    bool embedding = seen->layer == PREDICT_EMBEDDING;
    if (seen->n_tokens > t->shape.max_tokens)
        return;
    if (!embedding) {
        t->n_shown++;
        deliver(t, seen);
        check(t, seen);
        if (t->in_line)
            predictor_observe(t->in_line, seen);
    }
    uint32_t reads = t->traits.reads;
    if (embedding ? reads & PREDICT_READS_EMBEDDING : reads)
        think(t, seen);
    if (!embedding && t->in_line && t->gate)
        prediction(t, seen);
}

void predict_trial_clear(struct predict_trial *t)
{
    memset(t->scores, 0, t->shape.n_layers * sizeof *t->scores);
}

const struct predict_score *predict_trial_scores(const struct predict_trial *t)
{
    return t->scores;
}

struct predict_score predict_trial_total(const struct predict_trial *t)
{
    struct predict_score sum = {0};
    for (uint32_t i = 0; i < t->shape.n_layers; i++) {
        const struct predict_score *s = &t->scores[i];
        sum.layers += s->layers;
        sum.n += s->n;
        sum.log_loss += s->log_loss;
        sum.activated += s->activated;
        sum.predictions += s->predictions;
        sum.right += s->right;
        for (uint32_t b = 0; b < SCORE_BINS; b++) {
            sum.bins[b].n += s->bins[b].n;
            sum.bins[b].activated += s->bins[b].activated;
            sum.bins[b].sum += s->bins[b].sum;
        }
    }
    return sum;
}

const double *predict_trial_last(const struct predict_trial *t, uint64_t step, uint32_t layer)
{
    const struct last_prediction *s = &t->last[layer];
    return s->step && s->step == step ? s->probability : NULL;
}
