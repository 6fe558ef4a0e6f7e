/* Options for structured output; see grammar_options.h. */
#include "client/cli/grammar_options.h"

#include "client/cli/ask.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A longer one is refused by the worker: it is read no further. */
enum { MOST_BYTES = 1 << 20 };

static bool read_file(const char *path, struct strbuf *out)
{
    char block[4096];
    size_t n;
    FILE *f = fopen(path, "r");
    if (!f) {
        cli_complain("run: cannot read %s: %s", path, strerror(errno));
        return false;
    }
    while (out->len < MOST_BYTES && (n = fread(block, 1, sizeof block, f)) > 0)
        strbuf_append(out, block, n);
    bool failed = ferror(f) || out->failed;
    if (failed)
        cli_complain("run: cannot read %s: %s", path, strerror(out->failed ? ENOMEM : errno));
    fclose(f);
    return !failed;
}

static bool make_choices(struct grammar_options *o)
{
    json_t *list = json_array();
    for (size_t i = 0; i < o->choice_count; i++)
        if (json_array_append_new(list, json_string(o->choices[i]))) {
            cli_complain("run: --choice '%.40s' is not UTF-8", o->choices[i]);
            json_decref(list);
            return false;
        }
    char *text = json_dumps(list, JSON_COMPACT);
    json_decref(list);
    if (text)
        strbuf_append(&o->text, text, strlen(text));
    free(text);
    return true;
}

static bool is_schema_text(const char *argument)
{
    return argument[strspn(argument, " \t\r\n")] == '{' || strcmp(argument, "true") == 0;
}

static bool make_text(struct grammar_options *o)
{
    struct moed_grammar *g = &o->grammar;
    if (o->json_schema) {
        g->kind = MOED_GRAMMAR_JSON_SCHEMA;
        if (!is_schema_text(o->json_schema))
            return read_file(o->json_schema, &o->text);
        strbuf_append(&o->text, o->json_schema, strlen(o->json_schema));
    } else if (o->json_object) {
        g->kind = MOED_GRAMMAR_JSON_SCHEMA;
        strbuf_printf(&o->text, "{\"type\": \"object\"}");
    } else if (o->grammar_file) {
        g->kind = MOED_GRAMMAR_GBNF;
        return read_file(o->grammar_file, &o->text);
    } else if (o->regex) {
        g->kind = MOED_GRAMMAR_REGEX;
        strbuf_append(&o->text, o->regex, strlen(o->regex));
    } else if (o->choice_count) {
        g->kind = MOED_GRAMMAR_CHOICES;
        return make_choices(o);
    }
    return true;
}

bool grammar_options_make(struct grammar_options *o)
{
    int given =
        !!o->json_schema + o->json_object + !!o->grammar_file + !!o->regex + (o->choice_count > 0);
    o->grammar =
        (struct moed_grammar){.size = sizeof(struct moed_grammar), .kind = MOED_GRAMMAR_NONE};
    if (given > 1) {
        cli_complain("--json-schema, --json-object, --grammar, --regex and --choice: give one "
                     "of them");
        return false;
    }
    strbuf_init(&o->text);
    if (!make_text(o))
        return false;
    if (o->text.failed) {
        cli_complain("no memory for the options");
        return false;
    }
    o->grammar.text = o->text.data;
    o->grammar.text_bytes = o->text.len;
    return true;
}

void grammar_options_fini(struct grammar_options *o)
{
    strbuf_fini(&o->text);
}
