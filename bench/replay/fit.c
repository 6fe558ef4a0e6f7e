/* Fits the hit rates of synthetic routes to published hit rates; see fit.h.
 *
 * The search varies skew, locality and topic strength. All trials use the same random numbers, so
 * the error is a smooth function of the parameters, apart from the steps of counts. Predictability
 * is not varied, because it has no effect on the cache of one layer. */
#include "bench/replay/fit.h"

#include "bench/replay/hit_rate.h"
#include "bench/replay/minimise.h"
#include "sched/policy.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Not a cache of lib/sched: hit_rate_fixed. */
#define RANDOM_SET "random-set"

/* ---- Targets ---- */

/* MoEpic, Table 1: Qwen1.5-MoE on MMLU. MMLU has 57 subjects, so there are 57 topics, and each
 * question draws one. A question is assumed to have about 128 tokens.
 *
 * The paper does not define RND (r). Its hit rates equal cached / 60 to within 0.75 points, so the
 * cached experts do not depend on the activations: "random-set", a fixed random set. The other
 * reading, eviction of a random expert on a miss, hits more often wherever experts are used
 * unequally. It is compared and not fitted, as is LCP's row. */
static const struct fit_target targets[] = {
    {
        .name = "moepic-table1",
        .what = "MoEpic, Table 1: Qwen1.5-MoE, MMLU",
        .shape = {.model = "Qwen1.5-MoE-A2.7B (synthetic, fitted to MoEpic's Table 1)",
                  .n_layers = 24,
                  .n_experts = 60,
                  .n_used = 4,
                  .n_tokens = 8192,
                  .sequence = 128,
                  .prompt = 64,
                  .d_model = 32,
                  .seed = 1,
                  .topics = 57,
                  .skew = 0.15,
                  .locality = 0.05,
                  .predictability = 0.9,
                  .topic_strength = 0.05,
                  .segment_bytes = 1,
                  .n_segments = 1},
        .n_layers = 4,
        .n_sizes = 5,
        .sizes = {10, 20, 30, 40, 50},
        .n_caches = 5,
        .caches = {{"lru", true, {.1911, .3888, .5638, .7316, .8897}},
                   {"lfu", true, {.2436, .4374, .6068, .7584, .8934}},
                   {RANDOM_SET, true, {.1641, .3302, .4969, .6741, .8315}},
                   {"random", false, {.1641, .3302, .4969, .6741, .8315}},
                   {"lcp", false, {.2556, .4536, .6221, .7712, .9008}}},
    },
    /* github.com/kekzl/imp, pull request 1359: three prompts of 512 tokens; 45 % of the choices
     * repeat at the next token (what the last token's 8 experts would hit), and LRU at 40 %
     * residency hits 94.7, 90.0 and 95.3 %. */
    {
        .name = "qwen3-30b-imp",
        .what = "kekzl/imp 1359: Qwen3-30B-A3B, three prompts",
        .shape = {.model = "Qwen3-30B-A3B (synthetic, fitted to kekzl/imp 1359)",
                  .n_layers = 48,
                  .n_experts = 128,
                  .n_used = 8,
                  .n_tokens = 8192,
                  .sequence = 512,
                  .prompt = 64,
                  .d_model = 32,
                  .seed = 1,
                  .topics = 8,
                  .predictability = 0.96,
                  .segment_bytes = 1,
                  .n_segments = 1},
        .n_layers = 2,
        .n_sizes = 2,
        .sizes = {8, 51},
        .n_caches = 1,
        .caches = {{"lru", true, {.45, .933}}},
    },
    /* github.com/kekzl/imp, pull request 2061: a generation of 300 tokens of Qwen3.8-Flash-Next, a
     * trace against LRU; the engine's own counter agreed to a point at 186. */
    {
        .name = "qwen3.8-next-imp",
        .what = "kekzl/imp 2061: Qwen3.8-Flash-Next, 300 tokens",
        .shape = {.model = "Qwen3.8-Flash-Next (synthetic, fitted to kekzl/imp 2061)",
                  .n_layers = 48,
                  .n_experts = 512,
                  .n_used = 10,
                  .n_tokens = 4096,
                  .sequence = 300,
                  .prompt = 64,
                  .d_model = 32,
                  .seed = 1,
                  .topics = 8,
                  .predictability = 0.96,
                  .segment_bytes = 1,
                  .n_segments = 1},
        .n_layers = 1,
        .n_sizes = 4,
        .sizes = {93, 186, 279, 372},
        .n_caches = 1,
        .caches = {{"lru", true, {.435, .620, .720, .789}}},
    },
};
enum { N_TARGETS = sizeof targets / sizeof *targets };

