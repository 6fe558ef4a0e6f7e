/* Data and tags; see lexer.h. lexer_tag.c has what is inside a tag. */
#include "jinja/lexer_internal.h"

#include <string.h>

/* The next "{{", "{%" or "{#"; the end where there is none. */
static const char *find_tag(const struct lexer *l)
{
    for (const char *p = l->at; p + 1 < l->end; p++)
        if (*p == '{' && (p[1] == '{' || p[1] == '%' || p[1] == '#'))
            return p;
    return l->end;
}

/* Whether only white space lies between the start of the line, which must be visible, and end. */
static const char *line_indent(const struct lexer *l, const char *from, const char *end)
{
    const char *line = end;
    while (line > from && line[-1] != '\n')
        line--;
    if (line == from && !l->line_starts)
        return end;
    struct text indent = {.data = line, .len = (size_t)(end - line)};
    return text_skip_space(&indent) == indent.len ? line : end;
}

/* Adds the data before a tag whose mark is followed by `sign`. */
static void add_data(struct lexer *l, const char *end, char kind, char sign)
{
    const char *from = l->at, *to = end;
    if (sign == '-') {
        struct text data = {.data = from, .len = (size_t)(end - from)};
        to = from + text_trim_end(&data);
    } else if (sign != '+' && kind != '{' && kind != 0) {
        to = line_indent(l, from, end);
    }
    if (to > from)
        lexer_add(l, (struct token){.type = TOKEN_DATA,
                                    .text = text_new(l->run, from, (size_t)(to - from), false)});
    lexer_move(l, end);
}

static void read_comment(struct lexer *l)
{
    const char *p = l->at + 2;
    while (p < l->end && !lexer_at(l, p, "#}"))
        p++;
    if (p == l->end && p == l->at + 2) { /* Jinja takes a last "{#" for an empty comment */
        lexer_move(l, p);
        return;
    }
    if (p >= l->end)
        run_fail(l->run, ERROR_FORMAT, "a comment has no end: \"#}\" is missing");
    char sign = p > l->at + 2 ? p[-1] : 0;
    p += 2;
    if (sign == '-')
        p = lexer_skip_space(l, p);
    else if (sign != '+' && p < l->end && *p == '\n')
        p++;
    lexer_move(l, p);
}

/* If a block tag with only this word is at p: what is behind it. trims: drop a newline. */
static const char *word_tag(const struct lexer *l, const char *p, const char *word, bool trims,
                            char *sign)
{
    if (!lexer_at(l, p, "{%"))
        return NULL;
    p += 2;
    *sign = p < l->end && (*p == '-' || *p == '+') ? *p++ : 0;
    p = lexer_skip_space(l, p);
    if (!lexer_at(l, p, word))
        return NULL;
    p = lexer_skip_space(l, p + strlen(word));
    if (!trims && lexer_at(l, p, "%}"))
        return p + 2;
    return lexer_block_end(l, p);
}

/* {% raw %} ... {% endraw %}, from behind the first tag. */
static void read_raw(struct lexer *l)
{
    for (const char *p = l->at; p < l->end; p++) {
        char sign;
        const char *behind = word_tag(l, p, "endraw", true, &sign);
        if (!behind)
            continue;
        add_data(l, p, '%', sign);
        lexer_move(l, behind);
        return;
    }
    run_fail(l->run, ERROR_FORMAT, "{%% raw %%} has no end: {%% endraw %%} is missing");
}

static void read_tag(struct lexer *l, const char *tag)
{
    char kind = tag[1], raw_sign;
    char sign = tag + 2 < l->end && (tag[2] == '-' || tag[2] == '+') ? tag[2] : 0;
    const char *raw = word_tag(l, tag, "raw", false, &raw_sign);
    add_data(l, tag, kind, sign);
    if (raw) {
        lexer_move(l, raw);
        l->line_starts = raw[-1] == '\n';
        read_raw(l);
    } else if (kind == '#') {
        read_comment(l);
    } else {
        lexer_move(l, tag + 2 + (sign != 0));
        lexer_read_tag(l, kind == '{');
    }
    l->line_starts = l->at[-1] == '\n';
}

/* Copies the source with its newlines as "\n", without the last one. */
static size_t normalise(const char *source, size_t len, char *out)
{
    size_t n = 0;
    for (size_t i = 0; i < len; i++) {
        bool pair = source[i] == '\r' && i + 1 < len && source[i + 1] == '\n';
        out[n++] = source[i] == '\r' ? '\n' : source[i];
        i += pair;
    }
    return n > 0 && out[n - 1] == '\n' ? n - 1 : n;
}

const struct token *lexer_run(struct run *r, const char *source, size_t len)
{
    char *copy = run_alloc(r, len + 1);
    size_t n = normalise(source, len, copy);
    struct lexer l = {.run = r, .at = copy, .end = copy + n, .line_starts = true};
    r->line = 1;
    while (l.at < l.end) {
        const char *tag = find_tag(&l);
        if (tag == l.end)
            add_data(&l, tag, 0, 0);
        else
            read_tag(&l, tag);
    }
    lexer_add(&l, (struct token){.type = TOKEN_END});
    return l.tokens;
}
