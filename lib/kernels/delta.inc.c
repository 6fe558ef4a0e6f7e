/* Gated DeltaNet of all builds, included after ops.inc.c's lanes. kernels.h has the definition:
 * each column of a head's state is a sum of its own, so any number of lanes gives the same bits. */
#include "kernels/kernels.h"

/* Vectors of 16 columns that are computed together: enough independent sums to hide the latency of
 * an addition, few enough for the registers. */
#define DELTA_VECTORS 4
/* Rows that are fetched ahead of their use, whole ones, though a pass takes a part of each. */
#define DELTA_AHEAD 16

/* n is at most 16. */
static inline vf load_some(const float *p, uint32_t n)
{
    return n < 16 ? load_part(p, n, 0) : vf_load(p);
}

static inline void store_some(float *p, uint32_t n, vf a)
{
    if (n < 16)
        store_part(p, n, a);
    else
        vf_store(p, a);
}

/* Columns [0, 16 * (n_vectors - 1) + last) of one head. ahead: the values of rows that are fetched
 * ahead, or 0. */
static inline __attribute__((always_inline)) void
delta_columns(float *state, uint32_t k_dim, size_t stride, const float *q, const float *k,
              const float *v, float decay, float beta, float *out, uint32_t n_vectors,
              uint32_t last, uint32_t ahead)
{
    const vf d = vf_set1(decay), b = vf_set1(beta);
    vf sum[DELTA_VECTORS], update[DELTA_VECTORS];
#define COLUMNS(c) ((c) + 1 == n_vectors ? last : 16)

    for (uint32_t c = 0; c < n_vectors; c++)
        sum[c] = vf_set1(0);
    for (uint32_t i = 0; i < k_dim; i++) {
        const vf k_i = vf_set1(k[i]);
        for (uint32_t line = 0; line < ahead; line += 16)
            __builtin_prefetch(state + (i + DELTA_AHEAD) * stride + line, 1);
        for (uint32_t c = 0; c < n_vectors; c++)
            sum[c] =
                vf_fma(vf_mul(d, load_some(state + i * stride + 16 * c, COLUMNS(c))), k_i, sum[c]);
    }
    for (uint32_t c = 0; c < n_vectors; c++) {
        update[c] = vf_mul(b, vf_sub(load_some(v + 16 * c, COLUMNS(c)), sum[c]));
        sum[c] = vf_set1(0);
    }
    for (uint32_t i = 0; i < k_dim; i++) {
        const vf k_i = vf_set1(k[i]), q_i = vf_set1(q[i]);
        float *row = state + i * stride;
        for (uint32_t c = 0; c < n_vectors; c++) {
            vf s = vf_fma(k_i, update[c], vf_mul(d, load_some(row + 16 * c, COLUMNS(c))));
            store_some(row + 16 * c, COLUMNS(c), s);
            sum[c] = vf_fma(s, q_i, sum[c]);
        }
    }
    for (uint32_t c = 0; c < n_vectors; c++)
        store_some(out + 16 * c, COLUMNS(c), sum[c]);
#undef COLUMNS
}

static void delta_step(float *state, uint32_t k_dim, uint32_t v_dim, const float *q, const float *k,
                       const float *v, float decay, float beta, float *out)
{
    uint32_t j = 0;

    for (; j + 16 * DELTA_VECTORS <= v_dim; j += 16 * DELTA_VECTORS)
        delta_columns(state + j, k_dim, v_dim, q, k, v + j, decay, beta, out + j, DELTA_VECTORS, 16,
                      j == 0 ? v_dim : 0);
    for (; j < v_dim; j += 16)
        delta_columns(state + j, k_dim, v_dim, q, k, v + j, decay, beta, out + j, 1,
                      v_dim - j < 16 ? v_dim - j : 16, 0);
}

/* At most 16 channels. inputs: the last `taps` inputs, oldest first. */
static void convolve_lanes(const float *w, uint32_t taps, uint32_t n_lanes, float *past,
                           size_t past_stride, float *x, size_t stride, uint32_t n, bool silu)
{
    vf weights[CONVOLVE_TAPS], inputs[CONVOLVE_TAPS];
    float lanes[16] = {0};

    for (uint32_t j = 0; j < taps; j++) {
        for (uint32_t l = 0; l < n_lanes; l++)
            lanes[l] = w[l * taps + j];
        weights[j] = vf_load(lanes);
    }
    for (uint32_t j = 0; j + 1 < taps; j++)
        inputs[j] = load_some(past + j * past_stride, n_lanes);
    for (uint32_t t = 0; t < n; t++) {
        vf sum = vf_set1(0);
        inputs[taps - 1] = load_some(x + t * stride, n_lanes);
        for (uint32_t j = 0; j < taps; j++)
            sum = vf_fma(weights[j], inputs[j], sum);
        store_some(x + t * stride, n_lanes, silu ? vf_silu(sum) : sum);
        for (uint32_t j = 0; j + 1 < taps; j++)
            inputs[j] = inputs[j + 1];
    }
    for (uint32_t j = 0; j + 1 < taps; j++)
        store_some(past + j * past_stride, n_lanes, inputs[j]);
}

static void convolve(const float *w, uint32_t taps, uint32_t n_channels, float *past,
                     size_t past_stride, float *x, size_t stride, uint32_t n, bool silu)
{
    for (uint32_t c = 0; c < n_channels; c += 16)
        convolve_lanes(w + (size_t)c * taps, taps, n_channels - c < 16 ? n_channels - c : 16,
                       past + c, past_stride, x + c, stride, n, silu);
}
