/* The figures of a deployment, as JSON, for people who watch. A figure that the deployment does not
 * have, or that had no events in the last seconds, is null. Any thread; waits for the processes. */
#ifndef MOED_HTTP_FIGURES_H
#define MOED_HTTP_FIGURES_H

#include "base/strbuf.h"

void figures_json(const char *run, struct strbuf *out);

#endif
