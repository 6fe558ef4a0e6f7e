/* Predicting the layers still to come: the experts' side of prediction.h, and telling memd; see experts_internal.h. */
#include "experts_internal.h"

#include "base/clock.h"
#include "base/log.h"
#include "model/router.h"
#include "sched/cache.h"

#include <math.h>
#include <string.h>

/* Of a worker's first steps one in so many runs without copies ahead, to learn soon what these cost. Not those in which
 * sched_judge_guesses copies everything. */
#define EARLY_STEPS       64
#define EARLY_STEPS_APART 4

#define GUESS_MOST_S 1e-3 /* longer was not the guess */

static uint64_t timed_since(const struct experts *x, uint64_t step)
{
    return x->cache && is_timed_step(step) ? clock_thread_ns() : 0;
}

static void add_time(struct experts *x, uint64_t since_ns)
{
    if (since_ns)
        x->predict_ns += clock_thread_ns() - since_ns;
}

/* Else nothing is left to copy ahead, or it does not pay. */
static bool predicts(const struct experts *x)
{
    return x->prediction && !x->all_there && !x->without;
}

/* Who has waited afterwards would have waited for as much longer without. */
void experts_observe_prediction(struct experts *x)
{
    if (timed_since(x, x->step) && !x->without) {
        histogram_observe(x->counters.predict_seconds, (double)x->predict_ns * 1e-9);
        counter_add(x->counters.predict_exposed_ns, x->has_waited ? 0 : x->predict_ns);
    }
    x->predict_ns = 0;
}

static bool is_early_step_without(const struct experts *x, enum sched_assigner assigner)
{
    return assigner == ASSIGN_BALANCE && x->step < EARLY_STEPS && x->step % EARLY_STEPS_APART == EARLY_STEPS_APART / 2;
}

static bool is_on_device(const struct experts *x, uint32_t layer, uint32_t expert)
{
    return x->cache && device_cache_read(x->cache, layer, expert).resident >=
                           x->memory->map.slabs[layer].n_segments;
}

static struct cache_mention mention(const struct predicted *p)
{
    return (struct cache_mention){p->expert, (uint32_t)(p->probability * UINT16_MAX)};
}

static bool looks_ahead(const struct experts *x)
{
    return sched_assigner_looks_ahead((enum sched_assigner)atomic_load(&x->assigner));
}

/* Of what is known of a layer what is missing on the device, the first n_experts of it first, into guesses; which: its place in
 * experts. Of those so many may be copied. */
static uint32_t gather_missing(struct experts *x, uint32_t layer, const struct predicted *experts, uint32_t n_experts,
                               uint32_t n_known, uint32_t *n_missing)
{
    uint32_t n_segments = x->memory->map.slabs[layer].n_segments, n = 0, n_judged = 0;
    for (uint32_t i = 0; i < n_known; i++) {
        uint32_t there = device_cache_read(x->cache, layer, experts[i].expert).resident;
        if (there >= n_segments)
            continue;
        x->guesses[n++] =
            (struct sched_guess){.p = (double)experts[i].probability, .missing = n_segments - there, .which = i};
        n_judged += i < n_experts;
    }
    *n_missing = n;
    return n_judged;
}

/* Which guesses memd is told of is the assigner's to say. Into mentions; how many. */
static uint32_t mention_worth(struct experts *x, const struct predict_target *target, const struct predicted *experts,
                              uint32_t n_experts, uint32_t n_known)
{
    enum sched_assigner assigner = (enum sched_assigner)atomic_load(&x->assigner);
    struct sched_costs costs = experts_costs(x);
    double call_s = fmax(0, x->costs.job_s + x->calibration.cpu_call_s - x->calibration.device_call_s);
    uint32_t n_missing, n = 0, declined = 0;
    uint32_t n_judged = gather_missing(x, target->layer, experts, n_experts, n_known, &n_missing);
    if (is_early_step_without(x, assigner))
        return 0;
    sched_judge_guesses(assigner, &costs, call_s, x->step, x->guesses, n_judged, n_missing);
    for (uint32_t i = 0; i < n_judged; i++) {
        declined += x->guesses[i].verdict == GUESS_DECLINE;
        if (x->guesses[i].verdict == GUESS_COPY)
            x->mentions[n++] = mention(&experts[x->guesses[i].which]);
    }
    counter_add(x->counters.declined, declined);
    return n;
}

/* What memd may copy to the device: what is predicted and not there. Its cache policy may want to know all of it. Where the
 * assigner looks ahead, the plan of a layer before says what is copied. */
