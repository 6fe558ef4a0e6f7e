/* Settings of `moed chat`; see settings.h. */
#include "client/cli/chat/settings.h"

#include "client/cli/ask.h"
#include "client/cli/commands.h"
#include "model/sampling.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const views[] = {"fold", "show", "off"};

/* ---- What /set changes too ---- */

enum { MAX_ROWS = 48 };

static void table_of_numbers(struct settings *s, struct option_spec out[MAX_ROWS])
{
    const struct option_spec rows[] = {
        {"n", OPTION_UINT, &s->n, 0, UINT32_MAX, "N", "stop after N tokens; 0: no limit"},
        SAMPLING_OPTIONS_USUAL(&s->sampling),
        SAMPLING_OPTIONS_OTHER(&s->sampling),
        {0},
    };
    _Static_assert(sizeof rows <= MAX_ROWS * sizeof *rows, "the rows fit");
    memcpy(out, rows, sizeof rows);
}

static const struct option_spec *find_row(const struct option_spec *table, const char *name)
{
    for (; table->name; table++)
        if (strcmp(table->name, name) == 0)
            return table;
    return NULL;
}

static void reset_row(const struct option_spec *row)
{
    if (row->type == OPTION_FLOAT)
        *(double *)row->target = NAN;
    else if (row->type == OPTION_STRING)
        *(const char **)row->target = NULL;
    else
        *(uint64_t *)row->target = strcmp(row->name, "n") == 0 ? 0 : UINT64_MAX;
}

/* The worker would refuse each question. */
static enum error_code check_order(const char *letters, struct error *e)
{
    struct sampling any = {0};
    return sampling_set_order(&any, letters, strlen(letters), e);
}

static enum error_code set_number(struct settings *s, const char *name, const char *value,
                                  struct error *e)
{
    struct option_spec table[MAX_ROWS];
    struct error why;
    char flag[64], text[64];
    table_of_numbers(s, table);
    const struct option_spec *row = find_row(table, name);
    if (!row)
        return error_set(e, ERROR_USAGE, "there is no setting %.40s: /? set lists them", name);
    if (strcmp(value, "default") == 0) {
        reset_row(row);
        return ERROR_OK;
    }
    if (strcmp(name, "mirostat") == 0 && strcmp(value, "1") == 0)
        return error_set(e, ERROR_USAGE, "mirostat: expected 2 or 0, not 1");
    enum error_code code = row->type == OPTION_STRING ? check_order(value, e) : ERROR_OK;
    if (code)
        return code;
    snprintf(flag, sizeof flag, "%s%s", row->name[1] ? "--" : "-", row->name);
    snprintf(text, sizeof text, "%s", value);
    char *argv[] = {(char *)"set", flag, text, NULL};
    if (options_parse(table, 3, argv, NULL, &why))
        return error_set(e, ERROR_USAGE, "%s", why.text + strspn(why.text, "-"));
    if (row->type != OPTION_STRING)
        return ERROR_OK;
    free(s->order);
    s->order = strdup(text);
    s->sampling.order = s->order;
    return s->order ? ERROR_OK : error_set(e, ERROR_MEMORY, "no memory");
}

static enum error_code set_view(struct settings *s, const char *value, struct error *e)
{
    for (int i = 0; i < 3; i++)
        if (strcmp(value, views[i]) == 0) {
            s->view = (enum thinking_view)i;
            return ERROR_OK;
        }
    return error_set(e, ERROR_USAGE, "thinking: expected show, fold or off, not %.40s", value);
}

static enum error_code set_figures(struct settings *s, const char *value, struct error *e)
{
    if (strcmp(value, "on") && strcmp(value, "off"))
        return error_set(e, ERROR_USAGE, "figures: expected on or off, not %.40s", value);
    s->figures = value[1] == 'n';
    return ERROR_OK;
}

enum error_code settings_set(struct settings *s, const char *name, const char *value,
                             struct error *e)
{
    if (strcmp(name, "thinking") == 0)
        return set_view(s, value, e);
    if (strcmp(name, "figures") == 0)
        return set_figures(s, value, e);
    return set_number(s, name, value, e);
}

static void print_row(const struct option_spec *row, struct strbuf *out)
{
    if (row->type == OPTION_FLOAT && !isnan(*(double *)row->target))
        strbuf_printf(out, "  %-18s %g\n", row->name, *(double *)row->target);
    else if (row->type == OPTION_STRING && *(const char **)row->target)
        strbuf_printf(out, "  %-18s %s\n", row->name, *(const char **)row->target);
    else if (row->type == OPTION_UINT && *(uint64_t *)row->target != UINT64_MAX &&
             (*(uint64_t *)row->target || strcmp(row->name, "n")))
        strbuf_printf(out, "  %-18s %llu\n", row->name,
                      (unsigned long long)*(uint64_t *)row->target);
}

void settings_print(struct settings *s, struct strbuf *out)
{
    struct option_spec table[MAX_ROWS];
    strbuf_printf(out, "  %-18s %s\n  %-18s %s\n", "thinking", views[s->view], "figures",
                  s->figures ? "on" : "off");
    table_of_numbers(s, table);
    for (const struct option_spec *row = table; row->name; row++)
        print_row(row, out);
}

/* ---- The command line ---- */

