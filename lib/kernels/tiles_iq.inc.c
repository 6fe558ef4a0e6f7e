/* The tiles of the types with codebooks (pack_iq.c), for the vector builds. multiply.inc.c includes
 * this file after tiles.inc.c.
 *
 * A type has two functions. NAME_decode makes the quants of a sub-block of 32 columns: 8 groups of
 * 4 columns. NAME_scales makes w of these columns, and, for the types that have scales of 16
 * columns, those of the halves.
 *
 * Looking points up is most of the work of one token. Several tokens share it: a tile is decoded to
 * a buffer, and up to DECODED_TOKENS tokens multiply that. */

typedef void decode_function(const uint8_t *tile, int sub, group quants[8]);
typedef void scales_function(const uint8_t *tile, int sub, factor halves[2], vf *w);

/* 2 * scale + 1 for the scales in the nibbles of each byte: `n` 0 the low ones, 4 the high ones. */
LANES vi odd_scales(vi nibbles, int n)
{
    return vi_or(bits_of(nibbles, n - 1, 0x1e), vi_set1_byte(1));
}

/* The word of signs with the signs that the format leaves out in place of its upper 4 bits: each
 * makes the number of minus signs in 8 columns even. */
LANES vi even_signs(vi word)
{
    vi signs = vi_and(word, vi_set1(0x0fffffff));
    vi of_4_bytes = vi_xor(signs, vi_left_32(signs, 16));

    of_4_bytes = vi_xor(of_4_bytes, vi_left_32(of_4_bytes, 8)); /* the upper byte: all four */
    vi eighths = vi_xor(of_4_bytes, vi_left_32(of_4_bytes, 4));
    return vi_or(signs, vi_and(eighths, vi_set1((int32_t)0xf0000000)));
}

/* Gives the 8 groups their signs: the bit of group g is bit 4 * (g % 2) + g / 2 of each byte. */
LANES void apply_signs(const vi points[8], vi signs, group quants[8])
{
    UNROLL for (int g = 0; g < 8; g++)
    {
        quants[g] = group_with_signs(points[g], signs, 7 - 4 * (g % 2) - g / 2);
    }
}

/* Pair m (bytes 2m and 2m + 1) of the indices in `low`, with the upper bits of all pairs in `high`,
 * `bits` each: in each half of a word those of pair 0 come first. mask: of the bits at their place.
 */
LANES vi pair_indices(vi low, vi high, const int m, const int bits, const int32_t mask)
{
    vi bytes = pick(low, m % 2 == 0 ? (int32_t)0x80018000 : (int32_t)0x80038002);

    return vi_or(bytes, vi_and(vi_left_32(high, 8 - bits * m), vi_set1(mask)));
}

LANES void iq3_s_decode(const uint8_t *tile, int sub, group quants[8])
{
    const uint8_t *p = tile + IQ3_S_QUANTS + sub * IQ3_SUB;
    vi high = vi_right_32(vi_load(tile + IQ3_S_HIGH + sub / 4 * TILE_VECTOR), 4 * (sub % 4));
    vi points[8];

    UNROLL for (int m = 0; m < 4; m++)
    {
        vi low = vi_load(p + m / 2 * TILE_VECTOR);
        vi_points_4_by_16(quant_grid_iq3_s(), pair_indices(low, high, m, 1, 0x01000100),
                          points + 2 * m);
    }
    apply_signs(points, vi_load(p + 2 * TILE_VECTOR), quants);
}

/* The scales of IQ3_S are the nibbles of a word in order. */
LANES void iq3_s_scales(const uint8_t *tile, int sub, factor halves[2], vf *w)
{
    vi nibbles = vi_right_32(vi_load(tile + IQ3_S_SCALES), 4 * (sub % 2));

    (void)halves;
    *w = vf_mul(vf_load_halves(tile), byte_float(odd_scales(nibbles, 0), sub / 2));
}

LANES void iq3_xxs_decode(const uint8_t *tile, int sub, group quants[8])
{
    const uint8_t *p = tile + IQ3_XXS_QUANTS + sub * IQ3_SUB;
    vi points[8];

    vi_points_4(quant_grid_iq3_xxs(), p, points);
    vi_points_4(quant_grid_iq3_xxs(), p + TILE_VECTOR, points + 4);
    apply_signs(points, even_signs(vi_load(p + 2 * TILE_VECTOR)), quants);
}

