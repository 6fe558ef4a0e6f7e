/* The models and requests about them; see models.h. turn.c has what the main thread does. */
#include "deploy/models/models_internal.h"

#include "base/clock.h"
#include "base/file_writer.h"
#include "base/log.h"
#include "daemon/models_started.h"
#include "daemon/options_file.h"
#include "daemon/program_find.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

/* ---- The list ---- */

static uint64_t keep_ns(double keep_s)
{
    return keep_s < 0 || keep_s > 1e9 ? MODEL_FOREVER : (uint64_t)(keep_s * 1e9);
}

/* NULL: no memory, or too many. */
static struct model *add_model(struct models *m, const char *id, const char *deployment)
{
    size_t most = sizeof m->items / sizeof *m->items;
    struct model *x = m->count < most ? calloc(1, sizeof *x) : NULL;
    if (!x)
        return NULL;
    snprintf(x->id, sizeof x->id, "%s", id);
    snprintf(x->deployment, sizeof x->deployment, "%s", deployment);
    x->facts.keep_ns = keep_ns(m->settings->keep_s);
    m->items[m->count++] = x;
    return x;
}

static void free_model(struct model *x)
{
    free(x->path);
    free(x);
}

/* A model whose file has gone stays while its deployment is there. */
static void drop_unlisted(struct models *m)
{
    size_t kept = 0;
    for (size_t i = 0; i < m->count; i++) {
        struct model *x = m->items[i];
        bool gone = !x->listed && (x->facts.state == MODEL_OFF || x->facts.state == MODEL_FAILED);
        if (gone && x != m->moving)
            free_model(x);
        else
            m->items[kept++] = x;
    }
    m->count = kept;
}

/* Why no model is listed, where that is plain from the folder; the log has it once. */
static void say_nothing(struct models *m)
{
    const struct catalogue *c = &m->catalogue;
    bool said = m->nothing[0];
    m->nothing[0] = '\0';
    if (c->count)
        return;
    if (!c->files)
        snprintf(m->nothing, sizeof m->nothing, "no GGUF file in %s, %d levels of folders deep",
                 m->settings->folder, CATALOGUE_LEVELS);
    else if (c->refused_count)
        snprintf(m->nothing, sizeof m->nothing,
                 "no model that moed serves among %u GGUF files in %s: the log of models says why",
                 (unsigned)c->files, m->settings->folder);
    if (m->nothing[0] && !said)
        log_warn("%s", m->nothing);
}

static void set_path(struct model *x, const char *path)
{
    if (x->path && strcmp(x->path, path) == 0)
        return;
    free(x->path);
    x->path = strdup(path);
}

/* A model that failed is as one that was not tried once its file or its options have changed. */
static void note_change(struct model *x, const struct catalogue_entry *entry)
{
    bool same = catalogue_same_version(&x->version, &entry->version) &&
                x->options_modified.tv_sec == entry->options_modified.tv_sec &&
                x->options_modified.tv_nsec == entry->options_modified.tv_nsec;
    if (!same && x->facts.state == MODEL_FAILED)
        x->facts.state = MODEL_OFF;
    x->version = entry->version;
    x->options_modified = entry->options_modified;
}

/* What a scan of the catalogue has found. Under the lock, unlike the scan. */
static void take_scan(struct models *m)
{
    for (size_t i = 0; i < m->count; i++)
        m->items[i]->listed = false;
    for (size_t i = 0; i < m->catalogue.count; i++) {
        const struct catalogue_entry *entry = &m->catalogue.entries[i];
        struct model *x = models_of_deployment(m, entry->deployment);
        if (!x)
            x = add_model(m, entry->id, entry->deployment);
        if (!x)
            continue;
        memcpy(x->id, entry->id, sizeof x->id);
        set_path(x, entry->path);
        note_change(x, entry);
        x->listed = true;
        x->facts.need_bytes = entry->need_bytes;
        x->facts.kv_least_bytes = entry->kv_least_bytes;
        x->facts.kv_most_bytes = entry->kv_most_bytes;
        x->kv_given = entry->kv_given;
    }
    drop_unlisted(m);
    models_note_served(m);
    m->listed = m->catalogue.count;
    gauge_set(m->available, (int64_t)m->listed);
    say_nothing(m);
}

