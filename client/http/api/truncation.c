/* Conversations that are cut; see truncation.h. */
#include "client/http/api/truncation.h"

#include "client/http/api/conversation.h"

#include <string.h>

#define ANSWER_TOKENS 512 /* left to an answer of no given length, but at most a quarter */

bool take_truncation(struct ask *ask, json_t *value, struct problem *p)
{
    const char *how = json_string_value(value);
    ask->truncates = how && strcmp(how, "auto") == 0;
    return ask->truncates || (how && strcmp(how, "disabled") == 0) ||
           problem_set(p, 400, "auto or disabled is expected");
}

static bool has_role(const json_t *message, const char *role)
{
    const char *own = json_string_value(json_object_get(message, "role"));
    return own && strcmp(own, role) == 0;
}

static size_t count_turns(const json_t *messages)
{
    size_t n = 0;
    for (size_t i = 0; i < json_array_size(messages); i++)
        n += has_role(json_array_get(messages, i), "user");
    return n;
}

json_t *truncation_cut(const json_t *messages, size_t n)
{
    json_t *kept = json_array();
    size_t turn = 0;
    for (size_t i = 0; kept && i < json_array_size(messages); i++) {
        json_t *message = json_array_get(messages, i);
        turn += has_role(message, "user");
        bool stays = has_role(message, "system") || has_role(message, "developer");
        if (!stays && (turn ? turn : 1) <= n)
            continue;
        if (json_array_append(kept, message) != 0) {
            json_decref(kept);
            kept = NULL;
        }
    }
    return kept;
}

/* Tokens of a prompt that leaves space for an answer. */
static size_t prompt_space(const struct ask *ask, uint32_t context)
{
    uint32_t answer = context / 4 < ANSWER_TOKENS ? context / 4 : ANSWER_TOKENS;
    if (ask->max_tokens_given)
        answer = ask->max_tokens < context / 2 ? ask->max_tokens : context / 2;
    return context - answer;
}

static enum moed_code render_cut(struct answer *a, json_t *messages, struct chat_rendered *out,
                                 struct moed_error *error)
{
    if (!messages) {
        *error = (struct moed_error){.code = MOED_ERROR_MEMORY, .message = "no memory"};
        return MOED_ERROR_MEMORY;
    }
    struct chat_request request = conversation_of(&a->ask);
    request.messages = messages;
    return chat_render(&a->deployment->answering, &request, out, error);
}

/* Takes the cut conversation and its rendering. */
static void use(struct answer *a, json_t *messages, const struct chat_rendered *rendered)
{
    moed_free(a->chat.tokens);
    a->chat = *rendered;
    json_decref(a->ask.messages);
    a->ask.messages = messages;
}

static bool is_too_long(enum moed_code code, const struct chat_rendered *chat, size_t most)
{
    if (code)
        return code == MOED_ERROR_CONTEXT || code == MOED_ERROR_LIMIT;
    return chat->token_count > most;
}

enum moed_code truncation_render(struct answer *a, enum moed_code code, struct moed_error *error)
{
    struct moed_model *model;
    if (!a->ask.truncates || (code && !is_too_long(code, NULL, 0)) ||
        moed_model_get(a->deployment->answering.session, &model, NULL))
        return code;
    uint32_t context = model->context;
    moed_model_free(model);
    if (!is_too_long(code, &a->chat, context - 1))
        return code;
    json_t *whole = json_incref(a->ask.messages);
    size_t few = 1, turns = count_turns(whole), many = turns ? turns - 1 : 0;
    while (few <= many) { /* the fewest turns whose cut helps lie in few..many, if any does */
        size_t n = few + (many - few) / 2;
        struct moed_error why;
        struct chat_rendered rendered = {0};
        json_t *cut = truncation_cut(whole, n);
        enum moed_code cut_code = render_cut(a, cut, &rendered, &why);
        if (!cut_code && rendered.token_count <= prompt_space(&a->ask, context)) {
            use(a, cut, &rendered);
            code = MOED_OK;
            many = n - 1;
            continue;
        }
        if (!cut_code)
            moed_free(rendered.tokens);
        json_decref(cut);
        if (cut_code && !is_too_long(cut_code, NULL, 0)) {
            code = cut_code;
            *error = why;
            break;
        }
        few = n + 1;
    }
    json_decref(whole);
    return code;
}
