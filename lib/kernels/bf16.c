/* The choice of a build; see bf16.h. */
#include "kernels/bf16.h"

#include "kernels/bf16_builds.h"
#include "kernels/builds.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <pthread.h>

static bool cpu_has_amx_bf16(void)
{
    unsigned a, b, c, d;
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (d & 1u << 22) != 0 && (d & 1u << 24) != 0;
}

static const struct bf16_build *here[3];

static void look(void)
{
    int n = 0;
    if (!__builtin_cpu_supports("avx512bf16"))
        return;
    if (cpu_has_amx_bf16() && bf16_amx_allowed())
        here[n++] = &bf16_amx;
    here[n] = &bf16_vector;
}

const struct bf16_build *const *bf16_available(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, look);
    return here;
}

const struct bf16_build *bf16_get(void)
{
    return kernels_get() == &kernels_avx512 ? bf16_available()[0] : NULL;
}

#else

const struct bf16_build *const *bf16_available(void)
{
    static const struct bf16_build *const none[1];
    return none;
}

const struct bf16_build *bf16_get(void)
{
    return NULL;
}

#endif
