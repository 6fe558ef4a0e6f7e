/* How each family of models writes tool calls and reasoning. */
#ifndef MOED_TOOLCALL_FORMATS_H
#define MOED_TOOLCALL_FORMATS_H

#include <stdbool.h>
#include <stddef.h>

/* What stands between the marks of a call. */
enum tool_body {
    BODY_OBJECTS, /* {"name": N, "arguments": {...}}, one or several, or an array of them */
    BODY_NAMED,   /* N separator {...}, or ID name_begin N separator {...} */
    BODY_TAGS,    /* N, then each argument between tags */
    BODY_PYTHON,  /* [N(key="value", ...), ...] */
    BODY_GEMMA,   /* call:N{key:<|"|>value<|"|>, ...} */
    BODY_HARMONY, /* the whole answer is in channels */
    BODY_GENERIC, /* the whole answer is {"tool_calls": [...]} or {"response": "..."} */
};

enum tool_id_form {
    ID_CALL,    /* "call_" and 24 letters or digits */
    ID_NINE,    /* 9 letters or digits */
    ID_ORDINAL, /* "functions.NAME:INDEX" */
};

struct reasoning_marks {
    const char *begin, *end;
    const char *next;      /* begins another message of the answer; NULL: it has one message */
    const char *next_mark; /* the tag in `next` */
};

/* A field that a format does not have is NULL. */
struct tool_format {
    const char *name;
    enum tool_body body;
    enum tool_id_form id;
    bool bare;           /* a call may begin with { at the answer's start */
    bool ends_reasoning; /* what begins calls or the text does */
    bool action_keys; /* BODY_OBJECTS: an array, and the keys tool_call_id, tool_name, parameters */
    const char *section_begin, *section_end; /* around all calls */
    bool section_end_token; /* section_end is a token that ends the answer: no grammar has it */
    bool one_call;          /* in a message */
    const char *call_begin, *call_end;
    const char *call_mark;  /* the tag in call_begin, where it is not the whole */
    const char *name_begin; /* BODY_NAMED: behind the id, which stands before the name */
    const char *separator;  /* BODY_NAMED: before the arguments */
    const char *fence;      /* BODY_NAMED: stands between the name and the arguments; then their
                               separator is before the name, and before it the word `function` */
    const char *name_end;   /* BODY_TAGS, from here on */
    const char *key_begin, *key_end;
    const char *value_begin, *value_end;
    bool newline_values; /* a newline before a value is not in it; value_end begins with another
                            one, without which it ends a value that has none before it, or where
                            the argument ends: key_begin or call_end is on the next line */
    bool typed_values;   /* the key's tag says whether the value is a string (DSML) */
    const char *gap;     /* grammar: between call_begin and the body, and the body and call_end */
    bool optional_gap;   /* templates of the format differ in it */
    const char *text_begin, *text_end; /* around the answer's text */
    struct reasoning_marks reasoning;  /* which the template does not spell */
};

/* The format of a chat template, by the marks in its text. A template without known marks gets
 * "generic": the caller describes the tools in a system message, and the grammar
 * (tool_grammar.h) forces the form. */
const struct tool_format *tool_format_detect(const char *template_text, size_t len);
/* NULL: no such format. */
const struct tool_format *tool_format_find(const char *name);
/* By number, from 0; NULL behind the last. */
const struct tool_format *tool_format_at(size_t i);

/* NULL: the template has no marks of reasoning, or the format has its own (harmony). */
const struct reasoning_marks *reasoning_detect(const char *template_text, size_t len);
/* The prompt, which the template rendered, ends inside reasoning. */
bool reasoning_left_open(const struct reasoning_marks *marks, const char *prompt, size_t len);
/* The prompt ends behind reasoning, which is empty: the model is not to reason. */
bool reasoning_left_closed(const struct reasoning_marks *marks, const char *prompt, size_t len);

#endif
