/* The KV pool: the pages of keys and values of all conversations, in one shared region that memd
 * makes and owns, so that they survive the workers:
 *
 *     header | worker entries [KV_POOL_WORKERS] | words [n_pages] | records | pages
 *
 * A page holds the keys and values of KV_POOL_TOKENS adjacent positions, in a layout that is the
 * workers'. Its record says which tokens these are and which page they continue, so a chain of
 * pages is a conversation, and pages that several conversations begin with are there once. Its word
 * says who uses it (ipc/kv_page.h).
 *
 * Where a model's layers are in several groups (model/kv_layout.h), these are the pages of group 0.
 * The same positions may have a page of each other group; its record has the same tokens and
 * continues the same page of group 0.
 *
 * The workers write; memd and tools read. A worker that dies at any instant leaves every record
 * with a valid prefix of its page: keys and values of a position are written before its token, the
 * token before `n` (release). memd then frees what the worker used (kv_pool_forget).
 *
 * A worker reads the records that others wrote as untrusted input (worker/kv/page_tree.h). */
#ifndef MOED_IPC_KV_POOL_H
#define MOED_IPC_KV_POOL_H

#include "base/error.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define KV_POOL_MAGIC          0x4c4f4f50564b4f4dull
#define KV_POOL_LAYOUT_VERSION 3u
#define KV_POOL_ALIGN          4096u
#define KV_POOL_MAX_PAGES      (1u << 24)

enum { KV_POOL_TOKENS = 64 };  /* positions of a page */
enum { KV_POOL_WORKERS = 16 }; /* that can use the pool at once */
#define KV_POOL_NO_PAGE UINT32_MAX

struct kv_pool_header {
    uint64_t magic;
    uint32_t layout_version;
    uint32_t n_pages;
    uint64_t page_bytes; /* a multiple of KV_POOL_ALIGN */
    uint64_t pages_offset;
    uint64_t generation; /* of the weights */
    /* Any worker: counts pages that were filled, left, taken over or freed. */
    _Alignas(64) _Atomic uint64_t changes;
    _Atomic uint64_t last_evicted; /* any worker: the largest value of a page that was evicted */
    _Atomic uint64_t
        cleared; /* any worker: how often one was told to drop all (moed cache --clear) */
};
_Static_assert(sizeof(struct kv_pool_header) == 128, "shared layout");

enum kv_worker_state { KV_WORKER_STARTS, KV_WORKER_SERVES, KV_WORKER_LEAVES };

/* What a worker is and has to do. `pid` is memd's, the rest is the worker's own. */
struct kv_pool_worker {
    _Alignas(64) _Atomic uint64_t pid; /* 0: the entry is free */
    _Atomic uint32_t running, waiting; /* requests */
    _Atomic uint32_t state;            /* enum kv_worker_state */
    uint32_t pad;
    /* Since when its first request waits for pages of the pool (clock_ns, 0: none does), and when
     * it last said so. */
    _Atomic uint64_t waits_since_ns, waits_seen_ns;
};
_Static_assert(sizeof(struct kv_pool_worker) == 64, "shared layout");

/* All fields may be read while they change. */
struct kv_page_record {
    _Atomic uint64_t format;            /* how the page was computed; the worker's */
    _Atomic uint64_t parent_generation; /* of the content that it continues; 0: it begins a
                                           conversation */
    _Atomic uint32_t parent;            /* the page with that content; KV_POOL_NO_PAGE: none */
    _Atomic uint32_t depth;             /* pages before it */
    _Atomic uint32_t kind;              /* enum kv_kind of worker/kv/prefix_cache.h */
    _Atomic uint32_t n;       /* its first n positions are valid; 0 while the page has no content */
    _Atomic uint64_t cost_ns; /* what computing it took */
    _Atomic uint64_t value;   /* of eviction; any worker that uses the page */
    _Atomic uint64_t used_s;  /* wall-clock seconds of its last use; likewise */
    _Atomic uint32_t group;   /* of layers */
    _Atomic uint32_t kept;    /* groups after 0: of use when the conversation goes on; else only
                                 while its request runs; any worker that uses the page */
    _Atomic uint32_t tokens[KV_POOL_TOKENS];
};
_Static_assert(sizeof(struct kv_page_record) == 320, "shared layout");

/* A mapped region; checked copies of the header's fields. */
struct kv_pool {
    struct kv_pool_header *header;  /* NULL: no pool */
    struct kv_pool_worker *workers; /* [KV_POOL_WORKERS] */
    _Atomic uint64_t *words;        /* [n_pages]; ipc/kv_page.h */
    struct kv_page_record *records;
    uint8_t *pages;
    uint32_t n_pages;
    uint64_t page_bytes;
    uint64_t generation;
};

static inline uint8_t *kv_pool_page(const struct kv_pool *p, uint32_t page)
{
    return p->pages + page * p->page_bytes;
}

/* Bytes of a region; UINT64_MAX: more than can be counted. */
uint64_t kv_pool_bytes(uint32_t n_pages, uint64_t page_bytes);
/* The number of pages in a region of at most `bytes`. */
uint32_t kv_pool_pages_in(uint64_t bytes, uint64_t page_bytes);

/* memd: lays out the zeroed region; all pages are free. */
void kv_pool_init(void *memory, uint32_t n_pages, uint64_t page_bytes, uint64_t generation);
/* ERROR_PROTOCOL, ERROR_VERSION: the header is not one of ours, or does not fit into `bytes`. */
enum error_code kv_pool_attach(struct kv_pool *p, void *memory, size_t bytes, struct error *e);

/* memd: gives a worker an entry, which is its number; -1: all are taken. */
int kv_pool_join(struct kv_pool *p, pid_t pid);
/* memd: the worker's process, and what its device still does for it, has ended: frees its entry and
 * all that it used. */
void kv_pool_forget(struct kv_pool *p, uint32_t worker);

/* Any process, at any time; a page that changes meanwhile may be counted either way. */
struct kv_pool_use {
    uint32_t pages, pages_used;
    uint32_t pages_in_use; /* by running requests */
    uint64_t tokens;       /* valid positions of used pages of group 0 */
};
struct kv_pool_use kv_pool_use(const struct kv_pool *p);

#endif
