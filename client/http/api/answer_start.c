/* The start of an answer; see answer_start.h. */
#include "client/http/api/answer_start.h"

#include "client/chat/prompt_length.h"
#include "client/http/api/answer_scores.h"
#include "client/http/api/conversation.h"
#include "client/http/api/failure.h"
#include "client/http/api/fill.h"
#include "client/http/api/prompt.h"
#include "client/http/api/truncation.h"
#include "client/http/api/worker_limit.h"

#include <stdlib.h>

/* The seed that is n behind this one; MOED_RANDOM_SEED, the name of no seed, is none of them. */
static uint64_t seed_after(uint64_t seed, uint64_t n)
{
    uint64_t after = seed + n;
    return after < seed || (n && after == MOED_RANDOM_SEED) ? after + 1 : after;
}

struct moed_generate_options answer_options(const struct answer *a, const struct choice *c,
                                            struct moed_sampling *sampling)
{
    const struct ask *ask = &a->ask;
    const struct ask_prompt *prompt = &ask->prompts[c->prompt];
    bool parsed = c->output.parser != NULL;
    *sampling = ask_sampling(ask);
    /* The choices of a prompt differ; without a seed of the request all of them do. */
    sampling->seed = seed_after(sampling->seed, ask->seeded ? c->index % ask->n : c->index);
    return (struct moed_generate_options){
        .size = sizeof(struct moed_generate_options),
        .prompt = prompt->token_count ? NULL : prompt->text,
        .prompt_bytes = prompt->token_count ? 0 : prompt->text_bytes,
        .tokens = prompt->tokens,
        .token_count = prompt->token_count,
        .parse_special = ask->parse_special,
        .ignore_end = ask->ignore_end,
        .max_tokens = ask->max_tokens,
        .sampling = sampling,
        .stop = ask->stops,
        .stop_count = ask->stop_count,
        .min_tokens = ask->min_tokens,
        .stop_tokens = ask->stop_tokens,
        .stop_token_count = ask->stop_token_count,
        .special_text = ask->special_text || ask->reasoning_as_content || parsed,
        .priority = ask->priority,
        .cache_salt = a->cache_salt,
        .client = a->client,
        .logprobs = ask->logprobs,
        .top_logprobs = ask->logprobs ? ask->top_logprobs : 0,
        .progress = ask->return_progress && ask->stream,
        .grammar = a->structure.grammar.kind ? &a->structure.grammar : NULL,
        .reasoning = a->limit.options.tokens ? &a->limit.options : NULL,
        .max_drafts = ask->max_drafts,
        .no_drafts = ask->no_drafts,
        .prediction = ask->prediction.tokens,
        .prediction_count = ask->prediction.token_count,
    };
}

static enum moed_code render(struct answer *a, struct moed_error *error)
{
    struct ask_prompt *prompt = &a->ask.prompts[0];
    if (!a->ask.messages)
        return MOED_OK;
    struct chat_request request = conversation_of(&a->ask);
    enum moed_code code = chat_render(&a->deployment->answering, &request, &a->chat, error);
    code = truncation_render(a, code, error);
    if (code)
        return code;
    prompt->tokens = a->chat.tokens;
    prompt->token_count = a->chat.token_count;
    a->chat.tokens = NULL;
    return MOED_OK;
}

static enum moed_code bind_answer(struct answer *a, struct moed_error *error)
{
    const struct chat_rendered *chat = a->ask.messages ? &a->chat : NULL;
    return structure_init(&a->structure, &a->ask, chat, error);
}

static unsigned prompt_flags(const struct ask *ask)
{
    if (ask->fill.wanted)
        return 0;
    return (ask->plain_prompt ? 0u : MOED_ADD_SPECIAL) |
           (ask->parse_special ? MOED_PARSE_SPECIAL : 0u);
}

/* Finds the ids of prompts that came as texts and ids in one, the text of those that came as ids,
 * and the ids of those that came as text and are not computed, get no begin token, whose
 * log-probabilities are asked for, or whose length each chunk has. */
