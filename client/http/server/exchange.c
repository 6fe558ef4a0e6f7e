/* Exchanges; see exchange.h and connection.h. */
#include "client/http/server/exchange.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/strbuf.h"
#include "client/http/server/bodies.h"
#include "client/http/server/connection.h"
#include "client/http/server/framing.h"
#include "client/http/server/origin.h"

#include <microhttpd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#define COMPACT_BYTES 65536
#define GUESS_BYTES   128
/* Headers of replies that client libraries read in a browser, too. */
#define SHOWN_HEADERS "x-request-id, request-id, retry-after, x-should-retry, x-moed-ignored"

struct exchange *exchange_new(struct connection *c)
{
    struct exchange *x = calloc(1, sizeof *x); /* its API: OpenAI's, until the path is known */
    if (!x)
        return NULL;
    x->server = c->server;
    x->connection = c;
    x->mhd = c->mhd;
    strbuf_init(&x->body);
    strbuf_init(&x->out);
    x->log.begin_ns = x->active_ns = clock_ns();
    x->log.outcome = "ok";
    access_new_id(x->log.id);
    c->exchange = x;
    c->server->exchanges++;
    return x;
}

static void count(struct exchange *x)
{
    struct server_metrics *m = &x->server->metrics;
    unsigned class = (unsigned)x->log.status / 100;
    if (access_is_probe(&x->log)) {
        counter_add(m->probes, 1);
    } else {
        counter_add(m->requests[class < 6 ? class : 0], 1);
        histogram_observe(m->duration, (double)(x->log.end_ns - x->log.begin_ns) * 1e-9);
    }
    x->server->exchanges--;
    if (x->queued && x->state == EXCHANGE_STREAMING)
        gauge_set(m->streams, (int64_t)--x->server->streams);
}

void exchange_free(struct exchange *x)
{
    x->log.end_ns = clock_ns();
    count(x);
    if (x->server->settings->log_bodies && x->body.len) {
        x->log.body = x->body.data;
        x->log.body_bytes = x->body.len;
    }
    if (x->log.method)
        access_write(&x->log, x->server->settings->log_json);
    for (size_t i = 0; i < x->n_headers; i++)
        free(x->headers[i].value);
    bodies_drop(x);
    strbuf_fini(&x->out);
    free(x);
}

/* ---- Admission ---- */

const char *exchange_header(const struct exchange *x, const char *name)
{
    return MHD_lookup_connection_value(x->mhd, MHD_HEADER_KIND, name);
}

const char *exchange_query(const struct exchange *x, const char *name)
{
    return MHD_lookup_connection_value(x->mhd, MHD_GET_ARGUMENT_KIND, name);
}

bool exchange_wants_body(const struct exchange *x)
{
    return strcmp(x->log.method, "HEAD") != 0;
}

static enum MHD_Result take_field(void *arg, enum MHD_ValueKind kind, const char *name,
                                  const char *value)
{
    framing_field(arg, name, value ? value : "");
    return MHD_YES;
}

/* Methods are literals in the log: a request's own text is gone by then. */
static const char *known_method(const char *method)
{
    static const char *const known[] = {"GET", "POST", "HEAD", "OPTIONS", "PUT", "DELETE", "PATCH"};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcmp(method, known[i]) == 0)
            return known[i];
    return "OTHER";
}

/* Several lines are one list (RFC 9110, section 5.3): HAProxy adds its hop in a line of its own. */
static enum MHD_Result add_hops(void *arg, enum MHD_ValueKind kind, const char *name,
                                const char *value)
{
    struct strbuf *all = arg;
    if (strcasecmp(name, "X-Forwarded-For") == 0)
        strbuf_printf(all, "%s%s", all->len ? "," : "", value ? value : "");
    return MHD_YES;
}

