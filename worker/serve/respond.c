/* What the engine delivers to the sinks of requests beside tokens: progress, routing, and the end
 * of each request; see engine.h and response_sink.h. */
#include "engine_internal.h"

#include "base/clock.h"

/* ---- Progress ---- */

void engine_report_progress(const struct request *r)
{
    if (r->progress && engine_take_credit(r))
        r->sink->progress(r->sink_arg, r->n_past < r->n_prompt ? r->n_past : r->n_prompt,
                          r->n_prompt, r->n_cached, clock_ns() - r->started_ns);
}

/* ---- Ends ---- */

static void drop(struct engine *g, struct request *r)
{
    if (r->slot >= 0)
        engine_leave_slot(g, r);
    else
        engine_leave_queue(g, r);
    request_queue_forget(&g->waiting, r);
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
        .prediction_tokens = expected_answer_length(r->expected),
        .predicted_tokens = expected_answer_found(r->expected),
        .queue_ns = started_ns - r->submitted_ns,
        .prefill_ns = first_ns - started_ns,
        .decode_ns = r->last_ns > r->first_ns ? r->last_ns - r->first_ns : 0,
        .end_token = end_token,
        .end_logprobs = end_logprobs,
        .stop_index = reason == FINISH_STOP ? r->stop_index : -1,
    };
}

void engine_begin_tokens(struct engine *g, const struct request *r)
{
    g->fresh = (struct fresh_tokens){.since_ns = r->last_ns};
}

void engine_observe_tokens(struct engine *g)
{
    struct fresh_tokens *f = &g->fresh;
    if (f->n) {
        double each = (double)(clock_ns() - f->since_ns) * 1e-9 / f->n;
        histogram_observe_times(g->counters.token, each, f->n);
    }
    f->n = 0;
}

void engine_finish(struct engine *g, struct request *r, enum finish_reason reason)
{
    counter_add(g->counters.finished[reason], 1);
    engine_observe_tokens(g);
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
    if (!g->ends_cancelled)
        return;
    g->ends_cancelled = false;
    for (int i = 0; i < 2; i++)
        for (struct request *r = lists[i], *next; r; r = next) {
            next = r->next;
            if (atomic_load(&r->cancelled))
                engine_finish(g, r, atomic_load(&r->complete) ? FINISH_END : FINISH_CANCELLED);
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
