/* Where tokens begin in a text, in characters, as an answer in JSON has them: a byte that is no
 * part of a well-formed character is one character there, U+FFFD. */
#ifndef MOED_HTTP_TEXT_PLACE_H
#define MOED_HTTP_TEXT_PLACE_H

#include "client/http/model/vocabulary.h"

#include <stddef.h>
#include <stdint.h>

/* A place in a text of which the bytes come one after the other; zero: its beginning. */
struct text_place {
    uint32_t characters; /* before the one that is incomplete */
    uint32_t n_pending;
    char pending[4]; /* of the incomplete one */
};

/* Takes a token's bytes. Returns the index of the character that has the first of them, also where
 * the token begins inside it; of no bytes, that of the next character, or of the incomplete one. A
 * character that later bytes turn out to break is counted as one for the tokens inside it. */
uint32_t text_place_take(struct text_place *p, const char *bytes, size_t len);

/* The offsets of a prompt's tokens in its text. A begin token is not in the text, and SentencePiece
 * puts a space before it that is not there: a token adds what the text shows of it.
 * offsets: [n]. *end: the place behind the text. */
void text_place_tokens(const struct vocabulary *v, const uint32_t *tokens, size_t n,
                       struct moed_bytes text, uint32_t *offsets, struct text_place *end);

#endif
