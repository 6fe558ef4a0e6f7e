/* bench-predictors [ROUNDS]: the time of a trained predictor's prediction for one layer, with one
 * token and with eight. The networks have the sizes that `moed train` chooses, and random weights,
 * which do not change the time. */
#include "base/clock.h"
#include "sched/predict/trained_net.h"
#include "train/image.h"

#include <stdio.h>
#include <stdlib.h>

enum { LAYERS = 4, TOKENS = 8 };

struct sizes {
    const char *name;
    uint32_t d_model, n_experts, n_used, mlp_hidden, components;
    bool block;
};

static void fail(const char *what)
{
    fprintf(stderr, "bench-predictors: %s\n", what);
    exit(1);
}

static void fill(struct image *m, const struct trained_network *n, const struct net_shape *s)
{
    struct noise r = noise_of(1, 2, 3);
    struct net net;
    if (!net_init(&net, s, 1, &r))
        fail("no memory");
    image_fill_network(m, n, &net);
    net_fini(&net);
}

/* LLaPor and MLP of layer 3, the last layer. */
static struct image make(const struct sizes *s)
{
    struct trained_header h = {.magic = TRAINED_MAGIC,
                               .version = TRAINED_VERSION,
                               .n_layers = LAYERS,
                               .n_experts = s->n_experts,
                               .n_used = s->n_used,
                               .d_model = s->d_model,
                               .n_groups = 1,
                               .stride = 2};
    const struct net_shape mlp = {s->d_model, s->mlp_hidden, s->n_experts, 0, TRAINED_RELU, 0};
    const uint32_t hidden = 2 * s->n_experts > 256 ? 2 * s->n_experts : 256;
    const struct net_shape llapor = {s->components + 2 * s->n_experts, hidden,       s->n_experts,
                                     s->block ? s->components : 0,     TRAINED_GELU, 0};
    struct image m;
    struct pca pca = {.d = s->d_model,
                      .n = s->components,
                      .basis = calloc((size_t)s->d_model * s->components, sizeof(float)),
                      .bias = calloc(s->components, sizeof(float))};
    if (!image_init(&m, &h) || !pca.basis || !pca.bias)
        fail("no memory");
    for (size_t i = 0; i < (size_t)s->d_model * s->components; i++)
        pca.basis[i] = (float)(i % 13) / 13 - 0.5f;
    image_place_network(&m, &m.layers[3].mlp, &mlp);
    image_place_network(&m, &m.layers[3].llapor, &llapor);
    image_place_group(&m, 0, s->components);
    if (!image_allocate(&m))
        fail("no memory");
    fill(&m, &m.layers[3].mlp, &mlp);
    fill(&m, &m.layers[3].llapor, &llapor);
    image_fill_group(&m, 0, &pca);
    image_finish(&m);
    pca_free(&pca);
    return m;
}

static int compare(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static void measure(const struct sizes *z, const struct predict_shape *s, enum sched_predictor kind,
                    uint32_t n_tokens, int rounds)
{
    size_t n = (size_t)n_tokens * s->d_model;
    float *hidden = malloc(n * sizeof *hidden);
    float *gate = calloc((size_t)n_tokens * s->n_experts, sizeof *gate);
    uint32_t *selected = calloc((size_t)n_tokens * s->n_used, sizeof *selected);
    double *p = malloc(s->n_experts * sizeof *p);
    uint64_t *took = malloc((size_t)rounds * sizeof *took);
    struct predictor *q = predictor_new(kind, PREDICT_BACKGROUND, s);
    if (!hidden || !gate || !selected || !p || !took || !q)
        fail("no memory");
    for (size_t i = 0; i < n; i++)
        hidden[i] = (float)(i % 11) - 5;
    const struct predict_seen seen = {.step = 1,
                                      .layer = 1,
                                      .n_tokens = n_tokens,
                                      .hidden = hidden,
                                      .gate = gate,
                                      .selected = selected};
    for (int i = 0; i < rounds; i++) {
        uint64_t start = clock_ns();
        predictor_predict(q, &seen, &(struct predict_target){1, 3}, NULL, p);
        took[i] = clock_ns() - start;
    }
    qsort(took, (size_t)rounds, sizeof *took, compare);
    printf("%-14s %-7s %u tokens: %8.1f us least %8.1f us median\n", z->name,
           kind == PREDICT_MLP ? "mlp" : "llapor", n_tokens, (double)took[0] * 1e-3,
           (double)took[rounds / 2] * 1e-3);
    predictor_free(q);
    free(hidden);
    free(gate);
    free(selected);
    free(p);
    free(took);
}

int main(int argc, char **argv)
{
    static const struct sizes models[] = {
        {"demo", 256, 32, 4, 512, 256, true},
        {"Qwen3-30B-A3B", 2048, 128, 8, 960, 512, true},
        {"Mixtral-8x7B", 4096, 8, 2, 496, 512, true},
    };
    int rounds = argc > 1 ? atoi(argv[1]) : 200;
    if (rounds < 1)
        fail("usage: bench-predictors [ROUNDS]");
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        struct image m = make(&models[i]);
        struct trained_predictors l;
        char why[TRAINED_WHY];
        if (!trained_view(m.bytes, m.end, &l, why))
            fail(why);
        const struct predict_shape s = {.n_layers = LAYERS,
                                        .n_experts = models[i].n_experts,
                                        .n_used = models[i].n_used,
                                        .d_model = models[i].d_model,
                                        .max_tokens = TOKENS,
                                        .trained = &l};
        for (uint32_t n = 1; n <= TOKENS; n *= TOKENS) {
            measure(&models[i], &s, PREDICT_MLP, n, rounds);
            measure(&models[i], &s, PREDICT_LLAPOR, n, rounds);
        }
        image_free(&m);
    }
    return 0;
}
