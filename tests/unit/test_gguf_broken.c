/* Broken GGUF files of every kind, built byte by byte: each gets its error code and a line that
 * names the thing and the place. Among them are the faults that other readers had. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "tests/unit/gguf_bytes.h"

static void empty_file(struct strbuf *b) {}

static void wrong_magic(struct strbuf *b)
{
    strbuf_append(b, "PK\3\4", 4);
    zeros(b, 64);
}

static void version_1(struct strbuf *b)
{
    header(b, 1, 0, 0);
}

static void version_4(struct strbuf *b)
{
    header(b, 4, 0, 0);
}

static void version_huge(struct strbuf *b)
{
    header(b, 0x12345678, 0, 0);
}

static void big_endian(struct strbuf *b)
{
    header(b, 0x03000000, 0, 0);
}

static void too_many_keys(struct strbuf *b)
{
    header(b, 3, 0, 1ull << 60);
    kv_u32(b, "a", 1);
}

static void too_many_tensors(struct strbuf *b)
{
    header(b, 3, 1ull << 60, 0);
    zeros(b, 64);
}

static void cut_in_header(struct strbuf *b)
{
    strbuf_append(b, "GGUF\3\0", 6);
}

static void long_key(struct strbuf *b)
{
    header(b, 3, 0, 1);
    u64(b, 70000);
    zeros(b, 80000);
}

static void key_past_end(struct strbuf *b)
{
    header(b, 3, 0, 1);
    u64(b, 500);
    zeros(b, 32);
}

static void key_with_bad_utf8(struct strbuf *b)
{
    header(b, 3, 0, 1);
    kv_u32(b, "bad\xff\nkey", 1);
}

static void empty_key(struct strbuf *b)
{
    header(b, 3, 0, 1);
    kv_u32(b, "", 1);
}

static void key_twice(struct strbuf *b)
{
    header(b, 3, 0, 3);
    kv_u32(b, "same.key", 1);
    kv_u32(b, "other.key", 1);
    kv_u32(b, "same.key", 2);
}

static void unknown_value_type(struct strbuf *b)
{
    header(b, 3, 0, 1);
    str(b, "odd.key");
    u32(b, 99);
    u64(b, 0);
}

static void bool_of_two(struct strbuf *b)
{
    header(b, 3, 0, 1);
    str(b, "a.flag");
    u32(b, GGUF_BOOL);
    strbuf_append(b, "\2", 1);
}

static void nested_array(struct strbuf *b)
{
    header(b, 3, 0, 1);
    str(b, "deep.key");
    u32(b, GGUF_ARRAY);
    u32(b, GGUF_ARRAY);
    u64(b, 1);
    u32(b, GGUF_ARRAY);
    u64(b, 1);
}

static void array_of_unknown_type(struct strbuf *b)
{
    header(b, 3, 0, 1);
    str(b, "odd.array");
    u32(b, GGUF_ARRAY);
    u32(b, 77);
    u64(b, 1);
    u64(b, 1);
}

static void array_too_long(struct strbuf *b)
{
    header(b, 3, 0, 1);
    str(b, "long.array");
    u32(b, GGUF_ARRAY);
    u32(b, GGUF_F64);
    u64(b, UINT64_MAX / 8 + 2); /* times 8 it is 8 */
    zeros(b, 64);
}

static void strings_too_many(struct strbuf *b)
{
    header(b, 3, 0, 1);
    str(b, "many.strings");
    u32(b, GGUF_ARRAY);
    u32(b, GGUF_STRING);
    u64(b, 1ull << 61);
    zeros(b, 64);
}

static void string_past_end(struct strbuf *b)
{
    header(b, 3, 0, 1);
    str(b, "cut.strings");
    u32(b, GGUF_ARRAY);
    u32(b, GGUF_STRING);
    u64(b, 2);
    str(b, "one");
    u64(b, 1ull << 63);
    zeros(b, 32);
}

static void alignment_zero(struct strbuf *b)
{
    header(b, 3, 0, 1);
    kv_u32(b, "general.alignment", 0);
}

static void alignment_of_48(struct strbuf *b)
{
    header(b, 3, 0, 1);
    kv_u32(b, "general.alignment", 48);
}

static void alignment_string(struct strbuf *b)
{
    header(b, 3, 0, 1);
    str(b, "general.alignment");
    u32(b, GGUF_STRING);
    str(b, "32");
}

