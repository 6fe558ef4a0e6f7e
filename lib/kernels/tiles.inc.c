/* The tiles of quantised types, for the vector builds. multiply.inc.c includes this file.
 *
 * A NAME_tile function adds one tile's columns to the sums of T tokens. It calls functions for 16
 * columns (NAME_16), whose integer sums are exact in any order, and does the float operations of
 * the definition in its order (portable.c). */

/* For one token the code reads every weight once from memory and does little work: its speed is
 * that of the hardware's prefetchers. They stop at page borders. Therefore the code also prefetches
 * the line at this distance, to the second-level cache: the first-level cache has few places for
 * lines in flight, and occupying them costs more than the prefetch gains. A prefetch past the end
 * of the matrix is harmless. docs/design/kernels.md has the gains. */
enum { READ_AHEAD = 1024 };

LANES void ask_for(const uint8_t *line)
{
    __builtin_prefetch(line, 0, 2);
}

/* The prefetchers also need lines in ascending order, but some functions below read a block's upper
 * bits before its nibbles, and the compiler reorders loads. Therefore, for one token, each block
 * begins with a read of one word of every line. */
LANES void read_in_order(const uint8_t *block, size_t bytes, const int T)
{
    if (T > 1)
        return;
    UNROLL for (size_t i = 0; i < bytes; i += TILE_VECTOR)
    {
        uint32_t word = load_u32(block + i);

        ask_for(block + i + READ_AHEAD);
        __asm__ volatile("" : : "r"(word)); /* keeps the read at this place */
    }
}

/* Shifts each byte right by n bits (n < 0: left) and keeps the bits of `mask`. The shift is of
 * 16-bit lanes; the mask clears the bits of the neighbouring byte. */
LANES vi bits_of(vi a, int n, uint8_t mask)
{
    return vi_and(n > 0 ? vi_right_16(a, n) : n < 0 ? vi_left_16(a, -n) : a, vi_set1_byte(mask));
}

/* The groups 2v and 2v + 1 of a vector of nibbles. */
LANES vi even_group(vi nibbles)
{
    return bits_of(nibbles, 0, 0x0f);
}

LANES vi odd_group(vi nibbles)
{
    return bits_of(nibbles, 4, 0x0f);
}

/* What a sum of 16 columns from col begins with, whose quants have `offset` subtracted. */
LANES dots start_of(const struct views *v, int t, size_t col, int offset, const int T)
{
    if (offset == 0)
        return dots_start(NULL, 0);
    return VIEW_START(v, t, col, T, dots_start(VIEW_MINUS_SUM8(v, t, col), offset));
}

/* Adds the products of two groups, the columns from col, to the sums. One group after the other, so
 * that the registers need not hold both. */
LANES void add_groups(dots *sum, vi even, vi odd, const struct views *v, size_t col, const int T)
{
    EACH_TOKEN sum[t] = dots_add(sum[t], even, view_q(v, t, col, T));
    EACH_TOKEN sum[t] = dots_add(sum[t], odd, view_q(v, t, col + 4, T));
}

/* The same for signed weights of 8 bits. */
LANES void q8_add_group(vi *sum, vi w, const struct views *v, size_t col, const int T)
{
    vi w_unsigned = q8_unsigned(w);

    EACH_TOKEN sum[t] = q8_add(sum[t], w_unsigned, w, view_q(v, t, col, T));
}

/* The *_16 functions: the integer sums of 16 columns from col, as floats, to i[t]. */
LANES void q8_16(const uint8_t *quants, const struct views *v, size_t col, const int T, vf *i)
{
    vi sum[TOKENS_MAX];

    EACH_TOKEN sum[t] = VIEW_START(v, t, col, T, q8_start(VIEW_MINUS_SUM8(v, t, col)));
    UNROLL for (unsigned g = 0; g < 4; g++)
        q8_add_group(sum, vi_load(quants + g * TILE_VECTOR), v, col + 4 * g, T);
    EACH_TOKEN i[t] = vf_from_ints(sum[t]);
}

