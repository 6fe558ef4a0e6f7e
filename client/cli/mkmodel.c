/* moed mkmodel: options, progress and messages; lib/mkmodel makes the model. */
#include "client/cli/mkmodel.h"

#include "base/clock.h"
#include "mkmodel/mkmodel.h"

#include <errno.h>
#include <getopt.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char help[] =
    "usage: moed mkmodel [options] -o FILE\n"
    "\n"
    "Write a Mixture-of-Experts model with seeded random weights as a GGUF file. It\n"
    "computes like a real model of its size and says nothing sensible. The same\n"
    "options give the same file.\n"
    "\n"
    "  -o, --output FILE    the file to write (required)\n"
    "      --arch NAME      llama (Mixtral), qwen2moe, qwen3moe (default), olmoe,\n"
    "                       deepseek, deepseek2, phimoe, gpt-oss, glm4moe,\n"
    "                       minimax-m2, dots1, qwen3vlmoe, bailingmoe2, ernie4_5-moe,\n"
    "                       hunyuan-moe, exaone-moe, glm-dsa, deepseek32,\n"
    "                       qwen35moe, qwen3next, lfm2moe, gemma4, laguna, step35,\n"
    "                       mimo2, afmoe, cohere2moe, hy_v3 or nemotron_h_moe\n"
    "      --type TYPE      F32 F16 BF16 Q8_0 Q4_0 Q4_1 Q5_0 Q5_1 Q2_K Q3_K Q4_K\n"
    "                       Q5_K Q6_K IQ4_NL IQ4_XS IQ3_S IQ3_XXS IQ2_S IQ2_XS\n"
    "                       IQ2_XXS IQ1_S IQ1_M MXFP4 NVFP4, or the mixes Q4_K_M and\n"
    "                       Q5_K_M, which keep output and half of ffn_down_exps and\n"
    "                       attn_v in Q6_K (default Q8_0); norms, biases and the\n"
    "                       router are always F32; NVFP4 matrices have factors\n"
    "                       beside them (.scale), as converted ones have\n"
    "      --layers N       (default 4)\n"
    "      --hidden N       width of the embedding (default 256)\n"
    "      --heads N        attention heads (default 8)\n"
    "      --kv-heads N     key and value heads (default 4)\n"
    "      --head-dim N     width of a head (default hidden / heads)\n"
    "      --experts N      experts in a layer (default 16)\n"
    "      --top-k N        experts that a token uses (default 4)\n"
    "      --expert-width N intermediate width of an expert (default 256)\n"
    "      --shared-width N of the shared expert, where the architecture has one\n"
    "                       (default the expert width)\n"
    "      --vocab N        tokens, at least 259 (default 4096)\n"
    "      --ctx N          context length that the file names (default 4096)\n"
    "      --pre NAME       pre-tokenizer that the file names (default qwen2)\n"
    "      --seed N         (default 1)\n"
    "      --split N        write N files, FILE-00001-of-0000N.gguf ... (default 1)\n"
    "      --threads N      (default one a core); does not change the file\n"
    "\n"
    "deepseek, deepseek2, glm4moe, dots1, bailingmoe2, ernie4_5-moe, exaone-moe,\n"
    "glm-dsa, deepseek32, lfm2moe, laguna, step35, mimo2, afmoe, cohere2moe and\n"
    "hy_v3:\n"
    "      --dense-layers N leading layers without experts (default 1)\n"
    "      --dense-width N  of those layers (default top-k times the expert width)\n"
    "deepseek2, glm-dsa and deepseek32, whose heads have as many plain values as\n"
    "--head-dim says:\n"
    "      --rope-dim N     rotated values of a head (default half the head's width)\n"
    "      --q-rank N       compress queries to N values (default: deepseek2 does\n"
    "                       not, the others as keys and values)\n"
    "      --kv-rank N      compress keys and values to N values (default four heads'\n"
    "                       width)\n"
    "      --gate NAME      deepseek2: softmax (default), or sigmoid with a selection\n"
    "                       bias, which the others have\n"
    "deepseek2, glm4moe, dots1, bailingmoe2, exaone-moe, glm-dsa, deepseek32,\n"
    "laguna, cohere2moe, hy_v3 and nemotron_h_moe:\n"
    "      --groups N       groups of experts (default none)\n"
    "      --groups-used N  groups that a token may use (default half of them)\n"
    "gpt-oss, exaone-moe, gemma4, laguna, step35, mimo2, afmoe and cohere2moe:\n"
    "      --window N       sliding window of some layers (default 128)\n"
    "\n"
    "      --help\n";

enum { OPTION_STRING, OPTION_U32, OPTION_SEED };

struct request {
    struct mkmodel_options options;
    const char *output;
};

