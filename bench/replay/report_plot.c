/* Draws bar plots as SVG; see report_plot.h. */
#include "bench/replay/report_plot.h"

#include "base/utf8.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* The dimensions of a picture, in its own units. */
enum { LABEL_WIDTH = 118, BAR_WIDTH = 214, VALUE_WIDTH = 48, ROW = 18, TOP = 4, QUARTERS = 4 };
enum { PICTURE_WIDTH = LABEL_WIDTH + BAR_WIDTH + VALUE_WIDTH };

void html_text(struct strbuf *out, const char *text)
{
    for (size_t n; *text; text += n) {
        unsigned char c = (unsigned char)*text;
        n = utf8_valid_length(text, strlen(text));
        if (c == '<')
            strbuf_printf(out, "&lt;");
        else if (c == '>')
            strbuf_printf(out, "&gt;");
        else if (c == '&')
            strbuf_printf(out, "&amp;");
        else if (c == '"')
            strbuf_printf(out, "&quot;");
        else if (n == 0 || c < 0x20 || c == 0x7f)
            strbuf_append(out, "?", 1);
        else
            strbuf_append(out, text, n);
        n = n ? n : 1;
    }
}

/* ---- Figures ---- */

static double figure(const struct replay_result *r, const struct plot *p, uint32_t i)
{
    double value;
    memcpy(&value, (const char *)r + p->offset[i], sizeof value);
    return value;
}

/* The position of the line; NaN: no line. */
static double line_of(const struct replay_result *r, const struct plot *p)
{
    if (p->kind == PLOT_BOUND)
        return figure(r, p, 0) / figure(r, p, 1);
    return p->kind == PLOT_REACH ? figure(r, p, 1) : NAN;
}

bool plot_has_figures(const struct replay_report *r, const struct plot *p)
{
    for (uint32_t k = 0; k < r->n_results; k++)
        if (isfinite(figure(&r->results[k], p, 0)))
            return true;
    return false;
}

/* Rounds up so that four steps of a round number reach the value. */
static double round_end(double most)
{
    static const double steps[] = {1, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10};
    double power = pow(10, floor(log10(most / QUARTERS))), end = 0;
    for (size_t i = 0; i < sizeof steps / sizeof *steps && end < most * (1 - 1e-9); i++)
        end = QUARTERS * steps[i] * power;
    return end;
}

/* The end of the axis, common to all pictures with this batch. */
static double axis_end(const struct replay_report *r, const struct plot *p, uint32_t batch)
{
    double most = 0;
    if (p->share)
        return 1;
    for (uint32_t k = 0; k < r->n_results; k++) {
        if (r->results[k].batch != batch)
            continue;
        double value = figure(&r->results[k], p, 0), line = line_of(&r->results[k], p);
        most = isfinite(value) && value > most ? value : most;
        most = isfinite(line) && line > most ? line : most;
    }
    return most > 0 ? round_end(most * p->scale) / p->scale : 1;
}

/* The best first value of a group. NaN: the group has no value, or neither direction is better. */
static double best_of(const struct replay_report *r, const struct plot *p,
                      const struct report_group *g)
{
    double best = NAN;
    if (p->kind == PLOT_PART || p->kind == PLOT_SIDE_BY_SIDE)
        return best;
    for (uint32_t k = 0; k < r->n_results; k++) {
        double value = figure(&r->results[k], p, 0);
        if (!report_in_group(&r->results[k], g) || !isfinite(value) || r->results[k].oracle)
            continue;
        if (isnan(best) || (p->least_is_best ? value < best : value > best))
            best = value;
    }
    return best;
}

/* ---- Drawing ---- */

struct canvas {
    const struct plot *plot;
    struct strbuf *out;
    double end, best;
    double y; /* top of the row */
};

static double width_of(const struct canvas *c, double value)
{
    double w = BAR_WIDTH * value / c->end;
    return w < 0 ? 0 : w > BAR_WIDTH ? BAR_WIDTH : w;
}

static void draw_rect(const struct canvas *c, const char *class, double from, double width,
                      double top, double height)
{
    strbuf_printf(c->out,
                  "<rect class=\"%s\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" "
                  "rx=\"1.5\" />",
                  class, LABEL_WIDTH + from, c->y + top, width, height);
}

static void format_shown(const struct plot *p, double value, char out[32])
{
    struct report_column as = {.scale = p->scale,
                               .format = p->share ? REPORT_SHARE : REPORT_DIGITS};
    report_format_value(&as, value, out);
}

