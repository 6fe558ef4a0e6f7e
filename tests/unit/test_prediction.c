/* The worker's background predictor: shown layers arrive unchanged, the engine does not wait for a
 * slow predictor, late answers are counted and dropped, model updates reach the in-line half, and
 * another predictor may be chosen at any time. The test's own predictors record what they observe.
 */
#include "worker/prefetch/prediction.h"
#include "worker/prefetch/prediction_metrics.h"

#include "base/clock.h"
#include "sched/predict/predict_internal.h"

#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <cmocka.h>

enum { LAYERS = 6, FIRST = 1, EXPERTS = 16, USED = 2, D = 8, TOKENS = 4 };

static const struct predict_shape shape = {.n_layers = LAYERS,
                                           .first_layer = FIRST,
                                           .n_experts = EXPERTS,
                                           .n_used = USED,
                                           .d_model = D,
                                           .max_tokens = TOKENS};

static void nap_ms(unsigned ms)
{
    struct timespec t = {ms / 1000, (long)(ms % 1000) * 1000000};
    nanosleep(&t, NULL);
}

/* Until the condition holds, 20 s at most. */
#define UNTIL(condition)                                                                           \
    do {                                                                                           \
        for (int i_ = 0; !(condition) && i_ < 20000; i_++)                                         \
            nap_ms(1);                                                                             \
        assert_true(condition);                                                                    \
    } while (0)

/* ---- The test's own predictors ---- */

static _Atomic bool is_held; /* observing does not return */
static _Atomic uint64_t n_seen, n_wrong;
static _Atomic uint64_t n_predicted; /* answers that were worked out */
static _Atomic uint64_t n_done;      /* layers whose answers are in the ring or dropped */

/* A layer's values: numbers that encode their position. */
struct layer_shown {
    struct predict_token tokens[TOKENS];
    float hidden[TOKENS * D], gate[TOKENS * EXPERTS];
    uint32_t selected[TOKENS * USED];
    struct predict_seen seen;
};

static void fill(struct layer_shown *l, uint64_t step, uint32_t layer, uint32_t n)
{
    for (uint32_t t = 0; t < n; t++) {
        l->tokens[t] = (struct predict_token){step * 10 + t, layer + t, layer * 100 + t};
        for (uint32_t i = 0; i < D; i++)
            l->hidden[t * D + i] =
                (float)(step % 1000) + (float)layer * 0.125f + (float)(t * D + i);
        for (uint32_t i = 0; i < EXPERTS; i++)
            l->gate[t * EXPERTS + i] = (float)((step + layer + t + i) % 7);
        for (uint32_t i = 0; i < USED; i++)
            l->selected[t * USED + i] = (uint32_t)((step + layer + t * 3 + i) % EXPERTS);
    }
    l->seen =
        (struct predict_seen){step, layer, n, l->tokens, l->hidden, l->gate, l->selected, l->gate};
}

static void watching_observe(struct predictor *p, const struct predict_seen *seen)
{
    struct layer_shown want;
    uint32_t n = seen->n_tokens;
    bool embedding = seen->layer == PREDICT_EMBEDDING;
    fill(&want, seen->step, seen->layer, n);
    bool same = memcmp(seen->hidden, want.hidden, n * D * sizeof(float)) == 0;
    for (uint32_t t = 0; t < n; t++)
        same = same && seen->tokens[t].request == want.tokens[t].request &&
               seen->tokens[t].position == want.tokens[t].position &&
               seen->tokens[t].id == want.tokens[t].id;
    if (embedding)
        same = same && !seen->gate && !seen->selected;
    else
        same = same && memcmp(seen->gate, want.gate, n * EXPERTS * sizeof(float)) == 0 &&
               memcmp(seen->selected, want.selected, n * USED * sizeof(uint32_t)) == 0;
    n_wrong += !same;
    n_seen++;
    while (is_held)
        nap_ms(1);
}

/* Expert number `layer` of the target for certain, the one after it half as likely. */
static void watching_predict(struct predictor *p, const struct predict_seen *seen,
                             const struct predict_target *target, const uint32_t *predicted_routing,
                             double *probability)
{
    n_wrong += predicted_routing != NULL;
    for (uint32_t i = 0; i < EXPERTS; i++)
        probability[i] = 0;
    probability[target->layer] = 1;
    probability[target->layer + 1] = 0.5;
    n_predicted++;
}

/* Called after a layer's answers. */
static bool watching_next_update(struct predictor *p, uint32_t *layer, float *update)
{
    n_done++;
    return false;
}

