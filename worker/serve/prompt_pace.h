/* How many rows of prompts a batch may have while answers wait for it.
 *
 * A batch's time is a part that every batch takes, such as to bring the experts that the device
 * lacks, and a part for each row. The line through the recent batches gives both. Pure. */
#ifndef MOED_WORKER_SERVE_PROMPT_PACE_H
#define MOED_WORKER_SERVE_PROMPT_PACE_H

#include <stdint.h>

/* Zeroed: no batch yet. Sums over the batches; a batch counts 7/8 of the next one. */
struct prompt_pace {
    double batches, rows, rows_rows, ns, rows_ns;
};

void prompt_pace_add(struct prompt_pace *p, uint32_t rows, double ns);
/* The most rows that take at most stall_ns, from least to most. `most` where no batch is known, and
 * where any batch takes more than half of stall_ns: fewer rows would only make more batches. */
uint32_t prompt_pace_rows(const struct prompt_pace *p, double stall_ns, uint32_t least,
                          uint32_t most);

#endif
