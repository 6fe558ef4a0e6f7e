/* The integer products of a tile's vectors with 32-bit sums: for builds with vpdpbusd. The lanes'
 * file includes this one after add_dots() and with_signs(). dots_16.h is its counterpart. */
#ifndef MOED_KERNELS_DOTS_32_H
#define MOED_KERNELS_DOTS_32_H

/* Sums of products of unsigned quants and activations of 16 columns, 32 bits per row. */
typedef vi dots;

/* For quants with `offset` subtracted. minus_sum8: of the activations. The multiplication is
 * scalar, because vpdpbusd occupies the vector multipliers. */
LANES dots dots_start(const int16_t *minus_sum8, int offset)
{
    return vi_set1(offset == 0 ? 0 : (minus_sum8[0] + minus_sum8[1]) * offset);
}

LANES dots dots_add(dots sum, vi w, vi q)
{
    return add_dots(sum, w, q);
}

LANES vf dots_float(dots sum)
{
    return vf_from_ints(sum);
}

/* Byte j of each word as a signed factor of dots_scaled(). */
typedef vf factor;

LANES factor factor_signed(vi words, int j)
{
    return vf_from_ints(vi_signed_right_24(pick(words, 0x00808080 | j << 24)));
}

/* The same for a byte below 128. */
LANES factor factor_unsigned(vi words, int j)
{
    return byte_float(words, j);
}

/* The integer sum times the factor, exact in float32 (24 bits). Adding 0 turns a product of -0 into
 * the integer's 0. */
LANES vf dots_scaled(dots sum, factor scale)
{
    return vf_fma(vf_from_ints(sum), scale, vf_set1(0));
}

/* Q8_0: w + 128 is unsigned. */
LANES vi q8_start(const int16_t *minus_sum8)
{
    return dots_start(minus_sum8, 128);
}

LANES vi q8_unsigned(vi w)
{
    return vi_xor(w, vi_set1_byte(0x80));
}

LANES vi q8_add(vi isum, vi w_unsigned, vi w, vi q)
{
    (void)w;
    return add_dots(isum, w_unsigned, q);
}

/* A group of signed weights: plus 128, as q8_unsigned. */
typedef struct {
    vi plus_128;
} group;

LANES group group_of(vi weights)
{
    return (group){q8_unsigned(weights)};
}

/* The weights are negative where bit 7 - n of the same byte of `signs` is set. */
LANES group group_with_signs(vi magnitudes, vi signs, const int n)
{
    return group_of(with_signs(magnitudes, signs, n));
}

/* The factor of 16 columns multiplies their sum; other types ignore it. */
LANES factor factor_one(void)
{
    return vf_set1(1);
}

LANES vi group_start(const int16_t *minus_sum8)
{
    return q8_start(minus_sum8);
}

/* Adds the products of two groups. */
LANES vi group_add(vi sum, const group *a, const group *b, vi qa, vi qb, factor f)
{
    (void)f;
    return add_dots(add_dots(sum, a->plus_128, qa), b->plus_128, qb);
}

LANES vf group_float(vi sum, factor f, const bool by_16)
{
    return by_16 ? dots_scaled(sum, f) : vf_from_ints(sum);
}

/* A group that several tokens multiply. 32 bits have space for any weights: none is halved. */
LANES vi group_store(const group *g, const bool narrow, const bool halved)
{
    (void)narrow;
    (void)halved;
    return g->plus_128;
}

LANES factor factor_stored(const bool halved)
{
    (void)halved;
    return factor_one();
}

LANES vi stored_start(const int16_t *minus_sum8, factor f, const bool narrow)
{
    (void)f;
    (void)narrow;
    return q8_start(minus_sum8);
}

LANES vi stored_add(vi sum, vi w, vi q, factor f, const bool narrow)
{
    (void)f;
    (void)narrow;
    return add_dots(sum, w, q);
}

LANES vf stored_float(vi sum, factor f, const bool by_16, const bool narrow)
{
    (void)narrow;
    return group_float(sum, f, by_16);
}

#endif
