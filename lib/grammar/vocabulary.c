/* The trie of a vocabulary; see vocabulary.h. Tokens sorted by their bytes are the trie's leaves in
 * preorder: each token adds nodes below the prefix that it shares with the one before. */
#include "grammar/vocabulary.h"

#include "base/arrays.h"
#include "base/strbuf.h"

#include <stdlib.h>
#include <string.h>

struct order {
    const struct grammar_vocabulary *v;
    uint32_t *ids; /* of the tokens with bytes that are text */
    uint32_t count;
};

static int compare_tokens(const void *a, const void *b, void *context)
{
    const struct grammar_vocabulary *v = context;
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    const struct grammar_token *p = &v->tokens[x], *q = &v->tokens[y];
    int order = memcmp(v->bytes + p->offset, v->bytes + q->offset,
                       p->length < q->length ? p->length : q->length);
    if (order)
        return order;
    if (p->length != q->length)
        return p->length < q->length ? -1 : 1;
    return x < y ? -1 : x > y;
}

static uint32_t shared_prefix(const struct grammar_vocabulary *v, uint32_t a, uint32_t b)
{
    const struct grammar_token *p = &v->tokens[a], *q = &v->tokens[b];
    uint32_t n = 0, most = p->length < q->length ? p->length : q->length;
    while (n < most && v->bytes[p->offset + n] == v->bytes[q->offset + n])
        n++;
    return n;
}

static uint32_t count_nodes(const struct order *o)
{
    uint32_t nodes = 0;
    for (uint32_t i = 0; i < o->count; i++)
        nodes += o->v->tokens[o->ids[i]].length -
                 (i > 0 ? shared_prefix(o->v, o->ids[i - 1], o->ids[i]) : 0);
    return nodes;
}

static void fill_nodes(struct grammar_vocabulary *v, const struct order *o)
{
    uint32_t path[GRAMMAR_TOKEN_BYTES + 1], depth = 0, n = 0; /* open nodes by depth */
    for (uint32_t i = 0; i < o->count; i++) {
        uint32_t id = o->ids[i], shared = i > 0 ? shared_prefix(v, o->ids[i - 1], id) : 0;
        const struct grammar_token *t = &v->tokens[id];
        for (; depth > shared; depth--)
            v->nodes[path[depth]].skip = n;
        for (; depth < t->length; n++) {
            v->nodes[n] = (struct grammar_trie_node){.token = GRAMMAR_NO_TOKEN,
                                                     .first = i,
                                                     .depth = (uint16_t)(depth + 1),
                                                     .byte = v->bytes[t->offset + depth]};
            path[++depth] = n;
        }
        struct grammar_trie_node *end = &v->nodes[path[depth]];
        v->tokens[id].same = end->token;
        end->token = id;
    }
    for (; depth > 0; depth--)
        v->nodes[path[depth]].skip = n;
}

