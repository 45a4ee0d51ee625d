/* Statistics of measured values: sorting, percentiles, medians. */
#include "worker/base/statistics.h"

#include <stdlib.h>

static int compare(const void *left_value, const void *right_value)
{
    double left = *(const double *)left_value;
    double right = *(const double *)right_value;
    return (left > right) - (left < right);
}

void muster_statistics_sort(double *values, size_t count)
{
    qsort(values, count, sizeof *values, compare);
}

double muster_statistics_percentile(const double *sorted, size_t count, double share)
{
    double exact = share * (double)count;
    size_t rank = (size_t)exact;
    rank += (double)rank < exact ? 1 : 0; /* rounded up */
    return sorted[rank > 0 ? rank - 1 : 0];
}

double muster_statistics_median_low(double *values, size_t count)
{
    muster_statistics_sort(values, count);
    return values[(count - 1) / 2];
}

double muster_statistics_median_high(double *values, size_t count)
{
    muster_statistics_sort(values, count);
    return values[count / 2];
}
