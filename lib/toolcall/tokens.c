/* The tokens of an answer: which of them are reasoning, and which one completes the only call. Text
 * comes in events of several tokens, and later than they do where a stop string or a part of a
 * character holds it back. Each token's text has a known length, so the parser is fed token by
 * token, and the counts depend on nothing else.
 *
 *   token 1 | token 2 | token 3 |        lengths
 *   text that has come ...|  held back   token 2 waits for the rest of its text, token 3 for all
 *
 * A token counts where the parser is in reasoning before its text or behind a part of it. Until its
 * text has come, it counts as what was read last: a budget must see it in time. */
#include "toolcall/parser.h"

#include "base/utf8.h"

#include <stdlib.h>
#include <string.h>

static struct read_token *first_token(struct read_tokens *t)
{
    return t->n ? &t->items[t->first] : NULL;
}

static void count(struct tool_parser *p, struct read_token *t, bool reasons)
{
    p->reasoning_tokens += reasons && !t->counted;
    p->reasoning_tokens -= !reasons && t->counted;
    t->counted = reasons;
}

static void settle(struct tool_parser *p, struct read_token *t)
{
    count(p, t, t->reasons || parser_in_reasoning(p));
    p->tokens.first++;
    p->tokens.n--;
}

/* What is missing of tokens' texts does not come. */
static void drop(struct tool_parser *p)
{
    p->tokens.first = p->tokens.n = p->tokens.ahead = 0;
}

/* The first token has stopped the parser: those behind it are not needed. */
static void stop(struct tool_parser *p)
{
    struct read_tokens *t = &p->tokens;
    if (t->n)
        settle(p, first_token(t));
    for (size_t i = 0; i < t->n; i++)
        count(p, &t->items[t->first + i], false);
    t->surplus = t->n;
    drop(p);
}

/* The end of the next n bytes, which cuts no character. */
static size_t whole_end(const char *text, size_t n, size_t len)
{
    while (n < len && utf8_continues(text[n]))
        n++;
    return n;
}

/* Reads the text of the tokens that wait for it. Returns how much that was. */
static size_t read_text(struct tool_parser *p, const char *text, size_t len)
{
    struct read_tokens *tokens = &p->tokens;
    struct read_token *t;
    size_t at = 0;
    while ((t = first_token(tokens)) != NULL && !p->failed && !p->stopped) {
        size_t before = tokens->ahead < t->left ? tokens->ahead : t->left;
        tokens->ahead -= before;
        t->left -= (uint32_t)before;
        t->reasons = t->reasons || parser_in_reasoning(p);
        size_t n = whole_end(text + at, t->left < len - at ? t->left : len - at, len - at);
        t->begun = t->begun || n > 0;
        parser_read(p, text + at, n);
        at += n;
        t->reasons = t->reasons || parser_in_reasoning(p);
        tokens->ahead += n > t->left ? n - t->left : 0;
        t->left -= n < t->left ? (uint32_t)n : t->left;
        if (p->stopped)
            stop(p);
        else if (t->left)
            break;
        else
            settle(p, t);
    }
    return at;
}

static struct read_token *push(struct tool_parser *p, uint32_t bytes)
{
    struct read_tokens *t = &p->tokens;
    if (t->n == 0)
        t->first = 0;
    if (t->first + t->n == t->capacity && t->first) {
        memmove(t->items, t->items + t->first, t->n * sizeof *t->items);
        t->first = 0;
    }
    if (t->n == t->capacity) {
        size_t capacity = 2 * t->capacity + 16;
        struct read_token *grown = realloc(t->items, capacity * sizeof *grown);
        p->failed = p->failed || !grown;
        if (!grown)
            return NULL;
        t->items = grown;
        t->capacity = capacity;
    }
    struct read_token *token = &t->items[t->first + t->n++];
    *token = (struct read_token){.left = bytes};
    return token;
}

enum error_code tool_parser_feed(struct tool_parser *p, const char *text, size_t len,
                                 uint32_t n_tokens)
{
    bool reasoning = parser_in_reasoning(p);
    drop(p);
    parser_read(p, text, len);
    if (reasoning || parser_in_reasoning(p))
        p->reasoning_tokens += n_tokens;
    return parser_counted(p);
}

enum error_code tool_parser_feed_token(struct tool_parser *p, uint32_t bytes, const char *text,
                                       size_t len, size_t *used)
{
    struct read_tokens *t = &p->tokens;
    *used = 0;
    if (p->stopped) {
        t->surplus++;
        return parser_counted(p);
    }
    struct read_token *token = push(p, bytes);
    if (!token)
        return ERROR_MEMORY;
    *used = read_text(p, text, len);
    if (t->n) /* else it is settled */
        count(p, token, token->reasons || parser_in_reasoning(p));
    return parser_counted(p);
}

/* The next text of the tokens so far. Returns how much was read. */
static size_t read_rest(struct tool_parser *p, const char *text, size_t len)
{
    size_t used = read_text(p, text, len);
    if (p->stopped)
        return used;
    parser_read(p, text + used, len - used); /* no token has it: the lengths were wrong */
    return len;
}

enum error_code tool_parser_feed_text(struct tool_parser *p, const char *text, size_t len)
{
    (void)read_rest(p, text, len);
    return parser_counted(p);
}

enum error_code tool_parser_feed_tokens(struct tool_parser *p, const uint32_t *bytes, size_t n,
                                        const char *text, size_t len, size_t *n_read, size_t *used)
{
    enum error_code code = ERROR_OK;
    size_t at = 0, i = 0;
    if (!bytes && n) {
        *n_read = n;
        *used = len;
        return tool_parser_feed(p, text, len, (uint32_t)n);
    }
    for (; i < n && !code && !p->stopped; i++) {
        size_t some;
        code = tool_parser_feed_token(p, bytes[i], text + at, len - at, &some);
        at += some;
    }
    if (!code && !p->stopped) {
        at += read_rest(p, text + at, len - at);
        code = parser_counted(p);
    }
    *n_read = i;
    *used = at;
    return code;
}

size_t tool_parser_surplus(const struct tool_parser *p)
{
    return p->tokens.surplus;
}

size_t tool_parser_pending(const struct tool_parser *p)
{
    const struct read_tokens *t = &p->tokens;
    if (p->o.parallel || p->final || !t->n)
        return 0;
    return t->n - t->items[t->first].begun;
}
