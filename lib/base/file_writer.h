/* Writing a file completely or not at all: the bytes go to PATH.tmp.moed-XXXXXXXX, which is renamed
 * to PATH when it is finished. The eight digits differ for each writer: where several write one
 * PATH, the one that finishes last has its file there, whole. Opening one removes unfinished files
 * of the same PATH that killed processes left. Where PATH is a symbolic link, its target is
 * written.
 *
 * The first failure is kept, and every later call returns it. */
#ifndef MOED_BASE_FILE_WRITER_H
#define MOED_BASE_FILE_WRITER_H

#include "base/error.h"
#include "base/strbuf.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct file_writer;

#define FILE_WRITER_MODE    0666 /* as far as the umask lets */
#define FILE_WRITER_PRIVATE 0600 /* for its owner only */

/* mode: of the file, less the umask. ERROR_IO where PATH exists and is not a regular file: only
 * regular files are replaced. */
enum error_code file_writer_open(const char *path, mode_t mode, struct file_writer **out,
                                 struct error *e);
enum error_code file_writer_write(struct file_writer *w, const void *data, size_t bytes,
                                  struct error *e);
/* Write zeros up to the next multiple of `multiple`, a power of two. */
enum error_code file_writer_pad(struct file_writer *w, size_t multiple, struct error *e);
/* Writes all bytes so far to the system, and a tail after them. Later bytes go over the tail. */
enum error_code file_writer_keep(struct file_writer *w, const void *tail, size_t bytes,
                                 struct error *e);
/* After a failure: cuts the file behind the last kept tail and forgets the failure; only
 * file_writer_finish may follow. False: nothing was kept, or it failed again. */
bool file_writer_return(struct file_writer *w);
const char *file_writer_path(const struct file_writer *w);
/* Frees w. Where it fails no file is left. */
enum error_code file_writer_finish(struct file_writer *w, struct error *e);
void file_writer_abandon(struct file_writer *w); /* takes NULL; no file is left */

/* A file of these bytes. */
enum error_code file_write(const char *path, const void *data, size_t bytes, struct error *e);
/* A file of this text; a failed one is ERROR_MEMORY. */
enum error_code file_write_text(const char *path, const struct strbuf *text, struct error *e);

#endif