LANES void iq4_16(const uint8_t *quants, const struct views *v, size_t col, const int T, vf *i)
{
    vi sum[TOKENS_MAX];

    EACH_TOKEN sum[t] = VIEW_START(v, t, col, T, q8_start(VIEW_MINUS_SUM8(v, t, col)));
    UNROLL for (unsigned n = 0; n < 2; n++)
    {
        vi w = vi_load(quants + n * TILE_VECTOR);
        q8_add_group(sum, vi_look_up(quant_iq4_values, even_group(w)), v, col + 8 * n, T);
        q8_add_group(sum, vi_look_up(quant_iq4_values, odd_group(w)), v, col + 8 * n + 4, T);
    }
    EACH_TOKEN i[t] = vf_from_ints(sum[t]);
}

LANES void q4_16(const uint8_t *quants, int offset, const struct views *v, size_t col, const int T,
                 vf *i)
{
    dots sum[TOKENS_MAX];

    EACH_TOKEN sum[t] = start_of(v, t, col, offset, T);
    UNROLL for (unsigned n = 0; n < 2; n++)
    {
        vi w = vi_load(quants + n * TILE_VECTOR);
        add_groups(sum, even_group(w), odd_group(w), v, col + 8 * n, T);
    }
    EACH_TOKEN i[t] = dots_float(sum[t]);
}

/* The values are -12 to 12, so with an offset they are unsigned quants. */
LANES void mxfp4_16(const uint8_t *quants, const struct views *v, size_t col, const int T, vf *i)
{
    static const int8_t values_plus_12[16] = {12, 13, 14, 15, 16, 18, 20, 24,
                                              12, 11, 10, 9,  8,  6,  4,  0};
    dots sum[TOKENS_MAX];

    EACH_TOKEN sum[t] = start_of(v, t, col, 12, T);
    UNROLL for (unsigned n = 0; n < 2; n++)
    {
        vi w = vi_load(quants + n * TILE_VECTOR);
        vi even = vi_look_up(values_plus_12, even_group(w));
        add_groups(sum, even, vi_look_up(values_plus_12, odd_group(w)), v, col + 8 * n, T);
    }
    EACH_TOKEN i[t] = dots_float(sum[t]);
}

/* high: bit g of each byte belongs to group g. first: which group of the 32 columns these begin
 * with, 0 or 4. */
LANES void q5_16(const uint8_t *nibbles, vi high, int first, int offset, const struct views *v,
                 size_t col, const int T, vf *i)
{
    dots sum[TOKENS_MAX];

    EACH_TOKEN sum[t] = start_of(v, t, col, offset, T);
    UNROLL for (int g = 0; g < 4; g += 2)
    {
        vi w = vi_load(nibbles + g / 2 * TILE_VECTOR);
        vi even = vi_or(even_group(w), bits_of(high, first + g - 4, 0x10));
        vi odd = vi_or(odd_group(w), bits_of(high, first + g - 3, 0x10));
        add_groups(sum, even, odd, v, col + 4 * (size_t)g, T);
    }
    EACH_TOKEN i[t] = dots_float(sum[t]);
}

LANES void q6_16(const uint8_t *nibbles, const uint8_t *high_bits, factor scale,
                 const struct views *v, size_t col, const int T, vf *i)
{
    vi high = vi_load(high_bits);
    dots sum[TOKENS_MAX];

    EACH_TOKEN sum[t] = start_of(v, t, col, 32, T);
    UNROLL for (int g = 0; g < 4; g += 2)
    {
        vi w = vi_load(nibbles + g / 2 * TILE_VECTOR);
        vi even = vi_or(even_group(w), bits_of(high, 2 * g - 4, 0x30));
        vi odd = vi_or(odd_group(w), bits_of(high, 2 * g - 2, 0x30));
        add_groups(sum, even, odd, v, col + 4 * (size_t)g, T);
    }
    EACH_TOKEN i[t] = dots_scaled(sum[t], scale);
}

