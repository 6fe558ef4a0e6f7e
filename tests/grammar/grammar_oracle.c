/* Answers questions about grammars, for compare.py: `grammar_oracle MODEL.gguf`, with the model's
 * vocabulary. Each line of the input is a question, and each line of the output its answer, in
 * JSON:
 *
 *   {"kind": 1, "text": DEFINITION, "texts": [TEXT...], "walks": N, "seed": S, "loosen": BOOL}
 *   {"error": CODE, "message": TEXT}  or
 *   {"accepts": [BOOL...], "walks": [TEXT or null...], "loosened": SCHEMA, "removed": N}
 *
 * A walk draws tokens with random weights, as a model would, until the answer ends. A walk that
 * does not end in time is null. */
#include "grammar/matcher.h"
#include "grammar/schema_loosen.h"

#include "base/strbuf.h"
#include "gguf/gguf.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FREE_STEPS = 60, STEPS_MAX = 2000 };

static const struct grammar_vocabulary *vocabulary;
static uint64_t random_state;

static uint32_t below(uint32_t n)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((random_state >> 32) * n >> 32);
}

static struct grammar_matcher *new_matcher(const struct grammar *g)
{
    struct grammar_matcher *m;
    struct error e;
    if (grammar_matcher_new(g, vocabulary, NULL, &m, &e)) {
        fprintf(stderr, "%s\n", e.text);
        exit(1);
    }
    return m;
}

static uint32_t byte_token(uint8_t byte)
{
    for (uint32_t i = 0; i < vocabulary->n_tokens; i++)
        if (vocabulary->tokens[i].length == 1 && vocabulary->tokens[i].kind == GRAMMAR_TOKEN_TEXT &&
            vocabulary->bytes[vocabulary->tokens[i].offset] == byte)
            return i;
    fprintf(stderr, "the vocabulary has no token for byte %u\n", byte);
    exit(1);
}

static bool accepts(const struct grammar *g, const char *text, size_t len)
{
    static uint32_t tokens[256];
    static bool known;
    for (unsigned b = 0; b < 256 && !known; b++)
        tokens[b] = byte_token((uint8_t)b);
    known = true;
    struct grammar_matcher *m = new_matcher(g);
    bool accepted = true;
    for (size_t i = 0; i < len && accepted; i++)
        accepted = grammar_matcher_advance(m, tokens[(uint8_t)text[i]]);
    accepted = accepted && grammar_matcher_is_complete(m);
    grammar_matcher_free(m);
    return accepted;
}

/* One of the mask's tokens: at first any, later one that is likely to lead to the end. */
static uint32_t choose(const uint32_t *mask, unsigned steps)
{
    static const char closing[] = "\"}]:,";
    uint32_t n = 0, chosen = GRAMMAR_NO_TOKEN, best = UINT32_MAX;
    for (uint32_t i = 0; i < vocabulary->n_tokens; i++) {
        const struct grammar_token *t = &vocabulary->tokens[i];
        if (!(mask[i / 32] >> i % 32 & 1))
            continue;
        const char *at = t->length == 1 ? strchr(closing, vocabulary->bytes[t->offset]) : NULL;
        uint32_t rank = t->kind == GRAMMAR_TOKEN_END ? 0 : at ? 1 + (uint32_t)(at - closing) : 10;
        if (steps < FREE_STEPS)
            rank = 0;
        if (rank < best) {
            best = rank;
            n = 0;
        }
        if (rank == best && below(++n) == 0)
            chosen = i;
    }
    return chosen;
}