enum grammar_byte_kind grammar_byte_kind(uint8_t byte)
{
    if ((byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z'))
        return GRAMMAR_BYTE_LETTER;
    if (byte >= '0' && byte <= '9')
        return GRAMMAR_BYTE_DIGIT;
    if (byte == ' ')
        return GRAMMAR_BYTE_BLANK;
    return byte > ' ' && byte < 0x7f && byte != '"' && byte != '\\' ? GRAMMAR_BYTE_MARK
                                                                    : GRAMMAR_BYTE_OTHER;
}

/* From the last node to the first: what is below a node stands behind it. */
static void sum_up(struct grammar_vocabulary *v)
{
    for (uint32_t i = v->n_nodes; i-- > 0;) {
        struct grammar_trie_node *node = &v->nodes[i];
        node->bytes_below = (uint8_t)grammar_byte_kind(node->byte);
        node->reach = 1;
        for (uint32_t child = i + 1; child < node->skip; child = v->nodes[child].skip) {
            node->bytes_below |= v->nodes[child].bytes_below;
            if (v->nodes[child].reach >= node->reach)
                node->reach = (uint16_t)(v->nodes[child].reach + 1);
        }
    }
}

static bool in_trie(const struct grammar_token *t)
{
    return t->kind == GRAMMAR_TOKEN_TEXT && t->length > 0;
}

static enum error_code build_trie(struct grammar_vocabulary *v, struct error *e)
{
    struct order o = {.v = v, .ids = malloc((v->n_tokens + 1u) * sizeof *o.ids)};
    if (!o.ids)
        return error_set(e, ERROR_MEMORY, "out of memory for the vocabulary's trie");
    for (uint32_t i = 0; i < v->n_tokens; i++)
        if (in_trie(&v->tokens[i])) {
            o.ids[o.count++] = i;
            if (v->tokens[i].length > v->longest)
                v->longest = v->tokens[i].length;
        }
    qsort_r(o.ids, o.count, sizeof *o.ids, compare_tokens, v);
    v->n_nodes = count_nodes(&o);
    v->nodes = calloc(v->n_nodes + 1u, sizeof *v->nodes);
    v->order = o.ids;
    if (v->nodes) {
        fill_nodes(v, &o);
        v->nodes[v->n_nodes].first = o.count;
        sum_up(v);
    }
    return v->nodes ? ERROR_OK
                    : error_set(e, ERROR_MEMORY, "out of memory for the vocabulary's trie");
}

enum error_code grammar_vocabulary_new(uint32_t n_tokens, const uint8_t *const *bytes,
                                       const uint32_t *lengths, const uint8_t *kinds,
                                       struct grammar_vocabulary **out, struct error *e)
{
    size_t total = 0;
    for (uint32_t i = 0; i < n_tokens; i++)
        total += lengths[i] <= GRAMMAR_TOKEN_BYTES ? lengths[i] : 0;
    struct grammar_vocabulary *v, made = {.n_tokens = n_tokens};
    if (total >= UINT32_MAX ||
        !ARRAYS_NEW(ARRAY(v, 1), ARRAY(made.tokens, n_tokens), ARRAY(made.bytes, total)))
        return error_set(e, ERROR_MEMORY, "out of memory for the vocabulary's trie");
    *v = made;
    uint32_t offset = 0;
    for (uint32_t i = 0; i < n_tokens; i++) {
        uint16_t length = (uint16_t)(lengths[i] <= GRAMMAR_TOKEN_BYTES ? lengths[i] : 0);
        v->tokens[i] = (struct grammar_token){
            .offset = offset, .length = length, .kind = kinds[i], .same = GRAMMAR_NO_TOKEN};
        if (length)
            memcpy(v->bytes + offset, bytes[i], length);
        offset += length;
    }
    enum error_code error = build_trie(v, e);
    if (error) {
        grammar_vocabulary_free(v);
        return error;
    }
    *out = v;
    return ERROR_OK;
}

static enum grammar_token_kind kind_of(const struct tokenizer *t, uint32_t id)
{
    if (tokenizer_is_end(t, id))
        return GRAMMAR_TOKEN_END;
    return tokenizer_is_special(t, id) ? GRAMMAR_TOKEN_CONTROL : GRAMMAR_TOKEN_TEXT;
}

/* The texts of all tokens, one after the other; offsets [n + 1]. */
static void append_texts(const struct tokenizer *t, uint32_t n, struct strbuf *text,
                         size_t *offsets, uint8_t *kinds)
{
    for (uint32_t i = 0; i < n; i++) {
        offsets[i] = text->len;
        kinds[i] = (uint8_t)kind_of(t, i);
        (void)tokenizer_piece(t, i, true, text);
    }
    offsets[n] = text->len;
}

enum error_code grammar_vocabulary_from_tokenizer(const struct tokenizer *t,
                                                  struct grammar_vocabulary **out, struct error *e)
{
    uint32_t n = tokenizer_vocab_size(t), *lengths;
    size_t *offsets;
    const uint8_t **bytes;
    uint8_t *kinds;
    struct strbuf text;
    void *memory =
        ARRAYS_NEW(ARRAY(offsets, n + 1u), ARRAY(bytes, n), ARRAY(lengths, n), ARRAY(kinds, n));
    if (!memory)
        return error_set(e, ERROR_MEMORY, "out of memory for the vocabulary's trie");
    strbuf_init(&text);
    append_texts(t, n, &text, offsets, kinds);
    enum error_code error;
    if (text.failed) {
        error = error_set(e, ERROR_MEMORY, "out of memory for the vocabulary's trie");
    } else {
        for (uint32_t i = 0; i < n; i++) {
            bytes[i] = (const uint8_t *)text.data + offsets[i];
            lengths[i] = (uint32_t)(offsets[i + 1] - offsets[i]);
        }
        error = grammar_vocabulary_new(n, bytes, lengths, kinds, out, e);
    }
    strbuf_fini(&text);
    free(memory);
    return error;
}

void grammar_vocabulary_free(struct grammar_vocabulary *v)
{
    if (!v)
        return;
    free(v->nodes);
    free(v->order);
    free(v);
}
