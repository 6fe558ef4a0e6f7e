/* The tokenizer; see tokenizer.h. It cuts special tokens out of the text and encodes the texts
 * between them by the vocabulary's model. */
#include "tokenizer/tokenizer.h"

#include "tokenizer/bpe.h"
#include "tokenizer/piece.h"
#include "tokenizer/pretokenizer.h"
#include "tokenizer/special.h"
#include "tokenizer/spm.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define TEXT_BYTES_MAX (1u << 30) /* positions in a text are 32 bits */

struct tokenizer {
    struct vocab vocab;
    struct bpe bpe;                   /* gpt2, gemma4 */
    struct pretokenizer pretokenizer; /* gpt2, gemma4 */
    const struct pretokenizer_kind *kind;
    struct special_set specials;     /* control, unknown and user-defined */
    struct special_set user_defined; /* found in every text */
};

/* A string key; an empty string if it is absent. */
static enum error_code string_key(const struct gguf *g, const char *key, struct gguf_string *out,
                                  struct error *e)
{
    *out = (struct gguf_string){.data = "", .len = 0};
    return gguf_find(g, key) ? gguf_get_string(g, key, out, e) : ERROR_OK;
}

static int printed_length(uint64_t len)
{
    return len < 64 ? (int)len : 64;
}

static enum error_code find_model(const struct gguf *g, enum vocab_model *out, struct error *e)
{
    struct gguf_string model;
    enum error_code error = string_key(g, "tokenizer.ggml.model", &model, e);
    if (error)
        return error;
    if (!gguf_find(g, "tokenizer.ggml.model"))
        return error_set(e, ERROR_FORMAT,
                         "%s: key 'tokenizer.ggml.model' is missing: the file has no tokenizer",
                         gguf_path(g, 0));
    if (gguf_string_is(model, "gpt2"))
        *out = VOCAB_GPT2;
    else if (gguf_string_is(model, "llama"))
        *out = VOCAB_LLAMA;
    else if (gguf_string_is(model, "gemma4"))
        *out = VOCAB_GEMMA4;
    else
        return error_set(
            e, ERROR_UNSUPPORTED,
            "%s: tokenizer model '%.*s' is not supported; known are gpt2, llama, gemma4",
            gguf_path(g, 0), printed_length(model.len), model.data);
    return ERROR_OK;
}

/* Without its directory, which would leave too little of a message for a long list. */
static const char *file_name(const struct gguf *g)
{
    const char *slash = strrchr(gguf_path(g, 0), '/');
    return slash ? slash + 1 : gguf_path(g, 0);
}

/* The pre-tokenizer by the caller's name, else the file's, else "default". The llama model does not
 * use it, and gemma4 has its own: there only the caller's name is checked. */
static enum error_code find_kind(const struct gguf *g, enum vocab_model model, const char *pre,
                                 const struct pretokenizer_kind **out, struct error *e)
{
    struct gguf_string name;
    enum error_code error = string_key(g, "tokenizer.ggml.pre", &name, e);
    if (error)
        return error;
    if (pre)
        name = (struct gguf_string){.data = pre, .len = strlen(pre)};
    else if (model == VOCAB_GEMMA4)
        name = (struct gguf_string){.data = "gemma4", .len = 6};
    else if (name.len == 0 || model == VOCAB_LLAMA)
        name = (struct gguf_string){.data = "default", .len = 7};
    const struct pretokenizer_kind *kind = pretokenizer_kind_find(name.data, (size_t)name.len);
    if (!kind) {
        char known[ERROR_TEXT_BYTES];
        pretokenizer_kind_names(known, sizeof known);
        return error_set(e, ERROR_UNSUPPORTED,
                         "%s: pre-tokenizer '%.*s' is not supported; known are %s", file_name(g),
                         printed_length(name.len), name.data, known);
    }
    *out = model == VOCAB_GEMMA4 ? pretokenizer_kind_find("gemma4", 6) : kind;
    return ERROR_OK;
}

static bool is_user_defined(const struct vocab *v, uint32_t id)
{
    return v->tokens[id].type == TOKEN_USER_DEFINED;
}

