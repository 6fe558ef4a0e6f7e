/* Mamba2 on this process's threads; see dense.h. Threads share the convolution's channels, then the
 * heads, then the rows: a group's norm needs all of its heads. */
#include "dense_host_states.h"

#include "kernels/decay.h"

#include <string.h>

struct mamba2_job {
    struct dense_host *h;
    uint32_t layer;
    const struct mamba2_weights *w;
    const struct mamba2_inputs *in;
    float *out;
    uint32_t parts; /* parts of a run's channels that threads share */
};

static void convolve_part(void *arg, unsigned thread, uint32_t chunk)
{
    const struct mamba2_job *job = arg;
    const struct delta_run *run = &job->h->states->runs[chunk / job->parts];
    const struct convolution_weights w = {job->w->conv, job->w->conv_bias};
    uint32_t channels = params_convolved(job->h->base.params);
    uint32_t first = chunk % job->parts * CHANNELS_AT_ONCE;
    uint32_t n = channels - first < CHANNELS_AT_ONCE ? channels - first : CHANNELS_AT_ONCE;
    (void)thread;
    dense_host_convolve_run(job->h, job->layer, run, &w, first, n, job->in->xbc, channels, true);
}

/* The step and the decay of each head of row t. */
static void prepare_row(void *arg, unsigned thread, uint32_t t)
{
    const struct mamba2_job *job = arg;
    const struct mamba2_weights *w = job->w;
    struct delta_states *s = job->h->states;
    uint32_t heads = job->h->base.params->delta.v_heads;
    size_t at = (size_t)t * heads;
    (void)thread;
    for (uint32_t j = 0; j < heads; j++) {
        s->beta[at + j] = (float)decay_step(job->in->dt[at + j], w->dt_bias[j]);
        s->decay[at + j] = decay_of(w->a[j], job->in->dt[at + j], w->dt_bias[j]);
    }
}

static void step_piece(const void *arg, uint32_t head, float *state,
                       const struct delta_piece *piece)
{
    const struct mamba2_job *job = arg;
    const struct dense_host *h = job->h;
    const struct delta_params *d = &h->base.params->delta;
    size_t channels = params_convolved(h->base.params), values = (size_t)d->v_heads * d->v_dim;
    size_t group = (size_t)head / (d->v_heads / d->k_heads) * d->k_dim;
    size_t at = (size_t)piece->first * d->v_heads + head;
    const float *row = job->in->xbc + piece->first * channels;
    const struct mamba2_rows rows = {.x = row + (size_t)head * d->v_dim,
                                     .b = row + values + group,
                                     .c = row + values + (size_t)d->k_heads * d->k_dim + group,
                                     .stride = channels,
                                     .decay = h->states->decay + at,
                                     .step = h->states->beta + at,
                                     .rate_stride = d->v_heads,
                                     .skip = job->w->skip[head],
                                     .out = job->out + at * d->v_dim,
                                     .out_stride = values};
    h->kernels->mamba2(state, d->k_dim, d->v_dim, &rows, piece->n);
}

static void step_head(void *arg, unsigned thread, uint32_t chunk)
{
    const struct mamba2_job *job = arg;
    const struct delta_params *d = &job->h->base.params->delta;
    (void)thread;
    dense_host_step_head(job->h, job->layer, chunk, mamba2_state_floats(d->k_dim, d->v_dim),
                         step_piece, arg);
}

/* Gates row t, then norms each group of heads. */
static void finish_row(void *arg, unsigned thread, uint32_t t)
{
    const struct mamba2_job *job = arg;
    const struct kernels *kernels = job->h->kernels;
    const struct model_params *p = job->h->base.params;
    const struct delta_params *d = &p->delta;
    size_t values = (size_t)d->v_heads * d->v_dim, group = values / d->k_heads;
    float *out = job->out + t * values;
    (void)thread;
    kernels->gated((struct gating){.activation = ACTIVATION_SILU}, job->in->z + t * values, out,
                   out, values);
    for (size_t at = 0; at < values; at += group)
        kernels->rms_norm(out + at, job->w->norm + at, p->norm_eps, group, out + at);
}

void dense_host_mamba2(struct dense *d, uint32_t layer, const struct layer_weights *w,
                       const struct mamba2_inputs *in, float *out)
{
    struct dense_host *h = dense_host_of(d);
    uint32_t channels = params_convolved(d->params), n_runs = dense_host_begin_runs(h, layer);
    struct mamba2_job job = {.h = h,
                             .layer = layer,
                             .w = &w->mamba2,
                             .in = in,
                             .out = out,
                             .parts = (channels + CHANNELS_AT_ONCE - 1) / CHANNELS_AT_ONCE};
    exec_each(h->exec, convolve_part, &job, n_runs * job.parts);
    dense_host_each_row(h, prepare_row, &job);
    exec_each(h->exec, step_head, &job, n_runs * d->params->delta.v_heads);
    dense_host_each_row(h, finish_row, &job);
}
