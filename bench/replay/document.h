/* A document of headings, paragraphs and tables, as Markdown or as a page of HTML. */
#ifndef MOED_REPLAY_DOCUMENT_H
#define MOED_REPLAY_DOCUMENT_H

#include "base/strbuf.h"

#include <stdint.h>

struct document {
    bool html;
    struct strbuf *out;
    uint32_t n_columns; /* of the table under way */
};

void document_begin(struct document *d, const char *title);
void document_end(struct document *d);
void document_heading(struct document *d, const char *text);
void document_paragraph(struct document *d, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* headings: separated by "|". A row has as many cells, in the same way; a cell has no "|". */
void document_table(struct document *d, const char *headings);
void document_row(struct document *d, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void document_table_end(struct document *d);

#endif
