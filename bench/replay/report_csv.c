/* Results as comma-separated values; see report.h. */
#include "bench/replay/report.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* RFC 4180: quotes a text that has a comma, a quote or a line break, and doubles its quotes. */
static void append_text(struct strbuf *out, const char *text)
{
    if (!strpbrk(text, ",\"\r\n")) {
        strbuf_append(out, text, strlen(text));
        return;
    }
    strbuf_append(out, "\"", 1);
    for (; *text; text++)
        strbuf_append(out, *text == '"' ? "\"\"" : text, *text == '"' ? 2 : 1);
    strbuf_append(out, "\"", 1);
}

static void append_number(struct strbuf *out, double value)
{
    strbuf_append(out, ",", 1);
    if (isfinite(value))
        strbuf_printf(out, "%.17g", value);
}

static void append_words(const struct replay_report *r, const char *note, struct strbuf *out)
{
    const char *words[] = {r->model, r->trace, r->machine, note};
    for (int i = 0; i < 4; i++) {
        strbuf_append(out, ",", 1);
        append_text(out, words[i]);
    }
    strbuf_append(out, "\r\n", 2);
}

static void append_result(const struct replay_report *r, const struct replay_result *row,
                          struct strbuf *out)
{
    append_text(out, row->policy);
    append_number(out, row->vram);
    strbuf_printf(out, ",%" PRIu32 ",%" PRIu64 ",%" PRIu64, row->batch, row->decode_tokens,
                  row->prefill_tokens);
    for (const struct report_column *c = report_columns; c->key; c++)
        append_number(out, report_value(row, c));
    for (const struct report_column *c = report_more_columns; c->key; c++)
        append_number(out, report_value(row, c));
    append_words(r, row->note, out);
}

/* A row without values for each budget and batch, so that a reader of the file sees what is
 * missing. */
static void append_left_out(const struct replay_report *r, struct strbuf *out)
{
    struct report_group g;
    for (uint32_t i = 0; report_group_at(r, i, &g); i++) {
        append_text(out, "optimal");
        append_number(out, g.vram);
        strbuf_printf(out, ",%" PRIu32 ",,", g.batch);
        for (const struct report_column *c = report_columns; c->key; c++)
            append_number(out, NAN);
        for (const struct report_column *c = report_more_columns; c->key; c++)
            append_number(out, NAN);
        append_words(r, REPORT_WITHOUT_SOLVER, out);
    }
}

void report_csv(const struct replay_report *r, struct strbuf *out)
{
    strbuf_printf(out, "policy,vram,batch,decode_tokens,prefill_tokens");
    for (const struct report_column *c = report_columns; c->key; c++)
        strbuf_printf(out, ",%s", c->key);
    for (const struct report_column *c = report_more_columns; c->key; c++)
        strbuf_printf(out, ",%s", c->key);
    strbuf_printf(out, ",model,trace,machine,note\r\n");
    for (uint32_t k = 0; k < r->n_results; k++)
        append_result(r, &r->results[k], out);
    if (r->without_solver)
        append_left_out(r, out);
}
