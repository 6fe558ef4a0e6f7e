/* Parameters that chats of all APIs share; see ask.h: how the model reasons, and where the prompt
 * ends. */
#include "client/http/api/ask.h"

#include <string.h>

/* ---- The prompt's end ---- */

static bool take_continue(struct ask *ask, json_t *value, struct problem *p)
{
    bool on;
    if (!read_bool(value, &on, p))
        return false;
    ask->end = on ? CHAT_END_CONTINUE : CHAT_END_ANSWER;
    return true;
}

/* Without it the prompt ends behind the last message. */
static bool take_generation_prompt(struct ask *ask, json_t *value, struct problem *p)
{
    bool on;
    if (!read_bool(value, &on, p))
        return false;
    if (!on && ask->end != CHAT_END_CONTINUE)
        ask->end = CHAT_END_CLOSED;
    return true;
}

/* ---- Reasoning ---- */

/* llama-server's: "none" leaves the reasoning in the content. */
static bool take_reasoning_format(struct ask *ask, json_t *value, struct problem *p)
{
    const char *name = json_string_value(value);
    if (!name ||
        (strcmp(name, "none") != 0 && strcmp(name, "auto") != 0 && strcmp(name, "deepseek") != 0))
        return problem_set(p, 400, "none, auto or deepseek is expected");
    ask->reasoning_as_content = strcmp(name, "none") == 0;
    return true;
}

static bool take_include_reasoning(struct ask *ask, json_t *value, struct problem *p)
{
    bool on;
    if (!read_bool(value, &on, p))
        return false;
    ask->reasoning_hidden = !on;
    return true;
}

/* -1: no limit. */
static bool take_reasoning_budget(struct ask *ask, json_t *value, struct problem *p)
{
    long long v;
    if (!read_integer(value, -1, UINT32_MAX, &v, p))
        return false;
    if (v == 0)
        return problem_set(p, 400, "at least 1 is expected; reasoning_effort none asks for none");
    ask->reasoning_budget = v > 0 ? (uint32_t)v : 0;
    ask->budget_given = true;
    return true;
}

void ask_take_budget(struct ask *ask, const struct moed_model *model)
{
    if (ask->messages && !ask->budget_given)
        ask->reasoning_budget = model->reasoning_budget;
}

/* Whether, or how much. */
bool take_think(struct ask *ask, json_t *value, struct problem *p)
{
    if (json_is_boolean(value))
        return take_enable_thinking(ask, value, p);
    ask->thinking = CHAT_ON;
    return take_effort(ask, value, p);
}

/* Anthropic's, DeepSeek's and Z.ai's {"type", "budget_tokens"}. */
static bool take_thinking(struct ask *ask, json_t *value, struct problem *p)
{
    static const struct {
        const char *type;
        enum chat_switch thinking;
    } known[] = {{"enabled", CHAT_ON},
                 {"disabled", CHAT_OFF},
                 {"adaptive", CHAT_UNSET},
                 {"auto", CHAT_UNSET}};
    const char *type = json_string_value(json_object_get(value, "type"));
    json_t *budget = json_object_get(value, "budget_tokens");
    size_t i = 0, n = sizeof known / sizeof *known;
    while (i < n && !(type && strcmp(known[i].type, type) == 0))
        i++;
    if (i == n)
        return problem_set(p, 400, "the type enabled, adaptive or disabled is expected");
    if (known[i].thinking != CHAT_UNSET)
        ask->thinking = known[i].thinking;
    else
        ask->thinks = true; /* the model decides how much, and must be told that it may */
    return !budget || json_is_null(budget) || known[i].thinking == CHAT_OFF ||
           take_reasoning_budget(ask, budget, p);
}

static bool take_excluded(struct ask *ask, json_t *value, struct problem *p)
{
    return read_bool(value, &ask->reasoning_hidden, p);
}

/* That of Responses, and OpenRouter's. */
static bool take_reasoning(struct ask *ask, json_t *value, struct problem *p)
{
    static const struct parameter table[] = {
        {.name = "effort", .take = take_effort},
        {.name = "enabled", .take = take_enable_thinking},
        {.name = "max_tokens", .take = take_reasoning_budget},
        {.name = "exclude", .take = take_excluded},
        {.name = "summary"}, /* the reasoning comes whole */
        {.name = "generate_summary"},
        {.name = "context"},
        {0},
    };
    if (!json_is_object(value))
        return problem_set(p, 400, "an object is expected");
    return ask_take(ask, table, value, p);
}

#define OWN_TEMPLATE "the model's own template is used: see chat_template_kwargs"

const struct parameter chat_extensions[] = {
    {.name = "chat_template_kwargs", .take = take_kwargs},
    {.name = "reasoning_effort", .take = take_effort},
    {.name = "reasoning", .take = take_reasoning},
    {.name = "enable_thinking", .take = take_enable_thinking},
    {.name = "think", .take = take_think},
    {.name = "thinking", .take = take_thinking},
    {.name = "reasoning_format", .take = take_reasoning_format},
    {.name = "thinking_budget_tokens", .take = take_reasoning_budget},
    {.name = "thinking_token_budget", .take = take_reasoning_budget},
    {.name = "reasoning_budget", .take = take_reasoning_budget},
    {.name = "include_reasoning", .take = take_include_reasoning},
    {.name = "continue_final_message", .take = take_continue},
    {.name = "add_generation_prompt", .take = take_generation_prompt},
    {.name = "chat_template", .refused = OWN_TEMPLATE},
    {.name = "documents", .refused = "pass them in chat_template_kwargs"},
    {.name = "add_special_tokens"}, /* the template has them */
    {0},
};
