/* A made-up byte-level BPE vocabulary; see vocabulary.h.
 *
 * add_word encodes a word with the existing merges, then adds merges that join the remaining tokens
 * from left to right. New merges rank behind all older ones, so older words keep their encoding,
 * and each added word becomes one token. A token's text belongs to one merge: to find a pair, the
 * code looks up its joined text and compares the place of the join. */
#include "mkmodel/vocabulary.h"

#include "base/arrays.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BYTE_TOKENS     256
#define SPECIAL_TOKENS  3
#define MAX_TOKEN_BYTES 48
#define MAX_WORD_PIECES 32
#define NONE            UINT32_MAX

/* Words in rough order of how often English uses them. */
static const char *const common_words[] = {
    "the",      "of",     "and",       "to",        "in",        "a",        "is",       "that",
    "it",       "for",    "was",       "on",        "are",       "as",       "with",     "be",
    "by",       "at",     "this",      "have",      "from",      "or",       "had",      "not",
    "but",      "what",   "all",       "were",      "when",      "we",       "there",    "can",
    "an",       "your",   "which",     "their",     "said",      "if",       "do",       "will",
    "each",     "about",  "how",       "up",        "out",       "them",     "then",     "she",
    "many",     "some",   "so",        "these",     "would",     "other",    "into",     "has",
    "more",     "her",    "two",       "like",      "him",       "see",      "time",     "could",
    "no",       "make",   "than",      "first",     "been",      "its",      "who",      "now",
    "people",   "my",     "made",      "over",      "did",       "down",     "only",     "way",
    "find",     "use",    "may",       "water",     "long",      "little",   "very",     "after",
    "words",    "called", "just",      "where",     "most",      "know",     "get",      "through",
    "back",     "much",   "go",        "good",      "new",       "write",    "our",      "me",
    "man",      "too",    "any",       "day",       "same",      "right",    "look",     "think",
    "also",     "around", "another",   "came",      "come",      "work",     "three",    "must",
    "because",  "does",   "part",      "even",      "place",     "well",     "such",     "here",
    "take",     "why",    "help",      "put",       "different", "away",     "again",    "off",
    "went",     "old",    "number",    "great",     "tell",      "men",      "say",      "small",
    "every",    "found",  "still",     "between",   "name",      "should",   "home",     "big",
    "give",     "air",    "line",      "set",       "own",       "under",    "read",     "last",
    "never",    "us",     "left",      "end",       "along",     "while",    "might",    "next",
    "sound",    "below",  "saw",       "something", "thought",   "both",     "few",      "those",
    "always",   "show",   "large",     "often",     "together",  "asked",    "house",    "world",
    "going",    "want",   "school",    "important", "until",     "form",     "food",     "keep",
    "children", "feet",   "land",      "side",      "without",   "boy",      "once",     "animal",
    "life",     "enough", "took",      "four",      "head",      "above",    "kind",     "began",
    "almost",   "live",   "page",      "got",       "earth",     "need",     "far",      "hand",
    "high",     "year",   "mother",    "light",     "country",   "father",   "let",      "night",
    "picture",  "being",  "study",     "second",    "soon",      "story",    "since",    "white",
    "ever",     "paper",  "hello",     "Hello",     "The",       "In",       "It",       "model",
    "expert",   "memory", "token",     "layer",     "machine",   "language", "question", "answer",
    "user",     "system", "assistant",
};

struct work {
    uint32_t count, limit; /* tokens so far; tokens wanted, without the special ones */
    uint32_t *start;       /* of each token's text; start[count] is the end of the last */
    uint8_t *left_len;     /* bytes of the left part of its merge; 0 for a byte */
    uint32_t *table;       /* token by hash of its text */
    uint32_t table_size;   /* a power of two */
    char *text;
    void *memory; /* of the four arrays */
};

