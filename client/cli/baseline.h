/* A baseline: what `moed perplexity --save` keeps of a measurement for `--against`, a file.
 *
 *     struct baseline_head                              one
 *     for each window:
 *         uint32 n, first, ids[n]                       tokens; those from `first` on are scored
 *         float  logprobs[m]                            m = n - first
 *         uint32 top[m][head.top]                       the most probable tokens, the first one first
 *         float  top_logprobs[m][head.top]
 *     uint64 checksum                                   checksum64 of each part before, each the
 *                                                       seed of the next
 *
 * All is little-endian, logarithms are natural. A reader knows the windows that it expects, so no
 * size in the file decides how much is read. */
#ifndef MOED_CLI_BASELINE_H
#define MOED_CLI_BASELINE_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define BASELINE_VERSION 1
#define BASELINE_TOP     64 /* as many as a worker gives */

struct baseline_head {
    char magic[8];       /* "moedbase" */
    uint32_t version;    /* BASELINE_VERSION */
    uint32_t vocab, top; /* tokens; most probable ones at each place */
    uint32_t zero;
    uint64_t n_windows, n_scored; /* scored tokens of all windows */
    uint64_t identity;            /* moed_model.identity */
    char kv_type[16], device[64]; /* NUL-terminated, without control characters */
    char model[512];              /* the same: its path, or the end of it */
};
_Static_assert(sizeof(struct baseline_head) == 640, "the file's layout");

/* The scores of one window. */
struct baseline_scores {
    float *logprobs;     /* [m] */
    uint32_t *top;       /* [m][top] */
    float *top_logprobs; /* the same */
    void *memory;
};

/* For windows of at most n tokens. False: no memory. Free s->memory with free(). */
bool baseline_scores_init(struct baseline_scores *s, size_t n, uint32_t top);

struct baseline {
    struct baseline_head head;
    const char *path;
    struct file_writer *writer; /* NULL: it is read */
    int fd;                     /* -1: it is written, or not open */
    uint64_t checksum;
};

/* Fills in magic and version. The file is there once baseline_finish succeeds. */
enum error_code baseline_create(struct baseline *b, const char *path,
                                const struct baseline_head *head, struct error *e);
/* Checks the head. */
enum error_code baseline_open(struct baseline *b, const char *path, struct error *e);
/* The next window: written; or read, where ids and numbers must be those of the file. */
enum error_code baseline_window(struct baseline *b, const uint32_t *ids, size_t n, size_t first,
                                struct baseline_scores *s, struct error *e);
/* After the last window: writes or checks the checksum and the end, and closes. */
enum error_code baseline_finish(struct baseline *b, struct error *e);
/* Closes; a file that is written does not come. Takes one that is not open: zeroed, or closed. */
void baseline_abandon(struct baseline *b);

#endif
