/* The index of pages; see page_tree.h. */
#include "page_tree_internal.h"

#include "base/arrays.h"

#include <inttypes.h>
#include <stdlib.h>

/* ---- Links ---- */

static uint32_t *first_of(struct page_tree *t, uint32_t parent)
{
    return parent == NONE ? &t->first_root : &t->nodes[parent].first_child;
}

static uint32_t *first_loose_of(struct page_tree *t, uint32_t parent)
{
    return parent == NONE ? &t->first_loose : &t->nodes[parent].first_loose;
}

static void add_loose(struct page_tree *t, uint32_t page)
{
    struct page_node *node = &t->nodes[page];
    uint32_t *first = first_loose_of(t, node->parent);
    node->previous_loose = NONE;
    node->next_loose = *first;
    if (*first != NONE)
        t->nodes[*first].previous_loose = page;
    *first = page;
}

static void remove_loose(struct page_tree *t, uint32_t page)
{
    struct page_node *node = &t->nodes[page];
    if (node->next_loose != NONE)
        t->nodes[node->next_loose].previous_loose = node->previous_loose;
    if (node->previous_loose != NONE)
        t->nodes[node->previous_loose].next_loose = node->next_loose;
    else
        *first_loose_of(t, node->parent) = node->next_loose;
}

/* Whether the content stays as it is until a worker takes it over. Not of a page that this worker
 * owns, even if it is full: it may have a twin yet (prefix_cache_find_twin). */
static bool is_settled(const struct page_tree *t, uint32_t page)
{
    uint32_t n = page_tree_valid(t, page);
    bool written = kv_page_has_writer(kv_page_word(&t->pool, page));
    return !t->nodes[page].owned && n > 0 && (n >= KV_POOL_TOKENS || !written);
}

/* Takes a child out of the trie, or of the loose ones. */
static void unsettle(struct page_tree *t, uint32_t page)
{
    if (t->nodes[page].indexed)
        page_index_remove(t, page);
    else
        remove_loose(t, page);
}

static void put(struct page_tree *t, uint32_t page, bool settled)
{
    if (settled)
        page_index_add(t, page);
    else
        add_loose(t, page);
}

void page_tree_settle(struct page_tree *t, uint32_t page)
{
    bool settled = is_settled(t, page), indexed = t->nodes[page].indexed;
    bool grown = indexed && t->index.leaves[page].n < page_tree_valid(t, page);
    if (settled == indexed && !grown)
        return;
    unsettle(t, page);
    put(t, page, settled);
}

void page_tree_link(struct page_tree *t, uint32_t page, uint32_t parent)
{
    uint32_t *first = first_of(t, parent);
    struct page_node *node = &t->nodes[page];
    node->parent = parent;
    node->serial = ++t->serial;
    node->depth = parent == NONE ? 0 : t->nodes[parent].depth + 1;
    node->previous_sibling = NONE;
    node->next_sibling = *first;
    if (*first != NONE)
        t->nodes[*first].previous_sibling = page;
    *first = page;
    if (parent != NONE)
        t->nodes[parent].children++;
    put(t, page, is_settled(t, page));
}

void page_tree_unlink(struct page_tree *t, uint32_t page)
{
    struct page_node *node = &t->nodes[page];
    unsettle(t, page);
    if (node->next_sibling != NONE)
        t->nodes[node->next_sibling].previous_sibling = node->previous_sibling;
    if (node->previous_sibling != NONE)
        t->nodes[node->previous_sibling].next_sibling = node->next_sibling;
    else
        *first_of(t, node->parent) = node->next_sibling;
    if (node->parent != NONE) {
        t->nodes[node->parent].children--;
        page_tree_offer(t, node->parent);
    }
}

void page_tree_offer(struct page_tree *t, uint32_t page)
{
    const struct page_node *node = &t->nodes[page];
    if (t->n_windowed == 0 && node->generation && node->children == 0 && node->holds == 0)
        page_victims_offer(
            &t->victims, page,
            atomic_load_explicit(&page_tree_record(t, page)->value, memory_order_relaxed));
}

