/*
 * Adam (Kingma and Ba 2015, algorithm 1). Every member runs it on the same averaged gradients, so
 * all have the same weights without exchanging them, if it gives the same bits on any processor.
 * Therefore it uses only operations that IEEE 754 rounds exactly, no power function, and is not
 * compiled for particular processors.
 */
#ifndef CHARLM_ADAM_H
#define CHARLM_ADAM_H

#include <stddef.h>

/* The part of Adam's state besides the moments. Both are 1 at the start. */
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
