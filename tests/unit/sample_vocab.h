/* Vocabularies made by hand, written as GGUF and loaded, for the tokenizer's tests. */
#ifndef MOED_TESTS_SAMPLE_VOCAB_H
#define MOED_TESTS_SAMPLE_VOCAB_H

#include "gguf/gguf_write.h"
#include "tokenizer/tokenizer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define TOKENS_MAX 320

enum { NORMAL = 1, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE };

/* The content of a vocabulary's file, without fields that are NULL or negative. */
struct sample {
    const char *arch; /* NULL: llama */
    const char *model, *pre, *name;
    struct gguf_string tokens[TOKENS_MAX];
    int32_t types[TOKENS_MAX];
    float scores[TOKENS_MAX];
    char texts[TOKENS_MAX][8]; /* of byte tokens */
    uint32_t count;
    const char *merges[16]; /* NULL at the end */
    int bos, eos, unknown, add_space, add_eos;
    int types_count, scores_count; /* -1: as many as tokens; 0: no such key */
    struct {
        const char *key; /* NULL at the end */
        uint32_t id;
    } ids[8];
};

static char path[64];

static int make_path(void **state)
{
    strcpy(path, "/tmp/moed-test-tokenizer-XXXXXX");
    int fd = mkstemp(path);
    return fd < 0 ? -1 : close(fd);
}

static int remove_path(void **state)
{
    return unlink(path);
}

static uint32_t add(struct sample *s, const char *text, int type, float score)
{
    assert_true(s->count < TOKENS_MAX);
    s->tokens[s->count] = (struct gguf_string){.data = text, .len = strlen(text)};
    s->types[s->count] = type;
    s->scores[s->count] = score;
    return s->count++;
}

/* The 256 bytes as ids 0 to 255, in the byte-level alphabet of GPT-2's encoder.py. */
static struct sample *new_gpt2(void)
{
    struct sample *s = calloc(1, sizeof *s);
    assert_non_null(s);
    s->model = "gpt2";
    s->pre = "qwen2";
    s->bos = s->eos = s->unknown = s->add_space = s->add_eos = -1;
    s->types_count = -1;
    unsigned next = 256;
    for (unsigned b = 0; b < 256; b++) {
        bool printable = (b >= '!' && b <= '~') || (b >= 0xa1 && b <= 0xac) || b >= 0xae;
        unsigned code = printable ? b : next++;
        char *text = s->texts[b];
        if (code < 0x80) {
            text[0] = (char)code;
        } else {
            text[0] = (char)(0xc0 | code >> 6);
            text[1] = (char)(0x80 | (code & 0x3f));
        }
        add(s, text, NORMAL, 0);
    }
    return s;
}

/* <unk> 0, <s> 1, </s> 2, the 256 bytes from 3 on, then the caller's. */
static struct sample *new_llama(void)
{
    struct sample *s = calloc(1, sizeof *s);
    assert_non_null(s);
    s->model = "llama";
    s->types_count = s->scores_count = -1;
    s->unknown = 0;
    s->bos = 1;
    s->eos = 2;
    s->add_space = s->add_eos = -1;
    add(s, "<unk>", UNKNOWN, 0);
    add(s, "<s>", CONTROL, 0);
    add(s, "</s>", CONTROL, 0);
    for (unsigned b = 0; b < 256; b++) {
        snprintf(s->texts[b], sizeof s->texts[b], "<0x%02X>", b);
        add(s, s->texts[b], BYTE, 0);
    }
    return s;
}

static void write_ids(struct gguf_writer *w, const struct sample *s)
{
    const struct {
        const char *key;
        int id;
    } ids[] = {{"tokenizer.ggml.bos_token_id", s->bos},
               {"tokenizer.ggml.eos_token_id", s->eos},
               {"tokenizer.ggml.unknown_token_id", s->unknown}};
    for (size_t i = 0; i < sizeof ids / sizeof ids[0]; i++) {
        if (ids[i].id >= 0)
            gguf_writer_u32(w, ids[i].key, (uint32_t)ids[i].id);
    }
    for (size_t i = 0; s->ids[i].key; i++)
        gguf_writer_u32(w, s->ids[i].key, s->ids[i].id);
    if (s->add_space >= 0)
        gguf_writer_bool(w, "tokenizer.ggml.add_space_prefix", s->add_space);
    if (s->add_eos >= 0)
        gguf_writer_bool(w, "tokenizer.ggml.add_eos_token", s->add_eos);
}

