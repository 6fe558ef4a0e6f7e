/* The codebooks, and what the IQ types pack; see grids.h. */
#include "quant/grids.h"

#include "quant/grid_points.h"

#define PAD 0, 0, 0, 0,
_Static_assert(QUANT_GRID_PAD == 4, "as PAD has");

const uint64_t quant_grid_iq2_xxs[256] = {GRID_IQ2_XXS(POINT_IQ2)};
const uint64_t quant_grid_iq2_xs[512] = {GRID_IQ2_XS(POINT_IQ2)};
const uint64_t quant_grid_iq2_s[1024] = {GRID_IQ2_S(POINT_IQ2)};
const uint32_t quant_padded_iq3_xxs[] = {PAD GRID_IQ3_XXS(POINT_IQ3_XXS) PAD};
const uint32_t quant_padded_iq3_s[] = {PAD GRID_IQ3_S(POINT_IQ3_S) PAD};
const uint32_t quant_padded_iq1[] = {PAD GRID_IQ1(POINT_IQ1) PAD};

const int8_t quant_iq1_values[16] = {-7, 1, 9, 0, -9, -1, 7, 0};

uint16_t quant_iq1_m_d(const uint8_t scales[8])
{
    return (uint16_t)(scales[1] >> 4 | scales[3] >> 4 << 4 | scales[5] >> 4 << 8 |
                      scales[7] >> 4 << 12);
}
