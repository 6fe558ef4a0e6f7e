/* Broken trace files: cut off, changed, damaged field by field. Opening each fails with one line of
 * message. */
#include "trace_sample.h"

/* Writes the file of a sample and frees x. */
static uint8_t *sample_bytes(struct sample x, size_t *bytes)
{
    write_sample(&x);
    free(x.numbers);
    return read_file(bytes);
}

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

/* Opens bytes in a block of exactly their size, so that a sanitizer reports a read past the end. */
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

/* The offset of a payload: of the n-th chunk of a kind. */
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

/* A damage: a field of a chunk (kind 0: of the file's head) and its new value. */
struct damage {
    uint32_t kind;
    int offset; /* in the payload; negative: in the chunk's head */
    unsigned bytes;
    uint64_t value;
    const char *expected_text;
};

#define SHAPE(field, value, expected_text)                                                         \
    {                                                                                              \
        TRACE_CHUNK_SHAPE, offsetof(struct trace_file_shape, field), 4, value, expected_text       \
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
    {TRACE_CHUNK_ROUTERS, -16, 4, 0, "which version 1 does not know"},
    {TRACE_CHUNK_ROUTERS, -16, 4, 2, "second list"},
    {TRACE_CHUNK_ROUTERS, -16, 4, 7, "which version 1 does not know"},
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
    SHAPE(has, TRACE_ALL & ~TRACE_EMBEDDINGS, "embeddings, but the shape has none"),
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
    /* a sequence: 5 tokens; then 2 numbers, 2 x 2 x 5 halves, and from 16 + 20 + 8 + 40 on the
       choices */
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
        if ((code != ERROR_FORMAT && code != ERROR_VERSION) || !strstr(e.text, d->expected_text))
            fail_msg("damage %zu: code %d, '%s', expected '%s'", i, (int)code, e.text,
                     d->expected_text);
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

/* Messages show a name from a file. */
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
    assert_int_equal(trace_open("/proc/nonexistent/trace", &t, &e), ERROR_NOT_FOUND);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cut_everywhere), cmocka_unit_test(bytes_changed),
        cmocka_unit_test(every_damage),   cmocka_unit_test(more_than_the_file),
        cmocka_unit_test(name_is_tame),   cmocka_unit_test(files_that_are_none),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
