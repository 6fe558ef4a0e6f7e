/* The models of a folder: the GGUF files in it and in its sub-folders, CATALOGUE_LEVELS deep, that
 * moed can serve. One thread uses a catalogue. */
#ifndef MOED_DEPLOY_MODELS_CATALOGUE_H
#define MOED_DEPLOY_MODELS_CATALOGUE_H

#include "base/error.h"

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

enum { CATALOGUE_SETTLE_S = 2, CATALOGUE_READ_S = 4 };
/* A folder's own files come before its sub-folders'. The levels reach the files of Hugging Face's
 * cache (hub/models--A--B/snapshots/REVISION/FOLDER). */
enum { CATALOGUE_LEVELS = 5, CATALOGUE_ENTRIES = 20000 };
enum { CATALOGUE_MOST = 256, CATALOGUE_ID_BYTES = 96, CATALOGUE_NAME_BYTES = 33 };

/* Of a model's files: when the newest was written, their number and their bytes. */
struct catalogue_version {
    struct timespec newest;
    uint64_t bytes;
    uint32_t files;
};

bool catalogue_same_version(const struct catalogue_version *a, const struct catalogue_version *b);

struct catalogue_entry {
    char id[CATALOGUE_ID_BYTES];           /* the file's name without ".gguf", for clients */
    char deployment[CATALOGUE_NAME_BYTES]; /* a name for `moed up --name`: of the id */
    char *path;                            /* owned; of a split model: its first file */
    struct catalogue_version version;

    char architecture[32], name[96], quantization[16];
    bool fills; /* its vocabulary has the tokens for fill-in-the-middle */
    uint64_t file_bytes, parameters, weights_bytes;
    /* Of host memory, with the options of its deployment and without the KV cache; 0: they are
     * wrong, which `moed up` reports. */
    uint64_t need_bytes;
    /* Of the KV cache: what one request needs, and what several take. kv_given: the options say
     * --kv-cache, so both are its bytes; 0: it is a share. */
    uint64_t kv_least_bytes, kv_most_bytes;
    bool kv_given;
    struct timespec options_modified; /* 0: there is no such file */
    uint32_t context;                 /* in training */
    bool seen;                        /* by the scan that runs */
};

struct catalogue_refused;
struct catalogue_file;

struct catalogue {
    const char *defaults; /* borrowed: a file of options beneath each model's own; NULL: none */
    struct catalogue_entry entries[CATALOGUE_MOST];
    size_t count;
    struct catalogue_refused *refused; /* what cannot be listed; the log names it once */
    size_t refused_count;
    struct catalogue_file *found; /* by the scan that runs, before it takes any */
    size_t found_count, found_capacity;
    uint32_t files;    /* of models, that the last scan found, listed or not */
    uint32_t left;     /* entries of folders that the scan that runs may still look at */
    bool too_large;    /* the last scan looked at CATALOGUE_ENTRIES, and there are more */
    uint64_t until_ns; /* the scan that runs reads no file after it (clock_ns) */
    uint32_t scans;
};

/* Looks into the folder again. What has not changed since the last scan is not read again, neither
 * the model nor the file of its deployment's options (daemon/options_file.h). An entry
 * whose file is gone is dropped. A model of which a file was written in the last CATALOGUE_SETTLE_S
 * seconds is left out: it may be on its way here. New files are read by a process of their own
 * (reader/model_reader.h), all together for CATALOGUE_READ_S at most; the next scan reads the
 * others. A file that is no model for moed is read again once it has changed; one that could not be
 * read, as there was no memory or time, by a later scan, and until then its entry stays as it was.
 * A file that two links or sub-folders lead to is listed once. Of several files with one name the
 * newest that moed can serve is listed. ERROR_IO: the folder cannot be read.
 */
enum error_code catalogue_scan(struct catalogue *c, const char *folder, struct error *e);
void catalogue_fini(struct catalogue *c);

/* The file with the options of a model's deployment: ID.conf, else DEPLOYMENT.conf
 * (daemon/options_file.h). False: there is none, and path is where the first is looked for. */
bool catalogue_options_file(const char *id, const char *deployment, char path[PATH_MAX]);

/* Whether that file is another, or is changed, since the entry was read. */
bool catalogue_options_changed(const struct catalogue_entry *x);

/* A file that the last scan found and did not list. */
struct catalogue_left_out {
    const char *path, *why; /* valid until the next scan */
};

/* The next one from *at on, which begins at 0. False: there is none. */
bool catalogue_next_left_out(const struct catalogue *c, size_t *at, struct catalogue_left_out *out);
/* Whether `name` is the id of such a file, as catalogue_find takes names. */
bool catalogue_is_left_out(const struct catalogue_left_out *file, const char *name);

/* By id or by the name of its deployment, with or without Ollama's ":latest"; NULL: none. */
const struct catalogue_entry *catalogue_find(const struct catalogue *c, const char *name);

#endif
