/* Half and bfloat16 conversions, row sizes, packed scales, and the tables of values.
 *
 * The conversions use integer arithmetic, so that no compiler flag or rounding mode changes them.
 * They give the same bits as the F16C instructions of the vector kernels, including quieted NaNs.
 */
#include "quant/quant.h"

#include <string.h>

static float float_from_bits(uint32_t bits)
{
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

static uint32_t bits_of_float(float f)
{
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    return bits;
}

float half_to_float(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000u) << 16;
    uint32_t exponent = (h >> 10) & 0x1fu;
    uint32_t fraction = h & 0x3ffu;
    if (exponent == 31) { /* infinity, or a NaN made quiet */
        uint32_t quiet = fraction ? 0x400000u : 0;
        return float_from_bits(sign | 0x7f800000u | fraction << 13 | quiet);
    }
    if (exponent != 0) /* 112 = 127 - 15, the difference of the exponents' biases */
        return float_from_bits(sign | (exponent + 112) << 23 | fraction << 13);
    /* Zero or subnormal: fraction * 2^-24, exact in float32. */
    float magnitude = (float)fraction * 0x1p-24f;
    return float_from_bits(sign | bits_of_float(magnitude));
}

/* bits >> shift, rounded to nearest, ties to even; shift 1-31. */
static uint32_t shift_round_even(uint32_t bits, unsigned shift)
{
    uint32_t kept = bits >> shift;
    uint32_t rest = bits & ((1u << shift) - 1);
    uint32_t middle = 1u << (shift - 1);
    return kept + (rest > middle || (rest == middle && (kept & 1)));
}

uint16_t float_to_half(float f)
{
    uint32_t bits = bits_of_float(f);
    uint32_t sign = bits >> 16 & 0x8000u;
    uint32_t magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u) /* NaN: keep the top of its payload, quiet */
        return (uint16_t)(sign | 0x7e00u | (magnitude >> 13 & 0x3ffu));
    if (magnitude >= 0x47800000u) /* 2^16 and more, infinity */
        return (uint16_t)(sign | 0x7c00u);
    if (magnitude >= 0x38800000u) /* 2^-14 and more: normal; a carry walks into the exponent */
        return (uint16_t)(sign | shift_round_even(magnitude - (112u << 23), 13));
    unsigned exponent = magnitude >> 23;
    if (exponent < 102) /* below 2^-25: less than half of the smallest subnormal */
        return (uint16_t)sign;
    uint32_t significand = (magnitude & 0x7fffffu) | 0x800000u;
    return (uint16_t)(sign | shift_round_even(significand, 126 - exponent));
}

float bf16_to_float(uint16_t h)
{
    return float_from_bits((uint32_t)h << 16);
}

uint16_t float_to_bf16(float f)
{
    uint32_t bits = bits_of_float(f);
    if ((bits & 0x7fffffffu) > 0x7f800000u)
        return (uint16_t)(bits >> 16 | 0x40u);
    return (uint16_t)shift_round_even(bits, 16);
}

size_t quant_row_bytes(enum tensor_type type, size_t n)
{
    const struct tensor_type_info *info = tensor_type_info(type);
    return n / info->block_values * info->block_bytes;
}

/* Sub-blocks 0-3 have their 6 bits whole in bytes 0-3 (scales) and 4-7 (minima). Of sub-blocks 4-7
 * the low 4 bits are in bytes 8-11 (scale low, minimum high nibble), the top 2 bits in the two top
 * bits that bytes 0-7 have left. */
void quant_k_scale_min(const uint8_t scales[12], unsigned j, uint8_t *scale, uint8_t *min)
{
    if (j < 4) {
        *scale = scales[j] & 63;
        *min = scales[j + 4] & 63;
    } else {
        *scale = (uint8_t)((scales[j + 4] & 15) | (scales[j - 4] >> 6) << 4);
        *min = (uint8_t)((scales[j + 4] >> 4) | (scales[j] >> 6) << 4);
    }
}

/* Low nibbles: scales 0-7 in the low, 8-15 in the high halves of bytes 0-7. Upper 2 bits: scale j
 * in bits 2 (j / 4) of byte 8 + j % 4. */
int quant_q3_k_scale(const uint8_t scales[12], unsigned j)
{
    int low = scales[j % 8] >> 4 * (j / 8) & 15;
    int high = scales[8 + j % 4] >> 2 * (j / 4) & 3;
    return (low | high << 4) - 32;
}

int quant_iq4_xs_scale(const uint8_t low[4], uint16_t high, unsigned j)
{
    return ((low[j / 2] >> 4 * (j % 2) & 15) | (high >> 2 * j & 3) << 4) - 32;
}

const int8_t quant_iq4_values[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                     1,    13,   25,  38,  53,  69,  89,  113};

const int8_t quant_mxfp4_values[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

float quant_mxfp4_scale(uint8_t exponent)
{
    if (exponent < 2) /* 2^-128 and 2^-127 are subnormal */
        return float_from_bits(0x00200000u << exponent);
    return float_from_bits((exponent - 1u) << 23);
}

/* The bits as those of a float32 are 2^-119 times the scale: the exponents' biases differ by 120,
 * and subnormal numbers stay such. */
float quant_nvfp4_scale(uint8_t bits)
{
    uint32_t magnitude = bits & 0x7fu;

    if (bits == 0x7f)
        return 0;
    return float_from_bits(magnitude << 20) * 0x1p119f;
}