/* The tooltip: the policy with all values. */
static void draw_tip(const struct canvas *c, const struct replay_result *r)
{
    char text[32];
    strbuf_printf(c->out, "<title>");
    html_text(c->out, r->policy);
    for (uint32_t i = 0; i < PLOT_MOST && (i < c->plot->n || c->plot->label[i]); i++) {
        double value = i == 1 && c->plot->n == 1 ? line_of(r, c->plot) : figure(r, c->plot, i);
        if (c->plot->kind == PLOT_PART && i == 0)
            value -= isfinite(figure(r, c->plot, 1)) ? figure(r, c->plot, 1) : 0;
        format_shown(c->plot, value, text);
        const char *label = c->plot->label[i];
        strbuf_printf(c->out, "%s%s%s%s %s", i ? ", " : ": ", label ? label : "", label ? " " : "",
                      text, c->plot->unit);
    }
    strbuf_printf(c->out, "</title>");
}

static void draw_side_by_side(const struct canvas *c, const struct replay_result *r)
{
    static const char *const classes[PLOT_MOST] = {"bar", "second", "third"};
    double height = (ROW - 4.0) / c->plot->n;
    for (uint32_t i = 0; i < c->plot->n; i++) {
        double value = figure(r, c->plot, i);
        if (isfinite(value))
            draw_rect(c, classes[i], 0, width_of(c, value), 2 + i * height, height - 0.6);
    }
}

static void draw_bar(const struct canvas *c, const struct replay_result *r, double value)
{
    double width = width_of(c, value), line = line_of(r, c->plot);
    draw_rect(c, value == c->best && !r->oracle ? "best" : "bar", 0, width, 3, ROW - 6);
    if (c->plot->kind == PLOT_PART) {
        double part = figure(r, c->plot, 1);
        double part_width = isfinite(part) ? width_of(c, part) : 0;
        if (part_width > width)
            part_width = width;
        if (part_width > 0)
            draw_rect(c, "second", width - part_width, part_width, 3, ROW - 6);
    }
    if (isfinite(line)) {
        double x = LABEL_WIDTH + width_of(c, line);
        strbuf_printf(c->out,
                      "<line class=\"mark\" x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" />", x,
                      c->y + 1, x, c->y + ROW - 1);
    }
}

static void draw_row(const struct canvas *c, const struct replay_result *r)
{
    double value = figure(r, c->plot, 0);
    char text[32], name[72];
    report_policy_name(r, name);
    format_shown(c->plot, value, text);
    strbuf_printf(c->out, "<g>");
    draw_tip(c, r);
    strbuf_printf(c->out, "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">", LABEL_WIDTH - 6,
                  c->y + ROW - 5);
    html_text(c->out, name);
    strbuf_printf(c->out, "</text>");
    if (c->plot->kind == PLOT_SIDE_BY_SIDE)
        draw_side_by_side(c, r);
    else if (isfinite(value))
        draw_bar(c, r, value);
    if (c->plot->kind != PLOT_SIDE_BY_SIDE)
        strbuf_printf(c->out,
                      "<text class=\"soft\" x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%s</text>",
                      PICTURE_WIDTH - 2, c->y + ROW - 5, text);
    strbuf_printf(c->out, "</g>\n");
}

/* Lines at quarters of the axis, with their values. */
static void draw_axis(const struct canvas *c, double height)
{
    for (int i = 0; i <= QUARTERS; i++) {
        double x = LABEL_WIDTH + (double)BAR_WIDTH * i / QUARTERS;
        strbuf_printf(c->out,
                      "<line class=\"axis\" x1=\"%.1f\" y1=\"%d\" x2=\"%.1f\" y2=\"%.1f\" />", x,
                      TOP, x, height);
        strbuf_printf(
            c->out, "<text class=\"soft\" x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">%.4g</text>",
            x, height + 12, c->end * c->plot->scale * i / QUARTERS);
    }
    strbuf_printf(c->out, "\n");
}

void plot_draw(const struct replay_report *r, const struct plot *p, const struct report_group *g,
               struct strbuf *out)
{
    char title[64];
    uint32_t rows = 0;
    for (uint32_t k = 0; k < r->n_results; k++)
        rows += report_in_group(&r->results[k], g);
    double height = TOP + ROW * (double)rows;
    report_group_title(g, title);
    struct canvas c = {p, out, axis_end(r, p, g->batch), best_of(r, p, g), TOP};
    strbuf_printf(out,
                  "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %.0f\" role=\"img\" "
                  "aria-label=\"%s, %s, %s\">\n",
                  PICTURE_WIDTH, height + 16, p->title, p->unit, title);
    draw_axis(&c, height);
    for (uint32_t k = 0; k < r->n_results; k++) {
        if (!report_in_group(&r->results[k], g))
            continue;
        draw_row(&c, &r->results[k]);
        c.y += ROW;
    }
    strbuf_printf(out, "</svg>\n");
}
