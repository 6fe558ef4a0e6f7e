/* Calls whose text is read only when it is whole: LFM2 and Gemma. */
#include "base/json_space.h"
#include "toolcall/literal.h"
#include "toolcall/parser.h"

#include <string.h>

enum { START, BODY };

struct taking {
    struct tool_parser *p;
    uint32_t n;
    bool check; /* the first pass: nothing is given before all calls are known to be well formed */
};

static bool take(void *context, const char *name, size_t len, const struct strbuf *arguments)
{
    struct taking *t = context;
    struct tool_parser *p = t->p;
    const struct tool *tool = tool_list_find(p->o.tools, name, len);
    t->n++;
    if (t->check)
        return tool && p->calls + t->n <= TOOL_CALLS_MAX;
    if (p->stopped)
        return true;
    p->tool = tool;
    if (!tool || !call_open(p, NULL))
        return false;
    strbuf_append(&p->args, arguments->data, arguments->len);
    call_close(p);
    return true;
}

/* LFM2 also writes its calls as JSON. AGAIN: it is known which. */
static enum step start(struct tool_parser *p)
{
    size_t i = p->at;
    while (i < p->len && (json_space(p->buf[i]) || (p->buf[i] == '[' && i == p->at)))
        i++;
    if (i == p->len)
        return STEP_WAIT;
    return p->buf[i] == '{' ? objects_begin(p, false) : body_go(p, BODY);
}

enum step literal_step(struct tool_parser *p)
{
    const char *end = p->o.format->call_end;
    if (p->body_state == START) {
        read_space(p);
        if (p->o.format->body == BODY_PYTHON)
            return start(p);
        p->body_state = BODY;
    }
    size_t len;
    enum step s = find_mark(p, end, TOOL_HELD_BYTES_MAX, &len);
    if (s != STEP_AGAIN)
        return s;
    bool gemma = p->o.format->body == BODY_GEMMA;
    const char *text = p->buf + p->at;
    struct taking t = {p, 0, true};
    if (!(gemma ? literal_gemma : literal_python)(text, len, take, &t))
        return STEP_FAIL;
    p->at += len + strlen(end);
    t.check = false;
    (gemma ? literal_gemma : literal_python)(text, len, take, &t);
    return STEP_CLOSED;
}
