/* The tokenizer on vocabularies made by hand: each expected id follows from the rule under test. */
#include "sample_vocab.h"
#include "tokenizer/stream.h"

#include <math.h>

#define IDS(...)                                                                                   \
    (const uint32_t[]){__VA_ARGS__}, sizeof((const uint32_t[]){__VA_ARGS__}) / sizeof(uint32_t)

static void expect(const struct tokenizer *t, const char *text, unsigned flags,
                   const uint32_t *expected, size_t count)
{
    struct token_list ids = encode(t, text, strlen(text), flags);
    if (ids.count != count || (count && memcmp(ids.ids, expected, count * sizeof *expected) != 0)) {
        for (size_t i = 0; i < ids.count; i++)
            print_error("%u ", ids.ids[i]);
        fail_msg("for '%s'", text);
    }
    token_list_fini(&ids);
}

static void test_merges_by_rank(void **state)
{
    struct sample *s = new_gpt2();
    uint32_t bc = add(s, "bc", NORMAL, 0), ab = add(s, "ab", NORMAL, 0);
    uint32_t abc = add(s, "abc", NORMAL, 0), aa = add(s, "aa", NORMAL, 0);
    uint32_t space_a = add(s, "\u0120a", NORMAL, 0);
    const char *merges[] = {"b c", "a b", "ab c", "a a", "\u0120 a"};
    memcpy(s->merges, merges, sizeof merges);
    struct tokenizer *t = make(s, NULL);
    expect(t, "ab", 0, IDS(ab));
    expect(t, "abc", 0, IDS('a', bc)); /* b c comes first, and a bc is no merge */
    expect(t, "aaa", 0, IDS(aa, 'a')); /* the leftmost of equals */
    expect(t, "aaaab", 0, IDS(aa, 'a', ab));
    expect(t, "x a", 0, IDS('x', space_a));
    expect(t, "", 0, NULL, 0);
    assert_true(abc != bc);
    tokenizer_free(t);
}

static void test_merges_beyond_the_vocabulary(void **state)
{
    struct sample *s = new_gpt2();
    uint32_t xyz = add(s, "xyz", NORMAL, 0);
    const char *merges[] = {"x y", "xy z", "\u4e2d a", "x y"};
    memcpy(s->merges, merges, sizeof merges);
    struct tokenizer *t = make(s, NULL);
    expect(t, "xyz", 0, IDS(xyz));             /* through xy, which is no token */
    expect(t, "xyxyz", 0, IDS('x', 'y', xyz)); /* the rest becomes bytes */
    tokenizer_free(t);
}

static void test_missing_bytes(void **state)
{
    for (int with_unknown = 0; with_unknown < 2; with_unknown++) {
        struct sample *s = new_gpt2();
        s->tokens['q'] = (struct gguf_string){.data = "taken", .len = 5};
        s->unknown = with_unknown ? (int)add(s, "<unk>", UNKNOWN, 0) : -1;
        uint32_t unknown = (uint32_t)s->unknown;
        struct tokenizer *t = make(s, NULL);
        if (with_unknown)
            expect(t, "aqb", 0, IDS('a', unknown, 'b'));
        else
            expect(t, "aqb", 0, IDS('a', 'b'));
        tokenizer_free(t);
    }
}