static bool is_any_special(const struct vocab *v, uint32_t id)
{
    return token_is_special(&v->tokens[id]) || is_user_defined(v, id);
}

static enum error_code collect(struct special_set *set, const struct vocab *v, const char *path,
                               bool (*belongs)(const struct vocab *v, uint32_t id), struct error *e)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < v->count; i++)
        count += belongs(v, i);
    uint32_t *ids = malloc((count ? count : 1) * sizeof *ids);
    if (!ids)
        return error_set(e, ERROR_MEMORY, "%s: out of memory for the tokenizer", path);
    count = 0;
    for (uint32_t i = 0; i < v->count; i++) {
        if (belongs(v, i))
            ids[count++] = i;
    }
    bool ok = special_set_init(set, ids, count, &v->symbols);
    int why = errno;
    free(ids);
    if (ok)
        return ERROR_OK;
    if (why == E2BIG)
        return error_set(e, ERROR_LIMIT,
                         "%s: the texts of control and user-defined tokens have more than %u bytes",
                         path, SPECIAL_BYTES_MAX);
    return error_set(e, ERROR_MEMORY, "%s: out of memory for the tokenizer", path);
}

enum error_code tokenizer_new(const struct gguf *g, const char *pre, struct tokenizer **out,
                              struct error *e)
{
    enum vocab_model model = VOCAB_GPT2;
    const struct pretokenizer_kind *kind = NULL;
    enum error_code error = find_model(g, &model, e);
    if (!error)
        error = find_kind(g, model, pre, &kind, e);
    if (error)
        return error;
    struct tokenizer *t = calloc(1, sizeof *t);
    if (!t)
        return error_set(e, ERROR_MEMORY, "%s: out of memory for the tokenizer", gguf_path(g, 0));
    t->kind = kind;
    error = vocab_init(&t->vocab, g, model, model == VOCAB_LLAMA || kind->adds_bos, e);
    if (!error)
        error = fim_find(&t->vocab, g, e);
    if (!error && model != VOCAB_LLAMA)
        error = bpe_init(&t->bpe, &t->vocab, g, e);
    if (!error && model != VOCAB_LLAMA)
        error = pretokenizer_init(&t->pretokenizer, kind, e);
    if (!error)
        error = collect(&t->specials, &t->vocab, gguf_path(g, 0), is_any_special, e);
    if (!error)
        error = collect(&t->user_defined, &t->vocab, gguf_path(g, 0), is_user_defined, e);
    if (error) {
        tokenizer_free(t);
        return error;
    }
    *out = t;
    return ERROR_OK;
}

void tokenizer_free(struct tokenizer *t)
{
    if (!t)
        return;
    special_set_fini(&t->specials);
    special_set_fini(&t->user_defined);
    pretokenizer_fini(&t->pretokenizer);
    bpe_fini(&t->bpe);
    vocab_fini(&t->vocab);
    free(t);
}

/* One call of tokenizer_encode. */
struct encoding {
    const struct tokenizer *tokenizer;
    struct merge_space space;
    struct special_scan scan;
    const struct plain_range *plain;
    size_t plain_count, plain_next; /* plain_next: the first that ends behind the search */
    struct token_list *out;
    struct error *error;
};

static enum error_code out_of_memory(struct encoding *c)
{
    return error_set(c->error, ERROR_MEMORY, "tokenizer: out of memory");
}

static bool encode_piece(void *context, const char *piece, size_t len)
{
    struct encoding *c = context;
    const struct tokenizer *t = c->tokenizer;
    bool whole = t->kind->ignore_merges || (t->bpe.characters && len > 0 && piece[0] == '\n');
    return bpe_encode(&t->bpe, &t->vocab, whole, &c->space, piece, len, c->out);
}

static enum error_code encode_spm(struct encoding *c, const char *text, size_t len)
{
    const struct vocab *v = &c->tokenizer->vocab;
    char *spaced = NULL;
    if (v->add_space) {
        spaced = malloc(len + 1);
        if (!spaced)
            return out_of_memory(c);
        spaced[0] = ' ';
        memcpy(spaced + 1, text, len);
        text = spaced;
        len++;
    }
    bool encoded = spm_encode(v, &c->space, text, len, c->out);
    free(spaced);
    return encoded ? ERROR_OK : out_of_memory(c);
}