LANES void q2_16(const uint8_t *quants, factor scale, const struct views *v, size_t col,
                 const int T, vf *i)
{
    vi w = vi_load(quants);
    dots sum[TOKENS_MAX];

    EACH_TOKEN sum[t] = start_of(v, t, col, 0, T);
    add_groups(sum, bits_of(w, 0, 0x03), bits_of(w, 2, 0x03), v, col, T);
    add_groups(sum, bits_of(w, 4, 0x03), bits_of(w, 6, 0x03), v, col + 8, T);
    EACH_TOKEN i[t] = dots_scaled(sum[t], scale);
}

/* The 4 groups of 16 columns of Q3_K, taken apart. */
LANES void q3_16(vi group_0, vi group_1, vi group_2, vi group_3, factor scale,
                 const struct views *v, size_t col, const int T, vf *i)
{
    dots sum[TOKENS_MAX];

    EACH_TOKEN sum[t] = start_of(v, t, col, 4, T);
    add_groups(sum, group_0, group_1, v, col, T);
    add_groups(sum, group_2, group_3, v, col + 8, T);
    EACH_TOKEN i[t] = dots_scaled(sum[t], scale);
}

/* The sums of 32 columns: of each half. */
struct sums {
    vf i0[TOKENS_MAX], i1[TOKENS_MAX];
};

/* acc = fmaf(p, w, acc), p = fmaf(i1, d_x1, i0 * d_x0), at block b of 32 columns. */
LANES void add_products(vf *acc, const struct sums *s, vf w, const struct views *v, size_t b,
                        const int T)
{
    EACH_TOKEN
    {
        vf first = vf_mul(s->i0[t], view_d(v, t, 32 * b, T));
        vf p = vf_fma(s->i1[t], view_d(v, t, 32 * b + 16, T), first);
        acc[t] = vf_fma(p, w, acc[t]);
    }
}

/* acc = fmaf(m, bias, acc). */
LANES void add_minimum(vf *acc, vf m, const struct views *v, size_t b, const int T)
{
    EACH_TOKEN acc[t] = vf_fma(m, view_bias(v, t, b, T), acc[t]);
}

LANES void q8_0_tile(const uint8_t *tile, const struct views *v, size_t b, const int T, vf *acc)
{
    const uint8_t *quants = tile + Q8_0_QUANTS;
    struct sums s;

    read_in_order(quants, Q8_0_TILE - Q8_0_QUANTS, T);
    q8_16(quants, v, 32 * b, T, s.i0);
    q8_16(quants + 4 * TILE_VECTOR, v, 32 * b + 16, T, s.i1);
    add_products(acc, &s, vf_load_halves(tile), v, b, T);
}

LANES void q4_0_tile(const uint8_t *tile, const struct views *v, size_t b, const int T, vf *acc)
{
    const uint8_t *quants = tile + Q4_0_QUANTS;
    struct sums s;

    read_in_order(quants, Q4_0_TILE - Q4_0_QUANTS, T);
    q4_16(quants, 8, v, 32 * b, T, s.i0);
    q4_16(quants + 2 * TILE_VECTOR, 8, v, 32 * b + 16, T, s.i1);
    add_products(acc, &s, vf_load_halves(tile), v, b, T);
}

LANES void q4_1_tile(const uint8_t *tile, const struct views *v, size_t b, const int T, vf *acc)
{
    const uint8_t *quants = tile + Q4_1_QUANTS;
    struct sums s;

    read_in_order(quants, Q4_1_TILE - Q4_1_QUANTS, T);
    q4_16(quants, 0, v, 32 * b, T, s.i0);
    q4_16(quants + 2 * TILE_VECTOR, 0, v, 32 * b + 16, T, s.i1);
    add_products(acc, &s, vf_load_halves(tile), v, b, T);
    add_minimum(acc, vf_load_halves(tile + TILE_HALVES), v, b, T);
}

