/* SentencePiece's BPE; see spm.h. */
#include "tokenizer/spm.h"

#include "base/utf8.h"

#include <string.h>

struct spm_text {
    const struct vocab *vocab;
    const char *text;
};

/* The rank of a score: the higher the score, the lower the rank. */
static uint32_t rank_of(float score)
{
    uint32_t bits;
    score += 0.0f; /* -0 and 0 are equal */
    memcpy(&bits, &score, sizeof bits);
    /* In the reverse order of the scores. */
    return ~(bits & 0x80000000u ? ~bits : bits | 0x80000000u);
}

static bool lookup(const void *context, const struct merge_node *left,
                   const struct merge_node *right, uint32_t *rank, uint32_t *symbol)
{
    const struct spm_text *t = context;
    uint32_t len = left->length + right->length;
    if (len > t->vocab->longest)
        return false;
    uint32_t id = symbol_table_find(&t->vocab->symbols, t->text + left->start, len);
    if (id == SYMBOL_NONE)
        return false;
    *rank = rank_of(t->vocab->tokens[id].score);
    *symbol = id;
    return true;
}

/* Pushes a character that is no token: the tokens of its bytes if all exist, else the unknown
 * token.
 */
static bool push_character(const struct vocab *v, const char *text, size_t len,
                           struct token_list *out)
{
    bool complete = true;
    for (size_t i = 0; i < len; i++)
        complete &= v->byte_tokens[(unsigned char)text[i]] != SYMBOL_NONE;
    if (!complete)
        return v->unknown == SYMBOL_NONE || token_list_push(out, v->unknown);
    for (size_t i = 0; i < len; i++) {
        if (!token_list_push(out, v->byte_tokens[(unsigned char)text[i]]))
            return false;
    }
    return true;
}

bool spm_encode(const struct vocab *v, struct merge_space *space, const char *text, size_t len,
                struct token_list *out)
{
    if (len == 0)
        return true;
    if (!merge_space_reserve(space, len))
        return false;
    uint32_t count = 0;
    for (size_t i = 0; i < len; count++) {
        size_t length = utf8_valid_length(text + i, len - i);
        if (length == 0)
            length = 1;
        space->nodes[count] = (struct merge_node){
            .start = (uint32_t)i,
            .length = (uint32_t)length,
            .symbol = symbol_table_find(&v->symbols, text + i, length),
        };
        i += length;
    }
    merge_run(space, count, lookup, &(struct spm_text){v, text});
    for (uint32_t i = 0; i != MERGE_END; i = space->nodes[i].next) {
        const struct merge_node *n = &space->nodes[i];
        bool pushed = n->symbol != SYMBOL_NONE ? token_list_push(out, n->symbol)
                                               : push_character(v, text + n->start, n->length, out);
        if (!pushed)
            return false;
    }
    return true;
}
