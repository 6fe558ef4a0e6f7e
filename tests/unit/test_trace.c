/* Trace files: what is written is read back, and what is broken is refused in one line. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "quant/quant.h"
#include "trace/layout.h"
#include "trace/trace.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

static char folder[] = "/tmp/moed-trace-XXXXXX", path[64], unfinished[80];

static int make_folder(void **state)
{
    (void)state;
    if (!mkdtemp(folder))
        return 1;
    snprintf(path, sizeof path, "%s/trace", folder);
    snprintf(unfinished, sizeof unfinished, "%s.tmp", path);
    return 0;
}

static int remove_folder(void **state)
{
    (void)state;
    unlink(path);
    return rmdir(folder); /* it fails where something was left */
}

/* ---- A small trace, of which every value follows from where it stands ---- */

enum { LAYERS = 3, FIRST = 1, WITH_EXPERTS = LAYERS - FIRST, WIDTH = 5, SEQUENCES = 2, VOCAB = 8 };
static const uint32_t lengths[SEQUENCES] = {5, 3}, prompts[SEQUENCES] = {4, 0};

struct sample {
    struct trace_shape shape;
    struct trace_layer layers[LAYERS];
    float *numbers; /* of the routers */
};

static float router_value(uint32_t layer, uint32_t i)
{
    return (float)layer + (float)i / 1024;
}

static struct sample sample_new(uint32_t n_experts, uint32_t has)
{
    struct sample x = {.shape = {.model = "a small one",
                                 .n_layers = LAYERS,
                                 .first_layer = FIRST,
                                 .n_experts = n_experts,
                                 .n_used = 2,
                                 .d_model = WIDTH,
                                 .dense_bytes = 12345,
                                 .has = has,
                                 .router = {.kind = ROUTER_SIGMOID,
                                            .n_experts = n_experts,
                                            .n_used = 2,
                                            .n_groups = 2,
                                            .n_groups_used = 1,
                                            .renormalise = true,
                                            .scale = 2.5f}}};
    uint32_t a_layer = n_experts * (WIDTH + 2);
    x.numbers = malloc(LAYERS * a_layer * sizeof *x.numbers);
    for (uint32_t l = 0; l < LAYERS; l++) {
        float *n = x.numbers + l * a_layer;
        for (uint32_t i = 0; i < a_layer; i++)
            n[i] = router_value(l, i);
        x.layers[l] = (struct trace_layer){.n_segments = 1 + l, .segment_bytes = 1000 * l + 7};
        if (has & TRACE_ROUTERS) {
            x.layers[l].matrix = n;
            x.layers[l].bias = l == 1 ? n + n_experts * WIDTH : NULL;
            x.layers[l].selection_bias = l == 2 ? n + n_experts * (WIDTH + 1) : NULL;
        }
    }
    return x;
}

static uint32_t token_id(uint32_t sequence, uint32_t token)
{
    return (sequence * 3 + token * token) % VOCAB;
}

/* The second is never the first one. */
static uint32_t choice(const struct trace_shape *s, uint32_t sequence, uint32_t token,
                       uint32_t layer, uint32_t rank)
{
    uint32_t first = (sequence * 7 + token * 3 + layer * 5) % s->n_experts;
    return rank == 0 ? first : (first + 1 + token % (s->n_experts - 1)) % s->n_experts;
}

/* A power of 2 whose exponent has a 16th: exactly what is kept; every 5th expert has none. */
static float gate_value(uint32_t sequence, uint32_t token, uint32_t layer, uint32_t expert)
{
    uint32_t steps = sequence + token * 11 + layer * 3 + expert;
    return expert % 5 == 4 ? 0 : (float)exp2(-(double)(steps % 255) / 16);
}

/* Halves hold it exactly. */
static float hidden_value(uint32_t sequence, uint32_t token, uint32_t layer, uint32_t i)
{
    return (float)(sequence * 512 + token * 64 + layer * 16 + i) / 4 - 100;
}

static bool has_hidden(uint32_t token)
{
    return token % 2 == 1;
}

static float embedding_value(uint32_t id, uint32_t i)
{
    return (float)id * 8 - (float)i;
}