LANES void q5_0_tile(const uint8_t *tile, const struct views *v, size_t b, const int T, vf *acc)
{
    const uint8_t *quants = tile + Q5_0_QUANTS;
    struct sums s;

    read_in_order(quants, Q5_0_TILE - Q5_0_QUANTS, T);
    vi high = vi_load(quants + 4 * TILE_VECTOR);
    q5_16(quants, high, 0, 16, v, 32 * b, T, s.i0);
    q5_16(quants + 2 * TILE_VECTOR, high, 4, 16, v, 32 * b + 16, T, s.i1);
    add_products(acc, &s, vf_load_halves(tile), v, b, T);
}

LANES void q5_1_tile(const uint8_t *tile, const struct views *v, size_t b, const int T, vf *acc)
{
    const uint8_t *quants = tile + Q5_1_QUANTS;
    struct sums s;

    read_in_order(quants, Q5_1_TILE - Q5_1_QUANTS, T);
    vi high = vi_load(quants + 4 * TILE_VECTOR);
    q5_16(quants, high, 0, 0, v, 32 * b, T, s.i0);
    q5_16(quants + 2 * TILE_VECTOR, high, 4, 0, v, 32 * b + 16, T, s.i1);
    add_products(acc, &s, vf_load_halves(tile), v, b, T);
    add_minimum(acc, vf_load_halves(tile + TILE_HALVES), v, b, T);
}

LANES void iq4_nl_tile(const uint8_t *tile, const struct views *v, size_t b, const int T, vf *acc)
{
    const uint8_t *quants = tile + Q4_0_QUANTS;
    struct sums s;

    read_in_order(quants, Q4_0_TILE - Q4_0_QUANTS, T);
    iq4_16(quants, v, 32 * b, T, s.i0);
    iq4_16(quants + 2 * TILE_VECTOR, v, 32 * b + 16, T, s.i1);
    add_products(acc, &s, vf_load_halves(tile), v, b, T);
}

/* 2^(e - 128) has the bits (e - 1) << 23, but for e = 0 and 1, whose subnormals are 1 << 21 and
 * 2 << 21: (e + 1) << 21, which is the smaller one for every other e. */
LANES vf mxfp4_scales(const uint8_t *exponents)
{
    vi e = vi_load_bytes(exponents), one = vi_set1(1);

    return vi_floats(vi_max(vi_left_32(vi_sub(e, one), 23), vi_left_32(vi_add(e, one), 21)));
}

LANES void mxfp4_tile(const uint8_t *tile, const struct views *v, size_t b, const int T, vf *acc)
{
    const uint8_t *quants = tile + MXFP4_QUANTS;
    struct sums s;

    read_in_order(quants, MXFP4_TILE - MXFP4_QUANTS, T);
    mxfp4_16(quants, v, 32 * b, T, s.i0);
    mxfp4_16(quants + 2 * TILE_VECTOR, v, 32 * b + 16, T, s.i1);
    add_products(acc, &s, mxfp4_scales(tile), v, b, T);
}

/* quant_nvfp4_scale of the lower bytes and of the upper ones of 16 words of 16 bits. As the
 * exponent and mantissa of a half a byte is 128 times too small. Arithmetic on subnormal floats
 * would take three times as long; the conversion reads subnormal halves as fast as others. */
struct nvfp4_scales {
    vf lower, upper;
};

