/* Options from flags and files, by one table; see options.h. */
#include "daemon/options.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CONFIG_FILE_MAX_BYTES (1u << 20)

static const struct option_spec *find_option(const struct option_spec *table, const char *name,
                                             size_t len)
{
    for (; table->name; table++)
        if (strlen(table->name) == len && memcmp(table->name, name, len) == 0)
            return table;
    return NULL;
}

/* "--name", or "-n" for one letter: as a person writes it. */
static const char *dashes(const struct option_spec *o)
{
    return o->name[1] ? "--" : "-";
}

static uint64_t suffix_factor(const char *suffix)
{
    static const struct {
        const char *text;
        uint64_t factor;
    } suffixes[] = {
        {"", 1},          {"k", 1000},      {"M", 1000 * 1000}, {"G", 1000 * 1000 * 1000},
        {"Ki", 1u << 10}, {"Mi", 1u << 20}, {"Gi", 1u << 30}};
    for (size_t i = 0; i < sizeof suffixes / sizeof *suffixes; i++)
        if (strcmp(suffix, suffixes[i].text) == 0)
            return suffixes[i].factor;
    return 0;
}

static enum error_code set_uint(const struct option_spec *o, const char *where, const char *value,
                                struct error *e)
{
    char *end;
    errno = 0;
    unsigned long long n = strtoull(value, &end, 10);
    uint64_t factor = suffix_factor(end), result;
    if (!isdigit((unsigned char)value[0]) || factor == 0)
        return error_set(e, ERROR_USAGE, "%s: %s is not a whole number (suffixes: k M G Ki Mi Gi)",
                         where, value[0] ? value : "an empty value");
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

/* `where` names the option as it was given, for messages. The value is kept by reference. */
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

static enum error_code set_from_line(const struct option_spec *table, const char *path,
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
    const struct option_spec *o = find_option(table, name, strlen(name));
    if (!o || strcmp(name, "config") == 0)
        return error_set(e, ERROR_USAGE, "%s:%u: there is no option %s", path, number, name);
    char where[ERROR_TEXT_BYTES];
    snprintf(where, sizeof where, "%s:%u: %s", path, number, name);
    /* A string must outlive the line. */
    char *copy = o->type == OPTION_STRING ? strdup(value) : NULL;
    if (o->type == OPTION_STRING && !copy)
        return error_set(e, ERROR_MEMORY, "%s: out of memory", where);
    return set_option(o, where, copy ? copy : value, e);
}

static enum error_code read_file(const struct option_spec *table, const char *path, struct error *e)
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
            code = set_from_line(table, path, number, line, e);
    }
    if (!code && ferror(f))
        code = error_set(e, ERROR_USAGE, "cannot read the configuration file %s: %m", path);
    free(line);
    fclose(f);
    return code;
}

/* One argument that starts with a dash, taken apart. */
struct flag {
    const struct option_spec *option;
    bool negated;      /* --no-NAME */
    const char *value; /* after '=' or a one-letter name; NULL: none there */
};

static enum error_code read_flag(const struct option_spec *table, const char *arg,
                                 struct flag *flag, struct error *e)
{
    *flag = (struct flag){0};
    if (arg[1] != '-') {
        flag->option = find_option(table, arg + 1, 1);
        flag->value = arg[2] ? arg + 2 : NULL;
    } else {
        const char *name = arg + 2;
        size_t len = strcspn(name, "=");
        flag->value = name[len] ? name + len + 1 : NULL;
        flag->option = len > 1 ? find_option(table, name, len) : NULL;
        if (!flag->option && len > 3 && memcmp(name, "no-", 3) == 0) {
            flag->option = find_option(table, name + 3, len - 3);
            flag->negated = true;
            if (flag->option && flag->option->type != OPTION_BOOL)
                flag->option = NULL;
        }
    }
    if (!flag->option)
        return error_set(e, ERROR_USAGE, "there is no option %.100s; see --help", arg);
    return ERROR_OK;
}

