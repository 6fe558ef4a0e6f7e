/* The style of a model's calls and reasoning; see chat_style.h. */
#include "client/chat/chat_style.h"

#include <string.h>

struct chat_style chat_style_of_text(const char *text)
{
    size_t len = strlen(text);
    return (struct chat_style){tool_format_detect(text, len), reasoning_detect(text, len)};
}

struct chat_style chat_style_of(const struct moed_model *model, bool tools)
{
    bool own = tools && *model->chat_template_tools;
    return chat_style_of_text(own ? model->chat_template_tools : model->chat_template);
}

bool chat_style_has_marks(const struct chat_style *style)
{
    return style->reasoning || style->format->body == BODY_HARMONY;
}
