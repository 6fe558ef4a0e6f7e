/* Sorting measurements, as for their median. */
#ifndef MOED_BASE_SORT_DOUBLES_H
#define MOED_BASE_SORT_DOUBLES_H

#include <stddef.h>

/* Ascending. values contain no NaN. */
void sort_doubles(double *values, size_t n);

#endif
