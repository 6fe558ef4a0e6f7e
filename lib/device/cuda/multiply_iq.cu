/* Products with types that have codebooks. */
#include "device/cuda/product.cuh"
#include "device/cuda/tiles_iq.cuh"

extern "C" bool product_launch_iq(struct device_stream *s, enum tensor_type type, struct product *p)
{
    switch (type) {
    case TENSOR_IQ3_S:
        return product_start<tiles_iq3_s>(s, p);
    case TENSOR_IQ3_XXS:
        return product_start<tiles_iq3_xxs>(s, p);
    case TENSOR_IQ2_S:
        return product_start<tiles_iq2_s>(s, p);
    case TENSOR_IQ2_XS:
        return product_start<tiles_iq2_xs>(s, p);
    case TENSOR_IQ2_XXS:
        return product_start<tiles_iq2_xxs>(s, p);
    case TENSOR_IQ1_S:
        return product_start<tiles_iq1_s>(s, p);
    case TENSOR_IQ1_M:
        return product_start<tiles_iq1_m>(s, p);
    default:
        return false;
    }
}