static const struct {
    const char *name;
    int kind;
    size_t offset; /* in struct request */
} fields[] = {
#define FIELD(name, kind, member)                                                                  \
    {                                                                                              \
        name, kind, offsetof(struct request, member)                                               \
    }
    FIELD("arch", OPTION_STRING, options.arch),
    FIELD("type", OPTION_STRING, options.type),
    FIELD("pre", OPTION_STRING, options.pre),
    FIELD("layers", OPTION_U32, options.layers),
    FIELD("hidden", OPTION_U32, options.hidden),
    FIELD("heads", OPTION_U32, options.heads),
    FIELD("kv-heads", OPTION_U32, options.kv_heads),
    FIELD("head-dim", OPTION_U32, options.head_dim),
    FIELD("experts", OPTION_U32, options.experts),
    FIELD("top-k", OPTION_U32, options.top_k),
    FIELD("expert-width", OPTION_U32, options.expert_width),
    FIELD("shared-width", OPTION_U32, options.shared_width),
    FIELD("dense-layers", OPTION_U32, options.dense_layers),
    FIELD("dense-width", OPTION_U32, options.dense_width),
    FIELD("rope-dim", OPTION_U32, options.rope_dim),
    FIELD("q-rank", OPTION_U32, options.q_rank),
    FIELD("kv-rank", OPTION_U32, options.kv_rank),
    FIELD("gate", OPTION_STRING, options.gate),
    FIELD("groups", OPTION_U32, options.groups),
    FIELD("groups-used", OPTION_U32, options.groups_used),
    FIELD("window", OPTION_U32, options.window),
    FIELD("vocab", OPTION_U32, options.vocab),
    FIELD("ctx", OPTION_U32, options.ctx),
    FIELD("seed", OPTION_SEED, options.seed),
    FIELD("split", OPTION_U32, options.split),
    FIELD("threads", OPTION_U32, options.threads),
    FIELD("output", OPTION_STRING, output),
#undef FIELD
};

#define FIELD_COUNT (sizeof fields / sizeof fields[0])
#define OPTION_BASE 1000 /* getopt's value of field 0 */
#define OPTION_HELP 999

static bool parse_number(const char *text, uint64_t max, uint64_t *out)
{
    char *end;
    if (*text < '0' || *text > '9') /* strtoull would take signs and spaces */
        return false;
    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    if (errno || *end || value > max)
        return false;
    *out = value;
    return true;
}

static bool set_field(struct request *r, size_t field, const char *text)
{
    char *target = (char *)r + fields[field].offset;
    uint64_t number;
    if (fields[field].kind == OPTION_STRING) {
        memcpy(target, &text, sizeof text);
        return true;
    }
    bool wide = fields[field].kind == OPTION_SEED;
    if (!parse_number(text, wide ? UINT64_MAX : UINT32_MAX, &number)) {
        fprintf(stderr, "moed mkmodel: --%s %s: expected a number of 0 to %llu\n",
                fields[field].name, text,
                wide ? (unsigned long long)UINT64_MAX : (unsigned long long)UINT32_MAX);
        return false;
    }
    if (wide) {
        memcpy(target, &number, sizeof number);
    } else {
        uint32_t narrow = (uint32_t)number;
        memcpy(target, &narrow, sizeof narrow);
    }
    return true;
}

/* Returns -1 to go on, else the exit code. */
static int parse_options(int argc, char **argv, struct request *r)
{
    struct option longs[FIELD_COUNT + 2] = {{0}};
    for (size_t i = 0; i < FIELD_COUNT; i++)
        longs[i] = (struct option){fields[i].name, required_argument, NULL, OPTION_BASE + (int)i};
    longs[FIELD_COUNT] = (struct option){"help", no_argument, NULL, OPTION_HELP};
    optind = 0; /* getopt starts anew */
    opterr = 0;
    for (int c; (c = getopt_long(argc, argv, ":o:h", longs, NULL)) != -1;) {
        if (c == OPTION_HELP || c == 'h') {
            fputs(help, stdout);
            return 0;
        }
        if (c == 'o') {
            r->output = optarg;
        } else if (c >= OPTION_BASE) {
            if (!set_field(r, (size_t)(c - OPTION_BASE), optarg))
                return 2;
        } else {
            fprintf(stderr, "moed mkmodel: %s: %s; see moed mkmodel --help\n", argv[optind - 1],
                    c == ':' ? "a value is missing" : "unknown or ambiguous option");
            return 2;
        }
    }
    if (optind < argc) {
        fprintf(stderr, "moed mkmodel: %s: unexpected argument; see moed mkmodel --help\n",
                argv[optind]);
        return 2;
    }
    if (!r->output) {
        fprintf(stderr, "moed mkmodel: give the file to write: -o FILE\n");
        return 2;
    }
    return -1;
}

/* Shows progress in one line, at most ten times a second. */
static void show_progress(uint64_t done, uint64_t total, void *arg)
{
    double *last = arg, now = clock_s();
    if (done < total && now - *last < 0.1)
        return;
    *last = now;
    fprintf(stderr, "\rwriting %.0f of %.0f MB (%.0f %%)", (double)done * 1e-6,
            (double)total * 1e-6, 100.0 * (double)done / (double)total);
    if (done == total)
        fputc('\n', stderr);
}

int mkmodel_main(int argc, char **argv)
{
    struct request r = {0};
    struct mkmodel_result result;
    struct error e;
    double last = 0;
    mkmodel_defaults(&r.options);
    int exit_code = parse_options(argc, argv, &r);
    if (exit_code >= 0)
        return exit_code;
    bool terminal = isatty(STDERR_FILENO);
    enum error_code code =
        mkmodel_write(&r.options, r.output, terminal ? show_progress : NULL, &last, &result, &e);
    if (code != ERROR_OK) {
        fprintf(stderr, "%smoed mkmodel: %s\n", terminal && last > 0 ? "\n" : "", e.text);
        return code == ERROR_USAGE ? 2 : 1;
    }
    if (result.tensors_of_other_type)
        fprintf(stderr,
                "moed mkmodel: note: the rows of %llu tensors do not fit the blocks of %s, so they "
                "have another type (%s)\n",
                (unsigned long long)result.tensors_of_other_type, r.options.type,
                result.other_type_example);
    fprintf(stderr, "%s: %llu tensors, %.1f MB\n", result.first_file,
            (unsigned long long)result.tensors, (double)result.bytes_written * 1e-6);
    return 0;
}
