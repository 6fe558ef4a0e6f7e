/* The index of conversations in a file; see kv_store.h. */
#include "ipc/kv_store.h"

#include "base/checksum.h"

#include <errno.h>
#include <inttypes.h>
#include <unistd.h>

uint64_t kv_store_bytes(uint32_t n_slots)
{
    return sizeof(struct kv_store_header) +
           n_slots * (sizeof(uint64_t) + sizeof(struct kv_store_record));
}

void kv_store_init(void *memory, uint32_t n_slots, uint64_t page_bytes, uint64_t seed)
{
    struct kv_store_header *h = memory;
    h->magic = KV_STORE_MAGIC;
    h->layout_version = KV_STORE_LAYOUT_VERSION;
    h->n_slots = n_slots;
    h->page_bytes = page_bytes;
    h->seed = seed;
}

enum error_code kv_store_attach(struct kv_store *s, void *memory, size_t bytes, int fd,
                                struct error *e)
{
    struct kv_store_header *h = memory;
    if (bytes < sizeof *h || h->magic != KV_STORE_MAGIC)
        return error_set(e, ERROR_PROTOCOL, "KV store: no header found");
    if (h->layout_version != KV_STORE_LAYOUT_VERSION)
        return error_set(e, ERROR_VERSION, "KV store: layout version %" PRIu32 ", expected %u",
                         h->layout_version, KV_STORE_LAYOUT_VERSION);
    struct kv_store store = {
        .header = h, .n_slots = h->n_slots, .page_bytes = h->page_bytes, .seed = h->seed, .fd = fd};
    if (store.n_slots == 0 || store.n_slots > KV_STORE_MAX_SLOTS ||
        kv_store_bytes(store.n_slots) > bytes)
        return error_set(e, ERROR_PROTOCOL, "KV store: the header does not fit the region");
    store.parents = (_Atomic uint64_t *)(h + 1);
    store.records = (struct kv_store_record *)(void *)(store.parents + store.n_slots);
    *s = store;
    return ERROR_OK;
}

/* ---- Keys ---- */

static uint64_t not_zero(uint64_t key)
{
    return key ? key : 1;
}

uint64_t kv_store_root_key(uint64_t seed, uint64_t format)
{
    return not_zero(checksum64(seed, &format, sizeof format));
}

uint64_t kv_store_key(uint64_t parent_key, uint32_t kind, const uint32_t *tokens, uint32_t n)
{
    uint64_t h = checksum64(parent_key, &kind, sizeof kind);
    return not_zero(checksum64(h, tokens, n * sizeof *tokens));
}

/* ---- Records ---- */

void kv_store_set(struct kv_store *s, uint32_t slot, const struct kv_store_page *page)
{
    struct kv_store_record *r = &s->records[slot];
    uint64_t version = atomic_load_explicit(&r->version, memory_order_relaxed);
    atomic_store_explicit(&r->version, version + 1, memory_order_relaxed);
    atomic_thread_fence(memory_order_release); /* with kv_store_next's acquire fence */
    r->page = page ? *page : (struct kv_store_page){0};
    atomic_store_explicit(&r->version, version + 2, memory_order_release);
    atomic_store_explicit(&s->parents[slot], page ? page->parent_key : 0, memory_order_release);
}

/* A consistent copy of the record. False: it changes just now. */
static bool copy_record(const struct kv_store *s, uint32_t slot, struct kv_store_page *out)
{
    struct kv_store_record *r = &s->records[slot];
    uint64_t version = atomic_load_explicit(&r->version, memory_order_acquire);
    *out = r->page;
    atomic_thread_fence(memory_order_acquire);
    return version % 2 == 0 && atomic_load_explicit(&r->version, memory_order_relaxed) == version;
}

bool kv_store_next(const struct kv_store *s, uint64_t parent_key, uint32_t *slot,
                   struct kv_store_page *out)
{
    for (; *slot < s->n_slots; ++*slot)
        if (atomic_load_explicit(&s->parents[*slot], memory_order_acquire) == parent_key &&
            copy_record(s, *slot, out) && out->parent_key == parent_key && out->n >= 1 &&
            out->n <= KV_POOL_TOKENS)
            return true;
    return false;
}

bool kv_store_read(const struct kv_store *s, uint32_t slot, const struct kv_store_page *page,
                   void *memory)
{
    uint64_t done = 0, from = kv_store_offset(s, slot) + KV_STORE_BLOCK;
    while (done < s->page_bytes) {
        ssize_t n =
            pread(s->fd, (uint8_t *)memory + done, s->page_bytes - done, (off_t)(from + done));
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return false;
        done += (uint64_t)n;
    }
    return checksum64(s->seed, memory, s->page_bytes) == page->checksum;
}
