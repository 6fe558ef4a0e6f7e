/* The prefix cache: which tokens' keys and values the KV pool holds, as a tree of pages
 * (page_tree.h) that all workers of the pool share. A running request has a path: the pages of its
 * tokens, from the root. A new request's path begins with the longest prefix that is there. If the
 * request cannot share a page, because it diverges inside the page or another request extends it,
 * the cache copies the page. Pages stay in the tree when their request ends, until their memory is
 * needed.
 *
 * Windows: layers with a window have pages of their own (model/kv_layout.h), the windowed pages of
 * the same positions. A path holds those that its next position attends to, and leaves the others
 * behind as it goes on; a new path begins where it finds the pages of a whole window. So the prefix
 * that is found can be shorter than the prefix whose other pages are there.
 *
 * Eviction: the page whose loss costs least, among the leaves that no worker's path has. A page's
 * value is the time that computing it took, plus the value of the last page evicted when it was
 * last used (GreedyDual: the value of a page that is seldom used falls behind; Young, "The k-server
 * dual and loose competitiveness for paging", 1994). Before that go the windowed pages that a path
 * has left behind, but for those at places where another path is likely to begin (kv_path.kept),
 * and what no path can begin after.
 *
 * A passing request only reads a prompt, as those for log-probabilities do. No conversation needs
 * what it leaves: its pages are worth nothing until another request uses them.
 *
 * Keys and values have the same bits only if they were computed in the same way. enum kv_kind names
 * the ways. A path takes only pages of the kinds that computing its prompt again would give, so an
 * answer has the same bits from a warm cache and from a cold one.
 *
 * Threads: only the engine's. Nothing here allocates after prefix_cache_new. */
#ifndef MOED_WORKER_KV_PREFIX_CACHE_H
#define MOED_WORKER_KV_PREFIX_CACHE_H

#include "base/heartbeat.h"
#include "ipc/kv_store.h"

#include <stdbool.h>
#include <stdint.h>

/* How positions were computed.
 * KV_DEFINED: by the definition (kernels/kernels.h), whatever the batch.
 * The others: a whole aligned group of positions of one prompt, computed by itself where products
 * may round otherwise (exec/row_groups.h). A prompt is cut into as many large groups as it has,
 * then small ones, then the rest, which is KV_DEFINED as answers are. */
enum kv_kind { KV_DEFINED, KV_SMALL_GROUP, KV_LARGE_GROUP };
enum { KV_SMALL_TOKENS = KV_POOL_TOKENS, KV_LARGE_TOKENS = 4 * KV_POOL_TOKENS };

/* The kind of a position of a prompt of n_prompt tokens. exact: the model and the options leave no
 * product that rounds otherwise, so all is KV_DEFINED. */
enum kv_kind kv_kind_of(uint32_t position, uint32_t n_prompt, bool exact);

/* Of the first n positions of two prompts, with a and b tokens: how many both compute in the same
 * way. */
uint32_t kv_same_kinds(uint32_t n, uint32_t a, uint32_t b, bool exact);

struct prefix_cache;

/* Positions behind which another path is likely to begin: from `first` to `end`; 0, 0: none. */
struct kv_kept {
    uint32_t first, end;
};
enum { KV_PATH_KEPT = 2 };

/* A prefix that is looked for: tokens[0, n), of a prompt of n_prompt tokens, which decides the
 * kinds. salt: pages are found by prefixes of the same salt alone. */
struct kv_prefix {
    const uint32_t *tokens;
    uint32_t n, n_prompt;
    uint64_t salt; /* 0: none */
};

/* How the pages of a path come from the store. The caller sets later and most_ns. */
struct kv_reading {
    bool later;       /* prefix_cache_open reads nothing */
    uint64_t most_ns; /* how long it may read, but for one page; 0: no limit */
    bool more;        /* it ended at one of these: to go on, close the path and open it again */
    uint64_t spent_ns, saved_ns; /* of all calls; saved: what computing the pages took */
    uint32_t n_saved;            /* positions of the pages in saved_ns */
};

/* Pages of a running request. The caller owns the array, and sets kept, the salt and passing. */
struct kv_path {
    uint32_t *pages; /* [capacity] */
    uint32_t n_pages, capacity;
    uint64_t salt;    /* of its prefix; from before its first page on */
    bool passing;     /* no conversation goes on from it; from before its first page on */
    uint32_t n;       /* valid positions */
    uint32_t n_found; /* pages that it began with */
    /* Of the pages [first_windowed, n_windowed) it has windowed pages, too. */
    uint32_t first_windowed, n_windowed;
    /* Windowed pages at once, for a path of unknown tokens (prefix_cache_pass); 0: all. */
    uint32_t window_pages;
    struct kv_kept kept[KV_PATH_KEPT];
    struct kv_reading reading;
};

