/* POST /completion, as llama-server has it; see llama_completion.h. */
#include "client/http/api/llama_completion.h"

#include "client/http/api/ask_body.h"
#include "client/http/api/openai.h"
#include "client/http/api/prompt.h"
#include "client/http/api/response_fields.h"
#include "client/http/api/stream.h"
#include "client/http/api/structure.h"
#include "client/http/api/timings.h"

/* ---- The request ---- */

/* How many most probable tokens; 0: none, and no log-probabilities either. */
static bool take_n_probs(struct ask *ask, json_t *value, struct problem *p)
{
    bool good = take_top_logprobs(ask, value, p);
    ask->logprobs = ask->top_logprobs > 0;
    return good;
}

/* The largest of 32 bits is llama-server's name for -1. */
static bool take_llama_seed(struct ask *ask, json_t *value, struct problem *p)
{
    long long v;
    bool random = integer_of(value, &v) && v == UINT32_MAX;
    return random || take_seed(ask, value, p);
}

/* The end cannot be chosen; elsewhere it can, and the answer goes on, as vLLM has it. */
static bool take_ban_end(struct ask *ask, json_t *value, struct problem *p)
{
    bool good = take_ignore_end(ask, value, p);
    ask->ban_end = ask->ignore_end;
    return good;
}

static bool take_return_tokens(struct ask *ask, json_t *value, struct problem *p)
{
    return read_bool(value, &ask->return_tokens, p);
}

const struct parameter llama_completion_parameters[] = {
    {.name = "prompt", .take = take_prompt},
    {.name = "n_predict", .take = take_n_predict},
    {.name = "max_tokens", .take = take_max_tokens},
    {.name = "stream", .take = take_stream},
    {.name = "model", .take = take_model},
    {.name = "n", .take = take_n},
    {.name = "n_cmpl", .take = take_n},
    {.name = "parse_special", .take = take_parse_special},
    {.name = "add_special_tokens", .take = take_add_special_tokens}, /* vLLM's */
    {.name = "seed", .take = take_llama_seed},                       /* before the shared row */
    {.name = "n_probs", .take = take_n_probs},    /* before the shared row, which refuses it */
    {.name = "ignore_eos", .take = take_ban_end}, /* before the shared row */
    {.name = "logprobs", .refused = "use n_probs"},
    {.name = "post_sampling_probs", .refused = "the probabilities are the model's own"},
    {.name = "return_tokens", .take = take_return_tokens},
    {.name = "echo", .refused = "/v1/completions has echo"},
    {.name = "response_fields", .take = take_response_fields},
    {.name = "response_format", .take = take_response_format},
    {.name = "structured output", .more = structure_parameters},
    {.name = "return_progress", .take = take_return_progress}, /* before the shared row */
    {.name = "timings_per_token", .take = take_timings_per_token},
    {.name = "samplers and penalties", .more = sampling_parameters},
    {0},
};

void llama_completion_conclude(struct ask *ask)
{
    ask_prompt_only(ask);
    ask->return_tokens = ask->return_tokens || ask->stream; /* as llama-server does */
}

bool parse_llama_completion(struct ask *ask, const char *body, size_t len, struct problem *p)
{
    ask->parse_special = true;
    if (!ask_parse(ask, body, len, p) || !ask_take(ask, llama_completion_parameters, ask->root, p))
        return false;
    llama_completion_conclude(ask);
    return ask->prompt_count || problem_refuse(p, 400, "prompt", "prompt is missing");
}

/* ---- The answer ---- */

static void stop_json(const struct choice *c, struct strbuf *out)
{
    const struct moed_result *r = &c->result;
    struct moed_bytes word = {"", 0};
    if (r->reason == MOED_REASON_STOP && r->stop_index >= 0)
        word = c->answer->ask.stops[r->stop_index];
    strbuf_printf(out, ",\"stop\":true,\"stop_type\":\"%s\"",
                  choice_is_cut(c) ? "limit"
                  : word.len       ? "word"
                                   : "eos");
    json_member(out, "stopping_word", word.data, word.len);
}

/* The parameters that the answer was sampled with, by llama-server's names. */
static void sampling_json(const struct choice *c, const struct moed_model *facts,
                          struct strbuf *out)
{
    struct moed_sampling s = ask_shown(&c->answer->ask, facts);
    const struct ask *ask = &c->answer->ask;
    bool whole = s.repetition_window == UINT32_MAX - 1; /* as take_repetition_window has it */
    double repeat_last = whole ? -1.0 : s.repetition_window, dry_last = s.dry_window;
    if (ask->repeat_off)
        repeat_last = 0;
    if (!ask->dry_off && s.dry_window == 0)
        dry_last = -1;
    struct {
        const char *name;
        double value;
    } numbers[] = {{"temperature", s.temperature},
                   {"dynatemp_range", s.dynamic_temperature},
                   {"dynatemp_exponent", s.dynamic_exponent},
                   {"top_k", s.top_k},
                   {"top_p", s.top_p},
                   {"min_p", s.min_p},
                   {"typical_p", s.typical_p},
                   {"top_n_sigma", s.top_n_sigma},
                   {"xtc_probability", s.xtc_probability},
                   {"xtc_threshold", s.xtc_threshold},
                   {"repeat_last_n", repeat_last},
                   {"repeat_penalty", s.repetition_penalty},
                   {"presence_penalty", s.presence_penalty},
                   {"frequency_penalty", s.frequency_penalty},
                   {"dry_multiplier", s.dry_multiplier},
                   {"dry_base", s.dry_base},
                   {"dry_allowed_length", s.dry_allowed_length},
                   {"dry_penalty_last_n", dry_last},
                   {"mirostat", s.mirostat},
                   {"mirostat_tau", s.mirostat_tau},
                   {"mirostat_eta", s.mirostat_eta},
                   {"n_probs", ask->top_logprobs}};
    strbuf_printf(out, ",\"seed\":%lld", (long long)c->result.seed);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        strbuf_printf(out, ",\"%s\":%.6g", numbers[i].name, numbers[i].value);
    strbuf_printf(out, ",\"ignore_eos\":%s,\"stream\":%s", ask->ignore_end ? "true" : "false",
                  ask->stream ? "true" : "false");
}

