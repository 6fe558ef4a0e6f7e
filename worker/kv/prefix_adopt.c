/* A prefix cache of what an earlier worker left in the pool; see prefix_cache_internal.h. */
#include "prefix_cache_internal.h"

#include "base/arrays.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static bool is_record_sane(const struct prefix_cache *c, uint32_t page, uint32_t vocab)
{
    const struct kv_page_record *r = prefix_record(c, page);
    uint32_t n = prefix_valid(c, page);
    bool sane = n >= 1 && n <= KV_POOL_TOKENS && r->kind <= KV_LARGE_GROUP &&
                r->depth < c->pool.n_pages && (r->depth == 0) == (r->parent == NO_PAGE) &&
                (r->parent == NO_PAGE || r->parent < c->pool.n_pages) &&
                (r->kind == KV_DEFINED || n == KV_POOL_TOKENS) &&
                (r->kind == KV_DEFINED || !c->exact) && r->group <= c->n_windowed;
    for (uint32_t i = 0; sane && i < n; i++)
        sane = r->tokens[i] < vocab;
    return sane;
}

/* Whether the parent of a sane record has been adopted, and is what the record continues. */
static bool has_parent(const struct prefix_cache *c, uint32_t page)
{
    const struct kv_page_record *r = prefix_record(c, page);
    if (r->parent == NO_PAGE)
        return r->parent_serial == 0;
    const struct kv_page_record *parent = prefix_record(c, r->parent);
    return c->nodes[r->parent].owned && atomic_load(&parent->serial) == r->parent_serial &&
           parent->depth + 1 == r->depth && prefix_valid(c, r->parent) == KV_POOL_TOKENS;
}

/* Drops records that are not sane. Returns the largest depth. */
static uint32_t check_records(struct prefix_cache *c, uint32_t vocab)
{
    uint32_t deepest = 0;
    for (uint32_t page = 0; page < c->pool.n_pages; page++) {
        struct kv_page_record *r = prefix_record(c, page);
        uint64_t serial = atomic_load(&r->serial);
        if (serial && !is_record_sane(c, page, vocab))
            atomic_store(&r->serial, 0);
        else if (serial && r->depth > deepest)
            deepest = r->depth;
        c->last_serial = serial > c->last_serial ? serial : c->last_serial;
    }
    return deepest;
}

/* Links the pages whose ancestors are all there, in order of depth; `owned` marks those. */
static void adopt_tree(struct prefix_cache *c, uint32_t deepest)
{
    for (uint32_t depth = 0; depth <= deepest; depth++)
        for (uint32_t page = 0; page < c->pool.n_pages; page++) {
            struct kv_page_record *r = prefix_record(c, page);
            if (!atomic_load(&r->serial) || r->group || r->depth != depth || !has_parent(c, page))
                continue;
            c->nodes[page].owned = true;
            prefix_link(c, page, r->parent);
            c->nodes[page].value = r->cost_ns;
            c->stats.adopted++;
        }
}

/* Whether a windowed page has the positions of `page`. */
static bool is_of(const struct prefix_cache *c, uint32_t windowed, uint32_t page)
{
    const struct kv_page_record *w = prefix_record(c, windowed), *r = prefix_record(c, page);
    uint32_t n = prefix_valid(c, page);
    return w->kind == r->kind && prefix_valid(c, windowed) >= n &&
           memcmp(w->tokens, r->tokens, n * sizeof *r->tokens) == 0 &&
           prefix_windowed(c, page)[w->group - 1] == NO_PAGE;
}

/* The adopted page whose positions a windowed page has. NO_PAGE: none. */
static uint32_t owner_of(const struct prefix_cache *c, uint32_t windowed)
{
    const struct kv_page_record *w = prefix_record(c, windowed);
    if (!has_parent(c, windowed))
        return NO_PAGE;
    uint32_t page = prefix_first_child(c, w->parent);
    while (page != NO_PAGE && !is_of(c, windowed, page))
        page = c->nodes[page].next_sibling;
    return page;
}

