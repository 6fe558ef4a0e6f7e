/* Opens a trace: checks every chunk and indexes its parts. The functions of read.c rely on these
 * invariants:
 *
 * 1. Shape and layers are valid (layout.c). Each layer with experts has a matrix, or none has.
 * 2. Each pointer of an index points to as many aligned values inside the file as the counts say.
 * 3. A token's choices in a layer are distinct experts of the layer.
 * 4. hidden_at ascends strictly and is below n_tokens. Embeddings are sorted by distinct ids.
 * 5. The last chunk of the file has the correct numbers of sequences, tokens and embeddings. */
#include "trace/read.h"

#include "base/checked.h"
#include "model/router.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The state of opening a trace. */
struct opening {
    struct trace *t;
    const uint8_t *data;
    uint64_t bytes;
    uint64_t at; /* offset of the chunk in the file */
    const uint8_t *payload;
    uint64_t payload_bytes;
    const struct trace_file_layer *layers; /* NULL: not yet */
    bool has_shape, has_routers, ended;
    struct error *e;
};

static enum error_code broken(const struct opening *o, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static enum error_code broken(const struct opening *o, const char *format, ...)
{
    char what[256];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(what, sizeof what, format, arguments);
    va_end(arguments);
    return error_set(o->e, ERROR_FORMAT, "byte %" PRIu64 ": %s", o->at, what);
}

static enum error_code no_memory(const struct opening *o)
{
    return error_set(o->e, ERROR_MEMORY, "no memory to open it");
}

/* Makes space for one more entry in a list, which doubles. */
static bool reserve(void **list, uint32_t n, uint32_t *capacity, size_t entry_bytes)
{
    if (n < *capacity)
        return true;
    uint32_t more = *capacity ? *capacity * 2 : 64;
    if (more <= *capacity)
        return false;
    void *grown = realloc(*list, more * entry_bytes);
    if (!grown)
        return false;
    *list = grown;
    *capacity = more;
    return true;
}

/* ---- chunks ---- */

static void take_name(const char in[96], char out[96])
{
    for (unsigned i = 0; i < 96; i++)
        out[i] = in[i] && ((unsigned char)in[i] < 0x20 || in[i] == 0x7f) ? '?' : in[i];
}

static enum error_code take_shape(struct opening *o)
{
    struct trace_file_shape f;
    struct trace_shape *s = &o->t->shape;
    if (o->has_shape)
        return broken(o, "a second shape");
    if (o->payload_bytes != sizeof f)
        return broken(o, "a shape of %" PRIu64 " bytes: expected %zu", o->payload_bytes, sizeof f);
    memcpy(&f, o->payload, sizeof f);
    if (f.zero || f.renormalise > 1 || f.router_kind > ROUTER_SPARSE_MIXER)
        return broken(o, "the shape has values that version %d does not know", TRACE_VERSION);
    if (!memchr(f.model, '\0', sizeof f.model))
        return broken(o, "the model's name does not end");
    *s = (struct trace_shape){.n_layers = f.n_layers,
                              .first_layer = f.first_layer,
                              .n_experts = f.n_experts,
                              .n_used = f.n_used,
                              .d_model = f.d_model,
                              .has = f.has,
                              .dense_bytes = f.dense_bytes,
                              .router = {.kind = (enum router_kind)f.router_kind,
                                         .n_experts = f.n_experts,
                                         .n_used = f.n_used,
                                         .n_groups = f.n_groups,
                                         .n_groups_used = f.n_groups_used,
                                         .renormalise = f.renormalise,
                                         .scale = f.scale}};
    take_name(f.model, s->model);
    struct error why;
    if (trace_check_shape(s, &why))
        return broken(o, "%s", why.text);
    o->t->layers = calloc(s->n_layers, sizeof *o->t->layers);
    o->has_shape = true;
    return o->t->layers ? ERROR_OK : no_memory(o);
}

static enum error_code take_layers(struct opening *o)
{
    const struct trace_shape *s = &o->t->shape;
    uint32_t n = trace_layers_with_experts(s);
    const struct trace_file_layer *f = (const void *)o->payload;
    if (o->layers)
        return broken(o, "a second list of layers");
    if (o->payload_bytes != n * sizeof *f)
        return broken(o, "the list of layers has %" PRIu64 " bytes: expected %zu for %" PRIu32,
                      o->payload_bytes, n * sizeof *f, n);
    for (uint32_t i = 0; i < n; i++) {
        struct trace_layer *l = &o->t->layers[s->first_layer + i];
        l->n_segments = f[i].n_segments;
        l->segment_bytes = f[i].segment_bytes;
        struct error why;
        if (trace_check_layer(s, l, &why))
            return broken(o, "layer %" PRIu32 ": %s", s->first_layer + i, why.text);
        if (f[i].has & ~(uint32_t)(TRACE_LAYER_BIAS | TRACE_LAYER_SELECTION_BIAS))
            return broken(o, "layer %" PRIu32 ": unknown parts", s->first_layer + i);
        if (f[i].has && !(s->has & TRACE_ROUTERS))
            return broken(o, "layer %" PRIu32 ": biases without routers", s->first_layer + i);
    }
    o->layers = f;
    return ERROR_OK;
}

/* Takes the next n floats of the payload. False: it has fewer, or one is not finite. */
static bool next_floats(const struct opening *o, uint64_t *at, uint64_t n, const float **out)
{
    uint64_t bytes = n * sizeof(float);
    if (bytes > o->payload_bytes - *at)
        return false;
    const float *floats = (const void *)(o->payload + *at);
    for (uint64_t i = 0; i < n; i++)
        if (!isfinite(floats[i]))
            return false;
    *at += bytes;
    *out = floats;
    return true;
}

static bool next_router(const struct opening *o, uint64_t *at, uint32_t has, struct trace_layer *l)
{
    const struct trace_shape *s = &o->t->shape;
    return next_floats(o, at, (uint64_t)s->n_experts * s->d_model, &l->matrix) &&
           (!(has & TRACE_LAYER_BIAS) || next_floats(o, at, s->n_experts, &l->bias)) &&
           (!(has & TRACE_LAYER_SELECTION_BIAS) ||
            next_floats(o, at, s->n_experts, &l->selection_bias));
}

static enum error_code take_routers(struct opening *o)
{
    const struct trace_shape *s = &o->t->shape;
    uint64_t at = 0;
    if (!(s->has & TRACE_ROUTERS) || o->has_routers)
        return broken(o,
                      o->has_routers ? "routers a second time" : "routers, but the shape has none");
    for (uint32_t i = s->first_layer; i < s->n_layers; i++)
        if (!next_router(o, &at, o->layers[i - s->first_layer].has, &o->t->layers[i]))
            return broken(
                o, "the router of layer %" PRIu32 " is cut off or holds an infinity or NaN", i);
    if (at != o->payload_bytes)
        return broken(o, "the routers have %" PRIu64 " bytes: expected %" PRIu64, o->payload_bytes,
                      at);
    o->has_routers = true;
    o->t->parts.routers = at;
    return ERROR_OK;
}

static enum error_code take_embeddings(struct opening *o)
{
    struct trace *t = o->t;
    uint64_t d_model = t->shape.d_model, n;
    struct trace_file_embeddings head;
    if (!(t->shape.has & TRACE_EMBEDDINGS))
        return broken(o, "embeddings, but the shape has none");
    if (o->payload_bytes < sizeof head)
        return broken(o, "embeddings without their number");
    memcpy(&head, o->payload, sizeof head);
    n = head.n;
    if (o->payload_bytes != sizeof head + n * (4 + d_model * 2)) /* below 2^52 */
        return broken(o, "%" PRIu64 " embeddings in %" PRIu64 " bytes", n, o->payload_bytes);
    const uint32_t *ids = (const void *)(o->payload + sizeof head);
    const uint16_t *halves = (const void *)(ids + n);
    for (uint64_t i = 0; i < n; i++) {
        if (!reserve((void **)&t->embeddings, t->n_embeddings, &t->capacity_embeddings,
                     sizeof *t->embeddings))
            return no_memory(o);
        t->embeddings[t->n_embeddings++] = (struct embedding_index){ids[i], halves + i * d_model};
    }
    t->parts.embeddings += o->payload_bytes;
    return ERROR_OK;
}

/* True: the n_used choices are distinct experts. */
static bool choices_are_sound(const struct trace_shape *s, const uint8_t *narrow,
                              const uint16_t *wide)
{
    uint64_t taken[ROUTER_MAX_EXPERTS / 64];
    memset(taken, 0, (s->n_experts + 63) / 64 * sizeof *taken);
    for (uint32_t k = 0; k < s->n_used; k++) {
        uint32_t expert = wide ? wide[k] : narrow[k];
        uint64_t bit = 1ull << expert % 64;
        if (expert >= s->n_experts || (taken[expert / 64] & bit))
            return false;
        taken[expert / 64] |= bit;
    }
    return true;
}

static enum error_code check_choices(const struct opening *o, const struct sequence_index *q)
{
    const struct trace_shape *s = &o->t->shape;
    uint64_t rows = (uint64_t)q->public.n_tokens * trace_layers_with_experts(s);
    const uint16_t *wide =
        trace_choice_bytes(s) == 2 ? (const uint16_t *)(const void *)q->selected : NULL;
    for (uint64_t i = 0; i < rows; i++)
        if (!choices_are_sound(s, q->selected + (wide ? 0 : i * s->n_used),
                               wide ? wide + i * s->n_used : NULL))
            return broken(o,
                          "token %" PRIu64
                          " of the sequence chose an expert twice, or an expert that "
                          "does not exist",
                          i / trace_layers_with_experts(s));
    return ERROR_OK;
}

static enum error_code take_sequence(struct opening *o)
{
    struct trace *t = o->t;
    struct trace_file_sequence head;
    struct trace_sequence_parts parts;
    if (o->payload_bytes < sizeof head)
        return broken(o, "a sequence of %" PRIu64 " bytes", o->payload_bytes);
    memcpy(&head, o->payload, sizeof head);
    if (head.zero || head.n_tokens < 1 || head.n_prompt > head.n_tokens ||
        head.n_hidden > head.n_tokens || (head.n_hidden && !(t->shape.has & TRACE_HIDDEN)))
        return broken(o,
                      "a sequence of %" PRIu32 " tokens, %" PRIu32 " of them its prompt's, %" PRIu32
                      " with gate inputs: impossible here",
                      head.n_tokens, head.n_prompt, head.n_hidden);
    if (!trace_sequence_layout(&t->shape, &head, &parts) || parts.bytes != o->payload_bytes)
        return broken(o, "a sequence of %" PRIu32 " tokens in %" PRIu64 " bytes", head.n_tokens,
                      o->payload_bytes);
    struct sequence_index q = {
        .public = {head.n_tokens, head.n_prompt, (const void *)(o->payload + parts.tokens)},
        .n_hidden = head.n_hidden,
        .hidden_at = (const void *)(o->payload + parts.hidden_at),
        .hidden = (const void *)(o->payload + parts.hidden),
        .selected = o->payload + parts.selected,
        .gate = o->payload + parts.gate,
    };
    for (uint32_t i = 0; i < q.n_hidden; i++)
        if (q.hidden_at[i] >= head.n_tokens || (i > 0 && q.hidden_at[i] <= q.hidden_at[i - 1]))
            return broken(o, "the tokens with gate inputs are not in order");
    enum error_code code = check_choices(o, &q);
    if (code)
        return code;
    if (!reserve((void **)&t->sequences, t->n_sequences, &t->capacity_sequences,
                 sizeof *t->sequences))
        return no_memory(o);
    t->sequences[t->n_sequences++] = q;
    t->n_tokens += head.n_tokens; /* the file's size bounds it */
    t->parts.tokens += parts.hidden_at - parts.tokens;
    t->parts.hidden += parts.selected - parts.hidden_at;
    t->parts.selected += parts.gate - parts.selected;
    t->parts.gate += parts.bytes - parts.gate;
    return ERROR_OK;
}

static int compare_embeddings(const void *a, const void *b)
{
    const struct embedding_index *x = a, *y = b;
    return (x->id > y->id) - (x->id < y->id);
}

static enum error_code take_end(struct opening *o)
{
    struct trace *t = o->t;
    struct trace_file_end end;
    if (o->payload_bytes != sizeof end)
        return broken(o, "an end of %" PRIu64 " bytes: expected %zu", o->payload_bytes, sizeof end);
    memcpy(&end, o->payload, sizeof end);
    if (end.n_sequences != t->n_sequences || end.n_tokens != t->n_tokens ||
        end.n_embeddings != t->n_embeddings)
        return broken(o,
                      "%" PRIu64 " sequences, %" PRIu64 " tokens and %" PRIu64
                      " embeddings were written, but some are missing",
                      end.n_sequences, end.n_tokens, end.n_embeddings);
    if ((t->shape.has & TRACE_ROUTERS) && !o->has_routers)
        return broken(o, "the routers are missing");
    if (t->n_embeddings)
        qsort(t->embeddings, t->n_embeddings, sizeof *t->embeddings, compare_embeddings);
    for (uint32_t i = 1; i < t->n_embeddings; i++)
        if (t->embeddings[i].id == t->embeddings[i - 1].id)
            return broken(o, "token %" PRIu32 " has two embeddings", t->embeddings[i].id);
    o->ended = true;
    return ERROR_OK;
}

/* ---- the file ---- */

static enum error_code take_chunk(struct opening *o, uint32_t kind)
{
    /* The checks of a chunk need the chunks before it. */
    if (kind != TRACE_CHUNK_SHAPE && !o->has_shape)
        return broken(o, "a chunk of kind %" PRIu32 " before the shape", kind);
    if (kind > TRACE_CHUNK_LAYERS && !o->layers)
        return broken(o, "a chunk of kind %" PRIu32 " before the list of layers", kind);
    switch (kind) {
    case TRACE_CHUNK_SHAPE:
        return take_shape(o);
    case TRACE_CHUNK_LAYERS:
        return take_layers(o);
    case TRACE_CHUNK_ROUTERS:
        return take_routers(o);
    case TRACE_CHUNK_EMBEDDINGS:
        return take_embeddings(o);
    case TRACE_CHUNK_SEQUENCE:
        return take_sequence(o);
    case TRACE_CHUNK_END:
        return take_end(o);
    default:
        return broken(o, "a chunk of kind %" PRIu32 ", which version %d does not know", kind,
                      TRACE_VERSION);
    }
}

static enum error_code check_file_head(const struct opening *o)
{
    struct trace_file_head head;
    if (o->bytes < sizeof head.magic || memcmp(o->data, TRACE_MAGIC, sizeof head.magic) != 0)
        return broken(o, "this is no routing trace");
    if (o->bytes < sizeof head)
        return broken(o, "the file is cut off: it has %" PRIu64 " bytes", o->bytes);
    memcpy(&head, o->data, sizeof head);
    if (head.version != TRACE_VERSION)
        return error_set(o->e, ERROR_VERSION,
                         "a routing trace of version %" PRIu32
                         ": this moed reads version %d; record it again",
                         head.version, TRACE_VERSION);
    for (unsigned i = 0; i < sizeof head.zero / sizeof *head.zero; i++)
        if (head.zero[i])
            return broken(o, "the head has values that version %d does not know", TRACE_VERSION);
    return ERROR_OK;
}

static enum error_code take_file(struct opening *o)
{
    enum error_code code = check_file_head(o);
    uint64_t at = sizeof(struct trace_file_head);
    while (!code && !o->ended) {
        struct trace_chunk_head head;
        o->at = at;
        if (o->bytes - at < sizeof head)
            return broken(o, "the file is cut off: expected another chunk");
        memcpy(&head, o->data + at, sizeof head);
        at += sizeof head;
        if (head.zero)
            return broken(o, "a chunk's head has values that version %d does not know",
                          TRACE_VERSION);
        /* The file must include the padding after the payload too. */
        uint64_t left = o->bytes - at;
        if (head.bytes > left || round_up(at + head.bytes, TRACE_ALIGN) > o->bytes)
            return broken(
                o, "the file is cut off: a chunk has %" PRIu64 " bytes, %" PRIu64 " are left",
                head.bytes, left);
        o->payload = o->data + at;
        o->payload_bytes = head.bytes;
        code = take_chunk(o, head.kind);
        at = round_up(at + head.bytes, TRACE_ALIGN);
    }
    if (!code && at != o->bytes) {
        o->at = at;
        code = broken(o, "%" PRIu64 " bytes come after the end", o->bytes - at);
    }
    return code;
}

/* Takes t and frees it after an error. */
static enum error_code open_trace(struct trace *t, const void *bytes, size_t n, struct trace **out,
                                  struct error *e)
{
    struct opening o = {.t = t, .data = bytes, .bytes = n, .e = e};
    enum error_code code = ERROR_OK;
    if ((uintptr_t)bytes % TRACE_ALIGN_MEMORY) {
        o.data = t->copy = malloc(n ? n : 1);
        if (t->copy)
            memcpy(t->copy, bytes, n);
        else
            code = no_memory(&o);
    }
    if (!code)
        code = take_file(&o);
    if (code) {
        trace_close(t);
        return code;
    }
    for (unsigned q = 0; q < TRACE_GATE_ZERO; q++)
        t->gate_values[q] = (float)exp2(-(double)q / 16);
    *out = t;
    return ERROR_OK;
}

enum error_code trace_open_bytes(const void *bytes, size_t n, struct trace **out, struct error *e)
{
    struct trace *t = calloc(1, sizeof *t);
    if (!t)
        return error_set(e, ERROR_MEMORY, "no memory to open a trace");
    return open_trace(t, bytes, n, out, e);
}

enum error_code trace_open(const char *path, struct trace **out, struct error *e)
{
    struct trace *t = calloc(1, sizeof *t);
    if (!t)
        return error_set(e, ERROR_MEMORY, "%s: no memory to open it", path);
    enum error_code code = file_map_open(path, "a routing trace", &t->map, e);
    if (code) {
        trace_close(t);
        return code;
    }
    code = open_trace(t, t->map.data, (size_t)t->map.bytes, out, e);
    if (code)
        error_prefix(e, "%s", path);
    return code;
}
