/* Trace files: a written trace reads back the same, and a failed write leaves no file. */
#include "trace_sample.h"

#include "quant/quant.h"

#include <glob.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>

/* The files beside `path`, unfinished ones, too. */
static unsigned count_files(void)
{
    glob_t found;
    char pattern[80];
    snprintf(pattern, sizeof pattern, "%s*", path);
    unsigned n = glob(pattern, 0, NULL, &found) == 0 ? (unsigned)found.gl_pathc : 0;
    globfree(&found);
    return n;
}

/* ---- Reading ---- */

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

/* At any alignment of the bytes in memory. */
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

/* q = round(-16 log2 p). 0.3: 16 * 1.73697 = 27.79, so 28. 2^-15.875 is the last step, 254; half a
 * step further is 0. */
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

/* A value becomes the nearest half; a value that is too large stays finite. */
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
    assert_int_equal(count_files(), 0);
    /* a missing folder, and a device that the writer must not replace */
    char missing[80];
    snprintf(missing, sizeof missing, "%s/trace", path);
    assert_int_equal(trace_writer_new(missing, &x.shape, x.layers, &w, &e), ERROR_IO);
    assert_int_equal(trace_writer_new("/dev/full", &x.shape, x.layers, &w, &e), ERROR_IO);
    assert_non_null(strstr(e.text, "not a regular file"));
    free(x.numbers);
}

/* The error may occur at a write, or at the end if all data fits into the buffer. */
static void no_space_on_disk(void **state)
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
        assert_int_equal(count_files(), 0);
        free(x.numbers);
    }
    setrlimit(RLIMIT_FSIZE, &all);
}

/* The disk is full at any byte of the third sequence: the trace has two. A larger limit: all three.
 * With a limit in the first one nothing can be kept. */
static void disk_full_keeps_sequences(void **state)
{
    (void)state;
    struct rlimit all, small;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &all), 0);
    signal(SIGXFSZ, SIG_IGN);
    uint32_t seen[4] = {0};
    for (uint64_t bytes = 64;; bytes += 64) {
        struct sample x = sample_new(256, TRACE_GATE);
        struct trace_writer *w;
        struct trace *t;
        struct error e;
        small = (struct rlimit){.rlim_cur = bytes, .rlim_max = all.rlim_max};
        assert_int_equal(trace_writer_new(path, &x.shape, x.layers, &w, &e), ERROR_OK);
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
        uint32_t n = 0;
        while (n < 3 && !write_sample_sequence(w, &x.shape, 0, &e))
            n++;
        enum error_code code = trace_writer_finish(w, &e);
        setrlimit(RLIMIT_FSIZE, &all); /* a failed assertion writes, too */
        assert_int_equal(code, n ? ERROR_OK : ERROR_IO);
        free(x.numbers);
        seen[n]++;
        if (!n)
            continue;
        struct stat st;
        assert_int_equal(stat(path, &st), 0);
        assert_int_equal(st.st_mode & 0777, 0600); /* it holds a text's tokens */
        if (trace_open(path, &t, &e))
            fail_msg("%s", e.text);
        assert_int_equal(trace_sequences(t), n);
        trace_close(t);
        assert_int_equal(count_files(), 1);
        unlink(path);
        if (n == 3)
            break;
    }
    assert_true(seen[0] && seen[1] && seen[2]);
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
    assert_int_equal(trace_writer_finish(w, &e),
                     ERROR_OK); /* the refused sequence is not in the file */
    struct trace *t;
    assert_int_equal(trace_open(path, &t, &e), ERROR_OK);
    assert_int_equal(trace_sequences(t), 1);
    trace_close(t);
    unlink(path);
    free(x.numbers);
}

/* 100,000 tokens of a model of 48 layers, 128 experts, 8 of them a token, d_model 2048, in
 * sequences of 512 tokens: 196.
 *   ids        100,000 x 4                          =     400,000
 *   choices    100,000 x 48 x 8                     =  38,400,000
 *   gates      100,000 x 48 x 128                   = 614,400,000
 *   routers    48 x 128 x 2048 x 4                  =  50,331,648
 *   embeddings 4 + 2 x 2048 each; 70,000 distinct   = 287,000,000, more than any such text has
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
        cmocka_unit_test(round_trip),
        cmocka_unit_test(bytes_anywhere),
        cmocka_unit_test(gate_steps),
        cmocka_unit_test(halves),
        cmocka_unit_test(no_space_on_disk),
        cmocka_unit_test(disk_full_keeps_sequences),
        cmocka_unit_test(nothing_is_left),
        cmocka_unit_test(wrong_use),
        cmocka_unit_test(hundred_thousand_tokens),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
