/* Linked lists of experts; see slab_lists.h. */
#include "sched/cache/slab_lists.h"

#include "base/arrays.h"

#include <stdlib.h>
#include <string.h>

bool slab_lists_init(struct slab_lists *l, uint32_t n_slabs)
{
    size_t links = (size_t)n_slabs + SLAB_LISTS_MAX;
    *l = (struct slab_lists){.n_slabs = n_slabs};
    if (!ARRAYS_NEW(ARRAY(l->next, links), ARRAY(l->previous, links), ARRAY(l->list, links)))
        return false;
    memset(l->list, SLAB_LIST_NONE, links);
    for (uint32_t end = n_slabs; end < links; end++)
        l->next[end] = l->previous[end] = end;
    return true;
}

void slab_lists_fini(struct slab_lists *l)
{
    free(l->next); /* the first array: all of them */
}

static void take_out(struct slab_lists *l, uint32_t slab)
{
    if (l->list[slab] == SLAB_LIST_NONE)
        return;
    l->next[l->previous[slab]] = l->next[slab];
    l->previous[l->next[slab]] = l->previous[slab];
    l->sizes[l->list[slab]]--;
}

void slab_lists_move(struct slab_lists *l, uint32_t slab, uint8_t list)
{
    take_out(l, slab);
    l->list[slab] = list;
    if (list == SLAB_LIST_NONE)
        return;
    uint32_t end = l->n_slabs + list;
    l->next[slab] = l->next[end];
    l->previous[slab] = end;
    l->previous[l->next[slab]] = slab;
    l->next[end] = slab;
    l->sizes[list]++;
}
