/* Answers of Ollama's chat and generate; see ollama.h. */
#include "client/http/api/ollama.h"
#include "client/http/api/answer_usage.h"

#include "client/http/api/ask_body.h"
#include "client/http/api/loading.h"
#include "client/http/api/stream.h"

#include "base/clock.h"

/* What an object has of an answer. */
struct piece {
    struct moed_bytes text, thinking;
    const struct choice *calls; /* NULL: none */
};

typedef void write_piece_as(struct strbuf *out, const struct piece *piece);

static void calls_json(const struct choice *c, struct strbuf *out)
{
    const char *separator = ",\"tool_calls\":[";
    for (unsigned i = 0; i < c->output.count; i++) {
        const struct part *part = &c->output.parts[i];
        if (part->kind != PART_CALL)
            continue;
        strbuf_printf(out, "%s{\"id\":\"%s\",\"function\":{\"index\":%u", separator, part->id,
                      part->call);
        json_string_member(out, "name", part->name);
        strbuf_printf(out, ",\"arguments\":");
        output_arguments_json(part, out);
        strbuf_printf(out, "}}");
        separator = ",";
    }
    strbuf_printf(out, c->output.calls ? "]" : "");
}

static void message_piece(struct strbuf *out, const struct piece *piece)
{
    strbuf_printf(out, ",\"message\":{\"role\":\"assistant\"");
    json_member(out, "content", piece->text.data, piece->text.len);
    if (piece->thinking.len)
        json_member(out, "thinking", piece->thinking.data, piece->thinking.len);
    if (piece->calls)
        calls_json(piece->calls, out);
    strbuf_printf(out, "}");
}

static void response_piece(struct strbuf *out, const struct piece *piece)
{
    json_member(out, "response", piece->text.data, piece->text.len);
    if (piece->thinking.len)
        json_member(out, "thinking", piece->thinking.data, piece->thinking.len);
}

static void head_json(const struct answer *a, struct strbuf *out)
{
    char time_text[24];
    ollama_time(time(NULL), time_text);
    strbuf_printf(out, "{");
    json_string_member(out, "model", a->model);
    strbuf_printf(out, ",\"created_at\":\"%s\"", time_text);
}

/* Those that the client does not have yet. */
static void logprobs_json(struct choice *c, struct strbuf *out)
{
    struct scores *s = &c->scores;
    size_t settled = choice_settled_scores(c);
    if (!c->answer->ask.logprobs || s->written == settled)
        return;
    strbuf_printf(out, ",\"logprobs\":");
    scores_json(s, s->written, settled, c->answer->vocabulary, out);
    s->written = settled;
}

/* The last object: with the whole answer where it is no stream, in a stream with its calls. */
static void last_json(struct answer *a, write_piece_as *write)
{
    struct strbuf *out = &a->x->out, text, thinking;
    struct choice *c = &a->choices[0];
    const struct moed_result *r = &c->result;
    uint64_t begin_ns = a->x->log.begin_ns, total_ns = clock_ns() - begin_ns;
    uint64_t load_ns = a->found_ns - begin_ns + r->queue_ns; /* until the model had a free slot */
    strbuf_init(&text);
    strbuf_init(&thinking);
    output_text(&c->output, PART_TEXT, &text);
    output_text(&c->output, PART_REASONING, &thinking);
    head_json(a, out);
    write(out, &(struct piece){{text.data, text.len},
                               {thinking.data, thinking.len},
                               c->output.calls ? c : NULL});
    logprobs_json(c, out);
    strbuf_printf(out,
                  ",\"done\":true,\"done_reason\":\"%s\",\"total_duration\":%llu,"
                  "\"load_duration\":%llu,\"prompt_eval_count\":%u,\"prompt_eval_duration\":%llu,"
                  "\"eval_count\":%u,\"eval_duration\":%llu}\n",
                  choice_is_cut(c) ? "length" : "stop", (unsigned long long)total_ns,
                  (unsigned long long)load_ns, r->prompt_tokens, (unsigned long long)r->prefill_ns,
                  r->generated_tokens, (unsigned long long)r->decode_ns);
    out->failed = out->failed || text.failed || thinking.failed;
    strbuf_fini(&text);
    strbuf_fini(&thinking);
}

