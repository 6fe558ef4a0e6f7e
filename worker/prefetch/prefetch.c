/* Prefetch control; see prefetch.h. prefetch_hints.c sends the hints. */
#include "prefetch_internal.h"

#include "base/arrays.h"
#include "base/clock.h"
#include "base/log.h"
#include "model/router.h"
#include "sched/cache/cache.h"

#include <math.h>
#include <stdlib.h>

/* A longer time between two steps: the engine was idle. */
#define STEP_MOST_S 10.0
/* A longer evaluation of a gate was disturbed. */
#define GATE_MOST_S 1e-3

_Static_assert(COST_MODEL_TIMED_STEPS % DEVICE_TRIAL_SHOWN == 0 &&
                   COST_MODEL_TIMED % DEVICE_TRIAL_SHOWN != DEVICE_TRIAL_SHOWN_AT,
               "a timed step is shown to the predictor only if most steps are");

/* ---- Creation ---- */

static const struct trained_predictors *open_trained(struct prefetch *p)
{
    const struct shm *s = &p->options.memory->predictors_shm;
    char why[TRAINED_WHY];
    if (!s->base)
        return NULL;
    if (trained_view(s->base, s->bytes, &p->trained, why))
        return &p->trained;
    log_warn("the trained predictors are not used: %s", why);
    return NULL;
}

static enum error_code make_prediction(struct prefetch *p, struct error *e)
{
    const struct model_params *m = p->params;
    struct prediction_options options = {.shape = {.n_layers = m->n_layers,
                                                   .first_layer = m->n_dense,
                                                   .n_experts = m->router.n_experts,
                                                   .n_used = m->router.n_used,
                                                   .d_model = m->d_model,
                                                   .max_tokens = PREDICT_MAX_TOKENS,
                                                   .trained = open_trained(p),
                                                   .fine_tune = p->options.fine_tune},
                                         .predictor = p->options.predictor,
                                         .gate_is_logits = router_leaves_logits(m->router.kind),
                                         .report = prefetch_report,
                                         .report_arg = p,
                                         .counters = p->options.prediction_counters};
    return prediction_new(&options, &p->prediction, e);
}

enum error_code prefetch_new(const struct prefetch_options *options, struct prefetch **out,
                             struct error *e)
{
    struct prefetch *p = calloc(1, sizeof *p);
    if (!p)
        return error_set(e, ERROR_MEMORY, "no memory for prefetching");
    p->options = *options;
    p->params = &options->memory->map.params;
    atomic_init(&p->prefetcher, (int)options->prefetcher);
    atomic_init(&p->trial_result, -1);
    p->shows = true;
    uint32_t n = p->params->router.n_experts;
    p->memory =
        ARRAYS_NEW(ARRAY(p->hints, n), ARRAY(p->scores, n), ARRAY(p->gate, n), ARRAY(p->best, n));
    enum error_code code =
        p->memory ? make_prediction(p, e) : error_set(e, ERROR_MEMORY, "no memory for prefetching");
    if (code) {
        prefetch_free(p);
        return code;
    }
    *out = p;
    return ERROR_OK;
}

void prefetch_free(struct prefetch *p)
{
    if (!p)
        return;
    prediction_free(p->prediction);
    free(p->memory);
    free(p);
}

enum error_code prefetch_set_predictor(struct prefetch *p, enum sched_predictor predictor,
                                       struct error *e)
{
    return prediction_choose(p->prediction, predictor, e);
}

void prefetch_set_prefetcher(struct prefetch *p, enum sched_prefetcher prefetcher)
{
    atomic_store(&p->prefetcher, (int)prefetcher);
}

const struct prediction *prefetch_prediction(const struct prefetch *p)
{
    return p->prediction;
}

/* ---- The trial ---- */

static void log_trial(const struct device_trial *t)
{
    if (t->result == DEVICE_UNUSED)
        log_info(
            "the device makes a step %.0f %% longer here: the CPU computes all experts for now",
            -100 * t->device_saves);
    else if (t->result == DEVICE_KEEPS)
        log_info("copies of experts make a step %.0f %% longer here: loads and prefetch are off "
                 "for now",
                 -100 * t->copies_save);
    else if (t->result == DEVICE_PREFETCHES || !t->tries[DEVICE_PREFETCHES])
        log_info("copies of experts save time now: they are on");
    else
        log_info("prefetching makes a step %.0f %% longer here: it is off for now, loads are on",
                 -100 * t->prefetch_saves);
}

