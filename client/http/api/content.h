/* A message's content as text. The models read text only, so what else a request has is refused in
 * the question, and named in what was there before: an image in the history must not end the
 * conversation. */
#ifndef MOED_HTTP_CONTENT_H
#define MOED_HTTP_CONTENT_H

#include "client/http/server/problem.h"

#include "base/strbuf.h"

#include <jansson.h>

enum content_of {
    CONTENT_QUESTION, /* the newest turn of the user: a part that is no text is refused */
    CONTENT_HISTORY,  /* system messages, results, earlier turns: a note replaces such a part */
    CONTENT_ANSWER,   /* the assistant's: the same, and the parts are one text, as it wrote it */
};

/* The object's member "type" is this one. */
bool content_has_type(const json_t *object, const char *type);

/* newest: it is content_last_user_turn's. */
enum content_of content_of_turn(const char *role, bool newest);
/* The index of the last message with the role user; SIZE_MAX: none. */
size_t content_last_user_turn(const json_t *messages);

/* The text of a content: a string, an array of parts {"type":"text","text":...}, or null, which is
 * "". Newlines separate the parts, except those of an answer. Returns a new string; NULL: *p is
 * set. where: for the message of an error. */
json_t *content_text(const json_t *content, enum content_of of, const char *where,
                     struct problem *p);
/* Appends what an answer's content has of reasoning: parts of the types thinking and reasoning, as
 * clients send them back. The other functions leave such parts out of an answer's text. */
void content_add_reasoning(struct strbuf *text, const json_t *content);
/* Appends one part, or one of Anthropic's blocks, to the text of those before it. False: *p is set.
 */
bool content_add_part(struct strbuf *text, const json_t *part, enum content_of of,
                      const char *where, struct problem *p);
/* Appends a note in place of what the model cannot read; an unknown type by its name. */
void content_add_note(struct strbuf *text, const char *type, enum content_of of);

#endif
