/* Budgets of reasoning; see budget.h. */
#include "client/http/api/budget.h"

#include "client/http/api/answer_start.h"
#include "client/http/api/failure.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define HARMONY_TURN  "<|end|><|start|>assistant"
#define HARMONY_FINAL HARMONY_TURN "<|channel|>final<|message|>"

void budget_fini(struct budget *b)
{
    free(b->tokens);
    moed_request_free(b->request);
    *b = (struct budget){0};
}

static void remember(struct budget *b, const uint32_t *tokens, size_t n)
{
    if (b->count + n > b->capacity) {
        size_t capacity = 2 * b->capacity + n + 256;
        uint32_t *grown = realloc(b->tokens, capacity * sizeof *grown);
        b->failed = b->failed || !grown;
        b->tokens = grown ? grown : b->tokens;
        b->capacity = grown ? capacity : b->capacity;
    }
    if (!b->failed && n)
        memcpy(b->tokens + b->count, tokens, n * sizeof *tokens);
    b->count += b->failed ? 0 : n;
}

bool budget_counts(const struct choice *c)
{
    return c->answer->ask.reasoning_budget && c->output.parser && !c->budget.resumed &&
           !c->output.reasoning_ended;
}

static void reach(struct choice *c)
{
    c->budget.reached = true;
    moed_request_cancel(c->request);
}

bool budget_stops_before(struct choice *c, const struct moed_event *e)
{
    bool over = budget_counts(c) && output_is_over_budget(&c->output);
    if (over && e->token_count && !e->forced && !c->budget.reached)
        reach(c);
    return budget_is_reached(c);
}

void budget_note(struct choice *c, const struct moed_event *e, uint32_t n)
{
    struct budget *b = &c->budget;
    size_t limit = c->answer->limit.options.forced_count;
    if (!budget_counts(c))
        return;
    remember(b, e->tokens, n);
    b->forced += e->forced ? n : 0;
    if (b->forced && b->forced == limit)
        output_end_reasoning(&c->output, "", 0);
    if (b->failed || !output_is_over_budget(&c->output))
        return;
    if (!limit || n < e->token_count) /* else the next event shows whether the worker ends it */
        reach(c);
}

bool budget_is_reached(const struct choice *c)
{
    return c->budget.reached && !c->budget.resumed;
}

/* ---- On the deployment's thread ---- */

static enum moed_code no_memory(struct moed_error *error)
{
    *error = (struct moed_error){.code = MOED_ERROR_MEMORY, .message = "no memory"};
    return MOED_ERROR_MEMORY;
}

/* The prompt, the answer so far, and the end of the reasoning. *all: owned. */
static enum moed_code join_tokens(struct choice *c, uint32_t **all, size_t *count,
                                  struct moed_error *error)
{
    struct budget *b = &c->budget;
    const struct ask_prompt *prompt = &c->answer->ask.prompts[c->prompt];
    uint32_t *end = NULL;
    size_t n = 0;
    enum moed_code code = moed_tokenize(c->answer->deployment->answering.session, b->end,
                                        strlen(b->end), MOED_PARSE_SPECIAL, &end, &n, error);
    if (code)
        return code;
    *count = prompt->token_count + b->count + n;
    *all = malloc((*count + 1) * sizeof **all);
    b->end_tokens = (uint32_t)n;
    if (*all) {
        memcpy(*all, prompt->tokens, prompt->token_count * sizeof **all);
        memcpy(*all + prompt->token_count, b->tokens, b->count * sizeof **all);
        memcpy(*all + prompt->token_count + b->count, end, n * sizeof **all);
    } else {
        code = no_memory(error);
    }
    moed_free(end);
    return code;
}

/* Is there space for a token behind n of the prompt, the answer so far and the end? */
static enum moed_code find_space(struct choice *c, size_t n, struct moed_error *error)
{
    struct budget *b = &c->budget;
    uint32_t most = c->answer->ask.max_tokens;
    struct moed_model *model;
    enum moed_code code = moed_model_get(c->answer->deployment->answering.session, &model, error);
    if (code)
        return code;
    if (most && b->count + b->end_tokens >= most)
        b->stop = MOED_REASON_LENGTH;
    else if (n >= model->context)
        b->stop = MOED_REASON_CONTEXT;
    moed_model_free(model);
    return MOED_OK;
}

/* Where the mark that begins reasoning is one token, the rest of the answer does without it. *bias:
 * the request's biases and this one; owned by the caller. */
static enum moed_code forbid_reopening(struct choice *c, struct moed_sampling *s,
                                       struct moed_bias **bias, struct moed_error *error)
{
    const struct moed_reasoning_limit *limit = &c->answer->limit.options;
    if (!limit->forbidden_count)
        return MOED_OK;
    *bias = malloc((s->bias_count + 1) * sizeof **bias);
    if (!*bias)
        return no_memory(error);
    if (s->bias_count)
        memcpy(*bias, s->bias, s->bias_count * sizeof **bias);
    (*bias)[s->bias_count++] = (struct moed_bias){.token = limit->forbidden[0], .bias = -INFINITY};
    s->bias = *bias; /* the last one of a token counts */
    return MOED_OK;
}

