/* Latent attention (MLA): what lies around the sum over the cache; see forward_internal.h.
 *
 * The cache holds, for each position, one compressed row of kv_rank values and the part of the key that is
 * rotated, both for all heads. A head's key and value would be k_b and v_b times the compressed row; instead q goes
 * through k_b once (absorbed) and the sum of compressed rows through v_b once (expand), so nothing is expanded for
 * each cached position.
 */
#include "forward_internal.h"

#include "base/checked.h"

#include <stdlib.h>
#include <string.h>

/* The norms inside the attention have this one whatever the model's others have: the original's default, which no file
 * states. */
#define LATENT_NORM_EPS 1e-6f

static uint32_t nope_dim(const struct model_params *p)
{
    return p->q_dim - p->rope.dims;
}

bool latent_allocate(struct forward *f)
{
    const struct model_params *p = f->params;
    size_t n = f->max_tokens, threads = pool_thread_count(exec_pool(f->exec));
    uint32_t cols = nope_dim(p) > p->kv_rank ? nope_dim(p) : p->kv_rank;
    struct latent_scratch *s = &f->latent;
    s->q_low = calloc(n * (p->q_rank ? p->q_rank : 1), sizeof(float));
    s->absorbed = calloc(n * p->n_heads * p->k_dim, sizeof(float));
    s->context = calloc(n * p->n_heads * p->kv_rank, sizeof(float));
    s->activations = calloc(threads, sizeof *s->activations);
    if (!s->q_low || !s->absorbed || !s->context || !s->activations)
        return false;
    for (size_t i = 0; i < threads; i++)
        if (!(s->activations[i] =
                  aligned_alloc(TILE_ALIGN, round_up(act_bytes(cols, f->max_tokens), TILE_ALIGN))))
            return false;
    return true;
}

void latent_free(struct forward *f)
{
    struct latent_scratch *s = &f->latent;
    for (size_t i = 0; s->activations && i < pool_thread_count(exec_pool(f->exec)); i++)
        free(s->activations[i]);
    free(s->activations);
    free(s->q_low);
    free(s->absorbed);
    free(s->context);
}

struct latent_job {
    struct forward *f;
    const struct layer_weights *w;
    uint32_t layer;
};

/* One head's matrix times that head's part of every token's row. */
static void multiply_head(struct forward *f, unsigned thread, const struct head_matrices *m,
                          uint32_t head, const float *in, size_t in_stride, float *out,
                          size_t out_stride)
{
    struct matrix plane = m->first;
    plane.tiles = (const uint8_t *)plane.tiles + head * m->bytes;
    struct activations a;
    act_bind(&a, f->latent.activations[thread], plane.cols, f->n, in, in_stride);
    if (weights_quantize(&plane))
        f->kernels->quantize(&a, 0, f->n);
    f->kernels->multiply(&plane, 0, tile_row_count(plane.rows), &a, NULL, f->n, out, out_stride,
                         false);
}

static void absorb_head(void *arg, unsigned thread, uint32_t head)
{
    const struct latent_job *job = arg;
    struct forward *f = job->f;
    const struct model_params *p = f->params;
    multiply_head(f, thread, &job->w->k_b, head, f->q + (size_t)head * p->q_dim,
                  (size_t)p->n_heads * p->q_dim, f->latent.absorbed + (size_t)head * p->k_dim,
                  (size_t)p->n_heads * p->k_dim);
}

static void expand_head(void *arg, unsigned thread, uint32_t head)
{
    const struct latent_job *job = arg;
    struct forward *f = job->f;
    const struct model_params *p = f->params;
    multiply_head(f, thread, &job->w->v_b, head, f->latent.context + (size_t)head * p->kv_rank,
                  (size_t)p->n_heads * p->kv_rank, f->attended + (size_t)head * p->o_dim,
                  (size_t)p->n_heads * p->o_dim);
}

/* Row t: the compressed row normed, the key's own part and each query's rotated; the row enters the cache. */
static void place_row(void *arg, unsigned thread, uint32_t t)
{
    const struct latent_job *job = arg;
    struct forward *f = job->f;
    const struct model_params *p = f->params;
    uint32_t dims = p->rope.dims;
    const float *cos_sin = f->rope + (size_t)t * dims;
    float *row = f->k + (size_t)t * p->k_dim;
    (void)thread;
    f->kernels->rms_norm(row, job->w->kv_a_norm, LATENT_NORM_EPS, p->kv_rank, row);
    rope_apply(row + p->kv_rank, dims, cos_sin, p->arch->rope_neox);
    for (uint32_t head = 0; head < p->n_heads; head++) {
        size_t at = (size_t)t * p->n_heads + head;
        float *rotated = f->latent.absorbed + at * p->k_dim + p->kv_rank;
        memcpy(rotated, f->q + at * p->q_dim + nope_dim(p), dims * sizeof *rotated);
        rope_apply(rotated, dims, cos_sin, p->arch->rope_neox);
    }
    forward_cache_row(f, job->layer, t, row, NULL);
}

void latent_project(struct forward *f, uint32_t layer)
{
    const struct model_params *p = f->params;
    const struct layer_weights *w = &f->weights->layers[layer];
    const struct matrix *first = w->q_a.tiles ? &w->q_a : &w->q;
    bool quantize = weights_quantize(first) || weights_quantize(&w->kv_a);
    const struct activations *a =
        exec_prepare(f->exec, 0, f->h, p->d_model, f->n, p->d_model, quantize);
    exec_multiply(f->exec, &w->kv_a, a, f->k, p->k_dim, false);
    if (w->q_a.tiles) {
        float *low = f->latent.q_low;
        exec_multiply(f->exec, &w->q_a, a, low, p->q_rank, false);
        for (uint32_t t = 0; t < f->n; t++)
            f->kernels->rms_norm(low + (size_t)t * p->q_rank, w->q_a_norm, LATENT_NORM_EPS,
                                 p->q_rank, low + (size_t)t * p->q_rank);
        a = exec_prepare(f->exec, 0, low, p->q_rank, f->n, p->q_rank, weights_quantize(&w->q_b));
        exec_multiply(f->exec, &w->q_b, a, f->q, p->n_heads * p->q_dim, false);
    } else
        exec_multiply(f->exec, &w->q, a, f->q, p->n_heads * p->q_dim, false);
    struct latent_job job = {f, w, layer};
    exec_each(f->exec, place_row, &job, f->n);
    exec_each(f->exec, absorb_head, &job, p->n_heads);
}

void latent_expand(struct forward *f, const struct layer_weights *w)
{
    exec_each(f->exec, expand_head, &(struct latent_job){.f = f, .w = w}, f->params->n_heads);
}
