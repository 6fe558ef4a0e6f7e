/* The GGUF reader and writer: round trips, typed access, split files, golden files, and a small
 * file cut and changed at every byte. Broken files by kind: test_gguf_broken.c. */
#include "base/clock.h"
#include "base/strbuf.h"
#include "gguf/file_type.h"
#include "gguf/gguf.h"
#include "gguf/gguf_write.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "tests/unit/gguf_bytes.h"
#include "tests/unit/temporary_directory.h"

#include <fcntl.h>
#include <glob.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

static void write_file(const char *path, const struct strbuf *b)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, b->data, b->len), b->len);
    close(fd);
}

static void test_what_is_no_file(void **state)
{
    struct gguf *g;
    struct error e;
    assert_int_equal(gguf_open(in_directory("none.gguf"), &g, &e), ERROR_NOT_FOUND);
    assert_non_null(strstr(e.text, "none.gguf"));
    assert_int_equal(gguf_open(directory, &g, &e), ERROR_IO);
    assert_non_null(strstr(e.text, "directory"));
    assert_int_equal(gguf_open("/dev/null", &g, &e), ERROR_IO);
    assert_non_null(strstr(e.text, "device"));
    assert_int_equal(mkfifo(in_directory("pipe"), 0600), 0);
    assert_int_equal(gguf_open(in_directory("pipe"), &g, &e), ERROR_IO);
    assert_non_null(strstr(e.text, "pipe"));
    if (geteuid() != 0) { /* root reads everything */
        int fd = open(in_directory("secret"), O_CREAT | O_WRONLY | O_CLOEXEC, 0000);
        assert_true(fd >= 0);
        close(fd);
        assert_int_equal(gguf_open(in_directory("secret"), &g, &e), ERROR_IO);
        assert_non_null(strstr(e.text, "readable"));
    }
}

/* ---- whole files ---- */

static const char many_bytes[] = "any\0bytes\xff";

/* One key of each kind, four tensors, written by the writer. */
static void write_sample(const char *path)
{
    struct gguf_writer *w;
    struct error e;
    struct gguf_string words[3] = {{"", 0}, {many_bytes, sizeof many_bytes - 1}, {"z", 1}};
    int32_t numbers[3] = {-1, 0, INT32_MAX};
    float floats[2] = {0.5f, -3.0f};
    uint64_t ne[4] = {256, 2, 3, 1};
    static uint8_t data[8192];
    for (size_t i = 0; i < sizeof data; i++)
        data[i] = (uint8_t)(i * 7 + i / 256);
    assert_int_equal(gguf_writer_open(path, &w, &e), ERROR_OK);
    gguf_writer_string(w, "general.architecture", "llama", 5);
    gguf_writer_u16(w, "a.u16", 65535);
    gguf_writer_u32(w, "a.u32", 4000000000u);
    gguf_writer_i32(w, "a.i32", -5);
    gguf_writer_f32(w, "a.f32", 0.25f);
    gguf_writer_bool(w, "a.bool", true);
    gguf_writer_strings(w, "a.strings", words, 3);
    gguf_writer_i32s(w, "a.i32s", numbers, 3);
    gguf_writer_f32s(w, "a.f32s", floats, 2);
    gguf_writer_tensor(w, "three.weight", TENSOR_Q4_K, 3, ne); /* 6 blocks of 144 = 864 bytes */
    ne[0] = 5;
    gguf_writer_tensor(w, "five.bias", TENSOR_F32, 1, ne);  /* 20 bytes and 12 of padding */
    gguf_writer_tensor(w, "ten.weight", TENSOR_F16, 2, ne); /* 20 bytes, in the file's last 32 */
    /* In parts that cross the tensors' ends. */
    assert_int_equal(gguf_writer_data(w, data, 100, &e), ERROR_OK);
    assert_int_equal(gguf_writer_data(w, data + 100, 780, &e), ERROR_OK);
    assert_int_equal(gguf_writer_data(w, data + 880, 24, &e), ERROR_OK);
    assert_int_equal(gguf_writer_close(w, &e), ERROR_OK);
}

