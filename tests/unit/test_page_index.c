/* The index of pages (worker/kv/page_index.h) against a walk over all children, which is how it
 * finds the page is defined; and how few nodes it looks at. */
#include "prefix_bench.h"

#include "worker/kv/prefix_cache_internal.h"

#include <sys/mman.h>

enum { PAGES = 120, WORKERS = 2 };

/* The child with most of the tokens; of several the one that was linked last, but if that has no
 * windowed pages the next one, and so on. */
static struct kv_match walk(const struct prefix_cache *c, uint32_t parent,
                            const struct kv_prefix *prefix, uint32_t position)
{
    struct kv_match best = {NONE, 0};
    enum kv_kind kind = kv_kind_of(position, prefix->n_prompt, c->exact);
    uint64_t format = prefix_cache_format(c, prefix->salt);
    for (uint32_t page = page_tree_first(c->tree, parent); page != NONE;
         page = c->tree->nodes[page].next_sibling) {
        if (c->tree->nodes[page].format != format ||
            page_field(&page_tree_record(c->tree, page)->kind) != (uint32_t)kind)
            continue;
        uint32_t same =
            prefix_cache_common_tokens(c, page, prefix->tokens + position, prefix->n - position);
        if (kind != KV_DEFINED && same < KV_POOL_TOKENS)
            same = 0;
        if (same > best.n ||
            (same > 0 && same == best.n && !page_tree_has_windows(c->tree, best.page)))
            best = (struct kv_match){page, same};
    }
    return best;
}

static uint32_t n_found, n_ties;

/* Tokens as the talks have them, below a page of the tree. */
static void check_lookup(const struct bench *b, const struct talk *talks)
{
    const struct prefix_cache *c = b->cache;
    const struct talk *t = &talks[below(PATHS)];
    uint32_t parent = below(PAGES), tokens[MOST];
    if (below(3) == 0 || c->tree->nodes[parent].generation == 0 || c->tree->nodes[parent].group)
        parent = NONE;
    uint32_t position = parent == NONE ? 0 : (c->tree->nodes[parent].depth + 1) * KV_POOL_TOKENS;
    memcpy(tokens, t->tokens, sizeof tokens);
    uint32_t n = t->n + below(3) * 10;
    n = n < MOST ? n : MOST;
    if (position >= n)
        return;
    if (below(2))
        tokens[position + below(n - position)] = below(VOCAB);
    const struct kv_prefix prefix = {tokens, n, below(2) ? n : n + below(200), below(4) == 0};
    struct kv_match expected = walk(c, parent, &prefix, position);
    struct kv_match found = prefix_cache_best_child(c, parent, &prefix, position);
    assert_int_equal(found.n, expected.n);
    assert_int_equal(found.page, expected.page);
    n_found += found.n > 0;
    n_ties += found.n > 0 && found.n < KV_POOL_TOKENS;
}

/* Of the pages with a page's tokens the one that was linked last. */
static void check_newest(const struct bench *b)
{
    const struct prefix_cache *c = b->cache;
    const struct page_node *nodes = c->tree->nodes;
    uint32_t page = below(PAGES), tokens[KV_POOL_TOKENS], expected = NONE, same = 0;
    if (!nodes[page].full)
        return;
    prefix_cache_tokens(c, page, tokens);
    const struct index_query q = {.format = nodes[page].format,
                                  .kind = page_field(&page_tree_record(c->tree, page)->kind),
                                  .tokens = tokens,
                                  .n = KV_POOL_TOKENS,
                                  .newest = true};
    for (uint32_t other = page_tree_first(c->tree, nodes[page].parent); other != NONE;
         other = nodes[other].next_sibling)
        if (expected == NONE && nodes[other].full && nodes[other].format == q.format &&
            page_field(&page_tree_record(c->tree, other)->kind) == q.kind &&
            prefix_cache_common_tokens(c, other, tokens, KV_POOL_TOKENS) == KV_POOL_TOKENS)
            expected = other;
    assert_int_equal(page_index_find(c->tree, nodes[page].parent, &q, &same), expected);
    assert_int_equal(same, KV_POOL_TOKENS);
}

/* What is evicted next, against a comparison of all pages; windowed pages are compared so anyway.
 */
