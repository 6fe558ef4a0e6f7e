/* The log's line about pages; see pages_log.h. */
#include "memd/load/pages_log.h"

#include "base/log.h"
#include "base/machine_memory.h"

void pages_log(const char *what, const struct shm *region, enum shm_pages pages)
{
    double gb = (double)region->bytes * 1e-9;
    if (pages == SHM_PAGES_RESERVED)
        log_info("%s: %.2f GB in reserved huge pages", what, gb);
    else if (pages == SHM_PAGES_TRANSPARENT)
        log_info("%s: %.2f of %.2f GB in transparent huge pages", what,
                 (double)memory_huge_bytes(region->base) * 1e-9, gb);
    else
        log_info("%s: %.2f GB in ordinary pages; huge ones are loaded faster "
                 "(docs/operations.md)",
                 what, gb);
}
