/* The prefix cache's tree of pages, and what leaves it; see prefix_cache_internal.h. */
#include "prefix_cache_internal.h"

#include <assert.h>
#include <string.h>
#include <time.h>

/* ---- Links ---- */

static uint32_t *children_of(struct prefix_cache *c, uint32_t parent)
{
    return parent == NO_PAGE ? &c->first_root : &c->nodes[parent].first_child;
}

void prefix_link(struct prefix_cache *c, uint32_t page, uint32_t parent)
{
    uint32_t *first = children_of(c, parent);
    struct node *node = &c->nodes[page];
    node->previous_sibling = NO_PAGE;
    node->next_sibling = *first;
    if (*first != NO_PAGE)
        c->nodes[*first].previous_sibling = page;
    *first = page;
    if (parent != NO_PAGE)
        c->nodes[parent].children++;
}

static void unlink_page(struct prefix_cache *c, uint32_t page)
{
    uint32_t parent = prefix_record(c, page)->parent;
    struct node *node = &c->nodes[page];
    if (node->next_sibling != NO_PAGE)
        c->nodes[node->next_sibling].previous_sibling = node->previous_sibling;
    if (node->previous_sibling != NO_PAGE)
        c->nodes[node->previous_sibling].next_sibling = node->next_sibling;
    else
        *children_of(c, parent) = node->next_sibling;
    if (parent != NO_PAGE)
        c->nodes[parent].children--;
}

/* Sets what a record continues. */
static void set_parent(struct prefix_cache *c, uint32_t page, uint32_t parent)
{
    struct kv_page_record *r = prefix_record(c, page);
    r->parent = parent;
    r->parent_serial = parent == NO_PAGE ? 0 : atomic_load(&prefix_record(c, parent)->serial);
}

void prefix_change_parent(struct prefix_cache *c, uint32_t page, uint32_t parent)
{
    unlink_page(c, page);
    set_parent(c, page, parent);
    for (uint32_t i = 0; i < c->n_windowed && prefix_has_windows(c, page); i++)
        set_parent(c, prefix_windowed(c, page)[i], parent);
    prefix_link(c, page, parent);
}

/* ---- Free pages ---- */

void prefix_push_free(struct prefix_cache *c, uint32_t page)
{
    c->nodes[page] = (struct node){.first_child = NO_PAGE, .next_sibling = c->first_free};
    for (uint32_t i = 0; i < c->n_windowed; i++)
        prefix_windowed(c, page)[i] = NO_PAGE;
    c->first_free = page;
    c->n_free++;
}

static void release(struct prefix_cache *c, uint32_t page)
{
    atomic_store_explicit(&prefix_record(c, page)->serial, 0, memory_order_release);
    atomic_thread_fence(memory_order_release); /* before the page's next content is written */
    prefix_push_free(c, page);
}

void prefix_free_windows(struct prefix_cache *c, uint32_t page)
{
    assert(c->nodes[page].window_paths == 0);
    for (uint32_t i = 0; i < c->n_windowed && prefix_has_windows(c, page); i++)
        release(c, prefix_windowed(c, page)[i]);
    for (uint32_t i = 0; i < c->n_windowed; i++)
        prefix_windowed(c, page)[i] = NO_PAGE;
}

void prefix_free(struct prefix_cache *c, uint32_t page)
{
    assert(c->nodes[page].children == 0 && c->nodes[page].paths == 0);
    prefix_free_windows(c, page);
    unlink_page(c, page);
    release(c, page);
}

/* ---- Values ---- */

static uint64_t value_of(const struct prefix_cache *c, uint32_t page)
{
    uint64_t value = c->last_evicted + prefix_record(c, page)->cost_ns;
    return value ? value : 1;
}

static void use_now(struct prefix_cache *c, uint32_t page)
{
    atomic_store_explicit(&prefix_record(c, page)->used_s, (uint64_t)time(NULL),
                          memory_order_relaxed);
}

void prefix_touch(struct prefix_cache *c, uint32_t page)
{
    c->nodes[page].value = value_of(c, page);
    use_now(c, page);
}

void prefix_keep_windows(struct prefix_cache *c, uint32_t page, bool keep)
{
    if (c->n_windowed == 0 || !prefix_has_windows(c, page))
        return;
    c->nodes[page].window_value = keep ? value_of(c, page) : 0;
    for (uint32_t i = 0; i < c->n_windowed; i++) {
        uint32_t windowed = prefix_windowed(c, page)[i];
        atomic_store_explicit(&prefix_record(c, windowed)->kept, keep, memory_order_relaxed);
        if (keep)
            use_now(c, windowed);
    }
}

