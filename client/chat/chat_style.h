/* How a model writes its calls and its reasoning, detected in its chat template. Pure. */
#ifndef MOED_CLIENT_CHAT_STYLE_H
#define MOED_CLIENT_CHAT_STYLE_H

#include "client/include/moed.h"

#include "toolcall/formats.h"

#include <stdbool.h>

struct chat_style {
    const struct tool_format *format;
    const struct reasoning_marks *reasoning; /* NULL: none, or the format's own */
};

/* The style that a template's text shows. */
struct chat_style chat_style_of_text(const char *template_text);

/* The style of a model by its own template. tools: of its template for conversations with tools. */
struct chat_style chat_style_of(const struct moed_model *model, bool tools);

/* The Jinja that writes past calls in the model's notation, for templates that show none (struct
 * chat_source). NULL: the notation is not known. */
const char *chat_style_calls(const struct chat_style *style);

/* Special tokens' texts must come with an answer in this style: it needs a parser. */
bool chat_style_has_marks(const struct chat_style *style);

#endif
