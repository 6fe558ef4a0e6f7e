/* bench-grammar [MODEL.gguf]: what structured output costs (lib/grammar): compiling a schema, a
 * vocabulary's trie, the check and advance of a sampled token, and the mask after a refusal.
 *
 * The answer is a valid document of a schema of ten properties, cut into the longest tokens of the
 * vocabulary. Vocabularies: the model's, and a synthetic one of 151,936 tokens: words of 1 to 12
 * letters, half of them with a leading space, numbers, punctuation, and the 256 bytes. The figures
 * are medians of ROUNDS. "cold" masks are the first ones of an answer in each place; "warm" masks
 * are those of the answer's last 64 tokens again, which the matcher has kept. */
#include "base/sort_doubles.h"
#include "bench/grammar_tokens.h"
#include "grammar/matcher.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROUNDS = 21, SYNTHETIC = 151936, TOKENS_MAX = 1024 };

static const char schema[] =
    "{\"type\":\"object\",\"properties\":{\"id\":{\"type\":\"integer\",\"minimum\":1},"
    "\"name\":{\"type\":\"string\",\"minLength\":1,\"maxLength\":60},"
    "\"email\":{\"type\":\"string\",\"format\":\"email\"},\"born\":{\"type\":\"string\",\"format\":"
    "\"date\"},\"active\":{\"type\":\"boolean\"},\"score\":{\"type\":\"number\",\"minimum\":0,"
    "\"maximum\":100},\"role\":{\"enum\":[\"admin\",\"editor\",\"reader\"]},\"tags\":{\"type\":"
    "\"array\",\"items\":{\"type\":\"string\"},\"maxItems\":8},\"address\":{\"type\":\"object\","
    "\"properties\":{\"street\":{\"type\":\"string\"},\"zip\":{\"type\":\"string\",\"pattern\":"
    "\"^[0-9]{5}$\"}},\"required\":[\"street\",\"zip\"],\"additionalProperties\":false},"
    "\"notes\":{\"type\":[\"string\",\"null\"]}},\"required\":[\"id\",\"name\",\"email\",\"born\","
    "\"active\",\"score\",\"role\",\"tags\",\"address\",\"notes\"],\"additionalProperties\":false}";

static const char document[] =
    "{\"id\": 4711, \"name\": \"Ada Lovelace the first\", \"email\": \"ada@example.org\", "
    "\"born\": \"1815-12-10\", \"active\": true, \"score\": 99.5, \"role\": \"editor\", "
    "\"tags\": [\"mathematics\", \"engines\", \"poetry and letters\"], \"address\": {\"street\": "
    "\"12 St James Square in the city of London\", \"zip\": \"10115\"}, \"notes\": \"She wrote the "
    "first program, and a long letter about what an engine could and could not do.\"}";

static double median(double *values, unsigned n)
{
    sort_doubles(values, n);
    return values[n / 2];
}

static struct grammar *compile(double *seconds)
{
    struct grammar *g;
    struct error e;
    double start = bench_cpu_s();
    if (grammar_compile(GRAMMAR_JSON_SCHEMA, schema, strlen(schema), NULL, &g, &e))
        bench_die(e.text);
    *seconds = bench_cpu_s() - start;
    return g;
}

static uint64_t random_state = 1;

static uint32_t below(uint32_t n)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((random_state >> 32) * n >> 32);
}

static struct grammar_vocabulary *synthetic(void)
{
    static const char marks[] = "{}[]\":,.-+\"\"  ";
    uint8_t(*texts)[16] = malloc(SYNTHETIC * sizeof *texts);
    const uint8_t **bytes = malloc(SYNTHETIC * sizeof *bytes);
    uint32_t *lengths = malloc(SYNTHETIC * sizeof *lengths);
    uint8_t *kinds = calloc(SYNTHETIC, 1);
    struct grammar_vocabulary *v;
    struct error e;
    if (!texts || !bytes || !lengths || !kinds)
        bench_die("out of memory");
    for (uint32_t i = 0; i < SYNTHETIC; i++) {
        uint32_t n = 0, kind = below(20), letters = 1 + below(12);
        bytes[i] = texts[i];
        if (i < 256) {
            texts[i][n++] = (uint8_t)i;
        } else {
            if (below(2))
                texts[i][n++] = ' ';
            for (uint32_t k = 0; k < (kind < 2 ? 1 + letters % 3 : letters); k++)
                texts[i][n++] = kind == 0   ? (uint8_t)('0' + below(10))
                                : kind == 1 ? (uint8_t)marks[below(sizeof marks - 1)]
                                            : (uint8_t)('a' + below(26));
        }
        lengths[i] = n;
    }
    kinds[SYNTHETIC - 1] = GRAMMAR_TOKEN_END;
    if (grammar_vocabulary_new(SYNTHETIC, bytes, lengths, kinds, &v, &e))
        bench_die(e.text);
    free(texts);
    free(bytes);
    free(lengths);
    free(kinds);
    return v;
}

