/* moed inspect FILE.predictors [MODEL]: what a file of trained predictors holds, and whether memd
 * uses it for a model. */
#include "client/cli/inspect.h"

#include "base/file_map.h"
#include "base/strbuf.h"
#include "client/cli/ask.h"
#include "client/cli/commands.h"
#include "client/cli/fold.h"
#include "client/cli/predictors_model.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

struct parts {
    uint32_t residual, mlp, llapor; /* layers */
    bool mtp;
};

static struct parts count_parts(const struct trained_predictors *l)
{
    struct parts p = {.mtp = l->header.mtp != 0};
    for (uint32_t i = 0; i < l->header.n_layers; i++) {
        p.residual += l->layers[i].residual != 0;
        p.mlp += l->layers[i].mlp.offset != 0;
        p.llapor += l->layers[i].llapor.offset != 0;
    }
    return p;
}

static void print_layers(const char *name, uint32_t n, const char *after)
{
    if (n)
        fold_printf("%-14s  %" PRIu32 " layer%s%s\n", name, n, n == 1 ? "" : "s", after);
    else
        fold_printf("%-14s  none\n", name);
}

/* fits: NULL: no model is given; empty: memd uses the file for it; else why not. */
static void print_text(const struct trained_predictors *l, const char *fits)
{
    const struct trained_header *h = &l->header;
    struct parts p = count_parts(l);
    char stride[48];
    snprintf(stride, sizeof stride, ", %" PRIu32 " layers ahead", h->stride);
    fold_printf("model           %s\n", h->model);
    fold_printf("layers          %" PRIu32 ", with experts from layer %" PRIu32 "; %" PRIu32
                " of %" PRIu32 " experts a token, width %" PRIu32 "\n",
                h->n_layers, h->first_layer, h->n_used, h->n_experts, h->d_model);
    fold_printf("trained on      %" PRIu64 " tokens\n", h->n_tokens);
    fold_printf("routers         %s%016" PRIx64 "\n", h->routers ? "" : "not known ", h->routers);
    print_layers("residual", p.residual, "");
    print_layers("mlp", p.mlp, stride);
    print_layers("llapor", p.llapor, "");
    fold_printf("mtp             %s\n", p.mtp ? "yes" : "none");
    fold_printf("size            ");
    inspect_print_bytes(h->bytes);
    fold_printf("%s\n", trained_is_intact(l) ? "" : "; damaged: the checksum does not match");
    if (fits)
        fold_printf("for this model  %s\n", fits[0] ? fits : "yes");
}

static bool print_json(const struct trained_predictors *l, const char *fits)
{
    const struct trained_header *h = &l->header;
    struct parts p = count_parts(l);
    struct strbuf b;
    strbuf_init(&b);
    strbuf_printf(&b, "{\"model\": ");
    strbuf_json_string(&b, h->model, strlen(h->model));
    strbuf_printf(&b,
                  ", \"layers\": %" PRIu32 ", \"first_layer\": %" PRIu32 ", \"experts\": %" PRIu32
                  ", \"used\": %" PRIu32 ", \"width\": %" PRIu32 ", \"tokens\": %" PRIu64
                  ", \"routers\": \"%016" PRIx64 "\", \"residual_layers\": %" PRIu32
                  ", \"mlp_layers\": %" PRIu32 ", \"stride\": %" PRIu32
                  ", \"llapor_layers\": %" PRIu32 ", \"mtp\": %s, \"bytes\": %" PRIu64
                  ", \"intact\": %s",
                  h->n_layers, h->first_layer, h->n_experts, h->n_used, h->d_model, h->n_tokens,
                  h->routers, p.residual, p.mlp, h->stride, p.llapor, p.mtp ? "true" : "false",
                  h->bytes, trained_is_intact(l) ? "true" : "false");
    if (fits)
        strbuf_printf(&b, ", \"fits\": %s", fits[0] ? "false" : "true");
    if (b.failed)
        cli_complain("no memory for the JSON object");
    else
        printf("%s}\n", b.data);
    bool ok = !b.failed;
    strbuf_fini(&b);
    return ok;
}

int inspect_predictors(const char *path, const char *model, bool json)
{
    struct file_map map = {0};
    struct trained_predictors l;
    struct predictors_model of = {0};
    struct error e;
    char why[TRAINED_WHY] = "", fits[TRAINED_WHY] = "";
    if (file_map_open(path, "a file of `moed train`", &map, &e)) {
        cli_complain("%s", e.text);
        return CLI_FAILURE;
    }
    bool ok = trained_view(map.data, map.bytes, &l, why);
    if (!ok)
        cli_complain("%s: %s", path, why);
    else if (model && (ok = predictors_model_open(model, &of)) &&
             trained_fits(&l, &of.model, fits) && !trained_is_intact(&l))
        snprintf(fits, sizeof fits, "no: it is damaged"); /* memd does not use it */
    if (ok && json)
        ok = print_json(&l, model ? fits : NULL);
    else if (ok)
        print_text(&l, model ? fits : NULL);
    predictors_model_close(&of);
    file_map_close(&map);
    return ok ? CLI_OK : CLI_FAILURE;
}
