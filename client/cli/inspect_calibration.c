/* moed inspect --calibration: what workers measured on this machine, from a running deployment or
 * from a stored file. */
#include "client/cli/inspect.h"

#include "calibration/calibration.h"
#include "client/cli/ask.h"
#include "client/cli/commands.h"
#include "client/cli/deployment.h"
#include "client/cli/fold.h"
#include "client/cli/model_file.h"
#include "daemon/control.h"

#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define POLICY_TIMEOUT_MS 5000
#define SUFFIX            ".calibration"

/* The cost corrections since the calibration; only a running worker has them. */
struct corrections {
    double device, cpu, slowdown, link;
};

struct output {
    bool json;
    unsigned n; /* printed */
};

/* -- printing -- */

static void print_points(const struct calibration *c)
{
    fold_printf("\n%8s %14s %14s   ms a segment\n", "tokens", "device", "CPU");
    const struct calibration_side *d = &c->device_side, *u = &c->cpu_side;
    for (uint32_t i = 0, j = 0; i < d->n_points || j < u->n_points;) {
        uint32_t at = i < d->n_points ? d->points[i].tokens : UINT32_MAX;
        if (j < u->n_points && u->points[j].tokens < at)
            at = u->points[j].tokens;
        fold_printf("%8" PRIu32, at);
        if (i < d->n_points && d->points[i].tokens == at)
            fold_printf(" %14.4f", d->points[i++].seconds * 1e3);
        else
            fold_printf(" %14s", "-");
        if (j < u->n_points && u->points[j].tokens == at)
            fold_printf(" %14.4f\n", u->points[j++].seconds * 1e3);
        else
            fold_printf(" %14s\n", "-");
    }
}

static void print_line(const char *name, const struct calibration_side *side, double correction)
{
    struct calibration_line line = calibration_fit(side);
    fold_printf("%-9s %.4f ms + %.4f ms a token, off by %.1f %%", name, line.base_s * 1e3,
                line.token_s * 1e3, line.residual * 100);
    if (correction > 0)
        fold_printf("; layers since took %.2f times that", correction);
    fold_printf("\n");
}

static void print_link(const struct calibration *c, const struct corrections *now)
{
    if (c->link_segment_s > 0)
        fold_printf("link      %.4f ms a segment, %.2f GB/s; %.3f ms until a load begins",
                    c->link_segment_s * 1e3, (double)c->segment_bytes * 1e-9 / c->link_segment_s,
                    c->link_latency_s * 1e3);
    else
        fold_printf(
            "link      not measured: everything was on the device; the device's own figures are "
            "used");
    if (now)
        fold_printf("; loads since took %.2f times that", now->link);
    fold_printf("\n");
    if (c->cpu_slowdown > 0) {
        fold_printf(
            "together  the CPU takes %.2f times as long while the device computes, and again "
            "%.2f times while the link copies too, the link %.2f times",
            c->cpu_overlap, c->cpu_slowdown, c->link_slowdown);
        if (now)
            fold_printf("; layers since: the CPU %.2f times that", now->slowdown);
        fold_printf("\n");
    }
}

static void print_text(const struct calibration *c, const struct corrections *now)
{
    char when[32] = "?";
    time_t at = (time_t)c->measured_at;
    struct tm local;
    if (localtime_r(&at, &local))
        strftime(when, sizeof when, "%Y-%m-%d %H:%M", &local);
    fold_printf("model     %s: %s\ndevice    %s\nmachine   %s\nmeasured  %s\n", c->model, c->shapes,
                c->device, c->machine, when);
    print_points(c);
    fold_printf("\n");
    print_line("device", &c->device_side, now ? now->device : 0);
    print_line("CPU", &c->cpu_side, now ? now->cpu : 0);
    fold_printf(
        "calls     %.3f ms more for each on the device, %.3f ms on the CPU and %.3f ms to it "
        "and back\n",
        c->device_call_s * 1e3, c->cpu_call_s * 1e3, c->job_overhead_s * 1e3);
    print_link(c, now);
}

static void json_text(struct strbuf *b, const char *key, const char *value)
{
    strbuf_printf(b, "\"%s\": ", key);
    strbuf_json_string(b, value, strlen(value));
    strbuf_printf(b, ", ");
}

static void json_side(struct strbuf *b, const char *key, const struct calibration_side *side)
{
    struct calibration_line line = calibration_fit(side);
    strbuf_printf(b, "\"%s\": {\"points\": [", key);
    for (uint32_t i = 0; i < side->n_points; i++)
        strbuf_printf(b, "%s[%" PRIu32 ", %.9g]", i ? ", " : "", side->points[i].tokens,
                      side->points[i].seconds);
    strbuf_printf(b, "], \"base_s\": %.9g, \"token_s\": %.9g, \"residual\": %.5f}, ", line.base_s,
                  line.token_s, line.residual);
}

