/* moed models: lists the models that a deployment with --models serves on demand, loads one, or
 * unloads one. */
#include "client/cli/models.h"

#include "client/cli/ask.h"
#include "client/cli/commands.h"
#include "client/cli/deployment.h"
#include "client/cli/folder_models.h"
#include "base/quantity.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { POLL_MS = 250 };

/* ---- The deployment that has them ---- */

struct search {
    char run[RUN_DIR_BYTES];
    unsigned count;
};

static void visit(void *arg, const char *name, const char *run)
{
    struct search *s = arg;
    if (!run_dir_holder(run, "models"))
        return;
    s->count++;
    snprintf(s->run, sizeof s->run, "%s", run);
}

static bool find_run(const char *name, char run[RUN_DIR_BYTES], int *exit_code)
{
    struct search s = {.count = 0};
    *exit_code = CLI_NOT_RUNNING;
    if (!name && !getenv("MOED_RUN") && run_dir_list(visit, &s, NULL) == ERROR_OK && s.count == 1) {
        memcpy(run, s.run, sizeof s.run);
        return true;
    }
    if (s.count > 1) {
        cli_complain("models: several deployments serve folders: choose one with --name");
        *exit_code = CLI_USAGE;
        return false;
    }
    if (!deployment_path(name, run)) {
        *exit_code = CLI_USAGE;
        return false;
    }
    if (run_dir_holder(run, "models"))
        return true;
    cli_complain("models: no deployment serves a folder: start one with moed serve --models DIR");
    return false;
}

/* ---- The list ---- */

static const char *state_name(const Moed__V1__ModelEntry *x)
{
    switch (x->state) {
    case MOED__V1__MODEL_ENTRY__STATE__OFF:
        return *x->reason ? "waiting" : "off";
    case MOED__V1__MODEL_ENTRY__STATE__STARTING:
        return "loading";
    case MOED__V1__MODEL_ENTRY__STATE__UP:
        return x->busy ? "busy" : "up";
    case MOED__V1__MODEL_ENTRY__STATE__STOPPING:
        return "unloading";
    default:
        return "failed";
    }
}

static void print_expiry(const Moed__V1__ModelEntry *x)
{
    bool up = x->state == MOED__V1__MODEL_ENTRY__STATE__UP;
    if (up && x->own && x->expires_s >= 0)
        printf("%6.0f s", x->expires_s);
    else
        printf("%8s", !up ? "-" : x->own ? "never" : "manual");
}

static void print_table(const Moed__V1__ModelsReply *r)
{
    char bytes[24];
    printf("%-40s %9s %-9s %8s\n", "MODEL", "SIZE", "STATE", "UNLOADS");
    for (size_t i = 0; i < r->n_models; i++) {
        const Moed__V1__ModelEntry *x = r->models[i];
        quantity_format_bytes(x->file_bytes, bytes);
        printf("%-40s %9s %-9s ", x->id, x->file_bytes ? bytes : "-", state_name(x));
        print_expiry(x);
        printf("\n");
        if (*x->reason)
            printf("    %s\n", x->reason);
    }
    if (r->n_left_out)
        printf("\nleft out:\n");
    for (size_t i = 0; i < r->n_left_out; i++)
        printf("%s\n    %s\n", r->left_out[i]->file, r->left_out[i]->reason);
}

static void add_text(struct strbuf *b, const char *name, const char *text)
{
    strbuf_printf(b, "\"%s\": ", name);
    strbuf_json_string(b, text, strlen(text));
    strbuf_printf(b, ", ");
}

static bool print_json(const Moed__V1__ModelsReply *r)
{
    struct strbuf b;
    strbuf_init(&b);
    strbuf_printf(&b, "{\"models\": [");
    for (size_t i = 0; i < r->n_models; i++) {
        const Moed__V1__ModelEntry *x = r->models[i];
        strbuf_printf(&b, "%s{", i ? ", " : "");
        add_text(&b, "id", x->id);
        add_text(&b, "deployment", x->deployment);
        add_text(&b, "state", state_name(x));
        add_text(&b, "reason", x->reason);
        add_text(&b, "architecture", x->architecture);
        add_text(&b, "name", x->name);
        strbuf_printf(&b, "\"bytes\": %llu, \"own\": %s, \"expires_s\": ",
                      (unsigned long long)x->file_bytes, x->own ? "true" : "false");
        if (x->expires_s < 0)
            strbuf_printf(&b, "null}");
        else
            strbuf_printf(&b, "%.1f}", x->expires_s);
    }
    strbuf_printf(&b, "], \"left_out\": [");
    for (size_t i = 0; i < r->n_left_out; i++) {
        strbuf_printf(&b, "%s{", i ? ", " : "");
        add_text(&b, "file", r->left_out[i]->file);
        strbuf_printf(&b, "\"reason\": ");
        strbuf_json_string(&b, r->left_out[i]->reason, strlen(r->left_out[i]->reason));
        strbuf_printf(&b, "}");
    }
    strbuf_printf(&b, "]}\n");
    bool printed = !b.failed && ask_print(b.data, b.len);
    strbuf_fini(&b);
    return printed;
}

