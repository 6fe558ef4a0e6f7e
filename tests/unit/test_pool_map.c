/* The host pool holds every weight of a model file, in tiles, to the bit. Broken
 * pools are refused. Truth: lib/quant's reading of the file's rows. test_pool_plan.c tests which
 * files are refused. */
#include "gguf/gguf_write.h"
#include "quant/quant.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "loaded_model.h"

/* What the file multiplies matrix `plane` of a tensor by, beside its 4-bit values. */
static float file_factor(const struct loaded_model *m, const struct gguf_tensor *t, uint32_t plane)
{
    char name[GGUF_NAME_BYTES + sizeof ".scale"];
    float factor;
    snprintf(name, sizeof name, "%.*s.scale", (int)(strlen(t->name) - strlen(".weight")), t->name);
    const struct gguf_tensor *factors = gguf_tensor_find(m->g, name);
    if (t->type != TENSOR_NVFP4 || !factors)
        return 1;
    const uint8_t *data = gguf_tensor_data(m->g, factors);
    memcpy(&factor, data + (factors->ne[0] > 1 ? plane : 0) * sizeof factor, sizeof factor);
    return factor;
}

static void check_row(const struct matrix *m, uint32_t row, const struct gguf_tensor *t,
                      const uint8_t *data, float factor, uint32_t first_col)
{
    float *got = malloc(m->cols * sizeof *got), *want = malloc(t->ne[0] * sizeof *want);
    assert_non_null(got);
    assert_non_null(want);
    tile_unpack_row(m, row, got);
    quant_dequantize(t->type, data, want, t->ne[0]);
    for (uint64_t i = 0; i < t->ne[0]; i++)
        want[i] *= factor;
    assert_memory_equal(got, want + first_col, m->cols * sizeof *got);
    free(got);
    free(want);
}

static void check_vectors(const struct gguf_tensor *source, const uint8_t *data, const void *got,
                          size_t n)
{
    float *want = malloc(n * sizeof *want);
    assert_non_null(want);
    quant_dequantize(source->type, data, want, n);
    assert_memory_equal(got, want, n * sizeof *want);
    free(want);
}

/* attn_k_b and attn_v_b of a file that stores both in attn_kv_b: head h's rows, the rows of k
 * transposed. */
static void check_unsplit(const struct loaded_model *m, const struct pool_tensor *t)
{
    char name[64];
    bool is_k = strstr(t->name, "attn_k_b") != NULL;
    uint32_t layer = (uint32_t)strtoul(t->name + 4, NULL, 10), rank = is_k ? t->rows : t->cols;
    snprintf(name, sizeof name, "blk.%u.attn_kv_b.weight", layer);
    const struct gguf_tensor *source = gguf_tensor_find(m->g, name);
    assert_non_null(source);
    assert_int_equal(source->ne[0], rank);
    uint32_t head_rows = (uint32_t)source->ne[1] / t->planes, mine = is_k ? t->cols : t->rows;
    float *want = malloc(rank * sizeof *want), *got = malloc(rank * sizeof *got),
          *row = malloc(t->cols * sizeof *row);
    size_t row_bytes = quant_row_bytes(source->type, rank);
    for (uint32_t head = 0; head < t->planes; head++) {
        struct matrix plane = {(enum tensor_type)t->type, t->rows, t->cols,
                               m->map.base + t->offset + head * (t->bytes / t->planes)};
        for (uint32_t i = 0; i < mine; i++) {
            uint32_t file_row = head * head_rows + (is_k ? i : head_rows - mine + i);
            quant_dequantize(source->type,
                             (const uint8_t *)gguf_tensor_data(m->g, source) + file_row * row_bytes,
                             want, rank);
            if (!is_k)
                tile_unpack_row(&plane, i, got);
            for (uint32_t c = 0; is_k && c < rank; c++) {
                tile_unpack_row(&plane, c, row);
                got[c] = row[i];
            }
            assert_memory_equal(got, want, rank * sizeof *got);
        }
    }
    free(row);
    free(got);
    free(want);
}

