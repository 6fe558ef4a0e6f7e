/* Writes a trace; see trace.h. Chunks stream to the file (base/file_writer.h). Only embeddings
 * gather in memory, because a single one is too short for a chunk. */
#include "trace/layout.h"

#include "base/checked.h"
#include "base/file_writer.h"
#include "quant/quant.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Embeddings per chunk, and values that are converted at a time. */
enum { EMBEDDINGS_A_CHUNK = 256, BLOCK = 4096 };

struct trace_writer {
    struct file_writer *file;
    struct trace_shape shape;
    struct trace_file_end end;
    uint8_t *known_ids; /* one bit each */
    uint64_t capacity_ids;
    uint32_t n_gathered;
    uint32_t *gathered_ids; /* [EMBEDDINGS_A_CHUNK] */
    uint16_t *gathered;     /* [EMBEDDINGS_A_CHUNK][d_model] */
    bool failed;            /* a sequence or an embedding could not be written */
};

static void free_writer(struct trace_writer *w)
{
    file_writer_abandon(w->file);
    free(w->known_ids);
    free(w->gathered_ids);
    free(w->gathered);
    free(w);
}

static enum error_code begin_chunk(struct trace_writer *w, enum trace_chunk_kind kind,
                                   uint64_t bytes, struct error *e)
{
    struct trace_chunk_head head = {.kind = kind, .bytes = bytes};
    return file_writer_write(w->file, &head, sizeof head, e);
}

static enum error_code whole_chunk(struct trace_writer *w, enum trace_chunk_kind kind,
                                   const void *payload, uint64_t bytes, struct error *e)
{
    enum error_code code = begin_chunk(w, kind, bytes, e);
    if (!code)
        code = file_writer_write(w->file, payload, bytes, e);
    return code ? code : file_writer_pad(w->file, TRACE_ALIGN, e);
}

/* ---- the shape, the layers ---- */

static enum error_code write_shape(struct trace_writer *w, struct error *e)
{
    static const struct trace_file_head head = {.magic = TRACE_MAGIC, .version = TRACE_VERSION};
    const struct trace_shape *s = &w->shape;
    struct trace_file_shape f = {.n_layers = s->n_layers,
                                 .first_layer = s->first_layer,
                                 .n_experts = s->n_experts,
                                 .n_used = s->n_used,
                                 .d_model = s->d_model,
                                 .has = s->has,
                                 .dense_bytes = s->dense_bytes,
                                 .router_kind = s->router.kind,
                                 .n_groups = s->router.n_groups,
                                 .n_groups_used = s->router.n_groups_used,
                                 .renormalise = s->router.renormalise,
                                 .scale = s->router.scale};
    memcpy(f.model, s->model, strnlen(s->model, sizeof f.model - 1));
    enum error_code code = file_writer_write(w->file, &head, sizeof head, e);
    return code ? code : whole_chunk(w, TRACE_CHUNK_SHAPE, &f, sizeof f, e);
}

static enum error_code write_layers(struct trace_writer *w, const struct trace_layer *layers,
                                    struct error *e)
{
    const struct trace_shape *s = &w->shape;
    uint32_t n = trace_layers_with_experts(s);
    enum error_code code =
        begin_chunk(w, TRACE_CHUNK_LAYERS, n * sizeof(struct trace_file_layer), e);
    for (uint32_t i = s->first_layer; i < s->n_layers && !code; i++) {
        const struct trace_layer *l = &layers[i];
        struct trace_file_layer f = {.segment_bytes = l->segment_bytes,
                                     .n_segments = l->n_segments};
        if (s->has & TRACE_ROUTERS)
            f.has = (l->bias ? TRACE_LAYER_BIAS : 0u) |
                    (l->selection_bias ? TRACE_LAYER_SELECTION_BIAS : 0u);
        code = file_writer_write(w->file, &f, sizeof f, e);
    }
    return code ? code : file_writer_pad(w->file, TRACE_ALIGN, e);
}

static enum error_code write_routers(struct trace_writer *w, const struct trace_layer *layers,
                                     struct error *e)
{
    const struct trace_shape *s = &w->shape;
    uint64_t matrix = sizeof(float) * s->n_experts * s->d_model, bytes = 0;
    uint64_t vector = sizeof(float) * s->n_experts;
    for (uint32_t i = s->first_layer; i < s->n_layers; i++)
        bytes += matrix + (layers[i].bias ? vector : 0) + (layers[i].selection_bias ? vector : 0);
    enum error_code code = begin_chunk(w, TRACE_CHUNK_ROUTERS, bytes, e);
    for (uint32_t i = s->first_layer; i < s->n_layers && !code; i++) {
        code = file_writer_write(w->file, layers[i].matrix, matrix, e);
        if (!code && layers[i].bias)
            code = file_writer_write(w->file, layers[i].bias, vector, e);
        if (!code && layers[i].selection_bias)
            code = file_writer_write(w->file, layers[i].selection_bias, vector, e);
    }
    return code ? code : file_writer_pad(w->file, TRACE_ALIGN, e);
}

