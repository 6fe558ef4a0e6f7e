/* The alphabet of byte-level BPE vocabularies: printable Latin-1 characters stand for themselves,
 * U+0100 onwards for the other 68 bytes in order (GPT-2's bytes_to_unicode). */
#ifndef MOED_TOKENIZER_BYTE_LEVEL_H
#define MOED_TOKENIZER_BYTE_LEVEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Writes the bytes that text[0..len) stands for to out, which has space for len bytes. False: a
 * character is not of the alphabet; such a text, an added token's for example, stands for itself.
 */
bool byte_level_decode(const char *text, size_t len, uint8_t *out, size_t *out_len);

#endif
