/* libmoed: a grammar as a message. */
#ifndef MOED_CLIENT_GRAMMAR_H
#define MOED_CLIENT_GRAMMAR_H

#include "client/include/moed.h"

#include "session.pb-c.h"

/* A Grammar with its list, which the caller frees with grammar_message_fini. Borrows the program's
 * options. */
struct grammar_message {
    Moed__V1__Grammar message;
    ProtobufCBinaryData *marks;
};

/* *out: what goes into the request; NULL: no grammar. */
enum moed_code grammar_message_init(struct grammar_message *m, const struct moed_grammar *g,
                                    Moed__V1__Grammar **out, struct moed_error *error);
void grammar_message_fini(struct grammar_message *m);

#endif
