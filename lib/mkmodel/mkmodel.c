/* Makes a plan and writes it to one or several GGUF files; see mkmodel.h. */
#include "mkmodel/mkmodel.h"

#include "gguf/gguf_write.h"
#include "mkmodel/generate.h"
#include "mkmodel/keys.h"
#include "mkmodel/plan.h"
#include "mkmodel/tensors.h"
#include "mkmodel/vocabulary.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

struct output {
    const struct plan *plan;
    const struct vocabulary *vocabulary;
    char *base;                 /* the path without ".gguf" */
    const char *path;           /* as given, for a single file */
    struct gguf_writer *writer; /* of the current file */
    uint32_t file;              /* its number */
    uint64_t next_tensor;       /* the first of the next file */
    uint64_t bytes_done;
    void (*progress)(uint64_t done, uint64_t total, void *arg);
    void *progress_arg;
};

/* ChatML: each message between <|im_start|>ROLE and <|im_end|>. */
static const char chat_template[] =
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";

static void write_text(struct gguf_writer *w, const char *key, const char *text)
{
    gguf_writer_string(w, key, text, strlen(text));
}

/* ---- the vocabulary ---- */

static void write_tokenizer_keys(struct gguf_writer *w, const struct plan *p,
                                 const struct vocabulary *v)
{
    write_text(w, "tokenizer.ggml.model", "gpt2");
    write_text(w, "tokenizer.ggml.pre", p->options.pre);
    gguf_writer_strings(w, "tokenizer.ggml.tokens", v->tokens, v->count);
    gguf_writer_i32s(w, "tokenizer.ggml.token_type", v->token_types, v->count);
    gguf_writer_strings(w, "tokenizer.ggml.merges", v->merges, v->merge_count);
    gguf_writer_u32(w, "tokenizer.ggml.bos_token_id", v->end_of_text);
    gguf_writer_u32(w, "tokenizer.ggml.eos_token_id", v->im_end);
    gguf_writer_u32(w, "tokenizer.ggml.padding_token_id", v->end_of_text);
    gguf_writer_bool(w, "tokenizer.ggml.add_bos_token", false);
    write_text(w, "tokenizer.chat_template", chat_template);
}

/* ---- files ---- */

static bool file_path(const struct output *out, uint32_t file, char *path, size_t size)
{
    int n = out->plan->options.split > 1 ? snprintf(path, size, "%s-%05u-of-%05u.gguf", out->base,
                                                    file + 1, out->plan->options.split)
                                         : snprintf(path, size, "%s", out->path);
    return n > 0 && (size_t)n < size;
}

/* One past the last tensor of file number `file`. A file takes tensors until it has its share of
 * the bytes, but leaves one tensor for each later file. */
static uint64_t file_end(const struct plan *p, uint32_t file, uint64_t first)
{
    uint32_t files = p->options.split, following = files - file - 1;
    if (following == 0)
        return p->count;
    uint64_t share = p->bytes / files, bytes = 0, i = first;
    while (i < p->count - following && (i == first || bytes < share))
        bytes += p->tensors[i++].bytes;
    return i;
}

static enum error_code begin_file(struct output *out, uint32_t file, struct error *e)
{
    const struct plan *p = out->plan;
    char path[4096];
    out->file = file; /* before any failure: all earlier files are finished */
    if (!file_path(out, file, path, sizeof path))
        return error_set(e, ERROR_USAGE, "%s: the path is too long", out->path);
    enum error_code code = gguf_writer_open(path, &out->writer, e);
    if (code != ERROR_OK)
        return code;
    if (file == 0) {
        keys_write(out->writer, p);
        write_tokenizer_keys(out->writer, p, out->vocabulary);
    }
    if (p->options.split > 1) { /* other programs read these widths only */
        gguf_writer_u16(out->writer, "split.no", (uint16_t)file);
        gguf_writer_u16(out->writer, "split.count", (uint16_t)p->options.split);
        gguf_writer_i32(out->writer, "split.tensors.count", (int32_t)p->count);
    }
    uint64_t first = out->next_tensor;
    out->next_tensor = file_end(p, file, first);
    for (uint64_t i = first; i < out->next_tensor; i++) {
        const struct planned_tensor *t = &p->tensors[i];
        gguf_writer_tensor(out->writer, t->name, t->type, t->n_dims, t->ne);
    }
    return ERROR_OK;
}

static enum error_code finish_file(struct output *out, struct error *e)
{
    struct gguf_writer *w = out->writer;
    out->writer = NULL; /* gguf_writer_close frees it, also after an error */
    return gguf_writer_close(w, e);
}