void page_tree_release_claimed(struct page_tree *t, uint32_t page)
{
    kv_page_release(&t->pool, page);
    t->n_free++;
    t->cursor = page;
}

void page_tree_attach(struct page_tree *t, uint32_t windowed, uint32_t owner)
{
    uint32_t *place = &page_tree_windowed(t, owner)[t->nodes[windowed].group - 1];
    if (*place != NONE)
        page_tree_detach(t, *place);
    t->nodes[windowed].owner = owner;
    *place = windowed;
    page_index_update(t, owner);
}

void page_tree_detach(struct page_tree *t, uint32_t windowed)
{
    struct page_node *node = &t->nodes[windowed];
    assert(node->holds == 0);
    page_tree_windowed(t, node->owner)[node->group - 1] = NONE;
    page_index_update(t, node->owner);
    *node = NO_NODE;
}

static void forget_page(struct page_tree *t, uint32_t page)
{
    assert(t->nodes[page].children == 0 && t->nodes[page].holds == 0);
    for (uint32_t i = 0; i < t->n_windowed; i++)
        if (page_tree_windowed(t, page)[i] != NONE)
            page_tree_detach(t, page_tree_windowed(t, page)[i]);
    page_tree_unlink(t, page);
    t->nodes[page] = NO_NODE;
}

void page_tree_forget(struct page_tree *t, uint32_t page)
{
    uint32_t at = page, parent;
    if (t->nodes[page].group) {
        page_tree_detach(t, page);
        return;
    }
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
    uint32_t parent, depth, group;
};

/* False: the record is none that a worker writes. */
static bool read_record(const struct page_tree *t, uint32_t page, uint32_t n, struct seen_record *s)
{
    struct kv_page_record *r = page_tree_record(t, page);
    s->format = atomic_load_explicit(&r->format, memory_order_relaxed);
    s->parent_generation = atomic_load_explicit(&r->parent_generation, memory_order_relaxed);
    s->parent = page_field(&r->parent);
    s->depth = page_field(&r->depth);
    s->group = page_field(&r->group);
    bool sane = n <= KV_POOL_TOKENS && s->group <= t->n_windowed && s->depth < t->pool.n_pages &&
                (s->depth == 0) == (s->parent == NONE) &&
                (s->parent == NONE) == (s->parent_generation == 0) &&
                (s->parent == NONE || s->parent < t->pool.n_pages);
    for (uint32_t i = 0; sane && i < n; i++)
        sane = page_field(&r->tokens[i]) < t->vocab;
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
        page_tree_release_claimed(t, page);
}

bool page_tree_is_window_of(const struct page_tree *t, uint32_t windowed, uint32_t page, uint32_t n)
{
    const struct kv_page_record *w = page_tree_record(t, windowed), *r = page_tree_record(t, page);
    if (t->nodes[page].format != atomic_load_explicit(&w->format, memory_order_relaxed) ||
        page_field(&w->kind) != page_field(&r->kind) || page_tree_valid(t, windowed) < n)
        return false;
    for (uint32_t i = 0; i < n; i++)
        if (page_field(&w->tokens[i]) != page_field(&r->tokens[i]))
            return false;
    return true;
}

/* The page in the tree whose positions a windowed page has, and which has none of its group. NONE:
 * there is none. */
static uint32_t owner_of(const struct page_tree *t, uint32_t windowed, const struct seen_record *s)
{
    uint32_t page = page_tree_first(t, s->parent);
    while (page != NONE &&
           (page_tree_windowed(t, page)[s->group - 1] != NONE || page_tree_valid(t, page) == 0 ||
            !page_tree_is_window_of(t, windowed, page, page_tree_valid(t, page))))
        page = t->nodes[page].next_sibling;
    return page;
}

enum found { LINKED, USELESS, LATER };

