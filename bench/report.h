/* The measurements of moed-bench, printed as a Markdown table or as JSON. */
#ifndef MOED_BENCH_REPORT_H
#define MOED_BENCH_REPORT_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#define MAX_RUNS 1000
#define MAX_ROWS 64

/* One quantity, one value a run. */
struct samples {
    double values[MAX_RUNS];
    uint32_t n;
};

/* One kind of request, measured in every run. */
struct row {
    uint32_t prompt_tokens, streams;
    struct samples prefill, decode; /* tokens a second; prefill is empty with several streams */
    bool failed;                    /* not measured any more */
    bool drafts_accepted;           /* in some run */
};

struct report {
    char name[128], path[512];
    uint64_t file_bytes;
    uint64_t dense_bytes_a_token,
        expert_bytes_a_token; /* of weights that decoding one token reads */
    uint32_t generate, runs, threads;
    bool on_host; /* no weights are on a device */
    struct row rows[MAX_ROWS];
    uint32_t n_rows;
    struct samples read_bandwidth; /* bytes a second */
    const char *command;
};

void samples_add(struct samples *s, double value);

/* The table, in parts: its rows as soon as they are measured. A row without samples has dashes. */
void report_print_head(FILE *out);
void report_print_row(const struct report *r, const struct row *row, FILE *out);
void report_print_foot(const struct report *r, FILE *out);
void report_print_json(const struct report *r, FILE *out);

#endif
