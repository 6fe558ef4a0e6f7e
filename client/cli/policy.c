/* moed policy: shows, or changes while serving, which experts are cached (memd) and where they are computed (the
 * worker). */
#include "client/cli/ask.h"
#include "client/cli/commands.h"
#include "client/cli/deployment.h"
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

static void print_ahead(const Moed__V1__PolicyReply *worker)
{
    if (!worker->ahead_tried)
        return;
    double percent = 100 * worker->ahead_saves;
    if (worker->ahead)
        printf("          in use: copies ahead save %.0f %% of a step, as tried here\n", percent > 0 ? percent : 0);
    else
        printf("          not in use: with copies ahead a step takes %.0f %% longer, as tried here\n", -percent);
}

static void print_predictor(const char *name, const Moed__V1__PolicyReply *worker)
{
    uint64_t guesses = sum(worker->predictions, worker->n_predictions);
    printf("predictor %s", name);
    if (guesses)
        printf(": %.1f %% of %" PRIu64 " predicted experts were right",
               share(sum(worker->predictions_right, worker->n_predictions_right), guesses),
               guesses);
    printf("\n");
    if (worker->predict_shown || worker->predict_dropped)
        printf("          beside inference: %" PRIu64 " layers shown, %" PRIu64
               " not (busy); %" PRIu64 " answers ahead, %" PRIu64 " late\n",
               worker->predict_shown, worker->predict_dropped, worker->predict_ahead,
               worker->predict_late);
    print_ahead(worker);
}

static void print_layers(const Moed__V1__PolicyReply *worker)
{
    double n = (double)worker->layers * 1e6; /* ms */
    if (!worker->layers || !worker->layer_ns)
        return;
    printf(
        "layers    %.3f ms each, predicted %.3f ms, off by %.0f %%; %.3f ms of it the plan; device "
        "busy %.0f %% of it, CPU %.0f %%\n",
        (double)worker->layer_ns / n, (double)worker->layer_predicted_ns / n,
        share(worker->layer_wrong_ns, worker->layer_ns), (double)worker->plan_ns / n,
        share(worker->device_busy_ns, worker->layer_ns),
        share(worker->cpu_busy_ns, worker->layer_ns));
}

/* How much of the experts is in host memory, and what the rest costs. */
static void print_tier(const Moed__V1__PolicyReply *memd, const Moed__V1__PolicyReply *worker)
{
    uint64_t activated = worker->experts_in_memory + worker->experts_on_disk;
    if (!memd->has_tier)
        return;
    printf("memory    %.1f %% of %" PRIu64 " experts: %" PRIu64 " in %" PRIu64 " slots of %.2f MB",
           share(memd->tier_resident, memd->tier_experts), memd->tier_experts, memd->tier_resident,
           memd->tier_slots, (double)memd->tier_slot_bytes * 1e-6);
    if (activated)
        printf("; %.1f %% of those activated were there",
               share(worker->experts_in_memory, activated));
    printf("\ndisk      %.2f GB read", (double)memd->disk_read_bytes * 1e-9);
    if (memd->disk_busy_ns)
        printf(", busy %.1f %% of the time, %.2f GB/s while busy",
               share(memd->disk_busy_ns, memd->tier_since_ns),
               (double)memd->disk_read_bytes / (double)memd->disk_busy_ns);
    if (worker->decode_ns)
        printf("; %.1f %% of decode time waited for it",
               share(worker->disk_wait_decode_ns, worker->decode_ns));
    printf("\n");
}