LANES struct nvfp4_scales nvfp4_scales_load(const uint8_t *p)
{
    __m256i bytes = _mm256_loadu_si256((const __m256i *)p), all = _mm256_set1_epi8(0x7f);
    __m256i number = _mm256_andnot_si256(_mm256_cmpeq_epi8(bytes, all), all); /* 0x7f counts as 0 */
    __m256i valid = _mm256_and_si256(bytes, number), place = _mm256_set1_epi16(0x7f << 7);
    vf times_128 = vf_set1(128);

    return (struct nvfp4_scales){
        vf_mul(vf_of_halves(_mm256_and_si256(_mm256_slli_epi16(valid, 7), place)), times_128),
        vf_mul(vf_of_halves(_mm256_and_si256(_mm256_srli_epi16(valid, 1), place)), times_128)};
}

/* Two tiles a block of 64 columns. */
LANES void nvfp4_tile(const uint8_t *tile, const struct views *v, size_t b, const int T, vf *acc)
{
    const uint8_t *quants = tile + NVFP4_QUANTS;
    struct nvfp4_scales scales = nvfp4_scales_load(tile);
    struct sums s;

    read_in_order(quants, NVFP4_TILE - NVFP4_QUANTS, T);
    mxfp4_16(quants, v, 32 * b, T, s.i0);
    mxfp4_16(quants + 2 * TILE_VECTOR, v, 32 * b + 16, T, s.i1);
    EACH_TOKEN
    {
        s.i0[t] = vf_mul(s.i0[t], scales.lower); /* exact */
        s.i1[t] = vf_mul(s.i1[t], scales.upper);
    }
    add_products(acc, &s, vf_set1(1), v, b, T);
}

/* The scales and minima of Q4_K and Q5_K, a byte each in the words of a row: [0] of sub-blocks 0-3,
 * [1] of 4-7, whose upper two bits the file keeps in the bytes of the first four. */
struct k_scales {
    vf d, dmin;
    vi scale[2], min[2];
};

LANES struct k_scales k_scales_load(const uint8_t *tile)
{
    const uint8_t *p = tile + K_SCALES;
    vi s = vi_load(p), m = vi_load(p + TILE_VECTOR), low = vi_load(p + 2 * TILE_VECTOR);

    return (struct k_scales){
        .d = vf_load_halves(tile),
        .dmin = vf_load_halves(tile + K_MINS),
        .scale = {bits_of(s, 0, 0x3f), vi_or(bits_of(low, 0, 0x0f), bits_of(s, 2, 0x30))},
        .min = {bits_of(m, 0, 0x3f), vi_or(bits_of(low, 4, 0x0f), bits_of(m, 2, 0x30))},
    };
}

/* Adds sub-block `sub`, block b of the activations, with its scale and minimum. */
LANES void add_k_products(vf *acc, const struct sums *sums, const struct k_scales *s, int sub,
                          const struct views *v, size_t b, const int T)
{
    vf scale = vf_mul(s->d, byte_float(s->scale[sub / 4], sub % 4));
    vf min = vf_mul(s->dmin, byte_float(s->min[sub / 4], sub % 4));

    add_products(acc, sums, scale, v, b, T);
    EACH_TOKEN acc[t] = vf_fnma(min, view_bias(v, t, b, T), acc[t]);
}

LANES void q4_k_tile(const uint8_t *tile, const struct views *v, size_t b, const int T, vf *acc)
{
    struct k_scales scales = k_scales_load(tile);
    const uint8_t *quants = tile + K_QUANTS;

    for (int sub = 0; sub < 8; sub++, b++, quants += Q4_K_SUB) {
        struct sums s;

        read_in_order(quants, Q4_K_SUB, T);
        q4_16(quants, 0, v, 32 * b, T, s.i0);
        q4_16(quants + 2 * TILE_VECTOR, 0, v, 32 * b + 16, T, s.i1);
        add_k_products(acc, &s, &scales, sub, v, b, T);
    }
}

