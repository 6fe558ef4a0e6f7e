/* Prompts; see prompt.h. The forms are OpenAI's, and llama-server's that it has beside them. */
#include "client/http/api/prompt.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TEXTS_MAX 1024 /* of one prompt: each is a question to the worker */

/* ---- The request ---- */

static bool add_text(struct ask *ask, const json_t *value, struct problem *p)
{
    struct ask_prompt prompt = {.text = json_string_value(value),
                                .text_bytes = json_string_length(value)};
    bool fills = json_string_length(json_object_get(ask->root, "suffix")) > 0;
    if (!prompt.text_bytes && !fills) /* the cursor may be at the beginning of a file */
        return problem_set(p, 400, "a prompt is empty");
    return ask_add_prompt(ask, &prompt, p);
}

static bool add_ids(struct ask *ask, const json_t *array, struct problem *p)
{
    struct ask_prompt prompt = {0};
    if (!read_token_ids(array, &prompt.tokens, &prompt.token_count, p))
        return false;
    if (prompt.token_count && ask_add_prompt(ask, &prompt, p))
        return true;
    free(prompt.tokens);
    return p->status ? false : problem_set(p, 400, "a prompt is empty");
}

static bool is_id(const json_t *value, uint32_t *id)
{
    long long v;
    bool good = integer_of(value, &v) && v >= 0 && v <= UINT32_MAX;
    *id = good ? (uint32_t)v : 0;
    return good;
}

bool prompt_add_joined(struct ask *ask, const json_t *array, struct problem *p)
{
    size_t n = json_array_size(array), texts = 0;
    uint32_t id;
    for (size_t i = 0; i < n; i++) {
        const json_t *item = json_array_get(array, i);
        texts += json_is_string(item);
        if (!json_is_string(item) && !is_id(item, &id))
            return problem_set(p, 400, "item %zu is neither a text nor a token id", i);
    }
    if (texts > TEXTS_MAX)
        return problem_set(p, 400, "a prompt of %zu texts; at most %d are allowed", texts,
                           TEXTS_MAX);
    return ask_add_prompt(ask, &(struct ask_prompt){.joined = array}, p);
}

/* llama-server's, which has a place for images. */
static bool add_object(struct ask *ask, const json_t *object, struct problem *p)
{
    const json_t *text = json_object_get(object, "prompt_string"),
                 *media = json_object_get(object, "multimodal_data");
    if (media && !json_is_null(media) && !(json_is_array(media) && json_array_size(media) == 0))
        return problem_refuse(p, 400, "multimodal_data", "this model reads text only");
    if (!json_is_string(text))
        return problem_refuse(p, 400, "prompt_string", "a string is expected");
    return add_text(ask, text, p);
}

struct array_kinds {
    bool texts, numbers;
};

static struct array_kinds kinds_of(const json_t *array)
{
    struct array_kinds kinds = {0};
    for (size_t i = 0; i < json_array_size(array); i++) {
        kinds.texts |= json_is_string(json_array_get(array, i));
        kinds.numbers |= json_is_number(json_array_get(array, i));
    }
    return kinds;
}

static bool add_prompt(struct ask *ask, const json_t *value, struct problem *p)
{
    struct array_kinds kinds = kinds_of(value);
    if (json_is_string(value))
        return add_text(ask, value, p);
    if (json_is_object(value))
        return add_object(ask, value, p);
    if (json_is_array(value))
        return kinds.texts && kinds.numbers ? prompt_add_joined(ask, value, p)
                                            : add_ids(ask, value, p);
    return problem_set(p, 400, "a string, or an array of strings or token ids is expected");
}

bool take_prompt(struct ask *ask, json_t *value, struct problem *p)
{
    size_t n = json_array_size(value);
    if (!json_is_array(value) || n == 0 || kinds_of(value).numbers)
        return add_prompt(ask, value, p);
    for (size_t i = 0; i < n; i++)
        if (!add_prompt(ask, json_array_get(value, i), p))
            return false;
    return true;
}

/* ---- On the session's thread ---- */

static enum moed_code no_memory(struct moed_error *error)
{
    *error = (struct moed_error){.code = MOED_ERROR_MEMORY};
    snprintf(error->message, sizeof error->message, "no memory for the tokens of a prompt");
    return error->code;
}

static enum moed_code append(struct ask_prompt *prompt, const uint32_t *ids, size_t n,
                             struct moed_error *error)
{
    uint32_t *grown = realloc(prompt->tokens, (prompt->token_count + n + 1) * sizeof *grown);
    if (!grown)
        return no_memory(error);
    if (n)
        memcpy(grown + prompt->token_count, ids, n * sizeof *grown);
    prompt->tokens = grown;
    prompt->token_count += n;
    return MOED_OK;
}

static enum moed_code encode_text(struct ask_prompt *prompt, struct moed_session *session,
                                  const json_t *text, unsigned flags, struct moed_error *error)
{
    uint32_t *ids;
    size_t n;
    enum moed_code code = moed_tokenize(session, json_string_value(text), json_string_length(text),
                                        flags, &ids, &n, error);
    if (code)
        return code;
    code = append(prompt, ids, n, error);
    moed_free(ids);
    return code;
}

enum moed_code prompt_encode(struct ask_prompt *prompt, struct moed_session *session,
                             unsigned flags, struct moed_error *error)
{
    const json_t *array = prompt->joined;
    enum moed_code code = MOED_OK;
    prompt->joined = NULL;
    for (size_t i = 0; i < json_array_size(array) && !code; i++) {
        const json_t *item = json_array_get(array, i);
        unsigned now = i == 0 ? flags : flags & ~(unsigned)MOED_ADD_SPECIAL;
        uint32_t id;
        code = is_id(item, &id) ? append(prompt, &id, 1, error)
                                : encode_text(prompt, session, item, now, error);
    }
    return code;
}