/* The client: for the log, and for fairness among those without keys. */
static void find_client(struct exchange *x)
{
    const struct trusted_proxies *proxies = &x->server->settings->proxies;
    const char *id = exchange_header(x, "X-Request-Id");
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(x->mhd, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
    struct client_address peer = client_address_of(info ? info->client_addr : NULL);
    struct strbuf hops;
    strbuf_init(&hops);
    if (client_address_is_trusted(&peer, proxies))
        MHD_get_connection_values(x->mhd, MHD_HEADER_KIND, add_hops, &hops);
    x->address = client_address_find(&peer, proxies, hops.failed ? NULL : hops.data);
    strbuf_fini(&hops);
    client_address_text(&x->address, x->log.client);
    if (id)
        access_take_request_id(id, x->log.request_id);
}

static bool path_fits(const struct route *r, const char *url)
{
    size_t n = strlen(r->path);
    if (n > 1 && r->path[n - 1] == '/')
        return strncmp(url, r->path, n) == 0 && url[n];
    return strcmp(url, r->path) == 0;
}

/* HEAD is a GET whose body libmicrohttpd leaves out. */
static bool method_fits(const struct route *r, const char *method)
{
    return !r->method || strcmp(method, r->method) == 0 ||
           (strcmp(method, "HEAD") == 0 && strcmp(r->method, "GET") == 0);
}

/* What a target with a slip in its base URL stands for: without "/v1", or with two of them, with
 * empty segments or a slash at its end. */
static void mend_target(const char *url, char *out, size_t bytes)
{
    size_t n = 0;
    for (; *url && n + 1 < bytes; url++)
        if (*url != '/' || (url[1] != '/' && url[1]))
            out[n++] = *url;
    out[n] = '\0';
    while (strncmp(out, "/v1/v1/", 7) == 0 || strncmp(out, "/v1/api/", 8) == 0)
        memmove(out, out + 3, strlen(out + 3) + 1);
}

/* A route with a handler that this target was meant for, its path in `path`; NULL: none. Those for
 * any method only say what is not there. */
static const struct route *guess_route(const struct route *routes, const char *url,
                                       char path[GUESS_BYTES])
{
    char mended[GUESS_BYTES - sizeof "/v1"];
    mend_target(url, mended, sizeof mended);
    for (int v1 = 0; v1 < 2; v1++) {
        snprintf(path, GUESS_BYTES, "%s%s", v1 ? "/v1" : "", mended);
        for (const struct route *r = routes; r->path; r++)
            if (r->handle && r->method && path_fits(r, path))
                return r;
    }
    return NULL;
}

enum http_api exchange_api(const struct route *routes, const char *url)
{
    char path[GUESS_BYTES];
    for (const struct route *r = routes; r->path; r++)
        if (path_fits(r, url))
            return r->api;
    const struct route *meant = guess_route(routes, url, path);
    return meant ? meant->api : HTTP_API_OPENAI;
}

static void fill_unknown(const struct exchange *x, const char *url, struct problem *p)
{
    char path[GUESS_BYTES];
    if (guess_route(x->server->routes, url, path))
        problem_fill(p, 404,
                     "there is no %.100s here; did you mean %s? Check the client's base URL", url,
                     path);
    else
        problem_fill(p, 404, "there is no %.100s here", url);
    p->code = "unknown_url";
}

static void find_route(struct exchange *x, const char *url, struct problem *p)
{
    const struct route *other = NULL;
    x->api = exchange_api(x->server->routes, url);
    for (const struct route *r = x->server->routes; r->path; r++) {
        if (!r->handle || !path_fits(r, url))
            continue;
        other = r;
        if (!method_fits(r, x->log.method))
            continue;
        size_t n = strlen(r->path);
        x->route = r;
        if (n > 1 && r->path[n - 1] == '/')
            snprintf(x->rest, sizeof x->rest, "%s", url + n);
        return;
    }
    x->route = other; /* its rules for keys */
    if (other) {
        problem_fill(p, 405, "%.100s takes %s, not %s", url, other->method, x->log.method);
        exchange_add_header(x, "Allow", other->method);
    } else {
        fill_unknown(x, url, p);
    }
}

/* See framing.h. Later versions of libmicrohttpd refuse both themselves. */
static bool library_folds(void)
{
    unsigned major = 0, minor = 0, patch = 0;
    sscanf(MHD_get_version(), "%u.%u.%u", &major, &minor, &patch);
    return major == 0 && minor <= 9 && patch < 77;
}

static bool check_framing(struct exchange *x, const char *method, const char *version,
                          struct problem *p)
{
    struct framing f = {0};
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(x->mhd, MHD_CONNECTION_INFO_REQUEST_HEADER_SIZE);
    if (info && library_folds()) {
        framing_line(&f, method, x->connection->target.begin, x->connection->target.end, version);
        framing_at(&f, version + strlen(version));
    }
    MHD_get_connection_values(x->mhd, MHD_HEADER_KIND, take_field, &f);
    /* the method is where the head begins */
    const char *fault = framing_end(&f, version, method + (info ? info->header_size : 0));
    if (fault)
        return problem_set(p, 400, "the request is ambiguous: %s", fault);
    uint64_t limit = x->server->settings->body_bytes;
    if (f.has_length && f.length > limit)
        return problem_set(p, 413, "the body has %llu bytes; %llu are allowed",
                           (unsigned long long)f.length, (unsigned long long)limit);
    x->large_body = f.has_length && f.length > BODIES_SMALL;
    const char *coding = exchange_header(x, "Content-Encoding");
    if (coding && *coding && strcasecmp(coding, "identity") != 0) {
        exchange_add_header(x, "Accept-Encoding", "identity");
        return problem_set(p, 415, "a body in the coding '%.40s': send it as it is", coding);
    }
    return true;
}

/* The path of a target in absolute form, "http://HOST/PATH", whose host must be the field's. */
static bool take_origin_form(struct exchange *x, const char **url, struct problem *p)
{
    const char *host = exchange_header(x, "Host"), *colon = strstr(*url, "://");
    if (!colon || (strncasecmp(*url, "http:", 5) != 0 && strncasecmp(*url, "https:", 6) != 0))
        return true;
    const char *authority = colon + 3;
    size_t n = strcspn(authority, "/");
    *url = authority[n] ? authority + n : "/";
    if (host && strlen(host) == n && strncasecmp(host, authority, n) == 0)
        return true;
    return problem_set(p, 400, "the request is ambiguous: its target and Host differ");
}

/* A browser shows its page no reason, so the log has it. */
static bool refuse_origin(struct exchange *x, const char *origin, struct problem *p)
{
    bool by_key = x->server->auth.count == 0 && !x->server->settings->cors_origins;
    if (origin_log_takes(&x->server->refused, origin, clock_ns()))
        log_warn("refused a page of '%s': --cors-origins does not list it",
                 x->server->refused.last);
    return problem_set(p, 403,
                       "pages of '%.80s' may not use this server: --cors-origins lists "
                       "those that may%s",
                       origin, by_key ? "; with --api-key-file pages that have a key may" : "");
}

static bool check_origin(struct exchange *x, struct problem *p)
{
    const struct server_settings *o = x->server->settings;
    const char *host = exchange_header(x, "Host"), *origin = exchange_header(x, "Origin");
    bool other;
    if (o->check_host && host && !origin_host_allowed(host, o->host_names))
        return problem_set(p, 403, "'%.80s' is not a name of this server: see --host-names", host);
    if (!origin)
        return true;
    if (!origin_allowed(origin, host, o->cors_origins, &other))
        return refuse_origin(x, origin, p);
    if (other) {
        exchange_add_header(x, "Access-Control-Allow-Origin", origin);
        exchange_add_header(x, "Access-Control-Expose-Headers", SHOWN_HEADERS);
        exchange_add_header(x, "Vary", "Origin");
    }
    return true;
}

/* The name of the request's key; NULL: none of these. */
static const char *find_key(const struct exchange *x, const struct auth *a)
{
    return auth_check(a, exchange_header(x, "Authorization"), exchange_header(x, "x-api-key"));
}

static bool check_key(struct exchange *x, struct problem *p)
{
    const struct auth *keys = &x->server->auth, *admin = &x->server->admin;
    bool needs_admin = x->route && x->route->admin;
    const char *name = find_key(x, admin);
    x->admin = name != NULL;
    if (needs_admin && admin->count == 0)
        return problem_set(
            p, 403, "nobody may change a deployment here: see --admin-key-file of moed-http");
    if (!needs_admin && (keys->count == 0 || (x->route && x->route->open)))
        return true;
    const char *user = name ? NULL : find_key(x, keys);
    if (!name && !needs_admin)
        name = user;
    const char *reader = name || user ? NULL : find_key(x, &x->server->metrics_keys);
    if (x->route && x->route->metrics && !name)
        name = reader;
    if (name) {
        snprintf(x->log.key, sizeof x->log.key, "%s", name);
        return true;
    }
    counter_add(x->server->metrics.refused_keys, 1);
    if (user)
        return problem_set(p, 403, "this key may not change a deployment: an admin key is needed");
    if (reader)
        return problem_set(p, 403, "this key may read /metrics alone");
    exchange_add_header(x, "WWW-Authenticate", "Bearer");
    problem_fill(p, 401, "a valid API key is needed: Authorization: Bearer KEY, or x-api-key: KEY");
    p->code = "invalid_api_key";
    return false;
}

/* A browser asks first whether a page of another origin may send a request. */
static bool is_preflight(const struct exchange *x)
{
    return strcmp(x->log.method, "OPTIONS") == 0 && exchange_header(x, "Origin") &&
           exchange_header(x, "Access-Control-Request-Method");
}

static void answer_preflight(struct exchange *x)
{
    exchange_add_header(x, "Access-Control-Allow-Methods", "GET, POST");
    const char *wanted = exchange_header(x, "Access-Control-Request-Headers");
    exchange_add_header(x, "Access-Control-Allow-Headers", wanted ? wanted : "authorization");
    exchange_add_header(x, "Access-Control-Max-Age", "600"); /* seconds without another preflight */
    exchange_reply(x, 204, NULL);
}

void exchange_admit(struct exchange *x, const char *url, const char *method, const char *version)
{
    struct problem p = {0};
    const char *trace = exchange_header(x, "traceparent");
    x->log.method = known_method(method);
    bool one_host = take_origin_form(x, &url, &p);
    snprintf(x->log.path, sizeof x->log.path, "%s", url);
    if (trace)
        access_take_trace(trace, x->log.trace);
    find_client(x);
    struct problem unknown = {0};
    find_route(x, url, &unknown);
    if (one_host && check_framing(x, method, version, &p) && check_origin(x, &p) &&
        !is_preflight(x) && check_key(x, &p))
        p = unknown;
    if (p.status) {
        x->close = true; /* the body is not read */
        if (p.status == 401 || p.status == 403)
            x->log.outcome = "refused";
        exchange_fail(x, &p);
    } else if (is_preflight(x)) {
        answer_preflight(x);
    }
}

void exchange_take_body(struct exchange *x, const char *data, size_t len)
{
    uint64_t limit = x->server->settings->body_bytes;
    x->received += len;
    if (x->received > 2 * limit)
        exchange_abandon(x, "large"); /* it does not wait for the refusal */
    else if (x->received <= limit)
        bodies_append(x, data, len);
}

void exchange_keep_body(struct exchange *x, void (*give_up)(struct exchange *x))
{
    x->keeps_body = true;
    x->give_up = give_up;
}

void exchange_pin_body(struct exchange *x)
{
    x->give_up = NULL;
}

void exchange_release_body(struct exchange *x)
{
    x->keeps_body = false;
    x->give_up = NULL;
    if (!x->server->settings->log_bodies) /* a stream may last long */
        bodies_drop(x);
}

void exchange_handle(struct exchange *x)
{
    struct problem p = {0};
    uint64_t limit = x->server->settings->body_bytes;
    x->state = EXCHANGE_WORKING;
    x->active_ns = clock_ns();
    if (x->received > limit)
        problem_fill(&p, 413, "the body has more than %llu bytes", (unsigned long long)limit);
    else if (x->body.failed)
        problem_fill(&p, 503, "no memory for the body");
    else if (x->crowded)
        exchange_fail_crowded(x);
    else if (x->connection->gone && strcmp(x->log.method, "POST") == 0)
        exchange_abandon(x, "left");
    else
        x->route->handle(x);
    if (!x->keeps_body)
        exchange_release_body(x);
    if (p.status) {
        x->close = true;
        exchange_fail(x, &p);
    }
}

/* ---- Replies ---- */

void exchange_resume(struct exchange *x)
{
    if (!x->suspended)
        return;
    x->suspended = false;
    MHD_resume_connection(x->mhd);
}

void exchange_abandon(struct exchange *x, const char *outcome)
{
    if (x->broken || (x->queued && x->state == EXCHANGE_REPLYING))
        return;
    bool complete = x->ended && x->sent == x->out.len;
    if (!complete) {
        x->broken = true;
        x->log.outcome = outcome;
        if (strcmp(outcome, "left") == 0)
            counter_add(x->server->metrics.left, 1);
        strbuf_clear(&x->out);
        x->sent = 0;
    }
    void (*left)(struct exchange *) = x->left;
    x->left = NULL;
    x->tick = NULL;
    x->give_up = NULL;
    if (left)
        left(x);
    exchange_resume(x);
}

void exchange_add_header(struct exchange *x, const char *name, const char *value)
{
    char *copy = x->n_headers < EXCHANGE_HEADERS ? strdup(value) : NULL;
    if (!copy)
        return;
    x->headers[x->n_headers].name = name;
    x->headers[x->n_headers].value = copy;
    x->n_headers++;
}

static void detach_work(struct exchange *x)
{
    x->left = NULL;
    x->tick = NULL;
    x->work = NULL;
}

void exchange_reply(struct exchange *x, int status, const char *content_type)
{
    if (x->out.failed) {
        strbuf_clear(&x->out);
        x->out.failed = false;
        status = 503;
        content_type = NULL;
    }
    x->status = status;
    x->content_type = content_type;
    x->state = EXCHANGE_REPLYING;
    detach_work(x);
    exchange_resume(x);
}

void exchange_fail(struct exchange *x, const struct problem *p)
{
    if (p->retry_s) {
        char seconds[16];
        snprintf(seconds, sizeof seconds, "%u", p->retry_s);
        exchange_add_header(x, "Retry-After", seconds);
    } else if (p->status >= 500) {
        exchange_add_header(x, "x-should-retry", "false");
    }
    strbuf_clear(&x->out);
    problem_body(p, x->api, &x->out);
    exchange_reply(x, p->status, "application/json");
}

void exchange_fail_crowded(struct exchange *x)
{
    struct problem p;
    problem_fill(&p, 503,
                 "no memory for the body: the requests that are being read have it now, and those "
                 "of this key or address most; try again later");
    p.retry_s = 1;
    x->keeps_body = false;
    exchange_fail(x, &p);
}

void exchange_stream_begin(struct exchange *x, const char *content_type)
{
    x->status = 200;
    x->content_type = content_type;
    x->state = EXCHANGE_STREAMING;
    x->active_ns = clock_ns();
    exchange_resume(x);
}

/* Forgets what was sent, once that is most of the buffer. */
static void compact(struct exchange *x)
{
    if (x->sent < COMPACT_BYTES || x->sent < x->out.len / 2)
        return;
    x->out.len -= x->sent;
    memmove(x->out.data, x->out.data + x->sent, x->out.len + 1);
    x->sent = 0;
}

bool exchange_stream_push(struct exchange *x)
{
    compact(x);
    size_t unsent = x->out.len - x->sent;
    size_t chunk = x->log.bytes_out + unsent - x->pushed;
    x->pushed += chunk;
    x->largest = chunk > x->largest ? chunk : x->largest;
    x->active_ns = clock_ns();
    /* A chunk above the limit says nothing about the client, which could not read it yet. */
    if (x->out.failed || unsent > x->server->settings->stream_bytes + x->largest) {
        counter_add(x->server->metrics.slow_readers, 1);
        shutdown(x->connection->fd, SHUT_RDWR);
        exchange_abandon(x, "slow");
        return false;
    }
    exchange_resume(x);
    return true;
}

void exchange_stream_end(struct exchange *x)
{
    x->ended = true;
    detach_work(x);
    exchange_resume(x);
}
