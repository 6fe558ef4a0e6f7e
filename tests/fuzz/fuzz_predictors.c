/* Fuzz target of trained predictors: any bytes as a file. If a file is accepted, its predictors
 * give probabilities for every layer and read nothing outside of it. */
#include "sched/predict/trained_net.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MOST = 1 << 16, TOKENS = 2 };

static void require(bool holds)
{
    if (!holds)
        abort();
}

static void check_probabilities(const double *p, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        require(p[i] >= 0 && p[i] <= 1);
}

/* Predicts each layer as the worker would. */
static void use(const struct predict_shape *s, enum sched_predictor kind)
{
    float *hidden = calloc((size_t)TOKENS * s->d_model, sizeof *hidden);
    float *gate = calloc((size_t)TOKENS * s->n_experts, sizeof *gate);
    uint32_t *selected = calloc((size_t)TOKENS * s->n_used, sizeof *selected);
    double *p = calloc(s->n_experts, sizeof *p);
    struct predictor *q = predictor_new(kind, PREDICT_BACKGROUND, s);
    require(hidden && gate && selected && p && q);
    for (size_t i = 0; i < (size_t)TOKENS * s->d_model; i++)
        hidden[i] = (float)(i % 7) - 3;
    struct predict_traits traits = predictor_traits(kind, s);
    struct predict_token tokens[TOKENS];
    /* the MTP reads the step before */
    for (uint32_t step = 1; step <= (kind == PREDICT_MTP ? 2u : 1u); step++) {
        for (uint32_t i = 0; i < TOKENS; i++)
            tokens[i] = (struct predict_token){.request = i, .position = step, .id = i};
        struct predict_seen seen = {.step = step,
                                    .layer = PREDICT_EMBEDDING,
                                    .n_tokens = TOKENS,
                                    .tokens = tokens,
                                    .hidden = hidden};
        if (traits.reads & PREDICT_READS_EMBEDDING)
            predictor_observe(q, &seen);
        seen.gate = gate;
        seen.selected = selected;
        for (seen.layer = s->first_layer; seen.layer < s->n_layers; seen.layer++) {
            struct predict_target target;
            predictor_observe(q, &seen);
            if (!predict_target(&traits, s, step, seen.layer, 0, &target))
                continue;
            predictor_predict(q, &seen, &target, NULL, p);
            check_probabilities(p, s->n_experts);
        }
    }
    predictor_free(q);
    free(hidden);
    free(gate);
    free(selected);
    free(p);
}

static void use_residual(const struct predict_shape *s)
{
    struct predictor *line = predictor_new(PREDICT_RESIDUAL, PREDICT_IN_LINE, s);
    struct predictor *background = predictor_new(PREDICT_RESIDUAL, PREDICT_BACKGROUND, s);
    float *hidden = calloc(s->d_model, sizeof *hidden), *out = calloc(s->d_model, sizeof *out);
    require(line && background && hidden && out);
    for (uint32_t layer = s->first_layer; layer < s->n_layers; layer++) {
        const struct predict_seen seen = {
            .step = 1, .layer = layer, .n_tokens = 1, .hidden = hidden};
        const float *x = predictor_gate_input(line, &seen, out);
        require(isfinite(x[s->d_model - 1]));
    }
    predictor_free(line);
    predictor_free(background);
    free(hidden);
    free(out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct trained_predictors l;
    char why[TRAINED_WHY] = "";
    /* an aligned copy, so that a sanitizer sees a read past the end */
    unsigned char *bytes = malloc(size ? size : 1);
    require(bytes != NULL && (uintptr_t)bytes % 16 == 0);
    if (size)
        memcpy(bytes, data, size);
    if (!trained_view(bytes, size, &l, why)) {
        require(why[0] && !strchr(why, '\n'));
        free(bytes);
        return 0;
    }
    trained_is_intact(&l);
    const struct trained_header *h = &l.header;
    struct predict_shape s = {.n_layers = h->n_layers,
                              .first_layer = h->first_layer,
                              .n_experts = h->n_experts,
                              .n_used = h->n_used,
                              .d_model = h->d_model,
                              .max_tokens = TOKENS,
                              .trained = &l};
    if ((uint64_t)s.n_layers * s.d_model <= MOST && s.n_experts <= 64) {
        use_residual(&s);
        use(&s, PREDICT_MLP);
        use(&s, PREDICT_MTP);
        s.fine_tune = true;
        use(&s, PREDICT_LLAPOR);
    }
    free(bytes);
    return 0;
}
