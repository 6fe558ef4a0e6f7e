/* The integer products of a tile's vectors for AVX2 without VNNI. vpmaddubsw sums pairs of u8 x s8
 * products to 16 bits. The 16-bit sums of 16 columns are added before vpmaddwd widens and scales
 * them. Included by lanes_avx2.h; dots_32.h is its counterpart. */
#ifndef MOED_KERNELS_DOTS_16_H
#define MOED_KERNELS_DOTS_16_H

/* Sums of products of unsigned quants and activations of 16 columns (4 groups), in two 16-bit lanes
 * per row. Quants of 5 bits fit: 4 * 2 * 31 * 127 = 31496. Quants of 6 bits fit minus the offset of
 * 32, with which the sum begins: 4 * 2 * 32 * 127 = 32512. Intermediate wrap-around is harmless. */
typedef vi dots;

/* For quants with `offset` subtracted. minus_sum8: of the activations. */
LANES dots dots_start(const int16_t *minus_sum8, int offset)
{
    __m256i sums;

    if (offset == 0)
        return (dots){_mm256_setzero_si256(), _mm256_setzero_si256()};
    sums = _mm256_mullo_epi16(_mm256_set1_epi32((int32_t)load_u32(minus_sum8)),
                              _mm256_set1_epi16((int16_t)offset));
    return (dots){sums, sums};
}

LANES dots dots_add(dots sum, vi w, vi q)
{
    return in_order((dots){_mm256_add_epi16(sum.lo, _mm256_maddubs_epi16(w.lo, q.lo)),
                           _mm256_add_epi16(sum.hi, _mm256_maddubs_epi16(w.hi, q.hi))});
}

/* Byte j of each word as a signed factor of dots_scaled(), twice in 32 bits. The shuffle puts it in
 * the upper half of each 16 bits; the arithmetic shift extends its sign. */
typedef vi factor;

LANES factor factor_signed(vi words, int j)
{
    vi v = pick(words, (int32_t)(0x00800080u | (uint32_t)j * 0x01000100u));
    return (vi){_mm256_srai_epi16(v.lo, 8), _mm256_srai_epi16(v.hi, 8)};
}

/* The same for a byte below 128. */
LANES factor factor_unsigned(vi words, int j)
{
    return pick(words, (int32_t)(0x80008000u | (uint32_t)j * 0x00010001u));
}

/* The integer sum times the factor. */
LANES vf dots_scaled(dots sum, factor scale)
{
    return vf_from_ints(
        (vi){_mm256_madd_epi16(sum.lo, scale.lo), _mm256_madd_epi16(sum.hi, scale.hi)});
}

LANES vf dots_float(dots sum)
{
    return dots_scaled(sum, vi_set1(0x00010001));
}

/* Q8_0: |w| x sign(w) q, so that the first factor is unsigned; 2 * 128 * 127 fits 16 bits once. */
LANES vi q8_start(const int16_t *minus_sum8)
{
    (void)minus_sum8;
    return vi_set1(0);
}

LANES vi q8_unsigned(vi w)
{
    return (vi){_mm256_abs_epi8(w.lo), _mm256_abs_epi8(w.hi)};
}

LANES vi q8_add(vi isum, vi w_unsigned, vi w, vi q)
{
    __m256i one = _mm256_set1_epi16(1);
    __m256i lo = _mm256_maddubs_epi16(w_unsigned.lo, _mm256_sign_epi8(q.lo, w.lo));
    __m256i hi = _mm256_maddubs_epi16(w_unsigned.hi, _mm256_sign_epi8(q.hi, w.hi));
    return in_order((vi){_mm256_add_epi32(isum.lo, _mm256_madd_epi16(lo, one)),
                         _mm256_add_epi32(isum.hi, _mm256_madd_epi16(hi, one))});
}

/* A group of signed weights of at most 64: their magnitudes, and bytes with their signs. The sums
 * of 8 columns fit 16 bits: 4 * 64 * 127 = 32512. */