static void check_dense(const struct loaded_model *m)
{
    for (uint32_t i = 0; i < m->map.header->n_tensors; i++) {
        const struct pool_tensor *t = &m->map.tensors[i];
        const struct gguf_tensor *source = gguf_tensor_find(m->g, t->name);
        assert_ptr_equal(pool_map_find(&m->map, t->name), t);
        if (!source) {
            check_unsplit(m, t);
            continue;
        }
        const uint8_t *data = gguf_tensor_data(m->g, source);
        if (t->form == POOL_VECTOR) {
            check_vectors(source, data, m->map.base + t->offset, (size_t)t->rows * t->cols);
            continue;
        }
        assert_int_equal(t->planes, source->ne[2]);
        size_t row_bytes = quant_row_bytes(source->type, t->cols);
        for (uint32_t row = 0; row < t->rows * t->planes; row++) {
            struct matrix plane = {(enum tensor_type)t->type, t->rows, t->cols,
                                   m->map.base + t->offset +
                                       row / t->rows * (t->bytes / t->planes)};
            check_row(&plane, row % t->rows, source, data + row * row_bytes,
                      file_factor(m, source, row / t->rows), 0);
        }
    }
}

static const struct gguf_tensor *expert_tensor(const struct loaded_model *m, uint32_t layer,
                                               const char *part, const char *suffix)
{
    char name[64];
    snprintf(name, sizeof name, "blk.%u.ffn_%s_exps.%s", layer, part, suffix);
    return gguf_tensor_find(m->g, name);
}

static void check_expert_bias(const struct loaded_model *m, uint32_t layer, uint32_t expert,
                              uint32_t segment, const char *part, const float *got)
{
    const struct pool_slabs *s = &m->map.slabs[layer];
    const struct gguf_tensor *t = expert_tensor(m, layer, part, "bias");
    assert_int_equal(t != NULL, got != NULL);
    if (!t)
        return;
    const uint8_t *data = gguf_tensor_data(m->g, t);
    size_t at = (expert * s->n_segments + segment) * quant_row_bytes(t->type, s->segment_width);
    check_vectors(t, data + at, got, s->segment_width);
}

static void check_expert(const struct loaded_model *m, uint32_t layer, uint32_t expert)
{
    const char *parts[] = {"gate", "up", "down"};
    const struct pool_slabs *s = &m->map.slabs[layer];
    for (uint32_t segment = 0; segment < s->n_segments; segment++) {
        struct expert_segment x =
            pool_segment_at(s, pool_map_segment_place(&m->map, layer, expert, segment));
        const struct matrix *matrices[3] = {&x.gate, &x.up, &x.down};
        for (int part = 0; part < 3; part++) {
            const struct gguf_tensor *t = expert_tensor(m, layer, parts[part], "weight");
            size_t row_bytes = quant_row_bytes(t->type, t->ne[0]);
            const uint8_t *data =
                (const uint8_t *)gguf_tensor_data(m->g, t) + expert * row_bytes * t->ne[1];
            for (uint32_t row = 0; row < matrices[part]->rows; row++) {
                uint32_t file_row = part < 2 ? segment * s->segment_width + row : row;
                check_row(matrices[part], row, t, data + file_row * row_bytes,
                          file_factor(m, t, expert), part < 2 ? 0 : segment * s->segment_width);
            }
        }
        check_expert_bias(m, layer, expert, segment, "gate", x.gate_bias);
        check_expert_bias(m, layer, expert, segment, "up", x.up_bias);
    }
}

static void check_weights(const struct loaded_model *m)
{
    check_dense(m);
    for (uint32_t layer = 0; layer < m->map.params.n_layers; layer++)
        for (uint32_t expert = 0; expert < m->map.slabs[layer].n_experts; expert++)
            check_expert(m, layer, expert);
}

static void check_model(const struct mkmodel_options *o, uint32_t min_segments)
{
    struct loaded_model m;
    load_model(&m, o);
    assert_true(m.map.slabs[o->layers - 1].n_segments >= min_segments);
    check_weights(&m);
    unload_model(&m);
}

