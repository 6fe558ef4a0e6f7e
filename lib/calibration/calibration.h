/* A calibration: what a model's experts cost on this machine. It holds the seconds of a segment on
 * the device and on the CPU against the number of tokens, the seconds of the link, and how much
 * link and CPU slow each other down.
 *
 * The worker measures it and stores it in a file, for the next start and for `moed inspect
 * --calibration`. This module has the text of the file, its path, and the line through the points.
 *
 * A file is input: the worker ignores one that is broken or of another machine, device or model. */
#ifndef MOED_CALIBRATION_CALIBRATION_H
#define MOED_CALIBRATION_CALIBRATION_H

#include "base/error.h"
#include "base/strbuf.h"
#include "sched/assign/assign.h"

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

enum { CALIBRATION_MAX_POINTS = 8, CALIBRATION_MAX_TEXT = 8192, CALIBRATION_CORRECTED = 11 };

struct calibration_point {
    uint32_t tokens;
    double seconds; /* of one segment for these tokens */
};

struct calibration_side {
    uint32_t n_points;
    struct calibration_point points[CALIBRATION_MAX_POINTS]; /* tokens ascending */
};

/* seconds(w) = base_s + w token_s for w tokens. residual: root mean square of (measured - line) /
 * measured. */
struct calibration_line {
    double base_s, token_s, residual;
};

struct calibration {
    /* descriptions, without control characters */
    char machine[160]; /* CPU, cores, threads, kernels */
    char device[128];
    char model[96];
    char shapes[128];
    int64_t measured_at; /* seconds since 1970 */
    uint64_t segment_bytes;
    struct calibration_side device_side, cpu_side;
    double device_call_s, cpu_call_s; /* fixed cost of a call, without the segments */
    double job_overhead_s;            /* of a job to the CPU executor and back, without computing */
    /* The link: per segment of many, and the latency of the first in addition. 0: not measured,
     * because everything was resident. */
    double link_segment_s, link_latency_s;
    /* Factors, 0: not measured. cpu_overlap: of the CPU's time while the device computes;
     * cpu_slowdown: in addition while the link copies; link_slowdown: of the link's time while both
     * compute. */
    double cpu_overlap, cpu_slowdown, link_slowdown;
    /* The cost corrections that the last worker stored at its end (layer_costs.h). All 0: none. */
    double corrections[CALIBRATION_CORRECTED];
};

/* The line with the least squares of the relative error. Base and slope are not negative. n_points
 * is at least 1. */
struct calibration_line calibration_fit(const struct calibration_side *side);

/* The costs that the assigners need. load_s: of a segment over the link, if c has no measurement.
 */
struct sched_costs calibration_costs(const struct calibration *c, double load_s);

void calibration_write(const struct calibration *c, struct strbuf *out);
/* ERROR_FORMAT names the wrong line. ERROR_VERSION: another version of moed wrote it. Only the
 * corrections may be missing. */
enum error_code calibration_parse(const char *text, struct calibration *out, struct error *e);
/* True: the same machine, device, model and shapes. */
bool calibration_same(const struct calibration *a, const struct calibration *b);

/* $XDG_CACHE_HOME/moed or $HOME/.cache/moed. False: neither is an absolute path. */
bool calibration_folder(char out[PATH_MAX]);
/* The same; makes it, with access for this user only. False: that failed, too. */
bool calibration_make_folder(char out[PATH_MAX]);
/* The file in it for of's descriptions; its name ends in .calibration. */
bool calibration_path(const struct calibration *of, char out[PATH_MAX]);
/* The calibration stored for of's descriptions. ERROR_NOT_FOUND; ERROR_FORMAT: broken, or of
 * something else; ERROR_VERSION. */
enum error_code calibration_load(const struct calibration *of, struct calibration *out,
                                 struct error *e);
enum error_code calibration_load_file(const char *path, struct calibration *out, struct error *e);
/* Makes the folder and writes the file atomically. */
enum error_code calibration_store(const struct calibration *c, struct error *e);
/* Waits until no other process of this user measures for of's descriptions. Returns a descriptor to
 * close once the measurement is stored; -1: nothing can be stored here. */
int calibration_lock(const struct calibration *of);
/* Stores c's corrections in the existing file of the same measurement. ERROR_NOT_FOUND: there is
 * none. */
enum error_code calibration_store_corrections(const struct calibration *c, struct error *e);

#endif
