/* moed policy: shows which experts memd caches and where the worker computes them, or changes it
 * while serving. */
#include "client/cli/ask.h"
#include "client/cli/commands.h"
#include "client/cli/deployment.h"
#include "client/cli/fold.h"
#include "daemon/control.h"
#include "sched/policy.h"

#include <inttypes.h>
#include <stdio.h>

#define POLICY_TIMEOUT_MS 5000

static enum error_code call(const char *run, const char *process, Moed__V1__PolicyRequest *policy,
                            Moed__V1__Reply **reply, struct error *e)
{
    Moed__V1__Request request = MOED__V1__REQUEST__INIT;
    request.body_case = MOED__V1__REQUEST__BODY_POLICY;
    request.policy = policy;
    return control_call(run, process, &request, MOED__V1__REPLY__BODY_POLICY, POLICY_TIMEOUT_MS,
                        reply, e);
}

/* What a worker counted since the policy was chosen joins the first one's counts. Corrections and
 * trials stay the first one's: workers learn them for themselves. */
static void add_worker(Moed__V1__PolicyReply *all, const Moed__V1__PolicyReply *one)
{
    all->since_ns = one->since_ns < all->since_ns ? one->since_ns : all->since_ns;
    all->segments_resident += one->segments_resident;
    all->segments_loaded += one->segments_loaded;
    all->segments_cpu += one->segments_cpu;
    for (size_t i = 0; i < all->n_predictions && i < one->n_predictions; i++) {
        all->predictions[i] += one->predictions[i];
        all->predictions_right[i] += one->predictions_right[i];
    }
    all->predict_shown += one->predict_shown;
    all->predict_dropped += one->predict_dropped;
    all->predict_in_time += one->predict_in_time;
    all->predict_late += one->predict_late;
    all->layers += one->layers;
    all->layer_ns += one->layer_ns;
    all->layer_predicted_ns += one->layer_predicted_ns;
    all->layer_wrong_ns += one->layer_wrong_ns;
    all->plan_ns += one->plan_ns;
    all->device_busy_ns += one->device_busy_ns;
    all->cpu_busy_ns += one->cpu_busy_ns;
    all->experts_in_memory += one->experts_in_memory;
    all->experts_on_disk += one->experts_on_disk;
    all->decode_ns += one->decode_ns;
    all->disk_wait_decode_ns += one->disk_wait_decode_ns;
}

/* Sends the request to every worker. *all: their replies together. */
static enum error_code call_workers(const char *run, Moed__V1__PolicyRequest *request,
                                    Moed__V1__Reply **all, struct error *e)
{
    const char *names[SUPERVISE_WORKERS];
    unsigned n = deployment_workers(run, names);
    enum error_code code =
        n ? ERROR_OK : error_set(e, ERROR_UNAVAILABLE, "no worker runs now; try again");
    for (unsigned i = 0; i < n && !code; i++) {
        Moed__V1__Reply *reply = NULL;
        code = call(run, names[i], request, &reply, e);
        if (!code && !*all) {
            *all = reply;
        } else if (!code) {
            add_worker((*all)->policy, reply->policy);
            moed__v1__reply__free_unpacked(reply, NULL);
        }
    }
    return code;
}

static double share(uint64_t part, uint64_t all)
{
    return all ? 100.0 * (double)part / (double)all : 0;
}

static uint64_t sum(const uint64_t *values, size_t n)
{
    uint64_t total = 0;
    for (size_t i = 0; i < n; i++)
        total += values[i];
    return total;
}

static void print_trials(const Moed__V1__PolicyReply *worker)
{
    double percent = 100 * worker->prefetch_saves;
    if (worker->device_tried && !worker->device_computes)
        fold_printf("          the CPU computes all experts: the device makes a step %.0f %% "
                    "longer in trials on this machine\n",
                    -100 * worker->device_saves);
    else if (worker->loads_tried && !worker->loading)
        fold_printf(
            "          loads and prefetch off: they make a step %.0f %% longer in trials on "
            "this machine\n",
            -100 * worker->copies_save);
    else if (worker->prefetch_tried && worker->prefetching)
        fold_printf("          prefetch on: it saves %.0f %% of a step in trials on this machine\n",
                    percent > 0 ? percent : 0);
    else if (worker->prefetch_tried)
        fold_printf(
            "          prefetch off: it makes a step %.0f %% longer in trials on this machine\n",
            -percent);
}

