/* route and gate of the CUDA module, compared to the bit with model/router.c; largest, with a sort.
 */
#include "tests/unit/kernel_cases.h"

#include "model/router.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "on_device.h"

enum logits {
    LOGITS_USUAL,
    LOGITS_EQUAL,   /* few different values, so that many are equal */
    LOGITS_EXTREME, /* far apart, zeros of both signs, infinities */
    LOGITS_NAN,     /* some are NaN */
    N_LOGITS
};

static float random_logit(enum logits kind, uint64_t *state)
{
    static const float extreme[] = {0, -0.0f, 1e-40f, 80, -80, 3e38f, -3e38f, -INFINITY};
    float f = random_float(state);

    switch (kind) {
    case LOGITS_EQUAL:
        return (float)(int)(f * 2.9f);
    case LOGITS_EXTREME:
        return f > 0 ? f * 100 : extreme[random_u64(state) / 1024 % 8];
    case LOGITS_NAN:
        return f > 0.8f ? NAN : f;
    default:
        return f * 4;
    }
}

static float *random_logits(size_t n, enum logits kind, uint64_t seed)
{
    uint64_t state = seed * 2 + 1;
    float *f = malloc(n * sizeof *f);

    for (size_t i = 0; i < n; i++)
        f[i] = random_logit(kind, &state);
    return f;
}

static void check_route(const struct router_params *p, uint32_t n, enum logits kind, bool bias)
{
    size_t n_logits = (size_t)n * p->n_experts, n_selected = (size_t)n * p->n_used;
    float *logits = random_logits(n_logits, kind, n + p->n_experts),
          *selection_bias = random_logits(p->n_experts, LOGITS_USUAL, 3);
    float *expected_weights = malloc(n_selected * sizeof(float)),
          *weights = malloc(n_selected * sizeof(float));
    uint32_t *expected = malloc(n_selected * sizeof *expected),
             *selected = malloc(n_selected * sizeof *selected);
    float *probabilities = malloc(n_logits * sizeof(float));
    struct device_router r = {p->kind,     p->n_experts,      p->n_used,
                              p->n_groups, p->n_groups_used,  p->renormalise,
                              p->scale,    p->weight_sum_eps, p->weight_sum_least};
    float *device_logits = to_device(logits, n_logits * sizeof *logits),
          *device_weights = on_device(n_selected * 4);
    uint32_t *device_selected = on_device(n_selected * 4);
    char what[96];

    const struct device_gate gate = {
        .router = r,
        .logits = device_logits,
        .selection_bias =
            bias ? to_device(selection_bias, p->n_experts * sizeof *selection_bias) : NULL,
        .selected = device_selected,
        .weights = device_weights};
    module->ops.route(stream, &gate, n);
    for (uint32_t t = 0; t < n; t++)
        router_select(p, logits + (size_t)t * p->n_experts, bias ? selection_bias : NULL,
                      expected + (size_t)t * p->n_used, expected_weights + (size_t)t * p->n_used);
    from_device(selected, device_selected, n_selected * 4);
    from_device(weights, device_weights, n_selected * 4);
    from_device(probabilities, device_logits, n_logits * 4);
    snprintf(what, sizeof what, "kind %d, %u of %u experts, %u groups, logits %d", p->kind,
             p->n_used, p->n_experts, p->n_groups, kind);
    for (size_t i = 0; i < n_selected; i++)
        if (selected[i] != expected[i])
            fail_msg("%s: rank %zu is expert %u, expected %u", what, i, selected[i], expected[i]);
    assert_same_floats(weights, expected_weights, n_selected, what);
    assert_same_floats(probabilities, logits, n_logits, what);
    free(probabilities);
    free(selected);
    free(expected);
    free(weights);
    free(expected_weights);
    free(selection_bias);
    free(logits);
    release_all();
}

