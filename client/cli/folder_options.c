/* Options of a folder's models; see folder_options.h. */
#include "client/cli/folder_options.h"

#include "base/file_writer.h"
#include "base/strbuf.h"
#include "client/cli/complain.h"
#include "daemon/options_file.h"

#include <ctype.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

static void clear(const struct deployment_option *row, struct deployment_options *o)
{
    void *value = (char *)o + row->offset;
    switch (row->type) {
    case OPTION_STRING:
        *(const char **)value = NULL;
        break;
    case OPTION_UINT:
        *(uint64_t *)value = 0;
        break;
    case OPTION_FLOAT:
        *(double *)value = NAN;
        break;
    case OPTION_BOOL:
        *(bool *)value = false;
        break;
    case OPTION_LIST:
    case OPTION_HEADING:
        break;
    }
}

/* A file of options would end the value there: quotes protect neither. */
static bool is_cut(const char *text)
{
    for (const char *c = text; *c; c++)
        if (*c == '\n' || (*c == '#' && c > text && isspace((unsigned char)c[-1])))
            return true;
    return false;
}

/* Quotes keep a value as it is. False: it has complained. */
static bool add_text(struct strbuf *out, const char *name, const char *text)
{
    if (!text)
        return true;
    if (is_cut(text)) {
        cli_complain("--%s \"%s\" cannot be passed on to the folder's models: it has a line break, "
                     "or a '#' after a blank",
                     name, text);
        return false;
    }
    strbuf_printf(out, "%s = \"%s\"\n", name, text);
    return true;
}

/* The same, of a value that is JSON: a line break is white space there, and a '#' is in a string.
 */
static void add_json(struct strbuf *out, const char *name, const char *text)
{
    strbuf_printf(out, "%s = \"", name);
    for (; *text; text++)
        if (*text == '#')
            strbuf_append(out, "\\u0023", 6);
        else
            strbuf_append(out, *text == '\n' ? " " : text, 1);
    strbuf_append(out, "\"\n", 2);
}

/* False: it has complained. */
static bool add_row(struct strbuf *out, const struct deployment_option *row,
                    const struct deployment_options *o)
{
    char number[24];
    const char *text = deployment_options_text(row, o, number), *name = row->flag + 2;
    if (!text)
        return true;
    if (row->type == OPTION_STRING && strcmp(row->value_name, "JSON") != 0)
        return add_text(out, name, text);
    if (row->type == OPTION_STRING)
        add_json(out, name, text);
    else
        strbuf_printf(out, "%s = %s\n", name, row->type == OPTION_BOOL ? "true" : text);
    return true;
}

/* Without the file moed-models starts each model with its own options alone. */
static bool write_or_remove(const struct launch *l, const struct strbuf *text)
{
    char path[RUN_PATH_BYTES];
    struct error e;
    run_dir_file(l->run, OPTIONS_FILE_OF_FOLDER, path);
    if (!text->len) {
        unlink(path);
        return true;
    }
    enum error_code code = run_dir_create(l->run, &e);
    if (!code)
        code = file_write_text(path, text, &e);
    if (code)
        cli_complain("%s", e.text);
    return !code;
}

bool folder_options_take(struct launch *l, const struct folder_options *o)
{
    struct strbuf text;
    bool fine = true;
    strbuf_init(&text);
    for (size_t i = 0; i < DEPLOYMENT_OPTIONS_COUNT && !l->model; i++) {
        const struct deployment_option *row = &deployment_options_table[i];
        if (!(row->takers & OF_MODEL))
            continue;
        fine = add_row(&text, row, &l->options) && fine;
        clear(row, &l->options);
    }
    if (!l->model)
        fine = add_text(&text, "vram", o->parts.vram) &&
               add_text(&text, "reserve", o->parts.reserve) &&
               add_text(&text, "predictors", o->predictors) && fine;
    fine = fine && write_or_remove(l, &text);
    strbuf_fini(&text);
    return fine;
}