static enum error_code write_sample_sequence(struct trace_writer *w, const struct trace_shape *s,
                                             uint32_t q, struct error *e)
{
    uint32_t tokens[8], n = lengths[q];
    uint16_t selected[8 * WITH_EXPERTS * 2];
    float *gate = malloc(8 * WITH_EXPERTS * s->n_experts * sizeof *gate);
    float hidden[8][WITH_EXPERTS * WIDTH];
    const float *hidden_of[8];
    for (uint32_t t = 0; t < n; t++) {
        tokens[t] = token_id(q, t);
        hidden_of[t] = has_hidden(t) ? hidden[t] : NULL;
        for (uint32_t l = 0; l < WITH_EXPERTS; l++) {
            for (uint32_t k = 0; k < 2; k++)
                selected[(t * WITH_EXPERTS + l) * 2 + k] = (uint16_t)choice(s, q, t, FIRST + l, k);
            for (uint32_t i = 0; i < s->n_experts; i++)
                gate[(t * WITH_EXPERTS + l) * s->n_experts + i] = gate_value(q, t, FIRST + l, i);
            for (uint32_t i = 0; i < WIDTH; i++)
                hidden[t][l * WIDTH + i] = hidden_value(q, t, FIRST + l, i);
        }
    }
    struct trace_data data = {.sequence = {n, prompts[q], tokens},
                              .selected = selected,
                              .gate = s->has & TRACE_GATE ? gate : NULL,
                              .hidden = s->has & TRACE_HIDDEN ? hidden_of : NULL};
    enum error_code code = trace_write_sequence(w, &data, e);
    free(gate);
    return code;
}

static enum error_code write_sample_embeddings(struct trace_writer *w, uint32_t q, struct error *e)
{
    enum error_code code = ERROR_OK;
    for (uint32_t t = 0; t < lengths[q] && !code; t++) {
        float embedding[WIDTH];
        for (uint32_t i = 0; i < WIDTH; i++)
            embedding[i] = embedding_value(token_id(q, t), i);
        code = trace_write_embedding(w, token_id(q, t), embedding, e);
    }
    return code;
}

static void write_sample(const struct sample *x)
{
    struct trace_writer *w;
    struct error e = {0};
    assert_int_equal(trace_writer_new(path, &x->shape, x->layers, &w, &e), ERROR_OK);
    for (uint32_t q = 0; q < SEQUENCES; q++) {
        if (x->shape.has & TRACE_EMBEDDINGS)
            assert_int_equal(write_sample_embeddings(w, q, &e), ERROR_OK);
        assert_int_equal(write_sample_sequence(w, &x->shape, q, &e), ERROR_OK);
    }
    assert_int_equal(access(path, F_OK), -1); /* not before it is whole */
    assert_int_equal(trace_writer_finish(w, &e), ERROR_OK);
}

static uint8_t *read_file(size_t *bytes)
{
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    fseek(f, 0, SEEK_END);
    *bytes = (size_t)ftell(f);
    rewind(f);
    uint8_t *data = malloc(*bytes);
    assert_int_equal(fread(data, 1, *bytes, f), *bytes);
    fclose(f);
    return data;
}

/* The file of a sample; x is done with. */
static uint8_t *sample_bytes(struct sample x, size_t *bytes)
{
    write_sample(&x);
    free(x.numbers);
    return read_file(bytes);
}

/* ---- What is read back ---- */

static void check_token(const struct trace *t, uint32_t q, uint32_t token, uint32_t layer)
{
    const struct trace_shape *s = trace_shape(t);
    uint32_t selected[2];
    float gate[512], hidden[WIDTH];
    trace_selected(t, q, token, layer, selected);
    for (uint32_t k = 0; k < 2; k++)
        assert_int_equal(selected[k], choice(s, q, token, layer, k));
    assert_int_equal(trace_gate(t, q, token, layer, gate), (s->has & TRACE_GATE) != 0);
    for (uint32_t i = 0; i < s->n_experts && (s->has & TRACE_GATE); i++)
        assert_float_equal(gate[i], gate_value(q, token, layer, i), 0);
    bool kept = (s->has & TRACE_HIDDEN) && has_hidden(token);
    assert_int_equal(trace_hidden(t, q, token, layer, hidden), kept);
    for (uint32_t i = 0; i < WIDTH && kept; i++)
        assert_float_equal(hidden[i], hidden_value(q, token, layer, i), 0);
}

static void check_layers(const struct trace *t, const struct sample *x)
{
    uint32_t n = x->shape.n_experts;
    for (uint32_t l = FIRST; l < LAYERS; l++) {
        const struct trace_layer *got = trace_layer(t, l), *want = &x->layers[l];
        assert_int_equal(got->n_segments, want->n_segments);
        assert_int_equal(got->segment_bytes, want->segment_bytes);
        assert_int_equal(!got->matrix, !want->matrix);
        assert_int_equal(!got->bias, !want->bias);
        assert_int_equal(!got->selection_bias, !want->selection_bias);
        if (want->matrix)
            assert_memory_equal(got->matrix, want->matrix, n * WIDTH * sizeof(float));
        if (want->bias)
            assert_memory_equal(got->bias, want->bias, n * sizeof(float));
        if (want->selection_bias)
            assert_memory_equal(got->selection_bias, want->selection_bias, n * sizeof(float));
    }
}

