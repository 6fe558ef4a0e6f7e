/* The tables of the report; see grid_report.h. */
#include "bench/replay/grid_report.h"
#include "bench/replay/document.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct metric {
    const char *name;
    size_t offset; /* of the scores in struct grid_report */
} metrics[] = {{"decode", offsetof(struct grid_report, decode)},
               {"prefill", offsetof(struct grid_report, prefill)}};
enum { N_METRICS = sizeof metrics / sizeof *metrics };

static const struct score_table *scores_of(const struct grid_report *r, const struct metric *m)
{
    return (const struct score_table *)((const char *)r + m->offset);
}

/* ---- One sum as a row ---- */

#define SUM_HEADINGS "cells|wins|ties|losses|mean ratio|95 % interval|least|most|first"

static void append_sum(struct document *d, const char *label, const struct score_sum *s)
{
    char interval[48] = "one seed";
    if (!s->cells)
        return;
    if (!isnan(s->ratio.low))
        snprintf(interval, sizeof interval, "%.3f to %.3f", s->ratio.low, s->ratio.high);
    document_row(d, "%s|%" PRIu32 "|%" PRIu32 "|%" PRIu32 "|%" PRIu32 "|%.3f|%s|%.3f|%.3f|%" PRIu32,
                 label, s->cells, s->wins, s->ties, s->losses, s->ratio.mean, interval, s->least,
                 s->most, s->first);
}

static void append_against(struct document *d, const struct score_table *s, const char *label,
                           uint32_t other, score_keep *keep, const void *arg)
{
    struct score_sum sum = score_against(s, other, keep, arg);
    append_sum(d, label, &sum);
}

/* The budgets that users choose most; the goal over qstar is for them. */
static bool is_usual_budget(const void *arg, const struct score_cell *c)
{
    (void)arg;
    return c->vram > 0.099 && c->vram < 0.501;
}

static void append_summary(struct document *d, const struct grid_report *r)
{
    char label[96];
    document_table(d, GRID_SUBJECT " against|" SUM_HEADINGS);
    for (int m = 0; m < N_METRICS; m++) {
        const struct score_table *s = scores_of(r, &metrics[m]);
        snprintf(label, sizeof label, "the best other of each cell, %s", metrics[m].name);
        append_against(d, s, label, SCORE_BEST_OTHER, NULL, NULL);
        snprintf(label, sizeof label, "the best preset of each cell, %s", metrics[m].name);
        append_against(d, s, label, SCORE_BEST_PRESET, NULL, NULL);
    }
    for (uint32_t p = 0; p < r->decode.n_policies; p++)
        if (strcmp(r->decode.policies[p], "qstar") == 0)
            append_against(d, &r->decode, "qstar at 10 to 50 % on the device, decode", p,
                           is_usual_budget, NULL);
    document_table_end(d);
}

static void append_policies(struct document *d, const struct score_table *s)
{
    document_table(d, GRID_SUBJECT " against|" SUM_HEADINGS);
    for (uint32_t p = 0; p < s->n_policies; p++)
        if (p != s->subject)
            append_against(d, s, s->policies[p], p, NULL, NULL);
    document_table_end(d);
}

/* ---- By axis ---- */

/* The text of a cell's value of an axis. */
typedef void axis_text(const struct score_cell *c, char out[64]);

static void section_text(const struct score_cell *c, char out[64])
{
    snprintf(out, 64, "section %s", c->job->section);
}

static void model_text(const struct score_cell *c, char out[64])
{
    snprintf(out, 64, "model %s", c->job->model->name);
}

static void machine_text(const struct score_cell *c, char out[64])
{
    snprintf(out, 64, "machine %s", c->job->machine);
}

static void vram_text(const struct score_cell *c, char out[64])
{
    snprintf(out, 64, "%g %% on the device", round(1000 * c->vram) / 10);
}

static void batch_text(const struct score_cell *c, char out[64])
{
    snprintf(out, 64, "batch %" PRIu32, c->batch);
}

static void prompt_text(const struct score_cell *c, char out[64])
{
    snprintf(out, 64, "prompt of %" PRIu32, c->job->prompt);
}

static void locality_text(const struct score_cell *c, char out[64])
{
    snprintf(out, 64, "locality %g", c->job->locality);
}

static void skew_text(const struct score_cell *c, char out[64])
{
    snprintf(out, 64, "skew %g", c->job->skew);
}

