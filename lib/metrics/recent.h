/* What counters counted over the last seconds: a thread of its own takes their values once a second, so those who count pay
 * nothing, and whoever asks gets the difference to a few seconds ago at once. */
#ifndef MOED_METRICS_RECENT_H
#define MOED_METRICS_RECENT_H

#include "base/error.h"

#include <stdint.h>

enum { RECENT_SECONDS = 5, RECENT_MOST = 8 };

struct recent;

/* Fills values[], numbers that never fall; called by that thread and by recent_read's callers. */
typedef void recent_sample(void *arg, uint64_t values[RECENT_MOST]);

/* thread: at most 15 characters, borrowed. */
enum error_code recent_new(const char *thread, recent_sample *sample, void *arg,
                           struct recent **out, struct error *e);
void recent_free(struct recent *r); /* takes NULL */
/* By how much each has grown; returns the nanoseconds in which, those since recent_new where these are fewer. */
uint64_t recent_read(struct recent *r, uint64_t growth[RECENT_MOST]);

#endif
