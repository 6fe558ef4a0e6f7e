/* The registry and its rendering in Prometheus' text format 0.0.4
 * (prometheus.io/docs/instrumenting/exposition_formats).
 *
 * A family is a name with its help and type; its samples differ in their labels. The format demands
 * that the samples of a family stand together, in whatever order they were registered.
 *
 * A group's values are read before the first line is printed. Its samples may lie in several
 * families, and other samples may stand between them. */
#include "metrics/metrics.h"

#include "base/log.h"
#include "metrics/process.h"

#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum kind { KIND_COUNTER, KIND_GAUGE, KIND_HISTOGRAM, KIND_FUNCTION, KIND_GROUPED, KIND_INFO };

struct sample {
    struct sample *next;
    char *labels; /* "" for none */
    enum kind kind;
    double unit_scale;           /* counter */
    const struct counter *after; /* absent until it has counted; NULL: always there */
    double (*read)(void *arg);   /* function */
    metrics_labels *write;       /* info */
    void *arg;
    const double *value; /* grouped: in its group's values */
    union {
        struct counter counter;
        struct gauge gauge;
        struct histogram histogram;
    };
};

struct family {
    struct family *next;
    char *name, *help;
    const char *type;
    struct sample *samples, **last;
};

struct group {
    struct group *next;
    metrics_read *read;
    void *arg;
    double values[]; /* of the rendering under way */
};

struct metrics {
    struct family *families, **last;
    struct group *groups;
    pthread_mutex_t rendering; /* guards the groups' values */
};

const double histogram_seconds_bounds[] = {0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05,
                                           0.1,    0.25,  0.5,    1,     2.5,  5,     10,
                                           30,     60,    120,    300,   600,  1800};
const uint32_t histogram_seconds_count =
    sizeof histogram_seconds_bounds / sizeof histogram_seconds_bounds[0];
_Static_assert(sizeof histogram_seconds_bounds / sizeof histogram_seconds_bounds[0] <=
                   HISTOGRAM_MAX_BUCKETS,
               "bounds fit in a histogram");

/* Registration happens at start, with names that stand in the source: a wrong one is our bug. */
static void require(bool ok, const char *name, const char *what)
{
    if (ok)
        return;
    log_error("metric '%s': %s", name, what);
    abort();
}

/* There is nobody to return an error to, at a few hundred bytes while a daemon starts. */
static void *must(void *p)
{
    if (p)
        return p;
    log_error("no memory for the metrics");
    _exit(EXIT_FAILURE); /* the supervisor tries again */
}

struct metrics *metrics_new(void)
{
    struct metrics *m = calloc(1, sizeof *m);
    if (m == NULL)
        return NULL;
    m->last = &m->families;
    pthread_mutex_init(&m->rendering, NULL);
    return m;
}

void metrics_free(struct metrics *m)
{
    if (m == NULL)
        return;
    while (m->families != NULL) {
        struct family *f = m->families;
        m->families = f->next;
        while (f->samples != NULL) {
            struct sample *s = f->samples;
            f->samples = s->next;
            free(s->labels);
            free(s);
        }
        free(f->name);
        free(f->help);
        free(f);
    }
    while (m->groups != NULL) {
        struct group *g = m->groups;
        m->groups = g->next;
        free(g);
    }
    pthread_mutex_destroy(&m->rendering);
    free(m);
}

static bool name_valid(const char *name)
{
    const char *letters = "abcdefghijklmnopqrstuvwxyz_0123456789";
    return name[0] >= 'a' && name[0] <= 'z' && name[strspn(name, letters)] == 0;
}

static bool ends_in_total(const char *name)
{
    size_t n = strlen(name);
    return n > 6 && strcmp(name + n - 6, "_total") == 0;
}

static struct family *family_of(struct metrics *m, const char *name, const char *type,
                                const char *help)
{
    for (struct family *f = m->families; f != NULL; f = f->next)
        if (strcmp(f->name, name) == 0) {
            require(strcmp(f->type, type) == 0, name, "registered with two types");
            return f;
        }
    require(name_valid(name), name, "the name is not of the form moed_what_unit");
    require(ends_in_total(name) == (strcmp(type, "counter") == 0), name,
            "counters and nothing else end in _total");
    require(help[0] != 0 && strpbrk(help, "\n\\") == NULL, name, "help must be one plain line");
    struct family *f = must(calloc(1, sizeof *f));
    *f = (struct family){.name = must(strdup(name)), .help = must(strdup(help)), .type = type};
    f->last = &f->samples;
    *m->last = f;
    m->last = &f->next;
    return f;
}

