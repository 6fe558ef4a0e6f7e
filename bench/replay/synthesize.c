/* Synthetic routing; see synthesize.h. */
#include "bench/replay/synthesize.h"

#include "base/checked.h"
#include "mkmodel/random.h"
#include "model/router.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Standard deviation of the logits. With it the first of 128 experts has a probability of about one
 * sixth, as in published models of this shape. The chosen experts do not depend on it. */
#define SHARPNESS 2.0f

/* ---- Parameters ---- */

struct synthesis synthesis_default(void)
{
    return (struct synthesis){
        .model = "synthetic",
        .n_layers = 8,
        .n_experts = 32,
        .n_used = 4,
        .n_tokens = 10000,
        .sequence = 256,
        .prompt = 64,
        .d_model = 32,
        .seed = 1,
        .topics = 8,
        .skew = 0.2,
        .locality = 0.3,
        .predictability = 0.96,
        .topic_strength = 0.1,
        .drift = 0.2,
        .segment_bytes = 1 << 20,
        .n_segments = 1,
        .dense_bytes = 64 << 20,
        .renormalise = true,
    };
}

static enum error_code check_range(const char *name, double value, double least, double most,
                                   struct error *e)
{
    if (value >= least && value <= most)
        return ERROR_OK;
    return error_set(e, ERROR_USAGE, "%s: %.10g is out of range: %.10g to %.10g", name, value,
                     least, most);
}

enum error_code synthesis_check(const struct synthesis *s, struct error *e)
{
    const struct {
        const char *name;
        double value, least, most;
    } limits[] = {
        {"layers", (double)s->n_layers, 1, 1024},
        {"first layer with experts", (double)s->first_layer, 0, (double)s->n_layers - 1},
        {"experts", (double)s->n_experts, 1, ROUTER_MAX_EXPERTS},
        {"experts a token", (double)s->n_used, 1, fmin((double)s->n_experts, 256)},
        {"tokens", (double)s->n_tokens, 1, 1e10},
        {"tokens of a sequence", (double)s->sequence, 1, 65536},
        {"tokens of a prompt", (double)s->prompt, 0, (double)s->sequence},
        {"hidden dimensions", (double)s->d_model, 1, 65536},
        {"topics", (double)s->topics, 1, 65536},
        {"skew", s->skew, 0, 100},
        {"locality", s->locality, -1, 1},
        {"predictability", s->predictability, 0, 1},
        {"topic strength", s->topic_strength, 0, 1},
        {"drift", s->drift, 0, 100},
        {"segments of an expert", (double)s->n_segments, 1, 16},
        {"bytes of a segment", (double)s->segment_bytes, 1, 1e12},
        {"dense bytes", (double)s->dense_bytes, 0, 1e15},
    };
    enum error_code code = ERROR_OK;
    for (size_t i = 0; i < sizeof limits / sizeof *limits && !code; i++)
        code = check_range(limits[i].name, limits[i].value, limits[i].least, limits[i].most, e);
    return code;
}

struct router_params synthesis_router(const struct synthesis *s)
{
    return (struct router_params){.kind = ROUTER_SOFTMAX,
                                  .n_experts = (uint32_t)s->n_experts,
                                  .n_used = (uint32_t)s->n_used,
                                  .renormalise = s->renormalise,
                                  .scale = 1};
}

/* ---- The model ---- */

struct synthesizer {
    struct synthesis of;
    uint32_t n_layers, d;             /* layers with experts */
    float topic_share, own_share;     /* square roots of s and 1 - s */
    float carried, fresh;             /* over tokens: r, sqrt(1 - r^2) */
    float carried_layer, fresh_layer; /* over layers: a, sqrt(1 - a^2) */
    struct trace_layer *layers;       /* [of.n_layers] */
    float *matrices;                  /* [n_layers][n_experts][d] */
    float *biases;                    /* [n_layers][n_experts] */
    float *drifts;                    /* [n_layers][d] */
    /* the current sequence */
    struct random random;
    uint32_t topic;
    bool begun;
    float *means;  /* [n_layers][d]: the topic */
    float *words;  /* [SYNTHESIS_WORDS][d] */
    float *x;      /* [n_layers][d]: of the last token */
    float *h;      /* [d] */
    float *input;  /* [d] */
    float *logits; /* [n_experts] */
    float *noise;  /* [d] */
};

