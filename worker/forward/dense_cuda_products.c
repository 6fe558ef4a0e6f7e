/* Products on a CUDA device, through its kernels or through BLAS; see dense.h. */
#include "dense_cuda_internal.h"

#include "base/checked.h"
#include "base/log.h"
#include "device/worker_memory.h"

#include <assert.h>
#include <string.h>

/* BLAS is used from so many rows on, of the batch and of a matrix: fewer do not pay for its
 * preparations. An assumption: only hardware can show the limit (bench-device measures both ways).
 */
enum { MANY_ROWS = 32 };

/* ---- BLAS ---- */

static void report_refused_types(const struct device_blas *b)
{
    if (b->f32 && b->f16 && b->bf16)
        return;
    bool only_bf16 = b->f32 && b->f16;
    log_info("cuBLAS has no products of%s%s%s on this device: %s", b->f32 ? "" : " float32",
             b->f16 ? "" : " FP16", b->bf16 ? "" : " BF16",
             only_bf16 ? "weights of BF16 are multiplied as float32"
                       : "some weights are multiplied without it");
}

void dense_cuda_load_blas(struct dense_cuda *c, const struct pool_map *map)
{
    struct error e;
    if (c->module->load_blas(c->device, &c->blas, &e)) {
        log_info("long prompts are computed without cuBLAS: %s", e.text);
        return;
    }
    struct device_facts facts;
    c->module->facts(c->device, &facts);
    log_info("long prompts are computed with cuBLAS: %s", facts.blas);
    report_refused_types(&c->blas);
    c->blas_scratch =
        dense_cuda_allocate(&c->base, worker_memory_many(c->module, map, c->base.max_tokens));
    c->base.rounds = c->blas_scratch != NULL;
    if (!c->blas_scratch)
        log_warn("long prompts are computed without cuBLAS: %s", c->failed.text);
}

/* True: BLAS takes weights of that type, and so many rows of them are worth it. */
static bool blas_takes(const struct dense_cuda *c, const struct matrix *m, uint32_t rows)
{
    return c->blas_scratch && rows >= MANY_ROWS && device_blas_takes(&c->blas, m->type);
}

/* ---- Products ---- */

static const void *prepare_rows(struct dense_cuda *c, unsigned slot, const float *x, uint32_t cols,
                                uint32_t n, bool quantize)
{
    struct device_activations *a = &c->inputs[slot];
    c->module->ops.activations_bind(a, c->input_memory[slot], cols, n, x, cols, quantize);
    if (quantize)
        c->module->ops.quantize(c->stream, a);
    return a;
}

const void *dense_cuda_prepare(struct dense *d, unsigned slot, const float *x, uint32_t cols,
                               bool quantize)
{
    return prepare_rows(dense_cuda_of(d), slot, x, cols, d->n, quantize);
}

struct device_activations *dense_cuda_bind(struct dense_cuda *c, unsigned slot, const float *x,
                                           uint32_t cols, bool quantize)
{
    struct device_activations *a = &c->inputs[slot];
    c->module->ops.activations_bind(a, c->input_memory[slot], cols, c->base.n, x, cols, quantize);
    return a;
}

const void *dense_cuda_prepared(struct dense *d, unsigned slot, const float *x, uint32_t cols,
                                bool quantize)
{
    return dense_cuda_bind(dense_cuda_of(d), slot, x, cols, quantize);
}

const void *dense_cuda_norm_prepare(struct dense *d, unsigned slot, const float *x,
                                    const struct norm_weights *w, float eps, uint32_t width,
                                    float *out, bool quantize)
{
    struct dense_cuda *c = dense_cuda_of(d);
    const struct device_ops *ops = &c->module->ops;
    struct device_activations *a = dense_cuda_bind(c, slot, out, width, quantize);
    const float *bias = dense_cuda_bias(c, w);
    if (quantize)
        ops->norm_quantize(c->stream, x, width, w->weight, bias, eps, out, width, a);
    else
        ops->norm(c->stream, x, width, w->weight, bias, eps, d->n, width, out, width);
    return a;
}

/* Rows of a batch that are multiplied in one call: groups of one size that follow each other, for
 * BLAS, or others. */
