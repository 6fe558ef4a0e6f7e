/* moed-bench --model FILE: a deployment's speed of prefill and decode, and the share of the
 * machine's memory bandwidth that decoding uses.
 *
 * It starts a deployment of the model and stops it at the end (or measures a running one, --name).
 * Each run measures every row of the table once. Between them, while the deployment idles, it
 * measures how fast the machine reads memory, so that other work on the machine meets both. The
 * table has medians. In the last run each row is printed as soon as it is measured.
 */
#include "bandwidth.h"
#include "hosting.h"
#include "report.h"
#include "streams.h"

#include "base/clock.h"
#include "base/strbuf.h"
#include "client/include/moed.h"
#include "daemon/options.h"
#include "gguf/gguf.h"
#include "model/pool_plan.h"
#include "model/serving_limits.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#define EXIT_INTERRUPTED 130        /* 128 + SIGINT, as shells report it */
#define PARALLEL_LEAST   4          /* the smallest default of --parallel */
#define MAX_TOKENS_ASKED (1u << 20) /* of a prompt or an answer */
#define MAX_LIST         8

struct number_list {
    uint32_t values[MAX_LIST];
    uint32_t n;
};

struct bench {
    const char *model, *name, *prompts_text, *streams_text;
    uint64_t generate, runs, threads;
    bool json;
    struct number_list prompts, streams;
    struct hosting hosting;
    struct moed_session *session;
    struct bandwidth *bandwidth;
    uint32_t vocab, context;
    uint64_t seed; /* of the next measurement's prompts */
    struct report report;
    struct strbuf command;
};

static volatile sig_atomic_t interrupted;

static void on_interrupt(int signal_number)
{
    interrupted = signal_number;
}

static int complain(const char *message)
{
    fprintf(stderr, "moed-bench: %s\n", message);
    return 1;
}

/* ---- Options ---- */

/* "1,4" */
static bool parse_list(const char *text, uint32_t most, struct number_list *out)
{
    out->n = 0;
    for (const char *p = text;; p++) {
        char *end;
        unsigned long value = *p >= '0' && *p <= '9' ? strtoul(p, &end, 10) : 0;
        if (value == 0 || value > most || out->n == MAX_LIST)
            return false;
        out->values[out->n++] = (uint32_t)value;
        p = end;
        if (*p == '\0')
            return true;
        if (*p != ',')
            return false;
    }
}

static uint32_t largest(const struct number_list *l)
{
    uint32_t most = 0;
    for (uint32_t i = 0; i < l->n; i++)
        most = l->values[i] > most ? l->values[i] : most;
    return most;
}

/* -1: go on; else the exit code. */
static int parse_options(struct bench *b, int argc, char **argv)
{
    const struct option_spec options[] = {
        {"model", OPTION_STRING, &b->model, 0, 0, "FILE", "start a deployment of this GGUF file"},
        {"name", OPTION_STRING, &b->name, 0, 0, "N", "measure this running deployment instead"},
        {"prompt-tokens", OPTION_STRING, &b->prompts_text, 0, 0, "LIST",
         "prompt lengths; 1,512: decode from the start and after 512 tokens"},
        {"generate", OPTION_UINT, &b->generate, 2, MAX_TOKENS_ASKED, "N",
         "tokens to decode after each prompt"},
        {"parallel", OPTION_STRING, &b->streams_text, 0, 0, "LIST", "numbers of requests at once"},
        {"runs", OPTION_UINT, &b->runs, 1, MAX_RUNS, "N", "runs of each measurement"},
        {"threads", OPTION_UINT, &b->threads, 0, 1024, "N",
         "threads of each process of the deployment; 0: one a core"},
        {"json", OPTION_BOOL, &b->json, 0, 0, NULL, "print one JSON object, not a table"},
        {0},
    };
    if (options_print_version("moed-bench", argc, argv))
        return 0;
    if (options_wants_help(argc, argv)) {
        options_print_help(options, "moed-bench", "--model FILE [OPTION]...",
                           "Measures prefill and decode, and the machine's memory bandwidth.");
        return 0;
    }
    strbuf_printf(&b->command, "moed-bench");
    for (int i = 1; i < argc; i++)
        strbuf_printf(&b->command, " %s", argv[i]);
    struct error e = {0};
    const char *wrong = NULL;
    if (options_parse(options, argc, argv, NULL, &e))
        wrong = e.text;
    else if (!b->model == !b->name)
        wrong = "give either --model FILE or --name N";
    else if (b->name && b->threads)
        wrong = "--threads needs --model: a running deployment has its threads";
    else if (!parse_list(b->prompts_text, MAX_TOKENS_ASKED, &b->prompts))
        wrong = "--prompt-tokens: expected up to 8 numbers from 1 on, as in 1,512";
    else if (!parse_list(b->streams_text, MAX_STREAMS, &b->streams))
        wrong = "--parallel: expected up to 8 numbers of 1 to 256, as in 1,4";
    if (!wrong)
        return -1;
    complain(wrong);
    return 2;
}

