/* Prompts for fill-in-the-middle; see fill.h. */
#include "client/http/api/fill.h"

#include "base/utf8.h"
#include "client/chat/chat_model.h"
#include "client/http/api/ask.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Tokens around the cursor: three quarters before it, a quarter behind it. llama-server takes its
 * batch, which is 2048 where nobody sets it. */
#define WINDOW 2048u
/* Tokens that are left to the answer, at most a quarter of the context. Like the window it does not
 * depend on the request, so that the extra text is cut at the same place with each keystroke, and
 * is found in the KV cache. */
#define ANSWER 512u

/* Of a text that is cut, first so many bytes a token that can stay are encoded, then four times as
 * many, until there are enough tokens; the last ones, beside the cut, may differ from the whole
 * text's. */
#define BYTES_PER_TOKEN 8u
#define BESIDE_CUT      64u
#define TEXT_BYTES      (3u << 20) /* a message to the worker has a limit of 4 MiB */
#define CUT_SEARCH      4096u      /* for a newline: a line's tokens are the same by itself */

/* What llama-server writes into prompts. */
#define REPOSITORY "myproject\n"
#define THIS_FILE  "filename\n"
#define OTHER_FILE "tmp"
#define SNIPPET    "\n\n--- snippet ---\n\n" /* where the vocabulary has no mark of files */

/* ---- The arrangement ---- */

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* Drops ids from the front. */
static void keep_last(struct fill_ids *part, size_t n)
{
    size_t dropped = part->count - least(n, part->count);
    if (dropped)
        memmove(part->ids, part->ids + dropped, (part->count - dropped) * sizeof *part->ids);
    part->count -= dropped;
}

static size_t window_of(uint32_t context)
{
    return least(WINDOW, context - least(ANSWER, context / 4));
}

static size_t extra_of(uint32_t context)
{
    return context - least(ANSWER, context / 4) - window_of(context);
}

void fill_cut(struct fill_parts *parts, uint32_t context)
{
    size_t window = window_of(context), behind = window / 4, marks = 2;
    keep_last(&parts->line, window);
    keep_last(&parts->prefix, least(3 * (window / 4), window - parts->line.count));
    size_t used = marks + parts->line.count;
    parts->suffix.count = least(parts->suffix.count, behind > used ? behind - used : 0);
    keep_last(&parts->extra, extra_of(context));
}

static size_t put(const struct fill_ids *part, uint32_t *out, size_t n)
{
    if (part->count)
        memcpy(out + n, part->ids, part->count * sizeof *out);
    return n + part->count;
}

size_t fill_join(const struct fill_parts *parts, uint32_t *out)
{
    size_t n = put(&parts->extra, out, 0);
    if (parts->begin >= 0)
        out[n++] = (uint32_t)parts->begin;
    out[n++] = (uint32_t)parts->marks.prefix;
    n = put(&parts->prefix, out, n);
    n = put(&parts->line, out, n);
    out[n++] = (uint32_t)parts->marks.suffix;
    n = put(&parts->suffix, out, n);
    out[n++] = (uint32_t)parts->marks.middle;
    return n;
}

/* ---- The tokens of texts ---- */

static enum moed_code no_memory(struct moed_error *error)
{
    *error = (struct moed_error){.code = MOED_ERROR_MEMORY, .message = "no memory for the prompt"};
    return MOED_ERROR_MEMORY;
}

static enum moed_code add_ids(struct fill_ids *part, const uint32_t *ids, size_t n,
                              struct moed_error *error)
{
    if (n == 0)
        return MOED_OK;
    uint32_t *grown = realloc(part->ids, (part->count + n) * sizeof *grown);
    if (!grown)
        return no_memory(error);
    part->ids = grown;
    memcpy(grown + part->count, ids, n * sizeof *ids);
    part->count += n;
    return MOED_OK;
}

/* A file may contain texts of special tokens: they stay text. */
static enum moed_code encode(struct moed_session *session, struct moed_bytes text,
                             struct fill_ids *out, struct moed_error *error)
{
    const struct moed_range all = {.start = 0, .end = text.len};
    uint32_t *ids = NULL;
    size_t n = 0;
    enum moed_code code =
        moed_tokenize_ranges(session, text.data, text.len, 0, &all, 1, &ids, &n, error);
    if (!code)
        code = add_ids(out, ids, n, error);
    moed_free(ids);
    return code;
}

static enum moed_code add_text(struct moed_session *session, struct fill_ids *part,
                               const char *text, size_t len, struct moed_error *error)
{
    return len ? encode(session, (struct moed_bytes){text, len}, part, error) : MOED_OK;
}

/* ---- The tokens of texts that are cut ---- */

struct moed_bytes fill_last_bytes(struct moed_bytes text, size_t n)
{
    if (n >= text.len)
        return text;
    const char *end = text.data + text.len, *at = end - n;
    const char *newline = memchr(at, '\n', least(n / 2, CUT_SEARCH));
    if (newline)
        at = newline + 1;
    while (at < end && utf8_continues(*at))
        at++;
    return (struct moed_bytes){at, (size_t)(end - at)};
}