/* What editors and scripts show of it. */
static void settings_json(const struct choice *c, struct strbuf *out)
{
    const struct answer *a = c->answer;
    const struct moed_model *facts = a->deployment->facts; /* NULL: the worker was restarted */
    strbuf_printf(out, ",\"generation_settings\":{\"n_ctx\":%u,\"n_predict\":%lld",
                  facts ? facts->context : 0,
                  a->ask.prompt_only  ? 0LL
                  : a->ask.max_tokens ? (long long)a->ask.max_tokens
                                      : -1LL);
    sampling_json(c, facts, out);
    strbuf_printf(out, "}");
}

/* Those that the client does not have yet, with their log-probabilities. */
static void tokens_json(struct choice *c, struct strbuf *out)
{
    struct scores *s = &c->scores;
    const struct ask *ask = &c->answer->ask;
    strbuf_printf(out, ",\"tokens\":");
    scores_tokens_json(s, s->written, ask->return_tokens ? s->count : s->written, out);
    if (ask->logprobs && s->written < s->count) {
        strbuf_printf(out, ",\"completion_probabilities\":");
        scores_id_json(s, s->written, s->count, c->answer->vocabulary, out);
    }
    s->written = s->count;
}

/* They may be megabytes. */
static bool wants_tokens(const struct ask *ask)
{
    return response_fields_want(ask, "tokens") ||
           response_fields_want(ask, "completion_probabilities");
}

static void all_json(struct choice *c, const char *text, size_t len, struct strbuf *out)
{
    const struct moed_result *r = &c->result;
    strbuf_printf(out, "{\"index\":%u", c->index);
    json_member(out, "content", text, len);
    json_string_member(out, "model", c->answer->model);
    if (wants_tokens(&c->answer->ask))
        tokens_json(c, out);
    strbuf_printf(out,
                  ",\"tokens_predicted\":%u,\"tokens_evaluated\":%u,"
                  "\"tokens_cached\":%u,\"truncated\":false",
                  r->generated_tokens, r->prompt_tokens, r->prompt_tokens + r->generated_tokens);
    stop_json(c, out);
    settings_json(c, out);
    timings_json(c, out);
    strbuf_printf(out, "}");
}

static void last_json(struct choice *c, const char *text, size_t len, struct strbuf *out)
{
    if (!c->answer->ask.response_fields) {
        all_json(c, text, len, out);
        return;
    }
    struct strbuf all;
    strbuf_init(&all);
    all_json(c, text, len, &all);
    response_fields_json(&c->answer->ask, &all, out);
    strbuf_fini(&all);
}

/* An object for one prompt, an array for several. */
static void write_whole(struct answer *a)
{
    struct strbuf *out = &a->x->out, text;
    strbuf_printf(out, "%s", a->n_choices > 1 ? "[" : "");
    for (unsigned i = 0; i < a->n_choices; i++) {
        strbuf_init(&text);
        output_text(&a->choices[i].output, PART_TEXT, &text);
        strbuf_printf(out, "%s", i ? "," : "");
        last_json(&a->choices[i], text.data, text.len, out);
        out->failed = out->failed || text.failed;
        strbuf_fini(&text);
    }
    strbuf_printf(out, "%s", a->n_choices > 1 ? "]" : "");
}

static void write_begin(struct answer *a) {}

/* progress: of the prompt; NULL: nothing about it */
static void write_chunk(struct choice *c, const struct moed_progress *progress, const char *text,
                        size_t len)
{
    struct strbuf *out = &c->answer->x->out;
    event_begin(out, NULL);
    strbuf_printf(out, "{\"index\":%u", c->index);
    json_member(out, "content", text, len);
    tokens_json(c, out);
    strbuf_printf(out, ",\"stop\":false");
    if (progress)
        timings_progress_json(progress, out);
    timings_chunk_json(c, out);
    strbuf_printf(out, "}");
    event_end(out);
}

static void write_text(struct choice *c, const struct part *part, const char *text, size_t len)
{
    write_chunk(c, NULL, text, len);
}

static void write_progress(struct choice *c, const struct moed_progress *progress)
{
    write_chunk(c, progress, "", 0);
}

/* Tokens that show no text, such as the one that ended the answer, come before the last event. */
static void write_end_choice(struct choice *c)
{
    if (c->scores.written < c->scores.count)
        write_text(c, NULL, "", 0);
    event_begin(&c->answer->x->out, NULL);
    last_json(c, "", 0, &c->answer->x->out);
    event_end(&c->answer->x->out);
}

static void write_end(struct answer *a) {}

const struct dialect llama_dialect = {
    .stream_type = EVENT_STREAM,
    .has_end_token = true,
    .scores = SCORES_ID_ROWS,
    .begin = write_begin,
    .progress = write_progress,
    .parts.text = write_text,
    .end_choice = write_end_choice,
    .end = write_end,
    .whole = write_whole,
    .fail = openai_stream_fail,
    .keep_alive = openai_keep_alive,
};

static void take_llama_completion(struct exchange *x, struct ask *ask)
{
    answer_start(x, ask, &llama_dialect, "cmpl-");
}

void handle_llama_completion(struct exchange *x)
{
    ask_body(x, parse_llama_completion, take_llama_completion);
}