static void check_embeddings(const struct trace *t)
{
    bool used[VOCAB] = {false};
    uint32_t distinct = 0;
    for (uint32_t q = 0; q < SEQUENCES; q++)
        for (uint32_t i = 0; i < lengths[q]; i++)
            used[token_id(q, i)] = (trace_shape(t)->has & TRACE_EMBEDDINGS) != 0;
    for (uint32_t id = 0; id < VOCAB; id++) {
        float embedding[WIDTH];
        distinct += used[id];
        assert_int_equal(trace_embedding(t, id, embedding), used[id]);
        for (uint32_t i = 0; i < WIDTH && used[id]; i++)
            assert_float_equal(embedding[i], embedding_value(id, i), 0);
    }
    assert_int_equal(trace_embeddings(t), distinct);
}

static void check_sample(const struct trace *t, const struct sample *x)
{
    const struct trace_shape *s = trace_shape(t);
    assert_string_equal(s->model, x->shape.model);
    assert_int_equal(s->n_layers, LAYERS);
    assert_int_equal(s->first_layer, FIRST);
    assert_int_equal(s->n_experts, x->shape.n_experts);
    assert_int_equal(s->n_used, 2);
    assert_int_equal(s->d_model, WIDTH);
    assert_int_equal(s->dense_bytes, 12345);
    assert_int_equal(s->has, x->shape.has);
    assert_memory_equal(&s->router, &x->shape.router, sizeof s->router);
    check_layers(t, x);
    check_embeddings(t);
    assert_int_equal(trace_sequences(t), SEQUENCES);
    assert_int_equal(trace_tokens(t), lengths[0] + lengths[1]);
    for (uint32_t q = 0; q < SEQUENCES; q++) {
        const struct trace_sequence *seq = trace_sequence(t, q);
        uint32_t n_hidden;
        const uint32_t *at = trace_hidden_tokens(t, q, &n_hidden);
        assert_int_equal(seq->n_tokens, lengths[q]);
        assert_int_equal(seq->n_prompt, prompts[q]);
        assert_int_equal(n_hidden, s->has & TRACE_HIDDEN ? lengths[q] / 2 : 0);
        for (uint32_t i = 0; i < n_hidden; i++)
            assert_int_equal(at[i], 2 * i + 1);
        for (uint32_t i = 0; i < seq->n_tokens; i++) {
            assert_int_equal(seq->tokens[i], token_id(q, i));
            for (uint32_t l = FIRST; l < LAYERS; l++)
                check_token(t, q, i, l);
        }
    }
}

static void round_trip(void **state)
{
    (void)state;
    const uint32_t experts[] = {4, 256, 258, 512}; /* one byte a choice, and two */
    for (unsigned i = 0; i < 4; i++)
        for (uint32_t has = 0; has <= TRACE_ALL; has++) {
            struct sample x = sample_new(experts[i], has);
            struct trace *t;
            struct error e = {0};
            write_sample(&x);
            assert_int_equal(trace_open(path, &t, &e), ERROR_OK);
            check_sample(t, &x);
            trace_close(t);
            unlink(path);
            free(x.numbers);
        }
}

/* Wherever the bytes lie in memory. */
static void bytes_anywhere(void **state)
{
    (void)state;
    size_t bytes;
    struct sample x = sample_new(300, TRACE_ALL);
    write_sample(&x);
    uint8_t *file = read_file(&bytes), *moved = malloc(bytes + 16);
    for (unsigned by = 0; by < 16; by++) {
        struct trace *t;
        struct error e;
        memcpy(moved + by, file, bytes);
        assert_int_equal(trace_open_bytes(moved + by, bytes, &t, &e), ERROR_OK);
        check_sample(t, &x);
        trace_close(t);
    }
    free(moved);
    free(file);
    free(x.numbers);
    unlink(path);
}

/* q = round(-16 log2 p). 0.3: 16 * 1.73697 = 27.79, so 28. 2^-15.875 is the last step, 254; half a step further is 0. */
static void gate_steps(void **state)
{
    (void)state;
    assert_int_equal(trace_gate_pack(1), 0);
    assert_int_equal(trace_gate_pack(1.5f), 0);
    assert_int_equal(trace_gate_pack(0.5f), 16);
    assert_int_equal(trace_gate_pack(0.3f), 28);
    assert_int_equal(trace_gate_pack((float)exp2(-15.875)), 254);
    assert_int_equal(trace_gate_pack((float)exp2(-15.90)), 254);
    assert_int_equal(trace_gate_pack((float)exp2(-15.91)), 255);
    assert_int_equal(trace_gate_pack(0), 255);
    assert_int_equal(trace_gate_pack(-1), 255);
    assert_int_equal(trace_gate_pack(NAN), 255);
    assert_int_equal(trace_gate_pack(INFINITY), 0);
}

