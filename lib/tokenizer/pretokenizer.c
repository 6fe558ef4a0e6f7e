/* Pre-tokenizers; see pretokenizer.h.
 *
 * The expressions are those of the models' tokenizer.json and of tiktoken, rewritten so that PCRE2
 * gives the same matches in time linear in the text:
 *  - white space is Unicode's White_Space; PCRE2's own \s includes U+180E;
 *  - only classes repeat, or groups without backtracking: another group would need stack for each
 *    repetition;
 *  - PCRE2 has no class subtraction: a negated class of all other categories replaces it. */
#include "tokenizer/pretokenizer.h"

#include "base/utf8.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <stdio.h>
#include <string.h>

#define WS          "\\p{White_Space}"
#define NOT_WS      "\\P{White_Space}"
#define CONTRACTION "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
/* A run of white space before a word is a piece without its last character, which begins the word.
 */
#define WS_RUNS WS "+(?!" NOT_WS ")|" WS "+"

/* cl100k and its relatives, which differ in the grouping of digits. */
#define CL100K(digits)                                                                             \
    CONTRACTION "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|" digits "| ?[^" WS "\\p{L}\\p{N}]+[\\r\\n]*|" WS  \
                "*[\\r\\n]+|" WS_RUNS

#define GPT2 "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^" WS "\\p{L}\\p{N}]+|" WS_RUNS

/* o200k: a change from lower to upper case begins a word. upper, lower: the letters and marks that
 * may stand at the start and at the end of a word; after: what may follow it. */
#define O200K_WITH(upper, lower, after, digits, line_ends)                                         \
    "[^\\r\\n\\p{L}\\p{N}]?" upper "*" lower "+" after "|[^\\r\\n\\p{L}\\p{N}]?" upper "+" lower   \
    "*" after "|" digits "| ?[^" WS "\\p{L}\\p{N}]+" line_ends "|" WS "*[\\r\\n]+|" WS_RUNS
#define O200K(upper, lower, line_ends)                                                             \
    O200K_WITH(upper, lower, CONTRACTION "?", "\\p{N}{1,3}", line_ends)
#define O200K_UPPER "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define O200K_LOWER "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"

/* Cased letters as DeepSeek's first tokenizers list them, without Georgian and the mathematical
 * alphabets. */
#define DEEPSEEK_LETTERS                                                                           \
    "[A-Za-z\\x{b5}\\x{c0}-\\x{d6}\\x{d8}-\\x{f6}\\x{f8}-\\x{1ba}\\x{1bc}-\\x{1bf}"                \
    "\\x{1c4}-\\x{293}\\x{295}-\\x{2af}\\x{370}-\\x{373}\\x{376}\\x{377}\\x{37b}-\\x{37d}"         \
    "\\x{37f}\\x{386}\\x{388}-\\x{38a}\\x{38c}\\x{38e}-\\x{3a1}\\x{3a3}-\\x{3f5}"                  \
    "\\x{3f7}-\\x{481}\\x{48a}-\\x{52f}\\x{531}-\\x{556}\\x{10a0}-\\x{10c5}"                       \
    "\\x{13a0}-\\x{13f5}\\x{13f8}-\\x{13fd}\\x{1c90}-\\x{1cba}\\x{1cbd}-\\x{1cbf}"                 \
    "\\x{1d00}-\\x{1d2b}\\x{1d6b}-\\x{1d77}\\x{1d79}-\\x{1d9a}\\x{1e00}-\\x{1f15}"                 \
    "\\x{1f18}-\\x{1f1d}\\x{1f20}-\\x{1f45}\\x{1f48}-\\x{1f4d}\\x{1f50}-\\x{1f57}"                 \
    "\\x{1f59}\\x{1f5b}\\x{1f5d}\\x{1f5f}-\\x{1f7d}\\x{1f80}-\\x{1fb4}\\x{1fb6}-\\x{1fbc}"         \
    "\\x{1fbe}\\x{1fc2}-\\x{1fc4}\\x{1fc6}-\\x{1fcc}\\x{1fd0}-\\x{1fd3}"                           \
    "\\x{1fd6}-\\x{1fdb}\\x{1fe0}-\\x{1fec}\\x{1ff2}-\\x{1ff4}\\x{1ff6}-\\x{1ffc}\\x{2102}"        \
    "\\x{2107}\\x{210a}-\\x{2113}\\x{2115}\\x{2119}-\\x{211d}\\x{2124}\\x{2126}\\x{2128}"          \
    "\\x{212a}-\\x{212d}\\x{212f}-\\x{2134}\\x{2139}\\x{213c}-\\x{213f}\\x{2145}-\\x{2149}"        \
    "\\x{214e}\\x{2183}\\x{2184}\\x{2c00}-\\x{2c7b}\\x{2c7e}-\\x{2ce4}\\x{2ceb}-\\x{2cee}"         \
    "\\x{2cf2}\\x{2cf3}\\x{a640}-\\x{a66d}\\x{a680}-\\x{a69b}\\x{a722}-\\x{a76f}"                  \
    "\\x{a771}-\\x{a787}\\x{a78b}-\\x{a78e}\\x{ab70}-\\x{abbf}\\x{fb00}-\\x{fb06}"                 \
    "\\x{fb13}-\\x{fb17}\\x{ff21}-\\x{ff3a}\\x{ff41}-\\x{ff5a}\\x{10400}-\\x{1044f}"               \
    "\\x{104b0}-\\x{104d3}\\x{104d8}-\\x{104fb}\\x{10c80}-\\x{10cb2}\\x{10cc0}-\\x{10cf2}"         \
    "\\x{118a0}-\\x{118df}\\x{1e900}-\\x{1e943}]+"