/* A file's mixture by its number, else the type with most of its bytes. */
static void test_quantization(void **state)
{
    struct gguf *g;
    struct error e;
    assert_int_equal(gguf_open(MOED_SOURCE_DIR "/models/demo.gguf", &g, &e), ERROR_OK);
    assert_int_equal(gguf_file_type(g), 7);
    gguf_close(g);
    write_sample(in_directory("sample.gguf"));
    assert_int_equal(gguf_open(in_directory("sample.gguf"), &g, &e), ERROR_OK);
    assert_int_equal(gguf_file_type(g), FILE_TYPE_NONE);
    static const struct {
        uint32_t type;
        const char *name;
    } cases[] = {{0, "F32"},  {7, "Q8_0"},  {15, "Q4_K_M"}, {38, "MXFP4"},
                 {5, "Q4_K"}, {99, "Q4_K"}, {1024, "Q4_K"}, {FILE_TYPE_NONE, "Q4_K"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_string_equal(gguf_quantization(g, cases[i].type), cases[i].name);
    gguf_close(g);
}

static void check_sample_keys(const struct gguf *g)
{
    struct error e;
    struct gguf_string s;
    uint32_t u;
    float f;
    bool b;
    assert_int_equal(gguf_kv_count(g), 9);
    assert_int_equal(gguf_get_string(g, "general.architecture", &s, &e), ERROR_OK);
    assert_int_equal(s.len, 5);
    assert_memory_equal(s.data, "llama", 5);
    assert_int_equal(gguf_get_u32(g, "a.u16", &u, &e), ERROR_OK);
    assert_int_equal(u, 65535);
    assert_int_equal(gguf_get_u32(g, "a.u32", &u, &e), ERROR_OK);
    assert_int_equal(u, 4000000000u);
    assert_int_equal(gguf_get_f32(g, "a.f32", &f, &e), ERROR_OK);
    assert_true(f == 0.25f);
    assert_int_equal(gguf_get_bool(g, "a.bool", &b, &e), ERROR_OK);
    assert_true(b);
    const struct gguf_kv *kv = gguf_find(g, "a.strings");
    uint64_t cursor = 0;
    assert_int_equal(kv->count, 3);
    assert_true(gguf_next_string(kv, &cursor, &s));
    assert_int_equal(s.len, 0);
    assert_true(gguf_next_string(kv, &cursor, &s));
    assert_int_equal(s.len, sizeof many_bytes - 1);
    assert_memory_equal(s.data, many_bytes, s.len);
    assert_true(gguf_next_string(kv, &cursor, &s));
    assert_memory_equal(s.data, "z", 1);
    assert_false(gguf_next_string(kv, &cursor, &s));
    kv = gguf_find(g, "a.i32s");
    int32_t numbers[3];
    assert_int_equal(kv->bytes, sizeof numbers);
    memcpy(numbers, kv->data, sizeof numbers);
    assert_int_equal(numbers[0], -1);
    assert_int_equal(numbers[2], INT32_MAX);
    kv = gguf_find(g, "a.f32s");
    float floats[2];
    memcpy(floats, kv->data, sizeof floats);
    assert_true(floats[0] == 0.5f && floats[1] == -3.0f);
}

/* Byte i of all tensors' bytes, without padding. */
static void check_bytes(const uint8_t *p, size_t from, size_t n)
{
    for (size_t i = 0; i < n; i++)
        assert_int_equal(p[i], (uint8_t)((from + i) * 7 + (from + i) / 256));
}

static void test_round_trip(void **state)
{
    const char *path = in_directory("sample.gguf");
    struct gguf *g;
    struct error e;
    write_sample(path);
    assert_int_equal(gguf_open(path, &g, &e), ERROR_OK);
    assert_int_equal(gguf_version(g), 3);
    assert_int_equal(gguf_file_count(g), 1);
    assert_string_equal(gguf_path(g, 0), path);
    check_sample_keys(g);
    assert_int_equal(gguf_tensor_count(g), 3);
    const struct gguf_tensor *t = gguf_tensor_find(g, "three.weight");
    assert_int_equal(t->type, TENSOR_Q4_K);
    assert_int_equal(t->n_dims, 3);
    assert_int_equal(t->ne[1], 2);
    assert_int_equal(t->ne[3], 1);
    assert_int_equal(t->bytes, 864);
    assert_int_equal(t->offset % 32, 0);
    check_bytes(gguf_tensor_data(g, t), 0, 864);
    t = gguf_tensor_find(g, "five.bias");
    check_bytes(gguf_tensor_data(g, t), 864, 20);
    t = gguf_tensor_find(g, "ten.weight");
    assert_int_equal(t->bytes, 20);
    assert_int_equal(t->offset, gguf_tensor_at(g, 1)->offset + 32);
    check_bytes(gguf_tensor_data(g, t), 884, 20);
    uint8_t by_pread[20];
    assert_int_equal(pread(gguf_fd(g, 0), by_pread, 20, (off_t)t->offset), 20);
    check_bytes(by_pread, 884, 20);
    assert_int_equal(gguf_file_bytes(g, 0), t->offset + 32);
    assert_null(gguf_tensor_find(g, "four.weight"));
    gguf_close(g);
    gguf_close(NULL);
}

static void test_metadata_alone(void **state)
{
    const char *path = in_directory("sample.gguf");
    struct gguf *g, *m;
    struct error e;
    size_t len;
    write_sample(path);
    assert_int_equal(gguf_open(path, &g, &e), ERROR_OK);
    const void *metadata = gguf_metadata(g, &len);
    void *copy = malloc(len); /* so that a read past the metadata is seen */
    memcpy(copy, metadata, len);
    assert_int_equal(gguf_open_metadata(copy, len, "copy", &m, &e), ERROR_OK);
    check_sample_keys(m);
    assert_int_equal(gguf_tensor_count(m), 3);
    assert_int_equal(gguf_tensor_at(m, 2)->offset, gguf_tensor_at(g, 2)->offset);
    assert_null(gguf_tensor_data(m, gguf_tensor_at(m, 0)));
    assert_int_equal(gguf_fd(m, 0), -1);
    gguf_close(m);
    assert_int_equal(gguf_open_metadata(copy, len - 1, "copy", &m, &e), ERROR_FORMAT);
    assert_non_null(strstr(e.text, "copy: byte"));
    free(copy);
    gguf_close(g);
}

static void kv_raw(struct strbuf *b, const char *key, uint32_t type, const void *data, size_t n)
{
    str(b, key);
    u32(b, type);
    strbuf_append(b, data, n);
}

static void test_typed_access(void **state)
{
    struct strbuf b;
    struct gguf *g;
    struct error e;
    uint32_t u = 77;
    float f;
    bool flag;
    double big = 1e300, half = 0.5;
    strbuf_init(&b);
    header(&b, 2, 0, 10);
    kv_raw(&b, "u8", GGUF_U8, "\xff", 1);
    kv_raw(&b, "i8", GGUF_I8, "\xff", 1);
    kv_raw(&b, "i16", GGUF_I16, "\xff\x7f", 2);
    kv_raw(&b, "i32", GGUF_I32, "\0\0\0\x80", 4);
    kv_raw(&b, "u64.fits", GGUF_U64, "\xff\xff\xff\xff\0\0\0\0", 8);
    kv_raw(&b, "u64.large", GGUF_U64, "\0\0\0\0\1\0\0\0", 8);
    kv_raw(&b, "i64", GGUF_I64, "\xfe\xff\xff\xff\xff\xff\xff\xff", 8);
    kv_raw(&b, "f64", GGUF_F64, &half, 8);
    kv_raw(&b, "f64.large", GGUF_F64, &big, 8);
    kv_raw(&b, "bool", GGUF_BOOL, "", 1);
    assert_int_equal(open_bytes(b.data, b.len, &g, &e), ERROR_OK);
    assert_int_equal(gguf_version(g), 2);
    assert_int_equal(gguf_get_u32(g, "i8", &u, &e), ERROR_FORMAT);
    assert_non_null(strstr(e.text, "'i8' is -1"));
    assert_int_equal(u, 77);
    assert_int_equal(gguf_get_u32(g, "u8", &u, &e), ERROR_OK);
    assert_int_equal(u, 255);
    assert_int_equal(gguf_get_u32(g, "i16", &u, &e), ERROR_OK);
    assert_int_equal(u, 32767);
    assert_int_equal(gguf_get_u32(g, "i32", &u, &e), ERROR_FORMAT);
    assert_non_null(strstr(e.text, "-2147483648"));
    assert_int_equal(gguf_get_u32(g, "u64.fits", &u, &e), ERROR_OK);
    assert_int_equal(u, UINT32_MAX);
    assert_int_equal(gguf_get_u32(g, "u64.large", &u, &e), ERROR_FORMAT);
    assert_non_null(strstr(e.text, "4294967296"));
    assert_int_equal(gguf_get_u32(g, "i64", &u, &e), ERROR_FORMAT);
    assert_non_null(strstr(e.text, "-2,"));
    assert_int_equal(gguf_get_f32(g, "f64", &f, &e), ERROR_OK);
    assert_true(f == 0.5f);
    assert_int_equal(gguf_get_f32(g, "f64.large", &f, &e), ERROR_FORMAT);
    assert_int_equal(gguf_get_f32(g, "u8", &f, &e), ERROR_FORMAT);
    assert_non_null(strstr(e.text, "type u8, expected f32"));
    assert_int_equal(gguf_get_bool(g, "bool", &flag, &e), ERROR_OK);
    assert_false(flag);
    assert_int_equal(gguf_get_bool(g, "u8", &flag, &e), ERROR_FORMAT);
    assert_int_equal(gguf_get_u32(g, "none", &u, &e), ERROR_NOT_FOUND);
    assert_non_null(strstr(e.text, "'none'"));
    assert_int_equal(gguf_get_u32_or(g, "none", 9, &u, &e), ERROR_OK);
    assert_int_equal(u, 9);
    assert_int_equal(gguf_get_u32_or(g, "f64", 9, &u, &e), ERROR_FORMAT);
    assert_int_equal(gguf_get_f32_or(g, "none", 1.5f, &f, &e), ERROR_OK);
    assert_true(f == 1.5f);
    assert_int_equal(gguf_get_bool_or(g, "none", true, &flag, &e), ERROR_OK);
    assert_true(flag);
    gguf_close(g);
    strbuf_fini(&b);
}

/* Reads everything of an opened model; the sum keeps the compiler from dropping the reads. */
static uint64_t walk(const struct gguf *g)
{
    uint64_t sum = 0;
    for (uint64_t i = 0; i < gguf_kv_count(g); i++) {
        const struct gguf_kv *kv = gguf_kv_at(g, i);
        struct gguf_string s;
        uint64_t cursor = 0;
        while (gguf_next_string(kv, &cursor, &s))
            sum += s.len ? (uint8_t)s.data[s.len - 1] : 0;
        for (uint64_t n = 0; n < kv->bytes; n++)
            sum += kv->data[n];
    }
    for (uint64_t i = 0; i < gguf_tensor_count(g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(g, i);
        const uint8_t *data = gguf_tensor_data(g, t);
        sum += data ? data[0] + data[t->bytes - 1] : 0;
        assert_ptr_equal(gguf_tensor_find(g, t->name), t);
    }
    return sum;
}

static size_t load(const char *path, uint8_t **out)
{
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    *out = malloc(1 << 16);
    size_t n = fread(*out, 1, 1 << 16, f);
    fclose(f);
    return n;
}

static void test_every_truncation(void **state)
{
    uint8_t *bytes;
    struct error e;
    const char *path = in_directory("sample.gguf");
    write_sample(path);
    size_t n = load(path, &bytes);
    for (size_t len = 0; len < n; len++) {
        struct gguf *g = NULL;
        enum error_code code = open_bytes(bytes, len, &g, &e);
        /* The last tensor has 20 bytes; the 12 of padding after it may be missing. */
        assert_int_equal(code, len < n - 12 ? ERROR_FORMAT : ERROR_OK);
        gguf_close(g);
        uint8_t *exact =
            malloc(len ? len : 1); /* in the heap, where ASan sees a read past the end */
        memcpy(exact, bytes, len);
        g = NULL;
        code = gguf_open_metadata(exact, len, "cut", &g, &e);
        if (code == ERROR_OK)
            walk(g);
        gguf_close(g);
        free(exact);
    }
    free(bytes);
}

static void test_every_byte_changed(void **state)
{
    static const uint8_t flips[] = {0x01, 0x80, 0xff};
    uint8_t *bytes;
    const char *path = in_directory("sample.gguf");
    write_sample(path);
    size_t n = load(path, &bytes), refused = 0;
    for (size_t at = 0; at < n; at++)
        for (size_t k = 0; k < sizeof flips; k++) {
            struct gguf *g = NULL;
            struct error e = {0};
            bytes[at] ^= flips[k];
            enum error_code code = open_bytes(bytes, n, &g, &e);
            if (code == ERROR_OK) {
                walk(g);
            } else {
                refused++;
                assert_int_equal(e.code, code);
                assert_non_null(strstr(e.text, "/proc/self/fd/"));
            }
            gguf_close(g);
            bytes[at] ^= flips[k];
        }
    assert_true(refused > 3 * 100); /* all of the header, most lengths and types */
    free(bytes);
}

/* ---- split files ---- */

static void write_part(const char *name, uint32_t no, uint32_t count, uint32_t tensors,
                       const char *tensor)
{
    struct strbuf b;
    strbuf_init(&b);
    header(&b, 3, 1, no == 0 ? 4 : 3);
    kv_u32(&b, "split.no", no);
    kv_u32(&b, "split.count", count);
    kv_u32(&b, "split.tensors.count", tensors);
    if (no == 0)
        kv_u32(&b, "model.key", 5);
    tensor2(&b, tensor, TENSOR_F32, 8, 1, 0);
    zeros(&b, 0);
    for (int i = 0; i < 8; i++)
        u32(&b, no);
    write_file(in_directory(name), &b);
    strbuf_fini(&b);
}

/* Files cut by bytes: the second has no header, and the first ends too early. */
static void test_cut_files(void **state)
{
    static const char *const names[] = {"cut.gguf.part1of2", "cut.gguf.part2of2"};
    struct strbuf b;
    struct gguf *g;
    struct error e;
    for (int i = 0; i < 2; i++) {
        strbuf_init(&b);
        if (i == 0)
            header(&b, 3, 1, 1);
        else
            zeros(&b, 64);
        write_file(in_directory(names[i]), &b);
        strbuf_fini(&b);
        assert_int_equal(gguf_open(in_directory(names[i]), &g, &e), ERROR_FORMAT);
        assert_non_null(strstr(e.text, i ? ": part 2 of 2 of a file" : ": part 1 of 2 of a file"));
        assert_non_null(strstr(e.text, "cat cut.gguf.part{1..2}of2 > cut.gguf"));
    }
    strbuf_init(&b);
    header(&b, 3, 1, 1);
    write_file(in_directory("cut.gguf.part1of2.gguf"), &b);
    strbuf_fini(&b);
    assert_int_equal(gguf_open(in_directory("cut.gguf.part1of2.gguf"), &g, &e), ERROR_FORMAT);
    assert_null(strstr(e.text, "join"));
}

static void test_split_files(void **state)
{
    struct gguf *g;
    struct error e;
    uint32_t value;
    write_part("m-00001-of-00003.gguf", 0, 3, 3, "a.weight");
    write_part("m-00002-of-00003.gguf", 1, 3, 3, "b.weight");
    assert_int_equal(gguf_open(in_directory("m-00001-of-00003.gguf"), &g, &e), ERROR_NOT_FOUND);
    assert_non_null(strstr(e.text, "m-00003-of-00003.gguf"));
    assert_non_null(strstr(e.text, "part 3 of 3"));

    write_part("m-00003-of-00003.gguf", 2, 3, 3, "c.weight");
    for (int named = 1; named <= 3; named++) {
        char name[32];
        snprintf(name, sizeof name, "m-%05d-of-00003.gguf", named);
        assert_int_equal(gguf_open(in_directory(name), &g, &e), ERROR_OK);
        assert_int_equal(gguf_file_count(g), 3);
        assert_int_equal(gguf_tensor_count(g), 3);
        assert_int_equal(gguf_get_u32(g, "model.key", &value, &e), ERROR_OK);
        const struct gguf_tensor *t = gguf_tensor_find(g, "c.weight");
        assert_int_equal(t->file, 2);
        memcpy(&value, gguf_tensor_data(g, t), sizeof value);
        assert_int_equal(value, 2);
        gguf_close(g);
    }

    write_part("m-00003-of-00003.gguf", 1, 3, 3, "c.weight");
    assert_int_equal(gguf_open(in_directory("m-00001-of-00003.gguf"), &g, &e), ERROR_FORMAT);
    assert_non_null(strstr(e.text, "part 2 of 3, expected part 3 of 3"));
    write_part("m-00003-of-00003.gguf", 2, 3, 4, "c.weight");
    assert_int_equal(gguf_open(in_directory("m-00001-of-00003.gguf"), &g, &e), ERROR_FORMAT);
    assert_non_null(strstr(e.text, "split.tensors.count is 4"));
    write_part("m-00003-of-00003.gguf", 2, 3, 3, "a.weight");
    assert_int_equal(gguf_open(in_directory("m-00002-of-00003.gguf"), &g, &e), ERROR_FORMAT);
    assert_non_null(strstr(e.text, "a.weight"));
    write_part("n-00001-of-00001.gguf", 0, 1, 1, "a.weight"); /* split, but in one */
    assert_int_equal(gguf_open(in_directory("n-00001-of-00001.gguf"), &g, &e), ERROR_OK);
    gguf_close(g);
    write_part("p-00001-of-00002.gguf", 0, 2, 3, "a.weight");
    write_part("p-00002-of-00002.gguf", 1, 2, 3, "b.weight");
    assert_int_equal(gguf_open(in_directory("p-00001-of-00002.gguf"), &g, &e), ERROR_FORMAT);
    assert_non_null(strstr(e.text, "2 tensors together, expected 3"));
}

/* ---- the writer's refusals ---- */

static void test_writer_failures(void **state)
{
    struct gguf_writer *w;
    struct error e;
    uint64_t ne[2] = {33, 2};
    uint8_t byte = 0;
    assert_int_equal(gguf_writer_open("/dev/null", &w, &e),
                     ERROR_IO); /* which a rename would replace */
    assert_int_equal(gguf_writer_open("/no/such/directory/x.gguf", &w, &e), ERROR_IO);
    assert_non_null(strstr(e.text, "/no/such/directory/x.gguf"));

    assert_int_equal(gguf_writer_open(in_directory("w.gguf"), &w, &e), ERROR_OK);
    gguf_writer_tensor(w, "odd.weight", TENSOR_Q8_0, 2, ne); /* 33 is no multiple of 32 */
    assert_int_equal(gguf_writer_close(w, &e), ERROR_INTERNAL);
    assert_non_null(strstr(e.text, "odd.weight"));

    assert_int_equal(gguf_writer_open(in_directory("w.gguf"), &w, &e), ERROR_OK);
    gguf_writer_tensor(w, "a.weight", TENSOR_I8, 1, ne);
    assert_int_equal(gguf_writer_data(w, &byte, 1, &e), ERROR_OK);
    assert_int_equal(gguf_writer_close(w, &e), ERROR_INTERNAL); /* 32 bytes are missing */

    assert_int_equal(gguf_writer_open(in_directory("w.gguf"), &w, &e), ERROR_OK);
    assert_int_equal(gguf_writer_data(w, &byte, 1, &e), ERROR_INTERNAL); /* nothing declared */
    gguf_writer_abort(w);
    gguf_writer_abort(NULL);

    /* No file is left, finished or not. */
    assert_int_equal(access(in_directory("w.gguf"), F_OK), -1);
    glob_t left;
    assert_int_equal(glob(in_directory("w.gguf*"), 0, NULL, &left), GLOB_NOMATCH);
}

/* A full disk. */
static void test_writer_without_space(void **state)
{
    struct gguf_writer *w;
    struct error e;
    uint64_t ne[1] = {4 << 20};
    struct rlimit all, small;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &all), 0);
    small = (struct rlimit){.rlim_cur = 1 << 20, .rlim_max = all.rlim_max};
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    assert_int_equal(gguf_writer_open(in_directory("full.gguf"), &w, &e), ERROR_OK);
    gguf_writer_tensor(w, "big.weight", TENSOR_I8, 1, ne);
    uint8_t *data = calloc(1, 4 << 20);
    enum error_code code = gguf_writer_data(w, data, 4 << 20, &e);
    assert_int_equal(gguf_writer_close(w, &e), ERROR_IO);
    setrlimit(RLIMIT_FSIZE, &all);
    assert_int_equal(code, ERROR_IO);
    assert_non_null(strstr(e.text, "File too large"));
    assert_int_equal(access(in_directory("full.gguf"), F_OK), -1);
    free(data);
}

/* ---- real files ---- */

static void test_golden(void **state)
{
    struct gguf *g;
    struct error e;
    const char *path = MOED_SHARED_DIR "/golden/qwen3moe.gguf";
    if (access(path, R_OK) != 0) {
        print_message("%s is not here\n", path);
        skip();
    }
    /* What the Python package "gguf" reads from this file. */
    assert_int_equal(gguf_open(path, &g, &e), ERROR_OK);
    assert_int_equal(gguf_kv_count(g), 26);
    assert_int_equal(gguf_tensor_count(g), 39);
    const struct gguf_tensor *t = gguf_tensor_find(g, "blk.2.ffn_down_exps.weight");
    assert_int_equal(t->offset, 1531040);
    assert_int_equal(t->ne[0], 32);
    assert_int_equal(t->ne[1], 64);
    assert_int_equal(t->ne[2], 16);
    assert_int_equal(gguf_tensor_find(g, "token_embd.weight")->offset, 8864);
    float epsilon;
    assert_int_equal(gguf_get_f32(g, "qwen3moe.attention.layer_norm_rms_epsilon", &epsilon, &e),
                     ERROR_OK);
    assert_true(epsilon == 1e-6f);
    assert_int_equal(gguf_find(g, "tokenizer.ggml.tokens")->count, 320);
    walk(g);
    gguf_close(g);
}

static void open_all(const char *directory_path, size_t at_least)
{
    DIR *d = opendir(directory_path);
    struct dirent *entry;
    size_t opened = 0;
    assert_non_null(d);
    while ((entry = readdir(d))) {
        char path[512];
        struct gguf *g;
        struct error e = {0};
        if (!strstr(entry->d_name, ".gguf"))
            continue;
        snprintf(path, sizeof path, "%s/%s", directory_path, entry->d_name);
        if (gguf_open(path, &g, &e) != ERROR_OK)
            fail_msg("%s", e.text);
        walk(g);
        gguf_close(g);
        opened++;
    }
    closedir(d);
    assert_true(opened >= at_least);
}

static void test_all_golden_files_open(void **state)
{
    if (access(MOED_SHARED_DIR "/golden/vocab", R_OK) != 0) {
        print_message("%s is not here\n", MOED_SHARED_DIR "/golden/vocab");
        skip();
    }
    open_all(MOED_SHARED_DIR "/golden", 20);
    open_all(MOED_SHARED_DIR "/golden/vocab", 5);
}

/* 20 000 tensors and 150 000 strings: an index that compared all pairs would take minutes. */
static void test_large_tables_open_quickly(void **state)
{
    struct strbuf b;
    struct gguf *g;
    struct error e;
    char name[32];
    strbuf_init(&b);
    header(&b, 3, 20000, 1);
    str(&b, "tokens");
    u32(&b, GGUF_ARRAY);
    u32(&b, GGUF_STRING);
    u64(&b, 150000);
    for (int i = 0; i < 150000; i++)
        str(&b, "token");
    for (int i = 0; i < 20000; i++) {
        snprintf(name, sizeof name, "blk.%d.weight", i);
        tensor2(&b, name, TENSOR_F32, 8, 1, 0); /* all over the same data: allowed */
    }
    zeros(&b, 32);
    double start = clock_s();
    assert_int_equal(open_bytes(b.data, b.len, &g, &e), ERROR_OK);
    for (int i = 0; i < 20000; i++) {
        snprintf(name, sizeof name, "blk.%d.weight", i);
        assert_ptr_equal(gguf_tensor_find(g, name), gguf_tensor_at(g, (uint64_t)i));
    }
    assert_true(clock_s() - start < 10);
    gguf_close(g);
    strbuf_fini(&b);
}

static void test_tensor_types(void **state)
{
    assert_int_equal(tensor_type_from_name("q4_k"), TENSOR_Q4_K);
    assert_int_equal(tensor_type_from_name("BF16"), 30);
    assert_int_equal(tensor_type_from_name("Q4_K_M"), -1);
    assert_string_equal(tensor_type_info(14)->name, "Q6_K");
    assert_int_equal(tensor_type_info(14)->block_bytes, 210);
    assert_null(tensor_type_info(4));
    assert_null(tensor_type_info(41));
    assert_null(tensor_type_info(UINT32_MAX));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tensor_types),
        cmocka_unit_test(test_what_is_no_file),
        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_metadata_alone),
        cmocka_unit_test(test_quantization),
        cmocka_unit_test(test_typed_access),
        cmocka_unit_test(test_every_truncation),
        cmocka_unit_test(test_every_byte_changed),
        cmocka_unit_test(test_cut_files),
        cmocka_unit_test(test_split_files),
        cmocka_unit_test(test_writer_failures),
        cmocka_unit_test(test_writer_without_space),
        cmocka_unit_test(test_large_tables_open_quickly),
        cmocka_unit_test(test_golden),
        cmocka_unit_test(test_all_golden_files_open),
    };
    return cmocka_run_group_tests(tests, make_directory, remove_directory);
}
