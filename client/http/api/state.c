/* State; see state.h. */
#include "client/http/api/state.h"

#include "client/http/api/answer.h"
#include "client/http/api/models.h"
#include "client/http/api/stream.h"

void handle_livez(struct exchange *x)
{
    strbuf_printf(&x->out, "{\"status\":\"ok\"}");
    exchange_reply(x, 200, "application/json");
}

static void write_health(struct exchange *x)
{
    const struct deployments *all = &app_of(x)->deployments;
    struct problem p = {0};
    if (x->server->draining)
        problem_fill(&p, 503, "the server is stopping");
    else if (!deployments_only_on_demand(all) && !deployments_find(all, NULL))
        problem_fill(&p, 503, "the model is not loaded yet");
    p.retry_s = 2;
    if (p.status)
        exchange_fail(x, &p);
    else
        handle_livez(x);
}

void handle_health(struct exchange *x)
{
    models_running(x, write_health);
}

static void choice_json(const struct choice *c, struct strbuf *out)
{
    const struct answer *a = c->answer;
    strbuf_printf(out, "%s{\"id\":%u", out->data[out->len - 1] == '[' ? "" : ",", c->index);
    json_string_member(out, "id_task", a->id);
    json_string_member(out, "model", a->model);
    strbuf_printf(
        out,
        ",\"is_processing\":%s,\"next_token\":[{\"n_decoded\":%llu}],\"params\":{"
        "\"stream\":%s,\"max_tokens\":%u,\"temperature\":%.6g}}",
        c->done ? "false" : "true", (unsigned long long)c->tokens, a->ask.stream ? "true" : "false",
        a->ask.max_tokens,
        (double)ask_shown(&a->ask, a->deployment ? a->deployment->facts : NULL).temperature);
}

void handle_slots(struct exchange *x)
{
    strbuf_printf(&x->out, "[");
    for (const struct answer *a = app_of(x)->first; a; a = a->next)
        for (unsigned i = 0; i < a->n_choices && a->x; i++)
            choice_json(&a->choices[i], &x->out);
    strbuf_printf(&x->out, "]");
    exchange_reply(x, 200, "application/json");
}

void handle_unsupported(struct exchange *x)
{
    struct problem p;
    problem_fill(&p, 501, "moed serves models that generate text: it has no %s", x->log.path);
    exchange_fail(x, &p);
}

void handle_no_adapters(struct exchange *x)
{
    strbuf_printf(&x->out, "[]");
    exchange_reply(x, 200, "application/json");
}

void handle_no_slot(struct exchange *x)
{
    struct problem p;
    problem_fill(&p, 501,
                 "conversations belong to no slot: all are kept, and --kv-dir keeps them "
                 "in a file");
    exchange_fail(x, &p);
}

void handle_no_model_events(struct exchange *x)
{
    struct problem p;
    problem_fill(&p, 501,
                 "there is no stream of them: /v1/models has the state of each model in "
                 "status");
    exchange_fail(x, &p);
}

void handle_unmanaged(struct exchange *x)
{
    struct problem p;
    problem_fill(&p, 501,
                 "moed downloads, changes and removes no model files, so it has no %s: put GGUF "
                 "files in the folder of --models",
                 x->log.path);
    exchange_fail(x, &p);
}

void handle_unstored(struct exchange *x)
{
    struct problem p;
    problem_fill(&p, 404, "nothing is stored, so there is no %s: send the whole conversation",
                 x->log.path);
    exchange_fail(x, &p);
}
