/* Private to lib/tokenizer: the text of one token in a sequence of tokens. */
#ifndef MOED_TOKENIZER_PIECE_H
#define MOED_TOKENIZER_PIECE_H

#include "tokenizer/tokenizer.h"

/* tokenizer_piece without the leading space that encoding adds, if *at_start: a text begins at id.
 * Sets *at_start to whether a text begins after id. */
bool tokenizer_piece_at(const struct tokenizer *t, uint32_t id, bool special, bool *at_start,
                        struct strbuf *out);

#endif
