/* Loads a vocabulary; see vocab.h. */
#include "tokenizer/vocab.h"

#include "base/log.h"
#include "tokenizer/byte_level.h"

#include <ctype.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KEY(name) "tokenizer.ggml." name

enum error_code vocab_array(const struct gguf *g, const char *key, enum gguf_value_type element,
                            const struct gguf_kv **out, struct error *e)
{
    const struct gguf_kv *kv = gguf_find(g, key);
    if (!kv)
        return error_set(e, ERROR_FORMAT,
                         "%s: key '%s' is missing: the file has no usable tokenizer",
                         gguf_path(g, 0), key);
    if (kv->type != GGUF_ARRAY || kv->element_type != element)
        return error_set(e, ERROR_FORMAT, "%s: key '%s' is not an array of the expected type",
                         gguf_path(g, 0), key);
    *out = kv;
    return ERROR_OK;
}

enum error_code vocab_token_array(const struct gguf *g, const char *key,
                                  enum gguf_value_type element, uint64_t count,
                                  const struct gguf_kv **out, struct error *e)
{
    *out = NULL;
    if (!gguf_find(g, key))
        return ERROR_OK;
    const struct gguf_kv *kv;
    enum error_code error = vocab_array(g, key, element, &kv, e);
    if (error)
        return error;
    if (kv->count != count)
        return error_set(e, ERROR_FORMAT,
                         "%s: key '%s' has %" PRIu64 " elements for %" PRIu64 " tokens",
                         gguf_path(g, 0), key, kv->count, count);
    *out = kv;
    return ERROR_OK;
}

int32_t vocab_type_in(const struct gguf_kv *types, uint64_t id)
{
    int32_t type = TOKEN_NORMAL;
    if (types)
        memcpy(&type, types->data + id * sizeof type, sizeof type);
    return type;
}

/* The byte of a byte token's text, <0xXX>; -1: another text. */
static int byte_of_text(const char *text, size_t len)
{
    char hex[3] = {0};
    if (len != 6 || memcmp(text, "<0x", 3) != 0 || text[5] != '>' ||
        !isxdigit((unsigned char)text[3]) || !isxdigit((unsigned char)text[4]))
        return -1;
    memcpy(hex, text + 3, 2);
    return (int)strtol(hex, NULL, 16);
}

size_t vocab_unescape_spaces(const char *text, size_t len, uint8_t *out)
{
    size_t n = 0;
    for (size_t i = 0; i < len;) {
        if (len - i >= 3 && memcmp(text + i, "\xe2\x96\x81", 3) == 0) {
            out[n++] = ' ';
            i += 3;
        } else {
            out[n++] = (uint8_t)text[i++];
        }
    }
    return n;
}

/* Writes the bytes that a token stands for to out, which has space for VOCAB_TOKEN_BYTES. *found:
 * encoding may find the token. */
static size_t token_bytes(const struct vocab *v, uint32_t type, struct gguf_string text,
                          uint8_t *out, bool *found)
{
    size_t len = (size_t)text.len;
    bool plain = type == TOKEN_CONTROL || type == TOKEN_UNKNOWN || type == TOKEN_USER_DEFINED;
    *found = type == TOKEN_NORMAL;
    if (!plain && v->model != VOCAB_GPT2)
        return vocab_unescape_spaces(text.data, len, out);
    size_t n;
    if (!plain && byte_level_decode(text.data, len, out, &n))
        return n;
    if (len)
        memcpy(out, text.data, len);
    *found = false;
    return len;
}

static enum error_code add_token(struct vocab *v, const char *path, uint32_t id,
                                 struct gguf_string text, uint8_t *scratch, struct error *e)
{
    uint32_t type = v->tokens[id].type;
    bool special = type == TOKEN_CONTROL || type == TOKEN_UNKNOWN || type == TOKEN_USER_DEFINED;
    uint32_t limit = special ? VOCAB_SPECIAL_BYTES : VOCAB_TOKEN_BYTES;
    if (text.len > limit)
        return error_set(e, ERROR_FORMAT, "%s: token %u has %" PRIu64 " bytes, expected at most %u",
                         path, id, text.len, limit);
    bool found = false;
    size_t len = 1;
    if (type == TOKEN_BYTE) {
        int byte = byte_of_text(text.data, (size_t)text.len);
        if (byte < 0)
            return error_set(e, ERROR_FORMAT,
                             "%s: token %u is of type byte but its text is not <0xXX>", path, id);
        scratch[0] = (uint8_t)byte;
        if (v->byte_tokens[byte] == SYMBOL_NONE)
            v->byte_tokens[byte] = id;
    } else {
        len = token_bytes(v, type, text, scratch, &found);
    }
    uint32_t added;
    if (!symbol_table_add(&v->symbols, scratch, len, &added) ||
        (found && len > 0 && !symbol_table_index(&v->symbols, added)))
        return error_set(e, ERROR_MEMORY, "%s: out of memory for the vocabulary", path);
    if (found && len > v->longest)
        v->longest = (uint32_t)len;
    return ERROR_OK;
}

