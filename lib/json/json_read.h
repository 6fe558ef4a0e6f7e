/* JSON values from texts with numbers of any size: a model may write an integer of more than 64
 * bits into a call, which comes back in the conversation, and jansson reads none. */
#ifndef MOED_JSON_READ_H
#define MOED_JSON_READ_H

#include <jansson.h>

/* As json_loadb, but integers of more than 64 bits become reals. error: may be NULL. */
json_t *json_read(const char *text, size_t len, size_t flags, json_error_t *error);

#endif
