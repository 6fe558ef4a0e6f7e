/* The index of settled pages; see page_index.h. */
#include "page_index.h"

#include "page_tree_internal.h"

/* Words of a key: kind, format (2), of each token its number + 1, 0 for the end, the page. The
 * largest number has the word of the one before it, so that no token is an end: a faulty worker may
 * write any token into its record, also after read_record has checked the others. */
enum { WORD_TOKENS = 3, WORDS = WORD_TOKENS + KV_POOL_TOKENS + 2 };

void page_index_init(struct page_index *x, struct index_leaf *leaves, struct index_inner *inner,
                     uint32_t n_pages)
{
    *x = (struct page_index){.leaves = leaves, .inner = inner, .first_free = NONE};
    for (uint32_t i = n_pages; i-- > 0;) {
        inner[i].parent = x->first_free;
        x->first_free = i;
    }
}

uint32_t page_index_better(const struct page_tree *t, uint32_t a, uint32_t b)
{
    bool a_has = page_tree_has_windows(t, a), b_has = page_tree_has_windows(t, b);
    if (a_has != b_has)
        return a_has ? a : b;
    return (t->nodes[a].serial > t->nodes[b].serial) == a_has ? a : b;
}

/* ---- Keys ---- */

static uint32_t query_word(const struct index_query *q, uint32_t word)
{
    if (word == 0)
        return q->kind;
    if (word < WORD_TOKENS)
        return (uint32_t)(word == 1 ? q->format : q->format >> 32);
    if (word - WORD_TOKENS >= q->n)
        return 0;
    uint32_t token = q->tokens[word - WORD_TOKENS];
    return token < UINT32_MAX ? token + 1 : token;
}

static struct index_query key_of(const struct index_leaf *leaf)
{
    return (struct index_query){
        .format = leaf->format, .kind = leaf->kind, .tokens = leaf->tokens, .n = leaf->n};
}

static uint32_t leaf_word(const struct page_index *x, uint32_t page, uint32_t word)
{
    const struct index_leaf *leaf = &x->leaves[page];
    const struct index_query key = key_of(leaf);
    return word == WORD_TOKENS + leaf->n + 1 ? page : query_word(&key, word);
}

static unsigned bit_of(uint32_t word, uint32_t bit)
{
    return word >> (31 - bit % 32) & 1;
}

/* ---- Links ---- */

static uint32_t *root_of(struct page_tree *t, uint32_t parent)
{
    return parent == NONE ? &t->index_root : &t->nodes[parent].index_root;
}

static uint32_t best_of(const struct page_index *x, uint32_t ref)
{
    return ref & INDEX_INNER ? x->inner[ref & ~INDEX_INNER].best : ref;
}

static uint32_t newest_of(const struct page_index *x, uint32_t ref)
{
    return ref & INDEX_INNER ? x->inner[ref & ~INDEX_INNER].newest : ref;
}

static uint32_t *parent_of(struct page_index *x, uint32_t ref)
{
    return ref & INDEX_INNER ? &x->inner[ref & ~INDEX_INNER].parent : &x->leaves[ref].parent;
}

static void choose_best(struct page_tree *t, uint32_t inner)
{
    struct page_index *x = &t->index;
    for (; inner != NONE; inner = x->inner[inner].parent) {
        struct index_inner *node = &x->inner[inner];
        uint32_t a = newest_of(x, node->child[0]), b = newest_of(x, node->child[1]);
        node->best = page_index_better(t, best_of(x, node->child[0]), best_of(x, node->child[1]));
        node->newest = t->nodes[a].serial > t->nodes[b].serial ? a : b;
    }
}

/* The place that refers to `ref`, which is below the page `parent` of the tree. */
static uint32_t *place_of(struct page_tree *t, uint32_t parent, uint32_t ref)
{
    struct page_index *x = &t->index;
    uint32_t above = *parent_of(x, ref);
    if (above == NONE)
        return root_of(t, parent);
    return &x->inner[above].child[x->inner[above].child[1] == ref];
}

/* The page whose key has most bits from the first one on in common with the page's. */
static uint32_t nearest_leaf(const struct page_index *x, uint32_t root, uint32_t page)
{
    while (root & INDEX_INNER) {
        const struct index_inner *node = &x->inner[root & ~INDEX_INNER];
        root = node->child[bit_of(leaf_word(x, page, node->bit / 32), node->bit)];
    }
    return root;
}