/* The golden models: latent attention split and not, biases of experts, dense first layers. */
static void test_golden_weights(void **state)
{
    static const char *const names[] = {
        MOED_SOURCE_DIR "/tests/golden/phimoe.gguf",
        MOED_SHARED_DIR "/golden/deepseek2-v3.gguf",
        MOED_SHARED_DIR "/golden/deepseek2-legacy.gguf",
        MOED_SHARED_DIR "/golden/deepseek2-lite.gguf",
        MOED_SHARED_DIR "/golden/gpt-oss.gguf",
    };
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (access(names[i], R_OK)) {
            assert_null(strstr(names[i], MOED_SOURCE_DIR "/tests"));
            print_message("%s is not here\n", names[i]);
            continue;
        }
        struct loaded_model m;
        load_file(&m, names[i]);
        check_weights(&m);
        unload_model(&m);
    }
}

static void test_every_weight(void **state)
{
    static const char *const types[] = {"F32",  "F16",  "BF16", "Q8_0",   "Q4_0",
                                        "Q4_K", "Q5_K", "Q6_K", "Q4_K_M", "NVFP4"};
    static const char *const archs[] = {"llama", "qwen2moe", "qwen3moe"};
    struct mkmodel_options o;
    (void)state;
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        small_model(&o, archs[i % 3], types[i]);
        check_model(&o, 1);
    }
    small_model(&o, "qwen3moe", "F32");
    o.expert_width = 40; /* not a whole number of tile rows */
    check_model(&o, 1);
}

static void test_segments(void **state)
{
    struct mkmodel_options o;
    (void)state;
    small_model(&o, "qwen3moe", "F32");
    o.expert_width = 1536; /* 4.7 MB an expert */
    check_model(&o, 3);
    small_model(&o, "qwen3moe", "NVFP4"); /* each segment has its expert's factors */
    o.hidden = 2048;
    o.expert_width = 1536; /* 5.3 MB an expert */
    o.layers = 1;
    check_model(&o, 3);
    small_model(&o, "llama", "Q4_K");
    o.hidden = 1024;
    o.expert_width = 3072; /* 5.3 MB an expert, blocks of 256 */
    o.layers = 1;
    check_model(&o, 3);
}

static void test_split_files(void **state)
{
    struct mkmodel_options o;
    struct mkmodel_result result;
    struct error e;
    char path[64], part[96];
    (void)state;
    small_model(&o, "qwen3moe", "Q8_0");
    o.split = 3;
    snprintf(path, sizeof path, "/tmp/moed-test-split-%d.gguf", (int)getpid());
    must(mkmodel_write(&o, path, NULL, NULL, &result, &e), &e);
    struct gguf *g;
    must(gguf_open(result.first_file, &g, &e), &e);
    assert_int_equal(gguf_file_count(g), 3);
    struct pool_plan plan;
    must(pool_plan_new(g, &plan, &e), &e);
    assert_true(plan.header.n_tensors > 0);
    pool_plan_free(&plan);
    gguf_close(g);
    for (int i = 1; i <= 3; i++) {
        snprintf(part, sizeof part, "/tmp/moed-test-split-%d-0000%d-of-00003.gguf", (int)getpid(),
                 i);
        assert_int_equal(unlink(part), 0);
    }
}

/* Gemma's factors of the experts' weights have the name of the down matrices' factors. They
 * multiply once, in the sum. */
static void test_factors_of_the_sum(void **state)
{
    struct mkmodel_options o;
    struct loaded_model m;
    (void)state;
    small_model(&o, "gemma4", "NVFP4");
    o.layers = 6;
    load_model(&m, &o);
    const struct pool_expert_sources *x = &m.plan.experts[0];
    assert_non_null(pool_map_find(&m.map, "blk.0.ffn_down_exps.scale"));
    assert_int_equal(x->down.tensor->type, TENSOR_NVFP4);
    assert_null(x->down.factors);
    assert_non_null(x->gate.factors); /* of ffn_gate_up_exps */
    assert_ptr_equal(x->gate.factors, x->up.factors);
    unload_model(&m);
}