/* Loads types and scores of all tokens. */
static enum error_code load_infos(struct vocab *v, const struct gguf *g, struct error *e)
{
    const struct gguf_kv *types, *scores;
    const char *path = gguf_path(g, 0);
    enum error_code error = vocab_token_array(g, KEY("token_type"), GGUF_I32, v->count, &types, e);
    if (!error)
        error = vocab_token_array(g, KEY("scores"), GGUF_F32, v->count, &scores, e);
    if (error)
        return error;
    if (v->model == VOCAB_LLAMA && !scores)
        return vocab_array(g, KEY("scores"), GGUF_F32, &scores, e);
    v->tokens = calloc(v->count, sizeof *v->tokens);
    if (!v->tokens)
        return error_set(e, ERROR_MEMORY, "%s: out of memory for %u tokens", path, v->count);
    for (uint32_t i = 0; i < v->count; i++) {
        int32_t type = vocab_type_in(types, i);
        if (type < 0 || type >= TOKEN_TYPE_COUNT)
            return error_set(
                e, ERROR_FORMAT,
                "%s: key '" KEY("token_type") "': token %u has type %d, expected 0 to %d", path, i,
                type, TOKEN_TYPE_COUNT - 1);
        v->tokens[i].type = (uint8_t)type;
        if (scores)
            memcpy(&v->tokens[i].score, scores->data + (size_t)i * 4, 4);
        if (isnan(v->tokens[i].score))
            return error_set(e, ERROR_FORMAT,
                             "%s: key '" KEY("scores") "': token %u's score is not a number", path,
                             i);
    }
    return ERROR_OK;
}

static enum error_code load_tokens(struct vocab *v, const struct gguf *g,
                                   const struct gguf_kv *texts, struct error *e)
{
    bool typed = gguf_find(g, KEY("token_type")) != NULL;
    uint8_t *scratch = malloc(VOCAB_TOKEN_BYTES);
    if (!scratch || !symbol_table_init(&v->symbols, v->count, (size_t)texts->bytes / 2)) {
        free(scratch);
        return error_set(e, ERROR_MEMORY, "%s: out of memory for the vocabulary", gguf_path(g, 0));
    }
    enum error_code error = ERROR_OK;
    uint64_t cursor = 0;
    struct gguf_string text;
    for (uint32_t i = 0; i < v->count && !error; i++) {
        if (!gguf_next_string(texts, &cursor, &text)) {
            error = error_set(e, ERROR_FORMAT, "%s: key '" KEY("tokens") "' ends at token %u of %u",
                              gguf_path(g, 0), i, v->count);
            break;
        }
        /* Old files have no types, and converters of gemma4 may not know the type: byte tokens are
         * known by their text. */
        bool untyped = v->model == VOCAB_LLAMA
                           ? !typed
                           : v->model == VOCAB_GEMMA4 && v->tokens[i].type == TOKEN_NORMAL;
        if (untyped && byte_of_text(text.data, (size_t)text.len) >= 0)
            v->tokens[i].type = TOKEN_BYTE;
        error = add_token(v, gguf_path(g, 0), i, text, scratch, e);
    }
    free(scratch);
    return error;
}

/* Indexes user-defined tokens, after the normal ones. Byte-level vocabularies have the bytes as
 * normal tokens. */
