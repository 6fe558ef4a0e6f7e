/* The index of conversations in a file (memd/host/kv_file.h): which pages of keys and values the
 * file holds. memd makes and writes it; the worker maps it read-only, finds the pages that continue
 * a prefix, and reads them from the file:
 *
 *     header | parent keys [n_slots] | records [n_slots]
 *
 * A page's key stands for its tokens and all tokens before it: the key of the page before it,
 * hashed with its own kind and tokens. Keys depend on a random seed, so that nobody can write a
 * prompt that has another's key.
 *
 * A slot's record changes under a version: odd while it changes, so a reader copies the record and
 * uses the copy only if the version was even and is the same afterwards. The page may be another's
 * by the time it is read; its checksum tells. */
#ifndef MOED_IPC_KV_STORE_H
#define MOED_IPC_KV_STORE_H

#include "ipc/kv_pool.h"

#define KV_STORE_MAGIC          0x45524f54564b4f4dull
#define KV_STORE_LAYOUT_VERSION 1u
#define KV_STORE_GROUP_SHIFT    8          /* of a page's group in its kind */
#define KV_STORE_MAX_SLOTS      (1u << 16) /* a search looks at all parent keys */

/* A file's slot: a block with the record, and the page. The file's header has a block too. */
#define KV_STORE_BLOCK 4096u

struct kv_store_header {
    uint64_t magic;
    uint32_t layout_version, n_slots;
    uint64_t page_bytes, seed;
    _Atomic uint64_t cleared; /* kv_pool_header.cleared that the file has followed */
    uint64_t pad[3];
};
_Static_assert(sizeof(struct kv_store_header) == 64, "shared layout");

struct kv_store_page {
    uint64_t key, parent_key;
    uint32_t kind; /* the record's, and its group << KV_STORE_GROUP_SHIFT */
    uint32_t n;    /* valid positions */
    uint64_t cost_ns, used_s;
    uint64_t checksum; /* of the page's bytes */
    uint64_t depth;    /* pages before it */
    uint32_t tokens[KV_POOL_TOKENS];
};
_Static_assert(sizeof(struct kv_store_page) == 312, "shared layout");

struct kv_store_record {
    _Atomic uint64_t version;
    struct kv_store_page page;
};

struct kv_store {
    struct kv_store_header *header; /* NULL: no store */
    _Atomic uint64_t *parents;      /* 0: the slot is free */
    struct kv_store_record *records;
    uint32_t n_slots;
    uint64_t page_bytes, seed;
    int fd; /* of the file; borrowed */
};

uint64_t kv_store_bytes(uint32_t n_slots);
static inline uint64_t kv_store_offset(const struct kv_store *s, uint32_t slot)
{
    return KV_STORE_BLOCK + slot * (KV_STORE_BLOCK + s->page_bytes);
}

/* memd: lays out the zeroed region; all slots are free. */
void kv_store_init(void *memory, uint32_t n_slots, uint64_t page_bytes, uint64_t seed);
/* ERROR_PROTOCOL, ERROR_VERSION: the header is not one of ours, or does not fit into `bytes`. */
enum error_code kv_store_attach(struct kv_store *s, void *memory, size_t bytes, int fd,
                                struct error *e);

/* The key that the first page of a conversation continues. format: of the pages. Never 0. */
uint64_t kv_store_root_key(uint64_t seed, uint64_t format);
/* The key of a page with these n tokens. kind: the record's, with its group. Never 0. */
uint64_t kv_store_key(uint64_t parent_key, uint32_t kind, const uint32_t *tokens, uint32_t n);

/* memd: the slot has this page; NULL: none. */
void kv_store_set(struct kv_store *s, uint32_t slot, const struct kv_store_page *page);

/* The next slot from *slot on whose page continues parent_key; copies its record. False: there is
 * none. To go on, add 1 to *slot. */
bool kv_store_next(const struct kv_store *s, uint64_t parent_key, uint32_t *slot,
                   struct kv_store_page *out);
/* Reads a slot's page into page_bytes of memory. False: it cannot be read, or has other bytes. */
bool kv_store_read(const struct kv_store *s, uint32_t slot, const struct kv_store_page *page,
                   void *memory);

#endif