/* In a plain range a control token's text is text, wholly or in part; a word goes on across it. */
static void test_plain_ranges(void **state)
{
    struct sample *s = new_gpt2();
    uint32_t end = add(s, "<|e|>", CONTROL, 0), mark = add(s, "<|m|>", USER_DEFINED, 0);
    uint32_t spaces = add(s, "   ", USER_DEFINED, 0), ab = add(s, "ab", NORMAL, 0);
    const char *merges[] = {"a b"};
    memcpy(s->merges, merges, sizeof merges);
    struct tokenizer *t = make(s, NULL);
    const char *text = "<|e|>ab<|e|>   <|m|><|e|><|m|>";
    const struct {
        struct plain_range plain[2];
        uint32_t expected[32];
    } cases[] = {
        {{{6, 20}, {20, 20}},
         {end, ab, '<', '|', 'e', '|', '>', spaces, '<', '|', 'm', '|', '>', end, mark}},
        {{{11, 12}, {16, 17}},
         {end, ab, '<', '|', 'e', '|', '>', spaces, '<', '|', 'm', '|', '>', end, mark}},
        {{{0, 0}, {29, 30}}, {end, ab, end, spaces, mark, end, '<', '|', 'm', '|', '>'}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct token_list ids = {0};
        struct error e;
        assert_int_equal(tokenizer_encode_ranges(t, text, strlen(text), TOKENIZE_PARSE_SPECIAL,
                                                 cases[i].plain, 2, &ids, &e),
                         ERROR_OK);
        for (size_t j = 0; j < ids.count; j++)
            assert_int_equal(ids.ids[j], cases[i].expected[j]);
        assert_int_equal(cases[i].expected[ids.count], 0);
        token_list_fini(&ids);
    }
    struct token_list none = {0};
    struct plain_range crossed[] = {{5, 9}, {8, 10}}, outside = {3, 99};
    assert_int_equal(tokenizer_encode_ranges(t, text, 30, 0, crossed, 2, &none, NULL), ERROR_USAGE);
    assert_int_equal(tokenizer_encode_ranges(t, text, 30, 0, &outside, 1, &none, NULL),
                     ERROR_USAGE);
    tokenizer_free(t);
}

static void test_special_tokens(void **state)
{
    struct sample *s = new_gpt2();
    uint32_t end = add(s, "<|e|>", CONTROL, 0), longer = add(s, "<|e|>x", CONTROL, 0);
    uint32_t tool = add(s, "<tool>", USER_DEFINED, 0), word = add(s, "hello", CONTROL, 0);
    add(s, "", CONTROL, 0);
    s->bos = (int)end;
    s->eos = (int)longer;
    s->add_eos = 1;
    struct tokenizer *t = make(s, "llama-bpe");
    unsigned parse = TOKENIZE_PARSE_SPECIAL;
    expect(t, "a<|e|>b", parse, IDS('a', end, 'b'));
    expect(t, "<|e|>x<|e|>", parse, IDS(longer, end)); /* the longest match */
    expect(t, "<|e|", parse, IDS('<', '|', 'e', '|'));
    expect(t, "<|e|>", 0, IDS('<', '|', 'e', '|', '>'));
    expect(t, "<tool>", 0, IDS(tool)); /* user-defined: always */
    expect(t, "hello", parse, IDS(word));
    expect(t, "hello", 0, IDS('h', 'e', 'l', 'l', 'o')); /* even with whole pieces */
    expect(t, "a", TOKENIZE_ADD_SPECIAL, IDS(end, 'a', longer));
    /* no second begin token, but the first where its text is no token */
    expect(t, "<|e|>a", TOKENIZE_ADD_SPECIAL | parse, IDS(end, 'a', longer));
    expect(t, "a", TOKENIZE_ADD_BEGIN, IDS(end, 'a'));
    expect(t, "<|e|>a", TOKENIZE_ADD_BEGIN | parse, IDS(end, 'a'));
    expect(t, "a<|e|>", TOKENIZE_ADD_SPECIAL | parse, IDS(end, 'a', end, longer));
    expect(t, "<|e|>", TOKENIZE_ADD_SPECIAL, IDS(end, '<', '|', 'e', '|', '>', longer));
    assert_true(tokenizer_is_special(t, end));
    assert_false(tokenizer_is_special(t, tool));
    assert_false(tokenizer_is_special(t, 'a'));
    assert_int_equal(tokenizer_bos(t), end);
    assert_int_equal(tokenizer_eos(t), longer);

    struct strbuf text;
    struct error e;
    strbuf_init(&text);
    assert_true(tokenizer_piece(t, end, false, &text));
    assert_int_equal(text.len, 0);
    assert_true(tokenizer_piece(t, end, true, &text));
    assert_true(tokenizer_piece(t, tool, false, &text));
    assert_string_equal(text.data, "<|e|><tool>");
    assert_false(tokenizer_piece(t, tokenizer_vocab_size(t), true, &text));
    assert_int_equal(tokenizer_decode(t, IDS('a', 5000), false, &text, &e), ERROR_USAGE);
    assert_non_null(strstr(e.text, "5000"));
    assert_string_equal(text.data, "<|e|><tool>");
    strbuf_fini(&text);
    tokenizer_free(t);
}

static void test_whole_pieces(void **state)
{
    struct sample *s = new_gpt2();
    uint32_t whole = add(s, "\u0120whole", NORMAL, 0);
    struct tokenizer *t = make(s, "llama-bpe");
    expect(t, "a whole", 0, IDS('a', whole));
    assert_string_equal(tokenizer_pre(t), "llama-bpe");
    tokenizer_free(t);
    s = new_gpt2();
    add(s, "\u0120whole", NORMAL, 0);
    t = make(s, NULL);
    expect(t, "a whole", 0, IDS('a', ' ', 'w', 'h', 'o', 'l', 'e'));
    assert_string_equal(tokenizer_pre(t), "qwen2");
    assert_string_equal(tokenizer_model(t), "gpt2");
    tokenizer_free(t);
}

static void expect_fim(const struct tokenizer *t, const int64_t expected[FIM_ROLES])
{
    for (int role = 0; role < FIM_ROLES; role++)
        assert_int_equal(tokenizer_fim(t, role), expected[role]);
}

/* By the texts of Qwen, whose types need not say that they are marks, and of others. */
static void test_fim_by_text(void **state)
{
    static const char *const families[][FIM_ROLES] = {
        {"<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>", "<|fim_pad|>", "<|repo_name|>",
         "<|file_sep|>"},
        {"<fim_prefix>", "<fim_suffix>", "<fim_middle>", "<fim_pad>", "<reponame>"},
        {"<\uff5cfim\u2581begin\uff5c>", "<\uff5cfim\u2581hole\uff5c>",
         "<\uff5cfim\u2581end\uff5c>"},
        {"<|code_prefix|>", "<|code_suffix|>", "<|code_middle|>"},
    };
    for (size_t i = 0; i < sizeof families / sizeof *families; i++) {
        struct sample *s = new_gpt2();
        int64_t ids[FIM_ROLES] = {-1, -1, -1, -1, -1, -1};
        for (int role = FIM_ROLES - 1; role >= 0; role--)
            if (families[i][role])
                ids[role] = add(s, families[i][role], i == 0 ? NORMAL : CONTROL, 0);
        add(s, "<PRE>", NORMAL, 0); /* by accident */
        struct tokenizer *t = make(s, NULL);
        expect_fim(t, ids);
        for (int role = 0; role < FIM_ROLES; role++)
            if (ids[role] >= 0)
                assert_int_equal(tokenizer_is_end(t, (uint32_t)ids[role]), role >= FIM_PAD);
        tokenizer_free(t);
    }
}

/* The file's keys come before the texts, and the newer of two keys before the older. */
static void test_fim_by_key(void **state)
{
    struct sample *s = new_gpt2();
    uint32_t suffix = add(s, "<|fim_suffix|>", CONTROL, 0);
    add(s, "<|fim_prefix|>", CONTROL, 0);
    s->ids[0].key = "tokenizer.ggml.fim_pre_token_id";
    s->ids[0].id = 'p';
    s->ids[1].key = "tokenizer.ggml.prefix_token_id";
    s->ids[1].id = 'q';
    s->ids[2].key = "tokenizer.ggml.middle_token_id";
    s->ids[2].id = 'm';
    s->ids[3].key = "tokenizer.ggml.fim_sep_token_id";
    s->ids[3].id = 'f';
    struct tokenizer *t = make(s, NULL);
    expect_fim(t, (int64_t[]){'p', suffix, 'm', -1, -1, 'f'});
    assert_true(tokenizer_is_end(t, 'f'));
    tokenizer_free(t);
    t = make(new_gpt2(), NULL);
    expect_fim(t, (int64_t[]){-1, -1, -1, -1, -1, -1});
    tokenizer_free(t);
}

static void test_ends(void **state)
{
    struct sample *s = new_gpt2();
    uint32_t turn = add(s, "<|im_end|>", CONTROL, 0), normal = add(s, "</s>", NORMAL, 0);
    uint32_t bars = add(s, "<|endoftext|>", NORMAL, 0), other = add(s, "<|x|>", CONTROL, 0);
    uint32_t end = add(s, "<|end|>", CONTROL, 0);
    s->eos = 'Z';
    struct tokenizer *t = make(s, NULL);
    assert_true(tokenizer_is_end(t, turn));
    assert_true(tokenizer_is_end(t, bars));
    assert_true(tokenizer_is_end(t, 'Z'));
    assert_true(tokenizer_is_end(t, end));
    assert_false(tokenizer_is_end(t, normal));
    assert_false(tokenizer_is_end(t, other));
    assert_int_equal(tokenizer_bos(t), -1);
    tokenizer_free(t);
    s = new_gpt2();
    end = add(s, "<|end|>", CONTROL, 0);
    uint32_t answer = add(s, "<|return|>", CONTROL, 0), call = add(s, "<|call|>", CONTROL, 0);
    t = make(s, NULL);
    assert_true(tokenizer_is_end(t, answer) && tokenizer_is_end(t, call));
    assert_false(tokenizer_is_end(t, end)); /* here <|end|> ends a message, not the answer */
    tokenizer_free(t);
    s = new_gpt2();
    end = add(s, "<|end|>", CONTROL, 0);
    uint32_t flush = add(s, "<|flush|>", CONTROL, 0), calls = add(s, "<|calls|>", CONTROL, 0);
    t = make(s, "solar-open");
    assert_true(tokenizer_is_end(t, flush) && tokenizer_is_end(t, calls));
    assert_false(tokenizer_is_end(t, end));
    tokenizer_free(t);
}

static void test_llama(void **state)
{
    uint32_t space, byte = 3;
    struct tokenizer *t = make(llama_words(&space), NULL);
    uint32_t a = space + 1, b = space + 2, c = space + 3, ab = space + 4, bc = space + 5;
    uint32_t space_a = space + 6, aa = space + 7, tool = space + 8;
    assert_string_equal(tokenizer_model(t), "llama");
    expect(t, "abc", 0, IDS(space_a, bc));
    expect(t, "aab", 0, IDS(space_a, ab));
    expect(t, "baaa", 0, IDS(space, b, aa, a));
    expect(t, " a", 0, IDS(space, space_a)); /* the added space and the text's own */
    expect(t, "\u00e9", 0, IDS(space, byte + 0xc3, byte + 0xa9));
    expect(t, "\u2581", 0, IDS(space, byte + 0xe2, byte + 0x96, byte + 0x81));
    expect(t, "c\xff", 0, IDS(space, c, byte + 0xff));
    expect(t, "a", TOKENIZE_ADD_SPECIAL, IDS(1, space_a)); /* begin token by default */
    expect(t, "a<tool>a", 0, IDS(space_a, tool, space_a));
    expect(t, "a</s>", TOKENIZE_PARSE_SPECIAL, IDS(space_a, 2));
    const char *texts[] = {"abc",           " a",      "  ", "", "a<tool>a", "a<tool> a<s>",
                           "\u2581 \u2581", "\xf0\x9f"};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        expect_round_trip(t, texts[i], strlen(texts[i]), TOKENIZE_PARSE_SPECIAL);
    tokenizer_free(t);
}

static void test_gemma(void **state)
{
    uint32_t space, byte = 3;
    struct tokenizer *t = make(gemma_words(&space), NULL);
    uint32_t a = space + 1, b = space + 2, ab = space + 4, bc = space + 5, space_a = space + 6;
    uint32_t newline = space + 9, newlines = space + 10;
    expect(t, "abc", 0, IDS(a, bc)); /* by the merges' order, and without a space in front */
    expect(t, "ab ab", 0, IDS(ab, space, ab));
    expect(t, " aa", 0, IDS(space_a, a));
    expect(t, "b\n\nb\n", 0, IDS(b, newlines, b, newline));
    expect(t, "\n\n\n", 0, IDS(newline, newline, newline)); /* a run that is no token */
    expect(t, "\u00e9\u2581", 0,
           IDS(byte + 0xc3, byte + 0xa9, byte + 0xe2, byte + 0x96, byte + 0x81));
    expect(t, "b", TOKENIZE_ADD_SPECIAL, IDS(1, b));
    tokenizer_free(t);
    struct sample *s = gemma_words(&space);
    for (uint32_t i = byte; i < byte + 256; i++)
        s->types[i] = NORMAL;
    t = make(s, NULL);
    expect(t, "\u00e9", 0, IDS(byte + 0xc3, byte + 0xa9));
    tokenizer_free(t);
}

static void test_llama_without_space(void **state)
{
    uint32_t space;
    struct sample *s = llama_words(&space);
    s->add_space = 0;
    struct tokenizer *t = make(s, NULL);
    expect(t, "abc", 0, IDS(space + 1, space + 5));
    expect(t, " a", 0, IDS(space + 6));
    expect_round_trip(t, " a", 2, 0);
    tokenizer_free(t);
}

static void test_llama_without_bytes(void **state)
{
    struct sample *s = calloc(1, sizeof *s);
    assert_non_null(s);
    s->model = "llama";
    s->types_count = s->scores_count = -1;
    s->bos = s->eos = s->add_eos = -1;
    s->unknown = (int)add(s, "<unk>", UNKNOWN, 0);
    uint32_t a = add(s, "a", NORMAL, 0);
    struct tokenizer *t = make(s, NULL);
    expect(t, "a\u4e2da", 0, IDS(a, 0, a)); /* one unknown token a character */
    tokenizer_free(t);
}

/* Phi-3 drops white space behind its special tokens, but not behind <s>. Converters since 2024
 * write the name with spaces. */
static void test_phi3(void **state)
{
    static const struct {
        const char *arch, *name;
        bool phi;
    } files[] = {{"llama", "Phi-3-mini", true},
                 {"llama", "other", false},
                 {"llama", "Phi 3.5 Mini Instruct", true},
                 {"llama", NULL, false},
                 {"phimoe", NULL, true},
                 {"phimoe", "Phi 3.5 MoE Instruct", true}};
    uint32_t space;
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        bool phi = files[i].phi;
        struct sample *s = llama_words(&space);
        s->arch = files[i].arch;
        s->name = files[i].name;
        s->add_space = 0;
        struct tokenizer *t = make(s, NULL);
        if (phi)
            expect(t, "</s> \na", TOKENIZE_PARSE_SPECIAL, IDS(2, space + 1));
        else
            expect(t, "</s> a", TOKENIZE_PARSE_SPECIAL, IDS(2, space + 6));
        expect(t, "<s> a", TOKENIZE_PARSE_SPECIAL, IDS(1, space + 6));
        tokenizer_free(t);
    }
}