static struct sample *add(struct metrics *m, const char *name, const char *labels, const char *type,
                          enum kind kind, const char *help)
{
    struct family *f = family_of(m, name, type, help);
    if (labels == NULL)
        labels = "";
    for (struct sample *s = f->samples; s != NULL; s = s->next)
        require(strcmp(s->labels, labels) != 0, name, "registered twice");
    size_t bytes = (sizeof(struct sample) + 63) / 64 * 64;
    struct sample *s = must(aligned_alloc(64, bytes));
    memset(s, 0, bytes);
    s->labels = must(strdup(labels));
    s->kind = kind;
    *f->last = s;
    f->last = &s->next;
    return s;
}

struct counter *metrics_counter(struct metrics *m, const char *name, const char *labels,
                                double unit_scale, const char *help)
{
    struct sample *s = add(m, name, labels, "counter", KIND_COUNTER, help);
    s->unit_scale = unit_scale;
    return &s->counter;
}

struct counter *metrics_counter_after(struct metrics *m, const struct counter *measured,
                                      const char *name, const char *labels, const char *help)
{
    struct sample *s = add(m, name, labels, "counter", KIND_COUNTER, help);
    s->unit_scale = 1;
    s->after = measured ? measured : &s->counter;
    return &s->counter;
}

struct gauge *metrics_gauge(struct metrics *m, const char *name, const char *labels,
                            const char *help)
{
    return &add(m, name, labels, "gauge", KIND_GAUGE, help)->gauge;
}

struct histogram *metrics_histogram(struct metrics *m, const char *name, const char *labels,
                                    const double *bounds, uint32_t n_bounds, const char *help)
{
    require(n_bounds > 0 && n_bounds <= HISTOGRAM_MAX_BUCKETS, name, "number of bounds");
    for (uint32_t i = 1; i < n_bounds; i++)
        require(bounds[i - 1] < bounds[i], name, "bounds must ascend");
    struct sample *s = add(m, name, labels, "histogram", KIND_HISTOGRAM, help);
    s->histogram.bounds = bounds;
    s->histogram.n_bounds = n_bounds;
    return &s->histogram;
}

struct histogram *metrics_histogram_seconds(struct metrics *m, const char *name, const char *labels,
                                            const char *help)
{
    return metrics_histogram(m, name, labels, histogram_seconds_bounds, histogram_seconds_count,
                             help);
}

static void add_function(struct metrics *m, const char *name, const char *labels, const char *type,
                         double (*read)(void *arg), void *arg, const char *help)
{
    struct sample *s = add(m, name, labels, type, KIND_FUNCTION, help);
    s->read = read;
    s->arg = arg;
}

void metrics_gauge_function(struct metrics *m, const char *name, const char *labels,
                            double (*read)(void *arg), void *arg, const char *help)
{
    add_function(m, name, labels, "gauge", read, arg, help);
}

void metrics_counter_function(struct metrics *m, const char *name, const char *labels,
                              double (*read)(void *arg), void *arg, const char *help)
{
    add_function(m, name, labels, "counter", read, arg, help);
}

void metrics_group(struct metrics *m, const struct metrics_row *rows, uint32_t n_rows,
                   metrics_read *read, void *arg)
{
    struct group *g = must(calloc(1, sizeof *g + n_rows * sizeof *g->values));
    g->read = read;
    g->arg = arg;
    g->next = m->groups;
    m->groups = g;
    for (uint32_t i = 0; i < n_rows; i++) {
        const struct metrics_row *r = &rows[i];
        const char *type = ends_in_total(r->name) ? "counter" : "gauge";
        add(m, r->name, r->labels, type, KIND_GROUPED, r->help)->value = &g->values[i];
    }
}

void metrics_info(struct metrics *m, const char *name, metrics_labels *write, void *arg,
                  const char *help)
{
    struct sample *s = add(m, name, NULL, "gauge", KIND_INFO, help);
    s->write = write;
    s->arg = arg;
}

void histogram_observe(struct histogram *h, double value)
{
    histogram_observe_times(h, value, 1);
}

void histogram_observe_times(struct histogram *h, double value, uint32_t n)
{
    if (isnan(value))
        return;
    uint32_t i = 0;
    while (i < h->n_bounds && value > h->bounds[i])
        i++;
    atomic_fetch_add_explicit(&h->buckets[i], n, memory_order_relaxed);
    if (value > 0) { /* a sum is a counter: it never falls */
        double nano = value * n * 1e9;
        uint64_t sum = nano < 9e18 ? (uint64_t)(nano + 0.5) : (uint64_t)9e18;
        atomic_fetch_add_explicit(&h->sum_nano, sum, memory_order_relaxed);
    }
}

