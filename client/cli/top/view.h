/* The page of `moed top`: lines of text from samples, for a terminal and for --once. */
#ifndef MOED_CLI_TOP_VIEW_H
#define MOED_CLI_TOP_VIEW_H

#include "base/strbuf.h"
#include "client/cli/top/sample.h"

#include <stdbool.h>

enum view_sort { SORT_ORDER, SORT_MEMORY, SORT_CPU, SORT_RESTARTS, SORT_NAME, SORT_KEYS };

struct view {
    int width, height; /* in columns and lines; height 0: no limit */
    bool utf8;         /* bars of block characters */
    bool keys;         /* the line of keys */
    bool paused, help;
    enum view_sort sort;
    double interval_s;
    unsigned deployments, chosen; /* how many there are, and which one this is, from 1 */
};

enum view_style { STYLE_PLAIN, STYLE_TITLE, STYLE_HEAD, STYLE_ALARM };

enum { VIEW_LINES = 40 };

struct view_page {
    struct strbuf text[VIEW_LINES]; /* without newlines, at most `width` columns each */
    enum view_style style[VIEW_LINES];
    unsigned n;
};

/* `before` is an earlier sample of the same deployment, for rates; NULL: none. The caller frees the
 * page with view_fini. */
void view_draw(const struct view *v, const struct sample *now, const struct sample *before,
               struct view_page *out);
/* Only the lines of the expert cache and of the experts by place. */
void view_draw_experts(const struct view *v, const struct sample *now, struct view_page *out);
void view_fini(struct view_page *page);

/* Appends `columns` columns of a bar that is filled to `share`. */
void view_bar(struct strbuf *out, double share, int columns, bool utf8);
const char *view_sort_name(enum view_sort sort);

/* The same figures as one JSON object; what is not measured is absent. */
void view_json(const struct sample *now, const struct sample *before, struct strbuf *out);

#endif
