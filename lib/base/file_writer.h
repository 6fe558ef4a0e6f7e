/* Writing a file completely or not at all: the bytes go to PATH.tmp, which is renamed to PATH when
 * it is finished.
 *
 * The first failure is kept, and every later call returns it. */
#ifndef MOED_BASE_FILE_WRITER_H
#define MOED_BASE_FILE_WRITER_H

#include "base/error.h"
#include "base/strbuf.h"

#include <stddef.h>
#include <stdint.h>

struct file_writer;

/* ERROR_IO where PATH exists and is not a regular file: only regular files are replaced. */
enum error_code file_writer_open(const char *path, struct file_writer **out, struct error *e);
enum error_code file_writer_write(struct file_writer *w, const void *data, size_t bytes,
                                  struct error *e);
/* Write zeros up to the next multiple of `multiple`, a power of two. */
enum error_code file_writer_pad(struct file_writer *w, size_t multiple, struct error *e);
const char *file_writer_path(const struct file_writer *w);
/* Frees w. Where it fails no file is left. */
enum error_code file_writer_finish(struct file_writer *w, struct error *e);
void file_writer_abandon(struct file_writer *w); /* takes NULL; no file is left */

/* A file of these bytes. */
enum error_code file_write(const char *path, const void *data, size_t bytes, struct error *e);
/* A file of this text; a failed one is ERROR_MEMORY. */
enum error_code file_write_text(const char *path, const struct strbuf *text, struct error *e);

#endif
