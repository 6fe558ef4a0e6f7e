/* moed up: start a deployment and return when it answers; the starting itself is in launch.c. */
#include "base/clock.h"
#include "client/cli/ask.h"
#include "client/cli/commands.h"
#include "client/cli/launch.h"
#include "client/cli/learned_file.h"
#include "client/cli/model_file.h"
#include "model/kv_type.h"
#include "sched/policy.h"

#include <stdio.h>
#include <string.h>

/* What memd says of its loading, which is most of what a start takes. */
static void announce_load(const struct launch *l)
{
    Moed__V1__Reply *reply;
    if (deployment_health(l->run, "memd", &reply, NULL))
        return;
    const Moed__V1__HealthReply *h = reply->health;
    double gb = (double)h->loaded_bytes * 1e-9, s = (double)h->load_ns * 1e-9;
    if (s > 0)
        printf("loaded %.2f GB of weights in %.1f s (%.2f GB/s)\n", gb, s, gb / s);
    moed__v1__reply__free_unpacked(reply, NULL);
}

static int announce(const struct launch *l, double started_s)
{
    const struct deployment_process *cpuexec = deployment_status_find(&l->status, "cpuexec");
    if (cpuexec && strcmp(cpuexec->state, "failed") == 0)
        ask_complain("cpuexec does not start, the worker computes alone: %s; its log is "
                     "%s/cpuexec.log",
                     cpuexec->reason, l->run);
    announce_load(l);
    printf("deployment %s answers after %.1f s; ask it with `moed run%s%s \"PROMPT\"`\n",
           launch_name(l), clock_s() - started_s, l->name ? " --name " : "",
           l->name ? l->name : "");
    return fflush(stdout) ? CLI_FAILURE : CLI_OK;
}

static int up(struct launch *l)
{
    double started_s = clock_s();
    int result = launch_start(l);
    if (!result)
        result = announce(l, started_s);
    if (!result && l->bound)
        result = launch_wait(l);
    return result;
}

int up_main(int argc, char **argv)
{
    static struct launch l; /* large */
    static char model[PATH_MAX], learned[LEARNED_PATH];
    const char *learned_word = NULL;
    const struct option_spec table[] = {
        {"name", OPTION_STRING, &l.name, 0, 0, "N", "the deployment's name (default: default)"},
        {"device", OPTION_STRING, &l.device, 0, 0, "D",
         "where the model runs: host, cuda[:N][,vram=SIZE][,dense=host], or emu:vram=SIZE,link=RATE"},
        {"ram", OPTION_STRING, &l.ram, 0, 0, "SIZE",
         "host memory for weights, bytes or 50%; the rest is read from the file as it is needed"},
        {"policy", OPTION_STRING, &l.policy, 0, 0, "P", sched_policy_help()},
        {"assign", OPTION_STRING, &l.assign, 0, 0, "A", sched_assigner_help()},
        {"cache", OPTION_STRING, &l.cache, 0, 0, "C", sched_cache_help()},
        {"predictor", OPTION_STRING, &l.predictor, 0, 0, "P", sched_predictor_help()},
        {"budget", OPTION_STRING, &l.budget, 0, 0, "B", sched_budget_help()},
        {"prefetch", OPTION_STRING, &l.prefetch, 0, 0, "P", sched_prefetcher_help()},
        {"learned", OPTION_STRING, &learned_word, 0, 0, "FILE|none",
         "what `moed train` wrote; without: MODEL.learned beside the model, where it is"},
        {"fine-tune", OPTION_BOOL, &l.fine_tune, 0, 0, NULL,
         "the predictor llapor goes on learning from what layers activate"},
        {"segment-bytes", OPTION_UINT, &l.segment_bytes, 0, 1u << 30, "N",
         "cut experts into segments of at most so many bytes; 0: 2 MiB"},
        {"threads", OPTION_UINT, &l.threads, 0, 1024, "N",
         "threads of each process; 0: one a core, with an emulated device half of the cores each"},
        {"ctx", OPTION_UINT, &l.ctx, 0, 1u << 24, "N", "context in tokens; 0: the worker's choice"},
        {"parallel", OPTION_UINT, &l.parallel, 0, 256, "N",
         "requests at once; 0: the worker's choice"},
        {"kv-type", OPTION_STRING, &l.kv_type, 0, 0, "TYPE",
         "what keys and values of the context are kept as: " KV_TYPES " (default: " KV_TYPE_DEFAULT ")"},
        {"cpuexec", OPTION_BOOL, &l.cpuexec, 0, 0, NULL,
         "without a device, too, experts are computed by a process of their own"},
        {"reproducible", OPTION_BOOL, &l.reproducible, 0, 0, NULL,
         "the same bits wherever an expert is computed, prefill too"},
        {"calibrate", OPTION_BOOL, &l.calibrate, 0, 0, NULL,
         "measure what experts cost on this machine anew"},
        {"mps", OPTION_BOOL, &l.mps, 0, 0, NULL,
         "with a CUDA device: its processes share it by NVIDIA's MPS"},
        {"foreground", OPTION_BOOL, &l.bound, 0, 0, NULL, "stay; Ctrl-C stops it"},
        {"log-level", OPTION_STRING, &l.log_level, 0, 0, "LEVEL", "error, warn, info or debug"},
        {0},
    };
    int n, exit_code;
    if (!deployment_arguments(table, "up", "MODEL [OPTION]...",
                              "Starts a deployment of a model: its processes under a supervisor. "
                              "Returns when it answers.\nMODEL is a GGUF file, or `demo`: the "
                              "model that comes with moed.",
                              argc, argv, 1, 1, &n, &exit_code))
        return exit_code;
    if (!deployment_path(l.name, l.run))
        return CLI_USAGE;
    if (!model_file_find(argv[1], model) || !learned_file_find(learned_word, model, learned))
        return CLI_FAILURE;
    l.model = model;
    l.learned = learned[0] ? learned : NULL;
    return up(&l);
}
