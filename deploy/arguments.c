/* The command lines of the daemons: which option goes to which process. */
#include "deploy/supervisor.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void add_argument(struct process *p, const char *flag, const char *value)
{
    size_t n = 0;
    while (p->arguments[n])
        n++;
    if (n + 2 > PROCESS_MAX_ARGUMENTS)
        abort(); /* our bug: the options below are fewer */
    p->arguments[n++] = (char *)flag;
    if (value)
        p->arguments[n] = (char *)value;
}

enum {
    TO_MEMD = 1,
    TO_CPUEXEC = 2,
    TO_WORKER = 4,
    TO_MODELS = 8,
    TO_HTTP = 16,
    TO_ALL = TO_MEMD | TO_CPUEXEC | TO_WORKER
};

static unsigned kind_of(int which)
{
    return which == MEMD      ? TO_MEMD
           : which == CPUEXEC ? TO_CPUEXEC
           : which == MODELS  ? TO_MODELS
           : which == HTTP    ? TO_HTTP
                              : TO_WORKER;
}

/* The value as text, which `text` holds; NULL for 0, the process's own default. */
static const char *number(uint64_t value, char text[24])
{
    snprintf(text, 24, "%" PRIu64, value);
    return value ? text : NULL;
}

static const char *number_or_less(double value, char text[24])
{
    snprintf(text, 24, "%.3f", value);
    return text;
}

/* NULL for -1, the process's own default. */
static const char *whole_seconds(double seconds, char text[24])
{
    snprintf(text, 24, "%.0f", seconds);
    return seconds >= 0 ? text : NULL;
}

void supervisor_build_arguments(struct supervisor *s, struct generation *g, struct process *first,
                                int n)
{
    const struct settings *o = &g->settings;
    const struct {
        unsigned to;
        const char *flag, *value; /* NULL: not given */
    } options[] = {
        {TO_ALL, "--run", g->dir},
        {TO_MODELS | TO_HTTP, "--run", s->run},
        {TO_ALL | TO_MODELS | TO_HTTP, "--log-level", o->log_level},
        {TO_ALL, "--threads", number(o->threads, g->numbers[0])},
        {TO_MEMD, "--model", g->model},
        {TO_ALL, "--device", o->device},
        {TO_MEMD, "--ram", o->ram},
        {TO_MEMD, "--policy", o->policy},
        {TO_MEMD, "--assign", o->assign},
        {TO_MEMD, "--cache", o->cache},
        {TO_MEMD, "--predictor", o->predictor},
        {TO_MEMD, "--budget", o->budget},
        {TO_MEMD, "--prefetch", o->prefetch},
        {TO_MEMD, "--predictors", o->predictors},
        {TO_MEMD, "--segment-bytes", number(o->segment_bytes, g->numbers[3])},
        /* memd reserves device memory for the worker's context. */
        {TO_MEMD | TO_WORKER, "--ctx", number(o->ctx, g->numbers[1])},
        {TO_MEMD | TO_WORKER, "--parallel", number(o->parallel, g->numbers[2])},
        {TO_MEMD | TO_WORKER, "--batch", number(o->batch, g->numbers[8])},
        {TO_WORKER, "--queue", number(o->queue, g->numbers[4])},
        {TO_WORKER, "--decode-share", number(o->decode_share, g->numbers[5])},
        {TO_WORKER, "--speculate", o->speculate},
        {TO_MEMD, "--workers", number(o->workers > 1 ? o->workers : 0, g->numbers[9])},
        {TO_MEMD | TO_WORKER, "--kv-type", o->kv_type},
        {TO_MEMD, "--kv-cache", o->kv_cache},
        {TO_MEMD, "--kv-dir", o->kv_dir},
        {TO_MEMD, "--kv-dir-size", o->kv_dir_size},
        {TO_MODELS, "--folder", s->models},
        {TO_MODELS, "--keep", number_or_less(o->models_keep_s, g->numbers[6])},
        {TO_MODELS, "--most", number(o->models_most, g->numbers[7])},
        {TO_MODELS, "--memory", o->models_memory},
        {TO_HTTP, "--name", o->name},
        {TO_HTTP, "--config", o->http_config},
        {TO_HTTP, "--listen", o->http},
        {TO_HTTP, "--api-key-file", o->api_key_file},
        {TO_HTTP, "--admin-key-file", o->admin_key_file},
        {TO_HTTP, "--chat-template", o->chat_template},
        {TO_HTTP, "--tls-cert", o->tls_cert},
        {TO_HTTP, "--tls-key", o->tls_key},
        {TO_HTTP, "--cors-origins", o->cors_origins},
        {TO_HTTP, "--alias", o->alias},
        {TO_HTTP, "--drain", whole_seconds(o->http_drain_s, g->numbers[10])},
    };
    const struct {
        unsigned to;
        const char *flag;
        bool given;
    } switches[] = {
        {TO_ALL, "--reproducible", o->reproducible}, {TO_HTTP, "--models", o->models != NULL},
        {TO_WORKER, "--cpuexec", o->cpuexec},        {TO_WORKER, "--calibrate", o->calibrate},
        {TO_WORKER, "--fine-tune", o->fine_tune},    {TO_HTTP, "--insecure", o->insecure},
        {TO_HTTP, "--any-model", o->any_model},
    };
    for (int i = 0; i < n; i++) {
        struct process *p = &first[i];
        memset(p->arguments, 0, sizeof p->arguments);
        add_argument(p, p->program, NULL);
        if (is_worker(i) && i > WORKER) {
            char *text = g->worker_numbers[i - WORKER];
            snprintf(text, sizeof g->worker_numbers[0], "%d", i - WORKER + 1);
            add_argument(p, "--number", text);
        }
        for (size_t k = 0; k < sizeof options / sizeof *options; k++)
            if (options[k].value && (options[k].to & kind_of(i)))
                add_argument(p, options[k].flag, options[k].value);
        for (size_t k = 0; k < sizeof switches / sizeof *switches; k++)
            if (switches[k].given && (switches[k].to & kind_of(i)))
                add_argument(p, switches[k].flag, NULL);
    }
}
