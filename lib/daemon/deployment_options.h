/* The options of a deployment: what `moed up` takes and hands to moed-supervise, which hands it to
 * the processes. One table; CONTRIBUTING.md says how an option is added. Its help is in
 * client/cli/up.c, in the order in which a person reads it.
 *
 * An option is given where its value is not NULL (STRING), not 0 (UINT), not NaN (FLOAT), or true
 * (BOOL). Otherwise the process that takes it chooses. */
#ifndef MOED_DAEMON_DEPLOYMENT_OPTIONS_H
#define MOED_DAEMON_DEPLOYMENT_OPTIONS_H

#include "daemon/options.h"
#include "daemon/supervisor_protocol.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The processes that the supervisor hands an option on to, and what it is an option of. */
enum {
    TO_MEMD = 1,
    TO_CPUEXEC = 2,
    TO_WORKER = 4,
    TO_MODELS = 8,
    TO_HTTP = 16,
    OF_MODEL = 32, /* each model of a folder has its own */
    OF_HTTP = 64,  /* needs --http */
    TO_ALL = TO_MEMD | TO_CPUEXEC | TO_WORKER,
};

/* X(member, TYPE, flag, min, max, VALUE, takers, flag of the takers; NULL: the same) */
#define DEPLOYMENT_OPTIONS(X)                                                                      \
    X(device, STRING, "--device", 0, 0, "D", TO_ALL | OF_MODEL, NULL)                              \
    X(ram, STRING, "--ram", 0, 0, "SIZE", TO_MEMD | OF_MODEL, NULL)                                \
    X(policy, STRING, "--policy", 0, 0, "P", TO_MEMD | OF_MODEL, NULL)                             \
    X(assign, STRING, "--assign", 0, 0, "A", TO_MEMD | OF_MODEL, NULL)                             \
    X(cache, STRING, "--cache", 0, 0, "C", TO_MEMD | OF_MODEL, NULL)                               \
    X(predictor, STRING, "--predictor", 0, 0, "P", TO_MEMD | OF_MODEL, NULL)                       \
    X(budget, STRING, "--budget", 0, 0, "B", TO_MEMD | OF_MODEL, NULL)                             \
    X(prefetch, STRING, "--prefetch", 0, 0, "P", TO_MEMD | OF_MODEL, NULL)                         \
    X(predictors, STRING, "--predictors", 0, 0, "FILE", TO_MEMD | OF_MODEL, NULL)                  \
    X(segment_bytes, UINT, "--segment-bytes", 0, 1u << 30, "N", TO_MEMD | OF_MODEL, NULL)          \
    X(threads, UINT, "--threads", 0, 1024, "N", TO_ALL | OF_MODEL, NULL)                           \
    X(workers, UINT, "--workers", 0, SUPERVISE_WORKERS, "N", TO_MEMD | OF_MODEL, NULL)             \
    /* memd reserves device memory for the worker's context */                                     \
    X(ctx, UINT, "--ctx", 0, 1u << 24, "N", TO_MEMD | TO_WORKER | OF_MODEL, NULL)                  \
    X(parallel, UINT, "--parallel", 0, 256, "N", TO_MEMD | TO_WORKER | OF_MODEL, NULL)             \
    X(batch, UINT, "--batch", 0, 1u << 13, "N", TO_MEMD | TO_WORKER | OF_MODEL, NULL)              \
    X(kv_type, STRING, "--kv-type", 0, 0, "TYPE", TO_MEMD | TO_WORKER | OF_MODEL, NULL)            \
    X(kv_cache, STRING, "--kv-cache", 0, 0, "SIZE", TO_MEMD | OF_MODEL, NULL)                      \
    X(kv_dir, STRING, "--kv-dir", 0, 0, "DIR", TO_MEMD | OF_MODEL, NULL)                           \
    X(kv_dir_size, STRING, "--kv-dir-size", 0, 0, "SIZE", TO_MEMD | OF_MODEL, NULL)                \
    X(queue, UINT, "--queue", 0, 1u << 20, "N", TO_WORKER | OF_MODEL, NULL)                        \
    X(decode_share, UINT, "--decode-share", 0, 95, "PERCENT", TO_WORKER | OF_MODEL, NULL)          \
    X(speculate, STRING, "--speculate", 0, 0, "N", TO_WORKER | OF_MODEL, NULL)                     \
    X(fine_tune, BOOL, "--fine-tune", 0, 0, NULL, TO_WORKER | OF_MODEL, NULL)                      \
    X(cpuexec, BOOL, "--cpuexec", 0, 0, NULL, TO_WORKER | OF_MODEL, NULL)                          \
    X(calibrate, BOOL, "--calibrate", 0, 0, NULL, TO_WORKER | OF_MODEL, NULL)                      \
    X(reproducible, BOOL, "--reproducible", 0, 0, NULL, TO_ALL | OF_MODEL, NULL)                   \
    X(no_pin, BOOL, "--no-pin", 0, 0, NULL, TO_CPUEXEC | TO_WORKER | OF_MODEL, NULL)               \
    X(spin_us, FLOAT, "--spin-us", 0, 10000, "US", TO_CPUEXEC | TO_WORKER | OF_MODEL, NULL)        \
    X(mps, BOOL, "--mps", 0, 0, NULL, OF_MODEL, NULL)                                              \
    /* the worker reports these to its clients as the model's defaults */                          \
    X(temp, FLOAT, "--temp", 0, 100, "T", TO_WORKER | OF_MODEL, NULL)                              \
    X(top_k, FLOAT, "--top-k", 0, 1u << 30, "K", TO_WORKER | OF_MODEL, NULL)                       \
    X(top_p, FLOAT, "--top-p", 0, 1, "P", TO_WORKER | OF_MODEL, NULL)                              \
    X(min_p, FLOAT, "--min-p", 0, 1, "P", TO_WORKER | OF_MODEL, NULL)                              \
    X(repeat_penalty, FLOAT, "--repeat-penalty", 0, 100, "X", TO_WORKER | OF_MODEL, NULL)          \
    X(presence_penalty, FLOAT, "--presence-penalty", -100, 100, "X", TO_WORKER | OF_MODEL, NULL)   \
    X(chat_template, STRING, "--chat-template", 0, 0, "FILE", TO_WORKER | OF_MODEL, NULL)          \
    X(chat_template_kwargs, STRING, "--chat-template-kwargs", 0, 0, "JSON", TO_WORKER | OF_MODEL,  \
      NULL)                                                                                        \
    X(reasoning_budget, UINT, "--reasoning-budget", 1, 1u << 30, "N", TO_WORKER | OF_MODEL, NULL)  \
    X(log_level, STRING, "--log-level", 0, 0, "LEVEL", TO_ALL | TO_MODELS | TO_HTTP, NULL)         \
    X(log_format, STRING, "--log-format", 0, 0, "text|json", TO_HTTP, NULL)                        \
    X(watchdog_s, FLOAT, "--watchdog", 0, 3600, "S", 0, NULL)                                      \
    X(models, STRING, "--models", 0, 0, "DIR", 0, NULL)                                            \
    X(models_keep_s, FLOAT, "--models-keep", -1, 1e9, "S", TO_MODELS, "--keep")                    \
    X(models_most, UINT, "--models-most", 0, 256, "N", TO_MODELS, "--most")                        \
    X(models_memory, STRING, "--models-memory", 0, 0, "SIZE", TO_MODELS, "--memory")               \
    X(http, STRING, "--http", 0, 0, "[HOST:]PORT", TO_HTTP, "--listen")                            \
    X(http_config, STRING, "--http-config", 0, 0, "FILE", TO_HTTP | OF_HTTP, "--config")           \
    X(api_key_file, STRING, "--api-key-file", 0, 0, "FILE", TO_HTTP | OF_HTTP, NULL)               \
    X(admin_key_file, STRING, "--admin-key-file", 0, 0, "FILE", TO_HTTP | OF_HTTP, NULL)           \
    X(metrics_key_file, STRING, "--metrics-key-file", 0, 0, "FILE", TO_HTTP | OF_HTTP, NULL)       \
    X(tls_cert, STRING, "--tls-cert", 0, 0, "FILE", TO_HTTP | OF_HTTP, NULL)                       \
    X(tls_key, STRING, "--tls-key", 0, 0, "FILE", TO_HTTP | OF_HTTP, NULL)                         \
    X(cors_origins, STRING, "--cors-origins", 0, 0, "LIST", TO_HTTP | OF_HTTP, NULL)               \
    X(alias, STRING, "--alias", 0, 0, "LIST", TO_HTTP | OF_HTTP, NULL)                             \
    X(drain_s, FLOAT, "--drain", 0, 86400, "S", TO_HTTP | OF_HTTP, NULL)                           \
    X(insecure, BOOL, "--insecure", 0, 0, NULL, TO_HTTP | OF_HTTP, NULL)                           \
    X(any_model, BOOL, "--any-model", 0, 0, NULL, TO_HTTP | OF_HTTP, NULL)

