/* The log-probabilities of an answer's tokens, and of the prompt's where the answer repeats it.
 *
 * The first choice of a prompt has it scored for all. A prompt that begins as an earlier one of the
 * request has that beginning's scores from there: the worker computes the rest alone, from what the
 * KV cache has of the beginning. Scores of the rest may come first, and are read at once: unread
 * events use up the window of the session, which all its requests share. */
#ifndef MOED_HTTP_ANSWER_SCORES_H
#define MOED_HTTP_ANSWER_SCORES_H

#include "client/http/api/answer_state.h"

/* On the deployment's thread, once the prompts are ids, for each choice in order. */
enum moed_code answer_start_scoring(struct answer *a, struct choice *c, struct moed_error *error);
/* Adds scores [from, from + n) of an event with tokens of the answer, if it wants them. */
void answer_add_scores(struct choice *c, const struct moed_event *e, size_t from, size_t n);
/* Adds that of the token that ended the answer, if the API has it. */
void answer_add_end_score(struct choice *c, const struct moed_event *e);
/* Adds an event's scores of the prompt to all choices of it; keeps them in c->early where those of
 * the shared beginning are missing. c: the first choice of the prompt. */
void answer_add_prompt_scores(struct choice *c, const struct moed_event *e);
/* Gives the choices of c's prompt the scores of the beginning that it shares, once they are there.
 * Then those in c->early follow. True: now. c: the first choice of the prompt. */
bool answer_take_shared(struct choice *c);
/* Writes what may be written before the end: they may be megabytes. */
void answer_keep_scores(struct choice *c);
bool answer_keeps_tokens(const struct choice *c);

#endif
