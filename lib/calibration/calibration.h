/* What a machine was measured to take for a model's experts: seconds of a segment on the device and on the CPU against the number
 * of tokens, the link, and how much link and CPU slow each other down. The worker measures and keeps it in a file, for the next
 * start and for `moed inspect --calibration`; this is the text of that file, its place, and the line through the points.
 *
 * A file is input: one that is broken, or of another machine, device or model, is as good as none.
 */
#ifndef MOED_CALIBRATION_CALIBRATION_H
#define MOED_CALIBRATION_CALIBRATION_H

#include "base/error.h"
#include "base/strbuf.h"
#include "sched/assign.h"

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

enum { CALIBRATION_MAX_POINTS = 8, CALIBRATION_MAX_TEXT = 8192, CALIBRATION_LEARNT = 11 };

struct calibration_point {
    uint32_t tokens;
    double seconds; /* of one segment for so many tokens */
};

struct calibration_side {
    uint32_t n_points;
    struct calibration_point points[CALIBRATION_MAX_POINTS]; /* tokens ascending */
};

/* seconds(w) = base_s + w token_s. residual: root of the mean square of (measured - line) / measured. */
struct calibration_line {
    double base_s, token_s, residual;
};

struct calibration {
    /* what it is of, in words; no control characters */
    char machine[160]; /* CPU, cores, threads, kernels */
    char device[128];
    char model[96];
    char shapes[128];
    int64_t measured_at; /* seconds since 1970 */
    uint64_t segment_bytes;
    struct calibration_side device_side, cpu_side;
    double device_call_s, cpu_call_s; /* of computing anything at all, beside the segments */
    double job_overhead_s;            /* of a job to the CPU executor and back, beside computing */
    /* The link; 0 where it could not be measured (all was resident already). */
    double link_segment_s, link_latency_s; /* each of many; until the first, beside its own time */
    /* How many times longer the CPU takes while the device computes, and again while the link copies too; the link while both
     * compute. 0 where not measured. */
    double cpu_beside_device, cpu_slowdown, link_slowdown;
    /* What layers taught since, as the worker that ended last wrote it (layer_costs.h); all 0: nothing yet. */
    double learnt[CALIBRATION_LEARNT];
};

/* Least squares of the relative error; base and slope are not negative. n_points is at least 1. */
struct calibration_line calibration_fit(const struct calibration_side *side);

/* What the assigners need of it. load_s: of a segment over the link, where that was not measured. */
struct sched_costs calibration_costs(const struct calibration *c, double load_s);

void calibration_write(const struct calibration *c, struct strbuf *out);
/* ERROR_FORMAT names the line that is wrong; everything must be there but what was learnt. */
enum error_code calibration_parse(const char *text, struct calibration *out, struct error *e);
/* Of the same machine, device, model and shapes. */
bool calibration_same(const struct calibration *a, const struct calibration *b);

/* $XDG_CACHE_HOME/moed or $HOME/.cache/moed; false where neither is an absolute path. */
bool calibration_folder(char out[PATH_MAX]);
/* The file there for these words; its name ends in .calibration. */
bool calibration_path(const struct calibration *of, char out[PATH_MAX]);
/* What was stored for `of`'s words: ERROR_NOT_FOUND, ERROR_FORMAT (broken, or another's). */
enum error_code calibration_load(const struct calibration *of, struct calibration *out,
                                 struct error *e);
enum error_code calibration_load_file(const char *path, struct calibration *out, struct error *e);
/* Makes the folder; the file is there whole or not at all. */
enum error_code calibration_store(const struct calibration *c, struct error *e);
/* The same for what c has learnt, where the file there is of the same measurement; else ERROR_NOT_FOUND. */
enum error_code calibration_store_learnt(const struct calibration *c, struct error *e);

#endif
