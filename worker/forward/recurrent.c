/* Recurrent layers: linear attention (gated DeltaNet), Mamba2 and short convolutions; see
 * forward_internal.h. */
#include "forward_internal.h"

/* beta and alpha decide how much of the state decays: they are always computed by the definition,
 * whatever the batch, so that an error does not add up over the positions. */
static void project(struct forward *f, const struct layer_weights *layer)
{
    const struct delta_weights *w = &layer->delta;
    bool quantize = weights_quantize(&w->qkv) || weights_quantize(&w->z) ||
                    weights_quantize(&w->in) || weights_quantize(&w->ba) ||
                    weights_quantize(&w->beta) || weights_quantize(&w->alpha);
    const void *in = forward_norm(f, &layer->attn_norm, quantize);
    struct dense_product products[DENSE_PRODUCTS];
    unsigned n = 0;
    if (w->ba.tiles) {
        products[n++] = (struct dense_product){&w->ba, f->delta.beta, false, NULL, true};
    } else {
        products[n++] = (struct dense_product){&w->beta, f->delta.beta, false, NULL, true};
        products[n++] = (struct dense_product){&w->alpha, f->delta.alpha, false, NULL, true};
    }
    if (w->in.tiles) {
        products[n++] = (struct dense_product){&w->in, f->delta.in, false, NULL, false};
    } else {
        products[n++] = (struct dense_product){&w->qkv, f->delta.qkv, false, NULL, false};
        products[n++] = (struct dense_product){&w->z, f->delta.z, false, NULL, false};
    }
    f->ops->multiply_several(f->dense, products, n, in);
    if (w->in.tiles)
        f->ops->split_delta(f->dense, f->delta.in, f->delta.qkv, f->delta.z);
}

void forward_delta(struct forward *f, uint32_t layer)
{
    const struct layer_weights *w = &f->weights->layers[layer];
    project(f, w);
    const struct delta_inputs inputs = {f->delta.qkv, f->delta.z, f->delta.beta,
                                        w->delta.ba.tiles ? NULL : f->delta.alpha};
    const void *in = f->ops->delta_prepare(f->dense, 0, layer, w, &inputs, f->delta.out,
                                           weights_quantize(&w->o));
    f->ops->multiply(f->dense, &w->o, in, f->x.own, true);
}

/* dt, which decides how much of the state decays, is computed as beta and alpha are. */
void forward_mamba2(struct forward *f, uint32_t layer)
{
    const struct layer_weights *layer_weights = &f->weights->layers[layer];
    const struct mamba2_weights *w = &layer_weights->mamba2;
    const void *in = forward_norm(f, &w->input_norm, weights_quantize(&w->xbc));
    const struct dense_product products[] = {{&w->dt, f->delta.alpha, false, NULL, true},
                                             {&w->xbc, f->delta.qkv, false, NULL, false},
                                             {&w->z, f->delta.z, false, NULL, false}};
    f->ops->multiply_several(f->dense, products, 3, in);
    const struct mamba2_inputs inputs = {f->delta.qkv, f->delta.z, f->delta.alpha};
    in = f->ops->mamba2_prepare(f->dense, 0, layer, layer_weights, &inputs, f->delta.out,
                                weights_quantize(&w->out));
    f->ops->multiply(f->dense, &w->out, in, f->x.own, true);
}

void forward_short_convolution(struct forward *f, uint32_t layer)
{
    const struct layer_weights *w = &f->weights->layers[layer];
    const void *in = forward_norm(f, &w->attn_norm, weights_quantize(&w->convolution.in));
    f->ops->multiply(f->dense, &w->convolution.in, in, f->convolution.in, false);
    f->ops->short_convolution(f->dense, layer, w, f->convolution.in, f->convolution.out);
    in = f->ops->prepare(f->dense, 0, f->convolution.out, w->o.cols, weights_quantize(&w->o));
    f->ops->multiply(f->dense, &w->o, in, f->x.own, true);
}
