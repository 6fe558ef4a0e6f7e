/* Forward's and the control plane's calls of prefetch, with the layer's step; see experts.h. */
#include "experts_internal.h"

void experts_set_assigner(struct experts *x, enum sched_assigner assigner)
{
    atomic_store(&x->assigner, (int)assigner);
}

void experts_set_prefetcher(struct experts *x, enum sched_prefetcher prefetcher)
{
    if (x->prefetch)
        prefetch_set_prefetcher(x->prefetch, prefetcher);
}

enum error_code experts_set_predictor(struct experts *x, enum sched_predictor predictor,
                                      struct error *e)
{
    return x->prefetch ? prefetch_set_predictor(x->prefetch, predictor, e) : ERROR_OK;
}

const struct prediction *experts_prediction(const struct experts *x)
{
    return x->prefetch ? prefetch_prediction(x->prefetch) : NULL;
}

struct device_trial_result experts_trial_result(const struct experts *x)
{
    return x->prefetch ? prefetch_trial_result(x->prefetch) : (struct device_trial_result){0};
}

void experts_look(struct experts *x, uint32_t layer)
{
    if (x->prefetch)
        prefetch_look(x->prefetch, experts_step_of(x, layer), layer);
}

void experts_show(struct experts *x, struct predict_seen seen)
{
    if (!x->prefetch)
        return;
    /* an embedding is shown before its step's first layer begins */
    seen.step = x->work.step + (seen.layer == PREDICT_EMBEDDING);
    prefetch_show(x->prefetch, &seen);
}

bool experts_reads_embedding(const struct experts *x, uint32_t n_tokens)
{
    return x->prefetch && prefetch_reads_embedding(x->prefetch, n_tokens);
}

bool experts_reads_scores(const struct experts *x)
{
    return x->prefetch && prefetch_reads_scores(x->prefetch);
}

bool experts_predict_gate(struct experts *x, struct predict_seen seen, uint32_t i,
                          struct predict_target *target, const float **input)
{
    seen.step = x->work.step;
    return x->prefetch && prefetch_gate(x->prefetch, &seen, i, target, input);
}

void experts_predict_from_gate(struct experts *x, struct predict_seen seen,
                               const struct predict_target *target, const uint32_t *routing)
{
    seen.step = x->work.step;
    prefetch_from_gate(x->prefetch, &seen, target, routing);
}

void experts_predict_end(struct experts *x)
{
    if (x->prefetch)
        prefetch_gates_end(x->prefetch);
}
