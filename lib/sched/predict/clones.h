/* Builds one function for several instruction sets, of which the loader chooses: a gcc extension,
 * on x86-64. Without contraction (-ffp-contract=off, cmake/module.cmake) and with sums in a fixed
 * order all of them give the same bits. */
#ifndef MOED_SCHED_PREDICT_CLONES_H
#define MOED_SCHED_PREDICT_CLONES_H

/* Not with a sanitizer: the loader calls the resolver before the sanitizer is ready. */
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) &&                             \
    !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define CLONES
#endif

#endif
