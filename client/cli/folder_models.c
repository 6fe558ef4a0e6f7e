/* Requests to moed-models; see folder_models.h. */
#include "client/cli/folder_models.h"

#include "daemon/control.h"
#include "daemon/run_dir.h"

#include <string.h>

#define TIMEOUT_MS 30000

enum error_code folder_models_call(const char *run, Moed__V1__ModelsRequest__Action action,
                                   const char *model, Moed__V1__Reply **reply, struct error *e)
{
    Moed__V1__ModelsRequest models = MOED__V1__MODELS_REQUEST__INIT;
    models.action = action;
    models.model = (char *)(model ? model : "");
    Moed__V1__Request request = MOED__V1__REQUEST__INIT;
    request.body_case = MOED__V1__REQUEST__BODY_MODELS;
    request.models = &models;
    return control_call(run, "models", &request, MOED__V1__REPLY__BODY_MODELS, TIMEOUT_MS, reply,
                        e);
}

struct look {
    const char *id;
    bool found;
};

static void look_in(void *arg, const char *name, const char *run)
{
    struct look *look = arg;
    Moed__V1__Reply *reply;
    if (look->found || !run_dir_holder(run, "models") ||
        folder_models_call(run, MOED__V1__MODELS_REQUEST__ACTION__LIST, NULL, &reply, NULL))
        return;
    for (size_t i = 0; i < reply->models->n_models; i++)
        look->found = look->found || strcmp(reply->models->models[i]->id, look->id) == 0;
    moed__v1__reply__free_unpacked(reply, NULL);
}

bool folder_models_have(const char *id)
{
    struct look look = {.id = id};
    return run_dir_list(look_in, &look, NULL) == ERROR_OK && look.found;
}