/* w for a scale in the upper 4 bits of a word. */
LANES vf scale_of_word(const uint8_t *tile, float fraction, vi word)
{
    vi scale = vi_or(vi_and(vi_right_32(word, 27), vi_set1(0x1e)), vi_set1(1));

    return vf_mul(vf_mul(vf_load_halves(tile), vf_set1(fraction)), vf_from_ints(scale));
}

LANES void iq3_xxs_scales(const uint8_t *tile, int sub, factor halves[2], vf *w)
{
    (void)halves;
    *w = scale_of_word(tile, 0.25f,
                       vi_load(tile + IQ3_XXS_QUANTS + sub * IQ3_SUB + 2 * TILE_VECTOR));
}

LANES void iq2_xxs_decode(const uint8_t *tile, int sub, group quants[8])
{
    const uint8_t *p = tile + IQ2_XXS_QUANTS + sub * IQ2_SUB;
    vi points[8];

    vi_points_8(quant_grid_iq2_xxs, p, points);
    apply_signs(points, even_signs(vi_load(p + TILE_VECTOR)), quants);
}

LANES void iq2_xxs_scales(const uint8_t *tile, int sub, factor halves[2], vf *w)
{
    (void)halves;
    *w = scale_of_word(tile, 0.125f, vi_load(tile + IQ2_XXS_QUANTS + sub * IQ2_SUB + TILE_VECTOR));
}

/* The upper 4 bits of the signs are the ninth bits of the indices. */
LANES void iq2_xs_decode(const uint8_t *tile, int sub, group quants[8])
{
    const uint8_t *p = tile + IQ2_XS_QUANTS + sub * IQ2_SUB;
    vi low = vi_load(p), word = vi_load(p + TILE_VECTOR);
    vi points[8];
    /* Of indices 0 and 2 to bits 0 and 1, of 1 and 3 to bits 16 and 17. */
    vi even =
        vi_or(vi_and(vi_right_32(word, 28), vi_set1(1)), vi_and(vi_right_32(word, 29), vi_set1(2)));
    vi odd = vi_or(vi_and(vi_right_32(word, 13), vi_set1(0x10000)),
                   vi_and(vi_right_32(word, 14), vi_set1(0x20000)));
    vi high = vi_or(even, odd);

    UNROLL for (int m = 0; m < 2; m++)
    {
        vi_points_8_by_16(quant_grid_iq2_xs, pair_indices(low, high, m, 1, 0x01000100),
                          points + 4 * m);
    }
    apply_signs(points, even_signs(word), quants);
}

/* The scales of 16 columns of IQ2_XS and IQ2_S are two nibbles of a byte. */
LANES void iq2_scales(const uint8_t *tile, const uint8_t *scales, int sub, factor halves[2], vf *w)
{
    vi both = vi_load(scales + sub / 4 * TILE_VECTOR);

    halves[0] = factor_unsigned(odd_scales(both, 0), sub % 4);
    halves[1] = factor_unsigned(odd_scales(both, 4), sub % 4);
    *w = vf_mul(vf_load_halves(tile), vf_set1(0.125f));
}

LANES void iq2_xs_scales(const uint8_t *tile, int sub, factor halves[2], vf *w)
{
    iq2_scales(tile, tile + IQ2_XS_SCALES, sub, halves, w);
}

LANES void iq2_s_decode(const uint8_t *tile, int sub, group quants[8])
{
    const uint8_t *p = tile + IQ2_S_QUANTS + sub * IQ2_SUB;
    vi low = vi_load(p);
    vi high = vi_right_32(vi_load(tile + IQ2_S_HIGH + sub / 4 * TILE_VECTOR), 4 * (sub % 4));
    vi points[8];

    UNROLL for (int m = 0; m < 2; m++)
    {
        vi_points_8_by_16(quant_grid_iq2_s, pair_indices(low, high, m, 2, 0x03000300),
                          points + 4 * m);
    }
    apply_signs(points, vi_load(p + TILE_VECTOR), quants);
}

LANES void iq2_s_scales(const uint8_t *tile, int sub, factor halves[2], vf *w)
{
    iq2_scales(tile, tile + IQ2_S_SCALES, sub, halves, w);
}