static void print_predictor(const char *name, const Moed__V1__PolicyReply *worker)
{
    uint64_t predictions = sum(worker->predictions, worker->n_predictions);
    fold_printf("predictor %s", name);
    if (predictions)
        fold_printf(": %.1f %% of %" PRIu64 " predicted experts were right",
                    share(sum(worker->predictions_right, worker->n_predictions_right), predictions),
                    predictions);
    fold_printf("\n");
    if (worker->predict_shown || worker->predict_dropped)
        fold_printf("          background predictor: %" PRIu64 " layers taken, %" PRIu64
                    " skipped while busy; %" PRIu64 " predictions in time, %" PRIu64 " late\n",
                    worker->predict_shown, worker->predict_dropped, worker->predict_in_time,
                    worker->predict_late);
    print_trials(worker);
}

static void print_layers(const Moed__V1__PolicyReply *worker)
{
    double n = (double)worker->layers * 1e6; /* ms */
    if (!worker->layers || !worker->layer_ns)
        return;
    fold_printf(
        "layers    %.3f ms each, predicted %.3f ms (error %.0f %%), planned in %.3f ms; device "
        "busy "
        "%.0f %%, CPU busy %.0f %%\n",
        (double)worker->layer_ns / n, (double)worker->layer_predicted_ns / n,
        share(worker->layer_wrong_ns, worker->layer_ns), (double)worker->plan_ns / n,
        share(worker->device_busy_ns, worker->layer_ns),
        share(worker->cpu_busy_ns, worker->layer_ns));
}

/* The share of the experts in host memory, and the disk's load. */
static void print_tier(const Moed__V1__PolicyReply *memd, const Moed__V1__PolicyReply *worker)
{
    uint64_t activated = worker->experts_in_memory + worker->experts_on_disk;
    if (!memd->has_tier)
        return;
    fold_printf("memory    %.1f %% of %" PRIu64 " experts: %" PRIu64 " in %" PRIu64
                " slots of %.2f MB",
                share(memd->tier_resident, memd->tier_experts), memd->tier_experts,
                memd->tier_resident, memd->tier_slots, (double)memd->tier_slot_bytes * 1e-6);
    if (activated)
        fold_printf("; hit rate %.1f %%", share(worker->experts_in_memory, activated));
    fold_printf("\ndisk      %.2f GB read", (double)memd->disk_read_bytes * 1e-9);
    if (memd->disk_busy_ns)
        fold_printf(", busy %.1f %% of the time, %.2f GB/s while busy",
                    share(memd->disk_busy_ns, memd->tier_since_ns),
                    (double)memd->disk_read_bytes / (double)memd->disk_busy_ns);
    if (worker->decode_ns)
        fold_printf("; decoding waited for it %.1f %% of the time",
                    share(worker->disk_wait_decode_ns, worker->decode_ns));
    fold_printf("\n");
}

/* The time that the following lines cover. A worker counts from its start, so after a restart its
 * time is shorter than memd's. */
static void print_since(const Moed__V1__PolicyReply *memd, const Moed__V1__PolicyReply *worker)
{
    double set_s = (double)memd->since_ns * 1e-9, worker_s = (double)worker->since_ns * 1e-9;
    fold_printf("          since the policy was set, %.0f s ago", set_s);
    if (worker->since_ns && worker_s < 0.9 * set_s && worker_s < set_s - 1)
        fold_printf("; computed, layers: since a worker's start, %.0f s ago", worker_s);
    fold_printf(":\n");
}

static void print_state(const Moed__V1__PolicyReply *memd, const Moed__V1__PolicyReply *worker)
{
    uint64_t segments = worker->segments_resident + worker->segments_loaded + worker->segments_cpu;
    fold_printf("device    %s\nassigner  %s\n", memd->device, worker->part);
    print_tier(memd, worker);
    if (memd->has_cache || memd->has_tier)
        print_predictor(memd->predictor, worker);
    if (!memd->has_cache) {
        fold_printf("cache     none: the device has no memory of its own\n");
        return;
    }
    fold_printf("cache     %s, budget %s, prefetcher %s, %.1f MB in %" PRIu64
                " segments of %.2f MB: %" PRIu64 " resident, %" PRIu64 " free\n",
                memd->part, memd->budget, memd->prefetcher,
                (double)(memd->slots * memd->slot_bytes) * 1e-6, memd->slots,
                (double)memd->slot_bytes * 1e-6, memd->resident, memd->free);
    if (segments || memd->link_busy_ns)
        print_since(memd, worker);
    if (segments)
        fold_printf("computed  %.1f %% resident, %.1f %% loaded, %.1f %% on the CPU, of %" PRIu64
                    " segments\n",
                    share(worker->segments_resident, segments),
                    share(worker->segments_loaded, segments), share(worker->segments_cpu, segments),
                    segments);
    print_layers(worker);
    if (memd->link_busy_ns)
        fold_printf("link      %.2f GB copied, busy %.1f %% of the time, %.2f GB/s while busy\n",
                    (double)memd->link_bytes * 1e-9, share(memd->link_busy_ns, memd->since_ns),
                    (double)memd->link_bytes / (double)memd->link_busy_ns);
}

