/* Log-probabilities of answers; see answer_scores.h. */
#include "client/http/api/answer_scores.h"

#include "client/http/api/answer_usage.h"

#include <stdio.h>
#include <stdlib.h>

bool answer_keeps_tokens(const struct choice *c)
{
    return c->answer->ask.logprobs || c->answer->ask.return_tokens;
}

static bool has_columns(const struct answer *a)
{
    return a->ask.logprobs && a->dialect->scores == SCORES_COLUMNS;
}

void answer_keep_scores(struct choice *c)
{
    const struct answer *a = c->answer;
    if (a->ask.logprobs && !a->ask.stream && !a->ask.response_fields)
        scores_keep(&c->scores, choice_settled_scores(c), a->vocabulary, a->dialect->scores);
}

/* ---- Of the answer ---- */

static struct scores *scores_now(struct choice *c)
{
    return c->awaits_scores ? &c->held.scores : &c->scores;
}

/* Its bytes; see choice_settled_scores. */
static void place_row(struct choice *c, size_t i, uint32_t bytes)
{
    struct scores *s = scores_now(c);
    if (!s->failed)
        s->offsets[i] = c->text_of_tokens;
    c->text_of_tokens += bytes;
}

/* shown: how many bytes of the text the token is. A text hides control tokens, and a space before
 * its first word. */
static void place_token(struct choice *c, size_t i, uint32_t token, uint32_t shown)
{
    struct scores *s = scores_now(c);
    struct moed_bytes text = vocabulary_text(c->answer->vocabulary, token);
    size_t n = shown < text.len ? shown : text.len;
    uint32_t offset = text_place_take(&c->place, text.data + text.len - n, n);
    if (!s->failed)
        s->offsets[i] = offset;
}

void answer_add_scores(struct choice *c, const struct moed_event *e, size_t from, size_t n)
{
    struct scores *s = scores_now(c);
    size_t before = s->count;
    if (!answer_keeps_tokens(c) || e->forced) /* the model has not chosen these */
        return;
    bool scored = e->logprob_count == e->token_count, top = scored && s->top;
    scores_add(s, e->tokens + from, n, scored ? e->logprobs + from : NULL,
               top ? e->top_tokens + from * s->top : NULL,
               top ? e->top_logprobs + from * s->top : NULL);
    for (size_t i = 0; i < n; i++)
        if (has_columns(c->answer))
            place_token(c, before + i, e->tokens[from + i],
                        e->token_bytes ? e->token_bytes[from + i] : UINT32_MAX);
        else
            place_row(c, before + i, e->token_bytes ? e->token_bytes[from + i] : 0);
}

void answer_add_end_score(struct choice *c, const struct moed_event *e)
{
    uint32_t token = (uint32_t)e->result->end_token;
    bool wanted = answer_keeps_tokens(c) && c->answer->dialect->has_end_token && !c->late &&
                  !c->over && !c->answer->ask.prompt_only;
    if (!wanted || e->result->end_token < 0)
        return;
    size_t before = scores_now(c)->count;
    scores_add(scores_now(c), &token, 1, e->logprob_count ? e->logprobs : NULL, e->top_tokens,
               e->top_logprobs);
    if (has_columns(c->answer))
        place_token(c, before, token, 0);
    else
        place_row(c, before, 0);
}

/* ---- Of the prompt ---- */

/* Finds where the prompt's tokens stand in its text. */
static enum moed_code place_prompt(struct answer *a, struct choice *c, struct moed_error *error)
{
    struct ask_prompt *p = &a->ask.prompts[c->prompt];
    if (c->index && a->choices[c->index - 1].prompt == c->prompt) {
        c->place = a->choices[c->index - 1].place;
        return MOED_OK;
    }
    p->offsets = malloc((p->token_count + 1) * sizeof *p->offsets);
    if (!p->offsets) {
        *error = (struct moed_error){.code = MOED_ERROR_MEMORY};
        snprintf(error->message, sizeof error->message, "no memory for the places of tokens");
        return error->code;
    }
    text_place_tokens(a->vocabulary, p->tokens, p->token_count, ask_shown_prompt(p), p->offsets,
                      &c->place);
    return MOED_OK;
}