#define DEEPSEEK_CJK "[\\x{4e00}-\\x{9fa5}\\x{800}-\\x{4e00}\\x{ac00}-\\x{d7ff}]+"

/* One row per name; aliases have rows of their own. */
#define QWEN2_PATTERNS                                                                             \
    {                                                                                              \
        CL100K("\\p{N}")                                                                           \
    }
#define LLAMA3_PATTERNS                                                                            \
    {                                                                                              \
        CL100K("\\p{N}{1,3}")                                                                      \
    }
#define GPT4O_PATTERNS                                                                             \
    {                                                                                              \
        O200K(O200K_UPPER, O200K_LOWER, "[\\r\\n/]*")                                              \
    }
#define GPT2_PATTERNS                                                                              \
    {                                                                                              \
        GPT2                                                                                       \
    }

/* Digits in threes from the right. The expressions apply to a run of digits as a text: the first
 * gives what does not fill three. */
#define THREES "\\A\\p{N}{1,2}(?=(?:\\p{N}{3})++\\z)|\\p{N}{3}"
/* The same, where some texts are no such runs: threes follow the beginning only. */
#define RUN_IN_THREES                                                                              \
    "\\A\\p{Nd}{1,2}(?=(?:\\p{Nd}{3})++\\z)|\\A\\p{Nd}{3}(?=(?:\\p{Nd}{3})*+\\z)|(?!\\A)\\G\\p{"   \
    "Nd}{3}"
/* Runs before a word are left to the next expression. */
#define DIGITS_BEFORE_NO_WORD "(?<!\\p{Nd})\\p{Nd}++(?![\\p{L}\\p{M}\\p{Pc}])"
#define TINY_AYA_PATTERNS                                                                          \
    {                                                                                              \
        DIGITS_BEFORE_NO_WORD, RUN_IN_THREES, O200K(O200K_UPPER, O200K_LOWER, "[\\r\\n/]*")        \
    }
/* Of DeepSeek-V3: ASCII punctuation before a word joins it. */
#define DEEPSEEK_V3_WORDS                                                                          \
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?"           \
    "[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\\r\\n]*|" WS "*[\\r\\n]+|" WS_RUNS
