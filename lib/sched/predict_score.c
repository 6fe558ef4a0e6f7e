/* How good a predictor is; see predict_score.h. */
#include "sched/predict_score.h"

#include "sched/predict_internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- probabilities against what came of them ---- */

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
    s->guesses += hits.guesses;
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

/* On its way from the aside half. */
struct parcel {
    uint64_t due; /* of predict_trial.n_shown */
    bool is_lesson;
    struct predict_target target;
    double *probability; /* [n_experts] */
    uint32_t lesson_layer;
    float *lesson;
};

/* What was said of a layer. */
struct said {
    uint64_t step; /* 0: nothing */
    double *probability;
};

/* Parcels that can be on their way; as the worker's ring, but for those that are late on purpose. */
enum { MOST_PARCELS = 16, LATEST = 32 };

struct predict_trial {
    struct predict_shape shape;
    struct predict_traits traits;
    struct predictor *in_line, *aside;
    predict_trial_gate *gate;
    void *gate_arg;
    uint32_t late, lesson_floats;
    uint64_t n_shown;
    struct parcel *parcels; /* [n_parcels], a ring */
    uint32_t n_parcels, head, n_waiting;
    struct said *said;            /* [n_layers] */
    struct predict_score *scores; /* [n_layers] */
    double *probability;          /* [n_experts] */
    bool *activated;              /* [n_experts] */
    struct predicted *best;       /* [n_experts] */
    float *gate_input;            /* [max_tokens][d_model] */
    uint32_t *guessed;            /* [max_tokens][n_used] */
    struct predict_target guessed_last; /* in line */
};

static bool allocate_parcels(struct predict_trial *t)
{
    t->n_parcels = MOST_PARCELS * (1 + t->late);
    bool done = (t->parcels = calloc(t->n_parcels, sizeof *t->parcels)) != NULL;
    for (uint32_t i = 0; done && i < t->n_parcels; i++) {
        struct parcel *p = &t->parcels[i];
        done = (p->probability = calloc(t->shape.n_experts, sizeof *p->probability)) &&
               (p->lesson = calloc(t->lesson_floats + 1, sizeof *p->lesson));
    }
    return done;
}

static bool allocate(struct predict_trial *t)
{
    const struct predict_shape *s = &t->shape;
    bool done =
        (t->said = calloc(s->n_layers, sizeof *t->said)) &&
        (t->scores = calloc(s->n_layers, sizeof *t->scores)) &&
        (t->probability = calloc(s->n_experts, sizeof *t->probability)) &&
        (t->activated = calloc(s->n_experts, sizeof *t->activated)) &&
        (t->best = calloc(s->n_experts, sizeof *t->best)) &&
        (t->gate_input = calloc((size_t)s->max_tokens * s->d_model, sizeof *t->gate_input)) &&
        (t->guessed = calloc((size_t)s->max_tokens * s->n_used, sizeof *t->guessed));
    for (uint32_t i = 0; done && i < s->n_layers; i++)
        done =
            (t->said[i].probability = calloc(s->n_experts, sizeof *t->said[i].probability)) != NULL;
    return done && allocate_parcels(t);
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
    t->lesson_floats = kind->lesson_floats ? kind->lesson_floats(shape) : 0;
    if (kind->in_line)
        t->in_line = predictor_new_of(kind->in_line, shape);
    if (kind->aside)
        t->aside = predictor_new_of(kind->aside, shape);
    if ((kind->in_line && !t->in_line) || (kind->aside && !t->aside) || !allocate(t)) {
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
    predictor_free(t->aside);
    for (uint32_t i = 0; t->parcels && i < t->n_parcels; i++) {
        free(t->parcels[i].probability);
        free(t->parcels[i].lesson);
    }
    for (uint32_t i = 0; t->said && i < t->shape.n_layers; i++)
        free(t->said[i].probability);
    free(t->parcels);
    free(t->said);
    free(t->scores);
    free(t->probability);
    free(t->activated);
    free(t->best);
    free(t->gate_input);
    free(t->guessed);
    free(t);
}

/* ---- as the worker does: look, begin, show, gate and guess ---- */

static void check(struct predict_trial *t, const struct predict_seen *seen)
{
    struct said *s = &t->said[seen->layer];
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
    struct said *s = &t->said[target->layer];
    double any = 0;
    for (uint32_t e = 0; e < t->shape.n_experts; e++)
        any += probability[e];
    if (!(any > 0)) /* it has nothing to say */
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
        if (p->is_lesson)
            predictor_learn(t->in_line, p->lesson_layer, p->lesson);
        else if ((p->target.step > seen->step || (p->target.step == seen->step && p->target.layer >= seen->layer)) &&
                 !predict_outdated(&p->target, &t->guessed_last, t->shape.first_layer, seen->step))
            keep(t, &p->target, p->probability);
    }
}

/* NULL: no room. */
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
    predictor_observe(t->aside, seen);
    for (uint32_t i = 0; t->traits.answers && (parcel = next_parcel(t)) &&
                         predict_target(&t->traits, &t->shape, seen->step, seen->layer, i, &target);
         i++) {
        predictor_predict(t->aside, seen, &target, NULL, parcel->probability);
        parcel->is_lesson = false;
        parcel->target = target;
        t->n_waiting++;
    }
    while ((parcel = next_parcel(t)) &&
           predictor_teach(t->aside, &parcel->lesson_layer, parcel->lesson)) {
        parcel->is_lesson = true;
        t->n_waiting++;
    }
}

static void guess(struct predict_trial *t, const struct predict_seen *seen)
{
    struct predict_target target;
    for (uint32_t i = 0; predict_gate_target(&t->traits, &t->shape, seen->step, seen->layer, i, &target);
         i++) {
        const float *input = predictor_gate_input(t->in_line, seen, t->gate_input);
        t->gate(t->gate_arg, &target, input, seen->n_tokens, t->guessed);
        predictor_predict(t->in_line, seen, &target, t->guessed, t->probability);
        keep(t, &target, t->probability);
        t->guessed_last = target;
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
        guess(t, seen);
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
        sum.guesses += s->guesses;
        sum.right += s->right;
        for (uint32_t b = 0; b < SCORE_BINS; b++) {
            sum.bins[b].n += s->bins[b].n;
            sum.bins[b].activated += s->bins[b].activated;
            sum.bins[b].sum += s->bins[b].sum;
        }
    }
    return sum;
}

const double *predict_trial_said(const struct predict_trial *t, uint64_t step, uint32_t layer)
{
    const struct said *s = &t->said[layer];
    return s->step && s->step == step ? s->probability : NULL;
}
