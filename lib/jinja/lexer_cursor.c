/* Where a lexer is in the text, and its tokens so far; see lexer_internal.h. */
#include "jinja/lexer_internal.h"

#include <string.h>

void lexer_add(struct lexer *l, struct token token)
{
    struct run *r = l->run;
    if (l->count == l->capacity) {
        size_t capacity = l->capacity ? 2 * l->capacity : 64;
        struct token *tokens = run_alloc_array(r, capacity, sizeof *tokens);
        if (l->count)
            memcpy(tokens, l->tokens, l->count * sizeof *tokens);
        l->tokens = tokens;
        l->capacity = capacity;
    }
    token.line = r->line;
    l->tokens[l->count++] = token;
}

/* Moves to `to`, counting lines. */
void lexer_move(struct lexer *l, const char *to)
{
    for (; l->at < to; l->at++)
        l->run->line += *l->at == '\n';
}

bool lexer_at(const struct lexer *l, const char *p, const char *literal)
{
    size_t len = strlen(literal);
    return (size_t)(l->end - p) >= len && memcmp(p, literal, len) == 0;
}

const char *lexer_skip_space(const struct lexer *l, const char *p)
{
    while (p < l->end) {
        const char *next = p;
        if (!text_is_space(text_next(&next)))
            break;
        p = next;
    }
    return p;
}

/* The end of a block tag's mark: behind "%}" with its rules; NULL: p is not at one. */
const char *lexer_block_end(const struct lexer *l, const char *p)
{
    if (lexer_at(l, p, "-%}"))
        return lexer_skip_space(l, p + 3);
    if (lexer_at(l, p, "+%}"))
        return p + 3;
    if (!lexer_at(l, p, "%}"))
        return NULL;
    return p + 2 < l->end && p[2] == '\n' ? p + 3 : p + 2;
}
