/* JSON values from texts with numbers of any size and halves of surrogate pairs: a model may write
 * such into a call, which comes back in the conversation, and jansson reads none. */
#ifndef MOED_JSON_READ_H
#define MOED_JSON_READ_H

#include <jansson.h>

/* As json_loadb, but integers of more than 64 bits become reals, numbers beyond doubles the largest
 * one, and escapes of half a surrogate pair U+FFFD. error: may be NULL. */
json_t *json_read(const char *text, size_t len, size_t flags, json_error_t *error);

#endif