struct moed_bytes fill_first_bytes(struct moed_bytes text, size_t n)
{
    if (n >= text.len)
        return text;
    size_t search = least(n / 2, CUT_SEARCH);
    const char *newline = memrchr(text.data + n - search, '\n', search);
    if (newline)
        n = (size_t)(newline - text.data) + 1;
    while (n && utf8_continues(text.data[n]))
        n--;
    return (struct moed_bytes){text.data, n};
}

/* The tokens of a text of which at most n stay: at least its last (or first) n, or all. */
static enum moed_code encode_some(struct moed_session *session, struct moed_bytes text, size_t n,
                                  bool last, struct fill_ids *out, struct moed_error *error)
{
    enum moed_code code = MOED_OK;
    size_t enough = n + BESIDE_CUT;
    *out = (struct fill_ids){0};
    for (size_t bytes = enough * BYTES_PER_TOKEN; text.len && n && !code; bytes *= 4) {
        size_t most = least(bytes, TEXT_BYTES);
        struct moed_bytes some = last ? fill_last_bytes(text, most) : fill_first_bytes(text, most);
        out->count = 0;
        code = encode(session, some, out, error);
        if (out->count >= enough || some.len == text.len || most == TEXT_BYTES)
            break;
    }
    return code;
}

/* ---- The extra text ---- */

/* Ids that come from the last to the first, until there is no space. */
struct tail {
    uint32_t *ids;
    size_t free; /* before the first */
};

static void put_before(struct tail *tail, const struct fill_ids *part)
{
    size_t n = least(part->count, tail->free);
    tail->free -= n;
    if (n)
        memcpy(tail->ids + tail->free, part->ids + part->count - n, n * sizeof *part->ids);
}

static void put_mark(struct tail *tail, int64_t mark)
{
    uint32_t id = (uint32_t)mark;
    put_before(tail, &(struct fill_ids){&id, 1});
}

static enum moed_code put_text(struct moed_session *session, struct tail *tail, const char *text,
                               size_t len, struct moed_error *error)
{
    struct fill_ids ids;
    enum moed_code code =
        encode_some(session, (struct moed_bytes){text, len}, tail->free, true, &ids, error);
    if (!code)
        put_before(tail, &ids);
    free(ids.ids);
    return code;
}

/* A name and the end of its line are encoded together. */
static enum moed_code put_file(struct moed_session *session, struct tail *tail, int64_t mark,
                               const char *name, size_t len, struct moed_error *error)
{
    struct strbuf line;
    strbuf_init(&line);
    strbuf_append(&line, name, len);
    strbuf_append(&line, "\n", 1);
    enum moed_code code =
        line.failed ? no_memory(error) : put_text(session, tail, line.data, line.len, error);
    strbuf_fini(&line);
    put_mark(tail, mark);
    return code;
}

static enum moed_code put_chunk(struct moed_session *session, struct tail *tail,
                                const struct moed_fim *marks, const json_t *chunk,
                                struct moed_error *error)
{
    const json_t *name = json_object_get(chunk, "filename"), *text = json_object_get(chunk, "text");
    enum moed_code code =
        put_text(session, tail, json_string_value(text), json_string_length(text), error);
    if (code)
        return code;
    if (marks->file < 0)
        return put_text(session, tail, SNIPPET, strlen(SNIPPET), error);
    bool named = json_is_string(name);
    return put_file(session, tail, marks->file, named ? json_string_value(name) : OTHER_FILE,
                    named ? json_string_length(name) : strlen(OTHER_FILE), error);
}

/* The repository, its files, and the line that begins the file of the cursor, from the last to the
 * first: what does not stay is not encoded. */
static enum moed_code put_extra(struct moed_session *session, struct tail *tail,
                                const struct moed_fim *marks, const json_t *extra,
                                struct moed_error *error)
{
    enum moed_code code = MOED_OK;
    if (marks->file >= 0)
        code = put_file(session, tail, marks->file, THIS_FILE, strlen(THIS_FILE) - 1, error);
    for (size_t i = json_array_size(extra); i > 0 && tail->free && !code; i--)
        code = put_chunk(session, tail, marks, json_array_get(extra, i - 1), error);
    if (code || marks->repository < 0)
        return code;
    code = put_text(session, tail, REPOSITORY, strlen(REPOSITORY), error);
    put_mark(tail, marks->repository);
    return code;
}

static enum moed_code add_extra(struct moed_session *session, struct fill_parts *parts,
                                const json_t *extra, uint32_t context, struct moed_error *error)
{
    size_t most = extra_of(context);
    struct tail tail = {malloc((most + 1) * sizeof *tail.ids), most};
    if (!tail.ids)
        return no_memory(error);
    enum moed_code code = put_extra(session, &tail, &parts->marks, extra, error);
    if (!code)
        code = add_ids(&parts->extra, tail.ids + tail.free, most - tail.free, error);
    free(tail.ids);
    return code;
}

/* ---- The prompts ---- */

bool fill_is_possible(const struct moed_fim *marks)
{
    return marks->prefix >= 0 && marks->suffix >= 0 && marks->middle >= 0;
}

