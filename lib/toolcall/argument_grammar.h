/* The part of a grammar of calls (tool_grammar.h) that is a call's arguments. */
#ifndef MOED_TOOLCALL_ARGUMENT_GRAMMAR_H
#define MOED_TOOLCALL_ARGUMENT_GRAMMAR_H

#include "base/error.h"
#include "base/strbuf.h"
#include "toolcall/formats.h"
#include "toolcall/tools.h"

#include <stdbool.h>
#include <stddef.h>

/* What the schemas of tools that are not strict may take of the grammar's text, which has 256 KiB
 * (grammar/grammar.h): the rest is for the names and marks of TOOLS_MAX tools. */
enum { TOOL_SCHEMAS_BYTES = 160 * 1024, TOOL_GRAMMAR_BYTES = 256 * 1024 };

struct argument_writer {
    struct strbuf *out; /* the grammar's text */
    const struct tool_format *format;
    size_t bytes_left;                                /* of TOOL_SCHEMAS_BYTES */
    size_t bytes_most;                                /* what the tool that is written may take */
    const json_t *parameters;                         /* its schema without annotations */
    struct schema_parts *parts;                       /* of that */
    bool json, gemma, tags, open, value, typed_value; /* which rules are used */
    unsigned notes;                                   /* how many schemas have no item */
    struct error *e;
};

/* Appends the arguments of a call of t. ERROR_UNSUPPORTED, ERROR_MEMORY: as tool_grammar_build. */
enum error_code arguments_write(struct argument_writer *w, const struct tool *t);
/* Appends the rules that the arguments refer to. */
void arguments_rules(struct argument_writer *w);

#endif
