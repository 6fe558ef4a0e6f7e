/* SentencePiece's BPE: neighbours whose joined text is a token merge, the highest score first.
 *
 * The text is taken as it is (no Unicode normalisation). A character that is no token becomes its
 * bytes' tokens, or the unknown token, or nothing where the file has neither. Spaces are tokens'
 * spaces; the character U+2581 itself, by which SentencePiece writes them, becomes bytes, so that
 * it comes back. Bytes that are not UTF-8 become their byte tokens.
 */
#ifndef MOED_TOKENIZER_SPM_H
#define MOED_TOKENIZER_SPM_H

#include "tokenizer/merge.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/vocab.h"

/* Append the ids of text. False: out of memory. */
bool spm_encode(const struct vocab *v, struct merge_space *space, const char *text, size_t len,
                struct token_list *out);

#endif