/* ---- The deployment and its model ---- */

/* Of a model file. Bytes: what decoding one token reads. */
struct model_facts {
    uint32_t context_trained;
    uint64_t dense_bytes;  /* all dense weights, of the embedding one row */
    uint64_t expert_bytes; /* the slabs of the experts that a token activates */
};

static enum error_code read_model(const char *path, struct model_facts *out, struct error *e)
{
    struct gguf *g = NULL;
    struct pool_plan plan = {0};
    enum error_code code = gguf_open(path, &g, e);
    if (!code)
        code = pool_plan_new(g, &plan, e);
    if (!code)
        *out = (struct model_facts){.context_trained = plan.header.params.context_trained,
                                    .dense_bytes = pool_plan_dense_token_bytes(&plan),
                                    .expert_bytes = pool_plan_expert_token_bytes(&plan)};
    pool_plan_free(&plan);
    gguf_close(g);
    return code;
}

static int start_deployment(struct bench *b)
{
    struct error e;
    uint32_t prompt = largest(&b->prompts), streams = largest(&b->streams);
    uint64_t tokens = prompt + streams_most_tokens(streams, prompt, (uint32_t)b->generate);
    struct model_facts model;
    uint32_t usual = DEFAULT_CONTEXT; /* without --ctx, at most */
    /* what cannot be read `moed up` reports */
    if (!read_model(b->model, &model, &e) && model.context_trained < usual)
        usual = model.context_trained;
    struct hosting_options options = {.model = b->model,
                                      .threads = b->threads,
                                      .ctx = tokens > usual ? tokens : 0,
                                      .parallel = streams > PARALLEL_LEAST ? streams : 0};
    return hosting_start(&options, &b->hosting, &e) ? complain(e.text) : 0;
}

static int plan_bytes(struct report *r)
{
    struct model_facts model;
    struct error e;
    if (read_model(r->path, &model, &e))
        return complain(e.text);
    r->dense_bytes_a_token = model.dense_bytes;
    r->expert_bytes_a_token = model.expert_bytes;
    return 0;
}

/* The deployment's compute threads, from the worker's metrics. */
static int read_threads(struct bench *b, struct moed_error *error)
{
    static const char metric[] = "\nmoed_worker_threads ";
    char *text;
    if (moed_metrics(b->name, "worker", &text, error))
        return complain(error->message);
    const char *found = strstr(text, metric);
    b->report.threads = found ? (uint32_t)strtoul(found + strlen(metric), NULL, 10) : 0;
    moed_free(text);
    return b->report.threads ? 0 : complain("the worker's metrics have no moed_worker_threads");
}

static int attach(struct bench *b)
{
    struct moed_error error;
    struct moed_model *model;
    struct moed_attach_options options = {
        .size = sizeof options, .deployment = b->name, .client = "moed-bench"};
    if (moed_attach(&options, &b->session, &error) || moed_model_get(b->session, &model, &error))
        return complain(error.message);
    struct report *r = &b->report;
    const char *slash = strrchr(model->path, '/');
    snprintf(r->name, sizeof r->name, "%s", slash ? slash + 1 : model->path);
    snprintf(r->path, sizeof r->path, "%s", b->model ? b->model : model->path);
    r->file_bytes = model->file_bytes;
    r->on_host = strcmp(model->device, "host") == 0;
    b->vocab = model->vocab;
    b->context = model->context;
    moed_model_free(model);
    int failed = read_threads(b, &error);
    return failed ? failed : plan_bytes(r);
}

/* ---- Measuring ---- */

static void lay_out_rows(struct bench *b)
{
    struct report *r = &b->report;
    for (uint32_t i = 0; i < b->streams.n; i++)
        for (uint32_t k = 0; k < b->prompts.n; k++)
            r->rows[r->n_rows++] = (struct row){.streams = b->streams.values[i],
                                                .prompt_tokens = b->prompts.values[k]};
}

