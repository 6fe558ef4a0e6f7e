/* The access log; see access_log.h. */
#include "client/http/server/access_log.h"

#include "base/log.h"
#include "base/strbuf.h"

#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

void access_new_id(char id[24])
{
    uint64_t random = 0;
    ssize_t n = getrandom(&random, sizeof random, 0);
    (void)n; /* 8 bytes are never cut short */
    snprintf(id, 24, "req-%016llx", (unsigned long long)random);
}

void access_take_trace(const char *header, char trace[33])
{
    static const char hex[] = "0123456789abcdef";
    trace[0] = '\0';
    if (strlen(header) < 55 || strspn(header, hex) != 2 || header[2] != '-' ||
        strspn(header + 3, hex) != 32 || header[35] != '-' || strspn(header + 36, hex) != 16 ||
        header[52] != '-' || strspn(header + 53, hex) != 2 || strspn(header + 3, "0") == 32 ||
        strspn(header + 36, "0") == 16)
        return;
    bool first_version = strncmp(header, "00", 2) == 0;
    if (strncmp(header, "ff", 2) == 0 || (header[55] && (first_version || header[55] != '-')))
        return; /* later versions may append fields */
    memcpy(trace, header + 3, 32);
    trace[32] = '\0';
}

void access_take_request_id(const char *header, char id[129])
{
    size_t n = 0;
    while (header[n] > ' ' && header[n] < 0x7f)
        n++;
    id[0] = '\0';
    if (n <= 128 && !header[n])
        memcpy(id, header, n + 1);
}

static double seconds(uint64_t from_ns, uint64_t to_ns)
{
    return to_ns > from_ns ? (double)(to_ns - from_ns) * 1e-9 : 0;
}

static void member(struct strbuf *b, const char *name, const char *value)
{
    if (!*value)
        return;
    strbuf_printf(b, ",\"%s\":", name);
    strbuf_json_string(b, value, strlen(value));
}

static void count_member(struct strbuf *b, const char *name, bool known, uint64_t count)
{
    if (known)
        strbuf_printf(b, ",\"%s\":%llu", name, (unsigned long long)count);
}

static void write_json(const struct access_entry *a, enum log_level level)
{
    char time[LOG_TIME_BYTES];
    struct strbuf b;
    log_time(time);
    strbuf_init(&b);
    strbuf_printf(&b,
                  "%s{\"time\":\"%s\",\"level\":\"%s\",\"component\":\"http\","
                  "\"message\":\"request\"",
                  log_priority(level), time, level == LOG_LEVEL_DEBUG ? "debug" : "info");
    member(&b, "id", a->id);
    member(&b, "method", a->method);
    member(&b, "path", a->path);
    strbuf_printf(&b, ",\"status\":%d", a->status);
    member(&b, "outcome", a->outcome);
    member(&b, "key", a->key);
    member(&b, "model", a->model);
    count_member(&b, "tokens_in", a->tokens && a->in_known, a->tokens_in);
    count_member(&b, "tokens_cached", a->tokens && a->cached_known, a->tokens_cached);
    count_member(&b, "tokens_out", a->tokens, a->tokens_out);
    count_member(&b, "tokens_drafted", a->tokens_drafted, a->tokens_drafted);
    count_member(&b, "tokens_accepted", a->tokens_drafted, a->tokens_accepted);
    if (a->first_token_ns)
        strbuf_printf(&b, ",\"first_token_s\":%.6f", seconds(a->begin_ns, a->first_token_ns));
    strbuf_printf(&b, ",\"duration_s\":%.6f,\"bytes_out\":%llu", seconds(a->begin_ns, a->end_ns),
                  (unsigned long long)a->bytes_out);
    member(&b, "client", a->client);
    member(&b, "request_id", a->request_id);
    member(&b, "trace", a->trace);
    member(&b, "ignored", a->ignored);
    if (a->body) {
        strbuf_printf(&b, ",\"body\":");
        strbuf_json_string(&b, a->body, a->body_bytes);
    }
    strbuf_printf(&b, "}\n");
    ssize_t n = b.failed ? 0 : write(STDERR_FILENO, b.data, b.len);
    (void)n; /* there is no place left to report a failure to log */
    strbuf_fini(&b);
}

static const char *count_field(char out[32], const char *name, bool known, uint64_t count)
{
    out[0] = '\0';
    if (known)
        snprintf(out, 32, " %s=%llu", name, (unsigned long long)count);
    return out;
}

static const char *or_dash(const char *text)
{
    return *text ? text : "-";
}

/* What a request wrote must not look like another field: blanks, and all that is not ASCII, as %XX.
 * out: three bytes for each of text, and one. */
static const char *one_field(const char *text, char *out)
{
    char *at = out;
    for (; *text; text++) {
        unsigned char c = (unsigned char)*text;
        bool plain = c > ' ' && c < 0x7f;
        at += sprintf(at, plain ? "%c" : "%%%02X", c);
    }
    *at = '\0';
    return out;
}

void access_ignored_header(const struct access_entry *a, char out[ACCESS_IGNORED])
{
    size_t n = 0;
    for (; a->ignored[n]; n++) {
        unsigned char c = (unsigned char)a->ignored[n];
        bool plain = c > ' ' && c < 0x7f && c != '"' && c != '\\';
        out[n] = (char)(plain ? c : '_');
    }
    out[n] = '\0';
}

bool access_is_probe(const struct access_entry *a)
{
    static const char *const paths[] = {"/health", "/v1/health", "/livez", "/readyz", "/metrics"};
    if (a->status >= 400 && a->status != 503)
        return false;
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++)
        if (strcmp(a->path, paths[i]) == 0)
            return true;
    return false;
}

void access_write(const struct access_entry *a, bool json)
{
    enum log_level level = access_is_probe(a) ? LOG_LEVEL_DEBUG : LOG_LEVEL_INFO;
    if (!log_shows(level))
        return;
    if (json) {
        write_json(a, level);
        return;
    }
    char in[32], cached[32], out[32], drafted[32], accepted[32],
        first[32] = "", path[3 * sizeof a->path], model[3 * sizeof a->model],
        ignored[3 * sizeof a->ignored];
    if (a->first_token_ns)
        snprintf(first, sizeof first, " first=%.3fs", seconds(a->begin_ns, a->first_token_ns));
    log_line(level,
             "%s %s %s %d %s key=%s model=%s%s%s%s%s%s%s time=%.3fs bytes=%llu%s%s%s%s%s%s%s%s",
             a->id, a->method, one_field(a->path, path), a->status, a->outcome, or_dash(a->key),
             or_dash(one_field(a->model, model)),
             count_field(in, "in", a->tokens && a->in_known, a->tokens_in),
             count_field(cached, "cached", a->tokens && a->cached_known, a->tokens_cached),
             count_field(out, "out", a->tokens, a->tokens_out),
             count_field(drafted, "drafted", a->tokens_drafted, a->tokens_drafted),
             count_field(accepted, "accepted", a->tokens_drafted, a->tokens_accepted), first,
             seconds(a->begin_ns, a->end_ns), (unsigned long long)a->bytes_out,
             a->client[0] ? " client=" : "", a->client, a->request_id[0] ? " request_id=" : "",
             a->request_id, a->trace[0] ? " trace=" : "", a->trace,
             a->ignored[0] ? " ignored=" : "", one_field(a->ignored, ignored));
    if (a->body)
        log_info("%s body %.*s", a->id, (int)a->body_bytes, a->body);
}
