/* Writes the seeds of tests/fuzz/corpus: `make_corpus DIRECTORY` fills DIRECTORY/gguf,
 * DIRECTORY/plan and DIRECTORY/trace, which must exist. The repository holds the seeds; run it
 * again when the writer or this list changes. */
#include "gguf/gguf_write.h"

#include "plan_seeds.h"
#include "trace_seeds.h"

#include <inttypes.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *root, *directory;

static struct gguf_writer *begin(const char *name)
{
    struct gguf_writer *w;
    struct error e;
    char path[4096];
    snprintf(path, sizeof path, "%s/%s/%s", root, directory, name);
    if (gguf_writer_open(path, &w, &e) != ERROR_OK) {
        fprintf(stderr, "%s\n", e.text);
        exit(1);
    }
    return w;
}

static void end(struct gguf_writer *w, size_t data_bytes)
{
    struct error e;
    uint8_t *zeros = calloc(1, data_bytes ? data_bytes : 1);
    if (!zeros || gguf_writer_data(w, zeros, data_bytes, &e) != ERROR_OK ||
        gguf_writer_close(w, &e) != ERROR_OK) {
        fprintf(stderr, "writing the corpus failed\n");
        exit(1);
    }
    free(zeros);
}

static void keys_of_all_types(void)
{
    struct gguf_writer *w = begin("keys.gguf");
    struct gguf_string words[3] = {{"a", 1}, {"", 0}, {"bc", 2}};
    int32_t integers[2] = {-1, 7};
    float floats[2] = {0.5f, -2};
    gguf_writer_string(w, "general.architecture", "llama", 5);
    gguf_writer_u32(w, "general.alignment", 32);
    gguf_writer_u16(w, "k.u16", 1);
    gguf_writer_i32(w, "k.i32", -1);
    gguf_writer_f32(w, "k.f32", 1.5f);
    gguf_writer_bool(w, "k.bool", true);
    gguf_writer_strings(w, "k.strings", words, 3);
    gguf_writer_i32s(w, "k.i32s", integers, 2);
    gguf_writer_f32s(w, "k.f32s", floats, 2);
    end(w, 0);
}

static void tensors_of_several_types(void)
{
    struct gguf_writer *w = begin("tensors.gguf");
    uint64_t vector[1] = {4}, matrix[2] = {32, 2}, cube[3] = {256, 1, 2}, four[4] = {1, 2, 1, 2};
    gguf_writer_u32(w, "llama.block_count", 1);
    gguf_writer_tensor(w, "output_norm.weight", TENSOR_F32, 1, vector); /* 16 bytes */
    gguf_writer_tensor(w, "blk.0.q.weight", TENSOR_Q8_0, 2, matrix);    /* 68 */
    gguf_writer_tensor(w, "blk.0.exps.weight", TENSOR_Q4_K, 3, cube);   /* 288 */
    gguf_writer_tensor(w, "blk.0.four.weight", TENSOR_F16, 4, four);    /* 8 */
    end(w, 16 + 68 + 288 + 8);
}

static void one_part_of_two(void)
{
    struct gguf_writer *w = begin("part-00001-of-00002.gguf");
    gguf_writer_u16(w, "split.no", 0);
    gguf_writer_u16(w, "split.count", 2);
    gguf_writer_i32(w, "split.tensors.count", 2);
    end(w, 0);
}

static void nothing(void)
{
    end(begin("empty.gguf"), 0);
}

/* Writes lines "NAME TYPE N [N...]". Types u, f, s and b: a key; other types: a tensor with its
 * shape. */
static void plan_seed(const struct plan_seed *seed)
{
    struct gguf_writer *w = begin(seed->name);
    size_t data_bytes = 0;
    for (const char *const *line = seed->lines; *line; line++) {
        char name[64], type[16], value[16];
        uint64_t ne[4] = {1, 1, 1, 1};
        int n =
            sscanf(*line, "%63s %15s %15s %" SCNu64 " %" SCNu64, name, type, value, &ne[1], &ne[2]);
        int id = tensor_type_from_name(type);
        ne[0] = strtoull(value, NULL, 10);
        if (strcmp(type, "u") == 0)
            gguf_writer_u32(w, name, (uint32_t)ne[0]);
        else if (strcmp(type, "f") == 0)
            gguf_writer_f32(w, name, strtof(value, NULL));
        else if (strcmp(type, "b") == 0)
            gguf_writer_bool(w, name, ne[0] != 0);
        else if (strcmp(type, "s") == 0)
            gguf_writer_string(w, name, value, strlen(value));
        else {
            const struct tensor_type_info *info = tensor_type_info((uint32_t)id);
            gguf_writer_tensor(w, name, (enum tensor_type)id, (uint32_t)n - 2, ne);
            data_bytes += ne[0] * ne[1] * ne[2] / info->block_values * info->block_bytes;
        }
    }
    end(w, data_bytes);
}

static void trace_seed(const struct trace_seed *seed)
{
    struct error e;
    char path[4096];
    snprintf(path, sizeof path, "%s/%s/%s", root, directory, seed->name);
    if (trace_seed_write(path, seed, &e) != ERROR_OK) {
        fprintf(stderr, "%s\n", e.text);
        exit(1);
    }
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        fprintf(stderr, "usage: make_corpus DIRECTORY\n");
        return 2;
    }
    root = argv[1];
    directory = "gguf";
    keys_of_all_types();
    tensors_of_several_types();
    one_part_of_two();
    nothing();
    directory = "plan";
    for (size_t i = 0; i < sizeof plan_seeds / sizeof *plan_seeds; i++)
        plan_seed(&plan_seeds[i]);
    directory = "trace";
    for (size_t i = 0; i < sizeof trace_seeds / sizeof *trace_seeds; i++)
        trace_seed(&trace_seeds[i]);
    return 0;
}
