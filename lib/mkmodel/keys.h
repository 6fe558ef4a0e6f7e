/* Writes a plan's keys: the hyper-parameters, as the architecture's converters write them. */
#ifndef MOED_MKMODEL_KEYS_H
#define MOED_MKMODEL_KEYS_H

#include "gguf/gguf_write.h"
#include "mkmodel/plan.h"

void keys_write(struct gguf_writer *w, const struct plan *p);

#endif
