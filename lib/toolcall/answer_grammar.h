/* What binds an answer: a form that the request demands (a JSON schema, a grammar, ...), and the
 * form of the calls of tools. Reasoning is never bound: the form follows it. */
#ifndef MOED_TOOLCALL_ANSWER_GRAMMAR_H
#define MOED_TOOLCALL_ANSWER_GRAMMAR_H

#include "toolcall/tool_grammar.h"

enum answer_calls { ANSWER_CALLS_AUTO, ANSWER_CALLS_REQUIRED, ANSWER_CALLS_NAMED };

/* A form that is no schema is one of the caller's, in its own notation. */
enum answer_form { ANSWER_FORM_NONE, ANSWER_FORM_SCHEMA, ANSWER_FORM_OTHER };

struct answer_request {
    const struct tool_format *format; /* NULL: no conversation, but the continuation of a text */
    const struct reasoning_marks *reasoning; /* NULL: none, or the format has its own */
    bool reasoning_open;                     /* the prompt ends inside reasoning */
    bool thinking_off;                       /* the model was told not to reason */
    const struct tool_list *tools;           /* NULL: none */
    enum answer_calls calls;
    const char *call_name; /* ANSWER_CALLS_NAMED */
    bool one_call;         /* at most */
    bool endless; /* the answer goes on behind end tokens, so nothing is bound inside calls */
    enum answer_form form;
    const char *form_text; /* of the form */
};

enum { ANSWER_MARKS_MAX = TOOL_GRAMMAR_MARKS_MAX };

struct answer_grammar {
    enum {
        ANSWER_FREE, /* nothing is bound */
        ANSWER_GBNF, /* `text`, GBNF with %json */
        ANSWER_FORM, /* the request's form as it is */
    } kind;
    const char *text; /* ANSWER_GBNF */
    size_t len;
    const char *trigger; /* binds behind this text; NULL: from the first token. Constant */
    bool trigger_required;
    const char *reasoning_begin, *reasoning_end; /* as in struct tool_grammar */
    const char *const *marks; /* ANSWER_GBNF: texts that control tokens may stand for */
    size_t mark_count;

    char *own_text; /* owned: `text`, where it is not that of `calls` */
    struct tool_grammar calls;
    const char *own_marks[ANSWER_MARKS_MAX];
};

/* The result borrows from the request. ERROR_UNSUPPORTED names a schema that the model's calls
 * cannot express; ERROR_NOT_FOUND, ERROR_USAGE as tool_grammar_build; ERROR_MEMORY. */
enum error_code answer_grammar_build(const struct answer_request *q, struct answer_grammar *out,
                                     struct error *e);
/* What binds the rest of an answer whose reasoning was ended: behind its end mark; of harmony
 * behind the next message's `<|start|>assistant`, or, where the form is no JSON schema and there
 * are no calls, behind the header of the channel `final`. What is bound does not reason again. */
enum error_code answer_grammar_build_behind(const struct answer_request *q,
                                            struct answer_grammar *out, struct error *e);
void answer_grammar_fini(struct answer_grammar *g);

#endif