/* The file of a llama whose q, k and v, their biases, and gate and up lie in one tensor each: value
 * i of the model is i. */
static void write_fused(const char *path)
{
    static const struct {
        const char *name;
        uint64_t ne[3];
    } tensors[] = {{"blk.0.attn_qkv.weight", {8, 16, 1}},
                   {"blk.0.attn_qkv.bias", {16, 1, 1}},
                   {"blk.0.ffn_gate_up_exps.weight", {8, 8, 2}},
                   {"blk.0.ffn_down_exps.weight", {4, 8, 2}},
                   {"blk.0.ffn_gate_inp.weight", {8, 2, 1}},
                   {"blk.0.attn_output.weight", {8, 8, 1}},
                   {"blk.0.attn_norm.weight", {8, 1, 1}},
                   {"blk.0.ffn_norm.weight", {8, 1, 1}},
                   {"output_norm.weight", {8, 1, 1}},
                   {"token_embd.weight", {8, 5, 1}}};
    static const struct {
        const char *key;
        uint32_t value;
    } keys[] = {{"llama.block_count", 1},
                {"llama.context_length", 64},
                {"llama.embedding_length", 8},
                {"llama.attention.head_count", 2},
                {"llama.attention.head_count_kv", 1},
                {"llama.expert_count", 2},
                {"llama.expert_used_count", 1},
                {"llama.feed_forward_length", 4}};
    struct gguf_writer *w;
    struct error e;
    float value = 0;
    must(gguf_writer_open(path, &w, &e), &e);
    gguf_writer_string(w, "general.architecture", "llama", 5);
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        gguf_writer_u32(w, keys[i].key, keys[i].value);
    for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++)
        gguf_writer_tensor(w, tensors[i].name, TENSOR_F32, 3, tensors[i].ne);
    for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++)
        for (uint64_t n = tensors[i].ne[0] * tensors[i].ne[1] * tensors[i].ne[2]; n > 0; n--) {
            must(gguf_writer_data(w, &value, sizeof value, &e), &e);
            value++;
        }
    must(gguf_writer_close(w, &e), &e);
}

static void expect_rows(const struct matrix *m, uint32_t rows, float first)
{
    float row[8];
    assert_int_equal(m->rows, rows);
    assert_int_equal(m->cols, 8);
    for (uint32_t r = 0; r < rows; r++) {
        tile_unpack_row(m, r, row);
        for (int c = 0; c < 8; c++)
            assert_true(row[c] == first + (float)(r * 8) + (float)c);
    }
}

/* Heads of 4: q has rows 0-7 of the fused tensor, k 8-11, v 12-15. */
static void test_fused(void **state)
{
    static const struct {
        const char *part;
        uint32_t rows;
        float weight, bias;
    } parts[] = {{"attn_q", 8, 0, 128}, {"attn_k", 4, 64, 136}, {"attn_v", 4, 96, 140}};
    struct loaded_model m;
    char path[64], name[64];
    (void)state;
    snprintf(path, sizeof path, "/tmp/moed-test-fused-%d.gguf", (int)getpid());
    write_fused(path);
    load_file(&m, path);
    memcpy(m.made, path, sizeof path);
    for (int i = 0; i < 3; i++) {
        snprintf(name, sizeof name, "blk.0.%s.weight", parts[i].part);
        const struct pool_tensor *t = pool_map_find(&m.map, name);
        assert_non_null(t);
        struct matrix weight = {(enum tensor_type)t->type, t->rows, t->cols,
                                m.map.base + t->offset};
        expect_rows(&weight, parts[i].rows, parts[i].weight);
        snprintf(name, sizeof name, "blk.0.%s.bias", parts[i].part);
        t = pool_map_find(&m.map, name);
        assert_non_null(t);
        assert_int_equal(t->cols, parts[i].rows);
        const float *bias = (const float *)(m.map.base + t->offset);
        for (uint32_t r = 0; r < t->cols; r++)
            assert_true(bias[r] == parts[i].bias + (float)r);
    }
    for (uint32_t expert = 0; expert < 2; expert++) { /* 4 rows of gate, then 4 of up */
        struct expert_segment s =
            pool_segment_at(m.map.slabs, pool_map_segment_place(&m.map, 0, expert, 0));
        expect_rows(&s.gate, 4, 144 + (float)expert * 64);
        expect_rows(&s.up, 4, 144 + (float)expert * 64 + 32);
    }
    unload_model(&m);
}

