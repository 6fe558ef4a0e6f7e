/* moed-models: serves the models of a folder, each by a deployment of its own. It starts one when
 * somebody wants the model, and stops one that nobody has used for a time or whose memory another
 * one needs. moed-http asks it; it maps no model and listens to nobody else. */
#include "deploy/models/models.h"

#include "base/quantity.h"
#include "daemon/daemon.h"

#include <math.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>

struct keeper {
    struct daemon daemon;
    struct models models;
    struct models_settings settings;
    const char *folder, *memory;
};

static enum error_code on_request(void *arg, const Moed__V1__Request *request,
                                  Moed__V1__Reply *reply, struct error *e)
{
    static Moed__V1__ModelsReply models;
    struct keeper *k = arg;
    if (request->body_case != MOED__V1__REQUEST__BODY_MODELS)
        return daemon_unknown(request, e);
    models = (Moed__V1__ModelsReply)MOED__V1__MODELS_REPLY__INIT;
    enum error_code code = models_request(&k->models, request->models, &models, e);
    if (code)
        return code;
    reply->body_case = MOED__V1__REPLY__BODY_MODELS;
    reply->models = &models;
    return ERROR_OK;
}

static enum error_code check_options(struct keeper *k, struct error *e)
{
    char folder[PATH_MAX];
    if (!k->folder)
        return error_set(e, ERROR_USAGE, "--folder DIR is required; see --help");
    if (!realpath(k->folder, folder))
        return error_set(e, ERROR_NOT_FOUND, "--folder %s: %m", k->folder);
    k->settings.folder = strdup(folder);
    if (!k->settings.folder)
        return error_set(e, ERROR_MEMORY, "no memory for the folder's path");
    k->settings.budget_bytes = UINT64_MAX;
    if (k->memory && !quantity_parse_size(k->memory, strlen(k->memory), &k->settings.budget_bytes))
        return error_set(e, ERROR_USAGE, "--memory '%.40s': expected " QUANTITY_SIZE, k->memory);
    return ERROR_OK;
}

static void report(struct keeper *k)
{
    struct models *m = &k->models;
    pthread_mutex_lock(&m->lock);
    const struct model *moving = m->moving;
    if (moving)
        daemon_status(&k->daemon, "%s %s",
                      moving->facts.state == MODEL_STARTING ? "loading" : "unloading", moving->id);
    else
        daemon_status(&k->daemon, "%zu models in %s", m->listed, k->settings.folder);
    pthread_mutex_unlock(&m->lock);
}

static void work(struct keeper *k)
{
    struct pollfd fds[] = {{.fd = daemon_stop_fd(&k->daemon), .events = POLLIN},
                           {.fd = k->models.wake_fd, .events = POLLIN}};
    while (!k->daemon.stopping) {
        eventfd_t bells;
        int wait_ms = models_turn(&k->models);
        report(k);
        poll(fds, 2, wait_ms);
        if (fds[1].revents)
            eventfd_read(k->models.wake_fd, &bells);
    }
    daemon_status(&k->daemon, "unloading");
    models_stop_all(&k->models);
}

int main(int argc, char **argv)
{
    static struct keeper k = {.settings = {.keep_s = 300}};
    const struct option_spec options[] = {
        {"folder", OPTION_STRING, &k.folder, 0, 0, "DIR",
         "serve the GGUF files in DIR and its sub-folders (required)"},
        {"keep", OPTION_FLOAT, &k.settings.keep_s, -1, 1e9, "S",
         "stop a model that nobody has used for S seconds; -1: never"},
        {"most", OPTION_UINT, &k.settings.most, 0, CATALOGUE_MOST, "N",
         "keep at most N models loaded; 0: as many as memory holds"},
        {"memory", OPTION_STRING, &k.memory, 0, 0, "SIZE",
         "use at most SIZE of memory for models (default: what is free)"},
        {0},
    };
    unsetenv("MOED_RUN"); /* which would be the directory of every deployment */
    daemon_init_unconfined(&k.daemon, "models",
                           "starts and stops the deployments of a folder's models", options, argc,
                           argv);
    daemon_start(&k.daemon);
    struct error e = {0};
    enum error_code code = check_options(&k, &e);
    if (code)
        daemon_fail(&k.daemon, code == ERROR_USAGE ? EXIT_BAD_USAGE : EXIT_PERMANENT, &e);
    code = models_init(&k.models, &k.settings, k.daemon.run, k.daemon.metrics, &e);
    static const struct daemon_handlers handlers = {.request = on_request};
    if (!code)
        code = daemon_serve(&k.daemon, &handlers, &k, &e);
    if (code)
        daemon_fail(&k.daemon, EXIT_RETRY, &e);
    daemon_ready(&k.daemon);
    work(&k);
    int exit_code = daemon_wait(&k.daemon);
    daemon_stop(&k.daemon);
    models_fini(&k.models);
    return exit_code;
}
