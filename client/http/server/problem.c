/* Failed requests; see problem.h. */
#include "client/http/server/problem.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* The `type` of each status, as OpenAI's and Anthropic's documentation name them. */
static const struct {
    int status;
    const char *openai, *anthropic;
} types[] = {
    {400, "invalid_request_error", "invalid_request_error"},
    {401, "authentication_error", "authentication_error"},
    {403, "permission_error", "permission_error"},
    {404, "not_found_error", "not_found_error"},
    {405, "invalid_request_error", "invalid_request_error"},
    {408, "timeout_error", "timeout_error"},
    {413, "invalid_request_error", "request_too_large"},
    {414, "invalid_request_error", "invalid_request_error"},
    {415, "invalid_request_error", "invalid_request_error"},
    {429, "rate_limit_error", "rate_limit_error"},
    {431, "invalid_request_error", "invalid_request_error"},
    {501, "not_supported_error", "invalid_request_error"},
    {503, "unavailable_error", "overloaded_error"},
    {504, "timeout_error", "timeout_error"},
    {505, "invalid_request_error", "invalid_request_error"},
};

static const char *type_of(int status, enum http_api api)
{
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (types[i].status == status)
            return api == HTTP_API_ANTHROPIC ? types[i].anthropic : types[i].openai;
    return api == HTTP_API_ANTHROPIC ? "api_error" : "server_error";
}

void problem_fill(struct problem *p, int status, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    *p = (struct problem){.status = status};
    vsnprintf(p->message, sizeof p->message, format, args);
    va_end(args);
}

bool problem_refuse(struct problem *p, int status, const char *parameter, const char *message)
{
    problem_fill(p, status, "%s", message);
    snprintf(p->parameter, sizeof p->parameter, "%s", parameter);
    return false;
}

static void append_string(struct strbuf *out, const char *text)
{
    strbuf_json_string(out, text, strlen(text));
}

/* Clients show the message alone, so it names the parameter. */
static void append_message(struct strbuf *out, const struct problem *p)
{
    char text[sizeof p->parameter + sizeof p->message + sizeof ": "];
    bool named = strncmp(p->message, p->parameter, strlen(p->parameter)) == 0;
    snprintf(text, sizeof text, "%s%s%s", named ? "" : p->parameter, named ? "" : ": ", p->message);
    append_string(out, text);
}

static void openai_body(const struct problem *p, struct strbuf *out)
{
    strbuf_printf(out, "{\"error\":{\"message\":");
    append_message(out, p);
    strbuf_printf(out, ",\"type\":\"%s\",\"param\":", type_of(p->status, HTTP_API_OPENAI));
    if (p->parameter[0])
        append_string(out, p->parameter);
    else
        strbuf_printf(out, "null");
    if (p->code)
        strbuf_printf(out, ",\"code\":\"%s\"}}", p->code);
    else
        strbuf_printf(out, ",\"code\":%d}}", p->status);
}

void problem_body(const struct problem *p, enum http_api api, struct strbuf *out)
{
    if (api == HTTP_API_OPENAI) {
        openai_body(p, out);
    } else if (api == HTTP_API_ANTHROPIC) {
        strbuf_printf(out, "{\"type\":\"error\",\"error\":{\"type\":\"%s\",\"message\":",
                      type_of(p->status, api));
        append_message(out, p);
        strbuf_printf(out, "}}");
    } else {
        strbuf_printf(out, "{\"error\":");
        append_message(out, p);
        strbuf_printf(out, "}");
    }
}