/* The shortest decimal that reads back as the same double: 0.1, not 0.10000000000000001. */
static void print_double(struct strbuf *out, double v)
{
    if (isnan(v) || isinf(v)) {
        strbuf_printf(out, "%s", isnan(v) ? "NaN" : v > 0 ? "+Inf" : "-Inf");
        return;
    }
    if (v == floor(v) && fabs(v) < 1e15) { /* 60, not 6e+01 */
        strbuf_printf(out, "%.0f", v);
        return;
    }
    char text[40];
    for (int digits = 1; digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, v);
        if (strtod(text, NULL) == v)
            break;
    }
    strbuf_printf(out, "%s", text);
}

/* n * scale; by division where the scale is one over a whole number, which rounds only once. */
static double scaled(uint64_t n, double scale)
{
    double inverse = round(1.0 / scale);
    return 1.0 / inverse == scale ? (double)n / inverse : (double)n * scale;
}

uint64_t histogram_count(const struct histogram *h)
{
    uint64_t n = 0;
    for (uint32_t i = 0; i <= h->n_bounds; i++)
        n += atomic_load_explicit(&h->buckets[i], memory_order_relaxed);
    return n;
}

double histogram_sum(const struct histogram *h)
{
    return scaled(atomic_load_explicit(&h->sum_nano, memory_order_relaxed), 1e-9);
}

static void print_name(struct strbuf *out, const char *name, const char *suffix, const char *labels)
{
    strbuf_printf(out, "%s%s", name, suffix);
    if (labels[0] != 0)
        strbuf_printf(out, "{%s}", labels);
    strbuf_append(out, " ", 1);
}

static void print_histogram(struct strbuf *out, const char *name, const struct sample *s)
{
    const struct histogram *h = &s->histogram;
    const char *comma = s->labels[0] != 0 ? "," : "";
    uint64_t total = 0;
    for (uint32_t i = 0; i <= h->n_bounds; i++) {
        total += atomic_load_explicit(&h->buckets[i], memory_order_relaxed);
        strbuf_printf(out, "%s_bucket{%s%sle=\"", name, s->labels, comma);
        print_double(out, i < h->n_bounds ? h->bounds[i] : INFINITY);
        strbuf_printf(out, "\"} %" PRIu64 "\n", total);
    }
    print_name(out, name, "_sum", s->labels);
    print_double(out, histogram_sum(h));
    strbuf_append(out, "\n", 1);
    /* not a further counter: _count and the last bucket must agree */
    print_name(out, name, "_count", s->labels);
    strbuf_printf(out, "%" PRIu64 "\n", total);
}

static void print_sample(struct strbuf *out, const char *name, const struct sample *s)
{
    if (s->kind == KIND_HISTOGRAM) {
        print_histogram(out, name, s);
        return;
    }
    if (s->kind == KIND_INFO) {
        strbuf_printf(out, "%s{", name);
        s->write(s->arg, out);
        strbuf_printf(out, "} 1\n");
        return;
    }
    print_name(out, name, "", s->labels);
    if (s->kind == KIND_FUNCTION)
        print_double(out, s->read(s->arg));
    else if (s->kind == KIND_GROUPED)
        print_double(out, *s->value);
    else if (s->kind == KIND_GAUGE)
        strbuf_printf(out, "%" PRId64, atomic_load_explicit(&s->gauge.value, memory_order_relaxed));
    else if (s->unit_scale == 1.0)
        strbuf_printf(out, "%" PRIu64, counter_read(&s->counter));
    else
        print_double(out, scaled(counter_read(&s->counter), s->unit_scale));
    strbuf_append(out, "\n", 1);
}

static void print_family(struct strbuf *out, const struct family *f)
{
    bool headed = false;
    for (const struct sample *s = f->samples; s != NULL; s = s->next) {
        if (s->after && !counter_read(s->after))
            continue;
        if (!headed)
            strbuf_printf(out, "# HELP %s %s\n# TYPE %s %s\n", f->name, f->help, f->name, f->type);
        headed = true;
        print_sample(out, f->name, s);
    }
}

void metrics_render(struct metrics *m, struct strbuf *out)
{
    pthread_mutex_lock(&m->rendering);
    for (struct group *g = m->groups; g != NULL; g = g->next)
        g->read(g->arg, g->values);
    for (const struct family *f = m->families; f != NULL; f = f->next)
        print_family(out, f);
    pthread_mutex_unlock(&m->rendering);
    process_render(out);
}
