/* Reading and multiply-adds at the machine's own speed; see yardsticks.h. */
#include "yardsticks.h"

#include <string.h>

/* The fastest way found: four streams, a quarter of the memory apart, because one stream leaves the
 * hardware's prefetchers idle at page borders; prefetches to the second-level cache well before the
 * load; 16-byte additions. */
typedef uint64_t lanes __attribute__((vector_size(16)));

uint64_t yardstick_read(const uint8_t *memory, size_t bytes)
{
    enum { STREAMS = 4, LINE = 64, AHEAD = 1024 };
    size_t part = bytes / STREAMS / LINE * LINE;
    lanes sums[STREAMS][2] = {{{0}}};

    for (size_t i = 0; i < part; i += LINE)
        for (size_t k = 0; k < STREAMS; k++) {
            const lanes *p = (const lanes *)(memory + k * part + i);
            __builtin_prefetch((const uint8_t *)p + AHEAD, 0, 2);
            sums[k][0] += p[0] + p[1];
            sums[k][1] += p[2] + p[3];
        }
    for (int k = 0; k < STREAMS; k++)
        sums[0][0] += sums[k][0] + sums[k][1];
    return sums[0][0][0];
}

#if defined(__x86_64__)
#include <immintrin.h>

/* CHAINS sums at a time hide the latency of an instruction (4 cycles, two a cycle) and leave
 * registers for its factors. The empty asm keeps the compiler from computing a sum at compile time.
 */
enum { CHAINS = 10, STEPS = 4000, AMX_STEPS = 1000 };

#define MULTIPLY_ADDS(name, features, type, zero, one, add, last)                                  \
    __attribute__((target(features))) static int name(void)                                        \
    {                                                                                              \
        type sums[CHAINS], a = one, b = one;                                                       \
        for (int i = 0; i < CHAINS; i++)                                                           \
            sums[i] = zero;                                                                        \
        for (int n = 0; n < STEPS; n++) {                                                          \
            __asm__ volatile("" : "+v"(a), "+v"(b));                                               \
            _Pragma("GCC unroll 10") for (int i = 0; i < CHAINS; i++) sums[i] = add;               \
        }                                                                                          \
        for (int i = 1; i < CHAINS; i++)                                                           \
            sums[0] = last;                                                                        \
        int first;                                                                                 \
        memcpy(&first, &sums[0], sizeof first);                                                    \
        return first;                                                                              \
    }

MULTIPLY_ADDS(fma_256, "avx2,fma", __m256, _mm256_setzero_ps(), _mm256_set1_ps(1),
              _mm256_fmadd_ps(a, b, sums[i]), _mm256_add_ps(sums[0], sums[i]))
MULTIPLY_ADDS(maddubs_256, "avx2", __m256i, _mm256_setzero_si256(), _mm256_set1_epi8(1),
              _mm256_add_epi16(sums[i], _mm256_maddubs_epi16(a, b)),
              _mm256_add_epi16(sums[0], sums[i]))
MULTIPLY_ADDS(dpbusd_256, "avx2,avxvnni", __m256i, _mm256_setzero_si256(), _mm256_set1_epi8(1),
              _mm256_dpbusd_avx_epi32(sums[i], a, b), _mm256_add_epi32(sums[0], sums[i]))
MULTIPLY_ADDS(fma_512, "avx512f", __m512, _mm512_setzero_ps(), _mm512_set1_ps(1),
              _mm512_fmadd_ps(a, b, sums[i]), _mm512_add_ps(sums[0], sums[i]))
MULTIPLY_ADDS(dpbusd_512, "avx512f,avx512bw,avx512vnni", __m512i, _mm512_setzero_si512(),
              _mm512_set1_epi8(1), _mm512_dpbusd_epi32(sums[i], a, b),
              _mm512_add_epi32(sums[0], sums[i]))

MULTIPLY_ADDS(dpbf16_512, "avx512f,avx512bf16", __m512, _mm512_setzero_ps(), _mm512_set1_ps(1),
              _mm512_dpbf16_ps(sums[i], (__m512bh)a, (__m512bh)b), _mm512_add_ps(sums[0], sums[i]))

/* Four sums hide the latency of an AMX product (52 cycles, one in 16). */
__attribute__((target("amx-tile,amx-bf16"))) static int tdpbf16ps(void)
{
    _Alignas(64) static const uint8_t shapes[64] = {
        1,         [16] = 64, [18] = 64, [20] = 64, [22] = 64, [24] = 64,
        [26] = 64,                                                  /* bytes of a row */
        [48] = 16, 16,        16,        16,        16,        16}; /* rows */
    _tile_loadconfig(shapes);
    for (int n = 0; n < AMX_STEPS; n++) {
        _tile_dpbf16ps(0, 4, 5);
        _tile_dpbf16ps(1, 4, 5);
        _tile_dpbf16ps(2, 4, 5);
        _tile_dpbf16ps(3, 4, 5);
    }
    _tile_release();
    return 0;
}

#define FLOP(values) (2.0 * CHAINS * STEPS * (values))
static const struct {
    const char *kernels;
    struct multiply_adds floats, quantised;
} peaks[] = {
    {"avx512", {"vfmadd", FLOP(16), fma_512}, {"vpdpbusd", FLOP(64), dpbusd_512}},
    {"avx2-vnni", {"vfmadd", FLOP(8), fma_256}, {"vpdpbusd", FLOP(32), dpbusd_256}},
    {"avx2", {"vfmadd", FLOP(8), fma_256}, {"vpmaddubsw, vpaddw", FLOP(32), maddubs_256}},
};

const struct multiply_adds *yardstick_multiply_adds(const char *kernels, bool quantised)
{
    for (size_t i = 0; i < sizeof peaks / sizeof peaks[0]; i++)
        if (strcmp(peaks[i].kernels, kernels) == 0)
            return quantised ? &peaks[i].quantised : &peaks[i].floats;
    return NULL;
}

const struct multiply_adds *yardstick_multiply_adds_bf16(const char *instruction)
{
    static const struct multiply_adds vector = {"vdpbf16ps", FLOP(32), dpbf16_512},
                                      amx = {"tdpbf16ps", 2.0 * 4 * AMX_STEPS * 16 * 16 * 32,
                                             tdpbf16ps};
    return strcmp(instruction, amx.instruction) == 0 ? &amx : &vector;
}
#else
const struct multiply_adds *yardstick_multiply_adds_bf16(const char *instruction)
{
    (void)instruction;
    return NULL;
}

const struct multiply_adds *yardstick_multiply_adds(const char *kernels, bool quantised)
{
    (void)kernels;
    (void)quantised;
    return NULL;
}
#endif
