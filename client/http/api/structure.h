/* What binds an answer: a form that the request demands (a JSON schema, a grammar, ...), or the
 * form of the calls of tools. The worker enforces it (docs/structured-output.md). */
#ifndef MOED_HTTP_STRUCTURE_H
#define MOED_HTTP_STRUCTURE_H

#include "client/http/api/ask.h"
#include "client/http/model/chat_render.h"

#include "toolcall/answer_grammar.h"

struct structure {
    struct moed_grammar grammar; /* kind MOED_GRAMMAR_NONE: nothing is bound */
    struct answer_grammar answer;
};

/* chat: of a conversation; NULL: a text's continuation. Reasoning is never bound: the form follows
 * it. MOED_ERROR_UNSUPPORTED names a schema that the model's calls cannot express. */
enum moed_code structure_init(struct structure *s, const struct ask *ask,
                              const struct chat_rendered *chat, struct moed_error *error);
/* What binds the rest of an answer whose reasoning was ended; see answer_grammar_build_behind. */
enum moed_code structure_init_behind(struct structure *s, const struct ask *ask,
                                     const struct chat_rendered *chat, struct moed_error *error);
void structure_fini(struct structure *s);

/* {"type": "text" | "json_object" | "json_schema", ...}: OpenAI's, and Responses' and Anthropic's,
 * which have the schema at the top. */
bool take_response_format(struct ask *ask, json_t *value, struct problem *p);
/* Ollama's: "json" or a schema. */
bool take_json_format(struct ask *ask, json_t *value, struct problem *p);
/* Other servers' parameters: json_schema, grammar, guided_*, structured_outputs. */
extern const struct parameter structure_parameters[];

#endif
