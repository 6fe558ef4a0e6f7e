/* llama-server's times; see timings.h. */
#include "client/http/api/timings.h"

#include "client/http/api/answer_usage.h"

static void rates_json(const char *what, uint32_t tokens, uint32_t timed, double ms,
                       struct strbuf *out)
{
    strbuf_printf(out, "\"%s_n\":%u,\"%s_ms\":%.3f,\"%s_per_token_ms\":%.3f,\"%s_per_second\":%.3f",
                  what, tokens, what, ms, what, timed ? ms / timed : 0, what,
                  ms > 0 ? 1e3 * timed / ms : 0);
}

/* The first token's time is the prompt's. */
static uint32_t after_first(uint32_t tokens)
{
    return tokens ? tokens - 1 : 0;
}

void timings_json(const struct choice *c, struct strbuf *out)
{
    const struct moed_result *r = &c->result;
    strbuf_printf(out, ",\"timings\":{");
    if (c->done) {
        uint32_t cached = choice_cached_tokens(c), computed = r->prompt_tokens - cached;
        strbuf_printf(out, "\"cache_n\":%u,", cached);
        rates_json("prompt", computed, computed, (double)r->prefill_ns * 1e-6, out);
        strbuf_printf(out, ",");
        rates_json("predicted", r->generated_tokens, after_first(r->generated_tokens),
                   (double)r->decode_ns * 1e-6, out);
    } else {
        uint32_t tokens = (uint32_t)c->tokens;
        rates_json("predicted", tokens, after_first(tokens),
                   (double)(c->last_ns - c->first_ns) * 1e-6, out);
    }
    if (r->drafted_tokens)
        strbuf_printf(out, ",\"draft_n\":%u,\"draft_n_accepted\":%u", r->drafted_tokens,
                      r->accepted_tokens);
    strbuf_printf(out, "}");
}

void timings_chunk_json(const struct choice *c, struct strbuf *out)
{
    if (c->answer->ask.timings_per_token && c->tokens)
        timings_json(c, out);
}

void timings_progress_json(const struct moed_progress *progress, struct strbuf *out)
{
    strbuf_printf(
        out, ",\"prompt_progress\":{\"total\":%u,\"cache\":%u,\"processed\":%u,\"time_ms\":%llu}",
        progress->prompt_tokens, progress->cached_tokens, progress->computed,
        (unsigned long long)(progress->ns / 1000000));
}

bool take_timings_per_token(struct ask *ask, json_t *value, struct problem *p)
{
    return read_bool(value, &ask->timings_per_token, p);
}

bool take_return_progress(struct ask *ask, json_t *value, struct problem *p)
{
    return read_bool(value, &ask->return_progress, p);
}