struct prefix_cache_options {
    struct kv_pool pool; /* its region must stay mapped */
    uint32_t worker;     /* this one's number (kv_pool_join) */
    uint64_t format;     /* of this worker's pages; it finds no others */
    uint32_t vocab;      /* records with other tokens are dropped */
    bool exact;          /* see kv_kind_of */
    uint32_t n_windowed; /* windowed pages of the same positions: groups after 0; 0: none */
    uint32_t window;     /* of those layers: positions that one attends to, its own included */
    struct kv_store
        store; /* pages in a file, which a path that needs them reads; header NULL: none */
    struct heartbeat *heartbeat; /* of the calling thread: beats at each page read; NULL: none */
};

/* Reads the pool's records. */
enum error_code prefix_cache_new(const struct prefix_cache_options *options,
                                 struct prefix_cache **out, struct error *e);
void prefix_cache_free(struct prefix_cache *c); /* all paths are closed; takes NULL */

/* How many positions prefix_cache_open would find. known: of how many the pages but for windowed
 * ones are there; may be NULL. */
uint32_t prefix_cache_find(struct prefix_cache *c, const struct kv_prefix *prefix, uint32_t *known);

/* A number that changes when any worker fills, leaves or frees a page. Until then prefix_cache_find
 * finds no page more than it did, but maybe a part of one that is being filled. */
uint64_t prefix_cache_changes(const struct prefix_cache *c);

/* How many of the pages that prefix_cache_open would find are in use: the path gets them, and they
 * are not among prefix_cache_available. path: as for prefix_cache_open, which it stays. */
uint32_t prefix_cache_shareable(struct prefix_cache *c, const struct kv_prefix *prefix,
                                const struct kv_path *path);

/* Begins a path, which has no pages, with pages of the longest part of the prefix; the caller
 * passes fewer than all tokens of which it needs a result. path->salt is the prefix's. Reads pages
 * of the prefix that only the store has, as path->reading says. Sets path->n. */
void prefix_cache_open(struct prefix_cache *c, const struct kv_prefix *prefix,
                       struct kv_path *path);
/* Adds pages until the path has `positions`, with at most path->window_pages windowed ones at once.
 * False: no page is free, and none can be evicted; the pages added so far stay. */
bool prefix_cache_extend(struct prefix_cache *c, struct kv_path *path, uint32_t positions);
/* The positions from path->n to n - 1 have been computed, of these tokens (of the whole path), in
 * this way and time; their keys and values are in the pool's pages. Returns the first index whose
 * page is another now: one that had the same content already took its place. UINT32_MAX: none. */
uint32_t prefix_cache_fill(struct prefix_cache *c, struct kv_path *path, const uint32_t *tokens,
                           uint32_t n, enum kv_kind kind, uint64_t ns);
/* All positions before this one have been computed: leaves windowed pages behind that no later
 * position attends to. Where the tokens are not known (nothing was filled), they serve positions
 * further on that have none yet. True: path->first_windowed or n_windowed has changed. */
bool prefix_cache_pass(struct prefix_cache *c, struct kv_path *path, uint32_t position);
/* The request has ended. A page without valid positions is free then. */
void prefix_cache_close(struct prefix_cache *c, struct kv_path *path);

/* Pages that are free, or could be evicted now or as their descendants are: those that no worker
 * uses. */
uint32_t prefix_cache_available(const struct prefix_cache *c);

/* Drops all pages that no path has; returns how many. */
uint32_t prefix_cache_clear(struct prefix_cache *c);

/* The memory of a page's positions in a group of layers; a windowed group's only while the page is
 * in a path that has it. */
uint8_t *prefix_cache_memory(const struct prefix_cache *c, uint32_t page, uint32_t group);
uint32_t prefix_cache_pages(const struct prefix_cache *c); /* of the pool */

struct prefix_cache_stats {
    uint32_t pages, free, in_use; /* in_use: in a path, of any worker */
    uint64_t page_bytes;
    /* of this worker: pages, since the start; shared: found computed twice */
    uint64_t evictions, copies, shared;
    uint32_t adopted;         /* pages that prefix_cache_new found */
    uint64_t windows_evicted; /* windowed pages of positions whose other page stayed */
    uint64_t restored;        /* pages read from the store */
};
struct prefix_cache_stats prefix_cache_stats(const struct prefix_cache *c);

/* The ends of the conversations: calls visit for each leaf, in no order. */
struct kv_leaf {
    uint32_t root;   /* the page that its path begins with */
    uint32_t tokens; /* of its whole path */
    uint64_t used_s;
    bool in_use;
};
void prefix_cache_visit(struct prefix_cache *c,
                        void (*visit)(void *arg, const struct kv_leaf *leaf), void *arg);
/* The tokens of a page; returns their number. */
uint32_t prefix_cache_tokens(const struct prefix_cache *c, uint32_t page,
                             uint32_t tokens[KV_POOL_TOKENS]);

#endif
