/* POST /tokenize, /detokenize, /apply-template; GET /props, /tokenizer_info. The fields are those
 * of llama-server, and of vLLM where it has other names. */
#include "base/utf8.h"
#include "client/http/api/ask_body.h"
#include "client/http/api/conversation.h"
#include "client/http/api/messages.h"
#include "client/http/api/prompt.h"
#include "client/http/api/question.h"
#include "client/http/api/stream.h"
#include "client/http/watch/capacity.h"

#include <stdlib.h>
#include <string.h>

static bool parse(const struct parameter *table, bool (*check)(struct ask *ask, struct problem *p),
                  struct ask *ask, const char *body, size_t len, struct problem *p)
{
    ask->parse_special = true;
    return ask_parse(ask, body, len, p) && ask_take(ask, table, ask->root, p) && check(ask, p);
}

/* ---- /tokenize ---- */

static bool take_add_special(struct ask *ask, json_t *value, struct problem *p)
{
    return read_bool(value, &ask->add_special, p);
}

static bool take_with_pieces(struct ask *ask, json_t *value, struct problem *p)
{
    return read_bool(value, &ask->with_pieces, p);
}

/* A text, or as llama-server has it an array of texts and ids, which are joined. */
static bool take_content(struct ask *ask, json_t *value, struct problem *p)
{
    return json_is_array(value) ? prompt_add_joined(ask, value, p)
                                : take_text_prompt(ask, value, p);
}

static bool check_text(struct ask *ask, struct problem *p)
{
    return ask->prompt_count == 1 || problem_set(p, 400, "one content is expected");
}

/* A token's text; its bytes where it is a part of a character. */
static void piece_json(struct moed_bytes text, struct strbuf *out)
{
    if (utf8_is_valid(text.data, text.len)) {
        strbuf_json_string(out, text.data, text.len);
        return;
    }
    strbuf_json_bytes(out, text.data, text.len);
}

static void token_json(const struct question *q, uint32_t token, struct strbuf *out)
{
    if (!q->vocabulary) {
        strbuf_uint(out, token);
        return;
    }
    strbuf_text(out, "{\"id\":");
    strbuf_uint(out, token);
    strbuf_text(out, ",\"piece\":");
    piece_json(vocabulary_text(q->vocabulary, token), out);
    strbuf_text(out, "}");
}

static void tokens_json(const struct question *q, const struct ask_prompt *prompt,
                        struct strbuf *out)
{
    strbuf_text(out, "{\"tokens\":[");
    for (size_t i = 0; i < prompt->token_count; i++) {
        strbuf_text(out, i ? "," : "");
        token_json(q, prompt->tokens[i], out);
    }
    strbuf_text(out, "]");
}

static enum moed_code tokenize(struct question *q, struct moed_error *error)
{
    struct ask_prompt *prompt = &q->ask.prompts[0];
    struct moed_session *session = q->deployment->asking.session;
    unsigned flags = (q->ask.add_special ? MOED_ADD_SPECIAL : 0u) |
                     (q->ask.parse_special ? MOED_PARSE_SPECIAL : 0u);
    enum moed_code code = prompt->joined
                              ? prompt_encode(prompt, session, flags, error)
                              : moed_tokenize(session, prompt->text, prompt->text_bytes, flags,
                                              &prompt->tokens, &prompt->token_count, error);
    if (!code && q->ask.with_pieces)
        code = vocabulary_get(&q->deployment->asking, &q->vocabulary, error);
    if (!code)
        tokens_json(q, prompt, &q->text_json);
    return code;
}

static void write_tokens(struct question *q)
{
    struct strbuf *out = &q->x->out;
    strbuf_move(out, &q->text_json);
    strbuf_printf(out, ",\"count\":%zu,\"max_model_len\":%u}", q->ask.prompts[0].token_count,
                  q->deployment->facts ? q->deployment->facts->context : 0);
}

static bool parse_tokenize(struct ask *ask, const char *body, size_t len, struct problem *p)
{
    static const struct parameter table[] = {
        {.name = "content", .take = take_content},
        {.name = "prompt", .take = take_text_prompt},
        {.name = "model", .take = take_model},
        {.name = "add_special", .take = take_add_special},
        {.name = "add_special_tokens", .take = take_add_special},
        {.name = "parse_special", .take = take_parse_special},
        {.name = "with_pieces", .take = take_with_pieces},
        {0},
    };
    return parse(table, check_text, ask, body, len, p);
}

static void take_tokenize(struct exchange *x, struct ask *ask)
{
    static const struct question_kind kind = {.work = tokenize, .write = write_tokens};
    question_start(x, ask, &kind);
}