typedef struct {
    vi magnitude, sign;
} group;

LANES group group_of(vi weights)
{
    return (group){{_mm256_abs_epi8(weights.lo), _mm256_abs_epi8(weights.hi)}, weights};
}

/* The weights are negative where bit 7 - n of the same byte of `signs` is set. */
LANES group group_with_signs(vi magnitudes, vi signs, const int n)
{
    return (group){magnitudes, vi_or(vi_left_16(signs, n), vi_set1_byte(1))};
}

/* The factor of 16 columns multiplies within the sum; for other types it is factor_one. */
LANES factor factor_one(void)
{
    return vi_set1(0x00010001);
}

LANES vi group_start(const int16_t *minus_sum8)
{
    (void)minus_sum8;
    return vi_set1(0);
}

LANES __m256i signed_products(__m256i magnitude, __m256i sign, __m256i q)
{
    return _mm256_maddubs_epi16(magnitude, _mm256_sign_epi8(q, sign));
}

/* Adds the products of two groups. */
LANES vi group_add(vi sum, const group *a, const group *b, vi qa, vi qb, factor f)
{
    __m256i lo = _mm256_add_epi16(signed_products(a->magnitude.lo, a->sign.lo, qa.lo),
                                  signed_products(b->magnitude.lo, b->sign.lo, qb.lo));
    __m256i hi = _mm256_add_epi16(signed_products(a->magnitude.hi, a->sign.hi, qa.hi),
                                  signed_products(b->magnitude.hi, b->sign.hi, qb.hi));
    return (vi){_mm256_add_epi32(sum.lo, _mm256_madd_epi16(lo, f.lo)),
                _mm256_add_epi32(sum.hi, _mm256_madd_epi16(hi, f.hi))};
}

LANES vf group_float(vi sum, factor f, const bool by_16)
{
    (void)f;
    (void)by_16;
    return vf_from_ints(sum);
}

/* A group that several tokens multiply, as unsigned weights: plus 32 if all weights are `narrow`,
 * at most 32, so that sums of 16 columns fit 16 bits (see dots); else plus 64. `halved`: the
 * weights are even, and their halves are narrow. factor_stored is then the factor of their sums. */
LANES vi group_store(const group *g, const bool narrow, const bool halved)
{
    vi m = halved ? vi_right_16(g->magnitude, 1) : g->magnitude;
    vi w = {_mm256_sign_epi8(m.lo, g->sign.lo), _mm256_sign_epi8(m.hi, g->sign.hi)};

    return vi_sub_bytes(w, vi_set1_byte((uint8_t)(narrow ? -32 : -64)));
}

LANES factor factor_stored(const bool halved)
{
    return vi_set1(halved ? 0x00020002 : 0x00010001);
}

LANES vi stored_start(const int16_t *minus_sum8, factor f, const bool narrow)
{
    if (narrow)
        return dots_start(minus_sum8, 32);

    __m256i sums = _mm256_set1_epi32((int32_t)load_u32(minus_sum8));
    vi f64 = vi_left_16(f, 6); /* factors are below 32 */
    return (vi){_mm256_madd_epi16(sums, f64.lo), _mm256_madd_epi16(sums, f64.hi)};
}

LANES vi stored_add(vi sum, vi w, vi q, factor f, const bool narrow)
{
    if (narrow)
        return dots_add(sum, w, q);
    __m256i lo = _mm256_madd_epi16(_mm256_maddubs_epi16(w.lo, q.lo), f.lo);
    __m256i hi = _mm256_madd_epi16(_mm256_maddubs_epi16(w.hi, q.hi), f.hi);
    return in_order((vi){_mm256_add_epi32(sum.lo, lo), _mm256_add_epi32(sum.hi, hi)});
}

LANES vf stored_float(vi sum, factor f, const bool by_16, const bool narrow)
{
    (void)by_16;
    return narrow ? dots_scaled(sum, f) : vf_from_ints(sum);
}

#endif
