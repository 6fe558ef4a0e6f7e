/* Tokens of answers that wait for their next event, and that event; see engine_internal.h and
 * response_sink.h. */
#include "engine_internal.h"

static bool has_unsent(const struct request *r)
{
    return r->n_unsent || r->unsent.len;
}

void engine_add_unsent(struct request *r, uint32_t n, const struct strbuf *text)
{
    size_t known = text->len < r->n_text_known ? text->len : (size_t)r->n_text_known;
    if (has_unsent(r) ||
        (!n && text->len == known)) /* the event has its credit, or there is none */
        engine_return_credit(r);
    r->n_text_known -= known;
    r->n_unsent += n;
    strbuf_append(&r->unsent, text->len ? text->data + known : "", text->len - known);
    if (n)
        strbuf_append(&r->unsent_bytes, (const char *)&r->token_bytes, sizeof r->token_bytes);
}

void engine_send_unsent(struct engine *g, struct request *r)
{
    if (!has_unsent(r))
        return;
    const uint32_t *bytes = r->unsent_bytes.failed ? NULL : (const void *)r->unsent_bytes.data;
    struct response_tokens event = {.tokens = r->tokens.ids + r->tokens.count - r->n_unsent,
                                    .n_tokens = r->n_unsent,
                                    .token_bytes = bytes,
                                    .text = r->unsent.data,
                                    .text_bytes = r->unsent.len,
                                    .mirostat_mu = r->mirostat_mu,
                                    .first = r->sent_ns == 0,
                                    .prompt_tokens = r->n_prompt,
                                    .cached_tokens = r->n_cached,
                                    .queue_ns = r->started_ns - r->submitted_ns,
                                    .forced = r->unsent_forced};
    if (r->logprobs && !r->unsent_forced)
        event.logprobs = engine_logprobs(r, 0, r->n_unsent);
    r->sink->tokens(r->sink_arg, &event);
    counter_add(g->counters.token_events, 1);
    strbuf_clear(&r->unsent);
    strbuf_clear(&r->unsent_bytes);
    r->n_unsent = 0;
    r->unsent_forced = false;
    r->sent_ns = r->last_ns;
}

struct response_logprobs engine_logprobs(const struct request *r, uint32_t first, uint32_t n)
{
    size_t top = (size_t)first * r->n_top;
    return (struct response_logprobs){.n = n,
                                      .n_top = r->n_top,
                                      .logprobs = r->token_logprobs + first,
                                      .top_tokens = r->top_tokens + top,
                                      .top_logprobs = r->top_logprobs + top};
}

void engine_send_all_unsent(struct engine *g)
{
    for (struct request *r = g->running; r; r = r->next)
        engine_send_unsent(g, r);
}
