/* moed up: starts a deployment and returns when it answers; see launch.h. moed serve: the same with
 * HTTP, in the foreground. */
#include "base/clock.h"
#include "base/strbuf.h"
#include "client/cli/ask.h"
#include "client/cli/commands.h"
#include "client/cli/device_choice.h"
#include "client/cli/folder_options.h"
#include "client/cli/launch.h"
#include "client/cli/models.h"
#include "client/cli/predictors_file.h"
#include "client/cli/request_defaults.h"
#include "client/cli/model_file.h"
#include "daemon/option_names.h"
#include "daemon/options_file.h"
#include "kernels/kernels.h"
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

/* Prints how fast memd loaded the weights, which is most of the start, and its warning. */
static void announce_load(const struct launch *l)
{
    Moed__V1__Reply *reply;
    if (deployment_health(l->run, "memd", &reply, NULL))
        return;
    const Moed__V1__HealthReply *h = reply->health;
    if (h->predictors_unused[0])
        cli_complain("%s", h->predictors_unused);
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
    if (l->options.models)
        models_complain_empty(l->run, "up");
    if (!l->model) {
        printf("%s serves the models in %s on demand; `moed models` lists them\n", label,
               l->options.models);
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
    return end ? end + strlen("://") : l->options.http;
}

/* What a person pastes into a client. */
static int announce_http(const struct launch *l)
{
    char address[300];
    const char *scheme = l->options.tls_cert ? "https" : "http",
               *key = l->options.api_key_file ? "KEY" : "none";
    client_address(bound_address(l), address, sizeof address);
    printf("serving HTTP at %s://%s; for clients:\n"
           "  Browsers   %s://%s/\n"
           "  OpenAI     OPENAI_BASE_URL=%s://%s/v1 OPENAI_API_KEY=%s\n"
           "  Anthropic  ANTHROPIC_BASE_URL=%s://%s ANTHROPIC_API_KEY=%s\n"
           "  Ollama     OLLAMA_HOST=%s://%s\n",
           scheme, address, scheme, address, scheme, address, key, scheme, address, key, scheme,
           address);
    if (l->options.api_key_file)
        printf("KEY is one of those in %s\n", l->options.api_key_file);
    return ask_flush() ? CLI_OK : CLI_FAILURE;
}

static int up(struct launch *l)
{
    double started_s = clock_s();
    int result = launch_start(l);
    if (!result)
        result = announce(l, started_s);
    if (!result && l->options.http)
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
    if (!l->options.kv_dir && !l->options.kv_dir_size)
        return true;
    if (!l->options.kv_dir) {
        cli_complain("%s: --kv-dir-size needs --kv-dir", verb);
        return false;
    }
    if ((mkdir(l->options.kv_dir, 0700) != 0 && errno != EEXIST) ||
        !realpath(l->options.kv_dir, path) || access(path, R_OK | W_OK | X_OK) != 0) {
        cli_complain("--kv-dir %s cannot be used: %s", l->options.kv_dir, strerror(errno));
        return false;
    }
    l->options.kv_dir = path;
    return true;
}

/* The options of a folder of models, whose path it makes absolute. */
static bool check_models(struct launch *l, const char *verb)
{
    static char folder[PATH_MAX];
    struct deployment_options *o = &l->options;
    if (!o->models) {
        if (isnan(o->models_keep_s) && !o->models_most && !o->models_memory)
            return true;
        cli_complain("%s: --models-keep, --models-most and --models-memory need --models DIR",
                     verb);
        return false;
    }
    if (!o->http) {
        cli_complain("%s: --models needs --http: requests over HTTP load its models", verb);
        return false;
    }
    if (getenv("MOED_RUN")) {
        cli_complain(
            "%s: --models starts several deployments, which MOED_RUN cannot name: unset it", verb);
        return false;
    }
    if (!realpath(o->models, folder)) {
        cli_complain("%s: --models %s: %s", verb, o->models, strerror(errno));
        return false;
    }
    o->models = folder;
    return true;
}

/* A flag that only moed-http takes, before options_parse orders argv. Those of a file are for when
 * it is started with --http. */
static bool has_http_flags(const struct option_spec *table, int argc, char **argv)
{
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++) {
        const char *name = argv[i] + strspn(argv[i], "-");
        const struct option_spec *o = option_names_find(table, name, strcspn(name, "="));
        const struct deployment_option *row =
            name != argv[i] && o ? deployment_options_find(o->name) : NULL;
        if (row && row->takers & OF_HTTP)
            return true;
    }
    return false;
}

