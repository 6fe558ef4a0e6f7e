/* The pages of a device's KV cache; see kv_pages.h.
 *
 * Invariants:
 * 1. The allocated pages are at most `aim`, not counting leaving chunks, which still have reserved
 *    pages.
 * 2. The leaving chunks are those with the fewest reserved pages, so that as few pages as possible
 *    hold memory back. They are chosen again after each release and each change of the aim.
 * 3. A chunk has chunk_pages, or the rest of the aim. Before the pool allocates a chunk it releases
 *    unused smaller ones, so that they do not become many. */
#include "kv_pages.h"

#include "base/log.h"
#include "worker/links/cuda_device.h"
#include "device/link.h"

#include <assert.h>
#include <stdlib.h>

enum {
    WHOLE_CHUNKS = 32, /* about this many make the whole pool */
    MOST_CHUNKS = 64,
};

struct chunk {
    uint8_t *memory; /* NULL: no chunk */
    uint32_t n_pages, n_free;
    bool leaves;    /* to be released with its last reserved page */
    uint32_t *free; /* [chunk_pages]: the first n_free are the numbers of its free pages */
};

struct kv_pages {
    struct cuda_device *cuda;
    uint64_t page_bytes;
    uint32_t n, aim, chunk_pages;
    bool failed; /* the last allocation failed */
    uint32_t *free;
    struct chunk chunks[MOST_CHUNKS];
};

/* As many pages as fit into one of the driver's allocation units, or into several where there would
 * be too many chunks. */
static uint32_t pages_a_chunk(uint64_t page_bytes, uint32_t n)
{
    uint64_t pages = 0;
    for (uint64_t bytes = DEVICE_ALLOCATION_BYTES;
         pages == 0 || (n + pages - 1) / pages > WHOLE_CHUNKS; bytes += DEVICE_ALLOCATION_BYTES)
        pages = bytes / page_bytes;
    return (uint32_t)(pages < n ? pages : n);
}

static uint32_t reserved_of(const struct chunk *c)
{
    return c->n_pages - c->n_free;
}

static uint32_t allocated(const struct kv_pages *p)
{
    uint32_t n = 0;
    for (int i = 0; i < MOST_CHUNKS; i++)
        n += p->chunks[i].n_pages;
    return n;
}

/* ---- Chunks ---- */

static void drop_chunk(struct kv_pages *p, struct chunk *c)
{
    struct error e;
    assert(reserved_of(c) == 0);
    p->cuda->module->finish(
        p->cuda->stream,
        &e); /* queued work may still read its pages; a later call returns errors */
    cuda_device_release(p->cuda, CUDA_KV, c->memory, c->n_pages * p->page_bytes);
    c->memory = NULL;
    c->n_pages = c->n_free = 0;
}

static enum error_code add_chunk(struct kv_pages *p, struct chunk *c, uint32_t n, struct error *e)
{
    void *memory;
    enum error_code code = cuda_device_allocate(p->cuda, CUDA_KV, n * p->page_bytes, &memory, e);
    if (code)
        return code;
    c->memory = memory;
    c->n_pages = c->n_free = n;
    c->leaves = false;
    for (uint32_t i = 0; i < n; i++)
        c->free[i] = n - 1 - i;
    return ERROR_OK;
}

/* True: a is released before b. */
static bool leaves_before(const struct chunk *a, const struct chunk *b)
{
    if (reserved_of(a) != reserved_of(b))
        return reserved_of(a) < reserved_of(b);
    return a->n_pages < b->n_pages;
}

static void shrink(struct kv_pages *p)
{
    uint32_t stay = allocated(p);
    for (int i = 0; i < MOST_CHUNKS; i++)
        p->chunks[i].leaves = false;
    while (stay > p->aim) {
        struct chunk *first = NULL;
        for (struct chunk *c = p->chunks; c < p->chunks + MOST_CHUNKS; c++)
            if (c->memory && !c->leaves && (!first || !leaves_before(first, c)))
                first = c;
        stay -= first->n_pages;
        first->leaves = true;
        if (reserved_of(first) == 0)
            drop_chunk(p, first);
    }
}

static struct chunk *empty_chunk(struct kv_pages *p)
{
    for (struct chunk *c = p->chunks; c < p->chunks + MOST_CHUNKS; c++)
        if (!c->memory)
            return c;
    return NULL;
}

static enum error_code grow(struct kv_pages *p, struct error *e)
{
    uint32_t had = allocated(p), have = had;
    struct error ignored;
    for (struct chunk *c = p->chunks; c < p->chunks + MOST_CHUNKS && have < p->aim; c++)
        if (c->memory && c->n_pages < p->chunk_pages && reserved_of(c) == 0) {
            have -= c->n_pages;
            drop_chunk(p, c);
        }
    for (struct chunk *c; have < p->aim && (c = empty_chunk(p)) != NULL; have += c->n_pages) {
        uint32_t left = p->aim - have;
        enum error_code code = add_chunk(p, c, left < p->chunk_pages ? left : p->chunk_pages, e);
        if (code && have < had) { /* no fewer pages than before */
            uint32_t lost = had - have;
            add_chunk(p, c, lost < p->chunk_pages ? lost : p->chunk_pages, &ignored);
        }
        if (code)
            return code;
    }
    return ERROR_OK;
}

