/* Deployments that moed-models did not start; see models_internal.h. */
#include "deploy/models/models_internal.h"

#include "base/same_file.h"
#include "daemon/supervisor_client.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ASK_TIMEOUT_MS 500

/* What a look finds; without the lock. */
struct search {
    struct models *models;
    struct other_deployment *found; /* [OTHER_DEPLOYMENTS] */
    size_t count;
};

static bool is_of_folder(struct models *m, const char *name)
{
    pthread_mutex_lock(&m->lock);
    bool known = models_of_deployment(m, name) != NULL;
    pthread_mutex_unlock(&m->lock);
    return known;
}

/* As the last look found it. Only this thread changes the list. */
static void keep(const struct models *m, const char *name, struct other_deployment *out)
{
    for (size_t i = 0; i < m->n_others; i++)
        if (strcmp(m->others[i].name, name) == 0)
            *out = m->others[i];
}

/* One that has been given up leaves its file to the folder, unless it is the front's own. */
static void visit(void *arg, const char *name, const char *run)
{
    struct search *s = arg;
    if (s->count == OTHER_DEPLOYMENTS || !run_dir_holder(run, "supervise") ||
        is_of_folder(s->models, name))
        return;
    struct other_deployment *out = &s->found[s->count];
    enum supervisor_state state =
        supervisor_model_get(run, ASK_TIMEOUT_MS, out->model, sizeof out->model);
    snprintf(out->name, sizeof out->name, "%s", name);
    if (state == SUPERVISOR_NONE) /* it does not answer now */
        keep(s->models, name, out);
    if (state != SUPERVISOR_GAVE_UP || same_file(run, s->models->run))
        s->count += out->model[0] != '\0';
}

void models_look_at_others(struct models *m)
{
    struct search s = {.models = m, .found = calloc(OTHER_DEPLOYMENTS, sizeof *s.found)};
    if (!s.found || run_dir_list(visit, &s, NULL)) {
        free(s.found);
        return;
    }
    pthread_mutex_lock(&m->lock);
    free(m->others);
    m->others = s.found;
    m->n_others = s.count;
    models_note_served(m);
    pthread_mutex_unlock(&m->lock);
}

bool models_is_served(const struct model *x)
{
    return x->served[0] && (x->facts.state == MODEL_OFF || x->facts.state == MODEL_FAILED);
}

void models_note_served(struct models *m)
{
    for (size_t i = 0; i < m->count; i++) {
        struct model *x = m->items[i];
        x->served[0] = '\0';
        for (size_t k = 0; k < m->n_others && x->path && !x->served[0]; k++)
            if (same_file(x->path, m->others[k].model))
                memcpy(x->served, m->others[k].name, sizeof x->served);
        if (models_is_served(x))
            x->facts.waits_ns = 0;
    }
}
