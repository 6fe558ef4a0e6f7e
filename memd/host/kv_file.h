/* Conversations in a file, so that they outlive memd: pages of keys and values with the tokens that
 * they stand for, in slots of one size:
 *
 *     block: header | slot: block with a record, page | slot ...
 *
 * The record is written after its page, and both have checksums. So a file that a crash, a full
 * disk or another program damaged loses the damaged pages and nothing else. If all slots are used,
 * the page that was used longest ago goes, of those that no other page of the file continues: a
 * page whose predecessor is missing is of no use. Times are of the wall clock. A page whose time is
 * more than an hour ahead of it counts as the one that was used longest ago.
 *
 * Threads: one at a time; other processes read the index (ipc/kv_store.h). */
#ifndef MOED_MEMD_HOST_KV_FILE_H
#define MOED_MEMD_HOST_KV_FILE_H

#include "gguf/gguf.h"
#include "ipc/kv_store.h"
#include "ipc/shm.h"

struct kv_file {
    bool is_open;
    int fd;            /* locked; -1: not open */
    int read_fd;       /* the same file, read-only; to lend */
    struct shm region; /* the index; to lend */
    struct kv_store index;
    void *copy;          /* of the page that is written */
    uint64_t *continued; /* [continued_mask + 1]: a table of the keys that pages continue */
    uint32_t continued_mask;
    _Atomic uint32_t n_used;  /* slots in use */
    _Atomic bool failed;      /* the last write of a page failed: none is written until retry_ns */
    uint64_t retry_ns;        /* clock_ns */
    uint32_t pause_s;         /* before that */
    _Atomic uint64_t written; /* pages, since it was opened */
};

struct kv_file_options {
    const char *dir;  /* exists */
    uint64_t model;   /* names the file */
    uint64_t version; /* of all else that its pages depend on: another one's pages are dropped */
    uint64_t page_bytes;
    uint64_t most_bytes; /* of the file; at least one slot */
};

/* Opens the file of this model, or makes it. A file that is not one of ours is set aside as
 * FILE.bad. ERROR_EXISTS: another deployment uses it. ERROR_IO, ERROR_MEMORY, ERROR_USAGE. */
enum error_code kv_file_open(struct kv_file *f, const struct kv_file_options *options,
                             struct error *e);
void kv_file_close(struct kv_file *f); /* a zeroed one: no effect */

/* False: a write has failed, and the next attempt is not due. The first one follows after a minute,
 * later ones after twice the time, up to an hour. */
bool kv_file_writes(const struct kv_file *f);
/* The next attempt is due now. */
void kv_file_retry(struct kv_file *f);

/* The slot with this key; UINT32_MAX: none. */
uint32_t kv_file_find(const struct kv_file *f, uint64_t parent_key, uint64_t key);
/* Writes a page. Sets its checksum, and sets its time to now if that is more than an hour ahead.
 * Others may write `memory` meanwhile: it is read once. still_valid (may be NULL): called after
 * that; false: the bytes are not those of `page`, and nothing is kept. */
void kv_file_put(struct kv_file *f, struct kv_store_page *page, const void *memory,
                 bool (*still_valid)(void *arg), void *arg);
/* The page in a slot was used at this time. A time before the page's is ignored, unless the page's
 * is more than an hour ahead. */
void kv_file_touch(struct kv_file *f, uint32_t slot, uint64_t used_s);
/* Drops all pages, and their bytes. */
void kv_file_clear(struct kv_file *f);

/* What a model's file takes on the disk now; 0: there is none. */
uint64_t kv_file_disk_bytes(const char *dir, uint64_t model);

/* The identity of a model: of each of its files the length, when it was written, and bytes from all
 * parts of it. */
enum error_code kv_file_model(const struct gguf *g, uint64_t *out, struct error *e);

#endif
