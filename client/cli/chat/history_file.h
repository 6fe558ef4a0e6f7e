/* The file of typed lines, in libedit's format. Several programs may use it at once: each appends
 * its lines, under a lock. Without libedit there is none. */
#ifndef MOED_CLI_CHAT_HISTORY_FILE_H
#define MOED_CLI_CHAT_HISTORY_FILE_H

#ifdef MOED_HAS_EDIT

#include <histedit.h>

/* Adds the file's lines to `list`, of which `most` is the size. A file with more lines is
 * replaced by one with the last; a file that libedit cannot read gets the name with ".bad" behind
 * it. From a file that cannot be written the lines are only read. */
void history_file_load(const char *path, History *list, int most);
/* Appends a line. */
void history_file_append(const char *path, const char *line);

#endif

#endif