static void print_numbers(const char *key, const uint64_t *values, size_t n)
{
    printf(", \"%s\": [", key);
    for (size_t i = 0; i < n; i++)
        printf("%s%" PRIu64, i ? ", " : "", values[i]);
    printf("]");
}

static void print_trials_json(const Moed__V1__PolicyReply *worker)
{
    if (worker->prefetch_tried)
        printf(", \"prefetch\": %s, \"prefetch_saves\": %.4f",
               worker->prefetching ? "true" : "false", worker->prefetch_saves);
    if (worker->loads_tried)
        printf(", \"loading\": %s, \"copies_save\": %.4f", worker->loading ? "true" : "false",
               worker->copies_save);
    if (worker->device_tried)
        printf(", \"device_computes\": %s, \"device_saves\": %.4f",
               worker->device_computes ? "true" : "false", worker->device_saves);
}

/* predictions and predictions_right: an entry for each layer, in order. */
static void print_predictor_json(const Moed__V1__PolicyReply *memd,
                                 const Moed__V1__PolicyReply *worker)
{
    printf(", \"predictor\": \"%s\", \"budget\": \"%s\", \"prefetcher\": \"%s\"", memd->predictor,
           memd->budget, memd->prefetcher);
    print_trials_json(worker);
    if (!worker->n_predictions)
        return;
    print_numbers("predictions", worker->predictions, worker->n_predictions);
    print_numbers("predictions_right", worker->predictions_right, worker->n_predictions_right);
    printf(", \"predict_shown\": %" PRIu64 ", \"predict_dropped\": %" PRIu64
           ", \"predict_in_time\": %" PRIu64 ", \"predict_late\": %" PRIu64,
           worker->predict_shown, worker->predict_dropped, worker->predict_in_time,
           worker->predict_late);
}

static void print_json(const Moed__V1__PolicyReply *memd, const Moed__V1__PolicyReply *worker)
{
    printf("{\"device\": \"%s\", \"assigner\": \"%s\"", memd->device, worker->part);
    if (memd->has_cache)
        printf(", \"cache\": \"%s\", \"slot_bytes\": %" PRIu64 ", \"slots\": %" PRIu64
               ", \"free\": %" PRIu64 ", \"resident\": %" PRIu64 ", \"filling\": %" PRIu64
               ", \"retired\": %" PRIu64 ", \"since_s\": %.3f, \"link_bytes\": %" PRIu64
               ", \"link_busy_s\": %.6f, \"worker_since_s\": %.3f"
               ", \"segments_resident\": %" PRIu64 ", \"segments_loaded\": %" PRIu64
               ", \"segments_cpu\": %" PRIu64,
               memd->part, memd->slot_bytes, memd->slots, memd->free, memd->resident, memd->filling,
               memd->retired, (double)memd->since_ns * 1e-9, memd->link_bytes,
               (double)memd->link_busy_ns * 1e-9, (double)worker->since_ns * 1e-9,
               worker->segments_resident, worker->segments_loaded, worker->segments_cpu);
    if (memd->has_cache || memd->has_tier)
        print_predictor_json(memd, worker);
    if (worker->layers)
        printf(", \"layers\": %" PRIu64 ", \"layer_s\": %.6f, \"layer_predicted_s\": %.6f"
               ", \"layer_wrong_s\": %.6f, \"plan_s\": %.6f, \"device_busy_s\": %.6f"
               ", \"cpu_busy_s\": %.6f, \"outside_step_s\": %.9f",
               worker->layers, (double)worker->layer_ns * 1e-9,
               (double)worker->layer_predicted_ns * 1e-9, (double)worker->layer_wrong_ns * 1e-9,
               (double)worker->plan_ns * 1e-9, (double)worker->device_busy_ns * 1e-9,
               (double)worker->cpu_busy_ns * 1e-9, (double)worker->outside_ns * 1e-9);
    if (memd->has_tier)
        printf(", \"memory_experts\": %" PRIu64 ", \"memory_slots\": %" PRIu64
               ", \"memory_slot_bytes\": %" PRIu64 ", \"memory_free\": %" PRIu64
               ", \"memory_resident\": %" PRIu64 ", \"memory_filling\": %" PRIu64
               ", \"memory_retired\": %" PRIu64 ", \"disk_read_bytes\": %" PRIu64
               ", \"disk_busy_s\": %.6f, \"experts_in_memory\": %" PRIu64
               ", \"experts_on_disk\": %" PRIu64 ", \"decode_s\": %.6f"
               ", \"decode_disk_wait_s\": %.6f",
               memd->tier_experts, memd->tier_slots, memd->tier_slot_bytes, memd->tier_free,
               memd->tier_resident, memd->tier_filling, memd->tier_retired, memd->disk_read_bytes,
               (double)memd->disk_busy_ns * 1e-9, worker->experts_in_memory,
               worker->experts_on_disk, (double)worker->decode_ns * 1e-9,
               (double)worker->disk_wait_decode_ns * 1e-9);
    printf("}\n");
}

