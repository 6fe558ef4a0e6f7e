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

/* text<|tool_call_start|>[f(k="v", n=1), g()]<|tool_call_end|>
 * Templates cut an older content at its last </think>, so that arguments have it escaped. The end
 * leaves white space at the begin of the model's template as it is. */
static const char python_calls[] =
    "{%- set rewritten = namespace(messages=[]) -%}{%- for m in messages -%}"
    "{%- if m.role == 'assistant' and m.tool_calls -%}{%- set text -%}{{ m.content }}"
    "<|tool_call_start|>[{%- for c in m.tool_calls -%}{%- set f = c.function or c -%}{{ f.name }}("
    "{%- for k, v in (f.arguments or {}).items() -%}"
    "{{ k }}={{ (v | tojson if v is string else v | string) | "
    "replace('</think>', '\\\\u003c/think>') }}{{ ', ' if not loop.last }}{%- endfor -%})"
    "{{ ', ' if not loop.last }}{%- endfor -%}]<|tool_call_end|>{%- endset -%}"
    "{%- set m = dict(m, content=text) -%}{%- endif -%}"
    "{%- set unused = rewritten.messages.append(m) -%}{%- endfor -%}"
    "{%- set messages = rewritten.messages -%}{{ '' }}";

const char *chat_style_calls(const struct chat_style *style)
{
    return style->format->body == BODY_PYTHON ? python_calls : NULL;
}

bool chat_style_has_marks(const struct chat_style *style)
{
    return style->reasoning || style->format->body == BODY_HARMONY;
}