/* ---- Those of an earlier process ---- */

void models_save_started(const struct models *m)
{
    char path[RUN_PATH_BYTES];
    struct strbuf names = {0};
    struct error e;
    models_started_file(m->run, path);
    for (size_t i = 0; i < m->count; i++)
        if (m->items[i]->facts.own)
            strbuf_printf(&names, "%s\n", m->items[i]->deployment);
    if (file_write_text(path, &names, &e))
        log_warn("%s", e.text);
    else if (!names.len)
        unlink(path);
    strbuf_fini(&names);
}

static void adopt(void *arg, const char *name, const char *run)
{
    struct models *m = arg;
    if (!run_dir_holder(run, "supervise"))
        return;
    struct model *x = models_of_deployment(m, name);
    if (!x)
        x = add_model(m, name, name);
    if (!x)
        return;
    x->facts.own = true;
    x->facts.state = MODEL_UP;
    x->facts.used_ns = clock_ns();
    log_info("deployment %s of an earlier process goes on", name);
}

enum error_code models_init(struct models *m, const struct models_settings *settings,
                            const char *run, struct metrics *metrics, struct error *e)
{
    *m = (struct models){.settings = settings};
    pthread_mutex_init(&m->lock, NULL);
    snprintf(m->run, sizeof m->run, "%s", run);
    run_dir_file(run, OPTIONS_FILE_OF_FOLDER, m->defaults);
    if (access(m->defaults, F_OK) != 0)
        m->defaults[0] = '\0';
    m->catalogue.defaults = m->defaults[0] ? m->defaults : NULL;
    m->available = metrics_gauge(metrics, "moed_models_available", NULL, "Models in the folder.");
    m->up = metrics_gauge(metrics, "moed_models_up", NULL,
                          "Deployments that were started for a request and run.");
    m->loads = metrics_counter(metrics, "moed_models_loads_total", NULL, 1,
                               "Deployments started for a request.");
    m->unloads =
        metrics_counter(metrics, "moed_models_unloads_total", NULL, 1,
                        "Deployments stopped: idle, or their memory was needed for another.");
    m->failures = metrics_counter(metrics, "moed_models_failures_total", NULL, 1,
                                  "Deployments that did not start.");
    m->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (m->wake_fd < 0)
        return error_set(e, ERROR_IO, "cannot make an eventfd: %m");
    enum error_code code = program_find("moed", NULL, m->moed, e);
    if (!code)
        code = catalogue_scan(&m->catalogue, m->settings->folder, e);
    if (code)
        return code;
    take_scan(m);
    models_started_list(m->run, adopt, m);
    models_look_at_others(m);
    return ERROR_OK;
}

void models_fini(struct models *m)
{
    for (size_t i = 0; i < m->count; i++)
        free_model(m->items[i]);
    free(m->others);
    catalogue_fini(&m->catalogue);
    close(m->wake_fd);
    pthread_mutex_destroy(&m->lock);
}

/* ---- Replies ---- */

/* The entries of a reply, and the pointers to them. */
static Moed__V1__ModelEntry entries[2 * CATALOGUE_MOST], *pointers[2 * CATALOGUE_MOST];
static char reasons[2 * CATALOGUE_MOST][sizeof((struct model *)0)->reason];

static const char *waits_for(const struct models *m, const struct model *x)
{
    if (!model_is_wanted(&x->facts, clock_ns()))
        return "";
    if (m->moving)
        return m->moving->facts.state == MODEL_STARTING ? "another model is being loaded"
                                                        : "another model is being unloaded";
    return "the models that are loaded are in use, and there is no memory for another";
}

static double expires_s(const struct model_facts *x)
{
    uint64_t now = clock_ns(), since = x->used_ns > x->wanted_ns ? x->used_ns : x->wanted_ns;
    if (x->keep_ns == MODEL_FOREVER)
        return -1;
    if (x->busy || now - since > x->keep_ns)
        return x->busy ? (double)x->keep_ns * 1e-9 : 0;
    return (double)(x->keep_ns - (now - since)) * 1e-9;
}