/* The request that goes on behind `tokens`. */
static enum moed_code start_behind(struct choice *c, const uint32_t *tokens, size_t n,
                                   struct moed_error *error)
{
    struct budget *b = &c->budget;
    struct answer *a = c->answer;
    struct moed_sampling sampling;
    struct moed_generate_options o = answer_options(a, c, &sampling);
    uint32_t used = (uint32_t)b->count + b->end_tokens;
    struct structure s;
    struct moed_bias *bias = NULL;
    enum moed_code code = structure_init_behind(&s, &a->ask, &a->chat, error);
    if (!code) /* a grammar of calls binds only behind their mark */
        code = forbid_reopening(c, &sampling, &bias, error);
    if (!code) {
        o.tokens = tokens;
        o.token_count = n;
        o.max_tokens -= o.max_tokens ? used : 0;
        o.min_tokens = o.min_tokens > used ? o.min_tokens - used : 0;
        o.grammar = s.grammar.kind ? &s.grammar : NULL;
        o.reasoning = NULL;
        code = deployment_generate(a->deployment, &o, &b->request, error);
    }
    structure_fini(&s);
    free(bias);
    return code;
}

/* The reasoning was another model's, `moed reload` came between. */
static enum moed_code replaced(struct moed_error *error)
{
    *error = (struct moed_error){.code = MOED_ERROR_UNAVAILABLE, .retry = true};
    snprintf(error->message, sizeof error->message,
             "the model was replaced while it answered: try again");
    return error->code;
}

static void work(struct job *job)
{
    struct budget *b = (struct budget *)job;
    struct choice *c = b->choice;
    struct moed_error error;
    uint32_t *tokens = NULL;
    size_t n = 0;
    enum moed_code code = deployment_attach(c->answer->deployment, &error);
    if (!code && c->answer->replacements != c->answer->deployment->replacements)
        code = replaced(&error);
    if (!code)
        code = join_tokens(c, &tokens, &n, &error);
    if (!code)
        code = find_space(c, n, &error);
    if (!code && !b->stop)
        code = start_behind(c, tokens, n, &error);
    free(tokens);
    if (code)
        problem_from_moed(&b->problem, &error);
}

/* ---- Back on the loop ---- */

static void done(struct job *job)
{
    struct budget *b = (struct budget *)job;
    struct choice *c = b->choice;
    c->request = b->request;
    b->request = NULL;
    if (b->stop) {
        c->result.reason = b->stop;
    } else if (c->answer->x) { /* else the client has left, and nobody reads the answer */
        output_end_reasoning(&c->output, b->end, b->end_tokens);
        c->tokens += b->end_tokens;
    }
    b->on_resumed(c, &b->problem);
}

/* What ends the reasoning. A grammar of harmony's channels begins with a turn, one of a text alone
 * stands in the last channel. */
static const char *end_of(const struct choice *c)
{
    const struct answer *a = c->answer;
    if (a->chat.style.reasoning)
        return a->chat.style.reasoning->end;
    bool channels = a->structure.grammar.kind && !a->structure.grammar.trigger_required;
    return channels ? HARMONY_TURN : HARMONY_FINAL;
}

static void sum_up(struct choice *c)
{
    const struct budget *b = &c->budget;
    struct moed_result *r = &c->result;
    r->prompt_tokens = b->before.prompt_tokens;
    r->cached_tokens = b->before.cached_tokens;
    r->generated_tokens += (uint32_t)b->count + b->end_tokens;
    r->queue_ns = b->before.queue_ns;
    r->prefill_ns = b->before.prefill_ns;
    r->decode_ns += b->before.decode_ns;
    r->drafted_tokens += b->before.drafted_tokens;
    r->accepted_tokens += b->before.accepted_tokens;
}

static bool is_among(uint32_t token, const uint32_t *tokens, size_t n)
{
    size_t i = 0;
    while (i < n && tokens[i] != token)
        i++;
    return i < n;
}

/* Whether the caller's answer ends with the token, which the worker may have forced. */
static bool is_wanted_end(const struct answer *a, uint32_t token)
{
    const struct moed_reasoning_limit *limit = &a->limit.options;
    return is_among(token, a->ask.stop_tokens, a->ask.stop_token_count) &&
           is_among(token, limit->forced, limit->forced_count);
}

bool budget_resume(struct choice *c, const struct moed_result *result)
{
    struct budget *b = &c->budget;
    struct answer *a = c->answer;
    uint32_t most = a->ask.max_tokens;
    c->result = *result;
    if (b->resumed)
        sum_up(c);
    if (result->reason == MOED_REASON_END && result->end_token >= 0 && budget_counts(c) &&
        output_is_over_budget(&c->output) && !is_wanted_end(a, (uint32_t)result->end_token))
        b->reached = true; /* the model ended the answer where the worker did not force a token */
    if (!budget_is_reached(c) || b->failed)
        return false;
    c->result.generated_tokens = (uint32_t)b->count;
    if (most && b->count >= most) {
        c->result.reason = MOED_REASON_LENGTH;
        return false;
    }
    b->resumed = true;
    b->before = *result;
    b->choice = c;
    b->end = end_of(c);
    b->job = (struct job){.work = work, .done = done};
    moed_request_free(c->request);
    c->request = NULL;
    a->jobs++;
    jobs_post(&a->deployment->queue, &b->job);
    return true;
}
