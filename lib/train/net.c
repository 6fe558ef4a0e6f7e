/* Forward and backward; see net.h. f: the activation; m: dropout masks; s: the sigmoid; x': the
 * first n_gated inputs.
 *
 *     o0 = m0 f(s0 = x W_in + b)
 *     o1 = m1 f(s1 = o0 W_first + b)
 *     o2 = m2 f(s2 = o1 W_second + b)
 *     o3 = s(s3 = x' W_gate + b)
 *     u  = o0 + o3 o2
 *     z  = u W_out + b */
#include "train/net.h"
#include "train/blas.h"

#include "base/arrays.h"
#include "sched/predict/trained_net.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct net_parts net_parts(const struct net_shape *s)
{
    struct net_parts p = {0};
    size_t n = 0, hidden = s->n_hidden, block = s->n_gated ? hidden : 0;
    p.b_in = n, n += hidden;
    p.b_first = n, n += block;
    p.b_second = n, n += block;
    p.b_gate = n, n += block;
    p.b_out = n, n += s->n_out;
    p.n_biases = n;
    p.w_in = n, n += s->n_in * hidden;
    p.w_first = n, n += block * block;
    p.w_second = n, n += block * block;
    p.w_gate = n, n += s->n_gated * hidden;
    p.w_out = n, n += hidden * s->n_out;
    p.n = n;
    return p;
}

static void fill(float *w, size_t n_in, size_t n_out, float size, struct noise *r)
{
    float deviation = size / sqrtf((float)n_in);
    for (size_t i = 0; i < n_in * n_out; i++)
        w[i] = deviation * noise_normal(r);
}

bool net_init(struct net *n, const struct net_shape *shape, uint32_t max_batch, struct noise *r)
{
    *n = (struct net){.shape = *shape, .parts = net_parts(shape), .max_batch = max_batch};
    const struct net_parts *p = &n->parts;
    size_t hidden = shape->n_hidden, batch = max_batch;
    size_t inside = batch * hidden, outside = batch * shape->n_out;
    n->memory =
        ARRAYS_NEW(ARRAY(n->w, p->n), ARRAY(n->gradient, p->n), ARRAY(n->logits, outside),
                   ARRAY(n->error, outside), ARRAY(n->sum[0], inside), ARRAY(n->sum[1], inside),
                   ARRAY(n->sum[2], inside), ARRAY(n->sum[3], inside), ARRAY(n->out[0], inside),
                   ARRAY(n->out[1], inside), ARRAY(n->out[2], inside), ARRAY(n->out[3], inside),
                   ARRAY(n->mask[0], inside), ARRAY(n->mask[1], inside), ARRAY(n->mask[2], inside),
                   ARRAY(n->back[0], inside), ARRAY(n->back[1], inside), ARRAY(n->back[2], inside));
    if (!n->memory)
        return false;
    fill(n->w + p->w_in, shape->n_in, hidden, 1, r);
    fill(n->w + p->w_out, hidden, shape->n_out, 0.1f, r);
    if (shape->n_gated) {
        fill(n->w + p->w_first, hidden, hidden, 1, r);
        fill(n->w + p->w_second, hidden, hidden, 0.1f, r);
        fill(n->w + p->w_gate, shape->n_gated, hidden, 1, r);
    }
    return true;
}

void net_fini(struct net *n)
{
    free(n->memory);
    *n = (struct net){0};
}

void net_start_linear(struct net *n, const float *router, uint32_t n_linear, const float *bias)
{
    const struct net_parts *p = &n->parts;
    size_t hidden = n->shape.n_hidden, n_out = n->shape.n_out;
    float *w_in = n->w + p->w_in, *w_out = n->w + p->w_out;
    memset(w_out, 0, hidden * n_out * sizeof *w_out);
    for (size_t o = 0; o < n_out; o++) {
        for (size_t i = 0; i < n->shape.n_in; i++) {
            float v = i < n_linear ? router[o * n_linear + i] : 0;
            w_in[i * hidden + 2 * o] = v;
            w_in[i * hidden + 2 * o + 1] = -v;
        }
        n->w[p->b_in + 2 * o] = n->w[p->b_in + 2 * o + 1] = 0;
        w_out[2 * o * n_out + o] = 1;
        w_out[(2 * o + 1) * n_out + o] = -1;
        n->w[p->b_out + o] = bias ? bias[o] : 0;
    }
    if (n->shape.n_gated) /* the block adds nothing at first */
        memset(n->w + p->w_second, 0, hidden * hidden * sizeof(float));
}

/* y = bias + x w */
static void affine(const struct net *n, const float *x, size_t x_stride, size_t n_in, size_t b,
                   size_t w, size_t n_out, uint32_t batch, float *y)
{
    for (uint32_t t = 0; t < batch; t++)
        memcpy(y + t * n_out, n->w + b, n_out * sizeof *y);
    blas_product(false, false, batch, n_out, n_in, x, x_stride, n->w + w, n_out, 1, y, n_out);
}

static float activation(enum trained_activation kind, float x)
{
    return kind == TRAINED_RELU ? (x > 0 ? x : 0) : trained_gelu(x);
}