static enum moed_code prepare_prompts(struct answer *a, struct moed_error *error)
{
    enum moed_code code = MOED_OK;
    struct moed_session *session = a->deployment->answering.session;
    bool echo = a->ask.echo;
    unsigned flags = prompt_flags(&a->ask);
    for (size_t i = 0; i < a->ask.prompt_count && !code; i++)
        code = prompt_encode(&a->ask.prompts[i], session, flags, error);
    if (code || a->ask.fill.wanted)
        return code ? code : fill_prompts(a, error);
    for (size_t i = 0; i < a->ask.prompt_count && !code; i++) {
        struct ask_prompt *p = &a->ask.prompts[i];
        if (!p->text)
            code = ask_show_prompt(&a->ask, p, session, error);
        else if (a->ask.usage_in_chunks || a->ask.plain_prompt ||
                 (echo && (a->only_echo || a->ask.logprobs)))
            code = moed_tokenize(session, p->text, p->text_bytes, flags, &p->tokens,
                                 &p->token_count, error);
    }
    return code;
}

/* What the answer is expected to be, as a text of its own: the answer has no control tokens. */
static enum moed_code prepare_prediction(struct answer *a, struct moed_error *error)
{
    const json_t *text = a->ask.prediction_text;
    if (!json_string_length(text))
        return MOED_OK;
    return moed_tokenize(a->deployment->answering.session, json_string_value(text),
                         json_string_length(text), 0, &a->ask.prediction.tokens,
                         &a->ask.prediction.token_count, error);
}

/* Where the request asks for it. */
static enum moed_code ban_end_tokens(struct answer *a, struct moed_error *error)
{
    struct moed_model *model = NULL;
    bool good = true;
    enum moed_code code =
        a->ask.ban_end ? moed_model_get(a->deployment->answering.session, &model, error) : MOED_OK;
    if (code || !model)
        return code;
    for (size_t i = 0; i < model->end_token_count && good; i++)
        good = ask_ban_token(&a->ask, model->end_tokens[i]);
    moed_model_free(model);
    if (good)
        return MOED_OK;
    *error = (struct moed_error){.code = MOED_ERROR_MEMORY, .message = "no memory for the biases"};
    return error->code;
}

static enum moed_code start_choice(struct answer *a, struct choice *c, struct moed_error *error)
{
    const struct chat_rendered *chat = a->ask.messages ? &a->chat : NULL;
    enum moed_code code =
        output_start(&c->output, c, c->index, &a->ask, chat, &a->dialect->parts, error);
    if (!code)
        code = answer_start_scoring(a, c, error);
    if (code || a->only_echo)
        return code;
    struct moed_sampling sampling;
    struct moed_generate_options o = answer_options(a, c, &sampling);
    return deployment_generate(a->deployment, &o, &c->request, error);
}

void answer_start_work(struct job *job)
{
    struct answer *a = (struct answer *)job;
    struct moed_error error;
    enum moed_code code = deployment_attach(a->deployment, &error);
    a->replacements = a->deployment->replacements;
    if (!code)
        code = render(a, &error);
    if (!code)
        code = bind_answer(a, &error);
    if (!code)
        code = worker_limit_init(a, &error);
    if (!code)
        code = prepare_prompts(a, &error);
    if (!code)
        code = prepare_prediction(a, &error);
    if (!code)
        code = ban_end_tokens(a, &error);
    if (!code && a->ask.logprobs)
        code = vocabulary_get(&a->deployment->answering, &a->vocabulary, &error);
    for (unsigned i = 0; i < a->n_choices && !code; i++)
        code = start_choice(a, &a->choices[i], &error);
    for (size_t i = 0; i < a->ask.prompt_count && code == MOED_ERROR_LIMIT; i++)
        code = prompt_length_explain(a->deployment->answering.session, a->ask.prompts[i].text,
                                     a->ask.prompts[i].text_bytes, &error);
    if (code)
        problem_from_moed(&a->problem, &error);
    ask_release_prompt(&a->ask); /* here: a long conversation takes long to free */
}
