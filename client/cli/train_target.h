/* moed train: the file to write, the model that it is for, and what it holds already. */
#ifndef MOED_CLIENT_CLI_TRAIN_TARGET_H
#define MOED_CLIENT_CLI_TRAIN_TARGET_H

#include "base/file_map.h"
#include "base/file_writer.h"
#include "client/cli/predictors_file.h"
#include "client/cli/predictors_model.h"

struct train_target {
    /* the options */
    const char *out, *model;
    bool force; /* replace the file, whatever it holds */

    char path[PREDICTORS_PATH];
    struct predictors_model of;   /* of --model */
    struct trained_model trained; /* the model of the file's header: of --model, or the trace's */
    struct file_map map;          /* the file as it is */
    bool has_old;                 /* the file holds predictors of this model; false with force */
    bool replaces;                /* the file is there, and not empty */
    struct trained_predictors old;
    struct file_writer *writer;
};

/* Finds the path. False: it has complained about the usage. */
bool train_target_find(struct train_target *t);
/* Reads the model, checks that the trace is of it, reads the file as it is and opens it for
 * writing. Complains. */
bool train_target_open(struct train_target *t, const char *trace_path, const struct trace *trace);
/* Writes these bytes to the file, whole. */
enum error_code train_target_write(struct train_target *t, const void *bytes, size_t n,
                                   struct error *e);
void train_target_close(struct train_target *t);

#endif