static const struct predictor_rule watching = {
    .observe = watching_observe, .predict = watching_predict, .next_update = watching_next_update};

/* A predictor that observes everything and predicts the layer after the next. */
static struct predict_set *watching_set(void)
{
    struct predict_set *s = calloc(1, sizeof *s);
    s->kind = PREDICT_FREQUENCY; /* the metrics name it so */
    s->traits = (struct predict_traits){.answers = true,
                                        .reads = PREDICT_READS_HIDDEN | PREDICT_READS_GATE |
                                                 PREDICT_READS_SELECTED | PREDICT_READS_EMBEDDING,
                                        .distance_first = 2,
                                        .distance_last = 2};
    s->background = predictor_new_of(&watching, &shape);
    assert_true(s->background && predict_set_allocate(s, &shape));
    return s;
}

/* ---- the engine's part ---- */

static struct {
    uint64_t n;
    struct predict_target target;
    struct predicted experts[EXPERTS];
    uint32_t n_experts, n_known;
} reported; /* the last */

static void report(void *arg, const struct layer_prediction *p)
{
    reported.n++;
    reported.target = p->target;
    reported.n_experts = p->n;
    reported.n_known = p->n_known;
    memcpy(reported.experts, p->experts, p->n_known * sizeof *p->experts);
}

struct bench {
    struct metrics *metrics;
    struct prediction_counters counters;
    struct prediction *prediction;
    struct layer_shown layer;
};

static struct bench open_bench(enum sched_predictor kind)
{
    struct bench b = {.metrics = metrics_new()};
    b.counters = prediction_metrics_counters(b.metrics);
    struct prediction_options options = {
        .shape = shape, .predictor = kind, .report = report, .counters = b.counters};
    assert_int_equal(prediction_new(&options, &b.prediction, NULL), ERROR_OK);
    memset(&reported, 0, sizeof reported);
    n_seen = n_wrong = n_predicted = n_done = 0;
    is_held = false;
    return b;
}

static void close_bench(struct bench *b)
{
    is_held = false;
    prediction_free(b->prediction);
    metrics_free(b->metrics);
}

static void run_layer(struct bench *b, uint64_t step, uint32_t layer, uint32_t n)
{
    struct predict_target target;
    const float *input;
    fill(&b->layer, step, layer, n);
    if (layer != PREDICT_EMBEDDING)
        prediction_begin(b->prediction, &b->layer.seen);
    prediction_show(b->prediction, &b->layer.seen);
    for (uint32_t i = 0; layer != PREDICT_EMBEDDING &&
                         prediction_gate(b->prediction, &b->layer.seen, i, &target, &input);
         i++)
        prediction_from_gate(b->prediction, &b->layer.seen, &target, b->layer.selected);
}

static void run_step(struct bench *b, uint64_t step, uint32_t n)
{
    run_layer(b, step, PREDICT_EMBEDDING, n);
    for (uint32_t layer = FIRST; layer < LAYERS; layer++)
        run_layer(b, step, layer, n);
}

static uint64_t shown(const struct bench *b)
{
    return counter_read(b->counters.shown);
}

/* ---- tests ---- */

/* With time for each answer: what the engine shows arrives bit by bit, in order, and the engine
 * uses the answers. Layers 1 to 5 have experts. Two layers ahead of the embedding is layer 2, of
 * layer 1 layer 3, ..., of layer 3 layer 5, of 4 and 5 none: four answers. The predictor predicts
 * experts `layer` and `layer` + 1; fill() selects step + layer modulo 16 and the next. So in step
 * 15 one of the two is right, in 16 both, in 17 one. */
