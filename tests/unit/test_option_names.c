/* Names of other programs: each option of llama-server, and those of ik_llama.cpp that are its own,
 * is one of `moed up`, or has a hint of its own whose options exist. */
#include "daemon/deployment_options.h"
#include "daemon/option_names.h"
#include "daemon/options.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <ctype.h>
#include <stdio.h>
#include <string.h>

static const char *const others[] = {
    "-t",
    "--threads",
    "-tb",
    "--threads-batch",
    "-C",
    "--cpu-mask",
    "-Cr",
    "--cpu-range",
    "--cpu-strict",
    "--prio",
    "--poll",
    "-c",
    "--ctx-size",
    "-n",
    "--predict",
    "--n-predict",
    "-b",
    "--batch-size",
    "-ub",
    "--ubatch-size",
    "--keep",
    "--swa-full",
    "-fa",
    "--flash-attn",
    "--perf",
    "--no-perf",
    "--rope-scaling",
    "--rope-scale",
    "--rope-freq-base",
    "--rope-freq-scale",
    "--yarn-orig-ctx",
    "--yarn-ext-factor",
    "--yarn-attn-factor",
    "--yarn-beta-slow",
    "--yarn-beta-fast",
    "-kvo",
    "--kv-offload",
    "-nkvo",
    "--no-kv-offload",
    "--repack",
    "-nr",
    "--no-repack",
    "--no-host",
    "-ctk",
    "--cache-type-k",
    "-ctv",
    "--cache-type-v",
    "-dt",
    "--defrag-thold",
    "--rpc",
    "--mlock",
    "--mmap",
    "--no-mmap",
    "-lm",
    "--load-mode",
    "-lzm",
    "--lazy-mode",
    "--numa",
    "-dev",
    "--device",
    "--list-devices",
    "-ot",
    "--override-tensor",
    "-cmoe",
    "--cpu-moe",
    "-ncmoe",
    "--n-cpu-moe",
    "--moe-cache-mib",
    "-ncffn",
    "--n-cpu-ffn",
    "-ngl",
    "--gpu-layers",
    "--n-gpu-layers",
    "-sm",
    "--split-mode",
    "-ts",
    "--tensor-split",
    "-mg",
    "--main-gpu",
    "-fit",
    "--fit",
    "-fitt",
    "--fit-target",
    "-fitc",
    "--fit-ctx",
    "--check-tensors",
    "--override-kv",
    "--op-offload",
    "--no-op-offload",
    "--lora",
    "--lora-scaled",
    "--control-vector",
    "--control-vector-scaled",
    "--control-vector-layer-range",
    "-m",
    "--model",
    "-mu",
    "--model-url",
    "-dr",
    "--docker-repo",
    "-hf",
    "-hfr",
    "--hf-repo",
    "-hff",
    "--hf-file",
    "-hft",
    "--hf-token",
    "--log-disable",
    "--log-file",
    "--log-jsonl",
    "--log-colors",
    "-v",
    "--verbose",
    "--log-verbose",
    "--offline",
    "-lv",
    "--verbosity",
    "--log-verbosity",
    "--log-prefix",
    "--log-timestamps",
    "--samplers",
    "-s",
    "--seed",
    "--sampler-seq",
    "--sampling-seq",
    "--ignore-eos",
    "--temp",
    "--temperature",
    "--top-k",
    "--top-p",
    "--min-p",
    "--top-nsigma",
    "--top-n-sigma",
    "--xtc-probability",
    "--xtc-threshold",
    "--typical",
    "--typical-p",
    "--repeat-last-n",
    "--repeat-penalty",
    "--presence-penalty",
    "--frequency-penalty",
    "--dry-multiplier",
    "--dry-base",
    "--dry-allowed-length",
    "--dry-penalty-last-n",
    "--dry-sequence-breaker",
    "--adaptive-target",
    "--adaptive-decay",
    "--dynatemp-range",
    "--dynatemp-exp",
    "--mirostat",
    "--mirostat-lr",
    "--mirostat-ent",
    "-l",
    "--logit-bias",
    "--grammar",
    "--grammar-file",
    "-j",
    "--json-schema",
    "-jf",
    "--json-schema-file",
    "-bs",
    "--backend-sampling",
    "-lcs",
    "--lookup-cache-static",
    "-lcd",
    "--lookup-cache-dynamic",
    "-ctxcp",
    "--ctx-checkpoints",
    "--swa-checkpoints",
    "-cms",
    "--checkpoint-min-step",
    "-cram",
    "--cache-ram",
    "-kvu",
    "--kv-unified",
    "-no-kvu",
    "--no-kv-unified",
    "--cache-idle-slots",
    "--context-shift",
    "--no-context-shift",
    "-r",
    "--reverse-prompt",
    "-sp",
    "--special",
    "--warmup",
    "--no-warmup",
    "--spm-infill",
    "--pooling",
    "-np",
    "--parallel",
    "-cb",
    "--cont-batching",
    "-nocb",
    "--no-cont-batching",
    "-mm",
    "--mmproj",
    "-mmu",
    "--mmproj-url",
    "--mmproj-auto",
    "--no-mmproj",
    "--mmproj-offload",
    "--no-mmproj-offload",
    "--image-min-tokens",
    "--image-max-tokens",
    "-a",
    "--alias",
    "--tags",
    "--embd-normalize",
    "--host",
    "--port",
    "--reuse-port",
    "--path",
    "--cors-origins",
    "--cors-methods",
    "--cors-headers",
    "--cors-credentials",
    "--api-prefix",
    "--webui-config",
    "--tools",
    "-ag",
    "--agent",
    "--ui",
    "--webui",
    "--no-ui",
    "--no-webui",
    "--embedding",
    "--embeddings",
    "--rerank",
    "--reranking",
    "--api-key",
    "--api-key-file",
    "--ssl-key-file",
    "--ssl-cert-file",
    "-to",
    "--timeout",
    "--sse-ping-interval",
    "--threads-http",
    "--cache-prompt",
    "--no-cache-prompt",
    "--cache-reuse",
    "--metrics",
    "--props",
    "--slots",
    "--no-slots",
    "--slot-save-path",
    "--media-path",
    "--models-dir",
    "--models-preset",
    "--models-max",
    "--models-autoload",
    "--jinja",
    "--no-jinja",
    "--reasoning-format",
    "-rea",
    "--reasoning",
    "--reasoning-effort",
    "--chat-template",
    "--chat-template-file",
    "--prefill-assistant",
    "--sleep-idle-seconds",
    "-md",
    "--model-draft",
    "--draft",
    "--draft-max",
    "--draft-min",
    "--draft-p-min",
    "--spec-type",
    "-ngld",
    "-devd",
    "-ctkd",
    "-ctvd",
    "-fmoe",
    "-rtr",
    "-mla",
    "-amb",
    "-ger",
};

