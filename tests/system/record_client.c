/* Requests with routing, for profile.sh: `record-client`, with the deployment of MOED_RUN.
 * The worker answers three prompts at once, as a batch, two of them with routing. Then each of
 * these two, prompt and answer, becomes the prompt of a request without an answer, which the worker
 * computes one token at a time: every token's routing must be the same. A third request has a phase
 * and no gate. An invalid request gets an error and affects no other. */
#include "client/include/moed.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 512, ANSWER = 40, PROMPTS = 3, RECORDED = 2, EVERY = 3 };

/* The routing of a request, in the order of arrival. */
struct record {
    size_t n, n_hidden;
    uint16_t *selected;
    float *gate;
    uint16_t *hidden;
    uint32_t hidden_at[MOST];
    uint32_t tokens[MOST];
    size_t n_tokens;
    bool in_order;
};

static size_t a_selected, a_gate, a_hidden; /* values per token */

static void fail(const char *what)
{
    fprintf(stderr, "record-client: %s\n", what);
    exit(1);
}

static void check(enum moed_code code, const struct moed_error *error)
{
    if (code)
        fail(error->message);
}

static struct record *record_new(void)
{
    struct record *r = calloc(1, sizeof *r);
    if (!r || !(r->selected = calloc(MOST, a_selected * sizeof *r->selected)) ||
        !(r->gate = calloc(MOST, a_gate * sizeof *r->gate)) ||
        !(r->hidden = calloc(MOST, a_hidden * sizeof *r->hidden)))
        fail("no memory");
    r->in_order = true;
    return r;
}

static void record_free(struct record *r)
{
    free(r->selected);
    free(r->gate);
    free(r->hidden);
    free(r);
}

static void take_routing(struct record *r, const struct moed_routing *some)
{
    r->in_order = r->in_order && some->first == r->n && some->token_count > 0 &&
                  r->n + some->token_count <= MOST &&
                  some->selected_count == some->token_count * a_selected &&
                  (!some->gate || some->gate_count == some->token_count * a_gate) &&
                  some->hidden_count == some->hidden_at_count * a_hidden;
    if (!r->in_order)
        return;
    memcpy(r->selected + r->n * a_selected, some->selected,
           some->selected_count * sizeof *some->selected);
    if (some->gate)
        memcpy(r->gate + r->n * a_gate, some->gate, some->gate_count * sizeof *some->gate);
    if (some->hidden_at_count) {
        memcpy(r->hidden + r->n_hidden * a_hidden, some->hidden,
               some->hidden_count * sizeof *some->hidden);
        memcpy(r->hidden_at + r->n_hidden, some->hidden_at,
               some->hidden_at_count * sizeof *some->hidden_at);
    }
    r->n += some->token_count;
    r->n_hidden += some->hidden_at_count;
}

static int take_event(void *arg, const struct moed_event *event)
{
    struct record *r = arg;
    for (size_t i = 0; i < event->token_count && r->n_tokens < MOST; i++)
        r->tokens[r->n_tokens++] = event->tokens[i];
    if (event->kind == MOED_EVENT_ROUTING)
        take_routing(r, event->routing);
    return 0;
}

static void require_same(const struct record *a, const struct record *b, bool gate)
{
    if (!a->in_order || !b->in_order || a->n != b->n || a->n == 0)
        fail("routing that is not in order or not complete");
    if (memcmp(a->selected, b->selected, a->n * a_selected * sizeof *a->selected) != 0)
        fail("other experts, one token at a time");
    if (gate && memcmp(a->gate, b->gate, a->n * a_gate * sizeof *a->gate) != 0)
        fail("other probabilities, one token at a time");
}

static void require_same_hidden(const struct record *a, const struct record *b)
{
    if (a->n_hidden != b->n_hidden || a->n_hidden != (a->n + EVERY - 1 - 1) / EVERY ||
        memcmp(a->hidden_at, b->hidden_at, a->n_hidden * sizeof *a->hidden_at) != 0)
        fail("gate inputs of other tokens");
    for (size_t i = 0; i < a->n_hidden; i++)
        if (a->hidden_at[i] % EVERY != 1)
            fail("gate inputs of tokens outside the requested phase");
    if (memcmp(a->hidden, b->hidden, a->n_hidden * a_hidden * sizeof *a->hidden) != 0)
        fail("other gate inputs, one token at a time");
}

/* Probabilities of a token in a layer: none negative, and the chosen ones not below the others. */
static void require_sound(const struct record *r, const struct moed_model *m)
{
    size_t rows = r->n * (m->layers - m->dense_layers);
    for (size_t i = 0; i < rows; i++) {
        const float *gate = r->gate + i * m->experts;
        const uint16_t *selected = r->selected + i * m->experts_used;
        for (uint32_t k = 0; k < m->experts_used; k++)
            if (selected[k] >= m->experts || !(gate[selected[k]] >= 0) ||
                (k > 0 && gate[selected[k]] > gate[selected[k - 1]]))
                fail("choices that are not in the order of their probabilities");
        for (uint32_t k = 0; k < m->experts; k++)
            if (!(gate[k] >= 0 && gate[k] <= 1))
                fail("an invalid probability");
    }
}

