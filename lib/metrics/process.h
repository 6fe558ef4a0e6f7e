/* The metrics that every process has: its resources from /proc, and its build. Internal to
 * lib/metrics. */
#ifndef MOED_METRICS_PROCESS_H
#define MOED_METRICS_PROCESS_H

#include "base/strbuf.h"

/* Appends process_* and moed_build_info. Leaves out what /proc does not give. */
void process_render(struct strbuf *out);

#endif
