/* Custom tools of the Responses API, whose input is a text, such as Codex's apply_patch. The model
 * sees a function whose one argument is the text; the client gets the text. */
#ifndef MOED_HTTP_CUSTOM_TOOL_H
#define MOED_HTTP_CUSTOM_TOOL_H

#include "base/strbuf.h"

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

/* The function for a tool {"type": "custom", "name", "description", "format"}: its description has
 * the format's grammar, which does not bind the text. A new reference; NULL: no memory. */
json_t *custom_tool_function(const json_t *tool);

/* Reads the text out of a call's arguments, {"input": "..."}, as they come. Begins zeroed. */
struct custom_input {
    enum custom_input_place {
        INPUT_BEFORE, /* the text's first quote has not come */
        INPUT_TEXT,
        INPUT_ESCAPE, /* behind a backslash */
        INPUT_HEX,    /* in the digits behind \u */
        INPUT_END,
    } place;
    unsigned quotes, digits; /* so many have come */
    uint32_t code;           /* of the digits so far */
    uint32_t high;           /* the first half of a surrogate pair; 0: none */
};
/* Appends what the next part of the arguments has of the text. Half a surrogate pair becomes
 * U+FFFD. */
void custom_input_take(struct custom_input *in, const char *arguments, size_t len,
                       struct strbuf *out);

#endif