const struct fit_target *fit_target_find(const char *name)
{
    for (int i = 0; i < N_TARGETS; i++)
        if (strcmp(targets[i].name, name) == 0)
            return &targets[i];
    return NULL;
}

const char *fit_target_names(void)
{
    static char names[256];
    if (!names[0])
        for (int i = 0; i < N_TARGETS; i++) {
            size_t at = strlen(names);
            snprintf(names + at, sizeof names - at, "%s%s", i ? ", " : "", targets[i].name);
        }
    return names;
}

/* ---- A trial ---- */

static bool make_routes(const struct synthesis *s, uint16_t *selected)
{
    struct synthesizer *g = synthesizer_new(s);
    if (!g)
        return false;
    size_t row = (s->n_layers - s->first_layer) * s->n_used;
    for (uint64_t t = 0; t < s->n_tokens; t++) {
        if (t % s->sequence == 0)
            synthesizer_begin(g, t / s->sequence);
        synthesizer_next(g, selected + t * row, NULL, NULL);
    }
    synthesizer_free(g);
    return true;
}

/* Finds a cache by name, including the caches that only replay has. */
static bool find_cache(const char *name, enum sched_cache_kind *out)
{
    const char *at;
    for (unsigned k = 0; (at = sched_cache_name((enum sched_cache_kind)k)); k++)
        if (strcmp(at, name) == 0) {
            *out = (enum sched_cache_kind)k;
            return true;
        }
    return false;
}

/* Which caches to evaluate. */
enum asked { ASK_FITTED, ASK_ALL };

/* The mean over several sets: a single set deviates from it by a point or two. */
static double mean_of_sets(const struct routes *routes, uint32_t cached)
{
    enum { SETS = 16 };
    double sum = 0;
    for (uint64_t seed = 0; seed < SETS; seed++)
        sum += hit_rate_fixed(routes, cached, seed) / SETS;
    return sum;
}

static double hit_rate_of(const struct routes *routes, const char *cache, uint32_t cached)
{
    enum sched_cache_kind kind;
    if (strcmp(cache, RANDOM_SET) == 0)
        return mean_of_sets(routes, cached);
    return find_cache(cache, &kind) ? hit_rate(routes, kind, cached) : NAN;
}

static void measure(const struct fit_target *target, const struct routes *routes, enum asked asked,
                    struct fit_result *out)
{
    double sum = 0;
    uint32_t n = 0;
    for (uint32_t c = 0; c < target->n_caches; c++) {
        bool fitted = target->caches[c].fitted;
        for (uint32_t i = 0; i < target->n_sizes; i++) {
            double rate = asked == ASK_ALL || fitted
                              ? hit_rate_of(routes, target->caches[c].name, target->sizes[i])
                              : NAN;
            out->hit_rate[c][i] = rate;
            if (!fitted || isnan(rate))
                continue;
            sum += (rate - target->caches[c].hit_rate[i]) * (rate - target->caches[c].hit_rate[i]);
            n++;
        }
    }
    out->error = n ? sqrt(sum / n) : NAN;
}

static enum error_code try_parameters(const struct fit_target *target, const struct synthesis *s,
                                      enum asked asked, struct fit_result *out, struct error *e)
{
    struct synthesis few = *s;
    few.first_layer = 0;
    few.n_layers = target->n_layers;
    enum error_code code = synthesis_check(&few, e);
    if (code)
        return code;
    struct routes routes = {.n_tokens = (uint32_t)few.n_tokens,
                            .n_layers = (uint32_t)few.n_layers,
                            .n_experts = (uint32_t)few.n_experts,
                            .n_used = (uint32_t)few.n_used};
    uint16_t *selected = calloc(few.n_tokens * few.n_layers, few.n_used * sizeof *selected);
    bool ok = selected && make_routes(&few, selected);
    if (ok) {
        routes.selected = selected;
        measure(target, &routes, asked, out);
        out->found = *s;
    }
    free(selected);
    return ok ? ERROR_OK : error_set(e, ERROR_MEMORY, "no memory for a trial");
}

enum error_code fit_evaluate(const struct fit_target *target, const struct synthesis *s,
                             struct fit_result *out, struct error *e)
{
    out->calls = 1;
    return try_parameters(target, s, ASK_ALL, out, e);
}

/* ---- The search ---- */

enum { SKEW, LOCALITY, STRENGTH, N_PARAMETERS };