/* GPT-2's visible stand-in for a byte, as UTF-8; returns its length. */
static unsigned byte_text(unsigned byte, char out[2])
{
    unsigned code = byte;
    if (byte <= 32) /* invisible bytes get 256, 257, ... in order */
        code = 256 + byte;
    else if (byte >= 127 && byte <= 160)
        code = 256 + 33 + (byte - 127);
    else if (byte == 173)
        code = 256 + 33 + 34;
    if (code < 128) {
        out[0] = (char)code;
        return 1;
    }
    out[0] = (char)(0xc0 | code >> 6);
    out[1] = (char)(0x80 | (code & 63));
    return 2;
}

static uint32_t hash_text(const char *p, size_t len)
{
    uint32_t h = 2166136261u; /* FNV-1a */
    for (size_t i = 0; i < len; i++)
        h = (h ^ (unsigned char)p[i]) * 16777619u;
    return h ^ h >> 15;
}

/* The text's place in the table, or the empty place for it. */
static uint32_t *find_place(const struct work *w, const char *p, size_t len)
{
    uint32_t i = hash_text(p, len) & (w->table_size - 1);
    while (w->table[i] != NONE) {
        uint32_t token = w->table[i];
        size_t have = w->start[token + 1] - w->start[token];
        if (have == len && memcmp(w->text + w->start[token], p, len) == 0)
            break;
        i = (i + 1) & (w->table_size - 1);
    }
    return &w->table[i];
}

/* Appends a new token. */
static uint32_t add_token(struct work *w, const char *p, size_t len, size_t left_len)
{
    uint32_t token = w->count++;
    memcpy(w->text + w->start[token], p, len);
    w->start[token + 1] = w->start[token] + (uint32_t)len;
    w->left_len[token] = (uint8_t)left_len;
    *find_place(w, p, len) = token;
    return token;
}

/* Merges the pair of neighbouring tokens with the lowest rank. False: no pair merges. */
static bool merge_best(const struct work *w, const char *word, size_t *ends, size_t *pieces)
{
    uint32_t best = NONE;
    size_t best_at = 0, from = 0;
    for (size_t i = 0; i + 1 < *pieces; i++) {
        uint32_t token = *find_place(w, word + from, ends[i + 1] - from);
        if (token != NONE && w->left_len[token] == ends[i] - from && token < best) {
            best = token;
            best_at = i;
        }
        from = ends[i];
    }
    if (best == NONE)
        return false;
    memmove(&ends[best_at], &ends[best_at + 1], (*pieces - best_at - 1) * sizeof *ends);
    (*pieces)--;
    return true;
}

/* Adds merges until `word` (ASCII, perhaps with a leading space) is one token or the vocabulary is
 * full. */
static void add_word(struct work *w, const char *word)
{
    char text[MAX_TOKEN_BYTES];
    size_t ends[MAX_WORD_PIECES], len = 0, pieces = 0;
    for (; *word && pieces < MAX_WORD_PIECES && len + 2 <= sizeof text; word++) {
        len += byte_text((unsigned char)*word, text + len);
        ends[pieces++] = len;
    }
    while (merge_best(w, text, ends, &pieces))
        ;
    for (size_t i = 1; i < pieces && w->count < w->limit; i++) {
        /* Rare: the text exists, joined elsewhere. Then the word cannot become one token. */
        if (*find_place(w, text, ends[i]) != NONE)
            return;
        add_token(w, text, ends[i], ends[i - 1]);
    }
}

static void add_word_with_space(struct work *w, const char *word)
{
    char spaced[MAX_TOKEN_BYTES];
    snprintf(spaced, sizeof spaced, " %s", word);
    add_word(w, spaced);
    add_word(w, word);
}

/* Made-up words: number n is spelt in syllables of onset, vowel and coda. */
static void spell(uint64_t n, char *out, size_t size)
{
    static const char *const onsets[] = {"t", "s", "r", "l", "n",  "d",  "m",  "c",  "p",  "b",
                                         "f", "g", "h", "v", "w",  "st", "tr", "ch", "sh", "pr",
                                         "k", "j", "z", "y", "cl", "br", "gr", "sp", "th", "qu"};
    static const char *const vowels[] = {"e", "a", "i", "o", "u", "ea", "ou", "ai"};
    static const char *const codas[] = {"", "n", "r", "s", "l", "t", "d", "m", "ng", "ck"};
    const uint64_t syllables = 30 * 8 * 10;
    size_t used = 0;
    do {
        uint64_t s = n % syllables;
        used += (size_t)snprintf(out + used, size - used, "%s%s%s", onsets[s % 30],
                                 vowels[s / 30 % 8], codas[s / 240]);
        n /= syllables;
    } while (n-- > 0 && used + 6 < size);
}

