/* Inside lib/tokenizer: the text of one token where it stands in a row of tokens. */
#ifndef MOED_TOKENIZER_PIECE_H
#define MOED_TOKENIZER_PIECE_H

#include "tokenizer/tokenizer.h"

/* tokenizer_piece, less the space that encoding put in front where *at_start says that a text
 * begins here. Sets *at_start to whether one begins after id. */
bool tokenizer_piece_at(const struct tokenizer *t, uint32_t id, bool special, bool *at_start,
                        struct strbuf *out);

#endif
