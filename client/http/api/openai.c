/* OpenAI's completions; see openai.h. */
#include "client/http/api/openai.h"
#include "client/http/api/answer_usage.h"

#include "client/http/api/stream.h"

const char *openai_finish_reason(const struct choice *c)
{
    if (choice_is_cut(c))
        return "length";
    return choice_has_calls(c) ? "tool_calls" : "stop";
}

static void prediction_usage(uint64_t accepted, uint64_t of, struct strbuf *out)
{
    strbuf_printf(out, ",\"accepted_prediction_tokens\":%llu,\"rejected_prediction_tokens\":%llu",
                  (unsigned long long)accepted, (unsigned long long)(of - accepted));
}

void openai_usage(const struct answer *a, struct strbuf *out)
{
    struct answer_usage u = answer_usage(a);
    strbuf_printf(out,
                  ",\"usage\":{\"prompt_tokens\":%llu,\"completion_tokens\":%llu,"
                  "\"total_tokens\":%llu,\"prompt_tokens_details\":{\"cached_tokens\":%llu},"
                  "\"completion_tokens_details\":{\"reasoning_tokens\":%llu",
                  (unsigned long long)u.in, (unsigned long long)u.out,
                  (unsigned long long)(u.in + u.out), (unsigned long long)u.cached,
                  (unsigned long long)u.reasoning);
    if (u.prediction)
        prediction_usage(u.predicted, u.prediction, out);
    else if (u.drafted)
        prediction_usage(u.accepted, u.drafted, out);
    strbuf_printf(out, "}}");
}

void openai_chunk_usage(const struct answer *a, struct strbuf *out)
{
    if (a->ask.include_usage && a->ask.usage_in_chunks)
        openai_usage(a, out);
    else if (a->ask.include_usage)
        strbuf_printf(out, ",\"usage\":null");
}

void openai_head(const struct answer *a, const char *object, struct strbuf *out)
{
    strbuf_printf(out, "{\"id\":\"%s\",\"object\":\"%s\",\"created\":%lld", a->id, object,
                  (long long)a->created);
    json_string_member(out, "model", a->model);
    strbuf_printf(out, ",\"system_fingerprint\":\"moed-" MOED_VERSION "%s\"", a->fingerprint);
}

void openai_stream_end(struct answer *a, const char *object)
{
    struct strbuf *out = &a->x->out;
    if (a->ask.include_usage) {
        event_begin(out, NULL);
        openai_head(a, object, out);
        strbuf_printf(out, ",\"choices\":[]");
        openai_usage(a, out);
        strbuf_printf(out, "}");
        event_end(out);
    }
    event_begin(out, NULL);
    strbuf_printf(out, "[DONE]");
    event_end(out);
}

void openai_stream_fail(struct answer *a, const struct problem *p)
{
    event_begin(&a->x->out, NULL);
    problem_body(p, HTTP_API_OPENAI, &a->x->out);
    event_end(&a->x->out);
}

void openai_keep_alive(struct answer *a)
{
    event_comment(&a->x->out);
}