static size_t common_tokens(const struct ask_prompt *a, const struct ask_prompt *b)
{
    size_t n = 0;
    while (n < a->token_count && n < b->token_count && a->tokens[n] == b->tokens[n])
        n++;
    return n;
}

/* Finds the earlier prompt that has the longest beginning in common with c's. Its own last token is
 * computed in any case. */
static void find_shared(const struct answer *a, struct choice *c)
{
    const struct ask_prompt *mine = &a->ask.prompts[c->prompt];
    for (unsigned i = 0; i < c->index; i += a->ask.n) {
        const struct choice *other = &a->choices[i];
        size_t n = common_tokens(&a->ask.prompts[other->prompt], mine);
        n = n < mine->token_count ? n : mine->token_count - 1;
        if (n < 2 || n <= c->n_shared) /* the first token has no score */
            continue;
        c->shared_from = i;
        c->n_shared = n;
    }
}

enum moed_code answer_start_scoring(struct answer *a, struct choice *c, struct moed_error *error)
{
    const struct ask_prompt *p = &a->ask.prompts[c->prompt];
    if (!a->ask.echo || !a->ask.logprobs)
        return MOED_OK;
    enum moed_code code = place_prompt(a, c, error);
    if (code)
        return code;
    /* The first token of a text has no probability. */
    scores_add(&c->scores, p->tokens, p->token_count ? 1 : 0, NULL, NULL, NULL);
    scores_place(&c->scores, p->offsets, p->token_count ? 1 : 0);
    c->awaits_scores = p->token_count > 1;
    if (!c->awaits_scores || (c->index && a->choices[c->index - 1].prompt == c->prompt))
        return MOED_OK; /* the worker has the answers wait for the first choice's */
    find_shared(a, c);
    const struct moed_logprobs_options options = {
        .size = sizeof options,
        .tokens = p->tokens,
        .token_count = p->token_count,
        .first = c->n_shared,
        .top = a->ask.top_logprobs,
        .priority = a->ask.priority,
        .cache_salt = a->cache_salt,
        .client = a->client,
    };
    return moed_logprobs_start(a->deployment->answering.session, &options, &c->score_request,
                               error);
}

static void add_early(struct choice *c, const struct ask_prompt *p, const struct moed_event *e)
{
    c->early.top = c->scores.top;
    scores_add(&c->early, p->tokens + e->first, e->logprob_count, e->logprobs, e->top_tokens,
               e->top_logprobs);
    scores_place(&c->early, p->offsets + e->first, e->logprob_count);
}

void answer_add_prompt_scores(struct choice *c, const struct moed_event *e)
{
    struct answer *a = c->answer;
    const struct ask_prompt *p = &a->ask.prompts[c->prompt];
    if (c->n_shared) {
        add_early(c, p, e);
        return;
    }
    for (unsigned i = c->index; i < a->n_choices && a->choices[i].prompt == c->prompt; i++) {
        struct scores *s = &a->choices[i].scores;
        scores_add(s, p->tokens + e->first, e->logprob_count, e->logprobs, e->top_tokens,
                   e->top_logprobs);
        scores_place(s, p->offsets + e->first, e->logprob_count);
        answer_keep_scores(&a->choices[i]);
    }
}

bool answer_take_shared(struct choice *c)
{
    struct answer *a = c->answer;
    const uint32_t *offsets = a->ask.prompts[c->prompt].offsets;
    const struct scores *from = &a->choices[c->shared_from].scores;
    if (!c->n_shared || from->count < c->n_shared)
        return false;
    for (unsigned i = c->index; i < a->n_choices && a->choices[i].prompt == c->prompt; i++) {
        struct scores *s = &a->choices[i].scores;
        scores_append(s, from, 1, c->n_shared);
        scores_place(s, offsets + 1, c->n_shared - 1); /* another text may have these tokens */
        scores_append(s, &c->early, 0, c->early.count);
        s->failed = s->failed || c->early.failed;
        answer_keep_scores(&a->choices[i]);
    }
    scores_fini(&c->early);
    c->n_shared = 0;
    return true;
}
