/* What counters counted over the last seconds: a thread of its own takes their values once a second, so those who count pay
 * nothing, and whoever asks gets the difference to a few seconds ago at once. */
#ifndef MOED_METRICS_RECENT_H
#define MOED_METRICS_RECENT_H

#include "base/error.h"

#include <stdint.h>

enum { RECENT_SECONDS = 5, RECENT_MOST = 16, RECENT_REPORT_SECONDS = 60 };

struct recent;

/* Fills values[], numbers that never fall; called by that thread and by recent_read's callers. */
typedef void recent_sample(void *arg, uint64_t values[RECENT_MOST]);

/* Every RECENT_REPORT_SECONDS, and at the end: by how much each has grown since the report before, in window_ns. Called by that
 * thread, and by recent_free. */
typedef void recent_report(void *arg, const uint64_t growth[RECENT_MOST], uint64_t window_ns);

/* thread: at most 15 characters, borrowed. report: NULL: nobody wants one. */
enum error_code recent_new(const char *thread, recent_sample *sample, recent_report *report, void *arg,
                           struct recent **out, struct error *e);
void recent_free(struct recent *r); /* takes NULL */
/* By how much each has grown; returns the nanoseconds in which, those since recent_new where these are fewer. */
uint64_t recent_read(struct recent *r, uint64_t growth[RECENT_MOST]);

#endif
