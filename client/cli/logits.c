/* moed logits: writes the logits that follow each token, as little-endian float32, one row of
 * vocabulary size a token. */
#include "base/file_writer.h"
#include "client/cli/ask.h"
#include "client/cli/commands.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* The output. */
struct sink {
    const char *name;
    struct file_writer *file; /* NULL: standard output, a device or a pipe */
    int fd;                   /* without a file */
    struct error error;       /* of a write */
};

static bool sink_open(struct sink *s, const char *path)
{
    *s = (struct sink){.name = path, .fd = STDOUT_FILENO};
    if (strcmp(path, "-") == 0) {
        s->name = "standard output";
        return true;
    }
    struct stat there;
    if (stat(path, &there) == 0 && !S_ISREG(there.st_mode) && !S_ISDIR(there.st_mode)) {
        s->fd = open(path, O_WRONLY | O_CLOEXEC);
        if (s->fd < 0)
            cli_complain("cannot open %s: %s", path, strerror(errno));
        return s->fd >= 0;
    }
    signal(SIGXFSZ, SIG_IGN); /* a limit of files' sizes is as a full disk */
    struct error e;
    if (file_writer_open(path, FILE_WRITER_MODE, &s->file, &e))
        cli_complain("%s", e.text);
    return s->file != NULL;
}

/* ok: all rows are written; else a file is removed. */
static bool sink_close(struct sink *s, bool ok)
{
    struct error e;
    if (!s->file && s->fd == STDOUT_FILENO)
        return ok;
    if (!s->file && close(s->fd) && ok) {
        cli_complain("cannot write %s: %s", s->name, strerror(errno));
        return false;
    }
    if (s->file && !ok)
        file_writer_abandon(s->file);
    if (s->file && ok && file_writer_finish(s->file, &e)) {
        cli_complain("%s", e.text);
        return false;
    }
    return ok;
}

static int write_row(void *arg, const struct moed_event *event)
{
    struct sink *s = arg;
    size_t bytes = event->logit_count * sizeof *event->logits;
    if (s->file)
        file_writer_write(s->file, event->logits, bytes, &s->error);
    else if (!ask_write(s->fd, event->logits, bytes, NULL))
        error_set(&s->error, ERROR_IO, "cannot write %s: %s", s->name, strerror(errno));
    return s->error.code != ERROR_OK;
}

static bool write_rows(struct moed_session *session, const uint32_t *ids, size_t count,
                       bool stepwise, struct sink *s)
{
    struct moed_error error;
    enum moed_code code = moed_logits(session, ids, count, stepwise, write_row, s, &error);
    if (s->error.code)
        cli_complain("%s", s->error.text);
    else if (code)
        ask_failed(&error);
    return !code && !s->error.code;
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
