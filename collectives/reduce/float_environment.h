/*
 * The floating-point environment for values on which members must agree: sums and predicted times.
 * The calling thread may flush denormals to zero (as a program linked with -ffast-math does), round
 * in another direction, or trap. Between muster_float_environment_enter() and
 * muster_float_environment_leave() the environment is the one with which a program starts.
 */
#ifndef MUSTER_COLLECTIVES_REDUCE_FLOAT_ENVIRONMENT_H
#define MUSTER_COLLECTIVES_REDUCE_FLOAT_ENVIRONMENT_H

#ifdef __x86_64__
#include <xmmintrin.h>

typedef unsigned muster_float_environment;

/* All exceptions masked, rounding to nearest, denormals kept; and the status flags, which no code
 * reads. */
enum { MUSTER_FLOAT_ENVIRONMENT_DEFAULT = 0x1f80, MUSTER_FLOAT_ENVIRONMENT_FLAGS = 0x3f };

static inline muster_float_environment muster_float_environment_enter(void)
{
    muster_float_environment was = _mm_getcsr();
    if ((was & ~(unsigned)MUSTER_FLOAT_ENVIRONMENT_FLAGS) != MUSTER_FLOAT_ENVIRONMENT_DEFAULT) {
        _mm_setcsr(MUSTER_FLOAT_ENVIRONMENT_DEFAULT);
    }
    return was;
}

static inline void muster_float_environment_leave(const muster_float_environment *was)
{
    if ((*was & ~(unsigned)MUSTER_FLOAT_ENVIRONMENT_FLAGS) != MUSTER_FLOAT_ENVIRONMENT_DEFAULT) {
        _mm_setcsr(*was);
    }
}

#else
#include <fenv.h>

typedef fenv_t muster_float_environment;

static inline muster_float_environment muster_float_environment_enter(void)
{
    muster_float_environment was;
    (void)fegetenv(&was);
    (void)fesetenv(FE_DFL_ENV);
    return was;
}

static inline void muster_float_environment_leave(const muster_float_environment *was)
{
    (void)fesetenv(was);
}
#endif

/* Enters, and leaves at the end of the scope. */
#define AUTO_FLOAT_ENVIRONMENT()                                     \
    __attribute__((cleanup(muster_float_environment_leave), unused)) \
    const muster_float_environment auto_was_ = muster_float_environment_enter()

#endif
