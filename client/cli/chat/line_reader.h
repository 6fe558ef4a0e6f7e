/* Lines that a person types: with editing and history where libedit was there at build time and the
 * terminal can move its cursor, else as the terminal itself edits them. One thread, one reader. */
#ifndef MOED_CLI_CHAT_LINE_READER_H
#define MOED_CLI_CHAT_LINE_READER_H

#include "base/strbuf.h"

#include <stdbool.h>

enum line_end {
    LINE_READ,
    LINE_INTERRUPTED, /* Ctrl-C; `interrupts` is set (client/cli/interrupt.h) */
    LINE_OVER,        /* the end of the input */
};

struct line_reader;

/* history_file: read now, and each line is appended; NULL: none. NULL: no memory. */
struct line_reader *line_reader_new(const char *history_file);
void line_reader_free(struct line_reader *r); /* takes NULL */

/* Sets *out to the next line without its newline. commands: it may be a command, so that Tab
 * completes the file name of one. What is pasted may have newlines, which are part of the line. */
enum line_end line_reader_next(struct line_reader *r, const char *prompt, bool commands,
                               struct strbuf *out);

#endif
