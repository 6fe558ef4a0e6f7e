/* bench-predict: the cost of prediction, by predictor and model size.
 *
 * First: what showing a layer of one token to the background predictor costs the engine
 * (worker/prefetch/background_predictor.h), in layers of 100 microseconds. Then: what a predictor's
 * two halves take for a layer, once they have seen enough to be at their slowest. Prints the median
 * and the ninth decile.
 */
#include "base/clock.h"
#include "sched/policy.h"
#include "worker/prefetch/prediction.h"
#include "worker/prefetch/prediction_metrics.h"

#include <stdio.h>
#include <stdlib.h>

enum { ROUNDS = 2000, LAYER_NS = 100000 };

static void no_memory(void)
{
    fprintf(stderr, "bench-predict: no memory\n");
    exit(1);
}

static void report(void *arg, const struct layer_prediction *prediction) {}

static int compare(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static void run_layers(struct prediction *p, const struct predict_shape *shape,
                       uint64_t took_ns[ROUNDS])
{
    float *hidden = calloc(shape->d_model, sizeof *hidden);
    float *gate = calloc(shape->n_experts, sizeof *gate);
    uint32_t *selected = calloc(shape->n_used, sizeof *selected);
    if (!hidden || !gate || !selected)
        no_memory();
    for (uint32_t i = 0; i < shape->n_used; i++)
        selected[i] = i;
    struct predict_token token = {1, 1, 0};
    for (uint32_t i = 0; i < ROUNDS; i++) {
        struct predict_seen seen = {
            1 + i / shape->n_layers, i % shape->n_layers, 1, &token, hidden, gate, selected, gate};
        prediction_begin(p, &seen);
        uint64_t start = clock_ns();
        prediction_show(p, &seen);
        took_ns[i] = clock_ns() - start;
        while (clock_ns() < start + LAYER_NS)
            ;
    }
    free(hidden);
    free(gate);
    free(selected);
}

static void measure(const char *model, const struct predict_shape *shape, enum sched_predictor kind)
{
    static uint64_t took_ns[ROUNDS];
    struct metrics *metrics = metrics_new();
    if (!metrics)
        no_memory();
    struct prediction_options options = {.shape = *shape,
                                         .predictor = kind,
                                         .report = report,
                                         .counters = prediction_metrics_counters(metrics)};
    struct prediction *p;
    struct error e;
    if (prediction_new(&options, &p, &e)) {
        fprintf(stderr, "bench-predict: %s\n", e.text);
        exit(1);
    }
    run_layers(p, shape, took_ns);
    prediction_free(p);
    qsort(took_ns, ROUNDS, sizeof *took_ns, compare);
    printf("%-16s %-18s %8llu ns median %8llu ns nine in ten %6llu shown\n", model,
           sched_predictor_name(kind), (unsigned long long)took_ns[ROUNDS / 2],
           (unsigned long long)took_ns[ROUNDS * 9 / 10],
           (unsigned long long)counter_read(options.counters.shown));
    fflush(stdout);
    metrics_free(metrics);
}

/* ---- The two halves ---- */

enum {
    WARM_STEPS = 1010,
    TIMED_STEPS = 10
}; /* WARM_STEPS: more than the maps that expert-map keeps */

static uint32_t random_below(uint32_t n)
{
    static uint64_t state = 1;
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(state >> 33) % n;
}

/* A layer of one token: its gate prefers a few experts, which are chosen. */
static void make_layer(const struct predict_shape *s, float *hidden, float *gate,
                       uint32_t *selected)
{
    for (uint32_t i = 0; i < s->d_model; i++)
        hidden[i] = (float)random_below(2001) / 1000 - 1;
    for (uint32_t i = 0; i < s->n_experts; i++)
        gate[i] = (float)random_below(100) / 1e4f;
    uint32_t first = random_below(s->n_experts);
    for (uint32_t k = 0; k < s->n_used; k++) {
        selected[k] = (first + k * 7) % s->n_experts;
        gate[selected[k]] += 1.0f / (float)(k + 2);
    }
}

struct halves {
    struct predict_traits traits;
    struct predictor *in_line, *background; /* NULL: the predictor has no such half */
    float *update;
    double *probability;
    uint64_t *background_ns, *line_ns; /* [TIMED_STEPS * n_layers]: of the timed steps */
};

static void think(struct halves *h, const struct predict_shape *s, const struct predict_seen *seen)
{
    struct predict_target target;
    uint32_t layer;
    predictor_observe(h->background, seen);
    for (uint32_t i = 0;
         h->traits.answers && predict_target(&h->traits, s, seen->step, seen->layer, i, &target);
         i++)
        predictor_predict(h->background, seen, &target, NULL, h->probability);
    while (predictor_next_update(h->background, &layer, h->update))
        predictor_apply_update(h->in_line, layer, h->update);
}

static void predict(struct halves *h, const struct predict_shape *s,
                    const struct predict_seen *seen)
{
    struct predict_target target;
    predictor_observe(h->in_line, seen);
    if (predict_target(&h->traits, s, seen->step, seen->layer, 0, &target))
        predictor_predict(h->in_line, seen, &target, seen->selected, h->probability);
}

static void run_halves(struct halves *h, const struct predict_shape *s)
{
    float *hidden = calloc(s->d_model, sizeof *hidden), *gate = calloc(s->n_experts, sizeof *gate);
    uint32_t *selected = calloc(s->n_used, sizeof *selected);
    if (!hidden || !gate || !selected)
        no_memory();
    for (uint32_t step = 0; step < WARM_STEPS + TIMED_STEPS; step++)
        for (uint32_t i = 0; i <= s->n_layers; i++) {
            struct predict_token token = {1 + step / 100, step % 100, step % 1000};
            struct predict_seen seen = {1 + step, i - 1, 1, &token, hidden, gate, selected, gate};
            size_t place = (size_t)(step % TIMED_STEPS) * s->n_layers + (i ? i - 1 : 0);
            make_layer(s, hidden, gate, selected);
            if (i == 0) {
                seen.layer = PREDICT_EMBEDDING;
                seen.gate = NULL;
                seen.selected = NULL;
            }
            uint64_t start = clock_ns();
            if (h->in_line && i > 0)
                predict(h, s, &seen);
            uint64_t middle = clock_ns();
            if (h->background && (i > 0 || h->traits.reads & PREDICT_READS_EMBEDDING))
                think(h, s, &seen);
            h->line_ns[place] = middle - start;
            h->background_ns[place] = clock_ns() - middle;
        }
    free(hidden);
    free(gate);
    free(selected);
}

static void measure_halves(const char *model, const struct predict_shape *s,
                           enum sched_predictor kind)
{
    size_t n = (size_t)TIMED_STEPS * s->n_layers;
    struct halves h = {.traits = predictor_traits(kind, s)};
    h.in_line = h.traits.in_line ? predictor_new(kind, PREDICT_IN_LINE, s) : NULL;
    h.background = h.traits.reads ? predictor_new(kind, PREDICT_BACKGROUND, s) : NULL;
    h.update = calloc(1 + predictor_update_floats(kind, s), sizeof *h.update);
    h.probability = calloc(s->n_experts, sizeof *h.probability);
    h.background_ns = calloc(n, sizeof *h.background_ns);
    h.line_ns = calloc(n, sizeof *h.line_ns);
    if ((h.traits.in_line && !h.in_line) || (h.traits.reads && !h.background) || !h.update ||
        !h.probability || !h.background_ns || !h.line_ns)
        no_memory();
    run_halves(&h, s);
    qsort(h.background_ns, n, sizeof *h.background_ns, compare);
    qsort(h.line_ns, n, sizeof *h.line_ns, compare);
    printf("%-16s %-18s in line %7llu ns median %7llu ns nine in ten, background %8llu ns median "
           "%8llu ns nine in ten\n",
           model, sched_predictor_name(kind), (unsigned long long)h.line_ns[n / 2],
           (unsigned long long)h.line_ns[n * 9 / 10], (unsigned long long)h.background_ns[n / 2],
           (unsigned long long)h.background_ns[n * 9 / 10]);
    fflush(stdout);
    predictor_free(h.in_line);
    predictor_free(h.background);
    free(h.update);
    free(h.probability);
    free(h.background_ns);
    free(h.line_ns);
}

int main(void)
{
    static const struct {
        const char *name;
        struct predict_shape shape;
    } models[] = {{"demo", {8, 0, 32, 4, 256, 32, NULL, false}},
                  {"Qwen3-30B-A3B", {8, 0, 128, 8, 2048, 32, NULL, false}},
                  {"DeepSeek-V3", {8, 0, 256, 8, 7168, 32, NULL, false}}};
    for (size_t i = 0; i < sizeof models / sizeof *models; i++)
        for (int kind = 0; kind < PREDICT_KINDS; kind++)
            measure(models[i].name, &models[i].shape, (enum sched_predictor)kind);
    const struct predict_shape qwen3 = {
        .n_layers = 48, .n_experts = 128, .n_used = 8, .d_model = 2048, .max_tokens = 32};
    for (int kind = PREDICT_NEXT_GATE; kind < PREDICT_KINDS; kind++)
        measure_halves(models[1].name, &qwen3, (enum sched_predictor)kind);
    return 0;
}
