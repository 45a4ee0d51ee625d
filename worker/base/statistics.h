/* Statistics of measured values: order statistics by nearest rank, so that every result is one of
 * the values. No value may be NaN, or the order of the values is unspecified. Pure. */
#ifndef MUSTER_WORKER_BASE_STATISTICS_H
#define MUSTER_WORKER_BASE_STATISTICS_H

#include <stddef.h>

/* Sorts, the smallest value first. */
void muster_statistics_sort(double *values, size_t count);

/* Of sorted values, count >= 1: the smallest one that at least this share (0 to 1) of them do not
 * exceed. */
double muster_statistics_percentile(const double *sorted, size_t count, double share);

/* Sort the values, count >= 1. Of the two middle ones of an even count: the lower or the higher. */
double muster_statistics_median_low(double *values, size_t count);
double muster_statistics_median_high(double *values, size_t count);

#endif
