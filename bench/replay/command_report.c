/* moed-replay --report: compares policies over a grid of traces and machines. */
#include "bench/replay/commands.h"
#include "bench/replay/grid_report.h"
#include "bench/replay/plan.h"

#include "base/file_writer.h"
#include "daemon/options.h"
#include "sched/policy.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sched.h>

/* The subject with other parts: others, beside the presets. */
static const char *const variants[] = {"cache=lru",    "cache=lfu",       "cache=arc",
                                       "cache=lrfu",   "cache=w-tinylfu", "cache=least-stale",
                                       "assign=qstar", "predictor=none"};

/* Second readings of papers: docs/policies.md. */
static const char *const readings[] = {"qstar/assign=qstar-stream",  "dali/assign=greedy-unbound",
                                       "prescope/prefetch=probable", "fate/predictor=next-gate",
                                       "fate/prefetch=selective",    "score/prefetch=selective"};

struct request {
    const char *folder, *policies;
    uint64_t n_processes;
    struct grid_options grid;
    struct strbuf own_policies, command;
};

static uint64_t count_cores(void)
{
    cpu_set_t set;
    return sched_getaffinity(0, sizeof set, &set) == 0 ? (uint64_t)CPU_COUNT(&set) : 1;
}

static bool has_cache(const char *variant)
{
    enum sched_cache_kind kind;
    const char *cache = strncmp(variant, "cache=", 6) == 0 ? variant + 6 : NULL;
    return !cache || sched_cache_find_any(cache, &kind);
}

/* Every preset that does not know the future, the readings and the variants. */
static void list_policies(struct strbuf *out)
{
    const struct sched_policy *p;
    for (uint32_t i = 0; (p = sched_policy_at_any(i)); i++)
        if (!sched_cache_replay_only(p->cache))
            strbuf_printf(out, "%s%s", i ? "," : "", p->name);
    for (size_t i = 0; i < sizeof readings / sizeof *readings; i++)
        strbuf_printf(out, ",%s", readings[i]);
    for (size_t i = 0; i < sizeof variants / sizeof *variants; i++)
        if (has_cache(variants[i]))
            strbuf_printf(out, "," GRID_SUBJECT "/%s", variants[i]);
}

static int parse(struct request *r, int argc, char **argv, struct error *e)
{
    const struct option_spec options[] = {
        {"report", OPTION_STRING, &r->folder, 0, 0, "DIR",
         "write the report here; what DIR has already is not computed again"},
        {"short", OPTION_BOOL, &r->grid.few, 0, 0, NULL, "fewer cells and seeds: minutes"},
        {"models", OPTION_STRING, &r->grid.models, 0, 0, "LIST", "only these models of the grid"},
        {"machines", OPTION_STRING, &r->grid.machines, 0, 0, "LIST",
         "only these machines of the grid"},
        {"seeds", OPTION_UINT, &r->grid.n_seeds, 0, GRID_MOST_SEEDS, "N",
         "seeds of each trace; 0: 5, with --short 2"},
        {"policies", OPTION_STRING, &r->policies, 0, 0, "LIST",
         "policies to compare, " GRID_SUBJECT " among them; default: all, and variants"},
        {"jobs", OPTION_UINT, &r->n_processes, 1, 1024, "N", "processes at once"},
        {0},
    };
    if (options_wants_help(argc, argv)) {
        options_print_help(options, "moed-replay", "--report DIR [OPTION]...",
                           "Compares " GRID_SUBJECT " with the other policies over a grid of "
                           "synthetic traces and\nmachines. Writes report.html, report.md and "
                           "cells.csv to DIR.");
        return 0;
    }
    strbuf_printf(&r->command, "moed-replay");
    for (int i = 1; i < argc; i++)
        strbuf_printf(&r->command, " %s", argv[i]);
    list_policies(&r->own_policies);
    enum error_code code = options_parse(options, argc, argv, NULL, e);
    if (!code && !*r->folder)
        code = error_set(e, ERROR_USAGE, "--report: the name of a folder is missing");
    if (!code && !r->policies)
        r->policies = r->own_policies.data;
    return code ? command_failed(e) : -1;
}

static enum error_code check_policies(const char *policies, struct error *e)
{
    struct replay_plan *plan = calloc(1, sizeof *plan);
    bool has_subject = false;
    if (!plan)
        return error_set(e, ERROR_MEMORY, "out of memory");
    enum error_code code = plan_policies(plan, policies, e);
    for (uint32_t i = 0; i < plan->n_policies; i++)
        has_subject |= strcmp(plan->policies[i]->name, GRID_SUBJECT) == 0;
    if (!code && (!has_subject || plan->n_policies < 2))
        code = error_set(e, ERROR_USAGE, "--policies: name " GRID_SUBJECT " and others");
    free(plan);
    return code;
}

/* ---- Output ---- */

static enum error_code store(const char *folder, const char *name, struct strbuf *text,
                             struct error *e)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    enum error_code code = file_write_text(path, text, e);
    strbuf_clear(text);
    return code;
}

static enum error_code write_report(const char *folder, const struct grid_report *r,
                                    struct error *e)
{
    struct strbuf text;
    strbuf_init(&text);
    grid_report_text(r, true, &text);
    enum error_code code = store(folder, "report.html", &text, e);
    if (!code) {
        grid_report_text(r, false, &text);
        code = store(folder, "report.md", &text, e);
    }
    if (!code) {
        grid_report_csv(r, &text);
        code = store(folder, "cells.csv", &text, e);
    }
    if (!code) {
        grid_report_summary(r, &text);
        printf("%s\nwritten: %s/report.html, report.md, cells.csv\n",
               text.data ? text.data + 1 : "", folder);
    }
    strbuf_fini(&text);
    return code;
}

static enum error_code report(const struct grid_run *run, const char *command, struct error *e)
{
    struct grid_row *rows = NULL;
    struct grid_report r = {.grid = run->grid, .command = command};
    enum error_code code = grid_read(run, &rows, &r.n_rows, e);
    r.rows = rows;
    if (!code)
        code = score_table_init(&r.decode, SCORE_DECODE, GRID_SUBJECT, rows, r.n_rows, e);
    if (!code)
        code = score_table_init(&r.prefill, SCORE_PREFILL, GRID_SUBJECT, rows, r.n_rows, e);
    if (!code)
        code = write_report(run->folder, &r, e);
    score_table_fini(&r.decode);
    score_table_fini(&r.prefill);
    free(rows);
    return code;
}

int command_report(int argc, char **argv)
{
    struct request r = {.folder = "", .n_processes = count_cores()};
    struct error e = {0};
    struct grid grid = {0};
    strbuf_init(&r.own_policies);
    strbuf_init(&r.command);
    int exit_code = parse(&r, argc, argv, &e);
    if (exit_code < 0) {
        enum error_code code = check_policies(r.policies, &e);
        if (!code)
            code = grid_init(&grid, &r.grid, &e);
        const struct grid_run run = {.grid = &grid,
                                     .folder = r.folder,
                                     .policies = r.policies,
                                     .n_processes = (uint32_t)r.n_processes};
        if (!code)
            code = grid_run(&run, &e);
        if (!code)
            code = report(&run, r.command.data, &e);
        exit_code = code ? command_failed(&e) : 0;
    }
    grid_fini(&grid);
    strbuf_fini(&r.own_policies);
    strbuf_fini(&r.command);
    return exit_code;
}
