/* The table of formats, and their choice by the template. */
#include "toolcall/formats.h"

#include <string.h>

/* Full-width bars and low lines, as DeepSeek's tokens have them. */
#define DS(word) "<｜" word "｜>"
#define DSML     "｜DSML｜"
/* Hy3's template puts this into each of its marks. */
#define HY3 ":opensource"

static const struct tool_format formats[] = {
    {.name = "hermes",
     .body = BODY_OBJECTS,
     .call_begin = "<tool_call>",
     .call_end = "</tool_call>",
     .gap = "\n"},
    {.name = "qwen3-coder",
     .body = BODY_TAGS,
     .section_begin = "<tool_call>",
     .section_end = "</tool_call>",
     .call_begin = "<function=",
     .name_end = ">",
     .key_begin = "<parameter=",
     .key_end = ">",
     .value_end = "\n</parameter>",
     .call_end = "</function>",
     .newline_values = true,
     .gap = "\n"},
    {.name = "seed",
     .body = BODY_TAGS,
     .section_begin = "<seed:tool_call>",
     .section_end = "</seed:tool_call>",
     .call_begin = "<function=",
     .name_end = ">",
     .key_begin = "<parameter=",
     .key_end = ">",
     .value_end = "</parameter>",
     .call_end = "</function>",
     .gap = "\n"},
    {.name = "harmony", .body = BODY_HARMONY, .one_call = true},
    {.name = "deepseek-v3",
     .body = BODY_NAMED,
     .section_begin = DS("tool▁calls▁begin"),
     .section_end = DS("tool▁calls▁end"),
     .call_begin = DS("tool▁call▁begin"),
     .call_end = DS("tool▁call▁end"),
     .separator = DS("tool▁sep"),
     .fence = "```json",
     .gap = ""},
    {.name = "deepseek-v3.1",
     .body = BODY_NAMED,
     .section_begin = DS("tool▁calls▁begin"),
     .section_end = DS("tool▁calls▁end"),
     .call_begin = DS("tool▁call▁begin"),
     .call_end = DS("tool▁call▁end"),
     .separator = DS("tool▁sep"),
     .gap = ""},
    {.name = "deepseek-v3.2",
     .body = BODY_TAGS,
     .section_begin = "<" DSML "function_calls>",
     .section_end = "</" DSML "function_calls>",
     .call_begin = "<" DSML "invoke name=\"",
     .name_end = "\">",
     .key_begin = "<" DSML "parameter name=\"",
     .key_end = "\" string=\"",
     .value_end = "</" DSML "parameter>",
     .call_end = "</" DSML "invoke>",
     .typed_values = true,
     .gap = "\n"},
    {.name = "deepseek-v4",
     .body = BODY_TAGS,
     .section_begin = "<" DSML "tool_calls>",
     .section_end = "</" DSML "tool_calls>",
     .call_begin = "<" DSML "invoke name=\"",
     .name_end = "\">",
     .key_begin = "<" DSML "parameter name=\"",
     .key_end = "\" string=\"",
     .value_end = "</" DSML "parameter>",
     .call_end = "</" DSML "invoke>",
     .typed_values = true,
     .gap = "\n"},
    {.name = "kimi-k2",
     .body = BODY_NAMED,
     .id = ID_ORDINAL,
     .ends_reasoning = true,
     .section_begin = "<|tool_calls_section_begin|>",
     .section_end = "<|tool_calls_section_end|>",
     .call_begin = "<|tool_call_begin|>",
     .call_end = "<|tool_call_end|>",
     .separator = "<|tool_call_argument_begin|>",
     .gap = ""},
    {.name = "solar-open",
     .body = BODY_NAMED,
     .section_begin = "<|tool_calls|>",
     .section_end = "<|calls|>",
     .section_end_token = true,
     .call_begin = "<|tool_call:begin|>",
     .call_end = "<|tool_call:end|>",
     .name_begin = "<|tool_call:name|>",
     .separator = "<|tool_call:args|>",
     .gap = "",
     .text_begin = "<|content|>",
     .text_end = "<|end|>",
     .reasoning = {"<|think|>", "<|end|>", "<|begin|>assistant", "<|begin|>"}},
    {.name = "glm",
     .body = BODY_TAGS,
     .call_begin = "<tool_call>",
     .name_end = "",
     .key_begin = "<arg_key>",
     .key_end = "</arg_key>",
     .value_begin = "<arg_value>",
     .value_end = "</arg_value>",
     .call_end = "</tool_call>",
     .gap = "\n",
     .optional_gap = true},
    {.name = "hy3",
     .body = BODY_TAGS,
     .section_begin = "<tool_calls" HY3 ">",
     .section_end = "</tool_calls" HY3 ">",
     .call_begin = "<tool_call" HY3 ">",
     .name_end = "<tool_sep" HY3 ">",
     .key_begin = "<arg_key" HY3 ">",
     .key_end = "</arg_key" HY3 ">",
     .value_begin = "<arg_value" HY3 ">",
     .value_end = "</arg_value" HY3 ">",
     .call_end = "</tool_call" HY3 ">",
     .gap = "\n",
     .reasoning = {.begin = "<think" HY3 ">", .end = "</think" HY3 ">"}},
    {.name = "hy3-preview",
     .body = BODY_TAGS,
     .section_begin = "<tool_calls>",
     .section_end = "</tool_calls>",
     .call_begin = "<tool_call>",
     .name_end = "<tool_sep>",
     .key_begin = "<arg_key>",
     .key_end = "</arg_key>",
     .value_begin = "<arg_value>",
     .value_end = "</arg_value>",
     .call_end = "</tool_call>",
     .gap = "\n"},
    {.name = "cohere",
     .body = BODY_OBJECTS,
     .action_keys = true,
     .ends_reasoning = true,
     .call_begin = "<|START_ACTION|>",
     .call_end = "<|END_ACTION|>",
     .gap = "",
     .text_begin = "<|START_TEXT|>",
     .text_end = "<|END_TEXT|>"},
    {.name = "command-a",
     .body = BODY_OBJECTS,
     .action_keys = true,
     .ends_reasoning = true,
     .call_begin = "<|START_ACTION|>",
     .call_end = "<|END_ACTION|>",
     .gap = "",
     .text_begin = "<|START_RESPONSE|>",
     .text_end = "<|END_RESPONSE|>"},
    {.name = "mistral",
     .body = BODY_NAMED,
     .id = ID_NINE,
     .call_begin = "[TOOL_CALLS]",
     .separator = "[ARGS]",
     .gap = ""},
    {.name = "mistral-array",
     .body = BODY_OBJECTS,
     .id = ID_NINE,
     .call_begin = "[TOOL_CALLS]",
     .gap = ""},
    {.name = "llama3",
     .body = BODY_OBJECTS,
     .bare = true,
     .call_begin = "<|python_tag|>",
     .gap = ""},
    {.name = "functionary",
     .body = BODY_NAMED,
     .call_begin = "<function=",
     .call_end = "</function>",
     .separator = ">",
     .gap = ""},
    {.name = "gigachat3",
     .body = BODY_OBJECTS,
     .one_call = true,
     .call_begin = "function call<|role_sep|>\n",
     .call_mark = "<|role_sep|>\n",
     .gap = "",
     .text_end = "<|message_sep|>\n\n"},
    {.name = "minimax-m2",
     .body = BODY_TAGS,
     .section_begin = "<minimax:tool_call>",
     .section_end = "</minimax:tool_call>",
     .call_begin = "<invoke name=\"",
     .name_end = "\">",
     .key_begin = "<parameter name=\"",
     .key_end = "\">",
     .value_end = "</parameter>",
     .call_end = "</invoke>",
     .gap = "\n"},
    {.name = "tool-calls-tag",
     .body = BODY_OBJECTS,
     .call_begin = "<tool_calls>",
     .call_end = "</tool_calls>",
     .gap = "\n"},
    {.name = "lfm2",
     .body = BODY_PYTHON,
     .call_begin = "<|tool_call_start|>",
     .call_end = "<|tool_call_end|>",
     .gap = ""},
    {.name = "gemma4",
     .body = BODY_GEMMA,
     .call_begin = "<|tool_call>",
     .call_end = "<tool_call|>",
     .gap = ""},
    {.name = "generic", .body = BODY_GENERIC, .bare = true, .gap = ""},
};
enum { N_FORMATS = sizeof formats / sizeof formats[0] };

