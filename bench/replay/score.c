/* Comparison of policies over a grid; see score.h. */
#include "bench/replay/score.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Cells ---- */

/* Jobs of the same cell differ in their seed. */
static int compare_jobs(const struct grid_job *a, const struct grid_job *b)
{
    int order = strcmp(a->section, b->section);
    order = order ? order : (a->model > b->model) - (a->model < b->model);
    order = order ? order : strcmp(a->machine, b->machine);
    order = order ? order : (a->locality > b->locality) - (a->locality < b->locality);
    order = order ? order : (a->skew > b->skew) - (a->skew < b->skew);
    order = order
                ? order
                : (a->predictability > b->predictability) - (a->predictability < b->predictability);
    return order ? order : (a->prompt > b->prompt) - (a->prompt < b->prompt);
}

static int compare_cells(const struct grid_row *a, const struct grid_row *b)
{
    const struct replay_result *x = &a->result, *y = &b->result;
    int order = compare_jobs(a->job, b->job);
    order = order ? order : (x->vram > y->vram) - (x->vram < y->vram);
    return order ? order : (x->batch > y->batch) - (x->batch < y->batch);
}

static int compare_rows(const void *a, const void *b)
{
    const struct grid_row *x = a, *y = b;
    int order = compare_cells(x, y);
    return order ? order : (x->job->seed > y->job->seed) - (x->job->seed < y->job->seed);
}

static uint32_t find_policy(struct score_table *s, const char *name)
{
    uint32_t i = 0;
    while (i < s->n_policies && strcmp(s->policies[i], name) != 0)
        i++;
    if (i == s->n_policies && i < SCORE_MOST_POLICIES)
        snprintf(s->policies[s->n_policies++], sizeof s->policies[0], "%s", name);
    return i;
}

static void find_policies(struct score_table *s, const struct grid_row *rows, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        uint32_t seed = rows[i].job->seed - GRID_FIRST_SEED;
        find_policy(s, rows[i].result.policy);
        s->n_seeds = seed >= s->n_seeds ? seed + 1 : s->n_seeds;
    }
}

static void fill_cells(struct score_table *s, enum score_metric metric, const struct grid_row *rows,
                       uint32_t n)
{
    struct score_cell *c = NULL;
    for (uint32_t i = 0; i < n; i++) {
        const struct replay_result *r = &rows[i].result;
        uint32_t seed = rows[i].job->seed - GRID_FIRST_SEED, policy = find_policy(s, r->policy);
        if (i == 0 || compare_cells(&rows[i - 1], &rows[i]) != 0) {
            c = &s->cells[s->n_cells];
            *c = (struct score_cell){rows[i].job, r->vram, r->batch,
                                     s->log_speeds +
                                         (size_t)s->n_cells++ * (s->n_policies + 1) * s->n_seeds};
            for (uint32_t k = 0; k < (s->n_policies + 1) * s->n_seeds; k++)
                c->log_speed[k] = NAN;
        }
        double speed = metric == SCORE_DECODE ? r->decode_tokens_per_s : r->prefill_tokens_per_s;
        if (policy < s->n_policies && speed > 0)
            c->log_speed[(size_t)policy * s->n_seeds + seed] = log(speed);
        if (metric == SCORE_DECODE && r->bound > 0)
            c->log_speed[(size_t)s->n_policies * s->n_seeds + seed] = log(speed / r->bound);
    }
}

enum error_code score_table_init(struct score_table *s, enum score_metric metric,
                                 const char *subject, const struct grid_row *rows, uint32_t n_rows,
                                 struct error *e)
{
    *s = (struct score_table){0};
    find_policies(s, rows, n_rows);
    uint32_t n = s->n_policies, n_cells = 0;
    s->subject = find_policy(s, subject);
    if (s->subject >= n)
        return error_set(e, ERROR_USAGE, "policy %s has no results: --policies lacks it", subject);
    struct grid_row *sorted = calloc(n_rows, sizeof *sorted);
    if (!sorted)
        return error_set(e, ERROR_MEMORY, "no memory for the scores");
    memcpy(sorted, rows, n_rows * sizeof *sorted);
    qsort(sorted, n_rows, sizeof *sorted, compare_rows);
    for (uint32_t i = 0; i < n_rows; i++)
        n_cells += i == 0 || compare_cells(&sorted[i - 1], &sorted[i]) != 0;
    s->cells = calloc(n_cells, sizeof *s->cells);
    s->log_speeds = calloc((size_t)n_cells * (n + 1) * s->n_seeds, sizeof *s->log_speeds);
    bool ok = s->cells && s->log_speeds;
    if (ok)
        fill_cells(s, metric, sorted, n_rows);
    free(sorted);
    if (!ok)
        score_table_fini(s);
    return ok ? ERROR_OK : error_set(e, ERROR_MEMORY, "no memory for the scores");
}

void score_table_fini(struct score_table *s)
{
    free(s->cells);
    free(s->log_speeds);
    *s = (struct score_table){0};
}

/* ---- Comparison ---- */

