/* The KV pool's region; see kv_pool.h. */
#include "ipc/kv_page.h"

#include "base/checked.h"

#include <inttypes.h>

/* The words begin here; the records behind them, at a multiple of 64. */
#define WORDS_OFFSET                                                                               \
    (sizeof(struct kv_pool_header) + KV_POOL_WORKERS * sizeof(struct kv_pool_worker))

static uint64_t records_offset(uint32_t n_pages)
{
    return round_up(WORDS_OFFSET + (uint64_t)n_pages * sizeof(uint64_t), 64);
}

static uint64_t pages_offset(uint32_t n_pages)
{
    uint64_t records = (uint64_t)n_pages * sizeof(struct kv_page_record);
    return round_up(records_offset(n_pages) + records, KV_POOL_ALIGN);
}

uint64_t kv_pool_bytes(uint32_t n_pages, uint64_t page_bytes)
{
    uint64_t bytes;
    if (!checked_mul(n_pages, page_bytes, &bytes) ||
        !checked_add(bytes, pages_offset(n_pages), &bytes))
        return UINT64_MAX;
    return bytes;
}

uint32_t kv_pool_pages_in(uint64_t bytes, uint64_t page_bytes)
{
    uint64_t n = bytes / (page_bytes + sizeof(struct kv_page_record) + sizeof(uint64_t));
    n = n < KV_POOL_MAX_PAGES ? n : KV_POOL_MAX_PAGES;
    while (n > 0 && kv_pool_bytes((uint32_t)n, page_bytes) > bytes)
        n--;
    return (uint32_t)n;
}

void kv_pool_init(void *memory, uint32_t n_pages, uint64_t page_bytes, uint64_t generation)
{
    struct kv_pool_header *h = memory;
    h->magic = KV_POOL_MAGIC;
    h->layout_version = KV_POOL_LAYOUT_VERSION;
    h->n_pages = n_pages;
    h->page_bytes = page_bytes;
    h->pages_offset = pages_offset(n_pages);
    h->generation = generation;
}

enum error_code kv_pool_attach(struct kv_pool *p, void *memory, size_t bytes, struct error *e)
{
    struct kv_pool_header *h = memory;
    if (bytes < sizeof *h || h->magic != KV_POOL_MAGIC)
        return error_set(e, ERROR_PROTOCOL, "KV pool: no header found");
    if (h->layout_version != KV_POOL_LAYOUT_VERSION)
        return error_set(e, ERROR_VERSION, "KV pool: layout version %" PRIu32 ", expected %u",
                         h->layout_version, KV_POOL_LAYOUT_VERSION);
    struct kv_pool pool = {.header = h,
                           .n_pages = h->n_pages,
                           .page_bytes = h->page_bytes,
                           .generation = h->generation};
    if (pool.n_pages == 0 || pool.n_pages > KV_POOL_MAX_PAGES || pool.page_bytes == 0 ||
        pool.page_bytes % KV_POOL_ALIGN || h->pages_offset != pages_offset(pool.n_pages) ||
        kv_pool_bytes(pool.n_pages, pool.page_bytes) > bytes)
        return error_set(e, ERROR_PROTOCOL, "KV pool: the header does not fit the region");
    uint8_t *base = memory;
    pool.workers = (struct kv_pool_worker *)(h + 1);
    pool.words = (_Atomic uint64_t *)(base + WORDS_OFFSET);
    pool.records = (struct kv_page_record *)(base + records_offset(pool.n_pages));
    pool.pages = base + pages_offset(pool.n_pages);
    *p = pool;
    return ERROR_OK;
}

int kv_pool_join(struct kv_pool *p, pid_t pid)
{
    for (int i = 0; i < KV_POOL_WORKERS; i++) {
        struct kv_pool_worker *w = &p->workers[i];
        if (atomic_load(&w->pid))
            continue;
        atomic_store(&w->running, 0);
        atomic_store(&w->waiting, 0);
        atomic_store(&w->state, KV_WORKER_STARTS);
        atomic_store(&w->waits_since_ns, 0);
        atomic_store(&w->pid, (uint64_t)pid);
        return i;
    }
    return -1;
}

void kv_pool_forget(struct kv_pool *p, uint32_t worker)
{
    for (uint32_t page = 0; page < p->n_pages; page++)
        kv_page_forget(p, worker, page);
    atomic_fetch_add_explicit(&p->header->changes, 1, memory_order_release);
    atomic_store(&p->workers[worker].waits_since_ns, 0);
    atomic_store(&p->workers[worker].running, 0);
    atomic_store(&p->workers[worker].pid, 0); /* last: the entry may have another worker */
}

struct kv_pool_use kv_pool_use(const struct kv_pool *p)
{
    struct kv_pool_use use = {.pages = p->n_pages};
    for (uint32_t i = 0; i < p->n_pages; i++) {
        uint64_t word = atomic_load_explicit(&p->words[i], memory_order_relaxed);
        use.pages_in_use += !kv_page_is_idle(word);
        if (!kv_page_has_content(word))
            continue;
        use.pages_used++;
        if (p->records[i].group == 0)
            use.tokens += atomic_load_explicit(&p->records[i].n, memory_order_relaxed);
    }
    return use;
}