/* The first rule whose marks are all in the template decides, so the rarer marks stand first. */
static const struct {
    const char *format;
    const char *marks[3];
} rules[] = {
    {"harmony", {"<|channel|>", "<|message|>"}},
    {"deepseek-v4", {DSML, "tool_calls>"}},
    {"deepseek-v3.2", {DSML, "function_calls>"}},
    {"deepseek-v3", {DS("tool▁calls▁begin"), "```json"}},
    {"deepseek-v3.1", {DS("tool▁calls▁begin")}},
    {"kimi-k2", {"<|tool_calls_section_begin|>"}},
    {"solar-open", {"<|tool_call:begin|>", "<|tool_call:name|>", "<|tool_call:args|>"}},
    {"generic", {"]<]minimax[>["}}, /* MiniMax-M3: nested tags, for which there is no format */
    {"minimax-m2", {"<minimax:tool_call>"}},
    {"minimax-m2", {"minimax:tool_call", "<invoke name="}},
    {"seed", {"<seed:tool_call>", "<function="}},
    {"seed", {"seed:tool_call", "<function="}},
    {"gemma4", {"<|tool_call>call:"}},
    {"hy3", {"'" HY3 "'", "<tool_sep{}>", "<arg_key{}>"}},
    {"hy3-preview", {"<tool_sep>", "<arg_key>"}},
    {"glm", {"<arg_key>", "<tool_call>"}},
    {"cohere", {"<|START_ACTION|>", "<|START_TEXT|>"}},
    {"command-a", {"<|START_ACTION|>"}},
    {"qwen3-coder", {"<function=", "<tool_call>", "<parameter="}},
    {"mistral", {"[TOOL_CALLS]", "[ARGS]"}},
    {"mistral-array", {"[TOOL_CALLS]"}},
    {"tool-calls-tag", {"<tool_calls>"}},
    {"hermes", {"<tool_call>"}},
    {"lfm2", {"<|tool_list_start|>"}},
    {"lfm2", {"<|tool_call_start|>"}},
    {"lfm2", {"List of tools: [", "<|im_start|>"}},
    {"gigachat3", {"<|role_sep|>", "'function call'", "<|message_sep|>"}},
    {"functionary", {"<function=", "</function>", "<|start_header_id|>"}},
    {"llama3", {"\"parameters\"", "<|start_header_id|>"}},
    {"llama3", {"<|python_tag|>", "<|start_header_id|>", "ipython"}},
    {"generic", {""}},
};

