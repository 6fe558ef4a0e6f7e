/* Parts of GBNF texts. */
#ifndef MOED_TOOLCALL_GBNF_WRITE_H
#define MOED_TOOLCALL_GBNF_WRITE_H

#include "base/strbuf.h"
#include "toolcall/formats.h"

#include <stddef.h>

/* A literal with its quotes. Nothing for an empty text. Ends with a space. */
void gbnf_literal(struct strbuf *out, const char *text, size_t len);
/* Rules of any text up to and including the first `mark` (UTF-8, not empty, at most 64
 * characters). The first rule is NAME-0. The mark may be a control token (tool_grammar.h, marks),
 * unless one of its ends is its beginning. */
void gbnf_until(struct strbuf *out, const char *name, const char *mark);
/* Rules of any text without `mark`, which is as in gbnf_until. The first rule is NAME-0. */
void gbnf_without(struct strbuf *out, const char *name, const char *mark);
/* Reasoning that may come first, with its end mark, what begins the next message, and the GBNF
 * `space`; nothing where there is none. open: it has begun, so only the next message's begin comes
 * behind it. It refers to the rules of the second function. marks: NULL: none, or the format has
 * its own. f may be NULL. */
void gbnf_reasoning(struct strbuf *out, const struct tool_format *f,
                    const struct reasoning_marks *marks, bool open, const char *space);
void gbnf_reasoning_rules(struct strbuf *out, const struct tool_format *f,
                          const struct reasoning_marks *marks);
/* The rules json-object, json-value, json-string and what they need. Whitespace is bounded. */
void gbnf_json(struct strbuf *out);

#endif
