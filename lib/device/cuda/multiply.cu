/* Products with dense weights; the kernel is in product.cuh. */
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

/* What of p comes from m and a. */
static struct product product_of(const struct matrix *m, const struct device_activations *a)
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
    return p;
}

static bool wants_tensor_cores(const struct device_stream *s, enum tensor_type type,
                               const struct product *p)
{
    uint32_t steps = (p->n + PRODUCT_MMA_STEP - 1) / PRODUCT_MMA_STEP;
    return s->device->tensor_cores && product_quantizes(type) &&
           product_mma_pays(p->n, steps, p->n_planes * product_mma_blocks(p->rows, p->n),
                            (uint64_t)s->device->multiprocessors);
}

static void start(struct device_stream *s, const struct matrix *m, struct product *p)
{
    if (p->n == 0 || p->n_planes == 0 || p->rows == 0)
        return;
    p->tensor_cores = wants_tensor_cores(s, m->type, p);
    if (!p->tensor_cores && product_tokens(1, p->cols) == 0)
        cuda_refuse(s->device, "a matrix of too many columns", __FILE__, __LINE__);
    else
        product_launch(s, m->type, p);
}

void cuda_multiply(struct device_stream *s, const struct matrix *m,
                   const struct device_activations *a, float *y, size_t y_stride, bool accumulate)
{
    struct product p = product_of(m, a);

    p.n_planes = 1;
    p.n = a->n_tokens;
    p.out = y;
    p.out_stride = y_stride;
    p.accumulate = accumulate;
    p.guard = accumulate ? s->guard : NULL;
    start(s, m, &p);
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
    struct product p = product_of(m, &a);
    p.plane_bytes = plane_bytes;
    p.in_plane = in_plane;
    p.n_planes = n_planes;
    p.n = n;
    p.out = out;
    p.out_stride = out_stride;
    p.out_plane = out_plane;
    start(s, m, &p);
}
