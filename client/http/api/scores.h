/* Log-probabilities of an answer's tokens, and of its prompt's where the answer repeats that, in
 * the forms of the APIs. */
#ifndef MOED_HTTP_SCORES_H
#define MOED_HTTP_SCORES_H

#include "client/http/model/vocabulary.h"
#include "client/include/moed.h"

#include "base/strbuf.h"

/* The form in which an API returns them: scores_json, scores_id_json, scores_columns_json. */
enum scores_form { SCORES_ROWS, SCORES_ID_ROWS, SCORES_COLUMNS };
enum { SCORES_TEXTS = 4 }; /* columns */

struct scores {
    uint32_t *tokens;
    float *values;        /* natural logarithms; NAN: of a text's first token, which has none */
    uint32_t *top_tokens; /* [count][top], the most probable first */
    float *top_values;
    /* Of scores_columns_json: the characters of the text before each token. For the other forms an
     * answer has its bytes there. */
    uint32_t *offsets;
    size_t count, capacity;
    uint32_t top;
    bool as_ids;    /* a token's name is "token_id:N", as vLLM has it */
    size_t written; /* of a stream: how many the client has */
    /* scores_keep: the JSON text of the first kept_to. */
    struct strbuf kept[SCORES_TEXTS];
    size_t kept_to;
    bool failed; /* no memory */
};

void scores_fini(struct scores *s);
/* values NULL: the tokens have none. top_*: [n][s->top]; NULL where s->top is 0 or values NULL. */
void scores_add(struct scores *s, const uint32_t *tokens, size_t n, const float *values,
                const uint32_t *top_tokens, const float *top_values);
/* Adds those of `from` in [begin, end); both have the same `top`. */
void scores_append(struct scores *s, const struct scores *from, size_t begin, size_t end);
/* The offsets of the last n that were added, before they are kept; otherwise they are 0. */
void scores_place(struct scores *s, const uint32_t *offsets, size_t n);

/* Formats the scores before `to` in advance; more may follow. The function of that form, called
 * from 0, then copies the text. All calls use one form. s->failed where there is no memory. */
void scores_keep(struct scores *s, size_t to, const struct vocabulary *v, enum scores_form form);

/* [{"token","logprob","bytes","top_logprobs":[...]}, ...], as OpenAI's chat, Responses and Ollama
 * have it; with "id" before "token", as llama-server has it. */
void scores_json(const struct scores *s, size_t from, size_t to, const struct vocabulary *v,
                 struct strbuf *out);
void scores_id_json(const struct scores *s, size_t from, size_t to, const struct vocabulary *v,
                    struct strbuf *out);
/* The tokens: [1,2,3] */
void scores_tokens_json(const struct scores *s, size_t from, size_t to, struct strbuf *out);
/* {"tokens","token_logprobs","top_logprobs","text_offset"}, as OpenAI's text completions have it.
 */
void scores_columns_json(const struct scores *s, size_t from, size_t to, const struct vocabulary *v,
                         struct strbuf *out);

#endif