static enum moed_code check_marks(const struct moed_fim *marks, struct moed_error *error)
{
    if (fill_is_possible(marks))
        return MOED_OK;
    *error = (struct moed_error){.code = MOED_ERROR_UNSUPPORTED};
    snprintf(error->message, sizeof error->message,
             "Infill is not supported by this model: its vocabulary has no token for %s",
             marks->prefix < 0   ? "the prefix"
             : marks->suffix < 0 ? "the suffix"
                                 : "the middle");
    return error->code;
}

/* All but the suffix, which the prompts share. */
static void free_parts(struct fill_parts *parts)
{
    free(parts->prefix.ids);
    free(parts->line.ids);
    free(parts->extra.ids);
}

/* Of /infill: what does not stay is not encoded. */
static enum moed_code read_cut(struct moed_session *session, const struct ask_fill *fill,
                               const struct ask_prompt *prompt, struct fill_parts *parts,
                               uint32_t context, struct moed_error *error)
{
    size_t window = window_of(context);
    enum moed_code code = add_extra(session, parts, fill->extra, context, error);
    if (!code)
        code = encode_some(session, fill->prefix, window, true, &parts->prefix, error);
    if (!code)
        code = encode_some(session, (struct moed_bytes){prompt->text, prompt->text_bytes}, window,
                           true, &parts->line, error);
    return code;
}

static enum moed_code read_whole(struct moed_session *session, const struct ask_fill *fill,
                                 const struct ask_prompt *prompt, struct fill_parts *parts,
                                 struct moed_error *error)
{
    enum moed_code code =
        add_text(session, &parts->prefix, fill->prefix.data, fill->prefix.len, error);
    if (!code && prompt->text)
        code = add_text(session, &parts->line, prompt->text, prompt->text_bytes, error);
    else if (!code)
        code = add_ids(&parts->line, prompt->tokens, prompt->token_count, error);
    return code;
}

static enum moed_code join(const struct fill_parts *parts, struct ask_prompt *prompt,
                           struct moed_error *error)
{
    size_t marks = 4, most = parts->extra.count + parts->prefix.count + parts->line.count +
                             parts->suffix.count + marks;
    uint32_t *all = malloc(most * sizeof *all);
    if (!all)
        return no_memory(error);
    free(prompt->tokens);
    prompt->tokens = all;
    prompt->token_count = fill_join(parts, all);
    return MOED_OK;
}

/* common: of all prompts. */
static enum moed_code fill_prompt(struct answer *a, const struct fill_parts *common,
                                  uint32_t context, struct ask_prompt *prompt,
                                  struct moed_error *error)
{
    const struct ask_fill *fill = &a->ask.fill;
    struct moed_session *session = a->deployment->answering.session;
    struct fill_parts parts = *common;
    /* an answer that repeats its prompt repeats the text before the cursor */
    enum moed_code code = ask_show_prompt(&a->ask, prompt, session, error);
    if (!code && fill->infill)
        code = read_cut(session, fill, prompt, &parts, context, error);
    else if (!code)
        code = read_whole(session, fill, prompt, &parts, error);
    if (!code && fill->infill)
        fill_cut(&parts, context);
    if (!code)
        code = join(&parts, prompt, error);
    free_parts(&parts);
    return code;
}

/* Each prompt has the suffix. */
static enum moed_code check_suffix(const struct fill_ids *suffix, uint32_t context,
                                   struct moed_error *error)
{
    if (suffix->count < context)
        return MOED_OK;
    *error = (struct moed_error){.code = MOED_ERROR_CONTEXT};
    snprintf(error->message, sizeof error->message,
             "this model's maximum context length is %u tokens, but the suffix has %zu", context,
             suffix->count);
    return error->code;
}

static enum moed_code read_common(struct answer *a, const struct moed_model *model,
                                  struct fill_parts *common, struct moed_error *error)
{
    const struct ask_fill *fill = &a->ask.fill;
    struct moed_session *session = a->deployment->answering.session;
    enum moed_code code = check_marks(&common->marks, error);
    if (!code)
        code = chat_begin_token(session, model->bos, &common->begin, error);
    if (code)
        return code;
    if (fill->infill)
        return encode_some(session, fill->suffix, window_of(model->context), false, &common->suffix,
                           error);
    code = add_text(session, &common->suffix, fill->suffix.data, fill->suffix.len, error);
    return code ? code : check_suffix(&common->suffix, model->context, error);
}

enum moed_code fill_prompts(struct answer *a, struct moed_error *error)
{
    struct moed_model *model;
    enum moed_code code = moed_model_get(a->deployment->answering.session, &model, error);
    if (code)
        return code;
    struct fill_parts common = {.marks = model->fim, .begin = -1};
    code = read_common(a, model, &common, error);
    for (size_t i = 0; i < a->ask.prompt_count && !code; i++)
        code = fill_prompt(a, &common, model->context, &a->ask.prompts[i], error);
    free(common.suffix.ids);
    moed_model_free(model);
    return code;
}