static struct deployment_options options;
static const char *model;

static const struct option_spec *table_of_up(void)
{
    static struct option_spec table[DEPLOYMENT_OPTIONS_COUNT + 3];
    size_t n = 0;
    deployment_options_init(&options);
    for (; n < DEPLOYMENT_OPTIONS_COUNT; n++)
        table[n] = deployment_options_spec(deployment_options_table[n].flag + 2, &options, "");
    table[n++] = (struct option_spec){"model", OPTION_STRING, &model, 0, 0, "MODEL", ""};
    table[n] = (struct option_spec){"reserve", OPTION_STRING, &model, 0, 0, "SIZE", ""};
    return table;
}

static bool is_option(const struct option_spec *table, const char *arg)
{
    return option_names_find(table, arg + 2, strlen(arg + 2)) || option_names_familiar(table, arg);
}

/* Each "--name" in the text, but those that are a file's (--http-config) name of another program,
 * is an option. */
static void check_names(const struct option_spec *table, const char *arg, const char *text)
{
    for (const char *at = text; (at = strstr(at, "--")) != NULL;) {
        size_t len = 2;
        while (islower((unsigned char)at[len]) || at[len] == '-')
            len++;
        if (len > 2 && !option_names_find(table, at + 2, len - 2))
            fail_msg("%s: the hint names %.*s, which is no option:%s", arg, (int)len, at, text);
        at += len;
    }
}

static void other_servers_options(void **state)
{
    const struct option_spec *table = table_of_up();
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        char hint[OPTION_NAMES_HINT];
        if (is_option(table, others[i]))
            continue;
        option_names_hint(table, others[i], hint);
        if (hint[0] != ':')
            fail_msg("%s has no hint of its own:%s", others[i], hint);
        if (strlen(hint) == sizeof hint - 1)
            fail_msg("%s: the hint is too long: %s", others[i], hint);
        check_names(table, others[i], hint);
    }
}

struct lines {
    unsigned count;
    char text[8][256];
};

static void take_line(void *arg, const char *text)
{
    struct lines *lines = arg;
    assert_true(lines->count < 8);
    snprintf(lines->text[lines->count++], sizeof *lines->text, "%s", text);
}

/* A command line of llama-server: a line for each option that moed has not, none for their values.
 */
static void all_wrong_options_at_once(void **state)
{
    struct lines lines = {0};
    struct error why = {0};
    char *argv[] = {"p",
                    "-m",
                    "x.gguf",
                    "-ngl",
                    "99",
                    "--jinja",
                    "--parallel",
                    "-1",
                    "--seed",
                    "-1",
                    "-c",
                    "512",
                    "--nonsense",
                    "value",
                    "-a",
                    "q",
                    "--lora=a.gguf",
                    "--chat-template-file",
                    "x.jinja",
                    "--reasoning-budget",
                    "0",
                    "--reasoning",
                    "off",
                    NULL};
    int n = 0;
    assert_int_equal(options_parse_all(table_of_up(), 23, argv, &n, take_line, &lines, &why),
                     ERROR_USAGE);
    assert_int_equal(lines.count, 8);
    static const char *const expected[] = {"-ngl: moed places experts",
                                           "--jinja: the model's",
                                           "-1 is no number here; 0 leaves",
                                           "--seed: requests set",
                                           "--nonsense; see --help",
                                           "--lora=a.gguf: moed takes no",
                                           "0 is no number here; --chat-template-kwargs",
                                           "--reasoning: --chat-template-kwargs"};
    for (unsigned i = 0; i < 8; i++)
        if (!strstr(lines.text[i], expected[i]))
            fail_msg("expected '%s': %s", expected[i], lines.text[i]);
    assert_string_equal(why.text, lines.text[0]);
    assert_string_equal(options.alias, "q");
    assert_string_equal(options.chat_template, "x.jinja");
    assert_int_equal(options.ctx, 512);
    assert_string_equal(model, "x.gguf");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(other_servers_options),
        cmocka_unit_test(all_wrong_options_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
