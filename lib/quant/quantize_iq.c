/* Converts float32 to blocks of the IQ types with codebooks. Each sub-block's largest magnitude
 * becomes the largest level. Each value is rounded to its nearest level, and the levels to the
 * nearest point of the codebook. For random weights and tests; ggml searches for better scales and
 * weighs the errors. */
#include "quant/grids.h"
#include "quant/quant.h"
#include "quant/quant_iq.h"

#include <math.h>
#include <pthread.h>
#include <string.h>

static void store_u16(uint8_t *p, unsigned v)
{
    p[0] = (uint8_t)v;
    p[1] = (uint8_t)(v >> 8);
}

static void store_u32(uint8_t *p, uint32_t v)
{
    store_u16(p, v & 0xffff);
    store_u16(p + 2, v >> 16);
}

/* A codebook, and for every combination of levels the index of its nearest point. The number of a
 * combination has its first level as the lowest digit. */
struct book {
    unsigned n_points, n_values, n_levels;
    int8_t levels[8]; /* rising */
    int8_t points[2048][8];
    uint16_t nearest[6561]; /* 3^8; 8^4 is less */
};

static struct book iq2_xxs = {.n_points = 256, .n_values = 8, .n_levels = 3, .levels = {8, 25, 43}};
static struct book iq2_xs = {.n_points = 512, .n_values = 8, .n_levels = 3, .levels = {8, 25, 43}};
static struct book iq2_s = {.n_points = 1024, .n_values = 8, .n_levels = 3, .levels = {8, 25, 43}};
static struct book iq3_xxs = {
    .n_points = 256, .n_values = 4, .n_levels = 8, .levels = {4, 12, 20, 28, 36, 44, 52, 62}};
static struct book iq3_s = {
    .n_points = 512, .n_values = 4, .n_levels = 8, .levels = {1, 3, 5, 7, 9, 11, 13, 15}};
static struct book iq1 = {.n_points = 2048, .n_values = 8, .n_levels = 3, .levels = {-8, 0, 8}};

static unsigned nearest_point(const struct book *b, const int8_t *values)
{
    unsigned best = 0;
    int least = 1 << 30;

    for (unsigned p = 0; p < b->n_points; p++) {
        int distance = 0;
        for (unsigned k = 0; k < b->n_values; k++) {
            int gap = b->points[p][k] - values[k];
            distance += gap * gap;
        }
        if (distance < least) {
            least = distance;
            best = p;
        }
    }
    return best;
}

static void find_nearest(struct book *b)
{
    unsigned combinations = 1;

    for (unsigned k = 0; k < b->n_values; k++)
        combinations *= b->n_levels;
    for (unsigned c = 0; c < combinations; c++) {
        int8_t values[8];
        unsigned rest = c;
        for (unsigned k = 0; k < b->n_values; k++, rest /= b->n_levels)
            values[k] = b->levels[rest % b->n_levels];
        b->nearest[c] = (uint16_t)nearest_point(b, values);
    }
}

static void read_points_8(struct book *b, const uint64_t *grid)
{
    for (unsigned p = 0; p < b->n_points; p++)
        for (unsigned k = 0; k < 8; k++)
            b->points[p][k] = (int8_t)(grid[p] >> 8 * k);
    find_nearest(b);
}

static void read_points_4(struct book *b, const uint32_t *grid)
{
    for (unsigned p = 0; p < b->n_points; p++)
        for (unsigned k = 0; k < 4; k++)
            b->points[p][k] = (int8_t)(grid[p] >> 8 * k);
    find_nearest(b);
}

static void make_books(void)
{
    read_points_8(&iq2_xxs, quant_grid_iq2_xxs);
    read_points_8(&iq2_xs, quant_grid_iq2_xs);
    read_points_8(&iq2_s, quant_grid_iq2_s);
    read_points_4(&iq3_xxs, quant_grid_iq3_xxs());
    read_points_4(&iq3_s, quant_grid_iq3_s());
    for (unsigned p = 0; p < iq1.n_points; p++)
        for (unsigned k = 0; k < 8; k++) {
            unsigned level = quant_grid_iq1()[p] >> (8 * (k % 4) + 4 * (k / 4)) & 15;
            iq1.points[p][k] = (int8_t)(8 * (int)level - 8);
        }
    find_nearest(&iq1);
}

static void need_books(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, make_books);
}

static float largest(const float *in, unsigned n)
{
    float most = 0;
    for (unsigned i = 0; i < n; i++)
        most = fabsf(in[i]) > most ? fabsf(in[i]) : most;
    return most;
}

