/* Names of options that are not in a table; see option_names.h. */
#include "daemon/option_names.h"

#include "base/edit_distance.h"

#include <stdio.h>
#include <string.h>

/* Names that llama.cpp, ollama and vLLM have for what moed names otherwise. */
static const struct {
    const char *familiar, *name;
} same[] = {
    {"-c", "ctx"},
    {"-c", "context"},
    {"--ctx-size", "ctx"},
    {"--ctx-size", "context"},
    {"--max-model-len", "ctx"},
    {"-m", "model"},
    {"-t", "threads"},
    {"-np", "parallel"},
    {"-a", "alias"},
    {"--chat-template-file", "chat-template"},
    {"--models-dir", "models"},
    {"--models-max", "models-most"},
    {"--ssl-cert-file", "tls-cert"},
    {"--ssl-key-file", "tls-key"},
    {"--temperature", "temp"},
    {"--n-predict", "n"},
    {"--predict", "n"},
    {"--max-tokens", "n"},
    {"-s", "seed"},
    {"-sys", "system"},
    {"--system-prompt", "system"},
    {"--repeat-last-n", "repeat-window"},
    {"--mirostat-lr", "mirostat-eta"},
    {"--mirostat-ent", "mirostat-tau"},
    {"--sampling-seq", "order"},
    {"--sampler-seq", "order"},
    {"--top-nsigma", "top-n-sigma"},
    {"--typical-p", "typical"},
    {"--grammar-file", "grammar"},
    {"--served-model-name", "name"},
};

/* Names of what moed does in another way or not at all, in tables that have the option `where`. A
 * name stands in the first row that is meant. */