/* Text between special tokens. */
static enum error_code encode_text(struct encoding *c, const char *text, size_t len)
{
    if (len == 0)
        return ERROR_OK;
    if (c->tokenizer->vocab.model == VOCAB_LLAMA)
        return encode_spm(c, text, len);
    return pretokenizer_split(&c->tokenizer->pretokenizer, text, len, encode_piece, c, c->error);
}

static size_t skip_white_space(const char *text, size_t len, size_t from)
{
    while (from < len && text[from] && strchr(" \t\n\v\f\r", text[from]))
        from++;
    return from;
}

static bool marks_turn(const struct vocab *v, uint32_t id)
{
    const char *text = (const char *)symbol_bytes(&v->symbols, id);
    size_t len = v->symbols.symbols[id].length;
    bool opens = len > 3 && memcmp(text, "<|", 2) == 0; /* Gemma 4: <|turn>, <turn|> */
    bool closes = len > 3 && memcmp(text + len - 2, "|>", 2) == 0;
    bool mark = text[0] == '<' && text[len - 1] == '>' && (opens || closes);
    return !is_user_defined(v, id) || mark || v->tokens[id].ends;
}

/* Whether the match is plain text, because a byte of it lies in a plain range. */
static bool is_plain(struct encoding *c, const struct special_match *match)
{
    while (c->plain_next < c->plain_count && c->plain[c->plain_next].end <= match->start)
        c->plain_next++;
    bool inside = c->plain_next < c->plain_count &&
                  c->plain[c->plain_next].start < match->start + match->length;
    return inside && marks_turn(&c->tokenizer->vocab, match->id);
}

/* The next special token at or after `from` that is no plain text. */
static bool find_special(struct encoding *c, size_t from, struct special_match *match)
{
    while (special_scan_find(&c->scan, from, match)) {
        if (!is_plain(c, match))
            return true;
        from = match->start + 1;
    }
    return false;
}

static enum error_code encode_all(struct encoding *c, const char *text, size_t len, unsigned flags)
{
    const struct tokenizer *t = c->tokenizer;
    const struct vocab *v = &t->vocab;
    const struct special_set *set =
        flags & TOKENIZE_PARSE_SPECIAL ? &t->specials : &t->user_defined;
    bool add = flags & TOKENIZE_ADD_SPECIAL;
    size_t done = 0;
    struct special_match match;
    special_scan_init(&c->scan, set, &v->symbols, text, len);
    bool found = find_special(c, 0, &match);
    bool has_bos = found && match.start == 0 && match.id == (uint32_t)v->bos;
    bool begin = add || (flags & TOKENIZE_ADD_BEGIN);
    if (begin && v->add_bos && v->bos >= 0 && !has_bos &&
        !token_list_push(c->out, (uint32_t)v->bos))
        return out_of_memory(c);
    for (; found; found = find_special(c, done, &match)) {
        enum error_code error = encode_text(c, text + done, match.start - done);
        if (error)
            return error;
        if (!token_list_push(c->out, match.id))
            return out_of_memory(c);
        done = match.start + match.length;
        if (v->tokens[match.id].strips_right)
            done = skip_white_space(text, len, done);
    }
    enum error_code error = encode_text(c, text + done, len - done);
    if (error)
        return error;
    if (add && v->add_eos && v->eos >= 0 && !token_list_push(c->out, (uint32_t)v->eos))
        return out_of_memory(c);
    return ERROR_OK;
}

static bool ranges_valid(const struct plain_range *plain, size_t count, size_t len)
{
    size_t end = 0;
    for (size_t i = 0; i < count; i++) {
        if (plain[i].start < end || plain[i].end < plain[i].start)
            return false;
        end = plain[i].end;
    }
    return end <= len;
}

enum error_code tokenizer_encode(const struct tokenizer *t, const char *text, size_t len,
                                 unsigned flags, struct token_list *out, struct error *e)
{
    return tokenizer_encode_ranges(t, text, len, flags, NULL, 0, out, e);
}

