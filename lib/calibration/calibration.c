/* The line through a calibration's points and the text of its file; see calibration.h. store.c has
 * the files. */
#include "calibration/calibration.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define FIRST_WORDS "moed calibration "
#define FIRST_LINE  FIRST_WORDS "3"
#define LAST_LINE   "end"
#define MOST_S      1000.0 /* of any measurement */

/* -- the line -- */

static double residual_of(const struct calibration_side *side, double base_s, double token_s)
{
    double sum = 0;
    for (uint32_t i = 0; i < side->n_points; i++) {
        const struct calibration_point *p = &side->points[i];
        double off = (base_s + p->tokens * token_s) / p->seconds - 1;
        sum += off * off;
    }
    return sqrt(sum / side->n_points);
}

/* The error of a point is relative: one token is as important as many, though it takes less time.
 * If the best line would have a negative base or slope, the best of the allowed lines is a constant
 * or goes through the origin. */
struct calibration_line calibration_fit(const struct calibration_side *side)
{
    double s = 0, sx = 0, sxx = 0, sy = 0, sxy = 0; /* of 1, w, w^2, t, w t, each by t^2 */
    for (uint32_t i = 0; i < side->n_points; i++) {
        double w = side->points[i].tokens, t = side->points[i].seconds, by = 1 / (t * t);
        s += by;
        sx += by * w;
        sxx += by * w * w;
        sy += by * t;
        sxy += by * w * t;
    }
    struct calibration_line constant = {.base_s = sy / s};
    constant.residual = residual_of(side, constant.base_s, 0);
    struct calibration_line best = constant, origin = {.token_s = sxy / sxx};
    origin.residual = residual_of(side, 0, origin.token_s);
    if (side->n_points > 1 && origin.residual < best.residual)
        best = origin;
    double spread = s * sxx - sx * sx;
    if (spread > 1e-9 * s * sxx) {
        double token_s = (s * sxy - sx * sy) / spread, base_s = (sy - token_s * sx) / s;
        if (token_s >= 0 && base_s >= 0)
            best = (struct calibration_line){base_s, token_s, residual_of(side, base_s, token_s)};
    }
    return best;
}

/* -- the text -- */

/* The keys that occur once. */
enum key {
    KEY_MACHINE,
    KEY_DEVICE,
    KEY_MODEL,
    KEY_SHAPES,
    KEY_MEASURED_AT,
    KEY_SEGMENT_BYTES,
    KEY_DEVICE_CALL,
    KEY_CPU_CALL,
    KEY_JOB_OVERHEAD,
    KEY_LINK_SEGMENT,
    KEY_LINK_LATENCY,
    KEY_CPU_OVERLAP,
    KEY_CPU_SLOWDOWN,
    KEY_LINK_SLOWDOWN,
    N_NEEDED,
    KEY_CORRECTIONS = N_NEEDED,
    N_KEYS
};
static const char *const key_names[N_KEYS] = {
    "machine",       "device",      "model",        "shapes",        "measured-at",
    "segment-bytes", "device-call", "cpu-call",     "job-overhead",  "link-segment",
    "link-latency",  "cpu-overlap", "cpu-slowdown", "link-slowdown", "corrections"};

static bool has_corrections(const struct calibration *c)
{
    for (int i = 0; i < CALIBRATION_CORRECTED; i++)
        if (c->corrections[i] != 0)
            return true;
    return false;
}

static void write_points(struct strbuf *out, const char *key, const struct calibration_side *side)
{
    for (uint32_t i = 0; i < side->n_points; i++)
        strbuf_printf(out, "%s %" PRIu32 " %.9g\n", key, side->points[i].tokens,
                      side->points[i].seconds);
}

void calibration_write(const struct calibration *c, struct strbuf *out)
{
    strbuf_printf(out, "%s\nmachine %s\ndevice %s\nmodel %s\nshapes %s\n", FIRST_LINE, c->machine,
                  c->device, c->model, c->shapes);
    strbuf_printf(out, "measured-at %" PRId64 "\nsegment-bytes %" PRIu64 "\n", c->measured_at,
                  c->segment_bytes);
    write_points(out, "device-segment", &c->device_side);
    write_points(out, "cpu-segment", &c->cpu_side);
    strbuf_printf(out, "device-call %.9g\ncpu-call %.9g\n", c->device_call_s, c->cpu_call_s);
    strbuf_printf(out, "job-overhead %.9g\nlink-segment %.9g\nlink-latency %.9g\n",
                  c->job_overhead_s, c->link_segment_s, c->link_latency_s);
    strbuf_printf(out, "cpu-overlap %.9g\ncpu-slowdown %.9g\nlink-slowdown %.9g\n", c->cpu_overlap,
                  c->cpu_slowdown, c->link_slowdown);
    if (has_corrections(c)) {
        strbuf_printf(out, "%s", key_names[KEY_CORRECTIONS]);
        for (int i = 0; i < CALIBRATION_CORRECTED; i++)
            strbuf_printf(out, " %.9g", c->corrections[i]);
        strbuf_printf(out, "\n");
    }
    strbuf_printf(out, "%s\n", LAST_LINE);
}

static bool read_number(const char **text, double least, double most, double *out)
{
    char *end;
    errno = 0;
    double v = strtod(*text, &end);
    if (end == *text || errno || !(v >= least) || !(v <= most))
        return false;
    *text = end;
    *out = v;
    return true;
}

