/* Options from flags and files; see options.h. */
#include "daemon/options.h"

#include "base/quantity.h"
#include "daemon/option_names.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define CONFIG_FILE_MAX_BYTES (1u << 20)

/* For messages: "--name", or "-n" for one letter. */
static const char *dashes(const struct option_spec *o)
{
    return o->name[1] ? "--" : "-";
}

static uint64_t suffix_factor(const char *suffix)
{
    const struct quantity_unit *unit = quantity_sizes;
    while (unit->text && strcasecmp(suffix, unit->text) != 0)
        unit++;
    return (uint64_t)unit->factor;
}

static enum error_code set_uint(const struct option_spec *o, const char *where, const char *value,
                                struct error *e)
{
    char *end;
    errno = 0;
    unsigned long long n = strtoull(value, &end, 10);
    uint64_t factor = suffix_factor(end), result;
    const char *hint = option_names_value_hint(o, value);
    if (hint)
        return error_set(e, ERROR_USAGE, "%s: %s is no number here; %s", where, value, hint);
    if (!isdigit((unsigned char)value[0]) || factor == 0)
        return error_set(e, ERROR_USAGE,
                         "%s: %s is not a whole number (suffixes: K M G T Ki Mi Gi)", where,
                         value[0] ? value : "an empty value");
    if (errno || __builtin_mul_overflow((uint64_t)n, factor, &result))
        return error_set(e, ERROR_USAGE, "%s: %s is too large", where, value);
    if (o->max > o->min && ((double)result < o->min || (double)result > o->max))
        return error_set(e, ERROR_USAGE, "%s: %s is out of range: %.0f to %.0f", where, value,
                         o->min, o->max);
    *(uint64_t *)o->target = result;
    return ERROR_OK;
}

static enum error_code set_float(const struct option_spec *o, const char *where, const char *value,
                                 struct error *e)
{
    char *end;
    double x = strtod(value, &end);
    if (end == value || *end || isspace((unsigned char)value[0]) || !isfinite(x))
        return error_set(e, ERROR_USAGE, "%s: %s is not a number", where,
                         value[0] ? value : "an empty value");
    if (o->max > o->min && (x < o->min || x > o->max))
        return error_set(e, ERROR_USAGE, "%s: %s is out of range: %g to %g", where, value, o->min,
                         o->max);
    *(double *)o->target = x;
    return ERROR_OK;
}

static enum error_code set_bool(const struct option_spec *o, const char *where, const char *value,
                                struct error *e)
{
    if (strcmp(value, "true") == 0 || strcmp(value, "yes") == 0 || strcmp(value, "1") == 0)
        *(bool *)o->target = true;
    else if (strcmp(value, "false") == 0 || strcmp(value, "no") == 0 || strcmp(value, "0") == 0)
        *(bool *)o->target = false;
    else
        return error_set(e, ERROR_USAGE, "%s: %s is neither true nor false", where,
                         value[0] ? value : "an empty value");
    return ERROR_OK;
}

static enum error_code add_to_list(const char *where, const char *value, struct option_list *list,
                                   struct error *e)
{
    const char **items = realloc(list->items, (list->count + 1) * sizeof *items);
    if (!items)
        return error_set(e, ERROR_MEMORY, "%s: out of memory", where);
    items[list->count++] = value;
    list->items = items;
    return ERROR_OK;
}

/* where: the option as the user wrote it, for messages. Borrows value for the process's life. */
static enum error_code set_option(const struct option_spec *o, const char *where, const char *value,
                                  struct error *e)
{
    switch (o->type) {
    case OPTION_STRING:
        *(const char **)o->target = value;
        return ERROR_OK;
    case OPTION_UINT:
        return set_uint(o, where, value, e);
    case OPTION_FLOAT:
        return set_float(o, where, value, e);
    case OPTION_BOOL:
        return set_bool(o, where, value, e);
    case OPTION_LIST:
        return add_to_list(where, value, o->target, e);
    case OPTION_HEADING:
        break;
    }
    return error_set(e, ERROR_INTERNAL, "%s: the option has no type", where);
}

