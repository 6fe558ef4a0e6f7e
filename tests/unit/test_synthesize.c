/* bench/replay/synthesize*.c: made-up traces have the requested correlations, each parameter has
 * its documented effect, and the same seed gives the same bytes. */
#include "bench/replay/synthesize.h"
#include "model/router.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

enum { LAYERS = 4, EXPERTS = 32, USED = 4, WIDTH = 32 };

static struct synthesis small(void)
{
    struct synthesis s = synthesis_default();
    s.n_layers = LAYERS;
    s.n_experts = EXPERTS;
    s.n_used = USED;
    s.d_model = WIDTH;
    s.n_tokens = 2048;
    s.sequence = 256;
    return s;
}

/* Everything of a synthesis. */
struct made {
    uint32_t n_tokens;
    uint32_t *ids;      /* [n_tokens] */
    uint16_t *selected; /* [n_tokens][LAYERS][USED] */
    float *hidden;      /* [n_tokens][LAYERS][WIDTH] */
};

static struct made make(const struct synthesis *s)
{
    struct made m = {.n_tokens = (uint32_t)s->n_tokens};
    struct synthesizer *g = synthesizer_new(s);
    m.ids = calloc(m.n_tokens, sizeof *m.ids);
    m.selected = calloc((size_t)m.n_tokens * LAYERS * USED, sizeof *m.selected);
    m.hidden = calloc((size_t)m.n_tokens * LAYERS * WIDTH, sizeof *m.hidden);
    assert_true(g && m.ids && m.selected && m.hidden);
    for (uint32_t t = 0; t < m.n_tokens; t++) {
        if (t % s->sequence == 0)
            synthesizer_begin(g, t / s->sequence);
        m.ids[t] = synthesizer_next(g, m.selected + (size_t)t * LAYERS * USED, NULL,
                                    m.hidden + (size_t)t * LAYERS * WIDTH);
    }
    synthesizer_free(g);
    return m;
}

static void drop(struct made *m)
{
    free(m->ids);
    free(m->selected);
    free(m->hidden);
}

static const float *hidden_at(const struct made *m, uint32_t t, uint32_t l)
{
    return m->hidden + ((size_t)t * LAYERS + l) * WIDTH;
}

static const uint16_t *selected_at(const struct made *m, uint32_t t, uint32_t l)
{
    return m->selected + ((size_t)t * LAYERS + l) * USED;
}

/* ---- The latent state ---- */

static double mean_product(const float *a, const float *b)
{
    double sum = 0;
    for (uint32_t i = 0; i < WIDTH; i++)
        sum += (double)a[i] * b[i];
    return sum / WIDTH;
}

/* The covariance of gate inputs `tokens` and `layers` apart, in the same sequence. */
static double covariance(const struct made *m, uint32_t sequence, uint32_t tokens, uint32_t layers)
{
    double sum = 0;
    uint32_t n = 0;
    for (uint32_t t = 0; t + tokens < m->n_tokens; t++)
        for (uint32_t l = 0; l + layers < LAYERS; l++)
            if (t / sequence == (t + tokens) / sequence) {
                sum += mean_product(hidden_at(m, t, l), hidden_at(m, t + tokens, l + layers));
                n++;
            }
    return sum / n;
}

/* With x an autoregressive process of coefficient r, s the topic's share and a the layers'
 * correlation (synthesize.h): variance 1; k tokens apart s + (1 - s) r^k, for topics of mean square
 * 1; k layers apart a^k. 64,000 numbers: the standard error is below 0.01, but there are only 8 x 4
 * topic vectors of 32 numbers, which adds 0.03 for s = 0.3. */
