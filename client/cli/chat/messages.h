/* The messages of a conversation: a JSON array of objects with "role" and "content", as
 * `moed run --messages` and /save have it in a file. */
#ifndef MOED_CLI_CHAT_MESSAGES_H
#define MOED_CLI_CHAT_MESSAGES_H

#include "base/error.h"
#include "base/strbuf.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

/* Reads a list of messages, or an object with "messages". *out: a new reference. */
enum error_code messages_load(const char *path, json_t **out, struct error *e);
/* Writes the list; the file is replaced whole or not at all. Refuses to replace a file that holds
 * no messages. */
enum error_code messages_save(const json_t *messages, const char *path, struct error *e);

/* The text of the system message in front; NULL: there is none. */
const char *messages_system(const json_t *messages);
/* Puts a system message in front, or replaces it; an empty text removes it. False: the text is not
 * UTF-8, or no memory. */
bool messages_set_system(json_t *messages, const char *text);

/* False: the text is not UTF-8, or no memory. */
bool messages_add(json_t *messages, const char *role, const char *text, size_t len);
void messages_drop_last(json_t *messages);
/* Removes all but the system message. */
void messages_clear(json_t *messages);
/* Removes what follows the user's last message. False: there is no such message. */
bool messages_drop_answer(json_t *messages);
/* A turn is a message of the user and what follows it; the first one has what stands before it, but
 * for the system message. Remove the last turn; the n oldest. The number of turns removed. */
size_t messages_drop_last_turn(json_t *messages);
size_t messages_drop_oldest_turns(json_t *messages, size_t n);
/* How many messages the user has written. */
size_t messages_questions(const json_t *messages);

/* Appends a text file: UTF-8 without NUL bytes, at most 4 MiB. "~/" at the start of a path is the
 * home directory, here and above. */
enum error_code messages_read_text(const char *path, struct strbuf *out, struct error *e);

#endif