static bool all_numbers(const float *values, uint64_t n)
{
    for (uint64_t i = 0; values && i < n; i++)
        if (!isfinite(values[i]))
            return false;
    return true;
}

static enum error_code check_routers(const struct trace_shape *s, const struct trace_layer *l,
                                     uint32_t layer, struct error *e)
{
    if (!l->matrix)
        return error_set(e, ERROR_USAGE, "layer %" PRIu32 " has no router", layer);
    if (!all_numbers(l->matrix, (uint64_t)s->n_experts * s->d_model) ||
        !all_numbers(l->bias, s->n_experts) || !all_numbers(l->selection_bias, s->n_experts))
        return error_set(e, ERROR_USAGE, "the router of layer %" PRIu32 " holds an infinity or NaN",
                         layer);
    return ERROR_OK;
}

/* Refuses what trace_open would refuse. */
static enum error_code check_model(const char *path, const struct trace_shape *s,
                                   const struct trace_layer *layers, struct error *e)
{
    enum error_code code = trace_check_shape(s, e);
    for (uint32_t i = s->first_layer; i < s->n_layers && !code; i++) {
        code = trace_check_layer(s, &layers[i], e);
        if (!code && (s->has & TRACE_ROUTERS))
            code = check_routers(s, &layers[i], i, e);
    }
    if (code)
        error_prefix(e, "%s", path);
    return code;
}

static enum error_code write_model(struct trace_writer *w, const struct trace_layer *layers,
                                   struct error *e)
{
    enum error_code code = write_shape(w, e);
    if (!code)
        code = write_layers(w, layers, e);
    if (!code && (w->shape.has & TRACE_ROUTERS))
        code = write_routers(w, layers, e);
    return code;
}

enum error_code trace_writer_new(const char *path, const struct trace_shape *shape,
                                 const struct trace_layer *layers, struct trace_writer **out,
                                 struct error *e)
{
    enum error_code code = check_model(path, shape, layers, e);
    if (code)
        return code;
    struct trace_writer *w = calloc(1, sizeof *w);
    if (!w)
        return error_set(e, ERROR_MEMORY, "%s: no memory to write it", path);
    w->shape = *shape;
    w->gathered_ids = malloc(EMBEDDINGS_A_CHUNK * sizeof *w->gathered_ids);
    w->gathered = malloc((size_t)EMBEDDINGS_A_CHUNK * shape->d_model * sizeof *w->gathered);
    if (!w->gathered_ids || !w->gathered)
        code = error_set(e, ERROR_MEMORY, "%s: no memory to write it", path);
    if (!code)
        code = file_writer_open(path, FILE_WRITER_PRIVATE, &w->file, e);
    if (!code)
        code = write_model(w, layers, e);
    if (code) {
        free_writer(w);
        return code;
    }
    *out = w;
    return ERROR_OK;
}

/* ---- embeddings ---- */

/* The nearest finite number; 0 for NaN. */
static uint16_t to_half(float x)
{
    const float largest = 65504;
    if (x != x)
        return 0;
    return float_to_half(x > largest ? largest : x < -largest ? -largest : x);
}

static enum error_code flush_embeddings(struct trace_writer *w, struct error *e)
{
    struct trace_file_embeddings head = {w->n_gathered};
    uint64_t ids = 4ull * w->n_gathered, halves = 2ull * w->n_gathered * w->shape.d_model;
    if (!w->n_gathered)
        return ERROR_OK;
    enum error_code code = begin_chunk(w, TRACE_CHUNK_EMBEDDINGS, sizeof head + ids + halves, e);
    if (!code)
        code = file_writer_write(w->file, &head, sizeof head, e);
    if (!code)
        code = file_writer_write(w->file, w->gathered_ids, ids, e);
    if (!code)
        code = file_writer_write(w->file, w->gathered, halves, e);
    w->end.n_embeddings += w->n_gathered;
    w->n_gathered = 0;
    return code ? code : file_writer_pad(w->file, TRACE_ALIGN, e);
}

/* Adds id to the known ids. *is_new: it was not known before. */
static enum error_code note_id(struct trace_writer *w, uint32_t id, bool *is_new, struct error *e)
{
    if (id / 8 >= w->capacity_ids) {
        uint64_t capacity = round_up(id / 8 + 1, 1 << 14);
        uint8_t *grown = realloc(w->known_ids, capacity);
        if (!grown)
            return error_set(e, ERROR_MEMORY, "%s: no memory to write it",
                             file_writer_path(w->file));
        memset(grown + w->capacity_ids, 0, capacity - w->capacity_ids);
        w->known_ids = grown;
        w->capacity_ids = capacity;
    }
    uint8_t bit = (uint8_t)(1u << id % 8);
    *is_new = !(w->known_ids[id / 8] & bit);
    w->known_ids[id / 8] |= bit;
    return ERROR_OK;
}

