/*
 * The median of measured values.
 */
#ifndef MUSTER_WORKER_COMMUNICATOR_MEDIAN_H
#define MUSTER_WORKER_COMMUNICATOR_MEDIAN_H

#include <stddef.h>

/* Of the values that are not NaN, the upper one of two; NaN if there is none. Sorts those values to
 * the front. */
double muster_median(double *values, size_t count);

#endif
