/* The activations of the few tokens that a product takes at a time. Included by multiply.inc.c.
 *
 * Each token's activations are in four arrays. TOKENS_MAX tokens have more addresses than there are
 * registers: each operand would cost a load of its address, and a loop with vpdpbusd would be bound
 * by its number of instructions. So the builds with it (MOED_PACKS_VIEWS) pack TOKENS_MAX tokens
 * first: a block has all that 32 columns need, and one register addresses it. Fewer tokens are read
 * from the arrays. */

/* 32 columns of PACKED_TOKENS tokens. */
enum { PACKED_TOKENS = TOKENS_MAX };
struct packed_block {
    int8_t q[PACKED_TOKENS][32];
    float d[PACKED_TOKENS][2];
    int32_t start[PACKED_TOKENS][2]; /* minus the sum of 16 q, times the type's offset */
    float bias[PACKED_TOKENS];
};

/* Up to TOKENS_MAX tokens. Of those that are packed only `packed` is used. */
struct views {
    const struct packed_block *packed;
    const int8_t *q[TOKENS_MAX];
    const float *d[TOKENS_MAX];
    const float *bias[TOKENS_MAX];
    const int16_t *minus_sum8[TOKENS_MAX];
    const float *x[TOKENS_MAX];
};

#define IS_PACKED(T) (MOED_PACKS_VIEWS && (T) == PACKED_TOKENS)

/* 4 values of q of token t, from column col, in each word. */
LANES vi view_q(const struct views *v, int t, size_t col, const int T)
{
    return activations_load(IS_PACKED(T) ? &v->packed[col / 32].q[t][col % 32] : v->q[t] + col);
}

/* The scale of 16 columns from col. */
LANES vf view_d(const struct views *v, int t, size_t col, const int T)
{
    return vf_set1(IS_PACKED(T) ? v->packed[col / 32].d[t][col / 16 % 2] : v->d[t][col / 16]);
}

/* The bias of block b of 32 columns. */
LANES vf view_bias(const struct views *v, int t, size_t b, const int T)
{
    return vf_set1(IS_PACKED(T) ? v->packed[b].bias[t] : v->bias[t][b]);
}

/* VIEW_START(v, t, col, T, unpacked): what the integer sum of 16 columns from col begins with. */
#define VIEW_MINUS_SUM8(v, t, col) ((v)->minus_sum8[t] + (col) / 8)
#define VIEW_START(v, t, col, T, unpacked)                                                         \
    (IS_PACKED(T) ? vi_set1((v)->packed[(col) / 32].start[t][(col) / 16 % 2]) : (unpacked))

/* `count` tokens from `first` on, of which only n_there are there: after them the last one again.
 */
static void views_of(const struct activations *a, const uint32_t *tokens, uint32_t first,
                     uint32_t count, uint32_t n_there, struct views *v)
{
    size_t blocks = act_blocks(a->cols);

    for (uint32_t i = 0; i < count; i++) {
        size_t token = act_token(tokens, first + (i < n_there ? i : n_there - 1));

        v->q[i] = a->q + token * act_q_stride(a->cols);
        v->d[i] = a->d + token * 2 * blocks;
        v->bias[i] = a->bias + token * blocks;
        v->minus_sum8[i] = a->minus_sum8 + token * 4 * blocks;
        v->x[i] = a->x + token * a->x_stride;
    }
}

/* What each tile function subtracts from its type's quants, as it passes it to dots_start() or
 * q8_start(); 1 for Q2_K, whose minima are multiplied by the sums. 0: the sums begin with 0. */
static int offset_of(enum tensor_type type)
{
    switch (type) {
    case TENSOR_Q4_1:
    case TENSOR_Q5_1:
    case TENSOR_Q4_K:
    case TENSOR_Q5_K:
        return 0;
    case TENSOR_Q2_K:
        return 1;
    case TENSOR_Q3_K:
        return 4;
    case TENSOR_Q4_0:
        return 8;
    case TENSOR_MXFP4:
    case TENSOR_NVFP4:
        return 12;
    case TENSOR_Q5_0:
        return 16;
    case TENSOR_Q6_K:
        return 32;
    default:
        return 128;
    }
}

/* Packs the PACKED_TOKENS tokens of v. */
static void pack_views(struct views *v, uint32_t blocks, enum tensor_type type,
                       struct packed_block *packed)
{
    int offset = offset_of(type);

    v->packed = packed;
    for (uint32_t b = 0; b < blocks; b++, packed++)
        for (int t = 0; t < PACKED_TOKENS; t++) {
            const int16_t *minus_sum8 = v->minus_sum8[t] + 4 * b;

            memcpy(packed->q[t], v->q[t] + 32 * b, 32);
            memcpy(packed->d[t], v->d[t] + 2 * b, sizeof packed->d[t]);
            packed->start[t][0] = (minus_sum8[0] + minus_sum8[1]) * offset;
            packed->start[t][1] = (minus_sum8[2] + minus_sum8[3]) * offset;
            packed->bias[t] = v->bias[t][b];
        }
}
