/* A file that is there whole or not at all: its bytes stream to PATH.tmp, which becomes PATH when it is finished.
 *
 * The first failure is kept and told by every later call. */
#ifndef MOED_BASE_FILE_WRITER_H
#define MOED_BASE_FILE_WRITER_H

#include "base/error.h"

#include <stddef.h>
#include <stdint.h>

struct file_writer;

/* ERROR_IO where PATH is there and is no regular file: nothing else is ever replaced. */
enum error_code file_writer_open(const char *path, struct file_writer **out, struct error *e);
enum error_code file_writer_write(struct file_writer *w, const void *data, size_t bytes,
                                  struct error *e);
/* Zeros up to the next multiple of a power of two. */
enum error_code file_writer_pad(struct file_writer *w, size_t multiple, struct error *e);
const char *file_writer_path(const struct file_writer *w);
/* Frees it; where it fails nothing is left. */
enum error_code file_writer_finish(struct file_writer *w, struct error *e);
void file_writer_abandon(struct file_writer *w); /* takes NULL; nothing is left */

#endif
