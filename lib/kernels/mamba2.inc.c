/* Mamba2 of all builds; ops.inc.c includes this file after delta.inc.c. kernels.h has the
 * definition. One position reads and writes the state once: that bounds its time. Each column of
 * the state has one sum, in order of the rows, so the number of columns in registers changes no
 * bit. */
#include "kernels/kernels.h"

enum { MAMBA2_VECTORS = 2 }; /* of a row: two sums' latency covers that of the other products */

/* One position, N vectors of columns: s [k_dim][stride], at most n_columns of x and out. */
LANES void step_mamba2(float *s, size_t stride, uint32_t k_dim, const struct mamba2_rows *r,
                       size_t column, uint32_t n_columns, const int N)
{
    vf decay = vf_set1(*r->decay), step = vf_set1(*r->step), skip = vf_set1(r->skip);
    vf inputs[MAMBA2_VECTORS], stepped[MAMBA2_VECTORS], sums[MAMBA2_VECTORS];

    UNROLL for (int v = 0; v < N; v++)
    {
        uint32_t n = n_columns - 16 * (uint32_t)v;
        inputs[v] = load_some(r->x + column + 16 * v, n < 16 ? n : 16);
        stepped[v] = vf_mul(step, inputs[v]);
        sums[v] = vf_set1(0);
    }
    for (uint32_t i = 0; i < k_dim; i++, s += stride) {
        vf b = vf_set1(r->b[i]), c = vf_set1(r->c[i]);
        UNROLL for (int v = 0; v < N; v++)
        {
            vf next = vf_fma(b, stepped[v], vf_mul(decay, vf_load(s + 16 * v)));
            vf_store(s + 16 * v, next);
            sums[v] = vf_fma(c, next, sums[v]);
        }
    }
    UNROLL for (int v = 0; v < N; v++)
    {
        uint32_t n = n_columns - 16 * (uint32_t)v;
        store_some(r->out + column + 16 * v, n < 16 ? n : 16, vf_fma(skip, inputs[v], sums[v]));
    }
}

static void mamba2(float *state, uint32_t k_dim, uint32_t v_dim, const struct mamba2_rows *rows,
                   uint32_t n)
{
    size_t stride = whole_vectors(v_dim);
    struct mamba2_rows r = *rows;

    for (uint32_t t = 0; t < n; t++) {
        size_t at = 0;
        for (; at + 16 < stride; at += 32)
            step_mamba2(state + at, stride, k_dim, &r, at, v_dim - (uint32_t)at, MAMBA2_VECTORS);
        if (at < stride)
            step_mamba2(state + at, stride, k_dim, &r, at, v_dim - (uint32_t)at, 1);
        r.x += r.stride;
        r.b += r.stride;
        r.c += r.stride;
        r.decay += r.rate_stride;
        r.step += r.rate_stride;
        r.out += r.out_stride;
    }
}
