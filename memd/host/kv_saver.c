/* Saving the KV pool's pages; see kv_saver.h.
 *
 * Workers write the pool meanwhile. A full page stays as it is until it is freed, and no two
 * contents of a page have one generation; so what was copied while the generation did not change is
 * the page (ipc/kv_page.h). */
#include "memd/host/kv_saver.h"

#include "base/arrays.h"
#include "base/log.h"
#include "ipc/kv_page.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define SCAN_S 1
#define REST_S 2 /* since a page was used last */
/* Pages that are free below which nothing rests any more: one in so many. */
#define FEW_FREE 8
/* Uses that are less apart than this are one, for the file. */
#define TOUCH_S 60

struct page_state {
    uint64_t generation; /* whose key this is; 0: none */
    uint64_t key;
    bool saved;
    uint64_t touched_s;
};

struct kv_saver {
    struct kv_pool pool;
    struct kv_file *file;
    pthread_t thread;
    bool has_thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool stopping;             /* under lock */
    bool hurry;                /* pages need not have rested */
    struct page_state *states; /* [n_pages] */
};

/* A copy of a record whose content was there under `generation`. */
struct copied {
    uint32_t page;
    uint64_t generation, parent_generation, format;
    uint32_t parent, depth, kind, n;
    uint64_t cost_ns, used_s;
    uint32_t tokens[KV_POOL_TOKENS];
};

/* 0: the page has no content. */
static uint64_t generation_of(const struct kv_saver *s, uint32_t page)
{
    uint64_t word = kv_page_word(&s->pool, page);
    return kv_page_has_content(word) ? kv_page_generation(word) : 0;
}

static bool is_unchanged(const struct kv_saver *s, const struct copied *c)
{
    return kv_page_is_still(&s->pool, c->page, c->generation);
}

static uint32_t field(const _Atomic uint32_t *from)
{
    return atomic_load_explicit(from, memory_order_relaxed);
}

static uint64_t long_field(const _Atomic uint64_t *from)
{
    return atomic_load_explicit(from, memory_order_relaxed);
}

/* False: the page is free, empty or changes just now, or its record is not sane. */
static bool copy_record(struct kv_saver *s, uint32_t page, struct copied *c)
{
    const struct kv_page_record *r = &s->pool.records[page];
    *c = (struct copied){.page = page, .generation = generation_of(s, page)};
    c->n = atomic_load_explicit(&r->n, memory_order_acquire);
    c->parent = field(&r->parent);
    c->parent_generation = long_field(&r->parent_generation);
    c->format = long_field(&r->format);
    c->depth = field(&r->depth);
    c->kind = field(&r->kind) | field(&r->group) << KV_STORE_GROUP_SHIFT;
    c->cost_ns = long_field(&r->cost_ns);
    c->used_s = long_field(&r->used_s);
    for (uint32_t i = 0; i < KV_POOL_TOKENS; i++)
        c->tokens[i] = field(&r->tokens[i]);
    return c->generation && is_unchanged(s, c) && c->n >= 1 && c->n <= KV_POOL_TOKENS &&
           (c->parent == KV_POOL_NO_PAGE || c->parent < s->pool.n_pages);
}

/* The key of the page before it; 0: not known (yet). */
static uint64_t parent_key(const struct kv_saver *s, const struct copied *c)
{
    if (c->parent == KV_POOL_NO_PAGE)
        return kv_store_root_key(s->file->index.seed, c->format);
    const struct page_state *parent = &s->states[c->parent];
    return parent->generation == c->parent_generation ? parent->key : 0;
}

struct validity {
    struct kv_saver *saver;
    const struct copied *copied;
};

static bool still_valid(void *arg)
{
    const struct validity *v = arg;
    return is_unchanged(v->saver, v->copied);
}

static void save(struct kv_saver *s, const struct copied *c, uint64_t parent, uint64_t key)
{
    struct kv_store_page page = {.key = key,
                                 .parent_key = parent,
                                 .kind = c->kind,
                                 .n = c->n,
                                 .depth = c->depth,
                                 .cost_ns = c->cost_ns,
                                 .used_s = c->used_s};
    memcpy(page.tokens, c->tokens, c->n * sizeof *page.tokens);
    struct validity v = {s, c};
    kv_file_put(s->file, &page, kv_pool_page(&s->pool, c->page), still_valid, &v);
}

/* Saves the page of a record if it is due and the file does not have it. False: look at it again,
 * as it is not due, or writing it failed. */
static bool save_if_due(struct kv_saver *s, const struct copied *c, uint64_t parent, uint64_t key)
{
    uint64_t now_s = (uint64_t)time(NULL); /* the clock may have been set back since that use */
    bool is_due = s->hurry || c->used_s > now_s || c->used_s + REST_S <= now_s;
    if (!is_due || !kv_file_writes(s->file))
        return false;
    uint32_t slot = kv_file_find(s->file, parent, key);
    if (slot == UINT32_MAX)
        save(s, c, parent, key);
    else /* the page was read from the file */
        kv_file_touch(s->file, slot, c->used_s);
    return kv_file_writes(s->file);
}