static void settle(struct kv_pages *p)
{
    struct error e;
    shrink(p);
    bool failed = grow(p, &e) != ERROR_OK;
    if (failed && !p->failed)
        log_warn("the KV cache has %.2f GB of %.2f: %s",
                 (double)allocated(p) * (double)p->page_bytes * 1e-9,
                 (double)p->aim * (double)p->page_bytes * 1e-9, e.text);
    else if (!failed && p->failed)
        log_info("the KV cache has all of its memory: %.2f GB",
                 (double)allocated(p) * (double)p->page_bytes * 1e-9);
    p->failed = failed;
}

static uint32_t pages_in(const struct kv_pages *p, uint64_t bytes)
{
    return bytes / p->page_bytes < p->n ? (uint32_t)(bytes / p->page_bytes) : p->n;
}

/* ---- The pool ---- */

enum error_code kv_pages_new(struct cuda_device *cuda, uint64_t page_bytes, uint32_t n,
                             uint64_t bytes, struct kv_pages **out, struct error *e)
{
    struct kv_pages *p = calloc(1, sizeof *p);
    if (p) {
        p->cuda = cuda;
        p->page_bytes = page_bytes;
        p->n = n;
        p->aim = pages_in(p, bytes);
        p->chunk_pages = pages_a_chunk(page_bytes, n);
        p->free = calloc((size_t)MOST_CHUNKS * p->chunk_pages, sizeof *p->free);
    }
    if (!p || !p->free) {
        kv_pages_free(p);
        return error_set(e, ERROR_MEMORY, "no memory for the table of the KV cache's pages");
    }
    for (size_t i = 0; i < MOST_CHUNKS; i++)
        p->chunks[i].free = p->free + i * p->chunk_pages;
    enum error_code code = grow(p, e);
    if (code) {
        kv_pages_free(p);
        return code;
    }
    *out = p;
    return ERROR_OK;
}

void kv_pages_free(struct kv_pages *p)
{
    if (!p)
        return;
    for (struct chunk *c = p->chunks; c < p->chunks + MOST_CHUNKS; c++)
        if (c->memory)
            cuda_device_release(p->cuda, CUDA_KV, c->memory, c->n_pages * p->page_bytes);
    free(p->free);
    free(p);
}

static uint32_t free_pages(const struct kv_pages *p)
{
    uint32_t n = 0;
    for (int i = 0; i < MOST_CHUNKS; i++)
        n += p->chunks[i].leaves ? 0 : p->chunks[i].n_free;
    return n;
}

bool kv_pages_reserve(struct kv_pages *p, uint32_t n, uint64_t *out)
{
    if (free_pages(p) < n && p->failed)
        settle(p); /* the device may have free memory now */
    if (free_pages(p) < n)
        return false;
    for (struct chunk *c = p->chunks; n > 0; c++)
        for (; n > 0 && !c->leaves && c->n_free > 0; n--)
            *out++ = (uint64_t)(uintptr_t)(c->memory + c->free[--c->n_free] * p->page_bytes);
    return true;
}

static void release_page(struct kv_pages *p, uint64_t page)
{
    for (struct chunk *c = p->chunks; c < p->chunks + MOST_CHUNKS; c++) {
        uint64_t at = page - (uint64_t)(uintptr_t)c->memory;
        if (c->memory && at < c->n_pages * p->page_bytes) {
            assert(c->n_free < c->n_pages);
            c->free[c->n_free++] = (uint32_t)(at / p->page_bytes);
            return;
        }
    }
    assert(!"a page of no chunk");
}

void kv_pages_release(struct kv_pages *p, const uint64_t *pages, uint32_t n)
{
    for (uint32_t i = n; i > 0; i--)
        release_page(p, pages[i - 1]);
    if (n > 0 && allocated(p) != p->aim)
        settle(p);
}

void kv_pages_resize(struct kv_pages *p, uint64_t bytes)
{
    p->aim = pages_in(p, bytes);
    settle(p);
}

struct kv_pages_use kv_pages_use(const struct kv_pages *p)
{
    uint32_t have = allocated(p);
    struct kv_pages_use use = {.free = free_pages(p),
                               .most = p->aim,
                               .lacks_memory = p->failed,
                               .bytes = (have > p->aim ? have : p->aim) * p->page_bytes};
    for (int i = 0; i < MOST_CHUNKS; i++)
        use.reserved += reserved_of(&p->chunks[i]);
    return use;
}