static void test_in_time(void **state)
{
    struct bench b = open_bench(PREDICT_NONE);
    prediction_choose_set(b.prediction, watching_set());
    run_layer(&b, 1, 1, 1); /* switches to the chosen predictor; the engine showed nothing before */
    UNTIL(n_done == shown(&b));
    uint64_t before = shown(&b), candidates = 0, right = 0;
    for (uint64_t step = 15; step < 18; step++)
        for (uint32_t layer = FIRST - 1; layer < LAYERS; layer++) {
            run_layer(&b, step, layer < FIRST ? PREDICT_EMBEDDING : layer, 1);
            UNTIL(n_done == shown(&b));
            if (layer >= FIRST && layer + 1 < LAYERS) {
                assert_int_equal(reported.target.step, step);
                assert_int_equal(reported.target.layer, layer + 1);
                assert_int_equal(reported.n_experts, 2);
                assert_int_equal(reported.experts[0].expert, layer + 1);
                assert_true(reported.experts[0].probability == 1 &&
                            reported.experts[1].expert == layer + 2 &&
                            reported.experts[1].probability == 0.5f);
            }
            if (layer > FIRST) { /* the selected experts step + layer + i, and the predicted ones */
                candidates += 2;
                right += step == 16 ? 2 : 1;
            }
        }
    assert_int_equal(shown(&b) - before, 3 * 6);
    assert_int_equal(n_wrong, 0);
    assert_int_equal(counter_read(b.counters.dropped), 0);
    assert_int_equal(counter_read(b.counters.late), 1); /* step 1 ended before its layer 3 */
    assert_int_equal(counter_read(b.counters.in_time), 3 * 4);
    assert_int_equal(counter_read(b.counters.predictions[PREDICT_FREQUENCY]), candidates);
    assert_int_equal(counter_read(b.counters.right[PREDICT_FREQUENCY]), right);
    assert_int_equal(right, 4 * (1 + 2 + 1));
    assert_int_equal(prediction_score(b.prediction, 2).predictions, 3 * 2);
    assert_int_equal(prediction_score(b.prediction, 1).predictions, 0);
    close_bench(&b);
}

/* An answer for a layer arrives before that layer's gate. It is in time if the engine looks before
 * it routes the layer: one layer ahead of the embedding is the first layer. If the engine looks
 * only when it routes the layer, the answer is late. */
static void test_look(void **state)
{
    struct bench b = open_bench(PREDICT_NONE);
    struct predict_set *s = watching_set();
    s->traits.distance_first = s->traits.distance_last = 1;
    prediction_choose_set(b.prediction, s);
    run_layer(&b, 1, LAYERS - 1, 1); /* switches to the chosen predictor */
    for (uint64_t step = 15; step < 17; step++) {
        run_layer(&b, step, PREDICT_EMBEDDING, 1);
        UNTIL(n_done == shown(&b));
        uint64_t n = reported.n;
        if (step == 15)
            prediction_look(b.prediction, step, FIRST);
        assert_int_equal(reported.n - n, step == 15);
        prediction_look(b.prediction, step, FIRST); /* nothing new, or only now */
        assert_int_equal(reported.n - n, 1);
        assert_true(reported.target.step == step && reported.target.layer == FIRST);
        run_layer(&b, step, FIRST, 1);
    }
    UNTIL(n_done == shown(&b));
    prediction_look(b.prediction, 18, FIRST); /* the answers of step 16 are too late */
    run_layer(&b, 18, PREDICT_EMBEDDING, 1);
    UNTIL(n_done == shown(&b));
    uint64_t late = counter_read(b.counters.late);
    run_layer(&b, 18, FIRST, 1);
    assert_int_equal(counter_read(b.counters.late), late + 1);
    close_bench(&b);
}

/* A predictor that does not return before the engine has shown 600 layers: the engine drops layers
 * that find no buffer, counts late answers, and does not wait (it would wait for ever). Afterwards
 * it uses the predictor again. */
static void test_slow(void **state)
{
    struct bench b = open_bench(PREDICT_NONE);
    prediction_choose_set(b.prediction, watching_set());
    run_layer(&b, 1, 1, 1);
    is_held = true;
    for (uint64_t step = 2; step <= 101; step++)
        run_step(&b, step, 1 + step % TOKENS);
    uint64_t n = shown(&b), dropped = counter_read(b.counters.dropped);
    assert_int_equal(n + dropped, 600 + 1);
    assert_true(n >= 16 && dropped > 300);
    is_held = false;
    UNTIL(n_seen == n);
    run_step(&b, 102, 1); /* finds the answers for steps that are over */
    assert_true(counter_read(b.counters.late) > 0);
    assert_int_equal(n_wrong, 0);
    reported.n = 0;
    for (uint64_t step = 103; !reported.n; step++) {
        assert_true(step < 2000);
        run_step(&b, step, 1);
        nap_ms(5);
        run_layer(&b, step, LAYERS - 2, 1); /* the last layer is still to come */
    }
    close_bench(&b);
}

/* If the engine takes no answers, the answers that find the ring full are lost, and no others: 16
 * of 41 stay. */