/* The use of each byte of the pool: dense tensor, other data, or none. */
enum { NOTHING, DENSE, OTHER };

static void mark(uint8_t *marks, uint64_t offset, uint64_t bytes, uint8_t what)
{
    for (uint64_t i = offset; i < offset + bytes; i++) {
        assert_int_equal(marks[i], NOTHING);
        marks[i] = what;
    }
}

static void check_dense_range(const struct pool_map *map, struct pool_range range)
{
    const struct pool_header *h = map->header;
    uint8_t *marks = calloc(h->bytes, 1);
    assert_non_null(marks);
    mark(marks, 0, sizeof *h, OTHER);
    mark(marks, h->tensors_offset, h->n_tensors * sizeof *map->tensors, OTHER);
    mark(marks, h->slabs_offset, h->n_layers * sizeof *map->slabs, OTHER);
    mark(marks, h->metadata_offset, h->metadata_bytes, OTHER);
    for (uint32_t i = 0; i < h->n_tensors; i++)
        mark(marks, map->tensors[i].offset, map->tensors[i].bytes, DENSE);
    for (uint32_t i = 0; i < h->n_layers && !h->tiered; i++)
        mark(marks, map->slabs[i].offset, map->slabs[i].slab_bytes * map->slabs[i].n_experts,
             OTHER);
    assert_int_equal(range.offset % TILE_ALIGN, 0);
    assert_int_equal(marks[range.offset], DENSE);
    assert_int_equal(marks[range.offset + range.bytes - 1], DENSE);
    uint64_t empty = 0;
    for (uint64_t i = 0; i < h->bytes; i++) {
        bool inside = i >= range.offset && i < range.offset + range.bytes;
        assert_true(inside ? marks[i] != OTHER : marks[i] != DENSE);
        empty = marks[i] == NOTHING ? empty + 1 : 0;
        assert_true(!inside || empty < TILE_ALIGN);
    }
    free(marks);
}

static void check_dense_of(const struct mkmodel_options *o)
{
    struct loaded_model m;
    load_model(&m, o);
    struct pool_range range = pool_map_dense(&m.map);
    check_dense_range(&m.map, range);
    /* known before memd loads anything, and equal if the experts are in the host tier */
    for (int i = 0; i < 2; i++) {
        struct pool_map map = pool_plan_map(&m.plan);
        struct pool_range before = pool_map_dense(&map);
        assert_true(before.offset == range.offset && before.bytes == range.bytes);
        assert_ptr_equal(map.params.arch, m.map.params.arch);
        check_dense_range(&map, before);
        pool_plan_keep_dense(&m.plan);
    }
    unload_model(&m);
}

static void test_dense_range(void **state)
{
    struct mkmodel_options o;
    (void)state;
    small_model(&o, "qwen3moe", "Q4_K");
    check_dense_of(&o);
    small_model(&o, "llama", "F32");
    o.expert_width = 40;
    check_dense_of(&o);
    /* by hand: two tensors of 100 and of 64 bytes, in no order */
    struct pool_tensor tensors[] = {{.offset = 1152, .bytes = 64}, {.offset = 1024, .bytes = 100}};
    struct pool_header h = {.n_tensors = 2};
    struct pool_map map = {.header = &h, .tensors = tensors};
    struct pool_range range = pool_map_dense(&map);
    assert_true(range.offset == 1024 && range.bytes == 192);
    h.n_tensors = 1;
    range = pool_map_dense(&map);
    assert_true(range.offset == 1152 && range.bytes == 64);
    h.n_tensors = 0;
    assert_int_equal(pool_map_dense(&map).bytes, 0);
}

