/* Who uses a page of the KV pool: its word, which workers change by compare-and-swap. No function
 * here waits. tests/model/pages.pml checks the protocol.
 *
 *     bits 24-63 generation   odd: the page has a content; each content has another generation
 *          16-23 writer       0, or the number + 1 of the worker that may write page and record
 *           0-15 pins         bit w: worker w uses the content, which stays
 *
 *     free     even, no writer               kv_page_claim -> claimed
 *     claimed  even, a writer, n is 0        kv_page_begin -> written, kv_page_release -> free
 *     written  odd, a writer                 kv_page_finish -> resting
 *     resting  odd, no writer                kv_page_take_over -> written
 *                                            kv_page_claim, where there are no pins -> claimed
 *
 * Reading a page:
 *  - With a pin the content stays, and grows only behind its first `n` positions.
 *  - Without one, a reader loads the word (kv_page_word), then `n`, then the fields that it wants,
 *    and believes them if n was not 0 and kv_page_is_still says that the generation is the same. */
#ifndef MOED_IPC_KV_PAGE_H
#define MOED_IPC_KV_PAGE_H

#include "ipc/kv_pool.h"

#define KV_PAGE_PINS             0xffffull
#define KV_PAGE_WRITER_SHIFT     16
#define KV_PAGE_WRITER           (0xffull << KV_PAGE_WRITER_SHIFT)
#define KV_PAGE_GENERATION_SHIFT 24
_Static_assert(KV_POOL_WORKERS <= 16, "a pin for each worker");

static inline uint64_t kv_page_generation(uint64_t word)
{
    return word >> KV_PAGE_GENERATION_SHIFT;
}
static inline bool kv_page_has_content(uint64_t word)
{
    return kv_page_generation(word) % 2 != 0;
}
/* True for a free page, and for a content that nobody uses. */
static inline bool kv_page_is_idle(uint64_t word)
{
    return (word & (KV_PAGE_PINS | KV_PAGE_WRITER)) == 0;
}
static inline bool kv_page_has_writer(uint64_t word)
{
    return (word & KV_PAGE_WRITER) != 0;
}

uint64_t kv_page_word(const struct kv_pool *p, uint32_t page);
/* Call it after the fields were read. */
bool kv_page_is_still(const struct kv_pool *p, uint32_t page, uint64_t generation);

/* Claims a free page, or one whose content `word` nobody uses, which is evicted. False: the word is
 * another by now, or the page is used. */
bool kv_page_claim(const struct kv_pool *p, uint32_t worker, uint32_t page, uint64_t word);
/* Of a page that the worker has claimed: it has a content from now on, of which the worker is the
 * writer and has a pin. Returns its generation. */
uint64_t kv_page_begin(const struct kv_pool *p, uint32_t worker, uint32_t page);
/* Of a page that the worker has claimed: it is free. */
void kv_page_release(const struct kv_pool *p, uint32_t page);

/* The worker has no pin of the page. False: the content has gone. */
bool kv_page_pin(const struct kv_pool *p, uint32_t worker, uint32_t page, uint64_t generation);
void kv_page_unpin(const struct kv_pool *p, uint32_t worker, uint32_t page);
/* The worker has a pin. False: there is a writer. */
bool kv_page_take_over(const struct kv_pool *p, uint32_t worker, uint32_t page);
/* The worker is the writer, and writes no more. */
void kv_page_finish(const struct kv_pool *p, uint32_t page);

/* Copies a page's bytes, a multiple of 8, while another worker may write behind the positions that
 * count. */
void kv_page_copy(uint8_t *to, const uint8_t *from, uint64_t bytes);

/* memd: the worker writes no more and reads no more. */
void kv_page_forget(const struct kv_pool *p, uint32_t worker, uint32_t page);

#endif