static void test_unread(void **state)
{
    struct bench b = open_bench(PREDICT_NONE);
    prediction_choose_set(b.prediction, watching_set());
    run_layer(&b, 1, 1, 1);
    for (uint32_t i = 0; i < 40; i++) {
        fill(&b.layer, 2, 1 + i % 3, 1); /* each layer has an answer */
        prediction_show(b.prediction, &b.layer.seen);
        UNTIL(n_seen == shown(&b));
    }
    UNTIL(n_predicted == 41 && counter_read(b.counters.late) == 41 - 16);
    run_layer(&b, 2, 1, 1); /* takes the answers: all but step 1's are for layers still to come */
    assert_int_equal(counter_read(b.counters.in_time), 16 - 1);
    assert_int_equal(counter_read(b.counters.late), 41 - 16 + 1);
    assert_int_equal(counter_read(b.counters.dropped), 0);
    assert_int_equal(n_wrong, 0);
    close_bench(&b);
}

/* Shows one layer. Returns true if the engine deferred the thread's wake-up. */
static bool show_defers(struct bench *b, uint32_t layer)
{
    fill(&b->layer, 2, layer, 1);
    prediction_show(b->prediction, &b->layer.seen);
    return prediction_wake(b->prediction);
}

/* Without an in-line half the engine wakes the thread at once. With one, it wakes the thread for an
 * embedding at once, and for a layer once: when the engine is about to wait, or with the next
 * layer. Then the thread has observed all layers. */
static void test_wake(void **state)
{
    struct bench b = open_bench(PREDICT_NONE);
    prediction_choose_set(b.prediction, watching_set());
    run_layer(&b, 1, 1, 1);
    assert_false(show_defers(&b, FIRST));

    struct predict_set *both = watching_set();
    both->in_line = predictor_new(PREDICT_NEXT_GATE, PREDICT_IN_LINE, &shape);
    prediction_choose_set(b.prediction, both);
    prediction_begin(b.prediction, &b.layer.seen); /* switches to the chosen predictor */
    assert_false(prediction_wake(b.prediction));
    assert_true(show_defers(&b, FIRST));
    assert_false(prediction_wake(b.prediction));
    assert_false(show_defers(&b, PREDICT_EMBEDDING));
    prediction_show(b.prediction, &b.layer.seen); /* the embedding again */
    fill(&b.layer, 2, FIRST, 1);
    prediction_show(b.prediction, &b.layer.seen);
    assert_false(show_defers(&b, FIRST + 1)); /* it also woke the thread for the layer before */
    assert_true(show_defers(&b, FIRST + 2));
    UNTIL(n_seen == shown(&b));
    assert_int_equal(n_wrong, 0);
    close_bench(&b);
}

/* The engine neither shows nor predicts batches larger than the shape allows. */
static void test_large_batches(void **state)
{
    struct bench b = open_bench(PREDICT_NEXT_GATE);
    static uint32_t selected[100 * USED];
    struct predict_seen seen = {.step = 1, .layer = 1, .n_tokens = 100, .selected = selected};
    struct predict_target target;
    const float *input;
    prediction_begin(b.prediction, &seen);
    prediction_show(b.prediction, &seen);
    assert_false(prediction_gate(b.prediction, &seen, 0, &target, &input));
    assert_int_equal(shown(&b), 0);
    run_layer(&b, 2, 1, TOKENS);
    assert_int_equal(reported.target.layer, 2);
    assert_int_equal(shown(&b), 0); /* this predictor has no background half */
    close_bench(&b);
}

/* Every layer's gate input is the one before plus 1/8 (fill). So the residual is 1/8 in each number
 * after its first update, with 64 tokens or more. */
static void test_residual(void **state)
{
    struct bench b = open_bench(PREDICT_RESIDUAL);
    struct predict_target target;
    const float *input = NULL;
    uint64_t step = 1;
    bool updated = false;
    for (; !updated && step < 5000; step += 2) {
        nap_ms(1); /* so that few layers are dropped */
        run_step(&b, step, TOKENS);
        run_layer(&b, step + 1, FIRST, TOKENS);
        assert_true(prediction_gate(b.prediction, &b.layer.seen, 0, &target, &input));
        assert_true(target.step == step + 1 && target.layer == FIRST + 1);
        updated = input != b.layer.hidden;
    }
    assert_true(updated && step >= 2 * 64 / TOKENS);
    for (uint32_t i = 0; i < TOKENS * D; i++)
        assert_true(fabsf(input[i] - b.layer.hidden[i] - 0.125f) < 1e-4f);
    assert_true(counter_read(b.counters.predictions[PREDICT_RESIDUAL]) > 0);
    assert_int_equal(counter_read(b.counters.in_time), 0);
    close_bench(&b);
}

