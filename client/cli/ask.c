/* Arguments, input, attaching and messages; see ask.h. */
#include "client/cli/ask.h"

#include "base/clock.h"
#include "client/cli/commands.h"
#include "client/cli/deployment.h"
#include "client/cli/misplaced_model.h"

#include <ctype.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* arg: the verb */
static void report_option(void *arg, const char *text)
{
    cli_complain("%s: %s", (const char *)arg, text);
}

bool ask_arguments(const struct option_spec *table, const char *verb, const char *arguments,
                   const char *purpose, int argc, char **argv, int min, int max, int *n_positional,
                   int *exit_code)
{
    char program[64];
    snprintf(program, sizeof program, "moed %s", verb);
    if (options_wants_help(argc, argv)) {
        options_print_help(table, program, arguments, purpose);
        *exit_code = CLI_OK;
        return false;
    }
    if (options_print_version("moed", argc, argv)) {
        *exit_code = CLI_OK;
        return false;
    }
    int n = 0;
    *exit_code = CLI_USAGE;
    if (options_parse_all(table, argc, argv, &n, report_option, (void *)verb, NULL))
        return false;
    if (n < min) {
        cli_complain("%s: an argument is missing; usage: %s %s", verb, program, arguments);
        return false;
    }
    bool takes_prompt = strcmp(verb, "run") == 0 || strcmp(verb, "chat") == 0;
    if (n > max && takes_prompt && misplaced_model(verb, argv[1]))
        return false;
    if (n > max) {
        cli_complain(
            "%s: unexpected argument '%.60s' (quote a text of several words); usage: %s %s", verb,
            argv[1 + max], program, arguments);
        return false;
    }
    if (n_positional)
        *n_positional = n;
    for (const struct option_spec *o = table; o->name; o++)
        if (strcmp(o->name, "name") == 0 && *(const char **)o->target)
            ask_name_given();
    return true;
}

bool ask_name(const char *verb, const char *arguments, const char *purpose, int argc, char **argv,
              int min, int max, const char **name, int *n_positional, int *exit_code)
{
    const struct option_spec table[] = {
        {"name", OPTION_STRING, name, 0, 0, "NAME", "select a deployment (default: default)"},
        {0},
    };
    *name = NULL;
    return ask_arguments(table, verb, arguments, purpose, argc, argv, min, max, n_positional,
                         exit_code);
}

void ask_name_given(void)
{
    unsetenv("MOED_RUN");
}

bool ask_text(const char *argument, struct strbuf *out)
{
    if (strcmp(argument, "-") != 0) {
        strbuf_append(out, argument, strlen(argument));
    } else {
        char block[1 << 16];
        ssize_t n;
        while ((n = read(STDIN_FILENO, block, sizeof block)) != 0) {
            if (n > 0) {
                strbuf_append(out, block, (size_t)n);
            } else if (errno != EINTR) {
                cli_complain("cannot read standard input: %s", strerror(errno));
                return false;
            }
        }
    }
    if (out->failed)
        cli_complain("no memory for the text");
    return !out->failed;
}

static bool is_separator(char c)
{
    return c == ',' || isspace((unsigned char)c);
}

bool ask_ids(const char *text, size_t len, uint32_t **ids, size_t *count)
{
    uint32_t *list = malloc((len / 2 + 1) * sizeof *list); /* a digit and a separator each */
    size_t n = 0, i = 0;
    if (!list) {
        cli_complain("no memory for the token ids");
        return false;
    }
    for (;;) {
        while (i < len && is_separator(text[i]))
            i++;
        if (i == len)
            break;
        size_t start = i;
        uint64_t id = 0;
        while (i < len && isdigit((unsigned char)text[i]) && id <= UINT32_MAX)
            id = id * 10 + (uint64_t)(text[i++] - '0');
        if (i == start || id > UINT32_MAX || (i < len && !is_separator(text[i]))) {
            while (i < len && !is_separator(text[i]))
                i++;
            size_t shown = i - start < 40 ? i - start : 40;
            cli_complain("'%.*s' is not a token id: expected numbers separated by commas or spaces",
                         (int)shown, text + start);
            free(list);
            return false;
        }
        list[n++] = (uint32_t)id;
    }
    if (!n) {
        cli_complain("there are no token ids: expected numbers separated by commas or spaces");
        free(list);
        return false;
    }
    *ids = list;
    *count = n;
    return true;
}

bool ask_again(const struct moed_error *error, double deadline_s)
{
    if (!error->retry || clock_s() >= deadline_s)
        return false;
    nanosleep(&(struct timespec){.tv_nsec = 100 * 1000 * 1000}, NULL);
    return true;
}

bool ask_attach(const char *deployment, struct moed_session **out, int *exit_code)
{
    if (!deployment_choose(&deployment, exit_code))
        return false;
    struct moed_attach_options options = {
        .size = sizeof options, .deployment = deployment, .client = "moed"};
    double deadline_s = clock_s() + ASK_RETRY_S;
    struct moed_error error;
    while (moed_attach(&options, out, &error)) {
        if (ask_again(&error, deadline_s))
            continue;
        *exit_code = ask_attach_failed(&error);
        return false;
    }
    return true;
}

int ask_attach_failed(const struct moed_error *error)
{
    ask_failed(error);
    if (error->code == MOED_ERROR_NOT_FOUND)
        return CLI_NOT_RUNNING;
    return error->code == MOED_ERROR_USAGE ? CLI_USAGE : CLI_FAILURE;
}

int ask_failed(const struct moed_error *error)
{
    bool says_so = strstr(error->message, "try again") != NULL;
    cli_complain("%s%s", error->message, error->retry && !says_so ? "; try again" : "");
    return CLI_FAILURE;
}

bool ask_write(int fd, const void *data, size_t len, const volatile int *interrupted)
{
    const char *p = data;
    while (len) {
        ssize_t n = write(fd, p, len);
        if (n < 0) {
            if (errno == EINTR && !(interrupted && *interrupted))
                continue;
            return false;
        }
        p += n;
        len -= (size_t)n;
    }
    return true;
}

bool ask_print(const void *data, size_t len)
{
    if (ask_write(STDOUT_FILENO, data, len, NULL))
        return true;
    ask_write_failed(errno);
    return false;
}

/* ---- The end of standard output ---- */

static int output_errno; /* of the first write that failed */

int ask_write_failed(int write_errno)
{
    if (!output_errno)
        output_errno = write_errno;
    return CLI_FAILURE;
}

bool ask_flush(void)
{
    if (fflush(stdout) == 0)
        return true;
    ask_write_failed(errno);
    return false;
}

int ask_finish(int exit_code)
{
    if (ask_flush() && !ferror(stdout) && !output_errno)
        return exit_code;
    if (output_errno == EPIPE) {
        signal(SIGPIPE, SIG_DFL);
        raise(SIGPIPE);
    }
    cli_complain("cannot write to standard output: %s",
                 output_errno ? strerror(output_errno) : "a part is lost");
    return exit_code ? exit_code : CLI_FAILURE;
}
