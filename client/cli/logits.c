/* moed logits: writes the logits that follow each token, as little-endian float32, one row of
 * vocabulary size a token. */
#include "client/cli/ask.h"
#include "client/cli/commands.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* The output. A file is written under another name and renamed once it is complete. */
struct sink {
    const char *path; /* NULL: standard output */
    /* PATH.tmp, owned; NULL: PATH is a device or a pipe, which a rename would replace */
    char *unfinished;
    int fd;
    int failure; /* errno of a write */
};

static bool sink_open(struct sink *s, const char *path)
{
    *s = (struct sink){.fd = STDOUT_FILENO};
    if (strcmp(path, "-") == 0)
        return true;
    s->path = path;
    struct stat there;
    if (stat(path, &there) == 0 && !S_ISREG(there.st_mode) && !S_ISDIR(there.st_mode)) {
        s->fd = open(path, O_WRONLY | O_CLOEXEC);
        if (s->fd < 0)
            cli_complain("cannot open %s: %s", path, strerror(errno));
        return s->fd >= 0;
    }
    if (asprintf(&s->unfinished, "%s.tmp", path) < 0) {
        s->unfinished = NULL;
        cli_complain("no memory for a file name");
        return false;
    }
    s->fd = open(s->unfinished, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (s->fd >= 0)
        return true;
    cli_complain("cannot create %s: %s", s->unfinished, strerror(errno));
    free(s->unfinished);
    return false;
}

static const char *sink_name(const struct sink *s)
{
    return s->unfinished ? s->unfinished : s->path ? s->path : "standard output";
}

/* Renames the file where ok, else removes it. */
static bool sink_close(struct sink *s, bool ok)
{
    if (!s->path)
        return ok;
    if (close(s->fd) && ok) {
        cli_complain("cannot write %s: %s", sink_name(s), strerror(errno));
        ok = false;
    }
    if (!s->unfinished)
        return ok;
    if (ok && rename(s->unfinished, s->path)) {
        cli_complain("cannot rename %s to %s: %s", s->unfinished, s->path, strerror(errno));
        ok = false;
    }
    if (!ok)
        unlink(s->unfinished);
    free(s->unfinished);
    return ok;
}

static int write_row(void *arg, const struct moed_event *event)
{
    struct sink *s = arg;
    if (!ask_write(s->fd, event->logits, event->logit_count * sizeof *event->logits, NULL))
        s->failure = errno;
    return s->failure;
}

static bool write_rows(struct moed_session *session, const uint32_t *ids, size_t count,
                       bool stepwise, struct sink *s)
{
    struct moed_error error;
    enum moed_code code = moed_logits(session, ids, count, stepwise, write_row, s, &error);
    if (s->failure)
        cli_complain("cannot write %s: %s", sink_name(s), strerror(s->failure));
    else if (code)
        ask_failed(&error);
    return !code && !s->failure;
}

static int logits(const char *name, const uint32_t *ids, size_t count, bool stepwise,
                  const char *path)
{
    struct moed_session *session;
    int exit_code;
    if (!ask_attach(name, &session, &exit_code))
        return exit_code;
    struct sink sink;
    bool ok = sink_open(&sink, path);
    if (ok)
        ok = sink_close(&sink, write_rows(session, ids, count, stepwise, &sink));
    moed_detach(session);
    return ok ? CLI_OK : CLI_FAILURE;
}

int logits_main(int argc, char **argv)
{
    const char *name = NULL, *tokens = NULL, *path = NULL;
    bool stepwise = false;
    const struct option_spec table[] = {
        {"name", OPTION_STRING, &name, 0, 0, "NAME", "select a deployment (default: default)"},
        {"tokens", OPTION_STRING, &tokens, 0, 0, "IDS",
         "compute these ids (commas or spaces; - reads stdin)"},
        {"stepwise", OPTION_BOOL, &stepwise, 0, 0, NULL,
         "compute one token at a time, as decoding does"},
        {"o", OPTION_STRING, &path, 0, 0, "FILE", "write the rows to FILE; -: to standard output"},
        {0},
    };
    int exit_code;
    if (!ask_arguments(
            table, "logits", "--tokens IDS [--stepwise] -o FILE",
            "Writes the logits that follow each token: little-endian float32, one row of\n"
            "vocabulary size a token, in order.",
            argc, argv, 0, 0, NULL, &exit_code))
        return exit_code;
    if (!tokens || !path) {
        cli_complain("logits: %s is missing; usage: moed logits --tokens IDS [--stepwise] -o FILE",
                     tokens ? "-o FILE" : "--tokens IDS");
        return CLI_USAGE;
    }
    struct strbuf list;
    uint32_t *ids = NULL;
    size_t count;
    strbuf_init(&list);
    exit_code = CLI_USAGE;
    if (ask_text(tokens, &list) && ask_ids(list.data, list.len, &ids, &count))
        exit_code = logits(name, ids, count, stepwise, path);
    free(ids);
    strbuf_fini(&list);
    return exit_code;
}
