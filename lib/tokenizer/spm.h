/* SentencePiece's BPE: merges neighbours whose joined text is a token, highest score first.
 *
 *  - There is no Unicode normalisation.
 *  - A character that is no token becomes the tokens of its bytes, else the unknown token, else
 *    nothing if the file has neither.
 *  - SentencePiece writes a space in a token as U+2581. The character U+2581 of a text becomes
 * bytes, so that it round-trips.
 *  - Bytes that are not UTF-8 become their byte tokens. */
#ifndef MOED_TOKENIZER_SPM_H
#define MOED_TOKENIZER_SPM_H

#include "tokenizer/merge.h"
#include "tokenizer/token_list.h"
#include "tokenizer/vocab.h"

/* Appends the ids of text. False: out of memory. */
bool spm_encode(const struct vocab *v, struct merge_space *space, const char *text, size_t len,
                struct token_list *out);

#endif
