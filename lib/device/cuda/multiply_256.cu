/* Products with types of 256 columns a block. */
#include "device/cuda/product.cuh"

extern "C" bool product_launch_256(struct device_stream *s, enum tensor_type type,
                                   struct product *p)
{
    switch (type) {
    case TENSOR_Q2_K:
        return product_start<tiles_q2_k>(s, p);
    case TENSOR_Q3_K:
        return product_start<tiles_q3_k>(s, p);
    case TENSOR_Q4_K:
        return product_start<tiles_q4_k>(s, p);
    case TENSOR_Q5_K:
        return product_start<tiles_q5_k>(s, p);
    case TENSOR_Q6_K:
        return product_start<tiles_q6_k>(s, p);
    case TENSOR_IQ4_XS:
        return product_start<tiles_iq4_xs>(s, p);
    default:
        return false;
    }
}