#define DEEPSEEK_V3_PATTERNS                                                                       \
    {                                                                                              \
        "\\p{N}{1,3}", "[\\x{4e00}-\\x{9fa5}\\x{3040}-\\x{309f}\\x{30a0}-\\x{30ff}]+",             \
            DEEPSEEK_V3_WORDS                                                                      \
    }

static const struct pretokenizer_kind KINDS[] = {
    {"default", false, false, {"[\\p{P}$+<=>^~|]+", GPT2, "\\p{N}+", "[0-9][0-9][0-9]"}},
    {"gpt-2", false, false, GPT2_PATTERNS},
    {"olmo", false, false, GPT2_PATTERNS},
    {"gigachat", false, false, GPT2_PATTERNS},
    {"qwen2", false, false, QWEN2_PATTERNS},
    /* As qwen2, but combining marks belong to words. */
    {"qwen35",
     false,
     false,
     {CONTRACTION "|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| ?[^" WS
                  "\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|" WS "*[\\r\\n]+|" WS_RUNS}},
    {"deepseek-r1-qwen", false, false, QWEN2_PATTERNS},
    {"hunyuan", false, false, QWEN2_PATTERNS},
    {"solar-open", false, false, QWEN2_PATTERNS},
    /* Written in another way in the original; the pieces are the same. */
    {"bailingmoe", false, false, QWEN2_PATTERNS},
    {"bailingmoe2", false, false, QWEN2_PATTERNS},
    {"llama-bpe", true, true, LLAMA3_PATTERNS},
    {"llama3", true, true, LLAMA3_PATTERNS},
    {"llama-v3", true, true, LLAMA3_PATTERNS},
    {"lfm2", true, true, LLAMA3_PATTERNS},
    {"pixtral", true, true, LLAMA3_PATTERNS},
    {"dbrx", false, false, LLAMA3_PATTERNS},
    {"smaug-bpe", false, false, LLAMA3_PATTERNS},
    {"glm4", false, false, LLAMA3_PATTERNS},
    {"chatglm-bpe", false, false, LLAMA3_PATTERNS},
    {"gpt-4o", false, false, GPT4O_PATTERNS},
    {"kanana2", false, false, GPT4O_PATTERNS},
    {"minimax-m2", false, false, GPT4O_PATTERNS},
    {"tekken", true, true, {O200K_WITH(O200K_UPPER, O200K_LOWER, "", "\\p{N}", "[\\r\\n/]*")}},
    {"gemma4", false, true, {"[^\\n]+|\\n+"}},
    /* Words that single spaces separate are one piece. */
    {"exaone-moe",
     false,
     false,
     {CONTRACTION "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}(?:[\\p{L}\\p{M}]++| (?=\\p{L}))*+|\\p{N}| ?[^" WS
                  "\\p{L}\\p{N}]+[\\r\\n/]?|" WS "*[\\r\\n]|" WS_RUNS}},
    /* As o200k, but a run of Han is a piece: upper and lower exclude Han. */
    {"kimi-k2",
     false,
     false,
     {"\\p{Han}+|" O200K("[^\\p{Han}\\p{Ll}\\p{N}\\p{P}\\p{S}\\p{Z}\\p{C}]",
                         "[^\\p{Han}\\p{Lu}\\p{Lt}\\p{N}\\p{P}\\p{S}\\p{Z}\\p{C}]", "[\\r\\n]*")}},
    {"deepseek-llm",
     false,
     false,
     {"[\\r\\n]", WS "?" DEEPSEEK_LETTERS,
      WS "?[!-/:-~\\x{ff01}-\\x{ff0f}\\x{ff1a}-\\x{ff5e}\\x{2018}-\\x{201f}\\x{3000}-\\x{3002}]+",
      /* Only from the start of a run; else the time would grow with the square of its length. */
      "(?<!" WS ")" WS "++\\z", DEEPSEEK_CJK, "\\p{N}+"}},
    {"deepseek-coder",
     false,
     false,
     {"[\\r\\n]", WS "?\\p{L}+", WS "?\\p{P}+", DEEPSEEK_CJK, "\\p{N}"}},
    {"deepseek-v3", false, false, DEEPSEEK_V3_PATTERNS},
    {"joyai-llm", false, false, DEEPSEEK_V3_PATTERNS},
    {"hunyuan-dense", false, false, DEEPSEEK_V3_PATTERNS},
    /* Scripts without spaces between words are pieces of their own. */
    {"afmoe",
     false,
     false,
     {"\\p{N}+", THREES,
      "[\\x{4e00}-\\x{9fff}\\x{3400}-\\x{4dbf}\\x{f900}-\\x{faff}\\x{3040}-\\x{30ff}"
      "\\x{ff65}-\\x{ff9f}\\x{2f00}-\\x{2fdf}\\x{e40}-\\x{eff}\\x{1780}-\\x{17ff}"
      "\\x{1000}-\\x{109f}\\x{aa60}-\\x{aa7f}\\x{a9e0}-\\x{a9ff}\\x{ac00}-\\x{d7af}"
      "\\x{1100}-\\x{11ff}]+",
      DEEPSEEK_V3_WORDS}},
    {"laguna", false, false, {"[^\\n]+|\\n+", CL100K("\\p{N}")}},
    {"tiny_aya", false, false, TINY_AYA_PATTERNS},
    {"cohere2moe", false, false, TINY_AYA_PATTERNS},
};

