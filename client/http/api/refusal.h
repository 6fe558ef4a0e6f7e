/* What the worker refuses, by the name of the request's parameter: libmoed names its own. */
#ifndef MOED_HTTP_REFUSAL_H
#define MOED_HTTP_REFUSAL_H

#include "client/http/api/ask.h"

/* *p: of a MOED_ERROR_USAGE; set again where a parameter of the request is found to be the cause.
 * vocab: of the model; 0: not known. bound: the answer has a grammar. */
void refusal_name(struct problem *p, const struct ask *ask, uint32_t vocab, bool bound);

#endif