static void test_correlations(void **state)
{
    struct synthesis s = small();
    s.drift = 0;
    s.skew = 0;
    s.locality = 0.6;
    s.topic_strength = 0;
    s.predictability = 0.8;
    struct made m = make(&s);
    assert_true(fabs(covariance(&m, 256, 0, 0) - 1) < 0.03);
    assert_true(fabs(covariance(&m, 256, 1, 0) - 0.6) < 0.03);
    assert_true(fabs(covariance(&m, 256, 2, 0) - 0.36) < 0.03);
    assert_true(fabs(covariance(&m, 256, 30, 0)) < 0.03);
    assert_true(fabs(covariance(&m, 256, 0, 1) - 0.8) < 0.03);
    assert_true(fabs(covariance(&m, 256, 0, 2) - 0.64) < 0.03);
    drop(&m);
    s.topic_strength = 0.3;
    s.topics = 1000;
    s.sequence = 16;
    m = make(&s);
    assert_true(fabs(covariance(&m, 16, 0, 0) - 1) < 0.06);
    assert_true(fabs(covariance(&m, 16, 12, 0) - 0.3) < 0.06);
    drop(&m);
    s.topic_strength = 0;
    s.locality = -0.4;
    m = make(&s);
    assert_true(fabs(covariance(&m, 16, 1, 0) + 0.4) < 0.03);
    drop(&m);
}

/* ---- The choices ---- */

static uint32_t overlap(const uint16_t *a, const uint16_t *b)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < USED; i++)
        for (uint32_t k = 0; k < USED; k++)
            n += a[i] == b[k];
    return n;
}

/* Share of a token's experts that the one `apart` tokens earlier in its sequence had too. */
static double repeated(const struct made *m, uint32_t sequence, uint32_t apart)
{
    double sum = 0;
    uint32_t n = 0;
    for (uint32_t t = apart; t < m->n_tokens; t++)
        for (uint32_t l = 0; l < LAYERS && t % sequence >= apart; l++, n++)
            sum += overlap(selected_at(m, t, l), selected_at(m, t - apart, l));
    return sum / n / USED;
}

/* Share of the choices that fall on a layer's eight most chosen experts, of 32. */
static double top_quarter(const struct made *m)
{
    double sum = 0;
    for (uint32_t l = 0; l < LAYERS; l++) {
        uint32_t counts[EXPERTS] = {0};
        for (uint32_t t = 0; t < m->n_tokens; t++)
            for (uint32_t k = 0; k < USED; k++)
                counts[selected_at(m, t, l)[k]]++;
        for (int i = 0; i < EXPERTS / 4; i++) {
            uint32_t best = 0;
            for (uint32_t e = 1; e < EXPERTS; e++)
                best = counts[e] > counts[best] ? e : best;
            sum += counts[best];
            counts[best] = 0;
        }
    }
    return sum / ((double)m->n_tokens * USED * LAYERS);
}

static void test_skew(void **state)
{
    double before = 0;
    for (int i = 0; i < 5; i++) {
        struct synthesis s = small();
        s.topic_strength = 0;
        s.drift = 0;
        s.locality = 0;
        s.skew = 0.25 * i;
        struct made m = make(&s);
        double share = top_quarter(&m);
        if (i == 0)
            assert_true(share < 0.28); /* no common experts: a quarter, and the noise of counting */
        else
            assert_true(share > before + 0.03);
        before = share;
        drop(&m);
    }
}

static void test_locality(void **state)
{
    double before = 0;
    for (int i = 0; i < 5; i++) {
        struct synthesis s = small();
        s.topic_strength = 0;
        s.drift = 0;
        s.skew = 0;
        s.locality = 0.24 * i;
        struct made m = make(&s);
        double share = repeated(&m, 256, 1);
        if (i == 0)
            assert_true(fabs(share - (double)USED / EXPERTS) < 0.015);
        else
            assert_true(share > before + 0.03);
        before = share;
        drop(&m);
    }
}

/* Distant tokens have only the topic in common. */
static void test_topics(void **state)
{
    double before = 0;
    for (int i = 0; i < 4; i++) {
        struct synthesis s = small();
        s.drift = 0;
        s.skew = 0;
        s.locality = 0.2;
        s.topic_strength = 0.25 * i;
        struct made m = make(&s);
        double share = repeated(&m, 256, 100);
        assert_true(i ? share > before + 0.03 : fabs(share - (double)USED / EXPERTS) < 0.015);
        before = share;
        drop(&m);
    }
}

