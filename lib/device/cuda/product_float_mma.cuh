/* Products of BF16 and F16 weights with the tokens of a group of a prompt, by tensor cores, for one
 * type T (tiles.cuh). The sums are float32, in the order of the columns, but not the definition's
 * bits (kernels/kernels.h), because
 *
 *   BF16   x is rounded to BF16, as the CPU's BF16 instruction has it
 *   F16    x is rounded to two BF16, which have 16 bits of it together; weights become two BF16
 *          without a loss, and the products of both lower parts are left out: FP16 has not x's
 *          range
 *
 * and because a matrix function adds in its own order. A token's results depend on its own values
 * only.
 *
 * A block of threads has ROWS rows and TOKENS tokens, each of its warps 32 by 32 of them. It goes
 * through 32 columns at a time:
 *
 *   weights   from device memory to registers, a stage ahead: a tile's rows are a matrix
 *             function's, and adjacent columns of a row lie together, or nearly so
 *   inputs    from device memory to registers, a stage ahead; rounded to shared memory, once for
 *             all rows */
#ifndef MOED_DEVICE_CUDA_PRODUCT_FLOAT_MMA_CUH
#define MOED_DEVICE_CUDA_PRODUCT_FLOAT_MMA_CUH

#include "device/cuda/product_mma.cuh"

/* How BF16 and F16 weights become BF16. TERMS: of a weight and of an input. A word has two adjacent
 * columns of a row, the first in its lower half. */
template <class T> struct float_mma_weights;

template <> struct float_mma_weights<tiles_bf16> {
    enum { TERMS = 1, RAW = 1 };

    /* col: even. */
    static __device__ __forceinline__ void read(const uint8_t *tiles, uint32_t col, uint32_t row,
                                                uint32_t raw[RAW])
    {
        raw[0] = tile_load_32(tiles + col / 2 * 64 + 4 * row);
    }

    static __device__ __forceinline__ void words(const uint32_t raw[RAW], uint32_t terms[TERMS])
    {
        terms[0] = raw[0];
    }
};

template <> struct float_mma_weights<tiles_f16> {
    enum { TERMS = 2, RAW = 2 };

    static __device__ __forceinline__ void read(const uint8_t *tiles, uint32_t col, uint32_t row,
                                                uint32_t raw[RAW])
    {
        raw[0] = tile_load_16(tiles + col * 32 + 2 * row);
        raw[1] = tile_load_16(tiles + (col + 1) * 32 + 2 * row);
    }

    /* The upper 8 bits of a value, and its other 3; exact. */
    static __device__ __forceinline__ void words(const uint32_t raw[RAW], uint32_t terms[TERMS])
    {
        terms[0] = terms[1] = 0;
#pragma unroll
        for (int i = 0; i < 2; i++) {
            float value = tile_half(raw[i]);
            uint32_t upper = (uint32_t)__float_as_int(value) & 0xffff0000u;
            float rest = value - __int_as_float((int)upper);
            terms[0] |= i == 0 ? upper >> 16 : upper;
            terms[1] |= i == 0 ? (uint32_t)__float_as_int(rest) >> 16
                               : (uint32_t)__float_as_int(rest) & 0xffff0000u;
        }
    }
};

/* A block of four warps, WIDTH of them along the tokens. */
template <class T, int WIDTH> struct float_mma_shape {
    enum {
        WARPS_ALONG = WIDTH,
        THREADS = 128,
        ROWS = 128 / WIDTH,
        TOKENS = 32 * WIDTH,
        COLUMNS = 32,         /* of a stage */
        VALUES = 8 * WIDTH,   /* of them that a thread reads, of one token */
        STRIDE = COLUMNS + 8, /* 8: so that 8 tokens' 16 bytes lie in different banks */
        TERMS = float_mma_weights<T>::TERMS,
    };
    typedef uint16_t inputs[TERMS][TOKENS][STRIDE];
    union shared {
        inputs x[2];
        float sums[TOKENS][ROWS + 4]; /* after the last stage; 4: other banks */
    };
    static_assert(sizeof(union shared) <= 48 << 10, "a block's shared memory");
};

/* A lane's weights of a stage. */
template <class T> struct float_mma_raw {
    uint32_t of[2][2][4][float_mma_weights<T>::RAW]; /* [columns by 16][rows by 16][word of A] */
};