struct rows {
    uint32_t first, n;
    uint32_t group; /* rows of each group; 0: not for BLAS */
};

/* False: no rows are left after those of `r`, which begins zeroed. */
static bool next_rows(const struct dense_cuda *c, bool blas, struct rows *r)
{
    uint32_t n_rows = c->base.n, at = r->first + r->n;
    if (at == n_rows)
        return false;
    *r = (struct rows){at, 0, 0};
    if (!blas) {
        r->n = n_rows - at;
        return true;
    }
    while (at < n_rows) {
        struct row_run run = row_groups_run(&c->groups, NULL, n_rows, at);
        uint32_t group = run.grouped && run.n >= MANY_ROWS ? run.n : 0;
        if (r->n && group != r->group)
            break;
        r->group = group;
        r->n += run.n;
        at += run.n;
    }
    return true;
}

/* a, from row `first` on. */
static struct device_activations from_row(const struct device_activations *a, uint32_t first,
                                          uint32_t n)
{
    struct device_activations some = *a;
    size_t blocks = (a->cols + 31) / 32;
    some.n_tokens = n;
    some.x += first * a->x_stride;
    if (!a->q)
        return some;
    some.q += first * (size_t)round_up(a->cols, 64);
    some.d += first * 2 * blocks;
    if (a->bias)
        some.bias += first * blocks;
    some.sum += first * 2 * blocks;
    return some;
}

/* True: rows of groups go through BLAS. */
static bool through_blas(const struct dense_cuda *c, const struct matrix *m)
{
    return c->groups.n && blas_takes(c, m, m->rows);
}

/* Groups through BLAS, other rows through the kernels. */
static void multiply_groups(struct dense_cuda *c, const struct dense_product *p, const void *input)
{
    const struct device_ops *ops = &c->module->ops;
    uint32_t width = p->m->rows;
    for (struct rows r = {0}; next_rows(c, true, &r);) {
        const struct device_activations a = from_row(input, r.first, r.n);
        float *y = p->y + (size_t)r.first * width;
        const struct device_product one = {p->m, y, width, p->accumulate, p->bias};
        if (!r.group) {
            ops->multiply_several(c->stream, &one, 1, &a);
            continue;
        }
        ops->multiply_many(c->stream, p->m, a.x, a.x_stride, r.n, r.group, y, width, p->accumulate,
                           c->blas_scratch);
        if (p->bias)
            ops->add(c->stream, p->bias, 0, y, width, r.n, width);
    }
}

void dense_cuda_multiply_several(struct dense *d, const struct dense_product *products, unsigned n,
                                 const void *input)
{
    struct dense_cuda *c = dense_cuda_of(d);
    struct device_product to[DENSE_PRODUCTS];
    unsigned n_to = 0;
    assert(n <= DENSE_PRODUCTS);
    for (unsigned i = 0; i < n; i++) {
        const struct dense_product *p = &products[i];
        if (!p->defined && through_blas(c, p->m))
            multiply_groups(c, p, input);
        else
            to[n_to++] = (struct device_product){p->m, p->y, p->m->rows, p->accumulate, p->bias};
    }
    c->module->ops.multiply_several(c->stream, to, n_to, input);
}

void dense_cuda_multiply(struct dense *d, const struct matrix *m, const void *input, float *y,
                         bool accumulate)
{
    dense_cuda_multiply_several(d, &(struct dense_product){m, y, accumulate, NULL, false}, 1,
                                input);
}

const void *dense_cuda_multiply_gated(struct dense *d, unsigned slot, struct gating g,
                                      const struct matrix *gate, const struct matrix *up,
                                      const void *input, float *h, float *up_values, bool quantize)
{
    struct dense_cuda *c = dense_cuda_of(d);
    const struct device_ops *ops = &c->module->ops;
    const struct device_gating gating = {(uint32_t)g.activation, g.limit};
    struct device_activations *hidden = dense_cuda_bind(c, slot, h, gate->rows, quantize);
    if (!c->groups.n || !c->blas_scratch) { /* else down may go through BLAS, which reads h */
        ops->multiply_gated(c->stream, gate, up, input, gating, hidden, up_values);
        return hidden;
    }
    const struct dense_product products[] = {{gate, h, false, NULL, false},
                                             {up, up_values, false, NULL, false}};
    dense_cuda_multiply_several(d, products, 2, input);
    ops->gated(c->stream, gating.activation, gating.limit, h, up_values, h,
               (size_t)d->n * gate->rows);
    if (quantize)
        ops->quantize(c->stream, hidden);
    return hidden;
}

