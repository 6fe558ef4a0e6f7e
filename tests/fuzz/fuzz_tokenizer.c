/* Fuzz target of vocabularies and texts: the input describes a vocabulary, which becomes a file's
 * keys, and a text. Loading gives an error with a text, or a tokenizer that gives the same ids
 * twice, ids that it knows, and whose pieces are the whole's decoding.
 *
 * An input is read from its beginning, 0 after its end:
 *     1 byte  model (gpt2, llama, gemma4, none, or a wrong one)    1 byte  pre-tokenizer
 *     1 byte  flags, of the file and of the text                   3 bytes begin, end, unknown token
 *     1 byte  tokens, each: length (255: 1,020), bytes, type, score
 *     1 byte  merges, each: length, bytes
 *     the rest is the text */
#include "base/strbuf.h"
#include "gguf/gguf.h"
#include "tokenizer/piece.h"
#include "tokenizer/tokenizer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MOST_TOKENS = 64, MOST_MERGES = 32, MOST_BYTES = 1020, GGUF_ARRAY_OF = 9 };

struct input {
    const uint8_t *data;
    size_t left;
};

static uint8_t take(struct input *in)
{
    if (!in->left)
        return 0;
    in->left--;
    return *in->data++;
}

/* ---- The file's keys ---- */

static void put(struct strbuf *b, uint64_t value, size_t bytes)
{
    strbuf_append(b, (const char *)&value, bytes);
}

static void put_string(struct strbuf *b, const void *text, size_t len)
{
    put(b, len, 8);
    strbuf_append(b, text, len);
}

struct keys {
    struct strbuf text;
    uint64_t n;
};

static void put_key(struct keys *k, const char *name, uint32_t type)
{
    put_string(&k->text, name, strlen(name));
    put(&k->text, type, 4);
    k->n++;
}

static void put_text(struct keys *k, const char *name, const char *value)
{
    put_key(k, name, GGUF_STRING);
    put_string(&k->text, value, strlen(value));
}

static void put_array(struct keys *k, const char *name, uint32_t type, uint64_t n,
                      const struct strbuf *values)
{
    put_key(k, name, GGUF_ARRAY_OF);
    put(&k->text, type, 4);
    put(&k->text, n, 8);
    strbuf_append(&k->text, values->data, values->len);
}

/* One string of an array: its length, then its bytes. A length of 255 is a long run. */
static void take_string(struct input *in, struct strbuf *strings)
{
    static char run[MOST_BYTES];
    size_t len = take(in);
    if (len == 255) {
        memset(run, take(in), sizeof run);
        run[sizeof run - 1] = (char)take(in);
        put_string(strings, run, sizeof run);
        return;
    }
    len = len % 24 < in->left ? len % 24 : in->left;
    put_string(strings, in->data, len);
    in->data += len;
    in->left -= len;
}

static void put_tokens(struct input *in, struct keys *k, uint8_t flags)
{
    struct strbuf strings, types, scores;
    strbuf_init(&strings);
    strbuf_init(&types);
    strbuf_init(&scores);
    uint64_t n = take(in) % MOST_TOKENS;
    for (uint64_t i = 0; i < n; i++) {
        take_string(in, &strings);
        put(&types, take(in) % 8, 4);
        float score = (float)(int8_t)take(in);
        strbuf_append(&scores, (const char *)&score, sizeof score);
    }
    if (flags & 64) /* all bytes, too, as llama's vocabularies have them */
        for (int byte = 0; byte < 256; byte++) {
            char name[8];
            put_string(&strings, name, (size_t)snprintf(name, sizeof name, "<0x%02X>", byte));
            put(&types, 6, 4);
            put(&scores, 0, 4);
            n++;
        }
    put_array(k, "tokenizer.ggml.tokens", GGUF_STRING, n, &strings);
    put_array(k, "tokenizer.ggml.token_type", GGUF_I32, n - (flags & 1 && n), &types);
    put_array(k, "tokenizer.ggml.scores", GGUF_F32, n, &scores);
    strbuf_fini(&strings);
    strbuf_fini(&types);
    strbuf_fini(&scores);
}

static void put_merges(struct input *in, struct keys *k)
{
    struct strbuf strings;
    strbuf_init(&strings);
    uint64_t n = take(in) % MOST_MERGES;
    for (uint64_t i = 0; i < n; i++)
        take_string(in, &strings);
    put_array(k, "tokenizer.ggml.merges", GGUF_STRING, n, &strings);
    strbuf_fini(&strings);
}

