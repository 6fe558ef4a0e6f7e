/* The log's line about the pages of memory for weights, which matter to the speed of reading it. */
#ifndef MOED_MEMD_LOAD_PAGES_LOG_H
#define MOED_MEMD_LOAD_PAGES_LOG_H

#include "ipc/shm.h"

/* What: "host pool". Call it when the region has its pages. */
void pages_log(const char *what, const struct shm *region, enum shm_pages pages);

#endif