static void print_state(const Moed__V1__PolicyReply *memd, const Moed__V1__PolicyReply *worker)
{
    uint64_t segments = worker->segments_resident + worker->segments_loaded + worker->segments_cpu;
    printf("device    %s\nassigner  %s\n", memd->device, worker->part);
    print_tier(memd, worker);
    if (memd->has_cache || memd->has_tier)
        print_predictor(memd->predictor, worker);
    if (!memd->has_cache) {
        printf("cache     none: the device has no memory of its own\n");
        return;
    }
    printf("cache     %s, budget %s, prefetcher %s, %.1f MB in %" PRIu64
           " segments of %.2f MB: %" PRIu64 " resident, %" PRIu64 " free\n",
           memd->part, memd->budget, memd->prefetcher,
           (double)(memd->slots * memd->slot_bytes) * 1e-6, memd->slots,
           (double)memd->slot_bytes * 1e-6, memd->resident, memd->free);
    if (segments || memd->link_busy_ns)
        printf("          since it was chosen, %.0f s ago:\n", (double)memd->since_ns * 1e-9);
    if (segments)
        printf("computed  %.1f %% resident, %.1f %% loaded, %.1f %% on the CPU, of %" PRIu64
               " segments\n",
               share(worker->segments_resident, segments), share(worker->segments_loaded, segments),
               share(worker->segments_cpu, segments), segments);
    print_layers(worker);
    if (memd->link_busy_ns)
        printf("link      %.2f GB copied, busy %.1f %% of the time, %.2f GB/s while busy\n",
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

/* The two rows of numbers are of the layers, in order. */
static void print_predictor_json(const Moed__V1__PolicyReply *memd,
                                 const Moed__V1__PolicyReply *worker)
{
    printf(", \"predictor\": \"%s\", \"budget\": \"%s\", \"prefetcher\": \"%s\"", memd->predictor,
           memd->budget, memd->prefetcher);
    if (!worker->n_predictions)
        return;
    print_numbers("predictions", worker->predictions, worker->n_predictions);
    print_numbers("predictions_right", worker->predictions_right, worker->n_predictions_right);
    printf(", \"predict_shown\": %" PRIu64 ", \"predict_dropped\": %" PRIu64
           ", \"predict_ahead\": %" PRIu64 ", \"predict_late\": %" PRIu64,
           worker->predict_shown, worker->predict_dropped, worker->predict_ahead,
           worker->predict_late);
    if (worker->ahead_tried)
        printf(", \"ahead\": %s, \"ahead_saves\": %.4f", worker->ahead ? "true" : "false", worker->ahead_saves);
}

static void print_json(const Moed__V1__PolicyReply *memd, const Moed__V1__PolicyReply *worker)
{
    printf("{\"device\": \"%s\", \"assigner\": \"%s\"", memd->device, worker->part);
    if (memd->has_cache)
        printf(", \"cache\": \"%s\", \"slot_bytes\": %" PRIu64 ", \"slots\": %" PRIu64
               ", \"free\": %" PRIu64 ", \"resident\": %" PRIu64 ", \"filling\": %" PRIu64
               ", \"retired\": %" PRIu64 ", \"since_s\": %.3f, \"link_bytes\": %" PRIu64 ", \"link_busy_s\": %.6f"
               ", \"segments_resident\": %" PRIu64 ", \"segments_loaded\": %" PRIu64
               ", \"segments_cpu\": %" PRIu64,
               memd->part, memd->slot_bytes, memd->slots, memd->free, memd->resident, memd->filling,
               memd->retired, (double)memd->since_ns * 1e-9, memd->link_bytes, (double)memd->link_busy_ns * 1e-9,
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
    printf("\npolicies\n");
    const struct sched_policy *p;
    for (uint32_t i = 0; (p = sched_policy_at(i)); i++)
        printf("  %-18s %s (--assign %s --cache %s --budget %s --predictor %s --prefetch %s)\n",
               p->name, p->what, sched_assigner_name(p->assigner), sched_cache_name(p->cache),
               sched_budget_name(p->budget), sched_predictor_name(p->predictor),
               sched_prefetcher_name(p->prefetcher));
    const char *name;
    printf("\nassigners\n");
    for (int i = 0; (name = sched_assigner_name((enum sched_assigner)i)); i++)
        if (i != ASSIGN_OPTIMAL)
            printf("  %-18s %s\n", name, sched_assigner_what((enum sched_assigner)i));
    printf("\ncaches\n");
    for (int i = 0; (name = sched_cache_name((enum sched_cache_kind)i)); i++)
        if (!sched_cache_replay_only((enum sched_cache_kind)i))
            printf("  %-18s %s\n", name, sched_cache_what((enum sched_cache_kind)i));
    printf("\npredictors\n");
    for (int i = 0; (name = sched_predictor_name((enum sched_predictor)i)); i++)
        printf("  %-18s %s\n", name, sched_predictor_what((enum sched_predictor)i));
    printf("\nbudgets\n");
    for (int i = 0; (name = sched_budget_name((enum sched_budget)i)); i++)
        printf("  %-18s %s\n", name, sched_budget_what((enum sched_budget)i));
    printf("\nprefetchers\n");
    for (int i = 0; (name = sched_prefetcher_name((enum sched_prefetcher)i)); i++)
        printf("  %-18s %s\n", name, sched_prefetcher_what((enum sched_prefetcher)i));
}

int policy_main(int argc, char **argv)
{
    const char *name = NULL, *assign = "", *cache = "", *predictor = "", *budget = "",
               *prefetch = "";
    bool json = false;
    const struct option_spec table[] = {
        {"name", OPTION_STRING, &name, 0, 0, "N", "the deployment"},
        {"assign", OPTION_STRING, &assign, 0, 0, "A", sched_assigner_help()},
        {"cache", OPTION_STRING, &cache, 0, 0, "C", sched_cache_help()},
        {"predictor", OPTION_STRING, &predictor, 0, 0, "P", sched_predictor_help()},
        {"budget", OPTION_STRING, &budget, 0, 0, "B", sched_budget_help()},
        {"prefetch", OPTION_STRING, &prefetch, 0, 0, "P", sched_prefetcher_help()},
        {"json", OPTION_BOOL, &json, 0, 0, NULL, "print one JSON object"},
        {0},
    };
    int n, exit_code;
    if (!deployment_arguments(
            table, "policy", "[POLICY] [OPTION]...",
            "Changes, while serving, which experts are cached on the device and where they are "
            "computed.\nWithout POLICY shows what there is.",
            argc, argv, 0, 1, &n, &exit_code))
        return exit_code;
    char run[RUN_DIR_BYTES];
    if (!deployment_path(name, run))
        return CLI_USAGE;
    if (!deployment_has_processes(run))
        return deployment_not_running(name);
    Moed__V1__PolicyRequest request = MOED__V1__POLICY_REQUEST__INIT;
    request.policy = n > 0 ? argv[1] : "";
    request.assigner = (char *)assign;
    request.cache = (char *)cache;
    request.predictor = (char *)predictor;
    request.budget = (char *)budget;
    request.prefetcher = (char *)prefetch;
    struct error e = {0};
    Moed__V1__Reply *memd = NULL, *worker = NULL;
    enum error_code code = call(run, "memd", &request, &memd, &e);
    if (!code)
        code = call(run, "worker", &request, &worker, &e);
    if (code)
        ask_complain("policy: %s", e.text);
    else if (json)
        print_json(memd->policy, worker->policy);
    else
        print_state(memd->policy, worker->policy);
    if (!code && !json && n == 0 && !assign[0] && !cache[0] && !predictor[0] && !budget[0] &&
        !prefetch[0])
        print_policies();
    if (memd)
        moed__v1__reply__free_unpacked(memd, NULL);
    if (worker)
        moed__v1__reply__free_unpacked(worker, NULL);
    return code ? CLI_FAILURE : CLI_OK;
}