static void no_dimensions(struct strbuf *b)
{
    header(b, 3, 1, 0);
    str(b, "flat.weight");
    u32(b, 0);
    zeros(b, 64);
}

static void five_dimensions(struct strbuf *b)
{
    header(b, 3, 1, 0);
    str(b, "deep.weight");
    u32(b, 5);
    zeros(b, 64);
}

static void zero_dimension(struct strbuf *b)
{
    header(b, 3, 1, 0);
    tensor2(b, "void.weight", TENSOR_F32, 8, 0, 0);
    zeros(b, 64);
}

static void overflowing_dimensions(struct strbuf *b)
{
    header(b, 3, 1, 0);
    tensor2(b, "vast.weight", TENSOR_F32, 1ull << 40, 1ull << 40, 0);
    zeros(b, 64);
}

/* 2^62 values fit 63 bits; their bytes wrap to 0. */
static void overflowing_bytes(struct strbuf *b)
{
    header(b, 3, 1, 0);
    tensor2(b, "wrap.weight", TENSOR_F32, 1ull << 31, 1ull << 31, 0);
    zeros(b, 64);
}

static void unknown_tensor_type(struct strbuf *b)
{
    header(b, 3, 1, 0);
    tensor2(b, "new.weight", 4711, 32, 2, 0);
    zeros(b, 64);
}

static void retired_tensor_type(struct strbuf *b)
{
    header(b, 3, 1, 0);
    tensor2(b, "old.weight", 4, 32, 2, 0); /* Q4_2, removed from the format */
    zeros(b, 64);
}

static void type_of_ik(struct strbuf *b)
{
    header(b, 3, 1, 0);
    tensor2(b, "ik.weight", 144, 256, 2, 0);
    zeros(b, 64);
}

static void repacked_type(struct strbuf *b)
{
    header(b, 3, 1, 0);
    tensor2(b, "r4.weight", 212, 256, 2, 0);
    zeros(b, 64);
}

static void repacked_type_of_ik(struct strbuf *b)
{
    header(b, 3, 1, 0);
    tensor2(b, "both.weight", 344, 256, 2, 0);
    zeros(b, 64);
}

static void cut_block(struct strbuf *b)
{
    header(b, 3, 1, 0);
    tensor2(b, "odd.weight", TENSOR_Q4_K, 128, 2, 0);
    zeros(b, 256);
}

static void unaligned_offset(struct strbuf *b)
{
    header(b, 3, 1, 0);
    tensor2(b, "skew.weight", TENSOR_F32, 8, 2, 16);
    zeros(b, 256);
}

static void offset_outside(struct strbuf *b)
{
    header(b, 3, 1, 0);
    tensor2(b, "far.weight", TENSOR_F32, 8, 2, 1 << 20);
    zeros(b, 256);
}

static void offset_overflows(struct strbuf *b)
{
    header(b, 3, 1, 0);
    tensor2(b, "wrap.weight", TENSOR_F32, 8, 2, UINT64_MAX - 31);
    zeros(b, 256);
}

static void data_cut(struct strbuf *b)
{
    header(b, 3, 1, 0);
    tensor2(b, "cut.weight", TENSOR_F32, 8, 2, 0);
    zeros(b, 63);
}

static void tensor_twice(struct strbuf *b)
{
    header(b, 3, 2, 0);
    tensor2(b, "twin.weight", TENSOR_F32, 8, 2, 0);
    tensor2(b, "twin.weight", TENSOR_F32, 8, 2, 0);
    zeros(b, 64);
}

static void tensor_name_too_long(struct strbuf *b)
{
    header(b, 3, 1, 0);
    u64(b, 128);
    zeros(b, 400);
}

static void tensor_name_with_nul(struct strbuf *b)
{
    header(b, 3, 1, 0);
    u64(b, 3);
    strbuf_append(b, "a\0b", 3);
    zeros(b, 400);
}

static void split_key_alone(struct strbuf *b)
{
    header(b, 3, 0, 3);
    kv_u32(b, "split.no", 0);
    kv_u32(b, "split.count", 2);
    kv_u32(b, "split.tensors.count", 2);
}