struct device_trial_result prefetch_trial_result(const struct prefetch *p)
{
    int result = atomic_load_explicit(&p->trial_result, memory_order_relaxed);
    if (result < 0)
        return (struct device_trial_result){0};
    return (struct device_trial_result){
        .tried = true,
        .use = (enum device_use)result,
        .prefetch_saves = atomic_load_explicit(&p->prefetch_saves, memory_order_relaxed),
        .copies_save = atomic_load_explicit(&p->copies_save, memory_order_relaxed),
        .device_saves = atomic_load_explicit(&p->device_saves, memory_order_relaxed)};
}

static void publish_trial(struct prefetch *p)
{
    atomic_store_explicit(&p->prefetch_saves, p->trial.prefetch_saves, memory_order_relaxed);
    atomic_store_explicit(&p->copies_save, p->trial.copies_save, memory_order_relaxed);
    atomic_store_explicit(&p->device_saves, p->trial.device_saves, memory_order_relaxed);
    atomic_store_explicit(&p->trial_result, (int)p->trial.result, memory_order_relaxed);
}

/* Another prefetcher or predictor, or cpuexec has come or gone: a new trial, or none. */
static void follow_policy(struct prefetch *p, bool has_cpu)
{
    bool may =
        sched_prefetch_selects(prefetch_prefetcher(p)) && p->options.cache && !p->options.host;
    uint64_t predictor =
        may && prediction_is_on(p->prediction) ? prediction_number(p->prediction) : 0;
    if (may == p->on_trial && predictor == p->trial_of && has_cpu == p->trial.tries[DEVICE_KEEPS])
        return;
    p->on_trial = may;
    p->trial_of = predictor;
    device_trial_restart(&p->trial, predictor, has_cpu);
    atomic_store_explicit(&p->trial_result, -1, memory_order_relaxed);
}

static double step_s(struct prefetch *p)
{
    uint64_t now_ns = clock_ns(), before_ns = p->step_began_ns;
    double took_s = before_ns ? (double)(now_ns - before_ns) * 1e-9 : 0;
    p->step_began_ns = now_ns;
    return took_s < STEP_MOST_S ? took_s : 0;
}

void prefetch_step(struct prefetch *p, struct prefetch_step ended, struct prefetch_step next,
                   bool has_cpu)
{
    double took_s = step_s(p);
    const struct device_trial_step step = {.n_tokens = ended.n_tokens,
                                           .took_s = took_s,
                                           .misses_s = p->misses_s,
                                           .cpu_only_s = fmax(took_s + p->cpu_only_s, 0)};
    p->misses_s = p->cpu_only_s = 0;
    p->use = DEVICE_PREFETCHES;
    p->shows = true;
    follow_policy(p, has_cpu);
    if (!p->on_trial)
        return;
    enum device_use result = p->trial.result;
    if (ended.decodes)
        device_trial_step(&p->trial, &step);
    p->use = device_trial_use(&p->trial, next.n_tokens, next.decodes);
    p->shows = p->use == DEVICE_PREFETCHES ||
               device_trial_shows(&p->trial, p->step + 1, next.n_tokens, next.decodes);
    counter_add(p->options.counters.without, p->trial_of && p->use != DEVICE_PREFETCHES);
    counter_add(p->options.counters.without_loads, !prefetch_may_load(p));
    counter_add(p->options.counters.without_device, !prefetch_may_use_device(p));
    if (p->trial.result != result)
        log_trial(&p->trial);
    if (p->trial.held)
        publish_trial(p);
}

void prefetch_missed(struct prefetch *p, double misses_s)
{
    p->misses_s += misses_s;
}

void prefetch_cpu_only(struct prefetch *p, double longer_s)
{
    p->cpu_only_s += longer_s;
}

bool prefetch_may_load(const struct prefetch *p)
{
    return p->use < DEVICE_KEEPS;
}

bool prefetch_may_use_device(const struct prefetch *p)
{
    return p->use != DEVICE_UNUSED;
}

void prefetch_enter(struct prefetch *p, uint64_t step)
{
    p->step = step;
}

/* ---- The engine's time ---- */

static uint64_t timed_since(const struct prefetch *p, uint64_t step)
{
    return p->options.cache && cost_model_is_timed(step) ? clock_thread_ns() : 0;
}

static void add_time(struct prefetch *p, uint64_t since_ns)
{
    if (since_ns)
        p->predict_ns += clock_thread_ns() - since_ns;
}

