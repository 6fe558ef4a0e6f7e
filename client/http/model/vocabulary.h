/* The bytes of every token of a model, for log-probabilities, whose tokens have names in JSON.
 *
 * A thread of a deployment asks the worker once; answers keep references, since another worker may
 * have come before they end. It never changes, so any thread may read it. */
#ifndef MOED_HTTP_VOCABULARY_H
#define MOED_HTTP_VOCABULARY_H

#include "client/http/model/deployments.h"

#include "base/strbuf.h"

#include <stdatomic.h>

struct vocabulary {
    atomic_uint references;
    uint32_t count;
    size_t *ends; /* of each token's bytes in `text` */
    struct strbuf text;
};

/* A new reference. On the attachment's thread, attached. */
enum moed_code vocabulary_get(struct attachment *a, struct vocabulary **out,
                              struct moed_error *error);
void vocabulary_release(struct vocabulary *v); /* takes NULL */

/* An unknown token has none. */
struct moed_bytes vocabulary_text(const struct vocabulary *v, uint32_t token);

#endif
