/* bench-sampler: what choosing a token of one row of logits costs (worker/sampler.h), beside reading the row once.
 *
 * Rows of two kinds: "peaked", as of a trained model (the token of rank r has r^-1.5 of the first one's probability, in
 * random places), and "wide", normally distributed with a deviation of 3, so that thousands of tokens matter. Settings and
 * rows take turns; the figures are medians.
 */
#include "base/clock.h"
#include "base/sort_doubles.h"
#include "worker/sampler.h"
#include "yardsticks.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = 8, ROUNDS = 25, SAMPLES = ROWS * ROUNDS, MAX_VOCAB = 200000 };

static const struct setting {
    const char *name;
    struct sampling sampling;
} settings[] = {
    {"greedy", {.temperature = 0, .top_p = 1, .repetition_penalty = 1}},
    {"temp 0.8", {.temperature = 0.8f, .top_p = 1, .repetition_penalty = 1}},
    {"top_p 0.95", {.temperature = 0.8f, .top_p = 0.95f, .repetition_penalty = 1}},
    {"min_p 0.05", {.temperature = 0.8f, .top_p = 1, .min_p = 0.05f, .repetition_penalty = 1}},
    {"top_k 40", {.temperature = 0.8f, .top_k = 40, .top_p = 1, .repetition_penalty = 1}},
};
enum { N_SETTINGS = sizeof settings / sizeof settings[0] };

static uint64_t state = 1;

/* Within (0, 1). */
static double uniform(void)
{
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    return ((double)(state >> 11) + 0.5) * 0x1p-53;
}

static void fill(float *logits, uint32_t n, bool peaked)
{
    for (uint32_t i = 0; i < n; i++)
        logits[i] = (float)(peaked ? -1.5 * log(i + 1)
                                   : 3 * sqrt(-2 * log(uniform())) * cos(2 * M_PI * uniform()));
    for (uint32_t i = n - 1; peaked && i > 0; i--) {
        uint32_t other = (uint32_t)(uniform() * (i + 1));
        float t = logits[i];
        logits[i] = logits[other];
        logits[other] = t;
    }
}

static double median(double *values)
{
    sort_doubles(values, SAMPLES);
    return values[SAMPLES / 2];
}

static volatile uint64_t sink;

static void measure(uint32_t vocab, bool peaked, float *rows, float *copy)
{
    static double us[N_SETTINGS + 1][SAMPLES];
    struct sampler *s = sampler_new(vocab);
    uint64_t random = sampler_seed(1);
    if (!s)
        abort();
    for (uint32_t row = 0; row < ROWS; row++)
        fill(rows + (size_t)row * vocab, vocab, peaked);
    for (uint32_t sample = 0; sample < SAMPLES; sample++)
        for (uint32_t k = 0; k <= N_SETTINGS; k++) {
            memcpy(copy, rows + (size_t)(sample % ROWS) * vocab, vocab * sizeof *copy); /* as the output head leaves it */
            double start = clock_s();
            if (k == N_SETTINGS)
                sink = yardstick_read((const uint8_t *)copy, vocab * sizeof *copy / 256 * 256);
            else
                sink = sampler_pick(s, &settings[k].sampling, &random, copy, NULL, 0);
            us[k][sample] = (clock_s() - start) * 1e6;
        }
    double read = median(us[N_SETTINGS]);
    for (uint32_t k = 0; k < N_SETTINGS; k++) {
        double m = median(us[k]);
        printf("%7u  %-6s  %-11s %9.1f us  %6.1f x\n", vocab, peaked ? "peaked" : "wide", settings[k].name, m, m / read);
    }
    printf("%7u  %-6s  %-11s %9.1f us\n", vocab, peaked ? "peaked" : "wide", "read", read);
    sampler_free(s);
}

int main(void)
{
    static const uint32_t vocabs[] = {50304, 151936};
    float *rows = malloc((size_t)(ROWS + 1) * MAX_VOCAB * sizeof *rows);
    if (!rows)
        return 1;
    printf("  vocab  row     settings         a token  of reading the row\n");
    for (size_t v = 0; v < sizeof vocabs / sizeof vocabs[0]; v++)
        for (int peaked = 1; peaked >= 0; peaked--)
            measure(vocabs[v], peaked, rows, rows + (size_t)ROWS * MAX_VOCAB);
    free(rows);
    return 0;
}
