/* bench/replay/score.h, against results worked out by hand, and bench/replay/grid.h: which cells a
 * grid has. */
#include "bench/replay/grid.h"
#include "bench/replay/score.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define BOUND 40 /* tokens/s */

static struct grid_row row(const struct grid_job *job, const char *policy, double decode)
{
    struct grid_row r = {.job = job,
                         .result = {.vram = 0.25,
                                    .batch = 1,
                                    .decode_tokens_per_s = decode,
                                    .prefill_tokens_per_s = NAN,
                                    .bound = decode / BOUND}};
    snprintf(r.result.policy, sizeof r.result.policy, "%s", policy);
    return r;
}

static void near(double found, double expected)
{
    if (!(fabs(found - expected) <= 1e-9 * fabs(expected)))
        fail_msg("%.12g, not %.12g", found, expected);
}

static struct grid_job jobs[] = {
    {.section = "axes", .model = grid_models, .machine = "desktop", .seed = GRID_FIRST_SEED},
    {.section = "axes", .model = grid_models, .machine = "desktop", .seed = GRID_FIRST_SEED + 1},
    {.section = "axes", .model = grid_models, .machine = "apu", .seed = GRID_FIRST_SEED},
    {.section = "axes", .model = grid_models, .machine = "apu", .seed = GRID_FIRST_SEED + 1},
};

/* On the desktop `us` has 8 and 18 tokens/s, geometric mean 12; `a` 4 and 4; `us/x=y` 12 and 12, so
 * it is the best other, a tie at 1, and `a` the best preset, 3 times slower. On the APU `us` has 5
 * and 5, `a` 10 and 10: a loss at 0.5. */
static const double speeds[4][3] = {{8, 4, 12}, {18, 4, 12}, {5, 10, 1}, {5, 10, 1}};

static void make_rows(struct grid_row rows[12])
{
    static const char *const policies[] = {"us", "a", "us/x=y"};
    for (int i = 0; i < 12; i++) /* seeds and cells mixed */
        rows[i] = row(&jobs[(3 * i) % 4], policies[i / 4], speeds[(3 * i) % 4][i / 4]);
}

static void test_ratios(void **state)
{
    struct grid_row rows[12];
    struct score_table s;
    struct error e;
    make_rows(rows);
    assert_int_equal(score_table_init(&s, SCORE_DECODE, "us", rows, 12, &e), ERROR_OK);
    assert_int_equal(s.n_cells, 2);
    assert_int_equal(s.n_seeds, 2);
    assert_int_equal(s.n_policies, 3);
    const struct score_cell *apu = &s.cells[0], *desktop = &s.cells[1];
    assert_string_equal(apu->job->machine, "apu");
    near(exp(score_log_speed(desktop, &s, s.subject)), 12);
    near(exp(score_log_speed(apu, &s, s.n_policies)), BOUND);
    near(score_cell_ratio(&s, desktop, SCORE_BEST_OTHER).mean, 1);
    near(score_cell_ratio(&s, desktop, SCORE_BEST_PRESET).mean, 3);
    near(score_cell_ratio(&s, apu, SCORE_BEST_OTHER).mean, 0.5);

    struct score_sum best = score_against(&s, SCORE_BEST_OTHER, NULL, NULL);
    assert_int_equal(best.cells, 2);
    assert_int_equal(best.wins, 0);
    assert_int_equal(best.ties, 1);
    assert_int_equal(best.losses, 1);
    near(best.ratio.mean, sqrt(0.5));
    near(best.least, 0.5);
    near(best.most, 1);
    /* The seeds' means: (ln(2/3) + ln(1/2)) / 2 and (ln(3/2) + ln(1/2)) / 2. Their difference is
     * ln 1.5, so the standard error is ln(1.5) / 2; one degree of freedom. */
    near(best.ratio.high, sqrt(0.5) * exp(12.706 * log(1.5) / 2));
    near(best.ratio.low, sqrt(0.5) / exp(12.706 * log(1.5) / 2));
    score_table_fini(&s);
}

static bool is_desktop(const void *arg, const struct score_cell *c)
{
    return strcmp(c->job->machine, arg) == 0;
}

static void test_subsets(void **state)
{
    struct grid_row rows[12];
    struct score_table s;
    struct error e;
    make_rows(rows);
    assert_int_equal(score_table_init(&s, SCORE_DECODE, "us", rows, 12, &e), ERROR_OK);
    struct score_sum sum = score_against(&s, SCORE_BEST_PRESET, is_desktop, "desktop");
    assert_int_equal(sum.cells, 1);
    assert_int_equal(sum.wins, 1);
    near(sum.ratio.mean, 3);
    sum = score_against(&s, SCORE_BEST_PRESET, is_desktop, "nowhere");
    assert_int_equal(sum.cells, 0);
    score_table_fini(&s);
    /* no prompts: no cell counts */
    assert_int_equal(score_table_init(&s, SCORE_PREFILL, "us", rows, 12, &e), ERROR_OK);
    assert_int_equal(score_against(&s, SCORE_BEST_OTHER, NULL, NULL).cells, 0);
    score_table_fini(&s);
    assert_int_equal(score_table_init(&s, SCORE_DECODE, "nobody", rows, 12, &e), ERROR_USAGE);
}

static void test_verdicts(void **state)
{
    assert_int_equal(score_verdict(1.021), SCORE_WIN);
    assert_int_equal(score_verdict(1.019), SCORE_EVEN);
    assert_int_equal(score_verdict(0.981), SCORE_EVEN);
    assert_int_equal(score_verdict(0.979), SCORE_LOSS);
}

/* Every job's name occurs once, and every trace is one that can be made. */
static void check_grid(bool few)
{
    struct grid g;
    struct error e;
    char name[160], other[160];
    const struct grid_options options = {.few = few};
    if (grid_init(&g, &options, &e))
        fail_msg("%s", e.text);
    for (uint32_t i = 0; i < g.n_jobs; i++) {
        struct synthesis s = grid_synthesis(&g.jobs[i]);
        if (synthesis_check(&s, &e))
            fail_msg("%s", e.text);
        assert_true(g.jobs[i].n_vram > 0 && g.jobs[i].n_batch > 0);
        grid_job_name(&g.jobs[i], name);
        if (g.jobs[i].seed != GRID_FIRST_SEED)
            continue;
        for (uint32_t k = 0; k < i; k++) {
            grid_job_name(&g.jobs[k], other);
            assert_string_not_equal(name, other);
        }
    }
    grid_fini(&g);
}

/* Mixtral's experts take 25.4 GB in Q4_0: a laptop of 8 GiB has space for 25 % of them with the
 * dense weights, and not for 50 %. */
static void test_grid(void **state)
{
    check_grid(true);
    check_grid(false);
    struct grid g;
    struct error e;
    const struct grid_options options = {
        .few = true, .models = "mixtral", .machines = "laptop", .n_seeds = 1};
    assert_int_equal(grid_init(&g, &options, &e), ERROR_OK);
    assert_int_equal(g.n_jobs, 1);
    assert_int_equal(g.jobs[0].n_vram, 2);
    near(g.jobs[0].vram[1], 0.25);
    assert_int_equal(g.n_impossible, 2); /* of two batches */
    grid_fini(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ratios),
        cmocka_unit_test(test_subsets),
        cmocka_unit_test(test_verdicts),
        cmocka_unit_test(test_grid),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
