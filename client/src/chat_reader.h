/* libmoed: the parts of a chat's answer, out of its text. A request owns its reader; the one thread
 * that consumes the request uses it. */
#ifndef MOED_CLIENT_CHAT_READER_H
#define MOED_CLIENT_CHAT_READER_H

#include "client/chat/chat_model.h"
#include "client/src/chat_settings.h"

#include <jansson.h>

struct chat_reader;

/* For an answer to the prompt `from`. Takes a reference to the settings. NULL: no memory. */
struct chat_reader *chat_reader_new(struct chat_settings *settings,
                                    const struct chat_rendered *from);
void chat_reader_free(struct chat_reader *r); /* takes NULL */

/* Sets event->parts, of an event with tokens or of the end, which may come again; they are valid
 * until the next call. Of the event in which the answer is over only the tokens up to there are
 * left. False: no memory. */
bool chat_reader_take(struct chat_reader *r, struct moed_event *event);
/* Of one call no more is needed: the request can be finished. */
bool chat_reader_is_over(const struct chat_reader *r);
/* How many tokens of earlier events were behind the one at which the answer was over. */
size_t chat_reader_surplus(const struct chat_reader *r);
uint32_t chat_reader_reasoning_tokens(const struct chat_reader *r);

/* The answer so far as an assistant's message in OpenAI's form; owned by the caller. Where it goes
 * on with reasoning that is in a message's content, its reasoning is in its content too. NULL: no
 * memory. */
json_t *chat_reader_message(const struct chat_reader *r);
/* Where the prompt ended. */
enum chat_inside chat_reader_continues(const struct chat_reader *r);

#endif