static void check_victim(const struct bench *b)
{
    struct page_tree *t = b->cache->tree;
    uint32_t expected = NONE;
    uint64_t least = 0, word, value;
    for (uint32_t page = 0; page < PAGES; page++) {
        const struct page_node *node = &t->nodes[page];
        uint64_t its = atomic_load(&page_tree_record(t, page)->value);
        if (!node->generation || node->children || node->holds ||
            !kv_page_is_idle(kv_page_word(&b->pool, page)) || (expected != NONE && its >= least))
            continue;
        expected = page;
        least = its;
    }
    uint32_t found = page_tree_victim(t, &word, &value);
    assert_int_equal(found, expected);
    assert_true(found == NONE || value == least);
}

/* A full page that is not finished yet looks for another one with its content, not for itself. */
static void check_owned(const struct bench *b)
{
    const struct page_node *nodes = b->cache->tree->nodes;
    for (uint32_t page = 0; page < PAGES; page++)
        assert_false(nodes[page].owned && nodes[page].indexed);
}

/* Two talks compute the same page while another worker changes something. */
static void test_twin_after_a_change(void **state)
{
    static struct talk talks[2];
    struct bench b;
    (void)state;
    bench_open(&b, 8, true);
    for (uint32_t i = 0; i < 2; i++) {
        memset(&talks[i], 0, sizeof talks[i]);
        talks[i].n = KV_POOL_TOKENS;
        open_talk(&b, &talks[i]);
    }
    for (uint32_t i = 0; i < 2; i++)
        while (talks[i].n_past < talks[i].n) {
            atomic_fetch_add(&b.pool.header->changes, 1);
            assert_true(compute(&b, &talks[i]));
        }
    assert_int_equal(talks[0].path.pages[0], talks[1].path.pages[0]);
    assert_int_equal(prefix_cache_stats(b.cache).shared, 1);
    close_talk(&b, &talks[0]);
    close_talk(&b, &talks[1]);
    bench_close(&b);
}

/* Other workers report a page that they have freed, but not one that they take. */
static void check_free(const struct bench *b, bool alone)
{
    uint32_t n = 0;
    for (uint32_t page = 0; page < PAGES; page++)
        n += !kv_page_has_content(kv_page_word(&b->pool, page));
    assert_true(alone ? b->cache->tree->n_free == n : b->cache->tree->n_free >= n);
}

static void check_lives(uint64_t seed, uint32_t workers, uint32_t n_windowed, uint32_t window)
{
    static struct talk talks[WORKERS][PATHS];
    struct bench b[WORKERS];
    random_state = seed;
    memset(talks, 0, sizeof talks);
    bench_open_windowed(&b[0], PAGES, seed % 2, n_windowed, window);
    b[0].shared = workers > 1;
    for (uint32_t w = 1; w < workers; w++) {
        b[w] = b[0];
        bench_attach(&b[w], 1);
    }
    for (uint32_t i = 0; i < 4000; i++) {
        uint32_t w = below(workers);
        step(&b[w], talks[w]);
        if (below(400) == 0)
            die(&b[w], talks[w]);
        for (uint32_t k = 0; k < workers; k++) {
            page_tree_follow(b[k].cache->tree);
            for (int each = 0; each < 4; each++)
                check_lookup(&b[k], talks[below(workers)]);
            check_newest(&b[k]);
            check_owned(&b[k]);
            if (!n_windowed)
                check_victim(&b[k]);
        }
        for (uint32_t k = 0; k < 2 * workers; k++) /* one frees what another one then counts */
            page_tree_follow(b[k % workers].cache->tree);
        for (uint32_t k = 0; k < workers; k++)
            check_free(&b[k], workers == 1);
    }
    for (uint32_t w = workers; w-- > 1;)
        bench_kill(&b[w]);
    bench_close(&b[0]);
}

static void test_lives(void **state)
{
    (void)state;
    n_found = n_ties = 0;
    for (uint64_t seed = 1; seed <= 4; seed++) {
        check_lives(seed, 1, 0, 0);
        check_lives(seed, WORKERS, 0, 0);
        check_lives(seed, 1, 1 + seed % 2, 5 + (uint32_t)seed * 60);
        check_lives(seed, WORKERS, 1, 70);
    }
    assert_true(n_found > 10000 && n_ties > 1000);
}

/* ---- Many conversations ---- */

enum { ROOTS = 100000, COMMON = 20 };

/* The tokens of conversation i: COMMON that all have, then its own. */
static void conversation(uint32_t i, uint32_t n, uint32_t tokens[KV_POOL_TOKENS])
{
    for (uint32_t k = 0; k<n; k++, i = k> COMMON ? i / VOCAB : i)
        tokens[k] = k < COMMON ? k : i % VOCAB;
}

