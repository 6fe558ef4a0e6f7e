/* Lists a plan's tensors from its checked options. */
#ifndef MOED_MKMODEL_TENSORS_H
#define MOED_MKMODEL_TENSORS_H

#include "mkmodel/plan.h"

/* Appends every tensor of the model and sums their bytes. */
enum error_code tensors_list(struct plan *p, struct error *e);

#endif