static bool parse(struct settings *s, const char **thinking, int argc, char **argv, int *exit_code)
{
    const struct option_spec table[] = {
        {"name", OPTION_STRING, &s->name, 0, 0, "NAME", "select a deployment (default: default)"},
        {"system", OPTION_STRING, &s->system, 0, 0, "TEXT", "put a system message first"},
        {"messages", OPTION_STRING, &s->messages_file, 0, 0, "FILE",
         "go on with a conversation that was saved"},
        {"n", OPTION_UINT, &s->n, 0, UINT32_MAX, "N", "stop an answer after N tokens; 0: no limit"},
        {"thinking", OPTION_STRING, thinking, 0, 0, "HOW",
         "fold: one line (default); show; off: do not think"},
        {"figures", OPTION_BOOL, &s->figures, 0, 0, NULL, "print speeds after each answer"},
        SAMPLING_OPTIONS_USUAL(&s->sampling),
        {"stop", OPTION_LIST, &s->stops, 0, 0, "TEXT",
         "end before TEXT; may be given several times"},
        {"Special uses", OPTION_HEADING, NULL, 0, 0, NULL, NULL},
        {"history", OPTION_BOOL, &s->history, 0, 0, NULL, "keep typed lines; --no-history: do not"},
        {"chat-template", OPTION_STRING, &s->chat.template_file, 0, 0, "FILE",
         "use another template"},
        {"chat-template-kwargs", OPTION_STRING, &s->chat.kwargs, 0, 0, "JSON",
         "set variables of the template"},
        {"json-schema", OPTION_STRING, &s->grammar.json_schema, 0, 0, "FILE|JSON",
         "hold each answer to a JSON schema"},
        {"json-object", OPTION_BOOL, &s->grammar.json_object, 0, 0, NULL,
         "hold each answer to JSON: an object"},
        {"grammar", OPTION_STRING, &s->grammar.grammar_file, 0, 0, "FILE",
         "hold each answer to rules in GBNF"},
        {"regex", OPTION_STRING, &s->grammar.regex, 0, 0, "TEXT",
         "hold each answer to a regular expression"},
        {"bias", OPTION_LIST, &s->biases, 0, 0, "ID=B",
         "add B to a token's logit (-inf: never); TEXT=B: to its tokens"},
        {"More samplers", OPTION_HEADING, NULL, 0, 0, NULL, NULL},
        SAMPLING_OPTIONS_OTHER(&s->sampling),
        {"dry-breaker", OPTION_LIST, &s->breakers, 0, 0, "TEXT",
         "end sequences at TEXT; may be given several times"},
        {0},
    };
    return ask_arguments(
        table, "chat", "[OPTIONS]",
        "Talks with the model of a deployment, in its chat template. /? lists the\n"
        "commands. Ctrl-C stops an answer, Ctrl-D ends. Piped input is one question.",
        argc, argv, 0, 0, NULL, exit_code);
}

static struct moed_bytes *texts_of(const struct option_list *list)
{
    struct moed_bytes *texts = calloc(list->count + 1, sizeof *texts);
    for (size_t i = 0; texts && i < list->count; i++)
        texts[i] = (struct moed_bytes){list->items[i], strlen(list->items[i])};
    return texts;
}

static bool make_lists(struct settings *s)
{
    if (!grammar_options_make(&s->grammar))
        return false;
    s->stop_list = texts_of(&s->stops);
    s->breaker_list = texts_of(&s->breakers);
    s->bias_list = calloc(s->biases.count + 1, sizeof *s->bias_list);
    if (!s->stop_list || !s->breaker_list || !s->bias_list) {
        cli_complain("no memory for the options");
        return false;
    }
    for (size_t i = 0; i < s->biases.count; i++)
        if (!sampling_options_bias(s->biases.items[i], &s->bias_list[i]))
            return false;
    return true;
}

bool settings_take(struct settings *s, int argc, char **argv, int *exit_code)
{
    const char *thinking = NULL;
    struct error why;
    *s = (struct settings){.sampling = sampling_options_unset(), .history = true};
    if (!parse(s, &thinking, argc, argv, exit_code))
        return false;
    *exit_code = CLI_USAGE;
    if (thinking && set_view(s, thinking, &why)) {
        cli_complain("chat: --%s", why.text);
        return false;
    }
    if (s->sampling.order && check_order(s->sampling.order, &why)) {
        cli_complain("chat: --%s", why.text);
        return false;
    }
    return make_lists(s);
}

void settings_fini(struct settings *s)
{
    grammar_options_fini(&s->grammar);
    free(s->stop_list);
    free(s->breaker_list);
    free(s->bias_list);
    free(s->order);
}

void settings_apply(const struct settings *s, struct moed_generate_options *out,
                    struct moed_sampling *sampling)
{
    *out = (struct moed_generate_options){.size = sizeof(struct moed_generate_options),
                                          .max_tokens = (uint32_t)s->n,
                                          .stop = s->stop_list,
                                          .stop_count = s->stops.count,
                                          .sampling = sampling,
                                          .grammar = &s->grammar.grammar};
    *sampling = sampling_options_apply(&s->sampling);
    sampling->bias = s->bias_list;
    sampling->bias_count = s->biases.count;
    sampling->dry_breakers = s->breaker_list;
    sampling->dry_breaker_count = s->breakers.count;
}