#define DEPLOYMENT_TYPE_STRING const char *
#define DEPLOYMENT_TYPE_UINT   uint64_t
#define DEPLOYMENT_TYPE_FLOAT  double
#define DEPLOYMENT_TYPE_BOOL   bool

struct deployment_options {
#define X(member, type, ...) DEPLOYMENT_TYPE_##type member;
    DEPLOYMENT_OPTIONS(X)
#undef X
};

struct deployment_option {
    const char *flag; /* "--decode-share" */
    enum option_type type;
    size_t offset; /* in struct deployment_options */
    double min, max;
    const char *value_name;
    unsigned takers;
    const char *taker_flag;
};

enum {
#define X(member, ...) +1
    DEPLOYMENT_OPTIONS_COUNT = 0 DEPLOYMENT_OPTIONS(X)
#undef X
};
extern const struct deployment_option deployment_options_table[DEPLOYMENT_OPTIONS_COUNT];

/* The option of this name, without the dashes; NULL: there is none. */
const struct deployment_option *deployment_options_find(const char *name);
/* Nothing is given. */
void deployment_options_init(struct deployment_options *o);
/* The value as text, which `number` holds or o; "" for a switch. NULL: it is not given. */
const char *deployment_options_text(const struct deployment_option *option,
                                    const struct deployment_options *o, char number[24]);
/* The row of a program's table of options. name: without the dashes; one that is not in the table
 * ends the process, as that is our bug. */
struct option_spec deployment_options_spec(const char *name, struct deployment_options *o,
                                           const char *help);

#endif