/* All bits where bit n is set. */
LANES vi spread_bit(vi word, int n)
{
    return vi_sub(vi_set1(0), vi_and(vi_right_32(word, n), vi_set1(1)));
}

/* 8 columns of IQ1 from a point's nibbles. minus: all bits where an eighth is subtracted. */
LANES void iq1_values(vi nibbles, vi minus, group quants[2])
{
    vi n = vi_or(nibbles, vi_and(minus, vi_set1(0x44444444)));

    quants[0] = group_of(vi_look_up(quant_iq1_values, even_group(n)));
    quants[1] = group_of(vi_look_up(quant_iq1_values, odd_group(n)));
}

LANES void iq1_points(const uint8_t *quants, vi high, const int bits, vi points[4])
{
    vi low = vi_load(quants);

    UNROLL for (int m = 0; m < 2; m++)
    {
        vi_points_4_by_16(quant_grid_iq1(), pair_indices(low, high, m, bits, 0x07000700),
                          points + 2 * m);
    }
}

LANES vi iq1_high(const uint8_t *high, int sub)
{
    return vi_load(high + sub / 2 * TILE_VECTOR);
}

LANES void iq1_s_decode(const uint8_t *tile, int sub, group quants[8])
{
    vi word = iq1_high(tile + IQ1_S_HIGH, sub);
    vi minus = spread_bit(word, 15 + 16 * (sub % 2)), points[4];

    iq1_points(tile + IQ1_S_QUANTS + sub * TILE_VECTOR, vi_right_32(word, 6 * (sub % 2)), 3,
               points);
    UNROLL for (int k = 0; k < 4; k++) iq1_values(points[k], minus, quants + 2 * k);
}

LANES void iq1_s_scales(const uint8_t *tile, int sub, factor halves[2], vf *w)
{
    vi word = vi_right_32(iq1_high(tile + IQ1_S_HIGH, sub), 16 * (sub % 2));
    vi scale = vi_or(vi_and(vi_right_32(word, 11), vi_set1(0x0e)), vi_set1(1));

    (void)halves;
    *w = vf_mul(vf_mul(vf_load_halves(tile), vf_set1(0.125f)), vf_from_ints(scale));
}

/* Above the 3 upper bits of each index stands its minus sign. */
LANES void iq1_m_decode(const uint8_t *tile, int sub, group quants[8])
{
    vi word = vi_right_32(iq1_high(tile + IQ1_M_HIGH, sub), 8 * (sub % 2)), points[4];

    iq1_points(tile + IQ1_M_QUANTS + sub * TILE_VECTOR, word, 4, points);
    UNROLL for (int k = 0; k < 4; k++)
        iq1_values(points[k], spread_bit(word, 3 + 4 * (k / 2) + 16 * (k % 2)), quants + 2 * k);
}

/* The fourth 16 bits of scales stand in the upper bits of the other three. */
LANES vi iq1_m_four_scales(const uint8_t *p, int k)
{
    if (k < 3)
        return vi_load_shorts(p + k * TILE_HALVES);
    vi low = vi_right_32(vi_load_shorts(p), 12);
    vi middle = vi_right_32(vi_load_shorts(p + TILE_HALVES), 12);
    vi high = vi_right_32(vi_load_shorts(p + 2 * TILE_HALVES), 12);
    return vi_or(vi_or(low, vi_left_32(middle, 4)), vi_left_32(high, 8));
}

LANES void iq1_m_scales(const uint8_t *tile, int sub, factor halves[2], vf *w)
{
    vi two = vi_right_32(iq1_m_four_scales(tile + IQ1_M_SCALES, sub / 2), 6 * (sub % 2));
    vi first = vi_and(vi_left_32(two, 1), vi_set1(0x0e));
    vi second = vi_and(vi_left_32(two, 6), vi_set1(0x0e00));
    vi odd = vi_or(vi_or(first, second), vi_set1(0x0101));

    halves[0] = factor_unsigned(odd, 0);
    halves[1] = factor_unsigned(odd, 1);
    *w = vf_mul(vf_load_halves(tile), vf_set1(0.125f));
}