/* What a thread has read of a stage. */
template <class T, int WIDTH> struct float_mma_reader {
    const float *x; /* of the next stage */
    float values[float_mma_shape<T, WIDTH>::VALUES];
    const uint8_t *tiles[2]; /* the lane's rows by 16 */
    struct float_mma_raw<T> raw;
};

/* Reads the stage that begins at column `col`. */
template <class T, int WIDTH>
static __device__ __forceinline__ void float_mma_read(struct float_mma_reader<T, WIDTH> &r,
                                                      uint32_t col, bool aligned)
{
    typedef float_mma_shape<T, WIDTH> S;
    uint32_t group = threadIdx.x % 32 / 4, place = threadIdx.x % 4;

#pragma unroll
    for (uint32_t i = 0; i < 16; i++)
        float_mma_weights<T>::read(tensor_in_device_memory(r.tiles[i / 4 % 2]),
                                   col + i / 8 * 16 + 2 * place + i % 4 / 2 * 8, group + i % 2 * 8,
                                   r.raw.of[i / 8][i / 4 % 2][i % 4]);
#pragma unroll
    for (uint32_t i = 0; i < S::VALUES; i += 4) {
        if (aligned) {
            float4 v = *(const float4 *)(r.x + i);
            r.values[i] = v.x;
            r.values[i + 1] = v.y;
            r.values[i + 2] = v.z;
            r.values[i + 3] = v.w;
        } else {
#pragma unroll
            for (uint32_t k = 0; k < 4; k++)
                r.values[i + k] = r.x[i + k];
        }
    }
    r.x += S::COLUMNS;
}

/* Rounds a thread's inputs of the stage to shared memory. */
template <class T, int WIDTH>
static __device__ __forceinline__ void float_mma_put(const struct float_mma_reader<T, WIDTH> &r,
                                                     typename float_mma_shape<T, WIDTH>::inputs &to)
{
    typedef float_mma_shape<T, WIDTH> S;
    const uint32_t threads = S::COLUMNS / S::VALUES; /* of a token */
    uint32_t token = threadIdx.x / threads, col = threadIdx.x % threads * S::VALUES;

#pragma unroll
    for (uint32_t i = 0; i < S::VALUES; i += 8) {
        float rest[8];
#pragma unroll
        for (uint32_t k = 0; k < 8; k++)
            rest[k] = r.values[i + k];
#pragma unroll
        for (uint32_t term = 0; term < S::TERMS; term++) {
            uint32_t words[4] = {};
#pragma unroll
            for (uint32_t k = 0; k < 8; k++) {
                uint32_t bits = cuda_float_to_bf16(rest[k]);
                rest[k] -= cuda_bf16_to_float(bits);
                words[k / 2] |= bits << 16 * (k % 2);
            }
            *(uint4 *)&to[term][token][col + i] =
                make_uint4(words[0], words[1], words[2], words[3]);
        }
    }
}

/* Adds the products of 16 columns, from `col` of the stage on. */
template <class T, int WIDTH>
static __device__ __forceinline__ void
float_mma_step(const uint32_t raw[2][4][float_mma_weights<T>::RAW],
               const typename float_mma_shape<T, WIDTH>::inputs &x, uint32_t col,
               const struct mma_lane &l, mma_sums sums)
{
    enum { TERMS = float_mma_weights<T>::TERMS };
    uint32_t a[2][TERMS][4];
    uint32_t lane = threadIdx.x % 32;
    uint32_t token = l.token - lane % 4 * 2 + lane / 16 * 8 + lane % 8, at = col + lane / 8 % 2 * 8;

#pragma unroll
    for (uint32_t i = 0; i < 8; i++) {
        uint32_t terms[TERMS];
        float_mma_weights<T>::words(raw[i / 4][i % 4], terms);
#pragma unroll
        for (uint32_t term = 0; term < TERMS; term++)
            a[i / 4][term][i % 4] = terms[term];
    }
#pragma unroll
    for (uint32_t pair = 0; pair < 2; pair++) {
        if (pair > 0 && !l.all)
            break;
        uint32_t b[TERMS][4]; /* [.][tokens by 8][columns by 8] */
#pragma unroll
        for (uint32_t term = 0; term < TERMS; term++)
            tensor_load_4(&x[term][token + pair * 16][at], b[term]);
#pragma unroll
        for (uint32_t i = 0; i < 4; i++) {
            float *to = sums[i / 2][2 * pair + i % 2];
            const uint32_t n = i % 2 * 2;
            tensor_multiply_bf16(a[i / 2][0], b[0][n], b[0][n + 1], to);
            if constexpr (TERMS == 2) {
                tensor_multiply_bf16(a[i / 2][0], b[1][n], b[1][n + 1], to);
                tensor_multiply_bf16(a[i / 2][1], b[0][n], b[0][n + 1], to);
            }
        }
    }
}