static void tell_device(struct experts *x, const struct predict_target *target,
                        const struct predicted *experts, uint32_t n_experts, uint32_t n_known)
{
    if (looks_ahead(x) || x->without)
        return;
    if (device_cache_reads(x->cache) & CACHE_READS_PREDICTIONS) {
        for (uint32_t i = 0; i < n_known; i++)
            x->mentions[i] = mention(&experts[i]);
        device_cache_expected(x->cache, target->step, target->layer, x->mentions, n_known);
    }
    enum sched_prefetcher prefetcher = (enum sched_prefetcher)atomic_load(&x->prefetcher);
    uint32_t most = sched_prefetch_most(prefetcher, x->n_experts);
    uint32_t n = mention_worth(x, target, experts, n_experts < most ? n_experts : most, n_known);
    if (!n)
        return;
    device_cache_predicted(x->cache, target->step, target->layer, x->mentions, n);
    device_cache_notify(x->cache);
}

void experts_look_ahead(struct experts *x, struct sched_layer *layer)
{
    struct predict_target now = {x->step, x->layer};
    x->n_ahead = 0;
    if (!x->cache || !x->prediction || !looks_ahead(x) || x->n_done)
        return;
    x->ahead = prediction_ahead(x->prediction, &now, x->n_tokens, &x->n_ahead);
    for (uint32_t i = 0; i < x->n_ahead; i++) {
        struct sched_ahead *a = &x->ahead[i];
        uint32_t n_segments = x->memory->map.slabs[x->layer + a->distance].n_segments;
        struct cached_expert there =
            device_cache_read(x->cache, x->layer + a->distance, a->expert);
        uint32_t n = there.resident + there.in_flight;
        a->missing = n < n_segments ? n_segments - n : 0;
    }
    if (!x->n_ahead)
        return;
    layer->ahead = x->ahead;
    layer->n_ahead = x->n_ahead;
    layer->attention_s = x->attention_s;
}

void experts_tell_ahead(struct experts *x)
{
    bool told = false;
    for (uint32_t i = 0; i < x->n_ahead;) { /* a layer at a time */
        uint32_t n = 0, distance = x->ahead[i].distance;
        for (; i < x->n_ahead && x->ahead[i].distance == distance; i++)
            if (x->ahead[i].prefetch)
                x->mentions[n++] = (struct cache_mention){
                    x->ahead[i].expert, (uint32_t)(x->ahead[i].probability * UINT16_MAX)};
        if (n)
            device_cache_predicted(x->cache, x->step, x->layer + distance, x->mentions, n);
        told |= n > 0;
    }
    if (told)
        device_cache_notify(x->cache);
}

/* And read into host memory: what is neither there nor whole on the device. */
static void tell_host(struct experts *x, const struct predict_target *target,
                      const struct predicted *experts, uint32_t n_experts)
{
    uint32_t n = 0, slot;
    for (uint32_t i = 0; i < n_experts; i++)
        if (!host_experts_find(x->host, target->layer, experts[i].expert, &slot) &&
            !is_on_device(x, target->layer, experts[i].expert))
            x->mentions[n++] = mention(&experts[i]);
    if (!n)
        return;
    host_experts_predicted(x->host, target->step, target->layer, x->mentions, n);
    host_experts_notify(x->host);
}

static void tell_memd(void *arg, const struct predict_target *target,
                      const struct predicted *experts, uint32_t n_experts, uint32_t n_known)
{
    struct experts *x = arg;
    if (x->host)
        tell_host(x, target, experts, n_experts);
    if (x->cache)
        tell_device(x, target, experts, n_experts, n_known);
}

/* What was trained, as memd lends it. */
static const struct sched_learned *open_learned(struct experts *x)
{
    const struct shm *s = &x->memory->learned_shm;
    char why[LEARNED_WHY];
    if (!s->base)
        return NULL;
    if (learned_view(s->base, s->bytes, &x->learned, why))
        return &x->learned;
    log_warn("what was trained for the model is not used: %s", why);
    return NULL;
}

enum error_code experts_predict_init(struct experts *x, struct error *e)
{
    const struct model_params *p = &x->memory->map.params;
    struct prediction_options options = {.shape = {.n_layers = p->n_layers,
                                                   .first_layer = p->n_dense,
                                                   .n_experts = x->n_experts,
                                                   .n_used = x->n_used,
                                                   .d_model = x->d_model,
                                                   .max_tokens = PREDICT_MAX_TOKENS,
                                                   .learned = open_learned(x),
                                                   .fine_tune = x->options.fine_tune},
                                         .predictor = x->options.predictor,
                                         .gate_is_logits = router_leaves_logits(p->router.kind),
                                         .tell = tell_memd,
                                         .tell_arg = x,
                                         .counters = x->options.prediction_counters};
    return prediction_new(&options, &x->prediction, e);
}

