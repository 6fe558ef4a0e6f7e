/* Options of a folder's models; see folder_options.h. */
#include "client/cli/folder_options.h"

#include "base/file_writer.h"
#include "base/strbuf.h"
#include "client/cli/complain.h"
#include "daemon/options_file.h"

#include <math.h>
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

/* Quotes keep a value as it is. */
static void add_text(struct strbuf *out, const char *name, const char *text)
{
    if (text)
        strbuf_printf(out, "%s = \"%s\"\n", name, text);
}

static void add_row(struct strbuf *out, const struct deployment_option *row,
                    const struct deployment_options *o)
{
    char number[24];
    const char *text = deployment_options_text(row, o, number), *name = row->flag + 2;
    if (!text)
        return;
    if (row->type == OPTION_STRING)
        add_text(out, name, text);
    else
        strbuf_printf(out, "%s = %s\n", name, row->type == OPTION_BOOL ? "true" : text);
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
    strbuf_init(&text);
    for (size_t i = 0; i < DEPLOYMENT_OPTIONS_COUNT && !l->model; i++) {
        const struct deployment_option *row = &deployment_options_table[i];
        if (!(row->takers & OF_MODEL))
            continue;
        add_row(&text, row, &l->options);
        clear(row, &l->options);
    }
    if (!l->model) {
        add_text(&text, "vram", o->parts.vram);
        add_text(&text, "reserve", o->parts.reserve);
        add_text(&text, "predictors", o->predictors);
    }
    bool written = write_or_remove(l, &text);
    strbuf_fini(&text);
    return written;
}
