/* The KV pool's region; see kv_pool.h. */
#include "ipc/kv_pool.h"

#include "base/checked.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <signal.h>
#include <unistd.h>

static uint64_t pages_offset(uint32_t n_pages)
{
    uint64_t records = (uint64_t)n_pages * sizeof(struct kv_page_record);
    return round_up(sizeof(struct kv_pool_header) + records, KV_POOL_ALIGN);
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
    uint64_t n = bytes / (page_bytes + sizeof(struct kv_page_record));
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
    pool.records = (struct kv_page_record *)(h + 1);
    pool.pages = (uint8_t *)memory + pages_offset(pool.n_pages);
    *p = pool;
    return ERROR_OK;
}

bool kv_pool_own(struct kv_pool *p)
{
    uint64_t owner = atomic_load(&p->header->owner), own = (uint64_t)getpid();
    if (owner && owner != own && owner <= INT_MAX && (kill((pid_t)owner, 0) == 0 || errno != ESRCH))
        return false;
    return atomic_compare_exchange_strong(&p->header->owner, &owner, own);
}

struct kv_pool_use kv_pool_use(const struct kv_pool *p)
{
    struct kv_pool_use use = {.pages = p->n_pages};
    for (uint32_t i = 0; i < p->n_pages; i++) {
        if (!atomic_load_explicit(&p->records[i].serial, memory_order_relaxed))
            continue;
        use.pages_used++;
        if (p->records[i].group == 0)
            use.tokens += atomic_load_explicit(&p->records[i].n, memory_order_relaxed);
    }
    return use;
}
