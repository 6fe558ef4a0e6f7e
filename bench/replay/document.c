/* Markdown and HTML; see document.h. */
#include "bench/replay/document.h"
#include "bench/replay/report_plot.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { MOST_TEXT = 2048 };

void document_begin(struct document *d, const char *title)
{
    if (!d->html) {
        strbuf_printf(d->out, "# %s\n", title);
        return;
    }
    strbuf_printf(d->out,
                  "<!DOCTYPE html>\n<html xmlns=\"http://www.w3.org/1999/xhtml\" lang=\"en\">\n"
                  "<head>\n<meta charset=\"utf-8\" />\n<meta name=\"viewport\" "
                  "content=\"width=device-width,initial-scale=1\" />\n<title>");
    html_text(d->out, title);
    strbuf_printf(d->out, "</title>\n<style>\n%s</style>\n</head>\n<body>\n<h1>", report_style);
    html_text(d->out, title);
    strbuf_printf(d->out, "</h1>\n");
}

void document_end(struct document *d)
{
    if (d->html)
        strbuf_printf(d->out, "</body>\n</html>\n");
}

static void element(struct document *d, const char *name, const char *text)
{
    strbuf_printf(d->out, "<%s>", name);
    html_text(d->out, text);
    strbuf_printf(d->out, "</%s>", name);
}

void document_heading(struct document *d, const char *text)
{
    if (!d->html) {
        strbuf_printf(d->out, "\n## %s\n", text);
        return;
    }
    element(d, "h2", text);
    strbuf_printf(d->out, "\n");
}

void document_paragraph(struct document *d, const char *format, ...)
{
    char text[MOST_TEXT];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (!d->html) {
        strbuf_printf(d->out, "\n%s\n", text);
        return;
    }
    element(d, "p", text);
    strbuf_printf(d->out, "\n");
}

/* One cell for each part between "|". Returns their number. */
static uint32_t append_cells(struct document *d, char *cells, const char *name)
{
    uint32_t n = 0;
    const char *cell;
    strbuf_printf(d->out, d->html ? "<tr>" : "|");
    for (; (cell = strsep(&cells, "|")); n++) {
        if (d->html)
            element(d, n ? name : "th", cell);
        else
            strbuf_printf(d->out, " %s |", cell);
    }
    strbuf_printf(d->out, d->html ? "</tr>\n" : "\n");
    return n;
}

void document_table(struct document *d, const char *headings)
{
    char cells[MOST_TEXT];
    snprintf(cells, sizeof cells, "%s", headings);
    strbuf_printf(d->out, d->html ? "<div class=\"scroll\"><table>\n<thead>" : "\n");
    d->n_columns = append_cells(d, cells, "th");
    if (d->html)
        strbuf_printf(d->out, "</thead>\n<tbody>\n");
    for (uint32_t i = 0; !d->html && i < d->n_columns; i++)
        strbuf_printf(d->out, "|---");
    strbuf_printf(d->out, d->html ? "" : "|\n");
}

void document_row(struct document *d, const char *format, ...)
{
    char cells[MOST_TEXT];
    va_list args;
    va_start(args, format);
    vsnprintf(cells, sizeof cells, format, args);
    va_end(args);
    append_cells(d, cells, "td");
}

void document_table_end(struct document *d)
{
    if (d->html)
        strbuf_printf(d->out, "</tbody></table></div>\n");
}