static char *trim(char *text)
{
    while (isspace((unsigned char)*text))
        text++;
    size_t len = strlen(text);
    while (len > 0 && isspace((unsigned char)text[len - 1]))
        text[--len] = '\0';
    return text;
}

/* A '#' starts a comment at the start of a line or after white space: paths may contain one. */
static void cut_comment(char *line)
{
    for (char *c = line; *c; c++)
        if (*c == '#' && (c == line || isspace((unsigned char)c[-1]))) {
            *c = '\0';
            return;
        }
}

static enum error_code unknown_in_file(const struct option_spec *table, const char *path,
                                       unsigned number, const char *name, struct error *e)
{
    char flag[64], hint[OPTION_NAMES_HINT];
    snprintf(flag, sizeof flag, "--%.60s", name);
    option_names_hint(table, flag, hint);
    return error_set(e, ERROR_USAGE, "%s:%u: there is no option %.60s%s", path, number, name, hint);
}

/* Values of configuration files, which options point to: they live as long as the program. */
struct kept_text {
    struct kept_text *next;
    char text[];
};

static const char *keep_text(const char *before, const char *text, size_t len)
{
    static struct kept_text *kept;
    size_t first = strlen(before);
    struct kept_text *k = malloc(sizeof *k + first + len + 1);
    if (!k)
        return NULL;
    k->next = kept;
    kept = k;
    memcpy(k->text, before, first);
    memcpy(k->text + first, text, len);
    k->text[first + len] = '\0';
    return k->text;
}

static bool is_quoted(const char *value)
{
    size_t len = strlen(value);
    return len >= 2 && value[0] == '"' && value[len - 1] == '"';
}

/* A value as a shell would hand it over: without quotes around it, "~/" as the home directory.
 * NULL: no memory. */
static const char *keep_value(const char *value)
{
    const char *home = strncmp(value, "~/", 2) == 0 ? getenv("HOME") : NULL;
    if (home)
        return keep_text(home, value + 1, strlen(value + 1));
    if (is_quoted(value))
        return keep_text("", value + 1, strlen(value) - 2);
    return keep_text("", value, strlen(value));
}

/* some: the table has some of the options, and lines of others are skipped. */
static enum error_code set_from_line(const struct option_spec *table, bool some, const char *path,
                                     unsigned number, char *line, struct error *e)
{
    cut_comment(line);
    line = trim(line);
    if (!*line)
        return ERROR_OK;
    char *equals = strchr(line, '=');
    if (!equals)
        return error_set(e, ERROR_USAGE, "%s:%u: expected `name = value`", path, number);
    *equals = '\0';
    const char *name = trim(line), *value = trim(equals + 1);
    const struct option_spec *o = option_names_find(table, name, strlen(name));
    if (!o && some)
        return ERROR_OK;
    if (!o || strcmp(name, "config") == 0 || strcmp(name, "defaults") == 0)
        return unknown_in_file(table, path, number, name, e);
    char where[ERROR_TEXT_BYTES];
    snprintf(where, sizeof where, "%s:%u: %s", path, number, name);
    if (o->type == OPTION_STRING || o->type == OPTION_LIST)
        value = keep_value(value);
    if (!value)
        return error_set(e, ERROR_MEMORY, "%s: out of memory", where);
    return set_option(o, where, value, e);
}