static void check_kinds(struct router_params p, uint32_t n, enum logits kind)
{
    for (p.kind = ROUTER_SOFTMAX; p.kind <= ROUTER_SPARSE_MIXER; p.kind++) {
        p.renormalise = (p.kind + n) % 2 != 0;
        p.weight_sum_eps = n == 1 ? 0 : 1e-6f;
        p.weight_sum_least = n == 3 ? 0 : 1e-5f;
        check_route(&p, n, kind, n % 3 == 0);
    }
}

static void test_route(void **state)
{
    (void)state;
    static const uint32_t shapes[][2] = {{1, 1},   {2, 1},   {8, 2},    {16, 2},
                                         {17, 17}, {60, 4},  {64, 6},   {100, 33},
                                         {128, 8}, {256, 8}, {512, 10}, {4096, 20}};
    for (unsigned s = 0; s < 12; s++)
        for (int kind = 0; kind < N_LOGITS; kind++)
            for (uint32_t n = 1; n <= (shapes[s][0] > 512 ? 1u : 33u); n += n == 1 ? 2 : 30) {
                struct router_params p = {
                    .n_experts = shapes[s][0], .n_used = shapes[s][1], .scale = 2.5f};
                check_kinds(p, n, kind);
            }
}

static void test_route_groups(void **state)
{
    (void)state;
    /* experts, used, groups, groups used */
    static const uint32_t shapes[][4] = {
        {256, 8, 8, 4}, {64, 6, 8, 3}, {160, 6, 8, 3}, {16, 2, 16, 5}, {512, 4, 256, 200}};
    for (unsigned s = 0; s < 5; s++)
        for (int kind = 0; kind < N_LOGITS; kind++)
            for (int bias = 0; bias < 2; bias++) {
                struct router_params p = {ROUTER_SOFTMAX,
                                          shapes[s][0],
                                          shapes[s][1],
                                          shapes[s][2],
                                          shapes[s][3],
                                          bias,
                                          1,
                                          1e-20f,
                                          0};
                check_route(&p, 5, kind, bias);
                p.kind = ROUTER_SIGMOID;
                check_route(&p, 5, kind, bias);
            }
}

/* ---- gate ---- */

struct gate_case {
    enum tensor_type type;
    uint32_t n_experts, n_used, cols, n;
    bool biased, scaled, other;
};

static struct matrix random_matrix(enum tensor_type type, uint32_t rows, uint32_t cols)
{
    uint8_t *file = random_rows(type, rows, cols, WEIGHTS_USUAL, rows + cols);
    struct matrix m = tiles_of(type, rows, cols, file);
    free(file);
    return m;
}

static struct matrix copy_to_device(const struct matrix *m)
{
    struct matrix there = *m;
    there.tiles = to_device(m->tiles, tile_matrix_bytes(m->type, m->rows, m->cols));
    return there;
}