static void print_policies(void)
{
    fold_printf("\npolicies\n");
    const struct sched_policy *p;
    for (uint32_t i = 0; (p = sched_policy_at(i)); i++)
        fold_printf(
            "  %-18s  %s (--assign %s --cache %s --budget %s --predictor %s --prefetch %s)\n",
            p->name, p->what, sched_assigner_name(p->assigner), sched_cache_name(p->cache),
            sched_budget_name(p->budget), sched_predictor_name(p->predictor),
            sched_prefetcher_name(p->prefetcher));
    const char *name;
    fold_printf("\nassigners\n");
    for (int i = 0; (name = sched_assigner_name((enum sched_assigner)i)); i++)
        if (i != ASSIGN_OPTIMAL)
            fold_printf("  %-18s  %s\n", name, sched_assigner_what((enum sched_assigner)i));
    fold_printf("\ncaches\n");
    for (int i = 0; (name = sched_cache_name((enum sched_cache_kind)i)); i++)
        if (!sched_cache_replay_only((enum sched_cache_kind)i))
            fold_printf("  %-18s  %s\n", name, sched_cache_what((enum sched_cache_kind)i));
    fold_printf("\npredictors\n");
    for (int i = 0; (name = sched_predictor_name((enum sched_predictor)i)); i++)
        fold_printf("  %-18s  %s\n", name, sched_predictor_what((enum sched_predictor)i));
    fold_printf("\nbudgets\n");
    for (int i = 0; (name = sched_budget_name((enum sched_budget)i)); i++)
        fold_printf("  %-18s  %s\n", name, sched_budget_what((enum sched_budget)i));
    fold_printf("\nprefetchers\n");
    for (int i = 0; (name = sched_prefetcher_name((enum sched_prefetcher)i)); i++)
        fold_printf("  %-18s  %s\n", name, sched_prefetcher_what((enum sched_prefetcher)i));
}

static char *text_of(const char *option)
{
    return (char *)(option ? option : "");
}

int policy_main(int argc, char **argv)
{
    const char *name = NULL, *assign = NULL, *cache = NULL, *predictor = NULL, *budget = NULL,
               *prefetch = NULL;
    bool json = false;
    const struct option_spec table[] = {
        {"name", OPTION_STRING, &name, 0, 0, "NAME", "select a deployment (default: default)"},
        {"assign", OPTION_STRING, &assign, 0, 0, "A", sched_assigner_help()},
        {"cache", OPTION_STRING, &cache, 0, 0, "C", sched_cache_help()},
        {"predictor", OPTION_STRING, &predictor, 0, 0, "P", sched_predictor_help()},
        {"budget", OPTION_STRING, &budget, 0, 0, "B", sched_budget_help()},
        {"prefetch", OPTION_STRING, &prefetch, 0, 0, "P", sched_prefetcher_help()},
        {"json", OPTION_BOOL, &json, 0, 0, NULL, "print one JSON object"},
        {0},
    };
    int n, exit_code;
    if (!ask_arguments(
            table, "policy", "[POLICY] [OPTION]...",
            "Shows which experts the device caches, where experts were computed, how\n"
            "predictions turned out, and all policies. With POLICY or options changes that\n"
            "while serving.",
            argc, argv, 0, 1, &n, &exit_code))
        return exit_code;
    char run[RUN_DIR_BYTES];
    if (!deployment_find_running(name, run, &exit_code))
        return exit_code;
    Moed__V1__PolicyRequest request = MOED__V1__POLICY_REQUEST__INIT;
    request.policy = n > 0 ? argv[1] : "";
    request.assigner = text_of(assign);
    request.cache = text_of(cache);
    request.predictor = text_of(predictor);
    request.budget = text_of(budget);
    request.prefetcher = text_of(prefetch);
    struct error e = {0};
    Moed__V1__Reply *memd = NULL, *worker = NULL;
    enum error_code code = call(run, "memd", &request, &memd, &e);
    if (!code)
        code = call_workers(run, &request, &worker, &e);
    if (code)
        cli_complain("policy: %s", e.text);
    else if (json)
        print_json(memd->policy, worker->policy);
    else
        print_state(memd->policy, worker->policy);
    if (!code && !json && n == 0 && !assign && !cache && !predictor && !budget && !prefetch)
        print_policies();
    if (memd)
        moed__v1__reply__free_unpacked(memd, NULL);
    if (worker)
        moed__v1__reply__free_unpacked(worker, NULL);
    return code ? CLI_FAILURE : CLI_OK;
}
