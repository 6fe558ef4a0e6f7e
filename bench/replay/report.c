/* The columns of results, and the table for terminals; see report.h. */
#include "bench/replay/report.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define FIGURE(member, name, unit, scale, format, what)                                            \
    {                                                                                              \
#member, name, unit, what, offsetof(struct replay_result, member), scale, format           \
    }
const struct report_column report_columns[] = {
    FIGURE(decode_tokens_per_s, "decode", "tok/s", 1, REPORT_DIGITS,
           "tokens decoded a second, all sequences together"),
    FIGURE(prefill_tokens_per_s, "prefill", "tok/s", 1, REPORT_DIGITS, "prompt tokens a second"),
    FIGURE(tpot_p50_s, "TPOT p50", "ms", 1e3, REPORT_DIGITS, "time of a decode step, median"),
    FIGURE(tpot_p99_s, "TPOT p99", "ms", 1e3, REPORT_DIGITS,
           "time of a decode step, 99th percentile"),
    FIGURE(hit_rate, "hits", "%", 100, REPORT_SHARE,
           "share of activated experts' segments found on the device"),
    FIGURE(prefetch_accuracy, "accuracy", "%", 100, REPORT_SHARE,
           "share of predicted experts that were activated"),
    FIGURE(fetch_rate, "fetched", "%", 100, REPORT_SHARE,
           "share of predicted experts resident before their layer"),
    FIGURE(good_pred, "GoodPred", "%", 100, REPORT_SHARE, "accuracy times fetched (ProMoE)"),
    FIGURE(moved_bytes, "moved", "GB", 1e-9, REPORT_DIGITS, "copied over the link, in prompts too"),
    FIGURE(wasted_bytes, "wasted", "GB", 1e-9, REPORT_DIGITS, "of that, evicted before use"),
    FIGURE(cpu_busy, "CPU", "%", 100, REPORT_SHARE,
           "share of time in which the CPU computes experts"),
    FIGURE(link_busy, "link", "%", 100, REPORT_SHARE, "share of time in which the link copies"),
    FIGURE(device_busy, "device", "%", 100, REPORT_SHARE,
           "share of time in which the device computes"),
    FIGURE(decision_s, "decide", "us", 1e6, REPORT_DIGITS,
           "mean real time of planning a layer; differs between runs"),
    FIGURE(bound, "of bound", "%", 100, REPORT_SHARE,
           "speed as a share of the upper bound of all policies"),
    {0},
};
const struct report_column report_more_columns[] = {
    FIGURE(on_device, "on device", "%", 100, REPORT_SHARE,
           "share of segments computed on the device without a load"),
    FIGURE(loaded, "loaded", "%", 100, REPORT_SHARE,
           "share of segments computed on the device after a load"),
    FIGURE(on_cpu, "on CPU", "%", 100, REPORT_SHARE, "share of segments computed by the CPU"),
    FIGURE(layer_s, "layer", "us", 1e6, REPORT_DIGITS, "mean time of a layer's routed experts"),
    FIGURE(prefill_bound, "prefill of bound", "%", 100, REPORT_SHARE,
           "prompts: time of the link for each missing byte once, or of the device if longer, as a "
           "share of the time"),
    {0},
};

double report_value(const struct replay_result *r, const struct report_column *c)
{
    double value;
    memcpy(&value, (const char *)r + c->offset, sizeof value);
    return value;
}

void report_format_value(const struct report_column *c, double value, char out[32])
{
    double x = value * c->scale;
    if (!isfinite(x)) {
        snprintf(out, 32, "-");
        return;
    }
    int decimals = 1;
    if (c->format == REPORT_DIGITS)
        decimals = x < 9.995 ? 2 : x < 99.95 ? 1 : 0;
    if (fabs(x) >= 1e9)
        snprintf(out, 32, "%.3g", x);
    else
        snprintf(out, 32, "%.*f", decimals, x);
}

/* ---- Groups ---- */

bool report_in_group(const struct replay_result *r, const struct report_group *g)
{
    return r->vram == g->vram && r->batch == g->batch;
}

bool report_group_at(const struct replay_report *r, uint32_t i, struct report_group *out)
{
    for (uint32_t k = 0; k < r->n_results; k++) {
        struct report_group g = {r->results[k].vram, r->results[k].batch};
        bool before = false;
        for (uint32_t j = 0; j < k && !before; j++)
            before = report_in_group(&r->results[j], &g);
        if (before)
            continue;
        if (i-- == 0) {
            *out = g;
            return true;
        }
    }
    return false;
}

void report_group_title(const struct report_group *g, char out[64])
{
    snprintf(out, 64, "vram %.4g %%, batch %u", 100 * g->vram, g->batch);
}

