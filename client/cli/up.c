/* moed up: starts a deployment and returns when it answers; see launch.h. moed serve: the same with
 * HTTP, in the foreground. */
#include "base/clock.h"
#include "base/strbuf.h"
#include "client/cli/ask.h"
#include "client/cli/commands.h"
#include "client/cli/device_choice.h"
#include "client/cli/launch.h"
#include "client/cli/model_options.h"
#include "client/cli/models.h"
#include "client/cli/predictors_file.h"
#include "client/cli/model_file.h"
#include "daemon/options_file.h"
#include "model/kv_type.h"
#include "model/speculate.h"
#include "sched/policy.h"

#include <inttypes.h>
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Prints how fast memd loaded the weights, which is most of the start. */
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

/* Prints how long a request may be: on a GPU the default is short. */
static void announce_context(const struct launch *l)
{
    Moed__V1__Reply *reply;
    if (deployment_health(l->run, "worker", &reply, NULL))
        return;
    if (reply->health->context)
        printf("a request has at most %" PRIu32 " tokens, prompt and answer together; "
               "`--ctx N` sets another limit\n",
               reply->health->context);
    moed__v1__reply__free_unpacked(reply, NULL);
}

static int announce(const struct launch *l, double started_s)
{
    char label[RUN_LABEL_BYTES];
    run_dir_label(l->name, label);
    const char *flag = l->name ? " --name " : "", *name = l->name ? l->name : "";
    const struct deployment_process *cpuexec = deployment_status_find(&l->status, "cpuexec");
    if (l->models)
        models_complain_empty(l->run, "up");
    if (!l->model) {
        printf("%s serves the models in %s on demand; `moed models` lists them\n", label,
               l->models);
        return ask_flush() ? CLI_OK : CLI_FAILURE;
    }
    if (cpuexec && strcmp(cpuexec->state, "failed") == 0)
        cli_complain("cpuexec does not start; the worker computes the experts: %s; its log is "
                     "%s/cpuexec.log",
                     cpuexec->reason, l->run);
    announce_load(l);
    announce_context(l);
    printf("%s answers after %.1f s; talk with it: `moed chat%s%s`; one answer: `moed "
           "run --chat%s%s \"PROMPT\"`\n",
           label, clock_s() - started_s, flag, name, flag, name);
    return ask_flush() ? CLI_OK : CLI_FAILURE;
}

/* The address for clients on this machine: "127.0.0.1:8080" for "8080" and "0.0.0.0:8080". */
static void client_address(const char *listen, char *out, size_t bytes)
{
    const char *colon = strrchr(listen, ':');
    bool any = !colon || strncmp(listen, "0.0.0.0:", 8) == 0 || strncmp(listen, "[::]:", 5) == 0;
    snprintf(out, bytes, "%s%s", any ? "127.0.0.1:" : "", any && colon ? colon + 1 : listen);
}

/* Where moed-http listens, by its own status: port 0 of --http stands for any free one. */
static const char *bound_address(const struct launch *l)
{
    const struct deployment_process *http = deployment_status_find(&l->status, "http");
    const char *end = http ? strstr(http->status, "://") : NULL;
    return end ? end + strlen("://") : l->http;
}

/* What a person pastes into a client. */
static int announce_http(const struct launch *l)
{
    char address[300];
    const char *scheme = l->tls_cert ? "https" : "http", *key = l->api_key_file ? "KEY" : "none";
    client_address(bound_address(l), address, sizeof address);
    printf("serving HTTP at %s://%s; for clients:\n"
           "  Browsers   %s://%s/\n"
           "  OpenAI     OPENAI_BASE_URL=%s://%s/v1 OPENAI_API_KEY=%s\n"
           "  Anthropic  ANTHROPIC_BASE_URL=%s://%s ANTHROPIC_API_KEY=%s\n"
           "  Ollama     OLLAMA_HOST=%s://%s\n",
           scheme, address, scheme, address, scheme, address, key, scheme, address, key, scheme,
           address);
    if (l->api_key_file)
        printf("KEY is one of those in %s\n", l->api_key_file);
    return ask_flush() ? CLI_OK : CLI_FAILURE;
}

static int up(struct launch *l)
{
    double started_s = clock_s();
    int result = launch_start(l);
    if (!result)
        result = announce(l, started_s);
    if (!result && l->http)
        result = announce_http(l);
    if (!result && l->bound)
        result = launch_wait(l);
    return result;
}

/* The argument of --name, before options are parsed: it names the configuration file. */
static const char *name_argument(int argc, char **argv)
{
    const char *name = "default";
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++)
        if (strncmp(argv[i], "--name=", 7) == 0)
            name = argv[i] + 7;
        else if (strcmp(argv[i], "--name") == 0 && i + 1 < argc)
            name = argv[i + 1];
    return name;
}