/* The flag at argv[*i], with its value perhaps in argv[*i + 1]; advances *i past both. */
static enum error_code take_flag(const struct option_spec *table, int argc, char **argv, int *i,
                                 struct error *e)
{
    struct flag flag;
    enum error_code code = read_flag(table, argv[*i], &flag, e);
    if (code)
        return code;
    const struct option_spec *o = flag.option;
    (*i)++;
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

static bool is_flag(const char *arg)
{
    return arg[0] == '-' && arg[1] != '\0';
}

/* The file named by the last --config, read before any flag is applied, so that flags win. */
static enum error_code read_configuration(const struct option_spec *table, int argc, char **argv,
                                          struct error *e)
{
    const struct option_spec *config = find_option(table, "config", 6);
    if (!config || config->type != OPTION_STRING)
        return ERROR_OK;
    const char *path = *(const char **)config->target;
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0;) {
        struct flag flag;
        const char *arg = argv[i++];
        if (!is_flag(arg) || read_flag(table, arg, &flag, NULL))
            continue; /* what is wrong is reported when flags are applied */
        if (flag.option->type != OPTION_BOOL && !flag.value && i < argc)
            flag.value = argv[i++];
        if (flag.option == config && flag.value)
            path = flag.value;
    }
    return path ? read_file(table, path, e) : ERROR_OK;
}

enum error_code options_parse(const struct option_spec *table, int argc, char **argv,
                              int *n_positional, struct error *e)
{
    enum error_code code = read_configuration(table, argc, argv, e);
    if (code)
        return code;
    int kept = 0;
    bool flags_over = false;
    for (int i = 1; i < argc;) {
        if (!flags_over && strcmp(argv[i], "--") == 0) {
            flags_over = true;
            i++;
        } else if (!flags_over && is_flag(argv[i])) {
            code = take_flag(table, argc, argv, &i, e);
            if (code)
                return code;
        } else if (!n_positional) {
            return error_set(e, ERROR_USAGE, "unexpected argument %.100s; see --help", argv[i]);
        } else {
            argv[1 + kept++] = argv[i++]; /* 1 + kept <= i: never overwrites what is to come */
        }
    }
    if (n_positional)
        *n_positional = kept;
    return ERROR_OK;
}

static void print_value(const struct option_spec *o)
{
    switch (o->type) {
    case OPTION_STRING: {
        const char *text = *(const char **)o->target;
        printf("%s", text ? text : "");
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
    }
}

static bool has_default(const struct option_spec *o)
{
    return o->type == OPTION_BOOL ? *(bool *)o->target
                                  : o->type != OPTION_STRING || *(const char **)o->target;
}

void options_print_help(const struct option_spec *table, const char *program, const char *arguments,
                        const char *purpose)
{
    printf("usage: %s%s%s\n\n%s\n\n", program, arguments && *arguments ? " " : "",
           arguments ? arguments : "", purpose);
    for (const struct option_spec *o = table; o->name; o++) {
        char left[80];
        snprintf(left, sizeof left, "%s%s%s%s", dashes(o), o->name,
                 o->type == OPTION_BOOL ? "" : " ",
                 o->type == OPTION_BOOL ? ""
                 : o->value_name        ? o->value_name
                                        : "VALUE");
        printf("  %-24s %s", left, o->help ? o->help : "");
        if (has_default(o)) {
            printf(" [");
            if (o->type == OPTION_FLOAT)
                printf("%g", *(double *)o->target);
            else
                print_value(o);
            printf("]");
        }
        printf("\n");
    }
    printf("  %-24s %s\n", "--help", "print this and exit");
}

void options_print_values(const struct option_spec *table)
{
    for (const struct option_spec *o = table; o->name; o++) {
        if (strncmp(o->name, "config", 6) == 0)
            continue; /* not part of what a file may say */
        bool unset = o->type == OPTION_STRING && !*(const char **)o->target;
        printf("%s%s = ", unset ? "# " : "", o->name);
        print_value(o);
        printf("\n");
    }
}

bool options_wants_help(int argc, char **argv)
{
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++)
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0)
            return true;
    return false;
}