bool trace_writer_has_embedding(const struct trace_writer *w, uint32_t id)
{
    return id / 8 < w->capacity_ids && (w->known_ids[id / 8] >> id % 8 & 1);
}

enum error_code trace_write_embedding(struct trace_writer *w, uint32_t id, const float *embedding,
                                      struct error *e)
{
    bool is_new;
    if (!(w->shape.has & TRACE_EMBEDDINGS))
        return error_set(e, ERROR_USAGE, "%s: the trace's shape has no embeddings",
                         file_writer_path(w->file));
    enum error_code code = note_id(w, id, &is_new, e);
    if (code || !is_new)
        return code;
    uint32_t d = w->shape.d_model;
    uint16_t *halves = w->gathered + (size_t)w->n_gathered * d;
    for (uint32_t i = 0; i < d; i++)
        halves[i] = to_half(embedding[i]);
    w->gathered_ids[w->n_gathered++] = id;
    if (w->n_gathered == EMBEDDINGS_A_CHUNK)
        code = flush_embeddings(w, e);
    w->failed |= code != ERROR_OK;
    return code;
}

/* ---- sequences ---- */

static bool choices_are_sound(const struct trace_shape *s, const uint16_t *selected)
{
    for (uint32_t k = 0; k < s->n_used; k++) {
        if (selected[k] >= s->n_experts)
            return false;
        for (uint32_t before = 0; before < k; before++)
            if (selected[before] == selected[k])
                return false;
    }
    return true;
}

static enum error_code check_sequence(const struct trace_writer *w, const struct trace_data *data,
                                      struct error *e)
{
    const struct trace_shape *s = &w->shape;
    const struct trace_sequence *q = &data->sequence;
    uint64_t rows = (uint64_t)q->n_tokens * trace_layers_with_experts(s);
    if (q->n_tokens < 1 || q->n_prompt > q->n_tokens)
        return error_set(e, ERROR_USAGE,
                         "%s: a sequence of %" PRIu32 " tokens with a prompt of %" PRIu32,
                         file_writer_path(w->file), q->n_tokens, q->n_prompt);
    if (!data->gate != !(s->has & TRACE_GATE) || (data->hidden && !(s->has & TRACE_HIDDEN)))
        return error_set(e, ERROR_USAGE, "%s: a sequence whose parts differ from the shape's",
                         file_writer_path(w->file));
    for (uint64_t i = 0; i < rows; i++)
        if (!choices_are_sound(s, data->selected + i * s->n_used))
            return error_set(e, ERROR_USAGE,
                             "%s: a token chose an expert twice, or an expert that does not exist",
                             file_writer_path(w->file));
    return ERROR_OK;
}

static enum error_code write_hidden_at(struct trace_writer *w, const struct trace_data *data,
                                       struct error *e)
{
    enum error_code code = ERROR_OK;
    for (uint32_t i = 0; data->hidden && i < data->sequence.n_tokens && !code; i++)
        if (data->hidden[i])
            code = file_writer_write(w->file, &i, sizeof i, e);
    return code;
}

/* Converts values[first .. first + count) to the format of the file. */
typedef void pack_values(const void *values, uint64_t first, size_t count, void *out);

static void pack_halves(const void *values, uint64_t first, size_t count, void *out)
{
    const float *from = (const float *)values + first;
    uint16_t *to = out;
    for (size_t i = 0; i < count; i++)
        to[i] = to_half(from[i]);
}

static void pack_choices(const void *values, uint64_t first, size_t count, void *out)
{
    const uint16_t *from = (const uint16_t *)values + first;
    uint8_t *to = out;
    for (size_t i = 0; i < count; i++)
        to[i] = (uint8_t)from[i];
}

static void pack_gate(const void *values, uint64_t first, size_t count, void *out)
{
    const float *from = (const float *)values + first;
    uint8_t *to = out;
    for (size_t i = 0; i < count; i++)
        to[i] = trace_gate_pack(from[i]);
}

/* bytes: of a packed value, at most 2. */
static enum error_code write_packed(struct trace_writer *w, const void *values, uint64_t n,
                                    size_t bytes, pack_values *pack, struct error *e)
{
    uint16_t block[BLOCK];
    enum error_code code = ERROR_OK;
    for (uint64_t done = 0; done < n && !code;) {
        size_t part = n - done < BLOCK ? (size_t)(n - done) : BLOCK;
        pack(values, done, part, block);
        code = file_writer_write(w->file, block, part * bytes, e);
        done += part;
    }
    return code;
}

