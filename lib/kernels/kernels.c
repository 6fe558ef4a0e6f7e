/* The choice of a build, and what all builds share: the layout of the activations, and rope. */
#include "kernels/kernels.h"

#include "base/checked.h"
#include "base/log.h"
#include "kernels/builds.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

size_t act_bytes(uint32_t cols, uint32_t n_tokens)
{
    size_t per_block = 2 * sizeof(float) + sizeof(float) + 4 * sizeof(int16_t);
    size_t per_token = act_q_stride(cols) + act_blocks(cols) * per_block;

    return round_up(per_token * n_tokens, TILE_ALIGN);
}

void act_bind(struct activations *a, void *memory, uint32_t cols, uint32_t n_tokens, const float *x,
              size_t x_stride)
{
    uint8_t *next = memory;

    /* All arrays are aligned: 64 bytes are a multiple of each element's size. */
    *a = (struct activations){.n_tokens = n_tokens, .cols = cols, .x = x, .x_stride = x_stride};
    a->q = (int8_t *)next;
    next += act_q_stride(cols) * n_tokens;
    a->d = (float *)next;
    next += 2 * sizeof(float) * act_blocks(cols) * n_tokens;
    a->bias = (float *)next;
    next += sizeof(float) * act_blocks(cols) * n_tokens;
    a->minus_sum8 = (int16_t *)next;
}

bool kernels_lacking_text(bool avx2, bool fma, bool f16c, char out[KERNELS_LACKING_BYTES])
{
    const char *names[3];
    int n = 0;

    if (!avx2)
        names[n++] = "AVX2";
    if (!fma)
        names[n++] = "FMA";
    if (!f16c)
        names[n++] = "F16C";
    snprintf(
        out, KERNELS_LACKING_BYTES,
        "this CPU (or virtual machine) lacks %s%s%s%s%s: it computes %s times slower than with "
        "them (give a virtual machine the host's CPU model)",
        n > 0 ? names[0] : "", n == 3 ? ", " : "", n == 3 ? names[1] : "", n > 1 ? " and " : "",
        n > 1 ? names[n - 1] : "", fma ? "10 to 80" : "45 to 900"); /* bench/results/kernels.md */
    return n > 0;
}

bool kernels_lacking(char out[KERNELS_LACKING_BYTES])
{
#if defined(__x86_64__)
    unsigned a, b, c, d;
    bool f16c = __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C) != 0;

    return kernels_lacking_text(__builtin_cpu_supports("avx2"), __builtin_cpu_supports("fma"), f16c,
                                out);
#else
    (void)out;
    return false;
#endif
}

static bool cpu_has_avx2(void)
{
#if defined(__x86_64__)
    char lacking[KERNELS_LACKING_BYTES];

    return !kernels_lacking(lacking);
#else
    return false;
#endif
}

static bool cpu_has_avx512(void)
{
#if defined(__x86_64__)
    return cpu_has_avx2() && __builtin_cpu_supports("avx512f") &&
           __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vnni");
#else
    return false;
#endif
}

static bool cpu_has_avx2_vnni(void)
{
#if defined(__x86_64__)
    unsigned a, b, c, d;

    return cpu_has_avx2() && __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a & 1u << 4) != 0;
#else
    return false;
#endif
}

static bool cpu_has_any(void)
{
    return true;
}

/* Best first. */
static const struct build {
    const struct kernels *kernels;
    bool (*runs_here)(void);
} builds[] = {
#if defined(__x86_64__)
    {&kernels_avx512, cpu_has_avx512},
    {&kernels_avx2_vnni, cpu_has_avx2_vnni},
    {&kernels_avx2, cpu_has_avx2},
#endif
    {&kernels_portable, cpu_has_any},
};
enum { N_BUILDS = sizeof builds / sizeof builds[0] };

/* Several threads may make the first call; all choose the same build. */
static const struct kernels *_Atomic chosen;

bool kernels_select(const char *name)
{
    for (int i = 0; i < N_BUILDS; i++) {
        if (strcmp(name, "auto") != 0 && strcmp(name, builds[i].kernels->name) != 0)
            continue;
        if (!builds[i].runs_here())
            continue;
        atomic_store_explicit(&chosen, builds[i].kernels, memory_order_relaxed);
        return true;
    }
    return false;
}

const struct kernels *kernels_get(void)
{
    const struct kernels *k = atomic_load_explicit(&chosen, memory_order_relaxed);

    if (k != NULL)
        return k;
    kernels_select("auto"); /* always succeeds: the portable build runs anywhere */
    return atomic_load_explicit(&chosen, memory_order_relaxed);
}

void kernels_log(void)
{
    char lacking[KERNELS_LACKING_BYTES];

    log_info("%s kernels", kernels_get()->name);
    if (kernels_lacking(lacking))
        log_warn("%s", lacking);
}

float kernels_exp(float x)
{
    return kernels_get()->exponential(x);
}

const char *const *kernels_available(void)
{
    static const char *names[N_BUILDS + 1];
    int n = 0;

    /* Every caller writes the same values. A first call before threads start avoids the race. */
    for (int i = 0; i < N_BUILDS; i++)
        if (builds[i].runs_here())
            names[n++] = builds[i].kernels->name;
    names[n] = NULL;
    return names;
}

void rope_apply(float *head, uint32_t rope_dims, const float *cos_sin, bool neox)
{
    uint32_t half = rope_dims / 2;
    const float *cosines = cos_sin, *sines = cos_sin + half;

    if (neox) {
        kernels_get()->rotate(head, head + half, cosines, sines, half);
        return;
    }
    for (uint32_t i = 0; i < half; i++) {
        float a = head[2 * i], b = head[2 * i + 1];

        head[2 * i] = a * cosines[i] - b * sines[i];
        head[2 * i + 1] = a * sines[i] + b * cosines[i];
    }
}