static enum error_code index_rest(struct vocab *v, const struct gguf *g, struct error *e)
{
    for (uint32_t i = 0; i < v->count; i++) {
        uint32_t len = v->symbols.symbols[i].length;
        if (v->tokens[i].type != TOKEN_USER_DEFINED || len == 0)
            continue;
        if (!symbol_table_index(&v->symbols, i))
            return error_set(e, ERROR_MEMORY, "%s: out of memory for the vocabulary",
                             gguf_path(g, 0));
        if (len > v->longest)
            v->longest = len;
    }
    if (v->model == VOCAB_GPT2) {
        for (unsigned b = 0; b < 256; b++) {
            uint8_t byte = (uint8_t)b;
            uint32_t id = symbol_table_find(&v->symbols, &byte, 1);
            if (id != SYMBOL_NONE)
                v->byte_tokens[b] = id;
        }
    }
    return ERROR_OK;
}

enum error_code vocab_id(const struct gguf *g, const char *key, uint64_t count, int64_t *out,
                         struct error *e)
{
    uint32_t id;
    *out = -1;
    if (!gguf_find(g, key))
        return ERROR_OK;
    enum error_code error = gguf_get_u32(g, key, &id, e);
    if (error)
        return error;
    if (id < count)
        *out = id;
    else if (strcmp(key, KEY("eos_token_id")) == 0) /* without it generation would not end */
        return error_set(e, ERROR_FORMAT,
                         "%s: key '%s' is %u, but the vocabulary has %" PRIu64 " tokens",
                         gguf_path(g, 0), key, id, count);
    else
        log_warn("%s: key '%s' is %u, but the vocabulary has %" PRIu64 " tokens: it is ignored",
                 gguf_path(g, 0), key, id, count);
    return ERROR_OK;
}

struct gguf_string vocab_text(const struct vocab *v, uint32_t id)
{
    return (struct gguf_string){.data = (const char *)symbol_bytes(&v->symbols, id),
                                .len = v->symbols.symbols[id].length};
}

static bool token_is(const struct vocab *v, uint32_t id, const char *text)
{
    return gguf_string_is(vocab_text(v, id), text);
}

/* Texts of tokens at which generation always ends, whatever the file's keys: the ends of a text, a
 * turn and a message (fim.c has others). DeepSeek's bars are U+FF5C. LEFT_BAR is a string of its
 * own because "\x9ce" would be one escape. */
#define LEFT_BAR "<\xef\xbd\x9c"
static const char *const END_TEXTS[] = {
    "<|eot_id|>",
    "<|im_end|>",
    "<|end|>",
    "<|return|>",
    "<|call|>",
    "<|flush|>",
    "<|calls|>",
    "<end_of_turn>",
    "<turn|>",
    "<|tool_response>",
    "<|endoftext|>",
    "<|end_of_text|>",
    "</s>",
    "<|eom_id|>",
    "<EOT>",
    "_<EOT>",
    "< EOT >",
    "[EOT]",
    "[EOS]",
    "<eos>",
    "[e~[",
    "<end_of_utterance>",
    (LEFT_BAR "end\xe2\x96\x81of\xe2\x96\x81sentence\xef\xbd\x9c>"),
};

bool vocab_may_be_mark(int32_t type, struct gguf_string text)
{
    return type == TOKEN_CONTROL || type == TOKEN_USER_DEFINED ||
           (text.len >= 2 && memcmp(text.data, "<|", 2) == 0);
}

static bool text_ends(const struct vocab *v, uint32_t id)
{
    struct gguf_string text = vocab_text(v, id);
    if (!vocab_may_be_mark(v->tokens[id].type, text))
        return false;
    for (size_t i = 0; i < sizeof END_TEXTS / sizeof END_TEXTS[0]; i++) {
        if (gguf_string_is(text, END_TEXTS[i]))
            return true;
    }
    return false;
}

static void mark_ends_by_text(struct vocab *v)
{
    uint32_t end = SYMBOL_NONE;
    bool returns = false, calls = false, flushes = false, call_lists = false;
    for (uint32_t i = 0; i < v->count; i++) {
        if (!text_ends(v, i))
            continue;
        v->tokens[i].ends = true;
        returns |= token_is(v, i, "<|return|>");
        calls |= token_is(v, i, "<|call|>");
        flushes |= token_is(v, i, "<|flush|>");
        call_lists |= token_is(v, i, "<|calls|>");
        if (token_is(v, i, "<|end|>"))
            end = i;
    }
    /* In the harmony format and in Solar-Open's <|end|> ends one message of several. */
    if (((returns && calls) || (flushes && call_lists)) && end != SYMBOL_NONE)
        v->tokens[end].ends = false;
}