#define KIND_COUNT (sizeof KINDS / sizeof KINDS[0])

const struct pretokenizer_kind *pretokenizer_kind_find(const char *name, size_t len)
{
    for (size_t i = 0; i < KIND_COUNT; i++) {
        if (strlen(KINDS[i].name) == len && memcmp(KINDS[i].name, name, len) == 0)
            return &KINDS[i];
    }
    return NULL;
}

void pretokenizer_kind_names(char *out, size_t size)
{
    size_t used = 0;
    out[0] = 0;
    for (size_t i = 0; i < KIND_COUNT && used < size; i++)
        used += (size_t)snprintf(out + used, size - used, "%s%s", i ? ", " : "", KINDS[i].name);
}

enum error_code pretokenizer_init(struct pretokenizer *p, const struct pretokenizer_kind *kind,
                                  struct error *e)
{
    *p = (struct pretokenizer){0};
    for (unsigned i = 0; i < PRETOKENIZER_STAGES && kind->patterns[i]; i++) {
        int code;
        PCRE2_SIZE at;
        pcre2_code *compiled =
            pcre2_compile((PCRE2_SPTR)kind->patterns[i], PCRE2_ZERO_TERMINATED,
                          PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C, &code, &at, NULL);
        if (!compiled) {
            char text[128];
            pcre2_get_error_message(code, (PCRE2_UCHAR *)text, sizeof text);
            pretokenizer_fini(p);
            return error_set(e, ERROR_INTERNAL,
                             "pre-tokenizer %s: expression %u does not compile at offset %zu: %s "
                             "(PCRE2 10.40 or later is needed)",
                             kind->name, i, (size_t)at, text);
        }
        /* This fails if memory may not be made executable; PCRE2 then uses its interpreter. */
        (void)pcre2_jit_compile(compiled, PCRE2_JIT_COMPLETE);
        p->stages[p->stage_count++] = compiled;
    }
    return ERROR_OK;
}

void pretokenizer_fini(struct pretokenizer *p)
{
    for (unsigned i = 0; i < p->stage_count; i++)
        pcre2_code_free(p->stages[i]);
    *p = (struct pretokenizer){0};
}

/* One call of pretokenizer_split. Stages nest, so each has its own match data. */
struct splitter {
    const struct pretokenizer *pretokenizer;
    pcre2_match_data *matches[PRETOKENIZER_STAGES];
    pcre2_match_context *limits;
    pretokenizer_emit *emit;
    void *context;
    struct error *error;
};

