/* Parts of GBNF texts. */
#include "toolcall/gbnf_write.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

enum { MARK_MAX = 64 };

static void character(struct strbuf *out, uint32_t c)
{
    bool plain = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                 (c != 0 && c < 128 && strchr(" _=:,.;/<>|{}()'`!", (int)c));
    if (plain)
        strbuf_printf(out, "%c", (char)c);
    else if (c < 0x80)
        strbuf_printf(out, "\\x%02x", c);
    else
        strbuf_printf(out, c < 0x10000 ? "\\u%04x" : "\\U%08x", c);
}

/* The code point at text[*at..len); a byte that is not UTF-8 stands for itself. */
static uint32_t next_code_point(const char *text, size_t len, size_t *at)
{
    unsigned char c = (unsigned char)text[(*at)++];
    unsigned more = c >= 0xf0 ? 3 : c >= 0xe0 ? 2 : c >= 0xc0 ? 1 : 0;
    uint32_t code = more ? c & (0x3fu >> more) : c;
    while (more-- > 0 && *at < len)
        code = code << 6 | ((unsigned char)text[(*at)++] & 0x3f);
    return code;
}

void gbnf_literal(struct strbuf *out, const char *text, size_t len)
{
    if (len == 0)
        return;
    strbuf_append(out, "\"", 1);
    for (size_t at = 0; at < len;)
        character(out, next_code_point(text, len, &at));
    strbuf_append(out, "\" ", 2);
}

/* The automaton of Knuth, Morris and Pratt (1977): state k has read the first k characters.
 * until: each state also has the whole mark as a literal, which may be a control token; it adds no
 * text, unless an end of the mark is its beginning, and then it is left out. Else each state may
 * end, and none reads the mark's last character. */
static void automaton(struct strbuf *out, const char *name, const char *mark, bool until)
{
    uint32_t c[MARK_MAX];
    size_t n = 0, len = strlen(mark), fail = 0; /* the state after mark[1..k) */
    for (size_t at = 0; at < len && n < MARK_MAX;)
        c[n++] = next_code_point(mark, len, &at);
    size_t next[MARK_MAX][MARK_MAX]; /* [state][character of the mark] */
    for (size_t k = 0; k < n; k++) {
        for (size_t j = 0; j < n; j++)
            next[k][j] = c[j] == c[k] ? k + 1 : k > 0 ? next[fail][j] : 0;
        if (k > 0)
            fail = next[fail][k];
    }
    bool whole = until && n > 1 && fail == 0; /* no end of the mark is its beginning */
    for (size_t k = 0; k < n; k++) {
        struct strbuf others;
        strbuf_init(&others);
        strbuf_printf(out, "%s-%zu ::= %s", name, k, until ? "" : "\"\" | ");
        if (whole) {
            gbnf_literal(out, mark, len);
            strbuf_printf(out, "| ");
        }
        for (size_t j = 0; j < n; j++) {
            bool first = true;
            for (size_t i = 0; i < j; i++)
                first = first && c[i] != c[j];
            if (!first || next[k][j] == 0)
                continue;
            character(&others, c[j]);
            if (next[k][j] == n && !until)
                continue;
            strbuf_append(out, "\"", 1);
            character(out, c[j]);
            if (next[k][j] == n)
                strbuf_printf(out, "\" | ");
            else
                strbuf_printf(out, "\" %s-%zu | ", name, next[k][j]);
        }
        strbuf_printf(out, "[^%s] %s-0\n", others.data ? others.data : "", name);
        out->failed = out->failed || others.failed;
        strbuf_fini(&others);
    }
}

void gbnf_until(struct strbuf *out, const char *name, const char *mark)
{
    automaton(out, name, mark, true);
}

void gbnf_without(struct strbuf *out, const char *name, const char *mark)
{
    automaton(out, name, mark, false);
}

void gbnf_reasoning(struct strbuf *out, const struct tool_format *f,
                    const struct reasoning_marks *marks, bool open, const char *space)
{
    const char *next = marks && marks->next ? marks->next : "";
    if (f && f->body == BODY_HARMONY) {
        if (!open)
            strbuf_printf(out, "( \"<|channel|>analysis<|message|>\" reasoning-0 "
                               "\"<|start|>assistant\" )? ");
    } else if (marks && !open) {
        strbuf_printf(out, "( ");
        gbnf_literal(out, marks->begin, strlen(marks->begin));
        strbuf_printf(out, "reasoning-0 ");
        gbnf_literal(out, next, strlen(next));
        strbuf_printf(out, "%s)? ", space);
    } else if (*next) {
        gbnf_literal(out, next, strlen(next));
    }
}

void gbnf_reasoning_rules(struct strbuf *out, const struct tool_format *f,
                          const struct reasoning_marks *marks)
{
    const char *end = f->body == BODY_HARMONY ? "<|end|>" : marks ? marks->end : NULL;
    if (end)
        gbnf_until(out, "reasoning", end);
}

void gbnf_json(struct strbuf *out)
{
    strbuf_printf(out, "%s",
                  "json-object ::= \"{\" json-ws ( json-member ( \",\" json-ws json-member )* )? "
                  "\"}\"\n"
                  "json-member ::= json-string \":\" json-ws json-value json-ws\n"
                  "json-array ::= \"[\" json-ws ( json-value json-ws ( \",\" json-ws json-value "
                  "json-ws )* )? \"]\"\n"
                  "json-value ::= json-object | json-array | json-string | json-number | \"true\" "
                  "| \"false\" | \"null\"\n"
                  "json-string ::= \"\\\"\" ( [^\"\\\\\\x00-\\x1f] | \"\\\\\" ( [\"\\\\/bfnrt] | "
                  "\"u\" [0-9a-fA-F]{4} ) )* \"\\\"\"\n"
                  "json-number ::= \"-\"? ( \"0\" | [1-9] [0-9]{0,15} ) ( \".\" [0-9]{1,16} )? ( "
                  "[eE] [-+]? [0-9]{1,2} )?\n"
                  "json-ws ::= ( \" \" | \"\\n\" [ \\t]{0,20} )?\n");
}