/* The rows of one part, for all columns, which are a multiple of 32. */
template <class T, int WIDTH>
static __device__ __forceinline__ void
float_mma_part(const struct product &p, const struct product_job &j, uint32_t part,
               uint32_t first_row, typename float_mma_shape<T, WIDTH>::shared &shared,
               mma_sums total)
{
    typedef float_mma_shape<T, WIDTH> S;
    const uint32_t threads = S::COLUMNS / S::VALUES;
    const struct mma_lane lane = mma_lane_of<WIDTH>(p.rows - first_row, j.n_tokens);
    const uint8_t *segment = product_part(p, j, part);
    uint32_t token = min(threadIdx.x / threads, j.n_tokens - 1); /* those after the last: no use */
    uint32_t row = j.tokens ? j.tokens[token] : j.row + part * j.part_rows + token;
    uint32_t stages = p.cols / S::COLUMNS, last_tile = (p.rows - 1) / TILE_ROWS;
    uint32_t tile = (first_row + threadIdx.x / 32 % (4 / WIDTH) * 32) / TILE_ROWS;
    struct float_mma_reader<T, WIDTH> reader = {
    };

    reader.x = p.x + j.x_shift + row * p.x_stride + threadIdx.x % threads * S::VALUES;
#pragma unroll
    for (uint32_t m = 0; m < 2; m++)
        reader.tiles[m] = segment + p.offset + min(tile + m, last_tile) * p.row_bytes;
    mma_set(total, 0);

    float_mma_read<T, WIDTH>(reader, 0, p.x_aligned);
    for (uint32_t stage = 0; stage < stages; stage++) {
        const struct float_mma_raw<T> now = reader.raw;

        float_mma_put<T, WIDTH>(reader, shared.x[stage % 2]);
        __syncthreads();
        if (stage + 1 < stages)
            float_mma_read<T, WIDTH>(reader, (stage + 1) * S::COLUMNS, p.x_aligned);
        if (!lane.some)
            continue;
#pragma unroll
        for (uint32_t k = 0; k < 2; k++)
            float_mma_step<T, WIDTH>(now.of[k], shared.x[stage % 2], k * 16, lane, total);
    }
    __syncthreads();
}

template <class T, int WIDTH>
static __global__ void __launch_bounds__(128, 3) product_float_mma_kernel(const struct product p)
{
#if TENSOR_CORE_BF16
    CUDA_SHARED(uint8_t, memory);
    typedef float_mma_shape<T, WIDTH> S;
    typename S::shared &shared = *(typename S::shared *)memory;
    uint32_t first_row = blockIdx.x % p.n_blocks * S::ROWS;
    const struct product_job j = product_job_of(p, blockIdx.x / p.n_blocks);

    if (j.n_tokens == 0 || (p.guard != NULL && *p.guard != 0))
        return; /* the whole block */
    for (uint32_t part = 0; part < j.n_parts; part++) {
        mma_sums total;
        float_mma_part<T, WIDTH>(p, j, part, first_row, shared, total);
        mma_finish<T, S>(p, j, part, first_row, shared, total);
    }
#endif
}

template <class T> static void product_float_mma_start(struct device_stream *s, struct product *p)
{
    p->x_aligned = product_rows_aligned(p);
    if (p->n_tokens <= PRODUCT_MMA_STEP)
        product_mma_launch<T, float_mma_shape<T, 1>, product_float_mma_kernel<T, 1>>(s, p);
    else
        product_mma_launch<T, float_mma_shape<T, 2>, product_float_mma_kernel<T, 2>>(s, p);
}

#endif
