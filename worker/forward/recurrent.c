/* Recurrent layers: linear attention (gated DeltaNet) and short convolutions; see
 * forward_internal.h. */
#include "forward_internal.h"

/* beta and alpha decide how much of the state decays: they are never computed through BLAS, whose
 * rounding depends on the batch, so that an error does not add up over the positions. */
static void project_rates(struct forward *f, const struct delta_weights *w, const void *in)
{
    if (w->ba.tiles) {
        f->ops->multiply_router(f->dense, &w->ba, in, f->delta.beta);
        return;
    }
    f->ops->multiply_router(f->dense, &w->beta, in, f->delta.beta);
    f->ops->multiply_router(f->dense, &w->alpha, in, f->delta.alpha);
}

static void project(struct forward *f, const struct delta_weights *w)
{
    bool quantize = weights_quantize(&w->qkv) || weights_quantize(&w->z) ||
                    weights_quantize(&w->in) || weights_quantize(&w->ba) ||
                    weights_quantize(&w->beta) || weights_quantize(&w->alpha);
    const void *in = f->ops->prepare(f->dense, 0, f->h.own, f->params->d_model, quantize);
    project_rates(f, w, in);
    if (w->in.tiles) {
        f->ops->multiply(f->dense, &w->in, in, f->delta.in, false);
        f->ops->split_delta(f->dense, f->delta.in, f->delta.qkv, f->delta.z);
        return;
    }
    const struct exec_product products[] = {{&w->qkv, f->delta.qkv, w->qkv.rows, false},
                                            {&w->z, f->delta.z, w->z.rows, false}};
    f->ops->multiply_several(f->dense, products, 2, in);
}

void forward_delta(struct forward *f, uint32_t layer)
{
    const struct layer_weights *w = &f->weights->layers[layer];
    project(f, &w->delta);
    f->ops->delta(f->dense, layer, w, f->delta.qkv, f->delta.z, f->delta.beta,
                  w->delta.ba.tiles ? NULL : f->delta.alpha, f->delta.out);
    const void *in = f->ops->prepare(f->dense, 0, f->delta.out, w->o.cols, weights_quantize(&w->o));
    f->ops->multiply(f->dense, &w->o, in, f->x.own, true);
}

void forward_short_convolution(struct forward *f, uint32_t layer)
{
    const struct layer_weights *w = &f->weights->layers[layer];
    const void *in = f->ops->prepare(f->dense, 0, f->h.own, f->params->d_model,
                                     weights_quantize(&w->convolution.in));
    f->ops->multiply(f->dense, &w->convolution.in, in, f->convolution.in, false);
    f->ops->short_convolution(f->dense, layer, w, f->convolution.in, f->convolution.out);
    in = f->ops->prepare(f->dense, 0, f->convolution.out, w->o.cols, weights_quantize(&w->o));
    f->ops->multiply(f->dense, &w->o, in, f->x.own, true);
}
