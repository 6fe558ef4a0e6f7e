/* The thread memd/kv-file: writes the KV pool's pages to the conversations' file once they have
 * rested a moment, or when few pages are free, so that an eviction in the pool loses nothing; and
 * at memd's end what is left, parts of pages included. */
#ifndef MOED_MEMD_HOST_KV_SAVER_H
#define MOED_MEMD_HOST_KV_SAVER_H

#include "memd/host/kv_file.h"

struct kv_saver;

/* Borrows the file and the pool's region until kv_saver_free. */
enum error_code kv_saver_new(const struct kv_pool *pool, struct kv_file *file,
                             struct kv_saver **out, struct error *e);
/* Ends the thread, and saves what is left; takes NULL. */
void kv_saver_free(struct kv_saver *s);

/* One look at the pool; all: pages that have not rested, and parts of pages, too. For the thread,
 * and for tests without one. */
void kv_saver_scan(struct kv_saver *s, bool all);
/* Without the thread. */
enum error_code kv_saver_new_idle(const struct kv_pool *pool, struct kv_file *file,
                                  struct kv_saver **out, struct error *e);

#endif