void dense_cuda_multiply_heads(struct dense *d, const struct head_matrices *m, const float *in,
                               uint32_t in_head, float *out, uint32_t out_head)
{
    struct dense_cuda *c = dense_cuda_of(d);
    const struct device_ops *ops = &c->module->ops;
    size_t in_row = (size_t)m->n * in_head, out_row = (size_t)m->n * out_head;
    bool blas = c->groups.n && blas_takes(c, &m->first, m->n * m->first.rows);
    for (struct rows r = {0}; next_rows(c, blas, &r);) {
        const float *from = in + r.first * in_row;
        float *to = out + r.first * out_row;
        if (r.group)
            ops->multiply_many_planes(c->stream, &m->first, m->bytes, m->n, r.n, r.group, from,
                                      in_row, in_head, to, out_row, out_head, c->blas_scratch);
        else
            ops->multiply_planes(c->stream, &m->first, m->bytes, m->n, r.n, from, in_row, in_head,
                                 to, out_row, out_head, c->heads_scratch);
    }
}

/* Computes c->logits of the first rows of hidden, logits_rows at most; returns how many. */
static uint32_t make_logits(struct dense_cuda *c, const struct matrix *m, const float *bias,
                            const float *hidden, uint32_t n, bool bulk)
{
    const struct device_ops *ops = &c->module->ops;
    n = n < c->logits_rows ? n : c->logits_rows;
    if (bulk && n >= MANY_ROWS && blas_takes(c, m, m->rows))
        ops->multiply_many(c->stream, m, hidden, m->cols, n, n, c->logits, m->rows, false,
                           c->blas_scratch);
    else
        ops->multiply(c->stream, m, prepare_rows(c, 0, hidden, m->cols, n, weights_quantize(m)),
                      c->logits, m->rows, false);
    if (bias)
        ops->add(c->stream, bias, 0, c->logits, m->rows, n, m->rows);
    return n;
}

enum error_code dense_cuda_largest(struct dense *d, const struct matrix *m, const float *bias,
                                   const float *hidden, uint32_t n, uint32_t k, float *values,
                                   uint32_t *places, struct error *e)
{
    struct dense_cuda *c = dense_cuda_of(d);
    size_t word = sizeof(uint32_t);
    for (uint32_t done = 0, part; done < n; done += part) {
        part = make_logits(c, m, bias, hidden + (size_t)done * m->cols, n - done, false);
        c->module->ops.largest(c->stream, c->logits, part, m->rows, k, (float *)c->largest,
                               c->largest + (size_t)part * k, c->largest_scratch);
        c->module->download(c->stream, c->largest_host + (size_t)done * 2 * k, c->largest,
                            2 * part * k * word);
    }
    enum error_code code = dense_cuda_wait(d, e);
    for (uint32_t done = 0, part; done < n && !code; done += part) {
        const uint32_t *from = c->largest_host + (size_t)done * 2 * k;
        part = n - done < c->logits_rows ? n - done : c->logits_rows;
        memcpy(values + (size_t)done * k, from, part * k * word);
        memcpy(places + (size_t)done * k, from + (size_t)part * k, part * k * word);
    }
    return code;
}

enum error_code dense_cuda_logits(struct dense *d, const struct matrix *m, const float *bias,
                                  const float *hidden, uint32_t n, bool bulk, float *logits,
                                  struct error *e)
{
    struct dense_cuda *c = dense_cuda_of(d);
    for (uint32_t done = 0, part; done < n; done += part) {
        part = make_logits(c, m, bias, hidden + (size_t)done * m->cols, n - done, bulk);
        c->module->download(c->stream, logits + (size_t)done * m->rows, c->logits,
                            (size_t)part * m->rows * sizeof *logits);
    }
    return dense_cuda_wait(d, e);
}
