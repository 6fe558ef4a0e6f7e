/* Prompts for fill-in-the-middle; see fill.h. */
#include "client/http/api/fill.h"

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

void fill_cut(struct fill_parts *parts, uint32_t context)
{
    size_t answer = least(ANSWER, context / 4), window = least(WINDOW, context - answer);
    size_t behind = window / 4, marks = 2;
    keep_last(&parts->line, window);
    keep_last(&parts->prefix, least(3 * (window / 4), window - parts->line.count));
    size_t used = marks + parts->line.count;
    parts->suffix.count = least(parts->suffix.count, behind > used ? behind - used : 0);
    keep_last(&parts->extra, context - answer - window);
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

static enum moed_code add_mark(struct fill_ids *part, int64_t mark, struct moed_error *error)
{
    uint32_t id = (uint32_t)mark;
    return add_ids(part, &id, 1, error);
}

/* A file may contain texts of special tokens: they stay text. */
static enum moed_code add_text(struct moed_session *session, struct fill_ids *part,
                               const char *text, size_t len, struct moed_error *error)
{
    const struct moed_range all = {.start = 0, .end = len};
    uint32_t *ids = NULL;
    size_t n = 0;
    if (len == 0)
        return MOED_OK;
    enum moed_code code = moed_tokenize_ranges(session, text, len, 0, &all, 1, &ids, &n, error);
    if (!code)
        code = add_ids(part, ids, n, error);
    moed_free(ids);
    return code;
}

/* A name and the end of its line are encoded together. */
static enum moed_code add_file(struct moed_session *session, struct fill_ids *part, int64_t mark,
                               const char *name, size_t len, struct moed_error *error)
{
    struct strbuf line;
    strbuf_init(&line);
    strbuf_append(&line, name, len);
    strbuf_append(&line, "\n", 1);
    enum moed_code code = line.failed ? no_memory(error) : add_mark(part, mark, error);
    if (!code)
        code = add_text(session, part, line.data, line.len, error);
    strbuf_fini(&line);
    return code;
}

static enum moed_code add_chunk(struct moed_session *session, struct fill_parts *parts,
                                const json_t *chunk, struct moed_error *error)
{
    const json_t *name = json_object_get(chunk, "filename"), *text = json_object_get(chunk, "text");
    enum moed_code code;
    if (parts->marks.file >= 0)
        code = add_file(session, &parts->extra, parts->marks.file,
                        name ? json_string_value(name) : OTHER_FILE,
                        name ? json_string_length(name) : strlen(OTHER_FILE), error);
    else
        code = add_text(session, &parts->extra, SNIPPET, strlen(SNIPPET), error);
    return code ? code
                : add_text(session, &parts->extra, json_string_value(text),
                           json_string_length(text), error);
}

/* The repository, its files, and the line that begins the file of the cursor. */
static enum moed_code add_extra(struct moed_session *session, struct fill_parts *parts,
                                const json_t *extra, struct moed_error *error)
{
    enum moed_code code = MOED_OK;
    if (parts->marks.repository >= 0)
        code = add_mark(&parts->extra, parts->marks.repository, error);
    if (!code && parts->marks.repository >= 0)
        code = add_text(session, &parts->extra, REPOSITORY, strlen(REPOSITORY), error);
    for (size_t i = 0; i < json_array_size(extra) && !code; i++)
        code = add_chunk(session, parts, json_array_get(extra, i), error);
    if (!code && parts->marks.file >= 0)
        code = add_mark(&parts->extra, parts->marks.file, error);
    if (!code && parts->marks.file >= 0)
        code = add_text(session, &parts->extra, THIS_FILE, strlen(THIS_FILE), error);
    return code;
}

/* The token that begins texts, where the model's file asks for one. */
static enum moed_code find_begin(struct moed_session *session, const struct moed_model *model,
                                 int64_t *out, struct moed_error *error)
{
    uint32_t *ids = NULL;
    size_t n = 0;
    enum moed_code code = moed_tokenize(session, "", 0, MOED_ADD_SPECIAL, &ids, &n, error);
    *out = !code && n && ids[0] == model->bos ? model->bos : -1;
    moed_free(ids);
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

static enum moed_code read_parts(struct moed_session *session, const struct ask_fill *fill,
                                 const struct ask_prompt *prompt, struct fill_parts *parts,
                                 struct moed_error *error)
{
    enum moed_code code = MOED_OK;
    if (fill->infill)
        code = add_extra(session, parts, fill->extra, error);
    if (!code)
        code = add_text(session, &parts->prefix, fill->prefix.data, fill->prefix.len, error);
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

/* An answer that repeats its prompt repeats the text before the cursor. */
static enum moed_code keep_shown(struct answer *a, struct ask_prompt *p, struct moed_error *error)
{
    if (!a->ask.echo || p->text)
        return MOED_OK;
    return moed_detokenize(a->deployment->session, p->tokens, p->token_count, true, &p->shown,
                           &p->shown_bytes, error);
}

/* common: of all prompts. */
static enum moed_code fill_prompt(struct answer *a, const struct fill_parts *common,
                                  uint32_t context, struct ask_prompt *prompt,
                                  struct moed_error *error)
{
    const struct ask_fill *fill = &a->ask.fill;
    struct fill_parts parts = *common;
    enum moed_code code = keep_shown(a, prompt, error);
    if (!code)
        code = read_parts(a->deployment->session, fill, prompt, &parts, error);
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
    struct moed_session *session = a->deployment->session;
    enum moed_code code = check_marks(&common->marks, error);
    if (!code)
        code = find_begin(session, model, &common->begin, error);
    if (!code)
        code = add_text(session, &common->suffix, fill->suffix.data, fill->suffix.len, error);
    return code || fill->infill ? code : check_suffix(&common->suffix, model->context, error);
}

enum moed_code fill_prompts(struct answer *a, struct moed_error *error)
{
    struct moed_model *model;
    enum moed_code code = moed_model_get(a->deployment->session, &model, error);
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
