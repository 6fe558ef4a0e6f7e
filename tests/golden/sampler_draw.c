/* sampler-draw: draws tokens from one row of logits, for sampler_oracle.py.
 *
 *     sampler-draw DRAWS ORDER TOP_K TEMPERATURE TOP_P MIN_P TYPICAL_P TOP_N_SIGMA XTC_PROBABILITY
 *         XTC_THRESHOLD DYNAMIC_TEMPERATURE DYNAMIC_EXPONENT < LOGITS
 *
 * LOGITS: numbers in text, one for each token of the vocabulary. Prints how many times each came.
 */
#include "worker/sample/sampler.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 4096, FIRST_FLOAT = 4 };

static bool read_settings(char **argv, struct sampling *s)
{
    float *const floats[] = {
        &s->temperature,     &s->top_p,           &s->min_p,         &s->typical_p,
        &s->top_n_sigma,     &s->xtc_probability, &s->xtc_threshold, &s->dynamic_temperature,
        &s->dynamic_exponent};
    struct error e;
    for (size_t i = 0; i < sizeof floats / sizeof floats[0]; i++)
        *floats[i] = strtof(argv[FIRST_FLOAT + i], NULL);
    s->top_k = (uint32_t)strtoul(argv[3], NULL, 10);
    if (!sampling_set_order(s, argv[2], strlen(argv[2]), &e) && !sampling_check(s, &e))
        return true;
    fprintf(stderr, "sampler-draw: %s\n", e.text);
    return false;
}

int main(int argc, char **argv)
{
    static float logits[MOST];
    static uint32_t counts[MOST];
    struct sampling s = sampling_neutral();
    uint32_t n = 0;
    if (argc != 13 || !read_settings(argv, &s))
        return 2;
    while (n < MOST && scanf("%f", &logits[n]) == 1)
        n++;
    struct sampler *sampler = n ? sampler_new(n, 1) : NULL;
    if (!sampler)
        return 1;
    for (uint32_t i = 0; i < strtoul(argv[1], NULL, 10); i++)
        counts[sampler_pick(sampler, &s, &(struct sampler_turn){.n_tokens = i}, logits)]++;
    for (uint32_t i = 0; i < n; i++)
        printf("%u\n", counts[i]);
    sampler_free(sampler);
    return 0;
}