static void put_id(struct keys *k, const char *name, uint8_t id)
{
    if (id == 255)
        return;
    put_key(k, name, GGUF_U32);
    put(&k->text, id, 4);
}

static const char *const models[] = {"gpt2", "llama", "gemma4", "bert"};
static const char *const pres[] = {"default", "qwen2",  "llama-bpe", "deepseek-v3",
                                   "gpt-4o",  "tekken", "qwen35",    "none"};

/* Returns the flags. */
static uint8_t put_keys(struct input *in, struct keys *k)
{
    uint8_t model = take(in), pre = take(in), flags = take(in);
    put_text(k, "general.architecture", "llama");
    if (model % 5 < 4)
        put_text(k, "tokenizer.ggml.model", models[model % 5]);
    put_text(k, "tokenizer.ggml.pre", pres[pre % 8]);
    put_id(k, "tokenizer.ggml.bos_token_id", take(in));
    put_id(k, "tokenizer.ggml.eos_token_id", take(in));
    put_id(k, "tokenizer.ggml.unknown_token_id", take(in));
    put_key(k, "tokenizer.ggml.add_bos_token", GGUF_BOOL);
    put(&k->text, flags >> 1 & 1, 1);
    put_key(k, "tokenizer.ggml.add_space_prefix", GGUF_BOOL);
    put(&k->text, flags >> 2 & 1, 1);
    put_tokens(in, k, flags);
    put_merges(in, k);
    return flags;
}

/* ---- The text ---- */

static void require(bool holds)
{
    if (!holds)
        abort();
}

static void check_ids(const struct tokenizer *t, const struct token_list *ids)
{
    struct strbuf whole, pieces;
    struct error e;
    bool at_start = true;
    strbuf_init(&whole);
    strbuf_init(&pieces);
    require(tokenizer_decode(t, ids->ids, ids->count, true, &whole, &e) == ERROR_OK);
    for (size_t i = 0; i < ids->count; i++)
        require(ids->ids[i] < tokenizer_vocab_size(t) &&
                tokenizer_piece_at(t, ids->ids[i], true, &at_start, &pieces));
    require(whole.len == pieces.len && (!whole.len || !memcmp(whole.data, pieces.data, whole.len)));
    strbuf_fini(&whole);
    strbuf_fini(&pieces);
}

static void encode(const struct tokenizer *t, const struct input *text, unsigned flags)
{
    struct token_list ids = {0}, again = {0};
    struct error e = {0};
    struct plain_range middle = {text->left / 3, text->left / 2};
    enum error_code code = tokenizer_encode_ranges(t, (const char *)text->data, text->left, flags,
                                                   &middle, 1, &ids, &e);
    require(!code || (e.code == code && e.text[0]));
    require(tokenizer_encode_ranges(t, (const char *)text->data, text->left, flags, &middle, 1,
                                    &again, &e) == code);
    require(ids.count == again.count &&
            (!ids.count || !memcmp(ids.ids, again.ids, ids.count * sizeof *ids.ids)));
    if (!code)
        check_ids(t, &ids);
    token_list_fini(&ids);
    token_list_fini(&again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct input in = {data, size};
    struct keys k = {0};
    struct strbuf file;
    struct gguf *g;
    struct tokenizer *t;
    struct error e = {0};
    strbuf_init(&k.text);
    strbuf_init(&file);
    uint8_t flags = put_keys(&in, &k);
    strbuf_append(&file, "GGUF\3\0\0\0\0\0\0\0\0\0\0\0", 16);
    put(&file, k.n, 8);
    strbuf_append(&file, k.text.data, k.text.len);
    require(!file.failed && !k.text.failed);
    enum error_code code = gguf_open_metadata(file.data, file.len, "fuzz", &g, &e);
    if (!code) {
        code = tokenizer_new(g, NULL, &t, &e);
        gguf_close(g);
        if (!code) {
            encode(t, &in,
                   (flags & 8 ? TOKENIZE_ADD_SPECIAL : 0) |
                       (flags & 16 ? TOKENIZE_PARSE_SPECIAL : 0));
            tokenizer_free(t);
        }
    }
    require(!code || (e.code == code && e.text[0] && !strchr(e.text, '\n')));
    strbuf_fini(&file);
    strbuf_fini(&k.text);
    return 0;
}
