/* moed inspect: what a model file is and needs, what a trace (inspect_trace.c) or trained
 * predictors (inspect_predictors.c) hold, or what experts cost on this machine
 * (inspect_calibration.c). It needs no deployment. */
#include "client/cli/inspect.h"

#include "base/machine_memory.h"
#include "client/cli/ask.h"
#include "client/cli/commands.h"
#include "client/cli/deployment.h"
#include "client/cli/fold.h"
#include "client/cli/model_file.h"
#include "exec/pool.h"
#include "model/memory_need.h"
#include "model/serving_limits.h"
#include "reader/model_reader.h"
#include "sched/predict/trained.h"
#include "trace/trace.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* What a file of a kind begins with, without the NUL. */
static bool begins_with(const char *path, const char *magic)
{
    char begin[sizeof TRACE_MAGIC > sizeof TRAINED_MAGIC ? sizeof TRACE_MAGIC
                                                         : sizeof TRAINED_MAGIC];
    size_t bytes = strlen(magic);
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    bool does =
        fd >= 0 && read(fd, begin, bytes) == (ssize_t)bytes && memcmp(begin, magic, bytes) == 0;
    if (fd >= 0)
        close(fd);
    return does;
}

static void print_amount(const char *before, uint64_t bytes, const char *after)
{
    fold_printf("%s", before);
    inspect_print_bytes(bytes);
    fold_printf("%s", after);
}

static void print_kv_cache(const struct inspect *x)
{
    struct memory_kv kv = memory_kv_bytes(&x->params, x->kv_type);
    print_amount("KV cache        ", 1000 * kv.a_token, " for 1000 tokens");
    if (kv.window) {
        print_amount(", and ", kv.window_bytes, " a request");
        fold_printf(" in layers with a window of %" PRIu32 " tokens", kv.window);
    }
    fold_printf(", as %s\n", x->kv_type_name);
}

/* Ends the line of the host memory: what to do where there is too little. */
static void print_too_little(const struct pool_plan *plan, uint64_t available)
{
    char ram[24];
    const struct memory_worker worker = {.threads = pool_usable_cores()};
    bool little = memory_need_bytes(plan, 0, &worker) > available;
    fold_printf("%s", little ? ": too little" : "");
    if (little && memory_need_ram(plan, available, &worker, ram))
        fold_printf("; `moed up --ram %s` reads the other experts from the file", ram);
    fold_printf("\n");
}

static void print_needs(const struct inspect *x)
{
    const struct pool_header *h = &x->plan.header;
    const struct model_params *p = &x->params;
    const struct pool_slabs *s = &x->plan.slabs[p->n_dense]; /* the first with experts */
    uint64_t available = memory_available_bytes();
    print_amount("one expert      ", s->slab_bytes, " in ");
    fold_printf("%" PRIu32 " segment%s of ", s->n_segments, s->n_segments == 1 ? "" : "s");
    print_amount("", s->segment_bytes, "\n");
    print_amount("all experts     ", h->expert_bytes, "");
    fold_printf(": %.1f %% of the weights; a token reads ",
                100.0 * (double)h->expert_bytes / (double)(h->expert_bytes + h->dense_bytes));
    print_amount("", pool_plan_expert_token_bytes(&x->plan), " of them\n");
    print_amount("dense weights   ", h->dense_bytes, "; a token reads ");
    print_amount("", pool_plan_dense_token_bytes(&x->plan), " of them\n");
    print_kv_cache(x);
    if (params_recurrent_layers(p)) {
        print_amount("state           ", params_state_bytes(p), " a request and snapshot, ");
        uint32_t parallel = memory_parallel(p, 0);
        print_amount("", memory_state_bytes(p, parallel), " for ");
        fold_printf("%" PRIu32 " requests at once with their snapshots\n", parallel);
    }
    print_amount("host memory     ", h->bytes, " for the weights; ");
    print_amount("", available, " are available here");
    print_too_little(&x->plan, available);
    print_amount("device memory   ", h->dense_bytes, " for the dense weights, and up to ");
    print_amount("", h->expert_bytes, " for experts\n");
}