void handle_tokenize(struct exchange *x)
{
    ask_body(x, parse_tokenize, take_tokenize);
}

/* ---- /detokenize ---- */

static bool take_tokens(struct ask *ask, json_t *value, struct problem *p)
{
    struct ask_prompt prompt = {0};
    if (!json_is_array(value))
        return problem_set(p, 400, "an array of token ids is expected");
    if (!read_token_ids(value, &prompt.tokens, &prompt.token_count, p))
        return false;
    if (ask_add_prompt(ask, &prompt, p))
        return true;
    free(prompt.tokens);
    return false;
}

static bool check_tokens(struct ask *ask, struct problem *p)
{
    return ask->prompt_count == 1 || problem_set(p, 400, "tokens is missing");
}

static enum moed_code detokenize(struct question *q, struct moed_error *error)
{
    const struct ask_prompt *prompt = &q->ask.prompts[0];
    struct strbuf *out = &q->text_json;
    enum moed_code code =
        moed_detokenize(q->deployment->asking.session, prompt->tokens, prompt->token_count, true,
                        &q->text, &q->text_bytes, error);
    if (code)
        return code;
    strbuf_text(out, "{");
    json_member(out, "content", q->text, q->text_bytes);
    json_member(out, "prompt", q->text, q->text_bytes);
    strbuf_text(out, "}");
    return MOED_OK;
}

static void write_found(struct question *q)
{
    strbuf_move(&q->x->out, &q->text_json);
}

static bool parse_detokenize(struct ask *ask, const char *body, size_t len, struct problem *p)
{
    static const struct parameter table[] = {
        {.name = "tokens", .take = take_tokens},
        {.name = "model", .take = take_model},
        {0},
    };
    return parse(table, check_tokens, ask, body, len, p);
}

static void take_detokenize(struct exchange *x, struct ask *ask)
{
    static const struct question_kind kind = {.work = detokenize, .write = write_found};
    question_start(x, ask, &kind);
}

void handle_detokenize(struct exchange *x)
{
    ask_body(x, parse_detokenize, take_detokenize);
}

/* ---- /apply-template ---- */

static bool check_messages(struct ask *ask, struct problem *p)
{
    if (!ask->messages)
        return problem_set(p, 400, "messages is missing");
    return finish_tools(ask, p);
}

static enum moed_code apply_template(struct question *q, struct moed_error *error)
{
    struct strbuf *out = &q->text_json;
    enum moed_code code = question_render(q, error);
    if (!code)
        code = moed_detokenize(q->deployment->asking.session, q->tokens, q->token_count, true,
                               &q->text, &q->text_bytes, error);
    if (code)
        return code;
    strbuf_text(out, "{");
    json_member(out, "prompt", q->text, q->text_bytes);
    strbuf_printf(out, ",\"count\":%zu}", q->token_count);
    return MOED_OK;
}

static bool parse_apply_template(struct ask *ask, const char *body, size_t len, struct problem *p)
{
    static const struct parameter table[] = {
        {.name = "messages", .take = take_messages},
        {.name = "model", .take = take_model},
        {.name = "tools", .take = take_tools},
        {.name = "tool_choice", .take = take_tool_choice},
        {.name = "reasoning and the prompt's end", .more = chat_extensions},
        {0},
    };
    return parse(table, check_messages, ask, body, len, p);
}

static void take_apply_template(struct exchange *x, struct ask *ask)
{
    static const struct question_kind kind = {.work = apply_template, .write = write_found};
    question_start(x, ask, &kind);
}

void handle_apply_template(struct exchange *x)
{
    ask_body(x, parse_apply_template, take_apply_template);
}

/* ---- /props ---- */

/* Finds the texts of the begin and end tokens: "bos" NUL "eos" NUL in q->text. */
static enum moed_code find_props(struct question *q, struct moed_error *error)
{
    int64_t ids[2] = {-1, -1};
    struct moed_model *model;
    enum moed_code code = moed_model_get(q->deployment->asking.session, &model, error);
    if (code)
        return code;
    ids[0] = model->bos;
    ids[1] = model->eos;
    moed_model_free(model);
    struct strbuf both;
    strbuf_init(&both);
    for (int i = 0; i < 2 && !code; i++) {
        uint32_t id = (uint32_t)ids[i];
        char *text = NULL;
        size_t n = 0;
        if (ids[i] >= 0)
            code = moed_detokenize(q->deployment->asking.session, &id, 1, true, &text, &n, error);
        if (!code && text)
            strbuf_append(&both, text, strlen(text));
        strbuf_append(&both, "", 1);
        moed_free(text);
    }
    q->text = both.data;
    q->text_bytes = both.len;
    if (!code && both.failed) {
        *error = (struct moed_error){.code = MOED_ERROR_MEMORY, .message = "no memory"};
        code = MOED_ERROR_MEMORY;
    }
    return code;
}