static const struct {
    void (*build)(struct strbuf *b);
    enum error_code code;
    const char *names, *and_names; /* what the text must contain */
} broken[] = {
    {empty_file, ERROR_FORMAT, "empty", "byte 0"},
    {wrong_magic, ERROR_FORMAT, "'PK?", "byte 0"},
    {version_1, ERROR_UNSUPPORTED, "version 1", "byte 4"},
    {version_4, ERROR_UNSUPPORTED, "version 4", "byte 4"},
    {version_huge, ERROR_FORMAT, "version 305419896", "expected 2 or 3"},
    {big_endian, ERROR_UNSUPPORTED, "big-endian", "byte 4"},
    {too_many_keys, ERROR_FORMAT, "number of keys is 1152921504606846976", "byte 16"},
    {too_many_tensors, ERROR_FORMAT, "number of tensors is 1152921504606846976", "byte 8"},
    {cut_in_header, ERROR_FORMAT, "truncated", "byte 4"},
    {long_key, ERROR_FORMAT, "70000", "byte 24"},
    {key_past_end, ERROR_FORMAT, "truncated", "byte 32"},
    {key_with_bad_utf8, ERROR_FORMAT, "'bad?", "byte 24"},
    {empty_key, ERROR_FORMAT, "not empty", "byte 24"},
    {key_twice, ERROR_FORMAT, "same.key", "twice"},
    {unknown_value_type, ERROR_FORMAT, "odd.key", "99"},
    {bool_of_two, ERROR_FORMAT, "a.flag", "is 2"},
    {nested_array, ERROR_UNSUPPORTED, "deep.key", "array of arrays"},
    {array_of_unknown_type, ERROR_FORMAT, "odd.array", "77"},
    {array_too_long, ERROR_FORMAT, "long.array", "2305843009213693953"},
    {strings_too_many, ERROR_FORMAT, "many.strings", "2305843009213693952"},
    {string_past_end, ERROR_FORMAT, "cut.strings", "truncated"},
    {alignment_zero, ERROR_FORMAT, "general.alignment is 0", "power of two"},
    {alignment_of_48, ERROR_FORMAT, "general.alignment is 48", "power of two"},
    {alignment_string, ERROR_FORMAT, "general.alignment", "type string"},
    {no_dimensions, ERROR_FORMAT, "flat.weight", "0 dimensions"},
    {five_dimensions, ERROR_FORMAT, "deep.weight", "5 dimensions"},
    {zero_dimension, ERROR_FORMAT, "void.weight", "dimension 1"},
    {overflowing_dimensions, ERROR_FORMAT, "vast.weight", "overflow"},
    {overflowing_bytes, ERROR_FORMAT, "wrap.weight", "overflows"},
    {unknown_tensor_type, ERROR_UNSUPPORTED, "new.weight", "4711"},
    {retired_tensor_type, ERROR_UNSUPPORTED, "type 4 (Q4_2, withdrawn)", "in Q4_0"},
    {type_of_ik, ERROR_UNSUPPORTED, "144 (IQ4_KS of ik_llama.cpp)", "in IQ4_XS or Q4_K"},
    {repacked_type, ERROR_UNSUPPORTED, "212 (Q4_K of ik_llama.cpp, repacked)", "in Q4_K"},
    {repacked_type_of_ik, ERROR_UNSUPPORTED, "(IQ4_KS of ik_llama.cpp, repacked)", "in IQ4_XS"},
    {cut_block, ERROR_FORMAT, "odd.weight", "multiple of 256"},
    {unaligned_offset, ERROR_FORMAT, "skew.weight", "multiple of 32"},
    {offset_outside, ERROR_FORMAT, "far.weight", "truncated"},
    {offset_overflows, ERROR_FORMAT, "wrap.weight", "overflows"},
    {data_cut, ERROR_FORMAT, "cut.weight", "truncated"},
    {tensor_twice, ERROR_FORMAT, "twin.weight", "twice"},
    {tensor_name_too_long, ERROR_FORMAT, "name of a tensor", "127"},
    {tensor_name_with_nul, ERROR_FORMAT, "'a?b'", "UTF-8"},
    {split_key_alone, ERROR_FORMAT, "part 1 of 2", "rename"},
};

/* ---- Faults of other readers of the format, whose advisories are public ---- */

/* Times the size of an entry it is a few bytes, also as a 64-bit number. */
static void tensors_wrap(struct strbuf *b)
{
    header(b, 3, UINT64_MAX / 8 + 2, 0);
    zeros(b, 256);
}

