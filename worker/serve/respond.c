/* What the engine delivers to the sinks of requests: events with tokens and routing, and the end of
 * each request; see engine.h and response_sink.h. */
#include "engine_internal.h"

#include "base/clock.h"

/* ---- Tokens ---- */

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
}

void engine_send_unsent(struct engine *g, struct request *r)
{
    if (!has_unsent(r))
        return;
    struct response_tokens event = {.tokens = r->tokens.ids + r->tokens.count - r->n_unsent,
                                    .n_tokens = r->n_unsent,
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

void engine_report_progress(const struct request *r)
{
    if (r->progress && engine_take_credit(r))
        r->sink->progress(r->sink_arg, r->n_past < r->n_prompt ? r->n_past : r->n_prompt,
                          r->n_prompt, clock_ns() - r->started_ns);
}

void engine_send_all_unsent(struct engine *g)
{
    for (struct request *r = g->running; r; r = r->next)
        engine_send_unsent(g, r);
}

/* ---- Ends ---- */

static void drop(struct engine *g, struct request *r)
{
    if (r->slot >= 0)
        engine_leave_slot(g, r);
    else
        engine_leave_queue(g, r);
    request_free(r);
}

/* A request that ended before it got a slot, or before its first token, ended that phase now. */
static struct response_summary summarise(const struct request *r, enum finish_reason reason)
{
    uint64_t started_ns = r->started_ns ? r->started_ns : clock_ns();
    uint64_t first_ns = r->first_ns ? r->first_ns : clock_ns();
    int64_t end_token = reason == FINISH_END ? r->end_token : -1;
    struct response_logprobs end_logprobs = {0};
    if (r->logprobs && end_token >= 0 && !r->end_forced)
        end_logprobs = engine_logprobs(r, r->end_place, 1);
    return (struct response_summary){
        .reason = reason,
        .prompt_tokens = r->n_prompt,
        .cached_tokens = r->n_cached,
        .generated_tokens = r->n_generated,
        .drafted_tokens = r->n_drafted,
        .accepted_tokens = r->n_accepted,
        .queue_ns = started_ns - r->submitted_ns,
        .prefill_ns = first_ns - started_ns,
        .decode_ns = r->last_ns > r->first_ns ? r->last_ns - r->first_ns : 0,
        .end_token = end_token,
        .end_logprobs = end_logprobs,
        .stop_index = reason == FINISH_STOP ? r->stop_index : -1,
    };
}

void engine_finish(struct engine *g, struct request *r, enum finish_reason reason)
{
    counter_add(g->counters.finished[reason], 1);
    engine_send_unsent(g, r);
    struct response_summary summary = summarise(r, reason);
    r->sink->done(r->sink_arg, &summary);
    drop(g, r);
}

void engine_fail(struct engine *g, struct request *r, enum error_code code, const char *text)
{
    engine_send_unsent(g, r);
    r->sink->failed(r->sink_arg, code, text);
    drop(g, r);
}

void engine_end_cancelled(struct engine *g)
{
    struct request *lists[] = {g->waiting.first, g->running};
    if (!atomic_exchange(&g->n_cancelled, 0))
        return;
    for (int i = 0; i < 2; i++)
        for (struct request *r = lists[i], *next; r; r = next) {
            next = r->next;
            if (atomic_load(&r->cancelled))
                engine_finish(g, r, FINISH_CANCELLED);
        }
}

void engine_fail_all(struct engine *g, enum error_code code, const char *text)
{
    struct request *lists[] = {g->waiting.first, g->running};
    for (int i = 0; i < 2; i++)
        for (struct request *r = lists[i], *next; r; r = next) {
            next = r->next;
            engine_fail(g, r, code, text);
        }
}

void engine_end(struct engine *g, struct request *r, enum finish_reason reason)
{
    if (engine_has_routing(r))
        r->ending = reason;
    else
        engine_finish(g, r, reason);
}

/* ---- Routing ---- */

bool engine_has_routing(const struct request *r)
{
    return r->recording && recording_pending(r->recording);
}

bool engine_send_routing(struct engine *g)
{
    bool did = false;
    for (struct request *r = g->running, *next; r; r = next) {
        next = r->next;
        while (engine_has_routing(r) && engine_take_credit(r)) {
            struct recording_part part = recording_next(r->recording);
            r->sink->routing(r->sink_arg, &part);
            recording_sent(r->recording, &part);
            did = true;
        }
        if (r->ending != FINISH_NONE && !engine_has_routing(r)) {
            engine_finish(g, r, r->ending);
            did = true;
        }
    }
    return did;
}