static float reciprocal_or_zero(float x)
{
    return x != 0 ? 1.0f / x : 0.0f;
}

/* Chooses d and the scales of n sub-blocks of 256 / n values. A sub-block's unit is d * fraction *
 * (2 * scale + 1); its largest magnitude becomes `reach` units, under the largest of these factors,
 * `top`, in the sub-block with the largest of all. Returns d * fraction. */
static float choose_scales(const float *in, unsigned n, unsigned top, float reach, float fraction,
                           uint8_t scales[16], uint16_t *d)
{
    float most[16], of_all = 0;

    for (unsigned j = 0; j < n; j++) {
        most[j] = largest(in + j * (256 / n), 256 / n);
        of_all = most[j] > of_all ? most[j] : of_all;
    }
    *d = float_to_half(of_all / (reach * (float)top * fraction));
    float unit = half_to_float(*d) * fraction, inverse = reciprocal_or_zero(unit * reach);
    for (unsigned j = 0; j < n; j++) {
        float scale = (most[j] * inverse - 1) / 2;
        scales[j] = !(scale > 0)               ? 0
                    : scale > (float)(top / 2) ? (uint8_t)(top / 2)
                                               : (uint8_t)lrintf(scale);
    }
    return unit;
}

static unsigned nearest_level(const struct book *b, float x)
{
    unsigned level = 0;
    while (level + 1 < b->n_levels && x > 0.5f * (float)(b->levels[level] + b->levels[level + 1]))
        level++;
    return level;
}

/* The index of the point nearest to b->n_values values divided by scale, plus `shift`. */
static unsigned find_point(const struct book *b, const float *in, float scale, float shift,
                           bool absolute)
{
    float inverse = reciprocal_or_zero(scale);
    unsigned combination = 0;

    for (unsigned k = b->n_values; k-- > 0;) {
        float x = (absolute ? fabsf(in[k]) : in[k]) * inverse + shift;
        combination = combination * b->n_levels + nearest_level(b, x);
    }
    return b->nearest[combination];
}

static unsigned signs_of(const float *in)
{
    unsigned signs = 0;
    for (unsigned i = 0; i < 8; i++)
        signs |= (unsigned)(in[i] < 0) << i;
    return signs;
}

/* The first seven signs, where the format keeps their number even: if it is odd, the value of the
 * smallest magnitude takes the wrong one. */
static unsigned seven_signs(const float *in)
{
    unsigned signs = signs_of(in), smallest = 0;

    for (unsigned i = 1; i < 8; i++)
        if (fabsf(in[i]) < fabsf(in[smallest]))
            smallest = i;
    if (__builtin_parity(signs))
        signs ^= 1u << smallest;
    return signs & 127;
}

void quantize_iq2_xxs(const float *in, uint8_t *block, size_t n)
{
    need_books();
    for (; n; n -= 256, block += 66) {
        uint8_t scales[16];
        uint16_t d;
        float unit = choose_scales(in, 8, 31, 43, 0.125f, scales, &d);

        store_u16(block, d);
        for (unsigned s = 0; s < 8; s++) {
            uint32_t word = (uint32_t)scales[s] << 28;
            for (unsigned k = 0; k < 4; k++, in += 8) {
                block[2 + 8 * s + k] =
                    (uint8_t)find_point(&iq2_xxs, in, unit * (float)(2 * scales[s] + 1), 0, true);
                word |= seven_signs(in) << 7 * k;
            }
            store_u32(block + 2 + 8 * s + 4, word);
        }
    }
}

void quantize_iq2_xs(const float *in, uint8_t *block, size_t n)
{
    need_books();
    for (; n; n -= 256, block += 74) {
        uint8_t scales[16];
        uint16_t d;
        float unit = choose_scales(in, 16, 31, 43, 0.125f, scales, &d);

        store_u16(block, d);
        for (unsigned k = 0; k < 32; k++, in += 8)
            store_u16(block + 2 + 2 * k,
                      find_point(&iq2_xs, in, unit * (float)(2 * scales[k / 2] + 1), 0, true) |
                          seven_signs(in) << 9);
        for (unsigned j = 0; j < 8; j++)
            block[66 + j] = (uint8_t)(scales[2 * j] | scales[2 * j + 1] << 4);
    }
}