static enum error_code write_hidden(struct trace_writer *w, const struct trace_data *data,
                                    struct error *e)
{
    uint64_t n = (uint64_t)trace_layers_with_experts(&w->shape) * w->shape.d_model;
    enum error_code code = ERROR_OK;
    for (uint32_t i = 0; data->hidden && i < data->sequence.n_tokens && !code; i++)
        if (data->hidden[i])
            code = write_packed(w, data->hidden[i], n, 2, pack_halves, e);
    return code;
}

static enum error_code write_selected(struct trace_writer *w, const uint16_t *selected, uint64_t n,
                                      struct error *e)
{
    if (trace_choice_bytes(&w->shape) == 2)
        return file_writer_write(w->file, selected, n * sizeof *selected, e);
    return write_packed(w, selected, n, 1, pack_choices, e);
}

static enum error_code write_parts(struct trace_writer *w, const struct trace_data *data,
                                   const struct trace_file_sequence *head, uint64_t bytes,
                                   struct error *e)
{
    const struct trace_shape *s = &w->shape;
    uint64_t rows = (uint64_t)head->n_tokens * trace_layers_with_experts(s);
    enum error_code code = begin_chunk(w, TRACE_CHUNK_SEQUENCE, bytes, e);
    if (!code)
        code = file_writer_write(w->file, head, sizeof *head, e);
    if (!code)
        code = file_writer_write(w->file, data->sequence.tokens, (size_t)head->n_tokens * 4, e);
    if (!code)
        code = write_hidden_at(w, data, e);
    if (!code)
        code = write_hidden(w, data, e);
    if (!code)
        code = write_selected(w, data->selected, rows * s->n_used, e);
    if (!code && (s->has & TRACE_GATE))
        code = write_packed(w, data->gate, rows * s->n_experts, 1, pack_gate, e);
    return code ? code : file_writer_pad(w->file, TRACE_ALIGN, e);
}

/* Writes an end chunk after this sequence; the next sequence overwrites it. If the disk is full
 * then, the file has the blocks of this end chunk already. */
static enum error_code keep_sequence(struct trace_writer *w, uint32_t n_tokens, struct error *e)
{
    struct {
        struct trace_chunk_head head;
        struct trace_file_end end;
        uint8_t
            zeros[TRACE_ALIGN - sizeof(struct trace_chunk_head) - sizeof(struct trace_file_end)];
    } tail = {.head = {.kind = TRACE_CHUNK_END, .bytes = sizeof tail.end}};
    _Static_assert(sizeof tail == TRACE_ALIGN, "file layout");
    enum error_code code = flush_embeddings(w, e);
    if (code)
        return code;
    tail.end = w->end;
    tail.end.n_sequences++;
    tail.end.n_tokens += n_tokens;
    code = file_writer_keep(w->file, &tail, sizeof tail, e);
    if (!code)
        w->end = tail.end;
    return code;
}

enum error_code trace_write_sequence(struct trace_writer *w, const struct trace_data *data,
                                     struct error *e)
{
    const struct trace_sequence *q = &data->sequence;
    struct trace_file_sequence head = {.n_tokens = q->n_tokens, .n_prompt = q->n_prompt};
    struct trace_sequence_parts parts;
    enum error_code code = check_sequence(w, data, e);
    for (uint32_t i = 0; data->hidden && i < q->n_tokens; i++)
        head.n_hidden += data->hidden[i] != NULL;
    if (!code && !trace_sequence_layout(&w->shape, &head, &parts))
        code = error_set(e, ERROR_LIMIT, "%s: a sequence is too long", file_writer_path(w->file));
    if (code)
        return code;
    code = write_parts(w, data, &head, parts.bytes, e);
    if (!code)
        code = keep_sequence(w, q->n_tokens, e);
    w->failed |= code != ERROR_OK;
    return code;
}

/* ---- the end ---- */

static enum error_code write_end(struct trace_writer *w, struct error *e)
{
    if (w->failed && file_writer_return(w->file))
        return ERROR_OK;
    enum error_code code = flush_embeddings(w, e);
    return code ? code : whole_chunk(w, TRACE_CHUNK_END, &w->end, sizeof w->end, e);
}

enum error_code trace_writer_finish(struct trace_writer *w, struct error *e)
{
    enum error_code code = write_end(w, e);
    if (!code) {
        struct file_writer *file = w->file;
        w->file = NULL;
        code = file_writer_finish(file, e);
    }
    free_writer(w);
    return code;
}

void trace_writer_abandon(struct trace_writer *w)
{
    if (w)
        free_writer(w);
}
