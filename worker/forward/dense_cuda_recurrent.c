/* Recurrent layers on a CUDA device, and the states of requests; see dense.h.
 *
 * A slot's state is one block of device memory, laid out as the host's (dense_host_recurrent.c), so
 * that snapshots are plain copies. Kernels read the batch's runs from a table that `begin` uploads,
 * so that graphs of layers serve any requests. */
#include "dense_cuda_internal.h"

#include "base/arrays.h"

#include <math.h>
#include <stdlib.h>

#define NO_POSITION UINT32_MAX

struct cuda_states {
    size_t slot_floats, layer_floats;
    float *states;               /* device: [n_slots][slot_floats] */
    struct mirrored_values runs; /* struct device_run [n_slots]: of the batch */
    uint32_t n_runs;             /* of the batch */
    uint32_t *index;             /* [n_layers]: recurrent layers before this one */
    uint32_t *next; /* [n_slots]: the position that comes next; NO_POSITION: a batch has begun */
    float *placed, *rates; /* scratch of device_delta */
};

static bool make_tables(struct dense_cuda *c)
{
    const struct model_params *p = c->base.params;
    struct cuda_states *s;
    uint32_t *index, *next;
    if (!ARRAYS_NEW(ARRAY(s, 1), ARRAY(index, p->n_layers), ARRAY(next, c->n_slots))) {
        error_set(&c->failed, ERROR_MEMORY, "no memory for the tables of states");
        return false;
    }
    c->states = s;
    s->index = index;
    s->next = next;
    params_recurrent_index(p, index);
    return true;
}

bool dense_cuda_make_states(struct dense_cuda *c)
{
    const struct model_params *p = c->base.params;
    const struct delta_params *d = &p->delta;
    struct dense *dense = &c->base;
    size_t n = dense->max_tokens;
    if (params_recurrent_layers(p) == 0)
        return true;
    if (!make_tables(c))
        return false;
    struct cuda_states *s = c->states;
    s->layer_floats = params_layer_state_floats(p);
    s->slot_floats = params_recurrent_layers(p) * s->layer_floats;
    s->states = dense_cuda_allocate(dense, c->n_slots * s->slot_floats * sizeof *s->states);
    if (!s->states ||
        !dense_cuda_allocate_shared(dense, c->n_slots * sizeof(struct device_run), &s->runs))
        return false;
    if (!d->v_heads)
        return true;
    s->placed = dense_cuda_allocate(dense, n * params_convolved(p) * sizeof *s->placed);
    s->rates = dense_cuda_allocate(dense, n * 2 * d->v_heads * sizeof *s->rates);
    return s->placed && s->rates;
}

void dense_cuda_free_states(struct dense_cuda *c)
{
    free(c->states);
}

/* ---- A batch ---- */

/* A state whose next position is another would give a wrong answer: that is our bug. */
static void check_next(struct cuda_states *s, const struct batch_token *b)
{
    if (b->position != 0 && s->next[b->slot] != b->position)
        abort();
    s->next[b->slot] = b->position + 1;
}

bool dense_cuda_begin_states(struct dense_cuda *c)
{
    struct cuda_states *s = c->states;
    const struct batch_token *batch = c->base.batch;
    bool copied = false;
    if (!s)
        return true;
    struct device_run *runs = s->runs.host;
    s->n_runs = 0;
    for (uint32_t t = 0; t < c->base.n; t++) {
        if (t == 0 || batch[t].slot != batch[t - 1].slot)
            runs[s->n_runs++] = (struct device_run){t, 0};
        runs[s->n_runs - 1].n++;
        check_next(s, &batch[t]);
        copied |= batch[t].state != NULL;
    }
    for (uint32_t i = 0; i < s->n_runs; i++)
        s->next[batch[runs[i].first].slot] = NO_POSITION;
    for (uint32_t i = s->n_runs; i < c->n_slots; i++)
        runs[i] = (struct device_run){0, 0};
    c->module->upload(c->stream, s->runs.own, runs, c->n_slots * sizeof *runs);
    return !copied;
}

void dense_cuda_end(struct dense *d)
{
    const struct cuda_states *s = dense_cuda_of(d)->states;
    for (uint32_t t = 0; s && t < d->n; t++)
        s->next[d->batch[t].slot] = d->batch[t].position + 1;
}

/* The rows from `first` on, up to the first after which the state is copied. The number of runs is
 * one that depends on nothing but the number of rows: graphs keep it. */
static struct device_recurrent part_from(const struct dense_cuda *c, uint32_t layer, uint32_t first)
{
    const struct cuda_states *s = c->states;
    uint32_t n = c->base.n, end = first;
    while (end < n && !c->base.batch[end].state)
        end++;
    end += end < n;
    return (struct device_recurrent){.states = s->states + s->index[layer] * s->layer_floats,
                                     .slot_floats = s->slot_floats,
                                     .rows = c->rows.own,
                                     .runs = s->runs.own,
                                     .n_runs = n < c->n_slots ? n : c->n_slots,
                                     .first = first,
                                     .n = end - first};
}