static void expect_error(struct sample *s, const char *pre, enum error_code code, const char *part)
{
    struct tokenizer *t = NULL;
    struct error e;
    assert_int_equal(open_sample(s, pre, &t, &e), code);
    if (!strstr(e.text, part))
        fail_msg("'%s' does not say '%s'", e.text, part);
    assert_null(t);
    free(s);
}

static void test_errors(void **state)
{
    static char long_text[70000];
    memset(long_text, 'x', sizeof long_text - 1);
    struct sample *s = new_gpt2();
    s->model = NULL;
    expect_error(s, NULL, ERROR_FORMAT, "tokenizer.ggml.model");
    s = new_gpt2();
    s->model = "rwkv";
    expect_error(s, NULL, ERROR_UNSUPPORTED,
                 "'rwkv' is not supported; known are gpt2, llama, gemma4");
    s = new_gpt2();
    s->pre = "strange";
    expect_error(s, NULL, ERROR_UNSUPPORTED, "'strange'");
    expect_error(new_gpt2(), "other", ERROR_UNSUPPORTED, "known are default, gpt-2");
    expect_error(new_gpt2(), "other", ERROR_UNSUPPORTED, ", tiny_aya, cohere2moe"); /* to the end */
    expect_error(new_llama(), "other", ERROR_UNSUPPORTED, "'other'");
    s = new_gpt2();
    s->count = 0;
    s->types_count = 0;
    expect_error(s, NULL, ERROR_FORMAT, "tokenizer.ggml.tokens");
    s = new_gpt2();
    s->types_count = 255;
    expect_error(s, NULL, ERROR_FORMAT, "'tokenizer.ggml.token_type' has 255 elements for 256");
    s = new_llama();
    s->scores_count = 5;
    expect_error(s, NULL, ERROR_FORMAT, "'tokenizer.ggml.scores' has 5 elements for 259");
    s = new_llama();
    s->scores_count = 0;
    expect_error(s, NULL, ERROR_FORMAT, "tokenizer.ggml.scores");
    s = new_llama();
    s->scores[7] = NAN;
    expect_error(s, NULL, ERROR_FORMAT, "token 7's score");
    s = new_llama();
    s->types[9] = 7;
    expect_error(s, NULL, ERROR_FORMAT, "token 9 has type 7");
    s = new_llama();
    s->tokens[9] = (struct gguf_string){.data = "<0xG0>", .len = 6};
    expect_error(s, NULL, ERROR_FORMAT, "token 9");
    s = new_gpt2();
    s->eos = 256;
    expect_error(s, NULL, ERROR_FORMAT, "'tokenizer.ggml.eos_token_id' is 256");
    s = new_gpt2();
    s->merges[0] = "nospace";
    expect_error(s, NULL, ERROR_FORMAT, "merge 0");
    s = new_gpt2();
    for (int i = 0; i < 16; i++)
        s->merges[i] = "a b"; /* a full array: the key is left out */
    expect_error(s, NULL, ERROR_FORMAT, "'tokenizer.ggml.merges' is missing");
    s = new_gpt2();
    add(s, long_text, NORMAL, 0);
    expect_error(s, NULL, ERROR_FORMAT, "token 256 has 69999 bytes");
    s = new_gpt2();
    add(s, long_text + sizeof long_text - 1026, CONTROL, 0);
    expect_error(s, NULL, ERROR_FORMAT, "token 256 has 1025 bytes, expected at most 1024");
}

