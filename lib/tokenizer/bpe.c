/* Byte-level BPE; see bpe.h. */
#include "tokenizer/bpe.h"

#include "base/utf8.h"
#include "tokenizer/byte_level.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define MERGES_KEY "tokenizer.ggml.merges"
#define MERGES_MAX (1u << 26)

static struct bpe_merge *find_merge(const struct bpe *b, uint32_t left, uint32_t right)
{
    uint32_t at = (uint32_t)symbol_mix(b->seed ^ ((uint64_t)left << 32 | right)) & b->mask;
    for (;; at = (at + 1) & b->mask) {
        struct bpe_merge *m = &b->merges[at];
        if (m->symbol == SYMBOL_NONE || (m->left == left && m->right == right))
            return m;
    }
}

/* The bytes of a part of a merge. False: no text can have them. */
static bool part_bytes(const struct bpe *b, const char *text, size_t len, uint8_t *out,
                       size_t *out_len)
{
    if (!b->characters)
        return byte_level_decode(text, len, out, out_len);
    *out_len = vocab_unescape_spaces(text, len, out);
    return true;
}

/* Adds a merge, "left right". The first space after the first character separates the parts. */
static enum error_code add_merge(struct bpe *b, struct vocab *v, const char *path, uint32_t rank,
                                 struct gguf_string text, uint8_t *scratch, struct error *e)
{
    const char *space = text.len > 2 ? memchr(text.data + 1, ' ', (size_t)text.len - 1) : NULL;
    if (!space || text.len > 2 * VOCAB_TOKEN_BYTES)
        return error_set(e, ERROR_FORMAT,
                         "%s: key '" MERGES_KEY "': merge %u (%" PRIu64
                         " bytes) is not two parts with a space between",
                         path, rank, text.len);
    size_t left_text = (size_t)(space - text.data), left_len, right_len;
    if (!part_bytes(b, text.data, left_text, scratch, &left_len) ||
        !part_bytes(b, space + 1, (size_t)text.len - left_text - 1, scratch + left_len,
                    &right_len) ||
        left_len == 0 || right_len == 0)
        return ERROR_OK;
    uint32_t left, right, symbol;
    if (!symbol_table_intern(&v->symbols, scratch, left_len, &left) ||
        !symbol_table_intern(&v->symbols, scratch + left_len, right_len, &right) ||
        !symbol_table_intern(&v->symbols, scratch, left_len + right_len, &symbol))
        return error_set(e, ERROR_MEMORY, "%s: out of memory for the merges", path);
    struct bpe_merge *m = find_merge(b, left, right);
    if (m->symbol == SYMBOL_NONE)
        *m = (struct bpe_merge){left, right, rank, symbol};
    return ERROR_OK;
}

static enum error_code add_merges(struct bpe *b, struct vocab *v, const struct gguf *g,
                                  const struct gguf_kv *merges, struct error *e)
{
    uint32_t slots = 1024;
    while (slots / 2 < merges->count)
        slots *= 2;
    uint8_t *scratch = malloc(2 * VOCAB_TOKEN_BYTES);
    b->merges = malloc((size_t)slots * sizeof *b->merges);
    if (!scratch || !b->merges) {
        free(scratch);
        return error_set(e, ERROR_MEMORY, "%s: out of memory for %" PRIu64 " merges",
                         gguf_path(g, 0), merges->count);
    }
    memset(b->merges, 0xff, (size_t)slots * sizeof *b->merges); /* every symbol SYMBOL_NONE */
    b->mask = slots - 1;
    enum error_code error = ERROR_OK;
    uint64_t cursor = 0;
    struct gguf_string text;
    for (uint32_t rank = 0; !error && gguf_next_string(merges, &cursor, &text); rank++)
        error = add_merge(b, v, gguf_path(g, 0), rank, text, scratch, e);
    free(scratch);
    return error;
}

enum error_code bpe_init(struct bpe *b, struct vocab *v, const struct gguf *g, struct error *e)
{
    const struct gguf_kv *merges;
    *b = (struct bpe){.seed = symbol_seed(), .characters = v->model == VOCAB_GEMMA4};
    enum error_code error = vocab_array(g, MERGES_KEY, GGUF_STRING, &merges, e);
    if (error)
        return error;
    if (merges->count > MERGES_MAX)
        return error_set(e, ERROR_FORMAT,
                         "%s: key '" MERGES_KEY "' has %" PRIu64 " elements, expected at most %u",
                         gguf_path(g, 0), merges->count, MERGES_MAX);
    error = add_merges(b, v, g, merges, e);
    for (unsigned i = 0; i < 256 && !error; i++) {
        uint8_t byte = (uint8_t)i;
        if (!symbol_table_intern(&v->symbols, &byte, 1, &b->byte_symbols[i]))
            error = error_set(e, ERROR_MEMORY, "%s: out of memory for the merges", gguf_path(g, 0));
    }
    if (error)
        bpe_fini(b);
    return error;
}

void bpe_fini(struct bpe *b)
{
    free(b->merges);
    *b = (struct bpe){0};
}

static bool lookup(const void *context, const struct merge_node *left,
                   const struct merge_node *right, uint32_t *rank, uint32_t *symbol)
{
    const struct bpe *b = context;
    if (left->symbol == SYMBOL_NONE || right->symbol == SYMBOL_NONE)
        return false;
    const struct bpe_merge *m = find_merge(b, left->symbol, right->symbol);
    *rank = m->rank;
    *symbol = m->symbol;
    return m->symbol != SYMBOL_NONE;
}

static bool push_bytes(const struct vocab *v, const char *text, size_t len, struct token_list *out)
{
    for (size_t i = 0; i < len; i++) {
        uint32_t id = v->byte_tokens[(unsigned char)text[i]];
        if (id == SYMBOL_NONE)
            id = v->unknown;
        if (id != SYMBOL_NONE && !token_list_push(out, id))
            return false;
    }
    return true;
}

/* Cuts a piece into its bytes or characters; returns how many. A character that is no symbol merges
 * with nothing. */
static uint32_t first_symbols(const struct bpe *b, const struct vocab *v, const char *piece,
                              size_t len, struct merge_node *nodes)
{
    uint32_t n = 0;
    for (size_t i = 0, length; i < len; i += length) {
        length = b->characters ? utf8_valid_length(piece + i, len - i) : 1;
        length = length ? length : 1;
        nodes[n++] = (struct merge_node){
            .start = (uint32_t)i,
            .length = (uint32_t)length,
            .symbol = length == 1 && !b->characters
                          ? b->byte_symbols[(unsigned char)piece[i]]
                          : symbol_table_find(&v->symbols, piece + i, length),
        };
    }
    return n;
}

bool bpe_encode(const struct bpe *b, const struct vocab *v, bool whole, struct merge_space *space,
                const char *piece, size_t len, struct token_list *out)
{
    if (whole) {
        uint32_t id = symbol_table_find(&v->symbols, piece, len);
        if (id < v->count)
            return token_list_push(out, id);
    }
    if (len == 0)
        return true;
    if (!merge_space_reserve(space, len))
        return false;
    merge_run(space, first_symbols(b, v, piece, len, space->nodes), lookup, b);
    for (uint32_t i = 0; i != MERGE_END; i = space->nodes[i].next) {
        const struct merge_node *n = &space->nodes[i];
        bool pushed = n->symbol < v->count ? token_list_push(out, n->symbol)
                                           : push_bytes(v, piece + n->start, n->length, out);
        if (!pushed)
            return false;
    }
    return true;
}