/* The aliases as one list. False: no memory. */
static bool join_aliases(const struct option_list *aliases, struct launch *l)
{
    static struct strbuf joined;
    strbuf_init(&joined);
    for (size_t i = 0; i < aliases->count; i++)
        strbuf_printf(&joined, "%s%s", i ? "," : "", aliases->items[i]);
    l->options.alias = aliases->count ? joined.data : NULL;
    if (joined.failed)
        cli_complain("no memory for the aliases");
    return !joined.failed;
}

/* What the command line says, beside the launch. */
struct request {
    struct launch *launch;
    const char *model, *config, *defaults, *log_to;
    struct folder_options of_model;
    struct option_list aliases;
};

/* The options, in the order of the help. Valid until the next call. */
static const struct option_spec *list_options(struct request *r)
{
    struct deployment_options *o = &r->launch->options;
    const struct option_spec rows[] = {
        {"model", OPTION_STRING, &r->model, 0, 0, "MODEL", "the same as MODEL"},
        {"name", OPTION_STRING, &r->launch->name, 0, 0, "NAME",
         "name the deployment (default: default)"},
        deployment_options_spec(
            "device", o,
            "run on host, cuda[:N[,N]...] and perhaps ,vram=SIZE ,reserve=SIZE ,dense=host, or "
            "emu:vram=SIZE,link=RATE (default: a GPU, if there is one)"),
        {"vram", OPTION_STRING, &r->of_model.parts.vram, 0, 0, "SIZE",
         "give experts SIZE of the device's memory: bytes, or a share of them (25%)"},
        {"reserve", OPTION_STRING, &r->of_model.parts.reserve, 0, 0, "SIZE",
         "leave SIZE of a GPU's memory free for other programs"},
        deployment_options_spec("ctx", o, "set a request's context; 0: the worker's choice"),
        deployment_options_spec("ram", o,
                                "keep SIZE (bytes or 50%) of the weights in host memory; read "
                                "other experts from the file "
                                "when needed"),
        deployment_options_spec("models", o,
                                "HTTP: load models of the folder DIR when requests name them"),
        deployment_options_spec("http", o, "serve HTTP there (HOST: 127.0.0.1)"),
        deployment_options_spec("api-key-file", o, "HTTP: require one of the API keys in FILE"),
        deployment_options_spec("parallel", o, "compute N requests at once; 0: worker's choice"),
        deployment_options_spec(
            "workers", o,
            "compute in N processes, which share model, cache and conversations; 0: one"),
        deployment_options_spec(
            "threads", o,
            "use N threads a process; 0: one a core, half of that each with an emulated device"),
        deployment_options_spec("kv-type", o,
                                "keep the KV cache as " KV_TYPES " (default: " KV_TYPE_DEFAULT ")"),
        deployment_options_spec(
            "kv-cache", o,
            "keep conversations in SIZE of host memory (default: half of what is free)"),
        deployment_options_spec("kv-dir", o,
                                "keep conversations in a file there, too: they survive a restart"),
        deployment_options_spec(
            "kv-dir-size", o,
            "limit that file (default: twice the KV cache, at most half of what is free)"),
        {"foreground", OPTION_BOOL, &r->launch->bound, 0, 0, NULL,
         "stay until Ctrl-C, which stops it"},
        {"config", OPTION_STRING, &r->config, 0, 0, "FILE",
         "read options from FILE first (default: ~/.config/moed/NAME.conf, if it exists)"},
        {"defaults", OPTION_STRING, &r->defaults, 0, 0, "FILE",
         "read options from FILE before those of --config, which win"},
        {"Serving", OPTION_HEADING, NULL, 0, 0, NULL, NULL},
        deployment_options_spec("queue", o, "let N requests wait, refuse more; 0: worker's choice"),
        deployment_options_spec("batch", o,
                                "compute N tokens of prompts at once, at least 256; 0: by memory"),
        deployment_options_spec(
            "decode-share", o, "give answers this share of time while prompts are computed; 0: 50"),
        deployment_options_spec("speculate", o,
                                "draft tokens out of the conversation: " SPECULATE_VALUES
                                " (" SPECULATE_DEFAULT ")"),
        deployment_options_spec("reproducible", o,
                                "give the same bits on any device, in prefill too"),
        deployment_options_spec("cpuexec", o, "start cpuexec without a device too"),
        deployment_options_spec("no-pin", o, "do not keep threads on their cores and memory nodes"),
        deployment_options_spec("spin-us", o,
                                "spin for US microseconds before sleeping (default: 20)"),
        deployment_options_spec("mps", o, "share a CUDA device by NVIDIA's MPS"),
        deployment_options_spec("calibrate", o, "measure again what experts cost on this machine"),
        deployment_options_spec("log-level", o, "log error, warn, info or debug"),
        {"log-to", OPTION_STRING, &r->log_to, 0, 0, "files|stderr",
         "stderr: print all processes' logs, too, while this command stays (default: files)"},
        deployment_options_spec("log-format", o,
                                "write moed-http's log, and print those of --log-to, as text or "
                                "json"),
        deployment_options_spec(
            "watchdog", o,
            "restart a process that is silent for S seconds (default: 20); 0: never"),
        {"alias", OPTION_LIST, &r->aliases, 0, 0, "NAME[=MODEL],...",
         "HTTP: let requests call the default model, or MODEL, NAME too"},
        deployment_options_spec("any-model", o,
                                "HTTP: let the default model answer requests for unknown models"),
        deployment_options_spec("tls-cert", o, "HTTP: use TLS with a certificate"),
        deployment_options_spec("tls-key", o, "HTTP: the certificate's private key"),
        deployment_options_spec("admin-key-file", o,
                                "HTTP: the keys in FILE may change policy and memory"),
        deployment_options_spec("metrics-key-file", o,
                                "HTTP: the keys in FILE may read /metrics, and nothing else"),
        deployment_options_spec("cors-origins", o,
                                "HTTP: let pages of these origins use it, separated by commas "
                                "(default with API keys: *, else none)"),
        deployment_options_spec(
            "drain", o, "HTTP: let running answers go on for S seconds at the end (default: 5)"),
        deployment_options_spec("insecure", o, "HTTP: serve other machines without an API key"),
        deployment_options_spec(
            "models-keep", o,
            "unload such a model after S seconds without requests (300); -1: never"),
        deployment_options_spec("models-most", o,
                                "keep at most N of them loaded; 0: as many as memory holds"),
        deployment_options_spec("models-memory", o,
                                "use at most SIZE of memory for them (default: what is free)"),
        deployment_options_spec("http-config", o, "HTTP: read moed-http's other options from FILE"),
        {"Requests: what holds where one does not say otherwise", OPTION_HEADING, NULL, 0, 0, NULL,
         NULL},
        deployment_options_spec("temp", o, "the temperature (default: the model's); 0: greedy"),
        deployment_options_spec("top-k", o, "sample from the K most probable; 0: off"),
        deployment_options_spec("top-p", o, "sample from the most probable of probability P"),
        deployment_options_spec("min-p", o, "sample from P times the best probability on"),
        deployment_options_spec("repeat-penalty", o, "divide repeated tokens' logits by X; 1: off"),
        deployment_options_spec("presence-penalty", o, "lower repeated tokens' logits by X"),
        deployment_options_spec("chat-template", o, "use this chat template, not the model's"),
        deployment_options_spec("chat-template-kwargs", o,
                                "set variables of the template: '{\"enable_thinking\": false}'"),
        deployment_options_spec("reasoning-budget", o,
                                "HTTP: end reasoning after N tokens; default: no limit"),
        {"Research: what is cached, prefetched and computed where", OPTION_HEADING, NULL, 0, 0,
         NULL, NULL},
        deployment_options_spec("policy", o, sched_policy_help()),
        deployment_options_spec("assign", o, sched_assigner_help()),
        deployment_options_spec("cache", o, sched_cache_help()),
        deployment_options_spec("predictor", o, sched_predictor_help()),
        deployment_options_spec("budget", o, sched_budget_help()),
        deployment_options_spec("prefetch", o, sched_prefetcher_help()),
        {"predictors", OPTION_STRING, &r->of_model.predictors, 0, 0, "FILE|none",
         "use what `moed train` wrote (default: MODEL.predictors, if it exists)"},
        deployment_options_spec("fine-tune", o, "train the predictor llapor further while serving"),
        deployment_options_spec("segment-bytes", o,
                                "cut experts into segments of N bytes; 0: 2 MiB"),
        {0},
    };
    static struct option_spec table[sizeof rows / sizeof *rows];
    memcpy(table, rows, sizeof rows);
    return table;
}