void quantize_iq2_s(const float *in, uint8_t *block, size_t n)
{
    need_books();
    for (; n; n -= 256, block += 82) {
        uint8_t scales[16];
        uint16_t d;
        float unit = choose_scales(in, 16, 31, 43, 0.125f, scales, &d);

        store_u16(block, d);
        memset(block + 66, 0, 8);
        for (unsigned k = 0; k < 32; k++, in += 8) {
            unsigned index = find_point(&iq2_s, in, unit * (float)(2 * scales[k / 2] + 1), 0, true);
            block[2 + k] = (uint8_t)index;
            block[34 + k] = (uint8_t)signs_of(in);
            block[66 + k / 4] |= (uint8_t)(index >> 8 << 2 * (k % 4));
        }
        for (unsigned j = 0; j < 8; j++)
            block[74 + j] = (uint8_t)(scales[2 * j] | scales[2 * j + 1] << 4);
    }
}

void quantize_iq3_xxs(const float *in, uint8_t *block, size_t n)
{
    need_books();
    for (; n; n -= 256, block += 98) {
        uint8_t scales[16];
        uint16_t d;
        float unit = choose_scales(in, 8, 31, 62, 0.25f, scales, &d);

        store_u16(block, d);
        for (unsigned s = 0; s < 8; s++) {
            uint32_t word = (uint32_t)scales[s] << 28;
            for (unsigned k = 0; k < 8; k++, in += 4) {
                block[2 + 8 * s + k] =
                    (uint8_t)find_point(&iq3_xxs, in, unit * (float)(2 * scales[s] + 1), 0, true);
                if (k % 2 == 0)
                    word |= seven_signs(in) << 7 * (k / 2);
            }
            store_u32(block + 66 + 4 * s, word);
        }
    }
}

void quantize_iq3_s(const float *in, uint8_t *block, size_t n)
{
    need_books();
    for (; n; n -= 256, block += 110) {
        uint8_t scales[16];
        uint16_t d;
        float unit = choose_scales(in, 8, 31, 15, 1, scales, &d);

        store_u16(block, d);
        memset(block + 66, 0, 8);
        for (unsigned k = 0; k < 64; k++, in += 4) {
            unsigned index = find_point(&iq3_s, in, unit * (float)(2 * scales[k / 8] + 1), 0, true);
            block[2 + k] = (uint8_t)index;
            block[66 + k / 8] |= (uint8_t)(index >> 8 << k % 8);
            if (k % 2 == 0)
                block[74 + k / 2] = (uint8_t)signs_of(in);
        }
        for (unsigned j = 0; j < 4; j++)
            block[106 + j] = (uint8_t)(scales[2 * j] | scales[2 * j + 1] << 4);
    }
}

/* An eighth is subtracted from the levels where most of the values are negative. */
static bool mostly_negative(const float *in, unsigned n)
{
    unsigned negative = 0;
    for (unsigned i = 0; i < n; i++)
        negative += in[i] < 0;
    return 2 * negative > n;
}

void quantize_iq1_s(const float *in, uint8_t *block, size_t n)
{
    need_books();
    for (; n; n -= 256, block += 50) {
        uint8_t scales[16];
        uint16_t d;
        float unit = choose_scales(in, 8, 15, 9, 0.125f, scales, &d);

        store_u16(block, d);
        for (unsigned s = 0; s < 8; s++) {
            bool minus = mostly_negative(in, 32);
            unsigned high = (unsigned)scales[s] << 12 | (unsigned)minus << 15;
            for (unsigned k = 0; k < 4; k++, in += 8) {
                unsigned index =
                    find_point(&iq1, in, unit * (float)(2 * scales[s] + 1), minus ? 1 : -1, false);
                block[2 + 4 * s + k] = (uint8_t)index;
                high |= index >> 8 << 3 * k;
            }
            store_u16(block + 34 + 2 * s, high);
        }
    }
}

void quantize_iq1_m(const float *in, uint8_t *block, size_t n)
{
    need_books();
    for (; n; n -= 256, block += 56) {
        uint8_t scales[16];
        uint16_t d;
        float unit = choose_scales(in, 16, 15, 9, 0.125f, scales, &d);

        memset(block + 32, 0, 24);
        for (unsigned k = 0; k < 32; k++, in += 8) {
            bool minus = mostly_negative(in, 8);
            unsigned index =
                find_point(&iq1, in, unit * (float)(2 * scales[k / 2] + 1), minus ? 1 : -1, false);
            block[k] = (uint8_t)index;
            block[32 + k / 2] |= (uint8_t)((index >> 8 | (unsigned)minus << 3) << 4 * (k % 2));
        }
        for (unsigned j = 0; j < 4; j++) {
            const uint8_t *s = scales + 4 * j;
            store_u16(block + 48 + 2 * j, (unsigned)(s[0] | s[1] << 3 | s[2] << 6 | s[3] << 9) |
                                              (unsigned)(d >> 4 * j & 15) << 12);
        }
    }
}