/* The file forgets last what is used last. */
static void touch(struct kv_saver *s, uint32_t page, struct page_state *state)
{
    struct copied c;
    uint64_t used_s = long_field(&s->pool.records[page].used_s);
    bool is_same = used_s + TOUCH_S > state->touched_s && used_s < state->touched_s + TOUCH_S;
    if (is_same || !copy_record(s, page, &c)) /* a clock that was set back makes another use */
        return;
    state->touched_s = used_s;
    uint32_t slot = kv_file_find(s->file, parent_key(s, &c), state->key);
    if (slot != UINT32_MAX)
        kv_file_touch(s->file, slot, used_s);
    else
        state->saved = false; /* it went for another page */
}

/* The pages of groups after 0 are many, and most of them are of no use later. */
static bool is_wanted(const struct kv_saver *s, uint32_t page)
{
    const struct kv_page_record *r = &s->pool.records[page];
    return r->group == 0 || atomic_load_explicit(&r->kept, memory_order_relaxed) != 0;
}

/* True: a page's key is known now, on which others wait. */
static bool look_at(struct kv_saver *s, uint32_t page, bool parts)
{
    struct page_state *state = &s->states[page];
    uint64_t generation = generation_of(s, page);
    struct copied c;
    if (!generation || !is_wanted(s, page))
        return false;
    if (state->generation == generation && state->saved) {
        touch(s, page, state);
        return false;
    }
    if (state->generation == generation && !kv_file_writes(s->file))
        return false; /* it waits with many others, perhaps for hours */
    if (!copy_record(s, page, &c) || (c.n < KV_POOL_TOKENS && !parts))
        return false;
    uint64_t parent = parent_key(s, &c);
    if (!parent)
        return false;
    uint64_t key = kv_store_key(parent, c.kind, c.tokens, c.n);
    bool saved = save_if_due(s, &c, parent, key), is_new = state->generation != c.generation;
    if (c.n == KV_POOL_TOKENS)
        *state = (struct page_state){
            .generation = c.generation, .key = key, .saved = saved, .touched_s = c.used_s};
    return is_new && c.n == KV_POOL_TOKENS;
}

static bool few_pages_free(const struct kv_saver *s)
{
    struct kv_pool_use use = kv_pool_use(&s->pool);
    return use.pages - use.pages_used < use.pages / FEW_FREE;
}

/* `moed cache --clear` drops what the file has, too. */
static void follow_clear(struct kv_saver *s)
{
    struct kv_store_header *index = s->file->index.header;
    uint64_t cleared = atomic_load(&s->pool.header->cleared);
    if (cleared == atomic_load(&index->cleared))
        return;
    kv_file_clear(s->file);
    for (uint32_t page = 0; page < s->pool.n_pages; page++)
        s->states[page].saved = false;
    atomic_store(&index->cleared, cleared);
}

void kv_saver_scan(struct kv_saver *s, bool all)
{
    follow_clear(s);
    s->hurry = all || few_pages_free(s);
    for (bool again = true; again;) { /* a page may stand before the one that it continues */
        again = false;
        for (uint32_t page = 0; page < s->pool.n_pages; page++)
            again |= look_at(s, page, all);
    }
}

static bool wait_a_moment(struct kv_saver *s)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += SCAN_S;
    pthread_mutex_lock(&s->lock);
    if (!s->stopping)
        pthread_cond_timedwait(&s->changed, &s->lock, &until);
    bool goes_on = !s->stopping;
    pthread_mutex_unlock(&s->lock);
    return goes_on;
}

static void *saver_main(void *arg)
{
    struct kv_saver *s = arg;
    pthread_setname_np(pthread_self(), "memd/kv-file");
    while (wait_a_moment(s))
        kv_saver_scan(s, false);
    return NULL;
}

enum error_code kv_saver_new_idle(const struct kv_pool *pool, struct kv_file *file,
                                  struct kv_saver **out, struct error *e)
{
    struct kv_saver *s;
    struct page_state *states;
    if (!ARRAYS_NEW(ARRAY(s, 1), ARRAY(states, pool->n_pages)))
        return error_set(e, ERROR_MEMORY, "no memory for the table of %" PRIu32 " KV pages",
                         pool->n_pages);
    s->pool = *pool;
    s->file = file;
    s->states = states;
    pthread_mutex_init(&s->lock, NULL);
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&s->changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    *out = s;
    return ERROR_OK;
}

enum error_code kv_saver_new(const struct kv_pool *pool, struct kv_file *file,
                             struct kv_saver **out, struct error *e)
{
    struct kv_saver *s;
    enum error_code code = kv_saver_new_idle(pool, file, &s, e);
    if (code)
        return code;
    s->has_thread = pthread_create(&s->thread, NULL, saver_main, s) == 0;
    if (!s->has_thread) {
        free(s);
        return error_set(e, ERROR_MEMORY, "cannot start the thread memd/kv-file");
    }
    *out = s;
    return ERROR_OK;
}

void kv_saver_free(struct kv_saver *s)
{
    if (!s)
        return;
    pthread_mutex_lock(&s->lock);
    s->stopping = true;
    pthread_cond_signal(&s->changed);
    pthread_mutex_unlock(&s->lock);
    if (s->has_thread)
        pthread_join(s->thread, NULL);
    kv_file_retry(s->file);
    kv_saver_scan(s, true);
    pthread_mutex_destroy(&s->lock);
    pthread_cond_destroy(&s->changed);
    free(s);
}
