/* Cuts texts into sequences of tokens; see profile.h. */
#include "client/cli/profile.h"

#include "client/cli/ask.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

bool profile_split_find(const char *name, enum profile_split *out)
{
    static const char *const names[] = {"file", "blank-line", "line"};
    for (unsigned i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(name, names[i]) == 0) {
            *out = (enum profile_split)i;
            return true;
        }
    return false;
}

void profile_sequences_fini(struct profile_sequences *s)
{
    token_list_fini(&s->tokens);
    free(s->ends);
    *s = (struct profile_sequences){0};
}

/* ---- documents ---- */

/* The end of the line that begins at `at`. */
static size_t line_end(const char *text, size_t len, size_t at)
{
    const char *newline = memchr(text + at, '\n', len - at);
    return newline ? (size_t)(newline - text) + 1 : len;
}

static bool is_blank(const char *text, size_t begin, size_t end)
{
    while (begin < end && isspace((unsigned char)text[begin]))
        begin++;
    return begin == end;
}

/* The end of the document that begins at `at`. It includes the separator. */
static size_t document_end(enum profile_split split, const char *text, size_t len, size_t at)
{
    if (split == PROFILE_SPLIT_FILE)
        return len;
    size_t end = line_end(text, len, at);
    while (split == PROFILE_SPLIT_BLANK_LINE && end < len) {
        size_t next = line_end(text, len, end);
        bool blank = is_blank(text, end, next);
        end = next;
        if (blank)
            break;
    }
    return end;
}

/* ---- sequences ---- */

static bool no_memory(void)
{
    cli_complain("no memory for the texts' tokens");
    return false;
}

static bool is_full(const struct profile_sequences *s, const struct profile_cut *cut)
{
    return cut->max_tokens && s->tokens.count >= cut->max_tokens;
}

static bool end_sequence(struct profile_sequences *s)
{
    if (s->n == s->capacity) {
        size_t capacity = s->capacity ? s->capacity * 2 : 64;
        size_t *grown = realloc(s->ends, capacity * sizeof *grown);
        if (!grown)
            return no_memory();
        s->ends = grown;
        s->capacity = capacity;
    }
    s->ends[s->n++] = s->tokens.count;
    return true;
}

static bool add_sequence(struct profile_sequences *s, const struct profile_cut *cut,
                         const uint32_t *ids, size_t n)
{
    if (cut->model->has_begin_token && !token_list_push(&s->tokens, cut->model->begin_token))
        return no_memory();
    for (size_t i = 0; i < n && !is_full(s, cut); i++)
        if (!token_list_push(&s->tokens, ids[i]))
            return no_memory();
    return end_sequence(s);
}

static bool add_document(struct profile_sequences *s, const struct profile_cut *cut,
                         const char *text, size_t len)
{
    struct token_list ids = {0};
    struct error e;
    unsigned flags = cut->special ? TOKENIZE_PARSE_SPECIAL : 0;
    bool ok = !tokenizer_encode(cut->model->tokenizer, text, len, flags, &ids, &e);
    if (!ok)
        cli_complain("%s", e.text);
    size_t most = (size_t)cut->context - cut->model->has_begin_token;
    for (size_t at = 0; ok && at < ids.count && !is_full(s, cut); at += most)
        ok = add_sequence(s, cut, ids.ids + at, ids.count - at < most ? ids.count - at : most);
    token_list_fini(&ids);
    return ok;
}

bool profile_sequences_add(struct profile_sequences *s, const struct profile_cut *cut,
                           const char *text, size_t len)
{
    bool ok = true;
    for (size_t at = 0, end; ok && at < len && !is_full(s, cut); at = end) {
        end = document_end(cut->split, text, len, at);
        ok = is_blank(text, at, end) || add_document(s, cut, text + at, end - at);
    }
    return ok;
}
