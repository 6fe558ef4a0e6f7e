/* Precision and recall of a predictor by layer; see accuracy.h. */
#include "bench/replay/accuracy.h"

#include "base/arrays.h"
#include "bench/replay/simulate.h"
#include "bench/replay/steps.h"

#include <stdlib.h>
#include <string.h>

/* A layer's last prediction. */
struct last {
    uint64_t step; /* 0: none */
    uint32_t n;
    struct predicted *experts; /* [n_experts] */
};

struct measuring {
    const struct trace *trace;
    const struct trace_shape *shape;
    uint32_t ahead;
    struct predicting *predicting;
    struct steps steps;
    uint64_t step;
    uint32_t layer;     /* that is routed next */
    struct last *last;  /* [n_layers] */
    bool *activated;    /* [n_experts] */
    uint32_t *selected; /* [tokens of a step][n_used] */
    void *memory;       /* of the arrays */
};

/* Layers with experts from the one that is routed next to the target. */
static uint64_t distance(const struct measuring *m, const struct predict_target *to)
{
    uint64_t per_step = m->shape->n_layers - m->shape->first_layer;
    return (to->step - m->step) * per_step + to->layer - m->layer;
}

static void predicted(void *arg, const struct layer_prediction *p)
{
    struct measuring *m = arg;
    struct last *l = &m->last[p->target.layer];
    if (distance(m, &p->target) < m->ahead)
        return;
    l->step = p->target.step;
    l->n = p->n;
    memcpy(l->experts, p->experts, p->n * sizeof *p->experts);
}

static uint32_t count_right(const struct measuring *m, const struct last *l, uint32_t n)
{
    uint32_t right = 0;
    for (uint32_t i = 0; i < n; i++)
        right += m->activated[l->experts[i].expert];
    return right;
}

static void check(struct measuring *m, uint32_t layer, struct accuracy *a)
{
    struct last *l = &m->last[layer];
    uint32_t n_used = m->shape->n_used;
    a->tokens++;
    a->activated += n_used;
    if (l->step != m->step)
        return;
    predict_mark(m->activated, m->selected, n_used);
    uint32_t best = l->n < n_used ? l->n : n_used;
    a->predicted_tokens++;
    a->best += best;
    a->best_right += count_right(m, l, best);
    a->all += l->n;
    a->all_right += count_right(m, l, l->n);
    predict_unmark(m->activated, m->selected, n_used);
}

static void gather(struct measuring *m, uint32_t layer, uint32_t n_tokens)
{
    for (uint32_t t = 0; t < n_tokens; t++)
        trace_selected(m->trace, m->steps.tokens[t].sequence, m->steps.tokens[t].token, layer,
                       m->selected + (size_t)t * m->shape->n_used);
}

static void run_step(struct measuring *m, uint32_t n_tokens, bool decoding, struct accuracy *out)
{
    m->step++;
    m->layer = m->shape->first_layer;
    predicting_step(m->predicting, m->step, m->steps.tokens, n_tokens);
    for (uint32_t layer = m->layer; layer < m->shape->n_layers; layer++) {
        m->layer = layer;
        predicting_look(m->predicting, layer);
        gather(m, layer, n_tokens);
        if (decoding)
            check(m, layer, &out[layer]);
        predicting_routed(m->predicting, layer, m->selected);
        m->layer = layer + 1;
        predicting_show(m->predicting, layer, m->selected, true);
    }
}

static bool begin(struct measuring *m, const struct accuracy_options *o)
{
    const struct steps_options steps = {
        .batch = 1, .prompt = o->prompt, .max_tokens = o->max_tokens};
    size_t layers = m->shape->n_layers, experts = m->shape->n_experts;
    struct predicted *lists;
    if (!steps_init(&m->steps, m->trace, &steps))
        return false;
    m->memory = ARRAYS_NEW(ARRAY(m->last, layers), ARRAY(lists, layers * experts),
                           ARRAY(m->activated, experts),
                           ARRAY(m->selected, (size_t)m->steps.capacity * m->shape->n_used));
    for (size_t i = 0; m->memory && i < layers; i++)
        m->last[i].experts = lists + i * experts;
    m->predicting = predicting_new(o->predictor, m->trace, REPLAY_PREDICT_TOKENS, o->trained, NULL,
                                   predicted, m);
    return m->memory && m->predicting;
}

enum error_code accuracy_measure(const struct trace *trace, const struct accuracy_options *options,
                                 struct accuracy *out, struct error *e)
{
    struct measuring m = {.trace = trace, .shape = trace_shape(trace), .ahead = options->ahead};
    bool decoding;
    memset(out, 0, m.shape->n_layers * sizeof *out);
    bool ok = begin(&m, options);
    for (uint32_t n; ok && (n = steps_next(&m.steps, &decoding));)
        run_step(&m, n, decoding, out);
    predicting_free(m.predicting);
    steps_fini(&m.steps);
    free(m.memory);
    return ok ? ERROR_OK : error_set(e, ERROR_MEMORY, "no memory to measure a predictor");
}
