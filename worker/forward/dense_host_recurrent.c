/* Recurrent layers and output gates on this process's threads; see dense.h.
 *
 * A slot's state is one block: for each recurrent layer, in order, params_layer_state_floats. Its
 * heads, and the channels of its convolution, depend on nothing of one another, so threads share
 * the heads of all requests; the positions of a request follow one another. */
#include "dense_host_states.h"

#include "base/checked.h"
#include "kernels/decay.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static bool allocate(struct dense_host *h, struct delta_states *s)
{
    const struct model_params *p = h->base.params;
    struct dense *d = &h->base;
    const struct dense_ops *ops = d->ops;
    size_t rows = d->max_tokens, heads = p->delta.v_heads;
    s->index = ops->allocate(d, p->n_layers * sizeof *s->index);
    s->next = ops->allocate(d, (size_t)s->n_slots * s->n_recurrent * sizeof *s->next);
    /* only those of slots that are used take memory */
    s->states = calloc(s->n_slots * s->slot_floats, sizeof *s->states);
    s->runs = ops->allocate(d, rows * sizeof *s->runs);
    s->decay = ops->allocate(d, rows * heads * sizeof *s->decay);
    s->beta = ops->allocate(d, rows * heads * sizeof *s->beta);
    s->k_scale = ops->allocate(d, p->delta.k_dim * sizeof *s->k_scale);
    s->q_scale = ops->allocate(d, p->delta.k_dim * sizeof *s->q_scale);
    return s->index && s->next && s->states && s->runs && s->decay && s->beta && s->k_scale &&
           s->q_scale;
}

enum error_code dense_host_make_states(struct dense_host *h, uint32_t n_slots, struct error *e)
{
    const struct model_params *p = h->base.params;
    uint32_t n = params_recurrent_layers(p), k_dim = p->delta.k_dim;
    if (n == 0)
        return ERROR_OK;
    struct delta_states *s = h->base.ops->allocate(&h->base, sizeof *s);
    h->states = s;
    if (s) {
        s->layer_floats = params_layer_state_floats(p);
        s->slot_floats = n * s->layer_floats;
        s->n_slots = n_slots;
        s->n_recurrent = n;
    }
    if (!s || !allocate(h, s))
        return error_set(e, ERROR_MEMORY, "no memory for the states of %u requests (%.2f GB)",
                         n_slots, (double)n_slots * (double)params_state_bytes(p) * 1e-9);
    params_recurrent_index(p, s->index);
    for (uint32_t i = 0; i < k_dim; i++) {
        s->k_scale[i] = 1.0f / sqrtf((float)k_dim);
        s->q_scale[i] = 1.0f / (float)k_dim; /* the same, and 1 / sqrt(k_dim) of the scores */
    }
    return ERROR_OK;
}

void dense_host_free_states(struct dense_host *h)
{
    if (h->states)
        free(h->states->states);
}

float *dense_host_state_of(const struct delta_states *s, uint32_t slot, uint32_t layer)
{
    return s->states + slot * s->slot_floats + s->index[layer] * s->layer_floats;
}

bool dense_host_save_state(struct dense *d, uint32_t slot, uint32_t position, void *state)
{
    const struct delta_states *s = dense_host_of(d)->states;
    for (uint32_t i = 0; i < s->n_recurrent; i++)
        if (s->next[slot * s->n_recurrent + i] != position)
            return false;
    memcpy(state, s->states + slot * s->slot_floats, s->slot_floats * sizeof *s->states);
    return true;
}

void dense_host_load_state(struct dense *d, uint32_t slot, const void *state, uint32_t position)
{
    struct delta_states *s = dense_host_of(d)->states;
    memcpy(s->states + slot * s->slot_floats, state, s->slot_floats * sizeof *s->states);
    for (uint32_t i = 0; i < s->n_recurrent; i++)
        s->next[slot * s->n_recurrent + i] = position;
}

/* ---- A batch ---- */

uint32_t dense_host_begin_runs(struct dense_host *h, uint32_t layer)
{
    struct delta_states *s = h->states;
    uint32_t n_runs = 0;
    for (uint32_t t = 0; t < h->base.n; t++) {
        const struct batch_token *b = &h->base.batch[t];
        uint32_t *next = &s->next[b->slot * s->n_recurrent + s->index[layer]];
        if (n_runs == 0 || s->runs[n_runs - 1].slot != b->slot)
            s->runs[n_runs++] = (struct delta_run){.slot = b->slot, .first = t};
        s->runs[n_runs - 1].n++;
        if (b->position == 0) {
            memset(dense_host_state_of(s, b->slot, layer), 0, s->layer_floats * sizeof *s->states);
            *next = 0;
        }
        if (*next != b->position)
            abort();
        *next = b->position + 1;
    }
    return n_runs;
}

