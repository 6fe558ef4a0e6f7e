/* bench-sampler: the time of choosing a token from one row of logits (worker/sample/sampler.h),
 * compared with reading the row once.
 *
 * Rows of two kinds: "peaked", as a trained model's (the token of rank r has r^-1.5 times the
 * probability of the first, in random places), and "wide", normally distributed with a deviation of
 * 3, so that thousands of tokens matter. Settings and rows take turns; the figures are medians.
 */
#include "base/clock.h"
#include "base/sort_doubles.h"
#include "worker/sample/logprob.h"
#include "worker/sample/sampler.h"
#include "yardsticks.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = 8, ROUNDS = 25, SAMPLES = ROWS * ROUNDS, MAX_VOCAB = 200000 };

enum { HISTORY = 4096 };

static struct setting {
    const char *name;
    struct sampling sampling;
    bool largest; /* from the device's 256 largest */
    bool logprob; /* nothing is chosen: the sum that log-probabilities need */
} settings[16];
static uint32_t n_settings;

static struct sampling *add(const char *name)
{
    struct setting *s = &settings[n_settings++];
    *s = (struct setting){name, sampling_neutral(), false, false};
    s->sampling.temperature = 0.8f;
    return &s->sampling;
}

static void set_usual(struct sampling *s)
{
    s->top_k = 40, s->top_p = 0.95f, s->min_p = 0.05f;
}

static void make_settings(void)
{
    add("greedy")->temperature = 0;
    add("temp 0.8");
    add("top_p 0.95")->top_p = 0.95f;
    add("min_p 0.05")->min_p = 0.05f;
    add("top_k 40")->top_k = 40;
    set_usual(add("usual"));
    set_usual(add("usual, of 256"));
    settings[n_settings - 1].largest = true;
    struct sampling *s = add("+ penalties");
    set_usual(s);
    s->repetition_penalty = 1.1f, s->presence_penalty = s->frequency_penalty = 0.1f;
    s = add("+ DRY");
    set_usual(s);
    s->dry_multiplier = 0.8f;
    add("typical 0.9")->typical_p = 0.9f;
    add("top_n_sigma 1")->top_n_sigma = 1;
    s = add("XTC");
    s->xtc_probability = 1;
    add("dynamic temp")->dynamic_temperature = 0.5f;
    add("mirostat 2")->mirostat = 2;
    add("logprob_norm");
    settings[n_settings - 1].logprob = true;
}

static uint64_t state = 1;

/* In (0, 1). */
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

/* The largest of a row, in their order, by insertion. */
static void find_largest(const float *row, uint32_t vocab, float *values, uint32_t *tokens)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < vocab; i++) {
        if (n == SAMPLER_LARGEST && !(row[i] > values[n - 1]))
            continue;
        uint32_t at = n < SAMPLER_LARGEST ? n++ : n - 1;
        for (; at > 0 && values[at - 1] < row[i]; at--) {
            values[at] = values[at - 1];
            tokens[at] = tokens[at - 1];
        }
        values[at] = row[i];
        tokens[at] = i;
    }
}

static uint32_t choose(struct sampler *s, uint32_t vocab, uint32_t k,
                       const struct sampler_turn *turn, float *row, const float *largest,
                       const uint32_t *tokens)
{
    const struct sampling *sampling = &settings[k].sampling;
    if (settings[k].logprob)
        return (uint32_t)logprob_norm(row, vocab);
    return settings[k].largest
               ? sampler_pick_largest(s, sampling, turn, largest, tokens, SAMPLER_LARGEST)
               : sampler_pick(s, sampling, turn, row);
}

static void measure(uint32_t vocab, bool peaked, float *rows, float *copy)
{
    static double us[16 + 1][SAMPLES];
    struct sampler *s = sampler_new(vocab, HISTORY);
    static float largest[SAMPLER_LARGEST];
    static uint32_t tokens[SAMPLER_LARGEST], history[HISTORY];
    float mu = 10;
    if (!s)
        abort();
    for (uint32_t i = 0; i < HISTORY; i++) /* a text with repetitions */
        history[i] = (uint32_t)(uniform() * uniform() * 2000);
    for (uint32_t row = 0; row < ROWS; row++)
        fill(rows + (size_t)row * vocab, vocab, peaked);
    for (uint32_t sample = 0; sample < SAMPLES; sample++)
        for (uint32_t k = 0; k <= n_settings; k++) {
            memcpy(copy, rows + (size_t)(sample % ROWS) * vocab,
                   vocab * sizeof *copy); /* as the output head leaves it */
            struct sampler_turn turn = {
                .tokens = history, .n_tokens = HISTORY, .n_unbroken = 30, .mu = &mu};
            if (k < n_settings && settings[k].largest)
                find_largest(copy, vocab, largest, tokens);
            double start = clock_s();
            if (k == n_settings)
                sink = yardstick_read((const uint8_t *)copy, vocab * sizeof *copy / 256 * 256);
            else
                sink = choose(s, vocab, k, &turn, copy, largest, tokens);
            us[k][sample] = (clock_s() - start) * 1e6;
        }
    double read = median(us[n_settings]);
    for (uint32_t k = 0; k < n_settings; k++) {
        double m = median(us[k]);
        printf("%7u  %-6s  %-13s %9.1f us  %6.1f x\n", vocab, peaked ? "peaked" : "wide",
               settings[k].name, m, m / read);
    }
    printf("%7u  %-6s  %-13s %9.1f us\n", vocab, peaked ? "peaked" : "wide", "read", read);
    sampler_free(s);
}

int main(void)
{
    static const uint32_t vocabs[] = {50304, 151936};
    float *rows = malloc((size_t)(ROWS + 1) * MAX_VOCAB * sizeof *rows);
    if (!rows)
        return 1;
    make_settings();
    printf("  vocab  row     settings           a token  of reading the row\n");
    for (size_t v = 0; v < sizeof vocabs / sizeof vocabs[0]; v++)
        for (int peaked = 1; peaked >= 0; peaked--)
            measure(vocabs[v], peaked, rows, rows + (size_t)ROWS * MAX_VOCAB);
    free(rows);
    return 0;
}
