/* The word of a page; see kv_page.h.
 *
 * Orders: the changes of a word are acquire and release, so what a worker read or wrote under its
 * pin or claim stays between them. The loads and stores of seqlock readers have fences:
 *
 *     kv_page_begin: word (new generation), fence (release), fields, n (release)
 *     reader:        word (acquire), n (acquire), fields, fence (acquire), word
 *
 * A reader that sees a field of the new content sees its generation in the second look, too. */
#include "ipc/kv_page.h"

#define ONE_GENERATION (1ull << KV_PAGE_GENERATION_SHIFT)

static uint64_t writer_bits(uint32_t worker)
{
    return (uint64_t)(worker + 1) << KV_PAGE_WRITER_SHIFT;
}

static bool swap(const struct kv_pool *p, uint32_t page, uint64_t *seen, uint64_t word)
{
    return atomic_compare_exchange_strong_explicit(&p->words[page], seen, word,
                                                   memory_order_acq_rel, memory_order_acquire);
}

uint64_t kv_page_word(const struct kv_pool *p, uint32_t page)
{
    return atomic_load_explicit(&p->words[page], memory_order_acquire);
}

bool kv_page_is_still(const struct kv_pool *p, uint32_t page, uint64_t generation)
{
    atomic_thread_fence(memory_order_acquire);
    return kv_page_generation(atomic_load_explicit(&p->words[page], memory_order_relaxed)) ==
           generation;
}

static void empty(const struct kv_pool *p, uint32_t page)
{
    atomic_store_explicit(&p->records[page].n, 0, memory_order_release);
}

bool kv_page_claim(const struct kv_pool *p, uint32_t worker, uint32_t page, uint64_t word)
{
    uint64_t claimed = word | writer_bits(worker);
    if (kv_page_has_content(word))
        claimed += ONE_GENERATION;
    if (!kv_page_is_idle(word) || !swap(p, page, &word, claimed))
        return false;
    empty(p, page);
    return true;
}

uint64_t kv_page_begin(const struct kv_pool *p, uint32_t worker, uint32_t page)
{
    uint64_t word = atomic_load_explicit(&p->words[page], memory_order_relaxed);
    word += ONE_GENERATION | 1ull << worker; /* nobody else changes the word of a claimed page */
    atomic_store_explicit(&p->words[page], word, memory_order_release);
    atomic_thread_fence(memory_order_release);
    return kv_page_generation(word);
}

void kv_page_release(const struct kv_pool *p, uint32_t page)
{
    atomic_fetch_and_explicit(&p->words[page], ~KV_PAGE_WRITER, memory_order_release);
}

bool kv_page_pin(const struct kv_pool *p, uint32_t worker, uint32_t page, uint64_t generation)
{
    uint64_t word = kv_page_word(p, page);
    while (kv_page_generation(word) == generation && kv_page_has_content(word))
        if (swap(p, page, &word, word | 1ull << worker))
            return true;
    return false;
}

void kv_page_unpin(const struct kv_pool *p, uint32_t worker, uint32_t page)
{
    atomic_fetch_and_explicit(&p->words[page], ~(1ull << worker), memory_order_release);
}

bool kv_page_take_over(const struct kv_pool *p, uint32_t worker, uint32_t page)
{
    uint64_t word = kv_page_word(p, page);
    while (!kv_page_has_writer(word))
        if (swap(p, page, &word, word | writer_bits(worker)))
            return true;
    return false;
}

void kv_page_finish(const struct kv_pool *p, uint32_t page)
{
    atomic_fetch_and_explicit(&p->words[page], ~KV_PAGE_WRITER, memory_order_release);
}

/* What is written meanwhile may be torn, and does not count. */
#if defined(__SANITIZE_THREAD__)
__attribute__((no_sanitize("thread")))
#endif
void kv_page_copy(uint8_t *to, const uint8_t *from, uint64_t bytes)
{
    for (uint64_t i = 0; i < bytes; i += 8)
        *(uint64_t *)(void *)(to + i) =
            __atomic_load_n((const uint64_t *)(const void *)(from + i), __ATOMIC_RELAXED);
}

/* A content without positions is of no use to anybody, and a page that others may have pinned stays
 * until they are done. */
void kv_page_forget(const struct kv_pool *p, uint32_t worker, uint32_t page)
{
    uint64_t mine = writer_bits(worker), pin = 1ull << worker, word = kv_page_word(p, page);
    if ((word & KV_PAGE_WRITER) == mine && !kv_page_has_content(word)) {
        empty(p, page);
        kv_page_release(p, page);
        return;
    }
    while ((word & KV_PAGE_WRITER) == mine || (word & pin)) {
        uint64_t left = word & ~pin;
        if ((word & KV_PAGE_WRITER) == mine)
            left &= ~KV_PAGE_WRITER;
        if (swap(p, page, &word, left))
            break;
    }
}
