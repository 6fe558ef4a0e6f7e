/* What showing a layer of one token to a predictor beside inference costs the engine (worker/predict_aside.h), in layers of
 * 100 microseconds, by predictor and model size. Prints the median and what nine in ten do not exceed; no figure is a
 * test. */
#include "base/clock.h"
#include "sched/policy.h"
#include "worker/prediction.h"
#include "worker/prediction_metrics.h"

#include <stdio.h>
#include <stdlib.h>

enum { ROUNDS = 2000, LAYER_NS = 100000 };

static void no_memory(void)
{
    fprintf(stderr, "bench-predict: no memory\n");
    exit(1);
}

static void tell(void *arg, const struct predict_target *target, const struct predicted *experts,
                 uint32_t n)
{
}

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
    struct predict_token token = {1, 1};
    for (uint32_t i = 0; i < ROUNDS; i++) {
        struct predict_seen seen = {
            1 + i / shape->n_layers, i % shape->n_layers, 1, &token, hidden, gate, selected};
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
                                         .tell = tell,
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
    printf("%-16s %-12s %8llu ns median %8llu ns nine in ten %6llu shown\n", model,
           sched_predictor_name(kind), (unsigned long long)took_ns[ROUNDS / 2],
           (unsigned long long)took_ns[ROUNDS * 9 / 10],
           (unsigned long long)counter_read(options.counters.shown));
    fflush(stdout);
    metrics_free(metrics);
}

int main(void)
{
    static const struct {
        const char *name;
        struct predict_shape shape;
    } models[] = {{"demo", {8, 0, 32, 4, 256, 32}},
                  {"Qwen3-30B-A3B", {8, 0, 128, 8, 2048, 32}},
                  {"DeepSeek-V3", {8, 0, 256, 8, 7168, 32}}};
    for (size_t i = 0; i < sizeof models / sizeof *models; i++)
        for (int kind = 0; kind < PREDICT_KINDS; kind++)
            measure(models[i].name, &models[i].shape, (enum sched_predictor)kind);
    return 0;
}
