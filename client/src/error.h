/* libmoed: fills the struct moed_error of the public interface. Every function takes error NULL. */
#ifndef MOED_CLIENT_ERROR_H
#define MOED_CLIENT_ERROR_H

#include "client/include/moed.h"

#include "base/error.h"

#include "session.pb-c.h"

/* Formats the message, with control characters replaced by '?'. Returns code. */
enum moed_code error_report(struct moed_error *error, enum moed_code code, bool retry,
                            const char *format, ...) __attribute__((format(printf, 4, 5)));
/* Converts an error of lib/base. Sets retry for ERROR_UNAVAILABLE and ERROR_TIMEOUT. */
enum moed_code error_convert(struct moed_error *error, const struct error *from);
/* Converts an error message of the worker. An unknown code becomes MOED_ERROR_INTERNAL. */
void error_from_wire(struct moed_error *error, const Moed__V1__Error *from);
/* Copies from. Returns its code. */
enum moed_code error_copy(struct moed_error *error, const struct moed_error *from);

#endif