static void keys_wrap(struct strbuf *b)
{
    header(b, 3, 0, UINT64_MAX);
    kv_u32(b, "a", 1);
    zeros(b, 256);
}

/* With room for a terminating zero it is of no bytes. */
static void key_of_all_bytes(struct strbuf *b)
{
    header(b, 3, 0, 1);
    u64(b, UINT64_MAX);
    zeros(b, 256);
}

static void value_of_all_bytes(struct strbuf *b)
{
    header(b, 3, 0, 1);
    str(b, "general.name");
    u32(b, GGUF_STRING);
    u64(b, UINT64_MAX);
    zeros(b, 256);
}

static void array_wraps(struct strbuf *b)
{
    header(b, 3, 0, 1);
    str(b, "wrapped.strings");
    u32(b, GGUF_ARRAY);
    u32(b, GGUF_STRING);
    u64(b, (1ull << 60) + 1); /* times 16 it is 16 */
    zeros(b, 256);
}

static void dimensions_past_the_table(struct strbuf *b)
{
    header(b, 3, 1, 0);
    str(b, "wide.weight");
    u32(b, 1000);
    zeros(b, 8 * 1000);
}

/* Each size is possible by itself, their sum wraps. */
static void sum_of_sizes_wraps(struct strbuf *b)
{
    header(b, 3, 5, 0);
    for (uint64_t i = 0; i < 5; i++) {
        char name[] = "part0.weight";
        name[4] = (char)('0' + i);
        tensor2(b, name, TENSOR_F32, 1ull << 30, 1ull << 30, i << 62);
    }
    zeros(b, 256);
}

static void negative_tensor_type(struct strbuf *b)
{
    header(b, 3, 1, 0);
    tensor2(b, "minus.weight", UINT32_MAX, 32, 2, 0);
    zeros(b, 256);
}

static void tensor_beyond_the_file(struct strbuf *b)
{
    header(b, 3, 1, 0);
    tensor2(b, "more.weight", TENSOR_F16, 1 << 20, 1 << 10, 0);
    zeros(b, 256);
}

static const struct {
    const char *advisory;
    void (*build)(struct strbuf *b);
    const char *names;
} advisories[] = {
    {"CVE-2024-21836", tensors_wrap, "number of tensors is 2305843009213693953"},
    {"CVE-2024-23605", keys_wrap, "number of keys is 18446744073709551615"},
    {"CVE-2024-23496", key_of_all_bytes, "18446744073709551615"},
    {"CVE-2024-23496", value_of_all_bytes, "general.name"},
    {"CVE-2024-21825", array_wraps, "wrapped.strings"},
    {"CVE-2024-21802", dimensions_past_the_table, "1000 dimensions"},
    {"CVE-2025-53630, CVE-2026-27940", sum_of_sizes_wraps, "part0.weight"},
    {"a tensor's type of -1", negative_tensor_type, "minus.weight"},
    {"CVE-2026-7482", tensor_beyond_the_file, "more.weight"},
};

static void test_advisories(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof advisories / sizeof advisories[0]; i++) {
        struct strbuf b;
        struct error e = {0};
        struct gguf *g = NULL;
        strbuf_init(&b);
        advisories[i].build(&b);
        if (open_bytes(b.data, b.len, &g, &e) == ERROR_OK || !strstr(e.text, advisories[i].names))
            fail_msg("%s: text: %s", advisories[i].advisory, e.text);
        strbuf_fini(&b);
    }
}

static void test_broken_files(void **state)
{
    for (size_t i = 0; i < sizeof broken / sizeof broken[0]; i++) {
        struct strbuf b;
        struct error e = {0};
        struct gguf *g = NULL;
        strbuf_init(&b);
        broken[i].build(&b);
        enum error_code code = open_bytes(b.data ? b.data : "", b.len, &g, &e);
        if (code != broken[i].code || !strstr(e.text, broken[i].names) ||
            !strstr(e.text, broken[i].and_names) || !strstr(e.text, "/proc/self/fd/"))
            fail_msg("row %zu: code %s, text: %s", i, error_name(code), e.text);
        assert_null(g); /* outputs are set only on success */
        assert_null(strchr(e.text, '\n'));
        strbuf_fini(&b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_broken_files),
                                       cmocka_unit_test(test_advisories)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
