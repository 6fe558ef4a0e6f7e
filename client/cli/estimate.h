/* The mean of negative log-likelihoods and its error.
 *
 * Tokens of one window are not independent: a hard passage makes many of them unlikely. So windows
 * are the sampling units, where there are enough: the mean is the ratio of two sums over windows,
 * and its error follows from the distance of each window's sum from what the mean predicts
 * (Cochran, Sampling Techniques, 3rd edition, section 6.3, without the finite population term). The
 * interval uses Student's t with one degree of freedom less than windows. With fewer than
 * ESTIMATE_ENOUGH_WINDOWS windows, tokens count as independent, which makes the interval too
 * narrow. */
#ifndef MOED_CLI_ESTIMATE_H
#define MOED_CLI_ESTIMATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ESTIMATE_ENOUGH_WINDOWS 10

struct estimate_window {
    double sum;
    uint64_t tokens;
};

struct estimate {
    struct estimate_window *windows; /* finished ones */
    size_t n_windows, capacity;
    struct estimate_window current;
    double current_squares, squares; /* of single tokens: of the current window, of finished ones */
};

struct estimate_result {
    uint64_t tokens;
    double mean;           /* nats a token */
    double standard_error; /* NaN: fewer than two tokens */
    double low, high;      /* 95 % confidence interval of the mean; NaN: fewer than two tokens */
    bool over_windows;     /* else over tokens */
};

void estimate_init(struct estimate *e);
void estimate_fini(struct estimate *e);
/* Adds a token to the current window. */
void estimate_add(struct estimate *e, double nll);
/* Completes the current window. False: no memory. */
bool estimate_end_window(struct estimate *e);
/* Drops the tokens of the current window. */
void estimate_drop_window(struct estimate *e);
/* The result over the finished windows. */
struct estimate_result estimate_get(const struct estimate *e);

#endif