/* ---- requests ---- */

static void ask(struct moed_session *s, const uint32_t *tokens, size_t n,
                const struct moed_record_options *options, struct record *out)
{
    struct moed_error error;
    struct moed_generate_options o = {
        .size = sizeof o, .tokens = tokens, .token_count = n, .max_tokens = 1, .record = options};
    struct moed_result result = {.size = sizeof result};
    check(moed_generate(s, &o, take_event, out, &result, &error), &error);
    if (options->prompt_only && (result.generated_tokens || out->n_tokens || out->n != n ||
                                 result.reason != MOED_REASON_LENGTH))
        fail("an answer to a request without one");
}

/* Receives events of several requests. */
static void answer_together(struct moed_session *s, uint32_t *prompts[PROMPTS],
                            const size_t lengths[PROMPTS], struct record *out[PROMPTS])
{
    struct moed_record_options options = {
        .size = sizeof options, .gate = true, .hidden_every = EVERY, .hidden_phase = 1};
    struct moed_request *requests[PROMPTS];
    struct moed_error error;
    const struct moed_event *event;
    for (int i = 0; i < PROMPTS; i++) {
        struct moed_generate_options o = {.size = sizeof o,
                                          .tokens = prompts[i],
                                          .token_count = lengths[i],
                                          .max_tokens = ANSWER,
                                          .ignore_end = true,
                                          .record = i < RECORDED ? &options : NULL};
        check(moed_generate_start(s, &o, &requests[i], &error), &error);
    }
    for (int left = PROMPTS; left > 0;)
        for (int i = 0; i < PROMPTS; i++) {
            if (!requests[i])
                continue;
            enum moed_code code = moed_request_next(requests[i], 5, &event, &error);
            if (code == MOED_ERROR_TIMEOUT)
                continue;
            check(code, &error);
            take_event(out[i], event);
            if (event->kind != MOED_EVENT_DONE)
                continue;
            moed_request_free(requests[i]);
            requests[i] = NULL;
            left--;
        }
}

static void compare(struct moed_session *s, const struct moed_model *m, const uint32_t *prompt,
                    size_t n, const struct record *answered)
{
    struct moed_record_options options = {.size = sizeof options,
                                          .gate = true,
                                          .hidden_every = EVERY,
                                          .hidden_phase = 1,
                                          .stepwise = true,
                                          .prompt_only = true};
    uint32_t all[MOST];
    if (answered->n_tokens != ANSWER || answered->n != n + ANSWER - 1)
        fail("routing of other tokens than those computed");
    memcpy(all, prompt, n * sizeof *all);
    memcpy(all + n, answered->tokens, (ANSWER - 1) * sizeof *all);
    struct record *stepwise = record_new(), *plain = record_new();
    ask(s, all, answered->n, &options, stepwise);
    require_sound(answered, m);
    require_same(answered, stepwise, true);
    require_same_hidden(answered, stepwise);
    options = (struct moed_record_options){.size = sizeof(struct moed_record_options),
                                           .prompt_only = true};
    ask(s, all, answered->n, &options, plain);
    require_same(answered, plain, false);
    if (plain->n_hidden)
        fail("gate inputs without a request for them");
    record_free(stepwise);
    record_free(plain);
}

static void ask_wrongly(struct moed_session *s, const uint32_t *tokens)
{
    struct moed_record_options options = {
        .size = sizeof options, .hidden_every = 2, .hidden_phase = 2};
    struct moed_generate_options o = {
        .size = sizeof o, .tokens = tokens, .token_count = 2, .max_tokens = 1, .record = &options};
    struct moed_error error;
    if (moed_generate(s, &o, NULL, NULL, NULL, &error) != MOED_ERROR_USAGE)
        fail("the worker accepts a phase that is no remainder");
}

int main(void)
{
    static const char *const texts[PROMPTS] = {"Once upon a time there was a small cat", "The",
                                               "In the morning"};
    struct moed_session *s;
    struct moed_error error;
    struct moed_model *m;
    check(moed_attach(NULL, &s, &error), &error);
    check(moed_model_get(s, &m, &error), &error);
    size_t layers = m->layers - m->dense_layers;
    a_selected = layers * m->experts_used;
    a_gate = layers * m->experts;
    a_hidden = layers * m->d_model;
    uint32_t *prompts[PROMPTS];
    size_t lengths[PROMPTS];
    struct record *records[PROMPTS];
    for (int i = 0; i < PROMPTS; i++) {
        check(moed_tokenize(s, texts[i], strlen(texts[i]), MOED_ADD_SPECIAL, &prompts[i],
                            &lengths[i], &error),
              &error);
        records[i] = record_new();
    }
    ask_wrongly(s, prompts[0]);
    answer_together(s, prompts, lengths, records);
    if (records[RECORDED]->n)
        fail("routing of a request that did not ask for it");
    for (int i = 0; i < RECORDED; i++)
        compare(s, m, prompts[i], lengths[i], records[i]);
    for (int i = 0; i < PROMPTS; i++) {
        moed_free(prompts[i]);
        record_free(records[i]);
    }
    moed_model_free(m);
    moed_detach(s);
    return 0;
}