/* ---- Notes ---- */

void report_policy_name(const struct replay_result *r, char out[72])
{
    snprintf(out, 72, "%s%s", r->policy, r->note[0] ? "*" : "");
}

static bool noted_before(const struct replay_report *r, uint32_t k)
{
    for (uint32_t j = 0; j < k; j++)
        if (strcmp(r->results[j].policy, r->results[k].policy) == 0)
            return true;
    return false;
}

bool report_note_at(const struct replay_report *r, uint32_t i, char out[192])
{
    for (uint32_t k = 0; k < r->n_results; k++)
        if (r->results[k].note[0] && !noted_before(r, k) && i-- == 0) {
            snprintf(out, 192, "%s: %s", r->results[k].policy, r->results[k].note);
            return true;
        }
    if (i != 0 || !r->without_solver)
        return false;
    snprintf(out, 192, "optimal is " REPORT_WITHOUT_SOLVER);
    return true;
}

/* ---- The table ---- */

enum { MOST_COLUMNS = 24, GAP = 2 };

struct widths {
    uint32_t policy, columns[MOST_COLUMNS], n;
};

static uint32_t longer(uint32_t a, size_t b)
{
    return b > a ? (uint32_t)b : a;
}

static void measure(const struct replay_report *r, struct widths *w)
{
    char text[32];
    *w = (struct widths){.policy = (uint32_t)strlen("policy")};
    for (uint32_t k = 0; k < r->n_results; k++)
        w->policy =
            longer(w->policy, strlen(r->results[k].policy) + (r->results[k].note[0] != '\0'));
    for (const struct report_column *c = report_columns; c->key; c++, w->n++) {
        uint32_t most = longer((uint32_t)strlen(c->name), strlen(c->unit));
        for (uint32_t k = 0; k < r->n_results; k++) {
            report_format_value(c, report_value(&r->results[k], c), text);
            most = longer(most, strlen(text));
        }
        w->columns[w->n] = most;
    }
}

/* Finds `to` so that columns from..to fit the width; at least one column. */
static uint32_t columns_that_fit(const struct widths *w, uint32_t from, uint32_t width)
{
    uint32_t used = w->policy, to = from;
    while (to < w->n) {
        used += GAP + w->columns[to];
        if (width && used > width && to > from)
            break;
        to++;
    }
    return to;
}

static void print_header(const struct widths *w, uint32_t from, uint32_t to, struct strbuf *out)
{
    strbuf_printf(out, "%-*s", (int)w->policy, "policy");
    for (uint32_t i = from; i < to; i++)
        strbuf_printf(out, "%*s", (int)(GAP + w->columns[i]), report_columns[i].name);
    strbuf_printf(out, "\n%-*s", (int)w->policy, "");
    for (uint32_t i = from; i < to; i++)
        strbuf_printf(out, "%*s", (int)(GAP + w->columns[i]), report_columns[i].unit);
    strbuf_printf(out, "\n");
}

static void print_row(const struct replay_result *r, const struct widths *w, uint32_t from,
                      uint32_t to, struct strbuf *out)
{
    char text[32], name[72];
    report_policy_name(r, name);
    strbuf_printf(out, "%-*s", (int)w->policy, name);
    for (uint32_t i = from; i < to; i++) {
        report_format_value(&report_columns[i], report_value(r, &report_columns[i]), text);
        strbuf_printf(out, "%*s", (int)(GAP + w->columns[i]), text);
    }
    strbuf_printf(out, "\n");
}

static void print_group(const struct replay_report *r, const struct report_group *g,
                        const struct widths *w, uint32_t width, struct strbuf *out)
{
    char title[64];
    report_group_title(g, title);
    strbuf_printf(out, "\n%s\n", title);
    for (uint32_t from = 0, to; from < w->n; from = to) {
        to = columns_that_fit(w, from, width);
        strbuf_printf(out, from ? "\n" : "");
        print_header(w, from, to, out);
        for (uint32_t k = 0; k < r->n_results; k++)
            if (report_in_group(&r->results[k], g))
                print_row(&r->results[k], w, from, to, out);
    }
}

void report_table(const struct replay_report *r, uint32_t width, struct strbuf *out)
{
    struct widths w;
    struct report_group g;
    measure(r, &w);
    strbuf_printf(out, "%s on %s\n", r->model, r->machine);
    for (uint32_t i = 0; report_group_at(r, i, &g); i++)
        print_group(r, &g, &w, width, out);
    char note[192];
    for (uint32_t i = 0; report_note_at(r, i, note); i++)
        strbuf_printf(out, "%s* %s\n", i ? "" : "\n", note);
}
