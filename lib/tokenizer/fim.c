/* Finds the tokens for fill-in-the-middle; see fim.h. */
#include "tokenizer/fim.h"

#include "tokenizer/vocab.h"

#include <string.h>

#define KEY(name)  "tokenizer.ggml." name
#define TEXTS_MAX  8
#define LOWER_LINE "\xe2\x96\x81"  /* U+2581 */
#define LEFT_BAR   "<\xef\xbd\x9c" /* DeepSeek's bars are U+FF5C */
#define RIGHT_BAR  "\xef\xbd\x9c>"

/* The texts are of Qwen, StarCoder, Granite, DeepSeek, CodeLlama, GLM and Falcon. */
static const struct {
    const char *key, *old_key; /* old_key: of older files; NULL: none */
    bool ends;
    const char *texts[TEXTS_MAX];
} roles[FIM_ROLES] = {
    [FIM_PREFIX] = {KEY("fim_pre_token_id"),
                    KEY("prefix_token_id"),
                    false,
                    {"<|fim_prefix|>", "<fim-prefix>", "<fim_prefix>",
                     LEFT_BAR "fim" LOWER_LINE "begin" RIGHT_BAR, "<PRE>", LOWER_LINE "<PRE>",
                     "<|code_prefix|>", "<|prefix|>"}},
    [FIM_SUFFIX] = {KEY("fim_suf_token_id"),
                    KEY("suffix_token_id"),
                    false,
                    {"<|fim_suffix|>", "<fim-suffix>", "<fim_suffix>",
                     LEFT_BAR "fim" LOWER_LINE "hole" RIGHT_BAR, "<SUF>", LOWER_LINE "<SUF>",
                     "<|code_suffix|>", "<|suffix|>"}},
    [FIM_MIDDLE] = {KEY("fim_mid_token_id"),
                    KEY("middle_token_id"),
                    false,
                    {"<|fim_middle|>", "<fim-middle>", "<fim_middle>",
                     LEFT_BAR "fim" LOWER_LINE "end" RIGHT_BAR, "<MID>", LOWER_LINE "<MID>",
                     "<|code_middle|>", "<|middle|>"}},
    [FIM_PAD] = {KEY("fim_pad_token_id"),
                 NULL,
                 true,
                 {"<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>"}},
    [FIM_REPOSITORY] = {KEY("fim_rep_token_id"),
                        NULL,
                        true,
                        {"<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>"}},
    [FIM_FILE] = {KEY("fim_sep_token_id"), NULL, true, {"<|file_sep|>"}},
};

/* The token's place among the texts of the role; TEXTS_MAX: it has none of them. */
static int rank_of(const struct vocab *v, uint32_t id, enum fim_role role)
{
    int rank = 0;
    while (rank < TEXTS_MAX && roles[role].texts[rank] &&
           !vocab_token_is(v, id, roles[role].texts[rank]))
        rank++;
    return rank < TEXTS_MAX && roles[role].texts[rank] ? rank : TEXTS_MAX;
}

static void find_by_text(struct vocab *v)
{
    int best[FIM_ROLES];
    for (int role = 0; role < FIM_ROLES; role++) {
        best[role] = TEXTS_MAX;
        v->fim[role] = -1;
    }
    for (uint32_t id = 0; id < v->count; id++) {
        if (!vocab_may_be_mark(v, id))
            continue;
        for (int role = 0; role < FIM_ROLES; role++) {
            int rank = rank_of(v, id, role);
            if (rank < best[role]) {
                best[role] = rank;
                v->fim[role] = id;
            }
        }
    }
}

/* ---- Of a file ---- */

static bool is_text_of(struct gguf_string text, enum fim_role role)
{
    for (int i = 0; i < TEXTS_MAX && roles[role].texts[i]; i++)
        if (text.len == strlen(roles[role].texts[i]) &&
            memcmp(text.data, roles[role].texts[i], text.len) == 0)
            return true;
    return false;
}

/* As vocab_may_be_mark. types: of the tokens; NULL: the file has none. */
static bool may_be_mark(const struct gguf_kv *types, uint64_t id, struct gguf_string text)
{
    int32_t type = TOKEN_NORMAL;
    if (types)
        memcpy(&type, types->data + id * sizeof type, sizeof type);
    return type == TOKEN_CONTROL || type == TOKEN_USER_DEFINED ||
           (text.len >= 2 && memcmp(text.data, "<|", 2) == 0);
}

static void find_in_texts(const struct gguf_kv *texts, const struct gguf_kv *types,
                          bool found[FIM_PAD])
{
    struct gguf_string text;
    uint64_t cursor = 0;
    for (uint64_t id = 0; gguf_next_string(texts, &cursor, &text); id++) {
        if (!may_be_mark(types, id, text))
            continue;
        for (int role = 0; role < FIM_PAD; role++)
            found[role] = found[role] || is_text_of(text, role);
    }
}

static bool is_key_in(const struct gguf *g, const char *key, uint64_t count)
{
    struct error e;
    uint32_t id;
    return key && gguf_find(g, key) && gguf_get_u32(g, key, &id, &e) == ERROR_OK && id < count;
}

bool fim_is_in(const struct gguf *g)
{
    bool found[FIM_PAD] = {false}; /* the three roles before it */
    const struct gguf_kv *texts, *types = NULL;
    struct error e;
    if (vocab_array(g, KEY("tokens"), GGUF_STRING, &texts, &e))
        return false;
    if (gguf_find(g, KEY("token_type")) &&
        (vocab_array(g, KEY("token_type"), GGUF_I32, &types, &e) || types->count != texts->count))
        return false;
    find_in_texts(texts, types, found);
    for (int role = 0; role < FIM_PAD; role++)
        found[role] = found[role] || is_key_in(g, roles[role].key, texts->count) ||
                      is_key_in(g, roles[role].old_key, texts->count);
    return found[FIM_PREFIX] && found[FIM_SUFFIX] && found[FIM_MIDDLE];
}

/* ---- Of a vocabulary ---- */

enum error_code fim_find(struct vocab *v, const struct gguf *g, struct error *e)
{
    find_by_text(v);
    for (int role = 0; role < FIM_ROLES; role++) {
        int64_t id;
        enum error_code error = vocab_id(v, g, roles[role].key, &id, e);
        if (!error && id < 0 && roles[role].old_key)
            error = vocab_id(v, g, roles[role].old_key, &id, e);
        if (error)
            return error;
        if (id >= 0)
            v->fim[role] = id;
        if (roles[role].ends && v->fim[role] >= 0)
            v->tokens[v->fim[role]].ends = true;
    }
    return ERROR_OK;
}
