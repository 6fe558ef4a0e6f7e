/* Speeds over the share of the experts on the device, one picture for each model and batch; see
 * grid_report.h. */
#include "bench/replay/grid_report.h"
#include "bench/replay/report_plot.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

enum { WIDTH = 520, HEIGHT = 300, LEFT = 46, RIGHT = 130, TOP = 12, BOTTOM = 30, TICKS = 4 };

/* The cells of one picture, by rising share. */
struct picture {
    const struct score_table *scores;
    const struct score_cell *cells;
    uint32_t n;
    double most; /* speed at the top */
    struct strbuf *out;
};

static bool is_curve(const struct score_cell *c)
{
    return strcmp(c->job->section, "curves") == 0;
}

static bool same_picture(const struct score_cell *a, const struct score_cell *b)
{
    return a->job->model == b->job->model && a->job->machine == b->job->machine &&
           a->batch == b->batch;
}

static double x_of(const struct score_cell *c)
{
    return LEFT + (WIDTH - LEFT - RIGHT) * c->vram;
}

static double y_of(const struct picture *p, double speed)
{
    return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * speed / p->most;
}

static double speed_of(const struct picture *p, uint32_t cell, uint32_t policy)
{
    return exp(score_log_speed(&p->cells[cell], p->scores, policy));
}

static void draw_axes(const struct picture *p)
{
    for (int i = 0; i <= TICKS; i++) {
        double speed = p->most * i / TICKS, y = y_of(p, speed);
        double x = LEFT + (WIDTH - LEFT - RIGHT) * (double)i / TICKS;
        strbuf_printf(p->out,
                      "<line class=\"axis\" x1=\"%d\" y1=\"%.1f\" x2=\"%d\" y2=\"%.1f\" />"
                      "<text class=\"soft\" x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%.4g</text>"
                      "<text class=\"soft\" x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%d "
                      "%%</text>\n",
                      LEFT, y, WIDTH - RIGHT, y, LEFT - 4, y + 4, speed, x, HEIGHT - BOTTOM + 16,
                      100 * i / TICKS);
    }
}

/* policy n_policies: the bound. */
static void draw_line(const struct picture *p, uint32_t policy, const char *name,
                      const char *colour, const char *more)
{
    bool begun = false;
    strbuf_printf(p->out, "<path fill=\"none\" stroke=\"var(%s)\"%s d=\"", colour, more);
    for (uint32_t i = 0; i < p->n; i++) {
        double speed = speed_of(p, i, policy);
        if (isnan(speed))
            continue;
        strbuf_printf(p->out, "%c%.1f %.1f", begun ? 'L' : 'M', x_of(&p->cells[i]), y_of(p, speed));
        begun = true;
    }
    if (!begun) /* a path has at least a point */
        strbuf_printf(p->out, "M0 0");
    strbuf_printf(p->out, "\"><title>");
    html_text(p->out, name);
    strbuf_printf(p->out, "</title></path>\n");
}

/* The fastest policy at each share that is not beside the first label. */
static void mark_best(const struct picture *p)
{
    const struct score_table *s = p->scores;
    const char *before = "";
    for (uint32_t i = 0; i < p->n; i++) {
        uint32_t best = score_other(s, &p->cells[i], SCORE_BEST_OTHER);
        if (best == s->n_policies || speed_of(p, i, s->subject) >= speed_of(p, i, best))
            best = s->subject;
        double x = x_of(&p->cells[i]), y = y_of(p, speed_of(p, i, best));
        strbuf_printf(p->out, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3.5\" fill=\"var(%s)\"><title>",
                      x, y, best == s->subject ? "--best" : "--second");
        html_text(p->out, s->policies[best]);
        strbuf_printf(p->out, "</title></circle>");
        if (best != s->subject && strcmp(before, s->policies[best]) != 0) {
            strbuf_printf(p->out, "<text class=\"soft\" x=\"%.1f\" y=\"%.1f\">", x + 5, y + 14);
            html_text(p->out, s->policies[best]);
            strbuf_printf(p->out, "</text>");
        }
        before = s->policies[best];
    }
    strbuf_printf(p->out, "\n");
}

static void label_end(const struct picture *p, uint32_t policy, const char *name)
{
    const struct score_cell *last = &p->cells[p->n - 1];
    double speed = speed_of(p, p->n - 1, policy);
    if (isnan(speed))
        return;
    strbuf_printf(p->out, "<text x=\"%.1f\" y=\"%.1f\">", x_of(last) + 7, y_of(p, speed) + 4);
    html_text(p->out, name);
    strbuf_printf(p->out, "</text>\n");
}

static void draw(struct picture *p)
{
    const struct score_table *s = p->scores;
    const struct score_cell *first = p->cells;
    for (uint32_t i = 0; i < p->n; i++)
        for (uint32_t k = 0; k <= s->n_policies; k++)
            p->most = fmax(p->most, speed_of(p, i, k)); /* fmax omits NaN */
    strbuf_printf(p->out, "<figure><figcaption>");
    html_text(p->out, first->job->model->name);
    strbuf_printf(p->out, " on ");
    html_text(p->out, first->job->machine);
    strbuf_printf(p->out,
                  ", batch %" PRIu32 ", tokens/s</figcaption>\n<svg "
                  "xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" role=\"img\" "
                  "aria-label=\"speed over the share of the experts on the device\">\n",
                  first->batch, WIDTH, HEIGHT);
    draw_axes(p);
    for (uint32_t k = 0; k < s->n_policies; k++)
        if (k != s->subject)
            draw_line(p, k, s->policies[k], "--bar", " stroke-opacity=\"0.6\"");
    draw_line(p, s->n_policies, "bound", "--mark", " stroke-dasharray=\"5 3\"");
    draw_line(p, s->subject, s->policies[s->subject], "--best", " stroke-width=\"2\"");
    mark_best(p);
    label_end(p, s->n_policies, "bound");
    label_end(p, s->subject, s->policies[s->subject]);
    strbuf_printf(p->out, "</svg></figure>\n");
}

/* Cells are ordered by share, then batch: the picture's are gathered first. */
static uint32_t gather(const struct score_table *s, uint32_t first, struct score_cell *cells)
{
    uint32_t n = 0;
    for (uint32_t i = first; i < s->n_cells && n < GRID_MOST_VALUES; i++)
        if (is_curve(&s->cells[i]) && same_picture(&s->cells[i], &s->cells[first]))
            cells[n++] = s->cells[i];
    return n;
}

static bool is_drawn(const struct score_table *s, uint32_t i)
{
    for (uint32_t k = 0; k < i; k++)
        if (is_curve(&s->cells[k]) && same_picture(&s->cells[k], &s->cells[i]))
            return true;
    return false;
}

void grid_report_curves(const struct score_table *s, struct strbuf *out)
{
    struct score_cell cells[GRID_MOST_VALUES];
    strbuf_printf(out, "<p>Each line is a policy (its name appears under the pointer), the dashed "
                       "one the bound. Points mark the fastest policy of each share.</p>\n"
                       "<div class=\"grid\">\n");
    for (uint32_t i = 0; i < s->n_cells; i++) {
        if (!is_curve(&s->cells[i]) || is_drawn(s, i))
            continue;
        struct picture p = {s, cells, gather(s, i, cells), 0, out};
        draw(&p);
    }
    strbuf_printf(out, "</div>\n");
}