LANES void q5_k_tile(const uint8_t *tile, const struct views *v, size_t b, const int T, vf *acc)
{
    struct k_scales scales = k_scales_load(tile);
    const uint8_t *quants = tile + K_QUANTS;

    for (int sub = 0; sub < 8; sub++, b++, quants += Q5_K_SUB) {
        struct sums s;

        read_in_order(quants, Q5_K_SUB, T);
        vi high = vi_load(quants + 4 * TILE_VECTOR);
        q5_16(quants, high, 0, 0, v, 32 * b, T, s.i0);
        q5_16(quants + 2 * TILE_VECTOR, high, 4, 0, v, 32 * b + 16, T, s.i1);
        add_k_products(acc, &s, &scales, sub, v, b, T);
    }
}

LANES void q6_k_tile(const uint8_t *tile, const struct views *v, size_t b, const int T, vf *acc)
{
    vf d = vf_load_halves(tile);
    const uint8_t *quants = tile + Q6_K_QUANTS;

    for (int sub = 0; sub < 8; sub++, b++, quants += Q6_K_SUB) {
        read_in_order(quants, Q6_K_SUB, T);
        vi scales = vi_load(tile + Q6_K_SCALES + sub / 2 * TILE_VECTOR);
        factor scale_0 = factor_signed(scales, 2 * (sub % 2));
        factor scale_1 = factor_signed(scales, 2 * (sub % 2) + 1);
        struct sums s;

        q6_16(quants, quants + 4 * TILE_VECTOR, scale_0, v, 32 * b, T, s.i0);
        q6_16(quants + 2 * TILE_VECTOR, quants + 5 * TILE_VECTOR, scale_1, v, 32 * b + 16, T, s.i1);
        add_products(acc, &s, d, v, b, T);
    }
}

/* Minus the sum of 16 q times the minimum, exactly: the sum for quants that are all -min. */
LANES void minima_16(factor min, const struct views *v, size_t col, const int T, vf *j)
{
    EACH_TOKEN j[t] = dots_scaled(start_of(v, t, col, 1, T), min);
}

/* Two sub-blocks at a time, whose four scales and minima share a vector. */
LANES void q2_k_tile(const uint8_t *tile, const struct views *v, size_t b, const int T, vf *acc)
{
    vf d = vf_load_halves(tile), dmin = vf_load_halves(tile + K_MINS);
    const uint8_t *both = tile + Q2_K_SCALES, *quants = tile + Q2_K_QUANTS;

    read_in_order(tile, Q2_K_QUANTS, T); /* a quarter of the tile; its quants are in order */
    for (int pair = 0; pair < 4; pair++, both += TILE_VECTOR) {
        vi packed = vi_load(both);
        vi scales = bits_of(packed, 0, 0x0f), mins = bits_of(packed, 4, 0x0f);

        UNROLL for (int j = 0; j < 4; j += 2, b++, quants += Q2_K_SUB)
        {
            struct sums s;

            q2_16(quants, factor_unsigned(scales, j), v, 32 * b, T, s.i0);
            q2_16(quants + TILE_VECTOR, factor_unsigned(scales, j + 1), v, 32 * b + 16, T, s.i1);
            add_products(acc, &s, d, v, b, T);
            minima_16(factor_unsigned(mins, j), v, 32 * b, T, s.i0);
            minima_16(factor_unsigned(mins, j + 1), v, 32 * b + 16, T, s.i1);
            add_products(acc, &s, dmin, v, b, T);
        }
    }
}

/* The 16 scales of Q3_K, a signed byte each: 4k to 4k + 3 in the words of scales[k]. */
LANES void q3_k_scales(const uint8_t *p, vi scales[4])
{
    vi low = vi_load(p), low_2 = vi_load(p + TILE_VECTOR), high = vi_load(p + 2 * TILE_VECTOR);
    vi offset = vi_set1_byte(32);

    scales[0] = vi_sub_bytes(vi_or(bits_of(low, 0, 0x0f), bits_of(high, -4, 0x30)), offset);
    scales[1] = vi_sub_bytes(vi_or(bits_of(low_2, 0, 0x0f), bits_of(high, -2, 0x30)), offset);
    scales[2] = vi_sub_bytes(vi_or(bits_of(low, 4, 0x0f), bits_of(high, 0, 0x30)), offset);
    scales[3] = vi_sub_bytes(vi_or(bits_of(low_2, 4, 0x0f), bits_of(high, 2, 0x30)), offset);
}

