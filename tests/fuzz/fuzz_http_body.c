/* Fuzz target of the HTTP APIs' requests: the first byte names the API, the others are a body. It
 * becomes a request whose parts agree, or is refused with a status and one line. */
#include "client/http/api/anthropic.h"
#include "client/http/api/infill.h"
#include "client/http/api/llama_completion.h"
#include "client/http/api/ollama.h"
#include "client/http/api/openai.h"
#include "client/http/api/openai_responses.h"
#include "client/http/api/structure.h"
#include "chat/tool_messages.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool holds)
{
    if (!holds)
        abort();
}

static bool parse_message(struct ask *ask, const char *body, size_t len, struct problem *p)
{
    return parse_messages(ask, body, len, false, p);
}

static bool parse_count(struct ask *ask, const char *body, size_t len, struct problem *p)
{
    return parse_messages(ask, body, len, true, p);
}

static void check_messages(const json_t *messages)
{
    for (size_t i = 0; i < json_array_size(messages); i++) {
        const json_t *message = json_array_get(messages, i);
        require(json_is_string(json_object_get(message, "role")));
        require(json_is_string(json_object_get(message, "content")));
    }
}

/* What the template gets as plain text, and what binds the answer, can be made of any request. */
static void check_tools(const struct ask *ask)
{
    require(!ask->tools == !ask->tool_list);
    if (ask->calls == CALLS_NAMED)
        require(tool_list_find(ask->tool_list, ask->call_name, strlen(ask->call_name)) != NULL);
    if (!ask->messages)
        return;
    json_t *plain = tool_messages_plain(ask->messages, ask->tools);
    check_messages(plain);
    json_decref(plain);
    static const struct reasoning_marks think = {.begin = "<think>", .end = "</think>"};
    struct chat_rendered chat = {.style = {tool_format_find("hermes"), &think}};
    struct structure s;
    struct moed_error error = {0};
    if (structure_init(&s, ask, &chat, &error))
        require(error.code && error.message[0]);
    structure_fini(&s);
}

/* The model's own value holds. */
static bool is_default(float value)
{
    return value == MOED_DEFAULT_FLOAT;
}

/* What fill_prompts reads. */
static void check_fill(const struct ask_fill *fill)
{
    require(!fill->wanted || fill->suffix.data);
    require(!fill->infill || fill->prefix.data);
    for (size_t i = 0; i < json_array_size(fill->extra); i++) {
        const json_t *chunk = json_array_get(fill->extra, i);
        const json_t *name = json_object_get(chunk, "filename");
        require(json_is_string(json_object_get(chunk, "text")) && (!name || json_is_string(name)));
    }
}

static void check_accepted(const struct ask *ask)
{
    require(ask->n >= 1 && ask->n <= ASK_CHOICES_MAX && ask->prompt_count <= ASK_CHOICES_MAX);
    require(ask->stop_count <= ASK_STOPS_MAX);
    require(is_default(ask->sampling.temperature) || ask->sampling.temperature >= 0);
    require(is_default(ask->sampling.top_p) ||
            (ask->sampling.top_p >= 0 && ask->sampling.top_p <= 1));
    for (size_t i = 0; i < ask->stop_count; i++)
        require(ask->stops[i].data && ask->stops[i].len);
    for (size_t i = 0; i < ask->prompt_count; i++)
        require(ask->messages || ask->fill.wanted || ask->prompts[i].text_bytes ||
                ask->prompts[i].token_count);
    check_fill(&ask->fill);
    check_messages(ask->messages);
    check_tools(ask);
    require(!ask->form == !ask->form_text && ask->top_logprobs <= ASK_TOP_MAX);
    require(ask->bias_count <= ASK_BIASES_MAX && ask->breaker_count <= ASK_BREAKERS_MAX);
    require(strlen(ask->order) < sizeof ask->order);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static bool (*const parsers[])(struct ask *, const char *, size_t, struct problem *) = {
        parse_chat,   parse_completion,  parse_response,        parse_message,
        parse_count,  parse_ollama_chat, parse_ollama_generate, parse_llama_completion,
        parse_infill,
    };
    if (size == 0)
        return 0;
    struct ask ask;
    struct problem p = {0};
    ask_init(&ask);
    if (parsers[data[0] % (sizeof parsers / sizeof *parsers)](&ask, (const char *)data + 1,
                                                              size - 1, &p))
        check_accepted(&ask);
    else
        require(p.status >= 400 && p.message[0] && strlen(p.parameter) < sizeof p.parameter);
    ask_fini(&ask);
    return 0;
}
