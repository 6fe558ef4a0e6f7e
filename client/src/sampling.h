/* libmoed: sampling parameters as messages. */
#ifndef MOED_CLIENT_SAMPLING_H
#define MOED_CLIENT_SAMPLING_H

#include "client/include/moed.h"

#include "session.pb-c.h"

/* A Sampling with its lists, which the caller frees with sampling_message_fini. Borrows the
 * program's options. */
struct sampling_message {
    Moed__V1__Sampling message;
    Moed__V1__LogitBias *biases, **bias_pointers;
    ProtobufCBinaryData *breakers;
};

/* False: out of memory. seed: what MOED_RANDOM_SEED stands for. */
bool sampling_message_init(struct sampling_message *m, const struct moed_sampling *s,
                           uint64_t seed);
void sampling_message_fini(struct sampling_message *m);

/* What the worker says are the model's defaults. order: the caller's, or NULL. */
struct moed_sampling sampling_from_message(const Moed__V1__Sampling *m, const char *order);

#endif
