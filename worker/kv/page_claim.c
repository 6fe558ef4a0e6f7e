/* Uses of pages by this worker, free pages and eviction; see page_tree.h. */
#include "page_tree_internal.h"

/* ---- Holds ---- */

bool page_tree_hold(struct page_tree *t, uint32_t page)
{
    struct page_node *node = &t->nodes[page];
    if (node->holds == 0 && !kv_page_pin(&t->pool, t->worker, page, node->generation))
        return false;
    node->holds++;
    return true;
}

void page_tree_release(struct page_tree *t, uint32_t page)
{
    if (--t->nodes[page].holds > 0)
        return;
    kv_page_unpin(&t->pool, t->worker, page);
    page_tree_offer(t, page);
}

bool page_tree_hold_windows(struct page_tree *t, uint32_t page, uint32_t n)
{
    uint32_t held = 0, *windowed = page_tree_windowed(t, page);
    bool all = page_tree_has_windows(t, page);
    while (all && held < t->n_windowed && (all = page_tree_hold(t, windowed[held])))
        all = page_tree_is_window_of(t, windowed[held++], page, n);
    if (all)
        return true;
    while (held > 0)
        page_tree_release(t, windowed[--held]);
    for (uint32_t i = 0; i < t->n_windowed; i++)
        if (windowed[i] != NONE && t->nodes[windowed[i]].holds == 0)
            page_tree_detach(t, windowed[i]);
    t->seen = UINT64_MAX; /* they may be those of another page in the tree */
    return false;
}

void page_tree_release_windows(struct page_tree *t, uint32_t page)
{
    for (uint32_t i = 0; i < t->n_windowed; i++)
        page_tree_release(t, page_tree_windowed(t, page)[i]);
}

/* ---- Pages for new positions ---- */

/* Claims a free page. NONE: there is none. */
static uint32_t claim_free(struct page_tree *t)
{
    for (uint32_t i = 0; i < t->pool.n_pages; i++) {
        uint32_t page = t->cursor;
        t->cursor = page + 1 < t->pool.n_pages ? page + 1 : 0;
        uint64_t word = kv_page_word(&t->pool, page);
        if (!kv_page_has_content(word) && kv_page_claim(&t->pool, t->worker, page, word)) {
            if (t->nodes[page].generation) /* another worker has evicted it */
                page_tree_forget(t, page);
            t->n_free -= t->n_free > 0;
            return page;
        }
    }
    t->n_free = 0;
    return NONE;
}

/* True: nothing in the tree needs the page, and no worker uses it. */
static bool is_evictable(const struct page_tree *t, uint32_t page, uint64_t *word)
{
    const struct page_node *node = &t->nodes[page];
    *word = kv_page_word(&t->pool, page);
    return node->generation && node->children == 0 && node->holds == 0 &&
           kv_page_generation(*word) == node->generation && kv_page_is_idle(*word);
}

static void raise_last_evicted(struct page_tree *t, uint64_t value)
{
    _Atomic uint64_t *last = &t->pool.header->last_evicted;
    uint64_t before = atomic_load_explicit(last, memory_order_relaxed);
    while (before < value && !atomic_compare_exchange_weak_explicit(
                                 last, &before, value, memory_order_relaxed, memory_order_relaxed))
        ;
}

/* Whether a path can begin with all positions of a page that nothing continues. */
static bool is_useful(const struct page_tree *t, uint32_t page)
{
    uint32_t depth = t->nodes[page].depth;
    uint32_t begin = page_tree_window_begin(t, depth * KV_POOL_TOKENS + page_tree_valid(t, page));
    for (; t->n_windowed; page = t->nodes[page].parent, depth--) {
        if (!page_tree_has_windows(t, page))
            return false;
        if (depth <= begin)
            return true;
    }
    return true;
}

/* The value of a page that can be evicted. False: it cannot, or goes with the page of group 0. */
static bool consider(const struct page_tree *t, uint32_t page, uint64_t *word, uint64_t *value)
{
    const struct page_node *node = &t->nodes[page];
    uint64_t owners;
    if (!is_evictable(t, page, word))
        return false;
    *value = atomic_load_explicit(&page_tree_record(t, page)->value, memory_order_relaxed);
    if (node->group)
        return *value == 0 || !is_evictable(t, node->owner, &owners);
    if (!is_useful(t, page))
        *value = 0;
    return true;
}

static void drop_windows(struct page_tree *t, uint32_t page)
{
    for (uint32_t i = 0; i < t->n_windowed; i++) {
        uint32_t windowed = page_tree_windowed(t, page)[i];
        uint64_t word;
        if (windowed == NONE || !is_evictable(t, windowed, &word))
            continue;
        page_tree_detach(t, windowed);
        if (kv_page_claim(&t->pool, t->worker, windowed, word))
            page_tree_release_claimed(t, windowed);
    }
}

