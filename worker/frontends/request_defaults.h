/* What a deployment sets for the requests of its clients in place of the model file: the defaults
 * of sampling and of chats, and the chat template. The worker reports them in its ModelReply. */
#ifndef MOED_WORKER_REQUEST_DEFAULTS_H
#define MOED_WORKER_REQUEST_DEFAULTS_H

#include "base/error.h"
#include "model/sampling.h"

#include <math.h>
#include <stdint.h>

/* The options as the command line has them. Not given: NaN, NULL, 0. */
struct request_defaults {
    double temp, top_k, top_p, min_p, repeat_penalty, presence_penalty;
    const char *template_file;
    const char *chat_template_kwargs; /* a JSON object, which clients check */
    uint64_t reasoning_budget;        /* tokens */
};

#define REQUEST_DEFAULTS_NONE                                                                      \
    {                                                                                              \
        NAN, NAN, NAN, NAN, NAN, NAN, NULL, NULL, 0                                                \
    }

/* Replaces the model's defaults with those that are given. ERROR_USAGE: as sampling_check. */
enum error_code request_defaults_apply(const struct request_defaults *d, struct sampling *s,
                                       struct error *e);

#endif