static const struct {
    const char *names; /* separated by spaces */
    const char *where, *instead;
} other[] = {
    /* Placement */
    {"-ngl --n-gpu-layers --gpu-layers", "device",
     "moed places experts, not layers: --device cuda,vram=SIZE gives them memory"},
    {"-ncmoe --n-cpu-moe -cmoe --cpu-moe -ot --override-tensor --moe-cache-mib", "device",
     "experts lie on the device as far as --device cuda,vram=SIZE allows"},
    {"-fit --fit -fitt --fit-target -fitc --fit-ctx", "device",
     "--device cuda fits the experts into what the GPU has free; --reserve SIZE leaves more free"},
    {"-ncffn --n-cpu-ffn", "device", "--device cuda,dense=host keeps the dense weights in memory"},
    {"-mg --main-gpu", "device", "--device cuda:N chooses the GPU; `moed devices` lists them"},
    {"-dev", "device", "--device cuda:N chooses the GPU; `moed devices` lists them"},
    {"--list-devices", "device", "`moed devices` lists them"},
    {"-ts --tensor-split -sm --split-mode", "device",
     "moed splits no model: --device cuda:0,1 has a worker on each GPU"},
    {"--rpc", "device", "moed computes on one machine"},
    {"--numa", "device", "on several NUMA nodes moed places experts and threads by itself"},
    {"-C --cpu-mask -Cr --cpu-range --cpu-strict -Cb --cpu-mask-batch -Crb --cpu-range-batch "
     "--cpu-strict-batch",
     "device",
     "the processes keep to the CPUs that they are started on: `taskset -c CPUS moed up`"},
    {"--prio --prio-batch", "device", "`nice moed up` sets the priority"},
    {"--poll --poll-batch --op-offload --no-op-offload --no-host --repack -nr --no-repack -rtr "
     "-fmoe --fused-moe -no-fmoe -amb -ger -bs --backend-sampling",
     "device", "moed has no such switch: it chooses how to compute"},
    {"-mla -mla-use --mla-use", "device", "latent attention is computed as the model file has it"},
    {"-tb --threads-batch", "threads", "--threads N is for prompts and answers alike"},
    {"-fa --flash-attn", "device", "attention is always computed in tiles"},
    /* The model file and weights */
    {"-hf -hfr --hf-repo -hff --hf-file -hft --hf-token -mu --model-url -dr --docker-repo",
     "device", "moed downloads no models: give the path of a GGUF file"},
    {"--offline", "device", "moed never downloads anything"},
    {"-mm --mmproj -mmu --mmproj-url --mmproj-auto --no-mmproj --no-mmproj-auto --mmproj-offload "
     "--no-mmproj-offload -mmdev --mmproj-device --image-min-tokens --image-max-tokens "
     "--media-path",
     "device", "moed reads text only: the file of a model's image part is not needed"},
    {"--lora --lora-scaled", "device",
     "moed takes no adapters: merge the adapter into the model file"},
    {"--control-vector --control-vector-scaled --control-vector-layer-range", "device",
     "moed has no control vectors"},
    {"--override-kv", "device",
     "moed takes the keys of the model file as they are: change the file"},
    {"--rope-scaling --rope-scale --rope-freq-base --rope-freq-scale --yarn-orig-ctx "
     "--yarn-ext-factor --yarn-attn-factor --yarn-beta-slow --yarn-beta-fast",
     "device", "moed takes RoPE's scaling from the model file: change its keys there"},
    {"--mlock", "ram",
     "moed locks no memory: on a machine with swap, `swapoff -a` keeps the weights in memory"},
    {"--no-mmap --mmap -lm --load-mode -lzm --lazy-mode -dio --direct-io", "ram",
     "weights stay in memory; --ram SIZE keeps only a part of them there"},
    {"--check-tensors", "device", "`moed inspect MODEL` checks a file's layout"},
    {"--warmup --no-warmup", "device",
     "moed up returns when the model answers; there is no switch"},
    /* The KV cache */
    {"-ctk --cache-type-k -ctv --cache-type-v", "kv-type",
     "--kv-type sets the type of keys and values"},
    {"-cram --cache-ram", "kv-cache",
     "--kv-cache SIZE (8G) is for conversations; there the number is in MiB"},
    {"--slot-save-path", "kv-dir",
     "--kv-dir DIR keeps all conversations in a file, without requests"},
    {"--cache-reuse --cache-prompt --no-cache-prompt -ctxcp --ctx-checkpoints --swa-checkpoints "
     "-cms "
     "--checkpoint-min-step --cache-idle-slots",
     "kv-cache", "what a prompt begins with is always taken from --kv-cache, where it is there"},
    {"-kvu --kv-unified -no-kvu --no-kv-unified --swa-full -dt --defrag-thold", "kv-cache",
     "the KV cache is in pages, which all requests share"},
    {"-kvo --kv-offload -nkvo --no-kv-offload", "device",
     "--device cuda,dense=host keeps the KV cache of running requests in host memory"},
    {"--context-shift --no-context-shift --keep", "ctx",
     "moed shifts no context: an answer ends with length where --ctx N is full"},
    /* Serving */
    {"-b --batch-size -ub --ubatch-size", "queue",
     "--batch N limits the tokens of prompts that are computed at once"},
    {"-cb --cont-batching", "queue",
     "requests always share batches, and join and leave between steps"},
    {"-nocb --no-cont-batching", "queue", "--parallel 1 computes one request at a time"},
    {"-md --model-draft --spec-draft-model -ngld --n-gpu-layers-draft -devd --device-draft -ctkd "
     "--cache-type-k-draft --spec-draft-type-k -ctvd --cache-type-v-draft --spec-draft-type-v -hfd",
     "speculate", "moed drafts out of the conversation, without a second model: --speculate N"},
    {"--draft --draft-n --draft-max --spec-draft-n-max --draft-min --draft-n-min --draft-p-min "
     "--spec-type -lcs --lookup-cache-static -lcd --lookup-cache-dynamic",
     "speculate", "--speculate auto, off or N: drafts of a step, out of the conversation"},
    {"--slots --metrics --props", "http", "/slots, /metrics and /props are always there"},
    {"--no-slots", "http", "/slots is always there; --api-key-file FILE keeps strangers out"},
    {"--embedding --embeddings --rerank --reranking --pooling --embd-normalize", "http",
     "moed generates text: it has no embeddings and no reranking"},
    {"--reasoning-format", "http",
     "reasoning is in reasoning_content; reasoning-field = reasoning in the file of --http-config "
     "names it reasoning; a request's reasoning_format none leaves it in the content"},
    {"-rea --reasoning", "http",
     "--chat-template-kwargs '{\"enable_thinking\": false}' switches thinking off; requests set "
     "enable_thinking"},
    {"--reasoning-effort", "http",
     "--chat-template-kwargs '{\"reasoning_effort\": \"low\"}' sets it; so do requests"},
    {"--reasoning-budget-message --reasoning-preserve --no-reasoning-preserve --prefill-assistant "
     "--no-prefill-assistant",
     "http", "moed has no such switch; docs/http.md has what requests set"},
    {"--jinja --no-jinja", "http",
     "the model's chat template is always used, or that of --chat-template"},
    {"--api-key", "http", "--api-key-file FILE names a file with the keys"},
    {"--port --host", "http", "--http [HOST:]PORT serves HTTP"},
    {"-to --timeout --threads-http --sse-ping-interval --reuse-port", "http",
     "one thread serves all connections; header-timeout and idle-timeout in the file of "
     "--http-config set times"},
    {"--api-prefix --path", "http", "moed-http serves from /: a proxy before it may add a prefix"},
    {"--ui --webui --no-ui --no-webui --ui-config --webui-config --ui-config-file "
     "--webui-config-file",
     "http", "the page for browsers is always at /, and keeps its settings in the browser"},
    {"--tools --tools-runtime -ag --agent -no-ag --no-agent --mcp-servers-config "
     "--mcp-servers-json --ui-mcp-proxy --webui-mcp-proxy --no-ui-mcp-proxy --no-webui-mcp-proxy",
     "http", "moed runs no tools: clients run them"},
    {"--cors-methods --cors-headers --cors-credentials --no-cors-credentials", "http",
     "--cors-origins LIST says which pages may use the server"},
    {"--models-preset", "models",
     "each model of --models DIR has its options in ~/.config/moed/ID.conf"},
    {"--models-autoload --no-models-autoload", "models",
     "requests always load the models of --models DIR"},
    {"--sleep-idle-seconds", "models", "--models-keep S unloads a model of --models DIR after S s"},
    {"--tags", "http", "moed has no tags; --alias NAME gives the model another name"},
    {"-sp --special", "http", "requests set skip_special_tokens"},
    {"-r --reverse-prompt", "http", "requests set stop"},
    {"--spm-infill", "http", "/infill puts the prefix first"},
    /* Logs */
    {"-v --verbose --log-verbose -lv --verbosity --log-verbosity", "log-level",
     "--log-level error, warn, info or debug"},
    {"--log-file --log-disable --log-colors --log-jsonl --log-prefix --no-log-prefix "
     "--log-timestamps --no-log-timestamps",
     "log-level", "each process has a log of its own: `moed logs` prints them"},
    {"--perf --no-perf", "device", "`moed ps` and `moed metrics` show speeds"},
    /* Sampling: of a server, then of `moed run` and `moed chat` */
    {"-s --seed --typical --typical-p --top-n-sigma --top-nsigma --xtc-probability --xtc-threshold "
     "--dynatemp-range --dynatemp-exp --repeat-last-n --frequency-penalty --dry-multiplier "
     "--dry-base --dry-allowed-length --dry-penalty-last-n --dry-sequence-breaker --mirostat "
     "--mirostat-lr --mirostat-ent --samplers --sampling-seq --sampler-seq -l --logit-bias",
     "http", "requests set this; --temp, --top-k, --top-p, --min-p and two penalties set defaults"},
    {"--adaptive-target --adaptive-decay", "device", "moed does not have the sampler adaptive-p"},
    {"-n --predict --n-predict", "http", "requests set max_tokens"},
    {"--ignore-eos", "http", "requests set ignore_eos"},
    {"--grammar --grammar-file -j --json-schema -jf --json-schema-file", "http",
     "requests set grammar, json_schema or response_format"},
    {"-l --logit-bias", "order",
     "--bias ID=B adds B to a token's logit, --bias TEXT=B to its tokens'"},
    {"--samplers", "order",
     "--order edskypmxt has a letter for each: penalties, dry, top_n_sigma, top_k, typ_p, top_p, "
     "min_p, xtc, temperature"},
    {"--dry-penalty-last-n", "order",
     "--dry-window N searches the last N tokens, and 0 all (there -1); --dry-multiplier 0 is off"},
    {"--dry-sequence-breaker", "order", "--dry-breaker TEXT, once for each; '' alone: none"},
    {"-hf", "order", "moed downloads no models: give the path of a GGUF file to moed up"},
    {"-m --model", "order", "a deployment has its model: moed up MODEL.gguf, then moed run PROMPT"},
    {"-p --prompt", "order", "the prompt stands without an option: moed run PROMPT"},
    {"-f --file", "order", "moed run - reads the prompt from standard input"},
    {"-c --ctx-size", "order", "the context is the deployment's: moed up --ctx N"},
    {"-ngl", "order", "the device is the deployment's: moed up --device cuda,vram=SIZE"},
};

