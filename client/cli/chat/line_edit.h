/* The lines of line_reader.h with libedit. Without it line_edit_new returns NULL. */
#ifndef MOED_CLI_CHAT_LINE_EDIT_H
#define MOED_CLI_CHAT_LINE_EDIT_H

#include "client/cli/chat/line_reader.h"

struct line_edit;

struct line_edit *line_edit_new(const char *history_file);
void line_edit_free(struct line_edit *l); /* takes NULL */
enum line_end line_edit_next(struct line_edit *l, const char *prompt, bool commands,
                             struct strbuf *out);

#endif
