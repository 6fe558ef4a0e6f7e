/* Requests of Ollama's chat and generate; see ollama.h. */
#include "client/http/api/conversation.h"
#include "client/http/api/messages.h"
#include "client/http/api/ollama.h"
#include "client/http/api/structure.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* -1: until the end; -2: until the context is full. */
static bool take_num_predict(struct ask *ask, json_t *value, struct problem *p)
{
    long long v;
    if (integer_of(value, &v) && v < 0) {
        ask->ignore_end = v == -2;
        return true;
    }
    return take_max_tokens(ask, value, p);
}

/* The context is the deployment's. An error about it names this one. */
static bool take_num_ctx(struct ask *ask, json_t *value, struct problem *p)
{
    long long v;
    ask->num_ctx = integer_of(value, &v) && v > 0 && v < UINT32_MAX ? (uint32_t)v : 0;
    return true;
}

static const struct parameter options[] = {
    {.name = "num_predict", .take = take_num_predict},
    {.name = "samplers and penalties", .more = sampling_parameters},
    {.name = "penalize_newline"},
    /* of the deployment: `moed up` sets them */
    {.name = "num_ctx", .take = take_num_ctx},
    {.name = "num_batch"},
    {.name = "num_gpu"},
    {.name = "main_gpu"},
    {.name = "num_thread"},
    {.name = "use_mmap"},
    {.name = "use_mlock"},
    {.name = "low_vram"},
    {.name = "numa"},
    {.name = "f16_kv"},
    {.name = "logits_all", .refused = "an answer has log-probabilities: logprobs"},
    {.name = "vocab_only", .refused = "it is of the deployment"},
    {.name = "embedding_only", .refused = "the models generate text"},
    {0},
};

static bool take_options(struct ask *ask, json_t *value, struct problem *p)
{
    return json_is_object(value) ? ask_take(ask, options, value, p)
                                 : problem_set(p, 400, "an object is expected");
}

/* Makes the images, which stand beside the text, parts of the content as in OpenAI's API. */
static bool images_to_parts(json_t *message, struct problem *p)
{
    if (json_array_size(json_object_get(message, "images")) == 0)
        return true;
    json_t *parts = json_array(), *text = json_object_get(message, "content");
    int failed = 0;
    if (json_string_length(text))
        failed |=
            json_array_append_new(parts, json_pack("{s:s, s:O}", "type", "text", "text", text));
    failed |= json_array_append_new(parts, json_pack("{s:s}", "type", "image"));
    failed |= json_object_set_new(message, "content", parts);
    return !failed || problem_set(p, 503, "no memory for the messages");
}

static bool take_turns(struct ask *ask, json_t *value, struct problem *p)
{
    for (size_t i = 0; i < json_array_size(value); i++)
        if (!images_to_parts(json_array_get(value, i), p))
            return false;
    bool only_loads = json_is_array(value) && json_array_size(value) == 0;
    return only_loads || take_messages(ask, value, p);
}

/* Seconds, or a text such as "5m", "1h30m", "-1". Below 0: for ever. */
static bool take_keep_alive(struct ask *ask, json_t *value, struct problem *p)
{
    static const struct {
        const char *unit;
        double seconds;
    } units[] = {{"ms", 1e-3}, {"us", 1e-6}, {"ns", 1e-9}, {"h", 3600}, {"m", 60}, {"s", 1}};
    ask->has_keep = true;
    if (json_is_number(value)) {
        ask->keep_s = json_number_value(value);
        return true;
    }
    const char *at = json_string_value(value);
    char *end = NULL;
    if (!at || !*at)
        return problem_set(p, 400, "seconds, or a duration such as 5m is expected");
    ask->keep_s = strtod(at, &end);
    if (end != at && !*end && isfinite(ask->keep_s))
        return true;
    bool negative = *at == '-';
    for (ask->keep_s = 0, at += negative; *at;) {
        double number = strtod(at, &end);
        size_t i = 0, n = sizeof units / sizeof *units;
        while (i < n && strncmp(end, units[i].unit, strlen(units[i].unit)) != 0)
            i++;
        if (end == at || i == n || !(number >= 0 && number < 1e9))
            return problem_set(p, 400, "seconds, or a duration such as 5m is expected");
        ask->keep_s += number * units[i].seconds;
        at = end + strlen(units[i].unit);
    }
    ask->keep_s = negative ? -1 : ask->keep_s;
    return true;
}

static const struct parameter common[] = {
    {.name = "model", .take = take_model},
    {.name = "stream", .take = take_stream},
    {.name = "options", .take = take_options},
    {.name = "format", .take = take_json_format},
    {.name = "think", .take = take_think},
    {.name = "logprobs", .take = take_logprobs},
    {.name = "top_logprobs", .take = take_top_logprobs},
    {.name = "keep_alive", .take = take_keep_alive},
    {0},
};

static const struct parameter chat_table[] = {
    {.name = "what /api/generate has too", .more = common},
    {.name = "messages", .take = take_turns},
    {.name = "tools", .take = take_tools},
    {0},
};

bool parse_ollama_chat(struct ask *ask, const char *body, size_t len, struct problem *p)
{
    ask->stream = true;
    if (!ask_parse(ask, body, len, p) || !ask_take(ask, chat_table, ask->root, p) ||
        !finish_tools(ask, p))
        return false;
    /* without messages it is a client that only loads the model; chat_render fills the prompt */
    return !ask->messages || ask_add_prompt(ask, &(struct ask_prompt){0}, p);
}

/* parse_ollama_generate reads them. */
static bool take_generate_text(struct ask *ask, json_t *value, struct problem *p)
{
    return json_is_string(value) || problem_set(p, 400, "a string is expected");
}

static const struct parameter generate_table[] = {
    {.name = "what /api/chat has too", .more = common},
    {.name = "prompt", .take = take_generate_text},
    {.name = "system", .take = take_generate_text},
    {.name = "raw"},
    {.name = "template", .refused = "the model's own template is used"},
    {.name = "suffix", .take = take_fill_suffix},
    {.name = "width", .refused = "the models are for text"},
    {.name = "height", .refused = "the models are for text"},
    {.name = "steps", .refused = "the models are for text"},
    {.name = "images", .refused = "this model takes text only"},
    {.name = "context", .refused = "use /api/chat with the whole conversation"},
    {0},
};

/* With `raw` or a suffix the prompt as it is, else as a user's turn. */
static bool add_generate_prompt(struct ask *ask, const char *system, const json_t *prompt,
                                struct problem *p)
{
    if (json_is_true(json_object_get(ask->root, "raw")) || ask->fill.wanted) {
        struct ask_prompt raw = {.text = prompt ? json_string_value(prompt) : "",
                                 .text_bytes = json_string_length(prompt)};
        ask->parse_special = true;
        return ask_add_prompt(ask, &raw, p);
    }
    if (system && *system && !add_message(ask, "system", json_string(system), p))
        return false;
    return add_message(ask, "user", content_text(prompt, CONTENT_QUESTION, "prompt", p), p) &&
           ask_add_prompt(ask, &(struct ask_prompt){0}, p);
}

bool parse_ollama_generate(struct ask *ask, const char *body, size_t len, struct problem *p)
{
    ask->stream = true;
    if (!ask_parse(ask, body, len, p) || !ask_take(ask, generate_table, ask->root, p))
        return false;
    const json_t *prompt = json_object_get(ask->root, "prompt");
    const json_t *system = json_object_get(ask->root, "system");
    if (json_string_length(prompt) == 0 && !ask->fill.wanted)
        return true; /* a client that only loads the model */
    return add_generate_prompt(ask, json_string_value(system), prompt, p);
}