/* A page of this worker's that has been claimed leaves the tree, with what is of no use without it.
 */
static void forget_claimed(struct page_tree *t, uint32_t page)
{
    uint32_t owner = t->nodes[page].owner;
    if (t->nodes[page].group) {
        page_tree_detach(t, page);
        drop_windows(t, owner);
        t->windows_evicted += t->n_windowed;
    } else {
        drop_windows(t, page);
        page_tree_forget(t, page);
        t->evictions++;
    }
}

static uint64_t value_of(const struct page_tree *t, uint32_t page)
{
    return atomic_load_explicit(&page_tree_record(t, page)->value, memory_order_relaxed);
}

/* A page with a window is worth less at some times than before (consider), so all are compared. */
static uint32_t least_of_all(struct page_tree *t, uint64_t *word, uint64_t *least)
{
    uint32_t victim = NONE;
    for (uint32_t page = 0; page < t->pool.n_pages && (victim == NONE || *least > 0); page++) {
        uint64_t its_word, value;
        t->victims.visits++;
        if (!consider(t, page, &its_word, &value) || (victim != NONE && value >= *least))
            continue;
        victim = page;
        *word = its_word;
        *least = value;
    }
    return victim;
}

/* The first of the heap whose key is its value now. Those that only other workers hinder go back
 * into the heap: they do not report when they are done. */
static uint32_t least_of_heap(struct page_tree *t, uint64_t *word, uint64_t *least)
{
    struct page_victims *v = &t->victims;
    uint32_t victim = NONE, n_hindered = 0, *hindered = t->pending;
    while (v->n > 0 && victim == NONE) {
        uint32_t page = v->heap[0];
        const struct page_node *node = &t->nodes[page];
        uint64_t value = value_of(t, page);
        v->visits++;
        if (!node->generation || node->children > 0 || node->holds > 0) {
            page_victims_remove(v); /* it is offered again */
        } else if (value > v->keys[page]) {
            page_victims_raise(v, value);
        } else if (!is_evictable(t, page, word)) {
            page_victims_remove(v);
            hindered[n_hindered++] = page;
        } else {
            victim = page;
            *least = value;
        }
    }
    while (n_hindered > 0)
        page_tree_offer(t, hindered[--n_hindered]);
    return victim;
}

uint32_t page_tree_victim(struct page_tree *t, uint64_t *word, uint64_t *value)
{
    return t->n_windowed ? least_of_all(t, word, value) : least_of_heap(t, word, value);
}

/* Claims the page whose loss costs least. NONE: there is none, or another worker took it. */
static uint32_t claim_victim(struct page_tree *t)
{
    uint64_t word, value;
    uint32_t victim = page_tree_victim(t, &word, &value);
    if (victim == NONE || !kv_page_claim(&t->pool, t->worker, victim, word))
        return NONE;
    forget_claimed(t, victim);
    raise_last_evicted(t, value);
    return victim;
}

/* How often to try for a page before another worker's luck counts as having none. */
enum { TRIES = 4 };

static uint32_t claim_page(struct page_tree *t)
{
    uint32_t page = t->n_free > 0 ? claim_free(t) : NONE;
    for (int i = 0; i < TRIES && page == NONE; i++) {
        page = claim_victim(t);
        if (page != NONE) {
            page_tree_changed(t);
            return page;
        }
        page_tree_follow(t);
        page = claim_free(t);
    }
    return page;
}

static void set(_Atomic uint32_t *to, uint32_t value)
{
    atomic_store_explicit(to, value, memory_order_relaxed);
}

static void set_parent(struct page_tree *t, uint32_t page, uint32_t parent)
{
    struct kv_page_record *r = page_tree_record(t, page);
    set(&r->parent, parent);
    set(&r->depth, parent == NONE ? 0 : t->nodes[parent].depth + 1);
    atomic_store_explicit(&r->parent_generation, parent == NONE ? 0 : t->nodes[parent].generation,
                          memory_order_relaxed);
}

/* A claimed page has an empty content now. */
static void begin(struct page_tree *t, uint32_t page, uint32_t parent, uint64_t format,
                  uint32_t group)
{
    struct kv_page_record *r = page_tree_record(t, page);
    t->nodes[page] = NO_NODE;
    t->nodes[page].generation = kv_page_begin(&t->pool, t->worker, page);
    t->nodes[page].format = format;
    t->nodes[page].group = group;
    t->nodes[page].holds = 1;
    t->nodes[page].owned = true;
    set_parent(t, page, parent);
    set(&r->kind, 0);
    set(&r->group, group);
    set(&r->kept, 0);
    atomic_store_explicit(&r->format, format, memory_order_relaxed);
    atomic_store_explicit(&r->cost_ns, 0, memory_order_relaxed);
    atomic_store_explicit(&r->value, 0, memory_order_relaxed);
}