static json_t *walk(const struct grammar *g)
{
    struct grammar_matcher *m = new_matcher(g);
    uint32_t *mask = malloc(grammar_mask_words(vocabulary->n_tokens) * sizeof *mask);
    struct strbuf text;
    struct error e;
    json_t *out = NULL;
    strbuf_init(&text);
    strbuf_append(&text, "", 0);
    for (unsigned i = 0; i < STEPS_MAX && mask; i++) {
        if (!grammar_matcher_mask(m, mask)) {
            (void)grammar_matcher_error(m, &e);
            fprintf(stderr, "after %s: %s\n", text.data ? text.data : "", e.text);
            exit(1);
        }
        uint32_t token = choose(mask, i);
        const struct grammar_token *t = &vocabulary->tokens[token];
        if (!grammar_matcher_advance(m, token)) {
            fprintf(stderr, "a token of the mask is refused\n");
            exit(1);
        }
        if (t->kind == GRAMMAR_TOKEN_END) {
            out = json_stringn(text.data ? text.data : "", text.len);
            if (!out) {
                fprintf(stderr, "an answer is not UTF-8\n");
                exit(1);
            }
            break;
        }
        strbuf_append(&text, vocabulary->bytes + t->offset, t->length);
    }
    strbuf_fini(&text);
    free(mask);
    grammar_matcher_free(m);
    return out ? out : json_null();
}

static json_t *answer(json_t *question)
{
    json_t *text = json_object_get(question, "text"), *texts = json_object_get(question, "texts");
    struct grammar *g;
    struct error e = {0};
    unsigned removed = 0;
    if (json_is_true(json_object_get(question, "loosen"))) {
        char keyword[SCHEMA_KEYWORD_BYTES];
        json_t *schema = json_loads(json_string_value(text), JSON_DECODE_ANY, NULL);
        removed = schema_loosen(schema, &grammar_limits_default, NULL, keyword);
        char *loosened = json_dumps(schema, JSON_COMPACT | JSON_ENCODE_ANY);
        json_string_set(text, loosened);
        free(loosened);
        json_decref(schema);
    }
    enum error_code error =
        grammar_compile((enum grammar_kind)json_integer_value(json_object_get(question, "kind")),
                        json_string_value(text), json_string_length(text), NULL, &g, &e);
    if (error)
        return json_pack("{s:i, s:s, s:O}", "error", (int)error, "message", e.text, "loosened",
                         text);
    json_t *accepted = json_array(), *walks = json_array();
    for (size_t i = 0; i < json_array_size(texts); i++) {
        json_t *t = json_array_get(texts, i);
        json_array_append_new(
            accepted, json_boolean(accepts(g, json_string_value(t), json_string_length(t))));
    }
    random_state = (uint64_t)json_integer_value(json_object_get(question, "seed"));
    for (json_int_t i = json_integer_value(json_object_get(question, "walks")); i > 0; i--)
        json_array_append_new(walks, walk(g));
    grammar_free(g);
    return json_pack("{s:o, s:o, s:O, s:i}", "accepts", accepted, "walks", walks, "loosened", text,
                     "removed", (int)removed);
}

static const struct grammar_vocabulary *load(const char *path)
{
    struct gguf *file;
    struct tokenizer *t;
    struct grammar_vocabulary *v;
    struct error e;
    if (gguf_open(path, &file, &e) || tokenizer_new(file, NULL, &t, &e) ||
        grammar_vocabulary_from_tokenizer(t, &v, &e)) {
        fprintf(stderr, "%s\n", e.text);
        exit(1);
    }
    tokenizer_free(t);
    gguf_close(file);
    return v;
}

int main(int argc, char **argv)
{
    char *line = NULL;
    size_t capacity = 0;
    if (argc != 2) {
        fprintf(stderr, "usage: grammar_oracle MODEL.gguf\n");
        return 2;
    }
    vocabulary = load(argv[1]);
    for (ssize_t len; (len = getline(&line, &capacity, stdin)) > 0;) {
        json_t *question = json_loadb(line, (size_t)len, JSON_ALLOW_NUL, NULL);
        json_t *out = question ? answer(question) : json_pack("{s:s}", "message", "no question");
        char *text = json_dumps(out, JSON_COMPACT);
        printf("%s\n", text);
        fflush(stdout);
        free(text);
        json_decref(out);
        json_decref(question);
    }
    free(line);
    grammar_vocabulary_free((struct grammar_vocabulary *)vocabulary);
    return 0;
}