/* The deployment's configuration file; NULL: there is none. */
static const char *find_configuration(int argc, char **argv)
{
    static char path[PATH_MAX];
    return options_file_find(name_argument(argc, argv), path) ? path : NULL;
}

/* Makes --kv-dir, and its path absolute: memd has another working directory. */
static bool find_kv_dir(const char *verb, struct launch *l)
{
    static char path[PATH_MAX];
    if (!l->kv_dir && !l->kv_dir_size)
        return true;
    if (!l->kv_dir) {
        cli_complain("%s: --kv-dir-size needs --kv-dir", verb);
        return false;
    }
    if ((mkdir(l->kv_dir, 0700) != 0 && errno != EEXIST) || !realpath(l->kv_dir, path) ||
        access(path, R_OK | W_OK | X_OK) != 0) {
        cli_complain("--kv-dir %s cannot be used: %s", l->kv_dir, strerror(errno));
        return false;
    }
    l->kv_dir = path;
    return true;
}

/* The options of a folder of models. folder: its absolute path; text: models_keep, where it is
 * given (not NaN). */
static bool check_models(struct launch *l, const char *verb, double models_keep, char text[24],
                         char folder[PATH_MAX])
{
    if (!l->models) {
        if (isnan(models_keep) && !l->models_most && !l->models_memory)
            return true;
        cli_complain("%s: --models-keep, --models-most and --models-memory need --models DIR",
                     verb);
        return false;
    }
    if (!l->http) {
        cli_complain("%s: --models needs --http: requests over HTTP load its models", verb);
        return false;
    }
    if (getenv("MOED_RUN")) {
        cli_complain(
            "%s: --models starts several deployments, which MOED_RUN cannot name: unset it", verb);
        return false;
    }
    if (!realpath(l->models, folder)) {
        cli_complain("%s: --models %s: %s", verb, l->models, strerror(errno));
        return false;
    }
    l->models = folder;
    if (!isnan(models_keep)) {
        snprintf(text, 24, "%.3f", models_keep);
        l->models_keep = text;
    }
    return true;
}

/* What only moed-http takes. */
static bool has_http_options(const struct launch *l)
{
    return l->http_config || l->api_key_file || l->admin_key_file || l->chat_template ||
           l->tls_cert || l->tls_key || l->cors_origins || l->alias || l->drain || l->insecure ||
           l->any_model;
}

/* The aliases as one list. False: no memory. */
static bool join_aliases(const struct option_list *aliases, struct launch *l)
{
    static struct strbuf joined;
    strbuf_init(&joined);
    for (size_t i = 0; i < aliases->count; i++)
        strbuf_printf(&joined, "%s%s", i ? "," : "", aliases->items[i]);
    l->alias = aliases->count ? joined.data : NULL;
    if (joined.failed)
        cli_complain("no memory for the aliases");
    return !joined.failed;
}

/* The option's seconds as text; NULL where it is not given (UINT64_MAX). */
static const char *seconds_text(uint64_t seconds, char text[24])
{
    if (seconds == UINT64_MAX)
        return NULL;
    snprintf(text, 24, "%" PRIu64, seconds);
    return text;
}