/* Other names of the same expressions. */
static void test_other_names(void **state)
{
    static const struct {
        const char *name, *other;
    } names[] = {{"joyai-llm", "deepseek-v3"},
                 {"kanana2", "gpt-4o"},
                 {"smaug-bpe", "dbrx"},
                 {"chatglm-bpe", "glm4"},
                 {"gigachat", "gpt-2"}};
    static const char text[] = "It's 12345 iPhones' (x+y)\n\n  \u4e2d\u6587abc!";
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        struct tokenizer *a = make(new_gpt2(), names[i].name),
                         *b = make(new_gpt2(), names[i].other);
        struct token_list x = encode(a, text, strlen(text), 0);
        expect(b, text, 0, x.ids, x.count);
        token_list_fini(&x);
        tokenizer_free(a);
        tokenizer_free(b);
    }
}

/* Ids beyond the vocabulary are left out, but not that of the end of text (test_errors). */
static void test_ids_beyond(void **state)
{
    struct sample *s = new_gpt2();
    s->bos = 300;
    s->unknown = 301;
    s->ids[0].key = "tokenizer.ggml.eot_token_id";
    s->ids[0].id = 302;
    s->ids[1].key = "tokenizer.ggml.fim_pre_token_id";
    s->ids[1].id = UINT32_MAX;
    s->ids[2].key = "tokenizer.ggml.eom_token_id";
    s->ids[2].id = 'e';
    struct tokenizer *t = make(s, NULL);
    expect(t, "a", TOKENIZE_ADD_SPECIAL, IDS('a'));
    assert_true(tokenizer_is_end(t, 'e'));
    assert_int_equal(tokenizer_fim(t, FIM_PREFIX), -1);
    tokenizer_free(t);
}