static void predictability_text(const struct score_cell *c, char out[64])
{
    snprintf(out, 64, "predictability %g", c->job->predictability);
}

static axis_text *const axes[] = {section_text,  model_text, machine_text,
                                  vram_text,     batch_text, prompt_text,
                                  locality_text, skew_text,  predictability_text};

struct same_text {
    axis_text *text;
    char value[64];
};

static bool has_text(const void *arg, const struct score_cell *c)
{
    const struct same_text *s = arg;
    char text[64];
    s->text(c, text);
    return strcmp(text, s->value) == 0;
}

/* True: an earlier cell has the value of cell i. */
static bool is_repeated(const struct score_table *s, uint32_t i, const struct same_text *same)
{
    while (i-- > 0)
        if (has_text(same, &s->cells[i]))
            return true;
    return false;
}

static void append_axes(struct document *d, const struct score_table *s)
{
    document_table(d, "cells of|" SUM_HEADINGS);
    for (size_t a = 0; a < sizeof axes / sizeof *axes; a++)
        for (uint32_t i = 0; i < s->n_cells; i++) {
            struct same_text same = {.text = axes[a]};
            same.text(&s->cells[i], same.value);
            if (!is_repeated(s, i, &same))
                append_against(d, s, same.value, SCORE_BEST_OTHER, has_text, &same);
        }
    document_table_end(d);
}

/* ---- Losses ---- */

struct loss {
    const struct score_cell *cell;
    uint32_t other;
    struct score_mean ratio;
};

static int compare_losses(const void *a, const void *b)
{
    const struct loss *x = a, *y = b;
    return (x->ratio.mean > y->ratio.mean) - (x->ratio.mean < y->ratio.mean);
}

/* [*n], the worst first; the caller frees it. NULL: no memory. */
static struct loss *find_losses(const struct score_table *s, uint32_t *n)
{
    struct loss *losses = calloc(s->n_cells + 1, sizeof *losses);
    *n = 0;
    for (uint32_t i = 0; losses && i < s->n_cells; i++) {
        const struct score_cell *c = &s->cells[i];
        struct score_mean ratio = score_cell_ratio(s, c, SCORE_BEST_OTHER);
        if (score_verdict(ratio.mean) == SCORE_LOSS)
            losses[(*n)++] = (struct loss){c, score_other(s, c, SCORE_BEST_OTHER), ratio};
    }
    if (losses)
        qsort(losses, *n, sizeof *losses, compare_losses);
    return losses;
}

static void append_loss(struct document *d, const struct score_table *s, const struct loss *l)
{
    const struct grid_job *j = l->cell->job;
    char interval[48] = "one seed";
    if (!isnan(l->ratio.low))
        snprintf(interval, sizeof interval, "%.3f to %.3f", l->ratio.low, l->ratio.high);
    document_row(d, "%s|%s|%s|%g|%g|%g|%" PRIu32 "|%g %%|%" PRIu32 "|%.3f|%s|%s", j->section,
                 j->model->name, j->machine, j->locality, j->skew, j->predictability, j->prompt,
                 round(1000 * l->cell->vram) / 10, l->cell->batch, l->ratio.mean, interval,
                 s->policies[l->other]);
}

static void append_losses(struct document *d, const struct score_table *s)
{
    uint32_t n;
    struct loss *losses = find_losses(s, &n);
    if (!losses) {
        d->out->failed = true;
        return;
    }
    if (!n)
        document_paragraph(d, "None.");
    else
        document_table(d, "section|model|machine|locality|skew|predictability|prompt|device|batch|"
                          "ratio|95 % interval|best other");
    for (uint32_t i = 0; i < n; i++)
        append_loss(d, s, &losses[i]);
    if (n)
        document_table_end(d);
    free(losses);
}

/* ---- What was compared ---- */

static void append_method(struct document *d, const struct grid_report *r)
{
    document_paragraph(
        d,
        "%" PRIu32 " traces on machines, %" PRIu32 " cells, seeds %d to %d. A cell's ratio is the "
        "geometric mean over its seeds of " GRID_SUBJECT "'s speed by the other's; a tie is within "
        "%g %%; first: the ratio is at least 1. The best other is chosen in each cell, after the "
        "fact, from all policies below. "
        "Policies that know the future are not compared; the curves show the bound.",
        r->grid->n_jobs, r->decode.n_cells, GRID_FIRST_SEED,
        GRID_FIRST_SEED + (int)r->decode.n_seeds - 1, 100 * SCORE_TIE);
    document_paragraph(
        d,
        "Traces are synthetic and have fewer layers than the models. These seeds are "
        "for evaluation. The constants were chosen with another seed on the shape of qwen3-30b and "
        "machine 4090-14900k (docs/design/caching.md): this model and this machine are not new to "
        "them. %" PRIu32 " cells, of all seeds, are left out, "
        "because the model or this share of its experts does not fit the machine.",
        r->grid->n_impossible);
    document_paragraph(d, "Made by moed-replay " MOED_VERSION ": %s", r->command);
}

