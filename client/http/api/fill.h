/* Prompts for fill-in-the-middle (FIM): a model continues a text with what belongs between it and
 * another text, as editors ask for it. */
#ifndef MOED_HTTP_FILL_H
#define MOED_HTTP_FILL_H

#include "client/http/api/answer_state.h"

/* The vocabulary has the marks that every such prompt needs. */
bool fill_is_possible(const struct moed_fim *marks);
/* On the deployment's thread: gives each prompt of the request the tokens of its FIM prompt.
 * MOED_ERROR_UNSUPPORTED: the vocabulary has no tokens for it. */
enum moed_code fill_prompts(struct answer *a, struct moed_error *error);

/* ---- For tests ---- */

struct fill_ids {
    uint32_t *ids; /* owned */
    size_t count;
};

/* What a prompt is made of. */
struct fill_parts {
    struct moed_fim marks;
    int64_t begin; /* the token that begins texts; -1: none */
    struct fill_ids prefix, line, suffix;
    struct fill_ids extra; /* with its marks */
};

/* The last, or the first, bytes of a text: at most n, and whole characters; from (to) a newline
 * where there is one within reach. */
struct moed_bytes fill_last_bytes(struct moed_bytes text, size_t n);
struct moed_bytes fill_first_bytes(struct moed_bytes text, size_t n);

/* Cuts the parts to a context of so many tokens. */
void fill_cut(struct fill_parts *parts, uint32_t context);
/* The order is that of llama-server:
 *
 *     extra, begin, <prefix> prefix line, <suffix> suffix, <middle>
 *
 * out: with space for all. Returns the count. */
size_t fill_join(const struct fill_parts *parts, uint32_t *out);

#endif