/* ---- Prediction ---- */

/* Share of a layer's experts that its gate chooses from the gate input of the layer before, plus
 * `step`. */
static double predicted_routing(const struct synthesis *s, const struct made *m,
                                float step[LAYERS][WIDTH])
{
    struct synthesizer *g = synthesizer_new(s);
    struct router_params router = synthesis_router(s);
    const struct trace_layer *layers = synthesizer_layers(g);
    double sum = 0;
    uint32_t n = 0;
    for (uint32_t t = 0; t < m->n_tokens; t += 4)
        for (uint32_t l = 1; l < LAYERS; l++, n++) {
            float logits[EXPERTS], weights[USED], input[WIDTH];
            uint32_t chosen[USED];
            uint16_t narrow[USED];
            for (uint32_t i = 0; i < WIDTH; i++)
                input[i] = hidden_at(m, t, l - 1)[i] + step[l][i];
            for (uint32_t e = 0; e < EXPERTS; e++) {
                logits[e] = layers[l].bias[e];
                for (uint32_t i = 0; i < WIDTH; i++)
                    logits[e] += layers[l].matrix[e * WIDTH + i] * input[i];
            }
            router_select(&router, logits, NULL, chosen, weights);
            for (uint32_t k = 0; k < USED; k++)
                narrow[k] = (uint16_t)chosen[k];
            sum += overlap(narrow, selected_at(m, t, l));
        }
    synthesizer_free(g);
    return sum / n / USED;
}

static void test_predictability(void **state)
{
    static float none[LAYERS][WIDTH];
    double before = 0;
    for (int i = 0; i <= 5; i++) {
        struct synthesis s = small();
        s.drift = 0;
        s.skew = 0;
        s.predictability = 0.2 * i;
        struct made m = make(&s);
        double share = predicted_routing(&s, &m, none);
        if (i == 0)
            assert_true(share < 0.16); /* nothing in common: chance, 0.125 */
        else if (i == 5)
            assert_true(share == 1);
        else
            assert_true(share > before + 0.02);
        before = share;
        drop(&m);
    }
}

/* `residual` trains on the mean step from a layer's gate input to the next layer's, and so
 * compensates the drift. */
static void test_drift(void **state)
{
    static float none[LAYERS][WIDTH];
    float mean[LAYERS][WIDTH] = {{0}};
    struct synthesis s = small();
    s.drift = 0.5;
    struct made m = make(&s);
    for (uint32_t t = 0; t < m.n_tokens; t++)
        for (uint32_t l = 1; l < LAYERS; l++)
            for (uint32_t i = 0; i < WIDTH; i++)
                mean[l][i] +=
                    (hidden_at(&m, t, l)[i] - hidden_at(&m, t, l - 1)[i]) / (float)m.n_tokens;
    assert_true(predicted_routing(&s, &m, mean) > predicted_routing(&s, &m, none) + 0.1);
    drop(&m);
}

/* The stored embedding of a token resembles its own latent state more than another topic's. */
static void test_embeddings(void **state)
{
    struct synthesis s = small();
    s.drift = 0;
    s.topic_strength = 0.5;
    struct made m = make(&s);
    struct synthesizer *g = synthesizer_new(&s);
    float embedding[WIDTH];
    double own = 0, other = 0;
    uint32_t n = 0;
    for (uint32_t t = 0; t < m.n_tokens; t++) {
        uint32_t far = (t + 1000) % m.n_tokens;
        assert_true(m.ids[t] < s.topics * SYNTHESIS_WORDS);
        assert_int_equal(m.ids[t] / SYNTHESIS_WORDS, m.ids[t - t % 256] / SYNTHESIS_WORDS);
        if (m.ids[t] / SYNTHESIS_WORDS == m.ids[far] / SYNTHESIS_WORDS)
            continue;
        synthesizer_embedding(g, m.ids[t], embedding);
        own += mean_product(embedding, hidden_at(&m, t, 0));
        other += mean_product(embedding, hidden_at(&m, far, 0));
        n++;
    }
    assert_true(n > 100);
    assert_true(own / n > 0.5 && fabs(other / n) < 0.2);
    synthesizer_free(g);
    drop(&m);
}