static void append_models(struct document *d)
{
    document_table(d, "model|locality|skew|topic strength|predictability|from");
    for (const struct grid_model *m = grid_models; m->name; m++)
        document_row(d, "%s|%g|%g|%g|%g|%s", m->name, m->locality, m->skew, m->topic_strength,
                     m->predictability, m->source);
    document_table_end(d);
}

static bool is_noted_before(const struct grid_report *r, uint32_t i)
{
    for (uint32_t k = 0; k < i; k++)
        if (strcmp(r->rows[k].result.policy, r->rows[i].result.policy) == 0)
            return true;
    return false;
}

/* All jobs have the same policies, so the first job's notes are all notes. */
static void append_notes(struct document *d, const struct grid_report *r)
{
    for (uint32_t i = 0; i < r->n_rows && r->rows[i].job == r->rows[0].job; i++)
        if (r->rows[i].result.note[0] && !is_noted_before(r, i))
            document_paragraph(d, "%s: %s", r->rows[i].result.policy, r->rows[i].result.note);
}

void grid_report_text(const struct grid_report *r, bool html, struct strbuf *out)
{
    struct document d = {.html = html, .out = out};
    char heading[96];
    document_begin(&d, "Policies replayed over a grid");
    append_method(&d, r);
    document_heading(&d, "Summary");
    append_summary(&d, r);
    if (html) {
        document_heading(&d, "Decode speed over the device's share of the experts");
        grid_report_curves(&r->decode, out);
    }
    for (int m = 0; m < N_METRICS; m++) {
        const struct score_table *s = scores_of(r, &metrics[m]);
        snprintf(heading, sizeof heading, "Each policy, %s", metrics[m].name);
        document_heading(&d, heading);
        append_policies(&d, s);
        snprintf(heading, sizeof heading, "Against the best other by axis, %s", metrics[m].name);
        document_heading(&d, heading);
        append_axes(&d, s);
        snprintf(heading, sizeof heading, "Losses, %s", metrics[m].name);
        document_heading(&d, heading);
        append_losses(&d, s);
    }
    document_heading(&d, "Models");
    append_models(&d);
    append_notes(&d, r);
    document_end(&d);
}

void grid_report_summary(const struct grid_report *r, struct strbuf *out)
{
    struct document d = {.out = out};
    append_summary(&d, r);
}

/* ---- CSV ---- */

void grid_report_csv(const struct grid_report *r, struct strbuf *out)
{
    static const char *const verdicts[] = {"win", "tie", "loss"};
    strbuf_printf(out,
                  "metric,section,model,machine,locality,skew,predictability,prompt,vram,batch,"
                  "tokens_per_s,best_other,ratio,low,high,verdict\n");
    for (int m = 0; m < N_METRICS; m++) {
        const struct score_table *s = scores_of(r, &metrics[m]);
        for (uint32_t i = 0; i < s->n_cells; i++) {
            const struct score_cell *c = &s->cells[i];
            const struct grid_job *j = c->job;
            struct score_mean ratio = score_cell_ratio(s, c, SCORE_BEST_OTHER);
            if (isnan(ratio.mean))
                continue;
            strbuf_printf(out, "%s,%s,%s,%s,%g,%g,%g,%" PRIu32 ",%g,%" PRIu32 ",%.6g,%s,%.6f,",
                          metrics[m].name, j->section, j->model->name, j->machine, j->locality,
                          j->skew, j->predictability, j->prompt, c->vram, c->batch,
                          exp(score_log_speed(c, s, s->subject)),
                          s->policies[score_other(s, c, SCORE_BEST_OTHER)], ratio.mean);
            if (!isnan(ratio.low))
                strbuf_printf(out, "%.6f,%.6f", ratio.low, ratio.high);
            else
                strbuf_printf(out, ",");
            strbuf_printf(out, ",%s\n", verdicts[score_verdict(ratio.mean)]);
        }
    }
}