struct search {
    const struct fit_target *target;
    struct synthesis trial;
    uint32_t calls;
    enum error_code code;
    struct error *e;
};

static void set_parameters(struct synthesis *s, const double *x)
{
    s->skew = x[SKEW];
    s->locality = x[LOCALITY];
    s->topic_strength = x[STRENGTH];
}

static double trial_error(void *arg, const double *x)
{
    struct search *s = arg;
    struct fit_result result;
    if (s->code)
        return INFINITY;
    set_parameters(&s->trial, x);
    s->calls++;
    s->code = try_parameters(s->target, &s->trial, ASK_FITTED, &result, s->e);
    return s->code ? INFINITY : result.error;
}

/* Starts from the best point of a coarse grid, because a simplex that starts far away can stay in a
 * local minimum. */
static void begin_search(struct search *s, double *x)
{
    static const double skews[] = {0.1, 0.25, 0.7}, localities[] = {0, 0.35, 0.7},
                        strengths[] = {0.02, 0.1, 0.3};
    double best = INFINITY;
    for (int i = 0; i < 27; i++) {
        double at[N_PARAMETERS] = {skews[i / 9], localities[i / 3 % 3], strengths[i % 3]};
        double error = trial_error(s, at);
        if (error < best) {
            best = error;
            memcpy(x, at, sizeof at);
        }
    }
}

enum error_code fit(const struct fit_target *target, uint64_t tokens, struct fit_result *out,
                    struct error *e)
{
    struct search s = {.target = target, .trial = target->shape, .e = e};
    s.trial.n_tokens = tokens;
    const struct minimise m = {.n = N_PARAMETERS,
                               .least = {0, -0.9, 0},
                               .most = {3, 0.999, 0.999},
                               .value = trial_error,
                               .arg = &s,
                               .most_calls = 80,
                               .tolerance = 1e-5};
    double x[N_PARAMETERS] = {0}, wide[N_PARAMETERS] = {0.1, 0.2, 0.05},
           narrow[N_PARAMETERS] = {-0.05, -0.1, 0.02};
    begin_search(&s, x);
    minimise(&m, x, wide);
    minimise(&m, x, narrow); /* again from a fresh simplex, in case the first one has become flat */
    if (s.code)
        return s.code;
    set_parameters(&s.trial, x);
    enum error_code code = try_parameters(target, &s.trial, ASK_ALL, out, e);
    out->calls = s.calls;
    return code;
}

/* ---- The report ---- */

static void print_row(const struct fit_target *target, const struct fit_result *r, uint32_t c,
                      FILE *out)
{
    const char *name = target->caches[c].name;
    fprintf(out, "%-10s paper   ", name);
    for (uint32_t i = 0; i < target->n_sizes; i++)
        fprintf(out, " %6.2f", 100 * target->caches[c].hit_rate[i]);
    if (isnan(r->hit_rate[c][0])) {
        fprintf(out, "\n%-10s there is no cache of this name\n", "");
        return;
    }
    fprintf(out, "\n%-10s found   ", "");
    for (uint32_t i = 0; i < target->n_sizes; i++)
        fprintf(out, " %6.2f", 100 * r->hit_rate[c][i]);
    fprintf(out, "\n%-10s residual", "");
    for (uint32_t i = 0; i < target->n_sizes; i++)
        fprintf(out, " %+6.2f", 100 * (r->hit_rate[c][i] - target->caches[c].hit_rate[i]));
    fprintf(out, "%s\n", target->caches[c].fitted ? "" : "   (not fitted)");
}

void fit_print(const struct fit_target *target, const struct fit_result *r, FILE *out)
{
    const struct synthesis *s = &r->found;
    fprintf(out, "%s; hit rates in %%\n", target->what);
    fprintf(out,
            "--skew %.4f --locality %.4f --topic-strength %.4f --topics %llu --sequence %llu "
            "(%llu tokens, %u layers, %u trials)\n",
            s->skew, s->locality, s->topic_strength, (unsigned long long)s->topics,
            (unsigned long long)s->sequence, (unsigned long long)s->n_tokens, target->n_layers,
            r->calls);
    fprintf(out, "%-10s cached  ", "");
    for (uint32_t i = 0; i < target->n_sizes; i++)
        fprintf(out, " %6u", target->sizes[i]);
    fprintf(out, "\n");
    for (uint32_t c = 0; c < target->n_caches; c++)
        print_row(target, r, c, out);
    fprintf(out, "error of what was fitted: %.2f points (root of the mean square)\n",
            100 * r->error);
}