/* ---- Eviction ---- */

/* What can go: a page that nothing continues with its windowed pages, or these alone. */
struct victim {
    uint32_t page; /* NO_PAGE: none */
    uint64_t value;
    bool windows; /* alone */
};

/* Whether a path can begin with all positions of a page that nothing continues. */
static bool is_useful(const struct prefix_cache *c, uint32_t page)
{
    uint32_t depth = prefix_record(c, page)->depth;
    uint32_t n = depth * KV_POOL_TOKENS + prefix_valid(c, page);
    for (uint32_t begin = prefix_window_begin(c, n);; depth--) {
        if (!prefix_has_windows(c, page))
            return false;
        if (depth <= begin)
            return true;
        page = prefix_record(c, page)->parent;
    }
}

/* The same, of all windowed pages: they go first. */
static bool is_left_behind(const struct prefix_cache *c, uint32_t page)
{
    const struct node *node = &c->nodes[page];
    return c->n_windowed > 0 && node->window_paths == 0 && node->window_value == 0 &&
           prefix_has_windows(c, page);
}

static bool is_in_tree(const struct prefix_cache *c, uint32_t page)
{
    const struct kv_page_record *r = prefix_record(c, page);
    return atomic_load_explicit(&r->serial, memory_order_relaxed) != 0 && r->group == 0;
}

static bool is_evictable(const struct prefix_cache *c, uint32_t page)
{
    return is_in_tree(c, page) && c->nodes[page].paths == 0 && c->nodes[page].children == 0;
}

static struct victim consider(const struct prefix_cache *c, uint32_t page)
{
    const struct node *node = &c->nodes[page];
    if (!is_in_tree(c, page))
        return (struct victim){.page = NO_PAGE};
    if (is_left_behind(c, page))
        return (struct victim){page, 0, true};
    if (is_evictable(c, page))
        return (struct victim){page, is_useful(c, page) ? node->value : 0, false};
    if (c->n_windowed > 0 && node->window_paths == 0 && prefix_has_windows(c, page))
        return (struct victim){page, node->window_value, true};
    return (struct victim){.page = NO_PAGE};
}

static struct victim find_victim(const struct prefix_cache *c)
{
    struct victim least = {.page = NO_PAGE};
    for (uint32_t page = 0; page < c->pool.n_pages; page++) {
        struct victim v = consider(c, page);
        if (v.page != NO_PAGE && (least.page == NO_PAGE || v.value < least.value))
            least = v;
        if (least.page != NO_PAGE && least.value == 0)
            break;
    }
    return least;
}

static bool evict_one(struct prefix_cache *c)
{
    struct victim v = find_victim(c);
    if (v.page == NO_PAGE)
        return false;
    if (v.value > c->last_evicted)
        c->last_evicted = v.value;
    if (v.windows) {
        prefix_free_windows(c, v.page);
        c->stats.windows_evicted += c->n_windowed;
    } else {
        prefix_free(c, v.page);
        c->stats.evictions++;
    }
    return true;
}

uint32_t prefix_cache_clear(struct prefix_cache *c)
{
    uint32_t before = c->n_free;
    for (bool again = true; again;) {
        again = false;
        for (uint32_t page = 0; page < c->pool.n_pages; page++)
            if (is_evictable(c, page)) {
                prefix_free(c, page);
                again = true;
            }
    }
    for (uint32_t page = 0; page < c->pool.n_pages; page++)
        if (c->n_windowed && is_in_tree(c, page) && c->nodes[page].window_paths == 0)
            prefix_free_windows(c, page);
    /* Last: what memd saves of these pages until it sees this, it drops. */
    atomic_fetch_add(&c->pool.header->cleared, 1);
    return c->n_free - before;
}

/* ---- New pages ---- */

/* A page that is in no list. NO_PAGE: there is none. */
static uint32_t take_free(struct prefix_cache *c)
{
    if (c->first_free == NO_PAGE && !evict_one(c))
        return NO_PAGE;
    uint32_t page = c->first_free;
    c->first_free = c->nodes[page].next_sibling;
    c->n_free--;
    c->nodes[page] = (struct node){.first_child = NO_PAGE};
    return page;
}

