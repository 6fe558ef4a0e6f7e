/* The most probable experts, in order; see predict.h.
 *
 * Where few are kept, each is put in its place among those before it. That takes long where many
 * are kept: then they are first sorted by two digits of their probability as a float, and only
 * those that these do not tell apart are put in their place. Equal ones keep their order. */
#include "sched/assign/assign.h"
#include "sched/predict/predict.h"

#include <stdbool.h>
#include <string.h>

/* Digits are faster from so many kept ones on, and if they are such a part of all. */
#define MANY 64
#define PART 4

/* ---- Few ---- */

/* The first of n sorted experts that are less probable than p. */
static uint32_t place_of(const struct predicted *experts, uint32_t n, float p)
{
    uint32_t first = 0;
    while (n > 0) {
        uint32_t half = n / 2;
        if (experts[first + half].probability < p) {
            n = half;
        } else {
            first += half + 1;
            n -= half + 1;
        }
    }
    return first;
}

static uint32_t keep_best(const double *probability, uint32_t n_experts, uint32_t most,
                          struct predicted *out)
{
    uint32_t n = 0;
    for (uint32_t expert = 0; expert < n_experts; expert++) {
        float p = (float)probability[expert];
        if (!(p > 0) || (n == most && (most == 0 || !(p > out[n - 1].probability))))
            continue;
        uint32_t place = place_of(out, n, p);
        n += n < most;
        memmove(&out[place + 1], &out[place], (n - 1 - place) * sizeof *out);
        out[place] = (struct predicted){expert, p};
    }
    return n;
}

/* ---- Many ---- */

/* A positive float's bits have its order. The digits are the first 8 bits of the fraction, and the
 * exponent. */
enum { DIGITS = 2, DIGIT_VALUES = 256 };

static uint32_t digit(float p, int i)
{
    uint32_t bits;
    memcpy(&bits, &p, sizeof bits);
    return bits >> (15 + 8 * i) & (DIGIT_VALUES - 1);
}

/* counts: of each value of the digit; becomes the places after the last of each. */
static void sort_by_digit(const struct predicted *from, struct predicted *to, uint32_t n, int i,
                          uint32_t *counts)
{
    uint32_t place = 0;
    for (int value = DIGIT_VALUES - 1; value >= 0; value--) {
        uint32_t count = counts[value];
        counts[value] = place;
        place += count;
    }
    for (uint32_t k = 0; k < n; k++)
        to[counts[digit(from[k].probability, i)]++] = from[k];
}

/* Of nearly sorted ones most have their place. */
static void insert_in_order(struct predicted *experts, uint32_t n)
{
    for (uint32_t i = 1; i < n; i++) {
        struct predicted this = experts[i];
        if (experts[i - 1].probability >= this.probability)
            continue;
        uint32_t place = place_of(experts, i, this.probability);
        memmove(&experts[place + 1], &experts[place], (i - place) * sizeof *experts);
        experts[place] = this;
    }
}

static uint32_t sort_all(const double *probability, uint32_t n_experts, uint32_t most,
                         struct predicted *out)
{
    struct predicted all[SCHED_MAX_EXPERTS], by_first[SCHED_MAX_EXPERTS];
    uint32_t counts[DIGITS][DIGIT_VALUES] = {0}, n = 0;
    for (uint32_t expert = 0; expert < n_experts; expert++) {
        float p = (float)probability[expert];
        if (!(p > 0))
            continue;
        all[n++] = (struct predicted){expert, p};
        for (int i = 0; i < DIGITS; i++)
            counts[i][digit(p, i)]++;
    }
    sort_by_digit(all, by_first, n, 0, counts[0]);
    sort_by_digit(by_first, all, n, 1, counts[1]);
    insert_in_order(all, n);
    n = n < most ? n : most;
    memcpy(out, all, n * sizeof *out);
    return n;
}

uint32_t predict_best(const double *probability, uint32_t n_experts, uint32_t most,
                      struct predicted *out)
{
    most = most < n_experts ? most : n_experts;
    bool many = most >= MANY && most * PART >= n_experts && n_experts <= SCHED_MAX_EXPERTS;
    return many ? sort_all(probability, n_experts, most, out)
                : keep_best(probability, n_experts, most, out);
}
