/* What binds an answer; see answer_grammar.h. */
#include "toolcall/answer_grammar.h"

#include "toolcall/gbnf_write.h"

#include <stdlib.h>
#include <string.h>

#define ANSWER "<|channel|>final<|message|>" /* harmony: what follows is the answer */
#define ROOT   "root ::= "
/* What stands before JSON in harmony's channels. */
#define HARMONY_LEAD "\"<|channel|>final\" ( \" <|constrain|>json\" )? \"<|message|>\" "

static enum error_code no_memory(struct error *e)
{
    return error_set(e, ERROR_MEMORY, "no memory for the answer's form");
}

/* The form follows this text, which must come. */
static void bind_behind(struct answer_grammar *g, const char *trigger)
{
    g->trigger = trigger;
    g->trigger_required = true;
}

static bool is_harmony(const struct answer_request *q)
{
    return q->format && q->format->body == BODY_HARMONY;
}

/* Whether the answer's text is a message of its own, which its mark begins. */
static bool has_messages(const struct answer_request *q)
{
    return q->reasoning && q->reasoning->next && q->format && q->format->text_begin;
}

/* NULL: no reasoning may come. */
static const struct reasoning_marks *marks_of(const struct answer_request *q)
{
    return q->thinking_off && !q->reasoning_open ? NULL : q->reasoning;
}

/* Beside a form the model may only choose between calls and the form; behind reasoning of harmony,
 * between calls and the answer: unbound, it could reason again. */
static bool chooses(const struct answer_request *q)
{
    return q->calls == ANSWER_CALLS_AUTO && (q->form || (is_harmony(q) && q->reasoning_open));
}

static enum tool_choice choice_of(const struct answer_request *q)
{
    if (q->calls == ANSWER_CALLS_NAMED)
        return TOOL_CHOICE_NAMED;
    return q->calls == ANSWER_CALLS_REQUIRED || chooses(q) ? TOOL_CHOICE_REQUIRED
                                                           : TOOL_CHOICE_AUTO;
}

static void optional_literal(struct strbuf *out, const char *text)
{
    if (!text)
        return;
    strbuf_printf(out, "( ");
    gbnf_literal(out, text, strlen(text));
    strbuf_printf(out, ")? ");
}

/* What stands before the answer's text, not of harmony: reasoning, with `space` behind it, what
 * begins the next message, and the text's mark. reasoning-0 is a rule of the grammar. Returns how
 * many marks it has put into `marks`. */
static size_t write_lead(struct strbuf *out, const struct answer_request *q, const char *space,
                         const char *marks[ANSWER_MARKS_MAX])
{
    const struct reasoning_marks *m = marks_of(q);
    const char *text_begin = q->format ? q->format->text_begin : NULL;
    const char *all[] = {m ? m->begin : NULL, m ? m->end : NULL, m ? m->next_mark : NULL,
                         text_begin};
    size_t n = 0;
    gbnf_reasoning(out, q->format, m, q->reasoning_open, space);
    optional_literal(out, text_begin);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (all[i])
            marks[n++] = all[i];
    return n;
}

/* Takes the text. */
static enum error_code take_text(struct answer_grammar *g, struct strbuf *text, struct error *e)
{
    if (text->failed) {
        strbuf_fini(text);
        return no_memory(e);
    }
    g->kind = ANSWER_GBNF;
    g->text = g->own_text = text->data;
    g->len = text->len;
    return ERROR_OK;
}

/* Makes of the grammar of calls one of calls or the answer; reasoning-0 is a rule of it. */
static enum error_code allow_answer(struct answer_grammar *g, const struct answer_request *q,
                                    struct error *e)
{
    struct strbuf text;
    strbuf_init(&text);
    strbuf_printf(&text,
                  ROOT "calls | answer\ncalls ::= %s\nanswer ::= ", g->calls.text + strlen(ROOT));
    if (is_harmony(q)) {
        gbnf_reasoning(&text, q->format, NULL, q->reasoning_open, "");
        strbuf_printf(&text, HARMONY_LEAD);
    } else {
        write_lead(&text, q, "", g->own_marks); /* the marks are those of the calls */
    }
    if (q->form)
        strbuf_printf(&text, "\"\\n\"{0,2} %%json %s\n", q->form_text);
    else
        strbuf_printf(&text, "[^\\x00]*\n");
    return take_text(g, &text, e);
}