/* Copies the layer's state after the part's last row, where the batch wants it. */
static void copy_state(struct dense_cuda *c, uint32_t layer, const struct device_recurrent *part)
{
    const struct cuda_states *s = c->states;
    const struct batch_token *last = &c->base.batch[part->first + part->n - 1];
    if (last->state)
        c->module->download(c->stream, (float *)last->state + s->index[layer] * s->layer_floats,
                            part->states + last->slot * s->slot_floats,
                            s->layer_floats * sizeof *s->states);
}

const void *dense_cuda_delta_prepare(struct dense *d, unsigned slot, uint32_t layer,
                                     const struct layer_weights *w, const struct delta_inputs *in,
                                     float *out, bool quantize)
{
    struct dense_cuda *c = dense_cuda_of(d);
    const struct delta_params *p = &d->params->delta;
    struct device_activations *a = dense_cuda_bind(c, slot, out, w->o.cols, quantize);
    const struct device_delta delta = {.k_heads = p->k_heads,
                                       .v_heads = p->v_heads,
                                       .k_dim = p->k_dim,
                                       .v_dim = p->v_dim,
                                       .taps = p->taps,
                                       .grouped = d->params->arch->delta_grouped,
                                       .qkv = in->qkv,
                                       .z = in->z,
                                       .beta = in->beta,
                                       .alpha = in->alpha,
                                       .conv = w->delta.conv,
                                       .dt = w->delta.dt,
                                       .a = w->delta.a,
                                       .q_scale = 1.0f / (float)p->k_dim,
                                       .k_scale = 1.0f / sqrtf((float)p->k_dim),
                                       .l2_eps = DELTA_L2_EPS / (float)p->k_dim,
                                       .norm = w->delta.norm,
                                       .eps = d->params->norm_eps,
                                       .placed = c->states->placed,
                                       .rates = c->states->rates,
                                       .out = out};
    for (uint32_t first = 0; first < d->n;) {
        const struct device_recurrent part = part_from(c, layer, first);
        c->module->ops.delta(c->stream, &part, &delta, quantize ? a : NULL);
        copy_state(c, layer, &part);
        first += part.n;
    }
    return a;
}

void dense_cuda_short_convolution(struct dense *d, uint32_t layer, const struct layer_weights *w,
                                  const float *in, float *out)
{
    struct dense_cuda *c = dense_cuda_of(d);
    const struct device_short_convolution convolution = {.width = d->params->d_model,
                                                         .taps = d->params->delta.taps,
                                                         .in = in,
                                                         .weights = w->convolution.taps,
                                                         .out = out};
    for (uint32_t first = 0; first < d->n;) {
        const struct device_recurrent part = part_from(c, layer, first);
        c->module->ops.short_convolution(c->stream, &part, &convolution);
        copy_state(c, layer, &part);
        first += part.n;
    }
}

/* ---- States between batches ---- */

bool dense_cuda_save_state(struct dense *d, uint32_t slot, uint32_t position, void *state)
{
    struct dense_cuda *c = dense_cuda_of(d);
    const struct cuda_states *s = c->states;
    struct error e;
    if (s->next[slot] != position)
        return false;
    c->module->download(c->stream, state, s->states + slot * s->slot_floats,
                        s->slot_floats * sizeof *s->states);
    return !dense_cuda_wait(d, &e); /* the next batch returns the error again */
}

void dense_cuda_load_state(struct dense *d, uint32_t slot, const void *state, uint32_t position)
{
    struct dense_cuda *c = dense_cuda_of(d);
    struct cuda_states *s = c->states;
    struct error e;
    c->module->upload(c->stream, s->states + slot * s->slot_floats, state,
                      s->slot_floats * sizeof *s->states);
    dense_cuda_wait(d, &e); /* the state may change after this call */
    s->next[slot] = position;
}

/* ---- Orders ---- */

void dense_cuda_split_gate(struct dense *d, uint32_t layer, const float *both, float *q,
                           float *gate)
{
    struct dense_cuda *c = dense_cuda_of(d);
    const struct layer_params *l = &d->params->layers[layer];
    size_t row = (size_t)l->n_heads * l->k_dim;
    const struct device_split to = {
        .n_parts = l->n_heads, .n_to = 2, .to = {{q, l->k_dim, row}, {gate, l->k_dim, row}}};
    c->module->ops.split(c->stream, both, d->n, &to);
}

void dense_cuda_split_delta(struct dense *d, const float *x, float *qkv, float *z)
{
    struct dense_cuda *c = dense_cuda_of(d);
    const struct delta_params *p = &d->params->delta;
    size_t channels = params_convolved(d->params), keys = (size_t)p->k_heads * p->k_dim;
    uint32_t values = p->v_heads / p->k_heads * p->v_dim;
    const struct device_split to = {.n_parts = p->k_heads,
                                    .n_to = 4,
                                    .to = {{qkv, p->k_dim, channels},
                                           {qkv + keys, p->k_dim, channels},
                                           {qkv + 2 * keys, values, channels},
                                           {z, values, (size_t)p->v_heads * p->v_dim}}};
    c->module->ops.split(c->stream, x, d->n, &to);
}