/* Finds how many requests run at once. A worker that hangs is waited for. */
static void measure_props(struct question *q)
{
    struct deployment *d = q->deployment;
    q->parallel = deployment_capacity(d, &d->parallel, capacity_parallel);
}

/* m: its defaults are shown; NULL: they are not known. */
static void props_begin(const struct question *q, uint32_t context, const struct moed_model *m,
                        const char *model)
{
    struct strbuf *out = &q->x->out;
    const struct moed_sampling *s = m ? m->sampling : NULL;
    strbuf_printf(out, "{\"default_generation_settings\":{\"n_ctx\":%u,\"params\":{", context);
    if (s)
        strbuf_printf(out,
                      "\"temperature\":%.6g,\"top_k\":%u,\"top_p\":%.6g,\"min_p\":%.6g,"
                      "\"repeat_penalty\":%.6g,\"presence_penalty\":%.6g,",
                      (double)s->temperature, s->top_k, (double)s->top_p, (double)s->min_p,
                      (double)s->repetition_penalty, (double)s->presence_penalty);
    if (m && *m->chat_template_kwargs)
        strbuf_printf(out, "\"chat_template_kwargs\":%s,", m->chat_template_kwargs);
    if (m && m->reasoning_budget)
        strbuf_printf(out, "\"reasoning_budget\":%u,", m->reasoning_budget);
    strbuf_printf(out, "\"n_predict\":-1}},\"total_slots\":%llu",
                  (unsigned long long)(q->parallel ? q->parallel : app_of(q->x)->answers_max));
    json_string_member(out, "model_alias", model);
}

static void props_end(const struct question *q)
{
    strbuf_printf(&q->x->out, ",\"modalities\":{\"vision\":false,\"audio\":false},"
                              "\"build_info\":\"moed-" MOED_VERSION "\"}");
}

static void write_props(struct question *q)
{
    struct strbuf *out = &q->x->out;
    const struct moed_model *m = q->deployment->facts;
    const char *bos = q->text, *eos = bos + strlen(bos) + 1;
    if (!m) { /* the worker was restarted since; the client asks again */
        strbuf_printf(out, "{}");
        return;
    }
    props_begin(q, m->context, m, q->deployment->model);
    json_string_member(out, "model_path", m->path);
    json_string_member(out, "chat_template", m->chat_template);
    json_string_member(out, "bos_token", bos);
    json_string_member(out, "eos_token", eos);
    json_string_member(out, "device", m->device);
    props_end(q);
}

/* The context is that of training. */
static void props_unloaded(struct question *q, const struct demand_model *m)
{
    props_begin(q, m->context, NULL, m->id);
    props_end(q);
}

void handle_props(struct exchange *x)
{
    static const struct question_kind kind = {find_props, write_props, props_unloaded,
                                              measure_props};
    struct ask ask;
    ask_init(&ask);
    ask.model = exchange_query(x, "model"); /* libmicrohttpd keeps it until the reply */
    question_start(x, &ask, &kind);
}

/* ---- /tokenizer_info ---- */

static void token_member(struct strbuf *out, const char *key, int64_t id, const char *text)
{
    if (id >= 0)
        json_string_member(out, key, text);
    else
        strbuf_printf(out, ",\"%s\":null", key);
}

/* moed pads nothing; lm-evaluation-harness expects the member. */
static void write_tokenizer_info(struct question *q)
{
    struct strbuf *out = &q->x->out;
    const struct moed_model *m = q->deployment->facts;
    const char *bos = q->text, *eos = bos + strlen(bos) + 1;
    if (!m) { /* as for /props */
        strbuf_printf(out, "{}");
        return;
    }
    strbuf_printf(out, "{\"model_max_length\":%u,\"pad_token\":null", m->context);
    token_member(out, "bos_token", m->bos, bos);
    token_member(out, "eos_token", m->eos, eos);
    json_string_member(out, "chat_template", m->chat_template);
    strbuf_printf(out, "}");
}

void handle_tokenizer_info(struct exchange *x)
{
    static const struct question_kind kind = {.work = find_props, .write = write_tokenizer_info};
    struct ask ask;
    ask_init(&ask);
    ask.model = exchange_query(x, "model");
    question_start(x, &ask, &kind);
}
