/* A request's grammar, as a frontend asks for it; see frontends_internal.h. */
#include "frontends_internal.h"

#include "worker/sample/grammar_cursor.h"
#include "worker/sample/grammars.h"
#include "worker/serve/request.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static const enum grammar_kind kinds[] = {
    [MOED__V1__GRAMMAR__KIND__JSON_SCHEMA] = GRAMMAR_JSON_SCHEMA,
    [MOED__V1__GRAMMAR__KIND__GBNF] = GRAMMAR_GBNF,
    [MOED__V1__GRAMMAR__KIND__REGEX] = GRAMMAR_REGEX,
    [MOED__V1__GRAMMAR__KIND__CHOICES] = GRAMMAR_CHOICE,
};

/* The trigger and the marks of reasoning, then the marks. */
enum { START_TEXTS = 3, TEXTS_MAX = START_TEXTS + GRAMMAR_MARKS_MAX };

static enum error_code check(const Moed__V1__Generate *q, struct error *e)
{
    const Moed__V1__Grammar *g = q->grammar;
    if ((unsigned)g->kind >= sizeof kinds / sizeof kinds[0])
        return error_set(e, ERROR_USAGE, "grammar: unknown kind %d", (int)g->kind);
    if (q->ignore_end)
        return error_set(e, ERROR_USAGE,
                         "ignore_end together with a grammar: the grammar decides where the answer "
                         "ends; use one of them");
    if (g->n_marks && g->kind != MOED__V1__GRAMMAR__KIND__GBNF)
        return error_set(e, ERROR_USAGE, "grammar: only GBNF can have marks");
    if (g->n_marks > GRAMMAR_MARKS_MAX)
        return error_set(e, ERROR_LIMIT, "grammar: %zu marks: give at most %d", g->n_marks,
                         GRAMMAR_MARKS_MAX);
    if (g->trigger_required && !g->trigger.len)
        return error_set(e, ERROR_USAGE, "grammar: a trigger is required, but there is none");
    return ERROR_OK;
}

/* Copies texts to *out, each with a NUL. ERROR_USAGE: one has a NUL itself. */
static enum error_code copy_texts(const ProtobufCBinaryData *texts, size_t n, const char **copies,
                                  struct strbuf *out, struct error *e)
{
    size_t at[TEXTS_MAX];
    for (size_t i = 0; i < n; i++) {
        if (texts[i].len && memchr(texts[i].data, 0, texts[i].len))
            return error_set(e, ERROR_USAGE, "grammar: a trigger or mark has a NUL");
        at[i] = out->len;
        strbuf_append(out, texts[i].data, texts[i].len);
        strbuf_append(out, "", 1);
    }
    for (size_t i = 0; i < n && !out->failed; i++)
        copies[i] = out->data + at[i];
    return out->failed ? error_set(e, ERROR_MEMORY, "no memory for a grammar") : ERROR_OK;
}

static enum error_code make(struct frontend *f, struct request *r, const Moed__V1__Grammar *q,
                            const char *const *texts, struct error *e)
{
    struct grammar_definition d = {.kind = kinds[q->kind],
                                   .text = (const char *)q->text.data,
                                   .len = q->text.len,
                                   .marks = texts + START_TEXTS,
                                   .n_marks = (uint32_t)q->n_marks};
    struct grammar_start start = {.trigger = texts[0],
                                  .reasoning_begin = texts[1],
                                  .reasoning_end = texts[2],
                                  .required = q->trigger_required};
    struct shared_grammar *g;
    enum error_code code = grammars_get(f->frontends->grammars, &d, &g, e);
    if (!code)
        code = grammar_cursor_new(g, &start, &r->stop_tokens, f->frontends->model.map->params.vocab,
                                  &r->grammar, e);
    if (!code)
        r->guard = grammar_cursor_guard(r->grammar);
    return code;
}

enum error_code frontend_take_grammar(struct frontend *f, struct request *r,
                                      const Moed__V1__Generate *q, struct error *e)
{
    const Moed__V1__Grammar *g = q->grammar;
    ProtobufCBinaryData texts[TEXTS_MAX];
    const char *copies[TEXTS_MAX];
    struct strbuf memory;
    if (!g || g->kind == MOED__V1__GRAMMAR__KIND__NONE)
        return ERROR_OK;
    enum error_code code = check(q, e);
    if (code)
        return code;
    texts[0] = g->trigger;
    texts[1] = g->reasoning_begin;
    texts[2] = g->reasoning_end;
    for (size_t i = 0; i < g->n_marks; i++)
        texts[i + START_TEXTS] = g->marks[i];
    strbuf_init(&memory);
    code = copy_texts(texts, g->n_marks + START_TEXTS, copies, &memory, e);
    if (!code)
        code = make(f, r, g, copies, e);
    strbuf_fini(&memory);
    return code;
}
