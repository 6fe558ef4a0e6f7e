/* Refusals of the worker; see refusal.h. */
#include "client/http/api/refusal.h"

#include <inttypes.h>
#include <stdio.h>

/* The first of the n ids that the vocabulary does not have; n: none. */
static size_t find_unknown(const uint32_t *ids, size_t n, uint32_t vocab)
{
    size_t i = 0;
    while (i < n && ids[i] < vocab)
        i++;
    return i;
}

static void refuse_token(struct problem *p, const char *parameter, uint32_t token, uint32_t vocab)
{
    problem_fill(p, 400, "token %" PRIu32 " is not in the vocabulary of %" PRIu32, token, vocab);
    snprintf(p->parameter, sizeof p->parameter, "%s", parameter);
}

static void name_tokens(struct problem *p, const struct ask *ask, uint32_t vocab)
{
    size_t i = find_unknown(ask->stop_tokens, ask->stop_token_count, vocab);
    if (i < ask->stop_token_count)
        refuse_token(p, "stop_token_ids", ask->stop_tokens[i], vocab);
    for (i = 0; i < ask->prompt_count; i++) {
        const struct ask_prompt *prompt = &ask->prompts[i];
        size_t at = find_unknown(prompt->tokens, prompt->token_count, vocab);
        if (at < prompt->token_count)
            refuse_token(p, "prompt", prompt->tokens[at], vocab);
    }
    for (i = 0; i < ask->bias_count; i++)
        if (!ask->bias[i].text.len && ask->bias[i].token >= vocab)
            refuse_token(p, "logit_bias", ask->bias[i].token, vocab);
}

void refusal_name(struct problem *p, const struct ask *ask, uint32_t vocab, bool bound)
{
    if (vocab)
        name_tokens(p, ask, vocab);
    if (ask->max_tokens && ask->min_tokens > ask->max_tokens)
        problem_refuse(p, 400, "min_tokens", "at most as many as the limit of tokens are expected");
    if (ask->ignore_end && bound)
        problem_refuse(p, 400, "ignore_eos",
                       "the answer has a form or calls, which decide where it ends: leave out "
                       "ignore_eos (Ollama: num_predict -2)");
}
