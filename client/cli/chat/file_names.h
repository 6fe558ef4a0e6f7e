/* Completion of file names at a prompt. */
#ifndef MOED_CLI_CHAT_FILE_NAMES_H
#define MOED_CLI_CHAT_FILE_NAMES_H

#include "base/strbuf.h"

#include <stddef.h>

/* Finds the files whose names continue the path `typed`, which is taken as it stands: blanks are
 * part of it, and "~/" at its start is the home directory. Appends to *more what all of them have
 * behind it, and "/" where the only one is a directory; to *names the names, one a line, at most
 * 200. Returns how many there are. Names with control characters, and names that are not UTF-8, do
 * not count, nor those that begin with a dot which was not typed. */
size_t file_names_complete(const char *typed, struct strbuf *more, struct strbuf *names);

#endif
