/* What llama-server's answers say of time: `timings` and `prompt_progress`. */
#ifndef MOED_HTTP_TIMINGS_H
#define MOED_HTTP_TIMINGS_H

#include "client/http/api/answer_state.h"

/* Appends ,"timings":{...} of a choice. Before it is done: of its tokens so far, without what the
 * worker measures. */
void timings_json(const struct choice *c, struct strbuf *out);
/* The same, where the request asks for it in each chunk (timings_per_token). */
void timings_chunk_json(const struct choice *c, struct strbuf *out);
/* Appends ,"prompt_progress":{...}. */
void timings_progress_json(const struct moed_progress *progress, struct strbuf *out);

bool take_timings_per_token(struct ask *ask, json_t *value, struct problem *p);
bool take_return_progress(struct ask *ask, json_t *value, struct problem *p);

#endif