static int start(struct launch *l, const char *verb, const char *purpose, int argc, char **argv)
{
    static char model[PATH_MAX], predictors[PREDICTORS_PATH];
    static char watchdog_text[24], drain_text[24], keep_text[24], folder[PATH_MAX];
    static struct option_list aliases;
    double models_keep = NAN;                           /* not given */
    uint64_t watchdog = UINT64_MAX, drain = UINT64_MAX; /* not given */
    const char *option_text = NULL, *model_text = NULL;
    struct device_parts parts = {0};
    const char *found = find_configuration(argc, argv), *config = found;
    const struct option_spec table[] = {
        {"model", OPTION_STRING, &model_text, 0, 0, "MODEL", "the same as MODEL"},
        {"name", OPTION_STRING, &l->name, 0, 0, "NAME", "name the deployment (default: default)"},
        {"device", OPTION_STRING, &l->device, 0, 0, "D",
         "run on host, cuda[:N[,N]...] and perhaps ,vram=SIZE ,reserve=SIZE ,dense=host, or "
         "emu:vram=SIZE,link=RATE (default: a GPU, if there is one)"},
        {"vram", OPTION_STRING, &parts.vram, 0, 0, "SIZE",
         "give experts SIZE of the device's memory: bytes, or a share of them (25%)"},
        {"reserve", OPTION_STRING, &parts.reserve, 0, 0, "SIZE",
         "leave SIZE of a GPU's memory free for other programs"},
        {"ctx", OPTION_UINT, &l->ctx, 0, 1u << 24, "N",
         "set a request's context; 0: the worker's choice"},
        {"ram", OPTION_STRING, &l->ram, 0, 0, "SIZE",
         "keep SIZE (bytes or 50%) of the weights in host memory; read other experts from the file "
         "when needed"},
        {"models", OPTION_STRING, &l->models, 0, 0, "DIR",
         "HTTP: load models of the folder DIR when requests name them"},
        {"http", OPTION_STRING, &l->http, 0, 0, "[HOST:]PORT",
         "serve HTTP there (HOST: 127.0.0.1)"},
        {"api-key-file", OPTION_STRING, &l->api_key_file, 0, 0, "FILE",
         "HTTP: require one of the API keys in FILE"},
        {"parallel", OPTION_UINT, &l->parallel, 0, 256, "N",
         "compute N requests at once; 0: worker's choice"},
        {"workers", OPTION_UINT, &l->workers, 0, SUPERVISE_WORKERS, "N",
         "compute in N processes, which share model, cache and conversations; 0: one"},
        {"threads", OPTION_UINT, &l->threads, 0, 1024, "N",
         "use N threads a process; 0: one a core, half of that each with an emulated device"},
        {"kv-type", OPTION_STRING, &l->kv_type, 0, 0, "TYPE",
         "keep the KV cache as " KV_TYPES " (default: " KV_TYPE_DEFAULT ")"},
        {"kv-cache", OPTION_STRING, &l->kv_cache, 0, 0, "SIZE",
         "keep conversations in SIZE of host memory (default: half of what is free)"},
        {"kv-dir", OPTION_STRING, &l->kv_dir, 0, 0, "DIR",
         "keep conversations in a file there, too: they survive a restart"},
        {"kv-dir-size", OPTION_STRING, &l->kv_dir_size, 0, 0, "SIZE",
         "limit that file (default: twice the KV cache, at most half of what is free)"},
        {"foreground", OPTION_BOOL, &l->bound, 0, 0, NULL, "stay until Ctrl-C, which stops it"},
        {"config", OPTION_STRING, &config, 0, 0, "FILE",
         "read options from FILE first (default: ~/.config/moed/NAME.conf, if it exists)"},
        {"Serving", OPTION_HEADING, NULL, 0, 0, NULL, NULL},
        {"queue", OPTION_UINT, &l->queue, 0, 1u << 20, "N",
         "let N requests wait, refuse more; 0: worker's choice"},
        {"batch", OPTION_UINT, &l->batch, 0, 8192, "N",
         "compute N tokens of prompts at once, at least 256; 0: by memory"},
        {"decode-share", OPTION_UINT, &l->decode_share, 0, 95, "PERCENT",
         "give answers this share of time while prompts are computed; 0: 50"},
        {"speculate", OPTION_STRING, &l->speculate, 0, 0, "N",
         "draft tokens out of the conversation: " SPECULATE_VALUES " (" SPECULATE_DEFAULT ")"},
        {"reproducible", OPTION_BOOL, &l->reproducible, 0, 0, NULL,
         "give the same bits on any device, in prefill too"},
        {"cpuexec", OPTION_BOOL, &l->cpuexec, 0, 0, NULL, "start cpuexec without a device too"},
        {"mps", OPTION_BOOL, &l->mps, 0, 0, NULL, "share a CUDA device by NVIDIA's MPS"},
        {"calibrate", OPTION_BOOL, &l->calibrate, 0, 0, NULL,
         "measure again what experts cost on this machine"},
        {"log-level", OPTION_STRING, &l->log_level, 0, 0, "LEVEL",
         "log error, warn, info or debug"},
        {"watchdog", OPTION_UINT, &watchdog, 0, 3600, "S",
         "restart a process that is silent for S seconds (default: 20); 0: never"},
        {"alias", OPTION_LIST, &aliases, 0, 0, "NAME[=MODEL],...",
         "HTTP: let requests call the default model, or MODEL, NAME too"},
        {"any-model", OPTION_BOOL, &l->any_model, 0, 0, NULL,
         "HTTP: let the default model answer requests for unknown models"},
        {"chat-template", OPTION_STRING, &l->chat_template, 0, 0, "FILE",
         "HTTP: use this chat template, not the model's"},
        {"tls-cert", OPTION_STRING, &l->tls_cert, 0, 0, "FILE", "HTTP: use TLS with a certificate"},
        {"tls-key", OPTION_STRING, &l->tls_key, 0, 0, "FILE",
         "HTTP: the certificate's private key"},
        {"admin-key-file", OPTION_STRING, &l->admin_key_file, 0, 0, "FILE",
         "HTTP: the keys in FILE may change policy and memory"},
        {"cors-origins", OPTION_STRING, &l->cors_origins, 0, 0, "LIST",
         "HTTP: let pages of these origins use it, separated by commas "
         "(default with API keys: *, else none)"},
        {"drain", OPTION_UINT, &drain, 0, 86400, "S",
         "HTTP: let running answers go on for S seconds at the end (default: 5)"},
        {"insecure", OPTION_BOOL, &l->insecure, 0, 0, NULL,
         "HTTP: serve other machines without an API key"},
        {"models-keep", OPTION_FLOAT, &models_keep, -1, 1e9, "S",
         "unload such a model after S seconds without requests (300); -1: never"},
        {"models-most", OPTION_UINT, &l->models_most, 0, 256, "N",
         "keep at most N of them loaded; 0: as many as memory holds"},
        {"models-memory", OPTION_STRING, &l->models_memory, 0, 0, "SIZE",
         "use at most SIZE of memory for them (default: what is free)"},
        {"http-config", OPTION_STRING, &l->http_config, 0, 0, "FILE",
         "HTTP: read moed-http's other options from FILE"},
        {"Research: what is cached, prefetched and computed where", OPTION_HEADING, NULL, 0, 0,
         NULL, NULL},
        {"policy", OPTION_STRING, &l->policy, 0, 0, "P", sched_policy_help()},
        {"assign", OPTION_STRING, &l->assign, 0, 0, "A", sched_assigner_help()},
        {"cache", OPTION_STRING, &l->cache, 0, 0, "C", sched_cache_help()},
        {"predictor", OPTION_STRING, &l->predictor, 0, 0, "P", sched_predictor_help()},
        {"budget", OPTION_STRING, &l->budget, 0, 0, "B", sched_budget_help()},
        {"prefetch", OPTION_STRING, &l->prefetch, 0, 0, "P", sched_prefetcher_help()},
        {"predictors", OPTION_STRING, &option_text, 0, 0, "FILE|none",
         "use what `moed train` wrote (default: MODEL.predictors, if it exists)"},
        {"fine-tune", OPTION_BOOL, &l->fine_tune, 0, 0, NULL,
         "train the predictor llapor further while serving"},
        {"segment-bytes", OPTION_UINT, &l->segment_bytes, 0, 1u << 30, "N",
         "cut experts into segments of N bytes; 0: 2 MiB"},
        {0},
    };
    const char *model_option = model_options_find(table, argc, argv);
    int n, exit_code;
    if (!ask_arguments(table, verb, "MODEL [OPTION]...", purpose, argc, argv, 0, 1, &n, &exit_code))
        return exit_code;
    l->watchdog = seconds_text(watchdog, watchdog_text);
    l->drain = seconds_text(drain, drain_text);
    if (n)
        model_text = argv[1];
    if (!model_text && !l->models) {
        cli_complain("%s: MODEL is missing; usage: moed %s MODEL [OPTION]..., or --models DIR",
                     verb, verb);
        return CLI_USAGE;
    }
    if (!check_models(l, verb, models_keep, keep_text, folder))
        return CLI_USAGE;
    if (found && config == found)
        fprintf(stderr, "moed: options from %s\n", found);
    if (!model_text && !model_options_absent(model_option, verb))
        return CLI_USAGE;
    if (!join_aliases(&aliases, l))
        return CLI_FAILURE;
    if (!l->http && has_http_options(l)) {
        cli_complain("%s: the options that --help marks with \"HTTP:\" need --http [HOST:]PORT",
                     verb);
        return CLI_USAGE;
    }
    if (!deployment_path(l->name, l->run))
        return CLI_USAGE;
    if (model_text && (!model_file_find(model_text, model) ||
                       !predictors_file_find(option_text, model, predictors)))
        return CLI_FAILURE;
    if (!find_kv_dir(verb, l))
        return CLI_FAILURE;
    l->model = model_text ? model : NULL;
    l->predictors = predictors[0] ? predictors : NULL;
    if (!l->device)
        l->device = getenv("MOED_DEVICE");
    exit_code = launch_check_not_running(l); /* it would have the device's memory */
    if (!exit_code && l->model)
        exit_code = device_choice_make(l, &parts);
    return exit_code ? exit_code : up(l);
}

int up_main(int argc, char **argv)
{
    static struct launch l; /* large */
    return start(
        &l, "up",
        "Starts a deployment: the processes that serve MODEL, under a supervisor. Returns\n"
        "when it answers. MODEL is a GGUF file, or `demo`, the model that comes with\n"
        "moed.",
        argc, argv);
}

int serve_main(int argc, char **argv)
{
    static struct launch l = {.http = "8080", .bound = true};
    return start(&l, "serve",
                 "Starts a deployment that serves HTTP, prints what clients need, and stays until\n"
                 "Ctrl-C, which stops it. The options are those of `moed up`.",
                 argc, argv);
}
