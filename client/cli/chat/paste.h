/* Bracketed paste: between PASTE_ON and PASTE_OFF a terminal puts what is pasted between two marks,
 * so its newlines and tabs are told from those that a person types. */
#ifndef MOED_CLI_CHAT_PASTE_H
#define MOED_CLI_CHAT_PASTE_H

#include "base/strbuf.h"

#include <stdbool.h>
#include <stddef.h>

/* To the terminal. */
#define PASTE_ON  "\033[?2004h"
#define PASTE_OFF "\033[?2004l"
/* From the terminal. */
#define PASTE_BEGIN "\033[200~"
#define PASTE_END   "\033[201~"

/* Looks for PASTE_END in the bytes that followed PASTE_BEGIN. `from`: how many of them had come
 * before, without it. True: it has come; the text ends before it, and the bytes that follow it are
 * appended to *behind. */
bool paste_ends(struct strbuf *text, size_t from, struct strbuf *behind);

/* Makes text of the pasted bytes: CR and CR LF, which terminals send for newlines, become newlines;
 * control characters but newline and tab are removed; stray bytes become U+FFFD. */
void paste_clean(struct strbuf *text);

#endif