/* A value that is no half's is the nearest one; what is too large stays finite. */
static void halves(void **state)
{
    (void)state;
    struct sample x = sample_new(4, TRACE_EMBEDDINGS);
    const float in[WIDTH] = {1e30f, -1e30f, NAN, 0.1f, INFINITY};
    const float out[WIDTH] = {65504, -65504, 0, half_to_float(float_to_half(0.1f)), 65504};
    float got[WIDTH];
    struct trace_writer *w;
    struct trace *t;
    struct error e;
    assert_int_equal(trace_writer_new(path, &x.shape, x.layers, &w, &e), ERROR_OK);
    assert_false(trace_writer_has_embedding(w, 1000000));
    assert_int_equal(trace_write_embedding(w, 1000000, in, &e), ERROR_OK);
    assert_true(trace_writer_has_embedding(w, 1000000));
    assert_false(trace_writer_has_embedding(w, 1000001));
    /* 600 more: several chunks */
    for (uint32_t id = 0; id < 600; id++)
        assert_int_equal(trace_write_embedding(w, 3 * id, in, &e), ERROR_OK);
    assert_int_equal(trace_writer_finish(w, &e), ERROR_OK);
    assert_int_equal(trace_open(path, &t, &e), ERROR_OK);
    assert_int_equal(trace_embeddings(t), 601);
    for (uint32_t id = 0; id < 1800; id++)
        assert_int_equal(trace_embedding(t, id, got), id % 3 == 0);
    assert_true(trace_embedding(t, 1000000, got));
    for (unsigned i = 0; i < WIDTH; i++)
        assert_float_equal(got[i], out[i], 0);
    trace_close(t);
    unlink(path);
    free(x.numbers);
}

/* ---- What is broken ---- */

static void read_everything(const struct trace *t)
{
    const struct trace_shape *s = trace_shape(t);
    float *row = malloc((s->n_experts > s->d_model ? s->n_experts : s->d_model) * sizeof *row);
    uint32_t *selected = malloc(s->n_used * sizeof *selected);
    for (uint32_t q = 0; q < trace_sequences(t); q++)
        for (uint32_t i = 0; i < trace_sequence(t, q)->n_tokens; i++) {
            trace_embedding(t, trace_sequence(t, q)->tokens[i], row);
            for (uint32_t l = s->first_layer; l < s->n_layers; l++) {
                trace_selected(t, q, i, l, selected);
                for (uint32_t k = 0; k < s->n_used; k++)
                    assert_true(selected[k] < s->n_experts);
                trace_gate(t, q, i, l, row);
                if (trace_hidden(t, q, i, l, row))
                    for (uint32_t d = 0; d < s->d_model; d++)
                        assert_true(isfinite(row[d]));
            }
        }
    free(row);
    free(selected);
}

/* Opens bytes in a block of just their size, so that a sanitizer sees a read past it. */
static enum error_code open_copy(const uint8_t *bytes, size_t n, struct error *e)
{
    uint8_t *copy = malloc(n ? n : 1);
    memcpy(copy, bytes, n);
    struct trace *t = NULL;
    *e = (struct error){0};
    enum error_code code = trace_open_bytes(copy, n, &t, e);
    if (code) {
        assert_null(t);
        assert_int_equal(e->code, code);
        assert_true(e->text[0] && !strchr(e->text, '\n'));
    } else {
        read_everything(t);
    }
    trace_close(t);
    free(copy);
    return code;
}

static void cut_everywhere(void **state)
{
    (void)state;
    size_t bytes;
    uint8_t *file = sample_bytes(sample_new(4, TRACE_ALL), &bytes);
    struct error e;
    assert_int_equal(open_copy(file, bytes, &e), ERROR_OK);
    for (size_t n = 0; n < bytes; n++)
        assert_int_equal(open_copy(file, n, &e), ERROR_FORMAT);
    free(file);
    unlink(path);
}

static void bytes_changed(void **state)
{
    (void)state;
    const uint8_t changes[] = {0xff, 0x01, 0x80};
    size_t bytes;
    uint8_t *file = sample_bytes(sample_new(4, TRACE_ALL), &bytes);
    struct error e;
    unsigned refused = 0;
    for (size_t i = 0; i < bytes; i++)
        for (unsigned c = 0; c < sizeof changes; c++) {
            file[i] ^= changes[c];
            refused += open_copy(file, bytes, &e) != ERROR_OK;
            file[i] ^= changes[c];
        }
    assert_true(refused > 500);
    free(file);
    unlink(path);
}

/* Where a payload begins: of the n-th chunk of a kind. */
static size_t find_chunk(const uint8_t *file, size_t bytes, uint32_t kind, unsigned n)
{
    for (size_t at = sizeof(struct trace_file_head); at < bytes;) {
        struct trace_chunk_head head;
        memcpy(&head, file + at, sizeof head);
        if (head.kind == kind && n-- == 0)
            return at + sizeof head;
        at = (at + sizeof head + head.bytes + 63) / 64 * 64;
    }
    fail_msg("there is no chunk of kind %u", (unsigned)kind);
    return 0;
}

/* A field of a chunk (kind 0: of the file's head) that is given another value. */
struct damage {
    uint32_t kind;
    int offset; /* in the payload; before it is the chunk's head */
    unsigned bytes;
    uint64_t value;
    const char *says;
};