/* The 32 columns of a sub-block. */
LANES void q3_32(const uint8_t *quants, factor scale_0, factor scale_1, const struct views *v,
                 size_t col, const int T, struct sums *s)
{
    vi w0 = vi_load(quants), w1 = vi_load(quants + TILE_VECTOR);
    vi w2 = vi_load(quants + 2 * TILE_VECTOR);
    vi group_6 = vi_or(bits_of(w0, 6, 0x03), bits_of(w2, 4, 0x04));
    vi group_7 = vi_or(bits_of(w1, 6, 0x03), bits_of(w2, 5, 0x04));

    q3_16(bits_of(w0, 0, 0x07), bits_of(w0, 3, 0x07), bits_of(w1, 0, 0x07), bits_of(w1, 3, 0x07),
          scale_0, v, col, T, s->i0);
    q3_16(bits_of(w2, 0, 0x07), bits_of(w2, 3, 0x07), group_6, group_7, scale_1, v, col + 16, T,
          s->i1);
}

LANES void q3_k_tile(const uint8_t *tile, const struct views *v, size_t b, const int T, vf *acc)
{
    vf d = vf_load_halves(tile);
    const uint8_t *quants = tile + Q3_K_QUANTS;
    vi scales[4];

    q3_k_scales(tile + Q3_K_SCALES, scales);
    for (int pair = 0; pair < 4; pair++) {
        UNROLL for (int j = 0; j < 4; j += 2, b++, quants += Q3_K_SUB)
        {
            struct sums s;

            q3_32(quants, factor_signed(scales[pair], j), factor_signed(scales[pair], j + 1), v,
                  32 * b, T, &s);
            add_products(acc, &s, d, v, b, T);
        }
    }
}

/* The scales of IQ4_XS and 32, a byte each: [0] those of the even sub-blocks, [1] of the odd ones.
 * The upper bits are a nibble for two sub-blocks; its nibbles are spread to bytes first. */
LANES void iq4_xs_scales(const uint8_t *tile, vi scales[2])
{
    vi low = vi_load(tile + IQ4_XS_LOW), high = vi_load_shorts(tile + IQ4_XS_HIGH);

    high = vi_and(vi_or(high, vi_left_32(high, 8)), vi_set1(0x00ff00ff));
    high = vi_and(vi_or(high, vi_left_32(high, 4)), vi_set1(0x0f0f0f0f));
    scales[0] = vi_or(bits_of(low, 0, 0x0f), bits_of(high, -4, 0x30));
    scales[1] = vi_or(bits_of(low, 4, 0x0f), bits_of(high, -2, 0x30));
}

LANES void iq4_xs_tile(const uint8_t *tile, const struct views *v, size_t b, const int T, vf *acc)
{
    vf d = vf_load_halves(tile);
    const uint8_t *quants = tile + IQ4_XS_QUANTS;
    vi scales[2];

    iq4_xs_scales(tile, scales);
    for (int pair = 0; pair < 4; pair++) {
        UNROLL for (int odd = 0; odd < 2; odd++, b++, quants += Q4_K_SUB)
        {
            vf scale = vf_sub(byte_float(scales[odd], pair), vf_set1(32));
            struct sums s;

            read_in_order(quants, Q4_K_SUB, T);
            iq4_16(quants, v, 32 * b, T, s.i0);
            iq4_16(quants + 2 * TILE_VECTOR, v, 32 * b + 16, T, s.i1);
            add_products(acc, &s, vf_mul(d, scale), v, b, T);
        }
    }
}