/* Twice: the first call leaves the scratch ready for the next. */
static void check_gate(const struct gate_case *c)
{
    bool quantize = tensor_type_info(c->type)->block_values > 1;
    struct router_params p = {.kind = ROUTER_SOFTMAX,
                              .n_experts = c->n_experts,
                              .n_used = c->n_used,
                              .renormalise = true,
                              .scale = 1.5f};
    struct matrix m = random_matrix(c->type, c->n_experts, c->cols),
                  one = random_matrix(c->type, 1, c->cols);
    struct matrix m_there = copy_to_device(&m), one_there = copy_to_device(&one);
    struct inputs_of in = make_inputs(portable, c->cols, c->n, INPUTS_USUAL, c->n);
    size_t n_logits = (size_t)c->n * c->n_experts, n_selected = (size_t)c->n * c->n_used;
    float *logits = malloc(n_logits * sizeof *logits), *got = malloc(n_logits * sizeof *got),
          *weights = malloc(n_selected * sizeof *weights), *by = malloc(c->n * sizeof *by);
    float *bias = random_logits(c->n_experts, LOGITS_USUAL, 3),
          *scales = random_logits(c->n_experts, LOGITS_USUAL, 4);
    uint32_t *selected = malloc(n_selected * sizeof *selected),
             *got_selected = malloc(n_selected * sizeof *got_selected);
    struct device_activations a;
    size_t scratch_bytes = module->ops.gate_scratch_bytes(c->n_experts, c->cols);
    struct device_gate gate = {.router_weights = &m_there,
                               .bias = c->biased ? to_device(bias, c->n_experts * 4) : NULL,
                               .router = {p.kind, p.n_experts, p.n_used, 0, 0, true, p.scale, 0, 0},
                               .expert_scales =
                                   c->scaled ? to_device(scales, c->n_experts * 4) : NULL,
                               .logits = on_device(n_logits * 4),
                               .selected = on_device(n_selected * 4),
                               .weights = on_device(n_selected * 4),
                               .other = c->other ? &one_there : NULL,
                               .other_out = on_device(c->n * 4),
                               .scratch = on_device(scratch_bytes)};

    module->fill(stream, gate.scratch, 0, scratch_bytes);
    module->ops.activations_bind(&a, on_device(module->ops.activations_bytes(c->cols, c->n)),
                                 c->cols, c->n, to_device(in.x, c->n * in.a.x_stride * 4),
                                 in.a.x_stride, quantize);
    if (quantize)
        module->ops.quantize(stream, &a);
    portable->multiply(&m, 0, tile_row_count(m.rows), &in.a, NULL, c->n, logits, c->n_experts,
                       false);
    portable->multiply(&one, 0, 1, &in.a, NULL, c->n, by, 1, false);
    for (uint32_t t = 0; t < c->n; t++) {
        if (c->biased)
            portable->add(bias, logits + (size_t)t * c->n_experts, c->n_experts);
        router_select(&p, logits + (size_t)t * c->n_experts, NULL, selected + t * c->n_used,
                      weights + t * c->n_used);
    }
    for (size_t i = 0; i < n_selected && c->scaled; i++)
        weights[i] *= scales[selected[i]];
    for (int round = 0; round < 2; round++) {
        module->ops.gate(stream, &gate, &a);
        from_device(got, gate.logits, n_logits * 4);
        assert_same_floats(got, logits, n_logits, "the gate's probabilities");
        from_device(got_selected, gate.selected, n_selected * 4);
        assert_memory_equal(got_selected, selected, n_selected * 4);
        from_device(got, gate.weights, n_selected * 4);
        assert_same_floats(got, weights, n_selected, "the gate's weights");
        from_device(got, gate.other_out, c->n * 4);
        if (c->other)
            assert_same_floats(got, by, c->n, "the other matrix");
        module->fill(stream, gate.logits, 0xff, n_logits * 4);
        module->fill(stream, gate.selected, 0xff, n_selected * 4);
    }
    void *all[] = {
        logits,           got, weights, by, bias, scales, selected, got_selected, (void *)m.tiles,
        (void *)one.tiles};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]);
    free_inputs(&in);
    release_all();
}