static uint32_t first_other_bit(const struct page_index *x, uint32_t a, uint32_t b)
{
    uint32_t word = 0;
    while (leaf_word(x, a, word) == leaf_word(x, b, word))
        word++;
    assert(word < WORDS);
    return word * 32 + (uint32_t)__builtin_clz(leaf_word(x, a, word) ^ leaf_word(x, b, word));
}

/* Puts the leaf beside the first node on its way whose bit comes after the one that differs. */
static void insert(struct page_tree *t, uint32_t page, uint32_t *root)
{
    struct page_index *x = &t->index;
    uint32_t bit = first_other_bit(x, page, nearest_leaf(x, *root, page));
    uint32_t *place = root, above = NONE, added = x->first_free;
    while (*place & INDEX_INNER && x->inner[*place & ~INDEX_INNER].bit < bit) {
        above = *place & ~INDEX_INNER;
        struct index_inner *node = &x->inner[above];
        place = &node->child[bit_of(leaf_word(x, page, node->bit / 32), node->bit)];
    }
    assert(added != NONE);
    struct index_inner *node = &x->inner[added];
    x->first_free = node->parent;
    unsigned side = bit_of(leaf_word(x, page, bit / 32), bit);
    *node = (struct index_inner){.parent = above, .bit = bit};
    node->child[side] = page;
    node->child[!side] = *place;
    *parent_of(x, *place) = added;
    x->leaves[page].parent = added;
    *place = added | INDEX_INNER;
    choose_best(t, added);
}

void page_index_add(struct page_tree *t, uint32_t page)
{
    struct page_node *node = &t->nodes[page];
    const struct kv_page_record *r = page_tree_record(t, page);
    struct index_leaf *leaf = &t->index.leaves[page];
    uint32_t n = page_tree_valid(t, page), *root = root_of(t, node->parent);
    leaf->n = n < KV_POOL_TOKENS ? n : KV_POOL_TOKENS;
    leaf->kind = page_field(&r->kind);
    leaf->format = node->format;
    for (uint32_t i = 0; i < leaf->n; i++)
        leaf->tokens[i] = page_field(&r->tokens[i]);
    leaf->parent = NONE;
    node->indexed = true;
    node->full = leaf->n == KV_POOL_TOKENS;
    if (*root == NONE)
        *root = page;
    else
        insert(t, page, root);
}

void page_index_remove(struct page_tree *t, uint32_t page)
{
    struct page_index *x = &t->index;
    uint32_t parent = t->nodes[page].parent, above = x->leaves[page].parent;
    t->nodes[page].indexed = t->nodes[page].full = false;
    if (above == NONE) {
        *root_of(t, parent) = NONE;
        return;
    }
    struct index_inner *node = &x->inner[above];
    uint32_t other = node->child[node->child[0] == page];
    *place_of(t, parent, above | INDEX_INNER) = other;
    *parent_of(x, other) = node->parent;
    choose_best(t, node->parent);
    node->parent = x->first_free;
    x->first_free = above;
}

void page_index_update(struct page_tree *t, uint32_t page)
{
    if (t->nodes[page].indexed)
        choose_best(t, t->index.leaves[page].parent);
}

/* ---- Lookups ---- */

/* Words at the beginning that the query and the leaf's tokens have in common. */
static uint32_t common_words(const struct page_index *x, uint32_t page, const struct index_query *q)
{
    const struct index_leaf *leaf = &x->leaves[page];
    uint32_t n = WORD_TOKENS + (q->n < leaf->n ? q->n : leaf->n), word = 0;
    const struct index_query key = key_of(leaf);
    while (word < n && query_word(&key, word) == query_word(q, word))
        word++;
    return word;
}

uint32_t page_index_find(struct page_tree *t, uint32_t parent, const struct index_query *q,
                         uint32_t *same)
{
    struct page_index *x = &t->index;
    uint32_t root = *root_of(t, parent), ref = root;
    if (root == NONE)
        return NONE;
    for (; ref & INDEX_INNER; x->visits++) {
        const struct index_inner *node = &x->inner[ref & ~INDEX_INNER];
        ref = node->child[bit_of(query_word(q, node->bit / 32), node->bit)];
    }
    x->visits++;
    uint32_t words = common_words(x, ref, q);
    if (words <= WORD_TOKENS)
        return NONE;
    *same = words - WORD_TOKENS;
    /* All pages with as much in common are below the last node on the way that looks behind it. */
    for (uint32_t above; (above = *parent_of(x, ref)) != NONE; x->visits++) {
        if (x->inner[above].bit < words * 32)
            break;
        ref = above | INDEX_INNER;
    }
    return q->newest ? newest_of(x, ref) : best_of(x, ref);
}
