/* The file of a chat template that a deployment has in place of its model's. */
#ifndef MOED_MODEL_TEMPLATE_FILE_H
#define MOED_MODEL_TEMPLATE_FILE_H

#include "base/error.h"

/* *out: its text with a NUL behind it, owned. ERROR_IO: it cannot be read; ERROR_LIMIT: it has more
 * than CHAT_TEMPLATE_BYTES (serving_limits.h); ERROR_MEMORY. */
enum error_code template_file_read(const char *path, char **out, struct error *e);

#endif