static void show_map(struct bench *b, uint64_t step, float embedding)
{
    fill(&b->layer, step, PREDICT_EMBEDDING, 1);
    for (uint32_t i = 0; i < D; i++)
        b->layer.hidden[i] = embedding;
    prediction_show(b->prediction, &b->layer.seen);
}

/* FineMoE in the background thread: the experts that its map predicts reach the owner uncut, with
 * all probabilities of the map. The first token's gates give 1/16 to every expert in every layer. A
 * token with the opposite embedding (cosine -1) trusts that map so little that it takes all 16,
 * "until the summed probability exceeds" 1, though a token activates 2. A token with the same
 * embedding (cosine 1) takes the least number, 2. */
static void test_uncut(void **state)
{
    struct bench b = open_bench(PREDICT_EXPERT_MAP);
    run_layer(&b, 1, LAYERS - 1, 1); /* switches to the chosen predictor */
    show_map(&b, 2, 1);
    for (uint32_t layer = FIRST; layer < LAYERS; layer++) {
        fill(&b.layer, 2, layer, 1);
        for (uint32_t i = 0; i < EXPERTS; i++)
            b.layer.gate[i] = 1.0f / EXPERTS;
        prediction_begin(b.prediction, &b.layer.seen);
        prediction_show(b.prediction, &b.layer.seen);
    }
    for (uint64_t step = 3; step < 5; step++) {
        uint64_t n = reported.n;
        show_map(&b, step, step == 3 ? -1.0f : 1.0f);
        for (int i = 0; i < 20000 && reported.n < n + 3; i++, nap_ms(1)) /* layers 1 to 3 */
            prediction_look(b.prediction, step, FIRST);
        assert_int_equal(reported.n - n, 3);
        assert_true(reported.target.step == step && reported.target.layer == FIRST + 2);
        assert_int_equal(reported.n_experts, step == 3 ? EXPERTS : USED);
        assert_int_equal(reported.n_known, EXPERTS);
    }
    close_bench(&b);
}

/* MoEpic's scores in line: all experts with a probability from the gate, the highest first. fill()
 * gives expert i (step + layer + i) mod 7; values above 1 count as 1. Of 16 experts the prediction
 * omits those with 0. From the last layer it predicts the next step's first layer. */
static void test_scores(void **state)
{
    struct bench b = open_bench(PREDICT_GATE_SCORES);
    /* Switches to the chosen predictor. 7 + 1 + i: experts 6 and 13 have 0. */
    run_layer(&b, 7, FIRST, 1);
    assert_true(prediction_reads_scores(b.prediction));
    assert_true(reported.target.step == 7 && reported.target.layer == FIRST + 1);
    assert_int_equal(reported.n_experts, EXPERTS - 2);
    run_layer(&b, 7, LAYERS - 1, 1);
    assert_true(reported.target.step == 8 && reported.target.layer == FIRST);
    close_bench(&b);
}

/* If a gate's values are logits, the engine shows their softmax to the predictor. */
static _Atomic uint64_t n_sums_to_one;
static void summing_observe(struct predictor *p, const struct predict_seen *seen)
{
    float sum = 0;
    for (uint32_t i = 0; i < EXPERTS; i++)
        sum += seen->gate[i];
    n_sums_to_one += fabsf(sum - 1) < 1e-5f;
}
static void test_logits(void **state)
{
    static const struct predictor_rule summing = {.observe = summing_observe};
    struct bench b = open_bench(PREDICT_NONE);
    prediction_free(b.prediction);
    struct prediction_options options = {
        .shape = shape, .gate_is_logits = true, .report = report, .counters = b.counters};
    assert_int_equal(prediction_new(&options, &b.prediction, NULL), ERROR_OK);
    struct predict_set *s = watching_set();
    predictor_free(s->background);
    s->background = predictor_new_of(&summing, &shape);
    s->traits.reads = PREDICT_READS_GATE;
    prediction_choose_set(b.prediction, s);
    n_sums_to_one = 0;
    run_layer(&b, 1, LAYERS - 1, 1); /* no layer is two ahead of it: nothing to predict */
    UNTIL(n_sums_to_one == 1);
    close_bench(&b);
}

/* The predictor changes again and again while layers run; the counters are those of the predictor
 * in use. */
static struct {
    struct prediction *prediction;
    _Atomic bool stop;
    _Atomic uint64_t choices, failures;
} chooser;

