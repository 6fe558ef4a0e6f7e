/* See forced_tokens.h. */
#include "forced_tokens.h"

#include <string.h>

/* Copies tokens as far as they spell the bytes. */
static uint32_t copy_matching(const struct grammar_vocabulary *v, const uint32_t *ids, size_t count,
                              const uint8_t *bytes, uint32_t n, uint32_t *out)
{
    uint32_t at = 0, made = 0;
    for (size_t i = 0; i < count && made < FORCED_TOKENS_MOST && ids[i] < v->n_tokens; i++) {
        const struct grammar_token *token = &v->tokens[ids[i]];
        if (token->length == 0 || token->length > n - at ||
            memcmp(v->bytes + token->offset, bytes + at, token->length) != 0)
            break;
        at += token->length;
        out[made++] = ids[i];
    }
    return made;
}

static bool encode(const struct tokenizer *t, const char *text, size_t len, struct token_list *list)
{
    struct error e;
    list->count = 0;
    return !tokenizer_encode(t, text, len, 0, list, &e);
}

/* Some tokenizers put a space before a text: then it is spelt behind a line's end, whose tokens are
 * left out. */
static uint32_t spell_whole(const struct grammar_vocabulary *v, const struct tokenizer *t,
                            struct token_list *list, const uint8_t *bytes, uint32_t n,
                            uint32_t *out)
{
    char text[FORCED_BYTES_MOST + 1] = "\n";
    uint32_t made = 0;
    memcpy(text + 1, bytes, n);
    if (encode(t, text + 1, n, list))
        made = copy_matching(v, list->ids, list->count, bytes, n, out);
    if (made || n == 0 || !encode(t, text, n + 1, list))
        return made;
    for (size_t skip = 1; skip < list->count && !made; skip++)
        made = copy_matching(v, list->ids + skip, list->count - skip, bytes, n, out);
    return made;
}

/* The bytes of the shortest token that begins here; 0: there is none. */
static uint32_t shortest_token(const struct grammar_vocabulary *v, const uint8_t *bytes, uint32_t n,
                               uint32_t *token)
{
    uint32_t at = 0, node = 0, end = v->n_nodes;
    while (at < n) {
        while (node < end && v->nodes[node].byte != bytes[at])
            node = v->nodes[node].skip;
        if (node >= end)
            return 0;
        at++;
        *token = v->nodes[node].token;
        if (*token != GRAMMAR_NO_TOKEN)
            return at;
        end = v->nodes[node++].skip;
    }
    return 0;
}

static uint32_t spell_short(const struct grammar_vocabulary *v, const uint8_t *bytes, uint32_t n,
                            uint32_t *out)
{
    uint32_t made = 0, length;
    for (uint32_t at = 0; at < n && made < FORCED_TOKENS_MOST; at += length) {
        length = shortest_token(v, bytes + at, n - at, &out[made]);
        if (length == 0)
            break;
        made++;
    }
    return made;
}

void forced_tokens_spell(struct forced_tokens *f, const struct grammar_vocabulary *v,
                         const struct tokenizer *t, struct token_list *list, const uint8_t *bytes,
                         uint32_t n, uint32_t control)
{
    f->n[SPELLING_WHOLE] = spell_whole(v, t, list, bytes, n, f->tokens[SPELLING_WHOLE]);
    f->n[SPELLING_SHORT] = spell_short(v, bytes, n, f->tokens[SPELLING_SHORT]);
    for (int s = 0; s < SPELLINGS && control != GRAMMAR_NO_TOKEN; s++)
        if (f->n[s] < FORCED_TOKENS_MOST && (n == 0 || f->n[s]))
            f->tokens[s][f->n[s]++] = control;
}
