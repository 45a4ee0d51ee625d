/*
 * Adam (Kingma and Ba 2015, algorithm 1). Every member runs it on the same averaged gradients, so
 * all keep the same weights without exchanging them: it must give the same bits on any processor.
 * That is why it uses only operations that IEEE 754 rounds exactly, no power function, and is not
 * compiled for particular processors.
 */
#ifndef CHARLM_ADAM_H
#define CHARLM_ADAM_H

#include <stddef.h>

/* What the job must not lose of it, besides the moments. All ones at the start. */
struct charlm_adam_powers {
    double first, second; /* decay rates to the power of the number of steps */
};

struct charlm_adam {
    float *first, *second; /* moments, one of each for every weight; zero at the start */
    struct charlm_adam_powers *powers;
};

void charlm_adam_step(const struct charlm_adam *adam, float *weights, const float *gradient,
                      size_t count, double learning_rate);

#endif