struct delta_piece dense_host_piece_at(const struct dense_host *h, uint32_t layer,
                                       const struct delta_run *run, uint32_t t)
{
    const struct delta_states *s = h->states;
    for (uint32_t i = t; i < run->first + run->n; i++)
        if (h->base.batch[i].state)
            return (struct delta_piece){
                t, i + 1 - t, (float *)h->base.batch[i].state + s->index[layer] * s->layer_floats};
    return (struct delta_piece){t, run->first + run->n - t, NULL};
}

void dense_host_step_head(const struct dense_host *h, uint32_t layer, uint32_t chunk, size_t floats,
                          dense_host_step *step, const void *job)
{
    const struct model_params *p = h->base.params;
    const struct delta_params *d = &p->delta;
    const struct delta_run *run = &h->states->runs[chunk / d->v_heads];
    uint32_t head = chunk % d->v_heads;
    size_t at_head = (size_t)(d->taps - 1) * params_convolved(p) + head * floats;
    float *state = dense_host_state_of(h->states, run->slot, layer) + at_head;
    for (uint32_t t = run->first; t < run->first + run->n;) {
        struct delta_piece piece = dense_host_piece_at(h, layer, run, t);
        step(job, head, state, &piece);
        if (piece.copy)
            memcpy(piece.copy + at_head, state, floats * sizeof *state);
        t += piece.n;
    }
}

void dense_host_convolve_run(const struct dense_host *h, uint32_t layer,
                             const struct delta_run *run, const struct convolution_weights *w,
                             uint32_t first, uint32_t n, float *x, size_t width, bool silu)
{
    uint32_t n_taps = h->base.params->delta.taps;
    float *past = dense_host_state_of(h->states, run->slot, layer) + first;
    for (uint32_t t = run->first; t < run->first + run->n;) {
        struct delta_piece piece = dense_host_piece_at(h, layer, run, t);
        h->kernels->convolve(w->taps + (size_t)first * n_taps, w->bias ? w->bias + first : NULL,
                             n_taps, n, past, width, x + t * width + first, width, piece.n, silu);
        for (uint32_t i = 0; i + 1 < n_taps && piece.copy; i++)
            memcpy(piece.copy + i * width + first, past + i * width, n * sizeof *past);
        t += piece.n;
    }
}

struct delta_job {
    struct dense_host *h;
    uint32_t layer;
    const struct layer_weights *w;
    float *qkv;
    const float *z, *beta, *alpha;
    float *out;
    uint32_t n_runs, parts; /* parts of a run that threads share */
};

static void convolve_part(void *arg, unsigned thread, uint32_t chunk)
{
    const struct delta_job *job = arg;
    const struct model_params *p = job->h->base.params;
    const struct delta_run *run = &job->h->states->runs[chunk / job->parts];
    uint32_t channels = params_convolved(p), first = chunk % job->parts * CHANNELS_AT_ONCE;
    uint32_t n = channels - first < CHANNELS_AT_ONCE ? channels - first : CHANNELS_AT_ONCE;
    (void)thread;
    const struct convolution_weights w = {job->w->delta.conv, NULL};
    dense_host_convolve_run(job->h, job->layer, run, &w, first, n, job->qkv, channels, true);
}

/* The decay and the rate of each head of row t, and its normed q and k. */
static void prepare_row(void *arg, unsigned thread, uint32_t t)
{
    const struct delta_job *job = arg;
    const struct dense_host *h = job->h;
    const struct delta_params *d = &h->base.params->delta;
    const struct delta_weights *w = &job->w->delta;
    struct delta_states *s = h->states;
    uint32_t group = d->v_heads / d->k_heads;
    float *q = job->qkv + (size_t)t * params_convolved(h->base.params);
    float *k = q + (size_t)d->k_heads * d->k_dim;
    (void)thread;
    for (uint32_t j = 0; j < d->v_heads; j++) {
        size_t at = (size_t)t * d->v_heads + j;
        size_t pair = (size_t)t * 2 * d->v_heads + j / group * 2 * group + j % group;
        float beta = job->alpha ? job->beta[at] : job->beta[pair];
        float alpha = job->alpha ? job->alpha[at] : job->beta[pair + group];
        s->beta[at] = 1.0f / (1.0f + kernels_exp(-beta));
        s->decay[at] = decay_of(w->a[j], alpha, w->dt[j]);
    }
    for (uint32_t i = 0; i < d->k_heads; i++, q += d->k_dim, k += d->k_dim) {
        h->kernels->rms_norm(q, s->q_scale, DELTA_L2_EPS / (float)d->k_dim, d->k_dim, q);
        h->kernels->rms_norm(k, s->k_scale, DELTA_L2_EPS / (float)d->k_dim, d->k_dim, k);
    }
}