static void fill_entry(const struct models *m, const struct model *x, size_t at)
{
    const struct catalogue_entry *entry = catalogue_find(&m->catalogue, x->deployment);
    Moed__V1__ModelEntry *out = &entries[at];
    bool served = models_is_served(x);
    *out = (Moed__V1__ModelEntry)MOED__V1__MODEL_ENTRY__INIT;
    snprintf(reasons[at], sizeof reasons[at], "%s",
             served                           ? ""
             : x->facts.state == MODEL_FAILED ? x->reason
             : x->facts.state == MODEL_OFF    ? waits_for(m, x)
                                              : "");
    out->id = (char *)x->id;
    out->deployment = (char *)(served ? x->served : x->deployment);
    out->state = served ? MOED__V1__MODEL_ENTRY__STATE__UP
                        : (Moed__V1__ModelEntry__State)x->facts.state; /* the same values */
    out->reason = reasons[at];
    out->own = x->facts.own;
    out->busy = x->facts.busy;
    out->expires_s = x->facts.state == MODEL_UP && x->facts.own ? expires_s(&x->facts) : -1;
    if (entry) {
        out->architecture = (char *)entry->architecture;
        out->name = (char *)entry->name;
        out->quantization = (char *)entry->quantization;
        out->fills = entry->fills;
        out->parameters = entry->parameters;
        out->file_bytes = entry->file_bytes;
        out->context_trained = entry->context;
    }
    pointers[at] = out;
}

static void reply_one(const struct models *m, const struct model *x, Moed__V1__ModelsReply *reply)
{
    fill_entry(m, x, 0);
    reply->n_models = 1;
    reply->models = pointers;
}

/* ---- Requests; under the lock ---- */

/* A text without the folder's path, which clients need not know, and without what a terminal would
 * obey: names of sub-folders may have it. */
static void without_folder(const struct models *m, const char *text, char *out, size_t bytes)
{
    const char *folder = m->settings->folder;
    size_t len = strlen(folder), n = 0;
    while (*text && n + 1 < bytes) {
        if (strncmp(text, folder, len) == 0 && text[len] == '/') {
            text += len + 1;
            continue;
        }
        out[n++] = iscntrl((unsigned char)*text) ? '?' : *text;
        text++;
    }
    out[n] = '\0';
}

/* The reason alone: a message begins with the file, in most cases. */
static void fill_reason(const struct models *m, const struct catalogue_left_out *file, char *out,
                        size_t bytes)
{
    size_t len = strlen(file->path);
    bool named = strncmp(file->why, file->path, len) == 0 && strncmp(file->why + len, ": ", 2) == 0;
    without_folder(m, file->why + (named ? len + 2 : 0), out, bytes);
}

static void list_left_out(const struct models *m, Moed__V1__ModelsReply *reply)
{
    enum { MOST = 256 };
    static Moed__V1__LeftOut items[MOST], *item_pointers[MOST];
    static char files[MOST][256], whys[MOST][256];
    struct catalogue_left_out file;
    size_t n = 0;
    for (size_t at = 0; n < MOST && catalogue_next_left_out(&m->catalogue, &at, &file); n++) {
        without_folder(m, file.path, files[n], sizeof files[n]);
        fill_reason(m, &file, whys[n], sizeof whys[n]);
        items[n] = (Moed__V1__LeftOut)MOED__V1__LEFT_OUT__INIT;
        items[n].file = files[n];
        items[n].reason = whys[n];
        item_pointers[n] = &items[n];
    }
    reply->n_left_out = n;
    reply->left_out = item_pointers;
}

static void list(struct models *m, Moed__V1__ModelsReply *reply)
{
    for (size_t i = 0; i < m->count; i++)
        fill_entry(m, m->items[i], i);
    reply->n_models = m->count;
    reply->models = pointers;
    reply->nothing = m->nothing;
    list_left_out(m, reply);
}

/* NULL: there is none. */
static struct model *find(struct models *m, const char *name)
{
    const struct catalogue_entry *entry = catalogue_find(&m->catalogue, name);
    return models_of_deployment(m, entry ? entry->deployment : name);
}