uint32_t page_tree_add(struct page_tree *t, uint32_t parent, uint64_t format)
{
    uint32_t page = claim_page(t);
    if (page == NONE)
        return NONE;
    begin(t, page, parent, format, 0);
    page_tree_link(t, page, parent);
    return page;
}

static void finish(struct page_tree *t, uint32_t page)
{
    if (!t->nodes[page].owned)
        return;
    t->nodes[page].owned = false;
    kv_page_finish(&t->pool, page);
    if (t->nodes[page].group == 0)
        page_tree_settle(t, page);
}

void page_tree_discard_windows(struct page_tree *t, uint32_t page)
{
    for (uint32_t i = 0; i < t->n_windowed; i++) {
        uint32_t windowed = page_tree_windowed(t, page)[i];
        if (windowed == NONE || !t->nodes[windowed].owned)
            continue;
        finish(t, windowed);
        page_tree_release(t, windowed);
    }
    drop_windows(t, page);
}

bool page_tree_add_windows(struct page_tree *t, uint32_t page)
{
    uint32_t *windowed = page_tree_windowed(t, page);
    drop_windows(t, page); /* where not all are there */
    for (uint32_t i = 0; i < t->n_windowed; i++)
        if (windowed[i] != NONE)
            page_tree_detach(t, windowed[i]);
    for (uint32_t i = 0; i < t->n_windowed; i++) {
        uint32_t added = claim_page(t);
        if (added == NONE) {
            page_tree_discard_windows(t, page);
            return false;
        }
        begin(t, added, t->nodes[page].parent, t->nodes[page].format, i + 1);
        page_tree_attach(t, added, page);
    }
    return true;
}

static bool own(struct page_tree *t, uint32_t page, uint32_t n)
{
    struct page_node *node = &t->nodes[page];
    if (node->owned || page_tree_valid(t, page) != n ||
        !kv_page_take_over(&t->pool, t->worker, page))
        return false;
    node->owned = true;
    if (node->group == 0)
        page_tree_settle(t, page);
    return page_tree_valid(t, page) == n; /* else another worker has written more just now */
}

bool page_tree_take_over(struct page_tree *t, uint32_t page, uint32_t n, bool windows)
{
    if (t->nodes[page].owned)
        return false;
    bool all = own(t, page, n);
    for (uint32_t i = 0; i < t->n_windowed && windows && all; i++)
        all = own(t, page_tree_windowed(t, page)[i], n);
    if (!all)
        page_tree_finish(t, page);
    else
        page_tree_changed(t); /* after it has a writer: the others no longer take it as settled */
    return all;
}

void page_tree_finish_windows(struct page_tree *t, uint32_t page)
{
    for (uint32_t i = 0; i < t->n_windowed; i++)
        if (page_tree_windowed(t, page)[i] != NONE)
            finish(t, page_tree_windowed(t, page)[i]);
}

void page_tree_finish(struct page_tree *t, uint32_t page)
{
    page_tree_finish_windows(t, page);
    finish(t, page);
}

void page_tree_move(struct page_tree *t, uint32_t page, uint32_t parent)
{
    page_tree_unlink(t, page);
    page_tree_link(t, page, parent);
    set_parent(t, page, parent);
    for (uint32_t i = 0; i < t->n_windowed; i++)
        if (page_tree_windowed(t, page)[i] != NONE)
            set_parent(t, page_tree_windowed(t, page)[i], parent);
}

void page_tree_move_windows(struct page_tree *t, uint32_t from, uint32_t to)
{
    for (uint32_t i = 0; i < t->n_windowed; i++) {
        uint32_t windowed = page_tree_windowed(t, from)[i];
        page_tree_windowed(t, from)[i] = NONE;
        page_index_update(t, from);
        if (windowed == NONE)
            continue;
        page_tree_attach(t, windowed, to);
        if (t->nodes[from].parent != t->nodes[to].parent)
            set_parent(t, windowed, t->nodes[to].parent);
    }
}

bool page_tree_drop(struct page_tree *t, uint32_t page)
{
    uint64_t word;
    if (!is_evictable(t, page, &word) || !kv_page_claim(&t->pool, t->worker, page, word))
        return false;
    drop_windows(t, page);
    page_tree_forget(t, page);
    page_tree_release_claimed(t, page);
    page_tree_changed(t);
    return true;
}

void page_tree_drop_windows(struct page_tree *t, uint32_t page)
{
    drop_windows(t, page);
    page_tree_changed(t);
}