static void add_all_words(struct work *w)
{
    char word[MAX_TOKEN_BYTES / 2];
    for (size_t i = 0; i < sizeof common_words / sizeof common_words[0]; i++)
        add_word_with_space(w, common_words[i]);
    for (uint64_t n = 0; w->count < w->limit; n++) {
        spell(n, word, sizeof word);
        add_word_with_space(w, word);
    }
}

static bool work_init(struct work *w, uint32_t limit)
{
    *w = (struct work){.limit = limit, .table_size = 1024};
    while (w->table_size < 2 * limit)
        w->table_size *= 2;
    w->memory =
        ARRAYS_NEW(ARRAY(w->start, (size_t)limit + 1), ARRAY(w->left_len, limit),
                   ARRAY(w->table, w->table_size), ARRAY(w->text, (size_t)limit * MAX_TOKEN_BYTES));
    if (!w->memory)
        return false;
    memset(w->table, 0xff, w->table_size * sizeof *w->table);
    for (unsigned byte = 0; byte < BYTE_TOKENS; byte++) {
        char text[2];
        unsigned len = byte_text(byte, text);
        add_token(w, text, len, 0);
    }
    return true;
}

/* "left right" of each merge, in v->text. */
static void collect_merges(struct vocabulary *v, const struct work *w)
{
    char *out = v->text;
    for (uint32_t i = 0; i < v->merge_count; i++) {
        uint32_t token = BYTE_TOKENS + i;
        const char *text = w->text + w->start[token];
        size_t len = w->start[token + 1] - w->start[token], left = w->left_len[token];
        v->merges[i] = (struct gguf_string){out, len + 1};
        memcpy(out, text, left);
        out[left] = ' ';
        memcpy(out + left + 1, text + left, len - left);
        out += len + 1;
    }
}

static void collect_tokens(struct vocabulary *v, const struct work *w)
{
    static const char *const special[] = {"<|endoftext|>", "<|im_start|>", "<|im_end|>"};
    for (uint32_t i = 0; i < w->count; i++) {
        v->tokens[i] = (struct gguf_string){w->text + w->start[i], w->start[i + 1] - w->start[i]};
        v->token_types[i] = 1;
    }
    for (uint32_t i = 0; i < SPECIAL_TOKENS; i++) {
        v->tokens[w->count + i] = (struct gguf_string){special[i], strlen(special[i])};
        v->token_types[w->count + i] = 3;
    }
    v->end_of_text = w->count;
    v->im_start = w->count + 1;
    v->im_end = w->count + 2;
}

enum error_code vocabulary_init(struct vocabulary *v, uint32_t count, struct error *e)
{
    *v = (struct vocabulary){.count = count, .merge_count = count - BYTE_TOKENS - SPECIAL_TOKENS};
    struct work *w = calloc(1, sizeof *w);
    v->work = w;
    v->memory =
        ARRAYS_NEW(ARRAY(v->tokens, count), ARRAY(v->token_types, count), ARRAY(v->merges, count));
    bool ok = w && v->memory && work_init(w, count - SPECIAL_TOKENS);
    if (ok) {
        add_all_words(w);
        v->text = malloc(w->start[w->count] + (size_t)count); /* a space each */
    }
    if (!ok || !v->text) {
        vocabulary_fini(v);
        return error_set(e, ERROR_MEMORY, "no memory for a vocabulary of %u tokens", count);
    }
    collect_merges(v, w);
    collect_tokens(v, w);
    return ERROR_OK;
}

void vocabulary_fini(struct vocabulary *v)
{
    struct work *w = v->work;
    if (w)
        free(w->memory);
    free(w);
    free(v->memory);
    free(v->text);
    *v = (struct vocabulary){0};
}