static int match(const struct splitter *s, unsigned stage, const char *text, size_t len,
                 size_t from)
{
    const pcre2_code *code = s->pretokenizer->stages[stage];
    int rc = pcre2_match(code, (PCRE2_SPTR)text, len, from, PCRE2_NO_UTF_CHECK, s->matches[stage],
                         s->limits);
    if (rc == PCRE2_ERROR_JIT_STACKLIMIT) /* the interpreter's state is on the heap */
        rc = pcre2_match(code, (PCRE2_SPTR)text, len, from, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT,
                         s->matches[stage], s->limits);
    return rc;
}

static enum error_code match_failed(const struct splitter *s, int rc, size_t len)
{
    char text[128] = "empty match";
    if (rc < 0)
        pcre2_get_error_message(rc, (PCRE2_UCHAR *)text, sizeof text);
    return error_set(s->error, rc == PCRE2_ERROR_NOMEMORY ? ERROR_MEMORY : ERROR_LIMIT,
                     "tokenizer: the pre-tokenizer's expression failed on a text of %zu bytes: %s",
                     len, text);
}

static enum error_code split_stage(const struct splitter *s, unsigned stage, const char *text,
                                   size_t len)
{
    if (len == 0)
        return ERROR_OK;
    if (stage == s->pretokenizer->stage_count) {
        if (s->emit(s->context, text, len))
            return ERROR_OK;
        return error_set(s->error, ERROR_MEMORY, "tokenizer: out of memory");
    }
    size_t done = 0;
    while (done < len) {
        int rc = match(s, stage, text, len, done);
        size_t start = len, end = len;
        if (rc >= 0) {
            const PCRE2_SIZE *span = pcre2_get_ovector_pointer(s->matches[stage]);
            start = span[0];
            end = span[1];
        }
        if ((rc < 0 && rc != PCRE2_ERROR_NOMATCH) || (rc >= 0 && start == end))
            return match_failed(s, rc, len);
        enum error_code error = split_stage(s, stage + 1, text + done, start - done);
        if (!error)
            error = split_stage(s, stage + 1, text + start, end - start);
        if (error)
            return error;
        done = end;
    }
    return ERROR_OK;
}

/* Bytes of the longest run at text of well-formed UTF-8, or of other bytes. */
static size_t run_length(const char *text, size_t len, bool well_formed)
{
    size_t n = 0;
    while (n < len) {
        size_t length = (unsigned char)text[n] < 0x80 ? 1 : utf8_valid_length(text + n, len - n);
        if ((length > 0) != well_formed)
            break;
        n += length ? length : 1;
    }
    return n;
}

static enum error_code split_runs(const struct splitter *s, const char *text, size_t len)
{
    enum error_code error = ERROR_OK;
    for (size_t done = 0; done < len && !error;) {
        size_t n = run_length(text + done, len - done, true);
        if (n > 0) {
            error = split_stage(s, 0, text + done, n);
        } else {
            n = run_length(text + done, len - done, false);
            error = split_stage(s, s->pretokenizer->stage_count, text + done, n);
        }
        done += n;
    }
    return error;
}

enum error_code pretokenizer_split(const struct pretokenizer *p, const char *text, size_t len,
                                   pretokenizer_emit *emit, void *context, struct error *e)
{
    struct splitter s = {.pretokenizer = p, .emit = emit, .context = context, .error = e};
    bool ready = (s.limits = pcre2_match_context_create(NULL)) != NULL;
    for (unsigned i = 0; i < p->stage_count && ready; i++)
        ready = (s.matches[i] = pcre2_match_data_create(1, NULL)) != NULL;
    enum error_code error;
    if (ready) {
        /* No limits: the expressions backtrack at most once over a text, however long. */
        pcre2_set_match_limit(s.limits, UINT32_MAX);
        pcre2_set_depth_limit(s.limits, UINT32_MAX);
        pcre2_set_heap_limit(s.limits, UINT32_MAX);
        error = split_runs(&s, text, len);
    } else {
        error = error_set(e, ERROR_MEMORY, "tokenizer: out of memory");
    }
    for (unsigned i = 0; i < p->stage_count; i++)
        pcre2_match_data_free(s.matches[i]);
    pcre2_match_context_free(s.limits);
    return error;
}