static bool read_point(const char *value, struct calibration_side *side)
{
    double tokens, seconds;
    if (side->n_points == CALIBRATION_MAX_POINTS || !read_number(&value, 1, 1 << 20, &tokens) ||
        !read_number(&value, 1e-12, MOST_S, &seconds) || *value || tokens != floor(tokens) ||
        (side->n_points && side->points[side->n_points - 1].tokens >= (uint32_t)tokens))
        return false;
    side->points[side->n_points++] = (struct calibration_point){(uint32_t)tokens, seconds};
    return true;
}

static bool read_text(const char *value, char *out, size_t size)
{
    size_t n = strlen(value);
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)value[i] < 0x20 || value[i] == 0x7f)
            return false;
    if (n >= size)
        return false;
    memcpy(out, value, n + 1);
    return true;
}

static bool read_whole(const char *value, double least, double *out)
{
    return read_number(&value, least, 9e15, out) && !*value && *out == floor(*out);
}

static bool read_one(const char *value, double least, double most, double *out)
{
    return read_number(&value, least, most, out) && !*value;
}

static bool read_corrections(const char *value, double corrections[CALIBRATION_CORRECTED])
{
    for (int i = 0; i < CALIBRATION_CORRECTED; i++)
        if (!read_number(&value, 0, 1e6, &corrections[i]))
            return false;
    return !*value;
}

static bool read_key(struct calibration *c, enum key key, const char *value)
{
    double v = 0;
    bool ok = true;
    switch (key) {
    case KEY_MACHINE:
        return read_text(value, c->machine, sizeof c->machine);
    case KEY_DEVICE:
        return read_text(value, c->device, sizeof c->device);
    case KEY_MODEL:
        return read_text(value, c->model, sizeof c->model);
    case KEY_SHAPES:
        return read_text(value, c->shapes, sizeof c->shapes);
    case KEY_MEASURED_AT:
        ok = read_whole(value, 0, &v);
        c->measured_at = (int64_t)v;
        return ok;
    case KEY_SEGMENT_BYTES:
        ok = read_whole(value, 1, &v);
        c->segment_bytes = (uint64_t)v;
        return ok;
    case KEY_DEVICE_CALL:
        return read_one(value, 0, MOST_S, &c->device_call_s);
    case KEY_CPU_CALL:
        return read_one(value, 0, MOST_S, &c->cpu_call_s);
    case KEY_JOB_OVERHEAD:
        return read_one(value, 0, MOST_S, &c->job_overhead_s);
    case KEY_LINK_SEGMENT:
        return read_one(value, 0, MOST_S, &c->link_segment_s);
    case KEY_LINK_LATENCY:
        return read_one(value, 0, MOST_S, &c->link_latency_s);
    case KEY_CPU_OVERLAP:
        return read_one(value, 0, MOST_S, &c->cpu_overlap);
    case KEY_CPU_SLOWDOWN:
        return read_one(value, 0, MOST_S, &c->cpu_slowdown);
    case KEY_LINK_SLOWDOWN:
        return read_one(value, 0, MOST_S, &c->link_slowdown);
    case KEY_CORRECTIONS:
        return read_corrections(value, c->corrections);
    default:
        return false;
    }
}

struct parser {
    struct calibration c;
    bool seen[N_KEYS];
    bool ended;
};

static bool read_line(struct parser *p, char *line)
{
    if (strcmp(line, LAST_LINE) == 0)
        return p->ended = true;
    char *space = strchr(line, ' ');
    if (!space || p->ended)
        return false;
    *space = '\0';
    if (strcmp(line, "device-segment") == 0)
        return read_point(space + 1, &p->c.device_side);
    if (strcmp(line, "cpu-segment") == 0)
        return read_point(space + 1, &p->c.cpu_side);
    for (enum key key = 0; key < N_KEYS; key++)
        if (strcmp(line, key_names[key]) == 0) {
            bool again = p->seen[key];
            p->seen[key] = true;
            return !again && read_key(&p->c, key, space + 1);
        }
    return false;
}

static bool is_of_another_version(const char *line)
{
    size_t n = strlen(FIRST_WORDS);
    return strncmp(line, FIRST_WORDS, n) == 0 && line[n] &&
           line[n + strspn(line + n, "0123456789")] == '\0' && strcmp(line, FIRST_LINE) != 0;
}

enum error_code calibration_parse(const char *text, struct calibration *out, struct error *e)
{
    struct parser p = {0};
    char line[512];
    for (unsigned number = 1; *text; number++) {
        size_t n = strcspn(text, "\n");
        bool ok = n < sizeof line && text[n] == '\n';
        if (ok) {
            memcpy(line, text, n);
            line[n] = '\0';
            if (number == 1 && is_of_another_version(line))
                return error_set(e, ERROR_VERSION, "it is of another version of moed");
            ok = number == 1 ? strcmp(line, FIRST_LINE) == 0 : read_line(&p, line);
        }
        if (!ok)
            return error_set(e, ERROR_FORMAT, "line %u of the calibration is not valid", number);
        text += n + 1;
    }
    bool all = p.ended && p.c.device_side.n_points && p.c.cpu_side.n_points;
    for (enum key key = 0; key < N_NEEDED; key++)
        all = all && p.seen[key];
    if (!all)
        return error_set(e, ERROR_FORMAT, "the calibration is not complete");
    *out = p.c;
    return ERROR_OK;
}

bool calibration_same(const struct calibration *a, const struct calibration *b)
{
    return strcmp(a->machine, b->machine) == 0 && strcmp(a->device, b->device) == 0 &&
           strcmp(a->model, b->model) == 0 && strcmp(a->shapes, b->shapes) == 0;
}