/* The integer sums of 16 columns from col, as floats. */
LANES vf groups_16(const group quants[4], factor half, const bool by_16, const struct views *v,
                   size_t col)
{
    factor f = by_16 ? half : factor_one();
    vi sum = group_start(v->minus_sum8[0] + col / 8);

    UNROLL for (int g = 0; g < 4; g += 2)
    {
        const int8_t *q = v->q[0] + col + 4 * (size_t)g;
        sum = group_add(sum, &quants[g], &quants[g + 1], activations_load(q),
                        activations_load(q + 4), f);
    }
    return group_float(sum, f, by_16);
}

/* Adds a tile's 256 columns for one token. by_16: the type has scales of 16 columns. */
LANES void decode_and_add(decode_function *decode, scales_function *scales, const bool by_16,
                          const uint8_t *tile, const struct views *v, size_t b, vf *acc)
{
    for (int sub = 0; sub < 8; sub++, b++) {
        group quants[8];
        factor halves[2] = {factor_one(), factor_one()};
        struct sums s;
        vf w;

        decode(tile, sub, quants);
        scales(tile, sub, halves, &w);
        s.i0[0] = groups_16(quants, halves[0], by_16, v, 32 * b);
        s.i1[0] = groups_16(quants + 4, halves[1], by_16, v, 32 * b + 16);
        add_products(acc, &s, w, v, b, 1);
    }
}

/* A tile of 256 columns, decoded. */
struct decoded {
    _Alignas(TILE_ALIGN) vi quants[8][8];
    factor halves[8][2];
    vf w[8];
};

/* narrow, halved: see group_store. */
LANES void decode_tile(decode_function *decode, scales_function *scales, const bool narrow,
                       const bool halved, const uint8_t *tile, struct decoded *d)
{
    for (int sub = 0; sub < 8; sub++) {
        group quants[8];

        d->halves[sub][0] = d->halves[sub][1] = factor_stored(halved);
        decode(tile, sub, quants);
        UNROLL for (int g = 0; g < 8; g++)
        {
            d->quants[sub][g] = group_store(&quants[g], narrow, halved);
        }
        scales(tile, sub, d->halves[sub], &d->w[sub]);
    }
}

/* The integer sums of 16 columns from col, as floats, to i[t]. */
LANES void stored_16(const vi quants[4], factor f, const bool by_16, const bool narrow,
                     const struct views *v, size_t col, const int T, vf *i)
{
    vi sum[TOKENS_MAX];

    EACH_TOKEN sum[t] =
        VIEW_START(v, t, col, T, stored_start(VIEW_MINUS_SUM8(v, t, col), f, narrow));
    UNROLL for (int g = 0; g < 4; g++)
    {
        EACH_TOKEN
        {
            vi q = view_q(v, t, col + 4 * (size_t)g, T);
            sum[t] = stored_add(sum[t], quants[g], q, f, narrow);
        }
    }
    EACH_TOKEN i[t] = stored_float(sum[t], f, by_16, narrow);
}

/* Adds the decoded columns for T tokens. */
LANES void add_decoded(const struct decoded *d, const bool by_16, const bool narrow,
                       const struct views *v, size_t b, const int T, vf *acc)
{
    for (int sub = 0; sub < 8; sub++, b++) {
        const factor *halves = d->halves[sub];
        struct sums s;

        stored_16(d->quants[sub], halves[0], by_16, narrow, v, 32 * b, T, s.i0);
        stored_16(d->quants[sub] + 4, halves[1], by_16, narrow, v, 32 * b + 16, T, s.i1);
        add_products(acc, &s, d->w[sub], v, b, T);
    }
}

#define IQ_TYPE(name, by_16, narrow, halved)                                                       \
    LANES void name##_tile(const uint8_t *tile, const struct views *v, size_t b, const int T,      \
                           vf *acc)                                                                \
    {                                                                                              \
        (void)T;                                                                                   \
        decode_and_add(name##_decode, name##_scales, by_16, tile, v, b, acc);                      \
    }                                                                                              \
    static void name##_decode_tile(const uint8_t *tile, struct decoded *d)                         \
    {                                                                                              \
        decode_tile(name##_decode, name##_scales, narrow, halved, tile, d);                        \
    }

IQ_TYPE(iq3_s, false, true, false)
IQ_TYPE(iq3_xxs, false, true, true)
IQ_TYPE(iq2_xxs, false, false, false)
IQ_TYPE(iq2_xs, true, false, false)
IQ_TYPE(iq2_s, true, false, false)
IQ_TYPE(iq1_s, false, true, false)
IQ_TYPE(iq1_m, true, true, false)