static enum error_code load_special_ids(struct vocab *v, const struct gguf *g, bool bos_default,
                                        struct error *e)
{
    static const char *const end_keys[] = {KEY("eot_token_id"), KEY("eom_token_id")};
    int64_t unknown, id;
    mark_ends_by_text(v);
    enum error_code error = vocab_id(g, KEY("bos_token_id"), v->count, &v->bos, e);
    if (!error)
        error = vocab_id(g, KEY("eos_token_id"), v->count, &v->eos, e);
    if (!error)
        error = vocab_id(g, KEY("unknown_token_id"), v->count, &unknown, e);
    if (error)
        return error;
    v->unknown = unknown < 0 ? SYMBOL_NONE : (uint32_t)unknown;
    if (v->eos >= 0)
        v->tokens[v->eos].ends = true;
    for (size_t i = 0; i < sizeof end_keys / sizeof end_keys[0]; i++) {
        error = vocab_id(g, end_keys[i], v->count, &id, e);
        if (error)
            return error;
        if (id >= 0)
            v->tokens[id].ends = true;
    }
    error = gguf_get_bool_or(g, KEY("add_bos_token"), bos_default, &v->add_bos, e);
    if (v->model == VOCAB_GEMMA4) /* some files say otherwise, and the model needs it */
        v->add_bos = true;
    if (!error)
        error = gguf_get_bool_or(g, KEY("add_eos_token"), false, &v->add_eos, e);
    if (!error)
        error =
            gguf_get_bool_or(g, KEY("add_space_prefix"), v->model == VOCAB_LLAMA, &v->add_space, e);
    if (v->model != VOCAB_LLAMA)
        v->add_space = false;
    return error;
}

static bool name_contains(struct gguf_string name, const char *part)
{
    size_t len = strlen(part);
    for (uint64_t i = 0; i + len <= name.len; i++) {
        if (strncasecmp(name.data + i, part, len) == 0)
            return true;
    }
    return false;
}

/* Phi-3's tokenizer, which Phi-3.5 and Phi-3.5-MoE have, too, drops white space after its special
 * tokens. GGUF has no key for that, so the architecture or the model's name decides. */
static bool is_phi3(const struct gguf *g)
{
    static const char *const names[] = {"phi-3", "phi3", "phi 3"};
    struct gguf_string text;
    if (gguf_key_is(g, "general.architecture", "phimoe"))
        return true;
    if (gguf_get_string(g, "general.name", &text, NULL))
        return false;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (name_contains(text, names[i]))
            return true;
    return false;
}

static void mark_strips(struct vocab *v, const struct gguf *g)
{
    if (!is_phi3(g))
        return;
    for (uint32_t i = 0; i < v->count; i++) {
        struct token_info *t = &v->tokens[i];
        bool special = token_is_special(t) || t->type == TOKEN_USER_DEFINED;
        t->strips_right = special && !token_is(v, i, "<unk>") && !token_is(v, i, "<s>") &&
                          !token_is(v, i, "<|endoftext|>");
    }
}

enum error_code vocab_init(struct vocab *v, const struct gguf *g, enum vocab_model model,
                           bool bos_default, struct error *e)
{
    const struct gguf_kv *texts;
    *v = (struct vocab){.model = model};
    memset(v->byte_tokens, 0xff, sizeof v->byte_tokens); /* SYMBOL_NONE */
    enum error_code error = vocab_array(g, KEY("tokens"), GGUF_STRING, &texts, e);
    if (error)
        return error;
    if (texts->count == 0 || texts->count > VOCAB_TOKENS_MAX)
        return error_set(e, ERROR_FORMAT,
                         "%s: key '" KEY("tokens") "' has %" PRIu64 " elements, expected 1 to %u",
                         gguf_path(g, 0), texts->count, VOCAB_TOKENS_MAX);
    v->count = (uint32_t)texts->count;
    error = load_infos(v, g, e);
    if (!error)
        error = load_tokens(v, g, texts, e);
    if (!error)
        error = index_rest(v, g, e);
    if (!error)
        error = load_special_ids(v, g, bos_default, e);
    if (error) {
        vocab_fini(v);
        return error;
    }
    mark_strips(v, g);
    return ERROR_OK;
}

void vocab_fini(struct vocab *v)
{
    free(v->tokens);
    symbol_table_fini(&v->symbols);
    *v = (struct vocab){0};
}