/* The pool has no dense range if other data lies among the dense tensors, or a gap that is longer
 * than their padding. */
static void test_dense_broken(void **state)
{
    struct mkmodel_options o;
    struct loaded_model m;
    struct pool_map map;
    struct error e;
    (void)state;
    small_model(&o, "qwen3moe", "F32");
    load_model(&m, &o);
    struct pool_header *h = (struct pool_header *)m.pool, sane = *h;
    struct pool_range range = pool_map_dense(&m.map);
    struct pool_tensor *tensors = (struct pool_tensor *)(m.pool + h->tensors_offset);
    struct pool_slabs *slabs = (struct pool_slabs *)(m.pool + h->slabs_offset);

    h->metadata_offset = range.offset + 64;
    assert_int_equal(pool_map_attach(m.pool, sane.bytes, &map, &e), ERROR_PROTOCOL);
    h->metadata_offset = range.offset - h->metadata_bytes / 8 * 8; /* its last bytes */
    assert_int_equal(pool_map_attach(m.pool, sane.bytes, &map, &e),
                     sane.metadata_bytes % 8 ? ERROR_PROTOCOL : ERROR_OK);
    *h = sane;
    struct pool_slabs slab = slabs[1];
    slabs[1].offset = range.offset;
    assert_int_equal(pool_map_attach(m.pool, sane.bytes, &map, &e), ERROR_PROTOCOL);
    slabs[1] = slab;
    uint32_t last = 0;
    for (uint32_t i = 0; i < h->n_tensors; i++)
        last = tensors[i].offset > tensors[last].offset ? i : last;
    tensors[last].offset =
        sane.bytes - (tensors[last].bytes + 63) / 64 * 64; /* among the experts */
    assert_int_equal(pool_map_attach(m.pool, sane.bytes, &map, &e), ERROR_PROTOCOL);
    slabs[0].offset = slabs[1].offset = 0; /* no experts: a gap instead */
    h->tiered = 1;
    assert_int_equal(pool_map_attach(m.pool, sane.bytes, &map, &e), ERROR_PROTOCOL);
    assert_non_null(strstr(e.text, "dense tensors"));
    unload_model(&m);
}

/* Flips every byte of header and tables: attaching fails, or gives a map that lies in the pool. */
static void test_attach_broken(void **state)
{
    struct mkmodel_options o;
    struct loaded_model m;
    (void)state;
    small_model(&o, "qwen3moe", "Q8_0");
    o.layers = 1;
    load_model(&m, &o);
    size_t bytes = m.plan.header.bytes, tables = m.plan.header.metadata_offset;
    for (size_t i = 0; i < tables; i++) {
        m.pool[i] ^= 0xff;
        struct pool_map map;
        struct error e;
        if (pool_map_attach(m.pool, bytes, &map, &e) == ERROR_OK)
            for (uint32_t t = 0; t < map.header->n_tensors; t++)
                assert_true(map.tensors[t].offset + map.tensors[t].bytes <= bytes);
        m.pool[i] ^= 0xff;
    }
    struct pool_map map;
    struct error e;
    for (size_t cut = 0; cut < tables; cut += 64)
        assert_int_not_equal(pool_map_attach(m.pool, cut, &map, &e), ERROR_OK);
    assert_int_equal(pool_map_attach(m.pool, bytes, &map, &e), ERROR_OK);
    unload_model(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_weight),   cmocka_unit_test(test_segments),
        cmocka_unit_test(test_golden_weights), cmocka_unit_test(test_split_files),
        cmocka_unit_test(test_attach_broken),  cmocka_unit_test(test_factors_of_the_sum),
        cmocka_unit_test(test_fused),          cmocka_unit_test(test_dense_range),
        cmocka_unit_test(test_dense_broken),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
