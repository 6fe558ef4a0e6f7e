/* Products with types of 32 columns a block. */
#include "device/cuda/product.cuh"

extern "C" bool product_launch_32(struct device_stream *s, enum tensor_type type, struct product *p)
{
    switch (type) {
    case TENSOR_Q8_0:
        return product_start<tiles_q8_0>(s, p);
    case TENSOR_Q4_0:
        return product_start<tiles_q4_0>(s, p);
    case TENSOR_Q4_1:
        return product_start<tiles_q4_1>(s, p);
    case TENSOR_Q5_0:
        return product_start<tiles_q5_0>(s, p);
    case TENSOR_Q5_1:
        return product_start<tiles_q5_1>(s, p);
    case TENSOR_IQ4_NL:
        return product_start<tiles_iq4_nl>(s, p);
    case TENSOR_MXFP4:
        return product_start<tiles_mxfp4>(s, p);
    case TENSOR_NVFP4:
        return product_start<tiles_nvfp4>(s, p);
    default:
        return false;
    }
}
