/* The messages of the stand-in worker (stand_in_worker.h) to a client. The lock is held. */
#ifndef MOED_TESTS_STAND_IN_SEND_H
#define MOED_TESTS_STAND_IN_SEND_H

#include "tests/unit/stand_in_worker.h"

#include "control.pb-c.h"

void stand_in_send(struct peer *p, uint64_t id, Moed__V1__FromWorker *body);
/* first: of this worker; cached: of its prompt's 7 tokens */
void stand_in_send_tokens(struct peer *p, uint64_t id, uint32_t number, bool first,
                          uint32_t cached);
void stand_in_send_row(struct peer *p, const struct stand_in_job *j);
/* These return the number of tokens in the message. */
uint32_t stand_in_send_logprobs(struct peer *p, const struct stand_in_job *j);
uint32_t stand_in_send_routing(struct peer *p, struct stand_in_job *j);
uint32_t stand_in_send_text(struct peer *p, const struct stand_in_job *j);

void stand_in_send_done(struct peer *p, uint64_t id, Moed__V1__Done__Reason reason,
                        uint32_t generated);
void stand_in_send_progress(struct peer *p, uint64_t id);
void stand_in_send_probable(struct peer *p, uint64_t id, const Moed__V1__Generate *g,
                            unsigned wrong);
void stand_in_send_error_text(struct peer *p, uint64_t id, uint32_t code, bool retry,
                              const char *text);
void stand_in_send_error(struct peer *p, uint64_t id, uint32_t code, bool retry);

#endif
