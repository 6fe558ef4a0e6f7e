/* The points of the codebooks (grid_codes.h) as initialisers of the tables of grids.h, spread from
 * their codes by the compiler: quant_grid_NAME[] = {GRID_NAME(POINT_KIND)}. */
#ifndef MOED_QUANT_GRID_POINTS_H
#define MOED_QUANT_GRID_POINTS_H

#include "quant/grid_codes.h"

/* Value k of a code with 2 or 3 bits for each. */
#define CODE_2(code, k) ((code) >> 2 * (k)&3)
#define CODE_3(code, k) ((code) >> 3 * (k)&7)

/* One value of a point in its byte. */
#define LEVEL_IQ2(code, k)    (CODE_2(code, k) == 0 ? 8ull : CODE_2(code, k) == 1 ? 25ull : 43ull)
#define BYTE_IQ2(code, k)     LEVEL_IQ2(code, k) << 8 * (k)
#define BYTE_IQ3_XXS(code, k) (CODE_3(code, k) == 7 ? 62u : 4u + 8u * CODE_3(code, k)) << 8 * (k)
#define BYTE_IQ3_S(code, k)   (1u + 2u * CODE_3(code, k)) << 8 * (k)
#define BYTE_IQ1(code, k)     (CODE_2(code, k) | CODE_2(code, (k) + 4) << 4) << 8 * (k)
#define FOUR(byte, code)      byte(code, 0) | byte(code, 1) | byte(code, 2) | byte(code, 3)
#define MORE(byte, code)      byte(code, 4) | byte(code, 5) | byte(code, 6) | byte(code, 7)
#define POINT_IQ2(code)       FOUR(BYTE_IQ2, code) | MORE(BYTE_IQ2, code),
#define POINT_IQ3_XXS(code)   FOUR(BYTE_IQ3_XXS, code),
#define POINT_IQ3_S(code)     FOUR(BYTE_IQ3_S, code),
#define POINT_IQ1(code)       FOUR(BYTE_IQ1, code##u),

#endif
