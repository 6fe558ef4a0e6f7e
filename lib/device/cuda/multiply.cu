/* Products with dense weights; the kernels are in product.cuh and multiply_set.cu. */
#include "device/cuda/ops.h"
#include "device/cuda/product.h"
#include "device/cuda/quantize.h"

#include <stdlib.h>

void product_launch(struct device_stream *s, enum tensor_type type, struct product *p)
{
    if (!product_launch_float(s, type, p) && !product_launch_32(s, type, p) &&
        !product_launch_256(s, type, p) && !product_launch_iq(s, type, p))
        abort(); /* refused when the model was opened: our bug */
}

/* ---- Sets ---- */

void product_flush(struct device_stream *s, struct product_set *set)
{
    if (set->n == 1)
        product_launch(s, (enum tensor_type)set->type[0], &set->of[0]);
    else if (set->n > 1)
        product_set_launch(s, set);
    set->n = 0;
}

void product_add(struct device_stream *s, struct product_set *set, uint32_t type,
                 const struct product *p)
{
    enum product_family family = product_family_of(type);

    if (p->tensor_cores || family == PRODUCT_ALONE) {
        struct product alone = *p;
        product_launch(s, (enum tensor_type)type, &alone);
        return;
    }
    if (set->n == PRODUCT_SET || (set->n > 0 && set->family != family))
        product_flush(s, set);
    set->family = family;
    set->type[set->n] = type;
    set->of[set->n++] = *p;
}

/* ---- Matrices ---- */

struct product product_of_matrix(const struct matrix *m, const struct device_activations *a)
{
    struct product p = {};

    p.work = PRODUCT_PLANES;
    p.finish = PRODUCT_SUM;
    p.rows = m->rows;
    p.cols = m->cols;
    p.x = a->x;
    p.x_stride = a->x_stride;
    p.q = a->q;
    p.d = a->d;
    p.bias = a->bias;
    p.sum = a->sum;
    p.tiles = (const uint8_t *)m->tiles;
    p.n_planes = 1;
    p.n = a->n_tokens;
    return p;
}

static bool wants_tensor_cores(const struct device_stream *s, enum tensor_type type,
                               const struct product *p)
{
    uint32_t steps = (p->n + PRODUCT_MMA_STEP - 1) / PRODUCT_MMA_STEP;
    return s->device->tensor_cores && product_quantizes(type) && p->bias &&
           product_mma_pays(p->n, steps, p->n_planes * product_mma_blocks(p->rows, p->n),
                            (uint64_t)s->device->multiprocessors);
}

bool product_prepare(struct device_stream *s, enum tensor_type type, struct product *p)
{
    if (p->n == 0 || p->n_planes == 0 || p->rows == 0)
        return false;
    p->tensor_cores = wants_tensor_cores(s, type, p);
    if (p->tensor_cores || product_tokens(1, p->cols) > 0)
        return true;
    cuda_refuse(s->device, "a matrix of too many columns", __FILE__, __LINE__);
    return false;
}

static struct product product_to(struct device_stream *s, const struct device_product *of,
                                 const struct device_activations *a)
{
    struct product p = product_of_matrix(of->m, a);

    p.out = of->y;
    p.out_stride = of->y_stride;
    p.accumulate = of->accumulate;
    p.row_bias = of->bias;
    p.guard = of->accumulate ? s->guard : NULL;
    return p;
}

void cuda_multiply_several(struct device_stream *s, const struct device_product *products,
                           unsigned n, const struct device_activations *a)
{
    struct product_set set = {};

    for (unsigned i = 0; i < n; i++) {
        struct product p = product_to(s, &products[i], a);
        if (product_prepare(s, products[i].m->type, &p))
            product_add(s, &set, products[i].m->type, &p);
    }
    product_flush(s, &set);
}

void cuda_multiply(struct device_stream *s, const struct matrix *m,
                   const struct device_activations *a, float *y, size_t y_stride, bool accumulate)
{
    struct device_product one = {m, y, y_stride, accumulate, NULL};

    cuda_multiply_several(s, &one, 1, a);
}

void cuda_multiply_planes(struct device_stream *s, const struct matrix *m, size_t plane_bytes,
                          uint32_t n_planes, uint32_t n, const float *in, size_t in_stride,
                          size_t in_plane, float *out, size_t out_stride, size_t out_plane,
                          void *scratch)
{
    bool quantize = product_quantizes(m->type);
    struct device_activations a;

    cuda_activations_bind(&a, scratch, m->cols, n * n_planes, in, in_stride, quantize);
    if (quantize && a.n_tokens > 0)
        quantize_planes(s, &a, n, in_plane);
    struct product p = product_of_matrix(m, &a);
    p.plane_bytes = plane_bytes;
    p.in_plane = in_plane;
    p.n_planes = n_planes;
    p.n = n;
    p.out = out;
    p.out_stride = out_stride;
    p.out_plane = out_plane;
    if (product_prepare(s, m->type, &p))
        product_launch(s, m->type, &p);
}

/* ---- Gate and up ---- */

bool product_pairs(const struct device_stream *s, const struct matrix *gate,
                   const struct matrix *up, const struct device_activations *a)
{
    struct product p = product_of_matrix(gate, a);

    return gate->type == up->type && gate->rows == up->rows && gate->rows % TILE_ROWS == 0 &&
           product_tokens(2, gate->cols) > 0 && !wants_tensor_cores(s, gate->type, &p);
}

struct product product_pair(const struct matrix *gate, const struct matrix *up,
                            const struct device_activations *a, struct device_gating gating,
                            struct device_activations *hidden)
{
    struct product p = product_of_matrix(gate, a);

    p.finish = PRODUCT_GATED;
    p.activation = gating.activation;
    p.limit = gating.limit;
    p.part_bytes = (uint64_t)(uintptr_t)up->tiles - (uint64_t)(uintptr_t)gate->tiles;
    p.out = (float *)(uintptr_t)hidden->x;
    p.out_stride = hidden->x_stride;
    p.out_q = hidden->q;
    p.out_d = hidden->d;
    p.out_sum = hidden->sum;
    hidden->bias = NULL;
    return p;
}

void cuda_multiply_gated(struct device_stream *s, const struct matrix *gate,
                         const struct matrix *up, const struct device_activations *a,
                         struct device_gating gating, struct device_activations *hidden,
                         float *up_values)
{
    float *values = (float *)(uintptr_t)hidden->x;

    if (a->n_tokens == 0)
        return;
    if (product_pairs(s, gate, up, a)) {
        struct product p = product_pair(gate, up, a, gating, hidden);
        product_launch(s, gate->type, &p);
        return;
    }
    struct device_product products[] = {{gate, values, hidden->x_stride, false, NULL},
                                        {up, up_values, hidden->x_stride, false, NULL}};
    cuda_multiply_several(s, products, 2, a);
    cuda_gated(s, gating.activation, gating.limit, values, up_values, values,
               hidden->x_stride * a->n_tokens);
    if (hidden->q)
        cuda_quantize(s, hidden);
}