/* ---- Files ---- */

static void temporary(char path[64])
{
    snprintf(path, 64, "/tmp/moed-test-synthesize-XXXXXX");
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
}

static char *read_all(const char *path, size_t *n)
{
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    char *bytes = malloc(1 << 24);
    *n = fread(bytes, 1, 1 << 24, f);
    assert_true(*n > 0 && *n < 1 << 24);
    fclose(f);
    return bytes;
}

static void test_same_seed(void **state)
{
    char path[3][64];
    char *bytes[3];
    size_t n[3];
    struct error e;
    for (int i = 0; i < 3; i++) {
        struct synthesis s = small();
        s.n_tokens = 300;
        s.seed = i == 2 ? 2 : 1;
        temporary(path[i]);
        if (synthesize(&s, path[i], &e))
            fail_msg("%s", e.text);
        bytes[i] = read_all(path[i], &n[i]);
        unlink(path[i]);
    }
    assert_true(n[0] == n[1] && memcmp(bytes[0], bytes[1], n[0]) == 0);
    assert_true(n[0] != n[2] || memcmp(bytes[0], bytes[2], n[0]) != 0);
    for (int i = 0; i < 3; i++)
        free(bytes[i]);
}

/* A trace reads back as it was written: the shape, the choices, and the gate inputs in half
 * precision. */
static void test_file(void **state)
{
    struct synthesis s = small();
    struct error e;
    struct trace *t;
    char path[64];
    s.n_tokens = 600; /* two sequences and a part */
    s.n_layers = LAYERS + 1;
    s.first_layer = 1;
    temporary(path);
    if (synthesize(&s, path, &e) || trace_open(path, &t, &e))
        fail_msg("%s", e.text);
    struct made m = make(&s);
    const struct trace_shape *shape = trace_shape(t);
    assert_int_equal(shape->n_layers, LAYERS + 1);
    assert_int_equal(shape->first_layer, 1);
    assert_int_equal(shape->d_model, WIDTH);
    assert_int_equal(shape->has, TRACE_GATE | TRACE_EMBEDDINGS | TRACE_HIDDEN | TRACE_ROUTERS);
    assert_int_equal(trace_sequences(t), 3);
    assert_int_equal(trace_tokens(t), 600);
    assert_int_equal(trace_sequence(t, 2)->n_tokens, 88);
    assert_int_equal(trace_sequence(t, 0)->n_prompt, 64);
    assert_int_equal(trace_layer(t, 1)->segment_bytes, s.segment_bytes);
    for (uint32_t i = 0; i < 600; i++) {
        uint32_t sequence = i / 256, token = i % 256, selected[USED];
        float hidden[WIDTH], gate[EXPERTS], embedding[WIDTH];
        assert_int_equal(trace_sequence(t, sequence)->tokens[token], m.ids[i]);
        assert_true(trace_embedding(t, m.ids[i], embedding));
        for (uint32_t l = 0; l < LAYERS; l++) {
            trace_selected(t, sequence, token, l + 1, selected);
            assert_true(trace_hidden(t, sequence, token, l + 1, hidden));
            assert_true(trace_gate(t, sequence, token, l + 1, gate));
            for (uint32_t k = 0; k < USED; k++) {
                assert_int_equal(selected[k], selected_at(&m, i, l)[k]);
                assert_true(k == 0 || gate[selected[k]] <= gate[selected[k - 1]]);
            }
            for (uint32_t k = 0; k < WIDTH; k++)
                assert_true(fabsf(hidden[k] - hidden_at(&m, i, l)[k]) < 4e-3f);
        }
    }
    drop(&m);
    trace_close(t);
    unlink(path);
}

