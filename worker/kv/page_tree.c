/* The index of pages; see page_tree.h. */
#include "worker/kv/page_tree.h"

#include "base/arrays.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>

#define NONE KV_POOL_NO_PAGE

/* ---- Links ---- */

static uint32_t *first_of(struct page_tree *t, uint32_t parent)
{
    return parent == NONE ? &t->first_root : &t->nodes[parent].first_child;
}

static void link_page(struct page_tree *t, uint32_t page, uint32_t parent)
{
    uint32_t *first = first_of(t, parent);
    struct page_node *node = &t->nodes[page];
    node->parent = parent;
    node->depth = parent == NONE ? 0 : t->nodes[parent].depth + 1;
    node->previous_sibling = NONE;
    node->next_sibling = *first;
    if (*first != NONE)
        t->nodes[*first].previous_sibling = page;
    *first = page;
    if (parent != NONE)
        t->nodes[parent].children++;
}

static void unlink_page(struct page_tree *t, uint32_t page)
{
    struct page_node *node = &t->nodes[page];
    if (node->next_sibling != NONE)
        t->nodes[node->next_sibling].previous_sibling = node->previous_sibling;
    if (node->previous_sibling != NONE)
        t->nodes[node->previous_sibling].next_sibling = node->next_sibling;
    else
        *first_of(t, node->parent) = node->next_sibling;
    if (node->parent != NONE)
        t->nodes[node->parent].children--;
}

static void forget_page(struct page_tree *t, uint32_t page)
{
    assert(t->nodes[page].children == 0 && t->nodes[page].holds == 0);
    unlink_page(t, page);
    t->nodes[page] = (struct page_node){.first_child = NONE};
}

/* Takes a page whose content has gone out of the tree, with all that continues it. */
static void forget_branch(struct page_tree *t, uint32_t page)
{
    uint32_t at = page, parent;
    do {
        while (t->nodes[at].first_child != NONE)
            at = t->nodes[at].first_child;
        parent = t->nodes[at].parent;
        bool last = at == page;
        forget_page(t, at);
        if (last)
            return;
        at = parent;
    } while (true);
}

/* ---- Following the other workers ---- */

/* A checked copy of a record. */
struct seen_record {
    uint64_t generation, format, parent_generation;
    uint32_t parent, depth;
};

static uint32_t field(const _Atomic uint32_t *from)
{
    return atomic_load_explicit(from, memory_order_relaxed);
}

/* False: the record is none that a worker writes. */
static bool read_record(const struct page_tree *t, uint32_t page, uint32_t n, struct seen_record *s)
{
    struct kv_page_record *r = page_tree_record(t, page);
    s->format = atomic_load_explicit(&r->format, memory_order_relaxed);
    s->parent_generation = atomic_load_explicit(&r->parent_generation, memory_order_relaxed);
    s->parent = field(&r->parent);
    s->depth = field(&r->depth);
    bool sane = n <= KV_POOL_TOKENS && s->depth < t->pool.n_pages &&
                (s->depth == 0) == (s->parent == NONE) &&
                (s->parent == NONE) == (s->parent_generation == 0) &&
                (s->parent == NONE || s->parent < t->pool.n_pages);
    for (uint32_t i = 0; sane && i < n; i++)
        sane = field(&r->tokens[i]) < t->vocab;
    return sane;
}

static bool has_parent(const struct page_tree *t, const struct seen_record *s)
{
    if (s->parent == NONE)
        return true;
    const struct page_node *parent = &t->nodes[s->parent];
    return parent->generation == s->parent_generation && parent->format == s->format &&
           parent->depth + 1 == s->depth && page_tree_valid(t, s->parent) == KV_POOL_TOKENS;
}

/* Of a record that does not continue its parent in the tree: it never will. */
static bool is_orphan(const struct page_tree *t, const struct seen_record *s)
{
    return t->nodes[s->parent].generation == s->parent_generation ||
           kv_page_generation(kv_page_word(&t->pool, s->parent)) != s->parent_generation;
}

static void free_content(struct page_tree *t, uint32_t page, uint64_t word)
{
    if (kv_page_claim(&t->pool, t->worker, page, word))
        kv_page_release(&t->pool, page);
}

enum found { LINKED, USELESS, LATER };

/* Looks at a page that is not in the tree. */
static enum found look_at(struct page_tree *t, uint32_t page)
{
    uint64_t word = kv_page_word(&t->pool, page);
    struct seen_record s = {.generation = kv_page_generation(word)};
    if (!kv_page_has_content(word))
        return USELESS;
    uint32_t n = page_tree_valid(t, page);
    if (n == 0 && !kv_page_is_idle(word))
        return LATER; /* its writer has only begun */
    bool useful = n > 0 && read_record(t, page, n, &s);
    if (!kv_page_is_still(&t->pool, page, s.generation))
        return LATER;
    if (useful && has_parent(t, &s)) {
        t->nodes[page] =
            (struct page_node){.generation = s.generation, .format = s.format, .first_child = NONE};
        link_page(t, page, s.parent);
        return LINKED;
    }
    if (useful && !is_orphan(t, &s))
        return LATER;
    free_content(t, page, word);
    return USELESS;
}

/* A page may stand before the one that it continues. */
static void link_pending(struct page_tree *t, uint32_t n)
{
    for (bool again = true; again;) {
        uint32_t left = 0;
        again = false;
        for (uint32_t i = 0; i < n; i++) {
            enum found found = look_at(t, t->pending[i]);
            again |= found != LATER;
            if (found == LATER)
                t->pending[left++] = t->pending[i];
        }
        n = left;
    }
}