static enum error_code read_file(const struct option_spec *table, bool some, const char *path,
                                 struct error *e)
{
    FILE *f = fopen(path, "re");
    if (!f)
        return error_set(e, ERROR_USAGE, "cannot read the configuration file %s: %m", path);
    enum error_code code = ERROR_OK;
    char *line = NULL;
    size_t capacity = 0, total = 0;
    ssize_t len;
    for (unsigned number = 1; !code && (len = getline(&line, &capacity, f)) >= 0; number++) {
        total += (size_t)len;
        if (total > CONFIG_FILE_MAX_BYTES || strlen(line) != (size_t)len)
            code =
                error_set(e, ERROR_USAGE, "%s:%u: this is not a configuration file", path, number);
        else
            code = set_from_line(table, some, path, number, line, e);
    }
    if (!code && ferror(f))
        code = error_set(e, ERROR_USAGE, "cannot read the configuration file %s: %m", path);
    free(line);
    fclose(f);
    return code;
}

/* One argument that starts with a dash, parsed. */
struct flag {
    const struct option_spec *option;
    bool negated;      /* --no-NAME */
    const char *value; /* after '=' or a one-letter name; NULL: not in this argument */
};

static void take_familiar(const struct option_spec *table, const char *arg, struct flag *flag)
{
    const char *equals = strchr(arg, '=');
    flag->option = option_names_familiar(table, arg);
    flag->value = equals ? equals + 1 : NULL;
    flag->negated = false;
}

static enum error_code read_flag(const struct option_spec *table, const char *arg,
                                 struct flag *flag, struct error *e)
{
    *flag = (struct flag){0};
    bool several_letters = arg[1] != '-' && arg[1] && arg[2]; /* -ngl is not -n with "gl" */
    if (several_letters && option_names_foreign(table, arg)) {
        /* no option */
    } else if (several_letters && option_names_familiar(table, arg)) {
        take_familiar(table, arg, flag);
    } else if (arg[1] != '-') {
        flag->option = option_names_find(table, arg + 1, 1);
        flag->value = arg[2] ? arg + 2 : NULL;
    } else {
        const char *name = arg + 2;
        size_t len = strcspn(name, "=");
        flag->value = name[len] ? name + len + 1 : NULL;
        flag->option = len > 1 ? option_names_find(table, name, len) : NULL;
        if (!flag->option && len > 3 && memcmp(name, "no-", 3) == 0) {
            flag->option = option_names_find(table, name + 3, len - 3);
            flag->negated = true;
            if (flag->option && flag->option->type != OPTION_BOOL)
                flag->option = NULL;
        }
    }
    if (!flag->option)
        take_familiar(table, arg, flag);
    if (flag->option)
        return ERROR_OK;
    char hint[OPTION_NAMES_HINT];
    option_names_hint(table, arg, hint);
    return error_set(e, ERROR_USAGE, "there is no option %.100s%s%s", arg, hint,
                     hint[0] ? "" : "; see --help");
}

static bool is_flag(const char *arg)
{
    return arg[0] == '-' && arg[1] != '\0';
}

/* Whether arg may be the value of the unknown flag before it: -1 may. */
static bool may_be_value(const char *arg)
{
    return !is_flag(arg) || isdigit((unsigned char)arg[1]);
}

/* The flag at argv[*i], with its value perhaps in argv[*i + 1]; advances *i past both, also after
 * an error. */
static enum error_code take_flag(const struct option_spec *table, int argc, char **argv, int *i,
                                 struct error *e)
{
    struct flag flag;
    const char *arg = argv[(*i)++];
    enum error_code code = read_flag(table, arg, &flag, e);
    if (code) {
        if (!strchr(arg, '=') && *i < argc && may_be_value(argv[*i]))
            (*i)++;
        return code;
    }
    const struct option_spec *o = flag.option;
    char where[128];
    snprintf(where, sizeof where, "%s%s", dashes(o), o->name);
    if (o->type == OPTION_BOOL) {
        if (flag.value)
            return error_set(e, ERROR_USAGE, "%s takes no value", where);
        *(bool *)o->target = !flag.negated;
        return ERROR_OK;
    }
    if (!flag.value) {
        if (*i >= argc)
            return error_set(e, ERROR_USAGE, "%s needs a value (%s)", where,
                             o->value_name ? o->value_name : "VALUE");
        flag.value = argv[(*i)++];
    }
    return set_option(o, where, flag.value, e);
}