#define SHAPE(field, value, says)                                                                  \
    {                                                                                              \
        TRACE_CHUNK_SHAPE, offsetof(struct trace_file_shape, field), 4, value, says                \
    }

static const struct damage damages[] = {
    {0, 0, 1, 'M', "no routing trace"},
    {0, 8, 4, 0, "version 0"},
    {0, 8, 4, 2, "version 2"},
    {0, 12, 4, 1, "does not know"},
    {0, 60, 4, 1, "does not know"},
    /* heads of chunks: kind, zero, bytes */
    {TRACE_CHUNK_SHAPE, -16, 4, 7, "before the shape"},
    {TRACE_CHUNK_SHAPE, -16, 4, 2, "before the shape"},
    {TRACE_CHUNK_SHAPE, -12, 4, 1, "does not know"},
    {TRACE_CHUNK_SHAPE, -8, 8, 151, "expected 152"},
    {TRACE_CHUNK_SHAPE, -8, 8, UINT64_MAX, "cut off"},
    {TRACE_CHUNK_SHAPE, -8, 8, UINT64_MAX - 63, "cut off"},
    {TRACE_CHUNK_LAYERS, -16, 4, 1, "second shape"},
    {TRACE_CHUNK_LAYERS, -16, 4, 3, "before the list of layers"},
    {TRACE_CHUNK_LAYERS, -16, 4, 7, "before the list of layers"},
    {TRACE_CHUNK_LAYERS, -8, 8, 16, "expected 32"},
    {TRACE_CHUNK_ROUTERS, -16, 4, 0, "which version 1 does not have"},
    {TRACE_CHUNK_ROUTERS, -16, 4, 2, "second list"},
    {TRACE_CHUNK_ROUTERS, -16, 4, 7, "which version 1 does not have"},
    {TRACE_CHUNK_ROUTERS, -8, 8, 60, "layer 1 is cut off"},
    {TRACE_CHUNK_SEQUENCE, -16, 4, 3, "a second time"},
    {TRACE_CHUNK_SEQUENCE, -16, 4, 4, "embeddings in"},
    {TRACE_CHUNK_SEQUENCE, -16, 4, 6, "expected 24"},
    {TRACE_CHUNK_SEQUENCE, -8, 8, 8, "a sequence of 8 bytes"},
    {TRACE_CHUNK_SEQUENCE, -8, 8, 33, "tokens in 33 bytes"},
    {TRACE_CHUNK_EMBEDDINGS, -8, 8, 2, "without their number"},
    {TRACE_CHUNK_END, -16, 4, 5, "tokens"},
    {TRACE_CHUNK_END, -8, 8, 16, "expected 24"},
    /* the shape */
    SHAPE(n_layers, 0, "0 layers"),
    SHAPE(n_layers, 1025, "1025 layers"),
    SHAPE(n_layers, 4, "expected 48"),
    SHAPE(first_layer, 3, "3 layers, the first with experts 3"),
    SHAPE(first_layer, UINT32_MAX, "layers"),
    SHAPE(n_experts, 0, "2 of 0 experts"),
    SHAPE(n_experts, 1, "2 of 1 experts"),
    SHAPE(n_experts, 4097, "of at most 4096"),
    SHAPE(n_experts, 6, "cut off"),
    SHAPE(n_used, 0, "0 of 4 experts"),
    SHAPE(n_used, 5, "5 of 4 experts"),
    SHAPE(n_used, 3, "3 experts cannot be chosen from 1 of 2 groups"),
    SHAPE(d_model, 0, "d_model is 0"),
    SHAPE(d_model, (1 << 18) + 1, "d_model is 262145"),
    SHAPE(d_model, 6, "layer 2"),
    SHAPE(has, 16 | TRACE_ALL, "parts 0x10"),
    SHAPE(has, TRACE_ALL & ~TRACE_ROUTERS, "biases without routers"),
    SHAPE(has, TRACE_ALL & ~TRACE_EMBEDDINGS, "embeddings, of which"),
    SHAPE(has, TRACE_ALL & ~TRACE_HIDDEN, "with gate inputs: impossible"),
    SHAPE(has, TRACE_ALL & ~TRACE_GATE, "tokens in"),
    {TRACE_CHUNK_SHAPE, offsetof(struct trace_file_shape, dense_bytes), 8, UINT64_MAX,
     "dense weights are impossible"},
    SHAPE(router_kind, 4, "does not know"),
    SHAPE(n_groups, 3, "groups"),
    SHAPE(n_groups, 257, "groups"),
    SHAPE(n_groups_used, 3, "groups"),
    SHAPE(n_groups_used, 0, "groups"),
    SHAPE(renormalise, 2, "does not know"),
    SHAPE(scale, 0x7fc00000, "no number"), /* a NaN */
    SHAPE(zero, 1, "does not know"),
    /* layers */
    {TRACE_CHUNK_LAYERS, 0, 8, 0, "layer 1: experts of 2 segments of 0 bytes"},
    {TRACE_CHUNK_LAYERS, 0, 8, INT64_MAX, "impossible"},
    {TRACE_CHUNK_LAYERS, 0, 8, INT64_MAX / 16, "impossible"}, /* 2 segments of 12 experts */
    {TRACE_CHUNK_LAYERS, 16 + 8, 4, 0, "layer 2: experts of 0 segments"},
    {TRACE_CHUNK_LAYERS, 16 + 8, 4, 65537, "impossible"},
    {TRACE_CHUNK_LAYERS, 16 + 12, 4, 4, "layer 2: unknown parts"},
    {TRACE_CHUNK_LAYERS, 16 + 12, 4, 3, "layer 2 is cut off"},
    {TRACE_CHUNK_LAYERS, 16 + 12, 4, 0, "routers have"},
    /* routers */
    {TRACE_CHUNK_ROUTERS, 0, 4, 0x7f800000, "layer 1"},       /* an infinity */
    {TRACE_CHUNK_ROUTERS, 4 * 20, 4, 0x7fc00000, "layer 1"},  /* in the bias */
    {TRACE_CHUNK_ROUTERS, 4 * 44, 4, 0xff800000u, "layer 2"}, /* in the selection bias */
    /* embeddings */
    {TRACE_CHUNK_EMBEDDINGS, 0, 4, 0, "0 embeddings in"},
    {TRACE_CHUNK_EMBEDDINGS, 0, 4, UINT32_MAX, "4294967295 embeddings in"},
    /* a sequence: 5 tokens; then 2 numbers, 2 x 2 x 5 halves, and from 16 + 20 + 8 + 40 on the choices */
    {TRACE_CHUNK_SEQUENCE, 0, 4, 0, "0 tokens"},
    {TRACE_CHUNK_SEQUENCE, 0, 4, 6, "6 tokens in"},
    {TRACE_CHUNK_SEQUENCE, 0, 4, UINT32_MAX, "tokens in"},
    {TRACE_CHUNK_SEQUENCE, 4, 4, 6, "6 of them its prompt's"},
    {TRACE_CHUNK_SEQUENCE, 8, 4, 6, "6 with gate inputs"},
    {TRACE_CHUNK_SEQUENCE, 8, 4, 3, "tokens in"},
    {TRACE_CHUNK_SEQUENCE, 12, 4, 1, "impossible"},
    {TRACE_CHUNK_SEQUENCE, 16 + 20, 4, 3, "not in order"},
    {TRACE_CHUNK_SEQUENCE, 16 + 20 + 4, 4, 5, "not in order"},
    {TRACE_CHUNK_SEQUENCE, 84, 1, 4, "token 0 of the sequence chose"},
    {TRACE_CHUNK_SEQUENCE, 84 + 19, 1, 255, "token 4 of the sequence chose"},
    {TRACE_CHUNK_SEQUENCE, 84, 2, 0x0202, "twice"},
    /* the end */
    {TRACE_CHUNK_END, 0, 8, 3, "3 sequences"},
    {TRACE_CHUNK_END, 8, 8, 7, "7 tokens"},
    {TRACE_CHUNK_END, 16, 8, 0, "0 embeddings"},
};

