/* gpt-oss: an answer of messages in channels.
 *
 *   <|channel|>analysis<|message|>TEXT<|end|><|start|>assistant<|channel|>final<|message|>TEXT
 *   <|channel|>commentary to=functions.NAME <|constrain|>json<|message|>{...}<|call|>
 *
 * analysis is reasoning; final, and commentary without a recipient, are content. A recipient may
 * also stand with the role (` to=functions.NAME<|channel|>commentary json<|message|>`). The prompt
 * ended with `<|start|>assistant`. Text without a header is content. A blank line stands between
 * the texts of messages of one kind. */
#include "toolcall/parser.h"

#include <string.h>

enum { HEADER, TEXT, JSON, CLOSE };

static const char message_mark[] = "<|message|>", recipient_prefix[] = "functions.";
static const char *const ends[] = {"<|end|>", "<|return|>", "<|call|>", "<|start|>", "<|channel|>"};
enum { N_ENDS = 3, N_MARKS = 5 }; /* the first three end a message; the others begin a header */

void harmony_begin(struct tool_parser *p)
{
    body_go(p, HEADER);
}

void harmony_text(struct tool_parser *p)
{
    p->channel_reasons = false;
    body_go(p, TEXT);
}

/* Can a header begin at `at`? */
static enum match header_begins(struct tool_parser *p)
{
    static const char *const begins[] = {"<|start|>", "<|channel|>", "<|message|>", "to="};
    enum match result = MATCH_NO;
    size_t from = p->at;
    read_space(p);
    if (p->at == p->len && !p->final)
        result = MATCH_PART;
    for (size_t i = 0; i < sizeof begins / sizeof begins[0] && result == MATCH_NO; i++)
        result = read_mark(p, begins[i]);
    p->at = from;
    return result;
}

/* The value of ` to=` in a header: its length, 0 if there is none. */
static size_t recipient(const char *header, size_t len, const char **out)
{
    const char *to = memmem(header, len, "to=", 3);
    if (!to)
        return 0;
    *out = to + 3;
    size_t n = 0, left = (size_t)(header + len - *out);
    while (n < left && tool_name_byte((*out)[n]))
        n++;
    return n;
}

static bool has_channel(const char *header, size_t len, const char *name)
{
    static const char mark[] = "<|channel|>";
    const char *channel = memmem(header, len, mark, sizeof mark - 1);
    if (!channel)
        return false;
    channel += sizeof mark - 1;
    size_t n = strlen(name), left = (size_t)(header + len - channel);
    return left >= n && memcmp(channel, name, n) == 0;
}

/* Names that stand for no tool. */
static bool is_nobody(const char *to, size_t n)
{
    static const char *const names[] = {"assistant", "user", "all"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strlen(names[i]) == n && memcmp(names[i], to, n) == 0)
            return true;
    return false;
}

/* at: behind the header. */
static enum step message_begin(struct tool_parser *p, const char *header, size_t len)
{
    const char *to = NULL;
    size_t n = recipient(header, len, &to), prefix = sizeof recipient_prefix - 1;
    if (n == 0 || is_nobody(to, n)) {
        p->mark = p->at;
        p->channel_reasons = has_channel(header, len, "analysis");
        p->channel_gap = p->channel_given[p->channel_reasons];
        return body_go(p, TEXT);
    }
    if (n > prefix && memcmp(to, recipient_prefix, prefix) == 0) {
        to += prefix;
        n -= prefix;
    }
    p->tool = tool_list_find(p->o.tools, to, n);
    p->surrogates.n = 0;
    strbuf_clear(&p->args);
    json_scan_init(&p->json);
    if (!p->tool) /* an unknown recipient: the header is content too */
        return STEP_FAIL;
    return body_go(p, JSON);
}

static enum step header(struct tool_parser *p)
{
    enum match begins = header_begins(p);
    if (begins == MATCH_PART)
        return STEP_WAIT;
    if (begins == MATCH_NO)
        return body_go(p, TEXT);
    size_t len;
    enum step s = find_mark(p, message_mark, TOOL_NAME_BYTES_MAX, &len);
    if (s == STEP_AGAIN) {
        const char *text = p->buf + p->at;
        p->at += len + sizeof message_mark - 1;
        return message_begin(p, text, len);
    }
    if (s == STEP_WAIT && !p->final)
        return STEP_WAIT;
    p->at++; /* no header: its first byte is content, and so is what follows */
    return STEP_FAIL;
}

/* Whether the message has text, or may still have. */
static enum match text_begins(struct tool_parser *p)
{
    enum match mark = p->at == p->len ? MATCH_PART : MATCH_NO;
    size_t from = p->at;
    for (size_t i = 0; i < N_MARKS && mark == MATCH_NO; i++)
        mark = read_mark(p, ends[i]);
    p->at = from;
    return mark == MATCH_NO ? MATCH_YES : mark == MATCH_PART ? MATCH_PART : MATCH_NO;
}

static enum step text(struct tool_parser *p)
{
    size_t which;
    enum tool_event_kind kind = p->channel_reasons ? TOOL_REASONING : TOOL_CONTENT;
    enum match begins = text_begins(p);
    if (begins == MATCH_YES) {
        emit_text(p, kind, "\n\n", p->channel_gap ? 2 : 0);
        p->channel_given[p->channel_reasons] = true;
    }
    p->channel_gap = p->channel_gap && begins == MATCH_PART;
    enum step s = scan_text(p, kind, ends, N_MARKS, 0, &which);
    if (s != STEP_AGAIN)
        return s;
    p->at = which < N_ENDS ? p->at : p->mark;
    p->mark = p->at;
    p->channel_reasons = false;
    return body_go(p, HEADER);
}

static enum step json(struct tool_parser *p)
{
    if (!p->call_open) {
        read_space(p);
        if (p->at == p->len && !p->final)
            return STEP_WAIT;
        if (p->at == p->len || p->buf[p->at] != '{' || !call_open(p, NULL))
            return STEP_FAIL;
    }
    enum step s = json_run(p, SINK_ARGUMENTS);
    if (s == STEP_CLOSED)
        return body_go(p, CLOSE);
    return p->final ? STEP_FAIL : s;
}

static enum step close_call(struct tool_parser *p)
{
    size_t from = p->at;
    read_space(p);
    enum match m = p->at == p->len && !p->final ? MATCH_PART : MATCH_NO;
    for (size_t i = 0; i < N_ENDS && m == MATCH_NO; i++)
        m = read_mark(p, ends[i]);
    if (m != MATCH_YES)
        p->at = from;
    if (m == MATCH_PART)
        return STEP_WAIT;
    call_close(p);
    return body_go(p, HEADER);
}

enum step harmony_step(struct tool_parser *p)
{
    switch (p->body_state) {
    case HEADER:
        if (p->at == p->len)
            return STEP_WAIT;
        return header(p);
    case TEXT:
        return text(p);
    case JSON:
        return json(p);
    default:
        return close_call(p);
    }
}