static void test_gate(void **state)
{
    (void)state;
    static const struct gate_case cases[] = {
        {TENSOR_F32, 128, 8, 2048, 1, false, false, false},
        {TENSOR_F32, 60, 4, 300, 3, true, true, true},
        {TENSOR_F16, 16, 2, 256, 8, true, false, true},
        {TENSOR_BF16, 33, 5, 513, 2, false, true, true},
        {TENSOR_BF16, 512, 10, 640, 1, true, false, true},
        {TENSOR_F32, 4096, 20, 64, 1, false, false, true}, /* a warp's rows fill the memory */
        {TENSOR_F32, 128, 8, 320, 9, true, true, true},    /* in steps */
        {TENSOR_Q8_0, 64, 6, 512, 2, true, false, true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        check_gate(&cases[i]);
}

struct place {
    float value;
    uint32_t place;
};

static int before(const void *a, const void *b)
{
    const struct place *x = a, *y = b;

    if (x->value != y->value)
        return x->value > y->value ? -1 : 1;
    return x->place < y->place ? -1 : 1;
}

static void check_rows(const float *logits, uint32_t n, uint32_t vocab, uint32_t k)
{
    float *values = malloc((size_t)n * k * sizeof *values),
          *device_values = on_device((size_t)n * k * sizeof *values);
    uint32_t *places = malloc((size_t)n * k * sizeof *places),
             *device_places = on_device((size_t)n * k * sizeof *places);
    struct place *sorted = malloc(vocab * sizeof *sorted);

    module->ops.largest(stream, to_device(logits, (size_t)n * vocab * sizeof *logits), n, vocab, k,
                        device_values, device_places,
                        on_device(module->ops.largest_scratch_bytes(n, vocab, k)));
    from_device(values, device_values, (size_t)n * k * sizeof *values);
    from_device(places, device_places, (size_t)n * k * sizeof *places);
    for (uint32_t t = 0; t < n; t++) {
        for (uint32_t i = 0; i < vocab; i++) {
            float logit = logits[(size_t)t * vocab + i];
            sorted[i] = (struct place){isnan(logit) ? -INFINITY : logit, i};
        }
        qsort(sorted, vocab, sizeof *sorted, before);
        for (uint32_t i = 0; i < k; i++) {
            if (places[(size_t)t * k + i] != sorted[i].place)
                fail_msg("row %u of %u logits: rank %u of %u is at %u, expected %u", t, vocab, i, k,
                         places[(size_t)t * k + i], sorted[i].place);
            assert_same_floats(&values[(size_t)t * k + i], &sorted[i].value, 1, "value");
        }
    }
    free(sorted);
    free(places);
    free(values);
    release_all();
}

static void test_largest(void **state)
{
    (void)state;
    static const uint32_t vocabs[] = {256, 300, 511, 512, 513, 2048, 32000, 151937};
    static const uint32_t ks[] = {1, 2, 40, 255, 256};
    for (int v = 0; v < 8; v++)
        for (int kind = 0; kind < N_LOGITS; kind++) {
            uint32_t n = vocabs[v] > 4096 ? 1 : 3;
            float *logits = random_logits((size_t)n * vocabs[v], kind, (uint64_t)v);
            for (int k = 0; k < 5; k++)
                if (vocabs[v] <= 4096 || k % 2 == kind % 2)
                    check_rows(logits, n, vocabs[v], ks[k]);
            free(logits);
        }
    float few[] = {3, 1, 2};
    check_rows(few, 1, 3, 3);
}

/* Hard rows for the selection: all equal, ascending, and the largest values all in the share of
 * some threads. */
static void test_largest_of_hard_rows(void **state)
{
    (void)state;
    enum { VOCAB = 65536 };
    float *logits = malloc(VOCAB * sizeof *logits);

    for (uint32_t i = 0; i < VOCAB; i++)
        logits[i] = -3;
    check_rows(logits, 1, VOCAB, 256);
    for (uint32_t i = 0; i < VOCAB; i++)
        logits[i] = (float)i;
    check_rows(logits, 1, VOCAB, 256);
    for (uint32_t stride = 256; stride <= 1024; stride *= 2) {
        for (uint32_t i = 0; i < VOCAB; i++)
            logits[i] = i % stride < 40 ? 1e6f + (float)i : (float)(i % 1000);
        check_rows(logits, 1, VOCAB, 40);
        check_rows(logits, 1, VOCAB, 41);
    }
    free(logits);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_route),
        cmocka_unit_test(test_route_groups),
        cmocka_unit_test(test_gate),
        cmocka_unit_test(test_largest),
        cmocka_unit_test(test_largest_of_hard_rows),
    };
    return run_group("cuda_router", tests, open_all);
}
