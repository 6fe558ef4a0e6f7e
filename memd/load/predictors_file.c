/* The file of trained predictors; see predictors_file.h. */
#include "predictors_file.h"

#include "quant/quant.h"
#include "sched/policy.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static struct predict_shape shape_of(const struct model_params *p)
{
    return (struct predict_shape){.n_layers = p->n_layers,
                                  .first_layer = p->n_dense,
                                  .n_experts = p->router.n_experts,
                                  .n_used = p->router.n_used,
                                  .d_model = p->d_model};
}

/* Hashes the routers as lib/train hashes a trace's: row after row, in single precision. 0: no
 * memory, a file that cannot be read, or a model without routers. The plan has checked the tensors
 * and their sizes. */
static uint64_t hash_routers(const struct gguf *g, const struct model_params *p)
{
    size_t n = (size_t)p->router.n_experts * p->d_model;
    float *matrix = malloc(n * sizeof *matrix);
    uint8_t *rows = malloc(n * sizeof(double)); /* as in the file; no type has more */
    uint64_t hash = 0;
    char name[GGUF_NAME_BYTES];
    for (uint32_t i = p->n_dense; matrix && rows && i < p->n_layers; i++) {
        snprintf(name, sizeof name, "blk.%" PRIu32 ".ffn_gate_inp.weight",
                 p->layers[i].blocks.feed_forward);
        const struct gguf_tensor *t = gguf_tensor_find(g, name);
        if (!t)
            continue;
        if (t->bytes > n * sizeof(double) || gguf_read_tensor(g, t, rows, NULL)) {
            hash = 0;
            break;
        }
        quant_dequantize(t->type, rows, matrix, n);
        hash = trained_hash(hash, matrix, n * sizeof *matrix);
    }
    free(rows);
    free(matrix);
    return hash;
}

static enum error_code read_all(int fd, void *out, size_t bytes, struct error *e)
{
    for (size_t done = 0; done < bytes;) {
        ssize_t n = read(fd, (char *)out + done, bytes - done);
        if (n < 0)
            return error_set(e, ERROR_IO, "%m");
        if (n == 0)
            return error_set(e, ERROR_FORMAT, "the file became shorter while memd read it");
        done += (size_t)n;
    }
    return ERROR_OK;
}

/* Reads the file into shared memory: later changes of the file do not matter. */
static enum error_code read_file(const char *path, struct shm *out, struct error *e)
{
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a pipe would wait for its writer */
    if (fd < 0)
        return error_set(e, ERROR_NOT_FOUND, "%m");
    enum error_code code = ERROR_OK;
    if (fstat(fd, &st) || !S_ISREG(st.st_mode) || st.st_size == 0)
        code = error_set(e, ERROR_FORMAT, "it is no file of `moed train`");
    if (!code)
        code = shm_create("moed-predictors", (size_t)st.st_size, out, e);
    if (!code)
        code = read_all(fd, out->base, (size_t)st.st_size, e);
    if (!code)
        code = shm_seal_writes(out, e);
    close(fd);
    return code;
}

static enum error_code check(struct predictors_file *f, const struct gguf *g,
                             const struct model_params *params, struct error *e)
{
    char why[TRAINED_WHY];
    struct trained_model model = {.name = params->name, .shape = shape_of(params)};
    if (!trained_view(f->region.base, f->region.bytes, &f->view, why))
        return error_set(e, ERROR_FORMAT, "%s", why);
    if (!trained_is_intact(&f->view))
        return error_set(e, ERROR_FORMAT, "it is damaged: the checksum does not match");
    if (f->view.header.routers)
        model.routers = hash_routers(g, params);
    return trained_fits(&f->view, &model, why) ? ERROR_OK
                                               : error_set(e, ERROR_UNSUPPORTED, "%s", why);
}

enum error_code predictors_file_load(const char *path, const struct gguf *g,
                                     const struct model_params *params, struct predictors_file *out,
                                     struct error *e)
{
    struct predictors_file f = {.region.fd = -1};
    enum error_code code = read_file(path, &f.region, e);
    if (!code)
        code = check(&f, g, params, e);
    if (code) {
        predictors_file_free(&f);
        return code;
    }
    *out = f;
    return ERROR_OK;
}

void predictors_file_free(struct predictors_file *f)
{
    if (f->region.base)
        shm_close(&f->region);
    *f = (struct predictors_file){.region.fd = -1};
}

enum error_code trained_check_predictor(const struct predictors_file *f,
                                        const struct model_params *params,
                                        enum sched_predictor predictor, struct error *e)
{
    struct predict_shape shape = shape_of(params);
    shape.trained = f->region.base ? &f->view : NULL;
    if (predictor_is_trained(predictor, &shape))
        return ERROR_OK;
    return error_set(
        e, ERROR_UNSUPPORTED,
        "predictor %s has to be trained for this model: run `moed profile MODEL --text "
        "FILES%s -o TRACE`, then `%s`, then start it anew",
        sched_predictor_name(predictor), predictor == PREDICT_MTP ? " --hidden all" : "",
        predictor == PREDICT_MTP ? "tools/train/mtp.py TRACE -o MODEL.predictors"
                                 : "moed train TRACE --model MODEL");
}