static void test_odd_vocabularies(void **state)
{
    struct sample *s = new_gpt2();
    add(s, "", NORMAL, 0);
    add(s, "ab", NORMAL, 0);
    add(s, "ab", NORMAL, 0); /* of equal tokens the tokenizer finds the first */
    uint32_t plain = add(s, "\u4e2d", NORMAL, 0), unused = add(s, "pad", UNUSED, 0);
    s->merges[0] = "a b";
    struct tokenizer *t = make(s, NULL);
    struct strbuf text;
    strbuf_init(&text);
    expect(t, "ab", 0, IDS(257));
    expect(t, "\u4e2d", 0, IDS(0xe4, 0xb8, 0xad)); /* not in the byte-level alphabet */
    assert_true(tokenizer_piece(t, 256, true, &text));
    assert_true(tokenizer_piece(t, unused, true, &text));
    assert_int_equal(text.len, 0);
    assert_true(tokenizer_piece(t, plain, false, &text));
    assert_true(tokenizer_piece(t, 0, false, &text)); /* NUL */
    assert_int_equal(text.len, 4);
    assert_memory_equal(text.data, "\u4e2d", 4);
    strbuf_fini(&text);
    tokenizer_free(t);
}

static void push(struct token_stream *s, uint32_t id, const char *expected)
{
    struct strbuf out;
    strbuf_init(&out);
    strbuf_append(&out, "|", 1); /* the earlier text stays */
    assert_true(token_stream_push(s, id, &out));
    assert_string_equal(out.data + 1, expected);
    assert_int_equal(out.len, 1 + strlen(expected));
    strbuf_fini(&out);
}