static enum error_code deliver(uint64_t tensor, const void *data, size_t len, void *arg,
                               struct error *e)
{
    struct output *out = arg;
    enum error_code code = ERROR_OK;
    if (tensor >= out->next_tensor) {
        code = finish_file(out, e);
        if (code == ERROR_OK)
            code = begin_file(out, out->file + 1, e);
    }
    if (code == ERROR_OK)
        code = gguf_writer_data(out->writer, data, len, e);
    out->bytes_done += len;
    if (code == ERROR_OK && out->progress)
        out->progress(out->bytes_done, out->plan->bytes, out->progress_arg);
    return code;
}

/* Checks the place before minutes of writing. */
static enum error_code check_place(const struct plan *p, const char *path, struct error *e)
{
    struct stat st;
    struct statvfs fs;
    if (stat(path, &st) == 0 && !S_ISREG(st.st_mode))
        return error_set(e, ERROR_IO, "%s: exists and is no regular file: give another name", path);
    const char *slash = strrchr(path, '/');
    char *directory = slash ? strndup(path, (size_t)(slash - path) + 1) : strdup(".");
    bool known = directory && statvfs(directory, &fs) == 0;
    free(directory);
    if (!known) /* creating the file will report the reason */
        return ERROR_OK;
    uint64_t free_bytes = (uint64_t)fs.f_bavail * fs.f_frsize;
    if (free_bytes >= p->bytes)
        return ERROR_OK;
    return error_set(e, ERROR_IO,
                     "%s: the model needs %.1f MB, but its file system has %.1f MB left: free some "
                     "or make a smaller model",
                     path, (double)p->bytes * 1e-6, (double)free_bytes * 1e-6);
}

/* After an error: a model with missing parts is useless. */
static void remove_finished_parts(const struct output *out)
{
    char path[4096];
    for (uint32_t i = 0; i < out->file; i++)
        if (file_path(out, i, path, sizeof path))
            unlink(path);
}

static enum error_code write_files(struct output *out, struct mkmodel_result *result,
                                   struct error *e)
{
    const struct plan *p = out->plan;
    enum error_code code = begin_file(out, 0, e);
    if (code == ERROR_OK)
        code = generate_tensors(p, p->options.threads, deliver, out, e);
    if (code == ERROR_OK)
        code = finish_file(out, e);
    gguf_writer_abort(out->writer);
    if (code != ERROR_OK) {
        remove_finished_parts(out);
        return code;
    }
    *result = (struct mkmodel_result){.bytes_written = out->bytes_done,
                                      .tensors = p->count,
                                      .tensors_of_other_type = p->other_type_count};
    file_path(out, 0, result->first_file, sizeof result->first_file);
    if (p->other_type_example)
        snprintf(result->other_type_example, sizeof result->other_type_example, "%s: %s",
                 p->other_type_example->name, tensor_type_info(p->other_type_example->type)->name);
    return ERROR_OK;
}

static void find_other_type_example(struct plan *p)
{
    for (uint64_t i = 0; i < p->count && !p->other_type_example; i++) {
        const struct planned_tensor *t = &p->tensors[i];
        bool asked = t->type == p->type || (p->mixed && t->type == TENSOR_Q6_K);
        if (!asked && t->type != TENSOR_F32)
            p->other_type_example = t;
    }
}

/* The options, checked, and the tensors; *p is empty where it fails. */
static enum error_code make_plan(struct plan *p, const struct mkmodel_options *o, struct error *e)
{
    enum error_code code = plan_init(p, o, e);
    if (code == ERROR_OK)
        code = tensors_list(p, e);
    if (code != ERROR_OK) {
        plan_fini(p);
        return code;
    }
    if (p->options.split > p->count)
        p->options.split = (uint32_t)p->count;
    if (p->other_type_count)
        find_other_type_example(p);
    return ERROR_OK;
}

enum error_code mkmodel_write(const struct mkmodel_options *o, const char *path,
                              void (*progress)(uint64_t done, uint64_t total, void *arg), void *arg,
                              struct mkmodel_result *result, struct error *e)
{
    struct plan p;
    struct vocabulary v;
    enum error_code code = make_plan(&p, o, e);
    if (code != ERROR_OK)
        return code;
    code = check_place(&p, path, e);
    if (code != ERROR_OK) {
        plan_fini(&p);
        return code;
    }
    code = vocabulary_init(&v, p.options.vocab, e);
    if (code != ERROR_OK) {
        plan_fini(&p);
        return code;
    }
    size_t len = strlen(path);
    if (len > 5 && strcmp(path + len - 5, ".gguf") == 0)
        len -= 5;
    struct output out = {.plan = &p,
                         .vocabulary = &v,
                         .base = strndup(path, len),
                         .path = path,
                         .progress = progress,
                         .progress_arg = arg};
    code = out.base ? write_files(&out, result, e)
                    : error_set(e, ERROR_MEMORY, "%s: no memory for its name", path);
    free(out.base);
    vocabulary_fini(&v);
    plan_fini(&p);
    return code;
}