static enum found link_found(struct page_tree *t, uint32_t page, const struct seen_record *s)
{
    uint32_t owner = s->group ? owner_of(t, page, s) : NONE;
    if (s->group && owner == NONE)
        return LATER; /* it may come yet */
    t->nodes[page] = NO_NODE;
    t->nodes[page].generation = s->generation;
    t->nodes[page].format = s->format;
    t->nodes[page].group = s->group;
    if (s->group)
        page_tree_attach(t, page, owner);
    else
        page_tree_link(t, page, s->parent);
    page_tree_offer(t, page);
    return LINKED;
}

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
    if (useful && has_parent(t, &s))
        return link_found(t, page, &s);
    if (useful && !is_orphan(t, &s))
        return LATER;
    free_content(t, page, word);
    return USELESS;
}

/* A windowed page that nobody uses, and that is of no page in the tree, or of one that has others.
 */
static void free_without_owner(struct page_tree *t, uint32_t page)
{
    uint64_t word = kv_page_word(&t->pool, page);
    uint32_t group = page_field(&page_tree_record(t, page)->group);
    if (group && kv_page_has_content(word) && kv_page_is_idle(word))
        free_content(t, page, word);
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
    for (uint32_t i = 0; i < n; i++)
        free_without_owner(t, t->pending[i]);
}

static void count_free(struct page_tree *t)
{
    t->n_free = 0;
    for (uint32_t page = 0; page < t->pool.n_pages; page++) {
        uint64_t word = kv_page_word(&t->pool, page);
        t->n_free += !kv_page_has_content(word) && kv_page_is_idle(word);
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
            page_tree_forget(t, page);
    }
    for (uint32_t page = 0; page < t->pool.n_pages; page++) {
        const struct page_node *node = &t->nodes[page];
        if (node->generation && !node->group && !node->full)
            page_tree_settle(t, page);
    }
    for (uint32_t page = 0; page < t->pool.n_pages; page++)
        if (!t->nodes[page].generation && kv_page_has_content(kv_page_word(&t->pool, page)))
            t->pending[n++] = page;
    link_pending(t, n);
    count_free(t);
}

void page_tree_changed(struct page_tree *t)
{
    uint64_t before = atomic_fetch_add_explicit(&t->pool.header->changes, 1, memory_order_acq_rel);
    if (before == t->seen) /* else others have changed something, too */
        t->seen = before + 1;
}

/* ---- Making it ---- */

enum error_code page_tree_new(const struct page_tree_options *options, struct page_tree **out,
                              struct error *e)
{
    struct page_tree *t;
    struct page_node *nodes;
    struct index_leaf *leaves;
    struct index_inner *inner;
    uint64_t *keys;
    uint32_t *pending, *windowed, *heap, *place, n = options->pool.n_pages;
    size_t n_windowed = (size_t)n * options->n_windowed;
    assert(options->n_windowed <= PAGE_WINDOWED_MOST);
    if (!ARRAYS_NEW(ARRAY(t, 1), ARRAY(nodes, n), ARRAY(pending, n), ARRAY(windowed, n_windowed),
                    ARRAY(leaves, n), ARRAY(inner, n), ARRAY(keys, n), ARRAY(heap, n),
                    ARRAY(place, n)))
        return error_set(e, ERROR_MEMORY, "no memory for the table of %" PRIu32 " KV pages", n);
    *t = (struct page_tree){.pool = options->pool,
                            .worker = options->worker,
                            .vocab = options->vocab,
                            .n_windowed = options->n_windowed,
                            .window = options->n_windowed ? options->window : 0,
                            .first_root = NONE,
                            .first_loose = NONE,
                            .index_root = NONE,
                            .seen = UINT64_MAX,
                            .cursor = (uint32_t)((uint64_t)n * options->worker / KV_POOL_WORKERS),
                            .nodes = nodes,
                            .pending = pending,
                            .windowed = windowed};
    for (uint32_t page = 0; page < n; page++)
        nodes[page] = NO_NODE;
    for (size_t i = 0; i < n_windowed; i++)
        windowed[i] = NONE;
    page_index_init(&t->index, leaves, inner, n);
    page_victims_init(&t->victims, keys, heap, place);
    *out = t;
    return ERROR_OK;
}

void page_tree_free(struct page_tree *t)
{
    free(t);
}