/* A pool of whose pages no memory is used. */
static void open_large(struct bench *b)
{
    struct error e;
    size_t bytes = kv_pool_bytes(ROOTS, PAGE_BYTES);
    *b = (struct bench){.exact = true};
    b->memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    assert_true(b->memory != MAP_FAILED);
    kv_pool_init(b->memory, ROOTS, PAGE_BYTES, 1);
    assert_int_equal(kv_pool_attach(&b->pool, b->memory, bytes, &e), ERROR_OK);
    bench_attach(b, 1);
}

static void converse(struct bench *b, uint32_t n, const uint32_t *tokens)
{
    uint32_t page;
    struct kv_path path = {.pages = &page, .capacity = 1};
    assert_true(prefix_cache_extend(b->cache, &path, n));
    prefix_cache_fill(b->cache, &path, tokens, n, KV_DEFINED, 1000);
    prefix_cache_close(b->cache, &path);
}

/* Half of them are full pages. */
static uint32_t length_of(uint32_t i)
{
    return i % 2 ? KV_POOL_TOKENS : COMMON + 10 + i % 30;
}

static void test_many_conversations(void **state)
{
    uint32_t tokens[KV_POOL_TOKENS];
    struct bench b;
    (void)state;
    open_large(&b);
    for (uint32_t i = 0; i < ROOTS; i++) {
        conversation(i, length_of(i), tokens);
        converse(&b, length_of(i), tokens);
    }
    uint64_t before = b.cache->tree->index.visits;
    random_state = 3;
    for (uint32_t k = 0; k < 1000; k++) {
        uint32_t i = below(ROOTS), n = length_of(i);
        conversation(i, n, tokens);
        assert_int_equal(prefix_cache_find(b.cache, &(struct kv_prefix){tokens, n, n, 0}, NULL), n);
        tokens[COMMON] = VOCAB; /* one that no conversation has */
        assert_int_equal(prefix_cache_find(b.cache, &(struct kv_prefix){tokens, n, n, 0}, NULL),
                         COMMON);
    }
    uint64_t visits = b.cache->tree->index.visits - before;
    assert_true(visits <= 2000 * 200); /* each walk over the children would be 100,000 */
    /* The pool is full: each page more evicts one, without a look at all the others. */
    before = b.cache->tree->victims.visits;
    uint32_t cursor = b.cache->tree->cursor;
    for (uint32_t i = 0; i < 1000; i++) {
        conversation(ROOTS + i, KV_POOL_TOKENS, tokens);
        converse(&b, KV_POOL_TOKENS, tokens);
    }
    assert_int_equal(prefix_cache_stats(b.cache).evictions, 1000);
    assert_true(b.cache->tree->victims.visits - before <= 1000 * 10);
    assert_int_equal(b.cache->tree->cursor, cursor); /* it looked for no free page */
    bench_kill(&b);
    munmap(b.memory, kv_pool_bytes(ROOTS, PAGE_BYTES));
}

/* A faulty worker writes tokens that no vocabulary has into a page that this worker extends. One
 * more than the largest number is 0, the end of a key: page 0 would then have the key of page 1. */
static void test_tokens_of_no_vocabulary(void **state)
{
    uint32_t token = 5, page;
    struct kv_path path = {.pages = &page, .capacity = 1};
    struct bench b;
    (void)state;
    bench_open(&b, 8, true);
    struct kv_page_record *r = page_tree_record(b.cache->tree, 0);
    assert_true(prefix_cache_extend(b.cache, &path, 1));
    prefix_cache_fill(b.cache, &path, &token, 1, KV_DEFINED, 1000);
    converse(&b, 1, &token);
    assert_int_equal(page, 0);
    assert_true(b.cache->tree->nodes[1].indexed);
    atomic_store(&r->tokens[1], UINT32_MAX);
    atomic_store(&r->tokens[2], 0);
    atomic_store(&r->n, 3);
    prefix_cache_close(b.cache, &path);
    assert_true(b.cache->tree->nodes[0].indexed);
    assert_int_equal(prefix_cache_find(b.cache, &(struct kv_prefix){&token, 1, 1, 0}, NULL), 1);
    assert_int_equal(prefix_cache_clear(b.cache), 2);
    bench_close(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lives),
        cmocka_unit_test(test_twin_after_a_change),
        cmocka_unit_test(test_many_conversations),
        cmocka_unit_test(test_tokens_of_no_vocabulary),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
