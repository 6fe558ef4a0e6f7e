/* libmoed: structs that the program fills, of this version of the library or of another one. */
#ifndef MOED_CLIENT_OPTIONS_H
#define MOED_CLIENT_OPTIONS_H

#include "client/include/moed.h"

/* Copies a struct whose first field is its size into *out, which has `known` bytes, all that this
 * library knows; `first` is its size in version 1.0. Fields that the program does not know become
 * 0. MOED_ERROR_USAGE: the size was not set. MOED_ERROR_VERSION: the program sets a field that this
 * library does not know. */
enum moed_code options_copy(const void *from, void *out, size_t known, size_t first,
                            const char *name, struct moed_error *error);

/* The same into a variable; `last` is the last field of version 1.0. */
#define OPTIONS_COPY(from, out, type, last, error)                                                 \
    options_copy(from, out, sizeof *(out), offsetof(type, last) + sizeof((type *)0)->last, #type,  \
                 error)

/* The program has set out->size. */
enum moed_code result_check(const struct moed_result *out, struct moed_error *error);
/* Copies a result to the program's struct, as far as that knows it. */
void result_copy_out(const struct moed_result *from, struct moed_result *out);

#endif