static struct grammar_matcher *new_matcher(const struct grammar *g,
                                           const struct grammar_vocabulary *v)
{
    struct grammar_matcher *m;
    struct error e;
    if (grammar_matcher_new(g, v, NULL, &m, &e))
        bench_die(e.text);
    return m;
}

/* One answer, checked and advanced; with masks before each token. Seconds a token. */
static double check_answer(const struct grammar *g, const struct grammar_vocabulary *v,
                           const uint32_t *tokens, uint32_t n)
{
    double start = bench_cpu_s();
    struct grammar_matcher *m = new_matcher(g, v);
    for (uint32_t i = 0; i < n; i++)
        if (!grammar_matcher_accepts(m, tokens[i]) || !grammar_matcher_advance(m, tokens[i]))
            bench_die("the document is refused");
    grammar_matcher_free(m);
    return (bench_cpu_s() - start) / n;
}

struct mask_times {
    double cold, cold_longest, warm, warm_longest;
};

static double mask_answer(struct grammar_matcher *m, const uint32_t *tokens, uint32_t n,
                          uint32_t *mask, double *longest)
{
    double sum = 0;
    *longest = 0;
    for (uint32_t i = 0; i < n; i++) {
        double start = bench_cpu_s();
        if (!grammar_matcher_mask(m, mask))
            bench_die("no mask");
        double took = bench_cpu_s() - start;
        sum += took;
        *longest = took > *longest ? took : *longest;
        if (!grammar_matcher_advance(m, tokens[i]))
            bench_die("the document is refused");
    }
    return sum / n;
}

static struct mask_times masks(const struct grammar *g, const struct grammar_vocabulary *v,
                               const uint32_t *tokens, uint32_t n)
{
    struct mask_times t;
    uint32_t *mask = malloc(grammar_mask_words(v->n_tokens) * sizeof *mask);
    struct grammar_matcher *m = new_matcher(g, v);
    t.cold = mask_answer(m, tokens, n, mask, &t.cold_longest);
    for (uint32_t left = n < GRAMMAR_ROLLBACK ? n : GRAMMAR_ROLLBACK; left > 0; left = 0)
        if (!grammar_matcher_rollback(m, left))
            bench_die("rollback");
    uint32_t again = n < GRAMMAR_ROLLBACK ? n : GRAMMAR_ROLLBACK;
    t.warm = mask_answer(m, tokens + n - again, again, mask, &t.warm_longest);
    grammar_matcher_free(m);
    free(mask);
    return t;
}

static void measure(const char *name, const struct grammar *g, const struct grammar_vocabulary *v)
{
    static uint32_t tokens[TOKENS_MAX];
    double check[ROUNDS], cold[ROUNDS], cold_longest[ROUNDS], warm[ROUNDS], warm_longest[ROUNDS];
    uint32_t n = bench_cut(v, document, tokens, TOKENS_MAX);
    for (unsigned i = 0; i < ROUNDS; i++) {
        check[i] = check_answer(g, v, tokens, n);
        struct mask_times t = masks(g, v, tokens, n);
        cold[i] = t.cold;
        cold_longest[i] = t.cold_longest;
        warm[i] = t.warm;
        warm_longest[i] = t.warm_longest;
    }
    printf("%-10s %7u tokens, %7u nodes; answer of %u tokens\n", name, v->n_tokens, v->n_nodes, n);
    printf("  check and advance, with the matcher   %9.2f us a token\n",
           median(check, ROUNDS) * 1e6);
    printf("  mask, cold                            %9.1f us, longest %9.1f us\n",
           median(cold, ROUNDS) * 1e6, median(cold_longest, ROUNDS) * 1e6);
    printf("  mask, warm                            %9.1f us, longest %9.1f us\n",
           median(warm, ROUNDS) * 1e6, median(warm_longest, ROUNDS) * 1e6);
}

int main(int argc, char **argv)
{
    double seconds[ROUNDS];
    struct grammar *g = NULL;
    for (unsigned i = 0; i < ROUNDS; i++) {
        grammar_free(g);
        g = compile(&seconds[i]);
    }
    printf("schema of ten properties: %.2f ms to compile, %u states\n",
           median(seconds, ROUNDS) * 1e3, grammar_states(g));
    double start = bench_cpu_s();
    struct grammar_vocabulary *large = synthetic();
    printf("trie of %u tokens: %.0f ms\n", SYNTHETIC, (bench_cpu_s() - start) * 1e3);
    if (argc > 1) {
        struct grammar_vocabulary *v = bench_vocabulary(argv[1]);
        measure("model", g, v);
        grammar_vocabulary_free(v);
    }
    measure("synthetic", g, large);
    grammar_vocabulary_free(large);
    grammar_free(g);
    return 0;
}
