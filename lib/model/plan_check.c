/* Refuses a file with tensors that the plan does not use and that would change the answers; see
 * planner.h. */
#include "model/planner.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The part of a tensor's name after "blk.N."; NULL for a tensor of no layer. */
static const char *layer_part(const char *name, uint64_t *layer)
{
    if (strncmp(name, "blk.", 4) != 0 || !isdigit((unsigned char)name[4]))
        return NULL;
    char *end;
    *layer = strtoull(name + 4, &end, 10);
    return *end == '.' ? end + 1 : NULL;
}

/* Blocks that predict further tokens stand after the trunk. */
static bool after_trunk(const struct planner *p, uint64_t block)
{
    return block >= p->params->n_blocks && block - p->params->n_blocks < p->params->n_further;
}

static bool ends_in(const char *name, const char *end)
{
    size_t n = strlen(name), len = strlen(end);
    return n >= len && strcmp(name + n - len, end) == 0;
}

/* Files of NVFP4 have for a matrix "NAME.weight", or for each expert's, the scale of 4-bit inputs
 * NAME.input_scale. moed does not compute with 4-bit inputs. */
static bool is_input_scale(const struct planner *p, const char *name)
{
    static const char end[] = ".input_scale";
    char weight[GGUF_NAME_BYTES + sizeof ".weight"];
    if (!ends_in(name, end))
        return false;
    snprintf(weight, sizeof weight, "%.*s.weight", (int)(strlen(name) - strlen(end)), name);
    const struct gguf_tensor *t = gguf_tensor_find(p->g, weight);
    return t && t->type == TENSOR_NVFP4;
}

static bool changes_nothing(const struct planner *p, const char *name)
{
    uint64_t layer;
    const char *part = layer_part(name, &layer);
    if (is_input_scale(p, name))
        return true;
    if (!part)
        return false;
    if (after_trunk(p, layer))
        return true;
    if (strncmp(part, "attn_rot_embd", 13) ==
        0) /* early files: the frequencies of rope.freq_base */
        return true;
    /* A context that is no longer than what the indexer chooses does not show it. */
    if (p->params->arch->indexer && strncmp(part, "indexer.", 8) == 0)
        return true;
    /* Some files have it in addition to its two parts; the plan uses the parts
     * (plan_latent_expansion). */
    return p->params->arch->attention == ATTENTION_LATENT &&
           strcmp(part, "attn_kv_b.weight") == 0 && layer < p->params->n_layers;
}

void plan_check_unused(struct planner *p)
{
    for (uint64_t i = 0; i < gguf_tensor_count(p->g) && !p->failed; i++) {
        const struct gguf_tensor *t = gguf_tensor_at(p->g, i);
        if (p->used[i] || changes_nothing(p, t->name))
            continue;
        p->failed =
            error_set(p->e, ERROR_UNSUPPORTED,
                      "%s: tensor '%s' is no part of architecture %s as moed computes it: the "
                      "answers would not be the model's",
                      gguf_path(p->g, t->file), t->name, p->params->arch->name);
    }
}
