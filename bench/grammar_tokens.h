/* What the benchmarks of grammars share: a model's vocabulary, a text cut into its tokens, and the
 * thread's time. A failure prints a line that begins with the program's name, and ends it. */
#ifndef MOED_BENCH_GRAMMAR_TOKENS_H
#define MOED_BENCH_GRAMMAR_TOKENS_H

#include "grammar/matcher.h"

#include <stdint.h>

/* Seconds of processor time of the calling thread. */
double bench_cpu_s(void);
_Noreturn void bench_die(const char *what);

/* The caller frees it. */
struct grammar_vocabulary *bench_vocabulary(const char *model_path);

/* The first tokens of the text, at most `max`, each the longest that fits; returns their number. */
uint32_t bench_cut(const struct grammar_vocabulary *v, const char *text, uint32_t *tokens,
                   uint32_t max);

#endif
