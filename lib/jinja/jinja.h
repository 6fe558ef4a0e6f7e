/* The Jinja of chat templates: compiles a template, and renders it with values in JSON.
 *
 * The language is Jinja 3.1 with the settings of transformers' apply_chat_template: trim_blocks,
 * lstrip_blocks, break and continue, {% generation %}, tojson without HTML escapes,
 * raise_exception, strftime_now. docs/chat-templates.md lists what is there and what differs.
 *
 * The output says of each byte whether the request put it there: see lib/jinja/text.h. A compiled
 * template never changes: any number of threads may render it. A render ends: it has limits. */
#ifndef MOED_JINJA_JINJA_H
#define MOED_JINJA_JINJA_H

#include "base/error.h"

#include <jansson.h>
#include <stdint.h>

struct jinja_template;

/* Borrows nothing. ERROR_FORMAT: a syntax error; the text has the line. ERROR_UNSUPPORTED: a tag
 * that the engine lacks. */
enum error_code jinja_compile(const char *source, size_t len, struct jinja_template **out,
                              struct error *e);
void jinja_free(struct jinja_template *t); /* takes NULL */

struct jinja_limits {
    uint64_t steps;      /* statements, expressions, elements; and a share of the bytes moved */
    size_t output_bytes; /* of the output, and of each text on the way */
    size_t memory_bytes;
    unsigned depth; /* nesting of expressions, statements, macros and data */
};

extern const struct jinja_limits jinja_default_limits;

struct jinja_input {
    const json_t *request;    /* an object: the variables whose text comes from the request */
    const json_t *trusted;    /* an object or NULL: those whose text may make special tokens */
    const char *const *words; /* strings that are the template's although the request has them, such
                                 as the names of roles; NULL-terminated, or NULL: none */
    int64_t now_s; /* strftime_now: seconds since 1970, in the local time zone; -1: now */
    const struct jinja_limits *limits; /* NULL: jinja_default_limits */
};

/* Bytes [start, end) of the output came from the request. */
struct jinja_range {
    size_t start, end;
};

struct jinja_output {
    char *text; /* NUL-terminated; len does not count the NUL */
    size_t len;
    struct jinja_range *ranges; /* in order, without overlap */
    size_t range_count;
};

/* ERROR_USAGE: the template refused the values (raise_exception), or Python would have raised an
 * error; ERROR_LIMIT: a limit. The text is one line, with the template's. */
enum error_code jinja_render(const struct jinja_template *t, const struct jinja_input *input,
                             struct jinja_output *out, struct error *e);
void jinja_output_fini(struct jinja_output *out);

#endif