static float *floats(uint64_t a, uint64_t b, uint64_t c)
{
    uint64_t n;
    if (!checked_mul(a, b, &n) || !checked_mul(n, c, &n) || n > SIZE_MAX / sizeof(float))
        return NULL;
    return calloc((size_t)n + 1, sizeof(float));
}

static bool allocate(struct synthesizer *g)
{
    uint64_t n = g->n_layers, experts = g->of.n_experts, d = g->d;
    g->layers = calloc(g->of.n_layers, sizeof *g->layers);
    g->matrices = floats(n, experts, d);
    g->biases = floats(n, experts, 1);
    g->drifts = floats(n, d, 1);
    g->means = floats(n, d, 1);
    g->words = floats(SYNTHESIS_WORDS, d, 1);
    g->x = floats(n, d, 1);
    g->h = floats(d, 1, 1);
    g->input = floats(d, 1, 1);
    g->noise = floats(d, 1, 1);
    g->logits = floats(experts, 1, 1);
    return g->layers && g->matrices && g->biases && g->drifts && g->means && g->words && g->x &&
           g->h && g->input && g->noise && g->logits;
}

/* Fills a vector from the random stream of (seed, name, row). */
static void fill(const struct synthesizer *g, const char *name, uint64_t row, float deviation,
                 float *out, size_t n)
{
    struct random random;
    random_seed(&random, g->of.seed, name, row);
    random_bell(&random, 0, deviation, out, n);
}

static float dot(const float *a, const float *b, uint32_t n)
{
    /* Eight sums in a fixed order: fast, and the same result on every machine. */
    float sum[8] = {0};
    uint32_t i = 0;
    for (; i + 8 <= n; i += 8)
        for (uint32_t k = 0; k < 8; k++)
            sum[k] += a[i + k] * b[i + k];
    for (uint32_t k = 0; i < n; i++, k++)
        sum[k] += a[i] * b[i];
    return ((sum[0] + sum[4]) + (sum[2] + sum[6])) + ((sum[1] + sum[5]) + (sum[3] + sum[7]));
}

/* Gives all rows the same length, so that only the bias makes an expert more frequent. (Of random
 * rows, the longer ones would be chosen more often.) */
static void make_matrix(const struct synthesizer *g, uint32_t layer, float *matrix)
{
    fill(g, "matrix", layer, 1, matrix, g->of.n_experts * g->d);
    for (uint32_t e = 0; e < g->of.n_experts; e++) {
        float *row = matrix + (size_t)e * g->d, length = sqrtf(dot(row, row, g->d));
        for (uint32_t i = 0; i < g->d && length > 0; i++)
            row[i] *= SHARPNESS / length;
    }
}

static void make_gates(struct synthesizer *g)
{
    size_t experts = g->of.n_experts;
    for (uint32_t l = 0; l < g->n_layers; l++) {
        float *matrix = g->matrices + l * experts * g->d, *bias = g->biases + l * experts;
        make_matrix(g, l, matrix);
        fill(g, "bias", l, SHARPNESS * (float)g->of.skew, bias, experts);
        fill(g, "drift", l, (float)g->of.drift, g->drifts + (size_t)l * g->d, g->d);
        g->layers[g->of.first_layer + l] =
            (struct trace_layer){.n_segments = (uint32_t)g->of.n_segments,
                                 .segment_bytes = g->of.segment_bytes,
                                 .matrix = matrix,
                                 .bias = bias};
    }
}

struct synthesizer *synthesizer_new(const struct synthesis *s)
{
    struct synthesizer *g = calloc(1, sizeof *g);
    if (!g)
        return NULL;
    g->of = *s;
    g->n_layers = (uint32_t)(s->n_layers - s->first_layer);
    g->d = (uint32_t)s->d_model;
    g->topic_share = sqrtf((float)s->topic_strength);
    g->own_share = sqrtf(1 - (float)s->topic_strength);
    g->carried = (float)s->locality;
    g->fresh = sqrtf(1 - g->carried * g->carried);
    g->carried_layer = (float)s->predictability;
    g->fresh_layer = sqrtf(1 - g->carried_layer * g->carried_layer);
    if (!allocate(g)) {
        synthesizer_free(g);
        return NULL;
    }
    make_gates(g);
    return g;
}

