/* Results as a page of plots: XHTML with embedded style and SVG pictures, for light and dark
 * screens and for paper; see report.h. report_plot.c draws the plots. */
#include "bench/replay/report_plot.h"

#include <string.h>

const char report_style[] =
    ":root{color-scheme:light dark;--page:#fff;--ink:#15181d;--soft:#5b6472;--rule:#dfe3e8;"
    "--bar:#9db4d3;--best:#1d5fbf;--second:#e0913a;--third:#6aa56c;--mark:#c0262d}\n"
    "@media (prefers-color-scheme:dark){:root{--page:#14171c;--ink:#e8eaee;--soft:#9aa4b2;"
    "--rule:#2d333c;--bar:#46618a;--best:#6ea8ff;--second:#d98c3f;--third:#6fae72;"
    "--mark:#ff6b6b}}\n"
    "@media print{:root{--page:#fff;--ink:#000;--soft:#444;--rule:#ccc;--bar:#9db4d3;"
    "--best:#1d5fbf;--second:#e0913a;--third:#6aa56c;--mark:#c0262d}"
    "body{max-width:none;padding:0}figure,tr,h2{break-inside:avoid}h2{break-after:avoid}"
    "*{print-color-adjust:exact;-webkit-print-color-adjust:exact}}\n"
    "body{background:var(--page);color:var(--ink);font:15px/1.45 system-ui,sans-serif;"
    "max-width:1500px;margin:0 auto;padding:1.5rem}\n"
    "h1{font-size:1.7rem;line-height:1.2;margin:0 0 .3rem}"
    "h2{font-size:1.15rem;margin:2rem 0 .2rem}\n"
    "p{color:var(--soft);margin:.2rem 0;overflow-wrap:anywhere}\n"
    ".grid{display:grid;grid-template-columns:repeat(auto-fit,minmax(330px,1fr));gap:1rem}\n"
    "figure{margin:.6rem 0 0}figcaption{font-weight:600;border-bottom:1px solid var(--rule);"
    "padding-bottom:.15rem}\n"
    "svg{display:block;width:100%;max-width:560px;height:auto;font:11px system-ui,sans-serif}\n"
    "svg text{fill:var(--ink)}svg .soft{fill:var(--soft)}\n"
    ".axis{stroke:var(--rule);stroke-width:1}.mark{stroke:var(--mark);stroke-width:2}\n"
    ".bar{fill:var(--bar)}.best{fill:var(--best)}.second{fill:var(--second)}"
    ".third{fill:var(--third)}\n"
    ".key{display:inline-block;width:.8em;height:.8em;margin:0 .35em 0 1em;border-radius:2px}\n"
    ".line{width:2px}\n"
    ".scroll{overflow-x:auto}table{border-collapse:collapse;font-variant-numeric:tabular-nums;"
    "font-size:.82rem}th,td{padding:.2rem .55rem;text-align:right;white-space:nowrap}\n"
    "thead th{border-bottom:2px solid var(--rule);vertical-align:bottom}"
    "tbody tr:hover{background:var(--rule)}\n"
    "th:first-child{text-align:left}tbody th{font-weight:400}"
    ".group th{font-weight:600;padding-top:.9rem}\n"
    "th small{display:block;color:var(--soft);font-weight:400}\n";

static const struct plot plots[] = {
    {.title = "Decode speed",
     .unit = "tok/s",
     .note = "Tokens a second, all sequences together. The line is the upper bound of all "
             "policies. The fastest policy that does not know the future is darker.",
     .kind = PLOT_BOUND,
     .n = 1,
     .offset = {offsetof(struct replay_result, decode_tokens_per_s),
                offsetof(struct replay_result, bound)},
     .scale = 1,
     .label = {NULL, "bound"}},
    {.title = "Prefill speed",
     .unit = "tok/s",
     .note = "Prompt tokens a second.",
     .n = 1,
     .offset = {offsetof(struct replay_result, prefill_tokens_per_s)},
     .scale = 1},
    {.title = "Time of a decode step",
     .unit = "ms",
     .note = "Bar: the median. Line: the 99th percentile.",
     .kind = PLOT_REACH,
     .least_is_best = true,
     .n = 1,
     .offset = {offsetof(struct replay_result, tpot_p50_s),
                offsetof(struct replay_result, tpot_p99_s)},
     .scale = 1e3,
     .label = {"p50", "p99"}},
    {.title = "Hit rate",
     .unit = "%",
     .note = "Share of activated experts' segments found on the device.",
     .share = true,
     .n = 1,
     .offset = {offsetof(struct replay_result, hit_rate)},
     .scale = 100},
    {.title = "Bytes over the link",
     .unit = "GB",
     .note = "Bytes copied; the other colour is the part that was evicted before use.",
     .kind = PLOT_PART,
     .n = 2,
     .offset = {offsetof(struct replay_result, moved_bytes),
                offsetof(struct replay_result, wasted_bytes)},
     .scale = 1e-9,
     .label = {"used", "wasted"}},
    {.title = "Busy",
     .unit = "%",
     .note = "Shares of the time.",
     .kind = PLOT_SIDE_BY_SIDE,
     .share = true,
     .n = 3,
     .offset = {offsetof(struct replay_result, cpu_busy), offsetof(struct replay_result, link_busy),
                offsetof(struct replay_result, device_busy)},
     .scale = 100,
     .label = {"CPU", "link", "device"}},
};