/* Drops the windowed pages of `page` where there are not all. */
static void keep_all_or_none(struct prefix_cache *c, uint32_t page)
{
    uint32_t *windowed = prefix_windowed(c, page), n = 0;
    bool kept = true;
    for (uint32_t i = 0; i < c->n_windowed; i++)
        n += windowed[i] != NO_PAGE;
    for (uint32_t i = 0; i < c->n_windowed; i++) {
        if (n == c->n_windowed)
            kept = kept && atomic_load(&prefix_record(c, windowed[i])->kept);
        else if (windowed[i] != NO_PAGE)
            c->nodes[windowed[i]].owned = false;
        if (n < c->n_windowed)
            windowed[i] = NO_PAGE;
    }
    if (n < c->n_windowed)
        return;
    c->stats.adopted += n;
    prefix_update_windows(c, page, prefix_valid(c, page));
    prefix_keep_windows(c, page, kept);
}

/* Finds the pages of the windowed ones; `owned` marks those, too. */
static void adopt_windows(struct prefix_cache *c)
{
    for (uint32_t windowed = 0; windowed < c->pool.n_pages; windowed++) {
        const struct kv_page_record *w = prefix_record(c, windowed);
        if (!atomic_load(&w->serial) || !w->group)
            continue;
        uint32_t page = owner_of(c, windowed);
        if (page == NO_PAGE)
            continue;
        prefix_windowed(c, page)[w->group - 1] = windowed;
        c->nodes[windowed].owned = true;
    }
    for (uint32_t page = 0; page < c->pool.n_pages; page++)
        if (c->nodes[page].owned && prefix_record(c, page)->group == 0)
            keep_all_or_none(c, page);
}

void prefix_adopt(struct prefix_cache *c, uint32_t vocab)
{
    adopt_tree(c, check_records(c, vocab));
    if (c->n_windowed)
        adopt_windows(c);
    for (uint32_t page = c->pool.n_pages; page-- > 0;) {
        bool adopted = c->nodes[page].owned;
        c->nodes[page].owned = false;
        if (!adopted) {
            atomic_store(&prefix_record(c, page)->serial, 0);
            prefix_push_free(c, page);
        }
    }
}

enum error_code prefix_cache_new(const struct prefix_cache_options *options,
                                 struct prefix_cache **out, struct error *e)
{
    struct prefix_cache *c;
    struct node *nodes;
    uint32_t n = options->pool.n_pages, *windowed;
    assert(options->n_windowed <= KV_PREFIX_WINDOWED_MOST);
    if (!ARRAYS_NEW(ARRAY(c, 1), ARRAY(nodes, n), ARRAY(windowed, (size_t)n * options->n_windowed)))
        return error_set(e, ERROR_MEMORY, "no memory for the table of %" PRIu32 " KV pages", n);
    c->pool = options->pool;
    c->exact = options->exact;
    c->n_windowed = options->n_windowed;
    c->window = options->n_windowed ? options->window : 0;
    if (options->store.header && options->store.page_bytes == c->pool.page_bytes)
        c->store = options->store;
    c->last_serial = (uint64_t)time(NULL) << 20; /* no earlier worker's serial comes again */
    c->nodes = nodes;
    c->windowed = windowed;
    c->first_root = c->first_free = NO_PAGE;
    for (uint32_t page = 0; page < n; page++)
        nodes[page].first_child = NO_PAGE;
    for (size_t i = 0; i < (size_t)n * c->n_windowed; i++)
        windowed[i] = NO_PAGE;
    struct kv_pool_header *h = c->pool.header;
    if (atomic_load(&h->format) != options->format)
        for (uint32_t page = 0; page < n; page++)
            atomic_store(&prefix_record(c, page)->serial, 0);
    atomic_store(&h->format, options->format);
    prefix_adopt(c, options->vocab);
    *out = c;
    return ERROR_OK;
}

void prefix_cache_free(struct prefix_cache *c)
{
    free(c);
}
