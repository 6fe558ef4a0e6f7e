/* A text of a file that may be secret, as a private key: it is read into one buffer, and no other
 * memory has a copy. */
#ifndef MOED_HTTP_TEXT_FILE_H
#define MOED_HTTP_TEXT_FILE_H

#include "base/error.h"

/* The whole file, or pipe, with a NUL behind it; owned. NULL: ERROR_IO, it cannot be read;
 * ERROR_FORMAT, it is empty; ERROR_LIMIT, it is too large; ERROR_MEMORY. */
char *text_file_read(const char *path, struct error *e);

#endif
