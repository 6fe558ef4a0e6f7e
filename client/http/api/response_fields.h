/* llama-server's response_fields: the members of an answer that a client wants. */
#ifndef MOED_HTTP_RESPONSE_FIELDS_H
#define MOED_HTTP_RESPONSE_FIELDS_H

#include "client/http/api/ask.h"

#include "base/strbuf.h"

bool take_response_fields(struct ask *ask, json_t *value, struct problem *p);
/* The request names this member of the answer, or a member of it, or has no list. */
bool response_fields_want(const struct ask *ask, const char *member);
/* Appends an object with those members of the object `json` that the request names. `json` has no
 * blanks between its tokens, and its names have no escapes. A name such as
 * "timings/prompt_n" is the path of a member, which the new object has under this name. An unknown
 * name is left out. */
void response_fields_json(const struct ask *ask, const struct strbuf *json, struct strbuf *out);

#endif
