/* The tools of a request: names and schemas. */
#ifndef MOED_TOOLCALL_TOOLS_H
#define MOED_TOOLCALL_TOOLS_H

#include "base/error.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    TOOLS_MAX = 512,
    TOOL_NAME_MAX = 128, /* bytes: letters, digits, _ . : / - */
};

struct tool {
    const char *name;
    const json_t *parameters; /* the schema of the arguments; NULL: any object */
    bool strict;
};

struct tool_list;

/* From the `tools` of a chat request: [{"type": "function", "function": {...}}]. An element that is
 * the function itself (it has a "name") is accepted too. The list keeps a reference to the array,
 * which must not change. ERROR_USAGE, ERROR_LIMIT, ERROR_MEMORY; the text says which element. */
enum error_code tool_list_new(json_t *tools, struct tool_list **out, struct error *e);
void tool_list_free(struct tool_list *l); /* takes NULL */

size_t tool_list_count(const struct tool_list *l); /* takes NULL */
const struct tool *tool_list_at(const struct tool_list *l, size_t i);
/* NULL: no such tool. */
const struct tool *tool_list_find(const struct tool_list *l, const char *name, size_t len);

bool tool_name_byte(char c);

#endif