/* One value head's rows of a piece, and their outputs, normed and gated. */
static void step_piece(const void *arg, uint32_t head, float *state,
                       const struct delta_piece *piece)
{
    const struct delta_job *job = arg;
    const struct dense_host *h = job->h;
    const struct model_params *p = h->base.params;
    const struct delta_params *d = &p->delta;
    uint32_t channels = params_convolved(p);
    uint32_t key = p->arch->delta_grouped ? head / (d->v_heads / d->k_heads) : head % d->k_heads;
    size_t keys = (size_t)d->k_heads * d->k_dim, values = (size_t)d->v_heads * d->v_dim;
    size_t at = (size_t)piece->first * d->v_heads + head;
    const float *row = job->qkv + (size_t)piece->first * channels;
    const float *z = job->z + at * d->v_dim;
    float *out = job->out + at * d->v_dim;
    struct delta_rows rows = {.q = row + (size_t)key * d->k_dim,
                              .k = row + keys + (size_t)key * d->k_dim,
                              .v = row + 2 * keys + (size_t)head * d->v_dim,
                              .stride = channels,
                              .decay = h->states->decay + at,
                              .beta = h->states->beta + at,
                              .rate_stride = d->v_heads,
                              .out = out,
                              .out_stride = values};
    h->kernels->delta(state, d->k_dim, d->v_dim, h->base.batch[piece->first].position, &rows,
                      piece->n);
    for (uint32_t i = 0; i < piece->n; i++, out += values, z += values) {
        h->kernels->rms_norm(out, job->w->delta.norm, p->norm_eps, d->v_dim, out);
        h->kernels->gated((struct gating){.activation = ACTIVATION_SILU}, z, out, out, d->v_dim);
    }
}

static void step_head(void *arg, unsigned thread, uint32_t chunk)
{
    const struct delta_job *job = arg;
    const struct delta_params *d = &job->h->base.params->delta;
    (void)thread;
    dense_host_step_head(job->h, job->layer, chunk, delta_state_floats(d->k_dim, d->v_dim),
                         step_piece, arg);
}

void dense_host_delta(struct dense *d, uint32_t layer, const struct layer_weights *w,
                      const struct delta_inputs *in, float *out)
{
    struct dense_host *h = dense_host_of(d);
    uint32_t channels = params_convolved(d->params);
    struct delta_job job = {.h = h,
                            .layer = layer,
                            .w = w,
                            .qkv = in->qkv,
                            .z = in->z,
                            .beta = in->beta,
                            .alpha = in->alpha,
                            .out = out,
                            .n_runs = dense_host_begin_runs(h, layer),
                            .parts = (channels + CHANNELS_AT_ONCE - 1) / CHANNELS_AT_ONCE};
    exec_each(h->exec, convolve_part, &job, job.n_runs * job.parts);
    dense_host_each_row(h, prepare_row, &job);
    exec_each(h->exec, step_head, &job, job.n_runs * d->params->delta.v_heads);
}

/* ---- Short convolution ---- */

struct convolution_job {
    struct dense_host *h;
    uint32_t layer;
    const float *taps, *in;
    float *out;
    uint32_t parts;
};

/* Some channels of a run: b * x, the convolution, times c. */
static void convolve_gated(void *arg, unsigned thread, uint32_t chunk)
{
    const struct convolution_job *job = arg;
    const struct delta_run *run = &job->h->states->runs[chunk / job->parts];
    size_t width = job->h->base.params->d_model,
           first = (size_t)(chunk % job->parts) * CHANNELS_AT_ONCE;
    size_t n = width - first < CHANNELS_AT_ONCE ? width - first : CHANNELS_AT_ONCE;
    const float *in = job->in + run->first * 3 * width + first;
    float *out = job->out + run->first * width + first;
    (void)thread;
    for (uint32_t t = 0; t < run->n; t++)
        for (size_t i = 0; i < n; i++)
            out[t * width + i] = in[t * 3 * width + i] * in[(t * 3 + 2) * width + i];
    const struct convolution_weights w = {job->taps, NULL};
    dense_host_convolve_run(job->h, job->layer, run, &w, (uint32_t)first, (uint32_t)n, job->out,
                            width, false);
    for (uint32_t t = 0; t < run->n; t++)
        for (size_t i = 0; i < n; i++)
            out[t * width + i] *= in[(t * 3 + 1) * width + i];
}

