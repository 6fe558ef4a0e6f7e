/* What every process tells about itself: resources from /proc, and the build. Internal to
 * lib/metrics. */
#ifndef MOED_METRICS_PROCESS_H
#define MOED_METRICS_PROCESS_H

#include "base/strbuf.h"

/* Append process_* and moed_build_info; what /proc does not give is left out. */
void process_render(struct strbuf *out);

#endif