static void every_damage(void **state)
{
    (void)state;
    size_t bytes;
    uint8_t *file = sample_bytes(sample_new(4, TRACE_ALL), &bytes);
    for (size_t i = 0; i < sizeof damages / sizeof *damages; i++) {
        const struct damage *d = &damages[i];
        size_t at = d->kind ? find_chunk(file, bytes, d->kind, 0) : 0;
        uint8_t before[8], *field = file + at + d->offset;
        struct error e;
        memcpy(before, field, d->bytes);
        memcpy(field, &d->value, d->bytes);
        enum error_code code = open_copy(file, bytes, &e);
        if ((code != ERROR_FORMAT && code != ERROR_VERSION) || !strstr(e.text, d->says))
            fail_msg("damage %zu: code %d, '%s', expected '%s'", i, (int)code, e.text, d->says);
        memcpy(field, before, d->bytes);
    }
    free(file);
    unlink(path);
}

static void more_than_the_file(void **state)
{
    (void)state;
    size_t bytes;
    uint8_t *file = sample_bytes(sample_new(4, TRACE_ALL), &bytes);
    struct error e;
    file = realloc(file, bytes + 64);
    memset(file + bytes, 0, 64);
    assert_int_equal(open_copy(file, bytes + 64, &e), ERROR_FORMAT);
    assert_non_null(strstr(e.text, "64 bytes come after the end"));
    /* two embeddings of one token: ids follow the number */
    size_t at = find_chunk(file, bytes, TRACE_CHUNK_EMBEDDINGS, 0);
    memcpy(file + at + 4, file + at + 8, 4);
    assert_int_equal(open_copy(file, bytes, &e), ERROR_FORMAT);
    assert_non_null(strstr(e.text, "has two embeddings"));
    free(file);
    unlink(path);
}