static int list(const char *run, bool json)
{
    struct error e = {0};
    Moed__V1__Reply *reply;
    if (folder_models_call(run, MOED__V1__MODELS_REQUEST__ACTION__LIST, NULL, &reply, &e)) {
        cli_complain("models: %s", e.text);
        return CLI_FAILURE;
    }
    bool printed = true;
    if (json)
        printed = print_json(reply->models);
    else
        print_table(reply->models);
    printed = ask_flush() && printed;
    if (*reply->models->nothing)
        cli_complain("models: %s", reply->models->nothing);
    moed__v1__reply__free_unpacked(reply, NULL);
    return printed ? CLI_OK : CLI_FAILURE;
}

void models_complain_empty(const char *run, const char *verb)
{
    Moed__V1__Reply *reply;
    struct error e;
    if (folder_models_call(run, MOED__V1__MODELS_REQUEST__ACTION__LIST, NULL, &reply, &e))
        return;
    if (*reply->models->nothing)
        cli_complain("%s: %s", verb, reply->models->nothing);
    moed__v1__reply__free_unpacked(reply, NULL);
}

/* ---- Loading and unloading ---- */

/* Repeats the request until the model is as it should be, or cannot be. */
static int move(const char *run, Moed__V1__ModelsRequest__Action action, const char *model)
{
    bool loads = action == MOED__V1__MODELS_REQUEST__ACTION__WANT;
    for (;; poll(NULL, 0, POLL_MS)) {
        struct error e = {0};
        Moed__V1__Reply *reply;
        if (folder_models_call(run, action, model, &reply, &e) || reply->models->n_models != 1) {
            cli_complain("models: %s", *e.text ? e.text : "an empty reply");
            return CLI_FAILURE;
        }
        const Moed__V1__ModelEntry *x = reply->models->models[0];
        bool failed = x->state == MOED__V1__MODEL_ENTRY__STATE__FAILED;
        bool up = x->state == MOED__V1__MODEL_ENTRY__STATE__UP;
        bool off = x->state == MOED__V1__MODEL_ENTRY__STATE__OFF || failed;
        if (loads && failed)
            cli_complain("models: %s does not start: %s", x->id, x->reason);
        else if (loads && up)
            printf("%s is loaded, as deployment %s\n", x->id, x->deployment);
        else if (!loads && off)
            printf("%s is unloaded\n", x->id);
        moed__v1__reply__free_unpacked(reply, NULL);
        if (loads && failed)
            return CLI_FAILURE;
        if (loads ? up : off)
            return CLI_OK;
    }
}

int models_main(int argc, char **argv)
{
    const char *name = NULL, *load = NULL, *unload = NULL;
    bool json = false;
    const struct option_spec table[] = {
        {"name", OPTION_STRING, &name, 0, 0, "NAME",
         "select the deployment that serves the folder"},
        {"load", OPTION_STRING, &load, 0, 0, "MODEL", "load a model, as a request for it would"},
        {"unload", OPTION_STRING, &unload, 0, 0, "MODEL", "unload a model that is not in use, now"},
        {"json", OPTION_BOOL, &json, 0, 0, NULL, "print one JSON object"},
        {0},
    };
    int n, exit_code;
    if (!ask_arguments(
            table, "models", "[OPTION]...",
            "Lists the models of the folder that moed serve --models DIR serves: each is\n"
            "loaded when a request names it, and unloaded when nobody has used it for a\n"
            "time.",
            argc, argv, 0, 0, &n, &exit_code))
        return exit_code;
    char run[RUN_DIR_BYTES];
    if (!find_run(name, run, &exit_code))
        return exit_code;
    if (load)
        return move(run, MOED__V1__MODELS_REQUEST__ACTION__WANT, load);
    if (unload)
        return move(run, MOED__V1__MODELS_REQUEST__ACTION__DROP, unload);
    return list(run, json);
}