static float slope(enum trained_activation kind, float x)
{
    if (kind == TRAINED_RELU)
        return x > 0;
    float density = 0.39894228f * expf(-0.5f * x * x);
    return 0.5f * (1 + erff(x * 0.70710678f)) + x * density;
}

/* Computes out = mask f(sum) with a new mask. */
static void activate(struct net *n, int i, uint32_t batch, struct noise *noise)
{
    size_t count = (size_t)batch * n->shape.n_hidden;
    float p = n->shape.dropout, kept = 1 / (1 - p);
    for (size_t k = 0; k < count; k++) {
        n->mask[i][k] = !noise || p <= 0 ? 1 : noise_uniform(noise) < p ? 0 : kept;
        n->out[i][k] = n->mask[i][k] * activation(n->shape.activation, n->sum[i][k]);
    }
}

void net_forward(struct net *n, const float *x, uint32_t batch, struct noise *noise)
{
    const struct net_parts *p = &n->parts;
    size_t in = n->shape.n_in, hidden = n->shape.n_hidden, n_out = n->shape.n_out;
    size_t count = batch * hidden;
    float *u = n->out[0];
    affine(n, x, in, in, p->b_in, p->w_in, hidden, batch, n->sum[0]);
    activate(n, 0, batch, noise);
    if (n->shape.n_gated) {
        affine(n, n->out[0], hidden, hidden, p->b_first, p->w_first, hidden, batch, n->sum[1]);
        activate(n, 1, batch, noise);
        affine(n, n->out[1], hidden, hidden, p->b_second, p->w_second, hidden, batch, n->sum[2]);
        activate(n, 2, batch, noise);
        affine(n, x, in, n->shape.n_gated, p->b_gate, p->w_gate, hidden, batch, n->sum[3]);
        u = n->sum[3];
        for (size_t k = 0; k < count; k++) {
            n->out[3][k] = 1 / (1 + expf(-n->sum[3][k]));
            u[k] = n->out[0][k] + n->out[3][k] * n->out[2][k];
        }
    }
    affine(n, u, hidden, hidden, p->b_out, p->w_out, n_out, batch, n->logits);
}

/* The gradients of bias and w for y = bias + x w. y: the gradient of y. */
static void gradient(struct net *n, const float *x, size_t x_stride, size_t n_in, const float *y,
                     size_t n_out, size_t b, size_t w, uint32_t batch)
{
    float *bias = n->gradient + b;
    blas_product(true, false, n_in, n_out, batch, x, x_stride, y, n_out, 0, n->gradient + w, n_out);
    memset(bias, 0, n_out * sizeof *bias);
    for (uint32_t t = 0; t < batch; t++)
        for (size_t i = 0; i < n_out; i++)
            bias[i] += y[t * n_out + i];
}

/* The gradient of x for y = x w: y's gradient times w transposed. add: adds it to x. */
static void backward(const struct net *n, const float *y, size_t n_out, size_t w, size_t n_in,
                     bool add, uint32_t batch, float *x)
{
    blas_product(false, true, batch, n_in, n_out, y, n_out, n->w + w, n_out, add, x, n_in);
}

static void through_activation(const struct net *n, int i, uint32_t batch, float *back)
{
    size_t count = (size_t)batch * n->shape.n_hidden;
    for (size_t k = 0; k < count; k++)
        back[k] *= n->mask[i][k] * slope(n->shape.activation, n->sum[i][k]);
}

/* d0: in, the gradient of u; out, that of o0. */
static void block_backward(struct net *n, const float *x, uint32_t batch, float *d0)
{
    const struct net_parts *p = &n->parts;
    size_t in = n->shape.n_in, hidden = n->shape.n_hidden, count = batch * hidden;
    float *d2 = n->back[1], *other = n->back[2];
    for (size_t k = 0; k < count; k++) {
        float s = n->out[3][k];
        d2[k] = d0[k] * s;
        other[k] = d0[k] * n->out[2][k] * s * (1 - s);
    }
    gradient(n, x, in, n->shape.n_gated, other, hidden, p->b_gate, p->w_gate, batch);
    through_activation(n, 2, batch, d2);
    gradient(n, n->out[1], hidden, hidden, d2, hidden, p->b_second, p->w_second, batch);
    backward(n, d2, hidden, p->w_second, hidden, false, batch, other);
    through_activation(n, 1, batch, other);
    gradient(n, n->out[0], hidden, hidden, other, hidden, p->b_first, p->w_first, batch);
    backward(n, other, hidden, p->w_first, hidden, true, batch, d0);
}

void net_backward(struct net *n, const float *x, uint32_t batch)
{
    const struct net_parts *p = &n->parts;
    size_t in = n->shape.n_in, hidden = n->shape.n_hidden, n_out = n->shape.n_out;
    const float *u = n->shape.n_gated ? n->sum[3] : n->out[0];
    float *d0 = n->back[0];
    gradient(n, u, hidden, hidden, n->error, n_out, p->b_out, p->w_out, batch);
    backward(n, n->error, n_out, p->w_out, hidden, false, batch, d0);
    if (n->shape.n_gated)
        block_backward(n, x, batch, d0);
    through_activation(n, 0, batch, d0);
    gradient(n, x, in, in, d0, hidden, p->b_in, p->w_in, batch);
}
