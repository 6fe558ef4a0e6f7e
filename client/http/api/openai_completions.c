/* POST /v1/completions */
#include "client/http/api/openai.h"
#include "client/http/api/ask_body.h"
#include "client/http/api/prompt.h"
#include "client/http/api/stream.h"
#include "client/http/api/structure.h"

#define DEFAULT_MAX_TOKENS 16 /* as OpenAI has it */

/* ---- The request ---- */

/* Of so many answers the n likeliest are kept: with n of them that changes nothing. */
static bool take_best_of(struct ask *ask, json_t *value, struct problem *p)
{
    long long best;
    return read_integer(value, 0, ASK_CHOICES_MAX, &best, p);
}

static bool check_best_of(const struct ask *ask, struct problem *p)
{
    long long best = 0;
    if (!integer_of(json_object_get(ask->root, "best_of"), &best) || best <= 1 || best == ask->n)
        return true;
    return problem_refuse(p, 400, "best_of", "only 1 or n is supported: ask for n answers");
}

/* How many most probable tokens; false: none, and no log-probabilities either. */
static bool take_logprobs_count(struct ask *ask, json_t *value, struct problem *p)
{
    if (json_is_false(value))
        return true;
    ask->logprobs = true;
    return take_top_logprobs(ask, value, p);
}

static const struct parameter completion_parameters[] = {
    {.name = "prompt", .take = take_prompt},
    {.name = "model", .take = take_model},
    {.name = "stream", .take = take_stream},
    {.name = "stream_options", .take = take_stream_options},
    {.name = "max_tokens", .take = take_max_tokens},
    {.name = "n_predict", .take = take_n_predict}, /* llama-server's */
    {.name = "n", .take = take_n},
    {.name = "echo", .take = take_echo},
    {.name = "best_of", .take = take_best_of},
    {.name = "parse_special", .take = take_parse_special},
    {.name = "add_special_tokens", .take = take_add_special_tokens}, /* vLLM's */
    {.name = "logprobs", .take = take_logprobs_count},
    {.name = "response_format", .take = take_response_format},
    {.name = "structured output", .more = structure_parameters},
    {.name = "samplers and penalties", .more = sampling_parameters},
    {.name = "suffix", .take = take_fill_suffix},
    {.name = "user"},
    {0},
};

bool parse_completion(struct ask *ask, const char *body, size_t len, struct problem *p)
{
    ask->max_tokens = DEFAULT_MAX_TOKENS;
    ask->parse_special = true; /* whoever writes the prompt writes the template's marks, too */
    if (!ask_parse(ask, body, len, p) || !ask_take(ask, completion_parameters, ask->root, p))
        return false;
    if (!check_best_of(ask, p))
        return false;
    if (ask->fill.wanted && ask->echo && ask->logprobs)
        return problem_refuse(p, 400, "suffix",
                              "echo with logprobs is of a prompt without a suffix");
    if (ask->fill.wanted && ask->plain_prompt)
        return problem_refuse(p, 400, "add_special_tokens",
                              "false is of a prompt without a suffix");
    if (!ask->echo && !ask_check_limit(ask, "max_tokens", p))
        return false;
    return ask->prompt_count || problem_refuse(p, 400, "prompt", "prompt is missing");
}

/* ---- The answer ---- */

/* What an answer repeats of its prompt. */
static struct moed_bytes echo_text(const struct choice *c)
{
    const struct ask *ask = &c->answer->ask;
    return ask->echo ? ask_shown_prompt(&ask->prompts[c->prompt]) : (struct moed_bytes){"", 0};
}

static void choice_json(struct choice *c, const char *text, size_t len, bool end,
                        struct strbuf *out)
{
    struct scores *s = &c->scores;
    strbuf_printf(out, "{\"index\":%u", c->index);
    json_member(out, "text", text, len);
    strbuf_printf(out, ",\"logprobs\":");
    if (c->answer->ask.logprobs && s->written < s->count) {
        scores_columns_json(s, s->written, s->count, c->answer->vocabulary, out);
        s->written = s->count;
    } else {
        strbuf_printf(out, "null");
    }
    if (end)
        strbuf_printf(out, ",\"finish_reason\":\"%s\"}", openai_finish_reason(c));
    else
        strbuf_printf(out, ",\"finish_reason\":null}");
}

static void whole_choice_json(struct choice *c, struct strbuf *out)
{
    struct moed_bytes prompt = echo_text(c);
    struct strbuf text;
    strbuf_init(&text);
    strbuf_append(&text, prompt.data, prompt.len);
    output_text(&c->output, PART_TEXT, &text);
    out->failed = out->failed || text.failed;
    choice_json(c, text.data, text.len, true, out);
    strbuf_fini(&text);
}

static void write_whole(struct answer *a)
{
    struct strbuf *out = &a->x->out;
    openai_head(a, "text_completion", out);
    strbuf_printf(out, ",\"choices\":[");
    for (unsigned i = 0; i < a->n_choices; i++) {
        strbuf_printf(out, "%s", i ? "," : "");
        whole_choice_json(&a->choices[i], out);
    }
    strbuf_printf(out, "]");
    openai_usage(a, out);
    strbuf_printf(out, "}");
}

static void write_chunk(struct choice *c, const char *text, size_t len, bool end)
{
    struct answer *a = c->answer;
    struct strbuf *out = &a->x->out;
    event_begin(out, NULL);
    openai_head(a, "text_completion", out);
    strbuf_printf(out, ",\"choices\":[");
    choice_json(c, text, len, end, out);
    strbuf_printf(out, "]");
    openai_chunk_usage(a, out);
    strbuf_printf(out, "}");
    event_end(out);
}

static void write_echo(struct choice *c)
{
    struct moed_bytes prompt = echo_text(c);
    write_chunk(c, prompt.data, prompt.len, false);
}

/* A prompt whose log-probabilities are asked for comes with them. */
static void write_begin(struct answer *a)
{
    for (unsigned i = 0; i < a->n_choices && a->ask.echo; i++)
        if (!a->choices[i].awaits_scores)
            write_echo(&a->choices[i]);
}

static void write_text(struct choice *c, const struct part *part, const char *text, size_t len)
{
    write_chunk(c, text, len, false);
}

static void write_end_choice(struct choice *c)
{
    write_chunk(c, "", 0, true);
}

static void write_end(struct answer *a)
{
    openai_stream_end(a, "text_completion");
}

const struct dialect completion_dialect = {
    .stream_type = EVENT_STREAM,
    .has_end_token = true,
    .scores = SCORES_COLUMNS,
    .begin = write_begin,
    .scored = write_echo,
    .parts.text = write_text,
    .end_choice = write_end_choice,
    .end = write_end,
    .whole = write_whole,
    .fail = openai_stream_fail,
    .keep_alive = openai_keep_alive,
};

static void take_completions(struct exchange *x, struct ask *ask)
{
    answer_start(x, ask, &completion_dialect, "cmpl-");
}

void handle_completions(struct exchange *x)
{
    ask_body(x, parse_completion, take_completions);
}