/* A name from a file is shown to people. */
static void name_is_tame(void **state)
{
    (void)state;
    size_t bytes;
    uint8_t *file = sample_bytes(sample_new(4, 0), &bytes);
    char *name = (char *)file + find_chunk(file, bytes, TRACE_CHUNK_SHAPE, 0) +
                 offsetof(struct trace_file_shape, model);
    struct trace *t;
    struct error e;
    memcpy(name, "a\33[2Jb\n", 8);
    assert_int_equal(trace_open_bytes(file, bytes, &t, &e), ERROR_OK);
    assert_string_equal(trace_shape(t)->model, "a?[2Jb?");
    trace_close(t);
    memset(name, 'x', 96);
    assert_int_equal(open_copy(file, bytes, &e), ERROR_FORMAT);
    free(file);
    unlink(path);
}

static void files_that_are_none(void **state)
{
    (void)state;
    struct trace *t;
    struct error e;
    assert_int_equal(trace_open("/nonexistent/trace", &t, &e), ERROR_NOT_FOUND);
    assert_int_equal(trace_open(folder, &t, &e), ERROR_IO);
    assert_non_null(strstr(e.text, "is a directory, expected a routing trace"));
    FILE *f = fopen(path, "w");
    fclose(f);
    assert_int_equal(trace_open(path, &t, &e), ERROR_FORMAT);
    f = fopen(path, "w");
    fputs("GGUF and more", f);
    fclose(f);
    assert_int_equal(trace_open(path, &t, &e), ERROR_FORMAT);
    char expected[128];
    snprintf(expected, sizeof expected, "%s: byte 0: this is no routing trace", path);
    assert_string_equal(e.text, expected);
    unlink(path);
}

/* ---- Writing ---- */

static void nothing_is_left(void **state)
{
    (void)state;
    struct sample x = sample_new(4, 0);
    struct trace_writer *w;
    struct error e;
    assert_int_equal(trace_writer_new(path, &x.shape, x.layers, &w, &e), ERROR_OK);
    assert_int_equal(write_sample_sequence(w, &x.shape, 0, &e), ERROR_OK);
    trace_writer_abandon(w);
    trace_writer_abandon(NULL);
    assert_int_equal(access(path, F_OK), -1);
    assert_int_equal(access(unfinished, F_OK), -1);
    /* a folder where there is none, and a device that must not be replaced */
    assert_int_equal(trace_writer_new("/nonexistent/trace", &x.shape, x.layers, &w, &e), ERROR_IO);
    assert_int_equal(trace_writer_new("/dev/full", &x.shape, x.layers, &w, &e), ERROR_IO);
    assert_non_null(strstr(e.text, "not a regular file"));
    assert_int_equal(access("/dev/full.tmp", F_OK), -1);
    free(x.numbers);
}

/* Whether the failure shows at a write or only at the end, because everything fitted into the buffer before. */
static void no_room_on_disk(void **state)
{
    (void)state;
    struct rlimit all, small;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &all), 0);
    small = (struct rlimit){.rlim_cur = 512, .rlim_max = all.rlim_max};
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    for (unsigned n = 1; n <= 20000; n *= 100) {
        struct sample x = sample_new(256, TRACE_GATE);
        struct trace_writer *w;
        struct error e;
        enum error_code code = trace_writer_new(path, &x.shape, x.layers, &w, &e);
        assert_int_equal(code, ERROR_OK);
        for (unsigned i = 0; i < n && !code; i++)
            code = write_sample_sequence(w, &x.shape, 0, &e);
        if (code)
            trace_writer_abandon(w);
        else
            code = trace_writer_finish(w, &e);
        assert_int_equal(code, ERROR_IO);
        assert_non_null(strstr(e.text, "writing failed: File too large"));
        assert_int_equal(access(path, F_OK), -1);
        assert_int_equal(access(unfinished, F_OK), -1);
        free(x.numbers);
    }
    setrlimit(RLIMIT_FSIZE, &all);
}

