/* Sorting measurements, for their median and the like. */
#ifndef MOED_BASE_SORT_DOUBLES_H
#define MOED_BASE_SORT_DOUBLES_H

#include <stddef.h>

/* Ascending; none is NaN. */
void sort_doubles(double *values, size_t n);

#endif
