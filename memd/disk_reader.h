/* Reading experts from the model file, packed as they lie in memory: a few at a time, each by a thread of its own (a lane,
 * `memd/read`), which reads the expert's pieces all at once through io_uring, past the page cache where the file system
 * allows that, and packs each as it comes. Where io_uring is not permitted a lane reads them one after the other.
 *
 * The lanes know nothing of slots and tables: they get an expert and where to put it. One thread, the owner, submits and
 * takes results.
 */
#ifndef MOED_MEMD_DISK_READER_H
#define MOED_MEMD_DISK_READER_H

#include "base/error.h"
#include "ipc/doorbell.h"
#include "model/tier_plan.h"

struct disk_reader;

enum { DISK_LANES = TIER_READERS };

struct disk_result {
    uint32_t layer, expert;
    enum error_code code; /* not OK: the error has been logged; the target holds anything */
    uint64_t bytes;       /* read from the file */
    uint64_t read_ns;     /* until all of them had come and were packed */
};

/* Borrows all until it is freed. bell is rung after each result. */
enum error_code disk_reader_new(const struct gguf *g, const struct pool_plan *plan,
                                struct doorbell *bell, struct disk_reader **out, struct error *e);
void disk_reader_free(struct disk_reader *r); /* takes NULL; waits for what is under way */

uint32_t disk_reader_idle(struct disk_reader *r); /* lanes that have nothing to do, and no result */
/* There must be an idle lane. to: room for the layer's slab, which is the lane's until the result is taken. */
void disk_reader_submit(struct disk_reader *r, uint32_t layer, uint32_t expert, uint8_t *to);
bool disk_reader_take(struct disk_reader *r, struct disk_result *out); /* false: none */

#endif
