/* See grammar_tokens.h. */
#include "bench/grammar_tokens.h"

#include "gguf/gguf.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

double bench_cpu_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

void bench_die(const char *what)
{
    fprintf(stderr, "%s: %s\n", program_invocation_short_name, what);
    exit(1);
}

struct grammar_vocabulary *bench_vocabulary(const char *model_path)
{
    struct gguf *file;
    struct tokenizer *t;
    struct grammar_vocabulary *v;
    struct error e;
    if (gguf_open(model_path, &file, &e) || tokenizer_new(file, NULL, &t, &e) ||
        grammar_vocabulary_from_tokenizer(t, &v, &e))
        bench_die(e.text);
    tokenizer_free(t);
    gguf_close(file);
    return v;
}

uint32_t bench_cut(const struct grammar_vocabulary *v, const char *text, uint32_t *tokens,
                   uint32_t max)
{
    uint32_t n = 0;
    for (const char *at = text; *at && n < max;) {
        uint32_t best = GRAMMAR_NO_TOKEN;
        for (uint32_t i = 0; i < v->n_tokens; i++) {
            const struct grammar_token *t = &v->tokens[i];
            if (t->kind == GRAMMAR_TOKEN_TEXT && t->length > 0 &&
                (best == GRAMMAR_NO_TOKEN || t->length > v->tokens[best].length) &&
                strncmp((const char *)v->bytes + t->offset, at, t->length) == 0)
                best = i;
        }
        if (best == GRAMMAR_NO_TOKEN)
            bench_die("the vocabulary lacks a byte");
        tokens[n++] = best;
        at += v->tokens[best].length;
    }
    return n;
}