double score_log_speed(const struct score_cell *c, const struct score_table *s, uint32_t policy)
{
    double sum = 0;
    uint32_t n = 0;
    for (uint32_t k = 0; k < s->n_seeds; k++) {
        double x = c->log_speed[(size_t)policy * s->n_seeds + k];
        sum += isnan(x) ? 0 : x;
        n += !isnan(x);
    }
    return n ? sum / n : NAN;
}

/* The subject with a part replaced; of another preset that is a second reading of its paper. */
static bool is_variant(const struct score_table *s, uint32_t policy)
{
    const char *subject = s->policies[s->subject];
    size_t n = strlen(subject);
    return strncmp(s->policies[policy], subject, n) == 0 && s->policies[policy][n] == '/';
}

uint32_t score_other(const struct score_table *s, const struct score_cell *c, uint32_t other)
{
    uint32_t best = s->n_policies;
    if (other < s->n_policies)
        return other;
    for (uint32_t p = 0; p < s->n_policies; p++) {
        bool counts = p != s->subject && (other == SCORE_BEST_OTHER || !is_variant(s, p));
        double speed = score_log_speed(c, s, p);
        if (counts && !isnan(speed) &&
            (best == s->n_policies || speed > score_log_speed(c, s, best)))
            best = p;
    }
    return best;
}

/* The 97.5 % quantile of Student's distribution. */
static double student(uint32_t degrees)
{
    static const double quantiles[] = {12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365,
                                       2.306,  2.262, 2.228, 2.201, 2.179, 2.160, 2.145,
                                       2.131,  2.120, 2.110, 2.101, 2.093, 2.086};
    enum { N = sizeof quantiles / sizeof *quantiles };
    return quantiles[(degrees < N ? degrees : N) - 1]; /* a little too wide beyond the table */
}

/* Of logarithms, one for each seed; NaN: none. */
static struct score_mean mean_of(const double *x, uint32_t n_seeds)
{
    double sum = 0, squares = 0;
    uint32_t n = 0;
    for (uint32_t k = 0; k < n_seeds; k++)
        if (!isnan(x[k])) {
            sum += x[k];
            n++;
        }
    double mean = n ? sum / n : NAN;
    for (uint32_t k = 0; k < n_seeds; k++)
        if (!isnan(x[k]))
            squares += (x[k] - mean) * (x[k] - mean);
    double half = n > 1 ? student(n - 1) * sqrt(squares / (n - 1) / n) : NAN;
    return (struct score_mean){exp(mean), exp(mean - half), exp(mean + half)};
}

static double seed_ratio(const struct score_table *s, const struct score_cell *c, uint32_t policy,
                         uint32_t seed)
{
    return c->log_speed[(size_t)s->subject * s->n_seeds + seed] -
           c->log_speed[(size_t)policy * s->n_seeds + seed];
}

struct score_mean score_cell_ratio(const struct score_table *s, const struct score_cell *c,
                                   uint32_t other)
{
    double x[GRID_MOST_SEEDS];
    uint32_t policy = score_other(s, c, other);
    for (uint32_t k = 0; k < s->n_seeds; k++)
        x[k] = policy < s->n_policies ? seed_ratio(s, c, policy, k) : NAN;
    return mean_of(x, s->n_seeds);
}

enum score_verdict score_verdict(double ratio)
{
    return ratio > 1 + SCORE_TIE ? SCORE_WIN : ratio < 1 - SCORE_TIE ? SCORE_LOSS : SCORE_EVEN;
}

static void add_cell(const struct score_table *s, const struct score_cell *c, uint32_t policy,
                     struct score_sum *sum, double *of_seeds, uint32_t *n_of_seeds)
{
    double ratio = score_cell_ratio(s, c, policy).mean;
    if (isnan(ratio))
        return;
    enum score_verdict verdict = score_verdict(ratio);
    sum->cells++;
    sum->wins += verdict == SCORE_WIN;
    sum->ties += verdict == SCORE_EVEN;
    sum->losses += verdict == SCORE_LOSS;
    sum->first += ratio >= 1;
    sum->least = fmin(sum->least, ratio);
    sum->most = fmax(sum->most, ratio);
    for (uint32_t k = 0; k < s->n_seeds; k++) {
        double x = seed_ratio(s, c, policy, k);
        of_seeds[k] += isnan(x) ? 0 : x;
        n_of_seeds[k] += !isnan(x);
    }
}

struct score_sum score_against(const struct score_table *s, uint32_t other, score_keep *keep,
                               const void *arg)
{
    struct score_sum sum = {.least = INFINITY, .most = -INFINITY};
    double of_seeds[GRID_MOST_SEEDS] = {0};
    uint32_t n_of_seeds[GRID_MOST_SEEDS] = {0};
    for (uint32_t i = 0; i < s->n_cells; i++) {
        const struct score_cell *c = &s->cells[i];
        uint32_t policy = score_other(s, c, other);
        if (policy < s->n_policies && (!keep || keep(arg, c)))
            add_cell(s, c, policy, &sum, of_seeds, n_of_seeds);
    }
    for (uint32_t k = 0; k < s->n_seeds; k++)
        of_seeds[k] = n_of_seeds[k] ? of_seeds[k] / n_of_seeds[k] : NAN;
    sum.ratio = mean_of(of_seeds, s->n_seeds);
    return sum;
}
