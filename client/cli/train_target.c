/* moed train: the file to write; see train_target.h. */
#include "client/cli/train_target.h"

#include "client/cli/ask.h"
#include "client/cli/model_file.h"
#include "train/train.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

bool train_target_find(struct train_target *t)
{
    char model[PATH_MAX];
    if ((t->out == NULL) == (t->model == NULL)) {
        cli_complain("train: give -o FILE, or --model MODEL to write next to the model");
        return false;
    }
    if (t->model && !model_file_find(t->model, model))
        return false;
    int n = snprintf(t->path, sizeof t->path, "%s", t->out ? t->out : "");
    if (n < 0 || n >= (int)sizeof t->path) {
        cli_complain("the path of the file to write is too long");
        return false;
    }
    if (t->model)
        predictors_file_of_model(model, t->path);
    return true;
}

/* ---- Of which model is the trace? ---- */

/* The model file may be another quantisation than the one that was profiled, so the routers need
 * not be equal; those of another model are not even similar. */
static bool routers_agree(const struct trace *trace, const struct trace_model *model)
{
    const struct trace_shape *s = trace_shape(trace);
    size_t n = (size_t)s->n_experts * s->d_model;
    for (uint32_t l = s->first_layer; l < s->n_layers; l++) {
        const float *a = trace_layer(trace, l)->matrix, *b = model->layers[l].matrix;
        double difference = 0, size = 0;
        for (size_t i = 0; a && b && i < n; i++) {
            difference += fabs((double)a[i] - (double)b[i]);
            size += fabs((double)b[i]);
        }
        if (difference > size * 0.1)
            return false;
    }
    return true;
}

/* Without routers in the trace only the name is left to compare. */
static bool is_of_model(const struct trace *trace, const struct trace_model *model)
{
    const struct trace_shape *a = trace_shape(trace), *b = &model->shape;
    return a->n_layers == b->n_layers && a->first_layer == b->first_layer &&
           a->n_experts == b->n_experts && a->n_used == b->n_used && a->d_model == b->d_model &&
           (a->has & TRACE_ROUTERS ? routers_agree(trace, model) : !strcmp(a->model, b->model));
}

/* The file gets name and routers of --model, so that memd takes it for that model. */
static bool take_model(struct train_target *t, const char *trace_path, const struct trace *trace)
{
    char file[PATH_MAX];
    t->trained = train_model_of(trace_shape(trace), trace_layer(trace, 0));
    if (!t->model)
        return true;
    if (!model_file_find(t->model, file) || !predictors_model_open(file, &t->of))
        return false;
    t->trained = t->of.model;
    if (is_of_model(trace, &t->of.facts))
        return true;
    cli_complain("train: %s is a trace of another model (%s) than %s (%s): record one with "
                 "`moed profile %s`",
                 trace_path, trace_shape(trace)->model, file, t->trained.name, t->model);
    return false;
}

/* ---- The file as it is ---- */

static bool take_old(struct train_target *t)
{
    struct error e;
    char why[TRAINED_WHY] = "";
    struct stat st;
    t->replaces = stat(t->path, &st) == 0 && !(S_ISREG(st.st_mode) && st.st_size == 0);
    if (t->force || !t->replaces)
        return true;
    if (file_map_open(t->path, "a file of `moed train`", &t->map, &e)) {
        cli_complain("%s", e.text);
        return false;
    }
    t->has_old = trained_view(t->map.data, t->map.bytes, &t->old, why) &&
                 trained_fits(&t->old, &t->trained, why);
    if (t->has_old && !trained_is_intact(&t->old)) {
        t->has_old = false;
        snprintf(why, sizeof why, "it is damaged: the checksum does not match");
    }
    if (!t->has_old)
        cli_complain("train: %s exists, and %s: --force replaces it", t->path, why);
    return t->has_old;
}

bool train_target_open(struct train_target *t, const char *trace_path, const struct trace *trace)
{
    struct error e;
    if (!take_model(t, trace_path, trace) || !take_old(t))
        return false;
    if (!file_writer_open(t->path, FILE_WRITER_MODE, &t->writer, &e))
        return true;
    cli_complain("%s", e.text);
    return false;
}

enum error_code train_target_write(struct train_target *t, const void *bytes, size_t n,
                                   struct error *e)
{
    struct file_writer *w = t->writer;
    enum error_code code = file_writer_write(w, bytes, n, e);
    if (code)
        return code;
    t->writer = NULL;
    return file_writer_finish(w, e);
}

void train_target_close(struct train_target *t)
{
    file_writer_abandon(t->writer);
    file_map_close(&t->map);
    predictors_model_close(&t->of);
}
