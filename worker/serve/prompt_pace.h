/* How many rows of prompts a batch may have while answers wait for it.
 *
 * A batch's time is a part that every batch takes, such as to bring the experts that the device
 * lacks, and a part for each row. The line through two batches of different sizes gives both. The
 * pace itself makes the batches alike, and the deeper a prompt, the more a row takes: batches of
 * one size, or of sizes that follow the depth, all take stall_ns and do not tell the two apart.
 * There the time is taken to grow with the rows. Pure. */
#ifndef MOED_WORKER_SERVE_PROMPT_PACE_H
#define MOED_WORKER_SERVE_PROMPT_PACE_H

#include <stdint.h>

enum { PROMPT_PACE_KEPT = 8 };

struct prompt_batch {
    uint32_t rows;
    double ns;
};

/* Zeroed: no batch yet. */
struct prompt_pace {
    struct prompt_batch batches[PROMPT_PACE_KEPT]; /* the last ones, the newest first */
};

/* rows: at least 1. */
void prompt_pace_add(struct prompt_pace *p, uint32_t rows, double ns);
/* The most rows that take at most stall_ns, from least to most; at most twice as many as in a batch
 * before. least: no batch has fewer, also if it is given fewer. Where any batch takes more than
 * half of stall_ns they grow to `most`: fewer rows would only make more batches. */
uint32_t prompt_pace_rows(const struct prompt_pace *p, double stall_ns, uint32_t least,
                          uint32_t most);

#endif