void dense_host_short_convolution(struct dense *d, uint32_t layer, const struct layer_weights *w,
                                  const float *in, float *out)
{
    struct dense_host *h = dense_host_of(d);
    uint32_t n_runs = dense_host_begin_runs(h, layer);
    struct convolution_job job = {.h = h,
                                  .layer = layer,
                                  .taps = w->convolution.taps,
                                  .in = in,
                                  .out = out,
                                  .parts = (d->params->d_model + CHANNELS_AT_ONCE - 1) /
                                           CHANNELS_AT_ONCE};
    exec_each(h->exec, convolve_gated, &job, n_runs * job.parts);
}

/* ---- Gates and orders ---- */

void dense_host_split_gate(struct dense *d, uint32_t layer, const float *both, float *q,
                           float *gate)
{
    const struct layer_params *l = &d->params->layers[layer];
    size_t width = l->k_dim, n = (size_t)d->n * l->n_heads;
    for (size_t i = 0; i < n; i++) {
        memcpy(q + i * width, both + 2 * i * width, width * sizeof *q);
        memcpy(gate + i * width, both + (2 * i + 1) * width, width * sizeof *gate);
    }
}

struct gate_job {
    const struct dense_host *h;
    const float *gate;
    float *rows;
    uint32_t width;
};

static void gate_row(void *arg, unsigned thread, uint32_t t)
{
    const struct gate_job *job = arg;
    size_t at = (size_t)t * job->width;
    (void)thread;
    job->h->kernels->gated((struct gating){.activation = ACTIVATION_SIGMOID}, job->gate + at,
                           job->rows + at, job->rows + at, job->width);
}

void dense_host_gate_by_sigmoid(struct dense *d, const float *gate, float *rows, uint32_t width)
{
    struct dense_host *h = dense_host_of(d);
    dense_host_each_row(h, gate_row, &(struct gate_job){h, gate, rows, width});
}

struct parts_job {
    const struct dense_host *h;
    struct gating gating;
    float *gate, *rows;
    uint32_t n_gates, width;
};

/* One gate for each value of the row, or for each part of so many values. */
static void gate_parts_of_row(void *arg, unsigned thread, uint32_t t)
{
    const struct parts_job *job = arg;
    float *gate = job->gate + (size_t)t * job->n_gates, one = 1.0f;
    float *part = job->rows + (size_t)t * job->n_gates * job->width;
    (void)thread;
    if (job->width == 1) {
        job->h->kernels->gated(job->gating, gate, part, part, job->n_gates);
        return;
    }
    for (uint32_t i = 0; i < job->n_gates; i++, part += job->width) {
        job->h->kernels->gated(job->gating, gate + i, &one, gate + i, 1);
        for (uint32_t k = 0; k < job->width; k++)
            part[k] *= gate[i];
    }
}

void dense_host_gate_parts(struct dense *d, struct gating g, float *gate, float *rows,
                           uint32_t n_gates, uint32_t width)
{
    struct dense_host *h = dense_host_of(d);
    dense_host_each_row(h, gate_parts_of_row,
                        &(struct parts_job){h, g, gate, rows, n_gates, width});
}

static float *copy_floats(float *to, const float *from, size_t n)
{
    memcpy(to, from, n * sizeof *to);
    return to + n;
}

void dense_host_split_delta(struct dense *d, const float *x, float *qkv, float *z)
{
    const struct delta_params *p = &d->params->delta;
    size_t keys = (size_t)p->k_heads * p->k_dim;
    size_t group = (size_t)p->v_heads / p->k_heads * p->v_dim;
    for (uint32_t t = 0; t < d->n; t++) {
        float *q = qkv + t * (size_t)params_convolved(d->params), *k = q + keys, *v = k + keys;
        for (uint32_t i = 0; i < p->k_heads; i++) {
            q = copy_floats(q, x, p->k_dim);
            k = copy_floats(k, x + p->k_dim, p->k_dim);
            v = copy_floats(v, x + 2 * p->k_dim, group);
            z = copy_floats(z, x + 2 * p->k_dim + group, group);
            x += 2 * p->k_dim + 2 * group;
        }
    }
}
