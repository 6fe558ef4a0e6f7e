/* Whether a model is to think; see effort.h. */
#include "chat/effort.h"

#include <string.h>

enum chat_switch chat_effort_switch(const char *effort)
{
    if (!effort || strcmp(effort, "minimal") == 0)
        return CHAT_UNSET;
    return strcmp(effort, "none") == 0 ? CHAT_OFF : CHAT_ON;
}

enum chat_switch chat_thinking(enum chat_switch own, enum chat_switch effort, const json_t *kwargs)
{
    if (own != CHAT_UNSET)
        return own;
    bool in_kwargs =
        json_object_get(kwargs, "enable_thinking") || json_object_get(kwargs, "thinking");
    return in_kwargs ? CHAT_UNSET : effort;
}