/* The path of --predictors for each model of the folder. */
static bool find_common_predictors(struct request *r)
{
    static char path[PATH_MAX];
    const char **given = &r->of_model.predictors;
    if (!*given || strcmp(*given, "none") == 0)
        return true;
    if (!realpath(*given, path)) {
        cli_complain("--predictors %s: %s", *given, strerror(errno));
        return false;
    }
    *given = path;
    return true;
}

/* Absolute paths of the model and its files, as memd has another working directory. */
static bool find_files(struct request *r, const char *verb)
{
    static char model[PATH_MAX], predictors[PREDICTORS_PATH];
    struct launch *l = r->launch;
    if (r->model && (!model_file_find(r->model, model) ||
                     !predictors_file_find(r->of_model.predictors, model, predictors)))
        return false;
    l->model = r->model ? model : NULL;
    l->options.predictors = predictors[0] ? predictors : NULL;
    return (r->model || find_common_predictors(r)) && find_kv_dir(verb, l);
}

static bool check_logs(struct request *r, const char *verb)
{
    struct launch *l = r->launch;
    const char *to = r->log_to ? r->log_to : "files", *format = l->options.log_format;
    l->prints_logs = strcmp(to, "stderr") == 0;
    if (!l->prints_logs && strcmp(to, "files") != 0)
        cli_complain("%s: --log-to %.40s: files or stderr", verb, to);
    else if (l->prints_logs && !l->bound)
        cli_complain("%s: --log-to stderr needs --foreground", verb);
    else if (format && strcmp(format, "text") != 0 && strcmp(format, "json") != 0)
        cli_complain("%s: --log-format %.40s: text or json", verb, format);
    else
        return true;
    return false;
}

