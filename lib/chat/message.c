/* The fields of a message; see message.h. */
#include "chat/message.h"

#include <stdlib.h>
#include <string.h>

json_t *message_join_parts(const json_t *parts, const char *between)
{
    size_t gap = strlen(between), len = 0, at = 0;
    for (size_t i = 0; i < json_array_size(parts); i++)
        len += json_string_length(json_object_get(json_array_get(parts, i), "text")) + gap;
    char *text = malloc(len + 1);
    for (size_t i = 0; text && i < json_array_size(parts); i++) {
        const json_t *part = json_object_get(json_array_get(parts, i), "text");
        if (i) {
            memcpy(text + at, between, gap);
            at += gap;
        }
        memcpy(text + at, json_string_value(part), json_string_length(part));
        at += json_string_length(part);
    }
    json_t *joined = text ? json_stringn(text, at) : NULL;
    free(text);
    return joined;
}

json_t *message_text(json_t *content)
{
    return json_is_array(content)    ? message_join_parts(content, "")
           : json_is_string(content) ? json_incref(content)
                                     : NULL;
}

json_t *message_reasoning(const json_t *message)
{
    json_t *reasoning = json_object_get(message, "reasoning_content");
    if (!reasoning)
        reasoning = json_object_get(message, "reasoning");
    return reasoning ? reasoning : json_object_get(message, "thinking");
}