static void append_legend(const struct plot *p, struct strbuf *out)
{
    static const char *const colours[] = {"--bar", "--second", "--third"};
    for (uint32_t i = 0; i < PLOT_MOST && p->label[i]; i++)
        strbuf_printf(out, "<span class=\"key\" style=\"background:var(%s)\"></span>%s", colours[i],
                      p->label[i]);
}

static bool is_first_of_batch(const struct replay_report *r, uint32_t i,
                              const struct report_group *g)
{
    struct report_group before;
    while (i-- > 0)
        if (report_group_at(r, i, &before) && before.batch == g->batch)
            return false;
    return true;
}

/* A row of pictures: all budgets with this batch, on the same axis. */
static void append_batch(const struct replay_report *r, const struct plot *p, uint32_t batch,
                         struct strbuf *out)
{
    struct report_group g;
    strbuf_printf(out, "<div class=\"grid\">\n");
    for (uint32_t i = 0; report_group_at(r, i, &g); i++) {
        if (g.batch != batch)
            continue;
        char title[64];
        report_group_title(&g, title);
        strbuf_printf(out, "<figure><figcaption>%s</figcaption>\n", title);
        plot_draw(r, p, &g, out);
        strbuf_printf(out, "</figure>\n");
    }
    strbuf_printf(out, "</div>\n");
}

static void append_plot(const struct replay_report *r, const struct plot *p, struct strbuf *out)
{
    if (!plot_has_figures(r, p))
        return;
    strbuf_printf(out, "<section>\n<h2>%s, %s</h2>\n<p>%s", p->title, p->unit, p->note);
    if (p->kind == PLOT_PART || p->kind == PLOT_SIDE_BY_SIDE)
        append_legend(p, out);
    strbuf_printf(out, "</p>\n");
    struct report_group g;
    for (uint32_t i = 0; report_group_at(r, i, &g); i++)
        if (is_first_of_batch(r, i, &g))
            append_batch(r, p, g.batch, out);
    strbuf_printf(out, "</section>\n");
}

/* ---- The table ---- */

static void append_table_rows(const struct replay_report *r, const struct report_group *g,
                              struct strbuf *out)
{
    for (uint32_t k = 0; k < r->n_results; k++) {
        const struct replay_result *row = &r->results[k];
        if (!report_in_group(row, g))
            continue;
        char name[72];
        report_policy_name(row, name);
        strbuf_printf(out, "<tr><th scope=\"row\">");
        html_text(out, name);
        strbuf_printf(out, "</th>");
        for (const struct report_column *c = report_columns; c->key; c++) {
            char text[32];
            report_format_value(c, report_value(row, c), text);
            strbuf_printf(out, "<td>%s</td>", text);
        }
        strbuf_printf(out, "</tr>\n");
    }
}

static void append_table(const struct replay_report *r, struct strbuf *out)
{
    uint32_t n = 1;
    strbuf_printf(out, "<section>\n<h2>All figures</h2>\n<div class=\"scroll\"><table>\n"
                       "<thead><tr><th scope=\"col\">policy</th>");
    for (const struct report_column *c = report_columns; c->key; c++, n++)
        strbuf_printf(out, "<th scope=\"col\" title=\"%s\">%s<small>%s</small></th>", c->what,
                      c->name, c->unit);
    strbuf_printf(out, "</tr></thead>\n<tbody>\n");
    struct report_group g;
    for (uint32_t i = 0; report_group_at(r, i, &g); i++) {
        char title[64];
        report_group_title(&g, title);
        strbuf_printf(out, "<tr class=\"group\"><th colspan=\"%u\">%s</th></tr>\n", n, title);
        append_table_rows(r, &g, out);
    }
    strbuf_printf(out, "</tbody></table></div>\n</section>\n");
}

static void append_notes(const struct replay_report *r, struct strbuf *out)
{
    char note[192];
    for (uint32_t i = 0; report_note_at(r, i, note); i++) {
        strbuf_printf(out, "<p>* ");
        html_text(out, note);
        strbuf_printf(out, "</p>\n");
    }
}

/* ---- The page ---- */

static void append_head(const struct replay_report *r, struct strbuf *out)
{
    strbuf_printf(out, "<!DOCTYPE html>\n<html xmlns=\"http://www.w3.org/1999/xhtml\" "
                       "lang=\"en\">\n<head>\n<meta charset=\"utf-8\" />\n"
                       "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\" />\n"
                       "<title>");
    html_text(out, r->model);
    strbuf_printf(out, " on ");
    html_text(out, r->machine);
    strbuf_printf(out, ": policies replayed</title>\n<style>\n%s</style>\n</head>\n", report_style);
}

void report_html(const struct replay_report *r, struct strbuf *out)
{
    append_head(r, out);
    strbuf_printf(out, "<body>\n<h1>");
    html_text(out, r->model);
    strbuf_printf(out, " on ");
    html_text(out, r->machine);
    strbuf_printf(out, "</h1>\n<p>");
    html_text(out, r->machine_what);
    strbuf_printf(out, "</p>\n<p>Trace: ");
    html_text(out, r->trace);
    strbuf_printf(out, "</p>\n");
    for (size_t i = 0; i < sizeof plots / sizeof *plots; i++)
        append_plot(r, &plots[i], out);
    append_table(r, out);
    append_notes(r, out);
    strbuf_printf(out, "<p>Simulated by moed-replay " MOED_VERSION " in virtual time: <code>");
    html_text(out, r->command);
    strbuf_printf(out, "</code></p>\n</body>\n</html>\n");
}
