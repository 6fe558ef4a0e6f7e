/* The tokenizer on random, long and broken input: text survives a round trip, time stays linear,
 * and a broken file gives an error or a tokenizer that works. */
#include "sample_vocab.h"

#define LONG_TEXT (1 << 20)

static const char *const PRE_TOKENIZERS[] = {
    "default",    "gpt-2",  "olmo",   "qwen2",   "llama-bpe",    "llama3",         "llama-v3",
    "dbrx",       "glm4",   "gpt-4o", "kimi-k2", "deepseek-llm", "deepseek-coder", "deepseek-v3",
    "exaone-moe", "tekken", "qwen35", "afmoe",   "laguna",       "tiny_aya",
};
#define PRE_TOKENIZER_COUNT (sizeof PRE_TOKENIZERS / sizeof PRE_TOKENIZERS[0])

/* xorshift64: the same bytes in every run */
static uint64_t random_state = 88172645463325252u;
static uint64_t next_random(void)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    return random_state ^= random_state << 17;
}

/* Bytes, or characters of all lengths, or characters that pre-tokenizers match; sometimes cut. */
static size_t random_text(char *out, size_t max)
{
    static const char *const bits[] = {" ",     "\n",     "\r\n",   "'s",         "'LL",
                                       "1",     "\u00e9", "\u4e2d", "\U0001f999", "\xf0\x9f",
                                       "\x80",  "A",      "b",      "\u3000",     "!",
                                       "<|e|>", "\u0301", "\u2581", "",           "\xed\xa0\x80"};
    size_t wanted = next_random() % max, len = 0;
    bool raw = next_random() % 4 == 0;
    while (len < wanted) {
        char byte = (char)next_random();
        const char *bit = bits[next_random() % (sizeof bits / sizeof bits[0])];
        size_t n = raw ? 1 : strlen(bit);
        if (n > wanted - len)
            n = wanted - len;
        memcpy(out + len, raw ? &byte : bit, n);
        len += n;
    }
    return len;
}

static void fuzz(const struct tokenizer *t, int rounds)
{
    char text[300];
    for (int i = 0; i < rounds; i++) {
        size_t len = random_text(text, sizeof text);
        expect_round_trip(t, text, len, next_random() % 2 ? TOKENIZE_PARSE_SPECIAL : 0);
    }
    for (unsigned b = 0; b < 256; b++) {
        char byte = (char)b;
        expect_round_trip(t, &byte, 1, 0);
    }
}

static struct tokenizer *fuzz_gpt2(const char *pre)
{
    struct sample *s = new_gpt2();
    const char *merges[] = {"\u0120 \u0120",
                            "\u0120\u0120 \u0120\u0120",
                            "a a",
                            "aa aa",
                            "b b",
                            "\u00f0 \u0141",
                            "A b"};
    memcpy(s->merges, merges, sizeof merges);
    add(s, "\u0120\u0120", NORMAL, 0);
    add(s, "\u0120\u0120\u0120\u0120", NORMAL, 0);
    add(s, "aaaa", NORMAL, 0);
    add(s, "\u00f0\u0141", NORMAL, 0);
    add(s, "<|e|>", CONTROL, 0);
    return make(s, pre);
}

static void test_round_trips(void **state)
{
    for (size_t i = 0; i < PRE_TOKENIZER_COUNT; i++) {
        struct tokenizer *t = fuzz_gpt2(PRE_TOKENIZERS[i]);
        fuzz(t, 400);
        tokenizer_free(t);
    }
    for (int add_space = 0; add_space < 2; add_space++) {
        uint32_t space;
        struct sample *s = llama_words(&space);
        s->add_space = add_space;
        add(s, "<|e|>", CONTROL, 0);
        struct tokenizer *t = make(s, NULL);
        fuzz(t, 2000);
        tokenizer_free(t);
    }
    uint32_t space;
    struct tokenizer *gemma = make(gemma_words(&space), NULL);
    fuzz(gemma, 2000);
    tokenizer_free(gemma);
}

/* A megabyte of one character class: a quadratic step would exceed the test's time limit, a regular
 * expression would exceed its stack or limits. */
static void test_long_texts(void **state)
{
    static const char *const units[] = {"a",      " ",    "\n",  "A",  "0", "!",
                                        "\u4e2d", "\xff", " \n", "'s", "a "};
    char *text = malloc(LONG_TEXT);
    assert_non_null(text);
    for (size_t i = 0; i < PRE_TOKENIZER_COUNT; i++) {
        struct tokenizer *t = fuzz_gpt2(PRE_TOKENIZERS[i]);
        /* One long text: a pre-tokenizer for each unit would take long under sanitizers. */
        for (size_t u = i % 2; u < sizeof units / sizeof units[0]; u += 2) {
            size_t n = strlen(units[u]), len = LONG_TEXT / 4 / n * n;
            for (size_t k = 0; k < len; k += n)
                memcpy(text + k, units[u], n);
            text[len - 1] = i % 3 ? text[len - 1] : 'x';
            expect_round_trip(t, text, len, TOKENIZE_PARSE_SPECIAL);
        }
        tokenizer_free(t);
    }
    uint32_t space;
    struct tokenizer *qwen = fuzz_gpt2("qwen2"), *llama = make(llama_words(&space), NULL);
    memset(text, 'a', LONG_TEXT);
    struct token_list ids = encode(qwen, text, LONG_TEXT, 0);
    assert_int_equal(ids.count, LONG_TEXT / 4); /* aaaa each */
    token_list_fini(&ids);
    ids = encode(llama, text, LONG_TEXT, 0);
    assert_int_equal(ids.count, LONG_TEXT / 2 + 1); /* the first with the space, then aa each */
    token_list_fini(&ids);
    tokenizer_free(qwen);
    tokenizer_free(llama);
    free(text);
}

/* Any byte of a file may be wrong: loading gives a tokenizer that works, or an error. */
static void test_broken_files(void **state)
{
    uint32_t space;
    struct sample *samples[] = {new_gpt2(), llama_words(&space), gemma_words(&space)};
    samples[0]->merges[0] = "a b";
    for (size_t i = 0; i < sizeof samples / sizeof samples[0]; i++) {
        struct gguf *g;
        struct error e;
        size_t len;
        write_sample(samples[i]);
        assert_int_equal(gguf_open(path, &g, &e), ERROR_OK);
        const void *metadata = gguf_metadata(g, &len);
        unsigned char *copy = malloc(len);
        assert_non_null(copy);
        memcpy(copy, metadata, len);
        gguf_close(g);
        for (size_t at = 24; at < len; at += 1 + next_random() % 7) {
            unsigned char was = copy[at];
            copy[at] = (unsigned char)next_random();
            struct tokenizer *t = NULL;
            if (gguf_open_metadata(copy, len, "broken", &g, &e) == ERROR_OK) {
                if (tokenizer_new(g, NULL, &t, &e) == ERROR_OK) {
                    struct token_list ids = encode(t, "ab a\xff<s>", 8, TOKENIZE_PARSE_SPECIAL);
                    token_list_fini(&ids);
                }
                gguf_close(g);
            }
            tokenizer_free(t);
            copy[at] = was;
        }
        free(copy);
        free(samples[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trips),
        cmocka_unit_test(test_long_texts),
        cmocka_unit_test(test_broken_files),
    };
    return cmocka_run_group_tests(tests, make_path, remove_path);
}