uint32_t prefix_new_page(struct prefix_cache *c, uint32_t parent, uint32_t depth)
{
    uint32_t page = take_free(c);
    if (page == NO_PAGE)
        return NO_PAGE;
    struct kv_page_record *r = prefix_record(c, page);
    set_parent(c, page, parent);
    r->depth = depth;
    r->group = 0;
    r->kind = KV_DEFINED;
    r->cost_ns = 0;
    atomic_store_explicit(&r->n, 0, memory_order_relaxed);
    c->nodes[page].owned = true;
    prefix_link(c, page, parent);
    prefix_touch(c, page);
    atomic_store_explicit(&r->serial, ++c->last_serial, memory_order_release);
    return page;
}

static void make_windowed(struct prefix_cache *c, uint32_t page, uint32_t windowed, uint32_t group)
{
    const struct kv_page_record *of = prefix_record(c, page);
    struct kv_page_record *r = prefix_record(c, windowed);
    r->parent = of->parent;
    r->parent_serial = of->parent_serial;
    r->depth = of->depth;
    r->group = group;
    r->kind = of->kind;
    r->cost_ns = of->cost_ns;
    atomic_store_explicit(&r->kept, 0, memory_order_relaxed);
    atomic_store_explicit(&r->n, 0, memory_order_relaxed);
    use_now(c, windowed);
    atomic_store_explicit(&r->serial, ++c->last_serial, memory_order_release);
}

bool prefix_new_windows(struct prefix_cache *c, uint32_t page)
{
    uint32_t *windowed = prefix_windowed(c, page), taken[KV_PREFIX_WINDOWED_MOST];
    bool all = true;
    c->nodes[page].paths++; /* not to be evicted */
    for (uint32_t i = 0; i < c->n_windowed; i++) {
        taken[i] = all ? take_free(c) : NO_PAGE;
        all = all && taken[i] != NO_PAGE;
    }
    c->nodes[page].paths--;
    for (uint32_t i = 0; i < c->n_windowed; i++) {
        if (all)
            make_windowed(c, page, taken[i], i + 1);
        else if (taken[i] != NO_PAGE)
            prefix_push_free(c, taken[i]);
        windowed[i] = all ? taken[i] : NO_PAGE;
    }
    c->nodes[page].window_value = 0;
    return all;
}

void prefix_update_windows(struct prefix_cache *c, uint32_t page, uint32_t n)
{
    const struct kv_page_record *of = prefix_record(c, page);
    for (uint32_t i = 0; i < c->n_windowed && prefix_has_windows(c, page); i++) {
        struct kv_page_record *r = prefix_record(c, prefix_windowed(c, page)[i]);
        r->kind = of->kind;
        r->cost_ns = of->cost_ns;
        memcpy(r->tokens, of->tokens, n * sizeof *r->tokens);
        atomic_store_explicit(&r->n, n, memory_order_release);
    }
}

void prefix_move_windows(struct prefix_cache *c, uint32_t from, uint32_t to)
{
    for (uint32_t i = 0; i < c->n_windowed; i++) {
        uint32_t *place = &prefix_windowed(c, from)[i];
        struct kv_page_record *r = prefix_record(c, *place);
        r->parent = prefix_record(c, to)->parent;
        r->parent_serial = prefix_record(c, to)->parent_serial;
        r->depth = prefix_record(c, to)->depth;
        prefix_windowed(c, to)[i] = *place;
        *place = NO_PAGE;
    }
    c->nodes[to].window_value = c->nodes[from].window_value;
}

/* ---- Paths ---- */

void prefix_enter(struct prefix_cache *c, uint32_t page)
{
    if (c->nodes[page].paths++ == 0)
        c->n_in_use++;
}

void prefix_leave(struct prefix_cache *c, uint32_t page)
{
    if (--c->nodes[page].paths == 0)
        c->n_in_use--;
}

void prefix_enter_windows(struct prefix_cache *c, uint32_t page)
{
    assert(prefix_has_windows(c, page));
    if (c->nodes[page].window_paths++ == 0)
        c->n_in_use += c->n_windowed;
}

void prefix_leave_windows(struct prefix_cache *c, uint32_t page)
{
    if (--c->nodes[page].window_paths == 0)
        c->n_in_use -= c->n_windowed;
}