/* Values that other programs have for "the program's choice". */
static const struct {
    const char *name, *value, *instead;
} values[] = {
    {"parallel", "-1", "0 leaves the number to the worker"},
    {"threads", "-1", "0 takes one thread a core"},
    {"ctx", "-1", "0 leaves the context to the worker"},
    {"n", "-1", "0 goes on until the context is full"},
    {"reasoning-budget", "-1", "without the option reasoning has no limit"},
    {"reasoning-budget", "0",
     "--chat-template-kwargs '{\"enable_thinking\": false}' switches thinking off"},
    {"seed", "-1", "without the option each answer has another seed"},
};

const struct option_spec *option_names_find(const struct option_spec *table, const char *name,
                                            size_t len)
{
    for (; table->name; table++)
        if (table->type != OPTION_HEADING && strlen(table->name) == len &&
            memcmp(table->name, name, len) == 0)
            return table;
    return NULL;
}

static bool is_named(const char *arg, const char *name)
{
    size_t len = strlen(name);
    return strncmp(arg, name, len) == 0 && (arg[len] == '\0' || arg[len] == '=');
}

const struct option_spec *option_names_familiar(const struct option_spec *table, const char *arg)
{
    for (size_t i = 0; i < sizeof same / sizeof *same; i++) {
        const struct option_spec *o = option_names_find(table, same[i].name, strlen(same[i].name));
        if (o && is_named(arg, same[i].familiar))
            return o;
    }
    return NULL;
}