static void print_json(const struct calibration *c, const struct corrections *now)
{
    struct strbuf b;
    strbuf_init(&b);
    strbuf_printf(&b, "{");
    json_text(&b, "model", c->model);
    json_text(&b, "shapes", c->shapes);
    json_text(&b, "device", c->device);
    json_text(&b, "machine", c->machine);
    strbuf_printf(&b, "\"measured_at\": %" PRId64 ", \"segment_bytes\": %" PRIu64 ", ",
                  c->measured_at, c->segment_bytes);
    json_side(&b, "device_segment", &c->device_side);
    json_side(&b, "cpu_segment", &c->cpu_side);
    if (c->link_segment_s > 0)
        strbuf_printf(&b, "\"link_segment_s\": %.9g, \"link_latency_s\": %.9g, ", c->link_segment_s,
                      c->link_latency_s);
    if (c->cpu_slowdown > 0)
        strbuf_printf(&b,
                      "\"cpu_beside_device\": %.4f, \"cpu_slowdown\": %.4f, "
                      "\"link_slowdown\": %.4f, ",
                      c->cpu_overlap, c->cpu_slowdown, c->link_slowdown);
    strbuf_printf(&b, "\"device_call_s\": %.9g, \"cpu_call_s\": %.9g, ", c->device_call_s,
                  c->cpu_call_s);
    if (now)
        strbuf_printf(&b,
                      "\"corrections\": {\"device\": %.4f, \"cpu\": %.4f, \"cpu_slowdown\": "
                      "%.4f, \"link\": %.4f}, ",
                      now->device, now->cpu, now->slowdown, now->link);
    strbuf_printf(&b, "\"job_overhead_s\": %.9g}", c->job_overhead_s);
    printf("%s", b.failed ? "null" : b.data);
    strbuf_fini(&b);
}

static void print_one(struct output *out, const struct calibration *c,
                      const struct corrections *now)
{
    if (out->json) {
        printf("%s", out->n ? ",\n " : "");
        print_json(c, now);
    } else {
        printf("%s", out->n ? "\n" : "");
        print_text(c, now);
    }
    out->n++;
}

/* -- finding -- */

static int of_deployment(struct output *out, const char *run)
{
    struct error e = {0};
    Moed__V1__PolicyRequest policy = MOED__V1__POLICY_REQUEST__INIT;
    Moed__V1__Request request = MOED__V1__REQUEST__INIT;
    Moed__V1__Reply *reply;
    request.body_case = MOED__V1__REQUEST__BODY_POLICY;
    request.policy = &policy;
    const char *names[SUPERVISE_WORKERS];
    unsigned n = deployment_workers(run, names); /* they have one calibration */
    enum error_code code =
        control_call(run, n ? names[0] : "worker", &request, MOED__V1__REPLY__BODY_POLICY,
                     POLICY_TIMEOUT_MS, &reply, &e);
    if (code) {
        cli_complain("inspect: %s", e.text);
        return CLI_FAILURE;
    }
    const Moed__V1__PolicyReply *p = reply->policy;
    struct corrections now = {p->device_correction, p->cpu_correction, p->slowdown_correction,
                              p->link_correction};
    struct calibration c;
    if (!p->has_cache)
        code = error_set(&e, ERROR_UNSUPPORTED,
                         "device %s has no memory of its own: nothing is calibrated", p->device);
    else
        code = calibration_parse(p->calibration, &c, &e);
    if (code)
        cli_complain("inspect: %s", e.text);
    else
        print_one(out, &c, &now);
    moed__v1__reply__free_unpacked(reply, NULL);
    return code ? CLI_FAILURE : CLI_OK;
}

/* model: NULL, or the name that they must be of. */
static void of_folder(struct output *out, const char *folder, const char *model)
{
    struct dirent **entries;
    int n = scandir(folder, &entries, NULL, alphasort);
    for (int i = 0; i < n; i++) {
        char path[PATH_MAX];
        struct calibration c;
        const char *name = entries[i]->d_name;
        size_t len = strlen(name), end = strlen(SUFFIX);
        int wrote = snprintf(path, sizeof path, "%s/%s", folder, name);
        if (len > end && strcmp(name + len - end, SUFFIX) == 0 && wrote > 0 &&
            (size_t)wrote < sizeof path && calibration_load_file(path, &c, NULL) == ERROR_OK &&
            (!model || strcmp(model, c.model) == 0))
            print_one(out, &c, NULL);
        free(entries[i]);
    }
    if (n >= 0)
        free(entries);
}

static enum error_code model_name(const char *argument, char out[96], struct error *e)
{
    char path[PATH_MAX];
    struct gguf *g;
    struct model_params params;
    if (!model_file_find(argument, path))
        return error_set(e, ERROR_NOT_FOUND, "%s: neither a running deployment nor a model",
                         argument);
    enum error_code code = gguf_open(path, &g, e);
    if (code)
        return code;
    code = model_params_read(g, &params, e);
    if (!code)
        snprintf(out, 96, "%.95s", params.name);
    gguf_close(g);
    return code;
}

static int of_stored(struct output *out, const char *argument)
{
    char folder[PATH_MAX], model[96];
    struct error e = {0};
    if (argument && model_name(argument, model, &e)) {
        cli_complain("inspect: %s", e.text);
        return CLI_FAILURE;
    }
    if (!calibration_folder(folder)) {
        cli_complain("inspect: neither XDG_CACHE_HOME nor HOME is set: no calibrations");
        return CLI_FAILURE;
    }
    of_folder(out, folder, argument ? model : NULL);
    if (out->n)
        return CLI_OK;
    cli_complain("inspect: no calibration%s%s in %s; a deployment with a device that has memory of "
                 "its own makes one",
                 argument ? " of " : "", argument ? model : "", folder);
    return CLI_FAILURE;
}

/* A file goes before a deployment of the same name. */
static bool runs(const char *argument, char run[RUN_DIR_BYTES])
{
    if (argument && (strchr(argument, '/') || strstr(argument, ".gguf")))
        return false;
    return run_dir_path(argument, run, NULL) == ERROR_OK && deployment_has_processes(run);
}

int inspect_calibration(const char *argument, bool json)
{
    struct output out = {.json = json};
    char run[RUN_DIR_BYTES];
    if (json)
        printf("[");
    int result = runs(argument, run) ? of_deployment(&out, run) : of_stored(&out, argument);
    if (json)
        printf("]\n");
    return result;
}