/* ---- Parameters ---- */

static void test_wrong_parameters(void **state)
{
    struct error e;
    struct synthesis s = small();
    assert_int_equal(synthesis_check(&s, &e), ERROR_OK);
#define ASSERT_WRONG(member, value, word)                                                          \
    do {                                                                                           \
        s = small();                                                                               \
        s.member = value;                                                                          \
        assert_int_equal(synthesis_check(&s, &e), ERROR_USAGE);                                    \
        assert_non_null(strstr(e.text, word));                                                     \
    } while (0)
    ASSERT_WRONG(n_layers, 0, "layers");
    ASSERT_WRONG(first_layer, LAYERS, "first layer");
    ASSERT_WRONG(n_experts, 5000, "experts");
    ASSERT_WRONG(n_used, EXPERTS + 1, "experts a token");
    ASSERT_WRONG(n_used, 0, "experts a token");
    ASSERT_WRONG(prompt, 257, "prompt");
    ASSERT_WRONG(d_model, 0, "hidden");
    ASSERT_WRONG(topics, 0, "topics");
    ASSERT_WRONG(skew, -1, "skew");
    ASSERT_WRONG(skew, NAN, "skew");
    ASSERT_WRONG(locality, 1.01, "locality");
    ASSERT_WRONG(predictability, -0.1, "predictability");
    ASSERT_WRONG(topic_strength, 2, "topic strength");
    ASSERT_WRONG(n_segments, 17, "segments");
    ASSERT_WRONG(segment_bytes, 0, "segment");
    ASSERT_WRONG(n_tokens, 0, "tokens");
    s = small();
    s.n_used = 0;
    assert_int_equal(synthesize(&s, "/nowhere/at/all", &e), ERROR_USAGE);
    s = small();
    assert_int_not_equal(synthesize(&s, "/nowhere/at/all", &e), ERROR_OK);
}

/* Qwen3-30B-A3B by hand: 3 x 2048 x 768 weights of 4.5 bits are 2,654,208 bytes, more than 2 MiB;
 * the widths of 768 are cut in two parts of 384, which is 12 blocks. All experts: 48 x 128 x
 * 2,654,208 = 16.3 GB. */
static void test_models(void **state)
{
    struct synthesis s = synthesis_default();
    struct error e;
    assert_true(synthesis_like("qwen3-30b", &s));
    assert_int_equal(s.n_layers, 48);
    assert_int_equal(s.n_experts, 128);
    assert_int_equal(s.n_used, 8);
    assert_int_equal(s.n_segments, 2);
    assert_int_equal(s.segment_bytes, 1327104);
    assert_int_equal(s.dense_bytes, 691875000); /* 1.23e9 x 4.5 / 8 */
    assert_false(synthesis_like("nothing", &s));
    char names[512];
    snprintf(names, sizeof names, "%s", synthesis_models());
    int n = 0;
    for (char *name = strtok(names, ", "); name; name = strtok(NULL, ", "), n++) {
        s = synthesis_default();
        assert_true(synthesis_like(name, &s));
        assert_int_equal(synthesis_check(&s, &e), ERROR_OK);
        /* the widest are cut as finely as whole blocks allow: Phi-3.5's 200 blocks in ten */
        assert_true(s.n_segments >= 10 || s.segment_bytes <= 2 << 20);
    }
    assert_true(n >= 7);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_correlations),   cmocka_unit_test(test_skew),
        cmocka_unit_test(test_locality),       cmocka_unit_test(test_topics),
        cmocka_unit_test(test_predictability), cmocka_unit_test(test_drift),
        cmocka_unit_test(test_embeddings),     cmocka_unit_test(test_same_seed),
        cmocka_unit_test(test_file),           cmocka_unit_test(test_wrong_parameters),
        cmocka_unit_test(test_models),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