static void wrong_use(void **state)
{
    (void)state;
    struct sample x = sample_new(4, TRACE_ROUTERS);
    struct trace_shape no_layers = x.shape, all_experts = x.shape;
    struct trace_writer *w;
    struct error e;
    float embedding[WIDTH] = {0}, gate[4 * WITH_EXPERTS] = {0};
    no_layers.n_layers = 0;
    all_experts.n_used = all_experts.router.n_used = 5;
    assert_int_equal(trace_writer_new(path, &no_layers, x.layers, &w, &e), ERROR_FORMAT);
    assert_int_equal(trace_writer_new(path, &all_experts, x.layers, &w, &e), ERROR_FORMAT);
    x.layers[2].segment_bytes = 0;
    assert_int_equal(trace_writer_new(path, &x.shape, x.layers, &w, &e), ERROR_FORMAT);
    x.layers[2].segment_bytes = 1;
    x.numbers[4 * (WIDTH + 2) + 3] = NAN; /* of layer 1 */
    assert_int_equal(trace_writer_new(path, &x.shape, x.layers, &w, &e), ERROR_USAGE);
    x.numbers[4 * (WIDTH + 2) + 3] = 0;
    const float *matrix = x.layers[1].matrix;
    x.layers[1].matrix = NULL;
    assert_int_equal(trace_writer_new(path, &x.shape, x.layers, &w, &e), ERROR_USAGE);
    x.layers[1].matrix = matrix;

    assert_int_equal(trace_writer_new(path, &x.shape, x.layers, &w, &e), ERROR_OK);
    assert_int_equal(trace_write_embedding(w, 0, embedding, &e), ERROR_USAGE);
    const uint32_t tokens[1] = {7};
    const uint16_t good[] = {0, 1, 2, 3}, twice[] = {0, 1, 2, 2}, none[] = {0, 4, 2, 3};
    const float *hidden[1] = {NULL};
    struct trace_data data = {.sequence = {1, 1, tokens}, .selected = twice};
    assert_int_equal(trace_write_sequence(w, &data, &e), ERROR_USAGE);
    data.selected = none;
    assert_int_equal(trace_write_sequence(w, &data, &e), ERROR_USAGE);
    data.selected = good;
    data.gate = gate;
    assert_int_equal(trace_write_sequence(w, &data, &e), ERROR_USAGE);
    data.gate = NULL;
    data.hidden = hidden;
    assert_int_equal(trace_write_sequence(w, &data, &e), ERROR_USAGE);
    data.hidden = NULL;
    data.sequence.n_prompt = 2;
    assert_int_equal(trace_write_sequence(w, &data, &e), ERROR_USAGE);
    data.sequence.n_prompt = 0;
    data.sequence.n_tokens = 0;
    assert_int_equal(trace_write_sequence(w, &data, &e), ERROR_USAGE);
    data.sequence.n_tokens = 1;
    assert_int_equal(trace_write_sequence(w, &data, &e), ERROR_OK);
    assert_int_equal(trace_writer_finish(w, &e), ERROR_OK); /* what was refused is not in it */
    struct trace *t;
    assert_int_equal(trace_open(path, &t, &e), ERROR_OK);
    assert_int_equal(trace_sequences(t), 1);
    trace_close(t);
    unlink(path);
    free(x.numbers);
}

/* 100,000 tokens of a model of 48 layers, 128 experts, 8 of them a token, d_model 2048, in sequences of 512 tokens: 196.
 *   ids        100,000 x 4                          =     400,000
 *   choices    100,000 x 48 x 8                     =  38,400,000
 *   gates      100,000 x 48 x 128                   = 614,400,000
 *   routers    48 x 128 x 2048 x 4                  =  50,331,648
 *   embeddings 4 + 2 x 2048 each; 70,000 distinct   = 287,000,000, which is more than any text of that length has
 * together 990.5 MB. */
static void hundred_thousand_tokens(void **state)
{
    (void)state;
    const struct trace_shape s = {.n_layers = 48,
                                  .n_experts = 128,
                                  .n_used = 8,
                                  .d_model = 2048,
                                  .has = TRACE_GATE | TRACE_EMBEDDINGS | TRACE_ROUTERS};
    uint64_t total = 0, left = 100000;
    while (left) {
        struct trace_file_sequence head = {.n_tokens = left < 512 ? (uint32_t)left : 512};
        struct trace_sequence_parts parts;
        assert_true(trace_sequence_layout(&s, &head, &parts));
        assert_int_equal(parts.bytes, sizeof head + head.n_tokens * (4 + 48 * (8 + 128)));
        total += (16 + parts.bytes + 63) / 64 * 64;
        left -= head.n_tokens;
    }
    assert_in_range(total, 653200000, 653200000 + 196 * (16 + 16 + 63));
    total += 48ull * 128 * 2048 * 4 + 70000ull * (4 + 2 * 2048) + 274 * (16 + 4 + 63);
    assert_true(total < 1000000000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(round_trip),      cmocka_unit_test(bytes_anywhere),
        cmocka_unit_test(gate_steps),      cmocka_unit_test(halves),
        cmocka_unit_test(cut_everywhere),  cmocka_unit_test(bytes_changed),
        cmocka_unit_test(every_damage),    cmocka_unit_test(more_than_the_file),
        cmocka_unit_test(name_is_tame),    cmocka_unit_test(files_that_are_none),
        cmocka_unit_test(no_room_on_disk), cmocka_unit_test(nothing_is_left),
        cmocka_unit_test(wrong_use),       cmocka_unit_test(hundred_thousand_tokens),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