static void test_stream(void **state)
{
    uint32_t space, byte = 3;
    struct tokenizer *t = make(llama_words(&space), NULL);
    struct token_stream s;
    struct strbuf out;
    token_stream_init(&s, t, 0);
    push(&s, space + 6, " a");
    push(&s, byte + 0xf0, "");
    push(&s, byte + 0x9f, "");
    push(&s, byte + 0xa6, "");
    push(&s, 2, ""); /* hidden */
    push(&s, byte + 0x99, "\U0001f999");
    push(&s, byte + 0xc3, "");
    push(&s, space + 1,
         "\xc3"
         "a"); /* drops bytes that cannot become a character */
    push(&s, byte + 0xe4, "");
    push(&s, byte + 0xb8, "");
    strbuf_init(&out);
    assert_false(token_stream_push(&s, 100000, &out));
    token_stream_flush(&s, &out);
    token_stream_flush(&s, &out);
    assert_string_equal(out.data, "\xe4\xb8");
    strbuf_fini(&out);
    push(&s, space + 6, " a");

    token_stream_init(&s, t, TOKEN_STREAM_WHOLE_TEXT | TOKEN_STREAM_SPECIAL);
    push(&s, space + 6, "a");
    push(&s, space + 6, " a");
    push(&s, 2, "</s>");
    push(&s, space + 6, "a");
    tokenizer_free(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_merges_by_rank),
        cmocka_unit_test(test_merges_beyond_the_vocabulary),
        cmocka_unit_test(test_missing_bytes),
        cmocka_unit_test(test_special_tokens),
        cmocka_unit_test(test_plain_ranges),
        cmocka_unit_test(test_whole_pieces),
        cmocka_unit_test(test_fim_by_text),
        cmocka_unit_test(test_fim_by_key),
        cmocka_unit_test(test_ends),
        cmocka_unit_test(test_llama),
        cmocka_unit_test(test_gemma),
        cmocka_unit_test(test_llama_without_space),
        cmocka_unit_test(test_llama_without_bytes),
        cmocka_unit_test(test_phi3),
        cmocka_unit_test(test_other_names),
        cmocka_unit_test(test_ids_beyond),
        cmocka_unit_test(test_errors),
        cmocka_unit_test(test_odd_vocabularies),
        cmocka_unit_test(test_stream),
    };
    return cmocka_run_group_tests(tests, make_path, remove_path);
}
