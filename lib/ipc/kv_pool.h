/* The KV pool: the pages of keys and values of all conversations, in one shared region that memd
 * makes and owns, so that they survive the worker:
 *
 *     header | records [n_pages] | pages [n_pages]
 *
 * A page holds the keys and values of KV_POOL_TOKENS adjacent positions, in a layout that is the
 * worker's. Its record says which tokens these are and which page they continue, so a chain of
 * pages is a conversation, and pages that several conversations begin with are there once.
 *
 * Where a model's layers are in several groups (model/kv_layout.h), these are the pages of group 0.
 * The same positions may have a page of each other group; its record has the same tokens and
 * continues the same page of group 0.
 *
 * The worker writes; memd and tools read counts. A worker that dies at any instant leaves every
 * record with a valid prefix of its page:
 *   - keys and values of a position are written before its token, the token before `n` (release);
 *   - a page is free (serial 0, release) before its record is used again, and its new serial is
 *     stored (release) after the record's other fields.
 * The next worker reads the records, drops what continues a page that is gone, and has the
 * conversations (worker/kv/prefix_cache.h). It must not trust them more than other input. */
#ifndef MOED_IPC_KV_POOL_H
#define MOED_IPC_KV_POOL_H

#include "base/error.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define KV_POOL_MAGIC          0x4c4f4f50564b4f4dull
#define KV_POOL_LAYOUT_VERSION 2u
#define KV_POOL_ALIGN          4096u
#define KV_POOL_MAX_PAGES      (1u << 24)

enum { KV_POOL_TOKENS = 64 }; /* positions of a page */
#define KV_POOL_NO_PAGE UINT32_MAX

struct kv_pool_header {
    uint64_t magic;
    uint32_t layout_version;
    uint32_t n_pages;
    uint64_t page_bytes; /* a multiple of KV_POOL_ALIGN */
    uint64_t pages_offset;
    uint64_t generation; /* of the weights */
    /* What the worker's pages look like: a worker that would write others frees all first. */
    _Alignas(64) _Atomic uint64_t format;
    _Atomic uint64_t owner;   /* the process that writes; 0, or one that has ended: none does */
    _Atomic uint64_t cleared; /* how often the worker was told to drop all (moed cache --clear) */
};
_Static_assert(sizeof(struct kv_pool_header) == 128, "shared layout");

struct kv_page_record {
    _Atomic uint64_t serial; /* of its content, from 1; 0: free */
    uint64_t parent_serial;  /* 0: the page begins a conversation */
    uint32_t parent;         /* the page before it; KV_POOL_NO_PAGE: none */
    uint32_t depth;          /* pages before it */
    uint32_t kind;           /* enum kv_kind of worker/kv/prefix_cache.h */
    _Atomic uint32_t n;      /* its first n positions are valid */
    uint64_t cost_ns;        /* what computing it took */
    _Atomic uint64_t used_s; /* wall-clock seconds of its last use */
    uint32_t group;          /* of layers */
    _Atomic uint32_t kept;   /* groups after 0: of use when the conversation goes on; else only
                                while its request runs */
    uint64_t pad;
    uint32_t tokens[KV_POOL_TOKENS];
};
_Static_assert(sizeof(struct kv_page_record) == 320, "shared layout");

/* A mapped region; checked copies of the header's fields. */
struct kv_pool {
    struct kv_pool_header *header; /* NULL: no pool */
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

/* The worker, before it writes: makes this process the owner. False: another process is. */
bool kv_pool_own(struct kv_pool *p);

/* Any process, at any time; a page that changes meanwhile may be counted either way. */
struct kv_pool_use {
    uint32_t pages, pages_used;
    uint64_t tokens; /* valid positions of used pages of group 0 */
};
struct kv_pool_use kv_pool_use(const struct kv_pool *p);

#endif
