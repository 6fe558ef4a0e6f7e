/* Texts against grammars, byte by byte, for the grammar tests. */
#ifndef MOED_TESTS_GRAMMAR_TEXTS_H
#define MOED_TESTS_GRAMMAR_TEXTS_H

#include "grammar/grammar.h"
#include "grammar/matcher.h"
#include "grammar/vocabulary.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { BYTE_END = 256 }; /* of byte_vocabulary: ids 0 to 255 are the bytes */

static inline struct grammar_vocabulary *byte_vocabulary(void)
{
    static uint8_t bytes[256];
    static const uint8_t *texts[257];
    static uint32_t lengths[257];
    static uint8_t kinds[257];
    struct grammar_vocabulary *v;
    for (unsigned i = 0; i < 256; i++) {
        bytes[i] = (uint8_t)i;
        texts[i] = &bytes[i];
        lengths[i] = 1;
    }
    kinds[BYTE_END] = GRAMMAR_TOKEN_END;
    assert_int_equal(grammar_vocabulary_new(257, texts, lengths, kinds, &v, NULL), 0);
    return v;
}

static inline struct grammar *compile_ok(enum grammar_kind kind, const char *text)
{
    struct grammar *g = NULL;
    struct error e;
    if (grammar_compile(kind, text, strlen(text), NULL, &g, &e))
        fail_msg("%s: %s", text, e.text);
    return g;
}

/* The answer takes all bytes and may end there. */
static inline bool whole_text(const struct grammar *g, const char *text, size_t len)
{
    struct grammar_vocabulary *v = byte_vocabulary();
    struct grammar_matcher *m;
    assert_int_equal(grammar_matcher_new(g, v, NULL, &m, NULL), 0);
    bool accepted = true;
    for (size_t i = 0; i < len && accepted; i++)
        accepted = grammar_matcher_advance(m, (uint8_t)text[i]);
    accepted = accepted && grammar_matcher_accepts(m, BYTE_END);
    struct error e;
    if (grammar_matcher_error(m, &e))
        fail_msg("%s", e.text);
    grammar_matcher_free(m);
    grammar_vocabulary_free(v);
    return accepted;
}

/* texts: those before the first NULL are accepted, those between it and the second are not. */
static inline void check_texts(enum grammar_kind kind, const char *definition,
                               const char *const *texts)
{
    struct grammar *g = compile_ok(kind, definition);
    for (; *texts; texts++)
        if (!whole_text(g, *texts, strlen(*texts)))
            fail_msg("%s does not accept %s", definition, *texts);
    for (texts++; *texts; texts++)
        if (whole_text(g, *texts, strlen(*texts)))
            fail_msg("%s accepts %s", definition, *texts);
    grammar_free(g);
}

#define CHECK_TEXTS(kind, definition, ...)                                                         \
    check_texts(kind, definition, (const char *const[]){__VA_ARGS__, NULL})

/* The definition is refused with this code and a text that has `part`. */
static inline void check_refused(enum grammar_kind kind, const char *definition,
                                 enum error_code code, const char *part)
{
    struct grammar *g = NULL;
    struct error e = {0};
    enum error_code error = grammar_compile(kind, definition, strlen(definition), NULL, &g, &e);
    if (error != code || !strstr(e.text, part))
        fail_msg("%s: error %d \"%s\", expected %d \"%s\"", definition, error, e.text, code, part);
    assert_null(g);
}

#endif