static enum error_code bind_calls(struct answer_grammar *g, const struct answer_request *q,
                                  struct error *e)
{
    struct tool_grammar_request calls = {
        .format = q->format,
        .reasoning = marks_of(q),
        .tools = q->tools,
        .choice = choice_of(q),
        .name = q->call_name,
        .parallel = !q->one_call,
        .reasoning_open = q->reasoning_open,
    };
    enum error_code code = tool_grammar_build(&calls, &g->calls, e);
    if (code)
        return code;
    if (g->calls.text) {
        g->kind = ANSWER_GBNF;
        g->text = g->calls.text;
        g->len = g->calls.len;
        g->trigger = g->calls.trigger;
        g->trigger_required = g->calls.required;
        g->reasoning_begin = g->calls.reasoning_begin;
        g->reasoning_end = g->calls.reasoning_end;
        g->marks = g->calls.marks;
        while (g->calls.marks[g->mark_count])
            g->mark_count++;
    }
    return chooses(q) ? allow_answer(g, q, e) : ERROR_OK;
}

/* Takes the text; the marks are in g->own_marks. */
static enum error_code bind_gbnf(struct answer_grammar *g, struct strbuf *text, size_t marks,
                                 struct error *e)
{
    g->marks = g->own_marks;
    g->mark_count = marks;
    return take_text(g, text, e);
}

/* The model may write before the JSON what its answers begin with. */
static enum error_code allow_lead(struct answer_grammar *g, const struct answer_request *q,
                                  struct error *e)
{
    const struct reasoning_marks *marks = marks_of(q);
    struct strbuf text;
    strbuf_init(&text);
    strbuf_printf(&text, ROOT);
    size_t n = write_lead(&text, q, "[ \\n]{0,4} ", g->own_marks);
    strbuf_printf(&text, "%%json %s\n", q->form_text);
    if (marks && !q->reasoning_open)
        gbnf_until(&text, "reasoning", marks->end);
    return bind_gbnf(g, &text, n, e);
}

/* The JSON stands in harmony's channel `final`. */
static enum error_code bind_harmony(struct answer_grammar *g, const struct answer_request *q,
                                    struct error *e)
{
    static const char *const marks[] = {"<|channel|>", "<|message|>", "<|end|>", "<|start|>",
                                        "<|constrain|>"};
    struct strbuf text;
    strbuf_init(&text);
    strbuf_printf(&text, ROOT);
    gbnf_reasoning(&text, q->format, NULL, q->reasoning_open, "");
    strbuf_printf(&text, HARMONY_LEAD "%%json %s\n", q->form_text);
    if (!q->reasoning_open)
        gbnf_reasoning_rules(&text, q->format, NULL);
    memcpy(g->own_marks, marks, sizeof marks);
    return bind_gbnf(g, &text, sizeof marks / sizeof *marks, e);
}

static enum error_code bind_form(struct answer_grammar *g, const struct answer_request *q,
                                 struct error *e)
{
    const struct reasoning_marks *marks = marks_of(q);
    bool schema = q->form == ANSWER_FORM_SCHEMA;
    if (is_harmony(q) && schema)
        return bind_harmony(g, q, e);
    if (is_harmony(q))
        bind_behind(g, ANSWER);
    else if (!schema && has_messages(q))
        bind_behind(g, q->format->text_begin);
    else if (marks && q->reasoning_open)
        bind_behind(g, marks->end);
    bool reasons = marks && !q->reasoning_open;
    if (schema && (reasons || (marks && marks->next) || (q->format && q->format->text_begin)))
        return allow_lead(g, q, e);
    g->kind = ANSWER_FORM;
    return ERROR_OK;
}

enum error_code answer_grammar_build(const struct answer_request *q, struct answer_grammar *out,
                                     struct error *e)
{
    *out = (struct answer_grammar){.kind = ANSWER_FREE};
    /* a model that decides by itself is bound only inside a call; that needs an end */
    bool free_calls = q->calls == ANSWER_CALLS_AUTO && q->endless && !q->form;
    enum error_code code = ERROR_OK;
    if (q->format && q->tools && !free_calls)
        code = bind_calls(out, q, e);
    else if (q->form)
        code = bind_form(out, q, e);
    if (code)
        answer_grammar_fini(out);
    return code;
}

enum error_code answer_grammar_build_behind(const struct answer_request *q,
                                            struct answer_grammar *out, struct error *e)
{
    struct answer_request over = *q;
    const char *end = q->reasoning ? q->reasoning->end : ANSWER;
    over.reasoning_open = true;
    enum error_code code = answer_grammar_build(&over, out, e);
    out->reasoning_begin = out->reasoning_end = NULL;
    if (!code && out->trigger && strcmp(out->trigger, end) == 0) { /* it has just come */
        out->trigger = NULL;
        out->trigger_required = false;
    }
    return code;
}

void answer_grammar_fini(struct answer_grammar *g)
{
    tool_grammar_fini(&g->calls);
    free(g->own_text);
    *g = (struct answer_grammar){.kind = ANSWER_FREE};
}
