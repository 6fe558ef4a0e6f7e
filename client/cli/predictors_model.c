/* A model file as trained predictors see it; see predictors_model.h. */
#include "client/cli/predictors_model.h"

#include "client/cli/ask.h"
#include "train/train.h"

bool predictors_model_open(const char *path, struct predictors_model *out)
{
    struct error e;
    *out = (struct predictors_model){0};
    if (gguf_open(path, &out->g, &e) || trace_model_read(out->g, &out->facts, &e)) {
        cli_complain("%s", e.text);
        predictors_model_close(out);
        return false;
    }
    out->model = train_model_of(&out->facts.shape, out->facts.layers);
    return true;
}

void predictors_model_close(struct predictors_model *m)
{
    trace_model_fini(&m->facts);
    gguf_close(m->g);
    *m = (struct predictors_model){0};
}
