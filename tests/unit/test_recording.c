/* Recordings (worker/forward/recording.h): the records that layers add in a step come out in order,
 * once, in events within the size limit. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "quant/quant.h"
#include "worker/forward/recording.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { LAYERS = 4, DENSE = 1, WITH = LAYERS - DENSE, EXPERTS = 8, USED = 2, WIDTH = 6 };

static struct model_params params(enum router_kind kind)
{
    return (struct model_params){.n_layers = LAYERS,
                                 .n_dense = DENSE,
                                 .d_model = WIDTH,
                                 .router = {.kind = kind, .n_experts = EXPERTS, .n_used = USED}};
}

static uint32_t choice(uint32_t position, uint32_t layer, uint32_t rank)
{
    return (position * 3 + layer + rank * 5) % EXPERTS;
}

static float gate_value(uint32_t position, uint32_t layer, uint32_t expert)
{
    return 1.0f / (float)(1 + position * 64 + layer * 8 + expert);
}

/* A half represents it exactly. */
static float hidden_value(uint32_t position, uint32_t layer, uint32_t i)
{
    return (float)(position * 16 + layer * 4) - (float)i / 2;
}

/* The layers come one after the other, each with the batch's rows in some order. */
static void run_step(struct recording *r, uint32_t first, uint32_t n)
{
    recording_begin(r, first, n);
    for (uint32_t l = DENSE; l < LAYERS; l++)
        for (uint32_t k = n; k-- > 0;) {
            uint32_t selected[USED], position = first + k;
            float gate[EXPERTS], hidden[WIDTH];
            for (uint32_t i = 0; i < USED; i++)
                selected[i] = choice(position, l, i);
            for (uint32_t i = 0; i < EXPERTS; i++)
                gate[i] = gate_value(position, l, i);
            for (uint32_t i = 0; i < WIDTH; i++)
                hidden[i] = hidden_value(position, l, i);
            recording_layer(r, position, l, selected, gate, hidden);
        }
}

static void check_part(const struct recording_part *part, const struct recording_options *o)
{
    assert_int_equal(part->selected_values, part->n * WITH * USED);
    assert_int_equal(part->gate_values, o->gate ? part->n * WITH * EXPERTS : 0);
    assert_int_equal(part->hidden_values, part->n_hidden * WITH * WIDTH);
    uint32_t n_hidden = 0;
    for (uint32_t t = 0; t < part->n; t++) {
        uint32_t position = part->first + t;
        bool hidden = o->hidden_every && position % o->hidden_every == o->hidden_phase;
        if (hidden)
            assert_int_equal(part->hidden_at[n_hidden], position);
        for (uint32_t l = 0; l < WITH; l++) {
            for (uint32_t i = 0; i < USED; i++)
                assert_int_equal(part->selected[(t * WITH + l) * USED + i],
                                 choice(position, DENSE + l, i));
            for (uint32_t i = 0; i < EXPERTS && o->gate; i++)
                assert_float_equal(part->gate[(t * WITH + l) * EXPERTS + i],
                                   gate_value(position, DENSE + l, i), 0);
            for (uint32_t i = 0; i < WIDTH && hidden; i++)
                assert_float_equal(half_to_float(part->hidden[(n_hidden * WITH + l) * WIDTH + i]),
                                   hidden_value(position, DENSE + l, i), 0);
        }
        n_hidden += hidden;
    }
    assert_int_equal(part->n_hidden, n_hidden);
}

/* Steps of several lengths, from position 0 and one token at a time after it, as for prompts and
 * answers. */
static void every_sample(void **state)
{
    (void)state;
    struct model_params p = params(ROUTER_SOFTMAX);
    for (uint32_t every = 0; every <= 7; every++)
        for (uint32_t phase = 0; phase < (every ? every : 1); phase++) {
            struct recording_options o = {
                .gate = every % 2, .hidden_every = every, .hidden_phase = phase};
            struct recording *r;
            struct error e;
            assert_int_equal(recording_new(&p, &o, 16, &r, &e), ERROR_OK);
            assert_int_equal(recording_capacity(r), 16);
            assert_false(recording_pending(r));
            const uint32_t steps[] = {16, 16, 5, 1, 1, 1, 1};
            uint32_t first = 0;
            for (unsigned i = 0; i < sizeof steps / sizeof *steps; i++) {
                run_step(r, first, steps[i]);
                assert_true(recording_pending(r));
                struct recording_part part = recording_next(r);
                assert_int_equal(part.first, first);
                assert_int_equal(part.n, steps[i]); /* it fits into one event */
                check_part(&part, &o);
                recording_sent(r, &part);
                assert_false(recording_pending(r));
                first += steps[i];
            }
            recording_free(r);
        }
}