/* The calls come whole, in the stream's last object. */
static void line_json(struct choice *c, const struct part *part, const char *text, size_t len,
                      write_piece_as *write)
{
    struct strbuf *out = &c->answer->x->out;
    struct piece piece = {{"", 0}, {"", 0}, NULL};
    if (part->kind == PART_CALL)
        return;
    *(part->kind == PART_TEXT ? &piece.text : &piece.thinking) = (struct moed_bytes){text, len};
    head_json(c->answer, out);
    write(out, &piece);
    logprobs_json(c, out);
    strbuf_printf(out, ",\"done\":false}\n");
}

static void chat_text(struct choice *c, const struct part *part, const char *text, size_t len)
{
    line_json(c, part, text, len, message_piece);
}

static void generate_text(struct choice *c, const struct part *part, const char *text, size_t len)
{
    line_json(c, part, text, len, response_piece);
}

static void chat_last(struct answer *a)
{
    last_json(a, message_piece);
}

static void generate_last(struct answer *a)
{
    last_json(a, response_piece);
}

static void write_begin(struct answer *a) {}

static void write_end_choice(struct choice *c) {}

static void write_fail(struct answer *a, const struct problem *p)
{
    problem_body(p, HTTP_API_OLLAMA, &a->x->out);
    strbuf_printf(&a->x->out, "\n");
}

#define NDJSON "application/x-ndjson"

const struct dialect ollama_chat_dialect = {
    .stream_type = NDJSON,
    .parts.whole_calls = true,
    .begin = write_begin,
    .parts.text = chat_text,
    .end_choice = write_end_choice,
    .end = chat_last,
    .whole = chat_last,
    .fail = write_fail,
};

static const struct dialect generate_dialect = {
    .stream_type = NDJSON,
    .begin = write_begin,
    .parts.text = generate_text,
    .end_choice = write_end_choice,
    .end = generate_last,
    .whole = generate_last,
    .fail = write_fail,
};

/* What a client gets that only wanted the model to be loaded, or unloaded. */
static void write_loaded(struct exchange *x, const struct loading *l, write_piece_as *write)
{
    char time_text[24];
    ollama_time(time(NULL), time_text);
    strbuf_printf(&x->out, "{");
    json_string_member(&x->out, "model", l->model);
    strbuf_printf(&x->out, ",\"created_at\":\"%s\"", time_text);
    write(&x->out, &(struct piece){{"", 0}, {"", 0}, NULL});
    strbuf_printf(&x->out, ",\"done\":true,\"done_reason\":\"%s\"}\n",
                  l->drops ? "unload" : "load");
    exchange_reply(x, 200, "application/json");
}

static void write_chat_loaded(struct exchange *x, const struct loading *l)
{
    write_loaded(x, l, message_piece);
}

static void write_generate_loaded(struct exchange *x, const struct loading *l)
{
    write_loaded(x, l, response_piece);
}

/* Without a prompt: a model that stays loaded for no time is unloaded. */
static void load(struct exchange *x, struct ask *ask,
                 void (*write)(struct exchange *, const struct loading *))
{
    bool unloads = ask->has_keep && ask->keep_s == 0 && app_of(x)->deployments.demand.enabled;
    if (unloads)
        loading_unload(x, ask->model, write);
    else
        loading_load(x, ask->model, ask->has_keep ? &ask->keep_s : NULL, write);
    ask_fini(ask);
}

static void take_chat(struct exchange *x, struct ask *ask)
{
    if (!ask->messages)
        load(x, ask, write_chat_loaded);
    else
        answer_start(x, ask, &ollama_chat_dialect, "chat-");
}

void handle_ollama_chat(struct exchange *x)
{
    ask_body(x, parse_ollama_chat, take_chat);
}

static void take_generate(struct exchange *x, struct ask *ask)
{
    if (!ask->prompt_count)
        load(x, ask, write_generate_loaded);
    else
        answer_start(x, ask, &generate_dialect, "gen-");
}

void handle_ollama_generate(struct exchange *x)
{
    ask_body(x, parse_ollama_generate, take_generate);
}