void synthesizer_free(struct synthesizer *g)
{
    if (!g)
        return;
    free(g->layers);
    free(g->matrices);
    free(g->biases);
    free(g->drifts);
    free(g->means);
    free(g->words);
    free(g->x);
    free(g->h);
    free(g->input);
    free(g->noise);
    free(g->logits);
    free(g);
}

const struct trace_layer *synthesizer_layers(const struct synthesizer *g)
{
    return g->layers;
}

static void topic_mean(const struct synthesizer *g, uint32_t topic, uint32_t layer, float *out)
{
    fill(g, "topic", (uint64_t)topic * g->n_layers + layer, 1, out, g->d);
}

void synthesizer_begin(struct synthesizer *g, uint64_t sequence)
{
    random_seed(&g->random, g->of.seed, "sequence", sequence);
    g->topic = (uint32_t)(random_bits(&g->random) % g->of.topics);
    for (uint32_t l = 0; l < g->n_layers; l++)
        topic_mean(g, g->topic, l, g->means + (size_t)l * g->d);
    for (uint32_t w = 0; w < SYNTHESIS_WORDS; w++)
        fill(g, "word", (uint64_t)g->topic * SYNTHESIS_WORDS + w, 1, g->words + (size_t)w * g->d,
             g->d);
    g->begun = false;
}

static uint32_t nearest_word(const struct synthesizer *g, const float *x)
{
    uint32_t best = 0;
    float most = -INFINITY;
    for (uint32_t w = 0; w < SYNTHESIS_WORDS; w++) {
        float like = dot(g->words + (size_t)w * g->d, x, g->d);
        if (like > most) {
            most = like;
            best = w;
        }
    }
    return best;
}

/* Computes x of this token, then h of this layer. */
static void step_layer(struct synthesizer *g, uint32_t l)
{
    float *x = g->x + (size_t)l * g->d;
    const float *mean = g->means + (size_t)l * g->d, *drift = g->drifts + (size_t)l * g->d;
    random_bell(&g->random, 0, 1, g->noise, g->d);
    for (uint32_t i = 0; i < g->d; i++) {
        x[i] = g->begun ? g->carried * x[i] + g->fresh * g->noise[i] : g->noise[i];
        float u = g->topic_share * mean[i] + g->own_share * x[i];
        g->h[i] = l ? g->carried_layer * g->h[i] + g->fresh_layer * u : u;
        g->input[i] = g->h[i] + drift[i];
    }
}

static void route(struct synthesizer *g, uint32_t l, uint16_t *selected)
{
    uint32_t n = (uint32_t)g->of.n_experts, chosen[256];
    float weights[256];
    struct router_params router = synthesis_router(&g->of);
    const float *matrix = g->matrices + (size_t)l * n * g->d, *bias = g->biases + (size_t)l * n;
    for (uint32_t e = 0; e < n; e++)
        g->logits[e] = dot(matrix + (size_t)e * g->d, g->input, g->d) + bias[e];
    router_select(&router, g->logits, NULL, chosen, weights);
    for (uint32_t k = 0; k < router.n_used; k++)
        selected[k] = (uint16_t)chosen[k];
}

uint32_t synthesizer_next(struct synthesizer *g, uint16_t *selected, float *gate, float *hidden)
{
    size_t n = g->of.n_experts;
    uint32_t word = 0;
    for (uint32_t l = 0; l < g->n_layers; l++) {
        step_layer(g, l);
        if (l == 0)
            word = nearest_word(g, g->x);
        route(g, l, selected + l * g->of.n_used);
        if (gate)
            memcpy(gate + l * n, g->logits, n * sizeof *gate);
        if (hidden)
            memcpy(hidden + (size_t)l * g->d, g->input, g->d * sizeof *hidden);
    }
    g->begun = true;
    return g->topic * SYNTHESIS_WORDS + word;
}

void synthesizer_embedding(const struct synthesizer *g, uint32_t id, float *embedding)
{
    topic_mean(g, id / SYNTHESIS_WORDS, 0, embedding);
    struct random random;
    random_seed(&random, g->of.seed, "word", id);
    for (uint32_t i = 0; i < g->d; i++) {
        float word;
        random_bell(&random, 0, 1, &word, 1);
        embedding[i] = g->topic_share * embedding[i] + g->own_share * word;
    }
}