/* The file named by the last --NAME, read before any flag is applied, so that flags win. */
static enum error_code read_named_file(const struct option_spec *table, const char *name, int argc,
                                       char **argv, struct error *e)
{
    const struct option_spec *named = option_names_find(table, name, strlen(name));
    if (!named || named->type != OPTION_STRING)
        return ERROR_OK;
    const char *path = *(const char **)named->target;
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0;) {
        struct flag flag;
        const char *arg = argv[i++];
        if (!is_flag(arg) || read_flag(table, arg, &flag, NULL))
            continue; /* options_parse reports a wrong flag when it applies it */
        if (flag.option->type != OPTION_BOOL && !flag.value && i < argc)
            flag.value = argv[i++];
        if (flag.option == named && flag.value)
            path = flag.value;
    }
    return path ? read_file(table, false, path, e) : ERROR_OK;
}

enum error_code options_read_some(const struct option_spec *table, const char *path,
                                  struct error *e)
{
    return read_file(table, true, path, e);
}

/* The errors of a command line. */
struct errors {
    options_report *report; /* NULL: the first error ends the parsing */
    void *arg;
    struct error *first;
    enum error_code code; /* of the first */
};

/* False: parse no further. */
static bool note_error(struct errors *errors, const struct error *why)
{
    if (errors->report)
        errors->report(errors->arg, why->text);
    if (!errors->code && errors->first)
        *errors->first = *why;
    if (!errors->code)
        errors->code = why->code;
    return errors->report != NULL;
}

enum error_code options_parse_all(const struct option_spec *table, int argc, char **argv,
                                  int *n_positional, options_report *report, void *arg,
                                  struct error *e)
{
    struct errors errors = {report, arg, e, ERROR_OK};
    struct error why = {0};
    if ((read_named_file(table, "defaults", argc, argv, &why) ||
         read_named_file(table, "config", argc, argv, &why)) &&
        !note_error(&errors, &why))
        return errors.code;
    int kept = 0;
    bool flags_over = false;
    for (int i = 1; i < argc;) {
        enum error_code code = ERROR_OK;
        if (!flags_over && strcmp(argv[i], "--") == 0) {
            flags_over = true;
            i++;
        } else if (!flags_over && is_flag(argv[i])) {
            code = take_flag(table, argc, argv, &i, &why);
        } else if (!n_positional) {
            code = error_set(&why, ERROR_USAGE, "unexpected argument %.100s; see --help", argv[i]);
            i++;
        } else {
            argv[1 + kept++] = argv[i++]; /* 1 + kept <= i: overwrites no unread argument */
        }
        if (code && !note_error(&errors, &why))
            return errors.code;
    }
    if (!errors.code && n_positional)
        *n_positional = kept;
    return errors.code;
}

enum error_code options_parse(const struct option_spec *table, int argc, char **argv,
                              int *n_positional, struct error *e)
{
    return options_parse_all(table, argc, argv, n_positional, NULL, NULL, e);
}

static void print_value(const struct option_spec *o)
{
    switch (o->type) {
    case OPTION_STRING: {
        const char *text = *(const char **)o->target;
        const char *quote = text && (is_quoted(text) || strncmp(text, "~/", 2) == 0) ? "\"" : "";
        printf("%s%s%s", quote, text ? text : "", quote);
        break;
    }
    case OPTION_UINT:
        printf("%llu", (unsigned long long)*(uint64_t *)o->target);
        break;
    case OPTION_FLOAT:
        printf("%.17g", *(double *)o->target);
        break;
    case OPTION_BOOL:
        printf("%s", *(bool *)o->target ? "true" : "false");
        break;
    case OPTION_LIST:
    case OPTION_HEADING:
        break;
    }
}

