/* The growth of counters over the last seconds. A thread samples them once a second, so counting
 * costs nothing more, and a reader gets the difference to some seconds ago at once. */
#ifndef MOED_METRICS_RECENT_H
#define MOED_METRICS_RECENT_H

#include "base/error.h"

#include <stdint.h>

enum { RECENT_SECONDS = 5, RECENT_MOST = 17, RECENT_REPORT_SECONDS = 60 };

struct recent;

/* Fills values[], which never fall. Called by that thread and by callers of recent_read. */
typedef void recent_sample(void *arg, uint64_t values[RECENT_MOST]);

/* growth: of each value since the previous report, window_ns ago. Called every
 * RECENT_REPORT_SECONDS by that thread, and at the end by recent_free. */
typedef void recent_report(void *arg, const uint64_t growth[RECENT_MOST], uint64_t window_ns);

/* thread: its name, at most 15 characters, borrowed. report: may be NULL. */
enum error_code recent_new(const char *thread, recent_sample *sample, recent_report *report,
                           void *arg, struct recent **out, struct error *e);
void recent_free(struct recent *r); /* takes NULL */
/* growth: of each value in the last RECENT_SECONDS, or since recent_new where that is shorter.
 * Returns that time in nanoseconds. */
uint64_t recent_read(struct recent *r, uint64_t growth[RECENT_MOST]);

#endif
