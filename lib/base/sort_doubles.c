/* Sorting doubles; see sort_doubles.h. */
#include "base/sort_doubles.h"

#include <stdlib.h>

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

void sort_doubles(double *values, size_t n)
{
    qsort(values, n, sizeof *values, ascending);
}
