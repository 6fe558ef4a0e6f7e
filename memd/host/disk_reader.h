/* Reads experts from the model file and packs them as they lie in memory. Each lane is a thread
 * (`memd/read`) that reads one expert at a time: it submits the reads of all the expert's chunks at
 * once through io_uring, past the page cache where the file system allows that, and packs each
 * chunk as it comes. Where io_uring is not permitted, a lane reads the chunks one after the other.
 * A read is of DISK_PIECE_BYTES at most, so that a slow disk shows that it goes on.
 *
 * The lanes know nothing of slots and tables. One thread, the owner, submits experts and takes
 * results. */
#ifndef MOED_MEMD_HOST_DISK_READER_H
#define MOED_MEMD_HOST_DISK_READER_H

#include "base/error.h"
#include "ipc/doorbell.h"
#include "gguf/gguf.h"
#include "model/tier_plan.h"

#include <stdatomic.h>
#include <stdbool.h>

struct disk_reader;

enum { DISK_LANES = TIER_READERS, DISK_PIECE_BYTES = 2 << 20 };

struct disk_result {
    uint32_t layer, expert;
    /* Not OK: `error` says why, and has been logged, but for all but one in ten seconds; the target
     * holds anything. ERROR_FORMAT: another read does not help. */
    enum error_code code;
    struct error error;
    uint64_t bytes;   /* read from the file */
    uint64_t read_ns; /* until all bytes were read and packed */
};

/* Called once, on a lane's thread: the model file is not what it was. Either the kernel says that
 * it was written or cut since it was opened, or an expert's bytes differ from those that were read
 * first (a checksum). The expert that was being read is a failed read. */
typedef void disk_file_changed(void *arg, const struct error *e);

struct disk_reader_options {
    const struct gguf *g;
    const struct pool_plan *plan;
    struct doorbell *bell;      /* rung after each result */
    _Atomic uint64_t *pieces;   /* counts the reads that have returned bytes */
    disk_file_changed *changed; /* NULL, or as above */
    void *changed_arg;
};
/* Borrows what the options point to until it is freed. */
enum error_code disk_reader_new(const struct disk_reader_options *options, struct disk_reader **out,
                                struct error *e);
void disk_reader_free(struct disk_reader *r); /* takes NULL; waits for the reads under way */

uint32_t disk_reader_idle(struct disk_reader *r); /* lanes without a read and without a result */
/* There must be an idle lane. to: space for the layer's slab; the lane's until the result is taken.
 * new_bytes: the lane first makes the pages of so many bytes there; ERROR_MEMORY: there are too
 * few.
 */
void disk_reader_submit(struct disk_reader *r, uint32_t layer, uint32_t expert, uint8_t *to,
                        uint64_t new_bytes);
bool disk_reader_take(struct disk_reader *r, struct disk_result *out); /* false: none */

#endif