static void write_string(struct gguf_writer *w, const char *key, const char *text)
{
    if (text)
        gguf_writer_string(w, key, text, strlen(text));
}

static void write_sample(const struct sample *s)
{
    struct gguf_writer *w;
    struct error e;
    struct gguf_string merges[16];
    uint64_t merge_count = 0;
    if (gguf_writer_open(path, &w, &e))
        fail_msg("%s", e.text);
    write_string(w, "general.architecture", s->arch ? s->arch : "llama");
    write_string(w, "general.name", s->name);
    write_string(w, "tokenizer.ggml.model", s->model);
    write_string(w, "tokenizer.ggml.pre", s->pre);
    if (s->count)
        gguf_writer_strings(w, "tokenizer.ggml.tokens", s->tokens, s->count);
    if (s->types_count)
        gguf_writer_i32s(w, "tokenizer.ggml.token_type", s->types,
                         s->types_count < 0 ? s->count : (uint64_t)s->types_count);
    if (s->scores_count)
        gguf_writer_f32s(w, "tokenizer.ggml.scores", s->scores,
                         s->scores_count < 0 ? s->count : (uint64_t)s->scores_count);
    for (; merge_count < 16 && s->merges[merge_count]; merge_count++)
        merges[merge_count] = (struct gguf_string){.data = s->merges[merge_count],
                                                   .len = strlen(s->merges[merge_count])};
    if (s->model && strcmp(s->model, "llama") != 0 && merge_count < 16)
        gguf_writer_strings(w, "tokenizer.ggml.merges", merges, merge_count);
    write_ids(w, s);
    if (gguf_writer_close(w, &e))
        fail_msg("%s", e.text);
}

static enum error_code open_sample(const struct sample *s, const char *pre, struct tokenizer **out,
                                   struct error *e)
{
    struct gguf *g;
    write_sample(s);
    if (gguf_open(path, &g, e))
        fail_msg("%s", e->text);
    enum error_code code = tokenizer_new(g, pre, out, e);
    if (!code)
        assert_int_equal(fim_is_in(g), tokenizer_fim(*out, FIM_PREFIX) >= 0 &&
                                           tokenizer_fim(*out, FIM_SUFFIX) >= 0 &&
                                           tokenizer_fim(*out, FIM_MIDDLE) >= 0);
    gguf_close(g);
    return code;
}

/* Frees the sample. */
static struct tokenizer *make(struct sample *s, const char *pre)
{
    struct tokenizer *t = NULL;
    struct error e;
    if (open_sample(s, pre, &t, &e))
        fail_msg("%s", e.text);
    free(s);
    return t;
}

static struct token_list encode(const struct tokenizer *t, const char *text, size_t len,
                                unsigned flags)
{
    struct token_list ids = {0};
    struct error e;
    if (tokenizer_encode(t, text, len, flags, &ids, &e))
        fail_msg("%s", e.text);
    return ids;
}

static void expect_round_trip(const struct tokenizer *t, const char *text, size_t len,
                              unsigned flags)
{
    struct token_list ids = encode(t, text, len, flags);
    struct strbuf back;
    struct error e;
    strbuf_init(&back);
    assert_int_equal(tokenizer_decode(t, ids.ids, ids.count, true, &back, &e), ERROR_OK);
    assert_int_equal(back.len, len);
    if (len)
        assert_memory_equal(back.data, text, len);
    strbuf_fini(&back);
    token_list_fini(&ids);
}

/* Scores decide: "bc" over "ab"; of equal ones the leftmost. */
static struct sample *llama_words(uint32_t *first)
{
    struct sample *s = new_llama();
    *first = add(s, "\u2581", NORMAL, -10);
    add(s, "a", NORMAL, -11);
    add(s, "b", NORMAL, -12);
    add(s, "c", NORMAL, -13);
    add(s, "ab", NORMAL, -3);
    add(s, "bc", NORMAL, -2);
    add(s, "\u2581a", NORMAL, -4);
    add(s, "aa", NORMAL, -5);
    add(s, "<tool>", USER_DEFINED, 0);
    return s;
}

/* The same tokens, merged as Gemma 4 does, and a run of newlines that no merges lead to. */
static inline struct sample *gemma_words(uint32_t *first)
{
    struct sample *s = llama_words(first);
    const char *merges[] = {"b c", "a b", "\u2581 a", "a a"};
    memcpy(s->merges, merges, sizeof merges);
    s->model = "gemma4";
    add(s, "\n", NORMAL, 0);
    add(s, "\n\n", NORMAL, 0);
    return s;
}

#endif
