/* Arguments that name a model; see misplaced_model.h. */
#include "client/cli/misplaced_model.h"

#include "client/cli/complain.h"
#include "client/cli/folder_models.h"
#include "daemon/run_dir.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static bool is_model_file(const char *path)
{
    char magic[4];
    struct stat s;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a pipe does not block */
    bool is = fd >= 0 && fstat(fd, &s) == 0 && S_ISREG(s.st_mode) &&
              read(fd, magic, sizeof magic) == sizeof magic &&
              memcmp(magic, "GGUF", sizeof magic) == 0;
    if (fd >= 0)
        close(fd);
    return is;
}

/* How the verb is called once the model runs. */
static const char *usage(const char *verb)
{
    return strcmp(verb, "run") == 0 ? " PROMPT" : "";
}

bool misplaced_model_file(const char *verb, const char *argument)
{
    if (!is_model_file(argument))
        return false;
    cli_complain("%s: %.200s is a model file: `moed up %.200s`, then `moed %s%s`", verb, argument,
                 argument, verb, usage(verb));
    return true;
}

struct search {
    const char *name;
    bool found;
};

static void visit(void *arg, const char *name, const char *run)
{
    struct search *s = arg;
    s->found = s->found || (strcmp(name, s->name) == 0 && run_dir_holder(run, "supervise"));
}

bool misplaced_model(const char *verb, const char *argument)
{
    struct search s = {.name = argument};
    if (misplaced_model_file(verb, argument))
        return true;
    if (run_dir_list(visit, &s, NULL) == ERROR_OK && s.found) {
        cli_complain("%s: '%.60s' is a deployment: `moed %s --name %.60s%s`", verb, argument, verb,
                     argument, usage(verb));
        return true;
    }
    if (!folder_models_have(argument))
        return false;
    cli_complain("%s: '%.60s' is a model of a folder: `moed models --load %.60s` loads it and "
                 "names its deployment for `moed %s --name DEPLOYMENT%s`",
                 verb, argument, argument, verb, usage(verb));
    return true;
}
