/* The Adam optimizer, with operations that every processor rounds alike. */
#include "worker/examples/charlm/adam.h"

#include <math.h>

#define FIRST_DECAY 0.9
#define SECOND_DECAY 0.999
#define EPSILON 1e-8F

/* A smaller moment becomes zero. Otherwise the moments of rare characters would decay into denormal
 * numbers, with which processors compute a hundred times slower. */
#define NEGLIGIBLE 1e-30F

static inline float decayed(float moment, float decay, float new_value)
{
    float value = decay * moment + (1 - decay) * new_value;
    return fabsf(value) < NEGLIGIBLE ? 0 : value;
}

void charlm_adam_step(const struct charlm_adam *adam, float *weights, const float *gradient,
                      size_t count, double learning_rate)
{
    float *first = adam->first;
    float *second = adam->second;
    adam->powers->first *= FIRST_DECAY;
    adam->powers->second *= SECOND_DECAY;
    float rate = (float)(learning_rate / (1 - adam->powers->first));
    float unbias = (float)(1 / (1 - adam->powers->second));
    for (size_t i = 0; i < count; i++) {
        first[i] = decayed(first[i], (float)FIRST_DECAY, gradient[i]);
        second[i] = decayed(second[i], (float)SECOND_DECAY, gradient[i] * gradient[i]);
        weights[i] -= rate * first[i] / (sqrtf(second[i] * unbias) + EPSILON);
    }
}