/* Whether the flag is one of the names, which spaces separate. */
static bool is_one_of(const char *arg, const char *names)
{
    size_t len = strcspn(arg, "=");
    for (; *names; names += strspn(names, " ")) {
        size_t n = strcspn(names, " ");
        if (n == len && memcmp(arg, names, n) == 0)
            return true;
        names += n;
    }
    return false;
}

static const char *instead_of(const struct option_spec *table, const char *arg)
{
    for (size_t i = 0; i < sizeof other / sizeof *other; i++)
        if (is_one_of(arg, other[i].names) &&
            option_names_find(table, other[i].where, strlen(other[i].where)))
            return other[i].instead;
    return NULL;
}

const char *option_names_value_hint(const struct option_spec *o, const char *value)
{
    for (size_t i = 0; i < sizeof values / sizeof *values; i++)
        if (strcmp(o->name, values[i].name) == 0 && strcmp(value, values[i].value) == 0)
            return values[i].instead;
    return NULL;
}

bool option_names_foreign(const struct option_spec *table, const char *arg)
{
    return instead_of(table, arg) != NULL;
}

/* The nearest name of the table, or of another program for an option of it, with its dashes. False:
 * none is near enough to be a suggestion. */
static bool nearest(const struct option_spec *table, const char *name, char out[OPTION_NAMES_HINT])
{
    unsigned best = edit_distance_limit(name);
    out[0] = '\0';
    for (const struct option_spec *o = table; o->name; o++) {
        unsigned d = o->type == OPTION_HEADING || !o->name[1] ? best : edit_distance(name, o->name);
        if (d < best) {
            best = d;
            snprintf(out, OPTION_NAMES_HINT, "--%s", o->name);
        }
    }
    for (size_t i = 0; i < sizeof same / sizeof *same; i++) {
        const char *familiar = same[i].familiar + strspn(same[i].familiar, "-");
        if (!familiar[1] || !option_names_find(table, same[i].name, strlen(same[i].name)))
            continue;
        unsigned d = edit_distance(name, familiar);
        if (d < best) {
            best = d;
            snprintf(out, OPTION_NAMES_HINT, "%s", same[i].familiar);
        }
    }
    return out[0] != '\0';
}

void option_names_hint(const struct option_spec *table, const char *arg,
                       char out[OPTION_NAMES_HINT])
{
    const char *instead = instead_of(table, arg);
    char name[EDIT_DISTANCE_WORD + 2];
    const char *bare = arg + strspn(arg, "-");
    snprintf(name, sizeof name, "%.*s", (int)strcspn(bare, "="), bare);
    char near[OPTION_NAMES_HINT];
    out[0] = '\0';
    if (instead)
        snprintf(out, OPTION_NAMES_HINT, ": %s", instead);
    else if (name[0] && name[1] && nearest(table, name, near))
        snprintf(out, OPTION_NAMES_HINT, "; did you mean %.60s?", near);
}
