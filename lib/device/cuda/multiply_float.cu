/* Products with float weights. */
#include "device/cuda/product.cuh"

extern "C" bool product_launch_float(struct device_stream *s, enum tensor_type type,
                                     struct product *p)
{
    switch (type) {
    case TENSOR_F32:
        return product_start<tiles_f32>(s, p);
    case TENSOR_F16:
        return product_start<tiles_f16>(s, p);
    case TENSOR_BF16:
        return product_start<tiles_bf16>(s, p);
    default:
        return false;
    }
}