/* The gate's output is logits for these kinds of gate: two that differ by ln 3 are 1/4 and 3/4. */
static void logits_become_probabilities(void **state)
{
    (void)state;
    const enum router_kind kinds[] = {ROUTER_SOFTMAX_SELECTED, ROUTER_SPARSE_MIXER, ROUTER_SIGMOID};
    for (unsigned i = 0; i < 3; i++) {
        struct model_params p = params(kinds[i]);
        p.router.n_experts = 2;
        p.router.n_used = 1;
        struct recording_options o = {.gate = true};
        struct recording *r;
        struct error e;
        const uint32_t selected[1] = {1};
        const float gate[2] = {0, logf(3)}, hidden[WIDTH] = {0};
        assert_int_equal(recording_new(&p, &o, 1, &r, &e), ERROR_OK);
        recording_begin(r, 7, 1);
        for (uint32_t l = DENSE; l < LAYERS; l++)
            recording_layer(r, 7, l, selected, gate, hidden);
        struct recording_part part = recording_next(r);
        float first = kinds[i] == ROUTER_SIGMOID ? 0 : 0.25f;
        float second = kinds[i] == ROUTER_SIGMOID ? gate[1] : 0.75f;
        assert_float_equal(part.gate[0], first, 1e-6);
        assert_float_equal(part.gate[1], second, 1e-6);
        recording_free(r);
    }
}

/* 60 layers of 256 experts, 8 of them a token, d_model 7168: 60 x (16 + 1024) = 62,400 bytes, and
 * 860,160 of gate inputs. An event of 983,040 bytes has one token with gate inputs and one without,
 * or 15 without. 32 MiB hold 256 tokens of which every 16th has them, 29.7 MB, and 36 that all
 * have, 36 x 922,560 = 33.2 MB of 33.6. */
static void large_models(void **state)
{
    (void)state;
    struct model_params p = {
        .n_layers = 61, .n_dense = 1, .d_model = 7168, .router = {.n_experts = 256, .n_used = 8}};
    const struct {
        struct recording_options options;
        uint32_t capacity, most; /* tokens of a step, of an event */
    } cases[] = {{{true, 0, 0}, 256, 15}, {{true, 16, 3}, 256, 15}, {{true, 1, 0}, 36, 1}};
    for (unsigned i = 0; i < 3; i++) {
        struct recording *r;
        struct error e;
        assert_int_equal(recording_new(&p, &cases[i].options, 256, &r, &e), ERROR_OK);
        uint32_t capacity = recording_capacity(r), next = 100, most = 0;
        assert_int_equal(capacity, cases[i].capacity);
        recording_begin(r, 100, capacity);
        while (recording_pending(r)) {
            struct recording_part part = recording_next(r);
            assert_int_equal(part.first, next);
            assert_true(part.n > 0);
            assert_true(part.selected_values * 2 + part.gate_values * 4 + part.hidden_values * 2 <=
                        RECORDING_EVENT_BYTES);
            for (uint32_t k = 0; k < part.n_hidden; k++)
                assert_true(part.hidden_at[k] >= next && part.hidden_at[k] < next + part.n);
            next += part.n;
            most = part.n > most ? part.n : most;
            recording_sent(r, &part);
        }
        assert_int_equal(next, 100 + capacity);
        assert_int_equal(most, cases[i].most);
        recording_free(r);
    }
    recording_free(NULL);
}

static void refused(void **state)
{
    (void)state;
    struct model_params p = params(ROUTER_SOFTMAX);
    struct recording_options phase = {.hidden_every = 3, .hidden_phase = 3};
    struct recording_options all = {.gate = true, .hidden_every = 1};
    struct recording *r;
    struct error e;
    assert_int_equal(recording_new(&p, &phase, 1, &r, &e), ERROR_USAGE);
    assert_non_null(strstr(e.text, "phase 3"));
    p.n_layers = 100;
    p.d_model = 16384; /* 99 x 32,768 bytes of gate inputs */
    assert_int_equal(recording_new(&p, &all, 1, &r, &e), ERROR_LIMIT);
    assert_non_null(strstr(e.text, "ask for no gate inputs"));
    all.hidden_every = 0;
    assert_int_equal(recording_new(&p, &all, 1, &r, &e), ERROR_OK);
    recording_free(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_sample),
        cmocka_unit_test(logits_become_probabilities),
        cmocka_unit_test(large_models),
        cmocka_unit_test(refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