/* No two measurements have the same prompts, nor those of another moed-bench: the KV cache would
 * have them. */
static enum moed_code measure_row(struct bench *b, const struct row *row,
                                  struct streams_speed *speed, struct moed_error *error)
{
    struct streams_plan plan = {.streams = row->streams,
                                .prompt_tokens = row->prompt_tokens,
                                .generate = (uint32_t)b->generate,
                                .vocab = b->vocab,
                                .context = b->context,
                                .seed = b->seed++,
                                .stopping = &interrupted};
    return streams_run(b->session, &plan, speed, error);
}

static int measure_memory(struct bench *b)
{
    struct error e;
    double bytes_per_s;
    if (bandwidth_measure(b->bandwidth, &bytes_per_s, &e))
        return complain(e.text);
    samples_add(&b->report.read_bandwidth, bytes_per_s);
    return interrupted ? EXIT_INTERRUPTED : 0;
}

/* Adds a sample to the row. One that cannot be measured fails, and the others go on. */
static int sample_row(struct bench *b, struct row *row)
{
    struct streams_speed speed;
    struct moed_error error;
    int failed = measure_memory(b);
    if (failed)
        return failed;
    if (measure_row(b, row, &speed, &error)) {
        if (interrupted)
            return EXIT_INTERRUPTED;
        row->failed = true;
        fprintf(stderr, "moed-bench: %u streams, prompt of %u tokens: %s\n", (unsigned)row->streams,
                (unsigned)row->prompt_tokens, error.message);
        return moed_session_alive(b->session) ? 0 : 1;
    }
    samples_add(&row->decode, speed.decode_tokens_per_s);
    row->drafts_accepted |= speed.drafts_accepted;
    if (row->streams == 1)
        samples_add(&row->prefill, speed.prefill_tokens_per_s);
    return 0;
}

static int measure(struct bench *b)
{
    struct report *r = &b->report;
    struct streams_speed speed;
    struct moed_error error;
    int failed = 0;
    if (measure_row(b, &r->rows[0], &speed, &error) && interrupted) /* warm-up */
        return EXIT_INTERRUPTED;
    for (uint64_t run = 1; !failed && run <= b->runs; run++)
        for (uint32_t i = 0; !failed && i < r->n_rows; i++) {
            struct row *row = &r->rows[i];
            failed = row->failed ? 0 : sample_row(b, row);
            if (!failed && run == b->runs && !b->json)
                report_print_row(r, row, stdout);
        }
    return failed;
}

static bool all_measured(const struct report *r)
{
    for (uint32_t i = 0; i < r->n_rows; i++)
        if (r->rows[i].failed)
            return false;
    return true;
}

static int bench(struct bench *b)
{
    struct error e;
    int failed = attach(b);
    if (failed)
        return failed;
    lay_out_rows(b);
    if (bandwidth_new(b->report.threads, &b->bandwidth, &e))
        return complain(e.text);
    b->report.runs = (uint32_t)b->runs;
    b->report.generate = (uint32_t)b->generate;
    b->report.command = b->command.data;
    if (getrandom(&b->seed, sizeof b->seed, GRND_NONBLOCK) != sizeof b->seed)
        b->seed = clock_ns();
    if (!b->json)
        report_print_head(stdout);
    failed = measure(b);
    if (failed)
        return failed;
    if (b->json)
        report_print_json(&b->report, stdout);
    else
        report_print_foot(&b->report, stdout);
    return fflush(stdout) || !all_measured(&b->report) ? 1 : 0;
}

int main(int argc, char **argv)
{
    static struct bench b = {
        .prompts_text = "512", .streams_text = "1,4", .generate = 64, .runs = 5};
    int exit_code = parse_options(&b, argc, argv);
    if (exit_code >= 0)
        return exit_code;
    struct sigaction action = {.sa_handler = on_interrupt}; /* no SA_RESTART: a signal ends waits */
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    exit_code = b.model ? start_deployment(&b) : 0;
    if (!exit_code)
        exit_code = bench(&b);
    moed_detach(b.session);
    bandwidth_free(b.bandwidth);
    hosting_stop(&b.hosting);
    strbuf_fini(&b.command);
    return interrupted ? EXIT_INTERRUPTED : exit_code;
}