/* NaN and UINT64_MAX stand for no value. */
static bool has_default(const struct option_spec *o)
{
    switch (o->type) {
    case OPTION_STRING:
        return *(const char **)o->target != NULL;
    case OPTION_UINT:
        return *(uint64_t *)o->target != UINT64_MAX;
    case OPTION_FLOAT:
        return !isnan(*(double *)o->target);
    case OPTION_BOOL:
        return *(bool *)o->target;
    case OPTION_LIST:
    case OPTION_HEADING:
        break;
    }
    return false;
}

#define HELP_COLUMN 27
#define HELP_WIDTH  80

/* Prints text from column `left` on, in lines of HELP_WIDTH, broken at spaces. */
static void print_wrapped(const char *text, int left)
{
    int column = left;
    while (*text) {
        int word = (int)strcspn(text, " ");
        if (column > left && column + 1 + word > HELP_WIDTH) {
            printf("\n%*s", left, "");
            column = left;
        } else if (column > left) {
            printf(" ");
            column++;
        }
        printf("%.*s", word, text);
        column += word;
        text += word + (text[word] == ' ');
    }
}

void options_print_list(const char *heading, const char *text)
{
    printf("%s", heading);
    print_wrapped(text, (int)strlen(heading));
    printf("\n");
}

/* "[8080]", or "" without a default. */
static void format_default(const struct option_spec *o, char *out, size_t bytes)
{
    out[0] = '\0';
    if (!has_default(o))
        return;
    if (o->type == OPTION_FLOAT)
        snprintf(out, bytes, " [%g]", *(double *)o->target);
    else if (o->type == OPTION_UINT)
        snprintf(out, bytes, " [%llu]", (unsigned long long)*(uint64_t *)o->target);
    else
        snprintf(out, bytes, " [%s]", o->type == OPTION_BOOL ? "true" : *(const char **)o->target);
}

static void print_option(const struct option_spec *o)
{
    char left[80], standard[200], help[2000];
    snprintf(left, sizeof left, "%s%s%s%s", dashes(o), o->name, o->type == OPTION_BOOL ? "" : " ",
             o->type == OPTION_BOOL ? ""
             : o->value_name        ? o->value_name
                                    : "VALUE");
    if (strlen(left) > 24)
        printf("  %s\n%*s", left, HELP_COLUMN, "");
    else
        printf("  %-24s ", left);
    format_default(o, standard, sizeof standard);
    snprintf(help, sizeof help, "%s%s", o->help ? o->help : "", standard);
    print_wrapped(help, HELP_COLUMN);
    printf("\n");
}

void options_print_help(const struct option_spec *table, const char *program, const char *arguments,
                        const char *purpose)
{
    printf("usage: %s%s%s\n\n%s\n\n", program, arguments && *arguments ? " " : "",
           arguments ? arguments : "", purpose);
    for (const struct option_spec *o = table; o->name; o++)
        if (o->type == OPTION_HEADING)
            printf("\n%s:\n", o->name);
        else
            print_option(o);
    printf("  %-24s %s\n", "--help", "print this and exit");
}

void options_print_values(const struct option_spec *table)
{
    for (const struct option_spec *o = table; o->name; o++) {
        if (o->type == OPTION_HEADING || o->type == OPTION_LIST ||
            strncmp(o->name, "config", 6) == 0)
            continue; /* not allowed in a file */
        bool unset = o->type == OPTION_STRING && !*(const char **)o->target;
        printf("%s%s = ", unset ? "# " : "", o->name);
        print_value(o);
        printf("\n");
    }
}

static bool has_flag(int argc, char **argv, const char *flag, const char *short_flag)
{
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++)
        if (strcmp(argv[i], flag) == 0 || (short_flag && strcmp(argv[i], short_flag) == 0))
            return true;
    return false;
}

bool options_wants_help(int argc, char **argv)
{
    return has_flag(argc, argv, "--help", "-h");
}

bool options_print_version(const char *program, int argc, char **argv)
{
    if (!has_flag(argc, argv, "--version", NULL))
        return false;
    printf("%s %s\n", program, MOED_VERSION);
    fflush(stdout);
    return true;
}