static void want(struct models *m, struct model *x, const Moed__V1__ModelsRequest *q)
{
    struct model_facts *f = &x->facts;
    uint64_t now = clock_ns();
    bool rests = f->state == MODEL_FAILED && now - f->failed_ns < MODEL_RETRY_NS;
    if (q->has_keep)
        f->keep_ns = keep_ns(q->keep_s);
    if (models_is_served(x)) {
        f->waits_ns = 0;
    } else if (f->state == MODEL_UP && !f->broken) {
        f->drop = false;
        f->waits_ns = 0;
    } else if (rests) {
        f->waits_ns = 0;
    } else if (!model_is_wanted(f, now)) {
        f->waits_ns = now;
        eventfd_write(m->wake_fd, 1);
    }
    f->wanted_ns = now;
}

static enum error_code drop(struct models *m, struct model *x, struct error *e)
{
    struct model_facts *f = &x->facts;
    bool served = models_is_served(x);
    if (f->state != MODEL_UP && !served)
        return ERROR_OK;
    if (!f->own)
        return error_set(e, ERROR_USAGE,
                         "deployment %s was not started for a request: stop it with moed down",
                         served ? x->served : x->deployment);
    if (f->busy)
        return error_set(e, ERROR_BUSY, "%s is in use", x->id);
    f->drop = true;
    eventfd_write(m->wake_fd, 1);
    return ERROR_OK;
}

/* ERROR_UNSUPPORTED: there is a file of this name, which is left out. */
static enum error_code refuse_unknown(const struct models *m, const char *name, struct error *e)
{
    struct catalogue_left_out file;
    char why[256];
    for (size_t at = 0; catalogue_next_left_out(&m->catalogue, &at, &file);)
        if (catalogue_is_left_out(&file, name)) {
            fill_reason(m, &file, why, sizeof why);
            return error_set(e, ERROR_UNSUPPORTED, "the model '%.100s' cannot be served: %s", name,
                             why);
        }
    return error_set(e, ERROR_NOT_FOUND, "there is no model '%.100s' in %s", name,
                     m->settings->folder);
}

static bool is_list(const Moed__V1__ModelsRequest *q)
{
    return q->action == MOED__V1__MODELS_REQUEST__ACTION__LIST;
}

static enum error_code request(struct models *m, const Moed__V1__ModelsRequest *q,
                               Moed__V1__ModelsReply *reply, struct error *e)
{
    enum error_code code = ERROR_OK;
    if (m->stopping)
        return error_set(e, ERROR_UNAVAILABLE, "the models are being unloaded");
    if (is_list(q)) {
        list(m, reply);
        return ERROR_OK;
    }
    struct model *x = find(m, q->model);
    if (!x)
        return refuse_unknown(m, q->model, e);
    if (q->action == MOED__V1__MODELS_REQUEST__ACTION__DROP)
        code = drop(m, x, e);
    else
        want(m, x, q);
    if (!code)
        reply_one(m, x, reply);
    return code;
}

/* A model that is to be loaded has other options than the catalogue knows. */
static bool has_new_options(const struct models *m, const struct model *x)
{
    const struct catalogue_entry *entry = catalogue_find(&m->catalogue, x->deployment);
    bool idle = x->facts.state == MODEL_OFF || x->facts.state == MODEL_FAILED;
    return idle && entry && catalogue_options_changed(entry);
}

/* Whether the folder is looked at first: a model that is not known may be new. */
static bool needs_scan(struct models *m, const Moed__V1__ModelsRequest *q)
{
    pthread_mutex_lock(&m->lock);
    const struct model *x = is_list(q) ? NULL : find(m, q->model);
    bool needs = !m->stopping && (!x || has_new_options(m, x));
    pthread_mutex_unlock(&m->lock);
    return needs;
}

enum error_code models_request(struct models *m, const Moed__V1__ModelsRequest *q,
                               Moed__V1__ModelsReply *reply, struct error *e)
{
    bool scans = needs_scan(m, q);
    enum error_code code = scans ? catalogue_scan(&m->catalogue, m->settings->folder, e) : ERROR_OK;
    if (code)
        return code;
    pthread_mutex_lock(&m->lock);
    if (scans && !m->stopping)
        take_scan(m);
    code = request(m, q, reply, e);
    pthread_mutex_unlock(&m->lock);
    return code;
}