static void *choose(void *arg)
{
    for (unsigned i = 0; !chooser.stop; i++) {
        if (i % 5 == 4)
            prediction_choose_set(chooser.prediction, watching_set());
        else
            chooser.failures += prediction_choose(
                chooser.prediction, (enum sched_predictor)((i - i / 5) % PREDICT_KINDS), NULL);
        chooser.choices++;
        nap_ms(i % 13 == 0 ? 30 : i % 3); /* long enough to learn something, each in turn */
    }
    return NULL;
}

static bool all_predicted(const struct bench *b)
{
    bool all = n_seen > 20;
    const struct predict_shape untrained = {.n_layers =
                                                1}; /* untrained predictors predict nothing */
    for (int kind = PREDICT_NEXT_GATE; kind < PREDICT_KINDS; kind++) {
        const struct predict_traits *t = sched_predictor_traits((enum sched_predictor)kind);
        bool next_only = !t->in_line && t->distance_last == 1; /* late here, with no work between */
        all = all && (counter_read(b->counters.predictions[kind]) > 0 || next_only ||
                      !predictor_is_trained((enum sched_predictor)kind, &untrained));
    }
    return all;
}

static void test_choices(void **state)
{
    struct bench b = open_bench(PREDICT_RESIDUAL);
    chooser.prediction = b.prediction;
    chooser.stop = false;
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, choose, NULL), 0);
    uint64_t step = 1, start = clock_ns(), took = 0;
    /* a loaded machine needs more rounds until each predictor was used */
    for (; took < 1000000000 || (took < 120000000000 && !all_predicted(&b)); step++) {
        run_step(&b, step, 1 + step % TOKENS);
        /* time to answer within a step, too */
        if (step % 16 == 0)
            nap_ms(1);
        if (step % 16 == 1) {
            run_layer(&b, step + 1, PREDICT_EMBEDDING, 1 + step % TOKENS);
            for (uint32_t layer = FIRST; layer < LAYERS; layer++) {
                nap_ms(1);
                run_layer(&b, step + 1, layer, 1 + step % TOKENS);
            }
            step++;
        }
        took = clock_ns() - start;
    }
    chooser.stop = true;
    pthread_join(thread, NULL);
    assert_true(all_predicted(&b));
    assert_int_equal(n_wrong, 0);
    assert_int_equal(chooser.failures, 0);
    assert_true(chooser.choices > 20);
    for (int kind = PREDICT_NEXT_GATE; kind < PREDICT_KINDS; kind++)
        assert_true(counter_read(b.counters.right[kind]) <=
                    counter_read(b.counters.predictions[kind]));
    assert_int_equal(counter_read(b.counters.predictions[PREDICT_NONE]), 0);
    print_message("%llu choices, %llu steps, %llu seen, %llu dropped\n",
                  (unsigned long long)chooser.choices, (unsigned long long)step,
                  (unsigned long long)n_seen, (unsigned long long)counter_read(b.counters.dropped));
    close_bench(&b);
}

/* An unused predictor has no metrics, not metrics of 0. */
static void test_absent(void **state)
{
    struct bench b = open_bench(PREDICT_NONE);
    struct strbuf text;
    strbuf_init(&text);
    run_step(&b, 1, 1);
    run_step(&b, 2, 1);
    metrics_render(b.metrics, &text);
    assert_null(strstr(text.data, "moed_worker_predict"));
    assert_int_equal(prediction_choose(b.prediction, PREDICT_NEXT_GATE, NULL), ERROR_OK);
    run_step(&b, 3, 1);
    run_step(&b, 4, 1);
    strbuf_clear(&text);
    metrics_render(b.metrics, &text);
    assert_non_null(strstr(text.data, "moed_worker_predictions_total{predictor=\"next-gate\"} "));
    assert_non_null(
        strstr(text.data, "moed_worker_predictions_right_total{predictor=\"next-gate\"} "));
    assert_null(strstr(text.data, "residual"));
    assert_null(strstr(text.data, "moed_worker_predict_"));
    assert_int_equal(prediction_metrics_predictions(&b.counters), 2 * 4 * USED);
    strbuf_fini(&text);
    close_bench(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_in_time),  cmocka_unit_test(test_look),
        cmocka_unit_test(test_slow),     cmocka_unit_test(test_unread),
        cmocka_unit_test(test_wake),     cmocka_unit_test(test_large_batches),
        cmocka_unit_test(test_residual), cmocka_unit_test(test_uncut),
        cmocka_unit_test(test_scores),   cmocka_unit_test(test_logits),
        cmocka_unit_test(test_choices),  cmocka_unit_test(test_absent),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