/* A layer that waited afterwards would have waited for as much longer without prediction. */
void prefetch_done(struct prefetch *p, uint64_t step, bool has_waited)
{
    const struct prefetch_counters *k = &p->options.counters;
    if (timed_since(p, step) && p->use == DEVICE_PREFETCHES) {
        histogram_observe(k->predict_seconds, (double)p->predict_ns * 1e-9);
        counter_add(k->predict_exposed_ns, has_waited ? 0 : p->predict_ns);
    }
    p->predict_ns = 0;
}

/* ---- Layers to predict ---- */

/* False: there is nothing left to prefetch, or prefetching is off. What is predicted in a step
 * without prefetches is for the predictor only (report_device). */
static bool predicts(const struct prefetch *p)
{
    return !p->all_resident && p->shows;
}

void prefetch_set_all_resident(struct prefetch *p, bool all_resident)
{
    p->all_resident = all_resident;
}

bool prefetch_watches(const struct prefetch *p)
{
    return !p->all_resident && (prediction_is_on(p->prediction) ||
                                (device_cache_reads(p->options.cache) & CACHE_READS_SCORES));
}

void prefetch_look(struct prefetch *p, uint64_t step, uint32_t layer)
{
    if (!predicts(p))
        return;
    uint64_t since_ns = timed_since(p, step);
    prediction_look(p->prediction, step, layer);
    add_time(p, since_ns);
}

void prefetch_routed(struct prefetch *p, const struct predict_seen *seen)
{
    uint64_t since_ns = timed_since(p, seen->step);
    prediction_begin(p->prediction, seen);
    add_time(p, since_ns);
}

void prefetch_show(struct prefetch *p, const struct predict_seen *seen)
{
    if (seen->layer != PREDICT_EMBEDDING)
        prefetch_report_scores(p, seen);
    if (!predicts(p))
        return;
    uint64_t since_ns = timed_since(p, seen->step);
    prediction_show(p->prediction, seen);
    add_time(p, since_ns);
}

void prefetch_before_wait(struct prefetch *p, uint64_t step)
{
    if (!predicts(p))
        return;
    uint64_t since_ns = timed_since(p, step);
    prediction_wake(p->prediction);
    add_time(p, since_ns);
}

bool prefetch_reads_embedding(const struct prefetch *p, uint32_t n_tokens)
{
    return predicts(p) && prediction_reads(p->prediction, PREDICT_EMBEDDING, n_tokens);
}

bool prefetch_reads_scores(const struct prefetch *p)
{
    return prediction_reads_scores(p->prediction);
}

/* In a timed step gates are always evaluated, so that their time stays known. */
static bool gates_pay(const struct prefetch *p, uint64_t step)
{
    return !p->options.cache || cost_model_is_timed(step) ||
           prefetch_gate_pays(prefetch_prefetcher(p), prediction_is_early(p->prediction), p->gate_s,
                              p->options.costs->layer_s, p->options.costs->misses_s);
}

bool prefetch_gate(struct prefetch *p, const struct predict_seen *seen, uint32_t i,
                   struct predict_target *target, const float **input)
{
    if (i == 0) {
        p->gates_since_ns = timed_since(p, seen->step);
        p->gates_began_ns = p->gates_since_ns ? clock_ns() : 0;
    }
    return predicts(p) && gates_pay(p, seen->step) &&
           prediction_gate(p->prediction, seen, i, target, input);
}

void prefetch_from_gate(struct prefetch *p, const struct predict_seen *seen,
                        const struct predict_target *target, const uint32_t *routing)
{
    prediction_from_gate(p->prediction, seen, target, routing);
}

void prefetch_gates_end(struct prefetch *p)
{
    add_time(p, p->gates_since_ns);
    if (p->gates_began_ns && !p->all_resident) {
        double took_s = (double)(clock_ns() - p->gates_began_ns) * 1e-9;
        layer_mean_add(&p->gate_s, fmin(took_s, GATE_MOST_S));
    }
    p->gates_since_ns = p->gates_began_ns = 0;
}

struct sched_upcoming *prefetch_upcoming(struct prefetch *p, const struct predict_target *now,
                                         uint32_t n_tokens, uint32_t *n)
{
    *n = 0;
    return p->use == DEVICE_PREFETCHES && sched_assigner_plans_prefetch(prefetch_assigner(p))
               ? prediction_upcoming(p->prediction, now, n_tokens, n)
               : NULL;
}
