/* The median of measured values. */
#include "worker/communicator/median.h"

#include <math.h>
#include <stdlib.h>

static int compare(const void *left, const void *right)
{
    double a = *(const double *)left;
    double b = *(const double *)right;
    return (a > b) - (a < b);
}

double muster_median(double *values, size_t count)
{
    size_t numbers = 0;
    for (size_t i = 0; i < count; i++) {
        if (!isnan(values[i])) {
            values[numbers++] = values[i];
        }
    }
    qsort(values, numbers, sizeof *values, compare);
    return numbers > 0 ? values[numbers / 2] : NAN;
}
