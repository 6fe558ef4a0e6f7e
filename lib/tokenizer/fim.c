/* Finds the tokens for fill-in-the-middle; see fim.h. */
#include "tokenizer/fim.h"

#include "tokenizer/vocab.h"

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

/* The tokens that have a text of a role: the first token with the first one of the texts. */
struct found {
    int64_t id[FIM_ROLES]; /* -1: there is none */
    int rank[FIM_ROLES];   /* of its text */
};

static void found_init(struct found *f)
{
    for (int role = 0; role < FIM_ROLES; role++) {
        f->id[role] = -1;
        f->rank[role] = TEXTS_MAX;
    }
}

/* The text's place among those of the role; TEXTS_MAX: it has none. */
static int rank_of(struct gguf_string text, enum fim_role role)
{
    for (int rank = 0; rank < TEXTS_MAX && roles[role].texts[rank]; rank++)
        if (gguf_string_is(text, roles[role].texts[rank]))
            return rank;
    return TEXTS_MAX;
}

static void look_at(struct found *f, int64_t id, int32_t type, struct gguf_string text)
{
    if (!vocab_may_be_mark(type, text))
        return;
    for (int role = 0; role < FIM_ROLES; role++) {
        int rank = rank_of(text, role);
        if (rank < f->rank[role]) {
            f->rank[role] = rank;
            f->id[role] = id;
        }
    }
}

/* The token that the file's keys name; -1: they name none. */
static enum error_code id_of_key(const struct gguf *g, enum fim_role role, uint64_t count,
                                 int64_t *id, struct error *e)
{
    enum error_code error = vocab_id(g, roles[role].key, count, id, e);
    if (!error && *id < 0 && roles[role].old_key)
        error = vocab_id(g, roles[role].old_key, count, id, e);
    return error;
}

bool fim_is_in(const struct gguf *g)
{
    struct found found;
    const struct gguf_kv *texts, *types;
    struct gguf_string text;
    struct error e;
    uint64_t cursor = 0;
    if (vocab_array(g, KEY("tokens"), GGUF_STRING, &texts, &e) ||
        vocab_token_array(g, KEY("token_type"), GGUF_I32, texts->count, &types, &e))
        return false;
    found_init(&found);
    for (int64_t id = 0; gguf_next_string(texts, &cursor, &text); id++)
        look_at(&found, id, vocab_type_in(types, (uint64_t)id), text);
    for (int role = 0; role < FIM_PAD; role++) { /* the three roles before it */
        int64_t id;
        if (found.id[role] < 0 && (id_of_key(g, role, texts->count, &id, &e) || id < 0))
            return false;
    }
    return true;
}

enum error_code fim_find(struct vocab *v, const struct gguf *g, struct error *e)
{
    struct found found;
    found_init(&found);
    for (uint32_t id = 0; id < v->count; id++)
        look_at(&found, id, v->tokens[id].type, vocab_text(v, id));
    for (int role = 0; role < FIM_ROLES; role++) {
        int64_t id;
        enum error_code error = id_of_key(g, role, v->count, &id, e);
        if (error)
            return error;
        v->fim[role] = id < 0 ? found.id[role] : id;
        if (roles[role].ends && v->fim[role] >= 0)
            v->tokens[v->fim[role]].ends = true;
    }
    return ERROR_OK;
}
