/* The grammar of a format's calls: what binds an answer to call a tool, and its arguments to the
 * tool's schema. */
#ifndef MOED_TOOLCALL_TOOL_GRAMMAR_H
#define MOED_TOOLCALL_TOOL_GRAMMAR_H

#include "base/error.h"
#include "toolcall/formats.h"
#include "toolcall/tools.h"

#include <stdbool.h>
#include <stddef.h>

enum tool_choice {
    TOOL_CHOICE_AUTO,     /* the model decides; a call that it begins is bound */
    TOOL_CHOICE_REQUIRED, /* at least one call */
    TOOL_CHOICE_NAMED,    /* one call of one tool */
};

struct tool_grammar_request {
    const struct tool_format *format;
    const struct reasoning_marks *reasoning; /* NULL: none */
    const struct tool_list *tools;
    enum tool_choice choice;
    const char *name;    /* TOOL_CHOICE_NAMED */
    bool parallel;       /* more than one call */
    bool reasoning_open; /* the prompt ended inside reasoning; of harmony: behind it */
};

enum { TOOL_GRAMMAR_MARKS_MAX = 11 };

struct tool_grammar {
    /* GBNF with the items of grammar/gbnf_schema.h, which stand for the values of a JSON schema.
     * NULL: nothing is bound (auto, in a format whose calls have no mark). Owned. */
    char *text;
    size_t len;
    /* The grammar binds behind the first occurrence of this text; NULL: from the first token. */
    const char *trigger;
    bool required; /* the answer may not end before the trigger */
    /* The trigger does not count in reasoning, which may quote it. NULL: there is none, it ends
     * where calls begin, or a tool is strict: its calls follow the schema there, too.
     * reasoning_begin "": the answer begins in it. */
    const char *reasoning_begin, *reasoning_end;
    /* Texts in the grammar that may be control tokens of the vocabulary, which must be allowed
     * then; NULL after the last. */
    const char *marks[TOOL_GRAMMAR_MARKS_MAX + 1];
};

/* The arguments of a tool follow its schema. Where the format or the grammar's compiler cannot
 * follow it, or the schemas together are too large, they are any object of the format; but a tool
 * that is `strict` is an error then. ERROR_NOT_FOUND: no tool of this name. ERROR_UNSUPPORTED: a
 * strict schema that the format cannot express; the text has the tool and the JSON pointer.
 * ERROR_USAGE: no tools. ERROR_MEMORY. */
enum error_code tool_grammar_build(const struct tool_grammar_request *request,
                                   struct tool_grammar *out, struct error *e);
void tool_grammar_fini(struct tool_grammar *g);

#endif