enum error_code experts_set_predictor(struct experts *x, enum sched_predictor predictor,
                                      struct error *e)
{
    return x->prediction ? prediction_choose(x->prediction, predictor, e) : ERROR_OK;
}

const struct prediction *experts_prediction(const struct experts *x)
{
    return x->prediction;
}

void experts_look(struct experts *x, uint32_t layer)
{
    uint64_t step = experts_step_of(x, layer);
    if (!predicts(x))
        return;
    uint64_t since_ns = timed_since(x, step);
    prediction_look(x->prediction, step, layer);
    add_time(x, since_ns);
}

void experts_predict_begin(struct experts *x, const uint32_t *selected)
{
    struct predict_seen seen = {
        .step = x->step, .layer = x->layer, .n_tokens = x->n_tokens, .selected = selected};
    uint64_t since_ns = timed_since(x, x->step);
    prediction_begin(x->prediction, &seen);
    add_time(x, since_ns);
}

/* The largest probabilities of the batch's gate, for a cache that reads them: twice as many as a token activates. */
static void tell_scores(struct experts *x, const struct predict_seen *seen)
{
    if (!x->cache || !seen->gate || seen->n_tokens > PREDICT_MAX_TOKENS ||
        !(device_cache_reads(x->cache) & CACHE_READS_SCORES))
        return;
    uint32_t most = 2 * x->n_used < x->n_experts ? 2 * x->n_used : x->n_experts;
    memset(x->scores, 0, x->n_experts * sizeof *x->scores);
    for (uint32_t t = 0; t < seen->n_tokens; t++) {
        memcpy(x->gate, seen->gate + (size_t)t * x->n_experts, x->n_experts * sizeof *x->gate);
        if (router_leaves_logits(x->memory->map.params.router.kind))
            router_logits_to_probabilities(x->gate, 1, x->n_experts);
        for (uint32_t i = 0; i < x->n_experts; i++)
            x->scores[i] += (double)x->gate[i] / seen->n_tokens;
    }
    uint32_t n = predict_best(x->scores, x->n_experts, most, x->best);
    for (uint32_t i = 0; i < n; i++)
        x->mentions[i] = mention(&x->best[i]);
    device_cache_scores(x->cache, x->step, seen->layer, x->mentions, n);
}

void experts_show(struct experts *x, struct predict_seen seen)
{
    if (seen.layer != PREDICT_EMBEDDING)
        tell_scores(x, &seen);
    if (!predicts(x))
        return;
    seen.step = x->step + (seen.layer == PREDICT_EMBEDDING); /* begin has not counted it yet */
    uint64_t since_ns = timed_since(x, seen.step);
    prediction_show(x->prediction, &seen);
    add_time(x, since_ns);
}

void experts_before_wait(struct experts *x)
{
    if (!predicts(x))
        return;
    uint64_t since_ns = timed_since(x, x->step);
    prediction_wake(x->prediction);
    add_time(x, since_ns);
}

bool experts_reads_embedding(const struct experts *x, uint32_t n_tokens)
{
    return predicts(x) && prediction_reads(x->prediction, PREDICT_EMBEDDING, n_tokens);
}

bool experts_reads_scores(const struct experts *x)
{
    return x->prediction && prediction_reads_scores(x->prediction);
}

static void begin_guessing(struct experts *x)
{
    x->guessing_since_ns = timed_since(x, x->step);
    x->guess_began_ns = x->guessing_since_ns ? clock_ns() : 0;
}

/* Where it is timed it is made: so that it stays known what it takes. */
static bool guess_pays(const struct experts *x)
{
    return !x->cache || is_timed_step(x->step) ||
           sched_guess_pays((enum sched_assigner)atomic_load(&x->assigner), prediction_is_early(x->prediction), x->guess_s,
                            x->layer_s);
}

bool experts_predict_gate(struct experts *x, struct predict_seen seen, uint32_t i,
                          struct predict_target *target, const float **input)
{
    seen.step = x->step;
    if (i == 0)
        begin_guessing(x);
    return predicts(x) && guess_pays(x) && prediction_gate(x->prediction, &seen, i, target, input);
}

void experts_predict_end(struct experts *x)
{
    add_time(x, x->guessing_since_ns);
    if (x->guess_began_ns && !x->all_there) {
        double took_s = (double)(clock_ns() - x->guess_began_ns) * 1e-9;
        add_to_mean(&x->guess_s, fmin(took_s, GUESS_MOST_S));
    }
    x->guessing_since_ns = x->guess_began_ns = 0;
}

void experts_predict_guess(struct experts *x, struct predict_seen seen,
                           const struct predict_target *target, const uint32_t *guessed)
{
    seen.step = x->step;
    prediction_guess(x->prediction, &seen, target, guessed);
}
