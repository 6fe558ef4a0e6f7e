/* Products with float weights. */
#include "device/cuda/product.cuh"
#include "device/cuda/product_float_mma.cuh"

template <class T> static bool float_start(struct device_stream *s, struct product *p)
{
    if (!p->tensor_cores)
        return product_start<T>(s, p);
    product_float_mma_start<T>(s, p);
    return true;
}

extern "C" bool product_launch_float(struct device_stream *s, enum tensor_type type,
                                     struct product *p)
{
    switch (type) {
    case TENSOR_F32:
        return product_start<tiles_f32>(s, p);
    case TENSOR_F16:
        return float_start<tiles_f16>(s, p);
    case TENSOR_BF16:
        return float_start<tiles_bf16>(s, p);
    default:
        return false;
    }
}
