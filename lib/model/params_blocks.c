/* Files with a block for each part of a layer; see params_internal.h. A layer is at most one block
 * of Mamba2, then at most one of attention, then one with experts. */
#include "params_internal.h"

#include <inttypes.h>

enum part { PART_MAMBA2, PART_ATTENTION, PART_EXPERTS };

static const char *const part_names[] = {
    [PART_MAMBA2] = "Mamba2", [PART_ATTENTION] = "attention", [PART_EXPERTS] = "experts"};

struct part_lists {
    struct params_list kv_heads, widths;
};

static enum part part_of(const struct part_lists *lists, uint32_t block)
{
    if (params_list_u32(lists->widths, block))
        return PART_EXPERTS;
    return params_list_u32(lists->kv_heads, block) ? PART_ATTENTION : PART_MAMBA2;
}

/* The parts of the layer under way. */
struct open_layer {
    bool mamba2, attends;
    struct layer_blocks blocks;
};

/* False: the part does not come next in a layer. */
static bool add_part(struct open_layer *l, enum part part, uint32_t block)
{
    switch (part) {
    case PART_MAMBA2:
        if (l->mamba2 || l->attends)
            return false;
        l->mamba2 = true;
        l->blocks.recurrent = block;
        return true;
    case PART_ATTENTION:
        if (l->attends)
            return false;
        l->attends = true;
        l->blocks.attention = block;
        return true;
    case PART_EXPERTS:
        l->blocks.feed_forward = block;
        return l->mamba2 || l->attends;
    }
    return false;
}

static struct layer_params close_layer(const struct open_layer *l)
{
    struct layer_params out = {.blocks = l->blocks};
    if (l->mamba2)
        out.kind = l->attends ? LAYER_MAMBA2_ATTENTION : LAYER_MAMBA2;
    if (!l->mamba2)
        out.blocks.recurrent = l->blocks.feed_forward;
    if (!l->attends)
        out.blocks.attention = l->blocks.feed_forward;
    return out;
}

static void refuse_order(struct key_reader *r, uint32_t block, enum part part)
{
    r->failed = error_set(r->e, ERROR_UNSUPPORTED,
                          "%s: block %" PRIu32 " (%s) does not continue a layer: moed runs layers "
                          "of a Mamba2 block, an attention block or both, then experts",
                          gguf_path(r->g, 0), block, part_names[part]);
}

void params_read_blocks(struct key_reader *r, struct model_params *p)
{
    if (r->failed || !p->arch->block_parts)
        return;
    const struct part_lists lists = {params_find_list(r, "attention.head_count_kv", p->n_blocks),
                                     params_find_list(r, "feed_forward_length", p->n_blocks)};
    if (!lists.kv_heads.kv || !lists.widths.kv) {
        r->failed = error_set(r->e, ERROR_FORMAT,
                              "%s: keys '%s.attention.head_count_kv' and "
                              "'%s.feed_forward_length': expected lists of the %" PRIu32 " blocks",
                              gguf_path(r->g, 0), r->arch, r->arch, p->n_blocks);
        return;
    }
    struct open_layer open = {0};
    enum part part = PART_EXPERTS;
    p->n_layers = 0;
    for (uint32_t i = 0; i < p->n_blocks; i++) {
        part = part_of(&lists, i);
        if (!add_part(&open, part, i)) {
            refuse_order(r, i, part);
            return;
        }
        if (part != PART_EXPERTS)
            continue;
        p->layers[p->n_layers++] = close_layer(&open);
        open = (struct open_layer){0};
    }
    if (part != PART_EXPERTS)
        refuse_order(r, p->n_blocks - 1, part);
}

void params_number_blocks(const struct key_reader *r, struct model_params *p)
{
    for (uint32_t i = 0; i < p->n_layers && !r->failed && !p->arch->block_parts; i++)
        p->layers[i].blocks = (struct layer_blocks){i, i, i};
}
