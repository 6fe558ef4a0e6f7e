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

#define NOTHING_DOWNLOADED "moed downloads no models: give the path of a GGUF file"
#define TEXT_ONLY          "moed reads text only: the file of a model's image part is not needed"
#define SEVERAL_GPUS       "moed splits no model: --device cuda:0,1 has a worker on each GPU"
#define REQUESTS_SAMPLING                                                                          \
    "requests set this; --temp, --top-k, --top-p, --min-p and two penalties set defaults"
#define NUMA "on several NUMA nodes moed places experts and threads by itself"

/* Names of what moed does in another way, in tables that have the option `where`. */
static const struct {
    const char *foreign, *where, *instead;
} other[] = {
    {"-ngl", "device",
     "moed places experts, not layers: --device cuda,vram=SIZE gives them memory"},
    {"--n-gpu-layers", "device",
     "moed places experts, not layers: --device cuda,vram=SIZE gives them memory"},
    {"--gpu-layers", "device",
     "moed places experts, not layers: --device cuda,vram=SIZE gives them memory"},
    {"-ncmoe", "device", "experts lie on the device as far as --device cuda,vram=SIZE allows"},
    {"--n-cpu-moe", "device", "experts lie on the device as far as --device cuda,vram=SIZE allows"},
    {"-cmoe", "device", "experts lie on the device as far as --device cuda,vram=SIZE allows"},
    {"--cpu-moe", "device", "experts lie on the device as far as --device cuda,vram=SIZE allows"},
    {"-ot", "device", "experts lie on the device as far as --device cuda,vram=SIZE allows"},
    {"--override-tensor", "device",
     "experts lie on the device as far as --device cuda,vram=SIZE allows"},
    {"-hf", "device", NOTHING_DOWNLOADED},
    {"-hfr", "device", NOTHING_DOWNLOADED},
    {"--hf-repo", "device", NOTHING_DOWNLOADED},
    {"-hff", "device", NOTHING_DOWNLOADED},
    {"--hf-file", "device", NOTHING_DOWNLOADED},
    {"-mu", "device", NOTHING_DOWNLOADED},
    {"--model-url", "device", NOTHING_DOWNLOADED},
    {"-mm", "device", TEXT_ONLY},
    {"--mmproj", "device", TEXT_ONLY},
    {"-mg", "device", "--device cuda:N chooses the GPU; `moed devices` lists them"},
    {"--main-gpu", "device", "--device cuda:N chooses the GPU; `moed devices` lists them"},
    {"-ts", "device", SEVERAL_GPUS},
    {"--tensor-split", "device", SEVERAL_GPUS},
    {"-sm", "device", SEVERAL_GPUS},
    {"--split-mode", "device", SEVERAL_GPUS},
    {"-ctk", "kv-type", "--kv-type sets the type of keys and values"},
    {"-ctv", "kv-type", "--kv-type sets the type of keys and values"},
    {"--cache-type-k", "kv-type", "--kv-type sets the type of keys and values"},
    {"--cache-type-v", "kv-type", "--kv-type sets the type of keys and values"},
    {"-fa", "device", "attention is always computed in tiles"},
    {"--flash-attn", "device", "attention is always computed in tiles"},
    {"--mlock", "ram",
     "moed locks no memory: on a machine with swap, `swapoff -a` keeps the weights in memory"},
    {"--no-mmap", "ram", "weights stay in memory; --ram SIZE keeps only a part of them there"},
    {"-b", "queue", "--batch N limits the tokens of prompts that are computed at once"},
    {"--batch-size", "queue", "--batch N limits the tokens of prompts that are computed at once"},
    {"-ub", "queue", "--batch N limits the tokens of prompts that are computed at once"},
    {"--ubatch-size", "queue", "--batch N limits the tokens of prompts that are computed at once"},
    {"-cb", "queue", "requests always share batches, and join and leave between steps"},
    {"--cont-batching", "queue", "requests always share batches, and join and leave between steps"},
    {"--no-cont-batching", "queue", "--parallel 1 computes one request at a time"},
    {"--numa", "device", NUMA},
    {"--reasoning-format", "http",
     "--reasoning-field names the field; a request's reasoning_format none leaves reasoning in the "
     "content"},
    {"--jinja", "http", "the model's chat template is always used, or that of --chat-template"},
    {"--api-key", "http", "--api-key-file FILE names a file with the keys"},
    {"--port", "http", "--http [HOST:]PORT serves HTTP"},
    {"--host", "http", "--http [HOST:]PORT serves HTTP"},
    {"-s", "http", REQUESTS_SAMPLING},
    {"--seed", "http", REQUESTS_SAMPLING},
    {"--typical", "http", REQUESTS_SAMPLING},
    {"--top-n-sigma", "http", REQUESTS_SAMPLING},
    {"--top-nsigma", "http", REQUESTS_SAMPLING},
    {"--xtc-probability", "http", REQUESTS_SAMPLING},
    {"--dynatemp-range", "http", REQUESTS_SAMPLING},
    {"--repeat-last-n", "http", REQUESTS_SAMPLING},
    {"--frequency-penalty", "http", REQUESTS_SAMPLING},
    {"--dry-multiplier", "http", REQUESTS_SAMPLING},
    {"--mirostat", "http", REQUESTS_SAMPLING},
    {"--samplers", "http", REQUESTS_SAMPLING},
    {"--sampling-seq", "http", REQUESTS_SAMPLING},
    {"--sampler-seq", "http", REQUESTS_SAMPLING},
    {"--logit-bias", "http", REQUESTS_SAMPLING},
    {"--logit-bias", "order",
     "--bias ID=B adds B to a token's logit, --bias TEXT=B to its tokens'"},
    {"--samplers", "order",
     "--order edskypmxt has a letter for each: penalties, dry, top_n_sigma, top_k, typ_p, top_p, "
     "min_p, xtc, temperature"},
    {"--dry-penalty-last-n", "order",
     "--dry-window N searches the last N tokens, and 0 all (there -1); --dry-multiplier 0 is off"},
    {"--dry-sequence-breaker", "order", "--dry-breaker TEXT, once for each; '' alone: none"},
    {"-hf", "order", NOTHING_DOWNLOADED},
    {"-m", "order", "a deployment has its model: moed up MODEL.gguf, then moed run PROMPT"},
    {"--model", "order", "a deployment has its model: moed up MODEL.gguf, then moed run PROMPT"},
    {"-p", "order", "the prompt stands without an option: moed run PROMPT"},
    {"--prompt", "order", "the prompt stands without an option: moed run PROMPT"},
    {"-f", "order", "moed run - reads the prompt from standard input"},
    {"-c", "order", "the context is the deployment's: moed up --ctx N"},
    {"--ctx-size", "order", "the context is the deployment's: moed up --ctx N"},
    {"-ngl", "order", "the device is the deployment's: moed up --device cuda,vram=SIZE"},
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

static const char *instead_of(const struct option_spec *table, const char *arg)
{
    for (size_t i = 0; i < sizeof other / sizeof *other; i++)
        if (is_named(arg, other[i].foreign) &&
            option_names_find(table, other[i].where, strlen(other[i].where)))
            return other[i].instead;
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