static void print_tensors(const struct inspect *x)
{
    printf("\n%-32s %-7s %-16s %10s %11s\n", "tensor", "type", "shape", "bytes", "offset");
    for (uint64_t i = 0; i < gguf_tensor_count(x->g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(x->g, i);
        char shape[64];
        int n = 0;
        for (uint32_t d = 0; d < t->n_dims; d++)
            n += snprintf(shape + n, sizeof shape - (size_t)n, "%s%" PRIu64, d ? " x " : "",
                          t->ne[d]);
        printf("%-32s %-7s %-16s %10" PRIu64 " %11" PRIu64 "\n", t->name,
               tensor_type_info(t->type)->name, shape, t->bytes, t->offset);
    }
}

int inspect_main(int argc, char **argv)
{
    struct inspect x = {.kv_type_name = KV_TYPE_DEFAULT};
    char path[PATH_MAX], model[PATH_MAX];
    bool calibration = false;
    const char *sequence = NULL;
    const struct option_spec options[] = {
        {"tensors", OPTION_BOOL, &x.tensors, 0, 0, NULL, "list every tensor"},
        {"calibration", OPTION_BOOL, &calibration, 0, 0, NULL,
         "show what experts cost, as measured on this machine"},
        {"sequence", OPTION_STRING, &sequence, 0, 0, "N",
         "print the token ids of a trace's sequence, from 0"},
        {"kv-type", OPTION_STRING, &x.kv_type_name, 0, 0, "TYPE", "size the KV cache as " KV_TYPES},
        {"json", OPTION_BOOL, &x.json, 0, 0, NULL, "print one JSON object"},
        {0},
    };
    int n, exit_code;
    if (!ask_arguments(
            options, "inspect", "MODEL | TRACE | PREDICTORS [MODEL] | --calibration [NAME]",
            "Shows what a model is and what it would need, without a deployment. MODEL is a\n"
            "GGUF file, or `demo`. Of a TRACE of `moed profile`: what it holds, and how\n"
            "evenly the model uses its experts. Of PREDICTORS of `moed train`: what they\n"
            "hold, and whether they are of MODEL. NAME: a model or a deployment.",
            argc, argv, 0, 2, &n, &exit_code))
        return exit_code;
    if (calibration && n < 2)
        return inspect_calibration(n ? argv[1] : NULL, x.json);
    if (n == 0) {
        cli_complain("inspect: an argument is missing; usage: moed inspect MODEL");
        return CLI_USAGE;
    }
    if (!model_file_find(argv[1], path))
        return CLI_FAILURE;
    bool is_predictors = begins_with(path, TRAINED_MAGIC);
    if (n == 2 && (calibration || !is_predictors)) {
        cli_complain("inspect: only after PREDICTORS a MODEL may follow: %s", argv[2]);
        return CLI_USAGE;
    }
    if (begins_with(path, TRACE_MAGIC))
        return inspect_trace(argv[1], sequence, x.json);
    if (sequence) {
        cli_complain("inspect: --sequence is of a trace; %s is none", argv[1]);
        return CLI_USAGE;
    }
    if (is_predictors) {
        if (n == 2 && !model_file_find(argv[2], model))
            return CLI_FAILURE;
        return inspect_predictors(path, n == 2 ? model : NULL, x.json);
    }
    struct error e;
    if (kv_type_parse(x.kv_type_name, &x.kv_type, &e)) {
        cli_complain("%s", e.text);
        return CLI_USAGE;
    }
    struct read_model checked = {0}; /* the tokenizer, too; in a process of its own */
    enum error_code code = model_reader_read(path, POOL_SEGMENT_BYTES, &checked, &e);
    read_model_free(&checked);
    if (!code)
        code = gguf_open(path, &x.g, &e);
    if (!code)
        code = pool_plan_new(x.g, &x.plan, &e);
    if (!code)
        code = model_params_read(x.g, &x.params, &e);
    if (!code)
        code = kv_type_check(&x.params, x.kv_type, &e);
    if (code) {
        cli_complain("%s", e.text);
    } else if (x.json) {
        inspect_print_json(&x);
    } else {
        inspect_print_model(&x);
        print_needs(&x);
        if (x.tensors)
            print_tensors(&x);
    }
    pool_plan_free(&x.plan);
    gguf_close(x.g);
    return code ? CLI_FAILURE : CLI_OK;
}