void page_tree_follow(struct page_tree *t)
{
    uint64_t changes = atomic_load_explicit(&t->pool.header->changes, memory_order_acquire);
    uint32_t n = 0;
    if (changes == t->seen)
        return;
    t->seen = changes;
    for (uint32_t page = 0; page < t->pool.n_pages; page++) {
        uint64_t generation = t->nodes[page].generation;
        if (generation && kv_page_generation(kv_page_word(&t->pool, page)) != generation)
            forget_branch(t, page);
    }
    for (uint32_t page = 0; page < t->pool.n_pages; page++)
        if (!t->nodes[page].generation && kv_page_has_content(kv_page_word(&t->pool, page)))
            t->pending[n++] = page;
    link_pending(t, n);
}

void page_tree_changed(struct page_tree *t)
{
    uint64_t before = atomic_fetch_add_explicit(&t->pool.header->changes, 1, memory_order_acq_rel);
    if (before == t->seen) /* else others have changed something, too */
        t->seen = before + 1;
}

/* ---- Pages of this worker ---- */

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
    if (--t->nodes[page].holds == 0)
        kv_page_unpin(&t->pool, t->worker, page);
}

/* Claims a free page. NONE: there is none. */
static uint32_t claim_free(struct page_tree *t)
{
    for (uint32_t i = 0; i < t->pool.n_pages; i++) {
        uint32_t page = t->cursor;
        t->cursor = page + 1 < t->pool.n_pages ? page + 1 : 0;
        uint64_t word = kv_page_word(&t->pool, page);
        if (!kv_page_has_content(word) && kv_page_claim(&t->pool, t->worker, page, word)) {
            if (t->nodes[page].generation) /* another worker has evicted it */
                forget_branch(t, page);
            return page;
        }
    }
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

/* Claims the page whose loss costs least. NONE: there is none, or another worker took it. */
static uint32_t claim_victim(struct page_tree *t)
{
    uint32_t victim = NONE;
    uint64_t least = 0, victim_word = 0;
    for (uint32_t page = 0; page < t->pool.n_pages; page++) {
        uint64_t word;
        if (!is_evictable(t, page, &word))
            continue;
        uint64_t value =
            atomic_load_explicit(&page_tree_record(t, page)->value, memory_order_relaxed);
        if (victim != NONE && value >= least)
            continue;
        victim = page;
        victim_word = word;
        least = value;
    }
    if (victim == NONE || !kv_page_claim(&t->pool, t->worker, victim, victim_word))
        return NONE;
    forget_page(t, victim);
    raise_last_evicted(t, least);
    return victim;
}

/* How often to try for a page before another worker's luck counts as having none. */
enum { TRIES = 4 };

static uint32_t claim_page(struct page_tree *t, bool *evicted)
{
    uint32_t page = claim_free(t);
    *evicted = false;
    for (int i = 0; i < TRIES && page == NONE; i++) {
        page = claim_victim(t);
        *evicted = page != NONE;
        if (page == NONE) {
            page_tree_follow(t);
            page = claim_free(t);
        }
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
    set(&r->depth, t->nodes[page].depth);
    atomic_store_explicit(&r->parent_generation, parent == NONE ? 0 : t->nodes[parent].generation,
                          memory_order_relaxed);
}

uint32_t page_tree_add(struct page_tree *t, uint32_t parent, uint64_t format, bool *evicted)
{
    uint32_t page = claim_page(t, evicted);
    if (page == NONE)
        return NONE;
    struct kv_page_record *r = page_tree_record(t, page);
    t->nodes[page] = (struct page_node){.generation = kv_page_begin(&t->pool, t->worker, page),
                                        .format = format,
                                        .first_child = NONE,
                                        .holds = 1,
                                        .owned = true};
    link_page(t, page, parent);
    set_parent(t, page, parent);
    set(&r->kind, 0);
    atomic_store_explicit(&r->format, format, memory_order_relaxed);
    atomic_store_explicit(&r->cost_ns, 0, memory_order_relaxed);
    if (*evicted)
        page_tree_changed(t);
    return page;
}

void page_tree_finish(struct page_tree *t, uint32_t page)
{
    assert(t->nodes[page].owned);
    t->nodes[page].owned = false;
    kv_page_finish(&t->pool, page);
}

void page_tree_move(struct page_tree *t, uint32_t page, uint32_t parent)
{
    unlink_page(t, page);
    link_page(t, page, parent);
    set_parent(t, page, parent);
}

bool page_tree_drop(struct page_tree *t, uint32_t page)
{
    uint64_t word;
    if (!is_evictable(t, page, &word) || !kv_page_claim(&t->pool, t->worker, page, word))
        return false;
    forget_page(t, page);
    kv_page_release(&t->pool, page);
    page_tree_changed(t);
    return true;
}

/* ---- Making it ---- */

enum error_code page_tree_new(const struct kv_pool *pool, uint32_t worker, uint32_t vocab,
                              struct page_tree **out, struct error *e)
{
    struct page_tree *t;
    struct page_node *nodes;
    uint32_t *pending, n = pool->n_pages;
    if (!ARRAYS_NEW(ARRAY(t, 1), ARRAY(nodes, n), ARRAY(pending, n)))
        return error_set(e, ERROR_MEMORY, "no memory for the table of %" PRIu32 " KV pages", n);
    *t = (struct page_tree){.pool = *pool,
                            .worker = worker,
                            .vocab = vocab,
                            .first_root = NONE,
                            .seen = UINT64_MAX,
                            .cursor = (uint32_t)((uint64_t)n * worker / KV_POOL_WORKERS),
                            .nodes = nodes,
                            .pending = pending};
    for (uint32_t page = 0; page < n; page++)
        nodes[page].first_child = NONE;
    *out = t;
    return ERROR_OK;
}

void page_tree_free(struct page_tree *t)
{
    free(t);
}