static const struct reasoning_marks reasonings[] = {
    {.begin = "<seed:think>", .end = "</seed:think>"},
    {.begin = "<mm:think>", .end = "</mm:think>"},
    {.begin = "<|START_THINKING|>", .end = "<|END_THINKING|>"},
    {.begin = "<|channel>thought\n", .end = "<channel|>"},
    {.begin = "[THINK]", .end = "[/THINK]"},
    {.begin = "<think>", .end = "</think>"},
};

static bool has(const char *text, size_t len, const char *word)
{
    return memmem(text, len, word, strlen(word)) != NULL;
}

const struct tool_format *tool_format_find(const char *name)
{
    for (size_t i = 0; i < N_FORMATS; i++)
        if (strcmp(formats[i].name, name) == 0)
            return &formats[i];
    return NULL;
}

const struct tool_format *tool_format_at(size_t i)
{
    return i < N_FORMATS ? &formats[i] : NULL;
}

const struct tool_format *tool_format_detect(const char *template_text, size_t len)
{
    for (size_t i = 0; i < sizeof rules / sizeof rules[0]; i++) {
        bool all = true;
        for (size_t k = 0; k < 3 && rules[i].marks[k]; k++)
            all = all && has(template_text, len, rules[i].marks[k]);
        if (all)
            return tool_format_find(rules[i].format);
    }
    return tool_format_find("generic");
}

const struct reasoning_marks *reasoning_detect(const char *template_text, size_t len)
{
    /* The end mark decides: some templates have the begin mark only in the model's answer, and
     * Gemma's begin mark has a newline that the template writes as an escape. */
    const struct tool_format *format = tool_format_detect(template_text, len);
    if (format->body == BODY_HARMONY)
        return NULL;
    if (format->reasoning.end)
        return &format->reasoning;
    for (size_t i = 0; i < sizeof reasonings / sizeof reasonings[0]; i++)
        if (has(template_text, len, reasonings[i].end))
            return &reasonings[i];
    return NULL;
}

static size_t without_space(const char *text, size_t len)
{
    while (len > 0 && strchr(" \t\r\n", text[len - 1]))
        len--;
    return len;
}

/* Takes the mark, and white space behind it, from the prompt's end. False: it is not there. */
static bool take_end(const char *prompt, size_t *len, const char *mark)
{
    size_t n = mark ? without_space(mark, strlen(mark)) : 0, left = without_space(prompt, *len);
    bool there = n > 0 && left >= n && memcmp(prompt + left - n, mark, n) == 0;
    *len = there ? left - n : *len;
    return there;
}

bool reasoning_left_open(const struct reasoning_marks *marks, const char *prompt, size_t len)
{
    return take_end(prompt, &len, marks ? marks->begin : NULL);
}

bool reasoning_left_closed(const struct reasoning_marks *marks, const char *prompt, size_t len)
{
    if (!marks || !marks->next)
        return take_end(prompt, &len, marks ? marks->end : NULL);
    /* other messages have the same end and the same begin behind it */
    return take_end(prompt, &len, marks->next) && take_end(prompt, &len, marks->end) &&
           take_end(prompt, &len, marks->begin);
}