static int start(struct launch *l, const char *verb, const char *purpose, int argc, char **argv)
{
    static struct request r;
    const char *found = find_configuration(argc, argv);
    r = (struct request){.launch = l, .config = found};
    const struct option_spec *table = list_options(&r);
    bool http_flags = has_http_flags(table, argc, argv);
    int n, exit_code;
    if (!ask_arguments(table, verb, "MODEL [OPTION]...", purpose, argc, argv, 0, 1, &n, &exit_code))
        return exit_code;
    if (n)
        r.model = argv[1];
    if (!r.model && !l->options.models) {
        cli_complain("%s: MODEL is missing; usage: moed %s MODEL [OPTION]..., or --models DIR",
                     verb, verb);
        return CLI_USAGE;
    }
    if (!check_models(l, verb) || !check_logs(&r, verb))
        return CLI_USAGE;
    if (found && r.config == found)
        fprintf(stderr, "moed: options from %s\n", found);
    if (!join_aliases(&r.aliases, l))
        return CLI_FAILURE;
    if (!l->options.http && http_flags) {
        cli_complain("%s: the options that --help marks with \"HTTP:\" need --http [HOST:]PORT",
                     verb);
        return CLI_USAGE;
    }
    if (!deployment_path(l->name, l->run) || !request_defaults_check(&l->options, verb))
        return CLI_USAGE;
    if (!find_files(&r, verb))
        return CLI_FAILURE;
    if (!l->options.device && l->model)
        l->options.device = getenv("MOED_DEVICE");
    char lacking[KERNELS_LACKING_BYTES];
    if (kernels_lacking(lacking))
        cli_complain("%s: %s", verb, lacking);
    exit_code = launch_check_not_running(l); /* it would have the device's memory */
    if (!exit_code && l->model)
        exit_code = device_choice_make(l, &r.of_model.parts);
    if (!exit_code && l->options.models && !folder_options_take(l, &r.of_model))
        exit_code = CLI_FAILURE;
    return exit_code ? exit_code : up(l);
}

int up_main(int argc, char **argv)
{
    static struct launch l; /* large */
    launch_init(&l);
    return start(
        &l, "up",
        "Starts a deployment: the processes that serve MODEL, under a supervisor. Returns\n"
        "when it answers. MODEL is a GGUF file, or `demo`, the model that comes with\n"
        "moed.",
        argc, argv);
}

int serve_main(int argc, char **argv)
{
    static struct launch l;
    launch_init(&l);
    l.options.http = "8080";
    l.bound = true;
    return start(&l, "serve",
                 "Starts a deployment that serves HTTP, prints what clients need, and stays until\n"
                 "Ctrl-C, which stops it. The options are those of `moed up`.",
                 argc, argv);
}
