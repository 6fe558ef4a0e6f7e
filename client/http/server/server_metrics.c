/* The server's metrics; see server_metrics.h. */
#include "client/http/server/server_metrics.h"

#include <stdio.h>

/* As vLLM's request latencies, so that a dashboard for the one reads the other. */
static const double duration_bounds[] = {0.3, 0.5, 0.8, 1,  1.5, 2,   2.5, 5,   10,  15,
                                         20,  30,  40,  50, 60,  120, 240, 480, 960, 1920};
#define N_DURATION_BOUNDS (sizeof duration_bounds / sizeof *duration_bounds)

void server_metrics_register(struct server_metrics *m, struct metrics *r)
{
    static const char *const classes[] = {
        "code=\"none\"", "code=\"1xx\"", "code=\"2xx\"",
        "code=\"3xx\"",  "code=\"4xx\"", "code=\"5xx\"",
    };
    for (unsigned i = 0; i < sizeof classes / sizeof *classes; i++)
        m->requests[i] = metrics_counter(r, "moed_http_requests_total", classes[i], 1,
                                         "HTTP requests, but probes, by the class of their status");
    m->probes = metrics_counter(r, "moed_http_probes_total", NULL, 1,
                                "answered requests for /health, /livez, /readyz and /metrics");
    m->left = metrics_counter(r, "moed_http_disconnects_total", NULL, 1,
                              "clients that left before the end of the reply");
    m->slow_readers = metrics_counter(r, "moed_http_slow_readers_total", NULL, 1,
                                      "streams given up because the client did not read");
    m->late = metrics_counter(r, "moed_http_late_connections_total", NULL, 1,
                              "connections closed because a request did not come in time");
    m->refused_keys = metrics_counter(r, "moed_http_refused_keys_total", NULL, 1,
                                      "requests without a valid API key");
    m->duration = metrics_histogram(r, "moed_http_request_duration_seconds", NULL, duration_bounds,
                                    N_DURATION_BOUNDS,
                                    "time from headers to the end of the reply, of all but probes");
    m->connections = metrics_gauge(r, "moed_http_connections", NULL, "open connections");
    m->streams = metrics_gauge(r, "moed_http_streams", NULL, "replies that are being streamed");
}
