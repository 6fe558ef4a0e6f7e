/* Values on the device that computes them, and their copy in host memory. The dense part allocates
 * and fetches them (worker/forward/dense.h); the experts read them. */
#ifndef MOED_WORKER_LINKS_MIRRORED_VALUES_H
#define MOED_WORKER_LINKS_MIRRORED_VALUES_H

/* Borrowed memory. The two are the same address where the host computes. */
struct mirrored_values {
    void *own;  /* where the values are computed */
    void *host; /* in host memory: the values once they are fetched */
};

#endif