enum error_code tokenizer_encode_ranges(const struct tokenizer *t, const char *text, size_t len,
                                        unsigned flags, const struct plain_range *plain,
                                        size_t plain_count, struct token_list *out, struct error *e)
{
    if (!ranges_valid(plain, plain_count, len))
        return error_set(e, ERROR_USAGE,
                         "tokenizer: the plain ranges are not in order inside the text");
    if (len > TEXT_BYTES_MAX)
        return error_set(e, ERROR_LIMIT, "tokenizer: a text of %zu bytes is too long, at most %u",
                         len, TEXT_BYTES_MAX);
    struct encoding c; /* large: not to be zeroed for each short text */
    c.tokenizer = t;
    c.space = (struct merge_space){0};
    c.plain = plain;
    c.plain_count = plain_count;
    c.plain_next = 0;
    c.out = out;
    c.error = e;
    size_t count = out->count;
    enum error_code error = encode_all(&c, len ? text : "", len, flags);
    merge_space_fini(&c.space);
    if (error)
        out->count = count;
    return error;
}

bool tokenizer_piece_at(const struct tokenizer *t, uint32_t id, bool special, bool *at_start,
                        struct strbuf *out)
{
    const struct vocab *v = &t->vocab;
    if (id >= v->count)
        return false;
    const struct token_info *info = &v->tokens[id];
    bool hidden = info->type == TOKEN_UNUSED || info->type == TOKEN_UNDEFINED ||
                  (token_is_special(info) && !special);
    const uint8_t *bytes = symbol_bytes(&v->symbols, id);
    size_t len = v->symbols.symbols[id].length;
    /* Encoding adds a space before each text, also after a special token. */
    bool plain = !is_any_special(v, id);
    if (*at_start && plain && v->add_space && len > 0 && bytes[0] == ' ') {
        bytes++;
        len--;
    }
    *at_start = !plain;
    if (!hidden)
        strbuf_append(out, bytes, len);
    return true;
}

bool tokenizer_piece(const struct tokenizer *t, uint32_t id, bool special, struct strbuf *out)
{
    bool at_start = false;
    return tokenizer_piece_at(t, id, special, &at_start, out);
}

enum error_code tokenizer_decode(const struct tokenizer *t, const uint32_t *ids, size_t count,
                                 bool special, struct strbuf *out, struct error *e)
{
    for (size_t i = 0; i < count; i++) {
        if (ids[i] >= t->vocab.count)
            return error_set(e, ERROR_USAGE, "token id %u is not in the vocabulary of %u tokens",
                             ids[i], t->vocab.count);
    }
    bool at_start = true;
    for (size_t i = 0; i < count; i++)
        (void)tokenizer_piece_at(t, ids[i], special, &at_start, out);
    return out->failed ? error_set(e, ERROR_MEMORY, "tokenizer: out of memory") : ERROR_OK;
}

uint32_t tokenizer_vocab_size(const struct tokenizer *t)
{
    return t->vocab.count;
}

bool tokenizer_is_end(const struct tokenizer *t, uint32_t id)
{
    return id < t->vocab.count && t->vocab.tokens[id].ends;
}

bool tokenizer_is_special(const struct tokenizer *t, uint32_t id)
{
    return id < t->vocab.count && token_is_special(&t->vocab.tokens[id]);
}

int64_t tokenizer_bos(const struct tokenizer *t)
{
    return t->vocab.bos;
}

int64_t tokenizer_eos(const struct tokenizer *t)
{
    return t->vocab.eos;
}

int64_t tokenizer_fim(const struct tokenizer *t, enum fim_role role)
{
    return t->vocab.fim[role];
}

const char *tokenizer_model(const struct tokenizer *t)
{
    static const char *const names[] = {
        [VOCAB_GPT2] = "gpt2", [VOCAB_LLAMA] = "llama", [VOCAB_GEMMA4] = "gemma4"};
    return names[t->vocab.model];
}

const char *tokenizer_pre(const struct tokenizer *t)
{
    return t->kind->name;
}
