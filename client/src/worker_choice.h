/* libmoed: the workers of a deployment, and which of them should compute a prompt.
 *
 * A request goes to the worker that computed most of its prompt for this session earlier, unless
 * that one has clearly more to do, else to the one with least to do. memd knows what all workers
 * have to do. All workers have all conversations, so a choice costs at most time.
 *
 * Threads: any. No call that can wait is made under its lock, and no other lock is taken under it.
 */
#ifndef MOED_CLIENT_WORKER_CHOICE_H
#define MOED_CLIENT_WORKER_CHOICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define WORKER_NAME_BYTES 16

struct worker_choice;

/* NULL: no memory. */
struct worker_choice *worker_choice_new(void);
void worker_choice_free(struct worker_choice *c); /* takes NULL */

/* Asks memd, unless it was asked a moment ago. dir: the place of the workers (daemon/run_dir.h);
 * empty: not known yet, nothing is asked. */
void worker_choice_refresh(struct worker_choice *c, const char *dir);

/* The name of the worker that a session should attach to now. Asks memd in any case. */
void worker_choice_for_session(struct worker_choice *c, const char *dir,
                               char process[WORKER_NAME_BYTES]);
/* A request's prompt: its bytes, or its tokens'; NULL: it has none. A worker has computed it only
 * for requests of the same cache salt. */
struct choice_prompt {
    const void *data;
    size_t bytes;
    uint64_t salt; /* 0: none */
};
/* The worker for a prompt, which is counted as that worker's; of equal ones `preferred`. Empty:
 * there is none. */
void worker_choice_for_prompt(struct worker_choice *c, const char *preferred,
                              const struct choice_prompt *prompt, char process[WORKER_NAME_BYTES]);

/* The worker did not answer: for some seconds it is chosen for no prompt. */
void worker_choice_avoid(struct worker_choice *c, const char *process);

/* Whether the worker takes requests. */
bool worker_choice_knows(struct worker_choice *c, const char *process);
/* Whether it is the only one that does. */
bool worker_choice_is_only(struct worker_choice *c, const char *process);

#endif
